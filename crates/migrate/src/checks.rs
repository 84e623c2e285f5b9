//! What is looked at before anything is changed.

use crate::client::{Client, Info, text_of};
use crate::{Failure, MigrateArgs};
use snug_resp::Value;
use std::collections::BTreeSet;

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// In the way.
    pub(crate) obstacles: Vec<String>,
    /// To be thought about.
    pub(crate) warnings: Vec<String>,
    /// What the old server holds.
    pub(crate) keys: u64,
    pub(crate) bytes: u64,
}

/// Parameters whose values clients notice.
const NOTICED: &[&str] =
    &["maxmemory-policy", "notify-keyspace-events", "timeout", "proto-max-bulk-len", "maxclients"];

/// What this program itself asks.
const OWN: &[&str] = &["acl|list", "function|list", "module|list"];

/// Looks at both servers.
pub(crate) fn look(
    args: &MigrateArgs,
    old: &mut Client,
    new: &mut Client,
) -> Result<Findings, Failure> {
    let mut found = Findings::default();
    old_server(old, &mut found)?;
    new_server(args, old, new, &mut found)?;
    commands(old, new, &mut found)?;
    Ok(found)
}

/// Keys over all databases.
pub(crate) fn keys(keyspace: &Info) -> u64 {
    let of = |text: &str| {
        let keys = text.split(',').find_map(|field| field.strip_prefix("keys="));
        keys.and_then(|keys| keys.parse::<u64>().ok()).unwrap_or(0)
    };
    keyspace.0.values().map(|text| of(text)).sum()
}

fn version(text: &str) -> (u32, u32) {
    let mut parts = text.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

fn old_server(old: &mut Client, found: &mut Findings) -> Result<(), Failure> {
    let server = old.info("server")?;
    let valkey = server.text("valkey_version");
    let told = if valkey.is_empty() { server.text("redis_version") } else { valkey };
    println!(
        "from  {}: {} {told}, {} mode",
        old.address.name(),
        if valkey.is_empty() { "Redis" } else { "Valkey" },
        server.text("redis_mode"),
    );
    let known = if valkey.is_empty() {
        ((6, 2)..=(7, 4)).contains(&version(told))
    } else {
        version(told).0 <= 8
    };
    if !known {
        found.warnings.push(format!(
            "version {told} was not tried: Redis 6.2 to 7.4 and Valkey up to 8 are known to work"
        ));
    }
    if server.text("redis_mode") == "cluster" {
        found.obstacles.push("nodes of a cluster cannot be moved yet".into());
    }
    let keyspace = old.info("keyspace")?;
    found.keys = keys(&keyspace);
    found.bytes = old.info("memory")?.number("used_memory");
    println!("      {} keys, {} MB of memory", found.keys, found.bytes / 1_000_000);
    let beyond = keyspace.0.keys().filter_map(|db| db.strip_prefix("db")?.parse::<u32>().ok());
    if let Some(db) = beyond.max().filter(|&db| db > 15) {
        found.obstacles.push(format!("there are keys in database {db}: Snug has 16, 0 to 15"));
    }
    if let Value::Array(modules) = old.call(&["MODULE", "LIST"])?
        && !modules.is_empty()
    {
        found.warnings.push(format!(
            "it has {} modules: keys of their own types stop the migration, their commands are not there",
            modules.len()
        ));
    }
    if let Value::Array(users) = old.call(&["ACL", "LIST"])?
        && users.len() > 1
    {
        found
            .warnings
            .push(format!("it has {} ACL users: they do not move with the data", users.len()));
    }
    if let Value::Array(libraries) = old.call(&["FUNCTION", "LIST"])?
        && !libraries.is_empty()
    {
        found.warnings.push(format!(
            "it has {} libraries of functions: see whether FUNCTION LIST of the new one has them \
             before you switch",
            libraries.len()
        ));
    }
    let limit = old.config("client-output-buffer-limit")?.unwrap_or_default();
    let words: Vec<&str> = limit.split_ascii_whitespace().collect();
    let at = words.iter().position(|word| *word == "slave" || *word == "replica");
    let hard = at.and_then(|at| words.get(at + 1)?.parse::<u64>().ok()).unwrap_or(0);
    if hard > 0 && found.bytes > 20 * hard {
        found.warnings.push(format!(
            "what is written while {} MB are sent must not exceed {} MB: where it does, the old \
             server begins anew; raise it with CONFIG SET client-output-buffer-limit 'replica 0 0 0'",
            found.bytes / 1_000_000,
            hard / 1_000_000
        ));
    }
    Ok(())
}

fn new_server(
    args: &MigrateArgs,
    old: &mut Client,
    new: &mut Client,
    found: &mut Findings,
) -> Result<(), Failure> {
    let server = new.info("server")?;
    let snug = server.text("snug_version").to_owned();
    if snug.is_empty() {
        found.obstacles.push(format!("{} is no Snug server", new.address.name()));
        return Ok(());
    }
    println!("to    {}: Snug {snug}", new.address.name());
    let run = server.text("run_id");
    if !run.is_empty() && run == old.info("server")?.text("run_id") {
        found.obstacles.push("both are the same server".into());
        return Ok(());
    }
    if args.switch && old.info("replication")?.text("role") == "slave" {
        found.obstacles.push(format!(
            "{} is a replica: it cannot hand over; move from its primary, or switch by hand",
            old.address.name()
        ));
    }
    let replication = new.info("replication")?;
    let follows = replication.text("role") == "slave";
    let same = replication.text("master_port") == old.address.port.to_string();
    let held = keys(&new.info("keyspace")?);
    if follows && !same {
        found.obstacles.push("it is a replica of another server".into());
    }
    if old.address.tls {
        let files = [new.config("tls-ca-cert-file")?, new.config("tls-ca-cert-dir")?];
        if files.iter().flatten().all(String::is_empty) {
            let what = "it cannot follow the old one inside TLS: it needs tls-ca-cert-file or \
                        tls-ca-cert-dir, with the authority of the old one's certificate";
            found.obstacles.push(what.into());
        }
        if args.switch && new.config("tls-port")?.is_none_or(|port| port == "0") {
            let what = "the old one is to follow it inside TLS after the switch, which takes a \
                        tls-port";
            found.obstacles.push(what.into());
        }
    }
    if held > 0 && !follows && !args.replace {
        found.obstacles.push(format!("it holds {held} keys; --replace gives them up"));
    }
    let memory = new.info("memory")?;
    let limit = match memory.number("maxmemory") {
        0 => memory.number("total_system_memory"),
        limit => limit,
    };
    if limit > 0 && found.bytes > limit {
        found.warnings.push(format!(
            "{} MB may be used there, and the old server uses {} MB: values are packed only after \
             they have come",
            limit / 1_000_000,
            found.bytes / 1_000_000
        ));
    }
    for name in NOTICED {
        if let (Some(theirs), Some(ours)) = (old.config(name)?, new.config(name)?)
            && theirs != ours
        {
            found.warnings.push(format!("{name} is '{theirs}' on the old server, '{ours}' here"));
        }
    }
    Ok(())
}

/// Commands that clients of the old server use, and the new one does not have.
fn commands(old: &mut Client, new: &mut Client, found: &mut Findings) -> Result<(), Failure> {
    let used = old.info("commandstats")?;
    let Value::Array(list) = new.call(&["COMMAND", "LIST"])? else { return Ok(()) };
    let has: BTreeSet<String> = list.into_iter().filter_map(text_of).collect();
    let used = used.0.keys().filter_map(|field| field.strip_prefix("cmdstat_"));
    let used = used.filter(|name| !OWN.contains(name));
    let missing: BTreeSet<&str> = used.filter(|name| !has.contains(&name.to_lowercase())).collect();
    if !missing.is_empty() {
        let names: Vec<&str> = missing.into_iter().collect();
        found.warnings.push(format!(
            "commands that its clients have used and that are not here: {}",
            names.join(", ")
        ));
    }
    Ok(())
}
