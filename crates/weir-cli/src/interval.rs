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
