//! Plans: the options of a comparison in a TOML file, to be kept, edited and run again.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, CommandFactory as _, Parser as _};
use toml::{Table, Value};

use super::{CompareArgs, output};
use crate::Cli;
use crate::exit::Failure;

/// The heading of these options in the help.
const HEADING: &str = "Plan";
/// The key that says what is compared.
const KIND: &str = "kind";
/// What a comparison without a word compares.
const ALL: &str = "all";
/// What a plan may compare.
const KINDS: [&str; 4] = [ALL, "udp", "tcp", "iops"];
/// A plan is at most so long.
const MOST_BYTES: u64 = 1 << 20;

/// Where options come from, and where they go.
#[derive(Debug, Clone, Default, PartialEq, Args)]
#[command(next_help_heading = HEADING)]
pub struct PlanArgs {
    /// Take options from this file, written by --save-plan or by hand; options on the command line override those in
    /// the file. A plan may name programs to run (peer): read a stranger's plan before you use it.
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,

    /// Write the options of this comparison to a new file; with --dry-run nothing else is done.
    #[arg(long, value_name = "FILE")]
    pub save_plan: Option<PathBuf>,
}

/// The words of a command whose options stand in a plan, with the plan's own options in them.
pub fn expanded(path: &Path, words: &[OsString]) -> Result<(CompareArgs, Vec<OsString>), Failure> {
    let refused = |why: String| Failure::usage(format!("plan {}: {why}", path.display()));
    let (kind, options) = read(path)?;
    let all = Cli::command();
    let matches =
        all.clone().try_get_matches_from(words).map_err(|error| refused(error.to_string()))?;
    let (asked, given) = of_compare(&matches);
    if asked.is_some_and(|asked| asked != kind) {
        let asked = asked.unwrap_or_default();
        return Err(refused(format!("it compares {kind}, and `weir compare {asked}` does not")));
    }
    let command = command_of(&all, &kind);
    let mut expanded: Vec<OsString> = words.iter().take(1).cloned().collect();
    expanded.push("compare".into());
    expanded.extend((kind != ALL).then(|| OsString::from(&kind)));
    for (name, value) in &options {
        let arg = command.get_arguments().find(|arg| is_called(arg, name));
        let allowed = arg.filter(|arg| is_of_plan(arg));
        let Some(arg) = allowed else {
            let why = match arg {
                Some(_) => "says where results go, which a plan may not",
                None => "is not an option",
            };
            let names = command.get_arguments().filter(|arg| is_of_plan(arg));
            let names: Vec<&str> = names.filter_map(Arg::get_long).collect();
            return Err(refused(format!("{name} {why}; options: {}", names.join(", "))));
        };
        if !is_given(given, arg) {
            expanded.extend(words_of(name, value).map_err(refused)?.into_iter().map(Into::into));
        }
    }
    expanded.extend(own_words(words, asked));
    match Cli::try_parse_from(&expanded) {
        Ok(Cli { command: crate::Command::Compare(args) }) => Ok((*args, expanded)),
        Ok(_) => unreachable!("these words begin with compare"),
        Err(error) => Err(refused(crate::reason(&error))),
    }
}

/// What a plan compares, and its options.
fn read(path: &Path) -> Result<(String, Table), Failure> {
    let cannot = |error: std::io::Error| {
        Failure::usage(format!(
            "cannot read the plan {}: {error}; name a file that --save-plan wrote",
            path.display()
        ))
    };
    let refused = |why: String| Failure::usage(format!("plan {}: {why}", path.display()));
    // What is no plain file does not say how long it is.
    let file = std::fs::File::open(path).map_err(cannot)?;
    let mut text = String::new();
    file.take(MOST_BYTES + 1).read_to_string(&mut text).map_err(cannot)?;
    if text.len() as u64 > MOST_BYTES {
        return Err(refused(format!("it has more than {MOST_BYTES} bytes")));
    }
    let mut options: Table = text.parse().map_err(|error| refused(format!("{error}")))?;
    let kinds = KINDS.join(", ");
    match options.remove(KIND) {
        Some(Value::String(kind)) if KINDS.contains(&kind.as_str()) => Ok((kind, options)),
        Some(other) => Err(refused(format!("{KIND} = {other}; allowed: {kinds}"))),
        None => {
            Err(refused(format!("it has no {KIND}, the line that says what to compare: {kinds}")))
        }
    }
}

/// An option of a plan as words of a command.
fn words_of(name: &str, value: &Value) -> Result<Vec<String>, String> {
    let one = |value: &Value| match value {
        Value::String(text) => Ok(format!("--{name}={text}")),
        Value::Integer(_) | Value::Float(_) => Ok(format!("--{name}={value}")),
        _ => Err(format!(
            "{name} = {value}: allowed are a string, a number, true, false, or a list of these"
        )),
    };
    match value {
        Value::Boolean(true) => Ok(vec![format!("--{name}")]),
        Value::Boolean(false) => Ok(vec![]),
        Value::Array(values) => values.iter().map(one).collect(),
        value => Ok(vec![one(value)?]),
    }
}

/// The words besides `weir`, `compare`, what is compared and the name of the plan.
fn own_words(words: &[OsString], kind: Option<&str>) -> Vec<OsString> {
    let mut kept = vec![];
    let mut rest = words.iter().skip(2);
    while let Some(word) = rest.next() {
        let text = word.to_string_lossy();
        let says_kind = kept.is_empty() && Some(&*text) == kind;
        if text == "--plan" {
            rest.next();
        } else if !says_kind && !text.starts_with("--plan=") {
            kept.push(word.clone());
        }
    }
    kept
}

/// Writes the plan of a command into a file that is not there yet: one that was edited is not lost.
pub fn save(path: &Path, words: &[OsString]) -> Result<(), Failure> {
    let text = text(words)?;
    let written = File::create_new(path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Failure::usage(format!(
            "--save-plan {}: the file exists; name another, or remove it",
            path.display()
        )),
        _ => Failure::failed(format!("cannot write the plan {}: {error}", path.display())),
    })
}

/// The plan of a command, as TOML: what was given, then what else there is.
fn text(words: &[OsString]) -> Result<String, Failure> {
    let all = Cli::command();
    let matches = all.clone().try_get_matches_from(words).map_err(Failure::usage)?;
    let (asked, given) = of_compare(&matches);
    let of_all = asked.is_none() && matches_all(words);
    let kind = if of_all { ALL } else { asked.unwrap_or("udp") };
    let command = command_of(&all, kind);
    let mut text = String::from(
        "# A plan of weir. Run it with: weir compare --plan FILE\n\
         # Options are those of the command line without their dashes.\n\n",
    );
    let _ = writeln!(text, "{KIND} = {}", Value::from(kind));
    let mut others = String::new();
    for arg in command.get_arguments().filter(|arg| is_of_plan(arg)) {
        let Some(name) = arg.get_long() else { continue };
        if is_given(given, arg) {
            let _ = writeln!(text, "{name} = {}", value_of(arg, given)?);
        } else {
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            let first = help.split(". ").next().unwrap_or_default().trim_end_matches('.');
            let _ = writeln!(others, "# {name}: {first}");
        }
    }
    let _ = write!(text, "\n# Other options that may be set here:\n{others}");
    Ok(text)
}

/// An option that was given, and which kinds of comparisons have it.
pub struct Given {
    /// As it is written.
    pub name: String,
    pub kinds: Vec<&'static str>,
}

/// What was given without a word for what is compared, besides what comparisons of all kinds have (the options of `for_all`).
pub fn not_of_all(words: &[OsString], for_all: &Command) -> Result<Vec<Given>, Failure> {
    let all = Cli::command();
    let matches = all.clone().try_get_matches_from(words).map_err(Failure::usage)?;
    let (_, given) = of_compare(&matches);
    let is_for_all = |arg: &Arg| {
        ["quick", "time", "server_cpu", "generator_cpu"].contains(&arg.get_id().as_str())
            || for_all.get_arguments().any(|of_all| of_all.get_id() == arg.get_id())
    };
    let of_udp = command_of(&all, "udp");
    let meant = of_udp.get_arguments().filter(|arg| is_given(given, arg) && !is_for_all(arg));
    Ok(meant
        .map(|arg| {
            let has = |kind: &&'static str| {
                let takes_values = arg.get_action().takes_values();
                let is_it = |other: &Arg| {
                    other.get_id() == arg.get_id()
                        && other.get_action().takes_values() == takes_values
                };
                command_of(&all, kind).get_arguments().any(is_it)
            };
            Given {
                name: format!("--{}", arg.get_long().unwrap_or_default()),
                kinds: super::KINDS.into_iter().filter(has).collect(),
            }
        })
        .collect())
}

/// The value of an option that was given.
fn value_of(arg: &Arg, given: &ArgMatches) -> Result<Value, Failure> {
    if !arg.get_action().takes_values() {
        return Ok(Value::Boolean(true));
    }
    let values = given.get_raw(arg.get_id().as_str()).into_iter().flatten();
    let values = values.map(|value| match value.to_str() {
        Some(text) => Ok(text.parse().map_or_else(|_| Value::from(text), Value::Integer)),
        None => Err(Failure::usage(format!(
            "{} is not UTF-8, so it cannot be written into a plan",
            value.display()
        ))),
    });
    let mut values: Vec<Value> = values.collect::<Result<_, _>>()?;
    Ok(match values.len() {
        0 => Value::Boolean(true),
        1 => values.remove(0),
        _ => Value::Array(values),
    })
}

/// What is compared, if a word says it, and the options.
fn of_compare(matches: &ArgMatches) -> (Option<&str>, &ArgMatches) {
    let compare = matches.subcommand_matches("compare").unwrap_or(matches);
    match compare.subcommand() {
        Some((kind, matches)) => (Some(kind), matches),
        None => (None, compare),
    }
}

/// Whether a command without a word compares all kinds.
fn matches_all(words: &[OsString]) -> bool {
    let parsed = Cli::try_parse_from(words);
    matches!(parsed, Ok(Cli { command: crate::Command::Compare(args) }) if args.asked().kind == ALL)
}

/// The command whose options a plan of this kind has.
fn command_of(all: &Command, kind: &str) -> Command {
    let compare = all.find_subcommand("compare").unwrap_or(all);
    compare.find_subcommand(kind).unwrap_or(compare).clone()
}

/// Whether an option stands among the words; what is asked may be of another kind, which does not know it.
fn is_given(matches: &ArgMatches, arg: &Arg) -> bool {
    matches.ids().any(|id| id == arg.get_id())
        && matches.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine)
}

fn is_called(arg: &Arg, name: &str) -> bool {
    arg.get_long() == Some(name)
        || arg.get_all_aliases().is_some_and(|aliases| aliases.contains(&name))
}

/// Whether a plan may have this option: not what says where plans and results go.
fn is_of_plan(arg: &Arg) -> bool {
    let about_itself = ["help", "dry-run", "verbose"];
    arg.get_long().is_some_and(|name| !about_itself.contains(&name))
        && ![Some(HEADING), Some(output::HEADING)].contains(&arg.get_help_heading())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(Into::into).collect()
    }

    fn plan_of(line: &str) -> String {
        text(&words(line)).unwrap_or_else(|failed| panic!("{line}: {}", failed.message))
    }

    fn with_plan(plan: &str, line: &str) -> Result<String, String> {
        let name = format!("weir-plan-{}-{:x}", std::process::id(), plan.len() * 131 + line.len());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, plan).unwrap();
        let expanded = expanded(&path, &words(&format!("{line} --plan {}", path.display())));
        std::fs::remove_file(&path).unwrap();
        expanded
            .map(|(_, words)| {
                words.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
            })
            .map_err(|failed| failed.message)
    }

    #[test]
    fn a_saved_plan_gives_the_same_options_again() {
        for line in [
            "weir compare",
            "weir compare --quick --seed=7",
            "weir compare udp --load=saturation --load=50k --receive-offload=paired --rcvbuf=1m",
            "weir compare tcp --connections=5 --connections=7 --pattern=streaming",
            "weir compare iops --design=sync --delay=10us",
        ] {
            let again = with_plan(&plan_of(line), "weir compare").unwrap();
            let sorted = |line: &str| {
                let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
                words.sort();
                words
            };
            assert_eq!(sorted(&again), sorted(line));
        }
    }

    #[test]
    fn what_only_udp_has_makes_it_a_plan_of_udp() {
        assert!(plan_of("weir compare --work=100").contains("kind = \"udp\"\nwork = 100\n"));
        assert!(plan_of("weir compare --quick").contains("kind = \"all\"\nquick = true\n"));
    }

    #[cfg(unix)]
    #[test]
    fn a_plan_without_an_end_is_refused() {
        let failed = read(Path::new("/dev/zero")).expect_err("it is too long");
        assert!(failed.message.contains("more than"), "{}", failed.message);
    }

    #[test]
    fn options_besides_take_the_place_of_the_plan_s() {
        let plan = "kind = \"udp\"\nsize = [64, 128]\nrounds = 3\nfull = false";
        assert_eq!(
            with_plan(plan, "weir compare --size 9 --json").unwrap(),
            "weir compare udp --rounds=3 --size 9 --json"
        );
        assert_eq!(
            with_plan(plan, "weir compare udp").unwrap(),
            "weir compare udp --rounds=3 --size=64 --size=128"
        );
    }

    #[test]
    fn what_is_wrong_with_a_plan_is_said_with_its_name() {
        for (plan, line, said) in [
            ("rounds = 3", "weir compare", "no kind"),
            ("kind = \"sctp\"", "weir compare", "allowed: all, udp, tcp, iops"),
            ("kind = 3", "weir compare", "kind = 3"),
            (
                "kind = \"udp\"\nsiez = 3",
                "weir compare",
                "siez is not an option; options: design, ",
            ),
            ("kind = \"udp\"\nresults = \"/etc\"", "weir compare", "a plan may not"),
            ("kind = \"udp\"\nplan = \"x\"", "weir compare", "a plan may not"),
            ("kind = \"udp\"\nrounds = 99", "weir compare", "99"),
            ("kind = \"udp\"\nrounds = { a = 1 }", "weir compare", "rounds = { a = 1 }"),
            ("kind = \"udp\"", "weir compare tcp", "it compares udp"),
            ("kind = udp", "weir compare", "TOML"),
        ] {
            let error = with_plan(plan, line).unwrap_err();
            assert!(error.starts_with("plan ") && error.contains(said), "{plan}: {error}");
        }
    }
}
