//! What can be chosen.

use std::{fmt, str::FromStr, time::Duration};
use weir::{Error, rio::Choice};

/// What a socket is made of, and how much it may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settings {
    /// The provider of registered I/O [default: `batch`, see the book for what was measured]. Those that take frames of a
    /// device are refused: a QUIC endpoint sends to peers that nobody has heard of on the link.
    pub provider: Choice,
    /// Who tells that something has come.
    pub tell: Tell,
    /// Where datagrams are received into.
    pub receive: Receive,
    /// When what is posted leaves.
    pub sends: Sends,
    /// For how long after a datagram the socket is polled before it is waited for, up to 1 s; zero: not at all. It takes
    /// the core of a thread of the runtime for that time. Not with [`Tell::Thread`].
    pub spin: Duration,
    /// Receives posted, each for up to 64 datagrams: 1 to 32,768.
    pub receives: u32,
    /// Sends under way, each of one [`Transmit`](quinn::udp::Transmit): 1 to 32,768.
    pub sends_outstanding: u32,
    /// Size of the socket's receive buffer as asked for (SO_RCVBUF), in bytes.
    pub receive_buffer_bytes: usize,
    /// Size of the socket's send buffer as asked for (SO_SNDBUF), in bytes.
    pub send_buffer_bytes: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            provider: Choice::Batch,
            tell: Tell::default(),
            receive: Receive::Auto,
            sends: Sends::Gathered,
            spin: Duration::ZERO,
            receives: 64,
            sends_outstanding: 256,
            receive_buffer_bytes: 2 << 20,
            send_buffer_bytes: 2 << 20,
        }
    }
}

/// A method for each field that sets it.
macro_rules! setters {
    ($($field:ident: $Type:ty,)*) => {
        /// Each sets the field of its name.
        impl Settings {
            $(
                #[doc = concat!("Sets `", stringify!($field), "`.")]
                #[must_use]
                pub const fn $field(mut self, $field: $Type) -> Self {
                    self.$field = $field;
                    self
                }
            )*
        }
    };
}

setters! {
    provider: Choice,
    tell: Tell,
    receive: Receive,
    sends: Sends,
    spin: Duration,
    receives: u32,
    sends_outstanding: u32,
    receive_buffer_bytes: usize,
    send_buffer_bytes: usize,
}

/// The longest time to poll.
const MOST_SPIN: Duration = Duration::from_secs(1);

/// The most slices of a kind.
const MOST_SLICES: u32 = 32_768;

impl Settings {
    pub(crate) fn check(&self) -> Result<(), Error> {
        for (name, asked) in
            [("receives", self.receives), ("sends-outstanding", self.sends_outstanding)]
        {
            if !(1..=MOST_SLICES).contains(&asked) {
                let problem = format!("{asked} is not allowed; allowed: 1 to {MOST_SLICES}");
                return Err(Error::option(name, problem));
            }
        }
        if self.spin > MOST_SPIN {
            let problem = format!("{:?} is not allowed; allowed: 0 to {MOST_SPIN:?}", self.spin);
            return Err(Error::option("spin", problem));
        }
        if self.tell == Tell::Thread && !self.spin.is_zero() {
            let problem = "a thread that waits in the queue does not poll; use --tell reactor, or leave it at 0";
            return Err(Error::option("spin", problem));
        }
        if self.receive == Receive::InPlace && !self.can_receive_in_place() {
            let problem = "in-place is for --on batch --tell reactor: other providers receive into memory of their own, \
                           and a thread waits for what was posted; use auto or posted";
            return Err(Error::option("receive", problem));
        }
        if !self.provider.reaches_loopback() {
            let problem = format!(
                "{} works on the frames of a device, and so cannot reach peers that have not written first; choose \
                 batch or one of uring",
                self.provider
            );
            return Err(Error::option("provider", problem));
        }
        Ok(())
    }
}

impl Settings {
    /// Whether it is known where what comes shall lie only when it is received: plain sockets take any memory.
    fn can_receive_in_place(&self) -> bool {
        self.provider == Choice::Batch && self.tell == Tell::Reactor
    }

    pub(crate) fn receives_in_place(&self) -> bool {
        self.receive != Receive::Posted && self.can_receive_in_place()
    }
}

macro_rules! named {
    ($(#[$doc:meta])* $Name:ident { $($(#[$of:meta])* $Value:ident = $name:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $Name { $($(#[$of])* $Value,)* }

        impl $Name {
            /// The names accepted.
            pub const NAMES: &[&str] = &[$($name),*];
        }

        impl fmt::Display for $Name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$Value => $name),* })
            }
        }

        impl FromStr for $Name {
            type Err = String;

            fn from_str(name: &str) -> Result<Self, String> {
                match name {
                    $($name => Ok(Self::$Value),)*
                    _ => Err(format!("{name:?} is not allowed; allowed: {}", Self::NAMES.join(", "))),
                }
            }
        }
    };
}

named! {
    /// Who tells that something has come.
    Tell {
        /// The reactor of tokio (epoll), which watches the provider's descriptor: a socket, or a ring. Linux only; the socket
        /// is then made, and used, within a runtime of tokio whose I/O is enabled.
        Reactor = "reactor",
        /// A thread that waits in the completion queue while there is nothing, and wakes quinn's task. It runs
        /// everywhere, and costs two switches of threads each time that something comes after nothing was there.
        Thread = "thread",
    }
}

impl Default for Tell {
    /// The reactor where there is one.
    fn default() -> Self {
        if crate::reactor::EXISTS { Self::Reactor } else { Self::Thread }
    }
}

named! {
    /// Where datagrams are received into.
    Receive {
        /// In place where that can be (`batch` by the reactor), posted elsewhere.
        Auto = "auto",
        /// Into slices that were posted beforehand; each datagram is copied from there to where quinn wants it.
        Posted = "posted",
        /// Where quinn wants them, when it polls: nothing is posted, and nothing is copied once more.
        InPlace = "in-place",
    }
}

named! {
    /// When what quinn sends is handed to the kernel.
    Sends {
        /// When all tasks that were ready have had a turn; ten datagrams and more when they had one in which none of them sent
        /// more, and at the latest with 64 datagrams: what goes to
        /// one peer leaves as one then, and all of it by one call where the system has that. What is sent after a pause of
        /// 50 µs leaves at once, and for a while fewer datagrams are enough.
        Gathered = "gathered",
        /// At once, each transmit by a call of its own.
        AtOnce = "at-once",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_make_no_sense_say_what_is_allowed() {
        let told = |settings: Settings| settings.check().unwrap_err().to_string();
        let settings = Settings::default();
        settings.check().unwrap();
        for (settings, expected) in [
            (
                Settings { receives: 0, ..settings },
                "option receives: 0 is not allowed; allowed: 1 to 32768",
            ),
            (
                Settings { sends_outstanding: 32_769, ..settings },
                "option sends-outstanding: 32769 is not allowed; allowed: 1 to 32768",
            ),
            (
                Settings { spin: Duration::from_secs(2), ..settings },
                "option spin: 2s is not allowed; allowed: 0 to 1s",
            ),
        ] {
            assert_eq!(told(settings), expected);
        }
        let spin = Duration::from_micros(1);
        assert!(told(Settings { tell: Tell::Thread, spin, ..settings }).contains("--tell reactor"));
        let receive = Receive::InPlace;
        assert!(
            told(Settings { tell: Tell::Thread, receive, ..settings }).contains("auto or posted")
        );
        assert!(told(Settings { provider: Choice::Xdp, ..settings }).contains("choose batch"));
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for name in Tell::NAMES {
            assert_eq!(name.parse::<Tell>().unwrap().to_string(), *name);
        }
        for name in Receive::NAMES {
            assert_eq!(name.parse::<Receive>().unwrap().to_string(), *name);
        }
        for name in Sends::NAMES {
            assert_eq!(name.parse::<Sends>().unwrap().to_string(), *name);
        }
        assert_eq!(
            "epoll".parse::<Tell>().unwrap_err(),
            "\"epoll\" is not allowed; allowed: reactor, thread"
        );
    }
}
