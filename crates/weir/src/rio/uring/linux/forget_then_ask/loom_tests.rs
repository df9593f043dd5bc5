//! Arming against posting in every interleaving, by loom, over the real buffers. The holder asks
//! while others post; once they are done, a holder that was told no must have had the alarm raised.

use super::super::{
    buffers::{Buffers, Table},
    frame::{self, Beside, Frame},
};
use super::forget_then_ask;
use crate::{
    memory::{Region, RegionOptions},
    rio::Needs,
};
use loom::{sync::Mutex, thread};
use std::sync::Arc;

const SLICES: u32 = 2;

struct World {
    region: Arc<Region>,
    buffers: Mutex<Buffers>,
    table: Table,
    /// The alarm's eventfd: a wait ends once this is above 0.
    raised: Mutex<u32>,
}

type Order = fn(&dyn Fn(), &dyn Fn() -> bool) -> bool;

impl World {
    fn new() -> Arc<Self> {
        let needs = Needs {
            payload: 64,
            receives: SLICES,
            sends: 0,
            per_dequeue: 1,
            offload: false,
            meta: false,
        };
        let layout = frame::layout(&needs);
        let region = Region::new(layout, SLICES, RegionOptions::default()).unwrap();
        let (buffers, table) = Buffers::new(SLICES, SLICES, Frame::new(&region, Beside::Name));
        Arc::new(Self { region, buffers: Mutex::new(buffers), table, raised: Mutex::new(0) })
    }

    /// Posts a slice, as the request queue does at a commit.
    fn post(&self) {
        let slice = self.region.take().unwrap().post();
        let word = self.buffers.lock().unwrap().post(&mut vec![slice], &self.table);
        if word {
            *self.raised.lock().unwrap() += 1;
        }
    }

    /// Asks for buffers, as the completion queue does before it waits.
    fn ask(&self, order: Order) -> bool {
        let forget = || *self.raised.lock().unwrap() = 0;
        order(&forget, &|| self.buffers.lock().unwrap().ready())
    }
}

fn explore(order: Order, posters: u32) {
    loom::model(move || {
        let world = World::new();
        let posters: Vec<_> = (0..posters)
            .map(|_| {
                let world = Arc::clone(&world);
                thread::spawn(move || world.post())
            })
            .collect();
        let ready = world.ask(order);
        for poster in posters {
            poster.join().unwrap();
        }
        if !ready {
            assert!(*world.raised.lock().unwrap() > 0, "the post is not heard");
            assert!(world.ask(order), "the ring was for nothing");
        }
        let mut buffers = world.buffers.lock().unwrap();
        // SAFETY: there is no kernel.
        unsafe { buffers.take_held(&world.region, &world.table) };
        assert_eq!(world.region.in_pool(), SLICES);
    });
}

#[test]
fn a_post_is_heard_whenever_it_comes() {
    for posters in 1..=SLICES {
        explore(|forget, ask| forget_then_ask(forget, ask), posters);
    }
}

/// Shows that the test above would find the wrong order.
#[test]
#[should_panic(expected = "the post is not heard")]
fn asking_before_forgetting_loses_a_post() {
    let ask_then_forget: Order = |forget, ask| {
        let ready = ask();
        forget();
        ready
    };
    explore(ask_then_forget, 1);
}
