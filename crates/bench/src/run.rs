//! Runs one step of a workload against one server and measures all of it.
//!
//! Around the load stand readings of memory and CPU time; while it runs, samples
//! of both for the plots; after it, time for a server that packs in the
//! background to come to rest. CPU time is given for the load alone and up to
//! that rest, so that packing is never free.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::cluster::Topology;
use crate::endpoint::{Control, ControlError, Endpoint};
use crate::load::{Live, Load, LoadOutcome, run as run_load};
use crate::process::{CpuTime, Process};
use crate::progress::{Overall, Progress};
use crate::report::{Cpu, Figure, KindResult, Memory, Sample, StepResult};
use crate::server_facts::{Identity, MemoryReading, identify, memory, packing};
use crate::source::Source;

/// How often a running load is sampled; `INFO` costs the server some 50
/// microseconds, the process's own counters nothing.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);
const INFO_EVERY: Duration = Duration::from_millis(500);
/// Memory that moved less than this share in [`REST`] has come to rest.
const REST_SHARE: f64 = 0.001;
/// Longer than a pass of the sweeper over all keys (2.5 s), between which packing pauses.
const REST: Duration = Duration::from_secs(4);
/// Points kept of a series; more are thinned out evenly.
const SAMPLES_MAX: usize = 400;

/// Makes the source of a connection.
pub type MakeSource = Arc<dyn Fn(usize) -> Box<dyn Source> + Send + Sync>;

/// Looks at the server when a step has ended: figures for the report.
pub type Inspect = Arc<dyn Fn(&mut Control) -> Result<Vec<Figure>, ControlError> + Send + Sync>;

/// What memory is divided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Items {
    /// Every request added one.
    Requests,
    /// Keys that the database gained.
    Keys,
    /// What the requests come to add: so many items all of them, and the same share of
    /// both where not all are sent.
    Of {
        /// Items that the server has after all requests.
        items: u64,
        /// Requests in all, at least one.
        requests: u64,
    },
    /// Memory is not the point of this step.
    Uncounted,
}

/// What a step does.
#[derive(Clone)]
pub enum Work {
    /// Load over many connections.
    Load {
        /// Names of the kinds of request, as the source numbers them.
        kinds: Vec<String>,
        /// Connections.
        connections: usize,
        /// Requests in flight on each.
        pipeline: usize,
        /// Requests in all.
        requests: Option<u64>,
        /// Time to send for.
        duration: Option<Duration>,
        /// Requests a second (open loop).
        rate: Option<f64>,
        /// Makes the sources.
        source: MakeSource,
    },
    /// One command on one connection, which adds so many items.
    Call {
        /// Its words.
        words: Vec<String>,
        /// What it adds.
        items: u64,
    },
}

/// What a step was asked for, by the names of the flags, beside what [`Work`] has.
pub type StepSettings = BTreeMap<String, String>;

/// One step of a workload.
#[derive(Clone)]
pub struct Step {
    /// `set/P16`: what is done, then what tells it from its siblings.
    pub name: String,
    /// For the report: steps of one name that differ in these are not the same.
    pub settings: StepSettings,
    /// What to do.
    pub work: Work,
    /// What memory is divided by.
    pub items: Items,
    /// Wait at least so long before the last reading, and until memory rests.
    pub rest: Option<Duration>,
    /// Looks at the server afterwards.
    pub inspect: Option<Inspect>,
}

/// How steps are run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Load threads.
    pub threads: usize,
    /// The longest to wait for memory to rest.
    pub rest_max: Duration,
    /// Show progress.
    pub progress: bool,
    /// How far all steps have come, where there are several targets.
    pub overall: Option<Arc<Overall>>,
}

/// Whom a step runs against.
#[derive(Debug, Clone)]
pub struct Subject {
    /// Its name in the report.
    pub name: String,
    /// Where it is; any node of a cluster.
    pub endpoint: Endpoint,
    /// Whether requests are to be sent to the nodes of a cluster.
    pub cluster: bool,
    /// Which repetition this is, from 1.
    pub round: u32,
}

/// The server that is measured: one node, or all that have slots.
struct Watched {
    nodes: Vec<(Control, Identity)>,
    cluster: Option<Topology>,
}

impl Watched {
    fn open(subject: &Subject) -> Result<Self, ControlError> {
        let cluster = match subject.cluster {
            true => Some(Topology::discover(&subject.endpoint)?),
            false => None,
        };
        let one = std::slice::from_ref(&subject.endpoint);
        let endpoints = cluster.as_ref().map_or(one, |cluster| &cluster.nodes);
        let mut nodes = Vec::new();
        for endpoint in endpoints {
            let mut control = endpoint.open()?;
            let identity = identify(&mut control, endpoint)?;
            nodes.push((control, identity));
        }
        Ok(Self { nodes, cluster })
    }

    /// The node for what one node can do or tell.
    fn first(&mut self) -> &mut Control {
        &mut self.nodes[0].0
    }

    fn version(&self) -> String {
        let version = &self.nodes[0].1.version;
        match &self.cluster {
            Some(_) => format!("{version}, cluster of {}", self.nodes.len()),
            None => version.clone(),
        }
    }

    /// The sum over the nodes; `None` if one does not tell.
    fn memory(&mut self) -> Result<Option<MemoryReading>, ControlError> {
        let mut sum = MemoryReading::default();
        if self.unseen().is_some() {
            return Ok(None);
        }
        for (control, identity) in &mut self.nodes {
            let one = memory(control, identity.process)?;
            sum.used += one.used;
            sum.resident += one.resident;
            sum.keys += one.keys;
        }
        Ok(Some(sum))
    }

    /// What a node answered that does not let us ask.
    fn unseen(&self) -> Option<String> {
        self.nodes.iter().find_map(|(_, identity)| identity.unseen.clone())
    }

    fn resident(&self) -> u64 {
        let of = |(_, identity): &(Control, Identity)| identity.process?.resident_bytes();
        self.nodes.iter().filter_map(of).sum()
    }

    /// Of each node; `None` if one cannot be seen.
    fn cpu(&self) -> Option<Vec<CpuTime>> {
        self.nodes.iter().map(|(_, identity)| identity.process?.cpu_time()).collect()
    }

    /// `INFO packing`; over a cluster the sums of what are numbers.
    fn packing(&mut self) -> Result<BTreeMap<String, String>, ControlError> {
        if self.unseen().is_some() {
            return Ok(BTreeMap::new());
        }
        let mut sums = packing(self.first())?;
        for (control, _) in &mut self.nodes[1..] {
            for (name, value) in packing(control)? {
                let known = sums.get(&name).and_then(|known| known.parse::<u64>().ok());
                if let (Some(known), Ok(value)) = (known, value.parse::<u64>()) {
                    sums.insert(name, (known + value).to_string());
                }
            }
        }
        Ok(sums)
    }
}

struct Reading {
    memory: Option<MemoryReading>,
    cpu: Option<Vec<CpuTime>>,
    client: Option<CpuTime>,
}

impl Reading {
    fn take(server: &mut Watched) -> Result<Self, ControlError> {
        let memory = server.memory()?;
        Ok(Self { memory, cpu: server.cpu(), client: Process::own().cpu_time() })
    }

    /// Seconds that the server used since `earlier`.
    fn cpu_since(&self, earlier: &Self) -> Option<f64> {
        let pairs = self.cpu.as_ref()?.iter().zip(earlier.cpu.as_ref()?);
        Some(pairs.map(|(now, before)| now.seconds_since(before)).sum())
    }
}

/// Runs a step. An error means that it could not begin; a server that fails
/// meanwhile leaves a result with what was measured and a `failure`.
pub fn run_step(
    workload: &str,
    step: &Step,
    subject: &Subject,
    settings: &Settings,
) -> Result<StepResult, ControlError> {
    let mut server = Watched::open(subject)?;
    let before = Reading::take(&mut server)?;
    let mut result = StepResult {
        target: subject.name.clone(),
        server: server.version(),
        round: subject.round,
        workload: workload.to_owned(),
        step: step.name.clone(),
        settings: step.settings.clone(),
        threads: settings.threads,
        unseen: server.unseen(),
        ..StepResult::default()
    };
    let added = perform(step, subject, settings, &mut server, &mut result)?;
    if let Err(error) = conclude(step, settings, &mut server, &before, added, &mut result) {
        result.failure.get_or_insert_with(|| error.to_string());
    }
    // Ctrl-C reaches the servers that a comparison started too: their end is what
    // the user asked for. What was measured until then stands.
    if crate::interrupt::requested() {
        result.failure = None;
        result.interrupted = true;
    }
    Ok(result)
}

/// Does the work and files what it measured. Returns the items it added.
fn perform(
    step: &Step,
    subject: &Subject,
    settings: &Settings,
    server: &mut Watched,
    result: &mut StepResult,
) -> Result<u64, ControlError> {
    match &step.work {
        Work::Call { words, items } => {
            let started = Instant::now();
            // Populating hundreds of millions of keys takes minutes.
            let control = server.first();
            control.set_patience(Duration::from_hours(1));
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            control.call(&words)?;
            result.seconds = started.elapsed().as_secs_f64();
            result.settings.insert("command".into(), words.join(" "));
            result.operations = *items;
            result.connections = 1;
            result.pipeline = 1;
            result.throughput = *items as f64 / result.seconds.max(1e-9);
            Ok(*items)
        }
        Work::Load { kinds, connections, pipeline, requests, duration, rate, source } => {
            let cluster = server.cluster.clone();
            let load = Load {
                endpoint: &subject.endpoint,
                cluster: cluster.as_ref(),
                threads: settings.threads,
                connections: *connections,
                pipeline: *pipeline,
                requests: *requests,
                duration: *duration,
                rate: *rate,
                kinds: kinds.len(),
                source: &**source,
            };
            result.connections = *connections;
            result.pipeline = *pipeline;
            result.rate = *rate;
            let asked = [
                ("requests", requests.map(|requests| requests.to_string())),
                ("duration", duration.map(|duration| duration.as_secs_f64().to_string())),
            ];
            let asked = asked.into_iter().filter_map(|(name, value)| Some((name.into(), value?)));
            result.settings.extend(asked);
            let mut label = format!("{} {}", subject.name, step.name);
            if let Some(overall) = &settings.overall {
                label = format!("{}; {label}", overall.text());
            }
            let progress = Progress::new(settings.progress, label, *requests, *duration);
            let (outcome, series) = observe(&load, server, &progress)?;
            progress.finish();
            result.series = series;
            file_outcome(result, kinds, &outcome);
            Ok(outcome.answered() - outcome.kinds.iter().map(|kind| kind.errors).sum::<u64>())
        }
    }
}

/// Runs a load on threads of its own and samples the server meanwhile.
fn observe(
    load: &Load<'_>,
    server: &mut Watched,
    progress: &Progress,
) -> Result<(LoadOutcome, Vec<Sample>), ControlError> {
    let live = Live::default();
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| run_load(load, &live));
        let started = Instant::now();
        let mut series = Vec::new();
        let mut used = 0;
        let mut asked = None::<Instant>;
        let mut next_sample = Duration::ZERO;
        while !worker.is_finished() {
            std::thread::sleep(Duration::from_millis(10));
            if crate::interrupt::requested() {
                live.stop.store(true, Ordering::Relaxed);
            }
            let elapsed = started.elapsed();
            if elapsed < next_sample {
                continue;
            }
            next_sample = elapsed + SAMPLE_EVERY;
            if asked.is_none_or(|at| at.elapsed() >= INFO_EVERY) {
                // A server that died is the load's failure to tell.
                used = server.memory().ok().flatten().map_or(used, |reading| reading.used);
                asked = Some(Instant::now());
            }
            let answered = live.answered.load(Ordering::Relaxed);
            progress.set(answered, elapsed);
            series.push(Sample {
                seconds: elapsed.as_secs_f64(),
                operations: answered,
                used,
                resident: server.resident(),
            });
        }
        match worker.join() {
            Ok(outcome) => Ok((outcome?, thin(series))),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Keeps at most [`SAMPLES_MAX`] samples, evenly, the last among them.
fn thin(series: Vec<Sample>) -> Vec<Sample> {
    let step = series.len().div_ceil(SAMPLES_MAX).max(1);
    let last = series.len().saturating_sub(1);
    series
        .into_iter()
        .enumerate()
        .filter(|(index, _)| index % step == 0 || *index == last)
        .map(|(_, sample)| sample)
        .collect()
}

fn file_outcome(result: &mut StepResult, kinds: &[String], outcome: &LoadOutcome) {
    let seconds = outcome.elapsed.as_secs_f64();
    // What failed at once has no rate.
    let rate = |replies: u64| if seconds > 0.0 { replies as f64 / seconds } else { 0.0 };
    result.seconds = seconds;
    result.operations = outcome.answered();
    result.throughput = rate(result.operations);
    result.sent_bytes = outcome.sent_bytes;
    result.received_bytes = outcome.received_bytes;
    result.failure.clone_from(&outcome.failure);
    result.first_error.clone_from(&outcome.first_error);
    if outcome.redirected > 0 {
        let name = "requests redirected".to_owned();
        result.figures.push(Figure { name, value: outcome.redirected as f64 });
    }
    result.kinds = kinds
        .iter()
        .zip(&outcome.kinds)
        .map(|(name, kind)| KindResult {
            name: name.clone(),
            throughput: rate(kind.answered()),
            errors: kind.errors,
            unsent: kind.unsent,
            latency: kind.latency.summary(),
        })
        .collect();
    let errors: u64 = outcome.kinds.iter().map(|kind| kind.errors).sum();
    // Errors alone are quickly answered: no figure of theirs means anything.
    if errors > 0 && errors == result.operations {
        result.failure = result.failure.take().or_else(|| outcome.first_error.clone());
    }
}

/// The readings after the work: at its end, and once memory has come to rest.
fn conclude(
    step: &Step,
    settings: &Settings,
    server: &mut Watched,
    before: &Reading,
    added: u64,
    result: &mut StepResult,
) -> Result<(), ControlError> {
    let ended = Reading::take(server)?;
    let mut rested = None;
    if let Some(least) = step.rest {
        wait_for_rest(server, least, settings.rest_max.max(least))?;
        rested = Some(Reading::take(server)?);
    }
    let last = rested.as_ref().unwrap_or(&ended);
    result.cpu = cpu_between(before, &ended, last, result.operations);
    let rested = rested.as_ref().and_then(|reading| reading.memory);
    if let (Some(before), Some(ended), Some(last)) = (before.memory, ended.memory, last.memory) {
        let items = match step.items {
            Items::Requests => added,
            Items::Keys => last.keys.saturating_sub(before.keys),
            Items::Of { items, requests } => {
                let share = u128::from(added) * u128::from(items) / u128::from(requests.max(1));
                u64::try_from(share).unwrap_or(u64::MAX)
            }
            Items::Uncounted => 0,
        };
        result.memory = Some(Memory::around(before, ended, rested, items));
    }
    result.packing = server.packing()?;
    if let Some(inspect) = &step.inspect {
        result.figures.extend(inspect(server.first())?);
    }
    Ok(())
}

fn cpu_between(before: &Reading, ended: &Reading, last: &Reading, operations: u64) -> Option<Cpu> {
    let seconds = ended.cpu_since(before)?;
    let client = ended.client.as_ref()?.seconds_since(before.client.as_ref()?);
    Some(Cpu {
        seconds,
        rested_seconds: last.cpu_since(before)?,
        per_million: (operations > 0).then(|| seconds / operations as f64 * 1e6),
        client_seconds: client,
    })
}

/// Waits until `used_memory` has stopped moving.
fn wait_for_rest(
    server: &mut Watched,
    least: Duration,
    most: Duration,
) -> Result<(), ControlError> {
    let started = Instant::now();
    let Some(MemoryReading { used: mut anchor, .. }) = server.memory()? else { return Ok(()) };
    let mut since = Instant::now();
    while started.elapsed() < most && !crate::interrupt::requested() {
        std::thread::sleep(Duration::from_millis(100).min(most));
        let used = server.memory()?.map_or(anchor, |reading| reading.used);
        if (used as f64 - anchor as f64).abs() > anchor as f64 * REST_SHARE {
            anchor = used;
            since = Instant::now();
        }
        if since.elapsed() >= REST && started.elapsed() >= least {
            return Ok(());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_series_is_thinned_and_keeps_its_end() {
        let series: Vec<Sample> =
            (0..1001).map(|index| Sample { operations: index, ..Sample::default() }).collect();
        let thinned = thin(series);
        assert!(thinned.len() <= SAMPLES_MAX + 1);
        assert_eq!(thinned[0].operations, 0);
        assert_eq!(thinned.last().unwrap().operations, 1000);
        assert!(thin(Vec::new()).is_empty());
    }
}
