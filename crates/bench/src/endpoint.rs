//! Where a server is, and a blocking connection to it for everything that is not
//! load: greeting, `INFO`, `DEBUG POPULATE`, the odd sample.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use crate::interrupt;
use crate::reply::BULK_BYTES_MAX;
use crate::request::write_request;
use crate::tls::Tls;
use crate::transport::Transport;

/// The longest a greeting or a control command may take to begin answering; and
/// once the user wants an end.
const CONTROL_TIMEOUT: Duration = Duration::from_mins(1);
const CONTROL_TIMEOUT_STOPPED: Duration = Duration::from_secs(1);
/// How often a control connection that waits looks whether the user wants an end.
const LOOK_UP: Duration = Duration::from_millis(100);
/// The longest a server may take for each of its parts of a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How deep a control connection takes a server's values.
const VALUE_DEPTH_MAX: u32 = 16;

/// A server's address and how to enter.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// Name or address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// User of `AUTH user password`; the default user if none.
    pub user: Option<String>,
    /// Password, if one is needed.
    pub password: Option<String>,
    /// Logical database.
    pub database: u32,
    /// Protocol to ask for: 2 or 3.
    pub resp: u8,
    /// TLS, if the server wants it.
    pub tls: Option<Tls>,
}

/// Why a server cannot be talked to.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The name does not resolve, or nothing listens.
    #[error("cannot reach {address}: {cause}")]
    Unreachable {
        /// As given.
        address: String,
        /// What the system said.
        cause: io::Error,
    },
    /// It listens and does not let us in.
    #[error("{address} refused the connection: {reply}")]
    Refused {
        /// As given.
        address: String,
        /// The server's words.
        reply: String,
    },
    /// It listens and TLS does not come about.
    #[error("no TLS with {address}: {cause}")]
    Tls {
        /// As given.
        address: String,
        /// What is wrong.
        cause: String,
    },
    /// It stopped talking.
    #[error("lost the connection to {address}: {cause}")]
    Lost {
        /// As given.
        address: String,
        /// What the system said.
        cause: io::Error,
    },
    /// It answered with an error.
    #[error("{command}: {reply}")]
    Reply {
        /// What was asked.
        command: String,
        /// The server's words.
        reply: String,
    },
}

/// A reply as a value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// No value.
    Nil,
    /// An integer.
    Integer(i64),
    /// A simple or bulk string, or any other scalar as its text.
    Text(Vec<u8>),
    /// An error.
    Error(String),
    /// An array, set, push, or map (key after key).
    List(Vec<Value>),
}

impl Value {
    /// The integer, or the text read as one.
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Value::Integer(number) => u64::try_from(*number).ok(),
            Value::Text(text) => std::str::from_utf8(text).ok()?.parse().ok(),
            _ => None,
        }
    }

    /// The text, lossily as UTF-8.
    pub fn text(&self) -> String {
        match self {
            Value::Text(text) => String::from_utf8_lossy(text).into_owned(),
            Value::Integer(number) => number.to_string(),
            Value::Error(text) => text.clone(),
            Value::Nil | Value::List(_) => String::new(),
        }
    }
}

impl Endpoint {
    /// 127.0.0.1 at that port.
    pub fn local(port: u16) -> Self {
        Self {
            host: "127.0.0.1".into(),
            port,
            user: None,
            password: None,
            database: 0,
            resp: 2,
            tls: None,
        }
    }

    /// `host:port`.
    pub fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// Whether the server is on this machine, so that its process can be seen.
    pub fn is_local(&self) -> bool {
        (self.host.as_str(), self.port)
            .to_socket_addrs()
            .is_ok_and(|mut addresses| addresses.all(|address| address.ip().is_loopback()))
    }

    fn connect(&self) -> Result<TcpStream, ControlError> {
        let unreachable = |cause| ControlError::Unreachable { address: self.address(), cause };
        let addresses = (self.host.as_str(), self.port).to_socket_addrs().map_err(unreachable)?;
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in addresses {
            match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
                Ok(stream) => {
                    stream.set_nodelay(true).map_err(unreachable)?;
                    return Ok(stream);
                }
                Err(error) => last = error,
            }
        }
        Err(unreachable(last))
    }

    /// What a failed handshake most likely means.
    fn explain_tls(cause: &io::Error) -> String {
        match cause.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
                "it hung up: does it speak TLS on this port?".into()
            }
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                "no answer in 5 s: does it speak TLS on this port?".into()
            }
            _ => cause.to_string(),
        }
    }

    /// Connects, authenticates and selects the database.
    pub fn open(&self) -> Result<Control, ControlError> {
        let stream = self.connect()?;
        let lost = |cause| ControlError::Lost { address: self.address(), cause };
        stream.set_read_timeout(Some(HANDSHAKE_TIMEOUT)).map_err(lost)?;
        stream.set_write_timeout(Some(CONTROL_TIMEOUT)).map_err(lost)?;
        let stream = match &self.tls {
            Some(tls) => tls.connect(&self.host, stream).map_err(|cause| ControlError::Tls {
                address: self.address(),
                cause: Self::explain_tls(&cause),
            })?,
            None => Transport::Plain(stream),
        };
        let mut stream = Patient { stream, limit: CONTROL_TIMEOUT };
        stream.stream.socket().set_read_timeout(Some(LOOK_UP)).map_err(lost)?;
        let mut control =
            Control { address: self.address(), stream: BufReader::new(stream), lost: false };
        if let Some(password) = &self.password {
            match &self.user {
                Some(user) => control.greet(&["AUTH", user, password])?,
                None => control.greet(&["AUTH", password])?,
            }
        }
        if self.resp == 3 {
            control.greet(&["HELLO", "3"])?;
        }
        if self.database != 0 {
            control.greet(&["SELECT", &self.database.to_string()])?;
        }
        // A server that wants a password says so to the first real command; whoever
        // may not even ask this has been let in.
        match control.greet(&["PING"]) {
            Err(ControlError::Refused { reply, .. }) if reply.starts_with("NOPERM") => Ok(control),
            other => other.map(|()| control),
        }
    }
}

/// A blocking connection.
#[derive(Debug)]
pub struct Control {
    address: String,
    stream: BufReader<Patient>,
    /// An answer did not come, or was not understood: no more is asked.
    lost: bool,
}

/// A connection that is read with patience, and with little once the user wants an
/// end: its socket's own limit is [`LOOK_UP`].
#[derive(Debug)]
struct Patient {
    stream: Transport<TcpStream>,
    limit: Duration,
}

impl Read for Patient {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let began = Instant::now();
        loop {
            match self.stream.read(into) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return other,
            }
            let limit = match interrupt::requested() {
                true => self.limit.min(CONTROL_TIMEOUT_STOPPED),
                false => self.limit,
            };
            if began.elapsed() >= limit {
                let what = format!("no answer in {} s", limit.as_secs());
                return Err(io::Error::new(io::ErrorKind::TimedOut, what));
            }
        }
    }
}

impl Control {
    fn greet(&mut self, words: &[&str]) -> Result<(), ControlError> {
        match self.send(words)? {
            Value::Error(reply) => {
                Err(ControlError::Refused { address: self.address.clone(), reply })
            }
            _ => Ok(()),
        }
    }

    /// Sends one command and returns its reply, an error reply as a value.
    pub fn send(&mut self, words: &[&str]) -> Result<Value, ControlError> {
        let arguments: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let mut request = Vec::new();
        write_request(&mut request, &arguments);
        // A reply that comes after all would be taken for that of another command.
        let result = match self.lost {
            true => Err(io::Error::new(io::ErrorKind::NotConnected, "it was given up")),
            false => self.exchange(&request),
        };
        self.lost = result.is_err();
        result.map_err(|cause| ControlError::Lost { address: self.address.clone(), cause })
    }

    fn exchange(&mut self, request: &[u8]) -> io::Result<Value> {
        let stream = &mut self.stream.get_mut().stream;
        stream.write_all(request)?;
        stream.flush()?;
        loop {
            let (value, push) = read_value(&mut self.stream, 0)?;
            if !push {
                return Ok(value);
            }
        }
    }

    /// Sends requests that are written already and reads that many replies: fewer bytes
    /// of requests than a socket takes without being read.
    pub fn pipeline(
        &mut self,
        requests: &[u8],
        replies: usize,
    ) -> Result<Vec<Value>, ControlError> {
        let mut exchange = || -> io::Result<Vec<Value>> {
            let stream = &mut self.stream.get_mut().stream;
            stream.write_all(requests)?;
            stream.flush()?;
            let mut values = Vec::with_capacity(replies);
            while values.len() < replies {
                let (value, push) = read_value(&mut self.stream, 0)?;
                if !push {
                    values.push(value);
                }
            }
            Ok(values)
        };
        let result = exchange();
        self.lost |= result.is_err();
        result.map_err(|cause| ControlError::Lost { address: self.address.clone(), cause })
    }

    /// Sends one command; an error reply is an error.
    pub fn call(&mut self, words: &[&str]) -> Result<Value, ControlError> {
        match self.send(words)? {
            Value::Error(reply) => Err(ControlError::Reply { command: words.join(" "), reply }),
            value => Ok(value),
        }
    }

    /// Waits up to `limit` for replies instead of the usual minute.
    pub fn set_patience(&mut self, limit: Duration) {
        self.stream.get_mut().limit = limit;
    }

    /// The connection, for load: nothing may have been read ahead.
    pub fn into_stream(self) -> Transport<TcpStream> {
        debug_assert!(self.stream.buffer().is_empty());
        self.stream.into_inner().stream
    }
}

/// Reads one value; the flag says that it was a push.
fn read_value(stream: &mut impl BufRead, depth: u32) -> io::Result<(Value, bool)> {
    let bad = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    if depth > VALUE_DEPTH_MAX {
        return Err(bad("the reply nests too deep"));
    }
    let mut line = Vec::new();
    stream.by_ref().take(64 * 1024).read_until(b'\n', &mut line)?;
    if !line.ends_with(b"\n") {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed it"));
    }
    while matches!(line.last(), Some(b'\n' | b'\r')) {
        line.pop();
    }
    let (&kind, text) = line.split_first().ok_or_else(|| bad("an empty line is no reply"))?;
    let length = || -> io::Result<Option<u64>> {
        let number: i64 = std::str::from_utf8(text)
            .ok()
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| bad("a length is not a number"))?;
        match u64::try_from(number) {
            Ok(number) if number <= BULK_BYTES_MAX => Ok(Some(number)),
            Ok(_) => Err(bad("the reply is too large")),
            Err(_) => Ok(None),
        }
    };
    let value = match kind {
        b'-' => Value::Error(String::from_utf8_lossy(text).into_owned()),
        b':' => std::str::from_utf8(text)
            .ok()
            .and_then(|text| text.parse().ok())
            .map_or(Value::Nil, Value::Integer),
        b'_' => Value::Nil,
        b'+' | b',' | b'#' | b'(' => Value::Text(text.to_vec()),
        b'$' | b'=' | b'!' => match length()? {
            None => Value::Nil,
            Some(bytes) => {
                let mut payload = Vec::new();
                stream.by_ref().take(bytes + 2).read_to_end(&mut payload)?;
                if payload.len() as u64 != bytes + 2 {
                    return Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "the server closed it",
                    ));
                }
                payload.truncate(bytes as usize);
                if kind == b'=' {
                    // A verbatim string names its format first: `txt:`.
                    payload.drain(..payload.len().min(4));
                }
                if kind == b'!' {
                    Value::Error(String::from_utf8_lossy(&payload).into_owned())
                } else {
                    Value::Text(payload)
                }
            }
        },
        b'*' | b'~' | b'>' | b'%' => match length()? {
            None => Value::Nil,
            Some(parts) => {
                let parts = if kind == b'%' { parts * 2 } else { parts };
                let mut list = Vec::new();
                for _ in 0..parts {
                    list.push(read_value(stream, depth + 1)?.0);
                }
                Value::List(list)
            }
        },
        _ => return Err(bad("the server does not speak RESP")),
    };
    Ok((value, kind == b'>'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> io::Result<Value> {
        read_value(&mut io::BufReader::new(bytes), 0).map(|(value, _)| value)
    }

    #[test]
    fn values_of_both_protocols_are_read() {
        let list = read(b"*3\r\n:7\r\n$2\r\nhi\r\n*-1\r\n").unwrap();
        assert_eq!(
            list,
            Value::List(vec![Value::Integer(7), Value::Text(b"hi".to_vec()), Value::Nil])
        );
        assert_eq!(read(b"=9\r\ntxt:hello\r\n").unwrap(), Value::Text(b"hello".to_vec()));
        let map = read(b"%1\r\n+a\r\n,1.5\r\n").unwrap();
        assert_eq!(
            map,
            Value::List(vec![Value::Text(b"a".to_vec()), Value::Text(b"1.5".to_vec())])
        );
    }

    #[test]
    fn claims_that_cannot_be_kept_are_errors() {
        assert!(read(b"$99999999999\r\n").is_err());
        assert!(read(b"$5\r\nab").is_err());
        assert!(read(b"HTTP/1.1\r\n").is_err());
        assert!(read(&b"*1\r\n".repeat(100)).is_err());
    }
}
