//! `GEORADIUS`, `GEOSEARCH` and their kin: which members lie within a circle or a box.

use super::geohash::{Place, cover};
use super::{distance, place_arg, place_of, stored_at, unit, write_place};
use crate::commands::sorted_sets::{Rows, event, read, store};
use crate::engine::command::Answer;
use crate::engine::context::Context;
use crate::engine::out::Out;
use crate::request::args::Args;
use crate::request::error::Error;
use crate::text::double;
use snug_store::{Limit, Type, ZSet};
use std::ops::ControlFlow;

/// Which command it is, and what it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Around a place; whether it may store what it finds.
    Radius(bool),
    /// Around a member; the same.
    ByMember(bool),
    Search,
    SearchStore,
}

impl Kind {
    fn is_search(self) -> bool {
        matches!(self, Self::Search | Self::SearchStore)
    }
}

/// The area, its sizes in metres.
#[derive(Clone, Copy, Debug)]
enum Shape {
    Circle(f64),
    /// Width and height.
    Box(f64, f64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    None,
    Nearest,
    Farthest,
}

struct Query<'a> {
    /// None around a member of a key that is not there.
    center: Option<Place>,
    shape: Option<Shape>,
    /// Metres of the unit in which distances are told.
    unit: f64,
    with_coord: bool,
    with_dist: bool,
    with_hash: bool,
    /// 0 for all.
    count: usize,
    any: bool,
    sort: Sort,
    target: Option<&'a [u8]>,
    store_distance: bool,
}

/// A member within the area.
struct Hit {
    member: Vec<u8>,
    score: f64,
    place: Place,
    metres: f64,
}

fn number(args: Args<'_>, at: usize, error: &'static str) -> Result<f64, Error> {
    double::parse(args.bytes(at)).ok_or(Error::new(error))
}

/// A radius and its unit: both in metres.
fn radius(args: Args<'_>, at: usize) -> Result<(f64, f64), Error> {
    let radius = number(args, at, "ERR need numeric radius")?;
    if radius < 0.0 {
        return Err(Error::new("ERR radius cannot be negative"));
    }
    let unit = unit(args.bytes(at + 1))?;
    Ok((radius * unit, unit))
}

fn parse<'a>(args: Args<'a>, kind: Kind, zset: Option<&ZSet<'_>>) -> Result<Query<'a>, Error> {
    let mut query = Query {
        center: None,
        shape: None,
        unit: 1.0,
        with_coord: false,
        with_dist: false,
        with_hash: false,
        count: 0,
        any: false,
        sort: Sort::None,
        target: None,
        store_distance: false,
    };
    let circle = |query: &mut Query<'_>, at| -> Result<(), Error> {
        let (metres, unit) = radius(args, at)?;
        (query.shape, query.unit) = (Some(Shape::Circle(metres)), unit);
        Ok(())
    };
    let around = |at: usize| -> Result<Option<Place>, Error> {
        match zset {
            None => Ok(None),
            Some(zset) => place_of(zset, &args.value(at))?
                .map(Some)
                .ok_or(Error::new("ERR could not decode requested zset member")),
        }
    };
    let (mut from_member, mut from_place) = (false, false);
    let first = match kind {
        Kind::Radius(_) => {
            query.center = Some(place_arg(args, 2)?);
            circle(&mut query, 4)?;
            6
        }
        Kind::ByMember(_) => {
            query.center = around(2)?;
            if zset.is_some() {
                circle(&mut query, 3)?;
            }
            5
        }
        Kind::Search => 2,
        Kind::SearchStore => {
            query.target = Some(args.bytes(1));
            3
        }
    };
    let may_store = matches!(kind, Kind::Radius(true) | Kind::ByMember(true));
    let (mut by_radius, mut by_box) = (false, false);
    let mut n = first;
    while n < args.len() {
        let behind = args.len() - n - 1;
        match () {
            () if args.is(n, "withdist") => query.with_dist = true,
            () if args.is(n, "withhash") => query.with_hash = true,
            () if args.is(n, "withcoord") => query.with_coord = true,
            () if args.is(n, "any") => query.any = true,
            () if args.is(n, "asc") => query.sort = Sort::Nearest,
            () if args.is(n, "desc") => query.sort = Sort::Farthest,
            () if behind >= 1 && args.is(n, "count") => {
                let count = args.int(n + 1)?;
                if count <= 0 {
                    return Err(Error::new("ERR COUNT must be > 0"));
                }
                query.count = usize::try_from(count).unwrap_or(usize::MAX);
                n += 1;
            }
            () if may_store && behind >= 1 && args.is(n, "store") => {
                (query.target, query.store_distance) = (Some(args.bytes(n + 1)), false);
                n += 1;
            }
            () if may_store && behind >= 1 && args.is(n, "storedist") => {
                (query.target, query.store_distance) = (Some(args.bytes(n + 1)), true);
                n += 1;
            }
            () if kind == Kind::SearchStore && args.is(n, "storedist") => {
                query.store_distance = true;
            }
            () if !kind.is_search() => return Err(Error::SYNTAX),
            () if behind >= 1 && !from_place && args.is(n, "frommember") => {
                query.center = around(n + 1)?;
                from_member = true;
                n += 1;
            }
            () if behind >= 2 && !from_member && args.is(n, "fromlonlat") => {
                query.center = Some(place_arg(args, n + 1)?);
                from_place = true;
                n += 2;
            }
            () if behind >= 2 && !by_box && args.is(n, "byradius") => {
                circle(&mut query, n + 1)?;
                by_radius = true;
                n += 2;
            }
            () if behind >= 3 && !by_radius && args.is(n, "bybox") => {
                let width = number(args, n + 1, "ERR need numeric width")?;
                let height = number(args, n + 2, "ERR need numeric height")?;
                if width < 0.0 || height < 0.0 {
                    return Err(Error::new("ERR height or width cannot be negative"));
                }
                query.unit = unit(args.bytes(n + 3))?;
                query.shape = Some(Shape::Box(width * query.unit, height * query.unit));
                by_box = true;
                n += 3;
            }
            () => return Err(Error::SYNTAX),
        }
        n += 1;
    }
    if query.target.is_some() && (query.with_dist || query.with_hash || query.with_coord) {
        let what = match kind {
            Kind::SearchStore => "GEOSEARCHSTORE",
            _ => "STORE option in GEORADIUS",
        };
        return Err(Error::from(format!(
            "ERR {what} is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
        )));
    }
    let called =
        || String::from_utf8_lossy(crate::commands::quoted(args.bytes(0), usize::MAX)).into_owned();
    if kind.is_search() && !(from_member || from_place) {
        return Err(Error::from(format!(
            "ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for {}",
            called()
        )));
    }
    if kind.is_search() && !(by_radius || by_box) {
        return Err(Error::from(format!(
            "ERR exactly one of BYRADIUS and BYBOX can be specified for {}",
            called()
        )));
    }
    if query.any && query.count == 0 {
        return Err(Error::new("ERR the ANY argument requires COUNT argument"));
    }
    if query.count != 0 && query.sort == Sort::None && !query.any {
        query.sort = Sort::Nearest;
    }
    Ok(query)
}

/// What lies within the area, in the order that is asked for.
fn search(cx: &Context<'_>, zset: &ZSet<'_>, query: &Query<'_>) -> Result<Vec<Hit>, Error> {
    let (Some(center), Some(shape)) = (query.center, query.shape) else { return Ok(Vec::new()) };
    let ranges = match shape {
        Shape::Circle(radius) => cover(center, radius, radius, radius),
        Shape::Box(width, height) => {
            let (east, north) = (width / 2.0, height / 2.0);
            cover(center, east, north, (east * east + north * north).sqrt())
        }
    };
    let enough = if query.any { query.count } else { usize::MAX };
    let mut hits = Vec::new();
    let mut met = 0;
    for (from, to) in ranges {
        let first = zset.rank_at(&Limit::Score(from as f64, false))?;
        let end = zset.rank_at(&Limit::Score(to as f64, false))?;
        met += end.saturating_sub(first);
        cx.goes_through(met.min(enough))?;
        zset.visit(first, end.saturating_sub(first), false, |member, score| {
            let place = Place::of_score(score);
            let metres = match shape {
                Shape::Circle(radius) => Some(center.distance(place)).filter(|&m| m <= radius),
                Shape::Box(width, height) => {
                    let level = Place { latitude: place.latitude, ..center };
                    let is_in = center.distance_north(place) <= height / 2.0
                        && place.distance(level) <= width / 2.0;
                    is_in.then(|| center.distance(place))
                }
            };
            if let Some(metres) = metres {
                hits.push(Hit { member: member.bytes().into_owned(), score, place, metres });
            }
            match hits.len() >= enough {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })?;
        if hits.len() >= enough {
            break;
        }
    }
    match query.sort {
        Sort::None => {}
        Sort::Nearest => hits.sort_by(|a, b| a.metres.total_cmp(&b.metres)),
        Sort::Farthest => hits.sort_by(|a, b| b.metres.total_cmp(&a.metres)),
    }
    if query.count > 0 {
        hits.truncate(query.count);
    }
    Ok(hits)
}

fn execute(cx: &mut Context<'_>, args: Args<'_>, kind: Kind, out: &mut Out) -> Answer {
    let source = args.bytes(if kind == Kind::SearchStore { 2 } else { 1 });
    // What it may store to is told before anything is read.
    let target = match kind {
        Kind::Radius(true) => stored_at(args, 6),
        Kind::ByMember(true) => stored_at(args, 5),
        Kind::SearchStore => Some(1),
        _ => None,
    };
    let _held = target.map(|at| cx.hold([args.bytes(at), source].map(|name| cx.key(name))));
    let found = match kind {
        Kind::Search => read(cx, source, |zset| {
            let query = parse(args, kind, Some(zset))?;
            Ok((search(cx, zset, &query)?, query))
        })?,
        _ => read_to_store(cx, source, |zset| {
            let query = parse(args, kind, Some(zset))?;
            Ok((search(cx, zset, &query)?, query))
        })?,
    };
    let (hits, query) = match found {
        Some(found) => found,
        None => (Vec::new(), parse(args, kind, None)?),
    };
    if let Some(target) = query.target {
        let score =
            |hit: &Hit| if query.store_distance { hit.metres / query.unit } else { hit.score };
        let rows: Rows = hits
            .into_iter()
            .map(|hit| {
                let score = score(&hit);
                (hit.member, score)
            })
            .collect();
        let name = if kind.is_search() { "geosearchstore" } else { "georadiusstore" };
        let stored = store(cx, target, &rows, event(name))?;
        out.w().integer(stored as i64);
        return Ok(());
    }
    out.w().array(hits.len());
    let Query { with_dist, with_hash, with_coord, .. } = query;
    let more = [with_dist, with_hash, with_coord].iter().filter(|&&with| with).count();
    for hit in &hits {
        if more > 0 {
            out.w().array(1 + more);
        }
        out.w().bulk(&hit.member);
        if with_dist {
            distance(out, hit.metres / query.unit);
        }
        if with_hash {
            out.w().integer(super::geohash::score_bits(hit.score) as i64);
        }
        if with_coord {
            write_place(out, hit.place);
        }
    }
    Ok(())
}

/// Reads the sorted set at a key, if there is one, for a command that also writes.
fn read_to_store<R>(
    cx: &Context<'_>,
    name: &[u8],
    read: impl FnOnce(&ZSet<'_>) -> Result<R, Error>,
) -> Result<Option<R>, Error> {
    let key = cx.key(name);
    let mut slot = cx.lock(&key);
    let Some(found) = cx.find_to_read(&mut slot, &key) else { return Ok(None) };
    if slot.type_of(found) != Type::SortedSet {
        return Err(Error::WRONG_TYPE);
    }
    let mut room = Vec::new();
    match slot.zset(found, &mut room)? {
        Some(zset) => read(&zset).map(Some),
        None => Ok(None),
    }
}

pub(super) fn georadius(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    execute(cx, args, Kind::Radius(true), out)
}

pub(super) fn georadius_ro(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    execute(cx, args, Kind::Radius(false), out)
}

pub(super) fn georadiusbymember(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    execute(cx, args, Kind::ByMember(true), out)
}

pub(super) fn georadiusbymember_ro(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    execute(cx, args, Kind::ByMember(false), out)
}

pub(super) fn geosearch(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    execute(cx, args, Kind::Search, out)
}

pub(super) fn geosearchstore(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    execute(cx, args, Kind::SearchStore, out)
}
