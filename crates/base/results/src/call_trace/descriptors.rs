//! Descriptor tables of traced processes: maps descriptor numbers to handles through `dup`, `fork`, `exec` and
//! `close`.
//!
//! A replay is one process. A descriptor copied by `fork` stays one handle, open until the last process has closed
//! it; a `dup` makes a new handle, because it has its own `close`.

use std::collections::HashMap;

use super::Handle;

/// A thread or process, by its number in the trace.
pub type ProcessId = u32;

/// Object behind a descriptor number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Descriptor {
    /// A file or directory.
    File(Handle),
    /// Not a file (`socket`, `pipe`, `terminal`).
    Other(&'static str),
}

/// Effect of closing a descriptor number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// The last reference was closed: this is the `close` of the handle.
    Last(Handle),
    /// Another process still holds the handle.
    StillHeld,
    /// It was not a file.
    Other(&'static str),
    /// The number was not known to be open.
    Unknown,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    descriptor: Descriptor,
    close_on_exec: bool,
}

#[derive(Clone, Debug, Default)]
struct Table {
    entries: HashMap<i32, Entry>,
    users: u32,
}

/// The descriptor tables of all traced processes. Threads share one.
#[derive(Debug, Default)]
pub struct DescriptorTables {
    tables: HashMap<u64, Table>,
    of_process: HashMap<ProcessId, u64>,
    next: u64,
    /// Number of table entries per handle, over all processes.
    holders: HashMap<Handle, u32>,
}

impl DescriptorTables {
    /// Tables with no processes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// True when the process was seen before.
    #[must_use]
    pub fn knows(&self, process: ProcessId) -> bool {
        self.of_process.contains_key(&process)
    }

    /// Records that `parent` created `child`: a thread that shares the table, or a process with a copy of it. A child
    /// already known is left unchanged; a process that is its own parent is the first one.
    pub fn fork(&mut self, parent: ProcessId, child: ProcessId, shares_table: bool) {
        if self.knows(child) {
            return;
        }
        let parent_table = self.table_of(parent);
        if parent == child {
            return;
        }
        if shares_table {
            self.join(child, parent_table);
            return;
        }
        let entries = self
            .tables
            .get(&parent_table)
            .map(|table| table.entries.clone())
            .unwrap_or_default();
        for entry in entries.values() {
            self.hold(entry.descriptor);
        }
        let number = self.add_table(entries);
        self.join(child, number);
    }

    /// Handles an exec: closes the descriptors marked close-on-exec. Returns the handles closed by it.
    pub fn exec(&mut self, process: ProcessId) -> Vec<Handle> {
        let number = self.table_of(process);
        let mut marked = Vec::new();
        if let Some(table) = self.tables.get_mut(&number) {
            table.entries.retain(|_, entry| {
                if entry.close_on_exec {
                    marked.push(entry.descriptor);
                }
                !entry.close_on_exec
            });
        }
        self.release_all(marked)
    }

    /// Handles the end of a thread or process. Returns the handles closed by it.
    pub fn exit(&mut self, process: ProcessId) -> Vec<Handle> {
        let Some(number) = self.of_process.remove(&process) else {
            return Vec::new();
        };
        let Some(table) = self.tables.get_mut(&number) else {
            return Vec::new();
        };
        table.users = table.users.saturating_sub(1);
        if table.users > 0 {
            return Vec::new();
        }
        let entries = self.tables.remove(&number).map(|table| table.entries);
        let descriptors = entries.into_iter().flatten().map(|(_, entry)| entry.descriptor);
        self.release_all(descriptors.collect())
    }

    /// The descriptor behind `number` in `process`; `None` if it was opened before the trace began.
    #[must_use]
    pub fn get(&self, process: ProcessId, number: i32) -> Option<Descriptor> {
        let table = self.tables.get(self.of_process.get(&process)?)?;
        Some(table.entries.get(&number)?.descriptor)
    }

    /// Assigns `descriptor` to `number` of `process`. Returns the effect on the previous descriptor.
    pub fn insert(
        &mut self,
        process: ProcessId,
        number: i32,
        descriptor: Descriptor,
        close_on_exec: bool,
    ) -> Closed {
        let table = self.table_of(process);
        self.hold(descriptor);
        let entry = Entry {
            descriptor,
            close_on_exec,
        };
        let before = self
            .tables
            .get_mut(&table)
            .and_then(|table| table.entries.insert(number, entry));
        before.map_or(Closed::Unknown, |entry| self.release(entry.descriptor))
    }

    /// Sets or clears close-on-exec for `number` of `process`.
    pub fn set_close_on_exec(&mut self, process: ProcessId, number: i32, close_on_exec: bool) {
        let table = self.table_of(process);
        let entry = self
            .tables
            .get_mut(&table)
            .and_then(|table| table.entries.get_mut(&number));
        if let Some(entry) = entry {
            entry.close_on_exec = close_on_exec;
        }
    }

    /// Closes `number` of `process`.
    pub fn close(&mut self, process: ProcessId, number: i32) -> Closed {
        let table = self.table_of(process);
        let entry = self
            .tables
            .get_mut(&table)
            .and_then(|table| table.entries.remove(&number));
        entry.map_or(Closed::Unknown, |entry| self.release(entry.descriptor))
    }

    /// Open numbers of `process` from `first` to `last`, for `close_range`.
    #[must_use]
    pub fn open_between(&self, process: ProcessId, first: i32, last: i32) -> Vec<i32> {
        let table = self
            .of_process
            .get(&process)
            .and_then(|number| self.tables.get(number));
        let numbers = table.into_iter().flat_map(|table| table.entries.keys().copied());
        let mut found: Vec<i32> = numbers.filter(|number| (first..=last).contains(number)).collect();
        found.sort_unstable();
        found
    }

    fn table_of(&mut self, process: ProcessId) -> u64 {
        if let Some(number) = self.of_process.get(&process) {
            return *number;
        }
        let number = self.add_table(HashMap::new());
        self.join(process, number);
        number
    }

    fn add_table(&mut self, entries: HashMap<i32, Entry>) -> u64 {
        let number = self.next;
        self.next += 1;
        self.tables.insert(number, Table { entries, users: 0 });
        number
    }

    fn join(&mut self, process: ProcessId, number: u64) {
        if let Some(table) = self.tables.get_mut(&number) {
            table.users += 1;
        }
        self.of_process.insert(process, number);
    }

    fn hold(&mut self, descriptor: Descriptor) {
        if let Descriptor::File(handle) = descriptor {
            *self.holders.entry(handle).or_default() += 1;
        }
    }

    fn release(&mut self, descriptor: Descriptor) -> Closed {
        let handle = match descriptor {
            Descriptor::Other(what) => return Closed::Other(what),
            Descriptor::File(handle) => handle,
        };
        match self.holders.get_mut(&handle) {
            Some(count) if *count > 1 => {
                *count -= 1;
                Closed::StillHeld
            }
            _ => {
                self.holders.remove(&handle);
                Closed::Last(handle)
            }
        }
    }

    fn release_all(&mut self, descriptors: Vec<Descriptor>) -> Vec<Handle> {
        let mut closed: Vec<Handle> = descriptors
            .into_iter()
            .filter_map(|descriptor| match self.release(descriptor) {
                Closed::Last(handle) => Some(handle),
                Closed::StillHeld | Closed::Other(_) | Closed::Unknown => None,
            })
            .collect();
        closed.sort_unstable();
        closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Descriptor = Descriptor::File(Handle(7));

    #[test]
    fn a_forked_descriptor_is_closed_by_its_last_holder() {
        let mut tables = DescriptorTables::new();
        tables.insert(1, 3, FILE, false);
        tables.fork(1, 2, false);
        assert_eq!(tables.get(2, 3), Some(FILE));
        assert_eq!(tables.close(1, 3), Closed::StillHeld);
        assert_eq!(tables.get(1, 3), None);
        assert_eq!(tables.close(2, 3), Closed::Last(Handle(7)));
        assert_eq!(tables.close(2, 3), Closed::Unknown);
    }

    #[test]
    fn threads_share_one_table_until_the_last_of_them_ends() {
        let mut tables = DescriptorTables::new();
        tables.fork(1, 2, true);
        tables.insert(2, 3, FILE, false);
        assert_eq!(tables.get(1, 3), Some(FILE));
        assert_eq!(tables.exit(1), []);
        assert_eq!(tables.exit(2), [Handle(7)]);
    }

    #[test]
    fn an_exec_closes_what_is_marked() {
        let mut tables = DescriptorTables::new();
        tables.insert(1, 3, FILE, true);
        tables.insert(1, 4, Descriptor::File(Handle(8)), true);
        tables.set_close_on_exec(1, 4, false);
        assert_eq!(tables.exec(1), [Handle(7)]);
        assert_eq!(tables.open_between(1, 0, 9), [4]);
    }

    #[test]
    fn a_number_that_is_given_again_closes_what_it_was() {
        let mut tables = DescriptorTables::new();
        tables.insert(1, 3, FILE, false);
        let closed = tables.insert(1, 3, Descriptor::Other("socket"), false);
        assert_eq!(closed, Closed::Last(Handle(7)));
        assert_eq!(tables.close(1, 3), Closed::Other("socket"));
    }
}
