//! What stands for the link in a build without MPI.

/// Says that there is no MPI in this build; gives an exit code.
pub fn serve() -> u8 {
    eprintln!("this build of weir has no MPI");
    1
}
