//! Exports workloads as equivalent fio jobs, for comparison.
//!
//! fio's defaults differ from ours in ways that change rates by factors: fio advises the kernel of the access order
//! (`fadvise_hint`), preallocates files, and does not time a sync at the end. The exported job sets all of these.
//! Features that fio lacks become comments in the file.

use std::fmt::Write;

use bench::{
    AccessAdvice, Cache, DataPattern, Engine, FileSpec, FinalSync, Order, Pattern, Rate, Sharing, SyncKind,
    WriteTarget,
};

/// A workload to export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// The section's name.
    pub name: String,
    /// Consecutive workloads with the same number run at the same time.
    pub group: usize,
    /// The workload's specification.
    pub spec: FileSpec,
}

/// Writes the workloads as one job file.
#[must_use]
pub fn job_file(workloads: &[Workload]) -> String {
    let mut text =
        "; The workloads of tidegate as a fio 3 job, with the flags that make the two comparable.\n"
            .to_owned();
    let mut previous = None;
    for workload in workloads {
        let mut section = Section::default();
        section.fill(&workload.spec);
        let _ = write!(text, "\n[{}]\n", workload.name);
        if previous.is_some_and(|group| group != workload.group) {
            text.push_str("stonewall\n");
        }
        previous = Some(workload.group);
        for comment in &section.comments {
            let _ = writeln!(text, "; {comment}");
        }
        for (key, value) in &section.options {
            let _ = match value {
                Some(value) => writeln!(text, "{key}={value}"),
                None => writeln!(text, "{key}"),
            };
        }
    }
    text
}

#[derive(Default)]
struct Section {
    options: Vec<(&'static str, Option<String>)>,
    comments: Vec<String>,
}

impl Section {
    fn put(&mut self, key: &'static str, value: impl ToString) {
        self.options.push((key, Some(value.to_string())));
    }

    fn flag(&mut self, key: &'static str) {
        self.options.push((key, None));
    }

    fn comment(&mut self, text: impl Into<String>) {
        self.comments.push(text.into());
    }

    fn fill(&mut self, spec: &FileSpec) {
        self.put("directory", spec.directory.display());
        self.pattern(spec);
        self.put("bs", spec.record_bytes);
        self.put("size", spec.file_bytes);
        if let Some(records) = spec.records_max {
            self.put(
                "io_size",
                records.saturating_mul(spec.record_bytes).min(spec.file_bytes),
            );
        }
        if spec.files_of_each > 1 {
            self.put("nrfiles", spec.files_of_each);
            self.put("file_service_type", "sequential");
        }
        self.put("numjobs", spec.threads);
        self.flag("thread");
        self.flag("group_reporting");
        if spec.sharing == Sharing::Shared {
            self.put("filename", "data");
            self.put("offset_increment", spec.file_bytes);
        }
        self.way(spec);
        self.limiter(spec);
        self.data(spec);
        self.put("fallocate", "none");
        if spec.write_target == WriteTarget::ExistingFile {
            self.put("overwrite", 1);
        }
        self.put("invalidate", u8::from(spec.cache == Cache::Cold));
        if spec.cache.reads_files() {
            self.flag("pre_read");
        }
        let advice = match spec.advice {
            AccessAdvice::None => "0",
            AccessAdvice::Sequential => "sequential",
            AccessAdvice::Random => "random",
        };
        self.put("fadvise_hint", advice);
    }

    fn pattern(&mut self, spec: &FileSpec) {
        let (direction, read_percent) = match spec.pattern {
            Pattern::SequentialWrite | Pattern::Append => ("write", None),
            Pattern::RandomWrite => ("randwrite", None),
            Pattern::SequentialRead => ("read", None),
            Pattern::RandomRead => ("randread", None),
            Pattern::Mixed { read_percent } => ("randrw", Some(read_percent)),
            Pattern::SequentialMixed { read_percent } => ("rw", Some(read_percent)),
        };
        if spec.pattern == Pattern::Append && spec.write_target == WriteTarget::ExistingFile {
            self.comment("fio can't append to a file that has content: this job writes a new one");
        }
        self.put("rw", direction);
        if let Some(percent) = read_percent {
            self.put("rwmixread", percent);
        }
        if !spec.pattern.is_sequential() {
            match spec.order {
                Order::WithReplacement => self.flag("norandommap"),
                Order::EachOnce | Order::Mobibench => {
                    self.comment(
                        "each record once as in tidegate, in another order; lfsr has fewer neighbours in it",
                    );
                    self.put("random_generator", "lfsr");
                }
            }
            self.put("randseed", spec.seed);
        }
        if spec.overlap_percent > 0 {
            let percent = spec.overlap_percent;
            self.comment(format!(
                "fio can't repeat {percent} % of the records: this job repeats none"
            ));
        }
    }

    fn way(&mut self, spec: &FileSpec) {
        let engine = match spec.engine {
            _ if spec.mode.is_mapped() => "mmap",
            Engine::Psync => "psync",
            Engine::IoUring { .. } => "io_uring",
        };
        self.put("ioengine", engine);
        if let Engine::IoUring { depth } = spec.engine {
            self.put("iodepth", depth);
        }
        if spec.mode.is_direct() {
            self.put("direct", 1);
        }
        match spec.mode.sync {
            SyncKind::None => {}
            SyncKind::Sync => self.put("sync", "sync"),
            SyncKind::DataSync => self.put("sync", "dsync"),
            SyncKind::Fsync | SyncKind::Msync => self.put("fsync", spec.sync_every),
            SyncKind::Fdatasync => self.put("fdatasync", spec.sync_every),
            SyncKind::MsyncAsync => self.comment("fio has no msync with MS_ASYNC: this job syncs no record"),
            SyncKind::Fbarrier | SyncKind::Fdatabarrier => {
                self.comment("fio has no barriers: this job syncs no record");
            }
        }
        match spec.final_sync {
            FinalSync::Timed if spec.pattern.writes() => self.put("end_fsync", 1),
            FinalSync::Untimed if spec.pattern.writes() => self.put("fsync_on_close", 1),
            _ => {}
        }
    }

    fn limiter(&mut self, spec: &FileSpec) {
        if spec.passes > 1 {
            self.put("loops", spec.passes);
        }
        if let Some(limit) = spec.time {
            self.flag("time_based");
            self.put("runtime", microseconds(limit.run_ns));
            if limit.ramp_ns > 0 {
                self.put("ramp_time", microseconds(limit.ramp_ns));
            }
        }
        // fio limits each job; our limit is for all threads together.
        let threads = u64::from(spec.threads.max(1));
        match spec.rate {
            Some(Rate::BytesPerSecond(rate)) => self.put("rate", rate.div_ceil(threads)),
            Some(Rate::OperationsPerSecond(rate)) => self.put("rate_iops", rate.div_ceil(threads)),
            None => {}
        }
        if spec.think_ns > 0 {
            self.put("thinktime", microseconds(spec.think_ns));
        }
    }

    fn data(&mut self, spec: &FileSpec) {
        match spec.data {
            DataPattern::Zero => self.put("zero_buffers", 1),
            DataPattern::Constant(byte) => self.put("buffer_pattern", format!("{byte:#04x}")),
            DataPattern::Random => self.put("refill_buffers", 1),
            DataPattern::Compressible(percent) => {
                self.put("refill_buffers", 1);
                self.put("buffer_compress_percentage", percent);
            }
        }
        if spec.verify && spec.pattern.writes() {
            self.comment("fio puts a header with a checksum into each record");
            self.put("verify", "crc32c");
        }
    }
}

fn microseconds(nanoseconds: u64) -> String {
    format!("{}us", nanoseconds.div_ceil(1000))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::import;
    use bench::{Mode, TimeLimit};

    fn exported(change: impl FnOnce(&mut FileSpec)) -> String {
        let mut spec = FileSpec::plain(PathBuf::from("/d"), Pattern::RandomWrite, 4096, 1 << 20);
        change(&mut spec);
        job_file(&[workload("w", 0, spec)])
    }

    fn workload(name: &str, group: usize, spec: FileSpec) -> Workload {
        Workload {
            name: name.to_owned(),
            group,
            spec,
        }
    }

    #[test]
    fn workloads_at_the_same_time_have_no_wall_between_them() {
        let spec = FileSpec::plain(PathBuf::from("/d"), Pattern::SequentialRead, 4096, 1 << 20);
        let text = job_file(&[0, 0, 1].map(|group| workload(&format!("w{group}"), group, spec.clone())));
        assert_eq!(text.matches("stonewall").count(), 1, "{text}");
        let groups: Vec<usize> = import("x", &text)
            .expect(&text)
            .job
            .steps
            .iter()
            .map(|step| step.group)
            .collect();
        assert_eq!(groups, [0, 0, 1]);
    }

    fn has(text: &str, line: &str) -> bool {
        text.lines().any(|found| found == line)
    }

    #[test]
    fn what_fio_does_otherwise_by_itself_is_written_down() {
        let text = exported(|spec| spec.final_sync = FinalSync::Timed);
        for line in [
            "fadvise_hint=0",
            "end_fsync=1",
            "fallocate=none",
            "invalidate=0",
            "size=1048576",
            "bs=4096",
        ] {
            assert!(has(&text, line), "{line} in {text}");
        }
    }

    #[test]
    fn a_limit_of_all_threads_is_shared_between_jobs() {
        let text = exported(|spec| {
            spec.threads = 4;
            spec.rate = Some(Rate::BytesPerSecond(4096));
        });
        assert!(has(&text, "rate=1024") && has(&text, "numjobs=4"), "{text}");
    }

    #[test]
    fn what_fio_can_not_do_is_said_in_the_file() {
        assert!(exported(|spec| spec.overlap_percent = 10).contains("; fio can't repeat 10 %"));
        assert!(exported(|spec| spec.mode = Mode::MMAP_ASYNC).contains("; fio has no msync with MS_ASYNC"));
    }

    #[test]
    fn an_exported_job_comes_back_as_the_workload_it_was() {
        let text = exported(|spec| {
            spec.threads = 2;
            spec.mode = Mode::DIRECT_SYNC;
            spec.order = Order::WithReplacement;
            spec.cache = Cache::Cold;
            spec.write_target = WriteTarget::ExistingFile;
            spec.time = Some(TimeLimit {
                ramp_ns: 0,
                run_ns: 1_500_000_000,
            });
        });
        let passes = exported(|spec| {
            spec.passes = 3;
            spec.mode = Mode::FDATASYNC;
            spec.sync_every = 16;
        });
        let step = import("x", &passes).expect(&passes).job.steps.remove(0);
        assert_eq!(step.text("passes"), Some("3"));
        assert_eq!(
            (step.text("mode"), step.text("sync-every")),
            (Some("fdatasync"), Some("16"))
        );
        // fio reads the file before, then opens it again.
        for cache in [Cache::Warm, Cache::Reopened] {
            let text = exported(|spec| spec.cache = cache);
            let step = import("x", &text).expect(&text).job.steps.remove(0);
            assert_eq!(step.text("cache"), Some("reopened"), "{text}");
        }
        let step = import("x", &text).expect(&text).job.steps.remove(0);
        for (key, expected) in [
            ("pattern", "random-write"),
            ("mode", "direct-sync"),
            ("order", "with-replacement"),
            ("threads", "2"),
            ("runtime", "1500000us"),
            ("cache", "cold"),
            ("advice", "none"),
        ] {
            assert_eq!(step.text(key), Some(expected), "{key}");
        }
    }
}
