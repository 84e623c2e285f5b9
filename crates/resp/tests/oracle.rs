//! The same bytes to a real redis-server and to the parser: what is accepted,
//! what is refused, when, and with which words.
//!
//! Nearly all commands of these streams are an `ECHO`, so that a reply shows how
//! its arguments were understood. Without a redis-server on the machine the test
//! says so and passes.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use snug_resp::{Limits, Parsed, Parser, Protocol, Writer, append_command};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

struct Redis {
    process: Child,
    port: u16,
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A port that nobody listens on. Tests run side by side: none is given one that another
/// was given, whose server may not have bound it yet.
fn free_port() -> Option<u16> {
    static GIVEN: Mutex<Vec<u16>> = Mutex::new(Vec::new());
    let mut given = GIVEN.lock().unwrap();
    loop {
        let port = TcpListener::bind("127.0.0.1:0").ok()?.local_addr().ok()?.port();
        if !given.contains(&port) {
            given.push(port);
            return Some(port);
        }
    }
}

impl Redis {
    /// Starts a redis-server that holds nothing, if there is one. Another takes its place
    /// if somebody was given its port before it could bind it.
    fn start(password: Option<&str>) -> Option<Self> {
        for _ in 0..20 {
            let port = free_port()?;
            let process = Command::new("redis-server")
                .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
                .args(password.into_iter().flat_map(|password| ["--requirepass", password]))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
            let Ok(process) = process else {
                // Not with eprintln, which a passing test keeps to itself.
                let _ = writeln!(std::io::stderr(), "SKIPPED: no redis-server to compare with");
                return None;
            };
            let mut redis = Self { process, port };
            while redis.process.try_wait().is_ok_and(|status| status.is_none()) {
                if redis.is_there() {
                    return Some(redis);
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        panic!("no redis-server stays");
    }

    /// Whether it answers, and not somebody else: a connection to a port on which nobody
    /// listens can come to be one with itself.
    fn is_there(&self) -> bool {
        let Ok(mut connection) = TcpStream::connect(("127.0.0.1", self.port)) else {
            return false;
        };
        let mut answer = [0; 5];
        let asked = connection.write_all(b"PING\r\n");
        asked.and_then(|()| connection.read_exact(&mut answer)).is_ok()
            && matches!(&answer, b"+PONG" | b"-NOAU")
    }

    /// All that Redis answers to `stream` before the connection ends.
    fn answer(&self, stream: &[u8]) -> Vec<u8> {
        let mut connection = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        connection.set_nodelay(true).unwrap();
        // Redis may close before it has read everything: then the rest is lost.
        let _ = connection.write_all(stream);
        let _ = connection.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let mut chunk = [0; 4096];
        while let Ok(len @ 1..) = connection.read(&mut chunk) {
            answer.extend_from_slice(&chunk[..len]);
        }
        answer
    }
}

/// What Redis says to a command that it does not know: all of it up to a NUL.
fn unknown(args: &[&[u8]]) -> Vec<u8> {
    let shown = |arg: &[u8], len_max: usize| {
        let end = arg.iter().position(|&byte| byte == 0).unwrap_or(arg.len());
        arg[..end.min(len_max)].to_vec()
    };
    let mut list = Vec::new();
    for arg in &args[1..] {
        if list.len() < 128 {
            list = [&list[..], b"'", &shown(arg, 128 - list.len()), b"' "].concat();
        }
    }
    let name = shown(args[0], 128);
    [b"ERR unknown command '", &name[..], b"', with args beginning with: ", &list].concat()
}

/// What a server with only `ECHO` answers, on top of this crate.
fn answer(stream: &[u8], limits: &Limits) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out, Protocol::Resp2);
    let (mut parser, mut spans) = (Parser::new(), Vec::new());
    let mut buf = stream.to_vec();
    let mut at = 0;
    loop {
        match parser.parse(&mut buf[at..], limits, &mut spans) {
            Ok(Parsed::Command { consumed }) => {
                let args: Vec<&[u8]> =
                    spans.iter().map(|span| span.bytes(&buf[at..]).unwrap()).collect();
                match args[..] {
                    [] => {}
                    [name, ..] if !name.eq_ignore_ascii_case(b"echo") => {
                        writer.error_bytes(&unknown(&args));
                    }
                    [_, _] if limits.unauthenticated => {
                        writer.error("NOAUTH Authentication required.");
                    }
                    [_, text] => writer.bulk(text),
                    _ => writer.error("ERR wrong number of arguments for 'echo' command"),
                }
                at += consumed;
            }
            Ok(_) => return out,
            Err(error) => {
                writer.protocol_error(error);
                return out;
            }
        }
    }
}

fn assert_same(redis: &Redis, stream: &[u8], limits: &Limits) {
    let (ours, theirs) = (answer(stream, limits), redis.answer(stream));
    assert_eq!(
        ours.escape_ascii().to_string(),
        theirs.escape_ascii().to_string(),
        "to {}",
        stream[..stream.len().min(300)].escape_ascii()
    );
}

/// Streams on the edge of what Redis accepts, each tried behind a good command.
fn edges() -> Vec<Vec<u8>> {
    let mut streams: Vec<Vec<u8>> = Vec::new();
    for number in [
        "",
        "-",
        "0",
        "-0",
        "00",
        "01",
        "1",
        "2",
        "-1",
        "-10",
        "+2",
        " 2",
        "2 ",
        "2a",
        "a",
        "1.0",
        "10",
        "11",
        "999",
        "1000",
        "9999",
        "16384",
        "16385",
        "1048576",
        "2147483648",
        "3000000000",
        "536870912",
        "536870913",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
        "-9223372036854775809",
        "18446744073709551617",
        "100000000000000000000",
        "2\0",
        "\x002",
    ] {
        streams.push(format!("*{number}\r\n").into());
        streams.push(format!("*{number}\r").into());
        streams.push(format!("*{number}\r\n$4\r\nECHO\r\n$1\r\na\r\n").into());
        streams.push(format!("*2\r\n$4\r\nECHO\r\n${number}\r\n").into());
        streams.push(format!("*2\r\n$4\r\nECHO\r\n${number}\r\na\r\n").into());
        streams.push(format!("*2\r\n$4\r\nECHO\r\n${number}\r").into());
    }
    for header in
        ["x", "1\r\n", ":1\r\n", "\r\n", "\n\r\n", "x\r\n", "x\r", "\r", "*1\r\n", "\0\r\n"]
    {
        streams.push(format!("*2\r\n$4\r\nECHO\r\n{header}").into());
    }
    streams.push(b"*2\r\n$4\r\nECHO\r\n\xfe\r\n".to_vec());
    streams.push(b"*2\rX$4\rYECHOab$1\rZc..".to_vec());
    for line in [
        "",
        " ",
        "\r",
        "\r\r",
        "\t",
        "\x0b\x0c",
        "a",
        "\"a b\"",
        "'a b'",
        "a\"b c\"",
        "\"a\"b",
        "'a'b",
        "\"",
        "'",
        "\"a",
        "a'",
        "\"\\x41\\x4\\xg0\\n\\r\\t\\b\\a\\q\\\\\\\"\"",
        "'\\n\\'\\q'",
        "'\\\\'",
        "a\\nb",
        "\"a\"\x0b'b'",
        "a\x0bb",
        "\"a\rb\"",
        "\"a\r",
        "\"\"",
        "''",
        "\"\"\"a\"\"\"",
        "a\0b",
        "\u{e9}",
        "a b",
    ] {
        for ending in ["\n", "\r\n", "\r", ""] {
            streams.push(format!("ECHO {line}{ending}").into());
            streams.push(format!("ECHO {line}{ending}ECHO b\r\n").into());
        }
    }
    for len in [65_535, 65_536, 65_537, 70_000] {
        streams.push(vec![b' '; len]);
        streams.push([b"*", &vec![b'1'; len - 1][..]].concat());
        streams.push([b"*2\r\n$4\r\nECHO\r\n$", &vec![b'1'; len - 1][..]].concat());
    }
    streams.push([b"ECHO ", &vec![b'a'; 65_531][..], b"\n"].concat());
    streams
}

#[test]
fn redis_accepts_and_refuses_the_same() {
    let Some(redis) = Redis::start(None) else { return };
    // Redis 7 takes as many arguments as an int counts.
    let limits = Limits { args_max: i32::MAX as usize, ..Limits::default() };
    let mut good = Vec::new();
    append_command(&mut good, &["echo", "before"]);
    for stream in edges() {
        assert_same(&redis, &[&good[..], &stream].concat(), &limits);
    }
    // And what is made at random.
    let word = prop::sample::select(&b"aZ09 \t\x0b\r\"'\\xnrtb\0\xff"[..]);
    let inline = (prop::collection::vec(word, 0..24), prop::sample::select(vec!["\n", "\r\n"]))
        .prop_map(|(line, ending)| [b"ECHO ", &line[..], ending.as_bytes()].concat());
    let header = ("[*$:\n\r]", "-?[0-9]{0,3}[a\0]?").prop_map(|(kind, n)| format!("{kind}{n}\r\n"));
    let broken = header.prop_map(|header| format!("*2\r\n$4\r\nECHO\r\n{header}").into_bytes());
    let whole = prop::collection::vec(any::<u8>(), 0..300).prop_map(|text| {
        let mut stream = Vec::new();
        append_command(&mut stream, &[b"ECHO", &text[..]]);
        stream
    });
    let stream = (
        prop::collection::vec(prop_oneof![inline, whole], 0..4),
        prop::option::weighted(0.4, broken),
    );
    let mut runner =
        TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(500) });
    runner
        .run(&stream, |(pieces, last)| {
            let stream = [pieces.concat(), last.unwrap_or_default()].concat();
            prop_assert_eq!(
                answer(&stream, &limits).escape_ascii().to_string(),
                redis.answer(&stream).escape_ascii().to_string(),
                "to {}",
                stream.escape_ascii()
            );
            Ok(())
        })
        .unwrap();
}

#[test]
fn redis_refuses_the_same_before_authentication() {
    let Some(redis) = Redis::start(Some("secret")) else { return };
    let limits = Limits { args_max: i32::MAX as usize, unauthenticated: true, ..Limits::default() };
    for stream in edges() {
        assert_same(&redis, &stream, &limits);
    }
}
