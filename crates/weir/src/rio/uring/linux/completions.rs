//! Dequeuing: what completed, arming what ended, waiting.
//!
//! Each socket has one multishot receive under way. It ends when no buffer is left, with a
//! zero-byte datagram, with an error, and when completions found no room; then it is armed
//! again, here and by nobody else.
//!
//! Under load no receive stays armed: each dequeue *sweeps* instead (see `sweep` here, and
//! `sweeping`). Receives are armed again before a wait, and when sweeps stay dry.

pub(super) mod ends_of_peers;
mod sweep;

use super::{
    common::{Common, GROUP, class},
    forget_then_ask::forget_then_ask,
    requests::UringRequests,
    sends::{Cut, Over, Sends},
    sweeping::Sweeping,
};
use crate::{
    counters::Counters,
    memory::{Posted, Slice},
    ring::{Attention, Completions, Slots, Submissions, Token},
    rio::{
        Batch, Completion, CompletionQueue, Outcome, Stopped, Watched, Woken,
        sharing::{Count as _, Shared as _, Sharing},
    },
    socket::{DatagramSocket, native::MOST_JOINED},
    wake::Waker,
};
use ends_of_peers::EndsOfPeers;
use io_uring::{cqueue, opcode, squeue, types};
use std::{
    collections::VecDeque,
    io,
    sync::Arc,
    time::{Duration, Instant},
};

/// Arm a poll before trying to receive: at the start there is no buffer yet, and that is no
/// reason to end the receive (IORING_RECVSEND_POLL_FIRST of the kernel's headers).
const POLL_FIRST: u16 = 1 << 0;

/// A receive under way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Receive {
    pub(super) socket: u32,
    pub(super) kind: Kind,
}

/// What ends a receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nothing but what ends a multishot receive: it is the socket's.
    Armed,
    /// It never waits.
    Sweep,
}

/// The completion queue of all sockets of one ring.
pub struct UringCompletions<T: Sharing> {
    pub(super) common: Arc<Common<T>>,
    pub(super) completions: Completions,
    /// What is under way: for each socket a receive that waits, or sweeps.
    pub(super) receives: Slots<Receive>,
    /// Sockets whose receive ended.
    pub(super) disarmed: Vec<u32>,
    /// `None` where receives stay armed under load, too.
    sweeping: Option<Sweeping>,
    pub(super) alarm_armed: bool,
    /// Buffers that came back during one dequeue.
    ids: Vec<u16>,
    /// Those of them that nothing was received into.
    unused: Vec<Posted>,
    /// Requests to be cancelled: kept for its room.
    pub(super) tokens: Vec<Token>,
    /// There were completions that found no room when last looked.
    overflowing: bool,
    /// Cancels of ours that are not over.
    pub(super) cancels: u32,
    /// Nothing more is received: others have the sockets.
    ended: bool,
    /// Of each socket; empty where none asked to hear of such errors.
    pub(super) ends_of_peers: Box<[EndsOfPeers]>,
    /// Sends of one message that are over and found no room yet.
    settled: VecDeque<Completion>,
}

/// What was found in the queue by one look.
#[derive(Default)]
pub(super) struct Found {
    completions: usize,
    /// Slices that came with something, and how many datagrams that is.
    received: usize,
    datagrams: usize,
    /// A sweep ended because nothing was left in its socket.
    emptied: bool,
    /// A sweep ended because no buffer was left.
    starved: bool,
    /// A receive ended with an error that a peer reported: datagrams may lie behind it.
    of_peer: bool,
    failed: Option<io::Error>,
}

impl Found {
    /// What one look found and the next.
    fn and(self, next: Self) -> Self {
        Self {
            completions: self.completions + next.completions,
            received: self.received + next.received,
            datagrams: self.datagrams + next.datagrams,
            emptied: self.emptied || next.emptied,
            starved: self.starved || next.starved,
            of_peer: self.of_peer || next.of_peer,
            failed: self.failed.or(next.failed),
        }
    }
}

impl<T: Sharing> UringCompletions<T> {
    /// Arms a receive for each socket, from the calling thread. `sweeps`: they do not stay armed under load.
    pub(super) fn start(
        common: Arc<Common<T>>,
        completions: Completions,
        sweeps: bool,
        counters: &Counters,
    ) -> io::Result<Self> {
        let sockets = common.sockets.len() as u32;
        let sweeping = sweeps.then(|| Sweeping::new(common.needs.per_dequeue));
        // Beside the one that waits.
        let most = sweeping.as_ref().map_or(0, Sweeping::most);
        let window = common.with_buffers(|buffers| buffers.window()).0;
        let hears = common.sockets.iter().any(DatagramSocket::hears_errors);
        let ends_of_peers = vec![EndsOfPeers::default(); if hears { sockets as usize } else { 0 }];
        let mut queue = Self {
            common,
            completions,
            receives: Slots::new(class::RECEIVE, (sockets * (1 + most)) as usize),
            disarmed: (0..sockets).collect(),
            sweeping,
            alarm_armed: false,
            ids: Vec::with_capacity(window as usize),
            unused: Vec::with_capacity((sockets * most) as usize),
            tokens: Vec::with_capacity(sockets as usize),
            overflowing: false,
            cancels: 0,
            ended: false,
            ends_of_peers: ends_of_peers.into(),
            settled: VecDeque::with_capacity(MOST_JOINED),
        };
        queue.arm(POLL_FIRST, counters)?;
        Ok(queue)
    }

    /// Arms whatever ended, and submits that. Returns whether it entered the kernel.
    #[inline]
    fn arm_again(&mut self, counters: &Counters) -> io::Result<bool> {
        if self.alarm_armed && self.disarmed.is_empty() {
            return Ok(false);
        }
        self.arm(0, counters)
    }

    #[cold]
    fn arm(&mut self, how: u16, counters: &Counters) -> io::Result<bool> {
        let can_receive = self.can_receive(how);
        self.submit_arms(how, can_receive, counters)
    }

    /// Whether there is something to receive into. If not, whoever posts next raises the alarm.
    pub(super) fn can_receive(&mut self, how: u16) -> bool {
        let Self { common, disarmed, alarm_armed, ended, .. } = self;
        let forget = || {
            if !*alarm_armed {
                common.alarm.reset();
            }
        };
        forget_then_ask(forget, || {
            !*ended && (how == POLL_FIRST || (!disarmed.is_empty() && common.has_buffers()))
        })
    }

    /// Arms the alarm, and the receives if there is something to receive into.
    pub(super) fn submit_arms(
        &mut self,
        how: u16,
        can_receive: bool,
        counters: &Counters,
    ) -> io::Result<bool> {
        let Self { common, receives, disarmed, alarm_armed, .. } = self;
        if *alarm_armed && !can_receive {
            return Ok(false);
        }
        // Submitted under the same guard: the thread that submits a receive is the one whose
        // task copies, and that must be this one.
        let before = counters.kernel_entries.get();
        common.submissions.with(|submissions| {
            if !*alarm_armed {
                let entries = common.alarm.entries(Token::bare(class::ALARM));
                // SAFETY: the alarm's time is static, and its wake event lives as long as the ring.
                *alarm_armed = unsafe { push(submissions, &entries, counters) }?;
            }
            while can_receive && let Some(&socket) = disarmed.last() {
                let receive = Receive { socket, kind: Kind::Armed };
                let token = receives.insert(receive).expect("a socket has one that waits");
                let entry = receive_entry(common, socket, token, how, 0);
                // SAFETY: see `receive_entry`.
                match unsafe { push(submissions, &[entry], counters) } {
                    Ok(true) => disarmed.pop(),
                    refused => {
                        receives.remove(token);
                        refused?;
                        break;
                    }
                };
            }
            submissions.submit(counters)
        })?;
        Ok(counters.kernel_entries.get() > before)
    }

    #[inline]
    fn dequeue_once(&mut self, out: &mut Batch, counters: &Counters) -> io::Result<Found> {
        match &self.sweeping {
            Some(sweeping) if sweeping.on() => self.dequeue_sweeping(out, counters),
            _ => self.dequeue_armed(out, counters),
        }
    }

    #[inline]
    fn dequeue_armed(&mut self, out: &mut Batch, counters: &Counters) -> io::Result<Found> {
        let entered = self.arm_again(counters)?;
        let mut found = self.look(out, counters);
        if found.completions == 0 && !entered && self.enter_if_useful(counters)? {
            found = self.look(out, counters);
        }
        if let Some(sweeping) = &mut self.sweeping {
            sweeping.not_swept(found.received as u32);
        }
        Ok(found)
    }

    /// Moves what lies in the completion queue into `out`, as far as there is room.
    #[inline]
    pub(super) fn look(&mut self, out: &mut Batch, counters: &Counters) -> Found {
        let mut found = Found::default();
        let Self { common, completions, receives, disarmed, ids, unused, settled, .. } = self;
        found.completions += move_settled(settled, out);
        let ends_of_peers = &mut self.ends_of_peers;
        let mut queue = completions.take();
        while out.room() > 0 {
            let Some(entry) = queue.next() else { break };
            found.completions += 1;
            let token = Token::from_user_data(entry.user_data());
            let (result, flags) = (entry.result(), entry.flags());
            if token.class() != class::RECEIVE {
                if token.class() == class::SEND {
                    settle_sends(common, token, result, settled, counters);
                    move_settled(settled, out);
                }
                self.alarm_armed &= token.class() != class::ALARM;
                self.cancels -= u32::from(token.class() == class::CANCEL);
                continue;
            }
            // A buffer comes back whatever became of the receive, stale tokens included.
            let slice = cqueue::buffer_select(flags).and_then(|id| {
                // SAFETY: the kernel says that it is done with this buffer.
                let slice = unsafe { common.table.take(id, &common.region) };
                if slice.is_some() {
                    ids.push(id);
                } else {
                    found.failed = Some(named_twice(id));
                }
                slice
            });
            let receive = receives.get(token).copied();
            let socket = receive.map(|receive| receive.socket);
            if !cqueue::more(flags)
                && let Some(Receive { socket, kind: Kind::Armed }) = receives.remove(token)
            {
                disarmed.push(socket);
            }
            if let Some(Receive { kind: Kind::Sweep, .. }) = receive
                && (result == -libc::EAGAIN || result == -libc::ENOBUFS)
            {
                found.emptied |= result == -libc::EAGAIN;
                if result == -libc::ENOBUFS && !std::mem::replace(&mut found.starved, true) {
                    counters.no_buffer.one();
                }
                // Before Linux 6.18 a receive that found nothing had taken a buffer for it.
                unused.extend(slice.map(Slice::post));
                continue;
            }
            if let Some(socket) = socket
                && result < 0
                && let native = common.sockets[socket as usize].native()
                && native.note_error(-result)
            {
                found.of_peer = true;
                if ends_of_peers[socket as usize].one_more(native.errors_taken()) {
                    found.failed = Some(io::Error::from_raw_os_error(-result));
                }
                unused.extend(slice.map(Slice::post));
                continue;
            }
            let Some(mut slice) = slice else {
                if result < 0 {
                    found.failed = count_failure(-result, counters).or(found.failed);
                }
                continue;
            };
            if let Some(socket) = socket
                && result >= 0
            {
                if let Some(of_peers) = ends_of_peers.get_mut(socket as usize) {
                    of_peers.ends = 0;
                }
                let received = common.frame.received(&mut slice, result as u32);
                found.received += 1;
                found.datagrams += received.datagrams();
                out.push(Completion { slice, socket, outcome: Outcome::Received(received) });
                continue;
            }
            let outcome = match socket {
                None => Outcome::Returned,
                Some(_) => Outcome::Failed(io::Error::from_raw_os_error(-result)),
            };
            out.push(Completion { slice, socket: socket.unwrap_or(0), outcome });
        }
        drop(queue);
        if !ids.is_empty() {
            common.receives_out.take_off((ids.len() - unused.len()) as u32);
            common.with_buffers(|buffers| {
                buffers.came_back(ids, &common.table);
                if !unused.is_empty() {
                    buffers.post(unused, &common.table);
                }
            });
        }
        found
    }

    /// Asks what the kernel says beside its queues, and submits what it would not take the first
    /// time. `None` where another thread submits just now: that brings the same as an entry.
    #[inline]
    fn attention(&mut self, counters: &Counters) -> io::Result<Option<Attention>> {
        let attention = self.common.submissions.try_with(|submissions| {
            if submissions.pending() > 0 {
                submissions.submit(counters)?;
            }
            io::Result::Ok(submissions.attention())
        });
        let attention = attention.transpose()?;
        if let Some(Attention { overflow, .. }) = attention {
            // The kernel does not tell how many found no room: each time that some did counts.
            counters.overflows.add(u64::from(overflow && !self.overflowing));
            self.overflowing = overflow;
        }
        Ok(attention)
    }

    /// Enters the kernel if it says that this brings something. Returns whether it did.
    #[inline]
    fn enter_if_useful(&mut self, counters: &Counters) -> io::Result<bool> {
        match self.attention(counters)? {
            Some(Attention { task_work, overflow }) if task_work || overflow => {}
            _ => return Ok(false),
        }
        counters.kernel_entries.one();
        self.common.ring.enter(0, 0, None, false)?;
        Ok(true)
    }

    /// Prepares a wait: receives are armed. `true`: sends are over, and nothing more will tell of them.
    fn prepare(&mut self, counters: &Counters) -> io::Result<bool> {
        if !self.settled.is_empty() {
            return Ok(true);
        }
        if let Some(sweeping) = &mut self.sweeping {
            sweeping.stop();
        }
        self.arm_again(counters)?;
        self.attention(counters)?;
        Ok(false)
    }

    /// Sweeps from the next dequeue on, whatever the load, until it has been dry for a while.
    /// Returns whether this queue ever does.
    pub(super) fn sweep_from_now_on(&mut self) -> bool {
        self.sweeping.as_mut().map(Sweeping::begin).is_some()
    }

    /// Whether nothing is armed while datagrams gather. Else each would have the thread woken that armed a receive,
    /// unless its work is deferred: that is put off until enough of it has come together.
    fn gathers_by_sweeping(&self) -> bool {
        self.sweeping.is_some() && !self.common.ring.defers()
    }

    /// Whether the next dequeue sweeps.
    pub(super) fn sweeps(&self) -> bool {
        self.sweeping.as_ref().is_some_and(Sweeping::on)
    }

    /// Takes whatever completed, and lets its slices go.
    pub(super) fn discard(&mut self, batch: &mut Batch, counters: &Counters) -> u32 {
        let mut count = 0;
        while self.look(batch, counters).completions > 0 {
            count += batch.drain().count() as u32;
        }
        count
    }
}

/// A multishot receive. The header it names never moves while requests are under way, and a
/// buffer is given back only after the receive is over.
fn receive_entry<T: Sharing>(
    common: &Common<T>,
    socket: u32,
    token: Token,
    how: u16,
    flags: u32,
) -> squeue::Entry {
    let fd = types::Fd(common.sockets[socket as usize].native().fd());
    opcode::RecvMsgMulti::new(fd, common.message.as_ptr(), GROUP)
        .ioprio(how)
        .flags(flags)
        .build()
        .user_data(token.user_data())
}

/// Adds entries, and submits what is there to make room. Returns whether there was room.
///
/// # Safety
/// As for [`Submissions::push`].
pub(super) unsafe fn push(
    submissions: &mut Submissions,
    entries: &[squeue::Entry],
    counters: &Counters,
) -> io::Result<bool> {
    // SAFETY: the caller vouches for what the entries point at.
    if unsafe { submissions.push(entries) }.is_ok() {
        return Ok(true);
    }
    submissions.submit(counters)?;
    // SAFETY: as above.
    Ok(unsafe { submissions.push(entries) }.is_ok())
}

/// Moves sends that are over into `out`, as far as there is room, and says how many.
#[inline]
fn move_settled(settled: &mut VecDeque<Completion>, out: &mut Batch) -> usize {
    let count = settled.len().min(out.room());
    settled.drain(..count).for_each(|completion| out.push(completion));
    count
}

/// The end of a message: its slices come back, behind those in `settled`.
fn settle_sends<T: Sharing>(
    common: &Common<T>,
    token: Token,
    result: i32,
    settled: &mut VecDeque<Completion>,
    counters: &Counters,
) {
    let mut result = result;
    if result < 0 {
        result = common.sends.with(|sends| send_again(common, sends, token, result, counters));
    }
    let cut = common.sends.with(|sends| sends.cut(token));
    let mut next = Some(token);
    let before = settled.len();
    while let Some(token) = next {
        // SAFETY: this is the last completion of that message, and its slices are of this region.
        let over = common.sends.with(|sends| unsafe { sends.over(token, &common.region) });
        let Some(over) = over else { break };
        next = over.next;
        let outcome = match cut {
            _ if result >= 0 => Outcome::Sent(over.span),
            None => Outcome::NotSent(io::Error::from_raw_os_error(-result).into()),
            Some(cut) => {
                let socket = &common.sockets[over.socket as usize];
                if settled.len() == before && next.is_some() {
                    let refused = io::Error::from_raw_os_error(-result);
                    socket.native().not_joined(&refused, Some(cut.segment));
                }
                send_each(socket, &over, &cut, counters)
            }
        };
        settled.push_back(Completion { slice: over.slice, socket: over.socket, outcome });
    }
    common.sends_out.take_off((settled.len() - before) as u32);
}

/// Makes a send again that met an error that a peer reported of another one. Returns its result.
#[cold]
fn send_again<T: Sharing>(
    common: &Common<T>,
    sends: &Sends,
    token: Token,
    result: i32,
    counters: &Counters,
) -> i32 {
    let Some((message, socket)) = sends.message(token) else { return result };
    let native = common.sockets[socket as usize].native();
    if !native.note_error(-result) {
        return result;
    }
    // SAFETY: the message was prepared for this send, which is not over, so it points at its slices.
    match unsafe { native.send_message(message, counters) } {
        Ok(()) => 0,
        Err(e) => -e.raw_os_error().unwrap_or(libc::EIO),
    }
}

/// Sends the datagrams one by one of a slice that the kernel did not take as one, or not with others.
#[cold]
fn send_each(socket: &DatagramSocket, over: &Over, cut: &Cut, counters: &Counters) -> Outcome {
    let Over { slice, span, .. } = over;
    let bytes = &slice.payload()[..span.len];
    match socket.send_each(bytes, cut.segment, &cut.to, counters) {
        Ok(()) => Outcome::Sent(*span),
        Err(unsent) => Outcome::NotSent(unsent),
    }
}

/// Counts a receive that ended without a slice; returns the error if it is one that arming
/// again may not cure. An error that came by ICMP is none, and a lack of memory passes: these are
/// the ones that a design which receives by itself survives, too.
#[cold]
pub(super) fn count_failure(errno: i32, counters: &Counters) -> Option<io::Error> {
    match errno {
        libc::ENOBUFS => counters.no_buffer.one(),
        // By us at the stop, or because the thread that armed it is gone: the next one arms it.
        libc::ECANCELED => {}
        libc::EINTR | libc::EAGAIN => {}
        libc::ECONNREFUSED
        | libc::ECONNRESET
        | libc::EHOSTUNREACH
        | libc::ENETUNREACH
        | libc::ENOMEM => counters.receive_errors.one(),
        // Armed again, a lasting one would fail at once, without end.
        _ => return Some(io::Error::from_raw_os_error(errno)),
    }
    None
}

#[cold]
fn named_twice(id: u16) -> io::Error {
    io::Error::other(format!("the kernel gave back buffer {id}, which it does not hold"))
}

impl<T: Sharing> CompletionQueue for UringCompletions<T> {
    type Rq = UringRequests<T>;

    #[inline]
    fn dequeue(&mut self, out: &mut Batch, counters: &Counters) -> io::Result<usize> {
        let mut found = self.dequeue_once(out, counters)?;
        if found.of_peer && found.failed.is_none() && out.is_empty() {
            // Else a flood of errors could keep the datagrams behind them waiting.
            found = self.dequeue_once(out, counters)?;
        }
        match found.failed {
            None => Ok(found.datagrams),
            Some(error) => Err(error),
        }
    }

    fn wait(
        &mut self,
        at_least: u32,
        timeout: Option<Duration>,
        counters: &Counters,
    ) -> io::Result<Woken> {
        if self.prepare(counters)? {
            return Ok(Woken::Ready);
        }
        let Self { common, completions, .. } = self;
        common.alarm.wait(&common.ring, completions, at_least, timeout, counters)
    }

    fn gather(&mut self, enough: u32, at_most: Duration, counters: &Counters) -> io::Result<Woken> {
        if !self.settled.is_empty() {
            return Ok(Woken::Ready);
        }
        let sweeps = self.gathers_by_sweeping();
        if sweeps {
            if self.receives.len() > 0 && self.cancels == 0 {
                self.cancel_all(counters);
            }
            self.can_receive(0); // forgets past alarms
            self.submit_arms(0, false, counters)?;
            self.sweep_from_now_on();
        } else {
            if let Some(sweeping) = &mut self.sweeping {
                sweeping.stop();
            }
            self.arm_again(counters)?;
        }
        self.attention(counters)?;
        let Self { common, completions, .. } = self;
        // What is swept brings no completion by itself, which a sleep could be ended by.
        let sleep_on = !sweeps;
        common.alarm.gather(&common.ring, completions, enough, at_most, sleep_on, counters)
    }

    fn gathers(&self) -> String {
        let ring = &self.common.ring;
        let wait = match (self.gathers_by_sweeping(), ring.has_minimum_wait()) {
            (true, _) => "io_uring_enter with a time-out",
            (false, true) => "io_uring_enter with a minimum wait",
            (false, false) => "io_uring_enter with a time-out (this kernel has no minimum wait)",
        };
        let receives = if self.gathers_by_sweeping() {
            "no receive is armed meanwhile, and a sweep takes what has come"
        } else if ring.defers() {
            "datagrams stay in the socket meanwhile, so only the time ends it"
        } else if ring.has_kernel_thread() {
            "the kernel's thread receives meanwhile"
        } else {
            "the kernel interrupts the sleep for each datagram, to receive it"
        };
        format!("{wait}; {receives}")
    }

    fn may_have_left(&self) -> bool {
        self.sweeping.as_ref().is_some_and(Sweeping::may_have_left)
    }

    fn waker(&self) -> Waker {
        self.common.alarm.waker()
    }

    fn end_receiving(&mut self, counters: &Counters) -> io::Result<bool> {
        self.ended = true;
        // Sweeps are over when they have been submitted; what waits is cancelled.
        if self.receives.len() > 0 && self.cancels == 0 {
            self.cancel_all(counters);
            self.common.submissions.with(|submissions| submissions.submit(counters))?;
        }
        Ok(self.receives.len() > 0)
    }

    fn watched(&self) -> Vec<Watched> {
        vec![Watched::ring(&self.common.ring)]
    }

    fn prepare_to_wait(&mut self, counters: &Counters) -> io::Result<bool> {
        Ok(self.prepare(counters)? || self.completions.len() > 0)
    }

    fn stop(self, requests: Vec<Self::Rq>, by: Instant) -> Stopped {
        self.end(requests, by)
    }
}
