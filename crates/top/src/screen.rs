//! A look as lines for a screen of some size: facts side by side at the top, the curve of
//! operations, commands, families. What does not fit is cut.

use std::collections::VecDeque;

use snug_bench::report::table::align;

use crate::terminal::Look;
use crate::text::{command_rows, family_rows};
use crate::view::{Fact, View, percent};

/// Looks that the curve of operations goes back.
const HISTORY: usize = 500;
/// Columns that a list of facts takes at least.
const LIST_WIDTH: usize = 34;
/// Rows that families get of what is left, as a share.
const FAMILIES: f64 = 0.4;
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const FULL: f64 = 0.9;

#[derive(Debug, Default)]
pub(crate) struct Screen {
    /// Operations a second, the latest last.
    ops: VecDeque<f64>,
    /// How far families have been scrolled.
    offset: usize,
}

type Lines = Vec<(String, Look)>;

impl Screen {
    /// Remembers a look for the curve.
    pub(crate) fn note(&mut self, view: &View) {
        self.ops.push_back(view.ops);
        if self.ops.len() > HISTORY {
            self.ops.pop_front();
        }
    }

    pub(crate) fn scroll(&mut self, by: isize) {
        self.offset = self.offset.saturating_add_signed(by);
    }

    /// At most `height` lines of at most `width` characters.
    pub(crate) fn lines(&mut self, view: &View, (width, height): (usize, usize)) -> Lines {
        let mut lines = vec![(view.title.clone(), Look::Bold)];
        lines.extend(facts(view, width));
        if let Some(share) = view.full {
            let look = if share > FULL { Look::Bad } else { Look::Plain };
            lines.push((gauge(share, width), look));
        }
        lines.push((self.curve(width), Look::Plain));
        let left = height.saturating_sub(lines.len() + 1);
        let families = family_rows(view);
        self.offset = self.offset.min(view.families.len().saturating_sub(1));
        let of_families = match view.families.is_empty() {
            true => 0,
            false => ((left as f64 * FAMILIES) as usize).min(families.len() + 2),
        };
        let heads = format!("commands, by {}", view.order.name());
        lines.extend(table(&heads, &command_rows(view), 0, left - of_families));
        lines.extend(table("families", &families, self.offset, of_families));
        lines.truncate(height.saturating_sub(1));
        lines.resize(height.saturating_sub(1), (String::new(), Look::Plain));
        lines.push(match &view.trouble {
            Some(trouble) => (trouble.clone(), Look::Bad),
            None => ("q quit   s sort commands   up, down scroll families".into(), Look::Dim),
        });
        for (line, _) in &mut lines {
            *line = line.chars().filter(|char| !char.is_control()).take(width).collect();
        }
        lines
    }

    /// Operations a second as bars, the latest at the right.
    fn curve(&self, width: usize) -> String {
        let room = width.saturating_sub(24);
        let ops: Vec<f64> = self.ops.iter().rev().take(room).copied().collect();
        let most = ops.iter().copied().fold(0.0, f64::max);
        let bar = |ops: &f64| match most > 0.0 {
            true => BARS[((ops / most * 7.0).round() as usize).min(7)],
            false => BARS[0],
        };
        let bars: String = ops.iter().rev().map(bar).collect();
        format!("operations, {most:>7.0}/s {bars}")
    }
}

/// Lists of facts, as many beside each other as fit.
fn facts(view: &View, width: usize) -> Lines {
    let lists: Vec<(&str, &Vec<Fact>)> =
        [("traffic", &view.traffic), ("memory", &view.memory), ("packing", &view.packing)]
            .into_iter()
            .filter(|(_, facts)| !facts.is_empty())
            .collect();
    let beside = (width / LIST_WIDTH).clamp(1, lists.len().max(1));
    let column = width / beside;
    let mut lines = Vec::new();
    for some in lists.chunks(beside) {
        let place = |text: String| -> String {
            let cut: String = text.chars().take(column.saturating_sub(1)).collect();
            format!("{cut:<column$}")
        };
        let heads = some.iter().map(|(name, _)| place((*name).to_owned())).collect();
        lines.push((heads, Look::Bold));
        let rows = some.iter().map(|(_, facts)| facts.len()).max().unwrap_or(0);
        for row in 0..rows {
            let fact = |facts: &Vec<Fact>| {
                facts.get(row).map_or_else(String::new, |(name, text)| format!("{name:<15}{text}"))
            };
            let text: String = some.iter().map(|(_, facts)| place(fact(facts))).collect();
            let is_bad = text.contains("DAMAGED");
            lines.push((text, if is_bad { Look::Bad } else { Look::Plain }));
        }
    }
    lines
}

fn gauge(share: f64, width: usize) -> String {
    let room = width.saturating_sub(24);
    let full = ((share * room as f64).round() as usize).min(room);
    let rest = room - full;
    format!("of maxmemory {:>8}   {}{}", percent(share), "█".repeat(full), "░".repeat(rest))
}

/// A table of at most so many lines, its title among them.
fn table(title: &str, rows: &[Vec<String>], offset: usize, height: usize) -> Lines {
    let Some((heads, rows)) = rows.split_first() else { return Vec::new() };
    if height < 3 {
        return Vec::new();
    }
    let shown = rows.iter().skip(offset).take(height - 2);
    let mut cells = vec![heads.clone()];
    title.clone_into(&mut cells[0][0]);
    cells.extend(shown.cloned());
    let text = align(&cells, 1);
    let mut lines = vec![(String::new(), Look::Plain)];
    lines.extend(
        text.lines()
            .enumerate()
            .map(|(at, line)| (line.to_owned(), if at == 0 { Look::Bold } else { Look::Plain })),
    );
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Family;
    use crate::view::Order;
    use crate::view::tests::two;

    fn shown(screen: &mut Screen, view: &View, size: (usize, usize)) -> String {
        let lines = screen.lines(view, size);
        assert_eq!(lines.len(), size.1.max(1));
        assert!(lines.iter().all(|(line, _)| line.chars().count() <= size.0));
        lines.into_iter().map(|(line, _)| line + "\n").collect()
    }

    fn view(is_snug: bool) -> View {
        let (before, now) = two(is_snug);
        View::of("db:6379", &before, &now, Order::Calls)
    }

    #[test]
    fn a_snug_is_shown_with_its_packing() {
        let mut view = view(true);
        let family = |n: u64| Family {
            shape: format!("user:#:{n}"),
            kind: "string".into(),
            raw_bytes: 5000,
            packed_bytes: 700,
            ..Family::default()
        };
        view.families = (0..50).map(family).collect();
        let mut screen = Screen::default();
        screen.note(&view);
        let text = shown(&mut screen, &view, (120, 40));
        for part in [
            "snug 0.1.0",
            "900 kB to 90.0 kB",
            "7 values, 2 blocks",
            "pressure       0.25",
            "user:#:0",
            "of maxmemory   50.0 %",
            "operations,    1000/s █",
            "commands, by calls",
            "2.50 ms",
            "q quit",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        screen.scroll(40);
        let text = shown(&mut screen, &view, (120, 40));
        assert!(text.contains("user:#:41") && !text.contains("user:#:1 "), "{text}");
        view.trouble = Some("lost the connection; trying again".into());
        assert!(shown(&mut screen, &view, (120, 40)).contains("trying again"));
    }

    #[test]
    fn redis_is_shown_without_packing_and_any_size_will_do() {
        let view = view(false);
        let mut screen = Screen::default();
        let text = shown(&mut screen, &view, (100, 30));
        assert!(text.contains("traffic") && !text.contains("packing"), "{text}");
        for size in [(1, 1), (3, 2), (20, 5), (30, 90), (300, 80)] {
            screen.scroll(5);
            shown(&mut screen, &view, size);
        }
    }
}
