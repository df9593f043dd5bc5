//! Limits that every server has, whatever its design.

use crate::options::settings;

settings! {
    /// What a server may send, and how much it holds back for it. The default is a sink: a
    /// server answers only where that was asked for.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Limits {
        /// Replies that may be outstanding at a time; 0 makes the server a sink.
        pub replies_outstanding: u32,
        /// Bytes of reply allowed for each 100 bytes received in a datagram. 100 by default, so
        /// that nobody can use the server to flood a third with more than he sends himself. A longer reply is refused
        /// ([`Refused::TooLong`](crate::udp::Refused::TooLong)).
        pub reply_percent: u32,
        /// Replies per second over all threads; `None` for no such limit.
        pub replies_per_s: Option<u64>,
        /// Datagrams that are sent by themselves, to anybody at any time ([`Outbox`](crate::udp::Outbox)), of which so many
        /// may be outstanding at a time; 0, the default, for none. The other limits are those of replies.
        pub transmits_outstanding: u32,
        /// Whether replies that would go round for ever are dropped, and counted: those to the server's own
        /// addresses, to ports of services that answer whatever they are sent (echo, chargen and the
        /// like), and of equal ones to one source the 129th. A loop with another server that echoes is
        /// over then. Who goes on is taken for a client that always sends the same bytes: each drop is
        /// twice as far from the one before, up to one in 65,536, and there is none below one a
        /// second. On by default.
        pub refuse_loops: bool,
    }
}

impl Limits {
    /// Nothing is sent.
    pub const SINK: Self = Self {
        replies_outstanding: 0,
        reply_percent: 100,
        replies_per_s: None,
        transmits_outstanding: 0,
        refuse_loops: true,
    };

    /// Replies no larger than what was received, at most `per_s` of them a second.
    pub const fn echo(per_s: u64) -> Self {
        Self { replies_outstanding: 1024, replies_per_s: Some(per_s), ..Self::SINK }
    }

    /// Replies of up to three times what was received, at most `per_s` of them a second: for a protocol whose answers are
    /// longer than its questions, such as DNS without EDNS, where an address of IPv4 makes 43 bytes of a question of 27.
    /// Three times is what QUIC allows towards an address that nobody has validated (RFC 9000, section 8).
    pub const fn answers(per_s: u64) -> Self {
        Self { reply_percent: 300, ..Self::echo(per_s) }
    }

    /// Sends that may be outstanding, replies or not.
    pub(crate) fn sends(&self) -> u32 {
        self.replies_outstanding.saturating_add(self.transmits_outstanding)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::SINK
    }
}
