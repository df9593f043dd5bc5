//! What the threads of a port share under its lock: the two halves of the ring, the operations, of
//! datagrams or of streams, packets, and cancels that wait for their turn.

use crate::{
    counters::Counters,
    port::{Finished, Packet, Token, arming::Arming},
    ring::{self, Alarm, Completions, QueueFull, Submissions},
    rio::Batch,
};
use io_uring::{opcode, squeue};
use std::{
    collections::{HashSet, VecDeque},
    io,
    sync::Arc,
    time::Duration,
};

/// Of a request that is no operation.
const ALARM: ring::Token = ring::Token::bare(4);

/// The operations of a port, of whatever kind: a slot for each that is outstanding.
pub(super) trait Outstanding: Send + Sized {
    /// What a take brings.
    type Completion: Finished;

    /// Puts into the submission queue whatever may start.
    fn start(&mut self, submissions: &mut Submissions) -> Result<(), QueueFull>;

    /// How many operations that would be.
    fn to_start(&self) -> usize;

    /// Ends the operation of a completion, and puts it into `out`, which has room for one. What is
    /// not ours, or is over already, is passed over.
    fn finish(&mut self, token: ring::Token, result: i32, out: &mut Batch<Self::Completion>);

    /// Whether there is anything to take that the kernel has no part in.
    fn ready(&self) -> bool {
        false
    }

    /// Moves that into `out`, as much as fits.
    fn take_ready(&mut self, out: &mut Batch<Self::Completion>) {
        let _ = out;
    }

    /// Takes note of an entry into the kernel: so many operations were submitted, and so many
    /// completions lay ready afterwards.
    fn entered(&mut self, submitted: u32, ready: u32) {
        let _ = (submitted, ready);
    }

    /// How far the end of receiving is, for whoever is about to wait.
    fn ending(&mut self) -> Ending {
        Ending::No
    }

    /// Whether what comes for receives ends a wait from now on. [`Arming::None`] is said before each wait that it does not
    /// end: what may be received is swept afterwards.
    fn arm(&mut self, arming: Arming) {
        let _ = arming;
    }

    /// Whether the last sweep left nothing; `None`: receives are armed.
    fn is_swept_dry(&self) -> Option<bool> {
        None
    }

    /// Whether to sweep before what has finished is taken, since there was always something of that.
    fn is_overdue(&self) -> bool {
        false
    }

    /// How long ago the last sweep was, where receives are swept: what has come since then waits.
    fn since_sweep(&self) -> Duration {
        Duration::ZERO
    }

    /// Puts into the submission queue receives that do not wait: they take what is there, and are over when they were
    /// submitted.
    ///
    /// # Errors
    /// What the system answered, where it is asked who has something.
    fn sweep(&mut self, submissions: &mut Submissions, counters: &Counters) -> io::Result<Filled> {
        let _ = (submissions, counters);
        Ok(Filled::All)
    }

    /// Where an operation is; `None`: it is over.
    fn stage(&mut self, token: ring::Token) -> Option<&mut Stage>;

    /// Takes an operation from the list it waits in.
    fn withdraw(&mut self, token: ring::Token);

    /// An operation in the kernel's hands is to be cancelled.
    fn is_cancelled(&mut self, token: ring::Token) {
        let _ = token;
    }

    /// How many are in the kernel's hands.
    fn started(&self) -> u32;

    /// Those in the kernel's hands.
    fn all_started(&self) -> Vec<ring::Token>;

    /// Gives up everything, and returns how many pieces of memory went back and how many the kernel
    /// holds. The latter are leaked, and slices counted in their region.
    ///
    /// # Safety
    /// Nothing will be submitted from now on.
    unsafe fn give_up(self) -> (u32, u32);
}

/// How far the end of receiving is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// Nobody has asked for it.
    No,
    /// Something is outstanding, which is waited for so long at most.
    In(Duration),
    Over,
}

/// Where an operation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The kernel does not know it.
    Waiting,
    /// It is in the kernel's hands.
    Started,
    /// It was cancelled while it waited.
    Returning,
}

pub(super) struct PortState<O> {
    pub submissions: Submissions,
    pub completions: Completions,
    pub operations: O,
    /// Packets not yet taken, in order.
    packets: VecDeque<Packet>,
    packets_most: usize,
    /// Whether packets go first in the next take: in turns with completions, so that neither
    /// starves the other.
    packets_first: bool,
    /// Ends the leader's wait. It is raised by writing to a descriptor: a thread that posts or
    /// closes does not enter the ring, which would make the kernel interrupt it later on.
    alarm: Arc<Alarm>,
    alarm_armed: bool,
    /// It was raised, and nobody has looked since.
    raised: bool,
    /// The leader waits in the kernel, or is about to.
    pub waiting: bool,
    /// The kernel keeps completions that found no room, as was seen and counted already.
    pub overflowing: bool,
    /// Operations that were cancelled before the kernel knew them: they come back through the
    /// queue like all others.
    returning: Vec<ring::Token>,
    /// Operations whose cancel found no room in the submission queue, or is left to whoever leads.
    cancels: Vec<ring::Token>,
    /// Operations whose cancel the kernel knows and has not answered: it is not asked for again until then.
    /// Bounded as operations are: the answer lies in the queue before whatever has the slot next.
    asked: HashSet<ring::Token>,
    pub closed: bool,
}

/// Whether the kernel took all there was to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Filled {
    All,
    /// The submission queue is full: submit, then fill again.
    QueueFull,
}

impl Filled {
    pub(super) fn of(pushed: Result<(), QueueFull>) -> Self {
        if pushed.is_ok() { Filled::All } else { Filled::QueueFull }
    }
}

impl<O: Outstanding> PortState<O> {
    /// For so many packets, and so many operations.
    pub(super) fn new(
        submissions: Submissions,
        completions: Completions,
        alarm: Arc<Alarm>,
        operations: O,
        packets: u32,
        outstanding: u32,
    ) -> Self {
        let (packets, outstanding) = (packets as usize, outstanding as usize);
        Self {
            submissions,
            completions,
            operations,
            packets: VecDeque::with_capacity(packets),
            packets_most: packets,
            packets_first: true,
            alarm,
            alarm_armed: false,
            raised: false,
            waiting: false,
            overflowing: false,
            returning: Vec::with_capacity(outstanding),
            cancels: Vec::with_capacity(outstanding),
            asked: HashSet::new(),
            closed: false,
        }
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
    /// and nobody has raised the alarm. The caller then does, without the lock.
    #[must_use]
    pub(super) fn must_ring(&mut self) -> bool {
        let must = self.waiting && !self.raised;
        self.raised |= must;
        must
    }

    /// Whether there is anything to take without waiting.
    pub(super) fn ready(&mut self) -> bool {
        !self.packets.is_empty() || self.operations.ready() || self.completions.len() > 0
    }

    /// How many entries at least would be submitted next, those that are not in the queue yet included.
    #[inline]
    pub(super) fn would_submit(&mut self) -> u32 {
        let waiting = self.operations.to_start() + self.returning.len() + self.cancels.len();
        self.submissions.pending().saturating_add(waiting as u32)
    }

    /// Puts into the submission queue whatever may start: what was cancelled, then what waits.
    #[inline]
    pub(super) fn fill(&mut self) -> Filled {
        Filled::of(self.push_all())
    }

    /// The same, and receives that take what is there.
    pub(super) fn fill_with_sweep(&mut self, counters: &Counters) -> io::Result<Filled> {
        match self.fill() {
            Filled::All => self.operations.sweep(&mut self.submissions, counters),
            Filled::QueueFull => Ok(Filled::QueueFull),
        }
    }

    /// Whether a packet waits to be taken. For one that was posted while nobody waited the alarm was not raised.
    pub(super) fn has_packets(&self) -> bool {
        !self.packets.is_empty()
    }

    /// Whether the alarm was raised, and nobody has looked since.
    pub(super) fn is_raised(&self) -> bool {
        self.raised
    }

    #[inline]
    fn push_all(&mut self) -> Result<(), QueueFull> {
        if !self.alarm_armed {
            // SAFETY: the alarm's entries point at a static.
            unsafe { self.submissions.push(&self.alarm.entries(ALARM)) }?;
            self.alarm_armed = true;
        }
        if !self.returning.is_empty() || !self.cancels.is_empty() {
            self.push_cancelled()?;
        }
        self.operations.start(&mut self.submissions)
    }

    #[cold]
    fn push_cancelled(&mut self) -> Result<(), QueueFull> {
        while let Some(&token) = self.returning.last() {
            self.push_no_op(token)?;
            self.returning.pop();
        }
        self.push_cancels()
    }

    /// Puts cancels that are not there yet into the submission queue.
    pub(super) fn push_cancels(&mut self) -> Result<(), QueueFull> {
        while let Some(&token) = self.cancels.last() {
            let entry = opcode::AsyncCancel::new(token.user_data()).build();
            self.push_harmless(entry.user_data(token.of_its_cancel().user_data()))?;
            self.asked.insert(token);
            self.cancels.pop();
        }
        Ok(())
    }

    /// Has these cancelled by whoever leads.
    pub(super) fn cancel_later(&mut self, started: Vec<ring::Token>) {
        let asked = &self.asked;
        self.cancels.extend(started.into_iter().filter(|token| !asked.contains(token)));
    }

    pub(super) fn push_no_op(&mut self, token: ring::Token) -> Result<(), QueueFull> {
        self.push_harmless(opcode::Nop::new().build().user_data(token.user_data()))
    }

    /// For entries that point at nothing.
    fn push_harmless(&mut self, entry: squeue::Entry) -> Result<(), QueueFull> {
        // SAFETY: no-ops and cancels, which are what this is for, point at nothing.
        unsafe { self.submissions.push(&[entry]) }
    }

    /// Moves packets and completions into `out`, as many as fit, and returns how many.
    #[inline]
    pub(super) fn reap(&mut self, out: &mut Batch<O::Completion>) -> usize {
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

    fn reap_packets(&mut self, out: &mut Batch<O::Completion>) {
        let fit = self.packets.len().min(out.room());
        self.packets.drain(..fit).for_each(|packet| out.push(packet.into()));
    }

    #[inline]
    fn reap_operations(&mut self, out: &mut Batch<O::Completion>) {
        self.operations.take_ready(out);
        let mut queue = self.completions.take();
        while out.room() > 0 {
            let Some(entry) = queue.next() else { break };
            let token = ring::Token::from_user_data(entry.user_data());
            if token == ALARM {
                self.alarm.reset();
                (self.alarm_armed, self.raised) = (false, false);
            } else if let Some(cancelled) = token.cancelled() {
                self.asked.remove(&cancelled);
            } else {
                self.operations.finish(token, entry.result(), out);
            }
        }
    }

    /// Has every operation cancelled that is, whether that was asked for before or not.
    pub(super) fn forget_asked(&mut self) {
        self.asked.clear();
    }

    /// Asks for an operation to be cancelled. `false`: it is over.
    pub(super) fn cancel(&mut self, token: Token, counters: &Counters) -> bool {
        let token = ring::Token::from_user_data(token.0);
        match self.operations.stage(token) {
            None => return false,
            Some(Stage::Returning) => {}
            Some(stage @ Stage::Waiting) => {
                *stage = Stage::Returning;
                self.operations.withdraw(token);
                self.returning.push(token);
                let _ = self.fill();
                // What the kernel answers is met again by whoever leads.
                let _ = self.submissions.submit(counters);
            }
            Some(Stage::Started) => {
                self.operations.is_cancelled(token);
                if self.asked.contains(&token) || self.cancels.contains(&token) {
                    return true;
                }
                match self.submissions.cancel(token, token.of_its_cancel(), counters) {
                    Ok(()) => drop(self.asked.insert(token)),
                    Err(_) => self.cancels.push(token),
                }
            }
        }
        true
    }

    /// Gives up everything, and returns how many pieces of memory went back and how
    /// many the kernel holds.
    pub(super) fn give_up(self) -> (u32, u32) {
        let Self { operations, submissions, completions, .. } = self;
        // The only way to submit goes first. What lies in the submission queue counts as started.
        drop((submissions, completions));
        // SAFETY: there are no submissions any more.
        unsafe { operations.give_up() }
    }
}
