//! What the threads of a port do, whatever its operations are: post, take, close, stop.

use super::{
    queue::{END, Entries, POSTED, Queue},
    state::{Outstanding, PortState},
};
use crate::{
    Error,
    counters::Counters,
    deadline::TimeLeft,
    port::{Finished, Packet, Refused, Stopped},
    rio::Batch,
    socket::native::CANCEL_AGAIN,
    wake::Waker,
};
use std::{
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

/// What the threads of a port and those who may close it share.
pub(super) struct Inner<O> {
    pub queue: Queue,
    /// There until the port goes.
    pub state: Mutex<Option<PortState<O>>>,
    pub closed: AtomicBool,
}

impl<O: Outstanding> Inner<O> {
    /// A port for so many packets, of whose threads so many run at a time.
    pub fn open(operations: O, packets: u32, concurrency: u32) -> Result<Arc<Self>, Error> {
        let queue =
            Queue::new(concurrency).map_err(|e| Error::io("making a completion port", e))?;
        let state = Mutex::new(Some(PortState::new(operations, packets)));
        Ok(Arc::new(Self { queue, state, closed: AtomicBool::new(false) }))
    }

    pub fn lock(&self) -> MutexGuard<'_, Option<PortState<O>>> {
        // A panic under the lock is a broken invariant of this file; what the kernel holds is
        // still accounted for, so it must be reached.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(&mut PortState<O>) -> R) -> R {
        f(self.lock().as_mut().expect("there until the port goes"))
    }

    #[inline]
    pub fn is_closed(&self) -> bool {
        self.closed.load(SeqCst)
    }

    /// Also after the port has gone: then it is closed already. The handle stays open: who waits in a handle that is
    /// closed might wait in another's.
    pub fn close(&self) {
        if !self.closed.swap(true, SeqCst) {
            self.queue.post_surely(END);
        }
    }

    pub fn closer(self: &Arc<Self>) -> Waker
    where
        O: 'static,
    {
        let inner = Arc::clone(self);
        Waker::new(move || inner.close())
    }

    /// Puts a packet at the end of the queue.
    pub fn post(&self, packet: Packet, counters: &Counters) -> Result<(), (Packet, Refused)> {
        // Also after the port has gone.
        let mut state = self.lock();
        let Some(state) = state.as_mut().filter(|_| !self.is_closed()) else {
            return Err((packet, Refused::Closed));
        };
        counters.kernel_entries.one();
        state.post(packet, &self.queue).map_err(|packet| (packet, Refused::Full))
    }

    /// Takes what has finished, as much as fits, and waits for it. `None`: closed.
    pub fn take(
        &self,
        entries: &mut Entries,
        out: &mut Batch<O::Completion>,
        timeout: Option<Duration>,
        counters: &Counters,
    ) -> io::Result<Option<usize>> {
        assert!(out.room() > 0, "a take needs room for a completion");
        let before = out.len();
        let mut time = TimeLeft::of(timeout);
        loop {
            if self.is_closed() {
                return Ok(None);
            }
            counters.kernel_entries.one();
            counters.waits.one();
            let left = time.left();
            let mut packets = self.queue.take(entries, packets_for::<O>(out), left)?.peekable();
            if packets.peek().is_some() {
                let ended = self.finish(packets, out);
                let taken = out.len() - before;
                if taken > 0 || ended {
                    return Ok((taken > 0).then_some(taken));
                }
            } else if time.left().is_some_and(|left| left.is_zero()) {
                return Ok(Some(0));
            }
        }
    }

    /// Ends the operations of these packets. True: there was the one that ends waits.
    pub fn finish(
        &self,
        packets: impl Iterator<Item = usize>,
        out: &mut Batch<O::Completion>,
    ) -> bool {
        let (mut ended, mut unreported) = (false, 0);
        self.with(|state| {
            for address in packets {
                match address {
                    END => ended = true,
                    POSTED => state.take_posted(out),
                    address => unreported += u32::from(state.operations.finish(address, out)),
                }
            }
        });
        // Each thread that waits passes it on to the next, and it stays for those that come.
        if ended {
            self.queue.post_surely(END);
        }
        (0..unreported).for_each(|_| self.queue.post_surely(POSTED));
        ended
    }

    /// Closes, and takes back what is outstanding; the rest is given up. No thread has a place any more.
    pub fn stop(&self, by: Instant) -> Stopped {
        self.close();
        let drained = self.drain(by);
        let (returned, missing) = self.give_up().expect("given up only here and in drop");
        Stopped { returned: drained + returned, missing }
    }

    /// Cancels what is outstanding and takes completions until nothing is, or until the time is over. Asks again while
    /// nothing comes: Wine 8 forgets a cancel now and then. Returns how many pieces of memory came back.
    fn drain(&self, by: Instant) -> u32 {
        let (mut entries, mut out, mut returned) = (Entries::new(), Batch::new(64), 0);
        self.with(|state| state.operations.cancel_all());
        while self.with(|state| state.operations.outstanding()) > 0 {
            let left = by.saturating_duration_since(Instant::now());
            let wait = Some(left.min(CANCEL_AGAIN));
            let packets = self.queue.take(&mut entries, packets_for::<O>(&out), wait);
            let Ok(packets) = packets else { break };
            let mut some = false;
            let packets = packets.inspect(|_| some = true).filter(|&address| address != END);
            self.finish(packets, &mut out);
            returned += out.drain().filter(Finished::brings_memory).count() as u32;
            match some {
                true => {}
                false if left.is_zero() => break, // what did not come back is leaked and counted
                false => self.with(|state| state.operations.cancel_all()),
            }
        }
        returned
    }

    /// Without a stop before it, what the kernel holds is leaked and counted.
    pub fn give_up(&self) -> Option<(u32, u32)> {
        let state = self.lock().take()?;
        // SAFETY: nothing can be started without the state.
        Some(unsafe { state.operations.give_up() })
    }
}

/// How many packets may be taken for the room there is, so that what each brings fits in.
pub(super) fn packets_for<O: Outstanding>(out: &Batch<O::Completion>) -> usize {
    (out.room() / O::PER_PACKET).max(1)
}
