//! fcntl(2), rt_sigtimedwait(2), ppoll(2), signalfd(2).

use crate::{
    Error, Unavailable,
    counters::Counters,
    lifecycle::lock,
    readiness::{Interest, Streams},
    rio::Woken,
    stream::{Listener, Stream},
    wake::Waker,
};
use nix::sys::{
    signal::SigSet,
    signalfd::{SfdFlags, SignalFd},
};
use std::{
    io,
    marker::PhantomData,
    mem::MaybeUninit,
    os::{
        fd::{AsRawFd, RawFd},
        unix::net::UnixStream,
    },
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

/// Signals above the first real-time signal that the C library leaves to programs: the lowest ones
/// are what other libraries take first.
const ABOVE_FIRST: libc::c_int = 11;

// Of asm-generic/fcntl.h.
const F_SETSIG: libc::c_int = 10;
const F_SETOWN_EX: libc::c_int = 15;
const F_OWNER_TID: libc::c_int = 0;

/// `struct f_owner_ex`.
#[repr(C)]
struct Owner {
    kind: libc::c_int,
    id: libc::pid_t,
}

/// `siginfo_t` of a signal that O_ASYNC made: its beginning.
#[repr(C)]
struct Message {
    signal: libc::c_int,
    _error: libc::c_int,
    code: libc::c_int,
    band: libc::c_long,
    fd: libc::c_int,
}

/// Codes that O_ASYNC gives (POLL_IN to POLL_HUP).
const CODES: std::ops::RangeInclusive<libc::c_int> = 1..=6;

/// Always told.
const TROUBLE: libc::c_short = libc::POLLERR | libc::POLLHUP;

/// Sockets whose readiness is queued as signals for one thread: the one that makes it, and that
/// it never leaves.
#[derive(Debug)]
pub struct Signals {
    signal: libc::c_int,
    taken: libc::sigset_t,
    thread: Arc<Thread>,
    /// By descriptor.
    watched: Vec<Option<Watched>>,
    /// The tokens that the last wait reported, and how many of them were taken.
    ready: Vec<u32>,
    next: usize,
    /// Those that the next one tells: they were found ready in between.
    found: Vec<u32>,
    /// For asking every socket.
    entries: Vec<libc::pollfd>,
    /// What is waited for beside the queue, where there is something.
    beside: Option<Beside>,
    overflows: u64,
    here_only: PhantomData<*const ()>,
}

#[derive(Debug, Clone, Copy)]
struct Watched {
    token: u32,
    /// What it is told for.
    events: libc::c_short,
}

/// Listening sockets whose messages may be another's, and what tells of messages.
#[derive(Debug)]
struct Beside {
    queue: SignalFd,
    listeners: Vec<(RawFd, u32)>,
    /// Of the queue and the sockets, in this order.
    entries: Vec<libc::pollfd>,
}

impl Beside {
    /// Waits for a message, or for connections, and adds the tokens of sockets where some wait.
    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<u32>) -> io::Result<()> {
        let fds =
            [self.queue.as_raw_fd()].into_iter().chain(self.listeners.iter().map(|its| its.0));
        let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        self.entries.clear();
        self.entries.extend(fds.map(entry));
        wait_for(&mut self.entries, timeout)?;
        let asked = self.listeners.iter().zip(&self.entries[1..]);
        ready.extend(asked.filter(|(_, entry)| entry.revents != 0).map(|(its, _)| its.1));
        Ok(())
    }
}

/// What a waker knows of the thread.
#[derive(Debug)]
struct Thread {
    /// There as long as the set is: the system may give the number to another thread afterwards.
    id: Mutex<Option<libc::pid_t>>,
    woken: AtomicBool,
}

impl Thread {
    fn wake(&self) {
        self.woken.store(true, Relaxed);
        if let Some(id) = *lock(&self.id) {
            // SAFETY: takes no pointers. The thread blocks the signal.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), id, libc::SIGIO) };
        }
    }
}

impl Signals {
    /// Its name, where a provider is named.
    pub const PROVIDER: &'static str = "signals";

    /// The most sockets of a set: a queue that is full loses nothing.
    pub const MOST: u32 = u32::MAX;

    /// Whether the system has it, by trying.
    ///
    /// # Errors
    /// What it answered.
    pub fn availability() -> Result<(), Unavailable> {
        let tried = || {
            // Nothing is ever sent over it, so no signal is made.
            let (socket, _other) = UnixStream::pair()?;
            direct(socket.as_raw_fd(), signal()?, thread_id())
        };
        tried().map_err(|e| Unavailable::new("signals of readiness", e.to_string()))
    }

    /// An empty set, for the calling thread: it blocks the signals for that thread, for good.
    ///
    /// # Errors
    /// [`Error::Io`] with what the system answered.
    pub fn new() -> Result<Self, Error> {
        let signal = signal().map_err(|e| Error::io("choosing a signal", e))?;
        let mut taken = MaybeUninit::uninit();
        // SAFETY: the first call initialises the set, the others add to it; all of them take
        // numbers of signals that there are.
        let taken = unsafe {
            libc::sigemptyset(taken.as_mut_ptr());
            libc::sigaddset(taken.as_mut_ptr(), signal);
            libc::sigaddset(taken.as_mut_ptr(), libc::SIGIO);
            taken.assume_init()
        };
        // SAFETY: reads a set that outlives the call, and writes none.
        let code = unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const taken, std::ptr::null_mut())
        };
        if code != 0 {
            return Err(Error::io("pthread_sigmask", io::Error::from_raw_os_error(code)));
        }
        let thread = Thread { id: Mutex::new(Some(thread_id())), woken: AtomicBool::new(false) };
        Ok(Self {
            signal,
            taken,
            thread: Arc::new(thread),
            watched: Vec::new(),
            ready: Vec::new(),
            next: 0,
            found: Vec::new(),
            entries: Vec::new(),
            beside: None,
            overflows: 0,
            here_only: PhantomData,
        })
    }

    /// What it takes for messages and how many may wait, in words.
    pub fn effective(&self) -> String {
        let most = most_pending().map_or("unknown".into(), |most| most.to_string());
        format!("signal {} (SIGRTMIN+{ABOVE_FIRST}), at most {most} pending", self.signal)
    }

    /// How often the queue was full, and every socket was asked, since this was last called.
    #[inline]
    pub fn take_overflows(&mut self) -> u64 {
        std::mem::take(&mut self.overflows)
    }

    /// Adds a listening socket, to be told by its token when a connection has come, or waits already.
    ///
    /// # Errors
    /// [`Error::Io`] with what the system answered.
    pub fn listen(&mut self, listener: &Listener, token: u32) -> Result<(), Error> {
        let fd = listener.native().fd();
        if listener.native().is_left_open() {
            return self.wait_beside(fd, token).map_err(|e| Error::io("signalfd", e));
        }
        self.put(fd, token, libc::POLLIN).map_err(|e| {
            Error::io(format!("O_ASYNC for the socket at {}", listener.local_address()), e)
        })
    }

    fn wait_beside(&mut self, fd: RawFd, token: u32) -> io::Result<()> {
        let mut beside = match self.beside.take() {
            Some(beside) => beside,
            None => {
                // SAFETY: the set was initialised when this one was made.
                let taken = unsafe { SigSet::from_sigset_t_unchecked(self.taken) };
                let queue = SignalFd::with_flags(&taken, SfdFlags::SFD_CLOEXEC)?;
                Beside { queue, listeners: Vec::new(), entries: Vec::new() }
            }
        };
        beside.listeners.push((fd, token));
        self.beside = Some(beside);
        Ok(())
    }

    /// Takes a listening socket out of the set.
    pub fn forget_listener(&mut self, listener: &Listener) {
        let fd = listener.native().fd();
        match &mut self.beside {
            Some(beside) if listener.native().is_left_open() => {
                beside.listeners.retain(|its| its.0 != fd);
                self.beside.take_if(|beside| beside.listeners.is_empty());
            }
            _ => self.remove(fd),
        }
    }

    /// Takes one message, or waits for it until the time is over or it is woken. `None`: no time-out.
    /// Sockets that were found ready in between are told besides. Another signal may end a wait that has a
    /// time-out, as if something were ready: what is left of the time is known to whoever waits.
    ///
    /// # Errors
    /// What the operating system answered.
    pub fn wait(&mut self, timeout: Option<Duration>, counters: &Counters) -> io::Result<Woken> {
        self.ready.clear();
        self.next = 0;
        self.ready.append(&mut self.found);
        let timeout = if self.ready.is_empty() { timeout } else { Some(Duration::ZERO) };
        let mut woken = Woken::Ready;
        let message = match self.wait_and_take(timeout, counters) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => return Ok(woken),
            message => message?,
        };
        match message {
            None if self.ready.is_empty() => woken = Woken::TimedOut,
            None => {}
            Some(Message { signal: libc::SIGIO, code, .. }) => {
                // It stands for a waker, for a queue that was full, or for both.
                self.overflows += u64::from(code > SI_USER);
                if self.thread.woken.swap(false, Relaxed) {
                    woken = Woken::ByWaker;
                }
                counters.kernel_entries.one();
                self.ask_all()?;
            }
            Some(message) => self.tell(&message),
        }
        Ok(woken)
    }

    /// How many sockets the last wait told.
    #[inline]
    pub fn ready_count(&self) -> usize {
        self.ready.len()
    }

    /// Takes the token of the next of them.
    #[inline]
    pub fn next_ready(&mut self) -> Option<u32> {
        let token = self.ready.get(self.next).copied();
        self.next += usize::from(token.is_some());
        token
    }

    /// Ends a wait of this set, now or the next one.
    pub fn waker(&self) -> Waker {
        let thread = Arc::clone(&self.thread);
        Waker::new(move || thread.wake())
    }

    /// Takes the next signal, or waits for it, or for connections beside it.
    fn wait_and_take(
        &mut self,
        timeout: Option<Duration>,
        counters: &Counters,
    ) -> io::Result<Option<Message>> {
        let Some(beside) = &mut self.beside else { return self.take(timeout, counters) };
        counters.kernel_entries.one();
        beside.wait(timeout, &mut self.ready)?;
        self.take(Some(Duration::ZERO), counters)
    }

    /// Takes the next signal. One that has a time-out may be interrupted.
    fn take(&self, timeout: Option<Duration>, counters: &Counters) -> io::Result<Option<Message>> {
        loop {
            counters.kernel_entries.one();
            match take_signal(&self.taken, timeout) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted && timeout.is_none() => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock && timeout.is_none() => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                result => return result.map(Some),
            }
        }
    }

    /// Tells of what a message says, if the socket is to be told for it.
    fn tell(&mut self, message: &Message) {
        if !CODES.contains(&message.code) {
            return; // not made by O_ASYNC
        }
        let watched = usize::try_from(message.fd).ok().and_then(|fd| *self.watched.get(fd)?);
        if let Some(Watched { token, events }) = watched
            && message.band & libc::c_long::from(events | TROUBLE) != 0
        {
            self.ready.push(token);
        }
    }

    /// Asks every socket whether it is ready.
    fn ask_all(&mut self) -> io::Result<()> {
        self.entries.clear();
        let watched = self.watched.iter().enumerate();
        self.entries.extend(watched.filter_map(|(fd, watched)| {
            let Watched { events, .. } = (*watched)?;
            Some(libc::pollfd { fd: fd as RawFd, events, revents: 0 })
        }));
        if ask(&mut self.entries)? == 0 {
            return Ok(());
        }
        for entry in self.entries.iter().filter(|entry| entry.revents != 0) {
            if let Some(Watched { token, .. }) = self.watched[entry.fd as usize] {
                self.ready.push(token);
            }
        }
        Ok(())
    }

    fn put(&mut self, fd: RawFd, token: u32, events: libc::c_short) -> io::Result<()> {
        let index = fd as usize;
        if index >= self.watched.len() {
            self.watched.resize(index + 1, None);
        }
        let thread = lock(&self.thread.id).expect("it is there as long as the set is");
        direct(fd, self.signal, thread)?;
        self.watched[index] = Some(Watched { token, events });
        set_async(fd, true)?;
        self.find(fd, token, events)
    }

    /// What has happened by now makes no message any more: asks.
    fn find(&mut self, fd: RawFd, token: u32, events: libc::c_short) -> io::Result<()> {
        if ask(&mut [libc::pollfd { fd, events, revents: 0 }])? > 0 {
            self.found.push(token);
        }
        Ok(())
    }

    fn remove(&mut self, fd: RawFd) {
        if let Some(Watched { token, .. }) =
            self.watched.get_mut(fd as usize).and_then(Option::take)
        {
            self.found.retain(|found| *found != token);
            // It fails for no socket that is open.
            let _ = set_async(fd, false);
        }
    }
}

impl Streams for Signals {
    fn watch(&mut self, stream: &Stream, slot: u32, interest: Interest) -> io::Result<()> {
        let fd = stream.native().fd();
        let result = self.put(fd, slot, events(interest));
        if result.is_err() {
            self.remove(fd);
        }
        result
    }

    fn change(&mut self, stream: &Stream, slot: u32, interest: Interest) -> io::Result<()> {
        let (fd, events) = (stream.native().fd(), events(interest));
        if let Some(Some(watched)) = self.watched.get_mut(fd as usize) {
            watched.events = events;
        }
        self.find(fd, slot, events)
    }

    fn forget(&mut self, stream: &Stream, _: u32) {
        self.remove(stream.native().fd());
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        *lock(&self.thread.id) = None; // nobody wakes from now on
        // What is left in the queue counts against the limit as long as the thread lives.
        while take_signal(&self.taken, Some(Duration::ZERO)).is_ok() {}
    }
}

/// Code of a signal that a program sent, or less; the kernel's own have higher ones.
const SI_USER: libc::c_int = 0;

fn events(interest: Interest) -> libc::c_short {
    let receive = if interest.receive { libc::POLLIN } else { 0 };
    receive | if interest.send { libc::POLLOUT } else { 0 }
}

fn signal() -> io::Result<libc::c_int> {
    let signal = libc::SIGRTMIN() + ABOVE_FIRST;
    if signal > libc::SIGRTMAX() {
        return Err(io::Error::other("the C library leaves too few real-time signals"));
    }
    Ok(signal)
}

fn thread_id() -> libc::pid_t {
    // SAFETY: takes no pointers, and never fails.
    unsafe { libc::syscall(libc::SYS_gettid) as libc::pid_t }
}

/// Has the messages of a descriptor sent to this thread, as this signal.
fn direct(fd: RawFd, signal: libc::c_int, thread: libc::pid_t) -> io::Result<()> {
    let owner = Owner { kind: F_OWNER_TID, id: thread };
    // SAFETY: this operation reads an f_owner_ex, which outlives the call.
    succeeded(unsafe { libc::fcntl(fd, F_SETOWN_EX, &raw const owner) })?;
    // SAFETY: this operation takes a number.
    succeeded(unsafe { libc::fcntl(fd, F_SETSIG, signal) })
}

/// Begins or ends messages: O_ASYNC by itself, since F_SETFL sets all flags.
fn set_async(fd: RawFd, on: bool) -> io::Result<()> {
    let on = libc::c_int::from(on);
    // SAFETY: this request reads an int, which outlives the call.
    succeeded(unsafe { libc::ioctl(fd, libc::FIOASYNC, &raw const on) })
}

/// Asks sockets whether they are ready, and returns how many are.
fn ask(entries: &mut [libc::pollfd]) -> io::Result<usize> {
    wait_for(entries, Some(Duration::ZERO))
}

/// Waits until one is ready, and returns how many are. A wait that has a time-out may be interrupted.
fn wait_for(entries: &mut [libc::pollfd], timeout: Option<Duration>) -> io::Result<usize> {
    let (count, time) = (entries.len() as libc::nfds_t, timeout.map(timespec));
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    loop {
        // SAFETY: the entries and the time-out outlive the call; no signal mask.
        let ready = unsafe { libc::ppoll(entries.as_mut_ptr(), count, time, std::ptr::null()) };
        if ready >= 0 {
            return Ok(ready as usize);
        }
        let e = io::Error::last_os_error();
        let waits = timeout.is_some_and(|timeout| !timeout.is_zero());
        if waits || e.kind() != io::ErrorKind::Interrupted {
            return Err(e);
        }
    }
}

fn timespec(time: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: time.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}

/// Takes a signal from the queue, or waits for one.
fn take_signal(signals: &libc::sigset_t, timeout: Option<Duration>) -> io::Result<Message> {
    let timeout = timeout.map(timespec);
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: reads a set and a time-out, writes a siginfo_t; all of them outlive the call.
    succeeded(unsafe { libc::sigtimedwait(signals, info.as_mut_ptr(), timeout) })?;
    const { assert!(size_of::<Message>() <= size_of::<libc::siginfo_t>()) };
    const { assert!(align_of::<Message>() <= align_of::<libc::siginfo_t>()) };
    // SAFETY: a siginfo_t begins with these fields where O_ASYNC made the signal; it is larger, all
    // of it was zeroed, and every value is one of theirs.
    Ok(unsafe { info.as_ptr().cast::<Message>().read() })
}

/// Signals that may be pending for the user, all processes together.
fn most_pending() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes a limit that outlives the call.
    succeeded(unsafe { libc::getrlimit(libc::RLIMIT_SIGPENDING, &raw mut limit) }).ok()?;
    Some(limit.rlim_cur)
}

fn succeeded(result: libc::c_int) -> io::Result<()> {
    if result >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
