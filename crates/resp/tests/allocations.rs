//! An ordinary command is parsed, and answered, without allocating.

// A global allocator can only be counted by one that is unsafe.
#![allow(unsafe_code)]

use snug_resp::{Limits, Parsed, Parser, Protocol, Writer, append_command};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, counting what each thread asks of it.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises are the system allocator's too.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `alloc`, hence from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations(run: impl FnOnce()) -> usize {
    let before = ALLOCATIONS.get();
    run();
    ALLOCATIONS.get() - before
}

#[test]
fn whole_commands_allocate_nothing() {
    let mut stream = Vec::new();
    append_command(&mut stream, &["SET", "key", "value"]);
    append_command(&mut stream, &["MSET", &"k".repeat(20_000), &"v".repeat(60_000)]);
    stream.extend_from_slice(b"SET inline \"quoted \\x41 value\"\r\n\r\n*0\r\n");
    let limits = Limits::default();
    let (mut parser, mut spans) = (Parser::new(), Vec::with_capacity(8));
    let mut commands = 0;
    let parsing = allocations(|| {
        let mut at = 0;
        while at < stream.len() {
            let Ok(Parsed::Command { consumed }) =
                parser.parse(&mut stream[at..], &limits, &mut spans)
            else {
                break;
            };
            at += consumed;
            commands += 1;
        }
    });
    assert_eq!((commands, parsing), (5, 0));
    // A part of a command is remembered in two allocations, however it arrives.
    let mut part = b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$5\r\nvalu".to_vec();
    let remembering = allocations(|| {
        for end in 16..part.len() {
            let parsed = parser.parse(&mut part[..end], &limits, &mut spans);
            assert_eq!(parsed, Ok(Parsed::Incomplete));
        }
    });
    assert!(remembering <= 2, "{remembering} allocations");
}

#[test]
fn replies_allocate_nothing() {
    let mut out = Vec::with_capacity(4096);
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        out.clear();
        let writing = allocations(|| {
            let mut w = Writer::new(&mut out, protocol);
            w.ok();
            w.error("ERR no");
            w.integer(-123_456);
            w.bulk(&[b'x'; 1000]);
            w.bulk_integer(i64::MIN);
            w.bulk_display(format_args!("{}-{}", 1, 2));
            w.double(0.1);
            w.boolean(true);
            w.null();
            w.map(12);
            w.verbatim("txt", b"text");
            w.big_number("123");
            let at = w.array_deferred();
            w.integer(7);
            w.set_array_len(at, 1);
        });
        assert_eq!(writing, 0);
    }
}
