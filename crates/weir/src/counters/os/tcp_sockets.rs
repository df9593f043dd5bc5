//! What TCP sockets have waiting, asked of the kernel socket by socket.
//!
//! Origin: sock_diag(7), `INET_DIAG_SKMEMINFO` (Linux 3.3).

use super::super::TcpEnds;
use socket2::{Domain, Protocol, Socket, Type};
use std::{
    io::{self, Read as _},
    time::Duration,
};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// NLM_F_REQUEST and NLM_F_DUMP.
const DUMP: u16 = 0x301;
const INET_DIAG_SKMEMINFO: u16 = 7;

/// Bytes of a message's head, of the question behind it, and of what stands before the attributes of an answer.
const HEAD: usize = 16;
const QUESTION: usize = 56;
const ANSWER: usize = 72;
/// Connections that stand, or that one end has ended. Those in TIME_WAIT are no sockets any more.
const STATES: u32 = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 8 | 1 << 9 | 1 << 11;
/// The kernel answers with as many sockets at a time as fit, in 32 KiB at most.
const ROOM: usize = 32 << 10;
/// The kernel answers at once. This catches one that never does.
const WITHIN: Duration = Duration::from_secs(10);

pub(in super::super) fn tcp_ends(port: u16) -> Option<TcpEnds> {
    let mut ends = TcpEnds::default();
    [libc::AF_INET, libc::AF_INET6].into_iter().try_for_each(|f| add(f, port, &mut ends)).ok()?;
    Some(ends)
}

/// Adds the sockets of a family.
fn add(family: i32, port: u16, ends: &mut TcpEnds) -> io::Result<()> {
    let netlink = Some(Protocol::from(libc::NETLINK_SOCK_DIAG));
    let mut socket = Socket::new(Domain::from(libc::AF_NETLINK), Type::DGRAM, netlink)?;
    socket.set_read_timeout(Some(WITHIN))?;
    socket.send(&question(family as u8))?;
    let mut room = vec![0; ROOM];
    loop {
        let count = socket.read(&mut room)?;
        if count == 0 || !take(&room[..count], port, ends)? {
            return Ok(());
        }
    }
}

fn question(family: u8) -> [u8; HEAD + QUESTION] {
    let mut bytes = [0; HEAD + QUESTION];
    bytes[0..4].copy_from_slice(&((HEAD + QUESTION) as u32).to_ne_bytes());
    bytes[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes[6..8].copy_from_slice(&DUMP.to_ne_bytes());
    bytes[HEAD] = family;
    bytes[HEAD + 1] = libc::IPPROTO_TCP as u8;
    bytes[HEAD + 2] = 1 << (INET_DIAG_SKMEMINFO - 1);
    bytes[HEAD + 4..HEAD + 8].copy_from_slice(&STATES.to_ne_bytes());
    bytes
}

/// Takes what one read brought. Says whether more follows.
fn take(mut messages: &[u8], port: u16, ends: &mut TcpEnds) -> io::Result<bool> {
    let garbled = || io::Error::other("what sock_diag answered cannot be read");
    while !messages.is_empty() {
        let len = u32_at(messages, 0).ok_or_else(garbled)? as usize;
        let message = messages.get(..len).filter(|it| it.len() >= HEAD).ok_or_else(garbled)?;
        match u16_at(message, 4) {
            Some(SOCK_DIAG_BY_FAMILY) => one(message, port, ends),
            Some(NLMSG_DONE) => return Ok(false),
            // A family that this kernel has not.
            Some(NLMSG_ERROR) => {
                let error = u32_at(message, HEAD).unwrap_or_default() as i32;
                return match -error {
                    libc::ENOENT | libc::EAFNOSUPPORT | libc::EINVAL => Ok(false),
                    error => Err(io::Error::from_raw_os_error(error)),
                };
            }
            _ => {}
        }
        messages = messages.get(aligned(len)..).unwrap_or_default();
    }
    Ok(true)
}

/// Adds one socket, if it is at the port or was connected to it.
fn one(message: &[u8], port: u16, ends: &mut TcpEnds) {
    let answer = &message[HEAD..];
    let port_at = |at: usize| answer.get(at..at + 2).map(|it| u16::from_be_bytes([it[0], it[1]]));
    let (Some(own), Some(peers)) = (port_at(4), port_at(6)) else { return };
    let end = match port {
        _ if own == port => &mut ends.at_the_port,
        _ if peers == port => &mut ends.to_the_port,
        _ => return,
    };
    end.sockets += 1;
    let mut attributes = answer.get(ANSWER..).unwrap_or_default();
    while let (Some(len), Some(kind)) = (u16_at(attributes, 0), u16_at(attributes, 2)) {
        let len = usize::from(len).max(4);
        if kind == INET_DIAG_SKMEMINFO
            && let Some(of) = attributes.get(4..len)
        {
            // rmem_alloc, rcvbuf, wmem_alloc, sndbuf, fwd_alloc, wmem_queued, optmem, backlog, drops. What is being
            // sent (wmem_alloc) is clones of what is queued.
            let held = [0, 4, 5, 6, 7].map(|place| u32_at(of, place * 4).unwrap_or_default());
            end.bytes += held.into_iter().map(u64::from).sum::<u64>();
        }
        attributes = attributes.get(aligned(len)..).unwrap_or_default();
    }
}

fn aligned(len: usize) -> usize {
    len.next_multiple_of(4)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::Write as _,
        net::{TcpListener, TcpStream},
        time::Instant,
    };

    #[test]
    fn what_waits_is_told_of_the_end_where_it_waits() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(tcp_ends(port), Some(TcpEnds::default()), "one that listens is no connection");
        let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (_server, _) = listener.accept().unwrap();
        let fresh = tcp_ends(port).unwrap();
        assert_eq!((fresh.at_the_port.sockets, fresh.to_the_port.sockets), (1, 1));
        // Nobody reads it. It has left the client once it was acknowledged.
        client.write_all(&[7; 10_000]).unwrap();
        let began = Instant::now();
        loop {
            let ends = tcp_ends(port).unwrap();
            if ends.at_the_port.bytes >= 10_000 {
                break;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "{ends:?}");
            std::thread::yield_now();
        }
        drop(client);
    }

    #[test]
    fn many_sockets_come_in_several_messages() {
        const MANY: u64 = 300;
        let listener = TcpListener::bind("[::1]:0").or_else(|_| TcpListener::bind("127.0.0.1:0"));
        let listener = listener.unwrap();
        let at = listener.local_addr().unwrap();
        let pair = |_| (TcpStream::connect(at).unwrap(), listener.accept().unwrap());
        let pairs: Vec<_> = (0..MANY).map(pair).collect();
        let ends = tcp_ends(at.port()).unwrap();
        assert_eq!((ends.at_the_port.sockets, ends.to_the_port.sockets), (MANY, MANY));
        drop(pairs);
    }

    proptest::proptest! {
        #[test]
        fn any_answer_is_read_or_refused(bytes in proptest::collection::vec(0u8.., 0..300)) {
            let _ = take(&bytes, 7, &mut TcpEnds::default());
        }

        #[test]
        fn a_message_cut_anywhere_is_read_or_refused(cut in 0usize..200, tail in 0u8..) {
            let mut bytes = question(2).to_vec();
            bytes.resize(200, tail);
            bytes[0..4].copy_from_slice(&(cut as u32).to_ne_bytes());
            let _ = take(&bytes, 7, &mut TcpEnds::default());
        }
    }
}
