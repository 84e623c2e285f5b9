//! The data set as a primary sends it, and how it takes the place of what is here.
//!
//! | `repl-diskless-load` | the data set | what is here meanwhile | if the link breaks |
//! | --- | --- | --- | --- |
//! | `disabled` | goes to a file, and is loaded when it is whole | is served until then; `LOADING` while it is replaced | is still there |
//! | `on-empty-db` | is loaded as it streams if there are no keys, else as with `disabled` | `LOADING` | was nothing |
//! | `swapdb` | is made in memory beside the old one as it streams | is served until all has come; `LOADING` while it is replaced | is still there |
//!
//! It is RDB, or between Snug nodes Snug's own format, in which nothing is unpacked or
//! packed: its first bytes tell. If one of these cannot be taken in, RDB is asked for.
//!
//! With `swapdb` both data sets are in memory when the last byte comes; to replace one by
//! the other takes as long as the keys take to be put in their slots.
//!
//! From the moment at which the old one goes until the new one is whole this node has no
//! place in any stream: whatever goes wrong then, it asks for everything again.

use crate::config::Param;
use crate::engine::server::Server;
use crate::outside::clock::Instant;
use crate::outside::clock::unix_ms;
use crate::outside::threads;
use crate::persist::switch::IfNotWhole;
use crate::replication::dataset::nameless;
use crate::replication::link::{Broken, Wire};
use snug_rdb::{Event, Loading, ReadOptions, Reader, Refused};
use snug_store::image::{ImageReader, MAGIC, Part, Trust};
use snug_store::{Batch, Detached, Flushed, Limits, Session};
use std::io::{self, Cursor, ErrorKind, Read, Seek, Write};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Places among the values of `repl-diskless-load`.
const ON_EMPTY: i64 = 1;
pub(super) const SWAP: i64 = 2;
/// Digits of the mark behind a data set whose length is not told.
const MARK_LEN: usize = 40;
/// The primary is told once in so long that this node is alive.
const SIGN_OF_LIFE_EVERY: Duration = Duration::from_secs(1);
/// For how long dictionaries may stay in use of which the values are gone.
const DICTIONARIES_PATIENCE: Duration = Duration::from_secs(10);
/// Keys that are put in their slots while others wait.
const KEYS_AT_ONCE: usize = 256;

/// How the end of a data set is known.
enum End {
    Length(u64),
    Mark([u8; MARK_LEN]),
}

/// Tells the primary now and then that this node is alive, while it is busy with a data
/// set: a silent one would be taken for gone after `repl-timeout`.
struct Signs<'w, 's> {
    wire: &'w mut Wire<'s>,
    last: Instant,
}

impl<'w, 's> Signs<'w, 's> {
    fn on(wire: &'w mut Wire<'s>) -> Self {
        Self { wire, last: Instant::now() }
    }

    /// Gives one if it is time.
    fn give(&mut self) -> Result<(), Broken> {
        if self.last.elapsed() < SIGN_OF_LIFE_EVERY {
            return Ok(());
        }
        self.last = Instant::now();
        self.wire.sign_of_life()
    }
}

/// The data set's bytes, as they come. What came behind them stays with it.
struct Incoming<'w, 's> {
    signs: Signs<'w, 's>,
    left: Option<u64>,
    read: u64,
    /// Why no more could be read.
    broken: Option<Broken>,
}

impl Incoming<'_, '_> {
    fn some(&mut self, into: &mut [u8]) -> Result<usize, Broken> {
        let most = self.left.map_or(into.len(), |left| into.len().min(left as usize));
        if most == 0 {
            return Ok(0);
        }
        loop {
            let read = self.signs.wire.take(&mut into[..most])?;
            self.signs.give()?;
            if read > 0 {
                self.read += read as u64;
                self.left = self.left.map(|left| left - read as u64);
                self.signs.wire.has_read(self.read);
                return Ok(read);
            }
        }
    }
}

impl Read for Incoming<'_, '_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.some(into).map_err(|broken| {
            let told = io::Error::new(ErrorKind::BrokenPipe, broken.to_string());
            self.broken = Some(broken);
            told
        })
    }
}

/// Takes in the data set that comes, in the place of what is here: the state of the
/// stream `id` at `offset`. The database that is selected in the stream there.
pub(super) fn take_in(
    wire: &mut Wire<'_>,
    session: &mut Session,
    (id, offset): (&str, u64),
) -> Result<usize, Broken> {
    let server = wire.server();
    let header = wire.line()?;
    let nonsense = || Broken::Nonsense(format!("'{header}' in front of a data set"));
    let length = header.strip_prefix('$').ok_or_else(nonsense)?;
    let end = match length.strip_prefix("EOF:") {
        Some(mark) => End::Mark(mark.as_bytes().try_into().map_err(|_| nonsense())?),
        None => End::Length(length.parse().map_err(|_| nonsense())?),
    };
    let total = match end {
        End::Length(length) => Some(length),
        End::Mark(_) => None,
    };
    wire.begins(total);
    let mode = server.config.number(Param::ReplDisklessLoad);
    let is_empty = server.store.keys_of_all() == 0;
    // What comes is in no commit: the append-only file begins anew behind it.
    let append_only = server.config.is_on(Param::AppendOnly);
    let incoming = |wire| Incoming { signs: Signs::on(wire), left: total, read: 0, broken: None };
    let selected = if mode == SWAP {
        let gathered = {
            let _beside = Beside::of(server);
            gather(incoming(wire), &end, (server, session))?
        };
        let _loading = replace(wire, session, false)?;
        put(&mut Signs::on(wire), session, gathered.values);
        take_libraries(server, &gathered.functions);
        selected(&gathered.aux, server.store.databases())
    } else if mode == ON_EMPTY && is_empty {
        let incoming = begun(incoming(wire))?;
        let _loading = replace(&*incoming.rest.signs.wire, session, incoming.is_image)?;
        let streamed = stream(incoming, &end, server);
        whole(session, streamed)?
    } else {
        let file = begun(spool(incoming(wire), &end)?)?;
        let _loading = replace(wire, session, file.is_image)?;
        let loaded = load(server, Signed { rest: file, signs: Signs::on(wire) });
        whole(session, loaded)?
    };
    // The role does not change within a batch.
    let batch = session.enter(unix_ms());
    if !wire.is_wanted() {
        return Err(Broken::Unwanted);
    }
    server.peers.arrived(id, offset, selected);
    if append_only && let Err(error) = server.persist.set_aof(&batch, true) {
        tracing::error!(error, "the append-only file stays off");
    }
    Ok(selected)
}

/// A data set that lies here, read with signs of life.
struct Signed<'w, 's> {
    rest: Begun<std::fs::File>,
    signs: Signs<'w, 's>,
}

impl Read for Signed<'_, '_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        // Whoever reads from the primary next is told that it is gone.
        let _ = self.signs.give();
        self.rest.read(into)
    }
}

/// A data set of which the first bytes were read: they tell its format.
struct Begun<R> {
    first: Cursor<Vec<u8>>,
    rest: R,
    is_image: bool,
}

fn begun<R: Read>(mut rest: R) -> Result<Begun<R>, Broken> {
    let mut first = Vec::new();
    rest.by_ref().take(MAGIC.len() as u64).read_to_end(&mut first)?;
    let is_image = first == MAGIC;
    Ok(Begun { first: Cursor::new(first), rest, is_image })
}

impl<R: Read> Read for Begun<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.first.read(into)? {
            0 => self.rest.read(into),
            read => Ok(read),
        }
    }
}

/// A data set is being made beside the old one, until this is dropped.
struct Beside<'s>(&'s Server);

impl<'s> Beside<'s> {
    fn of(server: &'s Server) -> Self {
        server.peers.loads_beside.store(true, Relaxed);
        Self(server)
    }
}

impl Drop for Beside<'_> {
    fn drop(&mut self) {
        self.0.peers.loads_beside.store(false, Relaxed);
    }
}

/// The data set is being replaced, until this is dropped.
struct Replacing<'s>(&'s Server);

impl Drop for Replacing<'_> {
    fn drop(&mut self) {
        self.0.persist.loading.is_packed.store(false, Relaxed);
        self.0.peers.set_loading(&self.0.config, false);
    }
}

/// Takes away what all databases hold, and what was learnt of it; it is freed when the store
/// is not held.
fn take_away(batch: &Batch<'_>) -> Vec<Flushed> {
    let _alone = batch.exclusive();
    let flushed = batch.store().databases_used().map(|db| batch.flush(db)).collect();
    batch.store().families().emptied();
    flushed
}

/// What came of taking a data set in. A part of one is none: it goes before anybody can read
/// it.
fn whole<T>(session: &mut Session, came: Result<T, Broken>) -> Result<T, Broken> {
    if came.is_err() {
        let taken = take_away(&session.enter(unix_ms()));
        drop(taken);
    }
    came
}

/// Takes away what is here. What comes in Snug's own format brings the ids of its
/// dictionaries: those that are here have to be gone.
fn replace<'s>(
    wire: &Wire<'s>,
    session: &mut Session,
    is_image: bool,
) -> Result<Replacing<'s>, Broken> {
    let server = wire.server();
    server.peers.set_loading(&server.config, true);
    let replacing = Replacing(server);
    server.persist.loading.is_packed.store(is_image, Relaxed);
    if server.persist.is_aof_on() {
        server.persist.turn_off(IfNotWhole::TurnOff).map_err(Broken::Load)?;
    }
    let batch = session.enter(unix_ms());
    let alone = batch.exclusive();
    if !wire.is_wanted() {
        return Err(Broken::Unwanted);
    }
    server.peers.leave_stream();
    let flushed = take_away(&batch);
    drop(alone);
    drop(batch);
    if is_image {
        drop(flushed);
        forget_dictionaries(server)?;
    } else if server.config.is_on(Param::ReplicaLazyFlush) {
        // If there can be no thread it is freed here.
        drop(threads::spawn("flush", move || drop(flushed)));
    }
    Ok(replacing)
}

/// Waits until no dictionary is left of what was here: what is still being packed holds
/// one for a moment.
fn forget_dictionaries(server: &Server) -> Result<(), Broken> {
    let families = server.store.families();
    let until = Instant::now() + DICTIONARIES_PATIENCE;
    while !families.dictionaries().is_empty() {
        if Instant::now() > until {
            return Err(refused("dictionaries of what was here are still in use"));
        }
        threads::sleep(Duration::from_millis(1));
        families.emptied();
    }
    Ok(())
}

fn refused(refused: impl std::fmt::Display) -> Broken {
    Broken::Load(refused.to_string())
}

/// Why a data set was refused, for the log.
fn unloaded(server: &Server, why: Refused) -> Broken {
    match server.config.is_on(Param::HideUserDataFromLog) {
        true => refused(why.without_key()),
        false => refused(why),
    }
}

fn loading(server: &Server) -> Loading {
    let read = ReadOptions { checksum: server.config.is_on(Param::Rdbchecksum) };
    Loading { read, ..Loading::default() }
}

/// The database that the data set says is selected in the stream.
fn selected(aux: &[(Vec<u8>, Vec<u8>)], databases: usize) -> usize {
    let told = aux.iter().find(|(name, _)| name == b"repl-stream-db");
    let number = told.and_then(|(_, db)| snug_resp::parse_integer(db));
    number.and_then(|db| usize::try_from(db).ok()).filter(|&db| db < databases).unwrap_or(0)
}

/// Loads the data set as it streams.
fn stream(mut begun: Begun<Incoming<'_, '_>>, end: &End, server: &Server) -> Result<usize, Broken> {
    if begun.is_image {
        let image = load_image(server, &mut begun);
        let image = image.map_err(|why| begun.rest.broken.take().unwrap_or(why))?;
        finish(&mut begun.rest, Vec::new(), end)?;
        take_libraries(server, &image.functions);
        return Ok(selected(&image.aux, server.store.databases()));
    }
    let loading = loading(server);
    let mut reader = Reader::new(begun, loading.read).map_err(refused)?;
    let loaded = snug_rdb::load(&mut reader, &server.store, &loading, |_| true);
    let (mut begun, unread) = reader.into_parts();
    let loaded = match loaded {
        Ok(loaded) => loaded,
        Err(why) => return Err(begun.rest.broken.take().unwrap_or_else(|| unloaded(server, why))),
    };
    finish(&mut begun.rest, unread, end)?;
    take_libraries(server, &loaded.functions);
    Ok(selected(&loaded.aux, server.store.databases()))
}

/// Loads the data set from a file.
fn load(server: &Server, file: Signed<'_, '_>) -> Result<usize, Broken> {
    if file.rest.is_image {
        let image = load_image(server, file)?;
        take_libraries(server, &image.functions);
        return Ok(selected(&image.aux, server.store.databases()));
    }
    let loading = loading(server);
    let mut reader = Reader::new(file, loading.read).map_err(refused)?;
    let loaded = snug_rdb::load(&mut reader, &server.store, &loading, |_| true);
    let loaded = loaded.map_err(|why| unloaded(server, why))?;
    take_libraries(server, &loaded.functions);
    Ok(selected(&loaded.aux, server.store.databases()))
}

/// Loads a data set in Snug's own format: nothing is unpacked or packed.
fn load_image(server: &Server, from: impl Read) -> Result<Gathered, Broken> {
    let making = server.store.session();
    let mut session = server.store.session();
    let mut values = Vec::new();
    let image = read_image(from, &making, |db, value| {
        values.push((db, value));
        if values.len() >= KEYS_AT_ONCE {
            give(server, &mut session, values.drain(..));
        }
    });
    give(server, &mut session, values.into_iter());
    image
}

/// Reads a data set in Snug's own format, and gives each key with its value.
fn read_image(
    from: impl Read,
    session: &Session,
    mut each: impl FnMut(usize, Detached),
) -> Result<Gathered, Broken> {
    let mut image = Gathered::default();
    // A primary is trusted: it can have anything executed here.
    let reader = ImageReader::new(from, session, &Limits::DEFAULT, Trust::Own);
    // The mark stands behind it, if its length was not told.
    let mut reader = reader.map_err(refused)?.followed();
    loop {
        match reader.next().map_err(refused)? {
            Part::Aux(name, value) if name.starts_with(b"repl-") => image.aux.push((name, value)),
            Part::Aux(..) => {}
            Part::Function(code) => image.functions.push(code),
            Part::Entry(db, value) => each(db, value),
            Part::End => return Ok(image),
        }
    }
}

/// A data set that is in no slot yet.
#[derive(Default)]
struct Gathered {
    /// Each with its database.
    values: Vec<(usize, Detached)>,
    functions: Vec<Vec<u8>>,
    aux: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Has the libraries of functions of the data set take the place of those that are here.
/// What is wrong with one is no reason to be without the data.
fn take_libraries(server: &Server, functions: &[Vec<u8>]) {
    if let Some(libraries) = server.persist.libraries.get() {
        libraries.flush();
    }
    for code in functions {
        let taken = match server.persist.libraries.get() {
            Some(libraries) => libraries.load(code),
            None => Err("this server has no functions".into()),
        };
        if let Err(error) = taken {
            tracing::warn!(error, "a library of functions of the primary is left out");
        }
    }
}

/// Makes the values of the data set as it streams, and puts them nowhere yet.
fn gather(
    incoming: Incoming<'_, '_>,
    end: &End,
    (server, session): (&Server, &Session),
) -> Result<Gathered, Broken> {
    let mut incoming = begun(incoming)?;
    if incoming.is_image {
        let mut values = Vec::new();
        let image = read_image(&mut incoming, session, |db, value| values.push((db, value)));
        let image = image.map_err(|why| incoming.rest.broken.take().unwrap_or(why))?;
        finish(&mut incoming.rest, Vec::new(), end)?;
        return Ok(Gathered { values, ..image });
    }
    let mut reader = Reader::new(incoming, ReadOptions::DEFAULT).map_err(refused)?;
    let Gathered { mut values, mut functions, mut aux } = Gathered::default();
    let limits = Limits::DEFAULT;
    let gathered = (|| {
        let mut making = session.making(&limits);
        let (mut db, databases) = (0, session.store().databases());
        loop {
            match reader.next()? {
                Event::Database(number) if number < databases as u64 => db = number as usize,
                Event::Database(number) => {
                    let at = reader.offset();
                    return Err(Refused::Database { at, db: number, databases });
                }
                Event::Aux(name, value) if name.starts_with(b"repl-") => aux.push((name, value)),
                Event::Key(head) => {
                    reader.value(&head, &mut making)?;
                    let key = session.store().key(&head.key);
                    values.extend(making.finish(&key, head.expiry, None).map(|v| (db, v)));
                }
                Event::Function(code) => functions.push(code),
                Event::End => return Ok(()),
                _ => {}
            }
        }
    })();
    let (mut incoming, unread) = reader.into_parts();
    if let Err(why) = gathered {
        return Err(incoming.rest.broken.take().unwrap_or_else(|| unloaded(server, why)));
    }
    finish(&mut incoming.rest, unread, end)?;
    Ok(Gathered { values, functions, aux })
}

/// Puts values in their slots.
fn put(signs: &mut Signs<'_, '_>, session: &mut Session, values: Vec<(usize, Detached)>) {
    let server = signs.wire.server();
    let mut values = values.into_iter().peekable();
    while values.peek().is_some() {
        give(server, session, values.by_ref().take(KEYS_AT_ONCE));
        // One that is gone is noticed when the stream is read.
        let _ = signs.give();
    }
    let keys = server.store.keys_of_all();
    tracing::info!(keys, "the data set of the primary is in place");
}

/// Puts some values in their slots at once.
fn give(server: &Server, session: &mut Session, values: impl Iterator<Item = (usize, Detached)>) {
    let batch = session.enter(unix_ms());
    for (db, value) in values {
        if let Err(value) = batch.load(db, value) {
            let key = match server.config.is_on(Param::HideUserDataFromLog) {
                true => "(hidden)".to_owned(),
                false => value.key().escape_ascii().to_string(),
            };
            tracing::warn!(key, db, "the data set has a key twice: the first one stays");
        }
    }
}

/// Sees to it that a data set which was read ends as it is to, and gives back what came
/// behind it.
fn finish(incoming: &mut Incoming<'_, '_>, mut unread: Vec<u8>, end: &End) -> Result<(), Broken> {
    let nonsense = |what: &str| Err(Broken::Nonsense(format!("a data set {what}")));
    match end {
        End::Length(_) if !unread.is_empty() || incoming.left != Some(0) => {
            nonsense("that is shorter than was said")
        }
        End::Length(_) => Ok(()),
        End::Mark(mark) => {
            while unread.len() < MARK_LEN {
                let mut more = [0; MARK_LEN];
                let missing = MARK_LEN - unread.len();
                let read = incoming.some(&mut more[..missing])?;
                unread.extend_from_slice(&more[..read]);
            }
            let rest = unread.split_off(MARK_LEN);
            if unread != mark {
                return nonsense("without its mark at the end");
            }
            incoming.signs.wire.give_back(rest);
            Ok(())
        }
    }
}

/// Puts the data set into a file, as it is.
fn spool(mut incoming: Incoming<'_, '_>, end: &End) -> Result<std::fs::File, Broken> {
    let mut file = nameless()?;
    let mut buffer = vec![0; 256 * 1024];
    // The last bytes that came: they may be the mark.
    let mut last: Vec<u8> = Vec::new();
    loop {
        let read = incoming.some(&mut buffer)?;
        if read == 0 {
            break;
        }
        file.write_all(&buffer[..read])?;
        if let End::Mark(mark) = end {
            // Nothing comes behind the mark before this node has said something.
            last.extend_from_slice(&buffer[read.saturating_sub(MARK_LEN)..read]);
            last.drain(..last.len().saturating_sub(MARK_LEN));
            if last == mark {
                break;
            }
        }
    }
    if let End::Mark(_) = end {
        let len = file.stream_position()?;
        file.set_len(len - MARK_LEN as u64)?;
    }
    file.rewind()?;
    Ok(file)
}
