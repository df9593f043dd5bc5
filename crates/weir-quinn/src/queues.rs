//! Queues of registered I/O as quinn polls them: nothing here waits, but for [`Core::wait`], which is a thread's.
//!
//! Two locks, so that who sends does not wait for who receives. Who needs both takes that of receiving first.

use crate::{
    reactor::Reactor,
    settings::{Sends, Settings},
    thread::Orders,
};
use quinn::udp::{BATCH_SIZE, EcnCodepoint, RecvMeta, Transmit};
use std::{
    array,
    collections::VecDeque,
    fmt,
    io::{self, IoSliceMut},
    mem,
    num::NonZeroU16,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};
use weir::{
    Error,
    counters::Counters,
    memory::{Region, Slice},
    rio::{Batch, Choice, Completion, CompletionQueue, Outcome, Peer, Refused, RequestQueue, Span},
    socket::{Arrival, DatagramSocket, Ecn, Headers, Mode},
};

/// Completions taken by one dequeue.
pub(crate) const PER_DEQUEUE: u32 = 128;

/// Datagrams that gather at most before they are handed to the kernel: as many as leave as one.
const MOST_GATHERED: usize = 64;

/// What is sent so long after the kernel was given something leaves at once, with what has gathered, and after that fewer gather at
/// first: the peer has something to do meanwhile. Else both ends of a connection with many requests would work in turns,
/// each waiting for the other.
const GATHERS_FOR: Duration = Duration::from_micros(50);

/// So many datagrams are worth another turn of the tasks before they leave: as many as quinn hands over at a time.
const MUCH: usize = 10;

/// How long the end may take that the kernel needs to give slices back.
pub(crate) const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Looks within one poll that bring nothing although something seems to be there, before other tasks have their turn.
const LOOKS: u32 = 4;

/// A socket's queues, whatever the provider.
pub(crate) trait Core: fmt::Debug + Send + Sync {
    /// As [`quinn::AsyncUdpSocket::try_send`].
    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()>;

    /// As [`quinn::AsyncUdpSocket::poll_recv`].
    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>>;

    /// As [`quinn::UdpPoller::poll_writable`].
    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Hands to the kernel what has gathered, when that is due. Ready when the socket is over.
    fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<()>;

    /// Waits in the queue until something is there, and wakes who reads.
    fn wait(&self);

    /// Has it take no more from the socket, by which it goes on sending.
    fn end_receiving(&self);

    /// Whether that is so, and what was taken by then has been handed over.
    fn has_ended_receiving(&self) -> bool;

    /// Hands what is posted to the kernel, ends what is under way, and gives every slice back.
    fn stop(&self);
}

/// Queues of one socket.
pub(crate) struct Queues<Cq: CompletionQueue> {
    region: Arc<Region>,
    receiving: Mutex<Receiving<Cq>>,
    sending: Mutex<Sending<Cq::Rq>>,
    /// Who was told that nothing more can be sent.
    writers: Mutex<Vec<Waker>>,
    /// Whether anybody was. Changed under the lock of `writers`.
    full: AtomicBool,
    /// Who receives.
    reader: Mutex<Option<Waker>>,
    /// Whether it is to take no more from the socket, and whether that is so.
    ending: AtomicBool,
    ended: AtomicBool,
    /// Where a thread waits in the queue, and not the reactor.
    orders: Option<Arc<Orders>>,
    settings: Settings,
    /// Whether datagrams can be marked.
    marks: bool,
    /// What is counted under the lock of `receiving`, and of `sending`.
    received: Arc<Counters>,
    sent: Arc<Counters>,
}

/// What is touched by who dequeues.
struct Receiving<Cq> {
    inbox: Inbox<Cq>,
    reactor: Option<Reactor>,
    /// Whether the end of receiving has begun.
    ends: bool,
}

/// The completion queue, and what was dequeued.
struct Inbox<Cq> {
    /// `None`: the socket is over.
    completions: Option<Cq>,
    batch: Batch,
    /// Datagrams that were not handed over yet.
    arrived: VecDeque<Completion>,
    /// Slices to be posted again.
    returned: Vec<Slice>,
    /// Since when dequeues have brought nothing.
    empty_since: Option<Instant>,
    /// Why the queue is of no more use, until somebody is told.
    failed: Option<io::Error>,
    /// Who is to be told that something can be sent again, once nobody has the lock.
    woken: Vec<Waker>,
    /// Where it receives in place.
    in_place: Option<InPlace>,
}

/// What is received by without slices.
struct InPlace {
    socket: DatagramSocket,
    headers: Headers,
    /// Buffers to offer to the next call: headers cost time for each that is offered.
    offer: usize,
}

/// Buffers offered to a call after one that found little.
const OFFER_AT_LEAST: usize = 4;

/// One of quinn's buffers, if there are so many.
struct Place<'a, 'b>(Option<&'a mut IoSliceMut<'b>>);

impl AsMut<[u8]> for Place<'_, '_> {
    fn as_mut(&mut self) -> &mut [u8] {
        self.0.as_mut().map_or(&mut [], |buffer| &mut buffer[..])
    }
}

/// What is touched by who posts.
struct Sending<Rq> {
    /// `None`: the socket is over.
    requests: Option<Rq>,
    /// Datagrams posted and not committed.
    gathered: usize,
    /// How many gather before they are handed to the kernel.
    enough: usize,
    /// When sends were committed last.
    committed: Instant,
    /// Receives posted and not committed.
    reposted: usize,
    /// Whether some have gathered since the flusher last looked.
    fresh: bool,
    /// Whether the flusher was woken, and has not flushed since.
    scheduled: bool,
    flusher: Option<Waker>,
    /// Why committing failed, until somebody is told.
    failed: Option<io::Error>,
}

impl<Rq: RequestQueue> Sending<Rq> {
    /// Whether sends wait for room in the socket.
    fn waits(&self) -> bool {
        self.requests.as_ref().is_some_and(RequestQueue::sends_wait)
    }
}

/// What a dequeue found.
struct Found {
    /// It looked until nothing was there.
    emptied: bool,
    /// It brought nothing at all.
    nothing: bool,
    /// Sends that are over: their slices are in the pool again.
    over: bool,
}

fn lock<X>(mutex: &Mutex<X>) -> MutexGuard<'_, X> {
    // Nothing under these locks panics half way through a change.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn try_lock<X>(mutex: &Mutex<X>) -> Option<MutexGuard<'_, X>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(e)) => Some(e.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Has the task of this context woken, if it is not already the one that is.
fn remember(kept: &mut Option<Waker>, cx: &Context<'_>) {
    if !kept.as_ref().is_some_and(|kept| kept.will_wake(cx.waker())) {
        *kept = Some(cx.waker().clone());
    }
}

fn is_over() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the socket was dropped")
}

fn to_ecn(mark: EcnCodepoint) -> Ecn {
    match mark {
        EcnCodepoint::Ect0 => Ecn::Ect0,
        EcnCodepoint::Ect1 => Ecn::Ect1,
        EcnCodepoint::Ce => Ecn::Ce,
    }
}

impl<Cq: CompletionQueue> Queues<Cq> {
    /// Of queues that were started, with every slice for receiving posted; or of such and the socket that is received by
    /// in place.
    pub(crate) fn new(
        region: Arc<Region>,
        (completions, mut requests, in_place): (Cq, Cq::Rq, Option<DatagramSocket>),
        reactor: Option<Reactor>,
        orders: Option<Arc<Orders>>,
        settings: &Settings,
        marks: bool,
        [received, sent]: [Arc<Counters>; 2],
    ) -> Result<Self, Error> {
        let receives = if in_place.is_some() { 0 } else { settings.receives };
        for _ in 0..receives {
            let Some(slice) = region.take() else { break };
            if requests.receive(slice).is_err() {
                break; // the provider's own limit
            }
            sent.posts.one();
        }
        requests.commit(&sent).map_err(|e| Error::io("posting receives", e))?;
        let inbox = Inbox {
            completions: Some(completions),
            batch: Batch::new(PER_DEQUEUE as usize),
            arrived: VecDeque::with_capacity(settings.receives as usize),
            returned: Vec::with_capacity(settings.receives as usize),
            empty_since: None,
            failed: None,
            woken: Vec::new(),
            in_place: in_place.map(|socket| InPlace {
                socket,
                headers: Headers::new(BATCH_SIZE),
                offer: OFFER_AT_LEAST,
            }),
        };
        let sending = Sending {
            requests: Some(requests),
            gathered: 0,
            enough: MUCH,
            committed: Instant::now(),
            reposted: 0,
            fresh: false,
            scheduled: false,
            flusher: None,
            failed: None,
        };
        Ok(Self {
            region,
            receiving: Mutex::new(Receiving { inbox, reactor, ends: false }),
            sending: Mutex::new(sending),
            writers: Mutex::default(),
            full: AtomicBool::new(false),
            reader: Mutex::default(),
            ending: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            orders,
            settings: *settings,
            marks,
            received,
            sent,
        })
    }

    fn wake_reader(&self) {
        let reader = lock(&self.reader).clone();
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// Dequeues once, and makes room of what was sent.
    fn dequeue(&self, inbox: &mut Inbox<Cq>) -> io::Result<Found> {
        if let Some(error) = inbox.failed.take() {
            return Err(error);
        }
        let found = inbox.dequeue(&self.received)?;
        if found.over && self.full.load(Ordering::Acquire) {
            inbox.woken.append(&mut self.no_longer_full());
        }
        Ok(found)
    }

    /// Lets the queue go, and tells who waits for it that something can be sent again: not before, as an executor may drop
    /// the last of this socket when it is told.
    fn release(mut receiving: MutexGuard<'_, Receiving<Cq>>) {
        let woken = mem::take(&mut receiving.inbox.woken);
        drop(receiving);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Something can be sent again; gives who is to be told.
    fn no_longer_full(&self) -> Vec<Waker> {
        let mut writers = lock(&self.writers);
        self.full.store(false, Ordering::Release);
        mem::take(&mut *writers)
    }

    /// Tells who waits for it that something can be sent again. Nobody has a lock here.
    fn make_room(&self) {
        self.no_longer_full().into_iter().for_each(Waker::wake);
    }

    /// A slice to send from. `None`: all are under way, and whoever polls for room is woken when that has changed.
    fn slice_to_send(&self) -> io::Result<Option<Slice>> {
        if let Some(slice) = self.region.take() {
            return Ok(Some(slice));
        }
        self.flush_and_reap()?;
        Ok(match self.region.take() {
            Some(slice) => Some(slice),
            None => {
                self.now_full();
                // Something may have come back just before that was known.
                let slice = self.region.take();
                if slice.is_some() {
                    self.make_room();
                }
                slice
            }
        })
    }

    /// Hands what has gathered to the kernel, and takes what is over.
    fn flush_and_reap(&self) -> io::Result<()> {
        self.commit_and_watch(lock(&self.sending))?;
        // A thread that waits in the queue finds by itself that sends are over.
        let receiving = match self.orders {
            Some(_) => try_lock(&self.receiving),
            None => Some(lock(&self.receiving)),
        };
        let Some(mut receiving) = receiving else { return Ok(()) };
        let inbox = &mut receiving.inbox;
        if let Err(error) = self.dequeue(inbox) {
            inbox.failed = Some(error);
        }
        Self::release(receiving);
        // For what was received meanwhile; and it may have found the queue in use.
        self.wake_reader();
        Ok(())
    }

    /// From now on who polls for room has to wait.
    fn now_full(&self) {
        let writers = lock(&self.writers);
        self.full.store(true, Ordering::Release);
        drop(writers);
        // It watches for room in the socket now.
        self.wake_reader();
    }

    fn commit(&self, sending: &mut Sending<Cq::Rq>) -> io::Result<()> {
        let Some(requests) = &mut sending.requests else { return Err(is_over()) };
        if sending.gathered > 0 {
            let now = Instant::now();
            let paused = now.saturating_duration_since(sending.committed) >= GATHERS_FOR;
            sending.enough = if paused { 2 * MUCH } else { MOST_GATHERED.min(2 * sending.enough) };
            sending.committed = now;
        }
        (sending.gathered, sending.reposted) = (0, 0);
        requests.commit(&self.sent)
    }

    /// The same, and has who receives watch for room where the socket had none.
    fn commit_and_watch(&self, mut sending: MutexGuard<'_, Sending<Cq::Rq>>) -> io::Result<()> {
        let committed = self.commit(&mut sending);
        let waits = sending.waits();
        drop(sending);
        if waits {
            self.wake_reader();
        }
        committed
    }

    /// Whether it has to be watched for room in the socket.
    fn watches_for_room(&self) -> bool {
        self.full.load(Ordering::Acquire) || lock(&self.sending).waits()
    }

    /// Copies what has arrived to where quinn wants it, and posts the slices again. Answers how many buffers were filled.
    fn hand_over(
        &self,
        inbox: &mut Inbox<Cq>,
        buffers: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> usize {
        let places = buffers.len().min(metas.len());
        let mut count = 0;
        while count < places
            && let Some(completion) = inbox.arrived.pop_front()
        {
            let arrival = completion.arrival();
            let slice = completion.slice;
            if let Some(arrival) = arrival
                && let Some(meta) = copy(&arrival, &slice, &mut buffers[count], &self.received)
            {
                metas[count] = meta;
                count += 1;
            }
            inbox.returned.push(slice);
        }
        self.post_again(inbox);
        count
    }

    /// Posts slices to receive into. They are committed with what is to be sent, if anything is, unless that leaves the
    /// kernel few.
    fn post_again(&self, inbox: &mut Inbox<Cq>) {
        if inbox.returned.is_empty() {
            return;
        }
        if self.ending.load(Ordering::Acquire) {
            return inbox.returned.clear(); // into the pool
        }
        let mut sending = lock(&self.sending);
        let returned = inbox.returned.drain(..);
        let Sending { requests: Some(requests), reposted, .. } = &mut *sending else { return };
        for slice in returned {
            // One that is refused returns to the pool.
            let posted = requests.receive(slice).is_ok();
            *reposted += usize::from(posted);
        }

        if (sending.gathered == 0 || sending.reposted >= self.settings.receives as usize / 2)
            && let Err(error) = self.commit(&mut sending)
        {
            sending.failed = Some(error);
        }
    }

    /// Ends receiving, as far as that was asked for and has not come to its end.
    fn go_on_ending(&self, receiving: &mut Receiving<Cq>) -> io::Result<()> {
        if !self.ending.load(Ordering::Acquire) || self.ended.load(Ordering::Relaxed) {
            return Ok(());
        }
        let Receiving { inbox, reactor, ends } = receiving;
        if !mem::replace(ends, true) {
            inbox.in_place = None;
            // What comes for others is not to wake anybody here.
            if self.settings.provider == Choice::Batch
                && let Some(watching) = reactor.take()
            {
                *reactor = Some(watching.for_room()?);
            }
        }
        let completions = inbox.completions.as_mut().ok_or_else(is_over)?;
        let has_some = completions.end_receiving(&self.received)? || !inbox.arrived.is_empty();
        self.ended.store(!has_some, Ordering::Release);
        Ok(())
    }

    /// Receives, with the reactor to say when there is something.
    fn poll_with_reactor(
        &self,
        receiving: &mut Receiving<Cq>,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let Receiving { inbox, reactor, .. } = receiving;
        let Some(reactor) = reactor else { return Poll::Ready(Err(is_over())) };
        for _ in 0..LOOKS {
            let count = self.hand_over(inbox, buffers, metas);
            if count > 0 {
                return Poll::Ready(Ok(count));
            }
            if inbox.spins(self.settings.spin) {
                self.dequeue(inbox)?;
                match inbox.arrived.is_empty() {
                    true => break, // other tasks have their turn, then it looks again
                    false => continue,
                }
            }
            let blocked = self.watches_for_room();
            let Poll::Ready(ready) = reactor.poll(cx, blocked)? else { return Poll::Pending };
            let found = self.dequeue(inbox)?;
            if !inbox.arrived.is_empty() {
                // Where an empty dequeue costs a call, none is made to find out what is known.
                if found.emptied && self.settings.provider == Choice::Batch {
                    ready.clear();
                }
                continue;
            }
            if !found.nothing || !found.emptied {
                continue; // it did not look into the socket, or not to its end
            }
            let completions = inbox.completions.as_mut().ok_or_else(is_over)?;
            if !completions.prepare_to_wait(&self.received)? {
                self.received.waits.one();
                ready.clear();
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Receives into quinn's buffers, with the reactor to say when there is something.
    fn poll_in_place(
        &self,
        receiving: &mut Receiving<Cq>,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let Receiving { inbox, reactor, .. } = receiving;
        let Some(reactor) = reactor else { return Poll::Ready(Err(is_over())) };
        for _ in 0..LOOKS {
            let spins = inbox.spins(self.settings.spin);
            let ready = match spins {
                true => None,
                false => {
                    let blocked = self.watches_for_room();
                    match reactor.poll(cx, blocked)? {
                        Poll::Ready(ready) => Some(ready),
                        Poll::Pending => return Poll::Pending,
                    }
                }
            };
            // Sends that are over: it receives nothing, since nothing is posted.
            self.dequeue(inbox)?;
            let Some((count, emptied)) = inbox.receive_in_place(buffers, metas, &self.received)
            else {
                continue;
            };
            match ready.filter(|_| emptied) {
                Some(ready) => {
                    self.received.waits.add(u64::from(count == 0));
                    ready.clear();
                }
                None if spins && count == 0 => break,
                None => {}
            }
            if count > 0 {
                return Poll::Ready(Ok(count));
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Receives, with a thread to say when there is something.
    fn poll_with_thread(
        &self,
        orders: &Orders,
        buffers: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        // The thread waits in the queue, or a sender takes what is over: both wake who reads when they are done.
        let Some(mut receiving) = try_lock(&self.receiving) else { return Poll::Pending };
        if let Err(error) = self.go_on_ending(&mut receiving) {
            receiving.inbox.failed = Some(error);
        }
        let inbox = &mut receiving.inbox;
        let came = loop {
            let count = self.hand_over(inbox, buffers, metas);
            if count > 0 {
                break Ok(count);
            }
            match self.dequeue(inbox) {
                Ok(_) if inbox.arrived.is_empty() => break Ok(0),
                Ok(_) => {}
                Err(error) => break Err(error),
            }
        };
        let came = came.and_then(|count| self.go_on_ending(&mut receiving).map(|()| count));
        Self::release(receiving);
        if matches!(came, Ok(0)) {
            orders.wait();
            return Poll::Pending;
        }
        Poll::Ready(came)
    }
}

/// Copies datagrams into a buffer; answers what quinn is told of them. `None`: there is nothing to be told.
fn copy(
    arrival: &Arrival,
    slice: &Slice,
    buffer: &mut IoSliceMut<'_>,
    counters: &Counters,
) -> Option<RecvMeta> {
    if arrival.truncated {
        counters.truncated.one(); // no packet of QUIC is whole without its end
        return None;
    }
    let stride = arrival.segment.map_or(arrival.len, |segment| segment.get().into());
    // What has no room is lost, as on its way. quinn gives room for all that is joined.
    let len = match arrival.len <= buffer.len() {
        true => arrival.len,
        false => buffer.len() / stride.max(1) * stride,
    };
    if len < arrival.len {
        counters.truncated.one();
        if len == 0 {
            return None;
        }
    }
    buffer[..len].copy_from_slice(&slice.payload()[..len]);
    Some(told(&Arrival { len, ..*arrival }, counters))
}

/// What quinn is told of datagrams.
fn told(arrival: &Arrival, counters: &Counters) -> RecvMeta {
    let Arrival { len, from, local, segment, meta, .. } = *arrival;
    counters.datagrams.add(arrival.datagrams() as u64);
    counters.bytes.add(len as u64);
    RecvMeta {
        addr: from,
        len,
        stride: segment.map_or(len, |segment| segment.get().into()),
        ecn: meta.traffic_class.and_then(EcnCodepoint::from_bits),
        dst_ip: local,
    }
}

impl<Cq: CompletionQueue> Inbox<Cq> {
    fn dequeue(&mut self, counters: &Counters) -> io::Result<Found> {
        let Self { completions, batch, arrived, returned, .. } = self;
        let completions = completions.as_mut().ok_or_else(is_over)?;
        let received = completions.dequeue(batch, counters)?;
        counters.dequeued(received);
        let emptied = batch.room() > 0 && !completions.may_have_left();
        let nothing = batch.is_empty();
        let mut over = false;
        for completion in batch.drain() {
            match completion.outcome {
                Outcome::Received(_) => arrived.push_back(completion),
                Outcome::Sent(span) => {
                    counters.replies.add(span.datagrams() as u64);
                    over = true;
                }
                Outcome::NotSent(unsent) => {
                    counters.replies.add(unsent.sent.into());
                    counters.send_errors.add(unsent.datagrams.into());
                    over = true;
                }
                Outcome::Failed(_) => {
                    counters.receive_errors.one();
                    returned.push(completion.slice);
                }
                Outcome::Returned => returned.push(completion.slice),
            }
        }
        if received > 0 {
            self.empty_since = None;
        }
        Ok(Found { emptied, nothing, over })
    }

    /// Receives into these buffers what is there; says how many were filled, and whether nothing is left. `None`: it
    /// failed, and may be tried again.
    fn receive_in_place(
        &mut self,
        buffers: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
        counters: &Counters,
    ) -> Option<(usize, bool)> {
        let InPlace { socket, headers, offer } = self.in_place.as_mut()?;
        let offered = (*offer).min(buffers.len()).min(metas.len());
        let mut buffers = buffers.iter_mut();
        let mut places: [_; BATCH_SIZE] = array::from_fn(|_| Place(buffers.next()));
        let places = &mut places[..offered];
        let count = match socket.receive_many(headers, places, Mode::Try, counters) {
            Ok(count) => count,
            Err(_) => {
                counters.receive_errors.one();
                return None;
            }
        };
        counters.dequeued(count);
        for (index, meta) in metas[..count].iter_mut().enumerate() {
            let mut arrival = headers.arrival(index);
            if arrival.truncated {
                counters.truncated.one();
                // Of several those that are whole; else nothing, which quinn passes over.
                let stride = arrival.segment.map_or(usize::MAX, |segment| segment.get().into());
                arrival.len = arrival.len / stride * stride;
            }
            *meta = told(&arrival, counters);
        }
        *offer = (2 * count).clamp(OFFER_AT_LEAST, BATCH_SIZE);
        if count > 0 {
            self.empty_since = None;
        }
        Some((count, count < offered))
    }

    /// Whether to look again instead of waiting.
    fn spins(&mut self, spin: Duration) -> bool {
        if spin.is_zero() {
            return false;
        }
        let now = Instant::now();
        now.saturating_duration_since(*self.empty_since.get_or_insert(now)) < spin
    }
}

impl<Cq> Core for Queues<Cq>
where
    Cq: CompletionQueue<Rq: Send> + Send,
{
    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let bytes = transmit.contents.len();
        let Some(mut slice) = self.slice_to_send()? else {
            return Err(io::ErrorKind::WouldBlock.into());
        };
        let Some(room) = slice.payload_mut().get_mut(..bytes) else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{bytes} bytes are more than can be sent at once"),
            ));
        };
        room.copy_from_slice(transmit.contents);
        let several = transmit.segment_size.filter(|size| *size < bytes);
        let segment = several.and_then(|size| u16::try_from(size).ok()).and_then(NonZeroU16::new);
        let span = Span { len: bytes, segment };
        let to = Peer {
            address: transmit.destination,
            local: transmit.src_ip,
            link: None,
            ecn: transmit.ecn.filter(|_| self.marks).map(to_ecn),
        };
        let mut sending = lock(&self.sending);
        if let Some(error) = sending.failed.take() {
            return Err(error);
        }
        let Some(requests) = &mut sending.requests else { return Err(is_over()) };
        match requests.send(slice, span, &to) {
            Ok(()) => {}
            Err((_, Refused::Full)) => {
                let (_, before) = requests.outstanding();
                drop(sending);
                self.flush_and_reap()?;
                self.now_full();
                // Something may have come back just before that was known.
                let is_over = |requests: &Cq::Rq| requests.outstanding().1 < before;
                let has_room = lock(&self.sending).requests.as_ref().is_none_or(is_over);
                if has_room {
                    self.make_room();
                }
                return Err(io::ErrorKind::WouldBlock.into());
            }
            Err((_, refused)) => return Err(refused.into()),
        }
        sending.gathered += span.datagrams();
        sending.fresh = true;
        if self.settings.sends == Sends::AtOnce
            || sending.gathered >= sending.enough
            || sending.committed.elapsed() >= GATHERS_FOR
        {
            return self.commit_and_watch(sending);
        }
        let flusher = match mem::replace(&mut sending.scheduled, true) {
            true => None,
            false => sending.flusher.clone(),
        };
        drop(sending);
        if let Some(flusher) = flusher {
            flusher.wake();
        }
        Ok(())
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        remember(&mut lock(&self.reader), cx);
        match &self.orders {
            Some(orders) => self.poll_with_thread(orders, buffers, metas),
            None => {
                let mut receiving = lock(&self.receiving);
                self.go_on_ending(&mut receiving)?;
                let polled = match receiving.inbox.in_place.is_some() {
                    true => self.poll_in_place(&mut receiving, cx, buffers, metas),
                    false => self.poll_with_reactor(&mut receiving, cx, buffers, metas),
                };
                let ending = self.go_on_ending(&mut receiving);
                Self::release(receiving);
                ending?;
                polled
            }
        }
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.full.load(Ordering::Acquire) {
            return Poll::Ready(Ok(()));
        }
        let mut writers = lock(&self.writers);
        if !self.full.load(Ordering::Acquire) {
            return Poll::Ready(Ok(()));
        }
        if !writers.iter().any(|writer| writer.will_wake(cx.waker())) {
            writers.push(cx.waker().clone());
        }
        Poll::Pending
    }

    fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut sending = lock(&self.sending);
        if sending.requests.is_none() {
            return Poll::Ready(());
        }
        remember(&mut sending.flusher, cx);
        let (fresh, much) = (mem::take(&mut sending.fresh), sending.gathered >= MUCH);
        if fresh && much && sending.scheduled {
            // Who sends much has another turn first, and adds to it.
            drop(sending);
            cx.waker().wake_by_ref();
        } else if mem::take(&mut sending.scheduled) && sending.gathered > 0 {
            if let Err(error) = self.commit(&mut sending) {
                sending.failed = Some(error);
            }
            let waits = sending.waits();
            drop(sending);
            if waits {
                self.wake_reader(); // it watches for room in the socket now
            }
        }
        Poll::Pending
    }

    fn wait(&self) {
        let mut receiving = lock(&self.receiving);
        let Inbox { completions, failed, .. } = &mut receiving.inbox;
        if let Some(completions) = completions {
            self.received.waits.one();
            if let Err(error) = completions.wait(1, None, &self.received) {
                *failed = Some(error);
            }
        }
        drop(receiving);
        self.wake_reader();
    }

    fn end_receiving(&self) {
        self.ending.store(true, Ordering::Release);
        self.wake_reader();
    }

    fn has_ended_receiving(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    fn stop(&self) {
        // What the reactor watches is open until it has forgotten it: the port is free when this returns.
        let (completions, _reactor) = {
            let Receiving { inbox, reactor, .. } = &mut *lock(&self.receiving);
            inbox.arrived.clear();
            inbox.returned.clear();
            inbox.in_place = None;
            (inbox.completions.take(), reactor.take())
        };
        let (requests, flusher) = {
            let mut sending = lock(&self.sending);
            if sending.gathered > 0 {
                // The last word of a connection, say. Whether it is heard nobody asks any more.
                let _ = self.commit(&mut sending);
            }
            (sending.requests.take(), sending.flusher.take())
        };
        if let (Some(completions), Some(requests)) = (completions, requests) {
            // What does not come back is counted in the region.
            let _ = completions.stop(vec![requests], Instant::now() + STOP_TIMEOUT);
        }
        let reader = lock(&self.reader).take();
        let writers = mem::take(&mut *lock(&self.writers));
        writers.into_iter().chain(reader).chain(flusher).for_each(Waker::wake);
    }
}

impl<Cq: CompletionQueue> fmt::Debug for Queues<Cq> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queues").field("settings", &self.settings).finish_non_exhaustive()
    }
}
