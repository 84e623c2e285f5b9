//! Whether anything is in the way of a command. Nearly always nothing is, and then a
//! command that only reads or writes keys goes straight to its handler.
//!
//! These are all the states that can be in the way, and who changes them. Each is a flag
//! of whoever it belongs to, asked for here and nowhere else on the straight way:
//!
//! ```text
//!  the server                         changed by
//!    loads, or refuses writes           persist
//!    what role and links forbid         peers
//!    pause                              CLIENT PAUSE
//!    followers of commits are behind    journal, snapshot
//!    a script takes long                aside
//!    values are on disk (a command      the store's tier
//!    that only reads finds out itself)
//!    somebody tracks                    CLIENT TRACKING
//!    cluster mode                       the start
//!  the client
//!    has to log in, has an account that may not do everything, queues a transaction,
//!    is sent no replies, tracks, is subscribed, monitors
//!  the command
//!    is a script, or comes back with work that it was put off for
//! ```
//!
//! It is a question of yes or no: one of these may be in the way, and then the command
//! is [admitted](super::admit) with all the care that there is. So what is asked here may
//! say no too often, and what a state means for which command is written down once.
//!
//! Decided against: one word of bits for all, kept up to date by everybody who changes one
//! of these. It would save some twenty instructions of a command, and every room would
//! have to know of it and keep it right, the pauses that end by themselves too.

use super::Asked;
use crate::engine::away;
use crate::engine::client::{Client, ReplyMode};
use crate::engine::command::{Command, Group, flags};
use crate::engine::server::Server;
use crate::peers::limits;
use std::sync::atomic::Ordering::Relaxed;

/// Whether nothing is in the way of this command of this client.
#[inline]
pub(super) fn is_open(asked: &Asked<'_>, command: &Command) -> bool {
    command.has(flags::READONLY | flags::WRITE)
        && command.group != Group::Scripting
        && asked.finished.is_none()
        && is_client_open(asked.client)
        && is_server_open(asked.server, command, asked.store.now())
}

#[inline]
fn is_client_open(client: &Client) -> bool {
    client.authenticated
        && client.account.is_unrestricted()
        && client.multi.is_none()
        && client.reply == ReplyMode::On
        && client.tracking.is_none()
        && client.subscriptions.len() == 0
        && !client.shared.figures.monitoring.load(Relaxed)
}

#[inline]
fn is_server_open(server: &Server, command: &Command, now: u64) -> bool {
    // What is of no account to a command that only reads.
    let to_reads = limits::REPLICA | limits::READ_ONLY | limits::FEW_REPLICAS;
    let harmless = if command.has(flags::WRITE) { limits::REPLICA } else { to_reads };
    !server.persist.is_loading()
        && !server.persist.may_refuse()
        && server.peers.limits() & !harmless == 0
        && !server.pause.writes_paused(now)
        && !server.is_behind()
        && !server.aside.is_active()
        && (!server.store.tier().is_used() || away::notes(command))
        && !server.tracking.is_on()
        && !server.cluster.enabled
}
