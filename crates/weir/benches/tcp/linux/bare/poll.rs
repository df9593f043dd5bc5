//! poll(2): the whole list goes to the kernel with every wait, and is looked through.

use super::{BUFFER_BYTES, Run, check, serve};
use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
};

pub fn poll(run: &Run) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // The listening socket comes first; each connection lies one before its entry.
    let mut entries = vec![entry(run.listener.as_raw_fd())];
    let mut connections: Vec<OwnedFd> = Vec::new();
    while !run.is_over(connections.len()) {
        let count = entries.len() as libc::nfds_t;
        // SAFETY: as many entries as said, which outlive the call.
        let ready = check(unsafe { libc::poll(entries.as_mut_ptr(), count, -1) } as isize)?;
        let mut left = ready - usize::from(entries[0].revents != 0);
        // From the end, so that one that goes is replaced by one that was looked at.
        for index in (1..entries.len()).rev() {
            if left == 0 {
                break;
            }
            if entries[index].revents == 0 {
                continue;
            }
            left -= 1;
            if serve(entries[index].fd, &mut buffer)? {
                entries.swap_remove(index);
                connections.swap_remove(index - 1);
            }
        }
        if entries[0].revents != 0 {
            let connection = run.accept()?;
            entries.push(entry(connection.as_raw_fd()));
            connections.push(connection);
        }
    }
    Ok(())
}
