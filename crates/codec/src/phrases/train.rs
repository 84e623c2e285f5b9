//! Which phrases, and which codes, from samples.
//!
//! Begins with the single bytes. In each round the samples are put together from
//! the phrases there are, as cheaply as their counts allow; two that stand side
//! by side more often than their counts explain become one, by what that saves:
//!
//! ```text
//!  bits saved by joining a and b = n(ab) * log2(n(ab) * all / (n(a) * n(b)))
//! ```
//!
//! and a phrase stays as long as it saves more than the cheapest way to do
//! without it, by a margin that keeps out what the samples have by chance. Words
//! that follow each other freely thus stay apart, and sentences that all values
//! share grow together. It is the length of the description that counts, as in
//! minimum description length, not the length of the phrases.
//!
//! Cost: twelve rounds of parsing, half a second for a megabyte of samples;
//! memory of about 20 times the samples, which are held to [`SAMPLE_BYTES_MAX`].

use super::code::lengths;
use super::format::Draft;
use super::parse::{Scratch, WORTH_BITS};
use super::search::{PHRASE_LEN_MAX, PHRASES_MAX, Phrases, SINGLES};
use super::{CONTENT_MAX, CONTEXTS_MAX, PhraseTable};

/// Samples beyond it are not read.
pub(crate) const SAMPLE_BYTES_MAX: usize = 4 << 20;

/// Rounds in which phrases are joined: enough for the longest to come about.
const ROUNDS_JOINING: usize = 9;
/// Rounds after these, in which those that have become needless are let go.
const ROUNDS_SETTLING: usize = 3;

/// What a phrase must occur in the samples ...
const COUNT_MIN: u32 = 4;
/// ... and save, in bits.
const SAVED_MIN: f32 = 24.0;

/// Costs are counted in parts of a bit.
const PARTS: f32 = 16.0;

/// Samples of so many phrases are worth a context more.
const PHRASES_A_CONTEXT: usize = 1000;
/// Times that each group of bytes is taken to have met what all have met.
const BORROWED: f32 = 64.0;
/// Rounds of grouping bytes into contexts ...
const ROUNDS_GROUPING: usize = 6;
/// ... and of counting with the codes that come of it.
const ROUNDS_CODES: usize = 2;
/// What being met without a code weighs for a common one.
const COMMON_WEIGHT: u32 = 4;
/// A phrase has a code of a context if it was met there so often.
const MET_MIN: u32 = 2;

/// Trains a table of at most `phrases_max` phrases and `content_max` bytes of
/// them, each of which saves at least `saved_min` bits of the samples; `None` if there is
/// nothing to learn.
pub(crate) fn train(
    samples: &[&[u8]],
    phrases_max: usize,
    content_max: usize,
    saved_min: f32,
) -> Option<Vec<u8>> {
    let saved_min = saved_min.max(SAVED_MIN);
    let mut room = SAMPLE_BYTES_MAX;
    let samples: Vec<&[u8]> = samples
        .iter()
        .map(|sample| {
            let sample = &sample[..sample.len().min(room)];
            room -= sample.len();
            sample
        })
        .filter(|sample| !sample.is_empty())
        .collect();
    let longer_max = phrases_max.clamp(SINGLES, PHRASES_MAX) - SINGLES;
    let content_max = content_max.min(CONTENT_MAX);
    let mut scratch = Scratch::default();
    let mut lexicon = Lexicon::default();
    for round in 0..ROUNDS_JOINING + ROUNDS_SETTLING {
        let joining = round < ROUNDS_JOINING;
        // A phrase that has just come about may yet grow into one that saves more.
        let least = if joining { SAVED_MIN } else { saved_min };
        let found = lexicon.candidates(&samples, &mut scratch, joining, least)?;
        lexicon = Lexicon::of(found, longer_max, content_max);
    }
    (!lexicon.longer.is_empty()).then(|| codes(&lexicon, &samples, &mut scratch))?
}

/// A phrase, perhaps.
#[derive(Debug)]
struct Candidate {
    bytes: Box<[u8]>,
    count: u32,
    saved: f32,
    /// It was a phrase already.
    is_old: bool,
}

/// The phrases of a round, and what each costs.
#[derive(Default)]
struct Lexicon {
    longer: Vec<Box<[u8]>>,
    /// By id, in parts of a bit; empty in the first round.
    costs: Vec<u32>,
}

fn cost(count: f32, total: f32) -> u32 {
    ((total / count.max(0.3)).log2() * PARTS).clamp(1.0, 20.0 * PARTS) as u32
}

impl Lexicon {
    /// The best of the candidates.
    fn of(
        (mut candidates, singles): (Vec<Candidate>, Vec<u32>),
        longer_max: usize,
        content_max: usize,
    ) -> Self {
        // The same phrase may have come about in several ways.
        candidates.sort_by(|a, b| a.bytes.cmp(&b.bytes).then(b.is_old.cmp(&a.is_old)));
        candidates.dedup_by(|again, first| {
            let same = again.bytes == first.bytes;
            if same && !first.is_old {
                first.count += again.count;
                first.saved += again.saved;
            }
            same
        });
        candidates.sort_by(|a, b| b.saved.total_cmp(&a.saved));
        let mut content = 0;
        let fits = candidates.iter().take(longer_max).take_while(|candidate| {
            content += candidate.bytes.len();
            content <= content_max
        });
        candidates.truncate(fits.count());
        candidates.sort_by(|a, b| a.bytes.cmp(&b.bytes));
        let counts = singles.into_iter().chain(candidates.iter().map(|c| c.count));
        let counts: Vec<u32> = counts.collect();
        let total: f32 = counts.iter().map(|&count| count as f32).sum();
        let costs = counts.iter().map(|&count| cost(count as f32, total)).collect();
        Self { longer: candidates.into_iter().map(|c| c.bytes).collect(), costs }
    }

    /// The phrases that were worth having, and, if `joining`, those that would
    /// be; also how often each single byte was needed.
    fn candidates(
        &self,
        samples: &[&[u8]],
        scratch: &mut Scratch,
        joining: bool,
        saved_min: f32,
    ) -> Option<(Vec<Candidate>, Vec<u32>)> {
        let phrases = Phrases::new(&self.longer)?;
        let mut counts = vec![0u32; phrases.len()];
        let mut pairs: Vec<u32> = Vec::new();
        let price = |_| |id: u16| self.costs.get(usize::from(id)).map_or(1, |&cost| cost);
        for sample in samples {
            let mut before = None;
            scratch.parse(&phrases, sample, 0, price, |_, id| {
                counts[usize::from(id)] += 1;
                if let Some(before) = before.replace(id).filter(|_| joining) {
                    pairs.push(u32::from(before) << 16 | u32::from(id));
                }
            });
        }
        let total: f32 = counts.iter().map(|&count| count as f32).sum();
        let costs: Vec<u32> = counts.iter().map(|&count| cost(count as f32, total)).collect();
        let mut found = Vec::new();
        for (at, bytes) in self.longer.iter().enumerate() {
            let id = at + SINGLES;
            let (count, cost) = (counts[id], costs[id]);
            if count < COUNT_MIN {
                continue;
            }
            let without = cost_without(&phrases, id as u16, &costs);
            let saved = count as f32 * (without as f32 - cost as f32) / PARTS;
            if saved >= saved_min {
                found.push(Candidate { bytes: bytes.clone(), count, saved, is_old: true });
            }
        }
        pairs.sort_unstable();
        for same in pairs.chunk_by(|a, b| a == b) {
            let (count, pair) = (same.len() as u32, same[0]);
            let (a, b) = ((pair >> 16) as u16, pair as u16);
            let (first, second) = (phrases.bytes_of(a), phrases.bytes_of(b));
            if count < COUNT_MIN || first.len() + second.len() > PHRASE_LEN_MAX {
                continue;
            }
            let apart = counts[usize::from(a)] as f32 * counts[usize::from(b)] as f32;
            let saved = count as f32 * (count as f32 * total / apart).log2();
            if saved >= saved_min {
                let bytes = [first, second].concat().into();
                found.push(Candidate { bytes, count, saved, is_old: false });
            }
        }
        counts.truncate(SINGLES);
        Some((found, counts))
    }
}

/// What a phrase's bytes cost if it is not used itself.
fn cost_without(phrases: &Phrases, without: u16, costs: &[u32]) -> u32 {
    let bytes = phrases.bytes_of(without);
    let mut cheapest = [u32::MAX; PHRASE_LEN_MAX + 1];
    cheapest[0] = 0;
    for at in 0..bytes.len() {
        let so_far = cheapest[at];
        let mut id = phrases.longest(&bytes[at..]);
        loop {
            let phrase = phrases.get(id);
            if id != without {
                let end = &mut cheapest[at + phrase.len()];
                *end = (*end).min(so_far + costs[usize::from(id)]);
            }
            if phrase.len() == 1 {
                break;
            }
            id = phrase.parent;
        }
    }
    cheapest[bytes.len()]
}

/// How often phrases were met behind bytes, or in contexts: ascending.
type Met = Vec<(u8, u16, u32)>;

fn count_met(mut met: Vec<u32>) -> Met {
    met.sort_unstable();
    let same = met.chunk_by(|a, b| a == b);
    same.map(|same| ((same[0] >> 16) as u8, same[0] as u16, same.len() as u32)).collect()
}

/// The table of a lexicon: its contexts and codes, from what the samples are
/// put together from when these are counted with.
fn codes(lexicon: &Lexicon, samples: &[&[u8]], scratch: &mut Scratch) -> Option<Vec<u8>> {
    let phrases = Phrases::new(&lexicon.longer)?;
    let mut met = Vec::new();
    for sample in samples {
        let price = |_| |id: u16| lexicon.costs[usize::from(id)];
        let note = |before: u8, id: u16| met.push(u32::from(before) << 16 | u32::from(id));
        scratch.parse(&phrases, sample, 0, price, note);
    }
    let count = (met.len() / PHRASES_A_CONTEXT).min(CONTEXTS_MAX);
    let met = count_met(met);
    let contexts = contexts(&met, phrases.len(), count);
    let in_contexts = |met: Met| -> Met {
        let mut all: Met = met
            .into_iter()
            .map(|(before, id, count)| (contexts[usize::from(before)], id, count))
            .collect();
        all.sort_unstable();
        all.dedup_by(|again, first| {
            let same = (again.0, again.1) == (first.0, first.1);
            first.2 += if same { again.2 } else { 0 };
            same
        });
        all
    };
    let mut bytes = draft(lexicon, contexts, count, &in_contexts(met)).to_bytes();
    for _ in 0..ROUNDS_CODES {
        let table = PhraseTable::from_bytes(&bytes)?;
        let mut met = Vec::new();
        for sample in samples {
            let note = |before: u8, id: u16| met.push(u32::from(before) << 16 | u32::from(id));
            scratch.parse(&table.phrases, sample, WORTH_BITS, |before| table.costs(before), note);
        }
        bytes = draft(lexicon, contexts, count, &in_contexts(count_met(met))).to_bytes();
    }
    Some(bytes)
}

/// The codes for phrases met so often in each context.
fn draft<'l>(lexicon: &'l Lexicon, contexts: [u8; 256], count: usize, met: &Met) -> Draft<'l> {
    let phrases = SINGLES + lexicon.longer.len();
    let mut common = vec![1u32; phrases];
    let mut lists = vec![(0u32, Vec::new()); count + 1];
    for &(context, id, times) in met {
        let (announced, list) = &mut lists[usize::from(context)];
        if context > 0 && times >= MET_MIN {
            list.push((id, times));
            // Met here and there, it may be met elsewhere.
            common[usize::from(id)] += 1;
        } else {
            *announced += times;
            common[usize::from(id)] += COMMON_WEIGHT * times;
        }
    }
    let lists = lists.into_iter().skip(1).map(|(announced, list)| {
        let counts: Vec<u32> =
            list.iter().map(|&(_, times)| times).chain([announced.max(1)]).collect();
        let mut lengths = lengths(&counts);
        let announced = lengths.pop().unwrap_or(1);
        (announced, list.iter().map(|&(id, _)| id).zip(lengths).collect())
    });
    Draft { longer: &lexicon.longer, contexts, common: lengths(&common), lists: lists.collect() }
}

/// Groups the bytes into contexts, 1 to `count`, by what follows them: each
/// byte goes where its followers cost least, and the costs are counted anew, a
/// few times (k-means in bits).
fn contexts(met: &Met, phrases: usize, count: usize) -> [u8; 256] {
    let mut groups = [0u8; 256];
    if count == 0 {
        return groups;
    }
    let by_byte: Vec<&[(u8, u16, u32)]> = met.chunk_by(|a, b| a.0 == b.0).collect();
    let times =
        |list: &[(u8, u16, u32)]| list.iter().map(|&(_, _, times)| times as f32).sum::<f32>();
    let all = times(met) + phrases as f32 * 0.3;
    let mut overall = vec![0.3 / all; phrases];
    for &(_, id, times) in met {
        overall[usize::from(id)] += times as f32 / all;
    }
    // The most frequent bytes begin alone.
    let mut order: Vec<_> = by_byte.iter().map(|list| (times(list), list[0].0)).collect();
    order.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    groups.fill(count as u8);
    for (at, (_, byte)) in order.iter().enumerate() {
        groups[usize::from(*byte)] = (at + 1).min(count) as u8;
    }
    let mut bits = vec![0f32; phrases];
    for _ in 0..ROUNDS_GROUPING {
        let mut best = [(f32::INFINITY, 0u8); 256];
        for group in 1..=count as u8 {
            bits.fill(0.0);
            let mut sum = BORROWED;
            for &(byte, id, times) in met {
                if groups[usize::from(byte)] == group {
                    bits[usize::from(id)] += times as f32;
                    sum += times as f32;
                }
            }
            for (bits, share) in bits.iter_mut().zip(&overall) {
                *bits = (sum / (*bits + BORROWED * share)).log2();
            }
            for list in &by_byte {
                let cost: f32 =
                    list.iter().map(|&(_, id, times)| times as f32 * bits[usize::from(id)]).sum();
                let best = &mut best[usize::from(list[0].0)];
                if cost < best.0 {
                    *best = (cost, group);
                }
            }
        }
        for (group, (_, best)) in groups.iter_mut().zip(best) {
            if best > 0 {
                *group = best;
            }
        }
    }
    groups
}
