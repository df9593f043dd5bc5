//! Who owns which slice, with the test in the kernel's place: on rings in plain memory.

use super::{
    super::ring::{Consumer, NEEDS_WAKEUP, tests::plain},
    *,
};
use crate::memory::{Layout, RegionOptions};

fn region(count: u32) -> Arc<Region> {
    let layout = Layout { stride: 2048, headroom: 320, payload: 100, align: 2048 };
    Region::new(layout, count, RegionOptions::default()).unwrap()
}

fn posted(region: &Arc<Region>, count: usize) -> Vec<Posted> {
    std::iter::from_fn(|| region.take()).take(count).map(Slice::post).collect()
}

#[test]
fn the_kernel_never_holds_more_than_the_window_and_the_rest_follows() {
    let (region, memory) = (region(10), plain::<u64>(4, u32::MAX - 2));
    let table = Table::new(&region);
    let (ring, mut kernel) =
        // SAFETY: the memory lives with each side, and each side is there once.
        unsafe { (Producer::new(memory.shape()), Consumer::new(memory.shape())) };
    let mut filling = Filling::new(ring, 3, 10);
    let mut slices = posted(&region, 10);
    assert!(!filling.post(&mut slices, &table), "nobody asked to be told");
    assert!(slices.is_empty());
    let mut came = 0;
    while came < 10 {
        let taken: Vec<u64> = std::iter::from_fn(|| kernel.take()).collect();
        kernel.release();
        assert_eq!(taken.len(), 3.min(10 - came), "after {came}");
        assert_eq!(table.given() as usize, taken.len());
        for address in &taken {
            assert_eq!(address % 2048, 0);
            let frame = Frame { addr: address + 278, len: 64, options: 0 };
            let slice = table.received(&frame).unwrap();
            assert!(table.received(&frame).is_none(), "it was given once");
            drop(slice);
        }
        came += taken.len();
        memory.set_flags(NEEDS_WAKEUP);
        assert_eq!(filling.came_back(taken.len() as u32, &table), came < 10);
    }
    assert_eq!((region.in_pool(), table.given()), (10, 0));
}

#[test]
fn what_the_kernel_was_not_given_is_not_believed() {
    let region = region(2);
    let table = Table::new(&region);
    for addr in [0, 2048, 4096, u64::MAX] {
        assert!(table.received(&Frame { addr, len: 1, options: 0 }).is_none());
    }
    let slice = region.take().unwrap().post();
    table.give(slice.index(), owner::TRANSMIT);
    let frame = Frame { addr: table.address(slice.index()), len: 1, options: 0 };
    assert!(table.received(&frame).is_none(), "it was given to be sent");
    assert_eq!(table.take_filled(), 0);
    drop(table.take(frame.addr, owner::TRANSMIT).unwrap());
}

#[test]
fn slices_that_were_posted_are_taken_back_by_count() {
    let (region, memory) = (region(6), plain::<u64>(4, 0));
    let table = Table::new(&region);
    // SAFETY: as above.
    let mut filling = Filling::new(unsafe { Producer::new(memory.shape()) }, 4, 6);
    filling.post(&mut posted(&region, 6), &table);
    assert_eq!((table.given(), filling.waiting.len()), (4, 2));
    assert_eq!((table.take_filled(), region.in_pool()), (4, 4));
    for slice in filling.waiting.drain(..) {
        // SAFETY: posted above, and not given to anybody.
        drop(unsafe { slice.reclaim(&region) });
    }
    assert_eq!(region.in_pool(), 6);
}
