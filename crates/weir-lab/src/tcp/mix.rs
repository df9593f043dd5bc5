//! Mixes of connections: those whose figures count, and others beside them.

use serde::Serialize;

/// What a mix is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum MixName {
    /// Few that are busy beside many that hardly ever send.
    Idle,
    /// Few that stream.
    Busy,
    /// Many that come at once, send a number of messages each, and go.
    Turns,
    /// Many at a rate beside a client that sends as fast as it is answered, on several connections.
    Flood,
    /// Many at a rate beside many that connect and send nothing.
    Silent,
    /// Many at a rate beside some that send and never read.
    Stuck,
}

impl MixName {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Idle, Self::Busy, Self::Turns, Self::Flood, Self::Silent, Self::Stuck];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Busy => "busy",
            Self::Turns => "turns",
            Self::Flood => "flood",
            Self::Silent => "silent",
            Self::Stuck => "stuck",
        }
    }

    /// Whether somebody in it means harm.
    pub fn is_attack(self) -> bool {
        matches!(self, Self::Flood | Self::Silent | Self::Stuck)
    }
}

/// Connections beside those whose figures count. They stand before those come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Others {
    /// How many.
    pub connections: u32,
    /// Addresses that they come from, in turn: other ones than those whose figures count.
    pub sources: u32,
}

impl Others {
    /// How many come from each address, the most first.
    pub fn of_each_source(&self) -> impl Iterator<Item = u32> {
        let (all, sources) = (self.connections, self.sources.max(1));
        (0..sources.min(all)).map(move |source| all / sources + u32::from(source < all % sources))
    }
}

/// A mix of connections.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Mix {
    /// Its name, which says what the others do.
    pub name: MixName,
    /// Messages per second over all connections whose figures count; `None` for as many as come back.
    pub messages_per_s: Option<u32>,
    /// Messages of each of them, after which it ends; `None` for as many as the time allows.
    pub messages_each: Option<u32>,
    /// Addresses that they come from, in turn.
    pub sources: u32,
    /// Who else is there.
    pub others: Option<Others>,
    /// Bytes asked for as the send buffer of each of the server's sockets, where peers that do not read would fill it;
    /// `None` for the system's.
    pub send_buffer_bytes: Option<u32>,
}

/// One message of an idle connection comes in so many seconds.
pub const IDLE_EVERY_S: u32 = 30;
/// Bytes of a message of those that flood or get stuck, and how many of them are under way on each connection: of the
/// stuck ones more than all buffers on the way hold.
pub const OF_FLOOD: (u32, u32) = (64 << 10, 8);
/// See [`OF_FLOOD`].
pub const OF_STUCK: (u32, u32) = (64 << 10, 32);

impl Mix {
    /// Connections beside those whose figures count.
    pub fn others(&self) -> u32 {
        self.others.map_or(0, |others| others.connections)
    }

    /// What the others do, in words; empty where there are none.
    pub fn beside(&self) -> String {
        let Some(Others { connections, sources }) = self.others else { return String::new() };
        let from = match sources {
            1 => "1 address".to_owned(),
            n => format!("{n} addresses"),
        };
        let what = match self.name {
            MixName::Busy | MixName::Turns => return String::new(),
            MixName::Idle => format!("that send a message in {IDLE_EVERY_S} s"),
            MixName::Flood => format!(
                "that send messages of {} KiB as fast as they are answered, {} under way",
                OF_FLOOD.0 >> 10,
                OF_FLOOD.1
            ),
            MixName::Silent => "that send nothing".into(),
            MixName::Stuck => "that send and do not read".into(),
        };
        format!(" beside {connections} from {from} {what}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_are_shared_among_their_addresses() {
        let of = |connections, sources| {
            Others { connections, sources }.of_each_source().collect::<Vec<_>>()
        };
        assert_eq!(of(10, 4), [3, 3, 2, 2]);
        assert_eq!(of(2, 5), [1, 1]);
        assert_eq!(of(7, 1), [7]);
        assert!(of(0, 3).is_empty());
    }
}
