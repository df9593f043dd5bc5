//! Pages from the heap: no huge pages, no NUMA node, none locked.

use super::{
    super::{Commit, Committed, NumaNode, Obtained, RegionOptions},
    may_be_committed,
};
use crate::machine;
use std::{alloc, io, ptr::NonNull};

pub struct Pages {
    base: NonNull<u8>,
    layout: alloc::Layout,
    commit: Committed,
}

const PAGE_BYTES: usize = 4096;

impl Pages {
    pub fn map(bytes: usize, align: usize, options: RegionOptions) -> io::Result<Self> {
        if let NumaNode::Node(node) = options.numa_node {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!("memory cannot be placed on NUMA node {node} on this system"),
            ));
        }
        let layout = alloc::Layout::from_size_align(bytes, align.max(PAGE_BYTES))
            .map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        // SAFETY: the layout has a size of at least 1 (the region asks for no less).
        let base = NonNull::new(unsafe { alloc::alloc_zeroed(layout) })
            .ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let commit = match (options.commit, left_bytes(options)) {
            (Commit::Touched, _) => Committed::Touched,
            (Commit::Locked, left_bytes) if !may_be_committed(layout.size(), left_bytes) => {
                Committed::TooLittle { left_bytes }
            }
            (Commit::Locked, _) => {
                for at in (0..layout.size()).step_by(PAGE_BYTES) {
                    // SAFETY: inside what was just allocated, which is filled with zeroes and which nobody else knows yet.
                    unsafe { base.add(at).write_volatile(0) };
                }
                Committed::Unlocked { limit_bytes: None }
            }
        };
        Ok(Self { base, layout, commit })
    }

    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub fn obtained(&self) -> Obtained {
        Obtained {
            bytes: self.layout.size(),
            page_bytes: PAGE_BYTES,
            huge_pages_advised: false,
            numa_node: None,
            commit: self.commit,
        }
    }
}

/// What memory is left, where that matters. Miri has no system to ask.
fn left_bytes(options: RegionOptions) -> Option<u64> {
    let asks = options.commit == Commit::Locked && !cfg!(miri);
    asks.then(machine::memory_left_bytes).flatten()
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: allocated in `map` with this very layout.
        unsafe { alloc::dealloc(self.base.as_ptr(), self.layout) }
    }
}
