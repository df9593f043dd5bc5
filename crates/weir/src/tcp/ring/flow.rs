//! What the connections of a ring receive and send, and how one is closed.
//!
//! What was received goes back in the slice it came in. Where slices become few it is copied instead, so
//! that peers that read slowly cannot keep all of them; and what comes while a connection's output is full
//! is held in memory of its own: receiving is stopped then, so that is no more than was under way.

use super::frame::Room;
use crate::{
    memory::Slice,
    rio::streams::{Load, StreamId, StreamQueue},
    tcp::{Connection, Handler, Reason, Worker},
    timer::Tick,
};
use std::{io, mem};

/// Memory of sends kept for the next: at most so many pieces of so many bytes.
const SPARE: (usize, usize) = (64, 64 * 1024);

/// What is known of a place for a connection.
pub(super) enum Entry<H> {
    Free,
    /// It is told that it is refused, and then closed.
    Refused,
    Open(Open<H>),
    /// Its close was asked for.
    Closing,
}

/// A connection that is open.
pub(super) struct Open<H> {
    pub(super) connection: Connection<H>,
    pub(super) generation: u32,
    /// When its timer fires; [`Tick::MAX`] where it has none.
    pub(super) armed: Tick,
    /// What came while its output was full.
    pub(super) held: Option<Box<Held>>,
    /// Receives asked for: one, where that goes on until it is stopped.
    pub(super) receiving: u16,
    pub(super) sending: bool,
    pub(super) ending: bool,
    /// It was asked how much it is to finish after.
    pub(super) asking: bool,
    /// It waits for a slice.
    pub(super) starved: bool,
}

impl<H> Open<H> {
    /// Whether one more receive may be asked for, of so many.
    #[inline]
    pub(super) fn may_receive(&self, most: u16) -> bool {
        self.receiving < most && self.held.is_none() && !self.asking && !self.starved
    }
}

/// What came while the output was full, and waits to be handled.
#[derive(Default)]
pub(super) struct Held {
    pub(super) bytes: Vec<u8>,
    /// Those before it were handled.
    pub(super) start: usize,
    /// The peer's end is behind it.
    pub(super) ended: bool,
}

impl Held {
    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.start
    }
}

impl<H: Handler, Q: StreamQueue> Room<H, Q> {
    #[inline]
    pub(super) fn received(
        &mut self,
        worker: &mut Worker<H>,
        id: StreamId,
        slice: Slice,
        len: usize,
    ) {
        let Self { queue, entries, .. } = self;
        let queue = queue.as_mut().expect("it is there until the end");
        let Entry::Open(open) = &mut entries[id.number as usize] else {
            return queue.give_back(slice);
        };
        let mut slice = slice;
        let bytes = &mut slice.payload_mut()[..len];
        if !self.shared {
            open.receiving -= 1;
        }
        if open.held.is_some() || !open.connection.wants(&worker.limits).receive {
            open.held.get_or_insert_default().bytes.extend_from_slice(bytes);
            worker.counters.bytes_queued.add(len as u64);
            if self.shared && open.receiving > 0 {
                queue.stop_receiving(id);
                open.receiving = 0;
            }
            queue.give_back(slice);
        } else {
            let echo = open.connection.received(worker, bytes);
            if echo == 0 {
                queue.give_back(slice);
            } else if open.sending || queue.is_short(id) {
                open.connection.echoed(worker, &bytes[..echo], 0);
                queue.give_back(slice);
            } else {
                open.connection.lend_echo(echo);
                let load = Load::Slice { slice, start: 0, end: echo as u32 };
                match queue.send(id, load) {
                    Ok(()) => open.sending = true,
                    Err((load, why)) => {
                        open.connection.fail(Reason::Failed(why.into()));
                        self.recycle(load);
                    }
                }
            }
        }
        self.settle(worker, id.number);
    }

    #[inline]
    pub(super) fn sent(
        &mut self,
        worker: &mut Worker<H>,
        id: StreamId,
        load: Option<Load>,
        count: usize,
    ) {
        if let Entry::Refused = self.entries[id.number as usize] {
            // What is left of a few words is not worth waiting for.
            self.queue().end_sending(id);
        }
        let Some(open) = self.open_at(id) else {
            return load.into_iter().for_each(|load| self.recycle(load));
        };
        open.connection.returned(worker, count);
        open.sending = false;
        let over = open.connection.wants(&worker.limits).close;
        if let Some(mut load) = load {
            load.advance(count);
            if load.is_empty() || over {
                self.recycle(load);
            } else {
                self.send(id, load);
            }
        }
        self.settle(worker, id.number);
    }

    pub(super) fn end_sent(
        &mut self,
        worker: &mut Worker<H>,
        id: StreamId,
        result: io::Result<()>,
    ) {
        if let Entry::Refused = self.entries[id.number as usize] {
            return self.close_entry(id, false);
        }
        let Some(open) = self.open_at(id) else { return };
        open.ending = false;
        match result {
            Ok(()) => open.connection.told(worker),
            Err(e) => open.connection.fail(Reason::Failed(e)),
        }
        self.settle(worker, id.number);
    }

    /// Sends; nothing is under way.
    fn send(&mut self, id: StreamId, load: Load) {
        let sent = self.queue().send(id, load);
        let Some(open) = self.open_at(id) else { return };
        match sent {
            Ok(()) => open.sending = true,
            Err((load, why)) => {
                open.connection.fail(Reason::Failed(why.into()));
                self.recycle(load);
            }
        }
    }

    /// Gives back what a send was given.
    #[inline]
    pub(super) fn recycle(&mut self, load: Load) {
        match load {
            Load::Slice { slice, .. } => self.queue().give_back(slice),
            Load::Bytes { mut bytes, .. } => {
                if self.spare.len() < SPARE.0 && bytes.capacity() <= SPARE.1 {
                    bytes.clear();
                    self.spare.push(bytes);
                }
            }
        }
    }

    /// Handles what was held, as far as there is room for output.
    #[cold]
    fn catch_up(worker: &mut Worker<H>, open: &mut Open<H>, buffer_bytes: usize) {
        while let Some(held) = &mut open.held {
            if held.len() == 0 {
                if mem::take(&mut open.held).is_some_and(|held| held.ended) {
                    open.connection.ended(worker);
                }
                return;
            }
            // Each piece may be the one that it pauses after.
            let wants = open.connection.wants(&worker.limits);
            open.connection.note_pause(worker, wants);
            if !wants.receive {
                return;
            }
            let end = held.bytes.len().min(held.start + buffer_bytes);
            let bytes = &mut held.bytes[held.start..end];
            held.start = end;
            let echo = open.connection.received(worker, bytes);
            if echo > 0 {
                open.connection.echoed(worker, &bytes[..echo], 0);
            }
        }
    }

    /// Asks for what the connection wants next, and closes it when it is over.
    #[inline]
    pub(super) fn settle(&mut self, worker: &mut Worker<H>, number: u32) {
        let Self { queue, entries, .. } = self;
        let queue = queue.as_mut().expect("it is there until the end");
        let Entry::Open(open) = &mut entries[number as usize] else { return };
        let id = StreamId { number, generation: open.generation };
        if open.held.is_some() {
            Self::catch_up(worker, open, self.buffer_bytes);
        }
        let mut wants = open.connection.wants(&worker.limits);
        if wants.send && !open.sending && !open.ending {
            let mut bytes = self.spare.pop().unwrap_or_default();
            open.connection.lend(&mut bytes);
            match queue.send(id, bytes.into()) {
                Ok(()) => open.sending = true,
                Err((_, why)) => open.connection.fail(Reason::Failed(why.into())),
            }
            wants = open.connection.wants(&worker.limits);
        }
        if wants.end_sending && !open.ending {
            if open.connection.is_ended() {
                // Closing says the same.
                open.connection.told(worker);
            } else {
                open.ending = true;
                queue.end_sending(id);
            }
            wants = open.connection.wants(&worker.limits);
        }
        open.connection.note_pause(worker, wants);
        if wants.close {
            return self.close(worker, number);
        }
        // While the output is full receiving goes on until something comes: most times nothing does.
        while wants.receive && open.may_receive(self.receives) {
            if !queue.receive(id) {
                open.starved = true;
                self.starved.push_back(id);
                break;
            }
            open.receiving += 1;
        }
        // A timer that fires too early is set again; only one that would be late is moved.
        if let Some(due) = open.connection.deadline(&worker.limits)
            && due < open.armed
        {
            open.armed = due;
            worker.clock.set(number, due);
        }
    }

    /// Lets those receive that found no slice, as far as there are any.
    #[inline]
    pub(super) fn feed_starved(&mut self, worker: &mut Worker<H>) {
        for _ in 0..self.starved.len() {
            let Some(&id) = self.starved.front() else { return };
            if self.queue().slices(id) == 0 {
                return;
            }
            self.starved.pop_front();
            if let Some(open) = self.open_at(id)
                && open.generation == id.generation
            {
                open.starved = false;
                self.settle(worker, id.number);
            }
        }
    }

    pub(super) fn fail(&mut self, worker: &mut Worker<H>, id: StreamId, reason: Reason) {
        if let Some(open) = self.open_at(id) {
            open.connection.fail(reason);
            self.settle(worker, id.number);
        }
    }

    pub(super) fn close(&mut self, worker: &mut Worker<H>, number: u32) {
        let entry = mem::replace(&mut self.entries[number as usize], Entry::Closing);
        let Entry::Open(open) = entry else { return };
        worker.clock.cancel(number);
        let abrupt = open.connection.close(worker).is_abrupt();
        self.queue().close(StreamId { number, generation: open.generation }, abrupt);
        if let Some(next) = self.active.leave(number)
            && let Entry::Open(open) = &mut self.entries[next as usize]
        {
            open.connection.begin(worker);
            self.settle(worker, next);
        }
    }

    pub(super) fn close_entry(&mut self, id: StreamId, abrupt: bool) {
        self.entries[id.number as usize] = Entry::Closing;
        self.queue().close(id, abrupt);
    }
}
