//! Completions that the kernel hardly ever makes, put into the queue from another ring: a failed
//! receive that carries a buffer, a token that is over, a buffer named twice.

use super::*;
use crate::{ring::Token, rio::Woken, socket::SocketOptions};
use io_uring::{IoUring, opcode, types};

under_every_form!(
    a_failed_receive_gives_its_buffer_back,
    a_sweep_that_took_a_buffer_for_nothing_puts_it_back,
    a_late_completion_hits_no_other_request,
    a_buffer_named_twice_stops_the_queue,
    a_receive_that_fails_for_ever_stops_the_queue,
);

/// Of the kernel's headers: a buffer was used, and its id is in the upper 16 bits.
const WITH_BUFFER: u32 = 1 << 0;
/// Of the kernel's headers: the request is not over.
const MORE: u32 = 1 << 1;

/// Puts a completion into the queue of a rig.
fn inject<T: Sharing>(rig: &Rig<T>, token: Token, result: i32, flags: u32) {
    inject_each(rig, token, result, flags, 1);
}

/// Puts so many completions into it.
fn inject_each<T: Sharing>(rig: &Rig<T>, token: Token, result: i32, flags: u32, count: u32) {
    let mut other = IoUring::new(2).unwrap();
    let to = types::Fd(rig.queue.common.ring.fd());
    let entry = opcode::MsgRingData::new(to, result, token.user_data(), Some(flags)).build();
    for _ in 0..count {
        // SAFETY: the entry points at nothing.
        unsafe { other.submission().push(&entry) }.unwrap();
        other.submit_and_wait(1).unwrap();
        assert_eq!(other.completion().next().unwrap().result(), 0);
    }
}

fn live_token<T: Sharing>(rig: &Rig<T>) -> Token {
    rig.queue.receives.iter().next().expect("the socket's receive is armed").0
}

fn a_failed_receive_gives_its_buffer_back<T: Sharing>(polling: Polling) {
    let mut rig = Rig::<T>::new(polling, NEEDS, &[loopback()]);
    rig.post_shared(4);
    inject(&rig, live_token(&rig), -libc::ECANCELED, WITH_BUFFER | MORE);
    let completions = rig.completions();
    let [Completion { outcome: Outcome::Failed(error), socket: 0, .. }] = &completions[..] else {
        panic!("{completions:?}")
    };
    assert_eq!(error.raw_os_error(), Some(libc::ECANCELED));
    assert_eq!(rig.requests[0].outstanding(), (3, 0));
    drop(completions);
    rig.stop();
}

/// Before Linux 6.18 a receive that found nothing had taken a buffer all the same.
fn a_sweep_that_took_a_buffer_for_nothing_puts_it_back<T: Sharing>(polling: Polling) {
    let mut rig = Rig::<T>::new(polling, NEEDS, &[loopback()]);
    rig.post_shared(4);
    let sweep = completions::Receive { socket: 0, kind: completions::Kind::Sweep };
    let token = match rig.queue.receives.insert(sweep) {
        Ok(token) => token,
        Err(_) => return rig.stop(), // this form never sweeps
    };
    inject(&rig, token, -libc::EAGAIN, WITH_BUFFER);
    let by = Instant::now() + PATIENCE;
    while rig.queue.receives.get(token).is_some() {
        assert!(Instant::now() < by, "the sweep is not over");
        rig.queue.dequeue(&mut rig.batch, &rig.counters).unwrap();
    }
    assert!(rig.batch.is_empty(), "nothing was received");
    assert_eq!(rig.requests[0].outstanding(), (4, 0));
    assert_eq!(rig.counters.receive_errors.get(), 0);
    // The kernel picks buffer 0 first, of which the injection said that it was given back.
    assert_eq!(rig.queue.common.with_buffers(|buffers| buffers.held()).0, 4);
    rig.stop();
}

/// The step between looking for buffers and submitting, where posters used to go unheard.
#[test]
fn a_post_while_the_queue_is_armed_is_heard() {
    if cannot_run_here::<HandOver>(Polling::Interrupt) {
        return;
    }
    let mut rig = Rig::<HandOver>::new(Polling::Interrupt, NEEDS, &[loopback()]);
    let wait = |rig: &mut Rig<HandOver>| {
        let queue = &mut rig.queue;
        let woken = queue.common.alarm.wait(
            &queue.common.ring,
            &mut queue.completions,
            1,
            Some(PATIENCE),
            &rig.counters,
        );
        assert_eq!(woken.unwrap(), Woken::Ready);
        queue.look(&mut rig.batch, &rig.counters);
    };
    // A datagram that finds no buffer ends the receive, and a ring ends the alarm.
    let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    sender.send_to(b"waits", rig.at[0]).unwrap();
    rig.queue.common.alarm.raise();
    while rig.queue.alarm_armed || rig.queue.disarmed.is_empty() {
        wait(&mut rig);
    }
    assert!(!rig.queue.can_receive(0), "nothing is posted");
    rig.post_shared(1);
    rig.queue.submit_arms(0, false, &rig.counters).unwrap();
    wait(&mut rig);
    assert!(!rig.queue.alarm_armed, "it was the poster's ring that ended the wait");
    assert_eq!(rig.completions().len(), 1);
    rig.stop();
}

#[test]
fn only_what_passes_by_itself_is_survived() {
    use crate::rio::uring::linux::completions::count_failure;
    let counters = Counters::default();
    for errno in [libc::ENOBUFS, libc::ECANCELED, libc::EINTR, libc::EAGAIN] {
        assert!(count_failure(errno, &counters).is_none());
    }
    assert_eq!((counters.no_buffer.get(), counters.receive_errors.get()), (1, 0));
    for errno in [libc::ECONNREFUSED, libc::EHOSTUNREACH, libc::ENOMEM] {
        assert!(count_failure(errno, &counters).is_none());
    }
    assert_eq!(counters.receive_errors.get(), 3);
    for errno in [libc::EBADF, libc::EINVAL, libc::EPERM, libc::EIO] {
        let error = count_failure(errno, &counters).expect("it lasts");
        assert_eq!(error.raw_os_error(), Some(errno));
    }
}

fn a_late_completion_hits_no_other_request<T: Sharing>(polling: Polling) {
    let mut rig = Rig::<T>::new(polling, Needs { sends: 2, ..NEEDS }, &[loopback()]);
    rig.post_shared(4);
    let live = live_token(&rig);
    // The next use of the same slot, and the first of a send's slot that was never used.
    let stale = Token::from_user_data(live.user_data() + 1);
    let no_send = Token::bare(common::class::SEND);
    inject(&rig, no_send, 5, 0);
    inject(&rig, stale, -libc::ECANCELED, 0);
    inject(&rig, stale, 50, WITH_BUFFER);
    let completions = rig.completions();
    let [Completion { outcome: Outcome::Returned, .. }] = &completions[..] else {
        panic!("{completions:?}")
    };
    drop(completions);
    assert_eq!(live_token(&rig), live, "the receive under way is not touched");
    assert_eq!(rig.requests[0].outstanding(), (3, 0));
    rig.stop();
}

fn a_buffer_named_twice_stops_the_queue<T: Sharing>(polling: Polling) {
    let mut rig = Rig::<T>::new(polling, NEEDS, &[loopback()]);
    rig.post_shared(4);
    let token = live_token(&rig);
    inject(&rig, token, 50, WITH_BUFFER | MORE);
    assert_eq!(rig.completions().len(), 1);
    inject(&rig, token, 50, WITH_BUFFER | MORE);
    let error = loop {
        rig.queue.wait(1, Some(PATIENCE), &rig.counters).unwrap();
        if let Err(error) = rig.queue.dequeue(&mut rig.batch, &rig.counters) {
            break error;
        }
        assert!(rig.batch.is_empty());
    };
    assert!(error.to_string().contains("buffer 0"), "{error}");
    rig.stop();
}

/// An error that a peer may have reported is survived, but not for ever where nothing says that it
/// was one.
fn a_receive_that_fails_for_ever_stops_the_queue<T: Sharing>(polling: Polling) {
    let options = SocketOptions { peer_errors: true, ..SocketOptions::default() };
    let mut rig = Rig::<T>::new(polling, NEEDS, &[Endpoint { options, ..loopback() }]);
    rig.post_shared(4);
    let token = live_token(&rig);
    let sender = peer(rig.at[0]);
    let fail = |rig: &mut Rig<T>, times: u32| {
        let (before, by) = (rig.queue.ends_of_peers[0].ends, Instant::now() + PATIENCE);
        for at in (0..times).step_by(64) {
            let now = 64.min(times - at);
            inject_each(rig, token, -libc::EACCES, MORE, now);
            while rig.queue.ends_of_peers[0].ends < before + at + now {
                assert!(Instant::now() < by, "they are not taken");
                if let Err(error) = rig.queue.dequeue(&mut rig.batch, &rig.counters) {
                    return error.raw_os_error();
                }
            }
        }
        None
    };
    for _ in 0..2 {
        assert_eq!(fail(&mut rig, completions::ends_of_peers::ENDS_OF_PEERS), None);
        sender.send_to(b"between them", rig.at[0]).unwrap();
        let [Completion { outcome: Outcome::Received(_), .. }] = &rig.completions()[..] else {
            panic!("a datagram was sent")
        };
        assert_eq!(rig.queue.ends_of_peers[0].ends, 0);
    }
    assert_eq!(fail(&mut rig, completions::ends_of_peers::ENDS_OF_PEERS), None);
    assert_eq!(fail(&mut rig, 1), Some(libc::EACCES));
    rig.stop();
}
