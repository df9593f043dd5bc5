//! The figures against what this process really does.

use super::*;
use std::net::UdpSocket;
use std::sync::{Barrier, mpsc};
use std::time::{Duration, Instant};

/// What has not happened by then will not happen.
const DEADLINE: Duration = Duration::from_secs(60);

/// Keeps the core busy until the thread has used `cpu` of it.
fn work_for(cpu: Duration) {
    let end = ThreadUsage::current().cpu_ns.expect("a CPU clock") + cpu.as_nanos() as u64;
    let mut n = 0u64;
    while ThreadUsage::current().cpu_ns < Some(end) {
        n = std::hint::black_box(n + 1);
    }
}

#[test]
fn a_thread_is_charged_for_what_it_does_and_not_for_waiting() {
    let before = ThreadUsage::current();
    work_for(Duration::from_millis(20));
    let used = ThreadUsage::current().since(&before);
    assert!(used.cpu_ns >= Some(20_000_000), "{used:?}");
    assert!(used.cpu_user_ns() <= used.cpu_ns, "{used:?}");
    assert!(used.core.is_some());

    let (say, heard) = mpsc::channel();
    let waiter = std::thread::spawn(move || {
        let before = ThreadUsage::current();
        heard.recv().expect("said");
        ThreadUsage::current().since(&before)
    });
    work_for(Duration::from_millis(100));
    say.send(()).expect("the waiter lives");
    let waited = waiter.join().expect("no panic");
    // Who is charged for another's work has as much as that has.
    assert!(waited.cpu_ns < Some(50_000_000), "{waited:?}");
}

#[test]
fn memory_that_was_given_back_counts_less_than_nothing() {
    let of = |ring_bytes, slab_bytes| KernelMemory {
        ring_bytes: Some(ring_bytes),
        slab_bytes,
        ..KernelMemory::default()
    };
    let (each, all) = of(10, Some(500)).grown_since(&of(30, Some(300)));
    assert_eq!(all, 180);
    let named = |wanted: &str| each.iter().find(|(name, _)| *name == wanted).unwrap().1;
    assert_eq!((named("ring_bytes"), named("pool_bytes")), (Some(-20), None));
    assert_eq!(of(10, None).grown_since(&of(30, Some(300))).1, -20, "what is unknown adds nothing");
}

#[test]
fn another_thread_can_be_watched_until_it_ends() {
    let (tell, told) = mpsc::channel();
    let (worked, may_end) = (Barrier::new(2), Barrier::new(2));
    let mut sampler = std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            tell.send(ThreadId::current()).expect("the test lives");
            work_for(Duration::from_millis(30));
            worked.wait();
            may_end.wait();
            ThreadUsage::current()
        });
        let mut sampler = ThreadSampler::new(told.recv().expect("told")).expect("it lives");
        worked.wait();
        let seen = sampler.read().expect("it lives");
        assert!(seen.cpu_ns >= Some(30_000_000), "{seen:?}");
        may_end.wait();
        let own = worker.join().expect("no panic");
        assert!(seen.cpu_ns <= own.cpu_ns, "{seen:?} {own:?}");
        assert!(seen.voluntary_switches <= own.voluntary_switches, "{seen:?} {own:?}");
        sampler
    });
    // Joining is told of the end a moment before the kernel lets go of the thread.
    let end = Instant::now() + DEADLINE;
    while cfg!(target_os = "linux") && sampler.read().is_ok() {
        assert!(Instant::now() < end, "the thread ended, yet its figures are there");
        std::thread::yield_now();
    }
}

#[test]
fn there_is_no_thread_of_that_number() {
    let none = ThreadId(u64::from(u32::MAX >> 1));
    let error = ThreadSampler::new(none).expect_err("no such thread").to_string();
    assert!(error.contains("2147483647"), "{error}");
}

#[test]
fn a_process_holds_what_it_touched() {
    const BYTES: usize = 32 << 20;
    let mut sampler = Sampler::new();
    let before = sampler.process();
    let touched = std::hint::black_box(vec![1u8; BYTES]);
    work_for(Duration::from_millis(5));
    let after = sampler.process();
    let used = after.since(&before);
    assert!(used.cpu_ns >= Some(5_000_000), "{used:?}");
    assert!(after.peak_resident_bytes >= Some(BYTES as u64), "{after:?}");
    assert!(after.resident_bytes <= after.peak_resident_bytes, "{after:?}");
    assert_ne!(used.minor_faults, Some(0), "{used:?}");
    assert_eq!(touched.len(), BYTES);
}

#[test]
fn datagrams_to_a_full_socket_are_dropped_there_and_counted() {
    let receiver = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket2::SockRef::from(&receiver).set_recv_buffer_size(4096).expect("a small buffer");
    let sender = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let to = receiver.local_addr().expect("an address");
    let mut sampler = Sampler::new();
    let (system, socket) = (sampler.system(), SocketUsage::of(&receiver).expect("a socket"));
    const SENT: u64 = 100;
    for _ in 0..SENT {
        sender.send_to(&[0; 1024], to).expect("sent");
    }
    receiver.set_read_timeout(Some(DEADLINE)).expect("a timeout");
    receiver.peek(&mut [0; 1024]).expect("the first datagram");
    let full = SocketUsage::of(&receiver).expect("a socket");
    let Some(drops_before) = socket.drops else {
        assert_eq!(full.receive_buffer_bytes, None, "where drops are not known, that is not");
        return assert!(full.queued_bytes >= Some(1024), "{full:?}");
    };
    assert!(full.queued_bytes > Some(1024), "{full:?}");
    assert!(full.receive_buffer_bytes >= Some(4096), "{full:?}");

    // A busy kernel delivers a moment after the send: received and dropped together reach
    // what was sent, sooner or later.
    receiver.set_nonblocking(true).expect("a socket");
    let end = Instant::now() + DEADLINE;
    let (mut received, mut drops) = (0, 0);
    while received + drops < SENT {
        assert!(Instant::now() < end, "of {SENT}: {received} received, {drops} dropped");
        received += u64::from(receiver.recv(&mut [0; 1024]).is_ok());
        drops = SocketUsage::of(&receiver).expect("a socket").drops.expect("drops") - drops_before;
    }
    assert_eq!(received + drops, SENT);
    assert_eq!(SocketUsage::of(&receiver).expect("a socket").queued_bytes, Some(0));
    let system = sampler.system().since(&system);
    assert!(system.udp4.receive_buffer_errors >= Some(drops), "{system:?}");
    assert!(system.udp4.out_datagrams >= Some(SENT), "{system:?}");
}

/// On Linux nothing that `/proc` always has may be missing.
#[test]
fn a_machine_counts() {
    let mut sampler = Sampler::new();
    let before = sampler.system();
    work_for(Duration::from_millis(30));
    let used = sampler.system().since(&before);
    assert_eq!(used.softnet.len(), before.softnet.len());
    assert_eq!(used.udp(), used.udp4.plus(&used.udp6));
    if cfg!(target_os = "linux") {
        assert!(!used.cores.is_empty() && !used.softnet.is_empty());
        assert!(used.total.interrupts.is_some() && used.total.softirqs.is_some(), "{used:?}");
        assert!(used.total.udp_memory_bytes.is_some() && used.total.slab_bytes.is_some());
        assert!(used.softnet_total().dropped.is_some());
        let all = used.cores_total();
        assert!(all.busy_ns() > Some(0) && all.busy_ns() <= all.total_ns(), "{all:?}");
    }
}

#[test]
fn a_core_that_came_in_between_has_no_difference() {
    let of = |core, processed| OfCore {
        core,
        usage: SoftnetUsage { processed: Some(processed), ..SoftnetUsage::default() },
    };
    let earlier = SystemUsage { softnet: vec![of(2, 5)], ..SystemUsage::default() };
    let later = SystemUsage { softnet: vec![of(0, 7), of(2, 9)], ..SystemUsage::default() };
    assert_eq!(later.since(&earlier).softnet, vec![of(2, 4)]);
    assert_eq!(later.softnet_total().processed, Some(16));
}

#[test]
fn the_kernels_part_may_be_rougher_than_the_sum() {
    let cpu = |cpu_ns, cpu_system_ns| ThreadUsage { cpu_ns, cpu_system_ns, ..Default::default() };
    assert_eq!(cpu(Some(10), Some(4)).cpu_user_ns(), Some(6));
    assert_eq!(cpu(Some(10), Some(12)).cpu_user_ns(), Some(0));
    assert_eq!(cpu(Some(10), None).cpu_user_ns(), None);
    assert_eq!(cpu(None, Some(10)).cpu_user_ns(), None);
}

#[test]
fn sockets_are_counted_by_their_address() {
    let receiver = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let address = receiver.local_addr().expect("its address");
    let sender = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let Some(before) = SocketUsage::bound_to(&[address]) else { return }; // not on this OS
    assert_eq!((before.drops, before.queued_bytes), (Some(0), Some(0)));
    // More than any buffer holds, of which nothing is read.
    for _ in 0..10_000 {
        sender.send_to(&[0; 1024], address).expect("sent");
    }
    let after = SocketUsage::bound_to(&[address]).expect("known before");
    assert_eq!(after.drops, SocketUsage::of(&receiver).expect("its figures").drops);
    assert!(after.drops > Some(0) && after.queued_bytes > Some(0), "{after:?}");
    let each = SocketUsage::each_bound_to(&[address]).expect("known before");
    assert!(each.len() == 1 && each[0].inode > 0, "{each:?}");
    assert_eq!(SocketUsage::bound_to(&[([127, 0, 0, 1], 1).into()]), Some(SocketUsage::default()));
}

/// A process that binds a socket, uses its core, says so, and waits for the end of its input.
#[cfg(target_os = "linux")]
#[test]
fn another_process_is_read_from_outside() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    let script = "import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('127.0.0.1', 0))
sum(range(1000000))
print(s.getsockname()[1], flush=True)
sys.stdin.read()";
    let program = Command::new("python3")
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut child) = program else {
        eprintln!("skipped: there is no python3 here");
        return;
    };
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let port: u16 = line.trim().parse().unwrap();
    let mut other = OtherProcess::new(child.id()).unwrap();
    let usage = other.usage();
    assert!(usage.cpu_ns > Some(1_000_000), "{usage:?}");
    assert!(usage.resident_bytes > Some(0) && usage.voluntary_switches.is_some(), "{usage:?}");
    let threads = other.threads();
    assert_eq!(threads.len() as u64, usage.threads.unwrap());
    assert!(threads[0].usage.cpu_ns > Some(1_000_000), "{threads:?}");
    assert_eq!(other.udp_sockets(), Some(vec![([127, 0, 0, 1], port).into()]));
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    assert_eq!(other.usage().cpu_ns, None, "it is gone");
    assert!(OtherProcess::new(u32::MAX >> 2).is_err(), "there is none of that number");
}
