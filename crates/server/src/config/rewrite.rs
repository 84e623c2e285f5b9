//! `CONFIG REWRITE`: the values in force, written into the configuration file.

use super::{Config, Kind, Param, find};

impl Config {
    /// Whether a parameter need not stand in the configuration file: it has its
    /// default, or what another file says.
    fn goes_without_saying(&self, id: Param) -> bool {
        let text = self.text(id);
        match id {
            Param::PackPolicy if self.policy_of_file.read().is_some() => self.policy_is_of_file(),
            _ => text == Self::default().text(id),
        }
    }

    /// Writes the values in force into the configuration file: lines that
    /// name a parameter are brought up to date, everything else stays as it
    /// is, and what differs from its default is added at the end. The file is
    /// replaced in one step or not at all.
    pub(crate) fn rewrite(&self, file: &std::path::Path) -> std::io::Result<()> {
        let old = std::fs::read_to_string(file).unwrap_or_default();
        let mut written = Vec::new();
        let mut new = String::new();
        for line in old.lines() {
            let name = line.split_ascii_whitespace().next().unwrap_or_default();
            match find(name.as_bytes()) {
                Some(id) if written.contains(&id) => continue,
                // Another file says it, and may say something else by and by.
                Some(Param::PackPolicy) if self.policy_is_of_file() => continue,
                Some(id) => {
                    written.push(id);
                    new += &self.line(id);
                }
                None => new += line,
            }
            new.push('\n');
        }
        for id in Param::all().filter(|id| !written.contains(id)) {
            if !self.goes_without_saying(id) {
                new += &self.line(id);
                new.push('\n');
            }
        }
        let beside = file.with_extension("rewriting");
        std::fs::write(&beside, new)?;
        std::fs::rename(beside, file)
    }

    /// A parameter as a line of the configuration file.
    fn line(&self, id: Param) -> String {
        let (name, value) = (id.declaration().name, self.text(id));
        let kind = id.declaration().kind;
        let words = matches!(
            kind,
            Kind::OutputLimits | Kind::Percentiles | Kind::Save | Kind::OomScores | Kind::Words(_)
        ) || matches!(id, Param::Bind | Param::AdminBind);
        let plain = !value.is_empty()
            && value.bytes().all(|b| b.is_ascii_graphic() && !b"\"'\\#".contains(&b));
        if plain || (words && !value.is_empty()) {
            return format!("{name} {value}");
        }
        let mut line = format!("{name} \"");
        for byte in value.bytes() {
            match byte {
                b'"' | b'\\' => line.extend(['\\', char::from(byte)]),
                b' '..=b'~' => line.push(char::from(byte)),
                _ => line += &format!("\\x{byte:02x}"),
            }
        }
        line.push('"');
        line
    }
}
