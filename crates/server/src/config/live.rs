//! The values in force.

use super::{Kind, OutputLimits, PARAMETERS, Param};
use parking_lot::RwLock;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

/// The live configuration.
pub(crate) struct Config {
    texts: RwLock<Vec<String>>,
    numbers: [AtomicI64; PARAMETERS.len()],
    /// `client-output-buffer-limit`, parsed: every message published needs it.
    output_limits: RwLock<OutputLimits>,
    /// The configuration file, if one was given.
    pub file: Option<std::path::PathBuf>,
    /// The policy as `pack-policy-file` has it, in the form of `pack-policy`.
    pub(super) policy_of_file: RwLock<Option<String>>,
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config").finish_non_exhaustive()
    }
}

impl Default for Config {
    fn default() -> Self {
        let checked = Param::all().map(|id| {
            let default = id.declaration().default;
            id.check(default)
                .unwrap_or_else(|e| panic!("default of {}: {e}", id.declaration().name))
        });
        let (texts, numbers): (Vec<_>, Vec<_>) = checked.unzip();
        Self {
            texts: RwLock::new(texts),
            numbers: std::array::from_fn(|i| AtomicI64::new(numbers[i])),
            output_limits: RwLock::default(),
            file: None,
            policy_of_file: RwLock::default(),
        }
    }
}

impl Config {
    /// The number of a parameter: of a `Bool` 0 or 1, of an `Enum` its index.
    #[inline]
    pub(crate) fn number(&self, id: Param) -> i64 {
        self.numbers[id as usize].load(Relaxed)
    }

    /// Whether a `Bool` is on.
    #[inline]
    pub(crate) fn is_on(&self, id: Param) -> bool {
        self.number(id) != 0
    }

    /// The text of a parameter, as `CONFIG GET` shows it.
    pub(crate) fn text(&self, id: Param) -> String {
        self.texts.read()[id as usize].clone()
    }

    /// Sets a parameter to a value, checked.
    pub(crate) fn set(&self, id: Param, value: &str) -> Result<(), String> {
        let (text, number) = match id.declaration().kind {
            // Classes that are not named keep their limits.
            Kind::OutputLimits => {
                let limits = self.output_limits().parse(value)?;
                *self.output_limits.write() = limits;
                (limits.to_string(), 0)
            }
            _ => id.check(value)?,
        };
        self.texts.write()[id as usize] = text;
        self.numbers[id as usize].store(number, Relaxed);
        Ok(())
    }

    /// The output-buffer limits.
    pub(crate) fn output_limits(&self) -> OutputLimits {
        *self.output_limits.read()
    }
}
