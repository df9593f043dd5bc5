//! What every design is given to start with, and what its threads share.

use super::{
    Handler, Limits, Running, Worker,
    common::{Common, ForThreads, Server, Thread},
    connect::Connecting,
    handler::MakeHandler,
};
use crate::{
    Error,
    counters::stream::Counters,
    events::event,
    gather::{Asked, Gather},
    lifecycle::{Answers, failure_of, live, lock},
    process::{self, ThreadsLeft},
    socket::leaves_ipv4,
    stream::{Listener, StreamOptions, UnixAddress},
    tunable::Unit,
};
use std::{
    net::SocketAddr,
    ops::RangeInclusive,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Instant,
};

/// Where a server listens.
pub(super) struct Endpoints {
    pub(super) internet: Vec<SocketAddr>,
    pub(super) unix: Vec<AtUnix>,
    /// The mode of the files that are made for it.
    pub(super) unix_mode: Option<u32>,
}

/// A Unix socket to listen on.
#[derive(Debug, Clone)]
pub(super) enum AtUnix {
    /// To be bound by this function: by name it would be in every program, whether it has Unix sockets or not.
    Bound(UnixAddress, fn(&UnixAddress, Option<u32>, StreamOptions) -> Result<Listener, Error>),
    /// It listens already.
    Given(Listener),
}

/// A server to be started: where, with what limits, and who handles the connections.
pub struct Job<H> {
    endpoints: Endpoints,
    /// What is asked of the sockets.
    pub options: StreamOptions,
    /// Bytes received at a time, at most.
    pub buffer_bytes: usize,
    /// How many connections, how much for each, and how long nothing may happen.
    pub limits: Limits,
    server: Arc<Server<H>>,
    /// Where connections are to be made.
    connecting: Option<Arc<Connecting>>,
    started: usize,
    ready: Answers,
    local_addresses: Vec<SocketAddr>,
    unix_addresses: Vec<UnixAddress>,
    /// [`Listener::bind`], except in a test.
    bind: fn(SocketAddr, StreamOptions) -> Result<Listener, Error>,
}

/// What a thread does from its start to its end. In a box, so that starting one is compiled once for all.
pub(super) type Body<H> = Box<dyn FnOnce(&mut Worker<H>) -> Result<(), Error> + Send>;

impl<H: Handler> Server<H> {
    /// Starts a thread. `ready` hears once that it has started, or why not.
    pub(super) fn spawn(
        self: &Arc<Self>,
        stack_bytes: Option<usize>,
        ready: Option<Answers>,
        body: Body<H>,
    ) -> Result<(), Error> {
        let mut threads = lock(&self.threads);
        threads.join_ended();
        if let Some(most) = self.for_threads.get()
            && threads.running.len() >= most.threads
        {
            let why =
                format!("{} threads are the most that may run ({})", most.threads, most.limit);
            return Err(Error::io("starting a thread", std::io::Error::other(why)));
        }
        let index = threads.next;
        let (counters, calls) = (Arc::new(Counters::default()), Arc::default());
        let id = Arc::new(OnceLock::new());
        let (own_id, server) = (Arc::clone(&id), Arc::clone(self));
        let mut worker =
            Worker::new(index, Arc::clone(self), Arc::clone(&counters), Arc::clone(&calls), ready);
        let mut builder = thread::Builder::new().name(format!("weir-tcp-{index}"));
        if let Some(bytes) = stack_bytes {
            builder = builder.stack_size(bytes);
        }
        let handle = builder
            .spawn(move || {
                let usage = live(&own_id, || {
                    let error = failure_of(index, || body(&mut worker));
                    worker.end(error);
                });
                // What the system keeps of those that ended before goes too, though no other is started.
                let mut threads = lock(&server.threads);
                threads.join_ended();
                threads.ended.push(index);
                usage
            })
            .map_err(|e| Error::io(format!("starting thread {index}"), e))?;
        threads.next += 1;
        threads.running.insert(index, Thread { handle, counters, calls, id });
        threads.most = threads.most.max(threads.running.len());
        Ok(())
    }
}

impl<H: Handler> Job<H> {
    pub(super) fn new(
        endpoints: Endpoints,
        options: StreamOptions,
        buffer_bytes: usize,
        limits: Limits,
        make_handler: MakeHandler<H>,
        connecting: Option<Arc<Connecting>>,
        mut given: Vec<Listener>,
    ) -> Self {
        given.extend(endpoints.unix.iter().filter_map(|at| match at {
            AtUnix::Given(listener) => Some(listener.clone()),
            AtUnix::Bound(..) => None,
        }));
        let server =
            Arc::new(Server { common: Arc::new(Common::new(limits, given)), make_handler });
        Self {
            endpoints,
            options,
            buffer_bytes,
            limits,
            server,
            connecting,
            started: 0,
            ready: Answers::default(),
            local_addresses: Vec::new(),
            unix_addresses: Vec::new(),
            bind: Listener::bind,
        }
    }

    /// Of the connections that may be served at a time ([`Limits::active`]) the share of each of so many
    /// threads that have connections of their own.
    ///
    /// # Errors
    /// [`Error::Option`] where that is none for some.
    pub fn active_shares(&self, threads: usize) -> Result<Vec<Option<u32>>, Error> {
        let Some(most) = self.limits.active else { return Ok(vec![None; threads]) };
        let (each, left) = (most as usize / threads, most as usize % threads);
        if each == 0 {
            let problem = format!("{most} is less than one for each of {threads} threads");
            return Err(Error::option("active", problem));
        }
        Ok((0..threads).map(|thread| Some((each + usize::from(thread < left)) as u32)).collect())
    }

    /// Lets in no more connections than there can be threads for, so many of which serve so many connections: by
    /// [`Limits::threads`], and by what the system lets the process have now. To be asked before the first
    /// thread is started.
    ///
    /// # Errors
    /// [`Error::Option`] where that is not one connection.
    pub fn limit_by_threads(&self, threads: u32, connections: u32) -> Result<(), Error> {
        // Beside them, those that accept, one for the times of all, one for those that are refused, and one that connects.
        let others = self.listeners() + 2 + u32::from(self.connects());
        let of_system = process::threads_left()
            .map(|left| ThreadsLeft { count: left.count.saturating_sub(others), ..left });
        let asked = self.limits.threads.map(|count| {
            let limit = format!("threads-max = {count}");
            ThreadsLeft { count, limit }
        });
        let Some(least) = [asked, of_system].into_iter().flatten().min_by_key(|left| left.count)
        else {
            return Ok(());
        };
        let ThreadsLeft { count, limit } = least;
        let most = (count / threads).saturating_mul(connections);
        if most == 0 {
            let problem = format!("{count} threads ({limit}) are not enough for one connection");
            return Err(Error::option("threads-max", problem));
        }
        let needed =
            (u64::from(self.limits.connections) * u64::from(threads)).div_ceil(connections.into());
        process::expect_threads(count.min(u32::try_from(needed).unwrap_or(u32::MAX)));
        self.state("threads-max", count);
        self.state("threads-limit", &limit);
        let leaving = 16 + count / 32;
        let threads = count.saturating_add(others + leaving) as usize;
        let for_threads = ForThreads { connections: most, threads, limit };
        assert!(self.server.for_threads.set(for_threads).is_ok(), "it is asked once");
        Ok(())
    }

    pub(super) fn keep_listening(&self, on: bool) {
        self.server.keeps_listening.store(on, Relaxed);
    }

    /// How many addresses there are to listen on.
    pub fn listeners(&self) -> u32 {
        (self.endpoints.internet.len() + self.endpoints.unix.len()) as u32
    }

    /// Listens on each address, with one socket.
    ///
    /// # Errors
    /// [`Error::Bind`], [`Error::BindUnix`], [`Error::Io`], [`Error::Unavailable`].
    pub fn listen(&mut self) -> Result<Vec<Listener>, Error> {
        let mut listeners = self.listen_on(&self.endpoints.internet, self.options)?;
        listeners.extend(self.listen_on_unix()?);
        self.listens(&listeners);
        Ok(listeners)
    }

    fn listen_on_unix(&self) -> Result<Vec<Listener>, Error> {
        let Endpoints { unix, unix_mode, .. } = &self.endpoints;
        let listen = |at: &AtUnix| match at {
            AtUnix::Bound(address, bind) => bind(address, *unix_mode, self.options),
            AtUnix::Given(listener) => Ok(listener.clone()),
        };
        unix.iter().map(listen).collect()
    }

    /// Listens on each address with so many sockets that share it, one for each thread; those of one thread come
    /// together. Where an address cannot be shared, as none of a Unix socket can, all threads have the same socket, and the
    /// settings in effect say so.
    ///
    /// # Errors
    /// As [`listen`](Self::listen).
    pub fn listen_shared(&mut self, threads: usize) -> Result<Vec<Vec<Listener>>, Error> {
        let for_all = match self.server.given.is_empty() {
            false => Some("it was given"),
            true => self.endpoints.internet.is_empty().then_some("a Unix socket has one"),
        };
        if let Some(why) = for_all {
            let listeners = self.listen()?;
            self.state("sockets-per-address", format!("1 for all threads: {why}"));
            return Ok(vec![listeners; threads]);
        }
        // A server that is there already must not be joined by accident.
        let alone = StreamOptions { reuse_port: false, ..self.options };
        drop(self.listen_on(&self.endpoints.internet, alone)?);
        match self.listen_beside(threads) {
            Ok(mut all) => {
                let unix = self.listen_on_unix()?;
                all.iter_mut().for_each(|its| its.extend_from_slice(&unix));
                self.listens(all.first().map_or(&[][..], Vec::as_slice));
                Ok(all)
            }
            Err(Error::Unavailable(why)) => {
                let listeners = self.listen()?;
                self.state("sockets-per-address", format!("1 for all threads: {why}"));
                Ok(vec![listeners; threads])
            }
            Err(error) => Err(error),
        }
    }

    fn listen_beside(&self, sockets: usize) -> Result<Vec<Vec<Listener>>, Error> {
        let options = StreamOptions { reuse_port: true, ..self.options };
        let mut addresses = self.endpoints.internet.clone();
        let mut all = Vec::new();
        for _ in 0..sockets {
            let listeners = self.listen_on(&addresses, options)?;
            addresses = listeners.iter().map(Listener::local_address).collect();
            all.push(listeners);
        }
        Ok(all)
    }

    fn listen_on(
        &self,
        addresses: &[SocketAddr],
        options: StreamOptions,
    ) -> Result<Vec<Listener>, Error> {
        let bind = |address: &SocketAddr| {
            let is_there = |given: &&Listener| given.local_address() == *address;
            if let Some(given) = self.server.given.iter().find(is_there) {
                return Ok(given.clone());
            }
            let only_v6 = options.only_v6 || leaves_ipv4(*address, addresses);
            (self.bind)(*address, StreamOptions { only_v6, ..options })
        };
        addresses.iter().map(bind).collect()
    }

    /// The addresses that it listens on, and what was obtained for them.
    fn listens(&mut self, listeners: &[Listener]) {
        self.unix_addresses =
            listeners.iter().filter_map(Listener::unix_address).cloned().collect();
        let internet = listeners.iter().filter(|listener| listener.unix_address().is_none());
        self.local_addresses = internet.map(Listener::local_address).collect();
        for (name, value) in listeners.iter().flat_map(Listener::granted) {
            self.state(name, value);
        }
    }

    /// The moment that the server's time runs from.
    pub(super) fn since(&self) -> Instant {
        self.server.since
    }

    pub(super) fn shared(&self) -> &crate::lifecycle::Lifecycle {
        &self.server.shared
    }

    /// States a setting that is in effect.
    pub fn state(&self, name: &str, value: impl ToString) {
        self.server.shared.state(name, value);
    }

    /// Makes a value tunable within these limits while the server runs; `unit` says how it is written.
    pub fn tunable(
        &self,
        name: &'static str,
        unit: Unit,
        value: u64,
        allowed: RangeInclusive<u64>,
    ) -> Arc<AtomicU64> {
        self.server.shared.tunable(name, unit, value, allowed)
    }

    /// How messages are to gather, as the option says it: it can be changed while the server runs.
    pub(super) fn gathers(&self, gather: Gather) -> Asked {
        Asked::in_word(self.tunable("gather", Unit::Gather, gather.packed(), 0..=u64::MAX))
    }

    /// Calls `waker` when the server stops.
    pub fn on_stop(&self, waker: crate::wake::Waker) {
        self.server.shared.add_waker(waker);
    }

    /// Starts a thread. `body` says [`Worker::ready`] once all that can fail at the start is done,
    /// and returns when the server stops.
    ///
    /// # Errors
    /// [`Error::Io`] if the system gives no thread.
    pub fn spawn(
        &mut self,
        body: impl FnOnce(&mut Worker<H>) -> Result<(), Error> + Send + 'static,
    ) -> Result<(), Error> {
        self.server.spawn(None, Some(self.ready.clone()), Box::new(body))?;
        self.started += 1;
        Ok(())
    }

    /// Whether connections are made besides those that are accepted.
    pub(super) fn connects(&self) -> bool {
        self.connecting.is_some()
    }

    /// A worker without a thread, for tests.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn worker(&self) -> Worker<H> {
        Worker::new(0, Arc::clone(&self.server), Arc::default(), Arc::default(), None)
    }

    /// Waits until every thread is ready.
    ///
    /// # Errors
    /// The first error of a thread; all threads have ended then.
    pub fn run(mut self) -> Result<Running, Error> {
        self.server.accept_by(self.started);
        if let Some(connecting) = self.connecting.take() {
            let options = self.options;
            self.spawn(move |worker| connecting.run(worker, options))?;
        }
        let first_error = self.ready.first_error_of(self.started);
        self.started = 0;
        let local_addresses = std::mem::take(&mut self.local_addresses);
        let unix_addresses = std::mem::take(&mut self.unix_addresses);
        let running =
            Running::new(Arc::clone(&self.server.common), local_addresses, unix_addresses);
        match first_error {
            None => {
                event!(
                    INFO,
                    addresses = ?running.local_addresses(),
                    unix_addresses = ?running.unix_addresses(),
                    settings = ?running.effective(),
                    "a server of TCP runs"
                );
                Ok(running)
            }
            Some(error) => {
                drop(running);
                Err(error)
            }
        }
    }
}

/// A start that failed half way leaves no thread behind.
impl<H> Drop for Job<H> {
    fn drop(&mut self) {
        if self.started > 0 {
            self.server.shared.stop();
            self.server.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Unavailable,
        required::cannot_run,
        tcp::{Design, Epoll, Output, Poll, RioTcp, Server},
    };
    use std::{
        io::{Read, Write},
        net::{Ipv4Addr, TcpStream},
    };

    /// As on a system whose sockets cannot share an address.
    fn bind_alone(address: SocketAddr, options: StreamOptions) -> Result<Listener, Error> {
        if options.reuse_port {
            return Err(Unavailable::new("an address shared by several sockets", "a test").into());
        }
        Listener::bind(address, options)
    }

    /// Starts it with three threads, has them serve, and returns what it says of its sockets.
    fn serve(design: impl Design, alone: bool) -> Option<String> {
        let server = Server::bind((Ipv4Addr::LOCALHOST, 0).into());
        let echo = |_| |_: &mut [u8], output: &mut Output<'_>| output.echo().unwrap();
        let mut job = server.job(echo).unwrap();
        if alone {
            job.bind = bind_alone;
        }
        let running = design.start(job).unwrap();
        let address = running.local_addresses()[0];
        let mut clients: Vec<_> = (0..30).map(|_| TcpStream::connect(address).unwrap()).collect();
        for client in &mut clients {
            client.write_all(b"!").unwrap();
            client.read_exact(&mut [0]).unwrap();
        }
        drop(clients);
        let effective = running.effective();
        let report = running.stop();
        assert!(report.failure.is_none(), "{:?}", report.failure);
        assert_eq!(report.total().accepted, 30);
        let stated = effective.into_iter().find(|(name, _)| name == "sockets-per-address");
        stated.map(|(_, value)| value)
    }

    /// Each design that shares addresses among its threads.
    #[test]
    fn an_address_that_cannot_be_shared_has_one_socket_for_all_threads() {
        let shared = StreamOptions { reuse_port: true, ..StreamOptions::default() };
        let can_share = Listener::bind((Ipv4Addr::LOCALHOST, 0).into(), shared).is_ok();
        for alone in [true, false] {
            let has_one = alone || !can_share;
            let poll = serve(Poll { threads: 3, ..Poll::default() }, alone);
            let epoll = Epoll { threads: 3, ..Epoll::default() };
            let epoll =
                (!cannot_run("tcp/epoll", epoll.availability())).then(|| serve(epoll, alone));
            for stated in [Some(poll), epoll].into_iter().flatten() {
                let says_so = stated.is_some_and(|text| text.starts_with("1 for all threads: "));
                assert_eq!(says_so, has_one);
            }
            let rio = RioTcp { threads: 3, ..RioTcp::default() };
            if !cannot_run("tcp/rio-tcp", rio.availability()) {
                assert_eq!(serve(rio, alone).is_some(), has_one);
            }
        }
    }
}
