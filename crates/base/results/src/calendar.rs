//! The Gregorian calendar in UTC: dates of days counted from 1970-01-01, and the reverse.

/// Seconds of a day; UTC's leap seconds have no number of their own.
pub const DAY_SECONDS: i64 = 86_400;

/// Date (year, month, day) of a day counted from 1970-01-01.
///
/// Years are counted from March, so that the leap day is the last day of a year, in eras of 400 years of 146,097 days
/// each; 719,468 days lie between 0000-03-01 and 1970-01-01.
#[must_use]
pub fn date(days: i64) -> (i64, i64, i64) {
    let days = days.saturating_add(719_468);
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

/// Days from 1970-01-01 to a date of the years 0 to 9999; `None` if there is no such date.
#[must_use]
pub fn day_number(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(0..=9999).contains(&year) {
        return None;
    }
    // March is month 0, as in `date`.
    let shifted_month = (month + 9) % 12;
    let shifted_year = year - i64::from(month <= 2);
    let leap_days = shifted_year.div_euclid(4) - shifted_year.div_euclid(100) + shifted_year.div_euclid(400);
    let days = 365 * shifted_year + leap_days + (153 * shifted_month + 2) / 5 + day - 1 - 719_468;
    (date(days) == (year, month, day)).then_some(days)
}

/// Seconds since 1970 as date and time: `2026-01-31 23:59:59`.
#[must_use]
pub fn date_and_time(seconds: i64) -> String {
    let (year, month, day) = date(seconds.div_euclid(DAY_SECONDS));
    format!("{year:04}-{month:02}-{day:02} {}", time_of_day(seconds))
}

/// Seconds since 1970 as the C library's `ctime` prints them: `Thu Jan  1 00:00:00 1970`.
#[must_use]
pub fn ctime(seconds: i64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let word = |words: &[&'static str], index: i64| {
        usize::try_from(index).ok().and_then(|at| words.get(at).copied())
    };
    let days = seconds.div_euclid(DAY_SECONDS);
    let (year, month, day) = date(days);
    let (week_day, month) = (word(&DAYS, days.rem_euclid(7)), word(&MONTHS, month - 1));
    format!(
        "{} {} {day:2} {} {year}",
        week_day.unwrap_or_default(),
        month.unwrap_or_default(),
        time_of_day(seconds)
    )
}

fn time_of_day(seconds: i64) -> String {
    let second = seconds.rem_euclid(DAY_SECONDS);
    format!("{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_day_is_the_reverse_of_its_date() {
        for days in (-719_468..2_900_000).step_by(97) {
            let (year, month, day) = date(days);
            assert_eq!(
                day_number(year, month, day),
                (0..=9999).contains(&year).then_some(days),
                "{days}"
            );
        }
        for (year, month, day) in [
            (2026, 2, 29),
            (2026, 13, 1),
            (2026, 0, 1),
            (2026, 1, 0),
            (1900, 2, 29),
            (10_000, 1, 1),
        ] {
            assert_eq!(day_number(year, month, day), None, "{year}-{month}-{day}");
        }
        assert_eq!(day_number(2000, 2, 29), Some(11_016));
    }

    #[test]
    fn times_have_the_words_of_the_c_library() {
        assert_eq!(ctime(0), "Thu Jan  1 00:00:00 1970");
        assert_eq!(ctime(1_795_230_530), "Sat Nov 21 03:08:50 2026");
        assert_eq!(ctime(1_709_210_096), "Thu Feb 29 12:34:56 2024");
    }
}
