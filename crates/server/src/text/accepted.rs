//! `Accept-Encoding` (RFC 9110, section 12.5.3): which content codings a client takes, and
//! how gladly.

use snug_codec::coding::Coding;

/// Thousandths: 0 is not at all.
type Weight = u16;

/// What a client takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Accepted {
    /// In the order of [`Coding::ALL`].
    codings: [Weight; Coding::ALL.len()],
    identity: Weight,
}

/// In what a body is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// As the bytes are.
    Identity,
    /// In the coding in which it lies already.
    Lies(Coding),
    /// In this coding, which is to be made.
    Made(Coding),
    /// The client takes none of what there is.
    Nothing,
}

impl Accepted {
    /// Reads the header, whose lines are one list; without one a client is sent bytes as they
    /// are.
    pub(crate) fn of<'h>(lines: impl IntoIterator<Item = &'h str>) -> Self {
        let mut accepted = Self { codings: [0; Coding::ALL.len()], identity: 1000 };
        let mut lines = lines.into_iter().peekable();
        if lines.peek().is_none() {
            return accepted;
        }
        let (mut named, mut identity, mut others) = ([None; Coding::ALL.len()], None, None);
        for part in lines.flat_map(|line| line.split(',')) {
            let mut words = part.split(';').map(str::trim);
            let name = words.next().unwrap_or_default();
            let q = words.find_map(|word| word.strip_prefix("q=").or(word.strip_prefix("Q=")));
            let weight = q.map_or(Some(1000), weight).unwrap_or(0);
            if name.eq_ignore_ascii_case("identity") {
                identity = Some(weight);
            } else if name == "*" {
                others = Some(weight);
            } else if let Some(coding) = Coding::from_name(name) {
                named[place(coding)] = Some(weight);
            }
        }
        for (to, named) in accepted.codings.iter_mut().zip(named) {
            *to = named.or(others).unwrap_or(0);
        }
        // It is acceptable unless it is excluded, and last if it is not named.
        let unnamed = Weight::from(others != Some(0));
        accepted.identity = identity.unwrap_or(unnamed);
        accepted
    }

    fn weight(self, coding: Coding) -> Weight {
        self.codings[place(coding)]
    }

    /// Whether the client takes this coding.
    pub(crate) fn takes(self, coding: Coding) -> bool {
        self.weight(coding) > 0
    }

    /// Whether the client takes bytes as they are.
    pub(crate) fn takes_identity(self) -> bool {
        self.identity > 0
    }

    /// In what to send a body that `lies` in a coding, perhaps, and is `worth` being made
    /// into one. Of those that the client likes best, the cheapest.
    pub(crate) fn choose(self, lies: Option<Coding>, worth: bool) -> Sent {
        let best = self.codings.into_iter().max().unwrap_or(0);
        if best == 0 || self.identity > best {
            return if self.takes_identity() { Sent::Identity } else { Sent::Nothing };
        }
        if let Some(coding) = lies.filter(|&coding| self.weight(coding) == best) {
            return Sent::Lies(coding);
        }
        if !worth && self.takes_identity() {
            return Sent::Identity;
        }
        let coding = Coding::ALL.into_iter().find(|&coding| self.weight(coding) == best);
        coding.map_or(Sent::Identity, Sent::Made)
    }
}

fn place(coding: Coding) -> usize {
    Coding::ALL.iter().position(|&other| other == coding).unwrap_or(0)
}

/// A weight from 0 to 1 with at most three digits behind the point.
fn weight(text: &str) -> Option<Weight> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = part.len() <= 3 && part.bytes().all(|byte| byte.is_ascii_digit());
    let thousandths = format!("{part:0<3}").parse::<Weight>().ok()?;
    match whole {
        "0" if digits => Some(thousandths),
        "1" if digits && thousandths == 0 => Some(1000),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Coding::{Brotli, Gzip, Zstd};
    use proptest::prelude::*;

    #[test]
    fn what_is_sent() {
        for (header, lies, worth, sent) in [
            (None, Some(Zstd), true, Sent::Identity),
            (Some(""), Some(Zstd), true, Sent::Identity),
            (Some("gzip, deflate, br, zstd"), Some(Gzip), true, Sent::Lies(Gzip)),
            (Some("gzip, deflate, br, zstd"), None, true, Sent::Made(Zstd)),
            (Some("gzip, br"), Some(Zstd), true, Sent::Made(Brotli)),
            (Some("gzip, br"), Some(Zstd), false, Sent::Identity),
            (Some("X-GZIP"), None, true, Sent::Made(Gzip)),
            (Some("gzip;q=1.0, zstd;q=0.5"), Some(Zstd), true, Sent::Made(Gzip)),
            (Some("gzip;q=0, *"), Some(Gzip), true, Sent::Made(Zstd)),
            (Some("identity, gzip;q=0.5"), Some(Gzip), true, Sent::Identity),
            (Some("identity;q=0, gzip"), None, false, Sent::Made(Gzip)),
            (Some("identity;q=0"), None, true, Sent::Nothing),
            (Some("*;q=0"), None, true, Sent::Nothing),
            (Some("*;q=0, identity"), None, true, Sent::Identity),
            (Some("gzip;q=2"), Some(Gzip), true, Sent::Identity),
            (Some("gzip;q=0.0001"), Some(Gzip), true, Sent::Identity),
            (Some("gzip ; q=0.001"), Some(Gzip), true, Sent::Lies(Gzip)),
        ] {
            assert_eq!(Accepted::of(header).choose(lies, worth), sent, "{header:?}");
        }
        let two = Accepted::of(["gzip;q=0.1", "br, identity;q=0"]);
        assert_eq!(two.choose(None, true), Sent::Made(Brotli));
    }

    proptest! {
        #[test]
        fn nothing_is_sent_that_was_refused(header in "[gzipbrstdentyq=;,.*01 ]{0,40}", worth: bool, lies in prop::option::of(0usize..3)) {
            let accepted = Accepted::of([&header[..]]);
            match accepted.choose(lies.map(|n| Coding::ALL[n]), worth) {
                Sent::Lies(coding) | Sent::Made(coding) => prop_assert!(accepted.takes(coding)),
                Sent::Identity => prop_assert!(accepted.takes_identity()),
                Sent::Nothing => prop_assert!(!accepted.takes_identity()),
            }
        }
    }
}
