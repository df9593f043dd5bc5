//! Every byte that is sent comes back, in order, whatever it was cut into.

use super::{
    client::{Client, Random, clients, verify},
    machine,
    support::*,
};
use std::{
    io::{Read, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener},
    thread,
};
use weir::{
    Error,
    counters::stream::Snapshot,
    tcp::{Handler, MOST_BUFFER_BYTES, Output, Server},
};

pub const CHECKS: &[Check] = &[
    ("one_connection", one_connection),
    ("many_connections", many_connections),
    ("thousands_of_connections", thousands_of_connections),
    ("one_byte_at_a_time", one_byte_at_a_time),
    ("buffers_of_any_size", buffers_of_any_size),
    ("ipv4_and_ipv6", ipv4_and_ipv6),
    ("both_families_on_one_port", both_families_on_one_port),
    ("a_setting_has_one_value", a_setting_has_one_value),
    ("speaks_first", speaks_first),
    ("sends_more_than_it_receives", sends_more_than_it_receives),
    ("echoes_before_it_sends", echoes_before_it_sends),
    ("sends_what_goes_when_something_went", sends_what_goes_when_something_went),
];

const MIB: u64 = 1 << 20;

fn assert_echoed(total: &Snapshot, connections: u64, bytes: u64) {
    assert_eq!((total.accepted, total.closed_finished), (connections, connections));
    assert_eq!((total.bytes_received, total.bytes_sent), (bytes, bytes));
    assert_eq!((total.refused, total.output_refused, total.bytes_discarded), (0, 0, 0));
}

fn one_connection(subject: &Subject) -> Result<(), Skipped> {
    let (server, log) = subject.echo(&server());
    let mut client = Client::connect(server.local_addresses()[0], 1);
    let bytes = MIB * u64::from(depth(16));
    client.exchange(bytes, &mut Random(1));
    drop(client);
    assert_echoed(&stop(server, &log), 1, bytes);
    Ok(())
}

fn many_connections(subject: &Subject) -> Result<(), Skipped> {
    let (server, log) = subject.echo(&server());
    let mut clients = clients(64, server.local_addresses()[0]);
    let bytes = u64::from(depth(256 * 1024));
    thread::scope(|scope| {
        for (number, client) in clients.iter_mut().enumerate() {
            scope.spawn(move || client.exchange(bytes, &mut Random(number as u64)));
        }
    });
    drop(clients);
    assert_echoed(&stop(server, &log), 64, 64 * bytes);
    Ok(())
}

/// Both ends of each connection are in this process.
fn thousands_of_connections(subject: &Subject) -> Result<(), Skipped> {
    let most = machine::most_descriptors().unwrap_or(4096);
    let count = match most {
        4100.. => depth(2000) as usize,
        2100.. => depth(1000) as usize,
        _ => return Err(Skipped(format!("{most} descriptors are too few for 1000 connections"))),
    };
    let (server, log) = subject.echo(&server());
    let mut clients = clients(count, server.local_addresses()[0]);
    let mut random = Random(2000);
    let mut bytes = 0;
    for _ in 0..2 {
        // All of them have something under way at a time.
        let sizes: Vec<_> = clients.iter().map(|_| random.size(4096)).collect();
        bytes += sizes.iter().sum::<usize>() as u64;
        let each = || sizes.iter().copied();
        clients.iter_mut().zip(each()).for_each(|(client, size)| client.send(size));
        clients.iter_mut().zip(each()).for_each(|(client, size)| client.expect(size));
    }
    assert_eq!(server.open() as usize, count);
    drop(clients);
    assert_echoed(&stop(server, &log), count as u64, bytes);
    Ok(())
}

fn one_byte_at_a_time(subject: &Subject) -> Result<(), Skipped> {
    let (server, log) = subject.echo(&server());
    let mut client = Client::connect(server.local_addresses()[0], 1);
    for _ in 0..500 {
        client.send(1);
        client.expect(1);
    }
    // And as many as the system takes before anything is read.
    (0..5000).for_each(|_| client.send(1));
    client.expect(5000);
    drop(client);
    assert_echoed(&stop(server, &log), 1, 5500);
    Ok(())
}

fn buffers_of_any_size(subject: &Subject) -> Result<(), Skipped> {
    for (buffer_bytes, bytes) in [(1, 5000), (13, 100_000), (MIB as usize, 4 * MIB)] {
        let (server, log) = subject.echo(&server().buffer_bytes(buffer_bytes));
        let mut client = Client::connect(server.local_addresses()[0], 1);
        client.exchange(bytes, &mut Random(3));
        drop(client);
        let total = stop(server, &log);
        assert_echoed(&total, 1, bytes);
        assert!(total.messages >= bytes / buffer_bytes as u64);
    }
    for buffer_bytes in [0, MOST_BUFFER_BYTES + 1] {
        match subject.try_start(&server().buffer_bytes(buffer_bytes), |_| echo) {
            Err(Error::Option { name, .. }) => assert_eq!(name, "buffer"),
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("a buffer of {buffer_bytes} bytes was allowed"),
        }
    }
    Ok(())
}

fn ipv4_and_ipv6(subject: &Subject) -> Result<(), Skipped> {
    let local = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
    if let Err(e) = TcpListener::bind(local) {
        return Err(Skipped(format!("there is no IPv6 here: {e}")));
    }
    let (server, log) = subject.echo(&server().and_bind(local));
    let addresses = server.local_addresses().to_vec();
    let families: Vec<_> = addresses.iter().map(SocketAddr::is_ipv6).collect();
    assert_eq!(families, [false, true], "in the order asked for");
    let mut clients = Vec::new();
    for (number, &address) in addresses.iter().cycle().take(8).enumerate() {
        let mut client = Client::connect(address, number as u64);
        client.ping();
        clients.push(client);
    }
    for client in &mut clients {
        client.exchange(50_000, &mut Random(4));
    }
    let theirs: Vec<_> = clients.iter().map(Client::address).collect();
    drop(clients);
    theirs.iter().for_each(|&address| assert_eq!(log.wait_for_ending(address), How::Finished));
    assert_echoed(&stop(server, &log), 8, 8 * 50_100);
    Ok(())
}

/// Every address of IPv4 and every one of IPv6, in either order.
fn both_families_on_one_port(subject: &Subject) -> Result<(), Skipped> {
    let (four, six) = (IpAddr::from([0; 4]), IpAddr::from([0u16; 8]));
    if let Err(e) = TcpListener::bind((six, 0)) {
        return Err(Skipped(format!("there is no IPv6 here: {e}")));
    }
    for both in [[four, six], [six, four]] {
        let bind = |port| {
            let [first, second] = both.map(|ip| SocketAddr::from((ip, port)));
            let server = Server::bind(first).and_bind(second).limits(limits());
            subject.try_start(&server, |_| echo)
        };
        let free = || TcpListener::bind((six, 0)).and_then(|socket| socket.local_addr());
        let (server, log) = super::free_port::on_a_free_port(free, bind);
        let port = server.local_addresses()[0].port();
        assert_eq!(server.local_addresses(), both.map(|ip| SocketAddr::from((ip, port))));
        for to in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
            let mut client = Client::connect((to, port).into(), 1);
            client.ping();
            let address = client.address();
            drop(client);
            assert_eq!(log.wait_for_ending(address), How::Finished, "as its own family writes it");
        }
        stop(server, &log);
    }
    Ok(())
}

fn a_setting_has_one_value(subject: &Subject) -> Result<(), Skipped> {
    let (server, log) = subject.echo(&server());
    let effective = server.effective();
    let mut names: Vec<_> = effective.iter().map(|(name, _)| name).collect();
    names.sort();
    assert!(names.windows(2).all(|two| two[0] != two[1]), "a name is told twice: {effective:?}");
    // 0 often stands for what weir chooses, and that is told then.
    for asked in subject.design().values().into_iter().filter(|(_, value)| value != "0") {
        assert!(effective.contains(&asked), "{asked:?} is not told: {effective:?}");
    }
    stop(server, &log);
    Ok(())
}

/// Says something before it was spoken to, and finishes.
struct Greets;

impl Handler for Greets {
    fn on_connect(&mut self, _: SocketAddr, output: &mut Output<'_>) {
        output.send(b"welcome ").expect("there is room");
        output.send(b"and farewell").expect("there is room");
        output.finish();
    }

    fn on_receive(&mut self, _: &mut [u8], _: &mut Output<'_>) {
        unreachable!("a server that has finished hears nothing");
    }
}

fn speaks_first(subject: &Subject) -> Result<(), Skipped> {
    let (server, log) = subject.start(&server(), |_| Greets);
    let client = Client::connect(server.local_addresses()[0], 0);
    let mut said = String::new();
    (&client.stream).read_to_string(&mut said).unwrap();
    assert_eq!(said, "welcome and farewell");
    drop(client);
    assert_eq!(stop(server, &log).closed_finished, 1);
    Ok(())
}

/// Sends each byte three times, in pieces, as fast as there is room; what there is no room for it
/// keeps.
#[derive(Default)]
struct Trebles {
    kept: Vec<u8>,
    ended: bool,
}

impl Trebles {
    fn go_on(&mut self, output: &mut Output<'_>) {
        let count = self.kept.len().min(output.room());
        for piece in self.kept[..count].chunks(997) {
            output.send(piece).expect("there is room");
        }
        self.kept.drain(..count);
        if self.ended && self.kept.is_empty() {
            output.finish();
        }
    }
}

impl Handler for Trebles {
    fn on_receive(&mut self, bytes: &mut [u8], output: &mut Output<'_>) {
        self.kept.extend(bytes.iter().flat_map(|&byte| [byte; 3]));
        self.go_on(output);
    }

    fn on_sent(&mut self, _: usize, output: &mut Output<'_>) {
        self.go_on(output);
    }

    fn on_end(&mut self, output: &mut Output<'_>) {
        self.ended = true;
        self.go_on(output);
    }
}

fn sends_more_than_it_receives(subject: &Subject) -> Result<(), Skipped> {
    let limits = limits().output_bytes(32 * 1024);
    let (server, log) = subject.start(&server_with(limits), |_| Trebles::default());
    let mut client = Client::connect(server.local_addresses()[0], 5);
    let bytes = client.next(MIB as usize);
    let mut back = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            (&client.stream).write_all(&bytes).unwrap();
            client.end_sending();
        });
        (&client.stream).read_to_end(&mut back).unwrap();
    });
    assert_eq!(back.len() as u64, 3 * MIB);
    assert!(back.chunks(3).all(|three| three == [three[0]; 3]));
    let once: Vec<_> = back.iter().copied().step_by(3).collect();
    verify(5, 0, &once);
    drop(client);
    let total = stop(server, &log);
    assert_eq!((total.bytes_sent, total.output_refused), (3 * MIB, 0));
    assert_bounded(&log, limits);
    Ok(())
}

/// Sends back what it receives, without the top bit of each byte, and then how many bytes those
/// were, in bytes with a top bit. Where there is no room for the number it is added to the next.
#[derive(Default)]
struct Counts {
    untold: u64,
}

/// Seven bits a byte.
fn number(count: u64) -> [u8; 5] {
    std::array::from_fn(|i| 0x80 | (count >> (7 * i)) as u8)
}

impl Counts {
    fn tell(&mut self, output: &mut Output<'_>) {
        if self.untold > 0 && output.send(&number(self.untold)).is_ok() {
            self.untold = 0;
        }
    }
}

impl Handler for Counts {
    fn on_receive(&mut self, bytes: &mut [u8], output: &mut Output<'_>) {
        output.echo().expect("nothing was sent before");
        bytes.iter_mut().for_each(|byte| *byte &= 0x7f);
        self.untold += bytes.len() as u64;
        self.tell(output);
    }

    fn on_end(&mut self, output: &mut Output<'_>) {
        self.tell(output);
        output.finish();
    }
}

fn echoes_before_it_sends(subject: &Subject) -> Result<(), Skipped> {
    // The reader begins late, so that echoes find output that waits already.
    let limits = limits().output_bytes(64 * 1024);
    let (server, log) = subject.start(&server_with(limits), |_| Counts::default());
    let mut client = Client::connect(server.local_addresses()[0], 6);
    let bytes = client.next(8 * MIB as usize);
    let mut back = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            (&client.stream).write_all(&bytes).unwrap();
            client.end_sending();
        });
        until("a pause of the server", || server.counters().pauses > 0);
        (&client.stream).read_to_end(&mut back).unwrap();
    });
    let (mut echoed, mut told, mut numbers) = (Vec::new(), 0, 0);
    let mut rest = &*back;
    while !rest.is_empty() {
        let plain = rest.iter().take_while(|&&byte| byte < 0x80).count();
        echoed.extend_from_slice(&rest[..plain]);
        let counted = &rest[plain..][..5];
        let count = counted.iter().rev().fold(0, |sum, byte| sum << 7 | u64::from(byte & 0x7f));
        told += count;
        numbers += 1;
        assert_eq!(told, echoed.len() as u64, "after number {numbers}");
        rest = &rest[plain + 5..];
    }
    assert!(numbers > 1);
    let plain: Vec<u8> = bytes.iter().map(|byte| byte & 0x7f).collect();
    assert!(echoed == plain);
    drop(client);
    assert_eq!(stop(server, &log).closed_finished, 1);
    Ok(())
}

/// Answers one byte with very much: a piece each time that the last one went.
struct Pours {
    left: usize,
}

const PIECE: usize = 10_000;

impl Pours {
    fn pour(&mut self, output: &mut Output<'_>) {
        while self.left > 0 && output.room() >= PIECE && output.waiting() < PIECE {
            output.send(&[7; PIECE]).expect("there is room");
            self.left -= 1;
        }
    }
}

impl Handler for Pours {
    fn on_receive(&mut self, _: &mut [u8], output: &mut Output<'_>) {
        self.pour(output);
    }

    fn on_sent(&mut self, _: usize, output: &mut Output<'_>) {
        self.pour(output);
    }

    fn on_end(&mut self, _: &mut Output<'_>) {
        // What is left still goes, and the server finishes after it.
    }
}

fn sends_what_goes_when_something_went(subject: &Subject) -> Result<(), Skipped> {
    const PIECES: usize = 1000;
    let limits = limits().output_bytes(2 * PIECE);
    let (server, log) = subject.start(&server_with(limits), |_| Pours { left: PIECES });
    let mut client = Client::connect(server.local_addresses()[0], 7);
    client.send(1);
    client.end_sending();
    let mut back = Vec::new();
    (&client.stream).read_to_end(&mut back).unwrap();
    assert!(back.len() == PIECES * PIECE && back.iter().all(|&byte| byte == 7));
    drop(client);
    assert_eq!(stop(server, &log).closed_finished, 1);
    Ok(())
}
