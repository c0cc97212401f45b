//! What a user wrote in their own words, as opposed to what they quoted or pasted.
//!
//! [`own_words`] returns a message with everything else blanked out, byte for byte at the same
//! place: code, block quotes, inline quotes, logs, text that an introduction announces as somebody
//! else's, and what a client inserted ([`contexture_contract::own_words`]). A cue that is blanked is
//! never taken for a rule, and the rule itself is still cut from the original text.
//!
//! Project files such as `CLAUDE.md` and `AGENTS.md` are the exception. They arrive between tags of
//! the client, and they count as the user's words.

use std::ops::Range;

use contexture_contract::OwnWords;

use super::declared;

/// A quote is no longer than this, so that a text of nothing but quotation marks takes linear time.
const QUOTE_BYTES: usize = 2_000;
/// Orders to translate the text after them.
const TRANSLATES: [&str; 11] = [
    "translate ", "übersetze", "übersetz ", "traduis", "traduisez", "traduce", "traduzca",
    "翻译成", "译成", "訳して", "번역",
];
/// If a line ends with a colon and has one of these words, it announces text of somebody else.
const SAYS: [&str; 18] = [
    "says", "said", "wrote", "writes", "reads", "pasted", "prints", "printed", "sagt", "schreibt",
    "steht", "dit", "écrit", "dice", "snippet", "quote", "trace", "stack",
];
/// So does a line with one of these, unless it tells what the user is about to speak of: "For the
/// log:", "Error handling:".
const SOURCES: [&str; 31] = [
    "log", "logs", "output", "outputs", "error", "errors", "readme", "docs", "documentation",
    "guide", "mail", "mails", "email", "emails", "e-mail", "article", "changelog", "ticket",
    "tickets", "ausgabe", "meldung", "fehlermeldung", "doku", "protokoll", "sortie", "erreur",
    "erreurs", "journal", "salida", "registro", "readme.md",
];
/// The same in languages without spaces between words.
const CJK_SOURCES: [&str; 9] = [
    "日志", "输出", "报错", "文档", "邮件", "ログ", "出力", "エラー", "メール",
];
/// Words that such a line begins with if it names a topic.
const TOPICS: [&str; 19] = [
    "for", "about", "when", "regarding", "concerning", "on", "to", "für", "bei", "zu", "wenn",
    "pour", "quand", "concernant", "para", "sobre", "cuando", "关于", "对于",
];
/// Ends of such a line in Chinese and Japanese.
const TOPIC_ENDS: [&str; 7] = ["时", "方面", "場合", "ときは", "時は", "では", "について"];
/// Words after which a source is still the last word of its phrase: "the output of the tests".
const AFTER_SOURCES: [&str; 24] = [
    "of", "from", "for", "in", "on", "at", "when", "if", "i", "we", "it", "that", "after", "is",
    "was", "with", "by", "message", "von", "aus", "de", "du", "des", "del",
];
/// If a line ends with a colon or is a heading and has one of these words, the list below it has
/// rules.
const ANNOUNCES_RULES: [&str; 10] = [
    "never", "always", "don't", "do not", "niemals", "immer", "jamais", "toujours", "nunca",
    "siempre",
];
/// The same for these, also if nothing but the list shows that the line is its head.
const NAMES_RULES: [&str; 35] = [
    "remember", "rule", "convention", "guideline", "constraint", "requirement", "regel", "vorgabe",
    "anforderung", "règle", "contrainte", "exigence", "regla", "requisito", "restriccion",
    "restricción", "consignes", "normas", "规则", "规范", "约定", "规矩", "守则", "准则", "要求",
    "注意事", "ルール", "規則", "守って", "きまり", "決まり", "follow these", "stick to these",
    "house style", "style guide",
];
/// If a short line with one of these words ends with a colon or is a heading, the list below it has
/// what is forbidden.
const FORBIDS: &str = "don'ts|donts|forbidden|prohibited|banned|disallowed|not allowed|not permitted|off limits|\
    off-limits|hands off|no-go|no-gos|no go|no gos|taboo|avoid|not to do|verboten|verbote|verbot|nicht erlaubt|\
    nicht gestattet|nicht zu tun|nicht will|nicht möchte|nicht sehen will|unerwünscht|tabu|finger weg|hände weg|\
    vermeide|vermeiden|interdit|interdits|interdite|interdites|interdiction|interdictions|pas autorisé|pas permis|\
    ne pas faire|ne faut pas faire|ne veux pas|éviter|évite|évitez|à proscrire|prohibido|prohibida|prohibidos|\
    prohibidas|prohibición|prohibiciones|no permitido|no permitidos|no hacer|no quiero|evita|evitar|evite";
/// The same in languages without spaces between words.
const CJK_FORBIDS: [&str; 15] = [
    "禁止", "严禁", "禁忌", "禁区", "不准", "不许", "不得", "不允许", "不可以", "不要做", "红线",
    "しないこと", "してはいけ", "だめなこと", "ＮＧ",
];
/// Words of a head that say no more than that rules follow.
const PLAIN_WORDS: &str = "house|coding|code|general|key|core|main|basic|standing|global|additional|other|more|new|\
    current|project|repo|repository|codebase|team|development|agent|agents|ai|style|my|our|your|the|these|\
    this|those|some|few|a|an|all|of|for|here|are|is|that|which|following|please|follow|stick|to|and|know|keep|in|mind|\
    things|always|important|i|you|we|have|want|need|should|must|allgemeine|unsere|meine|die|der|das|diese|dieses|\
    folgende|folgenden|hier|sind|für|bitte|beachte|projekt|einige|und|wichtige|nos|mes|les|des|ces|voici|suivantes|\
    suivants|à|respecter|de|du|ce|projet|quelques|générales|mis|nuestras|las|los|estas|siguientes|del|proyecto|este|\
    algunas|generales|aquí|están|son|por|favor|sigue";
/// The same in languages without spaces between words.
const CJK_PLAIN_WORDS: [&str; 25] = [
    "以下", "几条", "这些", "一些", "我们", "我", "团队", "的", "是", "请", "遵守", "本", "项目",
    "代码", "开发", "项", "項", "次", "この", "私", "プロジェクト", "ほしいこと", "こと", "の",
    "は",
];
/// A head without a colon has no more words than this.
const HEAD_WORDS: usize = 6;
/// Beginnings of lines that programs print, in lower case.
const LOG_STARTS: [&str; 17] = [
    "error:", "error[", "warning[", "debug:", "fatal:", "npm err", "traceback", "thread '",
    "file \"", "$ ", ">>> ", "@@ ", "diff --git", "--- a/", "+++ b/", "running `", "exit code",
];
/// Beginnings of lines that programs print and users write, in lower case.
const LABELS: [&str; 4] = ["warning:", "note:", "help:", "info:"];
/// Levels as a log writes them before a message. They are compared with case, because in lower case
/// they are ordinary words.
const LEVELS: [&str; 7] = [
    "ERROR", "WARN", "WARNING", "INFO", "DEBUG", "TRACE", "FATAL",
];

/// Returns the text with everything but the user's own words replaced by blanks of the same length.
/// Line breaks stay. If `project_only`, only project files count, which is right for messages that
/// no user wrote.
pub(super) fn own_words(text: &str, project_only: bool) -> OwnWords {
    let mut own = match project_only {
        true => OwnWords::of_project_files(text),
        false => OwnWords::with_project_files(text),
    };
    let mut page = BlankedText {
        text,
        bytes: own.text.into_bytes(),
    };
    let files = &own.project_files;
    page.lines(|at| files.iter().any(|file| file.contains(&at)));
    page.quotes();
    // Only whole characters are replaced, so the bytes are still UTF-8.
    own.text = String::from_utf8(page.bytes).unwrap_or_default();
    own
}

/// Whether a line announces rules, so that the items of the list below it are rules.
pub(super) fn announces_rules(line: &str) -> bool {
    let line = line.trim().trim_matches('*');
    if !(line.ends_with([':', '：']) || line.starts_with('#')) || line.len() >= 160 {
        return false;
    }
    let lower = line.to_lowercase();
    has(&lower, &ANNOUNCES_RULES) || has(&lower, &NAMES_RULES) || forbids(&lower)
}

/// Whether the head of a list has more than an adverb that a report may have, too: "It never worked on:".
pub(super) fn says_what_holds(head: &str) -> bool {
    const WANTS: &str = "want|möchte|veux|souhaite|quiero|deseo";
    let lower = head.to_lowercase();
    has(&lower, &NAMES_RULES) || forbids(&lower) || has_word(&spaced(&lower), WANTS)
}

/// Whether a short line is nothing but the name of what is forbidden.
fn forbids(lower: &str) -> bool {
    let words = spaced(lower);
    words.split_whitespace().count() <= HEAD_WORDS && has_word(&words, FORBIDS)
        || has(lower, &CJK_FORBIDS)
        || lower.trim_end_matches([':', '：']).trim() == "ng"
}

/// Whether the head of a list says no more than that the items are rules, as in "House rules:".
pub(super) fn is_name_of_rules(head: &str) -> bool {
    let lower = head.to_lowercase();
    let is_plain = |word: &str| match word.chars().all(|c| c < '\u{2000}') {
        true => PLAIN_WORDS.split('|').any(|plain| plain == word) || has(word, &NAMES_RULES),
        false => {
            let parts = NAMES_RULES.iter().chain(&CJK_PLAIN_WORDS);
            parts
                .fold(word.to_owned(), |rest, part| rest.replace(part, ""))
                .is_empty()
        }
    };
    has(&lower, &NAMES_RULES) && spaced(&lower).split_whitespace().all(is_plain) && !forbids(&lower)
}

/// Whether the item of a list is a line that a program printed, such as a place in a file.
pub(super) fn is_printed(item: &str) -> bool {
    let is_place = |word: &str| {
        let number = word.rsplit_once(':').map(|(_, number)| number);
        word.contains("::")
            || word.contains('.')
                && number.is_some_and(|number| number.starts_with(|c: char| c.is_ascii_digit()))
    };
    writer(item, &item.to_lowercase()) == Writer::Program || item.split_whitespace().any(is_place)
}

/// The words of a text, each with a space on both sides.
fn spaced(lower: &str) -> String {
    let lower = lower.replace('’', "'");
    let words = lower.split(|c: char| !c.is_alphanumeric() && !matches!(c, '\'' | '-'));
    let words: Vec<&str> = words
        .filter(|word| word.contains(char::is_alphanumeric))
        .collect();
    format!(" {} ", words.join(" "))
}

/// Whether a text of [`spaced`] words has one of a list with bars between them.
fn has_word(words: &str, list: &str) -> bool {
    let is_whole = |(at, part): (usize, &str)| {
        words[..at].ends_with(' ') && words[at + part.len()..].starts_with(' ')
    };
    list.split('|')
        .any(|part| words.match_indices(part).any(is_whole))
}

/// Whether a line without a colon names rules, which makes it the head of the list that follows it.
pub(super) fn names_rules(line: &str) -> bool {
    let lower = line.to_lowercase();
    let words: Vec<&str> = lower.split_whitespace().collect();
    let (Some(first), Some(last)) = (words.first(), words.last()) else {
        return false;
    };
    let is_sentence = lower.ends_with(['.', '!', '?', ',', ';', '。', '！', '？', '，', '；']);
    // "Fix the rules" is a request, and "Rules for this project" and "Our house rules" are heads.
    let is_head = has(first, &NAMES_RULES)
        || words.len() <= 3 && has(last, &NAMES_RULES) && !words.contains(&"the");
    words.len() <= HEAD_WORDS && is_head && !is_sentence
}

fn has(text: &str, words: &[&str]) -> bool {
    words.iter().any(|word| text.contains(word))
}

/// Whether the text before a colon asks to translate what follows it.
pub(super) fn asks_to_translate(lower: &str) -> bool {
    // The last word ends with the text.
    has(
        &format!("{} ", lower.trim_end_matches([':', '：'])),
        &TRANSLATES,
    )
}

/// Whether a line that ends with a colon announces text of somebody else.
fn announces_others(lower: &str, next: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || "'-_.".contains(c);
    let words = lower.split(|c: char| !is_word(c));
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let is_said = |word: &&str| SAYS.contains(word);
    if asks_to_translate(lower)
        || words.iter().any(is_said)
        || words.windows(2).any(|two| two == ["got", "this"])
    {
        return true;
    }
    let first = words.first().copied().unwrap_or_default();
    let names_source = words.iter().enumerate().any(|(at, word)| {
        let follows = words.get(at + 1);
        let ends = follows.is_none_or(|next| {
            AFTER_SOURCES.contains(next)
                || SOURCES.contains(next)
                || next.starts_with(|c: char| c.is_ascii_digit())
        });
        SOURCES.contains(word) && ends
    });
    let is_topic = TOPICS.contains(&first)
        // "In the guide:" may be about the guide as well as a quote from it.
        || first == "in" && super::directive::is_directive(next);
    if names_source && !is_topic {
        return true;
    }
    let head = lower.trim_end_matches([':', '：', ' ']);
    let is_cjk_topic = || {
        TOPICS.iter().any(|topic| lower.starts_with(topic)) && !first.is_ascii()
            || TOPIC_ENDS.iter().any(|end| head.ends_with(end))
    };
    // ログ is a part of ログイン.
    let is_whole = |(at, word): (usize, &str)| {
        let next = lower[at + word.len()..].chars().next();
        !next.is_some_and(|c| ('\u{30a1}'..='\u{30fe}').contains(&c))
    };
    let has_cjk_source = || {
        let mut words = CJK_SOURCES.iter();
        words.any(|word| lower.match_indices(word).any(is_whole))
    };
    !lower.is_ascii() && has_cjk_source() && !is_cjk_topic()
}

struct BlankedText<'t> {
    text: &'t str,
    bytes: Vec<u8>,
}

impl BlankedText<'_> {
    fn blank(&mut self, range: Range<usize>) {
        self.fill(range, b' ');
    }

    fn fill(&mut self, range: Range<usize>, with: u8) {
        for byte in &mut self.bytes[range] {
            if *byte != b'\n' {
                *byte = with;
            }
        }
    }

    /// Blanks code, block quotes, logs and announced text, line by line and paragraph by paragraph.
    fn lines(&mut self, is_in_file: impl Fn(usize) -> bool) {
        let text = self.text;
        let mut fence: Option<&str> = None;
        let mut is_declared = false;
        let mut is_foreign = false;
        let mut paragraph: Vec<(Range<usize>, Writer)> = Vec::new();
        let mut is_indented = false;
        let mut before_blank = true;
        let mut at = 0;
        while at < text.len() {
            let end = text[at..].find('\n').map_or(text.len(), |end| at + end + 1);
            let (range, line) = (at..end, &text[at..end]);
            let trimmed = line.trim();
            at = end;
            let mark = ["```", "~~~"]
                .into_iter()
                .find(|mark| trimmed.starts_with(mark));
            if let Some(open) = fence {
                // If a language follows the mark, it opens a block within the block and does not
                // close it.
                let closes = mark == Some(open) && trimmed.trim_matches(['`', '~']).is_empty();
                if !(is_declared && (closes || declared::is_declared(trimmed))) {
                    self.blank(range);
                }
                if closes {
                    fence = None;
                }
                continue;
            }
            if mark.is_some() {
                fence = mark;
                is_foreign = false;
                is_declared = declared::opens(trimmed);
                if !is_declared {
                    self.blank(range);
                }
                continue;
            }
            if trimmed.is_empty() {
                self.end_paragraph(&mut paragraph);
                // The announced text may follow after a blank line, and ends at the next one.
                is_foreign &= before_blank;
                before_blank = false;
                is_indented = false;
                continue;
            }
            let is_item = is_item(trimmed);
            let follows_blank = paragraph.is_empty();
            // As in Markdown, indented code begins after a blank line. Items may be indented as far
            // and are no code.
            let deep = line.starts_with("    ") || line.starts_with('\t');
            is_indented =
                deep && !is_item && (is_indented || follows_blank) && !is_in_file(range.start);
            if trimmed.starts_with('>') || is_indented || is_foreign {
                before_blank &= !is_foreign;
                self.blank(range);
                continue;
            }
            let lower = trimmed.to_lowercase();
            if lower.ends_with([':', '：']) && !announces_rules(&lower) && {
                let next = text[at..].lines().next().unwrap_or_default();
                announces_others(&lower, next)
            } {
                is_foreign = true;
                before_blank = true;
            }
            paragraph.push((range, writer(trimmed, &lower)));
        }
        self.end_paragraph(&mut paragraph);
    }

    /// Blanks a paragraph if half of it or more is log or code.
    fn end_paragraph(&mut self, paragraph: &mut Vec<(Range<usize>, Writer)>) {
        let count = |least| paragraph.iter().filter(|(_, line)| *line >= least).count();
        // A date or a label alone may be the user's. Next to lines of a log it is the log's.
        let has_log = count(Writer::Program) > 0 || count(Writer::Dated) > 1;
        let odd = match has_log {
            true => count(Writer::Labelled),
            false => 0,
        };
        // Many lines of a stack trace look like prose. If half of the paragraph is a log, the rest
        // of it is, too.
        let is_pasted = odd * 2 >= paragraph.len() && odd > 0;
        for (range, line) in paragraph.drain(..) {
            if is_pasted || has_log && line >= Writer::Labelled {
                self.blank(range);
            }
        }
    }

    /// Fills inline code and quotes with letters, so that no cue is found in them and no sentence
    /// ends in them. A quote does not go beyond its line.
    fn quotes(&mut self) {
        const PAIRS: [(char, char); 9] = [
            ('`', '`'),
            ('"', '"'),
            ('“', '”'),
            ('„', '“'),
            ('«', '»'),
            ('「', '」'),
            ('『', '』'),
            ('‘', '’'),
            ('\'', '\''),
        ];
        // The first bytes of the marks above. Few other characters begin with one of them.
        let may_open = |byte: &u8| matches!(byte, b'`' | b'"' | b'\'' | 0xc2 | 0xe2 | 0xe3);
        let text = self.text;
        let mut at = 0;
        while let Some(next) = text.as_bytes()[at..].iter().position(may_open) {
            at += next;
            let Some(open) = text[at..].chars().next() else {
                break;
            };
            let inside = at + open.len_utf8();
            let before = text[..at].chars().next_back();
            at = inside;
            let Some((_, close)) = PAIRS.iter().find(|(first, _)| *first == open) else {
                continue;
            };
            // An apostrophe inside a word is no quote.
            let is_letter = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
            let is_single = matches!(open, '\'' | '‘');
            if is_single && (is_letter(before) || !is_letter(text[inside..].chars().next())) {
                continue;
            }
            let most = text.floor_char_boundary(inside + QUOTE_BYTES);
            let line_end = text[inside..most]
                .find('\n')
                .map_or(most, |end| inside + end);
            let mut ends = text[inside..line_end].match_indices(*close);
            let end = ends.find_map(|(found, mark)| {
                let after = text[inside + found + mark.len()..].chars().next();
                (!is_single || !is_letter(after)).then_some(inside + found)
            });
            // German and English share a mark, which closes in one and opens in the other.
            let end = match (open, end) {
                ('„', None) => text[inside..line_end].find('”').map(|end| inside + end),
                (_, end) => end,
            };
            if let Some(end) = end {
                // A tag with the name of a file is blank already, and no word of its line.
                if self.bytes[inside..end].iter().any(|byte| *byte != b' ') {
                    self.fill(inside..end, b'x');
                }
                at = text[end..]
                    .chars()
                    .next()
                    .map_or(end, |mark| end + mark.len_utf8());
            }
        }
    }
}

/// Whether a message is the output of a program, though it came as a user's: most of its lines are, and
/// so are the first and the last, which would be a request about it otherwise.
pub(crate) fn is_output(text: &str) -> bool {
    const LEAST_LINES: usize = 3;
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    let is_printed = |line: &str| {
        let is_prompt = line.len() < 80 && !line.contains(' ') && line.ends_with(['$', '#', '%']);
        let is_table = line.contains("   ") && !is_item(line);
        is_prompt || is_table || writer(line, &line.to_lowercase()) >= Writer::Labelled
    };
    let printed = lines().filter(|line| is_printed(line)).count();
    lines().next().is_some_and(is_printed)
        && lines().next_back().is_some_and(is_printed)
        && lines().count() >= LEAST_LINES
        && printed * 2 > lines().count()
}

/// Whether a line is the item of a list.
pub(super) fn is_item(line: &str) -> bool {
    item(line).is_some()
}

/// The text of a list item without its mark.
pub(crate) fn item(line: &str) -> Option<&str> {
    /// Bullets that need no space after them, and are used for nothing else.
    const BULLETS: [char; 13] = [
        '•', '·', '・', '●', '○', '◦', '◆', '◇', '■', '□', '▪', '▸', '‣',
    ];
    let line = line.trim_start();
    if let Some(rest) = line.strip_prefix(BULLETS) {
        return Some(rest.trim());
    }
    let rest = line
        .strip_prefix(['-', '*', '–'])
        .or_else(|| numbered(line))?;
    let text = rest.trim_start();
    // `*bold*` and `-v` have no space after the mark, and are no items. A mark of Chinese or Japanese
    // needs none.
    let mark = line[..line.len() - rest.len()].chars().next_back();
    let is_wide = mark.is_some_and(|c| !c.is_ascii() && c != '–');
    (text.len() < rest.len() || is_wide).then_some(text.trim_end())
}

/// What follows the number of an item, as in `1.`, `(2)`, `a)`, `①`, `３．` or `四、`.
fn numbered(line: &str) -> Option<&str> {
    let circled = |c: char| ('①'..='⑳').contains(&c);
    if let Some(rest) = line.strip_prefix(circled) {
        return Some(rest);
    }
    let inner = line.strip_prefix(['(', '（']).unwrap_or(line);
    let is_digit = |c: &char| c.is_ascii_digit() || ('０'..='９').contains(c);
    let is_numeral = |c: &char| "一二三四五六七八九十".contains(*c);
    let count = |is: &dyn Fn(&char) -> bool| inner.chars().take_while(|c| is(c)).count();
    let (digits, numerals) = (count(&is_digit), count(&is_numeral));
    let number = digits.max(numerals);
    let is_letter = number == 0 && inner.starts_with(|c: char| c.is_ascii_lowercase());
    let mut rest = inner.chars();
    // If a line begins with a year, it is no item.
    if !is_letter && !(1..4).contains(&number) {
        return None;
    }
    rest.by_ref().take(number.max(1)).for_each(drop);
    let is_open = inner.len() < line.len();
    let marks: &[char] = match (is_open, is_letter, numerals > 0) {
        (true, ..) | (_, true, _) => &[')', '）'],
        (_, _, true) => &['、', '．', ')', '）'],
        _ => &['.', ')', '、', '．', '）'],
    };
    rest.as_str().strip_prefix(marks)
}

/// Who wrote a line, as far as the line tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Writer {
    Prose,
    /// It begins with a label such as `note:` or `[IMPORTANT]`.
    Labelled,
    /// It begins with a date, a time or a level, as the lines of a log do and those of a diary.
    Dated,
    /// It is log or code.
    Program,
}

fn writer(line: &str, lower: &str) -> Writer {
    let bytes = line.as_bytes();
    let digits = bytes.iter().take_while(|b| b.is_ascii_digit()).count();
    let is_date = digits == 4 && bytes.get(4) == Some(&b'-');
    let is_time = (is_date || digits == 2 && bytes.get(2) == Some(&b':'))
        && bytes.get(digits + 1).is_some_and(u8::is_ascii_digit);
    // `[INFO]` or `[12:00:01]`.
    let is_bracket = line.starts_with('[')
        && line[1..].starts_with(|c: char| c.is_ascii_digit() || c.is_ascii_uppercase());
    let marks = bytes.iter().filter(|byte| is_mark(**byte)).count();
    // Prose ends with a pair of brackets, too: "Always use tabs (not spaces)".
    let ends_as_code = line.ends_with(['{', '}', ';', '\\']) && marks >= 2
        || line.ends_with(')') && (marks >= 3 || marks == 2 && !line.contains(' '));
    let is_said = LOG_STARTS.iter().any(|start| lower.starts_with(start));
    let is_frame = lower.starts_with("at ") && line.ends_with(')');
    // If a list has plus signs, a space follows each of them.
    let is_diff = line.starts_with('+') && !line.starts_with("+ ") || line.starts_with("//");
    // A fifth of the line. Short lines count as ten bytes, or a pair of brackets would make code of
    // them.
    let is_code = ends_as_code || is_diff || marks * 5 > line.len().max(10);
    if is_said || is_frame || is_code {
        return Writer::Program;
    }
    let first = line.split([' ', ':', '\t']).next().unwrap_or_default();
    let is_level = LEVELS.contains(&first);
    if is_time || is_bracket || is_level {
        // A level in brackets, or a time of the day with seconds, is what a log writes.
        let mut words = line.split([' ', '\t']).take(4);
        let is_logged = words.any(|word| {
            let inner = word.trim_matches(|c: char| !c.is_alphanumeric());
            (is_bracket || word != first) && LEVELS.contains(&inner)
                || inner.bytes().filter(|b| *b == b':').count() >= 2
        });
        return match is_logged {
            true => Writer::Program,
            false if is_bracket => Writer::Labelled,
            false => Writer::Dated,
        };
    }
    match LABELS.iter().any(|label| lower.starts_with(label)) {
        true => Writer::Labelled,
        false => Writer::Prose,
    }
}

/// Whether a byte is a bracket, a semicolon or another mark that code has more of than prose.
fn is_mark(byte: u8) -> bool {
    // A set of bytes is tested at once. A slice would be searched, for each byte of each message.
    matches!(
        byte,
        b'{' | b'}' | b'(' | b')' | b';' | b'=' | b'<' | b'>' | b'[' | b']' | b'|' | b'\\'
    )
}
