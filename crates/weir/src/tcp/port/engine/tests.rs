//! A stop, where the system does not say what it has received.

use super::*;
use crate::{
    port::streams::{NativeEvents, Provider},
    required::cannot_run,
    stream::native,
    tcp::{Output, Server},
};
use std::{net::SocketAddr, os::unix::net::UnixStream, sync::mpsc};

struct Closes(mpsc::Sender<String>);

impl Handler for Closes {
    fn on_receive(&mut self, _: &mut [u8], _: &mut Output<'_>) {}

    fn on_close(&mut self, reason: &Reason) {
        self.0.send(reason.to_string()).unwrap();
    }
}

/// A connection that TCP_INFO says nothing of.
#[test]
fn a_connection_of_unknown_bytes_fails_and_does_not_finish() {
    let provider = NativeEvents::default();
    if cannot_run("port", provider.availability()) {
        return;
    }
    let peer = SocketAddr::from(([127, 0, 0, 1], 1));
    let (tell, told) = mpsc::channel();
    let job = Server::bind(peer).job(move |_| Closes(tell.clone())).unwrap();
    let mut worker = job.worker();
    let needs = Needs {
        listeners: 0,
        streams: 1,
        accepts: 0,
        receives: 1,
        sends: 1,
        packets: 1,
        threads: 1,
        concurrency: 1,
    };
    let numbers = Numbers {
        threads: 1,
        concurrency: 1,
        take: 1,
        accepts: (0, 0, 0),
        sends: 1,
        stuck: 1,
        receiving: Receiving { receives: 1, idle: Idle::Buffer, drain: 1 },
    };
    let port = provider.open(&needs).unwrap();
    let server = PortServer::of_connections(port, 1, Pool::new(64), worker.since(), numbers);
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let mut thread = join(&mut worker, &server).unwrap();
    thread.take_in(Accepted { stream: native::Stream::adopt(ours.into()), peer });
    thread.stop();
    let mut taken = Taken::new(1);
    while thread.connections() > 0 {
        thread.take(&mut taken).unwrap();
        taken.drain().for_each(|completion| thread.handle(completion).unwrap());
    }
    let reason = told.recv().unwrap();
    assert!(reason.starts_with("it broke: "), "{reason}");
    drop(thread);
    server.end(&mut worker).unwrap();
}
