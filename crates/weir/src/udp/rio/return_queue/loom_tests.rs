//! Every interleaving of those who put slices in and the reader, by loom. A wake-up that is lost
//! shows as a deadlock, a slice that is lost is missing from the pool.

use super::{Reading, ReturnQueue};
use crate::{
    counters::Counters,
    memory::{Layout, Region, RegionOptions},
    udp::rio::engine::Next,
};
use loom::thread;
use std::sync::Arc;

fn queue(slices: u32) -> (Arc<Region>, Arc<ReturnQueue>) {
    let layout = Layout::packed(0, 64, 64);
    let region = Region::new(layout, slices, RegionOptions::default()).unwrap();
    let queue = ReturnQueue::new(&region, 1);
    (region, queue)
}

/// Puts in one slice, from a thread of its own.
fn put_one(region: &Arc<Region>, queue: &Arc<ReturnQueue>) -> thread::JoinHandle<()> {
    let (slice, queue) = (region.take().unwrap(), Arc::clone(queue));
    thread::spawn(move || {
        let mut to_post = queue.collection(1);
        to_post.add(Next { slice, socket: 0, send: None });
        queue.put(&mut to_post);
        assert!(to_post.is_empty(), "all of it is put in");
    })
}

#[test]
fn all_that_is_put_in_is_taken() {
    loom::model(|| {
        let (region, queue) = queue(2);
        let threads = [put_one(&region, &queue), put_one(&region, &queue)];
        let (mut to_post, counters) = (queue.taken(), Counters::default());
        let mut came = 0;
        while came < 2 {
            assert!(queue.take(&mut to_post, &counters), "not closed");
            came += to_post.len();
            to_post.clear();
        }
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!((came, region.in_pool()), (2, 2));
    });
}

#[test]
fn closing_ends_the_wait_after_what_was_put_in() {
    loom::model(|| {
        let (region, queue) = queue(1);
        let thread = {
            let (slice, queue) = (region.take().unwrap(), Arc::clone(&queue));
            thread::spawn(move || {
                let mut to_post = queue.collection(1);
                to_post.add(Next { slice, socket: 0, send: None });
                queue.put(&mut to_post);
                queue.close();
            })
        };
        let (mut to_post, counters) = (queue.taken(), Counters::default());
        let mut came = 0;
        while queue.take(&mut to_post, &counters) {
            came += to_post.len();
            to_post.clear();
        }
        thread.join().unwrap();
        assert_eq!((came, region.in_pool()), (1, 1));
    });
}

#[test]
fn no_slice_stays_behind_when_the_reader_leaves() {
    loom::model(|| {
        let (region, queue) = queue(2);
        let threads = [put_one(&region, &queue), put_one(&region, &queue)];
        drop(Reading(&queue));
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(region.in_pool(), 2);
    });
}
