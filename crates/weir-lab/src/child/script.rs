//! A script of the shell in place of weir's program, for tests of whoever starts that.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// It is removed when dropped.
pub(crate) struct Script(PathBuf);

impl Script {
    /// What it does by its first argument: pairs of that and commands.
    pub fn new(cases: &[(&str, &str)]) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("weir-lab-test-{}-{number}.sh", std::process::id());
        let path = std::env::temp_dir().join(name);
        let cases = cases.iter().map(|(called, commands)| format!("{called}) {commands} ;;\n"));
        let text = format!("#!/bin/sh\ncase $1 in\n{}esac\n", cases.collect::<String>());
        // Written by another process: a child that some other test starts meanwhile would
        // inherit our descriptor for a moment, and a file open for writing cannot be run.
        let mut writer = Command::new("/bin/sh")
            .args(["-c", r#"cat > "$0" && chmod 700 "$0""#])
            .arg(&path)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        writer.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        assert!(writer.wait().unwrap().success());
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        fs::remove_file(&self.0).unwrap();
    }
}
