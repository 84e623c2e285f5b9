//! A piece: what is packed as one, and how it comes to be.
//!
//! ```text
//!  slot, locked          no lock held                              slot, locked
//!  a value hands out ──> [`PieceJob`]: prepare ── run, in slices ──> the value takes it
//!                        policy, family,          a workspace,       back, if it is as it
//!                        dictionary               nothing else       was
//! ```
//!
//! This is what all types have of it. A boxed value hands pieces out and takes them
//! back with two methods of `Boxed` (`types/forms.rs`); whatever lies in its entry is
//! such a piece too (`packing.rs`). Who takes, works and installs is in `jobs.rs`.

use crate::pack::families::{Families, KeyFamily};
use crate::pack::saving::MinSaving;
use crate::types::Unreadable;
use crate::types::stream::Shape;
use snug_codec::policy::Choice;
use snug_codec::stream::SomePace;
use snug_codec::{Codec, Dictionary, Workspace};
use std::any::Any;
use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;

/// What pieces are packed by, as far as the configuration says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PieceParams {
    /// The least length worth packing, in bytes.
    pub min_size: usize,
    /// What must be saved, or a piece stays raw.
    pub min_saving: MinSaving,
    /// The level where the policy names none.
    pub level: i32,
    /// The most bytes of a dictionary; 0 for none.
    pub dictionary_bytes: usize,
    /// Whether values stay as they are while a dictionary of their family is being
    /// trained, rather than be packed twice.
    pub awaits_dictionaries: bool,
    /// How streams are cut into blocks.
    pub shape: Shape,
}

impl PieceParams {
    /// What a server begins with.
    pub const DEFAULT: Self = Self {
        min_size: 12,
        min_saving: MinSaving(30),
        level: 3,
        dictionary_bytes: 16 * 1024,
        awaits_dictionaries: false,
        shape: Shape::DEFAULT,
    };

    /// What a value that was looked at was settled by.
    pub(crate) fn settles(&self) -> (usize, MinSaving, i32) {
        (self.min_size, self.min_saving, self.level)
    }
}

/// What is chosen for a piece before it is prepared.
pub(crate) const UNDECIDED: Choice = Choice { codec: Codec::None, level: 0, told: false };

/// What became of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is packed now, in so many bytes.
    Packed(usize),
    /// It was packed, and is raw now.
    Unpacked,
    /// It is not worth packing, and stays raw.
    NotWorth,
    /// It stays raw until a dictionary of its family has been trained.
    Awaits,
    /// Nothing: it was changed, used or removed meanwhile, is packed as it should be
    /// already, or is damaged.
    Nothing,
}

/// A piece that was taken out of a boxed value: shared with it or copied. It is worked
/// on away from all locks, and given back to be installed with what came of it inside.
pub(crate) trait PieceJob: Any + Debug + Send {
    /// Bytes of the piece, unpacked.
    fn raw_bytes(&self) -> usize;

    /// What a policy goes by: the first and the last bytes, which only types with MIME
    /// types have to tell, and the length.
    fn subject(&self) -> ((&[u8], &[u8]), usize);

    /// Whether it is all of the value, which is then of another form; not one of many.
    fn is_whole(&self) -> bool {
        false
    }

    /// Whether it is about packing, and not about unpacking.
    fn packs(&self) -> bool {
        true
    }

    /// Whether it is about the very piece that another is about.
    fn is_same(&self, _: &dyn PieceJob) -> bool {
        false
    }

    /// Told what it is to be packed with, once, before it runs.
    fn prepare(&mut self, plan: &Plans<'_>);

    /// Packs, in slices. Keeps what came of it until that is installed.
    fn run<'j>(&'j mut self, with: With<'j>) -> Running<'j>;
}

/// Work on a piece.
pub(crate) type Running<'j> = Pin<Box<dyn Future<Output = Ran> + Send + 'j>>;

/// What a piece is to be packed with.
pub(crate) struct Plans<'p> {
    pub(crate) params: &'p PieceParams,
    /// The policy's edition, and what it chose.
    pub(crate) edition: u64,
    pub(crate) choice: Choice,
    /// The family of the value's key, for what goes by it.
    pub(crate) families: &'p Families,
    pub(crate) family: &'p dyn Fn() -> Arc<KeyFamily>,
    /// Whatever its age and what it looks like.
    pub(crate) forced: bool,
}

/// What a piece is worked on with.
pub(crate) struct With<'j> {
    pub(crate) workspace: &'j mut Workspace,
    /// Reused memory.
    pub(crate) room: &'j mut Vec<u8>,
    pub(crate) pace: SomePace,
    pub(crate) slice_ns: u64,
}

/// What came of a piece, for those who count.
#[derive(Debug)]
pub(crate) struct Ran {
    /// Bytes that went through the codec.
    pub(crate) raw_bytes: usize,
    /// What is to become of it.
    pub(crate) came: Fate,
    /// The codec of that, where it is not the one that was chosen.
    pub(crate) codec: Option<Codec>,
    /// What was found damaged.
    pub(crate) damage: Option<Damage>,
    /// What the family of the value's key learns from it.
    pub(crate) lesson: Option<Lesson>,
}

impl Default for Ran {
    fn default() -> Self {
        Self { raw_bytes: 0, came: Fate::Nothing, codec: None, damage: None, lesson: None }
    }
}

/// Something is wrong with a packed piece.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Damage {
    /// It was packed before, and does not unpack.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// What it was packed into does not unpack to it.
    #[error("what was packed did not come back; it stays as it was")]
    NotBack,
}

/// What a family learns from one of its pieces.
#[derive(Debug)]
pub(crate) struct Lesson {
    pub(crate) family: Arc<KeyFamily>,
    /// The piece, if it was not judged when it was prepared ([`Claim::plan`]).
    ///
    /// [`Claim::plan`]: crate::pack::families::Claim::plan
    pub(crate) judges: Option<Vec<u8>>,
    /// What in it a dictionary could help with, if that is to be learnt.
    pub(crate) texts: Vec<Vec<u8>>,
    /// What came of it, if the family was not told.
    pub(crate) tried: Option<Tried>,
}

/// What came of packing a piece.
#[derive(Debug)]
pub(crate) struct Tried {
    pub(crate) raw_bytes: usize,
    /// What that was packed into, worth it or not.
    pub(crate) packed_bytes: usize,
    pub(crate) worth: bool,
}

impl Lesson {
    /// Tells the family; which it is.
    pub(crate) fn teach(self, families: &Families) -> Arc<KeyFamily> {
        self.family.learn(families, self.judges.as_deref(), &self.texts);
        if let Some(Tried { raw_bytes, packed_bytes, worth }) = self.tried {
            self.family.tried(raw_bytes, packed_bytes, worth);
        }
        self.family
    }
}

/// Samples of a value that wants a dictionary of its own, to train that on.
pub(crate) trait Samples: Any + Debug + Send {
    /// Bytes that training takes at most, about.
    fn training_bytes_max(&self, dictionary_bytes: usize) -> usize;

    /// Trains a dictionary and keeps it if it is worth its memory. Tens of milliseconds
    /// for each megabyte of samples.
    fn train(
        &self,
        workspace: &mut Workspace,
        dictionary_bytes: usize,
        level: i32,
    ) -> Option<Dictionary>;
}
