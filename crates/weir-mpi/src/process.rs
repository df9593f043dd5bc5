//! The rank's end: the process that works, and asks its link for everything.

use std::{
    collections::VecDeque,
    io::{self, BufReader, BufWriter, Read},
    process::{Child, Command},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use weir_load::ranks::{ASKED_TO_END, LATE, Lost, MESSAGE_BYTES_MAX, OUT_OF_STEP, Ranks};

use crate::{
    SIGNAL,
    wire::{self, Frame, Joined, Kind, NOBODY},
};

/// How long MPI may take to bring all ranks together: some hosts are slow to start a process.
const JOIN_WITHIN: Duration = Duration::from_secs(60);
/// How much longer than it was told a link may take to say that something took too long.
const GRACE: Duration = Duration::from_secs(2);
/// How long leaving MPI may take, which waits for all ranks.
const LEAVE_WITHIN: Duration = Duration::from_secs(10);
/// The same where all were asked to end, since one may have failed whose MPI speaks over what failed.
const LEAVE_ASKED_WITHIN: Duration = Duration::from_secs(3);
/// How long a link may take to say that it will say nothing more.
pub(crate) const PART_WITHIN: Duration = Duration::from_secs(1);
/// How long a link that has nothing more to say may take to end, and how often that is looked at.
const END_WITHIN: (Duration, Duration) = (Duration::from_secs(2), Duration::from_millis(5));
/// How often a rank says to its link that it is alive.
const TICK_EVERY: Duration = Duration::from_millis(250);
/// The most messages of one rank that are not received yet.
const UNREAD_MAX: usize = 4096;
/// The most bytes of all ranks that are not received yet.
const UNREAD_BYTES_MAX: usize = 16 * MESSAGE_BYTES_MAX;

/// Why there are no ranks.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The link could not be started.
    #[error("cannot start the process that speaks MPI: {0}")]
    Process(#[from] io::Error),
    /// It did not join.
    #[error("MPI did not bring the ranks together: {0}; what it said is on standard error")]
    Join(String),
}

#[derive(Default)]
struct State {
    joined: Option<Joined>,
    /// By sender.
    mailboxes: Vec<VecDeque<Vec<u8>>>,
    /// Bytes in all of them.
    unread_bytes: usize,
    /// What came of the collective call.
    outcome: Option<Result<Vec<u8>, Lost>>,
    lost: Option<Lost>,
    asked_to_end: bool,
    /// Why there is no link any more.
    gone: Option<String>,
    /// Whether a collective call was given up: the ranks are not at the same one any more.
    is_out_of_step: bool,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// What is called when it has changed.
    on_news: Mutex<Option<Box<dyn Fn() + Send + Sync>>>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.changed.notify_all();
        self.on_news().iter().for_each(|call| call());
    }

    fn on_news(&self) -> MutexGuard<'_, Option<Box<dyn Fn() + Send + Sync>>> {
        self.on_news.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A rank that MPI started. Dropped without [`leave`](Self::leave), its link ends without the others, which mpirun takes for
/// a failure.
pub struct Mpi {
    rank: usize,
    hosts: Vec<String>,
    library: String,
    shared: Arc<Shared>,
    /// What the link is told, by a thread of its own: one that is stopped takes nothing. None at the end.
    orders: Option<mpsc::Sender<Frame>>,
    link: Mutex<Child>,
    /// Dropping it ends the thread that ticks.
    ticking: Option<mpsc::Sender<()>>,
}

impl Mpi {
    /// Starts the link, by a command that runs [`link::serve`](crate::link::serve), and waits until MPI has brought all ranks
    /// together. From then on `asked` is called each time that mpirun asks this rank to end, also by ending the
    /// [guard](crate::guard).
    ///
    /// # Errors
    /// If that fails, or mpirun asks for the end before.
    pub fn start(command: Command, asked: impl Fn() + Send + 'static) -> Result<Self, StartError> {
        let (link, output, input) = spawn(command)?;
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            changed: Condvar::new(),
            on_news: Mutex::default(),
        });
        let (ticking, tick) = mpsc::channel();
        let heard = Arc::clone(&shared);
        thread::Builder::new()
            .name("weir MPI".into())
            .spawn(move || listen(&mut BufReader::new(output), &heard))?;
        let (orders, told) = mpsc::channel::<Frame>();
        thread::Builder::new().name("weir MPI".into()).spawn(move || {
            let mut input = BufWriter::new(input);
            // If the link takes nothing more, its output ends, and that is heard.
            while let Ok(frame) = told.recv()
                && wire::write(&mut input, &frame).is_ok()
            {}
        })?;
        let ticks = orders.clone();
        thread::Builder::new().name("weir MPI".into()).spawn(move || {
            while tick.recv_timeout(TICK_EVERY) == Err(mpsc::RecvTimeoutError::Timeout) {
                if ticks.send(Frame::new(Kind::Tick, NOBODY)).is_err() {
                    return;
                }
            }
        })?;
        heed_guard(Arc::clone(&shared), orders.clone(), asked)?;
        let mut mpi = Self {
            rank: 0,
            hosts: Vec::new(),
            library: String::new(),
            shared,
            orders: Some(orders),
            link: Mutex::new(link),
            ticking: Some(ticking),
        };
        let joined = mpi.joined()?;
        (mpi.rank, mpi.hosts, mpi.library) = (joined.rank, joined.hosts, joined.library);
        Ok(mpi)
    }

    fn joined(&self) -> Result<Joined, StartError> {
        let not_joined = |state: &mut State| state.joined.is_none() && state.gone.is_none();
        let waited =
            self.shared.changed.wait_timeout_while(self.shared.state(), JOIN_WITHIN, not_joined);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match (&state.joined, &state.gone) {
            (Some(joined), _) => Ok(joined.clone()),
            (None, Some(why)) => Err(StartError::Join(why.clone())),
            (None, None) => Err(StartError::Join(format!("it took more than {JOIN_WITHIN:?}"))),
        }
    }

    /// The MPI, in its own words.
    pub fn library(&self) -> &str {
        &self.library
    }

    /// Leaves MPI in order, which all ranks must do; gives whether that went well.
    pub fn leave(&self) -> bool {
        let is_whole = self.shared.state().lost.is_none();
        if !is_whole || self.tell(Frame::new(Kind::Leave, NOBODY)).is_err() {
            return false;
        }
        let is_there = |state: &mut State| state.gone.is_none();
        let within = if self.is_asked_to_end() { LEAVE_ASKED_WITHIN } else { LEAVE_WITHIN };
        let state = self.shared.state();
        drop(self.shared.changed.wait_timeout_while(state, within, is_there));
        if self.shared.state().gone.is_none() {
            return false;
        }
        let until = Instant::now() + END_WITHIN.0;
        loop {
            // Not held while it is waited for: who drops this needs it.
            let ended = self.link.lock().unwrap_or_else(PoisonError::into_inner).try_wait();
            match ended {
                Ok(Some(status)) => return status.success(),
                Ok(None) if Instant::now() < until => thread::sleep(END_WITHIN.1),
                // What is said of it may have been no frame: it is ended when this is dropped.
                _ => return false,
            }
        }
    }

    fn tell(&self, frame: Frame) -> Result<(), Lost> {
        let told = self.orders.as_ref().is_some_and(|orders| orders.send(frame).is_ok());
        told.then_some(()).ok_or_else(|| self.without_link())
    }

    /// What is known of who is lost, where the own link is gone.
    fn without_link(&self) -> Lost {
        let state = self.shared.state();
        let lost = state.lost.clone().filter(|lost| lost.rank != Some(self.rank));
        lost.unwrap_or_else(|| {
            let why = state.gone.as_deref().unwrap_or("it does not listen");
            self.of(Some(self.rank), format!("has no MPI any more: {why}"))
        })
    }

    fn of(&self, rank: Option<usize>, why: impl Into<String>) -> Lost {
        let host = rank.and_then(|rank| self.hosts.get(rank)).cloned().unwrap_or_default();
        Lost { rank, host, why: why.into() }
    }

    fn collective(
        &self,
        kind: Kind,
        who: usize,
        bytes: Vec<u8>,
        until: Instant,
    ) -> Result<Vec<u8>, Lost> {
        assert!(bytes.len() <= MESSAGE_BYTES_MAX, "a message of {} bytes", bytes.len());
        let is_out_of_step = self.shared.state().is_out_of_step;
        if is_out_of_step {
            return Err(self.of(None, OUT_OF_STEP));
        }
        let left = until.saturating_duration_since(Instant::now());
        let within_ms = u32::try_from(left.as_millis()).unwrap_or(u32::MAX);
        self.tell(Frame { kind, who: who as u32, within_ms, bytes })?;
        // Somebody may not come then.
        let ends = matches!(kind, Kind::Barrier | Kind::Broadcast);
        let waits = |state: &mut State| {
            state.outcome.is_none()
                && state.gone.is_none()
                && state.lost.is_none()
                && !(ends && state.asked_to_end)
        };
        let shared = &self.shared;
        let waited =
            shared.changed.wait_timeout_while(shared.state(), left.saturating_add(GRACE), waits);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let outcome = state.outcome.take();
        state.is_out_of_step = !matches!(outcome, Some(Ok(_)));
        let (lost, asked, gone) = (state.lost.clone(), state.asked_to_end, state.gone.is_some());
        drop(state);
        match (outcome, lost) {
            (Some(outcome), None) => outcome,
            (Some(Ok(bytes)), _) => Ok(bytes),
            // Who is lost is why.
            (_, Some(lost)) => Err(lost),
            (None, None) if ends && asked => Err(self.of(None, ASKED_TO_END)),
            (None, None) if gone => Err(self.without_link()),
            (None, None) => Err(self.of(Some(self.rank), "has an MPI that does not answer")),
        }
    }
}

impl Drop for Mpi {
    fn drop(&mut self) {
        drop(self.ticking.take());
        // It has its last words to say, and may have others to wait for.
        let has_parted = self.tell(Frame::new(Kind::Part, NOBODY)).is_ok() && {
            let is_there = |state: &mut State| state.gone.is_none();
            let state = self.shared.state();
            drop(self.shared.changed.wait_timeout_while(state, PART_WITHIN, is_there));
            self.shared.state().gone.is_some()
        };
        let mut link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        if has_parted {
            let _ = link.try_wait();
        } else {
            // It is stopped, or hangs in MPI. It may have ended by itself.
            let _ = link.kill();
            let _ = link.wait();
        }
        drop(link);
        // The one that heeds the guard has its own sender, and waits for what may never come.
        drop(self.orders.take());
    }
}

/// Starts the link, with a channel to and from it. It has the standard input of this process as its output, where the guard
/// hears from it.
#[cfg(unix)]
fn spawn(mut command: Command) -> io::Result<(Child, impl Read + Send, impl io::Write + Send)> {
    use std::os::{
        fd::{AsFd as _, OwnedFd},
        unix::net::UnixStream,
    };
    let (own, its) = UnixStream::pair()?;
    let guard = io::stdin().as_fd().try_clone_to_owned()?;
    let link = command.stdin(OwnedFd::from(its)).stdout(guard).spawn()?;
    Ok((link, own.try_clone()?, own))
}

#[cfg(not(unix))]
fn spawn(mut command: Command) -> io::Result<(Child, impl Read + Send, impl io::Write + Send)> {
    use std::process::Stdio;
    let mut link = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let output = link.stdout.take().expect("it is piped");
    let input = link.stdin.take().expect("it is piped");
    Ok((link, output, input))
}

/// Waits for what the guard says, on a thread of its own.
fn heed_guard(
    shared: Arc<Shared>,
    orders: mpsc::Sender<Frame>,
    asked: impl Fn() + Send + 'static,
) -> io::Result<()> {
    let end = move || {
        asked();
        shared.change(|state| {
            if state.joined.is_none() {
                // Nobody looks at what is asked while the ranks come together.
                state.gone.get_or_insert_with(|| "mpirun has ended this rank".into());
            }
        });
    };
    thread::Builder::new().name("weir guard".into()).spawn(move || {
        let (mut guard, mut word) = (io::stdin().lock(), [0]);
        while guard.read_exact(&mut word).is_ok() {
            if word[0] == SIGNAL {
                end();
            }
        }
        // Without a link there is nobody to be told.
        let _ = orders.send(Frame::new(Kind::Unguarded, NOBODY));
        end();
    })?;
    Ok(())
}

/// Takes what the link says, to its last word.
fn listen(output: &mut impl io::Read, shared: &Shared) {
    let why = loop {
        let frame = match wire::read(output) {
            Ok(Some(frame)) => frame,
            Ok(None) => break "the process that speaks it has ended".to_owned(),
            Err(error) => {
                break format!("what the process that speaks it says is not understood: {error}");
            }
        };
        shared.change(|state| state.hear(frame));
    };
    shared.change(|state| {
        state.gone.get_or_insert(why);
    });
}

impl State {
    fn hear(&mut self, frame: Frame) {
        let Frame { kind, who, bytes, .. } = frame;
        let rank = (who != NOBODY).then_some(who as usize);
        let host = |state: &Self, rank: Option<usize>| {
            let hosts = state.joined.as_ref().map(|joined| &joined.hosts);
            rank.and_then(|rank| hosts?.get(rank).cloned()).unwrap_or_default()
        };
        let text = || String::from_utf8_lossy(&bytes).into_owned();
        match kind {
            Kind::Ready => match serde_json::from_slice::<Joined>(&bytes) {
                Ok(joined) => {
                    self.mailboxes = joined.hosts.iter().map(|_| VecDeque::new()).collect();
                    self.joined = Some(joined);
                }
                Err(error) => self.gone = Some(error.to_string()),
            },
            Kind::Message => {
                let Some(mailbox) = rank.and_then(|rank| self.mailboxes.get_mut(rank)) else {
                    return;
                };
                self.unread_bytes += bytes.len();
                mailbox.push_back(bytes);
                if mailbox.len() > UNREAD_MAX || self.unread_bytes > UNREAD_BYTES_MAX {
                    let dropped = mailbox.pop_front().map_or(0, |bytes| bytes.len());
                    self.unread_bytes -= dropped;
                    let why = format!(
                        "sends more than is read: {UNREAD_MAX} messages, or {} MiB, wait",
                        UNREAD_BYTES_MAX >> 20
                    );
                    let host = host(self, rank);
                    self.lost.get_or_insert(Lost { rank, host, why });
                }
            }
            Kind::Done => self.outcome = Some(Ok(bytes)),
            Kind::Late => {
                let why = match rank {
                    Some(_) => LATE.into(),
                    None => "some rank did not come in time".into(),
                };
                self.outcome = Some(Err(Lost { rank, host: host(self, rank), why }));
            }
            Kind::Lost => {
                let lost = Lost { rank, host: host(self, rank), why: text() };
                self.lost.get_or_insert(lost);
            }
            Kind::AskedToEnd => self.asked_to_end = true,
            Kind::Failed => {
                self.gone.get_or_insert(text());
            }
            // Those of a rank; its link says none of them.
            _ => {}
        }
    }
}

impl Ranks for Mpi {
    fn rank(&self) -> usize {
        self.rank
    }

    fn count(&self) -> usize {
        self.hosts.len()
    }

    fn host(&self, rank: usize) -> &str {
        &self.hosts[rank]
    }

    fn broadcast(&self, from: usize, bytes: Vec<u8>, until: Instant) -> Result<Vec<u8>, Lost> {
        let own = if from == self.rank { bytes } else { Vec::new() };
        self.collective(Kind::Broadcast, from, own, until)
    }

    fn gather(&self, mine: &[u8], until: Instant) -> Result<Option<Vec<Vec<u8>>>, Lost> {
        let all = self.collective(Kind::Gather, 0, mine.to_vec(), until)?;
        if self.rank != 0 {
            return Ok(None);
        }
        // Each with its length before it.
        let (mut rest, mut each) = (&all[..], Vec::new());
        while let Some((length, bytes)) = rest.split_first_chunk::<8>() {
            let (bytes, others) = bytes.split_at(u64::from_le_bytes(*length) as usize);
            each.push(bytes.to_vec());
            rest = others;
        }
        Ok(Some(each))
    }

    fn sum(&self, counts: &mut [u64], until: Instant) -> Result<(), Lost> {
        if counts.is_empty() {
            return Ok(());
        }
        let bytes = counts.iter().flat_map(|count| count.to_le_bytes()).collect();
        let sums = self.collective(Kind::Sum, 0, bytes, until)?;
        for (count, sum) in counts.iter_mut().zip(sums.as_chunks().0) {
            *count = u64::from_le_bytes(*sum);
        }
        Ok(())
    }

    fn barrier(&self, until: Instant) -> Result<(), Lost> {
        self.collective(Kind::Barrier, 0, Vec::new(), until).map(drop)
    }

    fn send(&self, to: usize, bytes: &[u8]) -> Result<(), Lost> {
        assert!(bytes.len() <= MESSAGE_BYTES_MAX, "a message of {} bytes", bytes.len());
        if let Some(lost) = self.shared.state().lost.clone().filter(|lost| lost.rank == Some(to)) {
            return Err(lost);
        }
        self.tell(Frame::new(Kind::Send, to as u32).with(bytes.to_vec()))
    }

    fn receive(&self, from: usize, until: Instant) -> Result<Vec<u8>, Lost> {
        let mut state = self.shared.state();
        if state.mailboxes[from].is_empty() && until > Instant::now() {
            drop(state);
            self.tell(Frame::new(Kind::Expect, from as u32))?;
            state = self.shared.state();
        }
        let left = until.saturating_duration_since(Instant::now());
        let waits = |state: &mut State| {
            state.mailboxes[from].is_empty()
                && state.gone.is_none()
                && state.lost.as_ref().is_none_or(|lost| lost.rank != Some(from))
        };
        let waited = self.shared.changed.wait_timeout_while(state, left, waits);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if let Some(bytes) = state.mailboxes[from].pop_front() {
            state.unread_bytes -= bytes.len();
            return Ok(bytes);
        }
        if let Some(lost) = state.lost.clone().filter(|lost| lost.rank == Some(from)) {
            return Err(lost);
        }
        let is_gone = state.gone.is_some();
        drop(state);
        Err(if is_gone { self.without_link() } else { self.of(Some(from), LATE) })
    }

    fn lost(&self) -> Option<Lost> {
        let state = self.shared.state();
        let (lost, gone) = (state.lost.clone(), state.gone.is_some());
        drop(state);
        lost.or_else(|| gone.then(|| self.without_link()))
    }

    fn on_news(&self, call: Box<dyn Fn() + Send + Sync>) {
        *self.shared.on_news() = Some(call);
    }

    fn ask_to_end(&self, within: Duration) {
        self.shared.change(|state| state.asked_to_end = true);
        let within_ms = u32::try_from(within.as_millis()).unwrap_or(u32::MAX);
        // Without a link there is nobody to be told.
        let _ = self.tell(Frame { within_ms, ..Frame::new(Kind::AskToEnd, NOBODY) });
    }

    fn is_asked_to_end(&self) -> bool {
        self.shared.state().asked_to_end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(count: usize, bytes: usize) -> State {
        let joined = Joined { rank: 0, hosts: vec!["a".into(), "b".into()], library: "".into() };
        let joined = serde_json::to_vec(&joined).unwrap();
        let mut state = State::default();
        state.hear(Frame::new(Kind::Ready, NOBODY).with(joined));
        for _ in 0..count {
            state.hear(Frame::new(Kind::Message, 1).with(vec![0; bytes]));
        }
        state
    }

    #[test]
    fn who_sends_more_than_is_read_is_named() {
        let state = heard(UNREAD_MAX, 1);
        assert_eq!((state.lost, state.unread_bytes), (None, UNREAD_MAX));
        for state in [heard(UNREAD_MAX + 1, 1), heard(17, MESSAGE_BYTES_MAX)] {
            let lost = state.lost.unwrap().to_string();
            assert!(lost.starts_with("rank 1 on b sends more than is read"), "{lost}");
            assert!(state.unread_bytes <= UNREAD_BYTES_MAX);
        }
    }
}
