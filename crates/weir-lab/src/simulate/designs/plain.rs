//! `blocking`: each thread receives one datagram per call, all on one socket. Datagrams leave the socket one after the
//! other: its lock moves to the core that receives.

use super::{Does, Server};
use crate::simulate::{events::Thread, kernel::Lock};
use std::rc::Rc;

pub(super) fn blocking(server: Rc<Server>) -> impl FnMut(Thread) -> Does {
    let leaving = Rc::new(Lock::new(server.times.lock));
    move |thread| {
        let (server, leaving) = (Rc::clone(&server), Rc::clone(&leaving));
        Box::pin(async move {
            let socket = Rc::clone(&server.sockets[0]);
            let alone = server.numbers.threads == 1;
            let mut batch = Vec::new();
            loop {
                server.wait(&thread, &socket).await;
                let times = &server.times;
                if !alone {
                    leaving.take(&thread).await;
                }
                thread.run(times.receive_hold).await;
                batch.clear();
                socket.take(thread.world().now(), 1, &mut batch);
                if !alone {
                    leaving.release(&thread).await;
                }
                match batch.is_empty() {
                    // Another thread was faster.
                    true => thread.run(times.call).await,
                    false => {
                        let rest = times.receive.saturating_sub(times.receive_hold);
                        server.handle(&thread, &batch, rest).await;
                    }
                }
            }
        })
    }
}
