//! Any stream of replies in any reads: no panic, the same values and the same
//! error as when it arrives at once.
//!
//! ```text
//!  [read size][ stream ... ]
//! ```

#![no_main]

use libfuzzer_sys::fuzz_target;
use snug_resp::{ReplyError, Value, ValueParser};

fn meaning(stream: &[u8], read: usize) -> (Vec<Value>, Option<ReplyError>) {
    let mut parser = ValueParser::new();
    let (mut values, mut buf) = (Vec::new(), Vec::new());
    for arrived in stream.chunks(read) {
        buf.extend_from_slice(arrived);
        loop {
            match parser.next(&buf) {
                Ok((used, value)) => {
                    buf.drain(..used);
                    let Some(value) = value else { break };
                    assert!(used > 0);
                    values.push(value);
                }
                Err(error) => return (values, Some(error)),
            }
        }
    }
    (values, None)
}

fuzz_target!(|data: &[u8]| {
    let &[read, ref stream @ ..] = data else { return };
    let (values, error) = meaning(stream, usize::MAX);
    let (again, error_again) = meaning(stream, usize::from(read) + 1);
    // Compared as text: a double that is not a number does not equal itself.
    assert_eq!((format!("{values:?}"), error), (format!("{again:?}"), error_again));
});
