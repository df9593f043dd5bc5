//! What the engine needs of the operating system, one file per system.
//!
//! Every file supplies the same types with the same functions:
//!
//! - `availability`: whether there is an engine here;
//! - `Socket`: `connect` (begins to), `connected` (what came of it), `receive`, `send`, `send_file` (with
//!   `is_sending_a_file`, `file_was_short`), `end_sending`; none waits, and closing is dropping;
//! - `Set`: `new`, `add` (each socket once, told from then on of every change), `await_room` (one has found
//!   no room to send), `forget` (before one is closed), `wait` (until something is ready, a wake event is signalled, or
//!   so long), `ready`; what is told may be told again;
//! - `WakeEvent`: `signal`, from any thread;
//! - `READINESS`: what a `Set` waits with;
//! - `Ring`: receives and sends by itself, and tells what became of that; where there is none it is a type without
//!   values (`absent`);
//! - `SENDS_FILES_BY`: the call by which it sends files;
//! - `read_at`: reads a file at a place;
//! - `descriptors`: how many this process may have; the first call raises that as far as it may;
//! - `CONNECTIONS_OF_PROCESS`: so many connections are better shared by several processes, if any number is;
//! - `is_no_port`, `is_no_descriptor`, `is_refused`, `is_reset`, `is_timed_out`: what an error means.

#[cfg(windows)]
mod absent;
#[cfg_attr(target_os = "linux", path = "linux/mod.rs")]
#[cfg_attr(windows, path = "windows/mod.rs")]
mod native;

#[cfg(windows)]
pub(super) use absent::Ring;
pub(super) use native::*;

/// A socket that changed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ready {
    /// Its number.
    pub(crate) number: u32,
    /// Whether something can be received.
    pub(crate) receive: bool,
    /// Whether its end or an error may have come, behind what can be received.
    pub(crate) ended: bool,
    /// What became of the send under way on it: the bytes taken, or the system's number of the error.
    pub(crate) sent: Option<Result<usize, i32>>,
}

impl Ready {
    /// One that something can be received of, or whose end may have come.
    pub(crate) fn of(number: u32, receive: bool, ended: bool) -> Self {
        Self { number, receive, ended, sent: None }
    }
}
