//! Network devices that have hardware, or a host's, behind them: what figures over them depend on.

use std::fmt;

/// A network device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetworkDevice {
    /// Its name: `eth0`.
    pub name: String,
    /// Its receive queues, of which each has an interrupt.
    pub receive_queues: usize,
    /// Whether the kernel hands what one of them receives to other cores (RPS).
    pub steered: bool,
    /// Its driver: `virtio_net`.
    pub driver: Option<String>,
    /// The speed of its link in bits per second.
    pub bits_per_s: Option<u64>,
    /// Its NUMA node.
    pub numa_node: Option<usize>,
    /// The PCIe link that it is on.
    pub pcie: Option<Pcie>,
    /// How it spreads frames over its queues by their hash.
    pub rss: Option<Rss>,
    /// When it interrupts.
    pub moderation: Option<Moderation>,
    /// What it, or the kernel close to it, does with many frames at a time.
    pub offloads: Option<Offloads>,
    /// Its interrupts, by number.
    pub interrupts: Vec<Interrupt>,
}

/// The PCIe link of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pcie {
    /// How fast each lane is, in the kernel's words: `8.0 GT/s PCIe`.
    pub speed: String,
    /// Lanes.
    pub lanes: u32,
    /// The same of what the device could have in a better slot, where that is known and more.
    pub at_best: Option<(String, u32)>,
}

/// How received frames are spread over queues by their hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rss {
    /// Entries of the indirection table.
    pub entries: usize,
    /// Queues that stand in it.
    pub queues: usize,
    /// Bytes of the hash's key; 0 where there is none.
    pub key_bytes: usize,
}

/// When a device interrupts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moderation {
    /// Microseconds after a frame was received.
    pub rx_us: u32,
    /// Frames.
    pub rx_frames: u32,
    /// Whether the driver adapts both to what comes.
    pub adaptive_rx: bool,
}

/// What is done with many frames at a time, so that the rest of the network sees fewer and longer ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Offloads {
    /// Segments of a connection are joined by the kernel as they are received (GRO).
    pub gro: bool,
    /// The same by the device (LRO), which may lose what told them apart.
    pub lro: bool,
    /// What is sent is cut by the device (TSO).
    pub tso: bool,
    /// It is cut by the kernel just before the device (GSO).
    pub gso: bool,
}

impl Offloads {
    /// The names of those that are on.
    pub(super) fn names(self) -> String {
        let all = [(self.gro, "GRO"), (self.lro, "LRO"), (self.tso, "TSO"), (self.gso, "GSO")];
        let on: Vec<&str> = all.into_iter().filter_map(|(on, name)| on.then_some(name)).collect();
        if on.is_empty() { "none".into() } else { on.join(", ") }
    }
}

/// An interrupt of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interrupt {
    /// Its number.
    pub number: u32,
    /// What the driver calls it, where that is known: `virtio2-input.0`.
    pub name: Option<String>,
    /// The cores that may serve it, as the kernel lists them: `0-3`.
    pub cores: Option<String>,
}

/// Most interrupts that are said one by one.
const SAID: usize = 16;

impl fmt::Display for NetworkDevice {
    /// In words, what is not known included.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let driver = self.driver.as_deref().unwrap_or("driver unknown");
        write!(f, "{} ({driver}): ", self.name)?;
        match self.bits_per_s {
            Some(bits) => write!(f, "link {} Mbit/s", bits / 1_000_000)?,
            None => write!(f, "link speed unknown")?,
        }
        match &self.pcie {
            Some(Pcie { speed, lanes, at_best }) => {
                write!(f, "; {speed} x{lanes}")?;
                if let Some((speed, lanes)) = at_best {
                    write!(f, " (at best {speed} x{lanes})")?;
                }
            }
            None => write!(f, "; no PCIe link of its own")?,
        }
        match self.numa_node {
            Some(node) => write!(f, "; NUMA node {node}")?,
            None => write!(f, "; of no NUMA node")?,
        }
        let several = if self.receive_queues == 1 { "" } else { "s" };
        write!(f, "; {} receive queue{several}", self.receive_queues)?;
        match self.rss {
            Some(Rss { entries, queues, key_bytes }) => {
                let key = if key_bytes > 0 { "a key" } else { "no key" };
                write!(f, ", RSS over {queues} of them ({entries} entries, {key})")?;
            }
            None => write!(f, ", no RSS")?,
        }
        if self.steered {
            write!(f, ", spread further by RPS")?;
        }
        match self.moderation {
            Some(Moderation { rx_us, rx_frames, adaptive_rx }) => {
                let adaptive = if adaptive_rx { ", adaptive" } else { "" };
                write!(f, "; interrupts moderated: {rx_us} µs, {rx_frames} frames{adaptive}")?;
            }
            None => write!(f, "; moderation of interrupts unknown")?,
        }
        if let Some(offloads) = self.offloads {
            write!(f, "; offloads: {}", offloads.names())?;
        }
        for (number, Interrupt { number: irq, name, cores }) in
            self.interrupts.iter().take(SAID).enumerate()
        {
            let sign = if number == 0 { ';' } else { ',' };
            let name = name.as_ref().map_or(String::new(), |name| format!(" ({name})"));
            let cores = cores.as_deref().unwrap_or("unknown");
            write!(f, "{sign} interrupt {irq}{name} on cores {cores}")?;
        }
        match self.interrupts.len().checked_sub(SAID) {
            Some(more) if more > 0 => write!(f, " and {more} more"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_says_what_it_has_and_what_is_not_known() {
        let bare = NetworkDevice { name: "eth0".into(), receive_queues: 1, ..Default::default() };
        assert_eq!(
            bare.to_string(),
            "eth0 (driver unknown): link speed unknown; no PCIe link of its own; of no NUMA node; 1 receive queue, no \
             RSS; moderation of interrupts unknown"
        );
        let interrupt = |number| Interrupt {
            number,
            name: Some(format!("mlx5_comp{number}")),
            cores: Some("0-3".into()),
        };
        let full = NetworkDevice {
            name: "eth1".into(),
            receive_queues: 8,
            steered: true,
            driver: Some("mlx5_core".into()),
            bits_per_s: Some(25_000_000_000),
            numa_node: Some(1),
            pcie: Some(Pcie {
                speed: "8.0 GT/s PCIe".into(),
                lanes: 4,
                at_best: Some(("16.0 GT/s PCIe".into(), 8)),
            }),
            rss: Some(Rss { entries: 128, queues: 8, key_bytes: 40 }),
            moderation: Some(Moderation { rx_us: 8, rx_frames: 128, adaptive_rx: true }),
            offloads: Some(Offloads { gro: true, tso: true, ..Default::default() }),
            interrupts: (60..80).map(interrupt).collect(),
        };
        let said = full.to_string();
        let expected = "eth1 (mlx5_core): link 25000 Mbit/s; 8.0 GT/s PCIe x4 (at best 16.0 GT/s PCIe x8); NUMA node 1; 8 \
                        receive queues, RSS over 8 of them (128 entries, a key), spread further by RPS; interrupts \
                        moderated: 8 µs, 128 frames, adaptive; offloads: GRO, TSO; interrupt 60 (mlx5_comp60) on cores 0-3, interrupt 61";
        assert!(said.starts_with(expected), "{said}");
        assert!(said.ends_with(" and 4 more"), "{said}");
    }
}
