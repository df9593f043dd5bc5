//! Programs on devices: one for each device, which the queues of this process share.

use super::{
    device::Device,
    program::{Filter, Passed, assemble},
    socket::{LOOK_AGAIN, RELEASE},
};
use crate::{
    bpf::{Counts, Link, Place, Program, SocketMap},
    deadline::LastLook,
    lifecycle::lock,
};
use std::{
    fs, io,
    os::{fd::RawFd, unix::fs::MetadataExt as _},
    sync::{Arc, Mutex, Weak},
    time::Instant,
};

/// A network namespace: numbers of devices mean something within one only.
type Network = (u64, u64);

/// A program that is attached to a device, for as long as a queue of ours uses it.
#[derive(Debug)]
struct Attached {
    network: Network,
    device: u32,
    filters: Vec<Filter>,
    place: Place,
    map: SocketMap,
    /// What the program passed on to the kernel, and how much of that was told already.
    counts: Counts<{ Passed::ALL }>,
    told: Mutex<[u64; Passed::ALL]>,
    /// Which queues have a socket of ours.
    taken: Mutex<Vec<bool>>,
    _link: Link,
}

/// The right to one queue of a device.
#[derive(Debug)]
pub struct Lease {
    attached: Arc<Attached>,
    queue: u32,
}

/// Why there is no queue.
#[derive(Debug)]
pub enum Refused {
    /// A call failed.
    Failed(&'static str, io::Error),
    /// Every queue of the device has a socket already.
    NoQueue,
    /// A server of this process receives other datagrams there.
    Other,
}

/// What is attached by this process.
static ATTACHED: Mutex<Vec<Weak<Attached>>> = Mutex::new(Vec::new());

/// Takes a free queue of a device that gives us what the filters let through. `shared`: the device
/// may be one that another queue of ours receives the same from.
/// `generic`: not in the driver, also where that can.
pub fn take(
    device: &Device,
    filters: &[Filter],
    shared: bool,
    generic: bool,
) -> Result<Lease, Refused> {
    let network = network().map_err(|e| Refused::Failed("reading the network namespace", e))?;
    let mut all = lock(&ATTACHED);
    all.retain(|one| one.strong_count() > 0);
    let found = all
        .iter()
        .filter_map(Weak::upgrade)
        .find(|one| one.network == network && one.device == device.index);
    let attached = match found {
        Some(one) if shared && one.filters == filters => one,
        Some(_) => return Err(Refused::Other),
        None => {
            let one = Arc::new(attach(network, device, filters, generic)?);
            all.push(Arc::downgrade(&one));
            one
        }
    };
    let mut taken = lock(&attached.taken);
    let queue = taken.iter().position(|taken| !taken).ok_or(Refused::NoQueue)?;
    taken[queue] = true;
    drop(taken);
    Ok(Lease { attached, queue: queue as u32 })
}

fn attach(
    network: Network,
    device: &Device,
    filters: &[Filter],
    generic: bool,
) -> Result<Attached, Refused> {
    let map =
        SocketMap::new(device.queues).map_err(|e| Refused::Failed("making a map of sockets", e))?;
    let counts = Counts::new().map_err(|e| Refused::Failed("making a map of counts", e))?;
    let program = Program::load(&assemble(device.mac, filters, map.fd(), counts.fd()))
        .map_err(|e| Refused::Failed("loading the program", e))?;
    let (link, place) = attach_somewhere(&program, device.index, generic)
        .map_err(|e| Refused::Failed("attaching the program to the device", e))?;
    Ok(Attached {
        network,
        device: device.index,
        filters: filters.to_vec(),
        place,
        map,
        counts,
        told: Mutex::default(),
        taken: Mutex::new(vec![false; device.queues as usize]),
        _link: link,
    })
}

/// Attaches a program in the driver, or else where every device can have one. Waits a moment for an
/// earlier owner's end: a process that was started just then holds his link until it runs.
fn attach_somewhere(program: &Program, device: u32, generic: bool) -> io::Result<(Link, Place)> {
    let mut look = LastLook::by(Instant::now() + RELEASE);
    let first = if generic { Place::Generic } else { Place::Native };
    loop {
        match program.attach(device, first).map(|link| (link, first)) {
            // Another program is there, in this place or in the other: it would be in the way of ours
            // in either.
            Err(e) if matches!(e.raw_os_error(), Some(libc::EBUSY | libc::EEXIST)) => {
                if look.wait(false).is_none() {
                    return Err(e);
                }
                std::thread::sleep(LOOK_AGAIN);
            }
            Err(_) if first == Place::Native => {
                let second = program.attach(device, Place::Generic);
                return second.map(|link| (link, Place::Generic));
            }
            attached => return attached,
        }
    }
}

fn network() -> io::Result<Network> {
    fs::metadata("/proc/thread-self/ns/net").map(|of| (of.dev(), of.ino()))
}

impl Lease {
    pub fn queue(&self) -> u32 {
        self.queue
    }

    pub fn place(&self) -> Place {
        self.attached.place
    }

    /// What the program passed on since anybody asked: the queues of a device share it, and each
    /// frame is told once. Nothing, where the kernel does not say (before Linux 5.19 it takes
    /// CAP_BPF).
    pub fn passed_on(&self) -> [u64; Passed::ALL] {
        let mut told = lock(&self.attached.told);
        let now = self.attached.counts.read().unwrap_or(*told);
        let before = std::mem::replace(&mut *told, now);
        std::array::from_fn(|n| now[n].saturating_sub(before[n]))
    }

    /// From now on the socket gets what arrives on this queue and is let through.
    pub fn give_to(&self, socket: RawFd) -> io::Result<()> {
        self.attached.map.set(self.queue, socket)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.attached.map.clear(self.queue);
        lock(&self.attached.taken)[self.queue as usize] = false;
    }
}
