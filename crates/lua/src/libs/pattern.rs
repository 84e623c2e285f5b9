//! Lua 5.1's patterns.
//!
//! Lua's own matcher backtracks for as long as it likes, and recurses once for each
//! optional item of the pattern. This one recurses [`DEPTH_MAX`] deep at most and asks
//! every [`STEPS`] steps whether it may go on.

use std::ops::Range;

/// Captures that a pattern may have.
const CAPTURES_MAX: usize = 32;
/// How deep a pattern may nest, as in later Luas.
const DEPTH_MAX: usize = 200;
/// Steps after which it asks whether to go on.
const STEPS: u32 = 10_000;

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The pattern is none, and why.
    Pattern(&'static str),
    /// It was told not to go on.
    Ended,
}

/// A capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Capture {
    /// These bytes.
    Part(usize, usize),
    /// The place itself.
    Position(usize),
    /// It has begun there, and not ended.
    Open(usize),
}

/// A pattern at work on a string.
pub(super) struct Matcher<'m> {
    source: &'m [u8],
    pattern: &'m [u8],
    captures: [Capture; CAPTURES_MAX],
    level: usize,
    depth: usize,
    steps: u32,
    /// Whether a `^` in front stands for the beginning.
    anchors: bool,
    go_on: &'m dyn Fn() -> bool,
}

type Found = Result<Option<usize>, Fault>;

impl<'m> Matcher<'m> {
    /// `pattern` ends at a NUL, as a C string does.
    pub(super) fn new(source: &'m [u8], pattern: &'m [u8], go_on: &'m dyn Fn() -> bool) -> Self {
        let end = pattern.iter().position(|&b| b == 0).unwrap_or(pattern.len());
        Self {
            source,
            pattern: &pattern[..end],
            captures: [Capture::Open(0); CAPTURES_MAX],
            level: 0,
            depth: 0,
            steps: 0,
            anchors: true,
            go_on,
        }
    }

    /// Whether the pattern is to match at the beginning only.
    pub(super) fn is_anchored(&self) -> bool {
        self.anchors && self.pattern.first() == Some(&b'^')
    }

    /// The same, but a `^` in front matches itself.
    pub(super) fn unanchored(self) -> Self {
        Self { anchors: false, ..self }
    }

    /// Matches at `at` exactly; where the match ends.
    pub(super) fn match_at(&mut self, at: usize) -> Found {
        self.level = 0;
        self.depth = 0;
        let from = usize::from(self.is_anchored());
        self.step(at, from)
    }

    /// The first match from `at` on.
    pub(super) fn find(&mut self, mut at: usize) -> Result<Option<Range<usize>>, Fault> {
        loop {
            if let Some(end) = self.match_at(at)? {
                return Ok(Some(at..end));
            }
            at += 1;
            if at > self.source.len() || self.is_anchored() {
                return Ok(None);
            }
        }
    }

    /// The captures of the last match.
    pub(super) fn captures(&self) -> Result<&[Capture], Fault> {
        let captures = &self.captures[..self.level];
        match captures.iter().any(|c| matches!(c, Capture::Open(_))) {
            true => Err(Fault::Pattern("unfinished capture")),
            false => Ok(captures),
        }
    }

    /// The same with those that are not finished: an error where they are asked for.
    pub(super) fn captures_as_they_are(&self) -> &[Capture] {
        &self.captures[..self.level]
    }

    fn tick(&mut self) -> Result<(), Fault> {
        self.steps += 1;
        if self.steps >= STEPS {
            self.steps = 0;
            if !(self.go_on)() {
                return Err(Fault::Ended);
            }
        }
        Ok(())
    }

    fn at(&self, p: usize) -> u8 {
        self.pattern.get(p).copied().unwrap_or(0)
    }

    /// Matches the pattern from `p` on at `s`, one level deeper.
    fn step(&mut self, s: usize, p: usize) -> Found {
        if self.depth >= DEPTH_MAX {
            return Err(Fault::Pattern("pattern too complex"));
        }
        self.depth += 1;
        let found = self.run(s, p);
        self.depth -= 1;
        found
    }

    fn run(&mut self, mut s: usize, mut p: usize) -> Found {
        loop {
            self.tick()?;
            if p >= self.pattern.len() {
                return Ok(Some(s));
            }
            match self.at(p) {
                b'(' if self.at(p + 1) == b')' => return self.open(s, p + 2, true),
                b'(' => return self.open(s, p + 1, false),
                b')' => return self.close(s, p + 1),
                b'%' if self.at(p + 1) == b'b' => match self.balanced(s, p + 2)? {
                    Some(end) => (s, p) = (end, p + 4),
                    None => return Ok(None),
                },
                b'%' if self.at(p + 1) == b'f' => {
                    p += 2;
                    if self.at(p) != b'[' {
                        return Err(Fault::Pattern("missing '[' after '%f' in pattern"));
                    }
                    let end = self.class_end(p)?;
                    let previous = if s == 0 { 0 } else { self.source[s - 1] };
                    let next = self.source.get(s).copied().unwrap_or(0);
                    if self.in_set(previous, p, end - 1) || !self.in_set(next, p, end - 1) {
                        return Ok(None);
                    }
                    p = end;
                }
                b'%' if self.at(p + 1).is_ascii_digit() => {
                    match self.back_reference(s, self.at(p + 1))? {
                        Some(end) => (s, p) = (end, p + 2),
                        None => return Ok(None),
                    }
                }
                b'$' if p + 1 == self.pattern.len() => {
                    return Ok((s == self.source.len()).then_some(s));
                }
                _ => {
                    let end = self.class_end(p)?;
                    let here = s < self.source.len() && self.single(self.source[s], p, end);
                    match self.at(end) {
                        b'?' => {
                            if here && let Some(found) = self.step(s + 1, end + 1)? {
                                return Ok(Some(found));
                            }
                            p = end + 1;
                        }
                        b'*' => return self.most(s, p, end, 0),
                        b'+' if here => return self.most(s + 1, p, end, 0),
                        b'-' => return self.least(s, p, end),
                        b'+' => return Ok(None),
                        _ if here => (s, p) = (s + 1, end),
                        _ => return Ok(None),
                    }
                }
            }
        }
    }

    /// Where the single item that begins at `p` ends.
    fn class_end(&self, p: usize) -> Result<usize, Fault> {
        let mut at = p + 1;
        match self.at(p) {
            b'%' => match at < self.pattern.len() {
                true => Ok(at + 1),
                false => Err(Fault::Pattern("malformed pattern (ends with '%')")),
            },
            b'[' => {
                if self.at(at) == b'^' {
                    at += 1;
                }
                loop {
                    if at >= self.pattern.len() {
                        return Err(Fault::Pattern("malformed pattern (missing ']')"));
                    }
                    let byte = self.at(at);
                    at += 1;
                    if byte == b'%' && at < self.pattern.len() {
                        at += 1;
                    }
                    if self.at(at) == b']' {
                        return Ok(at + 1);
                    }
                }
            }
            _ => Ok(at),
        }
    }

    fn single(&self, byte: u8, p: usize, end: usize) -> bool {
        match self.at(p) {
            b'.' => true,
            b'%' => is_of(byte, self.at(p + 1)),
            b'[' => self.in_set(byte, p, end - 1),
            literal => literal == byte,
        }
    }

    /// Whether a byte is in the set from `[` at `p` to `]` at `end`.
    fn in_set(&self, byte: u8, mut p: usize, end: usize) -> bool {
        let mut wanted = true;
        if self.at(p + 1) == b'^' {
            wanted = false;
            p += 1;
        }
        p += 1;
        while p < end {
            if self.at(p) == b'%' {
                if is_of(byte, self.at(p + 1)) {
                    return wanted;
                }
                p += 2;
            } else if self.at(p + 1) == b'-' && p + 2 < end {
                if (self.at(p)..=self.at(p + 2)).contains(&byte) {
                    return wanted;
                }
                p += 3;
            } else {
                if self.at(p) == byte {
                    return wanted;
                }
                p += 1;
            }
        }
        !wanted
    }

    /// As many of the item as can be, then the rest.
    fn most(&mut self, s: usize, p: usize, end: usize, least: usize) -> Found {
        let mut count = 0;
        while s + count < self.source.len() && self.single(self.source[s + count], p, end) {
            count += 1;
        }
        loop {
            if let Some(found) = self.step(s + count, end + 1)? {
                return Ok(Some(found));
            }
            if count <= least {
                return Ok(None);
            }
            count -= 1;
        }
    }

    /// As few of the item as can be, then the rest.
    fn least(&mut self, mut s: usize, p: usize, end: usize) -> Found {
        loop {
            if let Some(found) = self.step(s, end + 1)? {
                return Ok(Some(found));
            }
            if s >= self.source.len() || !self.single(self.source[s], p, end) {
                return Ok(None);
            }
            s += 1;
        }
    }

    fn open(&mut self, s: usize, p: usize, position: bool) -> Found {
        if self.level >= CAPTURES_MAX {
            return Err(Fault::Pattern("too many captures"));
        }
        self.captures[self.level] = if position { Capture::Position(s) } else { Capture::Open(s) };
        self.level += 1;
        let level = self.level;
        let found = self.step(s, p)?;
        if found.is_none() {
            self.level = level - 1;
        }
        Ok(found)
    }

    fn close(&mut self, s: usize, p: usize) -> Found {
        let open = self.captures[..self.level].iter().rposition(|c| matches!(c, Capture::Open(_)));
        let Some(n) = open else { return Err(Fault::Pattern("invalid pattern capture")) };
        let was = self.captures[n];
        if let Capture::Open(from) = was {
            self.captures[n] = Capture::Part(from, s);
        }
        let found = self.step(s, p)?;
        if found.is_none() {
            self.captures[n] = was;
        }
        Ok(found)
    }

    fn balanced(&mut self, s: usize, p: usize) -> Found {
        if p + 1 >= self.pattern.len() {
            return Err(Fault::Pattern("unbalanced pattern"));
        }
        let (begin, end) = (self.at(p), self.at(p + 1));
        if self.source.get(s) != Some(&begin) {
            return Ok(None);
        }
        let mut depth = 1;
        for at in s + 1..self.source.len() {
            self.tick()?;
            let byte = self.source[at];
            if byte == end {
                depth -= 1;
                if depth == 0 {
                    return Ok(Some(at + 1));
                }
            } else if byte == begin {
                depth += 1;
            }
        }
        Ok(None)
    }

    fn back_reference(&mut self, s: usize, digit: u8) -> Found {
        let n = usize::from(digit).wrapping_sub(usize::from(b'1'));
        let capture = if n < self.level { Some(self.captures[n]) } else { None };
        let Some(Capture::Part(from, to)) = capture else {
            return match capture {
                // The place is there, and nothing of it is to be found again.
                Some(Capture::Position(_)) => Ok(None),
                _ => Err(Fault::Pattern("invalid capture index")),
            };
        };
        self.tick()?;
        let part = &self.source[from..to];
        Ok(self.source[s..].starts_with(part).then(|| s + part.len()))
    }
}

/// Whether a byte is of the class that a letter behind `%` names; any other byte stands
/// for itself.
fn is_of(byte: u8, class: u8) -> bool {
    let is = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => byte.is_ascii_whitespace() || byte == 0x0b,
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return class == byte,
    };
    is != class.is_ascii_uppercase()
}
