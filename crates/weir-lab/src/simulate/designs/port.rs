//! `port` and `port-batch`: threads take from a completion port, one completion at a time or many. Who leads and who
//! runs is decided by the library's [`Rules`], how many receives the kernel has by its [`ArmedCount`].
//!
//! The port is the one on io_uring: receives that are posted again collect until so many of them wait, or nothing lies
//! ready, and are then handed to the kernel at once; those that find a datagram have it copied by the thread that entered.
//! What lies ready is taken without the kernel, by any thread that runs.

use super::{Does, Server};
use crate::simulate::{
    events::{Thread, Time},
    kernel::{Lock, Socket},
};
use std::{cell::RefCell, collections::VecDeque, rc::Rc};
use weir::port::{
    Shape,
    armed_count::ArmedCount,
    limit::rules::{Asked, Granted, Role, Rules, Wake},
};

/// What the threads of a port share.
struct Port {
    server: Rc<Server>,
    socket: Rc<Socket>,
    rules: RefCell<Rules>,
    /// Around the rules.
    limit: Lock,
    /// Around the ring and the operations.
    state: Lock,
    /// The kernel's, around what is submitted.
    submitting: Lock,
    receives: RefCell<Receives>,
    submit_after: u32,
    batch: usize,
    alone: bool,
}

/// The receives of the port. There are always enough of them that wait to be armed.
struct Receives {
    armed_count: ArmedCount,
    /// How many are in the kernel's hands, those that lie ready included.
    armed: u32,
    /// When the datagrams came whose receives lie ready.
    ready: VecDeque<Time>,
}

impl Receives {
    /// How many would be handed to the kernel now.
    fn to_start(&self) -> u32 {
        self.armed_count.now().saturating_sub(self.armed)
    }

    /// How many wait in the kernel for a datagram.
    fn idle(&self) -> usize {
        (self.armed as usize).saturating_sub(self.ready.len())
    }
}

pub(super) fn threads(server: Rc<Server>, batch: usize) -> impl FnMut(Thread) -> Does {
    let numbers = server.numbers;
    let lock = || Lock::new(server.times.port_lock);
    let shape = Shape::BEST;
    let port = Rc::new(Port {
        socket: Rc::clone(&server.sockets[0]),
        rules: RefCell::new(Rules::new(numbers.concurrency, numbers.threads)),
        limit: lock(),
        state: lock(),
        submitting: lock(),
        receives: RefCell::new(Receives {
            armed_count: ArmedCount::new(shape.armed),
            armed: 0,
            ready: VecDeque::new(),
        }),
        submit_after: shape.submit_after,
        batch,
        alone: numbers.threads == 1,
        server,
    });
    move |thread| {
        let port = Rc::clone(&port);
        Box::pin(async move {
            let mut place = Place { port, thread, role: Role::Outside };
            let mut batch = Vec::new();
            loop {
                place.take(&mut batch).await;
                place.handle(&batch).await;
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
    /// Takes what lies ready, if this thread may run on; else it leads, and takes what comes.
    async fn take(&mut self, batch: &mut Vec<Time>) {
        batch.clear();
        if self.may_go_on().await {
            self.reap(batch).await;
            if !batch.is_empty() {
                return;
            }
        }
        if !self.try_lead().await {
            // What it posted must not wait until it leads.
            let to_start = self.port.receives.borrow().to_start();
            if to_start > 0 {
                self.enter().await;
            }
            self.lead().await;
        }
        loop {
            self.reap(batch).await;
            if !batch.is_empty() {
                return self.run().await;
            }
            self.wait().await;
            self.enter().await;
        }
    }

    /// Handles what was taken, and posts it again.
    async fn handle(&self, batch: &[Time]) {
        let (port, thread) = (&self.port, &self.thread);
        port.server.handle(thread, batch, 0).await;
        port.locked(&port.state, thread).await;
        thread.run(port.server.times.port_post * batch.len() as u64).await;
        port.unlocked(&port.state, thread).await;
    }

    /// Takes what lies ready, unless so many wait to be submitted that they go first.
    async fn reap(&self, batch: &mut Vec<Time>) {
        let (port, thread) = (&self.port, &self.thread);
        port.locked(&port.state, thread).await;
        {
            let mut receives = port.receives.borrow_mut();
            if receives.to_start() < port.submit_after {
                let taken = receives.ready.len().min(port.batch);
                batch.extend(receives.ready.drain(..taken));
                receives.armed -= taken as u32;
            }
        }
        if !batch.is_empty() {
            thread.run(port.server.times.take).await;
        }
        port.unlocked(&port.state, thread).await;
    }

    /// Sleeps until there is something to take.
    async fn wait(&self) {
        let (port, thread) = (&self.port, &self.thread);
        let times = &port.server.times;
        let nothing = || {
            port.receives.borrow().ready.is_empty() && !port.socket.is_ready(thread.world().now())
        };
        while nothing() {
            thread.run(times.call + times.switch).await;
            if nothing() {
                port.socket.wait(thread).await;
            }
        }
    }

    /// Enters the kernel: what waits is armed, and each that is armed takes a datagram, if one has come. What the entry
    /// itself costs is in what a take was measured to cost.
    async fn enter(&self) {
        let (port, thread) = (&self.port, &self.thread);
        port.locked(&port.submitting, thread).await;
        let (submitted, idle) = {
            let mut receives = port.receives.borrow_mut();
            let submitted = receives.to_start();
            receives.armed += submitted;
            (submitted, receives.idle())
        };
        let mut one = Vec::with_capacity(1);
        for _ in 0..idle {
            if port.socket.take(thread.world().now(), 1, &mut one) == 0 {
                break;
            }
            thread.run(port.server.times.take_each).await;
            port.receives.borrow_mut().ready.extend(one.drain(..));
        }
        {
            let mut receives = port.receives.borrow_mut();
            let ready = receives.ready.len() as u32;
            receives.armed_count.entered(submitted, ready);
        }
        port.unlocked(&port.submitting, thread).await;
    }

    async fn may_go_on(&self) -> bool {
        if self.role != Role::Running {
            return false;
        }
        let port = &self.port;
        port.locked(&port.limit, &self.thread).await;
        let may = port.rules.borrow().may_go_on();
        port.unlocked(&port.limit, &self.thread).await;
        may
    }

    /// Leads, if nobody else does and one more may run.
    async fn try_lead(&mut self) -> bool {
        let port = Rc::clone(&self.port);
        port.locked(&port.limit, &self.thread).await;
        let led = port.rules.borrow_mut().try_lead(self.role);
        port.unlocked(&port.limit, &self.thread).await;
        let Some(wake) = led else { return false };
        self.role = Role::Leading;
        port.wake(&self.thread, wake).await;
        true
    }

    /// Waits until this thread leads.
    async fn lead(&mut self) {
        let port = Rc::clone(&self.port);
        let place = self.thread.number();
        port.locked(&port.limit, &self.thread).await;
        let (mut asked, wake) = port.rules.borrow_mut().lead(place, self.role);
        self.role = Role::Outside;
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
