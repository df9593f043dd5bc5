//! What every rank but 0 does: it starts the children that rank 0 asks for, and relays what they say.
//!
//! It starts nothing but weir's own servers and generators, and peers that its own command names (`permit`), and as many at a
//! time as there may be.
//! When rank 0 is gone, or says that it is over, all of them are ended.
//!
//! Of generators, which all do the same, it speaks for those below it in the tree of the ranks as well (`Gathering`). Who hears
//! from nobody below is not to judge why: only rank 0 is told that a rank is lost, and ends all then.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weir_load::ranks::clocks::{Between, Offset, own_offset};
use weir_load::ranks::{Lost, Ranks, tree};

use super::gathering::{Gathering, Readings, below};
use super::meet::{Met, meet, not_reached};
use super::message::{Agreed, Latencies, Order, Said, Task, read, write};
use super::meter::Meter;
use super::own::{Own, Place, heard_at_root, index};
pub use super::permit::Peers;
use super::permit::may_start;
use super::reports::{Generator, Reports};
use crate::child::{
    ChildError, CommandLine, Event, Exit, LONGEST_LINE_BYTES, keep_end, quoted, read_each, text_of,
};
use crate::wire::{Failure, FailureLine, ReadyTo};

/// Most children at a time.
const MOST_CHILDREN: usize = 8;
/// How often a child is looked at whose output has ended, until it has.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Events of children that wait to be relayed; then they wait.
const EVENTS_WAITING: usize = 64;
/// How long the last words of a child that has ended may take to arrive.
const LAST_WORDS_WITHIN: Duration = Duration::from_millis(500);
/// How long comparing clocks may take.
const CLOCKS_WITHIN: Duration = Duration::from_secs(10);

/// How long one that serves a program of others may take to end it, before it is ended itself.
const PEER_ENDS_WITHIN: Duration = Duration::from_millis(200);

/// A child.
struct Running {
    process: std::process::Child,
    stdin: Option<ChildStdin>,
    stderr: Arc<Mutex<VecDeque<u8>>>,
    stderr_ended: Receiver<()>,
    output_ended: bool,
    /// How it ended, and when that was seen.
    exit: Option<(Exit, Instant)>,
    /// Whether it has started a program of others, which may have started some itself.
    serves_peer: bool,
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.serves_peer && self.exit.is_none() {
            // It ends all of them when its input does.
            self.stdin = None;
            let _ = self.stderr_ended.recv_timeout(PEER_ENDS_WITHIN);
        }
        // Both fail only if it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Serves rank 0 until it says that it is over. `program` is weir itself; `peers` may be started, too.
///
/// # Errors
/// Why it came to nothing, or ended before.
pub fn serve(ranks: &dyn Ranks, program: PathBuf, peers: Peers) -> Result<(), String> {
    let Met { agreed, own, .. } = meet(ranks, None)?;
    let (sender, events) = sync_channel(EVENTS_WAITING);
    let news = sender.clone();
    ranks.on_news(Box::new(move || {
        // Where there is no room, something is handed on soon, and all is looked at then.
        let _ = news.try_send(Heard::News);
    }));
    let mut agent = Agent {
        ranks,
        program,
        peers,
        agreed,
        own,
        children: HashMap::new(),
        parties: HashMap::new(),
        sender,
        meter: None,
        clock: Offset::default(),
        of_server: Between::default(),
        to_compare: None,
        to_read: None,
        last_part: (0, 0),
        is_over: false,
    };
    agent.relay(&events).map_err(|lost| lost.to_string())
}

/// What wakes an agent.
enum Heard {
    /// A child said something, or has no more to say.
    Child(u32, Event),
    /// Something came from the ranks.
    News,
}

struct Agent<'a> {
    ranks: &'a dyn Ranks,
    program: PathBuf,
    peers: Peers,
    agreed: Agreed,
    own: Own,
    children: HashMap<u32, Running>,
    /// Generators that do one task, this rank's and those of all below.
    parties: HashMap<u32, Party>,
    sender: SyncSender<Heard>,
    meter: Option<Meter>,
    /// The own clock, as those of rank 0 and, the last two times, of the server see it.
    clock: Offset,
    of_server: Between,
    /// With whose clocks are to be compared, and who below has not said yet that its own may be.
    to_compare: Option<(Option<usize>, BTreeSet<usize>)>,
    /// What the hosts of this rank and below did, until all have said it.
    to_read: Option<Readings>,
    /// CPU time of the last generator here, in ns, and how many took part.
    last_part: (u64, usize),
    /// Clocks were not compared to the end: rank 0 has ended all meanwhile.
    is_over: bool,
}

/// Generators that do one task, of this rank and of those below.
struct Party {
    task: Task,
    gathering: Gathering,
    /// That of this rank, if it takes part.
    own: Option<Part>,
}

/// A generator of several.
struct Part {
    index: usize,
    started: Instant,
    /// How many of the phases it has told.
    phases: usize,
    /// What it said besides: its report.
    text: String,
    /// How it ended, and the end of its standard error.
    over: Option<(Exit, String)>,
    /// Whether clocks were compared after its end.
    is_compared: bool,
    has_reported: bool,
}

impl Agent<'_> {
    /// It sleeps while nothing is said: what is measured here shares its cores.
    fn relay(&mut self, events: &Receiver<Heard>) -> Result<(), Lost> {
        loop {
            self.look_at_ends()?;
            if self.hear_ranks()? {
                return Ok(());
            }
            let late = self.look_at_times()?;
            if let Some(lost) = self.ranks.lost() {
                return Err(lost);
            }
            let look_at = self.children.values().any(|of| of.output_ended).then_some(LOOK_EVERY);
            let first = match look_at.into_iter().chain(late).min() {
                Some(within) => events.recv_timeout(within).ok(),
                None => events.recv().ok(),
            };
            for heard in first.into_iter().chain(events.try_iter()).take(EVENTS_WAITING) {
                if let Heard::Child(child, event) = heard {
                    self.hand_on(child, event)?;
                }
            }
        }
    }

    /// Takes what has come from above and from below; gives whether it is over.
    fn hear_ranks(&mut self) -> Result<bool, Lost> {
        let from = |rank: usize, ranks: &dyn Ranks| ranks.receive(rank, Instant::now()).ok();
        // What is for all comes from the rank above, what is for this one alone from rank 0.
        for above in BTreeSet::from([tree::parent(self.ranks.rank()).unwrap_or(0), 0]) {
            while !self.is_over
                && let Some(bytes) = from(above, self.ranks)
            {
                let order: Order = self.read(above, &bytes)?;
                if order.is_for_all() {
                    self.children_ranks().for_each(|rank| self.pass_on(rank, &bytes));
                }
                if order == Order::Goodbye {
                    return Ok(true);
                }
                self.obey(order)?;
            }
        }
        let below: Vec<usize> = self.children_ranks().collect();
        for rank in below {
            // One whose clock may be compared is asked for that next.
            while !self.is_over
                && !self.is_to_be_compared(rank)
                && let Some(bytes) = from(rank, self.ranks)
            {
                let said = self.read(rank, &bytes)?;
                self.hear(rank, said)?;
            }
        }
        Ok(self.is_over)
    }

    fn read<T: serde::de::DeserializeOwned>(&self, rank: usize, said: &[u8]) -> Result<T, Lost> {
        let host = || self.ranks.host(rank).into();
        read(said).map_err(|why| Lost { rank: Some(rank), host: host(), why })
    }

    fn children_ranks(&self) -> impl Iterator<Item = usize> + use<> {
        tree::children(self.ranks.rank(), self.ranks.count())
    }

    fn is_to_be_compared(&self, rank: usize) -> bool {
        self.to_compare.as_ref().is_some_and(|(_, silent)| !silent.contains(&rank))
    }

    /// To a rank in between. If it is lost rank 0 sees it, and ends the run.
    fn pass_on(&self, rank: usize, bytes: &[u8]) {
        let _ = self.ranks.send(rank, bytes);
    }

    /// To rank 0 itself.
    fn say(&self, said: &Said) -> Result<(), Lost> {
        self.ranks.send(0, &write(said))
    }

    /// To the rank above, for this one and all below.
    fn say_for_all(&self, said: &Said) -> Result<(), Lost> {
        match tree::parent(self.ranks.rank()) {
            Some(above) if above > 0 => {
                self.pass_on(above, &write(said));
                Ok(())
            }
            _ => self.say(said),
        }
    }

    /// Takes what a rank right below says for all below it.
    fn hear(&mut self, rank: usize, said: Said) -> Result<(), Lost> {
        match said {
            // Who is not waited for any more is heard no longer.
            Said::CameTo { child, steps } => {
                let party = self.parties.get_mut(&child);
                let news = party.and_then(|party| party.gathering.came_to(rank, steps));
                self.tell_steps(child, news)
            }
            Said::Did { child, reports } => self.add(child, rank, reports),
            broke @ Said::Broke { .. } => self.say_for_all(&broke),
            Said::Clock => {
                if let Some((_, silent)) = &mut self.to_compare {
                    silent.remove(&rank);
                }
                self.compare_if_all_are_there()
            }
            Said::Reading { number, reading } => {
                if let Some(readings) = &mut self.to_read {
                    readings.add(rank, number, reading);
                }
                self.tell_reading_of_all()
            }
            // Those that rank 0 hears itself.
            Said::Failed { .. }
            | Said::Line { .. }
            | Said::Over { .. }
            | Said::Unable { .. }
            | Said::Compared(_) => Ok(()),
        }
    }

    /// Relays what a child said. One that was ended is heard no longer.
    fn hand_on(&mut self, child: u32, event: Event) -> Result<(), Lost> {
        let Some(running) = self.children.get_mut(&child) else { return Ok(()) };
        let is_part = self.parties.contains_key(&child);
        match event {
            Event::Line(line) if is_part => self.hear_part(child, &line),
            Event::Unreadable if is_part => self.break_off(child, |kind| ChildError::Garbage {
                name: kind,
                what: "report",
                problem: "a line that is too long or not UTF-8".into(),
            }),
            Event::Line(line) => self.say(&Said::Line { child, line: Some(line) }),
            Event::Unreadable => self.say(&Said::Line { child, line: None }),
            Event::End => {
                running.output_ended = true;
                Ok(())
            }
            Event::Interrupted => Ok(()),
        }
    }

    /// Tells of children that have said everything and ended.
    fn look_at_ends(&mut self) -> Result<(), Lost> {
        let mut over = vec![];
        for (child, running) in self.children.iter_mut().filter(|(_, of)| of.output_ended) {
            if running.exit.is_none() {
                let ended = running.process.try_wait().ok().flatten();
                running.exit = ended.map(|status| (Exit::from(status), Instant::now()));
            }
            let Some((exit, at)) = &running.exit else { continue };
            // Disconnected when it has been read to its end.
            let has_said_all =
                running.stderr_ended.try_recv() == Err(std::sync::mpsc::TryRecvError::Disconnected);
            if has_said_all || at.elapsed() >= LAST_WORDS_WITHIN {
                over.push((*child, exit.clone(), text_of(&running.stderr)));
            }
        }
        for (child, exit, stderr) in over {
            self.children.remove(&child);
            match self.parties.get_mut(&child).and_then(|party| party.own.as_mut()) {
                Some(part) => {
                    part.over = Some((exit, stderr));
                    self.end_part(child)?;
                }
                None => self.say(&Said::Over { child, exit, stderr })?,
            }
        }
        Ok(())
    }

    /// Ends generators that take too long, and tells; gives when the next one would.
    fn look_at_times(&mut self) -> Result<Option<Duration>, Lost> {
        let mut next = None;
        let mut late = vec![];
        for (child, party) in &self.parties {
            let Some(part) = party.own.as_ref().filter(|part| part.over.is_none()) else {
                continue;
            };
            let within = Duration::from_millis(party.task.within_ms);
            match within.saturating_sub(part.started.elapsed()) {
                Duration::ZERO => late.push(*child),
                left => next = next.into_iter().chain([left]).min(),
            }
        }
        for child in late {
            let party = &self.parties[&child];
            let part = party.own.as_ref().filter(|part| part.phases < party.task.phases.len());
            let what = part.map_or("report", |_| "word that it is ready");
            let waited = Duration::from_millis(party.task.within_ms);
            let stderr =
                self.children.get(&child).map(|of| text_of(&of.stderr)).unwrap_or_default();
            let stderr = if stderr.is_empty() { stderr } else { format!("; it said: {stderr}") };
            self.break_off(child, |name| ChildError::Deadline { name, what, waited, stderr })?;
        }
        Ok(next)
    }

    fn obey(&mut self, order: Order) -> Result<(), Lost> {
        match order {
            Order::Start { child, words } => {
                if let Err(why) = self.start(child, &words) {
                    self.say(&Said::Failed { child, why })?;
                }
            }
            Order::Say { child, line } => self.tell_child(child, &line),
            Order::CloseInput { child } => {
                self.children.get_mut(&child).into_iter().for_each(|running| running.stdin = None);
            }
            Order::End { child } => drop(self.children.remove(&child)),
            Order::StartAll { child, task } => self.start_part(child, task)?,
            Order::BeginAll { child, start_ns } => {
                let party = self.parties.get(&child);
                let begins = party.and_then(|party| {
                    let later_ns = party.task.later_ns(party.own.as_ref()?.index);
                    Some(self.clock.there(start_ns + later_ns))
                });
                if let Some(start_ns) = begins {
                    self.tell_child(child, &json!({ "start_ns": start_ns }).to_string());
                }
            }
            Order::EndAll { child } => {
                self.children.remove(&child);
                let own = self.parties.remove(&child).and_then(|party| party.own);
                if own.is_some_and(|part| part.over.is_none()) {
                    // Somebody else has failed, which may be since it heard nothing from here.
                    self.say_if_not_reached()?;
                }
            }
            Order::Clock { from } => {
                self.to_compare = Some((from, self.children_ranks().collect()));
                self.compare_if_all_are_there()?;
            }
            Order::Begin => {
                self.meter = Some(Meter::begin(self.agreed.own[self.ranks.rank()]));
            }
            Order::Read { number, server_ns } => {
                let (generator_ns, parts) = self.last_part;
                let cpu_ns = self.own.cpu_ns(generator_ns, parts, server_ns);
                let reading = self.meter.as_mut().map(|meter| meter.read(&self.own, cpu_ns));
                let reading = reading.unwrap_or_default();
                self.to_read = Some(Readings::of(number, self.children_ranks(), reading));
                self.tell_reading_of_all()?;
            }
            Order::Goodbye => {}
        }
        Ok(())
    }

    fn tell_child(&mut self, child: u32, line: &str) {
        let running = self.children.get_mut(&child);
        if let Some(stdin) = running.and_then(|running| running.stdin.as_mut()) {
            // One that has ended may have said why before, and that is told then.
            let _ = writeln!(stdin, "{line}").and_then(|()| stdin.flush());
        }
    }

    fn tell_reading_of_all(&mut self) -> Result<(), Lost> {
        let Some((number, reading)) = self.to_read.as_ref().and_then(Readings::whole) else {
            return Ok(());
        };
        self.to_read = None;
        self.say_for_all(&Said::Reading { number, reading })
    }

    /// Compares the own clock, once all below can have theirs compared. Nothing else is said or heard meanwhile.
    fn compare_if_all_are_there(&mut self) -> Result<(), Lost> {
        let Some((from, _)) = self.to_compare.take_if(|(_, silent)| silent.is_empty()) else {
            return Ok(());
        };
        self.say_for_all(&Said::Clock)?;
        let own = self.ranks.rank();
        if own == self.agreed.server && tree::parent(own) != Some(0) {
            // What it said to rank 0 itself is not to be mistaken for a question.
            self.say(&Said::Clock)?;
        }
        let Ok(found) = own_offset(self.ranks, from, Instant::now() + CLOCKS_WITHIN) else {
            // Something else came in place of a question, or nothing. Why is rank 0's to say, unless that is lost.
            self.is_over = true;
            let mut from_root = std::iter::from_fn(|| self.ranks.receive(0, Instant::now()).ok());
            let is_told = from_root.any(|said| read::<Order>(&said) == Ok(Order::Goodbye));
            return self.ranks.lost().filter(|_| !is_told).map_or(Ok(()), Err);
        };
        if from.is_none() {
            self.clock = found;
            return match own == heard_at_root(self.agreed.server) {
                true => self.say(&Said::Compared(found)),
                false => Ok(()),
            };
        }
        self.of_server = Between { before: self.of_server.after, after: found };
        let over = |party: &mut Party| {
            let part = party.own.as_mut().filter(|part| part.over.is_some())?;
            part.is_compared = true;
            Some(())
        };
        let ended: Vec<u32> = self
            .parties
            .iter_mut()
            .filter_map(|(child, party)| over(party).map(|()| *child))
            .collect();
        ended.into_iter().try_for_each(|child| self.end_part(child))
    }

    // ---- generators of one task ----------------------------------------------------------

    fn start_part(&mut self, child: u32, task: Task) -> Result<(), Lost> {
        let (rank, count, server) = (self.ranks.rank(), self.ranks.count(), self.agreed.server);
        let index = index(rank, server).filter(|index| *index < task.parts);
        let said_below = below(rank, count, server, task.parts);
        let gathering = Gathering::of(said_below.iter().copied().chain(index.map(|_| rank)));
        self.last_part = (0, task.parts);
        if said_below.is_empty() && index.is_none() {
            return Ok(());
        }
        let own = index.map(|index| Part {
            index,
            started: Instant::now(),
            phases: 0,
            text: String::new(),
            over: None,
            is_compared: false,
            has_reported: false,
        });
        let words = index.map(|index| {
            let clock = match self.own.has_server_clock {
                true => Offset::default(),
                false => self.of_server.after,
            };
            let place = Place { index, of: task.parts, cores: &self.own.cores, clock };
            place.words(&task.words)
        });
        self.parties.insert(child, Party { task, gathering, own });
        match words.map(|words| self.start(child, &words)) {
            Some(Err(message)) => self.break_off(child, |_| {
                ChildError::Reported(Failure { unavailable: false, message })
            }),
            _ => Ok(()),
        }
    }

    /// Tells rank 0 if this rank does not reach the server's host any more; gives whether that is so.
    fn say_if_not_reached(&self) -> Result<bool, Lost> {
        match not_reached(&self.agreed, self.ranks.host(self.agreed.server)) {
            Some(why) => self.say(&Said::Unable { why }).map(|()| true),
            None => Ok(false),
        }
    }

    /// The generator of this rank came to nothing; those of others go on until rank 0 ends them.
    fn break_off(
        &mut self,
        child: u32,
        why: impl FnOnce(&'static str) -> ChildError,
    ) -> Result<(), Lost> {
        let Some(party) = self.parties.remove(&child) else { return Ok(()) };
        self.children.remove(&child);
        if self.say_if_not_reached()? {
            return Ok(());
        }
        let failure = match why(party.task.kind.name()).at(&self.place()) {
            ChildError::Reported(failure) => failure,
            other => Failure { unavailable: false, message: other.to_string() },
        };
        self.say_for_all(&Said::Broke { child, failure })
    }

    fn place(&self) -> String {
        let rank = self.ranks.rank();
        format!("rank {rank} on {}", self.ranks.host(rank))
    }

    fn hear_part(&mut self, child: u32, line: &str) -> Result<(), Lost> {
        let Some(party) = self.parties.get_mut(&child) else { return Ok(()) };
        let Some(part) = &mut party.own else { return Ok(()) };
        let phase = serde_json::from_str::<ReadyTo>(line).map(|ReadyTo { phase }| phase);
        match phase {
            Ok(phase) if party.task.phases.get(part.phases) == Some(&phase) => {
                part.phases += 1;
                let news = party.gathering.came_to(self.ranks.rank(), part.phases);
                self.tell_steps(child, news)
            }
            Ok(_) if part.phases == party.task.phases.len() => match part.index {
                // What nobody waits for of all may be waited for of the first.
                0 => self.say(&Said::Line { child, line: Some(line.into()) }),
                _ => Ok(()),
            },
            _ => {
                part.text.push_str(line);
                part.text.push('\n');
                let is_too_long = part.text.len() as u64 > LONGEST_LINE_BYTES;
                if let Some(running) = self.children.get_mut(&child) {
                    // It has nothing more to hear.
                    running.stdin = None;
                }
                match is_too_long {
                    true => self.break_off(child, |name| ChildError::Garbage {
                        name,
                        what: "report",
                        problem: "it is too long".into(),
                    }),
                    false => Ok(()),
                }
            }
        }
    }

    fn tell_steps(&self, child: u32, news: Option<usize>) -> Result<(), Lost> {
        match news {
            Some(steps) => self.say_for_all(&Said::CameTo { child, steps }),
            None => Ok(()),
        }
    }

    /// The generator of this rank has ended: tells so, and what it did, or that it failed.
    fn end_part(&mut self, child: u32) -> Result<(), Lost> {
        let reports = match self.own_report(child) {
            Some(Err(why)) => return self.break_off(child, |_| why),
            Some(Ok(reports)) => Some(reports),
            None => None,
        };
        let rank = self.ranks.rank();
        let Some(party) = self.parties.get_mut(&child) else { return Ok(()) };
        let news = party.gathering.came_to(rank, party.task.steps());
        self.tell_steps(child, news)?;
        let Some(reports) = reports else { return Ok(()) };
        self.last_part.0 = reports.cpu_ns();
        self.add(child, rank, reports)
    }

    /// What the generator of this rank did, once; where clocks are to be compared after its end not before that.
    fn own_report(&mut self, child: u32) -> Option<Result<Reports, ChildError>> {
        let (rank, place) = (self.ranks.rank(), self.place());
        let Party { task, own, .. } = self.parties.get_mut(&child)?;
        let part = own.as_mut()?;
        let (exit, stderr) = part.over.as_ref()?;
        let has_begun = part.phases == task.phases.len();
        // One that ended without a word has failed, which is told at once.
        let has_spoken = !part.text.trim().is_empty();
        let of_server = match task.latencies {
            Latencies::None => None,
            Latencies::Compared if !part.is_compared && has_begun && has_spoken => return None,
            Latencies::Compared if !self.own.has_server_clock => Some(self.of_server),
            Latencies::OneClock | Latencies::Compared => Some(Between::default()),
        };
        if std::mem::replace(&mut part.has_reported, true) {
            return None;
        }
        let later_ns = task.later_ns(part.index);
        let generator = Generator { place, rank, clock: self.clock, later_ns, of_server };
        Some(report_in(&part.text, has_begun, (exit, stderr), task, &generator))
    }

    /// Adds what generators did that a rank speaks for; tells what all did.
    fn add(&mut self, child: u32, rank: usize, reports: Reports) -> Result<(), Lost> {
        let party = self.parties.get_mut(&child);
        match party.and_then(|party| party.gathering.reported(rank, reports)) {
            Some(reports) => {
                self.parties.remove(&child);
                self.say_for_all(&Said::Did { child, reports })
            }
            None => Ok(()),
        }
    }

    fn start(&mut self, child: u32, words: &[String]) -> Result<(), String> {
        let serves = self.ranks.rank() == self.agreed.server;
        may_start(words, serves, self.agreed.address, &self.peers)?;
        if self.children.len() == MOST_CHILDREN {
            return Err(format!("{MOST_CHILDREN} children run here already"));
        }
        let command = CommandLine::new(&self.program).with_key(Some(&self.agreed.key));
        let command = command.arguments(words.iter().cloned());
        let mut process: Command = command.to_process();
        // Also where this process is killed.
        weir::process::end_with_this_thread(&mut process);
        process.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = process.spawn().map_err(|error| {
            // It would be so with every run. Where rank 0 is gone that is seen anyway.
            let _ = self.say(&Said::Unable { why: unable_to_start(&error) });
            format!("cannot start {command}: {error}")
        })?;
        let stdin = process.stdin.take();
        if let Some(stdout) = process.stdout.take() {
            let sender = self.sender.clone();
            thread::spawn(move || {
                read_each(stdout, |event| sender.send(Heard::Child(child, event)).is_ok())
            });
        }
        let stderr = Arc::default();
        let (stderr_open, stderr_ended) = sync_channel(0);
        if let Some(pipe) = process.stderr.take() {
            let kept = Arc::clone(&stderr);
            thread::spawn(move || {
                keep_end(pipe, &kept);
                drop(stderr_open);
            });
        }
        let serves_peer =
            matches!(words, [serve, peer, ..] if serve == "serve" && peer.ends_with("peer"));
        let running = Running {
            process,
            stdin,
            stderr,
            stderr_ended,
            output_ended: false,
            exit: None,
            serves_peer,
        };
        self.children.insert(child, running);
        Ok(())
    }
}

/// Why a rank that cannot start weir is of no use.
pub(super) fn unable_to_start(error: &io::Error) -> String {
    format!("cannot start weir: {error}")
}

/// What a generator that has ended reported.
fn report_in(
    text: &str,
    has_begun: bool,
    (exit, stderr): (&Exit, &str),
    task: &Task,
    generator: &Generator,
) -> Result<Reports, ChildError> {
    let name = task.kind.name();
    let what = if has_begun { "report" } else { "word that it is ready" };
    if text.trim().is_empty() {
        let stderr = if stderr.is_empty() { stderr.into() } else { format!("; it said: {stderr}") };
        return Err(ChildError::Ended { name, what, status: exit.to_string(), stderr });
    }
    if let Ok(failure) = serde_json::from_str::<FailureLine>(text) {
        return Err(ChildError::Reported(failure.error));
    }
    let document: Value = serde_json::from_str(text).map_err(|error| ChildError::Garbage {
        name,
        what,
        problem: format!("{error} in {}", quoted(text)),
    })?;
    Reports::of(task.kind, document, has_begun, generator)
}
