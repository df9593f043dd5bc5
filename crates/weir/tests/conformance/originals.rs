//! Defects of the original servers that no design can have, since they lay elsewhere. Those
//! that a design could have are checks of their own: `wrong_sizes` and `stop_at_once`.

use libtest_mimic::Trial;
use weir::{
    Error,
    memory::{Layout, Region, RegionOptions},
};

pub fn trials() -> Vec<Trial> {
    let trial = |name: &str, check: fn()| {
        Trial::test(format!("originals::{name}"), move || {
            check();
            Ok(())
        })
    };
    vec![
        trial("sizes_are_multiplied_in_full", sizes_are_multiplied_in_full),
        trial("a_slice_that_was_posted_is_out_of_reach", a_slice_that_was_posted_is_out_of_reach),
    ]
}

/// Sizes were multiplied in 32 bits: a region of more than 4 GiB came out as a small one.
fn sizes_are_multiplied_in_full() {
    const SLICES: u32 = 70_000;
    let layout = Layout::packed(0, 65_536, 64);
    let bytes = 65_536 * SLICES as usize;
    assert!(u32::try_from(bytes).is_err());
    // Memory that is not touched costs nothing, but a system may refuse to promise it.
    match Region::new(layout, SLICES, RegionOptions::default()) {
        Ok(region) => {
            assert_eq!(region.extent().1, bytes);
            let first = region.extent().0.as_ptr() as usize;
            let slices: Vec<_> = std::iter::from_fn(|| region.take()).collect();
            let highest = slices.iter().map(|slice| slice.base().as_ptr() as usize - first).max();
            assert_eq!(highest, Some(bytes - 65_536));
        }
        Err(Error::Memory { bytes: told, .. }) => assert_eq!(told, bytes),
        Err(other) => panic!("{other}"),
    }
}

/// A buffer's link was read after the buffer had been posted again. Posting takes the slice
/// out of the program's hands; what is left of it cannot be read.
fn a_slice_that_was_posted_is_out_of_reach() {
    let region = Region::new(Layout::packed(0, 64, 64), 1, RegionOptions::default()).unwrap();
    let posted = region.take().unwrap().post();
    assert!(region.take().is_none(), "a posted slice is not in the pool either");
    // SAFETY: posted just above, and no kernel is involved.
    let slice = unsafe { posted.reclaim(&region) };
    assert_eq!(slice.index(), posted.index());
    drop(slice);
    assert_eq!(region.in_pool(), 1);
}
