//! What the generator does to a server: the load.

use super::line_rate::{LinkShare, Speed};
use super::{Held, Work};
use crate::experiment::plan::Row;
use std::fmt;
use weir::socket::ReceiveBuffer;
use weir_load::pacing::Arrivals;

/// How many datagrams are offered.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rate {
    /// As many as the generator can send.
    Saturation,
    /// Evenly paced, so many a second.
    PerSecond(u64),
    /// Evenly paced at a share of what a link carries: how many a second depends on their size.
    OfLink(LinkShare),
    /// Evenly paced at a share of what this row received at saturation: 0.5 for half of it.
    OfMaximum(f64),
    /// Evenly paced between the highest rate that the row is known to take within the goal and the
    /// lowest at which it does not: one more step of the search for the rate between.
    Search {
        /// What is searched for.
        goal: Goal,
        /// Which step it is, from 1.
        step: u32,
    },
    /// Evenly paced at a share (0 to 1) of the row's partial-drop rate.
    OfPartialDrop(f64),
    /// So many at once, as fast as the generator sends, and no more.
    Burst {
        /// How many.
        datagrams: u64,
        /// What the server does meanwhile.
        held: Held,
    },
}

/// How much of an evenly paced load may be lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    /// Nothing: the highest such rate is the no-drop rate (NDR; "throughput" in RFC 2544).
    NoDrop,
    /// At most [`PARTIAL_DROP`]: the highest such rate is the partial-drop rate (PDR).
    PartialDrop,
}

/// The share of the datagrams that may be lost at the partial-drop rate, as in the reports of the
/// FD.io project.
pub const PARTIAL_DROP: f64 = 0.005;

impl Goal {
    /// The largest share (0 to 1) that may be lost.
    pub fn most_lost(self) -> f64 {
        match self {
            Self::NoDrop => 0.0,
            Self::PartialDrop => PARTIAL_DROP,
        }
    }

    /// What the highest rate within the goal is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoDrop => "no-drop rate",
            Self::PartialDrop => "partial-drop rate",
        }
    }
}

/// Which rows a load is for, besides the ordinary ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Takes {
    /// Also the rows that pair an ordinary one with receive offload.
    pub offloaded: bool,
    /// Also the rows that are there for a sweep over threads.
    pub threads: bool,
    /// Also the rows that are there for a sweep over an option.
    pub options: bool,
}

/// How a load is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// With a table of its own.
    Table,
    /// As a step of a sweep, in the table of that.
    Step,
}

/// What is answered, where the server is no sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replies {
    /// Requests of each flow that are under way, where no rate says when to send.
    pub outstanding: u32,
    /// Bytes of an answer; `None` for as many as its request has.
    pub size_bytes: Option<u32>,
    /// Which servers send answers in a row as one.
    pub offload: ReplyOffload,
}

/// Which servers let answers in a row to one peer leave as one, of those that can.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ReplyOffload {
    /// All.
    #[default]
    On,
    /// Those with receive offload.
    WithReceive,
    /// None.
    Off,
}

/// One load. Rows are compared only under the same one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// How many datagrams are offered.
    pub rate: Rate,
    /// Payload of a datagram in bytes.
    pub size_bytes: u32,
    /// What the handler does with each.
    pub work: Work,
    /// What the server answers; `None` for a sink.
    pub replies: Option<Replies>,
    /// How many ports the server listens on.
    pub ports: u16,
    /// How many flows (source ports) each generator sends from.
    pub flows: u16,
    /// How many generators (threads) send; a rate is that of all together.
    pub generators: u16,
    /// How the datagrams of a pace follow one another.
    pub arrivals: Arrivals,
    /// Whether the server asks the kernel to hand it several datagrams as one.
    pub receive_offload: bool,
    /// Whether the generator hands the kernel several datagrams as one.
    pub send_offload: bool,
    /// Receive buffer asked for each of the server's sockets.
    pub rcvbuf: ReceiveBuffer,
    /// For how long the server's sockets poll their device's queue before they wait, in microseconds;
    /// `None` leaves it off.
    pub busy_poll_us: Option<u64>,
    /// Whether server and generators are on different hosts, whose clocks have nothing in common: whether one-way latency is
    /// known depends on how well they were compared then.
    pub over_hosts: bool,
    /// Which rows it is for.
    pub takes: Takes,
    /// How it is shown.
    pub shown: Shown,
}

impl Load {
    /// Saturation with datagrams of that size: one port, one flow, no work, send offload.
    pub fn saturation(size_bytes: u32) -> Self {
        Self {
            rate: Rate::Saturation,
            size_bytes,
            work: Work::default(),
            replies: None,
            ports: 1,
            flows: 1,
            generators: 1,
            arrivals: Arrivals::Even,
            receive_offload: false,
            send_offload: true,
            rcvbuf: ReceiveBuffer::System,
            busy_poll_us: None,
            over_hosts: false,
            takes: Takes::default(),
            shown: Shown::Table,
        }
    }

    /// Whether its servers let answers in a row to one peer leave as one.
    pub fn joins_replies(&self) -> bool {
        self.replies.is_none_or(|replies| match replies.offload {
            ReplyOffload::On => true,
            ReplyOffload::WithReceive => self.receive_offload,
            ReplyOffload::Off => false,
        })
    }

    /// The same load at another rate.
    pub fn at(self, rate: Rate) -> Self {
        Self { rate, ..self }
    }

    /// The same load with at least as many flows as ports: a flow goes to one port, so with fewer some
    /// ports would have no datagrams.
    pub fn with_enough_flows(self) -> Self {
        let fewest = self.ports.div_ceil(self.generators.max(1));
        Self { flows: self.flows.max(fewest), ..self }
    }

    /// True unless the generator sends as fast as it can.
    pub fn is_paced(&self) -> bool {
        !matches!(self.rate, Rate::Saturation | Rate::Burst { .. })
    }

    /// Datagrams per second where every row is offered the same, evenly.
    pub fn offered_per_s(&self) -> Option<u64> {
        match self.rate {
            Rate::PerSecond(rate) => Some(rate),
            Rate::OfLink(of) => Some(of.per_second(self.size_bytes)),
            _ => None,
        }
    }

    /// How many datagrams come at once, and what the server does meanwhile, if it is a burst.
    pub fn burst(&self) -> Option<(u64, Held)> {
        match self.rate {
            Rate::Burst { datagrams, held } => Some((datagrams, held)),
            _ => None,
        }
    }

    /// The same load as a step of a sweep.
    pub fn as_step(self) -> Self {
        Self { shown: Shown::Step, ..self }
    }

    /// Whether a row takes part.
    pub fn takes(&self, row: &Row) -> bool {
        // Only weir's own servers can be held.
        let can_be_held = row.peer.is_none();
        let is_held = self.burst().is_some_and(|(_, held)| held != Held::No);
        (can_be_held || !is_held)
            && (!row.receive_offload || self.takes.offloaded)
            && match (row.only_swept, row.swept_option) {
                (false, _) => true,
                (true, None) => self.takes.threads,
                (true, Some(_)) => self.takes.options,
            }
    }

    /// Whether the other is the same but for the rate: then a rate found under one can be asked for
    /// under the other.
    pub fn is_like(&self, other: &Self) -> bool {
        let bare = |load: &Self| Self {
            rate: Rate::Saturation,
            takes: Takes::default(),
            shown: Shown::Table,
            ..*load
        };
        bare(self) == bare(other)
    }

    /// What it is besides its rate: what differs from one port, one flow, one generator, no work.
    pub fn conditions(&self) -> String {
        let mut text = format!("{} B", self.size_bytes);
        let several =
            |n: u16, what: &str| if n > 1 { format!(", {n} {what}") } else { String::new() };
        if let Some(Replies { size_bytes, offload, .. }) = self.replies {
            text.push_str(", each answered");
            if let Some(bytes) = size_bytes {
                text.push_str(&format!(" with {bytes} B"));
            }
            text.push_str(match offload {
                ReplyOffload::On => "",
                ReplyOffload::WithReceive => ", by itself without receive offload",
                ReplyOffload::Off => ", by itself",
            });
        }
        if !self.work.is_none() {
            text.push_str(&format!(", work {}", self.work));
        }
        text.push_str(&several(self.ports, "ports"));
        text.push_str(&several(self.flows, "flows"));
        text.push_str(&several(self.generators, "generators"));
        if self.arrivals == Arrivals::Poisson && self.is_paced() {
            text.push_str(", Poisson arrivals");
        }
        if self.receive_offload {
            text.push_str(", receive offload");
        }
        if let Some(us) = self.busy_poll_us {
            text.push_str(&format!(", busy polling {us} µs"));
        }
        text
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rate {
            Rate::Saturation => match self.replies {
                None => write!(f, "saturation")?,
                Some(Replies { outstanding, .. }) => {
                    write!(f, "closed loop of {outstanding} requests per flow")?;
                }
            },
            Rate::PerSecond(rate) => write!(f, "paced at {rate}/s")?,
            Rate::OfLink(of) => {
                let (share, speed) = (percent(of.share), Speed(of.bits_per_s));
                let rate = of.per_second(self.size_bytes);
                write!(f, "paced at {share} % of {speed} ({rate} datagrams/s)")?;
            }
            Rate::OfMaximum(share) => {
                write!(f, "paced at {} % of each row's maximum", percent(share))?;
            }
            Rate::Search { goal, step } => {
                write!(f, "paced, step {step} of the search for each row's {}", goal.name())?;
            }
            Rate::OfPartialDrop(share) => {
                write!(f, "paced at {} % of each row's partial-drop rate", percent(share))?;
            }
            Rate::Burst { datagrams, held } => {
                write!(f, "{datagrams} at once to {}", held.said())?;
            }
        }
        write!(f, ", {}", self.conditions())
    }
}

/// A share as percent, with a decimal only where there is one.
fn percent(share: f64) -> String {
    let text = format!("{:.1}", share * 100.0);
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_takes_the_rows_it_is_for() {
        let plain = Row::parse("epoll").unwrap();
        let offloaded = Row { receive_offload: true, ..plain.clone() };
        let swept = Row { only_swept: true, ..plain.clone() };
        let of_option = Row { swept_option: Some("outstanding"), ..swept.clone() };
        let takes = Takes { options: true, ..Takes::default() };
        let load = Load { takes, ..Load::saturation(64) };
        assert_eq!([&plain, &swept, &of_option].map(|row| load.takes(row)), [true, false, true]);
        let taken = |offloaded_too, threads| {
            let takes = Takes { offloaded: offloaded_too, threads, options: false };
            let load = Load { takes, ..Load::saturation(64) };
            [&plain, &offloaded, &swept].map(|row| load.takes(row))
        };
        assert_eq!(taken(false, false), [true, false, false]);
        assert_eq!(taken(true, false), [true, true, false]);
        assert_eq!(taken(false, true), [true, false, true]);
    }

    #[test]
    fn loads_that_differ_in_their_rate_only_are_alike() {
        let load = Load::saturation(64);
        assert!(load.is_like(&load.at(Rate::PerSecond(5)).as_step()));
        assert!(!load.is_like(&Load { flows: 2, ..load }));
        assert!(!load.is_like(&Load::saturation(65)));
    }

    #[test]
    fn a_burst_is_no_saturation_and_a_peer_cannot_be_held() {
        let of = |held| Load::saturation(64).at(Rate::Burst { datagrams: 5000, held });
        let (idle, held) = (of(Held::No), of(Held::UntilSent));
        assert!(!idle.is_paced() && idle.burst() == Some((5000, Held::No)));
        assert!(Load::saturation(64).burst().is_none() && idle.is_like(&held));
        assert_eq!(idle.to_string(), "5000 at once to an idle server, 64 B");
        assert_eq!(held.to_string(), "5000 at once to a server held until all is sent, 64 B");
        let peer = Row::parse_peer("talks=x").unwrap();
        assert!(idle.takes(&peer) && !held.takes(&peer));
        assert!(held.takes(&Row::parse("epoll").unwrap()));
    }

    #[test]
    fn a_load_with_answers_says_so() {
        let replies =
            Some(Replies { outstanding: 64, size_bytes: None, offload: ReplyOffload::On });
        let load = Load { replies, ..Load::saturation(64) };
        let text = load.to_string();
        assert_eq!(text, "closed loop of 64 requests per flow, 64 B, each answered");
        let replies =
            Some(Replies { outstanding: 64, size_bytes: Some(32), offload: ReplyOffload::On });
        let paced = Load { replies, ..load.at(Rate::PerSecond(50_000)) };
        assert_eq!(paced.to_string(), "paced at 50000/s, 64 B, each answered with 32 B");
        let by_itself = |offload, receive_offload| {
            let replies = replies.map(|replies| Replies { offload, ..replies });
            let load = Load { replies, receive_offload, ..paced };
            (load.conditions().contains("by itself"), load.joins_replies())
        };
        assert_eq!(by_itself(ReplyOffload::On, false), (false, true));
        assert_eq!(by_itself(ReplyOffload::Off, true), (true, false));
        assert_eq!(by_itself(ReplyOffload::WithReceive, false), (true, false));
        assert_eq!(by_itself(ReplyOffload::WithReceive, true), (true, true));
        assert!(!paced.is_like(&load) && load.is_like(&load.at(Rate::PerSecond(5))));
    }

    #[test]
    fn a_load_says_what_it_is() {
        assert_eq!(Load::saturation(64).to_string(), "saturation, 64 B");
        let work = Work { steps: 500, shared: false };
        let load = Load { work, receive_offload: true, ..Load::saturation(1024) };
        assert_eq!(
            load.at(Rate::OfMaximum(0.75)).to_string(),
            "paced at 75 % of each row's maximum, 1024 B, work 500, receive offload"
        );
        let independent = Load { arrivals: Arrivals::Poisson, ..Load::saturation(64) };
        assert_eq!(independent.to_string(), "saturation, 64 B", "there are no gaps");
        let independent = independent.at(Rate::PerSecond(5000));
        assert_eq!(independent.to_string(), "paced at 5000/s, 64 B, Poisson arrivals");
        let polled = Load { busy_poll_us: Some(50), ..Load::saturation(64) };
        assert_eq!(polled.to_string(), "saturation, 64 B, busy polling 50 µs");
        let load = Load { ports: 4, flows: 4, generators: 2, ..Load::saturation(64) };
        assert_eq!(load.to_string(), "saturation, 64 B, 4 ports, 4 flows, 2 generators");
        let search = Rate::Search { goal: Goal::NoDrop, step: 2 };
        assert_eq!(
            Load::saturation(64).at(search).to_string(),
            "paced, step 2 of the search for each row's no-drop rate, 64 B"
        );
        let share = Load::saturation(64).at(Rate::OfPartialDrop(0.1)).to_string();
        assert_eq!(share, "paced at 10 % of each row's partial-drop rate, 64 B");
        let of_link = Rate::OfLink(LinkShare { share: 0.5, bits_per_s: 10_000_000_000 });
        assert_eq!(
            Load::saturation(1024).at(of_link).to_string(),
            "paced at 50 % of 10 Gbit/s (573394 datagrams/s), 1024 B"
        );
        let fine = Load::saturation(64).at(Rate::OfMaximum(0.625)).to_string();
        assert_eq!(fine, "paced at 62.5 % of each row's maximum, 64 B");
    }
}
