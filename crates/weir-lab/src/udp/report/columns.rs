//! The columns of the tables: what each shows of a row under a load.

use crate::report::columns::{At, Column};
use crate::report::number::UNKNOWN;
use crate::udp::ledger::Ledger;
use crate::udp::plan::Load;
use crate::udp::results::{Results, Udp};
use crate::udp::sample::{
    ANSWERS, BATCH_P10, BATCH_P50, BATCH_P90, CONTEXT_SWITCHES, CPU, GENERATOR_WAITING,
    KERNEL_ENTRIES, LATENCY_MAX, LATENCY_P50, LATENCY_P99, LATENCY_P999, LOCKED, MEMORY, Metric,
    OFFERED, PACE, PERCENT_OF_SENT, RECEIVED, REGISTERED, SENT_IN, SERVER_CPU, SOCKET_BUFFER,
    TAKEN, THREADS_CPU, THREADS_STARTED, THREADS_USED, WAITS,
};

/// The columns of a load: the result first, then why.
pub fn of(results: &Results, load: usize) -> Vec<Column<Udp>> {
    let of = results.loads[load];
    let mut columns = match (of.burst(), of.is_paced(), of.replies.is_some()) {
        (Some(_), _, _) => burst(),
        (None, true, false) if of.over_hosts => paced_over_hosts(),
        (None, true, false) => latency(),
        (None, false, false) => throughput(),
        (None, true, true) => round_trips(),
        (None, false, true) => answers(),
    };
    let heads = [CPU.heading, PER_ANSWER];
    let after = columns.iter().position(|column| heads.contains(&column.heading));
    if let (Some(_), Some(after)) = (&results.own.link, after) {
        columns.insert(after + 1, Column::of(&THREADS_CPU));
    }
    if results.own.hosts.as_ref().is_some_and(|hosts| hosts.is_elsewhere())
        && let Some(drops) = columns.iter_mut().find(|column| column.heading == DROPS)
    {
        *drops = drops_over_network();
    }
    columns
}

fn throughput() -> Vec<Column<Udp>> {
    vec![
        threads(),
        Column::bounded(&RECEIVED),
        Column::spread(&RECEIVED),
        Column::of(&PERCENT_OF_SENT),
        Column::to_best(),
        Column::to_measure("× trad.\n", "the same ratio, to the traditional design"),
        Column::of(&CPU),
        Column::figure(
            LATENCY,
            "taken from the paced load, which has a table of its own",
            borrowed,
        ),
        Column::limited_by(),
        batches(),
        Column::entries(&KERNEL_ENTRIES),
        Column::of(&WAITS),
        Column::of(&CONTEXT_SWITCHES),
        Column::of(&MEMORY),
        drops(),
    ]
}

const LATENCY: &str = "latency µs\np50/p99";

/// What a pace over hosts shows, which is ranked by what arrives: its latency may be known or not.
fn paced_over_hosts() -> Vec<Column<Udp>> {
    let mut columns = throughput();
    if let Some(at) = columns.iter().position(|column| column.heading == LATENCY) {
        columns.splice(at..=at, [Column::of(&LATENCY_P50), Column::of(&LATENCY_P99)]);
    }
    columns
}

/// What a burst shows: what was taken, where the rest was lost, and what memory there was beforehand.
fn burst() -> Vec<Column<Udp>> {
    vec![
        threads(),
        Column::of(&TAKEN),
        Column::spread(&TAKEN),
        Column::of(&PERCENT_OF_SENT),
        Column::to_best(),
        drops(),
        Column::of(&SENT_IN),
        Column::of(&REGISTERED),
        Column::of(&LOCKED),
        Column::of(&SOCKET_BUFFER),
        Column::of(&MEMORY),
        Column::limited_by(),
        batches(),
        Column::entries(&KERNEL_ENTRIES),
    ]
}

/// What a paced load shows.
fn latency() -> Vec<Column<Udp>> {
    vec![
        threads(),
        Column::of(&OFFERED),
        Column::of(&PERCENT_OF_SENT),
        Column::of(&LATENCY_P50),
        Column::spread(&LATENCY_P50),
        Column::to_best(),
        Column::of(&LATENCY_P99),
        Column::of(&LATENCY_P999),
        Column::of(&LATENCY_MAX),
        Column::of(&SERVER_CPU),
        Column::of(&CPU),
        Column::limited_by(),
        Column::of(&PACE),
        Column::entries(&KERNEL_ENTRIES),
        Column::of(&WAITS),
        Column::of(&CONTEXT_SWITCHES),
        drops(),
    ]
}

/// What a closed loop of requests shows.
fn answers() -> Vec<Column<Udp>> {
    vec![
        threads(),
        Column::bounded(&ANSWERS),
        Column::spread(&ANSWERS),
        Column::to_best(),
        Column::to_measure("× trad.\n", "the same ratio, to the traditional design"),
        per_answer(),
        round_trip("round trip\np50 µs", &LATENCY_P50),
        round_trip("\np99 µs", &LATENCY_P99),
        Column::limited_by(),
        Column::of(&GENERATOR_WAITING),
        batches(),
        Column::entries(&KERNEL_ENTRIES),
        Column::of(&WAITS),
        Column::of(&CONTEXT_SWITCHES),
        Column::of(&MEMORY),
        missing(),
    ]
}

/// What paced requests show.
fn round_trips() -> Vec<Column<Udp>> {
    vec![
        threads(),
        Column::of(&OFFERED),
        round_trip("round trip\np50 µs", &LATENCY_P50),
        Column::spread(&LATENCY_P50),
        Column::to_best(),
        round_trip("\np99 µs", &LATENCY_P99),
        round_trip("\np99.9 µs", &LATENCY_P999),
        round_trip("\nmax µs", &LATENCY_MAX),
        Column::of(&SERVER_CPU),
        per_answer(),
        Column::limited_by(),
        Column::of(&PACE),
        Column::entries(&KERNEL_ENTRIES),
        Column::of(&WAITS),
        Column::of(&CONTEXT_SWITCHES),
        missing(),
    ]
}

/// The heading of CPU time where answers are expected.
const PER_ANSWER: &str = "CPU\nns/answer";

fn per_answer() -> Column<Udp> {
    let about = "CPU time of the server's process per answer that arrived";
    Column { heading: PER_ANSWER, about: about.into(), ..Column::of(&CPU) }
}

fn round_trip(heading: &'static str, metric: &'static Metric) -> Column<Udp> {
    let about = "from the time at which a request was due, in a closed loop from the call that sent it, until its answer \
                 was taken";
    Column { heading, about: about.into(), ..Column::of(metric) }
}

/// Requests without an answer, and which way they or it were lost.
fn missing() -> Column<Udp> {
    let about = "percent of the requests that were not answered: lost on the way there / answers not given or lost on \
                 the way back";
    Column::figure("not answered\nthere/back", about, |at| {
        let Some(replies) = at.cell().replies() else { return UNKNOWN.into() };
        let sent = (replies.answered + replies.missing).max(1) as f64;
        let share = |count: u64| match count as f64 / sent * 100.0 {
            0.0 => "0".into(),
            percent if percent < 0.1 => "<0.1".into(),
            percent => format!("{percent:.1}"),
        };
        let (there, missing) = (replies.requests_lost, replies.missing);
        format!("{}/{} %", share(there), share(missing.saturating_sub(there)))
    })
}

fn threads() -> Column<Udp> {
    let about = "those that handled any datagram, of all that were started";
    let parts = Column::parts("threads\nused/all", &[&THREADS_USED, &THREADS_STARTED]);
    Column { about: about.into(), ..parts }
}

fn batches() -> Column<Udp> {
    let parts = Column::parts("batch\np10/p50/p90", &[&BATCH_P10, &BATCH_P50, &BATCH_P90]);
    Column { about: "datagrams per dequeue".into(), ..parts }
}

/// The latency of the first paced load.
fn borrowed(at: &At<Udp>) -> String {
    let is_paced_sink = |load: &Load| load.is_paced() && load.replies.is_none();
    let Some(load) = at.results.loads.iter().position(is_paced_sink) else {
        return UNKNOWN.into();
    };
    let of = |metric| Some((LATENCY_P50.text)(at.results.median(load, at.row, metric)?));
    match (of(&LATENCY_P50), of(&LATENCY_P99)) {
        (Some(p50), Some(p99)) => format!("{p50}/{p99}"),
        _ => UNKNOWN.into(),
    }
}

const DROPS: &str = "drops\ndev/cpu/sock";

/// Drops between hosts, where datagrams pass two places more.
fn drops_over_network() -> Column<Udp> {
    let about = "percent of sent, at the senders' devices, in the network between the hosts, at the server's device, at \
                 the queue of the CPU, at the socket; ? not visible, ~ by the machine's count";
    Column::figure("drops\nsend/net/dev/cpu/sock", about, |at| {
        let Some(ledger) = at.cell().ledger() else { return UNKNOWN.into() };
        let before = [ledger.dropped_sender, ledger.lost_network];
        let before = before.map(|count| share_of(count, ledger.sent));
        format!("{}/{} %", before.join("/"), drops_at_server(ledger).join("/"))
    })
}

/// A count as percent of what was sent.
fn share_of(count: Option<u64>, sent: u64) -> String {
    match count {
        None => "?".into(),
        Some(0) => "0".into(),
        Some(count) => match count as f64 / (sent as f64).max(1.0) * 100.0 {
            percent if percent < 0.1 => "<0.1".into(),
            percent if percent < 9.95 => format!("{percent:.1}"),
            percent => format!("{percent:.0}"),
        },
    }
}

fn drops() -> Column<Udp> {
    let about = "percent of sent, at the device, at the queue of the CPU, at the socket; ? not visible, ~ by the machine's count";
    Column::figure(DROPS, about, |at| {
        let Some(ledger) = at.cell().ledger() else { return UNKNOWN.into() };
        format!("{} %", drops_at_server(ledger).join("/"))
    })
}

/// What was dropped at the server's host, as percent of what was sent.
fn drops_at_server(ledger: Ledger) -> [String; 3] {
    let place_unknown = ledger.lost_place_unknown().filter(|lost| *lost > 0);
    // By a count of the machine that stands in for the sockets' own.
    let machine = ledger.dropped_socket_source.as_ref().and(ledger.dropped_socket);
    let Ledger { sent, dropped_device, dropped_cpu_queue, dropped_socket, .. } = ledger;
    let share = |count| share_of(count, sent);
    let at_socket = match (machine.filter(|count| *count > 0), place_unknown) {
        (machine @ Some(_), None) => format!("~{}", share(machine)),
        (machine @ Some(_), lost) => format!("~{}+?{}", share(machine), share(lost)),
        (None, lost @ Some(_)) => format!("?{}", share(lost)),
        (None, None) => share(dropped_socket),
    };
    [share(dropped_device), share(dropped_cpu_queue), at_socket]
}
