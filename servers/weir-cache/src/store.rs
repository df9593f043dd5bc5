//! Keys and values: a map in shards, each behind a lock of its own.
//!
//! A thread that owned all keys would have to be handed every command of the others, and hand back every reply: two
//! wake-ups for what takes 100 ns. A lock that is free takes some 15 ns, and of many shards the one that is wanted is
//! nearly always free. Commands of several keys hold the locks of all their shards, taken in order, so they are atomic.
//!
//! The entries of a shard stand side by side, a cache line each, key and value within it where they are short: with many
//! keys what a command costs is the memory that it waits for, so an index of 4 bytes for each key and one line beyond is
//! all that is looked at. So too, taking a few by chance (to evict the one not used for longest), and going through all
//! a bit at a time (for those that have expired) need no list beside the map.

use crate::clock::Now;
use ahash::RandomState;
use clap::ValueEnum as _;
use hashbrown::HashTable;
use smallvec::SmallVec;
use std::{
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError, TryLockError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread::Thread,
};

/// A key that does not expire.
pub const NEVER: u64 = u64::MAX;

/// What to do with other keys when memory is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Eviction {
    /// Evict none: refuse commands that store
    #[value(name = "noeviction")]
    None,
    /// Evict the least recently used of five keys picked at random
    #[value(name = "allkeys-lru")]
    LeastRecentlyUsed,
    /// Evict a key picked at random
    #[value(name = "allkeys-random")]
    Random,
}

impl Eviction {
    /// Its name in Redis.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().into())
    }
}

/// Memory is full, and nothing may be evicted.
#[derive(Debug, PartialEq, Eq)]
pub struct Full;

/// What was counted since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Keys in the cache.
    pub keys: usize,
    /// Of them, those that expire.
    pub expiring: usize,
    /// Bytes that they take, by estimate.
    pub bytes: usize,
    /// Reads that found their key, and that did not.
    pub hits: u64,
    /// See `hits`.
    pub misses: u64,
    /// Keys that have expired.
    pub expired: u64,
    /// Keys that were evicted.
    pub evicted: u64,
}

/// All keys.
#[derive(Debug)]
pub struct Store {
    shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
    /// Keys of all shards that expire, and who is to be woken when there are any.
    expiring: AtomicUsize,
    sweeper: OnceLock<Thread>,
    budget: Budget,
}

/// The bytes that keys may take in all. Shards lease them in pieces, so that most commands know by their own shard alone
/// that there is room.
#[derive(Debug)]
struct Budget {
    /// Bytes that no shard has leased.
    left: AtomicUsize,
    /// Bytes of a lease. A shard keeps two of them idle at most, so 3 % of all at most are.
    piece: usize,
    /// What each shard has where all have the same. One that has less takes it from those that have more.
    share: usize,
    eviction: Eviction,
}

/// Pieces that the share of a shard has.
const PIECES: usize = 64;

impl Budget {
    fn new(bytes: usize, shards: usize, eviction: Eviction) -> Self {
        let share = bytes / shards;
        Self { left: AtomicUsize::new(bytes), piece: share / PIECES, share, eviction }
    }

    /// Leases at most so many bytes.
    fn take(&self, most: usize) -> usize {
        let taken = self.left.fetch_update(Relaxed, Relaxed, |left| {
            (left > 0 && most > 0).then(|| left.saturating_sub(most))
        });
        taken.map_or(0, |left| left.min(most))
    }
}

/// Most shards: what a command of several keys locks is a set of bits.
pub const MOST_SHARDS: usize = 64;

impl Store {
    /// An empty one, in so many shards (1 to [`MOST_SHARDS`]), whose keys may take so many bytes in all.
    pub fn new(shards: usize, bytes: usize, eviction: Eviction) -> Self {
        let shards = shards.clamp(1, MOST_SHARDS);
        let new = |seed| Mutex::new(Shard { random: seed as u64, ..Shard::default() });
        Self {
            shards: (1..=shards).map(new).collect(),
            hasher: RandomState::new(),
            expiring: AtomicUsize::new(0),
            sweeper: OnceLock::new(),
            budget: Budget::new(bytes, shards, eviction),
        }
    }

    fn shard_of(&self, key: &[u8]) -> usize {
        match self.shards.len() {
            1 => 0,
            count => (self.hasher.hash_one(key) % count as u64) as usize,
        }
    }

    fn lock_at(&self, index: usize) -> Locked<'_> {
        // A command that panicked closed its connection; entries are changed one at a time.
        let shard = self.shards[index].lock().unwrap_or_else(PoisonError::into_inner);
        Locked { expiring: shard.expiring, store: self, shard }
    }

    /// `None` where somebody has it.
    fn try_lock_at(&self, index: usize) -> Option<Locked<'_>> {
        let shard = match self.shards[index].try_lock() {
            Ok(shard) => shard,
            Err(TryLockError::Poisoned(shard)) => shard.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(Locked { expiring: shard.expiring, store: self, shard })
    }

    /// The shard of this key.
    pub fn lock(&self, key: &[u8]) -> Locked<'_> {
        self.lock_at(self.shard_of(key))
    }

    /// The shards of all these keys.
    pub fn lock_all<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> LockedAll<'_> {
        let wanted = keys.fold(0u64, |wanted, key| wanted | 1 << self.shard_of(key));
        // All in one order, so that nobody waits for each other.
        let locked = |index| (wanted >> index & 1 == 1).then(|| self.lock_at(index));
        LockedAll { store: self, shards: (0..self.shards.len()).map(locked).collect() }
    }

    /// Forgets all keys.
    pub fn clear(&self) {
        (0..self.shards.len()).for_each(|index| self.lock_at(index).clear());
    }

    /// What was counted.
    pub fn counts(&self) -> Counts {
        let each = (0..self.shards.len()).map(|index| self.lock_at(index).counts());
        each.fold(Counts::default(), |sum, one| Counts {
            keys: sum.keys + one.keys,
            expiring: sum.expiring + one.expiring,
            bytes: sum.bytes + one.bytes,
            hits: sum.hits + one.hits,
            misses: sum.misses + one.misses,
            expired: sum.expired + one.expired,
            evicted: sum.evicted + one.evicted,
        })
    }

    /// Whether any key expires.
    pub fn any_expires(&self) -> bool {
        self.expiring.load(Relaxed) > 0
    }

    /// The calling thread sweeps, and is to be woken when the first key expires.
    pub fn swept_by_me(&self) {
        let _ = self.sweeper.set(std::thread::current());
    }

    /// Removes keys that have expired without being asked for, among the next `most` of each shard.
    pub fn sweep(&self, now: &Now<'_>, most: usize) {
        (0..self.shards.len()).for_each(|index| self.lock_at(index).sweep(now, most));
    }
}

/// A shard that is locked.
#[derive(Debug)]
pub struct Locked<'a> {
    store: &'a Store,
    shard: MutexGuard<'a, Shard>,
    /// Keys in it that expired when it was locked.
    expiring: usize,
}

impl std::ops::Deref for Locked<'_> {
    type Target = Shard;
    fn deref(&self) -> &Shard {
        &self.shard
    }
}

impl std::ops::DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Shard {
        &mut self.shard
    }
}

impl Locked<'_> {
    /// Makes room before something is stored. As in Redis that is so where the entries take no more than they may: the
    /// command that is let in then may go beyond that, once.
    ///
    /// # Errors
    /// [`Full`] where nothing may be evicted.
    pub fn make_room(&mut self) -> Result<(), Full> {
        while self.shard.bytes > self.shard.leased {
            let budget = &self.store.budget;
            let missing = self.shard.bytes - self.shard.leased;
            let taken = budget.take(missing.max(budget.piece));
            self.shard.leased += taken;
            if taken > 0 || self.take_from_others(missing) {
                continue;
            }
            self.shard.evict(budget.eviction)?;
        }
        Ok(())
    }

    /// Nothing is left to lease: takes what others keep idle and, for a shard that has less than its share, what others
    /// have beyond theirs, whose keys are evicted. Whoever is busy is left out. Says whether it got any.
    fn take_from_others(&mut self, missing: usize) -> bool {
        let Budget { share, eviction, .. } = self.store.budget;
        let evicts = eviction != Eviction::None;
        if evicts && self.shard.leased >= share {
            return false;
        }
        let (shards, first) = (self.store.shards.len(), self.shard.random());
        let mut taken = 0;
        for at in 0..shards {
            // Its own is locked.
            let Some(mut other) = self.store.try_lock_at((first as usize % shards + at) % shards)
            else {
                continue;
            };
            while evicts && other.bytes > share && other.idle() < missing - taken {
                if other.evict(eviction).is_err() {
                    break;
                }
            }
            let idle = other.idle().min(missing - taken);
            other.leased -= idle;
            taken += idle;
            if taken == missing {
                break;
            }
        }
        self.shard.leased += taken;
        taken > 0
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let (idle, piece) = (self.shard.idle(), self.store.budget.piece);
        if idle > 2 * piece {
            self.shard.leased -= idle - piece;
            self.store.budget.left.fetch_add(idle - piece, Relaxed);
        }
        let (before, after) = (self.expiring, self.shard.expiring);
        if after > before {
            if self.store.expiring.fetch_add(after - before, Relaxed) == 0 {
                self.store.sweeper.get().inspect(|sweeper| sweeper.unpark());
            }
        } else if before > after {
            self.store.expiring.fetch_sub(before - after, Relaxed);
        }
    }
}

/// Shards that are locked.
#[derive(Debug)]
pub struct LockedAll<'a> {
    store: &'a Store,
    shards: Vec<Option<Locked<'a>>>,
}

impl<'a> LockedAll<'a> {
    /// The shard of one of the keys that it was locked for.
    pub fn of(&mut self, key: &[u8]) -> &mut Locked<'a> {
        self.shards[self.store.shard_of(key)].as_mut().expect("it was locked for this key")
    }

    /// Makes room in each.
    ///
    /// # Errors
    /// [`Full`] where one has none.
    pub fn make_room(&mut self) -> Result<(), Full> {
        self.shards.iter_mut().flatten().try_for_each(|shard| shard.make_room())
    }
}

/// A part of the keys.
#[derive(Debug, Default)]
pub struct Shard {
    /// Where the entry of each key stands.
    index: HashTable<u32>,
    entries: Vec<Entry>,
    hasher: RandomState,
    /// Bytes that the entries take, by estimate, and how many they may by what was leased.
    bytes: usize,
    leased: usize,
    /// Entries that expire.
    expiring: usize,
    /// Times that an entry was used: the time that the least recently used is found by.
    uses: u32,
    /// Where the next sweep begins.
    swept: usize,
    /// The state of a generator (xorshift).
    random: u64,
    hits: u64,
    misses: u64,
    expired: u64,
    evicted: u64,
}

/// A key and its value: a cache line.
#[derive(Debug)]
#[repr(align(64))]
struct Entry {
    /// The key, and the value behind it.
    bytes: SmallVec<[u8; 40]>,
    key_len: u32,
    /// When it was last used.
    used: u32,
    /// The last moment in milliseconds at which it is there, or [`NEVER`].
    expires: u64,
}

const _: () = assert!(size_of::<Entry>() == 64);

impl Entry {
    fn key(&self) -> &[u8] {
        &self.bytes[..self.key_len as usize]
    }

    fn value(&self) -> &[u8] {
        &self.bytes[self.key_len as usize..]
    }

    /// Bytes that it takes, by estimate.
    fn cost(&self) -> usize {
        // And what the allocator adds.
        OVERHEAD + if self.bytes.spilled() { self.bytes.capacity() + 16 } else { 0 }
    }
}

/// Bytes that an entry takes whose key and value are short: its place among the entries, which have room for half as many
/// again on average, and its place in the index.
pub const OVERHEAD: usize = size_of::<Entry>() * 3 / 2 + 8;

/// Entries that are compared to find the one to evict: as many as Redis takes by default.
const SAMPLES: usize = 5;

impl Shard {
    fn counts(&self) -> Counts {
        let Self { bytes, expiring, hits, misses, expired, evicted, .. } = *self;
        Counts { keys: self.entries.len(), expiring, bytes, hits, misses, expired, evicted }
    }

    fn clear(&mut self) {
        // Its memory goes, too.
        (self.index, self.entries) = (HashTable::new(), Vec::new());
        (self.bytes, self.expiring, self.swept) = (0, 0, 0);
    }

    /// Removes an entry. The last one takes its place.
    fn remove_at(&mut self, at: usize) {
        let Self { index, entries, hasher, .. } = self;
        let place = |key: &[u8]| hasher.hash_one(key);
        let slot = index.find_entry(place(entries[at].key()), |it| *it as usize == at);
        slot.expect("each entry has its place in the index").remove();
        let last = entries.len() - 1;
        if at != last {
            let moved = index.find_mut(place(entries[last].key()), |it| *it as usize == last);
            *moved.expect("each entry has its place in the index") = at as u32;
        }
        let entry = entries.swap_remove(at);
        self.bytes -= entry.cost();
        self.expiring -= usize::from(entry.expires != NEVER);
    }

    /// Where the key stands, though it may have expired.
    fn place(&self, key: &[u8], hash: u64) -> Option<usize> {
        let entries = &self.entries;
        self.index.find(hash, |at| entries[*at as usize].key() == key).map(|at| *at as usize)
    }

    /// Where the key stands, unless it has expired.
    fn find(&mut self, key: &[u8], now: &Now<'_>) -> Option<usize> {
        let at = self.place(key, self.hasher.hash_one(key))?;
        let expires = self.entries[at].expires;
        if expires != NEVER && now.ms() > expires {
            self.remove_at(at);
            self.expired += 1;
            return None;
        }
        Some(at)
    }

    /// The value of a key. It counts as used.
    pub fn get(&mut self, key: &[u8], now: &Now<'_>) -> Option<&[u8]> {
        let Some(at) = self.find(key, now) else {
            self.misses += 1;
            return None;
        };
        self.hits += 1;
        self.uses = self.uses.wrapping_add(1);
        let entry = &mut self.entries[at];
        entry.used = self.uses;
        Some(entry.value())
    }

    /// Whether the key is there.
    pub fn has(&mut self, key: &[u8], now: &Now<'_>) -> bool {
        self.find(key, now).is_some()
    }

    /// Stores a value until this moment; [`NEVER`] for always.
    pub fn set(&mut self, key: &[u8], value: &[u8], expires: u64) {
        self.uses = self.uses.wrapping_add(1);
        let used = self.uses;
        let hash = self.hasher.hash_one(key);
        if let Some(at) = self.place(key, hash) {
            let entry = &mut self.entries[at];
            self.bytes -= entry.cost();
            self.expiring -= usize::from(entry.expires != NEVER);
            // Its memory serves again, unless most of it would lie idle.
            entry.bytes.truncate(key.len());
            if entry.bytes.spilled() && entry.bytes.capacity() > 2 * (key.len() + value.len()) + 64
            {
                entry.bytes.shrink_to_fit();
            }
            entry.bytes.reserve_exact(value.len());
            entry.bytes.extend_from_slice(value);
            (entry.expires, entry.used) = (expires, used);
            self.bytes += entry.cost();
        } else {
            let mut bytes = SmallVec::with_capacity(key.len() + value.len());
            bytes.extend_from_slice(key);
            bytes.extend_from_slice(value);
            let entry = Entry { bytes, key_len: key.len() as u32, used, expires };
            self.bytes += entry.cost();
            let at = u32::try_from(self.entries.len()).expect("memory for so many entries");
            self.entries.push(entry);
            let Self { index, entries, hasher, .. } = self;
            index.insert_unique(hash, at, |at| hasher.hash_one(entries[*at as usize].key()));
        }
        self.expiring += usize::from(expires != NEVER);
    }

    /// Removes a key: whether it was there.
    pub fn remove(&mut self, key: &[u8], now: &Now<'_>) -> bool {
        let at = self.find(key, now);
        at.map(|at| self.remove_at(at)).is_some()
    }

    /// The last moment of a key; `None` where there is no such key.
    pub fn expires(&mut self, key: &[u8], now: &Now<'_>) -> Option<u64> {
        self.find(key, now).map(|index| self.entries[index].expires)
    }

    /// Has a key expire after this moment, or [`NEVER`]: whether there is such a key.
    pub fn set_expires(&mut self, key: &[u8], expires: u64, now: &Now<'_>) -> bool {
        let Some(index) = self.find(key, now) else { return false };
        let before = std::mem::replace(&mut self.entries[index].expires, expires);
        self.expiring += usize::from(expires != NEVER);
        self.expiring -= usize::from(before != NEVER);
        true
    }

    /// Bytes leased that no entry takes.
    fn idle(&self) -> usize {
        self.leased.saturating_sub(self.bytes)
    }

    /// Evicts one of its entries; there is one.
    ///
    /// # Errors
    /// [`Full`] where none may be evicted.
    fn evict(&mut self, eviction: Eviction) -> Result<(), Full> {
        let index = match eviction {
            Eviction::None => return Err(Full),
            Eviction::Random => self.any_index(),
            Eviction::LeastRecentlyUsed => {
                let sample: [usize; SAMPLES] = std::array::from_fn(|_| self.any_index());
                let age = |at: &usize| self.uses.wrapping_sub(self.entries[*at].used);
                sample.into_iter().max_by_key(age).unwrap_or(0)
            }
        };
        self.remove_at(index);
        self.evicted += 1;
        Ok(())
    }

    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// An entry by chance; there is one.
    fn any_index(&mut self) -> usize {
        (self.random() % self.entries.len() as u64) as usize
    }

    fn sweep(&mut self, now: &Now<'_>, most: usize) {
        for _ in 0..most.min(self.entries.len()) {
            if self.expiring == 0 {
                break;
            }
            if self.swept >= self.entries.len() {
                self.swept = 0;
            }
            let expires = self.entries[self.swept].expires;
            if expires != NEVER && now.ms() > expires {
                // The last entry takes its place, and is looked at next.
                self.remove_at(self.swept);
                self.expired += 1;
            } else {
                self.swept += 1;
            }
        }
        if self.entries.capacity() > 4 * self.entries.len() + 1024 {
            let Self { index, entries, hasher, .. } = self;
            entries.shrink_to(2 * entries.len());
            index.shrink_to(2 * entries.len(), |at| hasher.hash_one(entries[*at as usize].key()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use proptest::prelude::*;
    use std::{
        collections::HashMap,
        sync::{Arc, atomic::AtomicU64},
    };

    fn set_clock() -> (Clock, Arc<AtomicU64>) {
        let time = Arc::new(AtomicU64::new(0));
        (Clock::Set(Arc::clone(&time)), time)
    }

    #[derive(Debug, Clone)]
    enum Step {
        Set(u8, usize, Option<u8>),
        Get(u8),
        Remove(u8),
        Expire(u8, Option<u8>),
        Later(u8),
        Sweep,
        Clear,
    }

    fn step() -> impl Strategy<Value = Step> {
        let key = || 0..20u8;
        prop_oneof![
            4 => (key(), 0..300usize, prop::option::of(0..50u8)).prop_map(|(key, length, after)| Step::Set(key, length, after)),
            4 => key().prop_map(Step::Get),
            2 => key().prop_map(Step::Remove),
            2 => (key(), prop::option::of(0..50u8)).prop_map(|(key, after)| Step::Expire(key, after)),
            2 => (0..30u8).prop_map(Step::Later),
            1 => Just(Step::Sweep),
            1 => Just(Step::Clear),
        ]
    }

    proptest! {
        #[test]
        fn a_store_is_a_map_whose_keys_expire(shards in 1..5usize, steps in prop::collection::vec(step(), 1..80)) {
            let (clock, time) = set_clock();
            let store = Store::new(shards, usize::MAX, Eviction::None);
            let mut model: HashMap<u8, (usize, u64)> = HashMap::new();
            let when = |after: Option<u8>, at: u64| after.map_or(NEVER, |after| at + u64::from(after));
            for step in steps {
                let now = clock.now();
                let at = now.ms();
                model.retain(|_, (_, expires)| *expires == NEVER || at <= *expires);
                match step {
                    Step::Set(key, length, after) => {
                        store.lock(&[key]).set(&[key], &vec![key; length], when(after, at));
                        model.insert(key, (length, when(after, at)));
                    }
                    Step::Get(key) => {
                        let mut shard = store.lock(&[key]);
                        let expected = model.get(&key).map(|(length, _)| vec![key; *length]);
                        prop_assert_eq!(shard.get(&[key], &now).map(<[u8]>::to_vec), expected);
                        prop_assert_eq!(shard.expires(&[key], &now), model.get(&key).map(|(_, expires)| *expires));
                    }
                    Step::Remove(key) => {
                        prop_assert_eq!(store.lock(&[key]).remove(&[key], &now), model.remove(&key).is_some());
                    }
                    Step::Expire(key, after) => {
                        let known = model.get_mut(&key).map(|(_, expires)| *expires = when(after, at)).is_some();
                        prop_assert_eq!(store.lock(&[key]).set_expires(&[key], when(after, at), &now), known);
                    }
                    Step::Later(ms) => time.store(at + u64::from(ms), Relaxed),
                    Step::Sweep => {
                        // From the middle, and then what that has left out.
                        (0..2).for_each(|_| store.sweep(&now, usize::MAX));
                        let counts = store.counts();
                        prop_assert_eq!(counts.keys, model.len());
                        prop_assert_eq!(counts.expiring, model.values().filter(|(_, expires)| *expires != NEVER).count());
                        prop_assert_eq!(store.any_expires(), counts.expiring > 0);
                    }
                    Step::Clear => {
                        store.clear();
                        model.clear();
                    }
                }
            }
            // What is counted is what is there.
            let mut bytes = 0;
            for shard in &store.shards {
                let shard = shard.lock().unwrap();
                bytes += shard.entries.iter().map(Entry::cost).sum::<usize>();
            }
            prop_assert_eq!(store.counts().bytes, bytes);
        }

        #[test]
        fn what_is_leased_and_what_is_left_is_the_limit_and_nobody_takes_more(
            shards in 1..6usize,
            most in 0..6000usize,
            eviction in prop::sample::select(vec![Eviction::None, Eviction::LeastRecentlyUsed, Eviction::Random]),
            steps in prop::collection::vec((any::<u8>(), 0..400usize, any::<bool>()), 1..200),
        ) {
            let (clock, _) = set_clock();
            let store = Store::new(shards, most, eviction);
            for (key, length, keep) in steps {
                let key = [key];
                match keep {
                    true => {
                        let mut shard = store.lock(&key);
                        if shard.make_room().is_ok() {
                            prop_assert!(shard.bytes <= shard.leased);
                            shard.set(&key, &vec![0; length], NEVER);
                        } else {
                            prop_assert_eq!(eviction, Eviction::None);
                            drop(shard);
                            prop_assert!(store.counts().bytes > most, "refused though there is room");
                        }
                    }
                    false => _ = store.lock(&key).remove(&key, &clock.now()),
                }
                let leased: usize = store.shards.iter().map(|shard| shard.lock().unwrap().leased).sum();
                prop_assert_eq!(leased + store.budget.left.load(Relaxed), most);
            }
        }
    }

    /// Names of `count` keys of one shard.
    fn keys_of(store: &Store, shard: usize, count: usize) -> Vec<[u8; 4]> {
        let all = (0u32..).map(u32::to_le_bytes);
        all.filter(|key| store.shard_of(key) == shard).take(count).collect()
    }

    const BIG: [u8; 1000] = [0; 1000];

    #[test]
    fn one_shard_may_have_what_the_others_leave() {
        let store = Store::new(8, 100_000, Eviction::None);
        for key in keys_of(&store, 3, 70) {
            let mut shard = store.lock(&key);
            assert_eq!(shard.make_room(), Ok(()), "all of it is free but {} bytes", shard.bytes);
            shard.set(&key, &BIG, NEVER);
        }
        // What it no longer needs goes back.
        store.clear();
        for key in keys_of(&store, 5, 70) {
            let mut shard = store.lock(&key);
            assert_eq!(shard.make_room(), Ok(()));
            shard.set(&key, &BIG, NEVER);
        }
    }

    #[test]
    fn a_shard_that_comes_late_gets_its_share() {
        for eviction in [Eviction::LeastRecentlyUsed, Eviction::Random] {
            let (clock, _) = set_clock();
            let store = Store::new(4, 100_000, eviction);
            let set = |shard, count| {
                let keys = keys_of(&store, shard, count);
                for key in &keys {
                    let mut shard = store.lock(key);
                    shard.make_room().unwrap();
                    shard.set(key, &BIG, NEVER);
                }
                keys.iter().filter(|key| store.lock(*key).has(*key, &clock.now())).count()
            };
            assert!(set(0, 100) > 80, "it has all");
            assert_eq!(set(1, 20), 20, "its share is of 25,000 bytes");
            assert!(store.counts().bytes <= 100_000 + 2 * 1200);
        }
    }

    #[test]
    fn threads_that_take_from_each_other_wait_for_nobody() {
        let (clock, _) = set_clock();
        let store = Store::new(4, 20_000, Eviction::LeastRecentlyUsed);
        std::thread::scope(|scope| {
            for thread in 0..4u32 {
                let (store, clock) = (&store, &clock);
                scope.spawn(move || {
                    for number in 0..2000u32 {
                        let keys = [number.to_le_bytes(), (number ^ thread << 8).to_le_bytes()];
                        let mut shards = store.lock_all(keys.iter().map(|key| &key[..]));
                        shards.make_room().unwrap();
                        for key in &keys {
                            shards.of(key).set(key, &BIG[..number as usize % 900], NEVER);
                        }
                        shards.of(&keys[0]).remove(&keys[0], &clock.now());
                    }
                });
            }
        });
        let leased: usize = store.shards.iter().map(|it| it.lock().unwrap().leased).sum();
        assert_eq!(leased + store.budget.left.load(Relaxed), 20_000);
    }

    #[test]
    fn a_key_expires_after_its_last_millisecond_and_no_sooner() {
        let (clock, time) = set_clock();
        let store = Store::new(1, usize::MAX, Eviction::None);
        store.lock(b"k").set(b"k", b"v", 1000);
        time.store(1000, Relaxed);
        assert!(store.lock(b"k").has(b"k", &clock.now()));
        time.store(1001, Relaxed);
        assert!(!store.lock(b"k").has(b"k", &clock.now()));
        assert_eq!((store.counts().expired, store.counts().bytes), (1, 0));
    }

    #[test]
    fn a_sweep_goes_through_all_a_bit_at_a_time() {
        let (clock, time) = set_clock();
        let store = Store::new(1, usize::MAX, Eviction::None);
        for number in 0..100u32 {
            let expires = if number % 2 == 0 { 5 } else { NEVER };
            store.lock(b"").set(&number.to_le_bytes(), b"", expires);
        }
        time.store(6, Relaxed);
        let mut sweeps = 0;
        while store.any_expires() {
            let before = store.counts().keys;
            store.sweep(&clock.now(), 10);
            assert!(before - store.counts().keys <= 10);
            sweeps += 1;
        }
        assert!((5..=20).contains(&sweeps), "{sweeps}");
        assert_eq!((store.counts().keys, store.counts().expired), (50, 50));
    }

    #[test]
    fn memory_stays_within_its_limit_and_the_recently_used_stay_in_it() {
        let (clock, _) = set_clock();
        let each = OVERHEAD + 104 + 16;
        let store = Store::new(1, 100 * each, Eviction::LeastRecentlyUsed);
        for number in 0..1000u32 {
            let mut shard = store.lock(b"");
            shard.make_room().unwrap();
            shard.set(&number.to_le_bytes(), &[0; 100], NEVER);
            assert!(shard.bytes <= 101 * each);
            // One is used all the time.
            assert!(shard.get(&0u32.to_le_bytes(), &clock.now()).is_some(), "after {number}");
        }
        assert_eq!(store.counts().evicted, 1000 - 101);
        let full = Store::new(1, 0, Eviction::None);
        assert_eq!(full.lock(b"").make_room(), Ok(()));
        full.lock(b"").set(b"k", b"v", NEVER);
        assert_eq!(full.lock_all([&b"k"[..]].into_iter()).make_room(), Err(Full));
        let random = Store::new(1, 0, Eviction::Random);
        random.lock(b"").set(b"k", b"v", NEVER);
        assert_eq!(random.lock(b"").make_room(), Ok(()));
        assert_eq!(random.counts().keys, 0);
    }
}
