//! The proof that a port for streams works here: a connection with ourselves, accepted, received from,
//! answered, and closed with a receive outstanding. A kernel, or a filter before it, may give a port and
//! refuse its operations.

use super::{Closing, Completion, Needs, Outcome, Port, Provider, Taken, Worker};
use crate::{
    Error, Unavailable,
    counters::Counters,
    deadline::PROOF_TIMEOUT,
    error,
    memory::{Layout, Load, Region, RegionOptions},
    port::Key,
    stream::{Listener, StreamOptions},
};
use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream},
    sync::Arc,
    time::Instant,
};

const NEEDS: Needs = Needs {
    listeners: 1,
    streams: 1,
    accepts: 1,
    receives: 1,
    sends: 1,
    packets: 0,
    threads: 1,
    concurrency: 1,
};

/// Talks with ourselves on loopback, by a provider that is called `what`. It is told what to do where the system's
/// answer does not say that.
///
/// # Errors
/// What did not work.
pub(in crate::port) fn prove(
    provider: &impl Provider,
    what: &'static str,
    otherwise: Option<String>,
) -> Result<(), Unavailable> {
    let failed = |error: Error| error.into_reason(what);
    let region =
        Region::new(Layout::packed(0, 1, 64), 1, RegionOptions::default()).map_err(failed)?;
    let loopback: [SocketAddr; 2] =
        [(Ipv4Addr::LOCALHOST, 0).into(), (Ipv6Addr::LOCALHOST, 0).into()];
    let listener = loopback
        .map(|at| Listener::bind(at, StreamOptions::default()))
        .into_iter()
        .reduce(Result::or)
        .expect("there are two addresses")
        .map_err(failed)?;
    let port = provider.open(&NEEDS).map_err(failed)?;
    let talked = talk(&port, listener, &region);
    let stopped = port.stop(Instant::now() + PROOF_TIMEOUT);
    match talked {
        Ok(()) if stopped.missing == 0 => Ok(()),
        Ok(()) => Err(Unavailable::new(what, "a cancelled receive did not end")),
        Err((step, e)) => {
            let reason = format!("{step} through it: {e}");
            let advice = error::advice(&e).map(String::from).or(otherwise);
            Err(Unavailable { what: what.into(), reason, advice })
        }
    }
}

fn talk(
    port: &impl Port,
    listener: Listener,
    region: &Arc<Region>,
) -> Result<(), (&'static str, io::Error)> {
    let counters = Counters::default();
    let other = |e: String| io::Error::other(e);
    let at = listener.local_address();
    let listener =
        port.listen(listener, Key(0)).map_err(|e| ("listening", other(e.to_string())))?;
    let mut worker = port.worker().map_err(|e| ("taking", other(e.to_string())))?;
    let refused = |what| move |refused| (what, other(format!("{refused}")));
    let connect = || {
        let client = TcpStream::connect_timeout(&at, PROOF_TIMEOUT)?;
        client.set_read_timeout(Some(PROOF_TIMEOUT)).map(|()| client)
    };

    worker.accept(listener).map_err(refused("accepting"))?;
    let mut client = connect().map_err(|e| ("connecting", e))?;
    let accepted = match take(&mut worker, &counters).map_err(|e| ("accepting", e))? {
        Completion::Accept { outcome: Outcome::Done(accepted), .. } => accepted,
        other => return Err(("accepting", problem(other))),
    };
    let id = port.associate(accepted.stream, Key(0)).map_err(refused("associating"))?;

    client.write_all(&[7]).map_err(|e| ("writing", e))?;
    worker.wait_to_receive(id).map_err(refused("waiting"))?;
    match take(&mut worker, &counters).map_err(|e| ("waiting", e))? {
        Completion::Wait { outcome: Outcome::Done(()), .. } => {}
        other => return Err(("waiting", problem(other))),
    }
    let slice = region.take().expect("the region has one slice");
    worker.receive(id, slice).map_err(|(_, why)| refused("receiving")(why))?;
    let slice = match take(&mut worker, &counters).map_err(|e| ("receiving", e))? {
        Completion::Receive { slice, outcome: Outcome::Done(1), .. } => slice,
        other => return Err(("receiving", problem(other))),
    };
    let load = Load::of_slice(slice, 1);
    worker.send(id, load).map_err(|(_, why)| refused("sending")(why))?;
    let load = match take(&mut worker, &counters).map_err(|e| ("sending", e))? {
        Completion::Send { load, outcome: Outcome::Done(1), .. } => load,
        other => return Err(("sending", problem(other))),
    };
    client.read_exact(&mut [0]).map_err(|e| ("reading", e))?;

    let told =
        port.received_in_all(id, &counters).map_err(|e| ("counting what was received", e))?;
    if told != 1 {
        let e = other(format!("{told} bytes in all, after one"));
        return Err(("counting what was received", e));
    }

    let slice = load.into_slice().expect("it was one");
    worker.receive(id, slice).map_err(|(_, why)| refused("receiving")(why))?;
    worker.commit(&counters).map_err(|e| ("receiving", e))?;
    if worker.close(id, &counters) != Closing::Follows {
        return Err(("closing", other("nothing was outstanding".into())));
    }
    match take(&mut worker, &counters).map_err(|e| ("cancelling", e))? {
        Completion::Receive { outcome: Outcome::Returned, .. } => {}
        other => return Err(("cancelling", problem(other))),
    }
    match take(&mut worker, &counters).map_err(|e| ("closing", e))? {
        Completion::Closed { .. } => Ok(()),
        other => Err(("closing", problem(other))),
    }
}

fn take(worker: &mut impl Worker, counters: &Counters) -> io::Result<Completion> {
    let mut taken = Taken::new(1);
    worker.take(&mut taken, Some(PROOF_TIMEOUT), counters)?;
    let taken = taken.drain().next();
    taken.ok_or_else(|| io::ErrorKind::TimedOut.into())
}

/// The error of a completion that is none of the ones awaited.
fn problem(completion: Completion) -> io::Error {
    match completion {
        Completion::Accept { outcome: Outcome::Failed(e), .. }
        | Completion::Receive { outcome: Outcome::Failed(e), .. }
        | Completion::Wait { outcome: Outcome::Failed(e), .. }
        | Completion::Send { outcome: Outcome::Failed(e), .. } => e,
        other => io::Error::other(format!("{other:?} came instead")),
    }
}
