//! The provider itself: opening and starting, and the proof that it can work here.
//!
//! | file | what |
//! | --- | --- |
//! | `ring` | the four rings of a socket, in memory shared with the kernel |
//! | `packet` | datagrams in frames: reading them, and the headers of replies |
//! | `program`, `attached` | the program on the device: made, loaded, attached and shared |
//! | `device` | which device has an address |
//! | `socket` | a socket, its memory, and its calls |
//! | `common` | what the queues have in common: who owns which slice, posted slices, sends |
//! | `requests`, `completions` | the contract's queues, and their end |

mod attached;
mod common;
mod completions;
mod device;
mod packet;
mod program;
mod requests;
mod ring;
mod socket;
#[cfg(test)]
mod tests;

pub use completions::XdpCompletions;
pub(in crate::rio) use device::{hold, named as device_named, place_in};
pub(in crate::rio) use packet::{is_fragment, parse_packet};
pub use requests::XdpRequests;

use super::{Mode, Xdp};
use crate::{
    Error, Unavailable,
    bpf::{self, Counts, Place, SocketMap},
    memory::{Layout, Region, RegionOptions},
    readiness::wake_event::WakeEvent,
    rio::{
        Needs, Opened, Provider, Started,
        sharing::{Shared as _, Sharing},
    },
    socket::{DatagramSocket, Endpoint, ReceiveBuffer},
    wake::Waker,
};
use attached::{Lease, Refused};
use common::{Bound, Common, Filling, Port, Table, Transmit};
use device::Device;
use program::{Filter, Passed};
use socket::{Failed, KERNEL_HEADROOM, Memory, Probe, Rings, Socket};
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, OnceLock},
};

/// Sizes of a slice that the kernel allows, where a page has 4096 bytes.
const CHUNKS: [usize; 2] = [2048, 4096];

/// Room before the payload: the kernel's own, and the longest headers, rounded up so that a payload
/// begins with a cache line.
const HEADROOM: usize = (KERNEL_HEADROOM + packet::HEADERS_V6).next_multiple_of(64);

/// Slices that the kernel holds at a time for each device where no room for more is asked for; those posted beyond wait
/// in user space. As many as are a burst of several milliseconds.
const WINDOW: u32 = 4096;

/// Slices that the kernel holds at a time for each device, at most. The kernel itself has no other limit than memory: an
/// entry takes 8 bytes of the fill ring and 16 of the receive ring.
const WINDOW_AT_MOST: u32 = 1 << 20;

/// How long a call serves a device that is polled busily, at most, in microseconds, and how many frames:
/// what a driver takes at a time.
const BUSY_POLL_US: i32 = 20;
const BUSY_POLL_FRAMES: i32 = 64;

/// What is told of answers that leave as one.
const SENT_BY_SOCKET: &str = "answers in a row to one peer leave as one by a plain socket, others as frames, \
    unless the device takes frames without a copy";

/// Entries of the rings for sending, at least.
const SENDS_AT_LEAST: u32 = 64;

/// The most entries that a ring for sending may have: more sends than that at a time are refused.
const SENDS_AT_MOST: u32 = 1 << 16;

impl Xdp {
    fn unavailable(&self, reason: impl Into<String>) -> Unavailable {
        Unavailable::new(format!("provider {}", self.name()), reason)
    }

    /// What failed, with what to do about it.
    fn failed(&self, (call, error): Failed) -> Unavailable {
        let unavailable = self.unavailable(format!("{call}: {error}"));
        match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => unavailable.advise(
                "it needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF: run it as root, or give the \
                 program these capabilities (setcap)",
            ),
            Some(libc::ENOBUFS | libc::ENOMEM) => unavailable.advise(
                "raise the limit on locked memory (`ulimit -l`), or ask for fewer outstanding \
                 receives",
            ),
            Some(libc::EAFNOSUPPORT) => unavailable.advise("this kernel has no AF_XDP"),
            Some(libc::EBUSY | libc::EEXIST) => unavailable.advise(
                "another program holds the device or its queue: end it (`ip link` and `ss \
                 --xdp` name it)",
            ),
            _ => unavailable,
        }
    }

    fn layout_of(&self, needs: &Needs) -> Result<Layout, Unavailable> {
        if needs.offload {
            return Err(self
                .unavailable("a frame holds one datagram")
                .advise("do not ask for receive offload"));
        }
        let stride = CHUNKS.into_iter().find(|chunk| HEADROOM + needs.payload <= *chunk);
        let Some(stride) = stride else {
            let most = CHUNKS[1] - HEADROOM;
            let reason = format!("a slice holds a datagram of {most} bytes, not {}", needs.payload);
            return Err(self
                .unavailable(reason)
                .advise(format!("ask for datagrams of at most {most} bytes")));
        };
        if needs.sends > SENDS_AT_MOST {
            let reason = format!("a ring holds {SENDS_AT_MOST} replies, not {}", needs.sends);
            return Err(self.unavailable(reason).advise("allow fewer outstanding replies"));
        }
        Ok(Layout { stride, headroom: HEADROOM, payload: needs.payload, align: stride })
    }

    /// Does all that can be done without a device: only a device can show the rest.
    fn prove(&self) -> Result<(), Unavailable> {
        let layout = Layout { stride: 4096, headroom: HEADROOM, payload: 1, align: 4096 };
        let region = Region::new(layout, 1, RegionOptions::default())
            .map_err(|e| self.unavailable(e.to_string()))?;
        Socket::new(&memory(&region, packet::HEADERS_V6), 1, 1).map_err(|e| self.failed(e))?;
        let map =
            SocketMap::new(1).map_err(|e| self.failed(("making a map of sockets (bpf)", e)))?;
        let counts = Counts::<{ Passed::ALL }>::new()
            .map_err(|e| self.failed(("making a map of counts (bpf)", e)))?;
        let filter = Filter { address: IpAddr::V4(Ipv4Addr::LOCALHOST), port: Some(1) };
        let mac = [2, 0, 0, 0, 0, 1];
        bpf::Program::load(&program::assemble(mac, &[filter], map.fd(), counts.fd()))
            .map_err(|e| self.failed(("loading a program (bpf)", e)))?;
        Ok(())
    }

    /// Which device an endpoint is on.
    fn device_of(&self, address: SocketAddr, held: &DatagramSocket) -> Result<Device, Error> {
        let found = device::of_address(address.ip(), held.native().fd())
            .map_err(|e| Error::io(format!("finding the device of {address}"), e))?;
        found.map_err(|none| self.unavailable(none.reason).advise(none.advice).into())
    }

    fn check(&self, endpoint: &Endpoint) -> Result<(), Error> {
        let refuse = |what: &str, advice: &str| Err(self.unavailable(what).advise(advice).into());
        if endpoint.is_unix() {
            return refuse(
                "no device has the datagrams of Unix sockets",
                "use provider uring or batch",
            );
        }
        if endpoint.options.receive_time {
            return refuse(
                "the kernel records no receive times here",
                "do not ask for receive times",
            );
        }
        if endpoint.options.receive_offload {
            return refuse("a frame holds one datagram", "do not ask for receive offload");
        }
        if endpoint.options.asks_for_meta() {
            return refuse(
                "the traffic class and hops of frames are not reported yet",
                "do not ask for them",
            );
        }
        if endpoint.options.peer_errors {
            return refuse("errors of peers are not reported here yet", "do not ask for them");
        }
        if endpoint.options.busy_poll.is_some() {
            return refuse(
                "busy polling of sockets does not apply to frames",
                "leave it off, and use the provider xdp-busy-polled",
            );
        }
        if endpoint.options.steer_by_core.is_some() {
            return refuse(
                "the device chooses the queue of a datagram",
                "steer by hash, and see `ethtool -x` and `ethtool -N` of the device",
            );
        }
        Ok(())
    }

    /// Binds a socket to a free queue of a device.
    fn open_port(
        &self,
        device: Device,
        filters: &[Filter],
        shared: bool,
        buffer: ReceiveBuffer,
        region: &Arc<Region>,
        needs: &Needs,
    ) -> Result<OpenedPort, Error> {
        let name = device.name.clone();
        let generic = self.mode == Mode::Generic;
        let taken = attached::take(&device, filters, shared, generic);
        let lease = taken.map_err(|refused| match refused {
            Refused::Failed(call, e) => self.failed((call, e)),
            Refused::NoQueue => {
                let queues = device.queues;
                let reason =
                    format!("{name} has {queues} queues, and a socket needs one of its own");
                let advice = "use as many threads as the device has queues (`ethtool -L`)";
                self.unavailable(reason).advise(advice)
            }
            Refused::Other => {
                let reason = format!("another server of this program receives through {name}");
                self.unavailable(reason).advise("give one server both addresses")
            }
        })?;
        // Where the program says so, a payload lies where that of a slice is expected.
        let headers = match filters.iter().any(|filter| filter.address.is_ipv6()) {
            true => packet::HEADERS_V6,
            false => packet::HEADERS_V4,
        };
        let window = window(buffer, needs, region.layout());
        let sends = needs.sends.max(SENDS_AT_LEAST).next_power_of_two();
        let (socket, rings) =
            Socket::new(&memory(region, headers), window.next_power_of_two(), sends)
                .map_err(|e| self.failed(e))?;
        if self.mode == Mode::BusyPolled {
            socket
                .prefer_busy_polling(BUSY_POLL_US, BUSY_POLL_FRAMES)
                .map_err(|e| self.failed(("asking for busy polling", e)))?;
        }
        let may_share = lease.place() == Place::Native && self.mode != Mode::Copied;
        socket
            .bind(device.index, lease.queue(), may_share)
            .map_err(|e| self.failed(("binding to the queue of the device", e)))?;
        let zero_copy = socket.is_zero_copy().map_err(|e| Error::io("XDP_OPTIONS", e))?;
        let probe = zero_copy.then(Probe::new).transpose().map_err(|e| self.failed(e))?;
        Ok(OpenedPort { device, lease, socket, rings, probe, window })
    }
}

/// How many slices the kernel is given ahead: they are here what a socket's receive buffer is elsewhere. It uses all of
/// them in turn, so the more they are the colder each is.
fn window(buffer: ReceiveBuffer, needs: &Needs, layout: Layout) -> u32 {
    let asked = match buffer {
        ReceiveBuffer::System | ReceiveBuffer::Outstanding => WINDOW,
        ReceiveBuffer::Bytes(bytes) => u32::try_from(bytes / layout.stride).unwrap_or(u32::MAX),
        // Each device may be sent all of it.
        ReceiveBuffer::Datagrams { .. } => WINDOW_AT_MOST,
    };
    asked.min(WINDOW_AT_MOST).min(needs.receives).max(1)
}

/// The region as the kernel is told of it, for frames whose headers have mostly this length.
fn memory(region: &Region, headers: usize) -> Memory {
    let ((base, bytes), layout) = (region.extent(), region.layout());
    let headroom = layout.headroom - KERNEL_HEADROOM - headers;
    Memory { base, bytes, chunk_bytes: layout.stride, headroom }
}

/// A socket that is bound to a queue of a device.
struct OpenedPort {
    device: Device,
    lease: Lease,
    socket: Socket,
    rings: Rings,
    /// Where the device uses the memory itself.
    probe: Option<Probe>,
    window: u32,
}

/// Sockets that are bound, not started.
pub struct XdpOpened {
    bounds: Vec<Bound>,
    ports: Vec<OpenedPort>,
    region: Arc<Region>,
    needs: Needs,
    wake_event: Arc<WakeEvent>,
}

impl Opened for XdpOpened {
    fn local_addresses(&self) -> Vec<SocketAddr> {
        self.bounds.iter().map(|bound| bound.address).collect()
    }

    fn senders(&self) -> Vec<DatagramSocket> {
        self.bounds.iter().map(|bound| bound.socket.clone()).collect()
    }
}

impl<T: Sharing> Provider<T> for Xdp {
    type Cq = XdpCompletions<T>;
    type Rq = XdpRequests<T>;
    type Opened = XdpOpened;

    fn layout(&self, needs: &Needs) -> Result<Layout, Unavailable> {
        let layout = self.layout_of(needs)?;
        self.prove()?;
        Ok(layout)
    }

    fn open(
        &self,
        at: &[Endpoint],
        region: &Arc<Region>,
        needs: &Needs,
    ) -> Result<XdpOpened, Error> {
        region.check_layout(self.layout_of(needs)?)?;
        let wake_event = WakeEvent::new().map_err(|e| Error::io("making a waker", e))?;
        let buffer = at.first().map_or(ReceiveBuffer::System, |first| first.options.receive_buffer);
        let mut devices: Vec<(Device, Vec<Filter>, bool)> = Vec::new();
        let mut bounds = Vec::new();
        for endpoint in at {
            self.check(endpoint)?;
            let held = hold(endpoint)?;
            let address = held.local_address();
            let device = self.device_of(address, &held)?;
            let is_its = |(known, ..): &(Device, _, _)| known.index == device.index;
            let port = place_in(&mut devices, is_its, || (device.clone(), Vec::new(), false));
            let (_, filters, shared) = &mut devices[port];
            let only = (!self.any_port).then_some(address.port());
            filters.push(Filter { address: address.ip(), port: only });
            *shared |= endpoint.options.reuse_port;
            bounds.push(Bound {
                address,
                any_port: self.any_port,
                port,
                tells_local: endpoint.options.local_address,
                socket: held,
            });
        }
        let ports = devices
            .into_iter()
            .map(|(device, filters, shared)| {
                self.open_port(device, &filters, shared, buffer, region, needs)
            })
            .collect::<Result<_, _>>()?;
        Ok(XdpOpened {
            bounds,
            ports,
            region: Arc::clone(region),
            needs: *needs,
            wake_event: Arc::new(wake_event),
        })
    }

    fn start(&self, opened: XdpOpened) -> Result<Started<Self::Cq, Self::Rq>, Error> {
        let XdpOpened { bounds, ports, region, needs, wake_event } = opened;
        let serves_devices = self.mode == Mode::BusyPolled;
        let endpoints = bounds.len();
        // Asked of each: one that is to leave each by itself joins nothing.
        let joins =
            !self.any_port && bounds.iter().all(|bound| bound.socket.native().longest_joined() > 0);
        let mut granted = granted(&ports, serves_devices);
        if joins {
            granted.push(("send-offload", SENT_BY_SOCKET.into()));
        }
        let window = ports.iter().map(|port| port.window).max().unwrap_or(1);
        let mut rings = Vec::new();
        let ports = ports.into_iter().map(|opened| {
            let OpenedPort { device, lease, socket, rings: of_port, probe, window } = opened;
            let Rings { fill, receive, transmit, completion } = of_port;
            rings.push(receive);
            let filling = Filling::new(fill, window, needs.receives);
            let sizes = (region.count(), needs.sends);
            // A device that takes frames as they are needs no packets made of them.
            let joins = joins && probe.is_none();
            let transmit = Transmit::new(transmit, completion, sizes, endpoints, joins);
            Port {
                device,
                may_be_several: lease.place() == Place::Generic,
                lease: Some(lease),
                socket: Some(socket),
                probe,
                filling: T::Shared::<_>::new(filling),
                transmit: T::Shared::<_>::new(transmit),
            }
        });
        let ports: Vec<Port<T>> = ports.collect();
        let common = Arc::new(Common::<T> {
            table: Table::new(&region),
            region,
            needs,
            bounds,
            ports,
            signals: Arc::default(),
            serves_devices,
            receives_out: T::Count::default(),
            sends_out: T::Count::default(),
            stopped: OnceLock::new(),
            ended: false,
        });
        let event = Arc::clone(&wake_event);
        let kick = Waker::new(move || event.signal());
        let requests =
            (0..endpoints as u32).map(|at| XdpRequests::new(&common, at, kick.clone())).collect();
        let completions = XdpCompletions::new(&common, rings, window, wake_event);
        // From now on datagrams come: each needs a slice, and finds none before one is posted.
        for port in &common.ports {
            let lease = port.lease.as_ref().expect("it was opened with one");
            lease
                .give_to(port.socket().fd())
                .map_err(|e| Error::io("putting the socket into the program's map", e))?;
        }
        Ok(Started { completions, requests, granted })
    }
}

/// What was obtained.
fn granted(ports: &[OpenedPort], serves_devices: bool) -> Vec<(&'static str, String)> {
    let mut granted = Vec::new();
    for port in ports {
        let Device { name, queues, .. } = &port.device;
        granted.push(("device", name.clone()));
        granted.push(("device-queue", format!("{} of {queues}", port.lease.queue())));
        let how = match (port.lease.place(), &port.probe) {
            (Place::Native, Some(_)) => "native, zero-copy: the device uses the slices",
            (Place::Native, None) => "native, copied by the kernel",
            (Place::Generic, _) => {
                "generic, copied by the kernel from its own buffers; packets of this machine that leave \
                 checksums or segmentation to a device are discarded"
            }
        };
        granted.push(("xdp", how.into()));
        granted.push(("window", port.window.to_string()));
        granted.push((
            "receive-buffer",
            format!("a fill ring with room for {} datagrams", port.window),
        ));
    }
    granted.push(("need-wakeup", "true".into()));
    let served = match serves_devices {
        true => format!(
            "by the thread that finds nothing, {BUSY_POLL_FRAMES} frames and {BUSY_POLL_US} µs at most, \
             once its first frame came"
        ),
        false => "by the kernel, when it interrupts".into(),
    };
    granted.push(("device-served", served));
    granted
}
