//! What a server tells of itself: version, process, memory, packing.
//!
//! All of it comes from `INFO` and `DBSIZE`, and CPU time and resident memory
//! from the process where the server runs on this machine.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::endpoint::{Control, ControlError, Endpoint, Value};
use crate::process::Process;

/// Who a server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Product and version: `redis 7.0.15`, `valkey 8.0.1`, `snug 0.1.0`.
    pub version: String,
    /// Its process, where that is on this machine.
    pub process: Option<Process>,
    /// Its answer to `INFO`, where it does not let this user ask.
    pub unseen: Option<String>,
}

/// Memory at one moment, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryReading {
    /// `used_memory`: what the server's allocator has handed out.
    pub used: u64,
    /// Resident: from the process where it is local, else as the server says.
    pub resident: u64,
    /// Keys in the selected database.
    pub keys: u64,
}

/// Fields of an `INFO` reply, `name:value` line by line.
pub fn fields(info: &str) -> BTreeMap<String, String> {
    info.lines()
        .filter_map(|line| line.trim_end().split_once(':'))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn info(control: &mut Control, section: &str) -> Result<BTreeMap<String, String>, ControlError> {
    Ok(fields(&control.call(&["INFO", section])?.text()))
}

/// Reads who the server is. One that does not give `INFO` can still be driven.
pub fn identify(control: &mut Control, endpoint: &Endpoint) -> Result<Identity, ControlError> {
    let facts = match info(control, "server") {
        Err(ControlError::Reply { reply, .. }) => {
            return Ok(Identity { version: "unknown".into(), process: None, unseen: Some(reply) });
        }
        other => other?,
    };
    let tls_port = match endpoint.tls {
        Some(_) => tls_port(control)?,
        None => None,
    };
    let product = ["snug", "valkey", "dragonfly", "redis"]
        .iter()
        .find_map(|name| facts.get(&format!("{name}_version")).map(|v| format!("{name} {v}")));
    Ok(Identity {
        version: product.unwrap_or_else(|| "unknown".into()),
        process: local_process(&facts, tls_port, endpoint),
        unseen: None,
    })
}

/// The server's port for TLS: `INFO` names only the other, if it has both.
fn tls_port(control: &mut Control) -> Result<Option<u16>, ControlError> {
    let answer = control.send(&["CONFIG", "GET", "tls-port"])?;
    let Value::List(pair) = answer else { return Ok(None) };
    Ok(pair.last().and_then(Value::as_u64).and_then(|port| u16::try_from(port).ok()))
}

/// The server's process, if it is on this machine: a forwarded port answers on
/// loopback too, but then the server names another port as its own.
fn local_process(
    facts: &BTreeMap<String, String>,
    tls_port: Option<u16>,
    endpoint: &Endpoint,
) -> Option<Process> {
    let is_own = tls_port == Some(endpoint.port)
        || facts.get("tcp_port").and_then(|port| port.parse().ok()) == Some(endpoint.port);
    if !endpoint.is_local() || !is_own {
        return None;
    }
    Process::find(facts.get("process_id")?.parse().ok()?)
}

/// Reads memory and the number of keys.
pub fn memory(
    control: &mut Control,
    process: Option<Process>,
) -> Result<MemoryReading, ControlError> {
    let facts = info(control, "memory")?;
    let number = |name: &str| facts.get(name).and_then(|value| value.parse().ok());
    let keys = match control.send(&["DBSIZE"])? {
        Value::Integer(keys) => u64::try_from(keys).unwrap_or(0),
        _ => 0,
    };
    Ok(MemoryReading {
        used: number("used_memory").unwrap_or(0),
        resident: process
            .and_then(Process::resident_bytes)
            .or_else(|| number("used_memory_rss"))
            .unwrap_or(0),
        keys,
    })
}

/// The `# Packing` section, which Snug has and others answer with nothing.
pub fn packing(control: &mut Control) -> Result<BTreeMap<String, String>, ControlError> {
    match control.send(&["INFO", "packing"])? {
        Value::Text(text) => Ok(fields(&String::from_utf8_lossy(&text))),
        _ => Ok(BTreeMap::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn info_lines_become_fields() {
        let facts =
            fields("# Server\r\nredis_version:7.0.15\r\nconfig_file:\r\nexecutable:/a:b\r\n");
        assert_eq!(facts.get("redis_version").map(String::as_str), Some("7.0.15"));
        assert_eq!(facts.get("executable").map(String::as_str), Some("/a:b"));
        assert_eq!(facts.len(), 3);
    }

    #[test]
    fn a_forwarded_port_is_no_local_process() {
        let own = std::process::id().to_string();
        let facts = fields(&format!("process_id:{own}\r\ntcp_port:6379\r\n"));
        assert!(local_process(&facts, None, &Endpoint::local(6379)).is_some());
        assert!(local_process(&facts, Some(6380), &Endpoint::local(6380)).is_some());
        assert!(local_process(&facts, Some(6380), &Endpoint::local(16379)).is_none());
        assert!(local_process(&facts, None, &Endpoint::local(16379)).is_none());
    }
}
