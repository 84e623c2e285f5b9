//! What a family knows, as a file has it: its dictionary, and what it has counted.

use super::{Families, KeyFamily};
use crate::pack::dictionaries::HeldDictionary;
use crate::types::Type;
use snug_codec::family::FamilyStats;
use snug_codec::{Dictionary, varint};
use std::io;
use std::sync::Arc;

/// A family that has a dictionary.
pub(crate) struct Known {
    kind: Type,
    shape: Box<[u8]>,
    takes_rest: bool,
    pub(crate) dictionary: Arc<Dictionary>,
    stats: FamilyStats,
    /// Keeps the dictionary of one that was read.
    _held: Option<HeldDictionary>,
}

impl Known {
    fn of(family: &KeyFamily) -> Option<Self> {
        let state = family.state.lock();
        let dictionary = Arc::clone(state.family.dictionary()?);
        let (shape, stats) = (family.shape.clone(), state.family.stats());
        let (kind, takes_rest) = (family.kind, family.takes_rest);
        Some(Self { kind, shape, takes_rest, dictionary, stats, _held: None })
    }

    /// Redis's number of its type, whether it takes the rest, its dictionary's id, what it
    /// has counted, and the shape of its keys.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let FamilyStats { judged, looked_at, packed, raw_bytes, packed_bytes, .. } = self.stats;
        let (kind, id) = (u64::from(self.kind.number()), u64::from(self.dictionary.id()));
        let rest = u64::from(self.takes_rest);
        for number in [kind, rest, id, judged, looked_at, packed, raw_bytes, packed_bytes] {
            varint::push(out, number);
        }
        out.extend_from_slice(&self.shape);
    }

    /// Reads what [`write`](Self::write) wrote.
    pub(crate) fn read(
        mut bytes: &[u8],
        dictionary: impl FnOnce(u32) -> io::Result<HeldDictionary>,
    ) -> io::Result<Self> {
        let bad = || io::Error::new(io::ErrorKind::InvalidData, "a family is damaged");
        let mut number = || varint::take(&mut bytes).ok_or_else(bad);
        let kind = number()?;
        let kind = Type::ALL.iter().find(|known| u64::from(known.number()) == kind);
        let kind = *kind.ok_or_else(bad)?;
        let takes_rest = number()? == 1;
        let held = dictionary(u32::try_from(number()?).map_err(|_| bad())?)?;
        let stats = FamilyStats {
            judged: number()?,
            looked_at: number()?,
            packed: number()?,
            raw_bytes: number()?,
            packed_bytes: number()?,
            ..FamilyStats::default()
        };
        let dictionary = Arc::clone(held.dictionary());
        Ok(Self { kind, shape: bytes.into(), takes_rest, dictionary, stats, _held: Some(held) })
    }
}

impl Families {
    /// The families that have dictionaries.
    pub(crate) fn known(&self) -> Vec<Known> {
        let rest = self.of_types.iter().map(|of| Arc::clone(&of.rest));
        self.named().into_iter().chain(rest).filter_map(|family| Known::of(&family)).collect()
    }

    /// Gives a family the dictionary that it had elsewhere, and what it had counted, unless
    /// it has a dictionary by now.
    pub(crate) fn remember(&self, known: Known) {
        let family = match known.takes_rest {
            true => Arc::clone(&self.of_type(known.kind).rest),
            false => self.of(known.kind, &known.shape),
        };
        let mut state = family.state.lock();
        if state.family.dictionary().is_some() {
            return;
        }
        self.dictionaries.registry().adopt(known.dictionary.id());
        self.counted(&mut state.family, |family| {
            family.adopt(known.dictionary);
            family.remember(known.stats);
        });
    }
}
