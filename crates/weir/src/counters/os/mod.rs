//! What the operating system counts: CPU time, context switches, drops, interrupts, memory.
//!
//! Four scopes, each with a struct of figures: [`ThreadUsage`], [`ProcessUsage`],
//! [`SystemUsage`] and [`SocketUsage`]. A figure that cannot be read here is `None`,
//! never zero. All are taken twice and subtracted with `since`, as nearly all only grow.
//!
//! What repeats is read through a [`Sampler`] or a [`ThreadSampler`], which keep their
//! files open and their buffer allocated. A reading costs the reader's core only, apart
//! from one short lock on the run queue of the core whose thread is asked for its time.
//! What each reading costs is printed by `cargo run --release --example os_cost`; on a
//! virtual Linux 6.18 machine of 2 cores:
//!
//! | reading | cost |
//! | --- | --- |
//! | [`ThreadUsage::current`] | about 0.4 µs |
//! | [`ThreadSampler::read`] | about 5 µs |
//! | [`Sampler::process`] | about 4 µs |
//! | [`Sampler::system`] | about 35 µs |
//! | [`SocketUsage::of`] | about 0.2 µs |
//!
//! ```
//! use weir::counters::os::{Sampler, SocketUsage, ThreadUsage};
//!
//! let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
//! let mut sampler = Sampler::new();
//! let (thread, machine) = (ThreadUsage::current(), sampler.system());
//! // … the run …
//! let drops = SocketUsage::of(&socket)?.drops;
//! let cpu_ns = ThreadUsage::current().since(&thread).cpu_ns;
//! let dropped_at_sockets = sampler.system().since(&machine).udp().receive_buffer_errors;
//! # let _ = (drops, cpu_ns, dropped_at_sockets);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

// What this module needs of an OS:
//   current_thread_id() -> u64
//   current_thread() -> ThreadUsage
//   ThreadSampler::{new(id) -> Result, read() -> Result<ThreadUsage>}
//   Sampler::{new(), process() -> ProcessUsage, system() -> SystemUsage, interrupts() -> Vec<OfCore<u64>>}
//   socket_usage(&Socket) -> io::Result<SocketUsage>
//   sockets_bound_to(&[SocketAddr]) -> Option<Vec<BoundSocket>>
//   tcp_ends(port) -> Option<TcpEnds>
//   kernel_memory() -> KernelMemory
//   dropped_at_sockets(&UdpUsage) -> Option<u64>, and DROPPED_AT_SOCKETS, whose count that is
//   devices_having(&[IpAddr]) -> Option<DeviceUsage>
//   thread_cpu_ns(ThreadId) -> Option<u64>
//   OtherProcess::{new(id) -> Result, usage() -> ProcessUsage, threads() -> Vec<OfThread>,
//                  cpu_ns() -> Option<u64>, udp_sockets() -> Option<Vec<SocketAddr>>}
#[cfg_attr(target_os = "linux", path = "linux.rs")]
#[cfg_attr(windows, path = "windows.rs")]
mod native;
/// Reads a text as every file of `/proc`, for the fuzz targets.
#[cfg(fuzzing)]
pub use native::parse_every_text;

#[cfg_attr(target_os = "linux", path = "entries.rs")]
#[cfg_attr(not(target_os = "linux"), path = "no_entries.rs")]
mod entries;
mod usage;

pub use entries::KernelEntries;

use crate::Error;
use std::{
    fmt,
    net::{IpAddr, SocketAddr},
};
use usage::usage;

usage! {
    /// What one thread used.
    ThreadUsage {
        /// Time on a core, in ns: user and system together. Exact to the last ns on Linux
        /// (the scheduler's own clock); a multiple of the timer tick (15.6 ms) on Windows.
        count cpu_ns,
        /// The part of `cpu_ns` in the kernel, in ns. Linux finds the share by sampling at
        /// each timer tick, so over a short time it is rough, unlike the sum, and may even
        /// exceed it. Of another thread it is known to 10 ms only, of the current one to 1 µs.
        count cpu_system_ns,
        /// Times the thread gave up its core because it waited for something.
        count voluntary_switches,
        /// Times the thread lost its core to another.
        count involuntary_switches,
        /// Times the thread went to another core. Needs a kernel with scheduler statistics
        /// for each thread, and a [`ThreadSampler`].
        count migrations,
        /// The core the thread runs on, or last ran on.
        level core,
    }
}

usage! {
    /// What this process used: all its threads, those that ended included.
    ProcessUsage {
        /// Time on a core, in ns: user and system together.
        count cpu_ns,
        /// The part of `cpu_ns` in the kernel, in ns; a sampled share, as in [`ThreadUsage`].
        count cpu_system_ns,
        /// Times a thread gave up its core because it waited for something.
        count voluntary_switches,
        /// Times a thread lost its core to another.
        count involuntary_switches,
        /// Page faults that needed no device: memory touched for the first time, mostly.
        /// On Windows all page faults.
        count minor_faults,
        /// Page faults that waited for a device.
        count major_faults,
        /// Memory now resident, in bytes.
        level resident_bytes,
        /// The most that was ever resident, in bytes.
        level peak_resident_bytes,
        /// Memory locked by the program (`mlock`), in bytes.
        level locked_bytes,
        /// Memory pinned by the kernel for the program (registered buffers), in bytes.
        level pinned_bytes,
        /// Pools of the Windows kernel, paged or not, that are charged to this process, in bytes.
        level pool_bytes,
        /// Threads now alive.
        level threads,
    }
}

usage! {
    /// What the machine's UDP counted since it started, in this network namespace, for
    /// one IP version. Datagrams dropped here were dropped at a socket.
    UdpUsage {
        /// Datagrams delivered to a program.
        count in_datagrams,
        /// Datagrams for a port nobody listens on.
        count no_ports,
        /// Datagrams not delivered for another reason; the receive buffer and checksum
        /// errors are among them.
        count in_errors,
        /// Datagrams sent.
        count out_datagrams,
        /// Datagrams dropped as the socket's receive buffer was full.
        count receive_buffer_errors,
        /// Datagrams refused or lost as a send buffer or the device's queue was full.
        count send_buffer_errors,
        /// Datagrams with a wrong checksum.
        count checksum_errors,
        /// Datagrams dropped as the kernel's memory for UDP was used up.
        count memory_errors,
    }
}

usage! {
    /// What the network receive path of one core counted (`/proc/net/softnet_stat`).
    SoftnetUsage {
        /// Packets processed.
        count32 processed,
        /// Packets dropped as the core's backlog queue was full.
        count32 dropped,
        /// Times processing stopped with work left, for want of budget or time.
        count32 squeezed,
    }
}

usage! {
    /// What one core did, in ns, in steps of the timer tick (10 ms). `user_ns` and
    /// `nice_ns` include guests.
    CoreUsage {
        /// User code.
        count user_ns,
        /// User code of low priority.
        count nice_ns,
        /// The kernel, interrupts apart.
        count system_ns,
        /// Nothing.
        count idle_ns,
        /// Nothing, while a device was waited for.
        count iowait_ns,
        /// Hardware interrupts.
        count irq_ns,
        /// Software interrupts: most of receiving from the network.
        count softirq_ns,
        /// Ready to run, but the host ran something else.
        count steal_ns,
    }
}

impl CoreUsage {
    /// All time in which the core was busy, or the host was busy in its place, in ns.
    pub fn busy_ns(&self) -> Option<u64> {
        let busy = [
            self.user_ns,
            self.nice_ns,
            self.system_ns,
            self.irq_ns,
            self.softirq_ns,
            self.steal_ns,
        ];
        busy.into_iter().fold(None, usage::count::plus)
    }

    /// All time, busy or idle, in ns.
    pub fn total_ns(&self) -> Option<u64> {
        [self.busy_ns(), self.idle_ns, self.iowait_ns].into_iter().fold(None, usage::count::plus)
    }
}

usage! {
    /// What the kernel holds and counted for one UDP socket.
    SocketUsage {
        /// Datagrams dropped at this socket: its buffer was full, or a checksum wrong.
        count32 drops,
        /// Memory of the datagrams that wait in the receive buffer, in bytes, as the
        /// buffer's limit counts them: with the kernel's overhead for each. On Windows their
        /// payload alone.
        level queued_bytes,
        /// The limit of the receive buffer, in bytes: twice what was asked for, on Linux.
        level receive_buffer_bytes,
    }
}

impl SocketUsage {
    /// Reads the figures of a socket: `SocketUsage::of(&socket)`, for anything that has a
    /// socket's descriptor or handle. It takes one system call.
    pub fn of<'s>(socket: impl Into<socket2::SockRef<'s>>) -> Result<Self, Error> {
        native::socket_usage(&socket.into())
            .map_err(|error| Error::io("cannot read the socket's memory and drops", error))
    }

    /// The figures of all UDP sockets bound to one of these addresses, added up, whichever
    /// program of this network namespace holds them: for sockets that are out of reach,
    /// inside a provider. The buffers' limits are not known this way. `None` where the
    /// operating system does not say; it takes some 100 µs, more with many sockets.
    pub fn bound_to(addresses: &[SocketAddr]) -> Option<Self> {
        let sum =
            Self::each_bound_to(addresses)?.iter().fold(Self::default(), |sum, socket| Self {
                drops: usage::count::plus(sum.drops, socket.usage.drops),
                queued_bytes: usage::count::plus(sum.queued_bytes, socket.usage.queued_bytes),
                receive_buffer_bytes: None,
            });
        Some(sum)
    }

    /// The same, socket by socket.
    pub fn each_bound_to(addresses: &[SocketAddr]) -> Option<Vec<BoundSocket>> {
        native::sockets_bound_to(addresses)
    }
}

/// A UDP socket of this network namespace, whichever program holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BoundSocket {
    /// Its number, by which the system tells it from others.
    pub inode: u64,
    /// Its figures.
    pub usage: SocketUsage,
}

/// TCP connections of a port as the kernel has them, told apart by their ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TcpEnds {
    /// Sockets that have this port: of whoever listens there.
    pub at_the_port: TcpBuffers,
    /// Sockets that are connected to this port: of whoever connected.
    pub to_the_port: TcpBuffers,
}

/// Sockets, and what they have in their buffers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TcpBuffers {
    /// How many: those of connections that stand, or that have ended in one direction.
    pub sockets: u64,
    /// Kernel memory of what waits in them to be read, or to be acknowledged, with what the kernel has set aside for
    /// more, in bytes. The sockets themselves (some 4 KiB each) are not in it.
    pub bytes: u64,
}

impl TcpEnds {
    /// Those of this network namespace, whichever programs have them, on any address. `None` where the operating
    /// system does not say. It takes about 1 ms for 1000 sockets of the machine.
    pub fn of_port(port: u16) -> Option<Self> {
        native::tcp_ends(port)
    }
}

usage! {
    /// What network devices counted.
    DeviceUsage {
        /// Packets received.
        count received,
        /// Packets dropped: their queue was full, or nobody took them further. Where frames are
        /// received by AF_XDP past the kernel, those that found no slice are among them.
        count dropped,
        /// Packets sent.
        count sent,
        /// Packets that were to be sent and were dropped by the device; what a queue before it drops is not among
        /// them.
        count send_dropped,
    }
}

impl DeviceUsage {
    /// The figures of all devices that have one of these addresses, added up. `None` where an address
    /// is of no device, or the operating system does not say.
    pub fn having(addresses: &[IpAddr]) -> Option<Self> {
        native::devices_having(addresses)
    }
}

/// Figures of one core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OfCore<T> {
    /// The core's number, as the operating system counts them.
    pub core: usize,
    /// Its figures.
    pub usage: T,
}

usage! {
    /// What the whole machine counted, all cores and programs together.
    TotalUsage {
        /// Hardware interrupts.
        count interrupts,
        /// Software interrupts.
        count softirqs,
        /// Software interrupts that received from the network.
        count net_receive_softirqs,
        /// Context switches.
        count context_switches,
        /// Kernel memory for what waits in UDP sockets, in bytes, in this network
        /// namespace: in whole pages, and booked in larger steps than it is used.
        level udp_memory_bytes,
        /// Kernel memory for what waits in TCP sockets, in bytes; likewise.
        level tcp_memory_bytes,
        /// Kernel memory in its object caches (slab), in bytes: socket buffers, sockets,
        /// files, directory entries of all programs.
        level slab_bytes,
    }
}

usage! {
    /// Memory that the kernel holds, beside what programs were given: what a server's queues cost
    /// that its own memory does not show. It is read whole; what something costs is the difference
    /// of two readings.
    KernelMemory {
        /// Rings that the kernel made and this process sees, in bytes: those of io_uring
        /// (submission and completion queue) and of AF_XDP. Exact.
        level ring_bytes,
        /// Page tables of this process, in bytes: they grow with the memory that it touches. Exact.
        level page_table_bytes,
        /// Stacks in the kernel of the threads of the *whole machine*, in bytes: 16 KiB each, as a
        /// rule.
        level stack_bytes,
        /// Objects in the kernel of the *whole machine* that it cannot give back (requests under
        /// way, sockets), in bytes: in whole pages, several to a step, so that a few objects show
        /// nothing and a few thousand are told to some percent, on a machine that is quiet.
        level slab_bytes,
        /// Pools of the Windows kernel that are charged to this process, in bytes. Exact.
        level pool_bytes,
    }
}

impl KernelMemory {
    /// As it is now. It takes some 10 µs, and about 1 ms with many cores.
    pub fn now() -> Self {
        native::kernel_memory()
    }

    /// How much more it is than `earlier` was, in bytes, each figure by its name and all together;
    /// less than nothing where something was given back.
    pub fn grown_since(&self, earlier: &Self) -> (Vec<(&'static str, Option<i64>)>, i64) {
        let difference =
            |later: Option<u64>, earlier: Option<u64>| Some(later? as i64 - earlier? as i64);
        let both = self.named().into_iter().zip(earlier.named());
        let each: Vec<_> =
            both.map(|((name, later), (_, earlier))| (name, difference(later, earlier))).collect();
        let all = each.iter().filter_map(|(_, bytes)| *bytes).sum();
        (each, all)
    }
}

/// What the whole machine counted: all programs, not only this one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SystemUsage {
    /// What is counted once for the machine.
    pub total: TotalUsage,
    /// UDP over IPv4.
    pub udp4: UdpUsage,
    /// UDP over IPv6.
    pub udp6: UdpUsage,
    /// The network receive path, per core; empty if unknown.
    pub softnet: Vec<OfCore<SoftnetUsage>>,
    /// Times, per core; empty if unknown.
    pub cores: Vec<OfCore<CoreUsage>>,
}

impl SystemUsage {
    /// What was counted since `earlier`. A core that came in between is left out.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            total: self.total.since(&earlier.total),
            udp4: self.udp4.since(&earlier.udp4),
            udp6: self.udp6.since(&earlier.udp6),
            softnet: since_per_core(&self.softnet, &earlier.softnet, SoftnetUsage::since),
            cores: since_per_core(&self.cores, &earlier.cores, CoreUsage::since),
        }
    }

    /// UDP of both IP versions.
    pub fn udp(&self) -> UdpUsage {
        self.udp4.plus(&self.udp6)
    }

    /// Datagrams dropped at sockets as far as the machine counts them, all programs' together, and in words what
    /// counts them, and what else it may count. It may stand in for what a system does not tell of each socket.
    pub fn dropped_at_sockets(&self) -> Option<(u64, &'static str)> {
        Some((native::dropped_at_sockets(&self.udp())?, native::DROPPED_AT_SOCKETS))
    }

    /// The network receive path of all cores.
    pub fn softnet_total(&self) -> SoftnetUsage {
        self.softnet.iter().fold(SoftnetUsage::default(), |sum, of| sum.plus(&of.usage))
    }

    /// The times of all cores.
    pub fn cores_total(&self) -> CoreUsage {
        self.cores.iter().fold(CoreUsage::default(), |sum, of| sum.plus(&of.usage))
    }
}

fn since_per_core<T: Copy>(
    later: &[OfCore<T>],
    earlier: &[OfCore<T>],
    since: impl Fn(&T, &T) -> T,
) -> Vec<OfCore<T>> {
    later
        .iter()
        .filter_map(|of| {
            let before = earlier.iter().find(|before| before.core == of.core)?;
            Some(OfCore { core: of.core, usage: since(&of.usage, &before.usage) })
        })
        .collect()
}

/// The operating system's number of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ThreadId(u64);

impl ThreadId {
    /// The calling thread's.
    pub fn current() -> Self {
        Self(native::current_thread_id())
    }

    /// Time on a core that this thread of this process has had up to now, in ns, exact as in
    /// [`ThreadUsage`]. It opens no file; `None` once the thread has ended.
    pub fn cpu_ns(self) -> Option<u64> {
        native::thread_cpu_ns(self)
    }

    /// The number itself, as other programs of the operating system show it.
    pub fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for ThreadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What is left of the time on a core beside the kernel's part, which is rougher and so may
/// be the larger one.
fn user_ns(cpu_ns: Option<u64>, cpu_system_ns: Option<u64>) -> Option<u64> {
    Some(cpu_ns?.saturating_sub(cpu_system_ns?))
}

impl ProcessUsage {
    /// The part of `cpu_ns` in user code, in ns: what is not `cpu_system_ns`.
    pub fn cpu_user_ns(&self) -> Option<u64> {
        user_ns(self.cpu_ns, self.cpu_system_ns)
    }
}

impl ThreadUsage {
    /// The part of `cpu_ns` in user code, in ns: what is not `cpu_system_ns`.
    pub fn cpu_user_ns(&self) -> Option<u64> {
        user_ns(self.cpu_ns, self.cpu_system_ns)
    }

    /// What the calling thread used up to now. It opens no file and takes a few system
    /// calls, so a thread may ask this of itself at the beginning and end of its work;
    /// `migrations` is not known this way.
    pub fn current() -> Self {
        native::current_thread()
    }
}

/// Reads again and again what one thread of this process used, from any thread.
/// It holds up to three descriptors.
#[derive(Debug)]
pub struct ThreadSampler(native::ThreadSampler);

impl ThreadSampler {
    /// For the thread `id` of this process. An error if there is no such thread, or no
    /// descriptor is left.
    pub fn new(id: ThreadId) -> Result<Self, Error> {
        native::ThreadSampler::new(id).map(Self)
    }

    /// What the thread used up to now. An error once it has ended.
    pub fn read(&mut self) -> Result<ThreadUsage, Error> {
        self.0.read()
    }
}

/// Reads again and again what this process and this machine used.
///
/// It holds up to eight descriptors and one buffer. What it reads of the network is that
/// of the network namespace in which the sampler was made.
#[derive(Debug)]
pub struct Sampler(native::Sampler);

impl Sampler {
    /// Opens what can be opened; the figures of what cannot are `None`.
    pub fn new() -> Self {
        Self(native::Sampler::new())
    }

    /// What this process used up to now.
    pub fn process(&mut self) -> ProcessUsage {
        self.0.process()
    }

    /// What the machine counted up to now.
    pub fn system(&mut self) -> SystemUsage {
        self.0.system()
    }

    /// Hardware interrupts that each core took up to now (`/proc/interrupts`); empty where the operating system does
    /// not say. The kernel writes a figure for each core and kind of interrupt: some 30 µs with few cores, milliseconds
    /// with hundreds.
    pub fn interrupts(&mut self) -> Vec<OfCore<u64>> {
        self.0.interrupts()
    }
}

impl Default for Sampler {
    fn default() -> Self {
        Self::new()
    }
}

/// What one thread of another process used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OfThread {
    /// Its number.
    pub id: ThreadId,
    /// Its figures: CPU time as of the last timer tick, and context switches.
    pub usage: ThreadUsage,
}

/// Reads again and again what a process of another program used, and which UDP sockets it holds:
/// for a program that is measured and is not ours. The process must be alive, or a child that
/// nobody has waited for yet, or its number may be that of another one.
#[derive(Debug)]
pub struct OtherProcess(native::OtherProcess);

impl OtherProcess {
    /// For the process `id`. An error if there is no such process, if another user's processes
    /// cannot be looked at, and where the operating system is not Linux.
    pub fn new(id: u32) -> Result<Self, Error> {
        native::OtherProcess::new(id).map(Self)
    }

    /// What it used up to now. Context switches are those of the threads that are alive: those
    /// of threads that have ended are lost. With few threads it takes some 50 µs.
    pub fn usage(&mut self) -> ProcessUsage {
        self.0.usage()
    }

    /// Its CPU time up to now, in ns.
    pub fn cpu_ns(&self) -> Option<u64> {
        self.0.cpu_ns()
    }

    /// Its threads that are alive.
    pub fn threads(&self) -> Vec<OfThread> {
        self.0.threads()
    }

    /// Where its UDP sockets are bound; `None` where that cannot be seen.
    pub fn udp_sockets(&self) -> Option<Vec<SocketAddr>> {
        self.0.udp_sockets()
    }
}

#[cfg(test)]
mod tests;
