//! What a process on this machine has used: CPU time and resident memory, read
//! from /proc.
//!
//! CPU time comes from each thread's `schedstat`, which counts nanoseconds;
//! `/proc/PID/stat` counts hundredths of a second. A thread that ended takes its
//! nanoseconds along; where the coarse count shows more, it is used.

use std::collections::BTreeMap;
use std::fs;

/// Ticks a second in `/proc/PID/stat`: fixed in Linux's interface to user space.
const TICKS_PER_SECOND: f64 = 100.0;
/// Two coarse readings, each of user and system time, are wrong by less.
const COARSE_ERROR_SECONDS: f64 = 0.04;

/// CPU time used up to one moment.
#[derive(Debug, Clone, Default)]
pub struct CpuTime {
    /// Nanoseconds on a CPU, by thread.
    threads: BTreeMap<u32, u64>,
    /// User and system time of the whole process, ended threads included.
    coarse_seconds: f64,
}

/// A process to be observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    id: u32,
}

impl Process {
    /// The process with that id, if there is one.
    pub fn find(id: u32) -> Option<Self> {
        fs::exists(format!("/proc/{id}/stat")).ok()?.then_some(Self { id })
    }

    /// This process.
    pub fn own() -> Self {
        Self { id: std::process::id() }
    }

    /// Its id.
    pub fn id(self) -> u32 {
        self.id
    }

    /// CPU time so far; `None` once it is gone.
    pub fn cpu_time(self) -> Option<CpuTime> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.id)).ok()?;
        let mut threads = BTreeMap::new();
        for thread in fs::read_dir(format!("/proc/{}/task", self.id)).ok()?.flatten() {
            let id = thread.file_name().to_str().and_then(|name| name.parse().ok());
            let schedstat = fs::read_to_string(thread.path().join("schedstat")).ok();
            let on_cpu = schedstat
                .as_deref()
                .and_then(|text| text.split_ascii_whitespace().next())
                .and_then(|number| number.parse().ok());
            if let (Some(id), Some(on_cpu)) = (id, on_cpu) {
                threads.insert(id, on_cpu);
            }
        }
        Some(CpuTime { threads, coarse_seconds: coarse_seconds(&stat)? })
    }

    /// Whether any of its threads runs, or would if it were given a CPU.
    pub fn is_runnable(self) -> bool {
        let Ok(threads) = fs::read_dir(format!("/proc/{}/task", self.id)) else { return false };
        threads.flatten().any(|thread| {
            let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            stat.rfind(") ").is_some_and(|at| stat[at + 2..].starts_with('R'))
        })
    }

    /// Resident bytes; `None` once it is gone.
    pub fn resident_bytes(self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id)).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kib * 1024)
    }
}

impl CpuTime {
    /// Seconds of CPU used since `earlier`.
    pub fn seconds_since(&self, earlier: &CpuTime) -> f64 {
        let coarse = self.coarse_seconds - earlier.coarse_seconds;
        let total = |time: &CpuTime| time.threads.values().sum::<u64>();
        let fine = total(self).saturating_sub(total(earlier)) as f64 / 1e9;
        if coarse > fine + COARSE_ERROR_SECONDS { coarse } else { fine }
    }
}

/// `utime` and `stime`: fields 14 and 15, counted from behind the command name,
/// which may itself hold spaces and parentheses.
fn coarse_seconds(stat: &str) -> Option<f64> {
    let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_is_no_trap() {
        let stat = "7 (a) (b c) S 1 1 1 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 1 0 1";
        assert_eq!(coarse_seconds(stat), Some(3.0));
    }

    #[test]
    fn work_shows_as_cpu_time() {
        let own = Process::own();
        let before = own.cpu_time().unwrap();
        let mut sum = 0_u64;
        while own.cpu_time().unwrap().seconds_since(&before) < 0.01 {
            sum = std::hint::black_box(sum.wrapping_mul(31) + 1);
        }
        assert!(own.resident_bytes().unwrap() > 1 << 20);
    }

    #[test]
    fn an_ended_thread_falls_back_on_the_coarse_count() {
        let time = |threads: &[(u32, u64)], coarse_seconds| CpuTime {
            threads: threads.iter().copied().collect(),
            coarse_seconds,
        };
        let before = time(&[(1, 1_000_000_000), (2, 4_000_000_000)], 5.0);
        let grown = time(&[(1, 2_500_000_000), (2, 4_000_000_000)], 6.5);
        assert!((grown.seconds_since(&before) - 1.5).abs() < 1e-9);
        let ended = time(&[(1, 1_500_000_000)], 7.0);
        assert!((ended.seconds_since(&before) - 2.0).abs() < 1e-9);
        let came_and_went = time(&[(1, 1_500_000_000), (2, 4_000_000_000)], 7.0);
        assert!((came_and_went.seconds_since(&before) - 2.0).abs() < 1e-9);
    }
}
