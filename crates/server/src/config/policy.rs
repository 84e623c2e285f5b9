//! The packing policy as a parameter: its text, and the file that it may come from.

use super::{Config, Param};
use snug_codec::policy::Policy;
use std::io::Read as _;

/// The longest policy that is read, in bytes.
pub(crate) const POLICY_BYTES_MAX: usize = 256 * 1024;

/// Reads a policy; nothing at all is the policy without opinions. The error says
/// what is wrong and where.
pub(crate) fn parse_policy(json: &str) -> Result<Policy, String> {
    if json.len() > POLICY_BYTES_MAX {
        return Err(format!("the policy is longer than {POLICY_BYTES_MAX} bytes"));
    }
    match json.trim() {
        "" => Ok(Policy::default()),
        // The library would take a list for the fields in their order.
        json if !json.starts_with('{') => Err("a policy is a JSON object".into()),
        json => serde_json::from_str(json).map_err(|e| e.to_string()),
    }
}

/// A policy as `CONFIG GET` shows it.
pub(super) fn policy_text(policy: &Policy) -> String {
    // A map of strings and numbers always is JSON.
    serde_json::to_string(policy).unwrap_or_default()
}

impl Config {
    /// Reads `pack-policy-file`, if one is named: its policy holds unless
    /// `pack-policy` says another. The error is one line for a person.
    pub(crate) fn read_policy_file(&self) -> Result<(), String> {
        if self.is_empty(Param::PackPolicyFile) {
            return Ok(());
        }
        let file = self.path(Param::PackPolicyFile);
        let context =
            |e: &dyn std::fmt::Display| format!("pack-policy-file '{}': {e}", file.display());
        let text = std::fs::File::open(&file).and_then(|open| {
            let mut text = String::new();
            open.take(POLICY_BYTES_MAX as u64 + 1).read_to_string(&mut text).map(|_| text)
        });
        let policy = parse_policy(&text.map_err(|e| context(&e))?).map_err(|e| context(&e))?;
        let text = policy_text(&policy);
        if self.text(Param::PackPolicy) == Param::PackPolicy.declaration().default {
            self.set(Param::PackPolicy, text.as_bytes()).map_err(|e| context(&e))?;
        }
        *self.policy_of_file.write() = Some(text.into());
        Ok(())
    }

    /// Whether the policy in force is what `pack-policy-file` says.
    pub(super) fn policy_is_of_file(&self) -> bool {
        self.policy_of_file.read().as_ref() == Some(&self.bytes(Param::PackPolicy))
    }
}
