//! What is shown: rates from two samples, and figures with their units.

use snug_bench::report::table::{count, number};

use crate::sample::{Family, Sample};

/// A line of figures: a name, and a text.
pub(crate) type Fact = (&'static str, String);

/// A command that was called since the last look, or ever.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Command {
    pub(crate) name: String,
    pub(crate) calls_a_second: f64,
    /// Microseconds of a call, in the mean since the last look.
    pub(crate) usec: f64,
    /// Share of one core's time.
    pub(crate) load: f64,
    /// Since the server started.
    pub(crate) p50: Option<f64>,
    pub(crate) p99: Option<f64>,
    pub(crate) failed_a_second: f64,
}

/// By what commands are ordered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Order {
    #[default]
    Calls,
    Load,
    Tail,
}

impl Order {
    pub(crate) fn next(self) -> Self {
        match self {
            Self::Calls => Self::Load,
            Self::Load => Self::Tail,
            Self::Tail => Self::Calls,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Calls => "calls",
            Self::Load => "time",
            Self::Tail => "p99",
        }
    }
}

/// All that is shown of a server.
#[derive(Debug, Clone, Default)]
pub(crate) struct View {
    pub(crate) title: String,
    pub(crate) is_snug: bool,
    pub(crate) ops: f64,
    pub(crate) traffic: Vec<Fact>,
    pub(crate) memory: Vec<Fact>,
    pub(crate) packing: Vec<Fact>,
    pub(crate) commands: Vec<Command>,
    pub(crate) families: Vec<Family>,
    /// Memory in use of what it may be, from 0 to 1, if there is a limit.
    pub(crate) full: Option<f64>,
    pub(crate) order: Order,
    /// What is wrong with the connection.
    pub(crate) trouble: Option<String>,
}

/// Bytes with a unit of 10^3 steps.
pub(crate) fn bytes(value: f64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB"];
    let (mut value, mut unit) = (value, 0);
    while value.abs() >= 1000.0 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    match unit {
        0 => format!("{value:.0} B"),
        _ => format!("{} {}", number(value), units[unit]),
    }
}

pub(crate) fn micros(value: f64) -> String {
    match value {
        0.0..1000.0 => format!("{} us", number(value)),
        1000.0..1e6 => format!("{} ms", number(value / 1e3)),
        _ => format!("{} s", number(value / 1e6)),
    }
}

pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn time(seconds: f64) -> String {
    let seconds = seconds as u64;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// A part of a field like `calls=5,usec=17`.
fn part(text: &str, name: &str) -> Option<f64> {
    let mut parts = text.split(',').filter_map(|part| part.split_once('='));
    parts.find(|(found, _)| *found == name).and_then(|(_, value)| value.parse().ok())
}

impl View {
    pub(crate) fn of(address: &str, before: &Sample, now: &Sample, order: Order) -> Self {
        let passed = now.at.duration_since(before.at).as_secs_f64();
        // What was counted may have been counted anew since: a server restarts, or
        // CONFIG RESETSTAT.
        let rate_of = |old: Option<f64>, new: f64| match (old, passed > 0.0) {
            (Some(old), true) if new >= old => (new - old) / passed,
            _ => 0.0,
        };
        let rate = |field: &str| Some(rate_of(before.number(field), now.number(field)?));
        let is_snug = !now.text("snug_version").is_empty();
        let mut view = Self {
            title: title(address, now),
            is_snug,
            ops: rate("total_commands_processed").unwrap_or(0.0),
            commands: commands(before, now, &rate_of),
            families: now.families.clone(),
            order,
            trouble: now.denied.clone(),
            ..Self::default()
        };
        view.families
            .sort_by(|a, b| b.raw_bytes.cmp(&a.raw_bytes).then_with(|| a.shape.cmp(&b.shape)));
        let mut traffic = Facts(&mut view.traffic);
        traffic.say("operations", Some(format!("{}/s", number(view.ops))));
        let cpu = rate("used_cpu_user").zip(rate("used_cpu_sys"));
        traffic.say("CPU of a core", cpu.map(|(user, sys)| percent(user + sys)));
        traffic.say("in", rate("total_net_input_bytes").map(|rate| bytes(rate) + "/s"));
        traffic.say("out", rate("total_net_output_bytes").map(|rate| bytes(rate) + "/s"));
        let (hits, misses) = (rate("keyspace_hits"), rate("keyspace_misses"));
        let hits = hits.zip(misses).filter(|(hits, misses)| hits + misses > 0.0);
        traffic.say("hits", hits.map(|(hits, misses)| percent(hits / (hits + misses))));
        traffic.say("clients", now.number("connected_clients").map(count));
        traffic.say("blocked", now.number("blocked_clients").map(count));
        traffic.say("new clients", rate("total_connections_received").map(|n| number(n) + "/s"));
        let used = now.number("used_memory");
        let limit = now.number("maxmemory").filter(|limit| *limit > 0.0);
        view.full = used.zip(limit).map(|(used, limit)| used / limit);
        let mut memory = Facts(&mut view.memory);
        memory.say("keys", Some(count(keys(now))));
        memory.say("in use", used.map(bytes));
        memory.say("limit", Some(limit.map_or_else(|| "none".into(), bytes)));
        memory.say("resident", now.number("used_memory_rss").map(bytes));
        memory.say("peak", now.number("used_memory_peak").map(bytes));
        memory.say("expired", rate("expired_keys").map(|rate| number(rate) + "/s"));
        memory.say("evicted", rate("evicted_keys").map(|rate| number(rate) + "/s"));
        memory.say("fragmentation", now.number("mem_fragmentation_ratio").map(number));
        if is_snug {
            packing(&mut Facts(&mut view.packing), now, &rate);
        }
        view.sort(order);
        view
    }

    pub(crate) fn sort(&mut self, order: Order) {
        self.order = order;
        let key = |command: &Command| match order {
            Order::Calls => command.calls_a_second,
            Order::Load => command.load,
            Order::Tail => command.p99.unwrap_or(0.0),
        };
        self.commands.sort_by(|a, b| key(b).total_cmp(&key(a)).then_with(|| a.name.cmp(&b.name)));
    }
}

struct Facts<'a>(&'a mut Vec<Fact>);

impl Facts<'_> {
    /// What a server does not tell is not shown.
    fn say(&mut self, name: &'static str, text: Option<String>) {
        self.0.extend(text.map(|text| (name, text)));
    }
}

/// What a Snug packs, and what waits to be packed.
fn packing(facts: &mut Facts<'_>, now: &Sample, rate: &dyn Fn(&str) -> Option<f64>) {
    let raw = now.number("raw_bytes").unwrap_or(0.0);
    let from = now.number("packed_from_bytes").unwrap_or(0.0);
    let to = now.number("packed_bytes").unwrap_or(0.0);
    facts.say("values", Some(bytes(raw)));
    facts.say("of them packed", Some(format!("{} to {}", bytes(from), bytes(to))));
    facts.say("ratio", now.number("packed_ratio").map(number));
    facts.say("saved", now.number("saved_bytes").map(bytes));
    let strings = now.number("strings_pending").zip(now.number("blocks_pending"));
    facts.say(
        "backlog",
        strings.map(|(strings, blocks)| {
            format!("{} values, {} blocks", count(strings), count(blocks))
        }),
    );
    facts.say("pack CPU", rate("pack_cpu_milliseconds").map(|rate| percent(rate / 1000.0)));
    facts.say("sweep CPU", rate("sweeper_cpu_milliseconds").map(|rate| percent(rate / 1000.0)));
    facts.say("pressure", now.number("memory_pressure").map(|pressure| format!("{pressure:.2}")));
    facts.say("dictionaries", now.number("string_dictionary_bytes").map(bytes));
    facts.say("pass", now.number("pack_pass_progress").map(percent));
    let damaged = now.number("values_damaged").filter(|damaged| *damaged > 0.0);
    facts.say("DAMAGED", damaged.map(count));
}

fn keys(now: &Sample) -> f64 {
    let of_db = |(name, text): (&String, &String)| {
        let number = name.strip_prefix("db")?;
        number.parse::<u32>().ok()?;
        part(text, "keys")
    };
    now.info.iter().filter_map(of_db).sum()
}

fn title(address: &str, now: &Sample) -> String {
    let product = ["snug", "valkey", "dragonfly", "redis"]
        .iter()
        .find_map(|name| {
            now.info.get(&format!("{name}_version")).map(|version| format!("{name} {version}"))
        })
        .unwrap_or_default();
    let role = match now.text("role") {
        "slave" => format!(", replica of {}:{}", now.text("master_host"), now.text("master_port")),
        _ => match now.number("connected_slaves") {
            Some(replicas) if replicas > 0.0 => format!(", {replicas:.0} replicas"),
            _ => String::new(),
        },
    };
    let up = now.number("uptime_in_seconds").map_or_else(String::new, time);
    format!("{address}  {product}{role}, up {up}")
}

fn commands(
    before: &Sample,
    now: &Sample,
    rate_of: &dyn Fn(Option<f64>, f64) -> f64,
) -> Vec<Command> {
    let mut all = Vec::new();
    for (field, text) in &now.info {
        let Some(name) = field.strip_prefix("cmdstat_") else { continue };
        let old = before.text(field);
        // A command that was never called before was called 0 times.
        let rate = |what: &str| {
            let old = if old.is_empty() { Some(0.0) } else { part(old, what) };
            part(text, what).map_or(0.0, |new| rate_of(old, new))
        };
        let (calls, usec) = (rate("calls"), rate("usec"));
        let latency = now.text(&format!("latency_percentiles_usec_{name}"));
        all.push(Command {
            name: name.escape_default().to_string(),
            calls_a_second: calls,
            usec: if calls > 0.0 { usec / calls } else { 0.0 },
            load: usec / 1e6,
            p50: part(latency, "p50"),
            p99: part(latency, "p99"),
            failed_a_second: rate("rejected_calls") + rate("failed_calls"),
        });
    }
    all
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    pub(crate) fn sample(text: &str, at: Instant) -> Sample {
        let info = snug_bench::server_facts::fields(text);
        Sample { at, info, families: Vec::new(), denied: None }
    }

    pub(crate) fn two(is_snug: bool) -> (Sample, Sample) {
        let begun = Instant::now();
        let product = if is_snug {
            "snug_version:0.1.0\nraw_bytes:1000000\n\
            packed_from_bytes:900000\npacked_bytes:90000\npacked_ratio:10.0\nsaved_bytes:810000\n\
            strings_pending:7\nblocks_pending:2\npack_cpu_milliseconds:120\nmemory_pressure:0.25\n"
        } else {
            ""
        };
        let text = |calls: u32, usec: u32| {
            format!(
                "redis_version:7.2.0\nuptime_in_seconds:90061\nused_memory:5000000\n\
                 maxmemory:10000000\ntotal_commands_processed:{calls}\n{product}\
                 db0:keys=40,expires=1\ndb3:keys=2,expires=0\n\
                 cmdstat_get:calls={calls},usec={usec},usec_per_call=1\n\
                 latency_percentiles_usec_get:p50=1.003,p99=2500.007\n"
            )
        };
        let later = begun + Duration::from_secs(2);
        (sample(&text(1000, 5000), begun), sample(&text(3000, 9000), later))
    }

    #[test]
    fn two_samples_make_rates() {
        let (before, now) = two(true);
        let view = View::of("db:6379", &before, &now, Order::Calls);
        assert_eq!(view.title, "db:6379  snug 0.1.0, up 1 d 1 h");
        assert!((view.ops - 1000.0).abs() < 1e-9);
        let get = &view.commands[0];
        assert_eq!((get.calls_a_second, get.usec, get.p99), (1000.0, 2.0, Some(2500.007)));
        assert_eq!(view.full, Some(0.5));
        let fact = |facts: &[Fact], name: &str| {
            facts.iter().find(|fact| fact.0 == name).map(|fact| fact.1.clone())
        };
        assert_eq!(fact(&view.memory, "keys").as_deref(), Some("42"));
        assert_eq!(fact(&view.packing, "of them packed").as_deref(), Some("900 kB to 90.0 kB"));
        assert_eq!(fact(&view.packing, "backlog").as_deref(), Some("7 values, 2 blocks"));
        // The server was started anew: nothing goes backwards.
        let view = View::of("db:6379", &now, &before, Order::Calls);
        assert!(view.ops.abs() < 1e-9);
    }

    #[test]
    fn redis_tells_what_it_has() {
        let (before, now) = two(false);
        let view = View::of("db:6379", &before, &now, Order::Tail);
        assert!(view.packing.is_empty() && !view.is_snug && view.families.is_empty());
        assert!(view.title.contains("redis 7.2.0"));
        assert_eq!((bytes(999.0), bytes(1500.0)), ("999 B".into(), "1.50 kB".into()));
        assert_eq!((micros(2500.0), micros(3e6)), ("2.50 ms".into(), "3.00 s".into()));
    }
}
