//! What is counted from a moment on: since the server began, or since a run did.

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use weir::counters::Snapshot;
use weir::counters::os::{DeviceUsage, ProcessUsage, Sampler, SocketUsage, SystemUsage};
use weir::socket::SocketState;
use weir::udp::Running;
use weir_lab::wire::SocketReport;

use super::handler::Measured;
use super::window::{Reading, Readings};

/// CPU time used up to a moment, in nanoseconds, as far as it is known.
#[derive(Debug, Clone, Copy)]
pub struct Cpu {
    /// By the process.
    pub process_ns: Option<u64>,
    /// By the server's threads.
    pub threads_ns: Option<u64>,
}

/// The counters when it began, and the readings since.
pub struct Course {
    at: Instant,
    /// Entries into the kernel by then, where that counts them.
    pub entries: Option<u64>,
    threads: Vec<Snapshot>,
    process: ProcessUsage,
    system: SystemUsage,
    /// Of all sockets at its addresses, for a design whose own cannot be told.
    at_addresses: Option<SocketUsage>,
    /// Of the server's own.
    sockets: Vec<SocketState>,
    devices: Option<DeviceUsage>,
    /// Taken while it lasts.
    pub readings: Readings,
    /// The most memory of the kernel for UDP that any reading saw, in bytes.
    pub kernel_bytes: Option<u64>,
    /// Other runs that were open at some time during this one.
    pub other_runs: u32,
    /// Why it was ended although something of it was still to come, if so.
    pub cut_short: Option<String>,
}

impl Course {
    /// Counts from now on.
    pub fn begin(server: &Running<Measured>, sampler: &mut Sampler) -> Self {
        let at_addresses = SocketUsage::bound_to(server.local_addresses());
        let sockets = server.sockets();
        let devices = devices(server.local_addresses());
        let (process, system) = (sampler.process(), sampler.system());
        Self {
            at: Instant::now(),
            entries: None,
            threads: server.counters(),
            process,
            system,
            at_addresses,
            sockets,
            devices,
            readings: Readings::default(),
            kernel_bytes: None,
            other_runs: 0,
            cut_short: None,
        }
    }

    /// Nanoseconds since it began.
    pub fn elapsed_ns(&self) -> u64 {
        u64::try_from(self.at.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Takes a reading: what was handled in all since it began, and how much of that belongs
    /// to it (`own`; none if all does).
    pub fn read(&mut self, handled: u64, own: Option<u64>, cpu: Cpu) {
        let at_ns = self.elapsed_ns();
        let datagrams = own.unwrap_or(handled);
        let Cpu { process_ns: cpu_ns, threads_ns: threads_cpu_ns } = cpu;
        self.readings.push(Reading { at_ns, datagrams, handled, cpu_ns, threads_cpu_ns });
    }

    /// What each thread counted since it began.
    pub fn threads(&self, now: &[Snapshot]) -> Vec<Snapshot> {
        now.iter().zip(&self.threads).map(|(now, then)| now.since(then)).collect()
    }

    /// What the process used since it began.
    pub fn process(&self, now: &ProcessUsage) -> ProcessUsage {
        now.since(&self.process)
    }

    /// What the system counted since it began.
    pub fn system(&self, now: &SystemUsage) -> SystemUsage {
        now.since(&self.system)
    }

    /// Packets dropped by the devices that have the server's addresses since it began.
    pub fn dropped_at_devices(&self, addresses: &[SocketAddr]) -> Option<u64> {
        devices(addresses)?.since(self.devices.as_ref()?).dropped
    }

    /// What was dropped at each of the server's sockets since it began. Empty where they cannot be
    /// told.
    pub fn dropped_at_each(&self, now: &[SocketState]) -> Vec<SocketReport> {
        let report = |(then, now): (&SocketState, &SocketState)| SocketReport {
            address: now.address,
            dropped: now.usage.since(&then.usage).drops,
        };
        self.sockets.iter().zip(now).map(report).collect()
    }

    /// Datagrams dropped at the server's sockets since it began; where those cannot be told, at all
    /// sockets of its addresses.
    pub fn dropped_at_sockets(&self, now: &[SocketState], addresses: &[SocketAddr]) -> Option<u64> {
        let each = self.dropped_at_each(now);
        if let Some(Some(dropped)) =
            (!each.is_empty()).then(|| each.iter().map(|socket| socket.dropped).sum())
        {
            return Some(dropped);
        }
        SocketUsage::bound_to(addresses)?.since(self.at_addresses.as_ref()?).drops
    }
}

fn devices(addresses: &[SocketAddr]) -> Option<DeviceUsage> {
    let addresses: Vec<IpAddr> = addresses.iter().map(SocketAddr::ip).collect();
    DeviceUsage::having(&addresses)
}
