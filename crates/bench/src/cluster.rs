//! A Redis cluster from a client's side: which node has which slot, and how a few
//! fresh servers are made into one.
//!
//! A slot is CRC16 (XMODEM) of the key, or of what stands between its first `{`
//! and the next `}`, modulo 16,384: <https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/>.

use std::time::{Duration, Instant};

use crate::endpoint::{Control, ControlError, Endpoint, Value};

/// Slots of a cluster.
pub const SLOTS: usize = 16_384;
/// The longest that nodes may take to agree.
const FORM_MAX: Duration = Duration::from_secs(30);

const CRC16: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// A key's slot.
pub fn slot(key: &[u8]) -> usize {
    let tag = key.iter().position(|&byte| byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        rest.iter().position(|&byte| byte == b'}').map(|close| &rest[..close])
    });
    let hashed = tag.filter(|tag| !tag.is_empty()).unwrap_or(key);
    let crc = hashed
        .iter()
        .fold(0_u16, |crc, &byte| crc << 8 ^ CRC16[usize::from((crc >> 8) as u8 ^ byte)]);
    usize::from(crc) % SLOTS
}

/// The slot of an encoded request: that of its first key, which is the word after
/// the command, or after `STREAMS`. `None` if it has no key.
pub fn slot_of_request(request: &[u8]) -> Option<usize> {
    let mut words = Words { rest: request.get(request.iter().position(|&b| b == b'\n')? + 1..)? };
    let command = words.next()?;
    if command.eq_ignore_ascii_case(b"XREAD") || command.eq_ignore_ascii_case(b"XREADGROUP") {
        words.by_ref().find(|word| word.eq_ignore_ascii_case(b"STREAMS"))?;
    }
    words.next().map(slot)
}

/// The words of an encoded request.
struct Words<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let digits = self.rest.strip_prefix(b"$")?;
        let mut length = 0;
        let mut at = 0;
        while digits.get(at)?.is_ascii_digit() {
            length = length * 10 + usize::from(digits[at] - b'0');
            at += 1;
        }
        let word = digits.get(at + 2..at + 2 + length)?;
        self.rest = digits.get(at + 4 + length..)?;
        Some(word)
    }
}

/// Where each slot is.
#[derive(Debug, Clone)]
pub struct Topology {
    /// The nodes that have slots.
    pub nodes: Vec<Endpoint>,
    /// A node's index for each slot.
    owners: Vec<u16>,
}

impl Topology {
    /// Asks a node. An error if a slot has no owner.
    pub fn discover(entry: &Endpoint) -> Result<Self, ControlError> {
        let mut control = entry.open()?;
        let ranges = control.call(&["CLUSTER", "SLOTS"])?;
        let mut topology = Self { nodes: Vec::new(), owners: vec![u16::MAX; SLOTS] };
        let Value::List(ranges) = ranges else { return Err(uncovered(entry, SLOTS)) };
        for range in &ranges {
            let Value::List(parts) = range else { continue };
            let [first, last, Value::List(owner), ..] = parts.as_slice() else { continue };
            let [host, port, ..] = owner.as_slice() else { continue };
            let (Some(first), Some(last), Some(port)) =
                (first.as_u64(), last.as_u64(), port.as_u64())
            else {
                continue;
            };
            let Ok(port) = u16::try_from(port) else { continue };
            let node = topology.node(entry, &host.text(), port);
            let last = (last as usize).min(SLOTS - 1);
            for owner in topology.owners.iter_mut().take(last + 1).skip(first as usize) {
                *owner = node as u16;
            }
        }
        match topology.owners.iter().filter(|&&owner| owner == u16::MAX).count() {
            0 => Ok(topology),
            without => Err(uncovered(entry, without)),
        }
    }

    /// The node that has a slot.
    pub fn owner(&self, slot: usize) -> usize {
        usize::from(self.owners[slot % SLOTS])
    }

    /// The index of a node, which may be new. A node that does not know its own
    /// name means the one that was asked.
    fn node(&mut self, asked: &Endpoint, host: &str, port: u16) -> usize {
        let host = if host.is_empty() || host == "?" { asked.host.as_str() } else { host };
        let known = |node: &Endpoint| node.host == host && node.port == port;
        self.nodes.iter().position(known).unwrap_or_else(|| {
            self.nodes.push(Endpoint { host: host.to_owned(), port, ..asked.clone() });
            self.nodes.len() - 1
        })
    }

    /// Learns from `MOVED 3999 127.0.0.1:6381` where a slot has gone. Returns the
    /// node; `None` if the error is another.
    pub fn learn(&mut self, from: usize, error: &[u8]) -> Option<usize> {
        let text = std::str::from_utf8(error.strip_prefix(b"MOVED ")?).ok()?;
        let (slot, address) = text.split_once(' ')?;
        let slot: usize = slot.parse().ok().filter(|&slot| slot < SLOTS)?;
        let (host, port) = address.trim_end().rsplit_once(':')?;
        let asked = self.nodes.get(from)?.clone();
        let node = self.node(&asked, host, port.parse().ok()?);
        self.owners[slot] = node as u16;
        Some(node)
    }
}

fn uncovered(entry: &Endpoint, slots: usize) -> ControlError {
    let reply = format!("{slots} slots are served by no node");
    ControlError::Refused { address: entry.address(), reply }
}

/// Makes fresh cluster nodes into one cluster with the slots shared evenly.
pub fn form(nodes: &[Endpoint]) -> Result<(), String> {
    let text = |error: ControlError| error.to_string();
    let mut controls: Vec<Control> =
        nodes.iter().map(Endpoint::open).collect::<Result<_, _>>().map_err(text)?;
    for (index, control) in controls.iter_mut().enumerate() {
        let bound = |part: usize| SLOTS * part / nodes.len();
        let (first, last) = (bound(index).to_string(), (bound(index + 1) - 1).to_string());
        if nodes.len() > 1 {
            let epoch = (index + 1).to_string();
            control.call(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]).map_err(text)?;
        }
        control.call(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]).map_err(text)?;
    }
    for node in &nodes[1..] {
        let port = node.port.to_string();
        controls[0].call(&["CLUSTER", "MEET", &node.host, &port]).map_err(text)?;
    }
    let started = Instant::now();
    for (control, node) in controls.iter_mut().zip(nodes) {
        while !agrees(control, nodes.len()).map_err(text)? {
            if started.elapsed() > FORM_MAX {
                return Err(format!("{} did not join within {FORM_MAX:?}", node.address()));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    Ok(())
}

/// Whether a node knows all the others and that every slot is served.
fn agrees(control: &mut Control, nodes: usize) -> Result<bool, ControlError> {
    let info = control.call(&["CLUSTER", "INFO"])?.text();
    let facts = crate::server_facts::fields(&info);
    let is = |name: &str, value: &str| facts.get(name).is_some_and(|known| known == value);
    Ok(is("cluster_state", "ok")
        && is("cluster_known_nodes", &nodes.to_string())
        && is("cluster_slots_assigned", &SLOTS.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::write_request;

    /// From the specification, and from redis-server's `CLUSTER KEYSLOT`.
    #[test]
    fn slots_are_redis_s() {
        assert_eq!(slot(b"123456789"), 0x31c3);
        for (key, expected) in [
            ("foo", 12182),
            ("{user1000}.following", slot(b"user1000")),
            ("foo{}{bar}", slot(b"foo{}{bar}")),
            ("foo{{bar}}zap", slot(b"{bar")),
            ("foo{bar}{zap}", slot(b"bar")),
            ("", 0),
        ] {
            assert_eq!(slot(key.as_bytes()), expected, "{key}");
        }
        assert_ne!(slot(b"foo{}{bar}"), slot(b"bar"));
    }

    #[test]
    fn a_request_goes_where_its_first_key_is() {
        let of = |words: &[&str]| {
            let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
            let mut out = Vec::new();
            write_request(&mut out, &words);
            slot_of_request(&out)
        };
        assert_eq!(of(&["SET", "key:000000000007", "x"]), Some(slot(b"key:000000000007")));
        let group = ["xreadgroup", "GROUP", "g", "c", "COUNT", "2", "streams", "s", ">"];
        assert_eq!(of(&group), Some(slot(b"s")));
        assert_eq!(of(&["PING"]), None);
        assert_eq!(slot_of_request(b"*2\r\n$3\r\nGET\r\n$99\r\nk"), None);
    }

    #[test]
    fn a_redirection_moves_a_slot() {
        let entry = Endpoint::local(7000);
        let mut topology = Topology { nodes: vec![entry], owners: vec![0; SLOTS] };
        assert_eq!(topology.learn(0, b"MOVED 5 10.0.0.2:7001"), Some(1));
        assert_eq!((topology.owner(5), topology.owner(6)), (1, 0));
        assert_eq!(topology.nodes[1].address(), "10.0.0.2:7001");
        assert_eq!(topology.learn(1, b"MOVED 6 :7002"), Some(2));
        assert_eq!(topology.nodes[2].address(), "10.0.0.2:7002");
        assert_eq!(topology.learn(0, b"MOVED 7 127.0.0.1:7000"), Some(0));
        for other in ["ASK 5 a:1", "MOVED x a:1", "MOVED 99999 a:1", "MOVED 5 a", "ERR MOVED"] {
            assert_eq!(topology.learn(0, other.as_bytes()), None, "{other}");
        }
    }
}
