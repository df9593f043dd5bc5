//! A connection's messages on a line that cuts and damages them, driven by any bytes and held against a copy
//! of what was sent: for the property test here, and for the fuzz target.
//!
//! After twelve bytes of settings each two are a step: what happens, and how much.

use super::{Amiss, Content, Stream};
use crate::tcp::Sizes;

/// Messages under way at most.
const UNDER_WAY_MAX: u64 = 16;

/// A connection, and what its line holds.
struct Line {
    stream: Stream,
    content: Content<'static>,
    sizes: Sizes,
    /// Where each message ends.
    ends: Vec<u64>,
    /// All that was sent, each byte by itself.
    sent: Vec<u8>,
    /// What is on its way back.
    flying: Vec<u8>,
    /// All that came.
    came: Vec<u8>,
    over: usize,
}

impl Line {
    fn begin(&mut self, messages: u8) {
        for _ in 0..messages {
            if self.stream.under_way() == UNDER_WAY_MAX {
                return;
            }
            let length = self.sizes.of_message(self.stream.pattern, self.stream.begun());
            assert!((u64::from(self.sizes.least)..=self.sizes.most.into()).contains(&length));
            self.ends.push(self.ends.last().copied().unwrap_or(0) + length);
            self.stream.begin(&self.content);
        }
    }

    fn send(&mut self, bytes: usize) {
        let count = self.stream.unsent().min(bytes as u64) as usize;
        let (offset, pattern) = (self.sent.len() as u64, self.stream.pattern);
        let mut next = vec![0; count];
        pattern.fill(offset, &mut next);
        self.stream.taken(count);
        self.flying.extend_from_slice(&next);
        self.sent.extend((offset..offset + count as u64).map(|at| pattern.byte(at)));
    }

    /// Brings the next bytes; gives whether they are found to be what was sent.
    fn bring(&mut self, bytes: usize) -> bool {
        let piece: Vec<u8> = self.flying.drain(..bytes.min(self.flying.len())).collect();
        let offset = self.came.len();
        let wrong = (offset..)
            .zip(&piece)
            .map(|(at, found)| (at as u64, self.sent.get(at).copied(), *found))
            .find(|(_, expected, found)| *expected != Some(*found));
        let mut over = Vec::new();
        let result = self.stream.received(&piece, &mut self.content, |number| over.push(number));
        match (result, wrong) {
            (Ok(()), None) => self.came.extend_from_slice(&piece),
            (Err(Amiss::Wrong(told)), Some(wrong)) => {
                assert_eq!((told.offset, told.expected, told.found), wrong);
                assert!(over.is_empty(), "of bytes with a wrong one among them none is believed");
                return false;
            }
            (result, wrong) => panic!("{result:?} of what is wrong at {wrong:?}"),
        }
        let came = self.came.len() as u64;
        let whole = self.ends.iter().take_while(|end| **end <= came).count();
        assert!(over.into_iter().eq(self.over as u64..whole as u64));
        self.over = whole;
        assert_eq!(self.stream.under_way(), (self.ends.len() - whole) as u64);
        let begins = whole.checked_sub(1).map_or(0, |last| self.ends[last]);
        assert_eq!(self.stream.is_within_an_answer(&self.content), came > begins);
        true
    }

    /// A place on the line, and where a stretch from there ends; none if nothing is on its way.
    fn stretch(&self, place: u8, bytes: u8) -> Option<std::ops::Range<usize>> {
        let len = self.flying.len();
        let first = usize::from(place) * len / 256;
        (len > 0).then(|| first..(first + usize::from(bytes)).min(len))
    }
}

/// Sends messages and brings back what the line makes of them; panics where what is as it was is not
/// believed, or where anything else is.
pub fn run(script: &[u8]) {
    let Some((settings, steps)) = script.split_first_chunk::<12>() else { return };
    let number = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| settings[at + i]));
    let least = 1 + number(8) % 300;
    let sizes = Sizes { least, most: least + (number(8) >> 16) % 300 };
    let mut line = Line {
        stream: Stream::new(number(0), number(4)),
        content: Content::new(sizes, None),
        sizes,
        ends: Vec::new(),
        sent: Vec::new(),
        flying: Vec::new(),
        came: Vec::new(),
        over: 0,
    };
    for step in steps.chunks_exact(2) {
        let (what, amount) = (step[0], step[1]);
        match what {
            0..64 => line.begin(1 + amount % 4),
            64..128 => line.send(usize::from(amount) * 3),
            128..208 => {
                if !line.bring(usize::from(amount) * 3) {
                    return;
                }
            }
            208..224 => {
                if let Some(at) = line.stretch(amount, 1) {
                    line.flying[at.start] ^= what - 207;
                }
            }
            224..240 => {
                if let Some(lost) = line.stretch(amount, what - 223) {
                    line.flying.drain(lost);
                }
            }
            240.. => {
                if let Some(twice) = line.stretch(amount, what - 239) {
                    let again = line.flying[twice.clone()].to_vec();
                    line.flying.splice(twice.start..twice.start, again);
                }
            }
        }
    }
    line.send(usize::MAX);
    while !line.flying.is_empty() {
        if !line.bring(97) {
            return;
        }
    }
    // All that came is right, so what is missing is missing at the end.
    assert_eq!(line.stream.under_way() == 0, line.came == line.sent);
}

#[cfg(test)]
mod tests {
    use super::run;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn what_came_is_believed_if_it_is_what_was_sent(
            script in prop::collection::vec(any::<u8>(), 12..400),
        ) {
            run(&script);
        }
    }
}
