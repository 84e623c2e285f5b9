//! A packed in-memory keyspace: databases of 16,384 slots, with Redis's
//! data types, usable without a server.
//!
//! ```
//! use snug_store::{Event, NewStr, Set, SetExpiry, Store, StoreConfig, Str, Unobserved};
//!
//! let store = Store::new(StoreConfig::default(), Box::new(Unobserved));
//! let mut session = store.session(); // one for each thread
//! let batch = session.enter(1_700_000_000_000); // the time, in milliseconds
//! let key = batch.key(b"greeting");
//!
//! let mut slot = batch.lock(0, &key);
//! let found = slot.find(&key);
//! let hello = Set { value: NewStr::Bytes(b"hello"), expiry: SetExpiry::Clear };
//! slot.apply(&key, found, hello, Event::NONE);
//!
//! let found = slot.find(&key).unwrap();
//! assert!(matches!(slot.string(found), Some(Str::Bytes(b"hello"))));
//! ```
//!
//! The way down: [`store`] (databases, sessions, locks) to [`slot`] (one
//! partition and its guard) to `cell/table` (its sorted cells) to `cell/entry` (a key
//! and its value in one allocation). [`types`] is the table of data types, and of the
//! forms in which values lie in memory. [`books`] counts. [`memory`] is the allocator
//! beneath.
//!
//! Rooms, of which each is to know only what stands to its right:
//!
//! ```text
//!  walks      session   keyspace         books   cell   types   pack   memory
//!  cooling    store     slot, keyspace,                                sharded
//!  eviction             reading, hash                                  timing
//!             away (values on disk, and the walks that bring them there)
//!             jobs, training, packing, large (and what reads packed strings)
//!             making, image (values on their way in and out)
//! ```
//!
//! Arrows that still point back: the string that a reader is given (`Str`) holds the
//! session that it unpacks with; a string's boxed forms are in `large`; `pack` asks
//! types for their names and whether they take phrases, and `policy`, and a piece's
//! parameters name the shape of streams; the books are
//! kept in counters that the store holds; eviction's and cooling's walks over one
//! slot are methods of its guard.
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod away;
pub mod books;
mod cell;
pub mod cooling;
mod crc16;
pub mod effect;
pub mod eviction;
mod hash;
pub mod image;
#[cfg(all(test, feature = "shuttle"))]
mod interleavings;
pub mod jobs;
mod keyspace;
pub mod large;
pub mod making;
pub mod memory;
mod pack;
pub mod packing;
pub mod policy;
mod reading;
pub mod sharded;
pub mod slot;
pub mod snapshot;
pub mod store;
mod sync;
mod timing;
pub mod training;
pub mod types;

pub use away::{Leaving, Lost, Moving, Tier};
pub use books::anatomy::{Anatomy, Packed};
pub use cell::entry::ACCESS_MAX;
pub use cooling::{Cooling, MEET_ONE_IN};
pub use effect::{Class, Commit, Delete, Event, Expire, Op, Replaced, Told};
pub use eviction::{Eviction, Lying, Order};
pub use hash::{Key, SLOTS, cluster_slot};
pub use jobs::{Extent, Job, Name, Names, Outcome, Piece, PieceWalk};
pub use large::{Lies, PackedChain, PackedLarge, WeakChain};
pub use making::{Limits, Making, Restore};
pub use pack::dictionaries::{DictionaryInfo, OwnDictionary};
pub use pack::families::{self, Families, KeyFamily};
pub use pack::form::Damaged;
pub use pack::keys::{KeyBytes, held as held_fragments};
pub use pack::piece::{Fate, PieceParams};
pub use pack::saving::MinSaving;
pub use packing::PackedStr;
pub use slot::{Detached, Found, Interest, NEW_READS, SetExpiry, SlotGuard, WRITTEN};
pub use snapshot::{Snapshot, Step, Taken};
pub use snug_tier as tier;
pub use store::{
    Batch, DATABASES, DATABASES_MAX, Exclusive, Expired, Flushed, GaveUp, GivesUp, Hold, Observer,
    Session, Store,
};
pub use store::{StoreConfig, TypeMemory, Unobserved};
pub use training::{Trained, Training};
pub use types::elements;
pub use types::hash::Hash;
pub use types::hash::ops::{
    ExpireFields, FieldExpiry, HashLimits, RemoveDue, RemoveFields, SetFields,
};
pub use types::pages::paged::Item;
pub use types::set::ops::{AddMembers, PutSet, RemoveElements, RemoveMembers, SetLimits};
pub use types::set::{Elements, Gathered, MemberSet};
pub use types::string::ops::{Append, Lengthen, Set, Write};
pub use types::string::{NewStr, Str, canonical_int};
pub use types::zset::ops::{ZAdd, ZAdded, ZLimits, ZPop, ZRemove, ZRemoveRange, ZWhen};
pub use types::zset::{Limit, ZSet};
pub use types::{Sink, Type, Unreadable, Unsaved};
