//! One flood or load of several that begin together: whoever leads them says when, over the standard input.

use std::{
    io::{BufRead as _, Read as _},
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, sync_channel},
    },
    thread,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use weir_load::{FloodError, Stop, StopReason};

/// Longest line of the standard input that is listened to.
const LONGEST_LINE_BYTES: u64 = 128;
/// How often a stop, which has no waker, is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What is said when a part can begin.
#[derive(Serialize)]
struct Phase {
    phase: &'static str,
}

/// When it is to.
#[derive(Deserialize)]
struct Start {
    start_ns: u64,
}

/// The times that come over the standard input, as they are said.
///
/// The end of the input is the end of whoever leads, and requests a stop.
pub(crate) fn starts(stop: &Arc<Stop>) -> Receiver<Result<u64, String>> {
    let (sender, starts) = sync_channel(1);
    let ended = Arc::clone(stop);
    thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = input.by_ref().take(LONGEST_LINE_BYTES).read_until(b'\n', &mut line);
            if !read.is_ok_and(|bytes| bytes > 0) {
                ended.request(StopReason::Asked);
                return;
            }
            let start = serde_json::from_slice::<Start>(&line);
            let said = start.map(|start| start.start_ns).map_err(|error| error.to_string());
            if sender.send(said).is_err() {
                return;
            }
        }
    });
    starts
}

/// Says that a part can begin, and waits until it is said when.
///
/// # Errors
/// If it is not, or the flood is stopped before.
pub(super) fn next(starts: &Receiver<Result<u64, String>>, stop: &Stop) -> Result<u64, FloodError> {
    let ready = serde_json::to_string(&Phase { phase: "ready" }).expect("two texts");
    crate::print(&format!("{ready}\n"));
    when(starts, stop)
}

/// Waits until it is said when.
///
/// # Errors
/// If it is not, or all is stopped before.
pub(crate) fn when(starts: &Receiver<Result<u64, String>>, stop: &Stop) -> Result<u64, FloodError> {
    loop {
        match starts.recv_timeout(LOOK_EVERY) {
            Ok(Ok(start_ns)) => return Ok(start_ns),
            Ok(Err(problem)) => return Err(not_told(&problem)),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(not_told("the input ended"));
            }
            Err(RecvTimeoutError::Timeout) => match stop.reason() {
                None => {}
                Some(StopReason::ControlLost(why)) => return Err(not_told(&why)),
                Some(StopReason::Revoked(why)) => {
                    let why = format!("the server revoked its consent: {why}");
                    return Err(not_told(&why));
                }
                Some(StopReason::Asked | StopReason::Failed | StopReason::Hangs(_)) => {
                    return Err(not_told("it was stopped first"));
                }
            },
        }
    }
}

fn not_told(why: &str) -> FloodError {
    FloodError::Ranks(format!("the signal to begin did not come: {why}"))
}
