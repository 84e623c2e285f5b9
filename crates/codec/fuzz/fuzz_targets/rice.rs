//! Any bytes as numbers of Rice's code are so many numbers or none; numbers, written so,
//! come back.
#![no_main]

use snug_codec::rice;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Some((&count, bytes)) = input.split_first() else { return };
    if let Some(numbers) = rice::take(bytes, count.into()) {
        assert_eq!(numbers.len(), usize::from(count));
    }
    let numbers: Vec<u64> =
        bytes.chunks(8).map(|part| part.iter().fold(0, |n, &byte| n << 8 | u64::from(byte))).collect();
    let mut out = Vec::new();
    rice::push(&numbers, &mut out);
    assert_eq!(rice::take(&out, numbers.len()), Some(numbers));
});
