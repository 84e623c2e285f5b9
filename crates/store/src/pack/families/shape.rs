//! The shape of a key: its numbers, hexadecimal runs, UUIDs and other ids as `#`.

/// The longest shape; what is behind it does not tell families apart.
pub(super) const SHAPE_MAX: usize = 64;

/// The shape of a key, in `room`.
pub(super) fn shape<'r>(key: &[u8], room: &'r mut [u8; SHAPE_MAX]) -> &'r [u8] {
    let (mut len, mut at) = (0, 0);
    let mut push = |byte: u8, len: &mut usize| {
        if *len < SHAPE_MAX {
            room[*len] = byte;
            *len += 1;
        }
    };
    while at < key.len() && len < SHAPE_MAX {
        let rest = &key[at..];
        if is_uuid(rest) {
            push(b'#', &mut len);
            at += UUID_LEN;
            continue;
        }
        let token = rest.iter().take_while(|b| b.is_ascii_alphanumeric()).count();
        if token == 0 {
            push(rest[0], &mut len);
            at += 1;
            continue;
        }
        let word = &rest[..token];
        if is_id(word) {
            push(b'#', &mut len);
        } else {
            let mut digits = false;
            for &byte in word {
                match byte.is_ascii_digit() {
                    true if digits => {}
                    true => push(b'#', &mut len),
                    false => push(byte, &mut len),
                }
                digits = byte.is_ascii_digit();
            }
        }
        at += token;
    }
    &room[..len]
}

const UUID_LEN: usize = 36;

fn is_uuid(bytes: &[u8]) -> bool {
    let Some(uuid) = bytes.get(..UUID_LEN) else { return false };
    uuid.iter().enumerate().all(|(at, byte)| match at {
        8 | 13 | 18 | 23 => *byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    })
}

/// Whether a word without punctuation is an id as a whole: hexadecimal, or long
/// and with digits in it.
fn is_id(word: &[u8]) -> bool {
    const HEX_MIN: usize = 8;
    const ANY_MIN: usize = 16;
    word.iter().any(u8::is_ascii_digit)
        && (word.len() >= ANY_MIN
            || word.len() >= HEX_MIN && word.iter().all(u8::is_ascii_hexdigit))
}
