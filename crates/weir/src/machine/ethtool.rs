//! What the kernel says of network devices when it is asked as ethtool asks.
//!
//! A device is looked for in the network namespace of the thread that asks, which /sys is not: it shows the devices of
//! the namespace that it was mounted in.
//!
//! Origin: linux/ethtool.h, netdevice(7).

use super::network::{Moderation, Offloads, Rss};
use std::{io, net::UdpSocket, os::fd::AsRawFd as _};

/// The commands that are used here, each of which only reads.
mod command {
    pub const DRIVER: u32 = 0x03; // ETHTOOL_GDRVINFO
    pub const COALESCE: u32 = 0x0e; // ETHTOOL_GCOALESCE
    pub const TSO: u32 = 0x1e; // ETHTOOL_GTSO
    pub const GSO: u32 = 0x23; // ETHTOOL_GGSO
    pub const FLAGS: u32 = 0x25; // ETHTOOL_GFLAGS
    pub const GRO: u32 = 0x2b; // ETHTOOL_GGRO
    pub const CHANNELS: u32 = 0x3c; // ETHTOOL_GCHANNELS
    pub const RSS: u32 = 0x46; // ETHTOOL_GRSSH
    pub const LINK_SETTINGS: u32 = 0x4c; // ETHTOOL_GLINKSETTINGS
}

/// What may be asked with a command: a struct of the kernel that begins with the command.
///
/// # Safety
/// It must be as large as what the kernel writes for the command that it holds.
unsafe trait Question {}

/// `struct ethtool_value`.
#[derive(Debug, Default)]
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}
// SAFETY: the whole struct of the kernel.
unsafe impl Question for Value {}

/// Of the flags of a device, that segments are joined by it (ETH_FLAG_LRO).
const LRO: u32 = 1 << 15;

/// `struct ethtool_channels`.
#[derive(Debug, Default)]
#[repr(C)]
struct Channels {
    command: u32,
    most: [u32; 4],
    receive: u32,
    transmit: u32,
    other: u32,
    combined: u32,
}
// SAFETY: the whole struct of the kernel.
unsafe impl Question for Channels {}

/// `struct ethtool_coalesce`.
#[derive(Debug, Default)]
#[repr(C)]
struct Coalesce {
    command: u32,
    rx_us: u32,
    rx_frames: u32,
    between: [u32; 7],
    adaptive_rx: u32,
    rest: [u32; 12],
}
// SAFETY: the whole struct of the kernel, which has 23 numbers.
unsafe impl Question for Coalesce {}

/// `struct ethtool_drvinfo`.
#[repr(C)]
struct Driver {
    command: u32,
    name: [u8; 32],
    texts: [[u8; 32]; 4],
    reserved: [u8; 12],
    counts: [u32; 5],
}
// SAFETY: the whole struct of the kernel.
unsafe impl Question for Driver {}

/// Most words that a mask of link modes has: the kernel counts them in 7 bits.
const MOST_WORDS: usize = 127;

/// `struct ethtool_link_settings`, with room for its masks.
#[repr(C)]
struct LinkSettings {
    command: u32,
    speed_mbit: u32,
    bytes: [u8; 7],
    /// Words of a mask, or, negated, how many the kernel wants.
    words: i8,
    rest: [u32; 1 + 7 + 3 * MOST_WORDS],
}
// SAFETY: the whole struct of the kernel and its three masks, which have at most so many words.
unsafe impl Question for LinkSettings {}

/// Most bytes that an indirection table and a key have together: the kernel's limit of a table is that of a number of 16
/// bits, and no driver has that; a larger one is not read.
const MOST_RSS_WORDS: usize = 8192;

/// `struct ethtool_rxfh`, with room for its table and its key.
#[repr(C)]
struct RssQuestion {
    command: u32,
    context: u32,
    table: u32,
    key_bytes: u32,
    bytes: [u8; 4],
    reserved: u32,
    config: [u32; MOST_RSS_WORDS],
}
// SAFETY: the whole struct of the kernel, with a table and a key that are read only where they have room.
unsafe impl Question for RssQuestion {}

/// A device that is asked.
pub struct Ethtool {
    socket: UdpSocket,
    name: String,
}

impl Ethtool {
    /// For a device of the calling thread's network namespace; whether there is one shows when it is asked.
    ///
    /// # Errors
    /// What the kernel answered when a socket was made.
    pub fn of(name: &str) -> io::Result<Self> {
        if name.len() >= libc::IFNAMSIZ {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        Ok(Self { socket: UdpSocket::bind("127.0.0.1:0")?, name: name.into() })
    }

    fn request(&self) -> libc::ifreq {
        // SAFETY: all zeroes is a valid request.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(self.name.as_bytes()) {
            *to = *from as libc::c_char;
        }
        request
    }

    fn ask<T: Question>(&self, question: &mut T) -> io::Result<()> {
        let mut request = self.request();
        request.ifr_ifru.ifru_data = std::ptr::from_mut(question).cast();
        let control = self.socket.as_raw_fd();
        // SAFETY: SIOCETHTOOL takes such a request; what it points at is as large as what this command writes, and
        // outlives the call.
        let result = unsafe { libc::ioctl(control, libc::SIOCETHTOOL as _, &raw mut request) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// The speed of its link in bits per second; `None` where it does not say.
    ///
    /// # Errors
    /// ENODEV where there is no such device.
    pub fn bits_per_s(&self) -> io::Result<Option<u64>> {
        let mut settings = LinkSettings {
            command: command::LINK_SETTINGS,
            speed_mbit: 0,
            bytes: [0; 7],
            words: 0,
            rest: [0; 1 + 7 + 3 * MOST_WORDS],
        };
        let answered = self.ask(&mut settings).and_then(|()| {
            // The first answer says how many words to ask with.
            settings.command = command::LINK_SETTINGS;
            settings.words = settings.words.saturating_neg().max(0);
            self.ask(&mut settings)
        });
        match answered {
            Ok(()) => Ok(known_speed(settings.speed_mbit)),
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// The name of its driver; `None` where it does not say, as loopback does not.
    pub fn driver(&self) -> Option<String> {
        let mut driver = Driver {
            command: command::DRIVER,
            name: [0; 32],
            texts: [[0; 32]; 4],
            reserved: [0; 12],
            counts: [0; 5],
        };
        self.ask(&mut driver).ok()?;
        let name = driver.name.split(|byte| *byte == 0).next()?;
        Some(String::from_utf8_lossy(name).into_owned()).filter(|name| !name.is_empty())
    }

    /// The longest packet that it takes, in bytes; `None` where there is no such device.
    pub fn mtu_bytes(&self) -> Option<u32> {
        let mut request = self.request();
        let asked = self.socket.as_raw_fd();
        // SAFETY: SIOCGIFMTU takes such a request, and writes a number into it.
        let result = unsafe { libc::ioctl(asked, libc::SIOCGIFMTU as _, &raw mut request) };
        if result != 0 {
            return None;
        }
        // SAFETY: this is what it wrote.
        unsafe { request.ifr_ifru.ifru_mtu }.try_into().ok()
    }

    /// The queues that it receives by; `None` where it does not say.
    pub fn receive_queues(&self) -> Option<u32> {
        let mut channels = Channels { command: command::CHANNELS, ..Channels::default() };
        self.ask(&mut channels).ok()?;
        Some(channels.receive.saturating_add(channels.combined)).filter(|queues| *queues > 0)
    }

    /// When it interrupts; `None` where it does not say.
    pub fn moderation(&self) -> Option<Moderation> {
        let mut coalesce = Coalesce { command: command::COALESCE, ..Coalesce::default() };
        self.ask(&mut coalesce).ok()?;
        let Coalesce { rx_us, rx_frames, adaptive_rx, .. } = coalesce;
        Some(Moderation { rx_us, rx_frames, adaptive_rx: adaptive_rx != 0 })
    }

    /// What is done with many frames at a time; `None` where it does not say.
    pub fn offloads(&self) -> Option<Offloads> {
        let value = |command| {
            let mut value = Value { command, ..Value::default() };
            self.ask(&mut value).ok().map(|()| value.data)
        };
        let is_on = |command| value(command).map(|value| value != 0);
        Some(Offloads {
            gro: is_on(command::GRO)?,
            lro: value(command::FLAGS)? & LRO != 0,
            tso: is_on(command::TSO)?,
            gso: is_on(command::GSO)?,
        })
    }

    /// How it spreads frames over its queues; `None` where it does not say.
    pub fn rss(&self) -> Option<Rss> {
        let question = || RssQuestion {
            command: command::RSS,
            context: 0,
            table: 0,
            key_bytes: 0,
            bytes: [0; 4],
            reserved: 0,
            config: [0; MOST_RSS_WORDS],
        };
        let mut sizes = question();
        self.ask(&mut sizes).ok()?;
        let (entries, key_bytes) = (sizes.table as usize, sizes.key_bytes as usize);
        if entries + key_bytes.div_ceil(4) > MOST_RSS_WORDS {
            return None;
        }
        let mut whole = question();
        (whole.table, whole.key_bytes) = (sizes.table, sizes.key_bytes);
        self.ask(&mut whole).ok()?;
        Some(Rss { entries, queues: distinct(&whole.config[..entries]), key_bytes })
    }
}

/// How many different numbers there are.
fn distinct(table: &[u32]) -> usize {
    let mut queues = table.to_vec();
    queues.sort_unstable();
    queues.dedup();
    queues.len()
}

/// A speed as ethtool has it in Mbit/s, in bits per second: 0 and all ones are unknown.
fn known_speed(mbit: u32) -> Option<u64> {
    (mbit != 0 && mbit != u32::MAX).then(|| u64::from(mbit) * 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structs_are_those_of_the_kernel() {
        // Sizes of linux/ethtool.h, of the last two without what has no fixed length.
        assert_eq!(size_of::<Value>(), 8);
        assert_eq!(size_of::<Channels>(), 36);
        assert_eq!(size_of::<Coalesce>(), 92);
        assert_eq!(std::mem::offset_of!(Coalesce, adaptive_rx), 40);
        assert_eq!(std::mem::offset_of!(LinkSettings, words), 15);
        assert_eq!(size_of::<LinkSettings>() - 12 * MOST_WORDS, 48);
        assert_eq!(std::mem::offset_of!(RssQuestion, config), 24);
    }

    #[test]
    fn a_speed_that_is_unknown_is_none() {
        assert_eq!([0, u32::MAX].map(known_speed), [None, None]);
        assert_eq!(known_speed(10_000), Some(10_000_000_000));
    }

    #[test]
    fn queues_of_a_table_are_counted_once() {
        assert_eq!((distinct(&[]), distinct(&[0, 1, 0, 1, 3])), (0, 3));
    }

    #[test]
    fn loopback_says_no_speed_and_what_is_not_there_is_an_error() {
        assert_eq!(Ethtool::of("lo").unwrap().bits_per_s().unwrap(), None);
        assert_eq!(Ethtool::of("weir-none").unwrap().offloads(), None);
        let absent = Ethtool::of("weir-none").unwrap().bits_per_s().unwrap_err();
        assert_eq!(absent.raw_os_error(), Some(libc::ENODEV));
        assert!(Ethtool::of("a-name-that-is-far-too-long").is_err());
    }
}
