//! Holds a server up at the first datagram of each run: what it has room for shows in what it receives then.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use weir_lab::udp::plan::Held;

/// What holds the handlers of a server, all of them together.
#[derive(Debug)]
pub struct Hold {
    held: Held,
    /// Whether a handler has to look: it is off where nothing is held.
    on: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// Nothing has been held yet.
    Never,
    /// The first datagram of a run begins it.
    Armed,
    /// It began.
    Since(Instant),
    /// It was over then.
    Over(Instant),
}

impl Hold {
    /// Holds nothing before a run starts.
    pub fn new(held: Held) -> Self {
        let state = Mutex::new(State::Never);
        Self { held, on: AtomicBool::new(false), state, changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A run has started: its first datagram begins the hold.
    pub fn arm(&self) {
        if self.held != Held::No {
            // Under the lock, so that it stays on only as long as the state says.
            let mut state = self.lock();
            *state = State::Armed;
            self.on.store(true, Ordering::Release);
        }
    }

    /// All of the run has been sent.
    pub fn all_sent(&self) {
        if self.held == Held::UntilSent {
            self.end();
        }
    }

    /// Lets everybody go.
    pub fn end(&self) {
        self.over(&mut self.lock());
    }

    fn over(&self, state: &mut State) {
        *state = State::Over(Instant::now());
        self.on.store(false, Ordering::Release);
        self.changed.notify_all();
    }

    /// Holds whoever has a datagram to handle, if anybody is held.
    #[inline]
    pub fn pass(&self) {
        if self.on.load(Ordering::Acquire) {
            self.wait();
        }
    }

    #[cold]
    fn wait(&self) {
        let mut state = self.lock();
        loop {
            let since = match *state {
                State::Never | State::Over(_) => return,
                State::Armed => {
                    let now = Instant::now();
                    *state = State::Since(now);
                    now
                }
                State::Since(since) => since,
            };
            let Held::For(time) = self.held else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = time.saturating_sub(since.elapsed());
            if left.is_zero() {
                return self.over(&mut state);
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// For how long a server has been quiet without being held, in ns, at most.
    pub fn quiet_ns(&self) -> u64 {
        match *self.lock() {
            State::Never | State::Armed => u64::MAX,
            State::Since(_) => 0,
            State::Over(at) => u64::try_from(at.elapsed().as_nanos()).unwrap_or(u64::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{TryRecvError, channel};
    use std::time::Duration;

    #[test]
    fn everybody_is_held_from_the_first_datagram_until_all_is_sent() {
        let hold = Hold::new(Held::UntilSent);
        hold.pass(); // nothing has started
        hold.arm();
        assert_eq!(hold.quiet_ns(), u64::MAX, "nothing has come");
        let (passed, through) = channel();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let passed = passed.clone();
                let hold = &hold;
                scope.spawn(move || {
                    hold.pass();
                    passed.send(()).unwrap();
                });
            }
            while hold.quiet_ns() > 0 {
                std::thread::yield_now();
            }
            assert_eq!(through.try_recv(), Err(TryRecvError::Empty));
            hold.all_sent();
            assert_eq!([through.recv(), through.recv()], [Ok(()); 2]);
        });
        hold.pass(); // it was for that run
    }

    #[test]
    fn a_hold_lasts_as_long_as_it_is_to() {
        let time = Duration::from_millis(3);
        let hold = Hold::new(Held::For(time));
        hold.arm();
        let begun = Instant::now();
        hold.pass();
        assert!(begun.elapsed() >= time);
        hold.all_sent(); // is nothing to it
        hold.pass();
        assert!(hold.quiet_ns() < u64::MAX);
    }

    #[test]
    fn nothing_is_held_where_nothing_is_to_be() {
        let hold = Hold::new(Held::No);
        hold.arm();
        hold.pass();
        assert_eq!(hold.quiet_ns(), u64::MAX);
    }
}
