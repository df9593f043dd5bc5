//! Exit codes that tell the truth, and the error that carries one.

use std::{fmt, io};

pub use weir_lab::exit::{DATA_ERRORS, FAILED, INTERRUPTED, OK, REGRESSION, UNAVAILABLE, USAGE};

/// Why a command could not do its work.
#[derive(Debug)]
pub struct Failure {
    /// What to tell the user.
    pub message: String,
    /// Which exit code says the same.
    pub code: u8,
}

impl Failure {
    /// A run that failed.
    pub fn failed(message: impl fmt::Display) -> Self {
        Self { message: message.to_string(), code: FAILED }
    }

    /// A command that was used wrongly.
    pub fn usage(message: impl fmt::Display) -> Self {
        Self { message: message.to_string(), code: USAGE }
    }
}

/// Marks an error as one of usage.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// An error in one line, with its causes, unless it says them itself, as most errors of the libraries do.
pub fn text_of_error(error: &anyhow::Error) -> String {
    let add = |text: String, cause: String| match text.contains(&cause) {
        true => text,
        false => format!("{text}: {cause}"),
    };
    error.chain().map(ToString::to_string).reduce(add).unwrap_or_default()
}

/// What to do where something cannot be written.
pub fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "make room there, or name another place"
        }
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
            "a part of that path is not a folder; name another one"
        }
        io::ErrorKind::NotFound => "make the folder first, or name another one",
        io::ErrorKind::IsADirectory => "that is a folder; name a file in it",
        _ => "name another place, where this user may write",
    }
}

impl From<weir::Error> for Failure {
    fn from(error: weir::Error) -> Self {
        let code = match &error {
            weir::Error::Option { .. } | weir::Error::UnknownName { .. } => USAGE,
            weir::Error::Unavailable(_) => UNAVAILABLE,
            _ => FAILED,
        };
        Self { message: error.to_string(), code }
    }
}
