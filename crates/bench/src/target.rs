//! What a comparison compares: a running server, or a program that it starts on
//! named cores and a free port, and stops again.

use std::fs::{self, File};
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::affinity::Cores;
use crate::endpoint::Endpoint;

/// The longest a program may take to listen, and to end.
const START_MAX: Duration = Duration::from_secs(20);
const STOP_MAX: Duration = Duration::from_secs(10);

/// A named target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Its name in tables.
    pub name: String,
    /// What it is.
    pub kind: TargetKind,
}

/// What a target is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetKind {
    /// A server that runs already.
    Running {
        /// Host.
        host: String,
        /// Port.
        port: u16,
    },
    /// A program and its arguments.
    Program(Vec<String>),
}

/// Why a target cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// It cannot be read.
    #[error("'{0}' is no target: expected snug, NAME=PROGRAM [ARGUMENTS] or NAME=HOST:PORT")]
    Unreadable(String),
    /// The program did not start.
    #[error("cannot start {program}: {cause}")]
    Start {
        /// The program.
        program: String,
        /// What the system said.
        cause: io::Error,
    },
    /// The program started and did not listen.
    #[error("{program} did not come up: {last_line}")]
    Silent {
        /// The program.
        program: String,
        /// The last line that it wrote.
        last_line: String,
    },
}

impl Target {
    /// Reads `snug`, `redis=redis-server --io-threads 2`, `/opt/valkey-server`,
    /// `other=10.0.0.1:6379`.
    pub fn parse(text: &str) -> Result<Self, TargetError> {
        let unreadable = || TargetError::Unreadable(text.to_owned());
        let named = text.split_once('=').filter(|(name, _)| {
            !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "-_.+".contains(c))
        });
        let (name, value) = match named {
            Some((name, value)) => (Some(name.to_owned()), value),
            None => (None, text),
        };
        let words = shlex::split(value).ok_or_else(unreadable)?;
        let first = words.first().ok_or_else(unreadable)?;
        if let [address] = words.as_slice()
            && let Some((host, port)) = address.rsplit_once(':')
            && let Ok(port) = port.parse()
            && !host.is_empty()
        {
            let name = name.unwrap_or_else(|| address.clone());
            return Ok(Self { name, kind: TargetKind::Running { host: host.to_owned(), port } });
        }
        let name = name.unwrap_or_else(|| program_name(first).trim_end_matches("-server").into());
        Ok(Self { name, kind: TargetKind::Program(words) })
    }

    /// Whether it is started anew for every round.
    pub fn is_program(&self) -> bool {
        matches!(self.kind, TargetKind::Program(_))
    }

    /// Makes it ready: a program is started on `server_cores`, while the calling
    /// thread stays on `load_cores`.
    pub fn start(&self, server_cores: &Cores, load_cores: &Cores) -> Result<Server, TargetError> {
        match &self.kind {
            TargetKind::Running { host, port } => {
                let mut endpoint = Endpoint::local(*port);
                endpoint.host.clone_from(host);
                Ok(Server { endpoint, program: None })
            }
            TargetKind::Program(words) => start_program(words, server_cores, load_cores),
        }
    }
}

fn program_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// A target that is ready; a program is stopped when this is dropped.
#[derive(Debug)]
pub struct Server {
    /// Where it is.
    pub endpoint: Endpoint,
    program: Option<RunningProgram>,
}

#[derive(Debug)]
struct RunningProgram {
    child: Child,
    /// Its working directory, with its log.
    directory: PathBuf,
}

/// The program and the arguments that make it listen there and keep nothing.
fn command_line(words: &[String], port: u16, directory: &Path) -> io::Result<Vec<String>> {
    let mut line = words.to_vec();
    let program = program_name(&words[0]).to_owned();
    let port = port.to_string();
    let directory = directory.display().to_string();
    let mut push = |words: &[&str]| line.extend(words.iter().map(|&word| word.to_owned()));
    if program == "snug" {
        let given_serve = words.get(1).is_some_and(|word| word == "serve");
        if words[0] == "snug" {
            line[0] = std::env::current_exe()?.display().to_string();
        }
        if !given_serve {
            line.insert(1, "serve".into());
        }
        let own = ["--port", &port, "--bind", "127.0.0.1", "--dir", &directory];
        line.extend(own.map(str::to_owned));
    } else if program.starts_with("dragonfly") {
        push(&["--port", &port, "--bind", "127.0.0.1", "--dir", &directory, "--dbfilename="]);
    } else {
        push(&["--port", &port, "--bind", "127.0.0.1", "--dir", &directory]);
        push(&["--save", "", "--appendonly", "no", "--enable-debug-command", "local"]);
    }
    Ok(line)
}

fn start_program(words: &[String], server: &Cores, load: &Cores) -> Result<Server, TargetError> {
    let program = words[0].clone();
    let start_error = |cause| TargetError::Start { program: program.clone(), cause };
    let directory = fresh_directory().map_err(start_error)?;
    let port = free_port().map_err(start_error)?;
    let line = command_line(words, port, &directory).map_err(start_error)?;
    let log_path = directory.join("log");
    let log = File::create(&log_path).map_err(start_error)?;
    let errors = log.try_clone().map_err(start_error)?;
    // A child inherits the affinity of the thread that starts it.
    server.confine().map_err(start_error)?;
    let spawned = Command::new(&line[0])
        .args(&line[1..])
        .current_dir(&directory)
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        .spawn();
    load.confine().map_err(start_error)?;
    let child = match spawned {
        Ok(child) => child,
        Err(cause) => {
            let _ = fs::remove_dir_all(&directory);
            return Err(start_error(cause));
        }
    };
    let mut server = Server {
        endpoint: Endpoint::local(port),
        program: Some(RunningProgram { child, directory }),
    };
    let started = Instant::now();
    while server.endpoint.open().is_err() {
        if server.has_ended() || started.elapsed() > START_MAX {
            let last_line = last_line(&log_path);
            return Err(TargetError::Silent { program, last_line });
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(server)
}

fn last_line(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let line = text.lines().rev().find(|line| !line.trim().is_empty());
    line.unwrap_or("it wrote nothing").trim().to_owned()
}

fn fresh_directory() -> io::Result<PathBuf> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    let directory =
        std::env::temp_dir().join(format!("snug-compare-{}-{next}", std::process::id()));
    fs::create_dir_all(&directory)?;
    Ok(directory)
}

fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

impl Server {
    /// Whether the program has ended by itself.
    fn has_ended(&mut self) -> bool {
        self.program.as_mut().is_some_and(|program| !matches!(program.child.try_wait(), Ok(None)))
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        // Asked first, so that a profiler or sanitizer around it can finish.
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let asked = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if asked.elapsed() > STOP_MAX {
                let _ = self.child.kill();
                let _ = self.child.wait();
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(words: &[&str]) -> TargetKind {
        TargetKind::Program(words.iter().map(|&word| word.to_owned()).collect())
    }

    #[test]
    fn targets_are_read() {
        let read = |text| Target::parse(text).map(|target| (target.name, target.kind)).unwrap();
        assert_eq!(read("snug"), ("snug".into(), program(&["snug"])));
        assert_eq!(
            read("r2=redis-server --io-threads 2"),
            ("r2".into(), program(&["redis-server", "--io-threads", "2"]))
        );
        assert_eq!(read("/opt/valkey-server"), ("valkey".into(), program(&["/opt/valkey-server"])));
        let running = TargetKind::Running { host: "db".into(), port: 6379 };
        assert_eq!(read("x=db:6379"), ("x".into(), running.clone()));
        assert_eq!(read("db:6379"), ("db:6379".into(), running));
        assert!(Target::parse("").is_err());
        assert!(Target::parse("a='b").is_err());
    }

    #[test]
    fn snug_is_this_program_serving() {
        let words = ["snug".to_owned(), "--workers".into(), "2".into()];
        let line = command_line(&words, 7000, Path::new("/tmp/x")).unwrap();
        assert!(Path::new(&line[0]).is_absolute());
        let expected = "serve --workers 2 --port 7000 --bind 127.0.0.1 --dir /tmp/x";
        assert_eq!(line[1..].join(" "), expected);
    }

    #[test]
    fn a_program_that_is_missing_or_ends_is_one_clear_line() {
        let cores = Cores::allowed().unwrap();
        let fail = |text| {
            Target::parse(text).unwrap().start(&cores, &cores).map(|_| ()).unwrap_err().to_string()
        };
        assert!(fail("/nonexistent/redis-server").starts_with("cannot start /nonexistent/"));
        let ended = fail("x=sh -c 'echo bad option; exit 1'");
        assert_eq!(ended, "sh did not come up: bad option");
    }
}
