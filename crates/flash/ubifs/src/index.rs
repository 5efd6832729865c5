//! The index on the medium: a B+ tree that maps keys to the locations of nodes (Linux calls its cached form TNC).
//!
//! Read-only. Readers share the cache; a node needed by several of them is loaded once while the others wait
//! (seeds/001 section 3.2.3). A search descends level by level and loads the missing nodes of a level in one request.
//! The cache has two generations: when the younger one is full, the older one is dropped.
//!
//! A damaged index ends in findings. The level must decrease with each step down, which excludes cycles, and a search
//! visits no more nodes and collects no more locations than fit in the volume.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};

use ubi::Volume;

use crate::fetch;
use crate::finding::{Damage, Finding, Place, Subject};
use crate::format::{IndexBranch, IndexNode, Key, NodeKind};
use crate::salvage::Table;

/// Maximum number of nodes loaded per request; bounds the memory of a search.
const GROUP: usize = 512;
/// Memory overhead of a cached node beyond its branches: map entry, reference counts, allocator.
const NODE_BYTES: usize = 112;

/// The index of a volume.
pub(crate) struct Index {
    volume: Arc<dyn Volume>,
    root: Place,
    visits_max: u64,
    half_bytes: usize,
    /// Nodes being loaded by some thread. Lock order: before `cache`.
    loading: Mutex<HashSet<Place>>,
    loaded: Condvar,
    cache: RwLock<Halves>,
    /// Replaces the tree after a salvage.
    table: Option<Table>,
}

/// A cached index node.
#[derive(Debug)]
struct Node {
    level: u16,
    branches: Box<[(Key, Place)]>,
}

type Loaded = Result<Arc<Node>, Damage>;

#[derive(Default)]
struct Halves {
    young: HashMap<Place, Arc<Node>>,
    young_bytes: usize,
    old: HashMap<Place, Arc<Node>>,
}

/// A step of [`Index::walk`].
pub(crate) enum Step {
    /// An index node.
    Node(Place),
    /// A branch to a leaf node.
    Leaf(Key, Place),
}

/// Nodes of one level, sorted by key.
struct Group {
    places: Vec<Place>,
    /// Level expected by the parents; `None` for the root.
    level: Option<u16>,
}

impl Index {
    pub(crate) fn new(volume: Arc<dyn Volume>, root: Place, cache_bytes: u64) -> Self {
        let geometry = volume.geometry();
        let bytes = u64::from(geometry.lebs) * u64::from(geometry.leb_bytes);
        Self {
            volume,
            root,
            visits_max: bytes / 48 + 1,
            half_bytes: usize::try_from(cache_bytes / 2).unwrap_or(usize::MAX),
            loading: Mutex::default(),
            loaded: Condvar::new(),
            cache: RwLock::default(),
            table: None,
        }
    }

    /// An index that a salvage has made.
    pub(crate) fn of_table(volume: Arc<dyn Volume>, table: Table) -> Self {
        let nowhere = Place {
            leb: 0,
            offset: 0,
            bytes: 0,
        };
        Self {
            table: Some(table),
            ..Self::new(volume, nowhere, 0)
        }
    }

    /// The table of a salvage.
    pub(crate) const fn table(&self) -> Option<&Table> {
        self.table.as_ref()
    }

    /// Switches to the index of a new commit. The cache is kept, except for the `freed` nodes, whose locations will
    /// be reused; the `written` nodes are added.
    pub(crate) fn turn_to(&mut self, root: Place, freed: &[Place], written: Vec<(Place, IndexNode)>) {
        let cache = self.cache.get_mut().unwrap_or_else(PoisonError::into_inner);
        for place in freed {
            cache.forget(*place);
        }
        for (place, node) in written {
            cache.keep(place, Arc::new(Node::from(node)), self.half_bytes);
        }
        self.root = root;
    }

    /// Visits every index node and every branch to a leaf node. Stops at the first unreadable node or error of
    /// `visit`.
    pub(crate) fn walk(
        &self,
        visit: &mut dyn FnMut(Step) -> Result<(), Damage>,
    ) -> Result<(), (Place, Damage)> {
        if let Some(table) = &self.table {
            let mut leaves = table.all();
            return leaves.try_for_each(|(key, place)| {
                visit(Step::Leaf(key, place)).map_err(|damage| (place, damage))
            });
        }
        let mut visits = 0;
        let mut pending = vec![Group {
            places: vec![self.root],
            level: None,
        }];
        while let Some(mut group) = pending.pop() {
            if group.places.len() > GROUP {
                let places = group.places.split_off(GROUP);
                let level = group.level;
                pending.push(Group { places, level });
            }
            let mut below = Group {
                places: Vec::new(),
                level: group.level,
            };
            for (place, node) in group.places.iter().zip(self.nodes(&group.places)) {
                let fail = |damage| (*place, damage);
                visits += 1;
                if visits > self.visits_max {
                    return Err(fail(Damage::Contradiction("the index has more nodes than fit")));
                }
                let node = node.and_then(|node| node.of_level(group.level)).map_err(fail)?;
                visit(Step::Node(*place)).map_err(fail)?;
                let branches = node.branches.iter();
                match node.level {
                    0 => {
                        for (key, to) in branches {
                            visit(Step::Leaf(*key, *to)).map_err(fail)?;
                        }
                    }
                    level => {
                        below.level = Some(level - 1);
                        below.places.extend(branches.map(|(_, to)| *to));
                    }
                }
            }
            if !below.places.is_empty() {
                pending.push(below);
            }
        }
        Ok(())
    }

    /// Location of the root.
    pub(crate) const fn root(&self) -> Place {
        self.root
    }

    /// Adds the branches with keys from `low` to `high` to `found`, sorted by key, and damage to `lost`.
    pub(crate) fn range(&self, low: Key, high: Key, found: &mut Vec<(Key, Place)>, lost: &mut Vec<Finding>) {
        if let Some(table) = &self.table {
            table.range(low, high, found);
            return;
        }
        let inode = (low.inode_number() == high.inode_number()).then(|| low.inode_number());
        let mut visits = 0;
        let mut pending = vec![Group {
            places: vec![self.root],
            level: None,
        }];
        while let Some(mut group) = pending.pop() {
            if group.places.len() > GROUP {
                let places = group.places.split_off(GROUP);
                let level = group.level;
                pending.push(Group { places, level });
            }
            visits += group.places.len();
            let mut below = Group {
                places: Vec::new(),
                level: None,
            };
            for (place, node) in group.places.iter().zip(self.nodes(&group.places)) {
                // Checked at each node: branches that share a location multiply quickly.
                let seen = (visits + below.places.len()).max(found.len());
                if u64::try_from(seen).is_ok_and(|seen| seen > self.visits_max) {
                    lost.push(Finding {
                        inode,
                        subject: Subject::Index,
                        place: self.root,
                        damage: Damage::Contradiction("the index has more nodes than fit"),
                    });
                    return;
                }
                match node.and_then(|node| node.of_level(group.level)) {
                    Ok(node) if node.level == 0 => found.extend(node.between(low, high)),
                    Ok(node) => {
                        below.level = Some(node.level - 1);
                        below
                            .places
                            .extend(node.between(low, high).map(|(_, place)| place));
                    }
                    Err(damage) => lost.push(Finding {
                        inode,
                        subject: Subject::Index,
                        place: *place,
                        damage,
                    }),
                }
            }
            if has_twins(&below.places) {
                let mut seen = HashSet::new();
                below.places.retain(|place| seen.insert(*place));
                lost.push(Finding {
                    inode,
                    subject: Subject::Index,
                    place: self.root,
                    damage: Damage::Contradiction("branches of the index lead to one node"),
                });
            }
            if !below.places.is_empty() {
                pending.push(below);
            }
        }
    }

    /// The node at a location, without its hashes.
    pub(crate) fn node(&self, place: Place) -> Result<Arc<IndexNode>, Box<Finding>> {
        let loaded = self.nodes(&[place]).pop();
        let node = loaded.unwrap_or(Err(Damage::Contradiction("there is no node")));
        let node = node.map_err(|damage| damage_at(place, damage))?;
        let branch = |(key, place): &(Key, Place)| IndexBranch {
            leb: place.leb,
            offset: place.offset,
            bytes: place.bytes,
            key: *key,
            hash: Vec::new(),
        };
        Ok(Arc::new(IndexNode {
            level: node.level,
            branches: node.branches.iter().map(branch).collect(),
        }))
    }

    /// Returns the nodes at `places`. Missing ones are loaded in one request, or awaited if another thread is loading
    /// them.
    fn nodes(&self, places: &[Place]) -> Vec<Loaded> {
        let mut nodes: Vec<Option<Loaded>> = {
            let cache = self.cache.read().unwrap_or_else(PoisonError::into_inner);
            places
                .iter()
                .map(|place| cache.young.get(place).cloned().map(Ok))
                .collect()
        };
        let missing = |nodes: &[Option<Loaded>]| -> Vec<usize> {
            (0..places.len())
                .filter(|number| nodes[*number].is_none())
                .collect()
        };
        let mut left = missing(&nodes);
        let mut loading = match left.is_empty() {
            true => return nodes.into_iter().flatten().collect(),
            false => self.lock_loading(),
        };
        while !left.is_empty() {
            self.promote(places, &left, &mut nodes);
            left.retain(|number| nodes[*number].is_none());
            let (mut mine, mut of_others) = (Vec::new(), false);
            for number in &left {
                match loading.insert(places[*number]) {
                    true => mine.push(*number),
                    false => of_others = true,
                }
            }
            if !mine.is_empty() {
                drop(loading);
                self.load(places, &mine, &mut nodes);
                left.retain(|number| nodes[*number].is_none());
                loading = self.lock_loading();
            } else if of_others {
                loading = self.loaded.wait(loading).unwrap_or_else(PoisonError::into_inner);
            }
        }
        drop(loading);
        nodes.into_iter().flatten().collect()
    }

    fn lock_loading(&self) -> MutexGuard<'_, HashSet<Place>> {
        self.loading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks up nodes in both generations of the cache; hits in the older one move to the younger.
    fn promote(&self, places: &[Place], wanted: &[usize], nodes: &mut [Option<Loaded>]) {
        let mut cache = self.cache.write().unwrap_or_else(PoisonError::into_inner);
        for number in wanted {
            let place = places[*number];
            let cached = match cache.young.get(&place) {
                Some(node) => Some(Arc::clone(node)),
                None => cache.old.remove(&place).inspect(|node| {
                    cache.keep(place, Arc::clone(node), self.half_bytes);
                }),
            };
            nodes[*number] = cached.map(Ok);
        }
    }

    /// Loads nodes that this thread has entered into `loading`; removes them from there on all paths.
    fn load(&self, places: &[Place], mine: &[usize], nodes: &mut [Option<Loaded>]) {
        let wanted: Vec<Place> = mine.iter().map(|number| places[*number]).collect();
        let _entered = Entered {
            index: self,
            places: &wanted,
        };
        let mut loaded = Vec::with_capacity(wanted.len());
        fetch::nodes(
            &*self.volume,
            &wanted,
            NodeKind::Index,
            &mut Vec::new(),
            &mut |_, raw| {
                loaded.push(raw.and_then(|raw| Ok(Arc::new(Node::from(IndexNode::decode(raw)?)))));
            },
        );
        let mut cache = self.cache.write().unwrap_or_else(PoisonError::into_inner);
        for (number, node) in mine.iter().zip(loaded) {
            // Errors are not cached: the next read may succeed.
            if let Ok(node) = &node {
                cache.keep(places[*number], Arc::clone(node), self.half_bytes);
            }
            nodes[*number] = Some(node);
        }
    }
}

/// A finding in the index.
pub(crate) fn damage_at(place: Place, damage: Damage) -> Box<Finding> {
    Box::new(Finding {
        inode: None,
        subject: Subject::Index,
        place,
        damage,
    })
}

/// Whether a location occurs twice, which is impossible in a tree.
fn has_twins(places: &[Place]) -> bool {
    let mut sorted = places.to_vec();
    sorted.sort_unstable();
    sorted.windows(2).any(|pair| pair[0] == pair[1])
}

/// Removes entries from `loading` on drop.
struct Entered<'a> {
    index: &'a Index,
    places: &'a [Place],
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let mut loading = self.index.lock_loading();
        for place in self.places {
            loading.remove(place);
        }
        drop(loading);
        self.index.loaded.notify_all();
    }
}

impl Halves {
    fn keep(&mut self, place: Place, node: Arc<Node>, half_bytes: usize) {
        let bytes = node.bytes();
        if self.young_bytes + bytes > half_bytes && !self.young.is_empty() {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        if self.young.insert(place, node).is_none() {
            self.young_bytes += bytes;
        }
    }

    fn forget(&mut self, place: Place) {
        if let Some(node) = self.young.remove(&place) {
            self.young_bytes = self.young_bytes.saturating_sub(node.bytes());
        }
        self.old.remove(&place);
    }
}

impl From<IndexNode> for Node {
    fn from(node: IndexNode) -> Self {
        let branches = node.branches.iter().map(|branch| {
            let place = Place {
                leb: branch.leb,
                offset: branch.offset,
                bytes: branch.bytes,
            };
            (branch.key, place)
        });
        Self {
            level: node.level,
            branches: branches.collect(),
        }
    }
}

impl Node {
    fn bytes(&self) -> usize {
        NODE_BYTES + size_of_val(&*self.branches)
    }

    fn of_level(self: Arc<Self>, expected: Option<u16>) -> Loaded {
        match expected.is_none_or(|level| level == self.level) {
            true => Ok(self),
            false => Err(Damage::Contradiction(
                "the node is of another level than its parent says",
            )),
        }
    }

    /// The branches that may lead to keys from `low` to `high`.
    fn between(&self, low: Key, high: Key) -> impl Iterator<Item = (Key, Place)> + '_ {
        let below = self.branches.partition_point(|(key, _)| *key < low);
        let first = match self.level {
            0 => below,
            // The branch before may contain smaller keys, and equal ones at its end.
            _ => below.saturating_sub(1),
        };
        let branches = self.branches[first..].iter();
        branches.take_while(move |(key, _)| *key <= high).copied()
    }
}
