//! What the limits of a row have a server do in a mix, and whether it did that, by the clients' own counts.

use std::ops::RangeInclusive;
use std::time::Duration;

use weir::timer::TICK;
use weir_load::quantity::{parse_bytes, parse_count, parse_time};

use super::mix::{Mix, MixName, Others};
use super::plan::Load;
use super::wire::LoadReport;
use crate::experiment::plan::Row;

/// The limits of a server, as a row states them.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Policy {
    /// Connections served at a time.
    pub active: Option<u32>,
    /// Connections in all.
    pub connections: Option<u32>,
    /// Connections of one address.
    pub per_address: Option<u32>,
    /// How long a new connection may send nothing.
    pub silent: Option<Duration>,
    /// Whether a connection is closed whose output is full.
    pub closes_when_full: bool,
    /// Whether other time-outs may close one, of which nothing is said here.
    pub closes_otherwise: bool,
    /// Bytes a second that a connection may bring.
    pub max_rate: Option<u64>,
    /// Bytes received at a time, where the row says that.
    pub buffer_bytes: Option<u64>,
}

/// How much a connection may bring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Bytes a second.
    pub bytes_per_s: u64,
    /// Bytes of one receive, which is not cut short.
    pub receive_bytes: u64,
}

impl Rate {
    /// The most in a time.
    fn most_in(&self, time: Duration) -> u64 {
        (self.bytes_per_s as f64 * (time + BURST).as_secs_f64()) as u64 + self.receive_bytes
    }
}

/// What becomes of the connections of a mix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// Of the others, those that are refused.
    pub refused: RangeInclusive<u64>,
    /// Of the others, those that are refused or closed; `None` where that is not known beforehand.
    pub stopped: Option<u64>,
    /// Of those whose figures count, those that are refused; `None` where that is not known beforehand.
    pub own_refused: Option<u64>,
    /// What each of the others may bring, if that has a limit.
    pub rate: Option<Rate>,
}

/// For how long a rate may be used at once.
const BURST: Duration = TICK.saturating_mul(4);

impl Policy {
    /// That of a row. What cannot be read is no limit: such rows are refused when they are parsed.
    pub fn of(row: &Row) -> Self {
        let count = |name: &str| u32::try_from(parse_count(row.option(name)?).ok()?).ok();
        Self {
            active: count("active"),
            connections: count("connections-max"),
            per_address: count("per-address"),
            silent: row.option("silent").and_then(|text| parse_time(text).ok()),
            closes_when_full: row.options.iter().any(|(name, _)| name == "close-when-full"),
            closes_otherwise: ["read-timeout", "stalled"]
                .iter()
                .any(|name| row.option(name).is_some()),
            // As the server reads it.
            max_rate: row.option("max-rate").and_then(|text| parse_count(text).ok()),
            buffer_bytes: row.option("buffer").and_then(|text| parse_bytes(text).ok()),
        }
    }

    /// Whether it refuses, closes or slows down anybody.
    pub fn limits_anything(&self) -> bool {
        let Self { active, buffer_bytes, .. } = *self;
        *self != Self { active, buffer_bytes, ..Self::default() }
    }

    /// Whether one of its limits is for what is done in such a mix.
    pub fn is_aimed_at(&self, mix: MixName) -> bool {
        match mix {
            MixName::Flood => self.max_rate.is_some(),
            MixName::Silent => {
                self.connections.is_some()
                    || self.per_address.is_some()
                    || self.silent.is_some()
                    || self.closes_otherwise
            }
            MixName::Stuck => {
                self.per_address.is_some() || self.closes_when_full || self.closes_otherwise
            }
            MixName::Idle | MixName::Busy | MixName::Turns => false,
        }
    }

    /// Whether it closes all of the others that it does not refuse.
    pub fn closes_others(&self, mix: &Mix) -> bool {
        let closes = match mix.name {
            MixName::Silent => self.silent.is_some(),
            MixName::Stuck => self.closes_when_full,
            _ => false,
        };
        // One that waits for its turn is not watched yet.
        closes && self.active.is_none()
    }

    /// What it makes of a mix; `None` of a load that is none. The others stand before those that count come.
    pub fn expects(&self, load: &Load) -> Option<Expected> {
        let (mix, own) = (load.mix.as_ref()?, load.connections);
        let others = mix.others();
        let of_address = self.per_address.unwrap_or(u32::MAX);
        let by_address: u32 =
            mix.others.map_or(0, |others| others.of_each_source().map(|n| n.min(of_address)).sum());
        let in_all = self.connections.unwrap_or(u32::MAX);
        let admitted = by_address.min(in_all);
        let refused = u64::from(others - admitted);
        let own_addresses = Others { connections: own, sources: mix.sources };
        let own_by_address: u32 = own_addresses.of_each_source().map(|n| n.min(of_address)).sum();
        let closes = self.closes_others(mix);
        let rate = self.max_rate.map(|bytes_per_s| Rate {
            bytes_per_s,
            receive_bytes: self.buffer_bytes.unwrap_or(load.buffer_bytes.into()),
        });
        if self.per_address.is_some() && self.connections.is_some() {
            // One that is refused for its address has a place among all until it is closed.
            let refused = 0..=others.into();
            return Some(Expected { refused, stopped: None, own_refused: None, rate });
        }
        Some(Expected {
            // A place is free again when its connection was closed: so fewer may be refused, the first ones apart.
            refused: if closes || self.closes_otherwise { 0..=refused } else { refused..=refused },
            stopped: match closes {
                _ if self.closes_otherwise => None,
                true => Some(others.into()),
                false => Some(refused),
            },
            own_refused: match (self.connections, closes || self.closes_otherwise) {
                (None, _) => Some((own - own_by_address).into()),
                (Some(_), false) => Some(own.saturating_sub(in_all - admitted).into()),
                (Some(_), true) => None,
            },
            rate,
        })
    }
}

impl Expected {
    /// What is other than it should be; `None` if nothing is. A load of which not all connections were made says
    /// nothing.
    pub fn contradicted(&self, own: &LoadReport, others: Option<&LoadReport>) -> Option<String> {
        let refused = own.counts.refused_by_server;
        if let Some(wanted) = self.own_refused
            && refused != wanted
        {
            return Some(format!(
                "{refused} of the connections whose figures count were refused, but its limits say {wanted}"
            ));
        }
        let others = others.filter(|of| of.counts.connected == of.counts.attempted)?;
        let c = &others.counts;
        let (refused, stopped) = (c.refused_by_server, c.refused_by_server + closed(others));
        if !self.refused.contains(&refused) {
            let (least, most) = (self.refused.start(), self.refused.end());
            let said = if least == most { most.to_string() } else { format!("{least} to {most}") };
            return Some(format!(
                "of {} other connections {refused} were refused, but its limits say {said}",
                c.connected
            ));
        }
        if let Some(wanted) = self.stopped
            && stopped != wanted
        {
            return Some(format!(
                "of {} other connections {stopped} were refused or closed, but its limits say {wanted}",
                c.connected
            ));
        }
        let each = self.rate?.most_in(Duration::from_nanos(others.elapsed_ns));
        let most = each.saturating_mul(c.connected);
        (c.bytes_received > most).then(|| {
            format!(
                "the other connections got {} bytes back, but its limit says at most {most}",
                c.bytes_received
            )
        })
    }
}

/// Connections that the server closed before they were done.
pub fn closed(report: &LoadReport) -> u64 {
    let c = &report.counts;
    c.reset + c.broken + c.ended_by_server + c.truncated
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::plan::Pattern;
    use weir_load::tcp::Counts;

    fn policy(text: &str) -> Policy {
        Policy::of(&Row::parse(&format!("epoll {text}")).unwrap())
    }

    /// 64 connections that count beside 1000 silent ones of 4 addresses, or 40 stuck or flooding ones of 1.
    fn expects(text: &str, name: MixName) -> Expected {
        let (connections, sources) = if name == MixName::Silent { (1000, 4) } else { (40, 1) };
        let mix = Mix {
            name,
            messages_per_s: Some(2000),
            messages_each: None,
            sources: 16,
            others: Some(Others { connections, sources }),
            send_buffer_bytes: None,
        };
        let load = Load::new(Pattern::PingPong, 64, 64, None, Some(4096));
        policy(text).expects(&Load { mix: Some(mix), ..load }).unwrap()
    }

    fn report(change: impl FnOnce(&mut Counts)) -> LoadReport {
        let mut counts = Counts { attempted: 1000, connected: 1000, ..Counts::default() };
        change(&mut counts);
        LoadReport { counts, elapsed_ns: 1_000_000_000, ..LoadReport::none() }
    }

    #[test]
    fn limits_are_read_from_a_row() {
        let all = policy(
            "--active 100 --connections-max 1k --per-address 16 --silent 500ms --close-when-full --max-rate 1m \
             --buffer 64k",
        );
        let wanted = Policy {
            active: Some(100),
            connections: Some(1000),
            per_address: Some(16),
            silent: Some(Duration::from_millis(500)),
            closes_when_full: true,
            closes_otherwise: false,
            max_rate: Some(1_000_000),
            buffer_bytes: Some(65_536),
        };
        assert_eq!(all, wanted);
        assert!(!policy("--active 100 --drain 4 --buffer 64k").limits_anything());
        let limits = [
            "--connections-max 9",
            "--per-address 9",
            "--silent 1s",
            "--close-when-full",
            "--max-rate 1m",
            "--read-timeout 1s",
            "--stalled 1s",
        ];
        for text in limits {
            let of = policy(text);
            let takes_part = MixName::ALL.into_iter().any(|mix| of.is_aimed_at(mix));
            assert!(of.limits_anything() && takes_part, "{text}");
        }
    }

    #[test]
    fn a_limit_on_each_address_refuses_what_is_beyond_on_each() {
        // 1000 silent connections of 4 addresses.
        let of = expects("--per-address 16", MixName::Silent);
        assert_eq!((of.refused, of.stopped, of.own_refused), (936..=936, Some(936), Some(0)));
        let of = expects("--per-address 3", MixName::Silent);
        assert_eq!((of.refused, of.own_refused), (988..=988, Some(16)), "4 come from each address");
        let of = expects("--per-address 300", MixName::Silent);
        assert_eq!((of.refused, of.own_refused), (0..=0, Some(0)));
    }

    #[test]
    fn a_limit_on_all_refuses_those_who_come_last_whoever_they_are() {
        let of = expects("--connections-max 256", MixName::Silent);
        assert_eq!((of.refused, of.own_refused), (744..=744, Some(64)));
        let of = expects("--connections-max 1k", MixName::Silent);
        assert_eq!((of.refused, of.own_refused), (0..=0, Some(64)));
        let of = expects("--connections-max 1040", MixName::Silent);
        assert_eq!((of.refused, of.own_refused), (0..=0, Some(24)));
    }

    #[test]
    fn what_is_closed_makes_room_so_all_are_stopped_one_way_or_the_other() {
        let of = expects("--per-address 16 --silent 1s", MixName::Silent);
        assert_eq!((of.refused, of.stopped), (0..=936, Some(1000)));
        let of = expects("--silent 1s", MixName::Silent);
        assert_eq!((of.refused, of.stopped), (0..=0, Some(1000)));
        let of = expects("--silent 1s", MixName::Stuck);
        assert_eq!((of.refused, of.stopped), (0..=0, Some(0)), "they have sent something");
        let of = expects("--close-when-full", MixName::Stuck);
        assert_eq!(of.stopped, Some(40));
        let of = expects("--silent 1s --connections-max 9", MixName::Silent);
        assert_eq!((of.stopped, of.own_refused), (Some(1000), None), "there may be room again");
        let of = expects("--per-address 16 --read-timeout 1s", MixName::Silent);
        assert_eq!((of.refused, of.stopped), (0..=936, None));
        let of = expects("--per-address 16 --connections-max 9", MixName::Silent);
        assert_eq!((of.refused, of.stopped), (0..=1000, None));
        let of = expects("--silent 1s --active 100", MixName::Silent);
        assert_eq!(of.stopped, Some(0), "those that wait are not watched yet");
    }

    #[test]
    fn counts_of_the_clients_are_held_against_it() {
        let of = expects("--per-address 16", MixName::Silent);
        let own = report(|_| ());
        let right = report(|c| (c.refused_by_server, c.finished) = (936, 64));
        assert_eq!(of.contradicted(&own, Some(&right)), None);
        let few = report(|c| (c.refused_by_server, c.finished) = (935, 65));
        let said = of.contradicted(&own, Some(&few)).unwrap();
        assert!(said.contains("935 were refused, but its limits say 936"), "{said}");
        let closed = report(|c| (c.refused_by_server, c.reset) = (936, 1));
        let said = of.contradicted(&own, Some(&closed)).unwrap();
        assert!(said.contains("937 were refused or closed"), "{said}");
        let not_made = report(|c| c.connected = 900);
        assert_eq!(of.contradicted(&own, Some(&not_made)), None, "that is another load");
        let own = report(|c| c.refused_by_server = 1);
        let said = of.contradicted(&own, Some(&right)).unwrap();
        assert!(
            said.starts_with("1 of the connections whose figures count were refused"),
            "{said}"
        );
    }

    #[test]
    fn a_rate_bounds_the_bytes_of_each() {
        let of = expects("--max-rate 1m", MixName::Flood);
        let own = report(|_| ());
        // A second, and a burst of a fifth of one.
        let most = 1000 * (1_000_000 + 1_000_000 / 5 + 4096);
        let within = report(|c| c.bytes_received = most);
        assert_eq!(of.contradicted(&own, Some(&within)), None);
        let beyond = report(|c| c.bytes_received = most + 1000);
        assert!(of.contradicted(&own, Some(&beyond)).unwrap().contains("got"));
    }
}
