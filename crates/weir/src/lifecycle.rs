//! What the threads of a server share, whatever it serves.

use crate::{
    Error,
    counters::{
        ENTRIES_SOURCE, entries_source,
        os::{ThreadId, ThreadUsage},
    },
    events::event,
    memory::Region,
    tunable::{self, Setting, Tunable, Unit},
    wake::Waker,
};
use std::{
    any::Any,
    ops::RangeInclusive,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

/// What a thread answers once: that it has started, or why it could not.
type Readiness = Result<(), Error>;

/// The answers of the threads, for whoever waits for them. In place of a channel, whose every form would be compiled into
/// each program.
#[derive(Default, Clone)]
pub(crate) struct Answers(Arc<(Mutex<Answered>, Condvar)>);

#[derive(Default)]
struct Answered {
    threads: usize,
    first_error: Option<Error>,
}

impl Answers {
    fn take(&self, readiness: Readiness) {
        let (answered, changed) = &*self.0;
        let mut answered = lock(answered);
        answered.threads += 1;
        if let Err(error) = readiness {
            answered.first_error.get_or_insert(error);
        }
        changed.notify_all();
    }

    /// Waits until so many threads have answered, or one that it could not start.
    pub(crate) fn first_error_of(&self, threads: usize) -> Option<Error> {
        let (answered, changed) = &*self.0;
        let wanting = |now: &mut Answered| now.threads < threads && now.first_error.is_none();
        let answered = changed.wait_while(lock(answered), wanting);
        answered.unwrap_or_else(PoisonError::into_inner).first_error.take()
    }
}

/// How a thread answers, once.
pub(crate) struct Answer(Option<Answers>);

impl Answer {
    /// To whoever waits for it; `None` where nobody does.
    pub(crate) fn to(ready: Option<Answers>) -> Self {
        Self(ready)
    }

    pub(crate) fn give(&mut self, readiness: Readiness) {
        if let Some(ready) = self.0.take() {
            ready.take(readiness);
        }
    }

    /// The thread has ended, with an error or in order. If it was never ready, who waits for that hears so; if it
    /// was, its error is the server's failure.
    pub(crate) fn end(&mut self, error: Option<Error>, shared: &Lifecycle) {
        match (self.0.is_some(), error) {
            (true, None) => self.give(Ok(())), // it was asked to stop before it was ready
            (true, Some(error)) => {
                self.give(Err(error));
                shared.stop();
            }
            (false, Some(error)) => shared.fail(error),
            (false, None) => {}
        }
    }
}

/// Leads the life of a thread, and says what it used.
pub(crate) fn live(id: &OnceLock<ThreadId>, life: impl FnOnce()) -> ThreadUsage {
    let _ = id.set(ThreadId::current());
    let before = ThreadUsage::current();
    event!(DEBUG, "a thread of the server begins");
    life();
    event!(DEBUG, "a thread of the server ends");
    ThreadUsage::current().since(&before)
}

/// Why the loop of a thread ended, if not in order.
pub(crate) fn failure_of(thread: usize, body: impl FnOnce() -> Result<(), Error>) -> Option<Error> {
    match contain(body) {
        Ok(result) => result.err(),
        Err(panic) => Some(Error::ThreadPanicked { thread, message: text_of(&*panic) }),
    }
}

/// Calls the loop of a thread and holds a panic back, which is to go on (`resume_unwind`) when
/// every slice was given back.
pub(crate) fn contain<R>(body: impl FnOnce() -> R) -> thread::Result<R> {
    catch_unwind(AssertUnwindSafe(body))
}

/// What a panic says.
pub(crate) fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "(no text)".to_string())
}

/// A thread's share of what several threads share and leave together: while others still take from a port, a system
/// may cancel what a thread that exits has started, or never say how it ended.
pub(crate) struct LeaveTogether<T> {
    /// What is sent on is nothing: that the senders are dropped, with what they stand beside, ends each wait.
    shared: Arc<(T, Vec<mpsc::Sender<()>>)>,
    gone: mpsc::Receiver<()>,
}

impl<T> LeaveTogether<T> {
    /// One share for each thread, and none for who makes them, so that the last thread finds itself last.
    pub(crate) fn shares(threads: u32, shared: T) -> impl Iterator<Item = Self> {
        let (stays, gone): (Vec<_>, Vec<_>) = (0..threads).map(|_| mpsc::channel()).unzip();
        let shared = Arc::new((shared, stays));
        let others: Vec<_> = (1..threads).map(|_| Arc::clone(&shared)).collect();
        others.into_iter().chain([shared]).zip(gone).map(|(shared, gone)| Self { shared, gone })
    }

    /// Leaves, and waits until all have. Whoever leaves last calls `last` with what was shared.
    fn leave<R>(self, last: impl FnOnce(T) -> R) -> Option<R> {
        let result = Arc::into_inner(self.shared).map(|(shared, _stays)| last(shared));
        let _ = self.gone.recv(); // an error, once the last has left
        result
    }

    /// The life of a thread: runs, closes what is shared, since the others must not wait for this thread, and leaves. A panic
    /// goes on when all have left. Whoever leaves last gives everything back by `last`.
    pub(crate) fn live<W>(
        self,
        worker: &mut W,
        run: impl FnOnce(&mut W, &T) -> Result<(), Error>,
        close: impl FnOnce(&T),
        last: impl FnOnce(&mut W, T) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (shared, _) = &*self.shared;
        let result = contain(|| run(worker, shared));
        close(shared);
        let given_back = self.leave(|shared| last(worker, shared)).unwrap_or(Ok(()));
        result.unwrap_or_else(|panic| resume_unwind(panic)).and(given_back)
    }
}

/// Is told why a server failed, on the thread that met it.
pub(crate) type OnFailure = Box<dyn FnOnce(&Error) + Send>;

/// What the threads of a server share, none of it on the path of a datagram or message but a flag.
#[derive(Default)]
pub(crate) struct Lifecycle {
    stopping: AtomicBool,
    /// Whether its threads give up privilege once they have started.
    pub(crate) gives_up_privilege: AtomicBool,
    /// When it was first asked to stop, or failed.
    pub(crate) ended: OnceLock<Instant>,
    failure: Mutex<Option<Error>>,
    /// Who is told of it.
    on_failure: Mutex<Vec<OnFailure>>,
    /// Held by who tells them.
    telling: Mutex<()>,
    /// Of its threads.
    wakers: Mutex<Vec<Waker>>,
    /// Of those who wait for its end.
    waiters: Mutex<Vec<Waker>>,
    /// A thread is at it to wake them.
    waking: AtomicBool,
    effective: Mutex<Settings>,
    pub(crate) tunables: Mutex<Vec<Tunable>>,
    /// The memory that was made, to account for at the end.
    pub(crate) regions: Mutex<Vec<Arc<Region>>>,
}

/// Settings in effect, in the order in which they were first stated: a name with all that was stated of it. Threads
/// and addresses that are alike obtain the same, which is stated once; where they differ each value is.
#[derive(Default)]
struct Settings(Vec<(String, Vec<String>)>);

impl Settings {
    fn state(&mut self, name: &str, value: String) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, values)) if values.contains(&value) => {}
            Some((_, values)) => values.push(value),
            None => self.0.push((name.into(), vec![value])),
        }
    }

    fn entries(&self) -> Vec<(String, String)> {
        self.0.iter().map(|(name, values)| (name.clone(), values.join(", "))).collect()
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `None` where another has it.
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

impl Lifecycle {
    /// Asks every thread to stop and ends its wait, and those of who wait for the server's end.
    pub(crate) fn stop(&self) {
        self.stop_threads();
        self.wake(&self.waiters);
    }

    fn stop_threads(&self) {
        self.ended.get_or_init(|| {
            event!(INFO, "the server stops");
            Instant::now()
        });
        self.stopping.store(true, SeqCst);
        self.wake(&self.wakers);
    }

    fn wake(&self, wakers: &Mutex<Vec<Waker>>) {
        // A waker may stop another server, whose waker stops this one.
        if self.waking.swap(true, SeqCst) {
            return;
        }
        Self::wake_each(wakers);
        self.waking.store(false, SeqCst);
    }

    /// Ends every wait of its threads once: they look what there is to do.
    pub(crate) fn wake_all(&self) {
        Self::wake_each(&self.wakers);
    }

    fn wake_each(wakers: &Mutex<Vec<Waker>>) {
        for waker in lock(wakers).clone() {
            let _ = contain(|| waker.wake()); // the others are woken whatever one does
        }
    }

    pub(crate) fn stopping(&self) -> bool {
        self.stopping.load(Relaxed)
    }

    pub(crate) fn fail(&self, error: Error) {
        event!(ERROR, %error, "the server fails");
        lock(&self.failure).get_or_insert(error);
        self.stop_threads();
        self.tell_of_failure();
        self.wake(&self.waiters);
    }

    /// Has this called with the failure, by the thread that fails, or at once where it has failed.
    pub(crate) fn on_failure(&self, call: OnFailure) {
        lock(&self.on_failure).push(call);
        self.tell_of_failure();
    }

    fn tell_of_failure(&self) {
        loop {
            // Whoever tells already looks once more when it has told: a call may ask to be told, too.
            let Some(telling) = try_lock(&self.telling) else { return };
            let failure = lock(&self.failure);
            let Some(failure) = &*failure else {
                drop((failure, telling));
                // Whoever failed meanwhile has left the telling to this call.
                match lock(&self.failure).is_some() {
                    true => continue,
                    false => return,
                }
            };
            let calls = std::mem::take(&mut *lock(&self.on_failure));
            for call in calls {
                // The server ends whatever it does.
                let _ = contain(|| call(failure));
            }
            drop(telling);
            if lock(&self.on_failure).is_empty() {
                return;
            }
        }
    }

    /// States a setting that is in effect.
    #[inline]
    pub(crate) fn state(&self, name: &str, value: impl ToString) {
        self.state_text(name, value.to_string());
    }

    /// Compiled once for all values.
    fn state_text(&self, name: &str, value: String) {
        lock(&self.effective).state(name, value);
    }

    /// States which design runs, on what, and with which options. `parks_threads` as designs say it.
    pub(crate) fn state_design(
        &self,
        name: &str,
        provider: Option<&str>,
        parks_threads: bool,
        options: Vec<(String, String)>,
    ) {
        self.state("design", name);
        if let Some(provider) = provider {
            self.state("provider", provider);
        }
        self.state(ENTRIES_SOURCE, entries_source(parks_threads));
        for (name, value) in options {
            self.state(&name, value);
        }
    }

    /// The settings in effect, each name once.
    pub(crate) fn effective(&self) -> Vec<(String, String)> {
        let mut entries = lock(&self.effective).entries();
        // What was changed since the start is in effect as it is now, written as the option is.
        for tunable in lock(&self.tunables).iter() {
            let now = tunable.setting();
            if let Some((_, value)) = entries.iter_mut().find(|(name, _)| name == now.name) {
                *value = tunable.unit.as_option(&now);
            }
        }
        entries
    }

    /// Makes a value tunable within these limits while the server runs.
    pub(crate) fn tunable(
        &self,
        name: &'static str,
        unit: Unit,
        value: u64,
        allowed: RangeInclusive<u64>,
    ) -> Arc<AtomicU64> {
        let (least, most) = allowed.into_inner();
        let value = Arc::new(AtomicU64::new(value));
        let tunable = Tunable { name, unit, value: Arc::clone(&value), least, most };
        lock(&self.tunables).push(tunable);
        value
    }

    /// What may be changed, as it is now.
    pub(crate) fn settings(&self) -> Vec<Setting> {
        lock(&self.tunables).iter().map(Tunable::setting).collect()
    }

    /// Changes some of that, all or none; gives all as it is then.
    pub(crate) fn set(&self, changes: &[(&str, &str)]) -> Result<Vec<Setting>, Error> {
        let effective = lock(&self.effective).entries();
        let tunables = lock(&self.tunables);
        tunable::set(&tunables, &effective, changes)?;
        event!(INFO, ?changes, "settings were changed");
        Ok(tunables.iter().map(Tunable::setting).collect())
    }

    /// Changes a tunable value.
    pub(crate) fn tune(&self, name: &str, value: u64) -> Result<(), Error> {
        let tunables = lock(&self.tunables);
        let Some(tunable) = tunables.iter().find(|tunable| tunable.name == name) else {
            let known = tunables.iter().map(|tunable| tunable.name);
            return Err(Error::unknown_name("tunable", name, known));
        };
        if !tunable.allows(value) {
            let problem = format!("{value} is not allowed; allowed: {}", tunable.allowed());
            return Err(Error::option(name, problem));
        }
        tunable.value.store(value, Relaxed);
        event!(INFO, name, value, "a setting was changed");
        Ok(())
    }

    pub(crate) fn take_failure(&self) -> Option<Error> {
        lock(&self.failure).take()
    }

    /// Waits until the end, or until the time is over if there is one; says whether it has ended.
    pub(crate) fn wait(&self, time: Option<Duration>) -> bool {
        let told = Arc::new((Mutex::new(false), Condvar::new()));
        let tell = Arc::clone(&told);
        let waker = Waker::new(move || {
            *lock(&tell.0) = true;
            tell.1.notify_all();
        });
        self.add_waiter(waker.clone());
        let (ended, changed) = &*told;
        let (ended, wanting) = (lock(ended), |ended: &mut bool| !*ended);
        let has_ended = match time {
            None => *changed.wait_while(ended, wanting).unwrap_or_else(PoisonError::into_inner),
            Some(time) => {
                let waited = changed.wait_timeout_while(ended, time, wanting);
                *waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        self.forget_waiter(&waker);
        has_ended
    }

    /// Lets go of a waker, and of what it holds.
    pub(crate) fn forget_waker(&self, waker: &Waker) {
        lock(&self.wakers).retain(|other| !other.is(waker));
    }

    /// Ends the wait of a thread of the server when that stops.
    pub(crate) fn add_waker(&self, waker: Waker) {
        self.add_to(&self.wakers, waker);
    }

    /// Lets go of a waker of somebody who waits.
    pub(crate) fn forget_waiter(&self, waker: &Waker) {
        lock(&self.waiters).retain(|other| !other.is(waker));
    }

    /// Wakes somebody who waits for the server's end: behind its threads, and behind those who are told of a failure.
    pub(crate) fn add_waiter(&self, waker: Waker) {
        self.add_to(&self.waiters, waker);
    }

    fn add_to(&self, wakers: &Mutex<Vec<Waker>>, waker: Waker) {
        lock(wakers).push(waker.clone());
        // A stop that came before the waker was known must not be missed.
        if self.stopping() {
            waker.wake();
        }
    }
}

/// What is asked of a server that runs, whatever it serves. `held` leads to the [`Arc`] that its threads share, and `within`
/// from there to its [`Lifecycle`]; what follows is said of `wait`, too.
#[cfg(any(feature = "udp", feature = "tcp"))]
macro_rules! running {
    (
        Running$(<$H:ident>)?, held: $($held:ident).+ $(, within: $within:ident)?;
        $(#[$of_wait:meta])*
    ) => {
        impl $(<$H>)? Running$(<$H>)? {
            /// Whether it still runs. A server stops by itself only when it failed.
            pub fn is_running(&self) -> bool {
                !self.$($held).+$(.$within)?.stopping()
            }

            /// Calls `waker` when the server ends, asked to or by itself; at once if it has. So whoever waits for its end need
            /// not look.
            pub fn on_end(&self, waker: $crate::wake::Waker) {
                self.$($held).+$(.$within)?.add_waiter(waker);
            }

            /// Waits until the server ends, asked to ([`stopper`](Self::stopper)) or by itself; at once if it has. What is left of it
            /// then comes from [`stop`](Self::stop).
            $(#[$of_wait])*
            pub fn wait(&self) {
                self.$($held).+$(.$within)?.wait(None);
            }

            /// The same for so long at most; says whether it has ended.
            pub fn wait_for(&self, time: std::time::Duration) -> bool {
                self.$($held).+$(.$within)?.wait(Some(time))
            }

            /// Asks the server to stop, from any thread, and does not wait for it: for whoever [`wait`](Self::wait)s, or for a thread
            /// that is told of signals. It takes locks, so a signal handler itself may not use it. [`stop`](Self::stop) is still to be
            /// called, and has less to wait for.
            pub fn stopper(&self) -> $crate::wake::Waker {
                let held = std::sync::Arc::downgrade(&self.$($held).+);
                $crate::wake::Waker::new(move || {
                    if let Some(held) = held.upgrade() {
                        held$(.$within)?.stop();
                    }
                })
            }

            /// Calls `call` with the server's failure when it fails, on the thread that does: the others have been asked to stop by
            /// then, and nobody who [waits](Self::wait) has been woken. At once if it has failed. Each that was given is called,
            /// and a panic of one harms nobody.
            pub fn on_failure(&self, call: impl FnOnce(&$crate::Error) + Send + 'static) {
                self.$($held).+$(.$within)?.on_failure(Box::new(call));
            }

            /// The settings that may be changed while the server runs, as they are now; empty where the design has none.
            pub fn settings(&self) -> Vec<$crate::tunable::Setting> {
                self.$($held).+$(.$within)?.settings()
            }

            /// Changes settings while the server runs, each by its name and what it is to be, as options are written: all of them
            /// or, on an error, none. Gives all that may be changed, as they are then. Several may do so at a time: the last one
            /// counts.
            ///
            /// # Errors
            /// [`Error::Option`](crate::Error::Option) if a value is not allowed, or the setting is fixed when the server starts;
            /// [`Error::UnknownName`](crate::Error::UnknownName) if there is none of that name. Each says what can be changed.
            pub fn set(&self, changes: &[(&str, &str)]) -> Result<Vec<$crate::tunable::Setting>, $crate::Error> {
                self.$($held).+$(.$within)?.set(changes)
            }

            /// Changes a tunable value while the server runs.
            ///
            /// # Errors
            /// [`Error::UnknownName`](crate::Error::UnknownName) if the design has no such tunable,
            /// [`Error::Option`](crate::Error::Option) if the value is out of its limits.
            pub fn tune(&self, name: &str, value: u64) -> Result<(), $crate::Error> {
                self.$($held).+$(.$within)?.tune(name, value)
            }
        }
    };
}
#[cfg(any(feature = "udp", feature = "tcp"))]
pub(crate) use running;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_stop_each_other_stop_and_who_is_told_may_ask_again() {
        let servers = [Arc::new(Lifecycle::default()), Arc::new(Lifecycle::default())];
        for (its, others) in [(0, 1), (1, 0)] {
            let others = Arc::downgrade(&servers[others]);
            servers[its].add_waker(Waker::new(move || {
                others.upgrade().inspect(|others| others.stop());
            }));
        }
        let (tell, told) = mpsc::channel();
        let asks = Arc::downgrade(&servers[0]);
        servers[0].on_failure(Box::new(move |_| {
            let asked = asks.upgrade().expect("it is failing");
            asked.on_failure(Box::new(move |error| tell.send(error.to_string()).unwrap()));
        }));
        servers[0].fail(Error::option("first", "a problem"));
        assert!(servers.iter().all(|server| server.stopping()));
        assert!(told.recv().unwrap().contains("first"));
    }

    #[test]
    fn whoever_waits_is_let_go_at_the_end_and_leaves_no_waker() {
        let shared = Lifecycle::default();
        assert!(!shared.wait(Some(Duration::ZERO)), "it has not ended");
        thread::scope(|scope| {
            let waiting = scope.spawn(|| shared.wait(None));
            while lock(&shared.waiters).is_empty() {
                thread::yield_now();
            }
            shared.stop();
            assert!(waiting.join().unwrap());
        });
        assert!(shared.wait(None) && shared.wait(Some(Duration::ZERO)), "at once, now");
        assert!(lock(&shared.waiters).is_empty());
    }

    #[test]
    fn a_waker_that_panics_keeps_nobody_from_being_woken() {
        let shared = Lifecycle::default();
        let (wake, woken) = mpsc::channel();
        shared.add_waiter(Waker::new(|| panic!("as it was asked to")));
        shared.add_waiter(Waker::new(move || wake.send(()).unwrap()));
        shared.stop();
        shared.stop();
        assert_eq!(woken.try_iter().count(), 2);
    }

    #[test]
    fn who_is_told_of_a_failure_finds_the_threads_asked_to_stop_and_nobody_else_woken() {
        let shared = Arc::new(Lifecycle::default());
        let (wake, woken) = mpsc::channel();
        for (who, add) in
            [("a thread", Lifecycle::add_waker as fn(&_, _)), ("who waits", Lifecycle::add_waiter)]
        {
            let wake = wake.clone();
            add(&shared, Waker::new(move || wake.send(who).unwrap()));
        }
        let its = Arc::downgrade(&shared);
        shared.on_failure(Box::new(move |_| {
            assert!(its.upgrade().expect("it is failing").stopping());
            wake.send("who is told").unwrap();
        }));
        shared.fail(Error::option("one", "a problem"));
        assert_eq!(woken.try_iter().collect::<Vec<_>>(), ["a thread", "who is told", "who waits"]);
    }

    #[test]
    fn whoever_asks_is_told_of_the_first_failure_once() {
        let shared = Lifecycle::default();
        let (tell, told) = mpsc::channel();
        let ask = || {
            let tell = tell.clone();
            shared.on_failure(Box::new(move |error| tell.send(error.to_string()).unwrap()));
        };
        ask();
        assert!(told.try_recv().is_err(), "it has not failed");
        shared.fail(Error::option("first", "a problem"));
        shared.fail(Error::option("second", "another"));
        ask();
        let told: Vec<_> = told.try_iter().collect();
        assert!(told.len() == 2 && told.iter().all(|text| text.contains("first")), "{told:?}");
    }

    #[test]
    fn who_waits_hears_the_first_error_or_that_all_have_started() {
        let answers = Answers::default();
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| Answer::to(Some(answers.clone())).give(Ok(())));
            }
            assert!(answers.first_error_of(2).is_none());
        });
        let mut late = Answer::to(Some(answers.clone()));
        let shared = Lifecycle::default();
        let mut failed = Answer::to(Some(answers.clone()));
        failed.end(Some(Error::option("a", "1")), &shared);
        let error = answers.first_error_of(4).expect("the fourth thread is not waited for");
        assert!(shared.stopping() && error.to_string().contains("option a"));
        late.end(Some(Error::option("b", "2")), &shared);
        assert!(answers.first_error_of(4).is_some_and(|error| error.to_string().contains("b")));
        // Who has answered already tells a later error the server.
        late.end(Some(Error::option("c", "3")), &shared);
        assert!(shared.take_failure().is_some());
    }

    #[test]
    fn a_setting_has_one_name_and_every_value_that_differs() {
        let shared = Lifecycle::default();
        for (name, value) in
            [("device", "veth0"), ("window", "64"), ("device", "veth1"), ("window", "64")]
        {
            shared.state(name, value);
        }
        let expected = [("device", "veth0, veth1"), ("window", "64")];
        assert_eq!(shared.effective(), expected.map(|(name, value)| (name.into(), value.into())));
    }
}
