//! Tells whether a sentence states a rule, in English, German, French, Spanish, Chinese or
//! Japanese, and in a few words of Korean.
//!
//! [`is_directive`] is the entry point. A sentence is a rule if it has the form of one and [`learned`]
//! does not deny it, or if [`learned`] is sure.
//!
//! Most words that mark a rule occur in complaints and reports too: "it always fails". So a form with a
//! word such as *always* counts only if the sentence tells somebody what to do: the word begins the
//! clause, follows *please* or a modal verb, or the clause begins with an imperative. Phrases such as
//! *from now on* count anywhere. Other forms need no such word: "keep functions under 40 lines". The
//! words are in a file for each language, and what is peculiar to it is in a module.

mod chinese;
mod english;
mod french;
mod german;
mod japanese;
mod shapes;
mod spanish;
mod tongue;

use std::sync::LazyLock;

use hashbrown::HashMap;

use super::words::{SHARED, Table, clauses, flat};
use super::{learned, own_words};

/// The words of a language, and whether a sentence of it states a rule.
type LanguageRules = (LazyLock<Table>, fn(&Table, &str) -> bool);

macro_rules! words_of {
    ($name:literal) => {
        LazyLock::new(|| Table::of(include_str!(concat!("words/", $name, ".txt"))))
    };
}

static LANGUAGES: [LanguageRules; 4] = [
    (words_of!("english"), english::states_rule),
    (words_of!("german"), german::states_rule),
    (words_of!("french"), french::states_rule),
    (words_of!("spanish"), spanish::states_rule),
];
static CHINESE: LazyLock<Table> = words_of!("chinese");
static JAPANESE: LazyLock<Table> = words_of!("japanese");

/// A language, by its place in [`LANGUAGES`].
#[derive(Debug, Clone, Copy)]
pub(super) enum LanguageNumber {
    German = 1,
    Spanish = 3,
}

/// Which of the languages a common word is of.
static COMMON: LazyLock<HashMap<&str, Vec<usize>>> = LazyLock::new(|| {
    let mut languages: HashMap<&str, Vec<usize>> = HashMap::new();
    for (language, (words, _)) in LANGUAGES.iter().enumerate() {
        for word in words.all("common") {
            languages.entry(word).or_default().push(language);
        }
    }
    languages
});

/// A sentence with the form of a rule is none below this score.
const DENIED: f32 = -3.0;
/// A sentence without the form of a rule is one from this score on.
const SURE: f32 = 2.5;

/// Whether a sentence states a rule. Quotes in it are expected to be blanked out.
pub(super) fn is_directive(sentence: &str) -> bool {
    let score = learned::score(sentence);
    match has_form(sentence) {
        true => score >= DENIED,
        false => score >= SURE && may_be_rule(sentence),
    }
}

/// Whether a sentence without the form of a rule may be one: no heading, no field of a form, no question,
/// nothing that announces other words, and nothing for the moment.
fn may_be_rule(sentence: &str) -> bool {
    let lower = sentence.to_lowercase().replace('’', "'");
    let lower = lower.trim();
    let letters = lower.chars().filter(|c| c.is_alphabetic());
    letters.count() >= 6
        && !lower.starts_with(['#', '|', '<'])
        && !lower.ends_with(['?', '？', ':', '：'])
        && !SHARED.is_in("no rules cjk", lower)
        && !SHARED.matches("no rules", &flat(lower))
}

/// Whether a sentence has the form of a rule.
fn has_form(sentence: &str) -> bool {
    let lower = sentence.to_lowercase().replace('’', "'");
    let lower = lower.trim();
    let is_question = lower.ends_with(['?', '？']);
    let head = lower.split_once([':', '：']).map(|(head, _)| head);
    if SHARED.is_in("no rules cjk", lower) || head.is_some_and(own_words::asks_to_translate) {
        return false;
    }
    // Japanese has Han characters as well, so kana are looked for first.
    if lower.chars().any(is_kana) {
        return !is_question && japanese::states_rule(&JAPANESE, lower);
    }
    // A single one may be a name or a unit in a sentence of another language.
    let han = lower.chars().filter(|c| is_han(*c)).count();
    if han >= 2 {
        return !is_question && chinese::states_rule(&CHINESE, lower);
    }
    if lower
        .chars()
        .any(|c| ('\u{ac00}'..='\u{d7af}').contains(&c))
    {
        let is_report = SHARED.is_in("korean reports", lower);
        return !is_question && !is_report && SHARED.is_in("korean rules", lower);
    }
    let flat = lasting(flat(lower));
    // "Never push, ok?" is a rule, and "do you always push?" is none.
    let begins = ["never ", "always ", "please never ", "from now on "];
    if is_question
        && !begins
            .iter()
            .any(|word| flat.trim_start().starts_with(word))
    {
        return false;
    }
    if tongue::is_contrast(&flat) || shapes::states_rule(&flat) {
        return true;
    }
    // The language whose words occur most often in a sentence is the one that it is read in.
    let counts = common_words(&flat);
    let most = counts.iter().max().copied().unwrap_or_default();
    // A short sentence often has as many common words of two languages, or none of any. Then each
    // of them may say that it is a rule.
    let likely = LANGUAGES
        .iter()
        .zip(counts)
        .filter(|(_, count)| *count == most);
    likely
        .into_iter()
        .any(|((words, states_rule), _)| states_rule(words, &flat))
}

/// The number of common words that a sentence has of each language.
fn common_words(flat: &str) -> [usize; LANGUAGES.len()] {
    let mut counts = [0; LANGUAGES.len()];
    for word in flat.split_whitespace() {
        for language in COMMON.get(word).into_iter().flatten() {
            counts[*language] += 1;
        }
    }
    counts
}

/// Whether a sentence may be of a language: it has common words of it, and no more of any other.
pub(super) fn reads_as(sentence: &str, language: LanguageNumber) -> bool {
    let counts = common_words(&flat(&sentence.to_lowercase()));
    let count = counts[language as usize];
    count > 0 && counts.iter().all(|other| *other <= count)
}

/// Returns a sentence up to the clause that makes it no rule: what follows belongs to that clause.
fn lasting(flat: String) -> String {
    let is_rule = |text: &str| !SHARED.matches("no rules", text);
    if is_rule(&flat) {
        return flat;
    }
    let clauses = clauses(&flat).map(|clause| format!(" {clause} | "));
    clauses.take_while(|clause| is_rule(clause)).collect()
}

/// Whether a sentence forbids something rather than demanding it.
pub(super) fn is_negative(sentence: &str) -> bool {
    let lower = sentence.to_lowercase().replace('’', "'");
    SHARED.has("negative", &flat(&lower)) || SHARED.is_in("negative cjk", sentence)
}

/// Whether a sentence says that it changes what held before.
pub(super) fn changes_course(sentence: &str) -> bool {
    let lower = sentence.to_lowercase().replace('’', "'");
    SHARED.has("changes", &flat(&lower)) || SHARED.is_in("changes cjk", &lower)
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
            "Log in as deploy, not as root.",
            "Use port 5433 and not 5432 for the replica.",
            "Cite a source for every claim.",
            "Vor jedem Deployment machst du ein Backup.",
            "敬語で書いてください。",
            "一人称は「僕」で統一してください。",
            "Never push to main, not even this time.",
            "You must be careful with the index.",
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
            // Orders for the moment.
            "Don't run it yet.",
            "Do not restart it now, wait two minutes.",
            "Only look at lines 10 to 20 this time.",
            "Starte db1 noch nicht neu.",
            "Ne lance pas encore les tests.",
            "Esta vez no borres nada.",
            "先不要运行。",
            "今回は実行しないでください。",
            // Texts to translate, and what nobody said.
            "Translate into German: Never leave your luggage unattended.",
            "Übersetze: Bitte nicht rauchen.",
            "Traduis : Ne pas marcher sur la pelouse.",
            "Traduce: Prohibido fumar.",
            "翻译成英文：请勿吸烟。",
            "英語に訳して：ここで泳がないでください。",
            "Ich habe nicht gesagt, dass du nie Tabs nehmen sollst.",
            "No dije que nunca uses tablas.",
            // Reports and guesses.
            "Antes siempre usábamos Excel.",
            "以前我们总是用 Excel。",
            "테스트가 항상 실패합니다.",
            "상사는 항상 금요일에 배포하지 말라고 했다.",
            "You must be tired.",
            "You must not have seen my message.",
            "All tests must have passed then.",
        ] {
            assert!(!is_directive(report), "{report}");
        }
    }
}
