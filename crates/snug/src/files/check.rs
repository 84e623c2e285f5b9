//! `snug check`: what is in files, what is wrong with them, and where.

use super::rewind::rewind;
use super::{Keys, Kind, bar, cut, open, read_manifest, store};
use clap::Args;
use indicatif::ProgressBar;
use snug_rdb::{Event, ReadOptions, Reader};
use snug_server::{AofCommands as Commands, AofNext as Next, is_command};
use snug_store::Limits;
use snug_store::image::{ImageReader, Part, Trust};
use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Tells what is in files: RDB, append-only files, Snug's own format.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Files to look at; of an append-only file, its manifest
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Cut a damaged file behind the last key or command that is whole. What it was is
    /// kept beside it. Of the files that a manifest names only the last is cut
    #[arg(long)]
    fix: bool,
    /// First cut append-only files behind the last change of this second, in Unix time. It
    /// takes times in them (aof-timestamp-enabled). What they were is kept beside them
    #[arg(long, value_name = "SECONDS")]
    to_timestamp: Option<u64>,
}

/// What a file is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// It was named alone.
    Alone,
    /// A manifest names it.
    Base,
    Increment,
}

/// A file that is looked at.
struct Target {
    path: PathBuf,
    role: Role,
    /// The file that builds on it: the next of a manifest that holds anything.
    follower: Option<PathBuf>,
}

/// What was found in a file.
#[derive(Default)]
struct Found {
    keys: Keys,
    version: Option<u32>,
    /// Keys of each database, and how many of them expire.
    databases: BTreeMap<u64, (u64, u64)>,
    types: BTreeMap<&'static str, u64>,
    aux: Vec<(String, String)>,
    functions: u64,
    modules: Vec<String>,
    commands: u64,
    time: Option<u64>,
    /// Up to where all is whole, and what ends a file that is cut there.
    whole: u64,
    end: Vec<u8>,
    damage: Option<String>,
    /// What is wrong is one command; those behind it are worth as much as those before.
    is_foreign: bool,
    /// Bytes behind the end of a snapshot, which nobody reads.
    behind: u64,
}

impl Found {
    fn count_key(&mut self, db: u64, expires: bool, kind: &'static str) {
        let (keys, expiring) = self.databases.entry(db).or_default();
        *keys += 1;
        *expiring += u64::from(expires);
        *self.types.entry(kind).or_default() += 1;
    }

    fn aux(&mut self, name: &[u8], value: &[u8]) {
        const AUX_MAX: usize = 64;
        let short = |bytes: &[u8]| bytes[..bytes.len().min(100)].escape_ascii().to_string();
        if self.aux.len() < AUX_MAX {
            self.aux.push((short(name), short(value)));
        }
    }

    fn tell(&self, out: &mut impl Write) -> io::Result<()> {
        for (name, value) in &self.aux {
            writeln!(out, "  {name}: {value}")?;
        }
        for (db, (keys, expiring)) in &self.databases {
            writeln!(out, "  database {db}: {keys} keys, {expiring} of them expire")?;
        }
        for (kind, count) in &self.types {
            writeln!(out, "  {kind}: {count}")?;
        }
        if self.functions > 0 {
            writeln!(out, "  libraries of functions: {}", self.functions)?;
        }
        for module in &self.modules {
            writeln!(out, "  data of the module '{module}', which Snug passes over")?;
        }
        if self.commands > 0 {
            writeln!(out, "  commands: {}", self.commands)?;
        }
        if let Some(time) = self.time {
            writeln!(out, "  last time noted: {time} (Unix seconds)")?;
        }
        if self.behind > 0 {
            writeln!(out, "  behind its end: {} bytes, which a server passes over", self.behind)?;
        }
        Ok(())
    }

    /// Whether what follows an RDB is commands: an append-only file says so of itself. One
    /// that does not say is told by how they begin.
    fn is_followed_by_commands(&self, next: u8) -> bool {
        let is_fact = |(name, _): &&(String, String)| name == "aof-base" || name == "aof-preamble";
        let told = self.aux.iter().find(is_fact);
        told.map_or(matches!(next, b'*' | b'#'), |(_, value)| value != "0")
    }
}

/// Runs the command.
pub(crate) fn check(args: &CheckArgs) -> ExitCode {
    if let Some(second) = args.to_timestamp {
        for path in &args.files {
            if let Err(error) = rewind(path, second) {
                eprintln!("snug check: {}: {error}", path.display());
                return ExitCode::FAILURE;
            }
        }
    }
    let mut is_well = true;
    let alone = |path: &PathBuf| Target { path: path.clone(), role: Role::Alone, follower: None };
    let mut targets: Vec<Target> = args.files.iter().rev().map(alone).collect();
    while let Some(target) = targets.pop() {
        match check_file(&target, args.fix, &mut targets) {
            Ok(well) => is_well &= well,
            Err(error) => {
                eprintln!("snug check: {}: {error}", target.path.display());
                is_well = false;
            }
        }
    }
    if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Looks at one file; whether it is well. A manifest has its files looked at, too.
fn check_file(target: &Target, fix: bool, more: &mut Vec<Target>) -> io::Result<bool> {
    let path = &target.path;
    let is_part = target.role != Role::Alone;
    let (mut file, len) = open(path)?;
    let kind = match Kind::of(path, &mut file)? {
        kind @ (Kind::Rdb | Kind::Snug) => kind,
        // As for the server, a part that is no snapshot is made of commands.
        _ if is_part => Kind::AppendOnly,
        kind => kind,
    };
    let bar = bar("checking", len);
    let found = match kind {
        Kind::Rdb => rdb(file, len, is_part, &bar),
        Kind::Snug if target.role == Role::Increment => Found {
            damage: Some("byte 0: only a base can be in Snug's format".into()),
            ..Found::default()
        },
        Kind::Snug => image(file, &bar),
        Kind::AppendOnly if !is_part && is_meant_as_snapshot(path, len) => Found {
            damage: Some("byte 0: a snapshot begins otherwise, as RDB or as Snug's format".into()),
            ..Found::default()
        },
        Kind::AppendOnly => {
            let mut found = Found::default();
            commands(&mut Commands::new(file, 0), &bar, &mut found);
            found
        }
        Kind::Manifest => {
            let found = manifest(path, file, more);
            Found { whole: if found.damage.is_some() { 0 } else { len }, ..found }
        }
        Kind::Unknown => Found {
            damage: Some("byte 0: neither RDB, nor Snug's format, nor an append-only file".into()),
            ..Found::default()
        },
    };
    bar.finish_and_clear();
    let version = found.version.map(|version| format!(", version {version}")).unwrap_or_default();
    let mut out = io::stdout().lock();
    writeln!(out, "{}: {}{version}, {len} bytes", path.display(), kind.name())?;
    found.tell(&mut out)?;
    let Some(damage) = &found.damage else {
        writeln!(out, "  whole")?;
        return Ok(true);
    };
    writeln!(out, "  DAMAGED: {damage}")?;
    writeln!(out, "  whole up to byte {}", found.whole)?;
    if fix && let Some(follower) = &target.follower {
        writeln!(
            out,
            "  NOT CUT: {} builds on it. Bring back a copy of this file. To lose what is behind \
             the damage, name this file alone: snug check --fix {}; a server may then refuse \
             what follows it",
            follower.display(),
            path.display()
        )?;
        return Ok(false);
    }
    if fix && found.is_foreign {
        writeln!(out, "  NOT CUT: the file is not torn there. Remove that command by hand")?;
        return Ok(false);
    }
    if fix && kind != Kind::Unknown && found.whole > 0 {
        let kept = cut(path, found.whole, &found.end, "damaged")?;
        writeln!(out, "  cut there; what it was is {}", kept.display())?;
        return Ok(true);
    }
    Ok(false)
}

/// Whether a file would be loaded as a snapshot, which commands are not: by its name, or
/// because it holds nothing and does not have the name of commands.
fn is_meant_as_snapshot(path: &Path, len: u64) -> bool {
    let ending = path.extension().unwrap_or_default();
    ending == "rdb" || ending == "snug" || len == 0 && ending != "aof"
}

/// The files that a manifest names, those left out that are of no use any more.
fn manifest(path: &Path, file: impl Read, more: &mut Vec<Target>) -> Found {
    let folder = path.parent().unwrap_or_else(|| Path::new(""));
    match read_manifest(file) {
        Ok(manifest) => {
            let parts = manifest.increments.iter().rev().map(|part| (part, Role::Increment));
            let parts = parts.chain(manifest.base.iter().map(|part| (part, Role::Base)));
            let mut follower = None;
            for (part, role) in parts {
                let path = folder.join(&part.name);
                // What holds nothing builds on nothing.
                let is_empty = fs::metadata(&path).is_ok_and(|about| about.len() == 0);
                let next = if is_empty { follower.clone() } else { Some(path.clone()) };
                let follower = std::mem::replace(&mut follower, next);
                more.push(Target { path, role, follower });
            }
            Found::default()
        }
        Err(error) => Found { damage: Some(error.to_string()), ..Found::default() },
    }
}

/// Reads RDB, and what follows it if it is the beginning of an append-only file.
fn rdb(file: impl Read, len: u64, is_part: bool, bar: &ProgressBar) -> Found {
    let mut found = Found::default();
    match rdb_to_end(file, bar, &mut found) {
        Ok((file, unread, at)) => {
            found.whole = at;
            let mut rest = BufReader::new(io::Cursor::new(unread).chain(file));
            match rest.fill_buf().map(|rest| rest.first().copied()) {
                Ok(Some(next)) if is_part || found.is_followed_by_commands(next) => {
                    commands(&mut Commands::new(rest, at), bar, &mut found);
                }
                Ok(_) => found.behind = len.saturating_sub(at),
                Err(error) => found.damage = Some(error.to_string()),
            }
        }
        Err(error) => found.damage = Some(error.to_string()),
    }
    found
}

fn rdb_to_end<R: Read>(
    file: R,
    bar: &ProgressBar,
    found: &mut Found,
) -> Result<(R, Vec<u8>, u64), Box<dyn Error>> {
    let store = store();
    let (session, limits) = (store.session(), Limits::DEFAULT);
    let mut making = session.making(&limits);
    let mut reader = Reader::new(file, ReadOptions::DEFAULT)?;
    found.version = Some(reader.version());
    // A file that is cut is ended so: its sum is not told.
    found.end = if reader.version() < 5 { vec![255] } else { [&[255][..], &[0; 8]].concat() };
    let mut db = 0;
    loop {
        found.whole = reader.offset();
        bar.set_position(found.whole);
        match reader.next()? {
            Event::Key(head) => {
                reader.value(&head, &mut making)?;
                let value = making.finish(&store.key(&head.key), head.expiry, None);
                // One without elements is left out by whoever loads it.
                if value.is_some() {
                    found.keys.add(usize::try_from(db)?, &head.key)?;
                }
                let kind = value.map_or("without elements", |value| value.type_of().name());
                found.count_key(db, head.expiry.is_some(), kind);
            }
            Event::Database(number) => db = number,
            Event::Aux(name, value) => found.aux(&name, &value),
            Event::Function(_) => found.functions += 1,
            Event::ModuleAux(name) => found.modules.push(name),
            Event::Sizes { .. } | Event::Slot { .. } => {}
            Event::End => break,
        }
    }
    found.end = Vec::new();
    let at = reader.offset();
    let (file, unread) = reader.into_parts();
    Ok((file, unread, at))
}

fn image(file: impl Read, bar: &ProgressBar) -> Found {
    let mut found = Found::default();
    if let Err(error) = image_to_end(file, bar, &mut found) {
        found.damage = Some(error.to_string());
    }
    found
}

fn image_to_end(
    file: impl Read,
    bar: &ProgressBar,
    found: &mut Found,
) -> Result<(), Box<dyn Error>> {
    let store = store();
    let (session, limits) = (store.session(), Limits::DEFAULT);
    let mut reader = ImageReader::new(file, &session, &limits, Trust::Nobody)?;
    found.version = Some(1);
    let mut end = false;
    while !end {
        let part = reader.next();
        let (whole, keys) = reader.whole();
        (found.whole, found.end) = (whole, snug_store::image::end_of(keys));
        bar.set_position(whole);
        match part? {
            Part::Entry(db, value) => {
                found.keys.add(db, &value.key())?;
                found.count_key(db as u64, value.expiry().is_some(), value.type_of().name());
            }
            Part::Aux(name, value) => found.aux(&name, &value),
            Part::Function(_) => found.functions += 1,
            Part::End => end = true,
        }
    }
    Ok(())
}

/// Reads commands to the end. A transaction that is not whole is cut as a whole.
fn commands<R: Read>(commands: &mut Commands<R>, bar: &ProgressBar, found: &mut Found) {
    let mut began = None;
    loop {
        let at = commands.at();
        found.whole = began.unwrap_or(at);
        bar.set_position(at);
        match commands.next() {
            Ok(Next::Command(name)) if !is_command(&name) => {
                let name = name.escape_debug();
                found.damage = Some(format!("byte {at}: there is no command '{name}'"));
                found.is_foreign = true;
                return;
            }
            Ok(Next::Command(name)) if name == "EXEC" && began.is_none() => {
                found.damage = Some(format!("byte {at}: EXEC without MULTI"));
                return;
            }
            Ok(Next::Command(name)) => {
                found.commands += 1;
                match &name[..] {
                    "MULTI" => began = Some(at),
                    "EXEC" => began = None,
                    _ => {}
                }
            }
            Ok(Next::Time(time)) => found.time = Some(time),
            Ok(Next::End) => {
                if began.is_some() {
                    found.damage = Some(format!("byte {}: a transaction has no end", found.whole));
                }
                return;
            }
            Err(error) => {
                found.damage = Some(format!("byte {at}: {error}"));
                return;
            }
        }
    }
}
