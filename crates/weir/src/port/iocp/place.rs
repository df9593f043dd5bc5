//! A thread's place at a port, whatever its operations are.

use super::{
    inner::{Inner, packets_for},
    queue::Entries,
    state::{Outstanding, PortState},
};
use crate::{Error, counters::Counters, port::Refused, rio::Batch};
use std::{cell::Cell, collections::VecDeque, io, marker::PhantomData, time::Duration};

/// What the workers of both kinds of port are made of.
pub(super) struct Place<'a, O: Outstanding> {
    pub port: &'a Inner<O>,
    entries: Entries,
    /// Calls that started operations and are not counted yet: who starts one is not told where.
    calls: Cell<u64>,
    /// What was done when its call returned has no packet.
    pub skip: bool,
    /// The addresses of such operations, to be taken by this thread, in turns with what others have packets of.
    ready: VecDeque<usize>,
    ready_first: bool,
    /// It stays on its thread: there it runs or not.
    stays: PhantomData<*const ()>,
}

impl<'a, O: Outstanding> Place<'a, O> {
    /// One of as many as the port was opened for.
    pub fn at(port: &'a Inner<O>, threads: u32, skip: bool) -> Result<Self, Error> {
        let joined = port.with(|state| {
            let free = state.places < threads;
            state.places += u32::from(free);
            free
        });
        if !joined {
            let problem = format!("the port was opened for {threads}; open it for more");
            return Err(Error::option("threads", problem));
        }
        Ok(Self {
            port,
            entries: Entries::new(),
            calls: Cell::new(0),
            skip,
            ready: VecDeque::new(),
            ready_first: true,
            stays: PhantomData,
        })
    }

    pub fn take(
        &mut self,
        out: &mut Batch<O::Completion>,
        timeout: Option<Duration>,
        counters: &Counters,
    ) -> io::Result<Option<usize>> {
        self.count(counters);
        let before = out.len();
        while !self.ready.is_empty() && !self.port.is_closed() {
            if !self.ready_first {
                let at_once = Some(Duration::ZERO);
                if self.port.take(&mut self.entries, out, at_once, counters)?.is_none() {
                    return Ok(None);
                }
            }
            self.ready_first = !self.ready_first;
            if out.room() > 0 {
                let fit = self.ready.len().min(packets_for::<O>(out));
                self.port.finish(self.ready.drain(..fit), out);
            }
            // Another thread may have had all of these by packets of theirs: see `table::Block`.
            if out.len() > before {
                return Ok(Some(out.len() - before));
            }
        }
        self.port.take(&mut self.entries, out, timeout, counters)
    }

    /// The kernel has an operation of this address, or had it.
    #[inline]
    pub fn started(&mut self, address: usize, done: bool) {
        if self.skip && done {
            self.ready.push_back(address);
        }
    }

    /// Has others take what this thread would.
    fn hand_over(&mut self) {
        self.ready.drain(..).for_each(|address| self.port.queue.post_surely(address));
    }

    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(&mut PortState<O>) -> R) -> R {
        self.port.with(f)
    }

    /// Whether anything may be started.
    #[inline]
    pub fn open(&self) -> Result<(), Refused> {
        if self.port.is_closed() { Err(Refused::Closed) } else { Ok(()) }
    }

    /// A call was made that is counted when somebody says where.
    #[inline]
    pub fn called(&self, times: u64) {
        self.calls.set(self.calls.get() + times);
    }

    #[inline]
    pub fn count(&self, counters: &Counters) {
        counters.kernel_entries.add(self.calls.take());
    }

    /// The system sees that this thread waits. Where it only runs on, it lets another in all the same.
    pub fn blocking<R>(&mut self, counters: &Counters, f: impl FnOnce() -> R) -> R {
        self.count(counters);
        counters.kernel_entries.one();
        self.hand_over();
        self.port.queue.step_aside();
        f()
    }
}

impl<O: Outstanding> Drop for Place<'_, O> {
    fn drop(&mut self) {
        self.hand_over();
        self.port.with(|state| state.places -= 1);
        self.port.queue.step_aside();
    }
}
