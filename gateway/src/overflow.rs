//! Finds out whether a provider's error says that a request is too long for the model, and which numbers it gives.
//!
//! There is no standard for it. Some providers have a code, most only a sentence, and proxies wrap either in errors of
//! their own. So an error is read as a list of words, wherever they are in its JSON, and judged by their meaning:
//! *what* is too long (the prompt, its tokens, the context) and *that* it is too long. Errors that use the same words
//! for something else (a rate limit, a quota, the length of the answer, the size of a file) are ruled out first.
//! [`overflow`] is the only entry point. The table in its tests lists the wordings that it has to recognize.

mod numbers;
mod words;

use serde_json::Value;

use words::{Word, words_of};

/// What a provider says about a request that does not fit, in its own tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Overflow {
    /// How many tokens would fit; `None` if the error does not say.
    pub(crate) limit: Option<u64>,
    /// How many tokens the request has; `None` if the error does not say.
    pub(crate) asked: Option<u64>,
}

/// How many characters of one text of an error are read at most.
const LONGEST_TEXT: usize = 4_000;

/// Returns the numbers of an error that says that the request is too long for the model, and `None` for any other
/// error.
///
/// `status` is the HTTP status of the answer, or 400 for an error that came as an event of a stream.
pub(crate) fn overflow(status: u16, body: &[u8]) -> Option<Overflow> {
    if !matches!(status, 400 | 413 | 422 | 500) {
        return None;
    }
    let mut text = String::new();
    match serde_json::from_slice::<Value>(body) {
        Ok(value) => {
            // Proxies may answer with another status than the provider.
            if matches!(own_status(&value), Some(401..=404 | 429 | 503 | 529)) {
                return None;
            }
            collect(&value, &mut text);
        }
        Err(_) => add(std::str::from_utf8(body).ok()?, &mut text),
    }
    let words = words_of(&text);
    let error = Error {
        words: &words,
        text: &text,
    };
    if error.is_about_too_long_a_request() {
        return Some(numbers::of(&words));
    }
    // A single request that exceeds a whole minute's allowance can never succeed unchanged.
    let told = numbers::of(&words);
    let is_too_large_alone = status == 413
        && error.has(&["too", "large"])
        && error.has_any(&["token", "tpm"])
        && told
            .limit
            .zip(told.asked)
            .is_some_and(|(limit, asked)| asked > limit)
        && !error.has_any(&["used"]);
    is_too_large_alone.then_some(told)
}

/// The status that the error itself contains.
fn own_status(value: &Value) -> Option<u64> {
    let error = value.get("error").unwrap_or(value);
    ["code", "status", "status_code"]
        .iter()
        .find_map(|key| match error.get(key)? {
            Value::String(text) => text.parse().ok(),
            other => other.as_u64(),
        })
}

/// Collects all texts of an error and the numbers in its named members. Echoes of the request are left out.
fn collect(value: &Value, text: &mut String) {
    match value {
        Value::String(one) => add(one, text),
        Value::Array(all) => all.iter().for_each(|one| collect(one, text)),
        Value::Object(members) => {
            for (key, member) in members {
                let echoes = matches!(key.as_str(), "input" | "body" | "request" | "messages");
                let is_id = key.ends_with("id") || key == "code" || key.ends_with("status");
                match member {
                    Value::Array(_) | Value::Object(_) if echoes => {}
                    Value::Number(number) if !is_id => add(&format!("{key}: {number}"), text),
                    Value::Number(_) => {}
                    _ => collect(member, text),
                }
            }
        }
        _ => {}
    }
}

/// Adds a text. If it contains JSON, as errors of proxies do, that is parsed as well.
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
        // It is a code of the provider.
        return;
    }
    let end = one.char_indices().nth(LONGEST_TEXT);
    let end = end.map_or(one.len(), |(at, _)| at);
    text.push_str(one.get(..end).unwrap_or_default());
    text.push_str(" ; ");
}

/// Words for the input of a model.
const INPUT: &[&str] = &[
    "prompt",
    "input",
    "message",
    "conversation",
    "history",
    "chat",
    "dialogue",
    "query",
    "sequence",
];
/// Words that say that something is too much. One is enough.
const EXCEEDS: &[&str] = &[
    "exceed",
    "exceeding",
    "overflow",
    "overflowed",
    "longer",
    "larger",
    "greater",
    "bigger",
    "surpass",
    "beyond",
    "over",
    "above",
];
/// Words for a limit.
const LIMITS: &[&str] = &[
    "maximum",
    "max",
    "limit",
    "only",
    "most",
    "<=",
    "supports",
    "support",
    "allowed",
    "must",
    "cannot",
    "reached",
    "full",
    "less",
    "fewer",
    "insufficient",
];
/// If one of these follows "input" or the like, the input of the model is not meant.
const NOT_INPUT: &[&str] = &[
    "should",
    "tag",
    "value",
    "validation",
    "id",
    "key",
    "cache",
    "name",
    "template",
    "type",
];
/// Fields of a request that have limits of their own.
const FIELDS: &[&str] = &[
    "name",
    "id",
    "key",
    "title",
    "field",
    "description",
    "string",
    "array",
    "item",
    "property",
];
/// Words before "tokens" that show that tokens of the answer are meant.
const OF_THE_ANSWER: &[&str] = &[
    "max",
    "output",
    "completion",
    "new",
    "budget",
    "thinking",
    "reasoning",
];
/// Words before "token" that show that a credential is meant.
const OF_ACCOUNTS: &[&str] = &[
    "access", "api", "invalid", "auth", "bearer", "refresh", "session", "security", "id",
];
/// What a limit may measure.
const MEASURES: &[&str] = &["length", "size", "token", "len"];

/// An error, as words and as text.
struct Error<'t> {
    words: &'t [Word],
    text: &'t str,
}

impl Error<'_> {
    fn is_about_too_long_a_request(&self) -> bool {
        if self.is_about_rates() || self.is_about_sizes() || self.is_about_the_answer() {
            return false;
        }
        self.names_the_context()
            || self.says_too_long()
            || self.names_the_inputs_length()
            || self.counts_tokens()
            || self.compares_tokens()
            || self.asks_for_less()
            || self.says_so_in_chinese()
    }

    fn word(&self, at: usize) -> &str {
        self.words.get(at).map_or("", Word::text)
    }

    fn is(&self, at: usize, any: &[&str]) -> bool {
        any.contains(&self.word(at))
    }

    /// Whether these words occur in this order, side by side.
    fn has(&self, phrase: &[&str]) -> bool {
        let mut places = 0..self.words.len();
        places.any(|at| {
            phrase
                .iter()
                .enumerate()
                .all(|(more, word)| self.word(at + more) == *word)
        })
    }

    fn has_any(&self, any: &[&str]) -> bool {
        (0..self.words.len()).any(|at| self.is(at, any))
    }

    /// The positions of these words.
    fn places<'s>(&'s self, any: &'s [&'s str]) -> impl Iterator<Item = usize> + 's {
        (0..self.words.len()).filter(move |at| self.is(*at, any))
    }

    /// Whether any of these words occurs within this many words of a position, in the same clause.
    fn is_near(&self, at: usize, within: usize, any: &[&str]) -> bool {
        self.around(at, within).any(|at| self.is(at, any))
    }

    /// The positions around another one, in the same clause.
    fn around(&self, at: usize, within: usize) -> impl Iterator<Item = usize> + '_ {
        let goes_on = |at: &usize| self.word(*at) != ";";
        let before = (at.saturating_sub(within)..at).rev().take_while(goes_on);
        before.chain((at + 1..=at + within).take_while(goes_on))
    }

    /// Whether this is a word for the model's input, and not part of a complaint about a field ("Input should be …").
    fn is_input(&self, at: usize) -> bool {
        let before = |any: &[&str]| at > 0 && self.is(at - 1, any);
        let stands_alone = (at == 0 || before(&[";"])) && self.is(at + 1, &[";"]);
        self.is(at, INPUT)
            && !stands_alone
            && !self.is(at + 1, NOT_INPUT)
            && !before(&["invalid", "malformed", "bad"])
    }

    fn has_input(&self) -> bool {
        (0..self.words.len()).any(|at| self.is_input(at))
    }

    /// Whether this is a token of the prompt, or of prompt and answer together, and not of the answer alone.
    fn is_token(&self, at: usize) -> bool {
        let is_other = at > 0 && (self.is(at - 1, OF_THE_ANSWER) || self.is(at - 1, OF_ACCOUNTS));
        self.is(at, &["token"]) && !is_other
    }

    /// Whether the error mentions `max_tokens` or the like.
    fn names_the_answers_length(&self) -> bool {
        self.places(&["token"])
            .any(|at| at > 0 && self.is(at - 1, OF_THE_ANSWER))
    }

    /// Whether the error says that the model's context is not enough.
    fn names_the_context(&self) -> bool {
        self.places(&["context"]).any(|at| {
            let is_other = self.is(at + 1, &["deadline", "management", "canceled", "cancelled"]);
            let is_measured = self.is(
                at + 1,
                &[
                    "length", "window", "size", "limit", "len", "token", "capacity", "budget",
                ],
            );
            let is_enough = self.is_near(at, 9, EXCEEDS)
                || (is_measured && self.is_near(at, 9, LIMITS))
                || self.is_near(at, 5, &["too"])
                || self.is_near(at, 3, &["full"])
                || self.is_near(at, 6, &["fit"]);
            !is_other && is_enough
        })
    }

    /// Whether the error says "… is too long" of a prompt or its tokens.
    fn says_too_long(&self) -> bool {
        self.places(&["too"]).any(|at| {
            if self.is(at + 1, &["many"]) {
                return (at + 2..at + 5).any(|at| self.is_token(at));
            }
            if !self.is(at + 1, &["long", "large", "big"]) {
                return false;
            }
            let fillers = [
                "is", "are", "was", "the", "your", "this", "far", "be", "length", "of", "token",
                "for", "model", "s",
            ];
            let mut before = (at.saturating_sub(8)..at).rev();
            let subject = before.find(|at| !self.is(*at, &fillers));
            let is_input = subject.is_some_and(|at| self.is_input(at) && !self.is(at + 1, &[";"]));
            let is_request =
                subject.is_some_and(|at| self.is(at, &["request", "context", "total"]));
            let counts = self.has_any(&["token", "context"]);
            let is_long = self.is(at + 1, &["long"]);
            (is_input && (is_long || counts)) || (is_request && counts)
        })
    }

    /// Whether it says "maximum prompt length", "input length should be", "prompt exceeds max length" or the like.
    fn names_the_inputs_length(&self) -> bool {
        let mut places = (0..self.words.len()).filter(|at| self.is_input(*at));
        places.any(|at| {
            let is_measured = self.is(at + 1, MEASURES);
            let is_limited = at > 0 && self.is(at - 1, &["maximum", "max", "maximal", "allowed"]);
            let is_told = self.is(at + 2, &["should", "must", "exceed", "limit", "over"]);
            let after =
                (at + 1..at + 8).take_while(|at| !self.is(*at, &[";"]) && !self.is(*at, FIELDS));
            let mut exceeds = after.filter(|at| self.is(*at, EXCEEDS));
            (is_measured && (is_limited || is_told))
                || exceeds.any(|at| (at + 1..at + 7).any(|at| self.is(at, MEASURES)))
        })
    }

    /// Whether it mentions the tokens of a prompt together with a limit.
    fn counts_tokens(&self) -> bool {
        let is_limit = |at: usize| self.is_near(at, 9, EXCEEDS) || self.is_near(at, 9, LIMITS);
        let places = self.places(&["token"]).filter(|at| self.is_token(*at));
        places.filter(|at| is_limit(*at)).any(|at| {
            let says_all = self.is(at + 1, &["limit"])
                && self.is_near(at, 4, &["exceed", "exceeding", "reached"]);
            says_all || self.around(at, 9).any(|at| self.is_of_prompt(at))
        })
    }

    /// Whether this is a word for the input or for the whole of it.
    fn is_of_prompt(&self, at: usize) -> bool {
        let is_error =
            self.is(at + 1, &["error"]) || (at > 0 && self.is(at - 1, &["invalid", "bad"]));
        self.is_input(at) || (self.is(at, &["request", "total", "text"]) && !is_error)
    }

    /// Whether it compares a number of tokens with a smaller limit, whatever the words are.
    fn compares_tokens(&self) -> bool {
        let told = numbers::of(self.words);
        let is_more = |(limit, asked): (u64, u64)| asked > limit;
        told.limit.zip(told.asked).is_some_and(is_more)
            && self.places(&["token"]).any(|at| self.is_token(at))
            && (self.has_input() || self.has_any(&["context"]) || !self.names_the_answers_length())
    }

    /// Whether it says "Please reduce the length of the messages" or the like.
    fn asks_for_less(&self) -> bool {
        let counts = self.has_any(&["length", "token", "context"]);
        counts
            && self
                .places(&[
                    "reduce", "shorten", "shorter", "fewer", "truncate", "trim", "decrease",
                ])
                .any(|at| {
                    (at + 1..at + 7)
                        .take_while(|at| self.word(*at) != ";")
                        .any(|at| self.is_input(at))
                })
    }

    fn says_so_in_chinese(&self) -> bool {
        let text = self.text.to_lowercase();
        let any = |all: &[&str]| all.iter().any(|one| text.contains(one));
        any(&[
            "上下文",
            "输入",
            "提示词",
            "prompt",
            "token",
            "消息",
            "请求",
        ]) && any(&["超过", "超出", "超长", "过长", "超限", "太长", "上限"])
            && !any(&[
                "频率",
                "频次",
                "配额",
                "余额",
                "额度",
                "稍后",
                "每分钟",
                "并发",
                "图片",
                "文件",
            ])
            && (!text.contains("max_tokens") || any(&["输入", "上下文", "prompt"]))
    }

    /// Whether it is about a rate limit, a quota or an account.
    fn is_about_rates(&self) -> bool {
        let rate = ["rate", "ratelimit", "rate_limit"];
        self.places(&rate).any(|at| {
            self.is(at, &["ratelimit"]) || self.is(at + 1, &["limit", "limited", "exceed"])
        }) || self
            .places(&["per"])
            .any(|at| self.is(at + 1, &["minute", "min", "day", "second", "hour", "month"]))
            || self.has_any(&[
                "tpm",
                "rpm",
                "tpd",
                "throttling",
                "throttled",
                "throttle",
                "quota",
                "billing",
                "credit",
                "balance",
                "afford",
                "subscription",
                "overloaded",
            ])
            || self.has(&["please", "wait"])
            || self.has(&["wait", "before"])
            || self.has(&["retry", "after"])
            || self.has(&["retry", "later"])
            || self
                .places(&["again"])
                .any(|at| self.is(at + 1, &["later", "in", "after"]))
            || self.has(&["usage", "limit"])
            || self.has(&["your", "plan"])
            || self.has(&["too", "many", "request"])
    }

    /// Whether it is about the size of a file, a picture or a field, without mentioning tokens.
    fn is_about_sizes(&self) -> bool {
        let sizes = [
            "byte",
            "kb",
            "mb",
            "gb",
            "kib",
            "mib",
            "gib",
            "megabyte",
            "kilobyte",
            "character",
            "char",
            "pixel",
            "image",
            "picture",
            "pdf",
            "page",
            "file",
            "audio",
            "video",
            "payload",
            "entity",
            "attachment",
        ];
        self.has_any(&sizes) && !self.has_any(&["token", "context"])
    }

    /// Whether it is about the length of the answer, without mentioning the input.
    fn is_about_the_answer(&self) -> bool {
        self.names_the_answers_length() && !self.has_input()
    }
}

#[cfg(test)]
mod tests;
