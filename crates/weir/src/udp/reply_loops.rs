//! Replies that would go round for ever: to ourselves, to services that answer whatever they are
//! sent, and to another server that sends back what it is sent.
//!
//! One forged datagram is enough to start such a loop, and nothing in it tells it from a request: a
//! payload that must go back byte for byte bears no mark. So the evidence is that a payload goes to the same
//! source again and again. Of equal ones to one source every so-many-th is dropped, unless they are
//! so slow that they are a client's who asks from time to time. A loop needs only one drop to be
//! over; a client loses that one reply.
//!
//! Each thread has a table of its own, of a fixed size, without a lock; a reply takes some 10 ns more. What comes once, as
//! nearly all does, is looked for and noted in marks of four bytes, so few that they stay in the cache beside all that the
//! kernel touches; the rest of a place is for what came again. More loops at a time than there are places may go unseen:
//! then the limit on replies per second is what bounds them.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    time::Instant,
};

/// Equal replies to one source, one after the other, of which the next is dropped: at first, and doubled so often.
pub(super) const EQUAL_REPLIES: u32 = 128;
const DOUBLED_MOST: u16 = 9;

/// From so many on all bytes are compared, and the clock is read once in as many. What comes less
/// than once a second in between is no loop.
const LOOK_EVERY: u32 = 16;

/// Buckets of two places each.
const BUCKETS: usize = 512;

/// Set in the mark of a place whose payload came more than once.
const REPEATED: u32 = 1;

/// After so many payloads not seen before one bucket is forgotten, each in its turn.
const FORGET_EVERY: u64 = 64;

/// At least so many nanoseconds between two looks at whether an address is one of this machine's.
const PROBE_EVERY_NS: u64 = 10_000_000;

/// How long what was found is taken for true.
const PROBED_FOR_NS: u64 = 10_000_000_000;

/// Ports of services that answer whatever they are sent, be it a request or an answer. Those that tell the two apart
/// (DNS, NTP) start no loop, and their own servers ask each other from these ports.
fn reflects(port: u16) -> bool {
    matches!(
        port,
        7 // echo
        | 11 // systat
        | 13 // daytime
        | 15 // netstat
        | 17 // quote of the day
        | 19 // character generator
        | 37 // time
        | 11211 // memcached, which answers what it does not know with an error
    )
}

/// What is known of a payload that came more than once.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    /// Of the source, the length, and the ends of the payload.
    key: u64,
    /// Of the whole payload, once it is looked at.
    whole: u64,
    count: u32,
    /// When `count` was a multiple of [`LOOK_EVERY`] last, in seconds; they may wrap.
    looked_s: u16,
    /// Dropped of these.
    drops: u16,
}

/// What one thread of a server knows of loops.
#[derive(Debug)]
pub(super) struct Loops {
    /// Where this server is bound. Empty where nothing is refused.
    own: Vec<SocketAddr>,
    /// Of each place: the upper bits of the key that has it, and [`REPEATED`]. 0 for none.
    marks: Box<[[u32; 2]]>,
    /// Only valid where the mark has [`REPEATED`].
    places: Box<[[Place; 2]]>,
    misses: u64,
    since: Instant,
    /// The address that was looked at last, when, and whether it is one of this machine's.
    probed: Option<(IpAddr, u64, bool)>,
    /// Replies dropped since the counters were last brought up to date.
    pub(super) dropped: u64,
}

impl Loops {
    /// For a server at these addresses; what does not answer has none.
    pub(super) fn new(own: &[SocketAddr], on: bool) -> Self {
        let buckets = if on { BUCKETS } else { 0 };
        Self {
            own: own.iter().filter(|_| on).copied().collect(),
            marks: vec![[0; 2]; buckets].into(),
            places: vec![[Place::default(); 2]; buckets].into(),
            misses: 0,
            since: Instant::now(),
            probed: None,
            dropped: 0,
        }
    }

    /// Whether a source may be answered at all; `local` is the address that it wrote to, if that is known.
    #[inline]
    pub(super) fn may_answer(
        &mut self,
        source: SocketAddr,
        local: impl FnOnce() -> Option<IpAddr>,
    ) -> bool {
        if self.places.is_empty() {
            return true;
        }
        let port = source.port();
        let is_refused = reflects(port)
            || self.own.iter().any(|own| own.port() == port) && self.is_own(source, local());
        self.dropped += u64::from(is_refused);
        !is_refused
    }

    #[cold]
    fn is_own(&mut self, source: SocketAddr, local: Option<IpAddr>) -> bool {
        let ip = source.ip().to_canonical();
        let mut anywhere = false;
        for own in self.own.iter().filter(|own| own.port() == source.port()) {
            let own = own.ip().to_canonical();
            if own == ip {
                return true;
            }
            anywhere |= own.is_unspecified();
        }
        // Of a socket on all addresses every one of this machine's is its own.
        anywhere
            && (ip.is_loopback()
                || local.map(|ip| ip.to_canonical()) == Some(ip)
                || self.is_of_this_machine(ip))
    }

    /// By the way that a datagram to it would take: it leaves from that very address. Not oftener than every 10 ms,
    /// since whoever forges sources could ask for it with every datagram.
    fn is_of_this_machine(&mut self, ip: IpAddr) -> bool {
        let now_ns = self.since.elapsed().as_nanos() as u64;
        match self.probed {
            Some((probed, at_ns, is)) if probed == ip && now_ns < at_ns + PROBED_FOR_NS => is,
            Some((_, at_ns, _)) if now_ns < at_ns + PROBE_EVERY_NS => false,
            _ => {
                let any: IpAddr = match ip {
                    IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                    IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
                };
                // Connecting sends nothing; any port will do.
                let leaves_from = UdpSocket::bind((any, 0)).and_then(|socket| {
                    socket.connect((ip, 9))?;
                    socket.local_addr()
                });
                let is = leaves_from.is_ok_and(|from| from.ip() == ip);
                self.probed = Some((ip, now_ns, is));
                is
            }
        }
    }

    /// Whether a reply may go to a source as far as its bytes tell; counts it.
    #[inline]
    pub(super) fn may_send(&mut self, bytes: &[u8], to: SocketAddr) -> bool {
        let since = self.since;
        self.may_send_at(bytes, to, || since.elapsed().as_secs() as u16)
    }

    #[inline]
    fn may_send_at(&mut self, bytes: &[u8], to: SocketAddr, now_s: impl FnOnce() -> u16) -> bool {
        if self.places.is_empty() {
            return true;
        }
        let key = key(bytes, to);
        let (bucket, mark) = ((key >> 9) as usize % BUCKETS, (key >> 32) as u32 & !REPEATED);
        let marks = &mut self.marks[bucket];
        let at = match marks.map(|of| of & !REPEATED == mark) {
            [true, _] => 0,
            [_, true] => 1,
            _ => {
                self.note(bucket, mark);
                return true;
            }
        };
        let place = &mut self.places[bucket][at];
        if marks[at] & REPEATED == 0 || place.key != key {
            marks[at] |= REPEATED;
            *place = Place { key, count: 2, ..Place::default() };
            return true;
        }
        place.count += 1;
        if place.count < LOOK_EVERY {
            return true;
        }
        let may = place.look_closely(bytes, now_s);
        self.dropped += u64::from(!may);
        may
    }

    /// Takes note of a payload that was not seen before.
    #[inline]
    fn note(&mut self, bucket: usize, mark: u32) {
        // What came several times stays longer than what came once, and of that the latest two.
        let marks = &mut self.marks[bucket];
        match marks.map(|of| of & REPEATED != 0) {
            [false, false] => *marks = [mark, marks[0]],
            [true, false] => marks[1] = mark,
            [false, true] => marks[0] = mark,
            [true, true] => {
                let [first, second] = &self.places[bucket];
                marks[usize::from(second.count < first.count)] = mark;
            }
        }
        self.misses += 1;
        if self.misses.is_multiple_of(FORGET_EVERY) {
            let turn = (self.misses / FORGET_EVERY) as usize % BUCKETS;
            self.marks[turn] = [0; 2];
        }
    }
}

impl Place {
    #[cold]
    fn look_closely(&mut self, bytes: &[u8], now_s: impl FnOnce() -> u16) -> bool {
        let whole = hash(bytes, self.key);
        if self.count.is_multiple_of(LOOK_EVERY) {
            let now_s = now_s();
            let slow = u32::from(now_s.wrapping_sub(self.looked_s)) >= LOOK_EVERY;
            self.looked_s = now_s;
            if slow {
                (self.count, self.whole) = (LOOK_EVERY, whole);
            }
        }
        if self.whole != whole {
            (self.count, self.whole, self.drops) = (LOOK_EVERY, whole, 0);
        }
        if self.count > EQUAL_REPLIES << self.drops.min(DOUBLED_MOST) {
            (self.count, self.drops) = (LOOK_EVERY, self.drops.saturating_add(1));
            return false;
        }
        true
    }
}

/// Bytes at each end of a payload that are always looked at.
const END_BYTES: usize = 32;

#[inline]
fn key(bytes: &[u8], to: SocketAddr) -> u64 {
    let ip = match to.ip() {
        IpAddr::V4(ip) => u64::from(ip.to_bits()),
        IpAddr::V6(ip) => (ip.to_bits() >> 64) as u64 ^ (ip.to_bits() as u64).rotate_left(29),
    };
    let about = u64::from(to.port()) << 32 | bytes.len() as u64;
    let ends = match (bytes.first_chunk(), bytes.last_chunk()) {
        (Some(head), Some(tail)) => end(head, KEYS[1]) ^ end(tail, KEYS[2]).rotate_left(32),
        _ => {
            let mut short = [0; END_BYTES];
            short[..bytes.len()].copy_from_slice(bytes);
            end(&short, KEYS[1])
        }
    };
    // Its upper half is never 0 or 1, which would be the mark of none.
    fold(ip ^ KEYS[0], about ^ KEYS[3]) ^ ends | 1 << 63
}

/// Of one end of a payload; multiplications that do not wait for each other.
#[inline]
fn end(bytes: &[u8; END_BYTES], seed: u64) -> u64 {
    let (words, _) = bytes.as_chunks();
    let word = |at: usize| u64::from_le_bytes(words[at]);
    fold(word(0) ^ seed, word(1) ^ KEYS[0])
        ^ fold(word(2) ^ seed, word(3) ^ KEYS[3]).rotate_left(17)
}

/// Tells accidents apart: whoever makes two payloads of one hash loses a reply of his own.
#[inline]
fn hash(bytes: &[u8], seed: u64) -> u64 {
    let (words, rest) = bytes.as_chunks();
    let mut hash = seed;
    for word in words {
        hash = fold(hash ^ u64::from_le_bytes(*word), KEYS[1]);
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    fold(hash ^ u64::from_le_bytes(last), KEYS[2])
}

/// Odd constants without structure (fractional bits of the square roots of primes).
const KEYS: [u64; 4] =
    [0x6a09_e667_f3bc_c909, 0xbb67_ae85_84ca_a73b, 0x3c6e_f372_fe94_f82b, 0xa54f_f53a_5f1d_36f1];

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::os::ThreadUsage;

    fn at(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    fn guard() -> Loops {
        Loops::new(&[at("127.0.0.1:5000"), at("[::1]:5001"), at("0.0.0.0:6000")], true)
    }

    #[test]
    fn own_addresses_and_reflecting_services_are_not_answered() {
        let mut loops = guard();
        for (source, answered) in [
            ("127.0.0.1:5000", false),
            ("[::ffff:127.0.0.1]:5000", false),
            ("[::1]:5001", false),
            ("127.0.0.1:5001", true),
            ("192.0.2.1:5000", true),
            ("127.0.0.1:5002", true),
            ("127.0.0.1:6000", false),
            ("192.0.2.1:7", false),
            ("192.0.2.1:19", false),
            ("192.0.2.1:1023", true),
            ("192.0.2.1:123", true),
            ("192.0.2.1:40000", true),
        ] {
            assert_eq!(loops.may_answer(at(source), || None), answered, "{source}");
        }
        assert_eq!(loops.dropped, 6);
        let local = Some(at("192.0.2.9:0").ip());
        assert!(!loops.may_answer(at("192.0.2.9:6000"), || local), "to the address it says it is");
        assert!(loops.may_answer(at("192.0.2.8:6000"), || local), "none of this machine's");
        let mut off = Loops::new(&[at("127.0.0.1:5000")], false);
        assert!(off.may_answer(at("127.0.0.1:5000"), || None));
    }

    /// How many replies go out before one is dropped, of at most so many.
    fn until_dropped(
        loops: &mut Loops,
        most: u32,
        mut send: impl FnMut(&mut Loops, u32) -> bool,
    ) -> Option<u32> {
        (0..most).find(|number| !send(loops, *number))
    }

    #[test]
    fn a_loop_of_any_size_is_broken_and_a_client_loses_one_reply() {
        for size in [0, 1, 31, 32, 33, 64, 65, 1000, 65_507] {
            let (mut loops, bytes) = (guard(), vec![5; size]);
            let send = |loops: &mut Loops, _| loops.may_send_at(&bytes, at("192.0.2.1:99"), || 0);
            assert_eq!(until_dropped(&mut loops, 1000, send), Some(EQUAL_REPLIES), "{size}");
            assert!(loops.may_send_at(&bytes, at("192.0.2.1:99"), || 0), "the next goes out");
            let of_1000 =
                (0..1000).filter(|_| !loops.may_send_at(&bytes, at("192.0.2.1:99"), || 0));
            assert!((1..10).contains(&of_1000.count()));
        }
    }

    #[test]
    fn a_client_that_always_sends_the_same_loses_ever_fewer_replies() {
        let mut loops = guard();
        let lost: Vec<u32> = (0..1_000_000)
            .filter(|_| !loops.may_send_at(b"there?", at("192.0.2.1:99"), || 0))
            .collect();
        assert!(lost.len() < 32, "{lost:?}");
        assert!(lost.windows(2).all(|two| two[1] - two[0] <= EQUAL_REPLIES << DOUBLED_MOST));
        // Many copies that go round come to rest one by one.
        let (mut loops, mut copies) = (guard(), 20);
        for _ in 0..20 * (EQUAL_REPLIES << DOUBLED_MOST) {
            copies -= u32::from(!loops.may_send_at(b"there?", at("192.0.2.1:99"), || 0));
            if copies == 0 {
                return;
            }
        }
        panic!("{copies} copies still go round");
    }

    #[test]
    fn payloads_that_differ_anywhere_are_no_loop() {
        let mut loops = guard();
        let mut bytes = vec![0; 200];
        for number in 0..1_000_000u32 {
            // At the beginning, in the middle and at the end.
            let place = [0, 100, 196][number as usize % 3];
            bytes[place..][..4].copy_from_slice(&number.to_le_bytes());
            assert!(loops.may_send_at(&bytes, at("192.0.2.1:99"), || 0), "{number}");
        }
        let equal_but_from = |port: u16| SocketAddr::from(([192, 0, 2, 1], port));
        for port in (1024..u16::MAX).cycle().take(1_000_000) {
            // Each source less than a hundred times.
            assert!(loops.may_send_at(b"equal", equal_but_from(port), || 0), "{port}");
        }
    }

    #[test]
    fn a_client_that_asks_from_time_to_time_loses_nothing() {
        let mut loops = guard();
        for second in 0..10_000 {
            assert!(loops.may_send_at(b"there?", at("192.0.2.1:99"), || second), "{second}");
        }
        let mut twice_a_second = guard();
        let send =
            |loops: &mut Loops, n| loops.may_send_at(b"", at("192.0.2.1:99"), || n as u16 / 2);
        assert_eq!(until_dropped(&mut twice_a_second, 1000, send), Some(EQUAL_REPLIES));
    }

    /// Payloads of one bucket: what came again keeps its place while others come once.
    #[test]
    fn what_came_again_is_not_pushed_out_by_what_comes_once() {
        let mut loops = guard();
        let to = at("192.0.2.1:99");
        let bucket = |number: u64| (key(&number.to_le_bytes(), to) >> 9) as usize % BUCKETS;
        let mut alike = (1u64..).filter(|number| bucket(*number) == bucket(0));
        for round in 0..EQUAL_REPLIES {
            assert!(loops.may_send_at(&0u64.to_le_bytes(), to, || 0), "{round}");
            let once = alike.next().unwrap();
            assert!(loops.may_send_at(&once.to_le_bytes(), to, || 0));
        }
        assert!(!loops.may_send_at(&0u64.to_le_bytes(), to, || 0), "as often as if it came alone");
        // Of two that came again, the one that came more often stays.
        let two = [alike.next().unwrap(), alike.next().unwrap()];
        for number in two.into_iter().flat_map(|number| [number; 2]) {
            assert!(loops.may_send_at(&number.to_le_bytes(), to, || 0));
        }
        let again = |loops: &mut Loops, _| loops.may_send_at(&0u64.to_le_bytes(), to, || 0);
        let left = 2 * EQUAL_REPLIES - LOOK_EVERY;
        assert_eq!(until_dropped(&mut loops, 1000, again), Some(left));
    }

    #[test]
    fn several_loops_are_seen_beside_a_flood_of_requests() {
        let mut loops = guard();
        let mut request = 0u64;
        let (mut alive, mut rounds) = ((0..20u8).collect::<Vec<_>>(), 0);
        while !alive.is_empty() {
            rounds += 1;
            assert!(rounds < 20 * EQUAL_REPLIES, "{alive:?} still go round");
            alive.retain(|byte| loops.may_send_at(&[*byte; 64], at("192.0.2.1:99"), || 0));
            for _ in 0..100 {
                request += 1;
                let bytes = request.to_le_bytes();
                assert!(loops.may_send_at(&bytes, at("192.0.2.2:99"), || 0));
            }
        }
    }

    /// `cargo test --release -p weir-io --lib udp::reply_loops -- --ignored --nocapture`
    #[test]
    #[ignore = "a measurement"]
    fn what_it_costs() {
        for size in [64, 1024] {
            let (mut loops, mut bytes) = (guard(), vec![0; size]);
            let source = at("192.0.2.1:40000");
            // Of this thread: the machine may be busy.
            let cpu_ns = || ThreadUsage::current().cpu_ns.expect("the system tells");
            let begun_ns = cpu_ns();
            const REPLIES: u64 = 10_000_000;
            for number in 0..REPLIES {
                bytes[..8].copy_from_slice(&number.to_le_bytes());
                let goes = loops.may_answer(source, || None) && loops.may_send(&bytes, source);
                assert!(std::hint::black_box(goes));
            }
            let ns = (cpu_ns() - begun_ns) as f64 / REPLIES as f64;
            println!("{ns:.1} ns for each reply of {size} bytes that differ");
        }
    }
}
