//! The ranks of this run, where it was started by MPI.

use std::sync::Arc;

use weir_load::ranks::Ranks;

use crate::exit::Failure;

/// The ranks.
///
/// # Errors
/// What to do, where there are none.
pub fn ranks() -> Result<Arc<dyn Ranks>, Failure> {
    Err(Failure::usage(
        "--mpi needs a weir that was built with MPI: cargo install --path crates/weir-cli --features mpi",
    ))
}
