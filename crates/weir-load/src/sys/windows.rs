//! Windows: clocks, affinity, identity.

use std::{fs::File, io, sync::OnceLock, time::Duration};

use windows_sys::Win32::{
    Foundation::FILETIME,
    Media::timeBeginPeriod,
    Networking::WinSock::WSAENOBUFS,
    System::{
        Performance::{QueryPerformanceCounter, QueryPerformanceFrequency},
        Threading::{GetCurrentThread, GetThreadTimes},
    },
};

/// WSAENOBUFS.
pub(crate) const NO_BUFFERS: i32 = WSAENOBUFS;

/// A read of a connection goes on when this side shuts it down (seen under Wine 8), until
/// the other side answers or its time is over.
pub(crate) const READ_SLICE: Option<Duration> = Some(Duration::from_millis(100));

/// Ticks a second; fixed at boot.
fn frequency_hz() -> u64 {
    static FREQUENCY: OnceLock<u64> = OnceLock::new();
    *FREQUENCY.get_or_init(|| {
        let mut ticks = 0;
        // SAFETY: `ticks` is a valid i64 that outlives the call.
        unsafe { QueryPerformanceFrequency(&raw mut ticks) };
        (ticks as u64).max(1)
    })
}

#[inline]
pub(crate) fn monotonic_ns() -> u64 {
    let mut ticks = 0;
    // SAFETY: `ticks` is a valid i64 that outlives the call.
    unsafe { QueryPerformanceCounter(&raw mut ticks) };
    // In 128 bits: ticks times 10^9 leaves 64 bits after half an hour at 10 MHz.
    (ticks as u128 * 1_000_000_000 / u128::from(frequency_hz())) as u64
}

pub(crate) fn thread_cpu_ns() -> Option<u64> {
    const EMPTY: FILETIME = FILETIME { dwLowDateTime: 0, dwHighDateTime: 0 };
    let (mut created, mut exited, mut kernel, mut user) = (EMPTY, EMPTY, EMPTY, EMPTY);
    // SAFETY: the pseudo handle of the current thread is always valid, and the four
    // FILETIMEs outlive the call.
    let ok = unsafe {
        GetThreadTimes(
            GetCurrentThread(),
            &raw mut created,
            &raw mut exited,
            &raw mut kernel,
            &raw mut user,
        )
    };
    let ns = |t: FILETIME| ((u64::from(t.dwHighDateTime) << 32) | u64::from(t.dwLowDateTime)) * 100;
    (ok != 0).then(|| ns(kernel) + ns(user))
}

/// The standard library sleeps on a high-resolution timer where there is one. Waits for sockets end with the
/// system's ticks: from now on those of this process are as short as they can be.
pub(crate) fn ask_for_precise_sleeps() {
    // SAFETY: it takes a number. Its failure only makes waits less precise.
    unsafe { timeBeginPeriod(1) };
}

/// The heap returns by itself what it does not need.
pub(crate) fn give_memory_back() {}

pub(crate) fn open_own_executable() -> io::Result<File> {
    File::open(std::env::current_exe()?)
}

/// Two processes of one Windows machine are told by their addresses instead.
pub(crate) fn host_id() -> Option<String> {
    None
}
