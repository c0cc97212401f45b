//! How similar messages are to the question in meaning, by their vectors.
//!
//! If there is an embedder, [`Question::compare`] compares the question's vector with those of all
//! messages. The most similar messages become candidates even if they share no word with the
//! question. For the score the similarity is measured in standard deviations from the mean, because
//! the absolute cosines differ between encoders and between conversations.

use std::ops::Range;

use rustc_hash::FxHashMap;

use super::Question;
use crate::error::StoreError;
use crate::search::run::Search;
use crate::store::Key;
use crate::store::vectors::for_each_vectors;
use crate::text::fold::fold;
use crate::text::terms::runs;
use contexture_embed::Embedder;

/// The embedder and the question as it was asked.
pub(in crate::search) struct Sense<'e> {
    embedder: &'e Embedder,
    question: String,
}

impl<'e> Sense<'e> {
    pub(in crate::search) fn new(embedder: &'e Embedder, question: &str) -> Self {
        Self {
            embedder,
            question: question.to_owned(),
        }
    }
}

/// Returns a question about participants in the words in which they would tell the answer: "What did
/// I paint?" for "What did Ana paint?". Messages rarely contain the name of who wrote them. The names
/// are folded.
fn as_told(question: &str, names: &[String]) -> String {
    let mut told = String::new();
    let mut end = 0;
    for run in runs(question) {
        let Range { start, end: after } = run.range;
        // The letter after an apostrophe belongs to the name.
        if start < end || !names.contains(&fold(&question[start..after])) {
            continue;
        }
        told.push_str(&question[end..start]);
        let of = ["'s", "’s"]
            .into_iter()
            .find(|of| question[after..].starts_with(of));
        told.push_str(if of.is_some() { "my" } else { "I" });
        end = after + of.map_or(0, str::len);
    }
    told.push_str(&question[end..]);
    told
}

/// How similar to the question each message with a vector is.
#[derive(Default)]
pub(super) struct Alike {
    /// The cosine of the most similar passage of each message, and the number of that passage.
    best: FxHashMap<Key, (f32, usize)>,
    mean: f64,
    deviation: f64,
}

impl Alike {
    /// Returns by how many standard deviations a message is more similar to the question than the
    /// mean of all messages. Nothing is known about a message without vectors, so it counts as the
    /// mean.
    pub(super) fn of(&self, key: Key) -> f64 {
        let cosine = self.best.get(&key).map(|(cosine, _)| f64::from(*cosine));
        cosine.map_or(0.0, |cosine| (cosine - self.mean) / self.deviation)
    }
}

impl Question<'_> {
    /// Compares the question with all messages that have vectors, and returns the most similar ones
    /// that pass the filters. It returns none without an embedder, or if the embedder cannot read
    /// the question.
    pub(super) fn compare(&mut self, search: &Search<'_>) -> Result<Vec<Key>, StoreError> {
        let Some(sense) = &self.sense else {
            return Ok(Vec::new());
        };
        // The names of participants are known by now, so the question is embedded only here.
        let text = as_told(&sense.question, &self.participants);
        let Some(probe) = sense.embedder.probe(&text) else {
            return Ok(Vec::new());
        };
        let mut alike = Alike::default();
        let mut ranked = Vec::new();
        for &session in &search.query.sessions {
            let end = search.extent(session).messages;
            let compared = for_each_vectors(
                search.connection,
                session,
                end,
                sense.embedder,
                |key, vectors| {
                    if let Some(best) = probe.best(vectors) {
                        alike.best.insert(key, best);
                        ranked.push((best.0, key));
                    }
                },
            );
            match compared {
                // Damaged vectors can be computed again from the messages. Until then words alone
                // count.
                Ok(()) | Err(StoreError::Damaged(_)) => {}
                Err(error) => return Err(error),
            }
        }
        let count = ranked.len().max(1) as f64;
        let mean_of = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / count;
        alike.mean = mean_of(&mut ranked.iter().map(|(cosine, _)| f64::from(*cosine)));
        let squares = |(cosine, _): &(f32, Key)| (f64::from(*cosine) - alike.mean).powi(2);
        alike.deviation = mean_of(&mut ranked.iter().map(squares)).sqrt().max(1e-6);
        ranked.sort_unstable_by(|one, other| other.0.total_cmp(&one.0).then(other.1.cmp(&one.1)));
        // A message that is less similar than the mean is no candidate, even if few others exist.
        ranked.retain(|(cosine, _)| f64::from(*cosine) > alike.mean);
        // The filters read the row of each message, so they are applied in batches until there are
        // enough messages.
        let most = self.weights.alike_candidates;
        let mut first = Vec::new();
        for some in ranked.chunks(most.max(1)) {
            for run in some.chunk_by(|one, next| one.1.session() == next.1.session()) {
                let mut ordinals = run.iter().map(|(_, key)| key.ordinal()).collect();
                let session = run[0].1.session();
                search.filter(session, &mut ordinals)?;
                first.extend(
                    ordinals
                        .into_iter()
                        .map(|ordinal| Key::new(session, ordinal)),
                );
            }
            if first.len() >= most {
                break;
            }
        }
        first.truncate(most);
        self.alike = alike;
        Ok(first)
    }

    /// Returns the range of the passage by which a message is similar to the question. It is used
    /// to show a message that shares no word with it. Returns None if the message has no vector.
    pub(super) fn passage_alike(&self, key: Key, text: &str) -> Option<Range<usize>> {
        let (_, passage) = self.alike.best.get(&key)?;
        let passages = self.sense.as_ref()?.embedder.passages(text);
        passages
            .into_iter()
            .nth(*passage)
            .map(|passage| passage.range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn participants_ask_as_i() {
        let names = ["ana".to_owned(), "zoe".to_owned()];
        for (question, told) in [
            ("What did Ana paint?", "What did I paint?"),
            ("Ana’s and ZOË's dog?", "my and my dog?"),
            ("What's Anabel's dog?", "What's Anabel's dog?"),
            ("Ana", "I"),
            ("", ""),
        ] {
            assert_eq!(as_told(question, &names), told);
        }
    }
}
