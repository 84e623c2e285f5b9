//! What values are made of, and the few kinds of random text that workloads use.

use rand::{Rng, RngExt};

/// How `__data__` is drawn.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Payload {
    /// One random value, the same in every request, as redis-benchmark sends it.
    Fixed,
    /// Fresh random letters and digits in every request: compresses by a quarter.
    Random,
    /// Fresh English words in every request: compresses as text does.
    Text,
}

const ALPHANUMERIC: &[u8; 62] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

/// The commonest words of English, most of them nouns, verbs and adjectives that
/// a document's field would hold.
#[rustfmt::skip]
pub const WORDS: &[&str] = &[
    "time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world",
    "school", "state", "family", "student", "group", "country", "problem", "hand", "part",
    "place", "case", "week", "company", "system", "program", "question", "work", "government",
    "number", "night", "point", "home", "water", "room", "mother", "area", "money", "story",
    "fact", "month", "lot", "right", "study", "book", "eye", "job", "word", "business", "issue",
    "side", "kind", "head", "house", "service", "friend", "father", "power", "hour", "game",
    "line", "end", "member", "law", "car", "city", "community", "name", "president", "team",
    "minute", "idea", "body", "information", "back", "parent", "face", "others", "level",
    "office", "door", "health", "person", "art", "war", "history", "party", "result", "change",
    "morning", "reason", "research", "girl", "guy", "moment", "air", "teacher", "force",
    "education", "good", "new", "first", "last", "long", "great", "little", "own", "other", "old",
    "big", "high", "different", "small", "large", "next", "early", "young", "important", "few",
    "public", "bad", "same", "able", "make", "know", "take", "see", "come", "think", "look",
    "want", "give", "use", "find", "tell", "ask", "seem", "feel", "try", "leave", "call", "need",
    "become", "put", "mean", "keep", "let", "begin", "help", "talk", "turn", "start", "show",
    "hear", "play", "run", "move", "like", "live", "believe", "hold", "bring", "happen", "write",
    "provide", "sit", "stand", "lose", "pay", "meet", "include", "continue", "set", "learn",
    "lead", "understand", "watch", "follow", "stop", "create", "speak", "read", "allow", "add",
    "spend", "grow", "open", "walk", "win", "offer", "remember", "love", "consider", "appear",
    "buy", "wait", "serve", "die", "send", "expect", "build", "stay", "fall", "cut", "reach",
    "kill", "remain", "the", "and", "that", "have", "for", "not", "with", "you", "this", "but",
    "his", "from", "they", "say", "her", "she", "will", "one", "all", "would", "there", "their",
    "what", "out", "about", "who", "get", "which", "when", "can", "just", "him", "into", "some",
    "could", "them", "than", "then", "now", "only", "its", "over", "also", "after", "two", "how",
    "our", "well", "even", "because", "any", "these", "most", "was", "are", "been", "has", "had",
    "were", "is", "in", "it", "of", "to", "a", "be", "on", "as", "at", "by", "we", "or", "an",
    "my", "so", "up", "if", "no", "me", "go", "do",
];

/// Fills `bytes` with a payload of that kind.
pub fn fill(payload: Payload, rng: &mut impl Rng, bytes: &mut [u8]) {
    match payload {
        Payload::Fixed | Payload::Random => fill_alphanumeric(rng, bytes),
        Payload::Text => fill_text(rng, bytes),
    }
}

/// Fills `bytes` with letters and digits, equally likely to within 1.5 %: five
/// are cut from one random number.
pub fn fill_alphanumeric(rng: &mut impl Rng, bytes: &mut [u8]) {
    for five in bytes.chunks_mut(5) {
        let mut random = rng.next_u64();
        for byte in five {
            *byte = ALPHANUMERIC[(((random & 0xfff) * 62) >> 12) as usize];
            random >>= 12;
        }
    }
}

/// Appends `count` letters and digits.
pub fn push_alphanumeric(rng: &mut impl Rng, out: &mut Vec<u8>, count: usize) {
    let start = out.len();
    out.resize(start + count, 0);
    fill_alphanumeric(rng, &mut out[start..]);
}

/// Fills `bytes` with words, the last one cut where it must be.
fn fill_text(rng: &mut impl Rng, bytes: &mut [u8]) {
    let mut at = 0;
    while at < bytes.len() {
        for &byte in random_word(rng).as_bytes().iter().chain(b" ") {
            if at == bytes.len() {
                return;
            }
            bytes[at] = byte;
            at += 1;
        }
    }
}

/// A common word; the first ones of the list come more often, as words do.
pub fn random_word(rng: &mut impl Rng) -> &'static str {
    let skewed = rng.random::<f64>();
    WORDS[((skewed * skewed) * WORDS.len() as f64) as usize % WORDS.len()]
}

/// Appends words, separated by spaces, until `bytes` were added.
pub fn push_text(rng: &mut impl Rng, out: &mut Vec<u8>, bytes: usize) {
    let start = out.len();
    out.resize(start + bytes, 0);
    fill_text(rng, &mut out[start..]);
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::Xoshiro256PlusPlus;

    use super::*;

    #[test]
    fn payloads_fill_every_byte_and_repeat_by_seed() {
        for payload in [Payload::Fixed, Payload::Random, Payload::Text] {
            for length in [0, 1, 9, 10, 11, 1000] {
                let draw = || {
                    let mut rng = Xoshiro256PlusPlus::seed_from_u64(9);
                    let mut bytes = vec![0; length];
                    fill(payload, &mut rng, &mut bytes);
                    bytes
                };
                assert_eq!(draw(), draw());
                assert!(draw().iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b' '));
            }
        }
    }
}
