//! The encodings of values: one function for each, in a table by RDB's numbers.

use super::{Input, Length, Problem, Text, module_name, not_taken};
use crate::numbers::{entry, kind, node};
use crate::packs::{self, Bad, Packed};
use snug_store::elements::{
    ConsumerOutline, Elements, EntryFields, GroupOutline, Outline, StreamFacts, StreamOutline,
};
use snug_store::types::stream::StreamId;
use snug_store::types::string::NewStr;
use std::collections::HashMap;
use std::io::{self, Read};

/// Raw strings of more bytes are given on as they come.
const WHOLE_MAX: u64 = 64 * 1024;

/// When fields of a hash expire, if that was told before it.
type Times = HashMap<Vec<u8>, u64>;

fn bad<T>(what: impl Into<String>) -> Result<T, Problem> {
    Err(Problem::Malformed(what.into()))
}

/// Reads a value of this kind.
pub(super) fn read<R: Read>(
    input: &mut Input<R>,
    number: u8,
    times: Times,
    out: &mut dyn Elements,
) -> Result<(), Problem> {
    let mut values = Values { input, out, times };
    match number {
        kind::STRING => values.string(),
        kind::LIST => values.list(),
        kind::LIST_ZIPLIST => values.list_ziplist(),
        kind::LIST_QUICKLIST => values.quicklist(false),
        kind::LIST_QUICKLIST_2 => values.quicklist(true),
        kind::SET => values.set(),
        kind::SET_INTSET => values.set_intset(),
        kind::SET_LISTPACK => values.set_listpack(),
        kind::HASH => values.hash(),
        kind::HASH_ZIPMAP => values.hash_zipmap(),
        kind::HASH_ZIPLIST => values.hash_pack(packs::ziplist),
        kind::HASH_LISTPACK => values.hash_pack(packs::listpack),
        kind::HASH_TIMES => values.hash_times(),
        kind::HASH_TIMES_LISTPACK => values.hash_times_listpack(),
        kind::ZSET => values.sorted_set(Values::score_text),
        kind::ZSET_2 => values.sorted_set(Values::score_double),
        kind::ZSET_ZIPLIST => values.sorted_set_pack(packs::ziplist),
        kind::ZSET_LISTPACK => values.sorted_set_pack(packs::listpack),
        kind::STREAM => values.stream(1),
        kind::STREAM_2 => values.stream(2),
        kind::STREAM_3 => values.stream(3),
        kind::MODULE | kind::MODULE_2 => {
            let id = values.input.len()?;
            Err(Problem::Module(module_name(id)))
        }
        number => Err(Problem::Type(number)),
    }?;
    values.out.end().map_err(not_taken)
}

/// A reader of the elements that lie in one string.
type Pack = fn(&[u8]) -> Result<packs::Elements<'_>, Bad>;

struct Values<'v, R> {
    input: &'v mut Input<R>,
    out: &'v mut dyn Elements,
    times: Times,
}

fn outline(len: u64) -> Outline {
    Outline { len, ..Outline::default() }
}

impl<R: Read> Values<'_, R> {
    fn string(&mut self) -> Result<(), Problem> {
        let length = self.input.length()?;
        if let Length::Of(len @ WHOLE_MAX..) = length {
            let Self { input, out, .. } = self;
            out.string(len).map_err(not_taken)?;
            return input.each(len, |some| out.part(some).map_err(not_taken));
        }
        match self.input.text_of(length)? {
            Text::Int(value) => self.out.integer(value),
            Text::Bytes(bytes) => {
                self.out.string(bytes.len() as u64).and_then(|()| self.out.part(&bytes))
            }
        }
        .map_err(not_taken)
    }

    fn item(&mut self, item: &NewStr<'_>) -> Result<(), Problem> {
        self.out.item(item).map_err(not_taken)
    }

    fn list(&mut self) -> Result<(), Problem> {
        let len = self.input.len()?;
        self.out.list(&outline(len)).map_err(not_taken)?;
        for _ in 0..len {
            let item = self.input.text()?;
            self.item(&item.value())?;
        }
        Ok(())
    }

    fn items_of(&mut self, bytes: &[u8], pack: Pack) -> Result<(), Problem> {
        for item in pack(bytes)? {
            self.item(&item?.value())?;
        }
        Ok(())
    }

    fn list_ziplist(&mut self) -> Result<(), Problem> {
        let bytes = self.input.string()?;
        self.out.list(&Outline::default()).map_err(not_taken)?;
        self.items_of(&bytes, packs::ziplist)
    }

    /// Nodes of ziplists; in its second version of listpacks or single items.
    fn quicklist(&mut self, is_second: bool) -> Result<(), Problem> {
        let nodes = self.input.len()?;
        self.out.list(&Outline { runs: Some(nodes), ..outline(0) }).map_err(not_taken)?;
        for _ in 0..nodes {
            let container = if is_second { self.input.len()? } else { node::PACKED };
            let bytes = self.input.string()?;
            self.out.run().map_err(not_taken)?;
            match container {
                node::PLAIN => self.item(&NewStr::Bytes(&bytes))?,
                node::PACKED if is_second => self.items_of(&bytes, packs::listpack)?,
                node::PACKED => self.items_of(&bytes, packs::ziplist)?,
                container => return bad(format!("a node of a list has container {container}")),
            }
        }
        Ok(())
    }

    fn set(&mut self) -> Result<(), Problem> {
        let len = self.input.len()?;
        self.out.set(&outline(len)).map_err(not_taken)?;
        for _ in 0..len {
            let member = self.input.text()?;
            self.item(&member.value())?;
        }
        Ok(())
    }

    fn set_intset(&mut self) -> Result<(), Problem> {
        let bytes = self.input.string()?;
        let ints = packs::intset(&bytes)?;
        self.out.set(&outline(ints.len() as u64)).map_err(not_taken)?;
        for value in ints {
            self.item(&NewStr::Int(value))?;
        }
        Ok(())
    }

    fn set_listpack(&mut self) -> Result<(), Problem> {
        let bytes = self.input.string()?;
        self.out.set(&Outline::default()).map_err(not_taken)?;
        self.items_of(&bytes, packs::listpack)
    }

    /// A field, with the time that was told of it before the hash.
    fn field(
        &mut self,
        field: &NewStr<'_>,
        value: &NewStr<'_>,
        expires: Option<u64>,
    ) -> Result<(), Problem> {
        let mut expires = expires;
        if !self.times.is_empty() {
            expires = match field {
                NewStr::Bytes(bytes) => self.times.remove(*bytes),
                NewStr::Int(value) => self.times.remove(value.to_string().as_bytes()),
                _ => None,
            };
        }
        self.out.field(field, value, expires).map_err(not_taken)
    }

    fn hash(&mut self) -> Result<(), Problem> {
        let len = self.input.len()?;
        self.out.hash(&outline(len)).map_err(not_taken)?;
        for _ in 0..len {
            let (field, value) = (self.input.text()?, self.input.text()?);
            self.field(&field.value(), &value.value(), None)?;
        }
        Ok(())
    }

    fn hash_zipmap(&mut self) -> Result<(), Problem> {
        let bytes = self.input.string()?;
        self.out.hash(&Outline::default()).map_err(not_taken)?;
        for (field, value) in packs::zipmap(&bytes)? {
            self.field(&NewStr::Bytes(field), &NewStr::Bytes(value), None)?;
        }
        Ok(())
    }

    fn hash_pack(&mut self, pack: Pack) -> Result<(), Problem> {
        let bytes = self.input.string()?;
        self.out.hash(&Outline::default()).map_err(not_taken)?;
        let mut elements = pack(&bytes)?;
        while let Some(field) = elements.next() {
            let value = elements.must()?;
            self.field(&field?.value(), &value.value(), None)?;
        }
        Ok(())
    }

    /// The time of the first field, then of each field how much later, and 1 more.
    fn hash_times(&mut self) -> Result<(), Problem> {
        let first = self.input.u64()?;
        let len = self.input.len()?;
        let expires = Some(first);
        self.out.hash(&Outline { expires, ..outline(len) }).map_err(not_taken)?;
        for _ in 0..len {
            let at = match self.input.len()? {
                0 => None,
                later => Some(time(first.checked_add(later - 1))?),
            };
            let (field, value) = (self.input.text()?, self.input.text()?);
            self.field(&field.value(), &value.value(), at)?;
        }
        Ok(())
    }

    fn hash_times_listpack(&mut self) -> Result<(), Problem> {
        let first = self.input.u64()?;
        let bytes = self.input.string()?;
        let expires = Some(first);
        self.out.hash(&Outline { expires, ..outline(0) }).map_err(not_taken)?;
        let mut elements = packs::listpack(&bytes)?;
        while let Some(field) = elements.next() {
            let (value, at) = (elements.must()?, elements.must_int()?);
            let at = match at {
                0 => None,
                at => Some(time(u64::try_from(at).ok())?),
            };
            self.field(&field?.value(), &value.value(), at)?;
        }
        Ok(())
    }

    fn score_text(&mut self) -> Result<f64, Problem> {
        let text = match self.input.byte()? {
            253 => return bad("a score is not a number"),
            254 => return Ok(f64::INFINITY),
            255 => return Ok(f64::NEG_INFINITY),
            len => self.input.vec(u64::from(len))?,
        };
        packs::score(&text).ok_or_else(|| Problem::Malformed("a score is not a number".into()))
    }

    fn score_double(&mut self) -> Result<f64, Problem> {
        Ok(f64::from_le_bytes(self.input.bytes()?))
    }

    fn sorted_set(&mut self, score: fn(&mut Self) -> Result<f64, Problem>) -> Result<(), Problem> {
        let len = self.input.len()?;
        self.out.sorted_set(&outline(len)).map_err(not_taken)?;
        for _ in 0..len {
            let member = self.input.text()?;
            let score = score(self)?;
            self.out.member(score, &member.value()).map_err(not_taken)?;
        }
        Ok(())
    }

    fn sorted_set_pack(&mut self, pack: Pack) -> Result<(), Problem> {
        let bytes = self.input.string()?;
        self.out.sorted_set(&Outline::default()).map_err(not_taken)?;
        let mut elements = pack(&bytes)?;
        while let Some(member) = elements.next() {
            let score = elements.must()?.score();
            let score = score.ok_or(Bad("a score is not a number"))?;
            self.out.member(score, &member?.value()).map_err(not_taken)?;
        }
        Ok(())
    }

    fn id(&mut self) -> Result<StreamId, Problem> {
        Ok(StreamId::new(self.input.len()?, self.input.len()?))
    }

    /// An ID in 16 bytes, the highest first.
    fn raw_id(&mut self) -> Result<StreamId, Problem> {
        let (ms, seq) = (self.input.bytes()?, self.input.bytes()?);
        Ok(StreamId::new(u64::from_be_bytes(ms), u64::from_be_bytes(seq)))
    }

    fn stream(&mut self, version: u8) -> Result<(), Problem> {
        let nodes = self.input.len()?;
        self.out.stream(&StreamOutline::default()).map_err(not_taken)?;
        let mut first_id = None;
        for _ in 0..nodes {
            let Ok(id) = <[u8; 16]>::try_from(self.input.string()?) else {
                return bad("the ID of a node of a stream is not 16 bytes");
            };
            let id = u128::from_be_bytes(id);
            let master = StreamId::new((id >> 64) as u64, id as u64);
            let bytes = self.input.string()?;
            let first = stream_node(master, &bytes, self.out)?;
            first_id = first_id.or(first);
        }
        let (len, last_id) = (self.input.len()?, self.id()?);
        let mut facts = StreamFacts {
            len: Some(len),
            last_id,
            first_id: first_id.unwrap_or_default(),
            ..StreamFacts::default()
        };
        if version >= 2 {
            // Which is the first entry is plain.
            self.id()?;
            facts.max_deleted_id = self.id()?;
            facts.entries_added = Some(self.input.len()?);
        }
        facts.groups = self.input.len()?;
        self.out.facts(&facts).map_err(not_taken)?;
        for _ in 0..facts.groups {
            self.group(version, &facts)?;
        }
        Ok(())
    }

    fn group(&mut self, version: u8, stream: &StreamFacts) -> Result<(), Problem> {
        let (name, last_id) = (self.input.string()?, self.id()?);
        let read = match version {
            0 | 1 => read_before_counting(stream, last_id),
            _ => Some(self.input.len()?),
        };
        let entries_read = read.filter(|&read| i64::try_from(read).is_ok());
        let pending = self.input.len()?;
        // How many consumers there are is told behind what is pending.
        let group = GroupOutline { name: &name, last_id, entries_read, pending, consumers: 0 };
        self.out.group(&group).map_err(not_taken)?;
        for _ in 0..pending {
            let id = self.raw_id()?;
            let (delivered, count) = (self.input.u64()?, self.input.len()?);
            self.out.pending(id, delivered, count).map_err(not_taken)?;
        }
        for _ in 0..self.input.len()? {
            let name = self.input.string()?;
            let seen = self.input.u64()?;
            // Before it was told, it was when the consumer was seen.
            let active = if version >= 3 { self.input.u64()? } else { seen };
            let active = Some(active).filter(|&at| i64::try_from(at).is_ok());
            let pending = self.input.len()?;
            let consumer = ConsumerOutline { name: &name, seen, active, pending };
            self.out.consumer(&consumer).map_err(not_taken)?;
            for _ in 0..pending {
                let id = self.raw_id()?;
                self.out.owned(id).map_err(not_taken)?;
            }
        }
        Ok(())
    }
}

/// How many entries a group has read of a stream whose entries were not counted, before
/// Redis 7, as far as that can be told: those that are there count as all there were.
fn read_before_counting(stream: &StreamFacts, last_read: StreamId) -> Option<u64> {
    match stream.len? {
        0 => Some(0),
        all if last_read == stream.last_id => Some(all),
        _ if last_read < stream.first_id => Some(0),
        _ if last_read == stream.first_id => Some(1),
        _ => None,
    }
}

fn time(at: Option<u64>) -> Result<u64, Problem> {
    match at.filter(|&at| i64::try_from(at).is_ok()) {
        Some(at) => Ok(at),
        None => bad("the time of a field is out of range"),
    }
}

/// Gives on the entries of a node of a stream:
///
/// ```text
///  entries | deleted ones | names | name ... | 0
///  flags | ms - master's | seq - master's |   value ... | elements so far
///                            | fields | name | value ... | elements so far
/// ```
///
/// The ID of the first is given back.
fn stream_node(
    master: StreamId,
    bytes: &[u8],
    out: &mut dyn Elements,
) -> Result<Option<StreamId>, Problem> {
    const DAMAGED: Bad = Bad("a node of a stream is damaged");
    // The lists of names and fields refer to integers' digits, which lie here.
    let mut elements = packs::listpack(bytes)?;
    let (live, deleted) = (elements.must_int()?, elements.must_int()?);
    let names = fields_of(&mut elements, 1)?;
    elements.must_int()?;
    let (mut first, mut given, mut dropped) = (None, 0, 0);
    while let Some(flags) = elements.next() {
        let flags = flags?.int().ok_or(DAMAGED)?;
        let ms = master.ms.wrapping_add(elements.must_int()? as u64);
        let seq = master.seq.wrapping_add(elements.must_int()? as u64);
        let id = StreamId::new(ms, seq);
        let is_same = flags & entry::SAME_FIELDS != 0;
        let parts: Vec<Packed<'_>> = match is_same {
            true => {
                let mut parts = Vec::with_capacity(2 * names.len());
                for name in &names {
                    parts.extend([*name, elements.must()?]);
                }
                parts
            }
            false => fields_of(&mut elements, 2)?,
        };
        let count = elements.must_int()?;
        let expected = parts.len() + 3 + usize::from(!is_same);
        let expected = if is_same { names.len() + 3 } else { expected };
        if count != expected as i64 {
            return Err(DAMAGED.into());
        }
        if flags & entry::DELETED != 0 {
            dropped += 1;
            continue;
        }
        given += 1;
        first.get_or_insert(id);
        give_entry(id, &parts, out)?;
    }
    if (given, dropped) != (live, deleted) {
        return Err(DAMAGED.into());
    }
    Ok(first)
}

/// As many elements as are announced, times `each`.
fn fields_of<'p>(
    elements: &mut packs::Elements<'p>,
    each: usize,
) -> Result<Vec<Packed<'p>>, Problem> {
    let count = elements.must_int()?;
    let Ok(count) = usize::try_from(count) else {
        return bad("an entry of a stream has less than no fields");
    };
    let mut fields = Vec::new();
    for _ in 0..count.saturating_mul(each) {
        fields.push(elements.must()?);
    }
    Ok(fields)
}

fn give_entry(id: StreamId, parts: &[Packed<'_>], out: &mut dyn Elements) -> Result<(), Problem> {
    let digits: Vec<String> = parts
        .iter()
        .filter_map(|part| match part {
            Packed::Int(value) => Some(value.to_string()),
            Packed::Bytes(_) => None,
        })
        .collect();
    let mut digits = digits.iter();
    let mut bytes = parts.iter().map(|part| match part {
        Packed::Bytes(bytes) => bytes,
        Packed::Int(_) => digits.next().map(String::as_bytes).unwrap_or_default(),
    });
    let mut fields: Vec<(&[u8], &[u8])> = Vec::with_capacity(parts.len() / 2);
    while let (Some(name), Some(value)) = (bytes.next(), bytes.next()) {
        fields.push((name, value));
    }
    let fields: &EntryFields<'_> = &fields;
    out.entry(id, fields).map_err(not_taken)
}

/// Takes in any value, and forgets it.
pub(super) struct Ignored;

impl Elements for Ignored {
    fn string(&mut self, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn part(&mut self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn integer(&mut self, _: i64) -> io::Result<()> {
        Ok(())
    }

    fn list(&mut self, _: &Outline) -> io::Result<()> {
        Ok(())
    }

    fn set(&mut self, _: &Outline) -> io::Result<()> {
        Ok(())
    }

    fn hash(&mut self, _: &Outline) -> io::Result<()> {
        Ok(())
    }

    fn sorted_set(&mut self, _: &Outline) -> io::Result<()> {
        Ok(())
    }

    fn stream(&mut self, _: &StreamOutline) -> io::Result<()> {
        Ok(())
    }

    fn item(&mut self, _: &NewStr<'_>) -> io::Result<()> {
        Ok(())
    }

    fn field(&mut self, _: &NewStr<'_>, _: &NewStr<'_>, _: Option<u64>) -> io::Result<()> {
        Ok(())
    }

    fn member(&mut self, _: f64, _: &NewStr<'_>) -> io::Result<()> {
        Ok(())
    }

    fn entry(&mut self, _: StreamId, _: &EntryFields<'_>) -> io::Result<()> {
        Ok(())
    }

    fn facts(&mut self, _: &StreamFacts) -> io::Result<()> {
        Ok(())
    }

    fn group(&mut self, _: &GroupOutline<'_>) -> io::Result<()> {
        Ok(())
    }

    fn pending(&mut self, _: StreamId, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn consumer(&mut self, _: &ConsumerOutline<'_>) -> io::Result<()> {
        Ok(())
    }

    fn owned(&mut self, _: StreamId) -> io::Result<()> {
        Ok(())
    }

    fn end(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_group_has_read_is_told_at_the_ends_of_a_stream() {
        let id = |ms| StreamId::new(ms, 0);
        let stream =
            StreamFacts { len: Some(3), first_id: id(5), last_id: id(9), ..StreamFacts::default() };
        let read = |ms| read_before_counting(&stream, id(ms));
        assert_eq!([0, 4, 5, 7, 9, 10].map(read), [Some(0), Some(0), Some(1), None, Some(3), None]);
        let empty = StreamFacts { len: Some(0), last_id: id(9), ..StreamFacts::default() };
        assert_eq!(read_before_counting(&empty, id(3)), Some(0));
    }
}
