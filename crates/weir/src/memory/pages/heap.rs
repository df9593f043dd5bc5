//! Pages from the heap: no huge pages, no NUMA node, none locked.

use super::{
    super::{Committed, NumaNode, Obtained, RegionOptions},
    committed, touch,
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
        // Miri has no system to ask.
        let left_bytes = || if cfg!(miri) { None } else { machine::memory_left_bytes() };
        let commit = committed(options.commit, layout.size(), left_bytes, || {
            // SAFETY: this was just allocated, filled with zeroes.
            unsafe { touch(base, layout.size(), PAGE_BYTES) };
            Committed::Unlocked { limit_bytes: None }
        });
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

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: allocated in `map` with this very layout.
        unsafe { alloc::dealloc(self.base.as_ptr(), self.layout) }
    }
}
