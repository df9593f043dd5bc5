//! A comparison over several hosts.
//!
//! Rank 0 has the laboratory ([`Fleet`]); every other rank has an [`agent`], which starts the children that rank 0 asks
//! for, and nothing but weir's own servers and generators and the peers that its own command names, relays their lines both
//! ways, and reads what its host counts.
//! A child at another host is a [`Child`](crate::child::Child) like any other, with the same conversation.
//!
//! Generators all do the same, and are many: they have one conversation together (`Children`). An order to all of them goes
//! down a tree of the ranks, and what they answer is added up on its way back, so that rank 0 has no more to say and to hear
//! than the logarithm of their number.
//!
//! First all meet (`meet`): an address of the server's host is found which every generator can reach. That is the only
//! one that anything is sent to: each agent has connected to it itself, and was answered by the rank that serves.

pub mod agent;
mod children;
mod cores;
mod fleet;
mod gathering;
mod meet;
mod message;
mod meter;
pub(crate) mod own;
pub(crate) mod permit;
mod reports;

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

pub(crate) use children::Children;
pub use fleet::{Fleet, Watch};
pub use meet::{Asked, Room, call_off};
pub(crate) use message::{Latencies, Task};
pub use meter::Reading;
pub(crate) use reports::{Kind, Reports};

/// A device that traffic goes over, and its link. What is not known is `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Link {
    /// The device's name.
    pub device: String,
    /// The address that it has of those that are used.
    pub address: Option<IpAddr>,
    /// Its speed in bits per second.
    pub bits_per_s: Option<u64>,
    /// The longest packet that goes over it, in bytes (MTU).
    pub mtu_bytes: Option<u32>,
    /// The device's driver.
    pub driver: Option<String>,
}

impl Link {
    /// Its speed and its MTU, as they stand behind a name.
    fn speed_and_mtu(&self) -> String {
        let speed = match self.bits_per_s {
            Some(bits) if bits % 1_000_000_000 == 0 => format!("{} Gbit/s", bits / 1_000_000_000),
            Some(bits) => format!("{} Mbit/s", bits / 1_000_000),
            None => "speed unknown".into(),
        };
        let mtu = self.mtu_bytes.map(|bytes| format!(", MTU {bytes}"));
        format!(", {speed}{}", mtu.unwrap_or_default())
    }

    /// Without what is of its host alone.
    pub(crate) fn in_brief(&self) -> String {
        let name = match self.address {
            Some(address) if self.device.is_empty() => address.to_string(),
            _ => self.device.clone(),
        };
        name + &self.speed_and_mtu()
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.device)?;
        if let Some(address) = self.address {
            write!(f, " ({address})")?;
        }
        f.write_str(&self.speed_and_mtu())?;
        match &self.driver {
            Some(driver) => write!(f, ", driver {driver}"),
            None => Ok(()),
        }
    }
}

/// A rank and what is known of its host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Host {
    /// The rank.
    pub rank: usize,
    /// Its host's name.
    pub name: String,
    /// What it runs on, where that is known: its processor and kernel.
    pub machine: String,
    /// The cores of what it runs.
    pub cores: Vec<usize>,
    /// The link that it sends or receives by.
    pub link: Link,
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, name, .. } = self;
        write!(f, "rank {rank} on {name}")
    }
}

/// Where a comparison was made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Hosts {
    /// Where the server ran.
    pub server: Host,
    /// Where the generators did.
    pub generators: Vec<Host>,
    /// The server's address.
    pub address: Option<IpAddr>,
}

impl Hosts {
    /// The same of a run that this many generators make: the first ones.
    pub(crate) fn of_generators(&self, count: usize) -> Self {
        let generators = self.generators.iter().take(count).cloned().collect();
        Self { generators, ..self.clone() }
    }

    /// How many generators, and on which hosts.
    pub fn generators_in_words(&self) -> String {
        let each: Vec<String> = self.generators.iter().map(ToString::to_string).collect();
        format!("{}: {}", each.len(), each.join(", "))
    }

    /// The server's host with its link, and the links of the generators that are others.
    pub fn links_in_words(&self) -> String {
        let mut text = format!("{} by {}", self.server, self.server.link);
        for generator in &self.generators {
            if generator.link != self.server.link {
                text += &format!("; {generator} by {}", generator.link);
            }
        }
        text
    }

    /// The cores of the server, and those of all generators.
    pub fn cores(&self) -> (Vec<usize>, Vec<usize>) {
        let generators = self.generators.iter().flat_map(|host| host.cores.clone()).collect();
        (self.server.cores.clone(), generators)
    }

    /// Whether anything goes over a network, and not all over the loopback device of one machine.
    pub fn is_elsewhere(&self) -> bool {
        !self.address.is_some_and(|address| address.is_loopback())
    }

    /// What must be known of them before a figure is trusted.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = vec![];
        let server = &self.server;
        let shares = |host: &&Host| {
            host.name == server.name && host.cores.iter().any(|core| server.cores.contains(core))
        };
        let sharing: Vec<usize> = self.generators.iter().filter(shares).map(|of| of.rank).collect();
        if !self.is_elsewhere() && !sharing.is_empty() {
            warnings.push(format!(
                "the server and ranks {sharing:?} share cores: rates say little about either"
            ));
        }
        let mtu = |host: &Host| host.link.mtu_bytes;
        let own = mtu(server);
        let others = self.generators.iter().filter_map(mtu);
        if let Some((own, other)) =
            own.and_then(|own| Some((own, others.into_iter().find(|mtu| *mtu != own)?)))
        {
            warnings.push(format!(
                "the links have different MTUs ({own} bytes at the server, {other} at another host): what is longer than the \
                 smaller one may be cut or lost"
            ));
        }
        warnings
    }

    /// The speed of the slowest link, in bits per second, where all say theirs. What all generators send goes over that of
    /// the server.
    pub fn bits_per_s(&self) -> Option<u64> {
        let of_generators: Option<u64> = self.generators.iter().map(|at| at.link.bits_per_s).sum();
        Some(self.server.link.bits_per_s?.min(of_generators?))
    }
}

#[cfg(all(test, unix))]
mod tests;
