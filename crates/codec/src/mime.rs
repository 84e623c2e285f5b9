//! MIME types: what a value is declared to be, or what its first and last bytes say.

/// Bytes at the front in which `<svg` is looked for, and text recognised.
const SAMPLE: usize = 256;

/// The type that a value's bytes say. See [`sniff_ends`].
pub fn sniff(bytes: &[u8]) -> Option<&'static str> {
    sniff_ends(bytes, bytes)
}

/// The type that the bytes at a value's two ends say: magic bytes, as a library
/// of some hundred formats knows them; then `application/json`, if it begins and
/// ends as an object or a list of JSON does; then `text/plain`, if it begins with
/// text. SVG, which may begin as XML does, is `image/svg+xml`. What is in between
/// is not looked at. Costs a fraction of a microsecond.
pub fn sniff_ends(front: &[u8], back: &[u8]) -> Option<&'static str> {
    let sample = &front[..front.len().min(SAMPLE)];
    match infer::get(&front[..front.len().min(8192)]).map(|kind| kind.mime_type()) {
        None | Some("text/xml") if is_svg(sample) => Some("image/svg+xml"),
        None if is_json(front, back) => Some("application/json"),
        None => is_text(sample).then_some("text/plain"),
        known => known,
    }
}

fn is_svg(sample: &[u8]) -> bool {
    let start = sample.trim_ascii_start();
    let tag = |at: &[u8]| {
        at.strip_prefix(b"<svg")
            .and_then(|rest| rest.first())
            .is_some_and(|&b| b == b'>' || b.is_ascii_whitespace())
    };
    tag(start)
        || start.starts_with(b"<?xml")
            && start.iter().enumerate().any(|(at, &b)| b == b'<' && tag(&start[at..]))
}

/// Whether this begins with a bracket and what can stand behind it, and ends with
/// the bracket that closes it.
fn is_json(front: &[u8], back: &[u8]) -> bool {
    let inside = |open: u8, close: u8| {
        let rest = front.trim_ascii_start().strip_prefix(&[open])?;
        (back.trim_ascii_end().last() == Some(&close)).then(|| rest.trim_ascii_start())
    };
    if let Some(rest) = inside(b'{', b'}') {
        return matches!(rest.first(), Some(b'"' | b'}'));
    }
    let Some(rest) = inside(b'[', b']') else { return false };
    matches!(rest.first(), Some(b'{' | b'[' | b'"' | b']' | b'-' | b'0'..=b'9'))
        || [&b"true"[..], b"false", b"null"].iter().any(|word| rest.starts_with(word))
}

/// Whether this is UTF-8, of which the last character may be cut, without control
/// characters other than tab and those that end lines.
fn is_text(sample: &[u8]) -> bool {
    let text = match std::str::from_utf8(sample) {
        Ok(text) => text,
        Err(error) if sample.len() == SAMPLE && error.error_len().is_none() => {
            std::str::from_utf8(&sample[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return false,
    };
    !text.is_empty() && text.chars().all(|c| !c.is_control() || matches!(c, '\t' | '\r' | '\n'))
}

/// A declared type without its parameters, in lower case:
/// `Text/HTML; charset=utf-8` is `text/html`. `None` for what is no type.
pub fn essence(declared: &str) -> Option<String> {
    let essence = declared.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    let (kind, subtype) = essence.split_once('/')?;
    let token = |s: &str| {
        !s.is_empty() && s.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&b))
    };
    (token(kind) && token(subtype)).then_some(essence)
}

/// The declared type if it says something, else what the bytes say.
pub fn resolve(declared: Option<&str>, bytes: &[u8]) -> Option<String> {
    let declared = declared.and_then(essence).filter(|e| e != "application/octet-stream");
    declared.or_else(|| sniff(bytes).map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declared_first_then_magic() {
        let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
        assert_eq!(resolve(None, png).as_deref(), Some("image/png"));
        assert_eq!(resolve(Some("text/HTML; charset=utf-8"), png).as_deref(), Some("text/html"));
        assert_eq!(resolve(Some("application/octet-stream"), png).as_deref(), Some("image/png"));
        assert_eq!(resolve(Some("not a type"), b"plain").as_deref(), Some("text/plain"));
        assert_eq!(resolve(Some("not a type"), b"\0\x01\x02"), None);
    }

    #[test]
    fn texts_say_what_they_are() {
        let long = "é".repeat(SAMPLE);
        let cut = &long.as_bytes()[1..];
        let odd = [b"x", long.as_bytes()].concat();
        for (bytes, mime) in [
            (&b" {\"a\": 1}\n"[..], Some("application/json")),
            (b"{ }", Some("application/json")),
            (b"[]", Some("application/json")),
            (b"[ -1, 2 ]", Some("application/json")),
            (b"[null]", Some("application/json")),
            (b"\r\n[{\"a\":[]}]", Some("application/json")),
            (b"{a: 1}", Some("text/plain")),
            (b"{\"a\": 1", Some("text/plain")),
            (b"{\"a\": 1]", Some("text/plain")),
            (b"[nothing]", Some("text/plain")),
            (b"[", Some("text/plain")),
            (b"{", Some("text/plain")),
            (b"a line\r\n\tand another", Some("text/plain")),
            ("stra\u{df}e".as_bytes(), Some("text/plain")),
            (long.as_bytes(), Some("text/plain")),
            (&odd, Some("text/plain")),
            (cut, None),
            ("stra\u{df}".as_bytes().split_last().unwrap().1, None),
            (b"a\x1b[0m", None),
            (b"a\0b", None),
            (b"", None),
            (b"<svg xmlns=\"http://www.w3.org/2000/svg\"/>", Some("image/svg+xml")),
            (b"<?xml version=\"1.0\"?>\n<!-- x --><svg>", Some("image/svg+xml")),
            (b"<?xml version=\"1.0\"?><rss/>", Some("text/xml")),
            (b"<svgs>", Some("text/plain")),
        ] {
            assert_eq!(sniff(bytes), mime, "{}", String::from_utf8_lossy(bytes));
        }
        assert_eq!(sniff_ends(b"{\"a\": ", b"}"), Some("application/json"));
    }
}
