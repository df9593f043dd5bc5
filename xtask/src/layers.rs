//! The check that portable layers name no operating system: designs, engines and contracts of the library, the
//! generators, the laboratory and the command.
//!
//! It reads the tokens of their sources, so what comments say of an origin does not count, nor do tests. What counts is
//! what would make code differ between systems (`cfg`, `libc`, `std::os`), and words for users that name one.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    str::FromStr as _,
};

use anyhow::{Context as _, anyhow};
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// How far a folder or file is from the operating system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layer {
    /// Designs, engines, the laboratory, the command: nothing of a system at all.
    Portable,
    /// Contracts, which may choose among their providers, and generators, which choose the file of their system: `mod` and
    /// `use` may have a `cfg`.
    Chooses,
    /// Providers, in which everything is allowed.
    Provider,
}

/// The layers, by the beginning of a path below `crates`; the longest that fits counts.
const LAYERS: &[(&str, Layer)] = &[
    ("weir/src", Layer::Chooses),
    ("weir/src/udp", Layer::Portable),
    ("weir/src/tcp", Layer::Portable),
    ("weir/src/filter", Layer::Portable),
    ("weir/src/timer", Layer::Portable),
    ("weir/src/device", Layer::Portable),
    ("weir/src/device/mod.rs", Layer::Chooses),
    ("weir/src/design.rs", Layer::Portable),
    ("weir/src/lifecycle.rs", Layer::Portable),
    ("weir/src/limits.rs", Layer::Portable),
    ("weir/src/options.rs", Layer::Portable),
    ("weir/src/wake.rs", Layer::Portable),
    // Each is about one mechanism of one system.
    ("weir/src/absent.rs", Layer::Provider),
    ("weir/src/bpf", Layer::Provider),
    ("weir/src/port/iocp", Layer::Provider),
    ("weir/src/port/overlapped.rs", Layer::Provider),
    ("weir/src/readiness/network_events.rs", Layer::Provider),
    ("weir/src/port/uring", Layer::Provider),
    ("weir/src/port/winsock", Layer::Provider),
    ("weir/src/ring", Layer::Provider),
    ("weir/src/rio/uring", Layer::Provider),
    ("weir/src/rio/winsock", Layer::Provider),
    ("weir/src/rio/xdp", Layer::Provider),
    ("weir/src/rio/packet", Layer::Provider),
    ("weir/src/counters/os", Layer::Provider),
    ("weir/src/machine", Layer::Provider),
    // Tests alone.
    ("weir/src/wine.rs", Layer::Provider),
    ("weir-load/src", Layer::Chooses),
    ("weir-lab/src", Layer::Portable),
    ("weir-lab/src/udp/link/mod.rs", Layer::Chooses),
    ("weir-cli/src", Layer::Portable),
];

/// Parts of a path that say that a file is written for one system, or for those without something.
const OF_A_SYSTEM: [&str; 4] = ["linux", "windows", "absent", "elsewhere"];

/// Parts of a path that hold tests.
const TESTS: [&str; 2] = ["tests", "fixture"];

/// What may stand where it stands: file, word, and why.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("weir/src/contract.rs", "cfg", "declares what a system lacks, for all contracts"),
    ("weir/src/rio/choice.rs", "cfg", "the table of providers, with an arm for each that is here"),
    ("weir/src/rio/choice.rs", "Linux", "the table of providers, which says where each is from"),
    ("weir/src/rio/choice.rs", "Windows", "the table of providers, which says where each is from"),
    ("weir-cli/src/load.rs", "Windows", "the help of an option that is another call there"),
    ("weir-lab/src/udp/report/mod.rs", "Windows", "the machine of figures that others published"),
    (
        "weir-lab/src/udp/report/pictures.rs",
        "Windows",
        "the machine of figures that others published",
    ),
];

/// Words that name a system where they are idents.
const IDENTS: [&str; 5] = ["libc", "windows_sys", "rustix", "io_uring", "nix"];
/// Those that do within a `cfg`.
const IN_CFG: [&str; 5] = ["target_os", "target_family", "target_env", "unix", "windows"];
/// Those that do within words for users.
const IN_TEXT: [&str; 3] = ["Linux", "Windows", "Wine"];

/// Something of a system.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Found {
    line: usize,
    word: &'static str,
}

/// Prints what portable layers name, and says failure if it is anything.
pub fn check() -> anyhow::Result<ExitCode> {
    let problems = problems()?;
    for problem in &problems {
        eprintln!("{problem}");
    }
    if problems.is_empty() {
        println!("layers: portable ones name no system, but for {} exceptions", EXCEPTIONS.len());
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("layers: {} problems; see xtask/src/layers.rs", problems.len());
    Ok(ExitCode::FAILURE)
}

fn problems() -> anyhow::Result<Vec<String>> {
    let mut files = Vec::new();
    for root in ["weir/src", "weir-load/src", "weir-lab/src", "weir-cli/src"] {
        files.extend(sources_below(root)?);
    }
    let (mut problems, mut excepted) = (Vec::new(), BTreeSet::new());
    for (path, name) in &files {
        let layer = layer(name);
        if layer == Layer::Provider {
            continue;
        }
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
        for Found { line, word } in names(&text, layer).with_context(|| name.clone())? {
            match EXCEPTIONS.iter().position(|(file, of, _)| file == name && *of == word) {
                Some(exception) => drop(excepted.insert(exception)),
                None => problems.push(format!("crates/{name}:{line}: {word}")),
            }
        }
    }
    let unused = EXCEPTIONS.iter().enumerate().filter(|(at, _)| !excepted.contains(at));
    problems.extend(unused.map(|(_, (file, word, _))| {
        format!("crates/{file}: {word} is an exception, and is not there any more")
    }));
    Ok(problems)
}

/// The sources below a folder of `crates`, with the names that they have from there.
pub fn sources_below(root: &str) -> anyhow::Result<Vec<(PathBuf, String)>> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    let mut files = Vec::new();
    sources(&crates.join(root), root, &mut files)?;
    Ok(files)
}

fn sources(folder: &Path, name: &str, files: &mut Vec<(PathBuf, String)>) -> anyhow::Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {name}"))?;
    for entry in entries {
        let entry = entry?;
        let name = format!("{name}/{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            sources(&entry.path(), &name, files)?;
        } else if name.ends_with(".rs") {
            files.push((entry.path(), name));
        }
    }
    files.sort();
    Ok(())
}

/// The layer of a file.
fn layer(name: &str) -> Layer {
    let mut parts = name.split('/').map(|part| part.trim_end_matches(".rs"));
    let is_test = |part: &str| TESTS.contains(&part) || part.ends_with("_tests");
    if parts.any(|part| OF_A_SYSTEM.contains(&part) || is_test(part)) {
        return Layer::Provider;
    }
    let fits = |prefix: &str| {
        name.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let longest = LAYERS.iter().filter(|(prefix, _)| fits(prefix)).max_by_key(|(p, _)| p.len());
    longest.expect("each root is in the table").1
}

/// What a source names of a system.
fn names(text: &str, layer: Layer) -> anyhow::Result<Vec<Found>> {
    let tokens = TokenStream::from_str(text).map_err(|e| anyhow!("no tokens of Rust: {e}"))?;
    let mut found = Vec::new();
    walk(tokens, layer, &mut found);
    Ok(found)
}

fn walk(tokens: TokenStream, layer: Layer, found: &mut Vec<Found>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while at < tokens.len() {
        let line = tokens[at].span().start().line;
        if let Some((attribute, behind)) = attribute(&tokens, at) {
            at = behind;
            match Condition::of(&attribute) {
                Some(Condition::Test) => at = behind_item(&tokens, at),
                Some(Condition::System) if !(layer == Layer::Chooses && is_choice(&tokens, at)) => {
                    found.push(Found { line, word: "cfg" });
                }
                _ => {}
            }
            continue;
        }
        match &tokens[at] {
            TokenTree::Group(group) => walk(group.stream(), layer, found),
            TokenTree::Ident(ident) => {
                let known = IDENTS.iter().find(|word| ident == *word);
                found.extend(known.map(|word| Found { line, word }));
                // `cfg!(windows)`
                if ident == "cfg"
                    && is(&tokens, at + 1, "!")
                    && matches!(tokens.get(at + 2), Some(TokenTree::Group(group)) if has_system(group.stream()))
                {
                    found.push(Found { line, word: "cfg" });
                }
                // `std::os::`
                if ident == "os" && at >= 3 && is(&tokens, at - 3, "std") {
                    found.push(Found { line, word: "std::os" });
                }
                // `origin: "..."`, which says where a design comes from
                if ident == "origin" && is(&tokens, at + 1, ":") {
                    at += 2;
                }
            }
            TokenTree::Literal(literal) => {
                let text = literal.to_string();
                let names =
                    |word: &str| text.split(|c: char| !c.is_alphanumeric()).any(|of| of == word);
                let known = IN_TEXT.iter().find(|word| names(word));
                found.extend(known.map(|word| Found { line, word }));
            }
            TokenTree::Punct(_) => {}
        }
        at += 1;
    }
}

/// The attribute that begins here, and where it ends.
pub fn attribute(tokens: &[TokenTree], at: usize) -> Option<(Group, usize)> {
    if !is(tokens, at, "#") {
        return None;
    }
    let at = if is(tokens, at + 1, "!") { at + 2 } else { at + 1 };
    match tokens.get(at)? {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket => {
            Some((group.clone(), at + 1))
        }
        _ => None,
    }
}

/// What an attribute makes of what is behind it.
pub enum Condition {
    /// It is there in tests alone.
    Test,
    /// It is there on some systems.
    System,
}

impl Condition {
    pub fn of(attribute: &Group) -> Option<Self> {
        let mut tokens = attribute.stream().into_iter();
        let Some(TokenTree::Ident(name)) = tokens.next() else { return None };
        let rest: TokenStream = tokens.collect();
        if name == "cfg"
            && let Some(TokenTree::Group(condition)) = rest.clone().into_iter().next()
            && is_test_alone(condition.stream())
        {
            return Some(Self::Test);
        }
        let conditional = name == "cfg" || name == "cfg_attr";
        (conditional && has_system(rest)).then_some(Self::System)
    }
}

/// Whether a condition holds in tests alone: `test`, or `all(...)` of which a part does.
fn is_test_alone(condition: TokenStream) -> bool {
    let tokens: Vec<TokenTree> = condition.into_iter().collect();
    let tokens = match tokens.as_slice() {
        [before @ .., TokenTree::Punct(comma)] if comma.as_char() == ',' => before,
        whole => whole,
    };
    match tokens {
        [TokenTree::Ident(test)] => test == "test",
        [TokenTree::Ident(all), TokenTree::Group(parts)] if all == "all" => {
            let parts: Vec<TokenTree> = parts.stream().into_iter().collect();
            let is_comma =
                |token: &TokenTree| matches!(token, TokenTree::Punct(of) if of.as_char() == ',');
            parts.split(is_comma).any(|part| is_test_alone(part.iter().cloned().collect()))
        }
        _ => false,
    }
}

fn has_system(tokens: TokenStream) -> bool {
    idents(tokens).iter().any(|ident| IN_CFG.contains(&ident.as_str()))
}

fn idents(tokens: TokenStream) -> Vec<String> {
    tokens
        .into_iter()
        .flat_map(|token| match token {
            TokenTree::Ident(ident) => vec![ident.to_string()],
            TokenTree::Group(group) => idents(group.stream()),
            _ => vec![],
        })
        .collect()
}

/// Whether what begins here, behind further attributes, is a `mod` or a `use`.
fn is_choice(tokens: &[TokenTree], mut at: usize) -> bool {
    while let Some((_, behind)) = attribute(tokens, at) {
        at = behind;
    }
    if is(tokens, at, "pub") {
        at += 1;
        let within = matches!(tokens.get(at), Some(TokenTree::Group(_))); // `pub(crate)`
        at += usize::from(within);
    }
    is(tokens, at, "mod") || is(tokens, at, "use")
}

/// Where the item that begins here ends: behind its braces, or its semicolon or comma.
pub fn behind_item(tokens: &[TokenTree], at: usize) -> usize {
    let ends = |token: &TokenTree| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        TokenTree::Punct(punct) => matches!(punct.as_char(), ';' | ','),
        _ => false,
    };
    tokens[at..].iter().position(ends).map_or(tokens.len(), |end| at + end + 1)
}

pub fn is(tokens: &[TokenTree], at: usize, text: &str) -> bool {
    match tokens.get(at) {
        Some(TokenTree::Ident(ident)) => ident == text,
        Some(TokenTree::Punct(punct)) => text.chars().eq([punct.as_char()]),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portable_layers_name_no_system() {
        assert_eq!(problems().unwrap(), Vec::<String>::new());
    }

    fn words(text: &str, layer: Layer) -> Vec<&'static str> {
        names(text, layer).unwrap().iter().map(|found| found.word).collect()
    }

    #[test]
    fn what_differs_between_systems_is_found() {
        let nothing = Vec::<&str>::new();
        for (text, expected) in [
            ("#[cfg(target_os = \"linux\")] fn a() {}", vec!["cfg"]),
            ("fn a() -> bool { cfg!(windows) }", vec!["cfg"]),
            ("match a { #[cfg(unix)] 1 => {} }", vec!["cfg"]),
            ("use libc::c_int; use std::os::fd::AsFd;", vec!["libc", "std::os"]),
            ("const A: &str = \"only on Linux, so far\";", vec!["Linux"]),
            ("/// On Linux.\nfn a() {} // libc, as Windows\n", nothing.clone()),
            ("#[cfg(all(test, unix))] mod tests { use libc::c_int; } fn b() {}", nothing.clone()),
            ("#[cfg(test)] use libc::c_int; fn b() { libc() }", vec!["libc"]),
            (
                "#[cfg(all(any(unix, windows), all(test, unix),))] fn a() { libc() }",
                nothing.clone(),
            ),
            ("#[cfg(any(test, windows))] fn a() { libc() }", vec!["cfg", "libc"]),
            ("#[cfg(not(test))] fn a() { libc() }", vec!["libc"]),
            ("#[cfg(all(unix, not(test)))] fn a() {}", vec!["cfg"]),
            ("#[cfg(any(test, fuzzing))] fn a() { libc() }", vec!["libc"]),
            ("#[cfg(feature = \"test\")] fn a() { libc() }", vec!["libc"]),
            ("design! { origin: \"Windows 8\"; summary: \"Windows\" }", vec!["Windows"]),
            ("fn windows(of: &[u8]) { of.windows(2) }", nothing.clone()),
        ] {
            assert_eq!(words(text, Layer::Portable), expected, "{text}");
        }
        let found = names("fn a() {}\n\nfn b() { cfg!(unix) }", Layer::Portable).unwrap();
        assert_eq!(found, [Found { line: 3, word: "cfg" }]);
    }

    #[test]
    fn a_contract_may_choose_and_nothing_else() {
        let chosen = "#[cfg_attr(windows, path = \"windows.rs\")] #[forbid(unsafe_code)] pub(crate) mod native;";
        assert_eq!(words(chosen, Layer::Chooses), Vec::<&str>::new());
        assert_eq!(words(chosen, Layer::Portable), ["cfg"]);
        assert_eq!(words("#[cfg(unix)] fn a() {}", Layer::Chooses), ["cfg"]);
    }

    #[test]
    fn the_longest_beginning_counts() {
        for (name, expected) in [
            ("weir/src/udp/plain/epoll.rs", Layer::Portable),
            ("weir/src/udp/plain/tests.rs", Layer::Provider),
            ("weir/src/rio/turn.rs", Layer::Chooses),
            ("weir/src/rio/uring/mod.rs", Layer::Provider),
            ("weir/src/stream/linux.rs", Layer::Provider),
            ("weir/src/tcp/ring/ring.rs", Layer::Portable),
            ("weir-lab/src/udp/link/mod.rs", Layer::Chooses),
            ("weir-load/src/engine/mod.rs", Layer::Chooses),
            ("weir-load/src/engine/linux/gso.rs", Layer::Provider),
        ] {
            assert_eq!(layer(name), expected, "{name}");
        }
    }
}
