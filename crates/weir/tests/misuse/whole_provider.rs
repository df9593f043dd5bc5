//! The providers of registered I/O under one roof: what each test is made on.

use crate::required::cannot_run;
use std::net::SocketAddr;
use weir::rio::{
    CompletionQueue, HandOver, Needs, OneThread, Provider,
    batch::PlainSockets,
    fake::{FakeWinsock, FakeXdp, Wire},
};
#[cfg(target_os = "linux")]
use weir::rio::{
    uring::{Polling, Uring},
    xdp::Xdp,
};

/// What is asked of the queues here.
pub const NEEDS: Needs =
    Needs { payload: 256, receives: 8, sends: 4, per_dequeue: 8, offload: false, meta: false };

/// A provider with both kinds of queues; those that are handed over may leave their thread.
pub trait Both:
    Provider<OneThread> + Provider<HandOver, Cq: CompletionQueue + Send, Rq: Send>
{
}

impl<P> Both for P where
    P: Provider<OneThread> + Provider<HandOver, Cq: CompletionQueue + Send, Rq: Send>
{
}

/// Something to be tried on any provider, of this name, with places for two queues.
pub trait Misuse {
    fn on<P: Both>(&self, name: &str, provider: &P, at: [SocketAddr; 2]);
}

/// Tries it on a provider that a test in `required` knows by this name.
fn on<P: Both>(misuse: &impl Misuse, name: &str, provider: &P, at: [SocketAddr; 2]) {
    if !cannot_run(name, Provider::<OneThread>::layout(provider, &NEEDS)) {
        eprintln!("on {name}");
        misuse.on(name, provider, at);
    }
}

/// Tries it on every provider that runs in this namespace; AF_XDP has [`on_xdp`].
pub fn on_each(misuse: &impl Misuse) {
    let loopback = [crate::loopback(); 2];
    #[cfg(target_os = "linux")]
    for uring in [Uring::default(), Uring::polling(Polling::Interrupt)] {
        on(misuse, "uring", &uring, loopback);
    }
    #[cfg(windows)]
    {
        weir::rio::winsock::stand_in::install_where_absent();
        on(misuse, "winsock", &weir::rio::winsock::Winsock::default(), loopback);
    }
    on(misuse, "batch", &PlainSockets, loopback);
    let wire = Wire::new(1);
    on(misuse, "fake-xdp", &FakeXdp::new(&wire), loopback);
    on(misuse, "fake-winsock", &FakeWinsock::new(&wire), loopback);
}

/// Tries it on AF_XDP, at an address of each of two devices of the namespace.
#[cfg(target_os = "linux")]
pub fn on_xdp(misuse: &impl Misuse, at: [SocketAddr; 2]) {
    on(misuse, "xdp", &Xdp::default(), at);
}

/// There are no namespaces to call it in.
#[cfg(not(target_os = "linux"))]
pub fn on_xdp(_: &impl Misuse, _: [SocketAddr; 2]) {}
