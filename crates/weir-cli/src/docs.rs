//! `weir completions`, `weir manual` and `weir schema`: what a shell, `man` and programs that read documents want to
//! know.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::compare::output::write_all;
use crate::exit::{self, Failure};

/// Print the completions for a shell.
///
/// For bash: weir completions bash > ~/.local/share/bash-completion/completions/weir
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell.
    shell: Shell,
}

/// Runs `weir completions`.
pub fn completions(args: &CompletionsArgs, mut command: Command) -> ExitCode {
    let mut text = vec![];
    let name = command.get_name().to_owned();
    clap_complete::generate(args.shell, &mut command, name, &mut text);
    ended("weir completions", crate::print_results(&String::from_utf8_lossy(&text)))
}

/// Print the JSON schema of the documents that `weir compare` writes.
#[derive(Debug, Args)]
pub struct SchemaArgs {}

/// Runs `weir schema`.
pub fn schema(_: &SchemaArgs) -> ExitCode {
    ended("weir schema", crate::print_results(weir_lab::report::schema::RESULT))
}

/// Print a manual page, or write all of them into a folder.
///
/// To read one: weir manual compare-udp | man -l -
#[derive(Debug, Args)]
pub struct ManualArgs {
    /// The command: compare, compare-tcp, doctor [default: weir itself].
    #[arg(conflicts_with = "folder")]
    command: Option<String>,
    /// Write the pages of all commands into this folder, such as ~/.local/share/man/man1.
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

/// Runs `weir manual`.
pub fn manual(args: &ManualArgs, mut command: Command) -> ExitCode {
    command.build();
    let mut pages = vec![];
    collect(&command, &mut pages);
    let given = match &args.folder {
        Some(folder) => {
            let pages = pages.into_iter().map(|(name, page)| (format!("{name}.1"), page));
            write_all(folder, &pages.collect::<Vec<_>>())
        }
        None => {
            let asked =
                args.command.as_deref().map(|name| name.strip_prefix("weir-").unwrap_or(name));
            let name = asked.map_or_else(|| "weir".into(), |name| format!("weir-{name}"));
            match pages.iter().find(|(of, _)| *of == name) {
                Some((_, page)) => crate::print_results(page),
                None => {
                    let names: Vec<&str> =
                        pages.iter().filter_map(|(name, _)| name.strip_prefix("weir-")).collect();
                    let all = names.join(", ");
                    Err(Failure::usage(format!("there is no command {name:?}; there are {all}")))
                }
            }
        }
    };
    ended("weir manual", given)
}

/// The pages of a command and of all below it that are shown in help, by their names.
fn collect(command: &Command, pages: &mut Vec<(String, String)>) {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    let mut text = vec![];
    // Fails only if it cannot be written, and memory can.
    let page = Man::new(command.clone()).title(name.to_uppercase());
    let page = page.source(concat!("weir ", env!("CARGO_PKG_VERSION"))).manual("weir");
    if page.render(&mut text).is_ok() {
        pages.push((name, String::from_utf8_lossy(&text).into_owned()));
    }
    let below = command.get_subcommands();
    below
        .filter(|of| !of.is_hide_set() && of.get_name() != "help")
        .for_each(|of| collect(of, pages));
}

fn ended(name: &str, given: Result<(), Failure>) -> ExitCode {
    match given {
        Ok(()) => ExitCode::from(exit::OK),
        Err(failed) => {
            say!("{name}: {}", failed.message);
            ExitCode::from(failed.code)
        }
    }
}
