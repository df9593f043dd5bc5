//! A command line that can be started, and shown so that a person can repeat it.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

/// A program and its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLine {
    program: PathBuf,
    arguments: Vec<String>,
}

impl CommandLine {
    /// A program without arguments.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into(), arguments: vec![] }
    }

    /// Adds arguments as they are: no shell ever reads them.
    pub fn arguments<S: Into<String>>(mut self, more: impl IntoIterator<Item = S>) -> Self {
        self.arguments.extend(more.into_iter().map(Into::into));
        self
    }

    /// Adds `name value` if there is a value.
    pub fn option(self, name: &str, value: Option<impl fmt::Display>) -> Self {
        match value {
            Some(value) => self.arguments([name.to_owned(), value.to_string()]),
            None => self,
        }
    }

    /// The program's path.
    pub fn program(&self) -> &std::path::Path {
        &self.program
    }

    /// What the standard library starts.
    pub(super) fn to_process(&self) -> std::process::Command {
        let mut command = std::process::Command::new(&self.program);
        command.args(self.arguments.iter().map(OsString::from));
        command
    }
}

/// As a shell would read it.
impl fmt::Display for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&quoted(&self.program.to_string_lossy()))?;
        for argument in &self.arguments {
            write!(f, " {}", quoted(argument))?;
        }
        Ok(())
    }
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,%+@".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.into()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_shown_as_a_shell_reads_it() {
        let line = CommandLine::new("/usr/bin/weir")
            .arguments(["serve", "udp", "--design", "rio-hybrid --threads 1"])
            .option("--pps", Some(50_000))
            .option("--work", None::<u32>)
            .arguments(["", "it's"]);
        assert_eq!(
            line.to_string(),
            r"/usr/bin/weir serve udp --design 'rio-hybrid --threads 1' --pps 50000 '' 'it'\''s'"
        );
    }
}
