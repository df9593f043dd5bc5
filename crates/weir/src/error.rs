//! What can go wrong, with its cause and what to do about it.

// What this module needs of an OS: advice(&io::Error) -> Option<&'static str>.
#[cfg_attr(target_os = "linux", path = "error/linux.rs")]
#[cfg_attr(windows, path = "error/windows.rs")]
mod native;

use crate::stream::UnixAddress;
use std::{fmt, io, net::SocketAddr, path::PathBuf};

/// An error of the library. Its text says what was wrong, what caused it and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A socket could not be bound.
    #[error("cannot bind {address}: {source}{}", advice_for_bind(.source, .address))]
    Bind {
        /// The address asked for.
        address: SocketAddr,
        /// What the operating system answered.
        source: io::Error,
    },
    /// A Unix socket could not be bound.
    #[error("cannot bind {address}: {source}{}", advice_for_bind_unix(.source))]
    BindUnix {
        /// The address asked for.
        address: UnixAddress,
        /// What the operating system answered, or what is wrong with the address.
        source: io::Error,
    },
    /// A design, provider or option cannot be used here.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// An option has a value that makes no sense.
    #[error("option {name}: {problem}")]
    Option {
        /// The option's name.
        name: String,
        /// What is wrong with its value, and which values are right.
        problem: String,
    },
    /// There is no design, provider or option of that name.
    #[error("there is no {kind} {name:?}{}; {}", did_you_mean(.nearest), those(.known))]
    UnknownName {
        /// What was named: "design", "provider", "option".
        kind: &'static str,
        /// The name given.
        name: String,
        /// The names that exist, with commas; empty if there are none.
        known: String,
        /// The one that was most likely meant, if any is written nearly like the name given.
        nearest: Option<String>,
    },
    /// Memory for the slices could not be had.
    #[error(
        "cannot get {bytes} bytes of memory for {slices} slices: {source}; ask for fewer or smaller outstanding receives"
    )]
    Memory {
        /// Bytes asked for.
        bytes: usize,
        /// Slices they were for.
        slices: usize,
        /// What the operating system answered.
        source: io::Error,
    },
    /// A device is not opened, since that could do harm, or nothing can be read there.
    #[error("{} is not opened: {reason}", path.display())]
    Refused {
        /// What was to be opened.
        path: PathBuf,
        /// Why not, and what to do.
        reason: String,
    },
    /// The operating system refused something at set-up or in the middle of a run.
    #[error("{what}: {source}{}", advised(.source))]
    Io {
        /// What was being done.
        what: String,
        /// What the operating system answered.
        source: io::Error,
    },
    /// A handler panicked. The server stopped, and every slice came back.
    #[error("the handler of thread {thread} panicked: {message}")]
    HandlerPanicked {
        /// Index of the server's thread.
        thread: usize,
        /// What it panicked with, if that was text.
        message: String,
    },
    /// A thread of the server panicked outside the handler: an error in weir.
    #[error("thread {thread} panicked outside the handler, which is an error in weir: {message}")]
    ThreadPanicked {
        /// Index of the server's thread.
        thread: usize,
        /// What it panicked with, if that was text.
        message: String,
    },
}

impl Error {
    /// An [`Error::Option`]: its name, and what is wrong with its value.
    pub fn option(name: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Option { name: name.into(), problem: problem.into() }
    }

    /// An [`Error::UnknownName`], with the names that there are.
    pub fn unknown_name(
        kind: &'static str,
        name: impl Into<String>,
        known: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        let name = name.into();
        let known: Vec<String> = known.into_iter().map(Into::into).collect();
        let nearest = nearest(&name, &known).cloned();
        Self::UnknownName { kind, name, known: known.join(", "), nearest }
    }

    /// Why something cannot be used here that failed so when it was tried.
    pub fn into_reason(self, what: impl Into<String>) -> Unavailable {
        match self {
            Self::Unavailable(why) => why,
            other => Unavailable::new(what, other.to_string()),
        }
    }

    /// An [`Error::Io`] that says what was being done.
    pub fn io(what: impl Into<String>, source: io::Error) -> Self {
        Self::Io { what: what.into(), source }
    }
}

/// Why something cannot be used here: tried, not guessed from a version.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unavailable {
    /// What cannot be used: "provider uring", "design epoll".
    pub what: String,
    /// Why: the call that was tried and what it answered.
    pub reason: String,
    /// What to do, if anything helps.
    pub advice: Option<String>,
}

impl Unavailable {
    /// Without advice.
    pub fn new(what: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { what: what.into(), reason: reason.into(), advice: None }
    }

    /// The same with advice.
    pub fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cannot be used here: {}", self.what, self.reason)?;
        match &self.advice {
            Some(advice) => write!(f, "; {advice}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Unavailable {}

/// The names that there are.
fn those(known: &str) -> String {
    if known.is_empty() { "available: none".into() } else { format!("available: {known}") }
}

fn did_you_mean(nearest: &Option<String>) -> String {
    nearest.as_ref().map_or(String::new(), |nearest| format!(" (did you mean {nearest:?}?)"))
}

/// The name that was most likely meant, where one of these is written nearly like it.
fn nearest<'a>(name: &str, known: &'a [String]) -> Option<&'a String> {
    // One slip in three letters, and one in a name that is as short as that.
    let most = (name.chars().count() / 3).max(1);
    let slips = |other: &&String| strsim::osa_distance(name, other);
    known.iter().min_by_key(slips).filter(|other| slips(other) <= most)
}

fn advice_for_bind(source: &io::Error, address: &SocketAddr) -> String {
    match source.kind() {
        io::ErrorKind::AddrInUse => {
            format!(
                "; choose another port than {} or end the program that holds it",
                address.port()
            )
        }
        io::ErrorKind::AddrNotAvailable => {
            "; this machine has no such address: choose one of its own, or 127.0.0.1".into()
        }
        io::ErrorKind::PermissionDenied => {
            "; ports below 1024 need privileges: choose a higher one".into()
        }
        _ => advised(source),
    }
}

fn advice_for_bind_unix(source: &io::Error) -> String {
    let advice = match source.kind() {
        io::ErrorKind::AddrInUse => {
            "somebody listens there: choose another path, or end the program that does"
        }
        io::ErrorKind::NotFound => "its folder does not exist: make it first",
        io::ErrorKind::PermissionDenied => {
            "this user may not write to its folder: choose another one"
        }
        _ => return advised(source),
    };
    format!("; {advice}")
}

/// The advice for an answer of the system, to be put behind it.
fn advised(source: &io::Error) -> String {
    advice(source).map_or(String::new(), |advice| format!("; {advice}"))
}

/// What to do about what the operating system answered, where more is known than the answer says
/// by itself.
pub fn advice(source: &io::Error) -> Option<&'static str> {
    native::advice(source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_nearly_right_is_named_first() {
        let said = |name: &str| {
            Error::unknown_name("design", name, ["blocking", "epoll", "rio-hybrid"]).to_string()
        };
        assert!(said("epol").starts_with("there is no design \"epol\" (did you mean \"epoll\"?);"));
        assert!(said("rio_hibrid").contains("did you mean \"rio-hybrid\""));
        for far in ["", "x", "nonsense", "poll-epoll"] {
            assert!(!said(far).contains("did you mean"), "{}", said(far));
        }
    }
}
