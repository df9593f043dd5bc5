//! How a server is held up while a burst comes.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use weir_load::quantity::parse_time;

/// The longest that a server may be held: the end of a run is not waited for much longer
/// ([`ControlSettings::quiet_within`](weir_load::control::ControlSettings::quiet_within)).
const LONGEST: Duration = Duration::from_secs(3);

/// Until when a server handles nothing of a burst. It begins with the first datagram that a handler is given, and holds
/// every thread that handles one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Held {
    /// It is not held: it waits for datagrams when the burst comes, and handles them as they come.
    #[default]
    No,
    /// For so long.
    For(Duration),
    /// Until the generator has sent all of it: what is received then is what there was room for.
    UntilSent,
}

impl Held {
    /// What the server is doing, in words.
    pub fn said(self) -> String {
        match self {
            Self::No => "an idle server".into(),
            Self::For(time) => format!("a server held for {time:?}"),
            Self::UntilSent => "a server held until all is sent".into(),
        }
    }
}

/// As on a command line.
impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::No => f.write_str("0"),
            Self::For(time) => write!(f, "{}us", time.as_micros()),
            Self::UntilSent => f.write_str("sent"),
        }
    }
}

impl FromStr for Held {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "sent" {
            return Ok(Self::UntilSent);
        }
        let time = parse_time(text)
            .map_err(|problem| format!("{problem}; or \"sent\", for until all has been sent"))?;
        match time {
            Duration::ZERO => Ok(Self::No),
            time if time < Duration::from_micros(1) || time > LONGEST => {
                Err(format!("{text:?} is not allowed; allowed: 0, 1us to {LONGEST:?}, or sent"))
            }
            time => Ok(Self::For(time)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_is_over_before_a_run_is_given_up() {
        assert!(LONGEST < weir_load::control::ControlSettings::default().quiet_within);
        assert_eq!("3s".parse(), Ok(Held::For(LONGEST)));
    }

    #[test]
    fn a_hold_is_read_as_it_is_written() {
        for held in [Held::No, Held::For(Duration::from_millis(10)), Held::UntilSent] {
            assert_eq!(held.to_string().parse(), Ok(held));
        }
        assert_eq!("1ms".parse(), Ok(Held::For(Duration::from_millis(1))));
        for wrong in ["", "x", "4s", "-1"] {
            let error = wrong.parse::<Held>().unwrap_err();
            assert!(error.contains("sent"), "{error}");
        }
    }
}
