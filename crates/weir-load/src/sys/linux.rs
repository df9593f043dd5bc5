//! Linux: clocks, affinity, timer slack, identity.

use std::{
    fs::{File, Metadata},
    io::{self, Read as _},
    net::TcpStream,
    os::unix::fs::MetadataExt as _,
    path::Path,
    time::Duration,
};

use socket2::Socket;

/// ENOBUFS: the device's queue is full.
pub(crate) const NO_BUFFERS: i32 = libc::ENOBUFS;

/// Shutting a connection down ends the reads of it.
pub(crate) const READ_SLICE: Option<Duration> = None;

/// SO_SNDTIMEO: a send that has waited so long fails, and the socket is as before.
pub(crate) fn limit_waits(socket: &Socket, within: Duration) -> io::Result<()> {
    socket.set_write_timeout(Some(within))
}

/// Sends what [`limit_waits`] has limited, or on a socket that never waits.
#[inline]
pub(crate) fn send(socket: &Socket, bytes: &[u8], _within: Option<Duration>) -> io::Result<usize> {
    socket.send(bytes)
}

/// Reads, and waits for it at most so long: then it is `WouldBlock`.
pub(crate) fn read_within(
    mut stream: &TcpStream,
    bytes: &mut [u8],
    within: Option<Duration>,
) -> io::Result<usize> {
    stream.set_read_timeout(within)?;
    stream.read(bytes)
}

/// Whether other users may read a file, by its mode.
pub(crate) fn others_can_read(path: &Path) -> bool {
    const GROUP_AND_OTHERS: u32 = 0o044;
    let is_open = |of: Metadata| of.is_file() && of.mode() & GROUP_AND_OTHERS != 0;
    path.metadata().is_ok_and(is_open)
}

fn clock_ns(clock: libc::clockid_t) -> Option<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec that outlives the call, which writes nothing else.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    (result == 0).then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

#[inline]
pub(crate) fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC).expect("every Linux has CLOCK_MONOTONIC")
}

pub(crate) fn thread_cpu_ns() -> Option<u64> {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Timers of a thread may end 50 µs late by default, so that the kernel can gather them.
pub(crate) fn ask_for_precise_sleeps() {
    const SLACK_NS: libc::c_ulong = 1;
    // SAFETY: PR_SET_TIMERSLACK takes a plain number and touches no memory of ours. Its
    // failure only makes sleeps less precise, which the pacing counts.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, SLACK_NS) };
}

/// The lowest priority of setpriority(2): a share of a core that others want of about 1 in 70.
pub(crate) fn give_way() -> io::Result<()> {
    const LOWEST: libc::c_int = 19;
    // SAFETY: it takes plain numbers; 0 is the calling thread, from which threads that are started have it.
    match unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, LOWEST) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The C library keeps what was freed in small pieces.
pub(crate) fn give_memory_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes a plain number, locks the arenas itself, and frees only what is free.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// By way of /proc, which still reaches the file after it was replaced by a newer build.
pub(crate) fn open_own_executable() -> io::Result<File> {
    File::open("/proc/self/exe")
}

pub(crate) fn host_id() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned())
}

/// A time namespace (Linux 5.6) shifts the clock of its processes, man page time_namespaces(7).
pub(crate) fn clock_id() -> Option<String> {
    let host = host_id()?;
    match std::fs::read_link("/proc/self/ns/time") {
        Ok(namespace) => Some(format!("{host} {}", namespace.display())),
        Err(_) => Some(host),
    }
}
