//! What is on disk: `SAVE`, `BGSAVE`, `BGREWRITEAOF`, `LASTSAVE`, `WAITAOF`, `SHUTDOWN`.
//!
//! Nothing here works on a disk: threads of `persist` do, and a command that waits for
//! them is put off until they are done, while its worker serves others.

use crate::auth::Categories;
use crate::commands::clients::timeout_ms;
use crate::engine::command::flags::*;
use crate::engine::command::{Answer, Command, Group};
use crate::engine::context::{Context, Origin};
use crate::engine::out::Out;
use crate::persist::ending::Ending;
use crate::persist::saving::Kind;
use crate::request::args::Args;
use crate::request::error::Error;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

pub(crate) const COMMANDS: &[Command] = &[
    Command::new("save", 1, save).flags(ADMIN | NOSCRIPT | NO_ASYNC_LOADING | NO_MULTI).about(
        Group::Server,
        "1.0.0",
        "O(N) where N is the total number of keys in all databases",
        "Saves a snapshot and answers when it is on disk.",
    ),
    Command::new("bgsave", -1, bgsave).flags(ADMIN | NOSCRIPT | NO_ASYNC_LOADING).about(
        Group::Server,
        "1.0.0",
        "O(1)",
        "Begins to save a snapshot.",
    ),
    Command::new("bgrewriteaof", 1, bgrewriteaof).flags(ADMIN | NOSCRIPT | NO_ASYNC_LOADING).about(
        Group::Server,
        "1.0.0",
        "O(1)",
        "Begins to rewrite the append-only file.",
    ),
    Command::new("waitaof", 4, waitaof).flags(NOSCRIPT).acl(Categories::CONNECTION).about(
        Group::Generic,
        "7.2.0",
        "O(1)",
        "Waits until the connection's writes are on disk, here and on replicas.",
    ),
    Command::new("shutdown", -1, shutdown)
        .flags(ADMIN | NOSCRIPT | LOADING | STALE | NO_MULTI | ALLOW_BUSY)
        .about(
            Group::Server,
            "1.0.0",
            "O(N) when saving, where N is the total number of keys in all databases when saving data, otherwise O(1)",
            "Ends the server.",
        ),
    Command::new("lastsave", 1, lastsave).flags(LOADING | STALE | FAST).acl(Categories::ADMIN.and(Categories::DANGEROUS)).about(
        Group::Server,
        "1.0.0",
        "O(1)",
        "Returns when the last snapshot was written, in Unix seconds.",
    ),
];

/// Why what was asked for failed is in the log, as in Redis.
const FAILED: Error = Error::new("ERR");

/// Answers when the snapshot is on disk. One that is being written for the append-only
/// file is waited for first.
fn save(cx: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    match cx.waited() {
        Some(Ok(_)) => {
            out.w().ok();
            return Ok(());
        }
        Some(Err(_)) => return Err(FAILED.into()),
        None => {}
    }
    let persist = Arc::clone(&cx.server.persist);
    if persist.runs() == Some(Kind::Save) {
        return Err(Error::new("ERR Background save already in progress").into());
    }
    Err(cx.wait_until(async move {
        loop {
            let (told, done) = oneshot::channel();
            if persist.begin(Kind::Save, Some(told)).is_ok() {
                return done.await.unwrap_or_else(|_| Err("it ended".into())).map(|()| 0);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }))
}

fn bgsave(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let schedule = match args.len() {
        1 => false,
        2 if args.is(1, "schedule") => true,
        _ => return Err(Error::SYNTAX.into()),
    };
    let persist = &cx.server.persist;
    let in_transaction = matches!(cx.origin, Origin::Exec);
    match persist.runs() {
        Some(Kind::Save) => {
            return Err(Error::new("ERR Background save already in progress").into());
        }
        Some(Kind::Rewrite) if !schedule && !in_transaction => {
            return Err(Error::new(
                "ERR Another child process is active (AOF?): can't BGSAVE right now. Use BGSAVE SCHEDULE in order to schedule a BGSAVE whenever possible.",
            )
            .into());
        }
        None if !in_transaction => {
            persist.begin(Kind::Save, None).map_err(|_| FAILED)?;
            out.w().simple("Background saving started");
        }
        _ => {
            persist.jobs.lock().save_scheduled = true;
            out.w().simple("Background saving scheduled");
        }
    }
    Ok(())
}

fn bgrewriteaof(cx: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    let persist = &cx.server.persist;
    match persist.runs() {
        Some(Kind::Rewrite) => {
            return Err(Error::new(
                "ERR Background append only file rewriting already in progress",
            )
            .into());
        }
        None if !matches!(cx.origin, Origin::Exec) => {
            let failed = "ERR Can't execute an AOF background rewriting. Please check the server logs for more information.";
            persist.begin(Kind::Rewrite, None).map_err(|_| Error::new(failed))?;
            out.w().simple("Background append only file rewriting started");
        }
        _ => {
            persist.jobs.lock().rewrite_scheduled = true;
            out.w().simple("Background append only file rewriting scheduled");
        }
    }
    Ok(())
}

fn lastsave(cx: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    out.w().integer(cx.server.persist.jobs.lock().saved_at as i64);
    Ok(())
}

/// Waits until all that was committed before is on disk: the connection's own writes are
/// among that. There are no replicas.
fn waitaof(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    if let Some(waited) = cx.waited() {
        return answer_waitaof(waited.unwrap_or(0), out);
    }
    let local = args.int(1)?;
    if !(0..=1).contains(&local) {
        return Err(Error::new("ERR value is out of range, must be between 0 and 1").into());
    }
    if args.int(2)? < 0 {
        return Err(Error::new("ERR value is out of range, must be positive").into());
    }
    let timeout = timeout_ms(args.bytes(3))?;
    let persist = Arc::clone(&cx.server.persist);
    if local == 1 && !persist.is_aof_on() {
        return Err(Error::new(
            "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.",
        )
        .into());
    }
    let commit = cx.server.store.commits();
    let is_there = persist.is_aof_on() && persist.durable.has(commit);
    let waits_for_replicas = args.int(2)? > 0;
    if (is_there || local == 0) && !waits_for_replicas || !cx.origin.may_wait() {
        return answer_waitaof(i64::from(is_there), out);
    }
    Err(cx.wait_until(async move {
        let on_disk = persist.durable.when_on_disk(commit);
        let both = async {
            let _ = on_disk.await;
            if waits_for_replicas {
                std::future::pending::<()>().await;
            }
        };
        match timeout {
            0 => both.await,
            timeout => _ = tokio::time::timeout(Duration::from_millis(timeout), both).await,
        }
        Ok(i64::from(persist.is_aof_on() && persist.durable.has(commit)))
    }))
}

fn answer_waitaof(local: i64, out: &mut Out) -> Answer {
    out.w().array(2);
    out.w().integer(local);
    out.w().integer(0);
    Ok(())
}

/// Ends the server, when what is to be saved is. Nothing is sent then: that the connection
/// closes is the reply. While it is being saved writes are paused, so that nothing is
/// acknowledged that would not be in it.
fn shutdown(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    if let Some(waited) = cx.waited() {
        if waited.is_err() {
            return Err(Error::new("ERR Errors trying to SHUTDOWN. Check logs.").into());
        }
        cx.client()?.close = true;
        cx.server.end();
        return Ok(());
    }
    let mut ending = Ending::default();
    let mut abort = false;
    for option in args.iter_from(1) {
        match option.to_ascii_lowercase().as_slice() {
            b"save" => ending.save = Some(true),
            b"nosave" if ending.save == Some(true) => return Err(Error::SYNTAX.into()),
            b"nosave" => ending.save = Some(false),
            b"now" => ending.now = true,
            b"force" => ending.force = true,
            b"abort" => abort = true,
            _ => return Err(Error::SYNTAX.into()),
        }
        if ending.save == Some(true) && args.iter_from(1).any(|o| o.eq_ignore_ascii_case(b"nosave"))
        {
            return Err(Error::SYNTAX.into());
        }
    }
    if abort && (ending.save.is_some() || ending.force || ending.now) {
        return Err(Error::SYNTAX.into());
    }
    if abort {
        if !cx.server.abort_end() {
            return Err(Error::new("ERR No shutdown in progress.").into());
        }
        out.w().ok();
        return Ok(());
    }
    let client = cx.client()?;
    tracing::info!(client = client.id(), "SHUTDOWN by a client");
    let server = cx.server.me.upgrade().ok_or(Error::new("ERR the server ends"))?;
    let done = server.before_end(ending);
    Err(cx.wait_until(async move { done.await.map(|()| 0) }))
}
