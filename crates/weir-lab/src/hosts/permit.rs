//! What an agent starts: weir's own servers on the agreed address, and generators against it, and in the place of a server a
//! program that this rank's own command names as a peer. Nothing else, whatever it is told: a rank of a comparison can neither
//! be made to run a program that it was not started for, nor to flood a third party.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use crate::child::CommandLine;
use crate::experiment::plan::Peer;

/// Programs that a rank may start in the place of a server: those that its own command names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Peers {
    commands: Vec<String>,
    folder: Option<PathBuf>,
}

impl Peers {
    /// Those of such texts (`NAME=COMMAND`), and the programs of a folder, started as its list has them started
    /// ([`crate::tcp::peers`]). What is no such text names none.
    pub fn of(texts: &[String], folder: Option<&Path>) -> Self {
        let command = |text: &String| Some(Peer::parse(text, "").ok()?.1.command.to_string());
        let commands = texts.iter().filter_map(command).collect();
        Self { commands, folder: folder.map(Path::to_path_buf) }
    }

    fn may_start(&self, command: &str) -> Result<(), String> {
        let is_listed = |command: CommandLine| {
            let is_in_folder = command.program().parent() == self.folder.as_deref();
            // Any other words could have a program do something else than it is there for.
            let is_as_listed = match command.words() {
                [ip, port, form, buffer] => {
                    [ip, port, buffer] == ["{ip}", "{port}", "{buffer}"] && !form.starts_with('-')
                }
                _ => false,
            };
            is_in_folder && is_as_listed
        };
        let is_of_folder =
            self.folder.is_some() && CommandLine::parse(command).is_ok_and(is_listed);
        match is_of_folder || self.commands.iter().any(|own| own == command) {
            true => Ok(()),
            false => Err(format!(
                "the command of this rank does not name {command}, and a rank starts only programs that its own \
                 command names: have mpirun start all ranks with the same --peer, --peers or --plan"
            )),
        }
    }
}

/// Options of a server: those that are flags, and those with a value. None of them names a file or a program.
const SERVER_FLAGS: &[&str] = &[
    "--close-when-full",
    "--count-entries",
    "--echo",
    "--end-with-input",
    "--json",
    "--no-send-offload",
    "--once",
    "--receive-offload",
    "--verify-all",
];
const SERVER_OPTIONS: &[&str] = &[
    "--active",
    "--bind",
    "--buffer",
    "--busy-poll",
    "--commit",
    "--connections-max",
    "--control",
    "--cpu",
    "--design",
    "--hold",
    "--interval",
    "--max-bitrate",
    "--max-pps",
    "--max-rate",
    "--max-receives",
    "--max-time",
    "--output-bytes",
    "--per-address",
    "--performance-interval",
    "--rcvbuf",
    "--read-timeout",
    "--replies-per-s",
    "--reply-size",
    "--runs-together",
    "--silent",
    "--size",
    "--sndbuf",
    "--stalled",
    "--work",
];

/// The same of a generator.
const GENERATOR_FLAGS: &[&str] = &[
    "--end-with-input",
    "--gives-way",
    "--json",
    "--memory",
    "--refusals-expected",
    "--reply",
    "--tell-phases",
    "--together",
    "--wait-for-start",
];
const GENERATOR_OPTIONS: &[&str] = &[
    "--answer-timeout",
    "--arrivals",
    "--block-interval",
    "--blocks",
    "--clocks",
    "--conduct",
    "--connect-timeout",
    "--control",
    "--cpu",
    "--drain",
    "--engine",
    "--every",
    "--first-source",
    "--generators",
    "--head",
    "--max-time",
    "--messages-per-s",
    "--outstanding",
    "--pps",
    "--reply-size",
    "--setup-time",
    "--sources",
    "--tail",
    "--threads",
    "-O",
    "-P",
    "-b",
    "-c",
    "-i",
    "-k",
    "-l",
    "-o",
    "-p",
    "-r",
    "-t",
    "-x",
];

/// Whether these words may be started at a host that serves, or that generates, by a rank whose command names these peers.
///
/// # Errors
/// Why not.
pub fn may_start(
    words: &[String],
    serves: bool,
    address: IpAddr,
    peers: &Peers,
) -> Result<(), String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match (serves, words.as_slice()) {
        (true, ["serve", "udp" | "tcp", options @ ..]) => {
            within(options, SERVER_FLAGS, SERVER_OPTIONS, |name, value| match name {
                "--bind" | "--control" => is_at(value, address),
                _ => Ok(()),
            })
        }
        (true, ["serve", "peer" | "tcp-peer", options @ ..]) => {
            let with_value = [SERVER_OPTIONS, &["--command"]].concat();
            within(options, SERVER_FLAGS, &with_value, |name, value| match name {
                "--bind" | "--control" => is_at(value, address),
                "--command" => peers.may_start(value),
                _ => Ok(()),
            })
        }
        (false, ["flood", target, options @ ..] | ["load", "tcp", target, options @ ..]) => {
            if target.parse() != Ok(address) {
                return Err(format!("the server of this run is at {address}, not at {target}"));
            }
            within(options, GENERATOR_FLAGS, GENERATOR_OPTIONS, |name, value| match name {
                "--control" => is_at(value, address),
                _ => Ok(()),
            })
        }
        (serves, [first, ..]) => {
            let does = if serves { "serves" } else { "generates" };
            Err(format!("this rank {does}, and does not start `weir {first}`"))
        }
        (_, []) => Err("there is nothing to start".into()),
    }
}

/// Whether all options are among these.
fn within(
    options: &[&str],
    flags: &[&str],
    with_value: &[&str],
    is_right: impl Fn(&str, &str) -> Result<(), String>,
) -> Result<(), String> {
    let mut options = options.iter();
    while let Some(name) = options.next() {
        if flags.contains(name) {
            continue;
        }
        let value = options.next().filter(|_| with_value.contains(name));
        let Some(value) = value else {
            return Err(format!("{name} is not an option of what may be started"));
        };
        if value.starts_with('-') {
            // Where a value may be left out it would be an option of its own, and none that was looked at.
            return Err(format!("{value} is not a value of {name}"));
        }
        is_right(name, value)?;
    }
    Ok(())
}

/// Whether an address with its port is that of the server.
fn is_at(value: &str, address: IpAddr) -> Result<(), String> {
    match value.parse::<SocketAddr>() {
        Ok(at) if at.ip() == address => Ok(()),
        _ => Err(format!("the server of this run is at {address}, not at {value}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn may(words: &str, serves: bool) -> Result<(), String> {
        let words = CommandLine::parse(&format!("weir {words}")).unwrap().words().to_vec();
        let peers = Peers::of(&["go=go/net  {port}".into()], Some(Path::new("peers/bin")));
        may_start(&words, serves, "192.0.2.1".parse().unwrap(), &peers)
    }

    #[test]
    fn servers_and_generators_of_the_run_may_be_started() {
        for (words, serves) in [
            (
                "serve udp --design epoll --bind 192.0.2.1:0 --control 192.0.2.1:0 --once --json",
                true,
            ),
            ("serve tcp --design port --echo --bind 192.0.2.1:0 --end-with-input", true),
            ("flood 192.0.2.1 -p 7,8 --control 192.0.2.1:9 -l 64 --wait-for-start --json", false),
            ("flood 192.0.2.1 --control 192.0.2.1:9 --clocks 70:5", false),
            ("load tcp 192.0.2.1 -p 7 -c 3 --tell-phases", false),
            ("serve peer --command \"go/net '{port}'\" --bind 192.0.2.1:0 --size 9", true),
            (
                "serve tcp-peer --command 'peers/bin/libuv {ip} {port} loop {buffer}' --buffer 64",
                true,
            ),
        ] {
            assert_eq!(may(words, serves), Ok(()), "{words}");
        }
    }

    #[test]
    fn nothing_else_may() {
        for (words, serves, said) in [
            ("flood 192.0.2.7 -p 7", false, "is at 192.0.2.1, not at 192.0.2.7"),
            ("flood 192.0.2.1 --control 192.0.2.7:9", false, "not at 192.0.2.7:9"),
            ("load tcp 192.0.2.7 -p 7", false, "not at 192.0.2.7"),
            ("load tcp 192.0.2.1 --file /etc/passwd", false, "--file is not an option"),
            ("flood 192.0.2.1 --key-file x", false, "--key-file is not an option"),
            ("flood 192.0.2.1 --json=1", false, "--json=1 is not an option"),
            ("flood 192.0.2.1 --pps", false, "--pps is not an option"),
            ("serve udp --bind 0.0.0.0:0", true, "not at 0.0.0.0:0"),
            ("serve udp --bind=0.0.0.0:0 --json", true, "--bind=0.0.0.0:0 is not an option"),
            (
                "serve tcp --active --performance-log=/x",
                true,
                "--performance-log=/x is not a value",
            ),
            (
                "serve tcp --active --bind=0.0.0.0:0",
                true,
                "--bind=0.0.0.0:0 is not a value of --active",
            ),
            ("serve tcp --active --metrics=0.0.0.0:9", true, "is not a value of --active"),
            ("serve tcp --active -J", true, "-J is not a value of --active"),
            ("serve peer --command x", true, "does not name x"),
            (
                "serve tcp-peer --command 'peers/bin/../x {ip} {port} loop {buffer}'",
                true,
                "does not name peers/bin/../x",
            ),
            (
                "serve tcp-peer --command 'peers/bin/libuv {ip} 9'",
                true,
                "does not name peers/bin/libuv",
            ),
            (
                "serve tcp-peer --command 'peers/bin/libuv {ip} {port} --log=/x {buffer}'",
                true,
                "does not name peers/bin/libuv",
            ),
            ("serve peer --command \"go/net 9 '{port}'\"", true, "does not name go/net 9"),
            ("serve peer --command \"go/net '{port}'\"", false, "this rank generates"),
            ("serve tcp --command x", true, "--command is not an option"),
            ("serve udp --design epoll", false, "this rank generates"),
            ("flood 192.0.2.1 -p 7", true, "this rank serves"),
            ("iops", false, "does not start `weir iops`"),
            ("", true, "nothing to start"),
        ] {
            let why = may(words, serves).expect_err(words);
            assert!(why.contains(said), "{words}: {why}");
        }
    }
}
