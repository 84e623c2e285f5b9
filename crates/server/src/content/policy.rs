//! `GET` and `PUT /content/config`: the packing policy, with the rights of `SNUG POLICY`.

use super::answer::{Answer, Refusal, json};
use super::ask::Asking;
use super::receive::{Received, receive};
use crate::admin::refused_policy;
use crate::config::{POLICY_BYTES_MAX, Param};
use hyper::body::Incoming;
use hyper::{Method, Request, StatusCode};

/// Answers with the policy in force, after it was replaced by the body of a `PUT`.
pub(super) async fn answer(
    asking: &mut Asking<'_>,
    request: Request<Incoming>,
) -> Result<Answer, Refusal> {
    match *request.method() {
        Method::GET | Method::HEAD => _ = asking.command(&[b"SNUG", b"POLICY", b"GET"]).await?,
        Method::PUT => {
            if let Some((status, why)) = refused_policy(request.headers()) {
                return Err(Refusal::new(status, why));
            }
            let received =
                receive(asking.link, request.into_body(), POLICY_BYTES_MAX, None).await?;
            let policy = match received {
                Received::Short(policy) => policy,
                Received::Long(chain) => chain.to_vec(),
            };
            if policy.trim_ascii().is_empty() {
                return Err(Refusal::bad("there is no policy in the request's body").after_body());
            }
            asking.command(&[b"SNUG", b"POLICY", b"SET", &policy]).await.map_err(reason)?;
        }
        _ => return Err(Refusal::method("GET, HEAD, PUT")),
    }
    let policy = asking.link.server.config.text(Param::PackPolicy);
    Ok(json(StatusCode::OK, policy + "\n"))
}

/// A policy that cannot be is the client's mistake.
fn reason(mut refusal: Refusal) -> Refusal {
    if refusal.status == StatusCode::INTERNAL_SERVER_ERROR {
        refusal.status = StatusCode::BAD_REQUEST;
    }
    refusal.after_body()
}
