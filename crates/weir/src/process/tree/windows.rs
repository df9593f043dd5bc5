//! Windows would take a job object; nothing is done here yet.

use std::process::Command;

use super::TreeUsage;
use crate::counters::os::OfThread;

#[derive(Debug)]
pub(super) struct Tree(u32);

impl Tree {
    pub(super) fn of(_command: &mut Command) -> Self {
        Self(0)
    }

    pub(super) fn started(&mut self, id: u32) {
        self.0 = id;
    }

    pub(super) fn processes(&mut self) -> Vec<u32> {
        vec![self.0]
    }

    pub(super) fn cpu_ns(&mut self) -> Option<u64> {
        None
    }

    pub(super) fn usage(&mut self) -> TreeUsage {
        let unknown = Some("what other processes use is not known on this system".to_owned());
        TreeUsage {
            switches_unknown: unknown.clone(),
            unknown,
            processes: 1,
            ..TreeUsage::default()
        }
    }

    pub(super) fn threads(&mut self) -> Vec<OfThread> {
        vec![]
    }

    pub(super) fn end(&mut self) {}
}
