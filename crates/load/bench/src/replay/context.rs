//! State shared by all threads of a replay: trace, plan, open descriptors, the stop flag.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use results::call_trace::{Handle, Layer, Name, Trace};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::dependencies::DependencyTracker;
use super::plan::Plan;
use super::prepare::IMAGE;
use super::{DirectIo, ReplaySpec};
use crate::error::BenchError;
use crate::threads::Shared;

/// State shared by all threads.
pub struct ReplayContext<'run> {
    pub trace: &'run Trace,
    pub spec: &'run ReplaySpec,
    pub plan: &'run Plan,
    pub root_path: &'run Path,
    pub tracker: DependencyTracker,
    /// The run's directory.
    pub root: OwnedFd,
    image: Option<Arc<OwnedFd>>,
    /// True if the file system refused `O_DIRECT` for the image.
    pub image_is_buffered: bool,
    slots: Vec<Mutex<Option<Arc<OwnedFd>>>>,
    /// Progress in calls.
    pub shared: Shared<'run>,
}

impl<'run> ReplayContext<'run> {
    /// Opens the run's directory, and the image of a block trace.
    pub fn new(
        trace: &'run Trace,
        spec: &'run ReplaySpec,
        plan: &'run Plan,
        root_path: &'run Path,
        stop: &'run AtomicBool,
    ) -> Result<Self, BenchError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(root_path, flags, Mode::empty())
            .map_err(|errno| BenchError::io("open", root_path, errno))?;
        let (image, image_is_buffered) = match trace.layer {
            Layer::SystemCalls => (None, false),
            Layer::Block => {
                let (image, is_buffered) = open_image(root_path, spec.direct)?;
                (Some(Arc::new(image)), is_buffered)
            }
        };
        Ok(Self {
            trace,
            spec,
            plan,
            root_path,
            tracker: DependencyTracker::new(plan.resources),
            root,
            image,
            image_is_buffered,
            slots: (0..trace.handle_count()).map(|_| Mutex::new(None)).collect(),
            shared: Shared::new(plan.replay_threads.len(), stop),
        })
    }

    pub fn stopped(&self) -> bool {
        self.shared.is_over()
    }

    pub fn path(&self, name: Name) -> Result<&Path, Errno> {
        self.trace.path(name).ok_or(Errno::NOENT)
    }

    /// The image of a block trace.
    pub fn image(&self) -> Option<Arc<OwnedFd>> {
        self.image.clone()
    }

    fn slot(&self, handle: Handle) -> Option<&Mutex<Option<Arc<OwnedFd>>>> {
        self.slots.get(usize::try_from(handle.0).ok()?)
    }

    pub fn descriptor(&self, handle: Handle) -> Option<Arc<OwnedFd>> {
        let slot = self.slot(handle)?;
        slot.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn keep(&self, handle: Handle, descriptor: OwnedFd) {
        if let Some(slot) = self.slot(handle) {
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(descriptor));
        }
    }

    pub fn take(&self, handle: Handle) -> Option<OwnedFd> {
        let descriptor = self
            .slot(handle)?
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()?;
        Arc::try_unwrap(descriptor).ok()
    }
}

fn open_image(root: &Path, direct: DirectIo) -> Result<(OwnedFd, bool), BenchError> {
    let path = root.join(IMAGE);
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let open = |flags| rustix::fs::open(&path, flags, Mode::empty());
    let opened = match direct {
        DirectIo::Never => open(flags).map(|image| (image, true)),
        DirectIo::AsTraced => match open(flags | OFlags::DIRECT) {
            Err(Errno::INVAL) => open(flags).map(|image| (image, true)),
            other => other.map(|image| (image, false)),
        },
    };
    opened.map_err(|errno| BenchError::io("open", &path, errno))
}
