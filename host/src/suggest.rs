//! "Did you mean …?": the known word nearest to a mistyped one.

/// The candidate nearest to `word`, where one is near enough to be what was meant: at most one slip
/// (letter added, left out, changed, or swapped with its neighbour) for every three characters, case
/// not counted. Of equally near ones the first.
///
/// ```
/// use contexture::suggest::nearest;
///
/// assert_eq!(nearest("compresion", ["context", "compression"]), Some("compression"));
/// assert_eq!(nearest("banana", ["context", "compression"]), None);
/// ```
pub(crate) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let word = word.to_lowercase();
    let allowed = (word.chars().count() / 3).max(1);
    // What is too long to be a slip of any candidate is not worth a comparison.
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
