//! What one thread sees, and order among real threads.

use super::{Lead, Limit};
use std::{
    sync::{Mutex, mpsc},
    thread,
    time::{Duration, Instant},
};

/// Returns once `parked` threads wait to lead.
fn until_parked(limit: &Limit, parked: usize) {
    while limit.parked() != parked {
        thread::yield_now();
    }
}

/// Returns once somebody waits to enter.
fn until_entering(limit: &Limit) {
    while limit.lock().rules.entering() == 0 {
        thread::yield_now();
    }
}

#[test]
fn one_thread_leads_runs_and_leads_again() {
    let limit = Limit::new(1, 1);
    let mut member = limit.join().unwrap();
    assert!(limit.join().is_none(), "one thread, one place");
    for _ in 0..3 {
        assert_eq!(member.lead(None), Lead::Yours);
        assert_eq!(limit.running(), 0, "who waits does not run");
        member.run();
        assert_eq!(limit.running(), 1);
    }
    drop(member);
    assert_eq!(limit.running(), 0);
    assert!(limit.join().is_some(), "a place is used again");
}

#[test]
fn the_thread_that_parked_last_leads_first() {
    let limit = Limit::new(1, 5);
    let (order, led) = (Mutex::new(Vec::new()), mpsc::channel());
    thread::scope(|scope| {
        let mut first = limit.join().unwrap();
        assert_eq!(first.lead(None), Lead::Yours);
        first.run();
        for number in 1..5 {
            let (limit, order, led) = (&limit, &order, led.0.clone());
            scope.spawn(move || {
                let mut member = limit.join().unwrap();
                assert_eq!(member.lead(None), Lead::Yours);
                member.run();
                order.lock().unwrap().push(number);
                led.send(()).unwrap();
            });
            until_parked(limit, number);
        }
        drop(first);
        (1..5).for_each(|_| led.1.recv().unwrap());
    });
    assert_eq!(*order.lock().unwrap(), [4, 3, 2, 1]);
}

#[test]
fn with_a_limit_of_one_nobody_is_woken() {
    let limit = Limit::new(1, 2);
    thread::scope(|scope| {
        let mut first = limit.join().unwrap();
        assert_eq!(first.lead(None), Lead::Yours);
        let other = scope.spawn(|| limit.join().unwrap().lead(None));
        until_parked(&limit, 1);
        for _ in 0..100 {
            first.run();
            assert_eq!(limit.parked(), 1, "the other sleeps on");
            assert!(first.try_lead());
        }
        limit.close();
        assert_eq!(other.join().unwrap(), Lead::Closed);
        first.run();
        assert_eq!(first.lead(None), Lead::Closed, "what was taken is handled first");
    });
}

#[test]
fn time_runs_out_for_a_parked_thread_and_only_for_it() {
    let limit = Limit::new(1, 3);
    let (mut leader, mut hasty) = (limit.join().unwrap(), limit.join().unwrap());
    assert_eq!(leader.lead(None), Lead::Yours);
    let started = Instant::now();
    assert_eq!(hasty.lead(Some(started + Duration::from_millis(5))), Lead::TimedOut);
    assert!(started.elapsed() >= Duration::from_millis(5));
    assert_eq!(limit.parked(), 0);
    assert!(!hasty.try_lead(), "another leads");
    leader.run();
    assert_eq!(limit.running(), 1);
}

#[test]
fn a_leader_without_a_permit_waits_for_one() {
    let limit = Limit::new(1, 2);
    thread::scope(|scope| {
        let (mut leader, mut back) = (limit.join().unwrap(), limit.join().unwrap());
        assert_eq!(leader.lead(None), Lead::Yours);
        back.enter();
        let leading = scope.spawn(move || {
            leader.run();
            leader.lead(None)
        });
        until_entering(&limit);
        assert_eq!(limit.running(), 1, "the only permit is taken");
        back.leave();
        assert_eq!(leading.join().unwrap(), Lead::Yours);
    });
}

#[test]
fn who_waits_to_enter_goes_before_who_waits_to_lead() {
    let limit = Limit::new(1, 3);
    thread::scope(|scope| {
        let mut first = limit.join().unwrap();
        first.enter();
        let leader = scope.spawn(|| limit.join().unwrap().lead(None));
        until_parked(&limit, 1);
        let (entered, has_entered) = mpsc::channel();
        scope.spawn(|| {
            let mut member = limit.join().unwrap();
            member.enter();
            entered.send(limit.parked()).unwrap();
            drop(entered);
        });
        until_entering(&limit);
        first.leave();
        assert_eq!(has_entered.recv().unwrap(), 1, "the other is still parked");
        assert_eq!(leader.join().unwrap(), Lead::Yours);
    });
}
