//! `CONFIG`.

use crate::commands::container;
use crate::config::{self, Change, Param};
use crate::engine::command::flags::*;
use crate::engine::command::{Answer, Command, Group};
use crate::engine::context::Context;
use crate::engine::out::Out;
use crate::engine::server::Server;
use crate::measure::stats::Stat;
use crate::request::args::Args;
use crate::request::error::Error;
use crate::text::glob;
use std::io;

const FLAGS: u32 = ADMIN | NOSCRIPT | LOADING | STALE;

pub(crate) const COMMANDS: &[Command] = &[Command::new("config", -2, container)
    .about(Group::Server, "2.0.0", "Depends on subcommand.", "Reads and changes the configuration.")
    .subcommands(&[
        Command::new("get", -3, get).of("config").flags(FLAGS).about(
            Group::Server,
            "2.0.0",
            "O(N) when N is the number of configuration parameters provided",
            "Returns the values of parameters.",
        ),
        Command::new("set", -4, set).of("config").flags(FLAGS).about(
            Group::Server,
            "2.0.0",
            "O(N) when N is the number of configuration parameters provided",
            "Sets parameters, all of them or none.",
        ),
        Command::new("resetstat", 2, reset_stat).of("config").flags(FLAGS).about(
            Group::Server,
            "2.0.0",
            "O(1)",
            "Sets the counters of INFO back to zero.",
        ),
        Command::new("rewrite", 2, rewrite).of("config").flags(FLAGS).about(
            Group::Server,
            "2.8.0",
            "O(1)",
            "Writes the configuration in force into the configuration file.",
        ),
        Command::new("help", 2, help).of("config").flags(LOADING | STALE).about(
            Group::Server,
            "5.0.0",
            "O(1)",
            "Says what the subcommands do.",
        ),
    ])];

fn get(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let asked =
        |name: &str| args.iter_from(2).any(|pattern| glob::matches(pattern, name.as_bytes(), true));
    let names = Param::all().map(|param| (param.declaration().name, param));
    let aliases = config::ALIASES
        .iter()
        .filter_map(|(alias, name)| config::find(name.as_bytes()).map(|param| (*alias, param)));
    let found: Vec<(&str, Param)> = names.chain(aliases).filter(|(n, _)| asked(n)).collect();
    // A name in full is given back as it was spelt.
    let spelt =
        |name: &str| args.iter_from(2).find(|asked| asked.eq_ignore_ascii_case(name.as_bytes()));
    out.w().map(found.len());
    for (name, param) in found {
        out.w().bulk(spelt(name).unwrap_or(name.as_bytes()));
        out.w().bulk(&cx.server.config.bytes(param));
    }
    Ok(())
}

fn set(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    if !args.len().is_multiple_of(2) {
        return Err(Error::SYNTAX.into());
    }
    let failed = |name: &[u8], why: &str| {
        let name = String::from_utf8_lossy(name).into_owned();
        Error::from(format!(
            "ERR CONFIG SET failed (possibly related to argument '{name}') - {why}"
        ))
    };
    let mut wanted: Vec<(Param, Vec<u8>)> = Vec::new();
    for at in (2..args.len()).step_by(2) {
        let name = args.bytes(at);
        let param = config::find(name).ok_or_else(|| {
            let name = String::from_utf8_lossy(name);
            Error::from(format!(
                "ERR Unknown option or number of arguments for CONFIG SET - '{name}'"
            ))
        })?;
        if wanted.iter().any(|(other, _)| *other == param) {
            return Err(failed(name, "duplicate parameter").into());
        }
        match param.declaration().change {
            Change::Allowed => {}
            Change::Protected if cx.permits(Param::EnableProtectedConfigs) => {}
            Change::Protected => return Err(failed(name, "can't set protected config").into()),
            Change::Never => return Err(failed(name, "can't set immutable config").into()),
        }
        wanted.push((param, args.bytes(at + 1).into()));
    }
    // All are checked before the first is set.
    for (param, value) in &wanted {
        param.check(value).map_err(|why| failed(param.declaration().name.as_bytes(), &why))?;
    }
    let before: Vec<(Param, Vec<u8>)> =
        wanted.iter().map(|(param, _)| (*param, cx.server.config.bytes(*param))).collect();
    let folder = std::env::current_dir();
    if let Err((param, why)) = put_in_force(cx, &wanted) {
        // What was in force was once, so that nothing can be wrong with it now.
        let _ = put_in_force(cx, &before);
        if let Ok(folder) = folder {
            let _ = std::env::set_current_dir(folder);
        }
        return Err(failed(param.declaration().name.as_bytes(), &why).into());
    }
    if wanted.iter().any(|(param, _)| *param == Param::PackPolicy) {
        tracing::info!(through = "CONFIG SET", "the packing policy was replaced");
    }
    crate::measure::log::tell_what_is_in_vain(&cx.server.config);
    out.w().ok();
    Ok(())
}

/// Sets parameters, and has whoever follows them act on it.
fn put_in_force(cx: &Context<'_>, wanted: &[(Param, Vec<u8>)]) -> Result<(), (Param, String)> {
    for (param, value) in wanted {
        cx.server.config.set(*param, value).map_err(|why| (*param, why))?;
    }
    for (param, _) in wanted {
        apply(cx, *param).map_err(|why| (*param, why))?;
    }
    Ok(())
}

fn apply(cx: &Context<'_>, param: Param) -> Result<(), String> {
    let server = cx.server;
    match param {
        Param::AppendOnly => {
            server.persist.set_aof(cx.store, server.config.is_on(Param::AppendOnly))?;
        }
        Param::Appendfsync => server.persist.sync_holds(),
        Param::Dir if server.persist.is_aof_on() => {
            return Err("the append-only file is in use there".into());
        }
        Param::Dir => server.config.enter_dir().map_err(|e| in_systems_words(&e))?,
        Param::PackPolicy => server.apply_policy()?,
        Param::MaxClients => {
            let fit = server.fit_clients()?;
            if (fit as i64) < server.config.number(Param::MaxClients) {
                return Err(format!(
                    "The operating system is not able to handle the specified number of clients, try with {fit}"
                ));
            }
        }
        Param::RequirePass => {
            server.users.require_password(&server.config.bytes(Param::RequirePass));
        }
        Param::TrackingTableMaxKeys => {
            server.tracking.limit(server.config.number(Param::TrackingTableMaxKeys) as usize);
        }
        Param::AclPubsubDefault => server.heed_pubsub_default(),
        Param::LogLevel => crate::measure::log::set_level(&server.config),
        Param::MaxMemory | Param::MaxMemoryPolicy | Param::LfuLogFactor => {
            server.eviction_configured();
            server.evict_clients();
        }
        Param::MaxmemoryClients => server.evict_clients(),
        Param::ReplicaReadOnly
        | Param::ReplicaServeStaleData
        | Param::MinReplicasToWrite
        | Param::MinReplicasMaxLag => server.peers.refresh(&server.config),
        Param::NotifyKeyspaceEvents => server.heed_events(),
        Param::Port | Param::Bind | Param::TlsPort => {
            if param == Param::TlsPort {
                set_up_tls(server)?;
            }
            server.listening.apply(&server.config).map_err(|error| {
                tracing::warn!(%error, "CONFIG SET: cannot listen");
                let redis = match param {
                    Param::Bind => "Failed to bind to specified addresses.",
                    _ => "Unable to listen on this port. Check server logs.",
                };
                redis.to_owned()
            })?;
        }
        Param::TlsCertFile
        | Param::TlsKeyFile
        | Param::TlsKeyFilePass
        | Param::TlsCaCertFile
        | Param::TlsCaCertDir
        | Param::TlsAuthClients
        | Param::TlsProtocols
        | Param::TlsCiphers
        | Param::TlsCiphersuites
        | Param::TlsPreferServerCiphers
        | Param::TlsSessionCaching
        | Param::TlsSessionCacheSize
        | Param::TlsSessionCacheTimeout
        | Param::TlsReplication
        | Param::TlsCluster
        | Param::TlsClientCertFile
        | Param::TlsClientKeyFile
        | Param::TlsClientKeyFilePass => set_up_tls(server)?,
        _ => {}
    }
    Ok(())
}

/// Has new connections shake hands as the configuration says now.
fn set_up_tls(server: &Server) -> Result<(), String> {
    server.tls.apply(&server.config).map_err(|error| {
        tracing::warn!(%error, "CONFIG SET: TLS stays as it was");
        "Unable to update TLS configuration. Check server logs.".to_owned()
    })
}

/// An error of the system as Redis tells it: in the system's words alone.
fn in_systems_words(error: &io::Error) -> String {
    let why = error.to_string();
    why.split(" (os error").next().unwrap_or_default().to_owned()
}

fn reset_stat(cx: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    for stat in Stat::all() {
        cx.server.stats.reset(stat);
    }
    cx.server.monitor.reset();
    cx.server.loops.reset();
    cx.server.slices.reset();
    crate::work::reclaim::reset();
    cx.server.workspaces.reset();
    cx.server.exceeded.reset();
    let expired = cx.store.store().expired();
    cx.server.expired_base.store(expired, std::sync::atomic::Ordering::Relaxed);
    out.w().ok();
    Ok(())
}

fn rewrite(cx: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    let config = &cx.server.config;
    let Some(file) = &config.file else {
        return Err(Error::new("ERR The server is running without a config file").into());
    };
    config.rewrite(file, &cx.server.user_lines_to_keep()).map_err(|e| {
        tracing::warn!(error = %e, "CONFIG REWRITE failed");
        Error::from(format!("ERR Rewriting config file: {}", in_systems_words(&e)))
    })?;
    out.w().ok();
    Ok(())
}

fn help(_: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    super::help(
        out,
        "CONFIG",
        &[
            (
                "GET <pattern>",
                "Return parameters that match <pattern>, or one of several, and their values.",
            ),
            (
                "SET <directive> <value>",
                "Set a parameter; of several, each with its value, all or none.",
            ),
            ("RESETSTAT", "Set the counters reported by INFO back to zero."),
            ("REWRITE", "Write the configuration in force into the configuration file."),
        ],
    );
    Ok(())
}
