//! What the threads of a port share under its lock: the operations, of datagrams or of streams, and packets.

use super::queue::{POSTED, Queue};
use crate::{
    port::{Finished, Packet},
    rio::Batch,
};
use std::collections::VecDeque;

/// The operations of a port, of whatever kind: a slot for each that is outstanding.
pub(super) trait Outstanding: Send + Sized {
    /// What a take brings.
    type Completion: Finished;

    /// Most completions that one packet brings.
    const PER_PACKET: usize;

    /// Ends the operation whose packet has this address, and puts its completion into `out`, which has room for one.
    /// What is not ours is passed over. True: more of it is to be told, and found no room.
    fn finish(&mut self, address: usize, out: &mut Batch<Self::Completion>) -> bool;

    /// That.
    fn unreported(&mut self) -> Option<Self::Completion> {
        None
    }

    /// How many are outstanding.
    fn outstanding(&self) -> u32;

    /// Asks for all of them to be cancelled.
    fn cancel_all(&mut self);

    /// Gives up everything, and returns how many pieces of memory went back and how many the kernel
    /// holds. The latter are leaked, and slices counted in their region.
    ///
    /// # Safety
    /// Nothing will be started from now on.
    unsafe fn give_up(self) -> (u32, u32);
}

pub(super) struct PortState<O> {
    pub operations: O,
    /// Packets of the program's own that were not taken yet, in order. In the system's queue lies one for each that
    /// says no more than that.
    packets: VecDeque<Packet>,
    packets_most: usize,
    /// Threads that have a place.
    pub places: u32,
}

impl<O: Outstanding> PortState<O> {
    pub fn new(operations: O, packets_most: u32) -> Self {
        let packets_most = packets_most as usize;
        Self { operations, packets: VecDeque::new(), packets_most, places: 0 }
    }

    /// Puts a packet at the end of the queue, or gives it back: as many wait as may, or as the system has memory for.
    pub fn post(&mut self, packet: Packet, queue: &Queue) -> Result<(), Packet> {
        if self.packets.len() == self.packets_most || queue.post(POSTED).is_err() {
            return Err(packet);
        }
        self.packets.push_back(packet);
        Ok(())
    }

    /// What a packet stands for that says no more than that something was posted.
    pub fn take_posted(&mut self, out: &mut Batch<O::Completion>) {
        match self.packets.pop_front() {
            Some(packet) => out.push(packet.into()),
            None => self.operations.unreported().into_iter().for_each(|told| out.push(told)),
        }
    }
}
