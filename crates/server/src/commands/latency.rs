//! LATENCY: which commands took long, and how long each usually takes.

use crate::commands::command::by_full_name;
use crate::commands::{self, container};
use crate::config::Param;
use crate::engine::command::flags::*;
use crate::engine::command::{Answer, Command, Group};
use crate::engine::context::Context;
use crate::engine::out::Out;
use crate::measure::latency::Event;
use crate::outside::clock::unix_ms;
use crate::request::args::Args;
use crate::request::error::Error;
use std::fmt::Write as _;

const FLAGS: u32 = ADMIN | NOSCRIPT | LOADING | STALE;

const fn sub(
    name: &'static str,
    arity: i32,
    handler: crate::engine::command::Handler,
    since: &'static str,
    complexity: &'static str,
    summary: &'static str,
) -> Command {
    Command::new(name, arity, handler).of("latency").flags(FLAGS).about(
        Group::Server,
        since,
        complexity,
        summary,
    )
}

pub(crate) const COMMANDS: &[Command] = &[Command::new("latency", -2, container)
    .about(Group::Server, "2.8.13", "Depends on subcommand.", "Shows what took long.")
    .subcommands(&[
        sub("latest", 2, latest, "2.8.13", "O(1)", "Returns each event's latest sample."),
        sub("history", 3, history, "2.8.13", "O(1)", "Returns an event's samples."),
        sub("reset", -2, reset, "2.8.13", "O(1)", "Forgets samples."),
        sub("graph", 3, graph, "2.8.13", "O(1)", "Draws an event's samples."),
        sub("doctor", 2, doctor, "2.8.13", "O(1)", "Explains what took long."),
        sub(
            "histogram",
            -2,
            histogram,
            "7.0.0",
            "O(N) where N is the number of commands with latency information being retrieved.",
            "Returns how many calls of commands took how long.",
        ),
        Command::new("help", 2, help).of("latency").flags(LOADING | STALE).about(
            Group::Server,
            "2.8.13",
            "O(1)",
            "Says what the subcommands do.",
        ),
    ])];

fn latest(cx: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    let events = cx.server.monitor.events.all();
    out.w().array(events.len());
    for (name, event) in events {
        let (second, ms) = event.samples.back().copied().unwrap_or_default();
        let mut w = out.w();
        w.array(4);
        w.bulk(name.as_bytes());
        w.integer(second as i64);
        w.integer(ms as i64);
        w.integer(event.max_ms as i64);
    }
    Ok(())
}

fn history(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let samples = named(cx, args.bytes(2)).unwrap_or_default().samples;
    out.w().array(samples.len());
    for (second, ms) in samples {
        out.w().array(2);
        out.w().integer(second as i64);
        out.w().integer(ms as i64);
    }
    Ok(())
}

fn named(cx: &Context<'_>, name: &[u8]) -> Option<Event> {
    cx.server.monitor.events.all().into_iter().find(|(n, _)| n.as_bytes() == name).map(|(_, e)| e)
}

fn reset(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let all = args.len() == 2;
    let forgotten = cx
        .server
        .monitor
        .events
        .forget(|name| all || args.iter_from(2).any(|wanted| wanted == name.as_bytes()));
    out.w().integer(forgotten as i64);
    Ok(())
}

/// Lines of the graph.
const GRAPH_ROWS: u64 = 4;
/// Columns of the graph.
const GRAPH_COLUMNS: usize = 80;

/// A column for each sample, the oldest first, and below it its age.
fn graph(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let Some(event) = named(cx, args.bytes(2)) else {
        let name = String::from_utf8_lossy(args.bytes(2)).into_owned();
        return Err(Error::from(format!("ERR No samples available for event '{name}'")).into());
    };
    let name = String::from_utf8_lossy(args.bytes(2)).into_owned();
    let skip = event.samples.len().saturating_sub(GRAPH_COLUMNS);
    let samples: Vec<(u64, u64)> = event.samples.iter().skip(skip).copied().collect();
    let high = samples.iter().map(|(_, ms)| *ms).max().unwrap_or(0);
    let low = samples.iter().map(|(_, ms)| *ms).min().unwrap_or(0);
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ =
        writeln!(text, "{name} - high {high} ms, low {low} ms (all time high {} ms)", event.max_ms);
    text.push_str(&"-".repeat(GRAPH_COLUMNS));
    text.push('\n');
    for row in (0..GRAPH_ROWS).rev() {
        for (_, ms) in &samples {
            let height = (ms - low) * (GRAPH_ROWS * 2 - 1) / (high - low).max(1);
            text.push(match height.checked_sub(row * 2) {
                Some(0) => '_',
                Some(1..) => '#',
                None => ' ',
            });
        }
        text.push('\n');
    }
    text.push('\n');
    let now = unix_ms() / 1000;
    let ages: Vec<String> = samples.iter().map(|(second, _)| age(now, *second)).collect();
    for line in 0..ages.iter().map(String::len).max().unwrap_or(0) {
        let letter = |age: &String| age.chars().nth(line).unwrap_or(' ');
        text.extend(ages.iter().map(letter));
        text.push('\n');
    }
    out.w().verbatim("txt", text.as_bytes());
    Ok(())
}

/// How long ago, in one unit: `42s`, `3m`, `5h`, `2d`.
fn age(now: u64, second: u64) -> String {
    match now.saturating_sub(second) {
        age @ 0..60 => format!("{age}s"),
        age @ 60..3600 => format!("{}m", age / 60),
        age @ 3600..86_400 => format!("{}h", age / 3600),
        age => format!("{}d", age / 86_400),
    }
}

fn doctor(cx: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    let events = cx.server.monitor.events.all();
    let threshold = cx.server.config.number(Param::LatencyMonitorThreshold);
    let mut text = String::new();
    if threshold == 0 && events.is_empty() {
        text.push_str(
            "Latency monitoring is off. Turn it on with \"CONFIG SET latency-monitor-threshold <milliseconds>\".\n",
        );
    } else if events.is_empty() {
        let _ = writeln!(text, "Nothing took {threshold} ms or longer so far. All is well.");
    }
    for (number, (name, event)) in events.iter().enumerate() {
        let count = event.samples.len() as u64;
        let sum: u64 = event.samples.iter().map(|(_, ms)| ms).sum();
        let first = event.samples.front().map_or(0, |(second, _)| *second);
        let last = event.samples.back().map_or(0, |(second, _)| *second);
        let every = (last - first) as f64 / (count.saturating_sub(1).max(1)) as f64;
        let _ = writeln!(
            text,
            "{}. {name}: {count} samples (average {} ms, every {every:.1} seconds). Worst all time {} ms.",
            number + 1,
            sum / count.max(1),
            event.max_ms,
        );
    }
    if !events.is_empty() {
        text.push_str(
            "\nSLOWLOG GET shows which commands these were; LATENCY HISTOGRAM how usual that is.\n",
        );
    }
    out.w().verbatim("txt", text.as_bytes());
    Ok(())
}

/// Of the commands named, or all, those that were called; of a container its
/// subcommands.
fn histogram(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let named: Vec<&Command> = args.iter_from(2).filter_map(by_full_name).collect();
    let wanted = |command: &Command| {
        let is = |named: &&Command| {
            named.index == command.index
                || named.container.is_none() && command.container == Some(named.name)
        };
        args.len() == 2 || named.iter().any(is)
    };
    let monitor = &cx.server.monitor;
    let found = commands::all().iter().filter(|command| wanted(command));
    let times: Vec<_> = found.map(|command| (command, monitor.times(command))).collect();
    let called: Vec<_> = times.into_iter().filter(|(_, times)| times.calls() > 0).collect();
    out.w().map(called.len());
    for (command, times) in called {
        let steps = times.cumulative();
        let mut w = out.w();
        w.bulk(command.full_name().as_bytes());
        w.map(2);
        w.bulk(b"calls");
        w.integer(times.calls() as i64);
        w.bulk(b"histogram_usec");
        w.map(steps.len());
        for (limit, calls) in steps {
            w.integer(limit as i64);
            w.integer(calls as i64);
        }
    }
    Ok(())
}

fn help(_: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    let lines = [
        ("DOCTOR", "Explain what took long."),
        ("GRAPH <event>", "Draw the samples of an event."),
        ("HISTORY <event>", "Return the samples of an event: time and milliseconds."),
        ("LATEST", "Return the latest sample of each event."),
        ("RESET [<event> ...]", "Forget the samples of events; of all if none is named."),
        (
            "HISTOGRAM [COMMAND ...]",
            "Return how many calls took less than 1, 2, 4 ... microseconds; of all commands if none is named.",
        ),
    ];
    commands::help(out, "LATENCY", &lines);
    Ok(())
}
