//! The check of what `weir.exe` imports: only functions that the oldest supported Windows has. A program that imports
//! one that its system lacks does not start there, and says nothing that helps; younger functions are asked for by
//! GetProcAddress.

use std::{collections::BTreeMap, fs, path::PathBuf, process::ExitCode};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use object::{LittleEndian, pe::ImageNtHeaders64, read::pe::PeFile64};

/// The oldest Windows that weir is made for: 10, version 1809, and Windows Server 2019.
const OLDEST: Version = Version([10, 0, 17763]);

/// Functions, with the first Windows that has them.
const KNOWN: &str = include_str!("../windows-imports.txt");

/// Check that programs for Windows import only what the oldest supported Windows has.
#[derive(Args)]
pub struct Imports {
    /// The programs.
    #[arg(required = true)]
    programs: Vec<PathBuf>,
}

/// Major, minor, build.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Version([u32; 3]);

impl Imports {
    /// Prints what is wrong with the imports, and says failure if anything is.
    ///
    /// # Errors
    /// If a program cannot be read or is none for Windows.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let known = known(KNOWN)?;
        let mut count = 0;
        for path in &self.programs {
            let program = path.display();
            let data = fs::read(path).with_context(|| format!("reading {program}"))?;
            let imported =
                imported(&data).with_context(|| format!("reading the imports of {program}"))?;
            ensure!(!imported.is_empty(), "{program} imports nothing");
            let problems = problems(&imported, &known);
            problems.iter().for_each(|problem| eprintln!("{program}: {problem}"));
            count += problems.len();
        }
        if count > 0 {
            eprintln!("imports: {count} problems; see xtask/windows-imports.txt");
            return Ok(ExitCode::FAILURE);
        }
        let programs = self.programs.len();
        println!("imports: Windows 10.0.17763 has all functions of {programs} programs");
        Ok(ExitCode::SUCCESS)
    }
}

/// A function by its library, in lower case, and its name.
type Function = (String, String);

/// What a program imports.
fn imported(data: &[u8]) -> anyhow::Result<Vec<Function>> {
    let program = PeFile64::parse(data)?;
    let Some(table) = program.import_table()? else { return Ok(Vec::new()) };
    let mut functions = Vec::new();
    let mut libraries = table.descriptors()?;
    while let Some(library) = libraries.next()? {
        let name =
            String::from_utf8_lossy(table.name(library.name.get(LittleEndian))?).to_lowercase();
        // Names stay in the first table when the system has put addresses into the other.
        let mut thunks = table.thunks(library.original_first_thunk.get(LittleEndian))?;
        while let Some(thunk) = thunks.next::<ImageNtHeaders64>()? {
            use object::read::pe::ImageThunkData as _;
            ensure!(
                !thunk.is_ordinal(),
                "{name}: function number {}, which has no name",
                thunk.ordinal()
            );
            let (_, function) = table.hint_name(thunk.address())?;
            functions.push((name.clone(), String::from_utf8_lossy(function).into_owned()));
        }
    }
    functions.sort();
    Ok(functions)
}

/// The list: lines of a library, a function and a version, `#` before what is for readers.
fn known(list: &str) -> anyhow::Result<BTreeMap<Function, Version>> {
    let mut known = BTreeMap::new();
    let lines =
        list.lines().zip(1..).filter(|(line, _)| !line.starts_with('#') && !line.is_empty());
    for (line, number) in lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [library, function, since] = words[..] else {
            bail!("windows-imports.txt:{number}: not a library, a function and a version");
        };
        let parts: Result<Vec<u32>, _> = since.split('.').map(str::parse).collect();
        let parts = parts.with_context(|| format!("windows-imports.txt:{number}: {since}"))?;
        let version = match parts[..] {
            [major, minor] => Version([major, minor, 0]),
            [major, minor, build] => Version([major, minor, build]),
            _ => bail!("windows-imports.txt:{number}: {since} is no version"),
        };
        let twice = known.insert((library.to_lowercase(), function.to_owned()), version);
        ensure!(twice.is_none(), "windows-imports.txt:{number}: {function} is there twice");
    }
    Ok(known)
}

fn problems(imported: &[Function], known: &BTreeMap<Function, Version>) -> Vec<String> {
    let problem = |function: &Function| {
        let (library, name) = function;
        match known.get(function) {
            None => Some(format!(
                "{library}: {name} is not in the list: look up since when Windows has it, and add it there"
            )),
            Some(since) if *since > OLDEST => {
                let Version([major, minor, build]) = since;
                Some(format!(
                    "{library}: {name} is there since {major}.{minor}.{build}: ask for it by GetProcAddress"
                ))
            }
            Some(_) => None,
        }
    };
    imported.iter().filter_map(problem).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "# a comment\n\nKERNEL32.dll ReadFile 5.1\nws2_32.dll Young 10.0.20348\n";

    fn function(library: &str, name: &str) -> Function {
        (library.to_owned(), name.to_owned())
    }

    #[test]
    fn what_is_unknown_or_too_young_is_told() {
        let known = known(LIST).unwrap();
        let asked = [
            function("kernel32.dll", "ReadFile"),
            function("ws2_32.dll", "Young"),
            function("ws2_32.dll", "ReadFile"),
        ];
        let problems = problems(&asked, &known);
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems[0].contains("since 10.0.20348"), "{problems:?}");
        assert!(problems[1].contains("not in the list"), "{problems:?}");
    }

    #[test]
    fn a_list_that_says_nothing_is_refused() {
        for wrong in ["a.dll b", "a.dll b 10", "a.dll b ten.0", "a.dll b 1.0\nA.DLL b 1.0"] {
            assert!(known(wrong).is_err(), "{wrong}");
        }
        assert!(!known(KNOWN).unwrap().is_empty());
    }

    #[test]
    fn what_is_no_program_for_windows_is_refused() {
        assert!(imported(b"\x7fELF, and so on").is_err());
    }
}
