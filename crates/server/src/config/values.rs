//! What values parameters take: each type reads a value, refuses it in Redis's
//! words, and says how `CONFIG GET` shows it.

use super::OutputLimits;
use super::policy::{parse_policy, policy_text};
use super::table::Param;
use snug_resp::parse_integer;
use snug_store::Class;

/// What values a parameter takes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// `yes` or `no`.
    Bool,
    /// A whole number within bounds.
    Int { min: i64, max: i64 },
    /// A whole number; what lies beyond these is brought to the nearer of them.
    Clamped { min: i64, max: i64 },
    /// A number in octal, as permissions of files are written.
    Octal { max: i64 },
    /// A number of bytes, with `k`, `kb`, `m`, `mb`, `g`, `gb` understood.
    Memory { min: i64, max: i64 },
    /// A number of bytes, or a percentage of `maxmemory`, kept as a negative number.
    MemoryOrPercent,
    /// One of these words.
    Enum(&'static [&'static str]),
    /// One or more of these words. The first says that it is none of the others.
    Words(&'static [&'static str]),
    /// Any text.
    Text,
    /// A host and a port, or nothing.
    Primary,
    /// What a client can send in an HTTP header.
    Token,
    /// The name of a file in `dir`, or of what the text says: no path.
    FileName(&'static str),
    /// `seconds changes` for any number of moments to save at.
    Save,
    /// Three scores for the system's killer when memory is out.
    OomScores,
    /// Letters of keyspace notifications.
    Events,
    /// `class hard soft seconds` for one or more classes of clients.
    OutputLimits,
    /// Percentiles, each from 0 to 100.
    Percentiles,
    /// A packing policy in JSON.
    Policy,
}

impl Kind {
    /// The values that there are, for a person; nothing where any text is one.
    pub(super) fn values(self) -> String {
        let range = |min: i64, max: i64| match (min, max) {
            (0, i64::MAX) => "0 or more".into(),
            (min, i64::MAX) => format!("{min} or more"),
            (0, max) if max == i64::from(i32::MAX) => "0 or more".into(),
            (min, max) => format!("{min} to {max}"),
        };
        match self {
            Self::Bool => "yes or no".into(),
            Self::Int { min, max } | Self::Clamped { min, max } => range(min, max),
            Self::Octal { max } => format!("octal, to {max:o}"),
            Self::Memory { min: 0, max: i64::MAX } => "bytes".into(),
            Self::Memory { min, max } => format!("bytes, {}", range(min, max)),
            Self::MemoryOrPercent => "bytes, or a percentage of maxmemory".into(),
            Self::Enum(words) => format!("one of {}", words.join(", ")),
            Self::Words(words) => format!("some of {}", words.join(", ")),
            Self::Primary => "host port".into(),
            Self::FileName(_) => "a name without a path".into(),
            Self::Save => "seconds changes ...".into(),
            Self::OutputLimits => "class hard soft seconds ...".into(),
            Self::Percentiles => "0 to 100, any number of them".into(),
            Self::Events => "letters of Ag$lshzxeKEtmdn".into(),
            Self::OomScores => "three numbers".into(),
            Self::Text | Self::Token | Self::Policy => String::new(),
        }
    }
}

impl Param {
    /// Checks a value: how it is shown, and its number.
    pub(crate) fn check(self, value: &[u8]) -> Result<(Vec<u8>, i64), String> {
        match self.declaration().kind {
            // Any bytes will do.
            Kind::Text => Ok((value.into(), 0)),
            Kind::FileName(what) if value.contains(&b'/') => {
                Err(format!("{} can't be a path, just a {what}", self.declaration().name))
            }
            Kind::FileName(_) => Ok((value.into(), 0)),
            Kind::Token if value != value.trim_ascii() || value.iter().any(u8::is_ascii_control) => {
                Err("argument must be what an HTTP header can carry: no control characters, and no spaces at its ends".into())
            }
            Kind::Token => Ok((value.into(), 0)),
            Kind::Policy => {
                let json = std::str::from_utf8(value).map_err(|_| "the policy is not UTF-8")?;
                Ok((policy_text(&parse_policy(json)?).into(), 0))
            }
            // Nothing else takes the sign that stands for what is not UTF-8.
            _ => {
                let (shown, number) = self.check_text(&String::from_utf8_lossy(value))?;
                Ok((shown.into(), number))
            }
        }
    }

    /// Checks a value of a type that takes text alone.
    fn check_text(self, value: &str) -> Result<(String, i64), String> {
        let within = |n: i64, min: i64, max: i64, shown: String| {
            if n < min || n > max {
                Err(format!("argument must be between {min} and {max} inclusive"))
            } else {
                Ok((shown, n))
            }
        };
        match self.declaration().kind {
            Kind::Bool => match value.to_ascii_lowercase().as_str() {
                "yes" => Ok(("yes".into(), 1)),
                "no" => Ok(("no".into(), 0)),
                _ => Err("argument must be 'yes' or 'no'".into()),
            },
            Kind::Int { min, max } => {
                let n = integer(value)?;
                within(n, min, max, value.into())
            }
            Kind::Clamped { min, max } => {
                let n = integer(value)?;
                let (_, n) = within(n, 0, i64::from(i32::MAX), String::new())?;
                let n = n.clamp(min, max);
                Ok((n.to_string(), n))
            }
            Kind::Octal { max } => {
                let n = i64::from_str_radix(value, 8)
                    .map_err(|_| "argument couldn't be parsed as an octal number")?;
                if (0..=max).contains(&n) {
                    Ok((format!("{n:o}"), n))
                } else {
                    Err(format!("argument must be between 0 and {max:o} inclusive"))
                }
            }
            Kind::Memory { min, max } => {
                let n = parse_memory(value).ok_or("argument must be a memory value")?;
                within(n, min, max, n.to_string())
            }
            Kind::MemoryOrPercent => {
                let percent = value.strip_suffix('%').and_then(|n| n.parse::<i64>().ok());
                match percent.filter(|&percent| percent >= 0) {
                    Some(percent @ 0..=100) => Ok((format!("{percent}%"), -percent)),
                    Some(_) => Err("percentage argument must be less or equal to 100".into()),
                    None => {
                        let n = parse_memory(value);
                        let n = n.ok_or("argument must be a memory or percent value")?;
                        within(n, 0, i64::MAX, n.to_string())
                    }
                }
            }
            Kind::Enum(words) => {
                let n = place(words, value)?;
                Ok((words[n].into(), n as i64))
            }
            Kind::Words(words) => {
                let places = value.split_ascii_whitespace().map(|word| place(words, word));
                let mut places = places.collect::<Result<Vec<usize>, String>>()?;
                // As Redis shows them: in one order, and the first only alone.
                places.sort_unstable();
                places.dedup();
                if places.len() > 1 {
                    places.retain(|&place| place > 0);
                }
                // No word at all is not one of them.
                let Some(&first) = places.first() else { return Err(one_of(words)) };
                let shown: Vec<&str> = places.iter().map(|&place| words[place]).collect();
                Ok((shown.join(" "), first as i64))
            }
            Kind::Primary => Ok((primary(value)?, 0)),
            Kind::Save => Ok((save_points(value)?, 0)),
            Kind::OomScores => Ok((oom_scores(value)?, 0)),
            Kind::Events => {
                let class = Class::parse(value)
                    .ok_or("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.")?;
                Ok((class.letters(), i64::from(class.0)))
            }
            Kind::OutputLimits => {
                let limits = OutputLimits::default().parse(value)?;
                Ok((limits.to_string(), 0))
            }
            Kind::Percentiles => {
                let name = self.declaration().name;
                let one = |word: &str| match word.parse::<f64>() {
                    Err(_) => Err(format!("Invalid {name} parameters")),
                    Ok(n) if (0.0..=100.0).contains(&n) => Ok(percentile(n)),
                    Ok(_) => Err(format!("{name} parameters should sit between [0.0,100.0]")),
                };
                let shown = value.split_ascii_whitespace().map(one);
                Ok((shown.collect::<Result<Vec<String>, String>>()?.join(" "), 0))
            }
            Kind::Text | Kind::FileName(_) | Kind::Token | Kind::Policy => Ok((value.into(), 0)),
        }
    }
}

fn integer(text: &str) -> Result<i64, &'static str> {
    parse_integer(text.as_bytes()).ok_or("argument couldn't be parsed into an integer")
}

fn one_of(words: &[&str]) -> String {
    format!("argument(s) must be one of the following: {}", words.join(", "))
}

/// The place of a word among those there are.
fn place(words: &[&str], word: &str) -> Result<usize, String> {
    words.iter().position(|known| known.eq_ignore_ascii_case(word)).ok_or_else(|| one_of(words))
}

/// A host and a port; `no one` and nothing are nobody.
fn primary(text: &str) -> Result<String, String> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    match words[..] {
        [] => Ok(String::new()),
        [no, one] if no.eq_ignore_ascii_case("no") && one.eq_ignore_ascii_case("one") => {
            Ok(String::new())
        }
        [_, port] if !port.parse::<u16>().is_ok_and(|port| port > 0) => {
            Err("Invalid master port".into())
        }
        [host, port] => Ok(format!("{host} {port}")),
        _ => Err("wrong number of arguments".into()),
    }
}

/// Moments to save at, `seconds changes` each; none at all for an empty text.
pub(super) fn save_points(text: &str) -> Result<String, String> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let fits = |(place, word): (usize, &&str)| {
        let least = i64::from(place.is_multiple_of(2));
        word.parse::<i64>().is_ok_and(|n| n >= least)
    };
    // Spaces alone say nothing, which is not the same as an empty text.
    let blank = words.is_empty() && !text.is_empty();
    if blank || !words.len().is_multiple_of(2) || !words.iter().enumerate().all(fits) {
        return Err("Invalid save parameters".into());
    }
    Ok(words.join(" "))
}

/// Scores of the main process, of a replica and of children.
fn oom_scores(text: &str) -> Result<String, String> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    if words.len() != 3 {
        return Err("wrong number of arguments".into());
    }
    let fits = |word: &&str| word.parse::<i64>().is_ok_and(|n| (-2000..=2000).contains(&n));
    if !words.iter().all(fits) {
        let why = "Invalid oom-score-adj-values, elements must be between -2000 and 2000.";
        return Err(why.into());
    }
    Ok(words.join(" "))
}

/// A percentile as it is shown: `50`, `99.9`.
fn percentile(percentile: f64) -> String {
    format!("{percentile:.6}").trim_end_matches('0').trim_end_matches('.').into()
}

/// A number of bytes as Redis reads it: `100`, `1k` (1,000), `1kb` (1,024) ...
pub(super) fn parse_memory(text: &str) -> Option<i64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let unit: i64 = match text[digits..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    if text.is_empty() {
        return Some(0);
    }
    text[..digits].parse::<i64>().ok()?.checked_mul(unit)
}
