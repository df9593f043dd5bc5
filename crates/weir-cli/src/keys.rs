//! The key that servers and generators share.

use std::path::Path;

use weir_load::control::Key;

/// The key of this file, or of the environment. That others can read the file is told.
pub fn find(command: &str, file: Option<&Path>) -> Result<Option<Key>, String> {
    let key = Key::find(file)?;
    if let Some(path) = file.filter(|path| Key::others_can_read(path)) {
        let words = ["chmod", "600", &path.to_string_lossy()].map(str::to_owned);
        say!(
            "weir {command}: other users of this machine can read the key in {}; to change that: {}",
            path.display(),
            crate::shell_words(&words)
        );
    }
    Ok(key)
}
