//! Races on made-up records.

use super::axes::{Wish, plan};
use super::*;
use crate::folder::FIELD;
use crate::measure::record_of;
use crate::plan::{Plan, Values};

fn cell(name: &str) -> Cell {
    Cell(Values::from([("fs".to_owned(), name.to_owned())]))
}

/// Runs a race to its end; `speed` gets the number of the cell (0 for the default) and the round.
fn run(count: usize, speed: impl Fn(usize, u32) -> u64) -> (Tuned, Vec<RunRecord>) {
    let cells: Vec<Cell> = (0..count).map(|number| cell(&format!("fs{number}"))).collect();
    let mut race = Race::new(cells.clone(), cells[0].clone(), None);
    let mut records = Vec::new();
    for round in 0..ROUNDS_MAX {
        for (number, cell) in cells.iter().enumerate() {
            if race.runs(cell) && speed(number, round) > 0 {
                records.push(record_of(cell, round, speed(number, round)));
            }
        }
        if !race.after_round(round + 1, &records).1 {
            break;
        }
    }
    (race.tuned(&records), records)
}

#[test]
fn the_fastest_wins_and_its_gain_comes_from_new_rounds_only() {
    let (tuned, records) = run(32, |number, _| if number == 7 { 200 } else { 100 });
    assert_eq!(tuned.better(), Some(&cell("fs7")));
    let gain = tuned.gain.unwrap();
    assert_eq!((gain.count, gain.low, gain.high), (9, 2.0, 2.0));
    let of = |name: &str| {
        records
            .iter()
            .filter(|record| place(record).unwrap().cell == cell(name))
            .count()
    };
    assert_eq!(of("fs3"), 2, "a slow setting runs in the first rounds only");
    assert_eq!(of("fs7"), of("fs0"), "winner and default run in each round");
}

#[test]
fn a_lucky_winner_is_not_confirmed() {
    // Fast in the race, as the default afterwards.
    let (tuned, _) = run(3, |number, round| match (number, round) {
        (2, 0..6) => 150,
        (2, _) => 100 + u64::from(round % 3) - 1,
        _ => 100,
    });
    assert_eq!(tuned.winner, Some(cell("fs2")));
    assert_eq!(tuned.better(), None);
}

#[test]
fn failed_settings_are_told_and_a_default_without_a_speed_is_no_result() {
    let cells: Vec<Cell> = ["fs0", "fs1", "fs2"].map(cell).to_vec();
    let failed = |cell: &Cell| {
        let mut record = record_of(cell, 0, 100);
        record.complete = false;
        record.workload[FIELD]["failed"] = "no space left".into();
        record
    };
    let mut race = Race::new(cells.clone(), cells[0].clone(), None);
    let records: Vec<RunRecord> = cells.iter().map(failed).collect();
    race.after_round(1, &records);
    assert_eq!(failure_of(&cells[0], &records).unwrap(), "no space left");
    let mut one = records.clone();
    one[0] = record_of(&cells[0], 0, 100);
    assert_eq!(failure_of(&cells[0], &one), None);
    assert_eq!(failure_of(&cells[0], &[]), None);
    let tuned = race.tuned(&one);
    assert_eq!(tuned.failed.len(), 2);
    let (text, _) = plan(&wish("")).unwrap();
    let plan = Plan::parse("p", &text).unwrap();
    let told = advice::text(&plan, &tuned);
    assert!(
        told.contains("2 settings failed, and nothing is known about them: fs=fs1, fs=fs2\n  no space left"),
        "{told}"
    );
    assert_eq!(
        advice::json(&plan, &tuned)["failed"][1]["reason"],
        "no space left"
    );
}

#[test]
fn the_default_is_kept_if_nothing_is_faster() {
    let (tuned, records) = run(8, |number, _| 100 - u64::try_from(number).unwrap());
    assert_eq!((tuned.winner, tuned.gain), (None, None));
    assert!(
        records.iter().all(|record| record.round < 8),
        "there is nothing to confirm"
    );
}

#[test]
fn settings_that_are_alike_are_halved_until_a_winner_is_picked() {
    for count in [2, 4, 5, 6, 9, 100, 513] {
        let alike = |number: usize, round: u32| 100 + (u64::try_from(number).unwrap() + u64::from(round)) % 3;
        let (tuned, records) = run(count, alike);
        let last = records.iter().map(|record| record.round).max().unwrap();
        assert!(last < ROUNDS_MAX - 1, "{count}: the race did not end");
        assert!(
            tuned.winner.is_none() || tuned.gain.unwrap().count == 9,
            "{count}: {tuned:?}"
        );
        assert_eq!(tuned.better(), None, "{count}");
    }
}

#[test]
fn settings_that_fail_leave_the_race() {
    let cells = [cell("a"), cell("b"), cell("c")];
    let mut race = Race::new(cells.clone(), cells[0].clone(), None);
    let mut records = Vec::new();
    for round in 0..2 {
        records.extend([record_of(&cells[0], round, 100), record_of(&cells[1], round, 110)]);
        let mut failed = record_of(&cells[2], round, 999);
        failed.workload[FIELD]["failed"] = "no such scheduler".into();
        records.push(failed);
        race.after_round(round + 1, &records);
    }
    assert!(race.runs(&cells[1]) && !race.runs(&cells[2]));
}

#[test]
fn a_race_without_time_goes_straight_to_its_confirming_rounds() {
    let cells = [cell("a"), cell("b")];
    let mut race = Race::new(cells.clone(), cells[0].clone(), Some(Duration::ZERO));
    let records = [record_of(&cells[0], 0, 100), record_of(&cells[1], 0, 150)];
    assert!(race.after_round(1, &records).1);
    assert!(!race.after_round(2, &records).1, "no round begins after the time");
    let tuned = race.tuned(&records);
    assert_eq!(tuned.winner, Some(cells[1].clone()));
    assert_eq!(tuned.better(), None, "nothing was confirmed");
}

#[test]
fn a_workload_that_moves_no_data_is_recognised() {
    let base = cell("a");
    assert!(has_no_speed(&base, &[record_of(&base, 0, 0)]));
    assert!(!has_no_speed(&base, &[record_of(&base, 0, 1)]));
    assert!(!has_no_speed(&base, &[]));
}

fn wish(own: &str) -> Wish {
    Wish {
        source: Some(Source::Plan("load.toml".to_owned(), own.to_owned())),
        environment: Some("[environment]\ndevice = \"directory:/tmp\"\n".to_owned()),
        in_folder: true,
        ..Wish::default()
    }
}

#[test]
fn a_race_is_a_plan() {
    let (text, remarks) = plan(&wish("[workload]\nsize = \"1m\"\n")).unwrap();
    let plan_of_race = Plan::parse("p", &text).unwrap();
    // The default, and three units with three buffers with two states of the writeback cache.
    assert_eq!(
        crate::cell::blocks(&plan_of_race).unwrap()[0].cells.len(),
        1 + 3 * 3 * 2
    );
    assert_eq!(remarks, Vec::<String>::new());
    let durable = Wish {
        durable: true,
        axes: vec!["buffer".to_owned(), "writeback".to_owned(), "unit".to_owned()],
        keep: vec!["unit".to_owned()],
        ..wish("")
    };
    let (text, remarks) = plan(&durable).unwrap();
    let plan_of_race = Plan::parse("p", &text).unwrap();
    assert_eq!(crate::cell::blocks(&plan_of_race).unwrap()[0].cells.len(), 2);
    assert!(remarks.contains(
        &"left out: buffer buffer-8m: data that was written and not synced is lost if the daemon is killed".to_owned()
    ));
}

#[test]
fn a_race_that_can_not_be_run_is_refused() {
    let refused = |wish: &Wish| format!("{:#}", plan(wish).expect_err("it must be refused"));
    let axes = |name: &str| Wish {
        axes: vec![name.to_owned()],
        ..wish("")
    };
    assert!(refused(&axes("sheduler")).contains("did you mean `scheduler`?"));
    assert!(refused(&axes("fs")).contains("a folder keeps its file system"));
    assert!(refused(&wish("[[step]]\nkind = \"file\"\n")).contains("axes are named by --axes"));
    assert!(refused(&wish("8,0 1 1 0.0")).contains("a job file or a trace"));
    assert!(refused(&wish("[environment]\ndevice = \"image\"\n")).contains("name no device beside it"));
    let nowhere = Wish {
        environment: None,
        ..wish("")
    };
    assert!(refused(&nowhere).contains("no device: give --card"));
}
