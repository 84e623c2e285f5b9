//! TLS towards a server: which certificates are trusted, and which is shown.
//!
//! rustls with AWS-LC. The server's certificate must be signed by an authority of
//! `--cacert` (by default the system's) and be made out to the host's name or to
//! that of `--sni`; `--insecure` takes any certificate.

use std::fmt;
use std::io;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme,
};

use crate::transport::Transport;

/// What the user says about TLS, by redis-cli's names; as flags of a command that takes a
/// [URL](crate::url).
#[derive(Debug, Clone, Default, clap::Args)]
pub struct TlsOptions {
    /// With rediss://, authorities to trust, PEM [default: the system's]
    #[arg(long, value_name = "FILE")]
    pub cacert: Option<PathBuf>,
    /// Certificate to show, PEM
    #[arg(long, value_name = "FILE", requires = "key")]
    pub cert: Option<PathBuf>,
    /// Its key, PEM
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub key: Option<PathBuf>,
    /// Take any certificate
    #[arg(long)]
    pub insecure: bool,
    /// Name to ask for and to verify [default: the host]
    #[arg(long, value_name = "NAME")]
    pub sni: Option<String>,
}

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or does not hold what it should.
    #[error("{path}: {cause}")]
    File {
        /// The file.
        path: String,
        /// What is wrong with it.
        cause: String,
    },
    /// No authority is known.
    #[error("this system has no certificates of authorities: give --cacert or --insecure")]
    NoAuthorities,
    /// Certificate and key do not fit.
    #[error("--cert and --key: {0}")]
    Identity(rustls::Error),
    /// Anything else.
    #[error("TLS: {0}")]
    Other(#[from] rustls::Error),
}

/// A client's side of TLS, shared by all connections.
#[derive(Clone)]
pub struct Tls {
    config: Arc<ClientConfig>,
    sni: Option<String>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Tls").field("sni", &self.sni).finish_non_exhaustive()
    }
}

fn bad_file(path: &Path, cause: impl fmt::Display) -> TlsError {
    TlsError::File { path: path.display().to_string(), cause: cause.to_string() }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(path).map_err(|error| bad_file(path, error))?.collect();
    let read = read.map_err(|error| bad_file(path, error))?;
    if read.is_empty() { Err(bad_file(path, "holds no certificate")) } else { Ok(read) }
}

fn authorities(options: &TlsOptions) -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    if let Some(path) = &options.cacert {
        for certificate in certificates(path)? {
            store.add(certificate).map_err(|error| bad_file(path, error))?;
        }
        return Ok(store);
    }
    store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if store.is_empty() { Err(TlsError::NoAuthorities) } else { Ok(store) }
}

impl Tls {
    /// Reads the files and fixes the rules.
    pub fn new(options: &TlsOptions) -> Result<Self, TlsError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?;
        let builder = if options.insecure {
            let any = AnyCertificate(provider.signature_verification_algorithms);
            builder.dangerous().with_custom_certificate_verifier(Arc::new(any))
        } else {
            builder.with_root_certificates(authorities(options)?)
        };
        let config = match (&options.cert, &options.key) {
            (Some(cert), Some(key)) => {
                let chain = certificates(cert)?;
                let key =
                    PrivateKeyDer::from_pem_file(key).map_err(|error| bad_file(key, error))?;
                builder.with_client_auth_cert(chain, key).map_err(TlsError::Identity)?
            }
            _ => builder.with_no_client_auth(),
        };
        Ok(Self { config: Arc::new(config), sni: options.sni.clone() })
    }

    /// Shakes hands over a blocking socket.
    pub fn connect(&self, host: &str, mut socket: TcpStream) -> io::Result<Transport<TcpStream>> {
        let wrong = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
        let name = self.sni.as_deref().unwrap_or(host).to_owned();
        let name = ServerName::try_from(name).map_err(|_| wrong("no name for TLS; give --sni"))?;
        let mut session = ClientConnection::new(Arc::clone(&self.config), name)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        while session.is_handshaking() {
            session.complete_io(&mut socket)?;
        }
        Ok(Transport::Tls(Box::new(session), socket))
    }
}

/// Takes any certificate; the handshake's own signatures must still hold.
#[derive(Debug)]
struct AnyCertificate(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_not_what_they_should_be_are_named() {
        let folder = std::env::temp_dir().join(format!("snug-tls-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("ca.pem");
        std::fs::write(&file, "no certificate").unwrap();
        let refused = |options: &TlsOptions| Tls::new(options).unwrap_err().to_string();
        let empty = TlsOptions { cacert: Some(file.clone()), ..TlsOptions::default() };
        assert_eq!(refused(&empty), format!("{}: holds no certificate", file.display()));
        let missing = TlsOptions { cacert: Some(folder.join("none")), ..TlsOptions::default() };
        assert!(refused(&missing).contains("No such file"));
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(Tls::new(&TlsOptions { insecure: true, ..TlsOptions::default() }).is_ok());
    }
}
