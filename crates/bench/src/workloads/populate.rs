//! `populate`: `DEBUG POPULATE`, a million keys `key:N` with `value:N`, to see
//! what an entry costs before any packing.

use super::{Options, WorkloadError};
use crate::run::{Items, Step, StepSettings, Work};

const KEYS: u64 = 1_000_000;

pub(super) fn plan(options: &Options) -> Result<Vec<Step>, WorkloadError> {
    let keys = options.requests.unwrap_or_else(|| options.scaled(KEYS));
    Ok(vec![Step {
        name: "populate".into(),
        settings: StepSettings::new(),
        work: Work::Call {
            words: vec!["DEBUG".into(), "POPULATE".into(), keys.to_string()],
            items: keys,
        },
        items: Items::Keys,
        rest: Some(std::time::Duration::ZERO),
        inspect: None,
    }])
}
