//! A mounted file system: its workers, its end, and its statistics.
//!
//! Threads: `threads` workers, each with its own descriptor and region. They share only the dispatcher. The thread that
//! called [`Session::mount`] waits in [`Session::wait`].

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use vfs::{FileSystem, Reports};
use zerocopy::IntoBytes;

use crate::abi::{INC_EPOCH_MINOR, InHeader};
use crate::backing::Registrar;
use crate::caching::{self, Caching, Listings};
use crate::counters::Counters;
use crate::device::{Channel, reply};
use crate::dispatch::Dispatcher;
use crate::error_log::{ErrorListener, ErrorLog};
use crate::inode_states::InodeStates;
use crate::mount::Place;
use crate::negotiate::{self, Surroundings};
use crate::notify::{self, Notifier};
use crate::poll::Poller;
use crate::reply::Trust;
use crate::uring::{self, RingChannel};
use crate::worker::{Life, Serve, Shared, Worker};
use crate::write::SyncedByKernel;
use crate::{
    Coherence, MountConfig, MountError, Negotiated, Opens, SessionStats, Transport, ioctl, mount, resident,
};

/// Time that a stopped session serves files that are still open after the lazy unmount.
const GRACE: Duration = Duration::from_secs(2);

/// Produces the document of `tidegate stats` from the session's counters.
pub type StatsDocument = Box<dyn Fn(&SessionStats, &Negotiated) -> Vec<u8> + Send + Sync>;

/// Limit for writing back the kernel's dirty data after a session failed.
const WRITE_BACK_LIMIT: Duration = Duration::from_secs(10);
/// Limit for requests in flight after a session failed: a panic may have left a lock taken that they wait for.
const STUCK_LIMIT: Duration = Duration::from_secs(5);

/// A live mount; [`Session::wait`] returns when it is gone.
pub struct Session {
    dispatcher: Arc<Dispatcher>,
    negotiated: Arc<Negotiated>,
    shared: Arc<Shared>,
    place: Place,
    device: Arc<OwnedFd>,
    threads: Vec<JoinHandle<()>>,
    /// Reports of changes that bypass the file system; they end with this value.
    reports: Option<Reports>,
}

/// Ends a session from another thread or a signal handler's thread.
#[derive(Clone)]
pub struct Stopper {
    shared: Arc<Shared>,
    place: Place,
}

impl Stopper {
    /// Writes back the kernel's dirty data (syncfs), unmounts lazily and lets [`Session::wait`] return.
    ///
    /// It is no error if the mount is already gone, and a mount over it or in its place stays: a mount hidden by
    /// another one remains, and no longer answers once this process has ended.
    pub fn stop(&self) {
        // Without a worker the mount is gone, and its device number may have been reused.
        if self.shared.life().workers > 0 {
            self.place.write_back_and_unmount();
        }
        self.shared.life().stop_asked = true;
        self.shared.changed.notify_all();
    }
}

impl Session {
    /// Mounts `file_system` on `mountpoint` and starts the workers. Returns when the mount answers.
    ///
    /// `document` is called for each `tidegate stats` and returns the JSON document; `errors` receives errors of the
    /// medium, of space and of the machine.
    pub fn mount(
        file_system: Arc<dyn FileSystem>,
        mountpoint: &Path,
        config: &MountConfig,
        document: StatsDocument,
        errors: ErrorListener,
    ) -> Result<Self, MountError> {
        let surroundings = Surroundings::ask();
        let mountpoint = mount::absolute(mountpoint)?;
        let device = mount::mount(&mountpoint, config, config.io_unit_bytes)?;
        let mut up = MountGuard {
            mountpoint: &mountpoint,
            armed: true,
        };
        let (device, mut negotiated) = handshake(device, config, &surroundings)?;
        let place = Place::of(mountpoint.clone())?;
        file_system.mounted_as(place.device());
        let (caching, reports) = caching(&*file_system, config, &device, place.device(), &mut negotiated)?;
        let poller = poller(&device, &mut negotiated);
        let negotiated = Arc::new(negotiated);
        let dispatcher = Self::dispatcher(
            file_system,
            config,
            &device,
            &negotiated,
            caching,
            poller.clone(),
            (document, errors),
        );
        let shared = Arc::new(Shared::default());
        let mut session = Self {
            dispatcher,
            negotiated,
            shared,
            place,
            device,
            threads: Vec::new(),
            reports,
        };
        session.start(poller.as_ref())?;
        up.armed = false;
        resident::drop_start_up_pages();
        Ok(session)
    }

    fn dispatcher(
        file_system: Arc<dyn FileSystem>,
        config: &MountConfig,
        device: &Arc<OwnedFd>,
        negotiated: &Arc<Negotiated>,
        caching: Arc<Caching>,
        poller: Option<Arc<Poller>>,
        (document, errors): (StatsDocument, ErrorListener),
    ) -> Arc<Dispatcher> {
        Arc::new_cyclic(|weak: &Weak<Dispatcher>| {
            let (weak, granted) = (weak.clone(), negotiated.clone());
            Dispatcher {
                file_system,
                direct_io: negotiated.direct_io,
                opens_by_kernel: negotiated.opens == Opens::Kernel,
                writeback: negotiated.writeback,
                mount_sync: mount::sync_of(&config.kernel_options),
                synced_by_kernel: SyncedByKernel::new(negotiated.kernel_protocol.1, negotiated.direct_io),
                kernel_checks_ioctls: negotiated.kernel_protocol.1 >= ioctl::CHECKING_MINOR,
                inodes: InodeStates::new(
                    negotiated.passthrough.then(|| Registrar::new(device.clone())),
                    caching.is_told(),
                ),
                caching,
                forget_attributes: {
                    let device = device.clone();
                    Box::new(move |ino| notify::forget_attributes(&device, ino))
                },
                counters: Counters::new(),
                errors: ErrorLog::new(errors),
                stats_document: Box::new(move || {
                    let Some(dispatcher) = weak.upgrade() else {
                        return Vec::new();
                    };
                    let mut granted = Negotiated::clone(&granted);
                    granted.not_granted.extend(dispatcher.inodes.refusals());
                    if let Some(reason) = dispatcher.caching.ended() {
                        granted.coherence = Coherence::Timeout;
                        granted.not_granted.push(format!("coherence: {reason}"));
                    }
                    let mut counted = dispatcher.counters.snapshot();
                    dispatcher.caching.told.add_to(&mut counted);
                    if let Some(poller) = &poller {
                        (counted.polls_found, counted.polls_missed) = poller.counts();
                    }
                    document(&counted, &granted)
                }),
                in_flight: AtomicUsize::new(0),
            }
        })
    }

    fn start(&mut self, poller: Option<&Arc<Poller>>) -> Result<(), MountError> {
        let failed = |source| MountError::Protocol {
            doing: "starting the workers",
            source,
        };
        let over_rings = self.negotiated.transport == Transport::IoUring;
        let data_bytes = usize::try_from(self.negotiated.write_bytes_max).expect("32 bits fit");
        // The device carries requests that no ring does (forgets, interrupts), and those sent before the rings are
        // ready.
        let device_workers = if over_rings { 1 } else { self.negotiated.threads };
        for number in 0..device_workers {
            // Workers may share a descriptor if the kernel grants no second one.
            let own = match number {
                0 => self.device.clone(),
                _ => mount::clone_device(&self.device).map_or_else(|_| self.device.clone(), Arc::new),
            };
            let channel = Channel::new(own, poller.cloned(), data_bytes).map_err(failed)?;
            self.add_worker(format!("fuse-{number}"), Box::new(channel))
                .map_err(failed)?;
        }
        if over_rings {
            let queues = uring::queue_count();
            for number in 0..queues.max(self.negotiated.threads) {
                let channel =
                    RingChannel::new(self.device.clone(), number % queues, data_bytes).map_err(failed)?;
                self.add_worker(format!("fuse-ring-{number}"), Box::new(channel))
                    .map_err(failed)?;
            }
        }
        Ok(())
    }

    fn add_worker(&mut self, name: String, transport: Box<dyn Serve>) -> io::Result<()> {
        self.start_thread(Arc::new(Worker::new(name, transport)))
    }

    fn start_thread(&mut self, worker: Arc<Worker>) -> io::Result<()> {
        let thread = worker.start(self.dispatcher.clone(), self.shared.clone())?;
        self.threads.push(thread);
        Ok(())
    }

    /// Features that the kernel granted.
    #[must_use]
    pub fn negotiated(&self) -> &Negotiated {
        &self.negotiated
    }

    /// A handle to end this session from elsewhere.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper {
            shared: self.shared.clone(),
            place: self.place.clone(),
        }
    }

    /// Serves until the file system is unmounted or stopped. On return no request is in flight and none will be: the
    /// layers below hold all acknowledged data.
    ///
    /// # Errors
    /// [`MountError::Aborted`] if the connection was aborted from outside; the layers below hold all data that this
    /// session acknowledged.
    ///
    /// Any other error: a request panicked or the connection broke. The mount was ended as by [`Stopper::stop`], but
    /// each wait had a limit: requests that never returned may still be in flight, and data held by the layers below
    /// may wait for them.
    pub fn wait(mut self) -> Result<(), MountError> {
        let reports = self.reports.take();
        let mut life = self.shared.life();
        while life.workers > 0 && !life.stop_asked && life.failure.is_none() {
            life = self.shared.changed.wait(life).expect("no panic under this lock");
        }
        let failed = life.failure.is_some();
        drop(life);
        drop(reports);
        if failed {
            self.stop_after_failure();
        }
        self.serve_while(GRACE, |life| life.workers > 0);
        // Files are still open in the detached mount: their next request finds the session closed.
        self.close();
        let mut life = self.shared.life();
        let (failure, all_ended) = (life.failure.take(), life.workers == 0);
        drop(life);
        if all_ended {
            for thread in self.threads {
                let _ = thread.join();
            }
        }
        if let Some(failure) = failure {
            return Err(failure.into_error());
        }
        if self.place.is_dead() {
            self.place.unmount();
            return Err(MountError::Aborted);
        }
        Ok(())
    }

    /// Waits while `condition` holds, at most for `limit`. Workers that panic meanwhile are replaced: dirty data of the
    /// kernel and of programs can only be written while requests are served.
    fn serve_while(&mut self, limit: Duration, condition: impl Fn(&Life) -> bool) {
        let deadline = Instant::now() + limit;
        loop {
            let shared = self.shared.clone();
            let mut life = shared.life();
            let panicked = std::mem::take(&mut life.panicked);
            if panicked.is_empty() {
                if !condition(&life) || Instant::now() >= deadline {
                    return;
                }
                drop(shared.wait_until(life, deadline));
                continue;
            }
            drop(life);
            for worker in panicked {
                // On failure the session goes on with one worker fewer.
                let _ = self.start_thread(worker);
            }
        }
    }

    /// Stops the session as [`Stopper::stop`] does, but in a new thread: this thread replaces panicked workers
    /// meanwhile, without which the write-back would never end.
    fn stop_after_failure(&mut self) {
        let stopper = self.stopper();
        let stopping = thread::Builder::new().name("fuse-stop".to_owned());
        if stopping.spawn(move || stopper.stop()).is_ok() {
            self.serve_while(WRITE_BACK_LIMIT, |life| !life.stop_asked);
        }
        // The write-back may hang, and the mount must not remain.
        self.place.unmount();
    }

    /// Admits no more requests and waits for those in flight: without limit if the session is healthy, as an fsync may
    /// take long.
    fn close(&self) {
        let in_flight = &self.dispatcher.in_flight;
        in_flight.fetch_add(Dispatcher::CLOSED, Ordering::AcqRel);
        let mut failed_at = None;
        while in_flight.load(Ordering::Acquire) != Dispatcher::CLOSED {
            if self.shared.life().failure.is_some()
                && failed_at.get_or_insert_with(Instant::now).elapsed() > STUCK_LIMIT
            {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// The polling of a session. Without a further descriptor, which old kernels do not grant, workers sleep at once.
fn poller(device: &OwnedFd, negotiated: &mut Negotiated) -> Option<Arc<Poller>> {
    let limit = Duration::from_nanos(negotiated.poll_ns);
    if limit.is_zero() {
        return None;
    }
    match Poller::new(device, limit) {
        Ok(poller) => Some(Arc::new(poller)),
        Err(error) => {
            negotiated.poll_ns = 0;
            let reason = format!("poll: no further descriptor of the connection: {error}");
            negotiated.not_granted.push(reason);
            None
        }
    }
}

/// Decides for how long the kernel keeps answers, and starts the reports that this needs.
fn caching(
    file_system: &dyn FileSystem,
    config: &MountConfig,
    device: &Arc<OwnedFd>,
    mount_device: u32,
    negotiated: &mut Negotiated,
) -> Result<(Arc<Caching>, Option<Reports>), MountError> {
    let timed = Trust {
        attr: config.attr_ttl,
        entry: config.entry_ttl,
    };
    let caching = Arc::new(Caching::new(timed, negotiated.writeback));
    let notifier = Arc::new(Notifier::new(device.clone(), caching.clone(), mount_device));
    let drops_all_names = negotiated.kernel_protocol.1 >= INC_EPOCH_MINOR;
    let (coherence, reports) = caching::choose(config.coherence, drops_all_names, file_system, notifier);
    let reports = match reports {
        Ok(reports) => reports,
        Err(reason) if config.coherence == Coherence::Watch => {
            return Err(MountError::Demanded {
                feature: "coherence=watch".to_owned(),
                reason,
            });
        }
        Err(reason) => {
            negotiated.not_granted.push(format!("coherence: {reason}"));
            None
        }
    };
    negotiated.coherence = coherence;
    let listings = Listings {
        handles_are_optional: negotiated.directory_handles_are_optional,
        are_counted: config.kernel_options.iter().any(|option| option == "strictatime"),
    };
    caching.settle(coherence, listings, file_system);
    Ok((caching, reports))
}

/// Unmounts if setting up fails half way.
struct MountGuard<'a> {
    mountpoint: &'a Path,
    armed: bool,
}

impl Drop for MountGuard<'_> {
    fn drop(&mut self) {
        if self.armed {
            let _ = mount::unmount(self.mountpoint, true);
        }
    }
}

/// Reads the kernel's INIT and answers it.
fn handshake(
    device: OwnedFd,
    config: &MountConfig,
    surroundings: &Surroundings,
) -> Result<(Arc<OwnedFd>, Negotiated), MountError> {
    let failed = |source: io::Error| MountError::Protocol {
        doing: "answering the kernel's INIT",
        source,
    };
    let mut message = vec![0; 64 << 10];
    let length = loop {
        match rustix::io::read(&device, &mut message[..]) {
            Err(rustix::io::Errno::INTR) => {}
            other => break other.map_err(|errno| failed(errno.into()))?,
        }
    };
    let short = || {
        failed(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("INIT of {length} bytes is cut short"),
        ))
    };
    let (header, body) =
        <InHeader as zerocopy::FromBytes>::read_from_prefix(&message[..length]).map_err(|_| short())?;
    match negotiate::answer(body, config, surroundings) {
        Ok((out, negotiated)) => {
            reply(&device, header.unique, Ok(out.as_bytes())).map_err(failed)?;
            Ok((Arc::new(device), negotiated))
        }
        Err(error) => {
            let _ = reply(&device, header.unique, Err(vfs::FsError::Host(libc::EPROTO)));
            Err(error)
        }
    }
}
