//! A block: the messages of one delivery, compressed together.
//!
//! ```text
//! lengths │ bodies, one a message │ what is left of the wire JSON once the texts are taken out
//! ```
//! A *body* is what search sees of a message: its text, then its calls. Messages of a turn resemble each
//! other, so they compress better together, and a turn is one row.

use super::varint::{put, take_usize};
use super::wire::{self, Escaping};
use crate::error::StoreError;

/// A text this short is not worth a place in the table of holes.
const WORTH_A_HOLE: usize = 48;

/// A message as it goes into a block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Draft<'a> {
    /// What search sees. Empty text where the text is kept aside.
    pub(crate) body: &'a str,
    /// How much of the body is the message's text.
    pub(crate) text_len: usize,
    /// The wire JSON; the same for every view of one wire message.
    pub(crate) raw: &'a str,
    /// The text that is kept aside instead of in the body.
    pub(crate) aside: Option<&'a str>,
}

/// A decompressed block.
#[derive(Debug, Default)]
pub(crate) struct Block {
    bytes: Vec<u8>,
    slots: Vec<Slot>,
    raws: Vec<Raw>,
}

#[derive(Debug)]
struct Slot {
    start: usize,
    text_end: usize,
    end: usize,
    raw: Option<usize>,
    aside: bool,
}

#[derive(Debug)]
struct Raw {
    start: usize,
    end: usize,
    holes: Vec<Hole>,
}

/// A text that was taken out of a raw message.
#[derive(Debug, Clone, Copy)]
struct Hole {
    slot: usize,
    escaping: Escaping,
    /// Where in the rest it belongs.
    at: usize,
}

/// Lays the messages out as one uncompressed block.
pub(crate) fn lay_out(drafts: &[Draft<'_>]) -> Vec<u8> {
    // Views of one wire message follow each other.
    let mut raws: Vec<(&str, Vec<usize>)> = Vec::new();
    let mut raw_of = Vec::with_capacity(drafts.len());
    for (slot, draft) in drafts.iter().enumerate() {
        if draft.raw.is_empty() {
            raw_of.push(0);
            continue;
        }
        match raws.last_mut() {
            Some((raw, slots)) if *raw == draft.raw => slots.push(slot),
            _ => raws.push((draft.raw, vec![slot])),
        }
        raw_of.push(raws.len());
    }
    let mut out = Vec::new();
    put(&mut out, drafts.len() as u64);
    for (draft, raw) in drafts.iter().zip(&raw_of) {
        put(&mut out, draft.body.len() as u64);
        put(&mut out, draft.text_len as u64);
        put(
            &mut out,
            (*raw as u64) << 1 | u64::from(draft.aside.is_some()),
        );
    }
    put(&mut out, raws.len() as u64);
    let mut rests = String::new();
    for (raw, slots) in &raws {
        let start = rests.len();
        let mut holes = Vec::new();
        let mut from = 0;
        for &slot in slots {
            let draft = &drafts[slot];
            let text = draft.aside.unwrap_or(&draft.body[..draft.text_len]);
            if text.len() < WORTH_A_HOLE {
                continue;
            }
            if let Some((escaping, range)) = wire::find(raw, from, text) {
                rests.push_str(&raw[from..range.start]);
                from = range.end;
                holes.push(Hole {
                    slot,
                    escaping,
                    at: rests.len() - start,
                });
            }
        }
        rests.push_str(&raw[from..]);
        put(&mut out, (rests.len() - start) as u64);
        put(&mut out, holes.len() as u64);
        for hole in holes {
            put(&mut out, hole.slot as u64);
            out.push(hole.escaping.code());
            put(&mut out, hole.at as u64);
        }
    }
    for draft in drafts {
        out.extend_from_slice(draft.body.as_bytes());
    }
    out.extend_from_slice(rests.as_bytes());
    out
}

impl Block {
    /// Reads a laid-out block.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] where it is not one.
    pub(crate) fn read(bytes: Vec<u8>) -> Result<Self, StoreError> {
        let (slots, raws) = read_lengths(&bytes)
            .ok_or_else(|| StoreError::Damaged("a block of messages cannot be read".into()))?;
        Ok(Self { bytes, slots, raws })
    }

    /// How many messages it holds.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// What search sees of a message, without what is kept aside.
    pub(crate) fn body(&self, slot: usize) -> &str {
        self.slots
            .get(slot)
            .map_or("", |slot| self.str(slot.start, slot.end))
    }

    /// The text of a message; empty where it is kept aside.
    pub(crate) fn text(&self, slot: usize) -> &str {
        self.slots
            .get(slot)
            .map_or("", |slot| self.str(slot.start, slot.text_end))
    }

    /// Whether the text of a message is kept aside.
    pub(crate) fn is_aside(&self, slot: usize) -> bool {
        self.slots.get(slot).is_some_and(|slot| slot.aside)
    }

    /// Which slots had their text taken out of the raw message of `slot`.
    pub(crate) fn raw_sources(&self, slot: usize) -> impl Iterator<Item = usize> {
        self.raw_of(slot)
            .into_iter()
            .flat_map(|raw| raw.holes.iter().map(|hole| hole.slot))
    }

    /// The place of a message's wire message among those of the block; one that has none is its own.
    pub(crate) fn wire(&self, slot: usize) -> usize {
        let raw = self.slots.get(slot).and_then(|slot| slot.raw);
        raw.unwrap_or(self.raws.len() + slot)
    }

    /// The wire JSON of a message, byte for byte. `aside` gives the text of a slot that is kept aside.
    pub(crate) fn raw(&self, slot: usize, aside: impl Fn(usize) -> Option<String>) -> String {
        let Some(raw) = self.raw_of(slot) else {
            return String::new();
        };
        let rest = self.str(raw.start, raw.end);
        if raw.holes.is_empty() {
            return rest.to_owned();
        }
        let mut out = String::with_capacity(rest.len() * 2);
        let mut done = 0;
        for hole in &raw.holes {
            out.push_str(rest.get(done..hole.at).unwrap_or_default());
            done = hole.at;
            match aside(hole.slot) {
                Some(text) => hole.escaping.write(&text, &mut out),
                None => hole.escaping.write(self.text(hole.slot), &mut out),
            }
        }
        out.push_str(rest.get(done..).unwrap_or_default());
        out
    }

    fn raw_of(&self, slot: usize) -> Option<&Raw> {
        self.raws.get(self.slots.get(slot)?.raw?)
    }

    fn str(&self, start: usize, end: usize) -> &str {
        // Checked once a use: the lengths come from the file.
        std::str::from_utf8(self.bytes.get(start..end).unwrap_or_default()).unwrap_or_default()
    }
}

fn read_lengths(bytes: &[u8]) -> Option<(Vec<Slot>, Vec<Raw>)> {
    let mut rest = bytes;
    let count = take_usize(&mut rest)?;
    let mut lengths = Vec::new();
    for _ in 0..count {
        lengths.push((
            take_usize(&mut rest)?,
            take_usize(&mut rest)?,
            take_usize(&mut rest)?,
        ));
    }
    let mut raw_lengths = Vec::new();
    for _ in 0..take_usize(&mut rest)? {
        let length = take_usize(&mut rest)?;
        let mut holes = Vec::new();
        for _ in 0..take_usize(&mut rest)? {
            let slot = take_usize(&mut rest)?;
            let (code, after) = rest.split_first()?;
            rest = after;
            holes.push(Hole {
                slot,
                escaping: Escaping::from_code(*code)?,
                at: take_usize(&mut rest)?,
            });
        }
        raw_lengths.push((length, holes));
    }
    let mut at = bytes.len() - rest.len();
    let mut slots = Vec::with_capacity(lengths.len());
    for (body, text, raw) in lengths {
        let end = at.checked_add(body)?;
        if text > body {
            return None;
        }
        slots.push(Slot {
            start: at,
            text_end: at + text,
            end,
            raw: (raw >> 1).checked_sub(1),
            aside: raw & 1 != 0,
        });
        at = end;
    }
    let mut raws = Vec::with_capacity(raw_lengths.len());
    for (length, holes) in raw_lengths {
        let end = at.checked_add(length)?;
        raws.push(Raw {
            start: at,
            end,
            holes,
        });
        at = end;
    }
    (at == bytes.len()).then_some((slots, raws))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bodies_and_raws_come_back(
            texts in prop::collection::vec("(\\PC|[\\n\"\\\\]){0,80}", 0..6),
            shared in any::<bool>(),
        ) {
            let whole = serde_json::json!({"content": texts}).to_string();
            let raws: Vec<String> = texts.iter().map(|text| if shared {
                whole.clone()
            } else {
                serde_json::json!({"role": "user", "content": text}).to_string()
            }).collect();
            let bodies: Vec<String> = texts.iter().map(|text| format!("{text}\ncall")).collect();
            let drafts: Vec<Draft<'_>> = (0..texts.len()).map(|i| Draft {
                body: &bodies[i], text_len: texts[i].len(), raw: &raws[i], aside: None,
            }).collect();
            let block = Block::read(lay_out(&drafts)).unwrap();
            prop_assert_eq!(block.len(), texts.len());
            for i in 0..texts.len() {
                prop_assert_eq!(block.body(i), &bodies[i]);
                prop_assert_eq!(block.text(i), &texts[i]);
                prop_assert_eq!(block.raw(i, |_| None), raws[i].clone());
            }
        }

        #[test]
        fn garbage_is_refused_or_read_but_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            if let Ok(block) = Block::read(bytes) {
                for slot in 0..block.len().min(100) {
                    let _ = (block.body(slot), block.raw(slot, |_| None));
                }
            }
        }
    }

    #[test]
    fn a_shared_raw_message_is_stored_once() {
        let raw = format!("{{\"content\":\"{}\"}}", "x".repeat(5000));
        let draft = Draft {
            body: "short",
            text_len: 5,
            raw: &raw,
            aside: None,
        };
        assert!(lay_out(&[draft; 3]).len() < raw.len() + 100);
    }
}
