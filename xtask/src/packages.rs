//! The packages as they would be published: packed, looked through, and compiled in a project that has nothing else.
//!
//! What a package lacks is found nowhere in the workspace, where every file is at hand: a file that is read at compile
//! time from beyond its folder, a licence, a dependency that only another member brings along.

use std::{
    fs,
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

/// The program of the project: it names each of the libraries.
const PROGRAM: &str = "fn main() {
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
/// If one cannot be packed, lacks something, or does not compile.
pub fn check() -> anyhow::Result<ExitCode> {
    let target = target()?;
    let folder = target.join("packages");
    let described = described()?;
    let packed = pack(&folder.join("packed"), &PACKAGES)?;
    for (name, path) in PACKAGES.iter().zip(&packed) {
        lacks(name, path, &described)
            .map_or(Ok(()), |what| Err(anyhow::anyhow!("{name}: {what}")))?;
    }
    compile(&folder, &packed, &target)?;
    println!("packages: {} are whole", PACKAGES.join(", "));
    Ok(ExitCode::SUCCESS)
}

/// The folder of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Where cargo builds.
pub fn target() -> anyhow::Result<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root().join("target"), PathBuf::from);
    Ok(std::path::absolute(target)?)
}

/// Packs packages as they would be published, and unpacks them below the folder. What is not committed yet counts, too.
pub fn pack(folder: &Path, names: &[&str]) -> anyhow::Result<Vec<PathBuf>> {
    let mut package = cargo(&["package", "--quiet", "--no-verify", "--allow-dirty", "--offline"]);
    names.iter().for_each(|name| _ = package.args(["--package", name]));
    run(package.arg("--target-dir").arg(folder).current_dir(root()))?;
    let unpacked = names.iter().map(|name| {
        let name = format!("{name}-{}", env!("CARGO_PKG_VERSION"));
        let to = folder.join(&name);
        if to.exists() {
            fs::remove_dir_all(&to).with_context(|| format!("removing {}", to.display()))?;
        }
        // Its files are of now, or cargo would not see that they have changed.
        let mut unpack = Command::new("tar");
        unpack.arg("-xmzf").arg(folder.join("package").join(format!("{name}.crate")));
        run(unpack.arg("-C").arg(folder))?;
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

/// Compiles a project that depends on the packed libraries, and the packed program, from nothing but these and what
/// the repository's packages depend on. What of that is there already is not compiled again.
fn compile(folder: &Path, packed: &[PathBuf], target: &Path) -> anyhow::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let patches =
        PACKAGES.iter().zip(packed).map(|(name, path)| format!("{name} = {{ path = {path:?} }}\n"));
    fs::create_dir_all(folder.join("src"))?;
    fs::write(
        folder.join("Cargo.toml"),
        format!(
            "[package]\nname = \"empty\"\nedition = \"2024\"\n\n\
             [dependencies]\nweir = {{ package = \"weir-io\", version = \"{version}\" }}\n\
             weir-quinn = \"{version}\"\nweir-load = \"{version}\"\nweir-lab = \"{version}\"\n\
             weir-mpi = \"{version}\"\n\n\
             [workspace]\nmembers = [{:?}]\n\n[patch.crates-io]\n{}",
            packed.last().context("the program is packed last")?,
            patches.collect::<String>(),
        ),
    )?;
    fs::write(folder.join("src/main.rs"), PROGRAM)?;
    // The versions that the repository is tested with.
    fs::copy(root().join("Cargo.lock"), folder.join("Cargo.lock"))?;
    let mut check = cargo(&["check", "--quiet", "--workspace", "--offline"]);
    run(check.env("CARGO_TARGET_DIR", target).current_dir(folder))
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
