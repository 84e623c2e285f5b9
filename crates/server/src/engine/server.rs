//! What all workers share: configuration, clients, registries, counters; and who
//! hears of what the store tells.

use crate::auth::{Catalog, Users};
use crate::cluster::Cluster;
use crate::config::{Config, Param, parse_policy};
use crate::engine::aside::Aside;
use crate::engine::blocked::Blocked;
use crate::engine::cards::Cards;
use crate::engine::client::Client;
use crate::engine::ending::Endings;
use crate::engine::eviction::Exceeded;
use crate::engine::libraries::Libraries;
use crate::engine::monitor::Monitor;
use crate::engine::scripts::Scripts;
use crate::engine::waits::Waits;
use crate::follow::client_memory::ClientMemory;
use crate::follow::clients::Shared;
use crate::follow::pause::Pause;
use crate::follow::pubsub::{self, Means, PubSub};
use crate::follow::tracking::Tracking;
use crate::follow::watch::Watches;
use crate::journal::{Follower, Journal};
use crate::measure::families::FamilySums;
use crate::measure::log::Seldom;
use crate::measure::loops::Loops;
use crate::measure::passes::Backlog;
use crate::measure::stats::{Rates, Stat, Stats};
use crate::measure::timings::Timings;
use crate::outside::chance;
use crate::outside::chance::random_hex;
use crate::outside::clock::Instant;
use crate::outside::clock::unix_ms;
use crate::outside::files::OnDisk;
use crate::peers::{self, Peers, limits};
use crate::persist::Persist;
use crate::request::error::Error;
use crate::sockets::descriptors::{self, Spares};
use crate::sockets::listening::Listening;
use crate::sockets::tls::Tls;
use crate::work::learning::Learning;
use crate::work::reclaim::reclaim;
use crate::work::slices::Slices;
use crate::work::tier::Tiering;
use crate::work::training::Trainer;
use crate::work::workspaces::Workspaces;
use parking_lot::{Mutex, RwLock};
use rand::RngExt as _;
use snug_store::{
    Batch, Class, Commit, Detached, Event, Expired, Interest, Observer, Replaced, Session,
    SlotGuard, Store, StoreConfig, Told,
};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, OnceLock, Weak};
use tokio::sync::Notify;

/// The server: one per process, shared by all workers.
#[derive(Debug)]
pub(crate) struct Server {
    pub config: Arc<Config>,
    pub users: Users,
    pub store: Arc<Store>,
    pub stats: Stats,
    pub clients: RwLock<BTreeMap<u64, Arc<Shared>>>,
    pub client_memory: ClientMemory,
    pub pubsub: PubSub,
    pub watches: Watches,
    pub tracking: Tracking,
    /// What content over HTTP knows of strings follows them.
    pub cards: Cards,
    pub blocked: Blocked,
    pub monitor: Monitor,
    pub scripts: Scripts,
    pub aside: Aside,
    pub libraries: Libraries,
    /// Itself, for threads that outlive a call.
    pub me: Weak<Server>,
    pub cluster: Cluster,
    pub listening: Listening,
    pub tls: Tls,
    /// Connections whose clients have not shaken hands yet.
    pub handshaking: AtomicUsize,
    pub loops: Loops,
    pub pause: Pause,
    /// Commits in order, for those who follow them.
    pub journal: Arc<Journal>,
    pub mirror: Mutex<Option<Mirror>>,
    /// The other nodes of replication.
    pub peers: Peers,
    pub waits: Waits,
    /// What of the store is on disk.
    pub persist: Arc<Persist>,
    pub trainer: Trainer,
    pub slices: Arc<Slices>,
    /// The disk tier's threads.
    pub tiering: Tiering,
    pub workspaces: Workspaces,
    pub exceeded: Exceeded,
    pub learning: Learning,
    pub timings: Timings,
    /// The token of the admin port's token file, if it was needed.
    pub admin_token: OnceLock<String>,
    /// Highest `used_memory` seen, and that before the first client.
    pub peak_memory: AtomicUsize,
    pub startup_memory: AtomicUsize,
    /// Workers that have reserved what they pack with.
    pub ready_to_pack: AtomicUsize,
    /// Workers that have all that they work with, and who waits for the last of them.
    equipped: AtomicUsize,
    all_equipped: Notify,
    /// What was counted when statistics were last reset.
    pub expired_base: AtomicU64,
    pub rates: Mutex<Rates>,
    pub started_unix: u64,
    /// `DEBUG SET-ACTIVE-EXPIRE`.
    pub active_expire: AtomicBool,
    pub started: Instant,
    /// Forty hexadecimal digits, new with each start.
    pub run_id: String,
    pub workers: usize,
    /// Set once: everybody is to end. `shutdown` wakes who waits for it.
    pub ending: AtomicBool,
    pub shutdown: Notify,
    pub endings: Endings,
    next_client: AtomicU64,
    damage_told: Seldom,
    /// What goes wrong with new connections is said seldom.
    pub accept_told: Seldom,
    pub spares: Spares,
    pub option_told: Seldom,
    /// What metrics have told of families.
    pub family_sums: Mutex<FamilySums>,
    applying_policy: Mutex<()>,
}

/// A second store that follows the commits of the first: `DEBUG MIRROR`.
#[derive(Debug)]
pub(crate) struct Mirror {
    pub store: Arc<Store>,
    pub follower: Follower,
}

/// Tells the server what the store does by itself.
#[derive(Debug)]
struct StoreEvents(Weak<Server>, Arc<Journal>);

impl Observer for StoreEvents {
    fn changed(&self, slot: &SlotGuard<'_>, key: &[u8], told: Told, came: bool) {
        let Some(server) = self.0.upgrade() else { return };
        let hashed = server.store.key(key);
        let (db, number) = (slot.db(), hashed.slot());
        // Its neighbours' observers left their mark if they were all under one lock.
        let alone = slot.covered(&hashed).len() == 1;
        if slot.observed(Interest::Watch)
            && !server.watches.touch(db, number, key, told != Told::Everybody)
            && alone
        {
            slot.observe(Interest::Watch, false);
        }
        if told != Told::Quietly
            && slot.observed(Interest::Wait)
            && !server.blocked.changed(db, number, key, came)
            && alone
        {
            slot.observe(Interest::Wait, false);
        }
    }

    fn event(&self, db: usize, key: &[u8], event: Event) {
        if let Some(server) = self.0.upgrade() {
            server.publish_event(db, key, event);
        }
    }

    fn modified(&self, key: &[u8], event: Event) {
        if let Some(server) = self.0.upgrade() {
            if server.tracking.is_on() {
                let changer = if event.is_stores() { 0 } else { pubsub::caller() };
                server.tracking.changed(key, changer);
            }
            server.cards.changed(key);
        }
    }

    fn declared(&self, store: &Batch<'_>, db: usize, key: &[u8]) -> Option<String> {
        self.0.upgrade()?.declared(store, db, key)
    }

    fn replacing(&self, store: &Batch<'_>, dbs: &[usize]) {
        if let Some(server) = self.0.upgrade() {
            server.watches.touch_existing(store, dbs);
        }
    }

    fn replaced(&self, store: &Batch<'_>, dbs: &[usize], how: Replaced) {
        if let Some(server) = self.0.upgrade() {
            if server.tracking.is_on() {
                server.tracking.everything_changed();
            }
            server.watches.observe_again(store, dbs);
            server.blocked.replaced(store, dbs, how == Replaced::Swapped);
        }
    }

    fn committed(&self, commit: Commit<'_>) {
        self.1.committed(commit);
    }

    fn free_expired(&self, value: Detached) {
        let server = self.0.upgrade();
        if server.is_some_and(|server| server.config.is_on(Param::LazyfreeLazyExpire)) {
            reclaim(value);
        }
    }

    fn damaged(&self, why: &dyn Display) {
        if let Some(server) = self.0.upgrade() {
            server.damaged(why);
        }
    }
}

impl Server {
    /// A server of that configuration, with these commands.
    pub(crate) fn new(
        config: Config,
        cluster: Cluster,
        workers: usize,
        commands: Catalog,
    ) -> Arc<Self> {
        let by_cluster = cluster.enabled;
        let journal = Arc::<Journal>::default();
        let databases = config.number(Param::Databases) as usize;
        let config = Arc::new(config);
        Arc::new_cyclic(|me| {
            let events = StoreEvents(Weak::clone(me), Arc::clone(&journal));
            let seed = chance::rng().random();
            let store =
                Store::new(StoreConfig { cluster: by_cluster, databases, seed }, Box::new(events));
            let cards = Cards::new(config.number(Param::ContentPort) != 0);
            let persist = Persist::new(
                Arc::clone(&config),
                Arc::clone(&store),
                Arc::clone(&journal),
                OnDisk::files(),
            );
            Self {
                store,
                persist,
                cluster,
                listening: Listening::default(),
                tls: Tls::default(),
                handshaking: AtomicUsize::new(0),
                loops: Loops::default(),
                scripts: Scripts::default(),
                aside: Aside::default(),
                libraries: Libraries::default(),
                me: Weak::clone(me),
                monitor: Monitor::new(commands.len(), workers),
                pause: Pause::default(),
                journal,
                mirror: Mutex::default(),
                peers: Peers::default(),
                waits: Waits::default(),
                trainer: Trainer::default(),
                slices: Arc::default(),
                tiering: Tiering::default(),
                workspaces: Workspaces::new(&config, workers),
                exceeded: Exceeded::default(),
                learning: Learning::default(),
                timings: Timings::new(workers),
                admin_token: OnceLock::new(),
                peak_memory: AtomicUsize::new(0),
                startup_memory: AtomicUsize::new(0),
                ready_to_pack: AtomicUsize::new(0),
                equipped: AtomicUsize::new(0),
                all_equipped: Notify::new(),
                expired_base: AtomicU64::new(0),
                rates: Mutex::default(),
                started_unix: unix_ms() / 1000,
                active_expire: AtomicBool::new(true),
                users: Users::new(commands),
                config,
                stats: Stats::default(),
                clients: RwLock::default(),
                client_memory: ClientMemory::default(),
                pubsub: PubSub::default(),
                watches: Watches::default(),
                tracking: Tracking::default(),
                cards,
                blocked: Blocked::default(),
                started: Instant::now(),
                run_id: random_hex(),
                workers,
                ending: AtomicBool::new(false),
                shutdown: Notify::new(),
                endings: Endings::default(),
                next_client: AtomicU64::new(1),
                damage_told: Seldom::default(),
                accept_told: Seldom::default(),
                spares: Spares::new(workers + 1),
                option_told: Seldom::default(),
                family_sums: Mutex::default(),
                applying_policy: Mutex::default(),
            }
        })
    }

    /// Counts a value that does not unpack, or would not, or cannot be read back from disk,
    /// and says so in the log. Called as often as one is met, whoever reads it.
    #[cold]
    pub(crate) fn damaged(&self, why: &dyn Display) {
        self.stats.add(Stat::values_damaged, 1);
        if let Some(unsaid) = self.damage_told.tell(self.uptime_ms()) {
            tracing::error!(%why, unsaid, "a value is damaged");
        }
    }

    /// Puts the policy of the configuration into force.
    pub(crate) fn apply_policy(&self) -> Result<(), String> {
        // So that what is in force in the end is what the configuration says.
        let _one_at_a_time = self.applying_policy.lock();
        let policy = parse_policy(&self.config.text(Param::PackPolicy))?;
        self.store.families().set_policy(policy);
        Ok(())
    }

    /// Takes a policy in JSON, as `CONFIG SET pack-policy` does, and says in the log
    /// through what it came.
    pub(crate) fn set_policy(&self, json: &str, through: &str) -> Result<(), String> {
        self.config.set(Param::PackPolicy, json.as_bytes())?;
        self.apply_policy()?;
        tracing::info!(through, "the packing policy was replaced");
        Ok(())
    }

    /// Has the limit of open files raised to what `maxclients` needs: the clients
    /// that there may be.
    pub(crate) fn fit_clients(&self) -> Result<u64, String> {
        let clients = self.config.number(Param::MaxClients) as u64;
        let admin = match self.config.number(Param::AdminPort) {
            0 => 0,
            _ => descriptors::ADMIN,
        };
        descriptors::fit(clients, descriptors::reserved(self.workers, admin))
    }

    /// What waits to be packed, and how far the walks over strings are.
    pub(crate) fn backlog(&self) -> Backlog {
        let passes = (0..self.workers).map(|worker| &self.timings.of(worker).passes);
        Backlog::sum(passes, self.uptime_ms())
    }

    /// The next client's id.
    pub(crate) fn client_id(&self) -> u64 {
        self.next_client.fetch_add(1, Relaxed)
    }

    /// Milliseconds since the server started.
    pub(crate) fn uptime_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    /// A worker has all that it works with, and no client yet. The last of them
    /// has `used_memory_startup` taken.
    pub(crate) fn worker_equipped(&self) {
        if self.equipped.fetch_add(1, Relaxed) + 1 == self.workers {
            self.startup_memory.store(snug_store::memory::used().max(1), Release);
            self.all_equipped.notify_waiters();
        }
    }

    /// Waits until all workers have what they work with: a client who asked before would
    /// be told of less memory than the server takes, and set its limit by that.
    pub(crate) async fn all_equipped(&self) {
        let told = self.all_equipped.notified();
        if self.startup_memory.load(Acquire) == 0 {
            told.await;
        }
    }

    /// Ends the server: every worker stops.
    pub(crate) fn end(&self) {
        self.ending.store(true, Relaxed);
        self.shutdown.notify_waiters();
    }

    /// Has the store tell of the events that the configuration asks for, and of all
    /// changes while somebody tracks, or cards follow their strings.
    pub(crate) fn heed_events(&self) {
        let wanted = self.tracking.is_on() || self.cards.are_on();
        let changes = if wanted { Class::CHANGE } else { Class::NONE };
        self.store.heed(self.wanted_events().and(changes));
    }

    /// Ends `CLIENT TRACKING` of a client, if it is on.
    pub(crate) fn end_tracking(&self, client: &mut Client) {
        if client.tracking.take().is_none() {
            return;
        }
        self.tracking.end(client.id());
        self.heed_events();
        let figures = &client.shared.figures;
        for figure in [&figures.tracking, &figures.tracking_prefixes, &figures.tracking_broken] {
            figure.store(false, Relaxed);
        }
        figures.redirect.store(-1, Relaxed);
    }

    fn wanted_events(&self) -> Class {
        Class(self.config.number(Param::NotifyKeyspaceEvents) as u32)
    }

    /// Publishes an event of a class that the configuration asks for.
    #[cold]
    pub(crate) fn publish_event(&self, db: usize, key: &[u8], event: Event) {
        let (wanted, name) = (self.wanted_events(), event.name);
        if wanted.any(Class::KEYSPACE) {
            let mut channel = format!("__keyspace@{db}__:").into_bytes();
            channel.extend_from_slice(key);
            self.pubsub.publish(self.publishing(), &channel, name.as_bytes());
        }
        if wanted.any(Class::KEYEVENT) {
            let channel = format!("__keyevent@{db}__:{name}");
            self.pubsub.publish(self.publishing(), channel.as_bytes(), key);
        }
    }

    /// What publishing needs.
    pub(crate) fn publishing(&self) -> Means<'_> {
        (&self.config, &self.stats)
    }

    /// Whether those who read what is written have too much before them: commands that
    /// write are put off.
    #[inline]
    pub(crate) fn is_behind(&self) -> bool {
        self.journal.is_full() || self.store.is_snapshot_behind()
    }

    /// Whether commands and scripts may write: the disk is well, there are enough
    /// replicas, and the role of this node allows it. Two loads where they may.
    #[inline]
    pub(crate) fn may_write(&self) -> Result<(), Error> {
        if let Some(refusal) = self.persist.refusal() {
            return Err(refusal.error());
        }
        let limits = self.peers.limits();
        if limits & limits::FEW_REPLICAS != 0 {
            return Err(peers::FEW_REPLICAS);
        }
        if limits & limits::READ_ONLY != 0 { Err(peers::READ_ONLY) } else { Ok(()) }
    }

    /// Begins a batch of work for clients. While writes are paused nothing changes,
    /// not even for a key whose time has come: it is hidden and stays. So it is on a
    /// replica, whose primary says when a key goes.
    pub(crate) fn enter<'s>(&self, session: &'s mut Session, now: u64) -> Batch<'s> {
        let batch = session.enter(now);
        if self.pause.writes_paused(now) || self.peers.is_replica() {
            batch.expired_keys(Expired::Hidden);
        }
        batch
    }
}
