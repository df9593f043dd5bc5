//! Two sets of descriptors, of any size.

use super::index;
use std::{io, os::fd::RawFd, time::Duration};

/// The kernel's sets are made of its `unsigned long`, which is as large as a `usize` on Linux.
type Word = usize;

const BITS: usize = Word::BITS as usize;

/// Descriptors to receive from and to send to, a bit each. Both sets are of one length.
#[derive(Debug, Default)]
pub(in crate::readiness::select) struct Sets {
    receive: Vec<Word>,
    send: Vec<Word>,
}

impl Sets {
    /// Says what a descriptor is in the sets for.
    pub(in crate::readiness::select) fn want(&mut self, fd: RawFd, receive: bool, send: bool) {
        let (word, bit) = place(fd);
        if word >= self.receive.len() {
            self.receive.resize(word + 1, 0);
            self.send.resize(word + 1, 0);
        }
        for (set, wanted) in [(&mut self.receive, receive), (&mut self.send, send)] {
            if wanted {
                set[word] |= bit;
            } else {
                set[word] &= !bit;
            }
        }
    }

    /// Takes a descriptor out of both sets.
    pub(in crate::readiness::select) fn remove(&mut self, fd: RawFd) {
        let (word, bit) = place(fd);
        if word < self.receive.len() {
            self.receive[word] &= !bit;
            self.send[word] &= !bit;
        }
    }

    /// Whether a descriptor is in one of them.
    #[inline]
    pub(in crate::readiness::select) fn contain(&self, fd: RawFd) -> bool {
        let (word, bit) = place(fd);
        word < self.receive.len() && (self.receive[word] | self.send[word]) & bit != 0
    }

    /// Takes every descriptor out.
    pub(in crate::readiness::select) fn clear(&mut self) {
        self.receive.fill(0);
        self.send.fill(0);
    }

    /// Makes them the same as others.
    pub(in crate::readiness::select) fn copy_from(&mut self, others: &Self) {
        self.receive.clone_from(&others.receive);
        self.send.clone_from(&others.send);
    }

    /// How many descriptors are in them.
    pub(in crate::readiness::select) fn count(&self) -> usize {
        let both = self.receive.iter().zip(&self.send);
        both.map(|(receive, send)| (receive | send).count_ones() as usize).sum()
    }

    /// Takes out the lowest descriptor that there is, if none stands in a word before `from`; moves
    /// `from` on to its word.
    pub(in crate::readiness::select) fn take_next(&mut self, from: &mut usize) -> Option<RawFd> {
        while *from < self.receive.len() {
            let both = self.receive[*from] | self.send[*from];
            if both != 0 {
                let number = both.trailing_zeros();
                let rest = !(1 << number);
                self.receive[*from] &= rest;
                self.send[*from] &= rest;
                return Some((*from * BITS) as RawFd + number as RawFd);
            }
            *from += 1;
        }
        None
    }

    /// Waits until a descriptor is ready, or the time is over. What is ready stays in the sets; how many
    /// bits those are is the answer. Where it fails they are left as they are.
    pub(in crate::readiness::select) fn select(
        &mut self,
        timeout: Option<Duration>,
    ) -> io::Result<usize> {
        let mut timeout = timeout.map(|timeout| libc::timespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(libc::time_t::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let timeout = timeout.as_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut);
        let descriptors = self.receive.len() * BITS;
        let nothing = std::ptr::null_mut::<Word>();
        // SAFETY: the kernel reads and writes as many bits of each set as it is told, and there are as
        // many; it reads a time-out, and writes what is left of it; there is no third set and no
        // signal mask. All of it outlives the call.
        let count = unsafe {
            libc::syscall(
                libc::SYS_pselect6,
                descriptors as libc::c_long,
                self.receive.as_mut_ptr(),
                self.send.as_mut_ptr(),
                nothing,
                timeout,
                nothing,
            )
        };
        if count >= 0 { Ok(count as usize) } else { Err(io::Error::last_os_error()) }
    }
}

/// The word and the bit of a descriptor.
#[inline]
fn place(fd: RawFd) -> (usize, Word) {
    let index = index(fd);
    (index / BITS, 1 << (index % BITS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn sets_hold_what_was_put_in(
            steps in prop::collection::vec((0..5000, any::<bool>(), any::<bool>(), 0..4), 0..200),
        ) {
            let (mut sets, mut model) = (Sets::default(), BTreeMap::new());
            for (fd, receive, send, what) in steps {
                if what == 0 {
                    sets.remove(fd);
                    model.remove(&fd);
                } else {
                    sets.want(fd, receive, send);
                    model.insert(fd, receive || send);
                }
            }
            model.retain(|_, wanted| *wanted);
            prop_assert_eq!(sets.count(), model.len());
            prop_assert!((0..5100).all(|fd| sets.contain(fd) == model.contains_key(&fd)));
            let (mut copy, mut from, mut taken) = (Sets::default(), 0, Vec::new());
            copy.want(9000, true, true);
            copy.copy_from(&sets);
            while let Some(fd) = copy.take_next(&mut from) {
                taken.push(fd);
            }
            prop_assert!(taken.iter().eq(model.keys()));
            prop_assert_eq!(copy.count(), 0);
            sets.clear();
            prop_assert_eq!(sets.count(), 0);
        }
    }
}
