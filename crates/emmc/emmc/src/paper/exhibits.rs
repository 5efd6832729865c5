//! Rows of the tables and figures, the paper's numbers beside ours.

use serde::Serialize;

use super::loads::Wear;
use super::measured::{
    APP_INSTALL, FULL, GOOGLE_DRIVE, KERNEL_3_0, Measured, both_mb_per_s, mb_per_s, share_of_packs,
};
use super::other_sources::{DFTL, GALAXY_S3, TRACER, XIANG};
use crate::outcome::{Halts, Outcome};
use crate::packing::Stop;

/// A table or figure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Exhibit {
    /// `table 1` and so on.
    pub name: &'static str,
    /// Title.
    pub title: &'static str,
    /// Column headings, with units.
    pub columns: Vec<String>,
    /// Rows; the first cell is the row's name.
    pub rows: Vec<Vec<String>>,
}

/// Names of all tables and figures.
pub const EXHIBITS: [&str; 17] = [
    "table 1",
    "table 2",
    "table 3",
    "figure 7",
    "figure 8",
    "figure 10",
    "figure 11",
    "figure 12",
    "figure 13",
    "figure 14",
    "figure 15",
    "Linux 3.9",
    "Linux 4.16",
    TRACER,
    GALAXY_S3,
    DFTL,
    XIANG,
];

/// The tables and figures that were measured, all or only this one. Linux 3.9 and the
/// other sources after Linux 4.16 have claims, and no table of their own.
#[must_use]
pub fn exhibits(measured: &Measured, only: Option<&str>) -> Vec<Exhibit> {
    let wanted = EXHIBITS
        .into_iter()
        .filter(|name| only.is_none_or(|only| only == *name));
    wanted.filter_map(|name| drawn(name, measured)).collect()
}

fn drawn(name: &str, measured: &Measured) -> Option<Exhibit> {
    Some(match name {
        "table 1" => table_1(measured),
        "table 2" => table_2(measured),
        "table 3" => table_3(measured),
        "figure 7" => figure_7(measured),
        "figure 8" => figure_8(measured),
        "figure 10" => figure_10(measured),
        "figure 11" => sizes(
            "figure 11",
            "attempts by requests gathered (tio_seq)",
            &KERNEL_3_0.map(|kind| (kind.word(), &measured.sequential[kind.word()])),
        ),
        "figure 12" => figure_12(measured),
        "figure 13" => figure_13(measured),
        "figure 14" => sizes(
            "figure 14",
            "attempts by requests gathered, real loads",
            &[
                (GOOGLE_DRIVE, &measured.real[GOOGLE_DRIVE]),
                (APP_INSTALL, &measured.real[APP_INSTALL]),
            ],
        ),
        "figure 15" => figure_15(measured),
        "Linux 4.16" => queue(measured),
        _ => return None,
    })
}

fn exhibit(name: &'static str, title: &'static str, columns: &[&str], rows: Vec<Vec<String>>) -> Exhibit {
    Exhibit {
        name,
        title,
        columns: columns.iter().map(|column| (*column).to_owned()).collect(),
        rows,
    }
}

fn shown(value: Option<f64>) -> String {
    value.map_or_else(|| "n/a".to_owned(), |value| format!("{value:.1}"))
}

fn texts(cells: &[&str]) -> Vec<String> {
    cells.iter().map(|cell| (*cell).to_owned()).collect()
}

/// Reasons in the paper's columns: NOREQ, RAND, SYNC, REL, READ, fully packed.
fn reasons(halts: &Halts) -> [u64; 6] {
    let of = |stop: Stop| halts[stop.place()];
    [
        of(Stop::NoRequest),
        of(Stop::Random),
        of(Stop::Sync),
        of(Stop::Reliable),
        of(Stop::Read),
        FULL.iter().map(|stop| of(*stop)).sum(),
    ]
}

fn row(name: &str, counts: &[u64]) -> Vec<String> {
    std::iter::once(name.to_owned())
        .chain(counts.iter().map(u64::to_string))
        .collect()
}

fn counted(name: &str, halts: &Halts) -> Vec<String> {
    let counts = reasons(halts);
    row(name, &[&counts[..], &[counts.iter().sum()]].concat())
}

fn table_1(measured: &Measured) -> Exhibit {
    let driver = &measured.sequential["cfq"].driver;
    exhibit(
        "table 1",
        "reason of halt on packing sequential writes (tio_seq, cfq)",
        &[
            "counted",
            "NOREQ",
            "RAND",
            "SYNC",
            "REL",
            "READ",
            "fully packed",
            "packs",
        ],
        vec![
            row("paper", &[203, 58, 2, 0, 0, 4, 267]),
            counted("ours, packs of 2 and more", &driver.halts_of_packs),
            counted("ours, attempts", &driver.halts_of_attempts),
        ],
    )
}

fn table_2(measured: &Measured) -> Exhibit {
    let paper = [["203", "58", "2"], ["7", "48", "3"], ["19", "77", "0"]];
    let rows = KERNEL_3_0.iter().zip(paper).flat_map(|(kind, paper)| {
        let driver = &measured.sequential[kind.word()].driver;
        let ours = |what: &str, halts: &Halts| {
            let [no_request, random, sync, .., full] = reasons(halts);
            row(
                &format!("{}, {what}", kind.word()),
                &[no_request, random, sync, full],
            )
        };
        let mut of_paper = texts(&paper);
        of_paper.insert(0, format!("{}, paper", kind.word()));
        of_paper.push("n/a".to_owned());
        [
            of_paper,
            ours("packs of 2 and more", &driver.halts_of_packs),
            ours("attempts", &driver.halts_of_attempts),
        ]
    });
    exhibit(
        "table 2",
        "reason of halt by scheduler (tio_seq); claims count packs of 2 and more",
        &["scheduler, counted", "NOREQ", "RAND", "SYNC", "fully packed"],
        rows.collect(),
    )
}

fn table_3(measured: &Measured) -> Exhibit {
    let (drive, install) = (&measured.real[GOOGLE_DRIVE], &measured.real[APP_INSTALL]);
    let row = |name: &str, value: &dyn Fn(&Outcome) -> String, paper: [&str; 2]| {
        texts(&[name, &value(drive), &value(install), paper[0], paper[1]])
    };
    exhibit(
        "table 3",
        "packed commands with real loads",
        &[
            "",
            "GoogleDrive",
            "AppInstall",
            "paper: GoogleDrive",
            "AppInstall",
        ],
        vec![
            row(
                "written GB",
                &|outcome| format!("{:.2}", results::nearest_f64(outcome.writes.bytes) / 1e9),
                ["0.7", "3.1"],
            ),
            row(
                "requests",
                &|outcome| outcome.writes.requests.to_string(),
                ["9912", "10126"],
            ),
            row(
                "MB/s",
                &|outcome| shown(outcome.write_mb_per_s()),
                ["24.146", "36.179"],
            ),
            row(
                "packed %",
                &|outcome| shown(outcome.driver.packed_percent()),
                ["69.66", "94.47"],
            ),
        ],
    )
}

fn figure_7(measured: &Measured) -> Exhibit {
    let rows = measured.by_size.iter().map(|(bytes, outcome)| {
        vec![
            if *bytes < 1024 {
                "0.5".to_owned()
            } else {
                (bytes >> 10).to_string()
            },
            format!("{:.2}", mb_per_s(outcome)),
            outcome.nand.backups.to_string(),
            outcome.nand.programs.to_string(),
        ]
    });
    exhibit(
        "figure 7",
        "write bandwidth by size of write (aligned, random, one at a time)",
        &["size KiB", "MB/s", "LSB backups", "programs"],
        rows.collect(),
    )
}

fn figure_8(measured: &Measured) -> Exhibit {
    let rows = measured.by_pack.iter().map(|(most, outcome)| {
        vec![
            most.to_string(),
            format!("{:.1}", mb_per_s(outcome)),
            shown(outcome.device_mb_per_s()),
            shown(outcome.full_pack_mb_per_s()),
            shown((outcome.driver.packs > 0).then(|| share_of_packs(outcome, &FULL) * 100.0)),
            shown(outcome.driver.mean_pack()),
        ]
    });
    exhibit(
        "figure 8",
        "bandwidth and share of full packs by most requests of a pack (tio_seq, cfq)",
        &[
            "most requests",
            "benchmark MB/s",
            "device MB/s",
            "full packs MB/s",
            "full packs %",
            "mean pack",
        ],
        rows.collect(),
    )
}

fn figure_10(measured: &Measured) -> Exhibit {
    let rows = KERNEL_3_0.iter().map(|kind| {
        let outcome = &measured.sequential[kind.word()];
        vec![
            kind.word().to_owned(),
            format!("{:.1}", mb_per_s(outcome)),
            shown(outcome.device_mb_per_s()),
            shown(outcome.driver.mean_pack()),
        ]
    });
    exhibit(
        "figure 10",
        "bandwidth by scheduler (tio_seq)",
        &["scheduler", "benchmark MB/s", "device MB/s", "mean pack"],
        rows.collect(),
    )
}

fn sizes(name: &'static str, title: &'static str, outcomes: &[(&str, &Outcome)]) -> Exhibit {
    let longest = outcomes
        .iter()
        .map(|(_, outcome)| outcome.driver.pack_sizes.len())
        .max();
    let rows = (1..longest.unwrap_or_default()).map(|size| {
        let counts = outcomes
            .iter()
            .map(|(_, outcome)| outcome.driver.pack_sizes.get(size).copied().unwrap_or_default());
        row(&size.to_string(), &counts.collect::<Vec<_>>())
    });
    let rows = rows.collect();
    let labels: Vec<&str> = outcomes.iter().map(|(label, _)| *label).collect();
    exhibit(
        name,
        title,
        &[&["requests of a pack"], &labels[..]].concat(),
        rows,
    )
}

fn figure_12(measured: &Measured) -> Exhibit {
    let new = measured.random.iter().filter(|((wear, _), _)| *wear == Wear::New);
    let rows = new.map(|((_, most), outcome)| {
        let used = &measured.random[&(Wear::Used, *most)];
        vec![
            most.to_string(),
            format!("{:.2}", mb_per_s(outcome)),
            shown(outcome.driver.mean_pack()),
            outcome.driver.interrupts.to_string(),
            format!("{:.2}", mb_per_s(used)),
            shown(used.driver.mean_pack()),
            format!(
                "{:.2}",
                used.translation.write_amplification().unwrap_or_default()
            ),
        ]
    });
    exhibit(
        "figure 12",
        "bandwidth by most requests of a pack, random writes packed too (tio_rand, cfq), on a new and on a used card",
        &[
            "most requests",
            "new: MB/s",
            "mean pack",
            "interrupts",
            "used: MB/s",
            "mean pack",
            "write amplification",
        ],
        rows.collect(),
    )
}

fn figure_13(measured: &Measured) -> Exhibit {
    let percent = |wear, size| shown(measured.random[&(wear, 62)].driver.packs_up_to_percent(size));
    let rows = [2, 4, 7, 8, 16, 32, 48, 61, 62].map(|size| {
        vec![
            size.to_string(),
            percent(Wear::New, size),
            percent(Wear::Used, size),
        ]
    });
    exhibit(
        "figure 13",
        "packs with at most so many requests (tio_rand, at most 62)",
        &["requests", "new card: packs %", "used card: packs %"],
        rows.to_vec(),
    )
}

fn figure_15(measured: &Measured) -> Exhibit {
    let rows = measured.flex.iter().map(|(groups, (hybrid, page_map))| {
        vec![
            groups.to_string(),
            format!("{:.2}", mb_per_s(hybrid)),
            hybrid.translation.collections.to_string(),
            format!("{:.2}", mb_per_s(page_map)),
            page_map.translation.collections.to_string(),
        ]
    });
    exhibit(
        "figure 15",
        "bandwidth by block groups of a flex group (postmark) on used cards",
        &[
            "block groups",
            "hybrid (gt-i9100) MB/s",
            "merges",
            "page map (Pandaboard) MB/s",
            "collections",
        ],
        rows.collect(),
    )
}

fn queue(measured: &Measured) -> Exhibit {
    let rows = measured.queued.iter().map(|(load, (one, queue))| {
        vec![
            (*load).to_owned(),
            format!("{:.2}", both_mb_per_s(one)),
            format!("{:.2}", both_mb_per_s(queue)),
        ]
    });
    exhibit(
        "Linux 4.16",
        "command queue of eMMC 5.1 (the phone's flash behind cqhci-hs400, 32 requests outstanding)",
        &["load", "one command at a time MB/s", "32 tasks MB/s"],
        rows.collect(),
    )
}
