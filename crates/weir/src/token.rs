//! Tokens: what a completion says about which request it belongs to.
//!
//! A pointer or a descriptor as token goes wrong when a request is over, its place is used
//! again, and then a late completion of the first one arrives. So a token names a slot *and*
//! which use of that slot it was.

/// 64 bits: the class of request (8), the slot (24), the generation of that slot (32).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Token(u64);

impl Token {
    /// A token of its own class, for requests that need no slot.
    pub const fn bare(class: u8) -> Self {
        Self::new(class, 0, 0)
    }

    /// A token for what keeps its own slots, of which there are 2^24 at most.
    #[inline]
    pub const fn new(class: u8, slot: u32, generation: u32) -> Self {
        Self((class as u64) << 56 | (slot as u64) << 32 | generation as u64)
    }

    /// The token of a request that cancels this one, whose class is below [`CANCEL`](Self::CANCEL).
    #[inline]
    pub const fn of_its_cancel(self) -> Self {
        Self(self.0 | (Self::CANCEL as u64) << 56)
    }

    /// What a request was to cancel, if this is the token of one.
    #[inline]
    pub const fn cancelled(self) -> Option<Self> {
        match self.class() & Self::CANCEL {
            0 => None,
            _ => Some(Self(self.0 & !((Self::CANCEL as u64) << 56))),
        }
    }

    /// The bit in the class of requests that cancel one other.
    const CANCEL: u8 = 0x80;

    /// Reads the user data of a completion.
    #[inline]
    pub const fn from_user_data(data: u64) -> Self {
        Self(data)
    }

    /// The user data of a submission.
    #[inline]
    pub const fn user_data(self) -> u64 {
        self.0
    }

    /// The class of request: each [`Slots`] has one.
    #[inline]
    pub const fn class(self) -> u8 {
        (self.0 >> 56) as u8
    }

    /// The slot, below the capacity of its [`Slots`].
    #[inline]
    pub const fn slot(self) -> usize {
        (self.0 >> 32) as usize & 0xff_ffff
    }

    /// Which use of the slot.
    #[inline]
    pub const fn generation(self) -> u32 {
        self.0 as u32
    }
}

/// Requests under way, by token. Holds at most as many as it was made for; when it is full,
/// it gives the value back.
#[derive(Debug)]
pub(crate) struct Slots<V> {
    class: u8,
    slots: Vec<Slot<V>>,
    /// How many there may be.
    most: usize,
    /// Slots not in use, the latest on top.
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot<V> {
    generation: u32,
    value: Option<V>,
}

/// The most slots that a token can tell apart.
const MOST_SLOTS: usize = 1 << 24;

impl<V> Slots<V> {
    /// Room for `capacity` requests of this class; all memory is taken here.
    ///
    /// # Panics
    /// If a token could not tell so many slots apart (2^24).
    pub fn new(class: u8, capacity: usize) -> Self {
        assert!(capacity <= MOST_SLOTS, "{capacity} slots do not fit a token");
        Self {
            class,
            slots: (0..capacity).map(|_| Slot { generation: 0, value: None }).collect(),
            most: capacity,
            free: (0..capacity as u32).rev().collect(),
        }
    }

    /// Room for up to `most` requests of this class; memory is taken as there are more of them.
    ///
    /// # Panics
    /// If a token could not tell so many slots apart (2^24).
    pub fn growing(class: u8, most: usize) -> Self {
        assert!(most <= MOST_SLOTS, "{most} slots do not fit a token");
        Self { class, slots: Vec::new(), most, free: Vec::new() }
    }

    /// Adds a request.
    ///
    /// # Errors
    /// Gives the value back when every slot is in use.
    #[inline]
    pub fn insert(&mut self, value: V) -> Result<Token, V> {
        let Some(index) = self.free.pop().or_else(|| self.one_more()) else { return Err(value) };
        let slot = &mut self.slots[index as usize];
        slot.value = Some(value);
        Ok(Token::new(self.class, index, slot.generation))
    }

    #[cold]
    fn one_more(&mut self) -> Option<u32> {
        let index = self.slots.len();
        (index < self.most).then(|| self.slots.push(Slot { generation: 0, value: None }))?;
        Some(index as u32)
    }

    /// The request of a token, unless it is over.
    #[inline]
    pub fn get(&self, token: Token) -> Option<&V> {
        if token.class() != self.class {
            return None;
        }
        let slot = self.slots.get(token.slot())?;
        if slot.generation == token.generation() { slot.value.as_ref() } else { None }
    }

    /// The request of a token, to be changed, unless it is over.
    #[inline]
    pub fn get_mut(&mut self, token: Token) -> Option<&mut V> {
        self.get(token)?;
        self.slots[token.slot()].value.as_mut()
    }

    /// Ends a request. From now on its token is stale.
    #[inline]
    pub fn remove(&mut self, token: Token) -> Option<V> {
        self.get(token)?;
        let slot = &mut self.slots[token.slot()];
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(token.slot() as u32);
        slot.value.take()
    }

    /// The token of the request under way in a slot.
    #[inline]
    pub fn at(&self, slot: usize) -> Option<Token> {
        let its = self.slots.get(slot)?;
        its.value.as_ref().map(|_| Token::new(self.class, slot as u32, its.generation))
    }

    /// How many there may be.
    #[inline]
    pub fn most(&self) -> usize {
        self.most
    }

    /// How many requests are under way.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Every request under way, to be changed.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.slots.iter_mut().filter_map(|slot| slot.value.as_mut())
    }

    /// Every request under way.
    pub fn iter(&self) -> impl Iterator<Item = (Token, &V)> {
        (0..self.slots.len())
            .filter_map(|slot| self.at(slot))
            .map(|token| (token, self.get(token).expect("it is under way")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn a_token_survives_the_kernel() {
        let token = Token::new(0xab, 0xfe_dcba, 0x8765_4321);
        let back = Token::from_user_data(token.user_data());
        assert_eq!((back.class(), back.slot(), back.generation()), (0xab, 0xfe_dcba, 0x8765_4321));
    }

    #[test]
    fn a_stale_token_hits_nothing() {
        let mut slots = Slots::new(1, 1);
        let first = slots.insert("first").unwrap();
        assert_eq!(slots.remove(first), Some("first"));
        let second = slots.insert("second").unwrap();
        assert_eq!(first.slot(), second.slot(), "the slot is used again");
        assert_eq!(slots.get(first), None);
        assert_eq!(slots.remove(first), None);
        assert_eq!(slots.get(second), Some(&"second"));
    }

    #[test]
    fn a_token_of_another_class_hits_nothing() {
        let mut slots = Slots::new(1, 1);
        slots.insert("ours").unwrap();
        assert_eq!(slots.remove(Token::new(2, 0, 0)), None);
        assert_eq!(slots.len(), 1);
    }

    #[test]
    fn a_full_slab_gives_the_value_back() {
        let mut slots = Slots::new(1, 2);
        slots.insert(1).unwrap();
        let token = slots.insert(2).unwrap();
        assert_eq!(slots.insert(3), Err(3));
        slots.remove(token).unwrap();
        slots.insert(3).unwrap();
        assert_eq!(slots.iter().map(|(_, value)| *value).sum::<i32>(), 4);
    }

    #[test]
    fn one_that_grows_is_full_at_its_bound() {
        let mut slots = Slots::growing(1, 2);
        let first = slots.insert(1).unwrap();
        slots.insert(2).unwrap();
        assert_eq!((slots.insert(3), slots.len()), (Err(3), 2));
        assert_eq!(slots.remove(first), Some(1));
        assert_ne!(slots.insert(3).unwrap(), first);
    }

    proptest::proptest! {
        /// Against a map that never forgets a token: whatever is inserted and removed, a token
        /// finds its own value while that is there, and nothing afterwards.
        #[test]
        fn slots_behave_like_a_map(steps in proptest::collection::vec((0..3u8, 0..64usize), 1..200)) {
            for slots in [Slots::new(7, 5), Slots::growing(7, 5)] {
                behaves_like_a_map(slots, &steps);
            }
        }
    }

    fn behaves_like_a_map(mut slots: Slots<usize>, steps: &[(u8, usize)]) {
        let mut model: HashMap<u64, usize> = HashMap::new();
        let mut issued: Vec<Token> = Vec::new();
        for (number, &(step, pick)) in steps.iter().enumerate() {
            match step {
                0 => match slots.insert(number) {
                    Ok(token) => {
                        assert!(model.insert(token.user_data(), number).is_none());
                        issued.push(token);
                    }
                    Err(_) => assert_eq!(model.len(), 5),
                },
                _ if issued.is_empty() => {}
                1 => {
                    let token = issued[pick % issued.len()];
                    assert_eq!(slots.remove(token), model.remove(&token.user_data()));
                }
                _ => {
                    let token = issued[pick % issued.len()];
                    assert_eq!(slots.get(token), model.get(&token.user_data()));
                }
            }
            assert_eq!(slots.len(), model.len());
        }
    }
}
