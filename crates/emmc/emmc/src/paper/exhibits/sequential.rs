//! Sequential and single writes: reasons why packs ended (tables 1 and 2), pack sizes, and bandwidths (figures 7 to
//! 11).

use super::{claim, exhibit, mb_per_s, reasons, shown};
use crate::block::SchedulerKind;
use crate::error::CardError;
use crate::outcome::Outcome;
use crate::packing::{PackRules, Stop};
use crate::paper::loads::{self, PaperScale};
use crate::paper::{Basis, Exhibit};

pub(super) fn table_1(cfq: &Outcome) -> Exhibit {
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

pub(super) fn table_2(outcomes: &[(SchedulerKind, Outcome)]) -> Exhibit {
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

pub(super) fn figure_7(scale: PaperScale) -> Result<Exhibit, CardError> {
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

pub(super) fn figure_8(scale: PaperScale) -> Result<Exhibit, CardError> {
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

pub(super) fn figure_10(outcomes: &[(SchedulerKind, Outcome)]) -> Exhibit {
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

pub(super) fn sizes_exhibit(name: &str, title: &str, outcomes: &[(&str, &Outcome)]) -> Exhibit {
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

pub(super) fn figure_11(outcomes: &[(SchedulerKind, Outcome)]) -> Exhibit {
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
