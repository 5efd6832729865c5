//! Parses points in time: `7d`, `12h`, `30min`, `2026-01-31`.

use results::calendar;

/// Nanoseconds since 1970 of a time before `now_unix_ns`, or of the beginning of a day (UTC).
pub fn parse_timestamp(text: &str, now_unix_ns: u64) -> Result<u64, String> {
    let wrong = || format!("`{text}` is no time; write for example 30min, 12h, 7d, 2w or 2026-01-31");
    if let Some(days) = day_number(text) {
        return days.checked_mul(86_400_000_000_000).ok_or_else(wrong);
    }
    let split = text
        .find(|letter: char| !letter.is_ascii_digit())
        .ok_or_else(wrong)?;
    let (number, unit) = text.split_at(split);
    let seconds: u64 = match unit {
        "min" => 60,
        "h" => 3600,
        "d" => 86_400,
        "w" => 604_800,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let back_ns = number.saturating_mul(seconds).saturating_mul(1_000_000_000);
    Ok(now_unix_ns.saturating_sub(back_ns))
}

/// Days from 1970-01-01 to `YYYY-MM-DD`, years 1970 to 9999; `None` if that is not a date.
fn day_number(text: &str) -> Option<u64> {
    let parts: Vec<&str> = text.split('-').collect();
    let &[year, month, day] = &parts[..] else {
        return None;
    };
    if (year.len(), month.len(), day.len()) != (4, 2, 2) {
        return None;
    }
    let days = calendar::day_number(year.parse().ok()?, month.parse().ok()?, day.parse().ok()?)?;
    u64::try_from(days).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_NS: u64 = 86_400_000_000_000;

    #[test]
    fn dates_and_spans_are_timestamps() {
        let now = 30 * DAY_NS;
        assert_eq!(parse_timestamp("7d", now), Ok(23 * DAY_NS));
        assert_eq!(parse_timestamp("2w", now), Ok(16 * DAY_NS));
        assert_eq!(parse_timestamp("24h", now), Ok(29 * DAY_NS));
        assert_eq!(parse_timestamp("1440min", now), Ok(29 * DAY_NS));
        assert_eq!(parse_timestamp("9999w", now), Ok(0));
        assert_eq!(parse_timestamp("1970-01-02", now), Ok(DAY_NS));
        assert_eq!(
            parse_timestamp("2024-03-01", now),
            Ok(1_709_251_200 * 1_000_000_000)
        );
    }

    #[test]
    fn an_invalid_time_is_refused() {
        for text in [
            "",
            "7",
            "d",
            "7y",
            "2026-02-29",
            "2026-13-01",
            "2026-1-1",
            "1969-01-01",
            "x-01-01",
        ] {
            parse_timestamp(text, 0).expect_err(text);
        }
    }
}
