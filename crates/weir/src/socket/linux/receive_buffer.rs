//! A receive buffer of the size asked for, and what to do where it is not granted.
//!
//! The kernel charges a socket for the memory that a datagram takes, not for its payload: see [`charge_bytes`]. What
//! is asked for is doubled (socket(7)); SO_RCVBUF grants up to `net.core.rmem_max`, SO_RCVBUFFORCE (Linux 2.6.14, with
//! CAP_NET_ADMIN) beyond it.

use super::set_option;
use crate::socket::ReceiveBuffer;
use socket2::Socket;
use std::{fs, io};

/// The most that the kernel takes, before it doubles it.
const MOST_ASKED: usize = (i32::MAX / 2) as usize;

/// The largest buffer that SO_RCVBUF grants, before it is doubled.
const RMEM_MAX: &str = "/proc/sys/net/core/rmem_max";
/// Pages that all UDP sockets of the machine may have together: from where the kernel economizes, and at most. It
/// stands in the first network namespace alone.
const UDP_MEM: &str = "/proc/sys/net/ipv4/udp_mem";

/// The most that Linux charges a socket for a datagram with so many bytes of payload (`truesize`): a device may take a
/// whole page for each frame, whatever is in it, and veth does for those that came as live frames.
fn charge_bytes(payload: usize) -> usize {
    const PAGE: usize = 4096;
    on_loopback_bytes(payload).max(PAGE + BUFFER)
}

/// A `struct sk_buff` of 232 bytes, with its alignment.
const BUFFER: usize = 256;

/// The most that Linux charges for it where it comes by loopback.
///
/// A `struct sk_buff` of 232 bytes takes 256. The block of memory beside it has room for the headers before the payload
/// and a `struct skb_shared_info` of 320 bytes behind it, and comes from a cache of 576 bytes or one whose blocks are a
/// power of two long. A datagram that the kernel cut from a larger one (UDP_SEGMENT) has a small block, and its payload
/// is charged beside it. So Linux 6.18 charges on loopback (SK_MEMINFO_RMEM_ALLOC, 640 datagrams waiting) for each
/// datagram of 64, 512, 1024 and 1472 bytes sent singly 832, 1280, 2304 and 2304 bytes, and cut 896, 1344, 1856 and
/// 2304.
fn on_loopback_bytes(payload: usize) -> usize {
    /// Link layer, IPv6 and UDP, rounded up.
    const HEADERS: usize = 80;
    const SHARED: usize = 320;
    const SMALL_BLOCK: usize = 576;
    let block = match payload + HEADERS + SHARED {
        used if used <= SMALL_BLOCK => SMALL_BLOCK,
        used => used.next_power_of_two(),
    };
    let cut = BUFFER + SMALL_BLOCK + payload;
    (BUFFER + block).max(cut)
}

/// Asks for it, and says what came of it.
///
/// # Errors
/// What the kernel answered, where it knows no such option.
pub(super) fn ask(socket: &Socket, asked: ReceiveBuffer) -> io::Result<String> {
    let (wanted, datagrams) = match asked {
        ReceiveBuffer::System | ReceiveBuffer::Outstanding => return Ok("the system's".into()),
        ReceiveBuffer::Bytes(bytes) => (bytes.saturating_mul(2), None),
        ReceiveBuffer::Datagrams { count, bytes } => {
            let charge = charge_bytes(bytes);
            (charge.saturating_mul(count as usize), Some((count, bytes, charge)))
        }
    };
    let before = socket.recv_buffer_size()?;
    if let Some((count, bytes, _)) = datagrams
        && wanted <= before
    {
        return Ok(format!("the system's, which has room for {count} datagrams of {bytes} bytes"));
    }
    let half = wanted.div_ceil(2).min(MOST_ASKED);
    let most = number_in(RMEM_MAX, 0);
    let forced = force(socket, half).is_ok();
    // A default above what may be asked for is left as it is where room for a number of datagrams is asked for: asking
    // would make it smaller.
    let shrinks = datagrams.is_some() && would_shrink(before, half, most);
    if !forced && !shrinks {
        socket.set_recv_buffer_size(half)?;
    }
    let granted = socket.recv_buffer_size()?;
    let what = match datagrams {
        None => format!("{granted} bytes"),
        Some((count, bytes, charge)) => {
            let fit = (granted / charge).min(count as usize);
            let of = if fit < count as usize { format!(" of {count}") } else { String::new() };
            let least = if of.is_empty() { "" } else { "at least " };
            format!("room for {least}{fit}{of} datagrams of {bytes} bytes")
        }
    };
    let mut said = match (granted < wanted, forced) {
        (false, true) => format!("{what} (SO_RCVBUFFORCE)"),
        (false, false) => what,
        (true, true) => format!("{what}: more than {} bytes cannot be asked for", 2 * MOST_ASKED),
        (true, false) => format!(
            "{what}, because net.core.rmem_max is {}: raise it (sysctl -w net.core.rmem_max={half}), or give the \
             program CAP_NET_ADMIN",
            most.map_or("lower".into(), |most| most.to_string())
        ),
    };
    if let Some(most) = all_udp_sockets()
        && most < granted as u64
    {
        said += &format!(
            "; all UDP sockets together have {most} bytes: raise the last number of net.ipv4.udp_mem"
        );
    }
    Ok(said)
}

/// Whether asking for so much, where `most` may be asked for, makes a buffer of `before` bytes smaller.
fn would_shrink(before: usize, asked: usize, most: Option<u64>) -> bool {
    most.is_some_and(|most| 2 * most.min(asked as u64) < before as u64)
}

fn force(socket: &Socket, bytes: usize) -> io::Result<()> {
    let bytes = bytes as libc::c_int;
    // SAFETY: the option takes an int.
    unsafe { set_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &bytes) }
}

/// What all UDP sockets may have together, in bytes, where that is known.
fn all_udp_sockets() -> Option<u64> {
    use nix::unistd::{SysconfVar, sysconf};
    let page = sysconf(SysconfVar::PAGE_SIZE).ok()??;
    number_in(UDP_MEM, 2)?.checked_mul(page as u64)
}

/// A number of a file of /proc/sys, by its place.
fn number_in(path: &str, place: usize) -> Option<u64> {
    fs::read_to_string(path).ok()?.split_whitespace().nth(place)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        counters::Counters,
        socket::{DatagramSocket, Endpoint, Peer, SocketOptions},
    };
    use std::{net::Ipv4Addr, num::NonZeroU16};

    fn bound(receive_buffer: ReceiveBuffer) -> DatagramSocket {
        let options = SocketOptions { receive_buffer, ..SocketOptions::default() };
        let address = (Ipv4Addr::LOCALHOST, 0).into();
        DatagramSocket::bind(&Endpoint { address, options }).unwrap()
    }

    /// Whatever the kernel charges, what fits by our account fits by its own.
    #[test]
    fn as_many_datagrams_fit_as_were_asked_for() {
        const COUNT: u32 = 640;
        for size in
            [0usize, 1, 64, 176, 177, 200, 512, 624, 625, 1024, 1472, 1648, 1649, 4000, 65_507]
        {
            for cut in [false, true] {
                let segments =
                    if cut { 65_000usize.checked_div(size).unwrap_or(0).min(64) } else { 1 };
                if segments == 0 || cut && segments < 2 {
                    continue;
                }
                let count = COUNT / segments as u32 * segments as u32;
                let socket = bound(ReceiveBuffer::Datagrams { count, bytes: size });
                let told = socket.receive_buffer_obtained().unwrap();
                if !told.contains(&format!("room for {count} datagrams")) {
                    assert!(told.contains("rmem_max"), "{told}");
                    continue; // this user may not
                }
                let (sender, counters) = (bound(ReceiveBuffer::System), Counters::default());
                let to = Peer::from(socket.local_address());
                let bytes = vec![7; size * segments];
                for _ in 0..count as usize / segments {
                    if cut {
                        let segment = NonZeroU16::new(size as u16).unwrap();
                        sender.send_segments(&bytes, segment, &to, &counters).unwrap();
                    } else {
                        sender.send(&bytes, &to, &counters).unwrap();
                    }
                }
                let usage = socket.gauge().read().usage;
                assert_eq!(usage.drops, Some(0), "{count} of {size} ({cut})");
                let account = u64::from(count) * on_loopback_bytes(size) as u64;
                assert!(usage.queued_bytes <= Some(account), "{size} ({cut}): {usage:?}");
            }
        }
    }

    #[test]
    fn a_default_above_what_may_be_asked_for_is_kept() {
        assert!(would_shrink(1 << 20, 1 << 22, Some(212_992)));
        assert!(!would_shrink(212_992, 1 << 22, Some(212_992)), "doubled, it is more");
        assert!(
            !would_shrink(1 << 20, 1 << 22, None) && !would_shrink(1 << 20, 1 << 22, Some(1 << 22))
        );
    }

    #[test]
    fn what_was_granted_is_told_and_what_can_be_done() {
        assert_eq!(bound(ReceiveBuffer::System).receive_buffer_obtained().unwrap(), "the system's");
        let few = bound(ReceiveBuffer::Datagrams { count: 2, bytes: 64 });
        let told = few.receive_buffer_obtained().unwrap();
        assert!(told.starts_with("the system's, which has room for 2"), "{told}");
        let most = bound(ReceiveBuffer::Datagrams { count: u32::MAX, bytes: 1024 });
        let told = most.receive_buffer_obtained().unwrap();
        assert!(told.contains(&format!(" of {} datagrams of 1024", u32::MAX)), "{told}");
        assert!(told.contains("rmem_max=") || told.contains("cannot be asked for"), "{told}");
        let granted = bound(ReceiveBuffer::Bytes(100_000)).receive_buffer_bytes().unwrap();
        let told = bound(ReceiveBuffer::Bytes(100_000)).receive_buffer_obtained().unwrap();
        assert!(told.starts_with(&format!("{granted} bytes")), "{told}");
    }
}
