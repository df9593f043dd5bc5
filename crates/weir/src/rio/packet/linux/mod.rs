//! The provider itself.
//!
//! | file | what |
//! | --- | --- |
//! | `filter` | what the kernel lets through |
//! | `block` | packets in a block of the ring |
//! | `ring` | a packet socket, and its ring |
//! | `queues` | the contract's queues |

mod block;
mod filter;
mod queues;
mod ring;
#[cfg(test)]
mod tests;

pub use queues::{PacketCompletions, PacketRequests};

use super::Packet;
use crate::{
    Error, Unavailable,
    memory::{Layout, Region},
    readiness::wake_event::WakeEvent,
    rio::{
        CONTEXT_BYTES, Needs, Opened, Provider, Started,
        sharing::Sharing,
        xdp::{device_named, hold, place_in},
    },
    socket::{DatagramSocket, Endpoint, ReceiveBuffer},
};
use queues::Receiver;
use ring::{BLOCK_BYTES, BLOCKS, Failed, HANDED_OVER_AFTER_MS, PacketSocket};
use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

/// Alignment of slices: a cache line.
const ALIGN_BYTES: usize = 64;

/// Blocks of a ring where no room for more is asked for: 4 MiB.
const BLOCKS_BY_DEFAULT: usize = 16;

/// What a datagram takes of a block besides its payload, at most: what the kernel says of it, and headers.
const BESIDE_PAYLOAD_BYTES: usize = 192;

impl Packet {
    fn unavailable(&self, reason: impl Into<String>) -> Unavailable {
        Unavailable::new(format!("provider {}", self.name()), reason)
    }

    /// What failed, with what to do about it.
    fn failed(&self, (call, error): Failed) -> Unavailable {
        let unavailable = self.unavailable(format!("{call}: {error}"));
        match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => unavailable.advise(
                "it needs CAP_NET_RAW: run it as root, or give the program this capability (setcap)",
            ),
            Some(libc::ENOMEM) => unavailable.advise("ask for a smaller receive buffer"),
            Some(libc::EAFNOSUPPORT) => unavailable.advise("this kernel has no AF_PACKET"),
            _ => unavailable,
        }
    }

    fn check(&self, endpoint: &Endpoint) -> Result<(), Error> {
        let refuse = |what: &str, advice: &str| Err(self.unavailable(what).advise(advice).into());
        if endpoint.is_unix() {
            return refuse(
                "no device has the datagrams of Unix sockets",
                "use provider uring or batch",
            );
        }
        let options = &endpoint.options;
        if options.reuse_port || options.steer_by_core.is_some() {
            return refuse(
                "every packet socket sees every packet, so several would receive all of them twice",
                "use a design whose threads share one queue, such as rio-event or rio-hybrid",
            );
        }
        if options.receive_offload || options.receive_time || options.peer_errors {
            return refuse(
                "receive offload, receive times and errors of peers need a plain socket",
                "do not ask for them",
            );
        }
        if options.asks_for_meta() {
            return refuse(
                "traffic class and hops of packets are not reported yet",
                "do not ask for them",
            );
        }
        if options.busy_poll.is_some() {
            return refuse("a ring cannot be busy-polled", "leave it off");
        }
        Ok(())
    }

    fn open_port(
        &self,
        (name, index): (String, u32),
        addresses: &[IpAddr],
        blocks: usize,
    ) -> Result<Receiver, Error> {
        let opened = || -> Result<Receiver, Failed> {
            let socket = PacketSocket::new()?;
            ring::attach(socket.fd(), &mut filter::assemble(addresses))?;
            let ring = socket.ring(blocks)?;
            Ok(Receiver::new(name, index, socket, ring))
        };
        opened().map_err(|e| self.failed(e).into())
    }
}

/// How slices must be cut.
fn layout(needs: &Needs) -> Layout {
    Layout::packed(CONTEXT_BYTES, needs.payload, ALIGN_BYTES)
}

/// Blocks that have room for what is asked for.
fn blocks(buffer: ReceiveBuffer) -> usize {
    let bytes = match buffer {
        ReceiveBuffer::System | ReceiveBuffer::Outstanding => return BLOCKS_BY_DEFAULT,
        ReceiveBuffer::Bytes(bytes) => bytes,
        ReceiveBuffer::Datagrams { count, bytes } => {
            (count as usize).saturating_mul(bytes + BESIDE_PAYLOAD_BYTES)
        }
    };
    // A block is handed over before it is full: one more is under way.
    (bytes.div_ceil(BLOCK_BYTES) + 1).clamp(*BLOCKS.start(), *BLOCKS.end())
}

/// An address that datagrams are received at.
struct Bound {
    address: SocketAddr,
    /// Its device, by its place.
    port: usize,
    /// Whether the address that a datagram was sent to is asked for.
    tells_local: bool,
    /// Keeps the address ours.
    _socket: DatagramSocket,
}

/// Sockets that are made, not started.
pub struct PacketOpened {
    bounds: Vec<Bound>,
    receivers: Vec<Receiver>,
    region: Arc<Region>,
    needs: Needs,
    wake_event: Arc<WakeEvent>,
}

impl Opened for PacketOpened {
    fn local_addresses(&self) -> Vec<SocketAddr> {
        self.bounds.iter().map(|bound| bound.address).collect()
    }
}

impl<T: Sharing> Provider<T> for Packet {
    type Cq = PacketCompletions<T>;
    type Rq = PacketRequests<T>;
    type Opened = PacketOpened;

    fn layout(&self, needs: &Needs) -> Result<Layout, Unavailable> {
        if needs.sends > 0 {
            return Err(self
                .unavailable("it sees copies of what the kernel handles, and sends nothing")
                .advise("answer on xdp-any-port, or do not answer"));
        }
        if needs.offload {
            return Err(self
                .unavailable("each datagram is put into a slice of its own")
                .advise("do not ask for receive offload"));
        }
        PacketSocket::new().map_err(|e| self.failed(e))?;
        Ok(layout(needs))
    }

    fn open(
        &self,
        at: &[Endpoint],
        region: &Arc<Region>,
        needs: &Needs,
    ) -> Result<PacketOpened, Error> {
        region.check_layout(layout(needs))?;
        let wake_event = WakeEvent::new().map_err(|e| Error::io("making a waker", e))?;
        let buffer = at.first().map_or(ReceiveBuffer::System, |first| first.options.receive_buffer);
        let mut devices: Vec<((String, u32), Vec<IpAddr>)> = Vec::new();
        let mut bounds = Vec::new();
        for endpoint in at {
            self.check(endpoint)?;
            let held = hold(endpoint)?;
            // It is given none of the copies.
            ring::attach(held.native().fd(), &mut filter::nothing()).map_err(|e| self.failed(e))?;
            let address = held.local_address();
            let device = device_named(address.ip())
                .map_err(|e| Error::io(format!("finding the device of {address}"), e))?
                .map_err(|none| self.unavailable(none.reason).advise(none.advice))?;
            let is_its = |(known, _): &(_, _)| *known == device;
            let port = place_in(&mut devices, is_its, || (device.clone(), Vec::new()));
            devices[port].1.push(address.ip());
            bounds.push(Bound {
                address,
                port,
                tells_local: endpoint.options.local_address,
                _socket: held,
            });
        }
        let receivers = devices
            .into_iter()
            .map(|(device, addresses)| self.open_port(device, &addresses, blocks(buffer)))
            .collect::<Result<_, _>>()?;
        let wake_event = Arc::new(wake_event);
        Ok(PacketOpened {
            bounds,
            receivers,
            region: Arc::clone(region),
            needs: *needs,
            wake_event,
        })
    }

    fn start(&self, opened: PacketOpened) -> Result<Started<Self::Cq, Self::Rq>, Error> {
        let PacketOpened { bounds, receivers, region, needs, wake_event } = opened;
        let mut granted = Vec::new();
        for receiver in &receivers {
            granted.push(("device", receiver.device.clone()));
            let bytes = receiver.ring_bytes();
            granted.push(("receive-buffer", format!("a ring of {bytes} bytes (TPACKET_V3)")));
            // From now on packets come.
            receiver.bind().map_err(|e| Error::from(self.failed(e)))?;
        }
        let copies = "copies: the kernel handles the same datagrams, and answers those that no socket takes with an \
                      ICMP error";
        granted.push(("packet", copies.into()));
        granted.push(("block-handed-over-after-ms", HANDED_OVER_AFTER_MS.to_string()));
        let (completions, requests) =
            queues::start::<T>(bounds, receivers, &region, needs, wake_event);
        Ok(Started { completions, requests, granted })
    }
}
