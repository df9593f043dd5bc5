//! Keys, certificates, and what is agreed on.

use anyhow::Context as _;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::{
    DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{
        CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime, pem::PemObject,
    },
    version::TLS13,
};
use std::{path::Path, sync::Arc};

/// The protocol that is agreed on: quinn's perf.
pub const ALPN: &[u8] = b"perf";

/// The cipher suites of quinn's perf, in its order.
fn provider() -> Arc<CryptoProvider> {
    let cipher_suites = vec![
        ring::cipher_suite::TLS13_AES_128_GCM_SHA256,
        ring::cipher_suite::TLS13_AES_256_GCM_SHA384,
        ring::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    ];
    Arc::new(CryptoProvider { cipher_suites, ..ring::default_provider() })
}

/// A server's, with this chain and key in PEM, or with a certificate of its own for `localhost`, made anew each time.
pub fn server(files: Option<(&Path, &Path)>) -> anyhow::Result<quinn::ServerConfig> {
    let (chain, key) = match files {
        Some((chain, key)) => {
            let read = |path: &Path| format!("reading {}", path.display());
            let certificates = CertificateDer::pem_file_iter(chain)
                .and_then(Iterator::collect::<Result<Vec<_>, _>>)
                .with_context(|| read(chain))?;
            (certificates, PrivateKeyDer::from_pem_file(key).with_context(|| read(key))?)
        }
        None => {
            let made = rcgen::generate_simple_self_signed(vec!["localhost".into()])
                .context("making a certificate")?;
            let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
            (vec![made.cert.into()], key.into())
        }
    };
    let mut crypto = rustls::ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .context("setting up TLS 1.3")?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .context("the certificate and its key")?;
    crypto.alpn_protocols = vec![ALPN.to_vec()];
    let crypto = QuicServerConfig::try_from(crypto).context("setting up QUIC's TLS")?;
    Ok(quinn::ServerConfig::with_crypto(Arc::new(crypto)))
}

/// A client's that trusts whoever answers, as quinn's perf does: it measures, and has nothing to hide.
pub fn trusting_client() -> anyhow::Result<quinn::ClientConfig> {
    let provider = provider();
    let mut crypto = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13])
        .context("setting up TLS 1.3")?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(TrustAll(provider)))
        .with_no_client_auth();
    crypto.alpn_protocols = vec![ALPN.to_vec()];
    let crypto = QuicClientConfig::try_from(crypto).context("setting up QUIC's TLS")?;
    Ok(quinn::ClientConfig::new(Arc::new(crypto)))
}

#[derive(Debug)]
struct TrustAll(Arc<CryptoProvider>);

impl ServerCertVerifier for TrustAll {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
