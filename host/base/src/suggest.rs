//! Finds the known word that is nearest to a mistyped one, for hints such as "Did you mean …?".

/// Returns the candidate nearest to `word` if it is near enough to be what was meant. It may
/// differ by one slip for every three characters, and by one in a shorter word. A slip is a
/// letter that is added, left out, changed or swapped with its neighbour. Case does not count.
/// Among equally near candidates, the first one is returned.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let allowed = (word.chars().count() / 3).max(1);
    // A word that is much longer than any candidate is not a misspelling of one, and the
    // distance takes quadratic time.
    if word.len() > 200 {
        return None;
    }
    candidates
        .into_iter()
        .map(|candidate| {
            (
                strsim::osa_distance(&word, &candidate.to_lowercase()),
                candidate,
            )
        })
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_slip_finds_its_word_and_another_word_none() {
        let words = ["context", "compression"];
        assert_eq!(nearest("compresion", words), Some("compression"));
        assert_eq!(nearest("Contxet", words), Some("context"));
        assert_eq!(nearest("banana", words), None);
    }
}
