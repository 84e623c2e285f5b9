//! Snug's own format: values of all types, packed and raw, written and read again.

mod told;

use proptest::prelude::*;
use snug_codec::{Dictionary, Workspace, WorkspaceConfig};
use snug_rdb::{Options, dump};
use snug_store::image::{ImageReader, ImageWriter, Loading, Part, Trust, load};
use snug_store::types::stream::StreamScratch;
use snug_store::{Batch, Detached, Limits, MinSaving, PieceParams, Session, Store, StoreConfig};
use snug_store::{Type, Unobserved};
use std::sync::Arc;
use told::made::{Made, made};
use told::{Told, make};

const PARAMS: PieceParams =
    PieceParams { min_size: 1, min_saving: MinSaving(-1000), level: 1, ..PieceParams::DEFAULT };

fn store() -> Arc<Store> {
    Store::new(StoreConfig::default(), Box::new(Unobserved))
}

fn name(n: usize) -> Vec<u8> {
    format!("key:{n}").into_bytes()
}

/// Packs all that there is to a value.
fn pack(batch: &Batch<'_>, name: &[u8]) {
    let mut workspace = Workspace::new(WorkspaceConfig::default());
    let key = batch.key(name);
    for _ in 0..200 {
        let mut slot = batch.lock(0, &key);
        let found = slot.find_untouched(&key).expect("the key is there");
        if slot.type_of(found) == Type::Stream {
            slot.seal_tail(found);
        }
        let job = slot.job(found, &PARAMS, true);
        drop(slot);
        let Some(job) = job else { break };
        let mut job = batch.prepared(job, &PARAMS);
        job.run_at_once(&mut workspace, &mut Vec::new());
        batch.install(&mut job);
    }
}

/// A store with these values; some of them are packed.
fn filled(values: &[(Made, u8)]) -> Arc<Store> {
    let store = store();
    let families = store.families();
    let texts: Vec<String> = (0..500).map(|n| format!("user {n} says aabbcc {}", n * 7)).collect();
    let samples: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
    for kind in [Type::String, Type::Hash, Type::Stream] {
        let dictionary = Dictionary::train_with(&samples, 1024, 1, 1).unwrap();
        families.adopt(&families.of(kind, b"key:1"), Some(dictionary));
    }
    let workshop = store.session();
    let mut session = store.session();
    for (n, (made, how)) in values.iter().enumerate() {
        let expiry = how.is_multiple_of(3).then_some(1_900_000_000_000 + u64::from(*how));
        let value = make(&workshop, &name(n), expiry, |out| made.give(out));
        let batch = session.enter(1);
        batch.load(0, value).unwrap();
        if how.is_multiple_of(2) {
            pack(&batch, &name(n));
        }
    }
    store
}

fn copies(session: &mut Session, count: usize) -> Vec<Detached> {
    let batch = session.enter(1);
    let copy = |n| {
        let name = name(n);
        let key = batch.key(&name);
        let mut slot = batch.lock(0, &key);
        let found = slot.find_untouched(&key).expect("the key is there");
        slot.duplicate(found)
    };
    (0..count).map(copy).collect()
}

fn write(store: &Store, values: &[Detached], framed: bool) -> Vec<u8> {
    let mut writer = ImageWriter::new(Vec::new(), store).unwrap();
    if framed {
        writer.frame(2).unwrap();
    }
    writer.aux(b"ctime", b"5").unwrap();
    writer.function(b"#!lua name=x").unwrap();
    writer.families().unwrap();
    values.iter().for_each(|value| writer.entry(0, value).unwrap());
    writer.end().unwrap()
}

/// Reads all of it into a store; how many keys there were. Several threads at once, with
/// another store, come to the same.
fn read(store: &Arc<Store>, file: &[u8], trust: Trust) -> Result<usize, String> {
    let read = read_one_by_one(store, file, trust);
    let loading = Loading { trust, limits: Limits::DEFAULT, databases: 16, now: 0, threads: 3 };
    let second = self::store();
    let loaded = load(file, &second, &loading, |_| true);
    assert_eq!(
        loaded.as_ref().map(|loaded| loaded.keys as usize).ok(),
        read.as_ref().copied().ok(),
        "{loaded:?} {read:?}"
    );
    if let Ok(loaded) = loaded {
        assert_eq!((loaded.bytes, loaded.expired), (file.len() as u64, 0));
        assert_eq!((0..16).map(|db| second.keys(db)).sum::<u64>(), loaded.keys);
        for kind in Type::ALL {
            assert_eq!(second.type_memory(*kind).packed, store.type_memory(*kind).packed);
        }
    }
    read
}

fn read_one_by_one(store: &Arc<Store>, file: &[u8], trust: Trust) -> Result<usize, String> {
    let (workshop, limits) = (store.session(), Limits::DEFAULT);
    let mut session = store.session();
    let told = |error: snug_store::image::ImageError| error.to_string();
    let mut reader = ImageReader::new(file, &workshop, &limits, trust).map_err(told)?;
    let mut keys = 0;
    loop {
        match reader.next().map_err(told)? {
            Part::Aux(name, value) => {
                assert!(trust == Trust::Nobody || (&name[..], &value[..]) == (b"ctime", b"5"));
            }
            Part::Function(_) => {}
            Part::Entry(db, value) => {
                let batch = session.enter(1);
                batch.load(db, value).map_err(|_| "a key is there twice".to_string())?;
                keys += 1;
            }
            Part::End => return Ok(keys),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 40 } else { 200 }))]

    #[test]
    fn an_image_holds_what_was_written(
        values in prop::collection::vec((made(), any::<u8>()), 1..8),
        trusted: bool,
        framed: bool,
    ) {
        let first = filled(&values);
        let mut session = first.session();
        let written = copies(&mut session, values.len());
        let file = write(&first, &written, framed);
        let second = store();
        let trust = if trusted { Trust::Own } else { Trust::Nobody };
        prop_assert_eq!(read(&second, &file, trust), Ok(values.len()));
        let there = copies(&mut second.session(), values.len());
        for (before, after) in written.iter().zip(&there) {
            prop_assert_eq!(before.expiry(), after.expiry());
            prop_assert_eq!(Told::of(after, &second.session()), Told::of(before, &session));
        }
        for kind in Type::ALL {
            let (was, is) = (first.type_memory(*kind), second.type_memory(*kind));
            prop_assert_eq!((was.raw, was.packed_from, was.packed), (is.raw, is.packed_from, is.packed));
        }
        let dictionaries = |store: &Store| store.families().dictionaries().len();
        prop_assert!(dictionaries(&second) >= 3);
        // What was loaded is changed, packed and written again as what was there.
        let mut session = second.session();
        for n in 0..values.len() {
            let batch = session.enter(1);
            pack(&batch, &name(n));
        }
        let packed = copies(&mut session, values.len());
        for (before, after) in written.iter().zip(&packed) {
            prop_assert_eq!(Told::of(after, &second.session()), Told::of(before, &first.session()));
        }
    }

    /// Any damage is told by the sums.
    #[test]
    fn damage_is_told(
        made in made(),
        how: u8,
        framed: bool,
        at: usize,
        bit in 0u32..8,
        cut: usize,
    ) {
        let first = filled(&[(made, how)]);
        let mut file = write(&first, &copies(&mut first.session(), 1), framed);
        let cut_file = &file[..cut % file.len()];
        prop_assert!(read(&store(), cut_file, Trust::Own).is_err());
        let at = at % file.len();
        file[at] ^= 1 << bit;
        prop_assert!(read(&store(), &file, Trust::Own).is_err());
    }

    /// Damage whose sums are right is an error, or a value that can be read all the same.
    #[test]
    fn hostile_bytes_are_an_error(
        made in made(),
        how: u8,
        framed: bool,
        changes in prop::collection::vec((any::<usize>(), any::<u8>()), 1..4),
    ) {
        let first = filled(&[(made, how)]);
        let mut file = write(&first, &copies(&mut first.session(), 1), framed);
        for (at, byte) in changes {
            let at = at % file.len();
            file[at] = byte;
        }
        snug_store::image::sum_anew(&mut file);
        let second = store();
        if read(&second, &file, Trust::Nobody) == Ok(1) {
            let mut session = second.session();
            let batch = session.enter(1);
            let mut names = Vec::new();
            batch.scan(0, 0, usize::MAX, |name, _| names.push(name.to_vec()));
            for name in names {
                let key = batch.key(&name);
                let mut slot = batch.lock(0, &key);
                let found = slot.find_untouched(&key).expect("it was met just now");
                let value = slot.duplicate(found);
                drop(slot);
                let (reader, mut scratch) = (second.session(), StreamScratch::new());
                let _ = value.save(&reader, &mut scratch, &mut Told::default());
                // What was looked through can be saved as RDB.
                prop_assert!(dump(&value, Options::DEFAULT, (&reader, &mut scratch)).is_ok());
                pack(&batch, &name);
            }
        }
    }
}

/// A file with one key, whose form and value these are.
fn file_of(form: u8, value: &[u8]) -> Vec<u8> {
    let block = |kind: u8, body: &[u8]| {
        let len = (body.len() as u32).to_le_bytes();
        [&[kind, 0, 0, 0][..], &len, &[0; 8], body].concat()
    };
    let key = [&[0, form, 0, 1, b'k'][..], value].concat();
    let head = [&b"SNUGIMG\n"[..], &1u32.to_le_bytes(), &[0; 4]].concat();
    let blocks = [block(1, &[0; 8]), block(6, &key), block(8, &1u64.to_le_bytes())].concat();
    let mut file = [head, blocks].concat();
    snug_store::image::sum_anew(&mut file);
    file
}

/// Values that are not what they say, so that no RDB could be written of them: they are
/// refused when they come.
#[test]
fn what_could_not_be_saved_is_refused() {
    let is_taken = |form, value: &[u8]| read(&store(), &file_of(form, value), Trust::Nobody);
    // A set of one member that is told to be of integers: 7, and `a`.
    assert_eq!(is_taken(9, &[3, 0, 1, 7]), Ok(1));
    assert!(is_taken(9, &[4, 0, 1, 0x81, b'a']).unwrap_err().contains("a set of integers"));
    // A list of two pages with an item each, and one whose second page has none.
    let page = |items: &[u8]| [&[items.len() as u8, 0, items.len() as u8], items].concat();
    let list = |pages: [&[u8]; 2]| [vec![0, 0, 2], page(pages[0]), page(pages[1])].concat();
    assert_eq!(is_taken(19, &list([&[7], &[8]])), Ok(1));
    for pages in [[&[7][..], &[][..]], [&[][..], &[7][..]]] {
        assert!(is_taken(19, &list(pages)).is_err());
    }
}

/// Values of each type that is packed, large enough to have several pages or blocks.
fn some_of_each() -> Vec<(Made, u8)> {
    let text = |n: usize| format!("user {n} says aabbcc {}", n * 7).into_bytes();
    let all = |count: usize| (0..count).map(text).collect::<Vec<_>>();
    let fields = |n: usize| vec![(b"name".to_vec(), text(n)), (text(n % 3), b"5".to_vec())];
    vec![
        (Made::String(text(5)), 2),
        (Made::String(all(20_000).concat()), 2),
        (Made::List(all(2000)), 2),
        (Made::Set(all(2000).into_iter().collect()), 2),
        (Made::Hash(all(2000).into_iter().map(|t| (t.clone(), (t, None))).collect()), 2),
        (Made::Hash(all(5).into_iter().map(|t| (t.clone(), (t, None))).collect()), 2),
        (Made::ZSet(all(2000).into_iter().zip((0..).map(f64::from)).collect()), 2),
        (Made::Stream((0..3000).map(|n| (n as u64, fields(n))).collect(), 2), 2),
    ]
}

#[test]
fn what_is_packed_stays_packed() {
    let values = some_of_each();
    let first = filled(&values);
    let file = write(&first, &copies(&mut first.session(), values.len()), false);
    let second = store();
    assert_eq!(read(&second, &file, Trust::Own), Ok(values.len()));
    for kind in Type::ALL {
        let (was, is) = (first.type_memory(*kind), second.type_memory(*kind));
        assert!(is.packed > 0, "{kind:?}");
        assert_eq!((was.packed_from, was.packed), (is.packed_from, is.packed), "{kind:?}");
    }
    let shapes = |store: &Store| {
        let families = store.families().all();
        let with = families.iter().filter(|family| family.dictionary != 0);
        let mut shapes: Vec<_> = with.map(|f| (f.kind.number(), f.shape.clone())).collect();
        shapes.sort();
        shapes
    };
    assert_eq!(shapes(&first), shapes(&second));
}

/// A process whose hashes have another seed puts what it loads into its own order.
#[test]
fn pages_in_another_order_are_made_anew() {
    let values = some_of_each();
    let first = filled(&values);
    let mut session = first.session();
    let written = copies(&mut session, values.len());
    let mut file = write(&first, &written, false);
    // The seed is the body of the first block.
    file[32] ^= 1;
    snug_store::image::sum_anew(&mut file);
    let second = store();
    assert_eq!(read(&second, &file, Trust::Nobody), Ok(values.len()));
    let there = copies(&mut second.session(), values.len());
    for (before, after) in written.iter().zip(&there) {
        assert_eq!(Told::of(after, &second.session()), Told::of(before, &session));
    }
}

/// A library of functions may be longer than a block, and a file ends where it says.
#[test]
fn libraries_of_any_length_are_kept() {
    let code = |len: usize| (0..len).map(|n| n as u8).collect::<Vec<_>>();
    let lens = [0, 1, 256 * 1024, 3_000_000];
    let first = store();
    let written = |framed: bool| {
        let mut writer = ImageWriter::new(Vec::new(), &first).unwrap();
        if framed {
            writer.frame(2).unwrap();
        }
        lens.iter().for_each(|&len| writer.function(&code(len)).unwrap());
        writer.end().unwrap()
    };
    let mut file = written(false);
    let loading =
        Loading { trust: Trust::Own, limits: Limits::DEFAULT, databases: 16, now: 0, threads: 2 };
    assert!(written(true).len() < file.len() / 10, "they repeat themselves");
    for file in [&file, &written(true)] {
        let loaded = load(&file[..], &store(), &loading, |_| true).unwrap();
        assert!(loaded.functions.iter().zip(lens).all(|(there, len)| *there == code(len)));
        assert_eq!(loaded.functions.len(), lens.len());
        assert_eq!(read_one_by_one(&store(), file, Trust::Nobody), Ok(0));
    }
    file.push(0);
    let told = load(&file[..], &store(), &loading, |_| true).unwrap_err().to_string();
    assert!(told.contains("there is something behind the end"), "{told}");
}

/// An auxiliary field is one whole block, though a server that loads a file has no use
/// for it.
#[test]
fn auxiliary_fields_are_looked_through() {
    // Behind the head of the file and the block of the seed.
    let field = 16 + 16 + 8;
    let whole = write(&store(), &[], false);
    assert_eq!(whole[field + 16..][..7], *b"\x05ctime5");
    for (at, byte) in [(16, 7), (1, 1)] {
        let mut file = whole.clone();
        file[field + at] = byte;
        snug_store::image::sum_anew(&mut file);
        let told = read(&store(), &file, Trust::Nobody).unwrap_err();
        assert!(told.starts_with("byte 40: "), "{told}");
    }
    assert_eq!(read(&store(), &whole, Trust::Nobody), Ok(0));
}

/// What has expired is left out, what has been stopped says so, and a database that the
/// server does not have is refused.
#[test]
fn what_is_left_out_is_counted() {
    let values: Vec<_> = (0..500).map(|n: usize| (Made::String(name(n)), (n % 3) as u8)).collect();
    let first = filled(&values);
    let file = write(&first, &copies(&mut first.session(), values.len()), true);
    let now = 1_900_000_000_001;
    let loading =
        Loading { trust: Trust::Own, limits: Limits::DEFAULT, databases: 16, now, threads: 2 };
    let loaded = load(&file[..], &store(), &loading, |_| true).unwrap();
    assert_eq!((loaded.keys, loaded.expired), (333, 167));
    assert!(load(&file[..], &store(), &loading, |_| false).is_err());
    let none = Loading { databases: 0, ..loading };
    assert!(load(&file[..], &store(), &none, |_| true).is_err());
}
