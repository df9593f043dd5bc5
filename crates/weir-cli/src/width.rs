//! How wide what is printed may be.

use std::io::{IsTerminal as _, stdout};

use ratatui::crossterm::terminal::window_size;
use terminal_size::{Height, Width, terminal_size};

/// Where there is no terminal: all columns of a table beside each other.
const WITHOUT_TERMINAL: usize = 205;
/// Where a terminal does not say how wide it is.
const USUAL: usize = 80;

/// Characters that a line of standard output may have.
pub fn width() -> usize {
    if stdout().is_terminal() { of_terminal(terminal_size()) } else { WITHOUT_TERMINAL }
}

/// The characters of a line of a terminal whose size is this. One that says how wide it is, and not how high (a serial line,
/// some that are emulated), has no size, but a width all the same.
pub fn of_terminal(size: Option<(Width, Height)>) -> usize {
    let columns = size.map(|(width, _)| width.0);
    let columns = columns.or_else(|| window_size().ok().map(|size| size.columns));
    columns.filter(|columns| *columns > 0).map_or(USUAL, usize::from)
}

/// A line on as many as a terminal needs, all but the first behind an indent: whoever reads from elsewhere gets one.
pub fn fitted(line: &str, indent: &str, is_on_terminal: bool) -> String {
    if !is_on_terminal {
        return line.to_owned();
    }
    // An option or a path that is to be copied stays whole.
    let whole = textwrap::WordSplitter::NoHyphenation;
    let width = of_terminal(terminal_size());
    let options = textwrap::Options::new(width).subsequent_indent(indent).word_splitter(whole);
    textwrap::fill(line, options)
}

/// The lines of a text for standard output in the same way, each indented as it begins.
pub fn fitted_lines(text: &str) -> String {
    if !stdout().is_terminal() {
        return text.to_owned();
    }
    let line = |line: &str| {
        let words = line.trim_start_matches(' ');
        let indent = " ".repeat(line.len() - words.len());
        let indent = if indent.is_empty() { "  " } else { &indent };
        fitted(line, indent, true) + "\n"
    };
    text.lines().map(line).collect()
}
