//! Blocks of connections, and their making.

use super::{Block, End, Slot, State, Worker};
use crate::{
    clock::now_ns,
    lock::lock,
    tcp::{
        Conduct,
        connection::Stream,
        schedule::Schedule,
        system::{self, Socket},
        worker::Note,
    },
};
use std::{cmp::Reverse, io};

/// What is asked for of either buffer of a stuck connection's socket, in bytes. The system may make it more, and what
/// it grants still bounds what such a connection has waiting here.
const BUFFER_BYTES_OF_STUCK: usize = 16 << 10;

impl Worker<'_> {
    /// When the next block begins.
    pub(super) fn block_begins_ns(&self) -> u64 {
        let after = self.spec.block_interval.saturating_mul(self.blocks.len() as u32);
        self.began_ns.saturating_add(after.as_nanos() as u64)
    }

    pub(super) fn connect_what_is_due(&mut self, now: u64) {
        let latest = self.spec.last_block_after() + self.spec.setup_max;
        if !self.gave_up && now >= self.began_ns.saturating_add(latest.as_nanos() as u64) {
            self.give_up("the time for connecting was over (--setup-time); connections not begun");
        }
        while !self.gave_up && self.connecting < self.connecting_max {
            if self.to_begin == 0 {
                if self.blocks.len() == self.spec.blocks as usize || now < self.block_begins_ns() {
                    break;
                }
                let (_, share) = self.spec.dealt(self.blocks.len() as u32, self.number);
                self.to_begin = share;
                self.blocks.push(Block {
                    first: self.slots.len() as u32,
                    connections: self.to_begin,
                    unsettled: self.to_begin,
                    schedule: None,
                    next: 0,
                });
                if self.to_begin == 0 {
                    continue;
                }
            }
            self.to_begin -= 1;
            self.connect();
        }
        let all_begun =
            self.gave_up || (self.to_begin == 0 && self.blocks.len() == self.spec.blocks as usize);
        if !self.settled && all_begun && self.connecting == 0 {
            self.settled = true;
            // If nobody listens, the load was given up already.
            let _ = self.notes.send(Note::Settled);
        }
    }

    /// Begins no further connection.
    pub(super) fn give_up(&mut self, cause: &str) {
        if std::mem::replace(&mut self.gave_up, true) {
            return;
        }
        let left = self.connections_in_all() - self.slots.len() as u64;
        if left > 0 {
            self.outcome.causes.add(cause, left);
        }
        if let Some(block) = self.blocks.last_mut() {
            // Its schedule, if it gets one, is for those it has.
            block.connections -= self.to_begin;
            block.unsettled -= self.to_begin;
            self.to_begin = 0;
            self.check_making();
            let number = self.blocks.len() as u32 - 1;
            self.begin_schedule(number);
        }
    }

    pub(super) fn connect(&mut self) {
        let block = self.blocks.len() as u32 - 1;
        let place = self.slots.len() as u32 - self.blocks[block as usize].first;
        let (first, _) = self.spec.dealt(block, self.number);
        let in_block = first + place * self.spec.threads_in_all();
        let number = block * self.spec.connections + in_block;
        let slot = self.slots.len() as u32;
        self.slots.push(Slot {
            stream: Stream::new(self.spec.run, number),
            socket: None,
            block,
            waiting_since: self.clock.now(),
            state: State::Connecting,
            timed: true,
            settled: false,
            ended: false,
            again: false,
            sending: 0,
        });
        let began_ns = now_ns();
        self.times.resize(self.slots.len() * self.spec.outstanding as usize, began_ns);
        self.making.get_or_insert((began_ns, began_ns));
        self.live.attempted.one();
        self.connecting += 1;
        self.open += 1;
        match self.open_socket(number).and_then(|socket| {
            self.moves.add(&socket, slot)?;
            Ok(socket)
        }) {
            Ok(socket) => {
                self.slots[slot as usize].socket = Some(socket);
                self.set_timer(slot, self.spec.connect_timeout);
            }
            Err(e) if system::is_refused(&e) => self.close(slot, End::Refused),
            Err(e) => {
                let none_left = system::is_no_descriptor(&e);
                self.close(slot, End::ConnectFailed(e));
                if none_left {
                    self.give_up(
                        "no descriptors or memory were left (ulimit -n); connections not begun",
                    );
                }
            }
        }
    }

    /// Ends the time in which connections are being made, if none is, and none follows before the next block.
    pub(super) fn check_making(&mut self) {
        if self.connecting == 0 && self.to_begin == 0 {
            self.end_making();
        }
    }

    pub(super) fn end_making(&mut self) {
        if let Some((from_ns, to_ns)) = self.making.take() {
            self.outcome.connecting.add(from_ns, to_ns);
        }
    }

    pub(super) fn open_socket(&self, connection: u32) -> io::Result<Socket> {
        let buffer_bytes = (self.spec.conduct == Conduct::Stuck).then_some(BUFFER_BYTES_OF_STUCK);
        if let Some(unix) = &self.spec.unix {
            return Socket::connect_unix(unix, buffer_bytes);
        }
        let sources = || lock(&self.shared.sources);
        loop {
            let source = sources().take(connection);
            match Socket::connect(self.spec.target, source.address, buffer_bytes) {
                Err(e) if system::is_no_port(&e) && sources().exhausted(source) => {}
                result => return result,
            }
        }
    }

    /// Of a block of which every connection is made, or has failed, the messages begin to be due.
    pub(super) fn begin_schedule(&mut self, number: u32) {
        let block = &mut self.blocks[number as usize];
        let Some(rate) = self.spec.block_rate() else { return };
        if block.unsettled > 0 || block.connections == 0 || block.schedule.is_some() || self.ending
        {
            return;
        }
        // Evenly between those of the other threads.
        let (first, _) = self.spec.dealt(number, self.number);
        let offset_ns = 1e9 / rate * f64::from(first);
        let own = rate * f64::from(block.connections) / f64::from(self.spec.connections);
        let schedule = Schedule::new(now_ns() + offset_ns as u64, own, block.connections);
        block.schedule = Some(schedule);
        self.due.push(Reverse((schedule.due_ns(0), number)));
    }
}
