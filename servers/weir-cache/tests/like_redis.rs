//! Redis and weir-cache answer the same commands alike.

#![cfg(unix)]

mod common;

use common::{
    Client, PATIENCE,
    testing::{Folder, required::cannot_run},
    usual, wire,
};
use proptest::prelude::*;
use redis_protocol::resp2::types::OwnedFrame;
use std::{
    io::Write,
    os::unix::{net::UnixStream, process::CommandExt},
    process::{Child, Command, Stdio},
    sync::Mutex,
    time::Instant,
};

/// Redis on a socket of its own, which goes with it.
struct Redis {
    child: Child,
    folder: Folder,
}

impl Redis {
    fn start() -> Option<Self> {
        let folder = Folder::new("redis");
        // Debian's package redis-tools has the server, too, under another name, and starts no service.
        let child = ["redis-server", "redis-check-rdb"].into_iter().find_map(|program| {
            Command::new(program)
                .arg0("redis-server")
                .args([
                    "--port",
                    "0",
                    "--save",
                    "",
                    "--appendonly",
                    "no",
                    "--databases",
                    "1",
                    "--unixsocket",
                    "socket",
                ])
                .current_dir(&folder.0)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .spawn()
                .ok()
        });
        Some(Self { child: child?, folder })
    }

    fn client(&mut self) -> Client<UnixStream> {
        let begun = Instant::now();
        loop {
            match UnixStream::connect(self.folder.0.join("socket")) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(PATIENCE)).unwrap();
                    return Client::new(stream);
                }
                Err(e) => {
                    assert!(begun.elapsed() < PATIENCE, "redis-server does not listen: {e}");
                    assert!(self.child.try_wait().unwrap().is_none(), "redis-server has ended");
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
            }
        }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether two replies to this command are the same. How much time is left is told in seconds, and one of the two may have
/// been asked a while later.
fn are_alike(command: &[String], one: &OwnedFrame, other: &OwnedFrame) -> bool {
    let is_left = |reply: &OwnedFrame| match reply {
        OwnedFrame::Integer(seconds @ 0..) => Some(*seconds),
        _ => None,
    };
    let left = is_left(one).zip(is_left(other));
    match left.filter(|_| command[0].eq_ignore_ascii_case("TTL")) {
        Some((one, other)) => one.abs_diff(other) <= PATIENCE.as_secs(),
        None => one == other,
    }
}

/// Commands whose replies depend on no time, but for what is left of it: what expires does so in an hour, or has already.
fn command() -> impl Strategy<Value = Vec<String>> {
    let key = || prop::sample::select(vec!["a", "b", "c", "d", "long key"]).prop_map(String::from);
    let value = || {
        prop_oneof![
            prop::sample::select(vec![
                "",
                "0",
                "1",
                "-1",
                "007",
                "+1",
                " 1",
                "-0",
                "x",
                "1.5",
                "9223372036854775807"
            ])
            .prop_map(String::from),
            any::<i64>().prop_map(|it| it.to_string()),
            "\\PC{0,12}",
            (0..20_000usize).prop_map(|length| "v".repeat(length)),
        ]
    };
    let name = |name: &str| {
        let (upper, lower) = (name.to_owned(), name.to_ascii_lowercase());
        prop::sample::select(vec![upper, lower])
    };
    let option = || {
        prop::sample::select(vec![
            vec!["NX"],
            vec!["XX"],
            vec!["EX", "3600"],
            vec!["px", "3600000"],
            vec!["EX", "0"],
            vec!["EX", "-1"],
            vec!["EX", "x"],
            vec!["EX"],
            vec!["KEEPTTL"],
            vec!["nonsense"],
        ])
    };
    let set = (name("SET"), key(), value(), prop::collection::vec(option(), 0..3)).prop_map(
        |(name, key, value, options)| {
            let mut command = vec![name, key, value];
            command.extend(options.concat().into_iter().map(String::from));
            command
        },
    );
    let of_keys = (
        prop_oneof![
            name("DEL"),
            name("EXISTS"),
            name("MGET"),
            name("UNLINK"),
            name("GET"),
            name("INCR"),
            name("DECR"),
            name("TTL"),
            name("PERSIST"),
            name("STRLEN"),
            name("TYPE")
        ],
        prop::collection::vec(key(), 0..4),
    )
        .prop_map(|(name, keys)| [vec![name], keys].concat());
    let of_value =
        (prop_oneof![name("INCRBY"), name("DECRBY"), name("ECHO"), name("SELECT")], key(), value())
            .prop_map(|(name, key, value)| match name.to_ascii_uppercase().as_str() {
                "ECHO" | "SELECT" => vec![name, value],
                _ => vec![name, key, value],
            });
    let expire = (
        prop_oneof![name("EXPIRE"), name("PEXPIRE")],
        key(),
        prop_oneof![
            Just("7200000".to_owned()),
            Just("-1".to_owned()),
            Just("0".to_owned()),
            Just("x".to_owned()),
            Just(i64::MAX.to_string()),
            Just(i64::MIN.to_string()),
        ],
    )
        .prop_map(|(name, key, time)| vec![name, key, time]);
    let flag =
        || prop::sample::select(vec!["NX", "xx", "GT", "lt", "nonsense"]).prop_map(String::from);
    // Of times that are compared no two are alike: which is later would depend on when they came.
    let expire_if = (
        prop_oneof![name("EXPIRE"), name("PEXPIRE")],
        key(),
        prop_oneof![
            8 => (1..1_000_000u64).prop_map(|it| (1_000_000 * it).to_string()),
            1 => Just("-1".to_owned()),
            1 => Just("x".to_owned()),
        ],
        prop::collection::vec(flag(), 1..3),
    )
        .prop_map(|(name, key, time, flags)| [vec![name, key, time], flags].concat());
    let mset = (name("MSET"), prop::collection::vec(prop_oneof![key(), value()], 0..6))
        .prop_map(|(name, pairs)| [vec![name], pairs].concat());
    let others =
        prop_oneof![
            Just(vec!["PING".to_owned()]),
            Just(vec!["PING".to_owned(), "x".to_owned()]),
            Just(vec!["DBSIZE".to_owned()]),
            Just(vec!["FLUSHALL".to_owned()]),
            Just(vec!["FLUSHDB".to_owned(), "nonsense".to_owned()]),
            Just(vec!["PUBLISH".to_owned(), "nobody".to_owned(), "x".to_owned()]),
            ("[a-z]{1,5}no", prop::collection::vec("[a-z]{0,60}", 0..4))
                .prop_map(|(name, rest)| [vec![name], rest].concat()),
        ];
    prop_oneof![4 => set, 4 => of_keys, 2 => of_value, 2 => expire, 2 => expire_if, 1 => mset, 1 => others]
}

#[test]
fn random_commands_are_answered_as_redis_does() {
    let Some(redis) = Redis::start() else {
        let why = "there is no redis-server here: install Debian's redis-tools";
        cannot_run("redis", Err::<(), _>(why));
        return;
    };
    let redis = Mutex::new(redis);
    let served = usual();
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) };
    proptest!(config, |(commands in prop::collection::vec(command(), 1..40), whole in any::<bool>())| {
        let mut theirs = redis.lock().unwrap().client();
        let mut ours = served.client();
        for client in [theirs.say("FLUSHALL"), ours.say("FLUSHALL")] {
            prop_assert_eq!(client, common::ok());
        }
        // One after the other, or all at once.
        if whole {
            let all: Vec<u8> = commands.iter().flat_map(|command| wire(command)).collect();
            // What is not read yet fits into the sockets' buffers, or is sent by a thread.
            std::thread::scope(|scope| {
                let (mut to_theirs, mut to_ours) =
                    (theirs.stream.try_clone().unwrap(), ours.stream.try_clone().unwrap());
                let all = &all;
                scope.spawn(move || to_theirs.write_all(all).unwrap());
                scope.spawn(move || to_ours.write_all(all).unwrap());
                for command in &commands {
                    let ended = || panic!("no reply to {command:?}");
                    let (own, reply) = (ours.next(), theirs.next());
                    let (own, reply) = (own.unwrap_or_else(ended), reply.unwrap_or_else(ended));
                    assert!(are_alike(command, &own, &reply), "{command:?}: {own:?}, {reply:?}");
                }
            });
        } else {
            for command in &commands {
                let (own, reply) = (ours.ask(command), theirs.ask(command));
                prop_assert!(are_alike(command, &own, &reply), "{:?}: {:?}, {:?}", command, own, reply);
            }
        }
    });
    served.end();
}
