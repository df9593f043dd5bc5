//! How much room a socket has for datagrams that nobody has received yet.

use std::fmt;

/// What is asked of a socket's receive buffer. AF_XDP has no such buffer: there it says how many slices the kernel is
/// given ahead.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ReceiveBuffer {
    /// The system's default: on Linux `net.core.rmem_default`, mostly 208 KiB, which some 250 small datagrams fill.
    System,
    /// So many bytes, as given to SO_RCVBUF. Linux doubles them, for its own bookkeeping.
    Bytes(usize),
    /// Room for as many datagrams as the design has receives outstanding; the system's default where it has none.
    #[default]
    Outstanding,
    /// Room for so many datagrams, whatever the system takes beside their bytes.
    Datagrams {
        /// How many.
        count: u32,
        /// The longest of them, in bytes of payload.
        bytes: usize,
    },
}

impl ReceiveBuffer {
    /// The same for a socket that has so many receives outstanding, into slices of so many bytes.
    pub(crate) fn of_outstanding(self, count: u32, bytes: usize) -> Self {
        match self {
            Self::Outstanding => Self::Datagrams { count, bytes },
            asked => asked,
        }
    }
}

/// As on a command line, but for a number of datagrams, which is said in words.
impl fmt::Display for ReceiveBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System => f.write_str("system"),
            Self::Bytes(bytes) => bytes.fmt(f),
            Self::Outstanding => f.write_str("outstanding"),
            Self::Datagrams { count, bytes } => write!(f, "{count} datagrams of {bytes} bytes"),
        }
    }
}
