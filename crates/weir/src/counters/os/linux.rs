//! The figures of Linux, from `/proc` and a few system calls.
//!
//! CPU time of a thread: its CPU clock (`clock_gettime`), since that is the scheduler's
//! own sum in ns and is brought up to date when it is asked for. `schedstat` shows the
//! same sum as of the last timer tick, so of a thread that polls it is up to 4 ms old;
//! `getrusage` cuts it to µs, and `stat` to ticks of 10 ms.

mod another;
mod devices;
mod parse;
mod tcp_sockets;
pub(super) use another::OtherProcess;
#[cfg(fuzzing)]
pub use parse::parse_every_text;
pub(super) use tcp_sockets::tcp_ends;

use super::{
    BoundSocket, DeviceUsage, KernelMemory, ProcessUsage, SocketUsage, SystemUsage, ThreadId,
    ThreadUsage, TotalUsage, UdpUsage,
};
use crate::Error;
use nix::{
    sys::{
        resource::{Usage, UsageWho, getrusage},
        time::TimeValLike as _,
    },
    time::ClockId,
    unistd::{SysconfVar, gettid, sysconf},
};
use socket2::Socket;
use std::{
    fs::{self, File},
    io,
    net::{IpAddr, SocketAddr},
    os::{fd::AsRawFd, unix::fs::FileExt},
    time::Duration,
};

const NS_PER_S: u64 = 1_000_000_000;

pub(super) fn current_thread_id() -> u64 {
    gettid().as_raw() as u64 // positive
}

pub(super) fn current_thread() -> ThreadUsage {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).ok();
    let cpu_ns = clock_ns(ClockId::CLOCK_THREAD_CPUTIME_ID).ok();
    // SAFETY: sched_getcpu takes no argument.
    let core = unsafe { libc::sched_getcpu() };
    ThreadUsage {
        cpu_ns,
        cpu_system_ns: usage.map(system_ns),
        voluntary_switches: usage.map(|usage| usage.voluntary_context_switches() as u64),
        involuntary_switches: usage.map(|usage| usage.involuntary_context_switches() as u64),
        core: u64::try_from(core).ok(),
        ..ThreadUsage::default()
    }
}

/// What a CPU clock shows, in ns.
fn clock_ns(clock: ClockId) -> io::Result<u64> {
    Ok(Duration::from(clock.now()?).as_nanos() as u64)
}

/// The CPU clock of a thread of this process: the number that `pthread_getcpuclockid`
/// makes, from the kernel's number of a thread instead of the C library's.
fn thread_clock(id: libc::pid_t) -> ClockId {
    const OF_ONE_THREAD: libc::clockid_t = 4;
    const SCHEDULER_TIME: libc::clockid_t = 2;
    ClockId::from_raw((!id << 3) | OF_ONE_THREAD | SCHEDULER_TIME)
}

/// Time in the kernel.
fn system_ns(usage: Usage) -> u64 {
    usage.system_time().num_nanoseconds() as u64
}

/// A setting of the C library that is a positive number.
fn setting(name: SysconfVar) -> Option<u64> {
    u64::try_from(sysconf(name).ok()??).ok().filter(|value| *value > 0)
}

/// The length of the ticks in which `/proc` counts CPU time, in ns.
fn tick_ns() -> Option<u64> {
    setting(SysconfVar::CLK_TCK).map(|per_s| NS_PER_S / per_s)
}

pub(super) fn socket_usage(socket: &Socket) -> io::Result<SocketUsage> {
    const FIGURES: usize = libc::SK_MEMINFO_DROPS as usize + 1;
    let mut figures = [0u32; FIGURES];
    let mut bytes = size_of_val(&figures) as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` into `figures`, and says how many it wrote.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            figures.as_mut_ptr().cast(),
            &mut bytes,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let written = bytes as usize / size_of::<u32>(); // fewer on a kernel with fewer figures
    let figure = |n: libc::c_int| figures[..written].get(n as usize).map(|n| u64::from(*n));
    Ok(SocketUsage {
        drops: figure(libc::SK_MEMINFO_DROPS),
        queued_bytes: figure(libc::SK_MEMINFO_RMEM_ALLOC),
        receive_buffer_bytes: figure(libc::SK_MEMINFO_RCVBUF),
    })
}

pub(super) fn sockets_bound_to(addresses: &[SocketAddr]) -> Option<Vec<BoundSocket>> {
    let of = |file: &str, wanted: fn(&SocketAddr) -> bool| {
        let addresses: Vec<SocketAddr> = addresses.iter().copied().filter(wanted).collect();
        if addresses.is_empty() {
            return Some(vec![]);
        }
        Some(parse::udp_sockets(&fs::read(file).ok()?, &addresses))
    };
    let (v4, v6) =
        (of("/proc/net/udp", SocketAddr::is_ipv4)?, of("/proc/net/udp6", SocketAddr::is_ipv6)?);
    Some([v4, v6].concat())
}

/// What counts drops at sockets for the whole machine.
pub(super) const DROPPED_AT_SOCKETS: &str =
    "RcvbufErrors and MemErrors of /proc/net/snmp and snmp6, of all programs";

pub(super) fn dropped_at_sockets(udp: &UdpUsage) -> Option<u64> {
    // Older kernels have no second reason.
    Some(udp.receive_buffer_errors? + udp.memory_errors.unwrap_or(0))
}

pub(super) fn kernel_memory() -> KernelMemory {
    // Each core keeps changes of the sums to itself for up to a second. Reading this file, which
    // root may, adds them up; for others the sums are that much older.
    let _ = fs::read("/proc/sys/vm/stat_refresh");
    let read = |path: &str| fs::read(path).unwrap_or_default();
    KernelMemory {
        page_table_bytes: parse::page_tables(&read("/proc/self/status")),
        ring_bytes: parse::mapped_rings(&read("/proc/self/maps")),
        ..parse::kernel_memory(&read("/proc/meminfo"))
    }
}

pub(super) fn thread_cpu_ns(id: ThreadId) -> Option<u64> {
    clock_ns(thread_clock(id.number() as libc::pid_t)).ok()
}

pub(super) fn devices_having(addresses: &[IpAddr]) -> Option<DeviceUsage> {
    let names = devices::names(addresses)?;
    // Of the calling thread, as a thread may have entered a network namespace.
    let text = fs::read("/proc/thread-self/net/dev").ok()?;
    let of = names.iter().map(|name| parse::device(&text, name));
    Some(of.fold(DeviceUsage::default(), |all, one| all.plus(&one)))
}

/// A file of `/proc` that stays open and is read again from its beginning, into a buffer
/// that stays allocated.
#[derive(Debug)]
struct ProcFile {
    path: String,
    file: File,
}

/// No text read here is longer, even with thousands of cores; a longer one is refused.
const MOST_BYTES: usize = 4 << 20;
/// Nearly all texts fit in one reading of this size.
const FIRST_BYTES: usize = 16 << 10;

impl ProcFile {
    fn open(path: impl Into<String>) -> Result<Self, Error> {
        let path = path.into();
        match File::open(&path) {
            Ok(file) => Ok(Self { path, file }),
            Err(error) => Err(Error::io(format!("cannot open {path}"), error)),
        }
    }

    fn read<'b>(&self, buffer: &'b mut Vec<u8>) -> Result<&'b [u8], Error> {
        let mut length = 0;
        loop {
            if length == buffer.len() {
                let larger = (length * 2).max(FIRST_BYTES);
                if larger > MOST_BYTES {
                    let error = io::Error::from(io::ErrorKind::FileTooLarge);
                    return Err(self.cannot_read(error));
                }
                buffer.resize(larger, 0);
            }
            match self.file.read_at(&mut buffer[length..], length as u64) {
                Ok(0) => return Ok(&buffer[..length]),
                Ok(bytes) => length += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.cannot_read(error)),
            }
        }
    }

    fn cannot_read(&self, error: io::Error) -> Error {
        Error::io(format!("cannot read {}", self.path), error)
    }
}

#[derive(Debug)]
pub(super) struct ThreadSampler {
    id: ThreadId,
    clock: ClockId,
    tick_ns: Option<u64>,
    stat: ProcFile,
    /// `sched` where the kernel has it, as it knows the migrations; else `status`.
    switches: (ProcFile, fn(&[u8]) -> ThreadUsage),
    buffer: Vec<u8>,
}

impl ThreadSampler {
    pub(super) fn new(id: ThreadId) -> Result<Self, Error> {
        let file = |name: &str| ProcFile::open(format!("/proc/self/task/{id}/{name}"));
        let mut buffer = Vec::new();
        let switches = match file("sched") {
            Ok(sched) if sched.read(&mut buffer).is_ok() => (sched, parse::thread_sched as _),
            _ => (file("status")?, parse::thread_status as _),
        };
        Ok(Self {
            id,
            clock: thread_clock(id.number() as libc::pid_t),
            tick_ns: tick_ns(),
            stat: file("stat")?,
            switches,
            buffer,
        })
    }

    pub(super) fn read(&mut self) -> Result<ThreadUsage, Error> {
        let (switches, parse_switches) = &self.switches;
        let switches = parse_switches(switches.read(&mut self.buffer)?);
        let stat = self.stat.read(&mut self.buffer)?;
        let stat =
            self.tick_ns.map_or_else(ThreadUsage::default, |ns| parse::thread_stat(stat, ns));
        let what = || format!("cannot read the CPU clock of thread {}", self.id);
        let cpu_ns = clock_ns(self.clock).map_err(|e| Error::io(what(), e))?;
        Ok(ThreadUsage {
            cpu_ns: Some(cpu_ns),
            cpu_system_ns: stat.cpu_system_ns,
            core: stat.core,
            ..switches
        })
    }
}

#[derive(Debug)]
pub(super) struct Sampler {
    tick_ns: Option<u64>,
    page_bytes: Option<u64>,
    status: Option<ProcFile>,
    snmp: Option<ProcFile>,
    snmp6: Option<ProcFile>,
    softnet: Option<ProcFile>,
    sockstat: Option<ProcFile>,
    stat: Option<ProcFile>,
    meminfo: Option<ProcFile>,
    buffer: Vec<u8>,
}

impl Sampler {
    pub(super) fn new() -> Self {
        let file = |path: &str| ProcFile::open(path).ok();
        Self {
            tick_ns: tick_ns(),
            page_bytes: setting(SysconfVar::PAGE_SIZE),
            status: file("/proc/self/status"),
            // Of the calling thread, as a thread may have entered a network namespace.
            snmp: file("/proc/thread-self/net/snmp"),
            snmp6: file("/proc/thread-self/net/snmp6"),
            softnet: file("/proc/thread-self/net/softnet_stat"),
            sockstat: file("/proc/thread-self/net/sockstat"),
            stat: file("/proc/stat"),
            meminfo: file("/proc/meminfo"),
            buffer: Vec::new(),
        }
    }

    pub(super) fn process(&mut self) -> ProcessUsage {
        let status = text(&self.status, &mut self.buffer);
        let usage = getrusage(UsageWho::RUSAGE_SELF).ok();
        ProcessUsage {
            cpu_ns: clock_ns(ClockId::CLOCK_PROCESS_CPUTIME_ID).ok(),
            cpu_system_ns: usage.map(system_ns),
            voluntary_switches: usage.map(|usage| usage.voluntary_context_switches() as u64),
            involuntary_switches: usage.map(|usage| usage.involuntary_context_switches() as u64),
            minor_faults: usage.map(|usage| usage.minor_page_faults() as u64),
            major_faults: usage.map(|usage| usage.major_page_faults() as u64),
            ..parse::process_status(status)
        }
    }

    pub(super) fn system(&mut self) -> SystemUsage {
        let buffer = &mut self.buffer;
        let udp4 = parse::snmp_udp(text(&self.snmp, buffer));
        let udp6 = parse::snmp6_udp(text(&self.snmp6, buffer));
        let softnet = parse::softnet(text(&self.softnet, buffer));
        let slab = parse::meminfo(text(&self.meminfo, buffer));
        let sockets = text(&self.sockstat, buffer);
        let sockets = self.page_bytes.map(|bytes| parse::sockstat(sockets, bytes));
        let stat = text(&self.stat, buffer);
        SystemUsage {
            total: TotalUsage {
                udp_memory_bytes: sockets.and_then(|sockets| sockets.udp_memory_bytes),
                tcp_memory_bytes: sockets.and_then(|sockets| sockets.tcp_memory_bytes),
                slab_bytes: slab.slab_bytes,
                ..parse::stat_total(stat)
            },
            udp4,
            udp6,
            softnet,
            cores: self.tick_ns.map_or_else(Vec::new, |ns| parse::stat_cores(stat, ns)),
        }
    }
}

/// The text of a file; of one that is not there, none.
fn text<'b>(file: &Option<ProcFile>, buffer: &'b mut Vec<u8>) -> &'b [u8] {
    file.as_ref().and_then(|file| file.read(buffer).ok()).unwrap_or_default()
}
