//! The options of one section: lookup, tracking of unused options, and notes.

use std::cell::RefCell;
use std::collections::BTreeSet;

use super::error::FioError;
use super::import::{Note, Treatment};
use super::ini::{IniOption, Section};

/// Options that do not affect the measurement here, with the reason.
const IGNORED: [(&str, &str); 25] = [
    ("description", "a comment"),
    ("name", "the section's name is used"),
    ("thread", "workers are always threads"),
    (
        "group_reporting",
        "the threads of a section are always reported together",
    ),
    ("stonewall", "nothing is before the first section"),
    ("unlink", "test files are always removed"),
    ("openfiles", "files stay open"),
    ("gtod_reduce", "times are always taken"),
    ("clocksource", "the monotonic clock is always used"),
    ("disk_util", "the block device is always counted"),
    ("lat_percentiles", "percentiles are always there"),
    ("clat_percentiles", "percentiles are always there"),
    ("slat_percentiles", "percentiles are always there"),
    ("percentile_list", "the usual percentiles are printed"),
    ("randrepeat", "orders always repeat with the seed"),
    ("scramble_buffers", "each block is different always"),
    ("refill_buffers", "each block is different always"),
    ("exitall_on_error", "an error always ends the run"),
    ("create_serialize", "files are made one after the other always"),
    ("create_fsync", "files are synced before the window always"),
    ("eta", "a matter of the display"),
    ("eta_interval", "a matter of the display"),
    ("write_lat_log", "records hold histograms and no log"),
    ("write_bw_log", "records hold histograms and no log"),
    ("write_iops_log", "records hold histograms and no log"),
];

/// Known but unsupported options, with the missing feature.
const UNSUPPORTED: [(&str, &str); 31] = [
    (
        "io_size",
        "an amount of I/O that differs from the size of the file",
    ),
    ("offset", "an area that does not begin with the file"),
    ("offset_increment", "areas that differ by job"),
    ("bsrange", "records of several sizes in one workload"),
    ("bssplit", "records of several sizes in one workload"),
    ("blockalign", "records that do not lie at multiples of their size"),
    ("random_distribution", "orders other than uniform ones"),
    ("percentage_random", "a mix of sequential and random order"),
    ("rw_sequencer", "orders with runs of neighbours"),
    ("filesize_range", "files of several sizes"),
    ("write_barrier", "barriers between writes"),
    ("sync_file_range", "sync_file_range after writes"),
    ("fsync_on_error", "going on after errors"),
    ("continue_on_error", "going on after errors"),
    ("startdelay", "sections that begin at different times"),
    ("delay_interval", "sections that begin at different times"),
    ("rate_min", "ending a run that is too slow"),
    ("rate_process", "arrival at random times"),
    ("latency_target", "finding a depth by its latency"),
    (
        "steadystate",
        "ending with a steady state; use --rounds, which tells how noisy the runs were",
    ),
    (
        "read_iolog",
        "a replay; `tidegate bench replay` takes fio's I/O logs",
    ),
    ("write_iolog", "a trace of what was done"),
    (
        "replay_redirect",
        "a replay; `tidegate bench replay` takes fio's I/O logs",
    ),
    ("zonemode", "zones"),
    ("zonesize", "zones"),
    ("verify_backlog", "verification while writing goes on"),
    ("dedupe_percentage", "blocks that repeat others"),
    (
        "buffer_pattern",
        "a pattern of several bytes; data constant:BYTE has one",
    ),
    ("trim_percentage", "discards"),
    ("experimental_verify", "verification while writing goes on"),
    ("exec_prerun", "running other programs"),
];

/// The options of a section; `finish` judges each option that was never looked up.
pub struct Options<'job> {
    pub file: &'job str,
    pub section: &'job Section,
    asked: RefCell<BTreeSet<String>>,
    notes: RefCell<Vec<Note>>,
}

impl<'job> Options<'job> {
    pub fn new(file: &'job str, section: &'job Section) -> Self {
        Self {
            file,
            section,
            asked: RefCell::new(BTreeSet::new()),
            notes: RefCell::new(Vec::new()),
        }
    }

    /// Looks up an option.
    pub fn option(&self, key: &str) -> Option<&'job IniOption> {
        self.asked.borrow_mut().insert(key.to_owned());
        self.section.options.iter().find(|option| option.key == key)
    }

    /// The value of an option, parsed by `read`.
    pub fn value<T>(
        &self,
        key: &str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, FioError> {
        let Some(option) = self.option(key) else {
            return Ok(None);
        };
        let text = option.value.as_deref().unwrap_or_default();
        read(text)
            .map(Some)
            .map_err(|problem| self.wrong(option, problem))
    }

    /// A switch; `default` is fio's value if the option is absent.
    pub fn switch(&self, key: &str, default: bool) -> Result<bool, FioError> {
        let Some(option) = self.option(key) else {
            return Ok(default);
        };
        super::quantity::switch(option.value.as_deref()).map_err(|problem| self.wrong(option, problem))
    }

    pub fn wrong(&self, option: &IniOption, problem: String) -> FioError {
        FioError::Value {
            file: self.file.to_owned(),
            line: option.line,
            section: self.section.name.clone(),
            option: spelled(&option.key, option.value.as_deref()),
            problem,
        }
    }

    /// An error about an option; about the section if the option is absent.
    pub fn unsupported(&self, key: &str, needed: impl Into<String>) -> FioError {
        let option = self.section.options.iter().find(|option| option.key == key);
        let value = option.and_then(|option| option.value.as_deref());
        FioError::Unsupported {
            file: self.file.to_owned(),
            line: option.map_or(self.section.line, |option| option.line),
            section: self.section.name.clone(),
            option: spelled(key, value),
            needed: needed.into(),
        }
    }

    pub fn note(&self, key: &str, treatment: Treatment, text: impl Into<String>) {
        let option = self.section.options.iter().find(|option| option.key == key);
        self.notes.borrow_mut().push(Note {
            section: self.section.name.clone(),
            line: option.map_or(self.section.line, |option| option.line),
            key: key.to_owned(),
            value: option.and_then(|option| option.value.clone()),
            treatment,
            text: text.into(),
        });
    }

    pub fn approximated(&self, key: &str, text: impl Into<String>) {
        self.note(key, Treatment::Approximated, text);
    }

    /// Judges the options that were never looked up, and returns the notes, by line.
    pub fn finish(self) -> Result<Vec<Note>, FioError> {
        for option in &self.section.options {
            let key = option.key.as_str();
            if self.asked.borrow().contains(key) {
                let is_noted = self.notes.borrow().iter().any(|note| note.key == key);
                if !is_noted {
                    self.note(key, Treatment::Taken, "");
                }
            } else if let Some((_, why)) = IGNORED.iter().find(|(ignored, _)| *ignored == key) {
                self.note(key, Treatment::Ignored, *why);
            } else {
                let known = UNSUPPORTED.iter().find(|(unsupported, _)| *unsupported == key);
                let needed = known.map_or("an option that is not known here", |(_, needed)| needed);
                return Err(self.unsupported(key, needed));
            }
        }
        let mut notes = self.notes.into_inner();
        notes.sort_by_key(|note| note.line);
        Ok(notes)
    }
}

fn spelled(key: &str, value: Option<&str>) -> String {
    value.map_or_else(|| key.to_owned(), |value| format!("{key}={value}"))
}
