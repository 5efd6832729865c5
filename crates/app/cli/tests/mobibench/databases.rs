//! `-d` and related options.

use std::fs;
use std::process::Command;

use crate::bed::{Bed, Ran, count, number_after};

/// Queries the database of a run with the system's `sqlite3`; `None`, with a printed reason, if that is missing.
fn ask(bed: &Bed, database: &str, query: &str) -> Option<String> {
    let output = Command::new("sqlite3")
        .arg(bed.file(database))
        .arg(query)
        .output();
    match output {
        Ok(output) => {
            assert!(output.status.success(), "{query}: {output:?}");
            Some(String::from_utf8(output.stdout).expect("UTF-8").trim().to_owned())
        }
        Err(error) => {
            testkit::report_left_out(format!("sqlite3 can't be run: {error}"));
            None
        }
    }
}

fn succeeds(ran: &Ran) {
    assert!(
        ran.code == 0 && ran.error() == "No error",
        "{}{}",
        ran.out,
        ran.err
    );
}

#[test]
fn ten_inserts_into_three_tables_with_a_truncated_journal_when_nothing_is_said() {
    let bed = Bed::new();
    let ran = bed.run(&["-q", "-d0"]);
    succeeds(&ran);
    for line in [
        "DB teset mode enabled.",
        "Operation : 0",
        "Transactions per thread: 10",
        "# of Tables : 3",
        "# of Databases : 1",
        "# of Threads : 1",
        "page_size=4096",
        "journal_mode=truncate",
        "synchronous=2",
        "[NO ROW] : 0 of 30 statements",
    ] {
        assert!(
            ran.out.lines().any(|found| found == line),
            "{line} is missing:\n{}",
            ran.out
        );
    }
    assert!(ran.line("sqlite_version=").len() > "sqlite_version=3.".len());
    let schema = "SELECT count(*) FROM sqlite_schema WHERE type = 'table'";
    let Some(tables) = ask(&bed, "test.db0_0", schema) else {
        return;
    };
    assert_eq!(tables, "3");
}

#[test]
fn the_time_of_transactions_has_the_original_form() {
    let bed = Bed::new();
    let ran = bed.run(&["-q", "-d0", "-n200"]);
    let time = ran.line("[TIME]");
    let elapsed = number_after(time, "[TIME] :") + number_after(time, " sec ") / 1e6;
    assert!(time.ends_with(" Transactions/sec"), "{time}");
    let rate = number_after(time, "us. ");
    assert!((rate * elapsed / 200.0 - 1.0).abs() < 0.01, "{time}");
    assert_eq!(ran.line("[CON SWITCHES] : ").split_whitespace().count(), 5);
}

#[test]
fn every_operation_runs_with_every_journal_and_every_synchronous_mode() {
    let bed = Bed::in_memory().unwrap_or_else(Bed::new);
    let journals = ["delete", "truncate", "persist", "wal", "memory", "off"];
    for operation in ["0", "1", "2"] {
        for (number, name) in journals.iter().enumerate() {
            for synchronous in ["0", "1", "2", "3"] {
                let words = [
                    "-q",
                    "-n3",
                    "-d",
                    operation,
                    "-j",
                    &number.to_string(),
                    "-s",
                    synchronous,
                ];
                let ran = bed.run(&words);
                succeeds(&ran);
                assert_eq!(ran.line("journal_mode="), format!("journal_mode={name}"));
                assert_eq!(ran.line("synchronous="), format!("synchronous={synchronous}"));
            }
        }
    }
}

#[test]
fn tables_and_databases_are_parts_of_each_transaction() {
    let bed = Bed::new();
    let ran = bed.run(&["-q", "-d0", "-n6", "-T2", "-D3", "-t2"]);
    succeeds(&ran);
    assert!(
        ran.out
            .contains("Transactions per thread: 3\n# of Tables : 2\n# of Databases : 3\n"),
        "{}",
        ran.out
    );
    assert_eq!(ran.line("[NO ROW]"), "[NO ROW] : 0 of 36 statements");
    for name in ["test.db0_0", "test.db0_2", "test.db1_1"] {
        assert!(bed.length(name) > 0, "{name}");
    }
}

#[test]
fn tables_and_databases_are_moved_into_1_to_20_with_a_message() {
    let bed = Bed::new();
    let ran = bed.run(&["-q", "-d0", "-T", "0"]);
    succeeds(&ran);
    assert!(ran.err.contains("-T 0 is taken as 1"), "{}", ran.err);
    let ran = bed.run(&["-q", "-d0", "-T", "99"]);
    succeeds(&ran);
    assert!(ran.out.contains("# of Tables : 20\n"), "{}", ran.out);
    let ran = bed.run(&["-q", "-d0", "-D", "-3"]);
    succeeds(&ran);
    assert!(ran.out.contains("# of Databases : 1\n"), "{}", ran.out);
}

#[test]
fn more_databases_than_sqlite_attaches_are_an_error() {
    let bed = Bed::new();
    let ran = bed.run(&["-q", "-d0", "-D20"]);
    assert!(ran.refusal().contains("attaches"), "{}", ran.out);
    assert!(!bed.folder().exists(), "something was left behind");
}

#[test]
fn keys_are_inserted_in_order_or_in_the_random_order_of_the_original() {
    let bed = Bed::new();
    for (words, order) in [
        (["-n50", "-q"].as_slice(), "sequential"),
        (&["-n50", "-R", "x"], "original"),
    ] {
        let ran = bed.run(&[&["-q", "-d0", "-j3", "--json"], words].concat());
        assert_eq!(ran.code, 0, "{}", ran.err);
        let record: serde_json::Value = serde_json::from_str(&ran.out).expect("one record");
        assert_eq!(record["workload"]["keys"], order);
        let query = "SELECT min(id), max(id), count(*) FROM list_0";
        let Some(keys) = ask(&bed, "test.db0_0", query) else {
            return;
        };
        assert_eq!(keys, "0|49|50");
    }
}

#[test]
fn a_wait_after_each_transaction_is_inside_the_time() {
    let bed = Bed::new();
    let ran = bed.run(&["-q", "-d0", "-n5", "-i20"]);
    succeeds(&ran);
    assert!(ran.out.contains("DB time interval : 20 ms\n"), "{}", ran.out);
    assert!(
        number_after(ran.line("[TIME]"), " sec ") >= 80_000.0,
        "{}",
        ran.out
    );
}

#[test]
fn databases_stay_after_inserts_and_updates_and_go_after_deletes() {
    let bed = Bed::new();
    for (operation, stays) in [("0", true), ("1", true), ("2", false)] {
        succeeds(&bed.run(&["-q", "-d", operation, "-t2", "-n4", "-j3"]));
        for name in ["test.db0_0", "test.db1_0"] {
            assert_eq!(bed.file(name).exists(), stays, "-d {operation}: {name}");
        }
    }
    assert_eq!(
        fs::read_dir(bed.folder()).unwrap().count(),
        0,
        "something was left behind"
    );
}

#[test]
fn a_database_that_has_grown_does_not_decide_which_statements_find_a_row() {
    let bed = Bed::new();
    succeeds(&bed.run(&["-q", "-d0", "-n600", "-s0"]));
    for operation in ["1", "2"] {
        let ran = bed.run(&["-q", "-d", operation, "-n1000", "-s0"]);
        succeeds(&ran);
        let unchanged = number_after(ran.line("[NO ROW]"), "[NO ROW] :");
        // An update draws keys from 1 to the number of rows, but rows are numbered from 0: one in a thousand finds none.
        assert!(unchanged < 20.0, "-d {operation}: {}", ran.line("[NO ROW]"));
    }
}

#[test]
fn each_update_writes_another_value() {
    let bed = Bed::new();
    succeeds(&bed.run(&["-q", "-d1", "-n300", "-s0"]));
    let query = "SELECT count(DISTINCT value) = count(*) FROM list_0";
    let Some(all_differ) = ask(&bed, "test.db0_0", query) else {
        return;
    };
    assert_eq!(all_differ, "1");
}

#[test]
fn the_version_of_2013_commits_each_statement_separately() {
    let bed = Bed::new();
    let words = ["-q", "-n10", "-d0", "-s2", "-j1"];
    let syncs = |preset: &str| {
        let words = [words.as_slice(), &["--preset", preset]].concat();
        let (ran, calls) = bed.traced("fdatasync,fsync", &words)?;
        succeeds(&ran);
        Some(count(&calls, "fdatasync("))
    };
    let (Some(head), Some(paper)) = (syncs("mobibench-head"), syncs("mobibench-2013")) else {
        return;
    };
    assert!(
        head > 30 && paper > 30,
        "syncs of 10 transactions: {head}, {paper}"
    );
    let Some(schema) = ask(&bed, "test.db0_0", ".schema") else {
        return;
    };
    assert!(schema.to_lowercase().contains("autoincrement"), "{schema}");
    assert_eq!(schema.matches("CREATE TABLE list_").count(), 1, "{schema}");
}

#[test]
fn the_version_of_2013_has_one_table_in_one_database() {
    let bed = Bed::new();
    for option in ["-T", "-D"] {
        let ran = bed.run(&["-q", "-d0", "--preset", "mobibench-2013", option, "2"]);
        assert!(ran.refusal().contains("mobibench-2013"), "{}", ran.out);
        succeeds(&bed.run(&["-q", "-d0", "--preset", "mobibench-2013", option, "1"]));
    }
}

#[test]
fn the_checkpoint_at_the_end_is_inside_the_time_and_done() {
    let bed = Bed::new();
    let Some((ran, calls)) = bed.traced("fdatasync", &["-q", "-d0", "-n20", "-j3", "-s2"]) else {
        return;
    };
    succeeds(&ran);
    assert!(
        ran.line("[WINDOW]").ends_with("the last sync is inside"),
        "{}",
        ran.out
    );
    assert!(
        count(&calls, "fdatasync(") >= 22,
        "20 commits, and the checkpoint of log and database: {calls:#?}"
    );
}

#[test]
fn an_sql_error_ends_the_run() {
    let bed = Bed::new();
    let script = "trap '' XFSZ; ulimit -f 64; exec \"$@\"";
    let mut command = Command::new("sh");
    command
        .args([
            "-c",
            script,
            "sh",
            env!("CARGO_BIN_EXE_tidegate"),
            "mobibench",
            "--cache",
            "as-is",
        ])
        .args(["-q", "-d0", "-n2000", "-s0", "-p"])
        .arg(bed.folder());
    let ran = Ran::of(&mut command);
    assert!(ran.refusal().contains("test.db0_0"), "{}", ran.out);
    assert!(!bed.folder().exists(), "something was left behind");
}

#[test]
fn operations_and_modes_without_meaning_are_refused() {
    let bed = Bed::new();
    for words in [["-d", "3"], ["-j", "6"], ["-s", "4"], ["-n", "0"], ["-i", "-1"]] {
        let ran = bed.run(&[&["-d0"], words.as_slice()].concat());
        assert!(ran.refusal().starts_with(words[0]), "{}", ran.out);
    }
    let ran = bed.run(&["-d0", "-n2", "-t4"]);
    assert!(ran.refusal().contains("nothing to do"), "{}", ran.out);
}

#[test]
fn a_record_of_transactions_comes_in_json() {
    let bed = Bed::new();
    let ran = bed.run(&["-q", "-d0", "-n7", "--json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let record: serde_json::Value = serde_json::from_str(&ran.out).expect("one record");
    assert_eq!(record["samples"][0]["operation"], "insert");
    assert_eq!(record["samples"][0]["operations_count"], 7);
    assert_eq!(record["workload"]["style"], "text");
}
