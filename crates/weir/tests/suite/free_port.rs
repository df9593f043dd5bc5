//! Ports that are free, for suites of servers that listen.

use std::{io, net::SocketAddr};
use weir::Error;

/// Starts something on a port that is free, as `free` finds it; another program may take it meanwhile, so on another
/// then.
pub fn on_a_free_port<T>(
    free: impl Fn() -> io::Result<SocketAddr>,
    start: impl Fn(u16) -> Result<T, Error>,
) -> T {
    let on_another = || start(free().expect("a port").port());
    let mut started = on_another();
    for _ in 1..20 {
        let Err(Error::Bind { source, .. }) = &started else { break };
        if source.kind() != io::ErrorKind::AddrInUse {
            break;
        }
        started = on_another();
    }
    started.unwrap_or_else(|e| panic!("on a port that is free: {e}"))
}
