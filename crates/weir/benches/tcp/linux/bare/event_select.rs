//! Groups of 64 handles, a thread for each, and a wait that tells one: epoll(7) asked for one event. One thread
//! accepts, and adds what came to the set of the first group with room, or of a new one.

use super::{BUFFER_BYTES, Epoll, Run, WakeEvent, serve, start, take_room};
use std::{
    io,
    os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd},
    sync::Arc,
    sync::atomic::{
        AtomicUsize,
        Ordering::{Relaxed, SeqCst},
    },
    thread,
};

/// Connections of a group: one of its 64 handles wakes the thread.
const GROUP: usize = 63;
/// The wake event's token; descriptors are those of connections.
const WAKE_EVENT: u64 = u64::MAX;

/// A group as the accepting thread sees it.
struct Group {
    set: Epoll,
    taken: Arc<AtomicUsize>,
    wake_event: WakeEvent,
}

pub fn event_select(run: &Run) -> io::Result<()> {
    let open = AtomicUsize::new(0);
    // They outlive the threads: a wake event that is closed after it was signalled is reported no more.
    let mut groups: Vec<Group> = Vec::new();
    thread::scope(|scope| {
        run.accept_for(&open, |connection| {
            let room = |group: &Group| take_room(&group.taken, GROUP);
            let place = groups.iter().position(room);
            if place.is_none() {
                let (set, wake_event) = (Epoll::telling(1)?, WakeEvent::new()?);
                set.add(wake_event.fd(), WAKE_EVENT, libc::EPOLLIN)?;
                let group = Group { set: set.shared()?, taken: Arc::new(1.into()), wake_event };
                let (taken, open) = (Arc::clone(&group.taken), &open);
                start(scope, move || look_after(set, &taken, open))?;
                groups.push(group);
            }
            let group = &groups[place.unwrap_or(groups.len() - 1)];
            // It belongs to the group's thread from here on, under its number.
            let fd = connection.into_raw_fd();
            group.set.add(fd, fd as u64, libc::EPOLLIN | libc::EPOLLRDHUP)
        })?;
        groups.iter().try_for_each(|group| group.wake_event.signal())
    })
}

/// The thread of a group, until its wake event is signalled.
fn look_after(mut set: Epoll, taken: &AtomicUsize, open: &AtomicUsize) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let token = set.wait_for_one()?;
        if token == WAKE_EVENT {
            return Ok(());
        }
        let fd = token as RawFd;
        if serve(fd, &mut buffer)? {
            // SAFETY: the accepting thread gave it up to this one, which knows it no more after this.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
            taken.fetch_sub(1, Relaxed);
            open.fetch_sub(1, SeqCst);
        }
    }
}
