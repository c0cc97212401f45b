//! How the host's own words are told from anybody else's without a record: by a checksum in the mark at
//! their end. A text that only begins like a summary is not one.

use contexture_engine_api::{CLEARED_TOOL_OUTPUT, SUMMARY_END_MARK, SUMMARY_MARK};
use xxhash_rust::xxh3::xxh3_64;

/// How a checksum is written after its mark: a space, `#`, and this many hexadecimal digits.
const DIGITS: usize = 8;

fn checksum(text: &str) -> String {
    format!("#{:0DIGITS$x}", xxh3_64(text.trim().as_bytes()) as u32)
}

/// A summary as it stands on the wire: between its two marks, the second one with the checksum.
/// A notice that is sealed stays as it is.
pub(crate) fn sealed_summary(text: &str) -> String {
    if unsealed_notice(text).is_some() {
        return text.to_owned();
    }
    let text = match leading_summary(text) {
        Some((summary, None)) => summary,
        _ => text,
    };
    let text = text.replace(SUMMARY_END_MARK, "");
    let text = text.trim();
    let text = match begins_with_a_mark(text) {
        true => text.to_owned(),
        false => format!("{SUMMARY_MARK}\n{text}").trim_end().to_owned(),
    };
    let checksum = checksum(&text);
    format!("{text}\n\n{SUMMARY_END_MARK} {checksum}")
}

/// The sealed summary that a text begins with, without its end mark, and the text that it was put before;
/// none where it stands alone. A notice stands alone, and is given back with its seal.
pub(super) fn leading_summary(text: &str) -> Option<(&str, Option<&str>)> {
    if !begins_with_a_mark(text) {
        return None;
    }
    if unsealed_notice(text).is_some() {
        return Some((text, None));
    }
    text.match_indices(SUMMARY_END_MARK).find_map(|(at, mark)| {
        let summary = text.get(..at)?.trim_end();
        let rest = text.get(at + mark.len()..)?.strip_prefix(' ')?;
        let rest = rest.strip_prefix(&checksum(summary))?;
        let joined = rest.strip_prefix("\n\n").unwrap_or(rest);
        Some((summary, (!rest.is_empty()).then_some(joined)))
    })
}

/// Whether a text begins with a mark of this host's or an engine's; which ones those may be, the contract says.
fn begins_with_a_mark(text: &str) -> bool {
    text.starts_with(['[', '【'])
}

/// A notice as it stands on the wire.
pub(crate) fn sealed_notice(text: &str) -> String {
    let text = text.trim();
    format!("{text}\n[notice {}]", checksum(text))
}

/// A sealed notice without its seal; none where it is not one.
pub(crate) fn unsealed_notice(text: &str) -> Option<&str> {
    let text = text.trim_end();
    if !begins_with_a_mark(text) || !text.ends_with(']') {
        return None;
    }
    let (notice, seal) = text.rsplit_once("\n[notice ")?;
    (seal.strip_suffix(']')? == checksum(notice)).then_some(notice)
}

/// A shortened text as it stands on the wire. Texts without a mark, and the one of a cleared result, stay as they are.
pub(crate) fn sealed_short(text: &str) -> String {
    let is_sealed = unsealed_short(text).is_some();
    if !begins_with_a_mark(text) || text == CLEARED_TOOL_OUTPUT || is_sealed {
        return text.to_owned();
    }
    format!("{text}\n[{}]", checksum(text))
}

/// A sealed shortened text without its seal; none where it is not one.
pub(crate) fn unsealed_short(text: &str) -> Option<&str> {
    if !begins_with_a_mark(text) {
        return None;
    }
    let (short, seal) = text.trim_end().rsplit_once("\n[")?;
    (seal.strip_suffix(']')? == checksum(short)).then_some(short)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use contexture_engine_api::SHORTENED_MARK;
    use proptest::prelude::*;

    #[test]
    fn what_somebody_says_is_never_taken_for_the_hosts_words() {
        for said in [
            SUMMARY_MARK.to_owned(),
            format!("{SUMMARY_MARK}\nWhat does this line mean?"),
            format!("{SUMMARY_MARK}\nmine\n\n{SUMMARY_END_MARK}\n\nGo on."),
            format!("{SUMMARY_MARK}\nmine\n\n{SUMMARY_END_MARK} #00000000"),
            format!(" {}", sealed_summary("quoted")),
        ] {
            assert_eq!(leading_summary(&said), None, "{said}");
        }
        for said in [
            SHORTENED_MARK.to_owned(),
            format!("{SHORTENED_MARK}\nis what I see"),
            format!("{SHORTENED_MARK}\nis what I see\n[#00000000]"),
        ] {
            assert_eq!(unsealed_short(&said), None, "{said}");
        }
    }

    proptest! {
        #[test]
        fn what_is_sealed_is_read_back_whatever_follows(text in "\\PC{0,60}", rest in "\\PC{0,20}") {
            prop_assume!(!rest.contains(SUMMARY_END_MARK));
            let sealed = sealed_summary(&text);
            prop_assert_eq!(&sealed_summary(&sealed), &sealed);
            let joined = format!("{sealed}\n\n{rest}");
            let (summary, after) = leading_summary(&joined).unwrap();
            let own = text.trim();
            let own = own.strip_prefix(SUMMARY_MARK).unwrap_or(own).trim();
            prop_assert!(summary.ends_with(own));
            prop_assert_eq!(after, Some(rest.as_str()));
            let short = format!("{SHORTENED_MARK}\n{text}");
            let short = short.trim_end();
            let sealed = sealed_short(short);
            prop_assert_eq!(unsealed_short(&sealed), Some(short));
            prop_assert_eq!(sealed_short(&sealed), sealed);
        }
    }
}
