//! The programs. An I/O is a request that is filled in, goes to a device that does nothing but take its time, comes back
//! by a queue of completions, and is finished. The control keeps [`OUTSTANDING`] of them and uses their memory again.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    hint::black_box,
};

/// I/Os outstanding where nothing grows: as many as the original had.
const OUTSTANDING: usize = 100;
/// Where something grows, it ends here: what comes on top is done at once.
const MOST_HELD: usize = 200_000;
/// The same where all that is held is walked through for each I/O.
const MOST_WALKED: usize = 4000;
/// One I/O in so many is not taken from its queue, or its memory not given back.
const LEFT_BEHIND: u64 = 32;
/// What a request may take, in µs, until its timer expires.
const TIMEOUT_US: u64 = 1_000_000;
/// How often a clock looks at all timers, in µs.
const LOOKS_EVERY_US: u64 = 10_000;
/// Steps that the device takes for each I/O, some nanoseconds each.
const STEPS: u32 = 200;

/// One way to keep requests.
pub trait Program {
    /// Issues an I/O, and finishes one where one is over.
    fn io(&mut self);

    /// It is so late, in µs.
    fn tick(&mut self, _now_us: u64) {}

    /// How much of what grows, or could, there is.
    fn held(&self) -> usize;
}

/// A request, as large as an I/O request packet with its stack locations.
#[derive(Clone)]
struct Request {
    number: u64,
    status: u64,
    rest: [u64; 30],
}

impl Request {
    fn new() -> Self {
        Self { number: 0, status: 0, rest: [0; 30] }
    }

    /// Fills it in, and has the device do nothing.
    fn issue(&mut self, number: u64) {
        self.number = number;
        self.rest.fill(number);
        let mut state = number | 1;
        for _ in 0..STEPS {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
        }
        self.status = black_box(state);
    }

    /// Looks at what came back.
    fn finish(&self) {
        black_box(self.status ^ self.rest[29]);
    }
}

/// Every program by its name.
pub fn all() -> Vec<(&'static str, Box<dyn Program>)> {
    vec![
        ("the control beside itself", Box::new(control())),
        ("memory: fresh for each I/O, freed with it", Box::new(Fresh::default())),
        (
            "memory: fresh, one in 32 never freed",
            Box::new(Fresh { leaves: true, ..Fresh::default() }),
        ),
        ("backlog: one in 32 not dequeued, in order", Box::new(Backlog::default())),
        ("backlog: the same, found by walking a list", Box::new(Walked::default())),
        ("timers: a heap, 1 s, not taken out", Box::new(Heap::default())),
        ("timers: a list that a clock walks, the same", Box::new(List::default())),
        (
            "timers: the same list, taken out when over",
            Box::new(List { takes_out: true, ..List::default() }),
        ),
        ("deferred completions, 100 outstanding", Box::new(Deferred::default())),
    ]
}

/// A look-aside list: the same requests again and again, by a queue that is never longer than they are many.
pub struct LookAside {
    requests: Vec<Request>,
    over: VecDeque<u32>,
    number: u64,
}

pub fn control() -> LookAside {
    LookAside {
        requests: vec![Request::new(); OUTSTANDING],
        over: (0..OUTSTANDING as u32).collect(),
        number: 0,
    }
}

impl Program for LookAside {
    fn io(&mut self) {
        let next = self.over.pop_front().expect("each comes back");
        let request = &mut self.requests[next as usize];
        request.finish();
        self.number += 1;
        request.issue(self.number);
        self.over.push_back(next);
    }

    fn held(&self) -> usize {
        self.over.len()
    }
}

/// Memory of its own for each I/O, which is given back when it is over, or, of some, never.
#[derive(Default)]
struct Fresh {
    over: VecDeque<Box<Request>>,
    leaves: bool,
    left: VecDeque<Box<Request>>,
    number: u64,
}

impl Program for Fresh {
    fn io(&mut self) {
        self.number += 1;
        let mut request = Box::new(Request::new());
        request.issue(self.number);
        self.over.push_back(request);
        if self.over.len() > OUTSTANDING {
            let first = self.over.pop_front().expect("there are more");
            first.finish();
            if self.leaves && self.number.is_multiple_of(LEFT_BEHIND) && self.left.len() < MOST_HELD
            {
                self.left.push_back(first);
            }
        }
    }

    fn held(&self) -> usize {
        self.over.len() + self.left.len()
    }
}

/// Completions are dequeued more slowly than I/Os are issued, so that more and more wait; the oldest comes first.
#[derive(Default)]
struct Backlog {
    requests: Vec<Request>,
    free: Vec<u32>,
    over: VecDeque<u32>,
    number: u64,
}

impl Program for Backlog {
    fn io(&mut self) {
        self.number += 1;
        let next = self.free.pop().unwrap_or_else(|| {
            self.requests.push(Request::new());
            self.requests.len() as u32 - 1
        });
        self.requests[next as usize].issue(self.number);
        self.over.push_back(next);
        let is_late = self.number.is_multiple_of(LEFT_BEHIND) && self.over.len() < MOST_HELD;
        if self.over.len() > OUTSTANDING && !is_late {
            let first = self.over.pop_front().expect("there are more");
            self.requests[first as usize].finish();
            self.free.push(first);
        }
    }

    fn held(&self) -> usize {
        self.over.len()
    }
}

/// The same, but a completion names its request by its number alone, which is looked for among all of them, from the
/// latest on.
#[derive(Default)]
struct Walked {
    outstanding: VecDeque<Box<Request>>,
    number: u64,
    oldest: u64,
}

impl Program for Walked {
    fn io(&mut self) {
        self.number += 1;
        let mut request = Box::new(Request::new());
        request.issue(self.number);
        self.outstanding.push_front(request);
        let is_late = self.number.is_multiple_of(LEFT_BEHIND * LEFT_BEHIND)
            && self.outstanding.len() < MOST_WALKED;
        if self.outstanding.len() > OUTSTANDING && !is_late {
            self.oldest += 1;
            let at = self.outstanding.iter().position(|request| request.number == self.oldest);
            let found = at.and_then(|at| self.outstanding.remove(at));
            found.expect("it is outstanding").finish();
        }
    }

    fn held(&self) -> usize {
        self.outstanding.len()
    }
}

/// Each I/O sets a timer that stays until it expires, in a heap by time.
struct Heap {
    io: LookAside,
    timers: BinaryHeap<Reverse<(u64, u64)>>,
    now_us: u64,
}

impl Default for Heap {
    fn default() -> Self {
        Self { io: control(), timers: BinaryHeap::new(), now_us: 0 }
    }
}

impl Program for Heap {
    fn io(&mut self) {
        self.io.io();
        self.timers.push(Reverse((self.now_us + TIMEOUT_US, self.io.number)));
    }

    fn tick(&mut self, now_us: u64) {
        self.now_us = now_us;
        while self.timers.peek().is_some_and(|Reverse((at, _))| *at <= now_us) {
            black_box(self.timers.pop());
        }
    }

    fn held(&self) -> usize {
        self.timers.len()
    }
}

/// Each I/O sets a timer, and a clock walks through all of them now and then, looking for those that expired. It is taken
/// out when the I/O is over, or stays until then.
struct List {
    io: LookAside,
    takes_out: bool,
    timers: Vec<(u64, u64)>,
    now_us: u64,
    looks_at_us: u64,
}

impl Default for List {
    fn default() -> Self {
        Self { io: control(), takes_out: false, timers: vec![], now_us: 0, looks_at_us: 0 }
    }
}

impl Program for List {
    fn io(&mut self) {
        self.io.io();
        self.timers.push((self.now_us + TIMEOUT_US, self.io.number));
        if self.takes_out && self.timers.len() > OUTSTANDING {
            let over = self.io.number - OUTSTANDING as u64;
            if let Some(at) = self.timers.iter().position(|(_, number)| *number == over) {
                self.timers.swap_remove(at);
            }
        }
    }

    fn tick(&mut self, now_us: u64) {
        self.now_us = now_us;
        if now_us >= self.looks_at_us {
            self.looks_at_us = now_us + LOOKS_EVERY_US;
            self.timers.retain(|(at, _)| *at > now_us);
        }
    }

    fn held(&self) -> usize {
        self.timers.len()
    }
}

/// Completions are put on a queue that is worked off later, all at once, as deferred procedure calls are.
struct Deferred {
    requests: Vec<Request>,
    idle: Vec<u32>,
    deferred: VecDeque<u32>,
    number: u64,
}

impl Default for Deferred {
    fn default() -> Self {
        Self {
            requests: vec![Request::new(); OUTSTANDING],
            idle: (0..OUTSTANDING as u32).collect(),
            deferred: VecDeque::new(),
            number: 0,
        }
    }
}

impl Program for Deferred {
    fn io(&mut self) {
        if self.idle.is_empty() {
            while let Some(over) = self.deferred.pop_front() {
                self.requests[over as usize].finish();
                self.idle.push(over);
            }
        }
        self.number += 1;
        let next = self.idle.pop().expect("all have come back");
        self.requests[next as usize].issue(self.number);
        self.deferred.push_back(next);
    }

    fn held(&self) -> usize {
        self.deferred.len()
    }
}
