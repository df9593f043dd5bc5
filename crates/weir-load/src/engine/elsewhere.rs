//! The engines where the operating system has none but plain sends.

use weir::Unavailable;

use super::{About, Lane, Opened, send};

pub(super) static ENGINES: [About; 5] = [
    About { name: "gso", summary: "segmentation offload (Linux)", open: no_gso },
    About { name: "sendmmsg", summary: "many datagrams a call (Linux)", open: no_sendmmsg },
    About { name: "uring", summary: "batched sends on an io_uring (Linux)", open: no_uring },
    About { name: "send", summary: "one call a datagram", open: send::open },
    About { name: "xdp", summary: "live frames of a device (Linux)", open: no_xdp },
];

fn absent(name: &str, call: &str) -> Opened {
    Err(Unavailable::new(format!("engine {name}"), format!("{call} is not on this OS yet"))
        .advise("use the engine send"))
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
    absent("xdp", "running a program over frames")
}
