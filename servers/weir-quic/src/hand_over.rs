//! Sockets that come from the server before, and go to the next one.

use crate::sockets::{At, On};
use anyhow::Context as _;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use weir::{
    Error,
    inherited::{self, Inherited, Socket, TakenOver, take_over},
};
use weir_program::{METRICS, Options, listen};

/// What a server begins with.
pub struct Begin {
    pub at: At,
    /// With `--hand-over` what came with the socket: the ways to the servers before.
    pub passed_on: Option<Vec<Inherited>>,
    pub metrics: Option<TcpListener>,
    /// With `--hand-over` what the next one is given besides the ways.
    pub kept: Vec<Inherited>,
    /// The server before, which ends receiving when it is told that this one serves.
    pub before: Option<TakenOver>,
}

/// What the sockets are called: that of QUIC by what is set on it, which all that have it have to agree on.
const ON_WEIR: &str = "quic";
const ON_QUINN_UDP: &str = "quic-quinn-udp";

/// Takes sockets over from the server before or from a service manager, and binds what did not come.
pub fn begin(address: SocketAddr, options: &Options, on: On) -> anyhow::Result<Begin> {
    let path = options.hand_over.as_deref();
    let mut before = path.map(take_over).transpose()?.flatten();
    let given = match &mut before {
        Some(before) => before.sockets(),
        None => inherited::from_service_manager()?,
    };
    let name = if on == On::QuinnUdp { ON_QUINN_UDP } else { ON_WEIR };
    let (mut udp, mut of_metrics, mut ways) = (None, None, vec![]);
    for one in given {
        match one.socket {
            Socket::Datagrams(_) if before.is_some() && one.name != name => {
                let has = one.name;
                let problem = format!(
                    "the server to be replaced has {has:?}, which {on} cannot use: start both with --on quinn-udp, or \
                     neither"
                );
                return Err(Error::option("on", problem).into());
            }
            Socket::Datagrams(socket) if udp.is_none() => udp = Some(socket),
            Socket::Listener(socket) if before.is_some() && one.name == METRICS => {
                of_metrics = Some(socket)
            }
            Socket::UnixDatagrams(_) if before.is_some() => ways.push(one),
            _ => {
                let problem = format!(
                    "socket {:?} is one too many: QUIC needs a single UDP socket",
                    one.name
                );
                return Err(Error::option("sockets", problem).into());
            }
        }
    }
    let bind = |at| UdpSocket::bind(at).with_context(|| format!("cannot bind {at}"));
    let at = match udp {
        Some(socket) => At::Socket(socket),
        None if path.is_some() => At::Socket(bind(address)?),
        None => At::Address(address),
    };
    let metrics = options.metrics.map(|at| of_metrics.take().map_or_else(|| listen(at), Ok));
    let metrics = metrics.transpose().context("serving metrics")?;
    let mut kept = vec![];
    if let (At::Socket(socket), Some(_)) = (&at, path) {
        let socket = Socket::Datagrams(socket.try_clone()?);
        kept.push(Inherited { name: name.into(), socket });
        if let Some(listener) = &metrics {
            let socket = Socket::Listener(listener.try_clone()?);
            kept.push(Inherited { name: METRICS.into(), socket });
        }
    }
    Ok(Begin { at, passed_on: path.map(|_| ways), metrics, kept, before })
}
