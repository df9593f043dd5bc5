//! Ranks that MPI started: [`weir_load::ranks::Ranks`] on any MPI.
//!
//! MPI gives what starts processes on many hosts, their numbers, messages among them, barriers, broadcasts and reductions. It
//! does not give survival: most implementations end a process whose peer has died, from within any call (Open MPI 4 does so
//! when a TCP connection of its own breaks), a call may wait for ever, and mpirun ends all processes when one has gone. So
//! each rank is three processes. The one that mpirun started ([`guard`]) only waits; its child, the same command again, does
//! the work, and has no MPI in it; that starts the third ([`link`]), which does nothing but speak MPI, and hears from it
//! through a pipe. Whatever becomes of MPI or mpirun, the second one reports. It also measures without a library that polls
//! in its process.
//!
//! - [`wire`]: what rank and link say to one another.
//! - [`process`]: the end of whoever works ([`Mpi`]).
//! - [`link`]: the end that speaks MPI, by operations that do not wait. With the feature `mpi` only: everything else is built
//!   without an MPI.
//! - [`guard`]: the end that mpirun sees.
//!
//! Each link tells its neighbours in a tree of the ranks twice a second that it and its process are alive (`life`). Rank 0
//! names who is lost: at once where the process has gone and its link is left to say so; after 5 s where it has been stopped,
//! or where nothing is heard of it.

// Its tests need no MPI.
#[cfg(all(unix, any(feature = "mpi", test)))]
pub mod guard;
#[cfg(any(all(unix, feature = "mpi"), test))]
mod life;
#[cfg(all(unix, feature = "mpi"))]
pub mod link;
#[cfg(not(all(unix, feature = "mpi")))]
#[path = "absent.rs"]
pub mod link;
pub mod process;
pub mod wire;

#[cfg(not(all(unix, any(feature = "mpi", test))))]
pub use link as guard;
pub use process::{Mpi, StartError};

/// Whether this build can speak MPI.
pub const IS_BUILT_IN: bool = cfg!(all(unix, feature = "mpi"));

/// The environment variable of the process that works for a rank.
const WORKER: &str = "WEIR_MPI_WORKER";
/// The environment variable that says which process is the guard.
#[cfg(all(unix, any(feature = "mpi", test)))]
const GUARD: &str = "WEIR_MPI_GUARD";
/// What the guard says to the rank: that mpirun asks it to end.
const SIGNAL: u8 = b's';
/// What the link says to the guard: that it has joined, and that it has told all that there is to tell.
#[cfg(all(unix, any(feature = "mpi", test)))]
const JOINED: u8 = b'j';
#[cfg(all(unix, any(feature = "mpi", test)))]
const TOLD: u8 = b't';

/// Whether this process works for a rank; else it is the [`guard`] that mpirun started.
pub fn is_worker() -> bool {
    std::env::var_os(WORKER).is_some()
}

/// Whether an MPI started this process, as far as that can be seen beforehand: each implementation tells a process its rank in
/// the environment.
pub fn is_started() -> bool {
    // Open MPI, PMIx (Open MPI 5, Slurm), PMI (MPICH, Intel MPI, Slurm), MVAPICH.
    const RANKS: [&str; 4] =
        ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK"];
    RANKS.iter().any(|name| std::env::var_os(name).is_some())
}
