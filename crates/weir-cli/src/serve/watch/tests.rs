use std::{
    net::{Ipv4Addr, UdpSocket},
    sync::mpsc,
    thread,
};

use weir::udp::{AnyDesign, Server};
use weir_load::control::RunAsk;

use super::*;
use crate::serve::handler::Labour;

/// A run was once ended, and said to have received nothing, while its datagrams lay in the socket of a server that was
/// given no core: on Windows nobody looked there, and nothing was missing where drops are not told.
#[test]
fn what_a_server_has_not_taken_yet_is_still_to_come() {
    const SENT: u64 = 5;
    let (audit, work) = (Audit::new(), Arc::new(Mutex::new(1)));
    let (auditors, labour) = (Arc::clone(&audit), Labour::of(&work));
    let handlers = move |_| Measured::new(auditors.auditor(), labour.clone(), None, None);
    let design = AnyDesign::parse("blocking").expect("a design of every system");
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let server = Server::bind(any).start(design, handlers).expect("loopback can be bound");
    let (events, _heard) = mpsc::channel();
    let rest = Rest::new(events.clone());
    let watch = Watch::new(server, "blocking".into(), Arc::clone(&audit), true, events, rest);
    let run = AgreedRun {
        ask: RunAsk {
            run: 7,
            flows: 1,
            size_bytes: 16, // too few for a stamp: all of that size are the run's
            datagrams_per_s: None,
            datagrams: Some(SENT),
            duration_ms: 1000,
            warm_up_ms: 0,
            warm_up_run: None,
            window_ms: 10,
            reply_bytes: None,
            clock_offset_ns: None,
        },
        peer: any.ip(),
        local: any.ip(),
        same_host: true,
    };
    watch.begin(&run).expect("it serves there");
    // Its thread gets no further than the first one until the work is let go.
    let held = work.lock().expect("nobody panicked");
    let sender = UdpSocket::bind(any).expect("a socket");
    for _ in 0..SENT {
        sender.send_to(&[0; 16], watch.addresses()[0]).expect("sent");
    }
    while audit.received(7) == 0 {
        thread::yield_now();
    }
    // The kernel may not have handed over the others yet.
    let left = loop {
        let left = watch.outstanding(&run, Some(SENT));
        if left.queued_bytes != Some(0) {
            break left;
        }
        thread::yield_now();
    };
    assert_eq!(left.missing, Some(SENT - 1));
    assert!(left.queued_bytes > Some(0), "{left:?}");
    assert!(watch.report().system.queued_bytes > Some(0), "the report says where they are");

    drop(held);
    while audit.received(7) < SENT {
        thread::yield_now();
    }
    let none = Outstanding { queued_bytes: Some(0), missing: Some(0) };
    assert_eq!(watch.outstanding(&run, Some(SENT)), none);
    let server = watch.take_server().expect("it runs");
    assert_eq!(server.stop().total().datagrams, SENT);
}
