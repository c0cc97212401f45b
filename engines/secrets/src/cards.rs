//! Finds the numbers of payment cards, by issuer, length and check digit.
//!
//! A card number is written in one piece, or in groups as on the card, separated by spaces or
//! dashes. One random number in ten has a valid check digit, so the beginning has to belong to an
//! issuer too, and the number must not be part of a longer word or of a decimal. A number that
//! passes all tests can still be an order number, and is masked anyway.

use std::ops::Range;

/// Appends the positions of card numbers. Of any four digits in a row, one is at a multiple of
/// four, so only every fourth byte is read if there are no digits.
pub(crate) fn scan(text: &str, secrets: &mut Vec<Range<usize>>) {
    let bytes = text.as_bytes();
    let mut at = 3;
    while at < bytes.len() {
        if !bytes[at].is_ascii_digit() {
            at += 4;
            continue;
        }
        let is_part = |byte: &&u8| byte.is_ascii_digit() || matches!(byte, b' ' | b'-');
        let before = bytes[..at]
            .iter()
            .rev()
            .take(24)
            .take_while(is_part)
            .count();
        let after = bytes[at..].iter().take_while(is_part).count();
        let run = at - before..at + after;
        at = run.end + 4;
        if run.len() >= 14 {
            secrets.extend(card_in(bytes, run));
        }
    }
}

/// Whether digits are the number of a card. They need a known issuer, a valid check digit, and more
/// than one different digit.
pub(crate) fn is_card(digits: &[u8]) -> bool {
    let number = |len: usize| {
        digits[..len]
            .iter()
            .fold(0_u32, |number, digit| number * 10 + u32::from(digit - b'0'))
    };
    let is_issued = match digits.len() {
        14 => matches!(number(2), 30 | 36 | 38),
        15 => matches!(number(2), 34 | 37),
        16 => {
            let two = number(2);
            digits[0] == b'4'
                || matches!(two, 35 | 51..=55 | 62 | 64 | 65)
                || number(4) == 6011
                || (2221..=2720).contains(&number(4))
        }
        _ => false,
    };
    // If all digits are the same, the number is a placeholder, though its check digit may be valid.
    is_issued && digits.iter().any(|digit| *digit != digits[0]) && has_check_digit(digits)
}

/// Whether the last digit is valid according to the Luhn algorithm.
fn has_check_digit(digits: &[u8]) -> bool {
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(at, digit)| {
            let value = u32::from(digit - b'0') << (at % 2);
            if value > 9 { value - 9 } else { value }
        })
        .sum();
    sum.is_multiple_of(10)
}

/// Returns the card number in a run of digits, spaces and dashes, either in one piece or in groups
/// as on a card.
fn card_in(bytes: &[u8], run: Range<usize>) -> Option<Range<usize>> {
    let is_word = |at: usize| {
        bytes
            .get(at)
            .is_some_and(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.'))
    };
    let mut groups: [Range<usize>; 4] = [0..0, 0..0, 0..0, 0..0];
    let mut at = run.start;
    while at < run.end {
        if !bytes[at].is_ascii_digit() {
            at += 1;
            continue;
        }
        let len = bytes[at..run.end]
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        groups.rotate_left(1);
        groups[3] = at..at + len;
        at += len;
        // A decimal or a part of a name is not a card, but a full stop after the number is allowed.
        let ends = |end: usize| !is_word(end) || (bytes[end] == b'.' && !is_word(end + 1));
        let begins = |start: usize| start == 0 || !is_word(start - 1);
        let lengths = groups.each_ref().map(ExactSizeIterator::len);
        for joined in [1, 3, 4] {
            let parts = &groups[4 - joined..];
            let is_grouped = match joined {
                1 => matches!(len, 14..=16),
                3 => matches!(lengths[1..], [4, 6, 4 | 5]),
                _ => lengths == [4; 4],
            };
            let side_by_side = parts
                .windows(2)
                .all(|pair| pair[1].start == pair[0].end + 1);
            let place = parts[0].start..groups[3].end;
            if is_grouped && side_by_side && begins(place.start) && ends(place.end) {
                let digits: Vec<u8> = bytes[place.clone()]
                    .iter()
                    .copied()
                    .filter(u8::is_ascii_digit)
                    .take(20)
                    .collect();
                if is_card(&digits) {
                    return Some(place);
                }
            }
        }
    }
    None
}
