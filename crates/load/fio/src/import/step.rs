//! Translates a section into the settings of a step: operations, sizes, order and rate.
//!
//! An option that affects the measurement and has no counterpart is refused; an approximation gets a note.

use std::time::Duration;

use crate::error::FioError;
use crate::options::Options;
use crate::quantity;
use jobs::{Setting, SettingValue};

pub(super) struct StepMaker<'section> {
    pub options: &'section Options<'section>,
    pub settings: Vec<Setting>,
    pub directory: Option<String>,
    pub seed: Option<u64>,
}

/// Which directions a section uses, and whether its offsets are random.
pub(super) struct Direction {
    pub reads: bool,
    pub writes: bool,
    pub is_random: bool,
}

impl<'section> StepMaker<'section> {
    pub fn new(options: &'section Options<'section>) -> Self {
        Self {
            options,
            settings: Vec::new(),
            directory: None,
            seed: None,
        }
    }

    pub fn fill(&mut self) -> Result<(), FioError> {
        let direction = self.pattern()?;
        let jobs = self.options.value("numjobs", quantity::count)?.unwrap_or(1);
        self.put("threads", jobs.to_string());
        self.sizes()?;
        self.mode(&direction)?;
        self.engine()?;
        self.syncs_at_the_end(&direction)?;
        self.cache_and_advice(&direction)?;
        self.order(&direction)?;
        self.limiter(jobs)?;
        self.data(&direction)?;
        self.place(jobs)?;
        self.refuse_what_changes_the_meaning()
    }

    pub fn put(&mut self, key: &str, value: String) {
        self.set(key, SettingValue::Texts(vec![value]));
    }

    fn set(&mut self, key: &str, value: SettingValue) {
        self.settings.push(Setting {
            key: key.to_owned(),
            value,
            line: self.options.section.line,
        });
    }

    pub fn finished(mut self) -> Vec<Setting> {
        self.settings.sort_by(|left, right| left.key.cmp(&right.key));
        self.settings
    }

    fn pattern(&mut self) -> Result<Direction, FioError> {
        let text = self.options.value("rw", |text| Ok(text.to_owned()))?;
        let text = text.unwrap_or_else(|| "read".to_owned());
        let read_share = self.options.value("rwmixread", quantity::percent)?;
        let write_share = self.options.value("rwmixwrite", quantity::percent)?;
        // If both are given, fio uses the later one; they are two names for one share.
        let read_percent = read_share
            .or(write_share.map(|percent| 100 - percent))
            .unwrap_or(50);
        let (pattern, reads, writes, is_random) = match text.as_str() {
            "read" => ("sequential-read".to_owned(), true, false, false),
            "write" => ("sequential-write".to_owned(), false, true, false),
            "randread" => ("random-read".to_owned(), true, false, true),
            "randwrite" => ("random-write".to_owned(), false, true, true),
            "randrw" => (format!("mixed:{read_percent}"), true, true, true),
            "rw" | "readwrite" => (format!("sequential-mixed:{read_percent}"), true, true, false),
            "trim" | "randtrim" | "trimwrite" | "randtrimwrite" => {
                return Err(self.options.unsupported("rw", "discards"));
            }
            other if other.contains(':') => {
                return Err(self
                    .options
                    .unsupported("rw", "orders with jumps after a number of operations"));
            }
            _ => {
                let needed = "one of read, write, randread, randwrite, rw, readwrite, randrw";
                return Err(self.options.unsupported("rw", needed));
            }
        };
        self.put("pattern", pattern);
        Ok(Direction {
            reads,
            writes,
            is_random,
        })
    }

    fn sizes(&mut self) -> Result<(), FioError> {
        let options = self.options;
        let several = options.option("bs").and_then(|option| option.value.as_deref());
        if several.is_some_and(|text| text.contains(',')) {
            return Err(options.unsupported("bs", "records of different sizes for reads and writes"));
        }
        let record = options.value("bs", quantity::bytes)?.unwrap_or(4096);
        let file_size = options.value("filesize", quantity::bytes)?;
        let size = match options.option("size").and_then(|option| option.value.as_deref()) {
            Some(text) if text.ends_with('%') => {
                let percent = options.value("size", quantity::percent)?.unwrap_or(100);
                let Some(file_size) = file_size else {
                    let needed = "the size of the whole: give filesize in bytes beside it";
                    return Err(options.unsupported("size", needed));
                };
                Some(u64::try_from(u128::from(file_size) * u128::from(percent) / 100).unwrap_or(file_size))
            }
            _ => options.value("size", quantity::bytes)?,
        };
        let Some(total) = size.or(file_size) else {
            return Err(options.unsupported("size", "to be given: how much each job moves"));
        };
        if record == 0 || total < record {
            let needed = format!("at least one record of {record} bytes");
            return Err(options.unsupported("size", needed));
        }
        if total % record != 0 {
            let text = format!("{} bytes: whole records, as fio does too", total - total % record);
            options.approximated("size", text);
        }
        self.files()?;
        self.passes()?;
        self.put("record", record.to_string());
        self.put("size", (total - total % record).to_string());
        Ok(())
    }

    /// fio serves several files round-robin unless it is told to go through them in sequence.
    fn files(&mut self) -> Result<(), FioError> {
        let options = self.options;
        let files = options.value("nrfiles", quantity::count)?.unwrap_or(1);
        let service = options.value("file_service_type", |text| Ok(text.to_owned()))?;
        if files <= 1 {
            return Ok(());
        }
        if service.as_deref() != Some("sequential") {
            let needed =
                "files of a thread in turns; with file_service_type=sequential they come one after the other";
            return Err(options.unsupported("nrfiles", needed));
        }
        self.put("files", files.to_string());
        Ok(())
    }

    fn passes(&mut self) -> Result<(), FioError> {
        let options = self.options;
        let loops = options.value("loops", quantity::count)?.unwrap_or(1);
        if loops <= 1 {
            return Ok(());
        }
        if options.option("runtime").is_some() {
            return Err(options.unsupported("loops", "a limit by passes and by time at once"));
        }
        self.put("passes", loops.to_string());
        Ok(())
    }

    fn order(&mut self, direction: &Direction) -> Result<(), FioError> {
        let options = self.options;
        let no_map = options.switch("norandommap", false)?;
        let generator = options.value("random_generator", |text| match text {
            "tausworthe" | "tausworthe64" | "lfsr" => Ok(text.to_owned()),
            other => Err(format!(
                "expected tausworthe, tausworthe64 or lfsr, found `{other}`"
            )),
        })?;
        self.seed = options.value("randseed", quantity::count)?;
        if self.seed.is_some() {
            options.approximated("randseed", "decides our order, which is not fio's");
        }
        if !direction.is_random {
            return Ok(());
        }
        if no_map {
            self.put("order", "with-replacement".to_owned());
        } else {
            let key = if generator.is_some() {
                "random_generator"
            } else {
                "rw"
            };
            let text = "each record once, in another order than fio's: its own takes the next free record on a \
                        collision, which makes neighbours that read-ahead finds";
            options.approximated(key, text);
        }
        Ok(())
    }

    fn limiter(&mut self, jobs: u64) -> Result<(), FioError> {
        let options = self.options;
        let second = Duration::from_secs(1);
        let runtime = options.value("runtime", |text| quantity::time(text, second))?;
        let ramp = options.value("ramp_time", |text| quantity::time(text, second))?;
        let by_clock = options.switch("time_based", false)?;
        match runtime.filter(|runtime| !runtime.is_zero()) {
            Some(runtime) => {
                if !by_clock {
                    let text = "as with time_based: the work begins again when the size is through";
                    options.approximated("runtime", text);
                }
                self.put("runtime", seconds(runtime));
                if let Some(ramp) = ramp {
                    self.put("ramp", seconds(ramp));
                }
            }
            None if by_clock => {
                return Err(options.unsupported("time_based", "a runtime"));
            }
            None if ramp.is_some() => {
                return Err(options.unsupported("ramp_time", "a runtime beside it"));
            }
            None => {}
        }
        let rate = options.value("rate", quantity::bytes)?;
        let iops = options.value("rate_iops", quantity::count)?;
        if rate.is_some() && iops.is_some() {
            return Err(options.unsupported("rate_iops", "two limits at once"));
        }
        // fio limits each job; our limit is for all threads together.
        if let Some(rate) = rate {
            self.put("rate", rate.saturating_mul(jobs).to_string());
        }
        if let Some(iops) = iops {
            self.put("iops", iops.saturating_mul(jobs).to_string());
        }
        let think = options.value("thinktime", |text| quantity::time(text, Duration::from_micros(1)))?;
        if options
            .value("thinktime_blocks", quantity::count)?
            .is_some_and(|blocks| blocks != 1)
        {
            return Err(options.unsupported("thinktime_blocks", "a pause after several operations"));
        }
        if let Some(think) = think {
            self.put("think", seconds(think));
        }
        Ok(())
    }

    fn data(&mut self, direction: &Direction) -> Result<(), FioError> {
        let options = self.options;
        let zero = options.switch("zero_buffers", false)?;
        let compressible = options.value("buffer_compress_percentage", quantity::percent)?;
        let data = match (zero, compressible) {
            (true, _) => "zero".to_owned(),
            (false, Some(percent)) => format!("compressible:{percent}"),
            (false, None) => "random".to_owned(),
        };
        self.put("data", data);
        let verify = options.value("verify", |text| Ok(!matches!(text, "0" | "none")))?;
        let does_verify = options.switch("do_verify", true)?;
        if verify == Some(true) && does_verify {
            if !direction.writes {
                return Err(options.unsupported("verify", "files that another job has written"));
            }
            options.approximated(
                "verify",
                "everything written is compared byte by byte after the window",
            );
            self.set("verify", SettingValue::Switch(true));
        }
        let preallocates = options.value("fallocate", |text| Ok(!matches!(text, "none" | "0")))?;
        if options.switch("overwrite", false)? {
            self.set("overwrite", SettingValue::Switch(true));
        } else if direction.writes && !direction.reads && preallocates != Some(false) {
            options.approximated(
                "fallocate",
                "none: files are not preallocated before they are written",
            );
        }
        Ok(())
    }

    fn place(&mut self, jobs: u64) -> Result<(), FioError> {
        let options = self.options;
        self.directory = options.value("directory", |text| Ok(text.to_owned()))?;
        let Some(name) = options.value("filename", |text| Ok(text.to_owned()))? else {
            return Ok(());
        };
        if name.starts_with("/dev/") {
            let needed = "`tidegate bench file --device`, which asks before it destroys what a device holds";
            return Err(options.unsupported("filename", needed));
        }
        if name.contains(':') {
            return Err(options.unsupported("filename", "several files for each thread"));
        }
        if jobs > 1 {
            let text =
                "one file of our own, in which each thread has its own part; in fio all work in all of it";
            options.approximated("filename", text);
            self.set("shared", SettingValue::Switch(true));
        } else {
            options.approximated(
                "filename",
                "a file of our own in the directory, removed afterwards",
            );
        }
        if let (None, Some((directory, _))) = (&self.directory, name.rsplit_once('/')) {
            self.directory = Some(if directory.is_empty() { "/" } else { directory }.to_owned());
        }
        Ok(())
    }

    /// Refuses options of which only the absence or the default is supported.
    fn refuse_what_changes_the_meaning(&self) -> Result<(), FioError> {
        let options = self.options;
        for key in ["create_only", "verify_only", "allow_mounted_write"] {
            if options.switch(key, false)? {
                return Err(options.unsupported(key, "a run that does something else than to measure"));
            }
        }
        Ok(())
    }
}

/// A duration in the notation of the command line.
fn seconds(time: Duration) -> String {
    if time.subsec_micros() == 0 {
        format!("{}s", time.as_secs())
    } else {
        format!("{}us", time.as_micros())
    }
}
