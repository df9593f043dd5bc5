//! The provider against the kernel it runs on, over a pair of veth devices.

use super::*;
use crate::{
    counters::Counters,
    memory::RegionOptions,
    rio::{
        Choice, CompletionQueue as _, HandOver, OneThread, RequestQueue as _,
        provider_tests::{PATIENCE, payload},
        wire_tests::{self, OURS_V4, OURS_V6, THEIRS_V4, Wire, ours, posted},
    },
    socket::SocketOptions,
    udp::{Contract, Datagram, Replies, Server, designs},
};
use std::{
    io::ErrorKind,
    net::UdpSocket,
    time::{Duration, Instant},
};

const NEEDS: Needs =
    Needs { payload: 1500, receives: 64, sends: 0, per_dequeue: 32, offload: false, meta: false };

fn on_a_wire(test: impl FnOnce(&Wire) + Send + 'static) {
    let can_run = || Choice::PacketAnyPort.availability();
    wire_tests::on_a_wire("packet-any-port", 1, can_run, test);
}

/// Ports that nobody of the test has.
const PORTS: [u16; 3] = [7, 40_001, 65_535];

fn every_byte<T: Sharing>(wire: &Wire) {
    for at in [OURS_V4, OURS_V6] {
        let mut rig = posted::<T, _>(&Packet, NEEDS, &[ours(at).into()]);
        let client = wire.client(rig.at[0]);
        let sizes = [0, 1, 17, 64, 1024, 1452];
        for (number, length) in sizes.into_iter().enumerate() {
            let port = [PORTS[0], PORTS[1], PORTS[2], rig.at[0].port()][number % 4];
            let bytes = payload(number, length);
            // A port that nobody has is refused by the kernel: the next send may be told so.
            let to = SocketAddr::new(rig.at[0].ip(), port);
            client.send_to(&bytes, to).unwrap();
            let (slice, socket, arrival) = rig.receive();
            assert_eq!((socket, arrival.len, arrival.truncated), (0, length, false));
            assert_eq!(arrival.from, client.local_addr().unwrap());
            assert_eq!(slice.payload()[..length], bytes);
            let link = arrival.link.expect("packets are seen");
            assert_eq!((link.mac, link.local_port), (wire.their_mac(), port));
            rig.post(slice, 0);
        }
        let counted = rig.counters.snapshot();
        assert_eq!((counted.discarded, counted.no_buffer, counted.passed_foreign), (0, 0, 0));
        rig.stop();
    }
}

#[test]
fn every_byte_to_every_port_comes_on_one_thread() {
    on_a_wire(every_byte::<OneThread>);
}

#[test]
fn every_byte_to_every_port_comes_handed_over() {
    on_a_wire(every_byte::<HandOver>);
}

/// Where a datagram's address is put there would be none.
#[test]
fn a_region_without_headroom_is_refused() {
    on_a_wire(|_| {
        let layout = Layout::packed(0, NEEDS.payload, ALIGN_BYTES);
        let region = Region::new(layout, NEEDS.receives, RegionOptions::default()).unwrap();
        let at = [ours(OURS_V4).into()];
        let opened = Provider::<OneThread>::open(&Packet, &at, &region, &NEEDS);
        let refused = opened.err().expect("it was not cut as the layout says").to_string();
        assert!(refused.contains("region") && refused.contains("layout"), "{refused}");
    });
}

#[test]
fn the_kernel_handles_the_same_datagrams() {
    on_a_wire(|wire| {
        let mut rig = posted::<OneThread, _>(&Packet, NEEDS, &[ours(OURS_V4).into()]);
        // Another program has its own.
        let other = UdpSocket::bind(ours(OURS_V4)).unwrap();
        other.set_read_timeout(Some(PATIENCE)).unwrap();
        let client = wire.client(rig.at[0]);
        client.send_to(b"to both", other.local_addr().unwrap()).unwrap();
        assert_eq!(other.recv_from(&mut [0; 100]).unwrap().0, 7);
        let (slice, _, arrival) = rig.receive();
        assert_eq!(&slice.payload()[..arrival.len], b"to both");
        drop(slice);
        // Nobody has this port: the sender is told so, and we have the datagram.
        let closed = SocketAddr::new(rig.at[0].ip(), PORTS[0]);
        client.connect(closed).unwrap();
        client.send(b"refused").unwrap();
        let (slice, _, arrival) = rig.receive();
        assert_eq!(&slice.payload()[..arrival.len], b"refused");
        let refused = client.recv(&mut [0; 100]).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        // That was ICMP, and what we send ourselves is not received.
        let socket = UdpSocket::bind(ours(OURS_V4)).unwrap();
        socket.send_to(b"outgoing", client.local_addr().unwrap()).unwrap();
        wire.client(closed).send_to(b"last", closed).unwrap();
        let (last, _, arrival) = rig.receive();
        assert_eq!(&last.payload()[..arrival.len], b"last");
        drop((slice, last));
        rig.stop();
    });
}

#[test]
fn parts_are_counted_and_left_to_the_kernel() {
    on_a_wire(|wire| {
        for at in [OURS_V4, OURS_V6] {
            let mut rig = posted::<OneThread, _>(&Packet, NEEDS, &[ours(at).into()]);
            let whole = UdpSocket::bind(ours(at)).unwrap();
            whole.set_read_timeout(Some(PATIENCE)).unwrap();
            let to = whole.local_addr().unwrap();
            let client = wire.client(to);
            client.send_to(&[7; 4000], to).unwrap();
            assert_eq!(whole.recv_from(&mut [0; 5000]).unwrap().0, 4000, "put together");
            client.send_to(b"whole", to).unwrap();
            let (slice, _, arrival) = rig.receive();
            assert_eq!(&slice.payload()[..arrival.len], b"whole");
            assert_eq!(rig.counters.passed_fragments.get(), 3);
            drop(slice);
            rig.stop();
        }
    });
}

/// Datagrams that a sender leaves to the device to be cut apart.
const SEGMENTS: usize = 8;

#[test]
fn what_is_left_to_a_device_to_cut_apart_is_cut_apart() {
    on_a_wire(|wire| {
        let mut rig = posted::<OneThread, _>(&Packet, NEEDS, &[ours(OURS_V4).into()]);
        let from = SocketAddr::new(THEIRS_V4.parse().unwrap(), 0);
        let client = wire.inside(|| DatagramSocket::bind(&from.into())).unwrap();
        for (size, last) in [(20, 20), (100, 3), (1472, 1472)] {
            let length = |number: usize| if number == SEGMENTS - 1 { last } else { size };
            let bytes: Vec<u8> =
                (0..SEGMENTS).flat_map(|number| payload(number, length(number))).collect();
            let segment = (size as u16).try_into().unwrap();
            let to = rig.at[0].into();
            client.send_segments(&bytes, segment, &to, &Counters::default()).unwrap();
            let mut number = 0;
            while number < SEGMENTS {
                for completion in rig.completions() {
                    let crate::rio::Outcome::Received(arrival) = completion.outcome else {
                        panic!("{completion:?}")
                    };
                    let got = &completion.slice.payload()[..arrival.len()];
                    assert_eq!(got, payload(number, length(number)), "{number} of {size}");
                    number += 1;
                    rig.post(completion.slice, 0);
                }
            }
        }
        assert_eq!(rig.counters.discarded.get(), 0);
        rig.stop();
    });
}

#[test]
fn what_does_not_fit_a_slice_is_truncated_and_says_so() {
    on_a_wire(|wire| {
        let needs = Needs { payload: 100, ..NEEDS };
        let mut rig = posted::<OneThread, _>(&Packet, needs, &[ours(OURS_V4).into()]);
        for length in [100, 101, 1400] {
            wire.client(rig.at[0]).send_to(&payload(1, length), rig.at[0]).unwrap();
            let (slice, _, arrival) = rig.receive();
            assert_eq!((arrival.len, arrival.truncated), (100, length > 100));
            assert_eq!(slice.payload()[..100], payload(1, length)[..100]);
            rig.post(slice, 0);
        }
        rig.stop();
    });
}

#[test]
fn what_finds_no_room_in_the_ring_is_counted() {
    // The smallest ring holds less than half of this.
    const SENT: u64 = 2000;
    on_a_wire(|wire| {
        let options =
            SocketOptions { receive_buffer: ReceiveBuffer::Bytes(1), ..SocketOptions::default() };
        let endpoint = Endpoint { address: ours(OURS_V4), options };
        let mut rig = posted::<OneThread, _>(&Packet, NEEDS, &[endpoint]);
        let client = wire.client(rig.at[0]);
        for _ in 0..SENT {
            client.send_to(&[7; 1400], rig.at[0]).unwrap();
        }
        let (by, mut received) = (Instant::now() + PATIENCE, 0);
        while received + rig.counters.no_buffer.get() < SENT {
            assert!(Instant::now() < by, "{received} and {:?}", rig.counters.snapshot());
            rig.queue.wait(1, Some(Duration::from_millis(20)), &rig.counters).unwrap();
            rig.queue.dequeue(&mut rig.batch, &rig.counters).unwrap();
            for completion in rig.batch.drain() {
                received += 1;
                rig.requests[0].receive(completion.slice).unwrap();
            }
            rig.commit();
        }
        let lost = rig.counters.no_buffer.get();
        assert_eq!((received + lost, lost > SENT / 2), (SENT, true), "{received} and {lost}");
        // Then there is room again, around the end of the ring.
        for number in 0..20 {
            client.send_to(&payload(number, 1400), rig.at[0]).unwrap();
            let (slice, _, arrival) = rig.receive();
            assert_eq!(slice.payload()[..arrival.len], payload(number, 1400));
            rig.post(slice, 0);
        }
        rig.stop();
    });
}

#[test]
fn several_addresses_of_both_families_have_one_ring() {
    on_a_wire(|wire| {
        let local = |ip| {
            let mut endpoint = Endpoint::from(ours(ip));
            endpoint.options.local_address = true;
            endpoint
        };
        let mut rig = posted::<OneThread, _>(&Packet, NEEDS, &[local(OURS_V4), local(OURS_V6)]);
        for number in 0..6 {
            let to = SocketAddr::new(rig.at[number % 2].ip(), PORTS[1]);
            wire.client(to).send_to(&payload(number, 40), to).unwrap();
            let (slice, socket, arrival) = rig.receive();
            assert_eq!((socket as usize, arrival.local), (number % 2, Some(to.ip())));
            rig.post(slice, socket);
        }
        let devices = rig.granted.iter().filter(|(name, _)| *name == "device").count();
        assert_eq!(devices, 1, "{:?}", rig.granted);
        rig.stop();
    });
}

#[test]
fn designs_run_on_it_and_give_every_slice_back() {
    const SENT: u64 = 200;
    on_a_wire(|wire| {
        for mut design in designs().into_iter().filter(|d| d.about().contract == Contract::Rio) {
            let name = design.about().name;
            design.set("provider", "packet-any-port").unwrap();
            let (handled, every) = std::sync::mpsc::channel();
            let handler = move |_| {
                let handled = handled.clone();
                move |_: Datagram<'_>, _: &mut Replies<'_>| handled.send(()).expect("it is awaited")
            };
            let limits = crate::limits::Limits::SINK;
            let server = Server::bind(ours(OURS_V4)).limits(limits).payload_bytes(1500);
            let running = server.start(design, handler);
            if name == "rio-sharded" {
                let Err(Error::Unavailable(why)) = running else {
                    panic!("it would see all twice")
                };
                assert!(why.to_string().contains("rio-event"), "{why}");
                continue;
            }
            let running = running.unwrap_or_else(|e| panic!("{name}: {e}"));
            let ip = running.local_addresses()[0].ip();
            let client = wire.client(SocketAddr::new(ip, 0));
            for number in 0..SENT {
                let to = SocketAddr::new(ip, PORTS[number as usize % PORTS.len()]);
                client.send_to(&payload(number as usize, 64), to).unwrap();
            }
            for _ in 0..SENT {
                every.recv_timeout(PATIENCE).unwrap_or_else(|e| panic!("{name}: {e}"));
            }
            let report = running.stop();
            assert!(report.failure.is_none(), "{name}: {:?}", report.failure);
            assert_eq!(report.total().datagrams, SENT, "{name}");
            let slices = report.slices;
            assert_eq!((slices.returned, slices.missing), (slices.made, 0), "{name}");
        }
    });
}

#[test]
fn what_it_cannot_do_is_said_before_it_starts() {
    let sends = Needs { sends: 1, ..NEEDS };
    let refused = Provider::<OneThread>::layout(&Packet, &sends).unwrap_err().to_string();
    assert!(refused.contains("xdp-any-port"), "{refused}");
    let denied = Packet.failed(("making a packet socket", std::io::Error::from_raw_os_error(1)));
    assert!(denied.to_string().contains("CAP_NET_RAW"), "{denied}");
    let room = |buffer| blocks(buffer) * BLOCK_BYTES;
    assert_eq!(room(ReceiveBuffer::System), 4 << 20);
    assert_eq!(blocks(ReceiveBuffer::Bytes(1)), 4);
    assert_eq!(room(ReceiveBuffer::Bytes(usize::MAX)), 1 << 30);
    let burst = ReceiveBuffer::Datagrams { count: 10_000, bytes: 64 };
    assert!(room(burst) >= 10_000 * (64 + 110));
}
