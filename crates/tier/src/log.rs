//! A log of segments: files that are written from front to end, once, and removed when
//! nothing in them is referred to any more.
//!
//! ```text
//!  place    | segment: 24 bits | offset: 40 bits |
//!
//!  tier-0000000007.seg   [record][record][record]...      no headers: memory knows
//!                                                         offset, length and checksum
//!  table    number of a segment ──> file, bytes written, bytes referred to
//! ```
//!
//! Records are written behind each other and synced together, so that a place is told
//! only once its bytes are on disk. A write or a sync that fails ends its segment: what
//! was written before is synced and stays, and the next write begins another.
//!
//! A segment is full at [`SEGMENT_BYTES`], or a sixteenth of the limit if that is less. The
//! limit is what was asked for, or what the disk has room for if that is less.
//! One in which nothing is referred to is removed. When more than a quarter of all that
//! is written is referred to by nobody and the limit is near, or more than half in any
//! case, the segments with the least in them are *sparse*: whoever refers to their
//! records moves them to the end. The room of one segment is kept for that, or as much as
//! is being moved. Where there is no such room, for the limit was higher before, one segment
//! is moved beyond the limit.
//!
//! Costs: a record's length in a file, and nothing in memory but the table (a hundred
//! bytes for each segment). Reading is one `pread`; writing, its bytes and a share of
//! one `fdatasync`.

use crate::{Engine, Figures, Place, Purpose, full, sparse};
use parking_lot::{Mutex, RwLock};
use rustix::fs::{Advice, fadvise, statvfs};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Bytes of a segment, about.
const SEGMENT_BYTES: u64 = 64 << 20;
/// Of a small limit a segment is this part.
const SEGMENTS_MIN: u64 = 16;
/// Bytes of the smallest segment.
const SEGMENT_MIN: u64 = 256 << 10;

const OFFSET_BITS: u32 = 40;

const PREFIX: &str = "tier-";
const SUFFIX: &str = ".seg";

#[derive(Debug)]
struct Segment {
    file: File,
    path: PathBuf,
    /// Bytes written and synced.
    len: AtomicU64,
    /// Bytes that are referred to, each as often as it is.
    live: AtomicU64,
    /// Nothing more is written to it.
    is_sealed: AtomicBool,
    is_sparse: AtomicBool,
}

/// Where the next record goes.
#[derive(Debug, Default)]
struct Head {
    current: Option<(usize, Arc<Segment>)>,
    /// The number of the next file.
    next_file: u64,
}

/// A log of segments in a folder.
#[derive(Debug)]
pub struct Log {
    folder: PathBuf,
    segments: RwLock<Vec<Option<Arc<Segment>>>>,
    head: Mutex<Head>,
    /// The most bytes of files that were asked for, 0 for no limit; and the same, or what
    /// the file system has room for if that is less.
    asked: AtomicU64,
    limit: AtomicU64,
    /// Bytes of all segments.
    len: AtomicU64,
    live: AtomicU64,
    written: AtomicU64,
    moved: AtomicU64,
    read: AtomicU64,
    syncs: AtomicU64,
}

/// Removes the segments that a log has left in a folder; a number that no file has.
pub(crate) fn remove_left(folder: &Path) -> io::Result<u64> {
    let mut next_file = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let number = name.strip_prefix(PREFIX).and_then(|name| name.strip_suffix(SUFFIX));
        if let Some(number) = number.and_then(|number| number.parse::<u64>().ok()) {
            fs::remove_file(entry.path())?;
            next_file = next_file.max(number + 1);
        }
    }
    Ok(next_file)
}

impl Log {
    /// A log in this folder, which is made if it is not there, and in which segments of
    /// an earlier one are removed. `limit` is the most bytes of files, 0 for no limit.
    pub fn open(folder: &Path, limit: u64) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let next_file = remove_left(folder)?;
        let log = Self {
            folder: folder.to_path_buf(),
            segments: RwLock::default(),
            head: Mutex::new(Head { current: None, next_file }),
            asked: AtomicU64::new(limit),
            limit: AtomicU64::new(limit),
            len: AtomicU64::new(0),
            live: AtomicU64::new(0),
            written: AtomicU64::new(0),
            moved: AtomicU64::new(0),
            read: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
        };
        log.find_limit();
        // A folder that cannot be written to is found out now.
        log.begin(&mut log.head.lock())?;
        Ok(log)
    }

    /// Looks how much room the file system has. A disk that others fill, or that is smaller
    /// than the limit, would else be full of records that nobody refers to, with no room to
    /// move the others.
    fn find_limit(&self) {
        let asked = self.asked.load(Relaxed);
        let len = self.len.load(Relaxed);
        let room = statvfs(&self.folder).ok().filter(|disk| disk.f_blocks > 0);
        let most = room.map(|disk| len.saturating_add(disk.f_bavail.saturating_mul(disk.f_frsize)));
        let limit = match most {
            None => asked,
            Some(most) if asked == 0 => most.max(1),
            Some(most) => most.clamp(1, asked),
        };
        self.limit.store(limit, Relaxed);
    }

    fn segment_bytes(&self) -> u64 {
        match self.limit.load(Relaxed) {
            0 => SEGMENT_BYTES,
            limit => (limit / SEGMENTS_MIN).clamp(SEGMENT_MIN, SEGMENT_BYTES),
        }
    }

    /// Whether so many bytes more are within the limit. What is moved has its room:
    /// [`Engine::tidy`] begins no more than there is room for.
    fn fits(&self, bytes: u64, purpose: Purpose) -> bool {
        let limit = self.limit.load(Relaxed);
        if limit == 0 || purpose == Purpose::Move {
            return true;
        }
        let segments = self.segments.read();
        let sparse = segments.iter().flatten().filter(|segment| segment.is_sparse.load(Relaxed));
        let moving: u64 = sparse.map(|segment| segment.live.load(Relaxed)).sum();
        self.len.load(Relaxed) + bytes + moving.max(self.segment_bytes()) <= limit
    }

    /// Begins a segment.
    fn begin(&self, head: &mut Head) -> io::Result<(usize, Arc<Segment>)> {
        let path = self.folder.join(format!("{PREFIX}{:010}{SUFFIX}", head.next_file));
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        head.next_file += 1;
        // Records are read one by one: what lies beside them is not wanted.
        let _ = fadvise(&file, 0, None, Advice::Random);
        let segment = Arc::new(Segment {
            file,
            path,
            len: AtomicU64::new(0),
            live: AtomicU64::new(0),
            is_sealed: AtomicBool::new(false),
            is_sparse: AtomicBool::new(false),
        });
        let mut segments = self.segments.write();
        let number = match segments.iter().position(Option::is_none) {
            Some(free) => free,
            None => {
                segments.push(None);
                segments.len() - 1
            }
        };
        segments[number] = Some(Arc::clone(&segment));
        head.current = Some((number, Arc::clone(&segment)));
        Ok((number, segment))
    }

    fn segment(&self, place: Place) -> Option<Arc<Segment>> {
        self.segments.read().get((place >> OFFSET_BITS) as usize)?.clone()
    }

    fn with<R>(&self, place: Place, then: impl FnOnce(&Segment) -> R) -> Option<R> {
        let segments = self.segments.read();
        let segment = segments.get((place >> OFFSET_BITS) as usize)?.as_ref()?;
        Some(then(segment))
    }

    /// Writes some records to one segment, and syncs them.
    fn append(
        &self,
        head: &mut Head,
        records: &[&[u8]],
        places: &mut Vec<Place>,
    ) -> io::Result<()> {
        let bytes = records.concat();
        let (number, segment) = match head.current.take() {
            Some(current) => current,
            None => self.begin(head)?,
        };
        let start = segment.len.load(Relaxed);
        let written =
            segment.file.write_all_at(&bytes, start).and_then(|()| segment.file.sync_data());
        self.syncs.fetch_add(1, Relaxed);
        if let Err(error) = written {
            // Nothing is assumed of what lies behind `start`, and it is given back.
            segment.is_sealed.store(true, Relaxed);
            let _ = segment.file.set_len(start);
            head.current = None;
            return Err(error);
        }
        // It has cooled before it came here: it need not be in memory a second time.
        let length = std::num::NonZeroU64::new(bytes.len() as u64);
        let _ = fadvise(&segment.file, start, length, Advice::DontNeed);
        let mut at = start;
        for record in records {
            places.push((number as u64) << OFFSET_BITS | at);
            at += record.len() as u64;
        }
        segment.len.store(at, Relaxed);
        segment.live.fetch_add(at - start, Relaxed);
        self.live.fetch_add(at - start, Relaxed);
        self.len.fetch_add(at - start, Relaxed);
        self.written.fetch_add(at - start, Relaxed);
        if at >= self.segment_bytes() {
            segment.is_sealed.store(true, Relaxed);
        } else {
            head.current = Some((number, segment));
        }
        Ok(())
    }

    fn remove_dead(&self) {
        let mut dead = Vec::new();
        {
            let head = self.head.lock();
            let current = head.current.as_ref().map(|(number, _)| *number);
            let mut segments = self.segments.write();
            for (number, place) in segments.iter_mut().enumerate() {
                let is_dead = place.as_ref().is_some_and(|segment| {
                    segment.is_sealed.load(Relaxed) && segment.live.load(Relaxed) == 0
                });
                if is_dead && Some(number) != current {
                    dead.extend(place.take());
                }
            }
        }
        for segment in dead {
            self.len.fetch_sub(segment.len.load(Relaxed), Relaxed);
            // Whoever removed it already has done what is to be done.
            let _ = fs::remove_file(&segment.path);
        }
    }
}

impl Engine for Log {
    fn write(&self, records: &[&[u8]], purpose: Purpose) -> io::Result<Vec<Place>> {
        let mut places = Vec::with_capacity(records.len());
        let mut head = self.head.lock();
        let mut rest = records;
        while !rest.is_empty() {
            let room = {
                let len = head.current.as_ref().map_or(0, |(_, s)| s.len.load(Relaxed));
                self.segment_bytes().saturating_sub(len)
            };
            // As many as fill the segment, one at least.
            let (mut count, mut bytes) = (0, 0);
            while count < rest.len() && (count == 0 || bytes < room) {
                bytes += rest[count].len() as u64;
                count += 1;
            }
            let done = match self.fits(bytes, purpose) {
                true => self.append(&mut head, &rest[..count], &mut places),
                false => Err(full()),
            };
            if let Err(error) = done {
                for (&place, record) in places.iter().zip(records) {
                    self.release(place, record.len());
                }
                return Err(error);
            }
            rest = &rest[count..];
        }
        if purpose == Purpose::Move {
            let bytes: usize = records.iter().map(|record| record.len()).sum();
            self.moved.fetch_add(bytes as u64, Relaxed);
        }
        Ok(places)
    }

    fn read(&self, place: Place, len: usize) -> io::Result<Vec<u8>> {
        let segment = self.segment(place);
        let segment = segment.ok_or_else(|| io::Error::other("no such segment"))?;
        let mut record = vec![0; len];
        segment.file.read_exact_at(&mut record, place & ((1 << OFFSET_BITS) - 1))?;
        self.read.fetch_add(len as u64, Relaxed);
        Ok(record)
    }

    fn retain(&self, place: Place, len: usize) {
        self.with(place, |segment| segment.live.fetch_add(len as u64, Relaxed));
        self.live.fetch_add(len as u64, Relaxed);
    }

    fn release(&self, place: Place, len: usize) {
        self.with(place, |segment| segment.live.fetch_sub(len as u64, Relaxed));
        self.live.fetch_sub(len as u64, Relaxed);
    }

    fn is_sparse(&self, place: Place) -> bool {
        self.with(place, |segment| segment.is_sparse.load(Relaxed)).unwrap_or(false)
    }

    fn tidy(&self) -> bool {
        self.remove_dead();
        self.find_limit();
        let (len, live) = (self.len.load(Relaxed), self.live.load(Relaxed));
        let limit = self.limit.load(Relaxed);
        let is_due = sparse::is_due(live, len, self.segment_bytes(), limit);
        let is_full = sparse::is_full(len, self.segment_bytes(), limit);
        let segments = self.segments.read();
        let mut thin = Vec::new();
        // What is being moved comes free only when all of a segment has been: no more is
        // begun than there is room for.
        let mut room = if limit == 0 { u64::MAX } else { limit.saturating_sub(len) };
        let mut is_moving = false;
        for segment in segments.iter().flatten() {
            let (len, live) = (segment.len.load(Relaxed), segment.live.load(Relaxed));
            if segment.is_sparse.load(Relaxed) {
                room = room.saturating_sub(live);
                is_moving = true;
            } else if segment.is_sealed.load(Relaxed) && sparse::is_sparse(live, len, is_full) {
                thin.push((live, segment));
            }
        }
        if is_due {
            thin.sort_unstable_by_key(|(live, _)| *live);
            for (live, segment) in thin {
                if live > room && is_moving {
                    break;
                }
                room = room.saturating_sub(live);
                is_moving = true;
                segment.is_sparse.store(true, Relaxed);
            }
        }
        is_moving
    }

    fn limit(&self, bytes: u64) {
        self.asked.store(bytes, Relaxed);
        self.find_limit();
    }

    fn has_room(&self, bytes: u64) -> bool {
        self.fits(bytes, Purpose::Leave)
    }

    fn figures(&self) -> Figures {
        Figures {
            live: self.live.load(Relaxed),
            files_bytes: self.len.load(Relaxed),
            files: self.segments.read().iter().flatten().count() as u64,
            written: self.written.load(Relaxed),
            moved: self.moved.load(Relaxed),
            read: self.read.load(Relaxed),
            syncs: self.syncs.load(Relaxed),
            memory: 0,
        }
    }
}

impl Drop for Log {
    /// Nobody refers to anything any more.
    fn drop(&mut self) {
        for segment in self.segments.get_mut().iter().flatten() {
            let _ = fs::remove_file(&segment.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sum;
    use crate::tests::Folder;
    use rand::rngs::StdRng;
    use rand::{RngExt as _, SeedableRng};

    fn record(random: &mut StdRng) -> Vec<u8> {
        let len = random.random_range(1..5000);
        (0..len).map(|_| random.random()).collect()
    }

    /// Whatever is written, released, retained and moved: what is referred to is read as
    /// it was, and what is not takes no room for long.
    #[test]
    fn what_is_referred_to_stays_and_the_rest_goes() {
        let folder = Folder::new("model");
        let log = Log::open(&folder.0, 6 << 20).unwrap();
        let mut random = StdRng::seed_from_u64(7);
        let mut held: Vec<(Place, usize, u32)> = Vec::new();
        for round in 0..60 {
            let records: Vec<_> = (0..120).map(|_| record(&mut random)).collect();
            let refs: Vec<&[u8]> = records.iter().map(|record| &record[..]).collect();
            if let Ok(places) = log.write(&refs, Purpose::Leave) {
                let known = places.iter().zip(&records);
                held.extend(known.map(|(&place, record)| (place, record.len(), sum(record))));
            }
            while held.len() > 900 || random.random_range(0..9) > 0 && !held.is_empty() {
                let (place, len, _) = held.swap_remove(random.random_range(0..held.len()));
                log.release(place, len);
            }
            if log.tidy() {
                for (place, len, sum) in &mut held {
                    if log.is_sparse(*place) {
                        let record = log.read(*place, *len).unwrap();
                        let Ok(moved) = log.write(&[&record], Purpose::Move) else { continue };
                        log.release(*place, *len);
                        (*place, *sum) = (moved[0], crate::sum(&record));
                    }
                }
            }
            for &(place, len, known) in held.iter().filter(|_| round % 10 == 9) {
                assert_eq!(sum(&log.read(place, len).unwrap()), known);
            }
            let figures = log.figures();
            assert_eq!(figures.live, held.iter().map(|(_, len, _)| *len as u64).sum::<u64>());
            assert!(figures.files_bytes <= 6 << 20, "{figures:?}");
        }
        assert!(log.figures().moved > 0);
        held.drain(..).for_each(|(place, len, _)| log.release(place, len));
        log.tidy();
        assert!(folder.files() <= 1, "only what is written to is left");
        drop(log);
        assert_eq!(folder.files(), 0);
    }

    #[test]
    fn what_an_earlier_one_left_is_removed_and_nothing_else() {
        let folder = Folder::new("left");
        fs::create_dir_all(&folder.0).unwrap();
        for name in ["tier-0000000003.seg", "tier-x.seg", "else"] {
            fs::write(folder.0.join(name), b"left").unwrap();
        }
        let log = Log::open(&folder.0, 0).unwrap();
        assert_eq!(folder.files(), 3);
        let places = log.write(&[b"one", b"two"], Purpose::Leave).unwrap();
        assert_eq!(log.read(places[1], 3).unwrap(), b"two");
        assert!(log.read(places[1], 4).is_err(), "there is no more");
    }

    #[test]
    fn a_limit_is_kept_and_a_segment_is_left_to_move_with() {
        let folder = Folder::new("limit");
        let log = Log::open(&folder.0, 4 << 20).unwrap();
        let record = vec![7; 100_000];
        let mut places = Vec::new();
        while let Ok(more) = log.write(&[&record], Purpose::Leave) {
            places.extend(more);
        }
        let len = log.figures().files_bytes;
        assert!((3 << 20..4 << 20).contains(&len), "{len}");
        assert!(!log.has_room(100_000));
        log.write(&[&record], Purpose::Move).unwrap();
        assert!(log.figures().files_bytes <= 4 << 20);
    }

    /// Whatever comes between, and though the limit becomes less.
    #[test]
    fn a_full_log_moves_what_it_has_room_for() {
        for lowered in [4 << 20, 3 << 20] {
            move_what_is_left(lowered);
        }
    }

    fn move_what_is_left(lowered: u64) {
        let folder = Folder::new("moves");
        let log = Log::open(&folder.0, 4 << 20).unwrap();
        let mut places = Vec::new();
        loop {
            let byte = places.len() as u8;
            let Ok(more) = log.write(&[&[byte; 10_000]], Purpose::Leave) else { break };
            places.push((byte, more[0]));
        }
        // Half of each segment is gone, and all of them want to be moved.
        let mut n = 0;
        places.retain(|&(_, place)| {
            n += 1;
            if n % 2 == 0 {
                log.release(place, 10_000);
            }
            n % 2 != 0
        });
        assert!(!log.has_room(1 << 20));
        log.limit(lowered);
        let mut between = Vec::new();
        while log.tidy() {
            let mut moved = 0;
            // As a walk over the keys meets them: in no order that segments have.
            let len = places.len();
            for at in (0..len).map(|at| at * 89 % len) {
                let (byte, place) = places[at];
                if log.is_sparse(place) {
                    let new = log.write(&[&[byte; 10_000]], Purpose::Move).expect("room")[0];
                    log.release(std::mem::replace(&mut places[at].1, new), 10_000);
                    moved += 1;
                }
                if between.len() < 20 {
                    between.extend(log.write(&[&[0; 10_000]], Purpose::Leave).unwrap_or_default());
                }
            }
            assert!(log.figures().files_bytes <= 4 << 20, "{:?}", log.figures());
            assert!(moved > 0 || !log.tidy(), "what is left can be moved");
        }
        assert!(log.has_room(200_000), "{:?}", log.figures());
        assert!(!between.is_empty());
        for (byte, place) in places {
            assert!(log.read(place, 10_000).unwrap().iter().all(|&b| b == byte));
        }
    }

    #[test]
    fn files_that_go_are_read_on_and_new_ones_are_an_error() {
        let folder = Folder::new("gone");
        let log = Log::open(&folder.0, 4 << 20).unwrap();
        let record = vec![7; 100_000];
        let first = log.write(&[&record], Purpose::Leave).unwrap()[0];
        fs::remove_dir_all(&folder.0).unwrap();
        let failed = (0..10).find_map(|_| log.write(&[&record], Purpose::Leave).err());
        assert_eq!(failed.unwrap().kind(), io::ErrorKind::NotFound);
        assert_eq!(log.read(first, record.len()).unwrap(), record);
        fs::create_dir_all(&folder.0).unwrap();
        let again = log.write(&[&record], Purpose::Leave).unwrap()[0];
        assert_eq!(log.read(again, record.len()).unwrap(), record);
    }
}
