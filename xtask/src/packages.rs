//! The packages as they would be published: packed, looked through, and used by a project that has nothing else, beyond the
//! repository: its programs are built and run, and the command is installed.
//!
//! What a package lacks is found nowhere in the workspace, where every file is at hand: a file that is read at compile
//! time from beyond its folder, a licence, a dependency that only another member brings along.

use std::{
    env::{self, consts::EXE_EXTENSION},
    fs,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context as _, ensure};
use serde_json::Value;

/// What is published, each behind what it stands on. All have the version of this workspace.
const PACKAGES: [&str; 6] =
    ["weir-io", "weir-quinn", "weir-load", "weir-lab", "weir-mpi", "weir-cli"];

/// What each package has beside its code.
const FILES: [&str; 3] = ["README.md", "LICENSE-APACHE", "LICENSE-MIT"];

/// The most keywords that crates.io takes.
const MOST_KEYWORDS: usize = 5;

/// The project, and its program that names each of the libraries. Its other one is the first example of the library's front
/// page.
const PROJECT: &str = "weir-from-packages";
const LIBRARIES: &str = "weir-from-packages-libraries";
const NAMES_LIBRARIES: &str = "fn main() {
    println!(\"{} designs\", weir::udp::designs().len() + weir::tcp::designs().len());
    println!(\"{:?}\", weir_quinn::Settings::default());
    println!(\"a lease of {} ns\", weir_load::lease::LEASE_NS);
    println!(\"{} studies\", weir_lab::studies::NAMES.len());
    println!(\"MPI: {}\", weir_mpi::IS_BUILT_IN);
}
";

/// Packs every package, and checks them.
///
/// # Errors
/// If one cannot be packed, lacks something, does not compile, or does not run.
pub fn check() -> anyhow::Result<ExitCode> {
    let target = target()?;
    let folder = beyond_the_repository()?;
    let described = described()?;
    let packed = pack(&target.join("packages"), &folder, &PACKAGES)?;
    for (name, path) in PACKAGES.iter().zip(&packed) {
        lacks(name, path, &described)
            .map_or(Ok(()), |what| Err(anyhow::anyhow!("{name}: {what}")))?;
    }
    use_them(&folder, &packed, &target)?;
    install(&folder, packed.last().context("the command is packed last")?, &target)?;
    fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))?;
    println!("packages: {} are whole, and run where nothing else is", PACKAGES.join(", "));
    Ok(ExitCode::SUCCESS)
}

/// An empty folder from which no file of the repository is found, and none of its settings. It is the same each time, so that
/// cargo keeps what it builds there once, and is made here, so that it is nobody else's.
fn beyond_the_repository() -> anyhow::Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    fs::canonicalize(root())?.hash(&mut hasher);
    let folder = env::temp_dir().join(format!("weir-packages-{:016x}", hasher.finish()));
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))?;
    }
    fs::create_dir(&folder).with_context(|| format!("making {}", folder.display()))?;
    Ok(fs::canonicalize(folder)?)
}

/// The folder of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Where cargo builds.
pub fn target() -> anyhow::Result<PathBuf> {
    let target = env::var_os("CARGO_TARGET_DIR").map_or(root().join("target"), PathBuf::from);
    Ok(std::path::absolute(target)?)
}

/// Packs packages as they would be published, into one folder, and unpacks them below another. What is not committed yet
/// counts, too.
pub fn pack(into: &Path, below: &Path, names: &[&str]) -> anyhow::Result<Vec<PathBuf>> {
    let mut package = cargo(&["package", "--quiet", "--no-verify", "--allow-dirty", "--offline"]);
    names.iter().for_each(|name| _ = package.args(["--package", name]));
    run(package.arg("--target-dir").arg(into).current_dir(root()))?;
    let unpacked = names.iter().map(|name| {
        let name = format!("{name}-{}", env!("CARGO_PKG_VERSION"));
        let to = below.join(&name);
        if to.exists() {
            fs::remove_dir_all(&to).with_context(|| format!("removing {}", to.display()))?;
        }
        // Its files are of now, or cargo would not see that they have changed.
        let mut unpack = Command::new("tar");
        unpack.arg("-xmzf").arg(into.join("package").join(format!("{name}.crate")));
        run(unpack.arg("-C").arg(below))?;
        Ok(to)
    });
    unpacked.collect()
}

/// What cargo says of the workspace's packages.
fn described() -> anyhow::Result<Value> {
    let mut metadata = cargo(&["metadata", "--no-deps", "--format-version", "1", "--offline"]);
    let output = metadata.current_dir(root()).output().context("starting cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata ended with {}", output.status);
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// What a package lacks that was unpacked here.
fn lacks(name: &str, path: &Path, described: &Value) -> Option<String> {
    let root = root();
    for file in FILES {
        let text = fs::read_to_string(path.join(file)).unwrap_or_default();
        if text.is_empty() {
            return Some(format!("it has no {file}"));
        }
        // A link that was packed as a link, or as the path in it.
        if file.starts_with("LICENSE") && fs::read_to_string(root.join(file)).ok()? != text {
            return Some(format!("its {file} is not that of the repository"));
        }
    }
    let packages = described["packages"].as_array()?;
    let package = packages.iter().find(|package| package["name"] == name)?;
    let count = |of: &str| package[of].as_array().map_or(0, Vec::len);
    if package["description"].as_str().is_none_or(str::is_empty) {
        return Some("it has no description".into());
    }
    if !(1..=MOST_KEYWORDS).contains(&count("keywords")) {
        return Some(format!("it has {} keywords, of 1 to {MOST_KEYWORDS}", count("keywords")));
    }
    (count("categories") == 0).then(|| "it has no category".into())
}

/// Builds and runs the programs of a project that depends on the packed libraries, from nothing but these and what the
/// repository's packages depend on. What of that is there already is not compiled again.
fn use_them(folder: &Path, packed: &[PathBuf], target: &Path) -> anyhow::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let [library, .., command] = packed else { anyhow::bail!("there are several packages") };
    let patches =
        PACKAGES.iter().zip(packed).map(|(name, path)| format!("{name} = {{ path = {path:?} }}\n"));
    fs::write(
        folder.join("Cargo.toml"),
        format!(
            "[package]\nname = \"{PROJECT}\"\nedition = \"2024\"\n\n\
             [dependencies]\nweir = {{ package = \"weir-io\", version = \"{version}\", default-features = false }}\n\
             weir-quinn = \"{version}\"\nweir-load = \"{version}\"\nweir-lab = \"{version}\"\n\
             weir-mpi = \"{version}\"\n\n\
             [workspace]\nmembers = [{command:?}]\n\n{}\n[patch.crates-io]\n{}",
            profile(&fs::read_to_string(root().join("Cargo.toml"))?),
            patches.collect::<String>(),
        ),
    )?;
    let front_page = fs::read_to_string(library.join("README.md"))?;
    fs::create_dir_all(folder.join("src/bin"))?;
    fs::write(folder.join("src/main.rs"), first_example(&front_page)?)?;
    fs::write(folder.join("src/bin").join(LIBRARIES).with_extension("rs"), NAMES_LIBRARIES)?;
    // The versions that the repository is tested with.
    fs::copy(root().join("Cargo.lock"), folder.join("Cargo.lock"))?;
    let mut build = cargo(&["build", "--quiet", "--offline"]);
    run(build.env("CARGO_TARGET_DIR", target).current_dir(folder))?;
    for name in [PROJECT, LIBRARIES] {
        let program = target.join("debug").join(name).with_extension(EXE_EXTENSION);
        run(Command::new(program).current_dir(folder))?;
    }
    Ok(())
}

/// Installs the command from its packed package, in the project that has the others beside it, and has it say what it is.
fn install(folder: &Path, command: &Path, target: &Path) -> anyhow::Result<()> {
    let installed = folder.join("installed");
    let mut install = cargo(&["install", "--quiet", "--debug", "--offline", "--locked", "--path"]);
    install.arg(command).arg("--root").arg(&installed).env("CARGO_TARGET_DIR", target);
    run(install.current_dir(folder))?;
    let weir = installed.join("bin/weir").with_extension(EXE_EXTENSION);
    for (argument, says) in [("--version", env!("CARGO_PKG_VERSION")), ("designs", "rio-hybrid")] {
        let output = Command::new(&weir).arg(argument).current_dir(folder).output();
        let output = output.with_context(|| format!("starting {}", weir.display()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(
            output.status.success() && text.contains(says),
            "the installed weir {argument} ended with {}, and says nothing of {says}: {text}{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}

/// The table of the repository's manifest by which programs are built for development: another one would have all that these
/// stand on built once more.
fn profile(manifest: &str) -> String {
    let from = manifest.lines().skip_while(|line| *line != "[profile.dev]");
    from.take_while(|line| !line.is_empty()).map(|line| format!("{line}\n")).collect()
}

/// The first program on a page.
fn first_example(page: &str) -> anyhow::Result<&str> {
    let (_, from) = page.split_once("```rust\n").context("the front page has no example")?;
    let (example, _) =
        from.split_once("```\n").context("the example of the front page has no end")?;
    ensure!(example.contains("fn main()"), "the first example of the front page is no program");
    Ok(example)
}

pub fn cargo(words: &[&str]) -> Command {
    // By its name: rustup's then has all that it starts use one toolchain, also rustc in the folder of a dependency that
    // names another for itself.
    let mut cargo = Command::new("cargo");
    cargo.args(words);
    cargo
}

pub fn run(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("starting {command:?}"))?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Every package that is not marked as unpublished is packed here, so that a new one is not forgotten.
    #[test]
    fn every_published_package_is_packed() {
        let described = described().unwrap();
        let packages = described["packages"].as_array().unwrap();
        // An empty list: `publish = false`.
        let published = packages.iter().filter(|package| package["publish"] != json!([]));
        let mut names: Vec<_> =
            published.map(|package| package["name"].as_str().unwrap()).collect();
        let mut packed = PACKAGES;
        names.sort_unstable();
        packed.sort_unstable();
        assert_eq!(names, packed);
    }

    #[test]
    fn what_the_project_takes_from_the_repository_is_found() {
        let read = |name: &str| fs::read_to_string(root().join(name)).unwrap();
        assert!(profile(&read("Cargo.toml")).starts_with("[profile.dev]\ndebug = "));
        assert!(first_example(&read("crates/weir/README.md")).unwrap().contains("udp::"));
        assert!(first_example("```rust\nlet x = 1;\n```\n").is_err());
        assert!(first_example("no code").is_err());
    }

    #[test]
    fn what_a_package_lacks_is_named() {
        let folder = target().unwrap().join("packages-of-tests");
        let described = json!({ "packages": [
            { "name": "whole", "description": "d", "keywords": ["k"], "categories": ["c"] },
            { "name": "unnamed", "description": "d", "keywords": [], "categories": ["c"] },
        ] });
        fs::create_dir_all(&folder).unwrap();
        for file in FILES {
            let from = root().join(file);
            fs::write(folder.join(file), fs::read(from).unwrap()).unwrap();
        }
        assert_eq!(lacks("whole", &folder, &described), None);
        assert!(lacks("unnamed", &folder, &described).unwrap().contains("0 keywords"));
        fs::write(folder.join("LICENSE-MIT"), "../../LICENSE-MIT").unwrap();
        assert!(lacks("whole", &folder, &described).unwrap().contains("LICENSE-MIT"));
        fs::remove_file(folder.join("README.md")).unwrap();
        assert!(lacks("whole", &folder, &described).unwrap().contains("README.md"));
    }
}
