//! A block: the messages of one delivery, compressed together.
//!
//! ```text
//! lengths │ bodies, one a message │ what is left of the wire JSON once the texts are taken out
//! ```
//! A *body* is what search sees of a message: its text, then its calls and its thinking. Messages of a turn
//! are similar, so they compress better together, and a turn is one row.

use std::borrow::Cow;

use super::body::{Body, push_beside};
use super::varint::{put, take_usize};
use super::wire::{self, Escaping};
use crate::error::StoreError;

/// A text this short is not worth an entry in the table of holes.
const WORTH_A_HOLE: usize = 48;

/// A message as it goes into a block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Draft<'a> {
    /// The message's text.
    pub(crate) text: &'a str,
    /// Whether the text is kept aside instead of in the body.
    pub(crate) aside: bool,
    /// Its other searchable parts.
    pub(crate) beside: &'a [String],
    /// Whether searches include it.
    pub(crate) is_searched: bool,
    /// The wire JSON; the same for every view of one wire message.
    pub(crate) raw: &'a str,
    /// The call that it answers.
    pub(crate) call_id: Option<&'a str>,
}

/// A decompressed block.
#[derive(Debug, Default)]
pub(crate) struct Block {
    bytes: Vec<u8>,
    slots: Vec<MessageSpan>,
    raws: Vec<RawSpan>,
}

#[derive(Debug)]
struct MessageSpan {
    start: usize,
    text_len: usize,
    /// The lengths of the other parts.
    beside: Vec<usize>,
    end: usize,
    raw: Option<usize>,
    aside: bool,
    is_searched: bool,
}

/// A flag in the number of a message's other parts: searches skip the message.
const UNSEARCHED: usize = 1 << 30;

#[derive(Debug)]
struct RawSpan {
    start: usize,
    end: usize,
    holes: Vec<Hole>,
}

/// A text that was taken out of a raw message.
#[derive(Debug, Clone, Copy)]
struct Hole {
    slot: usize,
    escaping: Escaping,
    /// Where it belongs in the remaining JSON.
    at: usize,
}

/// Whether a message stands in the wire message `raw` with these others, rather than in one of the same bytes:
/// the same text lent twice is one wire message, and one message said twice is two.
fn shares_wire<'d>(
    draft: &Draft<'_>,
    raw: &str,
    mut others: impl Iterator<Item = &'d Draft<'d>>,
) -> bool {
    let is_again = |other: &Draft<'_>| {
        (other.text, other.call_id) == (draft.text, draft.call_id) && other.beside == draft.beside
    };
    std::ptr::eq(raw, draft.raw) || (raw == draft.raw && !others.any(is_again))
}

/// Serialises the messages as one uncompressed block.
pub(crate) fn lay_out(drafts: &[Draft<'_>]) -> Vec<u8> {
    // Views of one wire message are adjacent.
    let mut raws: Vec<(&str, Vec<usize>)> = Vec::new();
    let mut raw_of = Vec::with_capacity(drafts.len());
    for (slot, draft) in drafts.iter().enumerate() {
        if draft.raw.is_empty() {
            raw_of.push(0);
            continue;
        }
        match raws.last_mut() {
            Some((raw, slots)) if shares_wire(draft, raw, slots.iter().map(|at| &drafts[*at])) => {
                slots.push(slot);
            }
            _ => raws.push((draft.raw, vec![slot])),
        }
        raw_of.push(raws.len());
    }
    let mut out = Vec::new();
    put(&mut out, drafts.len() as u64);
    let mut bodies = String::new();
    for (draft, raw) in drafts.iter().zip(&raw_of) {
        let start = bodies.len();
        bodies.push_str(if draft.aside { "" } else { draft.text });
        put(&mut out, (bodies.len() - start) as u64);
        let unsearched = if draft.is_searched { 0 } else { UNSEARCHED };
        put(&mut out, (draft.beside.len() | unsearched) as u64);
        for part in draft.beside {
            put(&mut out, part.len() as u64);
        }
        put(&mut out, (*raw as u64) << 1 | u64::from(draft.aside));
        push_beside(draft.beside.iter().map(String::as_str), start, &mut bodies);
    }
    put(&mut out, raws.len() as u64);
    let mut rests = String::new();
    for (raw, slots) in &raws {
        let start = rests.len();
        let mut holes = Vec::new();
        let mut from = 0;
        for &slot in slots {
            let text = drafts[slot].text;
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
    out.extend_from_slice(bodies.as_bytes());
    out.extend_from_slice(rests.as_bytes());
    out
}

impl Block {
    /// Parses an uncompressed block.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if it is invalid.
    pub(crate) fn read(bytes: Vec<u8>) -> Result<Self, StoreError> {
        let (slots, raws) = read_lengths(&bytes)
            .ok_or_else(|| StoreError::Damaged("a block of messages cannot be read".into()))?;
        Ok(Self { bytes, slots, raws })
    }

    /// The number of its messages.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether searches include a message.
    pub(crate) fn is_searched(&self, slot: usize) -> bool {
        self.slots.get(slot).is_some_and(|slot| slot.is_searched)
    }

    /// The body of a message, without a text that is stored separately.
    pub(crate) fn body(&self, slot: usize) -> Body<'_> {
        self.slots.get(slot).map_or(Body::of_text(""), |slot| {
            let all = Cow::Borrowed(self.str(slot.start, slot.end));
            Body::new(all, slot.text_len, &slot.beside)
        })
    }

    /// The body, with the text that is stored separately.
    pub(crate) fn body_with(&self, slot: usize, text: String) -> Body<'_> {
        let (text_len, mut all) = (text.len(), text);
        let rest = self.body(slot);
        push_beside(
            Some(rest.as_str()).filter(|rest| !rest.is_empty()),
            0,
            &mut all,
        );
        let beside = self.slots.get(slot).map_or(&[][..], |slot| &slot.beside);
        Body::new(Cow::Owned(all), text_len, beside)
    }

    /// The text of a message; empty if it is kept aside.
    pub(crate) fn text(&self, slot: usize) -> &str {
        self.slots
            .get(slot)
            .map_or("", |slot| self.str(slot.start, slot.start + slot.text_len))
    }

    /// The searchable parts of a message besides its text.
    pub(crate) fn beside(&self, slot: usize) -> Vec<String> {
        let body = self.body(slot);
        let text = self.text(slot);
        let parts = body.parts().map(|(_, part)| part.to_owned());
        parts
            .skip(usize::from(!text.is_empty()))
            .filter(|part| !part.is_empty())
            .collect()
    }

    /// Whether the text of a message is kept aside.
    pub(crate) fn is_aside(&self, slot: usize) -> bool {
        self.slots.get(slot).is_some_and(|slot| slot.aside)
    }

    /// The slots whose text was taken out of the raw message of `slot`.
    pub(crate) fn raw_sources(&self, slot: usize) -> impl Iterator<Item = usize> {
        self.raw_of(slot)
            .into_iter()
            .flat_map(|raw| raw.holes.iter().map(|hole| hole.slot))
    }

    /// The index of a message's wire message in the block; a message without one counts as its own.
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

    fn raw_of(&self, slot: usize) -> Option<&RawSpan> {
        self.raws.get(self.slots.get(slot)?.raw?)
    }

    fn str(&self, start: usize, end: usize) -> &str {
        // Checked on each use, because the lengths come from the file.
        std::str::from_utf8(self.bytes.get(start..end).unwrap_or_default()).unwrap_or_default()
    }
}

fn read_lengths(bytes: &[u8]) -> Option<(Vec<MessageSpan>, Vec<RawSpan>)> {
    let mut rest = bytes;
    let count = take_usize(&mut rest)?;
    let mut lengths = Vec::new();
    for _ in 0..count {
        let text = take_usize(&mut rest)?;
        let mut beside = Vec::new();
        let parts = take_usize(&mut rest)?;
        for _ in 0..parts & !UNSEARCHED {
            beside.push(take_usize(&mut rest)?);
        }
        let is_searched = parts & UNSEARCHED == 0;
        lengths.push((text, beside, take_usize(&mut rest)?, is_searched));
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
    for (text_len, beside, raw, is_searched) in lengths {
        let breaks = beside.len().saturating_sub(usize::from(text_len == 0));
        let end = (beside.iter().chain([&text_len, &breaks]))
            .try_fold(at, |end, length| end.checked_add(*length))?;
        slots.push(MessageSpan {
            start: at,
            text_len,
            beside,
            end,
            raw: (raw >> 1).checked_sub(1),
            aside: raw & 1 != 0,
            is_searched,
        });
        at = end;
    }
    let mut raws = Vec::with_capacity(raw_lengths.len());
    for (length, holes) in raw_lengths {
        let end = at.checked_add(length)?;
        raws.push(RawSpan {
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
            let beside = ["call".to_owned(), "thinking".to_owned()];
            let drafts: Vec<Draft<'_>> = (0..texts.len()).map(|i| Draft {
                text: &texts[i], aside: i % 3 == 2, beside: &beside[..i % 2 * 2], raw: &raws[i],
                call_id: None, is_searched: i % 4 != 1,
            }).collect();
            let block = Block::read(lay_out(&drafts)).unwrap();
            prop_assert_eq!(block.len(), texts.len());
            for i in 0..texts.len() {
                let body = match block.is_aside(i) {
                    true => block.body_with(i, texts[i].clone()),
                    false => block.body(i),
                };
                let mut parts: Vec<&str> = vec![&texts[i]];
                parts.extend(drafts[i].beside.iter().map(String::as_str));
                parts.retain(|part| !part.is_empty() || drafts[i].beside.is_empty());
                prop_assert_eq!(block.is_searched(i), i % 4 != 1);
                prop_assert_eq!(body.as_str(), parts.join("\n"));
                prop_assert_eq!(body.parts().map(|(_, part)| part).collect::<Vec<_>>(), parts);
                prop_assert_eq!(block.text(i), if block.is_aside(i) { "" } else { &texts[i] });
                prop_assert_eq!(block.raw(i, |slot| block.is_aside(slot).then(|| texts[slot].clone())), raws[i].clone());
            }
        }

        #[test]
        fn garbage_is_refused_or_read_but_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            if let Ok(block) = Block::read(bytes) {
                for slot in 0..block.len().min(100) {
                    let _ = (block.body(slot).parts().count(), block.raw(slot, |_| None));
                }
            }
        }
    }

    #[test]
    fn a_shared_raw_message_is_stored_once() {
        let raw = format!("{{\"content\":\"{}\"}}", "x".repeat(5000));
        let draft = Draft {
            text: "short",
            aside: false,
            beside: &[],
            is_searched: true,
            raw: &raw,
            call_id: None,
        };
        assert!(lay_out(&[draft; 3]).len() < raw.len() + 100);
    }
}
