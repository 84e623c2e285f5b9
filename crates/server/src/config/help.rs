//! Help in words, all of it made from the table: what `snug serve --help` and its kin
//! print, a configuration file to begin with, and what man pages and completions are
//! made of.

use super::file::meant;
use super::idle::reason;
use super::table::Declaration;
use super::topics::{TOPICS, Topic, topic_of};
use super::{Change, Kind, PARAMETERS, find};
use std::fmt::Write as _;

/// A parameter, for whoever prints help of their own.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Its name, without dashes.
    pub name: &'static str,
    /// Its value if nobody gives one.
    pub default: &'static str,
    /// What it does.
    pub help: &'static str,
    /// What it is about: one word.
    pub topic: &'static str,
    /// The words that it takes, if it takes only some.
    pub words: &'static [&'static str],
    /// Whether it names a file or a folder.
    pub is_path: bool,
}

/// Every parameter that has an effect, by topic.
pub(crate) fn parameters() -> impl Iterator<Item = Parameter> {
    TOPICS.iter().flat_map(|topic| {
        topic.parameters().map(|declaration| Parameter {
            name: declaration.name,
            default: declaration.default,
            help: declaration.help.unwrap_or_default(),
            topic: topic.name,
            words: match declaration.kind {
                Kind::Bool => &["yes", "no"],
                Kind::Enum(words) | Kind::Words(words) => words,
                _ => &[],
            },
            is_path: ["dir", "file", "socket"].iter().any(|end| declaration.name.ends_with(end)),
        })
    })
}

/// Columns of a line of help.
const WIDTH: usize = 80;

const USAGE: &str = "\
Usage: snug serve [FILE] [--PARAMETER VALUE]...

Runs the server. FILE is a configuration file in Redis's format; - reads one from
standard input. Parameters given here win over those of the file.

  snug serve                                             # on 127.0.0.1:6379
  snug serve --dir /var/lib/snug --appendonly yes        # a database
  snug serve --bind 0.0.0.0 --requirepass SECRET         # for other machines
  snug serve --maxmemory 4gb --maxmemory-policy allkeys-lru --save \"\"  # a cache
  snug serve /etc/snug/snug.conf --port 6380
";

/// Help on one screen: how to begin, and what most people set.
pub(crate) fn one_screen() -> String {
    let mut help = format!("{USAGE}\nWhat most people set, by topic, with its default:\n\n");
    for topic in TOPICS {
        let first = topic.first.iter().map(|id| {
            let Declaration { name, default, .. } = id.declaration();
            if default.is_empty() { (*name).into() } else { format!("{name} {default}") }
        });
        let list = first.collect::<Vec<String>>().join(", ");
        help += &wrapped(&list, &format!("  {:<12}", topic.name), 14);
    }
    help += "
snug serve --help TOPIC, or --help PARAMETER, says more; --help-all says everything.
snug config prints a commented configuration file.
";
    help
}

/// Help on every parameter there is.
pub(crate) fn all() -> String {
    let mut help = format!("{USAGE}\n");
    for topic in TOPICS {
        help += &about(topic);
        help.push('\n');
    }
    help +=
        "WITHOUT EFFECT\nParameters of Redis that are accepted and do nothing here, and why.\n\n";
    for declaration in PARAMETERS.iter().filter(|declaration| declaration.help.is_none()) {
        help += &explained(declaration);
    }
    help
}

/// Help on a topic or on a parameter, or what is wrong with its name.
pub(crate) fn topic_or_parameter(name: &str) -> Result<String, String> {
    let bare = name.trim_start_matches('-').to_ascii_lowercase();
    if let Some(topic) = TOPICS.iter().find(|topic| topic.name == bare) {
        return Ok(about(topic));
    }
    if let Some(id) = find(bare.as_bytes()) {
        let declaration = id.declaration();
        let topic = topic_of(declaration.name).name;
        let more = format!("\nTopic: {topic} (snug serve --help {topic})\n");
        return Ok(explained(declaration) + &more);
    }
    let topics = TOPICS.iter().map(|topic| topic.name);
    let topic = topics
        .max_by(|a, b| strsim::jaro_winkler(a, &bare).total_cmp(&strsim::jaro_winkler(b, &bare)));
    let topic = topic.filter(|topic| strsim::jaro_winkler(topic, &bare) > 0.85);
    Err(match topic.or_else(|| meant(&bare)) {
        Some(like) => format!("no topic or parameter is called '{name}': is '{like}' meant?"),
        None => {
            format!("no topic or parameter is called '{name}' (snug serve --help-all lists all)")
        }
    })
}

/// A topic with its parameters.
fn about(topic: &'static Topic) -> String {
    let mut help = format!("{}\n{}\n\n", topic.name.to_uppercase(), topic.about);
    for declaration in topic.parameters() {
        help += &explained(declaration);
    }
    help
}

/// A parameter, its default and what it does.
fn explained(declaration: &Declaration) -> String {
    let default = if declaration.default.is_empty() { "\"\"" } else { declaration.default };
    let text = match declaration.help {
        Some(text) => format!("{text} {}", values(declaration)),
        None => format!("Without effect: {}.", reason(declaration.name)),
    };
    format!("  --{} [{default}]\n{}", declaration.name, wrapped(text.trim(), "        ", 8))
}

/// Which values a parameter takes and when it may change, in brackets; nothing where any
/// text will do.
fn values(declaration: &Declaration) -> String {
    let mut values = match declaration.kind.values() {
        text if text.is_empty() => text,
        text => format!("({text}"),
    };
    if declaration.change == Change::Never {
        values += if values.is_empty() { "(" } else { "; " };
        values += "fixed at the start";
    }
    if !values.is_empty() {
        values.push(')');
    }
    values
}

/// A configuration file that says what is so anyway, every line of it a comment.
pub(crate) fn sample() -> String {
    let mut text = String::from(
        "# Snug's configuration: every parameter with its default, commented out. Take the\n\
         # mark off a line to change what it says. The form is that of Redis's own file.\n\
         #\n\
         # Bytes may be written as 100, 1k (1,000), 1kb (1,024), m, mb, g, gb. A value with\n\
         # spaces in it goes in quotes. `include /etc/snug/*.conf` reads other files here.\n\
         # `snug serve FILE --PARAMETER VALUE` wins over what the file says.\n",
    );
    for topic in TOPICS {
        let _ = write!(text, "\n\n# {0}\n# {1}\n# {0}\n", "-".repeat(WIDTH - 2), topic.about);
        for declaration in topic.parameters() {
            let words = format!("{} {}", declaration.help.unwrap_or_default(), values(declaration));
            let value = if declaration.default.is_empty() { "\"\"" } else { declaration.default };
            let comment = wrapped(words.trim(), "# ", 2).replace("\n  ", "\n# ");
            let _ = write!(text, "\n{comment}# {} {value}\n", declaration.name);
        }
    }
    text
}

/// Words in lines of at most [`WIDTH`] columns, the first behind `head`, the others
/// `indent` columns in.
fn wrapped(words: &str, head: &str, indent: usize) -> String {
    let mut text = head.to_string();
    let mut column = head.len();
    for (place, word) in words.split(' ').enumerate() {
        let space = usize::from(place > 0);
        if column + space + word.len() > WIDTH && column > indent {
            text.push('\n');
            text += &" ".repeat(indent);
            column = indent;
        } else if space > 0 {
            text.push(' ');
            column += 1;
        }
        text += word;
        column += word.len();
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::config::file::Source;

    #[test]
    fn the_first_help_fits_on_a_screen() {
        let help = one_screen();
        assert!(help.lines().count() <= 40, "{help}");
        assert!(help.lines().all(|line| line.len() <= WIDTH + 4), "{help}");
    }

    #[test]
    fn every_line_of_the_sample_configuration_is_taken() {
        let mut config = Config::default();
        let defaults = Config::default();
        let mut lines = 0;
        for line in sample().lines().filter_map(|line| line.strip_prefix("# ")) {
            let name = line.split(' ').next().unwrap_or_default();
            // Sentences begin with a capital letter, and go on in a line with more words.
            if PARAMETERS.iter().any(|d| {
                line == format!("{} {}", d.name, d.default) || line == format!("{} \"\"", d.name)
            }) {
                config
                    .read_lines(line.as_bytes(), Source::StandardInput, 0)
                    .unwrap_or_else(|e| panic!("{name}: {e}"));
                lines += 1;
            }
        }
        assert_eq!(lines, PARAMETERS.iter().filter(|d| d.help.is_some()).count());
        for id in crate::config::Param::all() {
            assert_eq!(config.text(id), defaults.text(id));
        }
    }

    #[test]
    fn topics_and_parameters_are_explained() {
        assert!(topic_or_parameter("network").unwrap().contains("--port [6379]"));
        assert!(topic_or_parameter("--maxmemory").unwrap().contains("--maxmemory [0]"));
        assert!(topic_or_parameter("io-threads").unwrap().contains("Without effect: commands run"));
        assert!(topic_or_parameter("netwrok").unwrap_err().contains("'network'"));
        assert!(topic_or_parameter("maxmemmory").unwrap_err().contains("'maxmemory'"));
    }
}
