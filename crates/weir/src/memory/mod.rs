//! Memory that the kernel may write to: a region registered once and cut into slices.
//!
//! A slice is owned by exactly one of three, and its type says by whom:
//!
//! | owner | what it is | how it gets there |
//! | --- | --- | --- |
//! | the pool | an index in the region's list | dropping a [`Slice`] |
//! | the program | a [`Slice`] | [`Region::take`], or a completion |
//! | the kernel | a [`Posted`] | [`Slice::post`] |
//!
//! Each slice outside the pool keeps its region alive, and so does one that the kernel
//! holds. A queue that is dropped without being stopped therefore leaks its region on
//! purpose (the kernel may still write there); it can never free it.

mod load;
mod options;
mod pages;
mod region;
mod slice;

pub use load::Load;
pub use options::{Commit, Committed, NumaNode, Obtained, PageKind, RegionOptions};
pub use region::{Layout, Region};
pub use slice::{Posted, Slice};
