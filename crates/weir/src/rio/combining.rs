//! A value that several queues bring something to, and none of them waits for.
//!
//! Whoever finds it in use leaves what he brings in a place of his own; who uses it takes that along before he goes, and
//! looks once more after he has gone (flat combining, Hendler, Incze, Shavit and Tzafrir, 2010, without its list of
//! requests). So a queue that posts never waits for one that dequeues, nor for another that posts.
//!
//! | who brings | who uses it |
//! | --- | --- |
//! | leaves it, raises the flag | gives the value up |
//! | *fence* | *fence* |
//! | tries to use the value, once more | looks at the flag |
//!
//! One of the two finds the other: without the fences each could miss the other's store.

use super::sharing::{Shared as _, Sharing};
use crate::sync::{
    AtomicBool,
    Ordering::{Relaxed, SeqCst},
    fence,
};

/// A value `X` to which several queues bring `I`.
pub struct Combining<T: Sharing, X, I> {
    value: T::Shared<X>,
    /// What each queue left while another thread used the value.
    left: Box<[T::Shared<Vec<I>>]>,
    any_left: AtomicBool,
}

impl<T: Sharing, X, I> Combining<T, X, I> {
    /// For so many queues, none of which ever leaves more than `room`.
    pub fn new(value: X, queues: usize, room: usize) -> Self {
        let room = if T::HANDS_OVER { room } else { 0 };
        let place = |_| T::Shared::<_>::new(Vec::with_capacity(room));
        Self {
            value: T::Shared::<_>::new(value),
            left: (0..queues).map(place).collect(),
            any_left: AtomicBool::new(false),
        }
    }

    /// Uses the value, once nobody else does, behind `take` with all that was left. What is left meanwhile is taken
    /// afterwards. Says whether `take` answered yes to any of that.
    pub fn with<R>(
        &self,
        take: impl Fn(&mut X, &mut Vec<I>) -> bool,
        work: impl FnOnce(&mut X) -> R,
    ) -> (R, bool) {
        let mut told = false;
        let result = self.value.with(|value| {
            told = self.take_left(value, &take);
            work(value)
        });
        (result, self.take_rest(&take) | told)
    }

    /// Has `items` taken, at once or by whoever uses the value just now, as far as `may` still allows it. Says whether
    /// `take` answered yes.
    pub fn bring(
        &self,
        queue: usize,
        items: &mut Vec<I>,
        may: impl Fn() -> bool,
        take: impl Fn(&mut X, &mut Vec<I>) -> bool,
    ) -> bool {
        if let Some(told) = self.value.try_with(|value| may() && take(value, items)) {
            return self.take_rest(&take) | told;
        }
        self.leave(queue, items, may);
        self.take_rest(&take)
    }

    #[cold]
    fn leave(&self, queue: usize, items: &mut Vec<I>, may: impl Fn() -> bool) {
        self.left[queue].with(|left| {
            if may() {
                left.append(items);
            }
        });
        self.any_left.store(true, Relaxed);
    }

    /// Takes what was left by those who found the value in use, unless somebody uses it again: then he does.
    #[inline]
    fn take_rest(&self, take: &impl Fn(&mut X, &mut Vec<I>) -> bool) -> bool {
        let mut told = false;
        while self.has_left() {
            match self.value.try_with(|value| self.take_left(value, take)) {
                Some(now) => told |= now,
                None => break,
            }
        }
        told
    }

    #[inline]
    fn has_left(&self) -> bool {
        if !T::HANDS_OVER {
            return false;
        }
        fence(SeqCst);
        self.any_left.load(Relaxed)
    }

    fn take_left(&self, value: &mut X, take: &impl Fn(&mut X, &mut Vec<I>) -> bool) -> bool {
        if !T::HANDS_OVER || !self.any_left.swap(false, SeqCst) {
            return false;
        }
        let mut told = false;
        for left in &self.left {
            told |= left.with(|items| !items.is_empty() && take(value, items));
        }
        told
    }

    /// Lets everybody come to an end who is leaving something or uses the value.
    pub fn wait_for_all(&self) {
        for left in &self.left {
            left.with(|_| ());
        }
        self.value.with(|_| ());
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
