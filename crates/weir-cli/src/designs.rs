//! `weir designs`: what there is, and whether it can run here.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use weir::memory::RegionOptions;
use weir::options::{OptionInfo, Options as _};
use weir::rio::Choice;
use weir::udp::{AnyDesign, designs};

use crate::exit;

/// Options of `weir designs`.
#[derive(Debug, Args)]
pub struct DesignsArgs {
    /// Design to show with its options.
    name: Option<String>,

    /// One document on standard output.
    #[arg(short = 'J', long)]
    json: bool,
}

/// Runs `weir designs`.
pub fn run(args: &DesignsArgs) -> ExitCode {
    let all = designs();
    let chosen = match &args.name {
        None => None,
        Some(name) => match all.iter().find(|design| design.about().name == name) {
            Some(design) => Some(design),
            None => {
                let names: Vec<&str> = all.iter().map(|design| design.about().name).collect();
                let problem =
                    format!("there is no design {name:?}; there are: {}", names.join(", "));
                if args.json {
                    crate::print(&format!("{}\n", failure(&problem)));
                }
                eprintln!("weir designs: {problem}");
                return ExitCode::from(exit::USAGE);
            }
        },
    };
    let text = match (args.json, chosen) {
        (true, Some(design)) => format!("{}\n", document(std::slice::from_ref(design))),
        (true, None) => format!("{}\n", document(&all)),
        (false, Some(design)) => one(design),
        (false, None) => list(&all),
    };
    crate::print(&text);
    ExitCode::from(exit::OK)
}

/// The document of a list that was not made.
pub fn failure(reason: &str) -> Value {
    json!({
        "schema_version": 1,
        "command": crate::arguments(),
        "status": "failed",
        "reason": reason,
        "designs": [],
        "providers": [],
    })
}

fn can_run(design: &AnyDesign) -> Option<String> {
    design.availability().err().map(|unavailable| unavailable.to_string())
}

fn list(all: &[AnyDesign]) -> String {
    let mut text = String::from("UDP designs\n");
    for design in all {
        let about = design.about();
        entry(&mut text, about.name, about.summary, about.origin, can_run(design));
        let _ = writeln!(text, "      provider: {}", design.provider());
    }
    text.push_str("\nproviders of registered I/O (option --provider of the rio designs)\n");
    for provider in Choice::ALL {
        let about = provider.about();
        let reason = provider.availability().err().map(|unavailable| unavailable.to_string());
        entry(&mut text, about.name, about.summary, about.origin, reason);
    }
    text.push_str("\n`weir designs NAME` shows the options of a design.\n");
    text
}

fn entry(text: &mut String, name: &str, summary: &str, origin: &str, reason: Option<String>) {
    let here = reason.unwrap_or_else(|| "runs here".into());
    let _ = writeln!(text, "  {name}\n      {summary}\n      from: {origin}\n      {here}");
}

fn one(design: &AnyDesign) -> String {
    let about = design.about();
    let mut text = String::new();
    entry(&mut text, about.name, about.summary, about.origin, can_run(design));
    let _ = writeln!(text, "      provider: {}", design.provider());
    options(&mut text, design.known_options());
    text.push_str("  and of its memory, as of every design's:\n");
    options(&mut text, RegionOptions::known());
    text
}

fn options(text: &mut String, options: Vec<OptionInfo>) {
    for OptionInfo { name, help, default, accepts } in options {
        let _ = writeln!(text, "  --{name} ({accepts}; default {default})\n      {help}");
    }
}

fn document(all: &[AnyDesign]) -> Value {
    let option = |option: OptionInfo| {
        json!({
            "name": option.name,
            "help": option.help,
            "default": option.default,
            "accepts": option.accepts,
        })
    };
    let design = |design: &AnyDesign| {
        let about = design.about();
        let reason = can_run(design);
        json!({
            "name": about.name,
            "summary": about.summary,
            "origin": about.origin,
            "provider": design.provider(),
            "hands_over": design.hands_over(),
            "status": if reason.is_none() { "ok" } else { "unavailable" },
            "reason": reason,
            "options": design.known_options().into_iter().map(option).collect::<Vec<_>>(),
        })
    };
    let provider = |provider: &Choice| {
        let about = provider.about();
        let reason = provider.availability().err().map(|unavailable| unavailable.to_string());
        json!({
            "name": about.name,
            "summary": about.summary,
            "origin": about.origin,
            "status": if reason.is_none() { "ok" } else { "unavailable" },
            "reason": reason,
            "reaches_loopback": provider.reaches_loopback(),
            "only_hands_over": provider.only_hands_over(),
        })
    };
    json!({
        "schema_version": 1,
        "designs": all.iter().map(design).collect::<Vec<_>>(),
        "memory_options": RegionOptions::known().into_iter().map(option).collect::<Vec<_>>(),
        "providers": Choice::ALL.iter().map(provider).collect::<Vec<_>>(),
    })
}
