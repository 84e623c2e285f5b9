//! The generator and the runner against a server that the test controls: it
//! counts what arrives, demands a password, answers errors, or dies.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use snug_bench::endpoint::Endpoint;
use snug_bench::keys::{KeyDistribution, Keys};
use snug_bench::load::{Live, Load, LoadOutcome, run};
use snug_bench::payload::Payload;
use snug_bench::report::StepResult;
use snug_bench::request::Template;
use snug_bench::run::{Items, Settings, Step, StepSettings, Subject, Work, run_step};
use snug_bench::source::{Source, TemplateSource};

#[derive(Default)]
struct Behaviour {
    password: Option<&'static str>,
    /// Closes every connection once so many `SET`s have arrived.
    dies_after: Option<u64>,
    /// Answers each so-manyth `SET` with an error.
    error_each: Option<u64>,
    sets: AtomicU64,
}

fn serve(behaviour: Behaviour) -> (Endpoint, Arc<Behaviour>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = Endpoint::local(listener.local_addr().unwrap().port());
    let behaviour = Arc::new(behaviour);
    let shared = Arc::clone(&behaviour);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let behaviour = Arc::clone(&shared);
            // An error here is the client's going away: the connection ends.
            std::thread::spawn(move || answer(stream, &behaviour));
        }
    });
    (endpoint, behaviour)
}

fn request(reader: &mut impl BufRead) -> std::io::Result<Option<Vec<String>>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let count: usize = line.trim_start_matches('*').trim().parse().unwrap();
    let mut words = Vec::new();
    for _ in 0..count {
        line.clear();
        reader.read_line(&mut line)?;
        let length: usize = line.trim_start_matches('$').trim().parse().unwrap();
        let mut word = vec![0; length + 2];
        reader.read_exact(&mut word)?;
        word.truncate(length);
        words.push(String::from_utf8(word).unwrap());
    }
    Ok(Some(words))
}

fn answer(stream: TcpStream, behaviour: &Behaviour) -> std::io::Result<()> {
    let mut writer = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    let mut known = behaviour.password.is_none();
    while let Some(words) = request(&mut reader)? {
        let reply = match words[0].as_str() {
            "AUTH" if behaviour.password == words.last().map(String::as_str) => {
                known = true;
                "+OK\r\n"
            }
            "AUTH" => "-WRONGPASS invalid username-password pair or user is disabled.\r\n",
            _ if !known => "-NOAUTH Authentication required.\r\n",
            "INFO" => "$17\r\nused_memory:1000\n\r\n",
            "DBSIZE" => ":7\r\n",
            "SET" => {
                let sets = behaviour.sets.fetch_add(1, Ordering::SeqCst) + 1;
                if behaviour.dies_after.is_some_and(|limit| sets > limit) {
                    return Ok(());
                }
                match behaviour.error_each {
                    Some(each) if sets.is_multiple_of(each) => "-OOM command not allowed\r\n",
                    _ => "+OK\r\n",
                }
            }
            _ => "+PONG\r\n",
        };
        writer.write_all(reply.as_bytes())?;
    }
    Ok(())
}

fn template() -> Template {
    let keys = Keys::new(KeyDistribution::Uniform, 1000, 0.99);
    Template::parse("SET __key__ __data__", keys, Payload::Random, 20, b"x").unwrap()
}

fn drive(
    endpoint: &Endpoint,
    (threads, connections, pipeline): (usize, usize, usize),
    requests: u64,
    rate: Option<f64>,
) -> LoadOutcome {
    let template = template();
    let source = |connection: usize| {
        Box::new(TemplateSource::new(&template, 1, connection, connections)) as Box<dyn Source>
    };
    let load = Load {
        endpoint,
        cluster: None,
        threads,
        connections,
        pipeline,
        requests: Some(requests),
        duration: None,
        rate,
        kinds: 1,
        source: &source,
    };
    run(&load, &Live::default()).unwrap()
}

#[test]
fn every_request_arrives_once_and_is_counted_once() {
    for shape in [(1, 1, 1), (1, 7, 16), (2, 5, 100), (3, 2, 1)] {
        for requests in [1, 99, 5000] {
            let (endpoint, behaviour) = serve(Behaviour::default());
            let outcome = drive(&endpoint, shape, requests, None);
            assert_eq!(outcome.failure, None);
            assert_eq!(outcome.answered(), requests, "{shape:?}");
            assert_eq!(behaviour.sets.load(Ordering::SeqCst), requests, "{shape:?}");
            assert_eq!(outcome.received_bytes, requests * "+OK\r\n".len() as u64);
        }
    }
}

#[test]
fn an_open_loop_is_never_faster_than_its_rate() {
    let (endpoint, behaviour) = serve(Behaviour::default());
    let outcome = drive(&endpoint, (2, 8, 4), 600, Some(3000.0));
    assert_eq!(outcome.answered(), 600);
    assert_eq!(behaviour.sets.load(Ordering::SeqCst), 600);
    // Two threads at 1,500 a second: the last of some 300 each was due at 0.199 s.
    // Threads may share unevenly, so that only half of it is certain.
    assert!(outcome.elapsed >= Duration::from_millis(99), "{:?}", outcome.elapsed);
}

#[test]
fn error_replies_are_counted_and_the_first_is_kept() {
    let (endpoint, _) = serve(Behaviour { error_each: Some(10), ..Behaviour::default() });
    let outcome = drive(&endpoint, (1, 4, 8), 1000, None);
    assert_eq!(outcome.kinds[0].errors, 100);
    assert_eq!(outcome.first_error.as_deref(), Some("OOM command not allowed"));
    assert_eq!(outcome.failure, None);
}

fn step(requests: u64) -> Step {
    let template = template();
    Step {
        name: "set".into(),
        settings: StepSettings::new(),
        work: Work::Load {
            kinds: vec!["set".into()],
            connections: 4,
            pipeline: 8,
            requests: Some(requests),
            duration: None,
            rate: None,
            source: Arc::new(move |connection| {
                Box::new(TemplateSource::new(&template, 1, connection, 4)) as Box<dyn Source>
            }),
        },
        items: Items::Requests,
        rest: None,
        inspect: None,
    }
}

fn measure(endpoint: &Endpoint, requests: u64) -> Result<StepResult, String> {
    let subject =
        Subject { name: "fake".into(), endpoint: endpoint.clone(), cluster: false, round: 1 };
    let settings =
        Settings { threads: 1, rest_max: Duration::ZERO, progress: false, overall: None };
    run_step("test", &step(requests), &subject, &settings).map_err(|error| error.to_string())
}

#[test]
fn a_server_that_dies_leaves_partial_results() {
    let (endpoint, _) = serve(Behaviour { dies_after: Some(500), ..Behaviour::default() });
    let result = measure(&endpoint, 100_000).unwrap();
    let failure = result.failure.unwrap();
    assert!(failure.contains("closed the connection after"), "{failure}");
    assert!(!failure.contains('\n'));
    assert!((1..=500).contains(&result.operations), "{}", result.operations);
    assert_eq!(result.kinds[0].latency.count, result.operations);
}

#[test]
fn a_server_that_only_refuses_is_a_failure() {
    let (endpoint, _) = serve(Behaviour { error_each: Some(1), ..Behaviour::default() });
    let result = measure(&endpoint, 100).unwrap();
    assert_eq!(result.failure.as_deref(), Some("OOM command not allowed"));
}

#[test]
fn passwords_and_addresses_fail_in_one_clear_line() {
    let locked = Behaviour { password: Some("secret"), ..Behaviour::default() };
    let (mut endpoint, _) = serve(locked);
    let address = endpoint.address();
    assert_eq!(
        measure(&endpoint, 1).unwrap_err(),
        format!("{address} refused the connection: NOAUTH Authentication required.")
    );
    endpoint.password = Some("guess".into());
    assert!(measure(&endpoint, 1).unwrap_err().contains("WRONGPASS"));
    endpoint.password = Some("secret".into());
    assert_eq!(measure(&endpoint, 10).unwrap().operations, 10);
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let unreachable = measure(&Endpoint::local(nobody), 1).unwrap_err();
    assert!(
        unreachable.starts_with(&format!("cannot reach 127.0.0.1:{nobody}: ")),
        "{unreachable}"
    );
}
