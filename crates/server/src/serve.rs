//! `snug serve`: reads the configuration, starts the workers, and ends them.

mod daemon;
mod supervisor;

use crate::cluster::Cluster;
use crate::commands::replay::{Replayed, Replayer};
pub use crate::config::Parameter;
use crate::config::{self, Config, Param};
use crate::engine::server::Server;
use crate::measure::log;
use crate::net::accept::OtherDoor;
use crate::net::worker;
use crate::outside::clock::unix_ms;
use crate::persist::ending::Ending;
use crate::sockets::inherited::Inherited;
use crate::sockets::listening;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use socket2::Socket;
use std::ffi::OsString;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use supervisor::Supervisor;
use tokio::signal::unix::{SignalKind, signal};

/// Runs the server with flags as `redis-server` takes them: an optional
/// configuration file, then `--name value` pairs. Returns when it has ended;
/// anything wrong with the flags is said in one line, before anything starts.
pub fn serve(flags: &[OsString]) -> ExitCode {
    // Behind the first, it may be the value of another flag.
    let words: Vec<&str> = flags.iter().map(|flag| flag.to_str().unwrap_or_default()).collect();
    let text = match words[..] {
        ["--help" | "-h", name, ..] => match config::topic_or_parameter(name) {
            Ok(text) => text,
            Err(error) => return fail(&error),
        },
        ["--help" | "-h"] => config::one_screen(),
        ["--help-all", ..] => config::all(),
        ["--version" | "-v", ..] => format!("snug {}\n", env!("CARGO_PKG_VERSION")),
        _ => return start(flags).unwrap_or_else(|error| fail(&error)),
    };
    // Who has read enough closes the pipe.
    let _ = io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

fn fail(error: &str) -> ExitCode {
    // Nobody may be there to be told.
    let _ = writeln!(io::stderr(), "snug: {error}");
    ExitCode::FAILURE
}

/// A commented configuration file with every parameter, as `snug config` prints it.
pub fn sample_configuration() -> String {
    config::sample()
}

/// Every parameter of [`serve`] that has an effect, for man pages and completions.
pub fn parameters() -> impl Iterator<Item = Parameter> {
    config::parameters()
}

/// Lets the system give huge pages if the configuration does: the allocator has
/// refused them for the process before its first allocation (`.cargo/config.toml`).
fn allow_huge_pages(config: &Config) {
    if !config.is_on(Param::DisableThp)
        && let Err(error) = rustix::thread::disable_transparent_huge_pages(false)
    {
        tracing::warn!(%error, "huge pages stay disabled");
    }
}

fn start(flags: &[OsString]) -> Result<ExitCode, String> {
    let config = Config::from_flags(flags)?;
    crate::commands::rename(&config.renames)?;
    // A terminal that closes does not end the server; who means "open your log again"
    // is heard once the server runs (`wait_for_end`). SIGPIPE is ignored by Rust's own
    // start.
    flag::register(SIGHUP, Arc::default()).map_err(|e| format!("could not ignore SIGHUP: {e}"))?;
    // A file that may not grow longer is an error of the write, which is dealt with.
    flag::register(SIGXFSZ, Arc::default())
        .map_err(|e| format!("could not ignore SIGXFSZ: {e}"))?;
    let background = daemon::is_background();
    // Who is supervised stays where the supervisor can see it.
    let wants_background = config.is_on(Param::Daemonize) && !Supervisor::find(&config).is_there();
    if wants_background && !background {
        if config.from_input {
            return Err("daemonize yes: a server in the background cannot read its configuration from standard input".into());
        }
        return daemon::start()
            .map_err(|e| format!("daemonize yes: can't start another process: {e}"));
    }
    if background {
        daemon::leave_session();
    }
    // Before the log begins: its file's name is taken there.
    config.enter_dir().map_err(|e| format!("can't chdir to '{}': {e}", config.text(Param::Dir)))?;
    log::begin(&config)?;
    log::tell_what_is_in_vain(&config);
    let supervisor = Arc::new(Supervisor::find(&config));
    config.read_policy_file()?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = match config.number(Param::Workers) as usize {
        0 => cores,
        workers => workers,
    };
    let cluster = Cluster::load(&config)?;
    let server = Server::new(config, cluster, workers, crate::commands::catalog());
    crate::script::library::keep(&server);
    server.configure_users()?;
    server.apply_policy()?;
    server.eviction_configured();
    server.heed_events();
    let fit = server.fit_clients()?.to_string();
    server.config.set(Param::MaxClients, fit.as_bytes())?;
    let doors: Vec<_> = (0..workers).map(|_| server.listening.join()).collect();
    server.tls.apply(&server.config)?;
    let inherited = Inherited::take()
        .map_err(|e| format!("can't listen with what LISTEN_FDS tells of: {e}"))?;
    server.listening.inherit(inherited);
    let mut addresses = server.listening.apply(&server.config)?;
    addresses.extend(server.listening.open_unix(&server.config)?);
    if let Some(address) = server.listening.beside() {
        return Err(format!(
            "was given a socket at {address}, which neither bind with port or tls-port nor unixsocket names"
        ));
    }
    let (admin_addresses, admin_sockets) = listen_for_admin(&server)?;
    let (content_addresses, content_doors) = listen_for_content(&server)?;
    snug_store::memory::tune();
    allow_huge_pages(&server.config);
    crate::background::trainer::start(&server)
        .map_err(|e| format!("could not start the trainer: {e}"))?;
    crate::background::tierer::start(&server)?;
    follow_primary(&server)?;
    let here = Arc::downgrade(&server);
    let _ = server.persist.tells_past.set(Box::new(move |batch| {
        let server = here.upgrade()?;
        server.peers.past(batch, &server.journal)
    }));
    let ending = catch_signals()?;
    // What is wrong with files that are there and used by others is said before anything
    // starts; loading them takes a while, and clients are told so meanwhile.
    let loads = server.persist.prepare()?;
    let failed = Arc::<OnceLock<String>>::default();
    if loads {
        server.persist.loading.active.store(true, Relaxed);
    } else {
        load(&server)?;
    }
    // A link to a primary waits until what was saved is loaded.
    crate::replication::start(&server, crate::commands::replay::executor)
        .map_err(|e| format!("could not start replication: {e}"))?;
    let mut threads = Vec::new();
    for (number, (doors, content)) in doors.into_iter().zip(content_doors).enumerate() {
        let server = Arc::clone(&server);
        let thread =
            std::thread::Builder::new().name(format!("worker-{number}")).stack_size(WORKER_STACK);
        let thread = thread.spawn(move || {
            let run = std::panic::AssertUnwindSafe(|| {
                worker::run(Arc::clone(&server), number, doors, content)
            });
            if let Err(error) = std::panic::catch_unwind(run).unwrap_or(Ok(())) {
                tracing::error!(%error, worker = number, "worker failed");
            }
            server.end();
        });
        threads.push(thread.map_err(|e| format!("could not start a worker: {e}"))?);
    }
    if !admin_sockets.is_empty() {
        crate::admin::start(&server, admin_sockets)
            .map_err(|e| format!("could not start the admin port: {e}"))?;
        say_where_admin_is(&server.config, &admin_addresses);
    }
    if !content_addresses.is_empty() {
        tracing::info!(addresses = ?content_addresses, "content is served over HTTP");
    }
    if loads {
        let (server, failed) = (Arc::clone(&server), Arc::clone(&failed));
        let supervisor = Arc::clone(&supervisor);
        let loading = std::thread::Builder::new().name("loading".into()).spawn(move || {
            match load(&server) {
                Ok(()) => {
                    server.persist.loading.active.store(false, Relaxed);
                    say_ready(&supervisor, background);
                }
                // Until the end nobody is served what was loaded in part.
                Err(why) => {
                    tracing::error!(why, "what was saved cannot be loaded");
                    let _ = failed.set(why);
                    server.end();
                }
            }
        });
        loading.map_err(|e| format!("could not start loading: {e}"))?;
    }
    let version = env!("CARGO_PKG_VERSION");
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let _pid_file = daemon::PidFile::write(&server.config);
    tracing::info!(version, workers, ?addresses, "ready to accept connections");
    if !loads {
        say_ready(&supervisor, background);
    }
    wait_for_end(&server, &ending)?;
    tracing::info!("ending");
    supervisor.stopping();
    for thread in threads {
        drop(thread.join());
    }
    server.listening.remove_unix();
    match failed.get() {
        Some(why) => Err(why.clone()),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Tells whoever started the server that it serves, with all that was saved.
fn say_ready(supervisor: &Supervisor, background: bool) {
    supervisor.ready();
    if background && let Err(error) = daemon::say_ready() {
        tracing::warn!(%error, "can't leave standard error");
    }
}

/// Loads what was saved.
fn load(server: &Arc<Server>) -> Result<(), String> {
    let mut replayer = Replayer::default();
    if server.tiering.is_on() {
        let weak = Arc::downgrade(server);
        let wait = move || {
            if let Some(server) = weak.upgrade() {
                server.wait_for_tier();
            }
        };
        let _ = server.persist.wait_for_room.set(Box::new(wait));
    }
    server.persist.load(&mut |store, args| {
        server.wait_for_tier();
        replayer.execute(Replayed { server, store, worker: 0 }, args, None)
    })?;
    if let Some(past) = server.persist.take_past() {
        let mut session = server.store.session();
        server.peers.resume(&session.enter(unix_ms()), &server.journal, &past);
    }
    Ok(())
}

/// Makes the server the replica that the configuration says it is.
fn follow_primary(server: &Server) -> Result<(), String> {
    let text = server.config.text(Param::Replicaof);
    let Some((host, port)) = text.split_once(' ') else { return Ok(()) };
    if server.cluster.enabled {
        return Err("replicaof: not allowed in cluster mode".into());
    }
    let port = port.parse().map_err(|_| "replicaof: invalid port")?;
    let mut session = server.store.session();
    server.peers.follow(&session.enter(unix_ms()), &server.config, host, port, false);
    Ok(())
}

/// Bytes of a worker's stack: scripts recurse deeper than commands. Only what is used is
/// memory.
const WORKER_STACK: usize = 8 << 20;

/// The admin port's addresses and the sockets there, none unless it is wanted, and
/// its token. That is read, or made, once they are bound: a start that fails leaves
/// no file behind.
fn listen_for_admin(server: &Server) -> Result<(Vec<SocketAddr>, Vec<Socket>), String> {
    let config = &server.config;
    let addresses = listening::addresses(config, Param::AdminBind, Param::AdminPort)?;
    let bound = addresses.iter().map(|&address| {
        let socket = listening::listen(address, 128, false);
        socket.map_err(|e| format!("admin-port: can't bind to {address}: {e}"))
    });
    let sockets: Vec<Socket> = bound.collect::<Result<_, _>>()?;
    if !sockets.is_empty() && config.is_empty(Param::AdminToken) {
        let _ = server.admin_token.set(crate::admin::token(config)?);
    }
    Ok((addresses, sockets))
}

/// The content port's addresses, and the sockets there, for each worker its own.
fn listen_for_content(server: &Server) -> Result<(Vec<SocketAddr>, Vec<Vec<OtherDoor>>), String> {
    let config = &server.config;
    let addresses = listening::addresses(config, Param::ContentBind, Param::ContentPort)?;
    let (tls, backlog) = (config.is_on(Param::ContentTls), config.number(Param::TcpBacklog) as i32);
    let door = |&address: &SocketAddr| {
        let socket = listening::listen(address, backlog, true);
        let socket = socket.map_err(|e| format!("content-port: can't bind to {address}: {e}"))?;
        Ok(OtherDoor { socket, tls, language: &crate::content::HTTP })
    };
    let of_worker = |_| addresses.iter().map(door).collect::<Result<Vec<_>, String>>();
    let doors = (0..server.workers).map(of_worker).collect::<Result<_, _>>()?;
    Ok((addresses, doors))
}

/// Says in the log where the admin port listens, and what it asks for.
fn say_where_admin_is(config: &Config, addresses: &[SocketAddr]) {
    if config.is_empty(Param::AdminToken) {
        let file = config.path(Param::AdminTokenFile);
        let file = std::path::absolute(&file).unwrap_or(file);
        tracing::info!(?addresses, token_file = %file.display(), "the admin port listens");
    } else {
        tracing::info!(?addresses, "the admin port listens, for the token of admin-token");
    }
}

/// Has the first signal that asks for the end raise a flag, from now on. A second one
/// ends the process at once, from the signal's handler: no thread has to get round to it.
fn catch_signals() -> Result<Arc<AtomicBool>, String> {
    let ending = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        // In this order: the first signal finds the flag down, and raises it.
        flag::register_conditional_shutdown(signal, 1, Arc::clone(&ending)).map_err(no_signals)?;
        flag::register(signal, Arc::clone(&ending)).map_err(no_signals)?;
    }
    Ok(ending)
}

fn no_signals(error: io::Error) -> String {
    format!("could not listen for signals: {error}")
}

/// Waits for a signal or `SHUTDOWN`. A signal ends the server when what is to be saved is;
/// if that fails, it goes on.
fn wait_for_end(server: &Arc<Server>, ending: &AtomicBool) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| format!("could not start the runtime: {e}"))?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).map_err(no_signals)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(no_signals)?;
        let mut hangup = signal(SignalKind::hangup()).map_err(no_signals)?;
        let reopening = async {
            while hangup.recv().await.is_some() {
                log::reopen();
            }
            std::future::pending::<()>().await;
        };
        let mut reopening = std::pin::pin!(reopening);
        loop {
            let ended = server.shutdown.notified();
            if server.ending.load(Relaxed) {
                break;
            }
            let mut words = Param::ShutdownOnSigterm;
            // A signal that came before tokio listened has raised the flag alone.
            if !ending.load(Relaxed) {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => words = Param::ShutdownOnSigint,
                    () = ended => break,
                    () = &mut reopening => {}
                }
            }
            let how = Ending::of_words(&server.config.text(words));
            if Arc::clone(server).before_end(how).await.is_ok() {
                break;
            }
            tracing::error!(
                "a signal asked for the end, and what is to be saved cannot be: not ending. \
                 SHUTDOWN FORCE ends the server all the same"
            );
            ending.store(false, Relaxed);
        }
        Ok::<(), String>(())
    })?;
    ending.store(true, Relaxed);
    server.end();
    Ok(())
}
