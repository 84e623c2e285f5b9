//! What a stream says it takes is what the allocator gave it, to the byte.

use snug_codec::{Workspace, WorkspaceConfig};
use snug_store::memory;
use snug_store::types::stream::{PackParams, Shape, Stream, StreamId, StreamScratch, Trim};

#[global_allocator]
static ALLOCATOR: memory::Allocator = memory::Allocator;

/// Freeing `stream` gives back exactly what it counted.
fn assert_exact(stream: Stream, what: &str) {
    let counted = stream.memory().allocated;
    let before = memory::used();
    drop(stream);
    assert_eq!(before - memory::used(), counted, "{what}");
}

fn filled(entries: u64, shape: &Shape) -> Stream {
    let mut stream = Stream::new();
    for n in 1..=entries {
        let value = format!("{n} {}", "x".repeat(n as usize % 90));
        let fields = [(b"n".as_slice(), value.as_bytes()), (b"same", b"same")];
        let fields = if n % 50 > 0 { &fields[..] } else { &fields[..1] };
        stream.append(StreamId::new(n, 0), fields.iter().copied(), shape).unwrap();
    }
    stream
}

/// What finds a sealed entry costs less than 0.2 byte of memory.
fn assert_small_index(shape: &Shape, ws: &mut Workspace) {
    let mut stream = filled(300_000, shape);
    stream.pack_some(ws, &PackParams::default(), shape, usize::MAX);
    let memory = stream.memory();
    assert!(memory.packed_blocks > 300, "{memory:?}");
    assert!((memory.index as f64) < 0.2 * stream.len() as f64, "{memory:?}");
    assert_exact(stream, "many packed blocks");
}

// One test: the counter belongs to the whole process.
#[test]
fn memory_is_counted_to_the_byte() {
    let shape = Shape::default();
    let small = Shape { block_entries: 7, ..shape };
    for entries in [1, 2, 3, 10, 100, 1_000, 10_000, 100_000] {
        assert_exact(filled(entries, &shape), "raw");
    }
    assert_exact(filled(5_000, &small), "many blocks");
    let mut scratch = StreamScratch::new();
    let mut ws = Workspace::new(WorkspaceConfig::default());
    assert_small_index(&shape, &mut ws);
    for shape in [shape, small] {
        let mut stream = filled(20_000, &shape);
        stream.pack_some(
            &mut ws,
            &PackParams::default(),
            &Shape::default(),
            stream.memory().raw / 2,
        );
        for n in (500..20_000).step_by(3) {
            assert_eq!(stream.delete(StreamId::new(n, 0), &shape, &mut scratch), Ok(true));
        }
        stream.trim(Trim::MaxLen(10_000), None, &shape, &mut scratch).unwrap();
        assert_exact(stream.duplicate(), "a copy");
        stream.trim(Trim::MinId(StreamId::new(19_000, 0)), Some(0), &shape, &mut scratch).unwrap();
        stream.seal_tail();
        assert_exact(stream, "packed, deleted from and trimmed");
    }
    for consumers in [1, 3, 40] {
        assert_exact(with_groups(consumers, 3_000), "groups");
        assert_exact(with_groups(consumers, 3_000).duplicate(), "a copy of groups");
        let mut stream = with_groups(consumers, 3_000);
        stream.with_group(b"a", |_, group| {
            let removed = group.find_consumer(b"consumer 0").map(|id| group.remove_consumer(id));
            assert!(removed > Some(0));
            for ms in (0..2_900).step_by(7) {
                group.acknowledge(StreamId::new(ms, 5));
            }
        });
        assert!(stream.remove_group(b"b"));
        assert_exact(stream, "groups made smaller");
    }
}

/// A stream of two groups with so many pending entries each.
fn with_groups(consumers: u64, pending: u64) -> Stream {
    let mut stream = filled(10, &Shape::default());
    for name in [b"a", b"b"] {
        assert!(stream.create_group(name, StreamId::MIN, None));
        stream.with_group(name, |_, group| {
            for n in 0..pending {
                let name = format!("consumer {}", n % consumers);
                let (id, _) = group.make_consumer(name.as_bytes(), n);
                group.assign(StreamId::new(n, 5), id, n * n, n % 3);
            }
        });
    }
    stream
}
