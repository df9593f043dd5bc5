//! An event for each operation, and threads that wait for a group of 64: an eventfd for each in an epoll set that
//! is asked for one, and behind each operation, linked with it, the write that rings its event. One thread accepts, and
//! hands what came to the first group with room, or to a new one.

use super::{
    BUFFER_BYTES, Epoll, Run, WakeEvent,
    rings::{Buffers, checked, of_several_threads, push},
    start, take_room,
};
use io_uring::{
    IoUring, opcode,
    squeue::{Entry, Flags},
    types::Fd,
};
use std::{
    collections::VecDeque,
    io, mem,
    os::fd::{AsRawFd, OwnedFd, RawFd},
    sync::{
        Arc, Mutex,
        atomic::{
            AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
    thread,
};

/// Events of a group, of which one wakes its thread, and two are a connection's.
const GROUP: usize = 64;
const PLACES: usize = (GROUP - 1) / 2;
const SENDS: usize = PLACES;
/// The token of the group's own wake event; below it are the numbers of events.
const WAKE_EVENT: u64 = u64::MAX;
/// Of a write that rings an event, which is told only where it fails.
const SIGNALLED: u64 = u64::MAX - 1;
/// An operation and its write for each event, some times over.
const SUBMISSIONS: u32 = 256;

static ONE: u64 = 1;

/// The way into a group.
struct Group {
    taken: AtomicUsize,
    came: Mutex<Came>,
    wake_event: WakeEvent,
}

#[derive(Default)]
struct Came {
    connections: Vec<OwnedFd>,
    over: bool,
}

pub fn overlapped_events(run: &Run) -> io::Result<()> {
    let open = AtomicUsize::new(0);
    thread::scope(|scope| {
        let mut groups: Vec<Arc<Group>> = Vec::new();
        run.accept_for(&open, |connection| {
            let room = |group: &Arc<Group>| take_room(&group.taken, PLACES);
            let place = groups.iter().position(room);
            if place.is_none() {
                let (taken, came) = (1.into(), Mutex::default());
                let group = Arc::new(Group { taken, came, wake_event: WakeEvent::new()? });
                let (its, open) = (Arc::clone(&group), &open);
                start(scope, move || look_after(&its, open))?;
                groups.push(group);
            }
            let group = &groups[place.unwrap_or(groups.len() - 1)];
            group.came.lock().expect("nobody panics").connections.push(connection);
            group.wake_event.signal()
        })?;
        groups.iter().try_for_each(|group| {
            group.came.lock().expect("nobody panics").over = true;
            group.wake_event.signal()
        })
    })
}

/// What an event is for.
enum Operation {
    /// A receive into a buffer.
    Receive(OwnedFd, u32),
    /// A send from one.
    Send(u32),
}

struct Event {
    wake_event: WakeEvent,
    operation: Option<Operation>,
    /// What its completion said.
    result: Option<i32>,
}

struct Events {
    ring: IoUring,
    events: Vec<Event>,
    free: Vec<usize>,
    buffers: Buffers,
    /// Sends under way, and those that wait for their turn.
    sending: usize,
    waiting: VecDeque<(RawFd, u32, u32)>,
}

/// The thread of a group, until that is over.
fn look_after(group: &Group, open: &AtomicUsize) -> io::Result<()> {
    let mut set = Epoll::telling(1)?;
    set.add(group.wake_event.fd(), WAKE_EVENT, libc::EPOLLIN | libc::EPOLLET)?;
    let event = |number| {
        let wake_event = WakeEvent::new()?;
        set.add(wake_event.fd(), number, libc::EPOLLIN | libc::EPOLLET)?;
        Ok(Event { wake_event, operation: None, result: None })
    };
    let mut events = Events {
        ring: of_several_threads(SUBMISSIONS)?,
        events: (0..(PLACES + SENDS) as u64).map(event).collect::<io::Result<_>>()?,
        free: (0..PLACES + SENDS).rev().collect(),
        buffers: Buffers::new(4 * PLACES as u32),
        sending: 0,
        waiting: VecDeque::new(),
    };
    loop {
        if !events.ring.submission().is_empty() {
            events.ring.submit()?;
        }
        let token = set.wait_for_one()?;
        if token == WAKE_EVENT {
            let mut came = group.came.lock().expect("nobody panics");
            for connection in came.connections.drain(..) {
                events.receive(connection)?;
            }
            if came.over {
                return Ok(());
            }
        } else if events.told(token as usize)? {
            group.taken.fetch_sub(1, Relaxed);
            open.fetch_sub(1, SeqCst);
        }
    }
}

impl Events {
    /// An event was told: asks what became of its operation, and starts what follows. Says whether a connection
    /// has ended.
    fn told(&mut self, number: usize) -> io::Result<bool> {
        let Self { ring, events, .. } = self;
        for entry in ring.completion() {
            match entry.user_data() {
                SIGNALLED => drop(checked(entry.result())?),
                number => events[number as usize].result = Some(entry.result()),
            }
        }
        let event = &mut self.events[number];
        // It may be told again of what was handled.
        let Some(result) = event.result.take() else { return Ok(false) };
        let operation = event.operation.take().expect("an operation completed");
        self.free.push(number);
        match operation {
            Operation::Receive(_, id) if result == 0 => {
                self.buffers.give(id);
                return Ok(true);
            }
            Operation::Receive(connection, id) => {
                self.send(connection.as_raw_fd(), id, checked(result)?)?;
                self.receive(connection)?;
            }
            Operation::Send(id) => {
                self.buffers.sent(id, result)?;
                self.sending -= 1;
                if let Some((fd, id, count)) = self.waiting.pop_front() {
                    self.send(fd, id, count)?;
                }
            }
        }
        Ok(false)
    }

    fn receive(&mut self, connection: OwnedFd) -> io::Result<()> {
        let (id, into) = self.buffers.take();
        let fd = Fd(connection.as_raw_fd());
        let receive = opcode::Recv::new(fd, into, BUFFER_BYTES as u32).build();
        self.start(receive, Operation::Receive(connection, id))
    }

    fn send(&mut self, fd: RawFd, id: u32, count: u32) -> io::Result<()> {
        if self.sending == SENDS {
            self.waiting.push_back((fd, id, count));
            return Ok(());
        }
        self.sending += 1;
        let send = opcode::Send::new(Fd(fd), self.buffers.send(id, count), count);
        self.start(send.flags(libc::MSG_NOSIGNAL).build(), Operation::Send(id))
    }

    fn start(&mut self, entry: Entry, operation: Operation) -> io::Result<()> {
        let number = self.free.pop().expect("there are as many events as operations");
        let event = &mut self.events[number];
        event.operation = Some(operation);
        let write =
            opcode::Write::new(Fd(event.wake_event.fd()), (&raw const ONE).cast(), 8).build();
        let write = write.flags(Flags::SKIP_SUCCESS).user_data(SIGNALLED);
        let entry = entry.flags(Flags::IO_HARDLINK).user_data(number as u64);
        push(&mut self.ring, &[entry, write])
    }
}

/// Nothing is under way when the last connection has gone, but a write may still be to come.
impl Drop for Events {
    fn drop(&mut self) {
        mem::forget(mem::take(&mut self.events));
    }
}
