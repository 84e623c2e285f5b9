//! The CLUSTER command, READONLY, READWRITE and ASKING, for a node that knows
//! only itself.

use crate::auth::Categories;
use crate::cluster::Cluster;
use crate::config::Param;
use crate::engine::command::flags::*;
use crate::engine::command::{Answer, Command, Group};
use crate::engine::context::Context;
use crate::engine::out::Out;
use crate::request::args::Args;
use crate::request::error::Error;
use snug_store::{SLOTS, cluster_slot};

const CHANGING: u32 = ADMIN | STALE | NO_ASYNC_LOADING;

const fn sub(
    name: &'static str,
    arity: i32,
    handler: crate::engine::command::Handler,
    flags: u32,
    since: &'static str,
    complexity: &'static str,
    summary: &'static str,
) -> Command {
    let command = Command::new(name, arity, handler).of("cluster").flags(flags);
    command.about(Group::Cluster, since, complexity, summary)
}

pub(crate) const COMMANDS: &[Command] = &[
    Command::new("cluster", -2, super::container).subcommands(SUBCOMMANDS).about(
        Group::Cluster,
        "3.0.0",
        "Depends on subcommand.",
        "Tells and changes which slots this node serves.",
    ),
    Command::new("readonly", 1, readonly)
        .flags(LOADING | STALE | FAST)
        .acl(Categories::CONNECTION)
        .about(Group::Cluster, "3.0.0", "O(1)", "Allows this connection to read from a replica."),
    Command::new("readwrite", 1, readwrite)
        .flags(LOADING | STALE | FAST)
        .acl(Categories::CONNECTION)
        .about(Group::Cluster, "3.0.0", "O(1)", "Ends what READONLY allowed."),
    Command::new("asking", 1, asking).flags(FAST).acl(Categories::CONNECTION).about(
        Group::Cluster,
        "3.0.0",
        "O(1)",
        "Says that the next command was sent here by an ASK redirection.",
    ),
];

const SUBCOMMANDS: &[Command] = &[
    sub(
        "addslots",
        -3,
        addslots,
        CHANGING,
        "3.0.0",
        "O(N) where N is the number of slots.",
        "Begins to serve slots.",
    ),
    sub(
        "addslotsrange",
        -4,
        addslotsrange,
        CHANGING,
        "7.0.0",
        "O(N) where N is the number of slots in the ranges.",
        "Begins to serve ranges of slots.",
    ),
    sub(
        "count-failure-reports",
        3,
        count_failure_reports,
        ADMIN | STALE,
        "3.0.0",
        "O(1)",
        "Counts the reports that a node fails.",
    ),
    sub(
        "countkeysinslot",
        3,
        countkeysinslot,
        STALE,
        "3.0.0",
        "O(1)",
        "Counts the keys in a slot.",
    ),
    sub(
        "delslots",
        -3,
        delslots,
        CHANGING,
        "3.0.0",
        "O(N) where N is the number of slots.",
        "Ends serving slots.",
    ),
    sub(
        "delslotsrange",
        -4,
        delslotsrange,
        CHANGING,
        "7.0.0",
        "O(N) where N is the number of slots in the ranges.",
        "Ends serving ranges of slots.",
    ),
    sub("flushslots", 2, flushslots, CHANGING, "3.0.0", "O(1)", "Ends serving any slot."),
    sub(
        "getkeysinslot",
        4,
        getkeysinslot,
        STALE | WIDE,
        "3.0.0",
        "O(N) where N is the number of requested keys.",
        "Returns keys of a slot.",
    ),
    sub("help", 2, help, LOADING | STALE, "5.0.0", "O(1)", "Describes the subcommands."),
    sub("info", 2, info, STALE, "3.0.0", "O(1)", "Tells the state of the cluster."),
    sub(
        "keyslot",
        3,
        keyslot,
        STALE,
        "3.0.0",
        "O(N) where N is the number of bytes in the key.",
        "Tells the slot of a key.",
    ),
    sub(
        "links",
        2,
        links,
        STALE,
        "7.0.0",
        "O(N) where N is the number of nodes.",
        "Lists the links to other nodes.",
    ),
    sub("myid", 2, myid, STALE, "3.0.0", "O(1)", "Returns this node's ID."),
    sub(
        "nodes",
        2,
        nodes,
        STALE,
        "3.0.0",
        "O(N) where N is the number of nodes.",
        "Describes the nodes and their slots.",
    ),
    sub("replicas", 3, replicas, ADMIN | STALE, "5.0.0", "O(1)", "Lists the replicas of a node."),
    sub("slaves", 3, replicas, ADMIN | STALE, "3.0.0", "O(1)", "Lists the replicas of a node."),
    sub(
        "reset",
        -2,
        reset,
        ADMIN | NOSCRIPT | STALE,
        "3.0.0",
        "O(N) where N is the number of known nodes.",
        "Makes this node a new one.",
    ),
    sub(
        "saveconfig",
        2,
        saveconfig,
        CHANGING,
        "3.0.0",
        "O(1)",
        "Writes the cluster configuration file.",
    ),
    sub(
        "shards",
        2,
        shards,
        STALE,
        "7.0.0",
        "O(N) where N is the number of nodes.",
        "Lists the shards with their slots and nodes.",
    ),
    sub(
        "slots",
        2,
        slots,
        STALE,
        "3.0.0",
        "O(N) where N is the number of nodes.",
        "Lists ranges of slots with the nodes that serve them.",
    ),
];

/// The cluster, if this server is part of one.
fn cluster<'c>(cx: &Context<'c>) -> Result<&'c Cluster, Error> {
    let cluster = &cx.server.cluster;
    let disabled = Error::new("ERR This instance has cluster support disabled");
    if cluster.enabled { Ok(cluster) } else { Err(disabled) }
}

fn readonly(cx: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    cluster(cx)?;
    cx.client()?.readonly = true;
    out.w().ok();
    Ok(())
}

fn readwrite(cx: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    cluster(cx)?;
    cx.client()?.readonly = false;
    out.w().ok();
    Ok(())
}

/// No slot is ever on its way to this node, so there is nothing to remember.
fn asking(cx: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    cluster(cx)?;
    out.w().ok();
    Ok(())
}

/// Argument `index` as a slot.
fn slot(args: Args<'_>, index: usize) -> Result<usize, Error> {
    let slot = args.int(index).ok().and_then(|slot| usize::try_from(slot).ok());
    slot.filter(|&slot| slot < SLOTS).ok_or(Error::new("ERR Invalid or out of range slot"))
}

/// Slots to be changed, each once.
#[derive(Debug)]
struct Selection<'c> {
    cluster: &'c Cluster,
    /// Whether they are to be served.
    serve: bool,
    chosen: Vec<bool>,
}

impl<'c> Selection<'c> {
    fn new(cx: &Context<'c>, serve: bool) -> Result<Self, Error> {
        Ok(Self { cluster: cluster(cx)?, serve, chosen: vec![false; SLOTS] })
    }

    fn add(&mut self, slot: usize) -> Result<(), Error> {
        if self.cluster.serves(slot) == self.serve {
            let is = if self.serve { "busy" } else { "unassigned" };
            return Err(Error::from(format!("ERR Slot {slot} is already {is}")));
        }
        if std::mem::replace(&mut self.chosen[slot], true) {
            return Err(Error::from(format!("ERR Slot {slot} specified multiple times")));
        }
        Ok(())
    }

    fn apply(self, cx: &Context<'_>, out: &mut Out) {
        let slots = (0..SLOTS).filter(|&slot| self.chosen[slot]);
        self.cluster.assign(slots, self.serve);
        if !self.serve {
            cx.server.pubsub.close_shard_channels(|slot| self.chosen[slot]);
        }
        save(cx, self.cluster);
        out.w().ok();
    }
}

/// Writes the configuration file; what cannot be written is logged, for the
/// change itself is made.
fn save(cx: &Context<'_>, cluster: &Cluster) {
    if let Err(error) = cluster.save(&cx.server.config, false) {
        tracing::error!(%error, "could not write the cluster config file");
    }
}

fn addslots(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    change_slots(cx, args, out, true)
}

fn delslots(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    change_slots(cx, args, out, false)
}

fn change_slots(cx: &Context<'_>, args: Args<'_>, out: &mut Out, serve: bool) -> Answer {
    let mut selection = Selection::new(cx, serve)?;
    for index in 2..args.len() {
        slot(args, index)?;
    }
    for index in 2..args.len() {
        selection.add(slot(args, index)?)?;
    }
    selection.apply(cx, out);
    Ok(())
}

fn addslotsrange(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    change_ranges(cx, args, out, true)
}

fn delslotsrange(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    change_ranges(cx, args, out, false)
}

fn change_ranges(cx: &Context<'_>, args: Args<'_>, out: &mut Out, serve: bool) -> Answer {
    let mut selection = Selection::new(cx, serve)?;
    if args.len() % 2 == 1 {
        return Err(Error::wrong_arity(&cx.command.full_name()).into());
    }
    for index in (2..args.len()).step_by(2) {
        let (first, last) = (slot(args, index)?, slot(args, index + 1)?);
        if first > last {
            return Err(Error::from(format!(
                "ERR start slot number {first} is greater than end slot number {last}"
            ))
            .into());
        }
        (first..=last).try_for_each(|slot| selection.add(slot))?;
    }
    selection.apply(cx, out);
    Ok(())
}

fn flushslots(cx: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    let cluster = cluster(cx)?;
    if cx.server.store.keys(0) > 0 {
        return Err(Error::new("ERR DB must be empty to perform CLUSTER FLUSHSLOTS.").into());
    }
    cluster.assign(0..SLOTS, false);
    cx.server.pubsub.close_shard_channels(|_| true);
    save(cx, cluster);
    out.w().ok();
    Ok(())
}

fn reset(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let cluster = cluster(cx)?;
    let hard = match args.len() {
        2 => false,
        3 if args.is(2, "hard") => true,
        3 if args.is(2, "soft") => false,
        3 => return Err(Error::SYNTAX.into()),
        _ => return Err(Error::wrong_subcommand(args, "CLUSTER").into()),
    };
    if cx.server.store.keys(0) > 0 {
        return Err(Error::new(
            "ERR CLUSTER RESET can't be called with master nodes containing keys",
        )
        .into());
    }
    cluster.reset(hard);
    cx.server.pubsub.close_shard_channels(|_| true);
    save(cx, cluster);
    out.w().ok();
    Ok(())
}

fn saveconfig(cx: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    let saved = cluster(cx)?.save(&cx.server.config, true);
    saved.map_err(|e| Error::from(format!("ERR error saving the cluster node config: {e}")))?;
    out.w().ok();
    Ok(())
}

fn keyslot(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    cluster(cx)?;
    out.w().integer(i64::from(cluster_slot(args.bytes(2))));
    Ok(())
}

fn countkeysinslot(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    cluster(cx)?;
    let slot = usize::try_from(args.int(2)?).ok().filter(|&slot| slot < SLOTS);
    let slot = slot.ok_or(Error::new("ERR Invalid slot"))?;
    out.w().integer(cx.store.keys_in_slot(0, slot) as i64);
    Ok(())
}

fn getkeysinslot(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    cluster(cx)?;
    let (slot, most) = (args.int(2)?, args.int(3)?);
    let slot = usize::try_from(slot).ok().filter(|&slot| slot < SLOTS);
    let (Some(slot), Ok(most)) = (slot, usize::try_from(most)) else {
        return Err(Error::new("ERR Invalid slot or number of keys").into());
    };
    let header = out.w().array_deferred();
    let mut keys = 0;
    if cx.store.keys_in_slot(0, slot) > 0 {
        cx.store.lock_slot(0, slot).first_keys(slot, most, |key| {
            out.w().bulk(key);
            keys += 1;
        });
    }
    out.w().set_array_len(header, keys);
    Ok(())
}

fn info(cx: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    let cluster = cluster(cx)?;
    let node = cluster.node().clone();
    let slots = cluster.slots();
    let text = format!(
        "cluster_state:{}\r\n\
         cluster_slots_assigned:{slots}\r\n\
         cluster_slots_ok:{slots}\r\n\
         cluster_slots_pfail:0\r\n\
         cluster_slots_fail:0\r\n\
         cluster_known_nodes:1\r\n\
         cluster_size:{}\r\n\
         cluster_current_epoch:{}\r\n\
         cluster_my_epoch:{}\r\n\
         cluster_stats_messages_sent:0\r\n\
         cluster_stats_messages_received:0\r\n\
         total_cluster_links_buffer_limit_exceeded:0\r\n",
        if cluster.is_up(&cx.server.config) { "ok" } else { "fail" },
        i32::from(slots > 0),
        node.current_epoch,
        node.config_epoch,
    );
    out.w().verbatim("txt", text.as_bytes());
    Ok(())
}

fn links(cx: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    cluster(cx)?;
    out.w().array(0);
    Ok(())
}

fn myid(cx: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    let id = cluster(cx)?.node().id.clone();
    out.w().bulk(id.as_bytes());
    Ok(())
}

fn nodes(cx: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    let line = cluster(cx)?.describe(&cx.server.config) + "\n";
    out.w().verbatim("txt", line.as_bytes());
    Ok(())
}

fn slots(cx: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    let cluster = cluster(cx)?;
    let id = cluster.node().id.clone();
    let (ip, port) = address(cx);
    let ranges = cluster.ranges();
    let mut w = out.w();
    w.array(ranges.len());
    for (first, last) in ranges {
        w.array(3);
        w.integer(first as i64);
        w.integer(last as i64);
        w.array(4);
        w.bulk(ip.as_bytes());
        w.integer(port);
        w.bulk(id.as_bytes());
        w.map(0);
    }
    Ok(())
}

fn shards(cx: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    let cluster = cluster(cx)?;
    let id = cluster.node().id.clone();
    let (ip, port) = address(cx);
    let ranges = cluster.ranges();
    let mut w = out.w();
    w.array(1);
    w.map(2);
    w.bulk(b"slots");
    w.array(2 * ranges.len());
    for (first, last) in ranges {
        w.integer(first as i64);
        w.integer(last as i64);
    }
    w.bulk(b"nodes");
    w.array(1);
    w.map(7);
    w.bulk(b"id");
    w.bulk(id.as_bytes());
    w.bulk(b"port");
    w.integer(port);
    w.bulk(b"ip");
    w.bulk(ip.as_bytes());
    w.bulk(b"endpoint");
    w.bulk(ip.as_bytes());
    w.bulk(b"role");
    w.bulk(b"master");
    w.bulk(b"replication-offset");
    w.integer(0);
    w.bulk(b"health");
    w.bulk(b"online");
    Ok(())
}

/// Checks that argument 2 names the only node that is known.
fn known_node(cx: &Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let named = args.bytes(2);
    if cluster(cx)?.node().id.as_bytes() == named {
        return Ok(());
    }
    Err(Error::from([b"ERR Unknown node ", named].concat()))
}

/// There is nobody else to report anything.
fn count_failure_reports(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    known_node(cx, args)?;
    out.w().integer(0);
    Ok(())
}

fn replicas(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    known_node(cx, args)?;
    out.w().array(0);
    Ok(())
}

/// Where clients find this node. Without an announced address, as in Redis,
/// the empty one: that which the client came by.
fn address(cx: &Context<'_>) -> (String, i64) {
    let config = &cx.server.config;
    (config.text(Param::ClusterAnnounceIp), config.number(Param::Port))
}

fn help(cx: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    cluster(cx)?;
    let subcommands = [
        ("ADDSLOTS <slot> [<slot> ...]", "Begin to serve slots."),
        (
            "ADDSLOTSRANGE <start slot> <end slot> [<start slot> <end slot> ...]",
            "Begin to serve ranges of slots.",
        ),
        ("COUNT-FAILURE-REPORTS <node-id>", "Count the reports that a node fails."),
        ("COUNTKEYSINSLOT <slot>", "Count the keys in a slot."),
        ("DELSLOTS <slot> [<slot> ...]", "End serving slots."),
        (
            "DELSLOTSRANGE <start slot> <end slot> [<start slot> <end slot> ...]",
            "End serving ranges of slots.",
        ),
        ("GETKEYSINSLOT <slot> <count>", "List keys of a slot."),
        ("FLUSHSLOTS", "End serving any slot."),
        ("INFO", "Tell the state of the cluster."),
        ("KEYSLOT <key>", "Tell the slot of a key."),
        ("MYID", "Tell this node's ID."),
        ("NODES", "Describe the nodes and their slots."),
        ("RESET [HARD|SOFT]", "Make this node a new one; HARD gives it another ID."),
        ("REPLICAS <node-id>", "List the replicas of a node."),
        ("SAVECONFIG", "Write the cluster configuration file."),
        ("SLOTS", "List ranges of slots with the nodes that serve them."),
        ("SHARDS", "List the shards with their slots and nodes."),
        ("LINKS", "List the links to other nodes."),
    ];
    super::help(out, "CLUSTER", &subcommands);
    Ok(())
}
