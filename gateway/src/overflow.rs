//! Decides whether a provider's error says that a request is too long for the model, and extracts
//! the numbers that it gives.
//!
//! There is no standard for such errors. Some providers have a code, most only a sentence, and
//! proxies wrap either in errors of their own. So an error is read as a list of words, wherever
//! they are in its JSON, and judged by their meaning: *what* is too long (the prompt, its tokens,
//! the context) and *that* it is too long. Errors that use the same words for something else (a
//! rate limit, a quota, the length of the answer, the size of a file) are ruled out first.
//!
//! [`overflow`] is the only entry point. `words` splits the text, and `numbers` tells limits from
//! sizes. The table in the tests lists the wordings that have to be recognized. What to do about a
//! request that is too long is up to the caller.

mod numbers;
mod words;

use serde_json::Value;

use words::{Word, words_of};

/// What a provider says about a request that does not fit. All numbers are in the provider's own
/// tokens, which may differ from the gateway's estimates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Overflow {
    /// How many tokens would fit. None if the error does not say.
    pub(crate) limit: Option<u64>,
    /// How many tokens the request has. None if the error does not say.
    pub(crate) size: Option<u64>,
}

/// How many characters of one text of an error are read at most.
const MAX_TEXT_CHARS: usize = 4_000;

/// Returns the numbers of an error that says that the request is too long for the model. Returns
/// None for any other error, or if the body is neither JSON nor text.
///
/// `status` is the HTTP status of the answer, or 400 for an error that came as an event of a
/// stream. Other statuses than 400, 413, 422 and 500 are never an overflow.
pub(crate) fn overflow(status: u16, body: &[u8]) -> Option<Overflow> {
    if !matches!(status, 400 | 413 | 422 | 500) {
        return None;
    }
    let mut text = String::new();
    match serde_json::from_slice::<Value>(body) {
        Ok(value) => collect(&value, &mut text),
        Err(_) => add(std::str::from_utf8(body).ok()?, &mut text),
    }
    let words = words_of(&text);
    let error = ErrorText {
        words: &words,
        text: &text,
    };
    if error.is_about_too_long_a_request() {
        return Some(numbers::of(&words));
    }
    // A single request that exceeds a whole minute's allowance can never succeed unchanged.
    let told = numbers::of(&words);
    let is_too_large_alone = status == 413
        && error.has_any(&["token", "tpm"])
        && told
            .limit
            .zip(told.size)
            .is_some_and(|(limit, size)| size > limit)
        && !error.has_any(&["used"]);
    is_too_large_alone.then_some(told)
}

/// Collects all texts of an error, and the numbers in its named members. Echoes of the request are
/// left out, because a conversation may talk about limits.
fn collect(value: &Value, text: &mut String) {
    match value {
        Value::String(one) => add(one, text),
        Value::Array(all) => all.iter().for_each(|one| collect(one, text)),
        Value::Object(members) => {
            for (key, member) in members {
                let echoes = matches!(key.as_str(), "input" | "body" | "request" | "messages");
                match member {
                    Value::Array(_) | Value::Object(_) if echoes => {}
                    Value::Number(number) => add(&format!("{key}: {number}"), text),
                    _ => collect(member, text),
                }
            }
        }
        _ => {}
    }
}

/// Adds a text and ends it with a semicolon, so that words of different texts are not read as one
/// clause. If it contains JSON, as errors of proxies do, the JSON is collected as well.
fn add(one: &str, text: &mut String) {
    let nested = one.find('{').zip(one.rfind('}')).and_then(|(from, to)| {
        let value = serde_json::from_str::<Value>(one.get(from..=to)?).ok()?;
        Some((one.get(..from)?, value, one.get(to + 1..)?))
    });
    if let Some((before, value, after)) = nested {
        add(before, text);
        collect(&value, text);
        return add(after, text);
    }
    if one.bytes().all(|byte| byte.is_ascii_digit()) {
        // Digits alone are an error code of the provider.
        return;
    }
    let end = one.char_indices().nth(MAX_TEXT_CHARS);
    let end = end.map_or(one.len(), |(at, _)| at);
    text.push_str(one.get(..end).unwrap_or_default());
    text.push_str(" ; ");
}

const INPUT: &[&str] = &[
    "prompt", "input", "message", "conversation", "history", "chat", "dialogue", "query",
    "sequence",
];
/// Words that say that something is too much. One of them is enough.
const EXCEEDS: &[&str] = &[
    "exceed", "exceeding", "overflow", "overflowed", "longer", "larger", "greater", "bigger",
    "surpass", "beyond", "over", "above",
];
/// Words for a limit. They mean little without a word for what is limited.
const LIMITS: &[&str] = &[
    "maximum", "max", "limit", "only", "most", "many", "support", "allowed", "must", "cannot",
    "reached", "full", "less", "fewer", "insufficient",
];
/// If one of these words follows "input" or the like, the error is about a field of the request,
/// which may have a limit of its own, and not about the model's input.
const NOT_INPUT: &[&str] = &[
    "should", "tag", "value", "validation", "id", "key", "cache", "name", "template", "type",
    "title", "field", "description", "string", "array", "item", "property",
];
/// Words before "tokens" that show that the tokens of the answer are meant.
const OF_THE_ANSWER: &[&str] = &[
    "max", "output", "completion", "new", "budget", "thinking", "reasoning",
];
/// Words before "token" that show that a credential is meant.
const OF_ACCOUNTS: &[&str] = &[
    "access", "api", "invalid", "auth", "bearer", "refresh", "session", "security", "id",
];
/// Words that are about a rate limit or a quota if one of the others follows at once.
const RATES: &[(&str, &[&str])] = &[
    ("rate", &["limit", "limited", "exceed"]),
    ("per", &["minute", "min", "day", "second", "hour", "month"]),
    ("many", &["request"]),
    ("usage", &["limit"]),
    ("your", &["plan"]),
    ("please", &["wait"]),
    ("again", &["later", "in", "after"]),
    ("retry", &["later", "after"]),
];
/// Words that ask for a shorter request.
const ASKS: &[&str] = &["reduce", "shorten", "decrease"];
const MEASURES: &[&str] = &["length", "size", "token", "len"];

/// An error as words and as text. Each check is a method that looks for one kind of wording.
struct ErrorText<'t> {
    words: &'t [Word],
    text: &'t str,
}

impl ErrorText<'_> {
    /// Whether the error says that the request is too long. Errors about something else are ruled
    /// out first, then one recognized wording is enough.
    fn is_about_too_long_a_request(&self) -> bool {
        if self.is_about_rates() || self.is_about_sizes() || self.is_about_the_answer() {
            return false;
        }
        self.names_the_context()
            || self.says_too_long()
            || self.names_the_inputs_length()
            || self.counts_tokens()
            || self.compares_tokens()
            || self.says_so_in_chinese()
    }

    /// The word at a position. Empty for a number or a position beyond the end.
    fn word(&self, at: usize) -> &str {
        self.words.get(at).map_or("", Word::text)
    }

    fn is(&self, at: usize, any: &[&str]) -> bool {
        any.contains(&self.word(at))
    }

    fn has_any(&self, any: &[&str]) -> bool {
        (0..self.words.len()).any(|at| self.is(at, any))
    }

    /// The positions at which any of these words occurs, in ascending order.
    fn positions<'s>(&'s self, any: &'s [&'s str]) -> impl Iterator<Item = usize> + 's {
        (0..self.words.len()).filter(move |at| self.is(*at, any))
    }

    /// Whether any of these words occurs at most `within` words before or after a position, in the
    /// same clause.
    fn is_near(&self, at: usize, within: usize, any: &[&str]) -> bool {
        self.around(at, within).any(|at| self.is(at, any))
    }

    /// The positions at most `within` words before or after another one, in the same clause. Nearer
    /// ones come first on each side.
    fn around(&self, at: usize, within: usize) -> impl Iterator<Item = usize> + '_ {
        let continues = |at: &usize| self.word(*at) != ";";
        let before = (at.saturating_sub(within)..at).rev().take_while(continues);
        before.chain((at + 1..=at + within).take_while(continues))
    }

    /// Whether the word at a position means the model's input. It does not if it belongs to a
    /// complaint about a field, as in "Input should be a list", or if it is the whole text.
    fn is_input(&self, at: usize) -> bool {
        // A text that is only "input" is the name of a field.
        let stands_alone = (at == 0 || self.is(at - 1, &[";"])) && self.is(at + 1, &[";"]);
        self.is(at, INPUT) && !stands_alone && !self.is(at + 1, NOT_INPUT)
    }

    fn has_input(&self) -> bool {
        (0..self.words.len()).any(|at| self.is_input(at))
    }

    /// Whether "token" at a position means tokens of the prompt, or of prompt and answer together.
    /// Tokens of the answer alone and credentials do not count.
    fn is_token(&self, at: usize) -> bool {
        let is_other = at > 0 && (self.is(at - 1, OF_THE_ANSWER) || self.is(at - 1, OF_ACCOUNTS));
        self.is(at, &["token"]) && !is_other
    }

    /// Whether the error mentions `max_tokens` or another limit on the answer.
    fn names_the_answers_length(&self) -> bool {
        self.positions(&["token"])
            .any(|at| at > 0 && self.is(at - 1, OF_THE_ANSWER))
    }

    /// Whether the error says that the model's context is not enough, as in "context length
    /// exceeded".
    fn names_the_context(&self) -> bool {
        self.positions(&["context"]).any(|at| {
            // "Context deadline exceeded" is a timeout of servers that are written in Go.
            let is_other = self.is(at + 1, &["deadline", "management", "canceled", "cancelled"]);
            let is_enough = self.is_near(at, 9, EXCEEDS)
                || self.is_near(at, 6, &["too", "full", "fit", "reached", "insufficient"]);
            !is_other && is_enough
        })
    }

    /// Whether the error says that a prompt or a request is too long or too large.
    fn says_too_long(&self) -> bool {
        self.positions(&["too"]).any(|at| {
            if !self.is(at + 1, &["long", "large", "big"]) {
                return false;
            }
            let fillers = [
                "is", "are", "was", "the", "your", "this", "far", "be", "length", "of", "token",
                "for", "model", "s",
            ];
            let mut before = (at.saturating_sub(8)..at).rev();
            let subject = before.find(|at| !self.is(*at, &fillers));
            // "Too large" alone may be about a file, so tokens or the context have to be mentioned.
            let counts = self.has_any(&["token", "context"]);
            let is_long = self.is(at + 1, &["long"]);
            subject.is_some_and(|at| match counts {
                true => self.is_of_prompt(at),
                false => is_long && self.is_input(at),
            })
        })
    }

    /// Whether the error says "maximum prompt length", "input length should be", "prompt exceeds
    /// max length", "reduce the length of the messages" or something similar.
    fn names_the_inputs_length(&self) -> bool {
        let mut positions = (0..self.words.len()).filter(|at| self.is_input(*at));
        positions.any(|at| {
            let is_measured = self.is(at + 1, MEASURES);
            let is_limited = at > 0 && self.is(at - 1, &["maximum", "max"]);
            let is_told = self.is(at + 2, &["should", "must", "exceed", "limit", "over"]);
            let after =
                (at + 1..at + 8).take_while(|at| !self.is(*at, &[";"]) && !self.is(*at, NOT_INPUT));
            let mut exceeds = after.filter(|at| self.is(*at, EXCEEDS));
            (is_measured && (is_limited || is_told))
                || (self.is_near(at, 6, ASKS) && self.is_near(at, 6, MEASURES))
                || exceeds.any(|at| (at + 1..at + 7).any(|at| self.is(at, MEASURES)))
        })
    }

    /// Whether the error mentions the tokens of a prompt together with a limit, as in "limit of
    /// 8192 tokens", or says that the limit of tokens is exceeded.
    fn counts_tokens(&self) -> bool {
        let is_limit = |at: usize| self.is_near(at, 9, EXCEEDS) || self.is_near(at, 9, LIMITS);
        let positions = self.positions(&["token"]).filter(|at| self.is_token(*at));
        positions.filter(|at| is_limit(*at)).any(|at| {
            let says_all = self.is(at + 1, &["limit"]) && self.is_near(at, 4, &["exceed"]);
            says_all || self.around(at, 12).any(|at| self.is_of_prompt(at))
        })
    }

    /// Whether the word at a position means the input or the whole request.
    fn is_of_prompt(&self, at: usize) -> bool {
        self.is_input(at) || self.is(at, &["request", "total", "text"])
    }

    /// Whether the error compares a number of tokens with a smaller limit, whatever its words are.
    fn compares_tokens(&self) -> bool {
        let told = numbers::of(self.words);
        let is_more = |(limit, size): (u64, u64)| size > limit;
        told.limit.zip(told.size).is_some_and(is_more)
            && self.positions(&["token"]).any(|at| self.is_token(at))
    }

    /// Whether the error says so in Chinese. Chinese has no spaces between words, so the text is
    /// searched for phrases.
    fn says_so_in_chinese(&self) -> bool {
        let text = self.text.to_lowercase();
        let any = |all: &[&str]| all.iter().any(|one| text.contains(one));
        any(&[
            "上下文", "输入", "提示词", "prompt", "token", "消息", "请求",
        ]) && any(&["超过", "超出", "超长", "过长", "超限", "太长", "上限"])
            && !any(&[
                "频率", "频次", "配额", "余额", "额度", "稍后", "每分钟", "并发", "图片", "文件",
            ])
    }

    /// Whether the error is about a rate limit, a quota or an account. Those use the same words for
    /// tokens, but a shorter request would not help.
    fn is_about_rates(&self) -> bool {
        let is_rate = |(first, next): &(&str, &[&str])| {
            self.positions(&[*first]).any(|at| self.is(at + 1, next))
        };
        RATES.iter().any(is_rate)
            || self.has_any(&[
                "ratelimit", "tpm", "rpm", "tpd", "throttling", "throttled", "throttle", "quota",
                "billing", "credit", "balance", "afford", "subscription", "overloaded",
            ])
    }

    /// Whether the error is about the size of a file, a picture or a field, without mentioning
    /// tokens or the context.
    fn is_about_sizes(&self) -> bool {
        let sizes = [
            "byte", "kb", "mb", "gb", "kib", "mib", "gib", "megabyte", "kilobyte", "character",
            "char", "pixel", "image", "picture", "pdf", "page", "file", "audio", "video",
            "payload", "entity", "attachment",
        ];
        self.has_any(&sizes) && !self.has_any(&["token", "context"])
    }

    /// Whether the error is about the length of the answer, without mentioning the input.
    fn is_about_the_answer(&self) -> bool {
        self.names_the_answers_length() && !self.has_input()
    }
}

#[cfg(test)]
mod tests;
