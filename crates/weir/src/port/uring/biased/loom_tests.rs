//! Every interleaving of an owner and another thread, by loom: `RUSTFLAGS="--cfg loom"`. The value is one that loom
//! watches: two at a time, or one that does not see what the other did, is an error.

use super::{Biased, QUIET};
use loom::{cell::UnsafeCell, sync::Arc, thread};

/// A number that loom watches.
struct Watched(UnsafeCell<u32>);

impl Watched {
    fn add_one(&self) {
        // SAFETY: loom finds out whether it is.
        self.0.with_mut(|number| unsafe { *number += 1 });
    }

    fn get(&self) -> u32 {
        // SAFETY: as above.
        self.0.with(|number| unsafe { *number })
    }
}

// SAFETY: as above.
unsafe impl Send for Watched {}

fn lock() -> Arc<Biased<Watched>> {
    Arc::new(Biased::new(Watched(UnsafeCell::new(0)), true))
}

fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(model);
}

/// The bias is on, goes off, and goes on again.
#[test]
fn one_at_a_time_is_inside() {
    explore(|| {
        let lock = lock();
        let owner = lock.own().unwrap();
        (0..QUIET).for_each(|_| owner.lock().add_one());
        let other = {
            let lock = Arc::clone(&lock);
            thread::spawn(move || lock.lock().add_one())
        };
        (0..=QUIET).for_each(|_| owner.lock().add_one());
        other.join().unwrap();
        assert_eq!(owner.lock().get(), 2 * QUIET + 2);
    });
}

/// Two others come, one behind the other or at the same time.
#[test]
fn others_come_while_the_owner_does() {
    explore(|| {
        let lock = lock();
        let owner = lock.own().unwrap();
        (0..QUIET).for_each(|_| owner.lock().add_one());
        let others: Vec<_> = (0..2)
            .map(|_| {
                let lock = Arc::clone(&lock);
                thread::spawn(move || lock.lock().add_one())
            })
            .collect();
        owner.lock().add_one();
        for other in others {
            other.join().unwrap();
        }
        assert_eq!(lock.lock().get(), QUIET + 3);
    });
}
