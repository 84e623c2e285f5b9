//! `snug check --to-timestamp`: an append-only file as it was at a time.
//!
//! Servers that note the time (`aof-timestamp-enabled`) write it in front of the first
//! change of each second. What stands behind the first time that is later is cut off, and
//! the increments behind that one are emptied: no manifest changes, and a server loads what
//! is left. The base is of one moment; if that is later, nothing is changed.

use super::{Kind, cut, open, read_manifest, store};
use snug_rdb::{Event, ReadOptions, Reader};
use snug_server::{AofCommands as Commands, AofNext as Next};
use snug_store::Limits;
use snug_store::image::{ImageReader, Part, Trust};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

fn refused(why: impl Into<String>) -> io::Error {
    io::Error::other(why.into())
}

/// What a file says about times.
#[derive(Debug, Default)]
struct Times {
    /// Where it is to be cut: in front of the first time that is too late.
    cut: Option<u64>,
    /// The last time noted before that.
    last: Option<u64>,
}

/// Cuts an append-only file, told by its manifest or alone, behind the last change of a
/// second; tells what it did.
pub(crate) fn rewind(path: &Path, second: u64) -> io::Result<()> {
    let (mut file, _) = open(path)?;
    let (base, increments) = match Kind::of(path, &mut file)? {
        Kind::AppendOnly => (None, vec![path.to_owned()]),
        Kind::Manifest => {
            let manifest = read_manifest(file)?;
            let folder = path.parent().unwrap_or_else(|| Path::new(""));
            let at = |part: &snug_rdb::manifest::Part| folder.join(&part.name);
            (manifest.base.as_ref().map(at), manifest.increments.iter().map(at).collect())
        }
        _ => return Err(refused("only an append-only file can be cut at a time")),
    };
    if let Some(base) = base
        && let Some(time) = time_of_base(&base)?
        && time > second
    {
        let base = base.display();
        return Err(refused(format!("{base} is of {time}, which is later: nothing was cut")));
    }
    let mut all = Vec::new();
    for path in increments {
        all.push((times(&path, second)?, path));
    }
    if all.iter().all(|(times, _)| times.cut.is_none() && times.last.is_none()) {
        return Err(refused("no times are noted in it (aof-timestamp-enabled): nothing was cut"));
    }
    let Some(first) = all.iter().position(|(times, _)| times.cut.is_some()) else {
        println!("{}: nothing in it is later", path.display());
        return Ok(());
    };
    // From the end, so that what is left at any moment is a beginning.
    let cuts: Vec<(PathBuf, u64)> = all
        .split_off(first)
        .into_iter()
        .enumerate()
        .map(|(n, (times, path))| (path, if n == 0 { times.cut.unwrap_or(0) } else { 0 }))
        .collect();
    for (path, at) in cuts.into_iter().rev() {
        if open(&path)?.1 > at {
            let kept = cut(&path, at, &[], "later")?;
            println!("{}: cut at byte {at}; what it was is {}", path.display(), kept.display());
        }
    }
    Ok(())
}

/// Looks for times in commands. A time within a transaction is that of all of it.
fn times(path: &Path, second: u64) -> io::Result<Times> {
    let (mut file, len) = open(path)?;
    let mut found = Times::default();
    if len == 0 {
        return Ok(found);
    }
    if Kind::of(path, &mut file)? != Kind::AppendOnly {
        return Err(refused(format!("{}: it does not consist of commands", path.display())));
    }
    let told = |error: io::Error| refused(format!("{}: {error}", path.display()));
    let mut commands = Commands::new(file, 0);
    let mut began = None;
    loop {
        let at = commands.at();
        match commands.next().map_err(told)? {
            Next::Time(time) if time > second => {
                found.cut = Some(began.unwrap_or(at));
                return Ok(found);
            }
            Next::Time(time) => found.last = Some(time),
            Next::Command(name) if name == "MULTI" => began = Some(at),
            Next::Command(name) if name == "EXEC" => began = None,
            Next::Command(_) => {}
            Next::End => return Ok(found),
        }
    }
}

/// When a base was written, if it says so.
fn time_of_base(path: &Path) -> io::Result<Option<u64>> {
    let (mut file, _) = open(path)?;
    let told = |error: String| refused(format!("{}: {error}", path.display()));
    let number = |value: &[u8]| std::str::from_utf8(value).ok()?.parse().ok();
    match Kind::of(path, &mut file)? {
        Kind::Rdb => {
            let mut reader =
                Reader::new(file, ReadOptions::DEFAULT).map_err(|e| told(e.to_string()))?;
            while let Event::Aux(name, value) = reader.next().map_err(|e| told(e.to_string()))? {
                if name == b"ctime" {
                    return Ok(number(&value));
                }
            }
            Ok(None)
        }
        Kind::Snug => {
            let (store, limits) = (store(), Limits::DEFAULT);
            let session = store.session();
            let reader = ImageReader::new(file, &session, &limits, Trust::Nobody);
            let mut reader = reader.map_err(|e| told(e.to_string()))?;
            while let Part::Aux(name, value) = reader.next().map_err(|e| told(e.to_string()))? {
                if name == b"ctime" {
                    return Ok(number(&value));
                }
            }
            Ok(None)
        }
        _ => first_time(file),
    }
}

/// The first time that is noted in commands.
fn first_time(file: impl Read) -> io::Result<Option<u64>> {
    let mut commands = Commands::new(file, 0);
    loop {
        match commands.next()? {
            Next::Time(time) => return Ok(Some(time)),
            Next::Command(_) => {}
            Next::End => return Ok(None),
        }
    }
}
