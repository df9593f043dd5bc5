//! pselect6(2), by the system call: the C library's type for a set ends at 1024.

mod built;
mod indexed;
mod sets;

pub use built::Select;
pub use indexed::SelectIndexed;

use crate::{Error, Unavailable, counters::Counters, readiness::bell::Bell};
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
        let bell = Bell::new()?;
        let mut sets = Sets::default();
        sets.want(bell.fd(), true, false);
        sets.select(Some(Duration::ZERO))
    };
    tried().map(drop).map_err(|e| Unavailable::new("select", format!("pselect6: {e}")))
}

fn bell() -> Result<Arc<Bell>, Error> {
    Bell::new().map(Arc::new).map_err(|e| Error::io("eventfd", e))
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

/// Takes the bell's bit out of an answer. Says whether it rang.
fn rang(sets: &mut Sets, bell: &Bell, counters: &Counters) -> bool {
    let rang = sets.contain(bell.fd());
    if rang {
        sets.remove(bell.fd());
        counters.kernel_entries.one();
        bell.clear();
    }
    rang
}

/// The place of a descriptor in what is kept by descriptor.
fn index(fd: RawFd) -> usize {
    usize::try_from(fd).expect("an open descriptor is no negative number")
}
