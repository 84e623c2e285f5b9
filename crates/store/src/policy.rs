//! The policy in force, and what a change of it concerns.
//!
//! A policy is asked when something is packed, never by a write: its cost is
//! that of the sweeper. Each policy that comes into force is an edition with a
//! number. A walk over the slots that finds another edition than its last goes
//! once through what was settled by the old one, and looks again at those values
//! that the two decide differently. Where a policy asks for MIME types that
//! cannot be told without unpacking: those are decided by the packer.

use crate::sync::RwLock;
use crate::types::Type;
use snug_codec::mime;
use snug_codec::policy::{Choice, Policy, Subject};
use std::sync::Arc;

/// A policy that came into force.
#[derive(Clone, Debug, Default)]
pub struct Edition {
    /// Greater by one than that of the edition before it.
    pub number: u64,
    /// The policy itself.
    pub policy: Arc<Policy>,
}

impl Edition {
    /// What to pack the value of a key with: of the MIME type that was declared for it, or
    /// else that its first and last bytes tell; of `len` bytes in all; at `level` where the
    /// policy names none. The bytes are looked at only if the type has MIME types, the
    /// policy asks for them and none was declared.
    pub fn choose(
        &self,
        of: (Type, &[u8]),
        mime: (Option<&str>, (&[u8], &[u8])),
        len: usize,
        level: i32,
    ) -> Choice {
        choose(&self.policy, of, mime, len, level)
    }
}

pub(crate) fn choose(
    policy: &Policy,
    (kind, key): (Type, &[u8]),
    (declared, (front, back)): (Option<&str>, (&[u8], &[u8])),
    len: usize,
    level: i32,
) -> Choice {
    let row = kind.row();
    let mime = match row.has_mime && policy.asks_mime() {
        true => declared.or_else(|| mime::sniff_ends(front, back)),
        false => None,
    };
    policy.resolve(&Subject { kind: row.name, key, mime, len }, level)
}

/// The edition in force. Read once for each value that is packed.
#[derive(Debug, Default)]
pub(crate) struct InForce(RwLock<Edition>);

impl InForce {
    pub(crate) fn edition(&self) -> Edition {
        self.0.read().clone()
    }

    /// Puts a policy into force. One that is equal changes nothing.
    pub(crate) fn replace(&self, policy: Policy) {
        let mut edition = self.0.write();
        if *edition.policy != policy {
            *edition = Edition { number: edition.number + 1, policy: Arc::new(policy) };
        }
    }
}

/// A change that a walk has come upon.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// What was in force at the walk's last pass; `None` if more than one policy
    /// was since, so that nobody knows by which a value was settled.
    pub(crate) from: Option<Arc<Policy>>,
    to: Arc<Policy>,
}

impl Change {
    /// What changed from one edition to another, if anything did.
    pub(crate) fn between(old: &Edition, new: &Edition) -> Option<Self> {
        let from = (old.number + 1 == new.number).then(|| Arc::clone(&old.policy));
        (old.number != new.number).then(|| Self { from, to: Arc::clone(&new.policy) })
    }

    /// Whether a settled value may be decided differently now.
    pub(crate) fn concerns(&self, kind: Type, key: &[u8], len: usize, level: i32) -> bool {
        let Some(from) = &self.from else { return true };
        let row = kind.row();
        if row.has_mime && (from.asks_mime() || self.to.asks_mime()) {
            return true;
        }
        let subject = Subject { kind: row.name, key, mime: None, len };
        from.resolve(&subject, level) != self.to.resolve(&subject, level)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use snug_codec::Codec;

    fn policy(json: &str) -> Policy {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_change_concerns_what_is_decided_differently() {
        let in_force = InForce::default();
        let before = in_force.edition();
        in_force.replace(Policy::default());
        assert!(Change::between(&before, &in_force.edition()).is_none());

        in_force.replace(policy(r#"{"rules": [{"key": "a:*", "size_min": 10, "level": 9}]}"#));
        let keys = in_force.edition();
        let change = Change::between(&before, &keys).unwrap();
        assert!(
            change.concerns(Type::String, b"a:1", 10, 3)
                && change.concerns(Type::Stream, b"a:1", 10, 3)
        );
        assert!(
            !change.concerns(Type::String, b"a:1", 9, 3)
                && !change.concerns(Type::String, b"b:1", 10, 3)
        );

        in_force.replace(policy(r#"{"skip": ["image/"]}"#));
        let mimes = in_force.edition();
        let change = Change::between(&keys, &mimes).unwrap();
        assert!(change.concerns(Type::String, b"b:1", 10, 3), "its bytes must be seen");
        assert!(!change.concerns(Type::Stream, b"b:1", 10, 3));
        let change = Change::between(&before, &mimes).unwrap();
        assert!(change.concerns(Type::Stream, b"b:1", 10, 3), "nobody knows what was in between");

        let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
        let of = |edition: &Edition, kind, key: &[u8], bytes: &[u8]| {
            edition.choose((kind, key), (None, (bytes, bytes)), bytes.len(), 3)
        };
        assert_eq!(of(&mimes, Type::String, b"k", png).codec, Codec::None);
        let text = mimes.choose((Type::String, b"k"), (Some("text/html"), (png, png)), 16, 3);
        assert_ne!(text.codec, Codec::None, "what was declared counts");
        let image = mimes.choose((Type::String, b"k"), (Some("image/x"), (b"a", b"a")), 1, 3);
        assert_eq!(image.codec, Codec::None);
        assert_ne!(of(&mimes, Type::Stream, b"k", png).codec, Codec::None);
        assert_eq!(of(&keys, Type::String, b"a:k", png).level, 9);
        assert_eq!(of(&keys, Type::Stream, b"a:k", b"short").level, 3);
    }
}
