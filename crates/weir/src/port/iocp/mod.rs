//! The completion port of Windows.
//!
//! Each operation is a call that the kernel takes note of at once; when it is over the kernel puts a packet into the
//! queue of the port, and a thread that waits there has it. At most as many threads run as the port's concurrency
//! value says: the kernel counts those that took from it and do not wait for anything since, and wakes the one that
//! waited last.
//!
//! An operation has a slot with its slice, and a block that the kernel writes to, which never moves. The slot is filled
//! before the call, since another thread may have the packet before the call returns. A packet is known by the address
//! of its block: not by the key, which a socket that is used again keeps from before, and nothing is read at an address
//! that is not that of a slot in use. What belongs to somebody else's overlapped call on the same socket is passed
//! over. An operation that the kernel does not take comes back by a packet that is posted for it.
//!
//! A port ends by a packet that each thread passes on to the next. Its handle is closed when nobody can be waiting.
//!
//! What it costs: a call for each operation, and one for each take, which brings as many packets as are there and as
//! were asked for (GetQueuedCompletionStatusEx); a lock around a slot's coming and going, but not around the calls. With
//! [`Shape::skip_ready`] what is done when its call returns needs no packet.
//!
//! How it fails: the memory of what is outstanding is locked in place by the kernel, and thousands of receives on one
//! socket cost thousands of such locks. A thread that computes for long counts as running, and one that waits for a
//! lock does not: for a moment more run than may. [`Worker::blocking`](super::Worker::blocking) has the thread wait at
//! a port of its own for no time, which takes it out of the count, as waiting for anything would.
//!
//! Bounds: operations and packets as in [`Needs`]. Memory for slots is taken as there are more of them.
//!
//! Origin: Windows NT 3.5; GetQueuedCompletionStatusEx, CancelIoEx and packets that are skipped, Windows Vista.

mod inner;
mod operations;
mod place;
pub(crate) mod queue;
mod state;
pub mod streams;
mod table;
mod worker;

#[cfg(test)]
mod tests;

pub use worker::IocpWorker;

use super::{
    Key, Needs, Packet, Port, Provider, Refused, Shape, SocketId, Stopped, concurrency, proof,
};
use crate::{
    Error, Unavailable, counters::Counters, lifecycle::lock, memory::Layout,
    socket::DatagramSocket, wake::Waker,
};
use inner::Inner;
use operations::{Associated, Operations, Sockets};
use place::Place;
use std::{
    sync::{Arc, Mutex, OnceLock},
    time::Instant,
};

/// The provider, with what can be chosen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Iocp {
    /// The kernel has at once what is started, however much. Of this it heeds [`Shape::skip_ready`] alone.
    pub shape: Shape,
}

/// The most receives, sends, accepts, or packets: so many of each a token can tell apart.
const MOST: u32 = 1 << 22;

const WHAT: &str = "provider iocp of the completion port";

/// Refuses what makes no sense before anything is allocated for it.
fn check(numbers: &[(&str, u32, u32)]) -> Result<(), Error> {
    for &(name, value, least) in numbers {
        if !(least..=MOST).contains(&value) {
            let problem = format!("{value} is not allowed; allowed: {least} to {MOST}");
            return Err(Error::option(name, problem));
        }
    }
    Ok(())
}

impl Provider for Iocp {
    const NAME: &'static str = "iocp";
    type Port = IocpPort;

    fn layout(&self, needs: &Needs) -> Result<Layout, Unavailable> {
        proof::prove(self, WHAT, None)?;
        Ok(Layout::packed(0, needs.payload, 64))
    }

    fn open(&self, needs: &Needs) -> Result<IocpPort, Error> {
        check(&[
            ("threads", needs.threads, 1),
            ("sockets", needs.sockets, 1),
            ("receives", needs.receives, 0),
            ("sends", needs.sends, 0),
            ("packets", needs.packets, 0),
        ])?;
        let concurrency = concurrency(needs.concurrency);
        let sockets: Sockets = (0..needs.sockets).map(|_| OnceLock::new()).collect();
        let operations = Operations::new(needs, Arc::clone(&sockets));
        let inner = Inner::open(operations, needs.packets, concurrency)?;
        let skip = self.shape.skip_ready;
        Ok(IocpPort { inner, sockets, associated: Mutex::new(0), concurrency, skip, needs: *needs })
    }
}

/// A completion port of the system.
pub struct IocpPort {
    /// Shared with those who may close the port.
    inner: Arc<Inner<Operations>>,
    sockets: Sockets,
    /// How many there are.
    associated: Mutex<u32>,
    concurrency: u32,
    skip: bool,
    needs: Needs,
}

impl Port for IocpPort {
    type Worker<'a> = IocpWorker<'a>;

    fn associate(&self, socket: DatagramSocket, key: Key) -> Result<SocketId, Error> {
        let mut associated = lock(&self.associated);
        let number = *associated;
        if number == self.needs.sockets {
            let problem = format!("the port was opened for {number}; open it for more");
            return Err(Error::option("sockets", problem));
        }
        let queue = &self.inner.queue;
        queue
            .associate(socket.native().raw(), self.skip)
            .map_err(|e| Error::io("associating a socket with the completion port", e))?;
        let place = &self.sockets[number as usize];
        assert!(place.set(Associated::new(socket, key)).is_ok(), "its number is new");
        *associated += 1;
        Ok(SocketId(number))
    }

    fn post(&self, packet: Packet, counters: &Counters) -> Result<(), (Packet, Refused)> {
        self.inner.post(packet, counters)
    }

    fn worker(&self) -> Result<IocpWorker<'_>, Error> {
        let place = Place::at(&self.inner, self.needs.threads, self.skip)?;
        Ok(IocpWorker::new(place, &self.sockets))
    }

    fn close(&self) {
        self.inner.close();
    }

    fn closer(&self) -> Waker {
        self.inner.closer()
    }

    fn stop(self, by: Instant) -> Stopped {
        self.inner.stop(by)
    }

    fn granted(&self) -> Vec<(&'static str, String)> {
        granted(self.concurrency, self.skip)
    }
}

/// What was obtained of what can be asked for.
fn granted(concurrency: u32, skip: bool) -> Vec<(&'static str, String)> {
    vec![
        ("armed-obtained", "all that are posted".into()),
        ("submit-after-obtained", "1".into()),
        ("skip-ready-obtained", skip.to_string()),
        ("concurrency-obtained", concurrency.to_string()),
    ]
}

impl Drop for IocpPort {
    fn drop(&mut self) {
        // Without a stop: what the kernel holds is leaked and counted.
        self.inner.give_up();
    }
}
