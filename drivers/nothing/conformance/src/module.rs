//! Loading and unloading the module, and its parameters.

use super::abi::{PATH, answer};
use anyhow::{Context as _, Result, bail};
use std::{
    ffi::CString,
    fs::{self, File},
    io,
    os::fd::AsRawFd as _,
    path::Path,
    thread,
    time::{Duration, Instant},
};

/// Longest time for the last hold on the module to go: a ring that was left is taken apart by a
/// thread of the kernel.
const MOST_WAIT: Duration = Duration::from_secs(60);

/// Loads the module with parameters as on the command line of insmod.
pub fn load(module: &Path, parameters: &str) -> io::Result<()> {
    let file = File::open(module)?;
    let parameters = CString::new(parameters)?;
    // SAFETY: a descriptor, and a string that ends.
    answer(unsafe {
        libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), parameters.as_ptr(), 0)
    } as isize)
    .map(drop)
}

/// Whether it is loaded.
pub fn is_loaded() -> bool {
    Path::new("/sys/module/nothing").exists()
}

/// Unloads it, once.
pub fn unload() -> io::Result<()> {
    // SAFETY: a string that ends.
    answer(unsafe { libc::syscall(libc::SYS_delete_module, c"nothing".as_ptr(), libc::O_NONBLOCK) }
        as isize)
    .map(drop)
}

/// Unloads it as soon as nothing holds it.
pub fn unload_when_free() -> Result<Duration> {
    let start = Instant::now();
    loop {
        match unload() {
            Ok(()) => {
                if fs::exists(PATH)? {
                    bail!("{PATH} is still there");
                }
                return Ok(start.elapsed());
            }
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {}
            Err(error) => return Err(error).context("cannot unload"),
        }
        if start.elapsed() > MOST_WAIT {
            bail!("something still holds the module after {MOST_WAIT:?}");
        }
        // Nobody tells when a module is free.
        thread::sleep(Duration::from_millis(10));
    }
}

/// Writes a parameter.
pub fn set_parameter(name: &str, value: &str) -> io::Result<()> {
    fs::write(format!("/sys/module/nothing/parameters/{name}"), value)
}

/// Reads a parameter.
pub fn parameter(name: &str) -> io::Result<String> {
    Ok(fs::read_to_string(format!("/sys/module/nothing/parameters/{name}"))?.trim().to_owned())
}
