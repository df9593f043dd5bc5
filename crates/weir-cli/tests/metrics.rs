//! `weir serve --metrics`: what a scraper is told, what the dashboard asks for, and what those do that mean no good.

#![forbid(unsafe_code)]

mod common;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;

use common::{SOON, document, errors, has, output, until, weir};
use serde_json::Value;

/// A server with metrics; it is ended when dropped.
struct Served {
    child: Child,
    lines: BufReader<ChildStdout>,
    ready: Value,
}

impl Served {
    fn udp(more: &[&str]) -> Self {
        Self::start(&[&["udp", "--control", "127.0.0.1:0"], more].concat())
    }

    fn tcp(more: &[&str]) -> Self {
        Self::start(&[&["tcp"], more].concat())
    }

    fn start(words: &[&str]) -> Self {
        let metrics: &[&str] = if words.contains(&"--metrics") { &[] } else { &["--metrics", "0"] };
        let mut child = weir(&["serve"])
            .args(words)
            .args(metrics)
            .args(["--bind", "127.0.0.1:0", "--json", "--interval", "0", "--end-with-input"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("weir can be started");
        let mut lines = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        lines.read_line(&mut line).expect("a ready line");
        let ready = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e} in {line:?}"));
        Self { child, lines, ready }
    }

    fn said(&self, path: &str) -> &str {
        self.ready.pointer(path).and_then(Value::as_str).unwrap_or_else(|| panic!("no {path}"))
    }

    /// Where its metrics are.
    fn metrics(&self) -> SocketAddr {
        let url = self.said("/ready/settings/metrics");
        let address = url.strip_prefix("http://").and_then(|rest| rest.strip_suffix("/metrics"));
        let mut address: SocketAddr = address.and_then(|at| at.parse().ok()).expect(url);
        if address.ip().is_unspecified() {
            address.set_ip("127.0.0.1".parse().expect("an address"));
        }
        address
    }

    fn scrape(&self) -> Page {
        scrape(self.metrics())
    }

    /// Sends it so many datagrams, and gives the generator's document.
    fn flood(&self, datagrams: &str) -> Value {
        let control = self.said("/ready/control");
        let words = ["flood", "127.0.0.1", "-k", datagrams, "--pps", "5k", "-i", "0", "--json"];
        let flood = output(&[&words[..], &["--any-pace", "--control", control]].concat());
        assert_eq!(flood.status.code(), Some(0), "{}", errors(&flood));
        document(&flood)
    }

    /// Has connections echo, and gives the generator's document.
    fn load(&self) -> Value {
        let words = ["load", "tcp", self.said("/ready/addresses/0"), "--json", "-i", "0"];
        let load = output(&[&words[..], &["-c", "20", "-x", "30", "-b", "1-9k"]].concat());
        assert_eq!(load.status.code(), Some(0), "{}", errors(&load));
        document(&load)
    }

    /// Ends it as usual, and gives its report.
    fn end(mut self) -> Value {
        drop(self.child.stdin.take());
        let (sender, ended) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut rest = String::new();
                self.lines.read_to_string(&mut rest).expect("its output can be read");
                let _ = sender.send((self.child.wait().expect("it ends").code(), rest));
            });
            let (code, rest) = ended.recv_timeout(SOON).expect("it ends in time");
            assert_eq!(code, Some(0), "{rest}");
            serde_json::from_str(rest.trim_end()).unwrap_or_else(|e| panic!("{e} in {rest:?}"))
        })
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A page of metrics.
struct Page(String);

impl Page {
    /// The value of the only sample whose name is this one and whose labels have this text.
    #[track_caller]
    fn with(&self, name: &str, label: &str) -> f64 {
        self.known(name, label).unwrap_or_else(|| panic!("no {name} {label} in {}", self.0))
    }

    /// The same, if there is one.
    #[track_caller]
    fn known(&self, name: &str, label: &str) -> Option<f64> {
        let is = |line: &&str| {
            let rest = line.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with(['{', ' ']) && rest.contains(label))
        };
        let found: Vec<&str> = self.0.lines().filter(is).collect();
        assert!(found.len() < 2, "{name} {label}: {found:?}");
        let line = found.first()?;
        let value = line.rsplit(' ').next().and_then(|value| value.parse().ok());
        Some(value.unwrap_or_else(|| panic!("{line}")))
    }

    #[track_caller]
    fn value(&self, name: &str) -> f64 {
        self.with(name, "")
    }

    /// The names of all metrics, with those of a histogram's samples.
    fn names(&self) -> BTreeSet<String> {
        let samples = self.0.lines().filter(|line| !line.starts_with('#'));
        samples.filter_map(|line| Some(line.split(['{', ' ']).next()?.to_owned())).collect()
    }
}

/// Sends a request, and gives the response: its head and its body. The server closes at its end.
fn request(at: SocketAddr, request: &[u8]) -> (String, String) {
    let mut stream = connect(at);
    stream.write_all(request).expect("sending");
    response(stream)
}

fn connect(at: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(at).expect("it listens");
    stream.set_read_timeout(Some(SOON)).expect("a socket");
    stream
}

fn response(mut stream: TcpStream) -> (String, String) {
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("a response and the end");
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{text:?}"));
    (head.to_owned(), body.to_owned())
}

fn get(at: SocketAddr, path: &str) -> (String, String) {
    request(at, format!("GET {path} HTTP/1.1\r\nHost: {at}\r\n\r\n").as_bytes())
}

fn scrape(at: SocketAddr) -> Page {
    let (head, body) = get(at, "/metrics");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("Content-Type: text/plain; version=0.0.4"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    Page(body)
}

/// Waits until pages say so, and gives the first that does.
fn scrape_until(served: &Served, what: &str, said: impl Fn(&Page) -> bool) -> Page {
    let mut page = served.scrape();
    until(what, || {
        page = served.scrape();
        said(&page)
    });
    page
}

#[test]
fn udp_counters_are_the_generators_and_the_reports() {
    for design in ["blocking", "blocking-batch", "rio-hybrid --threads 2 --provider batch"] {
        let served = Served::udp(&["--design", design]);
        let flood = served.flood("600");
        // A batch is counted when it was handled: that may be after the run has ended with its last datagram.
        let page = scrape_until(&served, "the end of the run and of its last batch", |page| {
            let of_batches = page.value("weir_batch_datagrams_sum");
            page.value("weir_runs_ended_total") == 1.0
                && of_batches == page.value("weir_datagrams_received_total")
        });
        let labels = format!("design=\"{}\"", design.split(' ').next().expect("a name"));
        let received = page.with("weir_datagrams_received_total", &labels);
        let dropped = page.known("weir_datagrams_dropped_total", "reason=\"socket\"");
        let sent = flood["sent"].as_f64().expect("a number");
        match dropped {
            Some(dropped) => assert_eq!(received + dropped, sent, "{design}"),
            None => assert!(received <= sent, "{design}: {received} of {sent}"), // the system does not tell
        }
        assert_eq!(page.value("weir_batch_datagrams_sum"), received, "{design}");
        let batches = page.value("weir_batch_datagrams_count");
        let not_empty = page.value("weir_dequeues_total") - page.value("weir_dequeues_empty_total");
        assert!(batches > 0.0 && batches <= received && not_empty >= batches, "{design}");
        assert_eq!(page.with("weir_batch_datagrams_bucket", "le=\"+Inf\""), batches);
        assert_eq!(page.value("weir_runs_wrong_total"), 0.0);
        assert_eq!(page.value("weir_runs_open"), 0.0);
        assert!(page.value("process_cpu_seconds_total") > 0.0);
        assert!(page.value("process_resident_memory_bytes") > 1e6);
        assert!(page.with("weir_build_info", &format!("given=\"{design}\"")) == 1.0);
        let report = served.end();
        assert_eq!(report["audit"]["received"].as_f64(), Some(received), "{design}");
        if dropped.is_some() {
            assert_eq!(report["system"]["dropped_socket"].as_f64(), dropped, "{design}");
        }
        for (counter, metric) in [
            ("datagrams", "weir_datagrams_received_total"),
            ("bytes", "weir_received_bytes_total"),
            ("replies", "weir_replies_sent_total"),
            ("truncated", "weir_datagrams_truncated_total"),
            ("receive_errors", "weir_receive_errors_total"),
            ("send_errors", "weir_send_errors_total"),
        ] {
            let told = report["counters"][counter].as_f64();
            assert_eq!(told, Some(page.value(metric)), "{design}: {counter}");
        }
        assert_eq!(report["threads_started"].as_f64(), Some(page.value("weir_threads")));
    }
}

#[test]
fn tcp_counters_are_the_generators_and_the_reports() {
    for design in ["poll --threads 2", "blocking"] {
        let served = Served::tcp(&["--echo", "--design", design]);
        let open = connect(served.said("/ready/addresses/0").parse().expect("an address"));
        scrape_until(&served, "a connection", |page| page.value("weir_connections_open") == 1.0);
        drop(open);
        let load = served.load();
        let page = scrape_until(&served, "the end of all connections", |page| {
            page.with("weir_connections_closed_total", "reason=\"finished\"") == 21.0
        });
        assert_eq!(page.value("weir_connections_accepted_total"), 21.0);
        assert!((1.0..=21.0).contains(&page.value("weir_connections_open_peak")));
        let generator = &load["report"];
        for (of_generator, metric) in [
            ("bytes_sent", "weir_received_bytes_total"),
            ("bytes_received", "weir_sent_bytes_total"),
        ] {
            assert_eq!(generator[of_generator].as_f64(), Some(page.value(metric)), "{design}");
        }
        let report = served.end();
        for (counter, metric, label) in [
            ("accepted", "weir_connections_accepted_total", ""),
            ("refused", "weir_connections_refused_total", ""),
            ("closed_finished", "weir_connections_closed_total", "\"finished\""),
            ("closed_failed", "weir_connections_closed_total", "\"failed\""),
            ("messages", "weir_receives_total", ""),
            ("bytes_received", "weir_received_bytes_total", ""),
            ("bytes_sent", "weir_sent_bytes_total", ""),
            ("sends", "weir_sends_total", ""),
            ("pauses", "weir_receive_pauses_total", ""),
        ] {
            let told = report["counters"][counter].as_f64();
            assert_eq!(told, Some(page.with(metric, label)), "{design}: {counter}");
        }
        let peak = report["most_open"].as_f64();
        assert_eq!(peak, Some(page.value("weir_connections_open_peak")), "{design}");
    }
}

/// Who counts must not run where the server does.
#[test]
#[cfg(target_os = "linux")] // elsewhere nothing tells where another process's threads may run
fn the_endpoint_keeps_off_the_servers_cores() {
    let cores = weir::affinity::allowed_cores();
    let [first, others @ ..] = &cores[..] else { panic!("no core") };
    if others.is_empty() {
        return common::cannot_run("there is one core only");
    }
    let served = Served::udp(&["--design", "blocking", "--cpu", &first.to_string()]);
    served.scrape();
    let mut of_threads = vec![];
    for thread in std::fs::read_dir(format!("/proc/{}/task", served.child.id())).expect("threads") {
        let thread = thread.expect("a thread").path();
        let read = |name: &str| std::fs::read_to_string(thread.join(name)).expect(name);
        let status = read("status");
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:\t"));
        of_threads.push((read("comm").trim().to_owned(), allowed.expect("a list").to_owned()));
    }
    let (endpoint, server): (Vec<_>, Vec<_>) =
        of_threads.into_iter().partition(|(name, _)| name == "metrics");
    let [(_, list)] = &endpoint[..] else { panic!("{endpoint:?}") };
    let others = others.iter().map(usize::to_string).collect::<Vec<_>>();
    assert!(list.starts_with(&others[0]), "{list}: not one of {others:?}");
    assert!(server.iter().all(|(_, list)| *list == first.to_string()), "{server:?}");
}

// ---- what cannot be served ---------------------------------------------------------

#[test]
fn a_busy_port_is_told_before_anything_is_served() {
    let busy = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = busy.local_addr().expect("an address").to_string();
    for kind in ["udp", "tcp"] {
        let failed = output(&["serve", kind, "--bind", "127.0.0.1:0", "--metrics", &at, "--json"]);
        assert_eq!(failed.status.code(), Some(1), "{}", errors(&failed));
        let told = errors(&failed);
        assert!(told.contains(&at) && told.contains("os error"), "{told}");
        // The only document: nothing was ready.
        assert_eq!(document(&failed)["status"], "failed");
    }
}

#[test]
fn other_machines_read_metrics_only_if_they_shall() {
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:9464"] {
        let refused = output(&["serve", "udp", "--bind", "127.0.0.1:0", "--metrics", address]);
        assert_eq!(refused.status.code(), Some(2), "{}", errors(&refused));
        let told = errors(&refused);
        assert!(told.contains(address) && told.contains("--metrics-public"), "{told}");
    }
    let alone = output(&["serve", "udp", "--metrics-public"]);
    assert_eq!(alone.status.code(), Some(2), "{}", errors(&alone));
    let wrong = output(&["serve", "tcp", "--metrics", "localhost"]);
    assert_eq!(wrong.status.code(), Some(2), "{}", errors(&wrong));
    let served =
        Served::udp(&["--design", "blocking", "--metrics", "0.0.0.0:0", "--metrics-public"]);
    served.scrape();
    served.end();
    // Without the flag there is nothing.
    let plain = weir(&["serve", "tcp", "--bind", "127.0.0.1:0", "--end-with-input"])
        .stdin(Stdio::null())
        .output()
        .expect("weir can be started");
    assert!(!String::from_utf8_lossy(&plain.stdout).contains("metrics"), "{plain:?}");
}

// ---- scrapers that are wrong, slow or many -----------------------------------------

#[test]
fn each_request_has_its_answer() {
    let served = Served::udp(&["--design", "blocking"]);
    let at = served.metrics();
    let (whole, body) = get(at, "/metrics");
    for path in ["/metrics?name[]=x", "http://any.name/metrics"] {
        assert!(get(at, path).0.starts_with("HTTP/1.1 200 OK\r\n"), "{path}");
    }
    let (head, nothing) = request(at, b"HEAD /metrics HTTP/1.1\r\n\r\n");
    assert_eq!((head.lines().next(), nothing.as_str()), (whole.lines().next(), ""));
    let length: usize = head
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "))
        .and_then(|length| length.parse().ok())
        .expect("a length");
    assert!(length.abs_diff(body.len()) < 100, "{length}, and the body has {}", body.len());
    for (sent, status, told) in [
        ("POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", "405 ", "Allow: GET, HEAD"),
        ("DELETE /metrics HTTP/1.0\r\n\r\n", "405 ", "Allow: GET, HEAD"),
        ("GET / HTTP/1.1\r\n\r\n", "404 ", "the metrics are at /metrics"),
        ("GET /metrics/ HTTP/1.1\r\n\r\n", "404 ", ""),
        ("POST /other HTTP/1.1\r\n\r\n", "404 ", ""),
        ("\u{1}\u{2}\u{3}\r\n\r\n", "400 ", "this is not a valid request"),
        ("GET /metrics HTTP/3.7\r\n\r\n", "400 ", "this is not a valid request"),
    ] {
        let (head, body) = request(at, sent.as_bytes());
        assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{sent:?}: {head}");
        assert!(head.contains("Connection: close"), "{head}");
        assert!(format!("{head}\n{body}").contains(told), "{sent:?}: {head} {body}");
    }
    served.end();
}

#[test]
fn a_request_without_an_end_is_refused() {
    let served = Served::tcp(&["--design", "poll --threads 1"]);
    let long = [b"GET /metrics HTTP/1.1\r\nX: ".to_vec(), vec![b'a'; 1 << 20]].concat();
    let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(100));
    for sent in [long.as_slice(), many.as_bytes()] {
        let (head, body) = request(served.metrics(), sent);
        assert!(head.starts_with("HTTP/1.1 431 "), "{head}");
        assert!(body.contains("8192 bytes"), "{body}");
    }
    served.scrape();
    served.end();
}

/// Connections that hang in every way; they do while they are held.
fn hanging(at: SocketAddr) -> Vec<TcpStream> {
    let sent: [&[u8]; 4] =
        [b"", b"G", b"GET /metrics HTTP/1.1\r\nA: ", b"GET /metrics HTTP/1.1\r\n\r\n"];
    sent.iter()
        .map(|sent| {
            let mut stream = connect(at);
            stream.write_all(sent).expect("sending");
            stream
        })
        .collect()
}

#[test]
fn those_that_hang_hold_up_neither_others_nor_the_server_nor_its_end() {
    let served = Served::udp(&["--design", "blocking", "--echo"]);
    let mut held = hanging(served.metrics());
    served.scrape();
    // Many more than there may be.
    held.extend((0..100).map(|_| connect(served.metrics())));
    held.extend(hanging(served.metrics()));
    served.scrape();
    let peer = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    peer.set_read_timeout(Some(SOON)).expect("a socket");
    peer.send_to(b"hello", served.said("/ready/addresses/0")).expect("sending");
    let mut back = [0; 6];
    assert_eq!(peer.recv(&mut back).expect("an echo"), 5);
    // It is counted when the call that sent it has returned: that may be after it was received here.
    let page =
        scrape_until(&served, "the reply", |page| page.value("weir_replies_sent_total") == 1.0);
    assert_eq!(page.value("weir_datagrams_received_total"), 1.0);
    held.extend(hanging(served.metrics()));
    served.end();
    let served = Served::tcp(&["--design", "poll --threads 1"]);
    let also_held = hanging(served.metrics());
    served.end();
    drop((held, also_held));
}

#[test]
fn a_connection_is_given_up_after_a_while() {
    let served = Served::udp(&["--design", "blocking"]);
    for (mut held, what) in hanging(served.metrics()).into_iter().zip(0..) {
        let mut response = vec![];
        // It was closed with something unread, or not.
        let end = held.read_to_end(&mut response);
        assert!(
            end.as_ref().err().is_none_or(|e| e.kind() == ErrorKind::ConnectionReset),
            "{end:?}"
        );
        assert_eq!(response.is_empty(), what < 3, "of {what} came {} bytes", response.len());
    }
    served.scrape();
}

// ---- what else reads it ------------------------------------------------------------

#[test]
fn promtool_finds_nothing_wrong() {
    if !has("promtool", &["--version"]) {
        return;
    }
    for served in [Served::udp(&["--design", "blocking"]), Served::tcp(&["--design", "poll"])] {
        let page = served.scrape();
        let mut check = Command::new("promtool")
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("promtool can be started");
        check.stdin.take().expect("piped").write_all(page.0.as_bytes()).expect("it reads");
        let found = check.wait_with_output().expect("it ends");
        assert!(found.status.success(), "{}", errors(&found));
        assert_eq!((found.stdout.len(), errors(&found)), (0, String::new()), "{}", page.0);
    }
    let config = monitoring("prometheus.yml");
    let check = Command::new("promtool").arg("check").arg("config").arg(config).output();
    let check = check.expect("promtool can be started");
    assert!(check.status.success(), "{}", errors(&check));
}

fn monitoring(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../monitoring").join(name)
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Whether the system tells all that there may be to scrape.
fn has_every_metric() -> bool {
    if !cfg!(target_os = "linux") {
        common::cannot_run("this system does not tell some of the metrics");
    }
    cfg!(target_os = "linux")
}

/// Every expression of the dashboard, with its panel's title.
fn expressions() -> Vec<(String, String)> {
    let text = read(&monitoring("grafana-dashboard.json"));
    let dashboard: Value = serde_json::from_str(&text).expect("JSON");
    let mut found = vec![];
    for panel in dashboard["panels"].as_array().expect("panels") {
        let title = panel["title"].as_str().expect("a title");
        for target in panel["targets"].as_array().into_iter().flatten() {
            assert_eq!(target["datasource"]["uid"], "${datasource}", "{title}");
            let expression = target["expr"].as_str().expect("an expression");
            found.push((title.to_owned(), expression.to_owned()));
        }
    }
    let variables = dashboard["templating"]["list"].as_array().expect("variables");
    assert!(variables.iter().any(|variable| variable["name"] == "datasource"));
    for variable in variables.iter().filter(|variable| variable["type"] == "query") {
        let query = variable["query"]["query"].as_str().expect("a query").to_owned();
        found.push(("a variable".into(), query));
    }
    assert!(found.len() > 20, "{found:?}");
    found
}

/// The metrics that an expression names.
fn metrics_of(expression: &str) -> Vec<&str> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("weir_") || word.starts_with("process_")).collect()
}

#[test]
fn the_dashboard_asks_for_nothing_that_is_not_exported() {
    if !has_every_metric() {
        return;
    }
    let udp = Served::udp(&["--design", "blocking"]).scrape().names();
    let tcp = Served::tcp(&["--design", "poll"]).scrape().names();
    for (title, expression) in expressions() {
        let metrics = metrics_of(&expression);
        assert!(!metrics.is_empty(), "{title}: {expression}");
        for metric in metrics {
            assert!(udp.contains(metric) || tcp.contains(metric), "{title}: no {metric}");
        }
    }
}

/// The book lists each metric, and none that there is not.
#[test]
fn the_book_has_every_metric() {
    if !has_every_metric() {
        return;
    }
    let page = read(&monitoring("../book/src/monitoring.md"));
    let listed: BTreeSet<&str> = page
        .lines()
        .filter(|line| line.starts_with("| `"))
        .flat_map(|line| metrics_of(line.split(" | ").next().unwrap_or_default()))
        .collect();
    let mut exported = BTreeSet::new();
    // A design with settings that can be changed while it runs, which are a metric, too.
    let hybrid = "rio-hybrid --threads 1 --outstanding 64 --spin 0";
    for served in [Served::udp(&["--design", hybrid]), Served::tcp(&["--design", "poll"])] {
        let types = served.scrape().0;
        let types = types.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        exported.extend(types.filter_map(|line| Some(line.split(' ').next()?.to_owned())));
    }
    assert_eq!(listed, exported.iter().map(String::as_str).collect());
}

/// A Prometheus that scrapes these servers; it is ended when dropped.
struct Prometheus {
    child: Child,
    at: SocketAddr,
    _folder: Folder,
}

/// A folder that is removed when dropped.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left lies below the folder of the build.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Prometheus {
    /// With the project's own configuration, apart from where the servers are and how often they are asked.
    fn start(servers: &[&Served]) -> Self {
        let name = format!("prometheus-{}", std::process::id());
        let folder = Folder(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name));
        std::fs::create_dir_all(&folder.0).expect("a folder");
        let targets: Vec<_> = servers.iter().map(|s| format!("\"{}\"", s.metrics())).collect();
        let config = read(&monitoring("prometheus.yml"));
        let (one, every) = ("\"127.0.0.1:9464\"", "scrape_interval: 5s");
        assert!(config.contains(one) && config.contains(every), "{config}");
        let config = config.replace(one, &targets.join(", "));
        let path = folder.0.join("prometheus.yml");
        // It is also the time that a scrape has.
        std::fs::write(&path, config.replace(every, "scrape_interval: 1s")).expect("a file");
        let mut child = Command::new("prometheus")
            .arg(format!("--config.file={}", path.display()))
            .arg(format!("--storage.tsdb.path={}", folder.0.join("data").display()))
            .arg("--web.listen-address=127.0.0.1:0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("prometheus can be started");
        let log = BufReader::new(child.stderr.take().expect("piped"));
        let (sender, listens) = mpsc::channel();
        // It is read on, or it would wait.
        std::thread::spawn(move || {
            for line in log.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let mut said = String::new();
        let at = loop {
            let line = listens.recv_timeout(SOON).unwrap_or_else(|_| panic!("it listens: {said}"));
            let address =
                line.split("address=").nth(1).filter(|_| line.contains("\"Listening on\""));
            if let Some(address) = address.and_then(|rest| rest.split(' ').next()) {
                break address.parse().expect("an address");
            }
            said += &line;
            said.push('\n');
        };
        Self { child, at, _folder: folder }
    }

    /// The results of a query: the labels of each with its value.
    fn query(&self, query: &str) -> Vec<(Value, f64)> {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let get = format!(
            "GET /api/v1/query?query={encoded} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
            self.at
        );
        let (head, body) = request(self.at, get.as_bytes());
        // It is ready a moment after it listens.
        if head.starts_with("HTTP/1.1 503") {
            return vec![];
        }
        let body = if head.to_lowercase().contains("transfer-encoding: chunked") {
            whole(&body)
        } else {
            body
        };
        let answer: Value =
            serde_json::from_str(&body).unwrap_or_else(|e| panic!("{e}: {head} {body}"));
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        let results = answer["data"]["result"].as_array().expect("a list");
        let number = |of: &Value| of["value"][1].as_str().and_then(|value| value.parse().ok());
        results.iter().map(|of| (of["metric"].clone(), number(of).expect("a number"))).collect()
    }
}

/// A body that came in chunks.
fn whole(mut chunks: &str) -> String {
    let mut all = String::new();
    while let Some((length, rest)) = chunks.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).expect("a length");
        all += &rest[..length];
        chunks = rest[length..].trim_start_matches("\r\n");
    }
    all
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_prometheus_has_what_was_counted_and_answers_the_dashboard() {
    if !has_every_metric() {
        return;
    }
    if !has("prometheus", &["--version"]) {
        return;
    }
    let udp = Served::udp(&["--design", "blocking-batch", "--echo"]);
    let tcp = Served::tcp(&["--design", "poll --threads 1", "--echo"]);
    let prometheus = Prometheus::start(&[&udp, &tcp]);
    let received = "weir_datagrams_received_total{design=\"blocking-batch\",job=\"weir\"}";
    let bytes = "weir_received_bytes_total{design=\"poll\",job=\"weir\"}";
    // What a query gives, where a scrape has brought it: one that comes too late for Prometheus brings nothing.
    let value = |query: &str| prometheus.query(query).first().map(|(_, value)| *value);
    // Rates begin with something.
    until("a first scrape of both", || {
        [received, bytes].into_iter().all(|query| value(query) == Some(0.0))
    });
    udp.flood("500");
    let load = tcp.load();
    let counted = udp.scrape().value("weir_datagrams_received_total");
    assert!(counted > 0.0);
    until("the count of the server", || value(received) == Some(counted));
    let sent = load["report"]["bytes_sent"].as_f64().expect("a number");
    until("the count of the generator", || value(bytes) == Some(sent));
    until("that both are up", || value("min(up)") == Some(1.0));
    for (title, expression) in expressions() {
        // Grafana asks for the labels itself.
        if expression.starts_with("label_values(") {
            continue;
        }
        let query = expression
            .replace("$__rate_interval", "1m")
            .replace("$job", "weir")
            .replace("$instance", ".+");
        assert!(!query.contains('$'), "{query}");
        let may_be_none = expression.ends_with("> 0");
        until(&format!("an answer for {title}: {query}"), || {
            !prometheus.query(&query).is_empty() || may_be_none
        });
    }
    let report = udp.end();
    assert_eq!(report["counters"]["datagrams"].as_f64(), Some(counted));
}
