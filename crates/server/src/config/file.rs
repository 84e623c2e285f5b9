//! The configuration file, in Redis's format: a parameter a line, comments, and
//! other files that it includes.

use super::values::save_points;
use super::{Config, Kind, Param, find};
use crate::glob;
use snug_resp::split_args;

impl Config {
    pub(super) fn set_named(&self, name: &str, value: &str, missing: bool) -> Result<(), String> {
        let id = find(name.as_bytes()).ok_or_else(|| format!("unknown parameter '{name}'"))?;
        // A flag alone turns a switch on.
        let switch = matches!(id.declaration().kind, Kind::Bool) && missing;
        if missing && !switch {
            return Err(format!("'{name}': wrong number of arguments"));
        }
        let value = if switch { "yes" } else { value };
        let shown = if id.is_secret() { "(hidden)" } else { value };
        if id == Param::Save && !value.is_empty() {
            // Each line adds to those before; an empty one takes them all back.
            let points = save_points(value).map_err(|e| format!("'{name} {shown}': {e}"))?;
            let all = format!("{} {points}", self.text(id));
            return self.set(id, all.trim_ascii());
        }
        self.set(id, value).map_err(|e| format!("'{name} {shown}': {e}"))
    }

    /// Reads a configuration file, and those it includes where it does so.
    pub(super) fn read_file(&self, file: &str, depth: usize) -> Result<(), String> {
        if depth > INCLUDE_DEPTH_MAX {
            return Err(format!("'{file}': included too deep"));
        }
        let text =
            std::fs::read(file).map_err(|e| format!("can't open config file '{file}': {e}"))?;
        self.read_lines(&text, file, depth)
    }

    /// Reads the lines of a configuration file.
    pub(super) fn read_lines(&self, text: &[u8], file: &str, depth: usize) -> Result<(), String> {
        for (number, line) in text.split(|&b| b == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() || line[0] == b'#' {
                continue;
            }
            let context = |e: String| format!("{file}, line {}: {e}", number + 1);
            let words = split_args(line).ok_or_else(|| context("unbalanced quotes".into()))?;
            let words: Vec<String> =
                words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
            let Some((name, values)) = words.split_first() else { continue };
            if name.eq_ignore_ascii_case("include") {
                for included in values.iter().flat_map(|pattern| files(pattern)) {
                    self.read_file(&included, depth + 1).map_err(context)?;
                }
            } else {
                self.set_named(name, &values.join(" "), values.is_empty()).map_err(context)?;
            }
        }
        Ok(())
    }
}

/// How deep configuration files may include each other.
const INCLUDE_DEPTH_MAX: usize = 16;

/// The files that an `include` names: one, there or not, or those that fit a
/// pattern, in the order of their names, which may be none.
fn files(pattern: &str) -> Vec<String> {
    let is_pattern = |text: &str| text.contains(['*', '?', '[']);
    if !is_pattern(pattern) {
        return vec![pattern.into()];
    }
    let root = if pattern.starts_with('/') { "/" } else { "" };
    let mut found = vec![root.to_owned()];
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        let mut deeper = Vec::new();
        for folder in found {
            if !is_pattern(part) {
                deeper.push(format!("{folder}{part}/"));
                continue;
            }
            let entries = std::fs::read_dir(if folder.is_empty() { "." } else { &folder });
            let names = entries.into_iter().flatten().flatten();
            let names = names.filter_map(|entry| entry.file_name().into_string().ok());
            // A name that begins with a dot is hidden from a pattern that does not.
            let fits = |name: &String| {
                (!name.starts_with('.') || part.starts_with('.'))
                    && glob::matches(part.as_bytes(), name.as_bytes(), false)
            };
            deeper.extend(names.filter(fits).map(|name| format!("{folder}{name}/")));
        }
        found = deeper;
    }
    found.sort();
    let files = found.into_iter().map(|path| path.trim_end_matches('/').to_owned());
    files.filter(|path| std::fs::exists(path).unwrap_or(false)).collect()
}
