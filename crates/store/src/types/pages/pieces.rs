//! How the pages of a large collection cool, and are packed: each is a piece of its own.
//!
//! A page has two access bits. Whoever uses it sets them, and each walk that cools takes
//! one off; so a page that nobody uses is packed at the second walk. A packed page that is
//! used again and again becomes raw in the same way, by a job. What is packed is the
//! records one behind the other, without offsets and tags, with the dictionary of the
//! family of the collection's key.
//!
//! Cost of a walk: some nanoseconds a page, at most [`PAGES_AT_ONCE`] pages. A job holds
//! the page by reference. It takes effect if the collection still has the page as it was,
//! which the address of its bytes tells.

use super::Order;
use super::compact::{self, Close, Strings};
use super::page::{Page, SHARED_HEADER};
use super::tree::{ByBound, ByRank, Tree};
use crate::memory::usable;
use crate::pack::dictionaries::HeldDictionary;
use crate::pack::families::KeyFamily;
use crate::pack::form::{Damaged, PACK_MAX};
use crate::pack::piece::{Damage, Fate, Lesson, PieceJob, Plans, Ran, Running, With};
use crate::pack::recipe::{Made, Recipe};
use crate::types::forms::{Asked, Installed, Met};
use snug_codec::{Codec, Dictionary, Workspace};
use std::any::Any;
use std::sync::Arc;

/// Pages that one meeting looks at.
const PAGES_AT_ONCE: usize = 16 * 1024;
/// A page that comes back may have moved by so many, where only its rank is known.
const NEIGHBOURS: usize = 16;

/// What storing a page without its offsets must save, in percent: reading it then takes
/// a microsecond or two more.
const STORED_SAVES: usize = 10;

/// How lately a page was used that is hot.
const HOT: u8 = 3;

/// What a tree notes of its pages' cooling.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cooled {
    /// The rank from which the next meeting goes on.
    from: usize,
    /// Pages that wait for a job, and the rank from which the next is looked for.
    pub(crate) pending: usize,
    next: usize,
}

/// A page that is out to be packed or unpacked.
#[derive(Debug)]
struct PagePiece<O: Order> {
    page: Page,
    /// Of its first record.
    rank: usize,
    /// What it is in front of, where pages are found so.
    bound: Option<O::Bound>,
    /// The dictionary that it is packed with.
    dictionary: Option<Arc<Dictionary>>,
    recipe: Option<Recipe>,
    /// The family that has judged it, whether that is to learn from it, and whether a
    /// dictionary of it is being trained.
    judged_by: Option<Arc<KeyFamily>>,
    learns: bool,
    awaits: bool,
    /// What it is packed from; its strings, if it is such.
    raw: Vec<u8>,
    strings: Option<Strings>,
    close: Option<Close>,
    made: Option<Outcome>,
}

#[derive(Debug)]
enum Outcome {
    Packed(Vec<u8>, Option<HeldDictionary>),
    Raw(Page),
    NotWorth,
}

impl<O: Order> Tree<O> {
    /// A walk that cools has met the collection; whether pages are to be worked on.
    pub(crate) fn cool(&mut self, cooled: &mut Cooled, met: &Met<'_>) -> bool {
        let recheck = met.recheck_raw || (met.new_dictionary)().is_some();
        let (mut left, mut pending) = (PAGES_AT_ONCE, 0);
        let rest = self.visit_pages(cooled.from, |page| {
            let access = page.access();
            if recheck || !page.is_packed() && (met.concerns)(page.raw_bytes()) {
                page.settle(false);
            }
            let wanted = match page.is_packed() {
                true => access == HOT && !met.keep_packed,
                false => {
                    let is_cold = access <= 1 || met.at_once && access < HOT;
                    let fits = page.raw_bytes() >= met.min_size && !met.expires_soon;
                    is_cold && fits && !page.is_settled()
                }
            };
            page.want(wanted);
            pending += usize::from(wanted);
            page.set_access(access.saturating_sub(1));
            left -= 1;
            left > 0
        });
        if cooled.from == 0 {
            cooled.pending = 0;
        }
        cooled.from = rest.unwrap_or(0);
        cooled.pending += pending;
        cooled.next = 0;
        cooled.pending > 0
    }

    /// The next page to be worked on, if there is one.
    pub(crate) fn next_piece(
        &mut self,
        cooled: &mut Cooled,
        asked: &Asked<'_>,
    ) -> Option<Box<dyn PieceJob>> {
        let (forced, walk) = (asked.forced, asked.walk);
        let mut found = None;
        let rank = match (walk, forced) {
            (Some(walk), _) => walk.at(),
            (None, true) => 0,
            (None, false) => cooled.next,
        };
        let rank = rank.min(self.len());
        let mut at = rank;
        let rest = self.visit_pages(rank, |page| {
            let is_it = match (walk, forced) {
                (Some(walk), _) => page.is_packed() == walk.unpacks() && page.len() > 0,
                (None, true) => !page.is_packed() && !page.is_settled() && page.len() > 0,
                (None, false) => page.is_wanted(),
            };
            if is_it {
                page.want(false);
                found = Some((page.clone(), at));
                return false;
            }
            at += page.len();
            true
        });
        if !forced {
            cooled.next = rest.unwrap_or(self.len());
            cooled.pending = match found {
                Some(_) => cooled.pending.saturating_sub(1),
                None => 0,
            };
        }
        if let Some(walk) = walk {
            walk.goes_on_at(found.as_ref().map_or(self.len(), |(page, at)| at + page.len()));
        }
        let (page, rank) = found?;
        let dictionary = self.dictionary(page.dictionary_id());
        let bound = (O::TAGGED && !page.is_packed() && page.len() > 0)
            .then(|| O::bound(&[], page.just::<O>(0)))
            .flatten();
        Some(Box::new(PagePiece::<O> {
            page,
            rank,
            bound,
            dictionary,
            recipe: None,
            judged_by: None,
            learns: false,
            awaits: false,
            raw: Vec::new(),
            strings: None,
            close: None,
            made: None,
        }))
    }

    /// Puts what has come of a page into its place, if it is as it was.
    pub(crate) fn install_piece(&mut self, job: &mut dyn PieceJob) -> Installed {
        let Some(piece) = (job as &mut dyn Any).downcast_mut::<PagePiece<O>>() else {
            return Installed::Not;
        };
        let Some(made) = piece.made.take() else { return Installed::Not };
        let Some(rank) = self.rank_of(piece) else { return Installed::Not };
        if let Outcome::Packed(_, Some(held)) = &made {
            self.hold(held);
        }
        self.note(rank, |page| match made {
            Outcome::Packed(form, _) => {
                page.pack(&form);
                page.set_access(0);
            }
            Outcome::Raw(raw) => *page = raw,
            Outcome::NotWorth => page.settle(true),
        });
        Installed::Here
    }

    /// Where the page of a piece is now, if it is as it was.
    fn rank_of(&self, piece: &PagePiece<O>) -> Option<usize> {
        if let Some(bound) = &piece.bound {
            let leaf = self.leaf(ByBound(|other: &O::Bound| O::is_at_or_behind(bound, other)));
            return leaf.page.is_same(&piece.page).then_some(leaf.before);
        }
        let (mut back, mut forth) = (Some(piece.rank), Some(piece.rank));
        for _ in 0..NEIGHBOURS {
            for at in [forth, back].into_iter().flatten().filter(|&rank| rank < self.len()) {
                let leaf = self.leaf(ByRank(at));
                if leaf.page.is_same(&piece.page) {
                    return Some(leaf.before);
                }
            }
            let step = |rank: usize, forth: bool| {
                let leaf = self.leaf(ByRank(rank));
                match forth {
                    true => Some(leaf.before + leaf.page.len()).filter(|&rank| rank < self.len()),
                    false => leaf.before.checked_sub(1),
                }
            };
            forth = forth.filter(|&rank| rank < self.len()).and_then(|rank| step(rank, true));
            back = back.and_then(|rank| step(rank.min(self.len().saturating_sub(1)), false));
        }
        None
    }
}

impl<O: Order> PieceJob for PagePiece<O> {
    fn raw_bytes(&self) -> usize {
        self.page.raw_bytes()
    }

    fn subject(&self) -> ((&[u8], &[u8]), usize) {
        ((&[], &[]), self.page.raw_bytes())
    }

    fn packs(&self) -> bool {
        !self.page.is_packed()
    }

    fn prepare(&mut self, plan: &Plans<'_>) {
        if self.packs() {
            self.close = Close::of::<O>(&self.page);
            if self.close.as_ref().is_some_and(|close| close.is_varied) {
                return;
            }
            let may_wait = plan.params.awaits_dictionaries && !plan.forced;
            let by_zstd = O::IS_CODED && plan.choice.codec == Codec::Zstd;
            if may_wait && by_zstd && (plan.family)().awaits_dictionary() {
                self.awaits = true;
                return;
            }
            self.raw = compact::write::<O>(&self.page);
            self.strings = Strings::of::<O>(&self.page);
            let learns_now = self.strings.is_none();
            self.recipe = O::IS_CODED.then(|| plan.recipe(&self.raw, learns_now)).flatten();
            self.judged_by = self.recipe.as_ref().map(|recipe| Arc::clone(recipe.family()));
            self.learns = by_zstd
                && !learns_now
                && (self.judged_by.as_ref())
                    .is_some_and(|family| family.is_learning(plan.families, self.raw.len()));
        }
    }

    fn run<'j>(&'j mut self, with: With<'j>) -> Running<'j> {
        Box::pin(async move {
            if self.awaits {
                return Ran { came: Fate::Awaits, ..Ran::default() };
            }
            let raw_bytes = self.page.raw_bytes();
            if let Some(form) = self.page.packed() {
                with.room.clear();
                let unpacked = with.workspace.unpack(form, &self.dictionary, with.room, PACK_MAX);
                let raw = unpacked.map_err(Damaged::from);
                let came = match raw.and_then(|()| self.page.unpacked::<O>(with.room)) {
                    Ok(raw) => {
                        self.made = Some(Outcome::Raw(raw));
                        Fate::Unpacked
                    }
                    Err(_) => Fate::Nothing,
                };
                return Ran { raw_bytes, came, ..Ran::default() };
            }
            let mut raw = std::mem::take(&mut self.raw);
            let close = self.close.take().map(|close| close.bytes);
            let strings = self.strings.take();
            let made = self.recipe.take().map(|recipe| {
                let strings = strings.as_ref().map(|s| (s.all(), &s.counted[..]));
                recipe.pack_as_either(with.workspace, &raw, strings, with.room)
            });
            let texts = match &made {
                Some(Made::Packed { form, held }) if self.learns => {
                    let dictionary = held.as_ref().map(|held| Arc::clone(held.dictionary()));
                    match with.workspace.samples_of_strings(form, &dictionary) {
                        none if none.is_empty() => vec![raw.clone()],
                        texts => texts,
                    }
                }
                _ => Vec::new(),
            };
            let (mut codec, mut damage) = (None, None);
            let (made, came) = match made {
                Some(Made::Packed { form, held })
                    if close.as_ref().is_none_or(|close| form.len() <= close.len()) =>
                {
                    let came = Fate::Packed(form.len());
                    (Outcome::Packed(form, held), came)
                }
                made => {
                    damage = matches!(made, Some(Made::NotBack)).then_some(Damage::NotBack);
                    if let Some(close) = close.filter(|c| raw.is_empty() || c.len() < raw.len()) {
                        raw = close;
                    }
                    match stored(&self.page, &raw, with.workspace) {
                        Some(form) => {
                            codec = Some(Codec::None);
                            let came = Fate::Packed(form.len().min(raw_bytes));
                            (Outcome::Packed(form, None), came)
                        }
                        None => (Outcome::NotWorth, Fate::NotWorth),
                    }
                }
            };
            self.made = Some(made);
            let lesson = self.judged_by.take();
            let lesson = lesson.map(|family| Lesson { family, judges: None, texts, tried: None });
            Ran { raw_bytes, came, codec, damage, lesson }
        })
    }
}

/// A page that no codec makes smaller, as it is without its offsets, tags and free room,
/// if that saves enough: members that are random are packed in this way, integers close to
/// each other.
fn stored(page: &Page, raw: &[u8], workspace: &mut Workspace) -> Option<Vec<u8>> {
    let mut form = Vec::with_capacity(raw.len() + 4);
    workspace.pack(Codec::None, 0, None, raw, &mut form).ok()?;
    let (before, after) = (page.weight().allocated, usable(SHARED_HEADER + form.len()));
    (after * 100 <= before * (100 - STORED_SAVES)).then_some(form)
}
