//! Table of open files and directories, keyed by handles that are never reused.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use vfs::{FsError, FsResult, Handle};

/// Maps handles to open files or directories.
pub(super) struct Handles<T> {
    next: AtomicU64,
    open: RwLock<HashMap<Handle, Arc<T>>>,
}

impl<T> Default for Handles<T> {
    fn default() -> Self {
        Self {
            next: AtomicU64::new(1),
            open: RwLock::default(),
        }
    }
}

impl<T> Handles<T> {
    pub(super) fn add(&self, value: T) -> Handle {
        let handle = Handle(self.next.fetch_add(1, Ordering::Relaxed));
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        open.insert(handle, Arc::new(value));
        handle
    }

    pub(super) fn get(&self, handle: Handle) -> FsResult<Arc<T>> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.get(&handle).cloned().ok_or(FsError::BadHandle)
    }

    pub(super) fn remove(&self, handle: Handle) -> Option<Arc<T>> {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        open.remove(&handle)
    }
}
