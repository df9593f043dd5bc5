//! The contract, one call at a time.

use super::*;
use crate::socket::{SocketOptions, tests::free_again};

/// Longest payload that goes in one packet over IPv4, and over IPv6.
const LONGEST: [usize; 2] = [1500 - 28, 1500 - 48];

fn echoes<T: Sharing>(wire: &Wire) {
    for (i, at) in [OURS_V4, OURS_V6].into_iter().enumerate() {
        let mut rig = posted::<T, _>(&Xdp::default(), NEEDS, &[ours(at).into()]);
        let to = rig.at[0];
        assert_ne!(to.port(), 0);
        let clients = [wire.client(to), wire.client(to)];
        for (number, length) in [0, 1, 17, 18, 64, 1024, LONGEST[i]].into_iter().enumerate() {
            let client = &clients[number % 2];
            let bytes = payload(number, length);
            client.send_to(&bytes, to).unwrap();
            let (slice, socket, arrival) = rig.receive();
            assert_eq!((socket, arrival.len, arrival.truncated), (0, length, false));
            assert_eq!(arrival.from, client.local_addr().unwrap());
            assert_eq!(slice.payload()[..length], bytes);
            assert_eq!((arrival.local, arrival.at), (None, None), "not asked for");
            let outcome = rig.send(slice, 0, length, &arrival.peer());
            assert!(matches!(outcome, Outcome::Sent(span) if span.len == length), "{outcome:?}");
            let mut back = [0; 2000];
            let (n, from) = client.recv_from(&mut back).unwrap();
            assert_eq!((from, &back[..n]), (to, &bytes[..]));
            let slice = rig.region.take().expect("it came back");
            rig.post(slice, 0);
        }
        assert_eq!(rig.counters.discarded.get(), 0);
        rig.stop();
    }
}

#[test]
fn every_byte_comes_and_goes_on_one_thread() {
    on_a_wire(echoes::<OneThread>);
}

#[test]
fn every_byte_comes_and_goes_handed_over() {
    on_a_wire(echoes::<HandOver>);
}

#[test]
fn a_device_serves_several_addresses_of_both_families() {
    on_a_wire(|wire| {
        let local = |ip| {
            let mut endpoint = Endpoint::from(ours(ip));
            endpoint.options.local_address = true;
            endpoint
        };
        let at = [local(OURS_V4), local(OURS_V6), local(OURS_V4)];
        let mut rig = posted::<OneThread, _>(&Xdp::default(), NEEDS, &at);
        for number in 0..12 {
            let to = rig.at[number % 3];
            let client = wire.client(to);
            client.send_to(&payload(number, 40 + number), to).unwrap();
            let (slice, socket, arrival) = rig.receive();
            assert_eq!((socket as usize, arrival.local), (number % 3, Some(to.ip())));
            assert_eq!(slice.payload()[..arrival.len], payload(number, 40 + number));
            let outcome = rig.send(slice, socket, arrival.len, &arrival.peer());
            assert!(matches!(outcome, Outcome::Sent(_)), "{outcome:?}");
            let mut back = [0; 100];
            assert_eq!(client.recv_from(&mut back).unwrap(), (40 + number, to));
        }
        let names: Vec<_> = rig.granted.iter().map(|(name, _)| *name).collect();
        let one_device = ["device", "device-queue", "xdp", "window", "receive-buffer"];
        assert_eq!(
            names,
            [&one_device[..], &["need-wakeup", "device-served", "send-offload"]].concat()
        );
        rig.stop();
    });
}

#[test]
fn a_burst_of_as_many_as_are_outstanding_finds_a_slice_each() {
    const BURST: u32 = 3 * WINDOW / 2;
    /// Long enough for a wait to count what was dropped.
    const LOOK: Duration = Duration::from_millis(100);
    on_a_wire(|wire| {
        let needs = Needs { payload: 64, receives: BURST, ..NEEDS };
        let taken = |receive_buffer| {
            let options = SocketOptions { receive_buffer, ..SocketOptions::default() };
            let endpoint = Endpoint { address: ours(OURS_V4), options };
            let mut rig = posted::<OneThread, _>(&Xdp::default(), needs, &[endpoint]);
            let (to, client) = (rig.at[0], wire.client(rig.at[0]));
            for number in 0..BURST {
                client.send_to(&number.to_le_bytes(), to).unwrap();
            }
            // They were put into slices, or dropped, by the one who sent them; where that took the kernel too long, its
            // own thread does so with the rest.
            let (mut taken, by) = (0, Instant::now() + PATIENCE);
            loop {
                rig.queue.dequeue(&mut rig.batch, &rig.counters).unwrap();
                taken += rig.batch.drain().count() as u32;
                let dropped = rig.counters.no_buffer.get() + rig.counters.overflows.get();
                if u64::from(taken) + dropped >= u64::from(BURST) {
                    break;
                }
                assert!(Instant::now() < by, "{taken} taken, {dropped} dropped of {BURST}");
                rig.queue.wait(1, Some(LOOK), &rig.counters).unwrap();
            }
            rig.stop();
            taken
        };
        let (count, bytes) = (BURST, 64);
        assert_eq!(taken(ReceiveBuffer::Datagrams { count, bytes }), BURST);
        assert_eq!(taken(ReceiveBuffer::System), WINDOW, "beyond it a frame finds none");
        assert_eq!(taken(ReceiveBuffer::Bytes(2048 * 100)), 100);
    });
}

#[test]
fn the_frame_tells_who_sent_it_and_to_which_port() {
    on_a_wire(|wire| {
        let any = Xdp { any_port: true, ..Xdp::default() };
        let mut rig = posted::<OneThread, _>(&any, NEEDS, &[ours(OURS_V4).into()]);
        let client = wire.client(rig.at[0]);
        let theirs = wire.inside(|| {
            device::of_address(THEIRS_V4.parse().unwrap(), client.as_raw_fd()).unwrap().unwrap()
        });
        for port in [7, rig.at[0].port(), 40_000] {
            let to = SocketAddr::new(rig.at[0].ip(), port);
            client.send_to(b"to any port", to).unwrap();
            let (slice, _, arrival) = rig.receive();
            let link = arrival.link.expect("frames are seen");
            assert_eq!((link.mac, link.local_port), (theirs.mac, port));
            rig.send(slice, 0, arrival.len, &arrival.peer());
            let mut back = [0; 100];
            assert_eq!(client.recv_from(&mut back).unwrap(), (11, to), "from the same port");
        }
        rig.stop();
    });
}

#[test]
fn what_is_not_ours_goes_to_the_kernel() {
    on_a_wire(|wire| {
        let mut rig = posted::<OneThread, _>(&Xdp::default(), NEEDS, &[ours(OURS_V4).into()]);
        // Another port of ours, and another family: ARP and neighbour discovery work, too.
        for at in [OURS_V4, OURS_V6] {
            let other = UdpSocket::bind(ours(at)).unwrap();
            other.set_read_timeout(Some(PATIENCE)).unwrap();
            let to = other.local_addr().unwrap();
            wire.client(to).send_to(b"to the kernel", to).unwrap();
            assert_eq!(other.recv_from(&mut [0; 100]).unwrap().0, 13);
        }
        // Fragments are put together by the kernel, whose socket has the port.
        let to = rig.at[0];
        let client = wire.client(to);
        client.send_to(&[7; 4000], to).unwrap();
        client.send_to(b"whole", to).unwrap();
        let (slice, _, arrival) = rig.receive();
        assert_eq!(&slice.payload()[..arrival.len], b"whole");
        drop(slice);
        // What was passed on is counted, by its reason: three parts, and the two to the other port.
        rig.queue.wait(1, Some(Duration::from_millis(20)), &rig.counters).unwrap();
        let counted = rig.counters.snapshot();
        assert_eq!((counted.passed_fragments, counted.passed_unserved), (3, 0));
        assert!(counted.passed_foreign >= 2, "{counted:?}");
        rig.stop();
    });
}

/// Datagrams that a sender leaves to the device to be cut apart.
const SEGMENTS: usize = 8;

/// Has a client send so many datagrams of this size with one call.
fn send_segments(wire: &Wire, to: SocketAddr, size: usize) {
    let from = SocketAddr::new(THEIRS_V4.parse().unwrap(), 0);
    let client = wire.inside(|| DatagramSocket::bind(&from.into())).unwrap();
    let bytes: Vec<u8> = (0..SEGMENTS).flat_map(|number| payload(number, size)).collect();
    let segment = (size as u16).try_into().unwrap();
    client.send_segments(&bytes, segment, &to.into(), &Counters::default()).unwrap();
}

/// Waits until so many frames were counted as lost, one way or the other, and none arrived.
fn lost(rig: &mut Rig<OneThread>) -> (u64, u64) {
    let by = Instant::now() + PATIENCE;
    loop {
        let counted = (rig.counters.too_long.get(), rig.counters.discarded.get());
        if counted != (0, 0) || Instant::now() > by {
            return counted;
        }
        rig.queue.wait(1, Some(Duration::from_millis(20)), &rig.counters).unwrap();
        assert_eq!(rig.queue.dequeue(&mut rig.batch, &rig.counters).unwrap(), 0, "one of several");
    }
}

#[test]
fn what_is_left_to_a_device_to_cut_comes_apart_where_the_driver_runs_the_program() {
    on_a_wire(|wire| {
        let mut rig = posted::<OneThread, _>(&Xdp::default(), NEEDS, &[ours(OURS_V4).into()]);
        assert!(rig.granted.iter().any(|(name, how)| *name == "xdp" && how.contains("native")));
        for size in [20, 64, 1472] {
            send_segments(wire, rig.at[0], size);
            let mut number = 0;
            while number < SEGMENTS {
                for Completion { slice, outcome, socket } in rig.completions() {
                    let Outcome::Received(arrival) = outcome else { panic!("{outcome:?}") };
                    assert_eq!(slice.payload()[..arrival.len()], payload(number, size));
                    number += 1;
                    rig.post(slice, socket);
                }
            }
        }
        rig.stop();
    });
}

#[test]
fn what_is_left_to_a_device_to_cut_is_counted_as_lost_where_it_comes_as_one() {
    on_a_wire(|wire| {
        for (size, expected) in [(1472, (1, 0)), (20, (0, 1))] {
            let generic = Xdp::of(Mode::Generic);
            let mut rig = posted::<OneThread, _>(&generic, NEEDS, &[ours(OURS_V4).into()]);
            let how = &rig.granted.iter().find(|(name, _)| *name == "xdp").unwrap().1;
            assert!(how.contains("generic") && how.contains("discarded"), "{how}");
            send_segments(wire, rig.at[0], size);
            assert_eq!(lost(&mut rig), expected, "too long, discarded: {SEGMENTS} of {size} bytes");
            rig.stop();
        }
    });
}

#[test]
fn outside_the_driver_what_a_sender_has_done_himself_arrives() {
    on_a_wire(|wire| {
        wire.inside(|| leave_nothing_to(THEIRS)).unwrap();
        let generic = Xdp::of(Mode::Generic);
        let mut rig = posted::<OneThread, _>(&generic, NEEDS, &[ours(OURS_V4).into()]);
        let to = rig.at[0];
        let client = wire.client(to);
        for number in 0..4 {
            let bytes = payload(number, 100 * number);
            client.send_to(&bytes, to).unwrap();
            let (slice, _, arrival) = rig.receive();
            assert_eq!(slice.payload()[..arrival.len], bytes);
            rig.post(slice, 0);
        }
        rig.stop();
    });
}

/// Takes the sums of what it sends from a device: what `ethtool -K DEVICE tx off` does.
fn leave_nothing_to(device: &str) -> io::Result<()> {
    const SET_TRANSMIT_SUMS: u32 = 0x17; // ETHTOOL_STXCSUM
    let any = UdpSocket::bind("0.0.0.0:0")?;
    let mut value = [SET_TRANSMIT_SUMS, 0];
    // SAFETY: all zeroes is a valid request; the value that it names is what this command reads, and
    // outlives the call.
    unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        for (to, from) in request.ifr_name.iter_mut().zip(device.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_data = value.as_mut_ptr().cast();
        match libc::ioctl(any.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[test]
fn every_mode_that_the_device_has_receives_and_says_which_it_is() {
    on_a_wire(|wire| {
        wire.inside(|| leave_nothing_to(THEIRS)).unwrap();
        for (mode, xdp, served) in [
            (Mode::Best, "native", "by the kernel"),
            (Mode::Copied, "native, copied", "by the kernel"),
            (Mode::Generic, "generic", "by the kernel"),
            (Mode::BusyPolled, "native", "by the thread"),
        ] {
            let mut rig = posted::<OneThread, _>(&Xdp::of(mode), NEEDS, &[ours(OURS_V4).into()]);
            let granted =
                |wanted: &str| &rig.granted.iter().find(|(name, _)| *name == wanted).unwrap().1;
            assert!(granted("xdp").starts_with(xdp), "{mode:?}: {}", granted("xdp"));
            let how = granted("device-served");
            assert!(how.starts_with(served), "{mode:?}: {how}");
            assert_eq!(granted("need-wakeup"), "true");
            let to = rig.at[0];
            wire.client(to).send_to(b"hello", to).unwrap();
            drop(rig.receive());
            rig.stop();
        }
    });
}

#[test]
fn damaged_datagrams_are_counted_and_their_slices_stay() {
    on_a_wire(|wire| {
        let mut rig = posted::<OneThread, _>(&Xdp::default(), NEEDS, &[ours(OURS_V4).into()]);
        let to = rig.at[0];
        let client = wire.client(to);
        let mine = rig.queue_device();
        client.send_to(b"so that we are known", to).unwrap();
        let (slice, _, arrival) = rig.receive();
        rig.post(slice, 0);
        // A frame as ours would be, with a bit of its payload wrong, by a raw socket.
        let ends = packet::Ends {
            from: client.local_addr().unwrap(),
            from_mac: arrival.link.unwrap().mac,
            to,
            to_mac: mine,
        };
        let mut memory = [0u8; 200];
        let frame = packet::write_headers(&mut memory, 100..120, &ends).unwrap();
        memory[110] ^= 1;
        let damaged = memory[frame.clone()].to_vec();
        for _ in 0..3 * NEEDS.receives {
            wire.inside(|| send_frame(&damaged)).unwrap();
            rig.queue.wait(1, Some(Duration::from_millis(1)), &rig.counters).unwrap();
            assert_eq!(rig.queue.dequeue(&mut rig.batch, &rig.counters).unwrap(), 0);
        }
        memory[110] ^= 1;
        wire.inside(|| send_frame(&memory[frame])).unwrap();
        let (slice, _, arrival) = rig.receive();
        assert_eq!((arrival.len, arrival.from), (20, ends.from));
        assert_eq!(rig.counters.discarded.get(), u64::from(3 * NEEDS.receives));
        drop(slice);
        rig.stop();
    });
}

impl<T: Sharing> Rig<T> {
    /// The Ethernet address of our device.
    fn queue_device(&self) -> [u8; 6] {
        let socket = UdpSocket::bind(ours(OURS_V4)).unwrap();
        let device = device::of_address(OURS_V4.parse().unwrap(), socket.as_raw_fd());
        device.unwrap().unwrap().mac
    }
}

/// Sends a frame as it is by the device at the other end.
fn send_frame(frame: &[u8]) -> io::Result<()> {
    let name = std::ffi::CString::new(THEIRS)?;
    // SAFETY: descriptor and address are checked or made here, and outlive the calls.
    unsafe {
        let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut to: libc::sockaddr_ll = std::mem::zeroed();
        to.sll_family = libc::AF_PACKET as u16;
        to.sll_ifindex = libc::if_nametoindex(name.as_ptr()) as i32;
        let size = size_of_val(&to) as u32;
        let sent =
            libc::sendto(fd, frame.as_ptr().cast(), frame.len(), 0, (&raw const to).cast(), size);
        let error = io::Error::last_os_error();
        libc::close(fd);
        if sent < 0 { Err(error) } else { Ok(()) }
    }
}

#[test]
fn what_finds_no_slice_is_counted() {
    on_a_wire(|wire| {
        let needs = Needs { receives: 4, ..NEEDS };
        let mut rig = posted::<OneThread, _>(&Xdp::default(), needs, &[ours(OURS_V4).into()]);
        let to = rig.at[0];
        let client = wire.client(to);
        for number in 0..20 {
            client.send_to(&payload(number, 10), to).unwrap();
        }
        let mut slices = Vec::new();
        while slices.len() < 4 {
            slices.extend(rig.completions().into_iter().map(|completion| completion.slice));
        }
        let by = Instant::now() + PATIENCE;
        while rig.counters.no_buffer.get() < 16 && Instant::now() < by {
            let woken = rig.queue.wait(1, Some(Duration::from_millis(1500)), &rig.counters);
            assert_ne!(woken.unwrap(), Woken::Ready);
        }
        assert_eq!(rig.counters.no_buffer.get(), 16);
        assert_eq!(rig.counters.discarded.get(), 0, "they are not too long");
        // With a slice posted it goes on.
        rig.post(slices.pop().unwrap(), 0);
        client.send_to(b"more", to).unwrap();
        slices.push(rig.receive().0);
        drop(slices);
        rig.stop();
    });
}

/// Datagrams that sockets of this namespace have sent: frames are not among them.
fn sent_by_sockets() -> u64 {
    let counts = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    let mut lines = counts.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let at = names.split(' ').position(|name| name == "OutDatagrams").unwrap();
    values.split(' ').nth(at).unwrap().parse().unwrap()
}

#[test]
fn answers_in_a_row_to_one_client_leave_as_one_by_the_socket_and_others_as_frames() {
    on_a_wire(|wire| {
        for send_offload in [true, false] {
            let mut endpoint = Endpoint::from(ours(OURS_V4));
            endpoint.options.send_offload = send_offload;
            let mut rig = posted::<OneThread, _>(&Xdp::default(), NEEDS, &[endpoint]);
            let told = rig.granted.iter().any(|(name, _)| *name == "send-offload");
            assert_eq!(told, send_offload);
            let to = rig.at[0];
            let clients = [wire.client(to), wire.client(to)];
            let peers = clients.each_ref().map(|client| {
                client.send_to(b"hello", to).unwrap();
                rig.receive().2.peer()
            });
            let before = sent_by_sockets();
            // Ten in a row of which the last is shorter, and one for somebody else behind them.
            let length = |number| if number == 9 { 120 } else { 200 };
            for number in 0..11 {
                let mut slice = rig.region.take().unwrap();
                let (client, length) = (usize::from(number == 10), length(number));
                slice.payload_mut()[..length].copy_from_slice(&payload(number, length));
                rig.requests[0].send(slice, length, &peers[client]).unwrap();
            }
            rig.commit();
            let mut back = [0; 300];
            for number in 0..11 {
                let (client, length) = (&clients[usize::from(number == 10)], length(number));
                assert_eq!(client.recv_from(&mut back).unwrap(), (length, to));
                assert_eq!(back[..length], payload(number, length));
            }
            let mut over = 0;
            while over < 11 {
                let all = rig.completions();
                assert!(all.iter().all(|of| matches!(of.outcome, Outcome::Sent(_))), "{all:?}");
                over += all.len();
            }
            assert_eq!(sent_by_sockets() > before, send_offload);
            rig.stop();
        }
    });
}

#[test]
fn what_cannot_be_sent_says_why() {
    on_a_wire(|wire| {
        let mut rig = posted::<OneThread, _>(&Xdp::default(), NEEDS, &[ours(OURS_V4).into()]);
        let to = rig.at[0];
        let client = wire.client(to);
        client.send_to(b"hello", to).unwrap();
        let (slice, _, arrival) = rig.receive();
        drop(slice);
        let peer = arrival.peer();
        let v6 = SocketAddr::new(THEIRS_V6.parse().unwrap(), 9);
        for (to, len, part) in [
            (Peer { local: Some("10.77.0.99".parse().unwrap()), ..peer }, 5, "another address"),
            (Peer { address: v6, ..peer }, 5, "two families"),
            (peer, 1473, "too long"),
        ] {
            let slice = rig.region.take().unwrap();
            let outcome = rig.send(slice, 0, len, &to);
            let Outcome::NotSent(unsent) = outcome else { panic!("{outcome:?}") };
            let error = unsent.error;
            assert!(error.to_string().contains(part), "{error}");
        }
        rig.stop();
    });
}

/// Only the kernel knows where on the link somebody is who has not written.
#[test]
fn who_has_not_written_is_sent_to_from_the_same_address_and_port() {
    on_a_wire(|wire| {
        for at in [OURS_V4, OURS_V6] {
            let mut rig = posted::<OneThread, _>(&Xdp::default(), NEEDS, &[ours(at).into()]);
            let to = rig.at[0];
            let client = wire.client(to);
            let peer = Peer { ecn: Some(Ecn::Ect0), ..client.local_addr().unwrap().into() };
            let mut buffer = [0; 2000];
            for len in [0, 1, 1452, 1500] {
                let mut slice = rig.region.take().unwrap();
                slice.payload_mut()[..len].fill(len as u8);
                let outcome = rig.send(slice, 0, len, &peer);
                let Outcome::Sent(span) = outcome else { panic!("{outcome:?}") };
                assert_eq!(span.len, len);
                let (bytes, from) = client.recv_from(&mut buffer).unwrap();
                assert_eq!((bytes, from), (len, to));
                assert!(buffer[..len].iter().all(|byte| *byte == len as u8));
            }
            rig.stop();
        }
    });
}

#[test]
fn a_waker_ends_a_wait_and_a_time_out_is_never_short() {
    on_a_wire(|_| {
        let mut rig = posted::<HandOver, _>(&Xdp::default(), NEEDS, &[ours(OURS_V4).into()]);
        let waker = rig.queue.waker();
        waker.wake();
        let woken = rig.queue.wait(1, Some(PATIENCE), &rig.counters).unwrap();
        assert_eq!(woken, Woken::ByWaker);
        let since = Instant::now();
        let short = Duration::from_millis(5);
        // Neighbour discovery is the kernel's, so nothing else comes.
        assert_eq!(rig.queue.wait(1, Some(short), &rig.counters).unwrap(), Woken::TimedOut);
        assert!(since.elapsed() >= short);
        rig.stop();
    });
}

#[test]
fn queues_that_are_dropped_leave_their_slices_to_the_kernel() {
    on_a_wire(|_| {
        let rig = posted::<OneThread, _>(&Xdp::default(), NEEDS, &[ours(OURS_V4).into()]);
        let region = Arc::clone(&rig.region);
        drop(rig);
        assert_eq!(region.leaked(), NEEDS.receives);
        assert_eq!(region.in_pool(), NEEDS.sends);
    });
}

#[test]
fn a_device_has_one_server_and_is_free_after_it() {
    on_a_wire(|wire| {
        let at = [ours(OURS_V4).into()];
        for _ in 0..3 {
            let mut rig = posted::<OneThread, _>(&Xdp::default(), NEEDS, &at);
            let refused = try_posted::<OneThread, _>(&Xdp::default(), NEEDS, &at).err().unwrap();
            assert!(refused.to_string().contains("give one server both"), "{refused}");
            let to = rig.at[0];
            wire.client(to).send_to(b"hello", to).unwrap();
            drop(rig.receive());
            rig.stop();
            // The kernel has the port again, and no program is in the way.
            let socket = free_again(to);
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            wire.client(to).send_to(b"hello", to).unwrap();
            assert_eq!(socket.recv_from(&mut [0; 100]).unwrap().0, 5);
        }
        let device = rig_device();
        let probe = Probe::new().unwrap();
        assert!(probe.await_release(device, 0, Instant::now() + PATIENCE), "nobody has it");
    });
}

fn rig_device() -> u32 {
    let socket = UdpSocket::bind(ours(OURS_V4)).unwrap();
    device::of_address(OURS_V4.parse().unwrap(), socket.as_raw_fd()).unwrap().unwrap().index
}

#[test]
fn a_queue_that_is_held_is_not_released() {
    on_a_wire(|_| {
        let rig = posted::<OneThread, _>(&Xdp::default(), NEEDS, &[ours(OURS_V4).into()]);
        let soon = Instant::now() + Duration::from_millis(20);
        assert!(!Probe::new().unwrap().await_release(rig_device(), 0, soon));
        rig.stop();
    });
}

#[test]
fn addresses_that_no_device_alone_has_are_refused_with_what_to_do() {
    on_a_wire(|_| {
        for (at, part) in [("0.0.0.0", "every address"), ("127.0.0.1", "loopback"), ("::", "every")]
        {
            let refused = try_posted::<OneThread, _>(&Xdp::default(), NEEDS, &[ours(at).into()])
                .err()
                .unwrap();
            let text = refused.to_string();
            assert!(matches!(refused, Error::Unavailable(_)), "{text}");
            assert!(text.contains(part) && text.contains("bind the address of"), "{text}");
        }
    });
}

#[test]
fn needs_that_no_slice_meets_are_refused_with_what_to_do() {
    let ask = |needs| Provider::<OneThread>::layout(&Xdp::default(), &needs);
    let refused = ask(Needs { payload: 4000, ..NEEDS }).unwrap_err();
    assert!(refused.advice.unwrap().contains("at most 3776 bytes"));
    assert!(ask(Needs { sends: 1 << 17, ..NEEDS }).is_err());
    let refused = ask(Needs { offload: true, ..NEEDS }).unwrap_err();
    assert!(refused.to_string().contains("receive offload"), "{refused}");
}

#[test]
fn each_queue_of_a_device_can_have_a_socket() {
    on_a_wire_of(2, |_| {
        let mut endpoint = Endpoint::from(ours(OURS_V4));
        endpoint.options.reuse_port = true;
        let first = posted::<OneThread, _>(&Xdp::default(), NEEDS, &[endpoint]);
        endpoint.address = first.at[0];
        let second = posted::<OneThread, _>(&Xdp::default(), NEEDS, &[endpoint]);
        let queue = |rig: &Rig<OneThread>| {
            rig.granted.iter().find(|(name, _)| *name == "device-queue").unwrap().1.clone()
        };
        assert_eq!([queue(&first), queue(&second)], ["0 of 2", "1 of 2"]);
        let third = try_posted::<OneThread, _>(&Xdp::default(), NEEDS, &[endpoint]).err().unwrap();
        assert!(third.to_string().contains("has 2 queues"), "{third}");
        first.stop();
        second.stop();
    });
}
