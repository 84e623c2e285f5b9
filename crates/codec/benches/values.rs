//! What single values pack to: as they are, with their base64, hexadecimal,
//! digits and UUIDs recognised, and either with a dictionary of 4 KiB trained on
//! others of their kind. Then the two kinds of dictionary, of 32 KiB, on documents
//! of some lengths.
//!
//! `cargo bench -p snug-codec --bench values`. Bytes a value, header included,
//! at level 3; microseconds are this thread's on the processor.
#![allow(missing_docs, unreachable_pub)]

#[path = "../../bench/src/codec/data.rs"]
#[allow(dead_code, reason = "the codec report uses the rest")]
mod data;

use std::sync::Arc;

use snug_codec::{Codec, Dictionary, NoDictionaries, Workspace, WorkspaceConfig, decode_runs};

const LEVEL: i32 = 3;
const TRAINED_ON: usize = 2000;
const PACKED: usize = 1000;

fn main() {
    println!(
        "| value | raw | packed | recognised | dictionary | both | pack us | both, pack us | both, unpack us |"
    );
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    let count = TRAINED_ON + PACKED;
    let messages = data::celery(count, 1);
    line("Celery message", messages.into_iter().map(String::into_bytes).collect());
    let mut random = data::Random::new(2);
    let json = |random: &mut data::Random, body: &str| {
        let (id, user) = (random.uuid(), random.below(100_000));
        format!(r#"{{"id": "{id}", "user": {user}, "body": "{body}"}}"#).into_bytes()
    };
    let texts = (0..count).map(|i| {
        let body = data::base64(&data::payload("json", 600, i as u64));
        json(&mut random, &body)
    });
    line("JSON, base64 of JSON", texts.collect());
    let mut random = data::Random::new(3);
    let randoms = (0..count).map(|_| {
        let body = data::base64(&random.bytes(600));
        json(&mut random, &body)
    });
    line("JSON, base64 of random", randoms.collect());
    let mut random = data::Random::new(4);
    let hex = |random: &mut data::Random| -> String {
        (0..4).map(|_| random.next_u64()).fold(String::new(), |hex, n| hex + &format!("{n:016x}"))
    };
    let sessions = (0..count).map(|_| {
        let (token, key, user) = (hex(&mut random), hex(&mut random), random.uuid());
        format!(r#"{{"token":"{token}","key":"{key}","user":"{user}"}}"#).into_bytes()
    });
    line("session, hexadecimal", sessions.collect());
    println!("\n| document | raw | dictionary | packed | pack us | unpack us | MB/s out |");
    println!("| --- | ---: | --- | ---: | ---: | ---: | ---: |");
    for len in [150, 600, 1400, 6000] {
        let texts = (0..count).map(|i| data::payload("json", len, i as u64)).collect();
        documents("JSON", texts);
    }
}

/// One line for each kind of dictionary.
fn documents(name: &str, values: Vec<Vec<u8>>) {
    let (samples, values) = values.split_at(TRAINED_ON);
    let samples: Vec<&[u8]> =
        samples.iter().map(Vec::as_slice).take(4_000_000 / samples[0].len()).collect();
    let raw = values.iter().map(Vec::len).sum::<usize>() as f64 / values.len() as f64;
    let mut ws = Workspace::new(WorkspaceConfig::default());
    let train = [Dictionary::train, Dictionary::train_phrases];
    for (kind, train) in ["zstd", "phrases"].iter().zip(train) {
        let dictionary = Arc::new(train(&samples, 32 * 1024, LEVEL).expect("trains").with_id(1));
        let mut packed = vec![Vec::new(); values.len()];
        let pack_us = least_us(|| {
            for (raw, out) in values.iter().zip(&mut packed) {
                out.clear();
                ws.pack(Codec::Zstd, LEVEL, Some(&dictionary), raw, out).expect("packs");
            }
        });
        let mut back = Vec::new();
        let unpack_us = least_us(|| {
            for one in &packed {
                back.clear();
                ws.unpack(one, &dictionary, &mut back, 1 << 20).expect("unpacks");
            }
        });
        assert_eq!(Some(&back), values.last(), "{name} came back");
        let len = packed.iter().map(Vec::len).sum::<usize>() as f64 / values.len() as f64;
        println!(
            "| {name} | {raw:.0} | {kind} | {len:.0} | {pack_us:.1} | {unpack_us:.2} | {:.0} |",
            raw / unpack_us
        );
    }
}

fn trained(samples: &[Vec<u8>]) -> Arc<Dictionary> {
    let samples: Vec<&[u8]> = samples.iter().map(Vec::as_slice).collect();
    Arc::new(Dictionary::train(&samples, 4096, LEVEL).expect("trains").with_id(1))
}

fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The least CPU microseconds a value of several rounds.
fn least_us(mut work: impl FnMut()) -> f64 {
    let once = |_| {
        let start = cpu_seconds();
        work();
        cpu_seconds() - start
    };
    (0..10).map(once).fold(f64::INFINITY, f64::min) * 1e6 / PACKED as f64
}

/// A way to pack one value.
type Packing<'a> = &'a mut dyn FnMut(&mut Workspace, &[u8], &mut Vec<u8>);

fn line(name: &str, values: Vec<Vec<u8>>) {
    let (samples, values) = values.split_at(TRAINED_ON);
    let decoded: Vec<Vec<u8>> = samples
        .iter()
        .map(|raw| {
            let mut out = Vec::new();
            if !decode_runs(raw, &mut out) {
                out.clone_from(raw);
            }
            out
        })
        .collect();
    let (plain, recognised) = (trained(samples), trained(&decoded));
    let mut ws = Workspace::new(WorkspaceConfig::default());
    let mut out = Vec::new();
    let mut packed_len = |pack: Packing<'_>| {
        out.clear();
        values.iter().for_each(|raw| pack(&mut ws, raw, &mut out));
        out.len() as f64 / values.len() as f64
    };
    let as_is = |ws: &mut Workspace, with: Option<&Dictionary>, raw: &[u8], out: &mut Vec<u8>| {
        ws.pack(Codec::Zstd, LEVEL, with, raw, out).expect("packs");
    };
    let looked = |ws: &mut Workspace, with: Option<&Dictionary>, raw: &[u8], out: &mut Vec<u8>| {
        ws.pack_recognised(LEVEL, with, raw, out).expect("packs");
    };
    let sizes = [
        packed_len(&mut |ws, raw, out| as_is(ws, None, raw, out)),
        packed_len(&mut |ws, raw, out| looked(ws, None, raw, out)),
        packed_len(&mut |ws, raw, out| as_is(ws, Some(&plain), raw, out)),
        packed_len(&mut |ws, raw, out| looked(ws, Some(&recognised), raw, out)),
    ];
    let pack_us = least_us(|| {
        packed_len(&mut |ws, raw, out| as_is(ws, Some(&plain), raw, out));
    });
    let both_us = least_us(|| {
        packed_len(&mut |ws, raw, out| looked(ws, Some(&recognised), raw, out));
    });
    let mut packed: Vec<Vec<u8>> = Vec::new();
    for raw in values {
        let mut one = Vec::new();
        looked(&mut ws, Some(&recognised), raw, &mut one);
        let mut back = Vec::new();
        ws.unpack(&one, &recognised, &mut back, raw.len()).expect("unpacks");
        assert!(back == *raw, "{name} came back");
        assert!(ws.unpack(&one, &NoDictionaries, &mut back, raw.len()).is_err());
        packed.push(one);
    }
    let mut back = Vec::new();
    let unpack_us = least_us(|| {
        for one in &packed {
            back.clear();
            ws.unpack(one, &recognised, &mut back, 1 << 20).expect("unpacks");
        }
    });
    let raw = values.iter().map(Vec::len).sum::<usize>() as f64 / values.len() as f64;
    let [plain, recognised, dictionary, both] = sizes;
    println!(
        "| {name} | {raw:.0} | {plain:.0} | {recognised:.0} | {dictionary:.0} | {both:.0} | {pack_us:.1} | {both_us:.1} | {unpack_us:.1} |"
    );
}
