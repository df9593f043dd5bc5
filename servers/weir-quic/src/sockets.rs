//! What quinn's endpoint stands on.

use anyhow::Context as _;
use clap::Args;
use quinn::{AsyncUdpSocket, Endpoint, EndpointConfig, Runtime, ServerConfig, TokioRuntime};
use socket2::{Domain, Protocol, Socket, Type};
use std::{
    fmt,
    net::{SocketAddr, UdpSocket},
    str::FromStr,
    sync::Arc,
    time::Duration,
};
use weir::inherited::Inherited;
use weir_quinn::{Provider, Receive, Sends, Settings, SharedSocket, Stats, Tell, WeirSocket};

/// A socket's sort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// quinn's own, on quinn-udp.
    QuinnUdp,
    /// weir's, on this provider.
    Weir(Provider),
}

const QUINN_UDP: &str = "quinn-udp";

impl fmt::Display for On {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::QuinnUdp => f.write_str(QUINN_UDP),
            Self::Weir(provider) => provider.fmt(f),
        }
    }
}

impl FromStr for On {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        if name == QUINN_UDP {
            return Ok(Self::QuinnUdp);
        }
        let provider = name.parse::<Provider>().ok().filter(|provider| provider.reaches_loopback());
        provider.map(Self::Weir).ok_or_else(|| {
            let known = Provider::ALL.iter().filter(|provider| provider.reaches_loopback());
            let known: Vec<_> = known.map(ToString::to_string).collect();
            format!("{name:?} is not allowed; allowed: {QUINN_UDP}, auto, {}", known.join(", "))
        })
    }
}

/// Which sockets.
#[derive(Debug, Clone, Copy, Args)]
pub struct Sockets {
    /// Sockets to run the endpoint on: quinn-udp, or a provider of weir's registered I/O (batch, uring, uring-armed,
    /// uring-interrupt, uring-sqpoll, auto)
    #[arg(long, default_value = "batch")]
    pub on: On,
    /// What reports that something has arrived: reactor (tokio's, Linux only), or thread. This option and the next five
    /// have no effect on quinn-udp
    #[arg(long, default_value_t)]
    pub tell: Tell,
    /// Where datagrams are received into: in-place (quinn's own buffers; needs --on batch --tell reactor), posted
    /// (slices), auto
    #[arg(long, default_value = "auto")]
    pub receive: Receive,
    /// When datagrams are sent: gathered (after all tasks have had a turn), at-once
    #[arg(long, default_value = "gathered")]
    pub sends: Sends,
    /// How long to poll after a datagram before waiting, in µs (0 to 1,000,000)
    #[arg(long, default_value_t = 0)]
    pub spin_us: u64,
    /// Receives posted, each for up to 64 datagrams
    #[arg(long, default_value_t = Settings::default().receives)]
    pub receives: u32,
    /// Most sends outstanding
    #[arg(long, default_value_t = Settings::default().sends_outstanding)]
    pub sends_outstanding: u32,
    /// Size to request for the socket's receive and send buffers, in bytes
    #[arg(long, default_value_t = 2 << 20)]
    pub buffer_bytes: usize,
}

/// Where an endpoint is.
pub enum At {
    Address(SocketAddr),
    /// A socket that is bound already.
    Socket(UdpSocket),
}

impl At {
    fn address(&self) -> anyhow::Result<SocketAddr> {
        match self {
            Self::Address(address) => Ok(*address),
            Self::Socket(socket) => socket.local_addr().context("asking a socket for its address"),
        }
    }
}

/// An endpoint, and what is known of its socket.
pub struct Made {
    pub endpoint: Endpoint,
    /// What it counts, where it is weir's.
    pub stats: Option<Stats>,
    /// The socket itself, where other servers have it, too.
    pub shared: Option<Arc<SharedSocket>>,
    /// The settings in effect.
    pub effective: Vec<(&'static str, String)>,
}

impl Default for Sockets {
    /// quinn's own.
    fn default() -> Self {
        let Settings {
            tell,
            receive,
            sends,
            receives,
            sends_outstanding,
            receive_buffer_bytes,
            ..
        } = Settings::default();
        Self {
            on: On::QuinnUdp,
            tell,
            receive,
            sends,
            spin_us: 0,
            receives,
            sends_outstanding,
            buffer_bytes: receive_buffer_bytes,
        }
    }
}

impl Sockets {
    fn settings(&self, provider: Provider) -> Settings {
        Settings::default()
            .provider(provider)
            .tell(self.tell)
            .receive(self.receive)
            .sends(self.sends)
            .spin(Duration::from_micros(self.spin_us))
            .receives(self.receives)
            .sends_outstanding(self.sends_outstanding)
            .receive_buffer_bytes(self.buffer_bytes)
            .send_buffer_bytes(self.buffer_bytes)
    }

    /// An endpoint, and where its socket is handed over by what came with that. To be called in a runtime.
    pub fn endpoint(
        &self,
        at: At,
        server: Option<ServerConfig>,
        passed_on: Option<Vec<Inherited>>,
    ) -> anyhow::Result<Made> {
        let address = at.address()?;
        let making = || format!("making an endpoint at {address}");
        let runtime: Arc<dyn Runtime> = Arc::new(TokioRuntime);
        let mut config = EndpointConfig::default();
        let (mut stats, mut effective) = (None, vec![("socket", QUINN_UDP.into())]);
        let (shared, mut socket): (_, Arc<dyn AsyncUdpSocket>);
        if let On::Weir(provider) = self.on {
            let settings = self.settings(provider);
            let of_weir = Arc::new(match at {
                At::Address(address) => WeirSocket::bind(address, &settings, &runtime)?,
                At::Socket(socket) => WeirSocket::from_std(socket, &settings, &runtime)?,
            });
            (stats, effective) = (Some(of_weir.stats()), of_weir.effective().to_vec());
            shared = passed_on.map(|all| SharedSocket::new(Arc::clone(&of_weir), all));
            socket = of_weir;
        } else {
            socket = runtime.wrap_udp_socket(self.plain_socket(at)?).with_context(making)?;
            shared = passed_on.map(|all| SharedSocket::of(Arc::clone(&socket), all));
        }
        let shared = shared.transpose()?.map(Arc::new);
        if let Some(shared) = &shared {
            shared.configure(&mut config);
            socket = Arc::clone(shared) as _;
        }
        let endpoint = Endpoint::new_with_abstract_socket(config, server, socket, runtime);
        Ok(Made { endpoint: endpoint.with_context(making)?, stats, shared, effective })
    }

    /// A socket with buffers of the same size as weir's.
    fn plain_socket(&self, at: At) -> anyhow::Result<UdpSocket> {
        let (socket, address) = match at {
            At::Socket(socket) => (socket.into(), None),
            At::Address(at) => {
                let kind = (Domain::for_address(at), Type::DGRAM, Some(Protocol::UDP));
                (Socket::new(kind.0, kind.1, kind.2)?, Some(at))
            }
        };
        socket.set_recv_buffer_size(self.buffer_bytes).context("setting SO_RCVBUF")?;
        socket.set_send_buffer_size(self.buffer_bytes).context("setting SO_SNDBUF")?;
        if let Some(at) = address {
            socket.bind(&at.into()).with_context(|| format!("cannot bind {at}"))?;
        }
        Ok(socket.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_providers_that_reach_loopback_and_quinns_own() {
        for name in ["quinn-udp", "batch", "uring", "uring-sqpoll", "auto"] {
            assert!(name.parse::<On>().is_ok(), "{name}");
        }
        assert_eq!("quinn-udp".parse::<On>().unwrap().to_string(), "quinn-udp");
        let error = "xdp".parse::<On>().unwrap_err();
        assert!(
            error.starts_with("\"xdp\" is not allowed; allowed: quinn-udp, auto, uring,"),
            "{error}"
        );
    }
}
