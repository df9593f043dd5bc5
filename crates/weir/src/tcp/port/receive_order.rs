//! Several receives of one connection: what they bring, in the order in which they were started.

use crate::{memory::Slice, port::streams::Outcome};

/// Receives as they come back, put in the order in which they were started.
#[derive(Debug, Default)]
pub(super) struct ReceiveOrder {
    /// The number of the receive that is next.
    next: u32,
    /// At most as many as may be outstanding.
    held: Vec<(u32, Slice, Outcome<usize>)>,
}

impl ReceiveOrder {
    pub(super) fn len(&self) -> u32 {
        self.held.len() as u32
    }

    /// A receive came back.
    #[inline]
    pub(super) fn put(&mut self, number: u32, slice: Slice, outcome: Outcome<usize>) {
        self.held.push((number, slice, outcome));
    }

    /// The one whose turn it is, if it is back.
    #[inline]
    pub(super) fn take(&mut self) -> Option<(Slice, Outcome<usize>)> {
        let at = self.held.iter().position(|(number, ..)| *number == self.next)?;
        self.next = self.next.wrapping_add(1);
        let (_, slice, outcome) = self.held.swap_remove(at);
        Some((slice, outcome))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Layout, Region, RegionOptions};

    #[test]
    fn whatever_order_receives_come_back_in_they_are_taken_in_the_order_started() {
        let region = Region::new(Layout::packed(0, 8, 8), 4, RegionOptions::default()).unwrap();
        let mut order = ReceiveOrder { next: u32::MAX - 1, ..ReceiveOrder::default() };
        let numbers: Vec<_> = (0..4).map(|n| (u32::MAX - 1).wrapping_add(n)).collect();
        for came in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2]] {
            order.next = numbers[0];
            let mut taken = Vec::new();
            for at in came {
                let slice = region.take().unwrap();
                order.put(numbers[at], slice, Outcome::Done(at));
                while let Some((_, outcome)) = order.take() {
                    let Outcome::Done(at) = outcome else { unreachable!("as it was put") };
                    taken.push(at);
                }
            }
            assert_eq!(taken, [0, 1, 2, 3]);
            assert_eq!(order.len(), 0);
        }
    }
}
