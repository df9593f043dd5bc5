//! The queue with real threads: what comes out, and that nothing is allocated for it.

use super::{Filling, Reading, ReturnQueue};
use crate::{
    counters::Counters,
    memory::{Layout, Region, RegionOptions},
    udp::rio::engine::{Next, ToPost},
};
use std::{sync::Arc, thread};

const SLICES: u32 = 100;

fn queue() -> (Arc<Region>, Arc<ReturnQueue>) {
    let layout = Layout::packed(0, 64, 64);
    let region = Region::new(layout, SLICES, RegionOptions::default()).unwrap();
    let queue = ReturnQueue::new(&region, 2);
    (region, queue)
}

/// Puts in so many slices of the pool, one at a time.
fn put(region: &Arc<Region>, queue: &ReturnQueue, slices: u32) {
    let mut to_post = queue.collection(1);
    for n in 0..slices {
        let slice = region.take().expect("a slice in the pool");
        to_post.add(Next { slice, socket: n % 2, send: None });
        queue.put(&mut to_post);
        assert!(to_post.is_empty());
    }
}

#[test]
fn all_slices_at_once_fit_without_another_allocation() {
    let (region, queue) = queue();
    let (mut to_post, counters) = (queue.taken(), Counters::default());
    let room =
        |to_post: &ToPost, queue: &ReturnQueue| (to_post.room(), queue.lock().to_post.room());
    let before = room(&to_post, &queue);
    for _ in 0..3 {
        put(&region, &queue, SLICES);
        assert_eq!(region.in_pool(), 0);
        assert!(queue.take(&mut to_post, &counters));
        assert_eq!(to_post.len(), SLICES as usize);
        to_post.clear();
        assert_eq!(region.in_pool(), SLICES);
    }
    let (mine, its) = room(&to_post, &queue);
    assert!([(mine, its), (its, mine)].contains(&before), "{before:?} became {mine}, {its}");
    assert_eq!(counters.parks.get(), 0, "there was always something");
}

#[test]
fn a_reader_that_waits_is_woken_by_what_is_put_in_and_by_the_end() {
    let (region, queue) = queue();
    let counters = Arc::new(Counters::default());
    let reader = {
        let (queue, counters) = (Arc::clone(&queue), Arc::clone(&counters));
        thread::spawn(move || {
            let (mut to_post, mut came) = (queue.taken(), 0);
            while queue.take(&mut to_post, &counters) {
                came += to_post.len();
                to_post.clear();
            }
            came
        })
    };
    let parked = |times| {
        while counters.parks.get() < times || !queue.lock().reader.is_waiting() {
            thread::yield_now();
        }
    };
    parked(1);
    put(&region, &queue, 1);
    parked(2);
    put(&region, &queue, 7);
    drop(Filling(Arc::clone(&queue)));
    assert_eq!(reader.join().unwrap(), 8);
    assert_eq!(region.in_pool(), SLICES);
}

#[test]
fn what_was_put_in_before_the_end_is_taken() {
    let (region, queue) = queue();
    put(&region, &queue, 3);
    queue.close();
    let (mut to_post, counters) = (queue.taken(), Counters::default());
    assert!(queue.take(&mut to_post, &counters));
    assert_eq!(to_post.len(), 3);
    to_post.clear();
    assert!(!queue.take(&mut to_post, &counters), "closed, and empty");
}

#[test]
fn a_reader_that_leaves_leaves_no_slice_behind() {
    let (region, queue) = queue();
    put(&region, &queue, 3);
    drop(Reading(&queue));
    assert_eq!(region.in_pool(), SLICES, "what was in it");
    put(&region, &queue, 3);
    assert_eq!(region.in_pool(), SLICES, "what came afterwards");
}
