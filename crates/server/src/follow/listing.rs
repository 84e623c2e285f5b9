//! A client as `CLIENT LIST` shows it: what its worker published last.

use crate::follow::clients::{Address, Shared};
use std::fmt::Write as _;
use std::sync::atomic::Ordering::Relaxed;

/// What a client is, in the words of `TYPE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Normal,
    PubSub,
    Replica,
    Primary,
}

impl Kind {
    pub(crate) fn of(client: &Shared) -> Self {
        let figures = &client.figures;
        if figures.replica.load(Relaxed) {
            return Self::Replica;
        }
        if figures.primary.load(Relaxed) {
            return Self::Primary;
        }
        let subscribed = [&figures.channels, &figures.patterns, &figures.shard_channels];
        let subscribed = subscribed.iter().any(|count| count.load(Relaxed) > 0);
        if subscribed { Self::PubSub } else { Self::Normal }
    }
}

/// One line of `CLIENT LIST`.
pub(crate) fn describe(client: &Shared, command: &str, argument_bytes: usize, now: u64) -> Vec<u8> {
    let figures = &client.figures;
    let number = |counter: &std::sync::atomic::AtomicUsize| counter.load(Relaxed);
    let seconds = |since: u64| now.saturating_sub(since) / 1000;
    let mut flags = String::new();
    let flag = |on: bool, letter: char, flags: &mut String| {
        if on {
            flags.push(letter);
        }
    };
    let multi = figures.multi.load(Relaxed);
    flag(figures.monitoring.load(Relaxed), 'O', &mut flags);
    flag(figures.replica.load(Relaxed), 'S', &mut flags);
    flag(figures.primary.load(Relaxed), 'M', &mut flags);
    flag(Kind::of(client) == Kind::PubSub, 'P', &mut flags);
    flag(multi >= 0, 'x', &mut flags);
    flag(figures.blocked.load(Relaxed), 'b', &mut flags);
    flag(figures.tracking.load(Relaxed), 't', &mut flags);
    flag(figures.tracking_broken.load(Relaxed), 'R', &mut flags);
    flag(figures.tracking_prefixes.load(Relaxed), 'B', &mut flags);
    flag(matches!(client.peer, Address::Unix(_)), 'U', &mut flags);
    flag(figures.readonly.load(Relaxed), 'r', &mut flags);
    flag(figures.no_evict.load(Relaxed), 'e', &mut flags);
    flag(figures.no_touch.load(Relaxed), 'T', &mut flags);
    flag(flags.is_empty(), 'N', &mut flags);
    let (queries, capacity) = (number(&figures.query_bytes), number(&figures.query_capacity));
    let (multi_bytes, output) = (number(&figures.multi_bytes), number(&figures.output_bytes));
    let memory = client.memory();
    let names = client.names.lock().clone();
    let mut line = Vec::with_capacity(384);
    let mut text = String::with_capacity(384);
    // Writing to a string does not fail.
    let _ = write!(
        text,
        "id={} addr={} laddr={} fd={} name=",
        client.id, client.peer, client.local, client.fd
    );
    line.extend_from_slice(text.as_bytes());
    line.extend_from_slice(&names.name);
    text.clear();
    let _ = write!(
        text,
        " age={} idle={} flags={flags} db={} sub={} psub={} ssub={} multi={multi} \
         qbuf={queries} qbuf-free={} argv-mem={} multi-mem={multi_bytes} rbs=0 rbp=0 obl=0 \
         oll={} omem={output} tot-mem={memory} events={} cmd={command} user=",
        seconds(client.connected),
        seconds(figures.last_active.load(Relaxed)),
        figures.db.load(Relaxed),
        number(&figures.channels),
        number(&figures.patterns),
        number(&figures.shard_channels),
        capacity.saturating_sub(queries),
        argument_bytes + number(&figures.argument_bytes),
        number(&figures.output_chunks),
        if output > 0 { "rw" } else { "r" },
    );
    line.extend_from_slice(text.as_bytes());
    line.extend_from_slice(&names.user);
    line.extend_from_slice(
        format!(" redir={} resp={}", figures.redirect.load(Relaxed), figures.resp.load(Relaxed))
            .as_bytes(),
    );
    line.extend_from_slice(b" lib-name=");
    line.extend_from_slice(&names.lib_name);
    line.extend_from_slice(b" lib-ver=");
    line.extend_from_slice(&names.lib_version);
    line.push(b'\n');
    line
}
