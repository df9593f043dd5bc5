use super::*;
use std::thread;

/// A server of one thread that answers what `answer` makes of each datagram and of those before
/// it, until a datagram of its own ends it.
fn checked_against(
    answer: impl Fn(&UdpSocket, &[(Vec<u8>, SocketAddr)]) + Send + 'static,
) -> Result<u64, String> {
    // Reached only by a test that fails.
    checked_within(Duration::from_secs(60), answer)
}

fn checked_within(
    answer_within: Duration,
    answer: impl Fn(&UdpSocket, &[(Vec<u8>, SocketAddr)]) + Send + 'static,
) -> Result<u64, String> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let server = socket.local_addr().unwrap();
    let end = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let end_address = end.local_addr().unwrap();
    let serving = thread::spawn(move || {
        let mut seen = vec![];
        let mut buffer = [0; 2048];
        loop {
            let (len, from) = socket.recv_from(&mut buffer).unwrap();
            if from == end_address {
                return;
            }
            seen.push((buffer[..len].to_vec(), from));
            answer(&socket, &seen);
        }
    });
    let mut exchange = Exchange::open_within(server, answer_within).unwrap();
    let outcome = exchange.run(1024);
    end.send_to(&[], server).unwrap();
    serving.join().unwrap();
    outcome.and_then(|()| exchange.is_over()).map(|()| exchange.sent())
}

#[test]
fn a_true_echo_passes() {
    let sent = checked_against(|socket, seen| {
        let (bytes, from) = seen.last().unwrap();
        socket.send_to(bytes, from).unwrap();
    });
    assert_eq!(sent, Ok((sizes(1024).len() * SENDERS * BURST) as u64));
}

#[test]
fn the_address_of_another_datagram_is_found() {
    let failed = checked_against(|socket, seen| {
        // Both of a pair are answered with each other's address, as if a batch had mixed them.
        if seen.len() % 2 == 0 {
            let [.., (first, to_first), (second, to_second)] = seen else { return };
            socket.send_to(first, to_second).unwrap();
            socket.send_to(second, to_first).unwrap();
        }
    });
    let said = failed.unwrap_err();
    assert!(said.contains("to another sender than its own"), "{said}");
}

#[test]
fn cut_changed_and_doubled_answers_are_found() {
    let cut = checked_against(|socket, seen| {
        let (bytes, from) = seen.last().unwrap();
        socket.send_to(&bytes[..bytes.len().min(1000)], from).unwrap();
    });
    assert_eq!(cut.unwrap_err(), "echo of 1023 bytes over IPv4: the answer has 1000 bytes");

    let changed = checked_against(|socket, seen| {
        let (mut bytes, from) = seen.last().unwrap().clone();
        if let [.., last] = &mut bytes[..] {
            *last ^= 1;
        }
        socket.send_to(&bytes, from).unwrap();
    });
    assert_eq!(changed.unwrap_err(), "echo of 1 bytes over IPv4: the answer has other bytes");

    let doubled = checked_against(|socket, seen| {
        let (bytes, from) = seen.last().unwrap();
        for _ in 0..1 + usize::from(bytes.len() == 1024) {
            socket.send_to(bytes, from).unwrap();
        }
    });
    assert_eq!(doubled.unwrap_err(), "an answer of 1024 bytes to no datagram");
}

#[test]
fn an_answer_from_another_address_is_found() {
    let other = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let failed = checked_against(move |_, seen| {
        let (bytes, from) = seen.last().unwrap();
        other.send_to(bytes, from).unwrap();
    });
    assert!(failed.unwrap_err().contains("the answer came from"));
}

#[test]
fn silence_ends_within_its_time() {
    let failed = checked_within(Duration::from_secs(1), |socket, seen| {
        let (bytes, from) = seen.last().unwrap();
        // Nothing without bytes, as a server that takes an empty datagram for the end.
        if !bytes.is_empty() {
            socket.send_to(bytes, from).unwrap();
        }
    });
    assert_eq!(
        failed.unwrap_err(),
        "echo of 0 bytes over IPv4: no answer to its sender within 1 s"
    );
}

#[test]
fn sizes_reach_from_nothing_to_the_longest() {
    assert_eq!(sizes(1024), [0, 1, 31, 32, 33, 64, 512, 1023, 1024]);
    assert_eq!(sizes(1), [0, 1]);
}
