//! What the threads of `event-select` share: for each group, how full it is, and the way in.

use super::{Handler, Worker, ready_frame::Room};
use crate::{crew::lock, readiness::Events, stream::Accepted, wake::Waker};
use std::sync::{
    Mutex,
    atomic::{AtomicU32, Ordering::Relaxed},
};

/// A group as the accepting thread sees it.
pub(super) struct Group {
    /// Connections that it may have.
    places: u32,
    /// Those that it has, or that wait in its inbox. Only the accepting thread adds.
    taken: AtomicU32,
    inbox: Mutex<Inbox>,
    /// The group's first handle.
    waker: Waker,
}

/// Connections on their way to a group: no more than it has places.
#[derive(Default)]
struct Inbox {
    came: Vec<Accepted>,
    /// Its thread has gone.
    closed: bool,
}

impl Group {
    pub(super) fn new(set: &Events) -> Self {
        let (taken, inbox) = (AtomicU32::new(0), Mutex::default());
        Self { places: set.room(), taken, inbox, waker: set.waker() }
    }

    /// Hands a connection over, or back where there is no room.
    pub(super) fn hand_over(&self, accepted: Accepted) -> Result<(), Accepted> {
        if self.taken.load(Relaxed) >= self.places {
            return Err(accepted);
        }
        let mut inbox = lock(&self.inbox);
        if inbox.closed {
            return Err(accepted);
        }
        self.taken.fetch_add(1, Relaxed);
        inbox.came.push(accepted);
        drop(inbox);
        self.waker.wake();
        Ok(())
    }

    /// Takes in what was handed over.
    pub(super) fn take_in<H: Handler>(
        &self,
        worker: &mut Worker<H>,
        set: &mut Events,
        room: &mut Room<H>,
    ) {
        let came = std::mem::take(&mut lock(&self.inbox).came);
        let count = came.len() as u32;
        let before = room.table.len() as u32;
        for accepted in came {
            room.take_in(worker, set, accepted);
        }
        self.left(before + count, room.table.len());
    }

    /// Of so many connections so many are left.
    pub(super) fn left(&self, before: u32, after: usize) {
        let gone = before - after as u32;
        if gone > 0 {
            self.taken.fetch_sub(gone, Relaxed);
        }
    }

    /// Takes nothing more.
    pub(super) fn close(&self) {
        lock(&self.inbox).closed = true;
    }
}
