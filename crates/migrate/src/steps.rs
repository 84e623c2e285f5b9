//! The steps of a migration, one after the other.

use crate::checks::{self, keys, look};
use crate::client::{Address, Client, Info};
use crate::{Failure, MigrateArgs, sample};
use indicatif::{ProgressBar, ProgressStyle};
use std::thread::sleep;
use std::time::{Duration, Instant};

const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How far the new server may be behind to be near enough for a switch, in bytes.
const NEAR: u64 = 64 * 1024;
/// For how long the link may not come to be before that is said to be wrong.
const LINK_PATIENCE: Duration = Duration::from_secs(15);

pub(crate) fn run(args: &MigrateArgs) -> Result<(), Failure> {
    let (from, to) = (Address::parse(&args.from)?, Address::parse(&args.to)?);
    let (mut old, mut new) = (Client::connect(&from, &args.tls)?, Client::connect(&to, &args.tls)?);
    if is_switched(&mut old, &mut new)? {
        println!(
            "done  {} is the primary already, and {} its replica: snug migrate the other way is \
             FAILOVER on {}",
            to.name(),
            from.name(),
            to.name()
        );
        return Ok(());
    }
    let found = look(args, &mut old, &mut new)?;
    for warning in &found.warnings {
        println!("note  {warning}");
    }
    for obstacle in &found.obstacles {
        println!("stop  {obstacle}");
    }
    if !found.obstacles.is_empty() {
        return Err(Failure::Other("nothing was changed".into()));
    }
    if args.check {
        println!("ok    nothing is in the way, and nothing was changed");
        return Ok(());
    }
    if !found.warnings.is_empty() && !args.despite_warnings {
        let why = "read the notes above, then add --despite-warnings; nothing was changed";
        return Err(Failure::Other(why.into()));
    }
    follow(&from, &mut new)?;
    watch(&mut old, &mut new, &found)?;
    compare(args, &mut old, &mut new)?;
    if args.switch {
        return switch(args, &mut old, &mut new);
    }
    let (old, new) = (from.name(), to.name());
    println!(
        "next  the new server follows the old one for as long as you like. To switch, run this \
         again with --switch; or\n      by hand: let clients write no more, wait until INFO \
         replication tells the same offset on both, then\n      REPLICAOF NO ONE on {new}\n\
         back  to give it up, REPLICAOF NO ONE on {new}: {old} is as it was"
    );
    Ok(())
}

/// Whether the old server follows the new one: an earlier run has switched.
fn is_switched(old: &mut Client, new: &mut Client) -> Result<bool, Failure> {
    let (old, new) = (old.info("replication")?, new.info("replication")?);
    let same = !new.text("master_replid").is_empty()
        && old.text("master_replid") == new.text("master_replid");
    Ok(same && old.text("role") == "slave" && new.text("role") == "master")
}

/// Makes the new server a replica of the old one, if it is none.
fn follow(from: &Address, new: &mut Client) -> Result<(), Failure> {
    if let Some(password) = &from.password {
        new.ask(&["CONFIG", "SET", "masterauth", password])?;
        new.ask(&["CONFIG", "SET", "masteruser", from.user.as_deref().unwrap_or("")])?;
    }
    let tls = if from.tls { "yes" } else { "no" };
    if new.config("tls-replication")?.is_some_and(|now| now != tls) {
        new.ask(&["CONFIG", "SET", "tls-replication", tls])?;
    }
    new.ask(&["REPLICAOF", &from.host, &from.port.to_string()])?;
    Ok(())
}

/// How far the two are apart: the old one's offset, and the new one's.
fn offsets(old: &mut Client, new: &mut Client) -> Result<(u64, u64), Failure> {
    let ahead = old.info("replication")?.number("master_repl_offset");
    Ok((ahead, new.info("replication")?.number("master_repl_offset")))
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

/// Shows how the data set comes, until the new server is near.
fn watch(old: &mut Client, new: &mut Client, found: &checks::Findings) -> Result<(), Failure> {
    let bar = ProgressBar::new(found.keys.max(1));
    let style = ProgressStyle::with_template("{bar:30} {percent:>3} %  {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let began = Instant::now();
    let mut seen = false;
    loop {
        let replication = new.info("replication")?;
        let transfers = replication.text("master_sync_in_progress") == "1";
        let up = replication.text("master_link_status") == "up";
        seen |= transfers || up;
        if !seen && began.elapsed() > LINK_PATIENCE {
            bar.abandon();
            new.ask(&["REPLICAOF", "NO", "ONE"])?;
            return Err(Failure::Other(
                "the link to the old server does not come to be: see the new server's log. It is \
                 a primary again"
                    .into(),
            ));
        }
        let held = keys(&new.info("keyspace")?);
        bar.set_position(held.min(found.keys));
        // The old server is asked in any case: it may be gone, and the new one tries for ever.
        let (ahead, here) = offsets(old, new).inspect_err(|_| bar.abandon())?;
        if up {
            let behind = ahead.saturating_sub(here);
            bar.set_message(format!("{held} keys, {} behind", megabytes(behind)));
            if behind <= NEAR {
                break;
            }
        } else {
            let read = replication.number("master_sync_read_bytes");
            bar.set_message(format!("{held} keys, {} have come", megabytes(read)));
        }
        sleep(LOOK_EVERY);
    }
    bar.finish_and_clear();
    let (memory, packing) = (new.info("memory")?, new.info("packing")?);
    println!(
        "here  everything has come: {} keys, {} of memory where the old server uses {}; {} are \
         packed so far, more as they cool",
        keys(&new.info("keyspace")?),
        megabytes(memory.number("used_memory")),
        megabytes(found.bytes),
        megabytes(packing.number("packed_from_bytes")),
    );
    Ok(())
}

fn compare(args: &MigrateArgs, old: &mut Client, new: &mut Client) -> Result<(), Failure> {
    let bar = ProgressBar::new(args.sample as u64);
    let outcome = sample::compare(old, new, args.sample, |done| bar.set_position(done as u64));
    bar.finish_and_clear();
    let outcome = outcome?;
    for (db, key) in outcome.different.iter().take(10) {
        println!("stop  key {key} of database {db} differs");
    }
    if !outcome.different.is_empty() {
        let (different, compared) = (outcome.different.len(), outcome.compared);
        return Err(Failure::Other(format!(
            "{different} of {compared} keys differ: do not switch"
        )));
    }
    println!("same  {} keys were compared, and all are the same", outcome.compared);
    Ok(())
}

/// Has the old server hand over: it pauses writes until the new one has everything.
fn switch(args: &MigrateArgs, old: &mut Client, new: &mut Client) -> Result<(), Failure> {
    let me = replica(old, new)?;
    let (host, port) = (me.text("ip").to_owned(), me.text("port").to_owned());
    let timeout = (args.switch_timeout * 1000).to_string();
    let began = Instant::now();
    old.ask(&["FAILOVER", "TO", &host, &port, "TIMEOUT", &timeout])?;
    loop {
        if new.info("replication")?.text("role") == "master" {
            break;
        }
        let state = old.info("replication")?;
        if state.text("master_failover_state") == "no-failover" && state.text("role") == "master" {
            let why = "the new server did not catch up in time: the old one goes on as before; \
                       try again, or with a longer --switch-timeout";
            return Err(Failure::Other(why.into()));
        }
        sleep(Duration::from_millis(1));
    }
    let took = began.elapsed();
    println!(
        "done  {} is the primary: writes waited for {} ms. Send clients there; on {} they are told \
         READONLY\nback  {} is its replica now: snug migrate the other way is FAILOVER on {}, and \
         loses nothing",
        new.address.name(),
        took.as_millis(),
        old.address.name(),
        old.address.name(),
        new.address.name(),
    );
    Ok(())
}

/// What the old server knows of the new one as its replica.
fn replica(old: &mut Client, new: &mut Client) -> Result<Info, Failure> {
    let set = |new: &mut Client, name: &str| Ok(new.config(name)?.filter(|port| port != "0"));
    let mut port = set(new, "replica-announce-port")?;
    if port.is_none() && old.address.tls {
        port = set(new, "tls-port")?;
    }
    let port = match port {
        Some(port) => port,
        None => new.config("port")?.unwrap_or_default(),
    };
    let replication = old.info("replication")?;
    let lines = replication.0.iter().filter(|(name, _)| name.starts_with("slave"));
    let fields = |line: &str| {
        let pairs = line.split(',').filter_map(|pair| pair.split_once('='));
        Info(pairs.map(|(name, value)| (name.into(), value.into())).collect())
    };
    let mut known = lines.map(|(_, line)| fields(line));
    known
        .find(|info| info.text("port") == port)
        .ok_or_else(|| Failure::Other(format!("{} does not know its replica", old.address.name())))
}
