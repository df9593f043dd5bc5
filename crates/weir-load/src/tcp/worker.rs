//! One thread of a load: its connections, from the first connect to the last end.
//!
//! A connection costs a slot ([`Slot`]) and 8 bytes for each message that may be under way, and
//! nothing else here: what is sent is made when it is sent, and what comes goes into one buffer of the
//! thread.

use super::{
    LoadSpec, Pace, Wrong,
    connection::Stream,
    counts::{Causes, Live},
    refusal::{self, Heard},
    schedule::Schedule,
    sources::Sources,
    system::{self, Ready, Set, Socket},
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
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::Sender,
    },
    time::{Duration, Instant},
};
use weir::timer::{TICK, Tick, Wheel};

/// What the threads of a load share.
pub(super) struct Shared {
    /// Latencies of messages from here on are recorded.
    pub(super) measure_from_ns: AtomicU64,
    /// Until here messages are begun.
    pub(super) end_ns: AtomicU64,
    pub(super) sources: Mutex<Sources>,
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
    /// Messages of an open loop that were due and not begun.
    pub(super) due_unsent: u64,
    /// Messages begun that did not come back.
    pub(super) unanswered: u64,
    /// When the first connect began.
    pub(super) first_connect_ns: Option<u64>,
    /// When the last connection was made.
    pub(super) last_connected_ns: Option<u64>,
    pub(super) cpu_ns: Option<u64>,
    pub(super) ended_ns: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Connecting,
    Open,
    /// The first bytes look like a refusal; nothing more is sent.
    Listening,
    /// The server was told that nothing follows.
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
    /// Whether an end or an error was told: it is received up to there.
    ended: bool,
    /// Whether it is among those of which something was left.
    again: bool,
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
    Unanswered,
    CutOff,
    LeftOpen,
}

/// Receives from a connection, or sends to it, before others have their turn.
const TURN: u32 = 16;
/// Messages of an open loop that are sent before what has come is received.
const DUE_AT_ONCE: u32 = 512;
/// Bytes received at a time, and sent at a time, at most.
const BUFFER_BYTES: usize = 128 * 1024;

pub(super) struct Worker<'a> {
    spec: &'a LoadSpec,
    shared: &'a Shared,
    live: &'a Live,
    notes: Sender<Note>,
    /// Its number among those of all processes.
    number: u32,
    began_ns: u64,
    set: Set,
    slots: Vec<Slot>,
    /// The intended times of the messages under way: `outstanding` places for each connection. While
    /// it is being made, when that began.
    times: Vec<u64>,
    blocks: Vec<Block>,
    /// Connections of the block that begins next, or is being connected, still to be begun.
    to_begin: u32,
    connecting: u32,
    connecting_max: u32,
    /// No further connection is begun.
    gave_up: bool,
    settled: bool,
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
    buffer: Box<[u8]>,
    scratch: Box<[u8]>,
    outcome: Outcome,
}

/// Runs one thread of a load, and tells when it has ended.
pub(super) fn serve(
    spec: &LoadSpec,
    shared: &Shared,
    live: &Live,
    number: usize,
    set: Set,
    began_ns: u64,
    notes: Sender<Note>,
) {
    let told = notes.clone();
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        Worker::new(spec, shared, live, number, set, began_ns, notes).run()
    }));
    // If nobody listens, the load was given up already.
    let _ = told.send(match outcome {
        Ok(outcome) => Note::Over(Box::new(outcome)),
        Err(panic) => Note::Panicked(text_of(&*panic)),
    });
}

impl<'a> Worker<'a> {
    fn new(
        spec: &'a LoadSpec,
        shared: &'a Shared,
        live: &'a Live,
        number: usize,
        set: Set,
        began_ns: u64,
        notes: Sender<Note>,
    ) -> Self {
        let buffer_bytes = (u64::from(spec.sizes.most) * u64::from(spec.outstanding))
            .clamp(4096, BUFFER_BYTES as u64);
        let buffer = || vec![0; buffer_bytes as usize].into_boxed_slice();
        let threads = spec.threads_in_all();
        let mut worker = Self {
            spec,
            shared,
            live,
            notes,
            number: spec.number_of_thread(number),
            began_ns,
            set,
            slots: Vec::new(),
            times: Vec::new(),
            blocks: Vec::new(),
            to_begin: 0,
            connecting: 0,
            connecting_max: (spec.connecting / threads).max(1),
            gave_up: false,
            settled: false,
            ending: false,
            open: 0,
            standing: 0,
            clock: Wheel::starting(Instant::now()),
            clock_looked_ns: 0,
            expired: Vec::new(),
            due: BinaryHeap::new(),
            again: Vec::new(),
            heard: HashMap::new(),
            buffer: buffer(),
            scratch: buffer(),
            outcome: Outcome::default(),
        };
        // One more than a multiple, where the threads do not divide the connections.
        let share = worker.share() as usize * spec.blocks as usize;
        worker.slots.reserve_exact(share);
        worker.times.reserve_exact(share * spec.outstanding as usize);
        worker
    }

    /// Connections of each block that are this thread's.
    fn share(&self) -> u32 {
        let threads = self.spec.threads_in_all();
        self.spec.connections / threads + u32::from(self.number < self.spec.connections % threads)
    }

    fn run(mut self) -> Outcome {
        loop {
            let now = now_ns();
            self.mind_the_end(now);
            self.connect_what_is_due(now);
            self.send_what_is_due();
            self.mind_the_clock(now);
            if self.open == 0 && (self.settled || self.ending) {
                break;
            }
            self.live.waits.one();
            let timeout_ns = self.timeout_ns();
            let ready = match self.set.wait(Some(timeout_ns)) {
                Ok(ready) => ready,
                Err(e) => {
                    self.outcome.causes.add(format!("waiting for connections: {e}"), 1);
                    self.end_all(|_| End::CutOff);
                    break;
                }
            };
            for index in 0..ready {
                let ready = self.set.ready(index);
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
        self.outcome.ended_ns = now_ns();
        self.outcome.cpu_ns = thread_cpu_ns();
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

    // ---- making connections --------------------------------------------------------------

    /// When the next block begins.
    fn block_begins_ns(&self) -> u64 {
        let after = self.spec.block_interval.saturating_mul(self.blocks.len() as u32);
        self.began_ns.saturating_add(after.as_nanos() as u64)
    }

    fn connect_what_is_due(&mut self, now: u64) {
        let latest = self.spec.last_block_after() + self.spec.setup_max;
        if !self.gave_up && now >= self.began_ns.saturating_add(latest.as_nanos() as u64) {
            self.give_up("the time for connecting was over (--setup-time); connections not begun");
        }
        while !self.gave_up && self.connecting < self.connecting_max {
            if self.to_begin == 0 {
                if self.blocks.len() == self.spec.blocks as usize || now < self.block_begins_ns() {
                    break;
                }
                self.to_begin = self.share();
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
    fn give_up(&mut self, cause: &str) {
        if std::mem::replace(&mut self.gave_up, true) {
            return;
        }
        let blocks = u64::from(self.spec.blocks) - self.blocks.len() as u64;
        let left = u64::from(self.to_begin) + blocks * u64::from(self.share());
        if left > 0 {
            self.outcome.causes.add(cause, left);
        }
        if let Some(block) = self.blocks.last_mut() {
            // Its schedule, if it gets one, is for those it has.
            block.connections -= self.to_begin;
            block.unsettled -= self.to_begin;
            self.to_begin = 0;
            let number = self.blocks.len() as u32 - 1;
            self.begin_schedule(number);
        }
    }

    fn connect(&mut self) {
        let block = self.blocks.len() as u32 - 1;
        let place = self.slots.len() as u32 - self.blocks[block as usize].first;
        let in_block = place * self.spec.threads_in_all() + self.number;
        let number = block * self.spec.connections + in_block;
        let slot = self.slots.len() as u32;
        self.slots.push(Slot {
            stream: Stream::new(self.spec.run, number),
            socket: None,
            block,
            waiting_since: self.clock.now(),
            state: State::Connecting,
            timed: true,
            ended: false,
            again: false,
        });
        let began_ns = now_ns();
        self.times.resize(self.slots.len() * self.spec.outstanding as usize, began_ns);
        self.outcome.first_connect_ns.get_or_insert(began_ns);
        self.live.attempted.one();
        self.connecting += 1;
        self.open += 1;
        match self.open_socket().and_then(|socket| {
            self.set.add(&socket, slot)?;
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

    fn open_socket(&self) -> io::Result<Socket> {
        let sources = || self.shared.sources.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let source = sources().take();
            match Socket::connect(self.spec.target, source.address) {
                Err(e) if system::is_no_port(&e) && sources().exhausted(source) => {}
                result => return result,
            }
        }
    }

    /// Of a block of which every connection is made, or has failed, the messages begin to be due.
    fn begin_schedule(&mut self, number: u32) {
        let block = &mut self.blocks[number as usize];
        let Some(rate) = self.spec.block_rate() else { return };
        if block.unsettled > 0 || block.connections == 0 || block.schedule.is_some() || self.ending
        {
            return;
        }
        // Evenly between those of the other threads.
        let offset_ns = 1e9 / rate * f64::from(self.number);
        let own = rate * f64::from(block.connections) / f64::from(self.spec.connections);
        let schedule = Schedule::new(now_ns() + offset_ns as u64, own, block.connections);
        block.schedule = Some(schedule);
        self.due.push(Reverse((schedule.due_ns(0), number)));
    }

    // ---- sending -------------------------------------------------------------------------

    /// Sends every message of an open loop that is due.
    fn send_what_is_due(&mut self) {
        // A number of them: what has come wants to be received, too.
        for _ in 0..DUE_AT_ONCE {
            let now = now_ns();
            let Some(Reverse((due_ns, number))) = self.due.peek().copied() else { return };
            if due_ns > now || self.ending {
                return;
            }
            self.due.pop();
            let block = &mut self.blocks[number as usize];
            let (place, message) = (
                (block.next % u64::from(block.connections)) as u32,
                block.next / u64::from(block.connections),
            );
            block.next += 1;
            let slot = block.first + place;
            let schedule = block.schedule.as_ref().expect("only such are due");
            let next_ns = schedule.due_ns(block.next);
            if self.spec.sends.is_none_or(|sends| message < sends) {
                self.due.push(Reverse((next_ns, number)));
            }
            let Slot { stream, state, .. } = &self.slots[slot as usize];
            let held_up = stream.under_way() >= u64::from(self.spec.outstanding)
                || stream.begun() != message
                || *state != State::Open;
            if !held_up && due_ns >= self.shared.measure_from_ns.load(Relaxed) {
                self.live.delays.record(now - due_ns);
            }
            self.send(slot, now);
        }
    }

    /// Begins every message of a connection that may begin, and sends what there is room for.
    fn send(&mut self, number: u32, now: u64) {
        for _ in 0..TURN {
            self.begin_messages(number, now);
            let slot = &mut self.slots[number as usize];
            let (State::Open, Some(socket)) = (slot.state, &slot.socket) else { return };
            if slot.stream.unsent() == 0 {
                return;
            }
            let bytes = slot.stream.next(&mut self.scratch);
            let asked = bytes.len();
            let taken = match socket.send(bytes) {
                Ok(Some(taken)) => taken,
                Ok(None) => return,
                Err(e) => return self.fail_to_send(number, e),
            };
            slot.stream.taken(taken);
            self.live.sends.one();
            self.live.bytes_sent.add(taken as u64);
            if self.spec.one_way {
                slot.waiting_since = self.clock.now();
                slot.stream.end_taken(self.spec.sizes, |_| self.live.messages_over.one());
                self.mind_the_last_message(number);
            }
            if taken < asked {
                self.live.short_sends.one();
                return;
            }
        }
        self.leave(number);
    }

    /// Others have their turn before the rest of it.
    fn leave(&mut self, number: u32) {
        if !std::mem::replace(&mut self.slots[number as usize].again, true) {
            self.again.push(number);
        }
    }

    fn begin_messages(&mut self, number: u32, now: u64) {
        let slot = &mut self.slots[number as usize];
        if slot.state != State::Open || self.ending {
            return;
        }
        let outstanding = u64::from(self.spec.outstanding);
        let block = &self.blocks[slot.block as usize];
        let paced = self.spec.pace != Pace::Closed;
        let was_idle = slot.stream.under_way() == 0;
        while slot.stream.under_way() < outstanding
            && self.spec.sends.is_none_or(|sends| slot.stream.begun() < sends)
        {
            let message = slot.stream.begun();
            let intended_ns = match &block.schedule {
                Some(schedule) => schedule.due_on_ns(number - block.first, message),
                None if paced => break,
                None => now,
            };
            if intended_ns > now {
                break;
            }
            let place = u64::from(number) * outstanding + message % outstanding;
            self.times[place as usize] = intended_ns;
            slot.stream.begin(self.spec.sizes);
            self.live.messages_sent.one();
        }
        if was_idle && slot.stream.under_way() > 0 {
            slot.waiting_since = self.clock.now();
            if !slot.timed {
                self.set_timer(number, self.spec.answer_timeout);
            }
        }
    }

    /// What the server said before it broke the connection off can still be received.
    fn fail_to_send(&mut self, number: u32, error: io::Error) {
        let slot = &mut self.slots[number as usize];
        (slot.state, slot.ended) = (State::Broken, true);
        self.receive(number);
        if self.slots[number as usize].state == State::Broken {
            self.break_off(number, error);
        }
    }

    /// Tells the server that nothing follows, if all that was to be sent is over.
    fn mind_the_last_message(&mut self, number: u32) {
        let slot = &mut self.slots[number as usize];
        let enough =
            self.ending || self.spec.sends.is_some_and(|sends| slot.stream.over() >= sends);
        let (State::Open, Some(socket)) = (slot.state, &slot.socket) else { return };
        if !enough || slot.stream.under_way() > 0 {
            return;
        }
        match socket.end_sending() {
            Ok(()) => {
                slot.state = State::Ending;
                slot.waiting_since = self.clock.now();
                self.set_timer(number, self.spec.drain);
            }
            Err(e) => self.break_off(number, e),
        }
    }

    // ---- receiving -----------------------------------------------------------------------

    /// Attends to a socket that changed.
    fn attend(&mut self, Ready { number, receive, ended }: Ready) {
        let slot = &mut self.slots[number as usize];
        slot.ended |= ended;
        match (slot.state, &slot.socket) {
            (State::Over, _) | (_, None) => return,
            (State::Connecting, Some(socket)) => match socket.connected() {
                Ok(()) => self.connected(number),
                Err(e) if system::is_refused(&e) => return self.close(number, End::Refused),
                Err(e) if system::is_timed_out(&e) => return self.close(number, End::TimedOut),
                // It was made, and the server has broken it off already.
                Err(e) if system::is_reset(&e) => {
                    self.connected(number);
                    if self.slots[number as usize].state != State::Over {
                        self.break_off(number, e);
                    }
                    return;
                }
                Err(e) => return self.close(number, End::ConnectFailed(e)),
            },
            _ => {}
        }
        if receive || ended {
            self.receive(number);
        }
        self.send(number, now_ns());
    }

    fn connected(&mut self, number: u32) {
        let now = now_ns();
        let outstanding = self.spec.outstanding as usize;
        let began_ns = self.times[number as usize * outstanding];
        self.live.connects.record(now - began_ns);
        self.live.connected.one();
        self.standing += 1;
        self.live.open.set(self.standing);
        self.outcome.last_connected_ns = Some(now);
        self.clock.cancel(number);
        let slot = &mut self.slots[number as usize];
        slot.state = State::Open;
        slot.timed = false;
        self.settle(number);
        self.mind_the_last_message(number);
    }

    fn settle(&mut self, number: u32) {
        self.connecting -= 1;
        let block = self.slots[number as usize].block;
        self.blocks[block as usize].unsettled -= 1;
        self.begin_schedule(block);
    }

    /// Receives what there is, and answers.
    fn receive(&mut self, number: u32) {
        for _ in 0..TURN {
            let slot = &self.slots[number as usize];
            let (false, Some(socket)) = (slot.state == State::Over, &slot.socket) else { return };
            match socket.receive(&mut self.buffer) {
                Ok(Some(0)) => return self.ended(number),
                Ok(Some(count)) => {
                    let now = now_ns();
                    self.take(number, count, now);
                    self.mind_the_last_message(number);
                    self.send(number, now);
                    // Less than there was room for is all there was, unless the end lies behind it.
                    if count < self.buffer.len() && !self.slots[number as usize].ended {
                        return;
                    }
                }
                Ok(None) => return,
                Err(e) => return self.break_off(number, e),
            }
        }
        self.leave(number);
    }

    /// Takes so many bytes of the buffer, which came on this connection.
    fn take(&mut self, number: u32, count: usize, now: u64) {
        let Self { slots, times, live, spec, shared, buffer, .. } = self;
        let slot = &mut slots[number as usize];
        let bytes = &buffer[..count];
        live.receives.one();
        live.bytes_received.add(count as u64);
        if slot.state == State::Listening {
            return self.hear(number, count, None);
        }
        slot.waiting_since = self.clock.now();
        let outstanding = u64::from(spec.outstanding);
        let (measure_from_ns, end_ns) =
            (shared.measure_from_ns.load(Relaxed), shared.end_ns.load(Relaxed));
        let over = |message: u64| {
            live.messages_over.one();
            let place = u64::from(number) * outstanding + message % outstanding;
            let intended_ns = times[place as usize];
            if (measure_from_ns..end_ns).contains(&intended_ns) {
                live.latencies.record(now.saturating_sub(intended_ns));
            }
        };
        let result = match spec.one_way {
            false => slot.stream.received(bytes, spec.sizes, over),
            true => Err(slot.stream.unexpected(bytes[0])),
        };
        if let Err(wrong) = result {
            if slot.stream.is_fresh() {
                return self.hear(number, count, Some(wrong));
            }
            self.close(number, End::Wrong(wrong));
        }
    }

    /// What came first is no echo: it may be a refusal.
    fn hear(&mut self, number: u32, count: usize, wrong: Option<Wrong>) {
        if let Some(wrong) = wrong {
            self.heard.insert(number, (Vec::new(), wrong));
        }
        let Some((bytes, wrong)) = self.heard.get_mut(&number) else { return };
        let room = refusal::REFUSAL_BYTES_MAX.saturating_sub(bytes.len());
        bytes.extend_from_slice(&self.buffer[..count.min(room)]);
        match refusal::read(bytes, false) {
            Heard::Perhaps => self.slots[number as usize].state = State::Listening,
            Heard::Refusal(text) => self.close(number, End::RefusedByServer(text)),
            Heard::Other => {
                let wrong = *wrong;
                self.close(number, End::Wrong(wrong));
            }
        }
    }

    /// The server sends no more.
    fn ended(&mut self, number: u32) {
        if let Some((bytes, wrong)) = self.heard.get(&number) {
            let end = match refusal::read(bytes, true) {
                Heard::Refusal(text) => End::RefusedByServer(text),
                _ => End::Wrong(*wrong),
            };
            return self.close(number, end);
        }
        let slot = &self.slots[number as usize];
        // A reset that follows an end is seen as an end, with the reset as the socket's error.
        let is_reset = || slot.socket.as_ref().is_some_and(|socket| socket.connected().is_err());
        let end = match slot.state {
            State::Ending => End::Finished,
            State::Broken => End::Reset,
            _ if slot.stream.under_way() == 0 => End::EndedByServer,
            _ if is_reset() => End::Reset,
            _ => End::Truncated,
        };
        self.close(number, end);
    }

    fn break_off(&mut self, number: u32, error: io::Error) {
        let end = match self.heard.get(&number).map(|(bytes, _)| refusal::read(bytes, true)) {
            Some(Heard::Refusal(text)) => End::RefusedByServer(text),
            _ if system::is_reset(&error) => End::Reset,
            _ => End::Broken(error),
        };
        self.close(number, end);
    }

    // ---- time, and the end ---------------------------------------------------------------

    fn set_timer(&mut self, number: u32, time: Duration) {
        self.slots[number as usize].timed = true;
        // The clock stands at the last tick looked at, which may be over.
        let due = self.clock.now().saturating_add(1).saturating_add(Wheel::ticks(time));
        self.clock.set(number, due);
    }

    fn mind_the_clock(&mut self, now: u64) {
        if now < self.clock_looked_ns + TICK.as_nanos() as u64 {
            return;
        }
        self.clock_looked_ns = now;
        let mut expired = std::mem::take(&mut self.expired);
        self.clock.expired(Instant::now(), &mut expired);
        while let Some(number) = expired.pop() {
            self.timed(number);
        }
        self.expired = expired;
    }

    /// A connection's timer fell due.
    fn timed(&mut self, number: u32) {
        let slot = &mut self.slots[number as usize];
        slot.timed = false;
        let waited = self.clock.now().saturating_sub(slot.waiting_since);
        match slot.state {
            State::Over => {}
            State::Connecting => self.close(number, End::TimedOut),
            State::Ending => self.close(number, End::LeftOpen),
            _ if slot.stream.under_way() == 0 => {}
            _ => match Wheel::ticks(self.spec.answer_timeout).saturating_sub(waited) {
                0 => self.close(number, End::Unanswered),
                left => self.set_timer(number, TICK * left),
            },
        }
    }

    fn mind_the_end(&mut self, now: u64) {
        let end_ns = self.shared.end_ns.load(Relaxed);
        if now < end_ns {
            return;
        }
        if !std::mem::replace(&mut self.ending, true) {
            // It is no fault that those are not begun which nobody waits for.
            self.gave_up = true;
            self.due.clear();
            for number in 0..self.slots.len() as u32 {
                match self.slots[number as usize].state {
                    State::Connecting => self.close(number, End::Unfinished),
                    _ => self.mind_the_last_message(number),
                }
            }
        }
        if now >= end_ns.saturating_add(self.spec.drain.as_nanos() as u64) {
            self.end_all(|state| match state {
                State::Ending => End::LeftOpen,
                _ => End::CutOff,
            });
        }
    }

    fn end_all(&mut self, end: impl Fn(State) -> End) {
        for number in 0..self.slots.len() as u32 {
            match self.slots[number as usize].state {
                State::Over => {}
                State::Connecting => self.close(number, End::Unfinished),
                state => self.close(number, end(state)),
            }
        }
    }

    fn close(&mut self, number: u32, end: End) {
        let slot = &mut self.slots[number as usize];
        let was = std::mem::replace(&mut slot.state, State::Over);
        debug_assert_ne!(was, State::Over, "a connection ends once");
        slot.socket = None;
        self.clock.cancel(number);
        if !self.heard.is_empty() {
            self.heard.remove(&number);
        }
        self.open -= 1;
        let live = self.live;
        let count = match &end {
            End::Refused => &live.refused,
            End::TimedOut => &live.timed_out,
            End::ConnectFailed(_) => &live.connect_failed,
            End::Unfinished => &live.unfinished,
            End::Finished => &live.finished,
            End::RefusedByServer(_) => &live.refused_by_server,
            End::Reset => &live.reset,
            End::Broken(_) => &live.broken,
            End::EndedByServer => &live.ended_by_server,
            End::Truncated => &live.truncated,
            End::Wrong(_) => &live.wrong,
            End::Unanswered => &live.unanswered,
            End::CutOff => &live.cut_off,
            End::LeftOpen => &live.left_open,
        };
        count.one();
        match end {
            End::ConnectFailed(e) => self.outcome.causes.add(format!("connecting: {e}"), 1),
            End::Broken(e) => self.outcome.causes.add(format!("connected: {e}"), 1),
            End::RefusedByServer(text) => self.outcome.refusals.add(text, 1),
            End::Wrong(wrong) => {
                self.outcome.wrong.get_or_insert(wrong);
            }
            _ => {}
        }
        if was == State::Connecting {
            self.settle(number);
        } else {
            self.standing -= 1;
            self.live.open.set(self.standing);
        }
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
