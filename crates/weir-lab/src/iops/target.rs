//! What is read, or written to, as people write it.

use std::path::{Path, PathBuf};
use weir::{
    Error,
    device::{Device, Direction, NAMES},
};
use weir_load::quantity::parse_time;

/// What a device begins with of which every read takes so long.
pub const TIMER: &str = "timer:";

/// Opens what a text names: a path (see [`Device::open`], also for `named`); the [semaphore](Device::semaphore) by its
/// name; or [`TIMER`] and a delay, as in `timer:10us`, a device of which every read takes so long. To be written to
/// only a path (see [`Device::open_for_writing`]).
///
/// # Errors
/// As those say; [`Error::Option`] for what is no delay.
pub fn open(text: &Path, named: &[PathBuf], direction: Direction) -> Result<Device, Error> {
    let words = text.to_str().unwrap_or_default();
    if direction == Direction::Write {
        if words == NAMES.semaphore || words.starts_with(TIMER) {
            let reason = format!("it is there to be read; weir writes only to {}", NAMES.writable);
            return Err(Error::Refused { path: text.to_owned(), reason });
        }
        return Device::open_for_writing(text);
    }
    if words == NAMES.semaphore {
        return Device::semaphore();
    }
    let Some(delay) = words.strip_prefix(TIMER) else { return Device::open(text, named) };
    let delay = parse_time(delay).map_err(|problem| Error::Option {
        name: "timer".into(),
        problem: format!("{problem}; a timer has a delay, as in timer:10us"),
    })?;
    Device::timer(delay)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_delay_says_what_is() {
        for (text, said) in [
            ("timer:", "as in timer:10us"),
            ("timer:fast", "does not begin with a number"),
            ("timer:-1us", "does not begin with a number"),
            ("timer:10 parsecs", "unknown unit"),
            ("timer:1.5s", "1500ms is not allowed; allowed: 0 to 1s"),
            ("timer:1h", "allowed: 0 to 1s"),
        ] {
            let error = open(text.as_ref(), &[], Direction::Read).expect_err(text);
            assert!(matches!(error, Error::Option { .. }), "{text}: {error:?}");
            assert!(error.to_string().contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn a_file_may_be_called_as_a_timer_is() {
        let path = "./timer:10us".as_ref();
        let error = open(path, &[], Direction::Read).expect_err("there is no such file");
        assert!(!matches!(error, Error::Option { .. }), "{error:?}");
    }
}
