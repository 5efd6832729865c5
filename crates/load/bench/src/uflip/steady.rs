//! Analysis of measured series: where a device reaches steady state, how its behaviour repeats, and where the
//! bandwidth of growing IOs changes its slope. Pure functions; the numbers come from runs.

use results::{median, nearest_f64};
use serde::Serialize;

/// Number of IOs per window.
const WINDOW: usize = 32;

/// Number of windows that are averaged together.
const AHEAD: usize = 8;

/// A window is steady if it is within this factor of the level of the second half.
const STEADY_FACTOR: f64 = 1.5;

/// Weaker autocorrelation than this is not a period.
const CORRELATION_MIN: f64 = 0.3;

/// Between two sizes, one of which is twice the other: bandwidth that grows by at least this exponent is limited only
/// by the IO.
const STEEP: f64 = 0.6;

/// Bandwidth cannot grow faster than the size: an exponent above this is noise.
const STEEPEST: f64 = 1.4;

/// Runs that must show the same step, of how many runs; and the smallest number of runs.
const AGREEING: (usize, usize, usize) = (2, 3, 3);

/// Below this exponent, bandwidth does not follow the size.
const FLAT: f64 = 0.3;

/// The behaviour of a pattern in a long run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Steadiness {
    /// IOs at the start that differ from the rest: a benchmark ignores this many.
    pub start_up_ios: u64,
    /// IOs after which the behaviour repeats; `None` if it does not.
    pub period_ios: Option<u64>,
    /// Mean response time after the start-up, nanoseconds.
    pub mean_ns: f64,
}

/// Finds start-up and period in the response times of a run.
#[must_use]
pub fn steadiness(latencies_ns: &[u64]) -> Steadiness {
    let windows: Vec<&[u64]> = latencies_ns.chunks(WINDOW).collect();
    // The median of a window shows the usual IO; costly ones, which may occur once in many windows, show only in the
    // mean of several.
    let medians: Vec<f64> = windows.iter().map(|window| middle(window)).collect();
    let ahead =
        |place: usize| mean(&latencies_ns[place * WINDOW..latencies_ns.len().min((place + AHEAD) * WINDOW)]);
    let means: Vec<f64> = (0..(windows.len() + 1).saturating_sub(AHEAD))
        .map(ahead)
        .collect();
    let level = |values: &[f64]| median(&values[values.len() / 2..]).unwrap_or(0.0);
    let (usual, costly) = (level(&medians), level(&means));
    let is_near = |value: f64, level: f64| value <= level * STEADY_FACTOR && value >= level / STEADY_FACTOR;
    let first = (0..means.len())
        .position(|place| is_near(medians[place], usual) && is_near(means[place], costly))
        .unwrap_or(0);
    let start_up = (first * WINDOW).min(latencies_ns.len());
    let rest = &latencies_ns[start_up..];
    Steadiness {
        start_up_ios: u64::try_from(start_up).unwrap_or(u64::MAX),
        period_ios: period(rest),
        mean_ns: mean(rest),
    }
}

/// The lag at which a series is most similar to itself: the first prominent peak of its autocorrelation.
fn period(latencies_ns: &[u64]) -> Option<u64> {
    let middle = mean(latencies_ns);
    let centred: Vec<f64> = latencies_ns
        .iter()
        .map(|latency| nearest_f64(*latency) - middle)
        .collect();
    let power: f64 = centred.iter().map(|value| value * value).sum();
    if power == 0.0 {
        return None;
    }
    let correlation = |lag: usize| -> f64 {
        let products = centred
            .iter()
            .zip(&centred[lag..])
            .map(|(one, other)| one * other);
        products.sum::<f64>() / power
    };
    let all: Vec<f64> = (1..=centred.len() / 4).map(correlation).collect();
    let highest = all.iter().skip(1).copied().fold(0.0, f64::max);
    if highest < CORRELATION_MIN {
        return None;
    }
    // Multiples of the period have peaks of similar height: the first peak near the highest is the period.
    let place = (1..all.len()).find(|&place| {
        let next = all.get(place + 1).copied().unwrap_or(f64::MIN);
        all[place] >= 0.8 * highest && all[place] >= all[place - 1] && all[place] >= next
    })?;
    u64::try_from(place + 1).ok()
}

/// Duration for which reads after random writes are slowed down: the pause required between runs.
#[must_use]
pub fn disturbed_ns(before_ns: &[u64], after_ns: &[u64]) -> u64 {
    let usual = median(
        &before_ns
            .iter()
            .map(|latency| nearest_f64(*latency))
            .collect::<Vec<_>>(),
    )
    .unwrap_or(0.0);
    let is_slow = |window: &[u64]| mean(window) > 2.0 * usual;
    let windows: Vec<&[u64]> = after_ns.chunks(WINDOW / 2).collect();
    let last = windows.iter().rposition(|window| is_slow(window));
    // A single slow window far from the start is noise and not an effect of the writes.
    let reaches = last.is_some_and(|last| {
        let slow = windows[..=last].iter().filter(|window| is_slow(window)).count();
        slow * 2 > last
    });
    match last {
        Some(last) if reaches => windows[..=last].iter().flat_map(|window| window.iter()).sum(),
        _ => 0,
    }
}

/// Steps in the bandwidth of aligned random writes of growing size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct GranularitySteps {
    /// Smaller writes cost as much as one of this size: a flash page, or the mapping unit.
    pub page_bytes: Option<u64>,
    /// From this size on, bandwidth grows again after a nearly flat part: pages of several chips together.
    pub super_page_bytes: Option<u64>,
}

/// The steps on which at least two of three runs agree; requires at least three runs. Each run is a list of pairs as
/// for [`granularity_steps`].
#[must_use]
pub fn agreed_steps(runs: &[Vec<(u64, f64)>]) -> GranularitySteps {
    let found: Vec<GranularitySteps> = runs.iter().map(|run| granularity_steps(run)).collect();
    let agreed = |pick: fn(&GranularitySteps) -> Option<u64>| {
        let (agreeing, of, least) = AGREEING;
        let steps: Vec<u64> = found.iter().filter_map(pick).collect();
        let votes = |step: u64| steps.iter().filter(|other| **other == step).count();
        let best = steps.iter().copied().max_by_key(|step| votes(*step))?;
        (found.len() >= least && votes(best) * of >= found.len() * agreeing).then_some(best)
    };
    GranularitySteps {
        page_bytes: agreed(|steps| steps.page_bytes),
        super_page_bytes: agreed(|steps| steps.super_page_bytes),
    }
}

/// Finds the steps in pairs of size, each twice the previous one, and bandwidth.
#[must_use]
pub fn granularity_steps(points: &[(u64, f64)]) -> GranularitySteps {
    let slopes: Vec<f64> = points
        .windows(2)
        .map(|pair| (pair[1].1 / pair[0].1).log2() / (nearest_f64(pair[1].0) / nearest_f64(pair[0].0)).log2())
        .collect();
    let is_steep = |slope: &f64| (STEEP..STEEPEST).contains(slope);
    let begins_steep = slopes.first().is_some_and(is_steep);
    let knee = slopes
        .iter()
        .position(|slope| !is_steep(slope))
        .filter(|_| begins_steep);
    let super_page = knee.and_then(|knee| {
        let flat = slopes[knee..].iter().position(|slope| *slope < FLAT)? + knee;
        let rises = slopes[flat..].iter().position(|slope| *slope >= FLAT)? + flat;
        // A single step that rises and falls again is noise.
        slopes
            .get(rises + 1)
            .is_none_or(|next| *next > 0.0)
            .then_some(rises)
    });
    GranularitySteps {
        page_bytes: knee.map(|knee| points[knee].0),
        super_page_bytes: super_page.map(|rises| points[rises].0),
    }
}

fn middle(latencies_ns: &[u64]) -> f64 {
    let values: Vec<f64> = latencies_ns.iter().map(|latency| nearest_f64(*latency)).collect();
    median(&values).unwrap_or(0.0)
}

fn mean(latencies_ns: &[u64]) -> f64 {
    if latencies_ns.is_empty() {
        return 0.0;
    }
    let sum: f64 = latencies_ns.iter().map(|latency| nearest_f64(*latency)).sum();
    sum / nearest_f64(u64::try_from(latencies_ns.len()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn noisy(base_ns: u64, random: &mut Random) -> u64 {
        base_ns + random.below(base_ns / 10)
    }

    #[test]
    fn a_cheap_start_and_a_period_are_found() {
        let mut random = Random::named(1, "test");
        let series: Vec<u64> = (0..4096)
            .map(|io| {
                let base = if io < 640 {
                    100_000
                } else if io % 48 == 0 {
                    20_000_000
                } else {
                    300_000
                };
                noisy(base, &mut random)
            })
            .collect();
        let found = steadiness(&series);
        assert_eq!(found.period_ios, Some(48));
        assert!((600..=680).contains(&found.start_up_ios), "{found:?}");
        assert!((600_000.0..900_000.0).contains(&found.mean_ns), "{found:?}");
    }

    #[test]
    fn a_start_without_costly_ios_is_found_though_the_usual_ones_do_not_change() {
        let mut random = Random::named(4, "test");
        let cost = |io: u64| {
            if io > 1000 && io.is_multiple_of(32) {
                9_000_000
            } else {
                100_000
            }
        };
        let series: Vec<u64> = (0..4096).map(|io| noisy(cost(io), &mut random)).collect();
        let found = steadiness(&series);
        assert!((850..=1100).contains(&found.start_up_ios), "{found:?}");
        assert_eq!(found.period_ios, Some(32));
    }

    #[test]
    fn a_device_that_is_always_the_same_has_neither() {
        let mut random = Random::named(2, "test");
        let series: Vec<u64> = (0..2048).map(|_| noisy(200_000, &mut random)).collect();
        let found = steadiness(&series);
        assert_eq!((found.start_up_ios, found.period_ios), (0, None));
        assert_eq!(steadiness(&[5; 100]).period_ios, None);
        assert_eq!(steadiness(&[]).start_up_ios, 0);
    }

    #[test]
    fn the_echo_of_writes_in_reads_gives_the_pause() {
        let mut random = Random::named(3, "test");
        let before: Vec<u64> = (0..256).map(|_| noisy(100_000, &mut random)).collect();
        let quiet: Vec<u64> = (0..1024).map(|_| noisy(100_000, &mut random)).collect();
        assert_eq!(disturbed_ns(&before, &quiet), 0);
        let mut disturbed = quiet.clone();
        disturbed[..160].iter_mut().for_each(|latency| *latency *= 10);
        let pause = disturbed_ns(&before, &disturbed);
        assert!((150_000_000..200_000_000).contains(&pause), "{pause}");
        let mut one_slow = quiet;
        one_slow[900] *= 1000;
        assert_eq!(disturbed_ns(&before, &one_slow), 0);
    }

    /// The curve of the packed-command study: pages of 8 KiB, super-pages of 128 KiB.
    #[test]
    fn pages_and_super_pages_of_the_studied_card_are_found() {
        let bandwidth = |bytes: u64| {
            let kib = nearest_f64(bytes) / 1024.0;
            match bytes {
                0..=8192 => 3.0 * kib / 8.0,
                8193..=131_072 => 3.0 + 0.1 * (kib / 8.0).log2(),
                _ => 3.4 * (kib / 128.0).powf(0.5),
            }
        };
        let points: Vec<(u64, f64)> = (9..=23)
            .map(|power| (1 << power, bandwidth(1 << power)))
            .collect();
        let found = granularity_steps(&points);
        assert_eq!(
            (found.page_bytes, found.super_page_bytes),
            (Some(8192), Some(131_072))
        );
    }

    #[test]
    fn a_step_is_believed_when_two_of_three_runs_show_it() {
        let page = |bytes: u64| -> Vec<(u64, f64)> {
            (9..=15)
                .map(|power| (1_u64 << power, nearest_f64((1_u64 << power).min(bytes))))
                .collect()
        };
        let found = |runs: &[u64]| {
            agreed_steps(&runs.iter().map(|bytes| page(*bytes)).collect::<Vec<_>>()).page_bytes
        };
        assert_eq!(found(&[8192, 8192, 4096]), Some(8192));
        assert_eq!(found(&[8192, 2048, 4096]), None);
        assert_eq!(found(&[8192, 8192]), None, "two runs prove nothing");
    }

    #[test]
    fn bandwidth_that_grows_faster_than_the_size_is_noise() {
        let points = [(512, 0.26), (1024, 3.67), (2048, 2.06), (4096, 5.96)];
        assert_eq!(granularity_steps(&points).page_bytes, None);
    }

    #[test]
    fn a_device_without_steps_has_none() {
        let line = |exponent: f64| -> Vec<(u64, f64)> {
            (9..=23)
                .map(|power| (1_u64 << power, nearest_f64(1 << power).powf(exponent)))
                .collect()
        };
        for exponent in [0.0, 0.2, 0.5, 1.0] {
            let found = granularity_steps(&line(exponent));
            assert_eq!(
                (found.page_bytes, found.super_page_bytes),
                (None, None),
                "exponent {exponent}"
            );
        }
        assert_eq!(granularity_steps(&[]).page_bytes, None);
    }
}
