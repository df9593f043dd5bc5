//! The provider `batch`: registered I/O over plain sockets.
//!
//! Nothing is registered with the kernel. Posted slices wait in user space, and a dequeue is
//! a batched receive that does not wait, into the slices posted last: their memory is the
//! warmest. Waiting is poll. Sends go out in batches at the commit; those for which the
//! socket has no room stay and go with a later call.
//!
//! It runs everywhere, and shows what registered I/O is worth: the same program, with a
//! system call for each batch of datagrams instead of none. Where the system has no call for
//! a batch, each datagram costs one.
//!
//! How it fails: a dequeue of an empty queue is a system call, so polling it costs one each
//! time. A datagram that finds no slice waits in the socket's buffer, and beyond that is
//! dropped by the socket, uncounted here.
//!
//! A wait may return before `at_least` datagrams are there: poll cannot count them. Dropping
//! the queues without stopping them leaks nothing: no kernel holds a slice.

pub(in crate::rio) mod outbox;

#[cfg(test)]
mod tests;

use super::{
    Batch, CONTEXT_BYTES, Completion, CompletionQueue, Needs, Opened, Outcome, Peer, Provider,
    Refused, RequestQueue, Span, Started, Stopped, Watched, Woken, line_and_payload,
    requests::{Outgoing, Reserved, Rotation, of_region},
    sharing::{Count, Shared, Sharing},
    signals::Signals,
};
use crate::{
    Error, Unavailable,
    counters::Counters,
    memory::{Layout, Region, Slice},
    readiness::Poll,
    socket::{BATCHES_IN_ONE_CALL, DatagramSocket, Endpoint, Headers, Mode},
    wake::Waker,
};
use outbox::Outbox;

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

/// Datagrams per system call, at most. More hardly pays: the call's share of the cost is
/// small by then.
pub(in crate::rio) const PER_CALL: usize = 64;

/// Slices offered to a call after one that found little: headers cost time for each slice
/// that is offered, filled or not.
const PER_CALL_AT_LEAST: usize = 8;

/// Alignment of slices: a cache line.
const ALIGN_BYTES: usize = 64;

/// The provider `batch`.
#[derive(Debug, Clone, Copy, Default)]
pub struct PlainSockets;

/// Sockets that are bound.
pub struct PlainOpened {
    sockets: Vec<DatagramSocket>,
    poll: Poll,
    region: Arc<Region>,
    needs: Needs,
}

impl Opened for PlainOpened {
    fn sockets(&self) -> Vec<DatagramSocket> {
        self.sockets.clone()
    }
}

impl<T: Sharing> Provider<T> for PlainSockets {
    type Cq = PlainCompletions<T>;
    type Rq = PlainRequests<T>;
    type Opened = PlainOpened;

    fn layout(&self, needs: &Needs) -> Result<Layout, Unavailable> {
        Ok(layout(needs))
    }

    fn open(
        &self,
        at: &[Endpoint],
        region: &Arc<Region>,
        needs: &Needs,
    ) -> Result<PlainOpened, Error> {
        region.check_layout(layout(needs))?;
        let mut poll = Poll::new()?;
        let sockets = at.iter().map(DatagramSocket::bind).collect::<Result<Vec<_>, _>>()?;
        for (i, socket) in sockets.iter().enumerate() {
            poll.add(socket, i as u32)?;
        }
        Ok(PlainOpened { sockets, poll, region: Arc::clone(region), needs: *needs })
    }

    fn start(&self, opened: PlainOpened) -> Result<Started<Self::Cq, Self::Rq>, Error> {
        let PlainOpened { sockets, poll, region, needs } = opened;
        let mut granted = vec![(
            "receives",
            if BATCHES_IN_ONE_CALL {
                format!("up to {PER_CALL} datagrams per call")
            } else {
                "one call per datagram: this system has none for a batch".into()
            },
        )];
        for bytes in sockets.iter().filter_map(|socket| socket.receive_buffer_bytes().ok()) {
            granted.push(("receive-buffer-bytes", bytes.to_string()));
        }
        if sockets.iter().any(|socket| socket.busy_poll().is_some()) {
            granted.push(("busy-poll-wait", Poll::busy_poll()));
        }
        let signals = Arc::new(Signals::default());
        let receives = T::Count::default();
        let kick = poll.waker();
        let parts: Vec<_> = sockets
            .into_iter()
            .map(|socket| Part::<T> {
                socket,
                posted: Shared::new(Vec::with_capacity(needs.receives as usize)),
                outbox: Shared::new(Outbox::new(needs.sends as usize, PER_CALL)),
                receives: T::Count::default(),
                sends: T::Count::default(),
            })
            .collect();
        let requests = parts.iter().map(|part| PlainRequests {
            part: part.clone(),
            region: Arc::clone(&region),
            needs,
            receives: receives.clone(),
            staged: Vec::with_capacity(needs.receives as usize),
            staged_sends: Vec::with_capacity(needs.sends as usize),
            reserved: Reserved::default(),
            signals: Arc::clone(&signals),
            kick: kick.clone(),
        });
        let requests = requests.collect();
        let inboxes = parts.into_iter().map(|part| Inbox {
            part,
            taken: Vec::with_capacity(needs.receives as usize),
            slices: Vec::with_capacity(needs.receives as usize),
            offer: PER_CALL_AT_LEAST,
        });
        let inboxes = inboxes.collect();
        let completions = PlainCompletions {
            inboxes,
            rotation: Rotation::default(),
            needs,
            receives,
            headers: Headers::new(PER_CALL),
            poll,
            signals,
            ended: false,
            left: false,
        };
        Ok(Started { completions, requests, granted })
    }
}

/// How slices must be cut.
fn layout(needs: &Needs) -> Layout {
    Layout::packed(CONTEXT_BYTES, needs.payload, ALIGN_BYTES)
}

/// What the two queues of one socket share.
struct Part<T: Sharing> {
    socket: DatagramSocket,
    /// Slices posted and committed that the completion queue has not taken over yet.
    posted: T::Shared<Vec<Slice>>,
    outbox: T::Shared<Outbox>,
    /// Outstanding on this socket.
    receives: T::Count,
    sends: T::Count,
}

impl<T: Sharing> Clone for Part<T> {
    fn clone(&self) -> Self {
        Self {
            socket: self.socket.clone(),
            posted: self.posted.clone(),
            outbox: self.outbox.clone(),
            receives: self.receives.clone(),
            sends: self.sends.clone(),
        }
    }
}

/// The request queue of the provider `batch`.
pub struct PlainRequests<T: Sharing> {
    part: Part<T>,
    region: Arc<Region>,
    needs: Needs,
    /// Receives outstanding over all sockets.
    receives: T::Count,
    /// Posted since the last commit.
    staged: Vec<Slice>,
    staged_sends: Vec<Outgoing>,
    reserved: Reserved,
    signals: Arc<Signals>,
    /// Ends the wait of the completion queue, so that it looks again.
    kick: Waker,
}

/// Counts more receives, over all sockets and for this one.
fn count_receives<T: Sharing>(
    all: &T::Count,
    part: &Part<T>,
    needs: &Needs,
) -> impl FnOnce(u32) -> u32 {
    |more| {
        let added = all.add_below(more, needs.receives);
        part.receives.add_below(added, u32::MAX);
        added
    }
}

impl<T: Sharing> PlainRequests<T> {
    /// A slice that may be posted.
    #[inline]
    fn checked(&self, slice: Slice) -> Result<Slice, (Slice, Refused)> {
        match self.signals.is_stopped() {
            true => Err((slice, Refused::Stopped)),
            false => of_region(slice, &self.region),
        }
    }
}

impl<T: Sharing> RequestQueue for PlainRequests<T> {
    #[inline]
    fn receive(&mut self, slice: Slice) -> Result<(), (Slice, Refused)> {
        let slice = self.checked(slice)?;
        let count = count_receives(&self.receives, &self.part, &self.needs);
        if let Err(refused) = self.reserved.take(count) {
            return Err((slice, refused));
        }
        self.staged.push(slice);
        Ok(())
    }

    fn reserve(&mut self, receives: u32) {
        self.reserved.fill(receives, count_receives(&self.receives, &self.part, &self.needs));
    }

    #[inline]
    fn send(
        &mut self,
        slice: Slice,
        span: impl Into<Span>,
        to: &Peer,
    ) -> Result<(), (Slice, Refused)> {
        let slice = self.checked(slice)?;
        let outstanding = (&self.part.sends, self.needs.sends);
        self.staged_sends.push(Outgoing::new(slice, span.into(), to, outstanding)?);
        Ok(())
    }

    fn commit(&mut self, counters: &Counters) -> io::Result<()> {
        let Self { part, staged, staged_sends, signals, kick, receives, reserved, .. } = self;
        reserved.give_up(|left| {
            part.receives.take_off(left);
            receives.take_off(left);
        });
        let mut rouse = false;
        if !staged.is_empty() {
            part.posted.with(|posted| {
                if !signals.is_stopped() {
                    posted.append(staged);
                }
            });
            rouse = signals.slices_left();
        }
        if !staged_sends.is_empty() {
            part.outbox.with(|outbox| {
                if !signals.is_stopped() {
                    outbox.add(staged_sends.drain(..));
                    outbox.flush(&part.socket, counters);
                }
            });
            rouse |= signals.sends_left();
        }
        if signals.is_stopped() {
            return Err(Refused::Stopped.into());
        }
        if rouse {
            counters.kernel_entries.one();
            kick.wake();
        }
        Ok(())
    }

    fn outstanding(&self) -> (u32, u32) {
        (self.part.receives.get(), self.part.sends.get())
    }

    fn sends_wait(&self) -> bool {
        self.part.outbox.with(|outbox| outbox.is_blocked())
    }
}

/// The receiving side of a socket.
struct Inbox<T: Sharing> {
    part: Part<T>,
    /// Empty, but for its room: what was posted is swapped for it.
    taken: Vec<Slice>,
    /// Slices to receive into; the last one goes first.
    slices: Vec<Slice>,
    /// Slices to offer to the next call.
    offer: usize,
}

impl<T: Sharing> Inbox<T> {
    fn take_posted(&mut self) {
        let Self { part, taken, slices, .. } = self;
        // Swapped, so that who posts does not wait for a copy.
        part.posted.with(|posted| std::mem::swap(posted, taken));
        slices.append(taken);
    }
}

/// The completion queue of the provider `batch`.
pub struct PlainCompletions<T: Sharing> {
    inboxes: Vec<Inbox<T>>,
    rotation: Rotation,
    needs: Needs,
    receives: T::Count,
    headers: Headers,
    poll: Poll,
    signals: Arc<Signals>,
    /// Nothing more is received: others have the sockets.
    ended: bool,
    /// The last dequeue did not look into a socket until nothing was there.
    left: bool,
}

impl<T: Sharing> PlainCompletions<T> {
    /// Sends what had to wait, and takes what was sent.
    fn dequeue_sends(&mut self, out: &mut Batch, counters: &Counters) {
        for (index, Inbox { part, .. }) in self.inboxes.iter().enumerate() {
            part.outbox.with(|outbox| {
                if outbox.is_blocked() {
                    outbox.flush(&part.socket, counters);
                }
                while out.room() > 0
                    && let Some((slice, outcome)) = outbox.take_done()
                {
                    part.sends.take_off(1);
                    out.push(Completion { slice, socket: index as u32, outcome });
                }
            });
        }
    }

    /// Receives what one socket has, up to what fits; says how many datagrams that was.
    fn dequeue_socket(
        &mut self,
        index: usize,
        out: &mut Batch,
        counters: &Counters,
    ) -> io::Result<usize> {
        let Self { inboxes, headers, receives, left, .. } = self;
        let inbox = &mut inboxes[index];
        inbox.take_posted();
        let (mut datagrams, mut taken) = (0, 0);
        loop {
            let offered = inbox.offer.min(out.room()).min(inbox.slices.len());
            if offered == 0 {
                *left = true;
                break;
            }
            let from = inbox.slices.len() - offered;
            let offer = &mut inbox.slices[from..];
            let count = match inbox.part.socket.receive_many(headers, offer, Mode::Try, counters) {
                Ok(count) => count,
                Err(e) => {
                    // It concerns one datagram, or the program will find out with the next.
                    let slice = inbox.slices.pop().expect("at least one was offered");
                    taken += 1;
                    out.push(Completion {
                        slice,
                        socket: index as u32,
                        outcome: Outcome::Failed(e),
                    });
                    *left = true;
                    break;
                }
            };
            for (i, mut slice) in inbox.slices.drain(from..from + count).enumerate() {
                let received = headers.tell(i, line_and_payload(&mut slice).0);
                datagrams += received.datagrams();
                let outcome = Outcome::Received(received);
                out.push(Completion { slice, socket: index as u32, outcome });
            }
            taken += count as u32;
            inbox.offer = (2 * count).clamp(PER_CALL_AT_LEAST, PER_CALL);
            if count < offered {
                break; // the socket is empty
            }
        }
        inbox.part.receives.take_off(taken);
        receives.take_off(taken);
        Ok(datagrams)
    }

    /// Waits until there is something, of datagrams only if they are watched for.
    fn wait_watching(
        &mut self,
        for_datagrams: bool,
        timeout: Option<Duration>,
        counters: &Counters,
    ) -> io::Result<Woken> {
        let by = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut left = timeout;
        loop {
            if self.about_to_wait(for_datagrams) {
                self.signals.no_longer_waiting();
                return Ok(Woken::Ready);
            }
            let woken = self.poll.wait(left, counters);
            self.signals.no_longer_waiting();
            match woken? {
                // A poster's kick: look again what there is to wait for.
                Woken::ByWaker if !self.signals.take_woken() => {}
                woken => return Ok(woken),
            }
            left = by.map(|by| by.saturating_duration_since(Instant::now()));
        }
    }

    /// Prepares a wait, for datagrams or not. True: there is something already.
    fn about_to_wait(&mut self, for_datagrams: bool) -> bool {
        let mut starved = false;
        let mut done = false;
        self.signals.about_to_look();
        for (index, inbox) in self.inboxes.iter_mut().enumerate() {
            inbox.take_posted();
            let mut blocked = false;
            if self.needs.sends > 0 {
                inbox.part.outbox.with(|outbox| {
                    blocked = outbox.is_blocked();
                    done |= outbox.has_done();
                });
            }
            let hungry = inbox.slices.is_empty();
            starved |= hungry;
            self.poll.want(index, for_datagrams && !hungry && !self.ended, blocked);
        }
        self.signals.looked(starved);
        done
    }
}

impl<T: Sharing> CompletionQueue for PlainCompletions<T> {
    type Rq = PlainRequests<T>;

    fn dequeue(&mut self, out: &mut Batch, counters: &Counters) -> io::Result<usize> {
        self.left = false;
        if self.needs.sends > 0 {
            self.dequeue_sends(out, counters);
        }
        if self.ended {
            return Ok(0);
        }
        let (mut rotation, count) = (self.rotation, self.inboxes.len());
        let each = |index, out: &mut Batch| self.dequeue_socket(index, out, counters);
        let received = rotation.dequeue(count, out, each);
        self.rotation = rotation;
        // Without room some sockets were not looked into at all.
        self.left |= out.room() == 0;
        received
    }

    fn wait(
        &mut self,
        _at_least: u32,
        timeout: Option<Duration>,
        counters: &Counters,
    ) -> io::Result<Woken> {
        self.wait_watching(true, timeout, counters)
    }

    fn gather(
        &mut self,
        _enough: u32,
        at_most: Duration,
        counters: &Counters,
    ) -> io::Result<Woken> {
        match self.wait_watching(false, Some(at_most), counters)? {
            Woken::ByWaker => Ok(Woken::ByWaker),
            Woken::Ready | Woken::TimedOut => Ok(Woken::Ready),
        }
    }

    fn may_have_left(&self) -> bool {
        self.left
    }

    fn gathers(&self) -> String {
        "a timed poll that watches no socket for datagrams".into()
    }

    fn waker(&self) -> Waker {
        let poll = self.poll.waker();
        self.signals.waker(move || poll.wake())
    }

    fn end_receiving(&mut self, _: &Counters) -> io::Result<bool> {
        self.ended = true; // only a dequeue takes from the sockets
        Ok(false)
    }

    fn watched(&self) -> Vec<Watched> {
        Watched::all_of(self.inboxes.iter().map(|inbox| &inbox.part.socket))
    }

    fn prepare_to_wait(&mut self, _counters: &Counters) -> io::Result<bool> {
        let mut something = false;
        for inbox in &mut self.inboxes {
            inbox.take_posted();
            // What comes while no slice is there makes a socket ready once only, and that may be over.
            something |= inbox.slices.is_empty() && !self.ended;
            something |= self.needs.sends > 0 && inbox.part.outbox.with(|outbox| outbox.has_done());
        }
        Ok(something)
    }

    fn stop(self, requests: Vec<PlainRequests<T>>, _by: Instant) -> Stopped {
        // What is looked at below is looked at under its lock, and by whoever posts after this.
        self.signals.set_stopped();
        // Dropping a slice puts it back into its pool.
        let mut returned = 0;
        for PlainRequests { staged, staged_sends, .. } in requests {
            returned += staged.len() + staged_sends.len();
        }
        for inbox in self.inboxes {
            returned += inbox.slices.len();
            returned += inbox.part.posted.with(|posted| posted.drain(..).count());
            returned += inbox.part.outbox.with(Outbox::clear);
        }
        Stopped { returned: returned as u32, missing: 0 }
    }
}
