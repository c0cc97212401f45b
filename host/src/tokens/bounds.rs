//! Bounds of a token count from the bytes alone, for every encoding of [`super::Encoding`].

/// The longest token of `o200k_base` and of `cl100k_base`, in bytes.
pub(super) const LONGEST_TOKEN: u64 = 128;

/// A lower and an upper bound of a text's tokens.
///
/// Above: a token is one byte at least. Below, the larger of
/// - the bytes over the longest token;
/// - the words that begin with an ASCII letter after ASCII white space, plus a third of the digits. Both
///   encodings first cut a text into pieces that no token crosses; a piece holds letters or digits but
///   not both, at most one such beginning of a word, and at most three digits.
pub(super) fn bounds(text: &str) -> (u64, u64) {
    let bytes = text.as_bytes();
    let (mut words, mut digits) = (0u64, 0u64);
    let mut before = b' ';
    for block in bytes.chunks(255) {
        let (mut words_here, mut digits_here) = (0u8, 0u8);
        words_here += u8::from(is_space(before) & block[0].is_ascii_alphabetic());
        for (&left, &right) in block.iter().zip(&block[1..]) {
            words_here += u8::from(is_space(left) & right.is_ascii_alphabetic());
        }
        for byte in block {
            digits_here += u8::from(byte.is_ascii_digit());
        }
        words += u64::from(words_here);
        digits += u64::from(digits_here);
        before = block[block.len() - 1];
    }
    let upper = bytes.len() as u64;
    let lower = upper
        .div_ceil(LONGEST_TOKEN)
        .max(words + digits.div_ceil(3));
    (lower, upper)
}

/// ASCII white space as Unicode's `\s` has it (vertical tab included).
fn is_space(byte: u8) -> bool {
    (byte == b' ') | (byte.wrapping_sub(b'\t') <= b'\r' - b'\t')
}
