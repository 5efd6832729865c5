//! Sizes and durations in option syntax: `4k`, `512K`, `1MiB`, `10ms`, `1s`.
//!
//! Sizes are powers of 1024 in every spelling (`k`, `K`, `KB` and `KiB` are all 1024 bytes), as in mount options.

use std::time::Duration;

use crate::Nanos;

/// Parses a size in bytes: digits and an optional unit (`b`, `k`, `m`, `g`, `t`, each also as `kb` or `kib`).
///
/// # Errors
/// A message with an example when the text has another form.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = split_unit(text);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => {
            return Err(format!(
                "`{text}` is no size; write for example 4k, 512K, 1m or 1MiB"
            ));
        }
    };
    let count: u64 = number
        .parse()
        .map_err(|_| format!("`{text}` is no size; write for example 4k, 512K, 1m or 1MiB"))?;
    count
        .checked_mul(1 << shift)
        .ok_or_else(|| format!("`{text}` is more than 2^64 bytes"))
}

/// Parses a duration: a number, possibly with a fraction, and a unit (`us`, `ms`, `s`, `m`; none means seconds).
///
/// # Errors
/// A message with an example when the text has another form.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is no duration; write for example 500us, 10ms, 1s or 0.5s");
    let (number, unit) = split_unit(text);
    let seconds_per_unit = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        _ => return Err(wrong()),
    };
    let count: f64 = number.parse().map_err(|_| wrong())?;
    let duration = Duration::try_from_secs_f64(count * seconds_per_unit).map_err(|_| wrong())?;
    // Rounded to whole microseconds, so that 10ms is exactly 10 ms despite binary fractions.
    let micros = duration.as_nanos().saturating_add(500) / 1000;
    u64::try_from(micros)
        .map(Duration::from_micros)
        .map_err(|_| wrong())
}

/// Parses a duration as [`parse_duration`] does, `ns` included, to the nanosecond.
///
/// # Errors
/// A message with an example when the text has another form.
pub fn parse_nanos(text: &str) -> Result<Nanos, String> {
    let wrong = || format!("`{text}` is no duration; write for example 25ns, 51.2us, 1.3ms or 0");
    let (number, unit) = split_unit(text);
    let nanos_per_unit = match unit {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "" | "s" => 1e9,
        "m" | "min" => 60e9,
        "h" => 3600e9,
        "d" => 86400e9,
        _ => return Err(wrong()),
    };
    let count: f64 = number.parse().map_err(|_| wrong())?;
    let duration = Duration::try_from_secs_f64(count * nanos_per_unit / 1e9).map_err(|_| wrong())?;
    u64::try_from(duration.as_nanos()).map(Nanos).map_err(|_| wrong())
}

/// Formats a size with the largest binary unit that leaves no fraction: `8 MiB`, `1536 KiB`.
#[must_use]
pub fn show_bytes(bytes: u64) -> String {
    for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes != 0 && bytes.trailing_zeros() >= shift {
            return format!("{} {unit}", bytes >> shift);
        }
    }
    format!("{bytes} B")
}

/// Formats a size for people: exact up to a KiB, then with at most one decimal: `1.5 MiB`.
#[must_use]
pub fn about_bytes(bytes: u64) -> String {
    for (shift, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
        let tenths = u128::from(bytes) * 10 / (1 << shift);
        if tenths >= 10 {
            return match tenths % 10 {
                0 => format!("{} {unit}", tenths / 10),
                rest => format!("{}.{rest} {unit}", tenths / 10),
            };
        }
    }
    format!("{bytes} B")
}

fn split_unit(text: &str) -> (&str, &str) {
    let end = text
        .find(|character: char| !(character.is_ascii_digit() || character == '.'))
        .unwrap_or(text.len());
    text.split_at(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024_in_every_spelling() {
        for text in ["4k", "4K", "4kb", "4KiB", "4096", "4096b"] {
            assert_eq!(parse_bytes(text), Ok(4096), "{text}");
        }
        assert_eq!(parse_bytes("1m"), Ok(1 << 20));
        assert_eq!(parse_bytes("3GiB"), Ok(3 << 30));
    }

    #[test]
    fn an_invalid_size_is_refused_with_an_example() {
        for text in [
            "",
            "k",
            "-1",
            "1.5m",
            "4 k",
            "4kk",
            "99999999999999999999",
            "99999999999t",
        ] {
            let message = parse_bytes(text).expect_err(text);
            assert!(message.contains(text), "{message}");
        }
    }

    #[test]
    fn durations_take_fractions_and_units() {
        assert_eq!(parse_duration("10ms"), Ok(Duration::from_millis(10)));
        assert_eq!(parse_duration("1"), Ok(Duration::from_secs(1)));
        assert_eq!(parse_duration("0.25s"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_duration("500us"), Ok(Duration::from_micros(500)));
        assert_eq!(parse_duration("0"), Ok(Duration::ZERO));
        for text in ["", "ms", "1h", "-1s", "1..2s"] {
            parse_duration(text).expect_err(text);
        }
    }

    #[test]
    fn durations_to_the_nanosecond() {
        for (text, nanos) in [
            ("25ns", 25),
            ("51.2us", 51_200),
            ("1.3ms", 1_300_000),
            ("2", 2_000_000_000),
            ("0", 0),
        ] {
            assert_eq!(parse_nanos(text), Ok(Nanos(nanos)), "{text}");
        }
        for text in ["", "ns", "1y", "-1s", "1..2s"] {
            parse_nanos(text).expect_err(text);
        }
    }

    #[test]
    fn sizes_for_people_have_at_most_one_decimal() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536 << 10, "1.5 MiB"),
            (33_900, "33.1 KiB"),
            (u64::MAX, "16777215.9 TiB"),
        ] {
            assert_eq!(about_bytes(bytes), text);
        }
    }

    #[test]
    fn shown_sizes_use_the_largest_exact_unit() {
        assert_eq!(show_bytes(8 << 20), "8 MiB");
        assert_eq!(show_bytes(1536 << 10), "1536 KiB");
        assert_eq!(show_bytes(1000), "1000 B");
        assert_eq!(show_bytes(0), "0 B");
    }
}
