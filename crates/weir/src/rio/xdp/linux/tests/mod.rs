//! The provider against the kernel it runs on, over a pair of veth devices between two network
//! namespaces. The namespaces belong to threads of the test and go with them, and the devices go
//! with the namespaces, however the test ends.

mod designs;
mod provider;

use super::*;
use crate::{
    counters::Counters,
    rio::{
        Completion, CompletionQueue, HandOver, OneThread, Outcome, RequestQueue as _, Woken,
        provider_tests::{self, PATIENCE, payload},
        wire_tests::{
            self, OURS_V4, OURS_V6, THEIRS, THEIRS_V4, THEIRS_V6, Wire, ours, posted, try_posted,
        },
    },
    socket::{Ecn, Peer},
};
use std::{
    io,
    net::UdpSocket,
    os::fd::AsRawFd,
    time::{Duration, Instant},
};

/// Queues at our end of a wire.
type Rig<T> = provider_tests::Rig<T, Xdp>;

/// Runs a test at our end of a wire, on a thread of its own, or says why it cannot.
fn on_a_wire(test: impl FnOnce(&Wire) + Send + 'static) {
    on_a_wire_of(1, test);
}

/// The same with so many queues.
fn on_a_wire_of(queues: u32, test: impl FnOnce(&Wire) + Send + 'static) {
    wire_tests::on_a_wire("xdp", queues, || Xdp::default().prove(), test);
}

/// What the tests ask for where they do not care.
const NEEDS: Needs =
    Needs { payload: 1500, receives: 64, sends: 16, per_dequeue: 32, offload: false, meta: false };
