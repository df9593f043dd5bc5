//! Rank 0's side: the other ranks, and the children that they run.
//!
//! One thread speaks with all of them, since only one of a process may: it sends what is ordered, and hands on what they
//! say. It sleeps while nothing is said, as what is measured may share its cores.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::json;
use weir_load::clock::now_ns;
use weir_load::ranks::clocks::Offset;
use weir_load::ranks::{Lost, Ranks};

use super::meet::{Asked, Ids, Met, meet};
use super::message::{Agreed, Order, Said, compare_clocks, read, write};
use super::meter::{Meter, Reading};
use super::{Host, Hosts};
use crate::child::{Child, ChildError, CommandLine, Event, Exit, Interrupt, Remote};
use crate::experiment::results::{Results, Study};

/// Events of a child at another host that wait for their reader; one that says more is ended.
const EVENTS_WAITING: usize = 1024;
/// How long an agent may take for an answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// How long before they begin generators are told when, so that all have heard of it: so many times what it took to ask all
/// agents something and to hear of all, and no less and no more than these.
const LEAD_TIMES: u32 = 3;
const LEAD: (Duration, Duration) = (Duration::from_millis(30), Duration::from_secs(2));
/// How long a comparison that was interrupted waits for what may have ended it: MPI's own signal comes a little before the
/// loss of a rank is seen, and little time is left for the report.
const LOST_WITHIN: Duration = Duration::from_millis(200);
/// How often it looks for that.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Numbers of children at other hosts begin here: no process has such an id.
const FIRST_CHILD: u32 = 1 << 31;

/// The ranks of a comparison, seen from rank 0. Dropped, it ends all children and agents.
pub struct Fleet {
    hosts: Hosts,
    /// What tells the ranks' hosts apart, and their clocks where that is known.
    host_ids: Vec<String>,
    clock_ids: Vec<Option<String>>,
    agreed: Agreed,
    orders: Sender<Work>,
    shared: Arc<Shared>,
    next_child: AtomicU32,
    thread: Option<JoinHandle<()>>,
    /// Of rank 0's own host.
    meter: Mutex<Option<Meter>>,
}

/// What the thread is to do.
enum Work {
    Order(usize, Order),
    /// To compare the clocks of all with that of rank 0, or of another one.
    Clocks(Option<usize>, SyncSender<Result<Clocks, String>>),
    /// To look what came from the ranks, which it does anyway.
    News,
    Goodbye,
}

/// How the clocks of the ranks stand, and how long before a start they are told.
pub(crate) struct Clocks {
    offsets: Vec<Offset>,
    lead: Duration,
}

impl std::ops::Deref for Clocks {
    type Target = [Offset];

    fn deref(&self) -> &[Offset] {
        &self.offsets
    }
}

impl Clocks {
    /// When generators begin that are told now, by the clock of each rank.
    pub(crate) fn start_soon(&self) -> impl Fn(usize, u64) -> u64 {
        let start_ns = now_ns() + self.lead.as_nanos() as u64;
        move |rank, later_ns| self.offsets[rank].there(start_ns + later_ns)
    }
}

struct Shared {
    state: Mutex<State>,
    interrupt: Interrupt,
}

#[derive(Default)]
struct State {
    children: HashMap<u32, Entry>,
    /// Who waits for the reading of a rank.
    readings: HashMap<usize, SyncSender<Reading>>,
    lost: Option<Lost>,
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
        state.readings.clear();
        drop(state);
        self.interrupt.raise();
    }
}

/// What all hosts did in a run.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Readings {
    /// Share (0 to 1) of all cores that others had, of the host where it was most.
    pub others: Option<f64>,
    /// Packets that the devices of the generators' hosts were to send and dropped, where all tell.
    pub send_dropped: Option<u64>,
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
        let Met { agreed, hosts } = meet(ranks.as_ref(), Some(asked))?;
        let (hosts, ids) = hosts.ok_or("only rank 0 has a fleet")?;
        let Ids { hosts: host_ids, clocks: clock_ids } = ids;
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
            .spawn(move || speak(ranks.as_ref(), &work, &is_told, &told))
            .map_err(|error| {
                format!("cannot start the thread that speaks with the ranks: {error}")
            })?;
        Ok(Self {
            hosts,
            host_ids,
            clock_ids,
            agreed,
            orders,
            shared,
            next_child: AtomicU32::new(FIRST_CHILD),
            thread: Some(thread),
            meter: Mutex::default(),
        })
    }

    /// Where everything runs.
    pub fn hosts(&self) -> &Hosts {
        &self.hosts
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
            return Child::spawn(name, &command.clone().with_key(Some(self.key())), interrupt);
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
        Ok(Child::elsewhere(name, child, events, Box::new(remote), interrupt))
    }

    /// How far the clocks of the ranks are from that of rank 0, now. No child may say anything meanwhile that is waited for.
    ///
    /// # Errors
    /// If a rank is lost.
    pub(crate) fn clocks(&self) -> Result<Clocks, ChildError> {
        self.compare_clocks(None)
    }

    /// How far they are from that of the server's rank, in the same way: 0 where it is the same clock.
    ///
    /// # Errors
    /// If a rank is lost.
    pub(crate) fn clocks_from_server(&self) -> Result<Vec<Offset>, ChildError> {
        let server = self.agreed.server;
        let is_its = |id: &Option<String>| id.is_some() && *id == self.clock_ids[server];
        let mut offsets = vec![Offset::default(); self.clock_ids.len()];
        if !self.clock_ids.iter().all(is_its) {
            let measured = self.compare_clocks(Some(server))?.offsets;
            for ((offset, measured), id) in offsets.iter_mut().zip(measured).zip(&self.clock_ids) {
                if !is_its(id) {
                    *offset = measured;
                }
            }
        }
        Ok(offsets)
    }

    pub(super) fn compare_clocks(&self, from: Option<usize>) -> Result<Clocks, ChildError> {
        let (sender, answer) = sync_channel(1);
        let _ = self.orders.send(Work::Clocks(from, sender));
        match answer.recv_timeout(2 * ANSWER_WITHIN) {
            Ok(Ok(clocks)) => Ok(clocks),
            Ok(Err(why)) => Err(failed(why)),
            Err(_) if self.lost().is_some() => Err(ChildError::Interrupted),
            Err(_) => Err(failed("the clocks of the ranks could not be compared".into())),
        }
    }

    /// Begins to measure what all hosts do.
    pub(crate) fn begin_meters(&self) {
        *self.meter() = Some(Meter::begin(self.agreed.own[0]));
        for rank in 1..self.host_ids.len() {
            self.order(rank, Order::Begin);
        }
    }

    /// Reads it. The children at each rank, which stand with it, had so much CPU time, in ns.
    ///
    /// # Errors
    /// If a rank is lost.
    pub(crate) fn read_meters(&self, cpu_ns: &[(usize, u64)]) -> Result<Readings, ChildError> {
        let of_host = |rank: usize| -> u64 {
            let here = |(of, _): &&(usize, u64)| self.host_ids[*of] == self.host_ids[rank];
            cpu_ns.iter().filter(here).map(|(_, ns)| ns).sum()
        };
        let ranks = self.host_ids.len();
        let waiting: Vec<Receiver<Reading>> = (1..ranks)
            .map(|rank| {
                let (sender, reading) = sync_channel(1);
                self.shared.state().readings.insert(rank, sender);
                self.order(rank, Order::Read { own_cpu_ns: of_host(rank) });
                reading
            })
            .collect();
        let own = self.meter().as_mut().map(|meter| meter.read(of_host(0))).unwrap_or_default();
        let mut all = vec![own];
        for (rank, reading) in (1..).zip(waiting) {
            match reading.recv_timeout(ANSWER_WITHIN) {
                Ok(reading) => all.push(reading),
                Err(_) if self.lost().is_some() => return Err(ChildError::Interrupted),
                Err(_) => return Err(failed(format!("rank {rank} did not say what its host did"))),
            }
        }
        let generators = || self.hosts.generators.iter().map(|at| (at.rank, &all[at.rank]));
        // A device that several ranks share tells each of them the same.
        let mut counted = vec![];
        let mut send_dropped = Some(0);
        for (rank, reading) in generators() {
            let device = (&self.host_ids[rank], self.agreed.own[rank]);
            if counted.contains(&device) {
                continue;
            }
            counted.push(device);
            send_dropped =
                send_dropped.zip(reading.send_dropped).map(|(all, one): (u64, u64)| all + one);
        }
        Ok(Readings {
            others: all.iter().filter_map(|reading| reading.others).reduce(f64::max),
            send_dropped,
        })
    }

    fn order(&self, rank: usize, order: Order) {
        // The thread is gone only when a rank was lost, which whoever waits is told.
        let _ = self.orders.send(Work::Order(rank, order));
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

/// Speaks with the ranks until it is over, or one is lost.
fn speak(ranks: &dyn Ranks, work: &Receiver<Work>, is_told: &AtomicBool, shared: &Shared) {
    // What came before anybody was told.
    let mut next = Some(Work::News);
    let outcome = loop {
        let mut went = Ok(());
        let mut is_over = false;
        while let (Some(now), Ok(())) = (next, &went) {
            match now {
                Work::News => is_told.store(false, Ordering::SeqCst),
                Work::Order(rank, order) => went = ranks.send(rank, &write(&order)),
                Work::Clocks(from, answer) => {
                    went = compare_all(ranks, shared, from, &answer);
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
    if let Some(lost) = outcome {
        shared.lose(lost);
    }
    for rank in 1..ranks.count() {
        // Whoever is gone hears nothing.
        let _ = ranks.send(rank, &write(&Order::Goodbye));
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
        Said::Reading(reading) => {
            if let Some(waiting) = state.readings.remove(&rank) {
                let _ = waiting.try_send(reading);
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
    from: Option<usize>,
    answer: &SyncSender<Result<Clocks, String>>,
) -> Result<(), Lost> {
    let asked = Instant::now();
    let until = asked + ANSWER_WITHIN;
    for rank in 1..ranks.count() {
        ranks.send(rank, &write(&Order::Clock { from }))?;
    }
    for rank in 1..ranks.count() {
        loop {
            let said = ranks.receive(rank, until)?;
            if hand_on(shared, rank, &said).map_err(|why| lost(ranks, rank, why))? {
                break;
            }
        }
    }
    let lead = (LEAD_TIMES * asked.elapsed()).clamp(LEAD.0, LEAD.1);
    let clocks = compare_clocks(ranks, from, until)?.map(|offsets| Clocks { offsets, lead });
    let _ = answer.try_send(clocks.ok_or_else(|| "only rank 0 can compare clocks".into()));
    Ok(())
}
