//! The symbols of an expression: characters that no class of it, and no look-around, tells apart are one symbol.

use std::sync::Arc;

use regex_syntax::hir::{HirKind, Look};
use rustc_hash::FxHashMap;

use crate::PatternError;
use crate::compile::{Node, Program, Ranges};

/// The number of a symbol.
pub(crate) type Symbol = u16;

/// What a look-around can ask of the character on one side, as bits.
pub(crate) mod kind {
    /// There is none: the text begins or ends here.
    pub(crate) const EDGE: u8 = 1;
    pub(crate) const LINE_FEED: u8 = 2;
    pub(crate) const CARRIAGE_RETURN: u8 = 4;
    pub(crate) const WORD: u8 = 8;
    pub(crate) const ASCII_WORD: u8 = 16;
}

/// The symbols that a class holds.
#[derive(Debug, Clone)]
pub(crate) enum Symbols {
    All,
    One(Symbol),
    Some(Box<[u64]>),
}

impl Symbols {
    #[inline]
    pub(crate) fn has(&self, symbol: Symbol) -> bool {
        match self {
            Self::All => true,
            Self::One(one) => *one == symbol,
            Self::Some(bits) => bits[usize::from(symbol) / 64] & 1 << (symbol % 64) != 0,
        }
    }
}

/// A program whose classes are made of symbols.
#[derive(Debug)]
pub(crate) struct Lettered {
    pub(crate) nodes: Vec<Node>,
    pub(crate) start: u32,
    pub(crate) classes: Vec<Symbols>,
    /// The bits of [`kind`] that its look-arounds ask for.
    pub(crate) asked: u8,
}

/// Which character is which symbol.
#[derive(Debug)]
pub(crate) struct Alphabet {
    ascii: [Symbol; 128],
    /// The page of each 256 characters.
    page_of: Vec<u16>,
    pages: Vec<[Symbol; 256]>,
    /// What each symbol is to a look-around; the last one is the edge of the text.
    kinds: Arc<[u8]>,
}

/// The most bits that all classes take, and the most symbols.
const MAX_BITS: usize = 1 << 25;
const MAX_SYMBOLS: usize = u16::MAX as usize;

/// What the look-arounds of these nodes ask for.
fn asked(nodes: &[Node]) -> u8 {
    use kind::{ASCII_WORD, CARRIAGE_RETURN, EDGE, LINE_FEED, WORD};
    let looks = nodes.iter().filter_map(|node| match node {
        Node::Look { look, .. } => Some(*look),
        _ => None,
    });
    looks.fold(0, |asked, look| {
        asked
            | match look {
                Look::Start | Look::End => EDGE,
                Look::StartLF | Look::EndLF => EDGE | LINE_FEED,
                Look::StartCRLF | Look::EndCRLF => EDGE | LINE_FEED | CARRIAGE_RETURN,
                Look::WordAscii
                | Look::WordAsciiNegate
                | Look::WordStartAscii
                | Look::WordEndAscii
                | Look::WordStartHalfAscii
                | Look::WordEndHalfAscii => ASCII_WORD,
                Look::WordUnicode
                | Look::WordUnicodeNegate
                | Look::WordStartUnicode
                | Look::WordEndUnicode
                | Look::WordStartHalfUnicode
                | Look::WordEndHalfUnicode => WORD,
            }
    })
}

/// The characters of one kind.
fn ranges_of(kind: u8) -> Result<Ranges, PatternError> {
    let c = |c: char| u32::from(c);
    Ok(match kind {
        kind::LINE_FEED => vec![(c('\n'), c('\n'))],
        kind::CARRIAGE_RETURN => vec![(c('\r'), c('\r'))],
        kind::ASCII_WORD => vec![
            (c('0'), c('9')),
            (c('A'), c('Z')),
            (c('_'), c('_')),
            (c('a'), c('z')),
        ],
        _ => {
            let word = regex_syntax::parse(r"\w");
            let word = word.map_err(|error| PatternError::Syntax(error.to_string()))?;
            match word.kind() {
                HirKind::Class(class) => crate::compile::ranges(class),
                _ => Vec::new(),
            }
        }
    })
}

impl Alphabet {
    /// The alphabet of some programs, and the programs in its symbols.
    ///
    /// # Errors
    /// They tell too many characters apart.
    pub(crate) fn of<const N: usize>(
        programs: [Program; N],
    ) -> Result<(Self, [Lettered; N]), PatternError> {
        let asked = programs
            .iter()
            .fold(0, |all, program| all | asked(&program.nodes));
        let mut kinds = Vec::new();
        for kind in [
            kind::LINE_FEED,
            kind::CARRIAGE_RETURN,
            kind::WORD,
            kind::ASCII_WORD,
        ] {
            if asked & kind != 0 {
                kinds.push((kind, ranges_of(kind)?));
            }
        }
        let own = programs.iter().flat_map(|program| &program.classes);
        let parts = Parts::of(own.chain(kinds.iter().map(|(_, ranges)| ranges)))?;
        let count = parts.count;
        let classes: usize = programs.iter().map(|program| program.classes.len()).sum();
        if count >= MAX_SYMBOLS || classes * count > MAX_BITS {
            return Err(PatternError::TooLarge);
        }
        let mut symbol_kinds = vec![0; count + 1];
        for (kind, ranges) in &kinds {
            parts.for_each(ranges, |symbol| symbol_kinds[usize::from(symbol)] |= kind);
        }
        symbol_kinds[count] = kind::EDGE;
        let lettered = programs.map(|program| Lettered {
            classes: program
                .classes
                .iter()
                .map(|class| parts.symbols(class))
                .collect(),
            nodes: program.nodes,
            start: program.start,
            asked,
        });
        let (ascii, page_of, pages) = parts.table();
        let alphabet = Self {
            ascii,
            page_of,
            pages,
            kinds: symbol_kinds.into(),
        };
        Ok((alphabet, lettered))
    }

    /// What each symbol is to a look-around, the edge of the text last.
    pub(crate) fn kinds(&self) -> Arc<[u8]> {
        Arc::clone(&self.kinds)
    }

    /// The symbol of the edge of a text.
    pub(crate) fn edge(&self) -> Symbol {
        (self.kinds.len() - 1) as Symbol
    }

    #[inline]
    fn symbol(&self, c: char) -> Symbol {
        let c = c as usize;
        self.pages[usize::from(self.page_of[c >> 8])][c & 0xff]
    }

    /// The symbol of the character at a byte of `text`, whose bytes these are, and its length.
    #[inline]
    pub(crate) fn at(&self, bytes: &[u8], text: &str, at: usize) -> (Symbol, usize) {
        let byte = bytes[at];
        if byte < 128 {
            return (self.ascii[usize::from(byte)], 1);
        }
        match text[at..].chars().next() {
            Some(c) => (self.symbol(c), c.len_utf8()),
            None => (self.edge(), 1),
        }
    }

    /// The symbol of the character before a byte, and its length; the edge at the start of the text.
    #[inline]
    pub(crate) fn symbol_before(&self, text: &str, at: usize) -> (Symbol, usize) {
        match text[..at].chars().next_back() {
            Some(c) => (self.symbol(c), c.len_utf8()),
            None => (self.edge(), 0),
        }
    }

    /// The kind of the character before a byte.
    pub(crate) fn before(&self, text: &str, at: usize) -> u8 {
        self.kinds[usize::from(self.symbol_before(text, at).0)]
    }

    /// The kind of the character at a byte.
    pub(crate) fn after(&self, text: &str, at: usize) -> u8 {
        let c = text[at..].chars().next();
        self.kinds[usize::from(c.map_or(self.edge(), |c| self.symbol(c)))]
    }
}

/// All characters in stretches, each with its symbol.
struct Parts {
    /// Where the stretches begin, from 0 on.
    starts: Vec<u32>,
    symbols: Vec<Symbol>,
    count: usize,
}

impl Parts {
    /// The coarsest division that each class is made of whole parts of.
    fn of<'r>(classes: impl Iterator<Item = &'r Ranges> + Clone) -> Result<Self, PatternError> {
        let mut starts = vec![0];
        for (start, end) in classes.clone().flatten() {
            starts.extend([*start, *end + 1]);
        }
        starts.sort_unstable();
        starts.dedup();
        starts.retain(|start| *start <= u32::from(char::MAX));
        // Refined class by class: what a class takes out of a part becomes a part of its own.
        let mut ids = vec![0u32; starts.len()];
        let mut next = 1;
        let mut moved: FxHashMap<u32, u32> = FxHashMap::default();
        for class in classes {
            moved.clear();
            for range in class {
                for at in within(&starts, *range) {
                    ids[at] = *moved.entry(ids[at]).or_insert_with(|| {
                        next += 1;
                        next - 1
                    });
                }
            }
        }
        let mut known: FxHashMap<u32, Symbol> = FxHashMap::default();
        let mut symbols = Vec::with_capacity(ids.len());
        for id in ids {
            let fresh = known.len();
            if fresh >= MAX_SYMBOLS {
                return Err(PatternError::TooLarge);
            }
            symbols.push(*known.entry(id).or_insert(fresh as Symbol));
        }
        Ok(Self {
            starts,
            symbols,
            count: known.len(),
        })
    }

    fn for_each(&self, class: &Ranges, mut each: impl FnMut(Symbol)) {
        for range in class {
            within(&self.starts, *range).for_each(|at| each(self.symbols[at]));
        }
    }

    /// The symbols of a class.
    fn symbols(&self, class: &Ranges) -> Symbols {
        let mut bits = vec![0u64; self.count.div_ceil(64)];
        self.for_each(class, |symbol| {
            bits[usize::from(symbol) / 64] |= 1 << (symbol % 64);
        });
        let count: u32 = bits.iter().map(|bits| bits.count_ones()).sum();
        match count as usize {
            1 => {
                let at = bits.iter().position(|bits| *bits != 0).unwrap_or(0);
                Symbols::One((at * 64) as Symbol + bits[at].trailing_zeros() as Symbol)
            }
            all if all == self.count => Symbols::All,
            _ => Symbols::Some(bits.into()),
        }
    }

    fn table(&self) -> ([Symbol; 128], Vec<u16>, Vec<[Symbol; 256]>) {
        let mut page_of = Vec::new();
        let mut pages = Vec::new();
        // Pages of one symbol are the same page.
        let mut plain: FxHashMap<Symbol, u16> = FxHashMap::default();
        for first in (0..=u32::from(char::MAX)).step_by(256) {
            let range = within_whole(&self.starts, first);
            let is_plain = range.len() == 1;
            let symbol = self.symbols[range.start];
            if is_plain && let Some(page) = plain.get(&symbol) {
                page_of.push(*page);
                continue;
            }
            let mut page = [symbol; 256];
            for at in range {
                let from = self.starts[at].max(first) - first;
                page[from as usize..].fill(self.symbols[at]);
            }
            if is_plain {
                plain.insert(symbol, pages.len() as u16);
            }
            page_of.push(pages.len() as u16);
            pages.push(page);
        }
        let mut ascii = [0; 128];
        ascii.copy_from_slice(&pages[usize::from(page_of[0])][..128]);
        (ascii, page_of, pages)
    }
}

/// The stretches that a range is made of.
fn within(starts: &[u32], (start, end): (u32, u32)) -> std::ops::Range<usize> {
    starts.partition_point(|other| *other < start)..starts.partition_point(|other| *other <= end)
}

/// The stretches that have a part in the 256 characters from `first` on.
fn within_whole(starts: &[u32], first: u32) -> std::ops::Range<usize> {
    let from = starts.partition_point(|start| *start <= first) - 1;
    from..starts.partition_point(|start| *start < first + 256)
}
