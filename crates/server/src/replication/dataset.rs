//! A data set for replicas: a snapshot, written as RDB or, for Snug nodes, in Snug's own
//! format: values as they lie in memory (`docs/format.md`).
//!
//! ```text
//!  end marked       $EOF:<40 digits>\r\n  data set ...  <40 digits>
//!  length first     $<length>\r\n         data set ...                by way of a file
//! ```
//!
//! On a thread of its own, which may wait: for another snapshot to end, and for the
//! slowest of the replicas. A file has no name as soon as it is open: nothing is left
//! behind whatever happens.

use crate::config::Param;
use crate::engine::server::Server;
use crate::outside::chance::random_hex;
use crate::outside::clock::unix_ms;
use crate::outside::threads::{self, GivesWay};
use crate::peers::replica::{LeftOut, Replica};
use crate::persist::past::Past;
use crate::persist::writing::linger;
use bytes::Bytes;
use snug_rdb::{Meta, Options, Writer};
use snug_store::image::ImageWriter;
use snug_store::types::stream::StreamScratch;
use snug_store::{Detached, Session, Snapshot, Step};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

/// How long to wait for another snapshot before the next look.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const PIECE_BYTES: usize = 256 * 1024;
/// How often to look whether there is room for a piece.
const ROOM_EVERY: Duration = Duration::from_micros(500);

type Pieces = mpsc::Sender<io::Result<Bytes>>;

/// Writes a data set of this moment for these replicas, and says first when it was.
pub(super) fn write(
    server: &Arc<Server>,
    replicas: &[Arc<Replica>],
    diskless: bool,
    begun: oneshot::Sender<Past>,
    pieces: &Pieces,
) {
    let mut session = server.store.session();
    let Some((snapshot, at)) = begin(server, &mut session, replicas) else { return };
    let facts = facts(&at);
    if begun.send(at).is_err() {
        return;
    }
    // All of them want the same.
    let (image, without) = replicas.first().map(|one| one.introduction.wants()).unwrap_or_default();
    let dataset = Dataset { server, session, snapshot: Some(snapshot), facts, image, without };
    let outlet = Outlet { server, pieces, gathered: Vec::new(), spilt: None };
    let written = match diskless {
        true => dataset.marked(outlet),
        false => dataset.by_length(outlet),
    };
    if let Err(error) = written {
        // Whoever receives them may be gone.
        let _ = threads::send(pieces, Err(error));
    }
}

/// Begins a snapshot as soon as there is no other, and has each replica be where the
/// stream is in that moment.
fn begin(
    server: &Server,
    session: &mut Session,
    replicas: &[Arc<Replica>],
) -> Option<(Snapshot, Past)> {
    while !server.ending.load(Relaxed) {
        let batch = session.enter(unix_ms());
        let alone = batch.exclusive();
        if let Some(snapshot) = batch.begin_snapshot() {
            let past = server.peers.past(&batch, &server.journal)?;
            replicas.iter().for_each(|replica| replica.begin_at(past.offset));
            return Some((snapshot, past));
        }
        drop(alone);
        drop(batch);
        threads::sleep(LOOK_EVERY);
    }
    None
}

/// What is told in front of the keys.
fn facts(at: &Past) -> Vec<(&'static str, String)> {
    let mut facts = vec![
        ("redis-ver", crate::outside::REDIS_VERSION.into()),
        ("redis-bits", usize::BITS.to_string()),
        ("ctime", (unix_ms() / 1000).to_string()),
        ("used-mem", snug_store::memory::used().to_string()),
        ("aof-base", "0".into()),
    ];
    facts.extend(at.facts());
    facts
}

/// Sends what is written to it as pieces. Whoever changes keys must not wait for a
/// replica that takes nothing: once the snapshot is behind, pieces that nobody has room
/// for go into a file, and from there to the replicas.
struct Outlet<'p> {
    server: &'p Server,
    pieces: &'p Pieces,
    gathered: Vec<u8>,
    spilt: Option<Spilt>,
}

/// Bytes on their way, in a file.
struct Spilt {
    file: File,
    /// Up to where it was read, and written.
    read: u64,
    end: u64,
}

impl Spilt {
    fn take(&mut self) -> io::Result<Bytes> {
        let mut piece = vec![0; PIECE_BYTES.min((self.end - self.read) as usize)];
        self.file.read_exact_at(&mut piece, self.read)?;
        self.read += piece.len() as u64;
        Ok(piece.into())
    }
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "no replica is left")
}

impl Outlet<'_> {
    fn give(&mut self) -> io::Result<()> {
        let piece = std::mem::replace(&mut self.gathered, Vec::with_capacity(PIECE_BYTES));
        let mut piece = Bytes::from(piece);
        loop {
            while let Some(spilt) = &mut self.spilt {
                let Ok(room) = self.pieces.try_reserve() else { break };
                room.send(Ok(spilt.take()?));
                self.spilt.take_if(|spilt| spilt.read == spilt.end);
            }
            if self.spilt.is_none() {
                piece = match self.pieces.try_send(Ok(piece)) {
                    Ok(()) => return Ok(()),
                    Err(TrySendError::Full(piece)) => piece?,
                    Err(TrySendError::Closed(_)) => return Err(gone()),
                };
            }
            if self.pieces.is_closed() {
                return Err(gone());
            }
            if self.spilt.is_some() || self.server.store.is_snapshot_behind() {
                if self.spilt.is_none() {
                    self.spilt = Some(Spilt { file: nameless()?, read: 0, end: 0 });
                }
                if let Some(spilt) = &mut self.spilt {
                    spilt.file.write_all_at(&piece, spilt.end)?;
                    spilt.end += piece.len() as u64;
                }
                return Ok(());
            }
            threads::sleep(ROOM_EVERY);
        }
    }

    /// Sends what lies in a file. Nobody waits for the snapshot any more.
    fn finish(mut self) -> io::Result<()> {
        self.flush()?;
        while let Some(spilt) = &mut self.spilt {
            let piece = spilt.take()?;
            threads::send(self.pieces, Ok(piece)).map_err(|_| gone())?;
            self.spilt.take_if(|spilt| spilt.read == spilt.end);
        }
        Ok(())
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

/// What is to be written, and how.
struct Dataset<'s> {
    server: &'s Server,
    session: Session,
    /// Until all of it is written.
    snapshot: Option<Snapshot>,
    facts: Vec<(&'static str, String)>,
    /// In Snug's own format.
    image: bool,
    /// Of RDB alone.
    without: LeftOut,
}

impl Drop for Dataset<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

impl Dataset<'_> {
    fn marked(mut self, mut outlet: Outlet<'_>) -> io::Result<()> {
        let mark = random_hex();
        write!(outlet, "$EOF:{mark}\r\n")?;
        self.write(&mut outlet)?;
        outlet.write_all(mark.as_bytes())?;
        outlet.finish()
    }

    fn by_length(mut self, mut outlet: Outlet<'_>) -> io::Result<()> {
        let mut file = nameless()?;
        let mut gathered = io::BufWriter::new(&mut file);
        self.write(&mut gathered)?;
        gathered.flush()?;
        drop(gathered);
        let len = file.stream_position()?;
        file.rewind()?;
        write!(outlet, "${len}\r\n")?;
        io::copy(&mut file.take(len), &mut outlet)?;
        outlet.finish()
    }

    /// Writes all of the snapshot, which ends with that.
    fn write(&mut self, out: &mut dyn Write) -> io::Result<()> {
        let written = if self.image { self.image(out) } else { self.rdb(out) };
        self.end();
        written
    }

    /// Ends the snapshot: nobody waits for it any more.
    fn end(&mut self) {
        if self.snapshot.take().is_some() {
            self.server.journal.held.release();
        }
    }

    fn libraries(&self) -> Vec<Vec<u8>> {
        self.server.persist.libraries.get().map(|all| all.all()).unwrap_or_default()
    }

    fn rdb(&mut self, out: &mut dyn Write) -> io::Result<()> {
        let compress = self.server.config.is_on(Param::Rdbcompression);
        let mut writer = Writer::new(out, Options { compress, ..Options::DEFAULT });
        let facts: Vec<_> = self.facts.iter().map(|(name, value)| (*name, &**value)).collect();
        writer.header(&facts)?;
        if !self.without.functions {
            for code in self.libraries() {
                writer.function(&code)?;
            }
        }
        if self.without.keys {
            return writer.end()?.flush();
        }
        for (db, keys, expiring) in self.snapshot.iter().flat_map(Snapshot::databases) {
            writer.database(db, keys, expiring)?;
        }
        let (session, mut scratch) = (self.server.store.session(), StreamScratch::default());
        self.walk(|db, value| {
            let entry = writer.entry(db, value, Meta::default(), (&session, &mut scratch));
            entry.map_err(|unsaved| io::Error::other(unsaved.to_string()))
        })?;
        writer.end()?.flush()
    }

    fn image(&mut self, out: &mut dyn Write) -> io::Result<()> {
        let store = Arc::clone(&self.server.store);
        let mut writer = ImageWriter::new(out, &store)?;
        if self.server.config.is_on(Param::Rdbcompression) {
            writer.frame(self.server.persist.file_threads())?;
        }
        for (name, value) in &self.facts {
            writer.aux(name.as_bytes(), value.as_bytes())?;
        }
        for code in self.libraries() {
            writer.function(&code)?;
        }
        writer.families()?;
        self.walk(|db, value| writer.entry(db, value))?;
        writer.end()?.flush()
    }

    /// Gives each key of the snapshot, with its value.
    fn walk(&mut self, mut each: impl FnMut(usize, &Detached) -> io::Result<()>) -> io::Result<()> {
        let Some(snapshot) = &mut self.snapshot else { return Ok(()) };
        let server = self.server;
        let mut taken = Vec::new();
        let mut gives_way = GivesWay::new();
        loop {
            let was_behind = server.store.is_snapshot_behind();
            let step = snapshot.step(&self.session.enter(unix_ms()), &mut taken);
            if was_behind {
                server.journal.held.release();
            }
            for (db, value) in taken.drain(..) {
                each(db, &value)?;
                linger(&server.config);
                gives_way.now_and_then();
                if server.ending.load(Relaxed) {
                    return Err(io::Error::other("the server ends"));
                }
            }
            if step == Step::Done {
                return Ok(());
            }
        }
    }
}

/// A new file in the working directory, which nobody else can find.
pub(super) fn nameless() -> io::Result<File> {
    let name = format!("temp-{}-{}.rdb", std::process::id(), random_hex());
    let file = File::options().read(true).write(true).create_new(true).open(&name)?;
    std::fs::remove_file(&name)?;
    Ok(file)
}
