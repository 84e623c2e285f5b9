//! The numbers of RDB: types of values, opcodes between them, encodings of strings.

/// Types of values. `_2` and the like are later layouts of the same.
pub(crate) mod kind {
    pub(crate) const STRING: u8 = 0;
    pub(crate) const LIST: u8 = 1;
    pub(crate) const SET: u8 = 2;
    pub(crate) const ZSET: u8 = 3;
    pub(crate) const HASH: u8 = 4;
    pub(crate) const ZSET_2: u8 = 5;
    pub(crate) const MODULE: u8 = 6;
    pub(crate) const MODULE_2: u8 = 7;
    pub(crate) const HASH_ZIPMAP: u8 = 9;
    pub(crate) const LIST_ZIPLIST: u8 = 10;
    pub(crate) const SET_INTSET: u8 = 11;
    pub(crate) const ZSET_ZIPLIST: u8 = 12;
    pub(crate) const HASH_ZIPLIST: u8 = 13;
    pub(crate) const LIST_QUICKLIST: u8 = 14;
    pub(crate) const STREAM: u8 = 15;
    pub(crate) const HASH_LISTPACK: u8 = 16;
    pub(crate) const ZSET_LISTPACK: u8 = 17;
    pub(crate) const LIST_QUICKLIST_2: u8 = 18;
    pub(crate) const STREAM_2: u8 = 19;
    pub(crate) const SET_LISTPACK: u8 = 20;
    pub(crate) const STREAM_3: u8 = 21;
    /// Redis 7.4: a hash of which fields expire, at `time + ttl - 1`.
    pub(crate) const HASH_TIMES: u8 = 24;
    /// The same as a listpack of field, value and time.
    pub(crate) const HASH_TIMES_LISTPACK: u8 = 25;
}

/// What stands between values.
pub(crate) mod op {
    pub(crate) const SLOT_INFO: u8 = 244;
    pub(crate) const FUNCTION: u8 = 245;
    pub(crate) const FUNCTION_PRE_RELEASE: u8 = 246;
    pub(crate) const MODULE_AUX: u8 = 247;
    pub(crate) const IDLE: u8 = 248;
    pub(crate) const FREQ: u8 = 249;
    pub(crate) const AUX: u8 = 250;
    pub(crate) const SIZES: u8 = 251;
    pub(crate) const EXPIRES_MS: u8 = 252;
    pub(crate) const EXPIRES_SECONDS: u8 = 253;
    pub(crate) const DATABASE: u8 = 254;
    pub(crate) const END: u8 = 255;
}

/// What a string is whose length says that it is none.
pub(crate) mod string {
    pub(crate) const INT_8: u8 = 0;
    pub(crate) const INT_16: u8 = 1;
    pub(crate) const INT_32: u8 = 2;
    pub(crate) const LZF: u8 = 3;
}

/// The containers of a quicklist's nodes.
pub(crate) mod node {
    pub(crate) const PLAIN: u64 = 1;
    pub(crate) const PACKED: u64 = 2;
}

/// What a module's value is made of.
pub(crate) mod module {
    pub(crate) const END: u64 = 0;
    pub(crate) const SIGNED: u64 = 1;
    pub(crate) const UNSIGNED: u64 = 2;
    pub(crate) const FLOAT: u64 = 3;
    pub(crate) const DOUBLE: u64 = 4;
    pub(crate) const STRING: u64 = 5;
}

/// Flags of an entry in a node of a stream.
pub(crate) mod entry {
    pub(crate) const DELETED: i64 = 1;
    pub(crate) const SAME_FIELDS: i64 = 2;
}

/// The name under which Snug's own files have the times of a hash's fields, where the
/// version that they are written in knows none.
pub(crate) const FIELD_TIMES: &[u8] = b"snug-field-times";

/// Redis's 64-bit CRC, as it is at the end of files and dumps.
pub(crate) const CRC: crc::Crc<u64, crc::Table<16>> =
    crc::Crc::<u64, crc::Table<16>>::new(&crc::CRC_64_REDIS);

#[cfg(test)]
mod tests {
    #[test]
    fn the_checksum_is_that_of_redis() {
        // From Redis's own test of its function.
        assert_eq!(super::CRC.checksum(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
    }
}
