//! A ring with reads and commands of `/dev/nothing`.

use super::abi;
use anyhow::{Context as _, Result, ensure};
use io_uring::{IoUring, opcode, squeue, types};
use std::{io, mem::ManuallyDrop, os::fd::RawFd};

/// What is asked of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A read of so many bytes.
    Read(u32),
    /// IORING_OP_URING_CMD.
    Command,
}

/// A ring, and the memory of its reads.
pub struct Ring {
    ring: IoUring,
    /// One for each operation, kept when the ring goes with operations pending: the kernel may
    /// write to them until it has told of their end.
    buffers: ManuallyDrop<Vec<Vec<u8>>>,
    pending: usize,
}

/// How an operation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// The number of the operation, from 0.
    pub number: u64,
    /// Bytes, or minus errno.
    pub result: i32,
}

impl Ring {
    /// A ring that submits so many at a time.
    pub fn new(entries: u32) -> io::Result<Self> {
        Ok(Self {
            ring: IoUring::new(entries)?,
            buffers: ManuallyDrop::new(Vec::new()),
            pending: 0,
        })
    }

    /// Submits `count` operations; `through_worker` sends them there (IOSQE_ASYNC).
    pub fn submit(
        &mut self,
        fd: RawFd,
        operation: Operation,
        count: usize,
        through_worker: bool,
    ) -> Result<()> {
        let flags = if through_worker { squeue::Flags::ASYNC } else { squeue::Flags::empty() };
        for _ in 0..count {
            let number = self.buffers.len() as u64;
            let entry = match operation {
                Operation::Read(length) => {
                    let mut buffer = vec![0xA5; length as usize];
                    let entry = opcode::Read::new(types::Fd(fd), buffer.as_mut_ptr(), length);
                    self.buffers.push(buffer);
                    entry.build()
                }
                Operation::Command => {
                    self.buffers.push(Vec::new());
                    opcode::UringCmd16::new(types::Fd(fd), abi::DO).build()
                }
            };
            let entry = entry.flags(flags).user_data(number);
            if self.ring.submission().is_full() {
                self.enter(0)?;
            }
            // SAFETY: the buffer is kept until the kernel has told of the operation's end; see
            // `Drop`.
            unsafe { self.ring.submission().push(&entry) }.context("the ring is full")?;
            self.pending += 1;
        }
        self.enter(0)
    }

    fn enter(&mut self, wait_for: usize) -> Result<()> {
        loop {
            match self.ring.submitter().submit_and_wait(wait_for) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("io_uring_enter"),
            }
        }
    }

    /// Waits for the ends of `count` operations, in the order in which the kernel told of them.
    pub fn ends(&mut self, count: usize) -> Result<Vec<End>> {
        ensure!(count <= self.pending, "{count} of {} are waited for", self.pending);
        let mut ends = Vec::with_capacity(count);
        while ends.len() < count {
            self.enter(1)?;
            let left = count - ends.len();
            ends.extend(
                self.ring
                    .completion()
                    .take(left)
                    .map(|entry| End { number: entry.user_data(), result: entry.result() }),
            );
        }
        self.pending -= count;
        Ok(ends)
    }

    /// Whether an end is there already.
    pub fn has_end(&mut self) -> bool {
        !self.ring.completion().is_empty()
    }

    /// What the read of this number left in its buffer.
    pub fn buffer(&self, number: u64) -> &[u8] {
        &self.buffers[number as usize]
    }

    /// Makes `fd` the ring's registered file 0, which then stays open without it.
    pub fn register(&self, fd: RawFd) -> Result<()> {
        self.ring.submitter().register_files(&[fd]).context("cannot register the file")
    }

    /// Submits a read of the registered file.
    pub fn submit_registered(&mut self, length: u32) -> Result<()> {
        let mut buffer = vec![0xA5; length as usize];
        let number = self.buffers.len() as u64;
        let entry = opcode::Read::new(types::Fixed(0), buffer.as_mut_ptr(), length)
            .build()
            .user_data(number);
        self.buffers.push(buffer);
        // SAFETY: as in `submit`.
        unsafe { self.ring.submission().push(&entry) }.context("the ring is full")?;
        self.pending += 1;
        self.enter(0)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.pending == 0 {
            // SAFETY: dropped once, here, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.buffers) };
        }
    }
}
