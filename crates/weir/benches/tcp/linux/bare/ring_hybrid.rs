//! A ring as in `ring`, whose thread looks again for a while before it waits. A look enters the kernel only where
//! something is to be submitted, or the ring says that there is work for this thread.

use super::{Run, ring};
use io_uring::{EnterFlags, IoUring};
use std::{
    io,
    time::{Duration, Instant},
};

/// How long, as for the design.
const SPIN: Duration = Duration::from_micros(50);

pub fn ring_hybrid(run: &Run) -> io::Result<()> {
    ring::echo(run, look_or_wait)
}

fn look_or_wait(ring: &mut IoUring) -> io::Result<()> {
    let mut since = None;
    while ring.completion().is_empty() {
        let submission = ring.submission();
        let (pending, work) = (submission.len(), submission.taskrun() || submission.cq_overflow());
        drop(submission);
        if pending > 0 || work {
            let flags = EnterFlags::GETEVENTS.bits();
            // SAFETY: what the entries point at lives until the ring is no more used; there is no argument.
            unsafe { ring.submitter().enter::<libc::sigset_t>(pending as u32, 0, flags, None) }?;
            continue;
        }
        let now = Instant::now();
        if now - *since.get_or_insert(now) >= SPIN {
            return ring.submit_and_wait(1).map(drop);
        }
        std::hint::spin_loop();
    }
    Ok(())
}
