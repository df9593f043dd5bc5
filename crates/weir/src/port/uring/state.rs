//! What the threads of a port share under its lock: the two halves of the ring, the operations
//! under way, and those that wait for their turn.

use super::headers::Headers;
use crate::{
    counters::Counters,
    memory::Slice,
    port::{Completion, Key, Needs, Packet, SocketId, Taken, Token},
    ring::{self, Alarm, Completions, Slots, Submissions},
    rio::{Outcome, Peer},
    socket::DatagramSocket,
};
use io_uring::{opcode, squeue, types};
use std::{collections::VecDeque, io, sync::Arc};

/// Classes of tokens.
const RECEIVE: u8 = 1;
const SEND: u8 = 2;
/// Of requests that bring nothing themselves.
const CANCEL: ring::Token = ring::Token::bare(3);
const ALARM: ring::Token = ring::Token::bare(4);

pub(super) struct State {
    pub submissions: Submissions,
    pub completions: Completions,
    pub sockets: Vec<Associated>,
    receives: Slots<Receive>,
    sends: Slots<Send>,
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
    receive_headers: Headers,
    send_headers: Headers,
    /// Sends that the kernel does not know yet, in order.
    queued: VecDeque<ring::Token>,
    /// Operations that were cancelled before the kernel knew them: they come back through the
    /// queue like all others.
    returning: Vec<ring::Token>,
    /// Operations whose cancel found no room in the submission queue.
    cancels: Vec<ring::Token>,
    /// Most receives outstanding, over all sockets.
    receives_most: usize,
    /// Most receives in the kernel's hands for each socket.
    armed_most: u32,
    /// Operations in the kernel's hands.
    started: u32,
    pub closed: bool,
}

/// A socket of the port.
pub(super) struct Associated {
    socket: DatagramSocket,
    key: Key,
    /// Its receives in the kernel's hands.
    armed: u32,
    /// Its receives that wait for their turn, the latest on top: its slice is still in a cache.
    waiting: Vec<ring::Token>,
}

struct Receive {
    slice: Slice,
    socket: u32,
    stage: Stage,
}

struct Send {
    slice: Slice,
    socket: u32,
    len: usize,
    to: Peer,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The kernel does not know it.
    Waiting,
    /// It is in the kernel's hands.
    Started,
    /// It was cancelled while it waited.
    Returning,
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
        armed_most: u32,
    ) -> Self {
        let (receives, sends) = (needs.receives as usize, needs.sends as usize);
        Self {
            submissions,
            completions,
            sockets: Vec::with_capacity(needs.sockets as usize),
            receives: Slots::new(RECEIVE, receives),
            sends: Slots::new(SEND, sends),
            packets: VecDeque::with_capacity(needs.packets as usize),
            packets_most: needs.packets as usize,
            packets_first: true,
            alarm,
            alarm_armed: false,
            rung: false,
            waiting: false,
            receive_headers: Headers::new(receives),
            send_headers: Headers::new(sends),
            queued: VecDeque::with_capacity(sends),
            returning: Vec::with_capacity(receives + sends),
            cancels: Vec::with_capacity(receives + sends),
            receives_most: receives,
            armed_most,
            started: 0,
            closed: false,
        }
    }

    pub(super) fn associate(&mut self, socket: DatagramSocket, key: Key) -> SocketId {
        let waiting = Vec::with_capacity(self.receives_most);
        self.sockets.push(Associated { socket, key, armed: 0, waiting });
        SocketId(self.sockets.len() as u32 - 1)
    }

    /// Puts a receive on the list of its socket. Gives the slice back when all slots are in use.
    #[inline]
    pub(super) fn receive(&mut self, socket: SocketId, slice: Slice) -> Result<Token, Slice> {
        let receive = Receive { slice, socket: socket.0, stage: Stage::Waiting };
        let token = self.receives.insert(receive).map_err(|receive| receive.slice)?;
        self.sockets[socket.0 as usize].waiting.push(token);
        Ok(Token(token.user_data()))
    }

    /// Puts a send at the end of the queue. Gives the slice back when all slots are in use.
    #[inline]
    pub(super) fn send(
        &mut self,
        socket: SocketId,
        slice: Slice,
        len: usize,
        to: &Peer,
    ) -> Result<Token, Slice> {
        let send = Send { slice, socket: socket.0, len, to: *to, stage: Stage::Waiting };
        let token = self.sends.insert(send).map_err(|send| send.slice)?;
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

    pub(super) fn push_no_op(&mut self, token: ring::Token) -> Result<(), ring::Crowded> {
        let entry = opcode::Nop::new().build().user_data(token.user_data());
        // SAFETY: a no-op points at nothing.
        unsafe { self.submissions.push(&[entry]) }
    }

    /// Puts into the submission queue whatever may start: what was cancelled, sends in order,
    /// and receives up to the number that may be armed.
    #[inline]
    pub(super) fn fill(&mut self) -> Filled {
        if self.push_all().is_ok() { Filled::All } else { Filled::Crowded }
    }

    #[inline]
    fn push_all(&mut self) -> Result<(), ring::Crowded> {
        if !self.alarm_armed {
            // SAFETY: the alarm's entries point at a static.
            unsafe { self.submissions.push(&self.alarm.entries(ALARM)) }?;
            self.alarm_armed = true;
        }
        if !self.returning.is_empty() || !self.cancels.is_empty() {
            self.push_cancelled()?;
        }
        while let Some(&token) = self.queued.front() {
            self.push_send(token)?;
            self.queued.pop_front();
        }
        for socket in 0..self.sockets.len() {
            while self.sockets[socket].armed < self.armed_most {
                let Some(&token) = self.sockets[socket].waiting.last() else { break };
                self.push_receive(token, socket)?;
                self.sockets[socket].waiting.pop();
            }
        }
        Ok(())
    }

    #[cold]
    fn push_cancelled(&mut self) -> Result<(), ring::Crowded> {
        while let Some(&token) = self.returning.last() {
            self.push_no_op(token)?;
            self.returning.pop();
        }
        self.push_cancels()
    }

    /// Puts cancels that found no room into the submission queue.
    pub(super) fn push_cancels(&mut self) -> Result<(), ring::Crowded> {
        while let Some(&token) = self.cancels.last() {
            // SAFETY: a cancel points at nothing.
            unsafe { self.submissions.push(&[cancel_entry(token)]) }?;
            self.cancels.pop();
        }
        Ok(())
    }

    #[inline]
    fn push_receive(&mut self, token: ring::Token, socket: usize) -> Result<(), ring::Crowded> {
        let associated = &mut self.sockets[socket];
        let native = associated.socket.native();
        let receive = self.receives.get_mut(token).expect("what waits is not over");
        let header =
            self.receive_headers.receive(token.slot(), &receive.slice, native.has_control());
        let entry = opcode::RecvMsg::new(types::Fd(native.fd()), header)
            .build()
            .user_data(token.user_data());
        // SAFETY: header and slice stay in their slot until the operation's completion, and are
        // leaked if it never comes; the socket stays associated until the port goes.
        unsafe { self.submissions.push(&[entry]) }?;
        receive.stage = Stage::Started;
        associated.armed += 1;
        self.started += 1;
        Ok(())
    }

    #[inline]
    fn push_send(&mut self, token: ring::Token) -> Result<(), ring::Crowded> {
        let send = self.sends.get_mut(token).expect("what waits is not over");
        let fd = self.sockets[send.socket as usize].socket.native().fd();
        let header = self.send_headers.send(token.slot(), &send.slice, send.len, &send.to);
        let entry =
            opcode::SendMsg::new(types::Fd(fd), header).build().user_data(token.user_data());
        // SAFETY: as in `push_receive`.
        unsafe { self.submissions.push(&[entry]) }?;
        send.stage = Stage::Started;
        self.started += 1;
        Ok(())
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
            let result = entry.result();
            let completion = match token.class() {
                RECEIVE => {
                    let Some(receive) = self.receives.remove(token) else { continue };
                    let associated = &mut self.sockets[receive.socket as usize];
                    let outcome = if receive.stage == Stage::Started {
                        associated.armed -= 1;
                        self.started -= 1;
                        received(&self.receive_headers, token, result)
                    } else {
                        Outcome::Returned
                    };
                    let Receive { slice, socket, .. } = receive;
                    operation(token, socket, associated.key, slice, outcome)
                }
                SEND => {
                    let Some(send) = self.sends.remove(token) else { continue };
                    let outcome = if send.stage == Stage::Started {
                        self.started -= 1;
                        outcome_of(result, Outcome::Sent, Outcome::NotSent)
                    } else {
                        Outcome::Returned
                    };
                    let Send { slice, socket, .. } = send;
                    operation(token, socket, self.sockets[socket as usize].key, slice, outcome)
                }
                _ if token == ALARM => {
                    self.alarm.reset();
                    (self.alarm_armed, self.rung) = (false, false);
                    continue;
                }
                _ => continue,
            };
            out.push(completion);
        }
    }

    /// Asks for an operation to be cancelled. `false`: it is over.
    pub(super) fn cancel(&mut self, token: Token, counters: &Counters) -> bool {
        let token = ring::Token::from_user_data(token.0);
        let stage = match token.class() {
            RECEIVE => self.receives.get_mut(token).map(|receive| &mut receive.stage),
            SEND => self.sends.get_mut(token).map(|send| &mut send.stage),
            _ => None,
        };
        match stage {
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
        for associated in &mut self.sockets {
            if let Some(at) = associated.waiting.iter().rposition(|&waiting| waiting == token) {
                associated.waiting.remove(at);
            }
        }
    }

    /// How many operations are in the kernel's hands.
    pub(super) fn started(&self) -> u32 {
        self.started
    }

    /// Those operations.
    pub(super) fn all_started(&self) -> Vec<ring::Token> {
        let receives = self.receives.iter().filter(|(_, receive)| receive.stage == Stage::Started);
        let sends = self.sends.iter().filter(|(_, send)| send.stage == Stage::Started);
        receives.map(|(token, _)| token).chain(sends.map(|(token, _)| token)).collect()
    }

    /// Gives up everything, and returns how many slices went back to their pools and how many
    /// the kernel holds. The latter are leaked, with their headers, and counted in their region.
    pub(super) fn give_up(mut self) -> (u32, u32) {
        let (mut returned, mut missing) = (0, 0);
        let tokens: Vec<_> = self.receives.iter().map(|(token, _)| token).collect();
        let mut slices: Vec<_> = tokens
            .into_iter()
            .filter_map(|token| self.receives.remove(token))
            .map(|receive| (receive.slice, receive.stage))
            .collect();
        let tokens: Vec<_> = self.sends.iter().map(|(token, _)| token).collect();
        let sends = tokens.into_iter().filter_map(|token| self.sends.remove(token));
        slices.extend(sends.map(|send| (send.slice, send.stage)));
        for (slice, stage) in slices {
            if stage == Stage::Started {
                missing += 1;
                slice.region().count_leaked(1);
                let _leaked = slice.post();
            } else {
                returned += 1;
            }
        }
        debug_assert_eq!(missing, self.started);
        if missing == 0 {
            // SAFETY: no operation is in the kernel's hands, and the ring's halves go with this
            // value, so none will be.
            unsafe {
                self.receive_headers.free();
                self.send_headers.free();
            }
        }
        (returned, missing)
    }
}

fn cancel_entry(token: ring::Token) -> squeue::Entry {
    opcode::AsyncCancel::new(token.user_data()).build().user_data(CANCEL.user_data())
}

#[inline]
fn operation(
    token: ring::Token,
    socket: u32,
    key: Key,
    slice: Slice,
    outcome: Outcome,
) -> Completion {
    let (token, socket) = (Token(token.user_data()), SocketId(socket));
    Completion::Operation { token, socket, key, slice, outcome }
}

#[inline]
fn received(headers: &Headers, token: ring::Token, result: i32) -> Outcome {
    let done = |len| {
        // SAFETY: the kernel completed the receive of this slot: that is how we know the length.
        match unsafe { headers.arrival(token.slot(), len) } {
            Some(arrival) => Outcome::Received(arrival),
            None => Outcome::Failed(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                "receiving was ended on this socket",
            )),
        }
    };
    outcome_of(result, done, Outcome::Failed)
}

/// What a completion's result means.
#[inline]
fn outcome_of(
    result: i32,
    done: impl FnOnce(usize) -> Outcome,
    failed: impl FnOnce(io::Error) -> Outcome,
) -> Outcome {
    match -result {
        ..=0 => done(result as usize),
        // Also what the kernel answers for operations of a thread that has exited.
        libc::ECANCELED | libc::EINTR | libc::EAGAIN => Outcome::Returned,
        errno => failed(io::Error::from_raw_os_error(errno)),
    }
}
