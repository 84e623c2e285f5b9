//! What values are packed by, as parameters say.

use super::{Config, Param};
use snug_store::types::stream::Shape;
use snug_store::{MinSaving, PieceParams};

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
