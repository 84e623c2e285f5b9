//! A large sorted set: its members by score, and an index that finds a member's score.
//!
//! ```text
//!  scores   | score | member |   in pages by score and member, each member once
//!  index    | hash: 4 | score |  in pages by hash
//! ```
//!
//! A member is looked for in the index by its hash, and then, for others may have the
//! same, among the scores by the score found. Ranks are read from the counts of the
//! tree of scores.
//!
//! Cost of a member: its bytes and those of its score, some 4 bytes of a page, and some
//! 8 with its score again in the index. A lookup is two ways down a tree, a change four.

use super::order::{
    HASH_LEN, Mark, Members, Name, Room, Scores, cmp_record, cmp_scores, hash_of_member,
    hash_of_needle, is_behind, mark, member_of, score_of,
};
use crate::image::{Pen, Source};
use crate::jobs::PieceWalk;
use crate::pack::form::Damaged;
use crate::pack::piece::PieceJob;
use crate::store::Session;
use crate::types::forms::{Asked, Installed, Measure, Met, Wish};
use crate::types::pages::element::{self, Buffer as _};
use crate::types::pages::page::Page;
use crate::types::pages::paged::{Item, LargeStrings, Needle, item, raw, ready};
use crate::types::pages::pieces::Cooled;
use crate::types::pages::run::Run;
use crate::types::pages::tree::{ByBound, ByRank, Gone, LAST, Tree};
use std::cell::Cell;
use std::cmp::Ordering;
use std::io;
use std::ops::ControlFlow;

#[derive(Debug)]
pub(crate) struct Ranked {
    pub(crate) scores: Tree<Scores>,
    pub(crate) index: Tree<Members>,
    pub(crate) strings: LargeStrings,
    /// What is noted of the sorted set.
    pub(crate) notes: u8,
    /// How far the pages of both have cooled. Hashes do not pack: a cold page of the index
    /// is stored without its offsets.
    cooled: Cooled,
    index_cooled: Cooled,
}

/// Where within the order something stands: how many records are before it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit<'l> {
    /// In front of the members of this score, or behind them.
    Score(f64, bool),
    /// In front of this member or behind it. All members have one score.
    Lex(&'l [u8], bool),
    /// Behind all.
    End,
}

impl Limit<'_> {
    /// Whether a record is before it.
    #[inline]
    pub(crate) fn is_behind(&self, record: &[u8], strings: Option<&LargeStrings>) -> bool {
        match *self {
            Self::Score(score, behind) => is_before(score_of(record).partial_cmp(&score), behind),
            Self::Lex(bytes, behind) => {
                let name = Name::of(member_of(record), strings);
                is_before(Some(name.cmp(Name::bytes(bytes))), behind)
            }
            Self::End => true,
        }
    }

    /// Whether it is at or behind a mark.
    fn is_behind_mark(&self, mark: &Mark) -> bool {
        match *self {
            Self::Score(score, behind) => match cmp_scores(mark.0, score) {
                Ordering::Less => true,
                Ordering::Equal => behind || mark.1.is_empty(),
                Ordering::Greater => false,
            },
            Self::Lex(bytes, _) => *mark.1 <= *bytes,
            Self::End => true,
        }
    }
}

fn is_before(own: Option<Ordering>, behind: bool) -> bool {
    own == Some(Ordering::Less) || behind && own == Some(Ordering::Equal)
}

/// The record of the index for this hash and score, in `record`.
fn write_entry(record: &mut Room, hash: u32, score: f64) {
    record.clear();
    record.put(&hash.to_le_bytes());
    element::write_score(record, score);
}

impl Ranked {
    pub(crate) fn of(run: Run<'_>) -> Self {
        let scores = Tree::of(run.each::<Scores>());
        let mut index = Tree::new();
        let mut entry = Room::new();
        for record in run.each::<Scores>() {
            write_entry(&mut entry, hash_of_member(member_of(record)), score_of(record));
            let key = u64::from(hash_of_member(member_of(record)));
            index.change(ByBound(|bound: &u64| key >= *bound), |page| {
                page.insert::<Members>(page.len(), &entry);
            });
        }
        let strings = LargeStrings::default();
        Self {
            scores,
            index,
            strings,
            notes: run.notes,
            cooled: Cooled::default(),
            index_cooled: Cooled::default(),
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.scores.len()
    }

    pub(crate) fn measure(&self) -> Measure {
        let mut weight = self.scores.weight();
        weight += self.index.weight();
        let (allocated, raw) = self.strings.measure();
        Measure {
            allocated: weight.allocated + allocated,
            raw: weight.raw + raw,
            packed_from: weight.packed_from,
            packed: weight.packed,
            pending: self.cooled.pending + self.index_cooled.pending,
        }
    }

    pub(crate) fn duplicate(&self) -> Self {
        Self {
            scores: self.scores.duplicate(),
            index: self.index.duplicate(),
            strings: self.strings.clone(),
            notes: self.notes,
            cooled: Cooled::default(),
            index_cooled: Cooled::default(),
        }
    }

    pub(crate) fn write(&self, pen: &mut dyn Pen) -> io::Result<()> {
        pen.put(&[self.notes])?;
        self.strings.store(pen)?;
        self.scores.store(pen)?;
        self.index.store(pen)
    }

    pub(crate) fn read(source: &mut dyn Source) -> io::Result<Self> {
        let notes = source.byte()?;
        let strings = LargeStrings::fetch(source)?;
        let (scores, index) = (Tree::fetch(source)?, Tree::fetch(source)?);
        if scores.len() != index.len() {
            let what = "a sorted set's members are not those of its index";
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        let (cooled, index_cooled) = (Cooled::default(), Cooled::default());
        Ok(Self { scores, index, strings, notes, cooled, index_cooled })
    }

    /// A walk that cools has met it.
    pub(crate) fn cool(&mut self, met: &Met<'_>) -> Wish {
        let scores = self.scores.cool(&mut self.cooled, met);
        let index = self.index.cool(&mut self.index_cooled, met);
        if scores || index { Wish::Pieces } else { Wish::Nothing }
    }

    /// The next of its pages to be packed or unpacked.
    pub(crate) fn next_job(&mut self, asked: &Asked<'_>) -> Option<Box<dyn PieceJob>> {
        if let Some(walk) = asked.walk {
            return self.next_walked(walk, asked);
        }
        let piece = self.scores.next_piece(&mut self.cooled, asked);
        piece.or_else(|| self.index.next_piece(&mut self.index_cooled, asked))
    }

    /// The next page that a walk comes to: to it the index lies behind the scores.
    fn next_walked(&mut self, walk: &PieceWalk, asked: &Asked<'_>) -> Option<Box<dyn PieceJob>> {
        let len = self.len();
        if walk.at() < len
            && let Some(piece) = self.scores.next_piece(&mut self.cooled, asked)
        {
            return Some(piece);
        }
        let in_index = PieceWalk::new(walk.unpacks(), walk.at().saturating_sub(len));
        let asked = Asked { walk: Some(&in_index), ..*asked };
        let piece = self.index.next_piece(&mut self.index_cooled, &asked);
        walk.goes_on_at(len + in_index.at());
        piece
    }

    /// Takes a page back.
    pub(crate) fn install(&mut self, job: &mut dyn PieceJob) -> Installed {
        match self.scores.install_piece(job) {
            Installed::Not => self.index.install_piece(job),
            installed => installed,
        }
    }

    /// The score of a member. O(log n).
    pub(crate) fn score(&self, needle: &Needle, session: &Session) -> Result<Option<f64>, Damaged> {
        let hash = hash_of_needle(needle);
        let key = u64::from(hash);
        let page = raw::<Members>(self.index.page(ByBound(|bound: &u64| key >= *bound)), session)?;
        let at = find(&self.scores, &self.strings, &page, hash, needle, session)?;
        Ok(at.map(|at| score_of(&page.record(at)[HASH_LEN..])))
    }

    /// How many records are before a score and a member. O(log n).
    pub(crate) fn rank(
        &self,
        score: f64,
        needle: &Needle,
        session: &Session,
    ) -> Result<usize, Damaged> {
        let name = Name::of_needle(needle);
        let leaf = self.scores.leaf(ByBound(|mark: &Mark| is_behind(mark, score, name)));
        let page = raw::<Scores>(leaf.page, session)?;
        Ok(leaf.before + place(&page, score, name, &self.strings))
    }

    /// How many records are before a limit. O(log n).
    pub(crate) fn rank_at(&self, limit: &Limit<'_>, session: &Session) -> Result<usize, Damaged> {
        if *limit == Limit::End {
            return Ok(self.len());
        }
        let leaf = self.scores.leaf(ByBound(|mark: &Mark| limit.is_behind_mark(mark)));
        let page = raw::<Scores>(leaf.page, session)?;
        let strings = Some(&self.strings);
        Ok(leaf.before + page.partition_point(|record| limit.is_behind(record, strings)))
    }

    /// Gives the records of these ranks to `visit`, the last first if they are to come
    /// `back`, until it breaks.
    pub(crate) fn visit(
        &self,
        from: usize,
        count: usize,
        back: bool,
        session: &Session,
        visit: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<(), Damaged> {
        let end = from.saturating_add(count).min(self.len());
        let (mut low, mut high) = (from, end);
        while low < high {
            let leaf = self.scores.leaf(ByRank(if back { high - 1 } else { low }));
            let page = raw::<Scores>(leaf.page, session)?;
            let within = low.max(leaf.before)..high.min(leaf.before + page.len());
            if within.is_empty() {
                break;
            }
            for n in 0..within.len() {
                let rank = if back { within.end - 1 - n } else { within.start + n };
                if visit(page.just::<Scores>(rank - leaf.before)).is_break() {
                    return Ok(());
                }
            }
            if back {
                high = within.start;
            } else {
                low = within.end;
            }
        }
        Ok(())
    }

    /// Gives a member whatever score `decide` makes of what it has; both are given back,
    /// that it had and that it has been given.
    pub(crate) fn put(
        &mut self,
        needle: &Needle,
        session: &Session,
        record: &mut Room,
        decide: impl FnOnce(Option<f64>) -> Option<f64>,
    ) -> Result<(Option<f64>, Option<f64>), Damaged> {
        let hash = hash_of_needle(needle);
        let key = u64::from(hash);
        let (scores, strings) = (&self.scores, &self.strings);
        let (old, new) = self.index.change(ByBound(|bound: &u64| key >= *bound), |page| {
            ready::<Members>(page, session)?;
            let at = find(scores, strings, page, hash, needle, session)?;
            let old = at.map(|at| score_of(&page.record(at)[HASH_LEN..]));
            let new = decide(old);
            if let Some(new) = new {
                write_entry(record, hash, new);
                match at {
                    Some(at) => page.replace::<Members>(at, record),
                    None => page.insert::<Members>(page.len(), record),
                }
            }
            Ok::<_, Damaged>((old, new))
        })?;
        let Some(score) = new else { return Ok((old, new)) };
        record.clear();
        element::write_score(record, score);
        match old {
            Some(old) => {
                self.take(old, needle, session, |member| record.put(member))?;
            }
            None => match needle {
                Needle::Short(element) => record.put(element),
                Needle::Large(chain, _) => {
                    element::write_large(record, self.strings.add(chain.clone()));
                }
            },
        }
        let (name, strings) = (Name::of_needle(needle), &self.strings);
        let bound = |left: &[u8], right: &[u8]| mark(left, right, Some(strings));
        let seek = ByBound(|mark: &Mark| is_behind(mark, score, name));
        self.scores.change_with(seek, &bound, |page| {
            ready::<Scores>(page, session)?;
            let at = place(page, score, name, strings);
            page.insert::<Scores>(at, record);
            Ok((old, new))
        })
    }

    /// Removes a member's record from the scores; its element is given to `taken`.
    fn take(
        &mut self,
        score: f64,
        needle: &Needle,
        session: &Session,
        taken: impl FnOnce(&[u8]),
    ) -> Result<(), Damaged> {
        let (name, strings) = (Name::of_needle(needle), &self.strings);
        self.scores.change(ByBound(|mark: &Mark| is_behind(mark, score, name)), |page| {
            ready::<Scores>(page, session)?;
            let at = place(page, score, name, strings);
            if at < page.len() {
                taken(member_of(page.just::<Scores>(at)));
                page.remove::<Scores>(at);
            }
            Ok(())
        })
    }

    /// Removes a member; whether it was there.
    pub(crate) fn remove(&mut self, needle: &Needle, session: &Session) -> Result<bool, Damaged> {
        let hash = hash_of_needle(needle);
        let key = u64::from(hash);
        let (scores, strings) = (&self.scores, &self.strings);
        let old = self.index.change(ByBound(|bound: &u64| key >= *bound), |page| {
            ready::<Members>(page, session)?;
            let Some(at) = find(scores, strings, page, hash, needle, session)? else {
                return Ok(None);
            };
            let old = score_of(&page.record(at)[HASH_LEN..]);
            page.remove::<Members>(at);
            Ok::<_, Damaged>(Some(old))
        })?;
        let Some(old) = old else { return Ok(false) };
        let mut member = Room::new();
        self.take(old, needle, session, |element| member.put(element))?;
        self.strings.remove_of(&member);
        Ok(true)
    }

    /// Removes the first or the last record, which is given to `taken`.
    pub(crate) fn pop(
        &mut self,
        last: bool,
        session: &Session,
        entry: &mut Room,
        mut taken: impl FnMut(Item<'_>, f64),
    ) -> Result<(), Damaged> {
        let (index, strings) = (&mut self.index, &mut self.strings);
        let rank = if last { LAST } else { 0 };
        self.scores.change(ByRank(rank), |page| {
            ready::<Scores>(page, session)?;
            let at = if last { page.len() - 1 } else { 0 };
            let record = page.just::<Scores>(at);
            let (score, member) = (score_of(record), member_of(record));
            taken(item(member, Some(strings)).0, score);
            forget(index, member, score, entry, session)?;
            strings.remove_of(member);
            page.remove::<Scores>(at);
            Ok(())
        })
    }

    /// Removes the records of these ranks. O(removed * log n).
    pub(crate) fn remove_range(
        &mut self,
        from: usize,
        count: usize,
        session: &Session,
    ) -> Result<(), Damaged> {
        if count == 0 {
            return Ok(());
        }
        for rank in [from, from + count - 1] {
            self.scores.change(ByRank(rank), |page| ready::<Scores>(page, session))?;
        }
        let (index, strings) = (&mut self.index, &mut self.strings);
        let (mut result, mut entry) = (Ok(()), Room::new());
        let mut gone = |record: &[u8]| {
            let (score, member) = (score_of(record), member_of(record));
            let forgotten = forget(index, member, score, &mut entry, session);
            strings.remove_of(member);
            forgotten
        };
        self.scores.remove_range(from, count, |what| {
            let removed = match what {
                Gone::Record(record) => gone(record),
                Gone::Page(page) => raw::<Scores>(page, session)
                    .and_then(|page| page.records::<Scores>().try_for_each(&mut gone)),
            };
            if result.is_ok() {
                result = removed;
            }
        });
        result
    }

    /// Gives members to `visit` in the order of their hashes, from `cursor` on: pages of
    /// the index as a whole, until at least `count` were given. Where to go on, 0 at the
    /// end. What is there all the time is given to who goes through all, whatever
    /// scores change meanwhile. A member is looked for among those of its score: O(these)
    /// for each page of the index.
    pub(crate) fn scan(
        &self,
        cursor: u64,
        count: usize,
        session: &Session,
        visit: &mut dyn FnMut(&[u8]),
    ) -> Result<u64, Damaged> {
        let (mut cursor, mut given) = (cursor, 0);
        let mut wanted: Vec<(f64, u32)> = Vec::new();
        while given < count {
            let leaf = self.index.leaf(ByBound(|bound: &u64| cursor >= *bound));
            let page = raw::<Members>(leaf.page, session)?;
            let records = page.records::<Members>();
            let here = records.filter(|record| Members::key_of(record) >= cursor);
            wanted.clear();
            wanted.extend(
                here.map(|record| (score_of(&record[HASH_LEN..]), Members::key_of(record) as u32)),
            );
            given += wanted.len();
            wanted.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            for same in wanted.chunk_by(|a, b| cmp_scores(a.0, b.0) == Ordering::Equal) {
                let from = self.rank_at(&Limit::Score(same[0].0, false), session)?;
                let to = self.rank_at(&Limit::Score(same[0].0, true), session)?;
                let mut left = same.len();
                self.visit(from, to - from, false, session, &mut |record| {
                    let hash = hash_of_member(member_of(record));
                    if same.iter().any(|&(_, wanted)| wanted == hash) {
                        visit(record);
                        left -= 1;
                    }
                    if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                })?;
            }
            match leaf.upper {
                Some(&upper) if upper > cursor => cursor = upper,
                _ => return Ok(0),
            }
        }
        Ok(cursor)
    }

    /// Panics if the two trees do not agree.
    #[cfg(test)]
    pub(crate) fn check(&self, session: &Session) {
        self.scores.check();
        self.index.check();
        assert_eq!(self.scores.len(), self.index.len());
        let mut last: Option<Vec<u8>> = None;
        self.visit(0, usize::MAX, false, session, &mut |record| {
            if let Some(last) = &last {
                let name = Name::of(member_of(record), Some(&self.strings));
                let order = cmp_record(last, score_of(record), name, Some(&self.strings));
                assert_eq!(order, Ordering::Less);
            }
            last = Some(record.to_vec());
            ControlFlow::Continue(())
        })
        .unwrap();
    }
}

impl Members {
    fn key_of(record: &[u8]) -> u64 {
        <Self as crate::types::pages::Order>::key(record)
    }
}

/// Where in a page of scores a score and a member are, or would be.
#[inline]
fn place(page: &Page, score: f64, name: Name<'_>, strings: &LargeStrings) -> usize {
    let strings = Some(strings);
    page.warm();
    page.partition_point(|record| cmp_record(record, score, name, strings) == Ordering::Less)
}

/// Where in a page of the index a member is: what has its hash, and is among the scores
/// with the score found.
#[inline]
fn find(
    scores: &Tree<Scores>,
    strings: &LargeStrings,
    page: &Page,
    hash: u32,
    needle: &Needle,
    session: &Session,
) -> Result<Option<usize>, Damaged> {
    let bytes = hash.to_le_bytes();
    let damaged = Cell::new(None);
    page.warm();
    let at = page.find(bytes[0], |record| {
        record.starts_with(&bytes) && {
            let score = score_of(&record[HASH_LEN..]);
            let holds = holds(scores, strings, score, needle, session);
            holds.unwrap_or_else(|why| {
                damaged.set(Some(why));
                true
            })
        }
    });
    match damaged.take() {
        Some(why) => Err(why),
        None => Ok(at),
    }
}

/// Whether a member has this score.
fn holds(
    scores: &Tree<Scores>,
    strings: &LargeStrings,
    score: f64,
    needle: &Needle,
    session: &Session,
) -> Result<bool, Damaged> {
    let name = Name::of_needle(needle);
    let page = scores.page(ByBound(|mark: &Mark| is_behind(mark, score, name)));
    let page = raw::<Scores>(page, session)?;
    let at = place(&page, score, name, strings);
    Ok(at < page.len() && {
        let record = page.record(at);
        cmp_scores(score_of(record), score) == Ordering::Equal
            && needle.is(member_of(record), Some(strings))
    })
}

/// Removes a member's entry from the index. Members that share the entry's bytes share
/// what is in it.
fn forget(
    index: &mut Tree<Members>,
    member: &[u8],
    score: f64,
    entry: &mut Room,
    session: &Session,
) -> Result<(), Damaged> {
    let hash = hash_of_member(member);
    let key = u64::from(hash);
    write_entry(entry, hash, score);
    index.change(ByBound(|bound: &u64| key >= *bound), |page| {
        ready::<Members>(page, session)?;
        page.warm();
        if let Some(at) = page.find(entry[0], |record| record.starts_with(entry)) {
            page.remove::<Members>(at);
        }
        Ok(())
    })
}
