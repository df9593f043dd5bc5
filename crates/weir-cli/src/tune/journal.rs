//! What was set, and what was there before: written down before anything is changed, so that it can be put back after
//! a crash.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use weir::machine::Setting;

use crate::exit::Failure;

/// The file, which is there as long as something is to be put back.
pub struct Journal(PathBuf);

#[derive(Serialize, Deserialize)]
struct Written {
    /// Who set it: a command that runs with settings puts back its own only.
    owner: String,
    entries: Vec<Entry>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Entry {
    path: String,
    before: String,
    after: String,
}

/// What became of a setting when it was to be put back.
#[derive(Debug)]
pub enum Outcome {
    /// It has this value again.
    Back(String),
    /// Somebody else has set it meanwhile.
    Foreign,
    /// The system has it no more.
    Gone,
    /// It could not be put back.
    Failed(io::Error),
}

impl Journal {
    pub fn at(path: &Path) -> Self {
        Self(path.into())
    }

    /// Refuses where something is to be put back first.
    pub fn check(&self) -> Result<(), Failure> {
        if self.0.exists() { Err(self.in_use()) } else { Ok(()) }
    }

    /// Writes down what is there, and sets it for this owner. Where one cannot be set, those before it are put back.
    pub fn apply(&self, settings: &[Setting], owner: &str) -> Result<(), Failure> {
        let entry = |setting: &Setting| Entry {
            path: setting.path.clone(),
            before: setting.before.clone(),
            after: setting.after.clone(),
        };
        let entries: Vec<_> = settings.iter().map(entry).collect();
        // A link fails where there is one already.
        let written = Written { owner: owner.into(), entries };
        self.write(&written, |from, to| fs::hard_link(from, to))?;
        for entry in &written.entries {
            if let Err(error) = fs::write(&entry.path, &entry.after) {
                let undone = self.undo(Some(owner));
                let hint = match error.kind() {
                    io::ErrorKind::PermissionDenied => "; it takes root",
                    _ => "",
                };
                let failed =
                    |(_, outcome): &(String, Outcome)| matches!(outcome, Outcome::Failed(_));
                let left = match undone?.is_some_and(|all| all.iter().any(failed)) {
                    true => "not every setting could be put back: run weir tune --undo",
                    false => "what was set before was put back",
                };
                let problem = format!(
                    "cannot write {} to {}: {error}{hint}; {left}",
                    entry.after, entry.path
                );
                return Err(Failure::failed(problem));
            }
        }
        Ok(())
    }

    /// Puts back what the journal says, the last first, and ends it; `None` where there is none, or it is another
    /// owner's. What could not be put back stays in it.
    pub fn undo(&self, owner: Option<&str>) -> Result<Option<Vec<(String, Outcome)>>, Failure> {
        let text = match fs::read_to_string(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text.map_err(|error| self.failure("read", &error))?,
        };
        let written: Written =
            serde_json::from_str(&text).map_err(|error| self.failure("understand", &error))?;
        if owner.is_some_and(|owner| owner != written.owner) {
            return Ok(None);
        }
        let Written { owner, mut entries } = written;
        let restored: Vec<_> =
            entries.iter().rev().map(|entry| (entry.path.clone(), put_back(entry))).collect();
        let failed = |path: &str| {
            restored
                .iter()
                .any(|(its, outcome)| its == path && matches!(outcome, Outcome::Failed(_)))
        };
        entries.retain(|entry| failed(&entry.path));
        if entries.is_empty() {
            fs::remove_file(&self.0).map_err(|error| self.failure("remove", &error))?;
        } else {
            self.write(&Written { owner, entries }, |from, to| fs::rename(from, to))?;
        }
        Ok(Some(restored))
    }

    /// In full and for good before anything else is done; then `put` gives it its name.
    fn write(
        &self,
        written: &Written,
        put: impl FnOnce(&Path, &Path) -> io::Result<()>,
    ) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(written).map_err(Failure::failed)?;
        // Nobody else's: a name that two processes share could be cut short behind a link to it.
        let partial = self.0.with_extension(format!("{}.new", std::process::id()));
        let _ = fs::remove_file(&partial);
        let written = File::create_new(&partial).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            put(&partial, &self.0)
        });
        let _ = fs::remove_file(&partial);
        written.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => self.in_use(),
            io::ErrorKind::PermissionDenied => Failure::failed(format!(
                "cannot write down what is set now in {}: {error}; it takes root",
                self.0.display()
            )),
            _ => self.failure("write", &error),
        })
    }

    fn in_use(&self) -> Failure {
        Failure::failed(format!(
            "{} lists settings that must be put back first: end the other weir tune, or run weir tune --undo",
            self.0.display()
        ))
    }

    fn failure(&self, what: &str, error: &dyn std::fmt::Display) -> Failure {
        Failure::failed(format!("cannot {what} {}: {error}", self.0.display()))
    }
}

fn put_back(entry: &Entry) -> Outcome {
    match fs::read_to_string(&entry.path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Outcome::Gone,
        Err(error) => Outcome::Failed(error),
        // It was written down, and not set.
        Ok(now) if now.trim() == entry.before => Outcome::Back(entry.before.clone()),
        Ok(now) if now.trim() != entry.after => Outcome::Foreign,
        Ok(_) => match fs::write(&entry.path, &entry.before) {
            Ok(()) => Outcome::Back(entry.before.clone()),
            Err(error) => Outcome::Failed(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process;

    /// A folder with files that stand for the kernel's, gone afterwards.
    struct Machine(PathBuf);

    impl Machine {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("weir-tune-{name}-{}", process::id()));
            fs::create_dir_all(&folder).expect("a folder");
            Self(folder)
        }

        fn path(&self, name: &str) -> String {
            self.0.join(name).to_str().expect("text").to_owned()
        }

        fn setting(&self, name: &str, before: &str, after: &str) -> Setting {
            fs::write(self.path(name), format!("{before}\n")).expect("a file");
            let why = "a test";
            Setting { path: self.path(name), before: before.into(), after: after.into(), why }
        }

        fn value(&self, name: &str) -> String {
            fs::read_to_string(self.path(name)).expect("a file").trim().to_owned()
        }

        fn journal(&self) -> Journal {
            Journal::at(&self.0.join("journal"))
        }
    }

    impl Drop for Machine {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn what_was_set_is_put_back_once() {
        let machine = Machine::new("back");
        let settings = [
            machine.setting("governor", "powersave", "performance"),
            machine.setting("boost", "1", "0"),
        ];
        let journal = machine.journal();
        journal.apply(&settings, "a test").unwrap();
        assert_eq!(
            (machine.value("governor"), machine.value("boost")),
            ("performance".into(), "0".into())
        );
        let again = journal.apply(&settings, "a test").unwrap_err();
        assert!(again.message.contains("weir tune --undo"), "{}", again.message);
        let restored = journal.undo(None).unwrap().expect("something was set");
        assert!(restored.iter().all(|(_, one)| matches!(one, Outcome::Back(_))), "{restored:?}");
        assert_eq!(
            (machine.value("governor"), machine.value("boost")),
            ("powersave".into(), "1".into())
        );
        assert!(journal.undo(None).unwrap().is_none());
    }

    #[test]
    fn a_command_that_ends_leaves_what_another_has_set() {
        let machine = Machine::new("owners");
        let journal = machine.journal();
        journal.apply(&[machine.setting("one", "1", "2")], "the other").unwrap();
        assert!(journal.check().is_err());
        assert!(journal.undo(Some("the one")).unwrap().is_none());
        assert_eq!(machine.value("one"), "2");
        journal.undo(Some("the other")).unwrap().expect("its own");
        assert_eq!(machine.value("one"), "1");
        journal.check().unwrap();
    }

    #[test]
    fn a_crash_after_any_step_loses_nothing() {
        for set in 0..=2 {
            let machine = Machine::new(&format!("crash-{set}"));
            let settings = [machine.setting("one", "1", "2"), machine.setting("other", "3", "4")];
            let entries: Vec<_> = settings
                .iter()
                .map(|s| Entry {
                    path: s.path.clone(),
                    before: s.before.clone(),
                    after: s.after.clone(),
                })
                .collect();
            machine
                .journal()
                .write(&Written { owner: "a test".into(), entries }, |from, to| {
                    fs::hard_link(from, to)
                })
                .unwrap();
            settings[..set].iter().for_each(|s| fs::write(&s.path, &s.after).unwrap());
            machine.journal().undo(None).unwrap().expect("it was written down first");
            assert_eq!((machine.value("one"), machine.value("other")), ("1".into(), "3".into()));
        }
    }

    #[test]
    fn what_somebody_else_has_set_meanwhile_stays() {
        let machine = Machine::new("else");
        let journal = machine.journal();
        journal.apply(&[machine.setting("buffer", "200", "400")], "a test").unwrap();
        fs::write(machine.path("buffer"), "800\n").unwrap();
        let restored = journal.undo(None).unwrap().expect("something was set");
        assert!(matches!(restored[0].1, Outcome::Foreign), "{restored:?}");
        assert_eq!(machine.value("buffer"), "800");
        assert!(journal.undo(None).unwrap().is_none());
    }

    #[test]
    fn where_one_cannot_be_set_those_before_it_are_put_back() {
        let machine = Machine::new("fails");
        let good = machine.setting("good", "1", "2");
        let bad = Setting {
            path: machine.path("no/such"),
            before: "1".into(),
            after: "2".into(),
            why: "a test",
        };
        let error = machine.journal().apply(&[good, bad], "a test").unwrap_err();
        assert!(error.message.contains("no/such"), "{}", error.message);
        assert_eq!(machine.value("good"), "1");
        assert!(machine.journal().undo(None).unwrap().is_none(), "nothing is left to be put back");
    }

    #[test]
    fn what_could_not_be_put_back_is_tried_again() {
        let machine = Machine::new("again");
        machine
            .journal()
            .apply(
                &[machine.setting("one", "1", "2"), machine.setting("other", "3", "4")],
                "a test",
            )
            .unwrap();
        // A folder in its place can neither be read nor written.
        fs::remove_file(machine.path("one")).unwrap();
        fs::create_dir(machine.path("one")).unwrap();
        let restored = machine.journal().undo(None).unwrap().expect("something was set");
        assert!(
            matches!(&restored[..], [(_, Outcome::Back(_)), (_, Outcome::Failed(_))]),
            "{restored:?}"
        );
        fs::remove_dir(machine.path("one")).unwrap();
        fs::write(machine.path("one"), "2\n").unwrap();
        let restored = machine.journal().undo(None).unwrap().expect("one is left");
        assert!(matches!(&restored[..], [(_, Outcome::Back(_))]), "{restored:?}");
        assert_eq!((machine.value("one"), machine.value("other")), ("1".into(), "3".into()));
    }

    #[test]
    fn a_journal_that_is_none_is_told_and_kept() {
        let machine = Machine::new("none");
        fs::write(machine.0.join("journal"), "{").unwrap();
        let error = machine.journal().undo(None).unwrap_err();
        assert!(error.message.contains("cannot understand"), "{}", error.message);
        assert!(machine.0.join("journal").exists());
    }
}
