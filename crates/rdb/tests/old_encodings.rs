//! Encodings that Snug only reads: those of Redis 2.8 to 6.2, of 7.2 and of 7.4, put
//! together here byte by byte.

mod told;

use snug_rdb::{Event, Problem, ReadOptions, Reader};
use snug_store::types::stream::StreamScratch;
use snug_store::{Limits, Store, StoreConfig, Unobserved};
use told::Told;

/// A string of fewer than 64 bytes, or of any length.
fn string(bytes: &[u8]) -> Vec<u8> {
    let len = match bytes.len() {
        len @ 0..64 => vec![len as u8],
        len => [&[0x80][..], &(len as u32).to_be_bytes()].concat(),
    };
    [&len[..], bytes].concat()
}

enum Old {
    Text(&'static [u8]),
    Int(i64),
}
use Old::{Int, Text};

/// A ziplist.
fn ziplist(elements: &[Old]) -> Vec<u8> {
    let (mut body, mut before) = (Vec::new(), 0usize);
    for element in elements {
        let from = body.len();
        match before {
            0..0xfe => body.push(before as u8),
            _ => {
                body.push(0xfe);
                body.extend_from_slice(&(before as u32).to_le_bytes());
            }
        }
        match element {
            Text(bytes) if bytes.len() < 64 => body.push(bytes.len() as u8),
            Text(bytes) if bytes.len() < 16_384 => {
                body.extend([0x40 | (bytes.len() >> 8) as u8, bytes.len() as u8]);
            }
            Text(bytes) => {
                body.push(0x80);
                body.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
            }
            Int(value @ 0..=12) => body.push(0xf1 + *value as u8),
            Int(value) => {
                let (head, len) = match value {
                    -0x80..0x80 => (0xfe, 1),
                    -0x8000..0x8000 => (0xc0, 2),
                    -0x80_0000..0x80_0000 => (0xf0, 3),
                    -0x8000_0000..0x8000_0000 => (0xd0, 4),
                    _ => (0xe0, 8),
                };
                body.push(head);
                body.extend_from_slice(&value.to_le_bytes()[..len]);
            }
        }
        if let Text(bytes) = element {
            body.extend_from_slice(bytes);
        }
        before = body.len() - from;
    }
    let mut list = ((body.len() + 11) as u32).to_le_bytes().to_vec();
    list.extend_from_slice(&((10 + body.len().saturating_sub(before)) as u32).to_le_bytes());
    list.extend_from_slice(&(elements.len() as u16).to_le_bytes());
    list.extend_from_slice(&body);
    list.push(0xff);
    list
}

/// A listpack of short strings, and of integers of 64 bits.
fn listpack(elements: &[Old]) -> Vec<u8> {
    let mut body = Vec::new();
    for element in elements {
        let from = body.len();
        match element {
            Text(bytes) => {
                body.push(0x80 | bytes.len() as u8);
                body.extend_from_slice(bytes);
            }
            Int(value) => {
                body.push(0xf4);
                body.extend_from_slice(&value.to_le_bytes());
            }
        }
        body.push((body.len() - from) as u8);
    }
    let mut list = ((body.len() + 7) as u32).to_le_bytes().to_vec();
    list.extend_from_slice(&(elements.len() as u16).to_le_bytes());
    list.extend_from_slice(&body);
    list.push(0xff);
    list
}

fn file(version: &str, body: &[&[u8]]) -> Vec<u8> {
    let sum: &[u8] = if version < "0005" { &[] } else { &[0; 8] };
    [b"REDIS", version.as_bytes(), &body.concat(), &[255], sum].concat()
}

/// What the one value is that is of this kind and consists of these bytes.
fn value(kind: u8, bytes: &[u8]) -> Result<String, String> {
    let file = file("0009", &[&[254, 0, kind], &string(b"k"), bytes]);
    let store = Store::new(StoreConfig::default(), Box::new(Unobserved));
    let (session, limits) = (store.session(), Limits::DEFAULT);
    let mut making = session.making(&limits);
    let mut reader = Reader::new(&file[..], ReadOptions::DEFAULT).map_err(|e| e.to_string())?;
    loop {
        match reader.next().map_err(|e| e.to_string())? {
            Event::Key(head) => {
                reader.value(&head, &mut making).map_err(|e| e.to_string())?;
                let value = making.finish(&store.key(b"k"), None, None).ok_or("nothing")?;
                assert_eq!(reader.next().unwrap(), Event::End);
                let mut told = Told::default();
                value.save(&session, &mut StreamScratch::new(), &mut told).unwrap();
                return Ok(told.finish());
            }
            Event::End => return Err("no key".into()),
            _ => {}
        }
    }
}

const LONG: &[u8] = &[b'x'; 300];

#[test]
fn lists_are_read() {
    let items = || [Text(b"a"), Int(0), Int(12), Int(-1), Int(300), Int(-40_000), Int(1 << 40)];
    let told = "list  a, 0, 12, -1, 300, -40000, 1099511627776";
    assert_eq!(value(10, &string(&ziplist(&items()))).unwrap(), told);
    let nodes = [&[2][..], &string(&ziplist(&items()[..3])), &string(&ziplist(&items()[3..]))];
    assert_eq!(value(14, &nodes.concat()).unwrap(), told);
    let plain = [&[2][..], &[1], &string(b"a"), &[2], &string(&listpack(&[Int(7), Text(b"b")]))];
    assert_eq!(value(18, &plain.concat()).unwrap(), "list  a, 7, b");
    assert_eq!(value(1, &[&[2][..], &string(b"a"), &[0xc0, 5]].concat()).unwrap(), "list  a, 5");
    let after_long = ziplist(&[Text(LONG), Text(b"z"), Int(5)]);
    assert!(value(10, &string(&after_long)).unwrap().ends_with("x, z, 5"));
    assert_eq!(value(10, &string(&ziplist(&[]))).unwrap_err(), "nothing");
}

#[test]
fn hashes_are_read() {
    let told = "hash  f=v None, n=5 None";
    let pairs = || [Text(b"f"), Text(b"v"), Text(b"n"), Int(5)];
    assert_eq!(value(13, &string(&ziplist(&pairs()))).unwrap(), told);
    assert_eq!(value(16, &string(&listpack(&pairs()))).unwrap(), told);
    let zipmap = b"\x02\x01f\x01\x00v\x01n\x01\x025..\xff";
    assert_eq!(value(9, &string(zipmap)).unwrap(), told);
    let odd = value(13, &string(&ziplist(&pairs()[..3]))).unwrap_err();
    assert!(
        odd.starts_with("key 'k' of database 0, byte ") && odd.ends_with("a ziplist is damaged")
    );
    let twice = [Text(b"f"), Text(b"v"), Text(b"f"), Int(5)];
    assert!(
        value(13, &string(&ziplist(&twice))).unwrap_err().ends_with("a hash has a field twice")
    );
    // Fields that expire, as Redis 7.4 has them.
    let at = 1_800_000_000_000u64;
    let told = "hash  f=v Some(1800000000000), n=5 None";
    let timed = [Text(b"f"), Text(b"v"), Int(at as i64), Text(b"n"), Int(5), Int(0)];
    let bytes = [&at.to_le_bytes()[..], &string(&listpack(&timed))].concat();
    assert_eq!(value(25, &bytes).unwrap(), told);
    let bytes = [
        &at.to_le_bytes()[..],
        &[2, 1],
        &string(b"f"),
        &string(b"v"),
        &[0],
        &string(b"n"),
        &[0xc0, 5],
    ];
    assert_eq!(value(24, &bytes.concat()).unwrap(), told);
}

#[test]
fn sets_and_sorted_sets_are_read() {
    let set = listpack(&[Text(b"a"), Int(5)]);
    assert_eq!(value(20, &string(&set)).unwrap(), "set  5, a");
    let ints = [&2u32.to_le_bytes()[..], &2u32.to_le_bytes(), &[1, 0, 5, 0]].concat();
    assert_eq!(value(11, &string(&ints)).unwrap(), "intset  1, 5");
    let pairs = || [Text(b"a"), Text(b"1.5"), Text(b"b"), Int(3)];
    let told = "sorted set  1.5 a, 3.0 b";
    assert_eq!(value(12, &string(&ziplist(&pairs()))).unwrap(), told);
    assert_eq!(value(17, &string(&listpack(&pairs()))).unwrap(), told);
    let texts =
        [&[3][..], &string(b"a"), &[3], b"1.5", &string(b"b"), &[254], &string(b"c"), &[255]];
    assert_eq!(value(3, &texts.concat()).unwrap(), "sorted set  -inf c, 1.5 a, inf b");
    assert!(value(3, &[&[1][..], &string(b"a"), &[253]].concat()).is_err());
}

/// The stream as Redis 5 has it, with one entry deleted, a group, and what is pending.
fn stream(consumer_extra: &[u8], after: &[u8], read: &[u8]) -> Vec<u8> {
    let node = listpack(&[
        Int(2),
        Int(1),
        Int(1),
        Text(b"f"),
        Int(0),
        Int(2),
        Int(0),
        Int(0),
        Text(b"v"),
        Int(4),
        Int(3),
        Int(1),
        Int(0),
        Text(b"gone"),
        Int(4),
        Int(0),
        Int(2),
        Int(7),
        Int(1),
        Text(b"g"),
        Int(9),
        Int(6),
    ]);
    let id = |ms: u64, seq: u64| [ms.to_be_bytes(), seq.to_be_bytes()].concat();
    [
        &[1][..],
        &string(&id(5, 1)),
        &string(&node),
        // Length and last ID; more of later versions; groups.
        &[2, 9, 0],
        after,
        &[1],
        &string(b"grp"),
        &[5, 1],
        read,
        &[1],
        &id(5, 1),
        &1000u64.to_le_bytes(),
        &[3],
        &[1],
        &string(b"alice"),
        &2000u64.to_le_bytes(),
        consumer_extra,
        &[1],
        &id(5, 1),
    ]
    .concat()
}

#[test]
fn streams_of_each_version_are_read() {
    let first = value(15, &stream(&[], &[], &[])).unwrap();
    assert!(first.starts_with("stream  5-1 f=v, 7-8 g=9, StreamFacts { len: Some(2)"), "{first}");
    assert!(first.contains("entries_added: Some(2)") && first.contains("entries_read: Some(1)"));
    assert!(first.contains("pending 5-1 1000 3") && first.ends_with("owned 5-1"));
    let more = [5, 1, 6, 1, 3];
    let second = value(19, &stream(&[], &more, &[2])).unwrap();
    assert!(second.contains("entries_added: Some(3)") && second.contains("entries_read: Some(2)"));
    let third = value(21, &stream(&1500u64.to_le_bytes(), &more, &[2])).unwrap();
    assert!(third.contains("seen: 2000, active: Some(1500)"), "{third}");
    assert!(value(15, &stream(&[], &more, &[])).is_err());
}

#[test]
fn what_stands_between_keys_is_read() {
    let module =
        [&[247, 0x81][..], &0x1234u64.to_be_bytes(), &[2, 1, 5, 1, b'x', 3, 0, 0, 0, 0, 0]];
    let body: &[&[u8]] = &[
        &[250],
        &string(b"redis-ver"),
        &string(b"6.0"),
        &module.concat(),
        &[254, 2, 251, 3, 1, 244, 5, 3, 1],
        &[253, 0, 0, 0, 0x60, 248, 9, 0],
        &string(b"old"),
        &string(b"v"),
        &[252, 0, 0, 0, 0, 1, 0, 0, 0, 249, 7, 0],
        &string(b"new"),
        &[0xc1, 0xe8, 3],
        &[245],
        &string(b"#!lua"),
    ];
    let file = file("0011", body);
    let mut reader = Reader::new(&file[..], ReadOptions::DEFAULT).unwrap();
    let mut events = Vec::new();
    loop {
        let event = reader.next().unwrap();
        if let Event::Key(head) = &event {
            reader.skip(head).unwrap();
        }
        if event == Event::End {
            break;
        }
        events.push(event);
    }
    assert_eq!(events[0], Event::Aux(b"redis-ver".to_vec(), b"6.0".to_vec()));
    assert!(matches!(&events[1], Event::ModuleAux(name) if name.len() == 9));
    assert_eq!(
        events[2..5],
        [
            Event::Database(2),
            Event::Sizes { keys: 3, expiring: 1 },
            Event::Slot { slot: 5, keys: 3, expiring: 1 },
        ]
    );
    let Event::Key(old) = &events[5] else { panic!("no key") };
    assert_eq!((old.expiry, old.idle, old.freq), (Some(0x6000_0000 * 1000), Some(9), None));
    let Event::Key(new) = &events[6] else { panic!("no key") };
    assert_eq!((new.expiry, new.idle, new.freq), (Some(1 << 32), None, Some(7)));
    assert_eq!(events[7], Event::Function(b"#!lua".to_vec()));
}

#[test]
fn what_cannot_be_read_says_why() {
    // The number of RedisJSON's type spells its name.
    let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let id = b"ReJSON-RL".iter().fold(0u64, |id, letter| {
        id << 6 | letters.iter().position(|known| known == letter).unwrap() as u64
    }) << 10
        | 3;
    let error = value(7, &[&[0x81][..], &id.to_be_bytes()].concat()).unwrap_err();
    assert!(error.contains("key 'k' of database 0") && error.contains("'ReJSON-RL'"), "{error}");
    assert!(value(99, &[]).unwrap_err().contains("there is no type of value 99"));
    let error = |bytes: &[u8]| Reader::new(bytes, ReadOptions::DEFAULT).unwrap_err().what;
    assert!(matches!(error(b"REDIX0009"), Problem::Magic));
    assert!(matches!(error(b"REDIS0099"), Problem::Version(99)));
    assert!(matches!(error(b"REDIS"), Problem::CutShort));
    // Redis 2.6's files have no checksum; later ones are checked.
    let body: &[&[u8]] = &[&[254, 0, 0], &string(b"k"), &string(b"v")];
    let reader = |file: &[u8]| -> Result<(), Problem> {
        let mut reader = Reader::new(file, ReadOptions::DEFAULT).map_err(|e| e.what)?;
        loop {
            match reader.next().map_err(|e| e.what)? {
                Event::Key(head) => reader.skip(&head).map_err(|e| e.what)?,
                Event::End => return Ok(()),
                _ => {}
            }
        }
    };
    assert!(reader(&file("0004", body)).is_ok());
    let mut summed = file("0009", body);
    assert!(reader(&summed).is_ok());
    let len = summed.len();
    summed[len - 1] = 1;
    assert!(matches!(reader(&summed), Err(Problem::Checksum { .. })));
}
