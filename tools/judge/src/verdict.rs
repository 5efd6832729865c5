//! Verdict on a cell: agreement, a difference with a measured reason, or an unexplained difference.

use std::fmt::Write as _;

use results::{Estimate, RoundValue, paired_ratio};

use crate::journal::Journal;

/// Names of the sides.
pub mod side {
    /// The program under test.
    pub const OURS: &str = "ours";
    /// The program under test again: the difference between the two is noise.
    pub const CONTROL: &str = "ours-again";
    /// An older build of the program under test.
    pub const OLD: &str = "old";
    /// fio.
    pub const FIO: &str = "fio";
    /// The plain C loop.
    pub const C: &str = "c";
    /// The C loop with clock and histogram.
    pub const C_TIMED: &str = "c-timed";
    /// The original Mobibench.
    pub const MOBIBENCH: &str = "mobibench";
}

/// If the interval is wider than this fraction of its median, containing 1 proves nothing.
const WIDE: f64 = 0.30;

/// Requirement of a suite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// The median ratio is within this distance of 1, or a narrow interval contains 1.
    Within(f64),
    /// The median ratio has at least this value.
    AtLeast(f64),
}

/// Outcome of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The rule is fulfilled.
    Agrees,
    /// The rule is not fulfilled, for a measured reason.
    Explained,
    /// The interval contains 1 but is too wide for a verdict.
    Wide,
    /// The rule is not fulfilled, for no known reason.
    Differs,
    /// Too few measurements for a verdict.
    Unknown,
}

impl Outcome {
    const fn word(self) -> &'static str {
        match self {
            Self::Agrees => "agrees",
            Self::Explained => "explained",
            Self::Wide => "too wide to tell",
            Self::Differs => "DIFFERS",
            Self::Unknown => "unknown",
        }
    }
}

/// One row of the result table.
#[derive(Clone, Debug)]
pub struct Row {
    /// Name of the cell.
    pub cell: String,
    /// Median operations per second of tidegate.
    pub ours_per_s: Option<f64>,
    /// Ratio of tidegate to the peer.
    pub ratio: Option<Estimate>,
    /// Ratio of tidegate to the plain C loop, if that is not the peer.
    pub over_c: Option<Estimate>,
    /// Ratio of tidegate to its own second run.
    pub control: Option<Estimate>,
    /// Outcome of the cell.
    pub outcome: Outcome,
    /// Reason for an outcome other than agreement.
    pub reason: String,
}

/// The verdict on a cell, compared with `peer`. The C loop and the control may explain a difference.
pub fn row(journal: &Journal, cell: &str, peer: &str, rule: Rule) -> Row {
    let ours = journal.rates(cell, side::OURS);
    let over = |ours: &[RoundValue], other: &str| {
        let paired = paired_ratio(&journal.rates(cell, other), ours)?;
        Estimate::of_paired_ratio(&paired)
    };
    // fio counts the longest thread from that thread's own start: against fio, tidegate and C are counted the same
    // way.
    let as_peer = |name: &str| match peer {
        side::FIO => journal.rates_by_thread(cell, name),
        _ => journal.rates(cell, name),
    };
    let ratio = over(&as_peer(side::OURS), peer);
    let over_c = if peer == side::C {
        None
    } else {
        over(&ours, side::C)
    };
    let control = over(&ours, side::CONTROL);
    let (outcome, mut reason) = match ratio {
        None => (Outcome::Unknown, "not measured".to_owned()),
        Some(ratio) => decide(&ratio, over_c.as_ref(), control.as_ref(), peer, rule),
    };
    if outcome == Outcome::Explained
        && let Some(c_over_peer) = over(&as_peer(side::C), peer)
    {
        let _ = write!(reason, "; plain C is {} of {peer}", shown(&c_over_peer));
    }
    let rates: Vec<f64> = ours.iter().map(|round| round.value).collect();
    Row {
        cell: cell.to_owned(),
        ours_per_s: results::median(&rates),
        ratio,
        over_c,
        control,
        outcome,
        reason,
    }
}

/// The C loop explains a difference if tidegate is as fast as C: then the peer itself is the cause. Noise explains it
/// if tidegate differs from its own second run by as much.
fn decide(
    ratio: &Estimate,
    over_c: Option<&Estimate>,
    control: Option<&Estimate>,
    peer: &str,
    rule: Rule,
) -> (Outcome, String) {
    if fulfils(ratio, rule) {
        return (Outcome::Agrees, String::new());
    }
    if holds_one(ratio) && matches!(rule, Rule::Within(_)) {
        let reason = control.map_or_else(String::new, |control| {
            format!("ours against ours is {}", shown(control))
        });
        return (Outcome::Wide, reason);
    }
    if let Rule::AtLeast(least) = rule {
        return (Outcome::Differs, format!("below {least}"));
    }
    if let Some(over_c) = over_c
        && fulfils(over_c, rule)
    {
        let reason = format!("{peer}'s own: ours is {} of plain C", shown(over_c));
        return (Outcome::Explained, reason);
    }
    if let Some(control) = control {
        let away = (ratio.value - 1.0).abs();
        if (control.value - 1.0).abs() >= away || control.low <= 1.0 - away || control.high >= 1.0 + away {
            let reason = format!("noise: ours against ours is {}", shown(control));
            return (Outcome::Explained, reason);
        }
    }
    (Outcome::Differs, "no reason found".to_owned())
}

fn fulfils(ratio: &Estimate, rule: Rule) -> bool {
    match rule {
        Rule::Within(tolerance) => {
            (ratio.value - 1.0).abs() <= tolerance || (holds_one(ratio) && is_narrow(ratio))
        }
        Rule::AtLeast(least) => ratio.value >= least,
    }
}

fn holds_one(ratio: &Estimate) -> bool {
    ratio.count > 1 && ratio.low <= 1.0 && ratio.high >= 1.0
}

/// Formats as `1.02 [0.98, 1.07]`.
pub fn shown(estimate: &Estimate) -> String {
    format!(
        "{:.2} [{:.2}, {:.2}]",
        estimate.value, estimate.low, estimate.high
    )
}

impl Row {
    /// One line for people.
    pub fn line(&self) -> String {
        let ratio = self.ratio.as_ref().map_or_else(|| "-".to_owned(), shown);
        let gap = if self.reason.is_empty() { "" } else { ": " };
        format!(
            "{}: {ratio} {}{gap}{}",
            self.cell,
            self.outcome.word(),
            self.reason
        )
    }
}

/// A Markdown table with heading and count; empty if there are no rows.
pub fn table(heading: &str, peer: &str, rows: &[Row]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let with_c = rows.iter().any(|row| row.over_c.is_some());
    let c_column = if with_c { " ours/C |" } else { "" };
    let mut text = format!("## {heading}\n\n{}\n\n", counts(rows));
    let _ = writeln!(
        text,
        "| what | ours /s | ours/{peer} |{c_column} ours/ours | rounds | |"
    );
    let _ = writeln!(
        text,
        "|---|---|---|{}---|---|---|",
        if with_c { "---|" } else { "" }
    );
    let estimate = |value: &Option<Estimate>| value.as_ref().map_or_else(String::new, shown);
    for row in rows {
        let gap = if row.reason.is_empty() { "" } else { ": " };
        let over_c = if with_c {
            format!(" {} |", estimate(&row.over_c))
        } else {
            String::new()
        };
        let _ = writeln!(
            text,
            "| {} | {} | {} |{over_c} {} | {} | {}{gap}{} |",
            row.cell,
            row.ours_per_s
                .map_or_else(String::new, |rate| format!("{rate:.0}")),
            estimate(&row.ratio),
            estimate(&row.control),
            row.ratio.map_or(0, |ratio| ratio.count),
            row.outcome.word(),
            row.reason,
        );
    }
    text.push('\n');
    text
}

fn counts(rows: &[Row]) -> String {
    let counted = |outcome| rows.iter().filter(|row| row.outcome == outcome).count();
    let is_wide =
        |row: &&Row| row.outcome == Outcome::Agrees && row.ratio.is_some_and(|ratio| !is_narrow(&ratio));
    format!(
        "{} of {} agree ({} of them by their median, with an interval wider than {WIDE}), {} differ with a measured \
         reason, {} are too wide to tell, {} differ without a reason, {} unknown.",
        counted(Outcome::Agrees),
        rows.len(),
        rows.iter().filter(is_wide).count(),
        counted(Outcome::Explained),
        counted(Outcome::Wide),
        counted(Outcome::Differs),
        counted(Outcome::Unknown),
    )
}

fn is_narrow(ratio: &Estimate) -> bool {
    ratio.relative_width().is_some_and(|width| width <= WIDE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Speed;

    /// A journal in which each side takes the given microseconds, one value per round.
    fn journal(sides: &[(&str, [u64; 6])]) -> Journal {
        let mut journal = Journal::open("fio", None).unwrap();
        for (side, times) in sides {
            for (round, time) in (0..).zip(times) {
                let speed = Speed {
                    longest_ns: Some(time * 1000),
                    ..Speed::new(1000, time * 1000)
                };
                journal.add_round("cell", round, 1, &[(side, speed)]).unwrap();
            }
        }
        journal
    }

    fn verdict(sides: &[(&str, [u64; 6])], rule: Rule) -> Row {
        row(&journal(sides), "cell", side::FIO, rule)
    }

    const STEADY: [u64; 6] = [100, 101, 99, 100, 101, 99];

    #[test]
    fn a_ratio_near_one_or_with_one_in_its_interval_agrees() {
        let near = verdict(&[(side::OURS, STEADY), (side::FIO, [103; 6])], Rule::Within(0.05));
        assert_eq!(near.outcome, Outcome::Agrees);
        let around = [96, 98, 107, 108, 110, 112];
        let around = verdict(&[(side::OURS, STEADY), (side::FIO, around)], Rule::Within(0.05));
        assert_eq!(around.outcome, Outcome::Agrees, "{around:?}");
    }

    #[test]
    fn an_interval_that_holds_one_by_being_wide_tells_nothing() {
        let wide = [60, 70, 85, 90, 110, 120];
        let wide = verdict(&[(side::OURS, STEADY), (side::FIO, wide)], Rule::Within(0.05));
        assert_eq!(wide.outcome, Outcome::Wide, "{wide:?}");
    }

    #[test]
    fn a_difference_is_the_peers_own_when_plain_c_is_as_fast_as_ours() {
        let sides = [(side::OURS, STEADY), (side::FIO, [130; 6]), (side::C, [101; 6])];
        let row = verdict(&sides, Rule::Within(0.05));
        assert_eq!(row.outcome, Outcome::Explained);
        assert!(
            row.reason.starts_with("fio's own: ours is 1.01"),
            "{}",
            row.reason
        );
    }

    #[test]
    fn a_difference_that_ours_shows_against_itself_is_noise() {
        let control = [60, 140, 60, 140, 60, 140];
        let sides = [
            (side::OURS, STEADY),
            (side::FIO, [120; 6]),
            (side::CONTROL, control),
        ];
        let row = verdict(&sides, Rule::Within(0.05));
        assert_eq!(row.outcome, Outcome::Explained);
        assert!(row.reason.starts_with("noise"), "{}", row.reason);
    }

    #[test]
    fn a_difference_that_neither_explains_is_one() {
        let sides = [
            (side::OURS, STEADY),
            (side::FIO, [80; 6]),
            (side::C, [82; 6]),
            (side::CONTROL, [100; 6]),
        ];
        let row = verdict(&sides, Rule::Within(0.05));
        assert_eq!(row.outcome, Outcome::Differs);
        assert_eq!(
            verdict(&[(side::OURS, STEADY)], Rule::Within(0.05)).outcome,
            Outcome::Unknown
        );
    }

    #[test]
    fn ours_is_counted_by_thread_as_fio_counts() {
        let mut journal = journal(&[(side::FIO, [100; 6])]);
        for round in 0..6 {
            let late = Speed {
                longest_ns: Some(100_000),
                ..Speed::new(1000, 150_000)
            };
            journal
                .add_round("cell", round, 1, &[(side::OURS, late)])
                .unwrap();
        }
        assert_eq!(
            row(&journal, "cell", side::FIO, Rule::Within(0.05)).outcome,
            Outcome::Agrees
        );
    }

    #[test]
    fn a_floor_has_no_excuse() {
        let sides = [(side::OURS, STEADY), (side::FIO, [90; 6]), (side::C, [100; 6])];
        assert_eq!(verdict(&sides, Rule::AtLeast(0.95)).outcome, Outcome::Differs);
        assert_eq!(verdict(&sides, Rule::AtLeast(0.85)).outcome, Outcome::Agrees);
    }

    #[test]
    fn the_table_counts_and_shows_the_reason() {
        let row = verdict(&[(side::OURS, STEADY), (side::FIO, [80; 6])], Rule::Within(0.05));
        let text = table("fio", side::FIO, &[row]);
        assert!(text.contains("0 of 1 agree (0 of them by"), "{text}");
        assert!(
            text.contains("0 are too wide to tell, 1 differ without a reason"),
            "{text}"
        );
        assert!(
            text.contains("| cell | 10000000 | 0.80 [0.79, 0.81] |  | 6 | DIFFERS"),
            "{text}"
        );
        assert_eq!(table("fio", side::FIO, &[]), "");
    }
}
