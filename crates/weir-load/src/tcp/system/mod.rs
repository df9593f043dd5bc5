//! What the engine needs of the operating system, one file per system.
//!
//! Every file supplies the same types with the same functions:
//!
//! - `availability`: whether there is an engine here;
//! - `Socket`: `connect` (begins to), `connected` (what came of it), `receive`, `send`, `send_file`,
//!   `end_sending`; none waits, and closing is dropping;
//! - `Set`: `new`, `add` (each socket once, told from then on of every change), `wait` (until
//!   something is ready, it is rung, or so long), `ready`;
//! - `WakeEvent`: `signal`, from any thread;
//! - `read_at`: reads a file at a place;
//! - `descriptors`: how many this process may have; the first call raises that as far as it may;
//! - `is_no_port`, `is_no_descriptor`, `is_refused`, `is_reset`, `is_timed_out`: what an error means.

#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod linux;

#[cfg(not(target_os = "linux"))]
pub(super) use elsewhere::*;
#[cfg(target_os = "linux")]
pub(super) use linux::*;

/// A socket that changed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ready {
    /// Its number.
    pub(crate) number: u32,
    /// Whether something can be received.
    pub(crate) receive: bool,
    /// Whether its end or an error may have come, behind what can be received.
    pub(crate) ended: bool,
}
