//! Consumer groups: who reads a stream together, how far they are, and what
//! they were given and have not acknowledged.
//!
//! ```text
//!  Groups, in order of name
//!   `-- Group
//!        |-- last_id, entries_read     how far it has been delivered
//!        |-- consumers                 by number; a list of numbers by name
//!        `-- pending                   one list: each entry names its consumer
//! ```
//!
//! There is one list of pending entries per group (`pending`), none per
//! consumer. A consumer knows how many entries are its own and between which
//! IDs they lie at most, so the search for them passes over what is before and
//! after: a worker that has a few of the newest entries in hand finds them at
//! once, however many are pending for others.
//!
//! What is counted and answered follows Redis's `t_stream.c`; nothing here
//! knows of replies.

use super::id::StreamId;
use super::pending::{Pending, PendingEntry, Sought};
use super::range::StreamScratch;
use super::{Stream, StreamError, usable};

/// A consumer's number within its group. Given to another one after the
/// consumer is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsumerId(u32);

impl PendingEntry {
    /// The consumer that owns it.
    pub fn owner(&self) -> ConsumerId {
        ConsumerId(self.consumer)
    }
}

/// One consumer of a group.
#[derive(Clone, Debug)]
pub struct Consumer {
    name: Box<[u8]>,
    seen: u64,
    active: Option<u64>,
    pending: u64,
    /// Its pending entries lie between these at most.
    lowest: StreamId,
    highest: StreamId,
}

impl Consumer {
    /// Its name.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// When it last tried to read or claim, Unix milliseconds.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// When it last read or claimed something, Unix milliseconds.
    pub fn active(&self) -> Option<u64> {
        self.active
    }

    /// How many entries it has pending.
    pub fn pending(&self) -> u64 {
        self.pending
    }

    fn heap_bytes(&self) -> usize {
        usable(self.name.len())
    }
}

/// What is known of a stream's course, from which a group's position in it is
/// told.
#[derive(Clone, Copy, Debug)]
pub struct Course {
    len: u64,
    entries_added: u64,
    first_id: StreamId,
    last_id: StreamId,
    max_deleted_id: StreamId,
}

impl Course {
    /// Whether an entry deleted at or after `from` makes counting unreliable.
    fn has_gaps_from(&self, from: StreamId) -> bool {
        self.len > 0
            && self.max_deleted_id != StreamId::MIN
            && self.first_id <= self.max_deleted_id
            && from <= self.max_deleted_id
    }

    /// How many entries were ever added up to `id`, if that can be told.
    fn entries_until(&self, id: StreamId) -> Option<u64> {
        if self.entries_added == 0 {
            return Some(0);
        }
        if self.len == 0 && id <= self.last_id || id == self.last_id {
            return Some(self.entries_added);
        }
        if id > self.last_id {
            return None;
        }
        let whole = self.max_deleted_id == StreamId::MIN || self.max_deleted_id < self.first_id;
        let before_first = self.entries_added.saturating_sub(self.len);
        if whole && id < self.first_id {
            Some(before_first)
        } else if whole && id == self.first_id {
            Some(before_first + 1)
        } else {
            None
        }
    }
}

/// How far a group has been delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The last entry delivered.
    pub last_id: StreamId,
    /// How many entries were delivered since the stream began, if known.
    pub entries_read: Option<u64>,
}

impl Position {
    /// Goes on to the entry of `id`, which is delivered.
    pub fn advance(&mut self, id: StreamId, course: &Course) {
        if id <= self.last_id {
            return;
        }
        match &mut self.entries_read {
            Some(read) if !course.has_gaps_from(id) => *read = read.wrapping_add(1),
            read if course.entries_added > 0 => *read = course.entries_until(id),
            _ => {}
        }
        self.last_id = id;
    }
}

/// A consumer group.
#[derive(Debug)]
pub struct Group {
    name: Box<[u8]>,
    last_id: StreamId,
    entries_read: Option<u64>,
    consumers: Vec<Option<Consumer>>,
    /// Numbers of consumers, in order of their names.
    by_name: Vec<u32>,
    /// What the consumers themselves have allocated.
    consumer_bytes: usize,
    pending: Pending,
}

impl Clone for Group {
    fn clone(&self) -> Self {
        Self {
            name: self.name.clone(),
            consumers: self.consumers.clone(),
            by_name: self.by_name.clone(),
            pending: self.pending.clone(),
            ..*self
        }
    }
}

impl Group {
    fn new(name: &[u8], last_id: StreamId, entries_read: Option<u64>) -> Self {
        Self {
            name: name.into(),
            last_id,
            entries_read,
            consumers: Vec::new(),
            by_name: Vec::new(),
            consumer_bytes: 0,
            pending: Pending::default(),
        }
    }

    /// Its name.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// The last entry delivered.
    pub fn last_id(&self) -> StreamId {
        self.last_id
    }

    /// How many entries were delivered since the stream began, if known.
    pub fn entries_read(&self) -> Option<u64> {
        self.entries_read
    }

    /// What is pending.
    pub fn pending(&self) -> &Pending {
        &self.pending
    }

    /// Sets how far the group has been delivered.
    pub fn set_id(&mut self, last_id: StreamId, entries_read: Option<u64>) {
        self.last_id = last_id;
        self.entries_read = entries_read;
    }

    /// How many entries are still to be delivered, if that can be told. Both
    /// counts may be set to whatever a client says, and what is out of an `i64`
    /// begins anew at its other end, as in Redis.
    pub fn lag(&self, course: &Course) -> Option<i64> {
        let lag = |read: u64| (course.entries_added as i64).wrapping_sub(read as i64);
        if course.entries_added == 0 {
            return Some(0);
        }
        match self.entries_read {
            Some(read) if !course.has_gaps_from(self.last_id) => Some(lag(read)),
            _ => course.entries_until(self.last_id).map(lag),
        }
    }

    fn name_place(&self, name: &[u8]) -> Result<usize, usize> {
        self.by_name.binary_search_by(|&number| {
            self.consumers[number as usize].as_ref().map_or(&[][..], Consumer::name).cmp(name)
        })
    }

    /// The consumer of that name.
    pub fn find_consumer(&self, name: &[u8]) -> Option<ConsumerId> {
        self.name_place(name).ok().map(|at| ConsumerId(self.by_name[at]))
    }

    /// The consumer of that name, made if there is none, and whether it was.
    pub fn make_consumer(&mut self, name: &[u8], now: u64) -> (ConsumerId, bool) {
        let at = match self.name_place(name) {
            Ok(at) => return (ConsumerId(self.by_name[at]), false),
            Err(at) => at,
        };
        let consumer = Consumer {
            name: name.into(),
            seen: now,
            active: None,
            pending: 0,
            lowest: StreamId::MAX,
            highest: StreamId::MIN,
        };
        self.consumer_bytes += consumer.heap_bytes();
        let vacant = if self.by_name.len() < self.consumers.len() {
            self.consumers.iter().position(Option::is_none)
        } else {
            None
        };
        let number = vacant.unwrap_or_else(|| {
            self.consumers.push(None);
            self.consumers.len() - 1
        });
        self.consumers[number] = Some(consumer);
        self.by_name.insert(at, number as u32);
        (ConsumerId(number as u32), true)
    }

    /// A consumer of this group.
    pub fn consumer(&self, id: ConsumerId) -> Option<&Consumer> {
        self.consumers.get(id.0 as usize)?.as_ref()
    }

    fn consumer_mut(&mut self, number: u32) -> Option<&mut Consumer> {
        self.consumers.get_mut(number as usize)?.as_mut()
    }

    /// All consumers, in order of name.
    pub fn consumers(&self) -> impl ExactSizeIterator<Item = (ConsumerId, &Consumer)> {
        self.by_name.iter().map(|&number| {
            let consumer = self.consumers[number as usize].as_ref();
            (ConsumerId(number), consumer.expect("a number by name has its consumer"))
        })
    }

    /// Notes that a consumer tries to read or claim.
    pub fn saw(&mut self, id: ConsumerId, now: u64) {
        if let Some(consumer) = self.consumer_mut(id.0) {
            consumer.seen = now;
        }
    }

    /// Notes that a consumer was given something.
    pub fn was_active(&mut self, id: ConsumerId, now: u64) {
        if let Some(consumer) = self.consumer_mut(id.0) {
            consumer.active = Some(now);
        }
    }

    /// Removes a consumer and what is pending for it; how much that was.
    pub fn remove_consumer(&mut self, id: ConsumerId) -> u64 {
        let Some(consumer) = self.consumers.get_mut(id.0 as usize).and_then(Option::take) else {
            return 0;
        };
        self.consumer_bytes -= consumer.heap_bytes();
        self.by_name.retain(|&number| number != id.0);
        while let Some(None) = self.consumers.last() {
            self.consumers.pop();
        }
        if self.by_name.is_empty() {
            (self.by_name, self.consumers) = Default::default();
        }
        if consumer.pending > 0 {
            self.pending.remove_all_of(id.0);
        }
        consumer.pending
    }

    /// How far it has been delivered.
    pub fn position(&self) -> Position {
        Position { last_id: self.last_id, entries_read: self.entries_read }
    }

    /// Makes an entry pending for a consumer, whoever had it before.
    pub fn assign(&mut self, id: StreamId, to: ConsumerId, delivered: u64, count: u64) {
        let entry = PendingEntry { id, consumer: to.0, delivered, count };
        let was = self.pending.put(entry);
        if was.is_some_and(|was| was.consumer == to.0) {
            return;
        }
        if let Some(was) = was {
            self.lost(was.consumer);
        }
        if let Some(consumer) = self.consumer_mut(to.0) {
            consumer.pending += 1;
            consumer.lowest = consumer.lowest.min(id);
            consumer.highest = consumer.highest.max(id);
        }
    }

    /// Makes an entry pending no longer; whether it was.
    pub fn acknowledge(&mut self, id: StreamId) -> bool {
        let Some(entry) = self.pending.remove(id) else { return false };
        self.lost(entry.consumer);
        true
    }

    fn lost(&mut self, number: u32) {
        if let Some(consumer) = self.consumer_mut(number) {
            consumer.pending -= 1;
            if consumer.pending == 0 {
                consumer.lowest = StreamId::MAX;
                consumer.highest = StreamId::MIN;
            }
        }
    }

    /// The first pending entry of a consumer at or after `from`.
    pub fn next_of(&self, id: ConsumerId, from: StreamId) -> Option<PendingEntry> {
        self.pending_between((from, StreamId::MAX), Some(id), u64::MAX).next()
    }

    /// The pending entries from the first ID to the last, of one consumer or of
    /// all, that were delivered at `delivered_max` (Unix milliseconds) or before.
    /// One search, and then from chunk to chunk.
    pub fn pending_between(
        &self,
        (mut first, mut last): (StreamId, StreamId),
        of: Option<ConsumerId>,
        delivered_max: u64,
    ) -> impl Iterator<Item = PendingEntry> + '_ {
        if let Some(id) = of {
            let bounds = self.consumer(id).map(|consumer| (consumer.lowest, consumer.highest));
            let (lowest, highest) = bounds.unwrap_or((StreamId::MAX, StreamId::MIN));
            (first, last) = (first.max(lowest), last.min(highest));
        }
        let consumer = of.map(|id| id.0);
        let sought = Sought { first, last, consumer, delivered_max };
        (first <= last).then(|| self.pending.select(sought)).into_iter().flatten()
    }

    /// As [`next_of`](Self::next_of), and remembers where nothing was found:
    /// the next search does not look there again.
    pub fn next_of_noted(&mut self, id: ConsumerId, from: StreamId) -> Option<PendingEntry> {
        let found = self.next_of(id, from);
        let consumer = self.consumer_mut(id.0)?;
        match found {
            Some(found) if from <= consumer.lowest => consumer.lowest = found.id,
            Some(_) => {}
            None => {
                if let Some(before) = from.prev() {
                    consumer.highest = consumer.highest.min(before);
                }
            }
        }
        found
    }

    /// The bytes allocated. O(1).
    fn heap_bytes(&self) -> usize {
        usable(self.name.len())
            + usable(self.consumers.capacity() * size_of::<Option<Consumer>>())
            + usable(self.by_name.capacity() * size_of::<u32>())
            + self.consumer_bytes
            + self.pending.heap_bytes()
    }
}

/// The groups of a stream.
#[derive(Debug, Default)]
pub struct Groups {
    /// In order of name.
    list: Vec<Group>,
    /// What the groups themselves have allocated.
    group_bytes: usize,
}

impl Clone for Groups {
    fn clone(&self) -> Self {
        let list = self.list.clone();
        let group_bytes = list.iter().map(Group::heap_bytes).sum();
        Self { list, group_bytes }
    }
}

impl Groups {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// All groups, in order of name.
    pub fn iter(&self) -> std::slice::Iter<'_, Group> {
        self.list.iter()
    }

    fn place(&self, name: &[u8]) -> Result<usize, usize> {
        self.list.binary_search_by(|group| group.name().cmp(name))
    }

    /// The group of that name.
    pub fn get(&self, name: &[u8]) -> Option<&Group> {
        self.place(name).ok().map(|at| &self.list[at])
    }

    fn create(&mut self, name: &[u8], last_id: StreamId, entries_read: Option<u64>) -> bool {
        let Err(at) = self.place(name) else { return false };
        let group = Group::new(name, last_id, entries_read);
        self.group_bytes += group.heap_bytes();
        self.list.insert(at, group);
        true
    }

    fn remove(&mut self, name: &[u8]) -> bool {
        let Ok(at) = self.place(name) else { return false };
        let group = self.list.remove(at);
        self.group_bytes -= group.heap_bytes();
        true
    }

    /// The bytes allocated, the structure itself included. O(1).
    pub(super) fn heap_bytes(&self) -> usize {
        usable(size_of::<Self>())
            + usable(self.list.capacity() * size_of::<Group>())
            + self.group_bytes
    }
}

impl<'a> IntoIterator for &'a Groups {
    type Item = &'a Group;
    type IntoIter = std::slice::Iter<'a, Group>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl Stream {
    /// The stream's groups, if it has any.
    pub fn groups(&self) -> Option<&Groups> {
        self.groups.as_deref()
    }

    /// The group of that name.
    pub fn group(&self, name: &[u8]) -> Option<&Group> {
        self.groups()?.get(name)
    }

    /// Makes a group; false if there is one of that name.
    pub fn create_group(
        &mut self,
        name: &[u8],
        last_id: StreamId,
        entries_read: Option<u64>,
    ) -> bool {
        self.groups.get_or_insert_default().create(name, last_id, entries_read)
    }

    /// Removes a group; false if there is none of that name.
    pub fn remove_group(&mut self, name: &[u8]) -> bool {
        let Some(groups) = &mut self.groups else { return false };
        let removed = groups.remove(name);
        if groups.is_empty() {
            self.groups = None;
        }
        removed
    }

    /// Changes a group, with the stream at hand to read; `None` if there is
    /// none of that name.
    pub fn with_group<R>(
        &mut self,
        name: &[u8],
        change: impl FnOnce(&Stream, &mut Group) -> R,
    ) -> Option<R> {
        // Apart from its groups the stream stays as it is, and readable.
        let mut groups = self.groups.take()?;
        let result = groups.place(name).ok().map(|at| {
            let group = &mut groups.list[at];
            let before = group.heap_bytes();
            let result = change(self, group);
            let after = group.heap_bytes();
            groups.group_bytes = groups.group_bytes + after - before;
            result
        });
        self.groups = Some(groups);
        result
    }

    /// What groups are measured by.
    pub fn course(&self, scratch: &mut StreamScratch) -> Result<Course, StreamError> {
        Ok(Course {
            len: self.len,
            entries_added: self.entries_added,
            first_id: self.first_id(scratch)?.unwrap_or(StreamId::MIN),
            last_id: self.last_id,
            max_deleted_id: self.max_deleted_id,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Shape;
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    /// A group as Redis keeps it: each consumer has a list of its own too.
    #[derive(Clone, Default)]
    struct Model {
        pending: BTreeMap<StreamId, (Vec<u8>, u64, u64)>,
        consumers: BTreeMap<Vec<u8>, BTreeSet<StreamId>>,
    }

    #[derive(Clone, Debug)]
    enum Step {
        Assign(u64, u8, u64),
        Acknowledge(u64),
        Remove(u8),
        Next(u8, u64),
        Clone,
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => (0u64..400, 0u8..9, 0u64..5).prop_map(|(id, c, n)| Step::Assign(id, c, n)),
            4 => (0u64..400).prop_map(Step::Acknowledge),
            1 => (0u8..9).prop_map(Step::Remove),
            4 => (0u8..9, 0u64..400).prop_map(|(c, id)| Step::Next(c, id)),
            1 => Just(Step::Clone),
        ]
    }

    fn name(consumer: u8) -> Vec<u8> {
        format!("c{consumer}").into_bytes()
    }

    fn step(stream: &mut Stream, model: &mut Model, step: &Step) {
        if let Step::Clone = step {
            *stream = stream.duplicate();
            return;
        }
        let done = stream.with_group(b"g", |_, group| match *step {
            Step::Assign(ms, consumer, count) => {
                let (id, consumer) = (StreamId::new(ms, 0), name(consumer));
                let (number, new) = group.make_consumer(&consumer, 7);
                assert_eq!(new, !model.consumers.contains_key(&consumer));
                group.assign(id, number, ms + 1, count);
                if let Some((owner, ..)) = model.pending.get(&id) {
                    model.consumers.get_mut(owner).unwrap().remove(&id);
                }
                model.consumers.entry(consumer.clone()).or_default().insert(id);
                model.pending.insert(id, (consumer, ms + 1, count));
            }
            Step::Acknowledge(ms) => {
                let id = StreamId::new(ms, 0);
                let was = model.pending.remove(&id);
                assert_eq!(group.acknowledge(id), was.is_some());
                if let Some((owner, ..)) = was {
                    model.consumers.get_mut(&owner).unwrap().remove(&id);
                }
            }
            Step::Remove(consumer) => {
                let consumer = name(consumer);
                let found = group.find_consumer(&consumer);
                let removed = found.map(|found| group.remove_consumer(found));
                let was = model.consumers.remove(&consumer);
                assert_eq!(removed, was.as_ref().map(|own| own.len() as u64));
                model.pending.retain(|_, (owner, ..)| *owner != consumer);
            }
            Step::Next(consumer, ms) => {
                let Some(number) = group.find_consumer(&name(consumer)) else { return };
                let from = StreamId::new(ms, 0);
                let own = &model.consumers[&name(consumer)];
                let expected = own.range(from..).next().copied();
                assert_eq!(group.next_of(number, from).map(|entry| entry.id), expected);
                assert_eq!(group.next_of_noted(number, from).map(|entry| entry.id), expected);
                let last = StreamId::new(ms + 100, 0);
                let found = group.pending_between((from, last), Some(number), u64::MAX);
                let found: Vec<_> = found.map(|entry| entry.id).collect();
                assert_eq!(found, own.range(from..=last).copied().collect::<Vec<_>>());
            }
            Step::Clone => {}
        });
        assert_eq!(done, Some(()));
    }

    fn check(stream: &Stream, model: &Model) {
        let group = stream.group(b"g").unwrap();
        let names: Vec<_> = group.consumers().map(|(_, one)| one.name().to_vec()).collect();
        assert_eq!(names, model.consumers.keys().cloned().collect::<Vec<_>>());
        for (id, consumer) in group.consumers() {
            let own = &model.consumers[consumer.name()];
            assert_eq!(consumer.pending(), own.len() as u64);
            assert_eq!(group.find_consumer(consumer.name()), Some(id));
        }
        assert_eq!(group.pending().len(), model.pending.len());
        for (id, (owner, delivered, count)) in &model.pending {
            let entry = group.pending().get(*id).unwrap();
            assert_eq!((entry.delivered, entry.count), (*delivered, *count));
            assert_eq!(group.consumer(entry.owner()).unwrap().name(), owner);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 200 }))]
        #[test]
        fn behaves_as_lists_of_its_own_for_each_consumer(
            steps in prop::collection::vec(any_step(), 1..200)
        ) {
            let mut stream = Stream::new();
            stream.create_group(b"g", StreamId::MIN, None);
            let mut model = Model::default();
            for each in &steps {
                step(&mut stream, &mut model, each);
            }
            check(&stream, &model);
        }
    }

    #[test]
    fn counts_at_their_end_wrap() {
        let mut stream = Stream::new();
        let shape = Shape::default();
        let fields = || [(&b"a"[..], &b"b"[..])].into_iter();
        stream.append(StreamId::new(1, 1), fields(), &shape).unwrap();
        stream.create_group(b"g", StreamId::new(1, 1), Some(i64::MAX as u64));
        stream.append(StreamId::new(3, 1), fields(), &shape).unwrap();
        let lag = stream.with_group(b"g", |stream, group| {
            let course = stream.course(&mut StreamScratch::new()).unwrap();
            let mut position = group.position();
            position.advance(StreamId::new(3, 1), &course);
            group.set_id(position.last_id, position.entries_read);
            (group.entries_read().map(|read| read as i64), group.lag(&course))
        });
        assert_eq!(lag, Some((Some(i64::MIN), Some(i64::MIN + 2))));
    }

    #[test]
    fn groups_are_kept_in_order_of_name() {
        let mut stream = Stream::new();
        assert!(stream.groups().is_none() && !stream.remove_group(b"x"));
        for name in ["b", "a", "c"] {
            assert!(stream.create_group(name.as_bytes(), StreamId::MIN, None));
        }
        assert!(!stream.create_group(b"a", StreamId::MAX, None));
        let names: Vec<_> = stream.groups().unwrap().iter().map(Group::name).collect();
        assert_eq!(names, [b"a", b"b", b"c"]);
        for name in ["b", "a", "c"] {
            assert!(stream.remove_group(name.as_bytes()));
        }
        assert!(stream.groups().is_none());
        assert_eq!(stream.memory().allocated, 0);
    }
}
