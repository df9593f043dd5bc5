//! select: sets of descriptors, a bit each, which the kernel overwrites with its answer.
//!
//! The whole of both sets (to receive, to send) goes to the kernel with every call, up to the highest
//! descriptor, and has to be looked through afterwards. Two ways to use it:
//!
//! - [`Select`]: the sets are built anew for each call, and each connection is asked for in the
//!   answer. The set knows nothing of connections but their descriptors: [`Streams`](super::Streams) is
//!   next to nothing here, and the work is the caller's.
//! - [`SelectIndexed`]: the wanted sets are kept up to date and copied for each call; in the answer only
//!   the bits that are set are stepped through, and each leads to its connection by an index.
//!
//! The sets are as large as the highest descriptor needs: the limit of 1024 (FD_SETSIZE) is the C
//! library's, the kernel takes any number (select(2), BUGS). So both make the call themselves. Errors
//! show as ready, as far as a connection is told for anything: one that is told for nothing is told
//! nothing.
//!
//! Linux only so far. Elsewhere everything here says so.

#[cfg(target_os = "linux")]
#[path = "linux/mod.rs"]
mod native;
#[cfg(not(target_os = "linux"))]
use crate::absent as native;

pub use native::{Select, SelectIndexed};
