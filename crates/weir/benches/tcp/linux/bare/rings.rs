//! What the loops on io_uring(7) share: how a ring of one thread or of several is set up, as the library does,
//! and buffers for receives that bring their own.

use super::BUFFER_BYTES;
use io_uring::{IoUring, squeue::Entry};
use std::io;

/// Entries of a ring.
pub const SUBMISSIONS: u32 = 512;
/// Buffers lie a little apart from powers of two, as the designs' slices.
pub const STRIDE: usize = BUFFER_BYTES + 64;

/// A ring of one thread, which gets what arrived when it enters the kernel.
pub fn of_one_thread() -> io::Result<IoUring> {
    IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .setup_submit_all()
        .setup_no_sqarray()
        .setup_cqsize(8 * SUBMISSIONS)
        .build(SUBMISSIONS)
}

/// A ring that several threads may use, and that does not interrupt them.
pub fn of_several_threads(submissions: u32) -> io::Result<IoUring> {
    IoUring::builder()
        .setup_coop_taskrun()
        .setup_submit_all()
        .setup_no_sqarray()
        .setup_cqsize(4 * submissions)
        .build(submissions)
}

/// Asks for something; what an entry points at lives until the ring is no more used.
pub fn push(ring: &mut IoUring, entries: &[Entry]) -> io::Result<()> {
    // SAFETY: the callers' buffers outlive their rings' use: the last connection has gone then, and with it
    // all that is under way.
    while unsafe { ring.submission().push_multiple(entries) }.is_err() {
        ring.submit()?;
    }
    Ok(())
}

/// What a completion says of a call.
pub fn checked(result: i32) -> io::Result<u32> {
    if result >= 0 { Ok(result as u32) } else { Err(io::Error::from_raw_os_error(-result)) }
}

/// Buffers, each for one receive and for the send of what it brought.
pub struct Buffers {
    memory: Box<[u8]>,
    free: Vec<u32>,
    /// Bytes of the send under way from each.
    sent: Box<[u32]>,
}

impl Buffers {
    pub fn new(count: u32) -> Self {
        Self {
            memory: vec![0; count as usize * STRIDE].into(),
            free: (0..count).rev().collect(),
            sent: vec![0; count as usize].into(),
        }
    }

    /// One that is free, for a receive.
    pub fn take(&mut self) -> (u32, *mut u8) {
        let id = self.free.pop().expect("there are two for each connection");
        (id, self.memory[id as usize * STRIDE..].as_mut_ptr())
    }

    /// The same with what was received in it, for a send of so many bytes.
    pub fn send(&mut self, id: u32, count: u32) -> *const u8 {
        self.sent[id as usize] = count;
        self.memory[id as usize * STRIDE..].as_ptr()
    }

    /// Its send is over.
    pub fn sent(&mut self, id: u32, result: i32) -> io::Result<()> {
        assert_eq!(checked(result)?, self.sent[id as usize], "a socket is full");
        self.give(id);
        Ok(())
    }

    pub fn give(&mut self, id: u32) {
        self.free.push(id);
    }
}
