//! Keeps the program where the kernel calls programs for frames from, so that a call need not put it
//! there and take it away again.
//!
//! Calls of such programs go through a piece of code that the kernel writes anew whenever a program comes
//! or goes (the BPF dispatcher), and then it waits until nobody runs the old one: some milliseconds, twice
//! for each call of BPF_PROG_RUN that has more than one frame. A program that is attached to a device is
//! there already. So it is attached to one of our own: a tap that is never up, sees no frame, and goes with
//! its descriptor.
//!
//! Origin: kernel/bpf/dispatcher.c; Documentation/networking/tuntap.rst.

use std::{
    ffi::CStr,
    fs::{File, OpenOptions},
    io,
    os::{fd::AsRawFd as _, unix::fs::OpenOptionsExt as _},
};

use weir::bpf::{Link, Place, Program};

/// The device, and what attaches the program to it; in the order in which they go.
pub struct Kept {
    _link: Link,
    _tap: File,
}

impl Kept {
    /// # Errors
    /// What the system answered: there may be no taps.
    pub fn new(program: &Program) -> io::Result<Self> {
        let tap = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_CLOEXEC)
            .open("/dev/net/tun")?;
        // SAFETY: all zeroes is a valid request.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(b"weirlive%d") {
            *to = *from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
        // SAFETY: TUNSETIFF takes such a request, which outlives the call, and fills its name in.
        if unsafe { libc::ioctl(tap.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel ended the name with a zero.
        let name = unsafe { CStr::from_ptr(request.ifr_name.as_ptr()) };
        // SAFETY: the name ends with a zero and outlives the call.
        let device = unsafe { libc::if_nametoindex(name.as_ptr()) };
        if device == 0 {
            return Err(io::Error::last_os_error());
        }
        let link = program
            .attach(device, Place::Native)
            .or_else(|_| program.attach(device, Place::Generic))?;
        Ok(Self { _link: link, _tap: tap })
    }
}
