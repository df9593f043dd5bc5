//! Dequeuing: what completed, arming what ended, waiting.
//!
//! Each socket has one multishot receive under way. It ends when no buffer is left, with a
//! zero-byte datagram, with an error, and when completions found no room; then it is armed
//! again, here and by nobody else.

use super::{
    common::{Common, GROUP, class},
    requests::UringRequests,
};
use crate::{
    counters::Counters,
    ring::{Attention, Completions, Slots, Token},
    rio::{
        Batch, Completion, CompletionQueue, Outcome, Stopped, Woken,
        sharing::{Count as _, Shared as _, Sharing},
    },
    wake::Waker,
};
use io_uring::{cqueue, opcode, squeue, types};
use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

/// Arm a poll before trying to receive: at the start there is no buffer yet, and that is no
/// reason to end the receive (IORING_RECVSEND_POLL_FIRST of the kernel's headers).
const POLL_FIRST: u16 = 1 << 0;

/// The completion queue of all sockets of one ring.
pub struct UringCompletions<T: Sharing> {
    pub(super) common: Arc<Common<T>>,
    pub(super) completions: Completions,
    /// The receive of each socket that has one; the value is the socket.
    pub(super) receives: Slots<u32>,
    /// Sockets whose receive ended.
    pub(super) disarmed: Vec<u32>,
    pub(super) alarm_armed: bool,
    /// Buffers that came back during one dequeue.
    ids: Vec<u16>,
    /// There were completions that found no room when last looked.
    overflowing: bool,
    /// Cancels of ours that are not over.
    pub(super) cancels: u32,
}

/// What was found in the queue by one look.
#[derive(Default)]
pub(super) struct Found {
    completions: usize,
    received: usize,
    failed: Option<io::Error>,
}

impl<T: Sharing> UringCompletions<T> {
    /// Arms a receive for each socket, from the calling thread.
    pub(super) fn start(
        common: Arc<Common<T>>,
        completions: Completions,
        counters: &Counters,
    ) -> io::Result<Self> {
        let sockets = common.sockets.len() as u32;
        let window = common.buffers.with(|buffers| buffers.window());
        let mut queue = Self {
            common,
            completions,
            receives: Slots::new(class::RECEIVE, sockets as usize),
            disarmed: (0..sockets).collect(),
            alarm_armed: false,
            ids: Vec::with_capacity(window as usize),
            overflowing: false,
            cancels: 0,
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

    /// Whether there is something to receive into. If not, whoever posts next rings the alarm;
    /// rings of before are forgotten here, and only before that is asked: one that was told in
    /// the question and forgotten after it would never be heard.
    pub(super) fn can_receive(&mut self, how: u16) -> bool {
        let Self { common, disarmed, alarm_armed, .. } = self;
        if !*alarm_armed {
            common.alarm.reset();
        }
        how == POLL_FIRST
            || (!disarmed.is_empty() && common.buffers.with(|buffers| buffers.ready()))
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
            let mut push = |entries: &[squeue::Entry]| {
                // SAFETY: the message header and the alarm's time never move, and a buffer is
                // given back only after the receive is over.
                if unsafe { submissions.push(entries) }.is_ok() {
                    return Ok(true);
                }
                submissions.submit(counters)?;
                // SAFETY: as above.
                io::Result::Ok(unsafe { submissions.push(entries) }.is_ok())
            };
            if !*alarm_armed {
                *alarm_armed = push(&common.alarm.entries(Token::bare(class::ALARM)))?;
            }
            while can_receive && let Some(&socket) = disarmed.last() {
                let token = receives.insert(socket).expect("a socket has one receive at a time");
                let fd = types::Fd(common.sockets[socket as usize].native().fd());
                let entry = opcode::RecvMsgMulti::new(fd, common.message.as_ptr(), GROUP)
                    .ioprio(how)
                    .build()
                    .user_data(token.user_data());
                match push(&[entry]) {
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

    /// Moves what lies in the completion queue into `out`, as far as there is room.
    #[inline]
    pub(super) fn look(&mut self, out: &mut Batch, counters: &Counters) -> Found {
        let mut found = Found::default();
        let Self { common, completions, receives, disarmed, ids, .. } = self;
        let mut queue = completions.take();
        while out.room() > 0 {
            let Some(entry) = queue.next() else { break };
            found.completions += 1;
            let token = Token::from_user_data(entry.user_data());
            let (result, flags) = (entry.result(), entry.flags());
            if token.class() != class::RECEIVE {
                let Some(completion) = settle_other(common, token, result) else {
                    self.alarm_armed &= token.class() != class::ALARM;
                    self.cancels -= u32::from(token.class() == class::CANCEL);
                    continue;
                };
                out.push(completion);
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
            let socket = receives.get(token).copied();
            if !cqueue::more(flags)
                && let Some(socket) = receives.remove(token)
            {
                disarmed.push(socket);
            }
            let Some(slice) = slice else {
                if result < 0 {
                    found.failed = count_failure(-result, counters).or(found.failed);
                }
                continue;
            };
            let outcome = match socket {
                None => Outcome::Returned,
                Some(_) if result < 0 => Outcome::Failed(io::Error::from_raw_os_error(-result)),
                Some(_) => {
                    found.received += 1;
                    Outcome::Received(common.frame.arrival(&slice, result as u32))
                }
            };
            out.push(Completion { slice, socket: socket.unwrap_or(0), outcome });
        }
        drop(queue);
        if !ids.is_empty() {
            common.receives_out.take_off(ids.len() as u32);
            common.buffers.with(|buffers| buffers.came_back(ids, &common.table));
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

    /// Takes whatever completed, and lets its slices go.
    pub(super) fn discard(&mut self, batch: &mut Batch, counters: &Counters) -> u32 {
        let mut count = 0;
        while self.look(batch, counters).completions > 0 {
            count += batch.drain().count() as u32;
        }
        count
    }
}

/// What a completion means that is not a receive's: a send's slice comes back.
fn settle_other<T: Sharing>(common: &Common<T>, token: Token, result: i32) -> Option<Completion> {
    // SAFETY: this is the last completion of that send, and its slice is of this region.
    let (slice, socket) =
        common.sends.with(|sends| unsafe { sends.over(token, &common.region) })?;
    common.sends_out.take_off(1);
    let outcome = if result < 0 {
        Outcome::NotSent(io::Error::from_raw_os_error(-result))
    } else {
        Outcome::Sent(result as usize)
    };
    Some(Completion { slice, socket, outcome })
}

/// Counts a receive that ended without a slice; answers the error if it is one that arming
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
        let entered = self.arm_again(counters)?;
        let mut found = self.look(out, counters);
        if found.completions == 0 && !entered && self.enter_if_useful(counters)? {
            found = self.look(out, counters);
        }
        match found.failed {
            None => Ok(found.received),
            Some(error) => Err(error),
        }
    }

    fn wait(
        &mut self,
        at_least: u32,
        timeout: Option<Duration>,
        counters: &Counters,
    ) -> io::Result<Woken> {
        self.arm_again(counters)?;
        self.attention(counters)?;
        let Self { common, completions, .. } = self;
        common.alarm.wait(&common.ring, completions, at_least, timeout, counters)
    }

    fn waker(&self) -> Waker {
        self.common.alarm.waker()
    }

    fn stop(self, requests: Vec<Self::Rq>, by: Instant) -> Stopped {
        super::stop::stop(self, requests, by)
    }
}
