//! How a child ended, wherever it ran.

use std::fmt;
use std::process::ExitStatus;

use serde::{Deserialize, Serialize};

/// Its exit code, or what ended it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    code: Option<i32>,
    said: String,
}

impl Exit {
    /// Its exit code; `None` where something else ended it.
    pub fn code(&self) -> Option<i32> {
        self.code
    }

    /// Whether it ended well.
    pub fn success(&self) -> bool {
        self.code == Some(0)
    }

    /// One that never ran, or of which nobody can say more.
    pub(crate) fn unknown(said: impl Into<String>) -> Self {
        Self { code: None, said: said.into() }
    }
}

impl From<ExitStatus> for Exit {
    fn from(status: ExitStatus) -> Self {
        Self { code: status.code(), said: status.to_string() }
    }
}

/// As the operating system's own words.
impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.said)
    }
}
