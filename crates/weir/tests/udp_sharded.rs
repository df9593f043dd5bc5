//! `rio-sharded` where the core that receives a datagram decides who gets it.

#[path = "../src/required.rs"]
mod required;

use required::cannot_run;
use std::{
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    sync::mpsc,
    thread,
    time::Duration,
};
use weir::{
    affinity::{allowed_cores, current_core, pin_current_thread},
    udp::{AnyDesign, Datagram, Replies, RioSharded, Server},
};

/// What both tests give to a server, as one type: each is all designs on all providers, compiled.
type Handle = Box<dyn FnMut(Datagram<'_>, &mut Replies<'_>) + Send>;

/// Far more than anything here takes.
const LONG: Duration = Duration::from_secs(60);

/// Datagrams sent from each core.
const EACH: usize = 50;

/// The design with so many threads, to which the receiving cores lead.
fn steered(threads: u32) -> AnyDesign {
    let outstanding = 256 * threads;
    let mut design =
        AnyDesign::from(RioSharded::default().threads(threads).outstanding(outstanding));
    design.set("steering", "core").expect("a name of the option");
    design
}

/// Whether the numbers of these cores, modulo how many they are, differ.
fn lead_to_every_thread(cores: &[usize]) -> bool {
    (0..cores.len()).all(|thread| cores.iter().any(|core| core % cores.len() == thread))
}

#[test]
fn a_datagram_is_handled_on_the_core_that_received_it() {
    let cores = allowed_cores();
    if cores.len() < 2 || !lead_to_every_thread(&cores) {
        return eprintln!("not run: cores {cores:?} may be used; it takes 2, next to each other");
    }
    let threads = cores.len() as u32;
    let design = steered(threads);
    if cannot_run(design.about().name, design.availability()) {
        return;
    }
    let (told, seen) = mpsc::channel();
    let make = move |thread: usize| -> Handle {
        let told = told.clone();
        Box::new(move |datagram, _| {
            let from = usize::from(datagram.bytes[0]);
            let _ = told.send((from, current_core(), thread));
        })
    };
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let server = Server::bind(any).start(design, make).unwrap();
    let to = server.local_addresses()[0];
    for (index, core) in cores.iter().copied().enumerate() {
        // On loopback the core that sends receives as well.
        let send = move || {
            pin_current_thread(core).unwrap();
            for _ in 0..EACH {
                // Many flows, so that a hash would spread them.
                let socket = UdpSocket::bind(any).unwrap();
                socket.send_to(&[index as u8], to).unwrap();
            }
        };
        thread::spawn(send).join().unwrap();
        for _ in 0..EACH {
            let (from, on, thread) = seen.recv_timeout(LONG).expect("a datagram");
            assert_eq!((from, on), (index, Some(core)), "handled by thread {thread}");
            assert_eq!(thread, core % cores.len());
        }
    }
    let report = server.stop();
    assert!(report.failure.is_none() && report.total().datagrams == (EACH * cores.len()) as u64);
}

#[test]
fn threads_that_no_core_leads_to_are_refused() {
    let threads = allowed_cores().len() as u32 + 1;
    let design = steered(threads);
    if cannot_run(design.about().name, design.availability()) {
        return;
    }
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let sink = |_| -> Handle { Box::new(|_, _| ()) };
    let Err(error) = Server::bind(any).start(design, sink).map(drop) else {
        panic!("a thread waits for what never comes");
    };
    assert!(error.to_string().contains("steering"), "{error}");
}
