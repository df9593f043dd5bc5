//! What only the documents of TCP have.

#![expect(dead_code, reason = "these types are only described: their comments stand in the schema")]

use schemars::JsonSchema;

use crate::report::schema::described::Described;
use crate::report::schema::parts::{Against, Group, Peer};
use crate::tcp::classic::Held;
use crate::tcp::plan::Load;
use crate::tcp::results::Tcp;
use crate::tcp::strategies::Strategy;
use crate::wire::Latency;

impl Described for Tcp {
    type OfAll = OfTcp;
    type OfLoad = OfTcpLoad;
    type OfRow = TcpRow;
}

#[derive(JsonSchema)]
pub struct OfTcp {
    #[serde(flatten)]
    own: Tcp,
    /// Of --classic: the most connections of each design, and what was published.
    classic: Option<Classic>,
}

#[derive(JsonSchema)]
pub struct OfTcpLoad {
    load: Load,
    groups: Vec<Group<Polling>>,
    peers: Vec<Against>,
}

#[derive(JsonSchema)]
pub struct Polling {
    /// Whether it is the group of busy-polling designs.
    polls: bool,
}

#[derive(JsonSchema)]
pub struct TcpRow {
    load: Load,
    peer: Option<Peer>,
    /// Round trips of all runs together.
    #[serde(skip_serializing_if = "Option::is_none")]
    latency_of_all_runs_ns: Option<Latency>,
    #[serde(skip_serializing_if = "Option::is_none")]
    round_trip_of_all_runs_ns: Option<Latency>,
    /// Of a mix, what the row is made for.
    strategy: Option<Strategy>,
    polls: Option<bool>,
    cores_busy_with_one_connection: Option<f64>,
    sleeps_per_message_with_one_connection: Option<f64>,
}

#[derive(JsonSchema)]
pub struct Classic {
    most_tried: u32,
    held: Vec<HeldBy>,
    published: Vec<PublishedOfTcp>,
}

#[derive(JsonSchema)]
pub struct HeldBy {
    spec: String,
    most: Held,
}

#[derive(JsonSchema)]
pub struct PublishedOfTcp {
    part: String,
    model: String,
    attempted: Option<u64>,
    connected: Option<u64>,
    received_bytes_per_s: Option<f64>,
    design: Option<String>,
    measured_attempted: Option<u64>,
    measured_connected: Option<u64>,
    measured_served: Option<u64>,
    measured_received_bytes_per_s: Option<f64>,
    unranked: Option<String>,
}
