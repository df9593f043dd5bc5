//! What stands for guard and link in a build without MPI.

use std::{io, process::Command};

/// Says that there is no MPI in this build; gives an exit code.
pub fn serve() -> u8 {
    eprintln!("this build of weir has no MPI");
    1
}

/// Starts nothing.
///
/// # Errors
/// That there is no MPI in this build.
pub fn keep(
    _command: Command,
    _heed: impl FnOnce(Box<dyn Fn() + Send>) -> io::Result<()>,
) -> io::Result<u8> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "this build has no MPI"))
}
