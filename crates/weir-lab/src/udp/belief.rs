//! What is believed of a program that is not weir's and says itself what it received.
//!
//! Nothing that can be checked is believed unchecked: what the program says is held against itself, against
//! the generator's account, the kernel's counts and the content of the datagrams ([`weir_load::proof`]).
//! What contradicts any of them makes the run invalid. What cannot be checked is a claim: it is shown and not
//! ranked.

use serde::Serialize;
use weir_load::proof::{LEAST, MOST};

use crate::wire::PeerReport;

/// How far the word of a program goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "state", content = "reason", rename_all = "snake_case")]
pub enum Belief {
    /// It has shown that it read what it counts.
    Proved,
    /// What it says cannot be checked, and why.
    Claimed(String),
    /// What it says is contradicted, and by what.
    Disproved(String),
}

/// Datagrams that one program says it received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Said {
    /// At the end, of the run.
    pub received: u64,
    /// What the generator sent.
    pub sent: u64,
    /// Whether the generator signalled the end: else nobody knows the secret that proofs are checked by.
    pub end_signalled: bool,
    /// Datagrams that it answered, where it was to answer: the generator has held each answer against what it sent,
    /// proof of reading included, so nothing of that is the program's word. Who answered none has proved nothing.
    pub answered: Option<u64>,
}

/// Judges a run.
pub fn of(peer: &PeerReport, said: Said) -> Belief {
    let answered = said.answered.filter(|answered| *answered > 0);
    if let (Some(answered), false) = (answered, peer.talks) {
        return match answered <= said.sent {
            true => Belief::Proved,
            false => {
                Belief::Disproved(format!("it answered {answered} of {} datagrams", said.sent))
            }
        };
    }
    if !peer.talks {
        return Belief::Claimed(
            "it does not talk with weir, so nothing shows that it reads what the kernel gives it; its figures \
             are a claim"
                .into(),
        );
    }
    if let Some(reason) = contradiction(peer, said) {
        return Belief::Disproved(reason);
    }
    match peer.proof {
        Some(_) => Belief::Proved,
        None if answered.is_some() => Belief::Proved,
        None if !said.end_signalled => Belief::Claimed(
            "not checked: the end of the run was not signalled, and proofs of reading are checked with what \
             that signal carries"
                .into(),
        ),
        None if !peer.stamped => Belief::Claimed(
            "datagrams below 32 bytes carry no proof of reading, so its count is a claim; give the load \
             longer ones"
                .into(),
        ),
        None => Belief::Claimed(
            "it returns no proof that it read its datagrams (see peers/README.md), so its count is a \
             claim"
                .into(),
        ),
    }
}

/// What contradicts it, if anything does.
fn contradiction(peer: &PeerReport, Said { received, sent, answered, .. }: Said) -> Option<String> {
    if let Some(answered) = answered.filter(|answered| *answered > received) {
        return Some(format!(
            "it says that it received {received} datagrams, but has answered {answered}"
        ));
    }
    let wrong = peer.proof.map_or(0, |proof| proof.wrong);
    if wrong > 0 {
        return Some(format!(
            "{wrong} of the proofs of reading that it returned are wrong: it has not read those datagrams"
        ));
    }
    if received > sent {
        return Some(format!(
            "it says that it received {received} datagrams, but {sent} were sent"
        ));
    }
    if peer.count_fell {
        return Some("its count fell during the run".into());
    }
    if peer.counted > received {
        return Some(format!(
            "it counted {} datagrams during the run, but {received} at its end",
            peer.counted
        ));
    }
    if let Some(kernel) = peer.kernel_received
        && received > kernel
    {
        return Some(format!(
            "it says that it received {received} datagrams, but the kernel delivered {kernel} to all programs together"
        ));
    }
    if peer.sockets_closed > 0 {
        return Some(
            "a socket on its port was closed by the end of the run: what was lost there is not known; its \
             sockets must stay open until its input ends"
                .into(),
        );
    }
    let proof = peer.proof.filter(|proof| !proof.fits(received))?;
    if proof.is_chosen() {
        return Some(format!(
            "it chose a mask (0x{:x}) that leaves too few proofs of reading, {}: a program that reads every \
             datagram adds a bit only when it holds more than {MOST}, and shows {LEAST} at least",
            proof.mask, proof.right
        ));
    }
    Some(format!(
        "it says that it received {received} datagrams, but the proofs of reading that it returned are those of {:.0}",
        proof.received()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_load::proof::Checked;

    const SAID: Said = Said { received: 900, sent: 1000, end_signalled: true, answered: None };

    fn honest() -> PeerReport {
        PeerReport {
            talks: true,
            stamped: true,
            proof: Some(Checked { mask: 0, right: 900, ..Checked::default() }),
            counted: 900,
            kernel_received: Some(901),
            ..PeerReport::default()
        }
    }

    #[test]
    fn who_has_shown_everything_is_believed() {
        assert_eq!(of(&honest(), SAID), Belief::Proved);
        let unseen = PeerReport { kernel_received: None, counted: 880, ..honest() };
        assert_eq!(of(&unseen, SAID), Belief::Proved);
        let sampled = Checked { mask: 31, right: 3100, again: 3, ..Checked::default() };
        let many =
            PeerReport { proof: Some(sampled), counted: 0, kernel_received: None, ..honest() };
        assert_eq!(of(&many, Said { received: 100_000, sent: 100_000, ..SAID }), Belief::Proved);
    }

    #[test]
    fn what_cannot_be_checked_is_a_claim() {
        for (peer, said) in [
            (PeerReport { talks: false, ..honest() }, "does not talk with weir"),
            (PeerReport { proof: None, ..honest() }, "returns no proof"),
            (PeerReport { proof: None, stamped: false, ..honest() }, "below 32 bytes"),
        ] {
            let belief = of(&peer, SAID);
            assert!(matches!(&belief, Belief::Claimed(why) if why.contains(said)), "{belief:?}");
        }
        let open =
            of(&PeerReport { proof: None, ..honest() }, Said { end_signalled: false, ..SAID });
        assert!(
            matches!(&open, Belief::Claimed(why) if why.starts_with("not checked: ")),
            "{open:?}"
        );
    }

    #[test]
    fn who_answers_has_shown_that_it_read() {
        let answered = Said { answered: Some(900), ..SAID };
        let silent = PeerReport { talks: false, proof: None, ..honest() };
        assert_eq!(of(&silent, answered), Belief::Proved);
        assert_eq!(of(&PeerReport { proof: None, ..honest() }, answered), Belief::Proved);
        let more = of(&honest(), Said { answered: Some(901), ..SAID });
        assert!(
            matches!(&more, Belief::Disproved(why) if why.contains("has answered 901")),
            "{more:?}"
        );
        let none = Said { answered: Some(0), ..SAID };
        for peer in [silent, PeerReport { proof: None, ..honest() }] {
            assert!(
                matches!(of(&peer, none), Belief::Claimed(_)),
                "it has answered none: {peer:?}"
            );
        }
        // What it returns of its own is still checked.
        let wrong = Checked { mask: 0, right: 899, wrong: 1, ..Checked::default() };
        let wrong = PeerReport { proof: Some(wrong), ..honest() };
        assert!(matches!(of(&wrong, answered), Belief::Disproved(_)));
    }

    #[test]
    fn each_contradiction_has_its_sentence() {
        let wrong = Checked { mask: 0, right: 899, wrong: 1, ..Checked::default() };
        let few = Checked { mask: 0, right: 450, ..Checked::default() };
        let wide = Checked { mask: u32::MAX, ..Checked::default() };
        let wider = Checked { mask: 63, right: 1500, ..Checked::default() };
        for (peer, received, said) in [
            (PeerReport { proof: Some(wrong), ..honest() }, 900, "1 of the proofs"),
            (honest(), 1001, "1000 were sent"),
            (PeerReport { count_fell: true, ..honest() }, 900, "fell during"),
            (PeerReport { counted: 901, ..honest() }, 900, "counted 901 datagrams during"),
            (
                PeerReport { kernel_received: Some(246), ..honest() },
                900,
                "delivered 246 to all programs",
            ),
            (PeerReport { sockets_closed: 1, ..honest() }, 900, "was closed by the end of"),
            (PeerReport { proof: Some(few), ..honest() }, 900, "are those of 450"),
            (PeerReport { proof: Some(wide), ..honest() }, 900, "chose a mask (0xffffffff)"),
            (PeerReport { proof: Some(wider), ..honest() }, 900, "too few proofs of reading, 1500"),
            // Also where it shows nothing.
            (PeerReport { proof: None, ..honest() }, 1001, "1000 were sent"),
        ] {
            let belief = of(&peer, Said { received, ..SAID });
            assert!(matches!(&belief, Belief::Disproved(why) if why.contains(said)), "{belief:?}");
        }
    }
}
