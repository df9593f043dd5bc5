//! The operations of a port of streams: a slot for each that is outstanding, with its memory, and the
//! entries that hand them to the kernel.

use super::watched::{Seen, Watched};
use crate::{
    counters::Counters,
    memory::{Load, Slice},
    port::{
        Key, Refused, Token,
        arming::Arming,
        streams::{
            Closing, Completion, ListenerId, Needs, Outcome, StreamId, Taken,
            connections::{Connections, received},
        },
        uring::state::{Filled, Outstanding, Stage},
    },
    ring::{self, QueueFull, Slots, Submissions},
    socket::native::decode,
    stream::{Accepted, Listener, Stream, native},
};
use io_uring::{opcode, squeue, types};
use std::{
    collections::VecDeque,
    io, mem,
    os::fd::{FromRawFd, OwnedFd, RawFd},
};

/// Classes of tokens, beside those of requests that are no operations (`state.rs`).
const ACCEPT: u8 = 1;
const RECEIVE: u8 = 2;
const SEND: u8 = 5;
const STREAM: u8 = 6;
/// Of a request that cancels all that is outstanding on a stream.
const CANCEL_ALL: ring::Token = ring::Token::bare(7);
/// Of the poll of the set of sockets that are watched.
const TOLD: ring::Token = ring::Token::bare(9);

pub(super) struct Operations {
    listeners: Vec<(Listener, Key)>,
    listeners_most: usize,
    streams: Connections<Associated>,
    accepts: Slots<Accept>,
    /// No more are started.
    accepting_ended: bool,
    receives: Slots<Receive>,
    sends: Slots<Send>,
    /// How many are in the kernel's hands.
    started: u32,
    /// What the kernel does not know yet and may know now, in order. At most as many as have slots.
    queued: VecDeque<ring::Token>,
    /// Streams of which all that is outstanding is to be cancelled.
    closing: Vec<ring::Token>,
    /// Sockets whose receives are kept back while messages gather.
    watched: Watched,
    /// The ring polls their set.
    polls: bool,
    /// Addresses that no accept uses.
    #[expect(clippy::vec_box, reason = "the kernel writes to them, so they stay where they are")]
    names: Vec<Box<Name>>,
}

/// A connection of the port.
struct Associated {
    stream: Stream,
    /// It is one of a Unix socket.
    is_local: bool,
    /// A receive is in the kernel's hands, or in the queue, or kept back.
    receives: bool,
    /// The one that is kept back until the socket has something.
    kept_back: Option<ring::Token>,
    seen: Seen,
    /// The receives that wait for their turn: the first and the last.
    waiting: Option<(ring::Token, ring::Token)>,
}

impl Associated {
    /// Whether a receive whose turn has come is kept back until the socket has something for it. One without a slice `asks`
    /// whether it has.
    #[inline]
    fn keeps_back(&mut self, watched: &mut Watched, its: ring::Token, asks: bool) -> bool {
        watched.arming != Arming::Each
            && watched.keeps_back(&self.stream, its.slot() as u32, &mut self.seen, asks)
    }
}

/// Where the kernel writes the address of who connected.
struct Name {
    storage: libc::sockaddr_storage,
    len: libc::socklen_t,
}

struct Accept {
    listener: u32,
    name: *mut Name,
    stage: Stage,
}

// SAFETY: the name belongs to the accept alone, and to the kernel while it is outstanding.
unsafe impl std::marker::Send for Accept {}

struct Receive {
    /// None for a wait to receive.
    slice: Option<Slice>,
    stream: ring::Token,
    number: u32,
    /// The next of its stream that waits for its turn.
    next: Option<ring::Token>,
    /// Its turn has come.
    turn: bool,
    stage: Stage,
}

struct Send {
    load: Load,
    stream: ring::Token,
    stage: Stage,
}

impl Operations {
    pub(super) fn new(needs: &Needs) -> Self {
        Self {
            listeners: Vec::new(),
            listeners_most: needs.listeners as usize,
            streams: Connections::new(STREAM, needs.streams),
            accepts: Slots::growing(ACCEPT, needs.accepts as usize),
            accepting_ended: false,
            receives: Slots::growing(RECEIVE, needs.receives as usize),
            sends: Slots::growing(SEND, needs.sends as usize),
            started: 0,
            queued: VecDeque::new(),
            closing: Vec::new(),
            watched: Watched::default(),
            polls: false,
            names: Vec::new(),
        }
    }

    pub(super) fn listen(&mut self, listener: Listener, key: Key) -> Option<ListenerId> {
        let number = self.listeners.len();
        (number < self.listeners_most).then(|| self.listeners.push((listener, key)))?;
        Some(ListenerId(number as u32))
    }

    pub(super) fn associate(&mut self, stream: Stream, key: Key) -> Result<StreamId, Refused> {
        let is_local = stream.native().is_local();
        let seen = Seen::default();
        let (receives, kept_back, waiting) = (false, None, None);
        let own = Associated { stream, is_local, receives, kept_back, seen, waiting };
        self.streams.add(key, own)
    }

    pub(super) fn stream(&self, stream: StreamId) -> io::Result<Stream> {
        Ok(self.streams.get(stream)?.own.stream.clone())
    }

    pub(super) fn accept(&mut self, listener: ListenerId) -> Result<Token, Refused> {
        if listener.0 as usize >= self.listeners.len() {
            return Err(Refused::NoSuchSocket);
        }
        if self.accepting_ended {
            return Err(Refused::Closed);
        }
        // SAFETY: zeroes are a value of both.
        let name = self.names.pop().unwrap_or_else(|| Box::new(unsafe { std::mem::zeroed() }));
        let accept =
            Accept { listener: listener.0, name: Box::into_raw(name), stage: Stage::Waiting };
        match self.accepts.insert(accept) {
            Ok(token) => {
                self.queued.push_back(token);
                Ok(Token(token.user_data()))
            }
            Err(accept) => {
                self.forget_name(accept.name);
                Err(Refused::Full)
            }
        }
    }

    /// Starts no more accepts. Returns those that are outstanding, to be cancelled.
    pub(super) fn end_accepting(&mut self) -> Vec<Token> {
        self.accepting_ended = true;
        self.accepts.iter().map(|(token, _)| Token(token.user_data())).collect()
    }

    /// A receive, or a wait to receive where there is no slice.
    #[inline]
    pub(super) fn receive(
        &mut self,
        stream: StreamId,
        slice: Option<Slice>,
    ) -> Result<Token, (Option<Slice>, Refused)> {
        let (stream, its) = match self.streams.open(stream) {
            Ok(open) => open,
            Err(refused) => return Err((slice, refused)),
        };
        if self.receives.len() == self.receives.most() {
            return Err((slice, Refused::Full));
        }
        let (number, turn) = (its.starts_receive(), !its.own.receives);
        let asks = slice.is_none();
        let receive = Receive { slice, stream, number, next: None, turn, stage: Stage::Waiting };
        let token = self.receives.insert(receive).ok().expect("there is room");
        let its = &mut its.own;
        if turn {
            its.receives = true;
            match its.keeps_back(&mut self.watched, stream, asks) {
                true => its.kept_back = Some(token),
                false => self.queued.push_back(token),
            }
        } else if let Some((_, last)) = &mut its.waiting {
            let before = self.receives.get_mut(*last).expect("what waits is not over");
            before.next = Some(token);
            *last = token;
        } else {
            its.waiting = Some((token, token));
        }
        Ok(Token(token.user_data()))
    }

    #[inline]
    pub(super) fn send(&mut self, stream: StreamId, load: Load) -> Result<Token, (Load, Refused)> {
        let (stream, its) = match self.streams.open(stream) {
            Ok(open) => open,
            Err(refused) => return Err((load, refused)),
        };
        let send = Send { load, stream, stage: Stage::Waiting };
        let token = self.sends.insert(send).map_err(|send| (send.load, Refused::Full))?;
        its.starts();
        self.queued.push_back(token);
        Ok(Token(token.user_data()))
    }

    pub(super) fn close(&mut self, stream: StreamId) -> Closing {
        let (closing, cancel) = self.streams.close(stream);
        if let Some(token) = cancel {
            self.closing.push(token);
            // The kernel does not know it: it comes back by itself.
            self.queued.extend(self.streams.of_mut(token).own.kept_back.take());
        }
        closing
    }

    /// Whether what comes for receives ends a wait from now on.
    #[inline]
    pub(super) fn set_arming(&mut self, arming: Arming) {
        let before = mem::replace(&mut self.watched.arming, arming);
        if arming == Arming::Each && before != Arming::Each {
            let all = self.streams.slots.values_mut();
            self.queued.extend(all.filter_map(|its| its.own.kept_back.take()));
        }
    }

    /// Has a receive begin that is kept back, so that the kernel knows what is to be cancelled.
    pub(super) fn begin_kept_back(&mut self, token: ring::Token) {
        let Some(receive) = self.receives.get(token).filter(|receive| receive.turn) else { return };
        let own = &mut self.streams.of_mut(receive.stream).own;
        self.queued.extend(own.kept_back.take_if(|kept_back| *kept_back == token));
    }

    /// The sockets that are watched may have something to tell from now on.
    pub(super) fn watched_are_due(&mut self) {
        self.watched.due = true;
    }

    /// Of the set of the sockets that are watched, where there are any.
    pub(super) fn watched_fd(&self) -> Option<RawFd> {
        self.watched.fd()
    }

    /// Has the receives begin whose sockets have something.
    pub(super) fn ask_watched(&mut self, counters: &Counters) -> io::Result<()> {
        let Self { watched, streams, queued, .. } = self;
        watched.ask(counters, |slot, has_ended| {
            // One that is over meanwhile has none.
            let token = streams.slots.at(slot as usize);
            let Some(its) = token.and_then(|token| streams.slots.get_mut(token)) else { return };
            its.own.seen.has_ended |= has_ended;
            match its.own.kept_back.take() {
                Some(receive) => queued.push_back(receive),
                None => its.own.seen.has_some = true,
            }
        })
    }

    /// Sends outstanding, and of all operations the number of the first one of them. The next one's number is among
    /// as many as were ever outstanding at a time, or the one behind.
    pub(super) fn sends(&self) -> (usize, usize) {
        (self.sends.len(), self.accepts.most() + self.receives.most())
    }

    /// An operation's number among all that may be outstanding: that of its slot.
    #[inline]
    pub(super) fn number(&self, token: ring::Token) -> usize {
        let before = match token.class() {
            ACCEPT => 0,
            RECEIVE => self.accepts.most(),
            _ => self.sends().1,
        };
        before + token.slot()
    }

    fn forget_name(&mut self, name: *mut Name) {
        // SAFETY: it was made a pointer by `accept`, and the kernel is done with it.
        self.names.push(unsafe { Box::from_raw(name) });
    }

    /// The entry of an operation whose turn has come; `None` where its stream is about to be over, and it
    /// is not to begin.
    #[inline]
    fn entry(&self, token: ring::Token) -> Option<squeue::Entry> {
        let expected = "what is queued is not over";
        let fd_of = |stream: ring::Token| {
            let its = self.streams.of(stream);
            (!its.closing).then(|| types::Fd(its.own.stream.native().fd()))
        };
        match token.class() {
            ACCEPT => {
                let Accept { listener, name, .. } = self.accepts.get(token).expect(expected);
                let fd = types::Fd(self.listeners[*listener as usize].0.native().fd());
                // SAFETY: the name is the accept's own, and nobody refers to it.
                let (storage, len) = unsafe {
                    (**name).len = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
                    ((&raw mut (**name).storage).cast(), &raw mut (**name).len)
                };
                Some(opcode::Accept::new(fd, storage, len).flags(libc::SOCK_CLOEXEC).build())
            }
            RECEIVE => {
                let Receive { slice, stream, .. } = self.receives.get(token).expect(expected);
                let fd = fd_of(*stream)?;
                Some(match slice {
                    Some(slice) => {
                        let layout = slice.region().layout();
                        // SAFETY: the payload lies in the slice.
                        let address = unsafe { slice.base().add(layout.headroom).as_ptr() };
                        let len = u32::try_from(layout.payload).unwrap_or(u32::MAX);
                        opcode::Recv::new(fd, address, len).build()
                    }
                    None => {
                        opcode::PollAdd::new(fd, (libc::POLLIN | libc::POLLRDHUP) as u32).build()
                    }
                })
            }
            _ => {
                let Send { load, stream, .. } = self.sends.get(token).expect(expected);
                let (fd, left) = (fd_of(*stream)?, load.left());
                let len = u32::try_from(left.len()).unwrap_or(u32::MAX);
                Some(opcode::Send::new(fd, left.as_ptr(), len).flags(libc::MSG_NOSIGNAL).build())
            }
        }
    }

    /// Hands what waits to `push`: what is to be cancelled first, then everything in the order started,
    /// with the tokens and numbers of operations.
    #[inline]
    pub(super) fn start_by(
        &mut self,
        mut push: impl FnMut(squeue::Entry, Option<(ring::Token, usize)>) -> Result<(), QueueFull>,
    ) -> Result<(), QueueFull> {
        while let Some(&token) = self.closing.last() {
            // One that is over meanwhile has nothing outstanding, and its descriptor may be another's.
            if let Ok(its) = self.streams.get(StreamId(token.user_data())) {
                let fd = types::Fd(its.own.stream.native().fd());
                let all = types::CancelBuilder::fd(fd).all();
                let cancel = opcode::AsyncCancel2::new(all).build();
                push(cancel.user_data(CANCEL_ALL.user_data()), None)?;
            }
            self.closing.pop();
        }
        while let Some(&token) = self.queued.front() {
            let (entry, stage) = match self.entry(token) {
                Some(entry) => (entry, Stage::Started),
                None => (opcode::Nop::new().build(), Stage::Returning),
            };
            push(entry.user_data(token.user_data()), Some((token, self.number(token))))?;
            self.started += u32::from(stage == Stage::Started);
            *self.stage(token).expect("what is queued is not over") = stage;
            self.queued.pop_front();
        }
        Ok(())
    }

    fn finish_accept(&mut self, token: ring::Token, result: i32, out: &mut Taken) {
        let Some(Accept { listener, name, stage }) = self.accepts.remove(token) else { return };
        let outcome = match stage {
            Stage::Started => {
                self.started -= 1;
                // Also what the kernel answers where a socket listens no longer.
                let result = if result == -libc::EINVAL { -libc::ECANCELED } else { result };
                let is_local = self.listeners[listener as usize].0.native().is_local();
                // SAFETY: the kernel completed the accept of this name.
                let accepted = |fd| unsafe { accepted(fd as libc::c_int, &*name, is_local) };
                match settled(result, accepted) {
                    Outcome::Done(Ok(accepted)) => Outcome::Done(accepted),
                    Outcome::Done(Err(e)) | Outcome::Failed(e) => Outcome::Failed(e),
                    Outcome::Returned => Outcome::Returned,
                }
            }
            Stage::Waiting | Stage::Returning => Outcome::Returned,
        };
        self.forget_name(name);
        let key = self.listeners[listener as usize].1;
        let (token, listener) = (Token(token.user_data()), ListenerId(listener));
        out.push(Completion::Accept { token, listener, key, outcome });
    }

    #[inline]
    fn finish_receive(&mut self, token: ring::Token, result: i32, out: &mut Taken) {
        let Some(receive) = self.receives.remove(token) else { return };
        let Receive { slice, stream: its, number, stage, turn, .. } = receive;
        let associated = self.streams.of_mut(its);
        if let Some(slice) = slice.as_ref().filter(|_| stage == Stage::Started && result > 0) {
            let (own, count) = (&mut associated.own, result as usize);
            if own.is_local {
                own.stream.native().delivered(count);
            }
            // What is left behind is not told of again.
            own.seen.has_some |= count == slice.region().layout().payload;
        }
        if turn {
            // The next one's turn.
            let (closing, associated) = (associated.closing, &mut associated.own);
            associated.receives = false;
            while let Some((first, last)) = associated.waiting {
                let next = self.receives.get_mut(first).expect("what waits is not over");
                next.turn = !associated.receives;
                associated.receives = true;
                associated.waiting = next.next.take().map(|second| (second, last));
                let asks = next.slice.is_none();
                match !closing && associated.keeps_back(&mut self.watched, its, asks) {
                    true => associated.kept_back = Some(first),
                    false => self.queued.push_back(first),
                }
                if !closing {
                    break;
                }
            }
        }
        let (key, started) = (associated.key, stage == Stage::Started);
        self.started -= u32::from(started);
        let outcome = if started { settled(result, |count| count) } else { Outcome::Returned };
        out.push(received(Token(token.user_data()), (its, key), slice, number, outcome));
        self.streams.came_back(its, out);
    }

    #[inline]
    fn finish_send(&mut self, token: ring::Token, result: i32, out: &mut Taken) {
        let Some(Send { load, stream: its, stage }) = self.sends.remove(token) else { return };
        let key = self.streams.of(its).key;
        let started = stage == Stage::Started;
        self.started -= u32::from(started);
        let outcome = if started { settled(result, |count| count) } else { Outcome::Returned };
        let (token, stream) = (Token(token.user_data()), StreamId(its.user_data()));
        out.push(Completion::Send { token, stream, key, load, outcome });
        self.streams.came_back(its, out);
    }
}

impl Outstanding for Operations {
    type Completion = Completion;

    #[inline]
    fn start(&mut self, submissions: &mut Submissions) -> Result<(), QueueFull> {
        if self.watched.arming == Arming::Any
            && !self.polls
            && let Some(fd) = self.watched_fd()
        {
            let poll = opcode::PollAdd::new(types::Fd(fd), libc::POLLIN as u32).build();
            // SAFETY: a poll points at nothing, and the set is closed when nothing is submitted any more.
            unsafe { submissions.push(&[poll.user_data(TOLD.user_data())]) }?;
            self.polls = true;
        }
        // SAFETY: what an entry points at stays in its operation's slot until the completion, and is
        // leaked if that never comes; a stream stays open as long as it has operations outstanding.
        self.start_by(|entry, _| unsafe { submissions.push(&[entry]) })
    }

    #[inline]
    fn to_start(&self) -> usize {
        self.closing.len() + self.queued.len()
    }

    #[inline]
    fn finish(&mut self, token: ring::Token, result: i32, out: &mut Taken) {
        match token.class() {
            ACCEPT => self.finish_accept(token, result, out),
            RECEIVE => self.finish_receive(token, result, out),
            SEND => self.finish_send(token, result, out),
            _ if token == TOLD => {
                self.polls = false;
                self.watched_are_due();
            }
            _ => {}
        }
    }

    fn arm(&mut self, arming: Arming) {
        self.set_arming(arming);
        if arming == Arming::None {
            self.watched_are_due();
        }
    }

    /// Also where something is to be started: what of that is done at once is taken before anything gathers.
    fn is_swept_dry(&self) -> Option<bool> {
        let is_dry = !self.watched.due && self.queued.is_empty() && self.closing.is_empty();
        (self.watched.arming != Arming::Each).then_some(is_dry)
    }

    fn sweep(&mut self, submissions: &mut Submissions, counters: &Counters) -> io::Result<Filled> {
        self.ask_watched(counters)?;
        Ok(Filled::of(self.start(submissions)))
    }

    fn ready(&self) -> bool {
        !self.streams.closed.is_empty()
    }

    fn take_ready(&mut self, out: &mut Taken) {
        self.watched.looks();
        self.streams.take_closed(out);
    }

    fn is_overdue(&self) -> bool {
        self.watched.is_overdue()
    }

    fn stage(&mut self, token: ring::Token) -> Option<&mut Stage> {
        match token.class() {
            ACCEPT => self.accepts.get_mut(token).map(|accept| &mut accept.stage),
            RECEIVE => self.receives.get_mut(token).map(|receive| &mut receive.stage),
            SEND => self.sends.get_mut(token).map(|send| &mut send.stage),
            _ => None,
        }
    }

    /// By looking for it, since this is rare.
    fn withdraw(&mut self, token: ring::Token) {
        self.queued.retain(|&queued| queued != token);
        let Some(receive) = self.receives.get_mut(token) else { return };
        if receive.turn {
            let stream = receive.stream;
            self.streams.of_mut(stream).own.kept_back.take_if(|kept_back| *kept_back == token);
            return;
        }
        let (stream, next) = (receive.stream, receive.next.take());
        let its = &mut self.streams.of_mut(stream).own;
        let Some((first, last)) = its.waiting else { return };
        if first == token {
            its.waiting = next.map(|next| (next, last));
            return;
        }
        let mut before = first;
        while let Some(receive) = self.receives.get_mut(before) {
            if receive.next == Some(token) {
                receive.next = next;
                its.waiting = Some((first, if last == token { before } else { last }));
                return;
            }
            before = receive.next.expect("it is in the list");
        }
    }

    fn started(&self) -> u32 {
        self.started
    }

    fn all_started(&self) -> Vec<ring::Token> {
        let is = |stage: Stage| stage == Stage::Started;
        let accepts = self.accepts.iter().filter(|(_, accept)| is(accept.stage)).map(|(t, _)| t);
        let receives = self.receives.iter().filter(|(_, its)| is(its.stage)).map(|(t, _)| t);
        let sends = self.sends.iter().filter(|(_, send)| is(send.stage)).map(|(t, _)| t);
        accepts.chain(receives).chain(sends).collect()
    }

    /// What the kernel holds is leaked. Its streams are closed: the kernel keeps what it needs of them.
    unsafe fn give_up(mut self) -> (u32, u32) {
        let (mut returned, mut missing) = (0, 0);
        for token in self.accepts.iter().map(|(token, _)| token).collect::<Vec<_>>() {
            let Some(accept) = self.accepts.remove(token) else { continue };
            if accept.stage != Stage::Started {
                self.forget_name(accept.name);
            }
        }
        for token in self.receives.iter().map(|(token, _)| token).collect::<Vec<_>>() {
            let Some(receive) = self.receives.remove(token) else { continue };
            match (receive.slice, receive.stage) {
                (None, _) => {}
                (Some(slice), Stage::Started) => {
                    slice.leak();
                    missing += 1;
                }
                (Some(_), _) => returned += 1,
            }
        }
        for token in self.sends.iter().map(|(token, _)| token).collect::<Vec<_>>() {
            let Some(send) = self.sends.remove(token) else { continue };
            if send.stage == Stage::Started {
                send.load.leak();
                missing += 1;
            } else {
                returned += 1;
            }
        }
        (returned, missing)
    }
}

/// A connection that the kernel has just accepted.
///
/// # Safety
/// The descriptor is nobody's, and the kernel has written the name.
unsafe fn accepted(fd: libc::c_int, name: &Name, is_local: bool) -> io::Result<Accepted> {
    let len = (name.len as usize).min(size_of::<libc::sockaddr_storage>());
    // SAFETY: the caller's word.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    if is_local {
        return native::Stream::adopt_unix(fd);
    }
    // SAFETY: the caller's word.
    let peer = unsafe { decode((&raw const name.storage).cast(), len) };
    Ok(Accepted { stream: native::Stream::adopt(fd), peer })
}

/// What a result means.
#[inline]
fn settled<T>(result: i32, done: impl FnOnce(usize) -> T) -> Outcome<T> {
    if result >= 0 { Outcome::Done(done(result as usize)) } else { failed(-result) }
}

#[cold]
fn failed<T>(errno: i32) -> Outcome<T> {
    match errno {
        // Also what the kernel answers for operations of a thread that has exited.
        libc::ECANCELED | libc::EINTR | libc::EAGAIN => Outcome::Returned,
        errno => Outcome::Failed(io::Error::from_raw_os_error(errno)),
    }
}
