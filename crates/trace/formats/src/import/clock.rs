//! Times of other tools: `SECONDS.FRACTION` as nanoseconds, relative to the first one.

/// Parses a decimal number of seconds, to the nanosecond.
pub fn nanoseconds(text: &str) -> Option<u64> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: u64 = digits(seconds)?;
    // Further digits are dropped; printed floating point numbers have them.
    let fraction = fraction.get(..fraction.len().min(9))?;
    let scale = 10_u64.pow(9 - u32::try_from(fraction.len()).ok()?);
    let part = if fraction.is_empty() { 0 } else { digits(fraction)? };
    seconds.checked_mul(1_000_000_000)?.checked_add(part * scale)
}

/// Parses a number that consists only of digits: `parse` would accept a sign, too.
pub fn digits(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

/// Makes times relative to the first one.
#[derive(Debug, Default)]
pub struct Clock {
    base_ns: Option<u64>,
}

impl Clock {
    pub fn relative(&mut self, time_ns: u64) -> u64 {
        let base = *self.base_ns.get_or_insert(time_ns);
        time_ns.saturating_sub(base)
    }

    pub const fn base_ns(&self) -> Option<u64> {
        self.base_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_read_to_the_nanosecond() {
        for (text, expected) in [
            ("0.000000001", Some(1)),
            ("1398406382.756832267", Some(1_398_406_382_756_832_267)),
            ("44186.02139", Some(44_186_021_390_000)),
            ("7", Some(7_000_000_000)),
            ("1.0000000019", Some(1_000_000_001)),
            ("", None),
            ("1.x", None),
            ("-1.0", None),
            ("+1.0", None),
            ("99999999999999999999.0", None),
        ] {
            assert_eq!(nanoseconds(text), expected, "{text}");
        }
    }
}
