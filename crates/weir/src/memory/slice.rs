//! A slice and its two ways out of the program's hands.

use super::{Layout, Region};
use std::{mem::ManuallyDrop, ptr::NonNull, sync::Arc};

/// A slice that the program owns. Dropping it returns it to the pool of its region.
///
/// Moving a slice to the kernel and back touches no reference count: the count that this
/// value holds on its region travels with it.
pub struct Slice {
    region: Arc<Region>,
    index: u32,
}

/// A slice that the kernel owns: nothing can be read or written through it.
///
/// It must come back by [`Posted::reclaim`]. A `Posted` that is forgotten keeps its region
/// alive for ever, which is what must happen while a kernel may still write there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a posted slice that is not reclaimed is leaked"]
pub struct Posted(u32);

impl Region {
    /// Takes a slice from the pool, if one is there.
    pub fn take(self: &Arc<Self>) -> Option<Slice> {
        let index = self.take_index()?;
        Some(Slice { region: Arc::clone(self), index })
    }
}

impl Slice {
    /// Its place in the region: 0 to count - 1.
    #[inline]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The region it was cut from.
    #[inline]
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// The bytes that hold a datagram.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        let layout = self.region.layout();
        // SAFETY: headroom + payload <= stride, so the range lies inside this slice, which is
        // initialised memory that only this value can reach.
        unsafe {
            std::slice::from_raw_parts(self.base().add(layout.headroom).as_ptr(), layout.payload)
        }
    }

    /// The bytes that hold a datagram, to be changed.
    #[inline]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let layout = self.region.layout();
        // SAFETY: as in `payload`; `&mut self` makes it the only reference.
        unsafe {
            std::slice::from_raw_parts_mut(
                self.base().add(layout.headroom).as_ptr(),
                layout.payload,
            )
        }
    }

    /// The headroom and the bytes that hold a datagram.
    #[inline]
    pub fn split_mut(&mut self) -> (&mut [u8], &mut [u8]) {
        let Layout { headroom, payload, .. } = self.region.layout();
        let (head, rest) = self.whole_mut().split_at_mut(headroom);
        (head, &mut rest[..payload])
    }

    /// The whole slice: headroom, payload and padding.
    #[inline]
    pub fn whole(&self) -> &[u8] {
        // SAFETY: a slice is stride bytes of initialised memory that only this value can reach.
        unsafe { std::slice::from_raw_parts(self.base().as_ptr(), self.region.layout().stride) }
    }

    /// The whole slice, to be changed.
    #[inline]
    pub fn whole_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `whole`; `&mut self` makes it the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.base().as_ptr(), self.region.layout().stride) }
    }

    /// First byte of the slice, headroom included, for a request to the kernel.
    #[inline]
    pub fn base(&self) -> NonNull<u8> {
        self.region.slice_base(self.index)
    }

    /// Hands the slice to the kernel. Its hold on the region goes along. What is posted can neither be
    /// read nor posted again:
    ///
    /// ```compile_fail,E0382
    /// # use weir::memory::{Layout, Region, RegionOptions};
    /// # let region = Region::new(Layout::packed(0, 64, 64), 1, RegionOptions::default()).unwrap();
    /// let slice = region.take().unwrap();
    /// let posted = slice.post();
    /// let link = slice.payload()[0]; // the slice was moved
    /// # let _ = (posted, link);
    /// ```
    #[inline]
    pub fn post(self) -> Posted {
        let this = ManuallyDrop::new(self);
        Posted(this.index)
    }
}

impl Slice {
    /// Leaks the slice, since a kernel may still use it, and counts that in its region.
    pub fn leak(self) {
        self.region().count_leaked(1);
        let _leaked = self.post();
    }
}

impl Posted {
    /// The slice's place in its region.
    #[inline]
    pub fn index(self) -> u32 {
        self.0
    }

    /// Names a posted slice by the index that the kernel reported.
    #[inline]
    pub fn from_index(index: u32) -> Self {
        Self(index)
    }

    /// Takes the slice back from the kernel.
    ///
    /// # Safety
    /// The slice of this index was posted (by [`Slice::post`]) from this very region, has
    /// not been reclaimed since, and the kernel is done with it.
    #[inline]
    pub unsafe fn reclaim(self, region: &Arc<Region>) -> Slice {
        assert!(self.0 < region.count(), "slice {} of {}", self.0, region.count());
        // SAFETY: the caller vouches that this index was posted and not reclaimed, so one
        // strong count of this very Arc was forgotten with it; it is taken up again here.
        let region = unsafe { Arc::from_raw(Arc::as_ptr(region)) };
        Slice { region, index: self.0 }
    }
}

impl Drop for Slice {
    fn drop(&mut self) {
        self.region.give_back(self.index);
    }
}

impl AsMut<[u8]> for Slice {
    fn as_mut(&mut self) -> &mut [u8] {
        self.payload_mut()
    }
}

impl std::fmt::Debug for Slice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Slice({})", self.index)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Layout, Posted, Region, RegionOptions};
    use std::sync::Arc;

    fn region(count: u32) -> Arc<Region> {
        Region::new(Layout::packed(48, 100, 64), count, RegionOptions::default()).unwrap()
    }

    #[test]
    fn a_dropped_slice_returns_to_the_pool() {
        let region = region(3);
        let slices: Vec<_> = std::iter::from_fn(|| region.take()).collect();
        assert_eq!((slices.len(), region.in_pool()), (3, 0));
        drop(slices);
        assert_eq!(region.in_pool(), 3);
    }

    #[test]
    fn slices_do_not_overlap_and_are_aligned() {
        let region = region(5);
        let mut slices: Vec<_> = std::iter::from_fn(|| region.take()).collect();
        for (i, slice) in slices.iter_mut().enumerate() {
            assert_eq!(slice.base().as_ptr() as usize % 64, 0);
            slice.whole_mut().fill(i as u8);
            let (head, payload) = slice.split_mut();
            assert_eq!((head.len(), payload.len()), (48, 100));
        }
        for (i, slice) in slices.iter().enumerate() {
            assert!(slice.whole().iter().all(|&byte| byte == i as u8));
            assert_eq!(slice.payload().len(), 100);
        }
    }

    #[test]
    fn posting_and_reclaiming_keeps_the_count() {
        let region = region(2);
        let before = Arc::strong_count(&region);
        let slice = region.take().unwrap();
        assert_eq!(Arc::strong_count(&region), before + 1);
        let posted = slice.post();
        assert_eq!(Arc::strong_count(&region), before + 1);
        // SAFETY: posted just above, and no kernel is involved.
        let slice = unsafe { Posted::from_index(posted.index()).reclaim(&region) };
        drop(slice);
        assert_eq!((Arc::strong_count(&region), region.in_pool()), (before, 2));
    }

    #[test]
    fn a_layout_that_wraps_around_is_refused() {
        let wraps = Layout { stride: 64, headroom: 64, payload: usize::MAX - 63, align: 64 };
        let made = std::panic::catch_unwind(|| Region::new(wraps, 1, RegionOptions::default()));
        assert!(made.is_err());
        assert!(std::panic::catch_unwind(|| Layout::packed(64, usize::MAX - 63, 64)).is_err());
    }

    #[test]
    fn a_posted_slice_keeps_its_region_for_ever() {
        let region = region(1);
        let posted = region.take().unwrap().post();
        let weak = Arc::downgrade(&region);
        drop(region);
        let region = weak.upgrade().expect("the kernel may still write there");
        // SAFETY: posted above, and no kernel is involved.
        drop(unsafe { posted.reclaim(&region) });
        drop(region);
        assert!(weak.upgrade().is_none());
    }
}
