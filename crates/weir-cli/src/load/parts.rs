//! A load of several processes, since one may have only so many descriptors.
//!
//! Each is this program again, with the same words and the number of its part. They and the one that
//! leads them talk in lines of JSON: a part says when its connections are made and what it has done
//! ([`FromPart`]), and is told when messages are measured, or to end ([`Order`]). A part whose leader has
//! gone sees the end of its input, and ends.

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, Command, Stdio},
    str::FromStr,
    sync::{
        Arc,
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::Duration,
};

use anyhow::Context;
use serde::{Deserialize, Serialize};
use weir::Unavailable;
use weir_load::{
    FloodError, Stop, StopReason,
    clock::now_ns,
    tcp::{
        self, Event, LoadError, LoadReport, LoadSpec, PROCESSES_MAX, Part, Progress, Share, Times,
    },
};

/// Descriptors that a process needs besides those of its connections and threads.
const OTHER_DESCRIPTORS: u64 = 14;
/// Those that a thread needs: to wait, and to be woken.
const DESCRIPTORS_OF_THREAD: u64 = 2;
/// Those with which a process is led: its input and its output.
const DESCRIPTORS_OF_PART: u64 = 2;
/// How long before its start the measurement is told, so that all have heard of it.
const LEAD_NS: u64 = 50_000_000;
/// How often a stop, which has no waker, is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Most intervals that wait for a part which is slow to tell its own.
const WAITING_MAX: usize = 64;

/// What a part says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FromPart {
    Settled,
    Interval(Progress),
    Done(Box<Part>),
    Failed { message: String, code: u8 },
}

/// What a part is told.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Order {
    Times(Times),
    Stop,
}

/// A part of a load, as it is named to its process: `0/3`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Which(pub(super) Share);

impl FromStr for Which {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/').and_then(|(index, of)| {
            Some(Share { index: index.parse().ok()?, of: of.parse().ok()? })
        });
        parts.map(Self).ok_or_else(|| format!("{text:?} is not a part, such as 0/3"))
    }
}

/// A part failed as a whole.
#[derive(Debug, thiserror::Error)]
#[error("a process of the load failed: {message}")]
pub(super) struct PartFailed {
    message: String,
    /// The exit code that says the same.
    pub(super) code: u8,
}

/// How many processes it takes to have the descriptors for so many connections, each with so many threads, and no
/// more connections in one than it waits for well, as far as there may be so many processes.
///
/// # Errors
/// If there can be no such number, since the one that leads them needs descriptors, too.
pub(super) fn needed(
    connections: u64,
    threads: usize,
    descriptors: Option<u64>,
    of_process: Option<u64>,
) -> Result<u32, LoadError> {
    let wished = of_process.map_or(1, |most| connections.div_ceil(most));
    let wished = wished.clamp(1, PROCESSES_MAX.into()) as u32;
    let Some(descriptors) = descriptors else { return Ok(wished) };
    let others = OTHER_DESCRIPTORS + DESCRIPTORS_OF_THREAD * threads as u64;
    let room = descriptors.saturating_sub(others);
    let led = descriptors.saturating_sub(OTHER_DESCRIPTORS) / DESCRIPTORS_OF_PART;
    let most = led.clamp(1, PROCESSES_MAX.into());
    match connections.checked_div(room) {
        Some(_) if connections <= room.saturating_mul(most) => {
            Ok((connections.div_ceil(room) as u32).max(wished))
        }
        _ => Err(Unavailable::new(
            format!("a load of {connections} connections"),
            format!(
                "a process may have {descriptors} descriptors, of which {room} are left for \
                 connections, and can lead {most} such processes: {} connections at most; raise the limit on open \
                 files (ulimit -n)",
                room.saturating_mul(most)
            ),
        )
        .into()),
    }
}

// ---- a part ------------------------------------------------------------------------------

/// Runs a part, and says how it went; gives the exit code.
pub(super) fn serve(spec: &LoadSpec, stop: &Arc<Stop>) -> Result<(), tcp::LoadError> {
    let (sender, times) = mpsc::channel();
    let stopped = Arc::clone(stop);
    thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            match serde_json::from_str(&line) {
                Ok(Order::Times(times)) => {
                    // If nobody listens it is over.
                    let _ = sender.send(times);
                }
                Ok(Order::Stop) => stopped.request(StopReason::Asked),
                Err(error) => say!("weir load tcp: an invalid order: {error}"),
            }
        }
        stopped.request(StopReason::Asked);
    });
    let part = tcp::load_part(spec, stop, &times, |event| match event {
        // Whoever leads the parts knows the times of all.
        Event::Ready(_) | Event::Began | Event::Ended(_) => {}
        Event::Settled => report(&FromPart::Settled),
        Event::Interval(progress) => report(&FromPart::Interval(progress)),
    })?;
    report(&FromPart::Done(Box::new(part)));
    Ok(())
}

/// Says why a part failed.
pub(super) fn fail(message: String, code: u8) {
    report(&FromPart::Failed { message, code });
}

fn report(message: &FromPart) {
    let line = serde_json::to_string(message).expect("it has no keys but texts");
    crate::print(&format!("{line}\n"));
}

// ---- the one that leads them --------------------------------------------------------------

/// The processes; they are ended when dropped.
struct Processes {
    children: Vec<(Child, Option<ChildStdin>)>,
    messages: Receiver<(usize, FromPart)>,
}

impl Processes {
    fn start(count: u32, run: Option<u32>) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("cannot find weir's own executable")?;
        let (sender, messages) = mpsc::channel();
        let mut started = Self { children: Vec::new(), messages };
        for index in 0..count {
            let mut command = Command::new(&program);
            command.args(std::env::args_os().skip(1)).args(["--part", &format!("{index}/{count}")]);
            if let Some(run) = run {
                command.args(["--run-id", &run.to_string()]);
            }
            weir::process::end_with_this_thread(&mut command);
            let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
            let mut child = child.with_context(|| {
                format!(
                    "cannot start process {} of {count} of the load; look at the limits on open files and \
                     processes (ulimit -n, ulimit -u)",
                    index + 1
                )
            })?;
            let output = child.stdout.take().expect("it is piped");
            let input = child.stdin.take();
            started.children.push((child, input));
            let sender = sender.clone();
            thread::spawn(move || listen(index as usize, BufReader::new(output), &sender));
        }
        Ok(started)
    }

    fn order(&mut self, order: Order) {
        let line = serde_json::to_string(&order).expect("it has no keys but texts") + "\n";
        for (_, input) in &mut self.children {
            // One that has ended needs no order.
            let _ = input.as_mut().map(|input| input.write_all(line.as_bytes()));
        }
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for (child, input) in &mut self.children {
            drop(input.take());
            // It ends in order, within the time that its load takes for that.
            let _ = child.wait();
        }
    }
}

/// Hands on what a part says, to its last word.
fn listen(index: usize, output: impl BufRead, sender: &Sender<(usize, FromPart)>) {
    for line in output.lines().map_while(Result::ok) {
        let message = serde_json::from_str(&line).unwrap_or_else(|error| FromPart::Failed {
            message: format!("it said {line:?}: {error}"),
            code: crate::exit::FAILED,
        });
        let last = matches!(message, FromPart::Done(_) | FromPart::Failed { .. });
        if sender.send((index, message)).is_err() || last {
            return;
        }
    }
    let message = "it ended without a report".into();
    let _ = sender.send((index, FromPart::Failed { message, code: crate::exit::FAILED }));
}

/// Loads with so many processes. `run` is the run id, if the command does not say it; `from` waits until somebody else says
/// when all is measured from, if somebody does.
pub(super) fn load(
    spec: &LoadSpec,
    processes: u32,
    run: Option<u32>,
    stop: &Stop,
    from: impl Fn(&Stop) -> Option<Result<u64, FloodError>>,
    mut watch: impl FnMut(Event<'_>),
) -> anyhow::Result<LoadReport> {
    let mut started = Processes::start(processes, run)?;
    let mut gathered = Gathered::new(processes as usize);
    let (mut whole, mut settled, mut stopped) = (None::<Part>, 0, false);
    let mut failed = None;
    // What is told when, the last first.
    let mut phases: Vec<(u64, Event<'_>)> = Vec::new();
    while gathered.left() > 0 {
        let until_ns = phases.last().map_or(u64::MAX, |(at_ns, _)| at_ns.saturating_sub(now_ns()));
        match started.messages.recv_timeout(LOOK_EVERY.min(Duration::from_nanos(until_ns))) {
            Ok((_, FromPart::Settled)) => {
                settled += 1;
                if settled == processes {
                    watch(Event::Settled);
                    let from_ns = from(stop).unwrap_or_else(|| Ok(now_ns() + LEAD_NS))?;
                    let times = spec.times_from(from_ns);
                    started.order(Order::Times(times));
                    if spec.sends.is_none() {
                        let Times { measure_from_ns, end_ns } = times;
                        phases =
                            vec![(end_ns, Event::Ended(end_ns)), (measure_from_ns, Event::Began)];
                    }
                }
            }
            Ok((index, FromPart::Interval(progress))) => {
                gathered.add(index, progress, &mut |progress| watch(Event::Interval(progress)));
            }
            Ok((index, FromPart::Done(part))) => {
                gathered.end(index, &mut |progress| watch(Event::Interval(progress)));
                match &mut whole {
                    Some(whole) => whole.merge(*part),
                    None => whole = Some(*part),
                }
            }
            Ok((index, FromPart::Failed { message, code })) => {
                gathered.end(index, &mut |progress| watch(Event::Interval(progress)));
                failed.get_or_insert(PartFailed { message, code });
                // Without it the others' figures are of another load.
                stop.request(StopReason::Failed);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        while phases.last().is_some_and(|(at_ns, _)| now_ns() >= *at_ns) {
            phases.pop().into_iter().for_each(|(_, phase)| watch(phase));
        }
        if stop.is_requested() && !std::mem::replace(&mut stopped, true) {
            started.order(Order::Stop);
        }
    }
    match (failed, whole) {
        (Some(failed), _) => Err(failed.into()),
        (None, Some(whole)) => Ok(tcp::assemble(spec, whole)),
        (None, None) => anyhow::bail!("no process of the load said what it did"),
    }
}

/// Intervals of the parts, put together.
struct Gathered {
    waiting: Vec<VecDeque<Progress>>,
    last: Vec<Option<Progress>>,
    ended: Vec<bool>,
}

impl Gathered {
    fn new(parts: usize) -> Self {
        Self {
            waiting: vec![VecDeque::new(); parts],
            last: vec![None; parts],
            ended: vec![false; parts],
        }
    }

    /// Parts that have not ended.
    fn left(&self) -> usize {
        self.ended.iter().filter(|ended| !**ended).count()
    }

    /// A part says nothing more: what waited for it is told.
    fn end(&mut self, index: usize, watch: &mut impl FnMut(Progress)) {
        self.ended[index] = true;
        while self.is_complete() {
            self.tell(watch);
        }
    }

    /// Whether there is an interval of which every part has said its own.
    fn is_complete(&self) -> bool {
        let mut all = self.waiting.iter().zip(&self.ended);
        all.all(|(waiting, ended)| *ended || !waiting.is_empty())
            && self.waiting.iter().any(|waiting| !waiting.is_empty())
    }

    /// Adds what a part says, and tells of the interval when every one has said its own.
    fn add(&mut self, index: usize, progress: Progress, watch: &mut impl FnMut(Progress)) {
        self.waiting[index].push_back(progress);
        if self.is_complete() || self.waiting[index].len() >= WAITING_MAX {
            self.tell(watch);
        }
    }

    fn tell(&mut self, watch: &mut impl FnMut(Progress)) {
        let mut whole: Option<Progress> = None;
        for (waiting, last) in self.waiting.iter_mut().zip(&mut self.last) {
            let Some(progress) = waiting.pop_front().or_else(|| last.map(silent)) else { continue };
            *last = Some(progress);
            whole = Some(whole.map_or(progress, |whole| whole.beside(&progress)));
        }
        whole.into_iter().for_each(watch);
    }
}

/// What is left to say of a part that says nothing more.
fn silent(last: Progress) -> Progress {
    let (from_ns, to_ns) = (last.to_ns, last.to_ns);
    Progress {
        from_ns: from_ns.max(to_ns),
        messages: 0,
        bytes_sent: 0,
        bytes_received: 0,
        open: 0,
        ..last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_processes_as_the_descriptors_ask_for() {
        for (connections, processes) in [(1, 1), (4096, 1), (4097, 2), (4_000_000, PROCESSES_MAX)] {
            assert_eq!(needed(connections, 1, None, Some(4096)).unwrap(), processes);
        }
        assert_eq!(needed(19_985, 1, Some(20_000), Some(4096)).unwrap(), 5);
        let needed = |connections, descriptors| needed(connections, 1, descriptors, None);
        assert_eq!(needed(1_000_000, None).unwrap(), 1);
        assert_eq!(needed(19_984, Some(20_000)).unwrap(), 1);
        assert_eq!(needed(19_985, Some(20_000)).unwrap(), 2);
        assert_eq!(needed(500_000, Some(20_000)).unwrap(), 26);
        assert_eq!(needed(48, Some(64)).unwrap(), 1);
        assert_eq!(needed(48 * 25, Some(64)).unwrap(), 25);
        for (connections, descriptors) in [(48 * 25 + 1, 64), (4_000_000, 1024), (1, 16), (1, 0)] {
            let error = needed(connections, Some(descriptors)).unwrap_err().to_string();
            assert!(error.contains("ulimit -n"), "{connections} of {descriptors}: {error}");
        }
    }

    fn progress(second: u64, open: u64, messages: u64) -> Progress {
        Progress {
            from_ns: second * 1_000_000_000,
            to_ns: (second + 1) * 1_000_000_000,
            open,
            attempted: 10,
            connected: 10,
            messages,
            bytes_sent: messages * 64,
            bytes_received: messages * 64,
        }
    }

    #[test]
    fn an_interval_is_reported_once_every_part_has_reported_its_own() {
        let (mut gathered, mut seen) = (Gathered::new(2), Vec::new());
        gathered.add(0, progress(0, 9, 5), &mut |progress| seen.push(progress));
        gathered.add(0, progress(1, 9, 6), &mut |progress| seen.push(progress));
        assert!(seen.is_empty());
        gathered.add(1, progress(0, 8, 7), &mut |progress| seen.push(progress));
        assert_eq!((seen.len(), seen[0].open, seen[0].messages), (1, 17, 12));
        gathered.end(1, &mut |progress| seen.push(progress));
        assert_eq!((gathered.left(), seen.len()), (1, 2), "what waited for it is told");
        let last = seen[1];
        assert_eq!((last.open, last.connected, last.messages), (9, 20, 6), "the other has ended");
        assert_eq!((last.from_ns, last.to_ns), (1_000_000_000, 2_000_000_000));
        gathered.add(0, progress(2, 9, 1), &mut |progress| seen.push(progress));
        assert_eq!(seen.iter().map(|progress| progress.messages).sum::<u64>(), 12 + 6 + 1);
    }

    #[test]
    fn a_part_that_is_silent_holds_nobody_up_for_ever() {
        let (mut gathered, mut reported) = (Gathered::new(2), 0);
        for second in 0..2 * WAITING_MAX as u64 {
            gathered.add(0, progress(second, 1, 1), &mut |_| reported += 1);
        }
        assert_eq!(reported, WAITING_MAX + 1);
    }

    #[test]
    fn what_is_said_is_read_again() {
        let orders = [Order::Stop, Order::Times(Times { measure_from_ns: 5, end_ns: u64::MAX })];
        for order in orders {
            let line = serde_json::to_string(&order).unwrap();
            let again: Order = serde_json::from_str(&line).unwrap();
            assert_eq!(serde_json::to_string(&again).unwrap(), line);
        }
        let (sender, messages) = mpsc::channel();
        listen(3, &b"\"settled\"\nnonsense\n"[..], &sender);
        listen(4, &b""[..], &sender);
        drop(sender);
        let all: Vec<_> = messages.iter().collect();
        assert!(matches!(all[0], (3, FromPart::Settled)), "{all:?}");
        assert!(
            matches!(&all[1], (3, FromPart::Failed { message, .. }) if message.contains("nonsense"))
        );
        assert!(matches!(&all[2], (4, FromPart::Failed { .. })) && all.len() == 3, "{all:?}");
    }
}
