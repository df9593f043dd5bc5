//! Who leads, who runs and who is woken: what a [`Limit`](super::Limit) decides, without its lock and its condition
//! variables. A model of a server decides by the same code.

use std::collections::VecDeque;

/// The limit, and who is where under it. Threads are told apart by their place, a number below that of the threads.
#[derive(Debug)]
pub struct Rules {
    /// Most threads that run at a time.
    limit: u32,
    running: u32,
    /// Whether a thread leads, or was granted that.
    led: bool,
    /// Threads that wait to lead, the latest on top.
    parked: Vec<usize>,
    /// Threads that wait to enter, the first in front.
    entering: VecDeque<usize>,
    /// What each waiting thread was granted.
    granted: Box<[Granted]>,
    closed: bool,
}

/// What a thread that waits was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Granted {
    /// Nothing yet.
    Nothing,
    /// It leads.
    Lead,
    /// It runs.
    Run,
}

/// What a thread does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It blocks elsewhere, or waits.
    Outside,
    /// It handles what it took.
    Running,
    /// It waits in the queue.
    Leading,
}

/// What becomes of a thread that asks to lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// It leads.
    Leads,
    /// It is on the stack, and waits until it is told.
    Parks,
    /// Nobody leads any more.
    Closed,
}

/// Threads to be woken after a change.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
#[must_use = "whoever was granted something must be woken"]
pub struct Wake {
    /// It may run.
    pub runner: Option<usize>,
    /// It leads.
    pub leader: Option<usize>,
}

impl Rules {
    /// Lets at most `limit` of up to `threads` threads run at a time.
    ///
    /// # Panics
    /// If `limit` is 0: nobody could ever run.
    pub fn new(limit: u32, threads: usize) -> Self {
        assert!(limit > 0, "a limit of 0 lets nobody run");
        Self {
            limit,
            running: 0,
            led: false,
            parked: Vec::with_capacity(threads),
            entering: VecDeque::with_capacity(threads),
            granted: vec![Granted::Nothing; threads].into(),
            closed: false,
        }
    }

    /// Nobody leads from now on. Whoever waits must be woken.
    pub fn close(&mut self) {
        self.closed = true;
        self.parked.clear();
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// The threads that wait to lead, the latest last.
    pub fn parked(&self) -> &[usize] {
        &self.parked
    }

    /// How many threads run.
    pub fn running(&self) -> u32 {
        self.running
    }

    /// How many threads wait to enter.
    pub fn entering(&self) -> usize {
        self.entering.len()
    }

    /// Whether a thread that runs may take what lies ready and run on: nobody leads, who would take it, or waits to
    /// enter.
    #[inline]
    pub fn may_go_on(&self) -> bool {
        !self.led && self.entering.is_empty() && !self.closed
    }

    /// Lets a thread lead that does what `role` says, if nobody else does and one more may run. `None`: nothing has
    /// changed.
    pub fn try_lead(&mut self, role: Role) -> Option<Wake> {
        let others = self.running - u32::from(role == Role::Running);
        // Whoever waits to enter goes first.
        let permits = self.limit - others;
        if self.led || self.closed || permits as usize <= self.entering.len() {
            return None;
        }
        self.stop_running(role);
        let wake = self.admit();
        self.led = true;
        Some(wake)
    }

    /// Ends a thread's running, and lets it lead or puts it on the stack.
    pub fn lead(&mut self, place: usize, role: Role) -> (Asked, Wake) {
        self.stop_running(role);
        if self.closed {
            return (Asked::Closed, self.settle());
        }
        // Whoever waits to enter goes first; after that this thread is the latest to wait.
        let wake = self.admit();
        if self.running < self.limit && !self.led {
            self.led = true;
            return (Asked::Leads, wake);
        }
        self.parked.push(place);
        self.granted[place] = Granted::Nothing;
        (Asked::Parks, wake)
    }

    /// What has become of a thread that parked. One that was granted the lead after the end gives that up.
    pub fn asked(&mut self, place: usize) -> Asked {
        match (self.granted[place], self.closed) {
            (Granted::Lead, false) => Asked::Leads,
            (granted, true) => {
                if granted == Granted::Lead {
                    self.led = false;
                }
                Asked::Closed
            }
            (_, false) => Asked::Parks,
        }
    }

    /// Takes a thread off the stack that waits no longer.
    pub fn unpark(&mut self, place: usize) {
        self.parked.retain(|&parked| parked != place);
    }

    /// Lets a thread run, or puts it at the end of those that wait until they may.
    #[must_use]
    pub fn enter(&mut self, place: usize) -> bool {
        if self.running < self.limit {
            debug_assert!(self.entering.is_empty(), "a permit lay idle");
            self.running += 1;
            return true;
        }
        self.entering.push_back(place);
        self.granted[place] = Granted::Nothing;
        false
    }

    /// What a thread that waits was told.
    pub fn granted(&self, place: usize) -> Granted {
        self.granted[place]
    }

    /// Ends what a thread does. [`settle`](Self::settle) gives away what that has set free.
    pub fn stop(&mut self, role: Role) {
        match role {
            Role::Outside => {}
            Role::Running => self.running -= 1,
            Role::Leading => self.led = false,
        }
    }

    /// Gives away what a change has set free: at most one permit, and the lead.
    pub fn settle(&mut self) -> Wake {
        let mut wake = self.admit();
        if self.running < self.limit && !self.led && !self.closed {
            wake.leader = self.parked.pop();
            if let Some(place) = wake.leader {
                self.led = true;
                self.granted[place] = Granted::Lead;
            }
        }
        wake
    }

    /// Lets the first of those who wait to enter run, if one more may.
    fn admit(&mut self) -> Wake {
        let mut wake = Wake::default();
        if self.running < self.limit {
            wake.runner = self.entering.pop_front();
            if let Some(place) = wake.runner {
                self.running += 1;
                self.granted[place] = Granted::Run;
            }
        }
        wake
    }

    fn stop_running(&mut self, role: Role) {
        debug_assert!(role != Role::Leading, "the leader cannot wait for the lead");
        self.stop(role);
    }
}
