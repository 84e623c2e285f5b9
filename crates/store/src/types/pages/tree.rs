//! A counted B+tree of pages: what every large collection is.
//!
//! ```text
//!              [ bounds | counts | nodes ]
//!              /            |            \
//!     [ bounds | pages ]  [ ... ]      [ ... ]
//!       |    |    |
//!     page page page
//! ```
//!
//! A list is one by position; a hash and a set are one by their members' keys (a hash,
//! or the number itself where a member is one); a sorted set is one by score and member,
//! and another that finds a member's score. What is between two pages is a bound: all
//! records to its left are before it, those to its right are not.
//!
//! There is one way to change anything: [`change`](Tree::change) goes down to a page,
//! has it changed, and on the way back cuts what has grown too large, joins what has
//! become small with its neighbour, and keeps counts and weight. So no change costs more
//! than a page and the nodes above it: a collection grows by pages, and nothing is ever
//! converted as a whole.
//!
//! Cost: O(log n); one node of 128 in a collection of 10,000 items, two levels in one of
//! a million. 32 bytes and a bound beside each page.

use super::Order;
use super::page::{Page, Weight};
use crate::image::{Pen, Source};
use crate::memory::usable;
use crate::pack::dictionaries::HeldDictionary;
use snug_codec::Dictionary;
use std::io;
use std::sync::Arc;

/// The most children of a node.
const FAN: usize = if cfg!(test) { 6 } else { 128 };

#[derive(Debug)]
pub(crate) struct Tree<O: Order> {
    root: Node<O>,
    len: usize,
    totals: Totals,
    /// Bytes allocated for nodes.
    nodes: usize,
    /// Pages, and those of them that are to be packed.
    pages: usize,
}

#[derive(Debug)]
struct Node<O: Order> {
    /// One less than children: each is the bound in front of its right child.
    bounds: Vec<O::Bound>,
    children: Children<O>,
}

#[derive(Debug)]
enum Children<O: Order> {
    Pages(Vec<Page>),
    Nodes(Vec<(usize, Box<Node<O>>)>),
}

/// The way down to a page.
pub(crate) trait Seek<B> {
    /// Which of some children, whose bounds and counts these are, to go down to.
    fn child(&mut self, bounds: &[B], count: impl Fn(usize) -> usize) -> usize;
}

/// To the page that what is looked for is in, or would be: told by whether it is at or
/// behind a bound.
pub(crate) struct ByBound<F>(pub(crate) F);

impl<B, F: Fn(&B) -> bool> Seek<B> for ByBound<F> {
    #[inline]
    fn child(&mut self, bounds: &[B], _: impl Fn(usize) -> usize) -> usize {
        bounds.partition_point(|bound| (self.0)(bound))
    }
}

/// To the page of the record with this rank; the last for what is behind all. What is
/// left of the rank is that within the page. The first and [`LAST`] are found without a
/// look at the counts.
pub(crate) struct ByRank(pub(crate) usize);

/// The rank of what is behind all records.
pub(crate) const LAST: usize = usize::MAX;

impl<B> Seek<B> for ByRank {
    #[inline]
    fn child(&mut self, bounds: &[B], count: impl Fn(usize) -> usize) -> usize {
        if self.0 == LAST {
            return bounds.len();
        }
        for child in 0..bounds.len() {
            let count = count(child);
            if self.0 < count {
                return child;
            }
            self.0 -= count;
        }
        bounds.len()
    }
}

/// What all pages are together.
#[derive(Clone, Debug, Default)]
struct Totals {
    weight: Weight,
    /// The dictionaries that packed pages refer to, and how many do.
    held: Vec<(HeldDictionary, usize)>,
}

impl Totals {
    #[inline]
    fn add(&mut self, page: &Page) {
        self.weight += page.weight();
        if page.is_packed() {
            self.refer(page.dictionary_id(), 1);
        }
    }

    #[inline]
    fn remove(&mut self, page: &Page) {
        self.weight -= page.weight();
        if page.is_packed() {
            self.refer(page.dictionary_id(), -1);
        }
    }

    /// A page was changed that weighed so much.
    #[inline]
    fn change(&mut self, before: Before, page: &Page) {
        match before {
            Before::Raw { room, raw } if room == page.room() && !page.is_packed() => {
                self.weight.raw = self.weight.raw + page.raw_bytes() - raw;
            }
            Before::Raw { room, raw } => {
                self.weight -= Weight::of_raw(room, raw);
                self.add(page);
            }
            Before::Packed => self.add(page),
        }
    }

    /// What a page is before it is changed. A packed one is taken out.
    #[inline]
    fn before(&mut self, page: &Page) -> Before {
        if page.is_packed() {
            self.remove(page);
            return Before::Packed;
        }
        Before::Raw { room: page.room(), raw: page.raw_bytes() }
    }

    fn refer(&mut self, id: u32, count: isize) {
        let held = self.held.iter_mut().find(|(held, _)| held.dictionary().id() == id);
        if let Some((_, pages)) = held {
            *pages = pages.wrapping_add_signed(count);
        }
    }
}

/// What a page was before it was changed: most changes leave it raw, and of the same size.
#[derive(Clone, Copy)]
enum Before {
    Packed,
    Raw { room: usize, raw: usize },
}

/// A page of a tree, and where it is.
#[derive(Debug)]
pub(crate) struct Leaf<'t, O: Order> {
    pub(crate) page: &'t Page,
    /// Records before the page.
    pub(crate) before: usize,
    /// What is behind the page, if anything.
    pub(crate) upper: Option<&'t O::Bound>,
}

/// Where among its siblings a page is cut that has grown too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edge {
    None,
    First,
    Last,
}

/// What a change did to the node below.
struct Below {
    /// Records more than before.
    grown: isize,
    /// Nothing is left of it.
    is_empty: bool,
}

impl<O: Order> Tree<O> {
    pub(crate) fn new() -> Self {
        let root = Node { bounds: Vec::new(), children: Children::Pages(vec![Page::new()]) };
        let nodes = root.own();
        Self { root, len: 0, totals: Totals::default(), nodes, pages: 1 }
    }

    /// A tree of these records, which are in order if the order has one.
    pub(crate) fn of<'r>(records: impl Iterator<Item = &'r [u8]>) -> Self {
        let mut tree = Self::new();
        for record in records {
            if O::TAGGED {
                let key = O::bound(&[], record).expect("a bound in front of any record");
                tree.change(ByBound(|bound: &O::Bound| O::is_at_or_behind(&key, bound)), |page| {
                    page.insert::<O>(page.len(), record);
                });
            } else {
                tree.change(ByRank(LAST), |page| page.insert::<O>(page.len(), record));
            }
        }
        tree
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn pages(&self) -> usize {
        self.pages
    }

    /// What its pages and nodes weigh.
    pub(crate) fn weight(&self) -> Weight {
        let weight = self.totals.weight;
        Weight { allocated: weight.allocated + self.nodes, ..weight }
    }

    /// The page that `seek` leads to. O(log n).
    #[inline]
    pub(crate) fn page(&self, mut seek: impl Seek<O::Bound>) -> &Page {
        let mut node = &self.root;
        loop {
            let child = node.child(&mut seek);
            match &node.children {
                Children::Pages(pages) => return &pages[child],
                Children::Nodes(nodes) => node = &nodes[child].1,
            }
        }
    }

    /// The same, and where it is. O(log n), and a look at the counts beside the way.
    pub(crate) fn leaf(&self, mut seek: impl Seek<O::Bound>) -> Leaf<'_, O> {
        let (mut node, mut before, mut upper) = (&self.root, 0, None);
        loop {
            let child = node.child(&mut seek);
            before += (0..child).map(|n| node.count(n)).sum::<usize>();
            upper = node.bounds.get(child).or(upper);
            match &node.children {
                Children::Pages(pages) => return Leaf { page: &pages[child], before, upper },
                Children::Nodes(nodes) => node = &nodes[child].1,
            }
        }
    }

    /// Pages from the one that holds the record of this rank, each with the rank of its
    /// first record.
    pub(crate) fn leaves(&self, rank: usize) -> impl Iterator<Item = Leaf<'_, O>> {
        let mut next = (rank < self.len).then_some(rank);
        std::iter::from_fn(move || {
            let leaf = self.leaf(ByRank(next?));
            let end = leaf.before + leaf.page.len();
            next = (end < self.len && leaf.page.len() > 0).then_some(end);
            Some(leaf)
        })
    }

    /// Has the page changed that `seek` leads to, which is not packed then: the only way
    /// to change a tree. O(log n).
    #[inline]
    pub(crate) fn change<R>(
        &mut self,
        seek: impl Seek<O::Bound>,
        change: impl FnOnce(&mut Page) -> R,
    ) -> R {
        self.change_with(seek, &O::bound, change)
    }

    /// The same where more is known of records than lies in them: `bound` gives what is
    /// to stand between two, in the place of [`Order::bound`].
    #[inline]
    pub(crate) fn change_with<R>(
        &mut self,
        mut seek: impl Seek<O::Bound>,
        bound: Between<'_, O>,
        change: impl FnOnce(&mut Page) -> R,
    ) -> R {
        let mut books = Books { totals: &mut self.totals, bound, nodes: 0, pages: 0, cut: None };
        let (mut change, mut result) = (Some(change), None);
        let mut once = |page: &mut Page| result = change.take().map(|change| change(page));
        let below = self.root.change(&mut seek, &mut once, &mut books, (true, true));
        let (nodes, pages) = (books.nodes, books.pages);
        let cut = books.cut;
        self.nodes = self.nodes.wrapping_add_signed(nodes);
        self.pages = self.pages.wrapping_add_signed(pages);
        self.len = self.len.wrapping_add_signed(below.grown);
        if let Some((bound, right)) = cut {
            self.raise(bound, right);
        }
        self.lower();
        result.expect("every way down ends at a page")
    }

    /// Puts a root above the root, which was cut.
    fn raise(&mut self, bound: O::Bound, right: Node<O>) {
        let count = right.len();
        let left = std::mem::replace(
            &mut self.root,
            Node { bounds: vec![bound], children: Children::Nodes(Vec::with_capacity(2)) },
        );
        let Children::Nodes(nodes) = &mut self.root.children else { return };
        nodes.push((self.len - count, Box::new(left)));
        nodes.push((count, Box::new(right)));
        self.nodes += self.root.own() + 2 * usable(size_of::<Node<O>>());
    }

    /// Takes away roots with one child.
    fn lower(&mut self) {
        while let Children::Nodes(nodes) = &mut self.root.children
            && nodes.len() == 1
            && let Some((_, only)) = nodes.pop()
        {
            // What its vectors hold room for is still theirs until here.
            self.nodes -= self.root.own() + usable(size_of::<Node<O>>());
            self.root = *only;
        }
    }

    /// Removes the records of these ranks. Pages that go as a whole are given to `gone`
    /// first, packed or not; of others, each record. A page that is kept in part is not
    /// packed. O(pages + log n).
    pub(crate) fn remove_range(
        &mut self,
        from: usize,
        mut count: usize,
        mut gone: impl FnMut(Gone<'_>),
    ) {
        count = count.min(self.len.saturating_sub(from));
        while count > 0 {
            let mut removed = 0;
            let seek = ByRank(from);
            let within = {
                let leaf = self.leaf(ByRank(from));
                from - leaf.before
            };
            self.change(seek, |page| {
                let whole = within == 0 && page.len() <= count;
                removed = count.min(page.len() - within);
                if whole {
                    gone(Gone::Page(page));
                    *page = Page::new();
                    return;
                }
                for at in (within..within + removed).rev() {
                    gone(Gone::Record(page.just::<O>(at)));
                    page.remove::<O>(at);
                }
            });
            count -= removed;
        }
    }

    /// The page with the record of this rank, to note something in it that changes no
    /// record.
    pub(crate) fn note(&mut self, rank: usize, note: impl FnOnce(&mut Page)) {
        let mut seek = ByRank(rank);
        let mut node = &mut self.root;
        loop {
            let child = node.child(&mut seek);
            match &mut node.children {
                Children::Pages(pages) => {
                    let page = &mut pages[child];
                    self.totals.remove(page);
                    note(page);
                    self.totals.add(page);
                    return;
                }
                Children::Nodes(nodes) => node = &mut nodes[child].1,
            }
        }
    }

    /// Gives pages to `visit`, to be noted in and not changed, from the one with the
    /// record of this rank on, until it says no; the rank to go on from. O(log n + pages
    /// visited).
    pub(crate) fn visit_pages(
        &self,
        rank: usize,
        mut visit: impl FnMut(&Page) -> bool,
    ) -> Option<usize> {
        let mut at = 0;
        let goes_on = self.root.visit_pages(rank, &mut at, &mut visit);
        (!goes_on && at < self.len).then_some(at)
    }

    /// A tree that shares all pages with this one. O(pages).
    pub(crate) fn duplicate(&self) -> Self {
        let root = self.root.duplicate();
        let nodes = root.all_own();
        let totals = self.totals.clone();
        Self { root, len: self.len, totals, nodes, pages: self.pages }
    }

    /// Writes its pages, and the bound in front of each but the first.
    pub(crate) fn store(&self, pen: &mut dyn Pen) -> io::Result<()> {
        pen.number(self.leaves(0).count() as u64)?;
        let mut bound = None;
        for leaf in self.leaves(0) {
            if let Some(bound) = bound {
                O::put_bound(bound, pen)?;
            }
            leaf.page.store::<O>(pen)?;
            bound = leaf.upper;
        }
        Ok(())
    }

    /// Reads what [`store`](Self::store) wrote, and builds the nodes above it.
    pub(crate) fn fetch(source: &mut dyn Source) -> io::Result<Self> {
        let count = source.number()?;
        let mut tree = Self::new();
        let mut pages = Vec::new();
        for n in 0..count {
            let bound = if n == 0 { None } else { Some(O::take_bound(source)?) };
            let page = Page::fetch::<O>(source)?;
            let id = page.dictionary_id();
            if id != 0 && tree.dictionary(id).is_none() {
                tree.totals.held.push((source.dictionary(id)?, 0));
            }
            tree.totals.add(&page);
            tree.len += page.len();
            pages.push((bound, page));
        }
        if pages.is_empty() {
            return Ok(tree);
        }
        tree.pages = pages.len();
        let mut level = gathered(pages, Children::Pages);
        while level.len() > 1 {
            let nodes = level
                .into_iter()
                .map(|(bound, node): (_, Node<O>)| (bound, (node.len(), Box::new(node))));
            level = gathered(nodes.collect(), Children::Nodes);
        }
        if let Some((_, root)) = level.pop() {
            tree.root = root;
        }
        tree.nodes = tree.root.all_own();
        Ok(tree)
    }

    /// Keeps a dictionary that a page is about to refer to.
    pub(crate) fn hold(&mut self, held: &HeldDictionary) {
        let id = held.dictionary().id();
        self.totals.held.retain(|(held, pages)| *pages > 0 || held.dictionary().id() == id);
        if self.dictionary(id).is_none() {
            self.totals.held.push((held.clone(), 0));
        }
    }

    /// The dictionary with this id, if pages refer to it.
    pub(crate) fn dictionary(&self, id: u32) -> Option<Arc<Dictionary>> {
        let held = self.totals.held.iter().find(|(held, _)| held.dictionary().id() == id);
        held.map(|(held, _)| Arc::clone(held.dictionary()))
    }

    /// The dictionary that most packed pages refer to.
    pub(crate) fn main_dictionary(&self) -> Option<Arc<Dictionary>> {
        let most = self.totals.held.iter().max_by_key(|(_, pages)| *pages);
        most.map(|(held, _)| Arc::clone(held.dictionary()))
    }

    /// Panics if counts, weights or bounds are not what they should be.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        let (mut weight, mut pages) = (Weight::default(), 0);
        assert_eq!(self.root.check(&mut weight, &mut pages), self.len);
        assert_eq!((self.totals.weight, self.pages), (weight, pages));
        assert_eq!(self.nodes, self.root.all_own());
    }
}

/// Nodes of these children, each with the bound in front of it; not quite full.
fn gathered<O: Order, T>(
    children: Vec<(Option<O::Bound>, T)>,
    of: fn(Vec<T>) -> Children<O>,
) -> Vec<(Option<O::Bound>, Node<O>)> {
    const FILL: usize = FAN * 3 / 4;
    let mut children = children.into_iter().peekable();
    let mut nodes = Vec::new();
    while children.peek().is_some() {
        let (mut first, mut bounds, mut below) = (None, Vec::new(), Vec::new());
        for (n, (bound, child)) in children.by_ref().take(FILL).enumerate() {
            match bound {
                bound if n == 0 => first = bound,
                Some(bound) => bounds.push(bound),
                None => {}
            }
            below.push(child);
        }
        bounds.shrink_to_fit();
        below.shrink_to_fit();
        nodes.push((first, Node { bounds, children: of(below) }));
    }
    nodes
}

/// What goes when a range of records is removed.
pub(crate) enum Gone<'p> {
    /// A whole page, packed or not.
    Page(&'p Page),
    /// One record.
    Record(&'p [u8]),
}

/// Gives the bound between two records, if there can be one.
type Between<'b, O> = &'b dyn Fn(&[u8], &[u8]) -> Option<<O as Order>::Bound>;

struct Books<'b, O: Order> {
    totals: &'b mut Totals,
    bound: Between<'b, O>,
    nodes: isize,
    pages: isize,
    /// The right part of the node below, which was cut, and the bound in front of it, until
    /// the node above takes it in.
    cut: Option<(O::Bound, Node<O>)>,
}

impl<O: Order> Node<O> {
    #[inline]
    fn child(&self, seek: &mut impl Seek<O::Bound>) -> usize {
        seek.child(&self.bounds, |n| self.count(n))
    }

    #[inline]
    fn count(&self, child: usize) -> usize {
        match &self.children {
            Children::Pages(pages) => pages[child].len(),
            Children::Nodes(nodes) => nodes[child].0,
        }
    }

    fn children(&self) -> usize {
        self.bounds.len() + 1
    }

    fn len(&self) -> usize {
        (0..self.children()).map(|child| self.count(child)).sum()
    }

    /// Bytes that its own vectors have allocated.
    fn own(&self) -> usize {
        let vector = |capacity: usize, size: usize| match capacity * size {
            0 => 0,
            bytes => usable(bytes),
        };
        let bounds = vector(self.bounds.capacity(), size_of::<O::Bound>())
            + self.bounds.iter().map(O::bound_allocated).sum::<usize>();
        match &self.children {
            Children::Pages(pages) => bounds + vector(pages.capacity(), size_of::<Page>()),
            Children::Nodes(nodes) => {
                bounds + vector(nodes.capacity(), size_of::<(usize, Box<Self>)>())
            }
        }
    }

    /// The same of it and all nodes below.
    fn all_own(&self) -> usize {
        let below: usize = match &self.children {
            Children::Pages(_) => 0,
            Children::Nodes(nodes) => {
                nodes.iter().map(|(_, node)| node.all_own() + usable(size_of::<Self>())).sum()
            }
        };
        self.own() + below
    }

    /// What is returned is small, and all else goes by reference: this is on the way of every
    /// write to a large collection.
    fn change(
        &mut self,
        seek: &mut impl Seek<O::Bound>,
        change: &mut impl FnMut(&mut Page),
        books: &mut Books<'_, O>,
        (is_first, is_last): (bool, bool),
    ) -> Below {
        let child = self.child(seek);
        let edge = (is_first && child == 0, is_last && child == self.bounds.len());
        let grown = match &mut self.children {
            Children::Pages(pages) => {
                let page = &mut pages[child];
                let count = page.len();
                let before = books.totals.before(page);
                change(page);
                books.totals.change(before, page);
                let grown = page.len() as isize - count as isize;
                let is_large = page.len() > O::COUNT_MAX || page.raw_bytes() > O::BYTES_MAX;
                let is_small = page.len() * 4 < O::COUNT_MAX && page.raw_bytes() * 4 < O::BYTES_MAX;
                if is_large && !page.is_packed() {
                    self.structured(books, |node, books| node.cut_page(child, edge, books));
                } else if is_small && grown < 0 && self.can_join(child) {
                    self.structured(books, |node, books| node.join_page(child, books));
                }
                grown
            }
            Children::Nodes(nodes) => {
                let (count, node) = &mut nodes[child];
                let below = node.change(seek, change, books, edge);
                *count = count.wrapping_add_signed(below.grown);
                if below.is_empty || books.cut.is_some() {
                    self.structured(books, |node, books| node.take_in(child, books));
                }
                below.grown
            }
        };
        let children = self.children();
        if children > FAN {
            books.cut = Some(self.cut(edge.1, books));
        }
        Below { grown, is_empty: children == 1 && self.count(0) == 0 }
    }

    /// Changes its structure, and counts what that makes of its own bytes.
    fn structured(
        &mut self,
        books: &mut Books<'_, O>,
        change: impl FnOnce(&mut Self, &mut Books<'_, O>),
    ) {
        let before = self.own() as isize;
        change(self, books);
        books.nodes += self.own() as isize - before;
    }

    /// Cuts a page that has grown too large.
    fn cut_page(&mut self, child: usize, edge: (bool, bool), books: &mut Books<'_, O>) {
        let Children::Pages(pages) = &mut self.children else { return };
        let page = &pages[child];
        let edge = match edge {
            (_, true) => Edge::Last,
            (true, _) => Edge::First,
            _ => Edge::None,
        };
        let Some((left, bound, right)) = cut::<O>(page, edge, books.bound) else { return };
        books.totals.remove(page);
        books.totals.add(&left);
        books.totals.add(&right);
        books.pages += 1;
        pages[child] = left;
        pages.insert(child + 1, right);
        self.bounds.insert(child, bound);
    }

    /// The left one of the two pages that a small one may be joined from.
    fn left_of_joined(&self, child: usize) -> usize {
        if child < self.bounds.len() { child } else { child - 1 }
    }

    /// Whether a small page is empty, or can be joined with a neighbour; and is not alone.
    fn can_join(&self, child: usize) -> bool {
        let Children::Pages(pages) = &self.children else { return false };
        if pages.len() == 1 || pages[child].len() == 0 {
            return pages.len() > 1;
        }
        let left = self.left_of_joined(child);
        let (a, b) = (&pages[left], &pages[left + 1]);
        (a.len() + b.len()) * 2 <= O::COUNT_MAX
            && (a.raw_bytes() + b.raw_bytes()) * 2 <= O::BYTES_MAX
            && !a.is_packed()
            && !b.is_packed()
    }

    /// Removes an empty page, or joins a small one with a neighbour: it can be.
    fn join_page(&mut self, child: usize, books: &mut Books<'_, O>) {
        let left = self.left_of_joined(child);
        let Children::Pages(pages) = &mut self.children else { return };
        if pages[child].len() == 0 {
            books.totals.remove(&pages[child]);
            books.pages -= 1;
            pages.remove(child);
            self.bounds.remove(child.saturating_sub(1));
            shrink(pages);
            shrink(&mut self.bounds);
            return;
        }
        let (a, b) = (&pages[left], &pages[left + 1]);
        let joined = Page::of::<O>(a.records::<O>().chain(b.records::<O>()));
        joined.set_access(a.access().max(b.access()));
        books.totals.remove(a);
        books.totals.remove(b);
        books.totals.add(&joined);
        books.pages -= 1;
        pages[left] = joined;
        pages.remove(left + 1);
        self.bounds.remove(left);
        shrink(pages);
        shrink(&mut self.bounds);
    }

    /// Takes in what has become of a child: it was cut, or else nothing is left of it.
    fn take_in(&mut self, child: usize, books: &mut Books<'_, O>) {
        let Children::Nodes(nodes) = &mut self.children else { return };
        if let Some((bound, right)) = books.cut.take() {
            let count = right.len();
            nodes[child].0 -= count;
            nodes.insert(child + 1, (count, Box::new(right)));
            books.nodes += usable(size_of::<Self>()) as isize;
            self.bounds.insert(child, bound);
        } else if nodes.len() > 1 {
            let (_, gone) = nodes.remove(child);
            books.nodes -= (gone.all_own() + usable(size_of::<Self>())) as isize;
            books.pages -= gone.pages() as isize;
            gone.each_page(&mut |page| books.totals.remove(page));
            self.bounds.remove(child.saturating_sub(1));
            shrink(nodes);
            shrink(&mut self.bounds);
        }
    }

    /// Cuts itself in two; the bound between, and the right part.
    fn cut(&mut self, is_last: bool, books: &mut Books<'_, O>) -> (O::Bound, Self) {
        let before = self.own() as isize;
        // What grows at its end is left nearly full.
        let at = if is_last { FAN - FAN / 8 } else { FAN / 2 };
        let right = self.bounds.split_off(at);
        let bound = self.bounds.pop().expect("a node that is cut has bounds");
        let children = match &mut self.children {
            Children::Pages(pages) => Children::Pages(pages.split_off(at)),
            Children::Nodes(nodes) => Children::Nodes(nodes.split_off(at)),
        };
        let right = Self { bounds: right, children };
        books.nodes += (self.own() + right.own()) as isize - before;
        (bound, right)
    }

    fn pages(&self) -> usize {
        match &self.children {
            Children::Pages(pages) => pages.len(),
            Children::Nodes(nodes) => nodes.iter().map(|(_, node)| node.pages()).sum(),
        }
    }

    fn each_page(&self, visit: &mut dyn FnMut(&Page)) {
        match &self.children {
            Children::Pages(pages) => pages.iter().for_each(visit),
            Children::Nodes(nodes) => nodes.iter().for_each(|(_, node)| node.each_page(visit)),
        }
    }

    /// Visits pages whose end is behind `rank`; `at` is the rank where the node begins,
    /// and then where the visit ended.
    fn visit_pages(
        &self,
        rank: usize,
        at: &mut usize,
        visit: &mut dyn FnMut(&Page) -> bool,
    ) -> bool {
        for child in 0..self.children() {
            let end = *at + self.count(child);
            if end <= rank {
                *at = end;
                continue;
            }
            let goes_on = match &self.children {
                Children::Pages(pages) => {
                    *at = end;
                    visit(&pages[child])
                }
                Children::Nodes(nodes) => nodes[child].1.visit_pages(rank, at, visit),
            };
            if !goes_on {
                return false;
            }
        }
        true
    }

    fn duplicate(&self) -> Self {
        let children = match &self.children {
            Children::Pages(pages) => Children::Pages(pages.clone()),
            Children::Nodes(nodes) => Children::Nodes(
                nodes.iter().map(|(count, node)| (*count, Box::new(node.duplicate()))).collect(),
            ),
        };
        Self { bounds: self.bounds.clone(), children }
    }

    #[cfg(test)]
    fn check(&self, weight: &mut Weight, pages: &mut usize) -> usize {
        assert!(self.children() <= FAN);
        match &self.children {
            Children::Pages(all) => {
                assert_eq!(all.len(), self.children());
                all.iter().for_each(|page| *weight += page.weight());
                *pages += all.len();
            }
            Children::Nodes(nodes) => {
                assert_eq!(nodes.len(), self.children());
                for (count, node) in nodes {
                    assert_eq!(node.check(weight, pages), *count);
                    assert!(*count > 0);
                }
            }
        }
        self.len()
    }
}

/// Gives back room of a vector that is mostly empty.
fn shrink<T>(vector: &mut Vec<T>) {
    if vector.capacity() > 8 && vector.len() * 4 < vector.capacity() {
        vector.shrink_to(vector.len() * 2);
    }
}

/// Cuts a page in two where there can be a bound: near the middle, or near the edge at
/// which the tree grows. `None` if there is no such place.
fn cut<O: Order>(
    page: &Page,
    edge: Edge,
    between: Between<'_, O>,
) -> Option<(Page, O::Bound, Page)> {
    let mut records: Vec<&[u8]> = page.records::<O>().collect();
    if records.len() < 2 {
        return None;
    }
    if O::TAGGED {
        records.sort_by_cached_key(|record| O::key(record));
    }
    let half = page.raw_bytes() / 2;
    let mut bytes = 0;
    let middle = match edge {
        Edge::Last if !O::TAGGED || O::is_ascending(&records) => records.len() - 1,
        Edge::First if !O::TAGGED => 1,
        _ => records
            .iter()
            .take_while(|record| {
                bytes += record.len();
                bytes <= half
            })
            .count()
            .clamp(1, records.len() - 1),
    };
    // The places nearest to it come first.
    let places = (0..records.len()).flat_map(|n| [middle.wrapping_add(n), middle.wrapping_sub(n)]);
    for at in places.filter(|&at| (1..records.len()).contains(&at)) {
        if let Some(bound) = between(records[at - 1], records[at]) {
            let left = Page::of::<O>(records[..at].iter().copied());
            let right = Page::of::<O>(records[at..].iter().copied());
            left.set_access(page.access());
            right.set_access(page.access());
            return Some((left, bound, right));
        }
    }
    None
}
