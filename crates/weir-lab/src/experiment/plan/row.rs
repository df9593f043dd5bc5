//! A row of the comparison: one design with its provider and options.

use std::fmt;

use super::Peer;

/// The option that names the provider in a row's text.
const PROVIDER: &str = "provider";
/// The option that says how many threads take part.
pub(crate) const THREADS: &str = "threads";

/// What stands behind the text of a row with receive offload, beside which the same row runs without.
pub(crate) const OFFLOADED: &str = " (offload)";

/// What a row is for, beside being measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Nothing else.
    Plain,
    /// The traditional design, to which the others' ratios are taken: a completion port in
    /// the shape of the originals.
    Traditional,
    /// The row of that index under a second name: the spread between the two is the noise.
    Again(usize),
}

/// One design, its provider and its options, as they are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The design's name.
    pub design: String,
    /// The provider's name, where the design runs on several and one was asked for.
    pub provider: Option<String>,
    /// The provider that it runs on here, where that is known: the one asked for, the one that is
    /// chosen, or the only one that the design has.
    pub runs_on: Option<String>,
    /// The other options in their order: name without dashes, and value if it takes one.
    pub options: Vec<(String, Option<String>)>,
    /// What the row is for.
    pub role: Role,
    /// Whether it runs with receive offload beside the rows that run without. Such rows are not
    /// ranked among the others, but their ratio to the others is given.
    pub receive_offload: bool,
    /// Whether it takes part only in sweeps: over threads, or over an option.
    pub only_swept: bool,
    /// The option that is swept over, where it is there for that alone.
    pub swept_option: Option<&'static str>,
    /// The program that runs in the place of a server of weir's, if it is one; `design` is then the
    /// name that it was given.
    pub peer: Option<Peer>,
    /// Why it cannot run here; `None` if it can. It stays a row either way.
    pub unavailable: Option<String>,
}

/// What is wrong with the text of a row.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("cannot read the design {text:?}: {problem}; write it as \"rio-hybrid --threads 2\"")]
pub struct RowError {
    text: String,
    problem: String,
}

impl Row {
    /// Reads `NAME [--option VALUE | --option=VALUE | --flag]...`. Whether the design and
    /// its options exist is for the library to say.
    pub fn parse(text: &str) -> Result<Self, RowError> {
        let wrong = |problem: String| RowError { text: text.into(), problem };
        let mut words = text.split_whitespace().peekable();
        let design = words
            .next()
            .filter(|word| !word.starts_with('-'))
            .ok_or_else(|| wrong("it does not begin with the name of a design".into()))?
            .to_owned();
        let mut row = Self::named(&design);
        while let Some(word) = words.next() {
            let name = word
                .strip_prefix("--")
                .filter(|name| !name.is_empty())
                .ok_or_else(|| wrong(format!("{word:?} is not an option")))?;
            let (name, value) = match name.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (name, words.next_if(|next| !next.starts_with("--"))),
            };
            let value = value.map(str::to_owned);
            if name != PROVIDER {
                row.options.push((name.to_owned(), value));
            } else if value.is_some() && row.provider.is_none() {
                row.provider = value;
            } else {
                return Err(wrong("--provider takes one name, once".into()));
            }
        }
        Ok(row)
    }

    /// A row without anything but its name.
    pub(crate) fn named(design: &str) -> Self {
        Self {
            design: design.into(),
            provider: None,
            runs_on: None,
            options: vec![],
            role: Role::Plain,
            receive_offload: false,
            only_swept: false,
            swept_option: None,
            peer: None,
            unavailable: None,
        }
    }

    /// The row of a peer, from `NAME=COMMAND`; `example` is a right one.
    ///
    /// # Errors
    /// If it is something else.
    pub fn of_peer(text: &str, example: &str) -> Result<Self, String> {
        let (name, peer) = Peer::parse(text, example)?;
        Ok(Self { peer: Some(peer), ..Self::named(&name) })
    }

    #[cfg(test)]
    pub(crate) fn parse_peer(text: &str) -> Result<Self, String> {
        Self::of_peer(text, "")
    }

    /// The same row for another purpose.
    pub fn with_role(mut self, role: Role) -> Self {
        self.role = role;
        self
    }

    /// The text that [`Row::parse`] reads: what is given to the server.
    pub fn spec(&self) -> String {
        let mut text = self.design.clone();
        if let Some(provider) = &self.provider {
            text.push_str(" --provider ");
            text.push_str(provider);
        }
        for (name, value) in &self.options {
            text.push_str(" --");
            text.push_str(name);
            if let Some(value) = value {
                text.push(' ');
                text.push_str(value);
            }
        }
        text
    }

    /// What a claim of a document calls it: its text, and what tells it from the row without receive offload in the same
    /// rounds.
    pub fn name_in_claims(&self) -> String {
        self.spec() + if self.receive_offload { OFFLOADED } else { "" }
    }

    /// The provider as shown: the one it runs on, or the one asked for.
    pub fn shown_provider(&self) -> Option<&str> {
        self.runs_on.as_deref().or(self.provider.as_deref())
    }

    /// Design and options as shown in a table, where the provider has a column of its own.
    /// The traditional design is shown by what it is; its options stand in the legend.
    pub fn title(&self) -> String {
        let offload = if self.receive_offload { OFFLOADED } else { "" };
        match self.role {
            Role::Traditional => format!("{} (original){offload}", self.design),
            Role::Plain => format!("{}{offload}", self.plain_title()),
            Role::Again(_) => format!("{}{offload} (again)", self.plain_title()),
        }
    }

    /// The value of an option, where the row states it.
    pub fn option(&self, name: &str) -> Option<&str> {
        self.options.iter().find(|(of, _)| of == name)?.1.as_deref()
    }

    /// How many threads it asks for, where it states that.
    pub fn threads(&self) -> Option<u32> {
        self.option(THREADS)?.parse().ok()
    }

    /// The same row on so many threads.
    pub fn on_threads(&self, threads: u32) -> Self {
        let mut row = Self { role: Role::Plain, ..self.clone() };
        row.options.retain(|(name, _)| name != THREADS);
        row.options.push((THREADS.into(), Some(threads.to_string())));
        row
    }

    /// The same row with an option at this value.
    pub fn with_option(&self, name: &str, value: u32) -> Self {
        let mut row = self.clone();
        row.options.retain(|(of, _)| of != name);
        row.options.push((name.into(), Some(value.to_string())));
        row
    }

    /// Whether the other is the same but for these options.
    pub fn is_like_but_for(&self, other: &Self, names: &[&str]) -> bool {
        let bare = |row: &Self| {
            let mut options = row.options.clone();
            options.retain(|(name, _)| !names.contains(&name.as_str()));
            (row.design.clone(), row.provider.clone(), options, row.receive_offload)
        };
        bare(self) == bare(other)
    }

    /// Whether the other is the same but for its number of threads.
    pub fn is_like_on_other_threads(&self, other: &Self) -> bool {
        let bare = |row: &Self| {
            let of = row.on_threads(1);
            (of.design, of.provider, of.options, of.receive_offload)
        };
        bare(self) == bare(other)
    }

    fn plain_title(&self) -> String {
        match &self.peer {
            None => Self { provider: None, ..self.clone() }.spec(),
            Some(peer) if peer.is_derived() => format!("{} (peer, claimed)", self.design),
            Some(_) => format!("{} (peer)", self.design),
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.title())?;
        match self.shown_provider() {
            Some(provider) => write!(f, " on {provider}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_write() {
        let row = Row::parse(" rio-hybrid  --provider uring --threads=2 --polling deferred --huge")
            .unwrap();
        assert_eq!((row.design.as_str(), row.provider.as_deref()), ("rio-hybrid", Some("uring")));
        let option = |n: &str, v: Option<&str>| (n.to_owned(), v.map(str::to_owned));
        assert_eq!(
            row.options,
            vec![
                option("threads", Some("2")),
                option("polling", Some("deferred")),
                option("huge", None)
            ]
        );
        assert_eq!(row.title(), "rio-hybrid --threads 2 --polling deferred --huge");
        assert_eq!(
            row.with_role(Role::Again(3)).to_string(),
            "rio-hybrid --threads 2 --polling deferred --huge (again) on uring"
        );
    }

    #[test]
    fn says_what_is_wrong() {
        for (text, word) in [
            ("", "name of a design"),
            ("--threads 2", "name of a design"),
            ("port threads", "\"threads\" is not an option"),
            ("port --", "\"--\" is not an option"),
            ("rio-event --provider", "--provider takes one name"),
            ("rio-event --provider a --provider b", "--provider takes one name"),
        ] {
            let error = Row::parse(text).unwrap_err().to_string();
            assert!(error.contains(word), "{text:?}: {error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,80}") {
            if let Ok(row) = Row::parse(&text) {
                proptest::prop_assert_eq!(Row::parse(&row.spec()), Ok(row));
            }
        }
    }
}
