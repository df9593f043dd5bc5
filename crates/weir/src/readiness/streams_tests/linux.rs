//! What holds on Linux alone.

use super::*;
use std::{
    fs::File,
    os::fd::AsRawFd,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// The C library's select ends at 1024.
fn descriptors_above_1024_are_told<M: Mechanism>() {
    let mut many = Vec::new();
    while many.last().map_or(0, File::as_raw_fd) < 1100 {
        match File::open("/dev/null") {
            Ok(file) => many.push(file),
            Err(e) => return eprintln!("skipped: no 1100 descriptors to be had: {e}"),
        }
    }
    // Tests beside this one give back theirs meanwhile, which are lower: who got one of those keeps it.
    let mut low = Vec::new();
    let mut pairs = loop {
        let pairs = pairs(2);
        match pairs.iter().all(|pair| pair.stream.native().fd() > 1024) {
            true => break pairs,
            false => low.push(pairs),
        }
    };
    let mut set = M::make();
    for (slot, pair) in pairs.iter().enumerate() {
        set.watch(&pair.stream, slot as u32, Interest::RECEIVE).unwrap();
    }
    assert_eq!(quiet(&mut set), BTreeSet::new());
    pairs[1].speak();
    assert_eq!(told(&mut set, &[1]), [1].into());
}

#[test]
fn descriptors_above_1024_are_told_by_each() {
    descriptors_above_1024_are_told::<Epoll>();
    descriptors_above_1024_are_told::<Poll>();
    descriptors_above_1024_are_told::<Built>();
    descriptors_above_1024_are_told::<SelectIndexed>();
    descriptors_above_1024_are_told::<Events>();
    descriptors_above_1024_are_told::<Signals>();
}

/// Lets so many signals be pending, until it is dropped. Other tests of signals get along with it.
struct Pending(libc::rlimit, #[expect(dead_code, reason = "it is held")] MutexGuard<'static, ()>);

impl Pending {
    fn at_most(count: u64) -> Self {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: writes a limit that outlives the call.
        assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_SIGPENDING, &raw mut before) }, 0);
        Self::set(&libc::rlimit { rlim_cur: count, ..before });
        Self(before, turn)
    }

    fn set(limit: &libc::rlimit) {
        // SAFETY: reads a limit that outlives the call.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_SIGPENDING, &raw const *limit) }, 0);
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        Self::set(&self.0);
    }
}

#[test]
fn a_queue_of_signals_that_is_full_loses_nothing() {
    let _few = Pending::at_most(3);
    let (mut set, mut pairs) = (Signals::new().unwrap(), pairs(64));
    for (slot, pair) in pairs.iter_mut().enumerate() {
        set.watch(&pair.stream, slot as u32, Interest::RECEIVE).unwrap();
        pair.speak();
    }
    let all: Vec<_> = (0..64).collect();
    assert_eq!(told(&mut set, &all), all.into_iter().collect());
    assert!(set.take_overflows() > 0);
    assert_eq!(set.take_overflows(), 0);
}

#[test]
fn a_queue_of_signals_that_is_full_all_the_time_loses_nothing() {
    const ROUNDS: usize = 100;
    let _few = Pending::at_most(2);
    let (mut set, pairs) = (Signals::new().unwrap(), pairs(32));
    let (mut streams, mut peers) = (Vec::new(), Vec::new());
    for (slot, Pair { stream, peer }) in pairs.into_iter().enumerate() {
        set.watch(&stream, slot as u32, Interest::RECEIVE).unwrap();
        streams.push(stream);
        peers.push(peer);
    }
    let writer = thread::spawn(move || {
        for _ in 0..ROUNDS {
            peers.iter_mut().for_each(|peer| peer.write_all(b"x").unwrap());
        }
        peers // to be closed when all was received
    });
    let (mut received, mut overflows) = (0, 0);
    while received < ROUNDS * streams.len() {
        assert_ne!(Mechanism::wait(&mut set, LONG), Woken::TimedOut, "{received} received");
        overflows += set.take_overflows();
        while let Some(slot) = set.next_ready() {
            let stream = &streams[slot as usize];
            while let Some(count) =
                stream.receive(&mut [0; 64], Mode::Try, &Counters::default()).unwrap()
            {
                received += count;
            }
        }
    }
    assert!(overflows > 0);
    drop(writer.join().unwrap());
}
