//! How a run of bytes is packed that is one piece by itself: a short value, a page of a
//! collection. What packs in a way of its own (columns, chains) does not need this.

use crate::pack::dictionaries::HeldDictionary;
use crate::pack::families::{Claim, KeyFamily, Plan};
use crate::pack::form::{PACK_MAX, dictionary_id};
use crate::pack::piece::Plans;
use crate::pack::saving::MinSaving;
use snug_codec::packed::Header;
use snug_codec::policy::Choice;
use snug_codec::{Codec, Dictionary, Workspace};
use std::sync::Arc;

/// What some bytes are to be packed with, as their family and the policy say.
#[derive(Debug)]
pub(crate) struct Recipe {
    family: Arc<KeyFamily>,
    choice: Choice,
    min_saving: MinSaving,
    /// The family's dictionary, if it has one.
    held: Option<HeldDictionary>,
    /// Bytes that lie beside it in its entry, if it lies in one.
    beside: Option<usize>,
}

/// What came of it.
#[derive(Debug)]
pub(crate) enum Made {
    /// The packed form, and the dictionary that it refers to, if it does.
    Packed { form: Vec<u8>, held: Option<HeldDictionary> },
    /// It would not save enough.
    NotWorth,
    /// It cannot be packed.
    Impossible,
    /// What was packed did not unpack to the same bytes.
    NotBack,
}

impl Plans<'_> {
    /// How a piece of these bytes is to be packed, or `None` if it is to be left raw:
    /// has the family judge it and take a sample, if it is not given a lesson later. Some
    /// microseconds.
    pub(crate) fn recipe(&self, raw: &[u8], learns_now: bool) -> Option<Recipe> {
        let Self { families, forced, edition, choice, params, .. } = *self;
        let mut claim = Claim::alone((self.family)());
        claim.learns_now = learns_now;
        let plan = claim.plan(families, raw, forced, edition, choice)?;
        Some(Recipe::new(claim.family, choice, params.min_saving, plan))
    }
}

impl Recipe {
    pub(crate) fn new(
        family: Arc<KeyFamily>,
        choice: Choice,
        min_saving: MinSaving,
        plan: Plan,
    ) -> Self {
        Self { family, choice, min_saving, held: plan.held, beside: None }
    }

    /// The same of a value that lies in its entry, beside so many bytes.
    pub(crate) fn in_entry(self, beside: usize) -> Self {
        Self { beside: Some(beside), ..self }
    }

    /// The family that has judged it.
    pub(crate) fn family(&self) -> &Arc<KeyFamily> {
        &self.family
    }

    /// What the policy chose.
    pub(crate) fn choice(&self) -> Choice {
        self.choice
    }

    /// Packs the bytes that it was made for, and tells their family what came of it: in
    /// one go, some microseconds for each KiB. `again` is reused memory.
    pub(crate) fn pack(self, workspace: &mut Workspace, raw: &[u8], again: &mut Vec<u8>) -> Made {
        self.pack_as_either(workspace, raw, None, again)
    }

    /// The same; as a block of these strings, with what that unpacks to, where they take less
    /// so.
    pub(crate) fn pack_as_either<'r>(
        self,
        workspace: &mut Workspace,
        mut raw: &'r [u8],
        strings: Option<(Vec<&[u8]>, &'r [u8])>,
        again: &mut Vec<u8>,
    ) -> Made {
        let Self { family, choice, min_saving, held, beside } = self;
        let dictionary = held.as_ref().map(HeldDictionary::dictionary);
        let mut form = Vec::with_capacity(raw.len() / 2);
        let level = choice.level;
        let with = dictionary.map(|d| &**d);
        let packed = match choice.codec {
            Codec::Zstd => workspace.pack_by_looks(level, with, raw, &mut form),
            codec => workspace.pack(codec, level, with, raw, &mut form),
        };
        if let Some((strings, counted)) = strings.filter(|_| choice.codec == Codec::Zstd) {
            let mut block = Vec::new();
            let packed_so = workspace.pack_strings(level, with, &strings, counted, &mut block);
            if packed_so.is_ok() && block.len() < form.len() {
                (form, raw) = (block, counted);
            }
        }
        if packed.is_err() || (min_saving.keeps_all() && form.len() > PACK_MAX) {
            return Made::Impossible;
        }
        let worth = match beside {
            Some(beside) => min_saving.is_met_in_entry(beside, raw.len(), form.len()),
            None => min_saving.is_met(raw.len(), form.len()),
        };
        family.tried(raw.len(), form.len(), worth);
        if !worth {
            return Made::NotWorth;
        }
        if is_own(&form) && !comes_back(workspace, &form, dictionary.cloned(), raw, again) {
            return Made::NotBack;
        }
        // A dictionary that does not fit the workspace is not used.
        let held = held.filter(|_| dictionary_id(&form) != 0);
        Made::Packed { form, held }
    }
}

/// Whether a form is of the crate's own making: phrases, or zstd after runs were
/// decoded. It takes the place of the only copy there is, so it is unpacked once
/// before; the libraries' own forms are trusted.
fn is_own(form: &[u8]) -> bool {
    Header::read(form).map_or(true, |(header, _)| {
        matches!(header.codec, Codec::Phrases | Codec::Planes) || header.recognised
    })
}

/// Whether a form unpacks to the raw bytes that it was made of. `room` is reused
/// memory. Some 3 us for phrases, beside 28 of packing.
fn comes_back(
    workspace: &mut Workspace,
    form: &[u8],
    dictionary: Option<Arc<Dictionary>>,
    raw: &[u8],
    room: &mut Vec<u8>,
) -> bool {
    room.clear();
    workspace.unpack(form, &dictionary, room, raw.len()).is_ok() && room == raw
}

#[cfg(test)]
mod tests {
    use super::*;
    use snug_codec::WorkspaceConfig;

    #[test]
    #[cfg_attr(miri, ignore = "calls into C")]
    fn what_does_not_come_back_is_seen() {
        let samples: Vec<Vec<u8>> = (0..400)
            .map(|n| {
                format!("{{\"name\":\"user {n}\",\"role\":\"reader\",\"n\":{}}}", n * 7)
                    .into_bytes()
            })
            .collect();
        let samples: Vec<&[u8]> = samples.iter().map(|sample| &sample[..]).collect();
        let dictionary = Dictionary::train_phrases(&samples, 4096, 1).unwrap().with_id(1);
        let dictionary = Arc::new(dictionary);
        let mut workspace = Workspace::new(WorkspaceConfig::default());
        let (mut form, mut room) = (Vec::new(), Vec::new());
        let raw = samples[3];
        workspace.pack(Codec::Zstd, 1, Some(&dictionary), raw, &mut form).unwrap();
        assert!(is_own(&form));
        let mut back = |form: &[u8], dictionary, raw: &[u8]| {
            comes_back(&mut workspace, form, dictionary, raw, &mut room)
        };
        assert!(back(&form, Some(Arc::clone(&dictionary)), raw));
        assert!(!back(&form, None, raw));
        assert!(!back(&form, Some(Arc::clone(&dictionary)), samples[4]));
        // Some bits of a form stand for nothing; one that differs in others is seen.
        let seen = (2..form.len()).filter(|&at| {
            let mut other = form.clone();
            other[at] ^= 0x80;
            !back(&other, Some(Arc::clone(&dictionary)), raw)
        });
        assert!(seen.count() > 0);
        let mut plain = Vec::new();
        Workspace::new(WorkspaceConfig::default())
            .pack(Codec::Zstd, 1, None, raw, &mut plain)
            .unwrap();
        assert!(!is_own(&plain));
    }
}
