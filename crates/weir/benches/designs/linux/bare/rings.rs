//! Registered I/O on io_uring: a multishot recvmsg over a ring of buffers, armed or swept.

use super::{PAYLOAD_BYTES, Run};
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use std::{
    io, mem,
    os::fd::AsRawFd,
    sync::atomic::{AtomicU16, Ordering::Release},
    time::{Duration, Instant},
};

const BUFFERS: u16 = 1024;

/// Waits for each batch.
pub fn uring_event(run: &Run) -> io::Result<()> {
    serve(run, &Form { sweeps: false, spin: Some(Duration::ZERO), one_thread: true })
}

/// The same on a ring that several threads may use.
pub fn uring_handed_over(run: &Run) -> io::Result<()> {
    serve(run, &Form { sweeps: false, spin: Some(Duration::ZERO), one_thread: false })
}

/// Looks again before it waits; sweeps.
pub fn uring_event_polled(run: &Run) -> io::Result<()> {
    serve(run, &Form { sweeps: true, spin: Some(Duration::ZERO), one_thread: true })
}

/// Never waits; sweeps.
pub fn uring_polled(run: &Run) -> io::Result<()> {
    serve(run, &Form { sweeps: true, spin: None, one_thread: true })
}

/// Polls for 50 µs before it waits; sweeps.
pub fn uring_hybrid(run: &Run) -> io::Result<()> {
    serve(run, &Form { sweeps: true, spin: Some(SPIN), one_thread: true })
}

/// Polls for 50 µs before it waits; stays armed.
pub fn uring_armed_hybrid(run: &Run) -> io::Result<()> {
    serve(run, &Form { sweeps: false, spin: Some(SPIN), one_thread: true })
}

const SPIN: Duration = Duration::from_micros(50);

struct Form {
    /// Under load it asks for what is there, with receives that do not wait.
    sweeps: bool,
    /// How long it polls before it waits; `None`: for ever.
    spin: Option<Duration>,
    /// The ring is bound to its thread, and work is done when that asks.
    one_thread: bool,
}

// The numbers of the library: see `rio/uring/linux/sweeping.rs`.
const RUN: u32 = 32;
const DRY_SWEEPS: u32 = 32;
const MOST_SWEEPS: u32 = 32;
const GATHERING: Duration = Duration::from_micros(5);

// What the completions are of.
const ARMED: u64 = 1;
const SWEEP: u64 = 2;
const CANCEL: u64 = 3;

fn serve(run: &Run, form: &Form) -> io::Result<()> {
    let mut rig = Rig::new(run, form.one_thread)?;
    let (mut sweeping, mut sweeps, mut dry) = (false, 1, 0);
    let (mut emptied, mut empty_since) = (None::<Instant>, None);
    rig.push(ARMED)?;
    rig.enter()?;
    while !run.stopping() {
        let mut found = Found::default();
        if sweeping {
            if rig.armed {
                rig.push(CANCEL)?;
                rig.enter()?;
                found = rig.take();
            }
            if found.received == 0 {
                while emptied.is_some_and(|at| at.elapsed() < GATHERING) {
                    std::hint::spin_loop();
                }
                (0..sweeps).try_for_each(|_| rig.push(SWEEP))?;
                rig.enter()?;
                found = rig.take();
                emptied = found.emptied.then(Instant::now);
                if found.received >= sweeps * RUN {
                    sweeps = (2 * sweeps).min(MOST_SWEEPS);
                } else if found.received < sweeps * RUN / 2 {
                    sweeps = (sweeps / 2).max(1);
                }
                dry = if found.received == 0 { dry + 1 } else { 0 };
                sweeping = dry < DRY_SWEEPS;
            }
        } else {
            if !rig.armed {
                rig.push(ARMED)?;
                rig.enter()?;
            }
            found = rig.take();
            if found.received == 0 && rig.ring.submission().taskrun() {
                rig.enter()?;
                found = rig.take();
            }
            if form.sweeps && found.received >= RUN {
                (sweeping, sweeps, dry, emptied) = (true, 1, 0, None);
            }
        }
        run.count.add(found.received.into());
        if found.received > 0 {
            empty_since = None;
            continue;
        }
        let Some(spin) = form.spin else { continue };
        let since = *empty_since.get_or_insert_with(Instant::now);
        if spin.is_zero() || since.elapsed() >= spin {
            (sweeping, empty_since) = (false, None);
            if !rig.armed {
                rig.push(ARMED)?;
            }
            rig.ring.submit_and_wait(1)?;
        }
    }
    rig.end();
    Ok(())
}

/// What one look at the completions found.
#[derive(Default)]
struct Found {
    received: u32,
    emptied: bool,
}

/// A ring, its buffers, and the one receive that stays armed.
struct Rig {
    ring: IoUring<squeue::Entry, cqueue::Entry>,
    fd: types::Fd,
    header: Box<libc::msghdr>,
    buffers: Buffers,
    armed: bool,
    bytes: usize,
}

/// A ring of provided buffers, and their memory.
struct Buffers {
    entries: *mut types::BufRingEntry,
    tail: u16,
    memory: Vec<u8>,
}

/// A buffer: the kernel's header, the source, the payload.
const STRIDE: usize = (16 + size_of::<libc::sockaddr_in6>() + PAYLOAD_BYTES).next_multiple_of(64);

impl Buffers {
    fn post(&mut self, id: u16) {
        // SAFETY: the index is masked to the ring; ids are below its size.
        unsafe {
            let entry = &mut *self.entries.add((self.tail & (BUFFERS - 1)) as usize);
            entry.set_addr(self.memory.as_mut_ptr().add(id as usize * STRIDE) as u64);
            entry.set_len(STRIDE as u32);
            entry.set_bid(id);
            self.tail = self.tail.wrapping_add(1);
            (*types::BufRingEntry::tail(self.entries).cast::<AtomicU16>())
                .store(self.tail, Release);
        }
    }
}

impl Rig {
    fn new(run: &Run, one_thread: bool) -> io::Result<Self> {
        let mut builder = IoUring::builder();
        builder.setup_submit_all().setup_cqsize(8192);
        if one_thread {
            builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
        }
        let ring = builder.build(64)?;
        let bytes = BUFFERS as usize * size_of::<types::BufRingEntry>();
        let layout = std::alloc::Layout::from_size_align(bytes, 4096).expect("a small layout");
        // SAFETY: the layout is not empty. The ring of buffers is leaked: this process is short.
        let entries = unsafe { std::alloc::alloc_zeroed(layout) }.cast::<types::BufRingEntry>();
        // SAFETY: the ring is page-aligned, of `BUFFERS` entries, and never freed.
        unsafe { ring.submitter().register_buf_ring_with_flags(entries as u64, BUFFERS, 0, 0)? };
        // SAFETY: all zeroes is a valid msghdr; only the lengths matter to a multishot receive.
        let mut header: Box<libc::msghdr> = Box::new(unsafe { mem::zeroed() });
        header.msg_namelen = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
        let memory = vec![0; STRIDE * BUFFERS as usize];
        let mut buffers = Buffers { entries, tail: 0, memory };
        (0..BUFFERS).for_each(|id| buffers.post(id));
        let fd = types::Fd(run.socket.as_raw_fd());
        Ok(Self { ring, fd, header, buffers, armed: false, bytes: 0 })
    }

    fn push(&mut self, what: u64) -> io::Result<()> {
        let flags = if what == SWEEP { libc::MSG_DONTWAIT as u32 } else { 0 };
        let entry = match what {
            CANCEL => opcode::AsyncCancel::new(ARMED).build(),
            _ => {
                opcode::RecvMsgMulti::new(self.fd, &raw const *self.header, 0).flags(flags).build()
            }
        };
        self.armed |= what == ARMED;
        // SAFETY: header and buffers live until the ring has gone.
        unsafe { self.ring.submission().push(&entry.user_data(what)) }.map_err(io::Error::other)
    }

    /// Submits, and lets the kernel do what it put off.
    fn enter(&mut self) -> io::Result<()> {
        let (pending, get_events) = (self.ring.submission().len() as u32, 1);
        // SAFETY: no argument is passed.
        unsafe { self.ring.submitter().enter::<()>(pending, 0, get_events, None) }.map(drop)
    }

    fn take(&mut self) -> Found {
        let mut found = Found::default();
        let Self { ring, header, buffers, armed, bytes, .. } = self;
        for completion in ring.completion() {
            let (result, flags) = (completion.result(), completion.flags());
            *armed &= completion.user_data() != ARMED || cqueue::more(flags);
            found.emptied |= result == -libc::EAGAIN;
            let Some(id) = cqueue::buffer_select(flags) else { continue };
            if result >= 0 {
                let slice = &buffers.memory[id as usize * STRIDE..][..result as usize];
                if let Ok(message) = types::RecvMsgOut::parse(slice, header) {
                    *bytes += message.payload_data().len();
                }
                found.received += 1;
            }
            buffers.post(id);
        }
        found
    }

    /// The ring must be gone before the memory that it writes to, and tells nobody when it is: so
    /// the memory stays.
    fn end(self) {
        std::hint::black_box(self.bytes);
        mem::forget((self.buffers, self.header));
    }
}
