//! Answers: those with a body of the store's, and those that say why there is none.
//!
//! A refusal is a JSON object of one field, `error`. What the engine refuses it refuses in
//! Redis's words; their code says which status of HTTP that is.

use super::body::Body;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};

/// What a request is answered.
pub(super) type Answer = Response<Body>;

/// Why a request is not done.
#[derive(Debug)]
pub(super) struct Refusal {
    pub status: StatusCode,
    pub why: String,
    /// Headers that the status asks for.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The body of the request was read to its end.
    pub body_was_read: bool,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, why: impl Into<String>) -> Self {
        Self { status, why: why.into(), headers: Vec::new(), body_was_read: false }
    }

    pub(super) fn bad(why: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, why)
    }

    pub(super) fn with(mut self, name: HeaderName, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.push((name, value));
        }
        self
    }

    /// The same, said when the body of the request had been read.
    pub(super) fn after_body(mut self) -> Self {
        self.body_was_read = true;
        self
    }

    /// What the engine has refused, by the first word of its error.
    pub(super) fn of_error(error: &[u8]) -> Self {
        let text = String::from_utf8_lossy(error).into_owned();
        let (code, why) = text.split_once(' ').unwrap_or(("ERR", &text));
        let status = match code {
            "NOAUTH" | "WRONGPASS" => StatusCode::UNAUTHORIZED,
            "NOPERM" | "READONLY" => StatusCode::FORBIDDEN,
            "OOM" => StatusCode::INSUFFICIENT_STORAGE,
            "WRONGTYPE" => StatusCode::CONFLICT,
            "MOVED" | "ASK" => StatusCode::MISDIRECTED_REQUEST,
            "LOADING" | "MASTERDOWN" | "MISCONF" | "NOREPLICAS" | "BUSY" | "CLUSTERDOWN"
            | "TRYAGAIN" => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let why = if code == "ERR" { why } else { &text };
        let refusal = Self::new(status, why);
        match status {
            StatusCode::UNAUTHORIZED => {
                refusal.with(header::WWW_AUTHENTICATE, "Basic realm=\"snug\", charset=\"UTF-8\"")
            }
            StatusCode::SERVICE_UNAVAILABLE => refusal.with(header::RETRY_AFTER, "1"),
            _ => refusal,
        }
    }

    /// Another method than those that a path has.
    pub(super) fn method(allowed: &'static str) -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, format!("allowed: {allowed}"))
            .with(header::ALLOW, allowed)
    }
}

impl From<Refusal> for Answer {
    fn from(refusal: Refusal) -> Self {
        let body = serde_json::json!({ "error": refusal.why }).to_string() + "\n";
        let mut answer = json(refusal.status, body);
        answer.headers_mut().extend(refusal.headers);
        answer
    }
}

/// An answer without a body.
pub(super) fn empty(status: StatusCode) -> Answer {
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = status;
    answer
}

/// A document of the server's own.
pub(super) fn json(status: StatusCode, text: String) -> Answer {
    let mut answer = Response::new(Body::of(text.into()));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_engine_refuses_has_a_status() {
        for (error, status, why) in [
            ("NOAUTH Authentication required.", 401, "NOAUTH Authentication required."),
            ("OOM command not allowed", 507, "OOM command not allowed"),
            ("READONLY You can't write", 403, "READONLY You can't write"),
            ("LOADING Redis is loading", 503, "LOADING Redis is loading"),
            ("ERR something", 500, "something"),
            ("", 500, ""),
        ] {
            let refusal = Refusal::of_error(error.as_bytes());
            assert_eq!((refusal.status.as_u16(), &refusal.why[..]), (status, why));
        }
        let headers = Refusal::of_error(b"NOAUTH x").headers;
        assert_eq!(headers[0].0, header::WWW_AUTHENTICATE);
    }
}
