//! A queue that a reactor of the program's own waits for: epoll, told of edges alone, as the reactors of executors are.

#![cfg(target_os = "linux")]

#[path = "suite/receive.rs"]
mod receive;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use receive::receive;
use std::{
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    time::{Duration, Instant},
};
use weir::{
    Error,
    counters::Counters,
    memory::{Region, RegionOptions},
    rio::{
        Batch, Choice, CompletionQueue, HandOver, Needs, OnProvider, OneThread, Opened, Outcome,
        Peer, Provider, RequestQueue, Started,
    },
    socket::Endpoint,
};

/// Time limits only catch hangs.
const PATIENCE_MS: u16 = 60_000;
const PATIENCE: Duration = Duration::from_millis(PATIENCE_MS as u64);

/// Receives and sends, and waits by epoll whenever there is nothing.
struct Watching;

impl OnProvider for Watching {
    type Output = Result<(), Error>;

    fn on<P>(self, provider: P) -> Self::Output
    where
        P: Provider<OneThread> + Provider<HandOver>,
        <P as Provider<HandOver>>::Cq: Send,
        <P as Provider<HandOver>>::Rq: Send,
    {
        Self::watch(provider)
    }
}

impl Watching {
    fn watch(provider: impl Provider<HandOver>) -> Result<(), Error> {
        let needs = Needs {
            payload: 100,
            receives: 8,
            sends: 8,
            per_dequeue: 16,
            offload: false,
            meta: false,
        };
        let region = Region::new(provider.layout(&needs)?, 16, RegionOptions::default())?;
        let at = Endpoint::from(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        let opened = provider.open(&[at], &region, &needs)?;
        let address = opened.local_addresses()[0];
        let Started { mut completions, mut requests, .. } = provider.start(opened)?;
        let counters = Counters::default();
        let queue = &mut requests[0];
        for _ in 0..needs.receives {
            queue.receive(region.take().unwrap()).unwrap();
        }
        queue.commit(&counters).unwrap();

        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
        let watched = completions.watched();
        assert_eq!(watched.len(), 1, "one socket, or one ring");
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLET;
        epoll.add(&watched[0], EpollEvent::new(flags, 0)).unwrap();

        let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut batch = Batch::new(16);
        for number in 0..50u8 {
            // Nothing is there, and nothing is told that was there before.
            while completions.prepare_to_wait(&counters).unwrap() {
                completions.dequeue(&mut batch, &counters).unwrap();
                for completion in batch.drain() {
                    assert!(matches!(completion.outcome, Outcome::Sent(_)), "{completion:?}");
                }
            }
            while epoll.wait(&mut [EpollEvent::empty()], EpollTimeout::ZERO).unwrap() > 0 {}
            client.send_to(&[number; 10], address).unwrap();
            let mut received = None;
            while received.is_none() {
                let mut events = [EpollEvent::empty()];
                // An interrupted wait is one of the ways in which io_uring tells of work.
                match epoll.wait(&mut events, EpollTimeout::from(PATIENCE_MS)) {
                    Ok(told) => assert!(told > 0, "datagram {number}: nothing was told"),
                    Err(nix::errno::Errno::EINTR) => {}
                    Err(e) => panic!("{e}"),
                }
                loop {
                    completions.dequeue(&mut batch, &counters).unwrap();
                    for completion in batch.drain() {
                        match completion.outcome {
                            Outcome::Received(_) => received = Some(completion),
                            other => assert!(matches!(other, Outcome::Sent(_)), "{other:?}"),
                        }
                    }
                    if !completions.prepare_to_wait(&counters).unwrap() {
                        break;
                    }
                }
            }
            let completion = received.unwrap();
            let source = completion.source().unwrap();
            assert_eq!(source, client.local_addr().unwrap());
            assert_eq!(completion.slice.payload()[..10], [number; 10]);
            queue.receive(completion.slice).unwrap();
            queue.send(region.take().unwrap(), 1, &Peer::from(source)).unwrap();
            queue.commit(&counters).unwrap();
            assert_eq!(receive(&client, &mut [0; 10]).unwrap(), (1, address));
        }
        let stopped = completions.stop(requests, Instant::now() + PATIENCE);
        assert_eq!(stopped.missing, 0);
        assert_eq!(region.in_pool(), region.count());
        Ok(())
    }
}

#[test]
fn every_edge_is_told_once_there_was_nothing() {
    for choice in Choice::ALL.iter().filter(|choice| choice.reaches_loopback()) {
        match choice.with(Watching) {
            Ok(Ok(())) => {}
            Err(why) | Ok(Err(Error::Unavailable(why))) => eprintln!("skipped: {why}"),
            Ok(Err(error)) => panic!("{choice}: {error}"),
        }
    }
}
