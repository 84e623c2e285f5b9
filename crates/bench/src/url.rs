//! A server's URL, as clients write it: `redis://[[user]:password@]host[:port][/database]`,
//! and `rediss://` for TLS.

use crate::endpoint::Endpoint;
use crate::tls::{Tls, TlsError, TlsOptions};

const DEFAULT_PORT: u16 = 6379;

/// Why a URL cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum UrlError {
    /// It cannot be read. It is shown without its password.
    #[error("'{url}': {why}")]
    Unreadable {
        /// The URL, without who enters.
        url: String,
        /// What is wrong.
        why: &'static str,
    },
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// Whether a text is meant as a URL and not as a file.
pub fn is_url(text: &str) -> bool {
    text.contains("://")
}

/// What a URL says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url<'u> {
    /// A name or an address, without brackets.
    pub host: String,
    /// 6379 if none is named.
    pub port: u16,
    /// Who enters, if not the default user.
    pub user: Option<String>,
    /// With what.
    pub password: Option<String>,
    /// Inside TLS.
    pub is_tls: bool,
    /// What follows the place and a slash: a database, or nothing.
    pub path: &'u str,
}

impl<'u> Url<'u> {
    /// Reads a URL; without a scheme it is `redis://`'s.
    pub fn read(url: &'u str) -> Result<Self, UrlError> {
        let wrong = |why| wrong(url, why);
        let (rest, is_tls) = match (url.strip_prefix("redis://"), url.strip_prefix("rediss://")) {
            (Some(rest), _) => (rest, false),
            (_, Some(rest)) => (rest, true),
            _ if is_url(url) => return Err(wrong("it is to begin with redis:// or rediss://")),
            _ => (url, false),
        };
        let (login, place) = match rest.rsplit_once('@') {
            Some((login, place)) => (Some(login), place),
            None => (None, rest),
        };
        let (place, path) = place.split_once('/').unwrap_or((place, ""));
        let (user, password) = match login.map(|login| login.split_once(':').unwrap_or(("", login)))
        {
            Some((user, password)) => {
                (Some(decoded(user)).filter(|user| !user.is_empty()), Some(decoded(password)))
            }
            None => (None, None),
        };
        let (host, port) = match place.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, "")) => (host, None),
            Some((host, port)) => (host, port.strip_prefix(':')),
            None => match place.rsplit_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (place, None),
            },
        };
        if host.is_empty() {
            return Err(wrong("the host is missing"));
        }
        let port = port.map_or(Ok(DEFAULT_PORT), str::parse).map_err(|_| wrong("a bad port"))?;
        Ok(Self { host: host.to_owned(), port, user, password, is_tls, path })
    }
}

/// What is wrong with a URL, which is shown without who enters.
pub fn wrong(url: &str, why: &'static str) -> UrlError {
    let url = match url.rsplit_once('@') {
        Some((_, place)) => format!("...@{place}"),
        None => url.to_owned(),
    };
    UrlError::Unreadable { url, why }
}

/// Reads a URL, and makes ready what it takes to go there.
pub fn parse(url: &str, tls: &TlsOptions) -> Result<Endpoint, UrlError> {
    let Url { host, port, user, password, is_tls, path } = Url::read(url)?;
    let database = if path.is_empty() { Ok(0) } else { path.parse() };
    let database = database.map_err(|_| wrong(url, "a bad number of a database"))?;
    let tls = is_tls.then(|| Tls::new(tls)).transpose()?;
    Ok(Endpoint { host, port, user, password, database, tls, ..Endpoint::local(port) })
}

/// Undoes `%40` and the like.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let hex = bytes.get(at + 1..at + 3).and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) if bytes[at] == b'%' => {
                out.push(byte);
                at += 3;
            }
            _ => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read() {
        let parse = |url: &str| parse(url, &TlsOptions::default());
        let plain = parse("redis://old").unwrap();
        assert_eq!((&*plain.host, plain.port, plain.password), ("old", 6379, None));
        let full = parse("redis://me:p%40ss:w@10.0.0.1:7000/3").unwrap();
        assert_eq!((full.address(), full.database), ("10.0.0.1:7000".into(), 3));
        assert_eq!(full.user.as_deref(), Some("me"));
        assert_eq!(full.password.as_deref(), Some("p@ss:w"));
        let password = parse("redis://:secret@[::1]:7000/").unwrap();
        assert_eq!((&*password.host, password.port), ("::1", 7000));
        assert_eq!((password.user, password.password.as_deref()), (None, Some("secret")));
        for url in ["http://old", "redis://:7", "redis://a:b:c@d:x", "redis://d/x"] {
            let why = parse(url).unwrap_err().to_string();
            assert!(!why.contains("a:b"), "a password is not shown: {why}");
        }
    }
}
