//! io_uring(7): a multishot accept into the ring's table of files, multishot receives into provided buffers,
//! and sends from there.

use super::{
    BUFFER_BYTES, Run,
    rings::{STRIDE, checked, of_one_thread, push},
};
use io_uring::{
    IoUring, cqueue, opcode,
    types::{BufRingEntry, Fd, Fixed},
};
use std::{
    alloc::{Layout, alloc_zeroed, dealloc},
    io,
    os::fd::AsRawFd,
    sync::atomic::{AtomicU16, Ordering::Release},
};

/// Buffers, as for the design.
const BUFFERS: usize = 512;
/// More connections than the benchmark has.
pub const FILES: u32 = 1024;

/// What a completion is of: the lowest 32 bits say which connection, the next 16 which buffer.
const ACCEPT: u64 = 1 << 56;
const RECEIVE: u64 = 2 << 56;
const SEND: u64 = 3 << 56;
const CLOSE: u64 = 4 << 56;

/// A ring of provided buffers.
struct Buffers {
    entries: *mut BufRingEntry,
    memory: Box<[u8]>,
    tail: u16,
}

impl Buffers {
    fn layout() -> Layout {
        let layout = Layout::array::<BufRingEntry>(BUFFERS).expect("a small array");
        layout.align_to(4096).expect("a page")
    }

    fn new() -> Self {
        // SAFETY: the layout has a size.
        let entries = unsafe { alloc_zeroed(Self::layout()) }.cast();
        Self { entries, memory: vec![0; BUFFERS * STRIDE].into(), tail: 0 }
    }

    fn at(&mut self, id: u16) -> *mut u8 {
        self.memory[usize::from(id) * STRIDE..].as_mut_ptr()
    }

    fn give(&mut self, id: u16) {
        let address = self.at(id) as u64;
        // SAFETY: inside the entries; the tail, which the kernel reads, lies in a reserved field of the first.
        unsafe {
            let entry = &mut *self.entries.add(usize::from(self.tail) % BUFFERS);
            entry.set_addr(address);
            entry.set_len(BUFFER_BYTES as u32);
            entry.set_bid(id);
            self.tail = self.tail.wrapping_add(1);
            let tail = BufRingEntry::tail(self.entries).cast_mut();
            AtomicU16::from_ptr(tail).store(self.tail, Release);
        }
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: allocated so, and the ring is gone.
        unsafe { dealloc(self.entries.cast(), Self::layout()) };
    }
}

pub fn ring(run: &Run) -> io::Result<()> {
    echo(run, |ring| ring.submit_and_wait(1).map(drop))
}

/// `wait` submits what was asked for, and comes back once something completed.
pub fn echo(run: &Run, wait: impl Fn(&mut IoUring) -> io::Result<()>) -> io::Result<()> {
    // Connections inherit it.
    socket2::SockRef::from(&run.listener).set_tcp_nodelay(true)?;
    let mut buffers = Buffers::new();
    let mut ring = of_one_thread()?;
    ring.submitter().register_files_sparse(FILES)?;
    // SAFETY: the entries and the buffers outlive the use of the ring, which is over with the last
    // connection.
    unsafe {
        let entries = buffers.entries as u64;
        ring.submitter().register_buf_ring_with_flags(entries, BUFFERS as u16, 0, 0)?;
    }
    (0..BUFFERS as u16).for_each(|id| buffers.give(id));
    let mut lengths = [0; BUFFERS];
    let accept = opcode::AcceptMulti::new(Fd(run.listener.as_raw_fd())).allocate_file_index(true);
    push(&mut ring, &[accept.build().user_data(ACCEPT)])?;
    let mut open = 0;
    let mut completed: Vec<(u64, i32, u32)> = Vec::new();
    while !run.is_over(open) {
        wait(&mut ring)?;
        let entries = ring.completion();
        completed.extend(entries.map(|entry| (entry.user_data(), entry.result(), entry.flags())));
        for (token, result, flags) in completed.drain(..) {
            let place = token as u32;
            match token & 0xff << 56 {
                ACCEPT => {
                    open += 1;
                    receive(&mut ring, checked(result)?)?;
                }
                RECEIVE if result > 0 => {
                    let id = cqueue::buffer_select(flags).expect("it was received into one");
                    lengths[usize::from(id)] = result;
                    let send = opcode::Send::new(Fixed(place), buffers.at(id), result as u32);
                    let send = send.flags(libc::MSG_NOSIGNAL).build();
                    let token = SEND | u64::from(id) << 32 | u64::from(place);
                    push(&mut ring, &[send.user_data(token)])?;
                    if !cqueue::more(flags) {
                        receive(&mut ring, place)?;
                    }
                }
                RECEIVE if result == -libc::ENOBUFS => receive(&mut ring, place)?,
                RECEIVE => {
                    open -= 1;
                    let close = opcode::Close::new(Fixed(place)).build();
                    push(&mut ring, &[close.user_data(CLOSE)])?;
                }
                SEND => {
                    let id = (token >> 32) as u16;
                    assert_eq!(
                        checked(result)? as i32,
                        lengths[usize::from(id)],
                        "a socket is full"
                    );
                    buffers.give(id);
                }
                _ => {}
            }
        }
    }
    Ok(())
}

fn receive(ring: &mut IoUring, place: u32) -> io::Result<()> {
    let receive = opcode::RecvMulti::new(Fixed(place), 0).build();
    push(ring, &[receive.user_data(RECEIVE | u64::from(place))])
}
