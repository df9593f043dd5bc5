//! quinn on weir's sockets: its own tests of endpoints, faults, and what a socket says of datagrams.
//!
//! Each runs on every provider and way of telling that this system has, by name: `cargo test -p weir-quinn --test quinn
//! uring_by_reactor`.

mod endpoints;
mod faults;
mod restart;
mod sockets;

use quinn::{
    ClientConfig, Endpoint, EndpointConfig, Runtime, ServerConfig, TokioRuntime, TransportConfig,
};
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
};
use std::{net::SocketAddr, sync::Arc, time::Duration};
use weir_quinn::{Receive, Sends, Settings, Stats, Tell, WeirSocket};

/// So long a test may take before it is taken to hang.
const HANGS: Duration = Duration::from_secs(120);

/// Runs a test on each provider and way of telling. Each is its own test.
macro_rules! on_each {
    ($($test:ident)*) => {
        $crate::on_each! { @ $($test)*;
            batch_in_place "batch" Reactor Auto Gathered 0,
            batch_in_place_at_once "batch" Reactor InPlace AtOnce 0,
            batch_in_place_polled "batch" Reactor InPlace Gathered 50,
            batch_by_reactor "batch" Reactor Posted Gathered 0,
            batch_polled "batch" Reactor Posted Gathered 50,
            batch_by_thread "batch" Thread Auto AtOnce 0,
            uring_by_reactor "uring" Reactor Auto Gathered 0,
            uring_by_thread "uring" Thread Posted Gathered 0,
            uring_armed_by_reactor "uring-armed" Reactor Auto AtOnce 0,
            uring_interrupt_by_reactor "uring-interrupt" Reactor Auto Gathered 0,
            uring_sqpoll_by_reactor "uring-sqpoll" Reactor Auto Gathered 0,
        }
    };
    (@ $($test:ident)*; $($on:ident $provider:literal $tell:ident $receive:ident $sends:ident $spin:literal,)*) => {
        $crate::on_each! { @@ [$($test)*] $($on $provider $tell $receive $sends $spin,)* }
    };
    (@@ $tests:tt $($on:ident $provider:literal $tell:ident $receive:ident $sends:ident $spin:literal,)*) => {
        $($crate::on_each! { @@@ $tests $on $provider $tell $receive $sends $spin })*
    };
    (@@@ [$($test:ident)*] $on:ident $provider:literal $tell:ident $receive:ident $sends:ident $spin:literal) => {
        mod $on {
            $(#[test]
            fn $test() {
                let provider = $provider.parse().expect("it is a provider");
                let settings = $crate::Settings::default()
                    .provider(provider)
                    .tell($crate::Tell::$tell)
                    .receive($crate::Receive::$receive)
                    .sends($crate::Sends::$sends)
                    .spin(std::time::Duration::from_micros($spin));
                $crate::run(settings, super::$test);
            })*
        }
    };
}
pub(crate) use on_each;

/// Runs a test, unless this system lacks what it is to run on; with `WEIR_REQUIRE` set to `all` or to the provider's name that is a
/// failure.
fn run<F: Future<Output = ()>>(settings: Settings, test: impl FnOnce(Settings) -> F) {
    let tell = settings.tell == Tell::Thread || Tell::default() == Tell::Reactor;
    if !tell || settings.provider.availability().is_err() {
        let (required, name) =
            (std::env::var("WEIR_REQUIRE").unwrap_or_default(), settings.provider.to_string());
        let is_required = required == "all" || required.split(',').any(|one| one == name);
        assert!(!is_required, "{name} by {} cannot run here", settings.tell);
        eprintln!("skipped: {name} by {} cannot run here", settings.tell);
        return;
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let within = async { tokio::time::timeout(HANGS, test(settings)).await };
    runtime.expect("a runtime starts").block_on(within).expect("it hangs");
}

/// An endpoint on a socket of weir's, and what that counts.
fn endpoint_at(
    address: &str,
    settings: &Settings,
    config: EndpointConfig,
    server: Option<ServerConfig>,
) -> (Endpoint, Stats) {
    let runtime: Arc<dyn Runtime> = Arc::new(TokioRuntime);
    let socket = WeirSocket::bind(address.parse().unwrap(), settings, &runtime).unwrap();
    let stats = socket.stats();
    let endpoint =
        Endpoint::new_with_abstract_socket(config, server, Arc::new(socket), runtime).unwrap();
    (endpoint, stats)
}

/// Makes endpoints that trust each other.
struct Factory {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
    transport: Arc<TransportConfig>,
    config: EndpointConfig,
}

impl Factory {
    fn new() -> Self {
        Self::with(TransportConfig::default())
    }

    fn with(transport: TransportConfig) -> Self {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
        Self {
            certificate: made.cert.into(),
            key: PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()).into(),
            transport: Arc::new(transport),
            config: EndpointConfig::default(),
        }
    }

    fn server(&self) -> ServerConfig {
        let chain = vec![self.certificate.clone()];
        let mut server = ServerConfig::with_single_cert(chain, self.key.clone_key()).unwrap();
        server.transport_config(Arc::clone(&self.transport));
        server
    }

    fn client(&self) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        let mut client = ClientConfig::with_root_certificates(Arc::new(roots)).unwrap();
        client.transport_config(Arc::clone(&self.transport));
        client
    }

    /// An endpoint that is client and server.
    fn endpoint_at(&self, address: &str, settings: &Settings) -> (Endpoint, Stats) {
        let (mut endpoint, stats) =
            endpoint_at(address, settings, self.config.clone(), Some(self.server()));
        endpoint.set_default_client_config(self.client());
        (endpoint, stats)
    }

    fn endpoint(&self, settings: &Settings) -> Endpoint {
        self.endpoint_at("127.0.0.1:0", settings).0
    }
}

/// Bytes that are the same for the same seed, and of which no two stretches are alike.
fn bytes(count: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        // xorshift64* (Vigna 2016).
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        state.wrapping_mul(0x2545_F491_4F6C_DD1D).to_le_bytes()
    };
    let mut bytes: Vec<u8> = (0..count.div_ceil(8)).flat_map(|_| next()).collect();
    bytes.truncate(count);
    bytes
}

/// Waits until every slice of a socket that is gone is in its pool.
async fn all_slices_are_back(stats: &Stats) {
    while {
        let (made, pooled) = stats.slices();
        pooled < made
    } {
        tokio::task::yield_now().await; // the endpoint's driver lets the socket go when it has its turn
    }
}

fn loopback(endpoint: &Endpoint) -> SocketAddr {
    endpoint.local_addr().unwrap()
}
