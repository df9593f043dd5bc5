//! The proof that a port works here: a datagram from ourselves, received through it. A kernel, or
//! a filter before it, may give a port and refuse its operations.

use super::{Completion, Key, Needs, Outcome, Port, Provider, SocketId, Taken, Worker};
use crate::{
    Error, Unavailable,
    counters::Counters,
    deadline::PROOF_TIMEOUT,
    error,
    memory::{Layout, Region, RegionOptions},
    socket::DatagramSocket,
};
use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    sync::Arc,
    time::{Duration, Instant},
};

const NEEDS: Needs =
    Needs { payload: 1, sockets: 1, receives: 1, sends: 0, packets: 0, threads: 1, concurrency: 1 };

/// Receives a datagram on loopback, by a provider that is called `what`. It is told what to do where the system's
/// answer does not say that.
///
/// # Errors
/// What did not work.
pub(super) fn prove(
    provider: &impl Provider,
    what: &'static str,
    otherwise: Option<String>,
) -> Result<(), Unavailable> {
    prove_with(provider, what, otherwise, PROOF_TIMEOUT, |to| {
        let sender = UdpSocket::bind(SocketAddr::new(to.ip(), 0))?;
        sender.send_to(&[1], to).map(drop)
    })
}

/// The same with a sender and a time of one's own.
fn prove_with(
    provider: &impl Provider,
    what: &'static str,
    otherwise: Option<String>,
    timeout: Duration,
    send: impl FnOnce(SocketAddr) -> io::Result<()>,
) -> Result<(), Unavailable> {
    let failed = |error: Error| error.into_reason(what);
    let region = Region::new(Layout::packed(0, NEEDS.payload, 64), 1, RegionOptions::default())
        .map_err(failed)?;
    let loopback: [SocketAddr; 2] =
        [(Ipv4Addr::LOCALHOST, 0).into(), (Ipv6Addr::LOCALHOST, 0).into()];
    let socket = loopback
        .map(|at| DatagramSocket::bind(&at.into()))
        .into_iter()
        .reduce(Result::or)
        .expect("there are two addresses")
        .map_err(failed)?;
    let at = socket.local_address();
    let port = provider.open(&NEEDS).map_err(failed)?;
    let socket = port.associate(socket, Key(0)).map_err(failed)?;
    let received = receive_one(&port, socket, &region, timeout, || send(at));
    let stopped = port.stop(Instant::now() + PROOF_TIMEOUT);
    match received {
        Ok(()) if stopped.missing == 0 => Ok(()),
        Ok(()) => Err(Unavailable::new(what, "a cancelled receive did not end")),
        Err(e) => {
            let reason = format!("receiving a datagram through it: {e}");
            let advice = error::advice(&e).map(String::from).or(otherwise);
            Err(Unavailable { what: what.into(), reason, advice })
        }
    }
}

fn receive_one(
    port: &impl Port,
    socket: SocketId,
    region: &Arc<Region>,
    timeout: Duration,
    send: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    let (mut taken, counters) = (Taken::new(1), Counters::default());
    let mut worker = port.worker().map_err(|e| io::Error::other(e.to_string()))?;
    let slice = region.take().expect("the region has one slice");
    worker.receive(socket, slice).expect("one receive may be started");
    worker.commit(&counters)?;
    send()?;
    worker.take(&mut taken, Some(timeout), &counters)?;
    match taken.drain().next() {
        Some(Completion::Operation { outcome: Outcome::Received(arrival), .. })
            if arrival.len == 1 =>
        {
            Ok(())
        }
        Some(Completion::Operation { outcome: Outcome::Failed(e), .. }) => Err(e),
        Some(other) => Err(io::Error::other(format!("{other:?} instead of a datagram"))),
        None => Err(io::ErrorKind::TimedOut.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{port::Native, required::cannot_run};

    #[test]
    fn without_a_datagram_it_is_no_proof() {
        let native = Native::default();
        if cannot_run("port", prove(&native, "it", None)) {
            return;
        }
        let advice = Some("buy another".into());
        let silent = prove_with(&native, "it", advice, Duration::from_millis(1), |_| Ok(()));
        let silent = silent.unwrap_err().to_string();
        assert!(silent.contains("receiving a datagram") && silent.contains("another"), "{silent}");
        let refuse = |_| Err(io::ErrorKind::PermissionDenied.into());
        let refused = prove_with(&native, "it", None, PROOF_TIMEOUT, refuse);
        assert!(refused.unwrap_err().to_string().contains("permission denied"));
    }
}
