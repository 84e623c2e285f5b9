//! The progress bar: live rate and time left on a terminal, nothing when piped.
//! The time left is that of the rate so far, and shown once there is one.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar over requests, or over time where only that is limited.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    by_time: bool,
}

impl Progress {
    /// Starts one, hidden unless `wanted` and standard error is a terminal.
    pub fn new(
        wanted: bool,
        label: String,
        requests: Option<u64>,
        duration: Option<Duration>,
    ) -> Self {
        let by_time = requests.is_none();
        let length = match (requests, duration) {
            (Some(requests), _) => requests,
            (None, Some(duration)) => duration.as_millis() as u64,
            (None, None) => 0,
        };
        if !wanted || !std::io::stderr().is_terminal() || length == 0 {
            return Self { bar: ProgressBar::hidden(), by_time };
        }
        let bar = ProgressBar::new(length);
        let template = "{prefix} [{bar:30}] {percent:>3} % {msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_prefix(label);
        Self { bar, by_time }
    }

    /// Shows where the run stands.
    pub fn set(&self, answered: u64, elapsed: Duration) {
        let rate = answered as f64 / elapsed.as_secs_f64().max(1e-3);
        let position = if self.by_time { elapsed.as_millis() as u64 } else { answered };
        let left = match time_left(position, self.bar.length().unwrap_or(0), elapsed) {
            Some(left) => format!(" eta {}s", left.as_secs()),
            None => String::new(),
        };
        self.bar.set_message(format!("{rate:.0}/s{left}"));
        self.bar.set_position(position);
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// How long the rest takes at the rate so far; `None` before anything is done.
fn time_left(done: u64, all: u64, elapsed: Duration) -> Option<Duration> {
    let left = all.saturating_sub(done) as f64 / done as f64 * elapsed.as_secs_f64();
    Duration::try_from_secs_f64(left).ok().filter(|_| done > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_is_unknown_before_the_first_reply() {
        let second = Duration::from_secs(1);
        assert_eq!(time_left(0, 100, second), None);
        assert_eq!(time_left(25, 100, second), Some(3 * second));
        assert_eq!(time_left(100, 100, second), Some(Duration::ZERO));
    }
}
