//! What only the port over io_uring has, beside what every port has ([`crate::port::tests`]).

pub(super) mod faults;
mod order;
mod sending;

use super::*;
use crate::{
    counters::Counters,
    port::{Outcome, Taken, Worker, tests::*},
};
use std::{sync::Arc, time::Duration};
