//! The public API of the libraries that others build on, as lists that are committed: what a change does to it is seen where
//! the change is looked at, and not when it was published.
//!
//! The lists are made from what rustdoc of a nightly toolchain says (`--output-format json`). That format changes now and
//! then; a toolchain that is too new for it needs a newer `public-api` here.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::Context as _;
use clap::Args;

use crate::packages;

/// A library: its package, its name in code, and the features that its list is of.
type Library = (&'static str, &'static str, &'static str);

/// The libraries that promise something. weir-lab and weir-mpi are what the command is, and promise nothing.
pub const LIBRARIES: [Library; 3] = [
    ("weir-io", "weir", "device,xdp,tls,fake,tracing,metrics"),
    ("weir-load", "weir_load", ""),
    ("weir-quinn", "weir_quinn", ""),
];

/// Check, or write, the lists of what is public (xtask/public-api/). It takes a nightly toolchain.
#[derive(Args)]
pub struct PublicApi {
    /// Write the lists anew instead of checking them.
    #[arg(long)]
    write: bool,
}

impl PublicApi {
    /// Does what is asked.
    ///
    /// # Errors
    /// If a list cannot be made.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let folder = packages::root().join("xtask/public-api");
        let mut code = ExitCode::SUCCESS;
        for library in LIBRARIES {
            let (package, ..) = library;
            let path = folder.join(package).with_extension("txt");
            let now = list(library)?;
            if self.write {
                fs::write(&path, &now).with_context(|| format!("writing {}", path.display()))?;
                continue;
            }
            let before = fs::read_to_string(&path).unwrap_or_default();
            let changes = changes(&before, &now);
            if changes.is_empty() {
                println!("public-api: {package} has {} public items", now.lines().count());
                continue;
            }
            code = ExitCode::FAILURE;
            changes.iter().for_each(|change| eprintln!("{change}"));
            eprintln!(
                "{package}: its public API has changed. If that is meant: cargo run -p xtask -- public-api --write, and an \
                 entry in CHANGELOG.md"
            );
        }
        Ok(code)
    }
}

/// What is public of a library, an item a line.
fn list((package, library, features): Library) -> anyhow::Result<String> {
    let target = packages::target()?.join("public-api");
    // By the name of rustup's, which takes the toolchain.
    let mut rustdoc = Command::new("cargo");
    rustdoc.args(["+nightly", "rustdoc", "--quiet", "--locked", "--lib", "-p", package]);
    rustdoc.args(["--features", features]).arg("--target-dir").arg(&target);
    rustdoc.args(["--", "-Zunstable-options", "--output-format", "json", "--cap-lints", "allow"]);
    packages::run(rustdoc.current_dir(packages::root()))?;
    let json: PathBuf = target.join("doc").join(library).with_extension("json");
    of(&json)
        .with_context(|| format!("reading {}: is the toolchain too new for it?", json.display()))
}

fn of(json: &Path) -> anyhow::Result<String> {
    let api = public_api::Builder::from_rustdoc_json(json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build()?;
    Ok(api.items().map(|item| format!("{item}\n")).collect())
}

/// What has gone, and what has come.
fn changes(before: &str, now: &str) -> Vec<String> {
    let [before, now] = [before, now].map(|list| list.lines().collect::<BTreeSet<_>>());
    let gone = before.difference(&now).map(|item| format!("- {item}"));
    gone.chain(now.difference(&before).map(|item| format!("+ {item}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_changed_is_told_line_by_line() {
        assert_eq!(changes("a\nb\n", "b\na\n"), Vec::<String>::new());
        assert_eq!(changes("a\nb\n", "b\nc\n"), ["- a", "+ c"]);
    }
}
