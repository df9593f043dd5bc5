//! What holds on Windows alone.

use super::*;
use std::os::windows::io::AsRawSocket as _;
use windows_sys::Win32::{
    Networking::WinSock::SOCKET,
    UI::WindowsAndMessaging::{MSG, PM_REMOVE, PeekMessageW, PostMessageW, WM_APP},
};

/// FD_SETSIZE of its headers.
const SET: usize = 64;

fn more_sockets_than_a_set_of_the_headers_holds_are_told<M: Mechanism>() {
    let (mut set, mut pairs) = (M::make(), pairs(2 * SET));
    for (slot, pair) in pairs.iter().enumerate() {
        set.watch(&pair.stream, slot as u32, Interest { receive: true, send: false }).unwrap();
    }
    assert_eq!(quiet(&mut set), BTreeSet::new());
    for slot in [2 * SET - 1, SET + 1, 3] {
        pairs[slot].speak();
        assert_eq!(told(&mut set, &[slot as u32]), [slot as u32].into());
        assert_eq!(pairs[slot].receive(), 1);
        quiet(&mut set);
    }
}

#[test]
fn more_sockets_than_a_set_of_the_headers_holds_are_told_by_each() {
    more_sockets_than_a_set_of_the_headers_holds_are_told::<Poll>();
    more_sockets_than_a_set_of_the_headers_holds_are_told::<Built>();
    more_sockets_than_a_set_of_the_headers_holds_are_told::<SelectIndexed>();
    more_sockets_than_a_set_of_the_headers_holds_are_told::<Signals>();
}

/// One thread may end a listening socket that others have in their sets, and a connection of theirs get its number.
fn a_connection_keeps_the_number_of_a_listener_that_was_closed<M: Mechanism>() {
    let other = listener();
    // Another test may get the number, or an event: so waiting for a connection makes its event now.
    drop(Pair::at(&other));
    let (mut set, first) = (M::make(), Pair::new());
    set.watch(&first.stream, 0, Interest::RECEIVE).unwrap();
    let (listener, mut second) = (0..100)
        .find_map(|_| {
            let listener = listener();
            set.listen(&listener, 0xffff_0000);
            // Other numbers may be free, and given first: so several are accepted before any is closed.
            let peers: [_; 16] =
                std::array::from_fn(|_| TcpStream::connect(other.local_address()).unwrap());
            let number = listener.native().as_raw_socket();
            listener.end_accepting();
            let pairs = peers.map(|peer| {
                let accepted = other.accept(Mode::Wait, &Counters::default()).unwrap();
                Pair { stream: accepted.expect("it connects").stream, peer }
            });
            let has_it = |pair: &Pair| pair.stream.native().raw() == number as SOCKET;
            match pairs.into_iter().find(has_it) {
                Some(pair) => Some((listener, pair)),
                None => {
                    set.forget_listener(&listener);
                    None
                }
            }
        })
        .expect("a system gives numbers again");
    set.watch(&second.stream, 1, Interest::RECEIVE).unwrap();
    set.forget(&first.stream, 0); // the last entry may fill its place, before the listener's
    set.forget_listener(&listener);
    quiet(&mut set);
    second.speak();
    assert_eq!(told(&mut set, &[1]), [1].into());
}

#[test]
fn a_connection_keeps_the_number_of_a_listener_that_was_closed_in_each_that_shares_them() {
    a_connection_keeps_the_number_of_a_listener_that_was_closed::<Poll>();
    a_connection_keeps_the_number_of_a_listener_that_was_closed::<Events>();
}

/// The end of a peer is one event: whoever does not take it at once is told again.
fn an_end_is_told_when_it_is_wanted<M: Mechanism>() {
    let (mut set, pair) = (M::make(), Pair::new());
    set.watch(&pair.stream, 1, Interest::NONE).unwrap();
    pair.peer.shutdown(Shutdown::Write).unwrap();
    while pair.stream.receive(&mut [0; 8], Mode::Try, &Counters::default()).unwrap().is_none() {
        thread::yield_now();
    }
    assert_eq!(quiet(&mut set), BTreeSet::new());
    for _ in 0..3 {
        set.change(&pair.stream, 1, Interest::RECEIVE).unwrap();
        assert_eq!(told(&mut set, &[1]), [1].into());
        set.change(&pair.stream, 1, Interest::NONE).unwrap();
        assert_eq!(quiet(&mut set), BTreeSet::new());
    }
}

#[test]
fn an_end_is_told_when_it_is_wanted_by_each() {
    an_end_is_told_when_it_is_wanted::<Poll>();
    an_end_is_told_when_it_is_wanted::<Built>();
    an_end_is_told_when_it_is_wanted::<SelectIndexed>();
    an_end_is_told_when_it_is_wanted::<Events>();
    an_end_is_told_when_it_is_wanted::<Signals>();
}

/// An event may tell of what was received by then, and be taken while nothing is wanted: what comes later is told
/// all the same.
fn what_comes_after_a_pause_is_told<M: Mechanism>() {
    let (mut set, mut pair) = (M::make(), Pair::new());
    set.watch(&pair.stream, 2, Interest::RECEIVE).unwrap();
    for _ in 0..3 {
        pair.peer.write_all(b"xy").unwrap();
        told(&mut set, &[2]);
        let mut received = 0;
        while received < 2 {
            let count = pair.stream.receive(&mut [0], Mode::Try, &Counters::default()).unwrap();
            received += count.unwrap_or(0);
        }
        set.change(&pair.stream, 2, Interest::NONE).unwrap();
        assert_eq!(quiet(&mut set), BTreeSet::new());
        set.change(&pair.stream, 2, Interest::RECEIVE).unwrap();
        quiet(&mut set); // there may be hints
    }
}

#[test]
fn what_comes_after_a_pause_is_told_by_each() {
    what_comes_after_a_pause_is_told::<Poll>();
    what_comes_after_a_pause_is_told::<Built>();
    what_comes_after_a_pause_is_told::<SelectIndexed>();
    what_comes_after_a_pause_is_told::<Events>();
    what_comes_after_a_pause_is_told::<Signals>();
}

/// Of what has come at once, each receive that leaves something has it told again.
fn what_a_receive_leaves_is_told<M: Mechanism>() {
    let (mut set, mut pair) = (M::make(), Pair::new());
    let counters = Counters::default();
    set.watch(&pair.stream, 3, Interest::RECEIVE).unwrap();
    pair.peer.write_all(b"12345").unwrap();
    while pair.stream.waiting(&counters).unwrap() < 5 {
        thread::yield_now();
    }
    for _ in 0..5 {
        assert_eq!(told(&mut set, &[3]), [3].into());
        assert_eq!(pair.stream.receive(&mut [0], Mode::Try, &counters).unwrap(), Some(1));
    }
    quiet(&mut set); // there may be hints
}

#[test]
fn what_a_receive_leaves_is_told_by_each() {
    what_a_receive_leaves_is_told::<Poll>();
    what_a_receive_leaves_is_told::<Built>();
    what_a_receive_leaves_is_told::<SelectIndexed>();
    what_a_receive_leaves_is_told::<Events>();
    what_a_receive_leaves_is_told::<Signals>();
}

#[test]
fn a_group_of_events_tells_an_end_as_long_as_something_is_to_be_received() {
    let (mut group, pair) = (Events::new(2).unwrap(), Pair::new());
    group.watch(&pair.stream, 1, Interest::RECEIVE).unwrap();
    pair.peer.shutdown(Shutdown::Write).unwrap();
    for _ in 0..3 {
        assert_eq!(told(&mut group, &[1]), [1].into());
    }
    group.change(&pair.stream, 1, Interest::NONE).unwrap();
    assert_eq!(quiet(&mut group), BTreeSet::new());
}

/// WSAPoll tells that a peer has ended whatever is asked for.
#[test]
fn whoever_waits_for_room_only_is_not_told_of_an_end() {
    if crate::wine::REST_OF_A_SEND.is_left_out() {
        return;
    }
    let (mut set, mut pair) = (Poll::make(), Pair::new());
    pair.peer.shutdown(Shutdown::Write).unwrap();
    let counters = Counters::default();
    while pair.stream.receive(&mut [0; 8], Mode::Try, &counters).unwrap().is_none() {
        thread::yield_now();
    }
    let (block, mut sent) = (vec![7; 64 * 1024], 0);
    set.watch(&pair.stream, 0, SEND).unwrap();
    loop {
        while let Some(count) = pair.stream.send(&block, Mode::Try, &counters).unwrap() {
            sent += count;
        }
        if Mechanism::wait(&mut set, Some(Duration::from_millis(100))) == Woken::TimedOut {
            break;
        }
    }
    pair.peer.read_exact(&mut vec![0; sent]).unwrap();
    assert_eq!(told(&mut set, &[0]), [0].into());
}

/// What a queue that was full has lost is found.
#[test]
fn a_message_that_is_lost_is_made_up_for() {
    let (mut set, mut pairs) = (Signals::new().unwrap(), pairs(3));
    for (slot, pair) in pairs.iter().enumerate() {
        set.watch(&pair.stream, slot as u32, Interest::RECEIVE).unwrap();
    }
    assert_eq!(quiet(&mut set), BTreeSet::new());
    pairs[1].speak();
    let mut lost = MSG::default();
    // SAFETY: writes one message, which outlives the call.
    while unsafe { PeekMessageW(&mut lost, std::ptr::null_mut(), 0, 0, PM_REMOVE) } == 0 {
        thread::yield_now();
    }
    assert_eq!(quiet(&mut set), BTreeSet::new());
    assert_eq!(set.take_overflows(), 0);
    for _ in 0..4000 {
        // SAFETY: to a window of this thread, which is there.
        assert_ne!(unsafe { PostMessageW(lost.hwnd, WM_APP + 7, 0, 0) }, 0);
    }
    assert_eq!(told(&mut set, &[1]), [1].into());
    assert_eq!(set.take_overflows(), 1);
    assert_eq!(set.take_overflows(), 0);
    assert_eq!(pairs[1].receive(), 1);
}

/// A burst leaves one message for each receive that found something, and all of it is told as one.
#[test]
fn messages_of_one_socket_are_told_as_one() {
    let (mut set, mut pair) = (Signals::new().unwrap(), Pair::new());
    set.watch(&pair.stream, 4, Interest::RECEIVE).unwrap();
    pair.peer.write_all(&[1; 100]).unwrap();
    told(&mut set, &[4]);
    for _ in 0..50 {
        pair.stream.receive(&mut [0], Mode::Try, &Counters::default()).unwrap();
    }
    Mechanism::wait(&mut set, LONG);
    assert_eq!(set.ready_count(), 1);
    assert_eq!(pair.receive(), 50);
    quiet(&mut set);
}
