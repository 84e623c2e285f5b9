//! A worker without sockets whose time is the test's: clients at the other ends of
//! pipes, requests that arrive in pieces, replies that are read late, connections that
//! break, and hours that pass in an instant. All of it follows from a seed, so what fails
//! once fails again.

use crate::cluster::Cluster;
use crate::commands;
use crate::config::{Config, Param};
use crate::engine::server::Server;
use crate::follow::clients::Address;
use crate::net::{accept, worker};
use crate::outside::chance;
use crate::outside::clock::{self, Instant};
use crate::outside::network::NOWHERE;
use crate::sockets::simulated::{Client, request};
use crate::sockets::stream::Stream;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncWriteExt as _, DuplexStream};

const NOW: u64 = 1_700_000_000_000;

/// Runs a worker and a test beside it, in a time of their own. The test is done when its
/// future is.
fn simulate<F: Future<Output = ()>>(
    seed: u64,
    parameters: &[(Param, &str)],
    test: impl FnOnce(Arc<Server>) -> F,
) {
    chance::simulated::begin(seed);
    let config = Config::default();
    for (param, value) in parameters {
        config.set(*param, value.as_bytes()).expect("a value it takes");
    }
    let cluster = Cluster::load(&config).expect("none");
    let server = Server::new(config, cluster, 1, commands::catalog());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        clock::simulated::begin(NOW);
        work(&server);
        tokio::task::LocalSet::new().run_until(test(Arc::clone(&server))).await;
    });
    drop(runtime);
    clock::simulated::end();
    chance::simulated::end();
}

/// Makes this thread the server's only worker, in the runtime that this is called in.
pub(super) fn work(server: &Arc<Server>) {
    worker::equip(server, 0);
    tokio::spawn(worker::clock(Arc::clone(server), 0));
}

/// Serves whoever is at the other end of a pipe.
pub(super) fn welcome(server: &Arc<Server>, pipe: DuplexStream) {
    let nowhere = Address::Net(NOWHERE);
    accept::welcome(server, Stream::Pipe(pipe), (nowhere.clone(), nowhere));
}

/// A client that has connected. What it does not read soon, beyond so many bytes, waits at
/// the server.
fn connect(server: &Arc<Server>, room: usize) -> Client {
    let (pipe, other) = tokio::io::duplex(room);
    welcome(server, other);
    Client::new(pipe)
}

/// Sends a request in pieces, with a while between them.
async fn send_slowly(client: &mut Client, command: &str, random: &RefCell<StdRng>) {
    let request = request(command);
    let mut rest = &request[..];
    while !rest.is_empty() {
        let len = random.borrow_mut().random_range(1..=rest.len());
        client.pipe.write_all(&rest[..len]).await.expect("the server reads");
        rest = &rest[len..];
        let pause = random.borrow_mut().random_range(0..3);
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
}

#[test]
fn time_passes_as_the_test_has_it() {
    simulate(1, &[], async |server| {
        let mut client = connect(&server, 4096);
        assert_eq!(client.ask("SET key value EX 3600").await, "+OK");
        tokio::time::sleep(Duration::from_secs(3599)).await;
        assert_eq!(client.ask("GET key").await, "value");
        assert_eq!(client.ask("PTTL key").await, ":1000");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(client.call("GET key").await, None);
        // Who is not asked for is removed in the background.
        assert_eq!(client.ask("SET key value EX 7200").await, "+OK");
        tokio::time::sleep(Duration::from_secs(7300)).await;
        assert_eq!(server.store.keys(0), 0);
    });
}

#[test]
fn a_client_waits_exactly_as_long_as_it_said() {
    simulate(1, &[], async |server| {
        let mut client = connect(&server, 4096);
        for seconds in [1, 60, 900] {
            let began = Instant::now();
            assert_eq!(client.call(&format!("BLPOP list {seconds}")).await, None);
            let took = began.elapsed().as_millis() as u64;
            // The runtime's timer goes by milliseconds, and may be one late.
            assert!((seconds * 1000..=seconds * 1000 + 1).contains(&took), "{took} ms");
        }
    });
}

#[test]
fn writes_that_are_paused_are_executed_when_the_pause_is_over() {
    simulate(1, &[], async |server| {
        let (mut client, mut other) = (connect(&server, 4096), connect(&server, 4096));
        assert_eq!(client.ask("SET key 1 PX 500").await, "+OK");
        assert_eq!(client.ask("CLIENT PAUSE 10000 WRITE").await, "+OK");
        let began = Instant::now();
        other.send("INCR other").await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        // Nothing is removed meanwhile, and nobody sees what is due.
        assert_eq!(client.call("GET key").await, None);
        assert_eq!(client.ask("DBSIZE").await, ":1");
        assert_eq!(other.reply().await, Some(vec![":1".into()]));
        let waited = began.elapsed().as_millis();
        assert!((10_000..10_200).contains(&waited), "{waited} ms");
    });
}

/// A command goes straight to its handler unless something is in the way: each of these
/// is, and the command is open again when it is gone. Here: how the state begins, what is
/// answered in it, how it ends.
#[test]
fn whatever_is_in_the_way_of_a_command_is_heeded() {
    let states: [(&str, &str, &[&str]); 5] = [
        ("CONFIG SET requirepass secret", "-NOAUTH", &["AUTH secret"]),
        ("ACL SETUSER default -get", "-NOPERM", &["ACL SETUSER default +get"]),
        ("ACL SETUSER default resetkeys ~x*", "-NOPERM", &["ACL SETUSER default allkeys"]),
        ("MULTI", "+QUEUED", &["EXEC"]),
        ("SUBSCRIBE channel", "-ERR Can't execute 'get'", &["UNSUBSCRIBE channel"]),
    ];
    simulate(1, &[], async |server| {
        for (begins, within, ends) in states {
            // Who has logged in stays so; a later client has to.
            let mut first = connect(&server, 4096);
            assert_eq!(first.ask("SET key value").await, "+OK");
            assert_eq!(first.ask("GET key").await, "value");
            let mut client = match begins.starts_with("CONFIG SET requirepass") {
                true => {
                    assert_eq!(first.ask(begins).await, "+OK");
                    connect(&server, 4096)
                }
                false => {
                    first.call(begins).await.expect("an answer");
                    first
                }
            };
            let reply = client.ask("GET key").await;
            assert!(reply.starts_with(within), "{begins}: {reply}");
            for end in ends {
                client.call(end).await.expect("an answer");
            }
            assert_eq!(client.ask("GET key").await, "value", "{begins}");
            assert_eq!(client.ask("CONFIG SET requirepass nothing").await, "+OK");
            assert_eq!(client.ask("ACL SETUSER default nopass").await, "+OK");
        }
        let mut client = connect(&server, 4096);
        assert_eq!(client.ask("CONFIG SET min-replicas-to-write 1").await, "+OK");
        tokio::time::sleep(Duration::from_secs(2)).await;
        let reply = client.ask("SET key value").await;
        assert!(reply.starts_with("-NOREPLICAS"), "{reply}");
        assert_eq!(client.ask("GET key").await, "value");
        assert_eq!(client.ask("CONFIG SET min-replicas-to-write 0").await, "+OK");
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(client.ask("SET key value").await, "+OK");
        // No reply is sent to whoever wants none.
        client.send("CLIENT REPLY OFF").await;
        client.send("GET key").await;
        assert_eq!(client.ask("CLIENT REPLY ON").await, "+OK");
        // Who tracks is told what changes of that which it has read.
        let mut told = connect(&server, 4096);
        let id = told.ask("CLIENT ID").await;
        told.call("SUBSCRIBE __redis__:invalidate").await.expect("an answer");
        let track = format!("CLIENT TRACKING ON REDIRECT {}", &id[1..]);
        assert_eq!(client.ask(&track).await, "+OK");
        assert_eq!(client.ask("GET key").await, "value");
        let mut other = connect(&server, 4096);
        assert_eq!(other.ask("SET key other").await, "+OK");
        let message = told.line().await.expect("a message");
        assert_eq!(message, "*3");
    });
}

#[test]
fn idle_clients_are_let_go() {
    simulate(1, &[(Param::Timeout, "300")], async |server| {
        let (mut idle, mut busy) = (connect(&server, 4096), connect(&server, 4096));
        let mut waiting = connect(&server, 4096);
        waiting.send("BLPOP list 0").await;
        for _ in 0..10 {
            tokio::time::sleep(Duration::from_mins(1)).await;
            assert_eq!(busy.ask("PING").await, "+PONG");
        }
        assert_eq!(idle.reply().await, None, "it was let go");
        assert_eq!(busy.ask("RPUSH list one").await, ":1");
        assert_eq!(waiting.reply().await, Some(vec!["list".into(), "one".into()]));
    });
}

/// Clients push numbers to lists, take them from there and wait for them; requests come in
/// pieces and connections break. Each number is taken once at most, in the order of its
/// list, and what nobody has taken is still there.
#[test]
fn nothing_is_lost_or_given_twice() {
    for seed in 0..60 {
        let random = Rc::new(RefCell::new(StdRng::seed_from_u64(seed)));
        simulate(seed, &[], async |server| {
            let pushed = Rc::new(RefCell::new(BTreeMap::<String, Vec<u64>>::new()));
            let taken = Rc::new(RefCell::new(BTreeMap::<String, Vec<u64>>::new()));
            // A client that goes while it waits may have been given something it never read.
            let (next, unsure) = (Rc::new(Cell::new(0u64)), Rc::new(Cell::new(0)));
            let tasks: Vec<_> = (0..8)
                .map(|_| {
                    let (server, random) = (Arc::clone(&server), Rc::clone(&random));
                    let (pushed, taken) = (Rc::clone(&pushed), Rc::clone(&taken));
                    let (next, unsure) = (Rc::clone(&next), Rc::clone(&unsure));
                    tokio::task::spawn_local(async move {
                        let mut client = connect(&server, 64);
                        for _ in 0..20 {
                            let list =
                                (*["a", "b"].choose(&mut *random.borrow_mut()).unwrap()).to_owned();
                            let what = random.borrow_mut().random_range(0..10);
                            match what {
                                0..5 => {
                                    let n = next.replace(next.get() + 1);
                                    send_slowly(&mut client, &format!("RPUSH {list} {n}"), &random)
                                        .await;
                                    let reply = client.reply().await.expect("a length");
                                    assert!(reply[0].starts_with(':'), "{reply:?}");
                                    pushed.borrow_mut().entry(list).or_default().push(n);
                                }
                                5..9 => {
                                    let command = match what {
                                        5 => format!("LPOP {list} 1"),
                                        _ => format!(
                                            "BLPOP {list} {}",
                                            random.borrow_mut().random_range(1..4)
                                        ),
                                    };
                                    send_slowly(&mut client, &command, &random).await;
                                    if let Some(reply) = client.reply().await {
                                        let n = reply.last().unwrap().parse().expect("a number");
                                        taken.borrow_mut().entry(list).or_default().push(n);
                                    }
                                }
                                _ => {
                                    let mut other = connect(&server, 64);
                                    send_slowly(&mut other, &format!("BLPOP {list} 1"), &random)
                                        .await;
                                    if random.borrow_mut().random() {
                                        tokio::time::sleep(Duration::from_millis(1)).await;
                                    }
                                    unsure.set(unsure.get() + 1);
                                    drop(other);
                                }
                            }
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.expect("no client fails");
            }
            let mut client = connect(&server, 4096);
            let (mut all, mut known) = (Vec::new(), Vec::new());
            for list in ["a", "b"] {
                let left = client.call(&format!("LRANGE {list} 0 -1")).await.unwrap_or_default();
                let left = left.iter().map(|n| n.parse::<u64>().expect("a number"));
                known.extend(taken.borrow_mut().remove(list).unwrap_or_default());
                known.extend(left);
                all.extend(pushed.borrow_mut().remove(list).unwrap_or_default());
            }
            all.sort_unstable();
            known.sort_unstable();
            assert!(known.is_sorted_by(|a, b| a < b), "seed {seed}: given twice");
            let lost = all.iter().filter(|n| known.binary_search(n).is_err()).count();
            assert!(known.iter().all(|n| all.binary_search(n).is_ok()));
            assert!(lost <= unsure.get(), "seed {seed}: {lost} lost, {} went", unsure.get());
        });
    }
}

/// What is drawn at random comes from the seed, so that what one has found can be found
/// again.
#[test]
fn a_run_can_be_repeated() {
    let run = |seed| {
        let said = Rc::new(RefCell::new(Vec::new()));
        let saying = Rc::clone(&said);
        simulate(seed, &[], async move |server| {
            let mut client = connect(&server, 4096);
            for n in 0..300 {
                client.call(&format!("SET key:{n} value")).await;
                client.call(&format!("SADD set {n} member:{n}")).await;
                client.call(&format!("ZADD zset {n} member:{n}")).await;
            }
            for command in [
                "RANDOMKEY",
                "SPOP set 3",
                "SRANDMEMBER set 5",
                "ZRANDMEMBER zset 7",
                "ACL GENPASS",
            ] {
                let reply = client.call(command).await;
                saying.borrow_mut().push(reply);
            }
        });
        said.take()
    };
    let (once, again) = (run(1), run(1));
    assert_eq!(once.len(), 5);
    assert_eq!(once, again);
    let other = run(2);
    assert!(once.iter().zip(&other).all(|(a, b)| a != b), "{once:?} {other:?}");
}
