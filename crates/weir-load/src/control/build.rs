//! Which build of weir this is.

use std::{fmt, io::Read, sync::OnceLock};

use crate::sys;

/// A version, and a fingerprint of the executable file. The fingerprint is compared without being
/// told to the other side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Build {
    /// Version of the crate.
    pub version: String,
    /// Hash of the executable file; `None` if it could not be read, and then no build is
    /// the same as this one.
    pub fingerprint: Option<String>,
}

impl Build {
    /// The build of this process. The file is read at the first call (about 5 ms).
    pub fn own() -> &'static Self {
        static OWN: OnceLock<Build> = OnceLock::new();
        OWN.get_or_init(|| Self {
            version: env!("CARGO_PKG_VERSION").into(),
            fingerprint: fingerprint_of_executable().ok(),
        })
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
        let mut filled = 0;
        // Words begin at the same places however the file is read.
        while filled < piece.len() {
            match file.read(&mut piece[filled..])? {
                0 => break,
                n => filled += n,
            }
        }
        hash.add(&piece[..filled]);
        if filled < piece.len() {
            return Ok(format!("{:016x}", hash.0));
        }
    }
}

/// Tells accidents apart, not attacks: FNV-1a over words of eight bytes. Byte by byte it takes
/// 30 ms for an executable of 20 MB, twice in each run of a comparison.
struct Hash(u64);

impl Default for Hash {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hash {
    /// Adds a piece; what its last word lacks is taken as zeros.
    fn add(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        words.iter().for_each(|word| self.add_word(*word));
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            self.add_word(last);
        }
    }

    fn add_word(&mut self, word: [u8; 8]) {
        self.0 = (self.0 ^ u64::from_le_bytes(word)).wrapping_mul(0x0000_0100_0000_01b3);
        // A product carries upwards only: its upper half must reach the lower one.
        self.0 ^= self.0 >> 32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_of_a_file_counts() {
        let of = |bytes: &[u8]| {
            let mut hash = Hash::default();
            hash.add(bytes);
            hash.0
        };
        let file: Vec<u8> = (0..251).collect();
        let mut hashes: Vec<u64> = (0..file.len() * 8)
            .map(|bit| {
                let mut changed = file.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                of(&changed)
            })
            .collect();
        hashes.push(of(&file));
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), file.len() * 8 + 1);
    }
}
