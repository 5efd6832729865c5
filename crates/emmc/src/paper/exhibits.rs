//! Each table and figure: rows, and the paper's sentences held against them.

use super::loads::{self, Mixes, PaperScale};
use super::{Basis, Exhibit, PaperClaim};
use crate::block::SchedulerKind;
use crate::error::CardError;
use crate::outcome::Outcome;
use crate::packing::{PackRules, Stop};

const KERNEL_3_0: [SchedulerKind; 3] = [SchedulerKind::Cfq, SchedulerKind::Deadline, SchedulerKind::Noop];

/// Runs every experiment. `progress` is told the name of the next one.
///
/// # Errors
/// When a card of the presets cannot be built.
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

/// Halts of packs in the paper's columns.
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

fn table_1(cfq: &Outcome) -> Exhibit {
    let mut table = exhibit(
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
    );
    let paper = ["203", "58", "2", "0", "0", "4", "267"].map(str::to_owned);
    table
        .rows
        .push([vec!["paper".to_owned()], paper.to_vec()].concat());
    let ours = reasons(cfq);
    let row = |name: &str, counts: [u64; 6], total: u64| {
        let cells = counts.iter().chain([&total]).map(u64::to_string);
        std::iter::once(name.to_owned()).chain(cells).collect::<Vec<_>>()
    };
    table
        .rows
        .push(row("ours, packs of 2 and more", ours, cfq.driver.packs));
    let attempts = &cfq.driver.halts_of_attempts;
    let of = |stop: Stop| attempts[stop.place()];
    let full = of(Stop::FullCount) + of(Stop::FullSectors) + of(Stop::FullSegments);
    let counts = [
        of(Stop::NoRequest),
        of(Stop::Random),
        of(Stop::Sync),
        of(Stop::Reliable),
        of(Stop::Read),
        full,
    ];
    table
        .rows
        .push(row("ours, attempts", counts, attempts.iter().sum()));
    let [no_request, random, sync, reliable, read, full] = ours;
    table.claims = vec![
        claim(
            "REL and READ are 0",
            format!("REL {reliable}, READ {read}"),
            reliable + read == 0,
            Basis::Structure,
        ),
        claim(
            "NOREQ is far ahead: 76 % of the packs, RAND 22 %",
            format!("NOREQ {no_request}, RAND {random}, of {} packs", cfq.driver.packs),
            no_request > 2 * random && no_request * 2 > cfq.driver.packs,
            Basis::Validation,
        ),
        claim(
            "SYNC is 2 of 267",
            format!("SYNC {sync}"),
            sync * 20 < cfq.driver.packs,
            Basis::Validation,
        ),
        claim(
            "4 packs of 267 are full",
            format!("{full} of {}", cfq.driver.packs),
            full * 10 < cfq.driver.packs,
            Basis::Validation,
        ),
    ];
    table
}

fn table_2(outcomes: &[(SchedulerKind, Outcome)]) -> Exhibit {
    let mut table = exhibit(
        "table 2",
        "reason of halt by scheduler (tio_seq), packs of 2 and more / attempts",
        &[
            "scheduler",
            "NOREQ",
            "RAND",
            "SYNC",
            "fully packed",
            "paper: NOREQ",
            "RAND",
            "SYNC",
        ],
    );
    let paper = [["203", "58", "2"], ["7", "48", "3"], ["19", "77", "0"]];
    for ((scheduler, outcome), paper) in outcomes.iter().zip(paper) {
        let [no_request, random, sync, _, _, full] = reasons(outcome);
        let attempts = |stop: Stop| outcome.driver.halts_of_attempts[stop.place()];
        table.rows.push(vec![
            scheduler.word().to_owned(),
            format!("{no_request} / {}", attempts(Stop::NoRequest)),
            format!("{random} / {}", attempts(Stop::Random)),
            format!("{sync} / {}", attempts(Stop::Sync)),
            full.to_string(),
            paper[0].to_owned(),
            paper[1].to_owned(),
            paper[2].to_owned(),
        ]);
    }
    let no_request: Vec<u64> = outcomes.iter().map(|(_, outcome)| reasons(outcome)[0]).collect();
    let random: Vec<u64> = outcomes
        .iter()
        .map(|(_, outcome)| outcome.driver.halts_of_attempts[Stop::Random.place()])
        .collect();
    table.claims = vec![
        claim(
            "NOREQ falls by an order from cfq to deadline and noop",
            format!("NOREQ {no_request:?}"),
            no_request[0] >= 8 * no_request[1].max(1) && no_request[0] >= 8 * no_request[2].max(1),
            Basis::Validation,
        ),
        claim(
            "RAND stays between 48 and 77 under all",
            format!("RAND {random:?}, by attempts"),
            random.iter().all(|count| (30..=120).contains(count)),
            Basis::Calibration,
        ),
    ];
    table
}

fn figure_7(scale: PaperScale) -> Result<Exhibit, CardError> {
    let mut figure = exhibit(
        "figure 7",
        "write bandwidth by size of write (aligned, random, one at a time)",
        &["size KiB", "MB/s", "LSB backups", "programs"],
    );
    let mut measured = Vec::new();
    for shift in 9..=23 {
        let bytes = 1_u64 << shift;
        let outcome = loads::granularity(scale, bytes)?;
        figure.rows.push(vec![
            if bytes < 1024 {
                "0.5".to_owned()
            } else {
                (bytes >> 10).to_string()
            },
            format!("{:.2}", mb_per_s(&outcome)),
            outcome.nand.backups.to_string(),
            outcome.nand.programs.to_string(),
        ]);
        measured.push((bytes, mb_per_s(&outcome)));
    }
    let at = |bytes: u64| {
        measured
            .iter()
            .find(|(size, _)| *size == bytes)
            .map_or(0.0, |(_, rate)| *rate)
    };
    let steps = [
        at(8 << 10) / at(4 << 10),
        at(128 << 10) / at(32 << 10),
        at(1 << 20) / at(128 << 10),
    ];
    figure.claims = vec![
        claim(
            "below a page (8 KB) half the size is half the bandwidth",
            format!("8 KiB is {:.2} times 4 KiB", steps[0]),
            steps[0] > 1.8,
            Basis::Validation,
        ),
        claim(
            "between page and super page (128 KB) it does not improve much",
            format!("128 KiB is {:.2} times 32 KiB, for 4 times the size", steps[1]),
            steps[1] < 2.0,
            Basis::Validation,
        ),
        claim(
            "above the super page it keeps increasing",
            format!(
                "1 MiB is {:.2} times 128 KiB, 8 MiB {:.2} times 1 MiB",
                steps[2],
                at(8 << 20) / at(1 << 20)
            ),
            steps[2] > 1.3 && at(8 << 20) > at(1 << 20),
            Basis::Validation,
        ),
    ];
    Ok(figure)
}

fn figure_8(scale: PaperScale) -> Result<Exhibit, CardError> {
    let mut figure = exhibit(
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
    );
    let (mut rates, mut shares) = (Vec::new(), Vec::new());
    for max_requests in 1..=8 {
        let rules = PackRules {
            max_requests,
            ..PackRules::PHONE
        };
        let outcome = loads::tio_seq(scale, SchedulerKind::Cfq, rules)?;
        let packs = outcome.driver.packs;
        let share = (packs > 0)
            .then(|| results::nearest_f64(outcome.driver.full_packs()) / results::nearest_f64(packs) * 100.0);
        figure.rows.push(vec![
            max_requests.to_string(),
            format!("{:.1}", mb_per_s(&outcome)),
            shown(outcome.device_mb_per_s()),
            shown(outcome.full_pack_mb_per_s()),
            shown(share),
            shown(outcome.driver.mean_pack()),
        ]);
        rates.push(mb_per_s(&outcome));
        shares.extend(share);
    }
    let (first, fourth, last) = (rates[0], rates[3], rates[7]);
    let gained = (fourth - first) / (last - first).max(0.001) * 100.0;
    figure.claims = vec![
        claim(
            "the benchmark's bandwidth saturates at 4",
            format!("{first:.1}, {fourth:.1}, {last:.1} MB/s at 1, 4, 8: {gained:.0} % of the gain by 4"),
            gained > 75.0,
            Basis::Validation,
        ),
        claim(
            "the share of full packs falls as more are allowed",
            format!(
                "{} % at 2, {} % at 8",
                shown(shares.first().copied()),
                shown(shares.last().copied())
            ),
            shares.first() > shares.last(),
            Basis::Validation,
        ),
    ];
    Ok(figure)
}

fn figure_10(outcomes: &[(SchedulerKind, Outcome)]) -> Exhibit {
    let mut figure = exhibit(
        "figure 10",
        "bandwidth by scheduler (tio_seq)",
        &["scheduler", "benchmark MB/s", "device MB/s"],
    );
    for (scheduler, outcome) in outcomes {
        figure.rows.push(vec![
            scheduler.word().to_owned(),
            format!("{:.1}", mb_per_s(outcome)),
            shown(outcome.device_mb_per_s()),
        ]);
    }
    let rates: Vec<f64> = outcomes.iter().map(|(_, outcome)| mb_per_s(outcome)).collect();
    figure.claims = vec![claim(
        "cfq is the lowest, deadline and noop are alike",
        format!("{:.1}, {:.1}, {:.1} MB/s", rates[0], rates[1], rates[2]),
        rates[0] < rates[1].min(rates[2]) && (rates[1] / rates[2] - 1.0).abs() < 0.1,
        Basis::Validation,
    )];
    figure
}

fn sizes_exhibit(name: &str, title: &str, outcomes: &[(&str, &Outcome)]) -> Exhibit {
    let mut figure = exhibit(name, title, &["requests of a pack"]);
    figure
        .columns
        .extend(outcomes.iter().map(|(label, _)| (*label).to_owned()));
    let longest = outcomes
        .iter()
        .map(|(_, outcome)| outcome.driver.pack_sizes.len())
        .max()
        .unwrap_or(0);
    for size in 1..longest {
        let counts = outcomes.iter().map(|(_, outcome)| {
            let count = outcome.driver.pack_sizes.get(size).copied().unwrap_or(0);
            count.to_string()
        });
        figure
            .rows
            .push(std::iter::once(size.to_string()).chain(counts).collect());
    }
    figure
}

fn figure_11(outcomes: &[(SchedulerKind, Outcome)]) -> Exhibit {
    let labelled: Vec<_> = outcomes
        .iter()
        .map(|(scheduler, outcome)| (scheduler.word(), outcome))
        .collect();
    let mut figure = sizes_exhibit("figure 11", "attempts by requests gathered (tio_seq)", &labelled);
    let means: Vec<f64> = outcomes
        .iter()
        .map(|(_, outcome)| outcome.driver.mean_pack().unwrap_or_default())
        .collect();
    figure.claims = vec![claim(
        "packs are much smaller under cfq",
        format!("mean {:.2}, {:.2}, {:.2}", means[0], means[1], means[2]),
        means[0] < means[1] * 0.85 && means[0] < means[2] * 0.85,
        Basis::Validation,
    )];
    figure
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
