//! What values are packed by, as parameters say.

use super::{Config, Param};
use snug_store::types::stream::Shape;
use snug_store::{HashLimits, Limits, MinSaving, PieceParams, SetLimits, ZLimits};

impl Config {
    /// What pieces are packed by.
    pub(crate) fn piece_params(&self) -> PieceParams {
        PieceParams {
            min_size: self.number(Param::PackMinSize) as usize,
            min_saving: MinSaving(self.number(Param::PackMinSaving) as i32),
            level: self.number(Param::PackLevel) as i32,
            dictionary_bytes: self.number(Param::PackDictionarySize) as usize,
            awaits_dictionaries: false,
            shape: self.stream_shape(),
        }
    }

    /// Up to what size collections count as compact, and how large parts of streams get.
    pub(crate) fn value_limits(&self) -> Limits {
        Limits {
            hash: self.hash_limits(),
            set: self.set_limits(),
            sorted_set: self.sorted_set_limits(),
            shape: self.stream_shape(),
        }
    }

    /// The same of hashes.
    pub(crate) fn hash_limits(&self) -> HashLimits {
        HashLimits {
            entries: self.number(Param::HashMaxListpackEntries) as usize,
            value: self.number(Param::HashMaxListpackValue) as usize,
        }
    }

    /// The same of sets.
    pub(crate) fn set_limits(&self) -> SetLimits {
        // Redis's own limit, whatever is configured.
        const MOST: i64 = 1 << 30;
        SetLimits { intset_entries: self.number(Param::SetMaxIntsetEntries).min(MOST) as usize }
    }

    /// The same of sorted sets.
    pub(crate) fn sorted_set_limits(&self) -> ZLimits {
        ZLimits {
            entries: self.number(Param::ZsetMaxListpackEntries) as usize,
            value: self.number(Param::ZsetMaxListpackValue) as usize,
        }
    }

    /// The sizes of streams' blocks, and of the nodes that approximate trimming goes by.
    pub(crate) fn stream_shape(&self) -> Shape {
        let most = |param| u32::try_from(self.number(param)).unwrap_or(u32::MAX);
        Shape {
            node_entries: most(Param::StreamNodeMaxEntries),
            node_bytes: most(Param::StreamNodeMaxBytes),
            packs: self.is_on(Param::Pack),
            ..Shape::default()
        }
    }
}
