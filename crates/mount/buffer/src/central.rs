//! State shared by all files: free slots, and the lists of files that hold entries.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::inode::{InodeBuffer, InodeState};
use crate::slot::Slot;

/// State of the flush manager, so that no caller pays for waking one that is awake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManagerState {
    /// There is no manager, or it will look at the lists before it sleeps.
    Awake,
    /// Sleeping until the next tick.
    Dozing,
    /// Sleeping until woken: the buffer is empty and its memory freed.
    Asleep,
}

/// The lists and their conditions.
#[derive(Debug)]
pub struct Central {
    /// See [`Lists`]. The innermost lock: nothing else is taken and nothing slow is done while it is held.
    lists: Mutex<Lists>,
    /// Signalled when a slot has been freed.
    slot_freed: Condvar,
    /// Signalled when the manager has work.
    work: Condvar,
    /// Length of `Lists::active`, read without the lock by calls that only check that nothing is buffered.
    active_count: AtomicUsize,
    /// The manager's thread has ended.
    manager_is_gone: AtomicBool,
    /// Rounds of the manager's loop.
    manager_rounds: AtomicU64,
}

/// Guarded by [`Central`]'s lock.
#[derive(Debug)]
pub struct Lists {
    /// Free slots; the last used is taken first, so that few pages are touched.
    pub free: Vec<Slot>,
    /// Number of slots freed so far. A waiter compares it, so that it does not miss a slot that is freed and taken
    /// before it sleeps.
    pub freed_count: u64,
    waiters: usize,
    /// Files whose front entry is sealed, oldest first, each once.
    pub ready: VecDeque<Arc<InodeBuffer>>,
    /// Dirty files, in the order in which they became dirty. Never more than there are slots.
    pub active: Vec<Arc<InodeBuffer>>,
    /// State of the manager.
    pub manager: ManagerState,
    /// Request to the manager to end.
    pub stop: bool,
}

impl Central {
    /// Creates the state with these free slots.
    pub fn new(free: Vec<Slot>) -> Self {
        Self {
            lists: Mutex::new(Lists {
                free,
                freed_count: 0,
                waiters: 0,
                ready: VecDeque::new(),
                active: Vec::new(),
                manager: ManagerState::Awake,
                stop: false,
            }),
            slot_freed: Condvar::new(),
            work: Condvar::new(),
            active_count: AtomicUsize::new(0),
            manager_is_gone: AtomicBool::new(false),
            manager_rounds: AtomicU64::new(0),
        }
    }

    /// Locks the lists.
    pub fn lock(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if no file has buffered data. It accounts for every write acknowledged before the call: the file was listed
    /// before the acknowledgement, and `SeqCst` keeps the order between threads.
    pub fn is_clean(&self) -> bool {
        self.active_count.load(Ordering::SeqCst) == 0
    }

    /// Dirty files, oldest first.
    pub fn active(&self) -> Vec<Arc<InodeBuffer>> {
        match self.is_clean() {
            true => Vec::new(),
            false => self.lock().active.clone(),
        }
    }

    /// Takes a free slot, if there is one.
    pub fn take_slot(&self) -> Option<Slot> {
        self.lock().free.pop()
    }

    /// Returns a slot.
    pub fn free_slot(&self, slot: Slot) {
        let mut lists = self.lock();
        lists.free.push(slot);
        lists.freed_count += 1;
        if lists.waiters > 0 {
            drop(lists);
            self.slot_freed.notify_all();
        }
    }

    /// Sleeps until a slot has been freed since `freed_count` was read.
    pub fn wait_for_slot(&self, freed_count: u64) {
        let mut lists = self.lock();
        lists.waiters += 1;
        while lists.freed_count == freed_count {
            lists = self
                .slot_freed
                .wait(lists)
                .unwrap_or_else(PoisonError::into_inner);
        }
        lists.waiters -= 1;
    }

    /// Lists `inode` as dirty. Wakes a sleeping manager, which has intervals to observe from here on.
    pub fn activate(&self, inode: &Arc<InodeBuffer>, state: &mut InodeState) {
        if std::mem::replace(&mut state.active, true) {
            return;
        }
        self.active_count.fetch_add(1, Ordering::SeqCst);
        let mut lists = self.lock();
        lists.active.push(Arc::clone(inode));
        if lists.manager == ManagerState::Asleep {
            self.wake_manager(lists);
        }
    }

    /// Removes `inode`, which is clean, from the list.
    pub fn deactivate(&self, inode: &InodeBuffer, state: &mut InodeState) {
        state.active = false;
        self.lock().active.retain(|other| other.ino != inode.ino);
        self.active_count.fetch_sub(1, Ordering::SeqCst);
    }

    /// Queues `inode` for the manager, because its front entry is sealed.
    pub fn queue(&self, inode: &Arc<InodeBuffer>, state: &mut InodeState) {
        if std::mem::replace(&mut state.queued, true) {
            return;
        }
        let mut lists = self.lock();
        lists.ready.push_back(Arc::clone(inode));
        if lists.manager != ManagerState::Awake {
            self.wake_manager(lists);
        }
    }

    /// Records that the manager's thread has ended.
    pub fn manager_goes(&self) {
        self.manager_is_gone.store(true, Ordering::Relaxed);
    }

    /// True if the manager's thread has ended.
    pub fn manager_is_gone(&self) -> bool {
        self.manager_is_gone.load(Ordering::Relaxed)
    }

    /// Asks the manager to end.
    pub fn stop_manager(&self) {
        let mut lists = self.lock();
        lists.stop = true;
        self.wake_manager(lists);
    }

    fn wake_manager(&self, mut lists: MutexGuard<'_, Lists>) {
        lists.manager = ManagerState::Awake;
        drop(lists);
        self.work.notify_one();
    }

    /// Sleeps until woken, or for `limit`; called by the manager.
    pub fn manager_sleeps<'a>(
        &'a self,
        mut lists: MutexGuard<'a, Lists>,
        limit: Option<std::time::Duration>,
    ) -> MutexGuard<'a, Lists> {
        let mut lists = match limit {
            Some(limit) => {
                lists.manager = ManagerState::Dozing;
                self.work
                    .wait_timeout(lists, limit)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
            }
            None => {
                lists.manager = ManagerState::Asleep;
                self.work.wait(lists).unwrap_or_else(PoisonError::into_inner)
            }
        };
        lists.manager = ManagerState::Awake;
        lists
    }

    /// Returns the memory of the free slots to the host, one slot at a time: a writer meanwhile finds the others.
    pub fn give_memory_back(&self) {
        let take = || {
            let free = &mut self.lock().free;
            let touched = free.iter().position(Slot::is_touched);
            touched.map(|index| free.remove(index))
        };
        while let Some(mut slot) = take() {
            slot.give_back();
            self.free_slot(slot);
        }
    }

    /// Counts a round of the manager's loop.
    pub fn count_round(&self) {
        self.manager_rounds.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of rounds of the manager's loop.
    pub fn manager_rounds(&self) -> u64 {
        self.manager_rounds.load(Ordering::Relaxed)
    }
}
