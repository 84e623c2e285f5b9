//! `GET /content?prefix=&cursor=&count=`: names of strings, some at a time, as `SCAN`
//! finds them.
//!
//! Every string that is there from the first page to the last is listed at least once. A
//! page may be short, or empty, and is not the last before it has no `cursor`.

use super::answer::{Answer, Refusal, json};
use super::ask::Asking;
use super::name;
use crate::text::card;
use hyper::{StatusCode, Uri};
use percent_encoding::percent_decode_str;
use serde_json::json;

/// Names on a page, unless told otherwise, and at most.
const COUNT: usize = 100;
const COUNT_MAX: usize = 1000;
/// Keys that one step of a scan looks at.
const STEP: &[u8] = b"1000";
/// Steps of a page: whoever looks for a rare prefix gets empty pages and not a long wait.
const STEPS_MAX: usize = 50;

/// What stands behind the question mark.
pub(super) struct Parameters {
    pub prefix: Vec<u8>,
    cursor: String,
    count: usize,
}

pub(super) fn parameters(uri: &Uri) -> Result<Parameters, Refusal> {
    let mut read = Parameters { prefix: Vec::new(), cursor: "0".into(), count: COUNT };
    let mut seen = Vec::new();
    for pair in uri.query().unwrap_or("").split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value: Vec<u8> = percent_decode_str(&value.replace('+', " ")).collect();
        let text = String::from_utf8_lossy(&value);
        if seen.contains(&key) {
            return Err(Refusal::bad(format!("there is more than one {key}")));
        }
        match key {
            "prefix" => read.prefix = value,
            "cursor" if text.bytes().all(|b| b.is_ascii_digit()) && text.parse::<u64>().is_ok() => {
                read.cursor = text.into_owned();
            }
            "count" => {
                read.count =
                    text.parse().ok().filter(|count| (1..=COUNT_MAX).contains(count)).ok_or_else(
                        || Refusal::bad(format!("count is not from 1 to {COUNT_MAX}")),
                    )?;
            }
            "cursor" => return Err(Refusal::bad("cursor is none that was given out")),
            _ => return Err(Refusal::bad("known are prefix, cursor and count")),
        }
        seen.push(key);
    }
    Ok(read)
}

/// Answers a listing.
pub(super) async fn answer(asking: &mut Asking<'_>, uri: &Uri) -> Result<Answer, Refusal> {
    let Parameters { prefix, mut cursor, count } = parameters(uri)?;
    let mut pattern = Vec::new();
    for &byte in &prefix {
        if b"*?[]\\".contains(&byte) {
            pattern.push(b'\\');
        }
        pattern.push(byte);
    }
    pattern.push(b'*');
    let mut keys = Vec::new();
    for _ in 0..STEPS_MAX {
        let step = if count < COUNT { count.to_string().into_bytes() } else { STEP.to_vec() };
        let scan: [&[u8]; 8] =
            [b"SCAN", cursor.as_bytes(), b"MATCH", &pattern, b"COUNT", &step, b"TYPE", b"string"];
        let reply = asking.command(&scan).await?;
        let mut bulks = bulks(&reply).into_iter();
        cursor = String::from_utf8_lossy(&bulks.next().unwrap_or_default()).into_owned();
        keys.extend(bulks.filter(|key| !card::is_card(key)));
        if cursor == "0" || keys.len() >= count {
            break;
        }
        tokio::task::yield_now().await;
    }
    let listed = keys.iter().map(|key| match std::str::from_utf8(key) {
        Ok(text) => json!({ "key": text, "href": name::path(key) }),
        Err(_) => json!({ "href": name::path(key) }),
    });
    let mut page = json!({ "keys": listed.collect::<Vec<_>>() });
    if cursor != "0" {
        page["cursor"] = cursor.into();
    }
    Ok(json(StatusCode::OK, page.to_string() + "\n"))
}

/// The bulk strings of a reply, however they are nested.
fn bulks(mut reply: &[u8]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    while let Some(end) = reply.windows(2).position(|two| two == b"\r\n") {
        let (head, rest) = (&reply[..end], &reply[end + 2..]);
        reply = rest;
        let len = head.strip_prefix(b"$").and_then(|digits| std::str::from_utf8(digits).ok());
        if let Some(len) = len.and_then(|digits| digits.parse::<usize>().ok())
            && let Some(bulk) = rest.get(..len)
        {
            found.push(bulk.to_vec());
            reply = rest.get(len + 2..).unwrap_or_default();
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_is_read() {
        let reply = b"*2\r\n$1\r\n0\r\n*2\r\n$4\r\na\r\nb\r\n$0\r\n\r\n";
        assert_eq!(bulks(reply), [&b"0"[..], b"a\r\nb", b""]);
        assert!(bulks(b"*0\r\n").is_empty() && bulks(b"$5\r\nab").is_empty());
    }

    #[test]
    fn parameters_are_read_or_refused() {
        let read = |query: &str| parameters(&format!("/content?{query}").parse().unwrap());
        let read_all = read("prefix=a%2Fb+c&cursor=12&count=7").ok().unwrap();
        let all = (&read_all.prefix[..], &read_all.cursor[..], read_all.count);
        assert_eq!(all, (&b"a/b c"[..], "12", 7));
        for wrong in [
            "count=0",
            "count=x",
            "cursor=",
            "cursor=-1",
            "cursor=18446744073709551616",
            "other=1",
            "prefix=a&prefix=a",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
