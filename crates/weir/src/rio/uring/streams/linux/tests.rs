//! The provider against the kernel it runs on, over loopback.

use super::*;
use crate::{
    memory::Slice,
    required::cannot_run,
    rio::{
        Woken,
        streams::{Load, StreamId},
    },
};
use socket2::SockRef;
use std::{net::Shutdown, thread, time::Duration};

/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long to look for what must not come.
const A_WHILE: Duration = Duration::from_millis(50);

fn needs(connections: u32, receiving: Receiving) -> StreamNeeds {
    StreamNeeds { slice_bytes: 1000, connections, receiving, tables: 0, zero_copy_bytes: None }
}

fn shared(slices: u32) -> StreamNeeds {
    needs(100, Receiving::Shared { slices, idle: Idle::Receive })
}

/// Connections wait with a question whether something came.
fn asking(slices: u32) -> StreamNeeds {
    needs(100, Receiving::Shared { slices, idle: Idle::Poll })
}

fn posted(each: u32, slices: u32) -> StreamNeeds {
    needs(100, Receiving::Posted { each, slices })
}

/// A queue on loopback, and what is needed to use it.
struct Rig {
    queue: UringStreamQueue,
    at: SocketAddr,
    counters: Arc<Counters>,
    region: Arc<Region>,
    batch: Batch<StreamCompletion>,
}

/// `None` where it cannot run here.
fn rig(provider: UringStreams, needs: StreamNeeds) -> Option<Rig> {
    if cannot_run("uring", provider.availability(needs.receiving)) {
        return None;
    }
    let listener =
        Listener::bind((Ipv4Addr::LOCALHOST, 0).into(), StreamOptions::default()).unwrap();
    let at = listener.local_address();
    let counters = Arc::<Counters>::default();
    let opened = provider.open(&[listener], &needs).unwrap();
    let mut queue = provider.start(opened, &counters).unwrap().queue;
    let region = Arc::clone(&queue.slices.region);
    queue.accept();
    Some(Rig { queue, at, counters, region, batch: Batch::new(64) })
}

impl Rig {
    /// What completes next, by waiting for it.
    #[track_caller]
    fn next(&mut self) -> StreamCompletion {
        self.next_within(PATIENCE).expect("nothing completes")
    }

    fn next_within(&mut self, time: Duration) -> Option<StreamCompletion> {
        let by = Instant::now() + time;
        loop {
            // One at a time.
            let mut one = Batch::new(1);
            if self.queue.dequeue(&mut one).unwrap() > 0 {
                return one.drain().next();
            }
            let left = by.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            self.queue.wait(Some(left)).unwrap();
        }
    }

    #[track_caller]
    fn nothing_more(&mut self) {
        let more = self.next_within(A_WHILE);
        assert!(more.is_none(), "{more:?}");
    }

    #[track_caller]
    fn connect(&mut self) -> (TcpStream, StreamId) {
        let client = TcpStream::connect_timeout(&self.at, PATIENCE).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        match self.next() {
            StreamCompletion::Accepted { connection, peer, listener } => {
                assert_eq!((peer, listener), (client.local_addr().unwrap(), 0));
                (client, connection)
            }
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn received(&mut self, from: StreamId) -> (Slice, usize) {
        match self.next() {
            StreamCompletion::Received { connection, slice, len } => {
                assert_eq!(connection, from);
                (slice, len as usize)
            }
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn closed(&mut self, connection: StreamId, abrupt: bool) {
        self.queue.close(connection, abrupt);
        match self.next() {
            StreamCompletion::Closed { connection: closed } => assert_eq!(closed, connection),
            other => panic!("{other:?}"),
        }
    }

    /// Every slice comes back, and nothing is left in the kernel.
    #[track_caller]
    fn stop(self) {
        let count = self.region.count();
        let stopped = self.queue.stop(Instant::now() + PATIENCE);
        assert_eq!(stopped.missing, 0);
        assert_eq!((self.region.in_pool(), self.region.leaked()), (count, 0));
        assert_eq!(Arc::strong_count(&self.region), 1, "a slice holds its region");
    }
}

fn echo(slice: Slice, len: usize) -> Load {
    Load::Slice { slice, start: 0, end: len as u32 }
}

/// Fills a connection until nothing goes any more: the system's buffers are full on both sides.
fn until_it_waits(rig: &mut Rig, connection: StreamId) {
    loop {
        rig.queue.send(connection, vec![7; 1 << 20].into()).unwrap();
        match rig.next_within(A_WHILE) {
            Some(StreamCompletion::Sent { .. }) => {}
            None => return,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_connection_from_its_accept_to_its_end() {
    for needs in [shared(4), asking(4), posted(1, 8)] {
        let Some(mut rig) = rig(UringStreams::default(), needs) else { return };
        let (mut client, id) = rig.connect();
        assert!(rig.queue.receive(id));
        client.write_all(b"hello").unwrap();
        let (slice, len) = rig.received(id);
        assert_eq!(&slice.payload()[..len], b"hello");
        rig.queue.send(id, echo(slice, len)).unwrap();
        match rig.next() {
            StreamCompletion::Sent { connection, load: Some(Load::Slice { slice, .. }), count } => {
                assert_eq!((connection, count), (id, 5));
                rig.queue.give_back(slice);
            }
            other => panic!("{other:?}"),
        }
        let mut back = [0; 5];
        client.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"hello");
        client.shutdown(Shutdown::Write).unwrap();
        assert!(rig.queue.receive(id));
        assert!(matches!(rig.next(), StreamCompletion::Ended { connection } if connection == id));
        rig.queue.end_sending(id);
        assert!(matches!(rig.next(), StreamCompletion::EndSent { result: Ok(()), .. }));
        assert_eq!(client.read(&mut back).unwrap(), 0, "it was told the end");
        rig.closed(id, false);
        rig.stop();
    }
}

/// The first of the four bugs: nothing is freed that the kernel still uses, so a close waits for it.
#[test]
fn a_close_waits_for_what_is_under_way() {
    for needs in [shared(4), asking(4), posted(2, 8)] {
        let Some(mut rig) = rig(UringStreams::default(), needs) else { return };
        let (client, id) = rig.connect();
        assert!(rig.queue.receive(id));
        until_it_waits(&mut rig, id);
        assert_eq!(rig.queue.loads.len(), 1);
        rig.closed(id, true);
        assert_eq!(rig.queue.loads.len(), 0, "what was to be sent has come back before");
        rig.nothing_more();
        let error = loop {
            match (&client).read(&mut [0; 65_536]) {
                Ok(0) => panic!("it ended in order"),
                Ok(_) => {}
                Err(e) => break e,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        rig.stop();
    }
}

/// The second: a receive that is cancelled while something comes keeps no slice.
#[test]
fn a_cancelled_receive_keeps_no_slice() {
    [shared(64), asking(64)].into_iter().for_each(cancelled_receives);
}

fn cancelled_receives(needs: StreamNeeds) {
    let Some(mut rig) = rig(UringStreams::default(), needs) else { return };
    let (mut client, id) = rig.connect();
    client.set_nodelay(true).unwrap();
    let (mut sent, mut came) = (0, 0);
    for round in 0..500 {
        assert!(rig.queue.receive(id));
        if round % 3 > 0 {
            rig.queue.wait(Some(Duration::ZERO)).unwrap();
        }
        client.write_all(&[round as u8; 100]).unwrap();
        sent += 100;
        rig.queue.stop_receiving(id);
        let by = Instant::now() + PATIENCE;
        while came < sent && Instant::now() < by {
            match rig.next_within(Duration::from_millis(1)) {
                Some(StreamCompletion::Received { slice, len, .. }) => {
                    came += len as usize;
                    rig.queue.give_back(slice);
                }
                Some(other) => panic!("{other:?}"),
                None => assert!(rig.queue.receive(id)),
            }
        }
        assert_eq!(came, sent, "in round {round}");
        assert_eq!(rig.queue.slices(id), 64, "in round {round}");
        rig.queue.stop_receiving(id);
    }
    rig.stop();
}

#[test]
fn what_was_posted_for_a_connection_comes_back_with_its_close() {
    let Some(mut rig) = rig(UringStreams::default(), posted(4, 8)) else { return };
    let (_client, id) = rig.connect();
    for left in [7, 6, 5, 4] {
        assert!(rig.queue.receive(id));
        assert_eq!(rig.queue.slices(id), left);
    }
    rig.closed(id, false);
    assert_eq!(rig.queue.slices(id), 8);
    // Of another there can be no more posted than there are.
    let (_client, id) = rig.connect();
    assert_eq!((0..9).filter(|_| rig.queue.receive(id)).count(), 8);
    rig.stop();
}

/// The third: what names a connection that is over does not hit the one in its place.
#[test]
fn a_stale_name_hits_nothing() {
    let Some(mut rig) = rig(UringStreams::default(), shared(4)) else { return };
    let (_first, stale) = rig.connect();
    rig.closed(stale, false);
    let mut clients = Vec::new();
    let id = loop {
        let (client, id) = rig.connect();
        clients.push(client);
        if id.number == stale.number {
            break id;
        }
        assert!(clients.len() < 1000, "its place is never used again");
    };
    assert_ne!(id.generation, stale.generation);
    rig.queue.close(stale, true);
    rig.queue.end_sending(stale);
    rig.queue.ask_waiting(stale);
    assert!(rig.queue.receive(stale));
    assert!(rig.queue.send(stale, vec![1].into()).is_err());
    rig.nothing_more();
    rig.queue.send(id, vec![1].into()).unwrap();
    assert!(matches!(rig.next(), StreamCompletion::Sent { connection, .. } if connection == id));
    // While it is being closed it is stale, too.
    rig.queue.close(id, false);
    assert!(rig.queue.send(id, vec![1].into()).is_err());
    assert!(matches!(rig.next(), StreamCompletion::Closed { .. }));
    rig.stop();
}

/// The fourth: what finds no room in the submission queue waits for it, cancels included.
#[test]
fn nothing_is_lost_where_the_queue_of_requests_is_full() {
    let tiny = UringStreams { submissions: 2, ..UringStreams::default() };
    let Some(mut rig) = rig(tiny, shared(64)) else { return };
    let open: Vec<_> = (0..60).map(|_| rig.connect()).collect();
    for (_, id) in &open {
        assert!(rig.queue.receive(*id));
        rig.queue.send(*id, vec![1; 10].into()).unwrap();
        rig.queue.ask_waiting(*id);
    }
    let (mut sent, mut told) = (0, 0);
    while sent + told < 120 {
        match rig.next() {
            StreamCompletion::Sent { count: 10, .. } => sent += 1,
            StreamCompletion::Waiting { bytes: 0, .. } => told += 1,
            other => panic!("{other:?}"),
        }
    }
    open.iter().for_each(|(_, id)| rig.queue.close(*id, true));
    for _ in &open {
        assert!(matches!(rig.next(), StreamCompletion::Closed { .. }));
    }
    assert_eq!(rig.queue.rings[0].waiting_for_room(), 0);
    rig.nothing_more();
    rig.stop();
}

/// Completions that found no room in their queue come later.
#[test]
fn completions_that_overflow_are_not_lost() {
    let tiny = UringStreams { submissions: 2, ..UringStreams::default() };
    let Some(mut rig) = rig(tiny, shared(64)) else { return };
    let open: Vec<_> = (0..60).map(|_| rig.connect()).collect();
    for (_, id) in &open {
        rig.queue.send(*id, vec![1; 10].into()).unwrap();
    }
    for _ in &open {
        assert!(matches!(rig.next(), StreamCompletion::Sent { count: 10, .. }));
    }
    assert!(rig.counters.overflows.get() > 0, "60 completions, and room for 16");
    rig.stop();
}

#[test]
fn a_connection_that_finds_no_slice_is_told_so() {
    [shared(4), asking(4)].into_iter().for_each(no_slice);
}

fn no_slice(needs: StreamNeeds) {
    let Some(mut rig) = rig(UringStreams::default(), needs) else { return };
    let (mut client, id) = rig.connect();
    assert!(rig.queue.receive(id));
    client.write_all(&[1; 10_000]).unwrap();
    let mut kept = Vec::new();
    loop {
        match rig.next() {
            StreamCompletion::Received { slice, .. } => kept.push(slice),
            StreamCompletion::Starved { connection } => break assert_eq!(connection, id),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((kept.len(), rig.queue.slices(id)), (4, 0));
    assert!(rig.queue.is_short(id));
    assert_eq!(rig.counters.no_buffer.get(), 1);
    rig.nothing_more();
    kept.into_iter().for_each(|slice| rig.queue.give_back(slice));
    assert!(rig.queue.receive(id));
    let mut came = 4000;
    while came < 10_000 {
        match rig.next() {
            StreamCompletion::Received { slice, len, .. } => {
                came += len as usize;
                rig.queue.give_back(slice);
            }
            StreamCompletion::Starved { .. } => assert!(rig.queue.receive(id)),
            other => panic!("{other:?}"),
        }
    }
    rig.stop();
}

/// A thread waits in its first ring for all of them.
#[test]
fn what_comes_in_further_rings_ends_a_wait() {
    let small = UringStreams { files: 16, ..UringStreams::default() };
    let Some(mut rig) = rig(small, shared(16)) else { return };
    let mut open: Vec<_> = (0..80).map(|_| rig.connect()).collect();
    assert!(rig.queue.rings.len() > 4, "{} rings", rig.queue.rings.len());
    open.iter().for_each(|(_, id)| assert!(rig.queue.receive(*id)));
    for round in 0..3 {
        for (client, id) in &mut open {
            // The thread is asleep when it comes, or nearly.
            rig.nothing_more_at_once();
            let mut clone = client.try_clone().unwrap();
            let thread = thread::spawn(move || clone.write_all(&[round; 10]));
            let (slice, len) = rig.received(*id);
            assert_eq!(&slice.payload()[..len], &[round; 10]);
            rig.queue.send(*id, echo(slice, len)).unwrap();
            thread.join().unwrap().unwrap();
            match rig.next() {
                StreamCompletion::Sent { load: Some(Load::Slice { slice, .. }), .. } => {
                    rig.queue.give_back(slice);
                }
                other => panic!("{other:?}"),
            }
            client.read_exact(&mut [0; 10]).unwrap();
        }
    }
    for (_, id) in &open {
        rig.closed(*id, false);
    }
    rig.stop();
}

impl Rig {
    /// Empties the queue without waiting.
    fn nothing_more_at_once(&mut self) {
        assert_eq!(self.queue.dequeue(&mut self.batch).unwrap(), 0);
    }
}

/// Connections beyond the table wait where connections wait, and none is lost.
#[test]
fn a_full_table_loses_no_connection() {
    let small = UringStreams { files: 8, ..UringStreams::default() };
    let one = StreamNeeds { tables: 1, ..shared(4) };
    let Some(mut rig) = rig(small, one) else { return };
    let mut open: Vec<_> = (0..8).map(|_| rig.connect()).collect();
    let waiting: Vec<_> = (0..5).map(|_| TcpStream::connect(rig.at).unwrap()).collect();
    rig.nothing_more();
    for mut client in waiting {
        let (_, id) = open.pop().unwrap();
        rig.closed(id, false);
        let id = match rig.next() {
            StreamCompletion::Accepted { connection, peer, .. } => {
                assert_eq!(peer, client.local_addr().unwrap(), "who came first is first");
                connection
            }
            other => panic!("{other:?}"),
        };
        rig.queue.send(id, b"you".to_vec().into()).unwrap();
        assert!(matches!(rig.next(), StreamCompletion::Sent { .. }));
        client.read_exact(&mut [0; 3]).unwrap();
        open.insert(0, (client, id));
        rig.nothing_more();
    }
    assert_eq!(rig.queue.rings.len(), 1);
    rig.stop();
}

#[test]
fn dropped_without_a_stop_it_leaks_and_says_so() {
    for needs in [shared(16), asking(16), posted(2, 16)] {
        let Some(mut rig) = rig(UringStreams::default(), needs) else { return };
        let (mut client, id) = rig.connect();
        assert!(rig.queue.receive(id));
        client.write_all(&[1; 10]).unwrap();
        let (slice, len) = rig.received(id);
        // One is on its way out and cannot go, one or all are posted, one is the program's.
        rig.queue.send(id, echo(slice, len)).unwrap();
        assert!(matches!(rig.next(), StreamCompletion::Sent { .. }));
        assert!(rig.queue.receive(id));
        let Rig { queue, region, .. } = rig;
        let in_kernel = queue.in_kernel();
        assert!(in_kernel > 0);
        drop(queue);
        assert_eq!(region.leaked(), in_kernel);
        assert_eq!(region.in_pool() + region.leaked(), region.count());
    }
}

#[test]
fn it_is_told_how_much_waits_behind_what_it_received() {
    [shared(64), asking(64)].into_iter().for_each(how_much_waits);
}

fn how_much_waits(needs: StreamNeeds) {
    let Some(mut rig) = rig(UringStreams::default(), needs) else { return };
    let (mut client, id) = rig.connect();
    client.write_all(&[1; 5000]).unwrap();
    // Loopback delivers before a write returns.
    rig.queue.ask_waiting(id);
    let told = rig.next();
    assert!(matches!(told, StreamCompletion::Waiting { bytes: 5000, .. }), "{told:?}");
    // Asked while it receives, before or after: what came before the answer, and what it says, are all
    // that there was.
    let mut unread = 5000;
    for round in 0..50 {
        if round % 2 == 0 {
            assert!(rig.queue.receive(id));
        }
        rig.queue.ask_waiting(id);
        assert!(rig.queue.receive(id));
        client.write_all(&[1; 3000]).unwrap();
        unread += 3000;
        let (mut came, mut said) = (0, None);
        while said.is_none() || came < unread {
            match rig.next() {
                StreamCompletion::Received { slice, len, .. } => {
                    came += len as usize;
                    rig.queue.give_back(slice);
                }
                StreamCompletion::Waiting { bytes, .. } => said = Some(came + bytes),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(said, Some(unread), "in round {round}");
        unread = 0;
        rig.queue.stop_receiving(id);
        rig.nothing_more_at_once();
    }
    rig.stop();
}

#[test]
fn zero_copy_gives_back_what_it_sent() {
    let zero_copy = StreamNeeds { zero_copy_bytes: Some(100), ..shared(16) };
    let Some(mut rig) = rig(UringStreams::default(), zero_copy) else { return };
    let (mut client, id) = rig.connect();
    for round in 0..20u8 {
        rig.queue.send(id, vec![round; 100_000].into()).unwrap();
        let reader = {
            let mut client = client.try_clone().unwrap();
            thread::spawn(move || {
                let mut bytes = vec![0; 100_000];
                client.read_exact(&mut bytes).unwrap();
                assert!(bytes.iter().all(|&byte| byte == round));
            })
        };
        let (mut sent, mut back) = (false, false);
        while !sent || !back {
            match rig.next() {
                StreamCompletion::Sent { load: None, count: 100_000, .. } => sent = true,
                StreamCompletion::Returned { load } => {
                    assert!(matches!(&load, Load::Bytes { bytes, .. } if bytes.len() == 100_000));
                    back = true;
                }
                other => panic!("{other:?}"),
            }
        }
        reader.join().unwrap();
    }
    // Less than that is copied.
    rig.queue.send(id, vec![1; 99].into()).unwrap();
    assert!(matches!(rig.next(), StreamCompletion::Sent { load: Some(_), count: 99, .. }));
    client.read_exact(&mut [0; 99]).unwrap();
    // A close in the middle of one: it is over when the kernel no longer reads.
    until_zero_copy_waits(&mut rig, id);
    rig.queue.close(id, true);
    loop {
        match rig.next() {
            StreamCompletion::Returned { .. } => {}
            StreamCompletion::Closed { connection } => break assert_eq!(connection, id),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(rig.queue.loads.len(), 0);
    rig.stop();
}

fn until_zero_copy_waits(rig: &mut Rig, id: StreamId) {
    loop {
        if rig.queue.send(id, vec![7; 1 << 20].into()).is_err() {
            return;
        }
        let by = Instant::now() + A_WHILE;
        loop {
            match rig.next_within(by.saturating_duration_since(Instant::now())) {
                Some(StreamCompletion::Sent { .. }) => break,
                Some(StreamCompletion::Returned { .. }) => {}
                None => return,
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Several slices posted for one connection are filled in the order of the stream.
#[test]
fn what_is_posted_is_filled_in_order() {
    let Some(mut rig) = rig(UringStreams::default(), posted(4, 16)) else { return };
    let (client, id) = rig.connect();
    let bytes: Vec<u8> = (0..200_000u32).map(|n| (n / 100 % 251) as u8).collect();
    let sender = {
        let (mut client, bytes) = (client.try_clone().unwrap(), bytes.clone());
        thread::spawn(move || client.write_all(&bytes).unwrap())
    };
    (0..4).for_each(|_| assert!(rig.queue.receive(id)));
    let mut came = Vec::new();
    while came.len() < bytes.len() {
        let (slice, len) = rig.received(id);
        came.extend_from_slice(&slice.payload()[..len]);
        rig.queue.give_back(slice);
        assert!(rig.queue.receive(id));
    }
    assert!(came == bytes);
    sender.join().unwrap();
    rig.stop();
}

#[test]
fn a_reset_is_told() {
    let Some(mut rig) = rig(UringStreams::default(), shared(4)) else { return };
    let (client, id) = rig.connect();
    assert!(rig.queue.receive(id));
    SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
    drop(client);
    match rig.next() {
        StreamCompletion::Failed { connection, error } => {
            assert_eq!((connection, error.kind()), (id, io::ErrorKind::ConnectionReset));
        }
        other => panic!("{other:?}"),
    }
    rig.closed(id, false);
    rig.stop();
}

#[test]
fn a_wait_ends_in_time_and_by_a_waker() {
    let Some(mut rig) = rig(UringStreams::default(), shared(4)) else { return };
    let began = Instant::now();
    while rig.queue.wait(Some(A_WHILE)).unwrap() == Woken::Ready {
        rig.nothing_more_at_once();
    }
    assert!(began.elapsed() >= A_WHILE);
    for _ in 0..3 {
        let waker = rig.queue.waker();
        let thread = thread::spawn(move || waker.wake());
        while rig.queue.wait(Some(PATIENCE)).unwrap() != Woken::ByWaker {
            rig.nothing_more_at_once();
        }
        thread.join().unwrap();
    }
    rig.stop();
}

#[test]
fn a_listener_that_accepts_no_more_ends_accepting() {
    let Some(mut rig) = rig(UringStreams::default(), shared(4)) else { return };
    let (_client, id) = rig.connect();
    rig.queue.stop_accepting();
    rig.nothing_more();
    let _waits = TcpStream::connect(rig.at).unwrap();
    rig.nothing_more();
    rig.queue.accept();
    assert!(matches!(rig.next(), StreamCompletion::Accepted { .. }));
    rig.closed(id, false);
    rig.stop();
}

/// What a connection that is idle costs the program here; the kernel's part is its own.
#[test]
fn an_idle_connection_costs_little() {
    assert!(size_of::<one_ring::Place>() <= 24, "{} bytes", size_of::<one_ring::Place>());
}
