//! The four rings of an AF_XDP socket: memory shared with the kernel, in which one side produces
//! entries and the other consumes them.
//!
//! Each side owns one of two counts that only grow, and reads the other's. A count says which entry
//! is next by its lower bits, so a ring has a power of two of entries, and the difference of the
//! counts says how many lie in it. The one who writes an entry does so before he raises his count
//! (release), and the other reads it after the count (acquire); so no call is needed.
//!
//! What the kernel writes is not believed further than that: a count that makes no sense is
//! bounded by the size of the ring.
//!
//! Origin: linux/if_xdp.h; Documentation/networking/af_xdp.rst.

use std::{
    ptr::NonNull,
    sync::atomic::{AtomicU32, Ordering},
};

/// Set in the flags of a ring where the kernel waits for a call before it goes on (need-wakeup).
pub const NEEDS_WAKEUP: u32 = libc::XDP_RING_NEED_WAKEUP;

/// Where the parts of a ring lie, and how many entries it has.
pub struct Shape<E> {
    pub producer: NonNull<AtomicU32>,
    pub consumer: NonNull<AtomicU32>,
    pub flags: NonNull<AtomicU32>,
    pub entries: NonNull<E>,
    /// A power of two.
    pub size: u32,
    /// Whoever keeps that memory: it is dropped with the ring.
    #[expect(dead_code, reason = "it is kept, and dropped in the end")]
    pub memory: Box<dyn Send>,
}

struct Ring<E>(Shape<E>);

// SAFETY: the memory is reached through the two counts, which are atomic, and through entries that
// belong to one side at a time; its keeper is `Send`, and so are entries, which are plain numbers.
unsafe impl<E: Copy + Send> Send for Ring<E> {}

impl<E: Copy> Ring<E> {
    fn new(shape: Shape<E>) -> Self {
        assert!(shape.size.is_power_of_two(), "a ring of {} entries", shape.size);
        Self(shape)
    }

    #[inline]
    fn entry(&self, number: u32) -> *mut E {
        // SAFETY: the mask keeps the place within the ring's entries.
        unsafe { self.0.entries.as_ptr().add((number & (self.0.size - 1)) as usize) }
    }

    #[inline]
    fn producer(&self) -> &AtomicU32 {
        // SAFETY: whoever made the shape vouched for it, and its memory lives as long.
        unsafe { self.0.producer.as_ref() }
    }

    #[inline]
    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as in `producer`.
        unsafe { self.0.consumer.as_ref() }
    }

    #[inline]
    fn needs_wakeup(&self) -> bool {
        // SAFETY: as in `producer`.
        unsafe { self.0.flags.as_ref() }.load(Ordering::Relaxed) & NEEDS_WAKEUP != 0
    }
}

/// The side of a ring that writes entries: of the fill ring and of the transmit ring ours.
pub struct Producer<E> {
    ring: Ring<E>,
    /// Our own count, with what is not published yet.
    next: u32,
    /// The other side's count, as last read.
    consumed: u32,
}

impl<E: Copy> Producer<E> {
    /// # Safety
    /// The parts lie in memory that stays as long as `shape.memory`, aligned, with as many entries
    /// as it says; nobody else writes entries or the producer's count.
    pub unsafe fn new(shape: Shape<E>) -> Self {
        let ring = Ring::new(shape);
        let next = ring.producer().load(Ordering::Relaxed);
        let consumed = ring.consumer().load(Ordering::Acquire);
        Self { ring, next, consumed }
    }

    /// How many entries could be pushed now. Reads the other side's count only where `wanted` seem
    /// not to fit.
    #[inline]
    pub fn room(&mut self, wanted: u32) -> u32 {
        let size = self.ring.0.size;
        let room = |consumed| size.saturating_sub(self.next.wrapping_sub(consumed));
        if room(self.consumed) < wanted {
            self.consumed = self.ring.consumer().load(Ordering::Acquire);
        }
        size.saturating_sub(self.next.wrapping_sub(self.consumed))
    }

    /// Writes an entry, which the other side sees once it is published. False: the ring is full.
    #[inline]
    pub fn push(&mut self, entry: E) -> bool {
        if self.room(1) == 0 {
            return false;
        }
        // SAFETY: the place lies in the ring, and the other side has consumed what was there.
        unsafe { self.ring.entry(self.next).write(entry) };
        self.next = self.next.wrapping_add(1);
        true
    }

    /// Shows what was pushed to the other side.
    #[inline]
    pub fn publish(&mut self) {
        self.ring.producer().store(self.next, Ordering::Release);
    }

    /// How many published entries the other side has not consumed.
    #[inline]
    pub fn waiting(&mut self) -> u32 {
        self.consumed = self.ring.consumer().load(Ordering::Acquire);
        self.next.wrapping_sub(self.consumed).min(self.ring.0.size)
    }

    /// Whether the kernel has to be called before it consumes.
    #[inline]
    pub fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }
}

/// The side of a ring that reads entries: of the receive ring and of the completion ring ours.
pub struct Consumer<E> {
    ring: Ring<E>,
    /// Our own count, with what is not released yet.
    next: u32,
    /// The other side's count, as last read.
    produced: u32,
}

impl<E: Copy> Consumer<E> {
    /// # Safety
    /// As for [`Producer::new`], with the sides exchanged.
    pub unsafe fn new(shape: Shape<E>) -> Self {
        let ring = Ring::new(shape);
        let next = ring.consumer().load(Ordering::Relaxed);
        Self { ring, next, produced: next }
    }

    /// Reads the next entry, if there is one. Its place is the other side's again once it is
    /// released.
    #[inline]
    pub fn take(&mut self) -> Option<E> {
        if self.next == self.produced && self.available() == 0 {
            return None;
        }
        // SAFETY: the place lies in the ring, and the other side published what is there.
        let entry = unsafe { self.ring.entry(self.next).read() };
        self.next = self.next.wrapping_add(1);
        Some(entry)
    }

    /// How many entries can be taken.
    #[inline]
    pub fn available(&mut self) -> u32 {
        let produced = self.ring.producer().load(Ordering::Acquire);
        let available = produced.wrapping_sub(self.next).min(self.ring.0.size);
        self.produced = self.next.wrapping_add(available);
        available
    }

    /// Gives the places of what was taken back to the other side.
    #[inline]
    pub fn release(&mut self) {
        self.ring.consumer().store(self.next, Ordering::Release);
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::{cell::UnsafeCell, sync::Arc};

    /// A ring in plain memory.
    pub struct Plain<E> {
        counts: [AtomicU32; 3],
        entries: Box<[UnsafeCell<E>]>,
    }

    // SAFETY: the entries are reached through the two sides of a ring only.
    unsafe impl<E: Send> Sync for Plain<E> {}

    /// A shape over it whose counts stand at `start` already.
    pub fn plain<E: Copy + Send + Default + 'static>(size: u32, start: u32) -> Arc<Plain<E>> {
        let entries = (0..size).map(|_| UnsafeCell::new(E::default())).collect();
        Arc::new(Plain { counts: [start, start, 0].map(AtomicU32::new), entries })
    }

    impl<E: Copy + Send + 'static> Plain<E> {
        pub fn shape(self: &Arc<Self>) -> Shape<E> {
            let [producer, consumer, flags] = &self.counts;
            Shape {
                producer: producer.into(),
                consumer: consumer.into(),
                flags: flags.into(),
                entries: NonNull::new(UnsafeCell::raw_get(self.entries.as_ptr())).unwrap(),
                size: self.entries.len() as u32,
                memory: Box::new(Arc::clone(self)),
            }
        }

        pub fn set_flags(&self, flags: u32) {
            self.counts[2].store(flags, Ordering::Relaxed);
        }

        pub fn set_produced(&self, count: u32) {
            self.counts[0].store(count, Ordering::Release);
        }
    }

    /// Both sides of a ring in plain memory.
    pub fn sides<E: Copy + Send + Default + 'static>(
        size: u32,
        start: u32,
    ) -> (Arc<Plain<E>>, Producer<E>, Consumer<E>) {
        let plain = plain(size, start);
        // SAFETY: the parts live in `plain`, which each side keeps, and each side is there once.
        unsafe { (Arc::clone(&plain), Producer::new(plain.shape()), Consumer::new(plain.shape())) }
    }

    #[test]
    fn entries_come_in_order_across_the_end_of_the_counts() {
        let (_, mut producer, mut consumer) = sides::<u64>(4, u32::MAX - 5);
        let (mut sent, mut came) = (0u64, 0u64);
        for round in 0..40 {
            let many = round % 5;
            for _ in 0..many {
                assert_eq!(producer.push(sent), sent - came < 4, "{sent} sent, {came} came");
                sent += u64::from(sent - came < 4);
            }
            assert_eq!(producer.room(4), (4 - (sent - came)) as u32);
            assert_eq!(consumer.available(), 0, "nothing is seen before it is published");
            producer.publish();
            assert_eq!(producer.waiting(), (sent - came) as u32);
            while let Some(entry) = consumer.take() {
                assert_eq!(entry, came);
                came += 1;
            }
            consumer.release();
        }
        assert!(sent > 40);
        assert_eq!(came, sent);
    }

    #[test]
    fn a_place_is_free_only_after_its_release() {
        let (_, mut producer, mut consumer) = sides::<u64>(2, 0);
        assert!(producer.push(1) && producer.push(2) && !producer.push(3));
        producer.publish();
        assert_eq!(consumer.take(), Some(1));
        assert!(!producer.push(3), "taken, not released");
        consumer.release();
        assert!(producer.push(3) && !producer.push(4));
        producer.publish();
        assert_eq!([consumer.take(), consumer.take(), consumer.take()], [Some(2), Some(3), None]);
    }

    #[test]
    fn a_count_that_makes_no_sense_is_bounded_by_the_ring() {
        let (plain, mut producer, mut consumer) = sides::<u64>(4, 0);
        plain.set_produced(1000);
        assert_eq!(consumer.available(), 4);
        assert_eq!(std::iter::from_fn(|| consumer.take()).take(5).count(), 5);
        consumer.release(); // beyond what we produced
        assert!(producer.room(1) <= 4 && producer.waiting() <= 4);
    }

    #[test]
    fn the_wish_for_a_call_is_seen() {
        let (plain, producer, _) = sides::<u64>(4, 0);
        assert!(!producer.needs_wakeup());
        plain.set_flags(NEEDS_WAKEUP);
        assert!(producer.needs_wakeup());
    }

    #[test]
    fn two_threads_exchange_every_entry() {
        const ENTRIES: u64 = if cfg!(miri) { 200 } else { 100_000 };
        let (_, mut producer, mut consumer) = sides::<[u64; 2]>(8, 7);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut sent = 0;
                while sent < ENTRIES {
                    while sent < ENTRIES && producer.push([sent, !sent]) {
                        sent += 1;
                    }
                    producer.publish();
                    std::thread::yield_now();
                }
            });
            let mut came = 0;
            while came < ENTRIES {
                while let Some(entry) = consumer.take() {
                    assert_eq!(entry, [came, !came]);
                    came += 1;
                }
                consumer.release();
                std::thread::yield_now();
            }
        });
    }
}
