//! The claims: one number each, and the range that was stated for it beforehand.
//!
//! A range is taken from the paper's numbers where it has some (a share within a third, a bandwidth within 15 %), from
//! the sign of its sentence otherwise ("lowest": at least 1 % lower; "much": at least 15 %). Parameters were fitted to
//! the claims of kind fitted alone ([`super::fit`]). A claim that cannot fail whatever the numbers are, such as that no
//! flush ends a pack (the queue dispatches flushes first), is of kind input; one that follows from a fitted number is of
//! kind fitted.
//!
//! Sentences of the study that are no claims: how packs, interrupts, LSB backup, TRIM and flex groups work (sections 2.1
//! to 2.3), its sizes of loads and pages and figure 9, as they are the model; explanations without a number (LSB backup
//! between 8 and 128 KiB, spatial locality of metadata); and that AppInstall is faster than GoogleDrive, which follows
//! from two fitted numbers.

mod of_others;

use super::loads::Wear::{self, New, Used};
use super::measured::{APP_INSTALL, FULL, GOOGLE_DRIVE, Measured, both_mb_per_s, mb_per_s, share_of_packs};
use super::{Claim, Kind, Verdict};
use crate::outcome::Outcome;
use crate::packing::Stop;

pub(super) use of_others::OF_OTHERS;

/// A claim as stated.
pub(super) struct Stated {
    name: &'static str,
    pub(super) exhibit: &'static str,
    paper: &'static str,
    quantity: &'static str,
    kind: Kind,
    expected: (Option<f64>, Option<f64>),
    number: fn(&Measured) -> f64,
}

impl Stated {
    fn holds(&self, number: f64) -> bool {
        let (low, high) = self.expected;
        low.is_none_or(|low| number >= low) && high.is_none_or(|high| number <= high)
    }

    pub(super) fn judge(&self, base: &Measured, variations: &[(String, Measured)]) -> Claim {
        let found = (self.number)(base);
        let holds = self.holds(found);
        let mut band = (found, found);
        let mut sensitive_to = Vec::new();
        for (name, measured) in variations {
            let number = (self.number)(measured);
            band = (band.0.min(number), band.1.max(number));
            if self.holds(number) != holds {
                sensitive_to.push(name.clone());
            }
        }
        Claim {
            name: self.name,
            exhibit: self.exhibit,
            paper: self.paper,
            quantity: self.quantity,
            kind: self.kind,
            expected: self.expected,
            found,
            band,
            verdict: match (holds, sensitive_to.is_empty()) {
                (true, true) if variations.is_empty() => Verdict::Inside,
                (false, true) if variations.is_empty() => Verdict::Outside,
                (true, true) => Verdict::Holds,
                (false, true) => Verdict::Fails,
                _ => Verdict::Open,
            },
            sensitive_to,
        }
    }
}

const fn at_least(low: f64) -> (Option<f64>, Option<f64>) {
    (Some(low), None)
}

const fn at_most(high: f64) -> (Option<f64>, Option<f64>) {
    (None, Some(high))
}

const fn within(low: f64, high: f64) -> (Option<f64>, Option<f64>) {
    (Some(low), Some(high))
}

fn cfq(measured: &Measured) -> &Outcome {
    &measured.sequential["cfq"]
}

/// The number for cfq, deadline and noop.
fn each(measured: &Measured, number: impl Fn(&Outcome) -> f64) -> [f64; 3] {
    ["cfq", "deadline", "noop"].map(|name| number(&measured.sequential[name]))
}

fn size(measured: &Measured, kib: u64) -> f64 {
    mb_per_s(&measured.by_size[&(kib << 10)])
}

fn pack(measured: &Measured, most: u32) -> f64 {
    mb_per_s(&measured.by_pack[&most])
}

fn full_share(outcome: &Outcome) -> f64 {
    share_of_packs(outcome, &FULL)
}

fn random(measured: &Measured, wear: Wear, most: u32) -> &Outcome {
    &measured.random[&(wear, most)]
}

fn below_8(outcome: &Outcome) -> f64 {
    outcome.driver.packs_up_to_percent(7).unwrap_or_default()
}

fn most_frequent_pack(outcome: &Outcome) -> f64 {
    let sizes = &outcome.driver.pack_sizes;
    let most = (2..sizes.len())
        .max_by_key(|size| sizes[*size])
        .unwrap_or_default();
    results::nearest_f64(u64::try_from(most).unwrap_or_default())
}

/// Packs ended by NOREQ under cfq that do not end so under another scheduler, per pack under cfq. A ratio of the two would
/// hold for a cfq that ends none.
fn no_request_apart(measured: &Measured, other: &str) -> f64 {
    let halts =
        |scheduler| results::nearest_f64(measured.sequential[scheduler].driver.halts(Stop::NoRequest));
    (halts("cfq") - halts(other)) / results::nearest_f64(cfq(measured).driver.packs.max(1))
}

fn flex_gain(of: impl Fn(u64) -> f64) -> f64 {
    of(2) / of(1).max(0.001)
}

/// All claims, in the order of tables and figures.
pub(super) const CLAIMS: [Stated; 41] = [
    Stated {
        name: "t1-dead-reasons",
        exhibit: "table 1",
        paper: "REL and READ are 0",
        quantity: "packs ended by REL or READ",
        kind: Kind::Input,
        expected: at_most(0.0),
        number: |measured| share_of_packs(cfq(measured), &[Stop::Reliable, Stop::Read]),
    },
    Stated {
        name: "t1-noreq",
        exhibit: "table 1",
        paper: "NOREQ ends 203 of 267 packs (0.76)",
        quantity: "share of packs ended by NOREQ",
        kind: Kind::Fitted,
        expected: within(0.6, 0.9),
        number: |measured| share_of_packs(cfq(measured), &[Stop::NoRequest]),
    },
    Stated {
        name: "t1-rand",
        exhibit: "table 1",
        paper: "RAND ends 58 of 267 packs (0.22)",
        quantity: "share of packs ended by RAND",
        kind: Kind::Fitted,
        expected: within(0.14, 0.3),
        number: |measured| share_of_packs(cfq(measured), &[Stop::Random]),
    },
    Stated {
        name: "t1-full",
        exhibit: "table 1",
        paper: "4 of 267 packs are full (0.015)",
        quantity: "share of full packs",
        kind: Kind::Fitted,
        expected: at_most(0.1),
        number: |measured| full_share(cfq(measured)),
    },
    Stated {
        name: "t1-sync",
        exhibit: "table 1",
        paper: "SYNC ends 2 of 267 packs (0.007)",
        quantity: "share of packs ended by SYNC",
        kind: Kind::Input,
        expected: at_most(0.03),
        number: |measured| share_of_packs(cfq(measured), &[Stop::Sync]),
    },
    Stated {
        name: "t1-packs",
        exhibit: "table 1",
        paper: "267 packs",
        quantity: "packs of two requests and more, per 2 GiB",
        kind: Kind::HeldOut,
        expected: within(178.0, 356.0),
        number: |measured| {
            let outcome = cfq(measured);
            let part = results::nearest_f64(outcome.writes.bytes) / results::nearest_f64(2 << 30);
            results::nearest_f64(outcome.driver.packs) / part
        },
    },
    Stated {
        name: "t2-noreq-deadline",
        exhibit: "table 2",
        paper: "NOREQ is 203 under cfq, 7 under deadline: 196 apart, of 267 packs (0.73)",
        quantity: "packs ended by NOREQ, cfq less deadline, per pack under cfq",
        kind: Kind::Fitted,
        expected: within(0.49, 0.98),
        number: |measured| no_request_apart(measured, "deadline"),
    },
    Stated {
        name: "t2-noreq-noop",
        exhibit: "table 2",
        paper: "NOREQ is 203 under cfq, 19 under noop: 184 apart, of 267 packs (0.69)",
        quantity: "packs ended by NOREQ, cfq less noop, per pack under cfq",
        kind: Kind::Fitted,
        expected: within(0.46, 0.92),
        number: |measured| no_request_apart(measured, "noop"),
    },
    Stated {
        name: "t2-noreq-order",
        exhibit: "table 2",
        paper: "NOREQ is 7 under deadline, 19 under noop",
        quantity: "packs ended by NOREQ, noop less deadline",
        kind: Kind::HeldOut,
        expected: at_least(1.0),
        number: |measured| {
            let [_, deadline, noop] = each(measured, |outcome| {
                results::nearest_f64(outcome.driver.halts(Stop::NoRequest))
            });
            noop - deadline
        },
    },
    Stated {
        name: "t2-rand-order",
        exhibit: "table 2",
        paper: "RAND is 48 under deadline, 77 under noop (1.6)",
        quantity: "packs ended by RAND, noop per deadline",
        kind: Kind::HeldOut,
        expected: within(1.07, 2.14),
        number: |measured| {
            let [_, deadline, noop] = each(measured, |outcome| {
                results::nearest_f64(outcome.driver.halts(Stop::Random))
            });
            noop / deadline.max(0.5)
        },
    },
    Stated {
        name: "t2-rand",
        exhibit: "table 2",
        paper: "RAND is 58, 48, 77: alike under all schedulers",
        quantity: "packs ended by RAND, most per least of three schedulers",
        kind: Kind::HeldOut,
        expected: at_most(3.0),
        number: |measured| {
            let all = each(measured, |outcome| {
                results::nearest_f64(outcome.driver.halts(Stop::Random))
            });
            all.iter().copied().fold(0.0, f64::max) / all.iter().copied().fold(f64::MAX, f64::min).max(0.5)
        },
    },
    Stated {
        name: "t2-sync",
        exhibit: "table 2",
        paper: "SYNC is 2, 3, 0",
        quantity: "largest share of packs ended by SYNC",
        kind: Kind::Input,
        expected: at_most(0.05),
        number: |measured| {
            let all = each(measured, |outcome| share_of_packs(outcome, &[Stop::Sync]));
            all.into_iter().fold(0.0, f64::max)
        },
    },
    Stated {
        name: "t3-google-drive",
        exhibit: "table 3",
        paper: "GoogleDrive 24.146 MB/s",
        quantity: "MB/s of GoogleDrive",
        kind: Kind::Fitted,
        expected: within(24.146 * 0.85, 24.146 * 1.15),
        number: |measured| mb_per_s(&measured.real[GOOGLE_DRIVE]),
    },
    Stated {
        name: "t3-app-install",
        exhibit: "table 3",
        paper: "AppInstall 36.179 MB/s",
        quantity: "MB/s of AppInstall",
        kind: Kind::Fitted,
        expected: within(36.179 * 0.85, 36.179 * 1.15),
        number: |measured| mb_per_s(&measured.real[APP_INSTALL]),
    },
    Stated {
        name: "t3-packed",
        exhibit: "table 3",
        paper: "69.66 and 94.47 % of the writes are packed",
        quantity: "larger difference, percentage points",
        kind: Kind::Input,
        expected: at_most(10.0),
        number: |measured| {
            let packed = |outcome: &Outcome| outcome.driver.packed_percent().unwrap_or_default();
            let (drive, install) = (
                packed(&measured.real[GOOGLE_DRIVE]),
                packed(&measured.real[APP_INSTALL]),
            );
            (drive - 69.66).abs().max((install - 94.47).abs())
        },
    },
    Stated {
        name: "f7-page",
        exhibit: "figure 7",
        paper: "under the page size (8 KB) half the size is half the bandwidth",
        quantity: "MB/s, 8 KiB per 4 KiB",
        kind: Kind::Input,
        expected: within(1.8, 2.2),
        number: |measured| size(measured, 8) / size(measured, 4),
    },
    Stated {
        name: "f7-flat",
        exhibit: "figure 7",
        paper: "between page and super page (128 KB) it is not that improved",
        quantity: "MB/s, 128 KiB per 8 KiB (16 would be in proportion)",
        kind: Kind::HeldOut,
        expected: at_most(2.0),
        number: |measured| size(measured, 128) / size(measured, 8),
    },
    Stated {
        name: "f7-rises",
        exhibit: "figure 7",
        paper: "above the super page it keeps increasing",
        quantity: "MB/s, 8 MiB per 128 KiB",
        kind: Kind::HeldOut,
        expected: at_least(1.5),
        number: |measured| size(measured, 8192) / size(measured, 128),
    },
    Stated {
        name: "f7-shape",
        exhibit: "figure 7",
        paper: "it grows less below the super page than above",
        quantity: "growth of 128 KiB to 2 MiB per growth of 8 to 128 KiB",
        kind: Kind::HeldOut,
        expected: at_least(1.0),
        number: |measured| {
            size(measured, 2048) / size(measured, 128) / (size(measured, 128) / size(measured, 8))
        },
    },
    Stated {
        name: "f8-benefit",
        exhibit: "figure 8",
        paper: "packing of sequential writes derives performance benefit",
        quantity: "MB/s, at most 8 per 1",
        kind: Kind::HeldOut,
        expected: at_least(1.05),
        number: |measured| pack(measured, 8) / pack(measured, 1),
    },
    Stated {
        name: "f8-saturates",
        exhibit: "figure 8",
        paper: "the benchmark's bandwidth saturates at 4 requests per pack",
        quantity: "share of the gain from 1 to 8 that 4 give",
        kind: Kind::HeldOut,
        expected: within(0.75, 1.25),
        number: |measured| {
            let gain = |most| pack(measured, most) - pack(measured, 1);
            gain(4) / gain(8).max(0.001)
        },
    },
    Stated {
        name: "f8-full-faster",
        exhibit: "figure 8",
        paper: "the benchmark is saturated because requests are not fully packed: full packs alone are faster",
        quantity: "MB/s, full packs per benchmark, at most 8",
        kind: Kind::Fitted,
        expected: at_least(1.01),
        number: |measured| {
            let outcome = &measured.by_pack[&8];
            outcome.full_pack_mb_per_s().unwrap_or_default() / mb_per_s(outcome).max(0.001)
        },
    },
    Stated {
        name: "f8-full-rises",
        exhibit: "figure 8",
        paper: "the bandwidth of full packs alone still increases",
        quantity: "MB/s of full packs, at most 8 per at most 2",
        kind: Kind::HeldOut,
        expected: at_least(1.05),
        number: |measured| {
            let full = |most: u32| measured.by_pack[&most].full_pack_mb_per_s().unwrap_or_default();
            full(8) / full(2).max(0.001)
        },
    },
    Stated {
        name: "f8-share-falls",
        exhibit: "figure 8",
        paper: "the share of full packs decreases as more are allowed",
        quantity: "share of full packs, at most 8 per at most 2",
        kind: Kind::Fitted,
        expected: at_most(0.9),
        number: |measured| full_share(&measured.by_pack[&8]) / full_share(&measured.by_pack[&2]).max(0.001),
    },
    Stated {
        name: "f8-gap",
        exhibit: "figure 8",
        paper: "the device is faster than the benchmark: the gap is the latency of the operating system",
        quantity: "MB/s, device per benchmark, packs of at most 8",
        kind: Kind::HeldOut,
        expected: at_least(1.01),
        number: |measured| {
            let outcome = &measured.by_pack[&8];
            outcome.device_mb_per_s().unwrap_or_default() / mb_per_s(outcome).max(0.001)
        },
    },
    Stated {
        name: "f10-cfq-lowest",
        exhibit: "figure 10",
        paper: "cfq is the lowest",
        quantity: "MB/s, cfq per the lower of deadline and noop",
        kind: Kind::HeldOut,
        expected: at_most(0.99),
        number: |measured| {
            let [cfq, deadline, noop] = each(measured, mb_per_s);
            cfq / deadline.min(noop)
        },
    },
    Stated {
        name: "f10-others-alike",
        exhibit: "figure 10",
        paper: "deadline and noop are alike",
        quantity: "MB/s, deadline per noop",
        kind: Kind::HeldOut,
        expected: within(0.95, 1.05),
        number: |measured| {
            let [_, deadline, noop] = each(measured, mb_per_s);
            deadline / noop
        },
    },
    Stated {
        name: "f11-small-packs",
        exhibit: "figure 11",
        paper: "packs are much smaller under cfq",
        quantity: "mean pack, cfq per the lower of deadline and noop",
        kind: Kind::HeldOut,
        expected: at_most(0.85),
        number: |measured| {
            let [cfq, deadline, noop] =
                each(measured, |outcome| outcome.driver.mean_pack().unwrap_or_default());
            cfq / deadline.min(noop).max(0.001)
        },
    },
    Stated {
        name: "f12-rises",
        exhibit: "figure 12",
        paper: "random writes gain until 8 requests per pack",
        quantity: "MB/s, at most 8 per 1, new card",
        kind: Kind::HeldOut,
        expected: at_least(1.05),
        number: |measured| mb_per_s(random(measured, New, 8)) / mb_per_s(random(measured, New, 1)),
    },
    Stated {
        name: "f12-each-step",
        exhibit: "figure 12",
        paper: "the bandwidth increases until 8 requests per pack",
        quantity: "MB/s, least gain of 2 per 1, 4 per 2, 8 per 4, new card",
        kind: Kind::HeldOut,
        expected: at_least(1.01),
        number: |measured| {
            let of = |most| mb_per_s(random(measured, New, most));
            [1, 2, 4]
                .map(|most| of(2 * most) / of(most))
                .into_iter()
                .fold(f64::MAX, f64::min)
        },
    },
    Stated {
        name: "f12-interrupts",
        exhibit: "figure 12",
        paper: "the increase until 8 is the reduction of interrupt latency",
        quantity: "part of the gain from 1 to 8 that is lost without interrupt costs",
        kind: Kind::HeldOut,
        expected: at_least(0.5),
        number: |measured| {
            let gain = |one: &Outcome, eight: &Outcome| mb_per_s(eight) / mb_per_s(one) - 1.0;
            let (one, eight) = measured
                .without_interrupts
                .as_ref()
                .expect("measured with figure 12");
            1.0 - gain(one, eight) / gain(random(measured, New, 1), random(measured, New, 8))
        },
    },
    Stated {
        name: "f12-falls",
        exhibit: "figure 12",
        paper: "8 is much better than no limit (62)",
        quantity: "MB/s, at most 62 per at most 8, new card",
        kind: Kind::HeldOut,
        expected: at_most(0.95),
        number: |measured| mb_per_s(random(measured, New, 62)) / mb_per_s(random(measured, New, 8)),
    },
    Stated {
        name: "f12-falls-used",
        exhibit: "figure 12",
        paper: "8 is much better than no limit (62)",
        quantity: "MB/s, at most 62 per at most 8, used card",
        kind: Kind::HeldOut,
        expected: at_most(0.95),
        number: |measured| mb_per_s(random(measured, Used, 62)) / mb_per_s(random(measured, Used, 8)),
    },
    Stated {
        name: "f13-below-8",
        exhibit: "figure 13",
        paper: "about 60 % of the packs have fewer than 8 requests",
        quantity: "% of packs, new card",
        kind: Kind::HeldOut,
        expected: within(45.0, 75.0),
        number: |measured| below_8(random(measured, New, 62)),
    },
    Stated {
        name: "f13-below-8-used",
        exhibit: "figure 13",
        paper: "about 60 % of the packs have fewer than 8 requests",
        quantity: "% of packs, used card",
        kind: Kind::HeldOut,
        expected: within(45.0, 75.0),
        number: |measured| below_8(random(measured, Used, 62)),
    },
    Stated {
        name: "f13-far-from-62",
        exhibit: "figure 13",
        paper: "packs are significantly different from the maximum of 62",
        quantity: "mean pack per 62, new card",
        kind: Kind::HeldOut,
        expected: at_most(0.85),
        number: |measured| random(measured, New, 62).driver.mean_pack().unwrap_or_default() / 62.0,
    },
    Stated {
        name: "f14-most-frequent",
        exhibit: "figure 14",
        paper: "most packs of AppInstall have 6 or 7 requests",
        quantity: "most frequent size",
        kind: Kind::Fitted,
        expected: within(6.0, 7.0),
        number: |measured| most_frequent_pack(&measured.real[APP_INSTALL]),
    },
    Stated {
        name: "f14-google-drive",
        exhibit: "figure 14",
        paper: "GoogleDrive is not packed much compared to AppInstall",
        quantity: "mean pack, GoogleDrive per AppInstall",
        kind: Kind::Input,
        expected: at_most(0.85),
        number: |measured| {
            let mean = |load: &str| measured.real[load].driver.mean_pack().unwrap_or_default();
            mean(GOOGLE_DRIVE) / mean(APP_INSTALL).max(0.001)
        },
    },
    Stated {
        name: "f15-hybrid",
        exhibit: "figure 15",
        paper: "the GT-I9100 (hybrid, as the paper infers from this) gains from 1 to 2 groups",
        quantity: "MB/s, 2 groups per 1, used card",
        kind: Kind::Input,
        expected: at_least(1.03),
        number: |measured| flex_gain(|groups| mb_per_s(&measured.flex[&groups].0)),
    },
    Stated {
        name: "f15-page-map",
        exhibit: "figure 15",
        paper: "the Pandaboard (page map, as the paper infers from this) does not",
        quantity: "MB/s, 2 groups per 1, used card",
        kind: Kind::Input,
        expected: within(0.97, 1.03),
        number: |measured| flex_gain(|groups| mb_per_s(&measured.flex[&groups].1)),
    },
    Stated {
        name: "f15-hybrid-once",
        exhibit: "figure 15",
        paper: "the GT-I9100 gains between 1 and 2 groups",
        quantity: "MB/s, 64 groups per 2, used card",
        kind: Kind::HeldOut,
        expected: within(0.97, 1.03),
        number: |measured| mb_per_s(&measured.flex[&64].0) / mb_per_s(&measured.flex[&2].0),
    },
];
