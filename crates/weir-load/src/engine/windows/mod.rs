//! The engines of Windows, the best first; and those that only Linux has.

mod answers;
mod uso;

pub use answers::Answers;
use weir::Unavailable;

use super::{About, Lane, Opened, send};

/// The best that hands each datagram over by itself.
pub(super) const WITHOUT_OFFLOAD: &str = "send";

pub(super) static ENGINES: [About; 6] = [
    About {
        name: "uso",
        summary: "segmentation offload: up to 512 datagrams of one flow as one large send (Windows)",
        open: uso::open,
    },
    About { name: "gso", summary: "segmentation offload (Linux)", open: no_gso },
    About { name: "sendmmsg", summary: "many datagrams a call (Linux)", open: no_sendmmsg },
    About { name: "uring", summary: "batched sends on an io_uring (Linux)", open: no_uring },
    About { name: "send", summary: "one call a datagram", open: send::open },
    About { name: "xdp", summary: "live frames of a device (Linux)", open: no_xdp },
];

fn absent(name: &str, call: &str) -> Opened {
    Err(Unavailable::new(format!("engine {name}"), format!("Windows does not have {call}"))
        .advise("use the engine uso or send"))
}

fn no_gso(_: usize, _: &[Lane]) -> Opened {
    absent("gso", "the socket option UDP_SEGMENT")
}

fn no_sendmmsg(_: usize, _: &[Lane]) -> Opened {
    absent("sendmmsg", "the call sendmmsg")
}

fn no_uring(_: usize, _: &[Lane]) -> Opened {
    absent("uring", "io_uring")
}

fn no_xdp(_: usize, _: &[Lane]) -> Opened {
    absent("xdp", "a call that runs a program over frames")
}
