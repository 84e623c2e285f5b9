//! What is drawn at random.

/// Forty random hexadecimal digits.
pub(crate) fn random_hex() -> String {
    (0..40).map(|_| char::from_digit(rand::random_range(0..16), 16).unwrap_or('0')).collect()
}
