//! Checks of a specification that need no system call on the target.

use super::{Cache, DataPattern, DeviceAccess, Engine, FileSpec, Order, Pattern, Rate, Sharing, SyncKind};
use crate::error::BenchError;
use crate::placement::FilePlacement;

/// Largest record: it is held in memory once per operation in flight.
const RECORD_BYTES_MAX: u64 = 1 << 30;

/// A larger number of threads is taken for a typing error.
const THREADS_MAX: u32 = 1024;

/// The kernel's own limit on ring entries is 32768; queues deeper than this measure memory, not devices.
const DEPTH_MAX: u32 = 4096;

/// Limit of open files, if a thread has several.
const FILES_MAX: u64 = 1000;

/// O_DIRECT requires at least this alignment on every device.
const SECTOR_BYTES: u64 = 512;

impl FileSpec {
    /// Checks everything that needs no system call on the target.
    ///
    /// # Errors
    /// [`BenchError::Spec`] with the field, and the expected and found values.
    pub fn validate(&self) -> Result<(), BenchError> {
        self.check_sizes()?;
        self.check_memory()?;
        self.check_pattern()?;
        self.check_mode()?;
        self.check_pace()?;
        self.check_passes()?;
        self.check_files_of_each()?;
        self.check_device()?;
        if self.cold_or_fail && self.cache != Cache::Cold {
            return refused("cache", "a run that must be cold needs the cold cache");
        }
        self.check_files()?;
        match self.data {
            DataPattern::Compressible(percent) if percent > 100 => {
                refused("data", format!("{percent} % compressible, expected 0 to 100"))
            }
            _ => Ok(()),
        }
    }

    fn check_sizes(&self) -> Result<(), BenchError> {
        let (record, file) = (self.record_bytes, self.file_bytes);
        if record == 0 || record > RECORD_BYTES_MAX {
            return refused(
                "record size",
                format!("{record} bytes, expected 1 to {RECORD_BYTES_MAX}"),
            );
        }
        if self.mode.is_direct() && record % SECTOR_BYTES != 0 {
            let problem = format!("{record} bytes, expected a multiple of {SECTOR_BYTES} for O_DIRECT");
            return refused("record size", problem);
        }
        if file < record {
            let problem = format!("{file} bytes, which is smaller than one record of {record} bytes");
            return refused("file size", problem);
        }
        if file % record != 0 {
            let nearest = file.div_ceil(record).saturating_mul(record);
            let problem =
                format!("{file} bytes, expected a multiple of the record size, such as {nearest} bytes");
            return refused("file size", problem);
        }
        if self.threads == 0 || self.threads > THREADS_MAX {
            return refused(
                "threads",
                format!("{}, expected 1 to {THREADS_MAX}", self.threads),
            );
        }
        let total = file
            .checked_mul(u64::from(self.threads))
            .and_then(|total| total.checked_mul(2));
        if total.is_none_or(|total| i64::try_from(total).is_err()) {
            let problem = format!("{file} bytes times {} threads is above 2^62", self.threads);
            return refused("file size", problem);
        }
        let page = u64::try_from(rustix::param::page_size()).unwrap_or(u64::MAX);
        let has_parts = self.sharing == Sharing::Shared || self.pattern == Pattern::Append;
        if self.mode.is_mapped() && has_parts && file % page != 0 {
            let problem =
                format!("{file} bytes, expected a multiple of the page size ({page} bytes) for parts");
            return refused("file size", problem + " of a shared mapping");
        }
        Ok(())
    }

    /// Buffers that do not fit would end the process, not just the run.
    fn check_memory(&self) -> Result<(), BenchError> {
        let Engine::Psync = self.engine else {
            let depth = self.engine.depth();
            if depth == 0 || depth > DEPTH_MAX {
                return refused("queue depth", format!("{depth}, expected 1 to {DEPTH_MAX}"));
            }
            return self.check_buffers();
        };
        self.check_buffers()
    }

    fn check_buffers(&self) -> Result<(), BenchError> {
        let system = rustix::system::sysinfo();
        let memory = system.totalram.saturating_mul(u64::from(system.mem_unit));
        let buffers = u64::from(self.threads).saturating_mul(u64::from(self.engine.depth()));
        let table = match self.order {
            Order::Mobibench if !self.pattern.is_sequential() => self.records().saturating_mul(16),
            _ => 0,
        };
        let tables = table.saturating_mul(u64::from(self.threads));
        let needed = buffers.saturating_mul(self.record_bytes).saturating_add(tables);
        if needed > memory / 2 {
            let problem = format!(
                "{buffers} records of {} bytes in flight and {tables} bytes of tables are more than half of the \
                 memory ({memory} bytes)",
                self.record_bytes
            );
            return refused("memory", problem);
        }
        Ok(())
    }

    fn check_pattern(&self) -> Result<(), BenchError> {
        if let Pattern::Mixed { read_percent } | Pattern::SequentialMixed { read_percent } = self.pattern
            && read_percent > 100
        {
            return refused("pattern", format!("{read_percent} % reads, expected 0 to 100"));
        }
        if self.pattern == Pattern::Append && self.sharing == Sharing::Shared {
            return refused(
                "sharing",
                "threads can't append to parts of one file; give each its own",
            );
        }
        if self.pattern.is_sequential() && self.order != Order::EachOnce {
            return refused("order", "a pattern from the beginning to the end has one order");
        }
        if self.overlap_percent > 99 {
            let problem = format!("{} %, expected 0 to 99", self.overlap_percent);
            return refused("overlap", problem);
        }
        if self.overlap_percent > 0 && self.pattern.is_sequential() {
            return refused(
                "overlap",
                "a pattern from the beginning to the end repeats nothing",
            );
        }
        if self.overlap_percent > 0 && self.order == Order::WithReplacement {
            return refused(
                "overlap",
                "an order with replacement repeats what it draws; leave one out",
            );
        }
        Ok(())
    }

    fn check_mode(&self) -> Result<(), BenchError> {
        if !self.pattern.writes() && self.mode.syncs_each_write_by_call() {
            let problem = format!(
                "`{}` syncs after each write, but the pattern writes nothing",
                self.mode
            );
            return refused("mode", problem);
        }
        let is_barrier = matches!(self.mode.sync, SyncKind::Fbarrier | SyncKind::Fdatabarrier);
        let is_call = !self.mode.is_mapped() && !is_barrier;
        if !is_call && self.engine != Engine::Psync {
            return refused("engine", format!("a ring has no operation for `{}`", self.mode));
        }
        Ok(())
    }

    fn check_pace(&self) -> Result<(), BenchError> {
        if let Some(Rate::BytesPerSecond(0) | Rate::OperationsPerSecond(0)) = self.rate {
            return refused("rate", "0 a second would never end");
        }
        if self.time.is_some_and(|limit| limit.run_ns == 0) {
            return refused("run time", "0 s measures nothing");
        }
        if self.count_calls && self.time.is_some_and(|limit| limit.ramp_ns > 0) {
            return refused(
                "ramp",
                "calls are counted from the start of the threads; leave one out",
            );
        }
        if self.time.is_some() && self.pattern == Pattern::Append && self.mode.is_mapped() {
            return refused("run time", "a mapping can't grow for as long as the clock runs");
        }
        Ok(())
    }

    fn check_passes(&self) -> Result<(), BenchError> {
        if self.passes == 0 {
            return refused("passes", "0, expected at least 1");
        }
        if self.passes > 1 && self.time.is_some() {
            return refused("passes", "a run by the clock goes round by itself; leave one out");
        }
        if self.passes > 1 && self.pattern == Pattern::Append {
            return refused("passes", "an append has no way that it could go again");
        }
        if self.sync_every == 0 {
            return refused("sync every", "0 writes, expected at least 1");
        }
        if self.sync_every > 1 && !self.mode.syncs_each_write_by_call() {
            let problem = format!("{} writes, but `{}` calls no sync", self.sync_every, self.mode);
            return refused("sync every", problem);
        }
        Ok(())
    }

    fn check_files_of_each(&self) -> Result<(), BenchError> {
        let files = u64::from(self.files_of_each);
        if files == 1 {
            return Ok(());
        }
        if files == 0 || files * u64::from(self.threads) > FILES_MAX {
            let problem = format!("{files} of each thread, expected 1 to {FILES_MAX} in all");
            return refused("files", problem);
        }
        if !self.file_bytes.is_multiple_of(files * self.record_bytes) {
            let problem = format!(
                "{files} files share {} bytes, expected whole records of {} bytes in each",
                self.file_bytes, self.record_bytes
            );
            return refused("files", problem);
        }
        let plain = self.sharing == Sharing::OneEach
            && self.engine == Engine::Psync
            && !self.mode.is_mapped()
            && self.pattern != Pattern::Append
            && self.device == DeviceAccess::Refused;
        if !plain || self.verify {
            return refused(
                "files",
                "several files of a thread, which need calls (psync, no mapping) on files of its own, without append and \
                 verification",
            );
        }
        Ok(())
    }

    fn check_device(&self) -> Result<(), BenchError> {
        match self.device {
            DeviceAccess::Refused => return Ok(()),
            DeviceAccess::Read if self.pattern.writes() => {
                return refused(
                    "device",
                    "the pattern writes; only --destroy-data allows to overwrite a device",
                );
            }
            DeviceAccess::Read | DeviceAccess::Destroy => {}
        }
        if self.sharing == Sharing::OneEach && self.threads > 1 {
            return refused("sharing", "there is one device; its threads share it");
        }
        if self.pattern == Pattern::Append {
            return refused("pattern", "a device can't grow");
        }
        if self.verify && self.device == DeviceAccess::Read {
            return refused("verification", "nobody knows what the device should hold");
        }
        Ok(())
    }

    fn check_files(&self) -> Result<(), BenchError> {
        if self.files == FilePlacement::OwnDirectory {
            return Ok(());
        }
        if self.device != DeviceAccess::Refused {
            return refused("files", "a device has no files to name");
        }
        if self.verify {
            return refused(
                "files",
                "nobody knows what files of earlier runs should hold; verify new ones",
            );
        }
        Ok(())
    }
}

fn refused(field: &'static str, problem: impl Into<String>) -> Result<(), BenchError> {
    Err(BenchError::spec(field, problem))
}
