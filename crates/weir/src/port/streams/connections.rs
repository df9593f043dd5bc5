//! The connections of a port with what is outstanding on each, and how one becomes over: alike with every provider.

use super::{Closing, Completion, Outcome, StreamId, Taken};
use crate::{
    memory::Slice,
    port::{Key, Refused, Token},
    token::{self, Slots},
};
use std::{collections::VecDeque, io, mem};

/// The connections of a port, each with what its provider keeps of it.
pub(in crate::port) struct Connections<S> {
    pub slots: Slots<Associated<S>>,
    /// Those that are over, to be reported.
    pub closed: VecDeque<(StreamId, Key)>,
}

/// A connection of a port.
pub(in crate::port) struct Associated<S> {
    pub key: Key,
    pub own: S,
    /// Operations that have not come back.
    outstanding: u32,
    /// The number of the next receive.
    number: u32,
    /// Nothing more is started on it.
    pub closing: bool,
}

impl<S> Associated<S> {
    /// An operation is started on it, which comes back.
    #[inline]
    pub fn starts(&mut self) {
        self.outstanding += 1;
    }

    /// The same for a receive, which has this number.
    #[inline]
    pub fn starts_receive(&mut self) -> u32 {
        self.starts();
        let next = self.number.wrapping_add(1);
        mem::replace(&mut self.number, next)
    }
}

impl<S> Connections<S> {
    /// At most so many, whose tokens are of this class.
    pub fn new(class: u8, most: u32) -> Self {
        Self { slots: Slots::growing(class, most as usize), closed: VecDeque::new() }
    }

    pub fn add(&mut self, key: Key, own: S) -> Result<StreamId, Refused> {
        let associated = Associated { key, own, outstanding: 0, number: 0, closing: false };
        let token = self.slots.insert(associated).map_err(|_| Refused::Full)?;
        Ok(StreamId(token.user_data()))
    }

    /// One that is not over.
    pub fn get(&self, id: StreamId) -> io::Result<&Associated<S>> {
        let its = self.slots.get(token::Token::from_user_data(id.0));
        its.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// One that is not over, nor about to be: for whoever starts something on it.
    #[inline]
    pub fn open(&mut self, id: StreamId) -> Result<(token::Token, &mut Associated<S>), Refused> {
        let token = token::Token::from_user_data(id.0);
        let its = self.slots.get_mut(token).filter(|its| !its.closing);
        Ok((token, its.ok_or(Refused::NoSuchSocket)?))
    }

    /// One that has an operation outstanding.
    #[inline]
    pub fn of(&self, token: token::Token) -> &Associated<S> {
        self.slots.get(token).expect("it has operations outstanding")
    }

    #[inline]
    pub fn of_mut(&mut self, token: token::Token) -> &mut Associated<S> {
        self.slots.get_mut(token).expect("it has operations outstanding")
    }

    /// Has nothing more be started on a connection. With it, where something is outstanding and this was not asked for
    /// before, the one whose operations are to be cancelled.
    pub fn close(&mut self, id: StreamId) -> (Closing, Option<token::Token>) {
        let token = token::Token::from_user_data(id.0);
        match self.slots.get_mut(token) {
            None => (Closing::Gone, None),
            Some(its) if its.outstanding == 0 => {
                self.slots.remove(token);
                (Closing::Over, None)
            }
            Some(its) => {
                let first = !mem::replace(&mut its.closing, true);
                (Closing::Follows, first.then_some(token))
            }
        }
    }

    /// An operation of this connection has come back: it may be over. True: that is to be reported, and found no room.
    #[inline]
    pub fn came_back(&mut self, token: token::Token, out: &mut Taken) -> bool {
        let its = self.of_mut(token);
        its.outstanding -= 1;
        if !its.closing || its.outstanding > 0 {
            return false;
        }
        let (stream, key) = (StreamId(token.user_data()), its.key);
        self.slots.remove(token);
        let room = out.room() > 0;
        match room {
            true => out.push(Completion::Closed { stream, key }),
            false => self.closed.push_back((stream, key)),
        }
        !room
    }

    /// One that is over and was not reported.
    pub fn next_closed(&mut self) -> Option<Completion> {
        let (stream, key) = self.closed.pop_front()?;
        Some(Completion::Closed { stream, key })
    }

    /// Reports those that are over, as many as fit.
    pub fn take_closed(&mut self, out: &mut Taken) {
        while out.room() > 0
            && let Some(closed) = self.next_closed()
        {
            out.push(closed);
        }
    }
}

/// The completion of a receive, or of a wait to receive, which has no slice.
#[inline]
pub(in crate::port) fn received(
    token: Token,
    (stream, key): (token::Token, Key),
    slice: Option<Slice>,
    number: u32,
    outcome: Outcome<usize>,
) -> Completion {
    let stream = StreamId(stream.user_data());
    match slice {
        Some(slice) => Completion::Receive { token, stream, key, slice, number, outcome },
        None => {
            let outcome = match outcome {
                Outcome::Done(_) => Outcome::Done(()),
                Outcome::Failed(e) => Outcome::Failed(e),
                Outcome::Returned => Outcome::Returned,
            };
            Completion::Wait { token, stream, key, outcome }
        }
    }
}
