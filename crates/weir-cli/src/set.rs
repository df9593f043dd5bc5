//! `weir set`: settings of a server that runs.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use serde_json::json;
use weir_load::Stop;
use weir_load::control::{
    CHANGES_MAX, Change, ClientSettings, ControlClient, ControlError, InForce,
};

use crate::exit::{self, Failure};
use crate::keys;
use crate::serve::parse_address;

/// Show and change those settings of a running server that can be changed while it runs.
///
/// The server is a `weir serve` with --control, on this machine or with the same key. What can be changed depends on
/// its design. Hybrids: how long they poll (spin), and the threshold; rio-hybrid also whether it sleeps between
/// datagrams that arrive regularly (adaptive). Designs that wait: how messages gather (gather=200us,64 or none). UDP
/// designs on registered I/O: how many posts are made together (defer, or posts-per-lock of rio-port). The server
/// prints the settings in force and has them in its performance log; a UDP server has them among its metrics, too. Exit
/// codes: 0 success; 1 the server cannot be reached; 2 a change was refused, and nothing was changed.
#[derive(Debug, Args)]
pub struct SetArgs {
    /// Address and port of the server's control channel, or a port of 127.0.0.1.
    #[arg(value_parser = parse_address)]
    control: SocketAddr,

    /// What to change, such as spin=20us threshold=64; if one change is refused, none is made. Without any, the
    /// settings are only shown.
    #[arg(value_name = "NAME=VALUE", value_parser = parse_change)]
    changes: Vec<Change>,

    /// File with the key of the server, if it has one; without this option it may be in the environment variable
    /// WEIR_KEY.
    #[arg(long)]
    key_file: Option<PathBuf>,

    /// Accept a server of another build.
    #[arg(long)]
    any_build: bool,

    /// One JSON document on standard output.
    #[arg(short = 'J', long)]
    json: bool,
}

/// A change as it is typed.
fn parse_change(text: &str) -> Result<Change, String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && !value.is_empty() => {
            let change = Change { name: name.into(), value: value.into() };
            Change::check(std::slice::from_ref(&change)).map(|()| change)
        }
        _ => Err("write a name, \"=\" and a value, such as spin=20us".into()),
    }
}

/// Runs `weir set`.
pub fn run(args: &SetArgs) -> ExitCode {
    let (shown, code) = match attempt(args) {
        Ok([before, after]) => (shown(args, &before, &after), exit::OK),
        Err(failure) => {
            say!("weir set: {}", failure.message);
            (
                args.json.then(|| document("failed", [&[], &[]], Some(&failure.message))),
                failure.code,
            )
        }
    };
    match shown.map_or(Ok(()), |text| crate::print_results(&text)) {
        Ok(()) => ExitCode::from(code),
        Err(lost) => {
            say!("weir set: {}", lost.message);
            ExitCode::from(lost.code)
        }
    }
}

/// The settings before and after the changes.
fn attempt(args: &SetArgs) -> Result<[Vec<InForce>; 2], Failure> {
    if args.changes.len() > CHANGES_MAX {
        return Err(Failure::usage(format!("at most {CHANGES_MAX} changes are made at a time")));
    }
    let key = keys::find("set", args.key_file.as_deref()).map_err(Failure::usage)?;
    let settings = ClientSettings { any_build: args.any_build, key, ..ClientSettings::default() };
    let client = ControlClient::connect(args.control, &settings, Arc::new(Stop::default()))
        .map_err(Failure::failed)?;
    let set = |changes: &[Change]| {
        client.set(changes.to_vec()).map_err(|error| match error {
            ControlError::Refused { reason, .. } => Failure::usage(reason),
            other => Failure::failed(other),
        })
    };
    let before = set(&[])?;
    let after = if args.changes.is_empty() { before.clone() } else { set(&args.changes)? };
    Ok([before, after])
}

/// What a setting was before, if it is another now.
fn changed<'a>(before: &'a [InForce], now: &InForce) -> Option<&'a str> {
    let was = before.iter().find(|of| of.name == now.name)?;
    (was.value != now.value).then_some(was.value.as_str())
}

fn document(status: &str, [before, settings]: [&[InForce]; 2], reason: Option<&str>) -> String {
    let change = |now: &InForce| {
        Some(json!({ "name": now.name, "from": changed(before, now)?, "to": now.value }))
    };
    let document = json!({
        "schema_version": 1, "command": crate::arguments(), "status": status, "reason": reason, "settings": settings,
        "changed": settings.iter().filter_map(change).collect::<Vec<_>>(),
    });
    format!("{document:#}\n")
}

fn shown(args: &SetArgs, before: &[InForce], settings: &[InForce]) -> Option<String> {
    if args.json {
        return Some(document("ok", [before, settings], None));
    }
    if settings.is_empty() {
        return Some("this server's design has nothing that can be changed while it runs\n".into());
    }
    Some(settings.iter().map(|of| line(of, changed(before, of), args.changes.as_slice())).collect())
}

/// A setting, and what these changes did to it.
fn line(of: &InForce, was: Option<&str>, changes: &[Change]) -> String {
    let [name, value, allowed] =
        [&of.name, &of.value, &of.allowed].map(|text| crate::harmless(text));
    match was {
        Some(was) => {
            format!("{name}={value}, before {} (allowed: {allowed})\n", crate::harmless(was))
        }
        None if changes.iter().any(|change| change.name == of.name) => {
            format!("{name}={value}, unchanged (allowed: {allowed})\n")
        }
        None => format!("{name}={value} (allowed: {allowed})\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changed_is_told_from_what_did_not() {
        let of = |name: &str, value: &str| InForce {
            name: name.into(),
            value: value.into(),
            allowed: "any".into(),
        };
        let before = [of("spin", "50us"), of("threshold", "64"), of("adaptive", "false")];
        let after = [of("spin", "20us"), of("threshold", "64"), of("adaptive", "false")];
        let changes = ["spin=20us", "threshold=64"].map(|text| parse_change(text).unwrap());
        let lines = after.each_ref().map(|now| line(now, changed(&before, now), &changes));
        assert_eq!(
            lines,
            [
                "spin=20us, before 50us (allowed: any)\n",
                "threshold=64, unchanged (allowed: any)\n",
                "adaptive=false (allowed: any)\n",
            ]
        );
        let document: serde_json::Value =
            serde_json::from_str(&document("ok", [&before, &after], None)).unwrap();
        let wanted = json!([{ "name": "spin", "from": "50us", "to": "20us" }]);
        assert_eq!(document["changed"], wanted);
    }

    #[test]
    fn a_change_is_a_name_and_a_value() {
        let change = parse_change("spin=20us").unwrap();
        assert_eq!((change.name.as_str(), change.value.as_str()), ("spin", "20us"));
        assert_eq!(parse_change("a=b=c").unwrap().value, "b=c");
        for wrong in ["spin", "=20us", "spin=", ""] {
            assert!(parse_change(wrong).unwrap_err().contains("spin=20us"), "{wrong:?}");
        }
        assert!(parse_change(&format!("spin={}", "1".repeat(65))).is_err());
    }
}
