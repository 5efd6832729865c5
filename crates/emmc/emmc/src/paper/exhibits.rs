//! The rows of each table and figure, and the comparison with the paper's sentences.

mod sequential;

use self::sequential::{figure_7, figure_8, figure_10, figure_11, sizes_exhibit, table_1, table_2};
use super::loads::{self, Mixes, PaperScale};
use super::{Basis, Exhibit, PaperClaim};
use crate::block::SchedulerKind;
use crate::error::CardError;
use crate::outcome::Outcome;
use crate::packing::{PackRules, Stop};

const KERNEL_3_0: [SchedulerKind; 3] = [SchedulerKind::Cfq, SchedulerKind::Deadline, SchedulerKind::Noop];

/// Runs every experiment. Calls `progress` with the name of the next one.
///
/// # Errors
/// If a card of the presets cannot be built.
pub fn exhibits(
    scale: PaperScale,
    mixes: &Mixes,
    mut progress: impl FnMut(&str),
) -> Result<Vec<Exhibit>, CardError> {
    progress("tio_seq by scheduler");
    let by_scheduler = KERNEL_3_0
        .into_iter()
        .map(|scheduler| Ok((scheduler, loads::tio_seq(scale, scheduler, PackRules::PHONE)?)))
        .collect::<Result<Vec<_>, CardError>>()?;
    let mut all = vec![table_1(&by_scheduler[0].1), table_2(&by_scheduler)];
    progress("granularity");
    all.push(figure_7(scale)?);
    progress("tio_seq by pack size");
    all.push(figure_8(scale)?);
    all.push(figure_10(&by_scheduler));
    all.push(figure_11(&by_scheduler));
    progress("tio_rand by pack size");
    all.extend(figures_12_and_13(scale)?);
    progress("real loads");
    all.extend(table_3_and_figure_14(mixes)?);
    progress("flex groups");
    all.push(figure_15(scale)?);
    all.sort_by_key(|exhibit| {
        let (kind, number) = exhibit.name.split_once(' ').unwrap_or_default();
        (kind == "figure", number.parse::<u32>().unwrap_or_default())
    });
    Ok(all)
}

fn exhibit(name: &str, title: &str, columns: &[&str]) -> Exhibit {
    Exhibit {
        name: name.to_owned(),
        title: title.to_owned(),
        columns: columns.iter().map(|column| (*column).to_owned()).collect(),
        rows: Vec::new(),
        claims: Vec::new(),
    }
}

fn claim(paper: &str, ours: String, holds: bool, basis: Basis) -> PaperClaim {
    PaperClaim {
        paper: paper.to_owned(),
        ours,
        holds,
        basis,
    }
}

fn shown(value: Option<f64>) -> String {
    value.map_or_else(|| "n/a".to_owned(), |value| format!("{value:.1}"))
}

fn mb_per_s(outcome: &Outcome) -> f64 {
    outcome.write_mb_per_s().unwrap_or_default()
}

/// Reasons why packs ended, in the paper's columns.
fn reasons(outcome: &Outcome) -> [u64; 6] {
    let halts = |stop| outcome.driver.halts(stop);
    [
        halts(Stop::NoRequest),
        halts(Stop::Random),
        halts(Stop::Sync),
        halts(Stop::Reliable),
        halts(Stop::Read),
        outcome.driver.full_packs(),
    ]
}

fn figures_12_and_13(scale: PaperScale) -> Result<Vec<Exhibit>, CardError> {
    let mut figure = exhibit(
        "figure 12",
        "bandwidth by most requests of a pack, random writes packed too (tio_rand, cfq)",
        &["most requests", "MB/s", "mean pack", "interrupts"],
    );
    let (mut rates, mut largest) = (Vec::new(), None);
    for max_requests in [1, 2, 4, 8, 16, 32, 62] {
        let outcome = loads::tio_rand(scale, max_requests)?;
        figure.rows.push(vec![
            max_requests.to_string(),
            format!("{:.2}", mb_per_s(&outcome)),
            shown(outcome.driver.mean_pack()),
            outcome.driver.interrupts.to_string(),
        ]);
        rates.push(mb_per_s(&outcome));
        largest = Some(outcome);
    }
    figure.claims = vec![
        claim(
            "bandwidth rises until 8",
            format!("{:.2}, {:.2} MB/s at 1 and 8", rates[0], rates[3]),
            rates[3] > rates[0] * 1.05,
            Basis::Validation,
        ),
        claim(
            "62 is clearly worse than 8 (the paper knows no reason)",
            format!("{:.2}, {:.2} MB/s at 8 and 62", rates[3], rates[6]),
            rates[6] < rates[3] * 0.95,
            Basis::Validation,
        ),
    ];
    let mut sizes = exhibit(
        "figure 13",
        "packs with at most so many requests (tio_rand, at most 62)",
        &["requests", "packs %"],
    );
    if let Some(outcome) = &largest {
        for size in [2, 4, 7, 8, 16, 32, 48, 61, 62] {
            sizes.rows.push(vec![
                size.to_string(),
                shown(outcome.driver.packs_up_to_percent(size)),
            ]);
        }
        let below_8 = outcome.driver.packs_up_to_percent(7);
        sizes.claims = vec![claim(
            "about 60 % of the packs have fewer than 8 requests",
            format!("{} %", shown(below_8)),
            below_8.is_some_and(|share| (45.0..=75.0).contains(&share)),
            Basis::Validation,
        )];
    }
    Ok(vec![figure, sizes])
}

fn table_3_and_figure_14(mixes: &Mixes) -> Result<Vec<Exhibit>, CardError> {
    let drive = loads::mix(&mixes.google_drive)?;
    let install = loads::mix(&mixes.app_install)?;
    let mut table = exhibit(
        "table 3",
        "packed commands with real loads",
        &[
            "",
            "GoogleDrive",
            "AppInstall",
            "paper: GoogleDrive",
            "AppInstall",
        ],
    );
    let row = |name: &str, value: &dyn Fn(&Outcome) -> String, paper: [&str; 2]| {
        vec![
            name.to_owned(),
            value(&drive),
            value(&install),
            paper[0].to_owned(),
            paper[1].to_owned(),
        ]
    };
    table.rows = vec![
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
    ];
    let (slow, fast) = (mb_per_s(&drive), mb_per_s(&install));
    let packed = [&drive, &install].map(|outcome| outcome.driver.packed_percent().unwrap_or_default());
    table.claims = vec![
        claim(
            "24.1 and 36.2 MB/s",
            format!("{slow:.1} and {fast:.1} MB/s"),
            (slow / 24.146 - 1.0).abs() < 0.15 && (fast / 36.179 - 1.0).abs() < 0.15,
            Basis::Calibration,
        ),
        claim(
            "installing is faster, and more of it is packed",
            format!("{:.1} % and {:.1} % packed", packed[0], packed[1]),
            fast > slow && packed[1] > packed[0],
            Basis::Validation,
        ),
        claim(
            "69.66 and 94.47 % are packed",
            format!("{:.1} and {:.1} %", packed[0], packed[1]),
            (packed[0] - 69.66).abs() < 10.0 && (packed[1] - 94.47).abs() < 10.0,
            Basis::Structure,
        ),
    ];
    let mut figure = sizes_exhibit(
        "figure 14",
        "attempts by requests gathered, real loads",
        &[("GoogleDrive", &drive), ("AppInstall", &install)],
    );
    let sizes = &install.driver.pack_sizes;
    let most = (2..sizes.len()).max_by_key(|size| sizes[*size]).unwrap_or(0);
    figure.claims = vec![claim(
        "most packs of AppInstall have 6 or 7 requests",
        format!("most frequent: {most}"),
        most == 6 || most == 7,
        Basis::Validation,
    )];
    Ok(vec![table, figure])
}

fn figure_15(scale: PaperScale) -> Result<Exhibit, CardError> {
    let mut figure = exhibit(
        "figure 15",
        "bandwidth by block groups of a flex group (postmark)",
        &[
            "block groups",
            "hybrid (gt-i9100) MB/s",
            "merges",
            "page map (Pandaboard) MB/s",
            "merges",
        ],
    );
    let mut rates = Vec::new();
    for flex_groups in [1, 2, 4, 8, 16, 32, 64] {
        let hybrid = loads::flex(scale, "gt-i9100", flex_groups)?;
        let page_map = loads::flex(scale, "gt-i9300", flex_groups)?;
        figure.rows.push(vec![
            flex_groups.to_string(),
            format!("{:.2}", mb_per_s(&hybrid)),
            hybrid.translation.collections.to_string(),
            format!("{:.2}", mb_per_s(&page_map)),
            page_map.translation.collections.to_string(),
        ]);
        rates.push((mb_per_s(&hybrid), mb_per_s(&page_map)));
    }
    let gain = |of: fn(&(f64, f64)) -> f64| (of(&rates[1]) / of(&rates[0]).max(0.001) - 1.0) * 100.0;
    let (hybrid, page_map) = (gain(|rate| rate.0), gain(|rate| rate.1));
    figure.claims = vec![
        claim(
            "from 1 to 2 the GT-I9100 gains",
            format!("{hybrid:+.1} %"),
            hybrid > 3.0,
            Basis::Validation,
        ),
        claim(
            "the Pandaboard does not",
            format!("{page_map:+.1} %"),
            page_map.abs() < 3.0,
            Basis::Validation,
        ),
    ];
    Ok(figure)
}
