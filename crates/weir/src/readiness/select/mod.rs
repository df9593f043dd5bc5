//! select: sets of sockets, which the system overwrites with its answer.
//!
//! The whole of both sets (to receive, to send) goes to the kernel with every call, and has to be looked
//! through afterwards. Two ways to use it:
//!
//! - [`Select`]: the sets are built anew for each call, and each connection is asked for in the
//!   answer. The set knows nothing of connections but their sockets: [`Streams`](super::Streams) is
//!   next to nothing here, and the work is the caller's.
//! - [`SelectIndexed`]: the wanted sets are kept up to date and copied for each call; only what is left
//!   of them in the answer is stepped through, and each leads to its connection by an index.
//!
//! On Linux a set is a bit for each descriptor, up to the highest, and a bit is asked for at once. On Windows it
//! is an array of sockets: to ask for one (FD_ISSET) is to search it, so with [`Select`] a wait costs the square
//! of the connections that are ready.
//!
//! The sets are as large as they need to be: the limit (FD_SETSIZE: 1024 descriptors, 64 sockets) is that of a
//! type in the system's headers, the kernel takes any number (select(2), BUGS). Errors
//! show as ready, as far as a connection is told for anything: one that is told for nothing is told
//! nothing.

mod built;
#[cfg_attr(target_os = "linux", path = "linux/mod.rs")]
#[cfg_attr(windows, path = "windows/mod.rs")]
mod native;

pub use built::Select;
pub use native::SelectIndexed;

use super::wake_event::WakeEvent;
use crate::{Error, Unavailable, counters::Counters, rio::Woken};
use native::Sets;
use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

/// The name of the provider.
const PROVIDER: &str = "select";

/// Whether the system has it, by trying.
fn availability() -> Result<(), Unavailable> {
    let tried = || {
        let wake_event = WakeEvent::new()?;
        let mut sets = Sets::default();
        sets.want(native::of_wake_event(&wake_event), true, false);
        sets.select(Some(Duration::ZERO))
    };
    tried().map(drop).map_err(|e| Unavailable::new("select", e.to_string()))
}

fn wake_event() -> Result<Arc<WakeEvent>, Error> {
    WakeEvent::new().map(Arc::new).map_err(|e| Error::io("making a waker", e))
}

/// Waits with sets that `make` makes before each call, since a call that was interrupted is made again.
/// What is ready stays in them: nothing where the time is over. A system whose clock is a little ahead may end a
/// wait early, as if something were ready: what is left of the time is known to whoever waits.
fn wait(
    sets: &mut Sets,
    timeout: Option<Duration>,
    counters: &Counters,
    mut make: impl FnMut(&mut Sets),
) -> io::Result<Woken> {
    let by = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let mut left = timeout;
    loop {
        make(sets);
        counters.kernel_entries.one();
        match sets.select(left) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => {
                sets.clear(); // they are left as they were, and would look like an answer
                return Err(e);
            }
            Ok(0) if by.is_some_and(|by| by <= Instant::now()) => return Ok(Woken::TimedOut),
            Ok(_) => return Ok(Woken::Ready),
        }
        left = by.map(|by| by.saturating_duration_since(Instant::now()));
    }
}

/// Takes the wake event out of an answer. Says whether it was signalled.
fn signalled(sets: &mut Sets, wake_event: &WakeEvent, counters: &Counters) -> bool {
    let its = native::of_wake_event(wake_event);
    let signalled = sets.contain(its);
    if signalled {
        sets.remove(its);
        counters.kernel_entries.one();
        wake_event.clear();
    }
    signalled
}
