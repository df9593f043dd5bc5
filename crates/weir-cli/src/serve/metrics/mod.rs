//! `weir serve udp|tcp --metrics`: what the server counts, for Prometheus.
//!
//! The page is made from counters that the server has anyway, in a thread of its own: the server's threads neither do
//! more because of it, nor wait for it.

mod http;
pub mod tcp;
mod text;
pub mod udp;

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use weir::counters::BatchSnapshot;
use weir::counters::names::Name;
use weir::counters::os::ProcessUsage;

use super::parse_address;
use crate::cores::Cores;
use crate::exit::Failure;
pub use http::Endpoint;
use text::{Histogram, Kind, Page, Value};

/// Options for metrics.
#[derive(Debug, Args)]
pub struct MetricsArgs {
    /// Serve counters for Prometheus at http://ADDRESS/metrics, such as 127.0.0.1:9464; a port alone is one of
    /// 127.0.0.1, and port 0 takes any free one, which the settings show [default: no metrics].
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    metrics: Option<SocketAddr>,

    /// Let other machines read the metrics: needed where --metrics is not a loopback address. There is no password and
    /// no encryption.
    #[arg(long, requires = "metrics")]
    metrics_public: bool,
}

/// The socket that scrapers connect to.
pub struct MetricsListener {
    listener: TcpListener,
    address: SocketAddr,
    /// Cores that the server was not given, if it was given any.
    cores: Vec<usize>,
}

/// Opens the socket that was asked for, if one was. `server` are the cores that the server will be kept to: this must
/// be called before it is.
///
/// # Errors
/// If other machines could reach it and that was not asked for, or the address cannot be had.
pub fn open(
    args: &MetricsArgs,
    server: Option<&Cores>,
) -> Result<Option<MetricsListener>, Failure> {
    let Some(address) = args.metrics else { return Ok(None) };
    if !args.metrics_public && !address.ip().to_canonical().is_loopback() {
        return Err(Failure::usage(format!(
            "other machines could read the metrics at {address}: give a loopback address such as 127.0.0.1:{port}, or \
             --metrics-public if they should be able to",
            port = address.port()
        )));
    }
    let failed = |error: std::io::Error| {
        Failure::failed(format!(
            "cannot serve metrics at {address}: {error}; give --metrics another address or port"
        ))
    };
    let listener = TcpListener::bind(address).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let cores = server.map_or(vec![], |Cores(server)| {
        let mut allowed = weir::affinity::allowed_cores();
        allowed.retain(|core| !server.contains(core));
        allowed
    });
    Ok(Some(MetricsListener { listener, address, cores }))
}

impl MetricsListener {
    /// Where the metrics are.
    pub fn url(&self) -> String {
        format!("http://{}/metrics", self.address)
    }

    /// Answers scrapers from now on.
    ///
    /// # Errors
    /// If there can be no thread for it.
    pub fn answer(
        self,
        make: impl FnMut() -> String + Send + 'static,
    ) -> Result<Endpoint, Failure> {
        let Self { listener, address, cores } = self;
        Endpoint::start(listener, cores, make)
            .map_err(|error| Failure::failed(format!("cannot serve metrics at {address}: {error}")))
    }
}

/// What does not change while a server runs.
#[derive(Debug, Clone)]
pub struct About {
    /// Name of the design.
    pub design: String,
    /// The design with the options that were given.
    pub given: String,
    /// What the design runs on.
    pub provider: String,
}

impl About {
    /// Of a server with these settings in effect.
    pub fn of(design: &str, given: &str, settings: &BTreeMap<String, String>) -> Self {
        // Every server says what it runs on.
        let provider = settings.get("provider").map_or(design, String::as_str);
        Self { design: design.into(), given: given.into(), provider: provider.into() }
    }

    /// Labels of each metric of the server.
    fn labels(&self) -> [(String, String); 2] {
        [("design".into(), self.design.clone()), ("provider".into(), self.provider.clone())]
    }

    fn page(&self) -> Page {
        let mut page = Page::new(&self.labels());
        let build = [
            ("version", env!("CARGO_PKG_VERSION")),
            ("os", std::env::consts::OS),
            ("arch", std::env::consts::ARCH),
            ("given", &self.given),
        ];
        page.several(
            Kind::Gauge,
            "weir_build_info",
            "1. Its labels are the build, and the design as it was given with its options.",
            &[(&build, 1.into())],
        );
        page
    }
}

/// Writes the counters of a table; neighbours with the same metric are its samples.
fn write_counters(page: &mut Page, table: &[Name], counted: &[(&'static str, u64)]) {
    for metric in table.chunk_by(|one, next| one.metric == next.metric) {
        let labels: Vec<_> = metric.iter().map(|name| Vec::from_iter(name.label)).collect();
        let samples = metric.iter().zip(&labels).filter_map(|(name, labels)| {
            let (_, count) = counted.iter().find(|(counter, _)| *counter == name.counter)?;
            Some((labels.as_slice(), Value::Count(*count)))
        });
        let samples: Vec<_> = samples.collect();
        page.several(Kind::Counter, metric[0].metric, metric[0].help, &samples);
    }
}

/// Bounds of batch sizes. The library counts sizes above 16 in buckets of which each holds an eighth of a doubling;
/// these are the largest sizes of some of them, so that the counts are exact. Common limits of a batch (32, 64, 256,
/// 1000) lie just below one.
const BATCH_BOUNDS: [u64; 24] = [
    1, 2, 3, 4, 6, 8, 11, 15, 17, 23, 35, 47, 71, 95, 143, 191, 287, 383, 575, 767, 1023, 1535,
    2047, 4095,
];

/// The distribution of batches.
fn batches(of: &BatchSnapshot, sum: Option<u64>) -> Histogram {
    let at_most = BATCH_BOUNDS.iter().map(|bound| (*bound, of.at_most(*bound))).collect();
    Histogram { at_most, sum, count: of.count() }
}

/// When the process began, nearly.
fn now() -> Option<u64> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(since.as_nanos()).ok()
}

/// What every program tells of its process, under the names that all use.
fn write_process(page: &mut Page, usage: &ProcessUsage, began: Option<u64>) {
    page.one(
        Kind::Counter,
        "process_cpu_seconds_total",
        "CPU time of the process, user and system, all its threads.",
        usage.cpu_ns.map(Value::Nanoseconds),
    );
    page.one(
        Kind::Gauge,
        "process_resident_memory_bytes",
        "Memory of the process that is resident.",
        usage.resident_bytes,
    );
    page.one(
        Kind::Gauge,
        "process_start_time_seconds",
        "When weir serve started, in seconds since 1970.",
        began.map(Value::Nanoseconds),
    );
    let switches =
        [("voluntary", usage.voluntary_switches), ("involuntary", usage.involuntary_switches)];
    let labels = switches.map(|(kind, _)| [("kind", kind)]);
    let samples = labels
        .iter()
        .zip(switches)
        .filter_map(|(label, (_, count))| Some((label.as_slice(), Value::Count(count?))));
    page.several(
        Kind::Counter,
        "weir_context_switches_total",
        "Context switches of the process: voluntary ones while it waited, involuntary ones when another had the core.",
        &samples.collect::<Vec<_>>(),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_one_of_this_machine() {
        assert_eq!(parse_address("9464"), Ok("127.0.0.1:9464".parse().unwrap()));
        assert_eq!(parse_address("[::1]:1"), Ok("[::1]:1".parse().unwrap()));
        assert_eq!(parse_address("0"), Ok("127.0.0.1:0".parse().unwrap()));
        for wrong in ["", "65536", "localhost", "127.0.0.1", ":9464"] {
            assert!(
                parse_address(wrong).is_err_and(|why| why.contains("127.0.0.1:5200")),
                "{wrong}"
            );
        }
    }

    #[test]
    fn neighbours_of_one_metric_are_its_samples() {
        let metrics =
            ["weir_frames_dropped_total", "weir_queue_locks_total", "weir_receives_posted_total"];
        let wanted =
            weir::counters::names::UDP.iter().filter(|name| metrics.contains(&name.metric));
        let table: Vec<Name> = wanted.copied().collect();
        let mut page = Page::default();
        // Nothing is said of what was not counted.
        write_counters(&mut page, &table, &[("locks", 3), ("too_long", 2), ("discarded", 1)]);
        let expected = "\
# HELP weir_frames_dropped_total Frames that the server itself dropped, on xdp.
# TYPE weir_frames_dropped_total counter
weir_frames_dropped_total{reason=\"damaged\"} 1
weir_frames_dropped_total{reason=\"too_long\"} 2
# HELP weir_queue_locks_total Times the lock of a request queue was taken to post, where threads share the queue.
# TYPE weir_queue_locks_total counter
weir_queue_locks_total 3
";
        assert_eq!(page.text(), expected);
    }
}
