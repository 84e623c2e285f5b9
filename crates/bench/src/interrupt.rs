//! Ctrl-C: the first one ends a run and keeps what was measured, a second one
//! ends the program at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

static REQUESTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Begins to watch for the signals. A system that refuses keeps its default:
/// the first Ctrl-C ends the program.
pub fn watch() {
    let requested = REQUESTED.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM] {
        // Registered in this order, the first signal finds the flag unset.
        let _ = flag::register_conditional_shutdown(signal, 130, Arc::clone(requested));
        let _ = flag::register(signal, Arc::clone(requested));
    }
}

/// Whether the user wants an end.
pub fn requested() -> bool {
    REQUESTED.get().is_some_and(|flag| flag.load(Ordering::Relaxed))
}
