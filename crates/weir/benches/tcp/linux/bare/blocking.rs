//! Two threads for each connection: one receives, hands what came over a queue, and the other sends it.

use super::{BUFFER_BYTES, Run, check, start};
use std::{
    io, mem,
    os::fd::{AsRawFd, OwnedFd, RawFd},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

/// Bytes that wait to be sent at most, as in the design.
const QUEUE_BYTES: usize = 256 * 1024;

/// What was received and is to be sent.
#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    bytes: Vec<u8>,
    ended: bool,
}

pub fn blocking(run: &Run) -> io::Result<()> {
    let open = AtomicUsize::new(0);
    thread::scope(|scope| {
        run.accept_for(&open, |connection| {
            let (connection, queue) = (Arc::new(connection), Arc::new(Queue::default()));
            let (socket, filled) = (Arc::<OwnedFd>::clone(&connection), Arc::clone(&queue));
            start(scope, move || receive(socket.as_raw_fd(), &filled))?;
            let open = &open;
            start(scope, move || {
                send(connection.as_raw_fd(), &queue)?;
                open.fetch_sub(1, SeqCst);
                Ok(())
            })
        })
    })
}

fn receive(fd: RawFd, queue: &Queue) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        // SAFETY: the kernel writes at most as many bytes as the buffer has.
        let count = check(unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), 0) })?;
        let mut state = queue.state.lock().expect("nobody panics");
        state.ended = count == 0;
        state.bytes.extend_from_slice(&buffer[..count]);
        queue.changed.notify_one();
        while state.bytes.len() >= QUEUE_BYTES {
            state = queue.changed.wait(state).expect("nobody panics");
        }
        if state.ended {
            return Ok(());
        }
    }
}

fn send(fd: RawFd, queue: &Queue) -> io::Result<()> {
    let mut out = Vec::new();
    loop {
        let mut state = queue.state.lock().expect("nobody panics");
        while state.bytes.is_empty() && !state.ended {
            state = queue.changed.wait(state).expect("nobody panics");
        }
        mem::swap(&mut state.bytes, &mut out);
        drop(state);
        queue.changed.notify_one();
        if out.is_empty() {
            // SAFETY: takes no pointers.
            return check(unsafe { libc::shutdown(fd, libc::SHUT_WR) } as isize).map(drop);
        }
        let mut rest = &out[..];
        while !rest.is_empty() {
            let flags = libc::MSG_NOSIGNAL;
            // SAFETY: the kernel reads as many bytes as there are.
            let sent = check(unsafe { libc::send(fd, rest.as_ptr().cast(), rest.len(), flags) })?;
            rest = &rest[sent..];
        }
        out.clear();
    }
}
