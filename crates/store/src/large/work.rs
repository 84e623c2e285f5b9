//! Work on large strings: packing what has cooled, unpacking what is read often.
//!
//! The piece is all of the string: a chain held by reference, worked on in slices, and
//! in the end another form of the value ([`Installed::As`]). It takes effect only if the
//! key still holds that very chain: bytes that are held by two are never written to.

use super::{PackedChain, pack};
use crate::ACCESS_MAX;
use crate::pack::piece::{
    Damage, Fate, PieceJob, PieceParams, Plans, Ran, Running, UNDECIDED, With,
};
use crate::timing::UnpackTimes;
use crate::types::Unreadable;
use crate::types::forms::{Asked, Back, Installed, Owned};
use snug_codec::Segments;
use snug_codec::policy::Choice;
use std::any::Any;
use std::sync::Arc;

/// A large string, to be packed if it is raw and to be unpacked if it is not.
#[derive(Debug)]
struct ChainPiece {
    chain: Chain,
    forced: bool,
    params: PieceParams,
    choice: Choice,
    /// Where it is noted how long unpacking takes.
    times: Option<Arc<UnpackTimes>>,
    /// What came of it.
    made: Option<Chain>,
}

#[derive(Debug)]
enum Chain {
    Raw(Segments),
    Packed(PackedChain),
}

impl ChainPiece {
    fn boxed(chain: Chain, asked: &Asked<'_>) -> Box<dyn PieceJob> {
        let (params, choice, forced) = (*asked.params, UNDECIDED, asked.forced);
        Box::new(Self { chain, forced, params, choice, times: None, made: None })
    }
}

/// What a job is about, and what came of it, if it is about a large string.
fn of(job: &mut dyn PieceJob) -> Option<(&Chain, Option<Chain>)> {
    let piece = (job as &mut dyn Any).downcast_mut::<ChainPiece>()?;
    Some((&piece.chain, piece.made.take()))
}

/// A raw one to be packed: one that is cold, unless it is forced.
pub(crate) fn to_pack(raw: &Segments, asked: &Asked<'_>) -> Option<Box<dyn PieceJob>> {
    let is_due = asked.forced || asked.access == 0;
    is_due.then(|| ChainPiece::boxed(Chain::Raw(raw.clone()), asked))
}

/// A packed one to be unpacked: one that is read often, unless it is forced.
pub(crate) fn to_unpack(packed: &PackedChain, asked: &Asked<'_>) -> Option<Box<dyn PieceJob>> {
    let is_due = asked.forced || asked.access == ACCESS_MAX;
    is_due.then(|| ChainPiece::boxed(Chain::Packed(packed.clone()), asked))
}

/// What a raw one becomes, if it is the one that was packed and has not been used since.
pub(crate) fn packed(raw: &Segments, job: &mut dyn PieceJob, back: &Back) -> Installed {
    match of(job) {
        Some((Chain::Raw(taken), Some(Chain::Packed(made))))
            if taken.is_same(raw) && (back.forced || back.access == 0) =>
        {
            Installed::As(Owned::new(made))
        }
        _ => Installed::Not,
    }
}

/// What a packed one becomes, if it is the one that was unpacked.
pub(crate) fn unpacked(packed: &PackedChain, job: &mut dyn PieceJob) -> Installed {
    match of(job) {
        Some((Chain::Packed(taken), Some(Chain::Raw(made)))) if taken.is_same(packed) => {
            Installed::As(Owned::new(made))
        }
        _ => Installed::Not,
    }
}

impl PieceJob for ChainPiece {
    fn raw_bytes(&self) -> usize {
        match &self.chain {
            Chain::Raw(raw) => raw.len(),
            Chain::Packed(packed) => packed.len(),
        }
    }

    fn subject(&self) -> ((&[u8], &[u8]), usize) {
        let ends = match &self.chain {
            Chain::Raw(raw) => {
                let parts = raw.parts();
                (
                    parts.first().map_or(&[][..], |part| part),
                    parts.last().map_or(&[][..], |part| part),
                )
            }
            Chain::Packed(_) => (&[][..], &[][..]),
        };
        (ends, self.raw_bytes())
    }

    fn is_whole(&self) -> bool {
        true
    }

    fn packs(&self) -> bool {
        matches!(self.chain, Chain::Raw(_))
    }

    fn is_same(&self, other: &dyn PieceJob) -> bool {
        let other = (other as &dyn Any).downcast_ref::<Self>().map(|other| &other.chain);
        match (&self.chain, other) {
            (Chain::Raw(a), Some(Chain::Raw(b))) => a.is_same(b),
            (Chain::Packed(a), Some(Chain::Packed(b))) => a.is_same(b),
            _ => false,
        }
    }

    fn prepare(&mut self, plan: &Plans<'_>) {
        (self.params, self.choice) = (*plan.params, plan.choice);
        self.times = Some(Arc::clone(&plan.families.segment_times));
    }

    fn run<'j>(&'j mut self, with: With<'j>) -> Running<'j> {
        let With { workspace, pace, slice_ns, .. } = with;
        Box::pin(async move {
            let Self { chain, params, choice, times, made, .. } = self;
            let (came, damage) = match (&*chain, times) {
                (Chain::Raw(raw), _) => {
                    let forced = self.forced;
                    let packed =
                        pack(workspace, raw, *choice, params, forced, &pace, slice_ns).await;
                    let came = packed
                        .as_ref()
                        .map_or(Fate::NotWorth, |packed| Fate::Packed(packed.packed_len()));
                    *made = packed.map(Chain::Packed);
                    (came, None)
                }
                (Chain::Packed(packed), Some(times)) => {
                    match packed.unpack_in_slices(workspace, times, &pace, slice_ns).await {
                        Ok(raw) => {
                            *made = Some(Chain::Raw(raw));
                            (Fate::Unpacked, None)
                        }
                        Err(damaged) => {
                            let damage = Damage::Unreadable(Unreadable::Value(damaged));
                            (Fate::Nothing, Some(damage))
                        }
                    }
                }
                (Chain::Packed(_), None) => (Fate::Nothing, None),
            };
            Ran { raw_bytes: self.raw_bytes(), came, damage, ..Ran::default() }
        })
    }
}
