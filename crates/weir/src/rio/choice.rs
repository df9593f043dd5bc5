//! The table of the providers, and the choice of one by name.

use super::{
    HandOver, Needs, OneThread, Provider,
    batch::PlainSockets,
    packet::Packet,
    uring::{Polling, Uring},
    winsock::Winsock,
    xdp::{Mode, Xdp},
};
use crate::{Error, Unavailable, options::Named};
use std::{fmt, str::FromStr};

/// What a provider is, in a few lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct AboutProvider {
    /// Its name.
    pub name: &'static str,
    /// How it works, in one sentence.
    pub summary: &'static str,
    /// Where it comes from.
    pub origin: &'static str,
}

/// What a program does with the provider that was chosen by its name: [`Choice::with`] calls it with the provider itself,
/// so it is compiled once for each type of provider there is.
pub trait OnProvider {
    /// What comes of it.
    type Output;

    /// Does it. Whoever has queues that stay on one thread takes the provider as `Provider<OneThread>`, whoever hands
    /// them over as `Provider<HandOver>`: a function that is generic over one of the two can be called here.
    fn on<P>(self, provider: P) -> Self::Output
    where
        P: Provider<OneThread> + Provider<HandOver>,
        <P as Provider<HandOver>>::Cq: Send,
        <P as Provider<HandOver>>::Rq: Send;
}

/// A provider, of the type that implements it.
pub(crate) enum Chosen {
    Uring(Uring),
    Winsock(Winsock),
    Batch(PlainSockets),
    Xdp(Xdp),
    Packet(Packet),
}

macro_rules! providers {
    ($($Choice:ident $name:literal: $summary:literal, $origin:literal, $Type:ident($provider:expr);)*) => {
        /// A provider of registered I/O, by name.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Choice {
            /// The first of the table that can run here.
            Auto,
            $(#[doc = $summary] $Choice,)*
        }

        impl Choice {
            /// The names accepted.
            pub const NAMES: Named = Named(&["auto", $($name),*]);

            /// Every provider, best first.
            pub const ALL: &[Choice] = &[$(Choice::$Choice),*];

            /// What it is. `Auto` is told as what it stands for here.
            pub fn about(self) -> AboutProvider {
                match self.resolve() {
                    $(Choice::$Choice => AboutProvider {
                        name: $name, summary: $summary, origin: $origin },)*
                    Choice::Auto => unreachable!("resolved above"),
                }
            }

            /// The provider itself; of `Auto` that which it stands for here.
            pub(crate) fn provider(self) -> Chosen {
                match self.resolve() {
                    $(Choice::$Choice => Chosen::$Type($provider),)*
                    Choice::Auto => unreachable!("resolved above"),
                }
            }
        }

        impl fmt::Display for Choice {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { Choice::Auto => "auto", $(Choice::$Choice => $name),* })
            }
        }

        impl FromStr for Choice {
            type Err = Error;
            fn from_str(name: &str) -> Result<Self, Error> {
                match name {
                    "auto" => Ok(Choice::Auto),
                    $($name => Ok(Choice::$Choice),)*
                    _ => Err(Error::unknown_name("provider", name, Self::NAMES.0.iter().copied())),
                }
            }
        }
    };
}

providers! {
    Uring "uring":
        "io_uring: a ring of buffers under one multishot receive, swept instead while loaded",
        "multishot recvmsg, Linux 6.0; DEFER_TASKRUN, Linux 6.1",
        Uring(Uring::polling(Polling::Deferred));
    UringArmed "uring-armed":
        "io_uring, with the multishot receive left armed under load, too",
        "multishot recvmsg, Linux 6.0; DEFER_TASKRUN, Linux 6.1",
        Uring(Uring::polling(Polling::Armed));
    UringInterrupt "uring-interrupt":
        "io_uring, with the kernel's work done whenever it interrupts the thread",
        "multishot recvmsg, Linux 6.0",
        Uring(Uring::polling(Polling::Interrupt));
    UringSqpoll "uring-sqpoll":
        "io_uring, with the kernel's work done by a kernel thread that polls",
        "SQPOLL, Linux 5.1; multishot recvmsg, Linux 6.0",
        Uring(Uring::polling(Polling::KernelThread));
    Batch "batch":
        "plain sockets: slices wait in user space and a dequeue is one batched receive",
        "recvmmsg(2), Linux 2.6.33; plain receives on other systems",
        Batch(PlainSockets);
    Winsock "winsock":
        "registered I/O of Winsock (tested on a stand-in under Wine; it has never run on Windows)",
        "RIO, Windows 8",
        Winsock(Winsock::default());
    Xdp "xdp":
        "AF_XDP: frames between a queue of a network device and our memory, past the network stack",
        "AF_XDP, Linux 4.18; links for programs on devices, Linux 5.9",
        Xdp(Xdp::default());
    XdpBusyPolled "xdp-busy-polled":
        "AF_XDP, with the device served by the thread that finds nothing to dequeue",
        "preferred busy polling, Linux 5.11",
        Xdp(Xdp::of(Mode::BusyPolled));
    XdpCopied "xdp-copied":
        "AF_XDP, with frames copied by the kernel even if the device could use our memory",
        "AF_XDP, Linux 4.18; links for programs on devices, Linux 5.9",
        Xdp(Xdp::of(Mode::Copied));
    XdpGeneric "xdp-generic":
        "AF_XDP, with its program outside the device's driver: works on every device",
        "AF_XDP, Linux 4.18; links for programs on devices, Linux 5.9",
        Xdp(Xdp::of(Mode::Generic));
    XdpAnyPort "xdp-any-port":
        "AF_XDP, with the datagrams to every port of the address, not only the bound one",
        "AF_XDP, Linux 4.18; links for programs on devices, Linux 5.9",
        Xdp(Xdp { any_port: true, ..Xdp::default() });
    PacketAnyPort "packet-any-port":
        "AF_PACKET: copies of the datagrams to every port of the address, out of a ring; it does not answer",
        "TPACKET_V3, Linux 3.2; PACKET_VNET_HDR on a ring, Linux 4.6",
        Packet(Packet);
}

impl Choice {
    /// What `Auto` stands for here: the first that can run.
    pub fn resolve(self) -> Choice {
        match self {
            Choice::Auto => Self::ALL
                .iter()
                .copied()
                .find(|choice| choice.availability().is_ok())
                .unwrap_or(Choice::Batch),
            chosen => chosen,
        }
    }

    /// Calls `what` with the provider of this name; of `Auto` with the one that it stands for here. Whether that can run is
    /// found out by its [`layout`](Provider::layout).
    ///
    /// ```
    /// use weir::rio::{Choice, HandOver, Needs, OnProvider, OneThread, Provider};
    ///
    /// /// Bytes of memory for so many receives of this length.
    /// struct Memory(u32, usize);
    ///
    /// impl OnProvider for Memory {
    ///     type Output = Result<usize, weir::Unavailable>;
    ///
    ///     fn on<P>(self, provider: P) -> Self::Output
    ///     where
    ///         P: Provider<OneThread> + Provider<HandOver>,
    ///         <P as Provider<HandOver>>::Cq: Send,
    ///         <P as Provider<HandOver>>::Rq: Send,
    ///     {
    ///         let Self(receives, payload) = self;
    ///         let (sends, per_dequeue, offload, meta) = (0, 64, false, false);
    ///         let needs = Needs { payload, receives, sends, per_dequeue, offload, meta };
    ///         let layout = Provider::<OneThread>::layout(&provider, &needs)?;
    ///         Ok(layout.stride * receives as usize)
    ///     }
    /// }
    ///
    /// let choice: Choice = "batch".parse().unwrap();
    /// let bytes = choice.with(Memory(1000, 1024)).unwrap().unwrap();
    /// assert!(bytes > 1000 * 1024);
    /// ```
    ///
    /// # Errors
    /// [`Unavailable`] if this build has no such provider: it is another system's, or stands behind a feature.
    pub fn with<W: OnProvider>(self, what: W) -> Result<W::Output, Unavailable> {
        with_provider!(self, |provider| Ok(what.on(provider)))
    }

    /// Whether it receives what is sent to a port on loopback. Those that see the frames or packets of a device are not
    /// meant for it.
    pub fn reaches_loopback(self) -> bool {
        !matches!(self.provider(), Chosen::Xdp(_) | Chosen::Packet(_))
    }

    /// Whether it receives the datagrams to every port of an address, not to the bound one alone.
    pub fn receives_any_port(self) -> bool {
        match self.provider() {
            Chosen::Xdp(xdp) => xdp.any_port,
            Chosen::Packet(_) => true,
            Chosen::Uring(_) | Chosen::Winsock(_) | Chosen::Batch(_) => false,
        }
    }

    /// Whether servers on it can answer.
    pub fn answers(self) -> bool {
        !matches!(self.provider(), Chosen::Packet(_))
    }

    /// Whether it can run here, on one thread and handed over, by trying both: they may set up
    /// different rings.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn availability(self) -> Result<(), Unavailable> {
        self.availability_for(false)?;
        self.availability_for(true)
    }

    /// Whether it can run here with queues that are handed over, or with such as stay on one
    /// thread, by trying.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn availability_for(self, handed_over: bool) -> Result<(), Unavailable> {
        // Small needs: what is asked is whether it runs at all.
        let needs = Needs {
            payload: 1,
            receives: 1,
            sends: 0,
            per_dequeue: 1,
            offload: false,
            meta: false,
        };
        with_provider!(self, |provider| {
            match handed_over {
                true => Provider::<HandOver>::layout(&provider, &needs).map(drop),
                false => Provider::<OneThread>::layout(&provider, &needs).map(drop),
            }
        })
    }
}

/// Calls `$body` with the provider that `$choice` names, as `$provider`: once compiled for each type of
/// provider that this build has, not for each name. Of the others it says why they cannot run.
macro_rules! with_provider {
    ($choice:expr, |$provider:ident| $body:expr) => {
        match $crate::rio::Choice::provider($choice) {
            $crate::rio::Chosen::Batch($provider) => $body,
            #[cfg(windows)]
            $crate::rio::Chosen::Winsock($provider) => $body,
            #[cfg(not(windows))]
            $crate::rio::Chosen::Winsock(absent) => Err(absent.absent().into()),
            #[cfg(target_os = "linux")]
            $crate::rio::Chosen::Uring($provider) => $body,
            #[cfg(not(target_os = "linux"))]
            $crate::rio::Chosen::Uring(absent) => {
                Err($crate::rio::absent_here(absent.name(), "io_uring").into())
            }
            #[cfg(all(target_os = "linux", feature = "xdp"))]
            $crate::rio::Chosen::Xdp($provider) => $body,
            #[cfg(all(target_os = "linux", feature = "xdp"))]
            $crate::rio::Chosen::Packet($provider) => $body,
            #[cfg(not(all(target_os = "linux", feature = "xdp")))]
            $crate::rio::Chosen::Xdp(absent) => {
                Err($crate::rio::absent_here(absent.name(), "AF_XDP").into())
            }
            #[cfg(not(all(target_os = "linux", feature = "xdp")))]
            $crate::rio::Chosen::Packet(absent) => {
                Err($crate::rio::absent_here(absent.name(), "AF_PACKET").into())
            }
        }
    };
}
pub(crate) use with_provider;

/// Why a provider cannot run that this build has not: its mechanism is Linux's, where the feature `xdp` may be missing.
#[cfg(not(all(target_os = "linux", feature = "xdp")))]
pub(crate) fn absent_here(name: &str, mechanism: &str) -> Unavailable {
    let (reason, advice) = match cfg!(target_os = "linux") {
        true => (
            "weir was built without its feature xdp".into(),
            "build it with that feature, or use provider batch",
        ),
        false => (format!("{mechanism} is a mechanism of Linux"), "use provider batch"),
    };
    Unavailable::new(format!("provider {name}"), reason).advise(advice)
}
