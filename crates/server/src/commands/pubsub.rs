//! Publish and subscribe: SUBSCRIBE, PUBLISH, PUBSUB, ...

use crate::engine::accounts;
use crate::engine::client::Client;
use crate::engine::command::flags::*;
use crate::engine::command::{Answer, Command, Group};
use crate::engine::context::{Context, Origin};
use crate::engine::keys::ChannelUse;
use crate::engine::keys::uses::*;
use crate::engine::out::Out;
use crate::follow::pubsub::{Subject, tell};
use crate::request::args::Args;
use crate::request::error::Error;

const SUBSCRIBING: u32 = PUBSUB | NOSCRIPT | LOADING | STALE;
const PUBLISHING: u32 = PUBSUB | LOADING | STALE | FAST | MAY_REPLICATE;
const ASKING: u32 = PUBSUB | LOADING | STALE;

pub(crate) const COMMANDS: &[Command] = &[
    Command::new("subscribe", -2, subscribe)
        .flags(SUBSCRIBING)
        .channels(ChannelUse::Subscribe)
        .about(
            Group::Pubsub,
            "2.0.0",
            "O(N) where N is the number of channels to subscribe to.",
            "Subscribes to channels.",
        ),
    Command::new("unsubscribe", -1, unsubscribe).flags(SUBSCRIBING).about(
        Group::Pubsub,
        "2.0.0",
        "O(N) where N is the number of clients already subscribed to a channel.",
        "Ends subscriptions to channels, or to all of them.",
    ),
    Command::new("psubscribe", -2, psubscribe)
        .flags(SUBSCRIBING)
        .channels(ChannelUse::SubscribePatterns)
        .about(
            Group::Pubsub,
            "2.0.0",
            "O(N) where N is the number of patterns to subscribe to.",
            "Subscribes to all channels that match patterns.",
        ),
    Command::new("punsubscribe", -1, punsubscribe).flags(SUBSCRIBING).about(
        Group::Pubsub,
        "2.0.0",
        "O(N) where N is the number of clients already subscribed to a pattern.",
        "Ends subscriptions to patterns, or to all of them.",
    ),
    Command::new("ssubscribe", -2, ssubscribe)
        .flags(SUBSCRIBING)
        .channels(ChannelUse::Subscribe)
        .keys(1, -1, 1)
        .used(NOT_KEY)
        .about(
            Group::Pubsub,
            "7.0.0",
            "O(N) where N is the number of shard channels to subscribe to.",
            "Subscribes to shard channels.",
        ),
    Command::new("sunsubscribe", -1, sunsubscribe)
        .flags(SUBSCRIBING)
        .keys(1, -1, 1)
        .used(NOT_KEY)
        .about(
            Group::Pubsub,
            "7.0.0",
            "O(N) where N is the number of clients already subscribed to a shard channel.",
            "Ends subscriptions to shard channels, or to all of them.",
        ),
    Command::new("publish", 3, publish).flags(PUBLISHING).channels(ChannelUse::Publish).about(
        Group::Pubsub,
        "2.0.0",
        "O(N+M) where N is the number of subscribers and M that of all subscribed patterns.",
        "Sends a message to a channel.",
    ),
    Command::new("spublish", 3, spublish)
        .flags(PUBLISHING)
        .channels(ChannelUse::Publish)
        .key(1)
        .used(NOT_KEY)
        .about(
            Group::Pubsub,
            "7.0.0",
            "O(N) where N is the number of subscribers of the shard channel.",
            "Sends a message to a shard channel.",
        ),
    Command::new("pubsub", -2, super::container).subcommands(PUBSUB_SUBCOMMANDS).about(
        Group::Pubsub,
        "2.8.0",
        "Depends on subcommand.",
        "Tells of channels and their subscribers.",
    ),
];

const PUBSUB_SUBCOMMANDS: &[Command] = &[
    Command::new("channels", -2, channels).of("pubsub").flags(ASKING).about(
        Group::Pubsub,
        "2.8.0",
        "O(N) where N is the number of active channels.",
        "Lists the channels that have subscribers.",
    ),
    Command::new("numsub", -2, numsub).of("pubsub").flags(ASKING).about(
        Group::Pubsub,
        "2.8.0",
        "O(N) where N is the number of requested channels.",
        "Counts the subscribers of channels.",
    ),
    Command::new("numpat", 2, numpat).of("pubsub").flags(ASKING).about(
        Group::Pubsub,
        "2.8.0",
        "O(1)",
        "Counts the patterns that have subscribers.",
    ),
    Command::new("shardchannels", -2, channels).of("pubsub").flags(ASKING).about(
        Group::Pubsub,
        "7.0.0",
        "O(N) where N is the number of active shard channels.",
        "Lists the shard channels that have subscribers.",
    ),
    Command::new("shardnumsub", -2, numsub).of("pubsub").flags(ASKING).about(
        Group::Pubsub,
        "7.0.0",
        "O(N) where N is the number of requested shard channels.",
        "Counts the subscribers of shard channels.",
    ),
    Command::new("help", 2, help).of("pubsub").flags(LOADING | STALE).about(
        Group::Pubsub,
        "6.2.0",
        "O(1)",
        "Describes the subcommands.",
    ),
];

fn subscribe(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    begin(cx, args, out, Subject::Channel)
}

fn psubscribe(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    begin(cx, args, out, Subject::Pattern)
}

fn ssubscribe(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    if matches!(cx.origin, Origin::Exec) {
        return Err(Error::new("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client").into());
    }
    begin(cx, args, out, Subject::ShardChannel)
}

fn unsubscribe(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    end(cx, args, out, Subject::Channel)
}

fn punsubscribe(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    end(cx, args, out, Subject::Pattern)
}

fn sunsubscribe(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    end(cx, args, out, Subject::ShardChannel)
}

/// Subscribes to what the arguments name, with one reply for each.
fn begin(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out, subject: Subject) -> Answer {
    let word = match subject {
        Subject::Channel => "subscribe",
        Subject::Pattern => "psubscribe",
        Subject::ShardChannel => "ssubscribe",
    };
    let server = cx.server;
    let Client { shared, subscriptions: own, .. } = cx.client()?;
    for name in args.iter_from(1) {
        server.pubsub.subscribe(shared, own, subject, name);
        tell(&mut out.w(), word, Some(name), own.counted_with(subject));
    }
    end_if_forbidden(cx, args)
}

/// Ends the connection if the channels to which it has just subscribed were taken from
/// its user after it was allowed to: whoever took them may have looked too early.
fn end_if_forbidden(cx: &mut Context<'_>, args: Args<'_>) -> Answer {
    let command = cx.command;
    let client = cx.client()?;
    if client.account.is_stale() && accounts::check(&mut client.account, command, args).is_err() {
        client.close = true;
    }
    Ok(())
}

/// Ends subscriptions to what the arguments name, or to all, with one reply
/// for each.
fn end(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out, subject: Subject) -> Answer {
    let word = match subject {
        Subject::Channel => "unsubscribe",
        Subject::Pattern => "punsubscribe",
        Subject::ShardChannel => "sunsubscribe",
    };
    let server = cx.server;
    let Client { shared, subscriptions: own, .. } = cx.client()?;
    let all = if args.len() == 1 { own.names(subject) } else { Vec::new() };
    for name in all.iter().map(Vec::as_slice).chain(args.iter_from(1)) {
        server.pubsub.unsubscribe(shared, own, subject, name);
        tell(&mut out.w(), word, Some(name), own.counted_with(subject));
    }
    if all.is_empty() && args.len() == 1 {
        tell(&mut out.w(), word, None, own.counted_with(subject));
    }
    Ok(())
}

fn publish(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let received = cx.server.pubsub.publish(cx.server.publishing(), args.bytes(1), args.bytes(2));
    cx.server.peers.say(&[b"PUBLISH", args.bytes(1), args.bytes(2)]);
    out.w().integer(received as i64);
    Ok(())
}

fn spublish(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let received =
        cx.server.pubsub.publish_shard(cx.server.publishing(), args.bytes(1), args.bytes(2));
    cx.server.peers.say(&[b"SPUBLISH", args.bytes(1), args.bytes(2)]);
    out.w().integer(received as i64);
    Ok(())
}

/// `CHANNELS` and `SHARDCHANNELS`.
fn channels(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    if args.len() > 3 {
        return Err(Error::wrong_subcommand(args, "PUBSUB").into());
    }
    let pattern = args.get(2);
    let matches = |name: &[u8]| pattern.is_none_or(|p| crate::text::glob::matches(p, name, false));
    let names = cx.server.pubsub.names(cx.command.name == "shardchannels", matches);
    out.w().array(names.len());
    names.iter().for_each(|name| out.w().bulk(name));
    Ok(())
}

/// `NUMSUB` and `SHARDNUMSUB`.
fn numsub(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let shard = cx.command.name == "shardnumsub";
    out.w().array(2 * (args.len() - 2));
    for name in args.iter_from(2) {
        out.w().bulk(name);
        out.w().integer(cx.server.pubsub.subscribers(shard, name) as i64);
    }
    Ok(())
}

fn numpat(cx: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    out.w().integer(cx.server.pubsub.patterns() as i64);
    Ok(())
}

fn help(_: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    let subcommands = [
        ("CHANNELS [<pattern>]", "List channels with subscribers that match, or all."),
        ("NUMPAT", "Count patterns with subscribers."),
        ("NUMSUB [<channel> ...]", "Count each channel's subscribers, those by pattern left out."),
        ("SHARDCHANNELS [<pattern>]", "List shard channels with subscribers that match, or all."),
        ("SHARDNUMSUB [<shardchannel> ...]", "Count each shard channel's subscribers."),
    ];
    super::help(out, "PUBSUB", &subcommands);
    Ok(())
}
