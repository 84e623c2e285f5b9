//! What dictionaries weigh.

use super::{Line, Options, data};
use serde::{Deserialize, Serialize};
use snug_codec::Dictionary;

/// What one dictionary weighs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DictionaryLine {
    /// Bytes of the dictionary itself.
    pub bytes: usize,
    /// The level it is digested for.
    pub level: i32,
    /// Bytes with both digests, once per process.
    pub memory_bytes: usize,
}

impl Line for DictionaryLine {
    const HEADS: &[&str] = &["bytes", "level", "with both digests"];

    fn cells(&self) -> Vec<String> {
        vec![self.bytes.to_string(), self.level.to_string(), self.memory_bytes.to_string()]
    }
}

pub(super) fn dictionaries(options: &Options, lines: &mut Vec<DictionaryLine>) {
    let values: Vec<Vec<u8>> =
        (0..2000).map(|i| data::payload("json", 1024, options.seed + i)).collect();
    let samples: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
    for bytes_max in [4 << 10, 16 << 10, 64 << 10, 110 << 10] {
        for level in [1, 3, 9] {
            if let Ok(dictionary) = Dictionary::train_with(&samples, bytes_max, level, 1) {
                lines.push(DictionaryLine {
                    bytes: dictionary.bytes().len(),
                    level,
                    memory_bytes: dictionary.memory_bytes(),
                });
            }
        }
    }
}
