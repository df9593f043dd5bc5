//! What every rank but 0 does: it starts the children that rank 0 asks for, and relays what they say.
//!
//! It starts nothing but weir's own servers and generators (`permit`), and as many at a time as there may be.
//! When rank 0 is gone, or says that it is over, all of them are ended.

use std::collections::{HashMap, VecDeque};
use std::io::Write;
use std::path::PathBuf;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use weir_load::ranks::{Lost, Ranks};

use super::meet::{Met, meet};
use super::message::{Agreed, Order, Said, compare_clocks, read, write};
use super::meter::Meter;
use super::permit::may_start;
use crate::child::{CommandLine, Event, Exit, keep_end, read_each, text_of};

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

/// A child.
struct Running {
    process: std::process::Child,
    stdin: Option<ChildStdin>,
    stderr: Arc<Mutex<VecDeque<u8>>>,
    stderr_ended: Receiver<()>,
    output_ended: bool,
    /// How it ended, and when that was seen.
    exit: Option<(Exit, Instant)>,
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Serves rank 0 until it says that it is over. `program` is weir itself.
///
/// # Errors
/// Why it came to nothing, or ended before.
pub fn serve(ranks: &dyn Ranks, program: PathBuf) -> Result<(), String> {
    let Met { agreed, .. } = meet(ranks, None)?;
    let (sender, events) = sync_channel(EVENTS_WAITING);
    let news = sender.clone();
    ranks.on_news(Box::new(move || {
        // Where there is no room, something is handed on soon, and all is looked at then.
        let _ = news.try_send(Heard::News);
    }));
    let mut agent = Agent { ranks, program, agreed, children: HashMap::new(), sender, meter: None };
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
    agreed: Agreed,
    children: HashMap<u32, Running>,
    sender: SyncSender<Heard>,
    meter: Option<Meter>,
}

impl Agent<'_> {
    /// It sleeps while nothing is said: what is measured here shares its cores.
    fn relay(&mut self, events: &Receiver<Heard>) -> Result<(), Lost> {
        loop {
            self.look_at_ends()?;
            while let Ok(order) = self.ranks.receive(0, Instant::now()) {
                let order = read(&order).map_err(|why| Lost {
                    rank: Some(0),
                    host: self.ranks.host(0).into(),
                    why,
                })?;
                if order == Order::Goodbye {
                    return Ok(());
                }
                self.obey(order)?;
            }
            if let Some(lost) = self.ranks.lost() {
                return Err(lost);
            }
            let first = match self.children.values().any(|of| of.output_ended) {
                true => events.recv_timeout(LOOK_EVERY).ok(),
                false => events.recv().ok(),
            };
            for heard in first.into_iter().chain(events.try_iter()).take(EVENTS_WAITING) {
                if let Heard::Child(child, event) = heard {
                    self.hand_on(child, event)?;
                }
            }
        }
    }

    fn say(&self, said: &Said) -> Result<(), Lost> {
        self.ranks.send(0, &write(said))
    }

    /// Relays what a child said. One that was ended is heard no longer.
    fn hand_on(&mut self, child: u32, event: Event) -> Result<(), Lost> {
        let Some(running) = self.children.get_mut(&child) else { return Ok(()) };
        match event {
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
            self.say(&Said::Over { child, exit, stderr })?;
        }
        Ok(())
    }

    fn obey(&mut self, order: Order) -> Result<(), Lost> {
        match order {
            Order::Start { child, words } => {
                if let Err(why) = self.start(child, &words) {
                    self.say(&Said::Failed { child, why })?;
                }
            }
            Order::Say { child, line } => {
                let running = self.children.get_mut(&child);
                if let Some(stdin) = running.and_then(|running| running.stdin.as_mut()) {
                    // One that has ended may have said why before, and that is told then.
                    let _ = writeln!(stdin, "{line}").and_then(|()| stdin.flush());
                }
            }
            Order::CloseInput { child } => {
                self.children.get_mut(&child).into_iter().for_each(|running| running.stdin = None);
            }
            Order::End { child } => drop(self.children.remove(&child)),
            Order::Clock { from } => {
                self.say(&Said::Clock)?;
                compare_clocks(self.ranks, from, Instant::now() + CLOCKS_WITHIN)?;
            }
            Order::Begin => {
                self.meter = Some(Meter::begin(self.agreed.own[self.ranks.rank()]));
            }
            Order::Read { own_cpu_ns } => {
                let reading = self.meter.as_mut().map(|meter| meter.read(own_cpu_ns));
                self.say(&Said::Reading(reading.unwrap_or_default()))?;
            }
            Order::Goodbye => {}
        }
        Ok(())
    }

    fn start(&mut self, child: u32, words: &[String]) -> Result<(), String> {
        may_start(words, self.ranks.rank() == self.agreed.server, self.agreed.address)?;
        if self.children.len() == MOST_CHILDREN {
            return Err(format!("{MOST_CHILDREN} children run here already"));
        }
        let command = CommandLine::new(&self.program).with_key(Some(&self.agreed.key));
        let command = command.arguments(words.iter().cloned());
        let mut process: Command = command.to_process();
        // Also where this process is killed.
        weir::process::end_with_this_thread(&mut process);
        process.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process =
            process.spawn().map_err(|error| format!("cannot start {command}: {error}"))?;
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
        let running =
            Running { process, stdin, stderr, stderr_ended, output_ended: false, exit: None };
        self.children.insert(child, running);
        Ok(())
    }
}
