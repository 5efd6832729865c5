//! A mounted file system: its workers, its end, and its statistics.
//!
//! Threads: `threads` workers, each with a descriptor and a region of its own. They share the dispatcher and nothing
//! else. The thread that called [`Session::mount`] waits in [`Session::wait`].

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use vfs::FileSystem;
use zerocopy::IntoBytes;

use crate::abi::InHeader;
use crate::backing::Registrar;
use crate::counters::Counters;
use crate::device::{self, Channel, reply};
use crate::dispatch::Dispatcher;
use crate::inode_states::InodeStates;
use crate::negotiate::{self, Surroundings};
use crate::reply::Trust;
use crate::uring::{self, RingChannel};
use crate::{MountConfig, MountError, Negotiated, SessionStats, Transport, mount, resident};

/// How long a stopped session serves files that are still open after the lazy unmount.
const GRACE: Duration = Duration::from_secs(2);

/// Produces the document of `tidegate stats` from the session's part.
pub type StatsDocument = Box<dyn Fn(&SessionStats, &Negotiated) -> Vec<u8> + Send + Sync>;

/// Workers still running, and whether someone asked for the end.
#[derive(Default)]
struct Life {
    workers: usize,
    stop_asked: bool,
    failure: Option<io::Error>,
}

#[derive(Default)]
struct Shared {
    life: Mutex<Life>,
    changed: Condvar,
}

/// A mount that is up; [`Session::wait`] returns when it is gone.
pub struct Session {
    dispatcher: Arc<Dispatcher>,
    negotiated: Arc<Negotiated>,
    shared: Arc<Shared>,
    mountpoint: PathBuf,
    workers: Vec<JoinHandle<()>>,
}

/// Ends a session from another thread or a signal handler's thread.
#[derive(Clone)]
pub struct Stopper {
    shared: Arc<Shared>,
    mountpoint: PathBuf,
}

impl Stopper {
    /// Pushes out what the kernel holds back (syncfs), unmounts lazily and lets [`Session::wait`] return.
    ///
    /// Errors of the write-back are the files' own and reach their users; a mount that is gone already is fine.
    pub fn stop(&self) {
        let _ = mount::write_back(&self.mountpoint);
        let _ = mount::unmount(&self.mountpoint, true);
        self.shared
            .life
            .lock()
            .expect("no panic under this lock")
            .stop_asked = true;
        self.shared.changed.notify_all();
    }
}

impl Session {
    /// Mounts `file_system` on `mountpoint` and starts the workers. Returns when the mount answers.
    ///
    /// `document` is called for each `tidegate stats` and returns the JSON document to hand out.
    pub fn mount(
        file_system: Arc<dyn FileSystem>,
        mountpoint: &Path,
        config: &MountConfig,
        document: StatsDocument,
    ) -> Result<Self, MountError> {
        let surroundings = Surroundings::ask();
        let mountpoint = mount::absolute(mountpoint)?;
        let device = mount::mount(&mountpoint, config, config.io_unit_bytes)?;
        let mut up = MountGuard {
            mountpoint: &mountpoint,
            armed: true,
        };
        let (device, negotiated) = handshake(device, config, &surroundings)?;
        let negotiated = Arc::new(negotiated);
        let dispatcher = Self::dispatcher(file_system, config, &device, &negotiated, document);
        let shared = Arc::new(Shared::default());
        let mut session = Self {
            dispatcher,
            negotiated,
            shared,
            mountpoint: mountpoint.clone(),
            workers: Vec::new(),
        };
        session.start(&device)?;
        up.armed = false;
        resident::drop_start_up_pages();
        Ok(session)
    }

    fn dispatcher(
        file_system: Arc<dyn FileSystem>,
        config: &MountConfig,
        device: &Arc<OwnedFd>,
        negotiated: &Arc<Negotiated>,
        document: StatsDocument,
    ) -> Arc<Dispatcher> {
        Arc::new_cyclic(|weak: &Weak<Dispatcher>| {
            let (weak, granted) = (weak.clone(), negotiated.clone());
            Dispatcher {
                file_system,
                trust: Trust {
                    attr: config.attr_ttl,
                    entry: config.entry_ttl,
                },
                direct_io: negotiated.direct_io,
                writeback: negotiated.writeback,
                inodes: InodeStates::new(negotiated.passthrough.then(|| Registrar::new(device.clone()))),
                forget_attributes: {
                    let device = device.clone();
                    Box::new(move |ino| device::forget_attributes(&device, ino))
                },
                counters: Counters::new(),
                stats_document: Box::new(move || {
                    let Some(dispatcher) = weak.upgrade() else {
                        return Vec::new();
                    };
                    let mut granted = Negotiated::clone(&granted);
                    granted.not_granted.extend(dispatcher.inodes.refusals());
                    document(&dispatcher.counters.snapshot(), &granted)
                }),
                in_flight: AtomicUsize::new(0),
            }
        })
    }

    fn start(&mut self, device: &Arc<OwnedFd>) -> Result<(), MountError> {
        let failed = |source| MountError::Protocol {
            doing: "starting the workers",
            source,
        };
        let data_bytes = usize::try_from(self.negotiated.write_bytes_max).expect("32 bits fit");
        let over_rings = self.negotiated.transport == Transport::IoUring;
        // Requests that no ring carries (forgets, interrupts) and those before the rings are ready come by the device.
        let device_workers = if over_rings { 1 } else { self.negotiated.threads };
        for number in 0..device_workers {
            // A connection's descriptor may be shared where the kernel gives no second one.
            let own = match number {
                0 => device.clone(),
                _ => mount::clone_device(device).map_or_else(|_| device.clone(), Arc::new),
            };
            let mut channel = Channel::new(own, data_bytes).map_err(failed)?;
            self.spawn(format!("fuse-{number}"), move |dispatcher| {
                channel.serve(dispatcher)
            })
            .map_err(failed)?;
        }
        if over_rings {
            let queues = uring::queue_count();
            for number in 0..queues.max(self.negotiated.threads) {
                let queue = number % queues;
                let mut channel = RingChannel::new(device.clone(), queue, data_bytes).map_err(failed)?;
                let serve = move |dispatcher: &Dispatcher| {
                    uring::pin_to(queue);
                    channel.register()?;
                    channel.serve(dispatcher)
                };
                self.spawn(format!("fuse-ring-{number}"), serve).map_err(failed)?;
            }
        }
        Ok(())
    }

    fn spawn(
        &mut self,
        name: String,
        serve: impl FnOnce(&Dispatcher) -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let (dispatcher, shared) = (self.dispatcher.clone(), self.shared.clone());
        self.shared.life.lock().expect("no panic under this lock").workers += 1;
        let worker = std::thread::Builder::new()
            .name(name)
            .stack_size(256 << 10)
            .spawn(move || {
                let result = serve(&dispatcher);
                let mut life = shared.life.lock().expect("no panic under this lock");
                life.workers -= 1;
                if let Err(error) = result {
                    life.failure.get_or_insert(error);
                }
                shared.changed.notify_all();
            })?;
        self.workers.push(worker);
        Ok(())
    }

    /// What the kernel granted.
    #[must_use]
    pub fn negotiated(&self) -> &Negotiated {
        &self.negotiated
    }

    /// Ends this session from elsewhere.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper {
            shared: self.shared.clone(),
            mountpoint: self.mountpoint.clone(),
        }
    }

    /// Serves until the file system is unmounted or stopped. On return no request is being served and none will be:
    /// what was acknowledged is in the layers below.
    pub fn wait(self) -> Result<(), MountError> {
        let mut life = self.shared.life.lock().expect("no panic under this lock");
        while life.workers > 0 && !life.stop_asked {
            life = self.shared.changed.wait(life).expect("no panic under this lock");
        }
        let until = Instant::now() + GRACE;
        while life.workers > 0 {
            let Some(left) = until.checked_duration_since(Instant::now()) else {
                break;
            };
            life = self
                .shared
                .changed
                .wait_timeout(life, left)
                .expect("no panic under this lock")
                .0;
        }
        let failure = life.failure.take();
        let all_ended = life.workers == 0;
        drop(life);
        // Files are still open in the detached mount: their next request finds the session closed.
        self.dispatcher
            .in_flight
            .fetch_add(Dispatcher::CLOSED, Ordering::AcqRel);
        while self.dispatcher.in_flight.load(Ordering::Acquire) != Dispatcher::CLOSED {
            std::thread::sleep(Duration::from_millis(1));
        }
        if all_ended {
            for worker in self.workers {
                let _ = worker.join();
            }
        }
        match failure {
            None => Ok(()),
            Some(source) => Err(MountError::Protocol {
                doing: "serving requests",
                source,
            }),
        }
    }
}

/// Takes a mount off again when setting it up fails half way.
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
