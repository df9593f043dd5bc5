//! Figures as short text.

/// Shown where a figure is unknown.
pub const UNKNOWN: &str = "-";

/// A count or rate with three figures: `2.05 M`, `384 k`, `12`. k is 1000.
pub fn si(value: f64) -> String {
    let (scaled, suffix) = match value.abs() {
        v if v >= 999.5e6 => (value / 1e9, " G"),
        v if v >= 999.5e3 => (value / 1e6, " M"),
        v if v >= 999.5 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    format!("{}{suffix}", three_figures(scaled))
}

/// A size with three figures: `146 MiB`, `4.00 KiB`, `12 B`. KiB is 1024 bytes.
pub fn bytes(value: f64) -> String {
    let (scaled, suffix) = match value.abs() {
        v if v >= f64::from(1 << 30) => (value / f64::from(1 << 30), " GiB"),
        v if v >= f64::from(1 << 20) => (value / f64::from(1 << 20), " MiB"),
        v if v >= 1024.0 => (value / 1024.0, " KiB"),
        _ => (value, " B"),
    };
    format!("{}{suffix}", three_figures(scaled))
}

/// Nanoseconds as microseconds with two or three figures: `4.7`, `98`, `98600`.
pub fn microseconds(nanoseconds: f64) -> String {
    let value = nanoseconds / 1000.0;
    if value < 99.95 { format!("{value:.1}") } else { format!("{value:.0}") }
}

/// A figure with at most three places that mean something; whole numbers below 1000 have no
/// fraction.
pub fn three_figures(value: f64) -> String {
    match value.abs() {
        v if v.fract() == 0.0 && v < 1000.0 => format!("{value:.0}"),
        v if v < 9.995 => format!("{value:.2}"),
        v if v < 99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// A count per 1000: `1000`, `46`, `1.5`, `0.04`.
pub fn per_1000(value: f64) -> String {
    match value.abs() {
        v if v >= 9.95 || v == 0.0 => format!("{value:.0}"),
        v if v >= 0.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// A count per message: `12`, `2.0`, `0.04`, `0.001`.
pub fn per_message(value: f64) -> String {
    match value.abs() {
        v if v >= 9.95 || v == 0.0 => format!("{value:.0}"),
        v if v >= 0.995 => format!("{value:.1}"),
        v if v >= 0.00995 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// How many times one figure another is: `0.98`, `1.00`, `20979`.
pub fn factor(ratio: f64) -> String {
    if ratio < 99.5 { format!("{ratio:.2}") } else { format!("{ratio:.0}") }
}

/// A share (0.03) as percent (`3 %`); small ones keep a decimal place.
pub fn percent(share: f64) -> String {
    let value = share * 100.0;
    if value.abs() < 9.95 && value.fract().abs() > 1e-9 {
        format!("{value:.1} %")
    } else {
        format!("{value:.0} %")
    }
}

/// The same of percent.
pub fn percent_of(value: f64) -> String {
    percent(value / 100.0)
}

/// Percent that are near 100 keep a decimal, so that a small loss is seen.
pub fn percent_of_100(value: f64) -> String {
    match value {
        v if (99.995..=100.005).contains(&v) => "100 %".into(),
        v if v > 90.0 => format!("{v:.2} %"),
        v => percent_of(v),
    }
}

/// A figure without a fraction.
pub fn whole(value: f64) -> String {
    format!("{value:.0}")
}

/// Text of a known figure.
pub fn or_unknown(value: Option<f64>, text: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| UNKNOWN.into(), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_figures_and_a_prefix() {
        for (value, text) in [
            (0.0, "0"),
            (12.0, "12"),
            (999.0, "999"),
            (999.6, "1.00 k"),
            (384_000.0, "384 k"),
            (999_499.0, "999 k"),
            (999_600.0, "1.00 M"),
            (2_054_321.0, "2.05 M"),
            (20_543_210.0, "20.5 M"),
            (1.5e9, "1.50 G"),
        ] {
            assert_eq!(si(value), text);
        }
    }

    #[test]
    fn sizes_times_and_shares() {
        assert_eq!(bytes(153_600_000.0), "146 MiB");
        assert_eq!((bytes(4096.0), bytes(12.0)), ("4 KiB".into(), "12 B".into()));
        assert_eq!(
            (microseconds(4700.0), microseconds(98_600_000.0)),
            ("4.7".into(), "98600".into())
        );
        assert_eq!(
            (percent(0.031), percent(0.5), percent(0.0)),
            ("3.1 %".into(), "50 %".into(), "0 %".into())
        );
        let shown: Vec<String> = [1000.0, 45.6, 1.0, 0.04, 0.0].map(per_1000).to_vec();
        assert_eq!(shown, ["1000", "46", "1.0", "0.04", "0"]);
        let shown: Vec<String> = [12.3, 2.0, 0.04, 0.001, 0.0].map(per_message).to_vec();
        assert_eq!(shown, ["12", "2.0", "0.04", "0.001", "0"]);
        assert_eq!(or_unknown(None, si), "-");
    }
}
