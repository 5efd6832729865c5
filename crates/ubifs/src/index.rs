//! The index on the medium: a B+ tree from keys to places of nodes (Linux calls its cached form TNC).
//!
//! Nothing here is written. Readers share the cache; a node that several of them want is loaded once while the others wait for
//! it. The cache is bounded: it has two halves, and when the younger one is full, the older one is dropped.
//!
//! A damaged index ends in findings: levels fall by one with each step down, so there is no cycle, and a search looks at no
//! more nodes, and comes by no more places, than fit onto the volume.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ubi::Volume;

use crate::fetch;
use crate::finding::{Damage, Finding, Place, Subject};
use crate::format::{IndexNode, Key, NodeKind};

type Loaded = Arc<OnceLock<Result<Arc<IndexNode>, Damage>>>;

/// The index of a volume.
pub(crate) struct Index {
    volume: Arc<dyn Volume>,
    root: Place,
    cache: Mutex<Halves>,
    nodes_max: usize,
    visits_max: u64,
}

#[derive(Default)]
struct Halves {
    young: HashMap<Place, Loaded>,
    old: HashMap<Place, Loaded>,
}

impl Index {
    pub(crate) fn new(volume: Arc<dyn Volume>, root: Place, nodes_max: usize) -> Self {
        let geometry = volume.geometry();
        let bytes = u64::from(geometry.lebs) * u64::from(geometry.leb_bytes);
        Self {
            volume,
            root,
            cache: Mutex::default(),
            nodes_max: nodes_max.max(2),
            visits_max: bytes / 48 + 1,
        }
    }

    /// Where its root is.
    pub(crate) const fn root(&self) -> Place {
        self.root
    }

    /// Nodes that are kept in memory.
    pub(crate) const fn nodes_max(&self) -> usize {
        self.nodes_max
    }

    /// Adds all that the index has from `low` to `high` to `found`, in the order of keys, and what can't be read to `lost`.
    pub(crate) fn range(&self, low: Key, high: Key, found: &mut Vec<(Key, Place)>, lost: &mut Vec<Finding>) {
        let mut pending = vec![(self.root, None)];
        let mut visits = 0;
        while let Some((place, level)) = pending.pop() {
            visits += 1;
            let found_count = u64::try_from(found.len()).unwrap_or(u64::MAX);
            let node = match self.load(place) {
                _ if visits.max(found_count) > self.visits_max => {
                    Err(Damage::Contradiction("the index has more nodes than fit"))
                }
                Ok(node) if level.is_some_and(|level| level != node.level) => Err(Damage::Contradiction(
                    "the node is of another level than its parent says",
                )),
                other => other,
            };
            let node = match node {
                Ok(node) => node,
                Err(damage) => {
                    let inode = (low.inode_number() == high.inode_number()).then(|| low.inode_number());
                    lost.push(Finding {
                        inode,
                        subject: Subject::Index,
                        place,
                        damage,
                    });
                    if visits.max(found_count) > self.visits_max {
                        return;
                    }
                    continue;
                }
            };
            let places = node.branches.iter().enumerate().filter_map(|(number, branch)| {
                let place = Place {
                    leb: branch.leb,
                    offset: branch.offset,
                    bytes: branch.bytes,
                };
                // Equal keys may begin at the end of one node and go on in the next one.
                let next = node.branches.get(number + 1);
                let reaches = match node.level {
                    0 => branch.key >= low,
                    _ => next.is_none_or(|next| next.key >= low),
                };
                (reaches && branch.key <= high).then_some((branch.key, place))
            });
            match node.level {
                0 => found.extend(places),
                level => pending.extend(places.rev().map(|(_, place)| (place, Some(level - 1)))),
            }
        }
    }

    /// The node at a place.
    pub(crate) fn load(&self, place: Place) -> Result<Arc<IndexNode>, Damage> {
        let slot = self.slot(place);
        let loaded = slot.get_or_init(|| {
            let raw = fetch::node(&*self.volume, place, NodeKind::Index)?;
            Ok(Arc::new(IndexNode::decode(&raw)?))
        });
        loaded.clone()
    }

    /// The lock is held for the look-up alone: loading happens outside of it.
    fn slot(&self, place: Place) -> Loaded {
        let mut halves = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = halves.young.get(&place) {
            return Arc::clone(slot);
        }
        let slot = halves.old.remove(&place).unwrap_or_default();
        if halves.young.len() >= self.nodes_max / 2 {
            halves.old = std::mem::take(&mut halves.young);
        }
        halves.young.insert(place, Arc::clone(&slot));
        slot
    }
}
