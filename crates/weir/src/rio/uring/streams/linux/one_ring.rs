//! One ring of a queue: its two halves, its table of files, and what it knows of each connection.

use super::slices::Group;
use crate::{
    counters::Counters,
    ring::{Completions, Ring, Submissions, Token},
    stream::Stream,
};
use io_uring::squeue;
use std::{
    collections::{HashMap, VecDeque},
    io, slice,
    sync::Arc,
};

/// What is under way on a connection, and what is wanted. Bits.
pub(super) mod state {
    /// The place is in use.
    pub const OPEN: u16 = 1 << 0;
    /// It is to receive.
    pub const WANTED: u16 = 1 << 1;
    pub const RECEIVING: u16 = 1 << 2;
    /// The receive is being cancelled.
    pub const RECEIVE_CANCELLED: u16 = 1 << 3;
    pub const SENDING: u16 = 1 << 4;
    pub const SEND_CANCELLED: u16 = 1 << 5;
    pub const ENDING: u16 = 1 << 6;
    /// It was asked how many bytes wait.
    pub const ASKING: u16 = 1 << 7;
    /// It is to be closed.
    pub const CLOSING: u16 = 1 << 8;
    /// By a reset.
    pub const ABRUPT: u16 = 1 << 9;
    /// The close is under way.
    pub const CLOSED: u16 = 1 << 10;
    /// The close is over; what zero copy left is not.
    pub const GONE: u16 = 1 << 11;
    /// Of the receive under way so far only the question whether something came.
    pub const POLLING: u16 = 1 << 12;
    /// It is one of a Unix socket, of which the stream is kept beside.
    pub const LOCAL: u16 = 1 << 13;
    /// What must be over before it is closed.
    pub const UNDER_WAY: u16 = RECEIVING | SENDING | ENDING | ASKING;
}

/// No slice.
pub(super) const NONE: u32 = u32::MAX;

/// A place in the table of files.
#[derive(Debug)]
pub(super) struct Place {
    pub generation: u32,
    pub state: u16,
    /// Sends of which the kernel still reads the bytes.
    pub notices: u16,
    /// The send under way.
    pub send: Token,
    /// The slice that the kernel receives into, where slices are posted; those behind it follow as they are
    /// linked.
    pub posted: u32,
}

impl Place {
    #[inline]
    pub fn is(&self, state: u16) -> bool {
        self.state & state != 0
    }
}

/// One ring.
pub(super) struct OneRing {
    pub ring: Arc<Ring>,
    pub submissions: Submissions,
    pub completions: Completions,
    /// What the kernel has not taken and the submission queue has no room for: at most a few entries for
    /// each connection, in order.
    backlog: VecDeque<squeue::Entry>,
    pub places: Vec<Place>,
    free: Vec<u32>,
    files: u32,
    pub group: Option<Group>,
    /// Connections of Unix sockets, by place: the kernel does not tell of a socket in a table what waits in one of these.
    pub local: HashMap<u32, Stream>,
    overflowing: bool,
}

impl OneRing {
    pub fn new(
        (ring, submissions, completions): (Arc<Ring>, Submissions, Completions),
        files: u32,
        group: Option<Group>,
    ) -> Self {
        let (backlog, places, free) = (VecDeque::new(), Vec::new(), Vec::new());
        let (local, overflowing) = (HashMap::new(), false);
        Self {
            ring,
            submissions,
            completions,
            backlog,
            places,
            free,
            files,
            group,
            local,
            overflowing,
        }
    }

    /// A place of the table that is free, the last that became so first.
    pub fn take_place(&mut self) -> Option<u32> {
        if let Some(place) = self.free.pop() {
            return Some(place);
        }
        if self.places.len() == self.files as usize {
            return None;
        }
        let (generation, state, notices) = (0, 0, 0);
        let (send, posted) = (Token::bare(0), NONE);
        self.places.push(Place { generation, state, notices, send, posted });
        Some(self.places.len() as u32 - 1)
    }

    /// Puts a connection that was made by other means into a place, which is open from now on.
    ///
    /// # Errors
    /// What the system answered: then the place is free again.
    pub fn put(&mut self, place: u32, stream: &Stream) -> io::Result<()> {
        if let Err(e) = self.ring.set_file(place, stream.native().fd()) {
            self.free_place(place);
            return Err(e);
        }
        let is_local = stream.native().is_local();
        if is_local {
            self.local.insert(place, stream.clone());
        }
        self.places[place as usize].state = state::OPEN | if is_local { state::LOCAL } else { 0 };
        Ok(())
    }

    /// A place is free again. Its tokens are stale from now on.
    pub fn free_place(&mut self, at: u32) {
        let place = &mut self.places[at as usize];
        if place.is(state::LOCAL) {
            self.local.remove(&at);
        }
        place.generation = place.generation.wrapping_add(1);
        place.state = 0;
        self.free.push(at);
    }

    /// Asks for something. What finds no room waits here, and is asked for by [`flush`](Self::flush).
    ///
    /// # Errors
    /// What io_uring_enter(2) answered.
    ///
    /// # Safety
    /// What the entry points at stays valid until its last completion.
    #[inline]
    pub unsafe fn push(&mut self, entry: squeue::Entry, counters: &Counters) -> io::Result<()> {
        if self.backlog.is_empty() {
            // SAFETY: as the caller says.
            let pushed = unsafe { self.submissions.push(slice::from_ref(&entry)) };
            if pushed.is_ok() {
                return Ok(());
            }
        }
        // Nothing that is asked for later goes before it.
        self.backlog.push_back(entry);
        self.flush(counters)
    }

    /// Moves what waits into the submission queue, and submits to make room.
    ///
    /// # Errors
    /// What io_uring_enter(2) answered.
    #[inline]
    pub fn flush(&mut self, counters: &Counters) -> io::Result<()> {
        while let Some(entry) = self.backlog.front() {
            let entry = slice::from_ref(entry);
            // SAFETY: whoever asked for it vouched for what it points at.
            let mut pushed = unsafe { self.submissions.push(entry) };
            if pushed.is_err() {
                self.submissions.submit(counters)?;
                // SAFETY: as above.
                pushed = unsafe { self.submissions.push(entry) };
            }
            if pushed.is_err() {
                return Ok(()); // when completions were taken
            }
            self.backlog.pop_front();
        }
        Ok(())
    }

    /// Whether something was asked for that the kernel does not know.
    #[inline]
    pub fn has_unsubmitted(&mut self) -> bool {
        self.submissions.pending() > 0
    }

    /// Whether an entry into the kernel would bring something.
    #[inline]
    pub fn needs_entry(&mut self, counters: &Counters) -> bool {
        let attention = self.submissions.attention();
        counters.overflows.add(u64::from(attention.overflow && !self.overflowing));
        self.overflowing = attention.overflow;
        attention.task_work || attention.overflow || self.has_unsubmitted()
    }

    /// Enters the kernel: submits what was asked for, and runs what was put off.
    ///
    /// # Errors
    /// What io_uring_enter(2) answered.
    pub fn enter(&mut self, counters: &Counters) -> io::Result<()> {
        counters.kernel_entries.one();
        let pending = self.submissions.pending();
        self.ring.enter(pending, 0, None, false).map(drop)
    }

    /// What waits for room.
    #[cfg(test)]
    pub fn waiting_for_room(&self) -> usize {
        self.backlog.len()
    }
}
