//! Results as CSV: one line for each kind of request of each step.

use std::fmt::Write as _;

use super::Report;

const HEADER: &str = "workload,step,kind,target,server,round,connections,pipeline,threads,rate,\
seconds,operations,throughput,errors,unsent,min_us,avg_us,p50_us,p95_us,p99_us,p999_us,max_us,\
cpu_s,cpu_s_rested,cpu_s_per_million,client_cpu_s,items,bytes_per_item,bytes_per_item_hot,used_before,used_ended,\
used_rested,rss_before,rss_ended,rss_rested,failure,interrupted";

/// The report as CSV, with a header line. A report without steps, that of
/// `snug bench codec`, has the columns of the codec table.
pub fn render(report: &Report) -> String {
    if let Some(codec) = report.codec.as_ref().filter(|_| report.results.is_empty()) {
        return codec.csv();
    }
    let mut text = format!("{HEADER}\n");
    let shown = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.6}"));
    for result in &report.results {
        let cpu = result.cpu;
        let memory = result.memory;
        let reading = |pick: fn(&super::Memory) -> u64| {
            memory.as_ref().map_or(String::new(), |memory| pick(memory).to_string())
        };
        // A step without load (a call) has no kinds; it still has a line.
        let none =
            super::KindResult { throughput: result.throughput, ..super::KindResult::default() };
        let kinds =
            if result.kinds.is_empty() { std::slice::from_ref(&none) } else { &result.kinds };
        for kind in kinds {
            let latency = &kind.latency;
            let cells = [
                quoted(&result.workload),
                quoted(&result.label()),
                quoted(&kind.name),
                quoted(&result.target),
                quoted(&result.server),
                result.round.to_string(),
                result.connections.to_string(),
                result.pipeline.to_string(),
                result.threads.to_string(),
                shown(result.rate),
                format!("{:.6}", result.seconds),
                kind.replies()
                    .max(u64::from(result.kinds.is_empty()) * result.operations)
                    .to_string(),
                format!("{:.2}", kind.throughput),
                kind.errors.to_string(),
                kind.unsent.to_string(),
                format!("{:.3}", latency.min_us),
                format!("{:.3}", latency.avg_us),
                format!("{:.3}", latency.p50_us),
                format!("{:.3}", latency.p95_us),
                format!("{:.3}", latency.p99_us),
                format!("{:.3}", latency.p999_us),
                format!("{:.3}", latency.max_us),
                shown(cpu.map(|cpu| cpu.seconds)),
                shown(cpu.map(|cpu| cpu.rested_seconds)),
                shown(cpu.and_then(|cpu| cpu.per_million)),
                shown(cpu.map(|cpu| cpu.client_seconds)),
                reading(|memory| memory.items),
                shown(memory.and_then(|memory| memory.bytes_per_item)),
                shown(memory.and_then(|memory| memory.bytes_per_item_hot)),
                reading(|memory| memory.before.used),
                reading(|memory| memory.ended.used),
                reading(|memory| memory.rested.used),
                reading(|memory| memory.before.resident),
                reading(|memory| memory.ended.resident),
                reading(|memory| memory.rested.resident),
                quoted(result.failure.as_deref().unwrap_or("")),
                u8::from(result.interrupted).to_string(),
            ];
            let _ = writeln!(text, "{}", cells.join(","));
        }
    }
    text
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        return format!("\"{}\"", text.replace('"', "\"\""));
    }
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{KindResult, StepResult};

    #[test]
    fn every_line_has_every_column() {
        let report = Report {
            results: vec![
                StepResult { step: "populate".into(), operations: 5, ..StepResult::default() },
                StepResult {
                    kinds: vec![KindResult::default(), KindResult::default()],
                    ..StepResult::default()
                },
            ],
            ..Report::default()
        };
        let text = render(&report);
        let columns: Vec<usize> = text.lines().map(|line| line.split(',').count()).collect();
        assert_eq!(columns, vec![HEADER.split(',').count(); 4]);
    }

    #[test]
    fn commas_are_quoted() {
        assert_eq!(quoted("a,b"), "\"a,b\"");
        assert_eq!(quoted("say \"hi\""), "\"say \"\"hi\"\"\"");
        assert_eq!(quoted("plain"), "plain");
    }
}
