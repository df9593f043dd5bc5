//! The queue: what is asked for becomes entries; looking, waiting, stopping.

use super::{
    accepts::Accepts,
    loads::Loads,
    one_ring::{NONE, OneRing, Place, state},
    requests::{self, class},
    slices::Slices,
};
use crate::{
    counters::Counters,
    deadline::LastLook,
    memory::{Posted, Slice},
    readiness::wake_event::WakeEvent,
    ring::{Alarm, Entered, LONG, LOOK_AGAIN, Ring, Token},
    rio::{
        Batch, Refused, Stopped, Woken,
        streams::{Load, Receiving, StreamCompletion, StreamId, StreamNeeds, StreamQueue},
    },
    stream::Stream,
    wake::Waker,
};
use std::{
    io,
    marker::PhantomData,
    sync::Arc,
    time::{Duration, Instant},
};

/// How long to wait for what was cancelled before asking again.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// The longest that completions gather in one wait, which may miss an alarm that goes off just as it begins
/// ([`Alarm`]): what waits longer for others is taken, and the next wait begins.
const GATHERS: Duration = LOOK_AGAIN.saturating_mul(5);

/// A completion as the kernel wrote it.
type Raw = (Token, i32, u32);

/// A queue of streams. It never leaves the thread that started it.
pub struct UringStreamQueue {
    pub(super) rings: Vec<OneRing>,
    /// How many rings there may be.
    pub(super) most_rings: usize,
    /// Connections of one ring.
    pub(super) files: u32,
    pub(super) needs: StreamNeeds,
    pub(super) slices: Slices,
    /// Where slices are posted: those that nobody holds; and of those that are, which follow.
    pub(super) free: Vec<Posted>,
    pub(super) behind: Box<[u32]>,
    pub(super) accepts: Accepts,
    pub(super) loads: Loads,
    pub(super) alarm: Alarm,
    pub(super) alarm_armed: bool,
    /// What further rings signal, to wake whoever waits in the first.
    pub(super) wake_event: WakeEvent,
    pub(super) wake_armed: bool,
    /// Completions that were read and not looked at.
    pub(super) raw: Vec<Raw>,
    /// The ring whose completions are looked at first.
    pub(super) turn: usize,
    /// Connections that are open.
    pub(super) open: u32,
    /// A further ring was wanted, and could not be had.
    pub(super) no_ring: bool,
    /// What a call answered that could not say so itself.
    pub(super) broken: Option<io::Error>,
    /// The kernel holds nothing any more.
    pub(super) ended: bool,
    pub(super) counters: Arc<Counters>,
    pub(super) config: super::UringStreams,
    pub(super) stays: PhantomData<*const ()>,
}

impl UringStreamQueue {
    #[inline]
    pub(super) fn id(&self, at: usize, place: usize) -> StreamId {
        let number = at as u32 * self.files + place as u32;
        StreamId { number, generation: self.rings[at].places[place].generation }
    }

    /// Where a connection is, unless it is over or being closed.
    #[inline]
    fn find(&self, id: StreamId) -> Option<(usize, u32)> {
        let (at, place) = ((id.number / self.files) as usize, id.number % self.files);
        let known = self.rings.get(at)?.places.get(place as usize)?;
        (known.generation == id.generation && known.is(state::OPEN) && !known.is(state::CLOSING))
            .then_some((at, place))
    }

    #[inline]
    pub(super) fn place(&mut self, at: usize, place: u32) -> &mut Place {
        &mut self.rings[at].places[place as usize]
    }

    #[inline]
    pub(super) fn token(&self, class: u8, at: usize, place: u32) -> Token {
        Token::new(class, place, self.rings[at].places[place as usize].generation)
    }

    /// Asks the kernel for something.
    ///
    /// # Safety
    /// What the entry points at stays valid until its last completion.
    #[inline]
    pub(super) unsafe fn push(&mut self, at: usize, entry: io_uring::squeue::Entry) {
        // SAFETY: as the caller says.
        if let Err(e) = unsafe { self.rings[at].push(entry, &self.counters) } {
            self.broken.get_or_insert(e);
        }
    }

    /// Cancels a request. It is over at its own last completion.
    pub(super) fn cancel(&mut self, at: usize, token: Token) {
        // SAFETY: a cancel points at nothing.
        unsafe { self.push(at, requests::cancel(token)) };
    }

    /// Reads completions of one ring, and makes of them what they mean.
    fn look_at(&mut self, at: usize, out: &mut Batch<StreamCompletion>) {
        let mut raw = std::mem::take(&mut self.raw);
        let room = out.room();
        raw.extend(self.rings[at].completions.take().take(room).map(|entry| {
            (Token::from_user_data(entry.user_data()), entry.result(), entry.flags())
        }));
        for (token, result, flags) in raw.drain(..) {
            self.completed(at, token, result, flags, out);
        }
        self.raw = raw;
    }

    fn look(&mut self, out: &mut Batch<StreamCompletion>) {
        let rings = self.rings.len();
        for step in 0..rings {
            self.look_at((self.turn + step) % rings, out);
        }
        self.turn = (self.turn + 1) % rings;
    }

    fn broken(&mut self) -> io::Result<()> {
        self.broken.take().map_or(Ok(()), Err)
    }

    /// Does what is to be done before a wait, and waits in the first ring by `enter`, unless something is there already. It is
    /// told how many entries are to be submitted.
    #[inline]
    fn wait_by(
        &mut self,
        enter: impl FnOnce(&Ring, u32) -> io::Result<Entered>,
    ) -> io::Result<Woken> {
        self.keep_up();
        self.broken()?;
        // What the others have is told by the wake event, from the moment that they have nothing.
        for ring in &mut self.rings[1..] {
            if ring.needs_entry(&self.counters) {
                ring.enter(&self.counters)?;
            }
            if ring.completions.len() > 0 {
                return Ok(Woken::Ready);
            }
        }
        if self.alarm.was_asked() {
            return Ok(Woken::ByWaker);
        }
        let first = &mut self.rings[0];
        if first.completions.len() > 0 {
            return Ok(Woken::Ready);
        }
        let pending = first.submissions.pending();
        self.counters.kernel_entries.one();
        let entered = enter(&first.ring, pending)?;
        if self.alarm.was_asked() {
            return Ok(Woken::ByWaker);
        }
        // What interrupts it leaves nothing to take: what is left of the time is known to whoever waits.
        let over = entered == Entered::TimedOut && first.completions.len() == 0;
        Ok(if over { Woken::TimedOut } else { Woken::Ready })
    }
}

impl StreamQueue for UringStreamQueue {
    fn accept(&mut self) {
        self.accepts.begin();
        self.ask_for_connections();
    }

    fn stop_accepting(&mut self) {
        for (at, token) in self.accepts.stop() {
            self.cancel(at, token);
        }
    }

    fn is_accepting(&self) -> bool {
        !self.accepts.is_idle()
    }

    fn adopt(&mut self, stream: &Stream) -> io::Result<StreamId> {
        let place = self.take_place();
        let (at, place) = place.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOBUFS))?;
        self.counters.kernel_entries.one();
        self.rings[at].put(place, stream)?;
        self.open += 1;
        Ok(self.id(at, place as usize))
    }

    #[inline]
    fn receive(&mut self, connection: StreamId) -> bool {
        let Some((at, place)) = self.find(connection) else { return true };
        if let Receiving::Posted { .. } = self.needs.receiving {
            let Some(slice) = self.free.pop() else { return false };
            let index = slice.index();
            self.behind[index as usize] = NONE;
            let mut last = self.place(at, place).posted;
            if last == NONE {
                self.place(at, place).posted = index;
            } else {
                while self.behind[last as usize] != NONE {
                    last = self.behind[last as usize];
                }
                self.behind[last as usize] = index;
            }
        }
        self.place(at, place).state |= state::WANTED;
        self.arm(at, place);
        true
    }

    fn stop_receiving(&mut self, connection: StreamId) {
        let Some((at, place)) = self.find(connection) else { return };
        if let Receiving::Posted { .. } = self.needs.receiving {
            return;
        }
        let known = self.place(at, place);
        known.state &= !state::WANTED;
        if known.is(state::RECEIVING) && !known.is(state::RECEIVE_CANCELLED) {
            known.state |= state::RECEIVE_CANCELLED;
            let token = self.token(class::RECEIVE, at, place);
            self.cancel(at, token);
        }
    }

    #[inline]
    fn slices(&self, connection: StreamId) -> u32 {
        let at = (connection.number / self.files) as usize;
        let group = self.rings.get(at).and_then(|ring| ring.group.as_ref());
        group.map_or(self.free.len() as u32, super::slices::Group::held)
    }

    #[inline]
    fn is_short(&mut self, connection: StreamId) -> bool {
        let at = (connection.number / self.files) as usize;
        match self.rings.get_mut(at).and_then(|ring| ring.group.as_mut()) {
            Some(group) => group.is_short() && !group.lack(&mut self.slices),
            // Each has its own; only the answers share.
            None => self.free.is_empty(),
        }
    }

    #[inline]
    fn give_back(&mut self, slice: Slice) {
        if !Arc::ptr_eq(slice.region(), &self.slices.region) {
            return; // another queue's: it goes to its own pool
        }
        let home = self.slices.home(&slice);
        match &mut self.rings[home].group {
            // One that the program took from the pool itself, beyond those of the ring, goes back there.
            Some(group) if group.is_whole() => drop(slice),
            Some(group) => group.give(&mut self.slices, slice),
            None => self.free.push(slice.post()),
        }
    }

    #[inline]
    fn send(&mut self, connection: StreamId, load: Load) -> Result<(), (Load, Refused)> {
        let Some((at, place)) = self.find(connection) else { return Err((load, Refused::Closed)) };
        if self.place(at, place).is(state::SENDING | state::ENDING) {
            return Err((load, Refused::Busy));
        }
        let (token, bytes, len) = self.loads.insert(connection, load, &self.slices.region)?;
        let known = self.place(at, place);
        known.state |= state::SENDING;
        known.send = token;
        let is_local = known.is(state::LOCAL); // for which the kernel has none
        let zero_copy =
            !is_local && self.needs.zero_copy_bytes.is_some_and(|least| len as usize >= least);
        let entry = match zero_copy && self.rings[at].places[place as usize].notices < u16::MAX {
            true => requests::send_zero_copy(place, token, bytes, len),
            false => requests::send(place, token, bytes, len),
        };
        // SAFETY: the load stays where it is until the send's last completion.
        unsafe { self.push(at, entry) };
        Ok(())
    }

    fn end_sending(&mut self, connection: StreamId) {
        let Some((at, place)) = self.find(connection) else { return };
        // One at a time: so a close knows what it has to wait for, and none of these meets the connection
        // that has the place next.
        if self.place(at, place).is(state::ENDING) {
            return;
        }
        self.place(at, place).state |= state::ENDING;
        let token = self.token(class::END, at, place);
        // SAFETY: it points at nothing.
        unsafe { self.push(at, requests::end_sending(place, token)) };
    }

    fn ask_waiting(&mut self, connection: StreamId) {
        let Some((at, place)) = self.find(connection) else { return };
        if self.place(at, place).is(state::ASKING) {
            return;
        }
        self.place(at, place).state |= state::ASKING;
        let token = self.token(class::ASK, at, place);
        let entry = match self.place(at, place).is(state::LOCAL) {
            true => requests::in_turn(token),
            false => requests::waiting(place, token),
        };
        // SAFETY: it points at nothing.
        unsafe { self.push(at, entry) };
    }

    fn close(&mut self, connection: StreamId, abrupt: bool) {
        let Some((at, place)) = self.find(connection) else { return };
        let known = self.place(at, place);
        known.state |= state::CLOSING | if abrupt { state::ABRUPT } else { 0 };
        known.state &= !state::WANTED;
        self.go_on_closing(at, place);
    }

    #[inline]
    fn dequeue(&mut self, out: &mut Batch<StreamCompletion>) -> io::Result<usize> {
        let before = out.len();
        self.keep_up();
        if self.no_ring && out.room() > 0 {
            self.no_ring = false;
            let error = io::Error::from_raw_os_error(libc::ENOBUFS);
            out.push(StreamCompletion::AcceptFailed { error });
        }
        self.look(out);
        if out.len() == before && out.room() > 0 {
            let mut entered = false;
            for ring in &mut self.rings {
                if ring.needs_entry(&self.counters) {
                    ring.enter(&self.counters)?;
                    entered = true;
                }
            }
            if entered {
                self.look(out);
            }
        }
        self.broken()?;
        Ok(out.len() - before)
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<Woken> {
        self.wait_by(|ring, pending| ring.enter(pending, 1, timeout, false))
    }

    fn gather(
        &mut self,
        enough: u32,
        at_most: Duration,
        timeout: Option<Duration>,
    ) -> io::Result<Woken> {
        let (at_most, longest) = (at_most.min(GATHERS), timeout.unwrap_or(LONG));
        self.wait_by(|ring, pending| ring.enter_gathering(pending, enough, at_most, longest))
    }

    fn gathers(&self) -> String {
        let ring = &self.rings[0].ring;
        let wait = match ring.has_minimum_wait() {
            true => "io_uring_enter with a minimum wait",
            false => "io_uring_enter with a time-out (this kernel has no minimum wait)",
        };
        let receives = match ring.defers() {
            true => "a connection counts once, however much it has to receive",
            false => "the kernel interrupts the sleep for each message, to receive it",
        };
        format!("{wait}; {receives}")
    }

    fn waker(&self) -> Waker {
        self.alarm.waker()
    }

    fn stop(mut self, by: Instant) -> Stopped {
        // What is counted here is nobody's: the run is over.
        self.counters = Arc::default();
        let before = self.slices.region.in_pool();
        self.stop_accepting();
        for at in 0..self.rings.len() {
            for place in 0..self.rings[at].places.len() {
                if self.rings[at].places[place].is(state::OPEN) {
                    let connection = self.id(at, place);
                    self.close(connection, true);
                }
            }
        }
        let mut batch = Batch::new(256);
        let mut look = LastLook::by(by);
        let over = loop {
            // An error in either leaves the loop to the deadline: then slices are missing, and it shows.
            let found = self.dequeue(&mut batch).unwrap_or(0);
            for completion in batch.drain() {
                if let StreamCompletion::Accepted { connection, .. } = completion {
                    self.close(connection, true);
                }
            }
            if self.open == 0 && self.accepts.is_idle() && self.loads.len() == 0 {
                break true;
            }
            if found > 0 {
                continue;
            }
            let Some(left) = look.wait(false) else { break false };
            let _ = self.wait(Some(ASK_AGAIN.min(left)));
        };
        let missing = if over { self.end() } else { self.in_kernel() };
        Stopped { returned: self.slices.region.in_pool().saturating_sub(before), missing }
    }
}
