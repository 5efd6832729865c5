//! The sequence of PostMark's operations, without executing them: a pure function of the specification.
//!
//! The rules are exactly those of PostMark 1.51, so that the same specification gives the same files and the same
//! transactions: the table has twice as many entries as the pool has files, a used entry is found by drawing until
//! one is hit, and the random numbers are drawn in the original's order, including those of the file content.

use super::PostmarkSpec;
use super::twister::Twister;

/// A file: its number, counted from 1, and its subdirectory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileName {
    pub subdirectory: Option<u32>,
    pub number: u64,
}

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Creates a file with this many bytes.
    Create(FileName, u32),
    /// Reads a file of this many bytes to its end.
    Read(FileName, u32),
    /// Appends this many bytes to a file.
    Append(FileName, u32),
    /// Removes a file.
    Delete(FileName),
    /// The file drawn for an append already has its full size: the original silently does nothing.
    AppendSkipped,
    /// The table is full: the original silently creates nothing.
    CreateSkipped,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    name: FileName,
    /// 0 for a free entry.
    bytes: u32,
}

/// The state between steps.
#[derive(Clone, Debug)]
pub struct Plan<'spec> {
    spec: &'spec PostmarkSpec,
    random: Twister,
    table: Vec<Entry>,
    next_place: usize,
    files_made: u64,
    files_in_use: u64,
}

impl<'spec> Plan<'spec> {
    /// Creates the plan, and the text that every file begins with.
    pub fn new(spec: &'spec PostmarkSpec) -> (Self, Vec<u8>) {
        let mut random = Twister::new(spec.postmark_seed);
        let content = (0..u64::from(spec.size_high_bytes) * 2)
            .map(|_| u8::try_from(32 + random.below(95)).expect("32 + 94 fits in a byte"))
            .collect();
        let name = FileName {
            subdirectory: None,
            number: 0,
        };
        let places = usize::try_from(u64::from(spec.files) * 2).expect("the number of files is checked");
        let plan = Self {
            spec,
            random,
            table: vec![Entry { name, bytes: 0 }; places],
            next_place: 0,
            files_made: 0,
            files_in_use: 0,
        };
        (plan, content)
    }

    /// Creates a file, for the pool or for a transaction.
    pub fn create(&mut self) -> Step {
        let Some(place) = self.free_place() else {
            return Step::CreateSkipped;
        };
        let subdirectories = self.spec.subdirectories;
        let subdirectory = (subdirectories > 1).then(|| self.random.below(subdirectories));
        self.files_made += 1;
        let name = FileName {
            subdirectory,
            number: self.files_made,
        };
        let (low, high) = (self.spec.size_low_bytes, self.spec.size_high_bytes);
        let bytes = low + self.random.below(high - low);
        self.table[place] = Entry { name, bytes };
        self.files_in_use += 1;
        Step::Create(name, bytes)
    }

    /// The next transaction: at most one read or append, then at most one create or delete. `None` if no file is
    /// left, which ends the original's run too.
    pub fn transaction(&mut self) -> Option<[Option<Step>; 2]> {
        if self.files_in_use == 0 {
            return None;
        }
        let first = self.spec.read_bias.map(|bias| {
            if self.random.below(10) < u32::from(bias) {
                let place = self.used_place();
                let Entry { name, bytes } = self.table[place];
                Step::Read(name, bytes)
            } else {
                self.append()
            }
        });
        let second = self.spec.create_bias.map(|bias| {
            if self.random.below(10) < u32::from(bias) {
                self.create()
            } else {
                let place = self.used_place();
                self.delete(place)
            }
        });
        Some([first, second])
    }

    /// Deletes the remaining files, in table order.
    pub fn deletions(&mut self) -> Vec<Step> {
        let used: Vec<usize> = (0..self.table.len())
            .filter(|&place| self.table[place].bytes > 0)
            .collect();
        used.into_iter().map(|place| self.delete(place)).collect()
    }

    fn append(&mut self) -> Step {
        let place = self.used_place();
        let Entry { name, bytes } = self.table[place];
        let room = self.spec.size_high_bytes.saturating_sub(bytes);
        if room == 0 {
            return Step::AppendSkipped;
        }
        let added = self.random.below(room) + 1;
        self.table[place].bytes += added;
        Step::Append(name, added)
    }

    fn delete(&mut self, place: usize) -> Step {
        let entry = &mut self.table[place];
        entry.bytes = 0;
        self.files_in_use -= 1;
        Step::Delete(entry.name)
    }

    fn free_place(&mut self) -> Option<usize> {
        let is_free = |entry: &Entry| entry.bytes == 0;
        let place = if self.table.get(self.next_place).is_some_and(is_free) {
            self.next_place
        } else {
            self.table.iter().position(is_free)?
        };
        self.next_place = place + 1;
        Some(place)
    }

    /// Terminates in practice: at least one entry of the table is in use.
    fn used_place(&mut self) -> usize {
        let places = u32::try_from(self.table.len()).expect("the number of files is checked");
        loop {
            let drawn = usize::try_from(self.random.below(places)).expect("a place of a table in memory");
            if self.table[drawn].bytes > 0 {
                return drawn;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, PartialEq, Eq)]
    struct Counts {
        created_alone: u64,
        created_mixed: u64,
        read: u64,
        appended: u64,
        deleted_alone: u64,
        deleted_mixed: u64,
        read_bytes: u64,
        written_bytes: u64,
        ran_out: bool,
    }

    fn counts(spec: &PostmarkSpec) -> Counts {
        let mut counts = Counts::default();
        let (mut plan, _) = Plan::new(spec);
        for _ in 0..spec.files {
            let Step::Create(_, bytes) = plan.create() else {
                panic!("the table has room for the pool")
            };
            counts.created_alone += 1;
            counts.written_bytes += u64::from(bytes);
        }
        for _ in 0..spec.transactions {
            let Some(steps) = plan.transaction() else {
                counts.ran_out = true;
                break;
            };
            for step in steps.into_iter().flatten() {
                match step {
                    Step::Create(_, bytes) => {
                        counts.created_mixed += 1;
                        counts.written_bytes += u64::from(bytes);
                    }
                    Step::Append(_, bytes) => {
                        counts.appended += 1;
                        counts.written_bytes += u64::from(bytes);
                    }
                    Step::Read(_, bytes) => {
                        counts.read += 1;
                        counts.read_bytes += u64::from(bytes);
                    }
                    Step::Delete(_) => counts.deleted_mixed += 1,
                    Step::AppendSkipped | Step::CreateSkipped => {}
                }
            }
        }
        counts.deleted_alone = u64::try_from(plan.deletions().len()).unwrap();
        counts
    }

    /// PostMark 1.51 prints 1.36 megabytes read and 4.45 written for its defaults, in units of 1024².
    #[test]
    fn the_defaults_do_what_the_original_did() {
        let found = counts(&PostmarkSpec::original_defaults("/".into()));
        let rounded = |bytes: u64| format!("{:.2}", results::nearest_f64(bytes) / 1_048_576.0);
        assert_eq!(rounded(found.read_bytes), "1.36");
        assert_eq!(rounded(found.written_bytes), "4.45");
        let expected = Counts {
            created_alone: 500,
            created_mixed: 264,
            read: 243,
            appended: 257,
            deleted_alone: 528,
            deleted_mixed: 236,
            ..found
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn a_full_table_and_full_files_skip_as_in_the_original() {
        let spec = PostmarkSpec {
            files: 100,
            transactions: 1000,
            postmark_seed: 7,
            read_bias: Some(2),
            create_bias: Some(7),
            ..PostmarkSpec::original_defaults("/".into())
        };
        let found = counts(&spec);
        let expected = Counts {
            created_alone: 100,
            created_mixed: 390,
            read: 183,
            appended: 811,
            deleted_alone: 200,
            deleted_mixed: 290,
            ..found
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn files_of_one_size_are_never_appended_to() {
        let spec = PostmarkSpec {
            size_low_bytes: 1_000_000,
            size_high_bytes: 1_000_000,
            files: 20,
            transactions: 40,
            ..PostmarkSpec::original_defaults("/".into())
        };
        let found = counts(&spec);
        assert_eq!(
            (
                found.read,
                found.appended,
                found.created_mixed,
                found.deleted_mixed
            ),
            (18, 0, 28, 12)
        );
    }

    #[test]
    fn the_run_ends_when_no_file_is_left() {
        let spec = PostmarkSpec {
            files: 100,
            transactions: 1000,
            create_bias: Some(1),
            ..PostmarkSpec::original_defaults("/".into())
        };
        let found = counts(&spec);
        assert!(found.ran_out && found.deleted_alone == 0, "{found:?}");
    }
}
