//! The operations of streams for one thread, with an event for each that is outstanding.
//!
//! The thread waits for a group of events, and is told one operation at a time that has finished. Here
//! an event is an eventfd in an epoll set, and each operation is followed, in the same submission, by a
//! write to its event: *linked*, so that the write begins when the operation is over and its completion can
//! be seen (IOSQE_IO_HARDLINK: also where it failed or was cancelled). That the kernel does the operation
//! and signals the event is what the mechanism is; a ring that is waited for would be the other design.
//!
//! Whether an operation has finished stands in memory that the kernel and the thread share, as in the OVERLAPPED of
//! Windows (`HasOverlappedIoCompleted`). So before it waits the thread looks there, and enters the kernel only where
//! nothing has finished. An event that was signalled for what is handled already is heard by the next wait,
//! all of them by the same one, and says nothing any more.
//!
//! While messages gather no receive is armed anew, so that none sets its event. The thread sleeps in its set, and then asks
//! another one which sockets have something (`watched.rs`). Where the next message is to end the wait, its set tells of that
//! other one, once.
//!
//! What it costs: an eventfd for each operation, and a second request to write to it. The work of the ring interrupts
//! the thread in its wait (EINTR), which looks or waits again.
//!
//! How it fails: an event's descriptor is looked up when the write begins, so it stays open until it was written to as
//! often as operations were started with it, which its counter tells, and is leaked with its memory where that never
//! happens: another file of that number would be written to. So stopping waits for events, not only for completions.
//!
//! Bounds: as many events as the [`Needs`] have operations; a stream has one receive in the kernel at a time. Those
//! for sends are made as more of them are outstanding than ever, beyond a few that are there from the beginning:
//! most sends are over at once. Where the system has no descriptor for one more, the send is refused, and waits.
//!
//! Origin: overlapped operations with events of Winsock 2; io_uring: linked requests, Linux 5.5; requests that
//! are silent where they succeed, Linux 5.17.

use super::{KERNEL, UringStreams, operations::Operations};
use crate::{
    Error, Unavailable,
    counters::Counters,
    deadline::TimeLeft,
    memory::{Load, Slice},
    port::{
        Cancelled, Key, Refused, Shape, Token,
        arming::Arming,
        streams::{
            Closing, ListenerId, Needs, Provider, StreamId, Taken,
            events::{EventsPort, Group, Inner},
            proof,
        },
        uring::state::{Outstanding, Stage},
    },
    readiness::{Epoll, Trigger, wake_event::WakeEvent},
    ring::{self, Completions, QueueFull, Ring, Submissions, Wanted},
    rio::Woken,
    stream::{Listener, Stream},
};
use io_uring::{opcode, squeue, types};
use std::{
    collections::{HashSet, VecDeque},
    io,
    mem::ManuallyDrop,
    sync::Arc,
    time::Duration,
};

/// The provider.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UringEvents {}

impl UringEvents {
    /// The most events that a group may have, the one that wakes its thread included. Each is a descriptor, and a
    /// group has one completion queue.
    pub const MOST: u32 = 4096;
}

const WHAT: &str = "provider uring of operations with events";

/// Of writes to events, which say nothing but where they fail.
const SIGNAL: ring::Token = ring::Token::bare(8);

/// Events for sends that are there from the beginning.
const FIRST_SENDS: u32 = 4;

/// What sets an event.
static ONE: u64 = 1;

impl Provider for UringEvents {
    const NAME: &'static str = "uring";
    type Port = EventsPort<UringGroup>;

    fn availability(&self) -> Result<(), Unavailable> {
        ring::proved(|| proof::prove(self, WHAT, Some(ring::use_a_kernel(KERNEL))))
    }

    fn open(&self, needs: &Needs) -> Result<EventsPort<UringGroup>, Error> {
        let needs = Needs { threads: 1, ..*needs };
        UringStreams { shape: Shape::BEST }.check(&needs)?;
        let events = needs.receives.saturating_add(needs.sends).saturating_add(needs.accepts);
        // Each operation and its signal, and a cancel for each.
        let submissions = events.saturating_mul(3).saturating_add(2).clamp(8, 4096);
        let wanted = Wanted {
            r#use: ring::Use::SharedUninterrupted,
            submissions,
            // No fewer than the submissions, which are rounded up.
            completions: (2 * submissions).max(events.saturating_mul(2)).min(65_536),
            kernel: KERNEL,
        };
        let (io, flags) = ring::set_up(WHAT, &wanted)?;
        let (ring, submissions, completions) = Ring::split(io, flags);
        ring.enable().map_err(|e| Error::io("enabling the ring of a group of events", e))?;
        let mut set = Epoll::new(HEARD_AT_ONCE, Trigger::Edge)?;
        let first = events - needs.sends + needs.sends.min(FIRST_SENDS);
        let events: io::Result<Vec<_>> =
            (0..first).map(|number| Event::new(number, &mut set)).collect();
        let events = events.map_err(|e| Error::io("making the events of a group", e))?;
        let group = UringGroup {
            ring,
            submissions,
            completions,
            operations: Operations::new(&needs),
            needs,
            events: ManuallyDrop::new(events),
            asked: HashSet::new(),
            finished: VecDeque::new(),
        };
        let waker = set.waker();
        Ok(EventsPort::new(group, set, waker, &needs))
    }
}

/// The ring of a group and its events.
pub struct UringGroup {
    ring: Arc<Ring>,
    submissions: Submissions,
    completions: Completions,
    operations: Operations,
    needs: Needs,
    /// One for each operation that may be outstanding, by its number; of sends, as many as were outstanding at a
    /// time, and a few. Left open where one may still be signalled.
    events: ManuallyDrop<Vec<Event>>,
    /// Operations whose cancel the kernel has not answered: it is not asked for again until then.
    asked: HashSet<ring::Token>,
    /// Events whose operations have finished, and were not told. At most all of them.
    finished: VecDeque<u32>,
}

/// An event, and the operation that it is for.
struct Event {
    wake_event: WakeEvent,
    token: Option<ring::Token>,
    /// What its completion said.
    result: Option<i32>,
    /// Times that it is to be signalled, or was, and was not seen to be.
    unseen: u64,
}

/// Of the set of sockets whose receives are kept back: no event has this number.
const WATCHED: u32 = u32::MAX;

/// Events that one wait hears.
const HEARD_AT_ONCE: usize = 64;

impl Event {
    fn new(number: u32, set: &mut Epoll) -> io::Result<Self> {
        let wake_event = WakeEvent::new()?;
        set.watch_wake_event(&wake_event, number)?;
        Ok(Event { wake_event, token: None, result: None, unseen: 0 })
    }
}

impl UringGroup {
    /// Puts what was started into the submission queue, each operation with what follows it.
    fn fill(&mut self) -> Result<(), QueueFull> {
        let Self { operations, submissions, events, .. } = self;
        operations.start_by(|entry, operation| {
            let Some((token, number)) = operation else {
                // SAFETY: a cancel points at nothing.
                return unsafe { submissions.push(&[entry]) };
            };
            let event = &mut events[number];
            let entry = entry.flags(squeue::Flags::IO_HARDLINK);
            let signal =
                opcode::Write::new(types::Fd(event.wake_event.fd()), (&raw const ONE).cast(), 8);
            let signal = signal.build().flags(squeue::Flags::SKIP_SUCCESS);
            // SAFETY: as in `Operations::start`; the signal's bytes are static, and its descriptor stays
            // open until the event was told.
            unsafe { submissions.push(&[entry, signal.user_data(SIGNAL.user_data())]) }?;
            (event.token, event.result) = (Some(token), None);
            event.unseen += 1;
            Ok(())
        })
    }

    /// Whether one more send, of those that may be outstanding, would have no event.
    fn lacks_event(&self) -> bool {
        let (sends, first) = self.operations.sends();
        sends < self.needs.sends as usize && first + sends >= self.events.len()
    }

    /// Reads what the kernel says of operations that are over.
    fn reap(&mut self) -> io::Result<()> {
        let Self { completions, operations, events, asked, finished, .. } = self;
        for entry in completions.take() {
            let token = ring::Token::from_user_data(entry.user_data());
            if token == SIGNAL {
                return Err(io::Error::from_raw_os_error(-entry.result()));
            }
            if let Some(cancelled) = token.cancelled() {
                asked.remove(&cancelled);
                continue;
            }
            let number = operations.number(token);
            let event = events.get_mut(number);
            if let Some(event) = event.filter(|event| event.token == Some(token)) {
                event.result = Some(entry.result());
                finished.push_back(number as u32);
            }
        }
        Ok(())
    }

    /// Whether no event is to be signalled any more, so that all may be closed.
    fn all_are_signalled(&mut self) -> bool {
        self.events.iter_mut().all(|event| {
            if event.unseen > 0 {
                event.unseen -= event.wake_event.take_signals().min(event.unseen);
            }
            event.unseen == 0
        })
    }
}

impl Group for UringGroup {
    type Events = Epoll;
    /// The kernel forgets none.
    const CANCEL_AGAIN: Duration = Duration::MAX;
    const GATHERS: Option<&'static str> = Some(
        "epoll_pwait2 with a time-out; no receive is armed meanwhile, and another epoll set tells which may begin",
    );

    fn listen(&mut self, listener: Listener, key: Key) -> Result<ListenerId, Error> {
        let most = self.needs.listeners;
        let problem = || Error::option("listeners", format!("the group was opened for {most}"));
        self.operations.listen(listener, key).ok_or_else(problem)
    }

    fn associate(&mut self, stream: Stream, key: Key) -> Result<StreamId, Refused> {
        self.operations.associate(stream, key)
    }

    fn accept(&mut self, listener: ListenerId) -> Result<Token, Refused> {
        self.operations.accept(listener)
    }

    fn end_accepting(&mut self) -> Vec<Token> {
        self.operations.end_accepting()
    }

    fn receive(
        &mut self,
        stream: StreamId,
        slice: Option<Slice>,
    ) -> Result<Token, (Option<Slice>, Refused)> {
        self.operations.receive(stream, slice)
    }

    fn send(
        &mut self,
        stream: StreamId,
        load: Load,
        set: &mut Epoll,
    ) -> Result<Token, (Load, Refused)> {
        if self.lacks_event() {
            match Event::new(self.events.len() as u32, set) {
                Ok(event) => self.events.push(event),
                Err(_) => return Err((load, Refused::Full)),
            }
        }
        self.operations.send(stream, load)
    }

    fn close(&mut self, stream: StreamId) -> Closing {
        self.operations.close(stream)
    }

    fn arm(&mut self, arming: Arming, set: &mut Epoll, counters: &Counters) -> io::Result<()> {
        self.operations.set_arming(arming);
        let watched = self.operations.watched_fd().filter(|_| arming != Arming::Each);
        let Some(watched) = watched else { return Ok(()) };
        // By whoever comes back from the wait.
        self.operations.watched_are_due();
        if arming == Arming::Any {
            counters.kernel_entries.one();
            set.tell_once(watched, WATCHED)?;
        }
        Ok(())
    }

    /// Submits what was started.
    fn commit(&mut self, counters: &Counters) -> io::Result<()> {
        self.operations.ask_watched(counters)?;
        loop {
            let filled = self.fill();
            self.submissions.submit(counters)?;
            if filled.is_ok() {
                return Ok(());
            }
        }
    }

    fn cancel(&mut self, token: Token, counters: &Counters) -> Cancelled {
        let token = ring::Token::from_user_data(token.0);
        // One that the kernel does not know yet is made known to it, so that its event reports it.
        self.operations.begin_kept_back(token);
        let submitted = self.commit(counters);
        match self.operations.stage(token) {
            None => Cancelled::Gone,
            Some(Stage::Started) if self.asked.contains(&token) => Cancelled::Asked,
            Some(Stage::Started) if submitted.is_ok() => {
                let own = token.of_its_cancel();
                if self.submissions.cancel(token, own, counters).is_err() {
                    return Cancelled::Unsupported;
                }
                self.asked.insert(token);
                Cancelled::Asked
            }
            Some(_) => Cancelled::Unsupported,
        }
    }

    fn received_in_all(&self, stream: StreamId, counters: &Counters) -> io::Result<u64> {
        self.operations.stream(stream)?.received_in_all(counters)
    }

    fn take_closed(&mut self, out: &mut Taken) {
        self.operations.take_ready(out);
    }

    #[inline]
    fn take_finished(&mut self, out: &mut Taken) -> io::Result<()> {
        self.reap()?;
        if out.room() > 0
            && let Some(number) = self.finished.pop_front()
        {
            let event = &mut self.events[number as usize];
            if let (Some(token), Some(result)) = (event.token.take(), event.result.take()) {
                self.operations.finish(token, result, out);
            }
        }
        Ok(())
    }

    fn wait(
        inner: &Inner<Self>,
        set: &mut Epoll,
        time: &mut TimeLeft,
        counters: &Counters,
        out: &mut Taken,
    ) -> io::Result<Woken> {
        let woken = set.wait(time.left(), counters)?;
        // Which events they were does not matter: what has finished is seen by itself.
        inner.with(|group| group.take_finished(out))?;
        Ok(woken)
    }

    fn outstanding(&mut self) -> usize {
        let started = self.operations.started() as usize;
        if started == 0 && !self.all_are_signalled() { 1 } else { started }
    }

    fn cancel_all(&mut self, counters: &Counters) {
        for token in self.operations.all_started() {
            // Where it finds no room something else is submitted first, which makes room.
            if self.submissions.cancel(token, token.of_its_cancel(), counters).is_err() {
                break;
            }
        }
    }

    fn give_up(mut self) -> (u32, u32) {
        let may_close = self.operations.started() == 0 && self.all_are_signalled();
        let Self { submissions, completions, operations, events, .. } = self;
        // The only way to submit goes first. What lies in the submission queue counts as started.
        drop((submissions, completions));
        if may_close {
            drop(ManuallyDrop::into_inner(events)); // nothing will be written to them
        }
        // SAFETY: there are no submissions any more.
        unsafe { operations.give_up() }
    }

    fn granted(&self) -> Vec<(&'static str, String)> {
        let (submissions, completions) = self.ring.sizes();
        vec![
            ("ring-flags", self.ring.flags()),
            ("submission-entries", submissions.to_string()),
            ("completion-entries", completions.to_string()),
        ]
    }
}
