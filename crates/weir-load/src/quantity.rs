//! Numbers as people write them: `500k`, `10M`, `75%`, `1.5s`.
//!
//! Counts and rates: k = 1000. Sizes in bytes: k = 1024. Times: ms, s, m, h. Every
//! function takes any text and answers with what would have been right.

use std::time::Duration;

fn split(text: &str) -> Result<(f64, &str), String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: f64 = number
        .parse()
        .map_err(|_| format!("{text:?} does not begin with a number such as 10 or 1.5"))?;
    Ok((number, unit.trim()))
}

fn scaled(text: &str, k: f64, ending: &[&str], example: &str) -> Result<f64, String> {
    let (number, unit) = split(text)?;
    let lower = unit.to_ascii_lowercase();
    let prefix = ending.iter().find_map(|e| lower.strip_suffix(e)).unwrap_or(&lower);
    let power = match prefix {
        "" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        _ => {
            return Err(format!(
                "{text:?} has an unknown unit {unit:?}; write for instance {example}"
            ));
        }
    };
    let value = number * k.powi(power);
    if value.is_finite() { Ok(value) } else { Err(format!("{text:?} is too large")) }
}

fn whole(value: f64, text: &str) -> Result<u64, String> {
    // 2^53: beyond it a floating number no longer counts in ones.
    if value.fract() == 0.0 && value < 9_007_199_254_740_992.0 {
        Ok(value as u64)
    } else {
        Err(format!("{text:?} is not a whole number below 2^53"))
    }
}

/// A count: `1000`, `50M` (k = 1000).
pub fn parse_count(text: &str) -> Result<u64, String> {
    whole(scaled(text, 1000.0, &[], "1000, 500k or 50M")?, text)
}

/// A rate per second, above 0: `500k`, `1.5M` (k = 1000).
pub fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = scaled(text, 1000.0, &["pps", "/s"], "1000, 500k or 1.5M")?;
    if rate > 0.0 { Ok(rate) } else { Err("a rate of 0 sends nothing; give one above 0".into()) }
}

/// Bits per second, above 0: `100M`, `10G`, `10Gbit/s` (k = 1000).
pub fn parse_bit_rate(text: &str) -> Result<f64, String> {
    let rate = scaled(text, 1000.0, &["bit/s", "bits/s", "bps", "bit"], "100M or 10G")?;
    if rate > 0.0 { Ok(rate) } else { Err("a rate of 0 sends nothing; give one above 0".into()) }
}

/// A number of bytes: `64`, `10M`, `1.5G` (k = 1024).
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    whole(scaled(text, 1024.0, &["ib", "b"], "64, 1k or 10M")?, text)
}

/// A size in bytes that fits into memory: `64`, `1k`, `1.5k` (k = 1024).
pub fn parse_size(text: &str) -> Result<usize, String> {
    usize::try_from(parse_bytes(text)?)
        .map_err(|_| format!("{text:?} is more than this machine can address"))
}

/// A share of something, above 0 and at most 100 %: `75%` or `75`, as 0.75.
pub fn parse_percent(text: &str) -> Result<f64, String> {
    let (percent, unit) = split(text)?;
    if !matches!(unit, "" | "%") {
        return Err(format!("{text:?} has an unknown unit {unit:?}; write for instance 75%"));
    }
    let share = percent / 100.0;
    if share > 0.0 && share <= 1.0 {
        Ok(share)
    } else {
        Err(format!("{text:?} is not above 0% and at most 100%"))
    }
}

/// A time: `10` and `10s` are seconds; `500ns`, `10us`, `500ms`, `2m`, `1h`. At most a week.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    const WEEK_S: f64 = 7.0 * 24.0 * 3600.0;
    let (number, unit) = split(text)?;
    let unit_s = match unit {
        "" | "s" => 1.0,
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => {
            return Err(format!(
                "{text:?} has an unknown unit {unit:?}; write for instance 10, 500ms or 2m"
            ));
        }
    };
    let seconds = number * unit_s;
    if seconds > WEEK_S {
        return Err(format!("{text:?} is longer than a week"));
    }
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_usual_spellings() {
        assert_eq!(parse_count("500k"), Ok(500_000));
        assert_eq!(parse_count("1.5M"), Ok(1_500_000));
        assert_eq!(parse_rate("500kpps"), Ok(500_000.0));
        assert_eq!(parse_bit_rate("10Gbit/s"), Ok(1e10));
        assert_eq!(parse_bit_rate("10G"), Ok(1e10));
        assert_eq!(parse_size("1k"), Ok(1024));
        assert_eq!(parse_size("64KiB"), Ok(65_536));
        assert_eq!(parse_bytes("10G"), Ok(10 << 30));
        assert_eq!(parse_percent("75%"), Ok(0.75));
        assert_eq!(parse_time("10"), Ok(Duration::from_secs(10)));
        assert_eq!(parse_time("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_time("10us"), Ok(Duration::from_micros(10)));
        assert_eq!(parse_time("1500ns"), Ok(Duration::from_nanos(1500)));
        assert_eq!(parse_time("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_time("2m"), Ok(Duration::from_secs(120)));
    }

    #[test]
    fn absurd_values_are_refused() {
        assert!(parse_count("-1").is_err());
        assert!(parse_count("1.5").is_err());
        assert!(parse_count("99999999T").is_err());
        assert!(parse_rate("0").is_err());
        assert!(parse_rate(&"9".repeat(400)).is_err());
        assert!(parse_bit_rate("").is_err());
        assert!(parse_size("64q").is_err());
        assert!(parse_percent("101%").is_err());
        assert!(parse_percent("0").is_err());
        assert!(parse_time("2 fortnights").is_err());
        assert!(parse_time("10000h").is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_without_panic(text in "\\PC{0,20}") {
            let _ = (parse_count(&text), parse_rate(&text), parse_bit_rate(&text));
            let _ = (parse_size(&text), parse_percent(&text), parse_time(&text));
        }

        #[test]
        fn numbers_and_units_in_any_order(text in "[0-9.kKmMgGtTsh%b/ei ]{0,30}") {
            let _ = (parse_count(&text), parse_rate(&text), parse_bit_rate(&text));
            let _ = (parse_size(&text), parse_percent(&text), parse_time(&text));
        }
    }
}
