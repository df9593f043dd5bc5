//! The requests of one flow that are under way.

/// Sequence numbers between the oldest request under way and the next: what is older than that is given up.
const SPAN: u64 = 1 << 15;

/// A request that was under way for so long is given up, within twice the time: its place is free for another. An
/// answer that comes later still counts as one.
const GIVEN_UP_AFTER_NS: u64 = 100_000_000;

/// Which requests of a flow are under way. It knows sequence numbers and times, and no sockets.
#[derive(Debug)]
pub(super) struct Window {
    /// Numbers below are answered or given up.
    oldest: u64,
    next: u64,
    under_way: u32,
    given_up: u64,
    /// Of the numbers from `oldest` to `next`, those that are answered: a bit each, by the number modulo [`SPAN`].
    answered: Box<[u64]>,
    /// Numbers below were sent before that time.
    mark: (u64, u64),
}

impl Window {
    pub(super) fn new(now_ns: u64) -> Self {
        let answered = vec![0; (SPAN / 64) as usize].into_boxed_slice();
        Self { oldest: 0, next: 0, under_way: 0, given_up: 0, answered, mark: (0, now_ns) }
    }

    /// Requests under way.
    #[inline]
    pub(super) fn under_way(&self) -> u32 {
        self.under_way
    }

    /// Requests that were given up.
    pub(super) fn given_up(&self) -> u64 {
        self.given_up
    }

    /// Of a batch of `numbers` from `first` on, the first `sent` are under way now; the others never left.
    #[inline]
    pub(super) fn sent(&mut self, first: u64, sent: u32, numbers: u32) {
        debug_assert!(first >= self.next);
        for number in self.next..first {
            self.push(number, false);
        }
        for number in 0..u64::from(numbers) {
            self.push(first + number, number < u64::from(sent));
        }
    }

    #[inline]
    fn push(&mut self, number: u64, under_way: bool) {
        if number - self.oldest >= SPAN {
            self.give_up_below(number - SPAN + 1);
        }
        let (word, bit) = place(number);
        match under_way {
            true => self.answered[word] &= !bit,
            false => self.answered[word] |= bit,
        }
        self.under_way += u32::from(under_way);
        self.next = number + 1;
        self.skip_answered();
    }

    /// A request is answered; whether it was under way.
    #[inline]
    pub(super) fn answered(&mut self, number: u64) -> bool {
        if number < self.oldest || number >= self.next {
            return false;
        }
        let (word, bit) = place(number);
        if self.answered[word] & bit != 0 {
            return false;
        }
        self.answered[word] |= bit;
        self.under_way -= 1;
        self.skip_answered();
        true
    }

    /// Gives up what was under way for too long. To be called often.
    #[inline]
    pub(super) fn give_up_old(&mut self, now_ns: u64) {
        let (below, since_ns) = self.mark;
        if now_ns.saturating_sub(since_ns) < GIVEN_UP_AFTER_NS {
            return;
        }
        self.give_up_below(below);
        self.mark = (self.next, now_ns);
    }

    fn give_up_below(&mut self, below: u64) {
        while self.oldest < below.min(self.next) {
            let (word, bit) = place(self.oldest);
            if self.answered[word] & bit == 0 {
                self.under_way -= 1;
                self.given_up += 1;
            }
            self.oldest += 1;
        }
        self.skip_answered();
    }

    #[inline]
    fn skip_answered(&mut self) {
        while self.oldest < self.next {
            let (word, bit) = place(self.oldest);
            if self.answered[word] & bit == 0 {
                return;
            }
            self.oldest += 1;
        }
    }
}

/// The word and the bit of a number.
#[inline]
fn place(number: u64) -> (usize, u64) {
    ((number % SPAN / 64) as usize, 1 << (number % 64))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    enum Step {
        Send { gap: u64, sent: u32, refused: u32 },
        Answer(u64),
        Pass(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let send = (0..2u64, 0..70u32, 0..3u32).prop_map(|(gap, sent, refused)| Step::Send {
            gap,
            sent,
            refused,
        });
        let answer = (0..400u64).prop_map(Step::Answer);
        let pass = (0..2 * GIVEN_UP_AFTER_NS).prop_map(Step::Pass);
        proptest::collection::vec(prop_oneof![3 => send, 6 => answer, 1 => pass], 0..200)
    }

    proptest! {
        /// As a set of numbers with their times would do it.
        #[test]
        fn what_is_under_way_is_what_was_sent_and_is_neither_answered_nor_given_up(steps in steps()) {
            let mut window = Window::new(0);
            let mut model: BTreeSet<u64> = BTreeSet::new();
            let (mut next, mut now, mut sent_in_all, mut answered) = (0u64, 0u64, 0u64, 0u64);
            let mut mark = (0u64, 0u64);
            for step in steps {
                match step {
                    Step::Send { gap, sent, refused } => {
                        window.sent(next + gap, sent, sent + refused);
                        model.extend(next + gap..next + gap + u64::from(sent));
                        sent_in_all += u64::from(sent);
                        next += gap + u64::from(sent + refused);
                    }
                    Step::Answer(back) => {
                        let number = next.saturating_sub(back);
                        let was = model.remove(&number);
                        prop_assert_eq!(window.answered(number), was);
                        answered += u64::from(was);
                    }
                    Step::Pass(ns) => {
                        now += ns;
                        window.give_up_old(now);
                        if now - mark.1 >= GIVEN_UP_AFTER_NS {
                            model = model.split_off(&mark.0);
                            mark = (next, now);
                        }
                    }
                }
                prop_assert_eq!(u64::from(window.under_way()), model.len() as u64);
                prop_assert_eq!(sent_in_all, answered + window.given_up() + model.len() as u64);
            }
        }
    }

    #[test]
    fn more_than_a_span_is_not_remembered() {
        let mut window = Window::new(0);
        for first in (0..SPAN + 100).step_by(100) {
            window.sent(first, 100, 100);
        }
        assert_eq!(u64::from(window.under_way()), SPAN);
        assert!(window.given_up() >= 100 && !window.answered(0));
        assert!(window.answered(SPAN));
    }
}
