//! The progress bar of a step: live rate and time left on a terminal, nothing when piped.
//! The time left is that of the rate so far, and shown once there is one.
//!
//! Of a comparison, which has many steps, [`Overall`] tells how far all of it has come: in
//! front of the bar on a terminal, else in a line of its own every half minute.

use std::io::IsTerminal;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

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

/// How far a comparison has come.
#[derive(Debug)]
pub struct Overall {
    begun: Instant,
    steps: usize,
    done: AtomicUsize,
    told: Mutex<Instant>,
    is_terminal: bool,
}

/// How often a line is written where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(30);

impl Overall {
    /// Nothing of so many steps is done.
    pub fn new(steps: usize) -> Self {
        let begun = Instant::now();
        let is_terminal = std::io::stderr().is_terminal();
        Self { begun, steps, done: AtomicUsize::new(0), told: Mutex::new(begun), is_terminal }
    }

    /// So many steps more are done, or are left out.
    pub fn add(&self, steps: usize) {
        self.done.fetch_add(steps, Relaxed);
        let Ok(mut told) = self.told.lock() else { return };
        if !self.is_terminal && told.elapsed() >= LINE_EVERY {
            *told = Instant::now();
            eprintln!("snug: {}", self.text());
        }
    }

    /// `12 of 96 steps, about 24 min left`.
    pub fn text(&self) -> String {
        let done = self.done.load(Relaxed).min(self.steps);
        let left = time_left(done as u64, self.steps as u64, self.begun.elapsed());
        let left = left.map_or(String::new(), |left| format!(", about {} left", short(left)));
        format!("{done} of {} steps{left}", self.steps)
    }
}

/// Seconds up to two minutes, minutes up to two hours, hours.
fn short(time: Duration) -> String {
    match time.as_secs() {
        seconds @ ..120 => format!("{seconds} s"),
        seconds @ ..7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
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

    #[test]
    fn a_comparison_tells_how_far_it_has_come() {
        let begun = Instant::now().checked_sub(Duration::from_mins(10)).unwrap();
        let overall = Overall { begun, is_terminal: true, ..Overall::new(40) };
        assert_eq!(overall.text(), "0 of 40 steps");
        overall.add(10);
        assert_eq!(overall.text(), "10 of 40 steps, about 30 min left");
        overall.add(31);
        assert_eq!(overall.text(), "40 of 40 steps, about 0 s left");
        assert_eq!(short(Duration::from_hours(3)), "3 h");
    }
}
