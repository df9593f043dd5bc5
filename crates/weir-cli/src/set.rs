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
        Ok(settings) => (shown(args, &settings), exit::OK),
        Err(failure) => {
            say!("weir set: {}", failure.message);
            (args.json.then(|| document("failed", &[], Some(&failure.message))), failure.code)
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

fn attempt(args: &SetArgs) -> Result<Vec<InForce>, Failure> {
    if args.changes.len() > CHANGES_MAX {
        return Err(Failure::usage(format!("at most {CHANGES_MAX} changes are made at a time")));
    }
    let key = keys::find("set", args.key_file.as_deref()).map_err(Failure::usage)?;
    let settings = ClientSettings { any_build: args.any_build, key, ..ClientSettings::default() };
    let client = ControlClient::connect(args.control, &settings, Arc::new(Stop::default()))
        .map_err(Failure::failed)?;
    client.set(args.changes.clone()).map_err(|error| match error {
        ControlError::Refused { reason, .. } => Failure::usage(reason),
        other => Failure::failed(other),
    })
}

fn document(status: &str, settings: &[InForce], reason: Option<&str>) -> String {
    let document = json!({
        "schema_version": 1, "command": crate::arguments(), "status": status, "reason": reason, "settings": settings,
    });
    format!("{document:#}\n")
}

fn shown(args: &SetArgs, settings: &[InForce]) -> Option<String> {
    if args.json {
        return Some(document("ok", settings, None));
    }
    if settings.is_empty() {
        return Some("this server's design has nothing that can be changed while it runs\n".into());
    }
    let line = |of: &InForce| {
        let [name, value, allowed] =
            [&of.name, &of.value, &of.allowed].map(|text| crate::harmless(text));
        format!("{name}={value} (allowed: {allowed})\n")
    };
    Some(settings.iter().map(line).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

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
