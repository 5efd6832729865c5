//! Number formats of fio job files.
//!
//! With fio's default base, `k`, `m`, `g`, `t` and `p` are powers of 1024, and `ki`, `mi` ... powers of 1000: the
//! opposite of the usual meaning, kept for old job files. A `b` may follow. Times are in seconds unless stated
//! otherwise.

use std::time::Duration;

/// A number of bytes.
pub fn bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("expected a size such as 4k, found `{text}`");
    let lower = text.trim().to_ascii_lowercase();
    if let Some(digits) = lower.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16).map_err(|_| wrong());
    }
    let end = lower.find(|c: char| !c.is_ascii_digit()).unwrap_or(lower.len());
    let (number, unit) = lower.split_at(end);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let factor = match unit.strip_suffix('b').unwrap_or(unit) {
        "" => 1,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        "t" => 1 << 40,
        "p" => 1 << 50,
        "ki" => 1000,
        "mi" => 1_000_000,
        "gi" => 1_000_000_000,
        "ti" => 1_000_000_000_000,
        "pi" => 1_000_000_000_000_000,
        _ => return Err(wrong()),
    };
    number
        .checked_mul(factor)
        .ok_or_else(|| format!("`{text}` is more than 2^64 bytes"))
}

/// A duration; a number without a unit is in `default_unit`.
pub fn time(text: &str, default_unit: Duration) -> Result<Duration, String> {
    let wrong = || format!("expected a time such as 10s or 500ms, found `{text}`");
    let lower = text.trim().to_ascii_lowercase();
    let end = lower.find(|c: char| !c.is_ascii_digit()).unwrap_or(lower.len());
    let (number, unit) = lower.split_at(end);
    let number: u32 = number.parse().map_err(|_| wrong())?;
    let unit = match unit {
        "" => default_unit,
        "us" | "usec" => Duration::from_micros(1),
        "ms" | "msec" => Duration::from_millis(1),
        "s" | "sec" => Duration::from_secs(1),
        "m" | "min" => Duration::from_secs(60),
        "h" => Duration::from_secs(3600),
        "d" => Duration::from_secs(86_400),
        _ => return Err(wrong()),
    };
    unit.checked_mul(number).ok_or_else(wrong)
}

/// A number without unit.
pub fn count(text: &str) -> Result<u64, String> {
    let found = text.trim().parse();
    found.map_err(|_| format!("expected a whole number, found `{text}`"))
}

/// A switch: like fio, treats an option without a value as 1.
pub fn switch(text: Option<&str>) -> Result<bool, String> {
    match text.map(str::trim) {
        None | Some("1" | "true") => Ok(true),
        Some("0" | "false") => Ok(false),
        Some(text) => Err(format!("expected 0 or 1, found `{text}`")),
    }
}

/// A percentage, with or without the percent sign.
pub fn percent(text: &str) -> Result<u8, String> {
    let number = text.trim().trim_end_matches('%').parse();
    match number {
        Ok(percent @ 0..=100) => Ok(percent),
        _ => Err(format!("expected 0 to 100 percent, found `{text}`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_fios_units() {
        for (text, expected) in [
            ("4k", 4096),
            ("4K", 4096),
            ("4kb", 4096),
            ("4ki", 4000),
            ("1MiB", 1_000_000),
            ("2g", 2 << 30),
            ("512", 512),
            ("0x200", 512),
        ] {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
        for text in ["", "k", "4q", "-1", "1.5m", "99999999999t"] {
            bytes(text).expect_err(text);
        }
    }

    #[test]
    fn times_have_the_unit_of_their_option() {
        assert_eq!(time("10", Duration::from_secs(1)), Ok(Duration::from_secs(10)));
        assert_eq!(
            time("10", Duration::from_micros(1)),
            Ok(Duration::from_micros(10))
        );
        assert_eq!(time("2m", Duration::from_secs(1)), Ok(Duration::from_secs(120)));
        assert_eq!(time("5ms", Duration::from_secs(1)), Ok(Duration::from_millis(5)));
        for text in ["", "ten", "1y", "-1"] {
            time(text, Duration::from_secs(1)).expect_err(text);
        }
    }

    #[test]
    fn a_switch_without_value_is_on() {
        assert_eq!(switch(None), Ok(true));
        assert_eq!(switch(Some("0")), Ok(false));
        switch(Some("yes")).expect_err("fio takes numbers");
    }
}
