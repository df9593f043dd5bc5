//! What clients of both tests trust.

use quinn::ClientConfig;
use rustls::pki_types::CertificateDer;
use std::sync::Arc;

/// A certificate for `localhost` of which it and its key are in these files from now on.
pub fn certified(cert: &str, key: &str) -> CertificateDer<'static> {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    std::fs::write(cert, made.cert.pem()).unwrap();
    std::fs::write(key, made.signing_key.serialize_pem()).unwrap();
    made.cert.der().clone()
}

/// A client of quinn's perf protocol that trusts these.
pub fn of_perf(roots: rustls::RootCertStore) -> ClientConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut crypto = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    crypto.alpn_protocols = vec![b"perf".to_vec()];
    let crypto = quinn::crypto::rustls::QuicClientConfig::try_from(crypto).unwrap();
    ClientConfig::new(Arc::new(crypto))
}
