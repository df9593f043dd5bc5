//! The handlers: of datagrams, and of connections.

use crate::{
    answers::{Answers, LONGEST_MESSAGE, Outcome, Transport},
    query::RCODES,
};
use std::{
    cell::RefCell,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};
use weir::{
    tcp::{self, Asks, Output},
    udp::{self, Datagram, Outbox, Replies, Transmit},
};

/// What was answered: of one thread, or of all connections.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Counts {
    /// Answers by their code, in the order of [`RCODES`].
    pub by_rcode: [AtomicU64; RCODES.len()],
    /// Those of them that did not fit into a datagram.
    pub truncated: AtomicU64,
    /// Messages that were not answered, because they were not queries.
    pub dropped: AtomicU64,
}

impl Counts {
    /// Counts in the place of one writer, which needs no locked instruction.
    #[inline]
    fn count_alone(&self, outcome: Outcome) {
        self.count_by(outcome, |count| count.store(count.load(Relaxed) + 1, Relaxed));
    }

    fn count_among_others(&self, outcome: Outcome) {
        self.count_by(outcome, |count| _ = count.fetch_add(1, Relaxed));
    }

    #[inline]
    fn count_by(&self, outcome: Outcome, count: impl Fn(&AtomicU64)) {
        match outcome {
            Outcome::Answered { rcode, truncated } => {
                let place = RCODES.iter().position(|(of, _)| *of == rcode);
                count(&self.by_rcode[place.unwrap_or_default()]);
                if truncated {
                    count(&self.truncated);
                }
            }
            Outcome::Dropped => count(&self.dropped),
        }
    }
}

/// Answers datagrams, on one thread.
///
/// Answers wait for the end of their batch, and those to one client of one length leave together, in one piece that the system
/// cuts (UDP_SEGMENT): queries need no order. A client with many queries at a time from one port, as a forwarder, so costs
/// less; for others it is a short sort.
pub struct Datagrams {
    answers: Arc<Answers>,
    counts: Arc<Counts>,
    transport: Transport,
    joins: bool,
    /// The answers of this batch, behind each other.
    made: Vec<u8>,
    waiting: Vec<Waiting>,
    /// Those that leave together.
    together: Vec<u8>,
}

/// An answer that waits for the end of its batch.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    to: SocketAddr,
    /// The address of ours that was asked.
    from: Option<IpAddr>,
    socket: u32,
    /// Where it is among those that were made.
    start: u32,
    len: u16,
}

impl Waiting {
    fn order(&self) -> (u16, u16) {
        (self.len, self.to.port())
    }

    fn goes_with(&self, other: &Self) -> bool {
        let way = |of: &Self| (of.len, of.to, of.socket, of.from);
        way(self) == way(other)
    }
}

impl Datagrams {
    /// Answers of so many bytes at most; `joins`: those of a batch leave in whatever order costs least.
    pub fn new(answers: Arc<Answers>, counts: Arc<Counts>, longest: u16, joins: bool) -> Self {
        let transport = Transport::Udp(longest);
        let (made, waiting, together) = (vec![], vec![], vec![]);
        Self { answers, counts, transport, joins, made, waiting, together }
    }
}

impl udp::Handler for Datagrams {
    #[inline]
    fn on_datagram(&mut self, datagram: Datagram<'_>, replies: &mut Replies<'_>) {
        let Datagram { bytes, source, local, socket, link, .. } = datagram;
        let start = self.made.len();
        let outcome = self.answers.answer(bytes, self.transport, &mut self.made);
        self.counts.count_alone(outcome);
        if outcome == Outcome::Dropped {
            return;
        }
        // What came in a frame is answered by one.
        if !self.joins || link.is_some() {
            let _ = replies.send(&self.made[start..]); // what the limits refuse is counted by the server
            self.made.truncate(start);
            return;
        }
        let len = (self.made.len() - start) as u16;
        self.waiting.push(Waiting { to: source, from: local, socket, start: start as u32, len });
    }

    fn on_batch_end(&mut self, outbox: &mut Outbox<'_>) {
        let Self { made, waiting, together, .. } = self;
        if waiting.len() > 2 {
            waiting.sort_unstable_by_key(Waiting::order);
        }
        for group in waiting.chunk_by(Waiting::goes_with) {
            let bytes = |one: &Waiting| &made[one.start as usize..][..one.len.into()];
            let first = group[0];
            let mut transmit = Transmit::new(first.to, bytes(&first));
            transmit.source = first.from;
            if group.len() > 1 {
                together.clear();
                group.iter().for_each(|one| together.extend_from_slice(bytes(one)));
                transmit.segment_size = Some(first.len.into());
                transmit.contents = together;
            }
            let _ = outbox.send_by(first.socket, transmit); // the same
        }
        waiting.clear();
        made.clear();
    }
}

/// Bytes of the length before a message (RFC 1035, 4.2.2).
const LENGTH_BYTES: usize = 2;

/// Answers the queries of one connection, of which a client may send any number before it has an answer (RFC 7766, 6.2.1.1).
pub struct Connection {
    answers: Arc<Answers>,
    counts: Arc<Counts>,
    /// What has come of the next query; and whole ones, while there is no room for their answers.
    kept: Vec<u8>,
    /// Whether the client has sent all that it will, or the server stops.
    ended: bool,
}

thread_local! {
    /// Where an answer is made.
    static ANSWER: RefCell<Vec<u8>> = RefCell::new(Vec::with_capacity(LENGTH_BYTES + LONGEST_MESSAGE));
}

impl Connection {
    /// A connection that was just made.
    pub fn new(answers: Arc<Answers>, counts: Arc<Counts>) -> Self {
        Self { answers, counts, kept: vec![], ended: false }
    }

    /// Answers the whole queries that the bytes begin with, as long as there is room, and says how many bytes these are.
    fn answer(&self, bytes: &[u8], output: &mut Output<'_>) -> usize {
        let mut taken = 0;
        ANSWER.with_borrow_mut(|answer| {
            while let Some(query) = first_query(&bytes[taken..])
                && output.room() >= LENGTH_BYTES + LONGEST_MESSAGE
            {
                answer.clear();
                answer.extend([0; LENGTH_BYTES]);
                let outcome = self.answers.answer(query, Transport::Tcp, answer);
                self.counts.count_among_others(outcome);
                taken += LENGTH_BYTES + query.len();
                if outcome != Outcome::Dropped {
                    let len = (answer.len() - LENGTH_BYTES) as u16;
                    answer[..LENGTH_BYTES].copy_from_slice(&len.to_be_bytes());
                    let sent = output.send(answer);
                    debug_assert!(sent.is_ok(), "there is room for it");
                }
            }
        });
        taken
    }

    /// Answers what is kept, and finishes when that is done and nothing more comes.
    fn go_on(&mut self, output: &mut Output<'_>) {
        let taken = self.answer(&self.kept, output);
        self.kept.drain(..taken);
        if self.kept.is_empty() {
            self.kept = vec![]; // an idle connection holds no memory for it
        }
        if self.ended && !self.waits() {
            output.finish();
        }
    }

    /// Whether there is a query for whose answer there was no room.
    fn waits(&self) -> bool {
        first_query(&self.kept).is_some()
    }
}

/// The query that the bytes begin with, if it is there as a whole.
fn first_query(bytes: &[u8]) -> Option<&[u8]> {
    let (length, rest) = bytes.split_first_chunk::<LENGTH_BYTES>()?;
    rest.get(..u16::from_be_bytes(*length).into())
}

impl tcp::Handler for Connection {
    fn on_receive(&mut self, bytes: &mut [u8], output: &mut Output<'_>) {
        if !self.kept.is_empty() {
            self.kept.extend_from_slice(bytes);
            return self.go_on(output);
        }
        // Most often a whole query came, which is answered from where it lies.
        let taken = self.answer(bytes, output);
        self.kept.extend_from_slice(&bytes[taken..]);
    }

    fn on_sent(&mut self, _: usize, output: &mut Output<'_>) {
        if self.waits() {
            self.go_on(output);
        }
    }

    fn on_end(&mut self, output: &mut Output<'_>) {
        self.ended = true;
        self.go_on(output);
    }

    fn on_stop(&mut self, output: &mut Output<'_>) {
        self.ended = true;
        self.go_on(output);
    }

    fn asks(&self) -> Asks {
        let waits = self.waits();
        Asks::NOTHING.pause(waits).holds(waits)
    }
}
