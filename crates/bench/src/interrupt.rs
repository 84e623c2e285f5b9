//! Ctrl-C, SIGTERM and SIGHUP: the first one ends a run and keeps what was measured.
//! A second one, sent because that takes too long, kills the servers that a
//! comparison started, so that nothing has to be waited for any more, and ends the
//! program.

use std::fs;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::target;

/// Exit code of a run that was interrupted: a shell's for SIGINT.
pub const INTERRUPTED: u8 = 130;
/// How long the main thread has to write its report once the servers are gone.
const GRACE: Duration = Duration::from_secs(5);

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Begins to watch for the signals. A system that refuses keeps its default:
/// the first Ctrl-C ends the program.
pub fn watch() {
    static WATCHING: OnceLock<()> = OnceLock::new();
    WATCHING.get_or_init(|| {
        // What was started with nohup is to outlive its terminal.
        let mut watched = vec![SIGINT, SIGTERM];
        if !is_ignored(SIGHUP) {
            watched.push(SIGHUP);
        }
        if let Ok(signals) = Signals::new(watched) {
            std::thread::spawn(|| attend(signals));
        }
    });
}

fn attend(mut signals: Signals) {
    for _ in signals.forever() {
        if !REQUESTED.swap(true, Ordering::Relaxed) {
            continue;
        }
        if target::kill_programs() {
            std::thread::sleep(GRACE);
        }
        std::process::exit(INTERRUPTED.into());
    }
}

/// Whether the user wants an end.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}

/// Whether this program was started with that signal ignored.
fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}
