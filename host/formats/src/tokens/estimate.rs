//! Estimates the tokens of a text without tokenising it.
//!
//! [`estimate`] is one pass over the bytes and needs no tables, so it suits decisions that are
//! not close, such as whether a conversation could reach a limit at all. It follows the rule of
//! the source document on context compaction policies.

/// The weights of a character in twelfths of a token: 12 / 4.0 for ordinary characters and 12 /
/// 1.5 for CJK.
const OTHER: u64 = 3;
const CJK: u64 = 8;

/// Estimates the tokens of a text for any model: 4.0 characters per token, 1.5 for CJK, rounded
/// up.
///
/// This is one branch-free pass over the bytes. CJK is detected by the first byte of a
/// character. It therefore means U+3000 to U+DFFF (CJK punctuation, kana, Han, Hangul, Yi) and
/// U+F000 to U+FFFF (compatibility ideographs, full-width forms).
pub fn estimate(text: &str) -> u64 {
    let mut characters = 0u64;
    let mut cjk = 0u64;
    // A block has at most 255 bytes, so that eight-bit counters suffice and the loop runs in
    // vector registers.
    for block in text.as_bytes().chunks(255) {
        let mut characters_here = 0u8;
        let mut cjk_here = 0u8;
        for &byte in block {
            characters_here += u8::from(byte & 0xC0 != 0x80);
            cjk_here += u8::from(byte.wrapping_sub(0xE3) <= 0xED - 0xE3) + u8::from(byte == 0xEF);
        }
        characters += u64::from(characters_here);
        cjk += u64::from(cjk_here);
    }
    (cjk * CJK + (characters - cjk) * OTHER).div_ceil(12)
}

#[cfg(test)]
mod tests {
    use super::estimate;
    use proptest::prelude::*;

    #[test]
    fn four_characters_or_one_and_a_half_cjk_a_token() {
        assert_eq!(estimate(""), 0);
        assert_eq!(estimate("a"), 1);
        assert_eq!(estimate(&"word".repeat(250)), 250);
        assert_eq!(estimate("汉字日本語한국어，。！。"), 8);
        assert_eq!(estimate(&"é".repeat(40)), 10);
        assert_eq!(estimate(&("汉".repeat(300) + &"x".repeat(400))), 300);
    }

    proptest! {
        #[test]
        fn is_the_rule_character_by_character(text in "\\PC{0,900}") {
            let is_cjk = |c: char| matches!(c, '\u{3000}'..='\u{D7FF}' | '\u{F000}'..='\u{FFFF}');
            let cjk = text.chars().filter(|c| is_cjk(*c)).count() as f64;
            let other = text.chars().count() as f64 - cjk;
            prop_assert_eq!(estimate(&text), (cjk / 1.5 + other / 4.0 - 1e-9).ceil() as u64);
        }
    }
}
