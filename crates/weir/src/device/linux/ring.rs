//! A queue of I/Os on io_uring.
//!
//! What was started is given to the kernel with the next take, all of it by one entry, which also waits.
//! A device that answers at once has then answered everything, and the completions are read from
//! memory. With a thread of the kernel (SQPOLL) there is no entry at all while both sides are busy.
//!
//! Origin: io_uring, Linux 5.1; IORING_OP_READ and WRITE, 5.6; the same FIXED and tables of files, 5.1; this one needs
//! 5.17 (completions that are skipped, which its alarm uses).

use super::{
    Descriptor, Sources, nothing, outcome,
    under_way::{self, ALARM, ASK_AGAIN, Cancels, IO},
};
use crate::{
    Error, Unavailable,
    affinity::allowed_cores,
    counters::Counters,
    deadline::LastLook,
    device::{
        io::{Issue, MOST_DEPTH, Operation, Outcome, PATIENCE, Queue, Shape},
        kind::Direction,
    },
    memory::{Layout, Region, RegionOptions, Slice},
    ring::{self, Alarm, Completions, Entered, Ring, Slots, Submissions, Token, Wanted},
    rio::Woken,
    wake::Waker,
};
use io_uring::{opcode, squeue, types};
use nix::unistd::{SysconfVar, sysconf};
use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

/// The first Linux that it runs on.
pub(super) const KERNEL: &str = "5.17";

/// What a proof on a ring says of it: whether it is there, and why not.
pub(super) fn proved(
    what: &str,
    prove: impl FnOnce() -> Result<(), Error> + Send,
) -> Result<(), Unavailable> {
    ring::proved(|| prove().map_err(|error| error.into_reason(what)))
}

/// A queue on a ring of its own.
#[derive(Debug)]
pub struct RingQueue {
    ring: Arc<Ring>,
    submissions: Submissions,
    completions: Completions,
    alarm: Alarm,
    shape: Shape,
    descriptor: Arc<Descriptor>,
    sources: Sources,
    region: Arc<Region>,
    /// I/Os under way.
    slots: Slots<Issue>,
    /// The memory of each slot: an I/O that is under way has left it to the kernel.
    slices: Vec<Slice>,
    /// What the kernel is given of each slot. It is written here and copied into the ring with its whole batch:
    /// an entry that is copied just after its parts were stored makes the processor wait for them, 10 ns each time.
    entries: Vec<squeue::Entry>,
    /// Slots of what was started and is not in the ring yet, in order.
    started: Vec<u32>,
    /// The place in a file that each entry names.
    places: Vec<u64>,
    granted: Vec<(&'static str, String)>,
    /// The alarm was raised, which it is once: whoever is about to wait must not.
    raised: bool,
    cancels: Cancels,
    /// What may still be under way when the kernel gave up.
    broken: bool,
}

/// A read or a write for which the kernel looks the descriptor up and finds the memory.
#[inline]
pub(super) fn plain(
    direction: Direction,
    fd: types::Fd,
    (first, bytes): (*mut u8, u32),
    offset: u64,
) -> squeue::Entry {
    match direction {
        Direction::Read => opcode::Read::new(fd, first, bytes).offset(offset).build(),
        Direction::Write => opcode::Write::new(fd, first, bytes).offset(offset).build(),
    }
}

impl RingQueue {
    /// The name of what drives it.
    pub const PROVIDER: &'static str = "uring";

    /// A queue with all slices of a region, as many as it is deep. `what` names who needs it.
    pub fn open(
        what: &str,
        descriptor: &Arc<Descriptor>,
        shape: Shape,
        region: Arc<Region>,
    ) -> Result<Self, Error> {
        assert!(shape.depth >= 1 && shape.depth <= MOST_DEPTH && shape.depth == region.count());
        descriptor.set_waits(true).map_err(|e| Error::io("asking reads to wait", e))?;
        let touched = if shape.operation == Operation::NoOp { 0 } else { shape.depth };
        let sources = Sources::of(descriptor, touched)?;
        let core = shape.polls.and_then(|_| kernel_thread_core(&allowed_cores(), online_cores()));
        let r#use = match (shape.polls, core) {
            (None, _) => ring::Use::Deferred,
            (Some(_), None) => ring::Use::KernelThread,
            (Some(_), Some(core)) => ring::Use::KernelThreadOn(core),
        };
        // Beside the I/Os, the two entries of the alarm and the one that is held back for a cancel.
        let submissions = shape.depth + 3;
        let completions = 2 * submissions;
        let (io, flags) =
            ring::set_up(what, &Wanted { r#use, submissions, completions, kernel: KERNEL })?;
        let (ring, submissions, completions) = Ring::split(io, flags);
        let alarm = Alarm::new().map_err(|e| Error::io("making an eventfd to end waits", e))?;
        let slices: Vec<Slice> = std::iter::from_fn(|| region.take()).collect();
        assert_eq!(slices.len(), shape.depth as usize, "a queue has its region for itself");
        let mut queue = Self {
            ring,
            submissions,
            completions,
            alarm,
            shape,
            descriptor: Arc::clone(descriptor),
            sources,
            region,
            slots: Slots::new(IO, slices.len()),
            entries: Vec::new(),
            started: Vec::with_capacity(slices.len()),
            places: vec![0; slices.len()],
            slices,
            granted: core
                .map(|core| ("kernel-thread-core", core.to_string()))
                .into_iter()
                .collect(),
            raised: false,
            cancels: Cancels::of(shape.depth as usize),
            broken: false,
        };
        queue.entries = queue.slices.iter().map(|slice| queue.entry(slice, 0)).collect();
        Ok(queue)
    }

    /// Proves by one I/O that a queue of this shape runs here.
    pub fn availability(what: &'static str, shape: Shape) -> Result<(), Unavailable> {
        let prove = move || {
            let layout = Layout::packed(0, 64, 64);
            let region = Region::new(layout, shape.depth, RegionOptions::default())?;
            let device = match shape.operation {
                Operation::Command => nothing::open(what)?,
                _ => super::null().map_err(|e| Error::io("opening /dev/null", e))?,
            };
            let mut queue = Self::open(what, &device, shape, region)?;
            let calls = Counters::default();
            queue.begin(&calls)?;
            queue.start(Issue { at: 0, since: None }, &calls);
            let mut answer = None;
            let until = Some(Instant::now() + PATIENCE);
            queue
                .take(1, until, &calls, |_, outcome, _| answer = Some(outcome))
                .map_err(|e| Error::io("taking completions", e))?;
            match answer {
                Some(Outcome::Moved(0)) => Ok(()),
                Some(Outcome::Failed(e)) => {
                    Err(Error::io(format!("an I/O that does nothing ({:?})", shape.operation), e))
                }
                other => {
                    let problem = format!("an I/O that does nothing brought {other:?}");
                    Err(Error::io("trying it", io::Error::other(problem)))
                }
            }
        };
        proved(what, prove)
    }

    /// What the kernel is given of an I/O into a slice, but for its token.
    fn entry(&self, slice: &Slice, at: u64) -> squeue::Entry {
        let (first, bytes) = (slice.base().as_ptr(), self.region.layout().payload as u32);
        let (direction, offset) = (self.descriptor.direction, self.descriptor.offset(at));
        match self.shape.operation {
            Operation::Plain => {
                let fd = types::Fd(self.sources.fd(slice.index()));
                plain(direction, fd, (first, bytes), offset)
            }
            Operation::Registered => {
                let file = types::Fixed(self.sources.place(slice.index()));
                match direction {
                    Direction::Read => {
                        opcode::ReadFixed::new(file, first, bytes, 0).offset(offset).build()
                    }
                    Direction::Write => {
                        opcode::WriteFixed::new(file, first, bytes, 0).offset(offset).build()
                    }
                }
            }
            Operation::Command => {
                opcode::UringCmd16::new(types::Fd(self.descriptor.raw()), nothing::DO).build()
            }
            Operation::NoOp => opcode::Nop::new().build(),
        }
    }

    /// Puts what was started into the ring.
    #[inline]
    fn hand_over(&mut self) {
        let Self { submissions, entries, started, .. } = self;
        let batch = started.iter().map(|slot| &entries[*slot as usize]);
        // SAFETY: slices stay with their slots until the I/O is over, and are leaked if this goes before.
        let pushed = unsafe { submissions.push_each(batch) };
        pushed.expect("there is an entry for each slot");
        started.clear();
    }

    /// Gives what is over to `each`, and says how many that was.
    #[inline]
    fn reap(&mut self, each: &mut impl FnMut(Issue, Outcome, &[u8])) -> usize {
        let mut taken = 0;
        for entry in self.completions.take() {
            let token = Token::from_user_data(entry.user_data());
            self.raised |= token == ALARM;
            self.cancels.note(token, entry.result());
            // What a cancel answers says the I/O itself.
            let Some(issue) = self.slots.remove(token) else { continue };
            each(issue, outcome(entry.result().into()), self.slices[token.slot()].payload());
            taken += 1;
        }
        taken
    }

    /// Gives the kernel what was started, and waits. With a thread of the kernel this is only called
    /// when looking brought nothing.
    fn enter(
        &mut self,
        missing: usize,
        until: Option<Instant>,
        calls: &Counters,
    ) -> io::Result<Entered> {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let pending = match self.shape.polls {
            Some(_) => {
                self.submissions.submit(calls)?;
                0
            }
            None => self.submissions.pending(),
        };
        if pending == 0 && missing == 0 {
            return Ok(Entered::Done);
        }
        if missing <= 1 {
            if missing > 0 {
                calls.waits.one();
            }
            calls.kernel_entries.one();
            return self.ring.enter(pending, missing as u32, left.filter(|_| missing > 0), false);
        }
        // A wait for several that is to end by the alarm looks for it first: see there.
        if pending > 0 {
            calls.kernel_entries.one();
            self.ring.enter(pending, 0, None, false)?;
        }
        calls.waits.one();
        let least = missing as u32;
        match self.alarm.wait(&self.ring, &mut self.completions, least, left, calls)? {
            Woken::TimedOut => Ok(Entered::TimedOut),
            _ => Ok(Entered::Done),
        }
    }

    /// Looks at the completion queue for a while, and keeps the kernel's thread awake.
    fn poll(
        &mut self,
        polls: u32,
        missing: usize,
        calls: &Counters,
        each: &mut impl FnMut(Issue, Outcome, &[u8]),
    ) -> io::Result<usize> {
        let mut taken = 0;
        for _ in 0..polls.max(1) {
            self.submissions.submit(calls)?;
            taken += self.reap(each);
            if taken >= missing {
                break;
            }
            calls.empty_dequeues.one();
            std::hint::spin_loop();
        }
        Ok(taken)
    }
}

impl Queue for RingQueue {
    fn begin(&mut self, calls: &Counters) -> Result<(), Error> {
        self.ring.enable().map_err(|e| Error::io("enabling a ring", e))?;
        if self.shape.operation == Operation::Registered {
            let (first, bytes) = self.region.extent();
            let files = self.sources.files();
            self.ring
                .make_file_table(files.len() as u32)
                .and_then(|()| self.ring.set_files(&files))
                .map_err(|e| Error::io("giving the file to the ring", e))?;
            // SAFETY: the region lives as long as this queue, which takes it away from the ring before
            // it goes, or leaks it.
            unsafe { self.ring.register_memory(first, bytes) }.map_err(|e| {
                let what = format!(
                    "giving {bytes} bytes to the ring for good (if memory is short: raise \
                     `ulimit -l`, or ask for less depth or length)"
                );
                Error::io(what, e)
            })?;
        }
        // SAFETY: the alarm points at a static.
        let armed = unsafe { self.submissions.push(&self.alarm.entries(ALARM)) };
        armed.expect("nothing was pushed before");
        self.submissions.submit(calls).map_err(|e| Error::io("arming the alarm of a ring", e))?;
        let (submissions, completions) = self.ring.sizes();
        self.granted.extend([
            ("ring-flags", self.ring.flags()),
            ("submission-entries", submissions.to_string()),
            ("completion-entries", completions.to_string()),
        ]);
        Ok(())
    }

    fn waker(&self) -> Waker {
        self.alarm.waker()
    }

    #[inline]
    fn room(&self) -> usize {
        self.slices.len() - self.slots.len()
    }

    #[inline]
    fn outstanding(&self) -> usize {
        self.slots.len()
    }

    #[inline]
    fn start(&mut self, issue: Issue, calls: &Counters) {
        let token = self.slots.insert(issue).expect("the caller looks for room");
        let slot = token.slot();
        if self.shape.operation != Operation::NoOp {
            self.sources.prepare(self.slices[slot].index(), calls);
        }
        if self.places[slot] != issue.at {
            self.places[slot] = issue.at;
            self.entries[slot] = self.entry(&self.slices[slot], issue.at);
        }
        self.entries[slot].set_user_data(token.user_data());
        self.started.push(slot as u32);
    }

    fn take(
        &mut self,
        at_least: usize,
        until: Option<Instant>,
        calls: &Counters,
        mut each: impl FnMut(Issue, Outcome, &[u8]),
    ) -> io::Result<usize> {
        self.hand_over();
        let at_least = at_least.min(self.outstanding());
        self.raised = false;
        let mut taken = match self.shape.polls {
            Some(polls) => self.poll(polls, at_least, calls, &mut each)?,
            None => 0,
        };
        // An alarm that was raised while it looked is not raised again.
        while self.shape.polls.is_none() || (taken < at_least && !self.raised) {
            // What lies there already need not be waited for.
            let ready = taken + self.completions.len();
            let entered = self.enter(at_least.saturating_sub(ready), until, calls)?;
            taken += self.reap(&mut each);
            if self.completions.lost() > 0 {
                self.broken = true;
                let problem = "the kernel had no memory for completions";
                return Err(io::Error::new(io::ErrorKind::OutOfMemory, problem));
            }
            // A waker, the time, or the alarm has ended the wait before so many were over.
            if entered != Entered::TryAgain || self.raised {
                break;
            }
        }
        Ok(taken)
    }

    fn cancel_all(&mut self, calls: &Counters) {
        self.hand_over();
        // What it does not know yet, the device cannot cancel. An error comes again with the next take.
        let _ = self.submissions.submit(calls);
        self.descriptor.cancel_all();
        self.cancels.cancel_all(&self.slots, &mut self.submissions, Duration::ZERO, calls);
    }

    fn granted(&self) -> Vec<(&'static str, String)> {
        self.granted.clone()
    }
}

#[cfg(test)]
impl RingQueue {
    /// As on a kernel before 5.19.
    pub(super) fn cancels_each(&mut self, each: bool) {
        self.cancels.each = each;
    }

    pub(super) fn token_under_way(&self) -> Token {
        self.slots.iter().next().expect("there is one").0
    }

    pub(super) fn cancel_one(&mut self, token: Token, calls: &Counters) {
        self.submissions.cancel(token, under_way::CANCEL, calls).expect("there is room");
    }
}

/// The core of the kernel's thread where the program keeps to some of the cores that are online: the second of
/// them. Where it has all the kernel chooses, and one alone the two would only take from each other.
fn kernel_thread_core(allowed: &[usize], online: usize) -> Option<u32> {
    let second = allowed.get(1).filter(|_| allowed.len() < online)?;
    u32::try_from(*second).ok()
}

fn online_cores() -> usize {
    let online = sysconf(SysconfVar::_NPROCESSORS_ONLN).ok().flatten();
    online.and_then(|cores| usize::try_from(cores).ok()).unwrap_or(0)
}

impl Drop for RingQueue {
    fn drop(&mut self) {
        let (calls, mut found) = (Counters::default(), 0);
        let mut look = LastLook::by(Instant::now() + PATIENCE);
        while self.outstanding() > 0 && !self.broken {
            let Some(left) = look.wait(found > 0) else { break };
            self.cancel_all(&calls);
            let until = Some(Instant::now() + ASK_AGAIN.min(left));
            match self.take(1, until, &calls, |_, _, _| {}) {
                Ok(taken) => found = taken,
                Err(_) => break,
            }
        }
        // Closing a ring goes on behind the program's back: file and memory are taken away before.
        if self.shape.operation == Operation::Registered {
            let _ = self.ring.set_files(&vec![-1; self.sources.files().len()]);
            let _ = self.ring.take_memory_away();
        }
        for (slot, slice) in std::mem::take(&mut self.slices).into_iter().enumerate() {
            if self.slots.at(slot).is_some() {
                under_way::leave(slice);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_thread_keeps_to_the_cores_of_a_program_that_keeps_to_some() {
        assert_eq!(kernel_thread_core(&[2, 5, 7], 8), Some(5));
        assert_eq!(kernel_thread_core(&[2], 8), None);
        assert_eq!(kernel_thread_core(&[0, 1], 2), None, "it has all that there are");
        assert!(online_cores() >= allowed_cores().len());
    }
}
