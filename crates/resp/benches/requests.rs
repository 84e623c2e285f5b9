//! What parsing costs: `cargo bench -p snug-resp`. Each line names one buffer of
//! pipelined commands; the throughput line counts its bytes, and the time per
//! command follows from the time and the number of commands in the name.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use snug_resp::{Limits, Parsed, Parser, Protocol, Writer, append_command};
use std::hint::black_box;

/// About as much as one read from a socket brings.
const COMMANDS: usize = 100;

fn pipeline(command: impl Fn(&mut Vec<u8>, usize)) -> Vec<u8> {
    let mut stream = Vec::new();
    (0..COMMANDS).for_each(|i| command(&mut stream, i));
    stream
}

/// Parses all of `stream`, and counts the commands.
fn parse_all(stream: &mut [u8], parser: &mut Parser, spans: &mut Vec<snug_resp::Span>) -> usize {
    let limits = black_box(Limits::default());
    let (mut at, mut commands) = (0, 0);
    while let Ok(Parsed::Command { consumed }) = parser.parse(&mut stream[at..], &limits, spans) {
        black_box(&spans);
        at += consumed;
        commands += 1;
    }
    commands
}

fn requests(criterion: &mut Criterion) {
    let value = [b'v'; 64];
    let key = |i: usize| format!("key:{:012}", i * 7919);
    let many: Vec<String> = (0..1000).map(key).collect();
    let mut one = Vec::new();
    append_command(&mut one, &many);
    let streams = [
        (
            "SET of 64 bytes, 100 commands",
            pipeline(|out, i| {
                append_command(out, &[&b"SET"[..], key(i).as_bytes(), &value]);
            }),
        ),
        (
            "SET of 1 to 999 bytes, 100 commands",
            pipeline(|out, i| {
                append_command(
                    out,
                    &[&b"SET"[..], key(i).as_bytes(), &vec![b'v'; 1 + i * 577 % 999]],
                );
            }),
        ),
        (
            "GET, 100 commands",
            pipeline(|out, i| {
                append_command(out, &[&b"GET"[..], key(i).as_bytes()]);
            }),
        ),
        ("1000 arguments, 1 command", one),
        (
            "inline SET, 100 commands",
            pipeline(|out, i| {
                out.extend_from_slice(format!("SET {} some-value\r\n", key(i)).as_bytes());
            }),
        ),
    ];
    let mut group = criterion.benchmark_group("parse");
    for (name, mut stream) in streams {
        group.throughput(Throughput::Bytes(stream.len() as u64));
        let (mut parser, mut spans) = (Parser::new(), Vec::new());
        group.bench_function(name, |bencher| {
            bencher.iter(|| parse_all(black_box(&mut stream), &mut parser, &mut spans));
        });
    }
    // As 100 SETs, but in reads of 1,400 bytes, each ending within a command.
    let mut stream = pipeline(|out, i| {
        append_command(out, &[&b"SET"[..], key(i).as_bytes(), &value]);
    });
    group.throughput(Throughput::Bytes(stream.len() as u64));
    let (mut parser, mut spans) = (Parser::new(), Vec::new());
    group.bench_function("SET of 64 bytes in 8 reads, 100 commands", |bencher| {
        bencher.iter(|| {
            let (mut at, mut end, mut commands) = (0, 0, 0);
            let limits = Limits::default();
            while end < stream.len() {
                end = (end + 1400).min(stream.len());
                while let Ok(Parsed::Command { consumed }) =
                    parser.parse(&mut stream[at..end], &limits, &mut spans)
                {
                    at += consumed;
                    commands += 1;
                }
            }
            commands
        });
    });
    group.finish();
}

fn replies(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("write");
    let mut out = Vec::with_capacity(64 * 1024);
    let mut bench = |name: &str, write: &dyn Fn(&mut Writer<'_>, usize)| {
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                out.clear();
                let mut writer = Writer::new(black_box(&mut out), Protocol::Resp2);
                (0..COMMANDS).for_each(|i| write(&mut writer, i));
            });
        });
    };
    let value = [b'v'; 64];
    bench("+OK, 100 replies", &|w, _| w.ok());
    bench("bulk of 64 bytes, 100 replies", &|w, _| w.bulk(black_box(&value)));
    bench("integer, 100 replies", &|w, i| w.integer(i as i64 * 1_000_003));
    bench("double, 100 replies", &|w, i| w.double(i as f64 * 0.37));
    group.finish();
}

criterion_group!(benches, requests, replies);
criterion_main!(benches);
