//! Open files: how many the process may have, so that neither clients nor those who
//! watch the server are left hanging when there are no more.
//!
//! ```text
//!  limit of open files
//!  |<------------------ maxclients ------------------>|<------ reserved ------>|
//!   one for each client                                the server's own, and
//!                                                      those of the admin port
//! ```
//!
//! The limit is raised to what `maxclients` needs, or `maxclients` is lowered to what
//! the limit lets be: a client too many is told so, and what is reserved stays free.
//! Should descriptors run out all the same, for all of the machine perhaps, one of the
//! [`Spares`] is given up to tell the next client.

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::SockRef;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Connections that the admin port serves at once.
pub(crate) const ADMIN_CONNECTIONS_MAX: usize = 32;

/// Descriptors that the admin port may need: its connections, and some to be refused.
pub(crate) const ADMIN: usize = ADMIN_CONNECTIONS_MAX + 4;

/// What Redis reserves: files, pipes, sockets that are about to be refused.
const OWN: u64 = 32;
/// For each worker: its event queue and timers, its listening sockets and a spare.
const EACH_WORKER: u64 = 8;

/// The descriptors that clients leave to the server itself.
pub(crate) fn reserved(workers: usize, admin_connections: usize) -> u64 {
    OWN + EACH_WORKER * workers as u64 + admin_connections as u64
}

/// The clients that there may be of those wanted, with the limit of open files
/// raised to what they need as far as it can be. Fewer, and why, are told in the log
/// in Redis's words. The error is one line.
pub(crate) fn fit(clients: u64, reserved: u64) -> Result<u64, String> {
    let limit = getrlimit(Resource::Nofile);
    let wanted = clients + reserved;
    let Some(before) = limit.current.filter(|&now| now < wanted) else { return Ok(clients) };
    let (now, refused) = match raise(limit, wanted) {
        Ok(()) => (wanted, None),
        // As far as anybody may.
        Err(error) => match limit.maximum.filter(|&most| most > before && most < wanted) {
            Some(most) if raise(limit, most).is_ok() => (most, Some(error)),
            _ => (before, Some(error)),
        },
    };
    let Some(error) = refused else {
        tracing::info!(
            "Increased maximum number of open files to {wanted} (it was originally set to {before})."
        );
        return Ok(clients);
    };
    let Some(fewer) = now.checked_sub(reserved).filter(|&fewer| fewer > 0) else {
        return Err(format!(
            "Your current 'ulimit -n' of {before} is not enough for the server to start. Please increase your open file limit to at least {wanted}. Exiting."
        ));
    };
    tracing::warn!(
        "You requested maxclients of {clients} requiring at least {wanted} max file descriptors."
    );
    tracing::warn!("Server can't set maximum open files to {wanted} because of OS error: {error}.");
    tracing::warn!(
        "Current maximum open files is {now}. maxclients has been reduced to {fewer} to compensate for low ulimit. If you need higher maxclients increase 'ulimit -n'."
    );
    Ok(fewer)
}

/// Raises the limit; above the hard one if the process may.
fn raise(limit: Rlimit, to: u64) -> rustix::io::Result<()> {
    let maximum = limit.maximum.map(|most| most.max(to));
    setrlimit(Resource::Nofile, Rlimit { current: Some(to), maximum })
}

/// Whether an error says that there are no more descriptors, for the process or for
/// the whole machine.
pub(crate) fn ran_out(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

/// Descriptors that are kept for the moment when there are no others: one for each worker,
/// and one for the admin port. They are everybody's: whoever closes something makes good
/// what another gave up, and whoever has got a descriptor that was given up for another
/// finds out by [`refill`](Self::refill) and serves nobody with it.
#[derive(Debug)]
pub(crate) struct Spares {
    kept: Mutex<Vec<File>>,
    missing: AtomicUsize,
}

impl Spares {
    pub(crate) fn new(number: usize) -> Self {
        let spares = Self { kept: Mutex::default(), missing: AtomicUsize::new(number) };
        spares.refill();
        spares
    }

    /// Takes again what was given up, as far as there are descriptors; whether all are there.
    pub(crate) fn refill(&self) -> bool {
        if self.missing.load(Relaxed) == 0 {
            return true;
        }
        let mut kept = self.kept.lock();
        while self.missing.load(Relaxed) > 0 {
            match File::open("/dev/null") {
                Ok(file) => kept.push(file),
                // Where it is not to be had for another reason, nothing can be kept.
                Err(error) => return !ran_out(&error),
            }
            self.missing.fetch_sub(1, Relaxed);
        }
        true
    }

    /// Makes a descriptor free; false if there was none to give up.
    fn give_up(&self) -> bool {
        let mut kept = self.kept.lock();
        let given = kept.pop().is_some();
        if given {
            self.missing.fetch_add(1, Relaxed);
        }
        given
    }

    /// Makes a descriptor free for somebody who will keep it for a while: one at a time.
    pub(crate) fn lend(&self) -> bool {
        self.refill() && self.give_up()
    }

    /// Accepts the next connection, tells it why it is closed, and closes it; false
    /// if that could not be done.
    pub(crate) fn turn_away(&self, listener: &impl AsFd, why: &[u8]) -> bool {
        self.refill();
        let accepted = self.give_up().then(|| SockRef::from(listener).accept());
        let told = match accepted {
            // A new socket has room for a line: this does not wait.
            Some(Ok((socket, _))) => socket.send(why).is_ok(),
            _ => false,
        };
        self.refill();
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn who_cannot_be_served_is_told() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let spares = Spares::new(2);
        assert!(spares.turn_away(&listener, b"-ERR full\r\n"));
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        assert_eq!(text, "-ERR full\r\n");
        listener.set_nonblocking(true).unwrap();
        assert!(!spares.turn_away(&listener, b""), "nobody waits");
        assert_eq!(spares.missing.load(Relaxed), 0, "they are there again");
    }
}
