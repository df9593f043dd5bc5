//! Who may run: a concurrency limit over threads that take from one queue.
//!
//! Windows has this in its kernel. Where the kernel has not, it is made here, of a lock and a
//! condition variable for each thread, and knows neither sockets nor rings:
//!
//! - One thread at a time *leads*: it waits in the queue itself and takes from it. When it has
//!   taken something, it [`run`](Member::run)s with it.
//! - The others *park* on a stack. When the leader runs and one more thread may run, the one that
//!   parked last leads from now on. With a limit of 1, or one thread, nobody is ever woken: the
//!   thread that ran leads again.
//! - A thread that is about to block [`leave`](Member::leave)s and [`enter`](Member::enter)s again.
//!   Whoever waits to enter goes before whoever waits to lead, in order of coming: it holds work
//!   that is half done.
//!
//! What must hold, and is checked by a model checker: never more threads run than may; whoever
//! parked last leads first; while fewer run than may and somebody is parked, somebody leads;
//! closing wakes everybody.
//!
//! The leader holds no permit while it waits, so a thread that comes back from blocking never
//! waits for the arrival of something. If all permits are gone when the leader wants to run, it
//! waits to enter.
//!
//! Cost: two short critical sections a take; none where there is one place, whose thread may always lead and run. A
//! thread is woken only to lead or to enter.

pub mod rules;

use crate::sync::{AtomicBool, Condvar, Mutex, MutexGuard, Ordering};
use rules::{Asked, Granted, Role, Rules, Wake};
use std::time::{Duration, Instant};

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

/// The limit, and the threads under it.
#[derive(Debug)]
pub struct Limit {
    state: Mutex<LimitState>,
    /// One for each thread: waking one wakes that one.
    places: Box<[Condvar]>,
    /// Where there is one place: whether its thread runs. It asks nobody, so it takes no lock.
    one_runs: AtomicBool,
    /// As the state says, for whoever takes no lock.
    closed: AtomicBool,
}

#[derive(Debug)]
struct LimitState {
    rules: Rules,
    /// Places that nobody has.
    free: Vec<usize>,
}

/// A thread's place under a limit. Dropping it gives up what it has.
#[derive(Debug)]
pub struct Member<'a> {
    limit: &'a Limit,
    place: usize,
    role: Role,
}

/// How waiting to lead ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lead {
    /// This thread leads: it may wait in the queue, and is the only one.
    Yours,
    /// The time was over. This thread neither leads nor runs.
    TimedOut,
    /// The limit was closed. This thread neither leads nor runs.
    Closed,
}

impl Limit {
    /// Lets at most `limit` of up to `threads` threads run at a time.
    ///
    /// # Panics
    /// If `limit` is 0: nobody could ever run.
    pub fn new(limit: u32, threads: usize) -> Self {
        Self {
            state: Mutex::new(LimitState {
                rules: Rules::new(limit, threads),
                free: (0..threads).rev().collect(),
            }),
            places: (0..threads).map(|_| Condvar::new()).collect(),
            one_runs: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        }
    }

    /// Whether one thread is all that there can be: it may always lead, and run.
    #[inline]
    fn is_for_one(&self) -> bool {
        self.places.len() == 1
    }

    /// A place for one more thread, or `None` if all are taken.
    pub fn join(&self) -> Option<Member<'_>> {
        let place = self.lock().free.pop()?;
        Some(Member { limit: self, place, role: Role::Outside })
    }

    /// Lets everybody who waits to lead return with [`Lead::Closed`], now and later. Whoever
    /// leads must be woken by other means.
    pub fn close(&self) {
        self.lock().rules.close();
        self.closed.store(true, Ordering::Release);
        for place in &self.places {
            place.notify_all();
        }
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.lock().rules.is_closed()
    }

    /// How many threads wait to lead.
    pub fn parked(&self) -> usize {
        self.lock().rules.parked().len()
    }

    /// How many threads run.
    pub fn running(&self) -> u32 {
        match self.is_for_one() {
            true => self.one_runs.load(Ordering::Acquire).into(),
            false => self.lock().rules.running(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, LimitState> {
        // Nothing that runs under the lock can panic half way through a change.
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn wake(&self, wake: Wake) {
        for place in [wake.runner, wake.leader].into_iter().flatten() {
            self.places[place].notify_one();
        }
    }
}

impl Member<'_> {
    /// A thread's take: it leads by `take`, at once or when its turn comes, and runs with what that brought.
    /// Before it parks it does what must not wait until then (`before_parking`). `take` is told what is left
    /// of the time. Returns what `take` did, 0 if the time was over before; `None`, from either, if it was
    /// closed.
    ///
    /// # Errors
    /// What one of the two answered.
    pub fn take<E>(
        &mut self,
        timeout: Option<Duration>,
        before_parking: impl FnOnce() -> Result<(), E>,
        take: impl FnOnce(Option<Duration>) -> Result<Option<usize>, E>,
    ) -> Result<Option<usize>, E> {
        let mut left = timeout;
        if !self.try_lead() {
            before_parking()?;
            // The clock is read only here: a take that need not park is not held up by it. A time too long
            // to be told is for ever.
            let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
            match self.lead(until) {
                Lead::Yours => {}
                Lead::TimedOut => {
                    self.enter();
                    return Ok(Some(0));
                }
                Lead::Closed => return Ok(None),
            }
            left = until.map(|until| until.saturating_duration_since(Instant::now()));
        }
        let taken = take(left);
        match taken {
            Ok(None) => self.leave(),
            _ => self.run(),
        }
        taken
    }

    /// Whether a thread that runs may take what lies ready and run on: nobody leads, who would take it, or waits
    /// to enter. With one place there is nobody to look for.
    #[inline]
    pub fn may_go_on(&self) -> bool {
        match self.role {
            Role::Running if self.limit.is_for_one() => true,
            Role::Running => self.limit.lock().rules.may_go_on(),
            _ => false,
        }
    }

    /// Of the only thread: what it does from now on.
    #[inline]
    fn alone(&mut self, role: Role) {
        self.role = role;
        self.limit.one_runs.store(role == Role::Running, Ordering::Release);
    }

    /// Ends this thread's running and leads, if nobody else does and one more may run.
    /// `false`: nothing has changed.
    #[inline]
    pub fn try_lead(&mut self) -> bool {
        if self.limit.is_for_one() {
            let leads = !self.limit.closed.load(Ordering::Acquire);
            if leads {
                self.alone(Role::Leading);
            }
            return leads;
        }
        let Some(wake) = self.limit.lock().rules.try_lead(self.role) else { return false };
        self.role = Role::Leading;
        self.limit.wake(wake);
        true
    }

    /// Ends this thread's running and waits for the lead, until a moment or for ever.
    pub fn lead(&mut self, until: Option<Instant>) -> Lead {
        let limit = self.limit;
        if limit.is_for_one() {
            if self.try_lead() {
                return Lead::Yours;
            }
            self.alone(Role::Outside);
            return Lead::Closed;
        }
        let mut state = limit.lock();
        let (mut asked, wake) = state.rules.lead(self.place, self.role);
        self.role = Role::Outside;
        if asked != Asked::Parks {
            drop(state);
            limit.wake(wake);
            return self.ended(asked);
        }
        limit.wake(wake);
        loop {
            if asked != Asked::Parks {
                return self.ended(asked);
            }
            let Some(until) = until else {
                state = limit.places[self.place].wait(state).unwrap_or_else(|e| e.into_inner());
                asked = state.rules.asked(self.place);
                continue;
            };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                state.rules.unpark(self.place);
                return Lead::TimedOut;
            }
            let waited = limit.places[self.place].wait_timeout(state, left);
            state = waited.unwrap_or_else(|e| e.into_inner()).0;
            asked = state.rules.asked(self.place);
        }
    }

    /// Takes note of how waiting to lead ended.
    fn ended(&mut self, asked: Asked) -> Lead {
        if asked == Asked::Closed {
            return Lead::Closed;
        }
        self.role = Role::Leading;
        Lead::Yours
    }

    /// The leader gives up the lead and runs, as soon as it may; another leads if one more may
    /// run.
    pub fn run(&mut self) {
        assert_eq!(self.role, Role::Leading, "only the leader can do this");
        if self.limit.is_for_one() {
            return self.alone(Role::Running);
        }
        let mut state = self.limit.lock();
        state.rules.stop(self.role);
        let mut state = self.admitted(state);
        let wake = state.rules.settle();
        drop(state);
        self.limit.wake(wake);
    }

    /// Gives up running or leading.
    pub fn leave(&mut self) {
        if self.limit.is_for_one() {
            return self.alone(Role::Outside);
        }
        let mut state = self.limit.lock();
        state.rules.stop(self.role);
        self.role = Role::Outside;
        let wake = state.rules.settle();
        drop(state);
        self.limit.wake(wake);
    }

    /// Waits until this thread may run, also after closing.
    pub fn enter(&mut self) {
        assert_eq!(self.role, Role::Outside, "who runs or leads must leave first");
        if self.limit.is_for_one() {
            return self.alone(Role::Running);
        }
        let state = self.limit.lock();
        drop(self.admitted(state));
    }

    fn admitted<'l>(&mut self, mut state: MutexGuard<'l, LimitState>) -> MutexGuard<'l, LimitState>
    where
        Self: 'l,
    {
        if !state.rules.enter(self.place) {
            while state.rules.granted(self.place) != Granted::Run {
                let place = &self.limit.places[self.place];
                state = place.wait(state).unwrap_or_else(|e| e.into_inner());
            }
        }
        self.role = Role::Running;
        state
    }

    /// Its number: 0 to one less than the number of threads.
    pub fn place(&self) -> usize {
        self.place
    }
}

impl Drop for Member<'_> {
    fn drop(&mut self) {
        self.leave();
        self.limit.lock().free.push(self.place);
    }
}
