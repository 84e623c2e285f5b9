//! What it costs to decide whether a value is packed.

use super::timing::timed;
use super::{Line, Options, data};
use serde::{Deserialize, Serialize};
use snug_codec::estimate::Estimate;
use snug_codec::family::{Family, FamilyConfig};
use snug_codec::{Codec, Workspace, WorkspaceConfig};

/// What deciding costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DecidingLine {
    /// The kind of payload, 4 KiB of it.
    pub payload: String,
    /// The estimate's share of the size that would remain.
    pub estimated_share: f32,
    /// What zstd level 3 really leaves.
    pub real_share: f64,
    /// CPU microseconds of one estimate.
    pub estimate_us: f64,
    /// What a family's judging costs, in percent of a level-1 pass over the values.
    pub judging_percent_of_level_1: f64,
}

impl Line for DecidingLine {
    const HEADS: &[&str] =
        &["payload", "estimated share", "real share", "estimate us", "judging, % of level 1"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.payload.clone(),
            format!("{:.2}", self.estimated_share),
            format!("{:.2}", self.real_share),
            format!("{:.2}", self.estimate_us),
            format!("{:.2}", self.judging_percent_of_level_1),
        ]
    }
}

pub(super) fn deciding(options: &Options, payload: &'static str) -> DecidingLine {
    let values: Vec<Vec<u8>> =
        (0..64).map(|i| data::payload(payload, 4096, options.seed + i)).collect();
    let mut ws = Workspace::new(WorkspaceConfig::default());
    let mut shares = 0.0;
    let estimate = timed(options.cell_seconds, || {
        shares = values.iter().map(|value| Estimate::of(value).ratio()).sum::<f32>();
    });
    // As many values as a family meets in ordinary life: the verdict has settled.
    let mut family = Family::new(FamilyConfig::default(), options.seed);
    let rounds = 256;
    let judge = timed(options.cell_seconds, || {
        for _ in 0..rounds {
            for value in &values {
                std::hint::black_box(family.judge(value));
            }
        }
    }) / f64::from(rounds);
    let mut packed = Vec::new();
    let level_1 = timed(options.cell_seconds, || {
        packed.clear();
        for value in &values {
            ws.pack(Codec::Zstd, 1, None, value, &mut packed).expect("can be packed");
        }
    });
    packed.clear();
    for value in &values {
        ws.pack(Codec::Zstd, 3, None, value, &mut packed).expect("can be packed");
    }
    DecidingLine {
        payload: payload.into(),
        estimated_share: shares / 64.0,
        real_share: packed.len() as f64 / (64.0 * 4096.0),
        estimate_us: estimate / 64.0 * 1e6,
        judging_percent_of_level_1: judge / level_1 * 100.0,
    }
}
