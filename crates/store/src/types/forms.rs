//! The table of forms: how a value lies in memory, and what can be done with it
//! there.
//!
//! ```text
//!  cell's 4 bits   form       in the entry                        beside it
//!  0 .. 12         inline     length, key, bytes                  -
//!                  packed     length, key, a packed form          -
//!  14              boxed      form's number, key, pointer         a box
//!  15              boxed      the same, of what is packed whole   a box
//! ```
//!
//! Each type lists its forms ([`FormRow`]), and the table is made of these lists when
//! the crate is compiled; two of one number are an error then. A packed form has the
//! header of `snug_codec::packed` whatever its type, so what lies in an entry is
//! weighed, packed and unpacked here alike for all types. What is boxed is a type of
//! Rust's that implements [`Boxed`]; its operations are kept as functions
//! ([`BoxedOps`]), which are made from that and nowhere written by hand.
//!
//! Numbers:
//!
//! | inline | form | boxed | form |
//! | --- | --- | --- | --- |
//! | 0 | string, an integer | 0 | string, a chain of segments |
//! | 1, 3 | string, as it was set; packed | 1 | string, a packed chain |
//! | 2, 4 | string, changed in place; packed | 2 | stream |
//! | 5, 6 | small list; packed | 3 | list |
//! | 7, 8 | small hash; packed | 4 | hash |
//! | 9, 10 | small set; packed | 5 | set |
//! | 11, 12 | small sorted set; packed | 6 | sorted set |
//!
//! Whatever lies in an entry or in a box may be away instead: its bytes are on disk, and
//! the entry has where ([`crate::away`]). That is no row of a type's: it is the form that it
//! had, marked, which the entry has in the first byte of its value. To whoever reads it as
//! it lies there, it is a packed form of a version that there is not: an error.
//!
//! ```text
//!  cell's 4 bits   form       in the entry                        beside it
//!  13              away       length, key, form, place ...        a record on disk
//! ```
#![allow(unsafe_code)]

use super::{ROWS, Type};
use crate::image::{Pen, Source};
use crate::jobs::PieceWalk;
use crate::memory::usable;
use crate::pack::dictionaries::OwnDictionary;
use crate::pack::form;
use crate::pack::piece::{PieceJob, PieceParams, Samples};
use snug_codec::Dictionary;
use std::any::TypeId;
use std::io;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

/// How a value lies in memory: a row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Form(u8);

/// Forms below lie in their entries, the others in boxes.
const FIRST_BOXED: u8 = 16;
const FORMS_MAX: usize = 32;

/// The bits in a cell of what lies on disk.
const AWAY: u8 = 13;
/// Marks the form of a value that lies on disk.
const IS_AWAY: u8 = 32;
/// Marks it in its entry: the version that no packed form has.
const AWAY_BYTE: u8 = 3 << 6;

/// The bits in a cell of what is boxed, and of what is boxed and packed as a whole.
const BOXED: u8 = 14;
const BOXED_PACKED: u8 = 15;

impl Form {
    pub(crate) const fn inline(number: u8) -> Self {
        assert!(number < AWAY);
        Self(number)
    }

    pub(crate) const fn boxed(number: u8) -> Self {
        assert!(number < FORMS_MAX as u8 - FIRST_BOXED);
        Self(FIRST_BOXED + number)
    }

    /// The form of what is in a box, by the number that its entry has of it.
    #[inline]
    pub(crate) fn in_box(number: u8) -> Self {
        debug_assert!(number < FORMS_MAX as u8 - FIRST_BOXED);
        Self(FIRST_BOXED + number)
    }

    fn row(self) -> &'static FormRow {
        match FORMS[usize::from(self.0 & !IS_AWAY)] {
            Some(row) => row,
            None => unreachable!("a value of form {}", self.0),
        }
    }

    /// The type whose form it is.
    #[inline]
    pub(crate) fn type_of(self) -> Type {
        Type::ALL[usize::from(TYPE_OF[usize::from(self.0 & !IS_AWAY)])]
    }

    /// Whether the value lies on disk.
    #[inline]
    pub(crate) fn is_away(self) -> bool {
        self.0 & IS_AWAY != 0
    }

    /// The form that a value of this one has while it is on disk.
    pub(crate) fn away(self) -> Self {
        debug_assert!(self.0 < FORMS_MAX as u8);
        Self(self.0 | IS_AWAY)
    }

    /// The form that a value has in memory.
    pub(crate) fn home(self) -> Self {
        Self(self.0 & !IS_AWAY)
    }

    /// A packed form of the same type, which nothing is of that has no bytes: what is to
    /// be an error for whoever reads it is shown as that.
    pub(crate) fn unreadable(self) -> Self {
        let packed = |row: &&FormRow| matches!(row.lies, Lies::Packed { .. });
        let row = self.type_of().row().forms.iter().find(packed);
        row.map_or(self.home(), |row| row.form)
    }

    /// The form that a value of this one has once it is packed inside its entry, if it
    /// can be; its own if it is.
    pub(crate) fn packed(self) -> Option<Self> {
        debug_assert!(!self.is_away());
        match self.row().lies {
            Lies::Inline { packed } => packed,
            Lies::Packed { .. } => Some(self),
            Lies::Boxed(_) => None,
        }
    }

    /// The form that a value of this one has once it is unpacked inside its entry; its
    /// own if it is not packed there.
    pub(crate) fn unpacked(self) -> Self {
        match self.row().lies {
            Lies::Packed { raw } => raw,
            Lies::Inline { .. } | Lies::Boxed(_) => self,
        }
    }

    /// What a cell has of it.
    #[inline]
    pub(crate) fn bits(self) -> Bits {
        if self.is_away() {
            return Bits(AWAY);
        }
        Bits(match self.0.checked_sub(FIRST_BOXED) {
            None => self.0,
            Some(boxed) => BOXED + (PACKED_BOXED >> boxed & 1) as u8,
        })
    }

    /// Whether values of this form lie in boxes, when they are in memory.
    pub(crate) fn is_boxed(self) -> bool {
        self.0 & !IS_AWAY >= FIRST_BOXED
    }

    /// What the entry of a boxed one has of it.
    #[inline]
    pub(crate) fn boxed_number(self) -> Option<u8> {
        if self.is_away() { None } else { self.0.checked_sub(FIRST_BOXED) }
    }

    /// Its number, as files have it.
    pub(crate) fn number(self) -> u8 {
        self.0
    }

    /// The form of a value on disk, by the first byte that its entry has of it.
    pub(crate) fn of_away_byte(byte: u8) -> Self {
        debug_assert!(byte & AWAY_BYTE == AWAY_BYTE && byte & !AWAY_BYTE < FORMS_MAX as u8);
        Self(byte & !AWAY_BYTE | IS_AWAY)
    }

    /// That byte.
    pub(crate) fn away_byte(self) -> u8 {
        self.home().0 | AWAY_BYTE
    }

    /// The form of this number, if there is one.
    pub(crate) fn of_number(number: u8) -> Option<Self> {
        FORMS.get(usize::from(number))?.map(|row| row.form)
    }

    /// Reads a value of this form, if such values lie in boxes.
    pub(crate) fn fetch(self, source: &mut dyn Source) -> Option<io::Result<Owned>> {
        match &self.row().lies {
            Lies::Boxed(ops) => Some((ops.fetch)(source)),
            Lies::Inline { .. } | Lies::Packed { .. } => None,
        }
    }

    fn ops(self) -> &'static BoxedOps {
        match &self.row().lies {
            Lies::Boxed(ops) => ops,
            Lies::Inline { .. } | Lies::Packed { .. } => unreachable!("form {} in a box", self.0),
        }
    }
}

/// What a cell tells of a value's form: all of what lies in the entry, and of what
/// does not, that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bits(pub(crate) u8);

impl Bits {
    /// The form, if the value lies in its entry.
    #[inline]
    pub(crate) fn inline(self) -> Option<Form> {
        (self.0 < AWAY).then_some(Form(self.0))
    }

    /// Whether the value lies on disk.
    #[inline]
    pub(crate) fn is_away(self) -> bool {
        self.0 == AWAY
    }

    #[inline]
    pub(crate) fn is_boxed(self) -> bool {
        self.0 >= BOXED
    }

    /// Whether the value lies raw in its entry and can be packed there.
    #[inline]
    pub(crate) fn is_raw_inline(self) -> bool {
        RAW_INLINE >> self.0 & 1 == 1
    }

    /// Whether its packed form lies in its entry; or, to be asked first where that makes
    /// a difference, whether it [is on disk](Self::is_away).
    #[inline]
    pub(crate) fn is_packed_inline(self) -> bool {
        PACKED_INLINE >> self.0 & 1 == 1
    }

    /// Whether the value is packed as a whole, wherever it lies.
    #[inline]
    pub(crate) fn is_packed(self) -> bool {
        (PACKED_INLINE | 1 << BOXED_PACKED) >> self.0 & 1 == 1
    }
}

/// A form as its type lists it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FormRow {
    form: Form,
    lies: Lies,
}

#[derive(Clone, Copy, Debug)]
enum Lies {
    /// In the entry, as it is.
    Inline { packed: Option<Form> },
    /// In the entry, packed.
    Packed { raw: Form },
    /// In a box.
    Boxed(BoxedOps),
}

impl FormRow {
    /// A value in its entry that is never packed.
    pub(crate) const fn plain(form: Form) -> Self {
        Self { form, lies: Lies::Inline { packed: None } }
    }

    /// A value in its entry, raw, that becomes another form when it is packed.
    pub(crate) const fn packs(form: Form, packed: Form) -> Self {
        Self { form, lies: Lies::Inline { packed: Some(packed) } }
    }

    /// The packed form of one that is `raw` when it is unpacked.
    pub(crate) const fn packed(form: Form, raw: Form) -> Self {
        Self { form, lies: Lies::Packed { raw } }
    }

    /// Whether values of this form lie in their entries and can be packed there.
    pub(crate) fn packs_inline(&self) -> bool {
        matches!(self.lies, Lies::Inline { packed: Some(_) })
    }

    /// Whether values of this form lie in a box.
    pub(crate) fn is_boxed(&self) -> bool {
        matches!(self.lies, Lies::Boxed(_))
    }

    /// A value in a box of its own.
    pub(crate) const fn boxed<T: Boxed>() -> Self {
        Self { form: T::FORM, lies: Lies::Boxed(BoxedOps::of::<T>()) }
    }
}

/// By number. Made from what the types list.
static FORMS: [Option<&FormRow>; FORMS_MAX] = TABLE.0;
/// Which type's form each is.
static TYPE_OF: [u8; FORMS_MAX] = TABLE.1;
const RAW_INLINE: u16 = inline_mask(false);
const PACKED_INLINE: u16 = inline_mask(true) | 1 << AWAY;
const PACKED_BOXED: u16 = packed_boxed_mask();

const TABLE: ([Option<&FormRow>; FORMS_MAX], [u8; FORMS_MAX]) = {
    let mut table: [Option<&FormRow>; FORMS_MAX] = [None; FORMS_MAX];
    let mut types = [0; FORMS_MAX];
    let mut row = 0;
    while row < ROWS.len() {
        let forms = ROWS[row].forms;
        let mut n = 0;
        while n < forms.len() {
            let number = forms[n].form.0 as usize;
            assert!(table[number].is_none(), "two forms of one number");
            table[number] = Some(&forms[n]);
            types[number] = row as u8;
            n += 1;
        }
        row += 1;
    }
    (table, types)
};

const fn inline_mask(is_packed: bool) -> u16 {
    let (mut mask, mut n) = (0, 0);
    while n < FIRST_BOXED as usize {
        let is_it = match TABLE.0[n] {
            Some(FormRow { lies: Lies::Inline { packed: Some(_) }, .. }) => !is_packed,
            Some(FormRow { lies: Lies::Packed { .. }, .. }) => is_packed,
            _ => false,
        };
        mask |= (is_it as u16) << n;
        n += 1;
    }
    mask
}

const fn packed_boxed_mask() -> u16 {
    let (mut mask, mut n) = (0, 0);
    while n < FORMS_MAX - FIRST_BOXED as usize {
        if let Some(FormRow { lies: Lies::Boxed(ops), .. }) = TABLE.0[n + FIRST_BOXED as usize] {
            mask |= (ops.is_packed as u16) << n;
        }
        n += 1;
    }
    mask
}

/// What a value weighs, its entry aside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Measure {
    /// Bytes allocated, as the allocator rounds them.
    pub(crate) allocated: usize,
    /// Bytes of what can be packed, before it is.
    pub(crate) raw: usize,
    /// Of these what is packed, and into how many.
    pub(crate) packed_from: usize,
    pub(crate) packed: usize,
    /// Pieces that await packing by themselves.
    pub(crate) pending: usize,
}

/// How a boxed value is packed, for those who report.
#[derive(Clone, Debug)]
pub(crate) struct Packing {
    /// The codec of what is packed; `none` where nothing is.
    pub(crate) codec: &'static str,
    /// The dictionary that it is packed with, if there is one.
    pub(crate) dictionary: Option<Arc<Dictionary>>,
    /// Bytes that it would have allocated, its box included, if nothing of it were
    /// packed.
    pub(crate) allocated_raw: usize,
}

/// What a walk that cools tells a boxed value that it has met.
pub(crate) struct Met<'m> {
    /// How lately it was used, 0 to 3.
    pub(crate) access: u8,
    /// What is not hot counts as cold.
    pub(crate) at_once: bool,
    /// What is packed stays so however often it is read.
    pub(crate) keep_packed: bool,
    /// What is raw is to be looked at again: the rules have changed.
    pub(crate) recheck_raw: bool,
    /// It expires too soon to be worth packing.
    pub(crate) expires_soon: bool,
    /// The least length worth packing.
    pub(crate) min_size: usize,
    /// Whether another policy may decide differently on a value of so many bytes.
    pub(crate) concerns: &'m dyn Fn(usize) -> bool,
    /// The dictionary of the family of its key, if that has got one since a walk came
    /// by last.
    pub(crate) new_dictionary: &'m dyn Fn() -> Option<u32>,
}

/// What a boxed value wants, now that a walk has met it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    Nothing,
    /// Pieces of it are to be packed: it awaits that by itself.
    Pieces,
    /// To be packed as a whole.
    Pack,
    /// To be unpacked as a whole.
    Unpack,
}

/// What is asked of a boxed value that is to hand out a piece.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) params: &'a PieceParams,
    /// How lately the value was used, 0 to 3.
    pub(crate) access: u8,
    /// Somebody wants it now, whatever its age and what it looks like.
    pub(crate) forced: bool,
    /// Somebody goes through all pieces of it, if it has pages.
    pub(crate) walk: Option<&'a PieceWalk>,
}

/// How a value is when a piece of it comes back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Back {
    /// How lately the value was used, 0 to 3.
    pub(crate) access: u8,
    /// The piece was wanted whatever its age.
    pub(crate) forced: bool,
    /// The dictionary of the family of its key, if that came while the piece was out.
    pub(crate) new_dictionary: Option<u32>,
}

/// What became of a piece that came back.
#[derive(Debug)]
pub(crate) enum Installed {
    /// The value is no longer as it was when the piece was taken: nothing has changed.
    Not,
    /// It has its place, packed, or known now as not worth packing.
    Here,
    /// The value as a whole has another form now: this.
    As(Owned),
}

/// A value that wants a dictionary of its own and not only its family's.
pub(crate) trait Learner {
    /// Whether it has grown enough since the last try for another.
    fn wants_dictionary(&self) -> bool;

    /// Samples to train one on. Unpacks nothing: its slot is locked.
    fn samples(&self) -> Option<Box<dyn Samples>>;

    /// Takes what was trained on these samples, if they are still its own; `None` says
    /// that no dictionary was worth it.
    fn adopt(&mut self, dictionary: Option<OwnDictionary>, samples: &dyn Samples);
}

/// A value that lies in a box.
///
/// # Safety
/// `FORM` is of no other type that implements this.
pub(crate) unsafe trait Boxed: Send + Sized + 'static {
    const FORM: Form;
    /// Whether it is packed as a whole.
    const IS_PACKED: bool = false;
    /// Whether a duplicate shares the bytes, so that all of it can be read after the
    /// slot's lock is gone.
    const IS_SHARED: bool = false;
    /// Whether it is packed piece by piece, and never as a whole.
    const IS_IN_PARTS: bool = false;
    /// Whether its pieces cool each by itself, so that every walk is to meet it, however
    /// lately the value was used.
    const COOLS_IN_PARTS: bool = false;

    /// What it weighs without the box itself. O(1).
    fn measure(&self) -> Measure;

    /// A value of its own with the same contents.
    fn duplicate(&self) -> Self;

    /// How it is packed. Reads headers at most.
    fn packing(&self) -> Packing;

    /// What its type notes of it to tell its encoding by.
    fn notes(&self) -> u8 {
        0
    }

    /// What is to become of it now that a walk has met it. May change itself to make
    /// pieces ready.
    fn cool(&mut self, met: &Met<'_>) -> Wish;

    /// What freeing it takes, as Redis reckons it: about its parts, whatever their
    /// bytes, and 1 for a string.
    fn effort(&self) -> usize;

    /// The next of its pieces to be packed away from all locks, by reference or copied;
    /// none when there is nothing to do. It is asked while [`Measure::pending`] is not 0,
    /// or when it [wished](Wish) to change as a whole. Microseconds: the slot is locked.
    fn next_job(&mut self, _: &Asked<'_>) -> Option<Box<dyn PieceJob>> {
        None
    }

    /// Takes back a piece that it handed out, with what came of it, if that piece is
    /// still as it was (`pack/identity.rs`). The job may be another value's.
    fn install(&mut self, _: &mut dyn PieceJob, _: &Back) -> Installed {
        Installed::Not
    }

    /// Itself, if it may have a dictionary of its own.
    fn learner(&mut self) -> Option<&mut (dyn Learner + 'static)> {
        None
    }

    /// Writes itself as it lies in memory, packed where it is packed.
    fn store(&self, pen: &mut dyn Pen) -> io::Result<()>;

    /// Reads what [`store`](Self::store) wrote. Whatever that is, it gives a value or an
    /// error; a value that does not fit together is told from one that does by reading
    /// it.
    fn fetch(source: &mut dyn Source) -> io::Result<Self>;
}

/// [`Boxed::next_job`] of a value in this box.
type NextJob = unsafe fn(NonNull<u8>, &Asked<'_>) -> Option<Box<dyn PieceJob>>;

/// What can be done with a value in a box, whatever it is.
#[derive(Clone, Copy, Debug)]
struct BoxedOps {
    is: fn() -> TypeId,
    is_packed: bool,
    is_shared: bool,
    is_in_parts: bool,
    cools_in_parts: bool,
    drop: unsafe fn(NonNull<u8>),
    measure: unsafe fn(NonNull<u8>) -> Measure,
    duplicate: unsafe fn(NonNull<u8>) -> NonNull<u8>,
    packing: unsafe fn(NonNull<u8>) -> Packing,
    notes: unsafe fn(NonNull<u8>) -> u8,
    cool: unsafe fn(NonNull<u8>, &Met<'_>) -> Wish,
    effort: unsafe fn(NonNull<u8>) -> usize,
    next_job: NextJob,
    install: unsafe fn(NonNull<u8>, &mut dyn PieceJob, &Back) -> Installed,
    learner: unsafe fn(NonNull<u8>) -> Option<NonNull<dyn Learner>>,
    store: unsafe fn(NonNull<u8>, &mut dyn Pen) -> io::Result<()>,
    fetch: fn(&mut dyn Source) -> io::Result<Owned>,
}

impl BoxedOps {
    const fn of<T: Boxed>() -> Self {
        fn put<T>(value: T) -> NonNull<u8> {
            NonNull::from(Box::leak(Box::new(value))).cast()
        }
        // SAFETY, of each: called with a box of this form, that is, of a `T`.
        Self {
            is: TypeId::of::<T>,
            is_packed: T::IS_PACKED,
            is_shared: T::IS_SHARED,
            is_in_parts: T::IS_IN_PARTS,
            cools_in_parts: T::COOLS_IN_PARTS,
            drop: |at| unsafe { drop(Box::from_raw(at.cast::<T>().as_ptr())) },
            measure: |at| {
                let measure = unsafe { at.cast::<T>().as_ref() }.measure();
                Measure { allocated: measure.allocated + usable(size_of::<T>()), ..measure }
            },
            duplicate: |at| put(unsafe { at.cast::<T>().as_ref() }.duplicate()),
            packing: |at| unsafe { at.cast::<T>().as_ref() }.packing(),
            notes: |at| unsafe { at.cast::<T>().as_ref() }.notes(),
            cool: |at, met| unsafe { at.cast::<T>().as_mut() }.cool(met),
            effort: |at| unsafe { at.cast::<T>().as_ref() }.effort(),
            next_job: |at, asked| unsafe { at.cast::<T>().as_mut() }.next_job(asked),
            install: |at, job, back| unsafe { at.cast::<T>().as_mut() }.install(job, back),
            learner: |at| unsafe { at.cast::<T>().as_mut() }.learner().map(NonNull::from),
            store: |at, pen| unsafe { at.cast::<T>().as_ref() }.store(pen),
            fetch: |source| T::fetch(source).map(Owned::new),
        }
    }
}

/// The owner of a boxed value.
#[derive(Debug)]
pub(crate) struct Owned {
    form: Form,
    at: NonNull<u8>,
}

// SAFETY: it owns a box of a type that is `Send`.
unsafe impl Send for Owned {}

impl Owned {
    pub(crate) fn new<T: Boxed>(value: T) -> Self {
        debug_assert!((T::FORM.ops().is)() == TypeId::of::<T>());
        Self { form: T::FORM, at: NonNull::from(Box::leak(Box::new(value))).cast() }
    }

    /// # Safety
    /// `at` came from [`into_raw`](Self::into_raw) of a value of this form, and is
    /// nobody else's.
    pub(crate) unsafe fn from_raw(form: Form, at: NonNull<u8>) -> Self {
        Self { form, at }
    }

    /// Gives up the ownership.
    pub(crate) fn into_raw(self) -> NonNull<u8> {
        let at = self.at;
        std::mem::forget(self);
        at
    }

    pub(crate) fn form(&self) -> Form {
        self.form
    }

    /// The value.
    pub(crate) fn value(&self) -> Value<'_> {
        // SAFETY: it is there as long as this.
        unsafe { Value::boxed(self.form, self.at) }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: a box of this form, not used again.
        unsafe { (self.form.ops().drop)(self.at) }
    }
}

/// A value, where it lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Value<'v> {
    form: Form,
    lies: At<'v>,
}

#[derive(Clone, Copy, Debug)]
enum At<'v> {
    Entry(&'v [u8]),
    Box(NonNull<u8>),
}

impl<'v> Value<'v> {
    #[inline]
    pub(crate) fn inline(form: Form, bytes: &'v [u8]) -> Self {
        Self { form, lies: At::Entry(bytes) }
    }

    /// # Safety
    /// `at` is the box of a value of this form, there for `'v` and not written to.
    #[inline]
    pub(crate) unsafe fn boxed(form: Form, at: NonNull<u8>) -> Self {
        Self { form, lies: At::Box(at) }
    }

    #[inline]
    pub(crate) fn form(&self) -> Form {
        self.form
    }

    /// What lies in the entry, raw or packed; nothing of what is boxed.
    #[inline]
    pub(crate) fn bytes(&self) -> &'v [u8] {
        match self.lies {
            At::Entry(bytes) => bytes,
            At::Box(_) => &[],
        }
    }

    /// What is in the box, if that is a `T`.
    #[inline]
    pub(crate) fn get<T: Boxed>(&self) -> Option<&'v T> {
        match self.lies {
            // SAFETY: the form is that of `T` and of nothing else.
            At::Box(at) if self.form == T::FORM => Some(unsafe { at.cast::<T>().as_ref() }),
            At::Box(_) | At::Entry(_) => None,
        }
    }

    /// What it weighs beside its entry, and what of it is packed.
    #[inline]
    pub(crate) fn measure(&self) -> Measure {
        let (bits, bytes) = (self.form.bits(), self.bytes());
        if bits.is_raw_inline() {
            return Measure { raw: bytes.len(), ..Measure::default() };
        }
        if bits.is_packed_inline() {
            let raw = form::raw_len(bytes);
            return Measure { raw, packed_from: raw, packed: bytes.len(), ..Measure::default() };
        }
        match self.lies {
            At::Entry(_) => Measure::default(),
            // SAFETY: a box of this form.
            At::Box(at) => unsafe { (self.form.ops().measure)(at) },
        }
    }

    /// How it is packed, if it is in a box.
    pub(crate) fn packing(&self) -> Option<Packing> {
        match self.lies {
            At::Entry(_) => None,
            // SAFETY: a box of this form.
            At::Box(at) => Some(unsafe { (self.form.ops().packing)(at) }),
        }
    }

    /// What is noted of it to tell its encoding by, if it is in a box.
    pub(crate) fn notes(&self) -> u8 {
        match self.lies {
            At::Entry(_) => 0,
            // SAFETY: a box of this form.
            At::Box(at) => unsafe { (self.form.ops().notes)(at) },
        }
    }

    /// A duplicate of what is in a box.
    pub(crate) fn duplicate(&self) -> Option<Owned> {
        match self.lies {
            At::Entry(_) => None,
            // SAFETY: a box of this form, and the duplicate is one of its own.
            At::Box(at) => {
                Some(unsafe { Owned::from_raw(self.form, (self.form.ops().duplicate)(at)) })
            }
        }
    }

    /// A duplicate of what is in a box, if that shares its bytes.
    pub(crate) fn share(&self) -> Option<Owned> {
        let is_shared = matches!(self.lies, At::Box(_)) && self.form.ops().is_shared;
        if is_shared { self.duplicate() } else { None }
    }

    /// Whether it is packed piece by piece, and never as a whole.
    pub(crate) fn is_in_parts(&self) -> bool {
        matches!(self.lies, At::Box(_)) && self.form.ops().is_in_parts
    }

    /// Whether every walk that cools is to meet it.
    pub(crate) fn cools_in_parts(&self) -> bool {
        matches!(self.lies, At::Box(_)) && self.form.ops().cools_in_parts
    }

    /// Writes what is in a box, as it lies there.
    pub(crate) fn store(&self, pen: &mut dyn Pen) -> Option<io::Result<()>> {
        match self.lies {
            At::Entry(_) => None,
            // SAFETY: a box of this form.
            At::Box(at) => Some(unsafe { (self.form.ops().store)(at, pen) }),
        }
    }

    /// What freeing it takes, its entry aside.
    pub(crate) fn effort(&self) -> usize {
        match self.lies {
            At::Entry(_) => 0,
            // SAFETY: a box of this form.
            At::Box(at) => unsafe { (self.form.ops().effort)(at) },
        }
    }
}

/// A value in a box, to be changed where it lies.
#[derive(Debug)]
pub(crate) struct ValueMut<'v> {
    form: Form,
    at: NonNull<u8>,
    there: PhantomData<&'v mut ()>,
}

impl<'v> ValueMut<'v> {
    /// # Safety
    /// `at` is the box of a value of this form, there for `'v` and nobody else's.
    pub(crate) unsafe fn boxed(form: Form, at: NonNull<u8>) -> Self {
        Self { form, at, there: PhantomData }
    }

    /// Tells it that a walk has met it.
    pub(crate) fn cool(self, met: &Met<'_>) -> Wish {
        // SAFETY: a box of this form, nobody else's.
        unsafe { (self.form.ops().cool)(self.at, met) }
    }

    /// [`Boxed::next_job`].
    pub(crate) fn next_job(self, asked: &Asked<'_>) -> Option<Box<dyn PieceJob>> {
        // SAFETY: as above.
        unsafe { (self.form.ops().next_job)(self.at, asked) }
    }

    /// [`Boxed::install`].
    pub(crate) fn install(self, job: &mut dyn PieceJob, back: &Back) -> Installed {
        // SAFETY: as above.
        unsafe { (self.form.ops().install)(self.at, job, back) }
    }

    /// [`Boxed::learner`].
    pub(crate) fn learner(self) -> Option<&'v mut dyn Learner> {
        // SAFETY: as above.
        let learner = unsafe { (self.form.ops().learner)(self.at) };
        // SAFETY: it is the value or a part of it, there for `'v` and nobody else's.
        learner.map(|mut learner| unsafe { learner.as_mut() as &'v mut dyn Learner })
    }
}
