//! The operations of a port of datagrams: a slot for each that is outstanding, with its slice and its
//! header, and the entries that hand them to the kernel. Those that send stand in `sends.rs`.

use super::{
    headers::{Beside, Headers, NOTHING},
    sends::{SEND, Sends},
    socket::{Associated, is_interrupted, operation},
    state::{Ending, Filled, Outstanding, Stage},
};
use crate::{
    counters::Counters,
    deadline::LastLook,
    memory::Slice,
    port::{
        Completion, Key, Needs, Outcome, Refused, SocketId, Taken, Token, armed_count::ArmedCount,
        arming::Arming,
    },
    ring::{self, QueueFull, Slots, Submissions},
    rio::{Peer, Span},
    socket::DatagramSocket,
};
use io_uring::{opcode, squeue, types};
use std::{
    io, mem,
    time::{Duration, Instant},
};

/// Class of the tokens of receives.
const RECEIVE: u8 = 1;

pub(super) struct Operations {
    pub sockets: Vec<Associated>,
    receives: Slots<Receive>,
    receive_headers: Headers,
    sends: Sends,
    /// How many are in the kernel's hands.
    started: u32,
    receives_most: u32,
    /// How many receives to have in the kernel's hands for each socket.
    armed_count: ArmedCount,
    sweeps: Sweeps,
    /// Since receiving was ended: when what is outstanding is given up, and how much it was when that was last asked.
    ending: Option<(LastLook, usize)>,
}

struct Receive {
    slice: Slice,
    socket: u32,
    stage: Stage,
    /// It was handed to the kernel by a sweep: where there is nothing to receive it waits for its turn again.
    swept: bool,
}

/// Receiving without receives that are armed: those of a sweep do not wait.
struct Sweeps {
    on: bool,
    /// How many receives to sweep each socket with.
    count: ArmedCount,
    /// Of the last sweep: how many there were, how many datagrams they brought, and when it was.
    submitted: u32,
    received: u32,
    at: Option<Instant>,
}

impl Operations {
    pub(super) fn new(needs: &Needs, armed: u32) -> Self {
        let (receives, sends) = (needs.receives as usize, needs.sends as usize);
        Self {
            sockets: Vec::with_capacity(needs.sockets as usize),
            receives: Slots::new(RECEIVE, receives),
            receive_headers: Headers::new(receives),
            sends: Sends::new(sends),
            started: 0,
            receives_most: needs.receives,
            armed_count: ArmedCount::new(armed),
            sweeps: Sweeps {
                on: false,
                count: ArmedCount::new(0),
                submitted: 0,
                received: 0,
                at: None,
            },
            ending: None,
        }
    }

    /// Receives no more. What has not begun gives its slice back; returns what the kernel has, to be cancelled. What is
    /// outstanding may be taken until then.
    pub(super) fn end_receiving(&mut self, by: Instant) -> Vec<ring::Token> {
        self.ending.get_or_insert((LastLook::by(by), usize::MAX));
        for token in self.sockets.iter_mut().flat_map(|associated| associated.waiting.drain(..)) {
            drop(self.receives.remove(token));
        }
        let started = self.receives.iter().filter(|(_, receive)| receive.stage == Stage::Started);
        started.map(|(token, _)| token).collect()
    }

    pub(super) fn associate(&mut self, socket: DatagramSocket, key: Key, file: Option<u32>) {
        let waiting = Vec::with_capacity(self.receives_most as usize);
        self.sockets.push(Associated { socket, key, file, armed: 0, dry: false, waiting });
    }

    /// Whether a socket is associated. To be asked before a slot is taken: an operation that names no
    /// socket could never be finished.
    #[inline]
    fn knows(&self, socket: SocketId) -> bool {
        (socket.0 as usize) < self.sockets.len()
    }

    /// Puts a receive on the list of its socket. Gives the slice back when there is no such socket, or as
    /// many as may are outstanding.
    #[inline]
    pub(super) fn receive(
        &mut self,
        socket: SocketId,
        slice: Slice,
    ) -> Result<Token, (Slice, Refused)> {
        if !self.knows(socket) {
            return Err((slice, Refused::NoSuchSocket));
        }
        if self.ending.is_some() {
            return Err((slice, Refused::Closed));
        }
        let receive = Receive { slice, socket: socket.0, stage: Stage::Waiting, swept: false };
        let token =
            self.receives.insert(receive).map_err(|receive| (receive.slice, Refused::Full))?;
        self.sockets[socket.0 as usize].waiting.push(token);
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
        if !self.knows(socket) {
            return Err((slice, Refused::NoSuchSocket));
        }
        self.sends.add(socket, slice, span, to)
    }

    /// Hands a receive that waits to `push`, which says whether the kernel will have it. One that is `swept` is over at
    /// once.
    #[inline]
    fn start_receive<E>(
        &mut self,
        token: ring::Token,
        swept: bool,
        push: impl FnOnce(squeue::Entry) -> Result<(), E>,
    ) -> Result<(), E> {
        let receive = self.receives.get_mut(token).expect("what waits is not over");
        let associated = &mut self.sockets[receive.socket as usize];
        let beside = Beside::of(associated.socket.native());
        let header = self.receive_headers.receive(token.slot(), &receive.slice, beside);
        let entry = match associated.file {
            Some(file) => opcode::RecvMsg::new(types::Fixed(file), header),
            None => opcode::RecvMsg::new(types::Fd(associated.socket.native().fd()), header),
        };
        let flags = if swept { libc::MSG_DONTWAIT as u32 } else { 0 };
        push(entry.flags(flags).build().user_data(token.user_data()))?;
        (receive.stage, receive.swept) = (Stage::Started, swept);
        associated.armed += 1;
        self.started += 1;
        Ok(())
    }

    /// A receive of a sweep that found nothing waits for its turn again, unless it is not to be received into any more.
    #[cold]
    fn put_back(&mut self, token: ring::Token) -> bool {
        let Some(receive) = self.receives.get_mut(token) else { return false };
        if receive.stage != Stage::Started || !receive.swept || self.ending.is_some() {
            return false;
        }
        receive.stage = Stage::Waiting;
        let associated = &mut self.sockets[receive.socket as usize];
        associated.armed -= 1;
        associated.dry = true;
        associated.waiting.push(token);
        self.started -= 1;
        true
    }

    /// Hands the kernel as many receives of each socket as may come at once.
    fn sweep_sockets(&mut self, submissions: &mut Submissions) -> Result<(), QueueFull> {
        let Sweeps { count, submitted, received, .. } = &mut self.sweeps;
        count.entered(std::mem::take(submitted), std::mem::take(received));
        self.sweeps.at = Some(Instant::now());
        for socket in 0..self.sockets.len() {
            self.sockets[socket].dry = self.sockets[socket].waiting.is_empty();
            for _ in 0..self.sweeps.count.now() {
                let Some(&token) = self.sockets[socket].waiting.last() else { break };
                // SAFETY: as for those that are armed.
                self.start_receive(token, true, |entry| unsafe { submissions.push(&[entry]) })?;
                self.sockets[socket].waiting.pop();
                self.sweeps.submitted += 1;
            }
        }
        Ok(())
    }
}

impl Outstanding for Operations {
    type Completion = Completion;

    /// Sends in order, and receives up to the number that may be armed.
    #[inline]
    fn start(&mut self, submissions: &mut Submissions) -> Result<(), QueueFull> {
        // SAFETY: what an entry points at stays in its operation's slot until the completion, and
        // is leaked if that never comes; a socket stays associated until the port goes.
        let mut push = |entry| unsafe { submissions.push(&[entry]) };
        self.sends.start(&self.sockets, &mut self.started, &mut push)?;
        if self.sweeps.on {
            return Ok(());
        }
        for socket in 0..self.sockets.len() {
            while self.sockets[socket].armed < self.armed_count.now() {
                let Some(&token) = self.sockets[socket].waiting.last() else { break };
                self.start_receive(token, false, &mut push)?;
                self.sockets[socket].waiting.pop();
            }
        }
        Ok(())
    }

    #[inline]
    fn finish(&mut self, token: ring::Token, result: i32, out: &mut Taken) {
        if token.class() == SEND {
            self.started -= self.sends.finish(token, result, &self.sockets);
            return self.sends.take_settled(&self.sockets, out);
        }
        if result == -libc::EAGAIN && self.put_back(token) {
            return;
        }
        let Some(receive) = self.receives.remove(token) else { return };
        let Receive { slice, socket, stage, swept } = receive;
        let associated = &mut self.sockets[socket as usize];
        let key = associated.key;
        if stage != Stage::Started {
            return out.push(operation(token, socket, key, slice, Outcome::Returned));
        }
        associated.armed -= 1;
        self.started -= 1;
        if result < 0 {
            let outcome = match associated.socket.native().note_error(-result) {
                true => Outcome::Returned, // an error that a peer reported: nothing is lost
                false => failed(result, Outcome::Failed),
            };
            return out.push(operation(token, socket, key, slice, outcome));
        }
        self.sweeps.received += u32::from(swept);
        let received = operation(token, socket, key, slice, Outcome::Received(NOTHING));
        out.push(received);
        let Some(Completion::Operation { outcome, .. }) = out.last_mut() else { return };
        let Outcome::Received(arrival) = outcome else { return };
        // SAFETY: the kernel completed the receive of this slot: that is how we know the length.
        if unsafe { self.receive_headers.arrival(token.slot(), result as usize, arrival) } {
            return;
        }
        let native = associated.socket.native();
        if !native.is_local() {
            *outcome = ended();
        } else if result == 0
            && let Err(shut) = native.is_still_open(None)
        {
            *outcome = Outcome::Failed(shut);
        }
    }

    /// As many as `start` would: receives up to the number that may be armed.
    #[inline]
    fn to_start(&self) -> usize {
        if self.sweeps.on {
            return self.sends.waiting();
        }
        let room =
            |socket: &Associated| self.armed_count.now().saturating_sub(socket.armed) as usize;
        let receives = self.sockets.iter().map(|socket| socket.waiting.len().min(room(socket)));
        receives.sum::<usize>() + self.sends.waiting()
    }

    #[inline]
    fn ready(&self) -> bool {
        self.sends.has_settled()
    }

    #[inline]
    fn take_ready(&mut self, out: &mut Taken) {
        self.sends.take_settled(&self.sockets, out);
    }

    fn ending(&mut self) -> Ending {
        let Some((look, before)) = &mut self.ending else { return Ending::No };
        let outstanding = self.receives.len() + self.sends.len();
        if outstanding == 0 {
            return Ending::Over;
        }
        let found = mem::replace(before, outstanding) > outstanding;
        look.wait(found).map_or(Ending::Over, Ending::In)
    }

    fn entered(&mut self, submitted: u32, ready: u32) {
        self.armed_count.entered(submitted, ready);
    }

    fn arm(&mut self, arming: Arming) {
        self.sweeps.on = arming == Arming::None;
        if self.sweeps.on {
            self.sockets.iter_mut().for_each(|associated| associated.dry = false);
        }
    }

    fn is_swept_dry(&self) -> Option<bool> {
        self.sweeps.on.then(|| self.sockets.iter().all(|associated| associated.dry))
    }

    fn since_sweep(&self) -> Duration {
        let at = self.sweeps.at.filter(|_| self.sweeps.on);
        at.map_or(Duration::ZERO, |at| at.elapsed())
    }

    fn sweep(&mut self, submissions: &mut Submissions, _: &Counters) -> io::Result<Filled> {
        Ok(Filled::of(self.sweep_sockets(submissions)))
    }

    /// By looking for it, since this is rare.
    fn withdraw(&mut self, token: ring::Token) {
        self.sends.withdraw(token);
        for associated in &mut self.sockets {
            associated.waiting.retain(|&waiting| waiting != token);
        }
    }

    fn is_cancelled(&mut self, token: ring::Token) {
        if token.class() == SEND {
            self.sends.is_cancelled(token);
        } else if let Some(receive) = self.receives.get_mut(token) {
            receive.swept = false; // it comes back
        }
    }

    fn started(&self) -> u32 {
        self.started
    }

    fn stage(&mut self, token: ring::Token) -> Option<&mut Stage> {
        if token.class() == SEND {
            return self.sends.stage(token);
        }
        self.receives.get_mut(token).map(|receive| &mut receive.stage)
    }

    fn all_started(&self) -> Vec<ring::Token> {
        let receives = self.receives.iter().filter(|(_, receive)| receive.stage == Stage::Started);
        receives.map(|(token, _)| token).chain(self.sends.all_started()).collect()
    }

    /// What the kernel holds is leaked with its headers.
    unsafe fn give_up(mut self) -> (u32, u32) {
        let (mut returned, mut missing) = (0, 0);
        let receives: Vec<_> = self.receives.iter().map(|(token, _)| token).collect();
        let receives = receives.into_iter().filter_map(|token| self.receives.remove(token));
        let receives = receives.map(|receive| (receive.slice, receive.stage));
        let all = receives.chain(self.sends.take_all());
        for (slice, stage) in all {
            if stage == Stage::Started {
                missing += 1;
                slice.leak();
            } else {
                returned += 1;
            }
        }
        debug_assert_eq!(missing, self.started);
        if missing == 0 {
            // SAFETY: no operation is in the kernel's hands, and the caller vouches that none
            // will be.
            unsafe {
                self.receive_headers.free();
                self.sends.free();
            }
        }
        (returned, missing)
    }
}

/// What is told of a receive that has no source.
#[cold]
fn ended() -> Outcome {
    let problem = "receiving was ended on this socket";
    Outcome::Failed(io::Error::new(io::ErrorKind::ConnectionAborted, problem))
}

/// What a negative result means.
#[cold]
fn failed(result: i32, failed: impl FnOnce(io::Error) -> Outcome) -> Outcome {
    match is_interrupted(-result) {
        true => Outcome::Returned,
        false => failed(io::Error::from_raw_os_error(-result)),
    }
}
