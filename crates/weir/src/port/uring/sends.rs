//! Sends of a port of datagrams: a slot for each that is outstanding, with its slice and its header.
//!
//! Those that wait together, follow each other and can leave as one are one entry of the ring, which the kernel cuts
//! (UDP_SEGMENT): the first of them has the header, and each names the next. Every one has a completion of its own
//! all the same. A take may have room for fewer than ended with one entry: the rest is settled, and comes with the next.

use super::{
    headers::{Headers, Lists, vector},
    socket::{Associated, is_interrupted, operation},
    state::Stage,
};
use crate::{
    counters::Counters,
    memory::Slice,
    port::{Outcome, Refused, SocketId, Taken, Token},
    ring::{self, Slots},
    rio::{Peer, Span},
    socket::{
        Unsent,
        native::{Joined, MOST_JOINED, of_unix_peer},
    },
};
use io_uring::squeue;
use std::{collections::VecDeque, io};

/// Class of tokens.
pub(super) const SEND: u8 = 2;

/// Messages of several slices that are under way, at most. Beyond that each slice is a message.
const MOST_LISTS: usize = 64;

pub(super) struct Sends {
    slots: Slots<Send>,
    headers: Headers,
    /// The slices of messages that have several.
    lists: Lists,
    /// Those that the kernel does not know yet, in order.
    queued: VecDeque<ring::Token>,
    /// What became of those that ended and were not taken yet, in order. They have their slots until then.
    settled: VecDeque<(ring::Token, Result<(), Option<Unsent>>)>,
}

struct Send {
    slice: Slice,
    socket: u32,
    span: Span,
    to: Peer,
    stage: Stage,
    /// The one behind it in the same message.
    next: Option<ring::Token>,
    /// Of the first of a message of several: the list of them.
    list: Option<usize>,
    /// It was to be cancelled when it was in the kernel's hands, which knows the first of a message alone.
    cancelled: bool,
}

/// That the kernel did not take a message.
struct Refusal {
    errno: i32,
    /// It is an error that a peer reported, of another message.
    of_peer: bool,
    /// The message was several sends.
    several: bool,
}

impl Refusal {
    /// What it means for one of the message's sends, which is made by itself where that may go better.
    #[cold]
    fn became(&self, is_first: bool, send: &Send, by: &Associated) -> Result<(), Option<Unsent>> {
        // The kernel was told of the first, or of all where the port is stopped; those that nobody cancelled are sent.
        if (is_first || send.cancelled) && is_interrupted(self.errno) {
            return Err(None);
        }
        let counters = Counters::default(); // whoever takes cannot be told of these entries
        let bytes = &send.slice.payload()[..send.span.len];
        let sent = match send.span.segment {
            Some(segment) => by.socket.send_each(bytes, segment, &send.to, &counters),
            None if self.several || self.of_peer => {
                by.socket.send(bytes, &send.to, &counters).map_err(Unsent::from)
            }
            None => Err(io::Error::from_raw_os_error(self.errno).into()),
        };
        sent.map_err(Some)
    }
}

impl Sends {
    pub(super) fn new(most: usize) -> Self {
        Self {
            slots: Slots::new(SEND, most),
            headers: Headers::new(most),
            lists: Lists::new((most / 2).min(MOST_LISTS)), // a list is of two at least
            queued: VecDeque::with_capacity(most),
            settled: VecDeque::with_capacity(most),
        }
    }

    /// Puts a send at the end of the queue. Gives the slice back when as many as may are outstanding.
    #[inline]
    pub(super) fn add(
        &mut self,
        socket: SocketId,
        slice: Slice,
        span: Span,
        to: &Peer,
    ) -> Result<Token, (Slice, Refused)> {
        let stage = Stage::Waiting;
        let (next, list, cancelled) = (None, None, false);
        let send = Send { slice, socket: socket.0, span, to: *to, stage, next, list, cancelled };
        let token = self.slots.insert(send).map_err(|send| (send.slice, Refused::Full))?;
        self.queued.push_back(token);
        Ok(Token(token.user_data()))
    }

    /// How many were not taken.
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// How many wait for the kernel.
    #[inline]
    pub(super) fn waiting(&self) -> usize {
        self.queued.len()
    }

    /// Hands all that wait to `push`, which says whether the kernel will have an entry, and counts those it has.
    #[inline]
    pub(super) fn start<E>(
        &mut self,
        sockets: &[Associated],
        started: &mut u32,
        mut push: impl FnMut(squeue::Entry) -> Result<(), E>,
    ) -> Result<(), E> {
        while let Some(&token) = self.queued.front() {
            let send = self.slots.get(token).expect("what waits is not over");
            let by = &sockets[send.socket as usize];
            let joined = self.joined(send, by);
            let header = if joined.spans() == 1 {
                let one = vector(&send.slice, send.span.len);
                self.headers.send(token.slot(), one, send.span.segment, &send.to)
            } else {
                let parts = self.queued.iter().take(joined.spans()).map(|&token| {
                    let send = self.slots.get(token).expect("what waits is not over");
                    vector(&send.slice, send.span.len)
                });
                let list = self.lists.fill(parts);
                self.headers.send_list(token.slot(), list, joined.segment(), &send.to)
            };
            push(by.send_entry(header).user_data(token.user_data()))?;
            self.started(joined.spans());
            *started += joined.spans() as u32;
        }
        Ok(())
    }

    /// The first that waits and those behind it that can leave as one with it.
    #[inline]
    fn joined(&self, first: &Send, by: &Associated) -> Joined {
        let mut joined = Joined::begin(first.span, first.to);
        if self.queued.len() > 1 && self.lists.has_one() {
            let longest = by.socket.native().longest_joined();
            let others = self.queued.iter().skip(1).take(MOST_JOINED - 1);
            let others =
                others.map(|&token| self.slots.get(token).expect("what waits is not over"));
            let takes = |next: &&Send| {
                next.socket == first.socket && joined.take(next.span, &next.to, longest)
            };
            others.take_while(takes).count();
        }
        joined
    }

    /// So many of those that waited are one message in the kernel's hands.
    #[inline]
    fn started(&mut self, spans: usize) {
        // From the last to the first, since each names the one behind it.
        let mut next = None;
        for token in self.queued.drain(..spans).rev() {
            let send = self.slots.get_mut(token).expect("what waits is not over");
            (send.stage, send.next) = (Stage::Started, next);
            next = Some(token);
        }
        if let (true, Some(first)) = (spans > 1, next) {
            let first = self.slots.get_mut(first).expect("it was started just now");
            first.list = Some(self.lists.take());
        }
    }

    /// Ends the sends of an entry. Returns how many were in the kernel's hands.
    pub(super) fn finish(
        &mut self,
        token: ring::Token,
        result: i32,
        sockets: &[Associated],
    ) -> u32 {
        let Some(send) = self.slots.get_mut(token) else { return 0 };
        if send.stage != Stage::Started {
            self.settled.push_back((token, Err(None)));
            return 0;
        }
        if let Some(list) = send.list.take() {
            self.lists.give_back(list);
        }
        let refusal = (result < 0).then(|| self.refused(token, result, sockets));
        let mut ended = 0;
        let mut next = Some(token);
        while let Some(token) = next {
            let Some(send) = self.slots.get_mut(token) else { break };
            next = send.next.take();
            send.stage = Stage::Returning;
            let became = match &refusal {
                None => Ok(()),
                Some(refusal) => refusal.became(ended == 0, send, &sockets[send.socket as usize]),
            };
            self.settled.push_back((token, became));
            ended += 1;
        }
        ended
    }

    /// What the kernel's refusal of a message means for each send of it.
    #[cold]
    fn refused(&self, token: ring::Token, result: i32, sockets: &[Associated]) -> Refusal {
        let first = self.slots.get(token).expect("it was looked up just now");
        let native = sockets[first.socket as usize].socket.native();
        let errno = if native.is_local() { of_unix_peer(-result) } else { -result };
        let (of_peer, several) = (native.note_error(errno), first.next.is_some());
        if several {
            let segment = Joined::begin(first.span, first.to).datagram();
            native.not_joined(&io::Error::from_raw_os_error(-result), segment);
        }
        Refusal { errno, of_peer, several }
    }

    /// Whether some ended that were not taken.
    #[inline]
    pub(super) fn has_settled(&self) -> bool {
        !self.settled.is_empty()
    }

    /// Moves those into `out`, as many as fit.
    #[inline]
    pub(super) fn take_settled(&mut self, sockets: &[Associated], out: &mut Taken) {
        while out.room() > 0 {
            let Some((token, became)) = self.settled.pop_front() else { break };
            let Some(Send { slice, socket, span, .. }) = self.slots.remove(token) else { continue };
            let outcome = match became {
                Ok(()) => Outcome::Sent(span),
                Err(Some(unsent)) => Outcome::NotSent(unsent),
                Err(None) => Outcome::Returned,
            };
            out.push(operation(token, socket, sockets[socket as usize].key, slice, outcome));
        }
    }

    /// Takes one that waits from the queue.
    pub(super) fn withdraw(&mut self, token: ring::Token) {
        self.queued.retain(|&queued| queued != token);
    }

    /// One in the kernel's hands is to be cancelled.
    pub(super) fn is_cancelled(&mut self, token: ring::Token) {
        if let Some(send) = self.slots.get_mut(token) {
            send.cancelled = true;
        }
    }

    pub(super) fn stage(&mut self, token: ring::Token) -> Option<&mut Stage> {
        self.slots.get_mut(token).map(|send| &mut send.stage)
    }

    /// Those in the kernel's hands.
    pub(super) fn all_started(&self) -> impl Iterator<Item = ring::Token> {
        let started = |(_, send): &(ring::Token, &Send)| send.stage == Stage::Started;
        self.slots.iter().filter(started).map(|(token, _)| token)
    }

    /// Every slice, and where it is.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = (Slice, Stage)> {
        let tokens: Vec<_> = self.slots.iter().map(|(token, _)| token).collect();
        let all = tokens.into_iter().filter_map(|token| self.slots.remove(token));
        all.map(|send| (send.slice, send.stage))
    }

    /// Gives the memory of headers back.
    ///
    /// # Safety
    /// No send is in the kernel's hands, and none will be.
    pub(super) unsafe fn free(self) {
        // SAFETY: the caller vouches for the kernel.
        unsafe {
            self.headers.free();
            self.lists.free();
        }
    }
}
