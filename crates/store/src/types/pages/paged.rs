//! A large collection: a tree of pages, and beside it the strings that are too large
//! for a page.

use super::Order;
use super::element::{self, EXPIRY_LEN, Element, Large};
use super::page::Page;
use super::pieces::Cooled;
use super::room::Room;
use super::run::Run;
use super::tree::Tree;
use crate::cell::entry::ACCESS_MAX;
use crate::image::{Pen, Source};
use crate::memory::usable;
use crate::pack::form::Damaged;
use crate::pack::piece::PieceJob;
use crate::packing::PackedStr;
use crate::slot::WRITTEN;
use crate::store::Session;
use crate::types::Reader;
use crate::types::forms::{Asked, Form, Installed, Measure, Met, Packing, Value, Wish};
use crate::types::string::NewStr;
use snug_codec::{Dictionary, Segments};
use std::borrow::Cow;
use std::io;
use std::sync::Arc;

/// Strings of more bytes lie beside the pages.
pub(crate) const LARGE_MIN: usize = 8 * 1024;

/// Strings that are too large for a page, by number.
#[derive(Clone, Debug, Default)]
pub(crate) struct LargeStrings {
    strings: Vec<Option<Segments>>,
    free: Vec<u32>,
    allocated: usize,
    raw: usize,
}

impl LargeStrings {
    pub(crate) fn add(&mut self, string: Segments) -> Large {
        let (len, hash) = (string.len() as u64, hash(&string));
        self.allocated += string.allocated(usable);
        self.raw += string.len();
        let number = self.free.pop().unwrap_or(self.strings.len() as u32);
        match self.strings.get_mut(number as usize) {
            Some(place) => *place = Some(string),
            None => self.strings.push(Some(string)),
        }
        Large { number, len, hash }
    }

    pub(crate) fn get(&self, large: Large) -> Option<&Segments> {
        self.strings.get(large.number as usize)?.as_ref()
    }

    /// Lets go of the large strings among these elements.
    pub(crate) fn remove_of(&mut self, mut record: &[u8]) {
        if self.raw == 0 {
            return;
        }
        if record.first() == Some(&element::EXPIRES) {
            record = &record[EXPIRY_LEN.min(record.len())..];
        }
        while !record.is_empty() {
            let (element, len) = element::read(record);
            if let Element::Large(large) = element
                && let Some(string) =
                    self.strings.get_mut(large.number as usize).and_then(Option::take)
            {
                self.allocated -= string.allocated(usable);
                self.raw -= string.len();
                self.free.push(large.number);
            }
            record = &record[len.min(record.len())..];
        }
    }

    /// Writes how many places there are, and what is in each.
    pub(crate) fn store(&self, pen: &mut dyn Pen) -> io::Result<()> {
        pen.number(self.strings.len() as u64)?;
        for string in &self.strings {
            let Some(string) = string else {
                pen.number(0)?;
                continue;
            };
            pen.number(1 + string.len() as u64)?;
            string.parts().iter().try_for_each(|part| pen.put(part))?;
        }
        Ok(())
    }

    /// Reads what [`store`](Self::store) wrote.
    pub(crate) fn fetch(source: &mut dyn Source) -> io::Result<Self> {
        let mut all = Self::default();
        for number in 0..source.small()? {
            let Some(len) = source.number()?.checked_sub(1) else {
                all.strings.push(None);
                all.free.push(number);
                continue;
            };
            let mut string = Segments::default();
            source.each(len, &mut |some| string.append(some))?;
            all.allocated += string.allocated(usable);
            all.raw += string.len();
            all.strings.push(Some(string));
        }
        Ok(all)
    }

    #[inline]
    pub(crate) fn measure(&self) -> (usize, usize) {
        if self.strings.capacity() == 0 {
            return (0, 0);
        }
        let list = |bytes: usize| if bytes == 0 { 0 } else { usable(bytes) };
        let lists = list(self.strings.capacity() * size_of::<Option<Segments>>())
            + list(self.free.capacity() * 4);
        (self.allocated + lists, self.raw)
    }
}

/// Chains of the same bytes are cut alike, so that their hashes are the same.
pub(crate) fn hash(string: &Segments) -> u64 {
    string.parts().iter().fold(0, |hash: u64, part| hash.rotate_left(5) ^ element::hash(part))
}

/// Adds a string as an element, unless it is too large for a page: then it is given back.
#[inline]
pub(crate) fn put(out: &mut impl element::Buffer, string: &NewStr<'_>) -> Option<Segments> {
    match string {
        NewStr::Bytes(bytes) | NewStr::Text(bytes) | NewStr::Changed(bytes) => {
            if bytes.len() > LARGE_MIN {
                return Some(Segments::from(*bytes));
            }
            element::write(out, bytes);
        }
        NewStr::Int(value) => element::write_int(out, *value),
        NewStr::Chain(chain) if chain.len() > LARGE_MIN => return Some(chain.clone()),
        NewStr::Chain(chain) => element::write(out, &chain.to_vec()),
    }
    None
}

/// A string that is looked for, or on its way in.
#[derive(Clone, Debug)]
pub(crate) enum Needle {
    /// As an element.
    Short(Room<64>),
    /// Too large for a page.
    Large(Segments, u64),
}

impl Needle {
    pub(crate) fn new(string: &NewStr<'_>) -> Self {
        let mut element = Room::new();
        match put(&mut element, string) {
            Some(large) => Self::large(large),
            None => Self::Short(element),
        }
    }

    /// What is looked for is this element.
    #[inline]
    pub(crate) fn short(element: &[u8]) -> Self {
        Self::Short(Room::of(element))
    }

    /// What is looked for is the element at the front of a record elsewhere.
    pub(crate) fn of_record(record: &[u8], strings: Option<&LargeStrings>) -> Self {
        let (element, len) = element::read(record);
        match element {
            Element::Large(large) => {
                let string = strings.and_then(|strings| strings.get(large)).cloned();
                Self::Large(string.unwrap_or_default(), large.hash)
            }
            _ => Self::Short(Room::of(&record[..len.min(record.len())])),
        }
    }

    pub(crate) fn large(string: Segments) -> Self {
        let hash = hash(&string);
        Self::Large(string, hash)
    }

    pub(crate) fn is_large(&self) -> bool {
        matches!(self, Self::Large(..))
    }

    /// Bytes that it takes in a record.
    pub(crate) fn element_len(&self) -> usize {
        match self {
            Self::Short(element) => element.len(),
            Self::Large(..) => element::LARGE_LEN,
        }
    }

    /// What it is ordered by among members and fields.
    #[inline]
    pub(crate) fn key(&self) -> u64 {
        match self {
            Self::Short(element) => element::key(element),
            Self::Large(_, hash) => element::key_of_large(*hash),
        }
    }

    /// Whether the element at the front of `record` is the same string.
    #[inline]
    pub(crate) fn is(&self, record: &[u8], strings: Option<&LargeStrings>) -> bool {
        match self {
            Self::Short(element) => record.starts_with(element),
            Self::Large(string, hash) => match element::read(record).0 {
                Element::Large(large) => {
                    large.hash == *hash
                        && strings.and_then(|strings| strings.get(large)) == Some(string)
                }
                _ => false,
            },
        }
    }

    /// Adds it to a record; a large one goes to the others.
    pub(crate) fn write(&self, record: &mut Vec<u8>, strings: Option<&mut LargeStrings>) {
        match (self, strings) {
            (Self::Short(element), _) => record.extend_from_slice(element),
            (Self::Large(string, _), Some(strings)) => {
                element::write_large(record, strings.add(string.clone()));
            }
            (Self::Large(string, _), None) => {
                debug_assert!(false, "a large string in a small collection");
                element::write(record, &string.to_vec());
            }
        }
    }
}

/// An item of a collection as a client is to see it.
#[derive(Clone, Debug)]
pub enum Item<'a> {
    /// Its bytes.
    Bytes(element::Shown<'a>),
    /// A large string, by reference.
    Large(&'a Segments),
}

impl Item<'_> {
    /// Its length in bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Large(string) => string.len(),
        }
    }

    /// Whether it is the empty string.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its bytes in one piece.
    pub fn bytes(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Bytes(bytes) => Cow::Borrowed(bytes),
            Self::Large(string) => Cow::Owned(string.to_vec()),
        }
    }

    /// The same as a value to be stored elsewhere.
    pub fn value(&self) -> NewStr<'_> {
        match self {
            Self::Bytes(bytes) => NewStr::Bytes(bytes),
            Self::Large(string) => NewStr::Chain((*string).clone()),
        }
    }
}

/// The element at the front of a record as a client is to see it; also what follows.
#[inline]
pub(crate) fn item<'a>(
    record: &'a [u8],
    strings: Option<&'a LargeStrings>,
) -> (Item<'a>, &'a [u8]) {
    let (element, len) = element::read(record);
    let rest = &record[len.min(record.len())..];
    if let Element::Large(large) = element
        && let Some(string) = strings.and_then(|strings| strings.get(large))
    {
        return (Item::Large(string), rest);
    }
    (Item::Bytes(element.show()), rest)
}

/// A collection that has outgrown its entry.
#[derive(Debug)]
pub(crate) struct Paged<O: Order> {
    pub(crate) tree: Tree<O>,
    pub(crate) strings: LargeStrings,
    /// What its type notes of it.
    pub(crate) notes: u8,
    /// How far its pages have cooled.
    cooled: Cooled,
}

impl<O: Order> Paged<O> {
    pub(crate) fn of(run: Run<'_>) -> Self {
        let tree = Tree::of(run.each::<O>());
        Self { tree, strings: LargeStrings::default(), notes: run.notes, cooled: Cooled::default() }
    }

    pub(crate) fn len(&self) -> usize {
        self.tree.len()
    }

    pub(crate) fn measure(&self) -> Measure {
        let (weight, (allocated, raw)) = (self.tree.weight(), self.strings.measure());
        Measure {
            allocated: weight.allocated + allocated,
            raw: weight.raw + raw,
            packed_from: weight.packed_from,
            packed: weight.packed,
            pending: self.cooled.pending,
        }
    }

    pub(crate) fn duplicate(&self) -> Self {
        let (tree, strings) = (self.tree.duplicate(), self.strings.clone());
        Self { tree, strings, notes: self.notes, cooled: Cooled::default() }
    }

    pub(crate) fn store(&self, pen: &mut dyn Pen) -> io::Result<()> {
        pen.put(&[self.notes])?;
        self.strings.store(pen)?;
        self.tree.store(pen)
    }

    pub(crate) fn fetch(source: &mut dyn Source) -> io::Result<Self> {
        let notes = source.byte()?;
        let strings = LargeStrings::fetch(source)?;
        let tree = Tree::fetch(source)?;
        Ok(Self { tree, strings, notes, cooled: Cooled::default() })
    }

    /// How it is packed, for those who report; `own` are the bytes of its box.
    pub(crate) fn packing(&self, own: usize) -> Packing {
        packing(&self.measure(), own, self.tree.main_dictionary())
    }

    /// A walk that cools has met it.
    pub(crate) fn cool(&mut self, met: &Met<'_>) -> Wish {
        if self.tree.cool(&mut self.cooled, met) { Wish::Pieces } else { Wish::Nothing }
    }

    /// The next of its pages to be packed or unpacked.
    pub(crate) fn next_job(&mut self, asked: &Asked<'_>) -> Option<Box<dyn PieceJob>> {
        self.tree.next_piece(&mut self.cooled, asked)
    }

    /// Takes a page back.
    pub(crate) fn install(&mut self, job: &mut dyn PieceJob) -> Installed {
        self.tree.install_piece(job)
    }
}

/// How pages are packed that weigh so much together, for those who report.
pub(crate) fn packing(
    measure: &Measure,
    own: usize,
    dictionary: Option<Arc<Dictionary>>,
) -> Packing {
    Packing {
        codec: if measure.packed > 0 { "zstd" } else { "none" },
        dictionary,
        allocated_raw: usable(own) + measure.allocated - measure.packed + measure.packed_from,
    }
}

/// A page to be read: itself, or if it is packed, what it is unpacked.
pub(crate) fn raw<'p, O: Order>(
    page: &'p Page,
    session: &Session,
) -> Result<Cow<'p, Page>, Damaged> {
    match page.packed() {
        None => {
            page.set_access(ACCESS_MAX);
            Ok(Cow::Borrowed(page))
        }
        // One read does not make it hot.
        Some(form) => {
            page.set_access(ACCESS_MAX.min(page.access() + 1));
            Ok(Cow::Owned(page.unpacked::<O>(&unpack(form, session)?)?))
        }
    }
}

/// The same for who has a reader; it is no access.
pub(crate) fn raw_for<'p, O: Order>(
    page: &'p Page,
    reader: &mut dyn Reader,
) -> Result<Cow<'p, Page>, Damaged> {
    let Some(form) = page.packed() else { return Ok(Cow::Borrowed(page)) };
    let mut raw = Vec::new();
    reader.unpack(form, &mut raw)?;
    Ok(Cow::Owned(page.unpacked::<O>(&raw)?))
}

/// The run of a small collection, for who has a reader; `room` takes one that lies there
/// in the form `packed`.
pub(crate) fn run_for<'v>(
    value: Value<'v>,
    packed: Form,
    reader: &mut dyn Reader,
    room: &'v mut Vec<u8>,
) -> Result<Run<'v>, Damaged> {
    if value.form() != packed {
        return Ok(Run::read(value.bytes()));
    }
    reader.unpack(value.bytes(), room)?;
    Ok(Run::read(room))
}

/// Makes a page ready to be changed.
#[inline]
pub(crate) fn ready<O: Order>(page: &mut Page, session: &Session) -> Result<(), Damaged> {
    page.set_access(page.access().max(WRITTEN));
    if let Some(form) = page.packed() {
        *page = page.unpacked::<O>(&unpack(form, session)?)?;
    }
    Ok(())
}

#[cold]
fn unpack(form: &[u8], session: &Session) -> Result<Vec<u8>, Damaged> {
    let mut raw = Vec::new();
    PackedStr { form, session }.append_to(&mut raw)?;
    Ok(raw)
}

/// The large strings of a page that goes as a whole. O(records), and unpacks it, if
/// there are any; else O(1).
pub(crate) fn remove_strings<O: Order>(page: &Page, strings: &mut LargeStrings, session: &Session) {
    if strings.raw == 0 {
        return;
    }
    if let Ok(page) = raw::<O>(page, session) {
        page.records::<O>().for_each(|record| strings.remove_of(record));
    }
}
