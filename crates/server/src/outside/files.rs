//! Files, as durability needs them: a trait, so that a simulation can stop the machine at
//! any write, and lose or tear what was not synced.
//!
//! What survives what: bytes that [`Output::write`](std::io::Write::write) took survive
//! the end of the process; bytes that [`Output::sync`] returned for survive the end of the
//! machine, and so does a name (made, renamed, removed) after [`Files::sync_dir`]. A sync
//! that failed says nothing about what was written since the last that succeeded, and a
//! later one that succeeds says nothing about it either.

use std::fmt::Debug;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

/// A file that is written at its end.
pub(crate) trait Output: Write + Send {
    /// Has all that was written so far on disk. Waits for the disk.
    fn sync(&self) -> io::Result<()>;
    /// Cuts the file to a length.
    fn cut(&mut self, len: u64) -> io::Result<()>;
    /// Whether it still has this name: it, or its folder, may have been removed.
    fn is_at(&self, path: &Path) -> io::Result<bool>;
    /// The same file once more, for another thread: to sync it while it is written to.
    fn twin(&self) -> io::Result<Box<dyn Output>>;
}

/// A lock on a file, held until it is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct Lock(#[allow(dead_code)] Option<File>);

#[cfg(test)]
impl Lock {
    /// One of no file.
    pub(crate) fn simulated() -> Self {
        Self(None)
    }
}

/// Where files are.
pub(crate) trait Files: Debug + Send + Sync {
    /// A new file, in place of what was there.
    fn create(&self, path: &Path) -> io::Result<Box<dyn Output>>;
    /// A file that is there, or a new one, to be written on.
    fn append(&self, path: &Path) -> io::Result<Box<dyn Output>>;
    /// A file to be read.
    fn open(&self, path: &Path) -> io::Result<Box<dyn Read + Send>>;
    /// Its length; `None` if there is none.
    fn len(&self, path: &Path) -> io::Result<Option<u64>>;
    /// When it was written last; `None` if there is none.
    fn changed(&self, path: &Path) -> io::Result<Option<SystemTime>>;
    /// Cuts a file to a length, on disk too.
    fn cut(&self, path: &Path, len: u64) -> io::Result<()>;
    /// Gives a file another name, in place of what had it.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file; nothing if there is none.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Makes a folder if there is none.
    fn make_dir(&self, path: &Path) -> io::Result<()>;
    /// Has the names of a folder on disk.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Locks a file, made if need be; `None` if somebody else has.
    fn lock(&self, path: &Path) -> io::Result<Option<Lock>>;
}

/// The files of this machine.
#[derive(Debug)]
pub(crate) struct OnDisk;

impl OnDisk {
    /// For all who need files.
    pub(crate) fn files() -> Arc<dyn Files> {
        Arc::new(Self)
    }
}

struct DiskFile(File);

impl Write for DiskFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn write_vectored(&mut self, parts: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.0.write_vectored(parts)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Output for DiskFile {
    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        let mine = self.0.metadata()?;
        let there = metadata(path)?;
        // A file that is there under this name may be another; then mine has no name left. Not
        // every file system counts names, or keeps the number of a file.
        Ok(there.is_some_and(|there| mine.nlink() > 0 || there.nlink() == 0))
    }

    fn twin(&self) -> io::Result<Box<dyn Output>> {
        Ok(Box::new(Self(self.0.try_clone()?)))
    }
}

/// A folder by its name: none stands for where the process is.
fn folder(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

/// What is known of a file, if there is one.
fn metadata(path: &Path) -> io::Result<Option<fs::Metadata>> {
    match fs::metadata(path) {
        Ok(metadata) => Ok(Some(metadata)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

impl Files for OnDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn Output>> {
        // Written at its end whatever is cut off meanwhile.
        drop(File::create(path)?);
        self.append(path)
    }

    fn append(&self, path: &Path) -> io::Result<Box<dyn Output>> {
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        Ok(Box::new(DiskFile(file)))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(File::open(path)?))
    }

    fn len(&self, path: &Path) -> io::Result<Option<u64>> {
        Ok(metadata(path)?.map(|metadata| metadata.len()))
    }

    fn changed(&self, path: &Path) -> io::Result<Option<SystemTime>> {
        metadata(path)?.map(|metadata| metadata.modified()).transpose()
    }

    fn cut(&self, path: &Path, len: u64) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(path)?;
        file.set_len(len)?;
        file.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn make_dir(&self, path: &Path) -> io::Result<()> {
        match fs::create_dir(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        }
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(folder(path))?.sync_all()
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Lock>> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Lock(Some(file)))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}
