//! The licence check: every package that a build of the workspace may take in, on any
//! OS, build and test dependencies included, must be usable under a licence that asks
//! for no more than that its text be kept.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::ExitCode,
};

use anyhow::Context as _;
use cargo_metadata::{Metadata, MetadataCommand, Package, PackageId};
use spdx::{Expression, ParseMode};

/// The licences that may be relied on, by their SPDX names.
const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// The exceptions that may stand behind an allowed licence. Each only grants more.
const ALLOWED_EXCEPTIONS: &[&str] = &["LLVM-exception"];

/// Reads the workspace's dependencies with `cargo metadata`, prints what was found, and
/// says failure if a package may not be used.
pub fn check_workspace() -> anyhow::Result<ExitCode> {
    let metadata = MetadataCommand::new()
        .other_options(["--locked", "--all-features"].map(str::to_owned))
        .exec()
        .context("cannot read the dependencies (cargo metadata --locked)")?;
    let needed_by = needed_by(&metadata);
    let mut by_licence: BTreeMap<&str, usize> = BTreeMap::new();
    let mut refused = 0;
    for package in &metadata.packages {
        match judge(package.license.as_deref()) {
            Ok(expression) => *by_licence.entry(expression).or_default() += 1,
            Err(refusal) => {
                refused += 1;
                eprintln!("{}", explain(package, &refusal, needed_by.get(&package.id)));
            }
        }
    }
    for (expression, packages) in &by_licence {
        println!("{packages:4}  {expression}");
    }
    if refused > 0 {
        eprintln!(
            "licences: {refused} of {} packages may not be used; replace them, or, if the \
             licence asks for no more than the allowed ones do, add it to ALLOWED in \
             xtask/src/licences.rs",
            metadata.packages.len()
        );
        return Ok(ExitCode::FAILURE);
    }
    println!("licences: all {} packages may be used", metadata.packages.len());
    Ok(ExitCode::SUCCESS)
}

/// Why a package may not be used.
#[derive(Debug, PartialEq, Eq)]
enum Refusal {
    /// Its manifest names no licence; a licence file alone is not read.
    Unstated,
    /// Its licence is no SPDX expression, with what is wrong with it.
    Unreadable { expression: String, problem: String },
    /// No choice that it offers consists of allowed licences only; these are not allowed.
    NotAllowed { expression: String, licences: BTreeSet<String> },
}

/// Says whether a package with this licence may be used, and returns the expression.
fn judge(licence: Option<&str>) -> Result<&str, Refusal> {
    let text = licence.ok_or(Refusal::Unstated)?;
    // LAX reads the form "MIT/Apache-2.0" of older manifests.
    let expression = Expression::parse_mode(text, ParseMode::LAX).map_err(|error| {
        Refusal::Unreadable { expression: text.to_owned(), problem: error.reason.to_string() }
    })?;
    if expression.evaluate(is_allowed) {
        return Ok(text);
    }
    let licences = expression
        .requirements()
        .filter(|stated| !is_allowed(&stated.req))
        .map(|stated| stated.req.to_string())
        .collect();
    Err(Refusal::NotAllowed { expression: text.to_owned(), licences })
}

fn is_allowed(required: &spdx::LicenseReq) -> bool {
    let licence = required.license.id().is_some_and(|id| ALLOWED.contains(&id.name));
    let exception = match &required.addition {
        None => true,
        Some(addition) => addition.id().is_some_and(|id| ALLOWED_EXCEPTIONS.contains(&id.name)),
    };
    licence && exception
}

/// For each package the names and versions of those that depend on it.
fn needed_by(metadata: &Metadata) -> BTreeMap<&PackageId, Vec<String>> {
    let mut needed_by: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for node in metadata.resolve.iter().flat_map(|resolve| &resolve.nodes) {
        let Package { name, version, .. } = &metadata[&node.id];
        for dependency in &node.dependencies {
            needed_by.entry(dependency).or_default().push(format!("{name} {version}"));
        }
    }
    needed_by
}

fn explain(package: &Package, refusal: &Refusal, needed_by: Option<&Vec<String>>) -> String {
    let why = match refusal {
        Refusal::Unstated => "its manifest names no licence".to_owned(),
        Refusal::Unreadable { expression, problem } => {
            format!("its licence {expression:?} is no SPDX expression ({problem})")
        }
        Refusal::NotAllowed { expression, licences } => {
            let licences: Vec<_> = licences.iter().map(String::as_str).collect();
            format!("its licence {expression:?} needs {}, not allowed here", licences.join(", "))
        }
    };
    let by = match needed_by {
        Some(packages) => format!("; needed by {}", packages.join(", ")),
        None => String::new(),
    };
    format!("{} {}: {why}{by}", package.name, package.version)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn not_allowed(expression: &str, licences: &[&str]) -> Result<&'static str, Refusal> {
        Err(Refusal::NotAllowed {
            expression: expression.to_owned(),
            licences: licences.iter().map(|&name| name.to_owned()).collect(),
        })
    }

    #[test]
    fn takes_what_the_list_allows() {
        for expression in [
            "MIT",
            "MIT OR Apache-2.0",
            "MIT/Apache-2.0",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception",
            "Unlicense OR MIT",
        ] {
            assert_eq!(judge(Some(expression)), Ok(expression));
        }
    }

    #[test]
    fn one_allowed_choice_is_enough() {
        let expression = "MIT OR GPL-3.0-only";
        assert_eq!(judge(Some(expression)), Ok(expression));
    }

    #[test]
    fn refuses_what_the_list_does_not_allow() {
        for (expression, licences) in [
            ("GPL-3.0-only", &["GPL-3.0-only"][..]),
            ("MIT AND MPL-2.0", &["MPL-2.0"]),
            ("LGPL-2.1-or-later OR AGPL-3.0-only", &["AGPL-3.0-only", "LGPL-2.1-or-later"]),
            ("MIT WITH Classpath-exception-2.0", &["MIT WITH Classpath-exception-2.0"]),
            ("LicenseRef-own", &["LicenseRef-own"]),
        ] {
            assert_eq!(judge(Some(expression)), not_allowed(expression, licences));
        }
    }

    #[test]
    fn refuses_what_is_unstated_or_unreadable() {
        assert_eq!(judge(None), Err(Refusal::Unstated));
        assert!(matches!(judge(Some("Ask the author")), Err(Refusal::Unreadable { .. })));
    }

    #[test]
    fn every_allowed_name_is_one_that_spdx_knows() {
        for name in ALLOWED {
            assert!(spdx::license_id(name).is_some(), "{name}");
        }
        for name in ALLOWED_EXCEPTIONS {
            assert!(spdx::exception_id(name).is_some(), "{name}");
        }
    }
}
