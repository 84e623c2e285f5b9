//! Strings of the first database by their names, for tests of how they are packed.

use snug_store::{Batch, Event, Found, NewStr, Set, SlotGuard, Store, Str, Type};

pub(crate) fn set(batch: &Batch<'_>, name: &[u8], value: &[u8]) {
    let key = batch.key(name);
    let mut slot = batch.lock(0, &key);
    let found = slot.find(&key);
    slot.apply(&key, found, Set::to(NewStr::Bytes(value)), Event::NONE);
}

/// What `look` tells of a key that is there, which does not count as a read.
fn untouched<T>(
    batch: &Batch<'_>,
    name: &[u8],
    look: impl FnOnce(&SlotGuard<'_>, Found) -> T,
) -> T {
    let key = batch.key(name);
    let mut slot = batch.lock(0, &key);
    let found = slot.find_untouched(&key).expect("the key is there");
    look(&slot, found)
}

pub(crate) fn is_packed(batch: &Batch<'_>, name: &[u8]) -> bool {
    untouched(batch, name, |slot, found| {
        matches!(slot.string(found), Some(Str::Packed(_) | Str::PackedLarge(_)))
    })
}

/// The codec that a value is packed with, none if it is raw.
pub(crate) fn codec(batch: &Batch<'_>, name: &[u8]) -> &'static str {
    untouched(batch, name, |slot, found| slot.anatomy(found).codec)
}

/// Nothing is counted any more.
pub(crate) fn assert_none_are_held(store: &Store) {
    let memory = store.type_memory(Type::String);
    assert_eq!((memory.allocated, memory.raw, memory.packed_from, memory.packed), (0, 0, 0, 0));
    assert_eq!((memory.raw_values, memory.packed_values), (0, 0));
}
