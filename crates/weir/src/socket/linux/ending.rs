//! The end of the waits on a socket that others have, too, whom a shutdown would end as well: an eventfd(2) beside it.

use nix::sys::eventfd::{EfdFlags, EventFd};
use std::{
    io,
    os::fd::{AsRawFd as _, RawFd},
    sync::atomic::{AtomicBool, Ordering},
};

#[derive(Debug)]
pub struct Ending {
    event: EventFd,
    over: AtomicBool,
}

impl Ending {
    pub fn new() -> io::Result<Self> {
        let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        Ok(Self { event, over: AtomicBool::new(false) })
    }

    /// What is ready to be read when it is over, for all who wait, and stays so.
    pub fn fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    pub fn end(&self) {
        if !self.over.swap(true, Ordering::Release) {
            // It fails only where it stands at its end already.
            let _ = self.event.write(1);
        }
    }
}
