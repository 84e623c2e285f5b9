//! `client-output-buffer-limit`: limits on what waits for clients, by class.

use super::values::parse_memory;

/// Limits on replies that wait for a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OutputLimit {
    pub hard: u64,
    pub soft: u64,
    pub soft_seconds: u64,
}

/// Those of each class of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutputLimits {
    pub normal: OutputLimit,
    pub replica: OutputLimit,
    pub pubsub: OutputLimit,
}

impl Default for OutputLimits {
    fn default() -> Self {
        let limit = |hard, soft, soft_seconds| OutputLimit { hard, soft, soft_seconds };
        Self {
            normal: limit(0, 0, 0),
            replica: limit(256 << 20, 64 << 20, 60),
            pubsub: limit(32 << 20, 8 << 20, 60),
        }
    }
}

impl OutputLimits {
    /// These limits with the classes named in `text` changed.
    pub(crate) fn parse(mut self, text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        if words.is_empty() || !words.len().is_multiple_of(4) {
            return Err("Wrong number of arguments in buffer limit configuration.".into());
        }
        for four in words.chunks(4) {
            let class = match four[0].to_ascii_lowercase().as_str() {
                "normal" => &mut self.normal,
                "slave" | "replica" => &mut self.replica,
                "pubsub" => &mut self.pubsub,
                _ => {
                    return Err(
                        "Invalid client class specified in buffer limit configuration.".into()
                    );
                }
            };
            let bytes = |word| parse_memory(word).and_then(|n| u64::try_from(n).ok());
            let limit = bytes(four[1]).zip(bytes(four[2])).zip(seconds(four[3]));
            let ((hard, soft), soft_seconds) = limit.ok_or(
                "Error in hard, soft or soft_seconds setting in buffer limit configuration.",
            )?;
            *class = OutputLimit { hard, soft, soft_seconds };
        }
        Ok(self)
    }
}

/// Seconds as `strtoll` reads them: what is above its range is its largest.
fn seconds(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse::<i64>().unwrap_or(i64::MAX).unsigned_abs())
}

impl std::fmt::Display for OutputLimits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let one = |l: OutputLimit| format!("{} {} {}", l.hard, l.soft, l.soft_seconds);
        let (normal, replica, pubsub) = (one(self.normal), one(self.replica), one(self.pubsub));
        write!(f, "normal {normal} slave {replica} pubsub {pubsub}")
    }
}
