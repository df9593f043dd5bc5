//! Ctrl-C, and the signals by which other programs ask this one to end.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::exit::{Failure, INTERRUPTED};

/// What ends a run so, in words: nobody tells one of these from another (Ctrl-C is SIGINT; there are SIGTERM and SIGHUP,
/// on Windows Ctrl-Break and the end of the console).
pub const WAYS: &str = "Ctrl-C or a signal";

/// How often it was asked to end.
static ASKED: AtomicU32 = AtomicU32::new(0);

/// The first Ctrl-C does what is given, which is to end the run with its report; the second ends everything.
pub fn heed(end: impl Fn() + Send + 'static) -> Result<(), Failure> {
    ctrlc::set_handler(move || {
        if ASKED.fetch_add(1, Ordering::Relaxed) > 0 {
            std::process::exit(i32::from(INTERRUPTED));
        }
        end();
    })
    .map_err(|error| Failure::failed(format!("cannot handle Ctrl-C: {error}")))
}

/// Notes that it was asked to end in another way, such as by the end of another rank.
pub fn hear() {
    ASKED.fetch_add(1, Ordering::Relaxed);
}

/// Whether it was asked to end.
pub fn heard() -> bool {
    ASKED.load(Ordering::Relaxed) > 0
}
