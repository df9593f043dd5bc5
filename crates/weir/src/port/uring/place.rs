//! A thread's place at a port, whatever its operations are.

use super::{
    inner::{At, Inner},
    state::{Outstanding, PortState},
};
use crate::{
    Error,
    counters::Counters,
    gather::Gather,
    port::{Cancelled, Refused, Token, limit::Member},
    rio::Batch,
};
use std::{io, marker::PhantomData, time::Duration};

/// What the workers of both kinds of port are made of.
pub(super) struct Place<'a, O> {
    port: At<'a, O>,
    member: Member<'a>,
    /// It stays on its thread: there it runs or not.
    stays: PhantomData<*const ()>,
}

impl<'a, O: Outstanding> Place<'a, O> {
    /// One of as many as the port was opened for.
    pub fn at(port: &'a Inner<O>, threads: u32) -> Result<Self, Error> {
        let member = port.limit.join().ok_or_else(|| Error::Option {
            name: "threads".into(),
            problem: format!("the port was opened for {threads}; open it for more"),
        })?;
        Ok(Self { port: At::here(port), member, stays: PhantomData })
    }

    pub fn take(
        &mut self,
        out: &mut Batch<O::Completion>,
        timeout: Option<Duration>,
        counters: &Counters,
    ) -> io::Result<Option<usize>> {
        self.port.take(&mut self.member, out, timeout, None, counters)
    }

    pub fn take_gathered(
        &mut self,
        out: &mut Batch<O::Completion>,
        timeout: Option<Duration>,
        gather: &mut dyn FnMut() -> Gather,
        counters: &Counters,
    ) -> io::Result<Option<usize>> {
        self.port.take(&mut self.member, out, timeout, Some(gather), counters)
    }

    #[inline]
    pub fn take_ready(&self, out: &mut Batch<O::Completion>) -> usize {
        self.port.take_ready(&self.member, out)
    }

    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(&mut PortState<O>) -> R) -> R {
        self.port.with(f)
    }

    /// Starts an operation with what it is given, which comes back where it is refused.
    #[inline]
    pub fn start<T, R>(
        &self,
        given: T,
        f: impl FnOnce(&mut O, T) -> Result<R, (T, Refused)>,
    ) -> Result<R, (T, Refused)> {
        self.port.with(|state| match state.closed {
            true => Err((given, Refused::Closed)),
            false => f(&mut state.operations, given),
        })
    }

    pub fn commit(&self, counters: &Counters) -> io::Result<()> {
        self.port.commit(counters)
    }

    pub fn cancel(&self, token: Token, counters: &Counters) -> Cancelled {
        let asked = self.port.with(|state| state.cancel(token, counters));
        if asked { Cancelled::Asked } else { Cancelled::Gone }
    }

    pub fn blocking<R>(&mut self, counters: &Counters, f: impl FnOnce() -> R) -> io::Result<R> {
        self.port.commit(counters)?;
        self.member.leave();
        let result = f();
        self.member.enter();
        Ok(result)
    }
}
