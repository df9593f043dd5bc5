//! Child processes that are read with a deadline and never outlive their run.
//!
//! A child's standard output is read line by line in a thread of its own and comes out of a
//! bounded channel; its standard error is read as well, so that it cannot fill up, and its
//! end is kept for the message of a failure. A child that is dropped is ended by its
//! process id and waited for. Its standard input is a pipe that nobody writes to: when this
//! process dies in whatever way, the pipe closes, and a child that watches it ends too.
//!
//! A child may run at another host (`Remote`, [`crate::hosts`]): the conversation is the same.

mod command;
mod exit;
mod interrupt;
mod limit;
mod runner;
#[cfg(all(test, unix))]
pub(crate) mod script;

pub use command::CommandLine;
pub use exit::Exit;
pub use interrupt::Interrupt;
pub use limit::TimeLimit;
pub use runner::Runner;

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;

use weir::process::Tree;

use crate::wire::{Failure, FailureLine};

/// Longest line that is taken from a child: a report with a distribution for each of many
/// threads has some 100 KB.
pub const LONGEST_LINE_BYTES: u64 = 8 << 20;
/// Lines that may wait in the channel; then the child waits.
const LINES_WAITING: usize = 64;
/// Bytes kept of the end of a child's standard error.
const STDERR_KEPT_BYTES: usize = 2048;
/// Characters of a line that are quoted in a message.
const QUOTED_CHARS: usize = 120;
/// How long a child may take to end after its output ended.
const END_WITHIN: Duration = Duration::from_secs(5);

/// How long the last words of a child that has ended may take to arrive.
const LAST_WORDS_WITHIN: Duration = Duration::from_millis(500);

/// What comes out of a child's channel.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A line without its end.
    Line(String),
    /// A line longer than [`LONGEST_LINE_BYTES`], or one that is not text.
    Unreadable,
    /// Its output ended.
    End,
    /// The user wants to stop.
    Interrupted,
}

/// Why nothing usable came from a child.
#[derive(Debug, thiserror::Error)]
pub enum ChildError {
    /// It could not be started.
    #[error("cannot start {name} ({command}): {source}")]
    Spawn {
        /// "the server" or "the generator".
        name: &'static str,
        /// The command.
        command: String,
        /// What the operating system answered.
        source: std::io::Error,
    },
    /// It said nothing in time, and was ended.
    #[error("{name} was ended: no {what} within {:.1} s{stderr}", waited.as_secs_f64())]
    Deadline {
        /// "the server" or "the generator".
        name: &'static str,
        /// What was waited for.
        what: &'static str,
        /// For how long.
        waited: Duration,
        /// The end of its standard error, for a message.
        stderr: String,
    },
    /// It ended before it said what it had to say.
    #[error("{name} ended with {status} before its {what}{stderr}")]
    Ended {
        /// "the server" or "the generator".
        name: &'static str,
        /// What was waited for.
        what: &'static str,
        /// Its exit code or signal.
        status: String,
        /// The end of its standard error, for a message.
        stderr: String,
    },
    /// It gave its report and ended as one that failed.
    #[error("{name} gave its report and then ended with {status}")]
    BadEnd {
        /// "the server" or "the generator".
        name: &'static str,
        /// Its exit code or signal.
        status: String,
    },
    /// It said something else.
    #[error("{name} sent something other than its {what}: {problem}")]
    Garbage {
        /// "the server" or "the generator".
        name: &'static str,
        /// What was waited for.
        what: &'static str,
        /// What is wrong, with the beginning of the line.
        problem: String,
    },
    /// It said why it cannot go on.
    #[error("{}", .0.message)]
    Reported(Failure),
    /// The same of one that runs at another host.
    #[error("at {place}: {source}")]
    At {
        /// Which, by its rank and its host's name.
        place: String,
        /// What happened.
        source: Box<ChildError>,
    },
    /// The user wants to stop.
    #[error("interrupted")]
    Interrupted,
}

impl ChildError {
    /// The same of a child that runs there. What is so wherever it runs stays as it is.
    pub(crate) fn at(self, place: &str) -> Self {
        match self {
            Self::Interrupted | Self::At { .. } => self,
            Self::Reported(Failure { unavailable, message }) => {
                Self::Reported(Failure { unavailable, message: format!("at {place}: {message}") })
            }
            other => Self::At { place: place.into(), source: Box::new(other) },
        }
    }

    /// Whether a child said so itself, or by its end.
    pub(crate) fn is_of_its_end(&self) -> bool {
        match self {
            Self::Ended { .. } | Self::Reported(_) => true,
            Self::At { source, .. } => source.is_of_its_end(),
            _ => false,
        }
    }
}

/// A running child.
pub struct Child {
    name: &'static str,
    body: Body,
    events: Receiver<Event>,
    interrupt: Interrupt,
    started: Instant,
    output_ended: bool,
    /// Where it runs, if that is to be told with what goes wrong.
    place: Option<String>,
}

/// What a child is made of.
enum Body {
    Here(Process),
    There { key: u32, remote: Box<dyn Remote> },
}

/// A process of this machine.
struct Process {
    child: std::process::Child,
    stdin: Option<ChildStdin>,
    stderr: Arc<Mutex<VecDeque<u8>>>,
    stderr_ended: Receiver<()>,
    /// What a foreign program starts.
    tree: Option<Tree>,
}

/// What stands for a child at another host.
pub(crate) trait Remote: Send {
    /// Says a line to it.
    fn say(&mut self, line: &str);
    /// Closes its input.
    fn close_input(&mut self);
    /// How it ended, and the end of its standard error, once it has.
    fn ended(&self) -> Option<(Exit, String)>;
    /// Ends it, if it has not ended.
    fn end(&mut self);
}

impl Child {
    /// Starts it.
    ///
    /// # Errors
    /// [`ChildError::Spawn`]; [`ChildError::Interrupted`] if the interrupt was raised.
    pub fn spawn(
        name: &'static str,
        command: &CommandLine,
        interrupt: &Interrupt,
    ) -> Result<Self, ChildError> {
        Self::start(name, command, command.to_process(), true, interrupt)
    }

    /// Starts a program that may heed nothing: it is ended with the calling thread
    /// ([`weir::process`]), and all that it starts with the child. Unless it `speaks`, nothing is expected of its output, of which the end is
    /// kept for messages like that of its standard error. It is not told the key of a control channel.
    ///
    /// # Errors
    /// As [`Child::spawn`].
    pub fn spawn_foreign(
        name: &'static str,
        command: &CommandLine,
        speaks: bool,
        interrupt: &Interrupt,
    ) -> Result<Self, ChildError> {
        let mut process = command.to_process();
        // Whoever has it could pose as a generator of the run. This process may have it in its own environment.
        process.env_remove(weir_load::control::KEY_VARIABLE);
        weir::process::end_with_this_thread(&mut process);
        let tree = Tree::of(&mut process);
        let mut child = Self::start(name, command, process, speaks, interrupt)?;
        if let Body::Here(process) = &mut child.body {
            process.tree.insert(tree).started(process.child.id());
        }
        Ok(child)
    }

    /// One that runs elsewhere. What it says comes over `events`, whose other end `interrupt` wakes by this key; no
    /// other child may have it.
    pub(crate) fn elsewhere(
        name: &'static str,
        key: u32,
        events: Receiver<Event>,
        remote: Box<dyn Remote>,
        interrupt: &Interrupt,
    ) -> Self {
        Self {
            name,
            body: Body::There { key, remote },
            events,
            interrupt: interrupt.clone(),
            started: Instant::now(),
            output_ended: false,
            place: None,
        }
    }

    /// The same that tells with whatever goes wrong where it runs.
    pub(crate) fn at(mut self, place: String) -> Self {
        self.place = Some(place);
        self
    }

    fn placed(&self, error: ChildError) -> ChildError {
        match &self.place {
            Some(place) => error.at(place),
            None => error,
        }
    }

    fn start(
        name: &'static str,
        command: &CommandLine,
        mut process: std::process::Command,
        speaks: bool,
        interrupt: &Interrupt,
    ) -> Result<Self, ChildError> {
        if interrupt.is_raised() {
            return Err(ChildError::Interrupted);
        }
        let mut process = process
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|source| ChildError::Spawn { name, command: command.to_string(), source })?;
        let (sender, events) = sync_channel(LINES_WAITING);
        interrupt.listen(process.id(), sender.clone());
        let stderr = Arc::new(Mutex::new(VecDeque::new()));
        if let Some(stdout) = process.stdout.take() {
            let kept = (!speaks).then(|| Arc::clone(&stderr));
            std::thread::spawn(move || match kept {
                None => read_lines(stdout, &sender),
                Some(kept) => {
                    keep_end(stdout, &kept);
                    // Its reader is gone only with the child itself.
                    let _ = sender.send(Event::End);
                }
            });
        }
        let (stderr_open, stderr_ended) = sync_channel(0);
        if let Some(pipe) = process.stderr.take() {
            let stderr = Arc::clone(&stderr);
            std::thread::spawn(move || {
                keep_end(pipe, &stderr);
                drop(stderr_open);
            });
        }
        let stdin = process.stdin.take();
        let body = Body::Here(Process { child: process, stdin, stderr, stderr_ended, tree: None });
        let interrupt = interrupt.clone();
        let (started, output_ended, place) = (Instant::now(), false, None);
        Ok(Self { name, body, events, interrupt, started, output_ended, place })
    }

    /// Its process id; of one that runs elsewhere, a number that no process has.
    pub fn id(&self) -> u32 {
        match &self.body {
            Body::Here(process) => process.child.id(),
            Body::There { key, .. } => *key,
        }
    }

    /// A foreign program with all that it starts.
    pub fn tree(&mut self) -> Option<&mut Tree> {
        match &mut self.body {
            Body::Here(process) => process.tree.as_mut(),
            Body::There { .. } => None,
        }
    }

    /// Says a line to it. Whether it was heard shows its answer: lines must be answered one by one,
    /// for what nobody reads would fill its pipe.
    pub fn say(&mut self, line: &str) {
        match &mut self.body {
            Body::Here(Process { stdin: Some(stdin), .. }) => {
                // A child that has ended may have said why before, and that is told then.
                let _ = writeln!(stdin, "{line}").and_then(|()| stdin.flush());
            }
            Body::Here(_) => {}
            Body::There { remote, .. } => remote.say(line),
        }
    }

    /// Waits until it ends by itself, no longer than `within`; gives the error of its end.
    ///
    /// # Errors
    /// [`ChildError::Ended`], [`ChildError::Interrupted`].
    pub fn is_alive_after(
        &mut self,
        what: &'static str,
        within: Duration,
    ) -> Result<(), ChildError> {
        match self.next(what, Instant::now() + within) {
            Ok(None) => Err(self.ended(what)),
            Ok(Some(_)) | Err(ChildError::Deadline { .. }) => Ok(()),
            Err(other) => Err(other),
        }
    }

    /// Closes its input: a child that watches it ends with its last words.
    pub fn close_input(&mut self) {
        match &mut self.body {
            Body::Here(process) => process.stdin = None,
            Body::There { remote, .. } => remote.close_input(),
        }
    }

    /// The next line, as a document. `what` names it in messages.
    ///
    /// # Errors
    /// Any but [`ChildError::Spawn`].
    pub fn document<T: DeserializeOwned>(
        &mut self,
        what: &'static str,
        deadline: Instant,
    ) -> Result<T, ChildError> {
        let said = match self.next(what, deadline) {
            Ok(Some(line)) => self.parse(what, &line),
            Ok(None) => Err(self.ended(what)),
            Err(error) => Err(error),
        };
        said.map_err(|error| self.placed(error))
    }

    /// Everything that it says until its output ends, as one document, which may go over
    /// several lines.
    ///
    /// # Errors
    /// Any but [`ChildError::Spawn`].
    pub fn whole_document<T: DeserializeOwned>(
        &mut self,
        what: &'static str,
        deadline: Instant,
    ) -> Result<T, ChildError> {
        self.document_behind(what, deadline, |_| true).map_err(|error| self.placed(error))
    }

    /// The same of a program that may say other things before: the document begins with the first line
    /// that `begins` it.
    ///
    /// # Errors
    /// As [`Child::whole_document`].
    pub fn document_behind<T: DeserializeOwned>(
        &mut self,
        what: &'static str,
        deadline: Instant,
        begins: fn(&str) -> bool,
    ) -> Result<T, ChildError> {
        let mut text = String::new();
        while let Some(line) = self.next(what, deadline)? {
            if (text.len() + line.len()) as u64 > LONGEST_LINE_BYTES {
                return Err(self.garbage(what, "it is too long"));
            }
            if !text.is_empty() || begins(&line) {
                text.push_str(&line);
                text.push('\n');
            }
        }
        if text.trim().is_empty() {
            return Err(self.ended(what));
        }
        self.parse(what, &text)
    }

    /// Waits until it ended by itself; a child that does not is ended.
    ///
    /// # Errors
    /// [`ChildError::Deadline`], [`ChildError::Interrupted`].
    pub fn finish(mut self, deadline: Instant) -> Result<Exit, ChildError> {
        const WHAT: &str = "end";
        self.close_input(); // now at the latest
        while self.next(WHAT, deadline).map_err(|error| self.placed(error))?.is_some() {}
        self.wait(deadline).ok_or_else(|| self.placed(self.too_late(WHAT)))
    }

    /// The next line; `None` at the end of its output.
    fn next(
        &mut self,
        what: &'static str,
        deadline: Instant,
    ) -> Result<Option<String>, ChildError> {
        if self.interrupt.is_raised() {
            return Err(ChildError::Interrupted);
        }
        if self.output_ended {
            return Ok(None);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        match self.events.recv_timeout(left) {
            Ok(Event::Line(line)) => Ok(Some(line)),
            Ok(Event::Unreadable) => {
                Err(self.garbage(what, "a line that is too long or not UTF-8"))
            }
            Ok(Event::End) | Err(RecvTimeoutError::Disconnected) => {
                self.output_ended = true;
                Ok(None)
            }
            Ok(Event::Interrupted) => Err(ChildError::Interrupted),
            Err(RecvTimeoutError::Timeout) => Err(self.too_late(what)),
        }
    }

    fn parse<T: DeserializeOwned>(&self, what: &'static str, text: &str) -> Result<T, ChildError> {
        if let Ok(failure) = serde_json::from_str::<FailureLine>(text) {
            return Err(ChildError::Reported(failure.error));
        }
        serde_json::from_str(text)
            .map_err(|error| self.garbage(what, &format!("{error} in {}", quoted(text))))
    }

    fn garbage(&self, what: &'static str, problem: &str) -> ChildError {
        ChildError::Garbage { name: self.name, what, problem: problem.into() }
    }

    fn too_late(&self, what: &'static str) -> ChildError {
        let (name, waited) = (self.name, self.started.elapsed());
        ChildError::Deadline { name, what, waited, stderr: self.stderr_end() }
    }

    fn ended(&mut self, what: &'static str) -> ChildError {
        let status = match self.wait(Instant::now() + END_WITHIN) {
            Some(status) => {
                if let Body::Here(process) = &self.body {
                    // Its last words may still be on their way through the pipe.
                    let _ = process.stderr_ended.recv_timeout(LAST_WORDS_WITHIN);
                }
                status.to_string()
            }
            None => "its output closed, still running".into(),
        };
        ChildError::Ended { name: self.name, what, status, stderr: self.stderr_end() }
    }

    /// Waits for its end; `None` if it does not come in time.
    ///
    /// The standard library has no wait with a deadline. A child whose output has ended is
    /// about to end, so looking at growing intervals costs next to nothing.
    fn wait(&mut self, deadline: Instant) -> Option<Exit> {
        let mut pause = Duration::from_micros(100);
        loop {
            let ended = match &mut self.body {
                Body::Here(process) => process.child.try_wait().ok().flatten().map(Exit::from),
                Body::There { remote, .. } => remote.ended().map(|(exit, _)| exit),
            };
            if ended.is_some() {
                return ended;
            }
            if Instant::now() >= deadline {
                return None;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }

    fn stderr_end(&self) -> String {
        let said = match &self.body {
            Body::Here(process) => text_of(&process.stderr),
            Body::There { remote, .. } => remote.ended().map(|(_, said)| said).unwrap_or_default(),
        };
        if said.is_empty() { said } else { format!("; it said: {said}") }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        match &mut self.body {
            Body::Here(process) => {
                if let Some(tree) = &mut process.tree {
                    tree.end();
                }
                // Both fail only if it has ended already.
                let _ = process.child.kill();
                let _ = process.child.wait();
            }
            Body::There { remote, .. } => remote.end(),
        }
        self.interrupt.forget(self.id());
    }
}

/// What was kept of a standard error, in one line.
pub(crate) fn text_of(kept: &Mutex<VecDeque<u8>>) -> String {
    let kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    let bytes: Vec<u8> = kept.iter().copied().collect();
    String::from_utf8_lossy(&bytes).trim().replace('\n', " | ")
}

fn read_lines(pipe: impl Read, sender: &SyncSender<Event>) {
    read_each(pipe, |event| sender.send(event).is_ok());
}

/// Reads lines until the end, and as long as whoever gets them wants more.
pub(crate) fn read_each(pipe: impl Read, mut give: impl FnMut(Event) -> bool) {
    let mut reader = BufReader::new(pipe);
    loop {
        let mut line = vec![];
        let read = reader.by_ref().take(LONGEST_LINE_BYTES).read_until(b'\n', &mut line);
        let event = match read {
            Ok(0) | Err(_) => Event::End,
            Ok(n) if n as u64 == LONGEST_LINE_BYTES => Event::Unreadable,
            Ok(_) => match String::from_utf8(line) {
                Ok(text) => Event::Line(text.trim_end_matches(['\r', '\n']).to_owned()),
                Err(_) => Event::Unreadable,
            },
        };
        let is_last = event == Event::End;
        if !give(event) || is_last {
            return;
        }
    }
}

/// Reads to the end, and keeps that.
pub(crate) fn keep_end(mut pipe: impl Read, kept: &Mutex<VecDeque<u8>>) {
    let mut buffer = [0; 1024];
    while let Ok(n @ 1..) = pipe.read(&mut buffer) {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(&buffer[..n]);
        let surplus = kept.len().saturating_sub(STDERR_KEPT_BYTES);
        kept.drain(..surplus);
    }
}

pub(crate) fn quoted(text: &str) -> String {
    let start: String = text.chars().take(QUOTED_CHARS).collect();
    let dots = if start.len() < text.len() { "…" } else { "" };
    format!("{start:?}{dots}")
}

#[cfg(all(test, unix))]
#[path = "tests.rs"]
pub(crate) mod tests;
