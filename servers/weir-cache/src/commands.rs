//! What each command does. Replies and errors are those of Redis 7.

use crate::{
    client::Client,
    clock::Now,
    resp::{Arguments, Replies, integer},
    store::NEVER,
};
use std::sync::atomic::Ordering::Relaxed;
use weir::tcp::Output;

/// What a command is carried out with.
pub struct Context<'a, 'o> {
    /// Whose command it is.
    pub client: &'a mut Client,
    /// The command.
    pub arguments: Arguments<'a>,
    /// Where its reply goes.
    pub replies: Replies<'a>,
    /// The time.
    pub now: &'a Now<'a>,
    /// Of the connection.
    pub output: &'a mut Output<'o>,
}

struct Command {
    name: &'static str,
    /// Arguments that it takes at least, its name included, and at most.
    least: usize,
    most: usize,
    /// A client that has subscribed may use it, though it cannot tell replies from what is published.
    while_subscribed: bool,
    run: fn(&mut Context<'_, '_>) -> Result<(), String>,
}

const ANY: usize = usize::MAX;

const fn command(
    name: &'static str,
    least: usize,
    most: usize,
    run: fn(&mut Context<'_, '_>) -> Result<(), String>,
) -> Command {
    Command { name, least, most, while_subscribed: false, run }
}

const fn also_subscribed(command: Command) -> Command {
    Command { while_subscribed: true, ..command }
}

/// All commands, those that come most often first.
static COMMANDS: [Command; 33] = [
    command("GET", 2, 2, get),
    command("SET", 3, ANY, set),
    command("DEL", 2, ANY, del),
    command("INCR", 2, 2, |it| it.add(1)),
    command("DECR", 2, 2, |it| it.add(-1)),
    command("INCRBY", 3, 3, |it| it.add(it.number(2)?)),
    command("DECRBY", 3, 3, decrby),
    command("MGET", 2, ANY, mget),
    command("MSET", 3, ANY, mset),
    command("EXISTS", 2, ANY, exists),
    command("EXPIRE", 3, ANY, |it| it.expire(1000)),
    command("PEXPIRE", 3, ANY, |it| it.expire(1)),
    command("TTL", 2, 2, |it| it.left(1000)),
    command("PTTL", 2, 2, |it| it.left(1)),
    command("PERSIST", 2, 2, persist),
    command("PUBLISH", 3, 3, publish),
    also_subscribed(command("PING", 1, 2, ping)),
    also_subscribed(command("SUBSCRIBE", 2, ANY, subscribe)),
    also_subscribed(command("UNSUBSCRIBE", 1, ANY, unsubscribe)),
    also_subscribed(command("QUIT", 1, ANY, quit)),
    command("ECHO", 2, 2, echo),
    command("UNLINK", 2, ANY, del),
    command("DBSIZE", 1, 1, dbsize),
    command("FLUSHALL", 1, 2, flush),
    command("FLUSHDB", 1, 2, flush),
    command("TYPE", 2, 2, type_of),
    command("STRLEN", 2, 2, strlen),
    command("SELECT", 2, 2, select),
    command("HELLO", 1, ANY, hello),
    command("CLIENT", 2, ANY, client),
    command("CONFIG", 2, ANY, config),
    command("COMMAND", 1, ANY, command_command),
    command("INFO", 1, ANY, info),
];

/// The longest name.
const LONGEST: usize = 16;

impl Context<'_, '_> {
    /// Carries the command out.
    pub fn run(&mut self) {
        let name = self.arguments.get(0);
        let mut upper = [0; LONGEST];
        let Some(upper) = upper.get_mut(..name.len()) else { return self.unknown(name) };
        upper.copy_from_slice(name);
        upper.make_ascii_uppercase();
        let Some(command) = COMMANDS.iter().find(|command| command.name.as_bytes() == upper) else {
            return self.unknown(name);
        };
        let lower = || command.name.to_ascii_lowercase();
        if !(command.least..=command.most).contains(&self.arguments.len()) {
            return self.replies.error(&wrong_number(&lower()));
        }
        if !command.while_subscribed && !self.replies.is_resp3 && self.client.has_subscribed() {
            return self.replies.error(&format!(
                "ERR Can't execute '{}': only SUBSCRIBE / UNSUBSCRIBE / PING / QUIT are allowed in this context",
                lower()
            ));
        }
        if let Err(why) = (command.run)(self) {
            self.replies.error(&why);
        }
    }

    fn unknown(&mut self, name: &[u8]) {
        const MOST: usize = 128;
        let text = |bytes: &[u8], most: usize| {
            String::from_utf8_lossy(&bytes[..bytes.len().min(most)]).into_owned()
        };
        let mut beginning = String::new();
        for argument in self.arguments.iter_from(1) {
            if beginning.len() >= MOST {
                break;
            }
            beginning += &format!("'{}' ", text(argument, MOST - beginning.len()));
        }
        let name = text(name, MOST);
        self.replies
            .error(&format!("ERR unknown command '{name}', with args beginning with: {beginning}"));
    }

    fn number(&self, index: usize) -> Result<i64, String> {
        integer(self.arguments.get(index)).ok_or_else(|| NO_INTEGER.into())
    }

    /// The last moment of a time from now on, which is one of so many milliseconds.
    fn moment(&self, time: i64, unit: i64) -> Option<u64> {
        let ms = time.checked_mul(unit)?;
        // As far away as Redis' own clock allows is for ever here.
        (self.now.ms() as i64).checked_add(ms).map(|at| at.max(0) as u64)
    }

    fn add(&mut self, change: i64) -> Result<(), String> {
        let key = self.arguments.get(1);
        let mut shard = self.client.shared.store.lock(key);
        shard.make_room().map_err(|_| FULL)?;
        let number = match shard.get(key, self.now) {
            Some(value) => integer(value).ok_or(NO_INTEGER)?,
            None => 0,
        };
        let sum = number.checked_add(change).ok_or("ERR increment or decrement would overflow")?;
        let expires = shard.expires(key, self.now).unwrap_or(NEVER);
        let mut digits = itoa::Buffer::new();
        shard.set(key, digits.format(sum).as_bytes(), expires);
        self.replies.integer(sum);
        Ok(())
    }

    fn expire(&mut self, unit: i64) -> Result<(), String> {
        let key = self.arguments.get(1);
        let only = OnlyWhen::parse(self.arguments.iter_from(3))?;
        let time = self.number(2)?;
        let name = if unit == 1 { "pexpire" } else { "expire" };
        let at = self.moment(time, unit).ok_or_else(|| invalid_time(name))?;
        let mut shard = self.client.shared.store.lock(key);
        let done = match shard.expires(key, self.now) {
            Some(before) if only.allows(before, at) => match time > 0 {
                true => shard.set_expires(key, at, self.now),
                // A time that is over removes the key now.
                false => shard.remove(key, self.now),
            },
            _ => false,
        };
        self.replies.integer(done.into());
        Ok(())
    }

    fn left(&mut self, unit: u64) -> Result<(), String> {
        let key = self.arguments.get(1);
        let expires = self.client.shared.store.lock(key).expires(key, self.now);
        self.replies.integer(match expires {
            None => -2,
            Some(NEVER) => -1,
            Some(at) => ((at - self.now.ms() + unit / 2) / unit) as i64,
        });
        Ok(())
    }
}

/// What a key's time must be for another to take its place.
#[derive(Default)]
struct OnlyWhen {
    never: bool,
    set: bool,
    sooner: bool,
    later: bool,
}

impl OnlyWhen {
    fn parse<'a>(options: impl Iterator<Item = &'a [u8]>) -> Result<Self, String> {
        let mut it = Self::default();
        for option in options {
            match &option.to_ascii_uppercase()[..] {
                b"NX" => it.never = true,
                b"XX" => it.set = true,
                b"GT" => it.sooner = true,
                b"LT" => it.later = true,
                _ => {
                    let option = String::from_utf8_lossy(option);
                    return Err(format!("ERR Unsupported option {option}"));
                }
            }
        }
        if it.never && (it.set || it.sooner || it.later) {
            return Err(
                "ERR NX and XX, GT or LT options at the same time are not compatible".into()
            );
        }
        if it.sooner && it.later {
            return Err("ERR GT and LT options at the same time are not compatible".into());
        }
        Ok(it)
    }

    /// Whether the time may be changed. [`NEVER`] is later than all others.
    fn allows(&self, before: u64, after: u64) -> bool {
        let is_set = before != NEVER;
        !(self.never && is_set
            || self.set && !is_set
            || self.sooner && before >= after
            || self.later && before <= after)
    }
}

const NO_INTEGER: &str = "ERR value is not an integer or out of range";
const SYNTAX: &str = "ERR syntax error";
const FULL: &str = "OOM command not allowed when used memory > 'maxmemory'.";

fn wrong_number(name: &str) -> String {
    format!("ERR wrong number of arguments for '{name}' command")
}

fn invalid_time(name: &str) -> String {
    format!("ERR invalid expire time in '{name}' command")
}

fn get(it: &mut Context<'_, '_>) -> Result<(), String> {
    let key = it.arguments.get(1);
    match it.client.shared.store.lock(key).get(key, it.now) {
        Some(value) => it.replies.bulk(value),
        None => it.replies.null(),
    }
    Ok(())
}

fn set(it: &mut Context<'_, '_>) -> Result<(), String> {
    let (key, value) = (it.arguments.get(1), it.arguments.get(2));
    let (mut only_new, mut only_known, mut keeps) = (false, false, false);
    let mut time: Option<(&[u8], i64)> = None;
    let mut options = it.arguments.iter_from(3);
    while let Some(option) = options.next() {
        let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
        let unit = if is("EX") { 1000 } else { 1 };
        match () {
            () if is("NX") && !only_known => only_new = true,
            () if is("XX") && !only_new => only_known = true,
            () if is("KEEPTTL") && time.is_none() => keeps = true,
            // The last of several counts, where they are of one unit.
            () if (is("EX") || is("PX")) && !keeps && time.is_none_or(|(_, its)| its == unit) => {
                time = Some((options.next().ok_or(SYNTAX)?, unit));
            }
            () => return Err(SYNTAX.into()),
        }
    }
    let mut expires = NEVER;
    if let Some((time, unit)) = time {
        let time = integer(time).ok_or(NO_INTEGER)?;
        let at = Some(time).filter(|time| *time > 0).and_then(|time| it.moment(time, unit));
        expires = at.ok_or_else(|| invalid_time("set"))?;
    }
    let mut shard = it.client.shared.store.lock(key);
    shard.make_room().map_err(|_| FULL)?;
    if only_new || only_known || keeps {
        let known = shard.expires(key, it.now);
        if (only_new && known.is_some()) || (only_known && known.is_none()) {
            it.replies.null();
            return Ok(());
        }
        if keeps {
            expires = known.unwrap_or(NEVER);
        }
    }
    shard.set(key, value, expires);
    it.replies.simple("OK");
    Ok(())
}

fn del(it: &mut Context<'_, '_>) -> Result<(), String> {
    let mut shards = it.client.shared.store.lock_all(it.arguments.iter_from(1));
    let removed =
        it.arguments.iter_from(1).filter(|key| shards.of(key).remove(key, it.now)).count();
    it.replies.integer(removed as i64);
    Ok(())
}

fn exists(it: &mut Context<'_, '_>) -> Result<(), String> {
    let mut shards = it.client.shared.store.lock_all(it.arguments.iter_from(1));
    let there = it.arguments.iter_from(1).filter(|key| shards.of(key).has(key, it.now)).count();
    it.replies.integer(there as i64);
    Ok(())
}

fn decrby(it: &mut Context<'_, '_>) -> Result<(), String> {
    let change = it.number(2)?.checked_neg().ok_or("ERR decrement would overflow")?;
    it.add(change)
}

fn mget(it: &mut Context<'_, '_>) -> Result<(), String> {
    let keys = it.arguments.iter_from(1);
    it.replies.array(keys.len());
    let mut shards = it.client.shared.store.lock_all(it.arguments.iter_from(1));
    for key in keys {
        match shards.of(key).get(key, it.now) {
            Some(value) => it.replies.bulk(value),
            None => it.replies.null(),
        }
        if it.replies.overflowed {
            break;
        }
    }
    Ok(())
}

fn mset(it: &mut Context<'_, '_>) -> Result<(), String> {
    if it.arguments.len().is_multiple_of(2) {
        return Err(wrong_number("mset"));
    }
    let mut shards = it.client.shared.store.lock_all(it.arguments.iter_from(1).step_by(2));
    shards.make_room().map_err(|_| FULL)?;
    for index in (1..it.arguments.len()).step_by(2) {
        let key = it.arguments.get(index);
        shards.of(key).set(key, it.arguments.get(index + 1), NEVER);
    }
    it.replies.simple("OK");
    Ok(())
}

fn persist(it: &mut Context<'_, '_>) -> Result<(), String> {
    let key = it.arguments.get(1);
    let mut shard = it.client.shared.store.lock(key);
    let expires = shard.expires(key, it.now).is_some_and(|expires| expires != NEVER);
    it.replies.integer((expires && shard.set_expires(key, NEVER, it.now)).into());
    Ok(())
}

fn publish(it: &mut Context<'_, '_>) -> Result<(), String> {
    let reached = it.client.shared.channels.publish(it.arguments.get(1), it.arguments.get(2));
    it.replies.integer(reached as i64);
    Ok(())
}

fn ping(it: &mut Context<'_, '_>) -> Result<(), String> {
    let text = (it.arguments.len() > 1).then(|| it.arguments.get(1));
    if it.client.has_subscribed() && !it.replies.is_resp3 {
        it.replies.array(2);
        it.replies.bulk(b"pong");
        it.replies.bulk(text.unwrap_or_default());
    } else if let Some(text) = text {
        it.replies.bulk(text);
    } else {
        it.replies.simple("PONG");
    }
    Ok(())
}

fn subscribe(it: &mut Context<'_, '_>) -> Result<(), String> {
    for channel in it.arguments.iter_from(1) {
        it.client.subscribe(channel, &mut it.replies, it.output)?;
    }
    Ok(())
}

fn unsubscribe(it: &mut Context<'_, '_>) -> Result<(), String> {
    if it.arguments.len() > 1 {
        for channel in it.arguments.iter_from(1) {
            it.client.unsubscribe(Some(channel), &mut it.replies);
        }
    } else {
        it.client.unsubscribe_all(&mut it.replies);
    }
    Ok(())
}

fn quit(it: &mut Context<'_, '_>) -> Result<(), String> {
    it.replies.simple("OK");
    it.client.quit();
    Ok(())
}

fn echo(it: &mut Context<'_, '_>) -> Result<(), String> {
    it.replies.bulk(it.arguments.get(1));
    Ok(())
}

fn dbsize(it: &mut Context<'_, '_>) -> Result<(), String> {
    it.replies.integer(it.client.shared.store.counts().keys as i64);
    Ok(())
}

fn flush(it: &mut Context<'_, '_>) -> Result<(), String> {
    let known =
        |how: &[u8]| how.eq_ignore_ascii_case(b"SYNC") || how.eq_ignore_ascii_case(b"ASYNC");
    if it.arguments.iter_from(1).any(|how| !known(how)) {
        return Err(SYNTAX.into());
    }
    it.client.shared.store.clear();
    it.replies.simple("OK");
    Ok(())
}

fn type_of(it: &mut Context<'_, '_>) -> Result<(), String> {
    let key = it.arguments.get(1);
    let there = it.client.shared.store.lock(key).has(key, it.now);
    it.replies.simple(if there { "string" } else { "none" });
    Ok(())
}

fn strlen(it: &mut Context<'_, '_>) -> Result<(), String> {
    let key = it.arguments.get(1);
    let bytes = it.client.shared.store.lock(key).get(key, it.now).map_or(0, <[u8]>::len);
    it.replies.integer(bytes as i64);
    Ok(())
}

fn select(it: &mut Context<'_, '_>) -> Result<(), String> {
    match i32::try_from(it.number(1)?) {
        Ok(0) => it.replies.simple("OK"),
        Ok(_) => return Err("ERR DB index is out of range".into()),
        Err(_) => {
            let (least, most) = (i32::MIN, i32::MAX);
            return Err(format!(
                "ERR value is out of range, value must between {least} and {most}"
            ));
        }
    }
    Ok(())
}

fn hello(it: &mut Context<'_, '_>) -> Result<(), String> {
    if it.arguments.len() > 1 {
        let version = integer(it.arguments.get(1))
            .ok_or("ERR Protocol version is not an integer or out of range")?;
        if !(2..=3).contains(&version) {
            return Err("NOPROTO unsupported protocol version".into());
        }
        let mut options = it.arguments.iter_from(2);
        while let Some(option) = options.next() {
            // A name of the client is taken, and nothing comes of it.
            if !(option.eq_ignore_ascii_case(b"SETNAME") && options.next().is_some()) {
                return Err(format!(
                    "ERR Syntax error in HELLO option '{}'",
                    String::from_utf8_lossy(option)
                ));
            }
        }
        if it.client.has_subscribed() {
            return Err(
                "ERR the version of the protocol is not changed while there are subscriptions"
                    .into(),
            );
        }
        it.client.is_resp3 = version == 3;
        it.replies.is_resp3 = it.client.is_resp3;
    }
    it.replies.map(7);
    it.replies.pair("server", "weir-cache");
    it.replies.pair("version", env!("CARGO_PKG_VERSION"));
    it.replies.bulk(b"proto");
    it.replies.integer(if it.replies.is_resp3 { 3 } else { 2 });
    it.replies.bulk(b"id");
    it.replies.integer(it.client.id as i64);
    it.replies.pair("mode", "standalone");
    it.replies.pair("role", "master");
    it.replies.bulk(b"modules");
    it.replies.array(0);
    Ok(())
}

/// As much as clients ask of themselves when they connect.
fn client(it: &mut Context<'_, '_>) -> Result<(), String> {
    let sub = it.arguments.get(1).to_ascii_uppercase();
    match (&sub[..], it.arguments.len()) {
        (b"ID", 2) => it.replies.integer(it.client.id as i64),
        // Names are taken, and nothing comes of them.
        (b"SETNAME", 3) | (b"SETINFO", 4) => it.replies.simple("OK"),
        (b"GETNAME", 2) => it.replies.null(),
        _ => return Err(unknown_subcommand("CLIENT", it.arguments.get(1))),
    }
    Ok(())
}

fn unknown_subcommand(of: &str, sub: &[u8]) -> String {
    format!(
        "ERR unknown subcommand or wrong number of arguments for '{}'. {of} is not all there.",
        String::from_utf8_lossy(sub)
    )
}

fn config(it: &mut Context<'_, '_>) -> Result<(), String> {
    let sub = it.arguments.get(1);
    if !sub.eq_ignore_ascii_case(b"GET") || it.arguments.len() < 3 {
        return Err(unknown_subcommand("CONFIG", sub));
    }
    let settings = &it.client.shared.settings;
    let all = [
        ("save", String::new()),
        ("appendonly", "no".into()),
        ("databases", "1".into()),
        ("maxmemory", settings.memory_bytes.to_string()),
        ("maxmemory-policy", settings.eviction.name()),
        ("maxclients", settings.clients.to_string()),
    ];
    let asked = |name: &str| {
        it.arguments.iter_from(2).any(|it| it == b"*" || it.eq_ignore_ascii_case(name.as_bytes()))
    };
    let found: Vec<_> = all.iter().filter(|(name, _)| asked(name)).collect();
    it.replies.map(found.len());
    for (name, value) in found {
        it.replies.pair(name, value);
    }
    Ok(())
}

fn command_command(it: &mut Context<'_, '_>) -> Result<(), String> {
    match it.arguments.iter_from(1).next() {
        Some(sub) if sub.eq_ignore_ascii_case(b"COUNT") => {
            it.replies.integer(COMMANDS.len() as i64)
        }
        // Clients take what is not documented as it is.
        Some(sub) if sub.eq_ignore_ascii_case(b"DOCS") => it.replies.map(0),
        Some(sub) if sub.eq_ignore_ascii_case(b"LIST") => {
            it.replies.array(COMMANDS.len());
            COMMANDS
                .iter()
                .for_each(|command| it.replies.bulk(command.name.to_ascii_lowercase().as_bytes()));
        }
        None => it.replies.array(0),
        Some(sub) => return Err(unknown_subcommand("COMMAND", sub)),
    }
    Ok(())
}

fn info(it: &mut Context<'_, '_>) -> Result<(), String> {
    let shared = &it.client.shared;
    let counts = shared.store.counts();
    let policy = shared.settings.eviction.name();
    let mut text = format!(
        "# Server\r\nredis_version:7.0.0\r\nserver_name:weir-cache\r\nweir_cache_version:{}\r\nuptime_in_seconds:{}\r\n\
         \r\n# Clients\r\nconnected_clients:{}\r\nmaxclients:{}\r\n\
         \r\n# Memory\r\nused_memory:{}\r\nmaxmemory:{}\r\nmaxmemory_policy:{policy}\r\n\
         \r\n# Stats\r\ntotal_connections_received:{}\r\ntotal_commands_processed:{}\r\nkeyspace_hits:{}\r\n\
         keyspace_misses:{}\r\nexpired_keys:{}\r\nevicted_keys:{}\r\npubsub_channels:{}\r\n\
         client_output_buffer_limit_disconnections:{}\r\n\
         \r\n# Keyspace\r\n",
        env!("CARGO_PKG_VERSION"),
        shared.since.elapsed().as_secs(),
        shared.clients.load(Relaxed),
        shared.settings.clients,
        counts.bytes,
        shared.settings.memory_bytes,
        shared.ids.load(Relaxed),
        shared.commands.load(Relaxed),
        counts.hits,
        counts.misses,
        counts.expired,
        counts.evicted,
        shared.channels.count(),
        shared.channels.too_slow.load(Relaxed),
    );
    if counts.keys > 0 {
        text += &format!("db0:keys={},expires={},avg_ttl=0\r\n", counts.keys, counts.expiring);
    }
    it.replies.bulk(text.as_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_capitals_and_fit() {
        for command in &COMMANDS {
            assert!(
                command.name.len() <= LONGEST
                    && command.name.bytes().all(|it| it.is_ascii_uppercase())
            );
            assert!(1 <= command.least && command.least <= command.most);
        }
    }
}
