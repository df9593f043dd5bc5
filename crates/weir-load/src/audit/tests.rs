//! The auditor against a naive model, and its rules one by one.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use proptest::prelude::*;

use super::*;
use crate::{
    control::RunAsk,
    proof::{self, Secret},
    stamp::{STAMP_BYTES, Stamp, fill},
};

const SIZE: usize = 64;

static SECRET: LazyLock<Secret> = LazyLock::new(Secret::random);

fn datagram(run: u32, flow: u16, sequence: u64, due_ns: u64) -> Vec<u8> {
    let mut bytes = vec![0; SIZE];
    fill(&mut bytes);
    Stamp { run, flow, sequence, proof: SECRET.value(run, flow, sequence), due_ns }
        .write(&mut bytes);
    bytes
}

fn settings(flows: usize) -> AuditSettings {
    AuditSettings { verify_every: 1, ..AuditSettings::new(7, SIZE, flows, true) }
}

fn begun(settings: AuditSettings) -> Arc<Audit> {
    let audit = Audit::new();
    audit.begin(settings).expect("the run can begin");
    audit
}

/// What happens to a datagram on its way: lost, delivered, delivered twice; and where to.
#[derive(Debug, Clone, Copy)]
struct Fate {
    copies: u8,
    thread: usize,
    delay: u8,
}

fn any_fate(threads: usize) -> impl Strategy<Value = Fate> {
    (prop_oneof![1 => Just(0u8), 6 => Just(1), 1 => Just(2)], 0..threads, 0u8..8)
        .prop_map(|(copies, thread, delay)| Fate { copies, thread, delay })
}

proptest! {
    #[test]
    fn agrees_with_a_naive_model(
        flows in 1usize..4,
        stride in prop_oneof![Just(1u64), Just(1000), Just(70_000)],
        fates in proptest::collection::vec(any_fate(3), 0..300),
    ) {
        let audit = begun(settings(flows));
        let mut auditors: Vec<_> = (0..3).map(|_| audit.auditor()).collect();
        // Deliver in the order of place plus delay; the second copy goes to the next thread.
        let mut arrivals = Vec::new();
        let mut sent = vec![0u64; flows];
        for (at, fate) in fates.iter().enumerate() {
            let flow = at % flows;
            let sequence = (at / flows) as u64 * stride;
            sent[flow] += 1;
            for copy in 0..fate.copies {
                let thread = (fate.thread + usize::from(copy)) % 3;
                arrivals.push((at + usize::from(fate.delay * (copy + 1)), thread, flow, sequence));
            }
        }
        arrivals.sort_by_key(|(when, ..)| *when);

        let mut highest: BTreeMap<(usize, usize), u64> = BTreeMap::new();
        let mut by_thread = BTreeSet::new();
        let mut seen: BTreeMap<(usize, u64), u64> = BTreeMap::new();
        let mut reordered = 0;
        for (_, thread, flow, sequence) in &arrivals {
            auditors[*thread].record(&datagram(7, *flow as u16, *sequence, 100), || 150);
            *seen.entry((*flow, *sequence)).or_default() += 1;
            let first_here = by_thread.insert((*thread, *flow, *sequence));
            let top = highest.entry((*thread, *flow)).or_insert(*sequence);
            reordered += u64::from(first_here && sequence < top);
            *top = (*top).max(*sequence);
        }

        let report = audit.report(7, Some(&sent)).expect("the run is open");
        prop_assert_eq!(report.received, arrivals.len() as u64);
        prop_assert_eq!(report.duplicates, seen.values().map(|n| n - 1).sum::<u64>());
        prop_assert_eq!(report.reordered, reordered);
        prop_assert_eq!(report.lost, Some(fates.len() as u64 - seen.len() as u64));
        for (flow, flow_report) in report.flows.iter().enumerate() {
            let here = seen.keys().filter(|(f, _)| *f == flow).count() as u64;
            prop_assert_eq!(flow_report.seen, here);
            prop_assert_eq!(flow_report.lost, Some(sent[flow] - here));
        }
        prop_assert_eq!(report.latencies.count(), arrivals.len() as u64);
        prop_assert_eq!(report.strangers + report.corrupt_headers + report.corrupt_bodies, 0);
    }

    #[test]
    fn any_bytes_are_strangers(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        let audit = begun(settings(1));
        prop_assert_eq!(audit.auditor().record(&bytes, || 0), Verdict::Stranger);
        prop_assert_eq!(audit.report(7, None).expect("open").strangers, 1);
    }
}

#[test]
fn each_kind_of_trouble_is_told_apart() {
    let audit = begun(settings(2));
    let mut auditor = audit.auditor();
    let mut record = |bytes: &[u8]| auditor.record(bytes, || 1_000);

    assert_eq!(record(&datagram(7, 0, 5, 900)), Verdict::Intact);
    assert_eq!(record(&datagram(7, 0, 4, 900)), Verdict::Reordered);
    assert_eq!(record(&datagram(7, 0, 5, 900)), Verdict::Duplicate);
    assert_eq!(record(&datagram(8, 0, 6, 900)), Verdict::Stranger);
    assert_eq!(record(&datagram(7, 2, 6, 900)), Verdict::Stranger);
    assert_eq!(record(&[]), Verdict::Stranger);
    let mut changed = datagram(7, 0, 6, 900);
    changed[20] ^= 1;
    assert_eq!(record(&changed), Verdict::Corrupt);
    let mut changed = datagram(7, 0, 6, 900);
    changed[60] ^= 1;
    assert_eq!(record(&changed), Verdict::Corrupt);
    assert_eq!(record(&datagram(7, 0, 7, 900)[..48]), Verdict::WrongSize);
    assert_eq!(record(&datagram(7, 0, 8, 1_001)), Verdict::Intact);

    let report = audit.end(7, Some(&[10, 0])).expect("open");
    assert_eq!(report.received, 7);
    assert_eq!((report.strangers, report.unknown_flow), (2, 1));
    assert_eq!((report.corrupt_headers, report.corrupt_bodies), (1, 1));
    assert_eq!((report.duplicates, report.reordered, report.wrong_size), (1, 1, 1));
    assert_eq!(report.clock_disagreements, 1);
    assert_eq!(report.lost, Some(5)); // 4, 5, 6 (its body was changed), 7 and 8 arrived
    assert_eq!(report.latency_ns.as_ref().expect("taken").max, 100);
    assert!(report.data_errors);
    assert!(audit.report(7, None).is_none());
}

#[test]
fn the_second_run_begins_from_nothing_and_late_datagrams_are_strangers() {
    let audit = begun(settings(1));
    let mut auditor = audit.auditor();
    auditor.record(b"a stranger", || 0);
    auditor.record(&datagram(7, 0, 0, 0), || 0);
    audit.end(7, None).expect("open");
    assert_eq!(auditor.record(&datagram(7, 0, 1, 0), || 0), Verdict::Stranger);
    audit.begin(AuditSettings { warm_up_run: Some(9), ..settings(1) }).expect("free");
    assert_eq!(auditor.record(&datagram(7, 0, 0, 0), || 0), Verdict::Intact);
    assert_eq!(auditor.record(&datagram(9, 0, 0, 0), || 0), Verdict::WarmUp);
    drop(auditor);
    let report = audit.end(7, Some(&[1])).expect("open");
    assert_eq!((report.received, report.strangers, report.warm_up), (1, 0, 1));
    assert!(!report.data_errors);
}

#[test]
fn several_runs_are_kept_apart_and_bounded() {
    let audit = Audit::new();
    for run in 0..RUNS_MAX as u32 {
        audit.begin(AuditSettings::new(run, SIZE, 1, true)).expect("below the bound");
    }
    assert!(audit.begin(AuditSettings::new(99, SIZE, 1, true)).is_err());
    assert!(audit.begin(AuditSettings::new(3, SIZE, 1, true)).is_err());
    let mut auditor = audit.auditor();
    for run in [3, 4, 3, 3] {
        auditor.record(&datagram(run, 0, u64::from(run), 0), || 0);
    }
    assert_eq!((audit.received(3), audit.received(4), audit.received(5)), (3, 1, 0));
    assert!(audit.begin(AuditSettings::new(99, SIZE, 0, true)).is_err());
    assert!(audit.begin(AuditSettings::new(99, SIZE, FLOWS_MAX + 1, true)).is_err());
}

#[test]
fn bitmaps_stop_at_their_bound() {
    let audit = begun(AuditSettings { bitmap_bytes_max: 1024, ..settings(1) });
    let mut auditor = audit.auditor();
    for sequence in [0, 1, CHUNK_NUMBERS, u64::MAX, 1] {
        auditor.record(&datagram(7, 0, sequence, 0), || 0);
    }
    let report = audit.report(7, Some(&[6])).expect("open");
    assert_eq!((report.untracked, report.duplicates, report.lost), (2, 1, Some(2)));
    assert!(report.lost_is_lower_bound);
}

#[test]
fn there_is_room_for_all_proofs_before_the_first_datagram() {
    let audit = begun(settings(1));
    let mut auditor = audit.auditor();
    let room = || audit.lock().runs[0].books[0].room_for_proofs();
    auditor.record(b"", || 1); // it looks for runs, and this belongs to none
    let at_first = room();
    assert!(at_first > proof::MOST, "{at_first}");
    let record = |sequence| auditor.record(&datagram(7, 0, sequence, 0), || 1);
    (0..2 * proof::MOST as u64).map(record).for_each(|found| assert_eq!(found, Verdict::Intact));
    assert_eq!(room(), at_first);
    let shown = audit.report(7, None).unwrap().proof;
    assert!(shown.mask > 0 && shown.datagrams.len() as u64 >= proof::LEAST, "{}", shown.mask);
}

#[test]
fn short_datagrams_are_only_counted() {
    for size_bytes in [0, 1, STAMP_BYTES - 1] {
        let audit = begun(AuditSettings { size_bytes, ..settings(1) });
        let mut auditor = audit.auditor();
        let mut bytes = vec![0; size_bytes];
        fill(&mut bytes);
        for _ in 0..10 {
            assert_eq!(auditor.record(&bytes, || 5), Verdict::Unstamped);
        }
        assert_eq!(auditor.record(&[0; 40], || 5), Verdict::Stranger);
        let report = audit.report(7, Some(&[12])).expect("open");
        assert_eq!((report.received, report.unstamped, report.lost), (10, 10, Some(2)));
        assert_eq!(report.latency_ns, None);
        assert!(report.flows.is_empty());
    }
}

#[test]
fn the_clock_is_read_only_for_samples() {
    let audit = begun(AuditSettings::new(7, SIZE, 1, false));
    let mut auditor = audit.auditor();
    let mut reads = 0;
    for sequence in 0..10 * u64::from(AuditSettings::SAMPLE_EVERY) {
        auditor.record(&datagram(7, 0, sequence, 1), || {
            reads += 1;
            1_000 + sequence
        });
    }
    assert_eq!(reads, 10);
    let report = audit.report(7, None).expect("open");
    assert_eq!((report.bodies_checked, report.first_ns), (10, Some(1_000)));
    assert_eq!(report.lost, None);
}

#[test]
fn quiet_is_measured_from_the_last_arrival() {
    let audit = begun(settings(1));
    let mut auditor = audit.auditor();
    auditor.record(&datagram(7, 0, 0, 0), || 0);
    assert_eq!(audit.quiet_ns(7), 0);
    let after = now_ns() + 2_000_000;
    while now_ns() < after {}
    assert!(audit.quiet_ns(7) >= 2_000_000);
    auditor.record(&datagram(7, 0, 1, 0), || 0);
    assert_eq!(audit.quiet_ns(7), 0);
}

#[test]
fn the_quiet_of_a_run_is_not_broken_by_another() {
    let audit = begun(AuditSettings { warm_up_run: Some(70), ..settings(1) });
    audit.begin(AuditSettings { run: 8, ..settings(1) }).expect("free");
    let mut auditor = audit.auditor();
    let after = now_ns() + 2_000_000;
    while now_ns() < after {}
    auditor.record(&datagram(8, 0, 0, 0), || 0);
    assert!(audit.quiet_ns(7) >= 2_000_000);
    assert_eq!(audit.quiet_ns(8), 0);
    auditor.record(&datagram(70, 0, 0, 0), || 0);
    assert_eq!(audit.quiet_ns(7), 0, "its warm-up is its own");
    assert_eq!(audit.quiet_ns(9), u64::MAX, "no such run");
}

#[test]
fn datagrams_without_a_stamp_belong_to_the_warm_up_until_the_run_starts() {
    for size_bytes in [0, STAMP_BYTES - 1] {
        let audit = begun(AuditSettings { size_bytes, warm_up_run: Some(70), ..settings(1) });
        let mut auditor = audit.auditor();
        let mut bytes = vec![0; size_bytes];
        fill(&mut bytes);
        for _ in 0..3 {
            assert_eq!(auditor.record(&bytes, || 5), Verdict::WarmUp);
        }
        assert_eq!(audit.quiet_ns(7), 0, "they have just arrived");
        audit.start(7);
        assert_eq!(auditor.record(&bytes, || 5), Verdict::Unstamped);
        let report = audit.end(7, Some(&[1])).expect("open");
        assert_eq!((report.received, report.warm_up, report.lost), (1, 3, Some(0)));
    }
}

#[test]
fn two_runs_that_nothing_would_tell_apart_are_not_open_at_once() {
    let audit = begun(AuditSettings { size_bytes: 16, ..settings(1) });
    let other = |size_bytes| AuditSettings { run: 8, size_bytes, ..settings(1) };
    let error = audit.begin(other(16)).expect_err("the same size");
    assert!(error.contains("16-byte") && error.contains("--length"), "{error}");
    audit.begin(other(17)).expect("another size");
    audit.end(7, None).expect("open");
    audit.begin(AuditSettings { run: 9, ..other(16) }).expect("its turn");
}

#[test]
fn latencies_are_told_by_the_offset_of_the_generators_clock() {
    // It is behind, ahead, and more ahead than the receiver's clock has come.
    for offset_ns in [-1_000_000, 1_000_000, 1 << 50] {
        let audit = begun(AuditSettings { clock_offset_ns: Some(offset_ns), ..settings(1) });
        let mut auditor = audit.auditor();
        let mut due = |sequence: u64, due_ns: u64| {
            let stamped_ns = due_ns.wrapping_add_signed(offset_ns);
            auditor.record(&datagram(7, 0, sequence, stamped_ns), || 5_000_000)
        };
        assert_eq!(due(0, 5_000_000 - 200), Verdict::Intact);
        // By a clock that is not known better it has come before it was due.
        assert_eq!(due(1, 5_000_000 + 10), Verdict::Intact);
        let report = audit.end(7, None).expect("open");
        let latency = report.latency_ns.expect("both were taken");
        assert_eq!((latency.n, latency.min, latency.max), (2, 0, 200), "{offset_ns}");
        assert_eq!(report.clock_disagreements, 1);
    }
}

/// What a generator was consented to, at a rate for a second.
fn agreed(datagrams_per_s: Option<f64>) -> AgreedRun {
    let ask = RunAsk {
        run: 7,
        warm_up_run: Some(8),
        warm_up_ms: 10,
        size_bytes: SIZE,
        flows: 4,
        datagrams_per_s,
        window_ms: 10,
        duration_ms: 1000,
        datagrams: None,
        reply_bytes: None,
        clock_offset_ns: None,
    };
    let (peer, local) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
    AgreedRun { ask, peer, local, same_host: false }
}

#[test]
fn memory_is_bounded_by_what_was_consented_to_and_comes_back_at_the_end() {
    // As many flows and chunks as the datagrams can name, at rates that consent to little.
    let sparse = |auditor: &mut Auditor| {
        for number in 0..20_000u64 {
            let bytes = datagram(7, (number % 4) as u16, number * CHUNK_NUMBERS, 0);
            auditor.record(&bytes, || 0);
        }
    };
    for (rate, least, most) in [
        (Some(1.0), 1, 2 * 4 * Chunk::BYTES),
        (Some(100_000.0), 1, (2 * 4 + 110_000 / 8192 + 1) * Chunk::BYTES),
        (None, 1 << 20, AuditSettings::BITMAP_BYTES_MAX),
    ] {
        let audit = Audit::new();
        audit.begin(AuditSettings::for_run(&agreed(rate))).expect("nothing is open");
        audit.start(7);
        let (mut one, mut other) = (audit.auditor(), audit.auditor());
        sparse(&mut one);
        let of_one = audit.bitmap_bytes();
        assert!((least..=most).contains(&of_one), "{rate:?}: {of_one} bytes");
        sparse(&mut other);
        assert!(audit.bitmap_bytes() <= 2 * most);
        let report = audit.end(7, None).expect("open");
        assert_eq!(report.received, 40_000);
        // The last one of each flow stays with each thread until its next datagram.
        assert!(audit.bitmap_bytes() <= 2 * 4 * Chunk::BYTES, "{rate:?}");
        one.record(b"", || 0);
        other.record(b"", || 0);
        assert_eq!(audit.bitmap_bytes(), 0, "{rate:?}");
    }
}

#[test]
fn all_runs_together_have_a_bound() {
    let audit = Audit::new();
    let mut auditor = audit.auditor();
    let runs = BITMAP_BYTES_IN_ALL / AuditSettings::BITMAP_BYTES_MAX + 1;
    let chunks = (AuditSettings::BITMAP_BYTES_MAX / Chunk::BYTES) as u64;
    for run in 0..runs as u32 {
        audit.begin(AuditSettings::new(run, SIZE, 1, false)).expect("free");
        for chunk in 0..chunks {
            auditor.record(&datagram(run, 0, chunk * CHUNK_NUMBERS, 0), || 0);
        }
    }
    assert_eq!(audit.bitmap_bytes(), BITMAP_BYTES_IN_ALL);
    let last = audit.end(runs as u32 - 1, None).expect("open");
    assert_eq!((last.received, last.untracked), (chunks, chunks), "there was no room for it");
}

#[test]
fn datagrams_of_a_run_from_another_address_are_strangers() {
    let audit = Audit::new();
    let run = agreed(None);
    audit.begin(AuditSettings::for_run(&run)).expect("nothing is open");
    let mut auditor = audit.auditor();
    let elsewhere: IpAddr = [192, 0, 2, 9].into();
    let mapped: IpAddr = "::ffff:192.0.2.1".parse().expect("an address");
    for (source, bytes, verdict) in [
        (run.peer, datagram(8, 0, 0, 0), Verdict::WarmUp),
        (elsewhere, datagram(8, 0, 1, 0), Verdict::Stranger),
        (elsewhere, datagram(7, 0, 0, 0), Verdict::Stranger),
        (run.peer, datagram(7, 0, 0, 0), Verdict::Intact),
        (mapped, datagram(7, 0, 1, 0), Verdict::Intact),
    ] {
        assert_eq!(auditor.record_from(source, &bytes, || 0), verdict, "{source}");
    }
    let bytes = 3 * SIZE as u64;
    assert_eq!(audit.arrived(7), Some(Arrived { datagrams: 3, bytes }));
    let report = audit.end(7, Some(&[2, 0, 0, 0])).expect("open");
    assert_eq!((report.received, report.strangers, report.lost), (2, 2, Some(0)));
}
