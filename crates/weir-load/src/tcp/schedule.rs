//! When the messages of an open loop are due: at times fixed beforehand, in turn on the connections
//! of a block. It holds no list of them.

/// The messages of one thread's share of a block.
#[derive(Debug, Clone, Copy)]
pub(super) struct Schedule {
    start_ns: u64,
    /// Time from a message of this share to the next one.
    interval_ns: f64,
    /// Connections of this share.
    connections: u64,
}

impl Schedule {
    /// From `start_ns` on, on so many connections, at so many messages per second over them.
    pub(super) fn new(start_ns: u64, messages_per_s: f64, connections: u32) -> Self {
        assert!(messages_per_s > 0.0 && connections > 0, "nothing would ever be due");
        Self { start_ns, interval_ns: 1e9 / messages_per_s, connections: connections.into() }
    }

    /// When the share's message `number` is due: on its connection `number % connections`.
    #[inline]
    pub(super) fn due_ns(&self, number: u64) -> u64 {
        // By multiplication, so that nothing adds up.
        self.start_ns.saturating_add((number as f64 * self.interval_ns).ceil() as u64)
    }

    /// When a connection's message `number` is due.
    #[inline]
    pub(super) fn due_on_ns(&self, connection: u32, number: u64) -> u64 {
        self.due_ns(number * self.connections + u64::from(connection))
    }

    /// Messages of a connection that were due before a moment.
    pub(super) fn due_before(&self, connection: u32, moment_ns: u64) -> u64 {
        let passed_ns = moment_ns.saturating_sub(self.start_ns);
        let estimate = (passed_ns as f64 / self.interval_ns / self.connections as f64) as u64;
        // Rounding may put the quotient one off to either side.
        let mut due = estimate.saturating_sub(1);
        while self.due_on_ns(connection, due) < moment_ns {
            due += 1;
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn messages_are_due_in_order_and_counted(
            rate in 0.1f64..1e6, connections in 1u32..50, start in 0u64..1 << 40,
            messages in 0.0f64..3000.0,
        ) {
            let schedule = Schedule::new(start, rate, connections);
            let passed = (messages * 1e9 / rate) as u64;
            let moment = start + passed;
            let is_due = |number: &u64| schedule.due_ns(*number) < moment;
            let expected = (0..).take_while(is_due).count() as u64;
            let counted: u64 =
                (0..connections).map(|connection| schedule.due_before(connection, moment)).sum();
            prop_assert_eq!(counted, expected);
            let off = (expected as f64 - passed as f64 * rate / 1e9).abs();
            prop_assert!(off <= 1.5, "{expected} in {passed} ns at {rate}/s");
        }
    }

    #[test]
    fn connections_take_turns() {
        let schedule = Schedule::new(100, 1e9, 3);
        let due = |connection, number| schedule.due_on_ns(connection, number);
        assert_eq!((due(0, 0), due(1, 0), due(2, 0), due(0, 1)), (100, 101, 102, 103));
    }
}
