//! What a server tells at one moment.

use std::collections::BTreeMap;
use std::time::Instant;

use snug_bench::endpoint::{Control, ControlError, Value};
use snug_bench::server_facts;

/// A family of values of a Snug.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Family {
    pub(crate) shape: String,
    pub(crate) kind: String,
    pub(crate) verdict: String,
    pub(crate) codec: String,
    pub(crate) packed: u64,
    pub(crate) raw_bytes: u64,
    pub(crate) packed_bytes: u64,
    pub(crate) has_dictionary: bool,
}

/// All of `INFO`, and families where there are any.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    pub(crate) at: Instant,
    pub(crate) info: BTreeMap<String, String>,
    pub(crate) families: Vec<Family>,
    /// Of what the server does not tell us, its answer.
    pub(crate) denied: Option<String>,
}

impl Sample {
    pub(crate) fn take(control: &mut Control) -> Result<Self, ControlError> {
        let info = control.call(&["INFO", "everything"])?;
        let mut sample = Self {
            at: Instant::now(),
            info: server_facts::fields(&info.text()),
            families: Vec::new(),
            denied: None,
        };
        if sample.info.contains_key("snug_version") {
            match control.send(&["SNUG", "FAMILIES"])? {
                Value::List(families) => {
                    sample.families = families.iter().map(Family::of).collect();
                }
                Value::Error(reply) => sample.denied = Some(format!("families: {reply}")),
                _ => {}
            }
        }
        Ok(sample)
    }

    pub(crate) fn text(&self, field: &str) -> &str {
        self.info.get(field).map_or("", |text| text)
    }

    pub(crate) fn number(&self, field: &str) -> Option<f64> {
        self.text(field).trim_end_matches('%').parse().ok()
    }
}

impl Family {
    fn of(reply: &Value) -> Self {
        let Value::List(parts) = reply else { return Self::default() };
        let find = |name: &str| {
            let mut pairs = parts.chunks(2).filter(|pair| pair.len() == 2);
            pairs.find(|pair| pair[0].text() == name).map(|pair| &pair[1])
        };
        let text = |name: &str| match find(name) {
            // Shapes of keys are bytes: what a terminal obeys must not be among them.
            Some(Value::Text(text)) => text.escape_ascii().to_string(),
            _ => String::new(),
        };
        let number = |name: &str| find(name).and_then(Value::as_u64).unwrap_or(0);
        Self {
            shape: text("shape"),
            kind: text("type"),
            verdict: text("verdict"),
            codec: text("codec"),
            packed: number("packed"),
            raw_bytes: number("raw-bytes"),
            packed_bytes: number("packed-bytes"),
            has_dictionary: number("dictionary") != 0,
        }
    }
}
