//! Orders erases after earlier writes if there is a host between this program and the medium ([`media::Host`]).
//!
//! A crash of the host can leave an erase on the medium but lose a write that preceded it, such as the copy that made
//! the erased block obsolete. So a block is erased only after a sync that began after the block was released: its
//! replacement was written before that. One sync covers all blocks queued by then, so a caller that syncs regularly
//! and erases afterwards never waits here. The replacement of a block of an array is spread over all members, so the
//! files of all of them are synced.
//!
//! An unmapped LEB is not mapped again before such a sync either: the new block's header would hide the content of
//! the old block, and the replacement of that content may not be on the medium. The sync must also come after the
//! erase of the old block: otherwise the old content could reappear if the new header is lost but a later write that
//! refers to the LEB is not.
//!
//! A failed sync may have lost any of the writes it covered, and the host reports that once. So all further syncs
//! fail, too.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use media::{Host, Leb, Nand, NandError, Peb};

/// Syncs of the hosts of all members of an array, or of one device.
#[derive(Debug)]
struct Syncs {
    /// Number of syncs begun. A block waits for the first sync that begins at or after its number.
    begun: AtomicU64,
    members: Vec<Member>,
    failed: OnceLock<Arc<str>>,
}

#[derive(Debug)]
struct Member {
    host: Arc<dyn Host>,
    /// All syncs with lower numbers are done or superseded.
    done: AtomicU64,
}

/// The name of a device, and its host.
type HostOf = (Arc<str>, Option<Arc<dyn Host>>);

/// The sync state that a device shares with its array.
#[derive(Clone, Debug)]
pub(crate) struct SyncOrder {
    syncs: Arc<Syncs>,
    /// Index of the device among the members; `None` if the device has no host.
    own: Option<usize>,
    device: Arc<str>,
}

impl SyncOrder {
    /// For a single device.
    pub(crate) fn alone(nand: &dyn Nand) -> Self {
        let mut orders = Self::of([(nand.name(), nand.host())]);
        orders.pop().expect("one for each device")
    }

    /// For devices whose data depend on each other.
    pub(crate) fn of(devices: impl IntoIterator<Item = HostOf>) -> Vec<Self> {
        let (mut members, mut places) = (Vec::new(), Vec::new());
        for (device, host) in devices {
            places.push((device, host.is_some().then_some(members.len())));
            members.extend(host.map(|host| Member {
                host,
                done: AtomicU64::new(0),
            }));
        }
        let syncs = Arc::new(Syncs {
            begun: AtomicU64::new(0),
            members,
            failed: OnceLock::new(),
        });
        let order = |(device, own)| Self {
            syncs: Arc::clone(&syncs),
            own,
            device,
        };
        places.into_iter().map(order).collect()
    }

    /// Number of the sync that a block released at this moment waits for.
    fn next(&self) -> u64 {
        self.syncs.begun.load(Ordering::SeqCst)
    }

    /// Syncs this device by calling `sync`.
    pub(crate) fn sync(&self, sync: impl FnOnce() -> Result<(), NandError>) -> Result<(), NandError> {
        let begun = self.begin()?;
        self.noted(sync())?;
        if let Some(own) = self.own {
            self.syncs.members[own]
                .done
                .fetch_max(begun + 1, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Waits until all members have done sync `number` or a later one; starts one if necessary.
    fn wait_for(&self, number: u64) -> Result<(), NandError> {
        let is_late = |member: &&Member| member.done.load(Ordering::SeqCst) <= number;
        if !self.syncs.members.iter().any(|member| is_late(&member)) {
            return Ok(());
        }
        let begun = self.begin()?;
        for member in self.syncs.members.iter().filter(is_late) {
            self.noted(member.host.sync())?;
            member.done.fetch_max(begun + 1, Ordering::SeqCst);
        }
        Ok(())
    }

    fn begin(&self) -> Result<u64, NandError> {
        match self.syncs.failed.get() {
            None => Ok(self.syncs.begun.fetch_add(1, Ordering::SeqCst)),
            Some(why) => Err(NandError::Host {
                device: Arc::clone(&self.device),
                action: "writing everything out, now or before,".to_owned(),
                source: std::io::Error::other(why.to_string()),
            }),
        }
    }

    fn noted(&self, synced: Result<(), NandError>) -> Result<(), NandError> {
        synced.inspect_err(|error| {
            self.syncs.failed.get_or_init(|| error.to_string().into());
        })
    }
}

/// Blocks that wait to be erased, in the order of their release. The order guarantees that after a power cut an
/// unmapped LEB has its last content or none, never an older one.
#[derive(Debug, Default)]
pub(crate) struct EraseQueue {
    pebs: VecDeque<Peb>,
    /// Sync number that blocks wait for, and the length of the run of blocks with that number.
    waits: VecDeque<(u64, usize)>,
    /// Number of blocks ever appended.
    pushed: u64,
    /// Number of blocks pushed to the front that still wait.
    first: u64,
}

impl EraseQueue {
    /// A queue of blocks that wait for no sync.
    pub(crate) fn of(pebs: VecDeque<Peb>) -> Self {
        Self {
            waits: VecDeque::from([(0, pebs.len())]),
            pebs,
            pushed: 0,
            first: 0,
        }
    }

    /// Number of appended blocks that have left the queue.
    pub(crate) fn popped(&self) -> u64 {
        let waiting = u64::try_from(self.pebs.len()).unwrap_or(u64::MAX) - self.first;
        self.pushed.saturating_sub(waiting)
    }

    pub(crate) fn front(&self) -> Option<Peb> {
        self.pebs.front().copied()
    }

    pub(crate) fn push(&mut self, peb: Peb, order: &SyncOrder) {
        self.pebs.push_back(peb);
        self.pushed += 1;
        let number = order.next();
        match self.waits.back_mut().filter(|(last, _)| *last == number) {
            Some((_, count)) => *count += 1,
            None => self.waits.push_back((number, 1)),
        }
    }

    /// Pushes a block to the front of the queue.
    pub(crate) fn push_front(&mut self, peb: Peb, order: &SyncOrder) {
        self.pebs.push_front(peb);
        self.first += 1;
        self.waits.push_front((order.next(), 1));
    }

    /// The next block, after the sync that it waits for.
    pub(crate) fn pop(&mut self, order: &SyncOrder) -> Result<Option<Peb>, NandError> {
        if self.pebs.is_empty() {
            return Ok(None);
        }
        while self.waits.front().is_some_and(|(_, count)| *count == 0) {
            self.waits.pop_front();
        }
        if let Some((number, count)) = self.waits.front_mut() {
            order.wait_for(*number)?;
            *count -= 1;
        }
        self.first = self.first.saturating_sub(1);
        Ok(self.pebs.pop_front())
    }

    /// Releases excess capacity.
    pub(crate) fn shrink(&mut self) {
        self.pebs.shrink_to_fit();
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.pebs.capacity() * size_of::<Peb>() + self.waits.capacity() * size_of::<(u64, usize)>()
    }
}

/// LEBs that were unmapped, kept until a sync after the erase of their blocks: from then on a crash of the host
/// cannot bring back their content.
#[derive(Debug, Default)]
pub(crate) struct UnmappedLebs(HashMap<(u32, Leb), u64>);

impl UnmappedLebs {
    /// Records that a LEB was unmapped and its block appended to the queue.
    pub(crate) fn note(&mut self, volume: u32, leb: Leb, order: &SyncOrder, queue: &EraseQueue) {
        if !order.syncs.members.is_empty() {
            self.0.insert((volume, leb), queue.pushed);
        }
    }

    /// Whether the former content of a LEB may reappear.
    pub(crate) fn has(&self, volume: u32, leb: Leb) -> bool {
        self.0.contains_key(&(volume, leb))
    }

    /// Forgets LEBs whose blocks were among the first `erased` of the queue: a sync followed their erase.
    pub(crate) fn forget(&mut self, erased: u64) {
        self.0.retain(|_, number| *number > erased);
        self.0.shrink_to_fit();
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.0.capacity() * size_of::<((u32, Leb), u64)>()
    }
}
