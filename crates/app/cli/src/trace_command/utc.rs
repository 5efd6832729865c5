//! UTC times in file names.

use report::number::date_and_time;

/// Formats seconds since 1970 as `YYYYMMDD-HHMMSS`.
pub fn stamp(seconds: u64) -> String {
    let text = date_and_time(i64::try_from(seconds).unwrap_or(i64::MAX));
    text.replace(['-', ':'], "").replace(' ', "-")
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
