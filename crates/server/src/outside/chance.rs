//! What is drawn at random.

/// Forty random hexadecimal digits.
pub(crate) fn random_hex() -> String {
    random_digits(40)
}

/// So many random hexadecimal digits, which nobody can guess.
pub(crate) fn random_digits(count: usize) -> String {
    let digit = |_| char::from_digit(rand::random_range(0..16), 16).unwrap_or('0');
    (0..count).map(digit).collect()
}
