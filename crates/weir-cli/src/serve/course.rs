//! What is counted from a moment on: since the server began, or since a run did.

use std::net::SocketAddr;
use std::time::Instant;

use weir::counters::Snapshot;
use weir::counters::os::{ProcessUsage, Sampler, SocketUsage, SystemUsage};
use weir::udp::Running;

use super::account::both;
use super::handler::Measured;
use super::window::{Reading, Readings};

/// The counters when it began, and the readings since.
pub struct Course {
    at: Instant,
    threads: Vec<Snapshot>,
    process: ProcessUsage,
    system: SystemUsage,
    sockets: Option<SocketUsage>,
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
        let sockets = SocketUsage::bound_to(server.local_addresses());
        let (process, system) = (sampler.process(), sampler.system());
        Self {
            at: Instant::now(),
            threads: server.counters(),
            process,
            system,
            sockets,
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
    pub fn read(&mut self, handled: u64, own: Option<u64>, cpu_ns: Option<u64>) {
        let at_ns = self.elapsed_ns();
        let datagrams = own.unwrap_or(handled);
        self.readings.push(Reading { at_ns, datagrams, handled, cpu_ns });
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

    /// Datagrams dropped at the server's sockets since it began; where sockets cannot be told
    /// apart, at all of the machine.
    pub fn dropped_at_sockets(
        &self,
        addresses: &[SocketAddr],
        system: &SystemUsage,
    ) -> Option<u64> {
        match self.sockets.as_ref().zip(SocketUsage::bound_to(addresses)) {
            Some((then, now)) => now.since(then).drops,
            None => {
                let udp = system.udp();
                both(udp.receive_buffer_errors, udp.memory_errors.or(Some(0)))
            }
        }
    }
}
