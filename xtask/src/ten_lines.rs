//! What a program of ten lines costs who writes it: how large it is, and what building it again takes after a change.
//!
//! It is built as a user builds it: in a project of its own, from the packed library, in the release profile without
//! symbols. So it shows, too, that what is packed is complete. The size is the same whenever the same compiler builds
//! it, so it has a limit; the CPU time is the machine's, and is printed.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use clap::Args;

use crate::packages;

/// The library's package.
const LIBRARY: &str = "weir-io";

/// The largest that a program may be which names one design by its type, in bytes.
const MOST_BYTES: u64 = 800_000;

/// What is built unless a design is named.
const DESIGNS: [&str; 4] = ["udp::BlockingBatch", "udp::AnyDesign", "tcp::Epoll", "tcp::AnyDesign"];

/// What chooses among all designs of a kind, by name.
const BY_NAME: &str = "AnyDesign";

/// Build programs of ten lines from the packed library, each with one design, and print what they cost their author.
#[derive(Args)]
pub struct TenLines {
    /// Types of designs, as udp::Blocking; `udp::AnyDesign` for a choice by name.
    designs: Vec<String>,
    /// Features of the library besides that of the kind, as tracing,metrics: for what they cost. The size has no limit then.
    #[arg(long, value_delimiter = ',')]
    features: Vec<String>,
}

/// A program, and what it cost.
struct Built {
    bytes: u64,
    cpu: Option<Duration>,
}

impl TenLines {
    /// Prints what the programs cost, and says failure if one with a single design is too large.
    ///
    /// # Errors
    /// If the library cannot be packed, or a program is not built or does not run.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let root = packages::root();
        let folder = packages::target()?.join("ten-lines");
        let packed = folder.join("packed");
        let library = packages::pack(&packed, &packed, &[LIBRARY])?.remove(0);
        let designs: Vec<&str> = match self.designs.is_empty() {
            true => DESIGNS.to_vec(),
            false => self.designs.iter().map(String::as_str).collect(),
        };
        let mut code = ExitCode::SUCCESS;
        println!("{:<24} {:>12} {:>16}", "design", "bytes", "CPU s to rebuild");
        for design in designs {
            let (kind, program) = program(design)?;
            let project = Project::new(&root, &folder, &library, kind, &self.features)?;
            let Built { bytes, cpu } = project.build(design, &program)?;
            let cpu = cpu.map_or("?".into(), |cpu| format!("{:.2}", cpu.as_secs_f64()));
            println!("{design:<24} {bytes:>12} {cpu:>16}");
            project.try_out(design)?;
            if self.features.is_empty() && !design.ends_with(BY_NAME) && bytes > MOST_BYTES {
                eprintln!("{design}: {bytes} bytes, and {MOST_BYTES} are the most that it may be");
                code = ExitCode::FAILURE;
            }
        }
        Ok(code)
    }
}

/// A project for programs with one kind of designs, which depends on the packed library.
struct Project {
    folder: PathBuf,
    target: PathBuf,
}

impl Project {
    fn new(
        root: &Path,
        folder: &Path,
        library: &Path,
        kind: &str,
        others: &[String],
    ) -> anyhow::Result<Self> {
        let (folder, target) = (folder.join(kind), folder.join("target"));
        fs::create_dir_all(folder.join("src/bin"))?;
        let features: Vec<&str> =
            std::iter::once(kind).chain(others.iter().map(String::as_str)).collect();
        let features = format!("default-features = false, features = {features:?}");
        fs::write(
            folder.join("Cargo.toml"),
            format!(
                "[package]\nname = \"{kind}\"\nedition = \"2024\"\n\n\
                 [dependencies]\nweir = {{ package = \"weir-io\", path = {library:?}, {features} }}\n\n\
                 [profile.release]\nstrip = true\n\n[workspace]\n"
            ),
        )?;
        // The versions that the repository is tested with.
        fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock"))?;
        Ok(Self { folder, target })
    }

    /// Builds the program with this design, changes it, and builds it again.
    fn build(&self, design: &str, program: &str) -> anyhow::Result<Built> {
        let name = name_of(design);
        let source = self.folder.join("src/bin").join(&name).with_extension("rs");
        fs::write(&source, program)?;
        self.cargo_build(&name)?;
        fs::write(&source, program.replace("listens on", "waits on"))?;
        let before = cpu_of_children();
        self.cargo_build(&name)?;
        let cpu = cpu_of_children().zip(before).map(|(after, before)| after - before);
        let bytes = fs::metadata(self.program(&name))?.len();
        Ok(Built { bytes, cpu })
    }

    fn cargo_build(&self, name: &str) -> anyhow::Result<()> {
        let words = ["build", "--quiet", "--release", "--offline", "--bin", name];
        let mut build = packages::cargo(&words);
        packages::run(build.env("CARGO_TARGET_DIR", &self.target).current_dir(&self.folder))
    }

    fn program(&self, name: &str) -> PathBuf {
        let folder = self.target.join("release");
        folder.join(name).with_extension(std::env::consts::EXE_EXTENSION)
    }

    /// Starts the program, and ends it when it has said where it waits. It may say that its design cannot run here.
    fn try_out(&self, design: &str) -> anyhow::Result<()> {
        let mut program = Command::new(self.program(&name_of(design)));
        let piped = program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().context("starting it")?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let mut line = String::new();
        BufReader::new(stdout.context("its output")?).read_line(&mut line)?;
        drop(child.stdin.take());
        let mut errors = String::new();
        stderr.context("its errors")?.read_to_string(&mut errors)?;
        let status = child.wait()?;
        if errors.contains("Unavailable") {
            println!("  not run: {}", errors.trim());
            return Ok(());
        }
        ensure!(
            status.success() && line.contains("waits on"),
            "{design}: {status}, {line}{errors}"
        );
        Ok(())
    }
}

/// udp-rio-hybrid of `udp::RioHybrid`.
fn name_of(design: &str) -> String {
    let mut name = String::new();
    for char in design.replace("::", "").chars() {
        if char.is_uppercase() {
            name.push('-');
        }
        name.push(char.to_ascii_lowercase());
    }
    name
}

/// The kind of a design, and a program with it: an echo server, or one that reads a device that is empty.
fn program(design: &str) -> anyhow::Result<(&str, String)> {
    let Some((kind, name)) = design.split_once("::") else {
        bail!("{design:?} names no type of a design: types are as udp::Blocking");
    };
    let value = match name {
        BY_NAME => "AnyDesign::parse(&std::env::args().nth(1).unwrap_or(FIRST.into()))?".to_owned(),
        _ => format!("{name}::default()"),
    };
    let (head, start) = match kind {
        "udp" => (
            "use weir::{limits::Limits, udp::{Datagram, NAME, Replies, Server}};",
            "let limits = Limits::echo(100_000);
    let server = Server::bind(\"127.0.0.1:0\".parse()?).limits(limits).start(DESIGN, |_thread| {
        |_: Datagram<'_>, replies: &mut Replies<'_>| _ = replies.echo()
    })?;
    println!(\"listens on {}\", server.local_addresses()[0]);",
        ),
        "tcp" => (
            "use weir::tcp::{NAME, Output, Server};",
            "let server = Server::bind(\"127.0.0.1:0\".parse()?)
        .start(DESIGN, |_peer| |_: &mut [u8], output: &mut Output<'_>| _ = output.echo())?;
    println!(\"listens on {}\", server.local_addresses()[0]);",
        ),
        "device" => (
            "use weir::device::{Device, NAME, Reads};",
            "let device = Device::open(\"/dev/null\", &[])?;
    let server = Reads::of(&device).length(4096).start(DESIGN, |_thread| ())?;
    println!(\"listens on {}\", device.path().display());",
        ),
        _ => bail!("{kind:?} is no kind of design: udp, tcp and device are"),
    };
    let first = if kind == "device" { "\"sync\"" } else { "\"blocking\"" };
    let start = start.replace("DESIGN", &value).replace("FIRST", first);
    let program = format!(
        "{}

fn main() -> Result<(), Box<dyn std::error::Error>> {{
    {start}
    std::io::stdin().read_line(&mut String::new())?;
    server.stop().failure.map_or(Ok(()), |failure| Err(failure.into()))
}}
",
        head.replace("NAME", name)
    );
    Ok((kind, program))
}

/// The CPU time of all programs that were started from here and have ended.
#[cfg(unix)]
fn cpu_of_children() -> Option<Duration> {
    use nix::sys::{
        resource::{UsageWho, getrusage},
        time::TimeValLike as _,
    };
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).ok()?;
    let time = usage.user_time() + usage.system_time();
    Some(Duration::from_micros(time.num_microseconds().try_into().ok()?))
}

#[cfg(not(unix))]
fn cpu_of_children() -> Option<Duration> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_have_the_names_of_their_designs() {
        assert_eq!(name_of("udp::RioHybrid"), "udp-rio-hybrid");
        assert_eq!(name_of("device::Synchronous"), "device-synchronous");
    }

    #[test]
    fn what_names_no_design_says_what_would() {
        for (wrong, word) in [("Blocking", "as udp::Blocking"), ("sctp::Blocking", "udp, tcp")] {
            assert!(program(wrong).unwrap_err().to_string().contains(word), "{wrong}");
        }
        for design in DESIGNS {
            let (_, text) = program(design).expect(design);
            assert!(text.lines().count() <= 14, "{text}");
        }
    }
}
