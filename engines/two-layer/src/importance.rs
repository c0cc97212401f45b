//! Computes how important a message is for the current question.
//!
//! The measure imitates the attention of a model. A message is important if it contains many of the
//! terms of the question, and rare terms count more than frequent ones. The user's own messages and
//! errors always count at least one half. Messages at or above the setting `keep_important` are
//! spared by both layers. No model is asked, so the measure knows nothing of synonyms: a message
//! that answers the question in other words gets no importance from it.

use std::collections::{HashMap, HashSet};

use contexture_engine_api::MessageView;

/// The smallest importance of the user's own messages and of errors, whatever they contain.
const HALF: f64 = 0.5;

/// Returns the importance of each message for the question, from 0 to 1. If the question has no
/// terms, or no other message contains any of them, only the fixed minimum counts.
pub(crate) fn importance(messages: &[MessageView<'_>], question: &str) -> Vec<f64> {
    let terms: Vec<HashSet<String>> = messages
        .iter()
        .map(|message| terms(message.text()))
        .collect();
    let mut in_messages: HashMap<&str, usize> = HashMap::new();
    // The question contains all of its own terms, so counting it would make each of them look
    // known.
    let others = (terms.iter().zip(messages)).filter(|(_, message)| message.text() != question);
    for term in others.flat_map(|(terms, _)| terms) {
        *in_messages.entry(term).or_default() += 1;
    }
    // A term in every message says little, and a term in no other message says nothing.
    let weight = |term: &String| {
        let among = in_messages.get(term.as_str())?;
        Some((1.0 + messages.len() as f64 / *among as f64).ln())
    };
    let asked: Vec<(String, f64)> = self::terms(question)
        .into_iter()
        .filter_map(|term| weight(&term).map(|weight| (term, weight)))
        .collect();
    let all: f64 = asked.iter().map(|(_, weight)| weight).sum();
    (messages.iter().zip(&terms))
        .map(|(message, terms)| {
            let named = asked.iter().filter(|(term, _)| terms.contains(term));
            let attention = match all > 0.0 {
                true => named.map(|(_, weight)| weight).sum::<f64>() / all,
                false => 0.0,
            };
            // An error or a request of the user can matter later, even if it has nothing to do with
            // the question.
            let least = match message.is_error() || message.is_real_user() {
                true => HALF,
                false => 0.0,
            };
            attention.max(least)
        })
        .collect()
}

/// Returns the terms of a text: words of at least three ASCII letters or digits in lower case, and
/// pairs of adjacent characters of other scripts, which may have no spaces.
fn terms(text: &str) -> HashSet<String> {
    let mut terms = HashSet::new();
    for word in text.split(|c: char| !c.is_alphanumeric() && c != '_') {
        if word.is_ascii() {
            if word.len() > 2 {
                terms.insert(word.to_ascii_lowercase());
            }
            continue;
        }
        let chars: Vec<char> = word.chars().collect();
        terms.extend(chars.windows(2).map(|pair| pair.iter().collect::<String>()));
    }
    terms
}

#[cfg(test)]
mod tests {
    use contexture_engine_api::MessageId;

    use super::*;

    #[test]
    fn what_the_question_is_about_matters_more() {
        let said = |text| MessageView::new(MessageId(1), "assistant").with_text(text);
        let messages = [
            said("The timeout of the connection pool is 30 seconds."),
            said("The weather is nice today."),
            said("连接池的超时是三十秒"),
            MessageView::new(MessageId(2), "tool")
                .with_text("no such file")
                .with_error(true),
        ];
        let english = importance(&messages, "Why does the connection pool timeout?");
        assert!(english[0] > 0.6 && english[1] < 0.4, "{english:?}");
        assert!(english[3] >= HALF, "{english:?}");
        let chinese = importance(&messages, "连接池的超时怎么改");
        assert!(chinese[2] > 0.6 && chinese[0] < 0.1, "{chinese:?}");
    }
}
