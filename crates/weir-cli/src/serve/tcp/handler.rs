//! What the measured server does with what comes on a connection: it works on it, and echoes it if
//! that was asked for.

use std::net::SocketAddr;

use weir::tcp::{Handler, Output};
use weir_lab::udp::plan::Work;

use crate::serve::handler::Labour;

/// The handler of one connection.
pub struct Served {
    labour: Labour,
    echo: bool,
}

/// Makes the handlers of all connections.
pub fn handlers(work: Work, echo: bool) -> impl Fn(SocketAddr) -> Served + Send + Sync + 'static {
    let labour = Labour::new(work);
    move |_| Served { labour: labour.clone(), echo }
}

impl Handler for Served {
    #[inline]
    fn on_receive(&mut self, _: &mut [u8], output: &mut Output<'_>) {
        self.labour.work();
        if self.echo {
            // A refusal is counted by the server and shown in its report.
            let _ = output.echo();
        }
    }
}
