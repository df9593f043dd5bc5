//! Rank 0's side: the other ranks, and the children that they run.
//!
//! One thread speaks with all of them, since only one of a process may: it sends what is ordered, and hands on what they
//! say. It sleeps while nothing is said, as what is measured may share its cores.
//!
//! Those right below rank 0 in the tree of the ranks speak for all others of what is for all; the conversation with a child of
//! one rank, such as the server, goes to it directly.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::json;
use weir_load::clock::now_ns;
use weir_load::ranks::clocks::{Offset, own_offset};
use weir_load::ranks::{LATE, Lost, Ranks, receive, tree};

use super::agent::unable_to_start;
use super::gathering::{Gathering, Readings, below};
use super::meet::{Asked, Met, Room, meet, not_reached};
use super::message::{Agreed, Order, Said, Task, read, write};
use super::meter::{Meter, Reading};
use super::own::{Own, heard_at_root};
use super::{Host, Hosts};
use crate::child::{Child, ChildError, CommandLine, Event, Exit, Interrupt, Remote};
use crate::experiment::results::{Results, Study};
use crate::wire::{FailureLine, ReadyTo};

/// Events of a child at another host that wait for their reader; one that says more is ended.
const EVENTS_WAITING: usize = 1024;
/// How long an agent may take for an answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// How long before they begin generators are told when, so that all have heard of it: so many times what it took to ask all
/// agents something and to hear of all, and no less and no more than these.
const LEAD_TIMES: u32 = 3;
const LEAD: (Duration, Duration) = (Duration::from_millis(30), Duration::from_secs(2));
/// So much longer for each step of the tree of the ranks but the first: what speaks for a rank may nap as long before it hears.
const LEAD_OF_A_STEP: Duration = Duration::from_millis(20);
/// How long a comparison that was interrupted waits for what may have ended it: MPI's own signal comes a little before the
/// loss of a rank is seen, and little time is left for the report.
const LOST_WITHIN: Duration = Duration::from_millis(200);
/// How often it looks for that.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// What is said of generators that have ended, where that is waited for.
pub(super) const OVER: &str = "over";
/// Numbers of children at other hosts begin here: no process has such an id.
const FIRST_CHILD: u32 = 1 << 31;

/// The ranks of a comparison, seen from rank 0. Dropped, it ends all children and agents.
pub struct Fleet {
    hosts: Hosts,
    /// Whether all are known to have the clock of the server.
    have_one_clock: bool,
    room: Room,
    agreed: Agreed,
    own: Own,
    /// CPU time of the last generator of rank 0, in ns, and how many took part.
    last_part: (AtomicU64, AtomicU64),
    orders: Sender<Work>,
    shared: Arc<Shared>,
    next_child: AtomicU32,
    thread: Option<JoinHandle<()>>,
    /// Of rank 0's own host.
    meter: Mutex<Option<Meter>>,
}

/// What is known of the ranks of a comparison also when its [`Fleet`] has gone.
pub struct Watch(Arc<Shared>);

impl Watch {
    /// Whether one was lost, or could not do its part.
    pub fn has_lost(&self) -> bool {
        self.0.state().lost.is_some()
    }
}

/// What the thread is to do.
enum Work {
    /// To one.
    Order(usize, Order),
    /// To all, along the tree of the ranks.
    ToAll(Order),
    /// To compare the clocks of all with that of rank 0, or of another one.
    Clocks(Option<usize>, SyncSender<Clocks>),
    /// To look what came from the ranks, which it does anyway.
    News,
    Goodbye,
}

/// How the clocks stand that rank 0 hears of, and how long before a start the ranks are told.
pub(crate) struct Clocks {
    /// That of rank 0, where it was compared with another.
    pub(super) own: Offset,
    /// That of the [server, or of the first generator](heard_at_root), which is rank 0 itself else.
    other: Offset,
    server: usize,
    lead: Duration,
}

impl Clocks {
    /// That of the server.
    pub(crate) fn of_server(&self) -> Offset {
        if self.server == 0 { Offset::default() } else { self.other }
    }

    /// That of the first generator.
    pub(crate) fn of_first(&self) -> Offset {
        if self.server == 0 { self.other } else { Offset::default() }
    }

    /// When generators begin that are told now, in ns of rank 0's clock.
    pub(crate) fn start_soon(&self) -> u64 {
        now_ns() + self.lead.as_nanos() as u64
    }
}

struct Shared {
    state: Mutex<State>,
    interrupt: Interrupt,
}

#[derive(Default)]
struct State {
    children: HashMap<u32, Entry>,
    /// Generators below rank 0 that do one task.
    parties: HashMap<u32, Party>,
    /// What the hosts of all other ranks did, until all right below have said it, and who waits for that.
    reading: Option<(Readings, SyncSender<Reading>)>,
    /// How often they were read.
    readings: u32,
    lost: Option<Lost>,
}

/// Generators that do one task, of all ranks but rank 0, as a child that says what is true of all of them.
struct Party {
    phases: Vec<String>,
    gathering: Gathering,
    /// The first of all, if it is none of rank 0: it is heard of its own, too.
    first: usize,
    events: SyncSender<Event>,
    is_over: Arc<AtomicBool>,
}

/// A child at another host.
struct Entry {
    rank: usize,
    events: SyncSender<Event>,
    ended: Arc<Mutex<Option<(Exit, String)>>>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A rank is gone: nothing can go on.
    fn lose(&self, lost: Lost) {
        let mut state = self.state();
        state.lost.get_or_insert(lost);
        state.reading = None;
        drop(state);
        self.interrupt.raise();
    }
}

impl Fleet {
    /// Meets the others.
    ///
    /// # Errors
    /// What is wrong with which rank. The others have heard it.
    pub fn meet(
        ranks: Arc<dyn Ranks>,
        asked: &Asked,
        interrupt: &Interrupt,
    ) -> Result<Self, String> {
        let Met { agreed, own, hosts } = meet(ranks.as_ref(), Some(asked))?;
        let (hosts, have_one_clock, room) = hosts.ok_or("only rank 0 has a fleet")?;
        let server = agreed.server;
        let (orders, work) = channel();
        let state = Mutex::default();
        let shared = Arc::new(Shared { state, interrupt: interrupt.clone() });
        let told = Arc::clone(&shared);
        // Once is enough until it has looked.
        let is_told = Arc::new(AtomicBool::new(false));
        let (news, is_new) = (orders.clone(), Arc::clone(&is_told));
        ranks.on_news(Box::new(move || {
            if !is_new.swap(true, Ordering::SeqCst) {
                // Where nobody listens it is over.
                let _ = news.send(Work::News);
            }
        }));
        let thread = std::thread::Builder::new()
            .name("weir ranks".into())
            .spawn(move || speak((ranks.as_ref(), server), &work, &is_told, &told))
            .map_err(|error| {
                format!("cannot start the thread that speaks with the ranks: {error}")
            })?;
        Ok(Self {
            hosts,
            have_one_clock,
            room,
            agreed,
            own,
            last_part: Default::default(),
            orders,
            shared,
            next_child: AtomicU32::new(FIRST_CHILD),
            thread: Some(thread),
            meter: Mutex::default(),
        })
    }

    /// What outlives it.
    pub fn watch(&self) -> Watch {
        Watch(Arc::clone(&self.shared))
    }

    /// Where everything runs.
    pub fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    /// How many connections there may be.
    pub fn room(&self) -> Room {
        self.room
    }

    /// The server's address.
    pub fn address(&self) -> std::net::IpAddr {
        self.agreed.address
    }

    /// The rank that was lost, and why, if one was.
    pub fn lost(&self) -> Option<String> {
        self.shared.state().lost.as_ref().map(Lost::to_string)
    }

    /// The same of a comparison that was interrupted: what ended it may be found only now that a rank is lost.
    fn lost_within(&self, time: Duration) -> Option<String> {
        let until = Instant::now() + time;
        while self.lost().is_none() && Instant::now() < until {
            std::thread::sleep(LOOK_EVERY);
        }
        self.lost()
    }

    /// Says in the results of a comparison that a rank was lost, if one was.
    pub fn conclude<K: Study>(&self, results: &mut Results<K>) {
        let lost = match results.interrupted {
            true => self.lost_within(LOST_WITHIN),
            false => self.lost(),
        };
        if let Some(lost) = lost {
            results.interrupted = true;
            results.error = Some(format!("the comparison was ended: {lost}"));
        }
    }

    /// The key of the control channels of this run.
    pub(crate) fn key(&self) -> &str {
        &self.agreed.key
    }

    /// Starts a command of weir's at a host, rank 0's own included.
    ///
    /// # Errors
    /// If it cannot be started here; what happens elsewhere is told by the child.
    pub(crate) fn spawn(
        &self,
        at: &Host,
        name: &'static str,
        command: &CommandLine,
        interrupt: &Interrupt,
    ) -> Result<Child, ChildError> {
        if at.rank == 0 {
            let command = command.clone().with_key(Some(self.key()));
            let child = Child::spawn(name, &command, interrupt);
            return child
                .map(|child| child.at(at.to_string()))
                .map_err(|why| self.failed_here(why));
        }
        if interrupt.is_raised() {
            return Err(ChildError::Interrupted);
        }
        let child = self.next_child.fetch_add(1, Ordering::Relaxed);
        let (sender, events) = sync_channel(EVENTS_WAITING);
        let ended = Arc::default();
        interrupt.listen(child, sender.clone());
        let entry = Entry { rank: at.rank, events: sender, ended: Arc::clone(&ended) };
        self.shared.state().children.insert(child, entry);
        let orders = self.orders.clone();
        let shared = Arc::clone(&self.shared);
        let remote = Elsewhere { rank: at.rank, child, orders, shared, ended };
        remote.order(Order::Start { child, words: command.words().to_vec() });
        let child = Child::elsewhere(name, child, events, Box::new(remote), interrupt);
        Ok(child.at(at.to_string()))
    }

    /// Starts generators at all ranks but rank 0 that take part, as one child, which says what is true of all of them: how far
    /// they have come, and what they did together; or that one has failed. None if rank 0 alone takes part.
    pub(super) fn spawn_below(
        &self,
        task: &Task,
        interrupt: &Interrupt,
    ) -> Result<(u32, Option<Child>), ChildError> {
        if interrupt.is_raised() {
            return Err(ChildError::Interrupted);
        }
        self.last_part.0.store(0, Ordering::Relaxed);
        self.last_part.1.store(task.parts as u64, Ordering::Relaxed);
        let number = self.next_child.fetch_add(1, Ordering::Relaxed);
        let count = self.hosts.generators.len() + 1;
        let below = below(0, count, self.agreed.server, task.parts);
        if below.is_empty() {
            return Ok((number, None));
        }
        let (sender, events) = sync_channel(EVENTS_WAITING);
        let is_over = Arc::default();
        interrupt.listen(number, sender.clone());
        let party = Party {
            phases: task.phases.clone(),
            gathering: Gathering::of(below),
            first: self.hosts.generators[0].rank,
            events: sender,
            is_over: Arc::clone(&is_over),
        };
        self.shared.state().parties.insert(number, party);
        self.order_all(Order::StartAll { child: number, task: task.clone() });
        let shared = Arc::clone(&self.shared);
        let remote = AllBelow { number, orders: self.orders.clone(), shared, is_over };
        let name = task.kind.name();
        let child = Child::elsewhere(name, number, events, Box::new(remote), interrupt);
        Ok((number, Some(child)))
    }

    /// That something of rank 0 failed, for this reason, with its host. If rank 0 cannot do its part any more it is lost, as
    /// another would be that says [`Said::Unable`].
    pub(super) fn failed_here(&self, why: ChildError) -> ChildError {
        let server = &self.hosts.server;
        let unable = match &why {
            ChildError::Interrupted => None,
            ChildError::Spawn { source, .. } => Some(unable_to_start(source)),
            _ => not_reached(&self.agreed, &server.name),
        };
        let own = self.hosts.generators.first().filter(|host| host.rank == 0).unwrap_or(server);
        match unable {
            Some(why) => {
                self.shared.lose(Lost { rank: Some(0), host: own.name.clone(), why });
                ChildError::Interrupted
            }
            None => why.at(&own.to_string()),
        }
    }

    /// What the generator of rank 0 had of CPU time, in ns.
    pub(super) fn note_cpu_ns(&self, cpu_ns: u64) {
        self.last_part.0.store(cpu_ns, Ordering::Relaxed);
    }

    /// What rank 0 has to itself.
    pub(super) fn own(&self) -> &Own {
        &self.own
    }

    /// Whether all ranks are known to have the clock of the server.
    pub(crate) fn have_one_clock(&self) -> bool {
        self.have_one_clock
    }

    /// How far the clocks of the ranks are from that of rank 0, now. No child may say anything meanwhile that is waited for.
    ///
    /// # Errors
    /// If a rank is lost.
    pub(crate) fn clocks(&self) -> Result<Clocks, ChildError> {
        self.compare_clocks(None)
    }

    /// Compares them with that of the server's rank in the same way; gives that of rank 0, and each rank knows its own.
    ///
    /// # Errors
    /// If a rank is lost.
    pub(crate) fn clocks_from_server(&self) -> Result<Offset, ChildError> {
        let own = self.compare_clocks(Some(self.agreed.server))?.own;
        Ok(if self.own.has_server_clock { Offset::default() } else { own })
    }

    pub(super) fn compare_clocks(&self, from: Option<usize>) -> Result<Clocks, ChildError> {
        let (sender, answer) = sync_channel(1);
        let _ = self.orders.send(Work::Clocks(from, sender));
        match answer.recv_timeout(2 * ANSWER_WITHIN) {
            Ok(clocks) => Ok(clocks),
            Err(_) if self.lost().is_some() => Err(ChildError::Interrupted),
            Err(_) => Err(failed("the clocks of the ranks could not be compared".into())),
        }
    }

    /// Begins to measure what all hosts do.
    pub(crate) fn begin_meters(&self) {
        *self.meter() = Some(Meter::begin(self.agreed.own[0]));
        self.order_all(Order::Begin);
    }

    /// Reads it. The server had so much CPU time, in ns; what generators had is known to their ranks.
    ///
    /// # Errors
    /// If a rank is lost.
    pub(crate) fn read_meters(&self, server_ns: u64) -> Result<Reading, ChildError> {
        let (generator_ns, parts) = &self.last_part;
        let parts = parts.load(Ordering::Relaxed) as usize;
        let cpu_ns = self.own.cpu_ns(generator_ns.load(Ordering::Relaxed), parts, server_ns);
        let own = |meter: &mut Meter| meter.read(&self.own, cpu_ns);
        let (sender, reading) = sync_channel(1);
        let below = tree::children(0, self.hosts.generators.len() + 1);
        let mut state = self.shared.state();
        if state.lost.is_some() {
            return Err(ChildError::Interrupted);
        }
        state.readings += 1;
        let number = state.readings;
        state.reading = Some((Readings::of(number, below, Reading::NOTHING), sender));
        drop(state);
        self.order_all(Order::Read { number, server_ns });
        let own = self.meter().as_mut().map(own).unwrap_or_default();
        let others = reading.recv_timeout(ANSWER_WITHIN);
        let readings = self.shared.state().reading.take().map(|(readings, _)| readings);
        match others {
            Ok(others) => Ok(own.and(others)),
            Err(_) if self.lost().is_some() => Err(ChildError::Interrupted),
            Err(_) => {
                let count = self.hosts.generators.len() + 1;
                let first = readings.and_then(|of| of.first_silent()).unwrap_or(0);
                let who = who_is_silent(first, count);
                Err(failed(format!("rank {first}{who} did not say what its host did")))
            }
        }
    }

    /// An order to all.
    pub(super) fn order_all(&self, order: Order) {
        // The thread is gone only when a rank was lost, which whoever waits is told.
        let _ = self.orders.send(Work::ToAll(order));
    }

    fn meter(&self) -> MutexGuard<'_, Option<Meter>> {
        self.meter.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        let _ = self.orders.send(Work::Goodbye);
        if let Some(thread) = self.thread.take() {
            // A panic in there was reported by its own thread.
            let _ = thread.join();
        }
    }
}

fn failed(message: String) -> ChildError {
    ChildError::Reported(crate::wire::Failure { unavailable: false, message })
}

/// What stands for a child at another host.
struct Elsewhere {
    rank: usize,
    child: u32,
    orders: Sender<Work>,
    shared: Arc<Shared>,
    ended: Arc<Mutex<Option<(Exit, String)>>>,
}

impl Elsewhere {
    fn order(&self, order: Order) {
        let _ = self.orders.send(Work::Order(self.rank, order));
    }
}

impl Remote for Elsewhere {
    fn say(&mut self, line: &str) {
        self.order(Order::Say { child: self.child, line: line.into() });
    }

    fn close_input(&mut self) {
        self.order(Order::CloseInput { child: self.child });
    }

    fn ended(&self) -> Option<(Exit, String)> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn end(&mut self) {
        self.shared.state().children.remove(&self.child);
        if self.ended().is_none() {
            self.order(Order::End { child: self.child });
        }
    }
}

/// What stands for the generators of all ranks but rank 0.
struct AllBelow {
    number: u32,
    orders: Sender<Work>,
    shared: Arc<Shared>,
    is_over: Arc<AtomicBool>,
}

impl Remote for AllBelow {
    /// They are told by [`Order::BeginAll`], and have an end of their own.
    fn say(&mut self, _line: &str) {}

    fn close_input(&mut self) {}

    fn ended(&self) -> Option<(Exit, String)> {
        let is_over = self.is_over.load(Ordering::SeqCst);
        is_over.then(|| (Exit::unknown("all of them"), String::new()))
    }

    fn end(&mut self) {
        self.shared.state().parties.remove(&self.number);
        if self.ended().is_none() {
            let _ = self.orders.send(Work::ToAll(Order::EndAll { child: self.number }));
        }
    }
}

/// Speaks with the ranks until it is over, or one is lost.
fn speak(
    (ranks, server): (&dyn Ranks, usize),
    work: &Receiver<Work>,
    is_told: &AtomicBool,
    shared: &Shared,
) {
    // What came before anybody was told.
    let mut next = Some(Work::News);
    let outcome = loop {
        let mut went = Ok(());
        let mut is_over = false;
        while let (Some(now), Ok(())) = (next, &went) {
            match now {
                Work::News => is_told.store(false, Ordering::SeqCst),
                Work::Order(rank, order) => went = ranks.send(rank, &write(&order)),
                Work::ToAll(order) => went = send_down(ranks, &order),
                Work::Clocks(from, answer) => {
                    went = compare_all(ranks, shared, (from, server), &answer);
                    if let Err(lost) = &went {
                        // Before whoever waits for the answer sees that there is none.
                        shared.lose(lost.clone());
                    }
                }
                Work::Goodbye => {
                    is_over = true;
                    break;
                }
            }
            next = work.try_recv().ok();
        }
        if is_over {
            break None;
        }
        for rank in 1..ranks.count() {
            while went.is_ok()
                && let Ok(said) = ranks.receive(rank, Instant::now())
            {
                went = hand_on(shared, rank, &said).map_err(|why| lost(ranks, rank, why)).map(drop);
            }
        }
        if let Some(lost) = went.err().or_else(|| ranks.lost()) {
            break Some(lost);
        }
        next = Some(work.recv().unwrap_or(Work::Goodbye));
    };
    let Some(lost) = outcome else {
        let _ = send_down(ranks, &Order::Goodbye);
        return;
    };
    shared.lose(lost);
    for rank in 1..ranks.count() {
        // Whoever is gone hears nothing, and passes nothing on.
        let _ = ranks.send(rank, &write(&Order::Goodbye));
    }
}

/// To those right below, who pass it on.
fn send_down(ranks: &dyn Ranks, order: &Order) -> Result<(), Lost> {
    let order = write(order);
    tree::children(0, ranks.count()).try_for_each(|child| ranks.send(child, &order))
}

/// Who else may be silent where a rank says nothing that speaks for others, as words behind it.
fn who_is_silent(rank: usize, count: usize) -> String {
    let below: Vec<String> = tree::below(rank, count)[1..].iter().map(usize::to_string).collect();
    match below.is_empty() {
        true => String::new(),
        false => format!(", or one that it speaks for ({}),", below.join(", ")),
    }
}

fn lost(ranks: &dyn Ranks, rank: usize, why: String) -> Lost {
    Lost { rank: Some(rank), host: ranks.host(rank).into(), why }
}

/// Hands on what a rank said. Gives whether it was that its clock may be compared.
fn hand_on(shared: &Shared, rank: usize, said: &[u8]) -> Result<bool, String> {
    let mut state = shared.state();
    // A child that was dropped is heard no longer.
    let entry = |child: &u32, state: &mut State| {
        let entry = state.children.get(child).filter(|entry| entry.rank == rank)?;
        Some((entry.events.clone(), Arc::clone(&entry.ended)))
    };
    match read(said)? {
        Said::Clock => return Ok(true),
        Said::Unable { why } => return Err(why),
        // It is heard where clocks are compared.
        Said::Compared(_) => {}
        Said::Reading { number, reading } => {
            if let Some((readings, waiting)) = &mut state.reading {
                readings.add(rank, number, reading);
                if let Some((_, all)) = readings.whole() {
                    let _ = waiting.try_send(all);
                }
            }
        }
        Said::CameTo { child, steps } => {
            if let Some(party) = state.parties.get_mut(&child) {
                let before = party.gathering.told();
                for step in before..party.gathering.came_to(rank, steps).unwrap_or(before) {
                    let phase = party.phases.get(step).map_or(OVER, String::as_str).to_owned();
                    let line = write(&ReadyTo { phase });
                    let line = String::from_utf8_lossy(&line).into_owned();
                    let _ = party.events.try_send(Event::Line(line));
                }
            }
        }
        Said::Did { child, reports } => {
            if let Some(party) = state.parties.get_mut(&child)
                && let Some(all) = party.gathering.reported(rank, reports)
            {
                party.is_over.store(true, Ordering::SeqCst);
                let line = String::from_utf8_lossy(&write(&all)).into_owned();
                let _ = party.events.try_send(Event::Line(line));
                let _ = party.events.try_send(Event::End);
            }
        }
        Said::Broke { child, failure } => {
            if let Some(party) = state.parties.get(&child) {
                let line = write(&FailureLine { error: failure });
                let line = String::from_utf8_lossy(&line).into_owned();
                let _ = party.events.try_send(Event::Line(line));
            }
        }
        // What the first of all says besides.
        Said::Line { child, line: Some(line) } if state.parties.contains_key(&child) => {
            if let Some(party) = state.parties.get(&child).filter(|party| party.first == rank) {
                let _ = party.events.try_send(Event::Line(line));
            }
        }
        Said::Line { child, line } => {
            if let Some((events, _)) = entry(&child, &mut state) {
                let event = line.map_or(Event::Unreadable, Event::Line);
                if events.try_send(event).is_err() {
                    return Err(format!("has a child that said {EVENTS_WAITING} lines too many"));
                }
            }
        }
        Said::Failed { child, why } => {
            if let Some((events, ended)) = entry(&child, &mut state) {
                let failure = json!({ "error": { "message": why } }).to_string();
                end(&ended, Exit::unknown("never having run"), String::new());
                let _ = events.try_send(Event::Line(failure));
                let _ = events.try_send(Event::End);
            }
        }
        Said::Over { child, exit, stderr } => {
            if let Some((events, ended)) = entry(&child, &mut state) {
                end(&ended, exit, stderr);
                let _ = events.try_send(Event::End);
            }
        }
    }
    Ok(false)
}

fn end(ended: &Mutex<Option<(Exit, String)>>, exit: Exit, stderr: String) {
    *ended.lock().unwrap_or_else(PoisonError::into_inner) = Some((exit, stderr));
}

/// Compares the clocks of all, who must be silent meanwhile: each says that it is from now on.
fn compare_all(
    ranks: &dyn Ranks,
    shared: &Shared,
    (from, server): (Option<usize>, usize),
    answer: &SyncSender<Clocks>,
) -> Result<(), Lost> {
    let asked = Instant::now();
    let until = asked + ANSWER_WITHIN;
    send_down(ranks, &Order::Clock { from })?;
    let count = ranks.count();
    // The server's own word, behind whatever else it said to rank 0 itself.
    let itself = Some(server).filter(|server| tree::parent(*server).is_some_and(|above| above > 0));
    for rank in tree::children(0, count).chain(itself) {
        loop {
            let said = receive(ranks, rank, until).map_err(|lost| match lost.why == LATE {
                true => {
                    let others = who_is_silent(rank, count);
                    Lost { why: format!("{LATE}{}", others.trim_end_matches(',')), ..lost }
                }
                false => lost,
            })?;
            if hand_on(shared, rank, &said).map_err(|why| lost(ranks, rank, why))? {
                break;
            }
        }
    }
    let least = LEAD.0 + LEAD_OF_A_STEP * count.ilog2().saturating_sub(1);
    let lead = (LEAD_TIMES * asked.elapsed()).clamp(least, LEAD.1);
    let own = own_offset(ranks, from, until)?;
    let other = match from {
        // The next that it says, as all before its word that it is ready was heard.
        None => match read(&receive(ranks, heard_at_root(server), until)?) {
            Ok(Said::Compared(offset)) => offset,
            _ => {
                return Err(lost(
                    ranks,
                    heard_at_root(server),
                    "did not say how its clock stands".into(),
                ));
            }
        },
        Some(_) => Offset::default(),
    };
    let _ = answer.try_send(Clocks { own, other, server, lead });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_answer_to_an_earlier_reading_is_not_taken_for_one_to_this() {
        let shared = Shared { state: Mutex::default(), interrupt: Interrupt::new() };
        let (sender, read) = sync_channel(1);
        shared.state().reading = Some((Readings::of(2, [1], Reading::NOTHING), sender));
        let say = |number, dropped| {
            let reading = Reading { others: None, send_dropped: Some(dropped) };
            assert_eq!(hand_on(&shared, 1, &write(&Said::Reading { number, reading })), Ok(false));
        };
        say(1, 100);
        assert!(read.try_recv().is_err(), "it is of the run before");
        say(2, 3);
        assert_eq!(read.try_recv().map(|all| all.send_dropped), Ok(Some(3)));
    }
}
