//! The echo servers of a folder as rows: what `peers/build` puts there, beside the list that names them.

use std::env::consts::EXE_SUFFIX;
use std::fs;
use std::path::Path;

use super::rows;
use crate::child::CommandLine;
use crate::experiment::plan::Row;

/// Where `peers/build` puts them, from the top of the repository.
pub const FOLDER: &str = "peers/bin";

/// The list in such a folder: a row a line, `NAME PROGRAM FORM`; what follows a `#` is said to people.
pub const LIST: &str = "tcp-rows";

/// What is behind a program's name where `peers/build` says why it is not there.
const WHY_NOT: &str = ".why-not";

/// A row for each line of the folder's list; those whose program is not there say so. Where it `needs_one`, any must be.
///
/// # Errors
/// If the folder has no list, none of its programs is there that must be, or the list is wrong: with what to do.
pub fn of_folder(folder: &Path, taken: &[Row], needs_one: bool) -> Result<Vec<Row>, String> {
    let list = folder.join(LIST);
    let text = fs::read_to_string(&list).map_err(|error| {
        format!(
            "there are no peers in {}: cannot read {}: {error}; build them with peers/build, in weir's \
             repository, and name the folder where they are (--peers=FOLDER, without it {FOLDER})",
            folder.display(),
            list.display()
        )
    })?;
    let lines = named(&text).map_err(|problem| format!("{}: {problem}", list.display()))?;
    let texts: Vec<String> = lines
        .iter()
        .map(|[name, program, form]| {
            let command = CommandLine::new(folder.join(format!("{program}{EXE_SUFFIX}")));
            format!("{name}={}", command.arguments(["{ip}", "{port}", form, "{buffer}"]))
        })
        .collect();
    let mut rows = rows::of_peers(&texts, taken)?;
    for (row, [_, program, _]) in rows.iter_mut().zip(&lines) {
        row.unavailable = missing(folder, program);
    }
    match !needs_one || rows.iter().any(|row| row.unavailable.is_none()) {
        true => Ok(rows),
        false => Err(format!(
            "none of the peers that {} names is built: run peers/build, which says of each what it needs",
            list.display()
        )),
    }
}

/// Name, program and form of each line.
fn named(text: &str) -> Result<Vec<[&str; 3]>, String> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let words = lines.map(|line| line.split_whitespace().collect::<Vec<_>>());
    words
        .enumerate()
        .filter(|(_, words)| !words.is_empty())
        .map(|(number, words)| {
            <[&str; 3]>::try_from(words)
                .map_err(|_| format!("line {} is not NAME PROGRAM FORM", number + 1))
        })
        .collect()
}

/// Why a program is not there, if it is not.
fn missing(folder: &Path, program: &str) -> Option<String> {
    if folder.join(format!("{program}{EXE_SUFFIX}")).is_file() {
        return None;
    }
    Some(match fs::read_to_string(folder.join(format!("{program}{WHY_NOT}"))) {
        Ok(why) => format!("not built: {}", why.trim()),
        Err(_) => format!("not built: peers/build makes {program}, or says what it needs"),
    })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// A folder of a test's own with this list and these files, which goes with it.
    struct Folder(PathBuf);

    impl Folder {
        fn new(test: &str, files: &[(&str, &str)]) -> Self {
            let path = std::env::temp_dir().join(format!("weir-{test}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            for (name, text) in files {
                fs::write(path.join(name), text).unwrap();
            }
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn each_line_is_a_row_and_says_where_its_program_is_missing() {
        let list = "# those there are\none first a\n\ntwo  second b # the other\nthree third c\n";
        let program = format!("first{EXE_SUFFIX}");
        let why = ("second.why-not", "there is no go here\n");
        let folder = Folder::new("rows of peers", &[(LIST, list), (&program, ""), why]);
        let rows = of_folder(&folder.0, &[], true).unwrap();
        let titles: Vec<String> = rows.iter().map(rows::title).collect();
        assert_eq!(titles, ["one (peer)", "two (peer)", "three (peer)"]);
        let command = &rows[0].peer.as_ref().unwrap().command;
        // A space in the path is no end of it.
        assert_eq!(command.program(), folder.0.join(program));
        assert!(command.to_string().ends_with(" '{ip}' '{port}' a '{buffer}'"), "{command}");
        let missing: Vec<_> = rows.iter().map(|row| row.unavailable.as_deref()).collect();
        assert_eq!(missing[..2], [None, Some("not built: there is no go here")]);
        assert!(missing[2].is_some_and(|why| why.contains("makes third")), "{missing:?}");
        // As with those that are named one by one.
        let error = of_folder(&folder.0, &rows[..1], true).unwrap_err();
        assert!(error.contains("different names"), "{error}");
    }

    #[test]
    fn a_folder_without_peers_says_what_to_do() {
        for (test, files, said) in [
            ("no list", &[][..], "no peers in"),
            ("none built", &[(LIST, "one first a")], "is built: run peers/build"),
            ("wrong line", &[(LIST, "# what\none first")], "line 2 is not NAME PROGRAM FORM"),
        ] {
            let folder = Folder::new(test, files);
            let error = of_folder(&folder.0, &[], true).unwrap_err();
            assert!(error.contains(said) && error.contains(LIST), "{error}");
        }
        let error = of_folder(Path::new("/nowhere/at all"), &[], true).unwrap_err();
        assert!(error.contains("/nowhere/at all") && error.contains("peers/build"), "{error}");
    }

    /// The list of this repository.
    #[test]
    fn the_list_that_is_built_from_is_read() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../peers").join(LIST);
        let text = fs::read_to_string(path).unwrap();
        let names: Vec<&str> = named(&text).unwrap().into_iter().map(|[name, ..]| name).collect();
        assert!(
            ["tokio", "monoio", "compio", "libuv", "asio", "go-net"]
                .iter()
                .all(|peer| names.contains(peer)),
            "{names:?}"
        );
    }
}
