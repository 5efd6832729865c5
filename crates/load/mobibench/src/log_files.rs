//! Log files of `-L` and `-k`: the latency of every operation, and the operations of every second, appended to files.
//!
//! The files are opened before the run, so that an unwritable file is an immediate error, and written after it; the
//! original writes them between the measured operations. Lines beginning with `#` are comments, as in the original;
//! times have three more digits than in the original.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use bench::{LogLimits, OperationLog};
use outfile::Readers;
use results::nearest_f64;

use crate::MobibenchError;
use crate::plan::{FileTest, sync_number};

/// Maximum latencies of all threads together: 128 MiB.
const LATENCIES_MAX: u64 = 16 << 20;

/// Maximum seconds: one day.
const SECONDS_MAX: u32 = 86_400;

/// The requested log files.
#[derive(Debug)]
pub struct LogFiles {
    latency: Option<LogFile>,
    seconds: Option<LogFile>,
}

#[derive(Debug)]
struct LogFile {
    path: PathBuf,
    file: File,
}

impl LogFiles {
    /// Opens the requested files.
    pub fn open(latency: Option<&Path>, seconds: Option<&Path>) -> Result<Self, MobibenchError> {
        Ok(Self {
            latency: latency.map(LogFile::open).transpose()?,
            seconds: seconds.map(LogFile::open).transpose()?,
        })
    }

    /// Log limits of each of `threads` threads.
    pub fn limits(&self, threads: u32) -> LogLimits {
        LogLimits {
            latencies_max: if self.latency.is_some() {
                LATENCIES_MAX / u64::from(threads.max(1))
            } else {
                0
            },
            seconds_max: if self.seconds.is_some() { SECONDS_MAX } else { 0 },
        }
    }

    /// Writes the logs. `time` is the result line, `window_ns` the duration of the operations.
    pub fn write(
        self,
        test: &FileTest,
        logs: &[OperationLog],
        time: &str,
        window_ns: u64,
    ) -> Result<(), MobibenchError> {
        let title = format!(
            "\n#In {} IO mode and {} sync mode\n",
            test.access.number(),
            sync_number(test.sync)
        );
        if let Some(file) = self.latency {
            file.write(|out| write_latencies(out, &title, logs, time))?;
        }
        if let Some(file) = self.seconds {
            file.write(|out| write_seconds(out, &title, test, logs, window_ns))?;
        }
        Ok(())
    }
}

impl LogFile {
    fn open(path: &Path) -> Result<Self, MobibenchError> {
        let file = outfile::append(path, Readers::Umask);
        Ok(Self {
            path: path.to_owned(),
            file: file.map_err(MobibenchError::file(path, "can't be opened"))?,
        })
    }

    fn write(
        self,
        content: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>,
    ) -> Result<(), MobibenchError> {
        let mut out = BufWriter::new(self.file);
        content(&mut out)
            .and_then(|()| out.flush())
            .map_err(MobibenchError::file(self.path, "can't be written"))
    }
}

fn write_latencies(
    out: &mut impl Write,
    title: &str,
    logs: &[OperationLog],
    time: &str,
) -> std::io::Result<()> {
    for log in logs {
        out.write_all(title.as_bytes())?;
        for latency_ns in &log.latencies_ns {
            writeln!(out, "{}.{:03}\tusec", latency_ns / 1000, latency_ns % 1000)?;
        }
        if log.latencies_lost > 0 {
            writeln!(
                out,
                "#{} operations more than there was room for",
                log.latencies_lost
            )?;
        }
    }
    out.write_all(time.as_bytes())
}

fn write_seconds(
    out: &mut impl Write,
    title: &str,
    test: &FileTest,
    logs: &[OperationLog],
    window_ns: u64,
) -> std::io::Result<()> {
    out.write_all(title.as_bytes())?;
    let operations = sum_of_seconds(logs);
    let full_seconds = usize::try_from(window_ns / 1_000_000_000).unwrap_or(usize::MAX);
    for (second, count) in operations.iter().enumerate() {
        if second >= full_seconds {
            let rest = nearest_f64(window_ns % 1_000_000_000) / 1e9;
            writeln!(out, "#the last {rest:.3} s: {count} operations")?;
        } else if test.access.is_random() {
            writeln!(out, "{count} IOPS")?;
        } else {
            writeln!(out, "{} KB/s", count.saturating_mul(test.record_kib))?;
        }
    }
    let lost = logs
        .iter()
        .map(|log| log.operations_lost)
        .fold(0, u64::saturating_add);
    if lost > 0 {
        writeln!(
            out,
            "#{lost} operations after the last second that there was room for"
        )?;
    }
    Ok(())
}

/// Operations per second, summed over all threads.
fn sum_of_seconds(logs: &[OperationLog]) -> Vec<u64> {
    let longest = logs.iter().map(|log| log.operations_of_second.len()).max();
    let mut sums = vec![0_u64; longest.unwrap_or(0)];
    for log in logs {
        for (sum, count) in sums.iter_mut().zip(&log.operations_of_second) {
            *sum = sum.saturating_add(*count);
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use bench::Mode;

    use crate::plan::Access;

    fn test_of(access: Access) -> FileTest {
        FileTest {
            access,
            sync: Mode::BUFFERED,
            threads: 2,
            share_kib: 1024,
            record_kib: 8,
            records: 128,
            overlap_percent: 0,
        }
    }

    fn seconds_of(access: Access, window_ns: u64) -> String {
        let log = |operations_of_second: &[u64]| OperationLog {
            operations_of_second: operations_of_second.to_vec(),
            ..OperationLog::default()
        };
        let mut out = Vec::new();
        let logs = [log(&[100, 50, 3]), log(&[10, 5])];
        write_seconds(&mut out, "", &test_of(access), &logs, window_ns).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_second_is_the_sum_of_the_threads_and_the_last_part_is_a_remark() {
        let text = seconds_of(Access::RandomRead, 2_250_000_000);
        assert_eq!(text, "110 IOPS\n55 IOPS\n#the last 0.250 s: 3 operations\n");
    }

    #[test]
    fn sequential_tests_say_kilobytes() {
        let text = seconds_of(Access::Write, 3_000_000_000);
        assert_eq!(text, "880 KB/s\n440 KB/s\n24 KB/s\n");
    }

    #[test]
    fn latencies_have_nanoseconds_behind_the_original_unit() {
        let log = OperationLog {
            latencies_ns: vec![34_012, 900],
            latencies_lost: 7,
            ..OperationLog::default()
        };
        let mut out = Vec::new();
        write_latencies(
            &mut out,
            "\n#In 1 IO mode and 0 sync mode\n",
            &[log],
            "[TIME] :\n",
        )
        .unwrap();
        let expected = "\n#In 1 IO mode and 0 sync mode\n34.012\tusec\n0.900\tusec\n\
                        #7 operations more than there was room for\n[TIME] :\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
