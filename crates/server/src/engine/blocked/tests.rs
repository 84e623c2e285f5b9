//! The waiting of clients against a model, and one by one.

use super::waiter::{Reason, State, Waiter};
use super::*;
use crate::cluster::Cluster;
use crate::commands;
use crate::config::Config;
use crate::dispatch::{self, Asked};
use crate::engine::call::Halt;
use crate::engine::call::call;
use crate::engine::client::Caller;
use crate::engine::client::Client;
use crate::engine::command::Command;
use crate::engine::command::{Answer, flags};
use crate::engine::context::{Context, Origin};
use crate::engine::out::{Chunk, Out};
use crate::engine::server::Server;
use crate::follow::clients::Address;
use crate::follow::clients::Shared;
use crate::request::args::{Args, OwnedArgs};
use proptest::prelude::*;
use snug_store::Type;
use snug_store::{Append, Class, Delete, Event, NewStr, Session, Set};
use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

const NOW: u64 = 1_700_000_000_000;

/// A command that waits and then writes, as `BLMOVE` and `BLPOP` do, of strings
/// that stand for lists of bytes: `TAKE TO KEY ...` takes the first byte of the
/// first of the keys that there is, and appends it to `TO`, unless that is `-`.
static TAKE: Command = Command::new("take", -3, take).flags(flags::WRITE);

fn take(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let keys = 2..args.len();
    let to = (args.bytes(1) != b"-").then(|| cx.key(args.bytes(1)));
    let _held = cx.hold(keys.clone().map(|at| cx.key(args.bytes(at))).chain(to));
    for at in cx.keys_to_try(args, keys.clone()) {
        let key = cx.key(args.bytes(at));
        let mut slot = cx.lock(&key);
        let Some(found) = cx.find_string(&mut slot, &key)? else { continue };
        let mut value = Out::default();
        value.string(slot.string(found).unwrap())?;
        let text = value.bytes.split(|&byte| byte == b'\n').nth(1).unwrap();
        let (first, rest) = text.strip_suffix(b"\r").unwrap().split_first().unwrap();
        let event = Event::new(Class::STRING, "take");
        if rest.is_empty() {
            slot.apply(&key, Some(found), Delete, event);
        } else {
            slot.apply(&key, Some(found), Set::to(NewStr::Bytes(rest)), event);
        }
        drop(slot);
        if let Some(to) = to {
            let mut slot = cx.lock(&to);
            let found = cx.find_string(&mut slot, &to)?;
            slot.apply(&to, found, Append(NewStr::Bytes(&[*first])), event);
        }
        out.w().bulk(&[*first]);
        return Ok(());
    }
    if !cx.origin.may_block() {
        out.w().null();
        return Ok(());
    }
    Err(cx.wait(Wait {
        args: &|| OwnedArgs::new(args),
        keys,
        timeout_ms: 0,
        awaits: Type::String,
        each_change: false,
        without_key: false,
        rivals: None,
    }))
}

/// A server without workers; every client's commands are executed here.
struct House {
    server: Arc<Server>,
    session: Session,
    /// Who writes.
    caller: Caller,
    client: Client,
    waiters: Vec<Arc<Waiter>>,
}

fn client(server: &Server, id: u64) -> Client {
    let nowhere = Address::Net(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
    let ends = (nowhere.clone(), nowhere);
    Client::new(Arc::new(Shared::new(id, ends, -1, 0)), server.first_account())
}

impl House {
    fn new() -> Self {
        let config = Config::default();
        let cluster = Cluster::load(&config).unwrap();
        let server = Server::new(config, cluster, 1, commands::catalog());
        let session = server.store.session();
        let (caller, client) = (Caller::default(), client(&server, 1));
        Self { server, session, caller, client, waiters: Vec::new() }
    }

    /// The reply to a command of the client that writes.
    fn write(&mut self, command: &str) -> String {
        let batch = self.session.enter(NOW);
        let words: Vec<Vec<u8>> = command.split(' ').map(Into::into).collect();
        let mut asked = Asked {
            caller: &mut self.caller,
            client: &mut self.client,
            store: &batch,
            server: &self.server,
            worker: 0,
            pool: None,
            hashed: None,
            finished: None,
        };
        let mut out = Out::default();
        dispatch::execute(&mut asked, OwnedArgs::of(&words).args(), &mut out).unwrap();
        if any_ready() {
            self.server.serve(&batch, 0);
        }
        String::from_utf8(out.bytes).unwrap()
    }

    /// A client of its own calls `TAKE`, and has to wait; its number.
    fn take(&mut self, words: &str) -> usize {
        let number = self.waiters.len();
        let batch = self.session.enter(NOW);
        let words = format!("TAKE {words}");
        let words: Vec<Vec<u8>> = words.split(' ').map(Into::into).collect();
        let (mut caller, mut client) = (Caller::default(), client(&self.server, number as u64 + 2));
        let mut cx = Context {
            caller: &mut caller,
            client: Some(&mut client),
            store: &batch,
            server: &self.server,
            command: &TAKE,
            worker: 0,
            origin: Origin::Client,
            hashed: None,
            pool: None,
            finished: None,
            brought: false,
        };
        let args = OwnedArgs::of(&words);
        match call(&mut cx, &TAKE, args.args(), &mut Out::default()) {
            Err(Halt::Wait(waiter)) => self.waiters.push(waiter),
            other => panic!("it does not wait: {other:?}"),
        }
        number
    }

    /// What a client that waits was told, once.
    fn told(&self, waiter: usize) -> Option<String> {
        let bytes = |chunk: &Chunk| match chunk {
            Chunk::Bytes(bytes) => bytes.to_vec(),
            Chunk::Packed(_) => unreachable!("nothing is packed"),
        };
        let reply = self.waiters[waiter].take_reply()?;
        Some(String::from_utf8(reply.iter().flat_map(bytes).collect()).unwrap())
    }

    /// Every client that has ended leaves, as its connection would have it do.
    fn leave(&mut self) {
        let batch = self.session.enter(NOW);
        let is_over = |waiter: &&Arc<Waiter>| !matches!(*waiter.state.lock(), State::Waiting);
        for waiter in self.waiters.iter().filter(is_over) {
            self.server.blocked.remove(&batch, waiter);
        }
    }
}

/// What [`House::told`] gives of a reply with this letter.
#[allow(clippy::unnecessary_wraps)]
fn is(letter: &str) -> Option<String> {
    Some(format!("$1\r\n{letter}\r\n"))
}

#[test]
fn what_a_served_command_writes_is_served_too() {
    let mut house = House::new();
    let last = house.take("- c");
    let (second, first) = (house.take("c b"), house.take("b a"));
    house.write("SET a xy");
    for waiter in [first, second, last] {
        assert_eq!(house.told(waiter), is("x"));
    }
    assert_eq!(house.write("GET a"), "$1\r\ny\r\n");
    // In a circle, each takes one.
    let circle = [house.take("d d"), house.take("d d")];
    house.write("SET d 123");
    assert_eq!(circle.map(|waiter| house.told(waiter)), [is("1"), is("2")]);
    assert_eq!(house.write("GET d"), "$3\r\n312\r\n");
}

#[test]
fn keys_come_as_they_were_ready_and_clients_as_they_came() {
    let mut house = House::new();
    let (first, second) = (house.take("- x y"), house.take("- y x"));
    let third = house.take("- x");
    for command in ["MULTI", "APPEND y y", "APPEND x x", "EXEC"] {
        house.write(command);
    }
    // Of the key that was ready first, who came first.
    assert_eq!((house.told(first), house.told(second)), (is("y"), is("x")));
    assert_eq!(house.told(third), None);
    house.write("SET x 12");
    assert_eq!(house.told(third), is("1"));
    assert_eq!(house.write("GET x"), "$1\r\n2\r\n");
}

/// A key that was emptied while it was served stands in no line: what comes to it
/// later comes after what was ready before.
#[test]
fn a_key_is_ready_when_it_comes_not_when_it_goes() {
    let mut house = House::new();
    let (to_b, to_d) = (house.take("b d"), house.take("d a"));
    let last = house.take("- a b");
    let to_a = house.take("a d");
    for command in ["MULTI", "SET a 1", "SET d 2", "EXEC"] {
        house.write(command);
    }
    assert_eq!((house.told(to_d), house.told(to_b), house.told(to_a)), (is("1"), is("2"), is("1")));
    assert_eq!(house.told(last), is("2"), "b came before a");
    assert_eq!(house.write("GET a"), "$1\r\n1\r\n");
}

#[test]
fn what_a_transaction_takes_back_nobody_is_given() {
    let mut house = House::new();
    let waiter = house.take("- x");
    for command in ["MULTI", "SET x 1", "DEL x", "EXEC"] {
        house.write(command);
    }
    assert_eq!(house.told(waiter), None);
    house.write("SET x 2");
    assert_eq!(house.told(waiter), is("2"));
}

#[test]
fn another_type_leaves_them_waiting() {
    let mut house = House::new();
    let waiter = house.take("- x");
    house.write("XADD x 1-1 f v");
    house.write("XADD x 1-2 f v");
    assert_eq!(house.told(waiter), None);
    house.write("SET other 1");
    house.write("RENAME other x");
    assert_eq!(house.told(waiter), is("1"));
    // An error is an answer.
    let (to_stream, behind) = (house.take("s y"), house.take("- y"));
    house.write("XADD s 1-1 f v");
    house.write("SET y z");
    assert!(house.told(to_stream).unwrap().starts_with("-WRONGTYPE"));
    assert_eq!(house.told(behind), None, "the first took it before it failed");
}

#[test]
fn whatever_way_a_key_comes_it_is_ready() {
    let ways: [&[&str]; 7] = [
        &["SET x 1"],
        &["SET o 1", "RENAME o x"],
        &["SET o 1", "RENAMENX o x"],
        &["SET o 1", "COPY o x"],
        &["SELECT 1", "SET x 1", "MOVE x 0"],
        &["SELECT 1", "SET x 1", "SWAPDB 0 1"],
        &["SELECT 1", "SET x 1", "SELECT 0", "MULTI", "SWAPDB 1 0", "EXEC"],
    ];
    for way in ways {
        let mut house = House::new();
        let waiter = house.take("- other x");
        house.write("FLUSHDB");
        way.iter().for_each(|command| drop(house.write(command)));
        assert_eq!(house.told(waiter), is("1"), "{way:?}");
        house.leave();
        assert_eq!((house.server.blocked.keys(), house.server.blocked.clients()), ((0, 0), 0));
    }
}

#[test]
fn who_has_gone_takes_nothing() {
    let mut house = House::new();
    let [late, told, gone, last] = [0; 4].map(|_| house.take("- x"));
    assert!(house.waiters[late].end(&house.server, 0, Reason::Timeout));
    assert!(house.waiters[told].end(&house.server, 0, Reason::Unblocked));
    house.waiters[gone].leave(&house.server.blocked);
    assert_eq!(house.server.blocked.clients(), 1);
    house.write("SET x 12");
    assert_eq!(house.told(late).as_deref(), Some("*-1\r\n"));
    assert!(house.told(told).unwrap().starts_with("-UNBLOCKED"));
    assert_eq!(house.told(last), is("1"));
    assert!(!house.waiters[last].end(&house.server, 0, Reason::Timeout), "it was served");
    assert_eq!(house.write("GET x"), "$1\r\n2\r\n");
    house.leave();
    assert_eq!(house.server.blocked.keys(), (0, 0));
}

/// Redis's way of serving, of clients that each wait for some of a few keys: a key
/// is ready when it comes to be, not with each change.
#[derive(Default)]
struct Model {
    keys: BTreeMap<usize, Vec<u8>>,
    waiting: Vec<(usize, Option<usize>, Vec<usize>)>,
    ready: VecDeque<usize>,
    told: BTreeMap<usize, u8>,
}

impl Model {
    fn append(&mut self, key: usize, bytes: &[u8]) {
        if !self.keys.contains_key(&key) && !self.ready.contains(&key) {
            self.ready.push_back(key);
        }
        self.keys.entry(key).or_default().extend(bytes);
    }

    fn take(&mut self, key: usize, to: Option<usize>) -> Option<u8> {
        let value = self.keys.get_mut(&key)?;
        let first = value.remove(0);
        if value.is_empty() {
            self.keys.remove(&key);
        }
        to.into_iter().for_each(|to| self.append(to, &[first]));
        Some(first)
    }

    fn serve(&mut self) {
        while let Some(key) = self.ready.pop_front() {
            let waits = |(_, _, keys): &(_, _, Vec<usize>)| keys.contains(&key);
            let of_key: Vec<_> = self.waiting.iter().filter(|w| waits(w)).cloned().collect();
            for (number, to, _) in of_key {
                let Some(first) = self.take(key, to) else { break };
                self.told.insert(number, first);
                self.waiting.retain(|(other, ..)| *other != number);
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Take(Option<usize>, Vec<usize>),
    Append(Vec<(usize, u8)>),
    Delete(usize),
    Leave,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || 0..5usize;
    let letters = prop::collection::vec((key(), b'a'..=b'z'), 1..6);
    prop::collection::vec(
        prop_oneof![
            4 => (prop::option::of(key()), prop::collection::vec(key(), 1..4))
                .prop_map(|(to, keys)| Step::Take(to, keys)),
            4 => letters.prop_map(Step::Append),
            1 => key().prop_map(Step::Delete),
            1 => Just(Step::Leave),
        ],
        0..40,
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn clients_are_served_as_in_the_model(steps in steps()) {
        let mut house = House::new();
        let mut model = Model::default();
        for step in steps {
            match step {
                Step::Take(to, keys) => {
                    // Else it would not wait.
                    if keys.iter().any(|key| model.keys.contains_key(key)) {
                        continue;
                    }
                    let to_name = to.map_or("-".into(), |to| format!("k{to}"));
                    let names: Vec<_> = keys.iter().map(|key| format!("k{key}")).collect();
                    let number = house.take(&format!("{to_name} {}", names.join(" ")));
                    model.waiting.push((number, to, keys));
                }
                Step::Append(letters) => {
                    house.write("MULTI");
                    for (key, letter) in letters {
                        house.write(&format!("APPEND k{key} {}", letter as char));
                        model.append(key, &[letter]);
                    }
                    house.write("EXEC");
                    model.serve();
                }
                Step::Delete(key) => {
                    house.write(&format!("DEL k{key}"));
                    model.keys.remove(&key);
                }
                Step::Leave => house.leave(),
            }
            prop_assert_eq!(house.server.blocked.clients(), model.waiting.len());
            for key in 0..5 {
                let value = model.keys.get(&key).map(|value| String::from_utf8_lossy(value));
                let expected = value.map_or("$-1\r\n".into(), |value| format!("${}\r\n{value}\r\n", value.len()));
                prop_assert_eq!(house.write(&format!("GET k{key}")), expected);
            }
        }
        for number in 0..house.waiters.len() {
            let expected = model.told.get(&number).map(|&letter| is(&(letter as char).to_string()).unwrap());
            prop_assert_eq!(house.told(number), expected);
        }
    }
}
