//! Times of day as they stand in documents and in names of folders.

use std::time::{SystemTime, UNIX_EPOCH};

const DAY_S: u64 = 24 * 3600;

/// A point in time in UTC, to the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Utc {
    year: u64,
    month: u64,
    day: u64,
    hour: u64,
    minute: u64,
    second: u64,
}

impl Utc {
    /// Now, by the clock of this machine; 1970 if that is set to an earlier year.
    pub fn now() -> Self {
        Self::at(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
    }

    /// So many seconds after 1970 began, by Howard Hinnant's `civil_from_days`
    /// (<https://howardhinnant.github.io/date_algorithms.html>): years begin in March, so that a leap day is the last of
    /// its year, and 400 years have always the same number of days.
    fn at(unix_s: u64) -> Self {
        let days = unix_s / DAY_S + 719_468; // since 1 March 0000
        let (era, of_era) = (days / 146_097, days % 146_097);
        let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month = (5 * of_year + 2) / 153; // from March
        let day = of_year - (153 * month + 2) / 5 + 1;
        let (month, turn) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
        let of_day = unix_s % DAY_S;
        Self {
            year: era * 400 + year_of_era + turn,
            month,
            day,
            hour: of_day / 3600,
            minute: of_day / 60 % 60,
            second: of_day % 60,
        }
    }

    /// As documents have it (RFC 3339): `2026-11-26T05:06:07Z`.
    pub fn rfc_3339(self) -> String {
        self.separated_by(':')
    }

    /// As the name of a file on any system: `2026-11-26T05-06-07Z`.
    pub fn file_name(self) -> String {
        self.separated_by('-')
    }

    fn separated_by(self, between: char) -> String {
        let Self { year, month, day, hour, minute, second } = self;
        format!("{year:04}-{month:02}-{day:02}T{hour:02}{between}{minute:02}{between}{second:02}Z")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those of `date --utc --date @SECONDS`.
    #[test]
    fn times_are_those_of_the_calendar() {
        for (unix_s, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (68_169_599, "1972-02-28T23:59:59Z"),
            (68_169_600, "1972-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (253_402_300_799, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(Utc::at(unix_s).rfc_3339(), text);
        }
        assert_eq!(Utc::at(1_735_689_599).file_name(), "2024-12-31T23-59-59Z");
    }

    /// Each day follows the one before it, through all 400 years after which the calendar repeats itself.
    #[test]
    fn days_follow_each_other() {
        let mut last = Utc::at(0);
        for day in 1..=146_097 {
            let next = Utc::at(day * DAY_S);
            let of = |years| next.year.is_multiple_of(years);
            let leap = of(4) && (!of(100) || of(400));
            match (next.day, next.month) {
                (1, 1) => assert_eq!((last.year + 1, last.month, last.day), (next.year, 12, 31)),
                (1, month) => {
                    let days = match last.month {
                        2 => 28 + u64::from(leap),
                        4 | 6 | 9 | 11 => 30,
                        _ => 31,
                    };
                    let expected = (next.year, month - 1, days);
                    assert_eq!((last.year, last.month, last.day), expected);
                }
                (of_month, month) => {
                    let expected = (next.year, month, of_month - 1);
                    assert_eq!((last.year, last.month, last.day), expected);
                }
            }
            last = next;
        }
        assert_eq!(last.year, 2370);
    }
}
