//! A mirror: a second store that is fed with nothing but the commits of the first,
//! as commands, and is to hold the same. It proves that commits tell everything:
//! what replicas, the append-only file and migration will rely on.
//!
//! ```text
//!  store ──commits──> journal ──commands──> handlers ──> mirror
//!                                          (Origin::Replay)
//! ```
//!
//! `DEBUG MIRROR START`, `CHECK`, `STOP`. A check keeps everybody else out while it
//! replays what the journal has for it and compares every key: what it holds by its
//! digest, when it expires, and of streams also their counters and groups. For tests:
//! until a check, every write is kept in memory.

use crate::commands::replay::{Replayed, Replayer};
use crate::commands::{self, digest};
use crate::engine::client::Caller;
use crate::engine::context::{Context, Origin};
use crate::engine::server::Mirror;
use crate::journal::Piece;
use crate::request::error::Error;
use crate::request::stream::CommandStream;
use snug_store::types::stream::{Group, Stream, StreamId};
use snug_store::{Batch, Expired, Store, Unobserved};

/// Begins to mirror a store that has no keys yet.
pub(crate) fn start(cx: &Context<'_>) -> Result<(), Error> {
    let _alone = cx.store.exclusive();
    let store = cx.store.store();
    if store.keys_of_all() > 0 {
        return Err(Error::new("ERR a mirror begins with no keys"));
    }
    let config = store.config();
    let follower = cx.server.journal.join(cx.store, true, Box::new(|| ()));
    let store = Store::new(config, Box::new(Unobserved));
    *cx.server.mirror.lock() = Some(Mirror { store, follower });
    Ok(())
}

/// Ends mirroring.
pub(crate) fn stop(cx: &Context<'_>) {
    *cx.server.mirror.lock() = None;
}

/// Replays what has been committed, and compares. The error says what differs.
pub(crate) fn check(cx: &Context<'_>) -> Result<(), Error> {
    let _alone = cx.store.exclusive();
    let mut mirror = cx.server.mirror.lock();
    let mirror = mirror.as_mut().ok_or(Error::new("ERR there is no mirror"))?;
    let mut session = mirror.store.session();
    let mut caller = Caller::default();
    let failed = |what: String| Err(Error::from(format!("ERR the mirror differs: {what}")));
    let mut pieces = Vec::new();
    mirror.follower.read(&mut pieces);
    // The next look begins in database 0.
    cx.server.journal.select_anew(cx.store);
    if mirror.follower.last() != cx.store.store().commits() {
        return failed(format!("commit {} is the last told", mirror.follower.last()));
    }
    let (mut stream, mut replayer) = (CommandStream::default(), Replayer::default());
    for piece in pieces {
        let Piece::Bytes(bytes) = piece else { continue };
        stream.push(&bytes);
        loop {
            let args = match stream.next() {
                Ok(Some(args)) => args,
                Ok(None) => break,
                Err(why) => return failed(why.to_string()),
            };
            let batch = session.enter(cx.store.now());
            let on = Replayed { server: cx.server, store: &batch, worker: cx.worker };
            if let Err(why) = replayer.execute(on, args, None) {
                return failed(why);
            }
        }
    }
    if replayer.is_in_transaction() || !stream.is_between_commands() {
        return failed("the last commit is cut off".into());
    }
    let now = cx.store.now();
    let batch = session.enter(now);
    batch.expired_keys(Expired::Seen);
    let usual = cx.store.session_expired();
    cx.store.expired_keys(Expired::Seen);
    let differs =
        (0..batch.store().databases()).find_map(|db| difference(cx, &mut caller, &batch, db));
    cx.store.expired_keys(usual);
    match differs {
        Some(what) => failed(what),
        None => Ok(()),
    }
}

fn context<'c>(cx: &Context<'c>, caller: &'c mut Caller, store: &'c Batch<'c>) -> Context<'c> {
    Context {
        caller,
        client: None,
        store,
        server: cx.server,
        command: commands::none(),
        worker: cx.worker,
        origin: Origin::Replay,
        hashed: None,
        pool: None,
        finished: None,
        brought: false,
    }
}

/// What a key of a database holds that the mirror does not, or the other way round.
fn difference(
    cx: &Context<'_>,
    caller: &mut Caller,
    store: &Batch<'_>,
    db: usize,
) -> Option<String> {
    let (ours, theirs) = (cx.store.store().keys(db), store.store().keys(db));
    if ours != theirs {
        return Some(format!("database {db} has {ours} keys, the mirror {theirs}"));
    }
    let mut keys = Vec::new();
    cx.store.scan(db, 0, usize::MAX, |key, _| keys.push(key.to_vec()));
    let mirrored = context(cx, caller, store);
    keys.into_iter().find_map(|key| {
        let (ours, theirs) = (facts(cx, db, &key), facts(&mirrored, db, &key));
        let name = String::from_utf8_lossy(&key).into_owned();
        (!ours.agrees_with(&theirs))
            .then(|| format!("key {name} of database {db}: {ours:?} there, {theirs:?} here"))
    })
}

/// All that commits have to tell of a key.
#[derive(Debug)]
struct Facts {
    value: String,
    /// Of a stream, unless it is on disk and memory is too short to bring it back: its
    /// digest is read from there.
    stream: Option<String>,
}

impl Facts {
    fn agrees_with(&self, other: &Self) -> bool {
        let same = self.stream.as_ref().zip(other.stream.as_ref()).is_none_or(|(a, b)| a == b);
        self.value == other.value && same
    }
}

fn facts(cx: &Context<'_>, db: usize, name: &[u8]) -> Facts {
    let nothing = || Facts { value: "nothing".into(), stream: None };
    let digest = match digest::of_key(cx, db, name) {
        Ok(Some(digest)) => digest.to_string(),
        Ok(None) => return nothing(),
        Err(error) => String::from_utf8_lossy(error.text()).into_owned(),
    };
    let key = cx.store.key(name);
    let mut slot = cx.store.lock(db, &key);
    let Some(found) = slot.find_entry(&key) else { return nothing() };
    let value = format!("{} {digest} expires {:?}", slot.type_of(found).name(), slot.expiry(found));
    Facts { value, stream: slot.stream(found).map(of_stream) }
}

/// What is not in the digest of a stream.
fn of_stream(stream: &Stream) -> String {
    let groups: Vec<String> = stream.groups().into_iter().flatten().map(of_group).collect();
    format!(
        "last {} deleted {} added {} groups [{}]",
        stream.last_id(),
        stream.max_deleted_id(),
        stream.entries_added(),
        groups.join("; ")
    )
}

fn of_group(group: &Group) -> String {
    let name = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let consumers: Vec<String> = group.consumers().map(|(_, c)| name(c.name())).collect();
    let all = (StreamId::MIN, StreamId::MAX);
    let pending: Vec<String> = group
        .pending_between(all, None, u64::MAX)
        .map(|entry| {
            let owner = group.consumer(entry.owner()).map(|c| name(c.name()));
            format!("{} {owner:?} {} {}", entry.id, entry.delivered, entry.count)
        })
        .collect();
    format!(
        "{} at {} read {:?} {consumers:?} {pending:?}",
        name(group.name()),
        group.last_id(),
        group.entries_read(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Cluster;
    use crate::config::Config;
    use crate::dispatch::{self, Asked};
    use crate::engine::blocked;
    use crate::engine::client::Client;
    use crate::engine::out::Out;
    use crate::engine::server::Server;
    use crate::follow::clients::{Address, Shared};
    use crate::request::args::OwnedArgs;
    use rand::rngs::StdRng;
    use rand::{RngExt as _, SeedableRng};
    use std::collections::BTreeSet;
    use std::net::{Ipv4Addr, SocketAddr};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    const START: u64 = 1_700_000_000_000;

    fn server() -> Arc<Server> {
        let config = Config::default();
        let cluster = Cluster::load(&config).unwrap();
        Server::new(config, cluster, 2, commands::catalog())
    }

    /// A client without a connection, and all that executes its commands.
    struct Driver<'s> {
        server: &'s Server,
        session: snug_store::Session,
        caller: Caller,
        client: Client,
    }

    impl<'s> Driver<'s> {
        fn new(server: &'s Server) -> Self {
            let nowhere = Address::Net(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
            let ends = (nowhere.clone(), nowhere);
            let shared = Arc::new(Shared::new(0, ends, -1, 0));
            let client = Client::new(shared, server.first_account());
            Self { server, session: server.store.session(), caller: Caller::default(), client }
        }

        fn with<R>(&mut self, now: u64, work: impl FnOnce(&mut Context<'_>) -> R) -> R {
            let batch = self.session.enter(now);
            let mut cx = Context {
                caller: &mut self.caller,
                client: Some(&mut self.client),
                store: &batch,
                server: self.server,
                command: commands::none(),
                worker: 0,
                origin: Origin::Client,
                hashed: None,
                pool: None,
                finished: None,
                brought: false,
            };
            let result = work(&mut cx);
            if blocked::any_ready() {
                self.server.serve(&batch, 0);
            }
            result
        }

        /// The reply to a command.
        fn call(&mut self, now: u64, command: &[Vec<u8>]) -> Vec<u8> {
            let args = OwnedArgs::of(command);
            let batch = self.session.enter(now);
            let mut out = Out::default();
            let mut asked = Asked {
                caller: &mut self.caller,
                client: &mut self.client,
                store: &batch,
                server: self.server,
                worker: 0,
                hashed: None,
                pool: None,
                finished: None,
            };
            let halted = dispatch::execute(&mut asked, args.args(), &mut out).err();
            assert!(halted.is_none(), "nothing is put off");
            if blocked::any_ready() {
                self.server.serve(&batch, 0);
            }
            out.bytes
        }
    }

    /// A random command about few keys, so that they meet.
    fn command(random: &mut StdRng, now: u64) -> Vec<Vec<u8>> {
        let key = |random: &mut StdRng| format!("k{}", random.random_range(0..12));
        let stream = |random: &mut StdRng| format!("s{}", random.random_range(0..4));
        let group = |random: &mut StdRng| format!("g{}", random.random_range(0..2));
        let consumer = |random: &mut StdRng| format!("c{}", random.random_range(0..3));
        let small = |random: &mut StdRng| random.random_range(-20..200).to_string();
        let id =
            |random: &mut StdRng| random.random_range(now.saturating_sub(30)..now + 2).to_string();
        let value = |random: &mut StdRng| match random.random_range(0..40) {
            0 => "x".repeat(random.random_range(66_000..300_000)),
            1..10 => random.random_range(-1000..100_000).to_string(),
            n => format!("{}:{}", "value ".repeat(n), random.random_range(0..99)),
        };
        let text = match random.random_range(0..62) {
            0..8 => return vec![b"SET".into(), key(random).into(), value(random).into()],
            8 => format!("SET {} v PX {}", key(random), random.random_range(1..60)),
            9 => format!("SET {} w KEEPTTL GET", key(random)),
            10 => format!("SET {} w NX EXAT {}", key(random), START / 1000 + 1),
            11 => format!("GETEX {} PX {}", key(random), random.random_range(1..60)),
            12 => format!("GETEX {} PERSIST", key(random)),
            13 => format!("GETDEL {}", key(random)),
            14 => format!("INCRBY {} {}", key(random), small(random)),
            15 => format!("INCRBYFLOAT {} 0.25", key(random)),
            16 => return vec![b"APPEND".into(), key(random).into(), value(random).into()],
            17 => format!("SETRANGE {} {} abc", key(random), random.random_range(0..300)),
            18 => format!("SETBIT {} {} 1", key(random), random.random_range(0..3000)),
            19 => format!(
                "BITFIELD {} SET u8 {} 7 OVERFLOW FAIL INCRBY u4 {} 9 GET u8 0",
                key(random),
                random.random_range(0..900),
                random.random_range(0..90)
            ),
            20 => format!("BITOP OR {} {} {}", key(random), key(random), key(random)),
            21 => format!("MSET {} a {} b", key(random), key(random)),
            22 => format!("MSETNX {} a {} b", key(random), key(random)),
            23 => format!("DEL {} {}", key(random), key(random)),
            24 => format!("UNLINK {}", stream(random)),
            25 => format!("EXPIRE {} {}", key(random), random.random_range(-1..1)),
            26 => format!("PEXPIRE {} {} NX", key(random), random.random_range(1..90)),
            27 => format!("PERSIST {}", key(random)),
            28 => format!("RENAME {} {}", key(random), key(random)),
            29 => format!("RENAMENX {} {}", stream(random), stream(random)),
            30 => format!("COPY {} {} DB 1 REPLACE", key(random), key(random)),
            31 => format!("COPY {} {}", stream(random), stream(random)),
            32 => format!("MOVE {} 2", key(random)),
            33 => format!("SELECT {}", random.random_range(0..3)),
            34 if random.random_range(0..9) == 0 => "SWAPDB 0 1".into(),
            35 if random.random_range(0..20) == 0 => "FLUSHDB".into(),
            36 if random.random_range(0..40) == 0 => "FLUSHALL ASYNC".into(),
            34..37 => format!("GET {}", key(random)),
            37..44 => format!("XADD {} * f {} g {}", stream(random), small(random), small(random)),
            44 => format!("XADD {} MAXLEN ~ {} * f v", stream(random), random.random_range(1..300)),
            45 => format!("XTRIM {} MINID = {}", stream(random), id(random)),
            46 => format!("XTRIM {} MAXSIZE {}", stream(random), random.random_range(100..9000)),
            47 => format!("XDEL {} {}-0 {}-1", stream(random), id(random), id(random)),
            48 => format!("XSETID {} {}-7", stream(random), now + 5),
            49 => format!("XGROUP CREATE {} {} 0 MKSTREAM", stream(random), group(random)),
            50 => format!("XGROUP SETID {} {} $", stream(random), group(random)),
            51 => format!("XGROUP DESTROY {} {}", stream(random), group(random)),
            52 => format!(
                "XGROUP DELCONSUMER {} {} {}",
                stream(random),
                group(random),
                consumer(random)
            ),
            53..56 => format!(
                "XREADGROUP GROUP {} {} COUNT {} STREAMS {} >",
                group(random),
                consumer(random),
                random.random_range(1..9),
                stream(random)
            ),
            56 => format!(
                "XREADGROUP GROUP {} {} NOACK STREAMS {} {} > 0",
                group(random),
                consumer(random),
                stream(random),
                stream(random)
            ),
            57 => format!("XACK {} {} {}-0", stream(random), group(random), id(random)),
            58 => format!(
                "XCLAIM {} {} {} 0 {}-0 {}-0 FORCE RETRYCOUNT 3",
                stream(random),
                group(random),
                consumer(random),
                id(random),
                id(random)
            ),
            59 => format!(
                "XAUTOCLAIM {} {} {} 5 0 COUNT 7",
                stream(random),
                group(random),
                consumer(random)
            ),
            60 => "MULTI".into(),
            _ => "EXEC".into(),
        };
        text.split(' ').map(Into::into).collect()
    }

    /// Several workers write at once, keys expire meanwhile, some are evicted.
    #[test]
    fn a_second_store_holds_what_commits_tell() {
        let server = server();
        let mut told = BTreeSet::new();
        for seed in 0..6 {
            let clock = AtomicU64::new(START + 1);
            let mut first = Driver::new(&server);
            first.with(START, |cx| start(cx).unwrap());
            std::thread::scope(|scope| {
                for worker in 0..3u64 {
                    let (server, clock) = (&server, &clock);
                    scope.spawn(move || {
                        let mut random = StdRng::seed_from_u64(seed * 10 + worker);
                        let mut driver = Driver::new(server);
                        for round in 0..2500 {
                            let now = clock.fetch_add(u64::from(round % 8 == 0), Relaxed);
                            let command = command(&mut random, now);
                            driver.call(now, &command);
                            if round % 50 == 0 {
                                driver.with(now, |cx| {
                                    cx.store.expire_due(0, 1, &mut || false);
                                });
                            }
                            if round % 100 == 0 {
                                let order = snug_store::Order::Random;
                                let how = snug_store::Eviction {
                                    order,
                                    volatile: false,
                                    samples: 5,
                                    lying: snug_store::Lying::Anywhere,
                                };
                                driver.with(now, |cx| drop(cx.store.evict(&how)));
                            }
                        }
                    });
                }
            });
            let now = clock.load(Relaxed);
            let changes = server.store.commits();
            assert!(changes > 1000, "{changes}");
            told.extend(names(&server));
            first.with(now, |cx| assert_eq!(check(cx), Ok(())));
            first.call(now, &["FLUSHALL".into()]);
            first.with(now, |cx| {
                assert_eq!(check(cx), Ok(()));
                stop(cx);
            });
        }
        let expected = "APPEND COPY DEL FLUSHDB MOVE PERSIST PEXPIREAT RENAME SET SETRANGE SWAPDB \
                        XACK XADD XCLAIM XDEL XGROUP-CREATE XGROUP-CREATECONSUMER \
                        XGROUP-DELCONSUMER XGROUP-DESTROY XGROUP-SETID XSETID XTRIM";
        assert_eq!(told.into_iter().collect::<Vec<_>>().join(" "), expected);
    }

    /// The commands that wait for a mirror, with the subcommands of containers. What
    /// the journal puts around them left out.
    fn names(server: &Server) -> BTreeSet<String> {
        let (mut names, mut stream) = (BTreeSet::new(), CommandStream::default());
        for piece in server.journal.peek() {
            let Piece::Bytes(bytes) = piece else { continue };
            stream.push(&bytes);
            while let Some(args) = stream.next().unwrap() {
                let word = |n| String::from_utf8(args.bytes(n).to_vec()).unwrap();
                names.insert(match args.is(0, "xgroup") {
                    true => format!("XGROUP-{}", word(1)),
                    false => word(0),
                });
            }
        }
        for around in ["SELECT", "MULTI", "EXEC"] {
            assert!(names.remove(around), "{around}");
        }
        names
    }

    /// The proof can fail: what no commit tells of is found.
    #[test]
    fn what_no_commit_tells_is_a_difference() {
        let server = server();
        let mut driver = Driver::new(&server);
        driver.with(START, |cx| start(cx).unwrap());
        let set = |value: &str| vec![b"SET".to_vec(), b"key".to_vec(), value.into()];
        driver.call(START, &set("one"));
        driver.with(START, |cx| assert_eq!(check(cx), Ok(())));
        server.store.unfollow();
        driver.call(START, &set("two"));
        driver.with(START, |cx| {
            let differs = check(cx).unwrap_err();
            assert!(differs.to_string().contains("key key of database 0"), "{differs}");
            stop(cx);
            assert!(check(cx).is_err(), "there is no mirror any more");
        });
    }
}
