//! `bit`: operations on 32 bits, as LuaJIT's BitOp does them.

use super::Functions;
use crate::machine::{Answer, Raise, Stack};

pub(super) const FUNCTIONS: Functions = &[
    ("tobit", |s| give(s, |s| bits(s, 1))),
    ("bnot", |s| give(s, |s| Ok(!bits(s, 1)?))),
    ("band", |s| fold(s, |a, b| a & b)),
    ("bor", |s| fold(s, |a, b| a | b)),
    ("bxor", |s| fold(s, |a, b| a ^ b)),
    ("lshift", |s| shift(s, |a, n| a << n)),
    ("rshift", |s| shift(s, |a, n| a >> n)),
    ("arshift", |s| shift(s, |a, n| (a as i32 >> n) as u32)),
    ("rol", |s| shift(s, u32::rotate_left)),
    ("ror", |s| shift(s, u32::rotate_right)),
    ("bswap", |s| give(s, |s| Ok(bits(s, 1)?.swap_bytes()))),
    ("tohex", to_hex),
];

/// 2^52 + 2^51: a number added to it has its lowest 32 bits, rounded, in the mantissa.
const TO_BITS: f64 = 6_755_399_441_055_744.0;

fn bits(stack: &Stack<'_>, at: usize) -> Result<u32, Raise> {
    Ok((stack.check_number(at)? + TO_BITS).to_bits() as u32)
}

fn give(stack: &mut Stack<'_>, of: impl FnOnce(&Stack<'_>) -> Result<u32, Raise>) -> Answer {
    let result = of(stack)? as i32;
    stack.push_number(result.into());
    Ok(1)
}

fn fold(stack: &mut Stack<'_>, op: fn(u32, u32) -> u32) -> Answer {
    give(stack, |stack| {
        (2..=stack.top()).try_fold(bits(stack, 1)?, |all, at| Ok(op(all, bits(stack, at)?)))
    })
}

fn shift(stack: &mut Stack<'_>, op: fn(u32, u32) -> u32) -> Answer {
    give(stack, |stack| Ok(op(bits(stack, 1)?, bits(stack, 2)? & 31)))
}

/// Hexadecimal digits, eight at most; capitals for a negative number of them, the least
/// of which has no absolute value.
fn to_hex(stack: &mut Stack<'_>) -> Answer {
    let number = bits(stack, 1)?;
    let digits = if stack.top() < 2 { 8 } else { bits(stack, 2)? as i32 };
    let count = digits.unsigned_abs().min(8) as usize;
    let all = if digits < 0 { format!("{number:08X}") } else { format!("{number:08x}") };
    stack.push_bytes(&all[8 - count..]);
    Ok(1)
}
