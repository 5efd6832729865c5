//! Formats numbers: separators, significant digits, durations, dates. Non-finite values are always "n/a".

use results::nearest_f64;

/// Text for missing values.
pub const NOT_AVAILABLE: &str = "n/a";

/// An integer with thousands separators: `131,072`.
#[must_use]
pub fn count(value: f64) -> String {
    if !value.is_finite() {
        return NOT_AVAILABLE.to_owned();
    }
    // Larger values have more digits than the precision of a floating-point number.
    if value.abs() < 1e15 {
        separated(&format!("{value:.0}"))
    } else {
        format!("{value:.2e}")
    }
}

/// About three significant digits: `1,234`, `412`, `87.3`, `9.88`, `0.0123`.
#[must_use]
pub fn significant(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        NOT_AVAILABLE.to_owned()
    } else if size == 0.0 {
        "0".to_owned()
    } else if size >= 99.95 {
        count(value)
    } else if size >= 9.995 {
        format!("{value:.1}")
    } else if size >= 0.9995 {
        format!("{value:.2}")
    } else if size >= 0.09995 {
        format!("{value:.3}")
    } else if size >= 0.000_1 {
        format!("{value:.4}")
    } else {
        format!("{value:.1e}")
    }
}

/// A ratio with two decimals, or two significant digits if it is small: `0.87`, `0.0041`.
#[must_use]
pub fn ratio(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        NOT_AVAILABLE.to_owned()
    } else if size >= 0.0095 || size == 0.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.4}")
    }
}

/// A duration in a suitable unit: `850 ns`, `12.3 µs`, `4.56 ms`, `1.20 s`.
#[must_use]
pub fn duration_ns(value: u64) -> String {
    let nanoseconds = nearest_f64(value);
    match value {
        0..1_000 => format!("{value} ns"),
        1_000..1_000_000 => format!("{} µs", significant(nanoseconds / 1e3)),
        1_000_000..1_000_000_000 => format!("{} ms", significant(nanoseconds / 1e6)),
        _ => format!("{} s", significant(nanoseconds / 1e9)),
    }
}

/// A size in binary units: `512 B`, `4 KiB`, `7.75 GiB`.
#[must_use]
pub fn bytes(value: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut size = nearest_f64(value);
    let mut unit = units[0];
    for next in &units[1..] {
        if size < 1024.0 {
            break;
        }
        size /= 1024.0;
        unit = next;
    }
    if size.fract() == 0.0 {
        format!("{size:.0} {unit}")
    } else {
        format!("{} {unit}", significant(size))
    }
}

pub use results::calendar::{date, date_and_time};

/// A time in UTC: `2026-01-31 23:59:59 UTC`.
#[must_use]
pub fn utc(unix_ns: u64) -> String {
    let seconds = i64::try_from(unix_ns / 1_000_000_000).unwrap_or(i64::MAX);
    date_and_time(seconds) + " UTC"
}

fn separated(digits: &str) -> String {
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |rest| ("-", rest));
    let mut text = String::from(sign);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated() {
        let values = [0.0, 7.0, 999.0, 1_000.0, 131_072.0, -1_234_567.0, f64::NAN];
        let texts = values.map(count);
        assert_eq!(texts, ["0", "7", "999", "1,000", "131,072", "-1,234,567", "n/a"]);
    }

    #[test]
    fn three_digits_are_shown_at_every_size() {
        let values = [
            1234.4,
            412.3,
            99.96,
            87.25,
            9.876,
            1.0,
            0.1234,
            0.0123,
            0.0,
            f64::INFINITY,
        ];
        let texts = values.map(significant);
        assert_eq!(
            texts,
            [
                "1,234", "412", "100", "87.2", "9.88", "1.00", "0.123", "0.0123", "0", "n/a"
            ]
        );
    }

    #[test]
    fn ratios_have_two_decimals_unless_small() {
        assert_eq!(
            [0.874, 1.0, 0.05, 0.0041, 0.0].map(ratio),
            ["0.87", "1.00", "0.05", "0.0041", "0.00"]
        );
    }

    #[test]
    fn durations_and_sizes_choose_their_unit() {
        assert_eq!(
            [850, 12_300, 4_560_000, 1_200_000_000].map(duration_ns),
            ["850 ns", "12.3 µs", "4.56 ms", "1.20 s"]
        );
        assert_eq!(
            [512, 4096, 8_321_499_136].map(bytes),
            ["512 B", "4 KiB", "7.75 GiB"]
        );
    }

    #[test]
    fn moments_are_dates_of_the_gregorian_calendar() {
        let seconds = [0, 951_782_400, 1_709_164_800, 4_102_444_799];
        let texts = seconds.map(|seconds: u64| utc(seconds * 1_000_000_000));
        assert_eq!(
            texts,
            [
                "1970-01-01 00:00:00 UTC",
                "2000-02-29 00:00:00 UTC",
                "2024-02-29 00:00:00 UTC",
                "2099-12-31 23:59:59 UTC"
            ]
        );
    }
}
