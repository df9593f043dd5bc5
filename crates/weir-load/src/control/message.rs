//! What is said on the control channel.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::{
    proof::Secret,
    stamp::{DATAGRAM_BYTES_MAX, FLOWS_MAX, STAMP_BYTES},
};

/// Version of the protocol; both ends must speak the same.
pub const PROTOCOL: u32 = 2;

/// The longest line in bytes, its end included. A report has room in it; whoever sends
/// more is cut off.
pub const LINE_BYTES_MAX: usize = 256 * 1024;

/// The same for whoever has not proven yet who it is.
pub const STRANGERS_LINE_BYTES_MAX: usize = 4096;

/// The longest flood, in ms: a day.
pub const DURATION_MS_MAX: u64 = 24 * 3600 * 1000;

/// One line, in either direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum Message {
    /// First in both directions.
    Hello(Hello),
    /// Second in both directions, the generator's first.
    Proof(Proof),
    /// The generator wants to flood.
    Ask(RunAsk),
    /// The server agrees.
    Consent(Consent),
    /// The server does not, or not any more.
    Refuse {
        /// Why, and what to do.
        reason: String,
    },
    /// The server's, several times a second from its consent to the end: the run may go on.
    Renew {
        /// Run id.
        run: u32,
    },
    /// The generator's answer to that: it is still there.
    Alive {
        /// Run id.
        run: u32,
    },
    /// The server does not agree any more: the flood ends at once.
    Revoke {
        /// Run id.
        run: u32,
        /// Why.
        reason: String,
    },
    /// The warm-up is over; the run itself follows.
    Start {
        /// Run id.
        run: u32,
    },
    /// The server has noted its counters: the flood may begin.
    Started {
        /// Run id.
        run: u32,
    },
    /// The generator has sent its last datagram.
    End(RunEnd),
    /// Whoever controls the server wants settings of it changed, and to know what they are; with none named, only that.
    Set {
        /// What to change: all of it or nothing.
        changes: Vec<Change>,
    },
    /// The settings that may be changed while the server runs, as they are now.
    InForce {
        /// Each of them.
        settings: Vec<InForce>,
    },
    /// What the server received.
    Report {
        /// Run id.
        run: u32,
        /// The server's own account, passed on as it is.
        report: serde_json::Value,
    },
}

impl Message {
    /// Its name, for errors.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Hello(_) => "hello",
            Self::Proof(_) => "proof",
            Self::Renew { .. } => "renew",
            Self::Alive { .. } => "alive",
            Self::Revoke { .. } => "revoke",
            Self::Ask(_) => "ask",
            Self::Consent(_) => "consent",
            Self::Refuse { .. } => "refuse",
            Self::Start { .. } => "start",
            Self::Started { .. } => "started",
            Self::End(_) => "end",
            Self::Set { .. } => "set",
            Self::InForce { .. } => "in_force",
            Self::Report { .. } => "report",
        }
    }
}

/// Who is there: nothing yet that not everybody may know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// 32 hexadecimal digits that nobody can foresee.
    pub nonce: String,
    /// Whether it has a shared key: both must have one, or neither.
    pub keyed: bool,
}

/// What proves who is there: hashes over both nonces, under the secret that is proven.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// Under the shared key, if there is one.
    pub key: Option<String>,
    /// Under the fingerprint of the build, if it is known.
    pub build: Option<String>,
    /// Identity of the machine's clock since it was started, where the system has one: under the same
    /// one-way latencies have a meaning.
    pub host: Option<String>,
}

/// What a generator wants to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunAsk {
    /// Run id that the datagrams will bear.
    pub run: u32,
    /// Run id that those of the warm-up will bear, if there is one.
    pub warm_up_run: Option<u32>,
    /// Length of the warm-up in ms.
    pub warm_up_ms: u64,
    /// Payload bytes of each datagram.
    pub size_bytes: usize,
    /// Flows, over all threads of this generator.
    pub flows: usize,
    /// Datagrams per second; none means as many as it can (saturation).
    pub datagrams_per_s: Option<f64>,
    /// Length of the windows in which the pace is judged, in ms.
    pub window_ms: u64,
    /// The longest that the flood will last, in ms.
    pub duration_ms: u64,
    /// The most datagrams that it will send, if that ends it earlier.
    pub datagrams: Option<u64>,
    /// Bytes of the answer that it expects to each datagram; none from a sink.
    #[serde(default)]
    pub reply_bytes: Option<usize>,
    /// What its clock shows more than the server's, in ns, where they have two and that was measured.
    #[serde(default)]
    pub clock_offset_ns: Option<i64>,
}

impl RunAsk {
    /// The longest that the generator will send, warm-up and run together, in ms.
    pub fn lasts_ms(&self) -> u64 {
        self.duration_ms.saturating_add(self.warm_up_ms)
    }

    /// Bits of payload per second; none means as many as it can.
    pub fn bits_per_s(&self) -> Option<f64> {
        self.datagrams_per_s.map(|rate| rate * self.size_bytes as f64 * 8.0)
    }

    /// Whether it makes sense at all, before anyone asks whether it is permitted.
    ///
    /// # Errors
    /// What does not make sense.
    pub fn check(&self) -> Result<(), String> {
        let bounds = [
            ("datagram size in bytes", self.size_bytes as u64, 0, DATAGRAM_BYTES_MAX as u64),
            ("number of flows", self.flows as u64, 1, FLOWS_MAX as u64),
            ("duration in ms", self.duration_ms, 1, DURATION_MS_MAX),
            ("warm-up in ms", self.warm_up_ms, 0, DURATION_MS_MAX),
            ("number of datagrams", self.datagrams.unwrap_or(1), 1, u64::MAX),
        ];
        for (what, value, least, most) in bounds {
            if value < least || value > most {
                return Err(format!("the {what} is {value}; it must be {least} to {most}"));
            }
        }
        if let Some(rate) = self.datagrams_per_s
            && !(rate.is_finite() && rate > 0.0)
        {
            return Err(format!("a rate of {rate} datagrams/s; it must be above 0"));
        }
        if let Some(reply_bytes) = self.reply_bytes
            && !(STAMP_BYTES..=self.size_bytes).contains(&reply_bytes)
        {
            return Err(format!(
                "answers of {reply_bytes} bytes to datagrams of {}; they have {STAMP_BYTES} bytes at least, and no more \
                 than the datagram",
                self.size_bytes
            ));
        }
        if self.warm_up_run == Some(self.run) {
            return Err(format!("run and warm-up have the same id {}", self.run));
        }
        Ok(())
    }
}

/// What a server agrees to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Consent {
    /// Run id.
    pub run: u32,
    /// The only address that may be flooded: that of the server on this connection.
    pub address: IpAddr,
    /// Its only ports that may be flooded.
    pub ports: Vec<u16>,
    /// Most datagrams per second; none means as fast as it goes. The server measures what
    /// arrives, and revokes its consent where that is exceeded.
    pub datagrams_per_s_max: Option<f64>,
    /// Most bits of payload per second, in the same way.
    pub bits_per_s_max: Option<f64>,
    /// The longest that the flood may last, its warm-up included, in ms.
    pub duration_ms_max: u64,
    /// The run must start within this time, in ms, the warm-up not counted.
    pub expires_ms: u64,
    /// Bytes of the answer that it gives to each datagram, where it was asked for answers.
    #[serde(default)]
    pub reply_bytes: Option<usize>,
}

/// Most changes that are asked for at a time.
pub const CHANGES_MAX: usize = 16;
/// Most bytes of a name or a value in one.
const CHANGE_BYTES_MAX: usize = 64;

/// A change of a setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The setting's name.
    pub name: String,
    /// What it is to be, as it is written.
    pub value: String,
}

impl Change {
    /// Whether these make sense at all, before anyone asks what they would change.
    ///
    /// # Errors
    /// What does not make sense.
    pub fn check(changes: &[Self]) -> Result<(), String> {
        if changes.len() > CHANGES_MAX {
            return Err(format!(
                "{} changes at a time; at most {CHANGES_MAX} are taken",
                changes.len()
            ));
        }
        let is_long = |text: &String| text.len() > CHANGE_BYTES_MAX;
        match changes.iter().any(|change| is_long(&change.name) || is_long(&change.value)) {
            true => Err(format!(
                "no setting has a name or a value of more than {CHANGE_BYTES_MAX} bytes"
            )),
            false => Ok(()),
        }
    }
}

/// A setting that may be changed while the server runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InForce {
    /// Its name.
    pub name: String,
    /// Its value now, as it is written.
    pub value: String,
    /// What it may be.
    pub allowed: String,
}

/// What a generator did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunEnd {
    /// Run id.
    pub run: u32,
    /// Datagrams that its operating system took, for each flow.
    pub sent_per_flow: Vec<u64>,
    /// Datagrams that it did not take.
    pub refused: u64,
    /// Datagrams that were too late and not offered.
    pub late_skipped: u64,
    /// CPU time of its threads in ns, if known.
    pub cpu_ns: Option<u64>,
    /// From the first call to the last, in ns.
    pub elapsed_ns: u64,
    /// What the proofs of reading in its datagrams are made of, now that all have been sent.
    #[serde(default)]
    pub secret: Option<Secret>,
}

/// Why a line is no message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// Longer than [`LINE_BYTES_MAX`], or what is less for a stranger.
    #[error("a line of more than {most} bytes")]
    TooLong {
        /// The limit.
        most: usize,
    },
    /// Not one of the messages in JSON.
    #[error("a line that is not a message: {0}")]
    NoMessage(String),
}

/// Reads one line, without its end. Any bytes may be given.
///
/// # Errors
/// If it is too long, or no message.
pub fn parse_line(line: &[u8]) -> Result<Message, LineError> {
    if line.len() >= LINE_BYTES_MAX {
        return Err(LineError::TooLong { most: LINE_BYTES_MAX });
    }
    serde_json::from_slice(line).map_err(|error| LineError::NoMessage(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ask() -> RunAsk {
        RunAsk {
            run: 1,
            warm_up_run: Some(2),
            warm_up_ms: 100,
            size_bytes: 64,
            flows: 1,
            datagrams_per_s: Some(1000.0),
            window_ms: 10,
            duration_ms: 1000,
            datagrams: None,
            reply_bytes: None,
            clock_offset_ns: None,
        }
    }

    #[test]
    fn a_message_is_one_line_and_comes_back_the_same() {
        let message = Message::Ask(ask());
        let line = serde_json::to_string(&message).expect("it can be written");
        assert!(!line.contains('\n') && line.contains(r#""message":"ask""#));
        assert_eq!(parse_line(line.as_bytes()), Ok(message));
    }

    #[test]
    fn senseless_asks_are_found() {
        assert_eq!(ask().check(), Ok(()));
        let wrong: [fn(&mut RunAsk); 9] = [
            |a| a.size_bytes = DATAGRAM_BYTES_MAX + 1,
            |a| a.flows = 0,
            |a| a.flows = FLOWS_MAX + 1,
            |a| a.duration_ms = u64::MAX,
            |a| a.datagrams_per_s = Some(0.0),
            |a| a.datagrams = Some(0),
            |a| a.warm_up_run = Some(1),
            |a| a.reply_bytes = Some(31),
            |a| a.reply_bytes = Some(65),
        ];
        for change in wrong {
            let mut ask = ask();
            change(&mut ask);
            assert!(ask.check().is_err(), "{ask:?}");
        }
    }

    #[test]
    fn senseless_changes_are_found() {
        let of = |name: &str, value: &str| Change { name: name.into(), value: value.into() };
        assert_eq!(Change::check(&vec![of("spin", "20us"); CHANGES_MAX]), Ok(()));
        assert!(Change::check(&vec![of("spin", "20us"); CHANGES_MAX + 1]).is_err());
        for change in [of(&"x".repeat(65), "1"), of("spin", &"1".repeat(65))] {
            assert!(Change::check(&[change]).is_err());
        }
        let line = br#"{"message":"set","changes":[{"name":"spin","value":"20us"}]}"#;
        assert_eq!(parse_line(line), Ok(Message::Set { changes: vec![of("spin", "20us")] }));
    }

    #[test]
    fn a_line_too_long_is_refused() {
        let most = LINE_BYTES_MAX;
        assert_eq!(parse_line(&vec![b' '; most]), Err(LineError::TooLong { most }));
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_without_panic(line in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(parse_line(&line).is_err());
        }

        #[test]
        fn a_damaged_line_is_parsed_without_panic(at in 0usize..200, byte in any::<u8>()) {
            let mut line = serde_json::to_vec(&Message::Ask(ask())).expect("it can be written");
            let at = at % line.len();
            line[at] = byte;
            let _ = parse_line(&line);
        }
    }
}
