//! Certificates and keys, as files in PEM hold them.
//!
//! A key may be encrypted as PKCS#8 has it (`openssl genpkey -aes256`, and `genrsa
//! -aes256` of OpenSSL 3). Errors are one line that names the file and never show what
//! is in it.

use pkcs8::EncryptedPrivateKeyInfoRef;
use pkcs8::der::Decode;
use rustls::pki_types::pem::{self, PemObject, SectionKind};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{RootCertStore, sign::CertifiedKey};
use std::path::Path;
use x509_cert::Certificate;
use x509_cert::der::Encode as _;

/// What is wrong with a file.
fn bad(file: &Path, why: impl std::fmt::Display) -> String {
    format!("{}: {why}", file.display())
}

/// The certificates of a file, at least one.
pub(super) fn chain(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(file).map_err(|e| bad(file, e))?;
    let read = read.collect::<Result<Vec<_>, _>>().map_err(|e| bad(file, e))?;
    if read.is_empty() { Err(bad(file, "it holds no certificate")) } else { Ok(read) }
}

/// The first private key of a file, decrypted if need be.
pub(super) fn key(file: &Path, pass: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    let sections = <(SectionKind, Vec<u8>)>::pem_file_iter(file).map_err(|e| bad(file, e))?;
    for section in sections {
        let (kind, der) = section.map_err(|e| bad(file, e))?;
        if let Some(key) = <PrivateKeyDer<'static> as PemObject>::from_pem(kind, der) {
            return Ok(key);
        }
    }
    let text = std::fs::read(file).map_err(|e| bad(file, e))?;
    let Some(encrypted) = encrypted_key(&text) else {
        return Err(bad(file, "it holds no private key"));
    };
    if pass.is_empty() {
        return Err(bad(file, "the key is encrypted and there is no pass phrase for it"));
    }
    let encrypted = EncryptedPrivateKeyInfoRef::from_der(&encrypted).map_err(|e| bad(file, e))?;
    let plain =
        encrypted.decrypt(pass).map_err(|e| bad(file, format!("cannot decrypt it: {e}")))?;
    Ok(PrivatePkcs8KeyDer::from(plain.as_bytes().to_vec()).into())
}

/// The encrypted key in a PEM file: what the section that is called so holds.
fn encrypted_key(text: &[u8]) -> Option<Vec<u8>> {
    struct Encrypted(Vec<u8>);
    impl PemObject for Encrypted {
        fn from_pem(_: SectionKind, der: Vec<u8>) -> Option<Self> {
            Some(Self(der))
        }
    }
    // The parser of sections knows no encrypted keys: it is told that this is a plain one.
    let text = String::from_utf8_lossy(text);
    let text = text.replace("ENCRYPTED PRIVATE KEY", "PRIVATE KEY");
    let found: Result<Encrypted, pem::Error> = Encrypted::from_pem_slice(text.as_bytes());
    found.ok().map(|encrypted| encrypted.0)
}

/// Authorities: those of a file, and those of all files in a folder. Files there that
/// hold none are passed over, as are those that cannot be read as an authority.
pub(super) fn authorities(file: &Path, folder: &Path) -> Result<RootCertStore, String> {
    let mut store = RootCertStore::empty();
    if !file.as_os_str().is_empty() {
        for certificate in chain(file)? {
            store.add(certificate).map_err(|e| bad(file, e))?;
        }
    }
    if !folder.as_os_str().is_empty() {
        for entry in std::fs::read_dir(folder).map_err(|e| bad(folder, e))?.flatten() {
            if entry.path().is_file()
                && let Ok(certificates) = chain(&entry.path())
            {
                store.add_parsable_certificates(certificates);
            }
        }
        if store.is_empty() {
            return Err(bad(folder, "no file in it holds a certificate of an authority"));
        }
    }
    Ok(store)
}

/// Whether certificate and key belong together. A certificate of any version will do:
/// it is clients who judge it.
pub(super) fn check_pair(pair: &CertifiedKey) -> Result<(), String> {
    let certificate = pair.end_entity_cert().map_err(|e| e.to_string())?;
    let certificate = Certificate::from_der(certificate)
        .map_err(|e| format!("the certificate cannot be read: {e}"))?;
    let of_certificate = certificate.tbs_certificate().subject_public_key_info().to_der();
    let of_certificate = of_certificate.map_err(|e| e.to_string())?;
    match pair.key.public_key() {
        Some(of_key) if of_key.as_ref() != of_certificate => {
            Err("certificate and private key do not belong together".into())
        }
        _ => Ok(()),
    }
}

/// The common name of a certificate's subject, if it is text.
pub(super) fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let certificate = Certificate::from_der(certificate).ok()?;
    let name = certificate.tbs_certificate().subject().common_name().ok()??;
    Some(name.value().into_owned())
}
