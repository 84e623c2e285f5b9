//! What a comparison compares: a running server, or a program that it starts on
//! named cores and a free port, and stops again.
//!
//! A program ends when its [`Server`] is dropped, on the second Ctrl-C
//! ([`kill_programs`]), and when this program dies otherwise ([`die_with_this`]); but
//! for that last case, its folder goes with it.

use std::fs::{self, File};
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{Access, access};
use rustix::process::{Pid, Signal, kill_process};

use crate::affinity::Cores;
use crate::cluster;
use crate::death_signal::die_with_this;
use crate::endpoint::Endpoint;
use crate::interrupt;

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
    /// Its nodes did not become a cluster.
    #[error("no cluster of {nodes} {program}: {cause}")]
    Cluster {
        /// The program.
        program: String,
        /// How many were started.
        nodes: usize,
        /// What a node answered.
        cause: String,
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

    /// Whether there is such a program, before anything is measured.
    pub fn check(&self) -> Result<(), TargetError> {
        let TargetKind::Program(words) = &self.kind else { return Ok(()) };
        let program = words[0].as_str();
        let found = match program {
            "snug" => Ok(()),
            path if path.contains('/') => executable(Path::new(path)),
            name => {
                let folders = std::env::var_os("PATH").unwrap_or_default();
                let mut places = std::env::split_paths(&folders).map(|folder| folder.join(name));
                let any = places.any(|path| executable(&path).is_ok());
                if any { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
            }
        };
        found.map_err(|cause| TargetError::Start { program: program.to_owned(), cause })
    }

    /// Makes it ready: a program is started on `server_cores`, while the calling
    /// thread stays on `load_cores`. With `nodes`, that many are started and made
    /// into a cluster. `access` says how to enter a server that runs already.
    pub fn start(
        &self,
        server_cores: &Cores,
        load_cores: &Cores,
        nodes: Option<usize>,
        access: &Endpoint,
    ) -> Result<Server, TargetError> {
        let words = match &self.kind {
            TargetKind::Running { host, port } => {
                let endpoint = Endpoint { host: host.clone(), port: *port, ..access.clone() };
                return Ok(Server { endpoint, _programs: Vec::new() });
            }
            TargetKind::Program(words) => words,
        };
        let mut endpoints = Vec::new();
        let mut programs = Vec::new();
        for _ in 0..nodes.unwrap_or(1) {
            let started = start_program(words, server_cores, load_cores, nodes.is_some())?;
            endpoints.push(started.0);
            programs.push(started.1);
        }
        if nodes.is_some() {
            cluster::form(&endpoints).map_err(|cause| TargetError::Cluster {
                program: words[0].clone(),
                nodes: endpoints.len(),
                cause,
            })?;
        }
        Ok(Server { endpoint: endpoints.swap_remove(0), _programs: programs })
    }
}

/// Whether a file can be run.
fn executable(path: &Path) -> io::Result<()> {
    access(path, Access::EXEC_OK)?;
    if path.is_dir() { Err(io::ErrorKind::IsADirectory.into()) } else { Ok(()) }
}

fn program_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// A target that is ready; programs are stopped when this is dropped.
#[derive(Debug)]
pub struct Server {
    /// Where it is; a cluster's first node.
    pub endpoint: Endpoint,
    _programs: Vec<RunningProgram>,
}

/// A program of [`RUNNING`], until it is dropped.
#[derive(Debug)]
struct RunningProgram(Arc<Program>);

#[derive(Debug)]
struct Program {
    child: Mutex<Child>,
    directory: Scratch,
}

/// A program's working directory, with its log; gone when this is dropped.
#[derive(Debug)]
struct Scratch(PathBuf);

/// Every program that runs, for [`kill_programs`]. Locked from before a program's
/// folder is made until the program is in it: nothing can be missed.
static RUNNING: Mutex<Vec<Arc<Program>>> = Mutex::new(Vec::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kills every program that runs and removes their folders; none is started after
/// it. Returns whether there was one.
pub fn kill_programs() -> bool {
    let running = lock(&RUNNING);
    for program in running.iter() {
        let mut child = lock(&program.child);
        let _ = child.kill();
        let _ = child.wait();
        program.directory.remove();
    }
    !running.is_empty()
}

/// The program and the arguments that make it listen there and keep nothing.
fn command_line(
    words: &[String],
    port: u16,
    directory: &Path,
    clustered: bool,
) -> io::Result<Vec<String>> {
    let mut line = words.to_vec();
    let program = program_name(&words[0]).to_owned();
    // It is started in a folder of its own.
    if words[0].contains('/') {
        line[0] = std::path::absolute(&words[0])?.display().to_string();
    }
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
        // `populate` is a subcommand of DEBUG.
        line.extend(["--enable-debug-command", "local"].map(str::to_owned));
    } else if program.starts_with("dragonfly") {
        push(&["--port", &port, "--bind", "127.0.0.1", "--dir", &directory, "--dbfilename="]);
    } else {
        push(&["--port", &port, "--bind", "127.0.0.1", "--dir", &directory]);
        push(&["--save", "", "--appendonly", "no", "--enable-debug-command", "local"]);
    }
    if clustered {
        line.extend(["--cluster-enabled", "yes"].map(str::to_owned));
    }
    Ok(line)
}

fn start_program(
    words: &[String],
    server: &Cores,
    load: &Cores,
    clustered: bool,
) -> Result<(Endpoint, RunningProgram), TargetError> {
    let program = words[0].clone();
    let start_error = |cause| TargetError::Start { program: program.clone(), cause };
    let port = free_port().map_err(start_error)?;
    let running = spawn(words, port, server, load, clustered).map_err(start_error)?;
    let log_path = running.0.directory.0.join("log");
    let endpoint = Endpoint::local(port);
    let started = Instant::now();
    while endpoint.open().is_err() {
        if interrupt::requested() {
            return Err(start_error(io::ErrorKind::Interrupted.into()));
        }
        if running.has_ended() || started.elapsed() > START_MAX {
            let last_line = last_line(&log_path);
            return Err(TargetError::Silent { program, last_line });
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok((endpoint, running))
}

/// Starts a program in a folder of its own, where its log is.
fn spawn(
    words: &[String],
    port: u16,
    server: &Cores,
    load: &Cores,
    clustered: bool,
) -> io::Result<RunningProgram> {
    let mut all = lock(&RUNNING);
    if interrupt::requested() {
        return Err(io::ErrorKind::Interrupted.into());
    }
    let directory = Scratch::new()?;
    let line = command_line(words, port, &directory.0, clustered)?;
    let log = File::create(directory.0.join("log"))?;
    let errors = log.try_clone()?;
    let mut command = Command::new(&line[0]);
    command.args(&line[1..]).current_dir(&directory.0);
    command.stdin(Stdio::null()).stdout(log).stderr(errors);
    die_with_this(&mut command);
    // A child inherits the affinity of the thread that starts it.
    server.confine()?;
    let spawned = command.spawn();
    let confined = load.confine();
    let program = Arc::new(Program { child: Mutex::new(spawned?), directory });
    all.push(Arc::clone(&program));
    drop(all);
    let running = RunningProgram(program);
    confined.map(|()| running)
}

fn last_line(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let line = text.lines().rev().find(|line| !line.trim().is_empty());
    line.unwrap_or("it wrote nothing").trim().to_owned()
}

impl Scratch {
    fn new() -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let directory =
            std::env::temp_dir().join(format!("snug-compare-{}-{next}", std::process::id()));
        fs::create_dir_all(&directory)?;
        Ok(Self(directory))
    }

    fn remove(&self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.remove();
    }
}

/// A port that is free now, and the port 10,000 above it: a cluster's node talks to
/// the others there.
fn free_port() -> io::Result<u16> {
    for _ in 0..1000 {
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        if let Some(bus) = port.checked_add(10_000)
            && TcpListener::bind(("127.0.0.1", bus)).is_ok()
        {
            return Ok(port);
        }
    }
    Err(io::ErrorKind::AddrInUse.into())
}

impl RunningProgram {
    /// Whether it has ended by itself.
    fn has_ended(&self) -> bool {
        !matches!(lock(&self.0.child).try_wait(), Ok(None))
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        // Asked first, so that a profiler or sanitizer around it can finish.
        let mut child = lock(&self.0.child);
        if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw)
            && matches!(child.try_wait(), Ok(None))
        {
            let _ = kill_process(pid, Signal::TERM);
        }
        drop(child);
        let asked = Instant::now();
        while !self.has_ended() {
            if asked.elapsed() > STOP_MAX {
                let mut child = lock(&self.0.child);
                let _ = child.kill();
                let _ = child.wait();
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        lock(&RUNNING).retain(|program| !Arc::ptr_eq(program, &self.0));
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
        let line = command_line(&words, 7000, Path::new("/tmp/x"), true).unwrap();
        assert!(Path::new(&line[0]).is_absolute());
        let expected = "serve --workers 2 --port 7000 --bind 127.0.0.1 --dir /tmp/x --enable-debug-command local --cluster-enabled yes";
        assert_eq!(line[1..].join(" "), expected);
    }

    #[test]
    fn a_program_that_is_missing_or_ends_is_one_clear_line() {
        let cores = Cores::allowed().unwrap();
        let fail = |text| {
            let access = Endpoint::local(0);
            let started = Target::parse(text).unwrap().start(&cores, &cores, None, &access);
            started.map(|_| ()).unwrap_err().to_string()
        };
        assert!(fail("/nonexistent/redis-server").starts_with("cannot start /nonexistent/"));
        let check = |text| Target::parse(text).unwrap().check().map_err(|error| error.to_string());
        assert_eq!(check("snug --workers 2"), Ok(()));
        assert_eq!(check("sh -c exit"), Ok(()));
        assert_eq!(check("x=db:6379"), Ok(()), "what runs already is met when its turn comes");
        for missing in ["/nonexistent/redis-server", "no-such-program", "/etc/passwd", "/tmp"] {
            assert!(check(missing).unwrap_err().starts_with("cannot start "), "{missing}");
        }
        let ended = fail("x=sh -c 'echo bad option; exit 1'");
        assert_eq!(ended, "sh did not come up: bad option");
    }
}
