//! Exit codes that tell the truth, and the error that carries one.

use std::{error::Error, fmt};

pub use weir_lab::exit::{DATA_ERRORS, FAILED, OK, REGRESSION, UNAVAILABLE, USAGE};

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

/// An error in one line. A library's errors, which `E` are, say their causes themselves.
pub fn text_of_error<E: Error + Send + Sync + 'static>(error: &anyhow::Error) -> String {
    match error.downcast_ref::<E>() {
        Some(error) => error.to_string(),
        None => format!("{error:#}"),
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
