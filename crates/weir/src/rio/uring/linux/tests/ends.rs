//! How queues end: stopped under load, dropped, never started; and what cannot be opened.

use super::*;
use crate::socket::tests::free_again;
use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

under_every_form!(
    stopping_under_load_brings_every_slice_back,
    stopping_cancels_more_receives_than_the_queue_has_entries,
    dropping_leaks_what_the_kernel_holds,
    it_says_what_it_got,
);

/// Sends without pause until told to stop, or until the socket has gone: another test may have the port then.
fn flood(to: SocketAddr, on: &AtomicBool) {
    let sender = peer(to);
    sender.connect(to).unwrap();
    let is_gone = |e: &std::io::Error| e.kind() == std::io::ErrorKind::ConnectionRefused;
    for number in (0..).take_while(|_| on.load(Relaxed)) {
        if sender.send(&payload(number, number % 100)).is_err_and(|e| is_gone(&e)) {
            break;
        }
    }
}

fn stopping_under_load_brings_every_slice_back<T: Sharing>(polling: Polling) {
    for round in 0..4 {
        let needs = Needs { receives: 3000, sends: 50, ..NEEDS };
        let uring = Uring { window: 256, ..Uring::polling(polling) };
        let mut rig = Rig::<T>::open(&uring, needs, 0, &[loopback(), loopback()]).unwrap();
        rig.post_shared(3000);
        let (at, on) = (rig.at.clone(), AtomicBool::new(true));
        let to = crate::rio::Peer::from(at[1]);
        thread::scope(|scope| {
            let senders = [scope.spawn(|| flood(at[0], &on)), scope.spawn(|| flood(at[1], &on))];
            for turn in 0..20 * round {
                // The last look neither waits nor is followed by one: it may end in the middle of
                // sweeping.
                let looked = rig.queue.sweeps() && turn % 2 == 1;
                let completions = if looked { rig.look() } else { rig.completions() };
                for Completion { slice, socket, .. } in completions {
                    let requests = &mut rig.requests[socket as usize];
                    // Some are under way to the other socket when it stops, some not committed.
                    let refused = match turn % 4 {
                        0 => requests.send(slice, 10, &to).err(),
                        _ => requests.receive(slice).err(),
                    };
                    drop(refused);
                }
                if turn % 5 != 4 {
                    rig.commit();
                }
            }
            rig.stop();
            on.store(false, Relaxed);
            for sender in senders {
                sender.join().unwrap();
            }
        });
    }
}

fn stopping_cancels_more_receives_than_the_queue_has_entries<T: Sharing>(polling: Polling) {
    let sockets = SUBMISSIONS.0 as usize + 30;
    let mut rig = Rig::<T>::new(polling, NEEDS, &vec![loopback(); sockets]);
    rig.post_shared(64);
    for &at in &rig.at {
        peer(at).send_to(b"x", at).unwrap();
    }
    let mut seen = vec![false; sockets];
    rig.receive_each(sockets, |socket, _, _| {
        assert!(!std::mem::replace(&mut seen[socket as usize], true));
    });
    rig.stop();
}

fn dropping_leaks_what_the_kernel_holds<T: Sharing>(polling: Polling) {
    let uring = Uring { window: 16, ..Uring::polling(polling) };
    let Rig { region, queue, mut requests, at, counters, .. } =
        Rig::<T>::open(&uring, NEEDS, 0, &[loopback()]).unwrap();
    for _ in 0..40 {
        requests[0].receive(region.take().unwrap()).unwrap();
    }
    requests[0].commit(&counters).unwrap();
    requests[0].receive(region.take().unwrap()).unwrap();
    drop(requests);
    assert_eq!(region.leaked(), 0, "the queue is still there");
    drop(queue);
    // Those that waited in user space are back; the kernel's are not, and never will be.
    assert_eq!((region.leaked(), region.in_pool()), (16, NEEDS.receives - 16));
    // The kernel may still receive into them: their memory stays.
    peer(at[0]).send_to(&payload(0, 100), at[0]).unwrap();
    let weak = Arc::downgrade(&region);
    drop(region);
    assert_eq!(weak.strong_count(), 16);
}

fn it_says_what_it_got<T: Sharing>(polling: Polling) {
    let rig = Rig::<T>::new(polling, NEEDS, &[loopback()]);
    let granted = |name: &str| {
        let found = rig.granted.iter().find(|(n, _)| *n == name);
        found.unwrap_or_else(|| panic!("{name} in {:?}", rig.granted)).1.clone()
    };
    let flags = granted("ring-flags");
    assert_eq!(flags.contains("SQPOLL"), polling == Polling::KernelThread, "{flags}");
    let defers = matches!(polling, Polling::Deferred | Polling::Armed) && !T::HANDS_OVER;
    assert_eq!(flags.contains("DEFER_TASKRUN"), defers, "{flags}");
    assert_eq!(flags.contains("SINGLE_ISSUER"), !T::HANDS_OVER, "{flags}");
    assert_eq!(granted("window"), "64", "no more than is posted");
    let completions: u32 = granted("completion-queue").parse().unwrap();
    assert!(completions >= 8 * SUBMISSIONS.0 && completions > NEEDS.receives);
    let word = match polling {
        Polling::Deferred | Polling::Armed if !T::HANDS_OVER => "deferred",
        Polling::KernelThread => "kernel thread",
        _ => "interrupt",
    };
    assert!(granted("polling").starts_with(word), "{}", granted("polling"));
    rig.stop();
}

#[test]
fn deferred_polling_handed_over_says_that_it_is_not() {
    if cannot_run_here::<HandOver>(Polling::Interrupt) {
        return;
    }
    let rig = Rig::<HandOver>::new(Polling::Deferred, NEEDS, &[loopback()]);
    let polling = &rig.granted.iter().find(|(name, _)| *name == "polling").unwrap().1;
    assert!(polling.starts_with("interrupt, since deferral needs one thread"), "{polling}");
    rig.stop();
}

#[test]
fn queues_that_were_never_started_leave_nothing_behind() {
    if cannot_run_here::<HandOver>(Polling::Interrupt) {
        return;
    }
    let uring = Uring::default();
    let region = region::<OneThread>(&uring, &NEEDS);
    let opened = Provider::<OneThread>::open(&uring, &[loopback()], &region, &NEEDS).unwrap();
    let at = opened.local_addresses()[0];
    drop(opened);
    assert_eq!((region.in_pool(), region.leaked()), (NEEDS.receives, 0));
    drop(free_again(at));
}

#[test]
fn a_window_beyond_the_kernel_s_is_refused() {
    if cannot_run_here::<HandOver>(Polling::Interrupt) {
        return;
    }
    for window in [0, buffers::MOST_HELD + 1] {
        let uring = Uring { window, ..Uring::default() };
        let refused = Provider::<OneThread>::layout(&uring, &NEEDS).unwrap_err();
        assert!(refused.reason.contains(&format!("window of {window}")), "{refused}");
        assert!(refused.advice.unwrap().contains("32768"));
    }
    let uring = Uring { window: buffers::MOST_HELD, ..Uring::default() };
    let needs = Needs { receives: 40_000, payload: 1, ..NEEDS };
    let mut rig = Rig::<OneThread>::open(&uring, needs, 0, &[loopback()]).unwrap();
    assert_eq!(rig.post_shared(40_000), 40_000);
    rig.stop();
}

#[test]
fn an_address_in_use_is_named() {
    if cannot_run_here::<HandOver>(Polling::Interrupt) {
        return;
    }
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap();
    let region = region::<OneThread>(&Uring::default(), &NEEDS);
    let open = Provider::<OneThread>::open(&Uring::default(), &[at.into()], &region, &NEEDS);
    assert!(open.unwrap_err().to_string().contains(&at.to_string()));
}

#[test]
fn a_region_cut_otherwise_is_refused() {
    if cannot_run_here::<HandOver>(Polling::Interrupt) {
        return;
    }
    let other = Needs { payload: 10_000, ..NEEDS };
    let region = region::<OneThread>(&Uring::default(), &other);
    let open = Provider::<OneThread>::open(&Uring::default(), &[loopback()], &region, &NEEDS);
    assert!(open.unwrap_err().to_string().contains("region"));
}
