//! Report lines of the original, byte for byte where scripts read them: `[CPU]`, `[TIME]`, `[CON SWITCHES]`, the
//! setup above and `Err string` at the end. Two misspellings are the original's (`Messurement`, `teset`): scripts may
//! look for them. Lines that the original does not have begin with a bracketed word that it does not use.

use std::path::Path;

use bench::sqlite::Synchronous;
use bench::{CacheOutcome, ProcessorUse, WorkerUse};
use results::nearest_f64;

use crate::plan::{DatabaseTest, FileTest, operation_number, sync_number};
use crate::{FinalSync, Preset};

const RULE: &str = "-----------------------------------------";

/// The original's message for success.
pub const NO_ERROR: &str = "No error";

/// Output of a call without arguments.
#[must_use]
pub fn usage() -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!("\tMobibench (Tidegate {version})\n\n\tUsage: for usage information type mobibench -h\n\n")
}

/// The setup of a file test.
pub fn file_setup(test: &FileTest) -> String {
    let title = heading("mobibench measurement setup");
    format!(
        "{title}File size per thread : {} KB\nIO size : {} KB\nIO count : {} \nAccess Mode {}, Sync Mode {}\n\
         # of Threads : {}\n",
        test.share_kib,
        test.record_kib,
        test.records,
        test.access.number(),
        sync_number(test.sync),
        test.threads,
    )
}

/// The setup of an SQLite test.
pub fn database_setup(test: &DatabaseTest) -> String {
    let interval = match test.interval_ms {
        0 => String::new(),
        interval_ms => format!("DB time interval : {interval_ms} ms\n"),
    };
    let title = heading("mobibench measurement setup");
    format!(
        "{title}DB teset mode enabled.\n{interval}Operation : {}\nTransactions per thread: {}\n# of Tables : {}\n\
         # of Databases : {}\n# of Threads : {}\n",
        operation_number(test.operation),
        test.transactions,
        test.tables,
        test.databases,
        test.threads,
    )
}

/// The database settings of an SQLite test.
pub fn database_information(path: &Path, version: &str, test: &DatabaseTest) -> String {
    let title = heading(&format!("DB information of db {}", path.display()));
    let synchronous = Synchronous::ALL
        .iter()
        .position(|level| *level == test.synchronous);
    format!(
        "{title}sqlite_version={version}\npage_size=4096\njournal_mode={}\nsynchronous={}\n",
        test.journal,
        synchronous.unwrap_or_default(),
    )
}

/// A title between two rules.
pub fn heading(title: &str) -> String {
    format!("{RULE}\n[{title}]\n{RULE}\n")
}

/// The title of the results.
pub fn result_heading() -> String {
    heading("Messurement Result")
}

/// CPU usage of the machine. A window shorter than a tick of the kernel's clock has no percentages.
pub fn processors(usage: Option<&ProcessorUse>) -> String {
    let [active, idle, waiting] = usage.map_or([f64::NAN; 3], |usage| {
        [usage.active_percent(), usage.idle_percent, usage.iowait_percent]
    });
    format!("[CPU] : Active,Idle,IoWait : {active:.2} {idle:.2} {waiting:.2}\n").replace("NaN", "nan")
}

/// Time and rates of a file test; operations per second only for random tests, as in the original.
pub fn file_time(elapsed_ns: u64, bytes: u64, random_record_kib: Option<u64>) -> String {
    let rate = per_second(bytes, elapsed_ns);
    let (kib, mib) = (rate / 1024.0, rate / 1024.0 / 1024.0);
    let operations = random_record_kib.map_or_else(String::new, |record_kib| {
        let operations = kib / nearest_f64(record_kib);
        format!(" {operations:.2} IOPS({record_kib}KB) ")
    });
    let time = time(elapsed_ns);
    format!("{time}{rate:.0} B/sec, \t{kib:.2} KB/sec, \t{mib:.2} MB/sec.{operations}\n")
}

/// Time and rate of an SQLite test.
pub fn database_time(elapsed_ns: u64, transactions: u64) -> String {
    let rate = per_second(transactions, elapsed_ns);
    format!("{}{rate:.2} Transactions/sec\n", time(elapsed_ns))
}

/// Context switches of the working threads: all, and the voluntary ones.
pub fn context_switches(usage: Option<&WorkerUse>) -> String {
    usage.map_or_else(String::new, |usage| {
        let voluntary = usage.context_switches_voluntary_count;
        let all = voluntary.saturating_add(usage.context_switches_involuntary_count);
        format!("[CON SWITCHES] : {all} {voluntary}\n")
    })
}

/// The version followed, and whether the window includes the last sync.
pub fn window(preset: Preset, final_sync: FinalSync) -> String {
    let holds = match final_sync {
        FinalSync::Inside => "the last sync is inside",
        FinalSync::Outside => "the last sync is outside",
    };
    format!("[WINDOW] : {}, {holds}\n", preset.name())
}

/// The page cache state at the start of the window.
pub fn cache(outcome: &CacheOutcome) -> String {
    format!("[CACHE] : {}\n", outcome.describe())
}

/// Number of statements that matched no row.
pub fn unchanged(unchanged: u64, statements: u64) -> String {
    format!("[NO ROW] : {unchanged} of {statements} statements\n")
}

/// The last line.
#[must_use]
pub fn error_line(message: &str) -> String {
    format!("Err string : {message}\n")
}

fn time(elapsed_ns: u64) -> String {
    let micros = elapsed_ns / 1000;
    let (seconds, rest) = (micros / 1_000_000, micros % 1_000_000);
    format!("[TIME] :{seconds:>8} sec {rest:06}us. \t")
}

fn per_second(amount: u64, elapsed_ns: u64) -> f64 {
    if elapsed_ns == 0 {
        return 0.0;
    }
    nearest_f64(amount) * 1e9 / nearest_f64(elapsed_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_random_test_is_written_as_the_original_writes_it() {
        // A line of the original: 64 KiB in 814 us.
        let line = file_time(814_000, 65_536, Some(4));
        let original = "[TIME] :       0 sec 000814us. \t80511057 B/sec, \t78624.08 KB/sec, \t76.78 MB/sec. \
                        19656.02 IOPS(4KB) \n";
        assert_eq!(line, original);
    }

    #[test]
    fn the_time_of_a_sequential_test_has_no_operations() {
        let line = file_time(12_000_814_999, 1 << 30, None);
        assert!(line.starts_with("[TIME] :      12 sec 000814us. \t"), "{line}");
        assert!(line.ends_with(" MB/sec.\n"), "{line}");
    }

    #[test]
    fn the_time_of_transactions_is_written_as_the_original_writes_it() {
        assert_eq!(
            database_time(4_877_000, 5),
            "[TIME] :       0 sec 004877us. \t1025.22 Transactions/sec\n"
        );
    }

    #[test]
    fn a_window_without_a_tick_has_percentages_that_are_no_numbers() {
        assert_eq!(processors(None), "[CPU] : Active,Idle,IoWait : nan nan nan\n");
    }

    #[test]
    fn context_switches_are_all_and_voluntary() {
        let usage = WorkerUse {
            context_switches_voluntary_count: 5,
            context_switches_involuntary_count: 2,
            cpu_ns: 0,
            cpu_user_ns: 0,
        };
        assert_eq!(context_switches(Some(&usage)), "[CON SWITCHES] : 7 5\n");
    }
}
