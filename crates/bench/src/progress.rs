//! The progress bar: live rate and time left on a terminal, nothing when piped.

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
        let template = "{prefix} [{bar:30}] {percent:>3} % {msg} eta {eta}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_prefix(label);
        Self { bar, by_time }
    }

    /// Shows where the run stands.
    pub fn set(&self, answered: u64, elapsed: Duration) {
        let rate = answered as f64 / elapsed.as_secs_f64().max(1e-3);
        self.bar.set_message(format!("{rate:.0}/s"));
        self.bar.set_position(if self.by_time { elapsed.as_millis() as u64 } else { answered });
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
