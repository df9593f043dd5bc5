//! The queue: what is asked for becomes entries, what completed becomes completions.

use super::{
    accepts::Accepts,
    loads::Loads,
    one_ring::{NONE, OneRing, Place, state},
    requests,
    slices::Slices,
};
use crate::{
    counters::Counters,
    memory::{Posted, Slice},
    readiness::bell::Bell,
    ring::{Alarm, Entered, Token},
    rio::{
        Batch, Stopped, Woken,
        streams::{Load, Receiving, StreamCompletion, StreamId, StreamNeeds, StreamQueue},
    },
    wake::Waker,
};
use io_uring::cqueue;
use std::{
    io,
    marker::PhantomData,
    sync::Arc,
    time::{Duration, Instant},
};

/// Classes of tokens.
pub(super) mod class {
    pub const RECEIVE: u8 = 1;
    pub const SEND: u8 = 2;
    pub const END: u8 = 3;
    pub const ASK: u8 = 4;
    pub const CLOSE: u8 = 5;
    pub const ACCEPT: u8 = 6;
    pub const ALARM: u8 = 7;
    /// Another ring of the queue has something.
    pub const BELL: u8 = 8;
    /// What nobody waits for: cancels, and options of sockets that are closed next.
    pub const OTHER: u8 = 9;
}

/// How long to wait for what was cancelled before asking again.
const ASK_AGAIN: Duration = Duration::from_millis(50);

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
    /// What further rings ring, to wake whoever waits in the first.
    pub(super) bell: Bell,
    pub(super) bell_armed: bool,
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
    fn id(&self, at: usize, place: usize) -> StreamId {
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
    fn place(&mut self, at: usize, place: u32) -> &mut Place {
        &mut self.rings[at].places[place as usize]
    }

    fn token(&self, class: u8, at: usize, place: u32) -> Token {
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
    fn cancel(&mut self, at: usize, token: Token) {
        // SAFETY: a cancel points at nothing.
        unsafe { self.push(at, requests::cancel(token)) };
    }

    /// Arms the receive of a connection that wants one, unless one is under way or must not be.
    fn arm(&mut self, at: usize, place: u32) {
        let known = self.place(at, place);
        // A receive that goes along with the question could be counted in its answer.
        let not_now = state::RECEIVING | state::ASKING | state::CLOSING;
        if known.is(not_now) || !known.is(state::WANTED) {
            return;
        }
        known.state |= state::RECEIVING;
        let posted = known.posted;
        let token = self.token(class::RECEIVE, at, place);
        let entry = match self.needs.receiving {
            Receiving::Shared { .. } => requests::receive_many(place, token),
            Receiving::Posted { .. } => {
                let layout = self.slices.region.layout();
                let (first, _) = self.slices.region.extent();
                let offset = posted as usize * layout.stride + layout.headroom;
                let address = first.as_ptr().wrapping_add(offset);
                requests::receive_one(place, token, address, layout.payload as u32)
            }
        };
        // SAFETY: buffers of a group live until it was taken away; a posted slice is this receive's until
        // its completion.
        unsafe { self.push(at, entry) };
    }

    /// Takes the slice that the kernel received into, where slices are posted, and lets the next follow.
    fn take_posted(&mut self, at: usize, place: u32) -> Option<Slice> {
        let behind = &self.behind;
        let known = &mut self.rings[at].places[place as usize];
        if known.posted == NONE {
            return None;
        }
        let index = known.posted;
        known.posted = behind[index as usize];
        if known.posted == NONE {
            known.state &= !state::WANTED;
        }
        // SAFETY: it was posted from this region for this connection, and its receive is over, or it never
        // began.
        Some(unsafe { Posted::from_index(index).reclaim(&self.slices.region) })
    }

    /// Goes on with a close, as far as what is under way lets it.
    fn go_on_closing(&mut self, at: usize, place: u32) {
        let receive = self.token(class::RECEIVE, at, place);
        let known = self.place(at, place);
        let state = known.state;
        if state & state::CLOSED != 0 {
            return;
        }
        let (receiving, sending) = (state & state::RECEIVING != 0, state & state::SENDING != 0);
        let (cancel_receive, cancel_send) = (
            receiving && state & state::RECEIVE_CANCELLED == 0,
            sending && state & state::SEND_CANCELLED == 0,
        );
        let send = known.send;
        if cancel_receive {
            known.state |= state::RECEIVE_CANCELLED;
        }
        if cancel_send {
            known.state |= state::SEND_CANCELLED;
        }
        if state & state::UNDER_WAY == 0 {
            known.state |= state::CLOSED;
        }
        if cancel_receive {
            self.cancel(at, receive);
        }
        if cancel_send {
            self.cancel(at, send);
        }
        if state & state::UNDER_WAY != 0 {
            return;
        }
        while let Some(slice) = self.take_posted(at, place) {
            self.give_back(slice);
        }
        let token = self.token(class::CLOSE, at, place);
        // SAFETY: the option's value is static; a close points at nothing. Both are done in their order as
        // they are submitted.
        unsafe {
            if state & state::ABRUPT != 0 {
                self.push(at, requests::reset_when_closed(place));
            }
            self.push(at, requests::close(place, token));
        }
    }

    /// A close is over, unless the kernel still reads what was sent.
    fn gone(&mut self, at: usize, place: u32, out: &mut Batch<StreamCompletion>) {
        let connection = self.id(at, place as usize);
        let known = self.place(at, place);
        known.state |= state::GONE;
        if known.notices > 0 {
            return;
        }
        self.rings[at].free_place(place);
        self.open -= 1;
        out.push(StreamCompletion::Closed { connection });
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

    /// What a completion means: at most one of ours.
    #[inline]
    fn completed(
        &mut self,
        at: usize,
        token: Token,
        result: i32,
        flags: u32,
        out: &mut Batch<StreamCompletion>,
    ) {
        let place = token.slot() as u32;
        match token.class() {
            class::RECEIVE => self.received(at, token, result, flags, out),
            class::SEND => self.sent(at, token, result, flags, out),
            class::END => {
                self.place(at, place).state &= !state::ENDING;
                if self.still_open(at, place) {
                    let connection = self.id(at, place as usize);
                    let result = checked(result).map(drop);
                    out.push(StreamCompletion::EndSent { connection, result });
                }
            }
            class::ASK => {
                self.place(at, place).state &= !state::ASKING;
                if self.still_open(at, place) {
                    let connection = self.id(at, place as usize);
                    // A connection that is broken has nothing more to come.
                    let bytes = result.max(0) as usize;
                    out.push(StreamCompletion::Waiting { connection, bytes });
                    self.arm(at, place);
                }
            }
            class::CLOSE => self.gone(at, place, out),
            class::ACCEPT => self.accepted(at, token, result, out),
            class::ALARM => self.alarm_armed = false,
            class::BELL => self.bell_armed &= cqueue::more(flags),
            _ => {}
        }
    }

    /// Whether a connection is not being closed. If it is, something of it has just ended.
    fn still_open(&mut self, at: usize, place: u32) -> bool {
        let closing = self.place(at, place).is(state::CLOSING);
        if closing {
            self.go_on_closing(at, place);
        }
        !closing
    }

    #[inline]
    fn received(
        &mut self,
        at: usize,
        token: Token,
        result: i32,
        flags: u32,
        out: &mut Batch<StreamCompletion>,
    ) {
        let place = token.slot() as u32;
        let shared = matches!(self.needs.receiving, Receiving::Shared { .. });
        // Whatever it says: a buffer that comes with it is ours again.
        let mut slice = None;
        if let Some(id) = cqueue::buffer_select(flags)
            && let Some(group) = &mut self.rings[at].group
        {
            // SAFETY: the kernel names it as that of a receive that is over, or goes on with others.
            slice = unsafe { self.slices.take(id, group) };
            if slice.is_none() {
                self.broken.get_or_insert_with(|| named_twice(id));
            }
        }
        if !shared {
            slice = self.take_posted(at, place);
        }
        let known = self.place(at, place);
        if known.generation != token.generation() {
            debug_assert!(false, "a receive outlived its connection");
            return self.let_go(slice);
        }
        if !cqueue::more(flags) {
            known.state &= !(state::RECEIVING | state::RECEIVE_CANCELLED);
        }
        if known.is(state::CLOSING) {
            self.let_go(slice);
            return self.go_on_closing(at, place);
        }
        let connection = self.id(at, place as usize);
        if result > 0
            && let Some(slice) = slice
        {
            out.push(StreamCompletion::Received { connection, slice, len: result as u32 });
            return self.arm(at, place);
        }
        self.let_go(slice);
        let over = match -result {
            libc::ENOBUFS => {
                self.counters.no_buffer.one();
                StreamCompletion::Starved { connection }
            }
            // It was told to stop, and perhaps to go on since.
            libc::ECANCELED | libc::EINTR | libc::EAGAIN => return self.arm(at, place),
            0 => StreamCompletion::Ended { connection },
            error => {
                let error = io::Error::from_raw_os_error(error);
                StreamCompletion::Failed { connection, error }
            }
        };
        while let Some(slice) = self.take_posted(at, place) {
            self.give_back(slice);
        }
        self.place(at, place).state &= !state::WANTED;
        out.push(over);
    }

    fn let_go(&mut self, slice: Option<Slice>) {
        if let Some(slice) = slice {
            self.give_back(slice);
        }
    }

    #[inline]
    fn sent(
        &mut self,
        at: usize,
        token: Token,
        result: i32,
        flags: u32,
        out: &mut Batch<StreamCompletion>,
    ) {
        let Some((connection, len)) = self.loads.get(token) else {
            debug_assert!(false, "a send ended twice");
            return;
        };
        let place = connection.number % self.files;
        if cqueue::notif(flags) {
            return self.read_to_the_end(at, place, token, out);
        }
        let known = self.place(at, place);
        known.state &= !(state::SENDING | state::SEND_CANCELLED);
        let mut load = None;
        if cqueue::more(flags) {
            known.notices += 1;
        } else {
            // SAFETY: its last completion.
            load = unsafe { self.loads.over(token, &self.slices.region) };
        }
        if !self.still_open(at, place) {
            return self.let_go(load.and_then(slice_of));
        }
        out.push(match checked(result) {
            // What zero copy began it finishes, unless the connection broke on the way.
            Ok(count) if load.is_none() && count < len as usize => {
                let error = io::ErrorKind::ConnectionReset.into();
                StreamCompletion::NotSent { connection, load, error }
            }
            Ok(count) => StreamCompletion::Sent { connection, load, count },
            Err(error) => StreamCompletion::NotSent { connection, load, error },
        });
    }

    /// The kernel no longer reads what zero copy sent.
    fn read_to_the_end(
        &mut self,
        at: usize,
        place: u32,
        token: Token,
        out: &mut Batch<StreamCompletion>,
    ) {
        // SAFETY: the notification is the last completion.
        let load = unsafe { self.loads.over(token, &self.slices.region) };
        let known = self.place(at, place);
        known.notices -= 1;
        let gone = known.is(state::GONE);
        match load {
            Some(load) if !gone => out.push(StreamCompletion::Returned { load }),
            load => {
                self.let_go(load.and_then(slice_of));
                self.gone(at, place, out);
            }
        }
    }

    fn accepted(
        &mut self,
        at: usize,
        token: Token,
        result: i32,
        out: &mut Batch<StreamCompletion>,
    ) {
        let Some((listener, place, peer)) = self.accepts.over(token, result >= 0) else {
            debug_assert!(false, "an accept ended twice");
            return;
        };
        if result >= 0 {
            let known = self.place(at, place);
            known.state = state::OPEN;
            self.open += 1;
            let connection = self.id(at, place as usize);
            match peer {
                Some(peer) => {
                    out.push(StreamCompletion::Accepted { connection, peer, listener });
                }
                None => {
                    // No address of the family it was accepted from: it is of no use.
                    self.close(connection, true);
                    let error = io::ErrorKind::InvalidData.into();
                    out.push(StreamCompletion::AcceptFailed { error });
                }
            }
            return;
        }
        self.rings[at].free_place(place);
        match -result {
            libc::EINVAL => self.accepts.ended(listener),
            // We cancelled it, or it is asked for again.
            libc::ECANCELED | libc::EINTR | libc::EAGAIN => {}
            error => {
                let error = io::Error::from_raw_os_error(error);
                if crate::stream::is_want_of_resources(&error) {
                    self.accepts.pause();
                }
                out.push(StreamCompletion::AcceptFailed { error });
            }
        }
    }

    /// Asks for as many connections as there is room for.
    fn ask_for_connections(&mut self) {
        while let Some(listener) = self.accepts.next() {
            let Some((at, place)) = self.take_place() else { return };
            let (token, name) = self.accepts.insert(listener, at, place);
            let entry = requests::accept(self.accepts.fd(listener), place, name, token);
            // SAFETY: the name is the accept's until its completion, and never moves.
            unsafe { self.push(at, entry) };
        }
    }

    /// A place for a connection, in the first ring that has one, or in one more.
    fn take_place(&mut self) -> Option<(usize, u32)> {
        for (at, ring) in self.rings.iter_mut().enumerate() {
            if let Some(place) = ring.take_place() {
                return Some((at, place));
            }
        }
        if self.rings.len() == self.most_rings {
            return None;
        }
        match super::one_more(self) {
            Ok(()) => {
                let at = self.rings.len() - 1;
                self.rings[at].take_place().map(|place| (at, place))
            }
            Err(_) => {
                // Connections wait: perhaps there is one to be had later, or a place before.
                self.accepts.pause();
                self.no_ring = true;
                None
            }
        }
    }

    /// Does what is to be done before a look or a wait: arms what wakes it, asks for connections, and makes
    /// room for what found none.
    fn keep_up(&mut self) {
        if self.accepts.is_short() {
            self.ask_for_connections();
        }
        if !self.alarm_armed || (self.rings.len() > 1 && !self.bell_armed) {
            self.arm_what_wakes();
        }
        for ring in &mut self.rings {
            if let Err(e) = ring.flush(&self.counters) {
                self.broken.get_or_insert(e);
            }
        }
    }

    #[cold]
    fn arm_what_wakes(&mut self) {
        if !self.alarm_armed {
            self.alarm.reset();
            let entries = self.alarm.entries(Token::bare(class::ALARM));
            // They are linked, so both go or neither. SAFETY: what they point at is static.
            let mut armed = unsafe { self.rings[0].submissions.push(&entries) }.is_ok();
            if !armed {
                match self.rings[0].submissions.submit(&self.counters) {
                    // SAFETY: as above.
                    Ok(()) => armed = unsafe { self.rings[0].submissions.push(&entries) }.is_ok(),
                    Err(e) => drop(self.broken.get_or_insert(e)),
                }
            }
            self.alarm_armed = armed;
        }
        if self.rings.len() > 1 && !self.bell_armed {
            let entry = requests::watch(self.bell.fd(), Token::bare(class::BELL));
            // SAFETY: it points at nothing.
            unsafe { self.push(0, entry) };
            self.bell_armed = true;
        }
    }

    fn broken(&mut self) -> io::Result<()> {
        self.broken.take().map_or(Ok(()), Err)
    }
}

/// What a completion says of a call.
fn checked(result: i32) -> io::Result<usize> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(result as usize) }
}

fn slice_of(load: Load) -> Option<Slice> {
    match load {
        Load::Slice { slice, .. } => Some(slice),
        Load::Bytes { .. } => None,
    }
}

#[cold]
fn named_twice(id: u16) -> io::Error {
    io::Error::other(format!("the kernel gave back buffer {id}, which it does not hold"))
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
    fn is_short(&self, connection: StreamId) -> bool {
        let at = (connection.number / self.files) as usize;
        match self.rings.get(at).and_then(|ring| ring.group.as_ref()) {
            Some(group) => group.held() < group.most() / 4,
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
            Some(group) => group.give(&mut self.slices, slice),
            None => self.free.push(slice.post()),
        }
    }

    #[inline]
    fn send(&mut self, connection: StreamId, load: Load) -> Result<(), Load> {
        let Some((at, place)) = self.find(connection) else { return Err(load) };
        if self.place(at, place).is(state::SENDING | state::ENDING) || load.is_empty() {
            return Err(load);
        }
        let (token, bytes, len) = self.loads.insert(connection, load, &self.slices.region)?;
        let known = self.place(at, place);
        known.state |= state::SENDING;
        known.send = token;
        let zero_copy = self.needs.zero_copy_bytes.is_some_and(|least| len as usize >= least);
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
        self.place(at, place).state |= state::ENDING;
        let token = self.token(class::END, at, place);
        // SAFETY: it points at nothing.
        unsafe { self.push(at, requests::end_sending(place, token)) };
    }

    fn ask_waiting(&mut self, connection: StreamId) {
        let Some((at, place)) = self.find(connection) else { return };
        self.place(at, place).state |= state::ASKING;
        let token = self.token(class::ASK, at, place);
        // SAFETY: it points at nothing.
        unsafe { self.push(at, requests::waiting(place, token)) };
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
        self.keep_up();
        self.broken()?;
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        // What the others have is told by the bell, from the moment that they have nothing.
        for ring in &mut self.rings[1..] {
            if ring.needs_entry(&self.counters) {
                ring.enter(&self.counters)?;
            }
            if ring.completions.len() > 0 {
                return Ok(Woken::Ready);
            }
        }
        loop {
            if self.alarm.was_asked() {
                return Ok(Woken::ByWaker);
            }
            let first = &mut self.rings[0];
            if first.completions.len() > 0 {
                return Ok(Woken::Ready);
            }
            let left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
            let pending = first.submissions.pending();
            self.counters.kernel_entries.one();
            let entered = first.ring.enter(pending, 1, left, false)?;
            if entered == Entered::TimedOut && first.completions.len() == 0 {
                return Ok(Woken::TimedOut);
            }
        }
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
            let now = Instant::now();
            if now >= by {
                break false;
            }
            if found == 0 {
                let _ = self.wait(Some(ASK_AGAIN.min(by - now)));
            }
        };
        let missing = if over { self.end() } else { self.in_kernel() };
        Stopped { returned: self.slices.region.in_pool().saturating_sub(before), missing }
    }
}

impl UringStreamQueue {
    /// Takes back what no request uses any more. Answers how many slices could not be.
    fn end(&mut self) -> u32 {
        for slice in self.free.drain(..) {
            // SAFETY: nobody holds it: it was put there as its receive was over.
            drop(unsafe { slice.reclaim(&self.slices.region) });
        }
        let mut ended = true;
        for ring in &mut self.rings {
            if let Some(group) = &mut ring.group {
                if ring.ring.take_buffers_away(requests::GROUP).is_ok() {
                    // SAFETY: the kernel gave it up, and no request is left.
                    unsafe { group.take_all(&mut self.slices) };
                } else {
                    ended = false;
                }
            }
        }
        self.ended = ended;
        self.in_kernel()
    }

    /// Slices that the kernel holds.
    pub(super) fn in_kernel(&self) -> u32 {
        let given: u32 = self
            .rings
            .iter()
            .filter_map(|ring| ring.group.as_ref())
            .map(|group| group.held())
            .sum();
        let mut posted = 0;
        for place in self.rings.iter().flat_map(|ring| &ring.places) {
            let mut next = place.posted;
            while next != NONE {
                posted += 1;
                next = self.behind[next as usize];
            }
        }
        given + posted + self.loads.slices()
    }
}

/// Closing the rings cancels what is under way, but only after this: so everything that the kernel may read
/// or write until then stays where it is for ever.
impl Drop for UringStreamQueue {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        for slice in self.free.drain(..) {
            // SAFETY: nobody holds it.
            drop(unsafe { slice.reclaim(&self.slices.region) });
        }
        self.slices.region.count_leaked(self.in_kernel());
        for group in self.rings.iter_mut().filter_map(|ring| ring.group.as_mut()) {
            group.leak();
        }
        self.loads.leak();
        self.accepts.leak();
    }
}
