//! `daemonize yes`: the server in the background, and its pid file.
//!
//! ```text
//!  snug serve --daemonize yes          the same program again, in a session of its own
//!    starts it, relays what it says  <--standard error--  starts as any server does
//!    waits                           <--a byte of 0-----  ready: gives standard error up
//!    ends: 0, or the other's code
//! ```
//!
//! So whoever starts a server in the background is told whether it runs, and if not,
//! why. Standard input and output are `/dev/null`: without `logfile` nothing is logged,
//! as in Redis.

use crate::config::{Config, Param};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

/// Tells the second process what it is.
const IN_BACKGROUND: &str = "SNUG_IN_BACKGROUND";

/// Whether this is the process in the background already.
pub(super) fn is_background() -> bool {
    std::env::var_os(IN_BACKGROUND).is_some()
}

/// Starts this program again in the background; what this process is to end with.
pub(super) fn start() -> io::Result<ExitCode> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(IN_BACKGROUND, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut said = child.stderr.take().map(io::Read::bytes);
    while let Some(byte) = said.as_mut().and_then(Iterator::next) {
        match byte? {
            0 => return Ok(ExitCode::SUCCESS),
            byte => io::stderr().write_all(&[byte])?,
        }
    }
    // It has ended, or it ends now.
    let code = child.wait()?.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(1)))
}

/// The process in the background leaves the session of who started it.
pub(super) fn leave_session() {
    // It fails for the leader of a group alone, who has left already.
    let _ = rustix::process::setsid();
}

/// Says that the server runs, and gives up standard error.
pub(super) fn say_ready() -> io::Result<()> {
    io::stderr().write_all(&[0])?;
    let nowhere = OpenOptions::new().write(true).open("/dev/null")?;
    rustix::stdio::dup2_stderr(&nowhere)?;
    Ok(())
}

/// The file with the process's id, removed when this is dropped.
#[derive(Debug)]
pub(super) struct PidFile(Option<PathBuf>);

impl PidFile {
    /// Writes the file that the configuration names, if it names one. The server runs
    /// without it too, as Redis does.
    pub(super) fn write(config: &Config) -> Self {
        if config.is_empty(Param::Pidfile) {
            return Self(None);
        }
        let path = config.path(Param::Pidfile);
        let written = File::create(&path).and_then(|mut f| writeln!(f, "{}", std::process::id()));
        match written {
            Ok(()) => Self(Some(std::path::absolute(&path).unwrap_or(path))),
            Err(error) => {
                tracing::warn!(file = %path.display(), %error, "Failed to write PID file");
                Self(None)
            }
        }
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}
