//! The region: one allocation, cut into equal slices.

use super::{NumaNode, Obtained, RegionOptions, pages::Pages};
use crate::Error;
use std::{
    io,
    ptr::NonNull,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

/// How a region is cut, in bytes. The provider decides it before the region exists.
///
/// A slice is `stride` bytes long and starts at a multiple of `align`. Its first
/// `headroom` bytes belong to the provider, the next `payload` bytes to the datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Distance from the start of one slice to the next.
    pub stride: usize,
    /// Bytes at the front of each slice that the provider uses.
    pub headroom: usize,
    /// Bytes of each slice that hold a datagram.
    pub payload: usize,
    /// Alignment of each slice: a power of two.
    pub align: usize,
}

impl Layout {
    /// The smallest layout with this headroom, payload and alignment.
    ///
    /// # Panics
    /// If the alignment is no power of two, or a slice would be longer than the address space.
    pub fn packed(headroom: usize, payload: usize, align: usize) -> Self {
        assert!(align.is_power_of_two(), "alignment {align} is not a power of two");
        let used = headroom.checked_add(payload).expect("a slice fits the address space");
        let stride = used.max(1).checked_next_multiple_of(align);
        let stride = stride.expect("a slice fits the address space");
        Self { stride, headroom, payload, align }
    }
}

/// Memory registered once and cut into slices, with the pool of those that nobody holds.
pub struct Region {
    pages: Pages,
    layout: Layout,
    count: u32,
    pool: Mutex<Vec<u32>>,
    leaked: AtomicU32,
}

impl Region {
    /// Makes a region of `count` slices, all of them in the pool.
    ///
    /// # Errors
    /// [`Error::Memory`] if the memory, or its place on a NUMA node, cannot be had; [`Error::Option`] if there is no
    /// such node.
    ///
    /// # Panics
    /// If slices of this layout would overlap, or are not aligned as it says.
    pub fn new(layout: Layout, count: u32, options: RegionOptions) -> Result<Arc<Self>, Error> {
        let used = layout.headroom.checked_add(layout.payload);
        assert!(used.is_some_and(|used| used <= layout.stride), "slices would overlap");
        assert!(layout.align.is_power_of_two() && layout.stride.is_multiple_of(layout.align));
        let bytes = layout.stride.saturating_mul(count as usize);
        let pages = Pages::map(bytes.max(1), layout.align, options)
            .map_err(|source| refused(bytes, count, options.numa_node, source))?;
        // The lowest index lies on top, so a pool that is hardly used touches few pages.
        let pool = Mutex::new((0..count).rev().collect());
        Ok(Arc::new(Self { pages, layout, count, pool, leaked: AtomicU32::new(0) }))
    }

    /// How the region is cut.
    #[inline]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Whether it is cut as a provider asked.
    ///
    /// # Errors
    /// [`Error::Option`] if it is not.
    pub(crate) fn check_layout(&self, asked: Layout) -> Result<(), Error> {
        if self.layout == asked {
            return Ok(());
        }
        let Layout { stride, headroom, payload, align } = asked;
        Err(Error::option(
            "region",
            format!(
                "it was not cut as this provider's layout says ({headroom} + {payload} of {stride} bytes a slice, \
                 aligned to {align}); make it with the layout that the provider answers"
            ),
        ))
    }

    /// How many slices there are.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// What the operating system gave.
    pub fn obtained(&self) -> Obtained {
        self.pages.obtained()
    }

    /// First byte of the region and its length in bytes, for registering it.
    pub fn extent(&self) -> (NonNull<u8>, usize) {
        (self.pages.base(), self.layout.stride * self.count as usize)
    }

    /// Takes the index of a slice from the pool, if one is there.
    pub(super) fn take_index(&self) -> Option<u32> {
        self.lock_pool().pop()
    }

    /// How many slices lie in the pool.
    pub fn in_pool(&self) -> u32 {
        self.lock_pool().len() as u32
    }

    /// How many slices were lost to a kernel that never gave them back (a queue dropped
    /// without being stopped). Known once that queue has gone.
    pub fn leaked(&self) -> u32 {
        self.leaked.load(Relaxed)
    }

    /// Counts slices that the kernel kept when their queue went away.
    pub fn count_leaked(&self, slices: u32) {
        self.leaked.fetch_add(slices, Relaxed);
    }

    pub(super) fn give_back(&self, index: u32) {
        self.lock_pool().push(index);
    }

    /// First byte of a slice, headroom included.
    #[inline]
    pub(super) fn slice_base(&self, index: u32) -> NonNull<u8> {
        debug_assert!(index < self.count);
        // SAFETY: index < count, so the offset lies inside the mapping of count * stride bytes.
        unsafe { self.pages.base().add(index as usize * self.layout.stride) }
    }

    fn lock_pool(&self) -> std::sync::MutexGuard<'_, Vec<u32>> {
        // A panic elsewhere cannot leave the list half changed: push and pop are all we do.
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Region")
            .field("layout", &self.layout)
            .field("count", &self.count)
            .field("in_pool", &self.in_pool())
            .finish()
    }
}

// SAFETY: the region is plain memory. Its bytes are only reached through slices, each of
// which has one owner at a time; the pool's list is behind a lock.
unsafe impl Send for Region {}
// SAFETY: as above; no method of `Region` reads or writes the bytes of a slice.
unsafe impl Sync for Region {}

/// Why there is no memory: a node that is not there is no want of it.
fn refused(bytes: usize, count: u32, node: NumaNode, source: io::Error) -> Error {
    match node {
        // No such node, or a system that does not place memory: with less it would fail alike.
        NumaNode::Node(_)
            if matches!(
                source.kind(),
                io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported
            ) =>
        {
            let problem =
                format!("{source}; name a node that has memory, or leave this option out");
            Error::option("numa-node", problem)
        }
        _ => Error::Memory { bytes, slices: count as usize, source },
    }
}
