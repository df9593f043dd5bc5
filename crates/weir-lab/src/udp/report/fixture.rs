//! A fixed experiment for the tests of the reports: no clock, no chance.

use serde_json::{Map, Value};
use weir::counters::{ALL_ENTRIES, ENTRIES_SOURCE, ENTRIES_WITHOUT_FUTEX};

use crate::experiment::cell::Conformance;
use crate::experiment::cell::When;
use crate::experiment::plan::{Role, Row, Schedule};
use crate::machine::Machine;
use crate::udp::exchange::Echoed;
use crate::udp::plan::{Load, Rate};
use crate::udp::results::{Calibration, Results};
use crate::udp::sample::{Circumstances, Sample};
use crate::wire::{Audit, Batches, FloodReport, Latency, ServerReport, SystemReport, Window};

/// What one simulated row does.
struct Shape {
    spec: &'static str,
    role: Role,
    received_per_s: f64,
    entries_per_1000: u64,
    batch: u64,
    latency_p50_ns: u64,
}

const SHAPES: [Shape; 5] = [
    shape(
        "port --provider uring --armed 5000 --take 1",
        Role::Traditional,
        0.77e6,
        1000,
        1,
        98_600_000,
    ),
    shape("blocking", Role::Plain, 1.32e6, 1000, 1, 17_000),
    shape("rio-event --provider uring", Role::Plain, 2.04e6, 16, 64, 18_000),
    shape("rio-hybrid --provider uring --threads 1", Role::Plain, 2.05e6, 46, 58, 4_700),
    shape("rio-hybrid --provider uring --threads 1", Role::Again(3), 2.05e6, 46, 58, 4_700),
];

const fn shape(
    spec: &'static str,
    role: Role,
    received_per_s: f64,
    entries_per_1000: u64,
    batch: u64,
    latency_p50_ns: u64,
) -> Shape {
    Shape { spec, role, received_per_s, entries_per_1000, batch, latency_p50_ns }
}

/// Common speed of each block: in the fourth the machine is slow.
const BLOCKS: [f64; 8] = [1.0, 0.99, 1.01, 0.62, 1.0, 0.995, 1.005, 1.0];

fn sample(shape: &Shape, block: usize, paced: bool) -> Sample {
    let second_name = matches!(shape.role, Role::Again(_));
    let waver = if second_name && block.is_multiple_of(2) { 1.012 } else { 1.0 };
    let rate = match paced {
        true => 50_000.0,
        false => shape.received_per_s * BLOCKS[block] * waver,
    };
    let sent = if paced { 30_000 } else { 1_400_000 };
    let received = if paced { sent } else { (rate * 0.6) as u64 };
    let latency = Latency {
        n: received,
        min: shape.latency_p50_ns / 2,
        p50: shape.latency_p50_ns,
        p90: shape.latency_p50_ns * 5 / 4,
        p99: shape.latency_p50_ns * 3 / 2,
        p999: shape.latency_p50_ns * 2,
        max: shape.latency_p50_ns * 3,
    };
    let at = Circumstances {
        burst: false,
        answered: false,
        when: When {
            block: block as u32,
            core_to_core_ns: Some(if block == 3 { 170.0 } else { 27.0 }),
            core_to_core_after_ns: Some(if block == 3 { 170.0 } else { 27.0 }),
            load_of_others: Some(0.01),
            ..When::default()
        },
        paced,
        calibrated_per_s: (block != 3).then_some(2.4e6),
        calibration_alike: Some(block != 3),
        server_cores: 1,
        generator_cores: 1,
    };
    let entries_source = match shape.role {
        Role::Traditional => ENTRIES_WITHOUT_FUTEX,
        _ => ALL_ENTRIES,
    };
    let server = ServerReport {
        design: shape.spec.split(' ').next().unwrap_or_default().into(),
        settings: [
            ("receive-buffer-bytes".to_owned(), "212992".to_owned()),
            (ENTRIES_SOURCE.to_owned(), entries_source.to_owned()),
        ]
        .into(),
        end_signalled: true,
        threads_started: 1,
        threads_used: 1,
        window: Window {
            elapsed_ns: 500_000_000,
            datagrams: (rate / 2.0) as u64,
            handled: (rate / 2.0) as u64,
            cpu_ns: Some(if paced { 125_000_000 } else { 495_000_000 }),
            threads_cpu_ns: Some(if paced { 120_000_000 } else { 490_000_000 }),
        },
        counters: [
            ("datagrams".to_owned(), received),
            ("kernel_entries".to_owned(), received * shape.entries_per_1000 / 1000),
            ("waits".to_owned(), received * shape.entries_per_1000 / 2000),
            ("overflows".to_owned(), 0),
            ("no_buffer".to_owned(), u64::from(shape.spec.starts_with("rio-event")) * 2),
        ]
        .into(),
        batches: Batches {
            min: Some(1),
            p10: Some(1),
            p50: Some(shape.batch),
            p90: Some(shape.batch * 2),
            max: Some(shape.batch * 3),
            mean: Some(shape.batch as f64),
        },
        audit: Audit { received, latency_ns: paced.then_some(latency), ..Audit::default() },
        system: SystemReport {
            context_switches: Some(received / 2000),
            dropped_device: None,
            dropped_cpu_queue: Some(0),
            dropped_socket: Some(sent - received),
            resident_bytes: Some(6 << 20),
            ..SystemReport::default()
        },
        ..ServerReport::default()
    };
    let flood = FloodReport {
        offered: sent,
        sent,
        elapsed_ns: 600_000_000,
        cpu_ns: Some(598_000_000),
        windows: paced.then_some(60),
        windows_within: paced.then_some(60),
        engine: Some("gso".into()),
        ..FloodReport::default()
    };
    Sample::of(&at, &server, &flood)
}

/// The experiment.
pub fn results() -> Results {
    let parse = |shape: &Shape| {
        Row::parse(shape.spec).expect("the fixture's rows are right").with_role(shape.role)
    };
    let mut rows: Vec<Row> = SHAPES.iter().map(parse).collect();
    let mut unavailable = Row::parse("rio-event --provider xdp").expect("a row");
    unavailable.unavailable =
        Some("provider xdp cannot be used here: socket(AF_XDP): Operation not permitted (os error 1); run as root".into());
    rows.push(unavailable);
    rows.push(Row::parse("epoll").expect("a row"));
    let base = Load::saturation(64);
    let machine = Machine {
        properties: Map::from_iter([
            ("cpu_model".to_owned(), Value::from("Example CPU at 2.8 GHz")),
            ("cores".to_owned(), Value::from(2)),
            ("kernel".to_owned(), Value::from("Linux 6.18.0")),
        ]),
        warnings: vec!["the machine is virtual: its speed may change by itself".into()],
    };
    let command = ["weir", "compare", "udp"].map(str::to_owned).to_vec();
    let loads = vec![base, base.at(Rate::PerSecond(50_000))];
    let mut results = Results::new(command, machine, rows, loads);
    results.seed = 42;
    results.own.server_cores = vec![0];
    results.own.generator_cores = vec![1];
    results.own.calibrations = vec![Calibration {
        receive_offload: false,
        size_bytes: 64,
        flows: 1,
        generators: 1,
        sent_per_s: 2.4e6,
        core_to_core_ns: Some(27.0),
        core_to_core_after_ns: Some(28.0),
    }];
    results.own.checked =
        Some(Echoed { datagrams: 216, senders: 3, sizes_bytes: vec![0, 1, 1024], ipv6: true });
    results.schedules = vec![
        Some(Schedule { rounds: 8, run_ms: 600, warmup_ms: 100 }),
        Some(Schedule { rounds: 8, run_ms: 400, warmup_ms: 100 }),
    ];
    for (row, shape) in SHAPES.iter().enumerate() {
        results.conformance[row] = Conformance::Passed;
        results.cells[0][row].samples =
            (0..BLOCKS.len()).map(|block| sample(shape, block, false)).collect();
        results.cells[1][row].samples =
            (0..BLOCKS.len()).map(|block| sample(shape, block, true)).collect();
    }
    results.cells[0][6]
        .failed("the server ended with exit code 101 before it was ready: \"panicked\"".into());
    results.count_only_alike();
    results
}

/// The same with two rows that ran with receive offload as well, one of them under two names: eight
/// and ten times as fast.
pub fn with_offload() -> Results {
    let mut results = results();
    results.loads[0].takes.offloaded = true;
    let rows = [(1, Role::Plain, 8.0), (3, Role::Plain, 10.0), (3, Role::Again(8), 10.0)];
    for (of, role, gain) in rows {
        let row = Row { receive_offload: true, ..results.rows[of].clone().with_role(role) };
        results.rows.push(row);
        results.conformance.push(Conformance::Passed);
        let mut cell = results.cells[0][of].clone();
        for sample in &mut cell.samples {
            let second = if matches!(role, Role::Again(_)) && sample.when.block % 2 == 0 {
                1.01
            } else {
                1.0
            };
            sample.received_per_s = sample.received_per_s.map(|rate| rate * gain * second);
        }
        results.cells[0].push(cell);
        results.cells[1].push(Default::default());
    }
    results
}

/// The same with steps of work and of rising load: `blocking` is overtaken by `rio-event` at more work,
/// and loses a little at half of its maximum and much at three quarters.
pub fn swept() -> Results {
    use crate::udp::plan::Goal;
    let mut results = results();
    let base = results.loads[0];
    let work =
        |steps| Load { work: crate::udp::plan::Work { steps, shared: false }, ..base }.as_step();
    let search = Rate::Search { goal: Goal::PartialDrop, step: 1 };
    let paced = [Rate::OfMaximum(0.5), search, Rate::OfPartialDrop(0.5)];
    let steps =
        [work(500), work(2000)].into_iter().chain(paced.map(|rate| base.at(rate).as_step()));
    for load in steps {
        let of = if load.is_paced() { 1 } else { 0 };
        let mut cells = results.cells[of].clone();
        for (row, cell) in cells.iter_mut().enumerate() {
            for sample in &mut cell.samples {
                let slower =
                    1.0 + f64::from(load.work.steps) / if row == 1 { 4000.0 } else { 900.0 };
                sample.received_per_s = sample.received_per_s.map(|rate| rate / slower);
                let (rate, lost) = match load.rate {
                    Rate::OfMaximum(_) => (500_000.0, 100),
                    Rate::Search { .. } => (750_000.0, 1000),
                    _ => (200_000.0, 0),
                };
                if load.is_paced() {
                    sample.sent_per_s = Some(rate);
                    sample.ledger.received = sample.ledger.sent - lost;
                    sample.ledger.dropped_socket = Some(lost);
                }
            }
        }
        results.loads.push(load);
        results.cells.push(cells);
        results.schedules.push(Some(Schedule { rounds: 8, run_ms: 300, warmup_ms: 60 }));
        results.cut.push(None);
    }
    results
}
