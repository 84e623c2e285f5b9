//! TLS as the configuration asks for it: certificates, authorities, protocols, ciphers
//! and the cache of sessions, made into what new connections shake hands with: those that
//! come in, and with `tls-replication` the one to the primary.
//!
//! All of it is read and checked before any of it is in force, so a change that is wrong
//! somewhere changes nothing. A connection keeps what it has shaken hands with: new
//! certificates drop nobody. Sessions are remembered with the settings that they were
//! made under, so none is resumed under others.
//!
//! rustls speaks TLS 1.2 and 1.3 with the ciphers of AWS-LC. Of what OpenSSL would take
//! beside, older protocols and other ciphers are passed over with a line in the log, and
//! an error says so where nothing is left. Named Diffie-Hellman groups do not exist in it,
//! so `tls-dh-params-file` has no effect.

use super::certificate;
use crate::config::{Config, Param};
use crate::outside::clock::Instant;
use parking_lot::{Mutex, RwLock};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::{NoServerSessionStorage, ServerConfig, StoresServerSessions};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{
    CipherSuite, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    SupportedCipherSuite, SupportedProtocolVersion,
};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// What new connections shake hands with, once there is something.
#[derive(Debug, Default)]
pub(crate) struct Tls(RwLock<Settings>);

#[derive(Clone, Debug, Default)]
struct Settings {
    /// Of those that come in.
    server: Option<Arc<ServerConfig>>,
    /// Of the link to the primary, and of those to the targets of `MIGRATE`.
    link: Option<Arc<ClientConfig>>,
    moving: Option<Arc<ClientConfig>>,
}

/// Values of `tls-auth-clients`.
const AUTH_NO: i64 = 0;
const AUTH_OPTIONAL: i64 = 2;

impl Tls {
    /// Reads what the configuration names and puts it in force, or changes nothing. The
    /// error is one line.
    pub(crate) fn apply(&self, config: &Config) -> Result<(), String> {
        let server = is_served(config).then(|| server_config(config)).transpose()?;
        let (on_link, on_moving) =
            (config.is_on(Param::TlsReplication), config.is_on(Param::TlsCluster));
        let client = (on_link || on_moving).then(|| client_config(config)).transpose()?;
        let client = client.map(Arc::new);
        *self.0.write() = Settings {
            server: server.map(Arc::new),
            link: client.clone().filter(|_| on_link),
            moving: client.filter(|_| on_moving),
        };
        Ok(())
    }

    /// The same where a handshake is to tell which of these protocols will be spoken. Its
    /// sessions are those of the others.
    pub(crate) fn speaking(&self, alpn: &[&[u8]]) -> Option<Arc<ServerConfig>> {
        let current = self.current()?;
        if alpn.is_empty() {
            return Some(current);
        }
        let mut speaking = ServerConfig::clone(&current);
        speaking.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        Some(Arc::new(speaking))
    }

    /// What a new connection is to shake hands with.
    pub(crate) fn current(&self) -> Option<Arc<ServerConfig>> {
        self.0.read().server.clone()
    }

    /// What the link to the primary is to shake hands with, if that is to be inside TLS.
    pub(crate) fn of_link(&self) -> Option<Arc<ClientConfig>> {
        self.0.read().link.clone()
    }

    /// The same for connections of `MIGRATE`.
    pub(crate) fn of_moving(&self) -> Option<Arc<ClientConfig>> {
        self.0.read().moving.clone()
    }
}

/// Whether somebody may come in through TLS.
fn is_served(config: &Config) -> bool {
    config.number(Param::TlsPort) != 0
        || (config.is_on(Param::AdminTls) && config.number(Param::AdminPort) != 0)
        || (config.is_on(Param::ContentTls) && config.number(Param::ContentPort) != 0)
}

const NO_AUTHORITIES: &str = "Either tls-ca-cert-file or tls-ca-cert-dir must be specified when tls-cluster, tls-replication or tls-auth-clients are enabled!";

fn has_authorities(config: &Config) -> bool {
    !config.is_empty(Param::TlsCaCertFile) || !config.is_empty(Param::TlsCaCertDir)
}

/// The ciphers that the configuration leaves.
fn provider(config: &Config) -> Result<Arc<CryptoProvider>, String> {
    let (ciphers, suites) = (config.text(Param::TlsCiphers), config.text(Param::TlsCiphersuites));
    let cipher_suites = cipher_suites(&ciphers, &suites)?;
    Ok(Arc::new(CryptoProvider { cipher_suites, ..aws_lc_rs::default_provider() }))
}

fn authorities(config: &Config) -> Result<RootCertStore, String> {
    certificate::authorities(&config.path(Param::TlsCaCertFile), &config.path(Param::TlsCaCertDir))
        .map_err(|e| format!("Failed to configure CA certificate(s) file/directory: {e}"))
}

const UNFIT: &str = "tls-protocols and the ciphers do not fit together";

/// A certificate, its key, and the pass phrase of that.
type Pair = (Param, Param, Param);
const OF_SERVER: Pair = (Param::TlsCertFile, Param::TlsKeyFile, Param::TlsKeyFilePass);
const OF_CLIENT: Pair =
    (Param::TlsClientCertFile, Param::TlsClientKeyFile, Param::TlsClientKeyFilePass);

fn pair(
    config: &Config,
    (certificate, key, pass): Pair,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, String> {
    let file = |param: Param| match config.is_empty(param) {
        true => Err(format!("No {} configured!", param.declaration().name)),
        false => Ok(config.path(param)),
    };
    let (certificate_file, key_file) = (file(certificate)?, file(key)?);
    let chain = certificate::chain(&certificate_file)
        .map_err(|e| format!("Failed to load certificate: {e}"))?;
    let key = certificate::key(&key_file, &config.bytes(pass))
        .and_then(|key| provider.key_provider.load_private_key(key).map_err(|e| e.to_string()))
        .map_err(|e| format!("Failed to load private key: {e}"))?;
    let pair = CertifiedKey::new(chain, key);
    certificate::check_pair(&pair)
        .map_err(|e| format!("Failed to load private key: {}: {e}", key_file.display()))?;
    Ok(pair)
}

/// This node as a client of others. It shows a certificate if there is one for it:
/// `tls-client-cert-file`, else the server's.
fn client_config(config: &Config) -> Result<ClientConfig, String> {
    if !has_authorities(config) {
        return Err(NO_AUTHORITIES.into());
    }
    let provider = provider(config)?;
    let authorities = authorities(config)?;
    let own = [OF_CLIENT, OF_SERVER].into_iter().find(|own| !config.is_empty(own.0));
    let own = own.map(|own| pair(config, own, &provider)).transpose()?;
    let versions = protocols(&config.text(Param::TlsProtocols))?;
    let algorithms = provider.signature_verification_algorithms;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions)
        .map_err(|e| format!("{UNFIT}: {e}"))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(OfAuthorities { authorities, algorithms }));
    Ok(match own {
        Some(pair) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(pair))),
        None => builder.with_no_client_auth(),
    })
}

/// Takes a server for the one that is meant if an authority vouches for its certificate,
/// whatever name is in that: what OpenSSL does for Redis.
#[derive(Debug)]
struct OfAuthorities {
    authorities: RootCertStore,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for OfAuthorities {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        rustls::client::verify_server_cert_signed_by_trust_anchor(
            &rustls::server::ParsedCertificate::try_from(certificate)?,
            &self.authorities,
            intermediates,
            now,
            self.algorithms.all,
        )?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

fn server_config(config: &Config) -> Result<ServerConfig, String> {
    let auth = config.number(Param::TlsAuthClients);
    // What is missing is told in Redis's order.
    for param in [Param::TlsCertFile, Param::TlsKeyFile] {
        if config.is_empty(param) {
            return Err(format!("No {} configured!", param.declaration().name));
        }
    }
    if auth != AUTH_NO && !has_authorities(config) {
        return Err(NO_AUTHORITIES.into());
    }
    let provider = provider(config)?;
    let pair = pair(config, OF_SERVER, &provider)?;
    let authorities = authorities(config)?;
    let versions = protocols(&config.text(Param::TlsProtocols))?;
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&versions)
        .map_err(|e| format!("{UNFIT}: {e}"))?;
    let builder = if auth == AUTH_NO {
        builder.with_no_client_auth()
    } else {
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), provider);
        let verifier = match auth {
            AUTH_OPTIONAL => verifier.allow_unauthenticated(),
            _ => verifier,
        };
        let verifier = verifier.build().map_err(|e| e.to_string())?;
        builder.with_client_cert_verifier(verifier)
    };
    let mut made = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(pair)));
    made.ignore_client_order = config.is_on(Param::TlsPreferServerCiphers);
    made.session_storage = match config.is_on(Param::TlsSessionCaching) {
        true => Arc::new(Sessions::new(config)),
        false => Arc::new(NoServerSessionStorage {}),
    };
    if !config.is_on(Param::TlsSessionCaching) {
        made.send_tls13_tickets = 0;
    }
    Ok(made)
}

/// The protocols that `tls-protocols` lists; those that are usual if it lists none.
fn protocols(listed: &str) -> Result<Vec<&'static SupportedProtocolVersion>, String> {
    let mut versions = Vec::new();
    for name in listed.split_ascii_whitespace() {
        match name.to_ascii_lowercase().as_str() {
            "tlsv1.2" => versions.push(&TLS12),
            "tlsv1.3" => versions.push(&TLS13),
            "tlsv1" | "tlsv1.1" => {
                tracing::warn!(protocol = name, "tls-protocols: too old to be spoken; passed over");
            }
            _ => {
                return Err(format!(
                    "Invalid tls-protocols specified ('{name}'): TLSv1.2 and TLSv1.3 are supported"
                ));
            }
        }
    }
    if versions.is_empty() && !listed.trim_ascii().is_empty() {
        return Err("tls-protocols lists none that is spoken: TLSv1.2, TLSv1.3".into());
    }
    Ok(if versions.is_empty() { vec![&TLS13, &TLS12] } else { versions })
}

/// The ciphers of TLS 1.2 by OpenSSL's names.
const CIPHERS: &[(&str, CipherSuite)] = &[
    ("ECDHE-ECDSA-AES256-GCM-SHA384", CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
    ("ECDHE-ECDSA-AES128-GCM-SHA256", CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
    ("ECDHE-ECDSA-CHACHA20-POLY1305", CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
    ("ECDHE-RSA-AES256-GCM-SHA384", CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
    ("ECDHE-RSA-AES128-GCM-SHA256", CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
    ("ECDHE-RSA-CHACHA20-POLY1305", CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
];

/// Those of TLS 1.3, which have one name everywhere.
const CIPHERSUITES: &[(&str, CipherSuite)] = &[
    ("TLS_AES_256_GCM_SHA384", CipherSuite::TLS13_AES_256_GCM_SHA384),
    ("TLS_AES_128_GCM_SHA256", CipherSuite::TLS13_AES_128_GCM_SHA256),
    ("TLS_CHACHA20_POLY1305_SHA256", CipherSuite::TLS13_CHACHA20_POLY1305_SHA256),
];

/// Words of OpenSSL that stand for ciphers among which all of ours are.
const ALL_OF_THEM: &[&str] = &["DEFAULT", "ALL", "HIGH", "SECURE256", "ECDHE", "EECDH", "AEAD"];

/// The suites that `tls-ciphers` (TLS 1.2) and `tls-ciphersuites` (TLS 1.3) leave.
fn cipher_suites(ciphers: &str, suites: &str) -> Result<Vec<SupportedCipherSuite>, String> {
    let mut wanted = chosen(ciphers, CIPHERS, "tls-ciphers", "Failed to configure ciphers")?;
    let suites =
        chosen(suites, CIPHERSUITES, "tls-ciphersuites", "Failed to configure ciphersuites")?;
    wanted.splice(0..0, suites);
    let known = |wanted: &CipherSuite| {
        aws_lc_rs::ALL_CIPHER_SUITES.iter().find(|suite| suite.suite() == *wanted).copied()
    };
    Ok(wanted.iter().filter_map(known).collect())
}

/// What a list of names between colons chooses, in its order; everything if it is empty.
fn chosen(
    list: &str,
    known: &[(&str, CipherSuite)],
    parameter: &str,
    failed: &str,
) -> Result<Vec<CipherSuite>, String> {
    let all = known.iter().map(|(_, suite)| *suite);
    let mut chosen: Vec<CipherSuite> = Vec::new();
    let names = list.split([':', ',', ' ']).filter(|name| !name.is_empty());
    for name in names {
        let (taken_away, plain) = match name.strip_prefix(['!', '-']) {
            Some(plain) => (true, plain),
            None => (false, name.trim_start_matches('+')),
        };
        let one = known.iter().find(|(other, _)| other.eq_ignore_ascii_case(plain));
        match one {
            Some((_, suite)) if taken_away => chosen.retain(|other| other != suite),
            Some((_, suite)) if !chosen.contains(suite) => chosen.push(*suite),
            Some(_) => {}
            None if !taken_away && ALL_OF_THEM.contains(&plain) => {
                chosen.extend(
                    all.clone().filter(|suite| !chosen.contains(suite)).collect::<Vec<_>>(),
                );
            }
            // What there is not need not be taken away.
            None if taken_away => {}
            None => tracing::warn!(parameter, name, "there is no such cipher here; passed over"),
        }
    }
    match (list.trim_ascii().is_empty(), chosen.is_empty()) {
        (true, _) => Ok(all.collect()),
        (false, true) => Err(format!("{failed}: {list}")),
        (false, false) => Ok(chosen),
    }
}

/// Sessions that may be resumed: at most as many as `tls-session-cache-size` says, the
/// oldest go first, and none is older than `tls-session-cache-timeout`.
#[derive(Debug)]
struct Sessions {
    max: usize,
    lifetime: Duration,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    by_key: HashMap<Vec<u8>, (Instant, Vec<u8>)>,
    /// Keys in the order in which they came; some are gone already.
    order: VecDeque<Vec<u8>>,
}

/// What a size of 0, which is no limit in OpenSSL, stands for.
const SESSIONS_UNLIMITED: usize = 1 << 20;

impl Sessions {
    fn new(config: &Config) -> Self {
        let max = match config.number(Param::TlsSessionCacheSize) as usize {
            0 => SESSIONS_UNLIMITED,
            max => max,
        };
        let lifetime = config.number(Param::TlsSessionCacheTimeout) as u64;
        Self { max, lifetime: Duration::from_secs(lifetime), kept: Mutex::default() }
    }

    fn is_fresh(&self, since: Instant) -> bool {
        self.lifetime.is_zero() || since.elapsed() < self.lifetime
    }
}

impl StoresServerSessions for Sessions {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        let mut kept = self.kept.lock();
        while kept.order.len() >= self.max {
            let Some(oldest) = kept.order.pop_front() else { break };
            kept.by_key.remove(&oldest);
        }
        if kept.by_key.insert(key.clone(), (Instant::now(), value)).is_none() {
            kept.order.push_back(key);
        }
        true
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        let kept = self.kept.lock();
        let (since, value) = kept.by_key.get(key)?;
        self.is_fresh(*since).then(|| value.clone())
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        let (since, value) = self.kept.lock().by_key.remove(key)?;
        self.is_fresh(since).then_some(value)
    }

    fn can_cache(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_are_those_that_are_spoken() {
        let names =
            |list| protocols(list).map(|found| found.iter().map(|v| v.version).collect::<Vec<_>>());
        assert_eq!(names(""), Ok(vec![TLS13.version, TLS12.version]));
        assert_eq!(names("TLSv1.2"), Ok(vec![TLS12.version]));
        assert_eq!(names("TLSv1 tlsv1.3"), Ok(vec![TLS13.version]));
        assert!(names("TLSv1.1").is_err());
        assert!(names("SSLv3").unwrap_err().contains("'SSLv3'"));
    }

    #[test]
    fn ciphers_are_chosen_by_openssls_names() {
        let names = |list| chosen(list, CIPHERS, "tls-ciphers", "no");
        assert_eq!(names("").unwrap().len(), CIPHERS.len());
        assert_eq!(names("DEFAULT:!MEDIUM").unwrap().len(), CIPHERS.len());
        let one = "AES128-SHA:ECDHE-RSA-AES128-GCM-SHA256";
        assert_eq!(names(one).unwrap(), [CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]);
        assert_eq!(names("ALL:-ECDHE-RSA-CHACHA20-POLY1305").unwrap().len(), CIPHERS.len() - 1);
        assert_eq!(names("AES128-SHA"), Err("no: AES128-SHA".into()));
        assert_eq!(cipher_suites("", "").unwrap().len(), aws_lc_rs::ALL_CIPHER_SUITES.len());
    }

    #[test]
    fn sessions_are_bounded_in_number_and_in_time() {
        let sessions = |max, lifetime| Sessions { max, lifetime, kept: Mutex::default() };
        let few = sessions(2, Duration::from_mins(5));
        for key in 0..5u8 {
            assert!(few.put(vec![key], vec![key]));
        }
        assert_eq!(few.get(&[2]), None);
        assert_eq!(few.take(&[4]), Some(vec![4]));
        assert_eq!(few.take(&[4]), None);
        assert_eq!(few.get(&[3]), Some(vec![3]));
        let short = sessions(2, Duration::from_nanos(1));
        short.put(vec![1], vec![1]);
        assert_eq!(short.get(&[1]), None);
    }
}
