//! Letting messages gather before a thread waits for readiness, where that was asked for. The thread sleeps beside its
//! set, which wakes nobody meanwhile, and then asks it.

use crate::{
    counters::Counters,
    gather::{Asked, Gathering},
    pause::Pause,
    tcp::{Handler, Worker},
    wake::Waker,
};
use std::{
    io,
    time::{Duration, Instant},
};

/// Lets messages gather while its thread sleeps, and then has it wait.
pub(super) struct Gatherer {
    gathering: Gathering,
    pause: Pause,
    /// When the last wait ended, and how many messages the thread had received by then.
    woke: Instant,
    messages: u64,
}

impl Gatherer {
    /// For the calling thread.
    pub(super) fn new<H: Handler>(worker: &Worker<H>, asked: Asked) -> Self {
        let how = "a timed sleep of the thread beside its set";
        let gathering = asked.begin(how, |name, value| worker.state(name, value));
        Self { gathering, pause: Pause::new(), woke: Instant::now(), messages: 0 }
    }

    /// What ends the wait of this thread, whether it sleeps or waits with the set whose waker is given.
    pub(super) fn waker(&self, set: Waker) -> Waker {
        let pause = self.pause.waker();
        Waker::new(move || {
            set.wake();
            pause.wake();
        })
    }

    /// Lets messages gather, if that pays, and then has the thread `wait` with its set. Both together take no longer than
    /// `timeout`. With `left` the last wait may have left something that is ready: then nothing gathers before that was
    /// asked for.
    pub(super) fn wait<H: Handler, R>(
        &mut self,
        worker: &Worker<H>,
        timeout: Option<Duration>,
        left: bool,
        wait: impl FnOnce(Option<Duration>, &Counters) -> io::Result<R>,
    ) -> io::Result<R> {
        // At the end of the server nothing is worth waiting for.
        let timeout = match self.gathering.is_on() && !worker.stopping() {
            true => self.sleep(worker, timeout, left),
            false => timeout,
        };
        worker.calls.waits.one();
        let result = wait(timeout, &worker.calls);
        if self.gathering.heeds_dequeues() {
            self.woke = Instant::now();
            // What its waker was used for by now is seen to before the next sleep.
            self.pause.forget();
        }
        result
    }

    /// Sleeps while messages gather. Returns how long the wait behind it may last.
    fn sleep<H: Handler>(
        &mut self,
        worker: &Worker<H>,
        timeout: Option<Duration>,
        left: bool,
    ) -> Option<Duration> {
        let messages = worker.counters.messages.get();
        let came = messages - std::mem::replace(&mut self.messages, messages);
        self.gathering.dequeued(came as usize, left, || self.woke);
        if left {
            return Some(Duration::ZERO);
        }
        if timeout == Some(Duration::ZERO) {
            return timeout;
        }
        let began = Instant::now();
        let time = self.gathering.wait(began);
        let time = timeout.map_or(time, |timeout| time.min(timeout));
        if time.is_zero() {
            return timeout;
        }
        worker.calls.waits.one();
        worker.calls.kernel_entries.one();
        self.pause.sleep(time);
        timeout.map(|timeout| timeout.saturating_sub(began.elapsed()))
    }
}
