//! The check that no files of a crate import each other in a circle: each can be read after those that it rests on.
//!
//! What counts is a path (of a `use`, or in place) that leads from one file of a crate to what another one defines,
//! through re-exports to the file that they lead to. A module's file stands for its folder: what it takes from the files
//! below it, which it declares, is no import, while what those take from it is one. Tests are left out, and so are the
//! bodies of `macro_rules!`. A module that has a file for each operating system is all of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    str::FromStr as _,
};

use anyhow::{Context as _, anyhow};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::layers::{Condition, attribute, behind_item, is};

/// The crates that are checked, by their roots below `crates`.
const ROOTS: [&str; 4] =
    ["weir/src/lib.rs", "weir-load/src/lib.rs", "weir-lab/src/lib.rs", "weir-cli/src/main.rs"];

/// Prints the circles of all crates, and says failure if there is any.
pub fn check() -> anyhow::Result<ExitCode> {
    let mut count = 0;
    for root in ROOTS {
        for circle in circles_of(root)? {
            eprintln!("{root}: {circle}");
            count += 1;
        }
    }
    if count == 0 {
        println!("circles: no files of a crate import each other in a circle");
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("circles: {count}; see xtask/src/circles.rs");
    Ok(ExitCode::FAILURE)
}

/// The circles of a crate, each with its files and with who imports what.
fn circles_of(root: &str) -> anyhow::Result<Vec<String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates").join(root);
    let mut tree = Tree::default();
    tree.read(&root, vec![])?;
    Ok(tree.circles(root.parent().context("a root is in a folder")?))
}

/// A path from the root of a crate, or a module's.
type Names = Vec<String>;

/// A path that a file mentions.
#[derive(Debug)]
struct Mention {
    /// The module that it is mentioned in.
    within: Names,
    path: Names,
    /// Whether it is of this crate only if it begins with a module of that module.
    is_bare: bool,
    /// The name that a `use` binds to it, if it is one's; `*` for all that is there.
    binds: Option<String>,
    /// Whether that name is for others too.
    is_public: bool,
}

#[derive(Debug, Default)]
struct Source {
    file: PathBuf,
    module: Names,
    /// What it defines, by the module that it stands in.
    items: BTreeSet<(Names, String)>,
    mentions: Vec<Mention>,
    /// Every word of it but those of imports.
    words: BTreeSet<String>,
    /// The modules that it declares, with their files.
    declares: Vec<(Names, Vec<PathBuf>)>,
    /// Those that stand in it.
    holds: Vec<Names>,
}

/// The files of a crate.
#[derive(Debug, Default)]
struct Tree {
    sources: Vec<Source>,
    /// The files of a module: several where each operating system has its own.
    modules: BTreeMap<Names, Vec<usize>>,
}

impl Tree {
    /// Reads the file of a module, and those of the modules below it.
    fn read(&mut self, file: &Path, module: Names) -> anyhow::Result<()> {
        let name = || file.display().to_string();
        let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", name()))?;
        for (module, files) in self.add(file, &module, &text).with_context(name)? {
            for file in files.iter().filter(|file| file.exists()) {
                self.read(file, module.clone())?;
            }
        }
        Ok(())
    }

    /// Takes in a file; the modules that it declares, and where they may be.
    fn add(
        &mut self,
        file: &Path,
        module: &Names,
        text: &str,
    ) -> anyhow::Result<Vec<(Names, Vec<PathBuf>)>> {
        let tokens = TokenStream::from_str(text).map_err(|e| anyhow!("no tokens of Rust: {e}"))?;
        let mut source =
            Source { file: file.to_owned(), module: module.clone(), ..Source::default() };
        source.walk(tokens, module, Some(module));
        let declares = std::mem::take(&mut source.declares);
        for module in [module].into_iter().chain(&source.holds) {
            self.modules.entry(module.clone()).or_default().push(self.sources.len());
        }
        self.sources.push(source);
        Ok(declares)
    }

    /// The files that define what a path from the root leads to; none if it leads out of the crate or is not known.
    fn defining(&self, path: &[String], steps: usize) -> BTreeSet<usize> {
        const MOST_STEPS: usize = 12;
        let is_module = |length: &usize| self.modules.contains_key(&path[..*length]);
        let length = (0..=path.len()).rev().find(is_module).unwrap_or(0);
        let (module, rest) = path.split_at(length);
        let Some(files) = self.modules.get(module).filter(|_| steps < MOST_STEPS) else {
            return BTreeSet::new();
        };
        let Some(name) = rest.first() else { return files.iter().copied().collect() };
        let key = (module.to_vec(), name.clone());
        let defined: BTreeSet<usize> =
            files.iter().copied().filter(|at| self.sources[*at].items.contains(&key)).collect();
        if !defined.is_empty() {
            return defined;
        }
        let imports = |binds: &str, from: usize| {
            let mut found = BTreeSet::new();
            for mention in files.iter().flat_map(|at| &self.sources[*at].mentions) {
                if mention.within == module && mention.binds.as_deref() == Some(binds) {
                    let further = mention.path.iter().chain(&rest[from..]).cloned();
                    found.extend(self.defining(&further.collect::<Names>(), steps + 1));
                }
            }
            found
        };
        let named = imports(name, 1);
        if named.is_empty() { imports("*", 0) } else { named }
    }

    /// What a file imports of others: each of them, and by which paths.
    fn imports(&self, at: usize) -> BTreeMap<usize, BTreeSet<String>> {
        let source = &self.sources[at];
        let mut found: BTreeMap<usize, BTreeSet<String>> = BTreeMap::new();
        for mention in &source.mentions {
            let is_of_crate = || {
                let first = mention.path.get(..=mention.within.len());
                first.is_some_and(|first| self.modules.contains_key(first))
            };
            let is_re_export = mention.is_public
                && mention.binds.as_ref().is_some_and(|name| !source.words.contains(name));
            // A module's own file is no import of what is only its name.
            let is_module = self.modules.contains_key(&mention.path);
            if is_re_export || (mention.is_bare && !is_of_crate()) || is_module {
                continue;
            }
            let mut defining = self.defining(&mention.path, 0);
            if defining.is_empty() {
                // What a macro makes, or a name that is not found, is of its module's file.
                let known = (0..mention.path.len())
                    .rev()
                    .find_map(|length| self.modules.get(&mention.path[..length]));
                defining.extend(known.into_iter().flatten());
            }
            // A file of one operating system takes what is beside it.
            let is_beside = |other: &usize| {
                let folder = self.sources[*other].file.parent();
                folder.is_some_and(|folder| source.file.starts_with(folder))
            };
            if defining.iter().any(is_beside) {
                defining.retain(is_beside);
            }
            let is_other = |other: &usize| {
                *other != at && !self.sources[*other].module.starts_with(&source.module)
            };
            for other in defining.into_iter().filter(is_other) {
                found.entry(other).or_default().insert(mention.path.join("::"));
            }
        }
        found
    }

    /// The circles, each with its files and with who imports what; paths are those below this folder.
    fn circles(&self, folder: &Path) -> Vec<String> {
        let imports: Vec<_> = (0..self.sources.len()).map(|at| self.imports(at)).collect();
        let reached: Vec<BTreeSet<usize>> = (0..imports.len())
            .map(|from| {
                let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
                while let Some(at) = next.pop() {
                    next.extend(imports[at].keys().filter(|other| reached.insert(**other)));
                }
                reached
            })
            .collect();
        let mut circles = BTreeSet::new();
        for from in 0..imports.len() {
            let circle = reached[from].iter().filter(|at| reached[**at].contains(&from));
            let circle: BTreeSet<usize> = circle.copied().collect();
            if !circle.is_empty() {
                circles.insert(circle);
            }
        }
        let name = |at: usize| {
            let file = &self.sources[at].file;
            file.strip_prefix(folder).unwrap_or(file).display().to_string()
        };
        let text = |circle: &BTreeSet<usize>| {
            let mut text = format!("{} files import each other", circle.len());
            for from in circle {
                for (to, paths) in imports[*from].iter().filter(|(to, _)| circle.contains(to)) {
                    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
                    text +=
                        &format!("\n    {} -> {}: {}", name(*from), name(*to), paths.join(", "));
                }
            }
            text
        };
        circles.iter().map(text).collect()
    }
}

impl Source {
    /// Reads tokens of this module; `items` is the module if what is defined here is seen from outside.
    fn walk(&mut self, tokens: TokenStream, module: &Names, items: Option<&Names>) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let (mut at, mut paths) = (0, vec![]);
        let mut is_public = false;
        while at < tokens.len() {
            if let Some((found, behind)) = attribute(&tokens, at) {
                at = behind;
                match Condition::of(&found) {
                    Some(Condition::Test) => at = behind_item(&tokens, at),
                    _ => paths.extend(paths_of(found.stream())),
                }
                continue;
            }
            let text = |at: usize| tokens.get(at).map(ToString::to_string).unwrap_or_default();
            match &tokens[at] {
                TokenTree::Ident(word) if word == "pub" => {
                    is_public = true;
                    let within = matches!(tokens.get(at + 1), Some(TokenTree::Group(of)) if of.delimiter() == Delimiter::Parenthesis);
                    at += 1 + usize::from(within);
                    continue;
                }
                TokenTree::Ident(word) if word == "use" => {
                    let end = (at..tokens.len()).find(|end| is(&tokens, *end, ";"));
                    let end = end.unwrap_or(tokens.len());
                    self.imports(&tokens[at + 1..end], module, vec![], is_public);
                    at = end;
                }
                TokenTree::Ident(word) if word == "mod" && is(&tokens, at + 2, ";") => {
                    self.declare(&text(at + 1), module, &paths);
                    at += 2;
                }
                TokenTree::Ident(word) if word == "mod" => {
                    if let Some(TokenTree::Group(body)) = tokens.get(at + 2) {
                        let inner: Names = module.iter().cloned().chain([text(at + 1)]).collect();
                        self.holds.push(inner.clone());
                        self.walk(body.stream(), &inner, Some(&inner));
                    }
                    at += 2;
                }
                TokenTree::Ident(word) if word == "macro_rules" => {
                    self.items.extend(items.map(|module| (module.clone(), text(at + 2))));
                    at += 3;
                }
                TokenTree::Ident(word) => {
                    let word = word.to_string();
                    let defines =
                        ["fn", "struct", "enum", "trait", "type", "const", "static", "union"];
                    if defines.contains(&word.as_str()) {
                        let skipped = usize::from(text(at + 1) == "mut");
                        self.items.extend(items.map(|of| (of.clone(), text(at + 1 + skipped))));
                    }
                    let begins = !(at >= 2 && is(&tokens, at - 1, ":") && is(&tokens, at - 2, ":"))
                        && !(at >= 1 && (is(&tokens, at - 1, "$") || is(&tokens, at - 1, ".")));
                    self.words.insert(word);
                    if begins && is(&tokens, at + 1, ":") && is(&tokens, at + 2, ":") {
                        let mut end = at + 1;
                        while is(&tokens, end, ":")
                            && is(&tokens, end + 1, ":")
                            && matches!(tokens.get(end + 2), Some(TokenTree::Ident(_)))
                        {
                            self.words.insert(text(end + 2));
                            end += 3;
                        }
                        self.imports(&tokens[at..end], module, vec![], false);
                        if let Some(last) = self.mentions.last_mut().filter(|_| end > at + 1) {
                            last.binds = None;
                        }
                        at = end - 1;
                    }
                }
                // Members of a type, and what stands in functions, are no items of the module.
                TokenTree::Group(group) => self.walk(group.stream(), module, None),
                _ => {}
            }
            (is_public, paths) = (false, vec![]);
            at += 1;
        }
    }

    /// A module that is declared here, with the files that it may be in; `paths` are those that attributes name.
    fn declare(&mut self, name: &str, module: &Names, paths: &[String]) {
        let folder = self.file.parent().unwrap_or(Path::new("")).to_owned();
        let stem = self.file.file_stem().unwrap_or_default().to_owned();
        let is_of_folder = ["mod", "lib", "main"].iter().any(|name| stem == *name);
        let below = if is_of_folder { folder.clone() } else { folder.join(stem) };
        let files = match paths {
            [] => vec![below.join(format!("{name}.rs")), below.join(name).join("mod.rs")],
            paths => paths.iter().map(|path| folder.join(path)).collect(),
        };
        self.declares.push((module.iter().cloned().chain([name.to_owned()]).collect(), files));
    }

    /// What a tree of imports, or a path in place, mentions behind `before`.
    fn imports(&mut self, tokens: &[TokenTree], module: &Names, before: Names, is_public: bool) {
        let mut path = before;
        let mut bound = None;
        for (at, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Ident(word) if word == "as" => {
                    bound = tokens.get(at + 1).map(ToString::to_string);
                    break;
                }
                TokenTree::Ident(word) => path.push(word.to_string()),
                TokenTree::Punct(punct) if punct.as_char() == '*' => bound = Some("*".into()),
                TokenTree::Group(group) => {
                    let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                    let is_comma = |token: &TokenTree| matches!(token, TokenTree::Punct(of) if of.as_char() == ',');
                    for one in inner.split(is_comma).filter(|one| !one.is_empty()) {
                        self.imports(one, module, path.clone(), is_public);
                    }
                    return;
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
        if path.last().is_some_and(|last| last == "self") && path.len() > 1 {
            path.pop();
        }
        let binds = bound.or_else(|| path.last().cloned());
        let (mut from, mut rest, mut is_bare) = (module.clone(), path.as_slice(), false);
        match path.first().map(String::as_str) {
            Some("crate") => (from, rest) = (vec![], &path[1..]),
            Some("self") => rest = &path[1..],
            Some("super") => {
                while rest.first().is_some_and(|first| first == "super") {
                    from.pop();
                    rest = &rest[1..];
                }
            }
            _ => is_bare = true,
        }
        let path = from.iter().chain(rest).cloned().collect();
        self.mentions.push(Mention { within: module.clone(), path, is_bare, binds, is_public });
    }
}

/// The files that an attribute names: `path = "..."`.
fn paths_of(attribute: TokenStream) -> Vec<String> {
    let tokens: Vec<TokenTree> = attribute.into_iter().collect();
    let mut found = vec![];
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) => found.extend(paths_of(group.stream())),
            TokenTree::Ident(word) if word == "path" && is(&tokens, at + 1, "=") => {
                found.extend(
                    tokens.get(at + 2).map(|of| of.to_string().trim_matches('"').to_owned()),
                );
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_files_import_each_other_in_a_circle() {
        for root in ROOTS {
            assert_eq!(circles_of(root).unwrap(), Vec::<String>::new(), "{root}");
        }
    }

    /// The circles of a crate with a root of this text, and these modules.
    fn circles(root: &str, modules: &[(&str, &str)]) -> Vec<String> {
        let mut tree = Tree::default();
        tree.add(Path::new("lib.rs"), &vec![], root).unwrap();
        for (name, text) in modules {
            let module: Names = name.split('/').map(str::to_owned).collect();
            tree.add(Path::new(&format!("{name}.rs")), &module, text).unwrap();
        }
        tree.circles(Path::new(""))
    }

    #[test]
    fn what_leads_to_and_fro_is_a_circle() {
        let root = "mod a; mod b; mod c; pub use a::A; pub use c::*;";
        let b = ("b", "pub struct B(crate::A);");
        for a in [
            "use crate::b::B; pub struct A(B);",
            "pub struct A; fn f() { let _: super::b::B; }",
            "use crate::{b::{self, B as _}}; pub struct A;",
            "pub struct A; mod inner { use super::super::b::B; }",
        ] {
            let found = circles(root, &[("a", a), b]);
            assert_eq!(found.len(), 1, "{a}");
            assert!(found[0].starts_with("2 files") && found[0].contains("a.rs -> b.rs: b::B"));
        }
        let through =
            [("a", "use crate::b::B; pub struct A;"), ("b", "use crate::C; pub struct B;")];
        let found = circles(root, &[&through[..], &[("c", "pub struct C(crate::a::A);")]].concat());
        assert!(found[0].starts_with("3 files"), "{found:?}");
    }

    #[test]
    fn re_exports_tests_and_a_module_s_own_files_make_none() {
        let root = "mod a; mod b; pub use a::A; pub use b::B;";
        let b = ("b", "pub struct B(crate::A);");
        for a in [
            "pub struct A;",
            "pub struct A; #[cfg(test)] mod tests { use crate::b::B; }",
            "pub struct A; use std::b::B;",
            "pub struct A; /// As [`crate::b::B`].\nfn f() { let b = \"crate::b::B\"; }",
        ] {
            assert_eq!(circles(root, &[("a", a), b]), Vec::<String>::new(), "{a}");
        }
        let folder =
            [("a", "mod one; pub struct A(one::One);"), ("a/one", "use super::A; pub struct One;")];
        assert_eq!(circles("mod a;", &folder), Vec::<String>::new());
        let beside = [
            ("a", "mod one; mod two;"),
            ("a/one", "use super::two::Two; pub struct One;"),
            ("a/two", "use super::one::One; pub struct Two;"),
        ];
        assert_eq!(circles("mod a;", &beside).len(), 1);
    }
}
