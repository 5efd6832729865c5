//! The nine micro-benchmarks: their patterns, parameters and values.
//!
//! Ranges are those of the authors: powers of two. Values that do not fit the target are skipped.

use serde::{Deserialize, Serialize};

use super::pattern::{Baseline, Pattern};
use crate::words::words;

words! {
    /// A micro-benchmark; each varies one parameter.
    #[serde(rename_all = "snake_case")]
    #[expect(missing_docs, reason = "each is described by its parameter below")]
    MicroBenchmark {
        Granularity = "granularity",
        Alignment = "alignment",
        Locality = "locality",
        Partitioning = "partitioning",
        Order = "order",
        Parallelism = "parallelism",
        Mix = "mix",
        Pause = "pause",
        Bursts = "bursts",
    }
}

impl MicroBenchmark {
    /// The parameter, with its unit.
    #[must_use]
    pub const fn parameter(self) -> &'static str {
        match self {
            Self::Granularity => "io_bytes",
            Self::Alignment => "shift_bytes",
            Self::Locality => "target_bytes",
            Self::Partitioning => "partitions",
            Self::Order => "increment",
            Self::Parallelism => "degree",
            Self::Mix => "ratio",
            Self::Pause => "pause_us",
            Self::Bursts => "burst_ios",
        }
    }
}

/// IOs per run by pattern, and the number of IOs at its start that are not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// SR, RR, SW, RW.
    pub ios: [u64; 4],
    /// SR, RR, SW, RW.
    pub ignored: [u64; 4],
}

impl Counts {
    /// The counts of the authors' program.
    pub const USUAL: Self = Self {
        ios: [128, 256, 1024, 5116],
        ignored: [0, 0, 0, 50],
    };

    pub(super) const fn of(&self, baseline: Baseline) -> (u64, u64) {
        let place = match baseline {
            Baseline::SequentialRead => 0,
            Baseline::RandomRead => 1,
            Baseline::SequentialWrite => 2,
            Baseline::RandomWrite => 3,
        };
        (self.ios[place], self.ignored[place])
    }
}

/// The limits of the suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits<'run> {
    pub io_bytes: u64,
    pub target_bytes: u64,
    /// Smallest IO that the target supports.
    pub unit_bytes: u64,
    pub counts: Counts,
    pub baselines: &'run [Baseline],
}

/// One value of the parameter of one benchmark, for one pattern or pair of patterns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    pub benchmark: MicroBenchmark,
    /// The value of the parameter, in the unit of its name.
    pub value: i64,
    pub pattern: Pattern,
    /// Every (`ratio` + 1)th IO has this pattern.
    pub other: Option<(Pattern, u64)>,
    /// Threads, each in its own part of the target.
    pub degree: u32,
    /// Duration of the pause ...
    pub pause_ns: u64,
    /// ... after each burst of this many IOs.
    pub burst_ios: u64,
    pub ios: u64,
    pub ignored: u64,
}

impl Point {
    /// `granularity/RW/io_bytes=4096`.
    pub fn name(&self) -> String {
        let (benchmark, patterns) = (self.benchmark.name(), self.patterns());
        format!(
            "{benchmark}/{patterns}/{}={}",
            self.benchmark.parameter(),
            self.value
        )
    }

    /// `RW`, or `SR-RW` for a mix.
    pub fn patterns(&self) -> String {
        let first = self.pattern.baseline.name();
        self.other.map_or_else(
            || first.to_owned(),
            |(other, _)| format!("{first}-{}", other.baseline.name()),
        )
    }
}

/// All points of a benchmark.
pub(super) fn points(benchmark: MicroBenchmark, limits: &Limits<'_>) -> Vec<Point> {
    let single = |values: &[i64], vary: &dyn Fn(&mut Point, i64)| -> Vec<Point> {
        let of = |baseline: &Baseline| {
            let usual = limits.usual(benchmark, *baseline);
            values
                .iter()
                .map(move |value| (usual, *value))
                .collect::<Vec<_>>()
        };
        let all = limits.baselines.iter().flat_map(of);
        all.filter_map(|(mut point, value)| {
            point.value = value;
            vary(&mut point, value);
            limits.fitted(point)
        })
        .collect()
    };
    let whole = limits.target_bytes;
    match benchmark {
        MicroBenchmark::Granularity => single(&powers(512, 8 << 20), &|point, value| {
            point.pattern.io_bytes = unsigned(value);
        }),
        MicroBenchmark::Alignment => {
            let shifts: Vec<i64> = std::iter::once(0)
                .chain(powers(512, signed(limits.io_bytes)))
                .collect();
            single(&shifts, &|point, value| {
                point.pattern.shift_bytes = unsigned(value)
            })
        }
        MicroBenchmark::Locality => {
            let sizes = powers(
                signed(limits.io_bytes),
                signed(limits.io_bytes.saturating_mul(1 << 16).min(whole)),
            );
            single(&sizes, &|point, value| {
                point.pattern.target_bytes = unsigned(value)
            })
        }
        MicroBenchmark::Partitioning => only_sequential(single(&powers(1, 256), &|point, value| {
            point.pattern.target_bytes = whole;
            point.pattern.partitions = unsigned(value);
        })),
        MicroBenchmark::Order => {
            let increments: Vec<i64> = [-1, 0].into_iter().chain(powers(1, 256)).collect();
            only_sequential(single(&increments, &|point, value| {
                point.pattern.target_bytes = whole;
                point.pattern.increment = value;
            }))
        }
        MicroBenchmark::Parallelism => single(&powers(1, 16), &|point, value| {
            point.degree = u32::try_from(value).unwrap_or(1);
        }),
        MicroBenchmark::Mix => mixes(limits),
        MicroBenchmark::Pause => single(
            &powers(1, 256).iter().map(|steps| steps * 100).collect::<Vec<_>>(),
            &|point, value| {
                point.pause_ns = unsigned(value) * 1000;
            },
        ),
        MicroBenchmark::Bursts => single(
            &powers(1, 64).iter().map(|steps| steps * 10).collect::<Vec<_>>(),
            &|point, value| {
                point.pause_ns = 100_000_000;
                point.burst_ios = unsigned(value);
            },
        ),
    }
}

/// The six mixes, in the order of the authors.
fn mixes(limits: &Limits<'_>) -> Vec<Point> {
    use Baseline::{RandomRead, RandomWrite, SequentialRead, SequentialWrite};
    let pairs = [
        (SequentialRead, RandomRead),
        (SequentialRead, RandomWrite),
        (SequentialRead, SequentialWrite),
        (RandomRead, SequentialWrite),
        (RandomRead, RandomWrite),
        (SequentialWrite, RandomWrite),
    ];
    let mut found = Vec::new();
    for (first, second) in pairs {
        if !limits.baselines.contains(&first) || !limits.baselines.contains(&second) {
            continue;
        }
        for ratio in powers(1, 64) {
            let mut point = limits.usual(MicroBenchmark::Mix, first);
            point.value = ratio;
            point.pattern.target_bytes = limits.target_bytes;
            let mut other = limits.usual(MicroBenchmark::Mix, second);
            other.pattern.target_bytes = limits.target_bytes;
            point.other = Some((other.pattern, unsigned(ratio)));
            point.ignored = point.ignored.max(other.ignored);
            found.extend(limits.fitted(point));
        }
    }
    found
}

fn only_sequential(points: Vec<Point>) -> Vec<Point> {
    points
        .into_iter()
        .filter(|point| !point.pattern.baseline.is_random())
        .collect()
}

impl Limits<'_> {
    fn usual(&self, benchmark: MicroBenchmark, baseline: Baseline) -> Point {
        let (ios, ignored) = self.counts.of(baseline);
        Point {
            benchmark,
            value: 0,
            pattern: Pattern {
                baseline,
                io_bytes: self.io_bytes,
                shift_bytes: 0,
                target_bytes: 0,
                partitions: 1,
                increment: 1,
            },
            other: None,
            degree: 1,
            pause_ns: 0,
            burst_ios: 1,
            ios,
            ignored,
        }
    }

    /// Sets the target and counts of a point: no run transfers more bytes than the size of the target, and sequential
    /// runs use an area of their own. `None` if the point does not fit.
    fn fitted(&self, mut point: Point) -> Option<Point> {
        let pattern = &mut point.pattern;
        let is_aligned = |bytes: u64| bytes.is_multiple_of(self.unit_bytes);
        if !is_aligned(pattern.io_bytes) || !is_aligned(pattern.shift_bytes) {
            return None;
        }
        let degree = u64::from(point.degree);
        let each_most = (self.target_bytes / degree).saturating_sub(pattern.shift_bytes) / pattern.io_bytes;
        if each_most == 0 {
            return None;
        }
        // Every thread has the same number of IOs, at least one.
        point.ios = (point.ios / degree).clamp(1, each_most) * degree;
        point.ignored = point.ignored.min(point.ios / 4);
        if pattern.target_bytes == 0 {
            let area = point.ios * pattern.io_bytes + pattern.shift_bytes;
            pattern.target_bytes = if pattern.baseline.is_random() {
                self.target_bytes
            } else {
                area
            };
        }
        let slots = pattern.slots() / degree;
        (slots >= pattern.partitions).then_some(point)
    }
}

/// Powers of two from `from` to `to`.
fn powers(from: i64, to: i64) -> Vec<i64> {
    std::iter::successors(Some(from.max(1)), |value| value.checked_mul(2))
        .take_while(|value| *value <= to)
        .collect()
}

fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(target_bytes: u64) -> Limits<'static> {
        Limits {
            io_bytes: 32 << 10,
            target_bytes,
            unit_bytes: 512,
            counts: Counts::USUAL,
            baselines: Baseline::ALL,
        }
    }

    fn values(benchmark: MicroBenchmark, patterns: &str) -> Vec<i64> {
        let all = points(benchmark, &limits(1 << 30));
        all.iter()
            .filter(|point| point.patterns() == patterns)
            .map(|point| point.value)
            .collect()
    }

    #[test]
    fn parameters_take_the_values_of_the_authors() {
        assert_eq!(values(MicroBenchmark::Granularity, "RW").len(), 15);
        assert_eq!(values(MicroBenchmark::Granularity, "RW")[14], 8 << 20);
        assert_eq!(
            values(MicroBenchmark::Alignment, "SW"),
            [0, 512, 1024, 2048, 4096, 8192, 16384, 32768]
        );
        assert_eq!(values(MicroBenchmark::Locality, "RR").len(), 16);
        assert_eq!(
            values(MicroBenchmark::Partitioning, "SW"),
            [1, 2, 4, 8, 16, 32, 64, 128, 256]
        );
        assert_eq!(values(MicroBenchmark::Partitioning, "RW").len(), 0);
        assert_eq!(
            values(MicroBenchmark::Order, "SR"),
            [-1, 0, 1, 2, 4, 8, 16, 32, 64, 128, 256]
        );
        assert_eq!(values(MicroBenchmark::Parallelism, "RW"), [1, 2, 4, 8, 16]);
        assert_eq!(values(MicroBenchmark::Mix, "SW-RW"), [1, 2, 4, 8, 16, 32, 64]);
        assert_eq!(values(MicroBenchmark::Pause, "SR")[8], 25_600);
        assert_eq!(
            values(MicroBenchmark::Bursts, "SR"),
            [10, 20, 40, 80, 160, 320, 640]
        );
    }

    #[test]
    fn no_run_leaves_its_target_or_moves_more_than_it() {
        for &benchmark in MicroBenchmark::ALL {
            for target_bytes in [1 << 20, 64 << 20] {
                for point in points(benchmark, &limits(target_bytes)) {
                    assert!(
                        point.ios * point.pattern.io_bytes <= target_bytes,
                        "{}",
                        point.name()
                    );
                    assert!(point.pattern.target_bytes <= target_bytes, "{}", point.name());
                    assert!(point.ignored < point.ios, "{}", point.name());
                }
            }
        }
    }

    #[test]
    fn sizes_that_the_target_does_not_take_are_left_out() {
        let limits = Limits {
            unit_bytes: 4096,
            ..limits(16 << 20)
        };
        let smallest = points(MicroBenchmark::Granularity, &limits)
            .iter()
            .map(|point| point.value)
            .min();
        assert_eq!(smallest, Some(4096));
    }
}
