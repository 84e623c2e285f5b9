//! `math.random`, as Redis has it: the same numbers for the same seed on every machine.

use super::Functions;
use crate::machine::{Answer, Raise, Stack};
use std::cell::Cell;

pub(super) const FUNCTIONS: Functions = &[("random", random), ("randomseed", random_seed)];

/// The low half of the state that a seed becomes, and the generator's two constants:
/// those of POSIX's `lrand48`.
const LOW: u64 = 0x330e;
const FACTOR: u64 = 0x5_deec_e66d;
const TERM: u64 = 0xb;
const MASK: u64 = (1 << 48) - 1;
/// Numbers are below it.
const MAX: f64 = 2_147_483_647.0;

thread_local! {
    static STATE: Cell<u64> = const { Cell::new(0x1234_abcd_330e) };
}

/// A number in [0, 1).
fn draw() -> f64 {
    let state = STATE.get().wrapping_mul(FACTOR).wrapping_add(TERM) & MASK;
    STATE.set(state);
    let drawn = (state >> 17) as i64;
    (drawn % 2_147_483_647) as f64 / MAX
}

fn random(stack: &mut Stack<'_>) -> Answer {
    let drawn = match stack.top() {
        0 => draw(),
        1 => {
            let most = stack.check_int(1)?;
            if most < 1 {
                return Err(Raise::arg(1, "interval is empty"));
            }
            (draw() * most as f64).floor() + 1.0
        }
        2 => {
            let (least, most) = (stack.check_int(1)?, stack.check_int(2)?);
            if least > most {
                return Err(Raise::arg(2, "interval is empty"));
            }
            (draw() * (most as f64 - least as f64 + 1.0)).floor() + least as f64
        }
        _ => return Err(Raise::text("wrong number of arguments")),
    };
    stack.push_number(drawn);
    Ok(1)
}

fn random_seed(stack: &mut Stack<'_>) -> Answer {
    let seed = stack.check_int(1)? as u32;
    STATE.set(u64::from(seed) << 16 | LOW);
    Ok(0)
}
