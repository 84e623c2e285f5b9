//! Requests parsed as a connection parses them: any stream, cut into any reads,
//! gives the same commands and the same error.

use proptest::prelude::*;
use snug_resp::{
    Argument, LARGE_BULK, Limits, Parsed, Parser, ProtocolError, Span, append_command,
};

type Command = Vec<Vec<u8>>;

/// What a stream means: its commands, and the error that ends it, if any.
type Meaning = (Vec<Command>, Option<ProtocolError>);

/// A connection that gathers arguments, as a server would.
#[derive(Default)]
struct Connection {
    parser: Parser,
    buf: Vec<u8>,
    /// Large bulks of the command under way, and how much the last one lacks.
    large: Vec<Vec<u8>>,
    lacking: usize,
    /// Where the body under way was cut out of the buffer.
    head: usize,
    commands: Vec<Command>,
}

impl Connection {
    fn receive(
        &mut self,
        arrived: &[u8],
        limits: &Limits,
        spans: &mut Vec<Span>,
    ) -> Result<(), ProtocolError> {
        self.buf.extend_from_slice(arrived);
        loop {
            if self.lacking > 0 {
                let end = self.buf.len().min(self.head + self.lacking);
                let body: Vec<u8> = self.buf.drain(self.head..end).collect();
                self.lacking -= body.len();
                self.large.last_mut().unwrap().extend(body);
                if self.lacking > 0 {
                    return Ok(());
                }
            }
            match self.parser.parse(&mut self.buf, limits, spans)? {
                Parsed::Incomplete => {
                    assert_eq!(self.parser.is_idle(), self.buf.is_empty());
                    return Ok(());
                }
                Parsed::Large { head, len } => {
                    assert!(len > LARGE_BULK);
                    (self.head, self.lacking) = (head, len);
                    self.large.push(Vec::new());
                }
                Parsed::Command { consumed } => {
                    assert!(self.parser.is_idle());
                    let command = spans.iter().map(|span| match span.argument(&self.buf) {
                        Argument::Bytes(bytes) => bytes.to_vec(),
                        Argument::Large(n) => self.large[n].clone(),
                    });
                    self.commands.push(command.collect());
                    self.large.clear();
                    self.buf.drain(..consumed);
                }
            }
        }
    }
}

/// What `stream` means when it arrives in reads of these sizes, over and over.
fn meaning(stream: &[u8], reads: &[usize], limits: &Limits) -> Meaning {
    let mut connection = Connection::default();
    // Shared with another connection, whose commands come in between.
    let mut spans = Vec::new();
    let mut other = Parser::new();
    let mut rest = stream;
    for read in reads.iter().cycle() {
        let (arrived, later) = rest.split_at((*read).min(rest.len()));
        rest = later;
        if let Err(error) = connection.receive(arrived, limits, &mut spans) {
            return (connection.commands, Some(error));
        }
        let parsed = other.parse(&mut b"*1\r\n$4\r\nPING\r\n".to_vec(), limits, &mut spans);
        assert_eq!(parsed, Ok(Parsed::Command { consumed: 14 }));
        if rest.is_empty() {
            break;
        }
    }
    (connection.commands, None)
}

fn commands(stream: &[u8]) -> Meaning {
    meaning(stream, &[usize::MAX], &Limits::default())
}

/// Checks what a stream means whole, and byte by byte.
fn assert_means(stream: &[u8], limits: &Limits, expected: &[&[&str]], error: Option<&str>) {
    for read in [usize::MAX, 1] {
        let (commands, got) = meaning(stream, &[read], limits);
        let shown = stream[..stream.len().min(200)].escape_ascii();
        assert_eq!(got.map(|e| e.to_string()).as_deref(), error, "{shown}, reads of {read}");
        let expected: Vec<Command> = expected
            .iter()
            .map(|command| command.iter().map(|arg| arg.as_bytes().to_vec()).collect())
            .collect();
        assert_eq!(commands, expected, "{shown}, reads of {read}");
    }
}

#[test]
fn commands_and_blank_ones() {
    let limits = Limits::default();
    let cases: &[(&str, &[&[&str]])] = &[
        ("", &[]),
        ("*1\r\n$4\r\nPING\r\n", &[&["PING"]]),
        ("*2\r\n$4\r\nECHO\r\n$0\r\n\r\n", &[&["ECHO", ""]]),
        ("*1\r\n$12\r\nabcdefghijkl\r\n*1\r\n$1\r\nx\r\n", &[&["abcdefghijkl"], &["x"]]),
        ("*0\r\n*-1\r\n*-10\r\n*-9223372036854775808\r\n", &[&[], &[], &[], &[]]),
        ("\r\n\n \n", &[&[], &[], &[]]),
        ("PING\r\n", &[&["PING"]]),
        ("PING\n", &[&["PING"]]),
        ("  set  k \"a b\"  \r\nget k\r\n", &[&["set", "k", "a b"], &["get", "k"]]),
        ("echo '\\'' \"\\x41\\n\"\n*1\r\n$1\r\na\r\n", &[&["echo", "'", "A\n"], &["a"]]),
        // Only the first \r before \n is dropped; others are blanks.
        ("a\r\r\n", &[&["a"]]),
        // The bytes where line ends belong are not looked at.
        ("*1\rX$1\rYaZZ*1\r\n$1\r\nb\r\n", &[&["a"], &["b"]]),
        // Nothing is judged before it is complete.
        ("*1\r\n$1\r\na\r", &[]),
        ("*1\r\n$1\r", &[]),
        ("*1\r\nx", &[]),
        ("*x", &[]),
        ("*x\r", &[]),
        ("*1\r\n$x\r", &[]),
        ("\"unbalanced", &[]),
        // A claim is not yet a reason to complain.
        ("*1048576\r\n", &[]),
        ("*1\r\n$536870912\r\n", &[]),
    ];
    for (stream, expected) in cases {
        assert_means(stream.as_bytes(), &limits, expected, None);
    }
}

#[test]
fn what_is_refused() {
    let limits = Limits::default();
    let multibulk = "Protocol error: invalid multibulk length";
    let bulk = "Protocol error: invalid bulk length";
    let unbalanced = "Protocol error: unbalanced quotes in request";
    let expected_bulk = "Protocol error: expected '$', got ";
    for (stream, error) in [
        ("*\r\n", multibulk),
        ("*x\r\n", multibulk),
        ("*1x\r\n", multibulk),
        ("*+1\r\n", multibulk),
        ("*01\r\n", multibulk),
        ("*-0\r\n", multibulk),
        ("* 1\r\n", multibulk),
        ("*1 \r\n", multibulk),
        ("*1048577\r\n", multibulk),
        ("*3000000000\r\n", multibulk),
        ("*9223372036854775808\r\n", multibulk),
        ("*1\r\n$\r\n", bulk),
        ("*1\r\n$x\r\n", bulk),
        ("*1\r\n$-1\r\n", bulk),
        ("*1\r\n$-0\r\n", bulk),
        ("*1\r\n$03\r\n", bulk),
        ("*1\r\n$1x\r\n", bulk),
        ("*1\r\n$12x\r\n", bulk),
        ("*1\r\n$536870913\r\n", bulk),
        ("*1\r\n$18446744073709551617\r\n", bulk),
        ("\"\r\n", unbalanced),
        ("set \"\"\"test-key\"\"\" test-value\r\n", unbalanced),
        ("a 'b\r\n'\r\n", unbalanced),
    ] {
        assert_means(stream.as_bytes(), &limits, &[], Some(error));
    }
    for (stream, got) in [
        ("*1\r\nfoo\r\n", "'f'"),
        ("*1\r\n1\r\n", "'1'"),
        ("*1\r\n:1\r\n", "':'"),
        ("*1\r\n\r\n", "' '"),
        ("*1\r\n\n\r\n", "' '"),
    ] {
        let error = format!("{expected_bulk}{got}");
        assert_means(stream.as_bytes(), &limits, &[], Some(&error));
    }
    // What came before an error is still good.
    assert_means(b"PING\r\n*x\r\n", &limits, &[&["PING"]], Some(multibulk));
    assert_means(
        b"*3\r\n$3\r\nSET\r\n$1\r\nx\r\nfooz\r\n",
        &limits,
        &[],
        Some("Protocol error: expected '$', got 'f'"),
    );
}

#[test]
fn lines_have_a_limit() {
    let limits = Limits { inline_len_max: 100, ..Limits::default() };
    for (start, error) in [
        ("", "Protocol error: too big inline request"),
        ("*", "Protocol error: too big mbulk count string"),
        ("*1\r\n$", "Protocol error: too big bulk count string"),
    ] {
        let line_start = start.len() - start.rfind('\n').map_or(0, |end| end + 1);
        let longest = format!("{start}{}", "1".repeat(100 - line_start));
        assert_means(longest.as_bytes(), &limits, &[], None);
        assert_means(format!("{longest}1").as_bytes(), &limits, &[], Some(error));
        // However much arrives at once, what lies beyond the limit is not seen.
        assert_means(format!("{longest}1\r\n").as_bytes(), &limits, &[], Some(error));
        // A NUL hides the end of its line.
        assert_means(format!("{start}\0\r\n").as_bytes(), &limits, &[], None);
        let hidden = format!("{start}\0\r\n{}", "x".repeat(100));
        assert_means(hidden.as_bytes(), &limits, &[], Some(error));
    }
    let longest = "x".repeat(100);
    assert_means(format!("{longest}\n").as_bytes(), &limits, &[&[&longest]], None);
}

#[test]
fn clients_that_have_yet_to_authenticate_may_claim_little() {
    let limits = Limits { unauthenticated: true, ..Limits::default() };
    assert_means(b"*10\r\n$16384\r\n", &limits, &[], None);
    assert_means(
        b"*11\r\n",
        &limits,
        &[],
        Some("Protocol error: unauthenticated multibulk length"),
    );
    assert_means(
        b"*1\r\n$16385\r\n",
        &limits,
        &[],
        Some("Protocol error: unauthenticated bulk length"),
    );
    assert_means(b"*1048577\r\n", &limits, &[], Some("Protocol error: invalid multibulk length"));
    assert_means(b"*-11\r\n", &limits, &[&[]], None);
}

#[test]
fn large_bulks_are_handed_over() {
    let mut stream = Vec::new();
    let sizes = [LARGE_BULK, LARGE_BULK + 1, 3, 1_000_000, 0, LARGE_BULK + 1];
    let args: Command = sizes.iter().map(|&size| vec![b'a' + (size % 26) as u8; size]).collect();
    append_command(&mut stream, &args);
    append_command(&mut stream, &["PING"]);
    for read in [usize::MAX, 1_000_000, 65_536, 7_001] {
        let (commands, error) = meaning(&stream, &[read], &Limits::default());
        assert_eq!(error, None);
        assert!(commands == [args.clone(), vec![b"PING".to_vec()]], "reads of {read}");
    }

    let mut spans = Vec::new();
    let mut parser = Parser::new();
    let mut buf = b"*2\r\n$1\r\na\r\n$100000\r\nxyz".to_vec();
    let parsed = parser.parse(&mut buf, &Limits::default(), &mut spans);
    assert_eq!(parsed, Ok(Parsed::Large { head: 20, len: 100_000 }));
    assert!(!parser.is_idle());
    buf.truncate(20);
    assert_eq!(parser.parse(&mut buf, &Limits::default(), &mut spans), Ok(Parsed::Incomplete));
    buf.extend(b"\r\n");
    let parsed = parser.parse(&mut buf, &Limits::default(), &mut spans);
    assert_eq!(parsed, Ok(Parsed::Command { consumed: 22 }));
    assert_eq!(spans[0].argument(&buf), Argument::Bytes(b"a"));
    assert_eq!(spans[1].argument(&buf), Argument::Large(0));
}

#[test]
fn claims_cost_nothing_and_a_finished_command_leaves_nothing() {
    let limits = Limits { args_max: usize::MAX, bulk_len_max: usize::MAX, ..Limits::default() };
    let mut spans = Vec::new();
    let mut parser = Parser::new();
    let mut buf = b"*1000000000\r\n$1\r\na\r\n".to_vec();
    assert_eq!(parser.parse(&mut buf, &limits, &mut spans), Ok(Parsed::Incomplete));
    assert!(parser.heap_bytes() < 200, "{} bytes", parser.heap_bytes());
    assert!(spans.capacity() < 100);
    buf.extend(b"$500000000\r\n");
    let parsed = parser.parse(&mut buf, &limits, &mut spans);
    assert_eq!(parsed, Ok(Parsed::Large { head: buf.len(), len: 500_000_000 }));
    parser.reset();
    assert!(parser.is_idle());

    let mut buf = b"*1\r\n$9223372036854775807\r\n".to_vec();
    let parsed = parser.parse(&mut buf, &limits, &mut spans);
    assert_eq!(parsed, Ok(Parsed::Large { head: buf.len(), len: i64::MAX as usize }));
    parser.reset();

    let mut buf = b"*1\r\n$1\r\n".to_vec();
    assert_eq!(parser.parse(&mut buf, &limits, &mut spans), Ok(Parsed::Incomplete));
    assert!(parser.heap_bytes() > 0);
    buf.extend(b"a\r\n");
    assert_eq!(
        parser.parse(&mut buf, &limits, &mut spans),
        Ok(Parsed::Command { consumed: buf.len() })
    );
    assert_eq!(parser.heap_bytes(), 0);
}

/// A plain reference: RESP commands only, all bytes there, nothing malformed.
fn encoded(commands: &[Command]) -> Vec<u8> {
    let mut stream = Vec::new();
    for command in commands {
        append_command(&mut stream, command);
    }
    stream
}

fn any_command() -> impl Strategy<Value = Command> {
    prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..6)
}

/// Pieces that streams are made of, well formed or nearly so.
fn any_piece() -> impl Strategy<Value = Vec<u8>> {
    let number = prop_oneof![
        8 => (0_i64..14).prop_map(|n| n.to_string()),
        1 => any::<i64>().prop_map(|n| n.to_string()),
        1 => "[-+0-9a ]{0,22}",
    ];
    prop_oneof![
        6 => any_command().prop_map(|command| encoded(&[command])),
        2 => "[a-z \"'\\\\x0-9\t]{0,20}\r?\n".prop_map(String::into_bytes),
        2 => (prop::sample::select(vec!["*", "$", ":", ""]), number)
            .prop_map(|(kind, number)| format!("{kind}{number}\r\n").into_bytes()),
        1 => prop::collection::vec(any::<u8>(), 0..10),
        1 => Just(b"\r\n".to_vec()),
        1 => (0_usize..150).prop_map(|len| vec![b'7'; len]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn commands_round_trip(
        sent in prop::collection::vec(any_command(), 0..8),
        reads in prop::collection::vec(1_usize..60, 1..6),
    ) {
        let stream = encoded(&sent);
        prop_assert_eq!(meaning(&stream, &reads, &Limits::default()), (sent, None));
    }

    #[test]
    fn any_split_of_any_stream_means_the_same(
        pieces in prop::collection::vec(any_piece(), 0..8),
        reads in prop::collection::vec(1_usize..60, 1..6),
        unauthenticated: bool,
    ) {
        let stream = pieces.concat();
        let limits = Limits { inline_len_max: 100, unauthenticated, ..Limits::default() };
        let whole = meaning(&stream, &[usize::MAX], &limits);
        prop_assert_eq!(&meaning(&stream, &reads, &limits), &whole);
        prop_assert_eq!(&meaning(&stream, &[1], &limits), &whole);
    }

    #[test]
    fn large_bulks_in_any_reads(
        sizes in prop::collection::vec(prop_oneof![0..9_usize, LARGE_BULK - 1..LARGE_BULK + 9], 1..5),
        reads in prop::collection::vec(1_usize..90_000, 1..6),
    ) {
        let sent: Command = sizes.iter().map(|&size| vec![size as u8; size]).collect();
        let (got, error) = meaning(&encoded(&[sent.clone(), sent.clone()]), &reads, &Limits::default());
        prop_assert_eq!(error, None);
        prop_assert!(got == [sent.clone(), sent]);
    }
}

/// The words of an inline command are where its line was.
#[test]
fn inline_words_are_spans_of_the_buffer() {
    let (got, error) = commands(b"a \"b\\x20c\" d\r\n");
    assert_eq!(error, None);
    assert_eq!(got, [[&b"a"[..], b"b c", b"d"].map(<[u8]>::to_vec).to_vec()]);
}
