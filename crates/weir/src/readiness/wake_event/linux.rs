//! eventfd(2): a counter in the kernel.

use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
};

/// A wake event.
#[derive(Debug)]
pub struct WakeEvent(OwnedFd);

impl WakeEvent {
    pub fn new() -> io::Result<Self> {
        // SAFETY: takes no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor, which nobody else owns.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    pub fn signal(&self) {
        let one = 1u64;
        // A counter that is full (it would take 2^64 - 1 signals) is signalled already.
        // SAFETY: writes eight bytes from a value that outlives the call.
        unsafe { libc::write(self.fd(), (&raw const one).cast(), size_of_val(&one)) };
    }

    pub fn clear(&self) {
        self.take_signals();
    }

    /// How often it was signalled since this was last asked, or it was cleared.
    pub fn take_signals(&self) -> u64 {
        let mut signals = 0u64;
        // It would block where nobody has signalled meanwhile, and leaves the number as it is.
        // SAFETY: reads eight bytes into a value that outlives the call.
        unsafe { libc::read(self.fd(), (&raw mut signals).cast(), size_of_val(&signals)) };
        signals
    }

    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
