//! Counts tokens exactly in the public encodings.
//!
//! [`Encoding`] is one of OpenAI's two current encodings. A text is cut into lines and then
//! into pieces, as `pieces` describes, and tiktoken's tables count each piece. Counts of
//! pieces, lines and long texts are remembered, because text repeats.
//!
//! Pieces of thousands of bytes are the exception to exactness. tiktoken's time and memory grow
//! with the length of a piece, so that a hostile or binary text could stall the process. Beyond
//! a limit, such pieces are extrapolated from samples.

use regex_automata::hybrid::dfa::Cache;
use tiktoken_rs::tokenizer::{Tokenizer, get_tokenizer};

use super::cache::{CachePool, LineCache, LongTexts, PieceCache};
use super::model_name::ModelName;
use super::pieces::{CL100K_PATTERN, O200K_PATTERN, Pieces, lines};
use super::vocabulary::{self, Vocabulary};

/// The maximum length in bytes of an ordinary piece. Real documents have no longer ones.
/// tiktoken's time per byte grows with the piece, and it needs some 40 bytes of memory for each
/// byte.
const LONG_PIECE: usize = 4 << 10;

/// The number of bytes in long pieces that are counted exactly in one text. The rest is
/// extrapolated. It is well below the million spaces at which tiktoken's pattern gives up.
const EXACT_IN_LONG_PIECES: usize = 512 << 10;

/// The number of samples of a long piece, and the limits of their total length in bytes.
const SAMPLES: usize = 16;
const SAMPLED: std::ops::RangeInclusive<usize> = LONG_PIECE..=64 * LONG_PIECE;

/// How a model cuts text into tokens, as one of the public encodings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Encoding {
    /// GPT-4o and all later models of OpenAI, including gpt-oss: `o200k_harmony` differs only
    /// in its special tokens, which text never contains. It is also the basis for models whose
    /// encoding is not public.
    O200kBase,
    /// GPT-4, GPT-3.5 and the embedding models. It is the nearest available encoding for even
    /// older models.
    Cl100kBase,
}

/// The caches of one count: of the search for pieces, of pieces, and of lines.
type Caches = (Cache, PieceCache, LineCache);

static O200K_CACHES: CachePool<Caches> = CachePool::new();
static CL100K_CACHES: CachePool<Caches> = CachePool::new();

static O200K_TEXTS: LongTexts = LongTexts::new();
static CL100K_TEXTS: LongTexts = LongTexts::new();

impl Encoding {
    /// Returns the encoding of a model by its name, or [`O200kBase`](Self::O200kBase) if the
    /// model is unknown.
    pub(crate) fn for_model(model: &str) -> Self {
        match get_tokenizer(ModelName::new(model).without_provider()) {
            Some(Tokenizer::O200kBase | Tokenizer::O200kHarmony) | None => Self::O200kBase,
            Some(_) => Self::Cl100kBase,
        }
    }

    /// Counts the tokens of a text, from the cache of long texts if possible.
    pub(super) fn count(self, text: &str) -> u64 {
        if text.is_empty() {
            return 0;
        }
        let texts = match self {
            Self::O200kBase => &O200K_TEXTS,
            Self::Cl100kBase => &CL100K_TEXTS,
        };
        texts.get_or_count(text, || self.count_anew(text))
    }

    fn count_anew(self, text: &str) -> u64 {
        let (pattern, caches) = match self {
            Self::O200kBase => (&*O200K_PATTERN, &O200K_CACHES),
            Self::Cl100kBase => (&*CL100K_PATTERN, &CL100K_CACHES),
        };
        let tables = self.tables();
        let new_caches = || (pattern.create_cache(), PieceCache::new(), LineCache::new());
        caches.with(new_caches, |(search, pieces, counted)| {
            // The budget is for the whole text, so that many long pieces are bounded too.
            let mut exact_left = EXACT_IN_LONG_PIECES;
            let mut count_piece = |piece: &str| {
                if piece.len() <= LONG_PIECE {
                    pieces.get_or_count(piece, |piece| tables.count(piece))
                } else if let Some(left) = exact_left.checked_sub(piece.len()) {
                    exact_left = left;
                    tables.count(piece)
                } else {
                    extrapolate(tables, piece)
                }
            };
            let mut count_line = |line: &str| {
                Pieces::of(line, pattern, search)
                    .map(&mut count_piece)
                    .sum()
            };
            lines(text)
                .map(|line| counted.get_or_count(line, &mut count_line))
                .sum()
        })
    }

    fn tables(self) -> &'static Vocabulary {
        match self {
            Self::O200kBase => vocabulary::o200k_base(),
            Self::Cl100kBase => vocabulary::cl100k_base(),
        }
    }
}

/// Estimates the tokens of a long piece from samples at even distances, rounded up.
fn extrapolate(tables: &Vocabulary, piece: &str) -> u64 {
    let sampled = (piece.len() / SAMPLES).clamp(*SAMPLED.start(), *SAMPLED.end());
    let (mut tokens, mut bytes) = (0, 0);
    for sample in 0..SAMPLES {
        let start = piece.floor_char_boundary(piece.len() / SAMPLES * sample);
        let end = piece.floor_char_boundary(start + sampled / SAMPLES);
        tokens += tables.count(&piece[start..end]);
        bytes += (end - start) as u64;
    }
    let scaled = u128::from(tokens) * piece.len() as u128;
    scaled.div_ceil(u128::from(bytes.max(1))) as u64
}
