//! A connection to one of the two servers: a command, and its reply.

use crate::Failure;
use snug_bench::tls::{Tls, TlsOptions};
use snug_bench::transport::Transport;
use snug_bench::url::{self, Url, UrlError};
use snug_resp::{Value, ValueParser, append_command};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(30);

/// Where a server is, and how to get in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    /// Inside TLS.
    pub(crate) tls: bool,
}

impl Address {
    /// Reads a URL, which names no database.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let failed = |error: UrlError| Failure::Other(error.to_string());
        if text.matches("://").count() > 1 {
            // A URL behind a URL.
            return Err(failed(url::wrong(text, "it is to begin with redis:// or rediss://")));
        }
        let Url { host, port, user, password, is_tls: tls, path } =
            Url::read(text).map_err(failed)?;
        if !path.trim_end_matches('/').is_empty() {
            let why = "all databases are moved, so none is to be named";
            return Err(failed(url::wrong(text, why)));
        }
        Ok(Self { host, port, user, password, tls })
    }

    /// As it may be shown.
    pub(crate) fn name(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

/// A connection.
pub(crate) struct Client {
    pub(crate) address: Address,
    socket: Transport<TcpStream>,
    parser: ValueParser,
    received: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(address: &Address, tls: &TlsOptions) -> Result<Self, Failure> {
        let tls = address.tls.then(|| Tls::new(tls)).transpose();
        let tls = tls.map_err(|error| Failure::Other(error.to_string()))?;
        let unreachable = |why: &dyn ToString| Failure::Unreachable {
            server: address.name(),
            why: why.to_string(),
        };
        let places = (&*address.host, address.port).to_socket_addrs();
        let mut last = "the host has no address".to_owned();
        for place in places.map_err(|error| unreachable(&error))? {
            match TcpStream::connect_timeout(&place, TIMEOUT) {
                Ok(socket) => {
                    let set = socket.set_nodelay(true);
                    let set = set.and_then(|()| socket.set_read_timeout(Some(TIMEOUT)));
                    set.map_err(|error| unreachable(&error))?;
                    let socket = match &tls {
                        Some(tls) => tls.connect(&address.host, socket),
                        None => Ok(Transport::Plain(socket)),
                    };
                    let socket = socket.map_err(|error| unreachable(&error))?;
                    let (parser, received) = (ValueParser::new(), Vec::new());
                    let mut client = Self { address: address.clone(), socket, parser, received };
                    client.log_in()?;
                    return Ok(client);
                }
                Err(error) => last = error.to_string(),
            }
        }
        Err(unreachable(&last))
    }

    fn log_in(&mut self) -> Result<(), Failure> {
        let (user, password) = (self.address.user.clone(), self.address.password.clone());
        match (user, password) {
            (Some(user), Some(password)) => self.ask(&["AUTH", &user, &password]).map(drop),
            (None, Some(password)) => self.ask(&["AUTH", &password]).map(drop),
            _ => Ok(()),
        }
    }

    /// The reply to a command, which may be an error.
    pub(crate) fn call<A: AsRef<[u8]>>(&mut self, words: &[A]) -> Result<Value, Failure> {
        let server = self.address.name();
        let lost = |why: String| Failure::Unreachable { server: server.clone(), why };
        let mut bytes = Vec::new();
        append_command(&mut bytes, words);
        let sent = self.socket.write_all(&bytes).and_then(|()| self.socket.flush());
        sent.map_err(|error| lost(error.to_string()))?;
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let next = self.parser.next(&self.received);
            let (used, value) = next.map_err(|error| lost(error.to_string()))?;
            self.received.drain(..used);
            if let Some(value) = value {
                return Ok(value);
            }
            let read = self.socket.read(&mut buffer).map_err(|error| lost(error.to_string()))?;
            if read == 0 {
                return Err(lost("the connection was closed".into()));
            }
            self.received.extend_from_slice(&buffer[..read]);
        }
    }

    /// The reply to a command that is not to fail.
    pub(crate) fn ask<A: AsRef<[u8]>>(&mut self, words: &[A]) -> Result<Value, Failure> {
        match self.call(words)? {
            Value::Error(text) | Value::BulkError(text) => Err(Failure::Refused {
                server: self.address.name(),
                command: String::from_utf8_lossy(words[0].as_ref()).into_owned(),
                text: String::from_utf8_lossy(&text).into_owned(),
            }),
            value => Ok(value),
        }
    }

    /// A text; empty if the reply is none.
    pub(crate) fn text(&mut self, words: &[&str]) -> Result<String, Failure> {
        Ok(match self.ask(words)? {
            Value::Bulk(bytes) | Value::Simple(bytes) => {
                String::from_utf8_lossy(&bytes).into_owned()
            }
            _ => String::new(),
        })
    }

    /// The fields of sections of `INFO`.
    pub(crate) fn info(&mut self, section: &str) -> Result<Info, Failure> {
        let text = self.text(&["INFO", section])?;
        let fields = text.lines().filter_map(|line| line.trim_end().split_once(':'));
        Ok(Info(fields.map(|(name, value)| (name.into(), value.into())).collect()))
    }

    /// The value of a parameter, if it can be asked for.
    pub(crate) fn config(&mut self, name: &str) -> Result<Option<String>, Failure> {
        match self.call(&["CONFIG", "GET", name])? {
            Value::Array(mut pair) if pair.len() == 2 => Ok(pair.pop().and_then(text_of)),
            _ => Ok(None),
        }
    }
}

/// A value that is a text.
pub(crate) fn text_of(value: Value) -> Option<String> {
    match value {
        Value::Bulk(bytes) | Value::Simple(bytes) => {
            Some(String::from_utf8_lossy(&bytes).into_owned())
        }
        _ => None,
    }
}

/// Fields of `INFO`.
#[derive(Debug, Default)]
pub(crate) struct Info(pub(crate) HashMap<String, String>);

impl Info {
    pub(crate) fn text(&self, field: &str) -> &str {
        self.0.get(field).map_or("", |text| text)
    }

    pub(crate) fn number(&self, field: &str) -> u64 {
        self.text(field).parse().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let parse = |url: &str| Address::parse(url).map_err(|error| error.to_string());
        let plain = parse("redis://old").unwrap();
        assert_eq!(
            (&*plain.host, plain.port, plain.password, plain.tls),
            ("old", 6379, None, false)
        );
        assert!(parse("rediss://old").unwrap().tls);
        let full = parse("redis://me:p%40ss:w@10.0.0.1:7000/").unwrap();
        assert_eq!(full.name(), "10.0.0.1:7000");
        assert_eq!(full.user.as_deref(), Some("me"));
        assert_eq!(full.password.as_deref(), Some("p@ss:w"));
        let password = parse("redis://:secret@[::1]:7000").unwrap();
        assert_eq!((&*password.host, password.port), ("::1", 7000));
        assert_eq!((password.user, password.password.as_deref()), (None, Some("secret")));
        for url in ["ftp://old", "http://old", "redis://old/3", "redis://:7", "redis://a:b:c@d:x"] {
            let why = parse(url).unwrap_err();
            assert!(!why.contains("a:b"), "a password is not shown: {why}");
        }
    }
}
