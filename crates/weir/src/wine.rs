//! What Wine does not do as Windows does, in one place: tests leave it out by name and say why, and the book lists it
//! (`xtask systems`, which also looks in the sources whether a test asks). Of what is asserted nowhere it says so: nothing
//! to leave out, but what the tests under Wine say nothing of. It was seen under Wine 8.0 (Debian 12) and under 10.0 (Debian 13), unless a reason says otherwise.
//!
//! No test asks Wine for a rank, a rate or a time either: those are figures of Wine.

// Tests of other packages, and xtask, have this file as a module of their own: it knows nothing of the library.
#![allow(dead_code, reason = "each uses a part of it")]

use std::path::Path;

/// Something that Wine does not do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// What it is called here.
    pub constant: &'static str,
    /// What is left out.
    pub name: &'static str,
    /// Why.
    pub reason: &'static str,
    /// In which releases, the first and the last.
    pub releases: (u32, u32),
    /// Whether a test asks for it; otherwise no test asserts anything about it.
    pub is_asked: bool,
}

macro_rules! gaps {
    ($($GAP:ident $name:literal $(in $first:literal to $last:literal)? $(, $asserted:ident nowhere)?: $reason:literal;)*) => {
        $(#[doc = $reason] pub const $GAP: Gap = Gap {
            constant: stringify!($GAP),
            name: $name,
            reason: $reason,
            releases: [$(($first, $last),)? (0, u32::MAX)][0],
            is_asked: [$(stringify!($asserted).is_empty(),)? true][0],
        };)*

        /// All of them, in the order of the book.
        pub const GAPS: &[Gap] = &[$($GAP),*];
    };
}

gaps! {
    REGISTERED_IO "registered I/O", asserted nowhere:
        "the table of its functions is not there: WSAIoctl fails with 10045 (WSAEOPNOTSUPP)";
    CONCURRENCY_VALUE "the concurrency value of a port":
        "it is taken and ignored: as many threads run as find a packet";
    LAST_FIRST "the thread that waited last at a port, woken first" in 0 to 9:
        "under Wine 8.0 the one that has waited longest is woken first";
    FD_READ_TOLD_AGAIN "FD_READ reported again by WSAEventSelect", asserted nowhere:
        "when a socket is registered again, Windows reports data that it has already reported, and Wine 8.0 does not; weir looks for itself";
    FD_ACCEPT_TOLD_AGAIN "FD_ACCEPT reported again after an accept that found nothing", asserted nowhere:
        "on Windows any accept re-arms the report of the next connection, under Wine only one that finds a connection; weir registers again";
    POLL_BESIDE_UNREAD "many peers that send and are not received from, beside WSAPoll":
        "Wine's server polls each of them again and again while one connection waits for room, and a wait takes some 30 ms";
    TCP_INFO "SIO_TCP_INFO":
        "the call is not there, so retransmissions of a connection are unknown";
    UDP_OFFLOAD "USO and URO", asserted nowhere:
        "the socket options UDP_SEND_MSG_SIZE and UDP_RECV_MAX_COALESCED_SIZE are not there";
    CPU_AFFINITY "SIO_CPU_AFFINITY":
        "the call is not there, so no socket belongs to a core";
    THREAD_CYCLES "cycles of a thread", asserted nowhere:
        "QueryThreadCycleTime does not count";
    CONTEXT_SWITCHES "context switches", asserted nowhere:
        "they are reported as 0";
    NUMA "NUMA nodes", asserted nowhere:
        "there is one, whatever the machine has, and memory is not bound to it";
    MESSAGES_MAX "the limit of a message queue", asserted nowhere:
        "Windows drops what is posted to a queue of 10,000 messages; Wine's queue has no such limit";
    PACE "pace", asserted nowhere:
        "a sleep ends 1 to 1.5 ms late, so no rate is held";
    SPEED "speed", asserted nowhere:
        "every call is a message to another process: 7,000 to 17,000 datagrams a second, whatever the design";
    FLOOD_OF_EMPTY_DATAGRAMS "a flood of empty datagrams" in 0 to 9:
        "under Wine 8.0 it now and then never ends; it is not known why";
    ROOM_FOR_DATAGRAMS "room for as many datagrams as receives are outstanding":
        "Winsock charges a socket for the bytes of a datagram alone; Wine asks Linux for as many bytes, which takes 768 for \
         a small one, and receives that wait are filled one at a time: 3000 at once are more than fit";
    RESETS "resets seen by a receiver" in 0 to 9:
        "under Wine 8.0 a peer's reset looks like an orderly end, if a receive was already waiting or came late";
    SEND_AT_AN_END "a send that waits while the peer ends" in 0 to 9:
        "under Wine 8.0 a blocking send that waits for room when the peer ends its sending never learns of room again";
    REST_OF_A_SEND "the rest of a send" in 10 to 10:
        "Wine 10.0 reports a send as done although there was not enough room, as Windows does, but loses the rest if the \
         peer ends its sending meanwhile, while later sends arrive; and a reset or a close before that rest is reported to \
         nobody";
    SMALL_BUFFERS "small buffers of a connection" in 10 to 10:
        "Wine 10.0 accepts SO_SNDBUF and SO_RCVBUF of TCP and ignores them: with 4096 bytes each, 164,000 bytes are sent \
         to a peer that does not receive (13,000 under Wine 8.0)";
    RECEIVES_IN_ORDER "several receives of a connection, in the order posted" in 0 to 9:
        "under Wine 8.0 a receive that is started while data is in the socket gets it before the receives that are outstanding";
    END_OF_A_PACKET "the end of an operation whose thread has exited":
        "its packet sometimes comes although the system says, and goes on saying, that it is not over (996): \
         the result would have been written in the thread that has exited; weir's servers keep their threads until the \
         port has stopped";
    END_BEFORE_THE_REST "what came before the end, where several receives of a connection wait":
        "when both sides have ended their sending, one of the receives reports the end while there is more to receive";
    SEND_TELLS_OF_NO_RECEIVER "a port without a receiver, reported by a send" in 10 to 10:
        "Wine 10.0 reports it to receives only, and the generator only sends";
    FORGOTTEN_CANCEL "a cancel that is asked for once" in 0 to 9, asserted nowhere:
        "Wine 8.0 forgets one now and then: an operation on a closed connection, or one without a connection, then comes back \
         only when the port stops, where weir cancels again";
    USED_SOCKETS "a socket that was disconnected and accepted again":
        "a waiting receive never ends (under Wine 10.0 the test did not end even where data had come; it is not known at which step), and a send fails with 10058 (WSAESHUTDOWN), because the shutdown of the former connection stays";
    FOREIGN_ADDRESS "refusing an address that the machine does not have":
        "Wine binds a socket to it all the same";
    GROUP_BY_NUMBER "a group joined by a device that is named by its number":
        "IP_ADD_MEMBERSHIP with the number in the place of the device's address fails with 10022 (WSAEINVAL)";
    NOTHING_SENT "an overlapped send is done when its bytes are sent", asserted nowhere:
        "one that waits for room when the peer ends its sending is now and then reported as done with none of its bytes \
         sent, which Windows never does; weir sends them again";
}

impl Gap {
    /// Why a test of it is left out, if this is Wine.
    pub fn leaves_out(&self) -> Option<String> {
        let (first, last) = self.releases;
        let has_it = wine_release().is_some_and(|release| (first..=last).contains(&release));
        has_it.then(|| format!("Wine: {}: {}", self.name, self.reason))
    }

    /// Whether a test of it is left out, because this is such a Wine; the reason is printed.
    pub fn is_left_out(&self) -> bool {
        let why = self.leaves_out();
        why.iter().for_each(|why| eprintln!("not run: {why}"));
        why.is_some()
    }
}

/// The release of Wine, if this is Wine: that has a program for its settings where Windows has none, and `.ci/wine/run`
/// says which one it runs. What nobody tells is old.
pub fn wine_release() -> Option<u32> {
    let is_wine = cfg!(windows) && Path::new(r"C:\windows\system32\winecfg.exe").exists();
    let told = || std::env::var("WEIR_WINE_RELEASE").ok()?.parse().ok();
    is_wine.then(|| told().unwrap_or(0))
}
