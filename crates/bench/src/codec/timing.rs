//! Time on the processor, and what of many samples is told.

/// This thread's seconds on the processor.
pub(super) fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// CPU seconds of one `work`, repeated until `seconds` are spent.
pub(super) fn timed(seconds: f64, mut work: impl FnMut()) -> f64 {
    work();
    let start = cpu_seconds();
    let mut batch = 1;
    let mut done = 0;
    loop {
        for _ in 0..batch {
            work();
        }
        done += batch;
        let spent = cpu_seconds() - start;
        if spent >= seconds {
            return spent / f64::from(done);
        }
        batch = (batch * 2).min(1 << 16);
    }
}

/// The sample below which this share of them lies.
pub(super) fn quantile(samples: &mut [f64], share: f64) -> f64 {
    samples.sort_unstable_by(f64::total_cmp);
    let index = ((samples.len() as f64 * share).ceil() as usize).clamp(1, samples.len().max(1));
    samples.get(index - 1).copied().unwrap_or(0.0)
}
