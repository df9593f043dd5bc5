//! WSAAsyncSelect, MsgWaitForMultipleObjectsEx, PeekMessageW.

use crate::{
    Error, Unavailable,
    counters::Counters,
    lifecycle::lock,
    readiness::{
        Interest, Streams,
        network_events::{OF_LISTENER, OF_STREAM, Wanted, closed},
    },
    rio::Woken,
    socket::native::{last_error, milliseconds},
    stream::{Listener, Stream},
    wake::Waker,
};
use socket2::Socket;
use std::{
    collections::HashMap,
    io,
    marker::PhantomData,
    os::windows::io::AsRawSocket,
    ptr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};
use windows_sys::{
    Win32::{
        Foundation::{HWND, WAIT_FAILED},
        Networking::WinSock::{SOCKET, WSAAsyncSelect},
        UI::WindowsAndMessaging::{
            CreateWindowExW, DestroyWindow, DispatchMessageW, HWND_MESSAGE, MSG,
            MWMO_INPUTAVAILABLE, MsgWaitForMultipleObjectsEx, PM_REMOVE, PeekMessageW,
            PostMessageW, QS_ALLINPUT, WM_APP,
        },
    },
    core::w,
};

/// The message of a socket, and that of a waker.
const READY: u32 = WM_APP;
const WAKE: u32 = WM_APP + 1;

/// Messages that a thread's queue holds, unless the administrator has changed it (USERPostMessageLimit). What comes
/// when it is full is lost, and nobody is told.
const QUEUE: u32 = 10_000;

/// To the least that he can change it to.
const LEAST_QUEUE: u32 = 4000;

/// Messages that wait of each socket that nobody serves: FD_READ, FD_WRITE and FD_CLOSE, which are told once. One that is
/// served may have more, a message for each receive that leaves something: where a queue gets near to full by that, all
/// sockets are asked.
const OF_EACH: u32 = 3;

/// Sockets whose readiness is posted as messages to a window of one thread: the one that makes it, and
/// that it never leaves.
#[derive(Debug)]
pub struct Signals {
    window: Window,
    thread: Arc<Thread>,
    watched: HashMap<SOCKET, Watched>,
    /// How often was waited.
    waits: u64,
    /// The tokens that the last wait reported, and how many of them were taken.
    ready: Vec<u32>,
    next: usize,
    /// Those that the next one tells: they were found ready in between.
    found: Vec<u32>,
    /// Of a listening socket that was told is asked anew what waits still, or comes.
    listeners: Vec<Listener>,
    overflows: u64,
    here_only: PhantomData<*const ()>,
}

#[derive(Debug, Clone, Copy)]
struct Watched {
    token: u32,
    wanted: Wanted,
    /// The wait that tells it, or told it last.
    told_by: u64,
}

/// What a waker knows of the thread.
#[derive(Debug)]
struct Thread {
    /// Its window, there as long as the set is: the system may give the number to another one afterwards.
    window: Mutex<Option<usize>>,
    woken: AtomicBool,
}

impl Thread {
    fn wake(&self) {
        if self.woken.swap(true, SeqCst) {
            return; // its message is under way
        }
        if let Some(window) = *lock(&self.window) {
            // A queue that is full ends the wait as well.
            // SAFETY: a window that is there.
            unsafe { PostMessageW(window as HWND, WAKE, 0, 0) };
        }
    }
}

impl Signals {
    /// Its name, where a provider is named.
    pub const PROVIDER: &'static str = "window messages";

    /// The most sockets of a set, so that their messages find room in the queue.
    pub const MOST: u32 = QUEUE / OF_EACH;

    /// Whether the system has it, by trying.
    ///
    /// # Errors
    /// What it answered.
    pub fn availability() -> Result<(), Unavailable> {
        Window::new().map(drop).map_err(|e| Unavailable::new("window messages", e.to_string()))
    }

    /// An empty set, for the calling thread.
    ///
    /// # Errors
    /// [`Error::Io`] with what the system answered.
    pub fn new() -> Result<Self, Error> {
        let window = Window::new().map_err(|e| Error::io("making a window for messages", e))?;
        let thread =
            Thread { window: Mutex::new(Some(window.0 as usize)), woken: AtomicBool::new(false) };
        Ok(Self {
            window,
            thread: Arc::new(thread),
            watched: HashMap::new(),
            waits: 0,
            ready: Vec::new(),
            next: 0,
            found: Vec::new(),
            listeners: Vec::new(),
            overflows: 0,
            here_only: PhantomData,
        })
    }

    /// What it takes for messages and how many may wait, in words.
    pub fn effective(&self) -> String {
        format!("of a window that is not shown, {QUEUE} queued, so at most {} sockets", Self::MOST)
    }

    /// How often the queue may have been full, and every socket was asked, since this was last called.
    #[inline]
    pub fn take_overflows(&mut self) -> u64 {
        std::mem::take(&mut self.overflows)
    }

    /// Adds a listening socket, to be told by its token when a connection has come, or waits already.
    ///
    /// # Errors
    /// [`Error::Io`] with what the system answered.
    pub fn listen(&mut self, listener: &Listener, token: u32) -> Result<(), Error> {
        let wanted = Wanted::of_listener();
        let put = listener.native().with_socket(|socket| {
            self.put(socket.as_raw_socket() as SOCKET, token, wanted, OF_LISTENER)
        });
        self.listeners.push(listener.clone());
        put.unwrap_or(Ok(())).map_err(|e| {
            Error::io(format!("WSAAsyncSelect for the socket at {}", listener.local_address()), e)
        })
    }

    /// Takes a listening socket out of the set.
    pub fn forget_listener(&mut self, listener: &Listener) {
        let its = listener.native().as_raw_socket() as SOCKET;
        // It fails for no socket that is open.
        let _ = listener.native().with_socket(|_| self.ask(its, 0));
        self.listeners.retain(|other| other.native().as_raw_socket() as SOCKET != its);
        self.remove(its);
    }

    /// Takes what messages there are, or waits for one until the time is over or it is woken. `None`: no time-out.
    /// Sockets that were found ready in between are told besides.
    ///
    /// # Errors
    /// What the operating system answered.
    pub fn wait(&mut self, timeout: Option<Duration>, counters: &Counters) -> io::Result<Woken> {
        for place in 0..self.listeners.len() {
            self.ask_anew(place, counters)?;
        }
        self.ready.clear();
        self.next = 0;
        self.ready.append(&mut self.found);
        self.waits += 1;
        let by = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let left = by.map(|by| by.saturating_duration_since(Instant::now()));
            if self.ready.is_empty() {
                counters.kernel_entries.one();
                wait_for_message(left)?;
            }
            let taken = self.take_messages(counters);
            if taken >= LEAST_QUEUE {
                // It may have been full, and then some are lost.
                self.overflows += 1;
                counters.kernel_entries.add(self.watched.len() as u64);
                self.ask_all()?;
            }
            if self.thread.woken.swap(false, SeqCst) {
                return Ok(Woken::ByWaker);
            }
            if !self.ready.is_empty() {
                return Ok(Woken::Ready);
            }
            if taken == 0 && left.is_some_and(|left| left.is_zero()) {
                return Ok(Woken::TimedOut);
            }
        }
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

    /// Takes all messages that wait, and says how many those were: so the queue is empty again after each wait, and
    /// one that was full is noticed.
    fn take_messages(&mut self, counters: &Counters) -> u32 {
        for taken in 0..QUEUE {
            counters.kernel_entries.one();
            let mut message = MSG::default();
            // SAFETY: writes one message, which outlives the call. It takes those of this thread, whatever window
            // they are for.
            if unsafe { PeekMessageW(&mut message, ptr::null_mut(), 0, 0, PM_REMOVE) } == 0 {
                return taken;
            }
            match message {
                MSG { hwnd, message: READY, wParam, lParam, .. } if hwnd == self.window.0 => {
                    self.tell(wParam, lParam as u32 & 0xffff, (lParam as u32 >> 16) as i32);
                }
                MSG { hwnd, message: WAKE, .. } if hwnd == self.window.0 => {}
                other => {
                    // SAFETY: a message that the system gave, for a window of this thread.
                    unsafe { DispatchMessageW(&other) };
                }
            }
        }
        QUEUE
    }

    /// Tells of what a message says, if the socket is to be told for it, and once in each wait.
    fn tell(&mut self, socket: SOCKET, events: u32, error: i32) {
        if let Some(watched) = self.watched.get_mut(&socket)
            && watched.wanted.are(events, closed(events, error))
            && watched.told_by != self.waits
        {
            watched.told_by = self.waits;
            self.ready.push(watched.token);
        }
    }

    /// Asks every socket whether it is ready.
    fn ask_all(&mut self) -> io::Result<()> {
        for (socket, watched) in &mut self.watched {
            if watched.told_by != self.waits && watched.wanted.is_there(*socket)? {
                watched.told_by = self.waits;
                self.ready.push(watched.token);
            }
        }
        Ok(())
    }

    fn put(&mut self, socket: SOCKET, token: u32, wanted: Wanted, events: i32) -> io::Result<()> {
        if self.watched.len() >= Self::MOST as usize {
            let why = format!("one window is told of {} sockets at most", Self::MOST);
            return Err(io::Error::other(why));
        }
        self.ask(socket, events)?;
        self.watched.insert(socket, Watched { token, wanted, told_by: 0 });
        self.find(socket)
    }

    /// Asks a listening socket that the last wait told whether another connection waits, and to be told of the next: see
    /// [`tell_anew`](crate::socket::native::tell_anew), which this call does here.
    fn ask_anew(&mut self, place: usize, counters: &Counters) -> io::Result<()> {
        let its = self.listeners[place].native().as_raw_socket() as SOCKET;
        if self.watched.get(&its).is_some_and(|watched| watched.told_by == self.waits) {
            let listener = self.listeners[place].clone();
            counters.kernel_entries.add(2);
            let ask = |_: &Socket| self.ask(its, OF_LISTENER).and_then(|()| self.find(its));
            listener.native().with_socket(ask).unwrap_or(Ok(()))?;
        }
        Ok(())
    }

    /// Has messages of these events posted for a socket from now on.
    fn ask(&self, socket: SOCKET, events: i32) -> io::Result<()> {
        // SAFETY: socket and window are open.
        match unsafe { WSAAsyncSelect(socket, self.window.0, READY, events) } {
            0 => Ok(()),
            _ => Err(io::Error::from_raw_os_error(last_error())),
        }
    }

    /// What has happened by now need not make a message any more: looks.
    fn find(&mut self, socket: SOCKET) -> io::Result<()> {
        if let Some(watched) = self.watched.get_mut(&socket)
            && watched.told_by <= self.waits
            && watched.wanted.is_there(socket)?
        {
            watched.told_by = self.waits + 1;
            self.found.push(watched.token);
        }
        Ok(())
    }

    fn remove(&mut self, socket: SOCKET) {
        if let Some(Watched { token, .. }) = self.watched.remove(&socket) {
            self.found.retain(|found| *found != token);
        }
    }
}

impl Streams for Signals {
    fn watch(&mut self, stream: &Stream, slot: u32, interest: Interest) -> io::Result<()> {
        let result = self.put(stream.native().raw(), slot, Wanted::of_stream(interest), OF_STREAM);
        if result.is_err() {
            self.forget(stream, slot);
        }
        result
    }

    fn change(&mut self, stream: &Stream, _: u32, interest: Interest) -> io::Result<()> {
        let socket = stream.native().raw();
        if let Some(watched) = self.watched.get_mut(&socket) {
            watched.wanted = Wanted::of_stream(interest);
        }
        self.find(socket)
    }

    /// Messages of it that are under way tell nothing any more, or are hints for the socket that gets its number.
    fn forget(&mut self, stream: &Stream, _: u32) {
        let socket = stream.native().raw();
        // It fails for no socket that is open.
        let _ = self.ask(socket, 0);
        self.remove(socket);
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        *lock(&self.thread.window) = None; // nobody wakes from now on
    }
}

/// A window that is nothing but an address for messages, of the thread that makes it.
#[derive(Debug)]
struct Window(HWND);

impl Window {
    fn new() -> io::Result<Self> {
        // SAFETY: a class of the system's own; no text, no menu and no further data.
        let window = unsafe {
            CreateWindowExW(
                0,
                w!("STATIC"),
                ptr::null(),
                0,
                0,
                0,
                0,
                0,
                HWND_MESSAGE,
                ptr::null_mut(),
                ptr::null_mut(),
                ptr::null(),
            )
        };
        if window.is_null() { Err(io::Error::last_os_error()) } else { Ok(Self(window)) }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: this thread made it, which it never leaves. Messages that wait for it go with it.
        unsafe { DestroyWindow(self.0) };
    }
}

/// Waits until a message is there, or the time is over.
fn wait_for_message(timeout: Option<Duration>) -> io::Result<()> {
    // SAFETY: no handles are waited for beside the queue.
    let woken = unsafe {
        let none = ptr::null();
        MsgWaitForMultipleObjectsEx(
            0,
            none,
            milliseconds(timeout),
            QS_ALLINPUT,
            MWMO_INPUTAVAILABLE,
        )
    };
    if woken == WAIT_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
}
