//! The studies that there are: the only list of them, in the order of a document of all kinds.

use crate::report::Reported;

/// Calls a macro with each study: an array of what it gives.
macro_rules! studies {
    ($of:ident) => {
        [
            $of!($crate::udp::results::Udp),
            $of!($crate::tcp::results::Tcp),
            $of!($crate::device::results::Devices),
        ]
    };
}
pub(crate) use studies;

macro_rules! name {
    ($study:ty) => {
        <$study as Reported>::KIND
    };
}

/// Their names in documents.
pub const NAMES: &[&str] = &studies!(name);
