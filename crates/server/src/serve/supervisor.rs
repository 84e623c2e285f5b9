//! Whoever started the server and wants to know when it is ready: systemd, or upstart.
//!
//! systemd is told with a datagram to the socket that `NOTIFY_SOCKET` names (the
//! protocol of `sd_notify`); upstart waits until the process stops itself.

use crate::config::{Config, Param};
use rustix::process::{Signal, getpid, kill_process};
use std::env;
use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Who is to be told.
#[derive(Debug)]
pub(super) enum Supervisor {
    Nobody,
    Systemd(OsString),
    Upstart,
}

/// Words of `supervised`, by their place.
const UPSTART: i64 = 0;
const SYSTEMD: i64 = 1;
const AUTO: i64 = 2;

impl Supervisor {
    /// The one that the configuration names, if it is there.
    pub(super) fn find(config: &Config) -> Self {
        let wanted = config.number(Param::Supervised);
        let socket = env::var_os("NOTIFY_SOCKET").filter(|socket| !socket.is_empty());
        let upstart = env::var_os("UPSTART_JOB").is_some();
        match (wanted, socket) {
            (SYSTEMD | AUTO, Some(socket)) => Self::Systemd(socket),
            (UPSTART | AUTO, _) if upstart => Self::Upstart,
            (SYSTEMD, None) => {
                tracing::warn!("systemd supervision requested, but NOTIFY_SOCKET not found!");
                Self::Nobody
            }
            (UPSTART, _) => {
                tracing::warn!("upstart supervision requested, but UPSTART_JOB not found!");
                Self::Nobody
            }
            _ => Self::Nobody,
        }
    }

    /// Whether there is one: then the server stays in the foreground.
    pub(super) fn is_there(&self) -> bool {
        !matches!(self, Self::Nobody)
    }

    /// Clients are served from now on.
    pub(super) fn ready(&self) {
        match self {
            Self::Nobody => {}
            Self::Systemd(_) => self.tell("READY=1\nSTATUS=Ready to accept connections\n"),
            Self::Upstart => {
                if let Err(error) = kill_process(getpid(), Signal::STOP) {
                    tracing::warn!(%error, "cannot stop for upstart");
                }
            }
        }
    }

    /// The server ends.
    pub(super) fn stopping(&self) {
        self.tell("STOPPING=1\nSTATUS=Ending\n");
    }

    fn tell(&self, text: &str) {
        let Self::Systemd(socket) = self else { return };
        if let Err(error) = send(socket, text) {
            tracing::warn!(%error, socket = %socket.display(), "cannot notify systemd");
        }
    }
}

fn send(socket: &OsString, text: &str) -> io::Result<()> {
    let name = socket.as_bytes();
    let address = match name.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(text.as_bytes(), &address).map(drop)
}
