//! The `SNUG` command: what packing does.

use crate::commands::{container, streams};
use crate::config::Param;
use crate::engine::command::flags::*;
use crate::engine::command::{Answer, Command, Group, Unanswered};
use crate::engine::context::Context;
use crate::engine::large::packed;
use crate::engine::out::Out;
use crate::request::args::Args;
use crate::request::error::Error;
use snug_codec::family::Verdict;
use snug_codec::{Codec, DictionaryKind};
use snug_store::{Fate, Job, Key, PieceWalk};

const fn subcommand(command: Command, complexity: &'static str, summary: &'static str) -> Command {
    command.of("snug").about(Group::Server, "7.2.0", complexity, summary)
}

pub(crate) const COMMANDS: &[Command] = &[Command::new("snug", -2, container)
    .about(Group::Server, "7.2.0", "Depends on subcommand.", "Shows what packing does.")
    .subcommands(&[
        subcommand(
            Command::new("object", 3, object).flags(READONLY).key(2),
            "O(1)",
            "Returns what a value is made of: encoding, codec, raw and packed bytes.",
        ),
        subcommand(
            Command::new("families", 2, families).flags(ADMIN),
            "O(N) where N is the number of families.",
            "Returns the families of values: type, shape of their keys, verdict, savings, dictionary.",
        ),
        subcommand(
            Command::new("dictionaries", 2, dictionaries).flags(ADMIN),
            "O(N) where N is the number of dictionaries.",
            "Returns the dictionaries that values are packed with.",
        ),
        subcommand(
            Command::new("policy", -3, policy).flags(ADMIN | NOSCRIPT),
            "O(N) where N is the length of the policy.",
            "Returns or replaces the policy: which values are packed, and with what.",
        ),
        subcommand(
            Command::new("pack", 3, pack).flags(WRITE).key(2),
            "O(N) where N is the length of the value.",
            "Packs a value that is no stream now, whatever its age.",
        ),
        subcommand(
            Command::new("tier", 3, tier).flags(WRITE | NOSCRIPT | NO_MULTI).key(2),
            "O(N) where N is the length of the value.",
            "Has a value go to the disk tier now, whatever its age.",
        ),
        subcommand(
            Command::new("unpack", 3, unpack).flags(WRITE).key(2),
            "O(N) where N is the length of the value.",
            "Unpacks a value that is no stream in place.",
        ),
        subcommand(
            Command::new("help", 2, help).flags(LOADING | STALE),
            "O(1)",
            "Says what the subcommands do.",
        ),
    ])];

fn object(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let key = cx.key(args.bytes(2));
    let mut slot = cx.lock(&key);
    let Some(found) = slot.find_entry(&key) else { return Err(Error::NO_SUCH_KEY.into()) };
    let anatomy = slot.anatomy(found);
    let kind = slot.type_of(found);
    // Written first, for it is read under the slot's lock.
    let mut packing = Out::default();
    packing.protocol = out.protocol;
    let stream = slot.stream(found);
    let has_blocks = stream.is_some();
    if let Some(stream) = stream {
        streams::write_packing(stream, &mut packing)?;
    }
    drop(slot);
    let families = cx.store.store().families();
    let family = families.name_of(kind, key.bytes);
    let packed = anatomy.packed.unwrap_or_default();
    let (dictionary_id, level) = anatomy.dictionary_id.unwrap_or_default();
    let w = &mut out.w();
    w.map(14 + usize::from(has_blocks));
    let texts = [
        ("type", kind.name().as_bytes()),
        ("encoding", anatomy.encoding.as_bytes()),
        ("codec", anatomy.codec.as_bytes()),
        ("family", &family[..]),
    ];
    for (field, value) in texts {
        w.bulk(field.as_bytes());
        w.bulk(value);
    }
    for (field, value) in [
        ("allocated-bytes", anatomy.allocated as i64),
        ("key-bytes", anatomy.key as i64),
        ("raw-bytes", anatomy.raw as i64),
        ("packed-from-bytes", packed.raw as i64),
        ("packed-bytes", packed.packed as i64),
        ("dictionary", i64::from(dictionary_id)),
        ("dictionary-bytes", anatomy.dictionary.unwrap_or(0) as i64),
        ("dictionary-level", i64::from(level)),
        ("access", i64::from(anatomy.access)),
        ("disk-bytes", anatomy.away.unwrap_or(0) as i64),
    ] {
        w.bulk(field.as_bytes());
        w.integer(value);
    }
    if has_blocks {
        w.bulk(b"stream");
        out.bytes.extend_from_slice(&packing.bytes);
    }
    Ok(())
}

fn families(cx: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    let mut families = cx.store.store().families().all();
    families.sort_by(|a, b| (&a.shape, a.kind.name()).cmp(&(&b.shape, b.kind.name())));
    let mut w = out.w();
    w.array(families.len());
    for family in families {
        let verdict = match family.verdict {
            Verdict::Raw => "raw",
            Verdict::Fast => "fast",
            Verdict::Full => "full",
        };
        let stats = family.stats;
        let kind = family.dictionary_kind.map_or("", DictionaryKind::name);
        // As its values tell it: a dictionary of phrases is a codec of its own.
        let codec = match family.choice.map(|choice| choice.codec) {
            Some(Codec::Zstd) if family.dictionary_kind == Some(DictionaryKind::Phrases) => kind,
            codec => codec.map_or("", Codec::name),
        };
        w.map(18);
        for (field, value) in [
            ("shape", &family.shape[..]),
            ("type", family.kind.name().as_bytes()),
            ("verdict", verdict.as_bytes()),
            ("codec", codec.as_bytes()),
            ("dictionary-kind", kind.as_bytes()),
        ] {
            w.bulk(field.as_bytes());
            w.bulk(value);
        }
        for (field, value) in [
            ("judged", stats.judged),
            ("looked-at", stats.looked_at),
            ("packed", stats.packed),
            ("raw-bytes", stats.raw_bytes),
            ("packed-bytes", stats.packed_bytes),
            ("dictionary", u64::from(family.dictionary)),
            ("dictionaries-trained", stats.trained),
            ("dictionaries-rejected", stats.rejected),
            ("memory-bytes", family.memory_bytes as u64),
            ("left-by-policy", family.skipped),
            ("not-worth", family.not_worth),
            ("left-expiring", family.expiring),
        ] {
            w.bulk(field.as_bytes());
            w.integer(value as i64);
        }
        w.bulk(b"level");
        w.integer(family.choice.map_or(0, |choice| i64::from(choice.level)));
    }
    Ok(())
}

fn dictionaries(cx: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    let families = cx.store.store().families();
    let current: Vec<_> = families.all();
    let dictionaries = families.dictionaries();
    let mut w = out.w();
    w.array(dictionaries.len());
    for dictionary in dictionaries {
        let family = current.iter().find(|family| family.dictionary == dictionary.id);
        w.map(7);
        w.bulk(b"id");
        w.integer(i64::from(dictionary.id));
        w.bulk(b"kind");
        w.bulk(dictionary.kind.name().as_bytes());
        w.bulk(b"family");
        match family {
            Some(family) => w.bulk(&family.shape),
            // A stream's own, or replaced: it stays as long as values refer to it.
            None => w.bulk(b""),
        }
        for (field, value) in [
            ("bytes", dictionary.bytes as i64),
            ("memory-bytes", dictionary.memory_bytes as i64),
            ("level", i64::from(dictionary.level)),
            ("references", dictionary.references as i64),
        ] {
            w.bulk(field.as_bytes());
            w.integer(value);
        }
    }
    Ok(())
}

/// `SNUG POLICY GET` and `SNUG POLICY SET json`.
fn policy(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    match (args.is(2, "get"), args.is(2, "set"), args.len()) {
        (true, _, 3) => out.w().bulk(cx.server.config.text(Param::PackPolicy).as_bytes()),
        (_, true, 4) => {
            let json = std::str::from_utf8(args.bytes(3));
            let json = json.map_err(|_| Error::new("ERR invalid policy: it is not UTF-8"))?;
            let set = cx.server.set_policy(json, "SNUG POLICY SET");
            set.map_err(|why| Error::from(format!("ERR invalid policy: {why}")))?;
            out.w().ok();
        }
        _ => return Err(Error::SYNTAX.into()),
    }
    Ok(())
}

/// Answers 1 if the value is packed afterwards, 0 if it stays raw.
fn pack(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let key = cx.key(args.bytes(2));
    let mut slot = cx.lock(&key);
    let found = slot.find_untouched(&key).ok_or(Error::NO_SUCH_KEY)?;
    let already = slot.anatomy(found).packed.is_some();
    if slot.cools_in_parts(found) {
        drop(slot);
        let packed = finish_pieces(cx, &key, false)? || already;
        out.w().integer(i64::from(packed));
        return Ok(());
    }
    if slot.is_in_parts(found) {
        return Err(Error::WRONG_TYPE.into());
    }
    let params = cx.server.config.piece_params();
    let job = slot.job(found, &params, true).filter(Job::packs);
    drop(slot);
    let mut done = already;
    if let Some(job) = job {
        let finished = cx.finish(cx.store.prepared(job, &params))?;
        let outcome = finished.install(cx.server, cx.store, cx.worker);
        done |= matches!(outcome.fate, Fate::Packed(_));
    }
    out.w().integer(i64::from(done));
    Ok(())
}

/// Answers 1 if the value is on disk afterwards, 0 if it stays in memory.
fn tier(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    if !cx.server.tiering.is_on() {
        return Err(Error::new("ERR there is no disk tier: tier-path is not set").into());
    }
    if let Some(waited) = cx.waited() {
        out.w().integer(waited.unwrap_or(0));
        return Ok(());
    }
    let key = cx.key(args.bytes(2));
    cx.lock(&key).find_entry(&key).ok_or(Error::NO_SUCH_KEY)?;
    if cx.store.is_away(cx.db(), key.bytes) {
        out.w().integer(1);
        return Ok(());
    }
    let leaves = cx.server.tiering.leave(cx.db(), key.bytes.to_vec());
    Err(cx.wait_until(async { Ok(i64::from(leaves.await)) }))
}

/// Packs or unpacks the pages of the large collection at a key, in slices; whether any was.
fn finish_pieces(cx: &mut Context<'_>, key: &Key<'_>, unpacks: bool) -> Result<bool, Unanswered> {
    let next = |cx: &Context<'_>, at: &mut usize| {
        let (params, walk) = (cx.server.config.piece_params(), PieceWalk::new(unpacks, *at));
        let mut slot = cx.lock(key);
        let found = slot.find_untouched(key)?;
        let job = slot.walked(found, &params, &walk);
        drop(slot);
        *at = walk.at();
        Some(cx.store.prepared(job?, &params))
    };
    cx.finish_all(next, |fate| match fate {
        Fate::Packed(_) => !unpacks,
        Fate::Unpacked => unpacks,
        _ => false,
    })
}

/// Answers 1 if the value was packed.
fn unpack(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let key = cx.key(args.bytes(2));
    let mut slot = cx.lock(&key);
    let found = slot.find_untouched(&key).ok_or(Error::NO_SUCH_KEY)?;
    if slot.cools_in_parts(found) {
        drop(slot);
        let unpacked = finish_pieces(cx, &key, true)?;
        out.w().integer(i64::from(unpacked));
        return Ok(());
    }
    if slot.is_in_parts(found) {
        return Err(Error::WRONG_TYPE.into());
    }
    let was_packed = packed(&slot, found).is_some();
    if was_packed {
        cx.make_raw(&mut slot, found)?;
    }
    let unpacked = slot.unpack(found)? || was_packed;
    out.w().integer(i64::from(unpacked));
    Ok(())
}

fn help(_: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    let lines = [
        ("DICTIONARIES", "Show the dictionaries that values are packed with."),
        ("FAMILIES", "Show the families of values: verdict, savings, dictionary."),
        (
            "OBJECT <key>",
            "Show what the value of <key> is made of: encoding, codec, raw and packed bytes.",
        ),
        ("POLICY GET", "Show the policy: which values are packed, and with what."),
        (
            "POLICY SET <json>",
            "Replace the policy; new values go by it at once, old ones as they are swept.",
        ),
        ("PACK <key>", "Pack the value of <key>, which is no stream, now, whatever its age."),
        ("TIER <key>", "Have the value at <key> go to the disk tier now, whatever its age."),
        ("UNPACK <key>", "Unpack the value of <key>; it is packed again when it cools."),
    ];
    super::help(out, "SNUG", &lines);
    Ok(())
}
