//! `weir designs`: what there is, and whether it can run here.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use weir::memory::RegionOptions;
use weir::options::{OptionInfo, Options as _};
use weir::rio::Choice;
use weir::{
    Unavailable, device,
    tcp::{self, About},
    udp,
};

use crate::exit;
use crate::width::fitted_lines;

/// Options of `weir designs`.
#[derive(Debug, Args)]
pub struct DesignsArgs {
    /// Design to show with its options; or udp, tcp or iops, which lists the designs of that kind.
    name: Option<String>,

    /// One document on standard output.
    #[arg(short = 'J', long)]
    json: bool,
}

/// Designs of each kind of server, and of devices.
struct Listed {
    udp: Vec<udp::AnyDesign>,
    tcp: Vec<tcp::AnyDesign>,
    device: Vec<device::AnyDesign>,
}

/// Runs `weir designs`.
pub fn run(args: &DesignsArgs) -> ExitCode {
    let mut listed = Listed::all();
    let kind = args.name.as_deref().filter(|name| listed.keep_kind(name));
    if let Some(name) = args.name.as_ref().filter(|_| kind.is_none()) {
        let none = listed.no_such(name);
        listed.udp.retain(|design| design.about().name == name);
        listed.tcp.retain(|design| design.about().name == name);
        listed.device.retain(|design| design.about().name == name);
        if listed.names().is_empty() {
            if args.json {
                crate::print(&format!("{}\n", failure(&none)));
            }
            say!("weir designs: {none}");
            return ExitCode::from(exit::USAGE);
        }
    }
    let text = match (args.json, &args.name) {
        (true, _) => format!("{}\n", document(&listed)),
        (false, Some(_)) if kind.is_none() => in_full(&listed),
        (false, _) => list(&listed),
    };
    let text = if args.json { text } else { fitted_lines(&text) };
    if let Err(failure) = crate::print_results(&text) {
        say!("weir designs: {}", failure.message);
        return ExitCode::from(failure.code);
    }
    ExitCode::from(exit::OK)
}

/// The names of all designs.
pub fn names() -> Vec<&'static str> {
    Listed::all().names()
}

/// The options of all designs of servers and devices, with the design that has each.
pub fn options() -> Vec<(&'static str, OptionInfo)> {
    let Listed { udp, tcp, device, .. } = Listed::all();
    let of_udp = udp.iter().map(|design| {
        let memory = RegionOptions::known();
        (design.about().name, design.known_options().into_iter().chain(memory).collect::<Vec<_>>())
    });
    let of_tcp = tcp.iter().map(|design| (design.about().name, design.known_options()));
    let of_devices = device.iter().map(|design| (design.about().name, design.known_options()));
    let all = of_udp.chain(of_tcp).chain(of_devices);
    all.flat_map(|(design, options)| options.into_iter().map(move |option| (design, option)))
        .collect()
}

impl Listed {
    fn all() -> Self {
        Self { udp: udp::designs(), tcp: tcp::designs(), device: device::designs() }
    }

    /// Keeps the designs of one kind, if this is the word of a kind.
    fn keep_kind(&mut self, word: &str) -> bool {
        let all = Self { udp: vec![], tcp: vec![], device: vec![] };
        let all = std::mem::replace(self, all);
        match word {
            "udp" => self.udp = all.udp,
            "tcp" => self.tcp = all.tcp,
            "iops" | "device" | "devices" => self.device = all.device,
            _ => {
                *self = all;
                return false;
            }
        }
        true
    }

    /// That there is no design of this name, and which there are of each kind.
    fn no_such(&self, name: &str) -> String {
        if Choice::ALL.iter().any(|provider| provider.about().name == name) {
            return format!(
                "{name} is a provider of registered I/O, and not a design; `weir designs udp` lists the providers, too"
            );
        }
        let list = |names: Vec<&str>| names.join(", ");
        let known = format!(
            "udp: {}; tcp: {}; iops: {}",
            list(self.udp.iter().map(|design| design.about().name).collect()),
            list(self.tcp.iter().map(|design| design.about().name).collect()),
            list(self.device.iter().map(|design| design.about().name).collect()),
        );
        match weir::Error::unknown_name("design", name, self.names()) {
            weir::Error::UnknownName { kind, name, nearest, .. } => {
                weir::Error::UnknownName { kind, name, known, nearest }.to_string()
            }
            other => other.to_string(),
        }
    }

    /// Each name once: a mechanism may have a design of each kind.
    fn names(&self) -> Vec<&'static str> {
        let mut names: Vec<_> = self.udp.iter().map(|design| design.about().name).collect();
        let tcp = self.tcp.iter().map(|design| design.about().name);
        for name in tcp.chain(self.device.iter().map(|design| design.about().name)) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }
}

/// The document of a list that was not made.
pub fn failure(reason: &str) -> Value {
    json!({
        "schema_version": 1,
        "command": crate::arguments(),
        "status": "failed",
        "reason": reason,
        "designs": [],
        "tcp_designs": [],
        "device_designs": [],
        "providers": [],
    })
}

fn reason(availability: Result<(), Unavailable>) -> Option<String> {
    availability.err().map(|unavailable| unavailable.to_string())
}

fn list(listed: &Listed) -> String {
    let mut text = String::new();
    let heading = |text: &mut String, heading: &str| {
        let before = if text.is_empty() { "" } else { "\n" };
        let _ = writeln!(text, "{before}{heading}");
    };
    if !listed.udp.is_empty() {
        heading(&mut text, "UDP designs");
    }
    for design in &listed.udp {
        design_entry(&mut text, design.about(), design.availability(), design.provider());
    }
    if !listed.tcp.is_empty() {
        heading(&mut text, "TCP designs");
    }
    for design in &listed.tcp {
        design_entry(&mut text, design.about(), design.availability(), design.provider());
        of_connections(&mut text, design);
    }
    if !listed.device.is_empty() {
        heading(&mut text, "device designs");
    }
    for design in &listed.device {
        design_entry(&mut text, design.about(), design.availability(), design.provider());
    }
    // Devices have none.
    let providers = if listed.udp.is_empty() && listed.tcp.is_empty() { &[] } else { Choice::ALL };
    if !providers.is_empty() {
        heading(&mut text, "providers of registered I/O (option --provider of the rio designs)");
    }
    for provider in providers {
        let about = provider.about();
        let reason = reason(provider.availability());
        entry(&mut text, about.name, about.summary, about.origin, reason);
    }
    text.push_str("\n`weir designs NAME` shows the options of a design.\n");
    text
}

fn design_entry(
    text: &mut String,
    about: About,
    availability: Result<(), Unavailable>,
    provider: &str,
) {
    entry(text, about.name, about.summary, about.origin, reason(availability));
    let _ = writeln!(text, "      provider: {provider}");
}

/// Whether `weir serve tcp --active` goes with it, and what its idle connections cost.
fn of_connections(text: &mut String, design: &tcp::AnyDesign) {
    let _ = writeln!(text, "      active set: {}", design.active_set());
    let _ = writeln!(text, "      idle connection holds: {}", design.idle_holds());
}

fn entry(text: &mut String, name: &str, summary: &str, origin: &str, reason: Option<String>) {
    let here = reason.unwrap_or_else(|| "runs here".into());
    let _ = writeln!(text, "  {name}\n      {summary}\n      from: {origin}\n      {here}");
}

fn in_full(listed: &Listed) -> String {
    let mut text = String::new();
    for design in &listed.udp {
        text.push_str("UDP\n");
        design_entry(&mut text, design.about(), design.availability(), design.provider());
        options_of(&mut text, design.known_options());
        text.push_str("  and for its memory, as for every UDP design:\n");
        options_of(&mut text, RegionOptions::known());
    }
    for design in &listed.tcp {
        text.push_str("TCP\n");
        design_entry(&mut text, design.about(), design.availability(), design.provider());
        of_connections(&mut text, design);
        options_of(&mut text, design.known_options());
    }
    for design in &listed.device {
        text.push_str("devices\n");
        design_entry(&mut text, design.about(), design.availability(), design.provider());
        options_of(&mut text, design.known_options());
    }
    text
}

fn options_of(text: &mut String, options: Vec<OptionInfo>) {
    for OptionInfo { name, help, default, accepts, .. } in options {
        let _ = writeln!(text, "  --{name} ({accepts}; default {default})\n      {help}");
    }
}

fn document(listed: &Listed) -> Value {
    let option = |option: OptionInfo| {
        json!({
            "name": option.name,
            "help": option.help,
            "default": option.default,
            "accepts": option.accepts,
        })
    };
    let design = |about: About,
                  availability: Result<(), Unavailable>,
                  provider: &str,
                  options: Vec<OptionInfo>| {
        let reason = reason(availability);
        json!({
            "name": about.name,
            "summary": about.summary,
            "origin": about.origin,
            "provider": provider,
            "status": if reason.is_none() { "ok" } else { "unavailable" },
            "reason": reason,
            "options": options.into_iter().map(option).collect::<Vec<_>>(),
        })
    };
    let udp_design = |of: &udp::AnyDesign| {
        let mut value = design(of.about(), of.availability(), of.provider(), of.known_options());
        value["hands_over"] = of.hands_over().into();
        value
    };
    let tcp_design = |of: &tcp::AnyDesign| {
        let mut value = design(of.about(), of.availability(), of.provider(), of.known_options());
        value["active_set"] = (!matches!(of.active_set(), tcp::ActiveSet::Absent(_))).into();
        value["active_set_how"] = of.active_set().to_string().into();
        value["idle_holds_buffer"] = (of.idle_holds() != tcp::IdleHolds::NoBuffer).into();
        value["idle_holds"] = of.idle_holds().to_string().into();
        value
    };
    let device_design = |of: &device::AnyDesign| {
        design(of.about(), of.availability(), of.provider(), of.known_options())
    };
    let provider = |provider: &Choice| {
        let about = provider.about();
        let reason = reason(provider.availability());
        json!({
            "name": about.name,
            "summary": about.summary,
            "origin": about.origin,
            "status": if reason.is_none() { "ok" } else { "unavailable" },
            "reason": reason,
            "reaches_loopback": provider.reaches_loopback(),
        })
    };
    json!({
        "schema_version": 1,
        "designs": listed.udp.iter().map(udp_design).collect::<Vec<_>>(),
        "tcp_designs": listed.tcp.iter().map(tcp_design).collect::<Vec<_>>(),
        "device_designs": listed.device.iter().map(device_design).collect::<Vec<_>>(),
        "memory_options": RegionOptions::known().into_iter().map(option).collect::<Vec<_>>(),
        "providers": Choice::ALL.iter().map(provider).collect::<Vec<_>>(),
    })
}
