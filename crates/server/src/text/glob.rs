//! Glob patterns as Redis matches them: `*`, `?`, `[abc]`, `[^a-z]`, `\x`.

/// The most stars that lead anywhere: a text that would need more does not match.
/// Redis's own bound since 7.2.6, there on its recursion.
const STARS_MAX: u32 = 1000;

/// Whether all of `text` matches `pattern`.
///
/// Iterative, with the last `*` to fall back to: O(pattern × text) at worst,
/// where a recursive matcher is exponential in the number of stars.
pub(crate) fn matches(pattern: &[u8], text: &[u8], ignore_case: bool) -> bool {
    // Redis has stars match nothing behind other text alone.
    if text.is_empty() {
        return pattern.is_empty();
    }
    let fold = |b: u8| if ignore_case { b.to_ascii_lowercase() } else { b };
    let (mut p, mut t) = (0, 0);
    let mut star = None;
    let mut stars = 0;
    loop {
        if p < pattern.len() && pattern[p] == b'*' {
            while pattern.get(p) == Some(&b'*') {
                p += 1;
            }
            if p == pattern.len() {
                return true;
            }
            stars += 1;
            if stars > STARS_MAX {
                return false;
            }
            star = Some((p, t));
            continue;
        }
        if t == text.len() {
            return p == pattern.len();
        }
        match (p < pattern.len()).then(|| one(&pattern[p..], fold(text[t]), &fold)).flatten() {
            Some(used) => {
                p += used;
                t += 1;
            }
            None => match star {
                Some((after, from)) => {
                    star = Some((after, from + 1));
                    p = after;
                    t = from + 1;
                }
                None => return false,
            },
        }
    }
}

/// Matches one byte against the pattern's first element: the bytes of pattern
/// that element takes, if it matches.
fn one(pattern: &[u8], byte: u8, fold: &impl Fn(u8) -> u8) -> Option<usize> {
    match pattern[0] {
        b'?' => Some(1),
        b'\\' if pattern.len() > 1 => (fold(pattern[1]) == byte).then_some(2),
        b'[' => {
            let negated = pattern.get(1) == Some(&b'^');
            let mut at = if negated { 2 } else { 1 };
            let mut found = false;
            loop {
                match *pattern.get(at..).unwrap_or_default() {
                    // An unclosed class ends with the pattern.
                    [] => break,
                    [b']', ..] => {
                        at += 1;
                        break;
                    }
                    [b'\\', literal, ..] => {
                        found |= fold(literal) == byte;
                        at += 2;
                    }
                    [from, b'-', to, ..] => {
                        let (from, to) = (fold(from.min(to)), fold(from.max(to)));
                        found |= (from..=to).contains(&byte);
                        at += 3;
                    }
                    [literal, ..] => {
                        found |= fold(literal) == byte;
                        at += 1;
                    }
                }
            }
            (found != negated).then_some(at.min(pattern.len()))
        }
        literal => (fold(literal) == byte).then_some(1),
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn as_redis_matches() {
        let cases: &[(&str, &str, bool)] = &[
            ("", "", true),
            ("*", "", false),
            ("a*", "a", true),
            ("", "a", false),
            ("h?llo", "hello", true),
            ("h*llo", "heeeello", true),
            ("h*llo", "hllo", true),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hallo", true),
            ("h\\*llo", "h*llo", true),
            ("h\\*llo", "hello", false),
            ("*a*b*c", "xaxbxc", true),
            ("*a*b*c", "xaxbx", false),
            ("a**b", "ab", true),
            ("[", "[", false),
            ("[a", "a", true),
            ("a[", "a", false),
        ];
        for &(pattern, text, expected) in cases {
            assert_eq!(
                matches(pattern.as_bytes(), text.as_bytes(), false),
                expected,
                "{pattern} {text}"
            );
        }
        assert!(matches(b"HeLLo*", b"hEllO there", true));
    }

    #[test]
    fn stars_are_bounded() {
        let text = vec![b'a'; 3000];
        let stars = |n| b"*?".repeat(n);
        assert!(matches(&stars(1000), &text, false));
        assert!(!matches(&stars(1001), &text, false));
        assert!(matches(&[b'*'; 3000], &text, false), "a run of stars is one");
    }

    #[test]
    fn many_stars_take_no_time() {
        let text = vec![b'a'; 2000];
        assert!(!matches(
            &b"a*".repeat(60).into_iter().chain(*b"b").collect::<Vec<_>>(),
            &text,
            false
        ));
    }
}
