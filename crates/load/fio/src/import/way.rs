//! Translates how a section accesses its files: mode, engine, syncs, cache and advice.

use super::Treatment;
use super::step::{Direction, StepMaker};
use crate::error::FioError;
use crate::quantity;
use bench::{CachePath, Mode, SyncKind};

impl StepMaker<'_> {
    pub(super) fn mode(&mut self, direction: &Direction) -> Result<(), FioError> {
        let options = self.options;
        let is_mapped = options
            .option("ioengine")
            .and_then(|option| option.value.as_deref())
            == Some("mmap");
        let buffered = options.switch("buffered", true)?;
        let direct = options.switch("direct", !buffered)?;
        let sync = options.value("sync", |text| match text {
            "" | "1" | "sync" => Ok(SyncKind::Sync),
            "dsync" => Ok(SyncKind::DataSync),
            "0" | "none" => Ok(SyncKind::None),
            other => Err(format!("expected none, sync or dsync, found `{other}`")),
        })?;
        let fsync = self.sync_every("fsync")?;
        let fdatasync = self.sync_every("fdatasync")?;
        // Syncs after writes do not affect sections that only read.
        let (fsync, fdatasync) = (
            fsync.filter(|_| direction.writes),
            fdatasync.filter(|_| direction.writes),
        );
        if fsync.is_some() && fdatasync.is_some() {
            return Err(options.unsupported("fdatasync", "two kinds of sync after writes at once"));
        }
        let every = fsync.or(fdatasync);
        let path = match (is_mapped, direct) {
            (true, _) => CachePath::Mapped,
            (false, true) => CachePath::Direct,
            (false, false) => CachePath::Cached,
        };
        let sync = match (sync.unwrap_or(SyncKind::None), every) {
            (SyncKind::None, Some(_)) if is_mapped => SyncKind::Msync,
            (SyncKind::None, Some(_)) if fsync.is_some() => SyncKind::Fsync,
            (SyncKind::None, Some(_)) => SyncKind::Fdatasync,
            (SyncKind::None, None) => SyncKind::None,
            _ if is_mapped => {
                return Err(options.unsupported("sync", "O_SYNC with a mapping, which has no effect"));
            }
            (_, Some(_)) => {
                return Err(options.unsupported("sync", "O_SYNC and a sync after each write in one mode"));
            }
            (kind, None) => kind,
        };
        let mode = Mode::of(path, sync).expect("every path has these syncs");
        self.put("mode", mode.to_string());
        if let Some(every) = every.filter(|every| *every > 1) {
            self.put("sync-every", every.to_string());
        }
        Ok(())
    }

    /// The number of writes between syncs.
    fn sync_every(&self, key: &str) -> Result<Option<u64>, FioError> {
        let every = self.options.value(key, quantity::count)?;
        Ok(every.filter(|every| *every > 0))
    }

    pub(super) fn engine(&mut self) -> Result<(), FioError> {
        let options = self.options;
        let depth = options.value("iodepth", quantity::count)?.unwrap_or(1);
        let engine = options.value("ioengine", |text| Ok(text.to_owned()))?;
        match engine.as_deref().unwrap_or("psync") {
            "psync" | "mmap" => {}
            "sync" => {
                options.approximated("ioengine", "pread and pwrite in place of lseek and read or write")
            }
            "pvsync" | "pvsync2" | "vsync" => {
                options.approximated("ioengine", "pread and pwrite; one buffer is one buffer");
            }
            "io_uring" => self.ring(depth),
            name @ ("libaio" | "posixaio") => {
                options.approximated("ioengine", format!("io_uring in place of {name}"));
                self.ring(depth);
            }
            _ => {
                let needed = "an engine that is not there; there are psync, mmap and io_uring";
                return Err(options.unsupported("ioengine", needed));
            }
        }
        let has_ring = self.settings.iter().any(|setting| setting.key == "engine");
        if depth > 1 && !has_ring {
            options.note(
                "iodepth",
                Treatment::Ignored,
                "a synchronous engine has one operation in flight",
            );
        }
        Ok(())
    }

    fn ring(&mut self, depth: u64) {
        self.put("engine", "io_uring".to_owned());
        self.put("depth", depth.to_string());
    }

    pub(super) fn syncs_at_the_end(&mut self, direction: &Direction) -> Result<(), FioError> {
        let options = self.options;
        let end = options.switch("end_fsync", false)?;
        let on_close = options.switch("fsync_on_close", false)?;
        if !direction.writes {
            return Ok(());
        }
        if end {
            self.put("final-sync", "timed".to_owned());
        } else if on_close {
            options.approximated("fsync_on_close", "one untimed fsync of each file at the end");
            self.put("final-sync", "untimed".to_owned());
        }
        Ok(())
    }

    pub(super) fn cache_and_advice(&mut self, direction: &Direction) -> Result<(), FioError> {
        let options = self.options;
        // fio's `pre_read` clears `invalidate`.
        let invalidates = options.switch("invalidate", true)?;
        if options.switch("pre_read", false)? {
            self.put("cache", "reopened".to_owned());
        } else if invalidates {
            let text =
                "as root the caches of the machine are dropped, else the pages of the files are given up";
            options.approximated("invalidate", text);
            self.put("cache", "cold".to_owned());
        } else {
            self.put("cache", "as-is".to_owned());
        }
        let by_pattern = if direction.is_random {
            "random"
        } else {
            "sequential"
        };
        let advice = options.value("fadvise_hint", |text| match text {
            "0" | "none" => Ok("none"),
            "" | "1" => Ok(by_pattern),
            "random" => Ok("random"),
            "sequential" => Ok("sequential"),
            other => Err(format!("expected 0, 1, random or sequential, found `{other}`")),
        })?;
        self.put("advice", advice.unwrap_or(by_pattern).to_owned());
        Ok(())
    }
}
