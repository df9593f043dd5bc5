//! TLS of `weir serve tcp`: whether and how it is spoken.

use std::path::PathBuf;

use clap::Args;
use weir::filter::Filter;

use crate::exit::Failure;

/// How TLS is spoken, where it is.
#[derive(Debug, Args)]
pub(super) struct TlsArgs {
    /// Speak TLS, with the chain of certificates in this file (PEM), the server's own first. Needs a weir that was built
    /// with the feature tls.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// Private key of the certificate, in a file (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// Protocols to offer within TLS (ALPN), separated by commas, the preferred one first.
    #[arg(long, value_name = "NAME", value_delimiter = ',', requires = "tls_cert")]
    tls_alpn: Vec<String>,

    /// Ask clients for a certificate, issued by an authority in this file (PEM): others are refused.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,
}

impl TlsArgs {
    /// What stands between connections and their handler, where TLS was asked for.
    #[cfg(feature = "tls")]
    pub(super) fn filter(&self) -> Result<Option<impl Filter + use<>>, Failure> {
        use weir::filter::Tls;

        let (Some(chain), Some(key)) = (&self.tls_cert, &self.tls_key) else { return Ok(None) };
        let read = |path: &PathBuf| {
            std::fs::read(path)
                .map_err(|e| Failure::usage(format!("cannot read {}: {e}", path.display())))
        };
        let (chain, key) = (read(chain)?, read(key)?);
        let tls = match &self.tls_client_ca {
            Some(path) => Tls::from_pem_for_clients_of(&read(path)?, &chain, &key)?,
            None => Tls::from_pem(&chain, &key)?,
        };
        Ok(Some(tls.alpn(self.tls_alpn.iter().cloned())?))
    }

    /// Without the feature there is nothing: asking for it is an error.
    #[cfg(not(feature = "tls"))]
    pub(super) fn filter(&self) -> Result<Option<impl Filter + use<>>, Failure> {
        match self.tls_cert {
            Some(_) => Err(Failure::usage(
                "this weir was built without TLS: build it with cargo build --release --features tls, \
                 which takes a C compiler",
            )),
            None => Ok(None::<weir::filter::ReadTimeout>),
        }
    }

    /// What is said of it among the settings in effect.
    pub(super) fn settings(&self) -> Vec<(String, String)> {
        let Some(chain) = &self.tls_cert else { return Vec::new() };
        let mut settings = vec![("tls".into(), chain.display().to_string())];
        if !self.tls_alpn.is_empty() {
            settings.push(("tls-alpn".into(), self.tls_alpn.join(",")));
        }
        if let Some(authority) = &self.tls_client_ca {
            settings.push(("tls-client-ca".into(), authority.display().to_string()));
        }
        settings
    }
}
