//! A run of a mix: the server, a client whose figures count, and another one for the connections beside.
//!
//! Those beside stand first. Their client gives way to the other one on its core, so that what the well-behaved wait
//! for is the server. It ends when the other one has, in order, so that it learns of each connection whether the server
//! had it to the end, refused it or closed it.
//!
//! Over hosts the first of the clients' hosts has the connections whose figures count, the last one those beside. Each has one
//! address there; on loopback, and on a link of its own, there are as many as are asked for.

use std::net::Ipv4Addr;
use std::time::Duration;

use serde_json::Value;
use weir::machine::LoadMeter;

use super::{
    Asks, END_WITHIN, Processes, REPORT_WITHIN, Run, SETUP, TAIL, Target, places, under_load_only,
};
use crate::child::{Child, ChildError, CommandLine};
use crate::tcp::bench::Made;
use crate::tcp::loaded::{Followed, Loaded};
use crate::tcp::mix::{IDLE_EVERY_S, Mix, MixName, OF_FLOOD, OF_STUCK, Others};
use crate::tcp::plan::Load;
use crate::tcp::policy::Policy;
use crate::tcp::wire::{MARK, PhaseLine};
use crate::udp::link::{self, Site};

/// The client of those beside.
const OTHERS: &str = "the client of the others";

/// Where those come from whose figures count, and the others, on loopback.
const SOURCES: (Ipv4Addr, Ipv4Addr) = (Ipv4Addr::new(127, 0, 0, 1), Ipv4Addr::new(127, 16, 0, 1));

/// How long those beside are there at most, while nobody ends them.
const OTHERS_LAST: Duration = Duration::from_secs(600);
/// How long the server may take at the end to end each of their connections, or to refuse it.
const OTHERS_END: Duration = Duration::from_secs(10);
/// How long it may take to close those that it has to: their client ends when that is done, and on a machine that is busy
/// with other things it hardly gets a core, since it gives way.
const CLOSED_WITHIN: Duration = Duration::from_secs(300);
/// How long answers may still come, to those whose figures count, when measuring is over: those to whom the server has
/// not come yet get none.
const LAST_ANSWERS: Duration = Duration::from_millis(500);
/// How long a mix goes on before anything is measured, besides the usual: until stuck connections are stuck.
const GETTING_STUCK_MS: u64 = 300;
/// How long each of so many messages on each connection may take in all.
const ALL_MESSAGES: Duration = Duration::from_secs(60);

impl Processes {
    /// Runs a mix.
    pub(super) fn try_mix(&self, run: &Run, mix: &Mix) -> Result<Made, ChildError> {
        let mut meter = LoadMeter::start();
        let all = run.load.connections_in_all();
        let command = self
            .server(run.row, all, run.load.buffer_bytes)
            .option("--sndbuf", mix.send_buffer_bytes.filter(|_| run.row.peer.is_none()));
        let (mut server, at, line) = self.start(&command)?;
        let is_closed = Policy::of(run.row).closes_others(mix);
        let loaded = self.load_mix(run, mix, at, is_closed, &mut server);
        let (loaded, others) = match loaded {
            Ok(loaded) => loaded,
            Err(error) => return Err(server.or_blame(error)),
        };
        if mix.messages_each.is_some() {
            server.say(MARK);
        }
        let mut report = self.end(server)?;
        if mix.messages_each.is_none() {
            under_load_only(&mut report, loaded.report.window.as_ref(), loaded.ended_ns);
        }
        let Loaded { report: load, invalid, .. } = loaded;
        let fleet = self.site.fleet();
        let of_hosts = fleet.into_iter().flat_map(|fleet| places(fleet, run.load));
        for (name, value) in line.ready.settings.into_iter().chain(of_hosts) {
            report.settings.entry(name).or_insert(value);
        }
        let (others, others_invalid) = match others {
            Some(Loaded { report, invalid, .. }) => (Some(report), invalid),
            None => (None, None),
        };
        let of_others = others.as_ref().and_then(|others| others.process_cpu_ns);
        let own_ns = [report.cpu_ns, load.process_cpu_ns, of_others].iter().flatten().sum();
        // What ran on other machines is not in what this one had to do.
        let is_here = fleet.is_none_or(|fleet| !fleet.hosts().is_elsewhere());
        let load_of_others = meter.read(own_ns).others.filter(|_| is_here);
        let invalid = invalid
            .or_else(|| others_invalid.map(|why| format!("of the connections beside: {why}")));
        Ok(Made { server: report, load, others, invalid, load_of_others })
    }

    /// Loads a server with a mix. Gives what came of those whose figures count, and of the others.
    fn load_mix(
        &self,
        run: &Run,
        mix: &Mix,
        at: Target,
        is_closed: bool,
        server: &mut Child,
    ) -> Result<(Loaded, Option<Loaded>), ChildError> {
        let beside = mix.others.map(|others| self.stand_beside(at, mix, others, is_closed));
        let beside = beside.transpose()?;
        let (asks, lasts) = match mix.messages_each {
            None => (Asks::Buffers, Duration::from_millis(run.warmup_ms + run.run_ms)),
            Some(_) => {
                server.say(MARK);
                (Asks::BuffersOnce, ALL_MESSAGES)
            }
        };
        let command = self.client_of_mix(at, run.load, mix, (run.warmup_ms, run.run_ms));
        let loaded = self.follow(&command, server, lasts, asks)?.with_connections()?;
        let others = beside.map(|beside| self.others_ended(beside, is_closed)).transpose()?;
        Ok((loaded, others))
    }

    /// Starts the client of those beside, and waits until all of them stand or have failed.
    fn stand_beside(
        &self,
        at: Target,
        mix: &Mix,
        others: Others,
        is_closed: bool,
    ) -> Result<Child, ChildError> {
        let command = self.client_of_others(at, mix, others, is_closed);
        let mut client = self.spawn_client(OTHERS, self.clients().last(), &command)?;
        let deadline = self.runner.time.deadline(self.runner.time.wait(SETUP), REPORT_WITHIN);
        let line: Value = client.document("connections", deadline)?;
        match serde_json::from_value(line.clone()) {
            Ok(PhaseLine { phase, .. }) if phase == "settled" => Ok(client),
            // It says what went wrong, and nothing before.
            _ => match Followed::read(line)?.with_connections() {
                Err(error) => Err(error),
                Ok(_) => Err(ChildError::Garbage {
                    name: OTHERS,
                    what: "connections",
                    problem: "it ended before they stood".into(),
                }),
            },
        }
    }

    /// Ends the client of those beside, unless it ends by itself when all of them are closed, and takes its report.
    fn others_ended(&self, mut client: Child, is_closed: bool) -> Result<Loaded, ChildError> {
        if !is_closed {
            client.close_input();
        }
        let waits = self.runner.time.wait(OTHERS_END) + self.runner.time.wait(CLOSED_WITHIN);
        let deadline = self.runner.time.deadline(waits, REPORT_WITHIN);
        let document = loop {
            let document: Value = client.document("report", deadline)?;
            if serde_json::from_value::<PhaseLine>(document.clone()).is_err() {
                break document;
            }
        };
        client.finish(self.runner.within(END_WITHIN))?;
        Followed::read(document)?.with_connections()
    }

    /// Where those come from whose figures count, and the others; `None` where each host has an address of its own.
    fn sources(&self) -> Option<(Ipv4Addr, Ipv4Addr)> {
        match &self.site {
            Site::Loopback { .. } => Some(SOURCES),
            Site::Link(_) => Some((link::CLIENTS, link::OTHER_CLIENTS)),
            Site::Hosts(fleet) => (!fleet.hosts().is_elsewhere()).then_some(SOURCES),
        }
    }

    /// The command of the client of those beside.
    fn client_of_others(
        &self,
        target: Target,
        mix: &Mix,
        others: Others,
        is_closed: bool,
    ) -> CommandLine {
        let s = |time: Duration| format!("{}s", time.as_secs());
        // They are closed behind what is measured, or it is no wonder that they are not.
        let lasts = if is_closed { self.wait(CLOSED_WITHIN) } else { s(OTHERS_LAST) };
        let sends = |(bytes, under_way): (u32, u32)| {
            ["-b".to_owned(), bytes.to_string(), "-o".into(), under_way.to_string()]
        };
        let conduct = |name: &str| ["--conduct".to_owned(), name.to_owned()];
        let does = match mix.name {
            MixName::Idle => vec!["--every".to_owned(), format!("{IDLE_EVERY_S}s")],
            MixName::Flood => sends(OF_FLOOD).to_vec(),
            MixName::Stuck => [conduct("stuck").to_vec(), sends(OF_STUCK).to_vec()].concat(),
            MixName::Silent | MixName::Busy | MixName::Turns => conduct("silent").to_vec(),
        };
        let first = self.sources().map(|(_, first)| first);
        self.client_with(self.clients().last(), target, s(OTHERS_LAST))
            .option("-c", Some(others.connections))
            .option("--sources", first.map(|_| others.sources))
            .option("--first-source", first)
            .arguments(does)
            .option("-t", Some(lasts))
            .option("--drain", Some(self.wait(OTHERS_END)))
            .arguments(["--gives-way", "--refusals-expected", "--tell-phases", "--end-with-input"])
    }

    /// The command of the client whose figures count.
    fn client_of_mix(
        &self,
        target: Target,
        load: &Load,
        mix: &Mix,
        (warmup, run): (u64, u64),
    ) -> CommandLine {
        let warmup = warmup + if mix.name == MixName::Stuck { GETTING_STUCK_MS } else { 0 };
        let first = self.sources().map(|(first, _)| first);
        let client = self
            .client(target)
            .option("-c", Some(load.connections))
            .option("--sources", first.map(|_| mix.sources))
            .option("--first-source", first)
            .option("-b", Some(load.message_bytes))
            .option("-o", Some(load.outstanding))
            .option("--messages-per-s", mix.messages_per_s)
            .arguments(["--refusals-expected", "--memory", "--tell-phases"]);
        match mix.messages_each {
            Some(messages) => {
                client.option("-x", Some(messages)).option("-t", Some(self.wait(ALL_MESSAGES)))
            }
            None => client
                .option("-t", Some(format!("{}ms", warmup + run)))
                .option("-O", (warmup > 0).then(|| format!("{warmup}ms")))
                .option("--tail", Some(format!("{}ms", TAIL.as_millis())))
                .option("--drain", Some(self.wait(LAST_ANSWERS))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::child::Interrupt;
    use crate::experiment::plan::{Depth, Row};
    use crate::tcp::strategies::loads;

    fn processes() -> Processes {
        Processes::new("weir".into(), vec![0], vec![1], Interrupt::new(), None)
    }

    fn of(name: MixName, is_closed: bool) -> [String; 2] {
        let load = loads(Depth::Quick, &[name], None, None)[0];
        let mix = load.mix.unwrap();
        let at = Target::from("127.0.0.1:7".parse::<std::net::SocketAddr>().unwrap());
        let others = mix.others.map(|of| processes().client_of_others(at, &mix, of, is_closed));
        let own = processes().client_of_mix(at, &load, &mix, (60, 300));
        [own.to_string(), others.map(|of| of.to_string()).unwrap_or_default()]
    }

    #[test]
    fn the_commands_are_such_as_a_person_would_write() {
        let [own, others] = of(MixName::Silent, false);
        assert_eq!(
            own,
            "weir load tcp 127.0.0.1 -p 7 --cpu 1 --setup-time 30s --connect-timeout 10s \
             --answer-timeout 10s -i 0 --json -c 64 --sources 16 --first-source 127.0.0.1 -b 64 -o 1 \
             --messages-per-s 2000 --refusals-expected --memory --tell-phases -t 360ms -O 60ms \
             --tail 100ms --drain 500ms"
        );
        assert_eq!(
            others,
            "weir load tcp 127.0.0.1 -p 7 --cpu 1 --setup-time 30s --connect-timeout 10s \
             --answer-timeout 600s -i 0 --json -c 1000 --sources 4 --first-source 127.16.0.1 \
             --conduct silent -t 600s --drain 10s --gives-way --refusals-expected --tell-phases \
             --end-with-input"
        );
        let [_, others] = of(MixName::Silent, true);
        assert!(others.contains("-t 300s"), "they end when all are closed: {others}");
        let [own, others] = of(MixName::Turns, false);
        assert!(own.contains("-x 20 -t 60s") && others.is_empty(), "{own}");
    }

    #[test]
    fn limits_of_a_row_are_the_servers() {
        let row = Row::parse("port --idle zero-byte --active 100 --close-when-full").unwrap();
        assert_eq!(
            processes().server(&row, 64, 4096).to_string(),
            "weir serve tcp --design 'port --idle zero-byte' --echo --buffer 4096 --connections-max 65536 \
             --active 100 --close-when-full --interval 0 --bind 127.0.0.1:0 --cpu 0 --end-with-input --json"
        );
        let row = Row::parse("epoll --buffer 64k --connections-max 256").unwrap();
        let text = processes().server(&row, 64, 4096).to_string();
        assert_eq!(text.matches("--buffer").count() + text.matches("--connections-max").count(), 2);
        assert!(text.contains("--buffer 64k --connections-max 256"), "{text}");
    }

    #[test]
    fn a_server_is_looked_at_when_its_load_was_measured() {
        assert_eq!(Asks::Buffers.at("ended").first(), Some(&MARK));
        assert!(Asks::Buffers.at("settled").is_empty() && Asks::Standing.at("settled").is_empty());
        assert!(!Asks::BuffersOnce.at("settled").contains(&MARK));
    }
}
