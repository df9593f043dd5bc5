//! A thread that waits in a completion queue while nothing is there, for runtimes that cannot watch it.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// What is asked of the thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// Nothing: somebody dequeues.
    Rest,
    /// To wait in the queue, and to wake who reads.
    Wait,
    /// To end.
    End,
}

/// Between the thread and who reads.
#[derive(Debug)]
pub(crate) struct Orders {
    asked: Mutex<Asked>,
    changed: Condvar,
}

impl Default for Orders {
    fn default() -> Self {
        Self { asked: Mutex::new(Asked::Rest), changed: Condvar::new() }
    }
}

impl Orders {
    fn lock(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the thread wait in the queue, unless it is to end.
    pub(crate) fn wait(&self) {
        let mut asked = self.lock();
        if *asked == Asked::Rest {
            *asked = Asked::Wait;
            self.changed.notify_one();
        }
    }

    /// Has it end, after the wait that it may be in.
    pub(crate) fn end(&self) {
        *self.lock() = Asked::End;
        self.changed.notify_one();
    }

    /// For the thread: sleeps until it is to wait; `false`: to end.
    pub(crate) fn next(&self) -> bool {
        let mut asked = self.lock();
        while *asked == Asked::Rest {
            asked = self.changed.wait(asked).unwrap_or_else(PoisonError::into_inner);
        }
        if *asked == Asked::Wait {
            *asked = Asked::Rest;
        }
        *asked == Asked::Rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, mpsc};

    #[test]
    fn it_waits_each_time_that_it_is_asked_to_and_ends_for_good() {
        let orders = Arc::new(Orders::default());
        let (told, waits) = mpsc::channel();
        let thread = {
            let orders = Arc::clone(&orders);
            std::thread::spawn(move || {
                while orders.next() {
                    told.send(()).unwrap();
                }
            })
        };
        for _ in 0..3 {
            orders.wait();
            waits.recv().unwrap();
        }
        orders.end();
        orders.wait(); // too late
        thread.join().unwrap();
        assert!(waits.recv().is_err());
    }
}
