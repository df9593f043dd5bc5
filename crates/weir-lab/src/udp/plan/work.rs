//! What the handler does with a datagram besides counting it.

use std::{fmt, str::FromStr};

use weir_load::quantity::parse_count;

/// Work per datagram: steps of a pseudo-random generator, as in the original study.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Work {
    /// This many and one steps are made for each datagram.
    pub steps: u32,
    /// The steps are made on state that all threads of the server share, under one lock: then
    /// more threads do not work more, and each that takes part costs the others time.
    pub shared: bool,
}

impl Work {
    /// Whether it is none: a single step of the thread's own.
    pub fn is_none(self) -> bool {
        self == Self::default()
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.shared { "shared:" } else { "" }, self.steps)
    }
}

impl FromStr for Work {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (shared, number) = match text.strip_prefix("shared:") {
            Some(number) => (true, number),
            None => (false, text),
        };
        let steps = parse_count(number).ok().and_then(|steps| u32::try_from(steps).ok());
        let steps = steps.ok_or_else(|| {
            format!(
                "{text:?} is not a valid work; give a number of steps (500 or 20k), or shared:500 for steps on \
                 state that all threads share under a lock"
            )
        })?;
        Ok(Self { steps, shared })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_read_as_it_is_written() {
        for (text, steps, shared) in
            [("0", 0, false), ("500", 500, false), ("shared:0", 0, true), ("shared:500", 500, true)]
        {
            let work: Work = text.parse().unwrap();
            assert_eq!(work, Work { steps, shared });
            assert_eq!(work.to_string(), text);
            assert_eq!(work.is_none(), text == "0");
        }
        let many: Work = "shared:20k".parse().unwrap();
        assert_eq!(many, Work { steps: 20_000, shared: true });
        for wrong in ["", "shared", "shared:", "-1", "5x", "4294967296"] {
            assert!(wrong.parse::<Work>().unwrap_err().contains("shared:500"), "{wrong:?}");
        }
    }
}
