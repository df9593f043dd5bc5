//! Refuses connections beyond a number, in all and from one address.

use super::Filter;
use crate::{
    lifecycle::lock,
    stream::LocalPeer,
    tcp::{Handler, Output, REFUSAL, passed_on},
};
use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// Refuses connections beyond a number, in all and from one address: such a connection is told why in a
/// line that begins with [`REFUSAL`], and ended in order ([`Reason::Declined`](crate::tcp::Reason::Declined)). The next handler hears
/// nothing of it.
///
/// An address is a host's: of IPv6 the first 64 bits, since a host has all of those that differ
/// behind them. Of the peers of Unix sockets, which have none, those of one user count as one, as far as
/// [`LocalPeer`](crate::stream::LocalPeer) tells. [`Limits::connections`](crate::tcp::Limits::connections) stands before this filter, with
/// less ceremony: it refuses before a handler is made.
///
/// All connections of the server share one lock, which is taken when one comes and when it goes.
#[derive(Debug, Clone)]
pub struct ConnectionLimit(Arc<Limits>);

#[derive(Debug)]
struct Limits {
    in_all: u32,
    per_address: u32,
    open: Mutex<OpenConnections>,
    refused: AtomicU64,
}

#[derive(Debug, Default)]
struct OpenConnections {
    count: u32,
    /// As many entries as hosts with open connections.
    by_address: HashMap<IpAddr, u32>,
}

impl ConnectionLimit {
    /// At most so many in all, and so many from one address; [`u32::MAX`] for any number.
    pub fn new(in_all: u32, per_address: u32) -> Self {
        let (open, refused) = (Mutex::default(), AtomicU64::new(0));
        Self(Arc::new(Limits { in_all, per_address, open, refused }))
    }

    /// Connections that are open now.
    pub fn open(&self) -> u32 {
        lock(&self.0.open).count
    }

    /// Addresses that have connections open now.
    pub fn addresses(&self) -> usize {
        lock(&self.0.open).by_address.len()
    }

    /// Connections that were refused.
    pub fn refused(&self) -> u64 {
        self.0.refused.load(Relaxed)
    }

    fn admit(&self, peer: SocketAddr) -> Result<Ticket, String> {
        let Limits { in_all, per_address, .. } = *self.0;
        let host = host(peer);
        let mut open = lock(&self.0.open);
        if open.count >= in_all {
            return Err(format!("there are {in_all} connections, the most allowed"));
        }
        let of_host = open.by_address.get(&host).copied().unwrap_or(0);
        if of_host >= per_address {
            return Err(format!(
                "there are {per_address} connections from your {}, the most allowed",
                if LocalPeer::of(peer).is_some() { "user" } else { "address" }
            ));
        }
        open.by_address.insert(host, of_host + 1);
        open.count += 1;
        drop(open);
        Ok(Ticket { shared: Arc::clone(&self.0), host })
    }
}

/// What counts as one host.
fn host(peer: SocketAddr) -> IpAddr {
    if let Some(LocalPeer { user, .. }) = LocalPeer::of(peer) {
        // With bits that no host of IPv6 has here.
        return IpAddr::V6(Ipv6Addr::from_bits(1 + u128::from(user)));
    }
    match peer.ip().to_canonical() {
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)))
        }
        address => address,
    }
}

/// The place of a connection, given back when it is dropped.
#[derive(Debug)]
struct Ticket {
    shared: Arc<Limits>,
    host: IpAddr,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut open = lock(&self.shared.open);
        open.count -= 1;
        let of_host = open.by_address.get_mut(&self.host).expect("it was counted");
        *of_host -= 1;
        if *of_host == 0 {
            open.by_address.remove(&self.host);
        }
    }
}

impl Filter for ConnectionLimit {
    type Of<H: Handler> = Limited<H>;

    fn around<H: Handler>(&self, peer: SocketAddr, next: H) -> Limited<H> {
        let ticket = self.admit(peer);
        if ticket.is_err() {
            self.0.refused.fetch_add(1, Relaxed);
        }
        Limited { ticket, next }
    }
}

/// A handler behind a [`ConnectionLimit`].
#[derive(Debug)]
pub struct Limited<H> {
    ticket: Result<Ticket, String>,
    next: H,
}

impl<H: Handler> Handler for Limited<H> {
    fn on_connect(&mut self, peer: SocketAddr, output: &mut Output<'_>) {
        match &self.ticket {
            Ok(_) => self.next.on_connect(peer, output),
            Err(why) => {
                // Where not even that may be sent the reason is the server's alone.
                let _ = output.send(format!("{REFUSAL}{why}\n").as_bytes());
                output.decline(why);
            }
        }
    }

    passed_on!(next: Limited { ticket: Ok(_), next });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_one_however_it_is_written() {
        let host = |text: &str| host((text.parse::<IpAddr>().unwrap(), 80).into());
        assert_eq!(host("::ffff:192.0.2.1"), host("192.0.2.1"));
        assert_eq!(host("2001:db8::1"), host("2001:db8::ffff:2"));
        assert_ne!(host("2001:db8::1"), host("2001:db8:0:1::1"));
        assert_ne!(host("192.0.2.1"), host("192.0.2.2"));
    }

    #[test]
    fn users_of_unix_sockets_are_told_apart_and_none_is_a_host() {
        let of = |user, process| host(LocalPeer { user, group: 7, process }.into());
        assert_eq!(of(0, 1), of(0, 2));
        assert_ne!(of(0, 1), of(1, 1));
        for address in ["::", "::1", "0.0.0.0"] {
            let peer = SocketAddr::from((address.parse::<IpAddr>().unwrap(), 80));
            assert_ne!(host(peer), of(0, 1));
        }
        let limit = ConnectionLimit::new(9, 1);
        let _one = limit.admit(LocalPeer { user: 5, group: 1, process: 1 }.into()).unwrap();
        let why = limit.admit(LocalPeer { user: 5, group: 2, process: 2 }.into()).unwrap_err();
        assert!(why.contains("from your user"), "{why}");
        assert!(limit.admit(LocalPeer { user: 6, group: 1, process: 1 }.into()).is_ok());
    }

    #[test]
    fn places_come_back() {
        let limit = ConnectionLimit::new(3, 2);
        let peer = |text: &str| text.parse::<SocketAddr>().unwrap();
        let (one, two) = (limit.admit(peer("192.0.2.1:1")), limit.admit(peer("192.0.2.1:2")));
        let why = limit.admit(peer("192.0.2.1:3")).unwrap_err();
        assert!(why.contains("from your address"), "{why}");
        let other = limit.admit(peer("192.0.2.2:1")).unwrap();
        let why = limit.admit(peer("192.0.2.3:1")).unwrap_err();
        assert_eq!(why, "there are 3 connections, the most allowed");
        assert_eq!((limit.open(), limit.addresses()), (3, 2));
        drop((one, two));
        assert_eq!((limit.open(), limit.addresses()), (1, 1));
        assert!(limit.admit(peer("192.0.2.3:1")).is_ok());
        drop(other);
        assert_eq!((limit.open(), limit.addresses()), (0, 0));
    }
}
