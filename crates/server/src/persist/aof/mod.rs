//! The append-only file: commits on disk, in Redis 7's form.
//!
//! ```text
//!  appendonlydir/
//!    appendonly.aof.manifest        which of these count, in order
//!    appendonly.aof.1.base.snug     what there was at a moment: or .rdb, or .aof
//!    appendonly.aof.1.incr.aof      commits since, as commands
//!    appendonly.aof.2.incr.aof      commits since the next rewrite began
//! ```
//!
//! [`Writer`](writer::Writer) follows the journal and writes what it reads into the last
//! increment. A rewrite is a snapshot: at its moment a mark is put into the journal, and
//! where the writer meets it, it goes on in a new increment. When the snapshot is on disk
//! it becomes the base, and what was before the mark is history. Nobody waits for that,
//! and a crash at any point leaves a manifest whose files hold everything.
//!
//! **When a write fails** (no space left), what got through of it is cut off and the same
//! is tried again, until it succeeds. **When a sync fails**, nothing is assumed of what
//! was written since the last that succeeded: the increment is cut there and closed for
//! ever, what follows is let go, and a rewrite puts all of it on disk anew. Only when that
//! is done is anything acknowledged as on disk again.
//!
//! **When a manifest cannot be put** it may be on disk all the same, and a crash may find
//! it. Both the old one and the new hold everything then, for as long as what either names
//! is left as it is: so no name is given twice, and the files of a manifest that failed are
//! removed only when a later base is on disk.

pub(crate) mod commands;
pub(crate) mod load;
pub(crate) mod writer;

use super::writing::Format;
use crate::outside::files::{Files, Output};
use bytes::Bytes;
use snug_rdb::manifest::{Manifest, Names, Part};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where an append-only file is.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) files: Arc<dyn Files>,
    /// Its folder.
    pub(crate) dir: PathBuf,
    /// What its files' names begin with.
    pub(crate) name: String,
}

impl Place {
    fn manifest_path(&self) -> PathBuf {
        self.dir.join(format!("{}.manifest", self.name))
    }

    pub(crate) fn path(&self, part: &Part) -> PathBuf {
        self.dir.join(&part.name)
    }

    /// Where a base is written before it is one.
    pub(crate) fn temporary(&self) -> PathBuf {
        self.dir.join(format!("temp-rewriteaof-bg-{}.aof", std::process::id()))
    }

    /// The manifest, if there is an append-only file.
    pub(crate) fn manifest(&self) -> Result<Option<Manifest>, String> {
        let path = self.manifest_path();
        let told = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
        if self.files.len(&path).map_err(|e| told(&e))?.is_none() {
            return Ok(None);
        }
        let mut text = String::new();
        let read = self.files.open(&path).and_then(|mut file| file.read_to_string(&mut text));
        read.map_err(|e| told(&e))?;
        Manifest::parse(&text).map(Some).map_err(|e| told(&e))
    }

    /// Puts a manifest in the place of the one there was, on disk. The files that it names
    /// are there before it is.
    pub(crate) fn put_manifest(&self, manifest: &Manifest) -> io::Result<()> {
        self.files.sync_dir(&self.dir)?;
        let temporary = self.dir.join(format!("temp-{}.manifest", self.name));
        let mut file = self.files.create(&temporary)?;
        file.write_all(manifest.text().as_bytes())?;
        file.sync()?;
        drop(file);
        self.files.rename(&temporary, &self.manifest_path())?;
        self.files.sync_dir(&self.dir)
    }

    /// Has a file that Redis wrote before version 7 become the base of one of this form:
    /// as Redis does it, the file is moved, and not changed.
    pub(crate) fn upgrade(&self) -> Result<(), String> {
        let old = Path::new(&self.name);
        let told = |e: io::Error| format!("upgrading {}: {e}", old.display());
        if self.files.len(old).map_err(told)?.is_none() {
            return Ok(());
        }
        let base = Part { name: self.name.clone(), number: 1 };
        match self.manifest()? {
            None => {
                self.files.make_dir(&self.dir).map_err(told)?;
                let manifest = Manifest { base: Some(base.clone()), ..Manifest::default() };
                self.put_manifest(&manifest).map_err(told)?;
            }
            // It ended between the two last time.
            Some(manifest)
                if manifest.base.as_ref() == Some(&base) && manifest.increments.is_empty() => {}
            Some(_) => return Ok(()),
        }
        if self.files.len(&self.path(&base)).map_err(told)?.is_some() {
            return Ok(());
        }
        self.files.rename(old, &self.path(&base)).map_err(told)?;
        self.files.sync_dir(&self.dir).map_err(told)?;
        self.files.sync_dir(Path::new("")).map_err(told)?;
        tracing::info!(
            file = self.name,
            "the append-only file of an older form was moved to {}",
            self.dir.display()
        );
        Ok(())
    }
}

/// The increment that is written to.
struct Open {
    file: Box<dyn Output>,
    /// Bytes that were written, and of them those that are on disk.
    len: u64,
    synced: u64,
}

/// A sync of the increment that is to be done without it: others write on meanwhile.
pub(crate) struct Syncing {
    file: Box<dyn Output>,
    path: Option<PathBuf>,
    /// How much of it the sync covers.
    pub(crate) len: u64,
}

impl Syncing {
    /// Has it on disk. Waits for the disk.
    pub(crate) fn run(&self) -> io::Result<()> {
        self.file.sync().and_then(|()| is_there(&*self.file, self.path.as_deref()))
    }
}

/// The files of an append-only file that is written to.
pub(crate) struct Aof {
    place: Place,
    manifest: Manifest,
    names: Names,
    /// Files that only manifests name which could not be put.
    forsaken: Vec<Part>,
    /// Whether what is on disk by that name is this: not until the first base is there,
    /// where the file was begun anew.
    is_valid: bool,
    open: Option<Open>,
    /// What the files before the open one take, in bytes: the base, and all of them.
    base_bytes: u64,
    older_bytes: u64,
    /// The first increment behind each mark that may still become a base's.
    marks: Vec<(u64, u64)>,
}

impl std::fmt::Debug for Aof {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Aof").field("manifest", &self.manifest).finish_non_exhaustive()
    }
}

impl Aof {
    /// Goes on with an append-only file that was loaded: its last increment was read up to
    /// its end, or cut there.
    pub(crate) fn resume(place: Place, manifest: Manifest) -> io::Result<Self> {
        let mut aof = Self::anew(place, Some(manifest))?;
        aof.is_valid = true;
        if let Some(last) = aof.manifest.increments.last() {
            let path = aof.place.path(last);
            let len = aof.place.files.len(&path)?.unwrap_or(0);
            let file = aof.place.files.append(&path)?;
            // What was read may not be on disk yet.
            file.sync()?;
            aof.place.files.sync_dir(&aof.place.dir)?;
            aof.open = Some(Open { file, len, synced: len });
        } else {
            aof.begin_increment(0)?;
        }
        aof.measure()?;
        Ok(aof)
    }

    /// Begins an append-only file, in place of the one there is: that stays what it is
    /// until there is a base.
    pub(crate) fn anew(place: Place, manifest: Option<Manifest>) -> io::Result<Self> {
        place.files.make_dir(&place.dir)?;
        if let Some(manifest) = &manifest {
            // That it was read does not say that it is on disk: it may be what could not be
            // put before.
            place.put_manifest(manifest)?;
        }
        let manifest = manifest.unwrap_or_default();
        Ok(Self {
            names: Names::behind(&manifest, &place.name),
            place,
            manifest,
            forsaken: Vec::new(),
            is_valid: false,
            open: None,
            base_bytes: 0,
            older_bytes: 0,
            marks: Vec::new(),
        })
    }

    fn measure(&mut self) -> io::Result<()> {
        let len = |part: &Part| Ok(self.place.files.len(&self.place.path(part))?.unwrap_or(0));
        let base = self.manifest.base.as_ref().map_or(Ok(0), len)?;
        let closed = self.manifest.increments.len().saturating_sub(1);
        let older: io::Result<u64> = self.manifest.increments[..closed].iter().map(len).sum();
        (self.base_bytes, self.older_bytes) = (base, base + older?);
        Ok(())
    }

    /// Whether the files on disk are what the journal says, but for what is not synced.
    pub(crate) fn is_valid(&self) -> bool {
        self.is_valid
    }

    /// Bytes of the base, and of all files.
    pub(crate) fn sizes(&self) -> (u64, u64) {
        (self.base_bytes, self.older_bytes + self.open.as_ref().map_or(0, |open| open.len))
    }

    /// Writes bytes behind the others. If that fails, none of them are there.
    pub(crate) fn write(&mut self, pieces: &[Bytes]) -> io::Result<()> {
        let Some(open) = &mut self.open else { return Ok(()) };
        match write_all(&mut *open.file, pieces) {
            Ok(written) => {
                open.len += written;
                Ok(())
            }
            Err(error) => {
                // What cannot be cut off either is closed for ever.
                if open.file.cut(open.len).is_err() {
                    self.give_up();
                }
                Err(error)
            }
        }
    }

    /// Has what was written on disk. If that fails, nothing is assumed of it.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        let Some(open) = self.open.as_ref().filter(|open| open.synced < open.len) else {
            return Ok(());
        };
        let path = self.manifest.increments.last().map(|part| self.place.path(part));
        let done = open.file.sync().and_then(|()| is_there(&*open.file, path.as_deref()));
        self.end_sync(open.len, &done);
        done
    }

    /// What is to be done to have what was written on disk, if it is not.
    pub(crate) fn begin_sync(&self) -> io::Result<Option<Syncing>> {
        let Some(open) = self.open.as_ref().filter(|open| open.synced < open.len) else {
            return Ok(None);
        };
        let path = self.manifest.increments.last().map(|part| self.place.path(part));
        Ok(Some(Syncing { file: open.file.twin()?, path, len: open.len }))
    }

    /// What the sync of so many bytes of the increment came to; another is not begun while
    /// one is being synced. If it failed, nothing is assumed of what was not on disk.
    pub(crate) fn end_sync(&mut self, len: u64, done: &io::Result<()>) {
        match (done, &mut self.open) {
            (Ok(()), Some(open)) => open.synced = open.synced.max(len),
            // It was given up meanwhile.
            (Ok(()), None) => {}
            (Err(_), _) => self.give_up(),
        }
    }

    /// That the file which is written to still has its name: what is written to one that
    /// was removed is lost. If not, all is begun anew.
    pub(crate) fn look(&mut self) -> io::Result<()> {
        let Some(open) = &self.open else { return Ok(()) };
        let path = self.manifest.increments.last().map(|part| self.place.path(part));
        let there = is_there(&*open.file, path.as_deref());
        if there.is_err() {
            self.give_up();
        }
        there
    }

    /// Whether everything that was written is on disk.
    pub(crate) fn is_synced(&self) -> bool {
        self.is_valid && self.open.as_ref().is_none_or(|open| open.synced == open.len)
    }

    /// Closes the increment for ever: behind what is on disk of it nothing is known.
    fn give_up(&mut self) {
        self.is_valid = false;
        // What comes until the next mark is written nowhere: a base of an earlier one would
        // have a gap behind it.
        self.marks.clear();
        if let Some(mut open) = self.open.take() {
            // A crash may come before the rewrite: then what is on disk counts.
            let cut = open.file.cut(open.synced).and_then(|()| open.file.sync());
            if let Err(error) = cut {
                tracing::error!(%error, "the append-only file could not be cut where it is sound");
            }
        }
    }

    /// The writer has come to a mark: what follows goes into a new increment.
    pub(crate) fn begin_increment(&mut self, mark: u64) -> io::Result<()> {
        self.sync()?;
        let part = self.names.increment();
        let file = self.place.files.create(&self.place.path(&part))?;
        // One of that name may be left from before: that it is empty is to be on disk
        // before the manifest names it.
        file.sync()?;
        let mut manifest = self.manifest.clone();
        manifest.increments.push(part.clone());
        if self.is_valid
            && let Err(error) = self.place.put_manifest(&manifest)
        {
            self.forsaken.push(part);
            return Err(error);
        }
        self.older_bytes += self.open.as_ref().map_or(0, |open| open.len);
        self.manifest = manifest;
        self.open = Some(Open { file, len: 0, synced: 0 });
        self.marks.push((mark, part.number));
        Ok(())
    }

    /// What was written of a snapshot, taken at a mark, becomes the base. What is of no
    /// use any more is still there: [`tidy`](Self::tidy).
    pub(crate) fn rebase(&mut self, written: &Path, mark: u64, format: Format) -> io::Result<()> {
        let first = self.marks.iter().find(|(number, _)| *number == mark).map(|(_, first)| *first);
        let first = first.ok_or_else(|| io::Error::other("the increment could not be begun"))?;
        if self.open.is_none() {
            return Err(io::Error::other("the increment was lost meanwhile"));
        }
        let mut manifest = self.manifest.clone();
        let kept = manifest.increments.iter().filter(|part| part.number >= first).count();
        let base = self.names.base(format.ending());
        self.place.files.rename(written, &self.place.path(&base))?;
        manifest.rebase(base.clone(), kept);
        manifest.history.extend(self.forsaken.iter().cloned());
        if let Err(error) = self.place.put_manifest(&manifest) {
            self.forsaken.push(base);
            return Err(error);
        }
        self.forsaken.clear();
        self.manifest = manifest;
        self.is_valid = true;
        self.marks.retain(|(number, _)| *number > mark);
        self.measure()
    }

    /// What is of no use any more.
    pub(crate) fn history(&self) -> Vec<PathBuf> {
        self.manifest.history.iter().map(|part| self.place.path(part)).collect()
    }

    /// Forgets history that was removed.
    pub(crate) fn tidy(&mut self) -> io::Result<()> {
        self.manifest.history.clear();
        if self.is_valid { self.place.put_manifest(&self.manifest) } else { Ok(()) }
    }
}

fn is_there(file: &dyn Output, path: Option<&Path>) -> io::Result<()> {
    let Some(path) = path else { return Ok(()) };
    if file.is_at(path)? {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::NotFound, format!("{} was removed", path.display())))
}

/// The most parts that are given to the system at once.
const PARTS: usize = 64;

fn write_all(file: &mut dyn Output, pieces: &[Bytes]) -> io::Result<u64> {
    let mut total = 0;
    for pieces in pieces.chunks(PARTS) {
        let mut parts: Vec<io::IoSlice<'_>> = pieces.iter().map(|p| io::IoSlice::new(p)).collect();
        let mut parts = &mut parts[..];
        io::IoSlice::advance_slices(&mut parts, 0);
        while !parts.is_empty() {
            match file.write_vectored(parts) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    total += written as u64;
                    io::IoSlice::advance_slices(&mut parts, written);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(total)
}
