//! Receiving: every datagram once, whatever its size and however few slices there are.

use super::*;
use crate::{
    rio::{Woken, uring::WINDOW},
    socket::SocketOptions,
};
use std::{
    sync::{
        atomic::{AtomicU32, Ordering::Relaxed},
        mpsc,
    },
    thread,
};

under_every_form!(
    every_datagram_once_in_every_size,
    a_long_datagram_is_cut_and_says_so,
    few_slices_and_many_datagrams,
    a_flood_of_nothing,
    a_flood_is_swept_in_order,
    local_address_and_time_where_asked,
    more_slices_than_the_kernel_holds,
    a_waker_ends_a_wait,
    a_waker_ends_gathering,
    datagrams_gather,
    what_a_sweep_leaves_behind_is_known,
    a_timed_wait_ends_with_a_datagram,
    completions_that_find_no_room,
);

fn every_datagram_once_in_every_size<T: Sharing>(polling: Polling) {
    let v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, 0)).into();
    let mut rig = Rig::<T>::new(polling, NEEDS, &[loopback(), v6, loopback()]);
    assert_eq!(rig.post_shared(64), 64);
    // Two senders for each socket; bursts that fit the socket's buffer.
    let senders: Vec<_> = (0..6).map(|n| (n % 3, peer(rig.at[n % 3]))).collect();
    let addresses: Vec<_> = senders.iter().map(|(_, s)| s.local_addr().unwrap()).collect();
    for first in (0..=NEEDS.payload).step_by(20) {
        let sizes = first..(first + 20).min(NEEDS.payload + 1);
        let mut expected = Vec::new();
        for size in sizes {
            for (number, (socket, sender)) in senders.iter().enumerate() {
                sender.send_to(&payload(number, size), rig.at[*socket]).unwrap();
                expected.push((number, size));
            }
        }
        let mut got = Vec::new();
        rig.receive_each(expected.len(), |socket, bytes, arrival| {
            let number = addresses.iter().position(|&a| a == arrival.from).unwrap();
            assert_eq!(socket as usize, senders[number].0);
            assert!(bytes == payload(number, bytes.len()), "wrong bytes");
            assert!(!arrival.truncated && arrival.local.is_none() && arrival.at.is_none());
            got.push((number, bytes.len()));
        });
        // Not in order between sockets, but in order from each sender.
        for number in 0..senders.len() {
            let of = |all: &[(usize, usize)]| -> Vec<usize> {
                all.iter().filter(|(n, _)| *n == number).map(|(_, size)| *size).collect()
            };
            assert_eq!(of(&got), of(&expected));
        }
    }
    assert!(rig.counters.kernel_entries.get() > 0);
    rig.stop();
}

fn a_long_datagram_is_cut_and_says_so<T: Sharing>(polling: Polling) {
    let mut rig = Rig::<T>::new(polling, NEEDS, &[loopback()]);
    rig.post_shared(4);
    let sender = peer(rig.at[0]);
    for length in [NEEDS.payload - 1, NEEDS.payload, NEEDS.payload + 1, 60_000] {
        sender.send_to(&payload(1, length), rig.at[0]).unwrap();
        rig.receive_each(1, |_, bytes, arrival| {
            assert_eq!(bytes, payload(1, length.min(NEEDS.payload)));
            assert_eq!(arrival.truncated, length > NEEDS.payload);
        });
    }
    rig.stop();
}

fn few_slices_and_many_datagrams<T: Sharing>(polling: Polling) {
    let needs = Needs { receives: 3, ..NEEDS };
    let mut rig = Rig::<T>::new(polling, needs, &[loopback(), loopback()]);
    let senders = [peer(rig.at[0]), peer(rig.at[1])];
    // Some come before the first slice is posted.
    for number in 0..60 {
        senders[number % 2].send_to(&payload(number, 30), rig.at[number % 2]).unwrap();
    }
    let queue = &mut rig.queue;
    let woken = queue.wait(1, Some(Duration::ZERO), &rig.counters).unwrap();
    assert_ne!(woken, Woken::ByWaker);
    assert_eq!(queue.dequeue(&mut rig.batch, &rig.counters).unwrap(), 0, "nowhere to put it");
    assert_eq!(rig.post_shared(4), 3, "no more than asked for");
    let mut next = [0, 1];
    rig.receive_each(60, |socket, bytes, _| {
        assert_eq!(bytes, payload(next[socket as usize], 30));
        next[socket as usize] += 2;
    });
    assert_eq!(next, [60, 61]);
    assert!(rig.counters.no_buffer.get() >= 2, "{}", rig.counters.no_buffer.get());
    assert_eq!(rig.counters.receive_errors.get(), 0);
    rig.stop();
}

fn a_flood_of_nothing<T: Sharing>(polling: Polling) {
    let needs = Needs { receives: 8, ..NEEDS };
    let mut rig = Rig::<T>::new(polling, needs, &[loopback()]);
    rig.post_shared(8);
    let senders: Vec<_> = (0..3).map(|_| peer(rig.at[0])).collect();
    for round in 0..10 {
        for number in 0..60 {
            let bytes = &b"x"[..usize::from(number % 10 == 9)];
            senders[number % 3].send_to(bytes, rig.at[0]).unwrap();
        }
        let mut number = 0;
        rig.receive_each(60, |_, bytes, arrival| {
            assert_eq!(bytes.len(), usize::from(number % 10 == 9), "round {round}");
            assert_eq!(arrival.from, senders[number % 3].local_addr().unwrap());
            number += 1;
        });
    }
    rig.stop();
}

/// Bursts that fill the socket's buffer, taken by looking only: receives go from armed to swept
/// and back, and nothing is lost, doubled or out of order on the way.
fn a_flood_is_swept_in_order<T: Sharing>(polling: Polling) {
    const BURST: usize = 200;
    let needs = Needs { receives: 500, per_dequeue: 100, ..NEEDS };
    let mut rig = Rig::<T>::new(polling, needs, &[loopback(), loopback()]);
    rig.post_shared(500);
    let senders = [peer(rig.at[0]), peer(rig.at[1])];
    let mut swept = 0;
    for round in 0..20 {
        for number in 0..BURST {
            senders[number % 2].send_to(&payload(number, 30), rig.at[number % 2]).unwrap();
        }
        let (mut next, by) = ([0, 1], Instant::now() + PATIENCE);
        while next != [BURST, BURST + 1] {
            assert!(Instant::now() < by, "round {round}: {next:?}");
            // In some rounds a wait comes in between: what was swept is armed, and swept again.
            if round % 3 == 2 && rig.queue.sweeps() {
                rig.queue.wait(1, Some(Duration::from_millis(1)), &rig.counters).unwrap();
            }
            rig.queue.dequeue(&mut rig.batch, &rig.counters).unwrap();
            for Completion { slice, socket, outcome } in rig.batch.drain() {
                let Outcome::Received(arrival) = outcome else { panic!("{outcome:?}") };
                let next = &mut next[socket as usize];
                assert_eq!(slice.payload()[..arrival.len()], payload(*next, 30), "round {round}");
                *next += 2;
                rig.requests[socket as usize].receive(slice).unwrap();
            }
            rig.commit();
            swept += u32::from(rig.queue.sweeps());
        }
        // Quiet sockets are armed again, so that the next burst does not depend on being looked at.
        while rig.queue.sweeps() {
            assert_eq!(rig.queue.dequeue(&mut rig.batch, &rig.counters).unwrap(), 0);
        }
        rig.queue.dequeue(&mut rig.batch, &rig.counters).unwrap();
        assert_eq!(rig.queue.receives.len(), 2, "a receive armed for each socket");
    }
    assert_eq!(swept > 0, polling == Polling::Deferred, "{swept} dequeues swept");
    rig.stop();
}

fn local_address_and_time_where_asked<T: Sharing>(polling: Polling) {
    let options =
        SocketOptions { local_address: true, receive_time: true, ..SocketOptions::default() };
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
    let endpoints = [Endpoint { address: any, options }, Endpoint { address: v6, options }];
    let mut rig = Rig::<T>::new(polling, NEEDS, &[endpoints[0], endpoints[1], loopback()]);
    rig.post_shared(9);
    let to =
        [SocketAddr::from((Ipv4Addr::new(127, 0, 0, 2), rig.at[0].port())), rig.at[1], rig.at[2]];
    for (socket, &to) in to.iter().enumerate() {
        peer(to).send_to(&payload(socket, 100), to).unwrap();
        rig.receive_each(1, |at, bytes, arrival| {
            assert_eq!((at as usize, bytes), (socket, &payload(socket, 100)[..]));
            let asked = socket < 2;
            assert_eq!(arrival.local, asked.then_some(to.ip()));
            assert_eq!(arrival.at.is_some(), asked);
            if let Some(at) = arrival.at {
                let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
                assert!(now.abs_diff(at) < Duration::from_secs(60));
            }
        });
    }
    rig.stop();
}

fn more_slices_than_the_kernel_holds<T: Sharing>(polling: Polling) {
    let needs = Needs {
        payload: 64,
        receives: 150_000,
        sends: 0,
        per_dequeue: 1000,
        offload: false,
        meta: false,
    };
    let mut rig = Rig::<T>::new(polling, needs, &[loopback()]);
    assert_eq!(rig.post_shared(150_000), 150_000);
    assert_eq!(rig.requests[0].outstanding(), (150_000, 0));
    assert_eq!(rig.queue.common.with_buffers(|b| b.held()).0, WINDOW);
    let sender = peer(rig.at[0]);
    // Kept by the program, so that the window runs half empty and is topped up.
    let mut kept: Vec<Slice> = Vec::new();
    while kept.len() < 3000 {
        for number in kept.len()..kept.len() + 100 {
            sender.send_to(&payload(number, 64), rig.at[0]).unwrap();
        }
        let all = kept.len() + 100;
        while kept.len() < all {
            for completion in rig.completions() {
                assert_eq!(completion.slice.payload(), payload(kept.len(), 64));
                kept.push(completion.slice);
            }
        }
    }
    assert!(rig.queue.common.with_buffers(|b| b.held()).0 > WINDOW / 2);
    assert_eq!(rig.requests[0].outstanding(), (147_000, 0));
    drop(kept);
    assert_eq!(rig.post_shared(150_000), 3000);
    rig.stop();
}

fn a_waker_ends_a_wait<T: Sharing>(polling: Polling) {
    let mut rig = Rig::<T>::new(polling, NEEDS, &[loopback()]);
    rig.post_shared(4);
    for at_least in [1, 20, 1] {
        let waker = rig.queue.waker();
        let other = thread::spawn(move || waker.wake());
        let woken = loop {
            // What an earlier alarm left behind counts as ready: events are hints.
            match rig.queue.wait(at_least, Some(PATIENCE), &rig.counters).unwrap() {
                Woken::Ready => {
                    rig.queue.dequeue(&mut rig.batch, &rig.counters).unwrap();
                    assert!(rig.batch.is_empty());
                }
                woken => break woken,
            }
        };
        assert_eq!(woken, Woken::ByWaker);
        other.join().unwrap();
    }
    // A wake that comes before the wait ends the next one, and only that.
    rig.queue.waker().wake();
    assert_eq!(rig.queue.wait(1, None, &rig.counters).unwrap(), Woken::ByWaker);
    rig.queue.dequeue(&mut rig.batch, &rig.counters).unwrap();
    let time = Duration::from_millis(1);
    while rig.queue.wait(1, Some(time), &rig.counters).unwrap() == Woken::Ready {
        rig.queue.dequeue(&mut rig.batch, &rig.counters).unwrap();
    }
    rig.stop();
}

/// They do not end it, unless the provider can tell that there are enough.
fn datagrams_gather<T: Sharing>(polling: Polling) {
    let mut rig = Rig::<T>::new(polling, NEEDS, &[loopback()]);
    rig.post_shared(64);
    let sender = peer(rig.at[0]);
    let tells = matches!(polling, Polling::Interrupt | Polling::KernelThread);
    for round in 0..4 {
        if round % 2 == 1 {
            rig.queue.wait(1, Some(Duration::ZERO), &rig.counters).unwrap(); // armed again
        }
        for _ in 0..5 {
            sender.send_to(&[7], rig.at[0]).unwrap();
        }
        let (enough, time) =
            if tells && round > 1 { (3, FOR_EVER) } else { (64, Duration::from_millis(5)) };
        let mut came = 0;
        let by = Instant::now() + PATIENCE;
        while came < 5 {
            assert!(Instant::now() < by, "{came} came");
            let time = if came == 0 { time } else { Duration::from_millis(1) };
            let woken = rig.queue.gather(enough, time, &rig.counters).unwrap();
            assert_eq!(woken, Woken::Ready);
            came += rig.queue.dequeue(&mut rig.batch, &rig.counters).unwrap();
            for completion in rig.batch.drain().collect::<Vec<_>>() {
                rig.requests[0].receive(completion.slice).unwrap();
            }
            rig.requests[0].commit(&rig.counters).unwrap();
        }
    }
    assert!(rig.queue.gathers().contains("io_uring_enter"));
    rig.stop();
}

/// A sweep takes a run of 32 of a socket and no more, at first: the rest need not gather again.
fn what_a_sweep_leaves_behind_is_known<T: Sharing>(polling: Polling) {
    const COUNT: usize = 150;
    let needs = Needs { receives: 2 * COUNT as u32, per_dequeue: 1000, ..NEEDS };
    let mut rig = Rig::<T>::new(polling, needs, &[loopback(), loopback()]);
    if !rig.queue.gathers().contains("sweep") {
        rig.stop();
        return;
    }
    rig.post_shared(2 * COUNT);
    // Both kinds of batch: what armed receives had taken before, and what is swept.
    for at in [0, 1, 0] {
        let sender = peer(rig.at[at]);
        let time = Duration::from_millis(1);
        assert_eq!(rig.queue.gather(1000, time, &rig.counters).unwrap(), Woken::Ready);
        for _ in 0..COUNT {
            sender.send_to(&[7], rig.at[at]).unwrap();
        }
        let (mut came, mut left) = (0, 0);
        let by = Instant::now() + PATIENCE;
        while came < COUNT || rig.queue.may_have_left() {
            assert!(Instant::now() < by, "{came} came");
            came += rig.queue.dequeue(&mut rig.batch, &rig.counters).unwrap();
            left += u32::from(rig.queue.may_have_left());
            for completion in rig.batch.drain().collect::<Vec<_>>() {
                rig.requests[completion.socket as usize].receive(completion.slice).unwrap();
            }
            rig.commit();
        }
        assert_eq!(came, COUNT);
        assert!(left > 0, "they are more than a run");
    }
    rig.stop();
}

/// Also after looks at an empty queue: so a thread may sleep ahead of the datagram that it expects.
fn a_timed_wait_ends_with_a_datagram<T: Sharing>(polling: Polling) {
    let mut rig = Rig::<T>::new(polling, NEEDS, &[loopback()]);
    rig.post_shared(64);
    let (sender, to) = (peer(rig.at[0]), rig.at[0]);
    for _ in 0..20 {
        for _ in 0..3 {
            assert!(rig.look().is_empty());
        }
        thread::scope(|scope| {
            scope.spawn(|| sender.send_to(&[7], to).unwrap());
            let mut came = vec![];
            while came.is_empty() {
                let woken = rig.queue.wait(1, Some(FOR_EVER), &rig.counters).unwrap();
                assert_eq!(woken, Woken::Ready);
                came = rig.look();
            }
            rig.requests[0].receive(came.remove(0).slice).unwrap();
            rig.commit();
        });
    }
    rig.stop();
}

/// Far longer than anything here takes.
const FOR_EVER: Duration = Duration::from_secs(24 * 3600);

fn a_waker_ends_gathering<T: Sharing>(polling: Polling) {
    let mut rig = Rig::<T>::new(polling, NEEDS, &[loopback()]);
    rig.post_shared(4);
    for _ in 0..3 {
        let waker = rig.queue.waker();
        let other = thread::spawn(move || waker.wake());
        while rig.queue.gather(20, FOR_EVER, &rig.counters).unwrap() != Woken::ByWaker {
            // What an earlier alarm left behind counts as ready.
            rig.queue.dequeue(&mut rig.batch, &rig.counters).unwrap();
            assert!(rig.batch.is_empty());
        }
        other.join().unwrap();
    }
    rig.stop();
}

fn completions_that_find_no_room<T: Sharing>(polling: Polling) {
    let needs = Needs { receives: 100, ..NEEDS };
    let uring = Uring::polling(polling);
    let region = region::<T>(&uring, &needs);
    let mut opened = Provider::<T>::open(&uring, &[loopback()], &region, &needs).unwrap();
    let wanted = Wanted { submissions: 4, completions: 8, ..uring.wanted::<T>(&needs, 1) };
    (opened.io, opened.flags) = ring::set_up("the test", &wanted).unwrap();
    let mut rig = Rig::<T>::start(&uring, needs, region, opened).unwrap();
    rig.post_shared(100);
    let sender = peer(rig.at[0]);
    // If the receives are armed late, nothing overflows in that round: then there is another.
    let by = Instant::now() + PATIENCE;
    let mut rounds = 0;
    while rounds < 5 || rig.counters.overflows.get() == 0 {
        assert!(Instant::now() < by, "no round overflowed 8 completions with 80");
        rounds += 1;
        for number in 0..80 {
            sender.send_to(&payload(number, 20), rig.at[0]).unwrap();
        }
        let mut next = 0;
        rig.receive_each(80, |_, bytes, _| {
            assert_eq!(bytes, payload(next, 20));
            next += 1;
        });
    }
    rig.stop();
}

/// A holder without a buffer sleeps; a poster on another thread wakes it.
#[test]
fn a_poster_wakes_a_starved_holder() {
    if cannot_run_here::<HandOver>(Polling::Interrupt) {
        return;
    }
    for polling in [Polling::Interrupt, Polling::KernelThread] {
        let Rig { region, mut queue, mut requests, at, .. } =
            Rig::<HandOver>::new(polling, Needs { receives: 1, ..NEEDS }, &[loopback()]);
        let sender = peer(at[0]);
        let (seen, saw) = mpsc::channel();
        thread::scope(|scope| {
            let poster = scope.spawn({
                let region = Arc::clone(&region);
                move || {
                    let counters = Counters::default();
                    for number in 0..200 {
                        sender.send_to(&payload(number, 50), at[0]).unwrap();
                        let slice = region.take().expect("the last one was dropped");
                        requests[0].receive(slice).unwrap();
                        requests[0].commit(&counters).unwrap();
                        saw.recv_timeout(PATIENCE).expect("the holder slept on");
                    }
                    requests
                }
            });
            let (counters, mut batch) = (Counters::default(), Batch::new(4));
            for number in 0..200 {
                while batch.is_empty() {
                    queue.wait(1, Some(PATIENCE), &counters).unwrap();
                    queue.dequeue(&mut batch, &counters).unwrap();
                }
                for completion in batch.drain() {
                    assert_eq!(completion.slice.payload()[..50], payload(number, 50));
                }
                seen.send(()).unwrap();
            }
            let stopped = queue.stop(poster.join().unwrap(), Instant::now() + PATIENCE);
            assert_eq!((stopped.missing, region.in_pool()), (0, 1));
        });
    }
}

/// The queues change hands while another thread posts, and nothing is lost; armed all the time,
/// and swept by whoever holds them.
#[test]
fn queues_change_hands_while_another_thread_posts() {
    if cannot_run_here::<HandOver>(Polling::Interrupt) {
        return;
    }
    for polling in [Polling::Interrupt, Polling::Deferred] {
        queues_change_hands(polling);
    }
}

fn queues_change_hands(polling: Polling) {
    let needs = Needs { receives: 200, ..NEEDS };
    let Rig { region, queue, requests, at, .. } =
        Rig::<HandOver>::new(polling, needs, &[loopback()]);
    let swept = Arc::new(AtomicU32::new(0));
    let (sender, counters) = (peer(at[0]), Counters::default());
    let mut requests = requests;
    while let Some(slice) = region.take() {
        requests[0].receive(slice).unwrap();
    }
    requests[0].commit(&counters).unwrap();
    let (to_post, posted) = mpsc::channel::<Slice>();
    let poster = thread::spawn(move || {
        let counters = Counters::default();
        for slice in posted {
            requests[0].receive(slice).unwrap();
            requests[0].commit(&counters).unwrap();
        }
        requests
    });
    let mut queue = Some(queue);
    for round in 0..40 {
        // This thread started the queue and lives on; another one holds it for a round.
        for number in 0..50 {
            sender.send_to(&payload(round * 50 + number, 60), at[0]).unwrap();
        }
        let (mut held, to_post) = (queue.take().unwrap(), to_post.clone());
        let swept = Arc::clone(&swept);
        let holder = thread::spawn(move || {
            let (counters, mut batch) = (Counters::default(), Batch::new(32));
            let (mut number, by) = (0, Instant::now() + PATIENCE);
            while number < 50 {
                assert!(Instant::now() < by, "round {round}: {number} of 50");
                // A wait arms, and a long batch sweeps: from one to the other and back.
                if number == 0 || !held.sweeps() {
                    held.wait(1, Some(PATIENCE), &counters).unwrap();
                }
                swept.fetch_add(u32::from(held.sweeps()), Relaxed);
                held.dequeue(&mut batch, &counters).unwrap();
                for completion in batch.drain() {
                    let expected = payload(round * 50 + number, 60);
                    assert_eq!(completion.slice.payload()[..60], expected);
                    number += 1;
                    to_post.send(completion.slice).unwrap();
                }
            }
            held
        });
        queue = Some(holder.join().unwrap());
    }
    drop(to_post);
    let requests = poster.join().unwrap();
    let stopped = queue.unwrap().stop(requests, Instant::now() + PATIENCE);
    assert_eq!((stopped.missing, region.in_pool()), (0, needs.receives));
    assert_eq!(swept.load(Relaxed) > 0, polling == Polling::Deferred);
}
