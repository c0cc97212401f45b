//! Tells whether a sentence states a rule, in English, German, French, Spanish, Chinese or
//! Japanese, and in a few words of Korean.
//!
//! Most words that mark a rule occur in complaints and reports too: "it always fails". So a word
//! such as *always* counts only if the sentence tells somebody what to do: it begins the clause,
//! follows *please* or a modal verb, or the clause begins with an imperative. Phrases such as *from
//! now on* count anywhere. [`is_directive`] is the entry point, and the tables hold the words.

use super::patterns;

/// Whether a sentence states a rule. Quotes in it are expected to be blanked out.
pub(super) fn is_directive(sentence: &str) -> bool {
    let lower = sentence.to_lowercase().replace('’', "'");
    let lower = lower.trim();
    let is_question = lower.ends_with(['?', '？']);
    // Japanese has Han characters as well, so kana are looked for first.
    if lower.chars().any(is_kana) {
        return !is_question && japanese(lower);
    }
    // A single one may be a name or a unit in a sentence of another language.
    let han = lower.chars().filter(|c| is_han(*c)).count();
    if han >= 2 {
        return !is_question && chinese(lower);
    }
    if lower
        .chars()
        .any(|c| ('\u{ac00}'..='\u{d7af}').contains(&c))
    {
        return !is_question && has(lower, &["하지 마", "반드시", "항상", "절대"]);
    }
    let flat = flat(lower);
    // "Never push, ok?" is a rule, and "do you always push?" is none.
    if is_question
        && !starts(
            &flat,
            &["never ", "always ", "please never ", "from now on "],
        )
    {
        return false;
    }
    // *No* is a word of Spanish, too, and stands before a verb there.
    let is_plural = flat
        .split_whitespace()
        .any(|word| word.ends_with('s') || word.ends_with("ing"));
    if flat.is_ascii() && is_plural && bans(&flat, &EN_BAN) {
        return true;
    }
    /// The common words of a language, and whether a sentence of it states a rule.
    type Tongue = (&'static [&'static str], fn(&str) -> bool);
    let tongues: [Tongue; 4] = [
        (&EN_COMMON, english),
        (&DE_COMMON, german),
        (&FR_COMMON, french),
        (&ES_COMMON, spanish),
    ];
    let spoken: Vec<&str> = flat.split_whitespace().collect();
    let count = |words: &[&str]| spoken.iter().filter(|word| words.contains(*word)).count();
    let counts = tongues.map(|(words, _)| count(words));
    let most = counts.iter().max().copied().unwrap_or_default();
    // A short sentence often has as many common words of two languages, or none of any. Then each
    // of them may say that it is a rule.
    let likely = tongues
        .iter()
        .zip(counts)
        .filter(|(_, count)| *count == most);
    likely
        .into_iter()
        .any(|((_, states_rule), _)| states_rule(&flat))
}

/// Whether a sentence forbids something rather than demanding it.
pub(super) fn is_negative(sentence: &str) -> bool {
    const CJK: [&str; 17] = [
        "不",
        "别",
        "禁止",
        "勿",
        "ない",
        "ません",
        "するな",
        "마",
        "避け",
        "禁",
        "なし",
        "ぬ",
        "杜绝",
        "無",
        "避免",
        "停止",
        "取消",
    ];
    let lower = sentence.to_lowercase().replace('’', "'");
    let flat = flat(&lower);
    let latin = [
        "never",
        "not",
        "don't",
        "dont",
        "no",
        "avoid",
        "mustn't",
        "shouldn't",
        "cannot",
        "can't",
        "without",
        "stop",
        "nie",
        "niemals",
        "nicht",
        "kein",
        "keine",
        "keinen",
        "keinem",
        "vermeide",
        "jamais",
        "pas",
        "évite",
        "évitez",
        "sans",
        "interdit",
        "nunca",
        "jamás",
        "evita",
        "sin",
        "prohibido",
        "forbidden",
        "verboten",
    ];
    latin.iter().any(|word| flat.contains(&format!(" {word} "))) || has(sentence, &CJK)
}

/// Whether a sentence says that it changes what held before.
pub(super) fn changes_course(sentence: &str) -> bool {
    let lower = sentence.to_lowercase().replace('’', "'");
    let flat = flat(&lower);
    has(
        &flat,
        &[
            " from now on ",
            " instead ",
            " going forward ",
            " changed my mind ",
            " scratch that ",
            " anymore ",
            " no longer ",
            " may now ",
            " can now ",
            " again ",
            " ab jetzt ",
            " ab sofort ",
            " von jetzt an ",
            " doch ",
            " stattdessen ",
            " künftig ",
            " désormais ",
            " dorénavant ",
            " plutôt ",
            " à partir de maintenant ",
            " finalement ",
            " a partir de ahora ",
            " de ahora en adelante ",
            " ahora ",
            " mejor ",
            " actually ",
        ],
    ) || has(
        &lower,
        &[
            "从现在",
            "今后",
            "改为",
            "改成",
            "改用",
            "以后",
            "不再",
            "今後",
            "これから",
            "やっぱり",
            "やはり",
            "代わりに",
        ],
    )
}

/// Common words of English. The language whose words occur most often in a sentence is the one that
/// it is read in, so a word may be in the list of several languages.
const EN_COMMON: [&str; 24] = [
    "the", "to", "and", "is", "of", "in", "it", "you", "for", "not", "do", "with", "on", "are",
    "please", "use", "never", "always", "that", "before", "don't", "without", "make", "only",
];
const DE_COMMON: [&str; 33] = [
    "der", "die", "das", "und", "nicht", "ist", "ein", "eine", "den", "dem", "mit", "auf", "für",
    "bitte", "nie", "niemals", "immer", "nur", "im", "ohne", "vor", "du", "kein", "keine", "zu",
    "jede", "jeder", "jedes", "sind", "ab", "in", "es", "bevor",
];
const FR_COMMON: [&str; 29] = [
    "le",
    "la",
    "les",
    "des",
    "et",
    "est",
    "pas",
    "un",
    "une",
    "que",
    "pour",
    "dans",
    "sur",
    "ne",
    "jamais",
    "toujours",
    "du",
    "en",
    "au",
    "avant",
    "sans",
    "il",
    "chaque",
    "tous",
    "toutes",
    "uniquement",
    "de",
    "à",
    "ce",
];
const ES_COMMON: [&str; 26] = [
    "el", "la", "los", "las", "y", "es", "de", "que", "en", "una", "para", "por", "con", "sin",
    "nunca", "siempre", "del", "no", "al", "antes", "cada", "todos", "todas", "solo", "sólo", "lo",
];

/// Imperatives that a clause of a rule begins with.
const IMPERATIVES: [&str; 62] = [
    "use", "run", "write", "add", "keep", "put", "commit", "push", "format", "name", "test",
    "check", "call", "ask", "return", "log", "prefer", "follow", "deploy", "work", "answer",
    "reply", "speak", "import", "install", "read", "edit", "change", "touch", "delete", "remove",
    "merge", "create", "leave", "stick", "build", "document", "review", "include", "handle",
    "wrap", "store", "pin", "limit", "tag", "sign", "rebase", "open", "show", "report", "respond",
    "explain", "target", "do", "make", "set", "start", "stop", "wait", "treat", "fetch", "send",
];
/// Phrases that make a rule of a sentence if they occur anywhere in it.
const EN_PHRASES: [&str; 66] = [
    " from now on ",
    " from here on ",
    " from this point on ",
    " going forward ",
    " henceforth ",
    " under no circumstances ",
    " on no account ",
    " in no case ",
    " no matter what ",
    " don't ever ",
    " do not ever ",
    " must not ",
    " mustn't ",
    " must never ",
    " must always ",
    " must only ",
    " should never ",
    " should always ",
    " should only ",
    " shall not ",
    " shall never ",
    " may never ",
    " may only ",
    " only ever ",
    " is forbidden ",
    " are forbidden ",
    " is not allowed ",
    " are not allowed ",
    " isn't allowed ",
    " aren't allowed ",
    " off limits ",
    " off-limits ",
    " is taboo ",
    " is mandatory ",
    " are mandatory ",
    " is prohibited ",
    " without asking ",
    " without my ",
    " without approval ",
    " without permission ",
    " ask me before ",
    " ask me first ",
    " ask first ",
    " ask before ",
    " check with me ",
    " wait for my ",
    " unless i say ",
    " unless i ask ",
    " unless i tell ",
    " unless i explicitly ",
    " unless asked ",
    " unless told ",
    " hands off ",
    " you are not to ",
    " you're not to ",
    " at all times ",
    " every time you ",
    " each time you ",
    " whenever you ",
    " as a rule ",
    " please don't ",
    " please do not ",
    " no longer need to ",
    " no longer have to ",
    " i prefer ",
    " you cannot ",
];
/// Phrases that begin a clause of a rule.
const EN_STARTS: [&str; 27] = [
    "make sure ",
    "always make sure ",
    "avoid ",
    "prefer ",
    "remember to ",
    "remember that ",
    "refrain from ",
    "stick to ",
    "stick with ",
    "ensure that every ",
    "ensure every ",
    "ensure that all ",
    "ensure all ",
    "ensure that no ",
    "ensure that each ",
    "be sure to ",
    "see to it ",
    "don't forget ",
    "no more than ",
    "the rule is ",
    "new rule ",
    "rule ",
    "house rule ",
    "you may now ",
    "it is fine to ",
    "before every ",
    "before each ",
];
/// Words after which somebody else's words follow. If a user passes them on, they are no rule of
/// the user's.
const EN_REPORTED: [&str; 14] = [
    " says ",
    " said ",
    " told me ",
    " told us ",
    " claims ",
    " according to ",
    " wrote ",
    " complains ",
    " warns ",
    " prints ",
    " suggests ",
    " recommends ",
    " reads ",
    " say ",
];

fn english(flat: &str) -> bool {
    // If users repeat what they said themselves, they still mean it.
    let own_report = has(
        flat,
        &[
            " i said ",
            " i say ",
            " i told ",
            " i wrote ",
            " unless i ",
            " i've said ",
            " i already said ",
        ],
    );
    if !own_report && let Some(at) = EN_REPORTED.iter().filter_map(|word| flat.find(word)).min() {
        // What follows is somebody else's rule. A rule before it stays one.
        return english(&format!("{} | ", &flat[..at]));
    }
    if has(flat, &EN_PHRASES) || clauses(flat).any(|clause| begins(clause, &EN_STARTS)) {
        return true;
    }
    // "Use spaces, not tabs."
    let chooses = starts(flat, &["use ", "please use "]) && flat.contains("| not ");
    chooses || clauses(flat).any(english_clause) || patterns::ENGLISH.is_match(flat)
}

fn english_clause(clause: &str) -> bool {
    // What may stand before *never* and *always* in an order. After another word, such as a noun,
    // the clause reports: "the build never finishes".
    const BEFORE: [&str; 24] = [
        "", "please", "must", "should", "shall", "may", "can", "will", "would", "you", "and",
        "but", "or", "so", "also", "to", "we", "then", "ok", "okay", "just", "be", "that", "yes",
    ];
    // What follows them in a report or in an idiom: "never mind", "never worked".
    const AFTER_NOT: [&str; 25] = [
        "mind", "seen", "worked", "happened", "fails", "failed", "works", "been", "had", "got",
        "heard", "crashes", "returns", "forget", "end", "was", "is", "has", "ends", "comes", "did",
        "used", "happens", "a", "the",
    ];
    // "Don't worry" and "don't know" forbid nothing that an agent would do.
    const DONT_AFTER: [&str; 30] = [
        "worry",
        "know",
        "think",
        "mind",
        "care",
        "see",
        "understand",
        "remember",
        "get",
        "have",
        "believe",
        "want",
        "hesitate",
        "you",
        "we",
        "they",
        "i",
        "need",
        "exist",
        "work",
        "match",
        "seem",
        "like",
        "expect",
        "quite",
        "fully",
        "really",
        "yet",
        "panic",
        "recall",
    ];
    // "Only the tests in src fail" is a report, and "Only use pnpm" is a rule.
    const ONLY_NOT: [&str; 28] = [
        "the", "a", "an", "one", "two", "three", "this", "that", "these", "those", "some", "in",
        "on", "at", "for", "after", "then", "if", "when", "because", "as", "my", "your", "our",
        "now", "to", "fails", "works",
    ];
    const SUBJECTS: [&str; 14] = [
        "i",
        "it",
        "that",
        "this",
        "there",
        "something",
        "he",
        "she",
        "they",
        "which",
        "somebody",
        "someone",
        "what",
        "a",
    ];
    let words: Vec<&str> = clause.split_whitespace().collect();
    let fillers = [
        "please", "and", "but", "so", "then", "also", "ok", "okay", "just", "or", "yes",
    ];
    let lead = words
        .iter()
        .take_while(|word| fillers.contains(word))
        .count();
    let first = words.get(lead).copied().unwrap_or_default();
    let is_imperative = IMPERATIVES.contains(&first);
    let word = |at: usize| words.get(at).copied().unwrap_or_default();
    let before = |at: usize| at.checked_sub(1).map_or("", word);
    for (at, this) in words.iter().enumerate() {
        let (previous, next) = (before(at), word(at + 1));
        let states_rule = match *this {
            "never" | "always" => {
                let seems = ["seems", "seem", "appears", "tends"]
                    .contains(&at.checked_sub(2).map_or("", word));
                (BEFORE.contains(&previous) || is_imperative)
                    && !(AFTER_NOT.contains(&next) || is_past(next))
                    && !seems
            }
            "don't" | "dont" => at == lead && !DONT_AFTER.contains(&next) && !next.is_empty(),
            "do" => {
                next == "not"
                    && at == lead
                    && !DONT_AFTER.contains(&word(at + 2))
                    && !word(at + 2).is_empty()
            }
            "must" => {
                // "It must be the cache" is a guess. "It must be sorted" is a rule.
                let is_guess = SUBJECTS.contains(&previous)
                    && (next != "be"
                        || [
                            "the",
                            "a",
                            "an",
                            "some",
                            "something",
                            "because",
                            "that",
                            "in",
                            "on",
                            "from",
                            "due",
                        ]
                        .contains(&word(at + 2)));
                let is_guess = is_guess || next == "have" && is_past(word(at + 2));
                !previous.is_empty() && !is_guess && !["a", "i", "the"].contains(&previous)
            }
            "only" => {
                let modal = ["must", "may", "should", "shall"].contains(&previous);
                modal
                    || at == lead && !ONLY_NOT.contains(&next) && !next.is_empty()
                    || is_imperative
            }
            "every" | "each" | "all" | "any" | "no" | "nothing" | "nobody" if at == lead => {
                // "All tests pass" is a report. "All tests must pass" is a rule.
                let rest = &words[at + 1..];
                rest.iter()
                    .any(|word| ["must", "should", "shall", "gets", "needs", "may"].contains(word))
                    || rest.windows(2).any(|two| {
                        ["has", "have", "needs", "need", "is", "are"].contains(&two[0])
                            && two[1] == "to"
                    })
            }
            // "Error messages should be in English." With an article it is about one thing.
            "should" | "shouldn't" => {
                (1..=4).contains(&at)
                    && previous.ends_with('s')
                    && !(SUBJECTS.contains(&first) || first.ends_with("ing") || next == "have")
                    && !["the", "these", "those", "yes", "always", "this"].contains(&first)
            }
            "instead" => is_imperative && next == "of",
            "rather" => is_imperative && next == "than",
            "alone" | "untouched" => first == "leave",
            _ => false,
        };
        if states_rule {
            return true;
        }
    }
    false
}

/// Whether a word is a past participle, by its ending or because it is a common one.
fn is_past(word: &str) -> bool {
    let is_regular = word.ends_with("ed") && !word.ends_with("eed");
    is_regular
        || [
            "been", "gone", "had", "got", "lost", "done", "left", "broken",
        ]
        .contains(&word)
}

/// How a language says that there is to be none of a thing.
struct Ban {
    /// What such a sentence begins with.
    starts: &'static [&'static str],
    /// Words that make a report or an idiom of it: "no errors found", "no idea".
    not_in: &'static [&'static str],
}

const EN_BAN: Ban = Ban {
    starts: &["no "],
    not_in: &[
        "idea",
        "problem",
        "problems",
        "worries",
        "need",
        "more",
        "luck",
        "rush",
        "doubt",
        "thanks",
        "clue",
        "error",
        "errors",
        "change",
        "changes",
        "one",
        "way",
        "other",
        "matter",
        "further",
        "longer",
        "result",
        "results",
        "output",
        "response",
        "difference",
        "question",
        "questions",
        "comment",
        "that",
        "this",
        "it",
        "i",
        "you",
        "we",
        "not",
        "is",
        "was",
        "are",
        "were",
        "has",
        "have",
        "had",
        "does",
        "did",
        "do",
        "works",
        "found",
        "yet",
        "left",
        "wrong",
        "such",
        "file",
        "to",
        "will",
        "can",
        "could",
        "but",
        "preference",
        "hurry",
        "wonder",
        "regrets",
        "flaws",
        "exceptions",
        "exception",
        "there",
        "here",
        "then",
        "needed",
        "me",
        "se",
        "lo",
        "la",
        "reason",
    ],
};
const DE_BAN: Ban = Ban {
    starts: &["keine ", "kein ", "keinerlei "],
    not_in: &[
        "ahnung",
        "ausgabe",
        "zeit",
        "lust",
        "sorge",
        "sorgen",
        "problem",
        "probleme",
        "änderung",
        "änderungen",
        "fehler",
        "ist",
        "sind",
        "war",
        "waren",
        "hat",
        "haben",
        "gibt",
        "geht",
        "funktioniert",
        "gefunden",
        "mehr",
        "wunder",
        "antwort",
        "ergebnis",
        "unterschied",
        "idee",
        "frage",
    ],
};
const FR_BAN: Ban = Ban {
    starts: &["aucun ", "aucune ", "pas de ", "pas d'"],
    not_in: &[
        "idée",
        "problème",
        "problèmes",
        "souci",
        "soucis",
        "changement",
        "erreur",
        "erreurs",
        "doute",
        "est",
        "sont",
        "a",
        "ont",
        "était",
        "ne",
        "réponse",
        "résultat",
        "panique",
        "quoi",
        "chance",
    ],
};
const ES_BAN: Ban = Ban {
    starts: &["nada de ", "ningún ", "ninguna ", "sin "],
    not_in: &[
        "idea",
        "problema",
        "problemas",
        "duda",
        "error",
        "errores",
        "cambio",
        "cambios",
        "es",
        "son",
        "ha",
        "han",
        "hay",
        "está",
        "están",
        "fue",
        "embargo",
        "eso",
        "respuesta",
        "resultado",
        "prisa",
    ],
};

/// Whether a sentence is a ban: "No new dependencies, please." It has no verb, and nothing else.
fn bans(flat: &str, ban: &Ban) -> bool {
    const BESIDE: [&str; 8] = [
        "please",
        "thanks",
        "absolutely",
        "bitte",
        "danke",
        "merci",
        "s'il te plaît",
        "por favor",
    ];
    let mut has_ban = false;
    clauses(flat).all(|clause| {
        let bare = BESIDE.iter().find_map(|word| clause.strip_prefix(word));
        let clause = bare.unwrap_or(clause).trim();
        let mut words = clause.split(' ');
        let is_ban = starts(clause, ban.starts)
            && words.clone().count() <= 7
            && !words.any(|word| ban.not_in.contains(&word));
        has_ban |= is_ban;
        is_ban || clause.is_empty()
    }) && has_ban
}

/// The words of a language whose adverbs of rules occur in reports too.
struct Tongue {
    phrases: &'static [&'static str],
    /// Words that begin a clause of a rule.
    starts: &'static [&'static str],
    /// Words such as *always*, which count in an order and not in a report.
    adverbs: &'static [&'static str],
    /// Verbs such as *must*. If a sentence has one, an adverb counts wherever it stands.
    modals: &'static [&'static str],
    /// Words such as *it* or *here*. If a clause begins with one, it is a report, unless the
    /// sentence has a modal verb.
    not_first: &'static [&'static str],
    /// Verbs such as *fails*. If a clause has one, it is a report.
    reports: &'static [&'static str],
    /// Words that are passed over at the beginning of a clause, such as *and*.
    fillers: &'static [&'static str],
}

impl Tongue {
    /// Whether a sentence states a rule: it has a phrase of a rule, a clause begins like one, or a
    /// clause has an adverb of rules and is an order. It is an order if the sentence has a modal
    /// verb, or if its first word is such an adverb or an imperative, which `is_imperative` tells.
    fn states_rule(&self, flat: &str, is_imperative: fn(&str) -> bool) -> bool {
        if has(flat, self.phrases) {
            return true;
        }
        // The verb may be in another clause than the adverb, so it is looked for in the whole
        // sentence.
        let has_modal = self.modals.iter().any(|modal| flat.contains(modal));
        clauses(flat).any(|clause| {
            if begins(clause, self.starts) {
                return true;
            }
            let padded = format!(" {clause} ");
            let words: Vec<&str> = clause.split_whitespace().collect();
            let lead = words
                .iter()
                .take_while(|word| self.fillers.contains(word))
                .count();
            let first = words.get(lead).copied().unwrap_or_default();
            if has(&padded, self.reports) || !has(&padded, self.adverbs) {
                return false;
            }
            let is_order = has(&format!(" {first} "), self.adverbs) || is_imperative(first);
            has_modal || is_order && !self.not_first.contains(&first)
        })
    }
}

const GERMAN: Tongue = Tongue {
    phrases: &[
        " auf keinen fall ",
        " unter keinen umständen ",
        " ab jetzt ",
        " ab sofort ",
        " von jetzt an ",
        " von nun an ",
        " künftig ",
        " in zukunft ",
        " darf nicht ",
        " dürfen nicht ",
        " darf nie ",
        " darf niemals ",
        " darf nur ",
        " dürfen nur ",
        " darf kein ",
        " darf keine ",
        " dürfen keine ",
        " dürfen nie ",
        " nicht ohne ",
        " ohne meine ",
        " ohne zu fragen ",
        " ohne rückfrage ",
        " ist verboten ",
        " sind verboten ",
        " ist tabu ",
        " sind tabu ",
        " nicht erlaubt ",
        " finger weg ",
        " bitte nicht ",
        " bitte kein ",
        " bitte keine ",
        " bitte nie ",
        " bitte niemals ",
        " bitte immer ",
        " bitte nur ",
        " frag mich ",
        " frage mich ",
        " es sei denn ",
        " merk dir ",
        " denk daran ",
        " denke daran ",
        " grundsätzlich ",
        " ausschließlich ",
        " in jedem fall ",
        " soll nie ",
        " sollen nie ",
        " soll immer ",
        " sollst nie ",
    ],
    starts: &[
        "stelle sicher ",
        "stell sicher ",
        "stellen sie sicher ",
        "achte darauf ",
        "achte immer ",
        "achten sie darauf ",
        "sorge dafür ",
        "vermeide ",
        "vermeiden sie ",
        "bevorzuge ",
        "vergiss nicht ",
        "nie wieder ",
        "regel ",
    ],
    adverbs: &[
        " nie ",
        " niemals ",
        " immer ",
        " nur ",
        " nicht ",
        " kein ",
        " keine ",
        " keinen ",
        " keinem ",
        " keinerlei ",
        " stets ",
        " jedes mal ",
    ],
    modals: &[
        " muss ",
        " müssen ",
        " darf ",
        " dürfen ",
        " soll ",
        " sollen ",
        " sollte ",
        " sollten ",
        " musst ",
        " darfst ",
        " sollst ",
    ],
    not_first: &[
        "ich", "er", "es", "das", "der", "die", "dieser", "diese", "dieses", "sie", "hier", "da",
        "seit", "gestern", "heute", "bisher", "leider", "warum", "wieso", "weil", "ein", "eine",
        "meine", "unsere", "deine", "habe", "hätte", "wäre", "wurde", "konnte", "könnte", "würde",
        "alle", "beide", "welche", "keine", "manche", "viele",
    ],
    reports: &[
        " fehl ",
        " funktioniert ",
        " klappt ",
        " abgestürzt ",
        " hängt ",
        " gefunden ",
        " gesehen ",
        " kaputt ",
        " fehlschlägt ",
    ],
    fillers: &["bitte", "und", "dann", "aber", "also", "ok", "oder"],
};

fn german(flat: &str) -> bool {
    // "Jede Funktion muss …" is a rule without an adverb.
    let all = ["jede ", "jeder ", "jedes ", "alle ", "sämtliche "];
    let is_for_all = clauses(flat).any(|clause| begins(clause, &all)) && has(flat, GERMAN.modals);
    is_for_all
        || bans(flat, &DE_BAN)
        || patterns::GERMAN.is_match(flat)
        || GERMAN.states_rule(flat, |first| {
            const SHORT: [&str; 38] = [
                "schreib",
                "lass",
                "mach",
                "führ",
                "lösch",
                "prüf",
                "nutz",
                "halt",
                "nimm",
                "frag",
                "komm",
                "geh",
                "sag",
                "benutz",
                "verwend",
                "commit",
                "push",
                "test",
                "gib",
                "lies",
                "setz",
                "stell",
                "füg",
                "bau",
                "leg",
                "ruf",
                "zeig",
                "start",
                "fass",
                "änder",
                "wir",
                "pack",
                "installier",
                "importier",
                "merge",
                "man",
                "committe",
                "pushe",
            ];
            // Imperatives end in -e, or in -en if the user is polite. In speech the -e is dropped,
            // so the common ones are listed.
            SHORT.contains(&first)
                || first.len() > 3 && first.ends_with('e')
                || first.len() > 4 && first.ends_with("en")
        })
}

const FRENCH: Tongue = Tongue {
    phrases: &[
        " il ne faut ",
        " désormais ",
        " dorénavant ",
        " à partir de maintenant ",
        " dès maintenant ",
        " à l'avenir ",
        " en aucun cas ",
        " sous aucun prétexte ",
        " sans mon ",
        " sans me demander ",
        " sans demander ",
        " sauf si ",
        " interdit de ",
        " est interdit ",
        " sont interdits ",
        " est obligatoire ",
        " s'il te plaît ne ",
        " demande-moi ",
        " demandez-moi ",
        " doit toujours ",
        " doivent toujours ",
        " ne doit ",
        " ne doivent ",
        " ne dois ",
        " ne devez ",
        " il faut toujours ",
        " doit jamais ",
        " je préfère ",
    ],
    starts: &[
        "assure-toi ",
        "assurez-vous ",
        "veille à ",
        "veillez à ",
        "évite ",
        "évitez ",
        "préfère ",
        "préférez ",
        "souviens-toi ",
        "rappelle-toi ",
        "interdiction ",
        "règle ",
    ],
    adverbs: &[
        " jamais ",
        " toujours ",
        " uniquement ",
        " seulement ",
        " exclusivement ",
        " systématiquement ",
    ],
    modals: &[
        " doit ",
        " doivent ",
        " dois ",
        " devez ",
        " faut ",
        " devra ",
        " devront ",
    ],
    not_first: &[
        "je", "ça", "cela", "il", "elle", "on", "le", "la", "les", "ce", "cette", "ces", "un",
        "une", "mon", "ma", "pourquoi", "hier", "ils", "nous", "tu", "depuis",
    ],
    reports: &[
        " échoue ",
        " plante ",
        " marche ",
        " fonctionne ",
        " marché ",
        " fonctionné ",
        " échouent ",
    ],
    fillers: &["et", "mais", "puis", "merci", "de", "alors", "donc", "ok"],
};

fn french(flat: &str) -> bool {
    // An imperative has no subject, so if it is negative, its clause begins with *ne*.
    let negative = clauses(flat).any(|clause| {
        let words: Vec<&str> = clause.split_whitespace().collect();
        let lead = words
            .iter()
            .take_while(|word| FRENCH.fillers.contains(word))
            .count();
        let first = words.get(lead).copied().unwrap_or_default();
        let joined = first.starts_with("n'")
            && !["n'importe", "n'est", "n'a", "n'ai", "n'y"].contains(&first);
        joined || first == "ne" && !matches!(words.get(lead + 1), Some(&"sais" | &"marche"))
    });
    let all = ["chaque ", "tous ", "toutes ", "tout ", "toute "];
    let is_for_all = clauses(flat).any(|clause| begins(clause, &all)) && has(flat, FRENCH.modals);
    // If the first word is joined to an article or a pronoun, it is a subject and the clause a
    // report.
    let not_le = |first: &str| {
        !first.is_empty()
            && !["l'", "j'", "c'", "d'"]
                .iter()
                .any(|joined| first.starts_with(joined))
    };
    negative
        || is_for_all
        || bans(flat, &FR_BAN)
        || patterns::FRENCH.is_match(flat)
        || FRENCH.states_rule(flat, not_le)
}

const SPANISH: Tongue = Tongue {
    phrases: &[
        " a partir de ahora ",
        " de ahora en adelante ",
        " desde ahora ",
        " en adelante ",
        " bajo ningún concepto ",
        " bajo ninguna circunstancia ",
        " en ningún caso ",
        " prohibido ",
        " es obligatorio ",
        " sin mi ",
        " sin preguntar ",
        " sin preguntarme ",
        " a menos que ",
        " salvo que ",
        " excepto si ",
        " pregúntame ",
        " no se debe ",
        " no debes ",
        " no puedes ",
        " no se puede tocar ",
        " no debe ",
        " no deben ",
        " debe siempre ",
        " nunca debe ",
        " siempre debe ",
        " por favor no ",
        " prefiero ",
    ],
    starts: &[
        "asegúrate ",
        "asegúrese ",
        "recuerda ",
        "evita ",
        "evite ",
        "prefiere ",
        "no olvides ",
        "ni se te ocurra ",
        "regla ",
    ],
    adverbs: &[
        " nunca ",
        " jamás ",
        " siempre ",
        " solo ",
        " sólo ",
        " solamente ",
        " únicamente ",
    ],
    modals: &[
        " debe ",
        " deben ",
        " debes ",
        " tiene que ",
        " tienen que ",
        " tienes que ",
        " hay que ",
    ],
    not_first: &[
        "yo", "eso", "esto", "él", "ella", "el", "la", "los", "las", "un", "una", "mi", "por",
        "ayer", "se", "lo", "este", "esta", "he", "ha", "casi",
    ],
    reports: &[
        " falla ",
        " fallan ",
        " funciona ",
        " funcionó ",
        " rompe ",
        " arranca ",
        " ha ",
        " he ",
        " había ",
    ],
    fillers: &["y", "pero", "luego", "entonces", "ok", "favor"],
};

fn spanish(flat: &str) -> bool {
    // A negative imperative is *no* and a subjunctive, which ends in -es or -as if the user says
    // *tú*. If a common verb ends so in the indicative, too, it is listed: "no sabes" is a report.
    let negative = clauses(flat).any(|clause| {
        let words: Vec<&str> = clause.split_whitespace().collect();
        let at = words
            .iter()
            .take_while(|word| SPANISH.fillers.contains(word))
            .count();
        let verb = words.get(at + 1).copied().unwrap_or_default();
        let is_known = [
            "eres", "es", "vas", "sabes", "quieres", "tienes", "puedes", "las", "has", "más",
            "estás", "existes",
        ]
        .contains(&verb);
        let object = ["me", "lo", "la", "los", "te", "se"].contains(&verb);
        let verb = if object {
            words.get(at + 2).copied().unwrap_or_default()
        } else {
            verb
        };
        words.get(at) == Some(&"no")
            && !is_known
            && verb.len() > 3
            && (verb.ends_with("es") || verb.ends_with("as"))
    });
    let all = ["cada ", "todos ", "todas ", "todo ", "toda "];
    let is_for_all = clauses(flat).any(|clause| begins(clause, &all)) && has(flat, SPANISH.modals);
    negative
        || is_for_all
        || bans(flat, &ES_BAN)
        || patterns::SPANISH.is_match(flat)
        || SPANISH.states_rule(flat, |first| !first.is_empty())
}

fn chinese(text: &str) -> bool {
    const STRONG: [&str; 52] = [
        "不要",
        "必须",
        "务必",
        "禁止",
        "不准",
        "只能",
        "尽量",
        "记住",
        "永远不",
        "绝不",
        "绝对不",
        "决不",
        "一律",
        "不得",
        "不许",
        "不允许",
        "严禁",
        "切勿",
        "请勿",
        "只用",
        "只使用",
        "只可以",
        "只准",
        "只允许",
        "从现在起",
        "从现在开始",
        "从今往后",
        "从今以后",
        "今后",
        "往后",
        "一定要",
        "除非",
        "未经",
        "先问我",
        "先征得",
        "经我同意",
        "避免",
        "优先",
        "统一用",
        "统一使用",
        "请始终",
        "请总是",
        "请永远",
        "请确保",
        "每次都",
        "都要",
        "都得",
        "都必须",
        "不可以",
        "不应",
        "永远用",
        "永远要",
    ];
    const WEAK: [&str; 7] = ["总是", "始终", "不能", "永远", "确保", "不可", "从不"];
    const REPORTS: [&str; 21] = [
        "失败",
        "报错",
        "出错",
        "超时",
        "崩溃",
        "返回",
        "挂掉",
        "卡住",
        "提示",
        "运行了",
        "启动",
        "工作了",
        "编译",
        "打开",
        "登录",
        "访问",
        "连接",
        "正常",
        "不了",
        "成功",
        "为什么",
    ];
    const STARTS: [&str; 7] = ["以后", "别", "勿", "不用", "只在", "先", "每个"];
    let reported = ["说：", "写道", "提示说", "文档说", "日志说"];
    if has(text, &reported) && !has(text, &["我说", "规则"]) {
        return false;
    }
    let starts_rule = text
        .split(['，', ',', '；', '：', '。', ' '])
        .any(|clause| {
            let clause = clause.trim_start_matches(['请', '并', '但', '就', '也', '那']);
            match STARTS.iter().find(|start| clause.starts_with(**start)) {
                // 别 forbids, but it also begins the words for other, other people, alias and
                // elsewhere.
                Some(&"别") => !["别的", "别人", "别名", "别处"]
                    .iter()
                    .any(|word| clause.starts_with(word)),
                // "First this, then that" is a task. It is a rule if it holds each time.
                Some(&"先") => clause.contains("再") && has(text, &["每次", "之前"]),
                Some(&"每个") => has(clause, &["要", "必须", "得", "应"]),
                // This means that something is not needed. It forbids nothing.
                Some(&"不用") => false,
                Some(&"只在") => true,
                Some(_) => true,
                None => false,
            }
        });
    has(text, &STRONG)
        || starts_rule
        || patterns::CHINESE.is_match(text)
        || has(text, &WEAK) && !has(text, &REPORTS)
}

fn japanese(text: &str) -> bool {
    const STRONG: [&str; 42] = [
        "してはいけ",
        "てはいけません",
        "しないで",
        "ないでください",
        "ないで下さい",
        "禁止",
        "ないこと",
        "だけを使",
        "のみ使用",
        "のみを使",
        "のみ使",
        "だけ使",
        "今後は",
        "これからは",
        "これ以降",
        "以降は",
        "忘れないで",
        "忘れずに",
        "避けて",
        "優先して",
        "てはなりません",
        "てはならない",
        "てはだめ",
        "ちゃだめ",
        "確認してから",
        "許可なく",
        "許可なしに",
        "承認なしに",
        "承認なく",
        "勝手に",
        "するな",
        "ようにして",
        "なければなりません",
        "なければならない",
        "すべきでは",
        "べきではない",
        "でください。必ず",
        "厳守",
        "徹底して",
        "やめて",
        "聞いてから",
        "限り",
    ];
    const WEAK: [&str; 9] = [
        "必ず",
        "絶対に",
        "決して",
        "常に",
        "いつも",
        "毎回",
        "すべての",
        "全ての",
        "だけ",
    ];
    const REPORTS: [&str; 15] = [
        "失敗",
        "エラーが",
        "エラーに",
        "落ちる",
        "落ちます",
        "壊れ",
        "おかしい",
        "止まる",
        "止まります",
        "再現",
        "出る",
        "出ます",
        "なります",
        "ました",
        "だった",
    ];
    let end = text.trim_end_matches(['。', '！', '!', '.', ' ']);
    const ORDERS: [&str; 16] = [
        "ください",
        "下さい",
        "て",
        "こと",
        "ように",
        "なさい",
        "しろ",
        "な",
        "ない",
        "ません",
        "する",
        "使う",
        "で",
        "書く",
        "お願いします",
        "せよ",
    ];
    let is_order =
        ORDERS.iter().any(|order| end.ends_with(order)) || has(text, &["てください", "こと"]);
    let is_report = has(text, &REPORTS);
    // 限り, "as long as", also occurs in reports.
    let strong = has(text, &STRONG) && !(has(text, &["限り"]) && is_report);
    strong || patterns::JAPANESE.is_match(end) || has(text, &WEAK) && is_order && !is_report
}

/// Returns the words of a text in one line, each with a space on both sides. Punctuation that ends
/// a clause becomes a bar.
fn flat(text: &str) -> String {
    let mut flat = String::from(" ");
    let mut word = String::new();
    let end = |word: &mut String, flat: &mut String| {
        let trimmed = word.trim_matches(['\'', '-']);
        if !trimmed.is_empty() {
            flat.push_str(trimmed);
            flat.push(' ');
        }
        word.clear();
    };
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        // A point inside a word is part of it: `legacy.css`.
        let is_inside = c == '.' && chars.peek().is_some_and(|next| next.is_alphanumeric());
        if c.is_alphanumeric() || c == '\'' || c == '-' || c == '_' || is_inside {
            word.push(c);
            continue;
        }
        end(&mut word, &mut flat);
        if matches!(
            c,
            ',' | ';' | ':' | '—' | '–' | '(' | ')' | '!' | '¡' | '…' | '.' | '?'
        ) && !flat.ends_with("| ")
        {
            flat.push_str("| ");
        }
    }
    end(&mut word, &mut flat);
    flat
}

fn clauses(flat: &str) -> impl Iterator<Item = &str> {
    flat.split('|')
        .map(str::trim)
        .filter(|clause| !clause.is_empty())
}

/// Whether a clause begins with one of these words, after words such as *please* and *and*.
fn begins(clause: &str, words: &[&str]) -> bool {
    const FILLERS: [&str; 17] = [
        "please ",
        "and ",
        "but ",
        "so ",
        "also ",
        "bitte ",
        "und ",
        "aber ",
        "et ",
        "mais ",
        "y ",
        "pero ",
        "por favor ",
        "ok ",
        "then ",
        "always ",
        "you ",
    ];
    let padded = format!("{clause} ");
    let mut rest = padded.as_str();
    // The phrases are compared before each filler is removed, because a phrase may begin with one:
    // "always make sure".
    while let Some(after) = FILLERS.iter().find_map(|filler| rest.strip_prefix(filler)) {
        if words.iter().any(|word| rest.starts_with(word)) {
            return true;
        }
        rest = after;
    }
    words.iter().any(|word| rest.starts_with(word))
}

fn starts(flat: &str, words: &[&str]) -> bool {
    words.iter().any(|word| flat.trim_start().starts_with(word))
}

fn has(text: &str, words: &[&str]) -> bool {
    words.iter().any(|word| text.contains(word))
}

pub(super) fn is_han(c: char) -> bool {
    matches!(c, '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}')
}

pub(super) fn is_kana(c: char) -> bool {
    // U+30FB, the middle dot, is left out, because it also separates names in Chinese.
    matches!(c, '\u{3041}'..='\u{30fa}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_told_from_reports_in_every_language() {
        for rule in [
            "Never push to main.",
            "please use tabs, don't use spaces",
            "When CI is red, never merge.",
            "Only use pnpm for this project.",
            "From now on answer in French.",
            "Make sure that every endpoint has a test.",
            "Do not edit vendor/ unless I say so.",
            "All public functions must have a doc comment.",
            "Use spaces, not tabs.",
            "As I said, never commit secrets.",
            "Committe niemals direkt auf main.",
            "Verwende immer pnpm.",
            "Ab jetzt antworte bitte auf Deutsch.",
            "Ändere das Schema nicht ohne meine Zustimmung.",
            "Jede Funktion muss einen Test haben.",
            "Ne pousse jamais sur main.",
            "Utilise toujours pnpm.",
            "À partir de maintenant, réponds en français.",
            "N'utilise que des fonctions pures.",
            "Chaque fonction doit avoir un test.",
            "Nunca subas cambios a main.",
            "Usa siempre pnpm.",
            "No modifiques el esquema sin mi permiso.",
            "A partir de ahora responde en español.",
            "不要删除数据库。",
            "从现在起只用 pnpm。",
            "每个函数都必须有测试。",
            "必ずテストを書いて。",
            "main に直接プッシュしないでください。",
            "今後は日本語で答えてください。",
            // By their build, without a word such as *never*.
            "Keep functions under 40 lines.",
            "Leave README.md as it is.",
            "Answer in British English.",
            "We use tabs here, not spaces.",
            "No default exports.",
            "Every PR needs two reviewers.",
            "Error messages should be in English.",
            "Before committing, run the linter.",
            "Show diffs before applying them.",
            "Run prettier on every file that you change.",
            "Do it without adding dependencies.",
            "Refunds above $500 need a manager's approval.",
            "I only want flights after 9 am.",
            "Bitte fass die Datei legacy.css nicht an.",
            "Vor jedem Commit müssen die Tests laufen.",
            "Wir verwenden hier Tabs statt Leerzeichen.",
            "Antworte auf Deutsch.",
            "Keine globalen Variablen.",
            "Réponds en français.",
            "Aucune dépendance externe.",
            "Les commentaires doivent être en anglais.",
            "Seuls les fichiers de src peuvent être modifiés.",
            "Responde en español.",
            "Los comentarios deben estar en inglés.",
            "Aquí usamos tabuladores, no espacios.",
            "请用中文回答。",
            "我们这里用制表符，不用空格。",
            "日本語で答えてください。",
            "src 以外は変更しないように。",
        ] {
            assert!(is_directive(rule), "{rule}");
        }
        for report in [
            "Fix the failing tests.",
            "add a neverland page",
            "do you always do that?",
            "It always fails on CI.",
            "I never saw this before.",
            "I don't know why.",
            "The build never finishes.",
            "It must be the cache.",
            "The docs say one must never call this twice.",
            "Only the tests in src fail.",
            "Don't worry about it.",
            "No uses of it were found.",
            "Der Test schlägt immer fehl.",
            "Ich habe das nie gesehen.",
            "Le test échoue toujours.",
            "Ça n'a jamais marché.",
            "El test siempre falla.",
            "No funciona en CI.",
            "帮我查一下天气",
            "测试总是失败。",
            "服务不能启动。",
            "テストがいつも失敗する。",
            "必ずエラーになります。",
            "Keep going.",
            "Leave it, I'll do it later.",
            "No idea.",
            "No tests were run.",
            "No funciona.",
            "No, the other file.",
            "Only one of the workers is alive.",
            "The API should return JSON.",
            "The customer must have closed the tab.",
            "You never answered my question.",
            "After every restart the cache is empty.",
            "When you are done, tell me.",
            "Without the flag it crashes.",
            "Keine Ahnung.",
            "Aucune idée.",
            "Nunca había visto este error.",
            "Hay que reiniciar el servidor.",
            "测试一直失败。",
            "ボタンを追加してください。",
        ] {
            assert!(!is_directive(report), "{report}");
        }
    }
}
