//! The server.

use crate::{
    hand_over::{self, Begin},
    keep_to, metrics, perf, runtime,
    sockets::{Made, On, Sockets},
    tls,
};
use anyhow::Context as _;
use clap::Args;
use quinn::{Connecting, Connection, Endpoint, RecvStream, SendStream, VarInt};
use serde::Serialize;
use std::{
    fmt,
    io::{self, Read as _, Write as _},
    net::SocketAddr,
    path::PathBuf,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tokio::sync::Notify;
use weir::{counters::os::Sampler, inherited::Offer};
use weir_program::LEAST;
use weir_quinn::{Forwarding, SharedSocket, Stats};

/// How requests are served, and how many.
#[derive(Debug, Args)]
pub struct Options {
    /// Address and port to listen on; port 0 takes any free one. A socket passed by a service manager (LISTEN_FDS)
    /// replaces it
    #[arg(long, default_value = "127.0.0.1:4433")]
    listen: SocketAddr,
    #[command(flatten)]
    sockets: Sockets,
    /// File with the certificate chain in PEM, the server's own first [default: one for localhost, made at the start]
    #[arg(long, requires = "key")]
    cert: Option<PathBuf>,
    /// File with the private key of the certificate in PEM
    #[arg(long, requires = "cert")]
    key: Option<PathBuf>,
    /// Threads of the runtime; with 1, everything runs on one thread
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,
    /// Core to run on [default: any]
    #[arg(long)]
    cpu: Option<usize>,
    /// Most connections at a time; further ones are refused
    #[arg(long, default_value_t = 1024)]
    max_connections: usize,
    /// Most streams at a time, per connection and direction; clients wait for a free one
    #[arg(long, default_value_t = 256)]
    max_streams: u32,
    /// Most bytes that one request may ask for; one that asks for more is reset
    #[arg(long, default_value_t = 16 << 30)]
    max_response_bytes: u64,
    /// Close a connection whose peer has been silent for this many seconds
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=3600))]
    idle_timeout_s: u32,
    /// Have each client prove its address before the server keeps any state for it (Retry)
    #[arg(long)]
    retry: bool,
    /// Seconds that requests have to finish when the server stops
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=3600))]
    grace_s: u32,
    #[command(flatten)]
    program: weir_program::Options,
    /// Also stop when the standard input ends, besides on SIGINT and SIGTERM
    #[arg(long)]
    until_eof: bool,
}

/// What the server counts.
#[derive(Debug, Default)]
pub struct Counts {
    /// Connections that came about, and those that did not.
    pub accepted: AtomicU64,
    pub refused: AtomicU64,
    pub failed: AtomicU64,
    /// Requests answered, refused because of what they asked for, and ended by their client.
    pub requests: AtomicU64,
    pub too_large: AtomicU64,
    pub broken: AtomicU64,
    pub bytes_received: AtomicU64,
    pub bytes_sent: AtomicU64,
    /// Requests that are being answered.
    active: AtomicU64,
    /// Told when the last of those is over.
    none_active: Notify,
}

/// The server, as its tasks and the page of metrics see it.
pub struct Server {
    pub counts: Counts,
    pub endpoint: Endpoint,
    pub stats: Option<Stats>,
    pub shared: Option<Arc<SharedSocket>>,
    max_connections: usize,
    max_response_bytes: u64,
    retry: bool,
}

/// What a server says at its end, as a line of JSON.
#[derive(Debug, Serialize)]
struct Report {
    on: String,
    elapsed_s: f64,
    connections: u64,
    connections_refused: u64,
    connections_failed: u64,
    requests: u64,
    requests_too_large: u64,
    requests_broken: u64,
    bytes_received: u64,
    bytes_sent: u64,
    cpu_s: Option<f64>,
    cpu_system_s: Option<f64>,
    /// Of weir's socket.
    datagrams_received: Option<u64>,
    datagrams_sent: Option<u64>,
    kernel_entries: Option<u64>,
    /// With `--hand-over`: to servers before, from those after, and neither.
    datagrams_forwarded: Option<u64>,
    datagrams_taken: Option<u64>,
    datagrams_not_forwarded: Option<u64>,
}

/// The codes of resets and closes.
const TOO_LARGE: VarInt = VarInt::from_u32(1);
const STOPPED: VarInt = VarInt::from_u32(0);

/// How long connections have to hear that the server stops.
const FAREWELL: Duration = Duration::from_secs(1);

/// How long it is waited for the word of the server before that it receives no more. If it has died it says nothing.
const TURN: Duration = Duration::from_secs(2);

/// How long a client has, which was told to try again, to do so with the server that knows why.
const SECOND_TRY: Duration = Duration::from_secs(1);

pub fn run(options: &Options) -> anyhow::Result<()> {
    let begin = hand_over::begin(options.listen, &options.program, options.sockets.on)?;
    keep_to(options.cpu)?;
    let files = options.cert.as_deref().zip(options.key.as_deref());
    let mut config = tls::server(files)?;
    let mut transport = quinn::TransportConfig::default();
    let idle = Duration::from_secs(options.idle_timeout_s.into());
    transport
        .max_concurrent_bidi_streams(options.max_streams.into())
        .max_concurrent_uni_streams(options.max_streams.into())
        .max_idle_timeout(Some(idle.try_into().context("--idle-timeout-s")?));
    config.transport_config(Arc::new(transport)).max_incoming(options.max_connections);

    let stop = Arc::new(Notify::new());
    let asked = Arc::clone(&stop);
    ctrlc::set_handler(move || asked.notify_one()).context("hearing of signals")?;
    if options.until_eof {
        let asked = Arc::clone(&stop);
        std::thread::spawn(move || {
            let _ = io::stdin().lock().read_to_end(&mut Vec::new());
            asked.notify_one();
        });
    }
    runtime(options.threads.into())
        .context("starting a runtime")?
        .block_on(serve(options, begin, config, &stop))
}

async fn serve(
    options: &Options,
    begin: Begin,
    config: quinn::ServerConfig,
    stop: &Notify,
) -> anyhow::Result<()> {
    let began = Instant::now();
    let Begin { at, passed_on, metrics, mut kept, before } = begin;
    let Made { endpoint, stats, shared, effective } =
        options.sockets.endpoint(at, Some(config), passed_on)?;
    let address = endpoint.local_addr().context("reading the address")?;
    let server = Arc::new(Server {
        counts: Counts::default(),
        endpoint,
        stats,
        shared,
        max_connections: options.max_connections,
        max_response_bytes: options.max_response_bytes,
        retry: options.retry,
    });
    let mut scraped = None;
    if let Some(listener) = metrics {
        let at = listener.local_addr().context("reading the address")?;
        scraped = Some(metrics::serve(listener, Arc::clone(&server))?);
        remark(format_args!("metrics at http://{at}/metrics"));
    }
    for (name, value) in effective {
        remark(format_args!("{name}: {value}"));
    }
    if let Some(shared) = &server.shared {
        kept.extend(shared.passed_on()?);
    }
    // Where a successor could not reach this one, it does not begin.
    let offered = options.program.hand_over.as_deref().map(Offer::at).transpose()?;
    if let Some(before) = before {
        before.serving()?;
    }
    let replaced = Arc::new(Notify::new());
    if let (Some(shared), Some(offered)) = (&server.shared, offered) {
        let _ = tokio::time::timeout(TURN, shared.turn()).await;
        shared.begin();
        let told = Arc::clone(&replaced);
        weir_program::offer(offered, kept, move |handed| match handed {
            Ok(()) => told.notify_one(),
            Err(error) => remark(format_args!("this server can no longer be replaced: {error}")),
        })?;
    }
    println!("listening on {address} ({})", options.sockets.on);
    let mut accepting = pin!(accept(&server));
    let is_replaced = tokio::select! {
        () = &mut accepting => false,
        () = stop.notified() => false,
        () = replaced.notified() => true,
    };
    // Whoever scrapes from now on reaches the successor, if there is one.
    tokio::task::spawn_blocking(|| drop(scraped)); // it waits for who is being answered
    let grace = Duration::from_secs(options.grace_s.into());
    if is_replaced {
        let finish = Duration::from_secs(options.program.finish).max(LEAST);
        tokio::select! {
            biased;
            // What has come by now, and clients that were told to try again.
            () = accepting => {}
            () = stop.notified() => server.stop(grace).await,
            _ = tokio::time::timeout(finish, server.finish()) => server.close().await,
        }
    } else {
        // One that takes over only now begins when it hears that this one receives no more.
        let leaving = async {
            replaced.notified().await;
            if let Some(shared) = &server.shared {
                shared.end_receiving().await;
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = server.stop(grace) => {}
            () = leaving => {}
        }
    }
    println!("{}", serde_json::to_string(&server.report(options.sockets.on, began.elapsed()))?);
    Ok(())
}

/// For whoever looks on: a server goes on where nobody reads any more, which `eprintln!` would not.
fn remark(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Takes connections until the endpoint is closed.
async fn accept(server: &Arc<Server>) {
    while let Some(incoming) = server.endpoint.accept().await {
        if server.endpoint.open_connections() >= server.max_connections {
            server.counts.refused.fetch_add(1, Relaxed);
            incoming.refuse();
        } else if server.retry && !incoming.remote_address_validated() {
            // One that may not be asked again has a token already.
            let _ = incoming.retry();
        } else if let Ok(connecting) = incoming.accept() {
            tokio::spawn(Arc::clone(server).connection(connecting));
        } else {
            server.counts.failed.fetch_add(1, Relaxed);
        }
    }
}

impl Server {
    async fn connection(self: Arc<Self>, connecting: Connecting) {
        let Ok(connection) = connecting.await else {
            self.counts.failed.fetch_add(1, Relaxed);
            return;
        };
        self.counts.accepted.fetch_add(1, Relaxed);
        let one_way = Arc::clone(&self).take_one_way(connection.clone());
        tokio::join!(one_way, Arc::clone(&self).take_both_ways(connection));
    }

    async fn take_both_ways(self: Arc<Self>, connection: Connection) {
        while let Ok((send, receive)) = connection.accept_bi().await {
            let server = Arc::clone(&self);
            tokio::spawn(async move {
                let answered = server.answer(receive, async || Ok(send)).await;
                server.settle(answered);
            });
        }
    }

    async fn take_one_way(self: Arc<Self>, connection: Connection) {
        while let Ok(receive) = connection.accept_uni().await {
            let (server, connection) = (Arc::clone(&self), connection.clone());
            tokio::spawn(async move {
                let opened = async || Ok(connection.open_uni().await?);
                let answered = server.answer(receive, opened).await;
                server.settle(answered);
            });
        }
    }

    /// Reads a request and answers it on a stream that is opened then. `false`: it asked for too much.
    async fn answer(
        &self,
        mut receive: RecvStream,
        open: impl AsyncFnOnce() -> anyhow::Result<SendStream>,
    ) -> anyhow::Result<bool> {
        self.counts.active.fetch_add(1, Relaxed);
        let Counts { bytes_received, bytes_sent, .. } = &self.counts;
        let wanted = perf::read_wanted(&mut receive).await?;
        bytes_received.fetch_add(perf::HEADER_BYTES as u64, Relaxed);
        while let Some(bytes) = perf::drain_some(&mut receive).await? {
            bytes_received.fetch_add(bytes, Relaxed);
        }
        let mut send = open().await?;
        if wanted > self.max_response_bytes {
            send.reset(TOO_LARGE)?;
            return Ok(false);
        }
        let taken = |bytes| _ = bytes_sent.fetch_add(bytes, Relaxed);
        perf::send(&mut send, wanted, taken).await?;
        send.finish()?;
        // Until its peer has all of it it is under way: a server that stops waits for that.
        send.stopped().await?;
        Ok(true)
    }

    fn settle(&self, answered: anyhow::Result<bool>) {
        let Counts { requests, too_large, broken, active, none_active, .. } = &self.counts;
        let count = match answered {
            Ok(true) => requests,
            Ok(false) => too_large,
            Err(_) => broken, // by its client, or with its connection
        };
        count.fetch_add(1, Relaxed);
        if active.fetch_sub(1, Relaxed) == 1 {
            none_active.notify_waiters();
        }
    }

    /// Takes no more connections, lets requests come to their end, and closes.
    async fn stop(&self, grace: Duration) {
        self.endpoint.set_server_config(None);
        let over = async {
            loop {
                let none_active = self.counts.none_active.notified();
                if self.counts.active.load(Relaxed) == 0 {
                    return;
                }
                none_active.await;
            }
        };
        let _ = tokio::time::timeout(grace, over).await;
        self.close().await;
    }

    /// Closes the connections that are left.
    async fn close(&self) {
        self.endpoint.close(STOPPED, b"the server stops");
        let _ = tokio::time::timeout(FAREWELL, self.endpoint.wait_idle()).await;
    }

    /// Leaves the socket to the next server, and waits until the connections are over.
    async fn finish(&self) {
        if let Some(shared) = &self.shared {
            shared.end_receiving().await;
        }
        if self.retry {
            tokio::time::sleep(SECOND_TRY).await;
        }
        self.endpoint.wait_idle().await;
    }

    fn report(&self, on: On, elapsed: Duration) -> Report {
        let counts = &self.counts;
        let seconds = |ns: Option<u64>| ns.map(|ns| ns as f64 / 1e9);
        let usage = Sampler::new().process();
        let counters = self.stats.as_ref().map(Stats::counters);
        let of_socket = |read: fn(&weir::counters::Snapshot) -> u64| counters.as_ref().map(read);
        let forwarding = self.shared.as_ref().map(|shared| shared.forwarding());
        let of_shared = |read: fn(&Forwarding) -> u64| forwarding.as_ref().map(read);
        Report {
            on: on.to_string(),
            elapsed_s: elapsed.as_secs_f64(),
            connections: counts.accepted.load(Relaxed),
            connections_refused: counts.refused.load(Relaxed),
            connections_failed: counts.failed.load(Relaxed),
            requests: counts.requests.load(Relaxed),
            requests_too_large: counts.too_large.load(Relaxed),
            requests_broken: counts.broken.load(Relaxed),
            bytes_received: counts.bytes_received.load(Relaxed),
            bytes_sent: counts.bytes_sent.load(Relaxed),
            cpu_s: seconds(usage.cpu_ns),
            cpu_system_s: seconds(usage.cpu_system_ns),
            datagrams_received: of_socket(|counters| counters.datagrams),
            datagrams_sent: of_socket(|counters| counters.replies),
            kernel_entries: of_socket(|counters| counters.kernel_entries),
            datagrams_forwarded: of_shared(|all| all.forwarded),
            datagrams_taken: of_shared(|all| all.taken),
            datagrams_not_forwarded: of_shared(|all| all.dropped),
        }
    }
}
