//! `port` and `port-batch`: threads take from a completion port, one completion at a time or many. Who leads and who
//! runs is decided by the library's [`Rules`].

use super::{Does, Server};
use crate::simulate::{events::Thread, kernel::Lock};
use std::{cell::RefCell, rc::Rc};
use weir::port::limit::rules::{Asked, Granted, Role, Rules, Wake};

/// What the threads of a port share.
struct Port {
    server: Rc<Server>,
    rules: RefCell<Rules>,
    /// Around the rules.
    limit: Lock,
    /// Around the ring and the operations.
    state: Lock,
    batch: usize,
    alone: bool,
}

pub(super) fn threads(server: Rc<Server>, batch: usize) -> impl FnMut(Thread) -> Does {
    let numbers = server.numbers;
    let port = Rc::new(Port {
        rules: RefCell::new(Rules::new(numbers.concurrency, numbers.threads)),
        limit: Lock::new(server.times.lock),
        state: Lock::new(server.times.lock),
        batch,
        alone: numbers.threads == 1,
        server,
    });
    move |thread| {
        let port = Rc::clone(&port);
        Box::pin(async move {
            let mut place = Place { port, thread, role: Role::Outside };
            loop {
                place.serve().await;
            }
        })
    }
}

/// A thread's place at the port.
struct Place {
    port: Rc<Port>,
    thread: Thread,
    role: Role,
}

impl Place {
    /// Takes, handles and posts again.
    async fn serve(&mut self) {
        self.lead().await;
        let port = Rc::clone(&self.port);
        let (server, thread) = (&port.server, &self.thread);
        let socket = &server.sockets[0];
        let mut batch = Vec::new();
        while batch.is_empty() {
            server.wait(thread, socket).await;
            // The leader copies: it enters the kernel with what was posted.
            port.locked(&port.state, thread).await;
            socket.take(thread.world().now(), port.batch, &mut batch);
            let taken = batch.len() as u64;
            thread.run(server.times.take + server.times.take_each * taken).await;
            port.unlocked(&port.state, thread).await;
        }
        self.run().await;
        let thread = &self.thread;
        server.handle(thread, &batch, 0).await;
        // The receives are posted again under the same lock.
        port.locked(&port.state, thread).await;
        thread.run(server.times.port_post * batch.len() as u64).await;
        port.unlocked(&port.state, thread).await;
    }

    /// Waits until this thread leads.
    async fn lead(&mut self) {
        let port = Rc::clone(&self.port);
        let place = self.thread.number();
        port.locked(&port.limit, &self.thread).await;
        let led = port.rules.borrow_mut().try_lead(self.role);
        let (mut asked, wake) = match led {
            Some(wake) => (Asked::Leads, wake),
            None => port.rules.borrow_mut().lead(place, self.role),
        };
        port.unlocked(&port.limit, &self.thread).await;
        port.wake(&self.thread, wake).await;
        while asked == Asked::Parks {
            self.thread.run(port.server.times.call).await;
            self.thread.sleep().await;
            asked = port.rules.borrow_mut().asked(place);
        }
        self.role = Role::Leading;
    }

    /// Gives up the lead and runs, as soon as it may; another leads if one more may run.
    async fn run(&mut self) {
        let port = Rc::clone(&self.port);
        let place = self.thread.number();
        port.locked(&port.limit, &self.thread).await;
        port.rules.borrow_mut().stop(Role::Leading);
        let entered = port.rules.borrow_mut().enter(place);
        if !entered {
            port.unlocked(&port.limit, &self.thread).await;
            while port.rules.borrow().granted(place) != Granted::Run {
                self.thread.sleep().await;
            }
            port.locked(&port.limit, &self.thread).await;
        }
        let wake = port.rules.borrow_mut().settle();
        port.unlocked(&port.limit, &self.thread).await;
        port.wake(&self.thread, wake).await;
        self.role = Role::Running;
    }
}

impl Port {
    /// One thread alone finds its locks free and in its cache: what they cost it is in what a take was measured to
    /// cost.
    async fn locked(&self, lock: &Lock, thread: &Thread) {
        if !self.alone {
            lock.take(thread).await;
        }
    }

    async fn unlocked(&self, lock: &Lock, thread: &Thread) {
        if !self.alone {
            lock.release(thread).await;
        }
    }

    async fn wake(&self, thread: &Thread, wake: Wake) {
        for other in [wake.runner, wake.leader].into_iter().flatten() {
            self.server.wake(thread, other).await;
        }
    }
}
