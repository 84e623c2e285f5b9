//! Loads an append-only file: its base, then its increments, each command executed again.
//! Any of them may begin with RDB, as for Redis. Snug's own format is for the base alone:
//! nothing can stand behind it, and what is changed next is written behind the last increment.
//!
//! A file that ends within a command, or within a transaction, was cut off by a crash: if
//! it is the last, it is cut where its last whole commit ends (`aof-load-truncated`). So
//! is one that ends in zeros, which is what a file system leaves of a write that it had
//! made room for. Anything else that is wrong is refused, with where and why.

use super::Place;
use super::commands::{self, Entry};
use crate::persist::loading::Source;
use crate::request::stream::CommandStream;
use snug_rdb::manifest::{Manifest, Part};
use snug_store::image;
use std::fmt::Display;
use std::io::Read;
use std::path::Path;

/// Bytes read at once.
const READ_AT_ONCE: usize = 256 * 1024;

/// Loads all files of a manifest.
pub(crate) fn load(
    place: &Place,
    manifest: &Manifest,
    cut_off_is_fine: bool,
    source: &mut Source<'_>,
) -> Result<(), String> {
    let parts: Vec<&Part> = manifest.base.iter().chain(&manifest.increments).collect();
    let len = |part: &Part| {
        let path = place.path(part);
        let len = place.files.len(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        len.ok_or_else(|| format!("{}: the manifest names it, and it is not there", path.display()))
    };
    let lens = parts.iter().map(|part| len(part)).collect::<Result<Vec<u64>, String>>()?;
    source.progress.begin(lens.iter().sum());
    for (n, part) in parts.iter().enumerate() {
        // What follows the last file that holds anything is of no weight.
        let is_last = lens[n + 1..].iter().all(|&len| len == 0);
        let path = place.path(part);
        let is_base = manifest.base.as_ref() == Some(part);
        let loaded = load_file(place, &path, is_base, source);
        source.progress.add_file(lens[n]);
        match loaded {
            Ok(()) => {}
            Err(Wrong::Refused(why)) => return Err(format!("{}: {why}", path.display())),
            Err(Wrong::CutOff(at)) if is_last && cut_off_is_fine => {
                tracing::warn!(file = %path.display(), at, of = lens[n], "the append-only file was cut off within a commit: it is cut where the last whole one ends");
                place.files.cut(&path, at).map_err(|e| format!("{}: {e}", path.display()))?;
            }
            Err(Wrong::CutOff(at)) => {
                return Err(format!(
                    "{}: it ends within what begins at byte {at} of {}{}",
                    path.display(),
                    lens[n],
                    if is_last {
                        " (aof-load-truncated would cut it there)"
                    } else {
                        ", and is not the last file"
                    }
                ));
            }
        }
    }
    Ok(())
}

enum Wrong {
    /// It ends within a commit that begins there.
    CutOff(u64),
    Refused(String),
}

fn refused(at: u64, why: impl Display) -> Wrong {
    Wrong::Refused(format!("byte {at}: {why}"))
}

fn load_file(
    place: &Place,
    path: &Path,
    is_base: bool,
    source: &mut Source<'_>,
) -> Result<(), Wrong> {
    let open = || place.files.open(path).map_err(|e| Wrong::Refused(e.to_string()));
    let mut begin = [0; 8];
    if !is_base && open()?.read_exact(&mut begin).is_ok() && begin == *image::MAGIC {
        return Err(refused(0, "only a base can be in Snug's format"));
    }
    let (file, first, before) = source.snapshot(open()?, true).map_err(Wrong::Refused)?;
    execute(file, first, before, source).map_err(|wrong| match wrong {
        // It may be what a crash leaves.
        (at, Wrong::Refused(_)) if open().is_ok_and(|file| is_torn(file, at)) => Wrong::CutOff(at),
        (_, wrong) => wrong,
    })
}

/// Executes the commands of a file, of which `first` has been read, behind `before` bytes
/// of another kind. With what is wrong, where the last whole commit ends.
fn execute(
    mut file: Box<dyn Read + Send>,
    first: Vec<u8>,
    before: u64,
    source: &mut Source<'_>,
) -> Result<(), (u64, Wrong)> {
    let mut stream = CommandStream::default();
    stream.push(&first);
    let mut buffer = vec![0; READ_AT_ONCE];
    let mut good = before;
    let mut in_transaction = false;
    loop {
        let progress = source.progress;
        source.batch(|batch, replay| {
            loop {
                let at = before + stream.taken();
                let args = match commands::next(&mut stream) {
                    Ok(None) => return Ok(()),
                    Ok(Some(Entry::Command(args))) => args,
                    Ok(Some(Entry::Note(_))) => continue,
                    Err(why) => return Err((good, refused(at, why))),
                };
                if args.is(0, "multi") {
                    in_transaction = true;
                } else if args.is(0, "exec") {
                    in_transaction = false;
                }
                replay(batch, args).map_err(|why| (good, refused(at, why)))?;
                if !in_transaction {
                    good = before + stream.taken();
                }
                progress.at(before + stream.taken());
                batch.settle();
            }
        })?;
        source.progress.tell();
        if source.is_stopped() {
            return Err((good, Wrong::Refused("loading was stopped".into())));
        }
        match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => stream.push(&buffer[..read]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err((good, refused(before + stream.taken(), error))),
        }
    }
    if in_transaction || !stream.is_between_commands() {
        return Err((good, Wrong::CutOff(good)));
    }
    Ok(())
}

/// Whether what stands behind a file's last whole commit is one that was begun and then
/// nothing but zeros.
fn is_torn(mut file: Box<dyn Read + Send>, at: u64) -> bool {
    let mut rest = Vec::new();
    let passed = std::io::copy(&mut file.by_ref().take(at), &mut std::io::sink());
    if passed.is_err() || file.read_to_end(&mut rest).is_err() || rest.last() != Some(&0) {
        return false;
    }
    let begun = rest.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    let mut stream = CommandStream::default();
    stream.push(&rest[..begun]);
    loop {
        match stream.next() {
            Ok(None) => return true,
            Ok(Some(args)) if args.is(0, "exec") => return false,
            Ok(Some(_)) => {}
            Err(_) => return false,
        }
    }
}
