//! The engine of live frames over a link: every datagram is looked at.

use nix::sys::socket::{setsockopt, sockopt::RcvBufForce};
use std::{net::UdpSocket, time::Duration};

use weir_load::{
    engine::{self, Batch, Blocking, Head, Lane},
    proof::Secret,
    stamp::{STAMP_BYTES, Stamp, body_is_intact},
};

use super::tests::on_a_link;

/// More than an unprivileged socket may have: a live frame takes up a page, however short it is.
fn make_room(sink: &UdpSocket) {
    setsockopt(sink, RcvBufForce, &(1 << 20)).unwrap();
}

#[test]
fn every_live_frame_arrives_as_it_was_stamped() {
    on_a_link(|site| {
        for server in [Some(site.server()), site.server_v6()].into_iter().flatten() {
            let sink = site.at_server(|| UdpSocket::bind((server, 0))).unwrap();
            make_room(&sink);
            sink.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            let at = sink.local_addr().unwrap();
            let lanes: Vec<_> =
                (3..5).map(|flow| Lane::connect(at, flow, Blocking::Yes).unwrap()).collect();
            let xdp = engine::named("xdp").unwrap();
            let unknown = (xdp.open)(64, &lanes).err().expect("nobody was spoken to yet");
            assert!(unknown.to_string().contains("is not known"), "{unknown}");
            let mut received = [0; 2000];
            // What a control channel does, too: now each knows the other's Ethernet address.
            let socket = UdpSocket::bind((lanes[0].local.ip(), 0)).unwrap();
            socket.send_to(b"hello", at).unwrap();
            sink.recv_from(&mut received).unwrap();
            for size_bytes in [0, 1, 31, 32, 33, 64, 1024, super::super::LONGEST_BYTES as usize] {
                let mut engine = (xdp.open)(size_bytes, &lanes).unwrap();
                let mut next = [0u64; 2];
                for datagrams in [1, 7, 64, 65] {
                    for (lane, next) in lanes.iter().zip(&mut next) {
                        let (flow, first_sequence) = (lane.flow, *next);
                        let batch = Batch {
                            run: 7,
                            flow,
                            first_sequence,
                            due_ns: 9,
                            datagrams,
                            secret: Secret::random(),
                            head: Head::default(),
                        };
                        let sent = engine.send(lane, &batch);
                        assert!(sent.failure.is_none(), "{:?}", sent.failure);
                        assert_eq!((sent.sent, sent.refused), (datagrams, 0));
                        for sequence in first_sequence..first_sequence + u64::from(datagrams) {
                            let (size, from) = sink.recv_from(&mut received).unwrap_or_else(|e| {
                                panic!("{size_bytes} B, {sequence} of {datagrams}: {e}")
                            });
                            assert_eq!((size, from), (size_bytes, lane.local));
                            assert!(body_is_intact(&received[..size]));
                            if size_bytes >= STAMP_BYTES {
                                let stamp = batch.stamp(sequence);
                                assert_eq!(Stamp::read(&received[..size]), Ok(stamp));
                            }
                        }
                        *next += u64::from(datagrams);
                    }
                }
            }
            let too_long = (xdp.open)(1473, &lanes).err().unwrap().to_string();
            assert!(too_long.contains("MTU"), "{too_long}");
        }
    });
}
