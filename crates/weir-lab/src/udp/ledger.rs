//! Where every datagram went.
//!
//! ```text
//! offered = sent + refused
//! sent    = received + dropped at the device + at the CPU's queue + at the socket + unexplained
//! ```
//!
//! Over hosts there are two places more: the senders' devices, and the network between, in which everything is lost that
//! left and was counted nowhere else. What the server's system gave to programs, and the server did not count, is no loss
//! of the network: it stays unexplained.
//!
//! Datagrams of strangers are counted apart: they are no part of either line.
//!
//! Where the system counts no drops at sockets, the last place of its own that a datagram passes, what is missing
//! may have been dropped there. Nobody knows: it is lost, place unknown, and the run is valid. Where the system
//! counts them, what is missing beyond its count is held against the run.
//!
//! A count of the whole machine may stand in for that of the server's own sockets. It may count too much, since other
//! programs lose datagrams too, and too little; so it explains no more than what is missing, and proves nothing wrong.

use serde::{Deserialize, Serialize};

/// Largest share of the datagrams sent that may stay unexplained.
pub const TOLERANCE: f64 = 0.001;

/// The most datagrams that come as one with receive offload: what a sender may give to the kernel
/// at once (UDP_MAX_SEGMENTS, 64 before Linux 6.9).
const MOST_AS_ONE: u64 = 128;

/// The counts of one run after its warm-up. A place that cannot be seen on this machine is
/// `None`, not 0.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Ledger {
    /// Datagrams the generator wanted to send.
    pub offered: u64,
    /// Those the operating system took from it.
    pub sent: u64,
    /// Those it refused.
    pub refused: u64,
    /// Datagrams of this run that reached the server's handler, duplicates included.
    pub received: u64,
    /// Dropped by the network device.
    pub dropped_device: Option<u64>,
    /// Dropped at the queue between device and protocol of a CPU (softnet).
    pub dropped_cpu_queue: Option<u64>,
    /// Dropped because a socket's receive buffer was full.
    pub dropped_socket: Option<u64>,
    /// What counted those, where that was not each socket but the whole machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dropped_socket_source: Option<String>,
    /// Dropped by the devices of the generators' hosts, before anything left; none on one machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped_sender: Option<u64>,
    /// Lost in the network between hosts: sent, and counted nowhere else; none on one machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_network: Option<u64>,
    /// Datagrams that belong to no run or to another, counted apart.
    pub strangers: u64,
}

/// Whether a ledger balances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Balance {
    /// Both lines hold within [`TOLERANCE`], but for what was lost at an unknown place.
    Balanced,
    /// One does not, and this sentence says which and by how much.
    Unbalanced(String),
}

impl Ledger {
    /// Where a count of the whole machine stands in for that of the server's sockets, no more of it is taken than is
    /// missing.
    pub fn with_drops_of_the_machine(mut self) -> Self {
        if self.dropped_socket_source.is_some() {
            let counted = self.dropped_socket.take();
            let missing = u64::try_from(self.unexplained()).unwrap_or(0);
            self.dropped_socket = counted.map(|counted| counted.min(missing));
        }
        self
    }

    /// Whether the system tells of every drop at the server's sockets.
    fn tells_of_sockets(&self) -> bool {
        self.dropped_socket.is_some() && self.dropped_socket_source.is_none()
    }

    /// With receive offload Linux counts a drop at the socket once, however many datagrams came as
    /// one. So what is missing was dropped there, where each drop accounts for 1 to 128 of it; what
    /// is more than that, or was not accompanied by a drop, stays unexplained.
    pub fn with_drops_of_several(mut self) -> Self {
        if self.tells_of_sockets()
            && let Some(drops) = self.dropped_socket
            && let Ok(missing) = u64::try_from(self.unexplained())
            && drops.saturating_add(missing) <= drops.saturating_mul(MOST_AS_ONE)
        {
            self.dropped_socket = Some(drops + missing);
        }
        self
    }

    /// Between hosts, of whose senders' devices this is known: what is counted nowhere else was lost in the network. Of
    /// the server's system it is known, perhaps, what it gave to programs. Where it does not count drops at sockets, they
    /// may be as well there.
    pub fn over_network(mut self, dropped_sender: Option<u64>, delivered: Option<u64>) -> Self {
        self.dropped_sender = dropped_sender;
        if !self.tells_of_sockets() {
            return self;
        }
        let missing = u64::try_from(self.unexplained()).unwrap_or(0);
        let counted = self.received.saturating_add(self.strangers);
        let taken = delivered.map_or(0, |delivered| delivered.saturating_sub(counted));
        // Other programs receive datagrams, too: a few, or what is taken would be seen in any run.
        let is_some = taken as f64 > self.sent as f64 * TOLERANCE;
        self.lost_network = Some(missing.saturating_sub(if is_some { taken } else { 0 }));
        self
    }

    /// Datagrams dropped at all the places that can be seen.
    pub fn dropped(&self) -> u64 {
        let places = [self.dropped_sender, self.dropped_device, self.dropped_cpu_queue];
        places.iter().chain([&self.dropped_socket, &self.lost_network]).flatten().sum()
    }

    /// Datagrams sent that neither arrived nor are known to be dropped. Below 0, more
    /// arrived than were sent.
    pub fn unexplained(&self) -> i64 {
        let accounted = i128::from(self.received) + i128::from(self.dropped());
        let rest = i128::from(self.sent) - accounted;
        rest.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
    }

    /// Datagrams that did not arrive, where the system does not tell what was dropped at the server's sockets: beyond
    /// the places that can be seen. `None` where it does tell.
    pub fn lost_place_unknown(&self) -> Option<u64> {
        let missing = u64::try_from(self.unexplained()).unwrap_or(0);
        (!self.tells_of_sockets()).then_some(missing)
    }

    /// Received as percent of sent; `None` if nothing was sent.
    pub fn received_percent(&self) -> Option<f64> {
        (self.sent > 0).then(|| self.received as f64 / self.sent as f64 * 100.0)
    }

    /// The places that cannot be seen on this machine.
    pub fn unseen(&self) -> Vec<&'static str> {
        let places = [
            (self.dropped_device, "the device"),
            (self.dropped_cpu_queue, "the queue of the CPU"),
            (self.dropped_socket, "the socket"),
        ];
        places.into_iter().filter(|(count, _)| count.is_none()).map(|(_, name)| name).collect()
    }

    /// Checks both lines.
    pub fn balance(&self) -> Balance {
        let accounted = self.sent.saturating_add(self.refused);
        if self.offered != accounted {
            return Balance::Unbalanced(format!(
                "offered {} is not sent {} + refused {}: the generator's counts are wrong",
                self.offered, self.sent, self.refused
            ));
        }
        let unexplained = self.unexplained();
        if unexplained.unsigned_abs() as f64 <= self.sent as f64 * TOLERANCE {
            return Balance::Balanced;
        }
        if unexplained > 0 && !self.tells_of_sockets() {
            return Balance::Balanced;
        }
        if unexplained < 0 {
            return Balance::Unbalanced(format!(
                "{} more datagrams were received and dropped than the {} that were sent: \
                 another sender used the port, or datagrams were duplicated",
                -unexplained, self.sent
            ));
        }
        let unseen = self.unseen();
        let hint = if unseen.is_empty() {
            "no system counter says where".into()
        } else {
            format!("drops at {} cannot be seen here", unseen.join(" and "))
        };
        Balance::Unbalanced(format!(
            "{unexplained} of {} datagrams sent ({:.2} %) neither arrived nor are counted as \
             dropped: {hint}",
            self.sent,
            unexplained as f64 / self.sent as f64 * 100.0
        ))
    }

    /// Adds another run's counts. A place stays known only if both know it.
    pub fn add(&mut self, other: &Self) {
        let both = |a: Option<u64>, b: Option<u64>| Some(a? + b?);
        self.offered += other.offered;
        self.sent += other.sent;
        self.refused += other.refused;
        self.received += other.received;
        self.dropped_device = both(self.dropped_device, other.dropped_device);
        self.dropped_cpu_queue = both(self.dropped_cpu_queue, other.dropped_cpu_queue);
        self.dropped_socket = both(self.dropped_socket, other.dropped_socket);
        if self.dropped_socket_source.is_none() {
            self.dropped_socket_source.clone_from(&other.dropped_socket_source);
        }
        self.dropped_sender = both(self.dropped_sender, other.dropped_sender);
        self.lost_network = both(self.lost_network, other.lost_network);
        self.strangers += other.strangers;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn balanced() -> Ledger {
        Ledger {
            offered: 1_010_000,
            sent: 1_000_000,
            refused: 10_000,
            received: 900_000,
            dropped_device: Some(0),
            dropped_cpu_queue: Some(20_000),
            dropped_socket: Some(79_500),
            dropped_socket_source: None,
            dropped_sender: None,
            lost_network: None,
            strangers: 3,
        }
    }

    #[test]
    fn a_tenth_of_a_percent_may_be_unexplained() {
        let ledger = balanced();
        assert_eq!((ledger.unexplained(), ledger.balance()), (500, Balance::Balanced));
        assert_eq!(ledger.received_percent(), Some(90.0));
        let edge = Ledger { received: 899_500, ..balanced() };
        assert_eq!((edge.unexplained(), edge.balance()), (1000, Balance::Balanced));
    }

    fn sentence(ledger: &Ledger) -> String {
        match ledger.balance() {
            Balance::Unbalanced(sentence) => sentence,
            Balance::Balanced => panic!("{ledger:?} should not balance"),
        }
    }

    #[test]
    fn more_than_that_is_said() {
        let text = sentence(&Ledger { received: 899_499, ..balanced() });
        assert!(text.contains("1001 of 1000000") && text.contains("no system counter"), "{text}");
        let text = sentence(&Ledger { received: 800_000, dropped_device: None, ..balanced() });
        assert!(text.contains("drops at the device cannot be seen here"), "{text}");
        let text = sentence(&Ledger { received: 1_000_000, ..balanced() });
        assert!(text.contains("99500 more datagrams"), "{text}");
        let text = sentence(&Ledger { offered: 1, ..balanced() });
        assert!(text.contains("the generator's counts are wrong"), "{text}");
    }

    #[test]
    fn what_is_missing_is_excused_only_where_drops_at_sockets_cannot_be_seen() {
        let unseen = Ledger { dropped_socket: None, ..balanced() };
        assert_eq!(
            (unseen.balance(), unseen.lost_place_unknown()),
            (Balance::Balanced, Some(80_000))
        );
        let nothing = Ledger { received: 0, ..unseen.clone() };
        assert_eq!(
            (nothing.balance(), nothing.lost_place_unknown()),
            (Balance::Balanced, Some(980_000))
        );
        // A server that loses what the system delivered to it, while that tells of every drop.
        let seen = Ledger { received: 800_000, ..balanced() };
        assert_eq!(seen.lost_place_unknown(), None);
        sentence(&seen);
        sentence(&Ledger { dropped_device: None, dropped_cpu_queue: None, ..seen });
        // What was counted wrong, or is too much, is no loss.
        for wrong in [
            Ledger { received: 1_000_000, ..unseen.clone() },
            Ledger { offered: 1, ..unseen.clone() },
        ] {
            sentence(&wrong);
        }
        let all = Ledger { received: 1_000_000, ..unseen };
        assert_eq!(all.lost_place_unknown(), Some(0));
    }

    #[test]
    fn a_count_of_the_machine_explains_no_more_than_is_missing_and_proves_nothing_wrong() {
        let of = |counted, received| {
            let source = Some("the machine".to_owned());
            let (dropped_socket, dropped_socket_source) = (Some(counted), source);
            Ledger { dropped_socket, dropped_socket_source, received, ..balanced() }
                .with_drops_of_the_machine()
        };
        // Others dropped some, too; this count has only a part of it; and it has nothing.
        for (counted, taken, lost) in
            [(100_000, 80_000, 0), (70_000, 70_000, 10_000), (0, 0, 80_000)]
        {
            let ledger = of(counted, 900_000);
            assert_eq!(
                (ledger.balance(), ledger.dropped_socket, ledger.lost_place_unknown()),
                (Balance::Balanced, Some(taken), Some(lost)),
                "{counted}"
            );
        }
        // More than was sent is wrong whatever the machine counted.
        assert_eq!(of(5, 1_000_000).dropped_socket, Some(0));
        sentence(&of(5, 1_000_000));
        let known = balanced();
        assert_eq!(known.clone().with_drops_of_the_machine(), known);
        let mut sum = balanced();
        sum.add(&of(100_000, 900_000));
        assert_eq!(sum.dropped_socket, Some(159_500));
        assert_eq!(sum.dropped_socket_source.as_deref(), Some("the machine"));
        // That each of its drops is of several datagrams is not known.
        let few = of(1000, 900_000);
        assert_eq!(few.clone().with_drops_of_several(), few);
    }

    #[test]
    fn between_hosts_the_network_is_a_place_and_the_server_is_none() {
        let lossy = Ledger { received: 700_000, ..balanced() };
        sentence(&lossy);
        let over = |sender, delivered| lossy.clone().over_network(sender, delivered);
        let network = over(Some(500), Some(700_000));
        assert_eq!((network.lost_network, network.unexplained()), (Some(200_000), 0));
        assert_eq!(network.balance(), Balance::Balanced);
        assert_eq!(
            over(None, None).lost_network,
            Some(200_500),
            "what is not known is nowhere else"
        );
        // A server that took 100000 datagrams from its system and says nothing of them.
        let forgetful = over(Some(0), Some(800_003));
        assert_eq!(forgetful.lost_network, Some(100_500));
        assert!(sentence(&forgetful).contains("100000 of 1000000"));
        // Other programs received some.
        assert_eq!(over(Some(0), Some(700_503)).lost_network, Some(200_500));
        // More came than was sent: nothing was lost.
        let more = Ledger { received: 990_000, ..balanced() }.over_network(Some(0), None);
        assert_eq!(more.lost_network, Some(0));
        sentence(&more);
        // Where drops at sockets are not told, nobody knows which of the two it was.
        let unseen = Ledger { dropped_socket: None, ..lossy.clone() }.over_network(Some(0), None);
        assert_eq!((unseen.lost_network, unseen.lost_place_unknown()), (None, Some(280_000)));
        let mut sum = network.clone();
        sum.add(&network);
        assert_eq!((sum.dropped_sender, sum.lost_network), (Some(1000), Some(400_000)));
    }

    #[test]
    fn nothing_sent_balances_only_with_nothing() {
        assert_eq!(Ledger::default().balance(), Balance::Balanced);
        assert_eq!(Ledger::default().received_percent(), None);
        assert!(matches!(
            Ledger { received: 1, ..Ledger::default() }.balance(),
            Balance::Unbalanced(_)
        ));
    }

    #[test]
    fn a_sum_knows_only_what_both_know() {
        let mut sum = balanced();
        sum.add(&Ledger { dropped_device: None, ..balanced() });
        assert_eq!(
            (sum.sent, sum.dropped_device, sum.dropped_socket),
            (2_000_000, None, Some(159_000))
        );
    }

    proptest::proptest! {
        #[test]
        fn any_counts_are_judged_without_overflow(
            offered: u64, sent: u64, refused: u64, received in 0..u64::MAX / 4,
            drops in proptest::option::of(0..u64::MAX / 4),
        ) {
            let ledger = Ledger {
                offered, sent, refused, received, dropped_socket: drops, ..Ledger::default()
            };
            if let Balance::Unbalanced(sentence) = ledger.balance() {
                proptest::prop_assert!(!sentence.is_empty());
            }
        }
    }

    #[test]
    fn a_drop_of_several_explains_what_is_missing_and_no_more() {
        // What a run on loopback counted, with 64 datagrams in each drop.
        let run = Ledger {
            offered: 2_943_232,
            sent: 2_943_232,
            received: 1_199_040,
            dropped_device: Some(0),
            dropped_cpu_queue: Some(0),
            dropped_socket: Some(27_253),
            ..Ledger::default()
        };
        assert!(matches!(run.balance(), Balance::Unbalanced(_)));
        let known = run.clone().with_drops_of_several();
        assert_eq!((known.balance(), known.dropped_socket), (Balance::Balanced, Some(1_744_192)));
        for (drops, received) in [(0, 1_199_040), (13_000, 1_199_040), (27_253, 3_000_000)] {
            let wrong = Ledger { dropped_socket: Some(drops), received, ..run.clone() };
            assert_eq!(wrong.clone().with_drops_of_several(), wrong);
        }
        let unseen = Ledger { dropped_socket: None, ..run };
        assert_eq!(unseen.clone().with_drops_of_several(), unseen);
    }
}
