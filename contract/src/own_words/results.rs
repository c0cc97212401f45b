//! Texts that are somebody else's up to the end of a message: results of tools, web pages and mails.
//!
//! Agents without native tools send what a tool returned as a user's message, below a head such as
//! `OBSERVATION:`, `[read_file for 'README.md'] Result:` or `--- Content from referenced files ---`.
//! Nothing marks the end of such a text, so it ends with the message, with a line such as
//! `--- End of content ---`, or with a tag between which a client puts a user's words.

/// A head is no longer than this.
const HEAD_BYTES: usize = 400;
/// A label has no more words than this.
const LABEL_WORDS: usize = 8;
/// What the head of a result names.
const RESULTS: [&str; 9] = [
    "result", "results", "output", "outputs", "observation", "observations", "content", "contents",
    "stdout",
];
/// Words that a person's sentence has and the label of a program has not: "The output of the tests:".
const PERSONAL: [&str; 19] = [
    "the", "a", "an", "this", "that", "these", "my", "our", "your", "its", "expected", "actual",
    "desired", "wanted", "never", "always", "don't", "not", "only",
];
/// Names of the headers of a mail, as mail programs write them above a quoted one.
const HEADERS: [&str; 24] = [
    "from", "to", "cc", "date", "sent", "reply-to", "von", "an", "gesendet", "datum", "de", "à",
    "envoyé", "para", "enviado", "fecha", "发件人", "收件人", "日期", "发送时间", "差出人", "宛先",
    "日時", "送信日時",
];
const SUBJECTS: [&str; 6] = ["subject", "betreff", "objet", "asunto", "主题", "件名"];
/// The name of a header is no longer than this.
const HEADER_BYTES: usize = 24;

/// Whether a line is the head of a text that is somebody else's up to the end of the message. `rest`
/// is the text after the line. If `is_first`, nothing of the user's stands before it.
pub(super) fn opens(line: &str, rest: &str, is_first: bool) -> bool {
    if line.starts_with('>') || line.len() > HEAD_BYTES {
        return false;
    }
    let next = rest.lines().next().unwrap_or_default();
    if opens_mail(line, next) {
        return true;
    }
    let may_open = |line: &str| line.starts_with(['[', '-', '=', '*', '#']) || line.contains("] ");
    if !is_first && !may_open(line) {
        return false;
    }
    let lower = line.trim_matches(['*', '#', ' ']).to_lowercase();
    is_marked(&lower) || is_first && is_label(&lower, rest)
}

/// Whether a line ends a text that such a head opened.
pub(super) fn closes(line: &str) -> bool {
    let words = ruled(line).unwrap_or_default().trim_start();
    let end = words.get(..4);
    end.is_some_and(|end| end.eq_ignore_ascii_case("end "))
}

/// Whether a line in lower case is one that only programs write: `[Python Interpreter: output]`,
/// `[run_command for 'ls'] Result:` or `--- Content from referenced files ---`.
fn is_marked(lower: &str) -> bool {
    if let Some(words) = ruled(lower) {
        return names_result(words);
    }
    if let Some(words) = lower
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
    {
        return !words.contains(']') && names_result(words);
    }
    let tool = lower.strip_prefix('[').unwrap_or_default();
    let tool = tool.split(' ').next().unwrap_or_default();
    lower.match_indices("] ").any(|(at, close)| {
        let label = &lower[at + close.len()..];
        let words = label.split(':').next().unwrap_or_default();
        // The command in the brackets may have several lines, of which this is the last. With text
        // after the label, a person may have written it: `[Bug 12] Result: never push`.
        let is_alone = label.strip_suffix(':') == Some(words);
        let is_tools = tool.contains('_')
            || is_alone && (lower.starts_with('[') || lower[..at].ends_with('\''));
        is_tools && label.contains(':') && RESULTS.contains(&words)
    })
}

/// Whether the first line of a message, in lower case, is the label of a result.
fn is_label(lower: &str, rest: &str) -> bool {
    let Some(label) = lower.strip_suffix([':', '：']) else {
        // The protocol of ReAct has the text on the same line. A person's one line may be a rule.
        return lower.starts_with("observation:") && !rest.trim().is_empty();
    };
    let is_word = |c: char| c.is_alphanumeric() || c == '\'';
    let words = || label.split(|c| !is_word(c)).filter(|word| !word.is_empty());
    let is_programs =
        words().count() <= LABEL_WORDS && !words().any(|word| PERSONAL.contains(&word));
    let is_page = label.contains("://");
    (is_programs || is_page) && names_result(label)
}

/// The words of a line between two rules, as in `--- words ---`.
fn ruled(line: &str) -> Option<&str> {
    ["---", "==="].iter().find_map(|rule| {
        let words = line.strip_prefix(rule)?.strip_suffix(rule)?;
        Some(words.trim_matches(['-', '=', ' ']))
    })
}

/// Whether the phrase that words in lower case begin with ends with a result: "search results for x"
/// and not "rules for output" or "output format".
fn names_result(lower: &str) -> bool {
    let words = lower.split(|c: char| !c.is_alphanumeric() && c != '\'');
    let is_number = |word: &str| word.starts_with(|c: char| c.is_ascii_digit());
    let words = words.filter(|word| !word.is_empty() && !is_number(word));
    let phrase = words.take_while(|word| !["of", "from", "for", "in", "on"].contains(word));
    phrase.last().is_some_and(|word| RESULTS.contains(&word))
}

/// Whether two lines are headers of a mail. "From: 3.1" above "To: 3.2" may be anything.
fn opens_mail(line: &str, next: &str) -> bool {
    let header = |line: &str| {
        let (name, _) = line.split_once([':', '：'])?;
        if name.len() > HEADER_BYTES {
            return None;
        }
        let name = name.trim_matches(['*', ' ']).to_lowercase();
        let is_subject = SUBJECTS.contains(&name.as_str());
        (is_subject || HEADERS.contains(&name.as_str())).then_some((name, is_subject))
    };
    let (Some(first), Some(second)) = (header(line), header(next)) else {
        return false;
    };
    first.0 != second.0 && (first.1 || second.1 || line.contains('@') || next.contains('@'))
}
