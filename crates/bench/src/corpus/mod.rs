//! `snug bench corpus`: what packing makes of many kinds of values, of which half were
//! never tuned to.
//!
//! ```text
//! generated.rs  kinds made from a seed ─┐
//!                                       ├─> measure.rs: each kind by itself, in a
//! real.rs       kinds of real data ─────┘   redis-server and in a Snug ──> table
//! ```
//!
//! Each kind belongs to a part: `tune` is for whoever changes the codecs to look at,
//! `held` is only for the figure before a change is taken. Every value is read back and
//! compared.

mod draw;
mod generated;
mod measure;
mod real;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use draw::Draw;

use crate::interrupt;

/// A key and its value.
type Pair = (Vec<u8>, Vec<u8>);

/// What a kind is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// To look at while packing is being changed.
    Tune,
    /// Only for the figure at the end.
    Held,
}

/// Where a kind's values come from.
enum Source {
    /// From a seed: one by its number.
    Generated(fn(&mut Draw, u64) -> Pair),
    /// From a public package.
    Real,
}

/// A kind of values.
struct Kind {
    name: &'static str,
    part: Part,
    /// How many at full scale; of real data at most.
    count: u64,
    source: Source,
}

const fn made(
    name: &'static str,
    part: Part,
    count: u64,
    make: fn(&mut Draw, u64) -> Pair,
) -> Kind {
    Kind { name, part, count, source: Source::Generated(make) }
}

const fn real(name: &'static str, part: Part, count: u64) -> Kind {
    Kind { name, part, count, source: Source::Real }
}

/// In which order the values of several kinds come that are one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mix {
    /// As they are drawn.
    Drawn,
    /// [`TURN`] of a kind, then as many of the next.
    InTurns,
}

/// Values of one kind after which the next one's come.
const TURN: usize = 50_000;

/// All kinds. Which part one belongs to was drawn before any was measured.
const KINDS: &[Kind] = &[
    made("profiles", Part::Tune, 20_000, generated::profiles),
    made("articles", Part::Tune, 5000, generated::articles),
    made("skus", Part::Tune, 20_000, generated::skus),
    made("sessions", Part::Tune, 20_000, generated::sessions),
    made("cache-md5", Part::Tune, 20_000, generated::cache_md5),
    made("emails", Part::Tune, 50_000, generated::emails),
    made("jwts", Part::Tune, 10_000, generated::jwts),
    made("fragments", Part::Tune, 5000, generated::fragments),
    made("logs", Part::Held, 30_000, generated::logs),
    made("csv", Part::Held, 30_000, generated::csv),
    made("xml", Part::Held, 6000, generated::xml),
    made("pickles", Part::Tune, 20_000, generated::pickles),
    made("msgpack", Part::Held, 30_000, generated::msgpack),
    made("protobuf", Part::Tune, 20_000, generated::protobuf),
    made("php", Part::Held, 20_000, generated::php),
    made("embeddings", Part::Held, 6000, generated::embeddings),
    made("series", Part::Tune, 4000, generated::series),
    made("bitmaps", Part::Tune, 2000, generated::bitmaps),
    made("geohashes", Part::Held, 50_000, generated::geohashes),
    made("utf-16", Part::Held, 10_000, generated::utf16),
    made("not-latin", Part::Tune, 15_000, generated::not_latin),
    made("counters", Part::Tune, 50_000, generated::counters),
    made("flags", Part::Held, 50_000, generated::flags),
    made("dates", Part::Tune, 50_000, generated::dates),
    made("urls", Part::Tune, 30_000, generated::urls),
    made("tokens", Part::Held, 30_000, generated::tokens),
    made("short-json", Part::Tune, 50_000, generated::short_json),
    made("uuids", Part::Held, 50_000, generated::uuids),
    made("locks", Part::Held, 30_000, generated::locks),
    made("java", Part::Held, 15_000, generated::java),
    made("compressed", Part::Tune, 10_000, generated::deflated),
    made("encrypted", Part::Held, 5000, generated::encrypted),
    made("tickers", Part::Held, 10_000, generated::tickers),
    made("hosts", Part::Tune, 40_000, generated::hosts),
    made("changing", Part::Tune, 20_000, generated::changing),
    made("results", Part::Tune, 20_000, generated::results),
    made("passwords", Part::Held, 20_000, generated::passwords),
    made("pictures", Part::Held, 3000, generated::pictures),
    made("few", Part::Tune, 742, generated::few),
    made("phones", Part::Held, 50_000, generated::phones),
    made("hll-dense", Part::Held, 200, generated::dense),
    made("chats", Part::Tune, 30_000, generated::chats),
    made("preferences", Part::Held, 30_000, generated::preferences),
    real("airports", Part::Tune, 30_000),
    real("airport-rows", Part::Held, 30_000),
    real("cities", Part::Held, 35_000),
    real("city-names", Part::Tune, 35_000),
    real("movies", Part::Tune, 5000),
    real("emoji", Part::Tune, 5000),
    real("features", Part::Held, 1000),
    real("glosses", Part::Held, 30_000),
    real("media-types", Part::Tune, 5000),
    real("user-agents", Part::Tune, 20_000),
    real("sources", Part::Held, 3000),
    real("html-docs", Part::Tune, 600),
    real("docstrings", Part::Tune, 10_000),
    real("chinese", Part::Tune, 60_000),
    real("time-zones", Part::Held, 1000),
    real("locales", Part::Held, 1200),
    real("subdivisions", Part::Held, 6000),
    real("domains", Part::Held, 12_000),
    real("real-pickles", Part::Held, 30_000),
];

/// `snug bench corpus`'s flags.
#[derive(Debug, Args)]
pub struct CorpusArgs {
    /// Only these kinds
    #[arg(long, value_name = "KIND,..", value_delimiter = ',')]
    kinds: Vec<String>,
    /// Only the kinds of this part
    #[arg(long, value_enum)]
    part: Option<Part>,
    /// Share of each kind's full number of values
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Seed of all that is made
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Give every value a key of random words instead of its own
    #[arg(long)]
    rename: bool,
    /// Give all values keys of one shape, and measure the kinds together too: drawn at
    /// random, and one after the other
    #[arg(long, conflicts_with = "rename")]
    mix: bool,
    /// Name the kinds and end
    #[arg(long)]
    list: bool,
    /// The other server, and its arguments
    #[arg(long, default_value = "redis-server", value_name = "PROGRAM")]
    against: String,
    /// More arguments for Snug
    #[arg(long, default_value = "", allow_hyphen_values = true, value_name = "ARGUMENTS")]
    snug: String,
    /// Kinds that are measured at once
    #[arg(long, default_value_t = 2, value_name = "N")]
    at_once: usize,
    /// Leave out what zstd 19 makes of all values together
    #[arg(long)]
    no_floor: bool,
    /// Where real data is kept once fetched
    #[arg(long, value_name = "DIR", env = "SNUG_BENCH_DATA")]
    data_dir: Option<PathBuf>,
    /// Write the rows as JSON too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl CorpusArgs {
    /// Runs it.
    pub fn run(&self, data_dir: PathBuf) -> ExitCode {
        interrupt::watch();
        let data_dir = self.data_dir.clone().unwrap_or(data_dir);
        let unknown = |name: &&String| KINDS.iter().all(|kind| kind.name != name.as_str());
        if let Some(name) = self.kinds.iter().find(unknown) {
            eprintln!("snug: no kind is called '{name}'; --list names them");
            return ExitCode::from(2);
        }
        let chosen = |kind: &&Kind| {
            self.part.is_none_or(|part| kind.part == part)
                && (self.kinds.is_empty() || self.kinds.iter().any(|name| name == kind.name))
        };
        let chosen: Vec<&Kind> = KINDS.iter().filter(chosen).collect();
        if self.list {
            for kind in chosen {
                let source = if matches!(kind.source, Source::Real) { "real" } else { "generated" };
                println!(
                    "{:<14} {:<5} {:>7}  {source}",
                    kind.name,
                    part_name(kind.part),
                    kind.count
                );
            }
            return ExitCode::SUCCESS;
        }
        let wants_real = chosen.iter().any(|kind| matches!(kind.source, Source::Real));
        let found = if wants_real { real::prepare(&data_dir) } else { Ok(()) };
        if let Err(cause) = found {
            eprintln!("snug: real data is left out, only generated kinds are measured: {cause}");
        }
        measure::run(self, &chosen, &data_dir)
    }

    /// A kind's pairs; `None` where its real data is not there.
    fn pairs(&self, kind: &Kind, data_dir: &std::path::Path) -> Option<Vec<Pair>> {
        let count = ((kind.count as f64 * self.scale).round() as u64).max(1);
        let seed = kind
            .name
            .bytes()
            .fold(self.seed, |seed, byte| seed.wrapping_mul(0x0100_0000_01b3) ^ u64::from(byte));
        let mut draw = Draw::new(seed);
        let mut pairs: Vec<Pair> = match kind.source {
            Source::Generated(make) => (0..count).map(|n| make(&mut draw, n)).collect(),
            Source::Real => real::read(data_dir, kind.name, count)?,
        };
        if self.rename {
            for (n, (key, _)) in pairs.iter_mut().enumerate() {
                *key = random_key(&mut draw, n as u64, key.len());
            }
        }
        if self.mix {
            pairs.iter_mut().for_each(|(key, _)| *key = key_of_one_shape(&mut draw));
        }
        // As the server will have it: the last value of a key.
        let mut last = std::collections::HashMap::new();
        for (at, (key, _)) in pairs.iter().enumerate() {
            last.insert(key.clone(), at);
        }
        let mut at = 0;
        pairs.retain(|(key, _)| {
            at += 1;
            last.get(key) == Some(&(at - 1))
        });
        Some(pairs)
    }
}

/// The values of several kinds as those of one.
fn mixed(seed: u64, mix: Mix, kinds: Vec<Vec<Pair>>) -> Vec<Pair> {
    let mut draw = Draw::new(seed);
    let mut kinds: Vec<_> = kinds.into_iter().map(|pairs| pairs.into_iter().peekable()).collect();
    let mut pairs = Vec::new();
    loop {
        kinds.retain_mut(|left| left.peek().is_some());
        if kinds.is_empty() {
            break;
        }
        kinds.iter_mut().for_each(|left| pairs.extend(left.by_ref().take(TURN)));
    }
    if mix == Mix::Drawn {
        for last in (1..pairs.len()).rev() {
            pairs.swap(last, draw.below(last as u64 + 1) as usize);
        }
    }
    pairs
}

/// A key that tells nothing of its value, and that no other has.
fn key_of_one_shape(draw: &mut Draw) -> Vec<u8> {
    format!("cache:{}", draw.uuid()).into_bytes()
}

/// A key of random words and of some length, that no other has.
fn random_key(draw: &mut Draw, number: u64, len: usize) -> Vec<u8> {
    let mut letters = Vec::new();
    let mut left = number;
    while letters.is_empty() || left > 0 {
        letters.push(b'a' + (left % 26) as u8);
        left /= 26;
    }
    while letters.len() < len {
        letters.push(draw.pick(b"-:./_"));
        letters.extend_from_slice(draw.word().as_bytes());
    }
    letters
}

fn part_name(part: Part) -> &'static str {
    match part {
        Part::Tune => "tune",
        Part::Held => "held",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_come_from_their_seed_alone() {
        for kind in KINDS {
            let Source::Generated(make) = kind.source else { continue };
            let draw = |seed| {
                let mut draw = Draw::new(seed);
                (0..50).map(|n| make(&mut draw, n)).collect::<Vec<_>>()
            };
            assert_eq!(draw(1), draw(1), "{}", kind.name);
            assert_ne!(draw(1), draw(2), "{}", kind.name);
        }
        let mut names: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), KINDS.len());
        let held = KINDS.iter().filter(|kind| kind.part == Part::Held).count();
        assert!(held.abs_diff(KINDS.len() - held) <= 2, "halves");
    }

    #[test]
    fn mixes_have_every_value_once() {
        let kind = |name: &str, count: usize| -> Vec<Pair> {
            (0..count).map(|n| (Vec::new(), format!("{name}{n}").into_bytes())).collect()
        };
        for mix in [Mix::Drawn, Mix::InTurns] {
            let kinds = vec![kind("a", TURN + 2), kind("b", 3)];
            let pairs = mixed(7, mix, kinds.clone());
            let order: Vec<u8> = pairs.iter().map(|(_, value)| value[0]).collect();
            let ends = (order[TURN - 1], order[TURN], order[TURN + 3], order[TURN + 4]);
            assert_eq!(ends == (b'a', b'b', b'a', b'a'), mix == Mix::InTurns);
            let sorted = |mut pairs: Vec<Pair>| {
                pairs.sort();
                pairs
            };
            assert_eq!(sorted(pairs), sorted(kinds.concat()));
        }
    }

    #[test]
    fn random_keys_differ() {
        let mut draw = Draw::new(1);
        let keys: std::collections::HashSet<_> =
            (0..5000).map(|n| random_key(&mut draw, n, 20)).collect();
        assert_eq!(keys.len(), 5000);
        let keys: std::collections::HashSet<_> =
            (0..5000).map(|_| key_of_one_shape(&mut draw)).collect();
        assert_eq!(keys.len(), 5000);
        assert!(keys.iter().all(|key| key.len() == "cache:".len() + 36));
    }
}
