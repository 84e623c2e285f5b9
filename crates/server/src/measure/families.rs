//! What families of values have counted, for metrics that must not go down.

use snug_store::families::FamilyInfo;
use std::collections::BTreeMap;

/// Families with a label of their own; the others are added up.
pub(crate) const FAMILIES_SHOWN: usize = 64;

/// What a family has counted: of it, each metric of a family shows one.
pub(crate) type FamilyRow = [u64; 6];

/// What families have counted, so that their metrics never go down but by starting
/// anew. Which of them have a label of their own changes from scrape to scrape; the
/// others' sum therefore grows by what they count while they have none, and is not
/// what they have counted in all.
#[derive(Debug, Default)]
pub(crate) struct FamilySums {
    /// What each family that is there had counted at the last scrape.
    last: BTreeMap<Name, FamilyRow>,
    others: FamilyRow,
}

/// What a family goes by: the type of its values, and the shape of its keys.
type Name = (&'static str, Vec<u8>);

impl FamilySums {
    /// The rows of families, those with most bytes first: the first of them by type and
    /// name, and the sum of the others, of no type, if there are or were any.
    pub(crate) fn rows(
        &mut self,
        families: &[FamilyInfo],
    ) -> BTreeMap<(&'static str, String), FamilyRow> {
        let last = std::mem::take(&mut self.last);
        let mut rows = BTreeMap::new();
        for (n, family) in families.iter().enumerate() {
            let stats = family.stats;
            let row = [
                stats.packed,
                stats.raw_bytes,
                stats.packed_bytes,
                family.skipped,
                family.not_worth,
                family.expiring,
            ];
            let name: Name = (family.kind.name(), family.shape.clone());
            if n < FAMILIES_SHOWN {
                let name = (name.0, String::from_utf8_lossy(&name.1).into_owned());
                // Names that differ in bytes that are no UTF-8 share a row.
                let sum: &mut FamilyRow = rows.entry(name).or_default();
                sum.iter_mut().zip(row).for_each(|(sum, n)| *sum += n);
            } else {
                let before = last.get(&name).copied().unwrap_or_default();
                for ((sum, now), before) in self.others.iter_mut().zip(row).zip(before) {
                    // One that was let go of begins anew.
                    *sum += now.checked_sub(before).unwrap_or(now);
                }
            }
            self.last.insert(name, row);
        }
        if self.others != FamilyRow::default() {
            rows.insert(("", "(others)".to_owned()), self.others);
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use snug_codec::family::FamilyStats;
    use snug_store::Type;

    #[test]
    fn what_families_counted_never_goes_down() {
        let store = snug_store::Store::new(
            snug_store::StoreConfig::default(),
            Box::new(snug_store::Unobserved),
        );
        store.families().of(Type::String, b"one:1");
        let one = store.families().all().remove(0);
        let family = |n: usize, packed: u64| FamilyInfo {
            shape: format!("f{n}").into_bytes(),
            stats: FamilyStats { packed, ..one.stats },
            ..one.clone()
        };
        let mut sums = FamilySums::default();
        let mut of = |counts: &[(usize, u64)]| {
            let families: Vec<_> = counts.iter().map(|&(n, packed)| family(n, packed)).collect();
            let rows = sums.rows(&families);
            let get = |kind, name: &str| rows.get(&(kind, name.to_owned())).map(|row| row[0]);
            (rows.len(), get("string", "f0"), get("string", "f99"), get("", "(others)"))
        };
        let mut all: Vec<(usize, u64)> = (0..FAMILIES_SHOWN).map(|n| (n, 10)).collect();
        assert_eq!(of(&all), (64, Some(10), None, None));
        all.push((99, 5));
        assert_eq!(of(&all), (65, Some(10), None, Some(5)));
        // They change places: what the one counted under its name is not told again.
        all[0].1 = 12;
        all[64].1 = 20;
        all.swap(0, 64);
        assert_eq!(of(&all), (65, None, Some(20), Some(7)));
        all[0].1 = 21;
        assert_eq!(of(&all), (65, None, Some(21), Some(7)));
        // One is let go of and comes again.
        all[64].1 = 3;
        assert_eq!(of(&all), (65, None, Some(21), Some(10)));
        all.pop();
        assert_eq!(of(&all), (65, None, Some(21), Some(10)));
    }
}
