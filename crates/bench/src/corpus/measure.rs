//! One kind after another, in a redis-server and in a Snug: each starts empty, takes
//! all values, comes to rest, and gives them back.
//!
//! Memory is what `used_memory` grew by. CPU is the server's process's: to pack, from
//! the last write until it rests; to read, of `GET`s by 100.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::{CorpusArgs, Kind, Mix, Pair, Part, mixed, part_name};
use crate::affinity::Cores;
use crate::endpoint::{Control, Endpoint, Value};
use crate::interrupt;
use crate::process::Process;
use crate::report::table;
use crate::request::write_request;
use crate::server_facts;
use crate::target::Target;

/// Bytes of requests that are sent before their answers are read.
const SEND: usize = 64 << 10;
/// Values read at once.
const READ: usize = 100;
/// It rests when for so long its memory has hardly changed ...
const REST: Duration = Duration::from_secs(4);
const LOOK: Duration = Duration::from_millis(250);
/// ... and is waited for at least and at most for.
const REST_MIN: Duration = Duration::from_secs(6);
const REST_MAX: Duration = Duration::from_mins(2);
/// A server that cools soon, so that many kinds are measured in some minutes.
const COOL: &str = "--pack-cold-after 1";

/// What a kind takes.
#[derive(Debug, Clone, Serialize)]
struct Row {
    kind: &'static str,
    /// None of several kinds together.
    part: Option<Part>,
    keys: usize,
    key_bytes: usize,
    value_bytes: usize,
    /// All values together by zstd 19.
    floor: Option<usize>,
    other: u64,
    hot: u64,
    cooled: u64,
    families: usize,
    dictionaries: usize,
    dictionary_bytes: u64,
    pack_cpu_s: f64,
    read_us: f64,
    other_read_us: f64,
}

impl Row {
    fn ratio(&self) -> f64 {
        self.cooled as f64 / self.other.max(1) as f64
    }
}

/// What a server was seen to do with a kind.
struct Seen {
    hot: u64,
    cooled: u64,
    pack_cpu_s: f64,
    read_us: f64,
    families: usize,
    dictionaries: usize,
    dictionary_bytes: u64,
}

/// What is measured by itself: a kind, or all that were chosen as one.
#[derive(Clone, Copy)]
enum Set<'a> {
    Kind(&'a Kind),
    Mix(Mix),
}

impl Set<'_> {
    fn name(self) -> &'static str {
        match self {
            Set::Kind(kind) => kind.name,
            Set::Mix(Mix::Drawn) => "all, drawn",
            Set::Mix(Mix::InTurns) => "all, in turns",
        }
    }
}

/// Measures, shows the table, and writes the rows where that was asked for.
pub(super) fn run(args: &CorpusArgs, kinds: &[&Kind], data_dir: &Path) -> ExitCode {
    let mut sets: Vec<Set<'_>> = kinds.iter().map(|kind| Set::Kind(kind)).collect();
    if args.mix {
        sets.extend([Mix::Drawn, Mix::InTurns].map(Set::Mix));
    }
    let next = AtomicUsize::new(0);
    let rows: Mutex<Vec<(usize, Result<Row, String>)>> = Mutex::default();
    let work = || {
        while let Some((at, set)) = {
            let at = next.fetch_add(1, Ordering::Relaxed);
            sets.get(at).map(|set| (at, *set))
        } {
            if interrupt::requested() {
                return;
            }
            let pairs = match set {
                Set::Kind(kind) => args.pairs(kind, data_dir),
                Set::Mix(mix) => {
                    let kinds = kinds.iter().filter_map(|kind| args.pairs(kind, data_dir));
                    Some(mixed(args.seed, mix, kinds.collect()))
                }
            };
            let Some(pairs) = pairs else { continue };
            let row = measure(args, set, &pairs);
            if let Ok(row) = &row {
                eprintln!("snug: {:<14} {:>5.1} %", row.kind, 100.0 * row.ratio());
            }
            rows.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((at, row));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..args.at_once.max(1) {
            scope.spawn(work);
        }
    });
    let mut rows = rows.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    rows.sort_by_key(|(at, _)| *at);
    let mut failed = false;
    let mut good = Vec::new();
    for (at, row) in rows {
        match row {
            Ok(row) => good.push(row),
            Err(cause) => {
                eprintln!("snug: {}: {cause}", sets[at].name());
                failed = true;
            }
        }
    }
    print!("{}", render(&good));
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&good).unwrap_or_default();
        if let Err(error) = std::fs::write(path, text) {
            eprintln!("snug: cannot write {}: {error}", path.display());
            failed = true;
        }
    }
    ExitCode::from(u8::from(failed))
}

fn measure(args: &CorpusArgs, set: Set<'_>, pairs: &[Pair]) -> Result<Row, String> {
    let floor = (!args.no_floor).then(|| floor(pairs));
    let other = serve(&args.against, pairs, false)?;
    let snug = serve(&format!("snug {COOL} {}", args.snug), pairs, true)?;
    Ok(Row {
        kind: set.name(),
        part: match set {
            Set::Kind(kind) => Some(kind.part),
            Set::Mix(_) => None,
        },
        keys: pairs.len(),
        key_bytes: pairs.iter().map(|(key, _)| key.len()).sum(),
        value_bytes: pairs.iter().map(|(_, value)| value.len()).sum(),
        floor,
        other: other.cooled,
        hot: snug.hot,
        cooled: snug.cooled,
        families: snug.families,
        dictionaries: snug.dictionaries,
        dictionary_bytes: snug.dictionary_bytes,
        pack_cpu_s: snug.pack_cpu_s,
        read_us: snug.read_us,
        other_read_us: other.read_us,
    })
}

/// What zstd 19 makes of all values, one behind the other.
fn floor(pairs: &[Pair]) -> usize {
    let all: Vec<u8> = pairs.iter().flat_map(|(_, value)| value.iter().copied()).collect();
    let mut out = vec![0u8; zstd_safe::compress_bound(all.len())];
    zstd_safe::compress(&mut out[..], &all, 19).unwrap_or(all.len())
}

fn serve(program: &str, pairs: &[Pair], is_snug: bool) -> Result<Seen, String> {
    let say = |error: &dyn std::fmt::Display| error.to_string();
    let cores = Cores::allowed().map_err(|error| say(&error))?;
    let target = Target::parse(program).map_err(|error| say(&error))?;
    let started = target.start(&cores, &cores, None, &Endpoint::local(0));
    let server = started.map_err(|error| say(&error))?;
    let mut control = server.endpoint.open().map_err(|error| say(&error))?;
    let identity = server_facts::identify(&mut control, &server.endpoint);
    let process = identity.map_err(|error| say(&error))?.process;
    let used = |control: &mut Control| -> Result<u64, String> {
        Ok(server_facts::memory(control, process).map_err(|error| say(&error))?.used)
    };
    let empty = used(&mut control)?;
    write(&mut control, pairs)?;
    let hot = used(&mut control)?.saturating_sub(empty);
    let before = process.and_then(Process::cpu_time);
    if is_snug {
        let runs = || process.is_some_and(Process::is_runnable);
        rest(|| used(&mut control), runs)?;
    }
    let since = |before: Option<crate::process::CpuTime>| {
        let now = process.and_then(Process::cpu_time);
        now.zip(before).map_or(0.0, |(now, before)| now.seconds_since(&before))
    };
    let pack_cpu_s = since(before);
    let cooled = used(&mut control)?.saturating_sub(empty);
    let before = process.and_then(Process::cpu_time);
    read(&mut control, pairs)?;
    let read_us = since(before) * 1e6 / pairs.len() as f64;
    let mut seen = Seen {
        hot,
        cooled,
        pack_cpu_s,
        read_us,
        families: 0,
        dictionaries: 0,
        dictionary_bytes: 0,
    };
    if is_snug {
        let facts = server_facts::packing(&mut control).map_err(|error| say(&error))?;
        let fact = |name: &str| facts.get(name).and_then(|text| text.parse::<u64>().ok());
        seen.families = fact("string_families").unwrap_or(0) as usize;
        seen.dictionaries = fact("string_dictionaries").unwrap_or(0) as usize;
        seen.dictionary_bytes = fact("string_dictionary_bytes").unwrap_or(0);
        if fact("values_damaged") != Some(0) {
            return Err("values are damaged".into());
        }
    }
    Ok(seen)
}

fn write(control: &mut Control, pairs: &[Pair]) -> Result<(), String> {
    let (mut requests, mut count) = (Vec::new(), 0);
    for (at, (key, value)) in pairs.iter().enumerate() {
        write_request(&mut requests, &[b"SET", key, value]);
        count += 1;
        if requests.len() >= SEND || at + 1 == pairs.len() {
            let answers = control.pipeline(&requests, count).map_err(|error| error.to_string())?;
            if let Some(Value::Error(text)) = answers.iter().find(|a| matches!(a, Value::Error(_)))
            {
                return Err(text.clone());
            }
            requests.clear();
            count = 0;
        }
    }
    Ok(())
}

/// Reads every value and compares it.
fn read(control: &mut Control, pairs: &[Pair]) -> Result<(), String> {
    for some in pairs.chunks(READ) {
        let mut requests = Vec::new();
        some.iter().for_each(|(key, _)| write_request(&mut requests, &[b"GET", key]));
        let answers = control.pipeline(&requests, some.len()).map_err(|error| error.to_string())?;
        for ((key, value), answer) in some.iter().zip(answers) {
            if !matches!(&answer, Value::Text(text) if text == value) {
                return Err(format!("{} came back as another", String::from_utf8_lossy(key)));
            }
        }
    }
    Ok(())
}

/// Waits until the memory in use has hardly changed for a while, in which the server's
/// threads were seen to wait for the most part.
fn rest(
    mut used: impl FnMut() -> Result<u64, String>,
    runs: impl Fn() -> bool,
) -> Result<(), String> {
    let (began, mut changed, mut last) = (Instant::now(), Instant::now(), 0);
    let (mut looks, mut ran) = (0, 0);
    while began.elapsed() < REST_MAX && !interrupt::requested() {
        std::thread::sleep(LOOK);
        let now = used()?;
        std::thread::sleep(LOOK / 8);
        (looks, ran) = (looks + 1, ran + u32::from(runs()));
        if now.abs_diff(last) > last / 500 {
            (changed, last) = (Instant::now(), now);
            (looks, ran) = (0, 0);
        }
        if began.elapsed() >= REST_MIN && changed.elapsed() >= REST {
            if 4 * ran <= looks {
                break;
            }
            (changed, looks, ran) = (Instant::now(), 0, 0);
        }
    }
    Ok(())
}

fn render(rows: &[Row]) -> String {
    let heads = [
        "kind",
        "part",
        "keys",
        "raw KB",
        "redis KB",
        "hot KB",
        "cooled KB",
        "of redis",
        "zstd -19",
        "families",
        "dicts KB",
        "pack us/KB",
        "read us",
        "redis",
    ];
    let kb = |bytes: u64| format!("{:.0}", bytes as f64 / 1000.0);
    let mut cells = vec![heads.map(str::to_owned).to_vec()];
    for row in rows {
        let raw = (row.key_bytes + row.value_bytes) as u64;
        cells.push(vec![
            row.kind.to_owned(),
            row.part.map_or("", part_name).to_owned(),
            row.keys.to_string(),
            kb(raw),
            kb(row.other),
            kb(row.hot),
            kb(row.cooled),
            format!("{:.1} %", 100.0 * row.ratio()),
            row.floor.map_or_else(|| "-".into(), |floor| kb(floor as u64)),
            row.families.to_string(),
            kb(row.dictionary_bytes),
            format!("{:.0}", row.pack_cpu_s * 1e9 / row.value_bytes.max(1) as f64),
            format!("{:.1}", row.read_us),
            format!("{:.1}", row.other_read_us),
        ]);
    }
    let mut text = table::align(&cells, 2);
    let median = |rows: &[&Row]| {
        let mut ratios: Vec<f64> = rows.iter().map(|row| row.ratio()).collect();
        ratios.sort_by(f64::total_cmp);
        ratios.get(ratios.len() / 2).copied().unwrap_or(0.0)
    };
    let part = |part| rows.iter().filter(|row| row.part == Some(part)).collect::<Vec<_>>();
    let all: Vec<&Row> = rows.iter().filter(|row| row.part.is_some()).collect();
    // Those that zstd halves: what others may reach is another matter.
    let halved =
        all.iter().copied().filter(|row| row.floor.is_some_and(|f| 2 * f <= row.value_bytes));
    let halved: Vec<&Row> = halved.collect();
    let above = all.iter().filter(|row| row.ratio() > 0.95).count();
    text += &format!(
        "median {:.1} % of {} kinds (tune {:.1}, held {:.1}), {:.1} % of {} that zstd -19 halves; {above} above 95 %\n",
        100.0 * median(&all),
        all.len(),
        100.0 * median(&part(Part::Tune)),
        100.0 * median(&part(Part::Held)),
        100.0 * median(&halved),
        halved.len(),
    );
    let alone: u64 = all.iter().map(|row| row.cooled).sum();
    for row in rows.iter().filter(|row| row.part.is_none()) {
        text += &format!(
            "{}: {:.0} KB cooled, {:.1} % of what the kinds take one by one\n",
            row.kind,
            row.cooled as f64 / 1000.0,
            100.0 * row.cooled as f64 / alone.max(1) as f64
        );
    }
    text
}
