//! The load: a client of the perf protocol.

use crate::{
    keep_to, perf, runtime,
    sockets::{At, On, Sockets},
    tls,
};
use anyhow::Context as _;
use clap::Args;
use hdrhistogram::Histogram;
use quinn::{Connection, Endpoint};
use serde::Serialize;
use std::{
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// What is asked for, how often, and for how long.
#[derive(Debug, Args)]
pub struct Options {
    /// Address and port of the server
    #[arg(long, default_value = "127.0.0.1:4433")]
    connect: SocketAddr,
    /// Connections
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: u32,
    /// Requests outstanding on each connection
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    requests: u32,
    /// Bytes that each request asks for
    #[arg(long, default_value_t = 1 << 20)]
    download: u64,
    /// Bytes that each request sends
    #[arg(long, default_value_t = 0)]
    upload: u64,
    /// Seconds to measure; extended until at least one request has been answered
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// Do not extend that time, even if no request has been answered: for requests so large that it is their bytes that
    /// count
    #[arg(long)]
    by_time: bool,
    /// Milliseconds of warm-up, which are not measured
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(0..=60_000))]
    warm_up_ms: u32,
    /// Core to run on [default: any]
    #[arg(long)]
    cpu: Option<usize>,
    /// Sockets to run the client's endpoint on, as for the server
    #[arg(long, default_value = "quinn-udp")]
    on: On,
}

/// What was measured, as a line of JSON.
#[derive(Debug, Serialize)]
struct Measured {
    seconds: f64,
    requests: u64,
    requests_per_s: f64,
    download_bytes_per_s: f64,
    upload_bytes_per_s: f64,
    latency_median_us: Option<u64>,
    latency_p99_us: Option<u64>,
}

/// What the tasks count.
struct Counts {
    requests: u64,
    downloaded: u64,
    uploaded: u64,
    latency_us: Histogram<u64>,
}

impl Counts {
    fn new() -> anyhow::Result<Self> {
        let latency_us = Histogram::new_with_bounds(1, 600_000_000, 3)?;
        Ok(Self { requests: 0, downloaded: 0, uploaded: 0, latency_us })
    }
}

pub fn run(options: &Options) -> anyhow::Result<()> {
    keep_to(options.cpu)?;
    let measured = runtime(1).context("starting a runtime")?.block_on(measure(options))?;
    println!("{}", serde_json::to_string(&measured)?);
    Ok(())
}

async fn measure(options: &Options) -> anyhow::Result<Measured> {
    let from: SocketAddr = match options.connect {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let sockets = Sockets { on: options.on, ..Sockets::default() };
    let mut endpoint = sockets.endpoint(At::Address(from), None, None)?.endpoint;
    endpoint.set_default_client_config(tls::trusting_client()?);
    let measured = measure_by(&endpoint, options).await;
    endpoint.close(0u32.into(), b"measured");
    let _ = tokio::time::timeout(FAREWELL, endpoint.wait_idle()).await;
    measured
}

/// How often it is looked whether a request has been answered.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// How long the server has to hear that the connections are over.
const FAREWELL: Duration = Duration::from_secs(1);

async fn measure_by(endpoint: &Endpoint, options: &Options) -> anyhow::Result<Measured> {
    let counts = Arc::new(Mutex::new(Counts::new()?));
    let (failed, mut failure) = tokio::sync::mpsc::channel(1);
    for _ in 0..options.connections {
        let connecting = endpoint.connect(options.connect, "localhost")?;
        let connection =
            connecting.await.with_context(|| format!("connecting to {}", options.connect))?;
        for _ in 0..options.requests {
            let (connection, counts, failed) =
                (connection.clone(), Arc::clone(&counts), failed.clone());
            let (upload, download) = (options.upload, options.download);
            tokio::spawn(async move {
                loop {
                    if let Err(error) = request(&connection, upload, download, &counts).await {
                        let _ = failed.try_send(error); // the first is told
                        return;
                    }
                }
            });
        }
    }
    let ended = async |time: Duration, failure: &mut tokio::sync::mpsc::Receiver<_>| {
        tokio::select! {
            () = tokio::time::sleep(time) => Ok(()),
            error = failure.recv() => Err(error.unwrap_or_else(|| anyhow::anyhow!("all requests ended"))),
        }
    };
    ended(Duration::from_millis(options.warm_up_ms.into()), &mut failure).await?;
    let lock = || counts.lock().unwrap_or_else(PoisonError::into_inner);
    *lock() = Counts::new()?;
    let began = Instant::now();
    ended(Duration::from_secs(options.seconds.into()), &mut failure).await?;
    // Nothing would be known where none was answered; a connection that is dead ends this.
    while !options.by_time && lock().requests == 0 {
        ended(LOOK_AGAIN, &mut failure).await?;
    }
    let seconds = began.elapsed().as_secs_f64();
    let counts = lock();
    let latency_us =
        |quantile| (counts.requests > 0).then(|| counts.latency_us.value_at_quantile(quantile));
    Ok(Measured {
        seconds,
        requests: counts.requests,
        requests_per_s: counts.requests as f64 / seconds,
        download_bytes_per_s: counts.downloaded as f64 / seconds,
        upload_bytes_per_s: counts.uploaded as f64 / seconds,
        latency_median_us: latency_us(0.5),
        latency_p99_us: latency_us(0.99),
    })
}

/// One request, from its first byte to the last one of its answer.
async fn request(
    connection: &Connection,
    upload: u64,
    download: u64,
    counts: &Mutex<Counts>,
) -> anyhow::Result<()> {
    let lock = || counts.lock().unwrap_or_else(PoisonError::into_inner);
    let began = Instant::now();
    let (mut send, mut receive) = connection.open_bi().await.context("opening a stream")?;
    send.write_all(&download.to_be_bytes()).await.context("sending a request")?;
    let taken = |bytes| lock().uploaded += bytes;
    perf::send(&mut send, upload, taken).await.context("sending a request")?;
    send.finish().context("ending a request")?;
    let mut received = 0;
    while let Some(bytes) = perf::drain_some(&mut receive).await.context("receiving an answer")? {
        received += bytes;
        lock().downloaded += bytes;
    }
    anyhow::ensure!(received == download, "{received} bytes came of {download}");
    let mut counts = lock();
    counts.requests += 1;
    let latency = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
    counts.latency_us.saturating_record(latency);
    Ok(())
}
