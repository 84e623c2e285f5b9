//! What operations on several sets carry from one to the next: members as they are
//! written in collections, outside of any key.
//!
//! Slots are locked one at a time, and two sets may lie in one slot. So members are taken
//! out page by page and looked up in the other sets, a page's worth under each lock.

use super::{Members, Sets, TABLE};
use crate::effect::{Change, Form};
use crate::hash::Key;
use crate::pack::form::Damaged;
use crate::slot::{Found, SlotGuard};
use crate::types::pages::edit::{Edited, flat};
use crate::types::pages::element::{self, Element};
use crate::types::pages::keyed::{self, all_in, all_of, integer};
use crate::types::pages::paged::{Item, LargeStrings, Needle, Paged, item};
use crate::types::pages::run::{self, Run};
use crate::types::pages::tree::ByBound;
use crate::types::set::ops::SetLimits;
use crate::types::string::NewStr;

/// Members one behind the other.
#[derive(Clone, Debug, Default)]
pub struct Elements {
    records: Vec<u8>,
    count: usize,
    strings: LargeStrings,
}

/// Adds the element at the front of a record to others, a large string with it.
fn copy(
    record: &[u8],
    strings: Option<&LargeStrings>,
    to: &mut Vec<u8>,
    to_strings: &mut LargeStrings,
) {
    let (element, len) = element::read(record);
    if let Element::Large(large) = element {
        let string = strings.and_then(|strings| strings.get(large)).cloned();
        element::write_large(to, to_strings.add(string.unwrap_or_default()));
    } else {
        to.extend_from_slice(&record[..len.min(record.len())]);
    }
}

impl Elements {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Forgets all of them.
    pub fn clear(&mut self) {
        self.records.clear();
        self.count = 0;
        self.strings = LargeStrings::default();
    }

    pub(crate) fn push(&mut self, record: &[u8], strings: Option<&LargeStrings>) {
        copy(record, strings, &mut self.records, &mut self.strings);
        self.count += 1;
    }

    /// Adds what was looked for.
    pub(crate) fn add(&mut self, needle: &Needle) {
        needle.write(&mut self.records, Some(&mut self.strings));
        self.count += 1;
    }

    /// Adds some of others.
    pub fn append(&mut self, other: &Self, count: usize) {
        for record in all_in::<Members>(&other.records).take(count) {
            self.push(record, Some(&other.strings));
        }
    }

    /// Each as a client is to see it.
    pub fn each(&self) -> impl Iterator<Item = Item<'_>> + Clone {
        all_in::<Members>(&self.records).map(|record| item(record, Some(&self.strings)).0)
    }

    pub(super) fn needles(&self) -> impl Iterator<Item = Needle> + Clone {
        all_in::<Members>(&self.records)
            .map(|record| Needle::of_record(record, Some(&self.strings)))
    }

    /// Keeps those that `keep` says, which is asked in the order of the keys by which
    /// members lie in pages.
    pub(super) fn retain(
        &mut self,
        mut keep: impl FnMut(&Needle) -> Result<bool, Damaged>,
    ) -> Result<(), Damaged> {
        let mut needles: Vec<_> = self.needles().enumerate().collect();
        needles.sort_unstable_by_key(|(_, needle)| needle.key());
        let mut stays = vec![false; needles.len()];
        for (place, needle) in &needles {
            stays[*place] = keep(needle)?;
        }
        let mut kept = Vec::with_capacity(self.records.len());
        for (record, _) in all_in::<Members>(&self.records).zip(&stays).filter(|(_, stays)| **stays)
        {
            kept.extend_from_slice(record);
        }
        self.count = stays.iter().filter(|stays| **stays).count();
        self.records = kept;
        Ok(())
    }
}

/// A set in the making, which no key has yet.
#[derive(Debug)]
pub struct Gathered {
    set: Paged<Members>,
    limits: SetLimits,
}

impl Gathered {
    /// One without members.
    pub fn new(limits: SetLimits) -> Self {
        Self { set: Paged::of(Run::read(&[])), limits }
    }

    /// How many members it has.
    pub fn len(&self) -> usize {
        self.set.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds what is no member yet. O(elements log n).
    pub fn add(&mut self, elements: &Elements) {
        let mut record = Vec::new();
        for needle in elements.needles() {
            let Paged { tree, strings, notes, .. } = &mut self.set;
            let key = needle.key();
            let seek = || ByBound(|bound: &u64| key >= *bound);
            if needle.is_large() {
                // A large string is kept only if it is new.
                let is_there = |other: &[u8]| needle.is(other, Some(strings));
                if tree.page(seek()).find(keyed::tag(key), is_there).is_some() {
                    continue;
                }
            }
            record.clear();
            needle.write(&mut record, Some(&mut *strings));
            tree.change(seek(), |page| {
                if needle.is_large() || keyed::find(page, &needle, key, strings).is_none() {
                    page.insert::<Members>(page.len(), &record);
                }
            });
            *notes |= self.limits.notes(&record, tree.len());
        }
    }

    /// Removes what is a member. O(elements log n).
    pub fn remove(&mut self, elements: &Elements) {
        for needle in elements.needles() {
            let Paged { tree, strings, .. } = &mut self.set;
            let key = needle.key();
            tree.change(ByBound(|bound: &u64| key >= *bound), |page| {
                if let Some(at) = keyed::find(page, &needle, key, strings) {
                    strings.remove_of(page.just::<Members>(at));
                    page.remove::<Members>(at);
                }
            });
        }
    }

    /// Gives each member to `visit`, integers alone in ascending order.
    pub fn visit(&self, mut visit: impl FnMut(Item<'_>)) {
        self.each_record(|record| visit(item(record, Some(&self.set.strings)).0));
    }

    fn each_record(&self, mut visit: impl FnMut(&[u8])) {
        if self.set.notes & TABLE != 0 {
            return all_of(&self.set.tree, visit);
        }
        let mut ints = Vec::with_capacity(self.len());
        all_of(&self.set.tree, |record| ints.extend(integer(record)));
        ints.sort_unstable();
        let mut record = Vec::new();
        for value in ints {
            record.clear();
            element::write_int(&mut record, value);
            visit(&record);
        }
    }
}

/// Puts a set that was gathered under a key that is free. How many members it has is given
/// back. O(n) while it is small.
#[derive(Debug)]
pub struct PutSet(pub Gathered);

impl Change for PutSet {
    type Outcome = Result<Edited<usize>, Damaged>;

    fn apply(
        &mut self,
        slot: &mut SlotGuard<'_>,
        key: &Key<'_>,
        found: Option<Found>,
    ) -> Self::Outcome {
        debug_assert!(found.is_none());
        slot.edit::<Sets, _>(key, found, |set| {
            let (len, notes) = (self.0.len(), self.0.set.notes);
            let bytes = self.0.set.measure().raw;
            let is_short = len <= run::COUNT_MAX && bytes < run::BYTES_MAX / 2;
            match set.small() {
                Some(mut small) if is_short => {
                    small.note(notes);
                    let mut end = 0;
                    self.0.each_record(|record| {
                        small.insert(end, record);
                        end += record.len();
                    });
                }
                _ => set.put_large(self.0.set.duplicate()),
            }
            Ok(len)
        })
        .and_then(flat)
    }

    fn form(&self, _: &Self::Outcome, key: &[u8], form: &mut Form<'_>) {
        form.command("SADD").bytes(key);
        self.0.visit(|member| match member {
            Item::Bytes(bytes) => _ = form.bytes(&bytes),
            Item::Large(string) => _ = form.value(&NewStr::Chain(string.clone())),
        });
    }
}
