//! A look as lines of text.

use std::io::{self, Write as _};

use snug_bench::report::table::{align, count, number};

use crate::view::{Fact, View, bytes, micros, percent};

const COMMANDS_TOLD: usize = 10;
const FAMILIES_TOLD: usize = 10;

/// Writes a look; whether it was taken.
pub(crate) fn print(view: &View) -> bool {
    let mut out = io::stdout().lock();
    out.write_all(render(view).as_bytes()).and_then(|()| out.flush()).is_ok()
}

/// Heads and rows of the commands that were called, the busiest first.
pub(crate) fn command_rows(view: &View) -> Vec<Vec<String>> {
    let heads = ["command", "calls/s", "mean", "of a core", "p50 ever", "p99 ever", "failed/s"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    rows.extend(view.commands.iter().map(|command| {
        let ever = |value: Option<f64>| value.map_or_else(|| "-".into(), micros);
        vec![
            command.name.clone(),
            number(command.calls_a_second),
            if command.calls_a_second > 0.0 { micros(command.usec) } else { "-".into() },
            percent(command.load),
            ever(command.p50),
            ever(command.p99),
            number(command.failed_a_second),
        ]
    }));
    rows
}

/// Heads and rows of the families, the largest first.
pub(crate) fn family_rows(view: &View) -> Vec<Vec<String>> {
    let heads = ["keys like", "type", "packed", "from", "to", "codec", "dictionary"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    rows.extend(view.families.iter().map(|family| {
        let codec = match &*family.codec {
            "" => family.verdict.clone(),
            codec => codec.to_owned(),
        };
        vec![
            family.shape.clone(),
            family.kind.clone(),
            count(family.packed as f64),
            bytes(family.raw_bytes as f64),
            bytes(family.packed_bytes as f64),
            codec,
            if family.has_dictionary { "yes" } else { "no" }.to_owned(),
        ]
    }));
    rows
}

pub(crate) fn render(view: &View) -> String {
    let line = |name: &str, facts: &[Fact]| {
        let told: Vec<String> = facts.iter().map(|(name, text)| format!("{name} {text}")).collect();
        format!("{name:<9}{}\n", told.join(", "))
    };
    let mut text = format!("{}\n", view.title);
    text += &line("traffic", &view.traffic);
    text += &line("memory", &view.memory);
    if view.is_snug {
        text += &line("packing", &view.packing);
    }
    let mut commands = command_rows(view);
    commands.truncate(COMMANDS_TOLD + 1);
    if commands.len() > 1 {
        text += &align(&commands, 1);
    }
    let mut families = family_rows(view);
    families.truncate(FAMILIES_TOLD + 1);
    if families.len() > 1 {
        text += &align(&families, 2);
    }
    if let Some(trouble) = &view.trouble {
        text += &format!("not allowed: {trouble}\n");
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::Order;
    use crate::view::tests::two;

    #[test]
    fn a_look_is_lines() {
        let (before, now) = two(true);
        let text = render(&View::of("db:6379", &before, &now, Order::Calls));
        assert!(text.starts_with("db:6379  snug 0.1.0"), "{text}");
        assert!(
            text.contains("packing  values 1.00 MB, of them packed 900 kB to 90.0 kB"),
            "{text}"
        );
        assert!(text.contains("get        1,000  2.00 us      0.2 %"), "{text}");
    }
}
