//! Registered I/O: a queue that threads pass to each other, with or without a thread that posts for them, and a queue
//! for each thread.
//!
//! Whoever dequeues copies, as on plain sockets, and as on io_uring under load where the hybrid sweeps.

use super::{Does, Server};
use crate::simulate::{
    events::{Thread, Time},
    kernel::{Lock, Socket},
};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};
use weir::{
    rio::turn::order::Order,
    udp::policy::{Turning, after, reader},
};

/// How long a thread keeps the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holding {
    /// It gives it up after each dequeue, before it handles what came.
    Never,
    /// The hybrid: until a dequeue brings as many as the threshold.
    UntilOverwhelmed,
}

/// What the threads share.
struct Shared {
    server: Rc<Server>,
    socket: Rc<Socket>,
    order: RefCell<Order<()>>,
    /// Around the order.
    turns: Lock,
    /// Around the request queue.
    requests: Lock,
    returned: Option<ReturnQueue>,
    /// The core that posted or dequeued the slices last.
    slices_core: Cell<Option<usize>>,
    alone: bool,
}

/// What is finished, for the reader.
struct ReturnQueue {
    slices: Cell<u64>,
    reader: RefCell<reader::Waits>,
    lock: Lock,
    /// The reader's number: the last.
    thread: usize,
}

pub(super) fn sharing(
    server: Rc<Server>,
    holding: Holding,
    has_reader: bool,
) -> impl FnMut(Thread) -> Does {
    let threads = server.numbers.threads;
    let mut order = Order::new(threads);
    order.put_back(());
    let lock = || Lock::new(server.times.lock);
    let returned = has_reader.then(|| ReturnQueue {
        slices: Cell::default(),
        reader: RefCell::default(),
        lock: lock(),
        thread: threads,
    });
    let shared = Rc::new(Shared {
        socket: Rc::clone(&server.sockets[0]),
        order: RefCell::new(order),
        turns: lock(),
        requests: lock(),
        returned,
        slices_core: Cell::default(),
        alone: threads == 1 && !has_reader && holding == Holding::UntilOverwhelmed,
        server,
    });
    move |thread| {
        let shared = Rc::clone(&shared);
        if thread.number() == threads {
            return Box::pin(async move { shared.read(&thread).await });
        }
        match holding {
            Holding::Never => Box::pin(async move { shared.take_turns(&thread).await }),
            Holding::UntilOverwhelmed => Box::pin(async move { shared.hold(&thread).await }),
        }
    }
}

impl Shared {
    /// Dequeues whenever it is this thread's turn, and gives the queue up before it handles what came.
    async fn take_turns(&self, thread: &Thread) {
        let mut batch = Vec::new();
        loop {
            self.turn(thread).await;
            self.server.wait(thread, &self.socket).await;
            self.dequeue(thread, &mut batch).await;
            self.give_up(thread).await;
            self.handle(thread, &batch).await;
        }
    }

    /// The hybrid: keeps the queue for as long as dequeues bring less than the threshold.
    async fn hold(&self, thread: &Thread) {
        let (mut batch, mut held) = (Vec::new(), false);
        let numbers = self.server.numbers;
        loop {
            if !held {
                self.turn(thread).await;
                self.server.wait(thread, &self.socket).await;
            }
            let taken = self.dequeue(thread, &mut batch).await;
            held = true;
            if taken == 0 {
                if !self.spin(thread).await {
                    self.server.wait(thread, &self.socket).await;
                }
                continue;
            }
            if after(taken as u64, numbers.threshold) == Turning::GivenUp {
                self.give_up(thread).await;
                held = false;
            }
            self.handle(thread, &batch).await;
        }
    }

    /// Looks again and again, for as long as the hybrid does. Each look is a dequeue and the clock; nobody else takes
    /// meanwhile, so those that find nothing are one step. Whether something came.
    async fn spin(&self, thread: &Thread) -> bool {
        let (world, times) = (thread.world(), &self.server.times);
        let look = (times.dequeue + times.clock).max(1);
        let begun = world.now();
        let end = begun + self.server.numbers.spin;
        let next = self.socket.ready_at(begun).unwrap_or(Time::MAX);
        let until = next.min(end);
        thread.run(until.saturating_sub(begun).div_ceil(look) * look).await;
        next <= end
    }

    /// Waits for the turn.
    async fn turn(&self, thread: &Thread) {
        self.locked(&self.turns, thread).await;
        loop {
            if self.order.borrow_mut().take().is_some() {
                break;
            }
            self.order.borrow_mut().park(thread.number());
            self.unlocked(&self.turns, thread).await;
            while !self.order.borrow().is_picked(thread.number()) {
                thread.run(self.server.times.call).await;
                thread.sleep().await;
            }
            self.locked(&self.turns, thread).await;
        }
        self.unlocked(&self.turns, thread).await;
    }

    /// Gives the queue up, and wakes who parked last.
    async fn give_up(&self, thread: &Thread) {
        self.locked(&self.turns, thread).await;
        self.order.borrow_mut().put_back(());
        let picked = self.order.borrow_mut().pick();
        self.unlocked(&self.turns, thread).await;
        if let Some(other) = picked {
            self.server.wake(thread, other).await;
        }
    }

    /// Takes what is there. Memory that another core had last has to come here.
    async fn dequeue(&self, thread: &Thread, batch: &mut Vec<Time>) -> usize {
        let (server, core) = (&self.server, thread.core());
        batch.clear();
        let taken = self.socket.take(thread.world().now(), server.numbers.dequeue_max, batch);
        let times = &server.times;
        let mut each = times.dequeue_each;
        if taken > 0 && self.slices_core.replace(Some(core)).is_some_and(|of| of != core) {
            each += times.moved;
        }
        thread.run(times.dequeue + each * taken as u64).await;
        taken
    }

    /// Handles what came, and posts its slices again, or hands them to who does.
    async fn handle(&self, thread: &Thread, batch: &[Time]) {
        let (server, slices) = (&self.server, batch.len() as u64);
        server.handle(thread, batch, 0).await;
        let Some(returned) = &self.returned else {
            self.locked(&self.requests, thread).await;
            thread.run(server.times.post * slices).await;
            self.slices_core.set(Some(thread.core()));
            self.unlocked(&self.requests, thread).await;
            return;
        };
        if slices == 0 {
            return;
        }
        returned.lock.take(thread).await;
        returned.slices.set(returned.slices.get() + slices);
        let wake = returned.reader.borrow_mut().filled();
        returned.lock.release(thread).await;
        if wake {
            server.wake(thread, returned.thread).await;
        }
    }

    /// The reader: posts whatever the others have finished. It touches each slice, on its own core.
    async fn read(&self, thread: &Thread) {
        let Some(returned) = &self.returned else { return };
        let times = &self.server.times;
        loop {
            returned.lock.take(thread).await;
            let slices = returned.slices.take();
            if slices == 0 {
                returned.reader.borrow_mut().found_nothing();
                returned.lock.release(thread).await;
                while returned.reader.borrow().is_waiting() {
                    thread.run(times.call).await;
                    thread.sleep().await;
                }
                continue;
            }
            returned.lock.release(thread).await;
            let moved = self.slices_core.replace(Some(thread.core())) != Some(thread.core());
            let each = times.post + if moved { times.moved } else { 0 };
            thread.run(each * slices).await;
        }
    }

    /// One thread with the queues for itself has no locks.
    async fn locked(&self, lock: &Lock, thread: &Thread) {
        if !self.alone {
            lock.take(thread).await;
        }
    }

    async fn unlocked(&self, lock: &Lock, thread: &Thread) {
        if !self.alone {
            lock.release(thread).await;
        }
    }
}

/// `rio-sharded`: a socket and a queue for each thread; it takes what is there, and waits when there was nothing.
pub(super) fn sharded(server: Rc<Server>) -> impl FnMut(Thread) -> Does {
    move |thread| {
        let server = Rc::clone(&server);
        Box::pin(async move {
            let socket = Rc::clone(&server.sockets[thread.number()]);
            let times = server.times;
            let mut batch = Vec::new();
            loop {
                batch.clear();
                let most = server.numbers.dequeue_max;
                let taken = socket.take(thread.world().now(), most, &mut batch);
                thread.run(times.dequeue + times.dequeue_each * taken as u64).await;
                match taken {
                    0 => server.wait(&thread, &socket).await,
                    _ => server.handle(&thread, &batch, times.post).await,
                }
            }
        })
    }
}
