//! The bare loops: the system calls of a design and nothing else. They count datagrams and
//! bytes; that is all that they do.

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use std::{
    io, mem,
    net::{SocketAddr, UdpSocket},
    os::fd::AsRawFd,
    sync::atomic::{
        AtomicBool, AtomicU16,
        Ordering::{Relaxed, Release},
    },
    time::{Duration, Instant},
};
use weir::counters::Counter;

const PAYLOAD_BYTES: usize = 1024;
const BATCH: usize = 64;
const BUFFERS: u16 = 4096;

pub struct Run {
    pub socket: UdpSocket,
    pub address: SocketAddr,
    pub count: Counter,
    stop: AtomicBool,
}

impl Run {
    pub fn bind() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let address = socket.local_addr().expect("bound");
        Self { socket, address, count: Counter::default(), stop: AtomicBool::new(false) }
    }

    /// The flood goes on until the loop has seen this, so no loop needs to be woken.
    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    fn stopping(&self) -> bool {
        self.stop.load(Relaxed)
    }
}

pub fn pin(core: usize) {
    // SAFETY: all zeroes is an empty set; the set lives through the calls.
    unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}

/// CPU time in ns of this process' threads whose name begins so.
pub fn cpu_ns_of_threads(name: &str) -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("procfs");
    tasks
        .filter_map(|task| {
            let path = task.ok()?.path();
            let comm = std::fs::read_to_string(path.join("comm")).ok()?;
            let schedstat = std::fs::read_to_string(path.join("schedstat")).ok()?;
            comm.starts_with(name).then(|| schedstat.split(' ').next()?.parse::<u64>().ok())?
        })
        .sum()
}

fn check(n: isize) -> io::Result<usize> {
    if n >= 0 { Ok(n as usize) } else { Err(io::Error::last_os_error()) }
}

pub fn blocking(run: &Run) -> io::Result<()> {
    let mut buffer = [0u8; PAYLOAD_BYTES];
    // SAFETY: all zeroes is a valid name.
    let mut name: libc::sockaddr_storage = unsafe { mem::zeroed() };
    let mut bytes = 0;
    while !run.stopping() {
        let mut length = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
        // SAFETY: buffer, name and length live through the call, with their sizes.
        bytes += check(unsafe {
            libc::recvfrom(
                run.socket.as_raw_fd(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                libc::MSG_TRUNC,
                (&raw mut name).cast(),
                &mut length,
            )
        })?;
        run.count.one();
    }
    std::hint::black_box(bytes);
    Ok(())
}

pub fn epoll(run: &Run) -> io::Result<()> {
    run.socket.set_nonblocking(true)?;
    let fd = run.socket.as_raw_fd();
    // SAFETY: plain calls with values that live through them.
    let epoll = check(unsafe { libc::epoll_create1(0) } as isize)? as libc::c_int;
    let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
    // SAFETY: as above.
    check(unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &mut event) } as isize)?;
    let mut buffer = [0u8; PAYLOAD_BYTES];
    // SAFETY: all zeroes is a valid name.
    let mut name: libc::sockaddr_storage = unsafe { mem::zeroed() };
    let mut bytes = 0;
    while !run.stopping() {
        // SAFETY: room for one event is given.
        check(unsafe { libc::epoll_wait(epoll, &mut event, 1, -1) } as isize)?;
        for _ in 0..BATCH {
            let mut length = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            // SAFETY: buffer, name and length live through the call, with their sizes.
            let n = unsafe {
                libc::recvfrom(
                    fd,
                    buffer.as_mut_ptr().cast(),
                    buffer.len(),
                    libc::MSG_TRUNC | libc::MSG_DONTWAIT,
                    (&raw mut name).cast(),
                    &mut length,
                )
            };
            match check(n) {
                Ok(n) => bytes += n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => return Err(e),
            }
            run.count.one();
        }
    }
    std::hint::black_box(bytes);
    // SAFETY: opened above and not used again.
    unsafe { libc::close(epoll) };
    Ok(())
}

pub fn blocking_batch(run: &Run) -> io::Result<()> {
    let mut buffers = vec![[0u8; PAYLOAD_BYTES]; BATCH];
    // SAFETY: all zeroes is valid for both.
    let mut names: Vec<libc::sockaddr_storage> = vec![unsafe { mem::zeroed() }; BATCH];
    let mut vectors: Vec<libc::iovec> = buffers
        .iter_mut()
        .map(|buffer| libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() })
        .collect();
    // SAFETY: as above.
    let mut headers: Vec<libc::mmsghdr> = vec![unsafe { mem::zeroed() }; BATCH];
    for i in 0..BATCH {
        headers[i].msg_hdr.msg_iov = &mut vectors[i];
        headers[i].msg_hdr.msg_iovlen = 1;
        headers[i].msg_hdr.msg_name = (&raw mut names[i]).cast();
    }
    let mut bytes = 0;
    while !run.stopping() {
        for header in &mut headers {
            header.msg_hdr.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
        }
        // SAFETY: every pointer in the headers points at memory that lives through the call.
        let n = check(unsafe {
            libc::recvmmsg(
                run.socket.as_raw_fd(),
                headers.as_mut_ptr(),
                BATCH as libc::c_uint,
                libc::MSG_WAITFORONE as _,
                std::ptr::null_mut(),
            )
        } as isize)?;
        bytes += headers[..n].iter().map(|header| header.msg_len as usize).sum::<usize>();
        run.count.add(n as u64);
    }
    std::hint::black_box(bytes);
    Ok(())
}

pub fn uring_event(run: &Run) -> io::Result<()> {
    uring(run, Duration::ZERO)
}

pub fn uring_hybrid(run: &Run) -> io::Result<()> {
    uring(run, Duration::from_micros(50))
}

/// One multishot recvmsg over a ring of buffers; polls so long before it waits.
fn uring(run: &Run, spin: Duration) -> io::Result<()> {
    const HEADER: usize = 16 + size_of::<libc::sockaddr_in6>();
    const STRIDE: usize = (HEADER + PAYLOAD_BYTES).next_multiple_of(64);
    let mut ring: IoUring<squeue::Entry, cqueue::Entry> = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .setup_cqsize(8192)
        .build(64)?;
    let mut memory = vec![0u8; STRIDE * BUFFERS as usize];
    let entries = BUFFERS as usize;
    let layout = std::alloc::Layout::from_size_align(entries * 16, 4096).expect("a small layout");
    // SAFETY: the layout is not empty. The ring of buffers is leaked: this process is short.
    let buffers = unsafe { std::alloc::alloc_zeroed(layout) }.cast::<types::BufRingEntry>();
    // SAFETY: the ring is page-aligned, of `entries` entries, and never freed.
    unsafe { ring.submitter().register_buf_ring_with_flags(buffers as u64, BUFFERS, 0, 0)? };
    let mut tail = 0u16;
    let mut push = |memory: &mut [u8], id: u16| {
        // SAFETY: the index is masked to the ring; ids are below its size.
        unsafe {
            let entry = &mut *buffers.add((tail & (BUFFERS - 1)) as usize);
            entry.set_addr(memory.as_mut_ptr().add(id as usize * STRIDE) as u64);
            entry.set_len(STRIDE as u32);
            entry.set_bid(id);
            tail = tail.wrapping_add(1);
            (*types::BufRingEntry::tail(buffers).cast::<AtomicU16>()).store(tail, Release);
        }
    };
    for id in 0..BUFFERS {
        push(&mut memory, id);
    }
    // SAFETY: all zeroes is a valid msghdr; only the lengths matter to a multishot receive.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_namelen = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
    let fd = types::Fd(run.socket.as_raw_fd());
    let arm = opcode::RecvMsgMulti::new(fd, &raw const header, 0).build();
    // SAFETY: the header lives until the ring is closed at the end of this function.
    unsafe { ring.submission().push(&arm).expect("an empty queue") };
    ring.submit()?;
    let (mut bytes, mut empty_since) = (0, None);
    while !run.stopping() {
        let mut disarmed = false;
        let mut taken = 0;
        for completion in ring.completion() {
            disarmed |= !cqueue::more(completion.flags());
            let Some(id) = cqueue::buffer_select(completion.flags()) else { continue };
            let slice = &memory[id as usize * STRIDE..][..completion.result() as usize];
            if let Ok(message) = types::RecvMsgOut::parse(slice, &header) {
                bytes += message.payload_data().len();
            }
            taken += 1;
            push(&mut memory, id);
        }
        run.count.add(taken);
        if disarmed {
            // SAFETY: as above.
            unsafe { ring.submission().push(&arm).expect("room for one") };
            ring.submit()?;
        }
        if taken > 0 {
            empty_since = None;
            continue;
        }
        let since = *empty_since.get_or_insert_with(Instant::now);
        if spin.is_zero() || since.elapsed() >= spin {
            ring.submit_and_wait(1)?;
            empty_since = None;
        } else if ring.submission().taskrun() {
            // SAFETY: enters with nothing to submit, to let the kernel run deferred work.
            unsafe { ring.submitter().enter::<()>(0, 0, 1, None)? };
        }
    }
    std::hint::black_box(bytes);
    // The ring must be gone before the memory that it writes to.
    drop(ring);
    std::thread::sleep(Duration::from_millis(10));
    mem::forget(memory);
    Ok(())
}
