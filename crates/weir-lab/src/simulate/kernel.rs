//! What the modelled kernel does: datagrams come to a socket, wait in its queue or are lost, and wake who waits for
//! them. And a lock as the standard library makes it of the kernel's.
//!
//! Protocol processing happens on other cores, as with a sender on loopback: what comes costs the server nothing
//! until it is received. But a socket takes one datagram at a time (`enqueue`), and before it lies a queue of
//! [`DEVICE_QUEUE`]: what finds that full is lost there. So one socket has a highest rate, however many cores there
//! are.

use super::events::{Alarm, Thread, Time, World};
use crate::stats::random::Random;
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
};

/// Datagrams that wait before a socket, as in Linux's queue of a core (`net.core.netdev_max_backlog`).
pub const DEVICE_QUEUE: u64 = 1000;

/// Datagrams that come to a socket: a Poisson process, in trains.
#[derive(Debug, Clone)]
pub struct Traffic {
    /// Datagrams a second; 0 where a thread of the model sends them ([`Socket::arrive`]).
    pub per_s: f64,
    /// Datagrams that come at once.
    pub train: u32,
    /// Where the random numbers begin.
    pub seed: u64,
}

/// What became of the datagrams that came.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Account {
    /// All that came.
    pub arrived: u64,
    /// Lost before the socket, which takes one at a time.
    pub lost_before: u64,
    /// Lost because the socket's queue was full.
    pub lost_full: u64,
    /// Received by the server.
    pub received: u64,
    /// Still in the queue.
    pub waiting: u64,
}

/// A socket and who waits for it.
pub struct Socket {
    state: RefCell<SocketState>,
    number: usize,
}

struct SocketState {
    random: Random,
    mean_ps: f64,
    train: u32,
    /// When the next train comes, and how much of it is still to come; never, if there is no traffic.
    next: Option<Time>,
    left: u32,
    enqueue: Time,
    /// When the socket takes another datagram.
    free_at: Time,
    most: usize,
    /// When each that waits came.
    queue: VecDeque<Time>,
    account: Account,
    /// Threads that wait, the first in front: what comes wakes one.
    waiting: VecDeque<usize>,
    /// Threads that watch: it wakes all of them.
    watching: Vec<usize>,
    alarm: Option<Time>,
}

impl Socket {
    /// With room for so many datagrams. `number` is its place among the alarms.
    pub fn new(number: usize, traffic: &Traffic, enqueue: Time, most: usize) -> Self {
        let mut random = Random::seeded(traffic.seed);
        let train = traffic.train.max(1);
        let mean_ps = 1e12 * f64::from(train) / traffic.per_s;
        let next = (traffic.per_s > 0.0).then(|| random.gap(mean_ps).round() as Time);
        let state = SocketState {
            random,
            mean_ps,
            train,
            next,
            left: train,
            enqueue,
            free_at: 0,
            most,
            queue: VecDeque::new(),
            account: Account::default(),
            waiting: VecDeque::new(),
            watching: Vec::new(),
            alarm: None,
        };
        Self { state: RefCell::new(state), number }
    }

    /// Takes up to so many datagrams, and adds when each came to `out`. Returns how many.
    pub fn take(&self, now: Time, most: usize, out: &mut Vec<Time>) -> usize {
        let mut state = self.state.borrow_mut();
        state.advance(now);
        let taken = state.queue.len().min(most);
        out.extend(state.queue.drain(..taken));
        state.account.received += taken as u64;
        taken
    }

    /// Whether there is something to take.
    pub fn is_ready(&self, now: Time) -> bool {
        let mut state = self.state.borrow_mut();
        state.advance(now);
        !state.queue.is_empty()
    }

    /// When there will be something to take: at once, or when the next comes. `None`: never.
    pub fn ready_at(&self, now: Time) -> Option<Time> {
        let mut state = self.state.borrow_mut();
        state.advance(now);
        if state.queue.is_empty() { state.next_in_queue() } else { Some(now) }
    }

    /// Sleeps until there is something to take. Another thread may take it first.
    pub async fn wait(&self, thread: &Thread) {
        let world = thread.world();
        if self.is_ready(world.now()) {
            return;
        }
        self.state.borrow_mut().waiting.push_back(thread.number());
        self.set_alarm(world);
        thread.sleep().await;
        // It may have been woken for something else.
        self.state.borrow_mut().waiting.retain(|&of| of != thread.number());
    }

    /// The same, but the next that comes wakes all that watch.
    pub async fn watch(&self, thread: &Thread) {
        let world = thread.world();
        if self.is_ready(world.now()) {
            return;
        }
        self.state.borrow_mut().watching.push(thread.number());
        self.set_alarm(world);
        thread.sleep().await;
        self.state.borrow_mut().watching.retain(|&of| of != thread.number());
    }

    fn set_alarm(&self, world: &World) {
        let mut state = self.state.borrow_mut();
        if state.waiting.is_empty() && state.watching.is_empty() || state.alarm.is_some() {
            return;
        }
        if let Some(next) = state.next_in_queue() {
            state.alarm = Some(next);
            drop(state);
            world.alarm_at(next, self.number);
        }
    }

    /// So many datagrams come at once from a thread of the model. The socket has no other traffic.
    pub fn arrive(&self, world: &World, datagrams: u32) {
        let mut state = self.state.borrow_mut();
        state.advance(world.now());
        if state.next.is_none() {
            (state.next, state.left) = (Some(world.now()), 0);
        }
        state.left += datagrams;
        let is_due = state.alarm.is_none();
        drop(state);
        if is_due {
            self.due(world);
        }
    }

    /// The account of all that came until now.
    pub fn account(&self, now: Time) -> Account {
        let mut state = self.state.borrow_mut();
        state.advance(now);
        Account { waiting: state.queue.len() as u64, ..state.account }
    }
}

impl Alarm for Socket {
    /// A datagram came: all that watch are woken, and whoever waited longest.
    fn due(&self, world: &World) {
        let mut state = self.state.borrow_mut();
        state.alarm = None;
        state.advance(world.now());
        let mut woken = vec![];
        if !state.queue.is_empty() {
            woken.append(&mut state.watching);
            woken.extend(state.waiting.pop_front());
        }
        drop(state);
        woken.into_iter().for_each(|thread| world.wake(thread));
        self.set_alarm(world);
    }
}

impl SocketState {
    /// Lets come what has come until now.
    fn advance(&mut self, now: Time) {
        while let Some(at) = self.next.filter(|&at| at <= now) {
            let too_many = self.free_at.saturating_sub(at) > DEVICE_QUEUE * self.enqueue;
            if too_many {
                self.account.lost_before += 1;
            } else if self.in_queue_at(at) > now {
                return; // it waits before the socket
            } else {
                self.free_at = self.free_at.max(at) + self.enqueue;
                match self.queue.len() < self.most {
                    true => self.queue.push_back(at),
                    false => self.account.lost_full += 1,
                }
            }
            self.account.arrived += 1;
            self.left -= 1;
            if self.left == 0 {
                self.left = self.train;
                let goes_on = self.mean_ps.is_finite();
                self.next = goes_on.then(|| at + self.random.gap(self.mean_ps).round() as Time);
            }
        }
    }

    /// When a datagram that comes at a time is in the socket's queue: at once, unless the socket is not done with
    /// those before it.
    fn in_queue_at(&self, at: Time) -> Time {
        if self.free_at > at { self.free_at + self.enqueue } else { at }
    }

    /// When the next datagram will be in the socket's queue.
    fn next_in_queue(&self) -> Option<Time> {
        self.next.map(|at| self.in_queue_at(at))
    }
}

/// What a lock costs.
#[derive(Debug, Clone, Copy)]
pub struct LockCosts {
    /// Taking and releasing it, where nobody else wants it.
    pub lock: Time,
    /// Its cache line from one core to another.
    pub hop: Time,
    /// How long a thread looks at it before it sleeps.
    pub spin: Time,
    /// What a thread pays that wakes another.
    pub wake_call: Time,
    /// What a thread pays to sleep.
    pub sleep_call: Time,
}

/// A lock as the standard library's: who finds it taken looks at it for a while, then sleeps; who releases it wakes one
/// that sleeps, and whoever comes first has it.
pub struct Lock {
    costs: LockCosts,
    held: Cell<bool>,
    /// The core that had it last.
    core: Cell<Option<usize>>,
    /// The thread that it was handed to. Whoever is woken for something else must not take it for that.
    handed_to: Cell<Option<usize>>,
    spinning: RefCell<VecDeque<usize>>,
    sleeping: RefCell<VecDeque<usize>>,
}

impl Lock {
    /// That nobody has.
    pub fn new(costs: LockCosts) -> Self {
        Self {
            costs,
            held: Cell::new(false),
            core: Cell::new(None),
            handed_to: Cell::new(None),
            spinning: RefCell::default(),
            sleeping: RefCell::default(),
        }
    }

    /// Takes it.
    pub async fn take(&self, thread: &Thread) {
        loop {
            if !self.held.replace(true) {
                break;
            }
            let number = thread.number();
            self.spinning.borrow_mut().push_back(number);
            let woken = thread.spin(self.costs.spin).await;
            if self.handed_to.get() == Some(number) {
                self.handed_to.set(None);
                break;
            }
            self.spinning.borrow_mut().retain(|&of| of != number);
            if woken {
                continue;
            }
            thread.run(self.costs.sleep_call).await;
            if self.held.get() {
                self.sleeping.borrow_mut().push_back(number);
                thread.sleep().await;
                self.sleeping.borrow_mut().retain(|&of| of != number);
            }
        }
        let moved =
            self.core.replace(Some(thread.core())).is_some_and(|core| core != thread.core());
        thread.run(self.costs.lock + if moved { self.costs.hop } else { 0 }).await;
    }

    /// Releases it.
    pub async fn release(&self, thread: &Thread) {
        let next = self.spinning.borrow_mut().pop_front();
        if let Some(next) = next {
            self.handed_to.set(Some(next)); // it stays taken
            thread.world().wake(next);
            return;
        }
        self.held.set(false);
        let next = self.sleeping.borrow_mut().pop_front();
        if let Some(next) = next {
            thread.run(self.costs.wake_call).await;
            thread.world().wake_behind(next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket(per_s: f64, train: u32, enqueue: Time, most: usize) -> Socket {
        Socket::new(0, &Traffic { per_s, train, seed: 7 }, enqueue, most)
    }

    #[test]
    fn what_came_is_received_or_lost_or_waits() {
        for (per_s, train, enqueue, most) in
            [(1e6, 1, 0, 10), (1e6, 16, 0, 100), (5e7, 1, 100_000, 50), (5e7, 64, 100_000, 1000)]
        {
            let socket = socket(per_s, train, enqueue, most);
            let mut out = vec![];
            for step in 1..=1000u64 {
                socket.take(step * 1_000_000, 7, &mut out);
            }
            let account = socket.account(1_000_000_000);
            let Account { arrived, lost_before, lost_full, received, waiting } = account;
            assert_eq!(arrived, lost_before + lost_full + received + waiting, "{account:?}");
            assert_eq!(received, out.len() as u64);
            assert!(waiting <= most as u64 && received > 0, "{account:?}");
            assert!(out.is_sorted(), "in the order in which they came");
        }
    }

    #[test]
    fn as_many_come_as_are_sent() {
        let socket = socket(2e6, 1, 0, usize::MAX);
        let arrived = socket.account(1_000_000_000_000).arrived;
        // 2 million: a Poisson count is within 5 of its deviations of 1414 of that.
        assert!(arrived.abs_diff(2_000_000) < 7071, "{arrived}");
    }

    #[test]
    fn a_socket_takes_one_at_a_time() {
        let socket = socket(1e8, 1, 100_000, usize::MAX);
        let mut out = vec![];
        socket.take(1_000_000_000, usize::MAX, &mut out);
        // 1 ms at 100 ns each.
        assert!(out.len().abs_diff(10_000) <= 2, "{}", out.len());
        assert!(socket.account(1_000_000_000).lost_before > 50_000);
    }

    /// One thread has the lock at a time, whatever else threads are woken for.
    #[test]
    fn a_lock_is_held_by_one_at_a_time() {
        use crate::simulate::events::{Ended, Scheduling, run};
        use std::{pin::Pin, rc::Rc};
        const THREADS: usize = 6;
        let scheduling = Scheduling { wake: 900, switch: 300, slice: 2000 };
        let world = World::new(4, scheduling);
        let costs = LockCosts { lock: 10, hop: 30, spin: 400, wake_call: 100, sleep_call: 20 };
        let lock = Rc::new(Lock::new(costs));
        let (inside, times) = (Rc::new(Cell::new(0)), Rc::new(RefCell::new([0u32; THREADS])));
        let start = |thread: Thread| {
            let (lock, inside, times) = (Rc::clone(&lock), Rc::clone(&inside), Rc::clone(&times));
            Box::pin(async move {
                for round in 0..200 {
                    lock.take(&thread).await;
                    assert_eq!(inside.replace(1), 0, "two have the lock");
                    thread.run(150 + 37 * (round % 5)).await;
                    // For something else than the lock.
                    thread.world().wake((thread.number() + 1) % THREADS);
                    inside.set(0);
                    times.borrow_mut()[thread.number()] += 1;
                    lock.release(&thread).await;
                    thread.run(13).await;
                }
            }) as Pin<Box<dyn Future<Output = ()>>>
        };
        let ended = run::<Socket>(&world, &[], THREADS, start, 10_000_000, 1_000_000);
        assert_eq!(ended, Ended::InTime);
        assert_eq!(*times.borrow(), [200; THREADS], "nobody is left behind");
    }
}
