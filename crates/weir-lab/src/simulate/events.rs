//! The engine of discrete events: a clock, cores, and threads that run on them, sleep and are woken.
//!
//! A thread of the model is an `async` function, so that a design reads as it does in the library. Three things take
//! time: running ([`Thread::run`]), sleeping until woken ([`Thread::sleep`]), and looking at something that another thread
//! changes ([`Thread::spin`]). Nothing else waits. Events of one moment happen in the order in which they were
//! planned, so a simulation is the same each time.
//!
//! A thread that is woken goes to the core where it ran last, if that is idle, else to any idle core, else it goes before
//! whoever runs on the first of these, after that one's step: it has slept, so its turn is due. One that is woken for a
//! lock goes behind. A core that falls idle takes a thread that waits for another. A thread that has run for a slice while
//! another waits for its core goes behind it, between two of its steps. A thread may be bound to some of the cores
//! ([`Thread::bind`]).

use std::{
    cell::{Cell, RefCell},
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    future::Future,
    ops::Range,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
};

/// Picoseconds since the beginning.
pub type Time = u64;

/// Picoseconds of so many nanoseconds, which are finite and not negative.
pub fn of_ns(ns: f64) -> Time {
    (ns * 1000.0).round() as Time
}

/// What scheduling takes.
#[derive(Debug, Clone, Copy)]
pub struct Scheduling {
    /// From waking a thread whose core is idle to its first step.
    pub wake: Time,
    /// From one thread to another on a core.
    pub switch: Time,
    /// How long a thread runs while another waits for its core.
    pub slice: Time,
}

/// What happens at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A thread goes on, if that was not taken back since.
    GoesOn { thread: usize, plan: u64 },
    /// Something of the kernel's is due.
    Alarm(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    /// It has a core.
    Running,
    /// It has a core, and gives it back to nobody while it looks for a change.
    Spinning,
    /// It waits for a core.
    Ready,
    Sleeping,
}

struct ThreadState {
    /// Where it runs, or ran last.
    core: usize,
    /// Where it may run.
    cores: Range<usize>,
    doing: Doing,
    /// Its last event that counts; earlier ones were taken back.
    plan: u64,
    /// It was woken while it did not sleep: its next sleep is none.
    woken: bool,
    /// Time that it ran, until the end of what it does now.
    ran: Time,
    /// When that ends.
    runs_until: Time,
}

#[derive(Default)]
struct CoreState {
    current: Option<usize>,
    /// Since when.
    since: Time,
    ready: VecDeque<usize>,
    /// The first that waits was woken: it goes before who runs.
    woken: bool,
}

/// The clock, the cores and what is to come.
pub struct World {
    now: Cell<Time>,
    planned: Cell<u64>,
    state: RefCell<State>,
    scheduling: Scheduling,
}

struct State {
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    threads: Vec<ThreadState>,
    cores: Vec<CoreState>,
}

/// How a simulation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Its time was over.
    InTime,
    /// There were as many events as may be.
    TooManyEvents,
}

/// Something of the kernel's that is due at moments it asks for.
pub trait Alarm {
    /// Its time has come.
    fn due(&self, world: &World);
}

impl World {
    /// With so many cores, all idle.
    pub fn new(cores: usize, scheduling: Scheduling) -> Rc<Self> {
        Rc::new(Self {
            now: Cell::new(0),
            planned: Cell::new(0),
            state: RefCell::new(State {
                events: BinaryHeap::new(),
                threads: Vec::new(),
                cores: (0..cores).map(|_| CoreState::default()).collect(),
            }),
            scheduling,
        })
    }

    /// The time.
    pub fn now(&self) -> Time {
        self.now.get()
    }

    /// Has an alarm go off.
    pub fn alarm_at(&self, time: Time, alarm: usize) {
        self.plan(&mut self.state.borrow_mut(), time, Event::Alarm(alarm));
    }

    fn plan(&self, state: &mut State, time: Time, event: Event) -> u64 {
        let number = self.planned.get() + 1;
        self.planned.set(number);
        let event = match event {
            Event::GoesOn { thread, .. } => {
                state.threads[thread].plan = number;
                Event::GoesOn { thread, plan: number }
            }
            Event::Alarm(_) => event,
        };
        state.events.push(Reverse((time.max(self.now.get()), number, event)));
        number
    }

    fn go_on(&self, state: &mut State, time: Time, thread: usize) {
        self.plan(state, time, Event::GoesOn { thread, plan: 0 });
    }

    /// A thread that sleeps; it begins when it is woken.
    fn thread(self: &Rc<Self>) -> Thread {
        let mut state = self.state.borrow_mut();
        let number = state.threads.len();
        let cores = 0..state.cores.len();
        state.threads.push(ThreadState {
            core: number % cores.len(),
            cores,
            doing: Doing::Sleeping,
            plan: 0,
            woken: false,
            ran: 0,
            runs_until: 0,
        });
        Thread { world: Rc::clone(self), number }
    }

    /// Wakes a thread: one that sleeps goes on when it has a core; of one that does not, the next sleep is none.
    pub fn wake(&self, thread: usize) {
        self.wake_to(thread, true);
    }

    /// The same, but it waits behind whoever has a core: for what it was woken for that one may come first.
    pub fn wake_behind(&self, thread: usize) {
        self.wake_to(thread, false);
    }

    fn wake_to(&self, thread: usize, preempts: bool) {
        let mut state = self.state.borrow_mut();
        let its = &mut state.threads[thread];
        match its.doing {
            Doing::Sleeping => self.place(&mut state, thread, preempts),
            Doing::Spinning => {
                its.woken = true;
                its.doing = Doing::Running;
                self.go_on(&mut state, self.now(), thread);
            }
            Doing::Running | Doing::Ready => its.woken = true,
        }
    }

    /// Gives a thread a core, or puts it where it waits for one: before who runs there, or behind all.
    fn place(&self, state: &mut State, thread: usize, preempts: bool) {
        let ThreadState { core: last, cores, .. } = &state.threads[thread];
        let last = *last;
        let idle = (last..cores.end)
            .chain(cores.start..last)
            .find(|&core| state.cores[core].current.is_none());
        match idle {
            Some(core) => self.start(state, thread, core, self.scheduling.wake),
            None => {
                state.threads[thread].doing = Doing::Ready;
                let core = &mut state.cores[last];
                match preempts {
                    true => core.ready.push_front(thread),
                    false => core.ready.push_back(thread),
                }
                core.woken |= preempts;
            }
        }
    }

    /// Whether a thread that is woken now has a core at once.
    pub fn has_idle_core(&self) -> bool {
        self.state.borrow().cores.iter().any(|core| core.current.is_none())
    }

    fn start(&self, state: &mut State, thread: usize, core: usize, after: Time) {
        let begin = self.now() + after;
        state.cores[core].current = Some(thread);
        state.cores[core].since = begin;
        state.cores[core].woken = false;
        let its = &mut state.threads[thread];
        (its.core, its.doing) = (core, Doing::Running);
        self.go_on(state, begin, thread);
    }

    /// The core of a thread that stops running goes to the next.
    fn leave_core(&self, state: &mut State, core: usize) {
        state.cores[core].current = None;
        let next = state.cores[core].ready.pop_front().or_else(|| {
            // Of the cores that have one which may run here, that with most threads that wait gives the first such.
            let State { threads, cores, .. } = state;
            let may_run_here = |thread: &usize| threads[*thread].cores.contains(&core);
            let first = |of: usize| Some((of, cores[of].ready.iter().position(may_run_here)?));
            let most = (0..cores.len())
                .filter_map(first)
                .max_by_key(|&(of, _)| (cores[of].ready.len(), Reverse(of)));
            most.and_then(|(of, place)| cores[of].ready.remove(place))
        });
        if let Some(next) = next {
            self.start(state, next, core, self.scheduling.switch);
        }
    }

    /// Whether another thread goes before one that runs: it was woken, or this one has run for its slice.
    fn must_make_room(&self, state: &State, thread: usize) -> bool {
        let core = &state.cores[state.threads[thread].core];
        let over = core.woken || self.now() >= core.since + self.scheduling.slice;
        over && !core.ready.is_empty()
    }

    fn make_room(&self, state: &mut State, thread: usize) {
        let core = state.threads[thread].core;
        state.threads[thread].doing = Doing::Ready;
        state.cores[core].ready.push_back(thread);
        self.leave_core(state, core);
    }

    /// How long each thread ran until now.
    pub fn ran(&self) -> Vec<Time> {
        let still = |thread: &ThreadState| thread.runs_until.saturating_sub(self.now());
        self.state.borrow().threads.iter().map(|thread| thread.ran - still(thread)).collect()
    }
}

/// A thread of the model.
#[derive(Clone)]
pub struct Thread {
    world: Rc<World>,
    number: usize,
}

impl Thread {
    /// Its number, from 0.
    pub fn number(&self) -> usize {
        self.number
    }

    /// The world that it lives in.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Lets it run on these cores only, from its first step on: to be called before that.
    pub fn bind(&self, cores: Range<usize>) {
        let its = &mut self.world.state.borrow_mut().threads[self.number];
        assert!(its.doing == Doing::Sleeping && !cores.is_empty() && cores.end <= its.cores.end);
        (its.core, its.cores) = (cores.start + self.number % cores.len(), cores);
    }

    /// The core that it has, or had last.
    pub fn core(&self) -> usize {
        self.world.state.borrow().threads[self.number].core
    }

    /// Uses its core for so long.
    pub fn run(&self, time: Time) -> impl Future<Output = ()> + use<> {
        let (thread, mut begun) = (self.clone(), false);
        std::future::poll_fn(move |_| {
            let world = &thread.world;
            let mut state = world.state.borrow_mut();
            if begun {
                if !world.must_make_room(&state, thread.number) {
                    return Poll::Ready(());
                }
                world.make_room(&mut state, thread.number);
                return Poll::Pending;
            }
            if time == 0 {
                return Poll::Ready(());
            }
            begun = true;
            let its = &mut state.threads[thread.number];
            its.ran += time;
            its.runs_until = world.now() + time;
            world.go_on(&mut state, world.now() + time, thread.number);
            Poll::Pending
        })
    }

    /// Gives its core back until it is woken.
    pub fn sleep(&self) -> impl Future<Output = ()> + use<> {
        let (thread, mut slept) = (self.clone(), false);
        std::future::poll_fn(move |_| {
            let world = &thread.world;
            let mut state = world.state.borrow_mut();
            let its = &mut state.threads[thread.number];
            if slept || its.woken {
                its.woken = false;
                return Poll::Ready(());
            }
            slept = true;
            its.doing = Doing::Sleeping;
            let core = its.core;
            world.leave_core(&mut state, core);
            Poll::Pending
        })
    }

    /// Keeps its core until it is woken, for so long at most. Whether it was.
    pub fn spin(&self, most: Time) -> impl Future<Output = bool> + use<> {
        let (thread, mut begun) = (self.clone(), None);
        std::future::poll_fn(move |_| {
            let world = &thread.world;
            let mut state = world.state.borrow_mut();
            let its = &mut state.threads[thread.number];
            if let Some(begun) = begun {
                its.ran += world.now() - begun;
                its.doing = Doing::Running;
                return Poll::Ready(std::mem::take(&mut its.woken));
            }
            if std::mem::take(&mut its.woken) {
                return Poll::Ready(true);
            }
            begun = Some(world.now());
            its.doing = Doing::Spinning;
            world.go_on(&mut state, world.now() + most, thread.number);
            Poll::Pending
        })
    }
}

/// Runs the threads that `start` makes, until a time or for so many events. Each is woken at the beginning.
pub fn run<A: Alarm>(
    world: &Rc<World>,
    alarms: &[Rc<A>],
    threads: usize,
    mut start: impl FnMut(Thread) -> Pin<Box<dyn Future<Output = ()>>>,
    until: Time,
    most_events: u64,
) -> Ended {
    let handles: Vec<Thread> = (0..threads).map(|_| world.thread()).collect();
    let mut futures: Vec<_> = handles.into_iter().map(|thread| Some(start(thread))).collect();
    (0..threads).for_each(|thread| world.place(&mut world.state.borrow_mut(), thread, false));
    let mut context = Context::from_waker(Waker::noop());
    loop {
        let next = world.state.borrow_mut().events.pop();
        let Some(Reverse((time, number, event))) = next else { break };
        if time > until {
            break;
        }
        if number > most_events {
            return Ended::TooManyEvents;
        }
        world.now.set(time);
        match event {
            Event::Alarm(alarm) => alarms[alarm].due(world),
            Event::GoesOn { thread, plan } => {
                if world.state.borrow().threads[thread].plan != plan {
                    continue;
                }
                let Some(future) = &mut futures[thread] else { continue };
                if future.as_mut().poll(&mut context).is_ready() {
                    futures[thread] = None;
                    let mut state = world.state.borrow_mut();
                    let core = state.threads[thread].core;
                    world.leave_core(&mut state, core);
                }
            }
        }
    }
    world.now.set(until);
    Ended::InTime
}

#[cfg(test)]
mod tests {
    use super::*;

    struct NoAlarm;

    impl Alarm for NoAlarm {
        fn due(&self, _: &World) {}
    }

    const SCHEDULING: Scheduling = Scheduling { wake: 10, switch: 3, slice: 100 };

    /// What each thread noted: its number and when.
    type Notes = Rc<RefCell<Vec<(usize, Time)>>>;

    fn noted<F: Future<Output = ()> + 'static>(
        cores: usize,
        threads: usize,
        until: Time,
        does: impl Fn(Thread, Notes) -> F,
    ) -> (Vec<(usize, Time)>, Vec<Time>) {
        let world = World::new(cores, SCHEDULING);
        let notes = Notes::default();
        let start =
            |thread| Box::pin(does(thread, Rc::clone(&notes))) as Pin<Box<dyn Future<Output = ()>>>;
        let ended = run::<NoAlarm>(&world, &[], threads, start, until, 100_000);
        assert_eq!(ended, Ended::InTime);
        (notes.take(), world.ran())
    }

    fn note(thread: &Thread, notes: &Notes) {
        notes.borrow_mut().push((thread.number(), thread.world().now()));
    }

    #[test]
    fn threads_run_side_by_side_where_there_are_cores_and_else_one_after_the_other() {
        let does = |thread: Thread, notes: Notes| async move {
            thread.run(50).await;
            note(&thread, &notes);
        };
        assert_eq!(noted(2, 2, 1000, does).0, [(0, 60), (1, 60)]);
        // The second begins when the first has ended, after a switch.
        assert_eq!(noted(1, 2, 1000, does).0, [(0, 60), (1, 113)]);
    }

    #[test]
    fn a_thread_that_ran_for_its_slice_lets_the_next_run() {
        let does = |thread: Thread, notes: Notes| async move {
            for _ in 0..3 {
                thread.run(60).await;
                note(&thread, &notes);
            }
        };
        let (notes, ran) = noted(1, 2, 10_000, does);
        let order: Vec<_> = notes.iter().map(|(thread, _)| *thread).collect();
        // Two steps are more than a slice of 100. The note of the second step is taken when it has its core again.
        assert_eq!(order, [0, 1, 0, 0, 1, 1]);
        assert_eq!(ran, [180, 180]);
    }

    #[test]
    fn who_sleeps_is_woken_and_who_was_woken_before_does_not_sleep() {
        let does = |thread: Thread, notes: Notes| async move {
            if thread.number() == 0 {
                thread.sleep().await;
                note(&thread, &notes);
                thread.run(100).await; // woken meanwhile
                thread.sleep().await;
                note(&thread, &notes);
            } else {
                thread.run(20).await;
                thread.world().wake(0);
                thread.run(30).await;
                thread.world().wake(0);
            }
        };
        assert_eq!(noted(2, 2, 1000, does).0, [(0, 40), (0, 140)]);
    }

    #[test]
    fn who_spins_goes_on_at_once_or_gives_up() {
        let does = |thread: Thread, notes: Notes| async move {
            if thread.number() == 0 {
                assert!(thread.spin(500).await);
                note(&thread, &notes);
                assert!(!thread.spin(70).await);
                note(&thread, &notes);
            } else {
                thread.run(20).await;
                thread.world().wake(0);
            }
        };
        let (notes, ran) = noted(2, 2, 1000, does);
        assert_eq!((notes, ran), (vec![(0, 30), (0, 100)], vec![90, 20]));
    }

    #[test]
    fn who_is_bound_waits_for_its_core_where_another_is_idle() {
        // Threads 0 and 2 have the first core, which falls idle while thread 3 waits for the second.
        let order = |bound: bool| {
            let does = move |thread: Thread, notes: Notes| {
                if bound && thread.number() == 3 {
                    thread.bind(1..2);
                }
                async move {
                    thread.run(if thread.number().is_multiple_of(2) { 20 } else { 90 }).await;
                    note(&thread, &notes);
                    assert!(thread.core() == thread.number() % 2 || !bound);
                }
            };
            noted(2, 4, 10_000, does).0
        };
        assert_eq!(order(true), [(0, 30), (2, 53), (1, 100), (3, 193)]);
        assert_eq!(order(false), [(0, 30), (2, 53), (1, 100), (3, 146)]);
    }

    #[test]
    fn events_are_bounded() {
        let world = World::new(1, SCHEDULING);
        let start = |thread: Thread| {
            Box::pin(async move {
                while thread.number() == 0 {
                    thread.run(1).await;
                }
            }) as Pin<Box<dyn Future<Output = ()>>>
        };
        let ended = run::<NoAlarm>(&world, &[], 1, start, Time::MAX, 1000);
        assert_eq!((ended, world.now()), (Ended::TooManyEvents, 1009));
    }
}
