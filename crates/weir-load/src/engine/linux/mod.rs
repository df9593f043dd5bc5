//! The engines of Linux, the best first.

mod gso;
mod sendmmsg;
mod uring;

use super::{About, send};

pub(super) static ENGINES: [About; 4] = [
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
];
