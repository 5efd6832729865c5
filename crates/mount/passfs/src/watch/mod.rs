//! Watches the source for changes that bypass the mount, and reports them ([`vfs::ChangeListener`]).
//!
//! The kernel of the host tells each change by the handle of the changed inode and of the directory ([`group`]); the
//! inode table leads from there to the inodes that the caller knows. Events of this process are skipped: they are its
//! answers to requests, which the caller knows about. Writes under passthrough are made by the programs themselves; files
//! open for writing through the mount are excluded meanwhile ([`Watch::opened_for_writing`]), and the caller keeps their
//! attributes for a limited time only.
//!
//! One thread reads the events. After each batch it pauses for [`PAUSE`], during which the host merges further events of
//! the same inodes: this bounds its cost in a storm of events, and the delay of a report. It holds no lock while it
//! reports, so that the listener may block.
//!
//! # Losses
//! - The host's queue overflows (`fs.fanotify.max_queued_events`): everything known is reported as changed.
//! - The events can't be read or understood, or the thread panics: the reports end, with the reason, and everything known
//!   is reported as changed once.
//! - The listener does not know a changed inode, because the answer with it is still on its way: the report is repeated
//!   until it does, or the inode is forgotten.
//!
//! # Not reported
//! No host tells of writes through shared mappings and by AIO before the file is closed, of access times, and of space
//! that is allocated when data is written out. See `fuse::caching` for the consequences.

pub(crate) mod event;
pub(crate) mod group;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use vfs::{Change, ChangeListener, Ino};

use self::event::{Event, Events};
use self::group::Group;
use crate::attributes::HostKey;
use crate::inodes::InodeTable;

/// Pause after a batch of events, and interval at which reports are repeated at first.
const PAUSE: Duration = Duration::from_millis(4);
/// Interval at which reports are repeated later.
const REPEAT_LATE: Duration = Duration::from_millis(100);
/// Time after which the longer interval is used.
const REPEAT_EARLY: Duration = Duration::from_secs(1);
/// Time after which a report is repeated no more: the answer is no longer on its way, or is no longer valid.
const REPEAT_MAX: Duration = Duration::from_secs(60);
/// Bytes per read of events.
const BUFFER_BYTES: usize = 64 << 10;
/// Number of reads per batch, so that reports do not wait for the end of a storm.
const READS_MAX: usize = 16;

const NAMES: u64 = libc::FAN_CREATE | libc::FAN_DELETE | libc::FAN_MOVED_FROM | libc::FAN_MOVED_TO;
const CONTENT: u64 = libc::FAN_MODIFY | libc::FAN_CLOSE_WRITE;

/// Counters of a watch.
#[derive(Debug, Default)]
pub(crate) struct WatchTally {
    pub events: AtomicU64,
    pub own: AtomicU64,
    pub overflows: AtomicU64,
    pub repeated: AtomicU64,
}

/// A running watch.
#[derive(Debug)]
pub(crate) struct Watch {
    group: Arc<Group>,
}

impl Watch {
    /// A file is open for writing through the mount: its writes are reported no more.
    pub(crate) fn opened_for_writing(&self, file: BorrowedFd<'_>) {
        self.group.ignore_writes(file);
    }

    /// The last file that was open for writing is closed.
    pub(crate) fn closed_for_writing(&self, file: BorrowedFd<'_>) {
        self.group.heed_writes(file);
    }

    /// Starts the thread. It ends when the returned descriptor is closed.
    pub(crate) fn start(
        group: Group,
        table: Arc<InodeTable>,
        tally: Arc<WatchTally>,
        listener: Arc<dyn ChangeListener>,
        device: u32,
    ) -> Result<(Self, OwnedFd), String> {
        let failed = |error: String| format!("the watch of the source can't be started: {error}");
        let (end, keep) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .map_err(|error| failed(error.to_string()))?;
        let group = Arc::new(group);
        let source: Arc<dyn Readable> = group.clone();
        let watcher = Watcher {
            source,
            end,
            table,
            tally,
            listener,
            device,
            own: std::process::id(),
            unknown: BTreeMap::new(),
        };
        thread::Builder::new()
            .name("source-watch".to_owned())
            .spawn(move || watcher.run_to_the_end())
            .map_err(|error| failed(error.to_string()))?;
        Ok((Self { group }, keep))
    }
}

/// A descriptor with events.
trait Readable: AsFd + Send + Sync {}

impl<T: AsFd + Send + Sync> Readable for T {}

/// Kind of report, ordered by extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Extent {
    Attributes,
    Content,
}

/// The thread's state.
struct Watcher {
    source: Arc<dyn Readable>,
    /// Readable once nobody listens any more.
    end: OwnedFd,
    table: Arc<InodeTable>,
    tally: Arc<WatchTally>,
    listener: Arc<dyn ChangeListener>,
    device: u32,
    /// The process that makes the changes of the mount.
    own: u32,
    /// Changed inodes that the listener did not know, with the time of the change.
    unknown: BTreeMap<Ino, (Extent, Instant)>,
}

/// Changes of one batch, each once.
#[derive(Default)]
struct Batch {
    names: BTreeSet<(Ino, Box<[u8]>)>,
    inodes: BTreeMap<Ino, Extent>,
    is_incomplete: bool,
}

impl Batch {
    fn add(&mut self, ino: Ino, extent: Extent) {
        let known = self.inodes.entry(ino).or_insert(extent);
        *known = extent.max(*known);
    }
}

impl Watcher {
    fn run_to_the_end(mut self) {
        let ended = catch_unwind(AssertUnwindSafe(|| self.run()));
        let reason = match ended {
            Ok(Ok(())) => return,
            Ok(Err(reason)) => reason,
            Err(_) => "the thread that watches the source panicked".to_owned(),
        };
        // First, so that no further answer is kept for long.
        self.listener.ended(&reason);
        self.report_everything();
        // Answers on their way may still carry a long lifetime.
        while !self.unknown.is_empty() && !self.rest(REPEAT_LATE) {
            self.repeat();
        }
    }

    /// Reports changes until nobody listens. The error is the reason why no more can be reported.
    fn run(&mut self) -> Result<(), String> {
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            if self.wait()? {
                return Ok(());
            }
            let batch = self.read(&mut buffer)?;
            self.report(batch);
            self.repeat();
            if self.rest(PAUSE) {
                return Ok(());
            }
        }
    }

    /// Waits for events, or until reports are to be repeated. True if nobody listens any more.
    fn wait(&self) -> Result<bool, String> {
        let oldest = self.unknown.values().map(|(_, since)| since.elapsed()).max();
        let timeout = oldest.map(|age| match age < REPEAT_EARLY {
            true => PAUSE,
            false => REPEAT_LATE,
        });
        let timeout = timeout.map(timespec);
        let mut waited = [
            PollFd::new(&self.end, PollFlags::empty()),
            PollFd::from_borrowed_fd(self.source.as_fd(), PollFlags::IN),
        ];
        match poll(&mut waited, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(format!("events can't be waited for: {error}")),
        }
        if !waited[0].revents().is_empty() {
            return Ok(true);
        }
        let is_broken = waited[1].revents().intersects(PollFlags::ERR | PollFlags::NVAL);
        match is_broken {
            true => Err("the host ended the watch of the source".to_owned()),
            false => Ok(false),
        }
    }

    /// True if nobody listens any more.
    fn rest(&self, time: Duration) -> bool {
        let mut waited = [PollFd::new(&self.end, PollFlags::empty())];
        poll(&mut waited, Some(&timespec(time))).is_ok_and(|ready| ready > 0)
    }

    fn read(&self, buffer: &mut [u8]) -> Result<Batch, String> {
        let mut batch = Batch::default();
        for number in 0..READS_MAX {
            let length = match rustix::io::read(self.source.as_fd(), &mut *buffer) {
                // Reported again by the next batch.
                Ok(0) if number > 0 => break,
                Ok(0) => return Err("the events of the source have ended".to_owned()),
                Ok(length) => length,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(format!("events of the source can't be read: {error}")),
            };
            for event in Events::of(&buffer[..length]) {
                let event = event.ok_or("an event of the source can't be understood")?;
                self.take_in(&event, &mut batch);
            }
        }
        Ok(batch)
    }

    fn take_in(&self, event: &Event<'_>, batch: &mut Batch) {
        self.tally.events.fetch_add(1, Relaxed);
        if event.mask & libc::FAN_Q_OVERFLOW != 0 {
            batch.is_incomplete = true;
            return;
        }
        if u32::try_from(event.pid) == Ok(self.own) {
            self.tally.own.fetch_add(1, Relaxed);
            return;
        }
        let known = |inode| {
            self.table.number_of(HostKey {
                device: self.device,
                inode,
            })
        };
        let object = event.object.and_then(known);
        if event.mask & NAMES != 0
            && let Some((directory, name)) = event.name
            && let Some(parent) = known(directory)
        {
            batch.names.insert((parent, name.into()));
            batch.add(parent, Extent::Content);
        }
        if let Some(object) = object {
            let extent = match event.mask & CONTENT {
                0 => Extent::Attributes,
                _ => Extent::Content,
            };
            batch.add(object, extent);
        }
    }

    fn report(&mut self, batch: Batch) {
        if batch.is_incomplete {
            self.tally.overflows.fetch_add(1, Relaxed);
            self.report_everything();
            return;
        }
        for (parent, name) in &batch.names {
            self.listener.changed(Change::Name {
                parent: *parent,
                name,
            });
        }
        for (ino, extent) in batch.inodes {
            self.report_inode(ino, extent);
        }
    }

    fn report_everything(&mut self) {
        self.listener.changed(Change::AllNames);
        for ino in self.table.numbers() {
            self.report_inode(ino, Extent::Content);
        }
    }

    fn report_inode(&mut self, ino: Ino, extent: Extent) {
        if !self.listener.changed(change(ino, extent)) {
            let unknown = self.unknown.entry(ino).or_insert((extent, Instant::now()));
            unknown.0 = extent.max(unknown.0);
        }
    }

    fn repeat(&mut self) {
        let (table, listener, tally) = (&self.table, &self.listener, &self.tally);
        self.unknown.retain(|ino, (extent, since)| {
            if table.get(*ino).is_err() || since.elapsed() > REPEAT_MAX {
                return false;
            }
            tally.repeated.fetch_add(1, Relaxed);
            !listener.changed(change(*ino, *extent))
        });
    }
}

const fn change(ino: Ino, extent: Extent) -> Change<'static> {
    match extent {
        Extent::Attributes => Change::Attributes(ino),
        Extent::Content => Change::Content(ino),
    }
}

fn timespec(time: Duration) -> Timespec {
    Timespec::try_from(time).expect("a short time")
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use rustix::fs::OFlags;
    use vfs::FileKind;

    use super::event::tests::event;
    use super::*;
    use crate::anchor::Anchor;
    use crate::inodes::Inode;

    /// A listener that knows an inode from the third report on.
    #[derive(Default)]
    struct Heard {
        texts: Mutex<Vec<String>>,
        unknown: Option<Ino>,
    }

    impl ChangeListener for Heard {
        fn changed(&self, change: Change<'_>) -> bool {
            let text = match change {
                Change::Name { parent, name } => format!("{} {}", parent.0, name.escape_ascii()),
                Change::Attributes(ino) => format!("attributes {}", ino.0),
                Change::Content(ino) => format!("content {}", ino.0),
                Change::AllNames => "all names".to_owned(),
            };
            let mut texts = self.texts.lock().unwrap();
            texts.push(text.clone());
            let is_of_unknown = self
                .unknown
                .is_some_and(|ino| text.ends_with(&format!(" {}", ino.0)));
            !is_of_unknown || texts.iter().filter(|other| **other == text).count() > 2
        }

        fn ended(&self, reason: &str) {
            self.texts.lock().unwrap().push(format!("ended: {reason}"));
        }
    }

    fn inode(number: u64) -> Inode {
        let fd = rustix::fs::open("/", OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
        let key = HostKey {
            device: 1,
            inode: number,
        };
        Inode::new(Anchor::Descriptor(fd), key, FileKind::Regular)
    }

    /// The reports on `events` until they end, which is when they can be read no more. The inodes 1 (the root), 5 and 6
    /// of the host are known.
    fn heard(events: &[u8], unknown_of_host: Option<u64>) -> (Vec<String>, [Ino; 2]) {
        let table = Arc::new(InodeTable::new(inode(1), None));
        let known = [5, 6].map(|number| table.intern(inode(number), None).ino);
        let (source, writer) = rustix::pipe::pipe().unwrap();
        rustix::io::write(&writer, events).unwrap();
        drop(writer);
        let (end, _keep) = rustix::pipe::pipe().unwrap();
        let unknown = unknown_of_host.map(|number| known[usize::from(number == 6)]);
        let listener = Arc::new(Heard {
            texts: Mutex::default(),
            unknown,
        });
        let watcher = Watcher {
            source: Arc::new(source),
            end,
            table,
            tally: Arc::default(),
            listener: listener.clone(),
            device: 1,
            own: std::process::id(),
            unknown: BTreeMap::new(),
        };
        watcher.run_to_the_end();
        let texts = listener.texts.lock().unwrap().clone();
        (texts, known)
    }

    #[test]
    fn a_change_is_reported_once_a_batch_and_own_ones_never() {
        let own = i32::try_from(std::process::id()).unwrap();
        let bytes = [
            event(libc::FAN_CREATE, 1, Some((1, b"new")), Some(5)),
            event(libc::FAN_DELETE, 1, Some((1, b"new")), Some(5)),
            event(libc::FAN_CREATE, own, Some((1, b"own")), Some(6)),
            event(libc::FAN_CREATE, 1, Some((77, b"elsewhere")), Some(78)),
        ]
        .concat();
        let (texts, [five, _]) = heard(&bytes, None);
        // A pipe has no message borders: the read before the end has all events.
        let wanted = [
            "1 new".to_owned(),
            "content 1".to_owned(),
            format!("attributes {}", five.0),
        ];
        assert_eq!(texts[..3], wanted, "{texts:?}");
    }

    #[test]
    fn a_watch_that_dies_says_so_before_it_reports_everything() {
        for bytes in [&b"no event"[..], &event(libc::FAN_ATTRIB, 1, None, Some(5))[..30]] {
            let (texts, known) = heard(bytes, None);
            assert_eq!(texts[0], "ended: an event of the source can't be understood");
            assert_eq!(texts[1], "all names");
            let mut rest = texts[2..].to_vec();
            let mut wanted = ["content 1".to_owned()].to_vec();
            wanted.extend(known.map(|ino| format!("content {}", ino.0)));
            rest.sort_unstable();
            wanted.sort_unstable();
            assert_eq!(rest, wanted);
        }
    }

    #[test]
    fn after_an_overflow_everything_is_reported() {
        let (texts, known) = heard(&event(libc::FAN_Q_OVERFLOW, 0, None, None), None);
        assert_eq!(texts[0], "all names");
        for ino in known {
            assert!(texts.contains(&format!("content {}", ino.0)), "{texts:?}");
        }
    }

    #[test]
    fn a_report_is_repeated_until_the_inode_is_known() {
        let bytes = event(libc::FAN_ATTRIB, 1, None, Some(6));
        let (texts, [_, six]) = heard(&bytes, Some(6));
        let text = format!("attributes {}", six.0);
        let count = texts.iter().filter(|other| **other == text).count();
        // Its end reports it as content, and repeats that.
        let at_end = texts
            .iter()
            .filter(|other| **other == format!("content {}", six.0))
            .count();
        assert!(count >= 2 && at_end >= 1, "{texts:?}");
    }
}
