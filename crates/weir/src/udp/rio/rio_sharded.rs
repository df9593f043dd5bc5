//! `rio-sharded`: a queue, a socket and a thread for each core, and nothing shared.
//!
//! Each thread has a socket of its own on the same address, a queue and memory of its own. The
//! system gives each datagram to one of the sockets: by a hash of its addresses, so that a flow
//! stays on one core, or (`--steering core`) to the thread that is pinned to the core that
//! received it, so that nothing of it ever moves to another core. No lock, no hand-over, no cache
//! line written by two. It fails where flows are few: one flow uses one core, however idle the
//! others are. And state that belongs together is spread over the threads.
//!
//! Each thread takes what is there again and again, and waits only when there was nothing, as
//! `rio-event-polled` does.
//!
//! On io_uring each thread copies what its own socket received, when it enters the kernel.
//!
//! On Windows only the core decides (SIO_CPU_AFFINITY), by the hash of receive side scaling; datagrams that a core without
//! a thread received go to one of the threads, and which one is not documented.
//!
//! Origin: SO_REUSEPORT, Linux 3.9, with SO_ATTACH_REUSEPORT_CBPF, Linux 4.5; SIO_CPU_AFFINITY, Windows 10 version 2004;
//! what readers of Holgate's study asked for: several queues.

use super::{
    engine::{self, Ready},
    rio_event_polled,
};
use crate::{
    Error, Unavailable,
    affinity::{allowed_cores, pin_where_permitted},
    design::design,
    gather::Gather,
    options::{Options as _, named},
    rio::{Choice, Needs, OneThread, Opened, Provider, with_provider},
    socket::{self, DatagramSocket, Endpoint, Shard, SocketOptions},
    stream::UnixAddress,
    udp::{Design, Handler, Job, Running, Worker},
};
use std::sync::{Arc, atomic::AtomicU64};

design! {
    udp::RioSharded "rio-sharded", Rio;
    summary: "each core has its own thread, queue and socket, all sockets on the same address";
    origin: "SO_REUSEPORT, Linux 3.9";
    options with a_receive_for_each_thread {
        /// Provider of registered I/O.
        provider: Choice = Choice::Auto, Choice::NAMES;
        /// Threads, each with a socket and a queue; 0 for one on each core that may be used.
        threads: u32 = 0, 0..=256;
        /// What decides which of them gets a datagram: hash, or core, for which the cores that may be
        /// used, modulo the threads, must lead to every thread; auto for hash where the system has it.
        steering: Steering = Steering::Auto, Steering::NAMES;
        /// Receives posted at a time, shared among the threads; by default fewer where their slices would take more than
        /// 256 MiB.
        outstanding: u32 = 150_000, 1..=1_000_000;
        /// Most completions taken by one dequeue.
        dequeue_max: u32 = 1000, 1..=65_536;
        /// How long datagrams may gather before a wait ends, and how many are enough (can be changed while it runs).
        gather: Gather = Gather::NONE, Gather::LIMITS;
    }
    provider: |design| design.provider.about().name;
    availability: |design| {
        design.steering.availability()?;
        design.provider.availability_for(false)
    };
    resolve: |design| {
        design.provider = design.provider.resolve();
        design.steering = design.steering.resolve();
        if design.threads == 0 {
            design.threads = allowed_cores().len() as u32;
        }
    };
    sockets_per_address: |design| design.in_effect().threads;
}

impl RioSharded {
    /// The same without what is left to choice.
    fn in_effect(&self) -> Self {
        let mut design = self.clone();
        Design::resolve(&mut design);
        design
    }
}

fn a_receive_for_each_thread(options: &RioSharded) -> Result<(), Error> {
    let RioSharded { threads, outstanding, .. } = *options;
    if outstanding >= threads {
        return Ok(());
    }
    let problem = format!(
        "{outstanding} receives are too few for {threads} threads, which share them; ask for \
         {threads} at least, or for fewer --threads"
    );
    Err(Error::option("outstanding", problem))
}

named! {
    /// What decides which socket of an address gets a datagram.
    pub enum Steering {
        /// The first of the others that the system has.
        Auto = "auto",
        /// A hash of its addresses: those of one flow go to the same socket.
        Hash = "hash",
        /// The core that received it: the thread of that socket is pinned to it.
        Core = "core",
    }
}

impl Steering {
    /// What `Auto` stands for here.
    fn resolve(self) -> Self {
        let by_core_alone =
            || Self::Hash.availability().is_err() && Self::Core.availability().is_ok();
        match self {
            Self::Auto if by_core_alone() => Self::Core,
            Self::Auto => Self::Hash,
            chosen => chosen,
        }
    }

    /// Whether the system has it, by trying.
    fn availability(self) -> Result<(), Unavailable> {
        match self {
            Self::Auto => match (Self::Hash.availability(), Self::Core.availability()) {
                (Err(hash), Err(core)) => {
                    let reasons = format!("by hash: {}; by core: {}", hash.reason, core.reason);
                    let why = Unavailable::new("several sockets on one address", reasons);
                    Err(Unavailable { advice: core.advice, ..why })
                }
                _ => Ok(()),
            },
            Self::Hash => socket::addresses_can_be_shared(),
            Self::Core => socket::datagrams_can_be_steered_by_core(),
        }
    }
}

impl RioSharded {
    fn begin<H: Handler>(self, job: Job<H>) -> Result<Running<H>, Error> {
        refuse_taken(&job.endpoints)?;
        with_provider!(self.provider, |provider| self.start_on(job, provider))
    }
}

impl RioSharded {
    /// Starts it on a provider of one's own. Its sockets share their address with whoever else
    /// lets it be shared.
    ///
    /// # Errors
    /// As [`Design::start`](crate::udp::Design::start).
    pub fn start_on<H: Handler, P: Provider<OneThread>>(
        mut self,
        mut job: Job<H>,
        provider: P,
    ) -> Result<Running<H>, Error> {
        self.check()?;
        Design::resolve(&mut self);
        a_receive_for_each_thread(&self)?; // now that their number is known
        let pins = match self.steering {
            Steering::Auto | Steering::Hash => vec![None; self.threads as usize],
            Steering::Core => cores_of_shards(self.threads as usize, &allowed_cores())?,
        };
        let shares = shares(&job.endpoints, self.threads)?;
        // Fewer replies than threads are one for each: whichever a datagram comes to may answer.
        let replies = job.limits.replies_outstanding.div_ceil(self.threads);
        job.state("replies-outstanding", u64::from(replies) * u64::from(self.threads));
        // What its handler sends by itself is each thread's own affair.
        let sends = replies.saturating_add(job.limits.transmits_outstanding);
        let needs = Needs {
            payload: job.slice_bytes(),
            receives: receives_of_shard(self.outstanding, self.threads),
            sends,
            per_dequeue: self.dequeue_max,
            offload: job.receive_offload(),
            meta: job.asks_for_meta(),
        };
        let gather = job.gathers(self.gather);
        let (mut shards, mut addresses) = (Vec::new(), Vec::new());
        for ((number, core), mut share) in (0..).zip(&pins).zip(shares) {
            // The first one may have had its port chosen by the system; the others follow it.
            for (endpoint, address) in share.iter_mut().zip(&addresses) {
                endpoint.address = *address;
            }
            let shard = core.map(|core| Shard { number, of: self.threads as u16, core });
            for endpoint in share.iter_mut().filter(|endpoint| !endpoint.is_unix()) {
                endpoint.options.reuse_port = true;
                endpoint.options.steer_by_core = shard;
            }
            let ready = engine::open_at(&job, &provider, &share, needs, gather.clone())?;
            addresses = ready.opened.local_addresses();
            shards.push(ready);
        }
        shards.iter().for_each(|ready| job.watch(ready.opened.sockets()));
        job.send_by(shards[0].opened.senders());
        job.bound(addresses);
        let regions: Vec<_> = shards.iter().map(|ready| ready.region.clone()).collect();
        job.state_memory(&regions);
        let provider = Arc::new(provider);
        for (ready, core) in shards.into_iter().zip(pins) {
            let provider = Arc::clone(&provider);
            job.spawn(move |worker| run(worker, &*provider, ready, core))?;
        }
        job.run()
    }
}

/// How many of the receives outstanding each thread has.
pub fn receives_of_shard(outstanding: u32, threads: u32) -> u32 {
    outstanding / threads
}

/// An address that may be shared is not refused by the system where another server has it. So
/// each is taken for a moment without sharing; all at once, so that one that contains another is found too.
fn refuse_taken(endpoints: &[Endpoint]) -> Result<(), Error> {
    let alone = |at: &&Endpoint| {
        // No Unix socket has a port.
        at.address.port() != 0 && !at.options.reuse_port && at.options.given.is_none()
    };
    let alone_at = |at: &Endpoint| {
        let options = SocketOptions { only_v6: at.options.only_v6, ..SocketOptions::default() };
        DatagramSocket::bind(&Endpoint { address: at.address, options })
    };
    let taken = endpoints.iter().filter(alone).map(alone_at);
    taken.collect::<Result<Vec<_>, _>>().map(drop)
}

/// Where each thread receives, by sockets of its own. Of those that were given there are as many at an address as threads, the
/// first of them for the first.
fn shares(endpoints: &[Endpoint], threads: u32) -> Result<Vec<Vec<Endpoint>>, Error> {
    let is_given = |at: &Endpoint| at.options.given.is_some();
    let mut places: Vec<Vec<Endpoint>> = Vec::new();
    for endpoint in endpoints {
        let same = |place: &&mut Vec<Endpoint>| {
            is_given(endpoint) && is_given(&place[0]) && place[0].address == endpoint.address
        };
        match places.iter_mut().find(same) {
            Some(place) => place.push(*endpoint),
            None => places.push(vec![*endpoint]),
        }
    }
    for place in &mut places {
        let first = place[0];
        if threads > 1 && first.is_unix() {
            let problem = "all threads share a Unix socket, but here each needs its own; use one thread, or another \
                           design";
            return Err(Error::option("threads", problem));
        }
        if is_given(&first) && place.len() != threads as usize {
            let problem = format!(
                "each of {threads} threads has a socket of its own at an address, but at {} {} given; give as many as \
                 there are threads, all with SO_REUSEPORT, or use another design",
                UnixAddress::of(first.address)
                    .map_or(first.address.to_string(), |name| name.to_string()),
                if place.len() == 1 { "one was".into() } else { format!("{} were", place.len()) },
            );
            return Err(Error::option("threads", problem));
        }
        place.resize(threads as usize, first);
    }
    Ok((0..threads as usize).map(|n| places.iter().map(|place| place[n]).collect()).collect())
}

/// The core of each shard: one that may be used and whose number, modulo the number of shards, is
/// the shard's, as the sockets are steered.
fn cores_of_shards(shards: usize, allowed: &[usize]) -> Result<Vec<Option<usize>>, Error> {
    let core_of = |shard| allowed.iter().copied().find(|core| core % shards == shard);
    let cores: Vec<_> = (0..shards).map(core_of).collect();
    let Some(shard) = cores.iter().position(Option::is_none) else { return Ok(cores) };
    let problem = format!(
        "with {shards} threads a datagram goes to thread (core modulo {shards}), and of the cores that may be used, \
         {allowed:?}, none leads to thread {shard}; choose --threads so that each has one, let the process use more \
         cores, or use --steering hash"
    );
    Err(Error::option("steering", problem))
}

fn run<H: Handler, P: Provider<OneThread>>(
    worker: &mut Worker<H>,
    provider: &P,
    ready: Ready<P::Opened>,
    core: Option<usize>,
) -> Result<(), Error> {
    if let Some(core) = core {
        // Where no thread may be bound, each has its queue all the same, on whatever core it runs.
        let refused = pin_where_permitted(&[core])
            .map_err(|e| Error::io("pinning a thread to its core", e))?;
        worker.state("pinned", refused.map_or("yes".into(), |why| format!("no: {why}")));
    }
    let defer = Arc::new(AtomicU64::new(engine::A_WHOLE_BATCH.into()));
    engine::run_alone(worker, provider, ready, defer, rio_event_polled::step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shard_has_a_core_that_leads_to_it() {
        let cores = |shards, allowed: &[usize]| cores_of_shards(shards, allowed);
        assert_eq!(cores(2, &[0, 1]).unwrap(), [Some(0), Some(1)]);
        assert_eq!(cores(2, &[3, 4]).unwrap(), [Some(4), Some(3)]);
        assert_eq!(cores(3, &[2, 4, 6, 7]).unwrap(), [Some(6), Some(4), Some(2)]);
        assert_eq!(cores(1, &[5, 6]).unwrap(), [Some(5)]);
        for (shards, allowed, missing) in [(2, &[0, 2][..], "thread 1;"), (4, &[0, 1], "thread 2;")]
        {
            let error = cores(shards, allowed).unwrap_err().to_string();
            assert!(error.contains(missing) && error.contains(&format!("{allowed:?}")), "{error}");
            assert!(error.contains("--steering hash"), "{error}");
        }
    }

    #[test]
    fn what_is_left_to_choice_is_what_the_system_has() {
        let mut design = RioSharded::default();
        assert_eq!(design.steering, Steering::Auto);
        design.resolve();
        let [hash, core] = [Steering::Hash, Steering::Core].map(|of| of.availability().is_ok());
        let expected = if core && !hash { Steering::Core } else { Steering::Hash };
        assert_eq!(design.steering, expected);
        match Steering::Auto.availability() {
            Ok(()) => assert!(hash || core),
            Err(why) => {
                let why = why.to_string();
                assert!(
                    !hash && !core && why.contains("by hash: ") && why.contains("by core: "),
                    "{why}"
                );
            }
        }
        for name in Steering::NAMES.0 {
            assert_eq!(
                name.parse().map(|steering: Steering| steering.to_string()),
                Ok((*name).into())
            );
        }
    }

    #[test]
    fn fewer_receives_than_threads_are_refused() {
        let few = RioSharded { threads: 4, outstanding: 3, ..RioSharded::default() };
        let error = few.check().unwrap_err().to_string();
        assert!(error.contains("outstanding") && error.contains("4 at least"), "{error}");
        RioSharded { outstanding: 4, ..few }.check().unwrap();
    }
}
