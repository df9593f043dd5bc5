//! Settings that may be changed while a server runs.
//!
//! A design makes a value tunable when it starts ([`Job::tunable`](crate::udp::Job::tunable)) and reads it where it
//! decides, with a plain load of a word that nobody writes as a rule. [`Running::set`](crate::udp::Running::set) changes
//! it: threads go by the new value from their next look at the queue on, and one that waits from its next wake-up on.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use crate::{Error, gather::Gather, options::Limit as _};

/// How a value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unit {
    /// A number.
    Number,
    /// A number of datagrams in one dequeue, so at most dequeue-max.
    Dequeued,
    /// A time, as 20us or 1ms; a number alone is microseconds, which is what is kept.
    Microseconds,
    /// true or false.
    Flag,
    /// How long datagrams may gather, and how many of them: as 200us,64, or none (`Gather::packed` is what is kept).
    Gather,
}

impl Unit {
    fn parse(self, text: &str) -> Option<u64> {
        match self {
            Self::Number | Self::Dequeued => text.parse().ok(),
            Self::Flag => text.parse::<bool>().ok().map(u64::from),
            Self::Gather => text.parse::<Gather>().ok().map(Gather::packed),
            Self::Microseconds => {
                let (number, us) = match (text.strip_suffix("us"), text.strip_suffix("ms")) {
                    (Some(number), _) => (number, 1),
                    (None, Some(number)) => (number, 1000),
                    (None, None) => (text, 1),
                };
                number.parse::<u64>().ok()?.checked_mul(us)
            }
        }
    }

    fn text(self, value: u64) -> String {
        match self {
            Self::Number | Self::Dequeued => value.to_string(),
            Self::Microseconds => format!("{value}us"),
            Self::Flag => (value != 0).to_string(),
            Self::Gather => Gather::unpacked(value).to_string(),
        }
    }

    /// As one number.
    fn number(self, value: u64) -> u64 {
        match self {
            Self::Number | Self::Dequeued | Self::Microseconds | Self::Flag => value,
            Self::Gather => Gather::unpacked(value).at_most.as_micros() as u64,
        }
    }

    /// As the option is written when the server starts.
    pub(crate) fn as_option(self, setting: &Setting) -> String {
        match self {
            Self::Number | Self::Dequeued | Self::Microseconds => setting.number.to_string(),
            Self::Flag | Self::Gather => setting.value.clone(),
        }
    }
}

/// A setting that may be changed while the server runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Its name, that of the design's option.
    pub name: &'static str,
    /// The value in force, as it is written.
    pub value: String,
    /// The same as a number: a flag is 0 or 1, a time is in microseconds, also that in which datagrams gather.
    pub number: u64,
    /// What it may be.
    pub allowed: String,
}

/// A value that threads of a server read.
pub(crate) struct Tunable {
    pub(crate) name: &'static str,
    pub(crate) unit: Unit,
    pub(crate) value: Arc<AtomicU64>,
    pub(crate) least: u64,
    pub(crate) most: u64,
}

impl Tunable {
    pub(crate) fn setting(&self) -> Setting {
        let kept = self.value.load(Relaxed);
        let (value, number) = (self.unit.text(kept), self.unit.number(kept));
        Setting { name: self.name, value, number, allowed: self.allowed() }
    }

    pub(crate) fn allowed(&self) -> String {
        let ends = [self.least, self.most].map(|end| self.unit.text(end));
        match self.unit {
            Unit::Gather => Gather::LIMITS.text(),
            _ if self.least == self.most => ends[0].clone(),
            Unit::Flag => "true or false".into(),
            Unit::Dequeued => format!("{}, the server's dequeue-max", ends.join(" to ")),
            _ => ends.join(" to "),
        }
    }

    /// The number that is meant by `text`, if it is one that is allowed.
    pub(crate) fn parse(&self, text: &str) -> Result<u64, Error> {
        let number = self.unit.parse(text).filter(|number| self.allows(*number));
        let problem = || format!("{text:?} is not allowed; allowed: {}", self.allowed());
        number.ok_or_else(|| Error::option(self.name, problem()))
    }

    pub(crate) fn allows(&self, kept: u64) -> bool {
        match self.unit {
            Unit::Gather => Gather::LIMITS.allows(&Gather::unpacked(kept)),
            _ => (self.least..=self.most).contains(&kept),
        }
    }
}

/// Changes some of these, all or none.
pub(crate) fn set(
    all: &[Tunable],
    effective: &[(String, String)],
    changes: &[(&str, &str)],
) -> Result<(), Error> {
    let mut parsed = vec![];
    for (index, (name, text)) in changes.iter().enumerate() {
        let Some(tunable) = all.iter().find(|tunable| tunable.name == *name) else {
            return Err(unknown(all, effective, name));
        };
        if changes[..index].iter().any(|(other, _)| other == name) {
            return Err(Error::option(*name, "it is given twice"));
        }
        parsed.push((tunable, tunable.parse(text)?));
    }
    for (tunable, number) in parsed {
        tunable.value.store(number, Relaxed);
    }
    Ok(())
}

fn unknown(all: &[Tunable], effective: &[(String, String)], name: &str) -> Error {
    let names = || all.iter().map(|tunable| tunable.name);
    let can = match all.is_empty() {
        true => "this design has nothing that can be changed while it runs".to_owned(),
        false => format!(
            "while it runs, these can be changed: {}",
            names().collect::<Vec<_>>().join(", ")
        ),
    };
    match effective.iter().any(|(known, _)| known == name) {
        true => Error::option(name, format!("it is fixed when the server starts; {can}")),
        false if all.is_empty() => Error::option(name, can),
        false => Error::unknown_name("setting to change while it runs", name, names()),
    }
}

/// A time in microseconds that is read as it is now.
pub(crate) fn microseconds(value: &AtomicU64) -> Duration {
    Duration::from_micros(value.load(Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pause::FINE_TIMERS;

    fn tunables() -> Vec<Tunable> {
        let of = |name, unit, value, least, most| {
            let value = Arc::new(AtomicU64::new(value));
            Tunable { name, unit, value, least, most }
        };
        vec![
            of("threshold", Unit::Dequeued, 666, 1, 1000),
            of("spin", Unit::Microseconds, 50, 0, 1_000_000),
            of("adaptive", Unit::Flag, 0, 0, 1),
            of("fixed", Unit::Flag, 0, 0, 0),
        ]
    }

    fn values(all: &[Tunable]) -> Vec<String> {
        all.iter().map(|tunable| tunable.setting().value).collect()
    }

    #[test]
    fn values_are_read_as_options_are_written() {
        let all = tunables();
        set(&all, &[], &[("spin", "20us"), ("threshold", "64"), ("adaptive", "true")]).unwrap();
        assert_eq!(values(&all), ["64", "20us", "true", "false"]);
        set(&all, &[], &[("spin", "1ms")]).unwrap();
        assert_eq!(all[1].setting().number, 1000);
        set(&all, &[], &[("spin", "0")]).unwrap();
        assert_eq!(values(&all)[1], "0us");
        set(&all, &[], &[]).unwrap();
        let allowed: Vec<String> = all.iter().map(|tunable| tunable.setting().allowed).collect();
        assert_eq!(
            allowed,
            ["1 to 1000, the server's dequeue-max", "0us to 1000000us", "true or false", "false"]
        );
    }

    #[test]
    fn how_datagrams_gather_is_written_as_the_option_is() {
        let value = Arc::new(AtomicU64::new(Gather::NONE.packed()));
        let all = [Tunable { name: "gather", unit: Unit::Gather, value, least: 0, most: 0 }];
        assert_eq!((values(&all), all[0].setting().number), (vec!["none".to_owned()], 0));
        let changed = set(&all, &[], &[("gather", "1ms,64")]);
        if FINE_TIMERS {
            changed.unwrap();
            assert_eq!((values(&all), all[0].setting().number), (vec!["1000us,64".into()], 1000));
            set(&all, &[], &[("gather", "none")]).unwrap();
        } else {
            assert!(changed.unwrap_err().to_string().contains("none, since"));
        }
        assert_eq!(values(&all), ["none"]);
        for wrong in ["", "200us", "2s,64", "200us,1", "4294967297us,64"] {
            let error = set(&all, &[], &[("gather", wrong)]).unwrap_err().to_string();
            assert!(error.contains("allowed: none"), "{error}");
        }
    }

    #[test]
    fn one_wrong_change_changes_nothing_and_says_what_can() {
        let (all, before) = (tunables(), values(&tunables()));
        let effective = [("outstanding".to_owned(), "5".to_owned())];
        let said = |changes: &[(&str, &str)]| {
            let error = set(&all, &effective, changes).expect_err("refused").to_string();
            assert_eq!(values(&all), before, "{changes:?}");
            error
        };
        for wrong in ["", "-1", "1001", "x", "0", "99999999999999999999999", "1us"] {
            let error = said(&[("spin", "7"), ("threshold", wrong)]);
            assert!(error.contains("1 to 1000"), "{error}");
        }
        for wrong in ["1000001us", "1001ms", "18446744073709551615ms", "us", "1s"] {
            assert!(said(&[("spin", wrong)]).contains("0us to 1000000us"), "{wrong}");
        }
        assert!(said(&[("adaptive", "1")]).contains("true or false"));
        assert!(said(&[("fixed", "true")]).contains("allowed: false"));
        assert!(said(&[("spin", "1"), ("spin", "2")]).contains("twice"));
        let error = said(&[("spni", "1")]);
        assert!(error.contains("did you mean \"spin\"") && error.contains("threshold"), "{error}");
        let error = said(&[("outstanding", "1")]);
        assert!(
            error.contains("fixed when the server starts") && error.contains("spin"),
            "{error}"
        );
        let none = set(&[], &effective, &[("spin", "1")]).expect_err("refused").to_string();
        assert!(none.contains("nothing that can be changed"), "{none}");
    }
}
