//! The basket with real threads: what comes out, and that nothing is allocated for it.

use super::{Basket, Reading};
use crate::{
    counters::Counters,
    memory::{Layout, Region, RegionOptions},
    udp::rio::{crew::Done, engine::Next},
};
use std::{sync::Arc, thread};

const SLICES: u32 = 100;

fn basket() -> (Arc<Region>, Arc<Basket>) {
    let layout = Layout::packed(0, 64, 64);
    let region = Region::new(layout, SLICES, RegionOptions::default()).unwrap();
    let basket = Basket::new(&region, 2);
    (region, basket)
}

/// Puts in so many slices of the pool, one at a time.
fn put(region: &Arc<Region>, basket: &Basket, slices: u32) {
    let mut done = basket.collection(1);
    for n in 0..slices {
        let slice = region.take().expect("a slice in the pool");
        done.add(Next::Receive { slice, socket: n % 2 });
        basket.put(&mut done);
        assert!(done.is_empty());
    }
}

#[test]
fn all_slices_at_once_fit_without_another_allocation() {
    let (region, basket) = basket();
    let (mut done, counters) = (basket.taken(), Counters::default());
    let room = |done: &Done, basket: &Basket| (done.room(), basket.lock().done.room());
    let before = room(&done, &basket);
    for _ in 0..3 {
        put(&region, &basket, SLICES);
        assert_eq!(region.in_pool(), 0);
        assert!(basket.take(&mut done, &counters));
        assert_eq!(done.len(), SLICES as usize);
        done.clear();
        assert_eq!(region.in_pool(), SLICES);
    }
    let (mine, its) = room(&done, &basket);
    assert!([(mine, its), (its, mine)].contains(&before), "{before:?} became {mine}, {its}");
    assert_eq!(counters.parks.get(), 0, "there was always something");
}

#[test]
fn a_reader_that_waits_is_woken_by_what_is_put_in_and_by_the_end() {
    let (region, basket) = basket();
    let counters = Arc::new(Counters::default());
    let reader = {
        let (basket, counters) = (Arc::clone(&basket), Arc::clone(&counters));
        thread::spawn(move || {
            let (mut done, mut came) = (basket.taken(), 0);
            while basket.take(&mut done, &counters) {
                came += done.len();
                done.clear();
            }
            came
        })
    };
    let parked = |times| {
        while counters.parks.get() < times || !basket.lock().waiting {
            thread::yield_now();
        }
    };
    parked(1);
    put(&region, &basket, 1);
    parked(2);
    put(&region, &basket, 7);
    basket.closer().wake();
    assert_eq!(reader.join().unwrap(), 8);
    assert_eq!(region.in_pool(), SLICES);
}

#[test]
fn what_was_put_in_before_the_end_is_taken() {
    let (region, basket) = basket();
    put(&region, &basket, 3);
    basket.close();
    let (mut done, counters) = (basket.taken(), Counters::default());
    assert!(basket.take(&mut done, &counters));
    assert_eq!(done.len(), 3);
    done.clear();
    assert!(!basket.take(&mut done, &counters), "closed, and empty");
}

#[test]
fn a_reader_that_leaves_leaves_no_slice_behind() {
    let (region, basket) = basket();
    put(&region, &basket, 3);
    drop(Reading(&basket));
    assert_eq!(region.in_pool(), SLICES, "what was in it");
    put(&region, &basket, 3);
    assert_eq!(region.in_pool(), SLICES, "what came afterwards");
}
