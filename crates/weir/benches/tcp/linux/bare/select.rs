//! select(2): with sets that are built anew for each wait and a look at every connection, or with sets
//! that are kept, copied, and stepped through.

use super::{BUFFER_BYTES, Run, check, serve};
use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsRawFd, OwnedFd, RawFd},
};

/// Bits for descriptors.
type Bits = [u64; 16];

/// The C library's sets, too, end there: far more than this benchmark opens.
const MOST: RawFd = size_of::<Bits>() as RawFd * 8;

fn put(bits: &mut Bits, fd: RawFd) {
    assert!(fd < MOST, "descriptor {fd} does not fit in a set");
    bits[fd as usize / 64] |= 1 << (fd % 64);
}

fn has(bits: &Bits, fd: RawFd) -> bool {
    bits[fd as usize / 64] & 1 << (fd % 64) != 0
}

/// Waits until one of them can be received from; those are left in the set.
fn wait(bits: &mut Bits, highest: RawFd) -> io::Result<usize> {
    let none = std::ptr::null_mut();
    // SAFETY: the set has a bit for each descriptor up to the highest, and outlives the call.
    check(unsafe {
        libc::select(highest + 1, bits.as_mut_ptr().cast(), none, none.cast(), none.cast())
    } as isize)
}

pub fn select(run: &Run) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let listener = run.listener.as_raw_fd();
    let mut connections: Vec<OwnedFd> = Vec::new();
    while !run.is_over(connections.len()) {
        let mut bits = Bits::default();
        let mut highest = listener;
        put(&mut bits, listener);
        for connection in &connections {
            put(&mut bits, connection.as_raw_fd());
            highest = highest.max(connection.as_raw_fd());
        }
        wait(&mut bits, highest)?;
        for index in (0..connections.len()).rev() {
            let fd = connections[index].as_raw_fd();
            if has(&bits, fd) && serve(fd, &mut buffer)? {
                connections.swap_remove(index);
            }
        }
        if has(&bits, listener) {
            connections.push(run.accept()?);
        }
    }
    Ok(())
}

pub fn select_indexed(run: &Run) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let listener = run.listener.as_raw_fd();
    let mut connections = BTreeMap::new();
    let (mut wanted, mut highest) = (Bits::default(), listener);
    put(&mut wanted, listener);
    while !run.is_over(connections.len()) {
        let mut bits = wanted;
        wait(&mut bits, highest)?;
        for (word, base) in bits.iter().zip((0..).step_by(64)) {
            let mut word = *word;
            while word != 0 {
                let fd = base + word.trailing_zeros() as RawFd;
                word &= word - 1;
                if fd == listener {
                    let connection = run.accept()?;
                    let fd = connection.as_raw_fd();
                    put(&mut wanted, fd);
                    highest = highest.max(fd);
                    connections.insert(fd, connection);
                } else if serve(fd, &mut buffer)? {
                    wanted[fd as usize / 64] &= !(1 << (fd % 64));
                    connections.remove(&fd);
                }
            }
        }
    }
    Ok(())
}
