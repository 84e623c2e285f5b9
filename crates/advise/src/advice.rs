//! What follows from what was found: what is worth packing and what not, which commands
//! and types Snug lacks, and what to change where Redis stays.

use std::collections::HashMap;

use serde::Serialize;
use snug_bench::endpoint::Value;
use snug_bench::report::table::{count, megabytes};

use crate::Failure;
use crate::estimate::{Estimate, OfShape};
use crate::sample::{Cells, Detail, Facts, Frame};
use crate::trial::{Family, Trial};

/// A key is large from so many bytes or elements on.
const LARGE_BYTES: u64 = 1 << 20;
const LARGE_LENGTH: u64 = 100_000;
const LARGE_TOLD: usize = 10;
/// Compact encodings are looked through from end to end: not worth it above.
const COMPACT_LENGTH: u64 = 1024;
const COMPACT_LONGEST: u64 = 512;
/// Of what a change would save, what is worth telling of, as a share of all.
const WORTH: f64 = 0.01;

/// A key that is large.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Large {
    pub(crate) db: u32,
    pub(crate) key: String,
    pub(crate) kind: String,
    pub(crate) bytes: u64,
    pub(crate) elements: Option<u64>,
}

/// Whether packing helps with a shape, and why.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Verdict {
    pub(crate) kind: String,
    pub(crate) shape: String,
    pub(crate) worth: bool,
    pub(crate) why: String,
}

#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Advice {
    /// Commands that were called and that Snug lacks, and how often.
    pub(crate) lacking: Vec<(String, u64)>,
    /// Types that Snug lacks, and keys of them.
    pub(crate) lacking_types: Vec<(String, u64)>,
    pub(crate) packing: Vec<Verdict>,
    /// Where Redis stays.
    pub(crate) staying: Vec<String>,
    pub(crate) large: Vec<Large>,
}

pub(crate) fn of(
    facts: &Facts,
    frame: &Frame,
    cells: &Cells,
    details: &[Detail],
    estimate: &Estimate,
    trial: &mut Trial,
) -> Result<Advice, Failure> {
    let families = trial.families()?;
    let mut advice = Advice {
        lacking: lacking(facts, trial)?,
        packing: estimate.shapes.iter().filter_map(|shape| verdict(shape, &families)).collect(),
        large: large(facts, frame, details),
        ..Advice::default()
    };
    for shape in &estimate.shapes {
        if !matches!(&*shape.kind, "string" | "list" | "hash" | "set" | "zset" | "stream") {
            let keys = shape.keys.round() as u64;
            match advice.lacking_types.iter_mut().find(|(kind, _)| *kind == shape.kind) {
                Some((_, sum)) => *sum += keys,
                None => advice.lacking_types.push((shape.kind.clone(), keys)),
            }
        }
    }
    advice.staying.extend(memory(facts));
    advice.staying.extend(expiry(facts, frame, estimate));
    if !facts.is_snug {
        advice.staying.extend(encodings(facts, frame, cells, details, estimate));
    }
    if !advice.large.is_empty() {
        advice.staying.push(format!(
            "{} keys are large: deleting, copying or reading one as a whole holds up everybody; \
             split them, read them in parts, and use UNLINK",
            advice.large.len()
        ));
    }
    Ok(advice)
}

/// The one source is the command table of the Snug that tries the sample.
fn lacking(facts: &Facts, trial: &mut Trial) -> Result<Vec<(String, u64)>, Failure> {
    let mut lacking = Vec::new();
    for (command, calls) in facts.commands.iter().filter(|(_, calls)| *calls > 0) {
        let known = |trial: &mut Trial, name: &str| -> Result<bool, Failure> {
            let reply = trial.control().call(&["COMMAND", "INFO", name])?;
            Ok(matches!(&reply, Value::List(all) if matches!(all.first(), Some(Value::List(_)))))
        };
        if !known(trial, command)? {
            lacking.push((command.clone(), *calls));
        }
    }
    Ok(lacking)
}

fn verdict(shape: &OfShape, families: &[Family]) -> Option<Verdict> {
    if shape.read == 0 || shape.cooled.value <= 0.0 {
        return None;
    }
    let saved = 1.0 - shape.cooled.value / shape.hot.max(1.0);
    let family =
        families.iter().find(|family| family.kind == shape.kind && family.shape == shape.shape);
    let worth = shape.packed_share > 0.02 && saved > 0.02;
    let why = if worth {
        let with = match (&*shape.codec, family.is_some_and(|family| family.dictionary)) {
            ("" | "none", _) => String::new(),
            (codec, true) => format!(", with {codec} and a dictionary of its own"),
            (codec, false) => format!(", with {codec}"),
        };
        format!(
            "{:.0} % of its memory saved{with}; {:.0} % of the values' bytes are packed",
            100.0 * saved,
            100.0 * shape.packed_share
        )
    } else if shape.short_lived > 0.5 {
        "its keys live for seconds only, and are left as they are".into()
    } else if shape.mean_raw < 12.0 && shape.kind == "string" {
        format!("its values are too short: {:.0} bytes in the mean", shape.mean_raw)
    } else if family.is_some_and(|family| family.not_worth > 0 || family.verdict == "raw") {
        "its values hardly get smaller: they are random, encrypted or compressed already".into()
    } else if matches!(&*shape.kind, "set" | "zset" | "list" | "hash") {
        "its elements are short, or numbers, which are kept small from the start".into()
    } else {
        "too little would be saved: values are short, or unlike each other".into()
    };
    Some(Verdict { kind: shape.kind.clone(), shape: shape.shape.clone(), worth, why })
}

fn large(facts: &Facts, frame: &Frame, details: &[Detail]) -> Vec<Large> {
    let read: HashMap<usize, &Detail> = details.iter().map(|detail| (detail.at, detail)).collect();
    let mut large: Vec<Large> = Vec::new();
    for (at, seen) in frame.seen.iter().enumerate() {
        let elements = read.get(&at).filter(|_| seen.kind != "string" && !facts.is_file);
        let elements = elements.map(|detail| detail.length);
        if seen.bytes >= LARGE_BYTES || elements.is_some_and(|length| length >= LARGE_LENGTH) {
            large.push(Large {
                db: seen.db,
                key: shown(&seen.key),
                kind: seen.kind.clone(),
                bytes: seen.bytes,
                elements,
            });
        }
    }
    large.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.key.cmp(&b.key)));
    large.truncate(LARGE_TOLD);
    large
}

/// A key as it may be shown, however long and of whatever bytes.
pub(crate) fn shown(key: &[u8]) -> String {
    const MAX: usize = 60;
    let more = if key.len() > MAX { "..." } else { "" };
    format!("{}{more}", key[..key.len().min(MAX)].escape_ascii())
}

fn memory(facts: &Facts) -> Vec<String> {
    let mut told = Vec::new();
    if facts.is_file {
        return told;
    }
    let used = facts.used.unwrap_or(0);
    if let Some(resident) = facts.resident
        && used > 64 << 20
        && resident as f64 > 1.5 * used as f64
        && !facts.is_snug
    {
        told.push(format!(
            "{} MB are resident for {} MB in use: try activedefrag yes, or restart a replica and \
             fail over",
            megabytes(resident),
            megabytes(used)
        ));
    }
    if facts.maxmemory == 0 && facts.denied.is_empty() {
        told.push("maxmemory is not set: nothing but the kernel limits its memory".into());
    }
    told
}

fn expiry(facts: &Facts, frame: &Frame, estimate: &Estimate) -> Vec<String> {
    const TEMPORARY: &[&str] =
        &["session", "sess:", "cache", "tmp", "temp", "lock", "otp", "token", "csrf", "nonce"];
    let mut told = Vec::new();
    for shape in estimate.shapes.iter().filter(|shape| shape.keys >= 100.0 && shape.read >= 20) {
        let name = shape.shape.to_lowercase();
        if shape.expiring > 0.05 && shape.expiring < 0.98 {
            told.push(format!(
                "{:.0} % of the keys {} expire and the others never do: was a TTL forgotten \
                 somewhere, or lost by a SET without KEEPTTL?",
                100.0 * shape.expiring,
                shape.shape
            ));
        } else if shape.expiring == 0.0 && TEMPORARY.iter().any(|word| name.contains(word)) {
            told.push(format!(
                "the {} keys {} look temporary by their name and never expire",
                count(shape.keys),
                shape.shape
            ));
        }
    }
    let expiring = facts.expiring.unwrap_or(0) as f64 / frame.keys.max(1) as f64;
    if facts.policy.starts_with("volatile-") && expiring < 0.2 && frame.keys > 0 {
        told.push(format!(
            "maxmemory-policy is {}, and only {:.0} % of keys expire: with memory full, writes \
             will be refused",
            facts.policy,
            100.0 * expiring
        ));
    }
    told
}

/// Collections that would be compact if thresholds were higher.
fn encodings(
    facts: &Facts,
    frame: &Frame,
    cells: &Cells,
    details: &[Detail],
    estimate: &Estimate,
) -> Vec<String> {
    let mut read = vec![0usize; cells.count.len()];
    details.iter().for_each(|detail| read[cells.cell_of[detail.at]] += 1);
    let mut told = Vec::new();
    for (kind, encoding) in [("hash", "hashtable"), ("zset", "skiplist"), ("set", "hashtable")] {
        let name = |what: &str| {
            let names =
                [format!("{kind}-max-listpack-{what}"), format!("{kind}-max-ziplist-{what}")];
            names.into_iter().find(|name| facts.params.contains_key(name))
        };
        // Sets have such an encoding since Redis 7.2.
        let (Some(entries), Some(value)) = (name("entries"), name("value")) else { continue };
        let (mut saved, mut keys, mut length, mut longest) = (0.0, 0.0, 0, 0);
        for detail in details {
            let seen = &frame.seen[detail.at];
            if seen.kind != kind
                || detail.encoding != encoding
                || detail.length > COMPACT_LENGTH
                || detail.longest > COMPACT_LONGEST
                || detail.read < detail.length
            {
                continue;
            }
            let cell = cells.cell_of[detail.at];
            let weight = frame.weight() * cells.count[cell] as f64 / read[cell].max(1) as f64;
            let words = detail.length * if kind == "set" { 1 } else { 2 };
            let compact = 96 + seen.key.len() as u64 + detail.element_bytes + 3 * words;
            if compact < seen.bytes {
                saved += weight * (seen.bytes - compact) as f64;
                keys += weight;
                length = length.max(detail.length);
                longest = longest.max(detail.longest);
            }
        }
        if saved > WORTH * estimate.source && saved > 0.0 {
            let now = |name: &str| facts.params.get(name).cloned().unwrap_or_default();
            told.push(format!(
                "{} {kind} keys are {encoding}: {entries} {} (now {}) and {value} {} (now {}) \
                 would save about {} MB of Redis's memory, for keys that are written again",
                count(keys),
                length.next_power_of_two().max(now(&entries).parse().unwrap_or(0)),
                now(&entries),
                longest.next_power_of_two().max(now(&value).parse().unwrap_or(0)),
                now(&value),
                megabytes(saved as u64)
            ));
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::Range;

    #[test]
    fn a_verdict_says_why() {
        let shape = OfShape {
            kind: "string".into(),
            shape: "user:#".into(),
            read: 10,
            hot: 100.0,
            cooled: Range { value: 40.0, low: 39.0, high: 41.0 },
            packed_share: 0.9,
            codec: "zstd".into(),
            ..OfShape::default()
        };
        let found = verdict(&shape, &[]).unwrap();
        assert!(found.worth && found.why.starts_with("60 %"), "{}", found.why);
        let cooled = Range { value: 100.0, ..shape.cooled };
        let random = OfShape { cooled, packed_share: 0.0, mean_raw: 100.0, ..shape.clone() };
        let family = Family {
            kind: "string".into(),
            shape: "user:#".into(),
            not_worth: 3,
            ..Family::default()
        };
        assert!(verdict(&random, &[family]).unwrap().why.contains("random"));
        let short = OfShape { mean_raw: 3.0, ..random };
        assert!(verdict(&short, &[]).unwrap().why.contains("too short"));
        assert!(verdict(&OfShape { read: 0, ..shape }, &[]).is_none());
    }

    #[test]
    fn keys_are_shown_whatever_they_hold() {
        assert_eq!(shown(b"a\xff\n"), r"a\xff\n");
        assert!(shown(&[b'x'; 1000]).len() < 70);
    }
}
