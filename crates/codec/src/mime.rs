//! MIME types: what a value is declared to be, or what its first bytes say.

/// The type that a value's magic bytes say, as a library of some hundred
/// formats knows them. Costs a fraction of a microsecond.
pub fn sniff(bytes: &[u8]) -> Option<&'static str> {
    infer::get(&bytes[..bytes.len().min(8192)]).map(|kind| kind.mime_type())
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
        assert_eq!(resolve(Some("not a type"), b"plain"), None);
    }
}
