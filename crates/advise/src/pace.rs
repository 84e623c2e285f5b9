//! How fast a server may be asked: so that what it spends on the answers is a given share
//! of one core's time.
//!
//! Every round of commands has `INFO cpu` in front of and behind it. What the server's
//! process spent in between, less what it spends by itself meanwhile (known from the times
//! between rounds), is the round's cost; never more than the round took, never less than
//! a microsecond a command. Then nothing is asked until the sum of costs is the share of
//! the time since the beginning. A server that does not give `INFO` is taken to have
//! worked for as long as its answers took.

use std::thread::sleep;
use std::time::{Duration, Instant};

use snug_bench::endpoint::{Control, ControlError, Value};
use snug_bench::request::write_request;
use snug_bench::{interrupt, server_facts};

/// What reading a round from the socket takes, before its first command is executed.
const ROUND_S: f64 = 30e-6;
const COMMAND_S: f64 = 1e-6;
/// For so long a server is watched before it is asked anything.
const WATCH: Duration = Duration::from_millis(300);
/// How often somebody who waits looks whether the user wants an end.
const LOOK: Duration = Duration::from_millis(100);
/// How fast the memory of what the server spends by itself fades.
const FADE: f64 = 0.2;

#[derive(Debug)]
pub(crate) struct Pacer {
    share: f64,
    /// When the first round began.
    began: Option<Instant>,
    until: Instant,
    /// CPU seconds in a second without this.
    own_rate: f64,
    /// When the last round ended, and the CPU seconds then.
    last: Option<(Instant, f64)>,
    /// CPU seconds that this has cost.
    pub(crate) spent: f64,
}

/// CPU seconds in a reply to `INFO cpu`.
fn cpu_of(reply: Option<&Value>) -> Option<f64> {
    let fields = server_facts::fields(&reply?.text());
    let field = |name: &str| fields.get(name)?.parse::<f64>().ok();
    Some(field("used_cpu_sys")? + field("used_cpu_user")?)
}

impl Pacer {
    pub(crate) fn new(share: f64, until: Instant) -> Self {
        Self { share, began: None, until, own_rate: 0.0, last: None, spent: 0.0 }
    }

    /// Learns what the server spends when it is not asked.
    pub(crate) fn watch(&mut self, control: &mut Control) -> Result<(), ControlError> {
        if self.share < 1.0 {
            self.exchange(control, &[], 0)?;
            sleep(WATCH);
            self.exchange(control, &[], 0)?;
        }
        Ok(())
    }

    /// Whether the time is up, or the user wants an end.
    pub(crate) fn is_over(&self) -> bool {
        Instant::now() >= self.until || interrupt::requested()
    }

    /// Sends requests, waits for their replies, and then for as long as they have cost.
    pub(crate) fn exchange(
        &mut self,
        control: &mut Control,
        requests: &[u8],
        replies: usize,
    ) -> Result<Vec<Value>, ControlError> {
        let began = Instant::now();
        let start = *self.began.get_or_insert(began);
        let mut ask = Vec::with_capacity(requests.len() + 64);
        write_request(&mut ask, &[b"INFO", b"cpu"]);
        ask.extend_from_slice(requests);
        write_request(&mut ask, &[b"INFO", b"cpu"]);
        let mut values = control.pipeline(&ask, replies + 2)?;
        let took = began.elapsed().as_secs_f64();
        let (before, after) = (cpu_of(values.first()), cpu_of(values.last()));
        values.pop();
        values.remove(0);
        if let (Some(before), Some((at, then))) = (before, self.last) {
            let between = (began - at).as_secs_f64();
            if between > 1e-3 {
                let rate = ((before - then) / between).max(0.0);
                let is_first = self.own_rate == 0.0;
                self.own_rate += (rate - self.own_rate) * if is_first { 1.0 } else { FADE };
            }
        }
        self.last = after.map(|after| (Instant::now(), after));
        let cost = match (before, after) {
            (Some(before), Some(after)) => after - before - self.own_rate * took,
            _ => took,
        };
        let least = COMMAND_S * (replies + 2) as f64;
        self.spent += cost.min(took).max(least) + ROUND_S;
        if self.share < 1.0 {
            let due = start + Duration::from_secs_f64(self.spent / self.share);
            while Instant::now() < due && !self.is_over() {
                sleep(LOOK.min(due.saturating_duration_since(Instant::now())));
            }
        }
        Ok(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_is_read_from_info() {
        let text = "# CPU\r\nused_cpu_sys:1.25\r\nused_cpu_user:2.5\r\nused_cpu_sys_children:9\r\n";
        assert_eq!(cpu_of(Some(&Value::Text(text.into()))), Some(3.75));
        assert_eq!(cpu_of(Some(&Value::Error("NOPERM".into()))), None);
        assert_eq!(cpu_of(None), None);
    }
}
