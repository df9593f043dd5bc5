//! What holds for each mechanism that waits for connections, on real sockets.

use super::{Epoll, Events, Interest, Poll, Select, SelectIndexed, Signals, Streams, Trigger};
use crate::{
    Unavailable,
    counters::Counters,
    required::cannot_run,
    rio::Woken,
    stream::{self, Accepted, Listener, Mode, Stream, StreamOptions},
    wake::Waker,
};
use socket2::SockRef;
use std::{
    collections::{BTreeMap, BTreeSet},
    io::{Read, Write},
    net::{Shutdown, TcpStream},
    thread,
    time::{Duration, Instant},
};

#[cfg(target_os = "linux")]
mod linux;
#[cfg(windows)]
mod windows;

/// When a mechanism tells.
#[derive(PartialEq, Eq)]
enum Tells {
    /// As long as something is ready.
    Level,
    /// Whatever happens, once.
    #[cfg_attr(windows, expect(dead_code, reason = "none does there"))]
    Edge,
    /// What happens, once; what happens after that, when the other was dealt with.
    Next,
}

/// Of [`Events`] and [`Signals`].
#[cfg(target_os = "linux")]
const OF_EVENTS: (Tells, Tells) = (Tells::Level, Tells::Edge);
#[cfg(windows)]
const OF_EVENTS: (Tells, Tells) = (Tells::Next, Tells::Next);

/// The functions that every mechanism has.
trait Mechanism: Streams {
    const TELLS: Tells;
    const LEVEL: bool = matches!(Self::TELLS, Tells::Level);

    fn availability() -> Result<(), Unavailable>;
    fn make() -> Self;
    fn listen(&mut self, listener: &Listener, token: u32);
    fn forget_listener(&mut self, listener: &Listener);
    fn wait(&mut self, timeout: Option<Duration>) -> Woken;
    /// What the last wait told.
    fn tokens(&mut self) -> Vec<u32>;
    fn waker(&self) -> Waker;
}

macro_rules! mechanism {
    ($Set:ty, $tells:expr, $availability:expr, $make:expr) => {
        impl Mechanism for $Set {
            const TELLS: Tells = $tells;

            fn availability() -> Result<(), Unavailable> {
                $availability
            }
            fn make() -> Self {
                $make
            }
            fn listen(&mut self, listener: &Listener, token: u32) {
                <$Set>::listen(self, listener, token).unwrap();
            }
            fn forget_listener(&mut self, listener: &Listener) {
                <$Set>::forget_listener(self, listener);
            }
            fn wait(&mut self, timeout: Option<Duration>) -> Woken {
                <$Set>::wait(self, timeout, &Counters::default()).unwrap()
            }
            fn tokens(&mut self) -> Vec<u32> {
                std::iter::from_fn(|| self.next_ready()).collect()
            }
            fn waker(&self) -> Waker {
                <$Set>::waker(self)
            }
        }
    };
}

/// `Select` with the work that it leaves to its caller.
struct Built {
    sets: Select,
    listeners: Vec<(Listener, u32)>,
    open: BTreeMap<u32, (Stream, Interest)>,
    ready: Vec<u32>,
}

impl Built {
    fn listen(&mut self, listener: &Listener, token: u32) -> Result<(), crate::Error> {
        self.listeners.push((listener.clone(), token));
        Ok(())
    }
    fn forget_listener(&mut self, listener: &Listener) {
        self.listeners.retain(|(its, _)| its.local_address() != listener.local_address());
    }
    fn wait(&mut self, timeout: Option<Duration>, counters: &Counters) -> std::io::Result<Woken> {
        self.sets.clear();
        self.listeners.iter().for_each(|(listener, _)| self.sets.put_listener(listener));
        self.open.values().for_each(|(stream, interest)| self.sets.put(stream, *interest));
        let woken = self.sets.wait(timeout, counters)?;
        let listeners = self.listeners.iter();
        let listeners = listeners.filter(|(listener, _)| self.sets.listener_is_ready(listener));
        let open = self.open.iter().filter(|(_, (stream, _))| self.sets.is_ready(stream));
        self.ready =
            listeners.map(|(_, token)| *token).chain(open.map(|(slot, _)| *slot)).collect();
        Ok(woken)
    }
    fn next_ready(&mut self) -> Option<u32> {
        self.ready.pop()
    }
    fn waker(&self) -> Waker {
        self.sets.waker()
    }
}

impl Streams for Built {
    fn watch(&mut self, stream: &Stream, slot: u32, interest: Interest) -> std::io::Result<()> {
        self.open.insert(slot, (stream.clone(), interest));
        self.sets.watch(stream, slot, interest)
    }
    fn change(&mut self, stream: &Stream, slot: u32, interest: Interest) -> std::io::Result<()> {
        self.open.insert(slot, (stream.clone(), interest));
        self.sets.change(stream, slot, interest)
    }
    fn forget(&mut self, stream: &Stream, slot: u32) {
        self.sets.forget(stream, slot);
        self.open.remove(&slot);
    }
}

mechanism!(Epoll, Tells::Level, Epoll::availability(), Epoll::new(8, Trigger::Level).unwrap());
mechanism!(Poll, Tells::Level, stream::availability(), Poll::new().unwrap());
mechanism!(
    Built,
    Tells::Level,
    Select::availability(),
    Built {
        sets: Select::new().unwrap(),
        listeners: Vec::new(),
        open: BTreeMap::new(),
        ready: Vec::new()
    }
);
mechanism!(
    SelectIndexed,
    Tells::Level,
    SelectIndexed::availability(),
    SelectIndexed::new().unwrap()
);
mechanism!(Events, OF_EVENTS.0, Events::availability(), Events::new(64).unwrap());
mechanism!(Signals, OF_EVENTS.1, Signals::availability(), Signals::new().unwrap());

const LONG: Option<Duration> = Some(Duration::from_secs(60));
const NOW: Option<Duration> = Some(Duration::ZERO);

const SEND: Interest = Interest { receive: false, send: true };

fn listener() -> Listener {
    Listener::bind("127.0.0.1:0".parse().unwrap(), StreamOptions::default()).unwrap()
}

/// Both ends of a connection.
struct Pair {
    stream: Stream,
    peer: TcpStream,
}

impl Pair {
    fn at(listener: &Listener) -> Self {
        let peer = TcpStream::connect(listener.local_address()).unwrap();
        peer.set_nodelay(true).unwrap();
        let accepted = listener.accept(Mode::Wait, &Counters::default()).unwrap();
        let Accepted { stream, .. } = accepted.expect("nobody ended the accepting");
        Self { stream, peer }
    }

    fn new() -> Self {
        Self::at(&listener())
    }

    fn speak(&mut self) {
        self.peer.write_all(b"x").unwrap();
    }

    /// Receives all there is: how many bytes.
    fn receive(&self) -> usize {
        let (mut buffer, mut all) = ([0; 64], 0);
        while let Some(count) =
            self.stream.receive(&mut buffer, Mode::Try, &Counters::default()).unwrap()
        {
            assert!(count > 0, "the peer has not ended");
            all += count;
        }
        all
    }
}

fn pairs(count: usize) -> Vec<Pair> {
    let listener = listener();
    (0..count).map(|_| Pair::at(&listener)).collect()
}

/// Waits until all of these were told, and returns all that was.
fn told<M: Mechanism>(set: &mut M, expected: &[u32]) -> BTreeSet<u32> {
    let by = Instant::now() + LONG.unwrap();
    let mut all = BTreeSet::new();
    while !expected.iter().all(|token| all.contains(token)) {
        assert!(Instant::now() < by, "told {all:?} of {expected:?}");
        set.wait(LONG);
        all.extend(set.tokens());
    }
    all
}

/// Waits until nothing is told any more, which is soon unless something is ready, and returns what was
/// told until then.
fn quiet<M: Mechanism>(set: &mut M) -> BTreeSet<u32> {
    let mut all = BTreeSet::new();
    for _ in 0..1000 {
        let woken = set.wait(NOW);
        let tokens = set.tokens();
        if woken == Woken::TimedOut {
            assert!(tokens.is_empty());
            return all;
        }
        all.extend(tokens);
    }
    panic!("something is ready all the time: {all:?}");
}

fn what_can_be_received_is_told<M: Mechanism>() {
    let (mut set, mut pairs) = (M::make(), pairs(3));
    for (slot, pair) in pairs.iter().enumerate() {
        set.watch(&pair.stream, 10 + slot as u32, Interest::RECEIVE).unwrap();
    }
    assert_eq!(quiet(&mut set), BTreeSet::new());
    pairs[2].speak();
    assert_eq!(told(&mut set, &[12]), [12].into());
    // Told as long as it is ready, or once.
    pairs[0].speak();
    let expected: &[u32] = if M::LEVEL { &[10, 12] } else { &[10] };
    assert!(told(&mut set, expected).is_subset(&[10, 12].into()));
    assert_eq!((pairs[0].receive(), pairs[2].receive()), (1, 1));
    quiet(&mut set);
}

fn what_was_there_before_is_told<M: Mechanism>() {
    let (mut set, mut pair) = (M::make(), Pair::new());
    // Of one segment a byte is received: the other one is there.
    pair.peer.write_all(b"xy").unwrap();
    pair.stream.receive(&mut [0], Mode::Wait, &Counters::default()).unwrap();
    set.watch(&pair.stream, 0, Interest::RECEIVE).unwrap();
    assert_eq!(told(&mut set, &[0]), [0].into());
    assert_eq!(pair.receive(), 1);
}

fn what_is_wanted_is_told_and_nothing_else<M: Mechanism>() {
    let (mut set, mut pair) = (M::make(), Pair::new());
    set.watch(&pair.stream, 3, Interest::NONE).unwrap();
    pair.speak();
    assert_eq!(quiet(&mut set), BTreeSet::new());
    // It has come meanwhile, or comes now.
    set.change(&pair.stream, 3, Interest::RECEIVE).unwrap();
    assert_eq!(told(&mut set, &[3]), [3].into());
    set.change(&pair.stream, 3, Interest::NONE).unwrap();
    assert_eq!(quiet(&mut set), BTreeSet::new());
    set.change(&pair.stream, 3, SEND).unwrap();
    assert_eq!(told(&mut set, &[3]), [3].into());
    set.change(&pair.stream, 3, Interest { receive: true, send: true }).unwrap();
    assert_eq!(told(&mut set, &[3]), [3].into());
    assert_eq!(pair.receive(), 1);
    set.change(&pair.stream, 3, Interest::RECEIVE).unwrap();
    // What was found by asking may be told by an event besides.
    let hints: &[u32] = if M::TELLS == Tells::Next { &[3] } else { &[] };
    assert!(quiet(&mut set).iter().all(|told| hints.contains(told)));
    pair.speak();
    assert_eq!(told(&mut set, &[3]), [3].into());
}

fn room_to_send_is_told_when_there_is_some<M: Mechanism>() {
    let (mut set, mut pair) = (M::make(), Pair::new());
    set.watch(&pair.stream, 0, Interest::RECEIVE).unwrap();
    let (block, mut sent) = (vec![7; 64 * 1024], 0);
    let send = || pair.stream.send(&block, Mode::Try, &Counters::default()).unwrap();
    set.change(&pair.stream, 0, SEND).unwrap();
    // What the peer's window takes meanwhile leaves room again, for a while.
    loop {
        while let Some(count) = send() {
            sent += count;
        }
        if set.wait(Some(Duration::from_millis(100))) == Woken::TimedOut {
            break;
        }
    }
    let mut back = vec![0; sent];
    pair.peer.read_exact(&mut back).unwrap();
    assert_eq!(told(&mut set, &[0]), [0].into());
    assert!(send().is_some());
}

fn ends_and_resets_are_told<M: Mechanism>() {
    let (mut set, mut pairs) = (M::make(), pairs(2));
    for (slot, pair) in pairs.iter().enumerate() {
        set.watch(&pair.stream, slot as u32, Interest::RECEIVE).unwrap();
    }
    pairs[0].peer.shutdown(Shutdown::Write).unwrap();
    told(&mut set, &[0]);
    let counters = Counters::default();
    let receive = |pair: &Pair| pair.stream.receive(&mut [0; 8], Mode::Try, &counters);
    assert_eq!(receive(&pairs[0]).unwrap(), Some(0));
    let Pair { stream, peer } = pairs.remove(1);
    SockRef::from(&peer).set_linger(Some(Duration::ZERO)).unwrap();
    drop(peer);
    told(&mut set, &[1]);
    // To who receives it is an error, or an end as any other (Wine 8).
    let received = stream.receive(&mut [0; 8], Mode::Try, &counters);
    assert!(matches!(received, Err(_) | Ok(Some(0))), "{received:?}");
}

fn one_that_is_forgotten_is_not_told<M: Mechanism>() {
    let (mut set, listener) = (M::make(), listener());
    let mut first = Pair::at(&listener);
    set.watch(&first.stream, 1, Interest::RECEIVE).unwrap();
    first.speak();
    told(&mut set, &[1]);
    first.speak();
    set.forget(&first.stream, 1);
    assert_eq!(quiet(&mut set), BTreeSet::new());
    let Pair { stream, peer } = first;
    drop(stream);
    // It is likely to get the descriptor.
    let mut second = Pair::at(&listener);
    set.watch(&second.stream, 2, Interest::RECEIVE).unwrap();
    assert_eq!(quiet(&mut set), BTreeSet::new());
    second.speak();
    assert_eq!(told(&mut set, &[2]), [2].into());
    drop(peer);
}

fn connections_that_wait_are_told<M: Mechanism>() {
    const TOKEN: u32 = 0xffff_0000;
    let (mut set, listener, counters) = (M::make(), listener(), Counters::default());
    set.listen(&listener, TOKEN);
    assert_eq!(quiet(&mut set), BTreeSet::new());
    let pair = Pair::new();
    set.watch(&pair.stream, 0, Interest::RECEIVE).unwrap();
    let first = TcpStream::connect(listener.local_address()).unwrap();
    assert_eq!(told(&mut set, &[TOKEN]), [TOKEN].into());
    assert!(listener.accept(Mode::Try, &counters).unwrap().is_some());
    quiet(&mut set);
    set.forget_listener(&listener);
    let second = TcpStream::connect(listener.local_address()).unwrap();
    assert_eq!(quiet(&mut set), BTreeSet::new());
    set.listen(&listener, TOKEN);
    assert_eq!(told(&mut set, &[TOKEN]), [TOKEN].into());
    drop((first, second));
}

fn a_wait_is_never_short<M: Mechanism>() {
    let (mut set, pair) = (M::make(), Pair::new());
    set.watch(&pair.stream, 0, Interest::RECEIVE).unwrap();
    for timeout in [Duration::from_micros(300), Duration::from_millis(3)] {
        let (since, mut left) = (Instant::now(), timeout);
        // A system whose clock is a little ahead may say that something is ready.
        while set.wait(Some(left)) != Woken::TimedOut {
            assert_eq!(set.tokens(), []);
            left = timeout.saturating_sub(since.elapsed());
        }
        assert!(since.elapsed() >= timeout);
    }
}

fn wakers_end_this_wait_or_the_next<M: Mechanism>() {
    let (mut set, mut pair) = (M::make(), Pair::new());
    set.watch(&pair.stream, 5, Interest::RECEIVE).unwrap();
    let waker = set.waker();
    for _ in 0..3 {
        waker.wake(); // often counts once
    }
    assert_eq!(set.wait(None), Woken::ByWaker);
    assert_eq!(set.wait(NOW), Woken::TimedOut);
    let other = thread::spawn({
        let waker = waker.clone();
        move || waker.wake()
    });
    assert_eq!(set.wait(None), Woken::ByWaker);
    other.join().unwrap();
    // What is ready is told as well.
    pair.speak();
    waker.wake();
    let (mut all, mut woken) = (BTreeSet::new(), false);
    while !(woken && all.contains(&5)) {
        let by = set.wait(LONG);
        assert_ne!(by, Woken::TimedOut);
        woken |= by == Woken::ByWaker;
        all.extend(set.tokens());
    }
    drop(set);
    waker.wake(); // after the set has gone
}

/// Random changes, against a list of what should be told.
fn changes_in_any_order_are_followed<M: Mechanism>() {
    struct Known {
        watched: Option<Interest>,
        /// Bytes that were not received.
        unread: usize,
        /// It became ready, or was changed while it was, and was not told since.
        due: bool,
    }
    let (mut set, mut pairs) = (M::make(), pairs(12));
    let unknown = || Known { watched: None, unread: 0, due: false };
    let mut known: Vec<_> = pairs.iter().map(|_| unknown()).collect();
    let mut random = 42u64;
    let mut dice = |sides: u64| {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % sides
    };
    for step in 0..600 {
        let slot = dice(pairs.len() as u64) as usize;
        let (pair, its) = (&mut pairs[slot], &mut known[slot]);
        let interest = if dice(3) == 0 { Interest::NONE } else { Interest::RECEIVE };
        match dice(4) {
            0 => match its.watched {
                None => {
                    set.watch(&pair.stream, slot as u32, interest).unwrap();
                    its.watched = Some(interest);
                    its.due = its.unread > 0;
                }
                Some(_) => {
                    set.forget(&pair.stream, slot as u32);
                    its.watched = None;
                }
            },
            1 if its.watched.is_some() => {
                set.change(&pair.stream, slot as u32, interest).unwrap();
                its.watched = Some(interest);
                its.due = its.unread > 0;
            }
            2 => {
                pair.speak();
                its.due |= its.unread == 0 || M::TELLS != Tells::Next;
                its.unread += 1;
            }
            _ => {
                let mut received = 0;
                while received < its.unread {
                    received += pair.receive();
                }
                its.unread = 0;
                its.due = false;
            }
        }
        let wanted = |its: &Known| its.watched == Some(Interest::RECEIVE);
        let all_of = |which: &dyn Fn(&Known) -> bool| {
            let slots = known.iter().enumerate().filter(|(_, its)| which(its));
            slots.map(|(slot, _)| slot as u32).collect::<Vec<_>>()
        };
        let ready = all_of(&|its| wanted(its) && its.unread > 0);
        let due = if M::LEVEL { ready.clone() } else { all_of(&|its| wanted(its) && its.due) };
        // A message that is under way tells of one that has nothing any more.
        let hints = all_of(&|its| its.watched.is_some());
        let told = told(&mut set, &due);
        let may = if M::LEVEL { &ready } else { &hints };
        assert!(told.iter().all(|token| may.contains(token)), "step {step}: {told:?} of {may:?}");
        for slot in due {
            known[slot as usize].due = false;
        }
    }
}

macro_rules! check {
    ($($module:ident: $Mechanism:ty,)*) => {
        $(mod $module {
            use super::*;
            check!(@ $module $Mechanism;
                what_can_be_received_is_told,
                what_was_there_before_is_told,
                what_is_wanted_is_told_and_nothing_else,
                room_to_send_is_told_when_there_is_some,
                ends_and_resets_are_told,
                one_that_is_forgotten_is_not_told,
                connections_that_wait_are_told,
                a_wait_is_never_short,
                wakers_end_this_wait_or_the_next,
                changes_in_any_order_are_followed
            );
        })*
    };
    (@ $module:ident $Mechanism:ty; $($check:ident),*) => {
        $(#[test]
        fn $check() {
            if !cannot_run(stringify!($module), <$Mechanism as Mechanism>::availability()) {
                super::$check::<$Mechanism>();
            }
        })*
    };
}

check! {
    epoll: Epoll,
    poll: Poll,
    select: Built,
    select_indexed: SelectIndexed,
    events: Events,
    signals: Signals,
}

#[test]
fn a_group_of_events_takes_no_more_than_it_may() {
    let (mut group, pairs) = (Events::new(3).unwrap(), pairs(3));
    assert_eq!(group.room(), 2);
    group.watch(&pairs[0].stream, 0, Interest::RECEIVE).unwrap();
    group.watch(&pairs[1].stream, 1, Interest::RECEIVE).unwrap();
    let error = group.watch(&pairs[2].stream, 2, Interest::RECEIVE).unwrap_err().to_string();
    assert!(error.contains("a group of 3 handles is full"), "{error}");
    assert!(Events::listen(&mut group, &listener(), 9).is_err());
    group.forget(&pairs[0].stream, 0);
    group.watch(&pairs[2].stream, 2, Interest::RECEIVE).unwrap();
    assert_eq!(group.room(), 0);
}

#[test]
fn a_group_of_events_tells_each_in_turn() {
    let (mut group, mut pairs) = (Events::new(8).unwrap(), pairs(4));
    let counters = Counters::default();
    for (slot, pair) in pairs.iter_mut().enumerate() {
        group.watch(&pair.stream, slot as u32, Interest::RECEIVE).unwrap();
        pair.peer.write_all(b"xy").unwrap();
    }
    told(&mut group, &[0, 1, 2, 3]);
    // Nobody receives all, so all of them are ready again.
    for pair in &pairs {
        assert_eq!(pair.stream.receive(&mut [0], Mode::Try, &counters).unwrap(), Some(1));
    }
    let mut last = Vec::new();
    while last.len() < 4 {
        assert_eq!(Mechanism::wait(&mut group, LONG), Woken::Ready);
        last.extend(std::iter::from_fn(|| group.next_ready()));
    }
    last.sort_unstable();
    assert_eq!(last, [0, 1, 2, 3]);
}
