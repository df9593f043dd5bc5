//! What a client of weir-cache sends: any bytes, as commands that are carried out. What comes back are replies, and the same
//! ones in whatever pieces the commands came.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::{Arc, atomic::AtomicU64};
use weir::tcp::{Limits, Reason, alone::Alone};
use weir_cache::{
    Cache, Settings,
    clock::Clock,
    store::{Eviction, OVERHEAD},
};

/// So little that its limits are reached.
const MEMORY: usize = 4096;
const COMMAND: usize = 1000;

/// What a cache that has nothing yet sends back, and whether it went on to the end: one reply too long ends it.
fn replies<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<u8>, bool) {
    let settings = Settings {
        memory_bytes: MEMORY,
        eviction: Eviction::None,
        command_bytes: COMMAND,
        reply_bytes: 2000,
        subscriptions: 3,
        shards: 1,
        ..Settings::default()
    };
    let time = Arc::new(AtomicU64::new(1_000_000));
    let cache = Arc::new(Cache::new(settings, Clock::Set(time)).expect("a thread"));
    let its = Arc::clone(&cache);
    let mut client = Alone::new(Limits::default(), move || its.client());
    for piece in pieces {
        if !client.receive(piece) {
            break;
        }
    }
    let (sent, reason) = client.end();
    // The last command may have gone beyond it, by as many keys as it has room for, or by what is long.
    let counts = cache.shared().store.counts();
    assert!(counts.bytes <= MEMORY + COMMAND / 4 * OVERHEAD + 3 * COMMAND, "{counts:?}");
    (sent, matches!(reason, Reason::Finished))
}

/// Where the reply ends that stands at `at`; `None` where there is none.
fn reply(bytes: &[u8], at: usize) -> Option<usize> {
    let line = bytes[at..].windows(2).position(|it| it == b"\r\n")? + at;
    let behind = line + 2;
    let number = || std::str::from_utf8(&bytes[at + 1..line]).ok()?.parse::<i64>().ok();
    let several = |count: i64| (0..count).try_fold(behind, |at, _| reply(bytes, at));
    match bytes[at] {
        b'+' | b'-' => Some(behind),
        b'_' => (line == at + 1).then_some(behind),
        b':' => number().map(|_| behind),
        b'$' if number()? == -1 => Some(behind),
        b'$' => {
            let end = behind.checked_add(usize::try_from(number()?).ok()?)?;
            (bytes.get(end..end + 2)? == b"\r\n").then_some(end + 2)
        }
        b'*' | b'>' => several(number()?),
        b'%' => several(2 * number()?),
        _ => None,
    }
}

fuzz_target!(|script: &[u8]| {
    let Some((&cut, commands)) = script.split_first() else { return };
    let (whole, in_order) = replies(commands.chunks(usize::MAX));
    if !in_order {
        return;
    }
    let mut at = 0;
    while at < whole.len() {
        at =
            reply(&whole, at).unwrap_or_else(|| panic!("no reply: {}", whole[at..].escape_ascii()));
    }
    // How much was done by when is told as it was done, and in which order subscriptions end is left open.
    let tells = |name: &[u8]| commands.windows(name.len()).any(|it| it.eq_ignore_ascii_case(name));
    if !tells(b"INFO") && !tells(b"UNSUBSCRIBE") {
        let (pieces, _) = replies(commands.chunks(usize::from(cut).max(1)));
        assert_eq!(pieces.escape_ascii().to_string(), whole.escape_ascii().to_string());
    }
});
