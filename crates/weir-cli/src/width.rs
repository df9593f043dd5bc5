//! How wide what is printed may be.

use std::io::{IsTerminal as _, stdout};

/// Where there is no terminal: all columns of a table beside each other.
const WITHOUT_TERMINAL: usize = 205;

/// Characters that a line may have.
pub fn width() -> usize {
    let terminal = stdout().is_terminal().then(terminal_size::terminal_size).flatten();
    terminal.map_or(WITHOUT_TERMINAL, |(width, _)| usize::from(width.0))
}
