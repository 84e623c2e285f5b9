//! What is said in the end: as a table, and as JSON.

use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;
use snug_bench::report::table::{align, count, megabytes};

use crate::AdviseArgs;
use crate::advice::Advice;
use crate::estimate::{Estimate, OfShape};
use crate::sample::{Detail, Facts, Frame};

/// Shapes in the table; JSON has them all.
const SHAPES_TOLD: usize = 25;
const COMMANDS_TOLD: usize = 12;

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) source: String,
    pub(crate) facts: Facts,
    pub(crate) keys: u64,
    /// Keys whose sizes, and whose values, were read.
    pub(crate) keys_seen: usize,
    pub(crate) values_read: usize,
    /// What the source takes without what it took when empty, in bytes, if it tells.
    pub(crate) source_bytes: Option<u64>,
    /// What Snug would take for the same.
    pub(crate) snug: Estimate,
    pub(crate) advice: Advice,
    pub(crate) seconds: f64,
}

impl Report {
    pub(crate) fn new(
        args: &AdviseArgs,
        facts: &Facts,
        frame: &Frame,
        details: &[Detail],
        snug: Estimate,
        advice: Advice,
        took: Duration,
    ) -> Self {
        // Whoever reads it is not to learn a password.
        let source = match args.source.split_once("://").zip(args.source.rsplit_once('@')) {
            Some(((scheme, _), (_, place))) => format!("{scheme}://{place}"),
            None => args.source.clone(),
        };
        let source_bytes = facts.used.map(|used| used.saturating_sub(facts.startup.unwrap_or(0)));
        Self {
            source,
            facts: facts.clone(),
            keys: frame.keys,
            keys_seen: frame.seen.len(),
            values_read: details.len(),
            source_bytes,
            snug,
            advice,
            seconds: took.as_secs_f64(),
        }
    }

    /// The sentences that matter.
    pub(crate) fn summary(&self) -> Vec<String> {
        let mb = |bytes: f64| megabytes(bytes.max(0.0) as u64);
        let mut lines = Vec::new();
        let holds = match self.source_bytes {
            Some(bytes) => format!(", {} MB of memory for them", megabytes(bytes)),
            None => String::new(),
        };
        let keys = count(self.keys as f64);
        lines.push(format!("{} ({}): {keys} keys{holds}.", self.source, self.facts.name));
        if self.keys == 0 {
            lines.push("There is nothing to predict from.".into());
            return lines;
        }
        if self.values_read == 0 {
            lines.push("No value could be read, so nothing is predicted.".into());
            return lines;
        }
        let cooled = self.snug.cooled;
        let ratio =
            self.source_bytes.filter(|bytes| *bytes > 0).map_or_else(String::new, |bytes| {
                format!(", {:.0} % of that", 100.0 * cooled.value / bytes as f64)
            });
        lines.push(format!(
            "Snug would take {} MB when all has cooled{ratio} ({} to {} MB in 19 of 20 \
             cases), and {} MB before anything is packed.",
            mb(cooled.value),
            mb(cooled.low),
            mb(cooled.high),
            mb(self.snug.hot)
        ));
        if let Some(now) = self.snug.now.filter(|now| *now > 1.02 * cooled.value) {
            lines.push(format!(
                "With what was used in the last 10 seconds left as it is, {} MB.",
                mb(now)
            ));
        }
        if self.snug.unread_keys > 0.005 * self.keys as f64 {
            lines.push(format!(
                "About {} keys are not in this: of none like them a value could be read.",
                count(self.snug.unread_keys.round())
            ));
        }
        // MEMORY USAGE and the dataset are the same but for tables and rounding.
        if let Some(dataset) = self.facts.dataset
            && self.keys_seen < self.keys as usize
            && self.snug.source < 0.7 * dataset as f64
            && dataset > 16 << 20
            && !self.facts.is_file
        {
            lines.push(format!(
                "The keys that were seen stand for {} MB of the {} MB that the server holds: some \
                 large keys were missed. Try a greater --sample.",
                mb(self.snug.source),
                megabytes(dataset)
            ));
        }
        lines
    }

    pub(crate) fn shape_rows(&self, most: usize) -> Vec<Vec<String>> {
        let heads =
            ["keys like", "type", "keys", "now MB", "Snug hot", "cooled", "95 % from", "to"];
        let mut rows = vec![heads.map(str::to_owned).to_vec()];
        rows[0].extend(["of now".to_owned(), "packed".to_owned()]);
        let mb = |bytes: f64| megabytes(bytes.max(0.0) as u64);
        let mut push = |shape: &OfShape| {
            let is_read = shape.read > 0;
            let tell = |text: String| if is_read { text } else { "-".into() };
            let of_now = match shape.source > 0.0 && !self.facts.is_file {
                true => format!("{:.0} %", 100.0 * shape.cooled.value / shape.source),
                false => "-".into(),
            };
            rows.push(vec![
                shape.shape.clone(),
                shape.kind.clone(),
                count(shape.keys.round()),
                mb(shape.source),
                tell(mb(shape.hot)),
                tell(mb(shape.cooled.value)),
                tell(mb(shape.cooled.low)),
                tell(mb(shape.cooled.high)),
                tell(of_now),
                tell(format!("{:.0} %", 100.0 * shape.packed_share)),
            ]);
        };
        self.snug.shapes.iter().take(most).for_each(&mut push);
        if self.facts.is_file {
            rows[0][3] = "in file MB".into();
        }
        rows
    }

    /// What was and was not to be had, as sentences.
    pub(crate) fn remarks(&self) -> Vec<String> {
        let mut told = Vec::new();
        if self.facts.is_cluster {
            told.push(
                "This is one node of a cluster: run it on the others too, and add up.".to_owned(),
            );
        }
        told.extend(self.facts.denied.iter().map(|denied| format!("Not allowed: {denied}.")));
        told.extend(self.facts.notes.iter().map(|note| format!("Note: {note}.")));
        if self.facts.functions > 0 {
            told.push(format!(
                "It has {} libraries of functions: see whether Snug loads them (FUNCTION LOAD).",
                self.facts.functions
            ));
        }
        let how = match self.keys_seen as u64 >= self.keys {
            true => "all keys".into(),
            false => format!("{} keys drawn at random", count(self.keys_seen as f64)),
        };
        let cost = self
            .facts
            .cost_s
            .map_or_else(String::new, |cost| format!("; it cost the server {cost:.2} s of CPU"));
        told.push(format!(
            "Sizes of {how} and {} values were read in {:.0} s{cost}.",
            count(self.values_read as f64),
            self.seconds
        ));
        told
    }

    pub(crate) fn lacking(&self) -> String {
        let told = |all: &[(String, u64)]| {
            let one = |(name, calls): &(String, u64)| format!("{name} ({})", count(*calls as f64));
            all.iter().map(one).collect::<Vec<_>>().join(", ")
        };
        let mut text = String::new();
        if !self.advice.lacking.is_empty() {
            let _ = writeln!(text, "Snug lacks commands in use: {}", told(&self.advice.lacking));
        }
        if !self.advice.lacking_types.is_empty() {
            let _ = writeln!(
                text,
                "Snug lacks types in use, by keys: {}",
                told(&self.advice.lacking_types)
            );
        }
        if text.is_empty() && !self.facts.commands.is_empty() {
            text.push_str("Snug has every command and type that is in use.\n");
        }
        text
    }

    pub(crate) fn commands(&self) -> String {
        let calls = self.facts.commands.iter().filter(|(_, calls)| *calls > 0);
        let some: Vec<String> = calls
            .take(COMMANDS_TOLD)
            .map(|(name, calls)| format!("{name} {}", count(*calls as f64)))
            .collect();
        some.join(", ")
    }

    /// The whole, for a terminal.
    pub(crate) fn text(&self) -> String {
        let mut text = self.summary().join("\n");
        text.push('\n');
        if self.values_read > 0 {
            text.push('\n');
            text.push_str(&align(&self.shape_rows(SHAPES_TOLD), 2));
            let more = self.snug.shapes.len().saturating_sub(SHAPES_TOLD);
            if more > 0 {
                let _ = writeln!(text, "and {more} more, which --json tells");
            }
            let _ = writeln!(
                text,
                "besides: {} MB of tables that keys are found in, {} MB of dictionaries and the \
                 like",
                megabytes(self.snug.tables as u64),
                megabytes(self.snug.fixed as u64)
            );
            let _ = writeln!(text, "\nPacking");
            for verdict in self.advice.packing.iter().take(SHAPES_TOLD) {
                let mark = if verdict.worth { "+" } else { "-" };
                let _ =
                    writeln!(text, "  {mark} {} {}: {}", verdict.kind, verdict.shape, verdict.why);
            }
        }
        text.push('\n');
        text.push_str(&self.lacking());
        let commands = self.commands();
        if !commands.is_empty() {
            let _ = writeln!(text, "Commands in use: {commands}");
        }
        if !self.advice.large.is_empty() {
            let _ = writeln!(text, "\nLarge keys");
            for large in &self.advice.large {
                let elements = large.elements.map_or_else(String::new, |elements| {
                    format!(", {} elements", count(elements as f64))
                });
                let _ = writeln!(
                    text,
                    "  {} of database {}: {}, {} MB{elements}",
                    large.key,
                    large.db,
                    large.kind,
                    megabytes(large.bytes)
                );
            }
        }
        if !self.advice.staying.is_empty() {
            let stays = if self.facts.is_snug { "\nAs it is now" } else { "\nWhere Redis stays" };
            let _ = writeln!(text, "{stays}");
            for line in &self.advice.staying {
                let _ = writeln!(text, "  {line}");
            }
        }
        text.push('\n');
        for line in self.remarks() {
            let _ = writeln!(text, "{line}");
        }
        text
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::advice::{Large, Verdict};
    use crate::estimate::Range;

    pub(crate) fn sample() -> Report {
        let cooled = Range { value: 40e6, low: 38e6, high: 42e6 };
        let shape = OfShape {
            kind: "string".into(),
            shape: "user:#:<mail>".into(),
            keys: 1e6,
            read: 500,
            source: 120e6,
            raw: 80e6,
            hot: 100e6,
            cooled,
            packed_share: 0.9,
            codec: "zstd".into(),
            ..OfShape::default()
        };
        let unread = OfShape { kind: "ReJSON-RL".into(), read: 0, ..shape.clone() };
        let verdict = Verdict {
            kind: "string".into(),
            shape: shape.shape.clone(),
            worth: true,
            why: "60 % of its memory saved".into(),
        };
        let large = Large {
            db: 0,
            key: "big".into(),
            kind: "hash".into(),
            bytes: 5 << 20,
            elements: Some(100_000),
        };
        Report {
            source: "redis://db".into(),
            facts: Facts {
                name: "redis 7.0.15".into(),
                used: Some(200_000_000),
                commands: vec![("get".into(), 100), ("json.get".into(), 7)],
                ..Facts::default()
            },
            keys: 1_000_000,
            keys_seen: 100_000,
            values_read: 500,
            source_bytes: Some(200_000_000),
            snug: Estimate {
                cooled: cooled.plus(10e6),
                hot: 110e6,
                shapes: vec![shape, unread],
                ..Estimate::default()
            },
            advice: Advice {
                lacking: vec![("json.get".into(), 7)],
                lacking_types: vec![("ReJSON-RL".into(), 9)],
                packing: vec![verdict],
                staying: vec!["maxmemory is not set".into()],
                large: vec![large],
            },
            seconds: 12.0,
        }
    }

    #[test]
    fn the_text_says_what_matters() {
        let text = sample().text();
        for part in [
            "Snug would take 50.0 MB when all has cooled, 25 % of that",
            "48.0 to 52.0 MB",
            "Snug lacks commands in use: json.get (7)",
            "ReJSON-RL (9)",
            "+ string user:#:<mail>: 60 %",
            "big of database 0: hash, 5.24 MB, 100,000 elements",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        let empty = Report { keys: 0, ..sample() };
        assert!(empty.text().contains("nothing to predict from"));
    }

    #[test]
    fn json_has_it_all() {
        let json = serde_json::to_value(sample()).unwrap();
        assert_eq!(json["snug"]["cooled"]["value"], 50e6);
        assert_eq!(json["snug"]["shapes"][0]["shape"], "user:#:<mail>");
        assert_eq!(json["advice"]["lacking"][0][0], "json.get");
    }
}
