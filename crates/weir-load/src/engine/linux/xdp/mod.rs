//! Live frames: the kernel makes frames and runs a program over each, which sends it by a device.
//!
//! Mechanism: BPF_PROG_RUN with BPF_F_TEST_XDP_LIVE_FRAMES (Linux 5.18). One call sends up to 1024
//! datagrams past sockets, routes, filters and queueing of the kernel, straight to the driver of the
//! device. The frame is the same each time; the program writes into it the stamp of the datagram that
//! is next.
//!
//! Cost: 0.13 µs of CPU time a datagram and 14 µs a call, in which the kernel makes and unmakes a pool of
//! pages (64 bytes, veth, a virtual machine with Linux 6.18): so the quanta of a paced flood are larger than
//! those of other engines. The other end's work is done on this core where both are on one machine. Fails: without CAP_BPF and CAP_NET_ADMIN; over devices that take no frames of programs (no
//! driver support; a veth whose other end has neither a program nor GRO); for datagrams longer than the
//! MTU, which nobody cuts. What the device does not take is dropped without an answer; veth counts it, as
//! dropped at the other end.
//!
//! It passes the firewall of the sender by, and so is never chosen unless it is asked for.
//!
//! | file | what |
//! | --- | --- |
//! | `way`, `netlink` | by which device, and to which Ethernet address |
//! | `frame` | the frame of a flow, and its checksum |
//! | `program` | the program |
//! | `keep` | keeps it ready, without which each call waits for milliseconds |

mod frame;
mod gro;
mod keep;
mod netlink;
mod program;
mod way;

pub use gro::receive_together;

use std::{io, sync::atomic::Ordering::Relaxed};

use weir::{
    Unavailable,
    bpf::{Program, SharedMemory},
};

use self::{
    frame::{Template, headers_bytes},
    keep::Kept,
    program::{WORDS_BEFORE, WORDS_EACH},
};
use crate::{
    engine::{Batch, Engine, Lane, Opened, Sent},
    stamp::STAMP_BYTES,
};

/// Datagrams of a call.
const FRAMES_MAX: u32 = 1024;

/// Frames that the kernel makes before it lets the device and the other end have their turn: a quarter
/// of what the queue of a veth holds.
const TOGETHER: u32 = 64;

/// Calls a second aimed at when paced: a twentieth of a core. With 20,000 the kernel spent a quarter of a core on the pools that
/// it still kept, and in the end had no number left for another (ENOSPC).
const CALLS_PER_S: f64 = 4_000.0;

struct Xdp {
    program: Program,
    memory: SharedMemory,
    first_flow: u16,
    templates: Vec<Template>,
    stamped: bool,
    by: String,
    /// Keeps the program ready, or why that failed.
    kept: io::Result<Kept>,
}

pub(super) fn open(size_bytes: usize, lanes: &[Lane]) -> Opened {
    let unavailable = |reason: String| Unavailable::new("engine xdp", reason);
    let Some(first) = lanes.first() else { return Err(unavailable("there is no flow".into())) };
    let way = way::to(first.target.ip())
        .map_err(|(reason, advice)| unavailable(reason).advise(advice))?;
    let is_v4 = first.target.is_ipv4();
    let headers = headers_bytes(is_v4) - 14; // without those of Ethernet
    if size_bytes + headers > way.mtu {
        return Err(unavailable(format!(
            "datagrams of {size_bytes} bytes and their headers do not fit into the MTU of {} bytes \
             of {}",
            way.mtu, way.name
        ))
        .advise("use shorter ones, or another engine"));
    }
    if way::takes_frames(way.device) == Some(false) {
        return Err(unavailable(format!("{} accepts no frames from programs", way.name)).advise(
            "a veth does where its other end has a program or GRO (ethtool -K DEVICE gro on); else \
             use another engine",
        ));
    }
    let templates: Option<Vec<_>> =
        lanes.iter().map(|lane| Template::new(lane, &way, size_bytes)).collect();
    let templates = templates.ok_or_else(|| unavailable("no frame of such datagrams".into()))?;
    let stamped = size_bytes >= STAMP_BYTES;
    let failed = |what: &str, error: io::Error| {
        let unavailable = unavailable(format!("{what}: {error}"));
        match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => unavailable.advise(
                "it needs CAP_BPF and CAP_NET_ADMIN: run it as root, or use another engine",
            ),
            _ => unavailable,
        }
    };
    let memory = SharedMemory::new(WORDS_BEFORE + FRAMES_MAX as usize * WORDS_EACH)
        .map_err(|e| failed("memory for stamps (bpf)", e))?;
    let code = program::assemble(is_v4, stamped, way.device, memory.fd(), FRAMES_MAX);
    let program = Program::load(&code).map_err(|e| failed("loading a program (bpf)", e))?;
    let (by, kept) = (way.name, Kept::new(&program));
    Ok(Box::new(Xdp { program, memory, first_flow: first.flow, templates, stamped, by, kept }))
}

impl Xdp {
    /// Puts the stamps of a batch and its head, with the checksums that they make, where the program takes them.
    fn stamp(&self, template: &Template, batch: &Batch) {
        let entries = self.memory.words()[WORDS_BEFORE..].chunks_exact(WORDS_EACH);
        let sequences = batch.first_sequence..;
        for (sequence, entry) in sequences.zip(entries).take(batch.datagrams as usize) {
            let mut bytes = [0; STAMP_BYTES];
            batch.stamp(sequence).write(&mut bytes);
            batch.head.write(&mut bytes);
            let [high, low] = template.checksum(&bytes);
            for (word, bytes) in entry.iter().zip(bytes.chunks_exact(8)) {
                word.store(u64::from_ne_bytes(bytes.try_into().expect("eight")), Relaxed);
            }
            let checksum = u64::from_ne_bytes([high, low, 0, 0, 0, 0, 0, 0]);
            entry[WORDS_EACH - 1].store(checksum, Relaxed);
        }
    }

    /// How many datagrams the program has sent.
    fn sent(&self, batch: &Batch) -> u32 {
        self.memory.words()[0].load(Relaxed).min(u64::from(batch.datagrams)) as u32
    }
}

/// What a call met, in other words where nobody would guess them.
fn explained(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        // Each call has a pool of pages, with a number of its own. The kernel keeps it until the other end has received
        // the last of its datagrams, and looks for it again after a second.
        Some(libc::ENOSPC) => io::Error::other(format!(
            "the kernel has no number left for a pool of pages, as it still keeps those of 65,534 earlier calls; send \
             more datagrams with each call, or use another engine: {error}"
        )),
        _ => error,
    }
}

impl Engine for Xdp {
    fn capacity(&self) -> u32 {
        FRAMES_MAX
    }

    fn calls_per_s(&self) -> f64 {
        CALLS_PER_S
    }

    fn send(&mut self, lane: &Lane, batch: &Batch) -> Sent {
        let Some(template) = self.templates.get(usize::from(lane.flow - self.first_flow)) else {
            let failure = io::Error::other("a flow that the engine was not opened for");
            return Sent { failed: batch.datagrams, failure: Some(failure), ..Sent::default() };
        };
        if !self.stamped && !batch.head.is_empty() {
            let failure = io::Error::new(
                io::ErrorKind::Unsupported,
                format!(
                    "live frames carry a head in datagrams of {STAMP_BYTES} bytes or more only"
                ),
            );
            return Sent { failed: batch.datagrams, failure: Some(failure), ..Sent::default() };
        }
        if self.stamped {
            self.stamp(template, batch);
        }
        self.memory.words()[0].store(0, Relaxed);
        loop {
            let sent = self.sent(batch);
            let left = batch.datagrams - sent;
            if left == 0 {
                return Sent { sent, ..Sent::default() };
            }
            if let Err(error) = self.program.send(&template.bytes, left, TOGETHER.min(left))
                && error.kind() != io::ErrorKind::Interrupted
            {
                let sent = self.sent(batch);
                return Sent::until(sent, batch.datagrams - sent, explained(error));
            }
        }
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        let kept = match &self.kept {
            Ok(_) => "yes, by a tap of its own".into(),
            Err(why) => format!("no, so that each call waits for milliseconds ({why})"),
        };
        vec![
            ("datagrams per call", FRAMES_MAX.to_string()),
            ("device", self.by.clone()),
            ("program kept ready", kept),
        ]
    }
}
