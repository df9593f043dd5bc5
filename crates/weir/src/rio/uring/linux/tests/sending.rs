//! Sending: an echo moves the slice it received into a send.

use super::*;
use crate::{
    rio::Span,
    socket::{Mode, OFFLOADED_BYTES, SocketOptions, TOO_MANY_SEGMENTS, native::MOST_JOINED},
};
use std::{
    num::NonZeroU16,
    panic::{AssertUnwindSafe, catch_unwind},
};

under_every_form!(
    an_echo_answers_every_datagram_from_its_address,
    more_sends_than_were_asked_for_are_given_back,
    a_send_that_fails_gives_its_slice_back,
    several_datagrams_leave_at_once_or_each_by_itself,
    slices_in_a_row_to_one_peer_leave_as_one,
    slices_that_do_not_leave_as_one_are_told_of_each,
    a_send_of_more_than_the_payload_panics,
);

/// Receives one datagram. A ring that is closed interrupts the threads that used it, so a call
/// with a time limit may be interrupted.
fn answer(peer: &UdpSocket, buffer: &mut [u8]) -> (usize, SocketAddr) {
    loop {
        match peer.recv_from(buffer) {
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            received => break received.unwrap(),
        }
    }
}

fn an_echo_answers_every_datagram_from_its_address<T: Sharing>(polling: Polling) {
    let needs = Needs { sends: 100, ..NEEDS };
    let options = SocketOptions { local_address: true, ..SocketOptions::default() };
    let any = Endpoint { address: (Ipv4Addr::UNSPECIFIED, 0).into(), options };
    let v6 = Endpoint { address: (Ipv6Addr::LOCALHOST, 0).into(), options };
    let mut rig = Rig::<T>::new(polling, needs, &[any, v6]);
    assert_eq!(rig.post_shared(64), 64);
    let to = [SocketAddr::from((Ipv4Addr::new(127, 0, 0, 3), rig.at[0].port())), rig.at[1]];
    let peers = to.map(peer);
    for round in 0..20 {
        let count = 60;
        for number in 0..count {
            let bytes = payload(round + number, number);
            peers[number % 2].send_to(&bytes, to[number % 2]).unwrap();
        }
        let (mut received, mut sent) = (0, 0);
        while sent < count {
            for completion in rig.completions() {
                let to = completion.peer();
                let Completion { slice, socket, outcome } = completion;
                let requests = &mut rig.requests[socket as usize];
                match outcome {
                    Outcome::Received(came) => {
                        received += 1;
                        requests.send(slice, came.len(), &to.expect("a datagram")).unwrap();
                    }
                    Outcome::Sent(_) => {
                        sent += 1;
                        requests.receive(slice).unwrap();
                    }
                    other => panic!("{other:?}"),
                }
            }
            rig.commit();
        }
        assert_eq!((received, rig.requests[0].outstanding()), (count, (64, 0)));
        let mut buffer = [0; 256];
        for number in 0..count {
            let (length, from) = answer(&peers[number % 2], &mut buffer);
            assert_eq!(from, to[number % 2], "the answer comes from the address asked");
            assert_eq!(buffer[..length], payload(round + number, number));
        }
    }
    rig.stop();
}

fn more_sends_than_were_asked_for_are_given_back<T: Sharing>(polling: Polling) {
    // More sends at a time than the submission queue has entries.
    let most = SUBMISSIONS.1 + 4;
    let needs = Needs { sends: most, receives: 8, ..NEEDS };
    let mut rig = Rig::<T>::new(polling, needs, &[loopback()]);
    let peer = peer(rig.at[0]);
    // Room for all of them at once, at what the kernel charges for a small datagram.
    socket2::SockRef::from(&peer).set_recv_buffer_size(most as usize * 1024).unwrap();
    let to = crate::rio::Peer::from(peer.local_addr().unwrap());
    for _ in 0..3 {
        for number in 0..=most {
            let mut slice = rig.region.take().unwrap();
            slice.payload_mut()[..2].copy_from_slice(&(number as u16).to_be_bytes());
            match rig.requests[0].send(slice, 2, &to) {
                Ok(()) => assert!(number < most),
                Err(_) => assert_eq!(number, most),
            }
        }
        assert_eq!(rig.requests[0].outstanding(), (0, most));
        rig.commit();
        let (mut sent, mut buffer) = (0, [0; 4]);
        while sent < most {
            for completion in rig.completions() {
                assert!(
                    matches!(completion.outcome, Outcome::Sent(Span { len: 2, .. })),
                    "{completion:?}"
                );
                sent += 1;
            }
            rig.commit();
        }
        for number in 0..most as u16 {
            assert_eq!(answer(&peer, &mut buffer).0, 2);
            assert_eq!(buffer[..2], number.to_be_bytes(), "in order");
        }
    }
    rig.stop();
}

fn a_send_that_fails_gives_its_slice_back<T: Sharing>(polling: Polling) {
    let needs = Needs { sends: 4, ..NEEDS };
    let mut rig = Rig::<T>::new(polling, needs, &[loopback()]);
    // An IPv6 address cannot be reached from an IPv4 socket.
    let to = crate::rio::Peer::from("[::1]:9".parse::<std::net::SocketAddr>().unwrap());
    let slice = rig.region.take().unwrap();
    let index = slice.index();
    rig.requests[0].send(slice, 5, &to).unwrap();
    rig.commit();
    let completions = rig.completions();
    assert_eq!((completions.len(), completions[0].slice.index()), (1, index));
    let Outcome::NotSent(unsent) = &completions[0].outcome else { panic!("{completions:?}") };
    assert_eq!(unsent.error.raw_os_error(), Some(libc::EAFNOSUPPORT));
    drop(completions);
    rig.stop();
}

fn several_datagrams_leave_at_once_or_each_by_itself<T: Sharing>(polling: Polling) {
    let mut rig = Rig::<T>::new(polling, Needs { sends: 4, ..NEEDS }, &[loopback()]);
    let peer = peer(rig.at[0]);
    let to = crate::rio::Peer::from(peer.local_addr().unwrap());
    let nowhere = crate::rio::Peer::from("[::1]:9".parse::<std::net::SocketAddr>().unwrap());
    for count in [5, TOO_MANY_SEGMENTS] {
        let span = Span { len: count, segment: NonZeroU16::new(1) };
        for to in [to, nowhere] {
            let mut slice = rig.region.take().unwrap();
            slice.payload_mut()[..count].copy_from_slice(&payload(0, count));
            rig.requests[0].send(slice, span, &to).unwrap();
        }
        rig.commit();
        let mut completions = rig.completions();
        if completions.len() == 1 {
            completions.extend(rig.completions());
        }
        let sent = |c: &Completion| matches!(c.outcome, Outcome::Sent(sent) if sent == span);
        let refused = |c: &Completion| matches!(&c.outcome, Outcome::NotSent(u) if u.datagrams as usize == count);
        assert!(completions.iter().any(sent) && completions.iter().any(refused));
        let mut buffer = [0; 8];
        for byte in payload(0, count) {
            assert_eq!((answer(&peer, &mut buffer).0, buffer[0]), (1, byte));
        }
    }
    rig.stop();
}

/// A socket to which several datagrams come as one, if they were sent so.
fn joining() -> DatagramSocket {
    let options = SocketOptions { receive_offload: true, ..SocketOptions::default() };
    DatagramSocket::bind(&Endpoint { options, ..loopback() }).unwrap()
}

fn slices_in_a_row_to_one_peer_leave_as_one<T: Sharing>(polling: Polling) {
    let mut rig = Rig::<T>::new(polling, Needs { sends: 100, ..NEEDS }, &[loopback()]);
    let receiver = joining();
    let to = crate::rio::Peer::from(receiver.local_address());
    // More than a message holds, and more than a batch of completions does.
    let count = MOST_JOINED + 20;
    for round in 0..3 {
        let mut sent: Vec<_> = (0..count)
            .map(|number| {
                let mut slice = rig.region.take().unwrap();
                slice.payload_mut()[..2].copy_from_slice(&[round, number as u8]);
                let index = slice.index();
                rig.requests[0].send(slice, 2, &to).unwrap();
                index
            })
            .collect();
        rig.commit();
        let mut over = vec![];
        while over.len() < count {
            for completion in rig.completions() {
                assert!(matches!(completion.outcome, Outcome::Sent(Span { len: 2, .. })));
                over.push(completion.slice.index());
            }
        }
        sent.sort_unstable();
        over.sort_unstable();
        assert_eq!(over, sent, "each once");
        assert_eq!(rig.requests[0].outstanding(), (0, 0));
        let (mut came, mut buffer) = (vec![], vec![0; OFFLOADED_BYTES]);
        for datagrams in [MOST_JOINED, 20] {
            let counters = Counters::default();
            let got = receiver.receive(&mut buffer, Mode::Wait, &counters).unwrap().unwrap();
            assert_eq!(got.datagrams(), datagrams);
            came.extend_from_slice(&buffer[..got.len]);
        }
        let expected: Vec<u8> = (0..count as u8).flat_map(|number| [round, number]).collect();
        assert_eq!(came, expected);
    }
    rig.stop();
}

fn slices_that_do_not_leave_as_one_are_told_of_each<T: Sharing>(polling: Polling) {
    let mut rig = Rig::<T>::new(polling, Needs { sends: 8, ..NEEDS }, &[loopback()]);
    let nowhere = crate::rio::Peer::from("[::1]:9".parse::<std::net::SocketAddr>().unwrap());
    let mut sent: Vec<_> = (0..5)
        .map(|_| {
            let slice = rig.region.take().unwrap();
            let index = slice.index();
            rig.requests[0].send(slice, 3, &nowhere).unwrap();
            index
        })
        .collect();
    rig.commit();
    let mut over = vec![];
    while over.len() < sent.len() {
        for Completion { slice, outcome, .. } in rig.completions() {
            let Outcome::NotSent(unsent) = outcome else { panic!("{outcome:?}") };
            assert_eq!((unsent.datagrams, unsent.sent), (1, 0));
            over.push(slice.index());
        }
    }
    sent.sort_unstable();
    over.sort_unstable();
    assert_eq!(over, sent);
    rig.stop();
}

fn a_send_of_more_than_the_payload_panics<T: Sharing>(polling: Polling) {
    let mut rig = Rig::<T>::new(polling, Needs { sends: 1, ..NEEDS }, &[loopback()]);
    let (slice, to) = (rig.region.take().unwrap(), crate::rio::Peer::from(rig.at[0]));
    let too_long = slice.payload().len() + 1;
    let send = || rig.requests[0].send(slice, too_long, &to).is_ok();
    let said = catch_unwind(AssertUnwindSafe(send)).unwrap_err();
    assert!(said.downcast::<String>().unwrap().starts_with(&too_long.to_string()));
    assert_eq!(rig.requests[0].outstanding(), (0, 0), "nothing was posted");
    rig.stop();
}
