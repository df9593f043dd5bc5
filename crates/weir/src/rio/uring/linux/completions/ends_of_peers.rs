//! Receives that end with errors that peers report, told from such as fail for ever.

/// So many ends of a socket's receives with an error that a peer may have reported, and neither a
/// datagram nor an error in the socket's queue among them: then it is the receive itself that
/// fails, without end. A dequeue meets one of them, or one for each sweep, and whoever dequeues
/// takes errors from the queue before long; so this many never come of peers.
pub const ENDS_OF_PEERS: u32 = 1024;

/// Ends in a row of a socket's receives with errors that peers may have reported.
#[derive(Debug, Clone, Copy, Default)]
pub struct EndsOfPeers {
    pub ends: u32,
    /// Errors that had been taken from the socket's queue at the last one.
    taken: u32,
}

impl EndsOfPeers {
    /// One more, with so many errors taken from the socket's queue. Whether that is too many.
    #[cold]
    pub fn one_more(&mut self, taken: u32) -> bool {
        if std::mem::replace(&mut self.taken, taken) != taken {
            self.ends = 0;
        }
        self.ends += 1;
        self.ends > ENDS_OF_PEERS
    }
}
