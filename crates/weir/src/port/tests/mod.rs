//! What every provider's port does, against the kernel it runs on, with real loopback sockets.

mod faults;
pub(super) mod order;
pub(super) mod traffic;

use super::Native;
use crate::{
    counters::Counters,
    memory::{Region, RegionOptions, Slice},
    port::{
        Completion, Key, Needs, Outcome, Port, Provider, Shape, SocketId, Taken, Token, Worker,
    },
    required::cannot_run,
    socket::{Arrival, DatagramSocket, Endpoint, SocketOptions},
};
use std::{
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    sync::Arc,
    time::{Duration, Instant},
};

pub const LOCALHOST: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Far more than anything here takes; a test that waits so long has failed.
pub const LONG: Duration = Duration::from_secs(60);

pub fn needs() -> Needs {
    Needs {
        payload: 256,
        sockets: 1,
        receives: 128,
        sends: 16,
        packets: 64,
        threads: 4,
        concurrency: 2,
    }
}

pub fn native(armed: u32, submit_after: u32) -> Native {
    Native { shape: Shape { armed, submit_after, ..Shape::BEST } }
}

pub fn cannot_run_here() -> bool {
    cannot_run("port", native(1, 1).layout(&needs()))
}

pub type NativePort = <Native as Provider>::Port;

/// A port with a socket, and a region with a slice for each receive and send.
pub struct Bench {
    pub port: NativePort,
    pub region: Arc<Region>,
    pub socket: SocketId,
    pub address: SocketAddr,
}

pub fn bench(provider: Native, needs: Needs) -> Bench {
    bench_at(provider, needs, LOCALHOST.into())
}

pub fn bench_at(provider: Native, needs: Needs, endpoint: Endpoint) -> Bench {
    let layout = provider.layout(&needs).unwrap();
    let region = Region::new(layout, needs.receives + needs.sends, RegionOptions::default());
    let port = provider.open(&needs).unwrap();
    let socket = DatagramSocket::bind(&endpoint).unwrap();
    let address = socket.local_address();
    let socket = port.associate(socket, Key(7)).unwrap();
    Bench { port, region: region.unwrap(), socket, address }
}

impl Bench {
    /// Starts so many receives.
    pub fn post(&self, worker: &mut impl Worker, receives: u32) -> Vec<Token> {
        (0..receives)
            .map(|_| worker.receive(self.socket, self.region.take().unwrap()).unwrap())
            .collect()
    }

    /// Stops the port and checks that every slice came back.
    pub fn stop(self) {
        let Self { port, region, .. } = self;
        let stopped = port.stop(Instant::now() + LONG);
        assert_eq!(stopped.missing, 0);
        assert_eq!(region.in_pool(), region.count());
        assert_eq!(region.leaked(), 0);
    }
}

/// Takes one completion.
pub fn take_one(worker: &mut impl Worker) -> Completion {
    let mut out = Taken::new(1);
    assert_eq!(worker.take(&mut out, Some(LONG), &Counters::default()).unwrap(), Some(1));
    out.drain().next().unwrap()
}

/// Takes one completion, which is an operation's.
pub fn take_operation(worker: &mut impl Worker) -> (Token, Slice, Outcome) {
    match take_one(worker) {
        Completion::Operation { token, key, slice, outcome, .. } => {
            assert_eq!(key, Key(7));
            (token, slice, outcome)
        }
        Completion::Packet(packet) => panic!("{packet:?} instead of an operation"),
    }
}

/// Takes one completion, which is a datagram's.
pub fn take_datagram(worker: &mut impl Worker) -> (Slice, Arrival) {
    match take_operation(worker) {
        (_, slice, Outcome::Received(arrival)) => (slice, arrival),
        (_, _, outcome) => panic!("{outcome:?} instead of a datagram"),
    }
}

pub fn sender() -> UdpSocket {
    UdpSocket::bind(LOCALHOST).unwrap()
}
