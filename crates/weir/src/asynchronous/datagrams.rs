//! Datagrams of a UDP server in a queue.

use super::{remember, wake};
use crate::{
    lifecycle::lock,
    options::named,
    socket::Meta,
    udp::{Datagram, Handler, Outbox, Replies},
};
use std::{
    collections::VecDeque,
    future::poll_fn,
    mem,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
    time::Duration,
};

named! {
    /// Which datagrams are lost where more come than are awaited.
    #[derive(Default)]
    pub enum Full {
        /// Those that come: what waits is older, and is answered first.
        #[default]
        DropNewest = "drop-newest",
        /// Those that have waited longest: for who wants what is new.
        DropOldest = "drop-oldest",
    }
}

/// A datagram that was received: a copy, with what was told of it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Received {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Who sent it.
    pub source: SocketAddr,
    /// The address it was sent to, where asked for.
    pub local: Option<IpAddr>,
    /// The socket it came in on, by its place among the server's addresses.
    pub socket: u32,
    /// When the kernel received it, since the Unix epoch, where asked for.
    pub received_at: Option<Duration>,
    /// Whether it was longer than the server's datagrams may be, and its end is lost.
    pub truncated: bool,
    /// What its packet said besides, where asked for.
    pub meta: Meta,
}

/// A queue of datagrams, of which at most `most` wait. [`Receive::handler`] gives the handlers of a server; what they
/// receive is awaited from [`Datagrams`].
///
/// ```
/// use weir::{
///     asynchronous::{Full, datagrams},
///     limits::Limits,
///     udp::{AnyDesign, Server, Transmit},
/// };
/// # fn block_on<F: Future>(future: F) -> F::Output {
/// #     struct Unpark(std::thread::Thread);
/// #     impl std::task::Wake for Unpark {
/// #         fn wake(self: std::sync::Arc<Self>) { self.0.unpark() }
/// #     }
/// #     let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
/// #     let (mut future, mut cx) = (std::pin::pin!(future), std::task::Context::from_waker(&waker));
/// #     loop {
/// #         match future.as_mut().poll(&mut cx) {
/// #             std::task::Poll::Ready(output) => return output,
/// #             std::task::Poll::Pending => std::thread::park(),
/// #         }
/// #     }
/// # }
///
/// let (receive, mut datagrams) = datagrams(1024, Full::DropNewest);
/// let server = Server::bind("127.0.0.1:0".parse().unwrap())
///     .limits(Limits::SINK.transmits_outstanding(64))
///     .start(AnyDesign::parse("blocking-batch").unwrap(), move |_thread| receive.handler())
///     .unwrap();
/// let client = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
/// client.send_to(b"hello", server.local_addresses()[0]).unwrap();
/// let outbox = server.outbox();
/// block_on(async {
///     let datagram = datagrams.next().await.unwrap();
///     outbox.send(Transmit::new(datagram.source, &datagram.bytes)).unwrap();
/// });
/// let mut answer = [0; 8];
/// assert_eq!(client.recv(&mut answer).unwrap(), 5);
/// assert!(server.stop().failure.is_none());
/// assert!(block_on(datagrams.next()).is_none());
/// ```
///
/// # Panics
/// If `most` is 0.
pub fn datagrams(most: usize, full: Full) -> (Receive, Datagrams) {
    assert!(most > 0, "a queue of datagrams needs room for one");
    let state = State { waiting: VecDeque::new(), dropped: 0, givers: 1, reader: None };
    let shared = Arc::new(Shared { state: Mutex::new(state), most, full });
    (Receive { giver: Giver::first(&shared) }, Datagrams { shared })
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    most: usize,
    full: Full,
}

#[derive(Debug)]
struct State {
    waiting: VecDeque<Received>,
    dropped: u64,
    /// Those from whom more may come.
    givers: usize,
    reader: Option<Waker>,
}

/// One from whom datagrams may come.
#[derive(Debug)]
struct Giver(Option<Arc<Shared>>);

impl Giver {
    /// The one that was counted already.
    fn first(shared: &Arc<Shared>) -> Self {
        Self(Some(Arc::clone(shared)))
    }

    fn another(&self) -> Self {
        if let Some(shared) = &self.0 {
            lock(&shared.state).givers += 1;
        }
        Self(self.0.clone())
    }

    /// No more come from it.
    fn end(&mut self) {
        if let Some(shared) = self.0.take() {
            let mut state = lock(&shared.state);
            state.givers -= 1;
            let reader = if state.givers == 0 { state.reader.take() } else { None };
            drop(state);
            wake(reader);
        }
    }
}

impl Drop for Giver {
    fn drop(&mut self) {
        self.end();
    }
}

/// Makes the handlers that fill a queue. The queue ends when it and all its handlers are gone, or their server has
/// stopped.
#[derive(Debug)]
pub struct Receive {
    giver: Giver,
}

impl Receive {
    /// A handler, for a thread of a server.
    pub fn handler(&self) -> impl Handler + use<> {
        Receiver { giver: self.giver.another(), batch: Vec::new() }
    }
}

struct Receiver {
    giver: Giver,
    /// Those of this dequeue.
    batch: Vec<Received>,
}

/// Datagrams that one dequeue gathers at most before they are in the queue.
const MOST_GATHERED: usize = 256;

impl Receiver {
    fn give(&mut self) {
        let Some(shared) = self.giver.0.as_ref().filter(|_| !self.batch.is_empty()) else { return };
        let mut state = lock(&shared.state);
        for received in self.batch.drain(..) {
            if state.waiting.len() == shared.most {
                state.dropped += 1;
                match shared.full {
                    Full::DropNewest => continue,
                    Full::DropOldest => drop(state.waiting.pop_front()),
                }
            }
            state.waiting.push_back(received);
        }
        let reader = state.reader.take();
        drop(state);
        wake(reader);
    }
}

impl Handler for Receiver {
    fn on_datagram(&mut self, datagram: Datagram<'_>, _: &mut Replies<'_>) {
        let Datagram { bytes, source, local, socket, received_at, truncated, meta, .. } = datagram;
        let bytes = bytes.to_vec();
        self.batch.push(Received { bytes, source, local, socket, received_at, truncated, meta });
        if self.batch.len() == MOST_GATHERED {
            self.give();
        }
    }

    fn on_batch_end(&mut self, _: &mut Outbox<'_>) {
        self.give();
    }

    fn on_stop(&mut self, _: &mut Outbox<'_>) {
        self.give();
        self.giver.end();
    }
}

/// Datagrams to be awaited.
#[derive(Debug)]
pub struct Datagrams {
    shared: Arc<Shared>,
}

impl Datagrams {
    /// The next one, in the order in which its thread received it. `None`: no more come.
    ///
    /// A future that is dropped before it was ready takes none.
    pub async fn next(&mut self) -> Option<Received> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Moves all that wait into `into`, and awaits the first where none do. Says how many those were; 0: no more come. One
    /// lock and one wake-up for many.
    ///
    /// A future that is dropped before it was ready takes none.
    pub async fn next_many(&mut self, into: &mut Vec<Received>) -> usize {
        poll_fn(|cx| {
            let mut state = lock(&self.shared.state);
            match (state.waiting.len(), state.givers) {
                (0, 0) => Poll::Ready(0),
                (0, _) => {
                    remember(&mut state.reader, cx);
                    Poll::Pending
                }
                (count, _) => {
                    into.extend(state.waiting.drain(..));
                    Poll::Ready(count)
                }
            }
        })
        .await
    }

    /// As [`next`](Self::next), for who polls by himself: as a stream, say.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Received>> {
        let mut state = lock(&self.shared.state);
        match state.waiting.pop_front() {
            Some(received) => Poll::Ready(Some(received)),
            None if state.givers == 0 => Poll::Ready(None),
            None => {
                remember(&mut state.reader, cx);
                Poll::Pending
            }
        }
    }

    /// The next one, if one waits.
    pub fn try_next(&mut self) -> Option<Received> {
        lock(&self.shared.state).waiting.pop_front()
    }

    /// Datagrams that found the queue full since this was last asked, and are lost.
    pub fn take_dropped(&mut self) -> u64 {
        mem::take(&mut lock(&self.shared.state).dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(number: u8) -> Received {
        Received {
            bytes: vec![number],
            source: ([127, 0, 0, 1], 9).into(),
            local: None,
            socket: 0,
            received_at: None,
            truncated: false,
            meta: Meta::NONE,
        }
    }

    fn receiver(receive: &Receive) -> Receiver {
        Receiver { giver: receive.giver.another(), batch: Vec::new() }
    }

    fn numbers(datagrams: &mut Datagrams) -> Vec<u8> {
        std::iter::from_fn(|| datagrams.try_next()).map(|received| received.bytes[0]).collect()
    }

    #[test]
    fn a_full_queue_drops_as_it_was_told_and_counts() {
        for (full, left) in [(Full::DropNewest, [0, 1, 2]), (Full::DropOldest, [2, 3, 4])] {
            let (receive, mut datagrams) = datagrams(3, full);
            let mut receiver = receiver(&receive);
            receiver.batch.extend((0..5).map(received));
            receiver.give();
            assert_eq!(numbers(&mut datagrams), left);
            assert_eq!((datagrams.take_dropped(), datagrams.take_dropped()), (2, 0));
        }
    }

    #[test]
    fn it_ends_with_the_last_from_whom_more_may_come_and_gives_what_waits_first() {
        let (receive, mut datagrams) = datagrams(3, Full::DropNewest);
        let (mut one, mut other) = (receiver(&receive), receiver(&receive));
        let mut cx = Context::from_waker(Waker::noop());
        one.batch.push(received(7));
        one.give();
        drop(receive);
        one.giver.end();
        one.giver.end(); // as a stop does, and then a drop
        assert!(matches!(datagrams.poll_next(&mut cx), Poll::Ready(Some(_))));
        assert!(datagrams.poll_next(&mut cx).is_pending());
        other.giver.end();
        assert_eq!(datagrams.poll_next(&mut cx), Poll::Ready(None));
    }
}
