//! The connections of one thread, by slot.

use crate::tcp::{Connection, Wants};
use crate::{readiness::Interest, stream::Stream, timer::Tick};

/// A connection that is open, and what its thread knows of it.
#[derive(Debug)]
pub(super) struct ReadyConnection<H> {
    pub(super) connection: Connection<H>,
    pub(super) stream: Stream,
    /// What readiness is asked for.
    pub(super) interest: Interest,
    /// When its timer fires; [`Tick::MAX`] where it has none.
    pub(super) armed: Tick,
    /// The bound left something of it, and its turn comes.
    pub(super) again: bool,
    /// It is not in the set, though it is open: nothing is asked for, and a wait would report all the same that its peer has
    /// gone.
    pub(super) set_aside: bool,
}

impl Wants {
    pub(super) fn interest(self) -> Interest {
        Interest { receive: self.receive, send: self.send }
    }
}

/// Connections by slot: small numbers, used again, the last one that was given back first.
#[derive(Debug)]
pub(super) struct Table<H> {
    slots: Vec<Option<ReadyConnection<H>>>,
    free: Vec<u32>,
}

impl<H> Table<H> {
    pub(super) fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }

    /// Connections in it.
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// One more than the highest slot in use, or more.
    pub(super) fn slots(&self) -> u32 {
        self.slots.len() as u32
    }

    pub(super) fn insert(&mut self, open: ReadyConnection<H>) -> u32 {
        match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = Some(open);
                slot
            }
            None => {
                self.slots.push(Some(open));
                self.slots() - 1
            }
        }
    }

    /// What is in a slot. A hint that came before its connection was closed may name an empty one, or
    /// another connection's, for which it is a hint as good as any.
    #[inline]
    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut ReadyConnection<H>> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    pub(super) fn remove(&mut self, slot: u32) -> Option<ReadyConnection<H>> {
        let open = self.slots.get_mut(slot as usize)?.take()?;
        self.free.push(slot);
        Some(open)
    }
}
