//! The engines of Linux, the best first; behind `send`, which always works, what must be asked for.

mod answers;
mod gso;
mod sendmmsg;
mod uring;
mod xdp;

pub use answers::Answers;
pub use xdp::receive_together;

use weir::Unavailable;

use super::{About, Lane, Opened, send};

/// The best that hands each datagram over by itself.
pub(super) const WITHOUT_OFFLOAD: &str = "sendmmsg";

pub(super) static ENGINES: [About; 6] = [
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
        summary: "live frames past the kernel's network stack: up to 1024 a call, only on request",
        open: xdp::open,
    },
    About { name: "uso", summary: "segmentation offload (Windows)", open: no_uso },
];

fn no_uso(_: usize, _: &[Lane]) -> Opened {
    let reason = "Linux does not have the socket option UDP_SEND_MSG_SIZE";
    Err(Unavailable::new("engine uso", reason).advise("use the engine gso, which does the same"))
}
