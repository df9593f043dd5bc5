//! What the suite asks of the system about its own process, where the system tells (Linux).

use std::{
    collections::HashMap,
    fs,
    net::{SocketAddr, TcpStream},
};

/// Descriptors that the checks are left with: enough for 2000 connections with both ends in one
/// process, and few enough to be used up by the check that does so.
#[cfg(target_os = "linux")]
const MOST_DESCRIPTORS: u64 = 8192;

/// Starts this program again with fewer descriptors, where it may have more.
#[cfg(target_os = "linux")]
pub fn confine() {
    use std::{os::unix::process::CommandExt as _, process::Command};
    use weir_confine::{Confinement, Resource};

    if most_descriptors().is_none_or(|most| most <= MOST_DESCRIPTORS) {
        return;
    }
    let program = std::env::current_exe().expect("this program has a path");
    let mut command = Command::new(program);
    command.args(std::env::args_os().skip(1));
    let confinement = Confinement::new().limit(Resource::Descriptors, MOST_DESCRIPTORS);
    let error = confinement.confine(&mut command).exec();
    panic!("the suite cannot be started with fewer descriptors: {error}");
}

#[cfg(not(target_os = "linux"))]
pub fn confine() {}

/// The most that may be.
pub fn most_descriptors() -> Option<u64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(u64::MAX),
        most => most.parse().ok(),
    }
}

/// Threads of this process.
pub fn threads() -> Option<usize> {
    Some(fs::read_dir("/proc/self/task").ok()?.count())
}

/// Bytes that each client sent and that the server's system has not acknowledged (`tx_queue` in
/// proc_pid_net(5)). For IPv4. All are looked up at once: the table may be long.
pub fn unacknowledged(clients: &[&TcpStream]) -> Option<Vec<u64>> {
    let table = fs::read_to_string("/proc/net/tcp").ok()?;
    let mut waiting = HashMap::new();
    for line in table.lines() {
        let fields: Vec<_> = line.split_whitespace().take(5).collect();
        if let [_, local, remote, _, queues] = fields[..] {
            waiting.insert((local.to_owned(), remote.to_owned()), queues);
        }
    }
    let hex = |address: SocketAddr| match address {
        SocketAddr::V4(v4) => {
            format!("{:08X}:{:04X}", u32::from_ne_bytes(v4.ip().octets()), v4.port())
        }
        SocketAddr::V6(_) => unreachable!("IPv4 was asked for"),
    };
    let of = |client: &&TcpStream| {
        let ends = (hex(client.local_addr().ok()?), hex(client.peer_addr().ok()?));
        let (sent, _) = waiting.get(&ends)?.split_once(':')?;
        u64::from_str_radix(sent, 16).ok()
    };
    clients.iter().map(of).collect()
}
