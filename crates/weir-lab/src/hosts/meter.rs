//! What a host does while a run is made there: how busy others keep it, and what its device drops of what is sent.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use weir::counters::os::DeviceUsage;
use weir::machine::LoadMeter;

/// What it did. What is not known is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// Share (0 to 1) of all its cores that others had.
    pub others: Option<f64>,
    /// Packets that its device was to send and dropped.
    pub send_dropped: Option<u64>,
}

/// Measures from its beginning.
pub struct Meter {
    own: IpAddr,
    load: LoadMeter,
    device: Option<DeviceUsage>,
}

impl Meter {
    /// Begins, at the host that has this address.
    pub fn begin(own: IpAddr) -> Self {
        Self { own, load: LoadMeter::start(), device: DeviceUsage::having(&[own]) }
    }

    /// What was done since. The host's own children had so much CPU time, in ns.
    pub fn read(&mut self, own_cpu_ns: u64) -> Reading {
        let device = DeviceUsage::having(&[self.own]).zip(self.device);
        Reading {
            others: self.load.read(own_cpu_ns).others,
            send_dropped: device.and_then(|(now, then)| now.since(&then).send_dropped),
        }
    }
}
