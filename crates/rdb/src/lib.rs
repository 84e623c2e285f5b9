//! RDB: Redis's format of files, of what replicas are sent, and of `DUMP`, to and from the
//! values of a store. It knows bytes and values; no files, sockets, commands or clocks.
//!
//! # Writing
//!
//! ```text
//!  let mut writer = Writer::new(out, Options::DEFAULT);      out: impl io::Write
//!  writer.header(&[("redis-ver", "7.2.0"), ("ctime", ..)])?;
//!  writer.function(code)?;                                   each library, if any
//!  writer.database(db, keys, expiring)?;
//!  writer.entry(db, &detached, Meta::default(), (&session, &mut scratch))?;
//!  let out = writer.end()?;
//! ```
//!
//! A value is a [`Detached`](snug_store::Detached): what `SlotGuard::duplicate` copies
//! under the slot's lock, in the time that its references take. It is unpacked as it is
//! written, with no lock held and in constant memory. `out` may block as long as it likes:
//! whoever must not wait calls from a thread of its own.
//!
//! # Reading
//!
//! ```text
//!  let mut reader = Reader::new(input, ReadOptions::DEFAULT)?;      input: impl io::Read
//!  loop {
//!      match reader.next()? {
//!          Event::Key(head) => {
//!              reader.value(&head, &mut making)?;            making: session.making(&limits)
//!              let value = making.finish(&key, head.expiry, None);
//!              batch.load(db, value)?;                       or keep some, and load them at once
//!          }
//!          Event::End => break,
//!          ..
//!      }
//!  }
//!  let (input, unread) = reader.into_parts();                what stood behind the end
//! ```
//!
//! [`load`] is this loop, with keys loaded many at once. A reader takes all that Redis 2.8
//! to 7.4 and Valkey 8 write. Whatever the bytes are, it ends with a value or with an
//! error that says where and why, and never holds more than a small multiple of what it
//! has read of one value.
//!
//! # Dumps
//!
//! [`dump`] and [`restore`] are the same for one value.
//!
//! # Append-only files
//!
//! [`manifest`] is the file that tells which others they are made of.
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod loader;
mod lzf;
pub mod manifest;
mod numbers;
mod packs;
mod reader;
mod writer;

pub use loader::{Loaded, Loading, Refused, access, load};
pub use reader::{
    Error, Event, Head, NoDump, Problem, ReadOptions, Reader, VERSION_MAX, Wrong, restore,
    restore_functions,
};
pub use writer::{COMPRESS_MAX, FieldTimes, Meta, Options, Writer, dump, dump_functions, seal};
