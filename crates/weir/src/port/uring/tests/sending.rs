//! Sends that leave as one: what comes, and that each comes back by itself.

use super::*;
use crate::port::uring::{sends::Sends, socket::Associated};
use crate::{
    memory::Slice,
    port::{Cancelled, Completion, Refused, Token},
    rio::{Peer, Span},
    socket::{DatagramSocket, Endpoint, Mode, OFFLOADED_BYTES, SocketOptions, native::MOST_JOINED},
};
use std::net::SocketAddr;

/// A socket to which several datagrams come as one, if they were sent so.
fn joining() -> DatagramSocket {
    let options = SocketOptions { receive_offload: true, ..SocketOptions::default() };
    DatagramSocket::bind(&Endpoint { options, ..LOCALHOST.into() }).unwrap()
}

fn to_nobody() -> Peer {
    // An IPv6 address cannot be reached from an IPv4 socket.
    "[::1]:9".parse::<SocketAddr>().unwrap().into()
}

/// Starts so many sends of two bytes each: the second of them is its number.
fn send(bench: &Bench, worker: &mut impl Worker, to: &Peer, count: usize) -> Vec<Token> {
    let one = |number: usize| {
        let mut slice = bench.region.take().unwrap();
        slice.payload_mut()[..2].copy_from_slice(&[7, number as u8]);
        worker.send(bench.socket, slice, 2, to).unwrap()
    };
    (0..count).map(one).collect()
}

/// Takes so many at a time until so many came back.
fn take_back(worker: &mut impl Worker, at_a_time: usize, count: usize) -> Vec<(Token, Outcome)> {
    let (mut out, mut back) = (Taken::new(at_a_time), vec![]);
    while back.len() < count {
        let taken = worker.take(&mut out, Some(LONG), &Counters::default()).unwrap();
        assert!(taken.is_some_and(|taken| (1..=at_a_time).contains(&taken)), "{taken:?}");
        back.extend(out.drain().map(|completion| match completion {
            Completion::Operation { token, outcome, .. } => (token, outcome),
            Completion::Packet(packet) => panic!("{packet:?}"),
        }));
    }
    back
}

/// The datagrams of one arrival.
fn receive(by: &DatagramSocket) -> Vec<Vec<u8>> {
    let mut buffer = vec![0; OFFLOADED_BYTES];
    let got = by.receive(&mut buffer, Mode::Wait, &Counters::default()).unwrap().unwrap();
    let segment = got.segment.map_or(got.len.max(1), |segment| segment.get().into());
    buffer[..got.len].chunks(segment).map(<[u8]>::to_vec).collect()
}

#[test]
fn sends_in_a_row_leave_as_one_and_come_back_each() {
    if cannot_run_here() {
        return;
    }
    let bench = bench(Uring::default(), Needs { sends: 100, ..needs() });
    let receiver = joining();
    let to = Peer::from(receiver.local_address());
    let mut worker = bench.port.worker().unwrap();
    // More than a message holds, taken one by one and many at a time.
    let count = MOST_JOINED + 20;
    for at_a_time in [1, 7, 100] {
        let tokens = send(&bench, &mut worker, &to, count);
        worker.commit(&Counters::default()).unwrap();
        let back = take_back(&mut worker, at_a_time, count);
        assert!(
            back.iter().all(|(_, outcome)| matches!(outcome, Outcome::Sent(span) if span.len == 2))
        );
        let back: Vec<_> = back.into_iter().map(|(token, _)| token).collect();
        assert_eq!(back, tokens, "in order, since both messages were sent at once");
        let came = [receive(&receiver), receive(&receiver)];
        assert_eq!(came.each_ref().map(Vec::len), [MOST_JOINED, 20]);
        let expected: Vec<_> = (0..count as u8).map(|number| vec![7, number]).collect();
        assert_eq!(came.concat(), expected);
        assert_eq!(bench.region.in_pool(), bench.region.count());
    }
    drop(worker);
    bench.stop();
}

#[test]
fn a_send_to_another_peer_or_of_another_size_leaves_by_itself() {
    if cannot_run_here() {
        return;
    }
    let bench = bench(Uring::default(), needs());
    let (one, other) = (joining(), joining());
    let mut worker = bench.port.worker().unwrap();
    let sends = [(&one, 9), (&one, 9), (&one, 4), (&one, 9), (&other, 9), (&one, 9), (&one, 30)];
    for (to, len) in sends {
        let to = Peer::from(to.local_address());
        worker.send(bench.socket, bench.region.take().unwrap(), len, &to).unwrap();
    }
    for (_, outcome) in take_back(&mut worker, 2, sends.len()) {
        assert!(matches!(outcome, Outcome::Sent(Span { segment: None, .. })), "{outcome:?}");
    }
    let lens = |by| receive(by).iter().map(Vec::len).collect::<Vec<_>>();
    assert_eq!([lens(&one), lens(&one), lens(&other)], [vec![9, 9, 4], vec![9], vec![9]]);
    assert_eq!([lens(&one), lens(&one)], [vec![9], vec![30]]);
    drop(worker);
    bench.stop();
}

#[test]
fn sends_that_do_not_leave_as_one_are_told_of_each() {
    if cannot_run_here() {
        return;
    }
    let bench = bench(Uring::default(), needs());
    let mut worker = bench.port.worker().unwrap();
    let tokens = send(&bench, &mut worker, &to_nobody(), 5);
    let back = take_back(&mut worker, 1, 5);
    for ((back, outcome), token) in back.into_iter().zip(tokens) {
        assert_eq!(back, token);
        let Outcome::NotSent(unsent) = outcome else { panic!("{outcome:?}") };
        assert_eq!((unsent.datagrams, unsent.sent), (1, 0));
        assert_eq!(unsent.error.raw_os_error(), Some(libc::EAFNOSUPPORT));
    }
    drop(worker);
    bench.stop();
}

/// What ended and was not taken yet is outstanding: its place is not another's, cancelling it comes too late, and a stop
/// gives its slice back.
#[test]
fn a_send_is_outstanding_until_it_is_taken() {
    if cannot_run_here() {
        return;
    }
    let bench = bench(Uring::default(), Needs { sends: 4, ..needs() });
    let counters = Counters::default();
    let receiver = joining();
    let to = Peer::from(receiver.local_address());
    let mut worker = bench.port.worker().unwrap();
    let tokens = send(&bench, &mut worker, &to, 4);
    assert_eq!(take_back(&mut worker, 1, 1)[0].0, tokens[0]);
    assert_eq!(receive(&receiver).len(), 4, "all left");
    let slice = |bench: &Bench| -> Slice { bench.region.take().unwrap() };
    let more = worker.send(bench.socket, slice(&bench), 2, &to);
    assert!(more.is_ok());
    let (_, refused) = worker.send(bench.socket, slice(&bench), 2, &to).unwrap_err();
    assert_eq!(refused, Refused::Full);
    assert_eq!(worker.cancel(tokens[0], &counters), Cancelled::Gone);
    assert_eq!(worker.cancel(tokens[3], &counters), Cancelled::Asked);
    let back = take_back(&mut worker, 1, 2);
    assert_eq!([back[0].0, back[1].0], [tokens[1], tokens[2]]);
    drop(worker);
    bench.stop();
}

/// What becomes of a message of four sends which the kernel answers was cancelled, where these were to be, and how many
/// datagrams come. Sends over loopback do not rest with the kernel, so its answer is made up here.
fn became(bench: &Bench, cancelled: &[usize]) -> (Vec<&'static str>, usize) {
    let receiver = DatagramSocket::bind(&LOCALHOST.into()).unwrap();
    let to = Peer::from(receiver.local_address());
    let socket = DatagramSocket::bind(&LOCALHOST.into()).unwrap();
    let (armed, dry, waiting) = (0, false, vec![]);
    let sockets = [Associated { socket, key: Key(7), file: None, armed, dry, waiting }];
    let mut sends = Sends::new(4);
    let add = |sends: &mut Sends| {
        let span = Span { len: 8, segment: None };
        let added = sends.add(SocketId(0), bench.region.take().unwrap(), span, &to);
        added
            .map(|token| ring::Token::from_user_data(token.0))
            .unwrap_or_else(|_| panic!("no room"))
    };
    let tokens: Vec<ring::Token> = (0..4).map(|_| add(&mut sends)).collect();
    let (mut started, mut messages) = (0, 0);
    let pushed = sends.start(&sockets, &mut started, |_| {
        messages += 1;
        Ok::<(), ()>(())
    });
    assert_eq!((pushed, started, messages), (Ok(()), 4, 1), "they are one message");
    cancelled.iter().for_each(|place| sends.is_cancelled(tokens[*place]));
    assert_eq!(sends.finish(tokens[0], -libc::ECANCELED, &sockets), 4);
    let mut out = Taken::new(4);
    sends.take_settled(&sockets, &mut out);
    let told = out.drain().map(|completion| match completion {
        Completion::Operation { outcome: Outcome::Returned, .. } => "returned",
        Completion::Operation { outcome: Outcome::Sent(_), .. } => "sent",
        other => panic!("{other:?}"),
    });
    let told = told.collect();
    let mut receive = || receiver.receive(&mut [0; 64], Mode::Try, &Counters::default()).unwrap();
    let came = std::iter::from_fn(&mut receive).count();
    // SAFETY: nothing was submitted.
    unsafe { sends.free() };
    (told, came)
}

#[test]
fn of_a_cancelled_message_is_sent_what_nobody_cancelled_and_of_a_stopped_one_nothing() {
    if cannot_run_here() {
        return;
    }
    let bench = bench(Uring::default(), needs());
    assert_eq!(became(&bench, &[0]), (vec!["returned", "sent", "sent", "sent"], 3));
    assert_eq!(became(&bench, &[0, 2]), (vec!["returned", "sent", "returned", "sent"], 2));
    assert_eq!(became(&bench, &[0, 1, 2, 3]), (vec!["returned"; 4], 0));
    bench.stop();
}
