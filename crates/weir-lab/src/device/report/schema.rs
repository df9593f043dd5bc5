//! What only the documents of devices have.

#![expect(dead_code, reason = "these types are only described: their comments stand in the schema")]

use schemars::JsonSchema;

use crate::device::bench::Checked;
use crate::device::results::Devices;
use crate::iops::OverTime;
use crate::report::schema::described::Described;
use crate::report::schema::parts::{Difference, Group, Peer};
use crate::wire::Latency;

impl Described for Devices {
    type OfAll = OfDevices;
    type OfLoad = OfDevicesLoad;
    type OfRow = DeviceRow;
}

#[derive(JsonSchema)]
pub struct OfDevices {
    #[serde(flatten)]
    own: Devices,
    /// The row that others are compared with besides the winner.
    ratio_to: Option<String>,
    crossings: Option<Vec<DeviceCrossing>>,
    long_runs: Vec<LongRun>,
}

#[derive(JsonSchema)]
pub struct OfDevicesLoad {
    load: DeviceLoad,
    groups: Vec<Group<DeviceGroup>>,
}

#[derive(JsonSchema)]
pub struct DeviceLoad {
    device: String,
    length_bytes: usize,
    /// read or write.
    direction: String,
    delay_us: Option<f64>,
}

#[derive(JsonSchema)]
pub struct DeviceGroup {
    /// waits, polls or reads_nothing.
    group: String,
}

#[derive(JsonSchema)]
pub struct DeviceRow {
    load: DeviceLoad,
    peer: Option<Peer>,
    latency_of_all_runs_ns: Option<Latency>,
    ratio_to_sync: Option<Difference>,
    depth: Option<u32>,
    check: Option<Checked>,
    group: String,
    cores_busy_with_little_to_do: Option<f64>,
    /// The command that made its runs.
    command: Option<String>,
}

#[derive(JsonSchema)]
pub struct DeviceCrossing {
    length_bytes: usize,
    before: String,
    after: String,
    between_us: [f64; 2],
    at_us: f64,
    real: bool,
}

#[derive(JsonSchema)]
pub struct LongRun {
    spec: String,
    over_time: Option<OverTime>,
    failure: Option<String>,
}
