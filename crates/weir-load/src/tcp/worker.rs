//! One thread of a load: its connections, from the first connect to the last end.
//!
//! A connection costs a slot ([`Slot`]) and 8 bytes for each message that may be under way, and
//! nothing else here: what is sent is made when it is sent, and what comes goes into one buffer of the
//! thread.

mod connecting;
mod ending;
mod receiving;
mod sending;

use super::{
    LoadSpec, Wrong,
    connection::Stream,
    content::{Content, SentFile},
    counts::{Causes, Live},
    moves::Moves,
    schedule::Schedule,
    sources::Sources,
    spans::Spans,
    system::Socket,
};
use crate::{
    clock::{now_ns, thread_cpu_ns},
    flood::text_of,
};
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::Sender,
    },
    time::Instant,
};
use weir::timer::{TICK, Tick, Wheel};

/// What the threads of a load share.
pub(super) struct LoadShared {
    /// Latencies of messages from here on are recorded.
    pub(super) measure_from_ns: AtomicU64,
    /// Until here messages are begun.
    pub(super) end_ns: AtomicU64,
    /// Until here answers, and ends of connections, are waited for at the most.
    pub(super) drained_ns: AtomicU64,
    pub(super) sources: Mutex<Sources>,
    /// What is sent instead of the pattern, if a file is.
    pub(super) file: Option<SentFile>,
}

/// What a thread tells the one that leads it.
pub(super) enum Note {
    /// Every connection that it was to make is made, or has failed.
    Settled,
    /// It has ended.
    Over(Box<Outcome>),
    /// It has panicked with this text.
    Panicked(String),
}

/// What a thread leaves behind besides its counts.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) causes: Causes,
    /// What servers said that refused a connection.
    pub(super) refusals: Causes,
    /// The first bytes that were wrong.
    pub(super) wrong: Option<Wrong>,
    /// What happened to the file that was sent.
    pub(super) file_problem: Option<String>,
    /// Messages of an open loop that were due and not begun.
    pub(super) due_unsent: u64,
    /// Messages begun that did not come back.
    pub(super) unanswered: u64,
    /// When connections were being made.
    pub(super) connecting: Spans,
    pub(super) cpu_ns: Option<u64>,
    pub(super) ended_ns: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Connecting,
    Open,
    /// The first bytes look like a refusal; nothing more is sent.
    ReadsRefusal,
    /// The server was told that nothing follows; answers may still come.
    Ending,
    /// A send failed; what can still be received is.
    Broken,
    Over,
}

/// A connection.
#[derive(Debug)]
struct Slot {
    stream: Stream,
    socket: Option<Socket>,
    block: u32,
    /// Since when an answer, or the end, is waited for.
    waiting_since: Tick,
    state: State,
    /// Whether its timer is set.
    timed: bool,
    /// Whether it was made, or has failed.
    settled: bool,
    /// Whether an end or an error was told: it is received up to there.
    ended: bool,
    /// Whether it is among those of which something was left.
    again: bool,
    /// Bytes of the send under way, if one is.
    sending: u32,
}

/// This thread's share of a block.
#[derive(Debug)]
struct Block {
    first: u32,
    connections: u32,
    /// Connections of it that are neither made nor have failed.
    unsettled: u32,
    schedule: Option<Schedule>,
    /// The next message of the schedule.
    next: u64,
}

/// How a connection ends.
#[derive(Debug)]
enum End {
    Refused,
    TimedOut,
    ConnectFailed(io::Error),
    Unfinished,
    Finished,
    RefusedByServer(String),
    Reset,
    Broken(io::Error),
    EndedByServer,
    Truncated,
    Wrong(Wrong),
    /// What was to be sent, or compared, is not as it was.
    FileAmiss(String),
    Unanswered,
    CutOff,
    LeftOpen,
}

/// Receives from a connection, or sends to it, before others have their turn.
const TURN: u32 = 16;
/// Messages of an open loop that are sent before what has come is received.
const DUE_AT_ONCE: u32 = 512;

pub(super) struct Worker<'a> {
    spec: &'a LoadSpec,
    shared: &'a LoadShared,
    live: &'a Live,
    notes: Sender<Note>,
    /// Its number among those of all processes.
    number: u32,
    content: Content<'a>,
    began_ns: u64,
    moves: Moves,
    slots: Vec<Slot>,
    /// The intended times of the messages under way: `outstanding` places for each connection. While
    /// it is being made, when that began.
    times: Vec<u64>,
    blocks: Vec<Block>,
    /// Connections of the block that begins next, or is being connected, still to be begun.
    to_begin: u32,
    connecting: u32,
    connecting_max: u32,
    /// Since when connections are being made, if they are, and when the last of these was.
    making: Option<(u64, u64)>,
    /// No further connection is begun.
    gave_up: bool,
    settled: bool,
    /// Whether all connections were made, of all threads and processes, and each may send what it likes.
    begun: bool,
    ending: bool,
    /// Slots that are not over.
    open: usize,
    /// Those that are connected.
    standing: usize,
    clock: Wheel,
    clock_looked_ns: u64,
    expired: Vec<u32>,
    /// By the time when their next message is due.
    due: BinaryHeap<Reverse<(u64, u32)>>,
    /// Connections of which something was left, and which are not told again.
    again: Vec<u32>,
    /// What looks like the beginning of a refusal, and what is wrong with it if it is none.
    heard: HashMap<u32, (Vec<u8>, Wrong)>,
    /// With which sending failed on those of which what is left comes by itself.
    unsendable: HashMap<u32, io::Error>,
    outcome: Outcome,
}

/// Runs one thread of a load, and tells when it has ended.
pub(super) fn serve(
    spec: &LoadSpec,
    shared: &LoadShared,
    live: &Live,
    number: usize,
    moves: Moves,
    began_ns: u64,
    notes: Sender<Note>,
) {
    let outcome_to = notes.clone();
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        Worker::new(spec, shared, live, number, moves, began_ns, notes).run()
    }));
    // If nobody listens, the load was given up already.
    let _ = outcome_to.send(match outcome {
        Ok(outcome) => Note::Over(Box::new(outcome)),
        Err(panic) => Note::Panicked(text_of(&*panic)),
    });
}

impl<'a> Worker<'a> {
    fn new(
        spec: &'a LoadSpec,
        shared: &'a LoadShared,
        live: &'a Live,
        number: usize,
        moves: Moves,
        began_ns: u64,
        notes: Sender<Note>,
    ) -> Self {
        let content = Content::new(spec.sizes, shared.file.as_ref());
        let content = if spec.one_way { content.one_way() } else { content };
        let threads = spec.threads_in_all();
        let mut worker = Self {
            spec,
            shared,
            live,
            notes,
            number: spec.number_of_thread(number),
            content,
            began_ns,
            moves,
            slots: Vec::new(),
            times: Vec::new(),
            blocks: Vec::new(),
            to_begin: 0,
            connecting: 0,
            making: None,
            connecting_max: (spec.connecting / threads).max(1),
            gave_up: false,
            settled: false,
            begun: !spec.together,
            ending: false,
            open: 0,
            standing: 0,
            clock: Wheel::starting(Instant::now()),
            clock_looked_ns: 0,
            expired: Vec::new(),
            due: BinaryHeap::new(),
            again: Vec::new(),
            heard: HashMap::new(),
            unsendable: HashMap::new(),
            outcome: Outcome::default(),
        };
        let share = worker.connections_in_all() as usize;
        worker.slots.reserve_exact(share);
        worker.times.reserve_exact(share * spec.outstanding as usize);
        worker
    }

    /// Connections of all blocks that are this thread's.
    fn connections_in_all(&self) -> u64 {
        self.spec.dealt_in_all(self.number)
    }

    fn run(mut self) -> Outcome {
        if let Err(e) = self.moves.begin() {
            self.outcome.causes.add(format!("beginning to wait for connections: {e}"), 1);
            return self.conclude();
        }
        loop {
            let now = now_ns();
            self.check_end(now);
            self.connect_what_is_due(now);
            self.begin_together(now);
            self.send_what_is_due();
            self.check_clock(now);
            if self.open == 0 && (self.settled || self.ending) {
                break;
            }
            self.live.waits.one();
            let timeout_ns = self.timeout_ns();
            let ready = match self.moves.wait(timeout_ns) {
                Ok(ready) => ready,
                Err(e) => {
                    self.outcome.causes.add(format!("waiting for connections: {e}"), 1);
                    self.end_all(|_| End::CutOff);
                    break;
                }
            };
            for index in 0..ready {
                let ready = self.moves.ready(index);
                self.attend(ready);
            }
            for number in std::mem::take(&mut self.again) {
                self.slots[number as usize].again = false;
                self.receive(number);
                self.send(number, now_ns());
            }
        }
        self.conclude()
    }

    fn conclude(mut self) -> Outcome {
        self.live.serves.store(false, Relaxed);
        self.outcome.ended_ns = now_ns();
        self.outcome.cpu_ns = thread_cpu_ns();
        self.end_making();
        let end_ns = self.shared.end_ns.load(Relaxed).min(self.outcome.ended_ns);
        for block in &self.blocks {
            let Some(schedule) = &block.schedule else { continue };
            for place in 0..block.connections {
                let due =
                    schedule.due_before(place, end_ns).min(self.spec.sends.unwrap_or(u64::MAX));
                let begun = self.slots[(block.first + place) as usize].stream.begun();
                self.outcome.due_unsent += due.saturating_sub(begun);
            }
        }
        self.outcome.unanswered = self.slots.iter().map(|slot| slot.stream.under_way()).sum();
        self.outcome
    }

    /// How long a wait may last.
    fn timeout_ns(&self) -> u64 {
        if !self.again.is_empty() {
            return 0;
        }
        let end_ns = self.shared.end_ns.load(Relaxed);
        // What else there is to be looked at comes in ticks: timers, the next block, the end.
        let mut until = now_ns() + TICK.as_nanos() as u64;
        if !self.ending {
            until = until.min(end_ns);
            if let Some(Reverse((due_ns, _))) = self.due.peek() {
                until = until.min(*due_ns);
            }
            if !self.gave_up && self.to_begin == 0 && self.blocks.len() < self.spec.blocks as usize
            {
                until = until.min(self.block_begins_ns());
            }
        }
        until.saturating_sub(now_ns())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the book promises for a connection that waits: half a million are 64 MB.
    #[test]
    fn a_connection_takes_little_memory() {
        let times = size_of::<u64>();
        assert!(size_of::<Slot>() + times <= 128, "{} bytes", size_of::<Slot>());
    }
}
