//! The way back: what became of the answers to the datagrams of a run.
//!
//! ```text
//! sent     = received + lost on the way there                     (the ledger of datagrams)
//! received = answered by the server + refused by it + not answered
//! answered by the server = taken by the generator + dropped at its sockets + unexplained
//! ```
//!
//! The generator holds each answer against its request, so what it took is no claim. What a server says that it answered
//! is checked by it. A server that does not say leaves one line of two: then nobody knows whether it or the way back
//! lost an answer.

use serde::{Deserialize, Serialize};

use super::ledger::TOLERANCE;
use crate::wire::{Answers, ServerReport};

/// The counts of the way back, of one run or of several added up. What nobody counts is `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Replies {
    /// Different requests that were answered, each byte as it was sent.
    pub answered: u64,
    /// Requests that were sent and not answered, whatever became of them.
    pub missing: u64,
    /// Requests among them that did not reach the server's handler.
    pub requests_lost: u64,
    /// Answers that the server handed to the operating system.
    pub replied: Option<u64>,
    /// Answers that it did not: a limit or the operating system refused them.
    pub refused: Option<u64>,
    /// Answers dropped at the generator's own sockets.
    pub dropped_socket: Option<u64>,
    /// Requests of each flow that were given up after 100 ms, so that another took their place.
    pub given_up: u64,
}

impl Replies {
    /// Of a run.
    pub fn of(server: &ServerReport, sent: u64, answers: &Answers) -> Self {
        let counter = |name: &str| server.counters.get(name).copied();
        let refused = ["replies_refused", "loops_dropped", "send_errors"];
        Self {
            answered: answers.answered,
            missing: answers.missing,
            requests_lost: sent.saturating_sub(server.audit.received).min(answers.missing),
            replied: counter("replies"),
            // A program of another library may say anything.
            refused: refused
                .into_iter()
                .map(counter)
                .try_fold(0, |sum: u64, count| Some(sum.saturating_add(count?))),
            dropped_socket: answers.dropped_socket,
            given_up: answers.given_up,
        }
    }

    /// Answers that the server gave and that neither arrived nor are known to be dropped; `None` where it does not say
    /// what it gave. Below 0, more arrived than it says.
    pub fn unexplained(&self) -> Option<i64> {
        let arrived = i128::from(self.answered) + i128::from(self.dropped_socket.unwrap_or(0));
        let rest = i128::from(self.replied?) - arrived;
        Some(rest.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64)
    }

    /// Requests that were answered, as a share (0 to 1) of those sent.
    pub fn share(&self) -> Option<f64> {
        let sent = self.answered + self.missing;
        (sent > 0).then(|| self.answered as f64 / sent as f64)
    }

    /// What does not add up, if anything does not.
    pub fn unbalanced(&self) -> Option<String> {
        let unexplained = self.unexplained()?;
        let replied = self.replied.unwrap_or(0);
        if unexplained.unsigned_abs() as f64 <= replied as f64 * TOLERANCE {
            return None;
        }
        match (unexplained, self.dropped_socket) {
            // Where drops are not told, what is missing may have been dropped there.
            (1.., None) => None,
            (1.., Some(dropped)) => Some(format!(
                "{unexplained} of {replied} answers given ({:.2} %) neither arrived nor are among the {dropped} that were \
                 dropped at the generator's sockets",
                unexplained as f64 / replied as f64 * 100.0
            )),
            _ => Some(format!(
                "the generator took {} more answers than the {replied} that the server says it gave",
                -unexplained
            )),
        }
    }

    /// Adds another run's counts. What one does not know, the sum does not.
    pub fn add(&mut self, other: &Self) {
        let both = |a: Option<u64>, b: Option<u64>| Some(a?.saturating_add(b?));
        self.answered += other.answered;
        self.missing += other.missing;
        self.requests_lost += other.requests_lost;
        self.replied = both(self.replied, other.replied);
        self.refused = both(self.refused, other.refused);
        self.dropped_socket = both(self.dropped_socket, other.dropped_socket);
        self.given_up += other.given_up;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of 100,000 requests 99,000 arrived; of as many answers 98,500.
    pub(crate) fn some() -> Replies {
        Replies {
            answered: 98_500,
            missing: 1500,
            requests_lost: 1000,
            replied: Some(98_990),
            refused: Some(10),
            dropped_socket: Some(490),
            given_up: 0,
        }
    }

    #[test]
    fn what_was_answered_arrived_or_is_known_to_be_dropped() {
        assert_eq!((some().unexplained(), some().unbalanced()), (Some(0), None));
        assert_eq!(some().share(), Some(0.985));
        let few = Replies { dropped_socket: Some(400), ..some() };
        assert_eq!((few.unexplained(), few.unbalanced()), (Some(90), None), "within the tolerance");
        let lost = Replies { dropped_socket: Some(0), ..some() };
        let text = lost.unbalanced().unwrap();
        assert!(text.contains("490 of 98990") && text.contains("among the 0"), "{text}");
        // Where drops are not told, it may have been dropped.
        assert_eq!(Replies { dropped_socket: None, ..some() }.unbalanced(), None);
        let many = Replies { answered: 99_500, missing: 500, ..some() };
        assert!(many.unbalanced().unwrap().contains("1000 more answers"));
        let silent = Replies { replied: None, ..some() };
        assert_eq!((silent.unexplained(), silent.unbalanced()), (None, None));
    }

    #[test]
    fn a_run_is_told_from_three_sides() {
        let mut server = ServerReport::default();
        server.audit.received = 90;
        for (name, count) in
            [("replies", 88), ("replies_refused", 1), ("loops_dropped", 0), ("send_errors", 1)]
        {
            server.counters.insert(name.into(), count);
        }
        let answers =
            Answers { answered: 86, missing: 14, dropped_socket: Some(2), ..Answers::default() };
        let replies = Replies::of(&server, 100, &answers);
        assert_eq!(
            (replies.requests_lost, replies.replied, replies.refused),
            (10, Some(88), Some(2))
        );
        assert_eq!(replies.unexplained(), Some(0));
        // A program of another library says nothing of its answers.
        server.counters.clear();
        let replies = Replies::of(&server, 100, &answers);
        assert_eq!((replies.replied, replies.refused, replies.unexplained()), (None, None, None));
    }

    #[test]
    fn a_sum_knows_only_what_both_know() {
        let mut sum = some();
        sum.add(&Replies { replied: None, ..some() });
        assert_eq!((sum.answered, sum.replied, sum.dropped_socket), (197_000, None, Some(980)));
        let boasts = Replies { replied: Some(u64::MAX), ..some() };
        let mut sum = boasts.clone();
        sum.add(&boasts);
        assert_eq!(sum.replied, Some(u64::MAX), "it is only told");
    }
}
