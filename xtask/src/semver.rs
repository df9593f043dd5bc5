//! Whether the version says what has become of the API: of the libraries that promise something, the lists of
//! [`public_api`] as they are now against those of a commit, the baseline.
//!
//! This is what lists can tell: an item that is gone or is written otherwise, and a variant or field more where users may have
//! named all. They do not tell of a type that is no longer `Send`, or whether a method more in a trait has a default. `--full`
//! has `cargo semver-checks` look for that, too, which is too much for CI: it takes 12 minutes of CPU time to build (416
//! crates, version 0.51), and both versions of each library are documented anew.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::{Command, ExitCode},
};

use anyhow::{Context as _, ensure};
use clap::Args;

use crate::{packages, public_api};

/// Where the baseline stands.
const MANIFEST: &str = "Cargo.toml";

/// The commit is not here and cannot be had.
const NOT_HERE: u8 = 77;

/// The commit that the API is held against: `baseline` in `[workspace.metadata.semver]`, all of its 40 digits.
fn baseline(manifest: &str) -> anyhow::Result<String> {
    let value = value(manifest, "workspace.metadata.semver", "baseline");
    let value = value.context("there is no baseline in [workspace.metadata.semver]")?;
    ensure!(
        value.len() == 40 && value.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "{value:?} is no baseline: give the 40 digits of a commit"
    );
    Ok(value.into())
}

/// A text in a section of a manifest.
fn value<'a>(manifest: &'a str, section: &str, name: &str) -> Option<&'a str> {
    let section = manifest.split_once(&format!("[{section}]\n"))?.1;
    let mut lines = section.lines().take_while(|line| !line.starts_with('['));
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(" = \"")?.strip_suffix('"'))
}

/// Check that the version says what has become of the public API since the baseline in Cargo.toml.
#[derive(Args)]
pub struct Semver {
    /// Have `cargo semver-checks` (to be installed before) look, too.
    #[arg(long)]
    full: bool,
}

impl Semver {
    /// Holds the API of each library against the baseline.
    ///
    /// # Errors
    /// If the baseline makes no sense, or cannot be read.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let root = packages::root();
        let manifest = root.join(MANIFEST);
        let commit = baseline(&fs::read_to_string(&manifest)?)
            .with_context(|| format!("reading {}", manifest.display()))?;
        if let Err(why) = fetch(&root, &commit) {
            eprintln!("semver: not compared with {commit}: {why:#}");
            return Ok(ExitCode::from(NOT_HERE));
        }
        let at = |path: &str| git(&root, &["show", &format!("{commit}:{path}")]);
        let (before, now) = (version(&at(MANIFEST)?)?, env!("CARGO_PKG_VERSION"));
        let mut code = ExitCode::SUCCESS;
        for (package, ..) in public_api::LIBRARIES {
            let path = format!("xtask/public-api/{package}.txt");
            let breaks = breaks(&at(&path)?, &fs::read_to_string(root.join(&path))?);
            println!("semver: {package} {before} to {now}: {} breaks", breaks.len());
            if !breaks.is_empty() && is_compatible(&before, now) {
                code = ExitCode::FAILURE;
                breaks.iter().for_each(|what| eprintln!("{what}"));
                eprintln!(
                    "{package}: {now} promises to break nothing that {before} had. If this is meant: a new minor version \
                     (Cargo's rule below 1.0) or, as long as {before} is not published, a later commit as baseline in \
                     {MANIFEST}; and an entry in CHANGELOG.md"
                );
            }
        }
        if self.full && code == ExitCode::SUCCESS {
            return full(&root, &commit);
        }
        Ok(code)
    }
}

/// The same by `cargo semver-checks`.
fn full(root: &Path, commit: &str) -> anyhow::Result<ExitCode> {
    let folder = packages::target()?.join("semver");
    let tree = folder.join("baseline").join(commit);
    unpack(root, commit, &tree)?;
    let mut command = Command::new("cargo");
    command.args(["semver-checks", "check-release", "--baseline-root"]).arg(tree);
    public_api::LIBRARIES.iter().for_each(|(package, ..)| _ = command.args(["-p", package]));
    let status = command.current_dir(root).env("CARGO_TARGET_DIR", &folder).status();
    let status =
        status.context("starting cargo semver-checks: cargo install cargo-semver-checks")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The version of the workspace, by its manifest.
fn version(manifest: &str) -> anyhow::Result<String> {
    let value = value(manifest, "workspace.package", "version");
    Ok(value.context("there is no version in [workspace.package]")?.into())
}

/// Whether who asks for `before` may be given `now`, by Cargo's rules: the first number that is not 0 is the same.
fn is_compatible(before: &str, now: &str) -> bool {
    let told = |version: &str| -> Vec<u64> {
        let numbers = version.split(['.', '-']).take(3).filter_map(|it| it.parse().ok());
        let mut all: Vec<u64> = numbers.collect();
        let significant = all.iter().position(|number| *number != 0).unwrap_or(all.len());
        all.truncate(significant + 1);
        all
    };
    told(before) == told(now)
}

/// What of the first list does not hold any more in the second.
fn breaks(before: &str, now: &str) -> Vec<String> {
    // That it can be called in more places harms nobody.
    let plain = |line: &str| line.replace("pub const fn ", "pub fn ");
    let [had, has] = [before, now].map(|list| list.lines().map(plain).collect::<BTreeSet<_>>());
    let gone = had.difference(&has).map(|line| format!("- {line}"));
    // A variant or a field more of what may be named as a whole.
    let whole: BTreeSet<&str> = had.iter().filter_map(|line| exhaustive(line)).collect();
    let with_fields: BTreeSet<&str> = had.iter().filter_map(|line| part_of(line)).collect();
    let is_whole = |of: &str| whole.contains(of) && with_fields.contains(of);
    let came = has.difference(&had).filter(|line| part_of(line).is_some_and(is_whole));
    gone.chain(came.map(|line| format!("+ {line}"))).collect()
}

/// The path of an enum or a struct that is not `#[non_exhaustive]`.
fn exhaustive(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("pub enum ").or_else(|| line.strip_prefix("pub struct "))?;
    Some(path(rest))
}

/// What a variant or a field is one of.
fn part_of(line: &str) -> Option<&str> {
    let path = path(line.strip_prefix("pub ")?);
    // With a keyword before it, it is something else.
    Some(path.rsplit_once("::")?.0)
}

/// The path that a text begins with.
fn path(text: &str) -> &str {
    let end = text.find(|c: char| !(c.is_alphanumeric() || "_:".contains(c)));
    text[..end.unwrap_or(text.len())].trim_end_matches(':')
}

/// Has the commit here: a shallow clone asks where it came from for this one alone.
fn fetch(root: &Path, commit: &str) -> anyhow::Result<()> {
    let there = || git(root, &["cat-file", "-e", &format!("{commit}^{{commit}}")]).map(drop);
    let ask = || git(root, &["fetch", "--quiet", "--depth", "1", "origin", commit]);
    there().or_else(|_| ask().and_then(|_| there()))
}

fn git(root: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let mut git = Command::new("git");
    // Where a name or a password is wanted it cannot be had.
    git.env("GIT_TERMINAL_PROMPT", "0").arg("-C").arg(root).args(arguments);
    let out = git.output()?;
    ensure!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr).trim());
    Ok(String::from_utf8(out.stdout)?)
}

/// The files of a commit, in a folder of their own.
fn unpack(root: &Path, commit: &str, to: &Path) -> anyhow::Result<()> {
    if to.exists() {
        return Ok(());
    }
    // Whole or not at all.
    let partly = to.with_extension("part");
    if partly.exists() {
        fs::remove_dir_all(&partly)?;
    }
    fs::create_dir_all(&partly)?;
    let archive = partly.with_extension("tar");
    packages::run(
        Command::new("git").arg("-C").arg(root).args(["archive", "-o"]).arg(&archive).arg(commit),
    )?;
    packages::run(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&partly))?;
    fs::remove_file(&archive)?;
    Ok(fs::rename(&partly, to)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

    #[test]
    fn a_baseline_is_a_commit_by_its_whole_name() {
        let manifest = |baseline: &str| {
            format!(
                "[workspace]\nbaseline = \"x\"\n\n[workspace.metadata.semver]\n# Why.\nbaseline = \"{baseline}\"\n"
            )
        };
        assert_eq!(baseline(&manifest(COMMIT)).unwrap(), COMMIT);
        for wrong in ["", "main", "0.1.0", &COMMIT[1..]] {
            let error = baseline(&manifest(wrong)).unwrap_err().to_string();
            assert!(error.contains("is no baseline"), "{wrong}: {error}");
        }
        assert!(baseline("[workspace.metadata.semver]\n[x]\nbaseline = \"x\"\n").is_err());
    }

    #[test]
    fn the_manifest_of_this_workspace_can_be_read() {
        let manifest = fs::read_to_string(packages::root().join(MANIFEST)).unwrap();
        baseline(&manifest).unwrap();
        assert_eq!(version(&manifest).unwrap(), env!("CARGO_PKG_VERSION"));
    }

    #[test]
    fn versions_are_compatible_by_their_first_number_that_is_not_0() {
        for (before, now) in [("0.1.0", "0.1.9"), ("1.2.3", "1.9.0"), ("0.1.0", "0.1.0-rc.1")] {
            assert!(is_compatible(before, now), "{before} {now}");
        }
        for (before, now) in
            [("0.1.0", "0.2.0"), ("1.2.3", "2.0.0"), ("0.0.1", "0.0.2"), ("0.9.0", "1.0.0")]
        {
            assert!(!is_compatible(before, now), "{before} {now}");
        }
    }

    const BEFORE: &str = "pub mod w
pub enum w::Color
pub w::Color::Red
#[non_exhaustive] pub enum w::Kind
pub w::Kind::One
pub struct w::Open
pub w::Open::left: u32
pub struct w::Closed
pub trait w::Handler
pub fn w::go(u32) -> u32
";

    #[test]
    fn what_is_gone_or_changed_breaks() {
        assert!(breaks(BEFORE, BEFORE).is_empty());
        let now = BEFORE.replace("pub fn w::go(u32) -> u32\n", "");
        assert_eq!(breaks(BEFORE, &now), ["- pub fn w::go(u32) -> u32"]);
        let now = BEFORE.replace("w::Open::left: u32", "w::Open::left: u64");
        assert_eq!(breaks(BEFORE, &now), ["- pub w::Open::left: u32", "+ pub w::Open::left: u64"]);
        assert_eq!(breaks(BEFORE, &BEFORE.replace("pub fn", "pub const fn")), [""; 0]);
        let now = BEFORE.replace("pub struct w::Closed", "#[non_exhaustive] pub struct w::Closed");
        assert_eq!(breaks(BEFORE, &now), ["- pub struct w::Closed"]);
    }

    #[test]
    fn what_has_come_breaks_where_all_could_be_named() {
        for (came, is_break) in [
            ("pub w::Color::Green", true),
            ("pub w::Open::right: u32", true),
            ("pub w::Kind::Two", false),
            // It had none that could be named: it has private ones.
            ("pub w::Closed::one: u32", false),
            ("pub enum w::New", false),
            ("pub w::New::One", false),
            ("pub fn w::Open::method(&self)", false),
            ("pub fn w::Handler::with_a_default(&self)", false),
        ] {
            let expected = if is_break { vec![format!("+ {came}")] } else { vec![] };
            assert_eq!(breaks(BEFORE, &format!("{BEFORE}{came}\n")), expected);
        }
    }

    fn git(folder: &Path, arguments: &[&str]) -> String {
        let own = ["-c", "user.name=x", "-c", "user.email=x@example.com"];
        super::git(folder, &[&own, arguments].concat()).unwrap().trim().into()
    }

    struct Folder(PathBuf);

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// A clone that has the last commit alone gets the one before; one that has no origin says that it cannot.
    #[test]
    fn a_shallow_clone_gets_the_commit_that_it_lacks() {
        let folder =
            Folder(std::env::temp_dir().join(format!("weir-semver-{}", std::process::id())));
        let (origin, clone) = (folder.0.join("origin"), folder.0.join("clone"));
        fs::create_dir_all(&origin).unwrap();
        git(&origin, &["init", "--quiet"]);
        let mut commits = ["first", "second"].map(|text| {
            fs::write(origin.join("file"), text).unwrap();
            git(&origin, &["add", "file"]);
            git(&origin, &["commit", "--quiet", "-m", text]);
            git(&origin, &["rev-parse", "HEAD"])
        });
        let url = format!("file://{}", origin.display());
        git(&folder.0, &["clone", "--quiet", "--depth", "1", &url, "clone"]);
        let tree = folder.0.join("tree");
        fetch(&clone, &commits[0]).unwrap();
        unpack(&clone, &commits[0], &tree).unwrap();
        assert_eq!(fs::read_to_string(tree.join("file")).unwrap(), "first");
        git(&clone, &["remote", "remove", "origin"]);
        commits[0].replace_range(..4, "0000");
        assert!(fetch(&clone, &commits[0]).unwrap_err().to_string().contains("origin"));
        fetch(&clone, &commits[1]).unwrap();
    }
}
