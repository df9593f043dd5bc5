//! The engines of Linux, the best first; behind `send`, which always works, what must be asked for.

mod gso;
mod sendmmsg;
mod uring;
mod xdp;

pub use xdp::receive_together;

use super::{About, send};

pub(super) static ENGINES: [About; 5] = [
    About {
        name: "gso",
        summary: "segmentation offload: up to 64 datagrams of one flow as one large send",
        open: gso::open,
    },
    About {
        name: "sendmmsg",
        summary: "up to 64 datagrams a call, each on its own way through the kernel",
        open: sendmmsg::open,
    },
    About {
        name: "uring",
        summary: "up to 64 sends a submission on an io_uring of the generator's own",
        open: uring::open,
    },
    About { name: "send", summary: "one call a datagram", open: send::open },
    About {
        name: "xdp",
        summary: "live frames past the kernel's network: up to 1024 a call, only on request",
        open: xdp::open,
    },
];
