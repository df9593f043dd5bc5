//! What the threads of `event-select` and `overlapped-events` share: for each group, how full it is, and the way in.
//!
//! A group that runs empty ends where another is empty too: so as connections go threads and descriptors do, and one
//! group stays for those that come.

use super::engine::ReadyThread;
use crate::{
    Error,
    lifecycle::lock,
    readiness::Events,
    tcp::{Handler, Reason, Worker, mail::Incoming, stop::turn_away},
    wake::Waker,
};
use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

/// A group as the accepting thread sees it.
pub(in crate::tcp) struct Group {
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
    came: Vec<Incoming>,
    /// Its thread has gone.
    closed: bool,
}

impl Group {
    pub(in crate::tcp) fn new(places: u32, waker: Waker) -> Self {
        let (taken, inbox) = (AtomicU32::new(0), Mutex::default());
        Self { places, taken, inbox, waker }
    }

    /// Hands a connection over, or back where there is no room.
    fn hand_over(&self, accepted: Incoming) -> Result<(), Incoming> {
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

    /// What was handed over since the last time.
    pub(in crate::tcp) fn came(&self) -> Vec<Incoming> {
        std::mem::take(&mut lock(&self.inbox).came)
    }

    /// Takes in what was handed over.
    pub(super) fn take_in<H: Handler>(
        &self,
        worker: &mut Worker<H>,
        set: &mut Events,
        thread: &mut ReadyThread<H>,
    ) {
        let came = self.came();
        let count = came.len() as u32;
        let before = thread.table.len() as u32;
        for accepted in came {
            thread.take_in(worker, set, accepted);
        }
        self.left(before + count, thread.table.len());
    }

    /// Of so many connections so many are left.
    pub(in crate::tcp) fn left(&self, before: u32, after: usize) {
        let gone = before - after as u32;
        if gone > 0 {
            self.taken.fetch_sub(gone, Relaxed);
        }
    }

    /// Takes nothing more.
    pub(in crate::tcp) fn close(&self) {
        lock(&self.inbox).closed = true;
    }
}

/// The groups that there are, in the order in which they were started.
#[derive(Default)]
pub(in crate::tcp) struct Groups(Mutex<Vec<Arc<Group>>>);

impl Groups {
    /// Hands a connection to the first one that has room, or back.
    fn hand_over(&self, accepted: Incoming) -> Result<(), Incoming> {
        let mut accepted = accepted;
        for group in lock(&self.0).iter() {
            match group.hand_over(accepted) {
                Ok(()) => return Ok(()),
                Err(back) => accepted = back,
            }
        }
        Err(accepted)
    }

    /// Adds a new one, with its first connection: before it has that it is not there, and cannot end.
    fn add(&self, group: Arc<Group>, accepted: Incoming) -> Result<(), Incoming> {
        let mut groups = lock(&self.0);
        let handed_over = group.hand_over(accepted);
        groups.push(group);
        handed_over
    }

    /// Whether a group is to end: it is empty, and so is another. If so nothing is handed over to it any more.
    pub(in crate::tcp) fn retire(&self, group: &Arc<Group>) -> bool {
        let mut groups = lock(&self.0);
        let Some(place) = groups.iter().position(|other| Arc::ptr_eq(other, group)) else {
            return false;
        };
        let is_empty = |group: &Group| group.taken.load(Relaxed) == 0;
        // Only who has the lock of the groups hands over.
        let another = groups.iter().enumerate().any(|(at, other)| at != place && is_empty(other));
        let ends = is_empty(group) && another;
        if ends {
            group.close();
            groups.remove(place);
        }
        ends
    }
}

/// Hands a connection to the first group that has room, or to a new one.
pub(in crate::tcp) fn deal<H: Handler>(
    worker: &mut Worker<H>,
    groups: &Groups,
    incoming: impl Into<Incoming>,
    start_group: impl FnOnce(&Worker<H>) -> Result<Arc<Group>, Error>,
) {
    let Err(incoming) = groups.hand_over(incoming.into()) else { return };
    if worker.stopping() {
        return turn_away(worker, incoming, Reason::Stopped);
    }
    match start_group(worker) {
        Ok(group) => {
            if let Err(back) = groups.add(group, incoming) {
                turn_away(worker, back, Reason::Stopped); // its thread has seen the end already
            }
        }
        Err(error) => {
            // Whom we connected to has asked for nothing.
            if incoming.given.is_none() {
                worker.refuse(&incoming.accepted.stream, &error.to_string());
            }
            turn_away(worker, incoming, Reason::Failed(io::Error::other(error)));
        }
    }
}

/// Hands over the connections that came by the mailbox of the thread that accepts.
pub(in crate::tcp) fn deal_what_came<H: Handler>(
    worker: &mut Worker<H>,
    groups: &Groups,
    start_group: impl Fn(&Worker<H>) -> Result<Arc<Group>, Error>,
) {
    if worker.mailbox.any() {
        for incoming in worker.mailbox.take(&mut Vec::new()) {
            deal(worker, groups, incoming, &start_group);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        options::Options,
        port::streams::NativeEvents,
        readiness::Events,
        tcp::{EventSelect, OverlappedEvents},
    };

    fn takes_groups_up_to<D: Options>(most: u32) {
        let mut design = D::default();
        design.check().unwrap(); // the original's 64, everywhere
        design.set("group", &most.to_string()).unwrap();
        let error = design.set("group", &(most + 1).to_string()).unwrap_err().to_string();
        assert!(error.contains(&format!(" to {most}")), "{error}");
    }

    #[test]
    fn the_largest_group_is_the_providers() {
        takes_groups_up_to::<EventSelect>(Events::MOST);
        takes_groups_up_to::<OverlappedEvents>(NativeEvents::MOST);
        let known = if cfg!(windows) { (64, 64) } else { (65_536, 4096) };
        assert_eq!((Events::MOST, NativeEvents::MOST), known);
    }
}
