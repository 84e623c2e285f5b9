//! Any stream of requests in any reads: no panic, the same commands and the same
//! error as when it arrives at once.
//!
//! ```text
//!  [limits][read size 1][read size 2][ stream ... ]
//! ```

#![no_main]

use libfuzzer_sys::fuzz_target;
use snug_resp::{Argument, Limits, Parsed, Parser, ProtocolError, Span, split_args};

/// Every argument as its bytes, or as the length of a large bulk, in one text
/// that tells them apart.
type Meaning = (Vec<Vec<Vec<u8>>>, Option<ProtocolError>);

fn meaning(stream: &[u8], reads: &[usize], limits: &Limits, spans: &mut Vec<Span>) -> Meaning {
    let mut parser = Parser::new();
    let (mut buf, mut rest) = (Vec::new(), stream);
    let mut commands = Vec::new();
    let mut large: Vec<Vec<u8>> = Vec::new();
    // Where a large body is being cut out, and how much it lacks.
    let (mut head, mut lacking) = (0, 0);
    for read in reads.iter().cycle() {
        let (arrived, later) = rest.split_at((*read).min(rest.len()));
        buf.extend_from_slice(arrived);
        rest = later;
        loop {
            let cut = lacking.min(buf.len() - head);
            if lacking > 0 {
                large.last_mut().unwrap().extend(buf.drain(head..head + cut));
                lacking -= cut;
            }
            if lacking > 0 {
                break;
            }
            match parser.parse(&mut buf, limits, spans) {
                Ok(Parsed::Command { consumed }) => {
                    assert!(consumed > 0 && parser.is_idle());
                    let args = spans.iter().map(|span| match span.argument(&buf) {
                        Argument::Bytes(bytes) => bytes.to_vec(),
                        Argument::Large(n) => large[n].clone(),
                    });
                    commands.push(args.collect());
                    buf.drain(..consumed);
                    large.clear();
                    head = 0;
                }
                Ok(Parsed::Incomplete) => {
                    assert_eq!(parser.is_idle(), buf.is_empty());
                    assert!(parser.heap_bytes() <= 256 + 16 * buf.len());
                    break;
                }
                Ok(Parsed::Large { head: at, len }) => {
                    assert!(at <= buf.len() && len <= limits.bulk_len_max);
                    (head, lacking) = (at, len);
                    large.push(Vec::new());
                }
                Err(error) => {
                    assert!(parser.is_idle());
                    return (commands, Some(error));
                }
            }
        }
        if rest.is_empty() {
            break;
        }
    }
    (commands, None)
}

fuzz_target!(|data: &[u8]| {
    let &[flags, first, second, ref stream @ ..] = data else { return };
    let limits = Limits {
        bulk_len_max: if flags & 1 == 0 { 512 * 1024 * 1024 } else { 100 },
        args_max: if flags & 2 == 0 { 1024 * 1024 } else { 5 },
        inline_len_max: if flags & 4 == 0 { 64 * 1024 } else { 60 },
        unauthenticated: flags & 8 != 0,
    };
    let mut spans = Vec::new();
    let whole = meaning(stream, &[usize::MAX], &limits, &mut spans);
    let reads = [usize::from(first) + 1, usize::from(second) + 1];
    assert_eq!(meaning(stream, &reads, &limits, &mut spans), whole);
    assert_eq!(meaning(stream, &[1], &limits, &mut spans), whole);
    let _ = split_args(stream);
});
