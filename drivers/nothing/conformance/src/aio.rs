//! Linux AIO, by its system calls: libc has no names for its structures.

use super::abi::answer;
use std::{io, os::fd::RawFd, time::Duration};

/// `struct iocb`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct Block {
    data: u64,
    key: u32,
    rw_flags: u32,
    opcode: u16,
    priority: i16,
    fd: u32,
    buffer: u64,
    length: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event_fd: u32,
}

/// `struct io_event`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct Event {
    /// The number of the read, from 0.
    pub number: u64,
    block: u64,
    /// Bytes, or minus errno.
    pub result: i64,
    result2: i64,
}

/// A context with reads of one file.
pub struct Aio {
    context: usize,
    blocks: Vec<Block>,
    /// Kept, as the kernel has their addresses.
    _buffer: Vec<u8>,
}

impl Aio {
    /// Submits `count` reads of `length` bytes.
    pub fn read(fd: RawFd, count: usize, length: usize) -> io::Result<Self> {
        let mut context = 0_usize;
        // SAFETY: io_setup writes the context's number.
        answer(unsafe { libc::syscall(libc::SYS_io_setup, count, &raw mut context) } as isize)?;
        let mut buffer = vec![0_u8; length];
        let mut blocks: Vec<Block> = (0..count as u64)
            .map(|number| Block {
                data: number,
                fd: fd as u32,
                buffer: buffer.as_mut_ptr() as u64,
                length: length as u64,
                ..Block::default()
            })
            .collect();
        let addresses: Vec<*mut Block> = blocks.iter_mut().map(|block| &raw mut *block).collect();
        let aio = Self { context, blocks, _buffer: buffer };
        // SAFETY: the blocks and the buffer stay where they are until the context is destroyed,
        // which waits for all reads.
        let taken = answer(unsafe {
            libc::syscall(libc::SYS_io_submit, aio.context, count, addresses.as_ptr())
        } as isize)?;
        if taken != count {
            return Err(io::Error::other(format!("{taken} of {count} reads were taken")));
        }
        Ok(aio)
    }

    /// The ends of `count` reads; fewer if they do not come in time.
    pub fn ends(&mut self, count: usize, within: Duration) -> io::Result<Vec<Event>> {
        let mut events = vec![Event::default(); count];
        let time = libc::timespec {
            tv_sec: within.as_secs() as libc::time_t,
            tv_nsec: within.subsec_nanos().into(),
        };
        // SAFETY: there is room for so many events.
        let got = answer(unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.context,
                count,
                count,
                events.as_mut_ptr(),
                &raw const time,
            )
        } as isize)?;
        events.truncate(got);
        Ok(events)
    }

    /// io_cancel(2) of the read of this number. The kernel answers EINPROGRESS: its end comes as
    /// that of others.
    pub fn cancel(&mut self, number: usize) -> io::Result<()> {
        let mut event = Event::default();
        let block = &raw mut self.blocks[number];
        // SAFETY: the block was submitted and is still there; the event is not written nowadays.
        answer(unsafe { libc::syscall(libc::SYS_io_cancel, self.context, block, &raw mut event) }
            as isize)
        .map(drop)
    }
}

impl Drop for Aio {
    fn drop(&mut self) {
        // SAFETY: the context is ours; the call waits for what is pending.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}
