//! `blocking`, `blocking-batch`, `epoll` and `epoll-batch`: each thread calls the one socket, and a call brings one datagram or
//! up to a batch. A thread waits in the call, where what comes wakes whoever has waited longest, or for readiness in a set
//! of its own, where it wakes all. Datagrams leave the socket one after the other: its lock moves to the core that
//! receives.

use super::{Does, Server};
use crate::simulate::{
    events::{Thread, Time},
    kernel::{Lock, Socket},
};
use std::rc::Rc;

/// Where a thread waits.
#[derive(Debug, Clone, Copy)]
pub(super) enum Waits {
    /// In the call that receives.
    InCall,
    /// For readiness. Then it receives until the socket is empty, or has given so many.
    ForReadiness { drain: usize },
}

/// What a call brings at most.
#[derive(Debug, Clone, Copy)]
pub(super) enum Call {
    One,
    Batch(usize),
}

/// A thread and its socket.
struct Receiver {
    server: Rc<Server>,
    socket: Rc<Socket>,
    thread: Thread,
    leaving: Rc<Lock>,
    call: Call,
}

pub(super) fn threads(server: Rc<Server>, waits: Waits, call: Call) -> impl FnMut(Thread) -> Does {
    let leaving = Rc::new(Lock::new(server.times.lock));
    move |thread| {
        let (server, leaving) = (Rc::clone(&server), Rc::clone(&leaving));
        let socket = Rc::clone(&server.sockets[0]);
        let receiver = Receiver { server, socket, thread, leaving, call };
        Box::pin(async move {
            let mut batch = Vec::new();
            loop {
                match waits {
                    Waits::InCall => receiver.wait_in_call(&mut batch).await,
                    Waits::ForReadiness { drain } => receiver.drain(drain, &mut batch).await,
                }
            }
        })
    }
}

impl Receiver {
    /// Sleeps in the call until something comes, and handles what that brings: nothing, if another thread was faster.
    async fn wait_in_call(&self, batch: &mut Vec<Time>) {
        let Self { server, socket, thread, .. } = self;
        server.wait(thread, socket).await;
        self.receive(batch).await;
        server.handle(thread, batch, 0).await;
    }

    /// Waits for readiness, and receives what is there, up to a limit. What single calls bring is one batch.
    async fn drain(&self, most: usize, batch: &mut Vec<Time>) {
        let Self { server, socket, thread, call, .. } = self;
        server.watch(thread, socket).await;
        let mut drained = 0;
        while drained < most {
            self.receive(batch).await;
            drained += batch.len();
            match call {
                Call::One if batch.is_empty() => break,
                Call::One => server.handle_each(thread, batch, 0).await,
                Call::Batch(of) => {
                    server.handle(thread, batch, 0).await;
                    // A call that brings fewer says that the socket is empty.
                    if batch.len() < *of {
                        return;
                    }
                }
            }
        }
        if matches!(call, Call::One) {
            server.note_batch(thread, drained);
        }
    }

    /// A call. Each datagram leaves the socket under its lock and is copied without it.
    async fn receive(&self, batch: &mut Vec<Time>) {
        let Self { server, thread, call, .. } = self;
        let times = &server.times;
        let (of_call, each, most) = match *call {
            Call::One => (0, times.receive, 1),
            Call::Batch(most) => (times.batch, times.batch_each, most),
        };
        batch.clear();
        thread.run(of_call).await;
        while batch.len() < most && self.take_one(batch).await {
            thread.run(each.saturating_sub(times.receive_hold)).await;
        }
        if matches!(call, Call::One) && batch.is_empty() {
            thread.run(times.receive_none.saturating_sub(times.receive_hold)).await;
        }
    }

    /// One thread alone finds the lock free and in its cache: what it costs is in what a receive was measured to cost.
    async fn take_one(&self, batch: &mut Vec<Time>) -> bool {
        let Self { server, socket, thread, leaving, .. } = self;
        let alone = server.numbers.threads == 1;
        if !alone {
            leaving.take(thread).await;
        }
        thread.run(server.times.receive_hold).await;
        let taken = socket.take(thread.world().now(), 1, batch);
        if !alone {
            leaving.release(thread).await;
        }
        taken > 0
    }
}
