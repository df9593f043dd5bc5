use super::*;
use crate::udp::plan::ReplyOffload;

fn texts(asked: &Asked) -> Vec<String> {
    asked.loads().iter().map(Load::to_string).collect()
}

fn of(depth: Depth) -> Asked {
    Asked::new(depth, Load::saturation(64))
}

#[test]
fn each_depth_has_loads_of_its_own() {
    assert_eq!(texts(&of(Depth::Quick)), ["saturation, 64 B"]);
    assert_eq!(texts(&of(Depth::Standard)), ["saturation, 64 B", "paced at 50000/s, 64 B"]);
}

#[test]
fn servers_that_answer_come_beside_sinks() {
    let answers = Some(Replies { outstanding: 64, size_bytes: None, offload: ReplyOffload::On });
    let texts = texts(&Asked { answers, ..of(Depth::Quick) });
    let closed = "closed loop of 64 requests per flow, 64 B, each answered";
    assert_eq!(texts, ["saturation, 64 B", closed]);
}

#[test]
fn a_value_that_is_no_base_is_compared_by_itself() {
    let asked = Asked {
        sizes_bytes: vec![64, 1024],
        works: vec![Work::default(), "shared:9".parse().unwrap()],
        ports: vec![1, 4],
        flows: vec![1, 4],
        generators: vec![1, 2],
        rates: vec![Rate::PerSecond(50_000), Rate::Saturation],
        ..of(Depth::Standard)
    };
    let conditions = [
        "64 B",
        "1024 B",
        "64 B, work shared:9",
        "64 B, 4 ports, 4 flows",
        "64 B, 4 flows",
        "64 B, 2 generators",
    ];
    let wanted: Vec<String> = conditions
        .iter()
        .flat_map(|of| [format!("saturation, {of}"), format!("paced at 50000/s, {of}")])
        .collect();
    assert_eq!(texts(&asked), wanted, "every load of each condition, saturation first");
}

#[test]
fn a_share_of_the_maximum_brings_saturation_with_it() {
    let asked = Asked { rates: vec![Rate::OfMaximum(0.5)], ..of(Depth::Standard) };
    let wanted = ["saturation, 64 B", "paced at 50 % of each row's maximum, 64 B"];
    assert_eq!(texts(&asked), wanted);
    let asked = Asked { rates: vec![Rate::PerSecond(7)], ..of(Depth::Standard) };
    assert_eq!(texts(&asked), ["paced at 7/s, 64 B"]);
}

#[test]
fn a_sweep_over_the_load_searches_before_it_takes_latencies() {
    let asked = Asked { sweeps: vec![Sweep::Load], ..of(Depth::Quick) };
    let loads = asked.loads();
    assert_eq!(loads[0].rate, Rate::Saturation);
    let steps: Vec<Rate> = loads[1..].iter().map(|load| load.rate).collect();
    let shares = SHARES.map(Rate::OfMaximum);
    assert_eq!(steps[..6], shares);
    let search = |goal, step| Rate::Search { goal, step };
    assert_eq!(
        steps[6..10],
        [
            search(Goal::NoDrop, 1),
            search(Goal::PartialDrop, 1),
            search(Goal::NoDrop, 2),
            search(Goal::PartialDrop, 2)
        ]
    );
    assert_eq!(steps[10..], LATENCY_SHARES.map(Rate::OfPartialDrop));
    assert!(loads[1..].iter().all(|load| load.shown == Shown::Step && !load.takes.threads));
}

#[test]
fn a_load_that_is_compared_is_a_step_of_the_sweep_too_and_runs_once() {
    let rates = vec![Rate::OfMaximum(0.5)];
    let asked = Asked { sweeps: vec![Sweep::Load], rates, ..of(Depth::Standard) };
    let loads = asked.loads();
    let halves: Vec<&Load> = loads.iter().filter(|l| l.rate == Rate::OfMaximum(0.5)).collect();
    assert_eq!(halves.len(), 1);
    assert_eq!(halves[0].shown, Shown::Table);
}

#[test]
fn a_sweep_over_work_and_threads_has_the_rows_of_threads_at_each_step() {
    let asked = Asked { sweeps: vec![Sweep::Work, Sweep::Threads], ..of(Depth::Quick) };
    let loads = asked.loads();
    let works: Vec<String> = loads.iter().map(|load| load.work.to_string()).collect();
    let shared = ["shared:0", "shared:100", "shared:500", "shared:2000"];
    assert_eq!(works, [&["0", "100", "500", "2000"], &shared[..]].concat());
    assert!(loads.iter().all(|load| load.takes.threads));
    assert_eq!(loads[0].shown, Shown::Table);
    assert!(loads[1..].iter().all(|load| load.shown == Shown::Step));

    let works: Vec<Work> = ["5", "70"].map(|work| work.parse().unwrap()).to_vec();
    let base = Load { work: works[0], ..Load::saturation(64) };
    let asked = Asked { works, sweeps: vec![Sweep::Work], ..Asked::new(Depth::Quick, base) };
    assert_eq!(texts(&asked), ["saturation, 64 B, work 5", "saturation, 64 B, work 70"]);
}

#[test]
fn the_whole_study_has_every_condition_once() {
    let asked = Asked { with_offload: true, ..of(Depth::Full) }.or_the_whole_study();
    let loads = asked.loads();
    for (index, load) in loads.iter().enumerate() {
        let same = |other: &Load| other.is_like(load) && other.rate == load.rate;
        assert!(!loads[..index].iter().any(same), "{load} twice");
    }
    let texts = texts(&asked);
    for wanted in [
        "saturation, 64 B",
        "saturation, 1024 B",
        "saturation, 1400 B",
        "saturation, 64 B, work 500",
        "saturation, 64 B, work shared:500",
        "saturation, 64 B, work shared:2000",
        "saturation, 64 B, 4 ports, 4 flows",
        "saturation, 64 B, 4 flows",
        "saturation, 64 B, 2 generators",
        "paced at 50000/s, 64 B",
        "paced at 200000/s, 64 B",
        "paced at 50 % of each row's maximum, 64 B",
        "paced at 75 % of each row's maximum, 64 B",
        "paced at 90 % of each row's partial-drop rate, 64 B",
    ] {
        assert!(texts.iter().any(|text| text == wanted), "{wanted} is missing of {texts:#?}");
    }
    let offloaded: Vec<u32> =
        loads.iter().filter(|load| load.takes.offloaded).map(|load| load.size_bytes).collect();
    assert!([64, 1024, 1400].iter().all(|size| offloaded.contains(size)), "{offloaded:?}");
    let swept = loads.iter().filter(|load| load.takes.threads);
    assert!(swept.clone().any(|load| load.work.shared) && swept.count() >= 8);
}

#[test]
fn what_was_asked_for_stands_in_the_study_too() {
    let base = Load::saturation(200);
    let asked = Asked { sizes_bytes: vec![200], ..Asked::new(Depth::Full, base) };
    let loads = asked.or_the_whole_study().loads();
    assert!(loads.iter().all(|load| load.size_bytes == 200));
}

#[test]
fn every_load_has_a_flow_for_each_port() {
    let base = Load { ports: 8, ..Load::saturation(64) };
    let lists = Asked {
        ports: vec![8, 2],
        flows: vec![1, 9],
        generators: vec![1, 4],
        sweeps: vec![Sweep::Load],
        ..Asked::new(Depth::Standard, base)
    };
    for asked in [lists.clone(), lists.or_the_whole_study()] {
        for load in asked.loads() {
            assert!(load.flows * load.generators >= load.ports, "{load}");
        }
    }
}

#[test]
fn a_load_that_is_asked_for_twice_runs_once() {
    let rates = vec![Rate::PerSecond(50_000), Rate::PerSecond(50_000)];
    let asked = Asked { rates, sizes_bytes: vec![64, 9, 9], ..of(Depth::Standard) };
    assert_eq!(texts(&asked), ["paced at 50000/s, 64 B", "paced at 50000/s, 9 B"]);
}

#[test]
fn the_whole_study_sweeps_over_the_works_that_were_asked_for() {
    let works: Vec<Work> = ["0", "70"].map(|work| work.parse().unwrap()).to_vec();
    let asked = Asked { works: works.clone(), sweeps: vec![Sweep::Work], ..of(Depth::Full) };
    let mut swept: Vec<Work> =
        asked.or_the_whole_study().loads().iter().map(|load| load.work).collect();
    swept.dedup();
    assert!(swept.iter().all(|work| works.contains(work)), "{swept:?}");
}
