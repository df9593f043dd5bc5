//! pselect6(2), by the system call: the C library's type for a set ends at 1024.

mod built;
mod indexed;
mod sets;

pub use built::Select;
pub use indexed::SelectIndexed;

use crate::{Error, Unavailable, counters::Counters, readiness::wake_event::WakeEvent};
use sets::Sets;
use std::{
    io,
    os::fd::RawFd,
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
        sets.want(wake_event.fd(), true, false);
        sets.select(Some(Duration::ZERO))
    };
    tried().map(drop).map_err(|e| Unavailable::new("select", format!("pselect6: {e}")))
}

fn wake_event() -> Result<Arc<WakeEvent>, Error> {
    WakeEvent::new().map(Arc::new).map_err(|e| Error::io("eventfd", e))
}

/// Waits with sets that `make` makes before each call, since a call that was interrupted is made again.
/// Answers how many bits the kernel has left in them, none where the time is over.
fn wait(
    sets: &mut Sets,
    timeout: Option<Duration>,
    counters: &Counters,
    mut make: impl FnMut(&mut Sets),
) -> io::Result<usize> {
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
            Ok(count) => return Ok(count),
        }
        left = by.map(|by| by.saturating_duration_since(Instant::now()));
    }
}

/// Takes the wake event's bit out of an answer. Says whether it was signalled.
fn signalled(sets: &mut Sets, wake_event: &WakeEvent, counters: &Counters) -> bool {
    let signalled = sets.contain(wake_event.fd());
    if signalled {
        sets.remove(wake_event.fd());
        counters.kernel_entries.one();
        wake_event.clear();
    }
    signalled
}

/// The place of a descriptor in what is kept by descriptor.
fn index(fd: RawFd) -> usize {
    usize::try_from(fd).expect("an open descriptor is no negative number")
}
