//! Conditions of requests (RFC 9110, section 13), in the order in which they count.
//!
//! A change is made if the string is still the one that `If-Match` names, in whatever
//! encoding the client had it; a `GET` is answered 304 if the client has what it would be
//! sent.

use crate::text::tag::{Listed, Tag, listed};
use hyper::header::{self, HeaderMap, HeaderName};
use std::time::{Duration, SystemTime};

/// What of a string conditions are about; nothing if there is no such key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Current {
    /// The tag of its bytes; none if no condition asks for that.
    pub tag: Option<Tag>,
    /// When it was put over HTTP, in Unix seconds.
    pub modified: Option<u64>,
}

impl Current {
    /// A string of which it is known that it is there.
    pub(super) const THERE: Self = Self { tag: None, modified: None };
}

/// What the conditions of a change ask of the string that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Needs {
    Nothing,
    /// Whether there is one.
    Presence,
    /// Its bytes, of which its tag is made, or by whose tag its card is believed.
    Bytes,
}

/// What the conditions come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Go,
    /// The client has it. With the tag that it named, if it named one.
    NotModified(Option<String>),
    Failed,
}

/// What is to be known of a string before a change of it is judged.
pub(super) fn needs(headers: &HeaderMap) -> Needs {
    let tags = [header::IF_MATCH, header::IF_NONE_MATCH];
    let mut tags = tags.iter().flat_map(|name| headers.get_all(name)).peekable();
    if headers.contains_key(header::IF_UNMODIFIED_SINCE) {
        return Needs::Bytes;
    }
    if tags.peek().is_none() {
        return Needs::Nothing;
    }
    match tags.all(|value| value.as_bytes().trim_ascii() == b"*") {
        true => Needs::Presence,
        false => Needs::Bytes,
    }
}

/// Judges the conditions of a request that changes, or of one that `reads`. Of one that reads
/// a listed tag counts if `acceptable` says that the client would be sent that variant.
pub(super) fn judge(
    headers: &HeaderMap,
    current: Option<Current>,
    reads: bool,
    acceptable: impl Fn(&str) -> bool,
) -> Verdict {
    let modified = current.and_then(|current| current.modified);
    if headers.contains_key(header::IF_MATCH) {
        let is_it = |one: Listed<'_>, tag| !one.weak && one.is_of(tag);
        if !matches(headers, &header::IF_MATCH, current, is_it) {
            return Verdict::Failed;
        }
    } else if let (Some(since), Some(at)) = (date(headers, &header::IF_UNMODIFIED_SINCE), modified)
        && at > since
    {
        return Verdict::Failed;
    }
    if headers.contains_key(header::IF_NONE_MATCH) {
        let mut known = None;
        let is_it = |one: Listed<'_>, tag| {
            let is_it = one.is_of(tag) && (!reads || acceptable(one.opaque));
            if is_it {
                known.get_or_insert_with(|| format!("\"{}\"", one.opaque));
            }
            is_it
        };
        if matches(headers, &header::IF_NONE_MATCH, current, is_it) {
            return if reads { Verdict::NotModified(known) } else { Verdict::Failed };
        }
    } else if let (true, Some(since), Some(at)) =
        (reads, date(headers, &header::IF_MODIFIED_SINCE), modified)
        && at <= since
    {
        return Verdict::NotModified(None);
    }
    Verdict::Go
}

/// Whether one of the tags listed is the current one, or there is a current one and the list
/// is a star.
fn matches(
    headers: &HeaderMap,
    name: &HeaderName,
    current: Option<Current>,
    mut is_it: impl FnMut(Listed<'_>, Tag) -> bool,
) -> bool {
    let Some(Current { tag, .. }) = current else { return false };
    headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).any(|text| {
        text.trim() == "*" || tag.is_some_and(|tag| listed(text).any(|one| is_it(one, tag)))
    })
}

/// A date in Unix seconds; one that is none is as if it were not there.
fn date(headers: &HeaderMap, name: &HeaderName) -> Option<u64> {
    since(headers.get(name)?.to_str().ok()?)
}

fn since(text: &str) -> Option<u64> {
    let time = httpdate::parse_http_date(text).ok()?;
    Some(time.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs())
}

/// Unix seconds as HTTP writes them, if there is such a date.
pub(super) fn written(seconds: u64) -> Option<String> {
    const YEAR_10000: u64 = 253_402_300_800;
    (seconds < YEAR_10000)
        .then(|| httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)))
}

/// Whether a `Range` still holds: there is no `If-Range`, or it is the tag of what would be
/// sent.
///
/// A date never holds. It would have to be a strong validator (RFC 9110, section 13.1.5),
/// which it is for a server that knows that the string did not change twice within that
/// second (section 8.8.2.2), and a card tells seconds. Nobody need send one: every answer has
/// a tag, and whoever has a tag may not send a date.
pub(super) fn range_holds(headers: &HeaderMap, sent: &str) -> bool {
    let Some(given) = headers.get(header::IF_RANGE) else { return true };
    let one = given.to_str().ok().and_then(|text| listed(text).next());
    one.is_some_and(|one| !one.weak && one.opaque == sent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    const AT: u64 = 784_111_777;
    const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const LATER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";
    const EARLIER: &str = "Sun, 06 Nov 1994 08:49:36 GMT";

    fn verdict(all: &[(HeaderName, &str)], there: bool, reads: bool) -> Verdict {
        let tag = Tag::of(b"x");
        let fill = |text: &str| text.replace("TAG", &tag.to_string());
        let headers: HeaderMap = all
            .iter()
            .map(|(n, v)| (n.clone(), HeaderValue::from_str(&fill(v)).unwrap()))
            .collect();
        let current = there.then_some(Current { tag: Some(tag), modified: Some(AT) });
        judge(&headers, current, reads, |opaque| !opaque.ends_with("-br"))
    }

    #[test]
    fn conditions_in_their_order() {
        use Verdict::*;
        let (im, inm) = (header::IF_MATCH, header::IF_NONE_MATCH);
        let (ims, ius) = (header::IF_MODIFIED_SINCE, header::IF_UNMODIFIED_SINCE);
        let known = |suffix: &str| NotModified(Some(format!("\"{}{suffix}\"", Tag::of(b"x"))));
        for (headers, there, reads, expected) in [
            (vec![], true, true, Go),
            (vec![(im.clone(), "\"TAG\"")], true, false, Go),
            (vec![(im.clone(), "\"a\", \"TAG-gzip\"")], true, false, Go),
            (vec![(im.clone(), "W/\"TAG\"")], true, false, Failed),
            (vec![(im.clone(), "\"TAG-foo\"")], true, false, Failed),
            (vec![(im.clone(), "\"a\"")], true, true, Failed),
            (vec![(im.clone(), "*")], false, false, Failed),
            (vec![(im.clone(), "*")], true, false, Go),
            (vec![(inm.clone(), "*")], true, false, Failed),
            (vec![(inm.clone(), "*")], false, false, Go),
            (vec![(inm.clone(), "*")], true, true, NotModified(None)),
            (vec![(inm.clone(), "W/\"TAG\"")], true, true, known("")),
            (vec![(inm.clone(), "\"TAG-gzip\"")], true, true, known("-gzip")),
            (vec![(inm.clone(), "\"TAG-br\"")], true, true, Go),
            (vec![(inm.clone(), "\"b\""), (ims.clone(), DATE)], true, true, Go),
            (vec![(ims.clone(), DATE)], true, true, NotModified(None)),
            (vec![(ims.clone(), LATER)], true, true, NotModified(None)),
            (vec![(ims.clone(), EARLIER)], true, true, Go),
            (vec![(ims.clone(), DATE)], true, false, Go),
            (vec![(ims, "nonsense")], true, true, Go),
            (vec![(ius.clone(), EARLIER)], true, false, Failed),
            (vec![(ius.clone(), DATE)], true, false, Go),
            (vec![(im, "\"TAG\""), (ius, EARLIER)], true, false, Go),
        ] {
            assert_eq!(verdict(&headers, there, reads), expected, "{headers:?}");
        }
    }

    #[test]
    fn what_a_change_asks_of_what_is_there() {
        let (im, inm) = (header::IF_MATCH, header::IF_NONE_MATCH);
        for (headers, expected) in [
            (vec![], Needs::Nothing),
            (vec![(header::IF_MODIFIED_SINCE, DATE)], Needs::Nothing),
            (vec![(inm.clone(), "*")], Needs::Presence),
            (vec![(im.clone(), " * "), (inm.clone(), "*")], Needs::Presence),
            (vec![(im, "*"), (inm, "\"a\"")], Needs::Bytes),
            (vec![(header::IF_UNMODIFIED_SINCE, DATE)], Needs::Bytes),
        ] {
            let headers = headers.into_iter().map(|(n, v)| (n, HeaderValue::from_static(v)));
            assert_eq!(needs(&headers.collect()), expected);
        }
    }

    #[test]
    fn a_range_holds_for_what_it_was_of() {
        let with = |text: &str| {
            let value = HeaderValue::from_str(text).unwrap();
            let headers: HeaderMap = [(header::IF_RANGE, value)].into_iter().collect();
            range_holds(&headers, "abc")
        };
        assert!(range_holds(&HeaderMap::new(), "abc") && with("\"abc\""));
        assert!(!with("W/\"abc\"") && !with("\"abd\"") && !with(DATE) && !with("x"));
    }
}
