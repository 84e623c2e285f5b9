//! Commands on places: members of sorted sets whose scores tell where they are.

mod geohash;
mod search;

use crate::commands::sorted_sets::{event, find, limits, read};
use crate::engine::command::flags::*;
use crate::engine::command::{Answer, Command, Group};
use crate::engine::context::Context;
use crate::engine::keys::KeySpec;
use crate::engine::keys::uses::*;
use crate::engine::out::Out;
use crate::request::args::Args;
use crate::request::error::Error;
use crate::text::double;
use crate::text::float::Extended;
use geohash::Place;
use snug_resp::Protocol;
use snug_store::{NewStr, ZAdd, ZSet, ZWhen};

const fn about(
    command: Command,
    since: &'static str,
    cost: &'static str,
    text: &'static str,
) -> Command {
    command.about(Group::Geo, since, cost, text)
}

const SEARCH: &str = "O(N+log(M)) where N is the number of members in the cells of the map that the area touches, and M the number of members.";

pub(crate) const COMMANDS: &[Command] = &[
    about(
        Command::new("geoadd", -5, geoadd).flags(WRITE | DENYOOM).key(1),
        "3.2.0",
        "O(log(N)) for each member added, where N is the number of members.",
        "Adds members with their places.",
    ),
    about(
        Command::new("geodist", -4, geodist).flags(READONLY).key(1),
        "3.2.0",
        "O(log(N))",
        "Returns the distance between two members.",
    ),
    about(
        Command::new("geohash", -2, geohash).flags(READONLY).key(1),
        "3.2.0",
        "O(log(N)) for each member asked for.",
        "Returns the places of members as geohashes.",
    ),
    about(
        Command::new("geopos", -2, geopos).flags(READONLY).key(1),
        "3.2.0",
        "O(log(N)) for each member asked for.",
        "Returns the longitudes and latitudes of members.",
    ),
    about(
        Command::new("georadius", -6, search::georadius)
            .flags(WRITE | DENYOOM)
            .key(1)
            .movable(radius_keys::<6>)
            .specs(&[
                KeySpec::at(RO_ACCESS, 1),
                KeySpec::behind(OW_UPDATE, "STORE", 6),
                KeySpec::behind(OW_UPDATE, "STOREDIST", 6),
            ]),
        "3.2.0",
        SEARCH,
        "Returns or stores the members within a distance of a place.",
    ),
    about(
        Command::new("georadius_ro", -6, search::georadius_ro).flags(READONLY).key(1),
        "3.2.10",
        SEARCH,
        "Returns the members within a distance of a place.",
    ),
    about(
        Command::new("georadiusbymember", -5, search::georadiusbymember)
            .flags(WRITE | DENYOOM)
            .key(1)
            .movable(radius_keys::<5>)
            .specs(&[
                KeySpec::at(RO_ACCESS, 1),
                KeySpec::behind(OW_UPDATE, "STORE", 5),
                KeySpec::behind(OW_UPDATE, "STOREDIST", 5),
            ]),
        "3.2.0",
        SEARCH,
        "Returns or stores the members within a distance of a member.",
    ),
    about(
        Command::new("georadiusbymember_ro", -5, search::georadiusbymember_ro)
            .flags(READONLY)
            .key(1),
        "3.2.10",
        SEARCH,
        "Returns the members within a distance of a member.",
    ),
    about(
        Command::new("geosearch", -7, search::geosearch).flags(READONLY).key(1),
        "6.2.0",
        SEARCH,
        "Returns the members within a circle or a box.",
    ),
    about(
        Command::new("geosearchstore", -8, search::geosearchstore)
            .flags(WRITE | DENYOOM)
            .keys(1, 2, 1)
            .specs(&[KeySpec::at(OW_UPDATE, 1), KeySpec::at(RO_ACCESS, 2)]),
        "6.2.0",
        SEARCH,
        "Stores the members within a circle or a box.",
    ),
];

/// The keys of `GEORADIUS` and `GEORADIUSBYMEMBER`, whose options begin at `FIRST`: what
/// is read, and what is stored to.
fn radius_keys<const FIRST: usize>(args: Args<'_>) -> Result<Vec<usize>, Error> {
    Ok(std::iter::once(1).chain(stored_at(args, FIRST)).collect())
}

/// The argument behind the last `STORE` or `STOREDIST` from an argument on.
fn stored_at(args: Args<'_>, first: usize) -> Option<usize> {
    let mut found = None;
    let mut at = first;
    while at + 1 < args.len() {
        if args.is(at, "store") || args.is(at, "storedist") {
            found = Some(at + 1);
            at += 1;
        }
        at += 1;
    }
    found
}

/// A longitude and a latitude among the arguments.
fn place_arg(args: Args<'_>, at: usize) -> Result<Place, Error> {
    let number = |at| double::parse(args.bytes(at)).ok_or(Error::NOT_FLOAT);
    let place = Place { longitude: number(at)?, latitude: number(at + 1)? };
    if !place.is_on_the_map() {
        return Err(Error::from(format!(
            "ERR invalid longitude,latitude pair {},{}",
            c_fixed(place.longitude),
            c_fixed(place.latitude)
        )));
    }
    Ok(place)
}

/// A double as C's `%f` prints it.
fn c_fixed(value: f64) -> String {
    if value.is_infinite() { format!("{value}") } else { format!("{value:.6}") }
}

/// Metres of a unit.
fn unit(name: &[u8]) -> Result<f64, Error> {
    const UNITS: [(&str, f64); 4] = [("m", 1.0), ("km", 1000.0), ("ft", 0.3048), ("mi", 1609.34)];
    let found = UNITS.iter().find(|(unit, _)| name.eq_ignore_ascii_case(unit.as_bytes()));
    let found = found.map(|(_, metres)| *metres);
    found.ok_or(Error::new("ERR unsupported unit provided. please use M, KM, FT, MI"))
}

/// Where a member is, if it is one.
fn place_of(zset: &ZSet<'_>, member: &NewStr<'_>) -> Result<Option<Place>, Error> {
    Ok(zset.score(member)?.map(Place::of_score))
}

/// Writes a distance: four digits behind the point.
fn distance(out: &mut Out, value: f64) {
    out.w().bulk(format!("{value:.4}").as_bytes());
}

/// Writes a longitude and a latitude, each with seventeen digits behind the point, the
/// zeros at its end left out.
fn write_place(out: &mut Out, place: Place) {
    out.w().array(2);
    for degrees in [place.longitude, place.latitude] {
        let text = Extended::of(degrees).to_text();
        match out.protocol {
            Protocol::Resp2 => out.w().bulk(text.as_bytes()),
            Protocol::Resp3 => {
                out.bytes.push(b',');
                out.bytes.extend_from_slice(text.as_bytes());
                out.w().crlf();
            }
        }
    }
}

fn geoadd(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let (mut when, mut ch, mut first) = (ZWhen::default(), false, 2);
    loop {
        match () {
            () if args.is(first, "nx") => when.nx = true,
            () if args.is(first, "xx") => when.xx = true,
            () if args.is(first, "ch") => ch = true,
            () => break,
        }
        first += 1;
    }
    let rest = args.len() - first;
    if rest == 0 || !rest.is_multiple_of(3) || when.nx && when.xx {
        return Err(Error::SYNTAX.into());
    }
    let mut scores = Vec::with_capacity(rest / 3);
    for at in (first..args.len()).step_by(3) {
        scores.push(place_arg(args, at)?.score() as f64);
    }
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let found = find(cx, &mut slot, &key)?;
    let members = (first + 2..args.len()).step_by(3).map(|at| args.value(at));
    let items = scores.iter().copied().zip(members);
    let op = ZAdd { items, when, increase: false, limits: limits(cx) };
    let added = slot.apply(&key, found, op, event("zadd"))?.outcome;
    out.w().integer((added.added + if ch { added.changed } else { 0 }) as i64);
    Ok(())
}

fn geodist(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let metres = match args.len() {
        4 => 1.0,
        5 => unit(args.bytes(4))?,
        _ => return Err(Error::SYNTAX.into()),
    };
    let places = read(cx, args.bytes(1), |zset| {
        let (from, to) = (place_of(zset, &args.value(2))?, place_of(zset, &args.value(3))?);
        Ok(from.zip(to))
    })?;
    match places.flatten() {
        Some((from, to)) => distance(out, from.distance(to) / metres),
        None => out.w().null(),
    }
    Ok(())
}

/// Gives each member asked for to `write`, or none where there is no such member.
fn each(
    cx: &Context<'_>,
    args: Args<'_>,
    out: &mut Out,
    write: impl Fn(&mut Out, Option<Place>),
) -> Result<(), Error> {
    let count = args.len() - 2;
    let written = read(cx, args.bytes(1), |zset| {
        out.w().array(count);
        (2..args.len()).try_for_each(|at| {
            write(out, place_of(zset, &args.value(at))?);
            Ok(())
        })
    })?;
    if written.is_none() {
        out.w().array(count);
        (0..count).for_each(|_| write(out, None));
    }
    Ok(())
}

fn geohash(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    Ok(each(cx, args, out, |out, place| match place {
        Some(place) => out.w().bulk(&place.text()),
        None => out.w().null(),
    })?)
}

fn geopos(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    Ok(each(cx, args, out, |out, place| match place {
        Some(place) => write_place(out, place),
        None => out.w().null_array(),
    })?)
}
