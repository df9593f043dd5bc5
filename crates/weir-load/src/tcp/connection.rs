//! A connection without its I/O: which messages it has begun, what of them was taken and what came
//! back, and whether that is what was sent. It holds no byte of them: each follows from its offset.

#[cfg(any(test, fuzzing))]
pub mod model;

use super::{
    content::{Amiss, Content, Wrong},
    moves::{Moves, Sending},
    pattern::Pattern,
    system::Socket,
};

/// What a connection has sent and got back.
#[derive(Debug)]
pub(super) struct Stream {
    number: u32,
    pattern: Pattern,
    /// Bytes that the system took, or was given and may take.
    sent: u64,
    /// Bytes of all messages begun.
    begun_bytes: u64,
    /// Bytes that came back, all of them right.
    received: u64,
    /// Where the oldest message under way ends.
    oldest_end: u64,
    begun: u64,
    over: u64,
}

impl Stream {
    pub(super) fn new(run: u32, number: u32) -> Self {
        Self {
            number,
            pattern: Pattern::new(run, number),
            sent: 0,
            begun_bytes: 0,
            received: 0,
            oldest_end: 0,
            begun: 0,
            over: 0,
        }
    }

    /// Messages begun.
    #[inline]
    pub(super) fn begun(&self) -> u64 {
        self.begun
    }

    /// Messages that are over.
    #[inline]
    pub(super) fn over(&self) -> u64 {
        self.over
    }

    /// Messages begun that are not over.
    #[inline]
    pub(super) fn under_way(&self) -> u64 {
        self.begun - self.over
    }

    /// Bytes of messages begun that the system has not taken.
    #[inline]
    pub(super) fn unsent(&self) -> u64 {
        self.begun_bytes - self.sent
    }

    /// Whether a part of the oldest message under way came back.
    pub(super) fn is_within_an_answer(&self, content: &Content<'_>) -> bool {
        let begins = || self.oldest_end - content.length(self.pattern, self.over);
        self.under_way() > 0 && self.received > begins()
    }

    /// Whether nothing came back so far.
    pub(super) fn is_fresh(&self) -> bool {
        self.received == 0
    }

    /// Begins the next message.
    #[inline]
    pub(super) fn begin(&mut self, content: &Content<'_>) {
        self.begun_bytes += content.length(self.pattern, self.begun);
        if self.under_way() == 0 {
            self.oldest_end = self.begun_bytes;
        }
        self.begun += 1;
    }

    /// Sends the next bytes, as many as there are and go at a time, on the connection of that number in its thread.
    #[inline]
    pub(super) fn send(
        &mut self,
        moves: &mut Moves,
        on: (&Socket, u32),
        content: &Content<'_>,
    ) -> Result<Sending, Amiss> {
        let sending = content.send(moves, on, self.pattern, self.sent, self.unsent())?;
        // What is under way may come back before it is told.
        let given = if sending.under_way { sending.asked } else { sending.taken.unwrap_or(0) };
        self.taken(given);
        Ok(sending)
    }

    /// So many bytes that the system was given it has not taken.
    #[inline]
    pub(super) fn not_taken(&mut self, bytes: usize) {
        self.sent -= bytes as u64;
    }

    /// The system took so many bytes.
    #[inline]
    fn taken(&mut self, bytes: usize) {
        self.sent += bytes as u64;
        debug_assert!(self.sent <= self.begun_bytes);
    }

    /// Takes what came, and calls `over` with the number of each message of which it was the last.
    #[inline]
    pub(super) fn received(
        &mut self,
        bytes: &[u8],
        content: &mut Content<'_>,
        over: impl FnMut(u64),
    ) -> Result<(), Amiss> {
        let sent = self.sent.saturating_sub(self.received);
        let expected = sent.min(bytes.len() as u64) as usize;
        let (bytes, unsent) = bytes.split_at(expected);
        if let Some((at, expected)) = content.difference(self.pattern, self.received, bytes)? {
            let offset = self.received + at as u64;
            let (connection, expected) = (self.number, Some(expected));
            return Err(Amiss::Wrong(Wrong { connection, offset, expected, found: bytes[at] }));
        }
        if let Some(found) = unsent.first() {
            let (connection, offset) = (self.number, self.sent);
            let wrong = Wrong { connection, offset, expected: None, found: *found };
            return Err(Amiss::Wrong(wrong));
        }
        self.received += bytes.len() as u64;
        self.end_up_to(self.received, content, over);
        Ok(())
    }

    /// What is wrong with a byte that came where nothing was to come.
    pub(super) fn unexpected(&self, found: u8) -> Wrong {
        Wrong { connection: self.number, offset: self.received, expected: None, found }
    }

    /// Where nothing is to come back a message is over when the system has taken all of it.
    #[inline]
    pub(super) fn end_taken(&mut self, content: &Content<'_>, over: impl FnMut(u64)) {
        self.end_up_to(self.sent, content, over);
    }

    #[inline]
    fn end_up_to(&mut self, offset: u64, content: &Content<'_>, mut over: impl FnMut(u64)) {
        while self.under_way() > 0 && offset >= self.oldest_end {
            over(self.over);
            self.over += 1;
            if self.under_way() > 0 {
                self.oldest_end += content.length(self.pattern, self.over);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::Sizes;
    use proptest::prelude::*;

    /// The next bytes to be sent, as many as there are and fit.
    fn next<'s>(stream: &mut Stream, scratch: &'s mut [u8]) -> &'s [u8] {
        let count = stream.unsent().min(scratch.len() as u64) as usize;
        stream.pattern.fill(stream.sent, &mut scratch[..count]);
        stream.taken(count);
        &scratch[..count]
    }

    /// Sends `messages` messages, with so many under way at most, over a line that cuts as `cuts`
    /// says, and gives what `damage` does to the stream on its way back.
    fn through(
        sizes: Sizes,
        messages: u64,
        cuts: &[usize],
        damage: impl FnOnce(&mut Vec<u8>),
    ) -> (Stream, Vec<u64>, Result<(), Wrong>) {
        let mut stream = Stream::new(5, 6);
        let mut line = Vec::new();
        let mut scratch = vec![0; 1000];
        let mut cut = cuts.iter().cycle();
        let mut content = Content::new(sizes, None);
        (0..messages).for_each(|_| stream.begin(&content));
        while stream.unsent() > 0 {
            let len = (*cut.next().unwrap()).min(scratch.len());
            line.extend_from_slice(next(&mut stream, &mut scratch[..len]));
        }
        damage(&mut line);
        let mut over = Vec::new();
        let mut rest = &line[..];
        while !rest.is_empty() {
            let (piece, left) = rest.split_at((*cut.next().unwrap()).min(rest.len()));
            rest = left;
            match stream.received(piece, &mut content, |number| over.push(number)) {
                Ok(()) => {}
                Err(Amiss::Wrong(wrong)) => return (stream, over, Err(wrong)),
                Err(other) => panic!("there is no file: {other:?}"),
            }
        }
        (stream, over, Ok(()))
    }

    fn sizes() -> impl Strategy<Value = Sizes> {
        (1u32..300, 0u32..300).prop_map(|(least, more)| Sizes { least, most: least + more })
    }

    fn cuts() -> impl Strategy<Value = Vec<usize>> {
        prop::collection::vec(1usize..700, 1..20)
    }

    proptest! {
        #[test]
        fn messages_end_in_order_however_they_are_cut(
            sizes in sizes(), messages in 1u64..40, cuts in cuts(),
        ) {
            let (stream, over, result) = through(sizes, messages, &cuts, |_| {});
            prop_assert_eq!(result, Ok(()));
            prop_assert_eq!(over, (0..messages).collect::<Vec<_>>());
            prop_assert_eq!((stream.under_way(), stream.unsent()), (0, 0));
            let (bytes, least, most) =
                (stream.received, u64::from(sizes.least), u64::from(sizes.most));
            prop_assert!((least * messages..=most * messages).contains(&bytes));
        }

        #[test]
        fn a_changed_byte_is_found_where_it_is(
            sizes in sizes(), messages in 1u64..40, cuts in cuts(),
            at: prop::sample::Index, change in 1u8..,
        ) {
            let mut place = 0;
            let (_, _, result) = through(sizes, messages, &cuts, |line| {
                place = at.index(line.len());
                line[place] ^= change;
            });
            let wrong = result.unwrap_err();
            prop_assert_eq!(wrong.offset, place as u64);
            prop_assert_eq!(wrong.expected.unwrap() ^ wrong.found, change);
        }

        /// Found in what follows, or a message stays under way.
        #[test]
        fn a_loss_leaves_a_trace(
            sizes in sizes(), messages in 1u64..40, cuts in cuts(),
            at: prop::sample::Index, lost in 1usize..500,
        ) {
            let (stream, _, result) = through(sizes, messages, &cuts, |line| {
                let at = at.index(line.len());
                line.drain(at..(at + lost).min(line.len()));
            });
            prop_assert!(result.is_err() || stream.under_way() > 0);
        }

        /// Found in what follows, or as more than was sent.
        #[test]
        fn what_comes_twice_is_found(
            sizes in sizes(), messages in 1u64..40, cuts in cuts(),
            at: prop::sample::Index, twice in 1usize..500,
        ) {
            let (_, _, result) = through(sizes, messages, &cuts, |line| {
                let at = at.index(line.len());
                let again = line[at..(at + twice).min(line.len())].to_vec();
                line.splice(at..at, again);
            });
            prop_assert!(result.is_err());
        }

        #[test]
        fn pieces_in_another_order_are_found(
            sizes in sizes(), messages in 2u64..40, cuts in cuts(), at: prop::sample::Index,
        ) {
            let mut same = false;
            let (_, _, result) = through(sizes, messages, &cuts, |line| {
                let before = line.clone();
                let middle = at.index(line.len());
                line.rotate_left(middle);
                same = *line == before;
            });
            prop_assert!(same || result.is_err());
        }
    }

    #[test]
    fn more_than_was_sent_is_wrong() {
        let (_, over, result) = through(Sizes::of(3), 2, &[100], |line| line.push(7));
        assert!(over.is_empty(), "of bytes with a wrong one among them none is believed");
        let wrong = result.unwrap_err();
        assert_eq!((wrong.offset, wrong.expected, wrong.found), (6, None, 7));
        assert!(wrong.to_string().contains("never sent"), "{wrong}");
    }

    #[test]
    fn what_is_not_to_come_back_is_over_when_it_was_taken() {
        let (content, mut scratch) = (Content::new(Sizes::of(10), None), [0; 15]);
        let mut stream = Stream::new(1, 1);
        stream.begin(&content);
        stream.begin(&content);
        let mut over = 0;
        for expected in [1, 2] {
            next(&mut stream, &mut scratch);
            stream.end_taken(&content, |_| over += 1);
            assert_eq!(over, expected);
        }
        assert_eq!((stream.under_way(), stream.unsent()), (0, 0));
    }

    #[test]
    fn lengths_are_spread_over_all_allowed() {
        let sizes = Sizes { least: 1, most: 4 };
        let pattern = Pattern::new(1, 1);
        let mut counts = [0; 5];
        (0..4000).for_each(|number| counts[sizes.of_message(pattern, number) as usize] += 1);
        assert!(
            counts[0] == 0 && counts[1..].iter().all(|n| (800..1200).contains(n)),
            "{counts:?}"
        );
        assert_eq!(Sizes::of(9).of_message(pattern, 5), 9);
        let full = Sizes { least: 1, most: u32::MAX };
        assert!((0..100).all(|number| full.of_message(pattern, number) >= 1));
    }
}
