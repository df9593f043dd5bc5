//! How often a command says how it goes.

use std::time::Duration;

use weir_load::flood::INTERVAL_MIN;
use weir_load::quantity::parse_time;

/// A time between two lines; 0 for none.
pub fn parse(text: &str) -> Result<Duration, String> {
    let every = parse_time(text)?;
    if every.is_zero() || every >= INTERVAL_MIN {
        return Ok(every);
    }
    Err(format!("{every:?} is too short; use at least {INTERVAL_MIN:?}, or 0 for no lines"))
}

/// Whether an interval is worth a line: what is left at the end of a run may be a moment, of which the document tells.
pub fn has_line(from_ns: u64, to_ns: u64, every: Duration) -> bool {
    Duration::from_nanos(to_ns.saturating_sub(from_ns)) >= every / 10
}
