//! How important a message is for the current question: how much of what the question names it names, too, as
//! attention would look there. What a user said and errors count at least half.

use std::collections::{HashMap, HashSet};

use contexture_engine_api::MessageView;

/// The least importance of the user's own words, and of errors.
const HALF: f64 = 0.5;

/// The importance of each message, from 0 to 1.
pub(crate) fn importance(messages: &[MessageView<'_>], question: &str) -> Vec<f64> {
    let terms: Vec<HashSet<String>> = messages
        .iter()
        .map(|message| terms(message.text()))
        .collect();
    let mut in_messages: HashMap<&str, usize> = HashMap::new();
    // The question itself names all that it names.
    let others = (terms.iter().zip(messages)).filter(|(_, message)| message.text() != question);
    for term in others.flat_map(|(terms, _)| terms) {
        *in_messages.entry(term).or_default() += 1;
    }
    // What stands everywhere says little, and what stands nowhere nothing.
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
            let least = match message.is_error() || message.is_real_user() {
                true => HALF,
                false => 0.0,
            };
            attention.max(least)
        })
        .collect()
}

/// Words of three letters or more, and pairs of the characters of scripts without spaces.
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
