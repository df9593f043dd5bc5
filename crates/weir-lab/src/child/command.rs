//! A command line that can be started, and shown so that a person can repeat it.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use weir_load::control::KEY_VARIABLE;

/// A program and its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLine {
    program: PathBuf,
    arguments: Vec<String>,
    /// The key of the control channel, which is not shown.
    key: Option<String>,
}

impl CommandLine {
    /// A program without arguments.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into(), arguments: vec![], key: None }
    }

    /// Gives it a key for the control channel ([`weir_load::control::KEY_VARIABLE`]). It is in its environment, where
    /// only its user can read it, and not in what is shown.
    pub fn with_key(self, key: Option<&str>) -> Self {
        Self { key: key.map(String::from), ..self }
    }

    /// Its arguments, as they are.
    pub fn words(&self) -> &[String] {
        &self.arguments
    }

    /// Binds it to these cores, if there are any, as each command of ours spells it.
    pub fn on_cores(self, cores: &[usize]) -> Self {
        let cores: Vec<String> = cores.iter().map(usize::to_string).collect();
        self.option("--cpu", (!cores.is_empty()).then(|| cores.join(",")))
    }

    /// Reads a command as a shell would: words between spaces, quotes around what has spaces, a
    /// backslash before a single character. Nothing else of a shell is understood.
    ///
    /// # Errors
    /// If it has no word, or a quote has no end.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = |problem: &str| format!("cannot read the command {text:?}: {problem}");
        let (mut words, mut word) = (vec![], None::<String>);
        let mut characters = text.chars();
        while let Some(character) = characters.next() {
            match character {
                quote @ ('\'' | '"') => {
                    let word = word.get_or_insert_default();
                    loop {
                        match characters.next() {
                            Some(end) if end == quote => break,
                            Some('\\') if quote == '"' => word.extend(characters.next()),
                            Some(inside) => word.push(inside),
                            None => return Err(wrong("a quote has no end")),
                        }
                    }
                }
                '\\' => match characters.next() {
                    Some(literal) => word.get_or_insert_default().push(literal),
                    None => return Err(wrong("nothing follows the last backslash")),
                },
                space if space.is_whitespace() => words.extend(word.take()),
                other => word.get_or_insert_default().push(other),
            }
        }
        words.extend(word);
        let mut words = words.into_iter();
        let program = words.next().filter(|program| !program.is_empty());
        let program = program.ok_or_else(|| wrong("it names no program"))?;
        Ok(Self::new(program).arguments(words))
    }

    /// The same with `place` replaced by `value` in every argument.
    pub fn with(mut self, place: &str, value: impl fmt::Display) -> Self {
        let value = value.to_string();
        let replaced = self.arguments.iter().map(|argument| argument.replace(place, &value));
        self.arguments = replaced.collect();
        self
    }

    /// Whether any argument has this in it.
    pub fn mentions(&self, place: &str) -> bool {
        self.arguments.iter().any(|argument| argument.contains(place))
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
    pub(crate) fn to_process(&self) -> std::process::Command {
        let mut command = std::process::Command::new(&self.program);
        command.args(self.arguments.iter().map(OsString::from));
        command.envs(self.key.as_ref().map(|key| (KEY_VARIABLE, key)));
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

    #[test]
    fn is_read_as_a_shell_reads_it() {
        let read = |text: &str| CommandLine::parse(text).unwrap();
        let line = read(r#" python3  -c 'print("a b")' "it's \"so\"" a\ b '' "#);
        assert_eq!(line.program(), "python3");
        assert_eq!(line.arguments, ["-c", r#"print("a b")"#, r#"it's "so""#, "a b", ""]);
        let line = read("sockperf server -i {ip} -p {port}");
        assert!(line.mentions("{port}") && !line.mentions("{address}"));
        let line = line.with("{ip}", "127.0.0.1").with("{port}", 9);
        assert_eq!(line.to_string(), "sockperf server -i 127.0.0.1 -p 9");
        for (text, said) in [("", "names no program"), ("  ", "names no"), ("'' a", "names no")] {
            assert!(CommandLine::parse(text).unwrap_err().contains(said), "{text:?}");
        }
        assert!(CommandLine::parse("a 'b").unwrap_err().contains("no end"));
        assert!(CommandLine::parse("a \\").unwrap_err().contains("backslash"));
    }

    proptest::proptest! {
        #[test]
        fn what_is_shown_is_read_as_the_same(words in proptest::collection::vec(".{0,8}", 0..5)) {
            let line = CommandLine::new("program").arguments(words);
            proptest::prop_assert_eq!(CommandLine::parse(&line.to_string()), Ok(line));
        }
    }
}
