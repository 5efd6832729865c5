//! Draws numbers from published distributions so that counts and totals are met exactly.
//!
//! All arithmetic is on integers: the same seed gives the same numbers on every machine.

use serde::Deserialize;

use crate::random::Random;

/// One bucket of a distribution: numbers above one bound, up to another, and their weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Exclusive lower bound.
    pub above: u64,
    /// Inclusive upper bound.
    pub up_to: u64,
    /// Frequency relative to the other buckets.
    pub weight: u64,
}

/// The property that is preserved when numbers are adjusted to meet their total.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Keep {
    /// Each number stays in its bucket: the shares are published.
    Buckets,
    /// All numbers are multiplied by one factor: the shape is borrowed, the total is published.
    Shape,
}

/// Splits `count` by weights into whole numbers that add up to `count`, largest remainders first.
pub fn apportion(weights: &[u64], count: u64) -> Vec<u64> {
    let total: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    if total == 0 {
        return vec![0; weights.len()];
    }
    let exact = |weight: u64| u128::from(weight) * u128::from(count);
    let mut parts: Vec<u64> = weights
        .iter()
        .map(|weight| u64::try_from(exact(*weight) / total).expect("a part is at most the whole"))
        .collect();
    let mut places: Vec<usize> = (0..weights.len()).collect();
    places.sort_by_key(|&place| std::cmp::Reverse((exact(weights[place]) % total, place)));
    let missing = count - parts.iter().sum::<u64>();
    let missing = usize::try_from(missing).expect("fewer are missing than there are weights");
    for &place in &places[..missing] {
        parts[place] += 1;
    }
    parts
}

/// Draws `count` multiples of `unit`, in the shares of `buckets`, that add up to exactly `total`, in random order.
///
/// If the buckets cannot give `total`, returns the smallest and largest total that they can.
pub fn numbers(
    buckets: &[Bucket],
    keep: Keep,
    count: u64,
    total: u64,
    unit: u64,
    random: &mut Random,
) -> Result<Vec<u64>, (u64, u64)> {
    let weights: Vec<u64> = buckets.iter().map(|bucket| bucket.weight).collect();
    let largest = buckets.iter().map(|bucket| bucket.up_to).max().unwrap_or(unit) / unit;
    let mut drawn = Vec::new();
    for (bucket, count) in buckets.iter().zip(apportion(&weights, count)) {
        let (low, high) = (
            bucket.above / unit + 1,
            (bucket.up_to / unit).max(bucket.above / unit + 1),
        );
        for _ in 0..count {
            let value = low + random.below(high - low + 1);
            drawn.push(match keep {
                Keep::Buckets => Bounded { value, low, high },
                // Sixteen times the largest published number: only a total that is far off needs more.
                Keep::Shape => Bounded {
                    value,
                    low: 1,
                    high: largest.saturating_mul(16),
                },
            });
        }
    }
    random.shuffle(&mut drawn);
    let fitted = fit(&drawn, total / unit).map_err(|(low, high)| (low * unit, high * unit))?;
    Ok(fitted.into_iter().map(|value| value * unit).collect())
}

#[derive(Clone, Copy, Debug)]
struct Bounded {
    value: u64,
    low: u64,
    high: u64,
}

/// 1.0 in the fixed-point factors below, which have 32 fraction bits.
const ONE: u64 = 1 << 32;

impl Bounded {
    fn times(self, factor: u64) -> u64 {
        let product = u128::from(self.value) * u128::from(factor) / u128::from(ONE);
        u64::try_from(product)
            .unwrap_or(u64::MAX)
            .clamp(self.low, self.high)
    }
}

/// Scales all numbers by one factor, within their bounds, so that they add up to `total`.
fn fit(numbers: &[Bounded], total: u64) -> Result<Vec<u64>, (u64, u64)> {
    let sum = |of: &dyn Fn(&Bounded) -> u64| numbers.iter().map(of).fold(0, u64::saturating_add);
    let (lowest, highest) = (sum(&|number| number.low), sum(&|number| number.high));
    if !(lowest..=highest).contains(&total) {
        return Err((lowest, highest));
    }
    // The largest factor whose sum does not exceed the total; the sum grows with the factor.
    let (mut fits, mut too_much) = (0, u64::MAX / 2);
    while too_much - fits > 1 {
        let middle = fits + (too_much - fits) / 2;
        if sum(&|number| number.times(middle)) <= total {
            fits = middle;
        } else {
            too_much = middle;
        }
    }
    let mut fitted: Vec<u64> = numbers.iter().map(|number| number.times(fits)).collect();
    let mut missing = total - fitted.iter().sum::<u64>();
    // The next factor would exceed the total, so the rest is less than one unit per number. If many numbers are at
    // their bound, this takes a few rounds.
    while missing > 0 {
        for (value, number) in fitted.iter_mut().zip(numbers) {
            if missing > 0 && *value < number.high {
                *value += 1;
                missing -= 1;
            }
        }
    }
    Ok(fitted)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUCKETS: [Bucket; 3] = [
        Bucket {
            above: 0,
            up_to: 4096,
            weight: 50,
        },
        Bucket {
            above: 4096,
            up_to: 65_536,
            weight: 30,
        },
        Bucket {
            above: 65_536,
            up_to: 524_288,
            weight: 20,
        },
    ];

    #[test]
    fn parts_add_up_and_follow_the_weights() {
        assert_eq!(apportion(&[1, 1, 1], 10), [3, 3, 4]);
        assert_eq!(apportion(&[70, 30], 10), [7, 3]);
        assert_eq!(apportion(&[0, 5], 7), [0, 7]);
        assert_eq!(apportion(&[3, 3], 0), [0, 0]);
    }

    #[test]
    fn totals_and_shares_are_exact() {
        for keep in [Keep::Buckets, Keep::Shape] {
            for total in [60_000_000, 100_000_000] {
                let total = total / 4096 * 4096;
                let mut random = Random::named(1, "test");
                let sizes = numbers(&BUCKETS, keep, 1000, total, 4096, &mut random).unwrap();
                assert_eq!(sizes.iter().sum::<u64>(), total);
                assert_eq!(sizes.len(), 1000);
                assert!(sizes.iter().all(|size| *size > 0 && size % 4096 == 0));
                if keep == Keep::Buckets {
                    assert_eq!(sizes.iter().filter(|size| **size <= 4096).count(), 500);
                    assert_eq!(sizes.iter().filter(|size| **size > 65_536).count(), 200);
                }
            }
        }
    }

    #[test]
    fn a_total_that_the_buckets_cannot_give_is_refused_with_what_they_can() {
        let mut random = Random::named(1, "test");
        let refused = numbers(&BUCKETS, Keep::Buckets, 10, 1 << 30, 1, &mut random).unwrap_err();
        assert_eq!(
            refused,
            (5 + 3 * 4097 + 2 * 65_537, 5 * 4096 + 3 * 65_536 + 2 * 524_288)
        );
    }
}
