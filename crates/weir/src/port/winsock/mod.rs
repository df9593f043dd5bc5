//! The operations of streams for one thread, with an event for each that is outstanding: overlapped calls of Winsock 2
//! (WSARecv, WSASend, AcceptEx), and a wait for a group of events (WSAWaitForMultipleEvents).
//!
//! The thread waits for its events and is told one at a time; the event tells it which operation has finished, and then
//! it asks what became of it (WSAGetOverlappedResult). No completion port has anything to do with it: sockets belong to
//! none here, and where one does all the same, the low bit of an operation's event keeps its packet away.
//!
//! *Which is told.* Of several events that are set, the wait tells the first. So events stand in the order in which
//! their operations were started, behind the waker's: an operation only moves forward, and who is busy does not keep
//! others waiting. The wait resets the event that it tells, so that each end is told once.
//!
//! *Several receives of a stream* are in the system's hands at a time, and are filled in the order in which they were
//! started, which is that of their numbers, since one thread starts them. *Waiting without memory* is a receive of no
//! bytes.
//!
//! *Cancelling* asks for one operation (CancelIoEx), which comes back as any other, cancelled or finished.
//!
//! What it costs: a call for each operation, an event for each, and a wait for each completion, which looks through all
//! events of the group.
//!
//! How it fails: a thread waits for 64 events and no more (WSA_MAXIMUM_WAIT_EVENTS). Where a thread exits, the system
//! takes back what it has started. What the system writes to stays in place until its event was told, and is leaked
//! where that never happens.
//!
//! Origin: overlapped operations with events of Winsock 2, Windows NT 4.0; CancelIoEx, Windows Vista.

pub(crate) mod event;
mod operations;
#[cfg(test)]
mod tests;

use crate::{
    Error, Unavailable,
    port::streams::{Needs, Provider, events::EventsPort, proof},
    wake::Waker,
};
use event::Event;
pub use operations::Operations;
use std::sync::Arc;
use windows_sys::Win32::Networking::WinSock::WSA_MAXIMUM_WAIT_EVENTS;

/// The provider.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WinsockEvents {}

impl WinsockEvents {
    /// The most events that a group may have, the one that wakes its thread included.
    pub const MOST: u32 = WSA_MAXIMUM_WAIT_EVENTS;

    /// Refuses what makes no sense, or more than a thread waits for.
    fn check(&self, needs: &Needs) -> Result<(), Error> {
        let wrong = |name, problem: String| Err(Error::option(name, problem));
        if !(1..=MOST_STREAMS).contains(&needs.streams) {
            let streams = needs.streams;
            let problem = format!("{streams} is not allowed; allowed: 1 to {MOST_STREAMS}");
            return wrong("streams", problem);
        }
        let kinds =
            [("accepts", needs.accepts), ("receives", needs.receives), ("sends", needs.sends)];
        let events: u64 = kinds.iter().map(|(_, count)| u64::from(*count)).sum();
        if events < Self::MOST.into() {
            return Ok(());
        }
        let (name, _) = kinds.into_iter().max_by_key(|(_, count)| *count).expect("there are three");
        wrong(
            name,
            format!(
                "{events} operations with an event each are not allowed; allowed: {} in all, since a thread waits for {} \
                 events, of which one wakes it",
                Self::MOST - 1,
                Self::MOST
            ),
        )
    }
}

/// As many connections as a token can tell apart.
const MOST_STREAMS: u32 = 1 << 24;

const WHAT: &str = "provider winsock of operations with events";

impl Provider for WinsockEvents {
    const NAME: &'static str = "winsock";
    type Port = EventsPort<Operations>;

    fn availability(&self) -> Result<(), Unavailable> {
        proof::prove(self, WHAT, None)
    }

    fn open(&self, needs: &Needs) -> Result<EventsPort<Operations>, Error> {
        self.check(needs)?;
        let making = |e| Error::io("making the events of a group", e);
        let operations = Operations::new(needs).map_err(making)?;
        let event = Arc::new(Event::new().map_err(making)?);
        let waker = Arc::clone(&event);
        Ok(EventsPort::new(operations, event, Waker::new(move || waker.set()), needs))
    }
}
