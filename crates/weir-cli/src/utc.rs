//! Times of day as they stand in documents and in names of folders.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A point in time in UTC, to the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Utc {
    unix_s: u64,
}

impl Utc {
    /// Now, by the clock of this machine; 1970 if that is set to an earlier year.
    pub fn now() -> Self {
        Self::at(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
    }

    /// So many seconds after 1970 began.
    fn at(unix_s: u64) -> Self {
        Self { unix_s }
    }

    /// As documents have it (RFC 3339): `2026-11-26T05:06:07Z`.
    pub fn rfc_3339(self) -> String {
        let time = UNIX_EPOCH + Duration::from_secs(self.unix_s);
        humantime::format_rfc3339_seconds(time).to_string()
    }

    /// As the name of a file on any system: `2026-11-26T05-06-07Z`.
    pub fn file_name(self) -> String {
        self.rfc_3339().replace(':', "-")
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

    struct Date {
        year: u64,
        month: u64,
        day: u64,
    }

    /// The date of a day, by its number from 0.
    fn date(day: u64) -> Date {
        let text = Utc::at(day * 24 * 3600).rfc_3339();
        let number = |at: std::ops::Range<usize>| text[at].parse().unwrap();
        Date { year: number(0..4), month: number(5..7), day: number(8..10) }
    }

    /// Each day follows the one before it, through all 400 years after which the calendar repeats itself.
    #[test]
    fn days_follow_each_other() {
        let mut last = date(0);
        for day in 1..=146_097 {
            let next = date(day);
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
