//! Vectors of texts, by a small sentence encoder that the user has on disk. Nothing is ever downloaded.
//!
//! The encoder is a BERT of twelve heads, uncased, whose vectors are the mean over its last layer, such as
//! all-MiniLM-L6-v2. A text is cut into passages, and each has a vector.

mod bert;
mod onnx;
mod word_pieces;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use contexture_engine_api::EngineError;
use xxhash_rust::xxh3::Xxh3;

use bert::Bert;
use word_pieces::{Piece, WordPieces};

/// The encoder's file.
const MODEL: &str = "model.onnx";
/// The files that may hold its vocabulary.
const VOCABULARIES: [&str; 2] = ["vocab.txt", "tokenizer.json"];

/// The most word pieces of a passage: a short paragraph. In a longer one a single fact is lost in the mean.
const PASSAGE: usize = 64;
/// The most passages of a text that have vectors; what follows is found by its words alone.
const MAX_PASSAGES: usize = 16;
/// Changes with how texts are cut and vectors are kept, so that older ones are made anew.
const VERSION: u64 = 1;

/// What an error of an embedder ends with.
const WAY_OUT: &str = "`context.engines.lcm.embedder` names the folder of a sentence encoder, with `model.onnx` and \
                       `vocab.txt` or `tokenizer.json` in it (docs/engines/lcm.md says where there is one); without the setting \
                       none is needed";

/// Why an embedder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EmbedderError {
    /// A path that depends on where the program was started.
    #[error("{} is no absolute path; {}", .0.display(), WAY_OUT)]
    Relative(PathBuf),
    /// A file that is missing, or cannot be read.
    #[error("{}: {}; {}", .path.display(), .cause, WAY_OUT)]
    Unread {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: std::io::Error,
    },
    /// A file with something else in it.
    #[error("{}: {}; {}", .path.display(), .what, WAY_OUT)]
    Unfit {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
}

impl From<EmbedderError> for EngineError {
    fn from(error: EmbedderError) -> Self {
        Self::Settings(error.to_string())
    }
}

/// A sentence encoder. Cheap to clone.
#[derive(Clone)]
pub struct Embedder(Arc<Encoder>);

struct Encoder {
    pieces: WordPieces,
    bert: Bert,
    fingerprint: i64,
}

/// A part of a text and its vector.
pub(crate) struct Passage {
    pub(crate) range: Range<usize>,
    pieces: Vec<u32>,
}

impl Embedder {
    /// Reads the encoder in `folder`.
    ///
    /// # Errors
    /// A file that is missing, or is not what it should be.
    pub fn open(folder: &Path) -> Result<Self, EmbedderError> {
        if !folder.is_absolute() {
            return Err(EmbedderError::Relative(folder.to_owned()));
        }
        let read = |path: &Path| {
            std::fs::read(path).map_err(|cause| EmbedderError::Unread {
                path: path.to_owned(),
                cause,
            })
        };
        let path = folder.join(MODEL);
        let model = read(&path)?;
        let unfit = |what| EmbedderError::Unfit {
            path: path.clone(),
            what,
        };
        let vocabulary = VOCABULARIES.map(|name| folder.join(name));
        let listed = vocabulary.iter().find(|path| path.exists());
        let listed = listed.unwrap_or(&vocabulary[0]);
        let words = read(listed)?;
        let pieces = WordPieces::read(&words).map_err(|what| EmbedderError::Unfit {
            path: listed.clone(),
            what,
        })?;
        let bert = Bert::read(&model).map_err(&unfit)?;
        if bert.vocabulary() < pieces.end() {
            return Err(unfit(format!(
                "it knows {} word pieces, and the vocabulary beside it has {}",
                bert.vocabulary(),
                pieces.end()
            )));
        }
        let mut hash = Xxh3::with_seed(VERSION);
        hash.update(&model);
        hash.update(&words);
        Ok(Self(Arc::new(Encoder {
            pieces,
            bert,
            fingerprint: hash.digest() as i64,
        })))
    }

    /// Differs between encoders whose vectors cannot be compared.
    pub(crate) fn fingerprint(&self) -> i64 {
        self.0.fingerprint
    }

    /// The passages of a text that have vectors, in order: the first that it can read.
    pub(crate) fn passages(&self, text: &str) -> Vec<Passage> {
        let mut passages = Vec::new();
        let mut from = 0;
        while from < text.len() && passages.len() < MAX_PASSAGES {
            let pieces = self.0.pieces.of(&text[from..], PASSAGE + 1);
            let end = pieces.len().min(PASSAGE);
            // It ends with a sentence, unless that would leave out most of it.
            let ends = |piece: &Piece| text[from + piece.end..].starts_with(char::is_whitespace);
            let stop = |piece: &Piece| piece.is_stop && ends(piece);
            let end = match pieces.len() > PASSAGE {
                true => (pieces[..end].iter().rposition(stop))
                    .map(|at| at + 1)
                    .filter(|at| *at > PASSAGE / 2)
                    .unwrap_or(end),
                false => end,
            };
            let (Some(first), Some(last)) = (pieces.first(), pieces[..end].last()) else {
                break;
            };
            if self.can_read(&pieces[..end]) {
                passages.push(Passage {
                    range: from + first.start..from + last.end,
                    pieces: pieces[..end].iter().map(|piece| piece.id).collect(),
                });
            }
            from += last.end;
        }
        passages
    }

    /// The vectors of a text's passages, one behind the other.
    pub(crate) fn vectors(&self, text: &str) -> Vec<u8> {
        let passages = self.passages(text);
        let vectors = passages.iter().flat_map(|passage| {
            let vector = self.vector(&passage.pieces);
            let largest = vector
                .iter()
                .fold(0f32, |most, value| most.max(value.abs()));
            let steps = 127.0 / largest.max(f32::MIN_POSITIVE);
            vector
                .into_iter()
                .map(move |value| (value * steps).round() as i8 as u8)
        });
        vectors.collect()
    }

    /// What a question is compared with vectors by; none of one that the encoder cannot read.
    pub(crate) fn probe(&self, question: &str) -> Option<Probe> {
        let is_readable = self.can_read(&self.0.pieces.of(question, PASSAGE * 2));
        let steps = |value: &f32| (value * PROBE_STEPS).round() as i16;
        is_readable.then(|| Probe(self.vector_of(question).iter().map(steps).collect()))
    }

    /// Whether it knows at least half of these: what it does not know is all alike to it.
    fn can_read(&self, pieces: &[Piece]) -> bool {
        let unknown = pieces
            .iter()
            .filter(|piece| piece.id == self.0.pieces.unknown);
        unknown.count() * 2 <= pieces.len()
    }

    /// The vector of a short text, of length 1; of a longer one that of its beginning.
    #[doc(hidden)]
    pub fn vector_of(&self, text: &str) -> Vec<f32> {
        let pieces = self.0.pieces.of(text, PASSAGE * 2);
        let ids: Vec<u32> = pieces.iter().map(|piece| piece.id).collect();
        self.vector(&ids)
    }

    fn vector(&self, pieces: &[u32]) -> Vec<f32> {
        let Encoder {
            pieces: words,
            bert,
            ..
        } = &*self.0;
        let mut ids = Vec::with_capacity(pieces.len() + 2);
        ids.push(words.first);
        ids.extend(pieces);
        ids.push(words.last);
        bert.vector(&ids)
    }
}

/// Steps between 0 and 1 in a question's vector: its product with 127 in a thousand places fits an `i32`.
const PROBE_STEPS: f32 = 8_191.0;

/// A question's vector.
pub(crate) struct Probe(Vec<i16>);

impl Probe {
    /// The cosine of the passage most like the question, and which it is; none of a text without passages.
    pub(crate) fn best(&self, vectors: &[u8]) -> Option<(f32, usize)> {
        let cosines = vectors
            .chunks_exact(self.0.len())
            .map(|vector| self.cosine(vector));
        let numbered = cosines.zip(0..);
        numbered.max_by(|(one, _), (other, _)| one.total_cmp(other))
    }

    fn cosine(&self, vector: &[u8]) -> f32 {
        let (mut product, mut square) = (0i32, 0i32);
        for (one, other) in self.0.iter().zip(vector) {
            let other = i16::from(*other as i8);
            product += i32::from(*one) * i32::from(other);
            square += i32::from(other) * i32::from(other);
        }
        product as f32 / PROBE_STEPS / (square as f32).sqrt().max(1.0)
    }
}

impl std::fmt::Debug for Embedder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Embedder({:016x})", self.0.fingerprint)
    }
}

impl PartialEq for Embedder {
    fn eq(&self, other: &Self) -> bool {
        self.fingerprint() == other.fingerprint()
    }
}

impl Eq for Embedder {}
