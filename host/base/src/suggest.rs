//! "Did you mean …?": the known word nearest to a mistyped one.

/// The candidate nearest to `word`, where one is near enough to be what was meant: at most one slip
/// (letter added, left out, changed, or swapped with its neighbour) for every three characters, case
/// not counted. Of equally near ones the first.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let allowed = (word.chars().count() / 3).max(1);
    // A word much longer than every candidate is no misspelling of one.
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
