//! What was found when something about a machine was looked at, and what to do about it.

use std::fmt;

/// Something about a machine that figures depend on, and what was found when it was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// What it is about, in one word that stays the same: `governor`, `swap`, `load`.
    pub about: &'static str,
    /// What it does to figures.
    pub effect: Effect,
    /// What was found, as evidence.
    pub found: String,
    /// What follows from it; empty where it is [`Effect::None`].
    pub consequence: String,
    /// What to do about it; empty where nothing can be done or need be.
    pub cure: String,
    /// A command that does it, for root, where one does.
    pub command: Option<String>,
}

/// What a machine's property does to figures, the worst last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// Nothing.
    None,
    /// That could not be found out.
    Unknown,
    /// They are lower than they could be, or something cannot run.
    Limits,
    /// They change by themselves, or say nothing of other machines.
    Falsifies,
}

impl Effect {
    /// Its name in documents: `none`, `unknown`, `limits`, `falsifies`.
    pub fn name(self) -> &'static str {
        match self {
            Effect::None => "none",
            Effect::Unknown => "unknown",
            Effect::Limits => "limits",
            Effect::Falsifies => "falsifies",
        }
    }
}

impl Check {
    /// Whether there is something to say about figures.
    pub fn is_warning(&self) -> bool {
        self.effect != Effect::None
    }

    pub(super) fn fine(about: &'static str, found: impl Into<String>) -> Self {
        let (consequence, cure, command) = (String::new(), String::new(), None);
        Self { about, effect: Effect::None, found: found.into(), consequence, cure, command }
    }

    pub(super) fn unknown(
        about: &'static str,
        found: impl Into<String>,
        consequence: impl Into<String>,
    ) -> Self {
        Self {
            effect: Effect::Unknown,
            consequence: consequence.into(),
            ..Self::fine(about, found)
        }
    }

    pub(super) fn bad(
        about: &'static str,
        effect: Effect,
        found: impl Into<String>,
        consequence: impl Into<String>,
        cure: impl Into<String>,
    ) -> Self {
        Self {
            effect,
            consequence: consequence.into(),
            cure: cure.into(),
            ..Self::fine(about, found)
        }
    }

    pub(super) fn command(self, command: impl Into<String>) -> Self {
        Self { command: Some(command.into()), ..self }
    }
}

/// One sentence: what was found, what follows, what to do.
impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.found)?;
        if !self.consequence.is_empty() {
            write!(f, ": {}", self.consequence)?;
        }
        if !self.cure.is_empty() {
            write!(f, "; {}", self.cure)?;
        }
        match &self.command {
            Some(command) => write!(f, ", as root: {command}"),
            None => Ok(()),
        }
    }
}
