//! Moments in names of files, in UTC.

/// `YYYYMMDD-HHMMSS`, of seconds since 1970.
pub fn stamp(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}")
}

/// Year, month and day of a number of days since 1970. Years are counted from March, so that a leap day is a year's last.
const fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let january_or_february = if month <= 2 { 1 } else { 0 };
    (era * 400 + year_of_era + january_or_february, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_around_leap_days_and_new_year_are_told_right() {
        assert_eq!(stamp(0), "19700101-000000");
        assert_eq!(stamp(951_782_400), "20000229-000000");
        assert_eq!(stamp(1_709_251_199), "20240229-235959");
        assert_eq!(stamp(1_709_251_200), "20240301-000000");
        assert_eq!(stamp(1_798_761_599), "20261231-235959");
    }
}
