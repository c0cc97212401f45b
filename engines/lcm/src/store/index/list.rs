//! Posting lists: the texts that contain a term and, for pairs of characters of a script without
//! spaces, the positions.
//!
//! A list is stored as differences, so that a common term takes about one byte for each text.
//! ```text
//! list:   first ordinal - the segment's first, and if there are more: │ count │ last - first │ differences less one
//! places: for each place: (place, or its difference from the one before in the same text) << 1
//!         │ 1 if it is the first place in the next text of the list
//! ```
//! Numbers are varints. [`List`] reads a stored list and [`ListBuilder`] builds one. Both parts of a
//! list can be appended to those of earlier texts without decoding, which makes merging segments
//! cheap.

use crate::store::{put_varint, take_varint};

/// A list of ordinals as it is stored in a chunk. It borrows the bytes and decodes them when asked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct List<'a> {
    count: u32,
    first: u32,
    span: u32,
    differences: &'a [u8],
}

impl<'a> List<'a> {
    pub(super) fn read(mut bytes: &'a [u8]) -> Option<Self> {
        let next = |bytes: &mut &[u8]| u32::try_from(take_varint(bytes)?).ok();
        let first = next(&mut bytes)?;
        // Most terms are in one text only.
        let (count, span) = match bytes.is_empty() {
            true => (1, 0),
            false => (next(&mut bytes)?, next(&mut bytes)?),
        };
        Some(Self {
            count,
            first,
            span,
            differences: bytes,
        })
    }

    /// Appends the ordinals to `out`. `base` is the first ordinal of the segment.
    pub(crate) fn ordinals(&self, base: u32, out: &mut Vec<u32>) {
        let mut ordinal = base.saturating_add(self.first);
        out.push(ordinal);
        let mut rest = self.differences;
        while let Some(difference) = take_varint(&mut rest) {
            // Saturating, because the values may come from a damaged file.
            ordinal = ordinal.saturating_add(difference as u32).saturating_add(1);
            out.push(ordinal);
        }
    }

    /// Returns each position with the ordinal of its text, in order. `base` is the first ordinal of
    /// the segment. Returns None if the positions do not belong to this list, which means that the
    /// index is damaged.
    pub(crate) fn places(&self, base: u32, mut places: &[u8]) -> Option<Vec<(u32, u32)>> {
        let mut ordinals = Vec::with_capacity(self.count as usize);
        self.ordinals(base, &mut ordinals);
        let mut ordinals = ordinals.into_iter();
        let mut out = Vec::with_capacity(places.len());
        let (mut ordinal, mut place) = (None, 0u32);
        while !places.is_empty() {
            let value = take_varint(&mut places)?;
            let step = u32::try_from(value >> 1).ok()?;
            if value & 1 == 1 {
                ordinal = Some(ordinals.next()?);
                place = step;
            } else {
                place = place.checked_add(step)?;
            }
            out.push((ordinal?, place));
        }
        // Every ordinal must have had a position.
        ordinals.next().is_none().then_some(out)
    }
}

/// A list that is being built, in its encoded form.
#[derive(Debug, Clone, Default)]
pub(crate) struct ListBuilder {
    count: u32,
    first: u32,
    last: u32,
    differences: Vec<u8>,
    places: Vec<u8>,
    last_place: u32,
}

impl ListBuilder {
    /// Adds an ordinal, counted from the segment's first. It must not be below the last one. If
    /// positions are stored, `place` is the position of the term in its text, after the previous
    /// one. A repeated ordinal only adds the position.
    #[inline]
    pub(crate) fn push(&mut self, ordinal: u32, place: Option<u32>) {
        let is_new = self.count == 0 || ordinal != self.last;
        if let Some(place) = place {
            let step = if is_new {
                place
            } else {
                place - self.last_place
            };
            // The lowest bit marks the first position in a text, so no separator is needed.
            put_varint(&mut self.places, u64::from(step) << 1 | u64::from(is_new));
            self.last_place = place;
        }
        if is_new {
            self.push_ordinal(ordinal);
        }
    }

    fn push_ordinal(&mut self, ordinal: u32) {
        if self.count == 0 {
            self.first = ordinal;
        } else {
            put_varint(&mut self.differences, u64::from(ordinal - self.last - 1));
        }
        self.last = ordinal;
        self.count += 1;
    }

    /// Appends a list of later texts with its positions, without decoding them. `shift` is the
    /// distance between the first ordinals of both segments.
    pub(crate) fn append(&mut self, list: List<'_>, places: &[u8], shift: u32) {
        if list.count == 0 {
            return;
        }
        // The other ordinals are differences, so only the first one has to be adjusted.
        self.push_ordinal(list.first + shift);
        self.differences.extend_from_slice(list.differences);
        self.count += list.count - 1;
        self.last = list.first + shift + list.span;
        self.places.extend_from_slice(places);
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.first));
        if self.count > 1 {
            put_varint(out, u64::from(self.count));
            put_varint(out, u64::from(self.last - self.first));
            out.extend_from_slice(&self.differences);
        }
    }

    /// Returns the encoded positions, which are empty if none were added.
    pub(super) fn places(&self) -> &[u8] {
        &self.places
    }
}

#[cfg(test)]
mod tests;
