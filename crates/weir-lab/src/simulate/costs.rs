//! What things cost, measured or given: a table of nanoseconds by name, each with how it was found.

use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt::Write as _};

/// No cost is higher: a second.
const MOST_NS: f64 = 1e9;

/// A cost, and how it was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// Nanoseconds.
    pub ns: f64,
    /// How it was measured, or that it is assumed.
    pub how: String,
}

macro_rules! costs {
    ($($name:ident: $about:literal;)*) => {
        /// Every cost of the model, in nanoseconds.
        #[derive(Debug, Clone, Copy, PartialEq)]
        pub struct Costs {
            $(#[doc = $about] pub $name: f64,)*
        }

        /// Each cost's name, and what it is.
        pub const NAMES: &[(&str, &str)] = &[$((stringify!($name), $about)),*];

        impl Costs {
            /// From a table that has each of them, and nothing else.
            ///
            /// # Errors
            /// What is missing, unknown or impossible, and what to do.
            pub fn of(table: &Table) -> Result<Self, String> {
                table.check()?;
                Ok(Self { $($name: table.0[stringify!($name)].ns,)* })
            }

            /// The same, each with this as how it was found.
            pub fn table(&self, how: &str) -> Table {
                let cost = |ns| Cost { ns, how: how.into() };
                Table(BTreeMap::from([$((stringify!($name).to_owned(), cost(self.$name))),*]))
            }
        }
    };
}

costs! {
    call: "A system call that does nothing.";
    clock: "Reading the clock.";
    lock: "Taking and releasing a lock that nobody else wants.";
    lock_spin: "How long a thread looks at a lock that is taken before it sleeps.";
    hop: "A cache line from one core to another.";
    wake: "From waking a thread that sleeps on an idle core to its first step.";
    wake_call: "What a thread pays to wake another.";
    switch: "From one thread to another on the same core.";
    slice: "How long a thread runs while another waits for its core.";
    enqueue: "How long a socket needs for a datagram that comes to it.";
    handle: "What the server does with a datagram: counting and checking it.";
    moved: "A datagram's memory to a core that did not have it last.";
    receive: "Receiving one datagram with a call of its own.";
    receive_hold: "The part of a receive in which the socket serves nobody else.";
    receive_none: "A call for a datagram that finds none.";
    readiness: "Waiting for readiness where a socket is ready.";
    dequeue: "A dequeue of registered I/O, whatever it brings.";
    dequeue_each: "Each datagram that a dequeue brings.";
    completion: "The same where the network stack has copied it already, as with RIO and AF_XDP.";
    post: "Posting a slice of registered I/O.";
    take: "A take from the completion port, whatever it brings.";
    take_each: "Each datagram that a take brings.";
    port_post: "Posting a receive at the completion port.";
    port_lock: "A lock of a completion port that several threads share, which nobody else wants.";
    work_step: "One step of the work of `weir compare udp --work`.";
}

/// A line of a table that is wrong.
fn at_line(text: &str, at: Option<std::ops::Range<usize>>) -> String {
    at.map_or_else(String::new, |at| {
        let before = text.get(..at.start).unwrap_or(text);
        format!("line {}: ", before.matches('\n').count() + 1)
    })
}

/// What a value of TOML is, in words.
fn kind(value: &toml::Value) -> &'static str {
    match value {
        toml::Value::String(_) => "a text",
        toml::Value::Integer(_) | toml::Value::Float(_) => "a number",
        toml::Value::Boolean(_) => "true or false",
        toml::Value::Datetime(_) => "a date",
        toml::Value::Array(_) => "a list",
        toml::Value::Table(_) => "a table",
    }
}

/// A cost of a table.
fn cost(name: &str, value: &toml::Value) -> Result<Cost, String> {
    const SHAPE: &str = "a cost is written as [NAME] with ns = NUMBER and how = \"TEXT\"";
    let Some(table) = value.as_table() else {
        return Err(format!("{name} is {}; {SHAPE}", kind(value)));
    };
    if let Some(other) = table.keys().find(|key| !matches!(key.as_str(), "ns" | "how")) {
        return Err(format!("[{name}] has {other}, which no cost has; {SHAPE}"));
    }
    let ns = match table.get("ns") {
        Some(toml::Value::Integer(ns)) => *ns as f64,
        Some(toml::Value::Float(ns)) => *ns,
        Some(other) => return Err(format!("ns of [{name}] is {}, not a number", kind(other))),
        None => return Err(format!("[{name}] has no ns; {SHAPE}")),
    };
    match table.get("how") {
        Some(toml::Value::String(how)) => Ok(Cost { ns, how: how.clone() }),
        Some(other) => Err(format!("how of [{name}] is {}, not a text", kind(other))),
        None => Err(format!("[{name}] has no how; {SHAPE}")),
    }
}

/// Costs by their names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Table(pub BTreeMap<String, Cost>);

impl Table {
    /// Reads what [`to_toml`](Self::to_toml) writes.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn parse(text: &str) -> Result<Self, String> {
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
            let line = at_line(text, error.span());
            format!("{line}this is not TOML: {}", error.message())
        })?;
        let costs = table.iter().map(|(name, value)| Ok((name.clone(), cost(name, value)?)));
        costs.collect::<Result<_, String>>().map(Self)
    }

    fn check(&self) -> Result<(), String> {
        for (name, cost) in &self.0 {
            if !NAMES.iter().any(|(known, _)| known == name) {
                let known: Vec<_> = NAMES.iter().map(|(name, _)| *name).collect();
                return Err(format!("there is no cost {name:?}; there are {}", known.join(", ")));
            }
            if !(0.0..=MOST_NS).contains(&cost.ns) {
                return Err(format!("{name} is {} ns; a cost is 0 to {MOST_NS:.0} ns", cost.ns));
            }
        }
        let missing: Vec<_> = NAMES
            .iter()
            .map(|(name, _)| *name)
            .filter(|name| !self.0.contains_key(*name))
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let missing = missing.join(", ");
        Err(format!(
            "these costs are missing: {missing}; `weir simulate --calibrate` measures all of them"
        ))
    }

    /// As TOML, in the order of the model, with what each cost is.
    pub fn to_toml(&self) -> String {
        let mut text = String::from(
            "# Costs for `weir simulate --costs`: nanoseconds, and how each was found.\n",
        );
        for (name, about) in NAMES {
            if let Some(Cost { ns, how }) = self.0.get(*name) {
                // JSON's strings are strings of TOML, too.
                let how = serde_json::Value::from(how.as_str());
                let _ = write!(text, "\n# {about}\n[{name}]\nns = {ns:?}\nhow = {how}\n");
            }
        }
        text
    }
}

/// Costs in round numbers, near those of a machine of 2026.
#[cfg(test)]
pub(crate) const ROUND: Costs = Costs {
    call: 100.0,
    clock: 25.0,
    lock: 15.0,
    lock_spin: 1500.0,
    hop: 50.0,
    wake: 5000.0,
    wake_call: 1000.0,
    switch: 1500.0,
    slice: 2_800_000.0,
    enqueue: 30.0,
    handle: 20.0,
    moved: 100.0,
    receive: 500.0,
    receive_hold: 60.0,
    receive_none: 150.0,
    readiness: 250.0,
    dequeue: 150.0,
    dequeue_each: 350.0,
    completion: 40.0,
    post: 10.0,
    take: 200.0,
    take_each: 450.0,
    port_post: 50.0,
    port_lock: 15.0,
    work_step: 1.0,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_what_is_wrong_is_said_in_plain_words() {
        let table = ROUND.table("invented, \"as\" they say");
        assert_eq!(Table::parse(&table.to_toml()), Ok(table));
        for (text, said) in [
            ("call = 3", "call is a number; a cost is written as [NAME]"),
            ("[call]\nns = \"3\"\nhow = \"\"", "ns of [call] is a text, not a number"),
            ("[call]\nhow = \"\"", "[call] has no ns"),
            ("[call]\nns = 3", "[call] has no how"),
            ("[call]\nns = 3\nhow = true", "how of [call] is true or false, not a text"),
            ("[call]\nns = 3\nhow = \"\"\nwhy = 1", "[call] has why"),
            ("\n\n[call\nns = 3", "line 3: this is not TOML"),
        ] {
            let error = Table::parse(text).unwrap_err();
            assert!(error.starts_with(said) && !error.contains("struct"), "{text}: {error}");
        }
    }

    #[test]
    fn a_table_has_every_cost_once_and_possible() {
        let table = ROUND.table("invented");
        assert_eq!(Costs::of(&table), Ok(ROUND));
        let mut wrong = table.clone();
        wrong.0.remove("hop");
        assert!(Costs::of(&wrong).unwrap_err().contains("missing: hop;"));
        wrong.0.insert("hope".into(), Cost { ns: 1.0, how: String::new() });
        assert!(Costs::of(&wrong).unwrap_err().contains("no cost \"hope\""));
        for ns in [-1.0, f64::NAN, f64::INFINITY, 2e9] {
            let mut wrong = table.clone();
            wrong.0.get_mut("lock").unwrap().ns = ns;
            assert!(Costs::of(&wrong).unwrap_err().starts_with("lock is"), "{ns}");
        }
    }
}
