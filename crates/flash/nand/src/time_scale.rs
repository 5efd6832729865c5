//! Ratio of virtual time to real time, for clocks that run faster or slower than the host's.
//!
//! The ratio is a decimal number with six places, and durations are converted by integer arithmetic. Clocks convert the
//! time since their start, not single steps, so rounding does not accumulate.

use std::fmt;
use std::str::FromStr;

use media::Nanos;
use thiserror::Error;

/// One, in units of the ratio.
const ONE: u64 = 1_000_000;
const DECIMALS: usize = 6;

const MIN: u64 = ONE / 100;
const MAX: u64 = 1000 * ONE;

/// Virtual time per real time. Invariant: 0.01 to 1000, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeScale {
    millionths: u64,
}

/// The text is not a time scale.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "`{text}` is no time scale: expected a decimal number from 0.01 to 1000 with at most six decimals, such as 9 or 0.5"
)]
pub struct TimeScaleError {
    text: String,
}

impl TimeScale {
    /// Virtual time is real time.
    pub const REAL: Self = Self { millionths: ONE };

    /// Virtual time that passes during `real`, rounded down.
    #[must_use]
    pub fn to_virtual(self, real: Nanos) -> Nanos {
        saturating(u128::from(real.0) * u128::from(self.millionths) / u128::from(ONE))
    }

    /// Real time until `duration` of virtual time has passed, rounded up: no deadline is reached early.
    #[must_use]
    pub fn to_real(self, duration: Nanos) -> Nanos {
        saturating((u128::from(duration.0) * u128::from(ONE)).div_ceil(u128::from(self.millionths)))
    }

    /// The ratio as a floating-point number.
    #[must_use]
    pub fn ratio(self) -> f64 {
        // At most 10^9, which a double represents exactly.
        u32::try_from(self.millionths).map_or(f64::INFINITY, f64::from) / 1e6
    }
}

fn saturating(nanos: u128) -> Nanos {
    Nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

impl FromStr for TimeScale {
    type Err = TimeScaleError;

    fn from_str(text: &str) -> Result<Self, TimeScaleError> {
        millionths(text)
            .filter(|millionths| (MIN..=MAX).contains(millionths))
            .map(|millionths| Self { millionths })
            .ok_or_else(|| TimeScaleError {
                text: text.to_owned(),
            })
    }
}

fn millionths(text: &str) -> Option<u64> {
    let (whole, decimals) = match text.split_once('.') {
        Some((_, "")) => return None,
        Some(parts) => parts,
        None => (text, ""),
    };
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_number(whole) || !is_number(decimals) || decimals.len() > DECIMALS {
        return None;
    }
    let whole: u64 = whole.parse().ok()?;
    let decimals: u64 = format!("{decimals:0<DECIMALS$}").parse().ok()?;
    whole.checked_mul(ONE)?.checked_add(decimals)
}

impl fmt::Display for TimeScale {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.ratio())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale(text: &str) -> TimeScale {
        text.parse().unwrap()
    }

    #[test]
    fn decimal_numbers_within_the_range_are_taken_exactly() {
        for (text, shown, ratio) in [
            ("1", "1", 1.0),
            ("9", "9", 9.0),
            ("0.5", "0.5", 0.5),
            ("0.01", "0.01", 0.01),
            ("1000.000000", "1000", 1000.0),
            ("2.000001", "2.000001", 2.000_001),
        ] {
            assert_eq!(scale(text).to_string(), shown);
            assert!((scale(text).ratio() - ratio).abs() < 1e-12, "{text}");
        }
        assert_eq!(scale("1.0"), TimeScale::REAL);
    }

    #[test]
    fn everything_else_is_refused_with_the_range() {
        for text in [
            "",
            "0",
            "0.0",
            "-1",
            "-0.5",
            "+2",
            "nan",
            "NaN",
            "inf",
            "fast",
            "9x",
            " 9",
            "1e2",
            ".5",
            "5.",
            "1.2.3",
            "0.009999",
            "1000.000001",
            "0.1234567",
            "18446744073709551616",
            "18446744073709551615",
        ] {
            let message = text.parse::<TimeScale>().expect_err(text).to_string();
            assert!(
                message.contains(&format!("`{text}`")) && message.contains("0.01 to 1000"),
                "{message}"
            );
        }
    }

    #[test]
    fn durations_are_converted_both_ways_and_never_end_early() {
        assert_eq!(scale("9").to_virtual(Nanos(1_000_000_000)), Nanos(9_000_000_000));
        assert_eq!(scale("9").to_real(Nanos(10)), Nanos(2), "10/9 rounded up");
        assert_eq!(scale("0.5").to_virtual(Nanos(7)), Nanos(3));
        assert_eq!(scale("0.5").to_real(Nanos(7)), Nanos(14));
        assert_eq!(TimeScale::REAL.to_virtual(Nanos(u64::MAX)), Nanos(u64::MAX));
        assert_eq!(scale("1000").to_virtual(Nanos(u64::MAX)), Nanos(u64::MAX));
        assert_eq!(scale("0.01").to_real(Nanos(u64::MAX)), Nanos(u64::MAX));
        for text in ["9", "0.333333", "2.000001", "1000", "0.01", "1"] {
            for moment in [0, 1, 2, 999, 1_000_003, 86_400_000_000_000] {
                let moment = Nanos(moment);
                let real = scale(text).to_real(moment);
                assert!(scale(text).to_virtual(real) >= moment, "{text}, {moment}");
            }
        }
    }
}
