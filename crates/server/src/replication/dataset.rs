//! A data set for replicas: a snapshot, written as RDB, piece by piece.
//!
//! ```text
//!  end marked       $EOF:<40 digits>\r\n  RDB ...  <40 digits>
//!  length first     $<length>\r\n         RDB ...                   by way of a file
//! ```
//!
//! On a thread of its own, which may wait: for another snapshot to end, and for the
//! slowest of the replicas. A file has no name as soon as it is open: nothing is left
//! behind whatever happens.

use crate::config::Param;
use crate::engine::server::Server;
use crate::outside::chance::random_hex;
use crate::outside::clock::unix_ms;
use crate::peers::replica::Replica;
use bytes::Bytes;
use snug_rdb::{Meta, Options, Writer};
use snug_store::types::stream::StreamScratch;
use snug_store::{Session, Snapshot, Step};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// How long to wait for another snapshot before the next look.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const PIECE_BYTES: usize = 256 * 1024;

/// Where the stream was when the snapshot began.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) id: String,
    pub(super) offset: u64,
    /// The database that was selected in it.
    selected: usize,
}

type Pieces = mpsc::Sender<io::Result<Bytes>>;

/// Writes a data set of this moment for these replicas, and says first when it was.
pub(super) fn write(
    server: &Arc<Server>,
    replicas: &[Arc<Replica>],
    diskless: bool,
    begun: oneshot::Sender<Begun>,
    pieces: &Pieces,
) {
    let mut session = server.store.session();
    let Some((snapshot, at)) = begin(server, &mut session, replicas) else { return };
    let facts = facts(&at);
    if begun.send(at).is_err() {
        return;
    }
    let written = match diskless {
        true => marked(server, &mut session, snapshot, &facts, pieces),
        false => by_length(server, &mut session, snapshot, &facts, pieces),
    };
    if let Err(error) = written {
        // Whoever receives them may be gone.
        let _ = pieces.blocking_send(Err(error));
    }
}

/// Begins a snapshot as soon as there is no other, and has each replica be where the
/// stream is in that moment.
fn begin(
    server: &Server,
    session: &mut Session,
    replicas: &[Arc<Replica>],
) -> Option<(Snapshot, Begun)> {
    while !server.ending.load(Relaxed) {
        let batch = session.enter(unix_ms());
        let alone = batch.exclusive();
        if let Some(snapshot) = batch.begin_snapshot() {
            if !server.peers.is_replica() {
                // So that what follows begins with a SELECT.
                server.journal.mark(&batch);
            }
            let stream = server.peers.stream();
            let (id, offset) = (stream.backlog.id.clone(), stream.backlog.end());
            let selected = stream.selected;
            replicas.iter().for_each(|replica| replica.begin_at(offset));
            drop(stream);
            return Some((snapshot, Begun { id, offset, selected }));
        }
        drop(alone);
        drop(batch);
        std::thread::sleep(LOOK_EVERY);
    }
    None
}

/// What is told in front of the keys.
fn facts(at: &Begun) -> Vec<(&'static str, String)> {
    vec![
        ("redis-ver", crate::outside::REDIS_VERSION.into()),
        ("redis-bits", usize::BITS.to_string()),
        ("ctime", (unix_ms() / 1000).to_string()),
        ("used-mem", snug_store::memory::used().to_string()),
        ("repl-stream-db", at.selected.to_string()),
        ("repl-id", at.id.clone()),
        ("repl-offset", at.offset.to_string()),
        ("aof-base", "0".into()),
    ]
}

/// Sends what is written to it as pieces.
struct Outlet<'p> {
    pieces: &'p Pieces,
    gathered: Vec<u8>,
}

impl Outlet<'_> {
    fn give(&mut self) -> io::Result<()> {
        let piece = std::mem::replace(&mut self.gathered, Vec::with_capacity(PIECE_BYTES));
        let gone = |_| io::Error::new(io::ErrorKind::BrokenPipe, "no replica is left");
        self.pieces.blocking_send(Ok(piece.into())).map_err(gone)
    }
}

impl Write for Outlet<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.gathered.extend_from_slice(bytes);
        if self.gathered.len() >= PIECE_BYTES {
            self.give()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.gathered.is_empty() { Ok(()) } else { self.give() }
    }
}

fn marked(
    server: &Server,
    session: &mut Session,
    snapshot: Snapshot,
    facts: &[(&str, String)],
    pieces: &Pieces,
) -> io::Result<()> {
    let mark = random_hex();
    let mut outlet = Outlet { pieces, gathered: Vec::new() };
    write!(outlet, "$EOF:{mark}\r\n")?;
    rdb(server, session, snapshot, facts, &mut outlet)?;
    outlet.write_all(mark.as_bytes())?;
    outlet.flush()
}

fn by_length(
    server: &Server,
    session: &mut Session,
    snapshot: Snapshot,
    facts: &[(&str, String)],
    pieces: &Pieces,
) -> io::Result<()> {
    let mut file = nameless()?;
    rdb(server, session, snapshot, facts, &mut io::BufWriter::new(&mut file))?;
    let len = file.stream_position()?;
    file.rewind()?;
    let mut outlet = Outlet { pieces, gathered: Vec::new() };
    write!(outlet, "${len}\r\n")?;
    io::copy(&mut file.take(len), &mut outlet)?;
    outlet.flush()
}

/// A new file in the working directory, which nobody else can find.
pub(super) fn nameless() -> io::Result<File> {
    let name = format!("temp-{}-{}.rdb", std::process::id(), random_hex());
    let file = File::options().read(true).write(true).create_new(true).open(&name)?;
    std::fs::remove_file(&name)?;
    Ok(file)
}

/// Writes a snapshot as RDB.
fn rdb(
    server: &Server,
    session: &mut Session,
    mut snapshot: Snapshot,
    facts: &[(&str, String)],
    out: &mut dyn Write,
) -> io::Result<()> {
    let options =
        Options { compress: server.config.is_on(Param::Rdbcompression), ..Options::DEFAULT };
    let mut writer = Writer::new(out, options);
    let facts: Vec<(&str, &str)> = facts.iter().map(|(name, value)| (*name, &**value)).collect();
    writer.header(&facts)?;
    for code in server.persist.libraries.get().map(|all| all.all()).unwrap_or_default() {
        writer.function(&code)?;
    }
    for (db, keys, expiring) in snapshot.databases() {
        writer.database(db, keys, expiring)?;
    }
    let mut scratch = StreamScratch::default();
    let mut taken = Vec::new();
    loop {
        let step = snapshot.step(&session.enter(unix_ms()), &mut taken);
        for (db, value) in taken.drain(..) {
            let entry = writer.entry(db, &value, Meta::default(), (session, &mut scratch));
            entry.map_err(|unsaved| io::Error::other(unsaved.to_string()))?;
        }
        if step == Step::Done {
            break;
        }
        if server.ending.load(Relaxed) {
            return Err(io::Error::other("the server ends"));
        }
    }
    drop(snapshot);
    writer.end()?.flush()
}
