//! Vectors of texts, for searching by meaning.
//!
//! A sentence encoder turns a text into a vector such that texts with similar meaning have similar
//! vectors. A question then finds passages that share no word with it. The encoder is a folder that
//! the user has on disk, and nothing is downloaded here.
//!
//! The encoder must be an uncased BERT with twelve heads whose vectors are the mean over its last
//! layer, such as all-MiniLM-L6-v2. [`Embedder::open`] reads it. A text is cut into passages, and
//! each passage gets a vector of 8-bit integers. A question becomes a [`Probe`], which is compared
//! with them by cosine.

mod bert;
mod onnx;
mod word_pieces;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use xxhash_rust::xxh3::Xxh3;

use bert::Bert;
use word_pieces::{Piece, WordPieces};

/// The name of the file with the weights of the encoder.
const MODEL: &str = "model.onnx";
/// The names of the files that may contain the vocabulary. The first one that exists is used.
const VOCABULARIES: [&str; 2] = ["vocab.txt", "tokenizer.json"];

/// The maximum number of word pieces of a passage, which is a short paragraph. In a longer one a
/// single fact would be lost in the mean.
const PASSAGE: usize = 64;
/// The maximum number of passages of a text that get vectors. What follows can still be found by
/// its words.
const MAX_PASSAGES: usize = 16;
/// The version of how texts are cut and vectors are stored. Raise it if either changes, so that
/// existing vectors are computed again.
const VERSION: u64 = 1;

/// The reason why an embedder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EmbedderError {
    /// The path of the folder is relative. It would depend on the directory in which the program
    /// was started.
    #[error("{} is not an absolute path", .0.display())]
    Relative(PathBuf),
    /// A file of the encoder cannot be read, or does not contain what it should, such as a model of
    /// another kind.
    #[error("{}: {}", .path.display(), .what)]
    Unfit {
        /// The file with the problem.
        path: PathBuf,
        /// What is wrong with the file.
        what: String,
    },
}

/// A sentence encoder that has been read into memory. Clones share the weights, so cloning is
/// cheap. Two embedders are equal if their vectors can be compared.
#[derive(Clone)]
pub struct Embedder(Arc<Encoder>);

struct Encoder {
    pieces: WordPieces,
    bert: Bert,
    fingerprint: i64,
}

/// A part of a text that gets a vector of its own.
pub struct TokenizedPassage {
    /// The bytes of the text that it is.
    pub range: Range<usize>,
    pieces: Vec<u32>,
}

impl Embedder {
    /// Reads the encoder in `folder`, which must be an absolute path.
    ///
    /// # Errors
    /// Returns an error if a file is missing or cannot be read, if the model is not a BERT of the
    /// expected form, or if the vocabulary has more pieces than the model knows.
    pub fn open(folder: &Path) -> Result<Self, EmbedderError> {
        if !folder.is_absolute() {
            return Err(EmbedderError::Relative(folder.to_owned()));
        }
        let unfit = |path: &Path, what| EmbedderError::Unfit {
            path: path.to_owned(),
            what,
        };
        let read =
            |path: &Path| std::fs::read(path).map_err(|cause| unfit(path, cause.to_string()));
        let path = folder.join(MODEL);
        let model = read(&path)?;
        let vocabulary = VOCABULARIES.map(|name| folder.join(name));
        let listed = vocabulary.iter().find(|path| path.exists());
        let listed = listed.unwrap_or(&vocabulary[0]);
        let words = read(listed)?;
        let pieces = WordPieces::read(&words).map_err(|what| unfit(listed, what))?;
        let bert = Bert::read(&model).map_err(|what| unfit(&path, what))?;
        // A piece without an embedding would be out of range when a text is embedded.
        if bert.vocabulary() < pieces.end() {
            let what = format!(
                "it knows {} word pieces, and the vocabulary beside it has {}",
                bert.vocabulary(),
                pieces.end()
            );
            return Err(unfit(&path, what));
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

    /// Returns a hash of the model, the vocabulary and the version of this code. Vectors of
    /// encoders with different fingerprints cannot be compared.
    pub fn fingerprint(&self) -> i64 {
        self.0.fingerprint
    }

    /// Cuts a text into passages and returns those that get vectors, in order. Passages that
    /// consist mostly of unknown words are left out. The rest of a long text has no passages.
    pub fn passages(&self, text: &str) -> Vec<TokenizedPassage> {
        let mut passages = Vec::new();
        let mut from = 0;
        while from < text.len() && passages.len() < MAX_PASSAGES {
            // One piece more than a passage holds shows whether the text goes on.
            let pieces = self.0.pieces.of(&text[from..], PASSAGE + 1);
            let end = pieces.len().min(PASSAGE);
            // A passage ends with a sentence, unless the last end of a sentence is in its first
            // half. Cutting there would leave out most of the passage.
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
                passages.push(TokenizedPassage {
                    range: from + first.start..from + last.end,
                    pieces: pieces[..end].iter().map(|piece| piece.id).collect(),
                });
            }
            from += last.end;
        }
        passages
    }

    /// Returns the vectors of a text's passages, one after the other. Each value is one byte: the
    /// vector is scaled so that its largest value is 127. The cosine does not depend on the scale.
    pub fn vectors(&self, text: &str) -> Vec<u8> {
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

    /// Prepares a question for comparison with vectors. Returns `None` if the encoder knows too few
    /// of its words, because the vector would mean nothing.
    pub fn probe(&self, question: &str) -> Option<Probe> {
        let is_readable = self.can_read(&self.0.pieces.of(question, PASSAGE * 2));
        let steps = |value: &f32| (value * PROBE_STEPS).round() as i16;
        is_readable.then(|| Probe(self.vector_of(question).iter().map(steps).collect()))
    }

    /// Whether the encoder knows at least half of these pieces. All unknown words look the same to
    /// it, so texts of unknown words would be similar to each other.
    fn can_read(&self, pieces: &[Piece]) -> bool {
        let unknown = pieces
            .iter()
            .filter(|piece| piece.id == self.0.pieces.unknown);
        unknown.count() * 2 <= pieces.len()
    }

    /// Returns the vector of a text, scaled to length 1. Of a text longer than two passages only
    /// the beginning counts.
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
        // The encoder was trained with these two pieces around every text.
        let mut ids = Vec::with_capacity(pieces.len() + 2);
        ids.push(words.first);
        ids.extend(pieces);
        ids.push(words.last);
        bert.vector(&ids)
    }
}

/// The number of steps between 0 and 1 in a question's vector. A product with 127 over a thousand
/// places still fits an `i32`.
const PROBE_STEPS: f32 = 8_191.0;

/// The vector of a question, as integers so that comparing it with stored vectors is fast.
pub struct Probe(Vec<i16>);

impl Probe {
    /// Returns the cosine of the passage that is most like the question, and the number of that
    /// passage. `vectors` is what [`Embedder::vectors`] returned for the text. Returns None if it
    /// is empty.
    pub fn best(&self, vectors: &[u8]) -> Option<(f32, usize)> {
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

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
