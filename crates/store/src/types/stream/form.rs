//! The two forms a packed block has, and which of them rows get.
//!
//! ```text
//!  packed block:  format, packed form
//!
//!  format 1:      the packed form (snug-codec) of the block's rows as rows.rs
//!                 writes them
//!  format 2:      columns (snug-codec's columns.rs): ids, and each field of the
//!                 rows on its own
//!
//!  Either names the dictionary it needs, if any.
//! ```
//!
//! Columns are Snug's own: they are unpacked and compared before they take the
//! rows' place. What would not come back is packed as rows, and told.
//!
//! Columns are taken wherever they save half or more; below that rows are tried
//! too and the smaller is taken. Blocks of a stream are alike: where columns were
//! the smaller in the block before, rows are tried in one of sixteen.

use snug_codec::columns::{self, RowBlock};
use snug_codec::estimate::{Estimate, Worth};
use snug_codec::stream::{self, Pace, Pieces};
use snug_codec::{Codec, Dictionary, DictionarySource, Segments, Workspace};

use super::StreamError;
use super::block::PackedBytes;
use super::dictionary::Family;
use super::id::StreamId;
use super::pack::PackParams;
use super::range::OpenRows;
use super::rows::Malformed;

pub(super) const FORMAT_ROWS: u8 = 1;
pub(super) const FORMAT_COLUMNS: u8 = 2;

/// The most bytes that are packed in one piece. A larger block is of one huge
/// entry: it is packed as rows, in pieces and without a dictionary.
pub(super) const PACK_BYTES_MAX: usize = 128 * 1024;

/// A block larger than this stays raw: it would be unpacked in one piece, and for
/// too long.
pub(super) const BLOCK_BYTES_MAX: usize = 512 * 1024;

/// A packed block, by format.
pub(super) enum Form<'a> {
    Rows(&'a [u8]),
    Columns(&'a [u8]),
}

/// Reads the format.
pub(super) fn form(bytes: &[u8]) -> Result<Form<'_>, StreamError> {
    match bytes.split_first() {
        Some((&FORMAT_ROWS, packed)) => Ok(Form::Rows(packed)),
        Some((&FORMAT_COLUMNS, packed)) => Ok(Form::Columns(packed)),
        _ => Err(StreamError::Damaged),
    }
}

/// Unpacks the packed form of rows of `raw_bytes`.
pub(super) fn unpack_rows(
    packed: &[u8],
    raw_bytes: usize,
    dictionaries: &dyn DictionarySource,
    ws: &mut Workspace,
    unpacked: &mut Vec<u8>,
) -> Result<(), StreamError> {
    match ws.unpack(packed, dictionaries, unpacked, raw_bytes) {
        Ok(()) if unpacked.len() == raw_bytes => Ok(()),
        _ => Err(StreamError::Damaged),
    }
}

/// What a block is packed with.
pub(super) struct Packer<'a> {
    pub(super) family: &'a Family,
    pub(super) dictionary: Option<&'a Dictionary>,
    pub(super) params: &'a PackParams,
    pub(super) tries_rows: bool,
    pub(super) is_miscoded: bool,
    pub(super) ws: &'a mut Workspace,
    /// The packed form is left here too.
    pub(super) room: &'a mut Vec<u8>,
}

impl Packer<'_> {
    /// Packs the rows `raw`, whose first ID is `first`, if it is worth it.
    pub(super) async fn pack<P: Pace>(
        &mut self,
        raw: &[u8],
        first: StreamId,
        pieces: &mut Pieces<'_, P>,
    ) -> Option<PackedBytes> {
        self.room.clear();
        if self.params.codec == Codec::None || raw.len() > BLOCK_BYTES_MAX {
            return None;
        }
        if raw.len() <= PACK_BYTES_MAX {
            self.pack_smallest(raw, first, pieces).await;
        } else {
            self.pack_large(raw, pieces).await;
        }
        let packed_len = self.room.len();
        let worth = packed_len > 0 && self.params.min_saving.is_met(raw.len(), packed_len);
        worth.then(|| PackedBytes::new(self.room))
    }

    /// Leaves columns or rows of `raw` in the room, or nothing.
    async fn pack_smallest<P: Pace>(
        &mut self,
        raw: &[u8],
        first: StreamId,
        pieces: &mut Pieces<'_, P>,
    ) {
        let PackParams { codec, level, .. } = *self.params;
        let columns = codec == Codec::Zstd && self.pack_columns(raw, first, pieces).await;
        if columns && (!self.tries_rows || self.room.len() <= raw.len() / 2) {
            return;
        }
        pieces.stepped().await;
        let columns_len = self.room.len();
        self.room.push(FORMAT_ROWS);
        let packed = self.ws.pack(codec, level, self.dictionary, raw, self.room).is_ok();
        if packed && (!columns || self.room.len() - columns_len < columns_len) {
            self.room.drain(..columns_len);
        } else {
            self.room.truncate(columns_len);
        }
    }

    /// Leaves rows packed in pieces in the room, or nothing.
    async fn pack_large<P: Pace>(&mut self, raw: &[u8], pieces: &mut Pieces<'_, P>) {
        if Estimate::of(raw).worth() == Worth::Nothing {
            return;
        }
        let PackParams { codec, level, .. } = *self.params;
        let raw = Segments::from(raw);
        pieces.stepped().await;
        let packed = stream::pack_in_pieces(self.ws, codec, level, &raw, pieces).await;
        if let Ok(packed) = packed {
            self.room.push(FORMAT_ROWS);
            packed.parts().iter().for_each(|part| self.room.extend_from_slice(part));
        }
    }

    /// Appends the columns of `raw` to the room; whether it could. Nothing is
    /// left there when not.
    async fn pack_columns<P: Pace>(
        &mut self,
        raw: &[u8],
        first: StreamId,
        pieces: &mut Pieces<'_, P>,
    ) -> bool {
        let Self { family, dictionary, params, ws, room, .. } = self;
        let Ok(block) = row_block(raw, first) else { return false };
        pieces.stepped().await;
        room.push(FORMAT_COLUMNS);
        let level = params.level;
        let pack = columns::pack_rows_in_slices(ws, level, *dictionary, &block, room, pieces);
        let packed = pack.await.is_ok()
            && columns::raw_len(&room[1..])
                .is_ok_and(|len| len <= columns_raw_max(raw.len(), block.len() as u32));
        let holds = packed && columns::holds_rows(ws, &room[1..], *family, &block, pieces).await;
        self.is_miscoded |= packed && !holds;
        if !holds {
            self.room.clear();
        }
        holds
    }
}

fn row_block(raw: &[u8], first: StreamId) -> Result<RowBlock<'_>, Malformed> {
    let open = OpenRows::new(raw, first, false)?;
    let mut block = RowBlock::new();
    for row in open.rows() {
        let (_, row) = row?;
        block.push(row.id.ms, row.id.seq, open.fields(row)?);
    }
    Ok(block)
}

/// What columns of rows of `raw_bytes` may unpack to: an ID is 16 bytes there.
/// Rows that would be more (names that are written once in rows.rs and many
/// times there) are packed as rows.
pub(super) fn columns_raw_max(raw_bytes: usize, rows: u32) -> usize {
    raw_bytes + 16 * rows as usize
}

/// The dictionary that a packed block names.
pub(super) fn dictionary_id(bytes: &[u8]) -> Option<u32> {
    match form(bytes).ok()? {
        Form::Rows(packed) => snug_codec::packed::dictionary_id(packed).ok()?,
        Form::Columns(packed) => columns::dictionary_id(packed).ok()?,
    }
}
