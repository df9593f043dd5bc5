//! The link's end: a process that does nothing but speak MPI for its rank.
//!
//! Nothing here waits in MPI once all have joined: every operation is begun, and looked at again and again, between naps that
//! grow while nothing happens. What was begun and is not over keeps its memory to the end of the process.
//!
//! A link whose rank has gone tells so and stays until rank 0 has reported it. One whose rank stands still when the run is to
//! end, or whose guard has gone, kills it, since nobody else does.

use std::{
    collections::VecDeque,
    ffi::c_int,
    fs::File,
    io::{self, BufReader, BufWriter, Write as _},
    os::{
        fd::{AsRawFd as _, FromRawFd, RawFd},
        unix::process::parent_id,
    },
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc::{self, Receiver, RecvTimeoutError, TryRecvError, TrySendError},
    },
    thread,
    time::{Duration, Instant},
};

use mpi::{
    environment::{Threading, initialize_with_threading, library_version, processor_name},
    ffi,
};

use crate::{
    GUARD, JOINED, TOLD,
    guard::TOLD_WITHIN,
    life::{Beat, Life, News, SILENT_MAX},
    wire::{self, Frame, Joined, Kind, NOBODY},
};

/// How often a link looks whether all live that are to.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long a link whose rank is gone tries to say so at least; that of another rank than 0 stays until rank 0 has gone, too.
const GOODBYE: Duration = Duration::from_millis(200);
/// How long a link that ends without the others keeps its connection to mpirun, so that nobody is killed who still reports.
const LINGER: Duration = Duration::from_secs(2);
/// Where the process managers of MPICH say what descriptor is that connection (PMI-1 and PMI-2).
const MANAGER_VARIABLE: &str = "PMI_FD";
/// How long it looks without a pause after it was told what to do.
const HOT: Duration = Duration::from_micros(300);
/// The shortest and the longest pause after that.
const NAP: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(10));
/// The longest pause while nothing is waited for: what is measured meanwhile shares the cores of this process. A comparison
/// tells a start 30 ms ahead, and 20 ms more for each further step of the tree, and has 100 ms for what goes from the first client
/// to rank 0 and on to the server (`LEAD` and `TAIL` of weir-lab): two such pauses fit into the latter, and one for each step
/// into the former.
const IDLE_NAP: Duration = Duration::from_millis(20);
/// The most bytes that may be on their way to others.
const UNSENT_MAX: usize = 256 << 20;
/// Bytes of a host's name.
const NAME_BYTES: usize = 256;
/// Names the host in reports, where the system's own name says too little: in a container, or a network namespace.
const HOST_VARIABLE: &str = "WEIR_HOST";

const TAG_MESSAGE: c_int = 1;
/// Those of protocol 2 are shorter, and come with 2: so no link fails over one of them before rank 0 has told which ranks are
/// another weir.
const TAG_BEAT: c_int = 3;

/// Speaks MPI for the process that started this one, which gives orders and hears on the socket that is the standard input;
/// the standard output is that to the guard. Gives the exit code.
pub fn serve() -> u8 {
    match run() {
        Ok(code) => code,
        Err(why) => {
            eprintln!("weir: MPI: {why}");
            1
        }
    }
}

fn run() -> Result<u8, String> {
    ignore_signals();
    let own = own_output().map_err(|error| format!("no output: {error}"))?;
    let (output, mut guard) = own;
    let (sender, orders) = mpsc::sync_channel(64);
    // Whether the end of the orders is looked for: not while all are joining, and leaving.
    let (serves, is_over) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (heeded, over) = (Arc::clone(&serves), Arc::clone(&is_over));
    thread::spawn(move || {
        let mut input = BufReader::new(io::stdin());
        while let Ok(Some(frame)) = wire::read(&mut input) {
            let is_there = match sender.try_send(frame) {
                Ok(()) => true,
                // While nobody takes them one is as good as many, and the end is not to be missed.
                Err(TrySendError::Full(frame)) => {
                    frame.kind == Kind::Tick || sender.send(frame).is_ok()
                }
                Err(TrySendError::Disconnected(_)) => false,
            };
            if !is_there {
                return;
            }
        }
        over.store(true, SeqCst);
        if !heeded.load(SeqCst) {
            // MPI waits for ranks that may never come, and heeds nobody.
            std::process::exit(1);
        }
    });
    let (universe, _) = initialize_with_threading(Threading::Funneled)
        .ok_or("it was initialized before this program asked for it")?;
    let mut link = Link::join(output, guard.as_raw_fd())?;
    serves.store(true, SeqCst);
    // A guard that is gone hears nothing.
    let _ = guard.write_all(&[JOINED]);
    let outcome = link.serve(&orders);
    let _ = guard.write_all(&[TOLD]);
    continue_guard(&guard);
    drop(guard);
    match outcome {
        Ok(true) => {
            serves.store(false, SeqCst);
            if !is_over.load(SeqCst) {
                // Waits for all ranks, which leave as well.
                drop(universe);
                return Ok(0);
            }
        }
        Ok(false) => {}
        Err(why) => {
            eprintln!("weir: MPI: {why}");
            link.say(Frame::new(Kind::Failed, NOBODY).with(why.into_bytes()));
        }
    }
    linger();
    // Leaving in order would wait for ranks that do not come; and what is under way still has its memory.
    std::process::exit(1)
}

/// Lets go of everybody, and last of MPICH's process manager, which kills all ranks of its host when this connection breaks.
fn linger() {
    // SAFETY: it takes plain numbers.
    unsafe { libc::shutdown(0, libc::SHUT_RDWR) };
    if let Ok(null) = File::options().write(true).open("/dev/null") {
        for output in [1, 2] {
            // SAFETY: both are open; what was at the second is closed.
            unsafe { libc::dup2(null.as_raw_fd(), output) };
        }
    }
    let manager = std::env::var(MANAGER_VARIABLE).ok().and_then(|number| number.parse().ok());
    if let Some(fd) = manager {
        let mut manager = libc::pollfd { fd, events: libc::POLLRDHUP, revents: 0 };
        // SAFETY: it is given one such structure, and says so.
        unsafe { libc::poll(&raw mut manager, 1, LINGER.as_millis() as c_int) };
    }
}

/// Lets a guard go on that somebody has stopped, which is to see the end of its rank.
fn continue_guard(guard: &File) {
    let id = std::env::var(GUARD).ok().and_then(|id| id.parse::<libc::pid_t>().ok());
    // One that has gone may have left its number to another process.
    if let Some(id) = id.filter(|id| *id > 1 && !has_gone(guard.as_raw_fd())) {
        // SAFETY: it takes plain numbers. Whoever is not stopped does not notice.
        unsafe { libc::kill(id, libc::SIGCONT) };
    }
}

/// The rank decides when to end, and may still have to say something.
fn ignore_signals() {
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        // SAFETY: it takes plain numbers, and no handler of ours.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Where the rank hears, and where the guard does: what a library prints on the standard output goes to the standard error.
fn own_output() -> io::Result<(BufWriter<File>, File)> {
    let own = |descriptor| {
        // SAFETY: it takes plain numbers, and fails if there is no such descriptor.
        let copy = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 3) };
        // SAFETY: it was just made, and nobody else has it.
        (copy >= 0).then(|| unsafe { File::from_raw_fd(copy) }).ok_or_else(io::Error::last_os_error)
    };
    let (rank, guard) = (own(0)?, own(1)?);
    // SAFETY: it takes plain numbers.
    match unsafe { libc::dup2(2, 1) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok((BufWriter::new(rank), guard)),
    }
}

/// Whether nobody has the other end of a socket any more.
fn has_gone(socket: RawFd) -> bool {
    let mut socket = libc::pollfd { fd: socket, events: 0, revents: 0 };
    // SAFETY: it is given one such structure, and says so.
    unsafe { libc::poll(&raw mut socket, 1, 0) };
    socket.revents & libc::POLLHUP != 0
}

/// What a call of MPI says.
fn check(what: &str, code: c_int) -> Result<(), String> {
    if code == 0 {
        return Ok(());
    }
    let mut text = vec![0u8; ffi::MPI_MAX_ERROR_STRING as usize];
    let mut length = 0;
    // SAFETY: the buffer has as many bytes as MPI asks for, and `length` is a valid integer.
    unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr().cast(), &raw mut length) };
    text.truncate(length.max(0) as usize);
    Err(format!("{what}: {}", String::from_utf8_lossy(&text)))
}

fn count_of(length: usize) -> c_int {
    c_int::try_from(length).expect("no message is as long")
}

/// Memory for as many as there are, and not at the address that stands for none: MPI takes that for a constant of its own
/// (MPI_IN_PLACE of Open MPI is 1).
fn some<T>(mut memory: Vec<T>) -> Vec<T> {
    memory.reserve(1);
    memory
}

/// An operation that was begun, with what it reads or writes. Dropped before it is over it keeps that to the end of the
/// process, as MPI may still use it.
struct Begun<B> {
    request: ffi::MPI_Request,
    /// It must not move while the operation goes on: what is in a vector or a box does not.
    memory: Option<B>,
    is_over: bool,
}

impl<B> Drop for Begun<B> {
    fn drop(&mut self) {
        if !self.is_over {
            std::mem::forget(self.memory.take());
        }
    }
}

impl<B> Begun<B> {
    /// Begins one.
    fn begin(
        what: &str,
        mut memory: B,
        call: impl FnOnce(&mut B, *mut ffi::MPI_Request) -> c_int,
    ) -> Result<Self, String> {
        // SAFETY: a constant of the library.
        let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
        check(what, call(&mut memory, &raw mut request))?;
        Ok(Self { request, memory: Some(memory), is_over: false })
    }

    /// Whether it is over.
    fn is_over(&mut self) -> Result<bool, String> {
        let mut flag = 0;
        // SAFETY: the request was begun and is not over, or is the null request; the memory it uses is in `self`.
        let code = unsafe {
            ffi::MPI_Test(&raw mut self.request, &raw mut flag, ffi::RSMPI_STATUS_IGNORE)
        };
        check("MPI_Test", code)?;
        self.is_over = flag != 0;
        Ok(self.is_over)
    }

    /// What it has read or written.
    ///
    /// # Panics
    /// If it is not over.
    fn into_memory(mut self) -> B {
        assert!(self.is_over, "MPI still uses it");
        self.memory.take().expect("it is taken once")
    }
}

/// A collective call, by what goes on of it.
enum Collective {
    Barrier(Begun<()>),
    /// First how many bytes there are.
    BroadcastLength {
        root: usize,
        bytes: Vec<u8>,
        length: Begun<Vec<u64>>,
    },
    Broadcast(Begun<Vec<u8>>),
    GatherLengths {
        bytes: Vec<u8>,
        lengths: Begun<(Vec<u64>, Vec<u64>)>,
    },
    Gather {
        lengths: Vec<u64>,
        data: Begun<Gathering>,
    },
    Sum(Begun<(Vec<u64>, Vec<u64>)>),
}

struct Gathering {
    mine: Vec<u8>,
    all: Vec<u8>,
    counts: Vec<c_int>,
    places: Vec<c_int>,
}

/// A message on its way: of which rank, with which tag, and its bytes.
type Coming = (usize, c_int, Begun<Vec<u8>>);

/// Another rank.
#[derive(Default)]
struct Peer {
    /// The sign of life that is on its way to it: one at a time.
    beating: Option<Begun<Vec<u8>>>,
    /// What comes from it, in order.
    arriving: VecDeque<(c_int, Begun<Vec<u8>>)>,
}

struct Link {
    comm: ffi::MPI_Comm,
    rank: usize,
    peers: Vec<Peer>,
    life: Life,
    output: BufWriter<File>,
    /// The socket to the guard, which outlives this.
    guard: RawFd,
    sends: Vec<Begun<Vec<u8>>>,
    unsent_bytes: usize,
    collective: Option<(Collective, Instant)>,
    look_at: Instant,
    is_rank_gone: bool,
    /// It has gone in its own time.
    has_parted: bool,
    /// The process that works.
    rank_process: u32,
    /// Since when something is waited for.
    waiting: Option<Instant>,
    /// When the rank last said something to another one, or heard something.
    spoken: Instant,
}

impl Link {
    /// Joins all ranks, and says so.
    fn join(output: BufWriter<File>, guard: RawFd) -> Result<Self, String> {
        let (mut rank, mut count) = (0, 0);
        // SAFETY: constants of the library; all it writes are the integers and the communicator given to it, which are valid.
        let comm = unsafe {
            let world = ffi::RSMPI_COMM_WORLD;
            check(
                "MPI_Comm_set_errhandler",
                ffi::MPI_Comm_set_errhandler(world, ffi::RSMPI_ERRORS_RETURN),
            )?;
            // A communicator of its own has messages of its own, and the handler of the other.
            let mut comm = ffi::RSMPI_COMM_NULL;
            check("MPI_Comm_dup", ffi::MPI_Comm_dup(world, &raw mut comm))?;
            check("MPI_Comm_rank", ffi::MPI_Comm_rank(comm, &raw mut rank))?;
            check("MPI_Comm_size", ffi::MPI_Comm_size(comm, &raw mut count))?;
            comm
        };
        let (rank, count) = (rank.max(0) as usize, count.max(1) as usize);
        let hosts = hosts(comm, count)?;
        let library = library_version().unwrap_or_default();
        let library = library.split(['\0', '\n', ',']).next().unwrap_or_default().trim().to_owned();
        let now = Instant::now();
        let mut link = Self {
            comm,
            rank,
            peers: (0..count).map(|_| Peer::default()).collect(),
            life: Life::new(rank, count, now),
            output,
            guard,
            sends: Vec::new(),
            unsent_bytes: 0,
            collective: None,
            look_at: now,
            is_rank_gone: false,
            has_parted: false,
            rank_process: parent_id(),
            waiting: None,
            spoken: now,
        };
        let joined = serde_json::to_vec(&Joined { rank, hosts, library });
        let joined = joined.map_err(|error| error.to_string())?;
        link.say(Frame::new(Kind::Ready, NOBODY).with(joined));
        Ok(link)
    }

    /// Tells the rank. One that does not listen has gone.
    fn say(&mut self, frame: Frame) {
        self.is_rank_gone |= wire::write(&mut self.output, &frame).is_err();
    }

    /// Serves until the run is over: gives whether it is over in order.
    fn serve(&mut self, orders: &Receiver<Frame>) -> Result<bool, String> {
        let mut goodbye: Option<Instant> = None;
        loop {
            let now = Instant::now();
            let nap = match self.waiting {
                Some(since) if now < since + HOT => Duration::ZERO,
                Some(since) => ((now - since) / 8).clamp(NAP.0, NAP.1),
                None => ((now - self.spoken) / 8).clamp(NAP.0, IDLE_NAP),
            };
            let order = match (nap.is_zero(), self.is_rank_gone) {
                (_, true) => {
                    let is_new = goodbye.is_none_or(|since| since.elapsed() < GOODBYE);
                    thread::sleep(if is_new { NAP.0 } else { NAP.1 });
                    None
                }
                (true, false) => match orders.try_recv() {
                    Ok(order) => Some(order),
                    Err(TryRecvError::Empty) => {
                        thread::yield_now();
                        None
                    }
                    Err(TryRecvError::Disconnected) => {
                        self.is_rank_gone = true;
                        None
                    }
                },
                (false, false) => match orders.recv_timeout(nap) {
                    Ok(order) => Some(order),
                    Err(RecvTimeoutError::Timeout) => None,
                    Err(RecvTimeoutError::Disconnected) => {
                        self.is_rank_gone = true;
                        None
                    }
                },
            };
            self.life.wake(Instant::now());
            if let Some(order) = order {
                match order.kind {
                    Kind::Leave => return self.flush().map(|()| true),
                    Kind::Part => (self.is_rank_gone, self.has_parted) = (true, true),
                    _ => self.obey(order)?,
                }
            }
            if self.is_rank_gone {
                if goodbye.is_none() {
                    self.life.gone(now);
                }
                let gone = goodbye.get_or_insert_with(Instant::now).elapsed();
                let is_reported = self.has_parted || self.rank == 0 || self.life.is_rank_0_gone();
                if gone >= TOLD_WITHIN || gone >= GOODBYE && is_reported {
                    return Ok(false);
                }
            }
            self.progress()?;
        }
    }

    /// What was sent is on its way before all is left.
    fn flush(&mut self) -> Result<(), String> {
        let until = Instant::now() + SILENT_MAX;
        while !self.sends.is_empty() && Instant::now() < until {
            self.progress()?;
            thread::sleep(NAP.0);
        }
        match self.sends.is_empty() {
            true => Ok(()),
            false => Err("messages were not taken".into()),
        }
    }

    fn obey(&mut self, order: Frame) -> Result<(), String> {
        let Frame { kind, who, within_ms, bytes } = order;
        let until = Instant::now() + Duration::from_millis(within_ms.into());
        match kind {
            Kind::Tick => self.life.tick(Instant::now()),
            Kind::Unguarded => self.lose_guard(),
            Kind::Expect => self.waiting = Some(Instant::now()),
            Kind::AskToEnd => self.life.ask_to_end(Instant::now(), until),
            Kind::Send => {
                self.unsent_bytes += bytes.len();
                if self.unsent_bytes > UNSENT_MAX {
                    return Err(format!("rank {who} does not take what is sent to it"));
                }
                let sent = self.isend(who as usize, TAG_MESSAGE, bytes)?;
                self.sends.push(sent);
                self.spoken = Instant::now();
            }
            Kind::Barrier | Kind::Broadcast | Kind::Gather | Kind::Sum => {
                let collective = self.begin(kind, who as usize, bytes)?;
                self.life.begin_collective();
                self.collective = Some((collective, until));
                self.waiting = Some(Instant::now());
            }
            // Those of a link; its rank says none of them.
            _ => {}
        }
        Ok(())
    }

    fn isend(&self, to: usize, tag: c_int, bytes: Vec<u8>) -> Result<Begun<Vec<u8>>, String> {
        Begun::begin("MPI_Isend", some(bytes), |bytes, request| {
            // SAFETY: the bytes are on the heap, and stay until the request is over; the rank exists, or MPI says that it does
            // not.
            unsafe {
                let (data, length) = (bytes.as_ptr().cast(), count_of(bytes.len()));
                ffi::MPI_Isend(
                    data,
                    length,
                    ffi::RSMPI_UINT8_T,
                    to as c_int,
                    tag,
                    self.comm,
                    request,
                )
            }
        })
    }

    // ---- collective calls ----------------------------------------------------------------

    fn begin(&self, kind: Kind, who: usize, bytes: Vec<u8>) -> Result<Collective, String> {
        let comm = self.comm;
        Ok(match kind {
            Kind::Barrier => {
                Collective::Barrier(Begun::begin("MPI_Ibarrier", (), |(), request| {
                    // SAFETY: the communicator is valid, and the request is written to.
                    unsafe { ffi::MPI_Ibarrier(comm, request) }
                })?)
            }
            Kind::Broadcast => {
                let length = vec![bytes.len() as u64];
                let length = Begun::begin("MPI_Ibcast", length, |length, request| {
                    let data = length.as_mut_ptr().cast();
                    // SAFETY: the number is on the heap, and stays until the request is over.
                    unsafe {
                        ffi::MPI_Ibcast(data, 1, ffi::RSMPI_UINT64_T, who as c_int, comm, request)
                    }
                })?;
                Collective::BroadcastLength { root: who, bytes, length }
            }
            Kind::Gather => {
                let all = if self.rank == 0 { self.peers.len() } else { 0 };
                let lengths = (vec![bytes.len() as u64], some(vec![0u64; all]));
                let lengths = Begun::begin("MPI_Igather", lengths, |(mine, all), request| {
                    let mine = mine.as_ptr().cast();
                    // SAFETY: both are on the heap, and stay until the request is over; at the root there is room for one of
                    // each rank, and elsewhere it is not looked at.
                    unsafe {
                        let (number, all) = (ffi::RSMPI_UINT64_T, all.as_mut_ptr().cast());
                        ffi::MPI_Igather(mine, 1, number, all, 1, number, 0, comm, request)
                    }
                })?;
                Collective::GatherLengths { bytes, lengths }
            }
            Kind::Sum => {
                let (words, _) = bytes.as_chunks();
                let mine = some(words.iter().map(|word| u64::from_le_bytes(*word)).collect());
                let all = some(vec![0u64; mine.len()]);
                Collective::Sum(Begun::begin(
                    "MPI_Ireduce",
                    (mine, all),
                    |(mine, all), request| {
                        let (from, to, length) =
                            (mine.as_ptr().cast(), all.as_mut_ptr().cast(), count_of(mine.len()));
                        // SAFETY: both are on the heap, have so many numbers, and stay until the request is over.
                        unsafe {
                            let (number, sum) = (ffi::RSMPI_UINT64_T, ffi::RSMPI_SUM);
                            ffi::MPI_Ireduce(from, to, length, number, sum, 0, comm, request)
                        }
                    },
                )?)
            }
            _ => return Err(format!("{kind:?} is no collective call")),
        })
    }

    /// Takes a collective call on; gives what came of it, if it is over.
    fn advance(&self, collective: Collective) -> Result<Result<Vec<u8>, Collective>, String> {
        let comm = self.comm;
        Ok(match collective {
            Collective::Barrier(mut it) => match it.is_over()? {
                true => Ok(Vec::new()),
                false => Err(Collective::Barrier(it)),
            },
            Collective::BroadcastLength { root, bytes, mut length } => {
                if !length.is_over()? {
                    return Ok(Err(Collective::BroadcastLength { root, bytes, length }));
                }
                let mut bytes = some(bytes);
                bytes.resize(length.into_memory()[0] as usize, 0);
                Err(Collective::Broadcast(Begun::begin("MPI_Ibcast", bytes, |bytes, request| {
                    let (data, length) = (bytes.as_mut_ptr().cast(), count_of(bytes.len()));
                    // SAFETY: the bytes are on the heap, and stay until the request is over.
                    unsafe {
                        ffi::MPI_Ibcast(
                            data,
                            length,
                            ffi::RSMPI_UINT8_T,
                            root as c_int,
                            comm,
                            request,
                        )
                    }
                })?))
            }
            Collective::Broadcast(mut it) => match it.is_over()? {
                true => Ok(it.into_memory()),
                false => Err(Collective::Broadcast(it)),
            },
            Collective::GatherLengths { bytes, mut lengths } => {
                if !lengths.is_over()? {
                    return Ok(Err(Collective::GatherLengths { bytes, lengths }));
                }
                let (_, lengths) = lengths.into_memory();
                let total: u64 = lengths.iter().sum();
                if total > c_int::MAX as u64 {
                    return Err(format!("the ranks say {total} bytes, which is too much"));
                }
                let mut places = Vec::with_capacity(lengths.len());
                let mut place = 0;
                for length in &lengths {
                    places.push(place);
                    place += *length as c_int;
                }
                let gathering = Gathering {
                    mine: some(bytes),
                    all: some(vec![0; total as usize]),
                    counts: lengths.iter().map(|length| *length as c_int).collect(),
                    places,
                };
                let data = Begun::begin("MPI_Igatherv", gathering, |it, request| {
                    let (mine, length) = (it.mine.as_ptr().cast(), count_of(it.mine.len()));
                    let (all, counts) = (it.all.as_mut_ptr().cast(), it.counts.as_ptr());
                    // SAFETY: all of them are on the heap, and stay until the request is over; at the root there is room for
                    // what each rank has said that it sends, and elsewhere they are not looked at.
                    unsafe {
                        let byte = ffi::RSMPI_UINT8_T;
                        let places = it.places.as_ptr();
                        ffi::MPI_Igatherv(
                            mine, length, byte, all, counts, places, byte, 0, comm, request,
                        )
                    }
                })?;
                Err(Collective::Gather { lengths, data })
            }
            Collective::Gather { lengths, mut data } => {
                if !data.is_over()? {
                    return Ok(Err(Collective::Gather { lengths, data }));
                }
                let gathered = data.into_memory();
                let (mut rest, mut each) = (&gathered.all[..], Vec::new());
                for length in lengths {
                    let (bytes, others) = rest.split_at(length as usize);
                    each.extend_from_slice(&length.to_le_bytes());
                    each.extend_from_slice(bytes);
                    rest = others;
                }
                Ok(each)
            }
            Collective::Sum(mut it) => match it.is_over()? {
                true => {
                    let (mine, all) = it.into_memory();
                    let sums = if self.rank == 0 { all } else { mine };
                    Ok(sums.iter().flat_map(|sum| sum.to_le_bytes()).collect())
                }
                false => Err(Collective::Sum(it)),
            },
        })
    }

    // ---- what goes on all the time -------------------------------------------------------

    fn progress(&mut self) -> Result<(), String> {
        self.take_what_comes()?;
        let mut unsent = Vec::new();
        for mut sent in std::mem::take(&mut self.sends) {
            match sent.is_over()? {
                true => self.unsent_bytes -= sent.into_memory().len(),
                false => unsent.push(sent),
            }
        }
        self.sends = unsent;
        if let Some((collective, until)) = self.collective.take() {
            match self.advance(collective)? {
                Ok(bytes) => {
                    self.waiting = None;
                    self.say(Frame::new(Kind::Done, NOBODY).with(bytes));
                }
                Err(collective) => {
                    self.collective = Some((collective, until));
                    if Instant::now() >= until {
                        self.too_late();
                    }
                }
            }
        }
        self.beat()?;
        let now = Instant::now();
        if now >= self.look_at {
            self.look_at = now + LOOK_EVERY;
            self.look();
        }
        Ok(())
    }

    /// The collective call is given up; its memory stays, as MPI may still write to it.
    fn too_late(&mut self) {
        self.collective = None;
        self.waiting = None;
        let who = self.life.behind().map_or(NOBODY, |rank| rank as u32);
        self.say(Frame::new(Kind::Late, who));
    }

    /// Gives the signs of life that are due, one at a time to each.
    fn beat(&mut self) -> Result<(), String> {
        for peer in &mut self.peers {
            if let Some(beating) = &mut peer.beating
                && beating.is_over()?
            {
                peer.beating = None;
            }
        }
        let peers = &self.peers;
        for (to, beat) in self.life.due(Instant::now(), |rank| peers[rank].beating.is_none()) {
            self.peers[to].beating = Some(self.isend(to, TAG_BEAT, beat.to_bytes().to_vec())?);
        }
        Ok(())
    }

    /// Begins to receive what others have sent, and hands over what is there.
    fn take_what_comes(&mut self) -> Result<(), String> {
        while let Some((from, tag, coming)) = self.probe()? {
            self.life.heard(from, Instant::now());
            self.peers[from].arriving.push_back((tag, coming));
        }
        for from in 0..self.peers.len() {
            while let Some((_, first)) = self.peers[from].arriving.front_mut()
                && first.is_over()?
            {
                let Some((tag, came)) = self.peers[from].arriving.pop_front() else { break };
                match tag {
                    TAG_BEAT => {
                        let beat = Beat::of_bytes(&came.into_memory())
                            .ok_or_else(|| format!("rank {from} says what no link says"))?;
                        let news = self.life.hear(from, beat, Instant::now());
                        self.tell(news);
                    }
                    TAG_MESSAGE => {
                        self.waiting = self.collective.as_ref().and(self.waiting);
                        self.spoken = Instant::now();
                        self.say(Frame::new(Kind::Message, from as u32).with(came.into_memory()));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn probe(&self) -> Result<Option<Coming>, String> {
        let (mut flag, mut length) = (0, 0);
        // SAFETY: a status is plain numbers, for which zeros are as good as any.
        let mut status: ffi::MPI_Status = unsafe { std::mem::zeroed() };
        // SAFETY: constants of the library; what it writes are the integers, the message and the status given to it.
        let mut message = unsafe { ffi::RSMPI_MESSAGE_NULL };
        // SAFETY: as above.
        let code = unsafe {
            let (any, tag) = (ffi::RSMPI_ANY_SOURCE, ffi::RSMPI_ANY_TAG);
            ffi::MPI_Improbe(any, tag, self.comm, &raw mut flag, &raw mut message, &raw mut status)
        };
        check("MPI_Improbe", code)?;
        if flag == 0 {
            return Ok(None);
        }
        // SAFETY: the status was written by the call before.
        let code =
            unsafe { ffi::MPI_Get_count(&raw const status, ffi::RSMPI_UINT8_T, &raw mut length) };
        check("MPI_Get_count", code)?;
        let begun =
            Begun::begin("MPI_Imrecv", vec![0; length.max(0) as usize], |bytes, request| {
                let (data, length) = (bytes.as_mut_ptr().cast(), count_of(bytes.len()));
                // SAFETY: the bytes are on the heap, as many as the message has, and stay until the request is over.
                unsafe {
                    ffi::MPI_Imrecv(data, length, ffi::RSMPI_UINT8_T, &raw mut message, request)
                }
            })?;
        let from = usize::try_from(status.MPI_SOURCE).unwrap_or(usize::MAX);
        match from < self.peers.len() {
            true => Ok(Some((from, status.MPI_TAG, begun))),
            false => Err(format!("a message of rank {}", status.MPI_SOURCE)),
        }
    }

    /// Looks whether all are still there, and whether the own rank is.
    fn look(&mut self) {
        let now = Instant::now();
        if !self.life.is_unguarded() && has_gone(self.guard) {
            // A rank that is stopped does not say so.
            self.lose_guard();
        }
        // Nobody asks a comparison to end: it ends when somebody is lost.
        let is_stopped = self.life.is_over() && self.life.still(now) >= SILENT_MAX;
        if is_stopped && parent_id() == self.rank_process {
            // SAFETY: it takes plain numbers. Who has ended, and is not waited for, is not meant by the number of another.
            unsafe { libc::kill(self.rank_process as libc::pid_t, libc::SIGKILL) };
        }
        let news = self.life.look(now);
        self.tell(news);
    }

    fn lose_guard(&mut self) {
        let news = self.life.unguarded(Instant::now());
        self.tell(news);
    }

    fn tell(&mut self, news: impl IntoIterator<Item = News>) {
        for news in news {
            self.say(match news {
                News::Lost(rank, why) => Frame::new(Kind::Lost, rank as u32).with(why.into_bytes()),
                News::AskedToEnd => Frame::new(Kind::AskedToEnd, NOBODY),
            });
        }
    }
}

/// The names of the hosts of all ranks: every rank says its own.
fn hosts(comm: ffi::MPI_Comm, count: usize) -> Result<Vec<String>, String> {
    let own = std::env::var(HOST_VARIABLE).ok().filter(|name| !name.trim().is_empty());
    let own = own.or_else(|| processor_name().ok()).unwrap_or_default();
    let own = own.trim_end_matches('\0').trim();
    let end = own.len().min(NAME_BYTES);
    let mut name = vec![0u8; NAME_BYTES];
    name[..end].copy_from_slice(&own.as_bytes()[..end]);
    let mut all = vec![0u8; NAME_BYTES * count];
    // SAFETY: there is room for the name of each rank, and each passes as many bytes.
    let code = unsafe {
        let (byte, length) = (ffi::RSMPI_UINT8_T, count_of(NAME_BYTES));
        ffi::MPI_Allgather(
            name.as_ptr().cast(),
            length,
            byte,
            all.as_mut_ptr().cast(),
            length,
            byte,
            comm,
        )
    };
    check("MPI_Allgather", code)?;
    let text = |name: &[u8]| {
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        String::from_utf8_lossy(&name[..end]).into_owned()
    };
    Ok(all.chunks(NAME_BYTES).map(text).collect())
}
