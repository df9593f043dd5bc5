//! Who is there, proven without telling: the build and the shared key.
//!
//! Both sides send a nonce. What is compared is a keyed hash (HMAC-SHA256) over both nonces under
//! the secret, so nobody learns the other's secret from a comparison that fails, and no answer can
//! be used again. The generator proves first: whoever cannot hears nothing that depends on a secret.
//!
//! What follows on the connection is neither encrypted nor authenticated: whoever can change packets
//! between the two can still do so.

use std::{env, fmt, fs, io::Read as _, path::Path};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::sys;

/// Hexadecimal digits of a nonce.
const NONCE_DIGITS: usize = 32;

/// The shortest and the longest shared key in bytes.
const KEY_BYTES: std::ops::RangeInclusive<usize> = 16..=4096;

/// The environment variable that may hold the shared key itself.
pub const KEY_VARIABLE: &str = "WEIR_KEY";

/// A key that generators and servers share. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(Vec<u8>);

impl Key {
    /// From its bytes; a line end behind them is not part of it.
    ///
    /// # Errors
    /// If it is too short or too long.
    pub fn new(bytes: &[u8]) -> Result<Self, String> {
        let end = bytes.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r'));
        let key = &bytes[..end.map_or(0, |end| end + 1)];
        if !KEY_BYTES.contains(&key.len()) {
            return Err(format!(
                "a key of {} bytes; it must have {} to {}, such as: openssl rand -hex 32",
                key.len(),
                KEY_BYTES.start(),
                KEY_BYTES.end()
            ));
        }
        Ok(Self(key.to_vec()))
    }

    /// From a file, or if none is given from the environment variable [`KEY_VARIABLE`]. There is
    /// none if neither is.
    ///
    /// # Errors
    /// If the file cannot be read, or what is in it is no key.
    pub fn find(file: Option<&Path>) -> Result<Option<Self>, String> {
        if let Some(path) = file {
            let named =
                |error: &dyn fmt::Display| format!("the key in {}: {error}", path.display());
            let unread = |error| {
                named(&format!("{error}; name a file with the key, such as: openssl rand -hex 32"))
            };
            // One byte more than a key and the end of its line have tells that it is too long; what has no end is not read
            // to it.
            let mut bytes = vec![];
            let most = *KEY_BYTES.end() as u64 + 3;
            let file = fs::File::open(path).map_err(unread)?;
            file.take(most).read_to_end(&mut bytes).map_err(unread)?;
            return Self::new(&bytes).map(Some).map_err(|error| named(&error));
        }
        match env::var_os(KEY_VARIABLE) {
            None => Ok(None),
            Some(key) => Self::new(key.as_encoded_bytes())
                .map(Some)
                .map_err(|error| format!("the key in {KEY_VARIABLE}: {error}")),
        }
    }

    /// Whether others than its owner may read the file of a key, as far as that is known (on Windows it is not).
    pub fn others_can_read(file: &Path) -> bool {
        sys::others_can_read(file)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(not shown)")
    }
}

/// Who proves.
#[derive(Debug, Clone, Copy)]
pub(super) enum Side {
    Generator,
    Server,
}

/// What is proven.
#[derive(Debug, Clone, Copy)]
pub(super) enum Secret<'a> {
    /// The fingerprint of the executable.
    Build(&'a str),
    Key(&'a Key),
}

/// The nonces of one connection.
#[derive(Debug, Clone)]
pub(super) struct Nonces {
    pub generator: String,
    pub server: String,
}

impl Nonces {
    fn hash(&self, side: Side, secret: Secret<'_>) -> Hmac<Sha256> {
        let (what, bytes) = match secret {
            Secret::Build(fingerprint) => ("build", fingerprint.as_bytes()),
            Secret::Key(key) => ("key", key.bytes()),
        };
        let mut hash =
            Hmac::<Sha256>::new_from_slice(bytes).expect("HMAC takes keys of any length");
        let side = match side {
            Side::Generator => "generator",
            Side::Server => "server",
        };
        // All parts but the last are of fixed lengths or end with a space.
        let text = format!("weir control {side} {what} {} {}", self.generator, self.server);
        hash.update(text.as_bytes());
        hash
    }

    /// What one side says to prove that it has a secret.
    pub(super) fn proof(&self, side: Side, secret: Secret<'_>) -> String {
        let tag = self.hash(side, secret).finalize().into_bytes();
        hexadecimal(&tag)
    }

    /// Whether what the other side said proves it. Takes the same time whatever was said.
    pub(super) fn proves(&self, side: Side, secret: Secret<'_>, said: Option<&str>) -> bool {
        let said = said.and_then(from_hexadecimal);
        said.is_some_and(|tag| self.hash(side, secret).verify_slice(&tag).is_ok())
    }
}

/// A nonce that nobody can foresee: 32 hexadecimal digits.
///
/// # Errors
/// If the system gives no random bytes.
pub fn nonce() -> std::io::Result<String> {
    let mut bytes = [0; NONCE_DIGITS / 2];
    getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
    Ok(hexadecimal(&bytes))
}

/// Whether a text has the form of a nonce.
pub(super) fn is_nonce(text: &str) -> bool {
    text.len() == NONCE_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hexadecimal(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let (pairs, rest) = digits.as_chunks();
    let byte = |[high, low]: &[u8; 2]| Some(digit(*high)? << 4 | digit(*low)?);
    rest.is_empty().then(|| pairs.iter().map(byte).collect()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nonces() -> Nonces {
        Nonces { generator: nonce().expect("random"), server: nonce().expect("random") }
    }

    #[test]
    fn only_the_same_secret_of_the_same_side_on_the_same_connection_proves() {
        let key = |text: &str| Key::new(text.as_bytes()).expect("long enough");
        let (right, wrong) = (key("0123456789abcdef"), key("0123456789abcdeF"));
        let (here, elsewhere) = (nonces(), nonces());
        let said = here.proof(Side::Generator, Secret::Key(&right));
        let proves = |nonces: &Nonces, side, secret| nonces.proves(side, secret, Some(&said));
        assert!(proves(&here, Side::Generator, Secret::Key(&right)));
        assert!(!proves(&here, Side::Generator, Secret::Key(&wrong)));
        assert!(!proves(&here, Side::Server, Secret::Key(&right)), "a proof sent back");
        assert!(!proves(&here, Side::Generator, Secret::Build("0123456789abcdef")));
        assert!(!proves(&elsewhere, Side::Generator, Secret::Key(&right)), "a proof used again");
        for nothing in [None, Some(""), Some("zz"), Some("0"), Some(&said[2..])] {
            assert!(!here.proves(Side::Generator, Secret::Key(&right), nothing), "{nothing:?}");
        }
    }

    #[test]
    fn the_hash_is_hmac_sha256() {
        // RFC 4231, test case 2.
        let mut hash = Hmac::<Sha256>::new_from_slice(b"Jefe").expect("any length");
        hash.update(b"what do ya want for nothing?");
        assert_eq!(
            hexadecimal(&hash.finalize().into_bytes()),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
    }

    #[test]
    fn a_key_is_long_enough_not_shown_and_ends_before_the_line_end() {
        let key = Key::new(b"0123456789abcdef\r\n").expect("long enough");
        assert_eq!(key, Key::new(b"0123456789abcdef").expect("long enough"));
        assert!(!format!("{key:?}").contains("0123"));
        assert!(Key::new(b"short\n").expect_err("too short").contains("5 bytes"));
        assert!(Key::new(&[b'x'; 4097]).is_err() && Key::new(b"\n").is_err());
    }

    #[test]
    fn nonces_differ_and_have_a_form() {
        let Nonces { generator, server } = nonces();
        assert!(is_nonce(&generator) && generator != server);
        assert!(!is_nonce("") && !is_nonce(&"g".repeat(32)) && !is_nonce(&"0".repeat(31)));
    }
}
