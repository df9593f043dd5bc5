//! The figures of Windows: CPU times, the working set and UDP's counts. What needs the
//! performance counters' library or administrator's rights is `None`.

use super::{
    BoundSocket, DeviceUsage, KernelMemory, OfThread, ProcessUsage, SocketUsage, SystemUsage,
    TcpEnds, ThreadId, ThreadUsage, UdpUsage,
};
use crate::Error;
use socket2::Socket;
use std::net::{IpAddr, SocketAddr};
use std::os::windows::io::{AsRawHandle, AsRawSocket};
use std::{io, os::windows::io::FromRawHandle, os::windows::io::OwnedHandle};
use windows_sys::Win32::{
    Foundation::{FILETIME, HANDLE},
    NetworkManagement::IpHelper::{GetUdpStatisticsEx, MIB_UDPSTATS},
    Networking::WinSock::{AF_INET, AF_INET6, FIONREAD, SOCKET, ioctlsocket},
    System::{
        ProcessStatus::{K32GetProcessMemoryInfo, PROCESS_MEMORY_COUNTERS},
        Threading::{
            GetCurrentProcess, GetCurrentProcessorNumber, GetCurrentThread, GetCurrentThreadId,
            GetProcessTimes, GetThreadTimes, OpenThread, THREAD_QUERY_INFORMATION,
        },
    },
};

pub(super) fn current_thread_id() -> u64 {
    // SAFETY: takes no argument and cannot fail.
    u64::from(unsafe { GetCurrentThreadId() })
}

pub(super) fn current_thread() -> ThreadUsage {
    // SAFETY: both take no argument; the handle is a constant that need not be closed.
    let (thread, core) = unsafe { (GetCurrentThread(), GetCurrentProcessorNumber()) };
    // SAFETY: the handle of the current thread is valid as long as it runs.
    let usage = unsafe { thread_times(thread) };
    ThreadUsage { core: Some(u64::from(core)), ..usage.unwrap_or_default() }
}

/// The CPU times behind a thread's handle.
///
/// # Safety
/// `thread` is the handle of a thread, opened with the right to query it.
unsafe fn thread_times(thread: HANDLE) -> io::Result<ThreadUsage> {
    // SAFETY: the caller vouches for the handle; the function writes four times.
    let (system, user) = unsafe { times(GetThreadTimes, thread) }?;
    Ok(ThreadUsage {
        cpu_ns: Some(system + user),
        cpu_system_ns: Some(system),
        ..ThreadUsage::default()
    })
}

type Times = unsafe extern "system" fn(
    HANDLE,
    *mut FILETIME,
    *mut FILETIME,
    *mut FILETIME,
    *mut FILETIME,
) -> windows_sys::core::BOOL;

/// Time in the kernel and in user code, in ns.
///
/// # Safety
/// `of` is a handle that `read` accepts.
unsafe fn times(read: Times, of: HANDLE) -> io::Result<(u64, u64)> {
    let mut times = [FILETIME::default(); 4];
    let [created, ended, system, user] = &mut times;
    // SAFETY: the caller vouches for the handle; the four times are valid for writing.
    if unsafe { read(of, created, ended, system, user) } == 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((filetime_ns(times[2]), filetime_ns(times[3])))
}

/// A span in steps of 100 ns, in ns.
fn filetime_ns(time: FILETIME) -> u64 {
    const STEP_NS: u64 = 100;
    (u64::from(time.dwHighDateTime) << 32 | u64::from(time.dwLowDateTime)) * STEP_NS
}

/// Winsock tells of the payload that waits, and of nothing else. Of a datagram socket that is the sum on Windows, and
/// the next datagram's under Wine; empty ones are in none.
pub(super) fn socket_usage(socket: &Socket) -> io::Result<SocketUsage> {
    let mut bytes = 0;
    // SAFETY: the socket is open as long as it is borrowed; the call writes 32 bits, which outlive it.
    if unsafe { ioctlsocket(socket.as_raw_socket() as SOCKET, FIONREAD, &mut bytes) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(SocketUsage { queued_bytes: Some(bytes.into()), ..SocketUsage::default() })
}

pub(super) fn tcp_ends(_port: u16) -> Option<TcpEnds> {
    None
}

pub(super) fn sockets_bound_to(_addresses: &[SocketAddr]) -> Option<Vec<BoundSocket>> {
    None
}

/// What counts drops at sockets for the whole machine. MIB_UDPSTATS says of it: erroneous datagrams received, but for
/// those to a port that nobody has.
pub(super) const DROPPED_AT_SOCKETS: &str = "dwInErrors of GetUdpStatisticsEx, of all programs: other errors are among them, and it is not documented \
     whether all drops at full buffers are";

pub(super) fn dropped_at_sockets(udp: &UdpUsage) -> Option<u64> {
    udp.in_errors
}

#[derive(Debug)]
pub(super) struct ThreadSampler {
    id: ThreadId,
    thread: OwnedHandle,
}

impl ThreadSampler {
    pub(super) fn new(id: ThreadId) -> Result<Self, Error> {
        // SAFETY: any number is allowed; that of no thread is an error.
        let handle = unsafe { OpenThread(THREAD_QUERY_INFORMATION, 0, id.number() as u32) };
        if handle.is_null() {
            return Err(Error::io(format!("cannot open thread {id}"), io::Error::last_os_error()));
        }
        // SAFETY: the handle was just opened, and nothing else owns it.
        Ok(Self { id, thread: unsafe { OwnedHandle::from_raw_handle(handle) } })
    }

    pub(super) fn read(&mut self) -> Result<ThreadUsage, Error> {
        // SAFETY: the handle was opened for querying and is open as long as `self` lives.
        unsafe { thread_times(self.thread.as_raw_handle()) }.map_err(|error| {
            Error::io(format!("cannot read the times of thread {}", self.id), error)
        })
    }
}

fn memory() -> Option<PROCESS_MEMORY_COUNTERS> {
    let bytes = size_of::<PROCESS_MEMORY_COUNTERS>() as u32;
    let mut memory = PROCESS_MEMORY_COUNTERS { cb: bytes, ..Default::default() };
    // SAFETY: takes no argument; the handle is a constant that is always valid, and `memory` is
    // valid for writing `bytes`.
    let read = unsafe { K32GetProcessMemoryInfo(GetCurrentProcess(), &mut memory, bytes) } != 0;
    read.then_some(memory)
}

pub(super) fn kernel_memory() -> KernelMemory {
    let pools = |memory: PROCESS_MEMORY_COUNTERS| {
        (memory.QuotaNonPagedPoolUsage + memory.QuotaPagedPoolUsage) as u64
    };
    // Every process is charged for its handles: zero is an emulation that does not count.
    let pool_bytes = memory().map(pools).filter(|bytes| *bytes > 0);
    KernelMemory { pool_bytes, ..KernelMemory::default() }
}

#[derive(Debug, Default)]
pub(super) struct Sampler {
    /// As last read.
    udp4: UdpUsage,
    udp6: UdpUsage,
}

impl Sampler {
    pub(super) fn new() -> Self {
        Self::default()
    }

    pub(super) fn process(&mut self) -> ProcessUsage {
        // SAFETY: takes no argument; the handle is a constant that need not be closed.
        let process = unsafe { GetCurrentProcess() };
        // SAFETY: the handle of the current process is always valid.
        let cpu = unsafe { times(GetProcessTimes, process) }.ok();
        let memory = memory();
        ProcessUsage {
            cpu_ns: cpu.map(|(system, user)| system + user),
            cpu_system_ns: cpu.map(|(system, _)| system),
            // No process starts without a fault: zero is an emulation that does not count.
            minor_faults: memory.map(|memory| memory.PageFaultCount.into()).filter(|n| *n > 0),
            resident_bytes: memory.map(|memory| memory.WorkingSetSize as u64),
            peak_resident_bytes: memory.map(|memory| memory.PeakWorkingSetSize as u64),
            ..ProcessUsage::default()
        }
    }

    pub(super) fn system(&mut self) -> SystemUsage {
        for (usage, family) in [(&mut self.udp4, AF_INET), (&mut self.udp6, AF_INET6)] {
            *usage = udp(family, usage);
        }
        SystemUsage { udp4: self.udp4, udp6: self.udp6, ..SystemUsage::default() }
    }
}

fn udp(family: u16, last: &UdpUsage) -> UdpUsage {
    let mut counts = MIB_UDPSTATS::default();
    // SAFETY: `counts` is valid for writing; an unknown family is an error.
    if unsafe { GetUdpStatisticsEx(&mut counts, u32::from(family)) } != 0 {
        return UdpUsage::default();
    }
    UdpUsage {
        in_datagrams: widened(counts.dwInDatagrams, last.in_datagrams),
        no_ports: widened(counts.dwNoPorts, last.no_ports),
        in_errors: widened(counts.dwInErrors, last.in_errors),
        out_datagrams: widened(counts.dwOutDatagrams, last.out_datagrams),
        ..UdpUsage::default()
    }
}

/// A count that Windows keeps in 32 bits, carried on past its end from what it was when it
/// was last read.
fn widened(now: u32, last: Option<u64>) -> Option<u64> {
    let last = last.unwrap_or(0);
    Some(last + u64::from(now.wrapping_sub(last as u32)))
}

/// Of another process nothing is read here yet.
#[derive(Debug)]
pub(super) enum OtherProcess {}

impl OtherProcess {
    pub(super) fn new(id: u32) -> Result<Self, Error> {
        let unsupported = io::Error::from(io::ErrorKind::Unsupported);
        Err(Error::io(format!("cannot read on this OS what process {id} used"), unsupported))
    }

    pub(super) fn usage(&mut self) -> ProcessUsage {
        match *self {}
    }

    pub(super) fn threads(&self) -> Vec<OfThread> {
        match *self {}
    }

    pub(super) fn cpu_ns(&self) -> Option<u64> {
        match *self {}
    }

    pub(super) fn udp_sockets(&self) -> Option<Vec<SocketAddr>> {
        match *self {}
    }
}

pub(super) fn thread_cpu_ns(id: ThreadId) -> Option<u64> {
    ThreadSampler::new(id).ok()?.read().ok()?.cpu_ns
}

pub(super) fn devices_having(_: &[IpAddr]) -> Option<DeviceUsage> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_of_32_bits_is_carried_on() {
        let first = widened(u32::MAX - 1, None);
        assert_eq!(first, Some(u64::from(u32::MAX) - 1));
        assert_eq!(widened(3, first), Some((1 << 32) + 3));
        assert_eq!(widened(3, Some((1 << 32) + 3)), Some((1 << 32) + 3));
    }
}
