//! Random choices that generated kinds are made of: words, names, numbers, ids.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, RngExt, SeedableRng};

use crate::payload::random_word;

const FIRST: &[&str] = &[
    "ada", "alan", "amara", "anders", "anya", "aurel", "bela", "bruno", "carla", "chen", "dario",
    "dunja", "edith", "emil", "esra", "farid", "fiona", "gita", "grace", "hakan", "hedy", "hugo",
    "ines", "irma", "jamal", "jonas", "kaito", "karin", "lena", "liam", "linus", "luisa", "malik",
    "mara", "marek", "mina", "nadia", "nils", "noor", "olga", "omar", "paola", "pavel", "quinn",
    "rana", "remy", "rosa", "samir", "selma", "sofia", "tamar", "teo", "ulla", "umar", "vera",
    "viktor", "wanda", "xenia", "yara", "yusuf", "zoe", "zora",
];
const LAST: &[&str] = &[
    "abbott",
    "achebe",
    "alvarez",
    "andersson",
    "banerjee",
    "bauer",
    "becker",
    "bianchi",
    "brown",
    "castro",
    "cohen",
    "costa",
    "dahl",
    "dubois",
    "eriksen",
    "farouk",
    "ferrari",
    "fischer",
    "garcia",
    "gomez",
    "haas",
    "hansen",
    "haddad",
    "hoffmann",
    "ibrahim",
    "ivanova",
    "jansen",
    "jimenez",
    "johnson",
    "kaya",
    "keller",
    "khan",
    "kim",
    "kovacs",
    "kowalski",
    "larsen",
    "lee",
    "lopez",
    "lovelace",
    "maier",
    "martin",
    "mensah",
    "meyer",
    "moreau",
    "murphy",
    "nagy",
    "nakamura",
    "nguyen",
    "novak",
    "okafor",
    "olsen",
    "park",
    "patel",
    "pereira",
    "petrov",
    "quist",
    "rahman",
    "ricci",
    "rossi",
    "santos",
    "sato",
    "schmidt",
    "silva",
    "singh",
    "smith",
    "sokolov",
    "suzuki",
    "tanaka",
    "thompson",
    "toth",
    "turing",
    "ueda",
    "vargas",
    "virtanen",
    "wagner",
    "wang",
    "weber",
    "williams",
    "yamada",
    "yilmaz",
    "young",
    "zhang",
    "zimmer",
];
/// Cities, with their countries.
pub(super) const CITIES: &[(&str, &str)] = &[
    ("Amsterdam", "NL"),
    ("Ankara", "TR"),
    ("Athens", "GR"),
    ("Bangkok", "TH"),
    ("Berlin", "DE"),
    ("Bogota", "CO"),
    ("Boston", "US"),
    ("Brussels", "BE"),
    ("Cairo", "EG"),
    ("Cape Town", "ZA"),
    ("Chicago", "US"),
    ("Copenhagen", "DK"),
    ("Delhi", "IN"),
    ("Denver", "US"),
    ("Dublin", "IE"),
    ("Geneva", "CH"),
    ("Hamburg", "DE"),
    ("Hanoi", "VN"),
    ("Helsinki", "FI"),
    ("Jakarta", "ID"),
    ("Kyoto", "JP"),
    ("Lagos", "NG"),
    ("Lima", "PE"),
    ("Lisbon", "PT"),
    ("London", "GB"),
    ("Lyon", "FR"),
    ("Madrid", "ES"),
    ("Manila", "PH"),
    ("Milan", "IT"),
    ("Montreal", "CA"),
    ("Mumbai", "IN"),
    ("Nairobi", "KE"),
    ("Oslo", "NO"),
    ("Paris", "FR"),
    ("Porto", "PT"),
    ("Prague", "CZ"),
    ("Quito", "EC"),
    ("Riga", "LV"),
    ("Rome", "IT"),
    ("Seattle", "US"),
    ("Seoul", "KR"),
    ("Sofia", "BG"),
    ("Tallinn", "EE"),
    ("Tokyo", "JP"),
    ("Toronto", "CA"),
    ("Vienna", "AT"),
    ("Warsaw", "PL"),
    ("Zagreb", "HR"),
    ("Zurich", "CH"),
];

/// A source of random choices.
pub(super) struct Draw(Xoshiro256PlusPlus);

impl Draw {
    pub(super) fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// Below `bound`.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0.random_range(0..bound)
    }

    pub(super) fn between(&mut self, from: u64, to: u64) -> u64 {
        self.0.random_range(from..to)
    }

    /// 0 to 1.
    pub(super) fn share(&mut self) -> f64 {
        self.0.random::<f64>()
    }

    /// True one time in so many.
    pub(super) fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// About as people use things: few very often, many seldom.
    pub(super) fn skewed(&mut self, bound: u64) -> u64 {
        let share = self.share();
        ((share * share * share) * bound as f64) as u64
    }

    /// Normally distributed, by twelve uniform ones.
    pub(super) fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.share()).sum::<f64>() - 6.0
    }

    pub(super) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    pub(super) fn word(&mut self) -> &'static str {
        random_word(&mut self.0)
    }

    /// Words, `by` between them.
    pub(super) fn words(&mut self, count: u64, by: &str) -> String {
        let words: Vec<&str> = (0..count).map(|_| self.word()).collect();
        words.join(by)
    }

    /// A sentence of so many words.
    pub(super) fn sentence(&mut self, words: u64) -> String {
        let mut text = self.words(words, " ");
        text[..1].make_ascii_uppercase();
        text.push('.');
        text
    }

    /// Sentences of at least so many bytes.
    pub(super) fn text(&mut self, bytes: u64) -> String {
        let mut text = String::new();
        while (text.len() as u64) < bytes {
            let words = self.between(5, 16);
            let sentence = self.sentence(words);
            text += if text.is_empty() { "" } else { " " };
            text += &sentence;
        }
        text
    }

    pub(super) fn first(&mut self) -> &'static str {
        self.pick(FIRST)
    }

    pub(super) fn last(&mut self) -> &'static str {
        self.pick(LAST)
    }

    /// A first name of `FIRST` and a last one, both with a capital.
    pub(super) fn full_name(&mut self) -> String {
        let (first, last) = (self.first(), self.last());
        format!("{} {}", capital(first), capital(last))
    }

    /// `ada.lopez`; the number tells it from others.
    pub(super) fn user(&mut self, number: u64) -> String {
        let (first, last) = (self.first(), self.last());
        let second = char::from(b'a' + (number % 26) as u8);
        let third = char::from(b'a' + (number / 26 % 26) as u8);
        match number % 4 {
            0 => format!("{first}.{second}{third}.{last}"),
            1 => format!("{first}_{last}{number}"),
            2 => format!("{}{third}{last}.{second}", &first[..1]),
            _ => format!("{last}.{first}{third}{second}"),
        }
    }

    pub(super) fn email(&mut self, number: u64) -> String {
        let at = ["gmail.com", "yahoo.com", "outlook.com", "web.de", "proton.me", "example.org"];
        let user = self.user(number);
        let host = if self.one_in(4) {
            format!("{}-{}.com", self.word(), self.word())
        } else {
            at[self.skewed(at.len() as u64) as usize].to_owned()
        };
        format!("{user}@{host}")
    }

    pub(super) fn digits(&mut self, count: usize) -> String {
        (0..count).map(|_| char::from(b'0' + self.below(10) as u8)).collect()
    }

    pub(super) fn hex(&mut self, count: usize) -> String {
        (0..count).map(|_| self.pick(b"0123456789abcdef") as char).collect()
    }

    pub(super) fn letters(&mut self, count: usize) -> String {
        let all = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
        (0..count).map(|_| self.pick(all) as char).collect()
    }

    pub(super) fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.0.fill_bytes(&mut bytes);
        bytes
    }

    /// A random UUID, of version 4.
    pub(super) fn uuid(&mut self) -> String {
        let (a, b, c, e) = (self.hex(8), self.hex(4), self.hex(3), self.hex(12));
        format!("{a}-{b}-4{c}-{}{}-{e}", self.pick(&["8", "9", "a", "b"]), self.hex(3))
    }

    pub(super) fn ip(&mut self) -> String {
        let part = |draw: &mut Self| draw.below(256);
        format!("{}.{}.{}.{}", self.between(1, 224), part(self), part(self), part(self))
    }

    /// A moment of 2026, in Unix milliseconds.
    pub(super) fn moment(&mut self) -> u64 {
        1_767_225_600_000 + self.below(320 * 86_400_000)
    }

    /// A moment of 2026 as `2026-03-01T12:33:12.123Z`.
    pub(super) fn date(&mut self) -> String {
        let ms = self.moment();
        iso(ms)
    }
}

/// A Unix time in milliseconds, of 2026, as ISO 8601 writes it.
pub(super) fn iso(ms: u64) -> String {
    let (day, rest) = ((ms - 1_767_225_600_000) / 86_400_000, ms % 86_400_000);
    let (mut month, mut left) = (0, day);
    let days = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    while left >= days[month] {
        left -= days[month];
        month += 1;
    }
    let (hour, minute) = (rest / 3_600_000, rest / 60_000 % 60);
    let (second, milli) = (rest / 1000 % 60, rest % 1000);
    format!("2026-{:02}-{:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z", month + 1, left + 1)
}

pub(super) fn capital(word: &str) -> String {
    let mut word = word.to_owned();
    word[..1].make_ascii_uppercase();
    word
}
