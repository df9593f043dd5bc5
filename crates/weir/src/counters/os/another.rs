//! What another process of Linux used, and which UDP sockets it holds.
//!
//! Its CPU clock is exact to the last ns and open to every process (`clock_getcpuclockid(3)`);
//! those of its threads are not, so a thread's time is that of `schedstat`, which is as of the
//! last timer tick. Context switches stand in `status` for each thread: those of threads that
//! have ended are lost.

use nix::time::ClockId;
use std::{collections::HashSet, fs, net::SocketAddr};

use super::{ProcFile, clock_ns, parse};
use crate::{
    Error,
    counters::os::{OfThread, ProcessUsage, ThreadId, ThreadUsage, usage},
};

#[derive(Debug)]
pub(in crate::counters::os) struct OtherProcess {
    id: u32,
    clock: ClockId,
    status: ProcFile,
    buffer: Vec<u8>,
}

/// The CPU clock of a process, as `clock_getcpuclockid` makes it.
fn process_clock(id: u32) -> ClockId {
    const SCHEDULER_TIME: libc::clockid_t = 2;
    ClockId::from_raw((!(id as libc::pid_t) << 3) | SCHEDULER_TIME)
}

impl OtherProcess {
    pub(in crate::counters::os) fn new(id: u32) -> Result<Self, Error> {
        let status = ProcFile::open(format!("/proc/{id}/status"))?;
        Ok(Self { id, clock: process_clock(id), status, buffer: Vec::new() })
    }

    pub(in crate::counters::os) fn cpu_ns(&self) -> Option<u64> {
        clock_ns(self.clock).ok()
    }

    pub(in crate::counters::os) fn usage(&mut self) -> ProcessUsage {
        let status = self.status.read(&mut self.buffer).unwrap_or_default();
        let mut process = parse::process_status(status);
        process.cpu_ns = clock_ns(self.clock).ok();
        for thread in self.threads() {
            let sum = |a, b| usage::count::plus(a, b);
            process.voluntary_switches =
                sum(process.voluntary_switches, thread.usage.voluntary_switches);
            process.involuntary_switches =
                sum(process.involuntary_switches, thread.usage.involuntary_switches);
        }
        process
    }

    pub(in crate::counters::os) fn threads(&self) -> Vec<OfThread> {
        let path = format!("/proc/{}/task", self.id);
        let names = fs::read_dir(path).into_iter().flatten().flatten();
        let ids = names.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        ids.map(|id| {
            let read = |file: &str| fs::read(format!("/proc/{}/task/{id}/{file}", self.id));
            let of_status = read("status").map(|text| parse::thread_status(&text));
            let cpu_ns = read("schedstat").ok().and_then(|text| parse::thread_schedstat(&text));
            let usage = ThreadUsage { cpu_ns, ..of_status.unwrap_or_default() };
            OfThread { id: ThreadId(id), usage }
        })
        .collect()
    }

    pub(in crate::counters::os) fn udp_sockets(&self) -> Option<Vec<SocketAddr>> {
        let entries = fs::read_dir(format!("/proc/{}/fd", self.id)).ok()?.flatten();
        let links = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
        let inodes: HashSet<u64> =
            links.filter_map(|link| parse::socket_inode(link.to_str()?)).collect();
        // Those of its own network namespace, which need not be ours.
        let of = |file| fs::read(format!("/proc/{}/net/{file}", self.id));
        let all = [of("udp").ok()?, of("udp6").unwrap_or_default()];
        let sockets = all.iter().flat_map(|text| parse::udp_inodes(text));
        Some(sockets.filter(|(_, inode)| inodes.contains(inode)).map(|(at, _)| at).collect())
    }
}
