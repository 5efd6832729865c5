//! Decisions on made-up records.

use super::*;
use crate::folder::FIELD;
use crate::measure::record_of;
use crate::plan::{Device, Plan, Variant};

const RULE: Rule = Rule {
    min_ratio: 0.97,
    looks: 1,
};

fn plan(units: usize) -> Plan {
    let units: Vec<String> = (1..=units).map(|unit| format!("\"{}k\"", unit * 4)).collect();
    let text = format!(
        "name = \"made up\"\n[environment]\ndevice = \"directory:/tmp\"\n[axes]\nmount.io-unit = [{}]",
        units.join(", ")
    );
    Plan::parse("p.toml", &text).unwrap()
}

fn of_two(units: usize) -> Plan {
    let mut plan = plan(units);
    plan.apply(&Variant {
        binaries: ["A", "B"].map(|name| (name.to_owned(), name.into())).to_vec(),
        ..Variant::default()
    });
    plan
}

fn state(plan: &Plan) -> State {
    State {
        method: crate::folder::METHOD,
        device: String::new(),
        tool_version: "1".to_owned(),
        kernel: "Linux 6".to_owned(),
        time_scale: 1.0,
        calibrated: None,
        rounds: plan.run.rounds,
        size: None,
        only: Vec::new(),
        binaries: plan.binaries.clone(),
        fingerprints: Vec::new(),
        decided: None,
        is_race: false,
    }
}

fn cells(plan: &Plan) -> Vec<Cell> {
    let blocks = crate::cell::blocks(plan).unwrap();
    blocks.into_iter().flat_map(|block| block.cells).collect()
}

/// Records of each cell with the speeds of its rounds.
fn records(plan: &Plan, speeds: impl Fn(&Cell) -> Vec<u32>) -> Vec<RunRecord> {
    let all = cells(plan).into_iter().flat_map(|cell| {
        let rounds = (0..).zip(speeds(&cell));
        rounds
            .map(|(round, speed)| record_of(&cell, round, u64::from(speed)))
            .collect::<Vec<_>>()
    });
    all.collect()
}

/// The verdicts on program B if A always runs at 100 MB/s.
fn verdicts(units: usize, speeds: impl Fn(usize) -> Vec<u32>, rule: Rule) -> (Vec<Verdict>, Outcome) {
    let plan = of_two(units);
    let unit = |cell: &Cell| cells(&plan).iter().position(|other| other == cell).unwrap() / 2;
    let records = records(&plan, |cell| match cell.value(BINARY) {
        "A" => vec![100; 64],
        _ => speeds(unit(cell)),
    });
    let gate = of_binaries(&plan, &records, rule).unwrap();
    (
        gate.cells.iter().map(|cell| cell.verdict).collect(),
        gate.outcome(),
    )
}

fn one(speeds: &[u32]) -> (Verdict, Outcome) {
    let (verdicts, outcome) = verdicts(1, |_| speeds.to_vec(), RULE);
    (verdicts[0], outcome)
}

#[test]
fn a_cell_is_judged_by_its_whole_interval() {
    assert_eq!(
        one(&[99, 100, 101, 98, 100, 97]),
        (Verdict::Fine, Outcome::Passed),
        "the bound itself is accepted"
    );
    assert_eq!(one(&[90, 91, 92, 93, 94, 96]), (Verdict::Worse, Outcome::Failed));
    assert_eq!(
        one(&[90, 92, 94, 96, 98, 100]),
        (Verdict::Undecided, Outcome::Undecided)
    );
    assert_eq!(
        one(&[50, 50, 50, 50]),
        (Verdict::TooFewRounds, Outcome::Undecided)
    );
    assert_eq!(one(&[]), (Verdict::NotMeasured, Outcome::Undecided));
    // A round without a speed is never a pass.
    assert_eq!(
        one(&[100, 100, 100, 100, 100, 100, 0]),
        (Verdict::NotMeasured, Outcome::Undecided)
    );
}

#[test]
fn one_worse_cell_fails_and_one_undecided_cell_keeps_from_passing() {
    let mixed = |unit| match unit {
        0 => vec![100; 8],
        1 => vec![90, 91, 92, 93, 97, 98, 99, 100],
        _ => vec![50; 8],
    };
    let (found, outcome) = verdicts(3, mixed, RULE);
    assert_eq!(found, [Verdict::Fine, Verdict::Undecided, Verdict::Worse]);
    assert_eq!(outcome, Outcome::Failed);
    let (found, outcome) = verdicts(2, mixed, RULE);
    assert_eq!(found, [Verdict::Fine, Verdict::Undecided]);
    assert_eq!(outcome, Outcome::Undecided);
}

#[test]
fn many_cells_need_more_rounds_for_a_worse_one() {
    // Five rounds below the bound: 1 in 32 by chance, too much for one of ten cells.
    let low = |unit| if unit == 0 { vec![50; 5] } else { vec![100; 5] };
    assert_eq!(verdicts(1, low, RULE).0, [Verdict::Worse]);
    let (found, outcome) = verdicts(10, low, RULE);
    assert_eq!(found[0], Verdict::Undecided);
    assert_eq!(outcome, Outcome::Undecided);
    // Nine rounds are enough for the first of ten; eight would be for the ninth, once the first is known.
    let low = |unit| if unit == 0 { vec![50; 9] } else { vec![100; 9] };
    assert_eq!(verdicts(10, low, RULE).0[0], Verdict::Worse);
}

#[test]
fn several_looks_share_the_error() {
    let early = Rule { looks: LOOKS, ..RULE };
    let speeds = |_| vec![50; 5];
    assert_eq!(verdicts(1, speeds, RULE).0, [Verdict::Worse]);
    assert_eq!(verdicts(1, speeds, early).0, [Verdict::TooFewRounds]);
    let plan = of_two(1);
    let records = records(&plan, |cell| {
        vec![if cell.value(BINARY) == "A" { 100 } else { 50 }; 8]
    });
    assert!(early.is_decided(&plan, &records, 8, 64));
    assert!(
        !early.is_decided(&plan, &records, 9, 64),
        "rounds between two looks decide nothing"
    );
    assert!(!RULE.is_decided(&plan, &records, 8, 64));
}

#[test]
fn two_studies_are_compared_over_all_rounds() {
    let plan = plan(2);
    let state = state(&plan);
    let before = records(&plan, |_| vec![99, 100, 101, 100, 100]);
    let after = records(&plan, |cell| match cell.value("mount.io-unit") {
        "4k" => vec![99, 101, 100, 100, 102],
        _ => vec![80, 81, 82, 80, 81],
    });
    let stored = |name, records| Stored {
        name,
        plan: &plan,
        state: &state,
        records,
    };
    let gate = of_studies(stored("old", &before), stored("new", &after), RULE).unwrap();
    let found: Vec<_> = gate
        .cells
        .iter()
        .map(|cell| (cell.title.as_str(), cell.verdict))
        .collect();
    assert_eq!(
        found,
        [("io-unit=4k", Verdict::Fine), ("io-unit=8k", Verdict::Worse)]
    );
    let few = of_studies(stored("old", &before[..1]), stored("new", &after), RULE).unwrap();
    assert_eq!(few.cells[0].verdict, Verdict::TooFewRounds);
    // A cell of both plans without a record is no cell less: nobody knows whether it is worse.
    assert_eq!(few.cells[1].verdict, Verdict::NotMeasured);
    assert_eq!(few.cells[1].reason, "old has no record of it");
    assert_eq!(few.unshared, 0);
}

#[test]
fn a_study_that_lost_cells_does_not_pass() {
    let plan = plan(2);
    let state = state(&plan);
    let all = records(&plan, |_| vec![100; 6]);
    let half = &all[..6];
    let stored = |records| Stored {
        name: "s",
        plan: &plan,
        state: &state,
        records,
    };
    for (before, after) in [(&all[..], half), (half, &all[..])] {
        let gate = of_studies(stored(before), stored(after), RULE).unwrap();
        assert_eq!(gate.count(Verdict::Fine), 1);
        assert_eq!(gate.outcome(), Outcome::Undecided);
    }
    // A cell that the machine can't measure is left out, and counted.
    let mut left = all.clone();
    for record in &mut left[6..] {
        record.workload[FIELD]["left_out"] = "there is no lab guest".into();
    }
    let gate = of_studies(stored(&all), stored(&left), RULE).unwrap();
    assert_eq!((gate.outcome(), gate.unshared), (Outcome::Passed, 1));
}

#[test]
fn a_study_of_two_machines_is_refused_whichever_round_ran_elsewhere() {
    let plan = plan(1);
    let state = state(&plan);
    let own = records(&plan, |_| vec![100; 6]);
    let refused = |change: &dyn Fn(&mut RunRecord), both: bool| {
        let mut mixed = own.clone();
        change(&mut mixed[3]);
        let before = if both { &mixed } else { &own };
        let [before, after] = [before, &mixed].map(|records| Stored {
            name: "s",
            plan: &plan,
            state: &state,
            records,
        });
        of_studies(before, after, RULE)
            .err()
            .map(|error| format!("{error:#}"))
    };
    let elsewhere = |record: &mut RunRecord| record.host.processor = Some("another".to_owned());
    for both in [false, true] {
        let message = refused(&elsewhere, both).unwrap();
        assert!(
            message.contains("processor: ") && message.contains(" and then "),
            "{message}"
        );
    }
    let message = refused(&|record| record.host.memory_bytes *= 4, false).unwrap();
    assert!(message.contains("memory in bytes: "), "{message}");
    // A cell of the guest has a machine of its own.
    let in_guest = |record: &mut RunRecord| {
        elsewhere(record);
        record.workload[FIELD]["cell"]["machine"] = "guest".into();
    };
    assert_eq!(refused(&in_guest, false), None);
}

#[test]
fn studies_that_can_not_be_compared_are_refused() {
    let (plan, other) = (plan(1), plan(2));
    let own = state(&plan);
    let measured = records(&plan, |_| vec![100; 6]);
    let stored = |plan, state, records| Stored {
        name: "s",
        plan,
        state,
        records,
    };
    let refused = |baseline: Stored<'_>| {
        let result = of_studies(baseline, stored(&plan, &own, &measured), RULE);
        format!("{:#}", result.expect_err("it must be refused"))
    };
    let slow = State {
        time_scale: 9.0,
        kernel: "Linux 5".to_owned(),
        ..own.clone()
    };
    let message = refused(stored(&plan, &slow, &measured));
    assert!(
        message.contains("time scale: 9 before, 1 after; kernel: Linux 5 before"),
        "{message}"
    );
    let earlier = State {
        method: 0,
        ..own.clone()
    };
    let message = refused(stored(&plan, &earlier, &measured));
    assert!(
        message.contains(&format!(
            "method of measuring: 0 before, {} after",
            crate::folder::METHOD
        )),
        "{message}"
    );
    let mut elsewhere = plan.clone();
    elsewhere.environment.device = Device::Card("gt-i9300".to_owned());
    let message = refused(stored(&elsewhere, &own, &measured));
    assert!(
        message.contains("device: card:gt-i9300 before, directory:/tmp after"),
        "{message}"
    );
    let mut foreign = measured.clone();
    for record in &mut foreign {
        record.host.processor = Some("another".to_owned());
    }
    assert!(refused(stored(&plan, &own, &foreign)).contains("processor: another before"));
    let apart = records(&other, |_| vec![100; 6]).split_off(6);
    assert!(refused(stored(&other, &own, &apart)).contains("share no measured cell"));
    let twice = [measured.clone(), measured.clone()].concat();
    assert!(refused(stored(&plan, &own, &twice)).contains("round 0 of the cell `` was measured twice"));
    assert!(refused(stored(&plan, &own, &[])).contains("share no measured cell"));
}

#[test]
fn programs_take_turns_in_going_first() {
    let plan = of_two(3);
    let block = &crate::cell::blocks(&plan).unwrap()[0];
    for round in 0..6 {
        let order = block.order(round);
        assert_eq!(order.len(), 6);
        for pair in order.chunks(2) {
            let names = [pair[0], pair[1]].map(|index| block.cells[index].value(BINARY));
            assert_eq!(names, if round % 2 == 0 { ["A", "B"] } else { ["B", "A"] });
            let cells = [pair[0], pair[1]].map(|index| block.cells[index].without(BINARY));
            assert_eq!(cells[0], cells[1]);
        }
    }
}

#[test]
fn junit_and_markdown_escape_and_count() {
    let plan = of_two(3);
    let mut records = records(&plan, |cell| {
        let is_slow = cell.value(BINARY) == "B" && cell.value("mount.io-unit") == "4k";
        vec![if is_slow { 50 } else { 100 }; 8]
    });
    let last = records.last_mut().unwrap();
    last.workload[FIELD]["failed"] = "it said \"<no>\" | \u{1}".into();
    let gate = of_binaries(&plan, &records, RULE).unwrap();
    let xml = junit(&gate);
    assert!(
        xml.contains("tests=\"3\" failures=\"1\" errors=\"1\" skipped=\"0\""),
        "{xml}"
    );
    assert_eq!(xml.matches("<testcase ").count(), 3);
    assert!(xml.contains("&lt;no&gt;") && !xml.contains('\u{1}'), "{xml}");
    let table = markdown(&gate);
    assert!(
        table.contains("| io-unit=4k | 0.500 [0.500, 0.500] | 8 | worse |"),
        "{table}"
    );
    assert!(table.contains("\\|"), "{table}");
    assert_eq!(json(&gate)["outcome"], "failed");
}
