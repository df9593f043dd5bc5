//! Over the wire, on every design: what clients see.

mod common;

use common::{
    Client, PATIENCE, Served, each_design, number, ok, serve, serve_with_small_buffers, text,
    usual, wire,
};
use proptest::prelude::*;
use redis_protocol::resp2::types::OwnedFrame;
use std::{
    io::{Read, Write},
    net::{Shutdown, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use weir::tcp::AnyDesign;
use weir_cache::{Settings, clock::Clock, store::Eviction};

/// Asks until it is so.
fn until(mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "it did not come to be");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn commands_do_the_same_on_every_design() {
    for design in each_design() {
        let name = design.about().name;
        let served = serve(Settings::default(), Clock::steady(), design);
        let mut client = served.client();
        for (line, reply) in [
            ("PING", OwnedFrame::SimpleString(b"PONG".to_vec())),
            ("GET a", OwnedFrame::Null),
            ("set a 1", ok()),
            ("SET a 2 NX", OwnedFrame::Null),
            ("SET b 2 XX", OwnedFrame::Null),
            ("INCR a", number(2)),
            ("INCRBY a 40", number(42)),
            ("DECRBY a 2", number(40)),
            ("DECR a", number(39)),
            ("MSET b 1 c 2", ok()),
            (
                "MGET a b x c",
                OwnedFrame::Array(vec![text("39"), text("1"), OwnedFrame::Null, text("2")]),
            ),
            ("EXISTS a a x", number(2)),
            ("TTL a", number(-1)),
            ("EXPIRE a 100", number(1)),
            ("TTL a", number(100)),
            ("PERSIST a", number(1)),
            ("PERSIST a", number(0)),
            ("EXPIRE a 100 XX", number(0)),
            ("EXPIRE a 100 GT", number(0)),
            ("EXPIRE a 100 nx", number(1)),
            ("EXPIRE a 200 NX", number(0)),
            ("EXPIRE a 50 GT", number(0)),
            ("EXPIRE a 200 LT", number(0)),
            ("EXPIRE a 50 XX LT", number(1)),
            ("TTL a", number(50)),
            ("PERSIST a", number(1)),
            ("TTL x", number(-2)),
            ("DEL a x b", number(2)),
            ("DBSIZE", number(1)),
        ] {
            assert_eq!(client.say(line), reply, "{line} on {name}");
        }
        // All at once, and more than is received at a time.
        let value = "v".repeat(10_000);
        let mut pipeline = Vec::new();
        for index in 0..500 {
            pipeline.extend(wire(&["SET", &format!("k{index}"), &value]));
            pipeline.extend(wire(&["GET", &format!("k{index}")]));
        }
        let mut sender = client.stream.try_clone().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || sender.write_all(&pipeline).unwrap());
            for index in 0..500 {
                assert_eq!(client.next(), Some(ok()), "SET {index} on {name}");
                assert_eq!(client.next(), Some(text(&value)), "GET {index} on {name}");
            }
        });
        // What has been sent is answered, though nothing more will be.
        client.stream.write_all(&wire(&["PING"]).repeat(3)).unwrap();
        client.stream.shutdown(Shutdown::Write).unwrap();
        for _ in 0..3 {
            assert_eq!(client.next(), Some(OwnedFrame::SimpleString(b"PONG".to_vec())));
        }
        assert_eq!(client.next(), None);
        served.end();
    }
}

/// A server, a client, and the value of `k`, many of which fit nowhere on the way.
fn with_a_long_value(design: AnyDesign) -> (Served, Client<TcpStream>, String) {
    let settings = Settings { output_bytes: 10_000, ..Settings::default() };
    let served = serve_with_small_buffers(settings, design);
    let mut client = served.client();
    let value = "v".repeat(50_000);
    assert_eq!(client.ask(&["SET", "k", &value]), ok());
    (served, client, value)
}

#[test]
fn replies_that_nobody_reads_hold_up_the_commands_and_nothing_is_lost() {
    for design in each_design() {
        let name = design.about().name;
        let (served, mut client, value) = with_a_long_value(design);
        const ASKED: u64 = 200;
        let mut sender = client.stream.try_clone().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                sender.write_all(&wire(&["GET", "k"]).repeat(ASKED as usize)).unwrap()
            });
            // The system holds some of them, and not 10 MB: so some are not carried out while nobody reads.
            until(|| served.running.counters().pauses > 0);
            assert!(served.cache.shared().commands.load(Relaxed) < ASKED, "{name}");
            for index in 0..ASKED {
                assert_eq!(client.next(), Some(text(&value)), "{index} on {name}");
            }
        });
        assert_eq!(client.say("PING"), OwnedFrame::SimpleString(b"PONG".to_vec()));
        drop(client);
        served.end();
    }
}

#[test]
fn what_is_published_reaches_all_in_order_among_their_own_replies() {
    for design in each_design() {
        let name = design.about().name;
        let served = serve(Settings::default(), Clock::steady(), design);
        let (mut one, mut other, mut publisher) =
            (served.client(), served.client(), served.client());
        let subscribed = |channel, count| {
            OwnedFrame::Array(vec![text("subscribe"), text(channel), number(count)])
        };
        // Its earlier replies come first.
        one.stream.write_all(b"PING\r\nSUBSCRIBE a b\r\n").unwrap();
        assert_eq!(one.next(), Some(OwnedFrame::SimpleString(b"PONG".to_vec())));
        assert_eq!(
            (one.next(), one.next()),
            (Some(subscribed("a", 1)), Some(subscribed("b", 2))),
            "{name}"
        );
        assert_eq!(other.say("SUBSCRIBE a"), subscribed("a", 1));
        for index in 0..200 {
            assert_eq!(publisher.ask(&["PUBLISH", "a", &index.to_string()]), number(2), "{name}");
        }
        assert_eq!(publisher.say("PUBLISH b only"), number(1));
        assert_eq!(publisher.say("PUBLISH nobody hears"), number(0));
        let message = |channel, content: &str| {
            Some(OwnedFrame::Array(vec![text("message"), text(channel), text(content)]))
        };
        for client in [&mut one, &mut other] {
            for index in 0..200 {
                assert_eq!(client.next(), message("a", &index.to_string()), "{name}");
            }
        }
        assert_eq!(one.next(), message("b", "only"));
        assert_eq!(one.say("PING x"), OwnedFrame::Array(vec![text("pong"), text("x")]));
        assert!(
            matches!(one.say("GET a"), OwnedFrame::Error(why) if why.starts_with("ERR Can't execute 'get'"))
        );
        // What comes behind this was published to others.
        let left = |channel, count| {
            OwnedFrame::Array(vec![text("unsubscribe"), text(channel), number(count)])
        };
        assert_eq!(one.say("UNSUBSCRIBE a"), left("a", 1));
        assert_eq!(publisher.say("PUBLISH a more"), number(1));
        assert_eq!(one.say("UNSUBSCRIBE"), left("b", 0));
        assert_eq!(one.say("GET a"), OwnedFrame::Null);
        assert_eq!(
            one.say("UNSUBSCRIBE"),
            OwnedFrame::Array(vec![text("unsubscribe"), OwnedFrame::Null, number(0)])
        );
        assert_eq!(one.say("QUIT"), ok());
        assert_eq!(one.next(), None);
        // One that has gone without a word is forgotten.
        drop(other);
        until(|| served.cache.shared().channels.count() == 0);
        assert_eq!(publisher.say("PUBLISH a more"), number(0));
        drop((one, publisher));
        served.end();
    }
}

/// Bytes that wait for clients to read them.
fn unsent(served: &common::Served) -> u64 {
    let counters = served.running.counters();
    counters.bytes_queued.saturating_sub(counters.bytes_sent)
}

/// Reads as much as is expected, and compares it.
fn expect(client: &mut Client<TcpStream>, expected: &str) {
    let mut got = vec![0; expected.len()];
    client.stream.read_exact(&mut got).unwrap();
    assert_eq!(String::from_utf8_lossy(&got), expected);
}

#[test]
fn one_that_has_no_subscription_left_may_choose_the_protocol_and_subscribe_anew() {
    for design in each_design() {
        let served = serve(Settings::default(), Clock::steady(), design);
        // Each reply by itself, and all in one go.
        for is_pipeline in [false, true] {
            let mut client = served.client();
            let hello = format!(
                "%7\r\n$6\r\nserver\r\n$10\r\nweir-cache\r\n$7\r\nversion\r\n${}\r\n{}\r\n$5\r\nproto\r\n:3\r\n\
                 $2\r\nid\r\n:{}\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n\
                 $7\r\nmodules\r\n*0\r\n",
                env!("CARGO_PKG_VERSION").len(),
                env!("CARGO_PKG_VERSION"),
                1 + u64::from(is_pipeline),
            );
            let steps = [
                ("SUBSCRIBE c", "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n"),
                ("UNSUBSCRIBE", "*3\r\n$11\r\nunsubscribe\r\n$1\r\nc\r\n:0\r\n"),
                ("HELLO 3", &hello),
                ("SUBSCRIBE c", ">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n"),
                ("PUBLISH c hi", ">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\nhi\r\n:1\r\n"),
                ("UNSUBSCRIBE c", ">3\r\n$11\r\nunsubscribe\r\n$1\r\nc\r\n:0\r\n"),
                ("GET x", "_\r\n"),
                ("QUIT", "+OK\r\n"),
            ];
            if is_pipeline {
                let (lines, replies): (Vec<_>, Vec<_>) = steps.into_iter().unzip();
                client.stream.write_all((lines.join("\r\n") + "\r\n").as_bytes()).unwrap();
                expect(&mut client, &replies.concat());
            } else {
                for (line, reply) in steps {
                    client.stream.write_all(format!("{line}\r\n").as_bytes()).unwrap();
                    expect(&mut client, reply);
                }
            }
            assert_eq!(client.next(), None);
        }
        served.end();
    }
}

#[test]
fn one_that_was_a_subscriber_is_no_slow_one() {
    for design in each_design() {
        let name = design.about().name;
        let (served, mut client, value) = with_a_long_value(design);
        const ASKED: usize = 200;
        let mut pipeline = wire(&["SUBSCRIBE", "c"]);
        pipeline.extend(wire(&["UNSUBSCRIBE"]));
        pipeline.extend(wire(&["GET", "k"]).repeat(ASKED));
        pipeline.extend(wire(&["SUBSCRIBE", "c"]));
        client.stream.write_all(&pipeline).unwrap();
        // The replies do not fit anywhere while nobody reads.
        until(|| unsent(&served) >= 10_000);
        client.stream.shutdown(Shutdown::Write).unwrap();
        let told =
            |what, count| Some(OwnedFrame::Array(vec![text(what), text("c"), number(count)]));
        assert_eq!(client.next(), told("subscribe", 1), "{name}");
        assert_eq!(client.next(), told("unsubscribe", 0), "{name}");
        for index in 0..ASKED {
            assert_eq!(client.next(), Some(text(&value)), "{index} on {name}");
        }
        assert_eq!(client.next(), told("subscribe", 1), "{name}");
        assert_eq!(client.next(), None, "{name}");
        assert_eq!(served.cache.shared().channels.too_slow.load(Relaxed), 0);
        served.end();
    }
}

#[test]
fn a_subscriber_that_does_not_read_is_closed_and_harms_nobody() {
    for design in each_design() {
        let name = design.about().name;
        let settings = Settings { output_bytes: 20_000, ..Settings::default() };
        let served = serve_with_small_buffers(settings, design);
        let (mut slow, mut quick, mut publisher) =
            (served.client(), served.client(), served.client());
        slow.say("SUBSCRIBE news");
        quick.say("SUBSCRIBE news");
        let content = "n".repeat(5000);
        let message = OwnedFrame::Array(vec![text("message"), text("news"), text(&content)]);
        let mut published = 0;
        while served.cache.shared().channels.too_slow.load(Relaxed) == 0 {
            assert!(published < 100_000, "{name}: nobody was too slow");
            publisher.ask(&["PUBLISH", "news", &content]);
            assert_eq!(quick.next().as_ref(), Some(&message), "{name}");
            published += 1;
        }
        until(|| publisher.ask(&["PUBLISH", "news", ""]) == number(1));
        // It sees the end, somewhere in the middle.
        slow.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut sink = vec![0; 1 << 20];
        while slow.stream.read(&mut sink).is_ok_and(|count| count > 0) {}
        quick.send(&["PING"]);
        let empty = OwnedFrame::Array(vec![text("message"), text("news"), text("")]);
        let mut next = quick.next();
        while next.as_ref() == Some(&empty) {
            next = quick.next();
        }
        assert_eq!(next, Some(OwnedFrame::Array(vec![text("pong"), text("")])), "{name}");
        drop((slow, quick, publisher));
        served.end();
    }
}

#[test]
fn a_stop_sends_what_was_published() {
    for design in each_design() {
        let name = design.about().name;
        let settings = Settings { output_bytes: 50_000, ..Settings::default() };
        let served = serve_with_small_buffers(settings, design);
        let (mut slow, mut publisher) = (served.client(), served.client());
        slow.say("SUBSCRIBE news");
        let content = |index: usize| format!("{index:05000}");
        let length = wire(&["message", "news", &content(0)]).len() as u64;
        let queued = || served.running.counters().bytes_queued;
        let is_full = || unsent(&served) >= 50_000;
        let mut published = 0;
        let mut publish = || {
            assert_eq!(publisher.ask(&["PUBLISH", "news", &content(published)]), number(1));
            published += 1;
        };
        // Until its output is full, and a little more, which waits in its inbox.
        while !is_full() {
            let before = queued();
            publish();
            until(|| queued() >= before + length || is_full());
        }
        (0..3).for_each(|_| publish());
        std::thread::scope(|scope| {
            scope.spawn(|| served.end());
            assert_eq!(publisher.next(), None, "{name}");
            for index in 0..published {
                let message = vec![text("message"), text("news"), text(&content(index))];
                assert!(slow.next() == Some(OwnedFrame::Array(message)), "{index} on {name}");
            }
            assert_eq!(slow.next(), None, "{name}");
            drop((slow, publisher));
        });
    }
}

#[test]
fn keys_expire_by_the_clock_alone_also_those_that_nobody_asks_for() {
    let time = Arc::new(AtomicU64::new(0));
    let served = serve(Settings::default(), Clock::Set(Arc::clone(&time)), each_design().remove(0));
    let mut client = served.client();
    assert_eq!(client.say("SET short 1 PX 500"), ok());
    assert_eq!(client.say("SET long 1 EX 10"), ok());
    assert_eq!(client.say("SET kept 1 EX 1"), ok());
    assert_eq!(client.say("SET kept 2 KEEPTTL"), ok());
    assert_eq!(client.say("INCR kept"), number(3));
    assert_eq!(client.say("PTTL kept"), number(1000));
    assert_eq!((client.say("PTTL short"), client.say("TTL short")), (number(500), number(1)));
    time.store(501, Relaxed);
    assert_eq!(client.say("GET short"), OwnedFrame::Null);
    assert_eq!(client.say("PTTL long"), number(9499));
    assert_eq!(client.say("PEXPIRE long 100"), number(1));
    time.store(2000, Relaxed);
    // Nobody asks for it.
    until(|| client.say("DBSIZE") == number(0));
    assert_eq!(served.cache.shared().store.counts().expired, 3);
    assert_eq!(client.say("SET gone 1"), ok());
    assert_eq!((client.say("EXPIRE gone -1"), client.say("EXISTS gone")), (number(1), number(0)));
    drop(client);
    served.end();
}

#[test]
fn memory_is_bounded_by_eviction_or_by_refusal() {
    let settings = Settings { memory_bytes: 100_000, shards: 4, ..Settings::default() };
    let value = "v".repeat(1000);
    let served = serve(settings.clone(), Clock::steady(), each_design().remove(0));
    let mut client = served.client();
    for index in 0..1000 {
        assert_eq!(client.ask(&["SET", &format!("k{index}"), &value]), ok());
    }
    let counts = served.cache.shared().store.counts();
    assert!(counts.evicted > 800 && counts.bytes < 110_000, "{counts:?}");
    drop(client);
    served.end();
    let settings = Settings { eviction: Eviction::None, ..settings };
    let served = serve(settings, Clock::steady(), each_design().remove(0));
    let mut client = served.client();
    let refused =
        OwnedFrame::Error("OOM command not allowed when used memory > 'maxmemory'.".into());
    let stored = (0..1000)
        .filter(|index| client.ask(&["SET", &format!("k{index}"), &value]) != refused)
        .count();
    assert!((50..150).contains(&stored), "{stored}");
    assert_eq!(client.say("FLUSHALL"), ok());
    assert_eq!(client.say("SET k v"), ok());
    drop(client);
    served.end();
}

#[test]
fn what_goes_beyond_a_limit_is_told_so_and_closed() {
    let settings =
        Settings { clients: 2, command_bytes: 1000, reply_bytes: 3000, ..Settings::default() };
    let served = serve(settings, Clock::steady(), each_design().remove(0));
    let mut client = served.client();
    assert_eq!(client.ask(&["SET", "k", &"v".repeat(900)]), ok());
    let mut other = served.client();
    assert_eq!(other.say("PING"), OwnedFrame::SimpleString(b"PONG".to_vec()));
    let mut third = String::new();
    served.client().stream.read_to_string(&mut third).unwrap();
    assert!(third.starts_with("weir: refused: "), "{third}");
    // Several that are not, together longer than one may be.
    client.stream.write_all(&wire(&["MGET", "k", "k", "k"]).repeat(3)).unwrap();
    for _ in 0..3 {
        let three = vec![text(&"v".repeat(900)); 3];
        assert_eq!(client.next(), Some(OwnedFrame::Array(three)));
    }
    // A reply that is too long: it is cut off, or does not come at all.
    client.send(&["MGET", "k", "k", "k", "k"]);
    let mut cut = Vec::new();
    let _ = client.stream.read_to_end(&mut cut);
    assert!(cut.len() < 4 * 900, "{} bytes came", cut.len());
    drop(client);
    // A command that is.
    let why = other.ask(&["SET", "k", &"v".repeat(2000)]);
    assert!(matches!(why, OwnedFrame::Error(why) if why.contains("--command-bytes")));
    assert_eq!(other.next(), None);
    drop(other);
    served.end();
}

#[test]
fn a_stop_answers_what_has_come() {
    for design in each_design() {
        let name = design.about().name;
        let served = serve(Settings::default(), Clock::steady(), design);
        let mut clients: Vec<_> = (0..4).map(|_| served.client()).collect();
        for client in &mut clients {
            client.say("PING");
        }
        for client in &mut clients {
            client.stream.write_all(&wire(&["INCR", "n"]).repeat(100)).unwrap();
        }
        let sent = 4 * (wire(&["PING"]).len() + 100 * wire(&["INCR", "n"]).len()) as u64;
        until(|| served.running.counters().bytes_received == sent);
        std::thread::scope(|scope| {
            scope.spawn(|| served.end());
            let mut most = 0;
            for mut client in clients {
                let mut replies = 0;
                while let Some(OwnedFrame::Integer(n)) = client.next() {
                    most = most.max(n);
                    replies += 1;
                }
                assert_eq!(replies, 100, "{name}");
            }
            assert_eq!(most, 400, "{name}");
        });
    }
}

#[test]
fn the_third_version_of_the_protocol_is_spoken() {
    let served = usual();
    let mut client = served.client();
    client.send(&["HELLO", "4"]);
    expect(&mut client, "-NOPROTO unsupported protocol version\r\n");
    client.send(&["HELLO", "3"]);
    let version = env!("CARGO_PKG_VERSION");
    expect(
        &mut client,
        &format!(
            "%7\r\n$6\r\nserver\r\n$10\r\nweir-cache\r\n$7\r\nversion\r\n${}\r\n{version}\r\n$5\r\nproto\r\n:3\r\n\
             $2\r\nid\r\n:1\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n",
            version.len()
        ),
    );
    client.stream.write_all(b"GET x\r\nSUBSCRIBE c\r\nPUBLISH c hi\r\nGET x\r\n").unwrap();
    expect(
        &mut client,
        "_\r\n>3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n>3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\nhi\r\n:1\r\n_\r\n",
    );
    drop(client);
    served.end();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Whatever comes: the server answers or closes, and serves the next one.
    #[test]
    fn whatever_comes_harms_nobody_else(pieces in prop::collection::vec(prop_oneof![
        prop::collection::vec(any::<u8>(), 0..50),
        Just(wire(&["SET", "a", "b"])),
        Just(wire(&["SUBSCRIBE", "a"])),
        Just(wire(&["PUBLISH", "a", "b"])),
        Just(wire(&["MGET", "a", "a"])),
        Just(b"*3\r\n$3\r\nSET\r\n$1000000\r\n".to_vec()),
        Just(b"*1000000\r\n".to_vec()),
        Just(b"$5\r\n".to_vec()),
    ], 0..8)) {
        thread_local! {
            static SERVED: common::Served = usual();
        }
        SERVED.with(|served| {
            let mut client = served.client();
            // It may be closed in the middle.
            let _ = client.stream.write_all(&pieces.concat());
            let _ = client.stream.shutdown(Shutdown::Write);
            let _ = client.stream.read_to_end(&mut Vec::new());
            assert_eq!(served.client().say("PING"), OwnedFrame::SimpleString(b"PONG".to_vec()));
            assert_eq!(served.running.counters().closed_panicked, 0);
        });
    }
}
