//! Two sets of sockets, of any size.

use crate::socket::native::last_error;
use std::{io, mem::offset_of, ptr, time::Duration};
use windows_sys::Win32::Networking::WinSock::{FD_SET, SOCKET, SOCKET_ERROR, TIMEVAL, select};

/// Sockets to receive from and to send to. Each is there once.
#[derive(Debug, Default)]
pub(in crate::readiness::select) struct Sets {
    pub(super) receive: Set,
    pub(super) send: Set,
}

impl Sets {
    /// Puts in a socket that is not there.
    pub(in crate::readiness::select) fn want(&mut self, socket: SOCKET, receive: bool, send: bool) {
        for (set, wanted) in [(&mut self.receive, receive), (&mut self.send, send)] {
            if wanted {
                set.push(socket);
            }
        }
    }

    /// Takes a socket out of both sets.
    pub(in crate::readiness::select) fn remove(&mut self, socket: SOCKET) {
        for set in [&mut self.receive, &mut self.send] {
            if let Some(place) = set.sockets().iter().position(|its| *its == socket) {
                set.swap_remove(place);
            }
        }
    }

    /// Whether a socket is in one of them: it is searched for, as by FD_ISSET.
    #[inline]
    pub(in crate::readiness::select) fn contain(&self, socket: SOCKET) -> bool {
        self.receive.sockets().contains(&socket) || self.send.sockets().contains(&socket)
    }

    /// Takes every socket out.
    pub(in crate::readiness::select) fn clear(&mut self) {
        self.receive.truncate(0);
        self.send.truncate(0);
    }

    /// Makes them the same as others.
    pub(super) fn copy_from(&mut self, others: &Self) {
        self.receive.0.clone_from(&others.receive.0);
        self.send.0.clone_from(&others.send.0);
    }

    /// Waits until a socket is ready, or the time is over. What is ready stays in the sets; how many
    /// those are is the answer. Where it fails they are left as they are.
    pub(in crate::readiness::select) fn select(
        &mut self,
        timeout: Option<Duration>,
    ) -> io::Result<usize> {
        let timeout = timeout.map(|timeout| {
            let microseconds = timeout.as_nanos().div_ceil(1000); // a wait is never short
            TIMEVAL {
                tv_sec: (microseconds / 1_000_000).try_into().unwrap_or(i32::MAX),
                tv_usec: (microseconds % 1_000_000) as i32,
            }
        });
        let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
        let (receive, send) = (self.receive.for_call(), self.send.for_call());
        // SAFETY: each set is laid out as an FD_SET with as many sockets as its count says, of which the call
        // reads those and writes no more; there is no third set. All of it, and the time-out, outlive the call.
        let count = unsafe { select(0, receive, send, ptr::null_mut(), timeout) };
        if count == SOCKET_ERROR {
            return Err(io::Error::from_raw_os_error(last_error()));
        }
        self.receive.take_answer();
        self.send.take_answer();
        Ok(count as usize)
    }
}

/// An FD_SET of any size: the first word is for the count, the sockets follow.
#[derive(Debug)]
pub(super) struct Set(Vec<SOCKET>);

const _: () = assert!(offset_of!(FD_SET, fd_array) == size_of::<SOCKET>());
const _: () = assert!(align_of::<FD_SET>() == align_of::<SOCKET>());

impl Default for Set {
    fn default() -> Self {
        Self(vec![0])
    }
}

impl Set {
    pub(super) fn sockets(&self) -> &[SOCKET] {
        &self.0[1..]
    }

    pub(super) fn push(&mut self, socket: SOCKET) {
        self.0.push(socket);
    }

    /// Takes out the socket at a place; the last one moves there, and is the answer unless it was the same.
    pub(super) fn swap_remove(&mut self, place: usize) -> Option<SOCKET> {
        self.0.swap_remove(1 + place);
        self.sockets().get(place).copied()
    }

    fn truncate(&mut self, count: usize) {
        self.0.truncate(1 + count);
    }

    /// Itself with its count. One that is empty has to be none at all.
    fn for_call(&mut self) -> *mut FD_SET {
        let count = self.sockets().len();
        if count == 0 {
            return ptr::null_mut();
        }
        self.0[0] = count.min(u32::MAX as usize); // its low half, on every processor that Windows runs on
        self.0.as_mut_ptr().cast()
    }

    /// Keeps what the call has left, which stands in front.
    fn take_answer(&mut self) {
        let count = self.0[0] as u32 as usize;
        self.truncate(count.min(self.sockets().len()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn sets_hold_what_was_put_in(
            steps in prop::collection::vec((0..500usize, any::<bool>(), any::<bool>(), 0..4), 0..200),
        ) {
            let (mut sets, mut model) = (Sets::default(), BTreeMap::new());
            for (socket, receive, send, what) in steps {
                sets.remove(socket);
                model.remove(&socket);
                if what > 0 && (receive || send) {
                    sets.want(socket, receive, send);
                    model.insert(socket, (receive, send));
                }
            }
            prop_assert!((0..510).all(|socket| sets.contain(socket) == model.contains_key(&socket)));
            let mut copy = Sets::default();
            copy.want(900, true, true);
            copy.copy_from(&sets);
            for (set, wanted) in [(&copy.receive, 0), (&copy.send, 1)] {
                let mut sockets = set.sockets().to_vec();
                sockets.sort_unstable();
                let known = model.iter().filter(|(_, its)| [its.0, its.1][wanted]);
                prop_assert!(sockets.iter().eq(known.map(|(socket, _)| socket)));
            }
            sets.clear();
            prop_assert!(sets.receive.sockets().is_empty() && sets.send.sockets().is_empty());
        }
    }

    #[test]
    fn a_call_is_given_the_count_and_its_answer_is_taken() {
        let mut set = Set::default();
        assert!(set.for_call().is_null());
        (1..=100).for_each(|socket| set.push(socket * 4));
        let answer: *mut FD_SET = set.for_call();
        // SAFETY: a pointer to a set that lives, of 100 sockets.
        unsafe {
            assert_eq!((*answer).fd_count, 100);
            (&raw mut (*answer).fd_count).write(2);
            (&raw mut (*answer).fd_array[1]).write(400);
        }
        set.take_answer();
        assert_eq!(set.sockets(), [4, 400]);
        let nothing: *mut FD_SET = set.for_call();
        // SAFETY: as above.
        unsafe { (&raw mut (*nothing).fd_count).write(0) };
        set.take_answer();
        assert!(set.sockets().is_empty());
    }
}
