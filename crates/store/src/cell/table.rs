//! The table of one slot: its cells, sorted by tag.
//!
//! ```text
//!  tags   003 01f 02a 02a 0c1 ... ff7        12 bits of hash, in order
//!  cells  [ ] [ ] [ ] [ ] [ ] ... [ ]        8 bytes each, no gaps
//! ```
//!
//! Hashes spread evenly, so a tag is about as far into the array as it is into
//! the range of tags: a lookup begins there and walks a few cells, usually
//! within one cache line, and reads an entry only when all 12 bits agree.
//! Inserting moves the cells behind it, [`TABLE_MAX`] at most. Sorted and
//! without gaps, one array is also what `SCAN` needs (a cursor is a tag, which
//! no growth can move), what random sampling needs (any index is a key) and
//! what memory wants (its capacity is the allocator's next size class).
//!
//! A slot with more than [`TABLE_MAX`] keys (more than 8 million in the
//! database, or many behind one hash tag) splits by the next bits of hash:
//!
//! ```text
//!  directory, 2^depth indices, by the leading bits of the branch
//!    00 -> table 0 (depth 2)
//!    01 -> table 2 (depth 2)
//!    10 -> table 1 (depth 1)
//!    11 -> table 1
//! ```
//!
//! as extendible hashing does (Fagin et al., 1979): a split touches one table,
//! doubling the directory copies 4 bytes per index.
//!
//! | operation | cost |
//! | --- | --- |
//! | lookup | one cache line of the slot, one or two of cells, the entry |
//! | insert, remove | the lookup and a move of at most 4 KiB |
//! | growth | a reallocation to the next size class, or one split |

use crate::cell::entry::Cell;
use crate::hash::{BRANCH_BITS, Key, TAG_BITS};
use crate::memory::{prefetch, usable};

/// Cells in a table before it splits. Fewer for Miri, which is a thousand times
/// slower and is to see splits too.
const TABLE_MAX: usize = if cfg!(miri) { 16 } else { 512 };

/// Cells sorted by tag.
#[derive(Debug, Default)]
pub(crate) struct Table {
    cells: Vec<Cell>,
}

impl Table {
    /// The first index whose tag is not below `tag`.
    #[inline]
    fn lower_bound(&self, tag: u16) -> usize {
        let cells = &self.cells[..];
        let mut at = (tag as usize * cells.len()) >> TAG_BITS;
        while at > 0 && cells[at - 1].tag() >= tag {
            at -= 1;
        }
        while at < cells.len() && cells[at].tag() < tag {
            at += 1;
        }
        at
    }

    #[inline]
    fn find(&self, key: &Key<'_>) -> Option<usize> {
        let tag = key.tag();
        let first = self.lower_bound(tag);
        let same = self.cells[first..].iter().take_while(|cell| cell.tag() == tag);
        let is_it = |cell: &Cell| {
            // Its lines arrive together, not one after the other as they are needed.
            if cell.bits().is_packed_inline() {
                cell.prefetch();
            }
            cell.is_of(key.bytes)
        };
        same.enumerate().find(|(_, cell)| is_it(cell)).map(|(i, _)| first + i)
    }

    /// Where a lookup of `key` will begin to read.
    #[inline]
    fn guess(&self, key: &Key<'_>) -> *const Cell {
        let at = (key.tag() as usize * self.cells.len()) >> TAG_BITS;
        self.cells.as_ptr().wrapping_add(at)
    }

    fn insert(&mut self, cell: Cell) -> usize {
        let len = self.cells.len();
        if len == self.cells.capacity() {
            let capacity = usable((len + len / 16 + 1) * size_of::<Cell>()) / size_of::<Cell>();
            self.cells.reserve_exact(capacity - len);
        }
        let at = self.lower_bound(cell.tag());
        self.cells.insert(at, cell);
        at
    }

    fn remove(&mut self, at: usize) -> Cell {
        let cell = self.cells.remove(at);
        if self.cells.len() < self.cells.capacity() / 2 {
            self.cells.shrink_to(self.cells.len() + self.cells.len() / 8);
        }
        cell
    }

    fn allocated(&self) -> usize {
        match self.cells.capacity() {
            0 => 0,
            capacity => usable(capacity * size_of::<Cell>()),
        }
    }
}

/// Where a cell is, until the next insertion or removal in its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    table: u32,
    at: u32,
}

/// Where a walk over a slot continues: valid across any change of the slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) branch: u32,
    pub(crate) tag: u16,
}

#[derive(Debug)]
struct Branch {
    depth: u32,
    table: Table,
}

/// A slot's directory, once it has more than one table.
#[derive(Debug)]
struct Directory {
    depth: u32,
    index: Vec<u32>,
    /// The branches beyond the first, which is the slot's own table.
    more: Vec<Branch>,
    first_depth: u32,
}

impl Directory {
    fn index_of(&self, branch: u32) -> usize {
        (branch >> (BRANCH_BITS - self.depth)) as usize
    }
}

/// All cells of a slot.
#[derive(Debug, Default)]
pub(crate) struct Cells {
    first: Table,
    directory: Option<Box<Directory>>,
    len: u32,
}

impl Cells {
    /// Keys in the slot. O(1).
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    #[inline]
    fn table_of(&self, branch: u32) -> u32 {
        self.directory.as_ref().map_or(0, |d| d.index[d.index_of(branch)])
    }

    #[inline]
    fn table(&self, number: u32) -> &Table {
        match (number, &self.directory) {
            (0, _) | (_, None) => &self.first,
            (n, Some(d)) => &d.more[n as usize - 1].table,
        }
    }

    #[inline]
    fn table_mut(&mut self, number: u32) -> &mut Table {
        match (number, &mut self.directory) {
            (0, _) | (_, None) => &mut self.first,
            (n, Some(d)) => &mut d.more[n as usize - 1].table,
        }
    }

    fn tables(&self) -> impl Iterator<Item = &Table> {
        let more = self.directory.iter().flat_map(|d| d.more.iter().map(|b| &b.table));
        std::iter::once(&self.first).chain(more)
    }

    #[inline]
    pub(crate) fn find(&self, key: &Key<'_>) -> Option<Place> {
        let table = self.table_of(key.branch());
        self.table(table).find(key).map(|at| Place { table, at: at as u32 })
    }

    /// Brings closer the cells that a lookup of `key` will read.
    #[inline]
    pub(crate) fn prefetch_cells(&self, key: &Key<'_>) {
        prefetch(self.table(self.table_of(key.branch())).guess(key));
    }

    /// Brings closer the entry that a lookup of `key` will read, most likely.
    #[inline]
    pub(crate) fn prefetch_entry(&self, key: &Key<'_>) {
        let table = self.table(self.table_of(key.branch()));
        let first = table.lower_bound(key.tag());
        if let Some(cell) = table.cells.get(first) {
            cell.prefetch();
        }
    }

    #[inline]
    pub(crate) fn get(&self, place: Place) -> &Cell {
        &self.table(place.table).cells[place.at as usize]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, place: Place) -> &mut Cell {
        &mut self.table_mut(place.table).cells[place.at as usize]
    }

    /// Adds the cell of a key that is not there. `hash` gives any key's hash,
    /// for when a table must split.
    pub(crate) fn insert(
        &mut self,
        key: &Key<'_>,
        cell: Cell,
        hash: impl Fn(&[u8]) -> u32,
    ) -> Place {
        self.put(key.branch(), cell, hash)
    }

    /// The same, when of the key only its branch is at hand.
    pub(crate) fn put(&mut self, branch: u32, cell: Cell, hash: impl Fn(&[u8]) -> u32) -> Place {
        let mut table = self.table_of(branch);
        while self.table(table).cells.len() >= TABLE_MAX && self.split(table, &hash) {
            table = self.table_of(branch);
        }
        self.len += 1;
        let at = self.table_mut(table).insert(cell) as u32;
        Place { table, at }
    }

    /// Takes a cell out. The last one frees everything.
    pub(crate) fn remove(&mut self, place: Place) -> Cell {
        let cell = self.table_mut(place.table).remove(place.at as usize);
        self.len -= 1;
        if self.len == 0 {
            *self = Self::default();
        }
        cell
    }

    /// Splits a table in two by the next bit of branch; false when no bit is
    /// left, and then the table just grows.
    fn split(&mut self, number: u32, hash: &impl Fn(&[u8]) -> u32) -> bool {
        let directory = self.directory.get_or_insert_with(|| {
            Box::new(Directory { depth: 0, index: vec![0], more: Vec::new(), first_depth: 0 })
        });
        let (depth, table) = match number {
            0 => (&mut directory.first_depth, &mut self.first),
            n => {
                let branch = &mut directory.more[n as usize - 1];
                (&mut branch.depth, &mut branch.table)
            }
        };
        if *depth == BRANCH_BITS {
            return false;
        }
        *depth += 1;
        let depth = *depth;
        let bit = BRANCH_BITS - depth;
        let (mut low, mut high) = (Vec::new(), Vec::new());
        for cell in std::mem::take(&mut table.cells) {
            let side = if hash(&cell.key()) >> bit & 1 == 0 { &mut low } else { &mut high };
            if side.capacity() == 0 {
                side.reserve_exact(TABLE_MAX / 2 + TABLE_MAX / 8);
            }
            side.push(cell);
        }
        table.cells = low;
        directory.more.push(Branch { depth, table: Table { cells: high } });
        let new = directory.more.len() as u32;
        if depth > directory.depth {
            directory.depth = depth;
            directory.index = directory.index.iter().flat_map(|&n| [n, n]).collect();
        }
        let side = directory.depth - depth;
        for (i, n) in directory.index.iter_mut().enumerate() {
            if *n == number && i >> side & 1 == 1 {
                *n = new;
            }
        }
        true
    }

    /// Visits cells in order from `mark` on, `count` of them and then those of
    /// the same tag; where to continue, or `None` at the slot's end. A key that
    /// is there all the while between the first call and the last is visited.
    pub(crate) fn walk(
        &self,
        mark: Mark,
        count: usize,
        visit: &mut dyn FnMut(&Cell),
    ) -> Option<Mark> {
        let number = self.table_of(mark.branch);
        let table = self.table(number);
        let mut at = table.lower_bound(mark.tag);
        let mut visited = 0;
        while let Some(cell) = table.cells.get(at) {
            if visited >= count && cell.tag() != table.cells[at - 1].tag() {
                return Some(Mark { branch: mark.branch, tag: cell.tag() });
            }
            visit(cell);
            visited += 1;
            at += 1;
        }
        self.behind(number, mark)
    }

    /// Where a walk goes on behind the table of this number.
    fn behind(&self, number: u32, mark: Mark) -> Option<Mark> {
        let depth = match (number, &self.directory) {
            (_, None) => 0,
            (0, Some(d)) => d.first_depth,
            (n, Some(d)) => d.more[n as usize - 1].depth,
        };
        let below = BRANCH_BITS - depth;
        let next = ((mark.branch >> below) + 1) << below;
        (next < 1 << BRANCH_BITS).then_some(Mark { branch: next, tag: 0 })
    }

    /// As [`walk`](Self::walk), with cells to be changed. `visit` says whether
    /// it is done with the cell; if not, the walk ends there and goes on with it.
    pub(crate) fn walk_mut(
        &mut self,
        mark: Mark,
        count: usize,
        visit: &mut dyn FnMut(&mut Cell) -> bool,
    ) -> Option<Mark> {
        let number = self.table_of(mark.branch);
        let table = self.table_mut(number);
        let first = table.lower_bound(mark.tag);
        for at in first..table.cells.len() {
            let tag = table.cells[at].tag();
            let full = at - first >= count && tag != table.cells[at - 1].tag();
            if full || !visit(&mut table.cells[at]) {
                return Some(Mark { branch: mark.branch, tag });
            }
        }
        self.behind(number, mark)
    }

    /// Every cell, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Cell> {
        self.tables().flat_map(|table| &table.cells)
    }

    /// Every cell, taken out.
    pub(crate) fn into_each(self) -> impl Iterator<Item = Cell> {
        let more = self.directory.into_iter().flat_map(|d| d.more).map(|branch| branch.table);
        std::iter::once(self.first).chain(more).flat_map(|table| table.cells)
    }

    /// The `n`-th cell's place, for any `n` below `len`: each equally likely
    /// when `n` is random. O(tables).
    pub(crate) fn nth(&self, n: usize) -> Option<Place> {
        let mut rest = n;
        for (number, table) in self.tables().enumerate() {
            if rest < table.cells.len() {
                return Some(Place { table: number as u32, at: rest as u32 });
            }
            rest -= table.cells.len();
        }
        None
    }

    /// Visits cells from the `first`-th on, going round, until `visit` has seen
    /// enough or all were visited; whether they were.
    pub(crate) fn round_mut(
        &mut self,
        first: usize,
        visit: &mut dyn FnMut(Place, &mut Cell) -> bool,
    ) -> bool {
        let Some(mut place) = self.nth(first) else { return true };
        for _ in 0..self.len {
            if !visit(place, self.get_mut(place)) {
                return false;
            }
            place = self.next_round(place);
        }
        true
    }

    /// The place behind this one, and behind the last the first. There must be
    /// a cell.
    fn next_round(&self, place: Place) -> Place {
        let tables = 1 + self.directory.as_ref().map_or(0, |d| d.more.len() as u32);
        let mut next = Place { at: place.at + 1, ..place };
        while next.at as usize >= self.table(next.table).cells.len() {
            next = Place { table: (next.table + 1) % tables, at: 0 };
        }
        next
    }

    /// Bytes allocated for tables and directory, entries not counted.
    pub(crate) fn allocated(&self) -> usize {
        let directory = self.directory.as_ref().map_or(0, |d| {
            usable(size_of::<Directory>())
                + usable(d.index.capacity() * 4)
                + usable(d.more.capacity() * size_of::<Branch>())
        });
        directory + self.tables().map(Table::allocated).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::entry::Payload;
    use crate::hash::KeyHasher;
    use crate::types::string::{INT, Int};
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn cell(key: &Key<'_>, value: i64) -> Cell {
        Cell::new(key.tag(), key.bytes, None, Payload::Inline(INT, Int::new(value).bytes()))
    }

    /// Miri's tables are small, and so are its tests.
    const SMALL: usize = if cfg!(miri) { 10 } else { 100 };

    #[test]
    fn a_walk_that_changes_cells_goes_on_where_it_was_told_to_stop() {
        let hasher = KeyHasher::new(false, 1);
        let mut cells = Cells::default();
        for n in 0..4 * TABLE_MAX {
            let name = format!("key:{n}").into_bytes();
            let key = hasher.key(&name);
            cells.insert(&key, cell(&key, n as i64), |key| hasher.key(key).branch());
        }
        for count in [1, 7, usize::MAX] {
            let mut mark = Some(Mark::default());
            while let Some(from) = mark {
                let mut left = 3;
                mark = cells.walk_mut(from, count, &mut |cell| {
                    if cell.access() == 0 {
                        if left == 0 {
                            return false;
                        }
                        left -= 1;
                        cell.set_access(1);
                    }
                    true
                });
            }
            assert!(cells.iter().all(|cell| cell.access() == 1));
            let mut mark = Some(Mark::default());
            while let Some(from) = mark {
                mark = cells.walk_mut(from, 5, &mut |cell| {
                    cell.set_access(0);
                    true
                });
            }
        }
    }

    /// A hash of which only the branch's leading bits differ would be a
    /// directory's worst case; a real one with everything in one slot is what
    /// hash tags do.
    #[test]
    fn a_slot_of_many_tables_is_a_map() {
        let hasher = KeyHasher::new(true, 1);
        let branch_of = |key: &[u8]| hasher.key(key).branch();
        let count = if cfg!(miri) { 120 } else { 40_000 };
        let names: Vec<String> = (0..count).map(|n| format!("{{tag}}:{n}")).collect();
        let mut cells = Cells::default();
        for (n, name) in names.iter().enumerate() {
            let key = hasher.key(name.as_bytes());
            assert_eq!(cells.find(&key), None);
            let place = cells.insert(&key, cell(&key, n as i64), branch_of);
            assert_eq!(Int::read(cells.get(place).bytes()), n as i64);
        }
        for (n, name) in names.iter().enumerate() {
            let place = cells.find(&hasher.key(name.as_bytes())).unwrap();
            assert_eq!(Int::read(cells.get(place).bytes()), n as i64);
        }
        assert_eq!(cells.iter().count(), count);
        assert!((0..count).all(|n| cells.nth(n).is_some()) && cells.nth(count).is_none());
        for name in &names {
            let place = cells.find(&hasher.key(name.as_bytes())).unwrap();
            cells.remove(place);
        }
        assert_eq!((cells.len(), cells.allocated()), (0, 0));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 64 }, failure_persistence: None, ..ProptestConfig::default() })]

        /// Redis's promise for SCAN: what is there from start to end is seen,
        /// whatever comes and goes meanwhile, splits included.
        #[test]
        fn a_walk_sees_all_that_stays(
            stays in prop::collection::hash_set(0u32..3000, 1..SMALL * 6),
            churn in prop::collection::vec((0u32..200_000, any::<bool>()), 0..SMALL * 8),
            count in 1usize..50,
        ) {
            let hasher = KeyHasher::new(true, 1);
            let name = |n: u32| format!("{{t}}{n}");
            let branch_of = |key: &[u8]| hasher.key(key).branch();
            let mut cells = Cells::default();
            let mut there: HashMap<u32, bool> = HashMap::new();
            for &n in &stays {
                let name = name(n);
                let key = hasher.key(name.as_bytes());
                cells.insert(&key, cell(&key, i64::from(n)), branch_of);
            }
            let mut seen = std::collections::HashSet::new();
            let mut churn = churn.into_iter();
            let mut mark = Some(Mark::default());
            while let Some(at) = mark {
                mark = cells.walk(at, count, &mut |cell| { seen.insert(Int::read(cell.bytes()) as u32); });
                for (n, add) in churn.by_ref().take(40) {
                    let n = n + 10_000;
                    let name = name(n);
                    let key = hasher.key(name.as_bytes());
                    match (add, there.get(&n).copied().unwrap_or(false)) {
                        (true, false) => { cells.insert(&key, cell(&key, i64::from(n)), branch_of); }
                        (false, true) => { let p = cells.find(&key).unwrap(); cells.remove(p); }
                        _ => continue,
                    }
                    there.insert(n, add);
                }
            }
            prop_assert!(stays.is_subset(&seen));
        }
    }
}
