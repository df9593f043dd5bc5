//! The Unix sockets of `weir serve`.

use crate::exit::Failure;
use std::path::PathBuf;
use weir::stream::{self, UnixAddress};

/// Whether there are any, and whether their mode says anything.
///
/// `may` is what who may write to the files may do.
pub fn check(paths: &[PathBuf], mode: Option<u32>, may: &str) -> Result<(), Failure> {
    if !paths.is_empty() {
        stream::unix_availability().map_err(weir::Error::from)?;
    }
    let open_to_all = paths.iter().find(|path| UnixAddress::from(path).path().is_none());
    if let (Some(_), Some(name)) = (mode, open_to_all) {
        return Err(Failure::usage(format!(
            "--unix-mode: {} is an abstract name, which has no mode: anybody in its network namespace may {may}; give \
             a path instead, or leave --unix-mode out",
            name.display()
        )));
    }
    Ok(())
}

/// A path, also as a load is told it, with `unix:` before it.
pub fn parse_path(text: &str) -> Result<PathBuf, String> {
    match text.strip_prefix("unix:").unwrap_or(text) {
        "" | "@" => Err("give the path of a socket, such as /run/example.sock, or @NAME".into()),
        path => Ok(path.into()),
    }
}

/// The mode of a file, in octal.
pub fn parse_mode(text: &str) -> Result<u32, String> {
    let digits = text.strip_prefix("0o").unwrap_or(text);
    match u32::from_str_radix(digits, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err(format!("{text} is not a file mode; allowed: 0 to 777, in octal")),
    }
}
