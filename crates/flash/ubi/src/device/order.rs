//! Erases after what was written before them, where a host is between us and the medium ([`media::Host`]).
//!
//! After a crash of the host an erase may be there, and what was written before it not: the copy that the erased block made room for.
//! So a block is erased only after a sync that began when the block had been let go: what replaces it was written before that. One
//! sync is enough for all blocks that wait by then, so whoever syncs now and then, and erases after that, waits for nothing here. What
//! replaces a share of an array is on all its members, so that the files of all of them are synced.
//!
//! Nor may a LEB that was unmapped be mapped anew before such a sync: the new block's header would hide what the old one holds, and what
//! replaced that may not be on the medium. Before one that came after the erase, the old content could come back where the new
//! header is not on the medium, and something that is leads to the LEB.
//!
//! A sync that fails may have lost anything that it was for, and the host tells it once. So all that follow fail, too.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use media::{Host, Leb, Nand, NandError, Peb};

/// Syncs of the hosts of all members of an array, or of a device.
#[derive(Debug)]
struct Syncs {
    /// Syncs that were begun: what a block waits for is the first one from its number on.
    begun: AtomicU64,
    members: Vec<Member>,
    failed: OnceLock<Arc<str>>,
}

#[derive(Debug)]
struct Member {
    host: Arc<dyn Host>,
    /// Syncs of lower numbers are done, or later ones are.
    done: AtomicU64,
}

/// The name of a device, and its host.
type HostOf = (Arc<str>, Option<Arc<dyn Host>>);

/// The syncs that a device has a part in.
#[derive(Clone, Debug)]
pub(crate) struct SyncOrder {
    syncs: Arc<Syncs>,
    /// The device's place among the members, unless nothing of it can be lost by a host.
    own: Option<usize>,
    device: Arc<str>,
}

impl SyncOrder {
    /// A device on its own.
    pub(crate) fn alone(nand: &impl Nand) -> Self {
        let mut orders = Self::of([(nand.name(), nand.host())]);
        orders.pop().expect("one for each device")
    }

    /// Devices whose data depend on each other.
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

    /// The sync that what is let go now waits for.
    fn next(&self) -> u64 {
        self.syncs.begun.load(Ordering::SeqCst)
    }

    /// Syncs this device. `sync` does it.
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

    /// Has the sync of that number, or a later one, be done by all members.
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

/// Blocks that wait to be erased, in the order in which they were let go. Keeping it means that after a power cut a LEB that was
/// unmapped has its last content or none, never an older one.
#[derive(Debug, Default)]
pub(crate) struct EraseQueue {
    pebs: VecDeque<Peb>,
    /// The syncs that they wait for, and how many of them in a row wait for each.
    waits: VecDeque<(u64, usize)>,
    /// Blocks that were put at the end.
    pushed: u64,
    /// Blocks that were put before all others, and still wait.
    first: u64,
}

impl EraseQueue {
    /// Blocks that were let go before anything is known of syncs.
    pub(crate) fn of(pebs: VecDeque<Peb>) -> Self {
        Self {
            waits: VecDeque::from([(0, pebs.len())]),
            pebs,
            pushed: 0,
            first: 0,
        }
    }

    /// Of the blocks that were put at the end, so many do not wait any more.
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

    /// Puts a block before all that wait.
    pub(crate) fn push_front(&mut self, peb: Peb, order: &SyncOrder) {
        self.pebs.push_front(peb);
        self.first += 1;
        self.waits.push_front((order.next(), 1));
    }

    /// The next block, once it may be erased.
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

    /// Frees what memory it has to spare.
    pub(crate) fn shrink(&mut self) {
        self.pebs.shrink_to_fit();
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.pebs.capacity() * size_of::<Peb>() + self.waits.capacity() * size_of::<(u64, usize)>()
    }
}

/// LEBs that were unmapped, until a sync that came after the erase of what they held: then a crash of the host can't bring it back.
#[derive(Debug, Default)]
pub(crate) struct UnmappedLebs(HashMap<(u32, Leb), u64>);

impl UnmappedLebs {
    /// Notes that a LEB of a volume was unmapped, and its block put at the end of the queue.
    pub(crate) fn note(&mut self, volume: u32, leb: Leb, order: &SyncOrder, queue: &EraseQueue) {
        if !order.syncs.members.is_empty() {
            self.0.insert((volume, leb), queue.pushed);
        }
    }

    /// Whether what it held may come back.
    pub(crate) fn has(&self, volume: u32, leb: Leb) -> bool {
        self.0.contains_key(&(volume, leb))
    }

    /// Forgets those of which the block was one of the first so many of the queue: a sync came after the erase of these.
    pub(crate) fn forget(&mut self, erased: u64) {
        self.0.retain(|_, number| *number > erased);
        self.0.shrink_to_fit();
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.0.capacity() * size_of::<((u32, Leb), u64)>()
    }
}
