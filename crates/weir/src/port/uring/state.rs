//! What the threads of a port share under its lock: the two halves of the ring, the operations,
//! and what waits for its turn.

use super::{
    arming::Arming,
    operations::{Operations, Stage},
};
use crate::{
    counters::Counters,
    memory::Slice,
    port::{Completion, Key, Needs, Packet, Refused, SocketId, Taken, Token},
    ring::{self, Alarm, Completions, Crowded, Submissions},
    rio::{Peer, Span},
    socket::DatagramSocket,
};
use io_uring::{opcode, squeue};
use std::{collections::VecDeque, sync::Arc};

/// Of requests that are no operations.
const CANCEL: ring::Token = ring::Token::bare(3);
const ALARM: ring::Token = ring::Token::bare(4);

pub(super) struct State {
    pub submissions: Submissions,
    pub completions: Completions,
    pub operations: Operations,
    /// Packets not yet taken, in order.
    packets: VecDeque<Packet>,
    packets_most: usize,
    /// Whether packets go first in the next take: in turns with completions, so that neither
    /// starves the other.
    packets_first: bool,
    /// Ends the leader's wait. It is rung by writing to a descriptor: a thread that posts or
    /// closes does not enter the ring, which would make the kernel interrupt it later on.
    alarm: Arc<Alarm>,
    alarm_armed: bool,
    /// It was rung, and nobody has looked since.
    rung: bool,
    /// The leader waits in the kernel, or is about to.
    pub waiting: bool,
    /// The kernel keeps completions that found no room, as was seen and counted already.
    pub overflowing: bool,
    /// Sends that the kernel does not know yet, in order.
    queued: VecDeque<ring::Token>,
    /// Operations that were cancelled before the kernel knew them: they come back through the
    /// queue like all others.
    returning: Vec<ring::Token>,
    /// Operations whose cancel found no room in the submission queue.
    cancels: Vec<ring::Token>,
    receives_most: u32,
    /// How many receives are in the kernel's hands for each socket.
    pub arming: Arming,
    pub closed: bool,
}

/// Whether the kernel took all there was to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Filled {
    All,
    /// The submission queue is full: submit, then fill again.
    Crowded,
}

impl State {
    pub(super) fn new(
        submissions: Submissions,
        completions: Completions,
        alarm: Arc<Alarm>,
        needs: &Needs,
        armed: u32,
    ) -> Self {
        let (receives, sends) = (needs.receives as usize, needs.sends as usize);
        Self {
            submissions,
            completions,
            operations: Operations::new(needs),
            packets: VecDeque::with_capacity(needs.packets as usize),
            packets_most: needs.packets as usize,
            packets_first: true,
            alarm,
            alarm_armed: false,
            rung: false,
            waiting: false,
            overflowing: false,
            queued: VecDeque::with_capacity(sends),
            returning: Vec::with_capacity(receives + sends),
            cancels: Vec::with_capacity(receives + sends),
            receives_most: needs.receives,
            arming: Arming::new(armed),
            closed: false,
        }
    }

    pub(super) fn associate(&mut self, socket: DatagramSocket, key: Key, file: Option<u32>) {
        self.operations.associate(socket, key, file, self.receives_most);
    }

    /// Why nothing may be started on a socket, if nothing may. To be asked before a slot is
    /// taken: an operation that names no socket could never be finished.
    #[inline]
    fn admit(&self, socket: SocketId) -> Result<(), Refused> {
        if self.closed {
            return Err(Refused::Closed);
        }
        let known = (socket.0 as usize) < self.operations.sockets.len();
        if known { Ok(()) } else { Err(Refused::NoSuchSocket) }
    }

    /// Puts a receive on the list of its socket. Gives the slice back when the port is closed,
    /// has no such socket, or as many as may are outstanding.
    #[inline]
    pub(super) fn receive(
        &mut self,
        socket: SocketId,
        slice: Slice,
    ) -> Result<Token, (Slice, Refused)> {
        if let Err(refused) = self.admit(socket) {
            return Err((slice, refused));
        }
        let token =
            self.operations.receive(socket, slice).map_err(|slice| (slice, Refused::Full))?;
        self.operations.sockets[socket.0 as usize].waiting.push(token);
        Ok(Token(token.user_data()))
    }

    /// Puts a send at the end of the queue. Gives the slice back as for a receive.
    #[inline]
    pub(super) fn send(
        &mut self,
        socket: SocketId,
        slice: Slice,
        span: Span,
        to: &Peer,
    ) -> Result<Token, (Slice, Refused)> {
        if let Err(refused) = self.admit(socket) {
            return Err((slice, refused));
        }
        let sent = self.operations.send(socket, slice, span, to);
        let token = sent.map_err(|slice| (slice, Refused::Full))?;
        self.queued.push_back(token);
        Ok(Token(token.user_data()))
    }

    /// Puts a packet at the end of the queue. `false`: as many wait as may.
    pub(super) fn post(&mut self, packet: Packet) -> bool {
        let room = self.packets.len() < self.packets_most;
        if room {
            self.packets.push_back(packet);
        }
        room
    }

    /// Whether somebody must ring the alarm, after a change that the leader must see: it waits,
    /// and nobody has rung. The caller then rings, without the lock.
    #[must_use]
    pub(super) fn must_ring(&mut self) -> bool {
        let must = self.waiting && !self.rung;
        self.rung |= must;
        must
    }

    /// Whether there is anything to take without waiting.
    pub(super) fn ready(&mut self) -> bool {
        !self.packets.is_empty() || self.completions.len() > 0
    }

    /// Puts into the submission queue whatever may start: what was cancelled, sends in order,
    /// and receives up to the number that may be armed.
    #[inline]
    pub(super) fn fill(&mut self) -> Filled {
        if self.push_all().is_ok() { Filled::All } else { Filled::Crowded }
    }

    #[inline]
    fn push_all(&mut self) -> Result<(), Crowded> {
        if !self.alarm_armed {
            // SAFETY: the alarm's entries point at a static.
            unsafe { self.submissions.push(&self.alarm.entries(ALARM)) }?;
            self.alarm_armed = true;
        }
        if !self.returning.is_empty() || !self.cancels.is_empty() {
            self.push_cancelled()?;
        }
        let Self { operations, submissions, queued, arming, .. } = self;
        // SAFETY: what an entry points at stays in its operation's slot until the completion, and
        // is leaked if that never comes; a socket stays associated until the port goes.
        let mut push = |entry| unsafe { submissions.push(&[entry]) };
        while let Some(&token) = queued.front() {
            operations.start_send(token, &mut push)?;
            queued.pop_front();
        }
        for socket in 0..operations.sockets.len() {
            while operations.sockets[socket].armed < arming.now() {
                let Some(&token) = operations.sockets[socket].waiting.last() else { break };
                operations.start_receive(token, &mut push)?;
                operations.sockets[socket].waiting.pop();
            }
        }
        Ok(())
    }

    #[cold]
    fn push_cancelled(&mut self) -> Result<(), Crowded> {
        while let Some(&token) = self.returning.last() {
            self.push_no_op(token)?;
            self.returning.pop();
        }
        self.push_cancels()
    }

    /// Puts cancels that found no room into the submission queue.
    pub(super) fn push_cancels(&mut self) -> Result<(), Crowded> {
        while let Some(&token) = self.cancels.last() {
            let entry = opcode::AsyncCancel::new(token.user_data()).build();
            self.push_harmless(entry.user_data(CANCEL.user_data()))?;
            self.cancels.pop();
        }
        Ok(())
    }

    pub(super) fn push_no_op(&mut self, token: ring::Token) -> Result<(), Crowded> {
        self.push_harmless(opcode::Nop::new().build().user_data(token.user_data()))
    }

    /// For entries that point at nothing.
    fn push_harmless(&mut self, entry: squeue::Entry) -> Result<(), Crowded> {
        // SAFETY: no-ops and cancels, which are what this is for, point at nothing.
        unsafe { self.submissions.push(&[entry]) }
    }

    /// Moves packets and completions into `out`, as many as fit, and returns how many.
    #[inline]
    pub(super) fn reap(&mut self, out: &mut Taken) -> usize {
        let before = out.len();
        if self.packets.is_empty() {
            self.reap_operations(out);
        } else if self.packets_first {
            self.reap_packets(out);
            self.reap_operations(out);
            self.packets_first = false;
        } else {
            self.reap_operations(out);
            self.reap_packets(out);
            self.packets_first = true;
        }
        out.len() - before
    }

    fn reap_packets(&mut self, out: &mut Taken) {
        let fit = self.packets.len().min(out.room());
        self.packets.drain(..fit).for_each(|packet| out.push(Completion::Packet(packet)));
    }

    #[inline]
    fn reap_operations(&mut self, out: &mut Taken) {
        let mut queue = self.completions.take();
        while out.room() > 0 {
            let Some(entry) = queue.next() else { break };
            let token = ring::Token::from_user_data(entry.user_data());
            if token == ALARM {
                self.alarm.reset();
                (self.alarm_armed, self.rung) = (false, false);
            } else {
                self.operations.finish(token, entry.result(), out);
            }
        }
    }

    /// Asks for an operation to be cancelled. `false`: it is over.
    pub(super) fn cancel(&mut self, token: Token, counters: &Counters) -> bool {
        let token = ring::Token::from_user_data(token.0);
        match self.operations.stage(token) {
            None => return false,
            Some(Stage::Returning) => {}
            Some(stage @ Stage::Waiting) => {
                *stage = Stage::Returning;
                self.withdraw(token);
                self.returning.push(token);
                let _ = self.fill();
                // What the kernel answers is met again by whoever leads.
                let _ = self.submissions.submit(counters);
            }
            Some(Stage::Started) => {
                let asked = self.submissions.cancel(token, CANCEL, counters);
                if asked.is_err() && !self.cancels.contains(&token) {
                    self.cancels.push(token);
                }
            }
        }
        true
    }

    /// Takes an operation from the list it waits in: by looking for it, since this is rare.
    fn withdraw(&mut self, token: ring::Token) {
        self.queued.retain(|&queued| queued != token);
        for associated in &mut self.operations.sockets {
            associated.waiting.retain(|&waiting| waiting != token);
        }
    }

    /// Gives up everything, and returns how many slices went back to their pools and how many
    /// the kernel holds.
    pub(super) fn give_up(self) -> (u32, u32) {
        let Self { operations, submissions, completions, .. } = self;
        // The only way to submit goes first. What lies in the submission queue counts as started.
        drop((submissions, completions));
        // SAFETY: there are no submissions any more.
        unsafe { operations.give_up() }
    }
}
