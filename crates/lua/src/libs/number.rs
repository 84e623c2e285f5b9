//! Numbers as C's `printf` writes them with `%.14g` and `%.17g`.

/// As `%.14g`: what Lua's `tostring` and JSON get.
pub fn format_g14(number: f64) -> String {
    format_g(number, 14)
}

/// As `%.17g`: what a command gets.
pub fn format_g17(number: f64) -> String {
    format_g(number, 17)
}

/// As `%.{digits}g`.
pub(crate) fn format_g(number: f64, digits: usize) -> String {
    if number.is_nan() {
        return if number.is_sign_negative() { "-nan".into() } else { "nan".into() };
    }
    if number.is_infinite() {
        return if number < 0.0 { "-inf".into() } else { "inf".into() };
    }
    let digits = digits.max(1);
    let scientific = format!("{number:.*e}", digits - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs());
    }
    let decimals = (digits as i32 - 1 - exponent).max(0) as usize;
    trimmed(&format!("{number:.decimals$}")).to_owned()
}

/// Without zeros at the end of a fraction, or the point if nothing is left of it.
fn trimmed(text: &str) -> &str {
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_c_writes_them() {
        for (number, wanted) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (100.0, "100"),
            (0.1, "0.1"),
            (1e15, "1e+15"),
            (123456789012345.0, "1.2345678901234e+14"),
            (1e14, "1e+14"),
            (99999999999999.0, "99999999999999"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (2.123456789012345, "2.1234567890123"),
            (-1.5e300, "-1.5e+300"),
        ] {
            assert_eq!(format_g14(number), wanted);
        }
        assert_eq!(format_g17(0.1), "0.10000000000000001");
        assert_eq!(format_g17(1e17), "1e+17");
        assert_eq!(format_g17(3.3), "3.2999999999999998");
    }
}
