//! What the model must do, whatever the costs.

use super::{
    costs::{Costs, ROUND},
    *,
};
use crate::report::schema::described::{assert_is_published, schema_of};
use proptest::prelude::*;

fn course(design: Design, cores: usize, per_s: f64) -> Course {
    Course { design, cores, per_s, ..Course::default() }
}

fn row(design: Design, cores: usize, per_s: f64) -> Row {
    simulate(&course(design, cores, per_s), &ROUND)
}

/// Within so much of what is expected.
fn near(value: f64, expected: f64, share: f64) -> bool {
    (value / expected - 1.0).abs() <= share
}

#[test]
fn one_thread_on_one_core_is_as_fast_as_its_datagrams_cost() {
    let Costs { receive, handle, dequeue, dequeue_each, post, take, take_each, port_post, .. } =
        ROUND;
    let batch = 1000.0;
    let call = dequeue / 32.0 + dequeue_each + handle;
    let rio = dequeue / batch + dequeue_each + handle + post;
    for (design, ns) in [
        (Design::Blocking, receive + handle),
        (Design::BlockingBatch, call),
        (Design::Epoll, ROUND.readiness / 64.0 + receive + handle),
        (Design::EpollBatch, ROUND.readiness / 256.0 + call),
        (Design::Port, take + take_each + handle + port_post),
        (Design::PortBatch, take / batch + take_each + handle + port_post),
        (Design::RioHybrid, rio),
        (Design::RioSharded, rio),
    ] {
        let row = row(design, 1, 2e7);
        assert!(
            near(row.received_per_s, 1e9 / ns, 0.01),
            "{design:?}: {} and {}",
            row.received_per_s,
            1e9 / ns
        );
        assert!(row.lost_percent > 50.0 && near(row.cores_busy, 1.0, 0.05), "{row:?}");
        assert_eq!(row.threads_active, 1);
    }
}

/// A queue with one server, arrivals at random and a fixed time for each: the mean wait is known (Pollaczek and Khinchine).
/// The thread sleeps whenever the queue is empty; without what sleeping and waking cost that is M/D/1.
#[test]
fn waiting_follows_the_formula_of_a_queue_with_one_server() {
    let costs = Costs { wake: 0.0, switch: 0.0, call: 0.0, receive: 500.0, handle: 0.0, ..ROUND };
    for load in [0.3, 0.6, 0.8] {
        let course = Course {
            design: Design::Blocking,
            per_s: load / 500e-9,
            datagrams: 1_000_000,
            ..Course::default()
        };
        let row = simulate(&course, &costs);
        // In the middle of the queue: half the wait of a new one is that of the datagram under way.
        let mean = 500.0 * (1.0 + load / (2.0 * (1.0 - load)));
        let latency = row.latency_ns.unwrap();
        assert!(near(latency.mean, mean, 0.03), "{load}: {} and {mean}", latency.mean);
        assert_eq!(row.lost_percent, 0.0);
    }
}

#[test]
fn a_slow_load_is_received_whole_by_every_design_on_any_number_of_cores() {
    for design in Design::ALL {
        for cores in [1, 2, 16] {
            let row = row(design, cores, 50_000.0);
            assert!(near(row.received_per_s, 50_000.0, 0.03) && row.lost_percent == 0.0, "{row:?}");
            assert!(row.cores_busy <= cores as f64 && row.threads_active >= 1, "{row:?}");
            let latency = row.latency_ns.unwrap();
            assert!(
                latency.p50 <= latency.p99
                    && latency.p99 <= latency.p999
                    && latency.p999 <= latency.max
            );
        }
    }
}

/// Where each has a core to itself: of threads that wait in a call a datagram wakes one, of those that wait with epoll
/// all, and the others do nothing but look.
#[test]
fn a_datagram_wakes_one_thread_in_a_call_and_all_with_epoll() {
    let cpu = |design: Design, threads: usize| {
        let course = Course { threads, ..course(design, 8, 10_000.0) };
        simulate(&course, &ROUND).cpu_ns_per_datagram.unwrap()
    };
    for (in_a_call, with_epoll) in
        [(Design::Blocking, Design::Epoll), (Design::BlockingBatch, Design::EpollBatch)]
    {
        // The lock of the socket, which one thread has for itself, and now and then a datagram that comes with another.
        let more = cpu(in_a_call, 8) - cpu(in_a_call, 1);
        assert!(more < 0.25 * ROUND.switch, "{in_a_call:?}: {more} ns");
        let more = cpu(with_epoll, 8) - cpu(with_epoll, 1);
        assert!(more > 6.5 * ROUND.switch, "{with_epoll:?}: {more} ns");
    }
}

#[test]
fn a_batch_is_what_a_call_brings_and_with_epoll_one_by_one_what_a_wake_up_does() {
    let batch = |design, change: fn(&mut Course)| {
        let mut course = course(design, 1, 2e7);
        change(&mut course);
        simulate(&course, &ROUND).batch_p50
    };
    for (design, most) in [
        (Design::Blocking, 1),
        (Design::BlockingBatch, 32),
        (Design::Epoll, 64),
        (Design::EpollBatch, 32),
    ] {
        assert_eq!(batch(design, |_| ()), Some(most), "{design:?}");
    }
    assert_eq!(batch(Design::BlockingBatch, |course| course.batch = 7), Some(7));
    assert_eq!(batch(Design::Epoll, |course| course.drain = 5), Some(5));
}

/// As the counters of a flooded server show: 64 completions for each entry into the kernel, with any number of threads that
/// share a core.
#[test]
fn a_flooded_port_brings_as_many_as_it_arms() {
    for threads in [1, 2] {
        let course = Course { threads, ..course(Design::PortBatch, 1, 2e7) };
        assert_eq!(simulate(&course, &ROUND).batch_p50, Some(64), "{threads} threads");
    }
}

/// The threads of these designs share nothing but the socket: each copies for itself.
#[test]
fn plain_designs_scale_until_the_lock_of_the_socket_is_what_they_wait_for() {
    for design in [Design::Blocking, Design::BlockingBatch, Design::Epoll, Design::EpollBatch] {
        let (one, four) = (row(design, 1, 1e8), row(design, 4, 1e8));
        let times = four.received_per_s / one.received_per_s;
        assert!(times > 2.5 && times < 4.0, "{design:?}: {times}");
        let bound = 1e9 / (ROUND.receive_hold + ROUND.lock + ROUND.hop);
        let most = row(design, 64, 1e8).received_per_s;
        // A thread that has the lock twice in a row has no cache line to fetch.
        assert!(most > four.received_per_s && most < 1.2 * bound, "{design:?}: {most}");
    }
}

#[test]
fn sharding_scales_and_one_queue_does_not() {
    let (one, many) = (row(Design::RioSharded, 1, 1e8), row(Design::RioSharded, 8, 1e8));
    assert!(near(many.received_per_s, 8.0 * one.received_per_s, 0.02), "{one:?} {many:?}");
    // Whoever has the queue copies: another thread can only handle meanwhile.
    let (one, many) = (row(Design::RioHybrid, 1, 1e8), row(Design::RioHybrid, 8, 1e8));
    let copying = 1e9 / ROUND.dequeue_each;
    assert!(many.received_per_s > one.received_per_s && many.received_per_s < copying, "{many:?}");
}

/// A thread that has to make room while it has the lock of the socket gets it back to release it.
#[test]
fn threads_of_plain_designs_that_share_a_core_receive_as_much_as_one() {
    for design in [Design::Blocking, Design::BlockingBatch, Design::Epoll, Design::EpollBatch] {
        let course = |threads| Course {
            threads,
            competitors: 1,
            shared_cores: 1,
            train: 32,
            datagrams: 200_000,
            ..course(design, 2, 3e6)
        };
        let (one, two) = (simulate(&course(1), &ROUND), simulate(&course(2), &ROUND));
        assert!(two.received_per_s > 0.8 * one.received_per_s, "{one:?} {two:?}");
    }
}

#[test]
fn few_flows_leave_shards_idle() {
    let few = Course { flows: 1, ..course(Design::RioSharded, 8, 1e8) };
    let row = simulate(&few, &ROUND);
    assert_eq!(row.threads_active, 1);
    assert!(
        near(row.received_per_s, self::row(Design::RioSharded, 1, 1e8).received_per_s, 0.03),
        "{row:?}"
    );
}

#[test]
fn state_that_all_share_bounds_every_design() {
    for design in Design::ALL {
        for (cores, copies) in [(1, Copies::Thread), (8, Copies::Thread), (64, Copies::Stack)] {
            let course = Course { shared_work_ns: 2000.0, copies, ..course(design, cores, 1e7) };
            let row = simulate(&course, &ROUND);
            assert!(row.received_per_s <= 1.001e9 / 2000.0, "{row:?}");
            assert!(row.received_per_s > 0.1e9 / 2000.0 || design == Design::Port, "{row:?}");
        }
    }
}

/// The hybrid keeps the queue on one thread while dequeues bring less than the threshold, and no longer.
#[test]
fn the_hybrid_lets_others_join_when_it_is_overwhelmed() {
    let calm = row(Design::RioHybrid, 4, 1e6);
    assert_eq!((calm.threads_active, calm.wakes_per_1000_datagrams), (1, Some(0.0)));
    let overwhelmed = Course { copies: Copies::Stack, ..course(Design::RioHybrid, 4, 3e7) };
    let row = simulate(&overwhelmed, &ROUND);
    assert!(row.threads_active > 1 && row.wakes_per_1000_datagrams > Some(0.0), "{row:?}");
    // With a threshold that is never reached one thread does all of it.
    let never = simulate(
        &Course { threshold: 1000, dequeue_max: 1000, buffer: 999, ..overwhelmed },
        &ROUND,
    );
    assert_eq!(never.threads_active, 1, "{never:?}");
    assert!(never.received_per_s < row.received_per_s);
}

/// `rio-port` passes the queue on after each dequeue: with a second thread that is a wake-up for each batch.
#[test]
fn a_port_wakes_a_thread_for_each_batch_and_the_limit_spares_one_core_that() {
    let row = row(Design::Port, 2, 1e6);
    assert!(row.wakes_per_1000_datagrams > Some(900.0), "{row:?}");
    let one_may_run = Course { threads: 8, ..course(Design::Port, 1, 1e6) };
    let row = simulate(&one_may_run, &ROUND);
    assert_eq!((row.threads_active, row.wakes_per_1000_datagrams), (1, Some(0.0)), "{row:?}");
}

#[test]
fn more_work_or_dearer_datagrams_never_make_a_design_faster() {
    for design in Design::ALL {
        let mut last = f64::INFINITY;
        for own_work_ns in [0.0, 100.0, 400.0, 1600.0] {
            let row = simulate(&Course { own_work_ns, ..course(design, 2, 2e7) }, &ROUND);
            assert!(row.received_per_s <= last * 1.01, "{design:?} {own_work_ns}: {row:?}");
            last = row.received_per_s;
        }
    }
}

#[test]
fn who_competes_for_the_cores_takes_its_share() {
    let alone = row(Design::Blocking, 1, 1e7);
    let shared = simulate(
        &Course { competitors: 1, datagrams: 1_000_000, ..course(Design::Blocking, 1, 1e7) },
        &ROUND,
    );
    assert!(near(shared.received_per_s, alone.received_per_s / 2.0, 0.1), "{shared:?}");
}

/// Beside a program that has one of the two cores, both threads of a port come to run on the other one: then nobody leads
/// for long, and neither wakes the other for each datagram, whatever the traffic.
#[test]
fn threads_of_a_port_that_share_a_core_go_on_without_waking_each_other() {
    let beside = Course {
        threads: 2,
        competitors: 1,
        shared_cores: 1,
        train: 32,
        buffer: 256,
        ..course(Design::Port, 2, 1.7e6)
    };
    let alone = row(Design::Port, 1, 1.7e6);
    for seed in 1..=12 {
        let row = simulate(&Course { seed, ..beside }, &ROUND);
        assert!(row.wakes_per_1000_datagrams < Some(10.0), "seed {seed}: {row:?}");
        assert!(row.received_per_s > 0.9 * alone.received_per_s, "seed {seed}: {row:?}");
        assert_eq!(row.threads_active, 2, "seed {seed}");
    }
}

/// A generator that gives its core to a thread of the server sends nothing meanwhile.
#[test]
fn a_generator_sends_while_it_has_a_core() {
    let shared = |cores: usize| {
        let course = Course {
            threads: 1,
            competitors: 1,
            competitors_send: true,
            shared_cores: 1,
            train: 32,
            own_work_ns: 200.0,
            datagrams: 200_000,
            ..course(Design::BlockingBatch, cores, 2e6)
        };
        let row = simulate(&course, &ROUND);
        (row.arrived as f64 / row.simulated_ms * 1000.0, row)
    };
    let (sent, of_two) = shared(2);
    assert!(near(sent, 2e6, 0.02) && of_two.lost_percent > 0.0, "{sent}: {of_two:?}");
    let (sent, of_one) = shared(1);
    assert!(sent < 1.4e6 && of_one.received_per_s < 1.4e6, "{sent}: {of_one:?}");
}

#[test]
fn what_cannot_be_simulated_is_refused_with_what_to_do() {
    let plan = |change: &dyn Fn(&mut Plan)| {
        let mut plan = Plan {
            designs: Design::ALL.to_vec(),
            copies: vec![Copies::Thread],
            cores: vec![1],
            loads: vec![1e6],
            shared_work_ns: vec![0.0],
            course: Course::default(),
            seed: 1,
        };
        change(&mut plan);
        plan.courses()
    };
    assert_eq!(plan(&|_| {}).unwrap().len(), Design::ALL.len());
    let refused = |words: &str, change: &dyn Fn(&mut Plan)| {
        let error = plan(change).unwrap_err();
        assert!(error.contains(words), "{error}");
    };
    refused("ask for 1 to 256", &|plan| plan.cores = vec![0]);
    refused("ask for 1 to 256", &|plan| plan.cores = vec![257]);
    refused("ask for 1 to 1000M", &|plan| plan.loads = vec![2e9]);
    refused("ask for 1 to 1000M", &|plan| plan.loads = vec![f64::NAN]);
    refused("at most 1ms", &|plan| plan.shared_work_ns = vec![1e7]);
    refused("threshold of 2000", &|plan| plan.course.threshold = 2000);
    refused("ask for at most 256", &|plan| plan.course.threads = 257);
    refused("on 2 of 1 cores", &|plan| plan.course.shared_cores = 2);
    refused("more than 20000 rows", &|plan| plan.loads = vec![1e6; 3000]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// What came was received, or lost, or waits; and the same seed gives the same row.
    #[test]
    fn nothing_is_made_and_nothing_vanishes(
        design in prop::sample::select(&Design::ALL[..]),
        copies in prop::sample::select(&Copies::ALL[..]),
        cores in 1usize..9,
        threads in 0usize..12,
        per_s in 1e4f64..5e7,
        shared_work_ns in prop::sample::select(&[0.0, 300.0, 2000.0][..]),
        buffer in 1usize..2000,
        train in 1u32..70,
        flows in 1u32..100,
        seed in any::<u64>(),
    ) {
        let course = Course {
            design, copies, cores, threads, per_s, shared_work_ns, buffer, train, flows, seed,
            datagrams: 2000,
            ..Course::default()
        };
        let row = simulate(&course, &ROUND);
        prop_assert_eq!(
            row.arrived,
            row.received + row.lost_before_socket + row.lost_at_socket + row.waiting
        );
        prop_assert!(row.cores_busy <= cores as f64, "{:?}", row);
        prop_assert!(row.threads_active <= row.threads);
        prop_assert!(!row.cut_short);
        prop_assert_eq!(&row, &simulate(&course, &ROUND));
    }
}

#[test]
fn the_published_schema_is_this() {
    let schema = schema_of::<report::Document>("A result of weir simulate");
    assert_is_published(schema, report::SCHEMA, "src/simulate/simulation.schema.json");
}
