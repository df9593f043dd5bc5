//! Which build of weir this is.

use std::{fmt, io::Read, sync::OnceLock};

use serde::{Deserialize, Serialize};

use crate::sys;

/// A version, and a fingerprint of the executable file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Build {
    /// Version of the crate.
    pub version: String,
    /// Hash of the executable file; `None` if it could not be read, and then no build is
    /// the same as this one.
    pub fingerprint: Option<String>,
}

impl Build {
    /// The build of this process. The file is read at the first call (about 10 ms).
    pub fn own() -> &'static Self {
        static OWN: OnceLock<Build> = OnceLock::new();
        OWN.get_or_init(|| Self {
            version: env!("CARGO_PKG_VERSION").into(),
            fingerprint: fingerprint_of_executable().ok(),
        })
    }

    /// Whether both are known to be the same.
    pub fn is_same_as(&self, other: &Self) -> bool {
        self.fingerprint.is_some() && self == other
    }
}

impl fmt::Display for Build {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fingerprint = self.fingerprint.as_deref().unwrap_or("of unknown fingerprint");
        write!(f, "{} ({fingerprint})", self.version)
    }
}

fn fingerprint_of_executable() -> std::io::Result<String> {
    let mut file = sys::open_own_executable()?;
    let mut hash = Hash::default();
    let mut piece = vec![0; 1 << 16];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(format!("{:016x}", hash.0)),
            n => hash.add(&piece[..n]),
        }
    }
}

/// Tells accidents apart, not attacks: FNV-1a over bytes.
struct Hash(u64);

impl Default for Hash {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hash {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_fnv_1a() {
        let mut hash = Hash::default();
        hash.add(b"foo");
        hash.add(b"bar");
        assert_eq!(hash.0, 0x8594_4171_f739_67e8);
    }

    #[test]
    fn this_build_is_itself_and_an_unknown_one_is_nobody() {
        assert!(Build::own().is_same_as(&Build::own().clone()));
        let unknown = Build { version: "1".into(), fingerprint: None };
        assert!(!unknown.is_same_as(&unknown.clone()));
    }
}
