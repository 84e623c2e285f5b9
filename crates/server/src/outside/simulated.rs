//! Files of a machine that may stop at any operation: what was not synced is then lost,
//! or there in part, or in zeros; names that were not synced are the old ones or the new.
//! Writes and syncs may fail without that, too. Of names whose sync failed it is not known
//! which are on disk, until a sync succeeds.

use super::files::{Files, Lock, Output};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng};
use std::collections::BTreeMap;
use std::io::{self, Cursor, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

#[derive(Clone, Debug, Default)]
struct File {
    data: Vec<u8>,
    on_disk: Vec<u8>,
    /// A sync failed: up to here, from what is on disk on, nothing ever will be.
    lost_until: usize,
}

impl File {
    /// What is written where it was cut is written anew.
    fn cut(&mut self, len: usize) {
        self.data.truncate(len);
        self.lost_until = self.lost_until.min(len);
    }
}

#[derive(Clone, Debug)]
enum Renaming {
    Made(PathBuf, usize),
    Renamed(PathBuf, PathBuf),
    Removed(PathBuf),
}

#[derive(Debug)]
struct State {
    files: Vec<File>,
    names: BTreeMap<PathBuf, usize>,
    names_on_disk: BTreeMap<PathBuf, usize>,
    /// What was done to names since.
    pending: Vec<Renaming>,
    operations: u64,
    stops_at: u64,
    random: StdRng,
    /// One in so many writes, and one in so many syncs, fails. 0 for none.
    fails: [u32; 2],
}

/// The machine: see the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct Machine(Arc<Mutex<State>>);

fn stopped() -> io::Error {
    io::Error::other("the machine has stopped")
}

impl State {
    fn has_stopped(&self) -> bool {
        self.operations >= self.stops_at
    }

    /// Counts an operation; an error if the machine stops before it.
    fn operation(&mut self) -> io::Result<()> {
        if self.has_stopped() {
            return Err(stopped());
        }
        self.operations += 1;
        if self.has_stopped() { Err(stopped()) } else { Ok(()) }
    }

    fn is_to_fail(&mut self, what: usize) -> bool {
        self.fails[what] > 0 && self.random.random_range(0..self.fails[what]) == 0
    }

    fn find(&self, path: &Path) -> io::Result<usize> {
        self.names.get(path).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn make(&mut self, path: &Path) -> usize {
        let number = self.files.len();
        self.files.push(File::default());
        self.names.insert(path.into(), number);
        self.pending.push(Renaming::Made(path.into(), number));
        number
    }

    fn sync(&mut self, number: usize) -> io::Result<()> {
        self.operation()?;
        let fails = self.is_to_fail(1);
        let file = &mut self.files[number];
        if fails {
            file.lost_until = file.data.len();
            return Err(io::Error::other("input/output error"));
        }
        let from = file.on_disk.len().min(file.data.len());
        let mut content = file.data.clone();
        let to = file.lost_until.clamp(from, content.len());
        content[from..to].fill(0);
        file.on_disk = content;
        Ok(())
    }
}

impl Machine {
    /// A machine with no files.
    pub(crate) fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            files: Vec::new(),
            names: BTreeMap::new(),
            names_on_disk: BTreeMap::new(),
            pending: Vec::new(),
            operations: 0,
            stops_at: u64::MAX,
            random: StdRng::seed_from_u64(seed),
            fails: [0, 0],
        })))
    }

    /// Has it stop at the `n`-th operation from now on, and one in so many writes and
    /// syncs fail.
    pub(crate) fn stop_after(&self, n: u64, fails: [u32; 2]) {
        let mut state = self.0.lock();
        state.stops_at = state.operations + n;
        state.fails = fails;
    }

    pub(crate) fn has_stopped(&self) -> bool {
        self.0.lock().has_stopped()
    }

    /// Starts it again: with what is on its disk.
    pub(crate) fn restart(&self) {
        let mut state = self.0.lock();
        let state = &mut *state;
        (state.stops_at, state.fails) = (u64::MAX, [0, 0]);
        for pending in std::mem::take(&mut state.pending) {
            if state.random.random() {
                continue;
            }
            let names = &mut state.names_on_disk;
            match pending {
                Renaming::Made(path, file) => _ = names.insert(path, file),
                Renaming::Removed(path) => _ = names.remove(&path),
                Renaming::Renamed(from, to) => {
                    if let Some(file) = names.remove(&from) {
                        names.insert(to, file);
                    }
                }
            }
        }
        state.names = state.names_on_disk.clone();
        for file in &mut state.files {
            let random = &mut state.random;
            let mut content = file.on_disk.clone();
            if file.data.len() > content.len() && file.data.starts_with(&content) {
                // More was written: some of it is there, and some room, perhaps.
                let from = content.len();
                let kept = random.random_range(from..=file.data.len());
                content.extend_from_slice(&file.data[from..kept]);
                let to = file.lost_until.clamp(from, content.len());
                content[from..to].fill(0);
                if random.random_range(0..3) == 0 {
                    content.resize(random.random_range(kept..=file.data.len()), 0);
                }
            } else if !file.data.starts_with(&content) && random.random() {
                // It was cut, or cut and written on.
                let kept = random.random_range(0..=file.data.len());
                content = file.data[..kept.max(content.len().min(file.data.len()))].to_vec();
            }
            *file = File { data: content.clone(), on_disk: content, lost_until: 0 };
        }
    }
}

struct Open(Machine, usize);

impl Write for Open {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.0.0.lock();
        let stops = state.operation();
        let fails = stops.is_err() || state.is_to_fail(0);
        // Some of it gets through.
        let all = bytes.len();
        let taken = if fails { state.random.random_range(0..=all) } else { all };
        state.files[self.1].data.extend_from_slice(&bytes[..taken]);
        match (stops, fails && taken < all) {
            (Err(error), _) => Err(error),
            (Ok(()), true) if taken == 0 => Err(io::ErrorKind::StorageFull.into()),
            _ => Ok(taken),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Output for Open {
    fn sync(&self) -> io::Result<()> {
        self.0.0.lock().sync(self.1)
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        let mut state = self.0.0.lock();
        state.operation()?;
        state.files[self.1].cut(len as usize);
        Ok(())
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        Ok(self.0.0.lock().names.get(path) == Some(&self.1))
    }

    fn twin(&self) -> io::Result<Box<dyn Output>> {
        Ok(Box::new(Self(self.0.clone(), self.1)))
    }
}

impl Files for Machine {
    fn create(&self, path: &Path) -> io::Result<Box<dyn Output>> {
        let mut state = self.0.lock();
        state.operation()?;
        let number = match state.find(path) {
            Ok(number) => {
                state.files[number].cut(0);
                number
            }
            Err(_) => state.make(path),
        };
        Ok(Box::new(Open(self.clone(), number)))
    }

    fn append(&self, path: &Path) -> io::Result<Box<dyn Output>> {
        let mut state = self.0.lock();
        state.operation()?;
        let number = state.find(path).unwrap_or_else(|_| state.make(path));
        Ok(Box::new(Open(self.clone(), number)))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Read + Send>> {
        let state = self.0.lock();
        let number = state.find(path)?;
        Ok(Box::new(Cursor::new(state.files[number].data.clone())))
    }

    fn len(&self, path: &Path) -> io::Result<Option<u64>> {
        let state = self.0.lock();
        Ok(state.names.get(path).map(|&number| state.files[number].data.len() as u64))
    }

    fn changed(&self, path: &Path) -> io::Result<Option<SystemTime>> {
        Ok(self.len(path)?.map(|_| SystemTime::UNIX_EPOCH))
    }

    fn cut(&self, path: &Path, len: u64) -> io::Result<()> {
        let mut state = self.0.lock();
        state.operation()?;
        let number = state.find(path)?;
        state.files[number].cut(len as usize);
        state.sync(number)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.0.lock();
        state.operation()?;
        let number = state.find(from)?;
        state.names.remove(from);
        state.names.insert(to.into(), number);
        state.pending.push(Renaming::Renamed(from.into(), to.into()));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.0.lock();
        state.operation()?;
        state.names.remove(path);
        state.pending.push(Renaming::Removed(path.into()));
        Ok(())
    }

    fn make_dir(&self, _: &Path) -> io::Result<()> {
        self.0.lock().operation()
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.0.lock();
        state.operation()?;
        if state.is_to_fail(1) {
            return Err(io::Error::other("input/output error"));
        }
        let state = &mut *state;
        let is_here = |name: &Path| name.parent().unwrap_or(Path::new("")) == path;
        state.names_on_disk.retain(|name, _| !is_here(name));
        let here = state.names.iter().filter(|(name, _)| is_here(name));
        state.names_on_disk.extend(here.map(|(name, number)| (name.clone(), *number)));
        state.pending.retain(|pending| match pending {
            Renaming::Made(name, _) | Renaming::Removed(name) => !is_here(name),
            Renaming::Renamed(_, to) => !is_here(to),
        });
        Ok(())
    }

    fn lock(&self, _: &Path) -> io::Result<Option<Lock>> {
        Ok(Some(Lock::simulated()))
    }
}
