//! Decides which names count, and gives files without a name and directories without an inode a place in the tree.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::guess::Decision;
use super::records::{Harvest, NameRecord, State, by_key};
use super::resolve::Resolver;
use super::table::{MadeInode, Row};
use crate::format::{EntryKind, InodeNumber, Key, KeyKind, ROOT_INODE};

/// A name that counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct LiveName {
    pub(super) host: u32,
    pub(super) target: u32,
    /// Its place in the list of name records.
    at: u32,
    sequence: u64,
    is_kept: bool,
    is_xattr: bool,
}

/// The names that count, sorted by target, newest first.
pub(super) struct LiveNames {
    pub(super) list: Vec<LiveName>,
    /// Inodes of names that were removed or replaced.
    pub(super) unnamed: HashSet<u32>,
}

impl LiveNames {
    /// Entries of directories that count: target and record.
    pub(super) fn kept_entries<'a>(
        &self,
        harvest: &'a Harvest,
    ) -> impl Iterator<Item = (u32, &'a NameRecord)> {
        let kept = self.list.iter().filter(|name| name.is_kept && !name.is_xattr);
        kept.map(|name| (name.target, &harvest.names[at(name.at)]))
    }

    /// Inodes that have a name.
    pub(super) fn named(&self) -> HashSet<u32> {
        let kept = self.list.iter().filter(|name| name.is_kept);
        kept.map(|name| name.target).collect()
    }
}

impl Resolver<'_> {
    /// The last states of all names.
    pub(super) fn resolve_names(&mut self) -> LiveNames {
        let mut names = LiveNames {
            list: Vec::new(),
            unnamed: HashSet::new(),
        };
        let harvest = self.harvest;
        let mut first = 0_usize;
        for group in by_key(&harvest.names) {
            let mut order: Vec<usize> = (0..group.len()).collect();
            order.sort_unstable_by_key(|at| (group[*at].name_crc, std::cmp::Reverse(group[*at].sequence)));
            for versions in order.chunk_by(|one, other| group[*one].name_crc == group[*other].name_crc) {
                self.resolve_name(group, versions, first, &mut names);
            }
            let newest = group
                .iter()
                .filter(|name| name.state.is_possible())
                .map(|name| name.sequence);
            self.add_lost_name(group[0].key, newest.max().unwrap_or(0));
            first += group.len();
        }
        self.add_other_lost_names();
        names
            .list
            .sort_unstable_by_key(|name| (name.target, std::cmp::Reverse(name.sequence), name.at));
        self.drop_extra_names(&mut names.list);
        names
    }

    /// Decides about one name: `versions` are its records in `group`, newest first.
    fn resolve_name(
        &mut self,
        group: &[NameRecord],
        versions: &[usize],
        first: usize,
        names: &mut LiveNames,
    ) {
        let all = versions.iter().map(|at| (*at, &group[*at]));
        let winner = all.clone().find(|(_, name)| name.state.is_possible());
        let lasting = winner.filter(|(_, name)| name.target != 0 && self.is_credible(name));
        let target = lasting.map_or(0, |(_, name)| name.target);
        let others = all.filter(|(_, name)| name.target != 0 && name.target != target);
        names.unnamed.extend(others.map(|(_, name)| name.target));
        let Some((at, name)) = lasting else { return };
        names.list.push(LiveName {
            host: name.key.inode_number().0,
            target,
            at: u32::try_from(first + at).unwrap_or(u32::MAX),
            sequence: name.sequence,
            is_kept: true,
            is_xattr: name.key.kind() == Some(KeyKind::XattrEntry),
        });
    }

    /// Whether host and target of a name may exist.
    fn is_credible(&self, name: &NameRecord) -> bool {
        let (host, target) = (name.key.inode_number(), InodeNumber(name.target));
        if self.is_removed(host) || self.is_removed(target) {
            return false;
        }
        let is_entry = name.key.kind() == Some(KeyKind::Entry);
        let is_directory = |mode: u16| EntryKind::from_mode(mode.into()) == Some(EntryKind::Directory);
        if self
            .live(host)
            .is_some_and(|live| is_entry && !is_directory(live.mode))
        {
            return false;
        }
        name.state == State::Indexed || self.may_exist(host, name) && self.may_exist(target, name)
    }

    /// Whether there may be an inode, by a name that concerns it.
    fn may_exist(&self, number: InodeNumber, name: &NameRecord) -> bool {
        let key = Key::inode(number);
        if self.live(number).is_some() || self.lost(key).is_some() || self.broken(key, 0).is_some() {
            return true;
        }
        // Without damage, and outside of the journal, an inode that is nowhere is gone together with its names.
        let is_gone = self.evidence.is_proven(key) && !self.evidence.is_of_journal(name.sequence);
        self.has_scars && !is_gone
    }

    /// Adds the location of a name that is lost, so that its directory reports it.
    fn add_lost_name(&mut self, key: Key, newest: u64) {
        let damaged = self.broken(key, newest).map(|broken| broken.place);
        let lost = self
            .lost(key)
            .filter(|lost| lost.is_proven && !self.evidence.is_of_journal(newest));
        if self.is_removed(key.inode_number()) {
            return;
        }
        let Some(place) = damaged.or_else(|| lost.map(|lost| lost.place)) else {
            return;
        };
        self.add_lost_row(key, place);
    }

    /// As [`Self::add_lost_name`], for keys without any record.
    fn add_other_lost_names(&mut self) {
        let evidence = self.evidence;
        let harvest = self.harvest;
        let mut last = None;
        for lost in evidence.lost.iter().filter(|lost| lost.is_proven) {
            let is_name = matches!(lost.key.kind(), Some(KeyKind::Entry | KeyKind::XattrEntry));
            let is_known = || {
                harvest
                    .names
                    .binary_search_by_key(&lost.key, |name| name.key)
                    .is_ok()
            };
            if is_name && last != Some(lost.key) && !is_known() {
                self.add_lost_name(lost.key, 0);
            }
            last = Some(lost.key);
        }
    }

    /// Leaves out names beyond the number of links: a directory has one name, and of a file old names may be found
    /// whose removals are gone.
    fn drop_extra_names(&mut self, names: &mut [LiveName]) {
        let harvest = self.harvest;
        for group in names.chunk_by_mut(|one, other| one.target == other.target) {
            let number = InodeNumber(group[0].target);
            if group.len() < 2 || group[0].is_xattr {
                continue;
            }
            let is_directory =
                self.kind_of(number, &harvest.names[at(group[0].at)]) == Some(EntryKind::Directory);
            let live = self.live(number);
            let links = match live {
                _ if is_directory => 1,
                Some(live) => usize::try_from(live.links).unwrap_or(usize::MAX).max(1),
                None => usize::MAX,
            };
            let mut count = group.len();
            for name in group.iter_mut().rev() {
                if count <= links {
                    break;
                }
                let record = &harvest.names[at(name.at)];
                let is_certain =
                    record.state == State::Indexed || self.evidence.is_of_journal(record.sequence);
                let place = Some(self.units.place(record.unit, record.bytes.into()));
                if is_directory || !is_certain {
                    name.is_kept = false;
                    count -= 1;
                    let directory = InodeNumber(name.host);
                    self.guesses
                        .add(Some(number), Decision::ExtraName { directory }, place);
                }
            }
        }
    }

    /// The type of a file by its inode, or else by a name.
    fn kind_of(&self, number: InodeNumber, name: &NameRecord) -> Option<EntryKind> {
        match self.live(number) {
            Some(live) => EntryKind::from_mode(live.mode.into()),
            None => name.kind(),
        }
    }

    /// Gives everything a place in the tree, and adds the rows of the names.
    pub(super) fn build_tree(&mut self, names: &mut LiveNames) {
        let mut parents: HashMap<u32, (u32, usize)> = HashMap::new();
        let mut hosts: BTreeMap<u32, u64> = BTreeMap::from([(ROOT_INODE.0, 0)]);
        for (number, name) in names.list.iter().enumerate() {
            if !name.is_kept || name.is_xattr {
                continue;
            }
            let record = &self.harvest.names[at(name.at)];
            *hosts.entry(name.host).or_insert(0) += record.size_in_directory();
            if self.kind_of(InodeNumber(name.target), record) == Some(EntryKind::Directory) {
                parents.insert(name.target, (name.host, number));
                hosts.entry(name.target).or_insert(0);
            }
        }
        let nameless = self.nameless(names, &parents);
        for directory in nameless.iter().filter(|(_, kind)| *kind == EntryKind::Directory) {
            hosts.entry(directory.0).or_insert(0);
        }
        let mut tops = self.tops(&hosts, &parents, names);
        // Without damage, directories that nothing leads to were removed.
        tops.retain(|(number, _)| {
            let live = self.live(InodeNumber(*number));
            self.has_scars || live.is_none_or(|live| live.state == State::Indexed)
        });
        tops.extend(nameless);
        self.make_directories(&hosts);
        self.make_files(names, &mut tops);
        tops.sort_unstable_by_key(|(number, _)| *number);
        tops.dedup_by_key(|(number, _)| *number);
        self.add_found(tops);
        self.add_name_rows(names);
    }

    /// Inodes without a name.
    fn nameless(&self, names: &LiveNames, parents: &HashMap<u32, (u32, usize)>) -> Vec<(u32, EntryKind)> {
        let named = names.named();
        let mut nameless = Vec::new();
        for fate in &self.fates {
            let Some(record) = self.record_of(fate) else {
                continue;
            };
            let number = fate.number.0;
            let has_place =
                fate.number == ROOT_INODE || named.contains(&number) || parents.contains_key(&number);
            if record.is_xattr || has_place {
                continue;
            }
            let is_credible = match record.state {
                State::Indexed => true,
                State::Open | State::Claimed => self.has_scars && !names.unnamed.contains(&number),
                State::Dead | State::Dropped => false,
            };
            if let Some(kind) = EntryKind::from_mode(record.mode.into()).filter(|_| is_credible) {
                nameless.push((number, kind));
            }
        }
        nameless
    }

    /// Directories that no chain of names connects to the root: of each chain the first one.
    fn tops(
        &mut self,
        hosts: &BTreeMap<u32, u64>,
        parents: &HashMap<u32, (u32, usize)>,
        names: &mut LiveNames,
    ) -> Vec<(u32, EntryKind)> {
        let mut tops = Vec::new();
        let mut done: HashSet<u32> = HashSet::from([ROOT_INODE.0]);
        for host in hosts.keys() {
            let mut chain = Vec::new();
            let mut on_chain = HashSet::new();
            let mut current = *host;
            while !done.contains(&current) && on_chain.insert(current) {
                chain.push(current);
                let Some((parent, _)) = parents.get(&current) else {
                    break;
                };
                current = *parent;
            }
            let last = chain.last().copied();
            let is_cycle =
                on_chain.contains(&current) && parents.contains_key(&current) && !done.contains(&current);
            if is_cycle {
                if let Some((_, name)) = parents.get(&current) {
                    names.list[*name].is_kept = false;
                }
                self.guesses
                    .add(Some(InodeNumber(current)), Decision::Cycle, None);
                tops.push((current, EntryKind::Directory));
            } else if let Some(top) = last.filter(|top| !parents.contains_key(top)) {
                tops.push((top, EntryKind::Directory));
            }
            done.extend(chain);
        }
        tops
    }

    /// Makes inodes for directories that have none, and compares sizes with the names found.
    fn make_directories(&mut self, hosts: &BTreeMap<u32, u64>) {
        for (number, found) in hosts {
            let inode = InodeNumber(*number);
            let Some(live) = self.live(inode) else {
                let place = self.lost(Key::inode(inode)).map(|lost| lost.place);
                self.guesses.add(Some(inode), Decision::NoAttributes, place);
                let made = MadeInode {
                    mode: 0o040_700,
                    size_bytes: found + 160,
                    links: 2,
                };
                self.table.inodes.insert(*number, made);
                continue;
            };
            let stored = live.size.saturating_sub(160);
            let is_exact =
                live.state == State::Indexed || self.evidence.is_proven(Key::first(inode, KeyKind::Entry));
            if *found > stored && !is_exact {
                let decision = Decision::RemovedNames {
                    stored,
                    found: *found,
                };
                let place = self.units.place(live.unit, live.bytes.into());
                self.guesses.add(Some(inode), decision, Some(place));
            }
        }
    }

    /// Makes inodes for files that have data and no inode.
    fn make_files(&mut self, names: &LiveNames, tops: &mut Vec<(u32, EntryKind)>) {
        let ends = std::mem::take(&mut self.ends);
        for (number, end) in ends {
            let target = names.list.partition_point(|name| name.target < number);
            let name = names.list[target..]
                .iter()
                .find(|name| name.target == number && name.is_kept);
            let kind = name.and_then(|name| self.harvest.names[at(name.at)].kind());
            if self.table.inodes.contains_key(&number) || kind.is_some_and(|kind| kind != EntryKind::File) {
                continue;
            }
            let inode = InodeNumber(number);
            let place = self.lost(Key::inode(inode)).map(|lost| lost.place);
            self.guesses.add(Some(inode), Decision::NoAttributes, place);
            let made = MadeInode {
                mode: 0o100_600,
                size_bytes: end,
                links: 1,
            };
            self.table.inodes.insert(number, made);
            if name.is_none() {
                tops.push((number, EntryKind::File));
            }
        }
    }

    /// Puts files without a name into a directory of the root.
    fn add_found(&mut self, files: Vec<(u32, EntryKind)>) {
        if files.is_empty() {
            return;
        }
        for (number, _) in &files {
            let inode = InodeNumber(*number);
            let place = self
                .live(inode)
                .map(|live| self.units.place(live.unit, live.bytes.into()));
            self.guesses.add(Some(inode), Decision::Nameless, place);
        }
        let taken: HashSet<u32> = files.iter().map(|(number, _)| *number).collect();
        let is_free = |number: &u32| {
            self.fate_of(InodeNumber(*number)).is_none()
                && !self.table.inodes.contains_key(number)
                && !taken.contains(number)
        };
        // Numbers from the upper end: no other inode has them.
        let Some(number) = (64..u32::MAX).rev().find(is_free) else {
            return;
        };
        let name = self.free_name();
        self.table.add_found(number, name, files);
    }

    /// A name that the root does not have.
    fn free_name(&self) -> Vec<u8> {
        let is_free = |name: &[u8]| {
            let name_crc = crate::format::crc(name);
            let names = super::records::of_inode(&self.harvest.names, ROOT_INODE);
            !names.iter().any(|other| other.name_crc == name_crc)
        };
        let mut names = (1..u32::MAX).map(|number| match number {
            1 => b"lost+found".to_vec(),
            number => format!("lost+found.{number}").into_bytes(),
        });
        names.find(|name| is_free(name)).unwrap_or_default()
    }

    /// Notes an extended attribute whose value is not proven.
    fn note_guessed_value(&mut self, name: &LiveName) {
        let value = self.live(InodeNumber(name.target));
        if let Some(value) = value.filter(|value| self.is_guess(*value)) {
            let place = self.units.place(value.unit, value.bytes.into());
            self.guesses
                .add(Some(InodeNumber(name.host)), Decision::NewestValue, Some(place));
        }
    }

    fn add_name_rows(&mut self, names: &LiveNames) {
        for name in names.list.iter().filter(|name| name.is_kept) {
            let record = &self.harvest.names[at(name.at)];
            let is_guess = self.is_guess(record);
            if name.is_xattr {
                self.note_guessed_value(name);
            }
            self.table.rows.push(Row {
                key: record.key,
                unit: record.unit,
                bytes: record.bytes,
                is_guess,
            });
        }
    }
}

fn at(number: u32) -> usize {
    crate::scan::to_usize(number)
}
