//! What the tests of the servers share.

#![allow(dead_code, reason = "not each test needs all of it")]

#[path = "../crates/weir/src/required.rs"]
pub mod required;

use std::{
    fs,
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    time::Duration,
};

/// The longest that anything may take on a machine that is busy with other things.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A folder of its own, which goes with this.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let name = format!("{}-{name}-{}", env!("CARGO_PKG_NAME"), std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// The path of something in it.
    pub fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Ends what goes on beside, also where the test fails.
pub struct Over<'a>(pub &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}
