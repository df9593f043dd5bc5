//! How a comparison shows what it does, and how wide its report is.

use std::io::{IsTerminal, Write};

/// Width of the report where there is no terminal: all columns of a table beside each other.
const WIDTH_WITHOUT_TERMINAL: usize = 205;

/// Progress on standard error: one line that changes on a terminal, else a line for what is
/// worth keeping in a log.
pub struct Display {
    terminal: bool,
    /// Characters of the line that stands there.
    width: usize,
}

impl Display {
    /// Nothing is shown yet.
    pub fn new() -> Self {
        Self { terminal: std::io::stderr().is_terminal(), width: 0 }
    }

    /// A line that stays.
    pub fn keep(&mut self, line: &str) {
        self.clear();
        eprintln!("{line}");
    }

    /// A line that the next one takes the place of.
    pub fn change(&mut self, line: &str) {
        if self.terminal {
            self.clear();
            eprint!("{line}");
            let _ = std::io::stderr().flush();
            self.width = line.chars().count();
        }
    }

    /// Takes the line away that changes.
    pub fn clear(&mut self) {
        if self.width > 0 {
            eprint!("\r{:width$}\r", "", width = self.width);
            self.width = 0;
        }
    }
}

/// Characters that a line of the report may have.
pub fn width() -> usize {
    let terminal = std::io::stdout().is_terminal().then(terminal_size::terminal_size).flatten();
    terminal.map_or(WIDTH_WITHOUT_TERMINAL, |(width, _)| usize::from(width.0))
}
