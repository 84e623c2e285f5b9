//! `SORT` and `SORT_RO`: the elements of a list, set or sorted set by their own values
//! or by those of other keys.
//!
//! ```text
//!  SORT key [BY pattern] [LIMIT from count] [GET pattern ...] [ASC|DESC] [ALPHA] [STORE to]
//!
//!  pattern   w_*        the string at the key in which an element stands for the star
//!            h_*->f     a field of the hash there
//!            #          the element itself (GET)
//!            nosort     no star: nothing to look up, and nothing is sorted (BY)
//! ```
//!
//! Keys that patterns come to are known only when the elements are. So that what is seen
//! is one moment, a command with such a pattern has the store to itself while it runs, as
//! in a transaction (flag `WIDE`); without one it holds the slots of its keys.
//!
//! Elements are copied in one piece of memory; places in it are sorted, and only as far as
//! `LIMIT` asks. O(N + M log M) for N elements of which M are returned, and a look-up for
//! each and each pattern.

use super::strings::read;
use crate::auth::Categories;
use crate::engine::command::flags::*;
use crate::engine::command::{Answer, Command, Group};
use crate::engine::context::Context;
use crate::engine::keys::KeySpec;
use crate::engine::keys::uses::*;
use crate::engine::out::Out;
use crate::request::args::Args;
use crate::request::error::Error;
use crate::text::float::Extended;
use snug_codec::Segments;
use snug_store::types::list::End;
use snug_store::types::list::ops::Push;
use snug_store::types::pages::paged::Item;
use snug_store::{Class, Event};
use snug_store::{Delete, Found, NewStr, SlotGuard, Str, Type};
use std::cmp::Ordering;
use std::ops::{ControlFlow, Range};

const COST: &str = "O(N+M*log(M)) where N is the number of elements in the list or set to sort, and M the number of returned elements. When the elements are not sorted, complexity is O(N).";

const SORTABLE: Categories =
    Categories::SET.and(Categories::SORTEDSET).and(Categories::LIST).and(Categories::DANGEROUS);

pub(crate) const COMMANDS: &[Command] = &[
    Command::new("sort", -2, sort)
        .flags(WRITE | DENYOOM | WIDE)
        .acl(SORTABLE)
        .key(1)
        .movable(sort_keys)
        .specs(&[
            KeySpec::at(RO_ACCESS, 1),
            KeySpec::unknown(RO_ACCESS),
            KeySpec::unknown(OW_UPDATE),
        ])
        .about(
            Group::Generic,
            "1.0.0",
            COST,
            "Sorts the elements of a list, a set or a sorted set, and may store them.",
        ),
    Command::new("sort_ro", -2, sort_ro)
        .flags(READONLY | WIDE)
        .acl(SORTABLE)
        .key(1)
        .movable(first_key)
        .specs(&[KeySpec::at(RO_ACCESS, 1), KeySpec::unknown(RO_ACCESS)])
        .about(
            Group::Generic,
            "7.0.0",
            COST,
            "Sorts the elements of a list, a set or a sorted set.",
        ),
];

/// The event of a list that a sort has made.
const SORT_STORE: Event = Event::new(Class::LIST, "sortstore");

/// What is sorted, and where it goes: of several `STORE`s the last.
fn sort_keys(args: Args<'_>) -> Result<Vec<usize>, Error> {
    let mut keys = vec![1];
    let mut at = 2;
    while at < args.len() {
        if args.is(at, "limit") {
            at += 2;
        } else if args.is(at, "get") || args.is(at, "by") {
            at += 1;
        } else if args.is(at, "store") && at + 1 < args.len() {
            keys.truncate(1);
            keys.push(at + 1);
        }
        at += 1;
    }
    Ok(keys)
}

fn first_key(_: Args<'_>) -> Result<Vec<usize>, Error> {
    Ok(vec![1])
}

/// What `BY` and `GET` look at for an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pattern<'a> {
    /// The element itself.
    Element,
    /// Nothing: there is no star in it.
    Nothing,
    /// A key in which the element stands between these, and if there is one a field of
    /// the hash there.
    Key { before: &'a [u8], behind: &'a [u8], field: Option<&'a [u8]> },
}

impl<'a> Pattern<'a> {
    /// A pattern is looked through up to a NUL, as Redis does it.
    fn of(pattern: &'a [u8]) -> Self {
        let end = pattern.iter().position(|&byte| byte == 0).unwrap_or(pattern.len());
        if &pattern[..end] == b"#" {
            return Self::Element;
        }
        let Some(star) = pattern[..end].iter().position(|&byte| byte == b'*') else {
            return Self::Nothing;
        };
        let (before, behind) = (&pattern[..star], &pattern[star + 1..]);
        let arrow = pattern[star + 1..end].windows(2).position(|pair| pair == b"->");
        match arrow.filter(|arrow| star + 1 + arrow + 2 < end) {
            Some(arrow) => {
                let field = Some(&behind[arrow + 2..]);
                Self::Key { before, behind: &behind[..arrow], field }
            }
            None => Self::Key { before, behind, field: None },
        }
    }

    fn is_key(&self) -> bool {
        matches!(self, Self::Key { .. })
    }
}

/// What is asked for.
#[derive(Debug)]
struct Plan<'a> {
    /// By the elements themselves if there is none.
    by: Option<Pattern<'a>>,
    get: Vec<Pattern<'a>>,
    /// From where, and how many; all if that is negative.
    limit: (i64, i64),
    is_back: bool,
    is_alpha: bool,
    store: Option<&'a [u8]>,
}

impl<'a> Plan<'a> {
    fn read(cx: &mut Context<'_>, args: Args<'a>, may_store: bool) -> Result<Self, Error> {
        let reads_all = cx.may_read_every_key(args);
        let mut plan = Self {
            by: None,
            get: Vec::new(),
            limit: (0, -1),
            is_back: false,
            is_alpha: false,
            store: None,
        };
        let is_cluster = cx.server.cluster.enabled;
        let mut at = 2;
        while at < args.len() {
            let left = args.len() - at - 1;
            if args.is(at, "asc") {
                plan.is_back = false;
            } else if args.is(at, "desc") {
                plan.is_back = true;
            } else if args.is(at, "alpha") {
                plan.is_alpha = true;
            } else if args.is(at, "limit") && left >= 2 {
                plan.limit = (args.int(at + 1)?, args.int(at + 2)?);
                at += 2;
            } else if may_store && args.is(at, "store") && left >= 1 {
                plan.store = Some(args.bytes(at + 1));
                at += 1;
            } else if args.is(at, "by") && left >= 1 {
                let by = match Pattern::of(args.bytes(at + 1)) {
                    Pattern::Element => Pattern::Nothing,
                    by => by,
                };
                if is_cluster && by.is_key() {
                    let why = "ERR BY option of SORT denied in Cluster mode.";
                    return Err(Error::new(why));
                }
                if !reads_all && by.is_key() {
                    let why = "ERR BY option of SORT denied due to insufficient ACL permissions.";
                    return Err(Error::new(why));
                }
                // Once there was one without a star, nothing is sorted any more.
                if plan.by != Some(Pattern::Nothing) {
                    plan.by = Some(by);
                }
                at += 1;
            } else if args.is(at, "get") && left >= 1 {
                if is_cluster {
                    let why = "ERR GET option of SORT denied in Cluster mode.";
                    return Err(Error::new(why));
                }
                if !reads_all {
                    let why = "ERR GET option of SORT denied due to insufficient ACL permissions.";
                    return Err(Error::new(why));
                }
                plan.get.push(Pattern::of(args.bytes(at + 1)));
                at += 1;
            } else {
                return Err(Error::SYNTAX);
            }
            at += 1;
        }
        Ok(plan)
    }

    fn looks_up(&self) -> bool {
        self.by.iter().chain(&self.get).any(Pattern::is_key)
    }

    /// Which of `len` elements, once they are in order, are asked for.
    fn window(&self, len: usize) -> Range<usize> {
        let clamp = |value: i64| usize::try_from(value).unwrap_or(0).min(len);
        let from = clamp(self.limit.0);
        let count = if self.limit.1 < 0 { len } else { clamp(self.limit.1) };
        from..from.saturating_add(count).min(len)
    }
}

/// Texts in one piece of memory.
#[derive(Debug, Default)]
struct Texts {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Texts {
    fn push<'p>(&mut self, pieces: impl IntoIterator<Item = &'p [u8]>) {
        pieces.into_iter().for_each(|piece| self.bytes.extend_from_slice(piece));
        self.ends.push(self.bytes.len());
    }

    fn push_item(&mut self, item: &Item<'_>) {
        match item {
            Item::Bytes(bytes) => self.push([&bytes[..]]),
            Item::Large(string) => self.push(string.parts().iter().map(|part| &part[..])),
        }
    }

    fn len(&self) -> usize {
        self.ends.len()
    }

    fn get(&self, index: usize) -> &[u8] {
        let from = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[from..self.ends[index]]
    }
}

/// What an element is ordered by, of all elements.
#[derive(Debug)]
enum Weights {
    Numbers(Vec<f64>),
    /// The elements' own texts.
    Own,
    /// Others, where there are any.
    Texts(Texts, Vec<bool>),
}

/// Whether values of a type have an order of their own.
fn has_order(kind: Type) -> bool {
    matches!(kind, Type::List | Type::SortedSet)
}

/// The elements of a value, and whether they are already those of the window. What is
/// not sorted is read in its own order, or backwards.
fn elements(
    cx: &Context<'_>,
    slot: &SlotGuard<'_>,
    found: Found,
    plan: &Plan<'_>,
    sorts: bool,
) -> Result<(Texts, bool), Error> {
    let (mut texts, mut room) = (Texts::default(), Vec::new());
    match slot.type_of(found) {
        Type::List => {
            let Some(list) = slot.list(found, &mut room)? else { return Err(Error::WRONG_TYPE) };
            let window = if sorts { 0..list.len() } else { plan.window(list.len()) };
            let mut left = window.len();
            cx.goes_through(left)?;
            let take = |item: Item<'_>| {
                texts.push_item(&item);
                left = left.saturating_sub(1);
                if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            if window.is_empty() {
            } else if sorts || !plan.is_back {
                list.visit(window.start, window.len(), take)?;
            } else {
                list.visit_back(list.len() - 1 - window.start, take)?;
            }
            Ok((texts, !sorts))
        }
        Type::Set => {
            let Some(set) = slot.set(found, &mut room)? else { return Err(Error::WRONG_TYPE) };
            cx.goes_through(set.len())?;
            set.visit(|item| {
                texts.push_item(&item);
                ControlFlow::Continue(())
            })?;
            Ok((texts, false))
        }
        Type::SortedSet => {
            let Some(zset) = slot.zset(found, &mut room)? else { return Err(Error::WRONG_TYPE) };
            let window = if sorts { 0..zset.len() } else { plan.window(zset.len()) };
            let is_back = plan.is_back && !sorts;
            cx.goes_through(window.len())?;
            let from = if is_back { zset.len() - window.end } else { window.start };
            zset.visit(from, window.len(), is_back, |member, _| {
                texts.push_item(&member);
                ControlFlow::Continue(())
            })?;
            Ok((texts, !sorts))
        }
        _ => Err(Error::WRONG_TYPE),
    }
}

/// What a pattern comes to for an element.
enum Looked<'a> {
    Element(&'a [u8]),
    String(Str<'a>),
    Field(Item<'a>),
}

/// Gives what a pattern comes to for an element to `then`, if there is anything. The
/// caller has no slot locked.
fn look_up<R>(
    cx: &Context<'_>,
    pattern: Pattern<'_>,
    element: &[u8],
    then: impl FnOnce(Option<Looked<'_>>) -> Result<R, Error>,
) -> Result<R, Error> {
    let Pattern::Key { before, behind, field } = pattern else {
        return then((pattern == Pattern::Element).then_some(Looked::Element(element)));
    };
    let name = [before, element, behind].concat();
    let key = cx.key(&name);
    let mut slot = cx.lock(&key);
    let Some(found) = cx.find_to_read(&mut slot, &key) else { return then(None) };
    match (slot.type_of(found), field) {
        (Type::String, None) => then(slot.string(found).map(Looked::String)),
        (Type::Hash, Some(field)) => {
            let mut room = Vec::new();
            let Some(hash) = slot.hash(found, &mut room)? else { return then(None) };
            let mut then = Some(then);
            let got = hash.get(&NewStr::Bytes(field), |value| {
                then.take().map(|then| then(Some(Looked::Field(value))))
            })?;
            match (got.flatten(), then) {
                (Some(outcome), _) => outcome,
                (None, Some(then)) => then(None),
                (None, None) => Err(Error::WRONG_TYPE),
            }
        }
        _ => then(None),
    }
}

/// The number that a text is, as C's `strtod` takes all of it: `None` if it is none, or
/// too large or too small for a double. No text at all is 0; a text ends at a NUL.
fn number(text: &[u8]) -> Option<f64> {
    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
    if text.is_empty() {
        return Some(0.0);
    }
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let text = &text[text.iter().position(|byte| !is_space(byte))?..];
    let digits = text.strip_prefix(b"-").or(text.strip_prefix(b"+")).unwrap_or(text);
    let is_word = |word: &str| digits.eq_ignore_ascii_case(word.as_bytes());
    let is_infinite = is_word("inf") || is_word("infinity");
    if digits.len() > 1 && digits[..2].eq_ignore_ascii_case(b"0x") {
        return Extended::parse(text).map(Extended::to_f64).filter(|value| value.is_finite());
    }
    let starts_as_number =
        digits.first().is_some_and(|byte| byte.is_ascii_digit() || *byte == b'.');
    if !is_infinite && !starts_as_number {
        return None;
    }
    let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    let mantissa = digits.split(|byte| matches!(byte, b'e' | b'E')).next().unwrap_or_default();
    let is_zero = !mantissa.iter().any(|byte| matches!(byte, b'1'..=b'9'));
    let fits = if is_zero { value == 0.0 } else { value.is_normal() };
    (fits || is_infinite).then_some(value)
}

/// What the elements are to be ordered by.
fn weights(
    cx: &Context<'_>,
    by: Option<Pattern<'_>>,
    is_alpha: bool,
    elements: &Texts,
) -> Result<Weights, Error> {
    let not_numbers = || Error::new("ERR One or more scores can't be converted into double");
    let all = 0..elements.len();
    match (by, is_alpha) {
        (None, true) => Ok(Weights::Own),
        (None, false) => {
            let number = |index| number(elements.get(index)).ok_or_else(not_numbers);
            Ok(Weights::Numbers(all.map(number).collect::<Result<_, Error>>()?))
        }
        (Some(by), false) => {
            let mut numbers = Vec::with_capacity(elements.len());
            // Redis answers so when all are read.
            let mut failed = false;
            for index in all {
                let weight = look_up(cx, by, elements.get(index), |looked| {
                    Ok(match looked {
                        None => Some(0.0),
                        Some(Looked::Element(text)) => number(text),
                        Some(Looked::String(Str::Int(value))) => Some(value as f64),
                        Some(Looked::String(string)) => number(&string.to_bytes()?),
                        Some(Looked::Field(item)) => number(&item.bytes()),
                    })
                })?;
                failed |= weight.is_none();
                numbers.push(weight.unwrap_or_default());
            }
            if failed { Err(not_numbers()) } else { Ok(Weights::Numbers(numbers)) }
        }
        (Some(by), true) => {
            let (mut texts, mut there) = (Texts::default(), Vec::new());
            for index in all {
                look_up(cx, by, elements.get(index), |looked| {
                    there.push(looked.is_some());
                    match looked {
                        None => texts.push([]),
                        Some(Looked::Element(text)) => texts.push([text]),
                        Some(Looked::String(Str::Chain(chain))) => {
                            texts.push(chain.parts().iter().map(|part| &part[..]));
                        }
                        Some(Looked::String(string)) => texts.push([&string.to_bytes()?[..]]),
                        Some(Looked::Field(item)) => texts.push_item(&item),
                    }
                    Ok(())
                })?;
            }
            Ok(Weights::Texts(texts, there))
        }
    }
}

/// The places of the elements of the window, in order. Among those of the same weight,
/// texts stay as they were, and numbers go by the elements' own texts.
fn ordered(elements: &Texts, weights: &Weights, plan: &Plan<'_>) -> Vec<usize> {
    // Texts are compared up to a NUL unless they are to be stored.
    let cut = |text: &'_ [u8]| -> usize {
        let nul = || text.iter().position(|&byte| byte == 0);
        if plan.store.is_some() { text.len() } else { nul().unwrap_or(text.len()) }
    };
    let compare_texts = |a: &[u8], b: &[u8]| a[..cut(a)].cmp(&b[..cut(b)]);
    let compare = |&a: &usize, &b: &usize| {
        let order = match weights {
            Weights::Numbers(numbers) => {
                let order = numbers[a].partial_cmp(&numbers[b]).unwrap_or(Ordering::Equal);
                order.then_with(|| elements.get(a).cmp(elements.get(b)))
            }
            Weights::Own => compare_texts(elements.get(a), elements.get(b)),
            Weights::Texts(texts, there) => {
                there[a].cmp(&there[b]).then_with(|| compare_texts(texts.get(a), texts.get(b)))
            }
        };
        let order = if plan.is_back { order.reverse() } else { order };
        order.then(a.cmp(&b))
    };
    let window = plan.window(elements.len());
    let mut places: Vec<usize> = (0..elements.len()).collect();
    if window.is_empty() {
        return Vec::new();
    }
    if window.end < places.len() {
        places.select_nth_unstable_by(window.end - 1, compare);
        places.truncate(window.end);
    }
    if window.start > 0 {
        places.select_nth_unstable_by(window.start, compare);
        places.drain(..window.start);
    }
    places.sort_unstable_by(compare);
    places
}

fn sort(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    sorted(cx, args, true, out)
}

fn sort_ro(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    sorted(cx, args, false, out)
}

fn sorted(cx: &mut Context<'_>, args: Args<'_>, may_store: bool, out: &mut Out) -> Answer {
    let plan = Plan::read(cx, args, may_store)?;
    let source = cx.key(args.bytes(1));
    let target = plan.store.map(|name| cx.key(name));
    let alone = plan.looks_up().then(|| cx.store.exclusive());
    let _held = alone.is_none().then(|| cx.hold(target.into_iter().chain([source])));
    let (mut by, mut is_alpha) = (plan.by, plan.is_alpha);
    let (elements, is_window) = {
        let mut slot = cx.lock(&source);
        match read(cx, &mut slot, &source) {
            Some(found) => {
                // A set has no order of its own that could be stored.
                let is_stored = by == Some(Pattern::Nothing) && target.is_some();
                if is_stored && !has_order(slot.type_of(found)) {
                    (by, is_alpha) = (None, true);
                }
                if slot.type_of(found) == Type::SortedSet {
                    slot.note_skiplist(&source, found)?;
                }
                elements(cx, &slot, found, &plan, by != Some(Pattern::Nothing))?
            }
            None => (Texts::default(), true),
        }
    };
    let places = if by == Some(Pattern::Nothing) {
        if is_window {
            (0..elements.len()).collect()
        } else {
            plan.window(elements.len()).collect()
        }
    } else {
        let weights = weights(cx, by, is_alpha, &elements)?;
        ordered(&elements, &weights, &plan)
    };
    match target {
        Some(target) => {
            let items = chosen(cx, &plan, &elements, &places)?;
            let mut slot = cx.lock(&target);
            let found = cx.find_replaced(&mut slot, &target);
            if items.is_empty() {
                slot.apply(&target, found, Delete, Event::DEL);
            } else {
                slot.apply(&target, found, Delete, Event::NONE);
                let items = items.iter().map(Chosen::value);
                slot.apply(&target, None, Push { end: End::Right, items }, SORT_STORE)?;
            }
            out.w().integer((places.len() * plan.get.len().max(1)) as i64);
        }
        None => reply(cx, &plan, &elements, &places, out)?,
    }
    Ok(())
}

/// Answers with the elements at these places, or with what is to be got for each.
fn reply(
    cx: &Context<'_>,
    plan: &Plan<'_>,
    elements: &Texts,
    places: &[usize],
    out: &mut Out,
) -> Result<(), Error> {
    out.w().array(places.len() * plan.get.len().max(1));
    for &place in places {
        let element = elements.get(place);
        if plan.get.is_empty() {
            out.w().bulk(element);
        }
        for &pattern in &plan.get {
            look_up(cx, pattern, element, |looked| {
                match looked {
                    None => out.w().null(),
                    Some(Looked::Element(bytes)) => out.w().bulk(bytes),
                    Some(Looked::String(string)) => out.string(string)?,
                    Some(Looked::Field(item)) => out.item(&item),
                }
                Ok(())
            })?;
        }
    }
    Ok(())
}

/// What is to be stored.
#[derive(Debug)]
enum Chosen<'a> {
    Element(&'a [u8]),
    Bytes(Vec<u8>),
    Chain(Segments),
}

impl Chosen<'_> {
    fn value(&self) -> NewStr<'_> {
        match self {
            Self::Element(bytes) => NewStr::Bytes(bytes),
            Self::Bytes(bytes) => NewStr::Bytes(bytes),
            Self::Chain(chain) => NewStr::Chain(chain.clone()),
        }
    }
}

/// The same to be stored, where nothing is the empty string.
fn chosen<'a>(
    cx: &Context<'_>,
    plan: &Plan<'_>,
    elements: &'a Texts,
    places: &[usize],
) -> Result<Vec<Chosen<'a>>, Error> {
    let mut items = Vec::with_capacity(places.len() * plan.get.len().max(1));
    for &place in places {
        let element = elements.get(place);
        if plan.get.is_empty() {
            items.push(Chosen::Element(element));
        }
        for &pattern in &plan.get {
            let item = look_up(cx, pattern, element, |looked| {
                Ok(match looked {
                    None => Chosen::Element(b""),
                    Some(Looked::Element(_)) => Chosen::Element(element),
                    Some(Looked::String(Str::Chain(chain))) => Chosen::Chain(chain.clone()),
                    Some(Looked::String(Str::PackedLarge(packed))) => {
                        Chosen::Chain(packed.unpack()?)
                    }
                    Some(Looked::String(string)) => Chosen::Bytes(string.to_bytes()?.into_owned()),
                    Some(Looked::Field(Item::Large(chain))) => Chosen::Chain(chain.clone()),
                    Some(Looked::Field(item)) => Chosen::Bytes(item.bytes().into_owned()),
                })
            })?;
            items.push(item);
        }
    }
    Ok(items)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_cut_at_their_star_and_their_arrow() {
        let key = |before: &'static str, behind: &'static str, field: Option<&'static str>| {
            let field = field.map(str::as_bytes);
            Pattern::Key { before: before.as_bytes(), behind: behind.as_bytes(), field }
        };
        for (pattern, wanted) in [
            ("#", Pattern::Element),
            ("##", Pattern::Nothing),
            ("", Pattern::Nothing),
            ("h->f", Pattern::Nothing),
            ("w*", key("w", "", None)),
            ("*", key("", "", None)),
            ("a*b*", key("a", "b*", None)),
            ("h*->f", key("h", "", Some("f"))),
            ("h*x->f->g", key("h", "x", Some("f->g"))),
            ("h*->", key("h", "->", None)),
            ("->*", key("->", "", None)),
        ] {
            assert_eq!(Pattern::of(pattern.as_bytes()), wanted, "{pattern}");
        }
    }

    #[test]
    fn numbers_are_those_of_strtod() {
        for (text, value) in [
            ("", 0.0),
            (" 2", 2.0),
            ("\t\n-1.5", -1.5),
            ("+.5", 0.5),
            ("1.", 1.0),
            ("1e2", 100.0),
            ("0x10", 16.0),
            ("-0x1p-1", -0.5),
            ("inf", f64::INFINITY),
            ("-Infinity", f64::NEG_INFINITY),
            ("1\0x", 1.0),
            ("\0", 0.0),
            ("0e999", 0.0),
        ] {
            assert_eq!(number(text.as_bytes()).map(f64::to_bits), Some(value.to_bits()), "{text}");
        }
        for text in
            [" ", "2 ", "nan", "1e400", "1e-400", "-", ".", "1e", "0xg", "infi", "e5", "--1"]
        {
            assert_eq!(number(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn a_window_stays_within() {
        let window = |limit, len| {
            let plan = Plan {
                by: None,
                get: Vec::new(),
                limit,
                is_back: false,
                is_alpha: false,
                store: None,
            };
            plan.window(len)
        };
        assert_eq!(window((0, -1), 5), 0..5);
        assert_eq!(window((-3, 2), 5), 0..2);
        assert_eq!(window((4, i64::MAX), 5), 4..5);
        assert!(window((9, 2), 5).is_empty() && window((0, 0), 5).is_empty());
        assert!(window((i64::MIN, i64::MIN), 0).is_empty());
    }
}
