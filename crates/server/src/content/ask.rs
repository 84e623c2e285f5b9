//! Whoever sent a request, and what it asks of the store.
//!
//! A request is executed in the place of a command ([`Asking::by`]): dispatch asks all that
//! it would ask of a client who sends that command with that key, and then the handler of
//! this room does what the command does. So there is one check of rights, and one of
//! memory, roles and pauses. Who sends `Authorization: Basic` is that user for this request;
//! who sends none is the default user, or the one whom its certificate names.

use super::answer::Refusal;
use super::link::Link;
use crate::dispatch::{self, Asked};
use crate::engine::blocked;
use crate::engine::call::Halt;
use crate::engine::client::{Caller, Client};
use crate::engine::command::Answer;
use crate::engine::context::Context;
use crate::engine::large::Done;
use crate::engine::out::Out;
use crate::measure::stats::Stat;
use crate::net::worker;
use crate::outside::clock::unix_ms;
use crate::request::args::{Args, OwnedArgs};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{self, HeaderMap};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// A request's sender.
pub(super) struct Asking<'l> {
    pub link: &'l Link,
    client: Client,
}

/// What came of one attempt at a command.
enum Attempt {
    Replied(Vec<u8>),
    Halted(Halt),
}

impl<'l> Asking<'l> {
    /// The sender of a request with these headers.
    pub(super) fn of(link: &'l Link, headers: &HeaderMap) -> Result<Self, Refusal> {
        let server = &link.server;
        let mut client = Client::new(Arc::clone(&link.shared), server.first_account());
        link.shared.figures.last_active.store(unix_ms(), Relaxed);
        if let Some(given) = headers.get(header::AUTHORIZATION) {
            let logged_in = basic(given.as_bytes())
                .is_some_and(|(user, password)| server.log_in(&mut client, &user, &password));
            if !logged_in {
                server.stats.add(Stat::acl_access_denied_auth, 1);
                return Err(Refusal::of_error(
                    b"WRONGPASS invalid username-password pair or user is disabled.",
                ));
            }
        } else if let Some(name) = &link.certificate {
            server.log_in_by_certificate(&mut client, name);
        }
        Ok(Self { link, client })
    }

    /// Refuses one who has to log in and has not: before a body is received, for whoever
    /// sends it may take no memory yet.
    pub(super) fn check_logged_in(&self) -> Result<(), Refusal> {
        match self.link.server.must_log_in(&self.client) {
            true => Err(Refusal::of_error(b"NOAUTH Authentication required.")),
            false => Ok(()),
        }
    }

    /// Executes a command as a client's, and gives its reply back.
    pub(super) async fn command(&mut self, words: &[&[u8]]) -> Result<Vec<u8>, Refusal> {
        self.by(&OwnedArgs::of(words), |cx, args, out| (cx.command.handler)(cx, args, out)).await
    }

    /// Executes a handler in the place of a command's own. It is executed again if it asks
    /// for work that takes a while, and when what kept the command waiting is over.
    pub(super) async fn by(
        &mut self,
        args: &OwnedArgs,
        mut handler: impl FnMut(&mut Context<'_>, Args<'_>, &mut Out) -> Answer,
    ) -> Result<Vec<u8>, Refusal> {
        let link = self.link;
        let mut finished = None;
        let reply = loop {
            let mut woken = pin!(link.woken.notified());
            woken.as_mut().enable();
            match self.attempt(args, &mut handler, finished.take()) {
                Attempt::Replied(reply) => break reply,
                Attempt::Halted(Halt::Work(work)) => {
                    let _waits = Waits::begin(link);
                    finished = Some(work.0.await);
                }
                Attempt::Halted(Halt::Pause) => {
                    let _waits = Waits::begin(link);
                    while link.server.pause.holds(link.shared.id) {
                        link.woken.notified().await;
                    }
                }
                Attempt::Halted(Halt::Behind) => {
                    let _waits = Waits::begin(link);
                    while link.server.is_behind() {
                        woken.as_mut().await;
                        woken.set(link.woken.notified());
                    }
                }
                // No command of this room waits for a key.
                Attempt::Halted(Halt::Wait(_)) => {
                    return Err(Refusal::of_error(b"ERR the command waits"));
                }
            }
        };
        self.on_disk().await;
        match reply.strip_prefix(b"-") {
            Some(error) => Err(Refusal::of_error(error.trim_ascii_end())),
            None => Ok(reply),
        }
    }

    fn attempt(
        &mut self,
        args: &OwnedArgs,
        handler: &mut impl FnMut(&mut Context<'_>, Args<'_>, &mut Out) -> Answer,
        finished: Option<Done>,
    ) -> Attempt {
        let server = &*self.link.server;
        worker::with(|scratch| {
            let batch = server.enter(&mut scratch.session, unix_ms());
            let mut caller = Caller::default();
            let mut asked = Asked {
                caller: &mut caller,
                client: &mut self.client,
                store: &batch,
                server,
                worker: scratch.worker,
                pool: Some(&scratch.pool),
                hashed: None,
                finished: finished.map(Box::new),
            };
            let done = dispatch::execute_by(&mut asked, args.args(), &mut scratch.out, handler);
            if blocked::any_ready() {
                server.serve(&batch, scratch.worker);
            }
            match done {
                Err(halt) => Attempt::Halted(halt),
                Ok(()) => match scratch.out.whole(&batch) {
                    Ok(reply) => Attempt::Replied(reply),
                    Err(damaged) => Attempt::Replied(format!("-ERR {damaged}").into_bytes()),
                },
            }
        })
    }

    /// Waits until what was read or written has come as far as replies wait for.
    async fn on_disk(&mut self) {
        let server = &self.link.server;
        let commits = server.store.commits();
        if server.persist.durable.lacks(commits) {
            let _waits = Waits::begin(self.link);
            server.persist.until_durable(commits).await;
        }
    }
}

/// The request waits for others than its peer, so its connection is not idle.
struct Waits<'l>(&'l Link);

impl<'l> Waits<'l> {
    fn begin(link: &'l Link) -> Self {
        link.waiting.fetch_add(1, Relaxed);
        Self(link)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Relaxed);
    }
}

/// User and password of `Basic` and base64 of `user:password`. No user stands for the
/// default one.
fn basic(given: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let (scheme, rest) = given.split_at_checked("Basic ".len())?;
    if !scheme.eq_ignore_ascii_case(b"Basic ") {
        return None;
    }
    let both = STANDARD.decode(rest.trim_ascii()).ok()?;
    let colon = both.iter().position(|&byte| byte == b':')?;
    let (user, password) = (&both[..colon], &both[colon + 1..]);
    let user = if user.is_empty() { crate::auth::DEFAULT } else { user };
    Some((user.to_vec(), password.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn basic_credentials() {
        let given = |text: &str| basic(text.as_bytes());
        let both = |user: &str, password: &str| {
            Some((user.as_bytes().to_vec(), password.as_bytes().to_vec()))
        };
        assert_eq!(given("Basic dXNlcjpwYTpzcw=="), both("user", "pa:ss"));
        assert_eq!(given("basic OnNlY3JldA=="), both("default", "secret"));
        for wrong in ["", "Basic", "Basic ", "Basic dXNlcg==", "Bearer dXNlcjpw", "Basic !!!"] {
            assert_eq!(given(wrong), None, "{wrong}");
        }
    }
}
