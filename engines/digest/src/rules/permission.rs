//! Sentences that end an earlier rule: a permission, a release, or the withdrawal of a rule.
//!
//! "You can push to main now" is no rule by itself, and much of what users write looks like it. So
//! such a sentence counts only against a rule that is known, and only if both are about the same.

use super::directive;

/// How a sentence ends an earlier rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// It allows what a rule forbids.
    Permits,
    /// It says that something need not be done.
    Releases,
    /// It names a rule and withdraws it.
    Withdraws,
    /// It says that something is no longer forbidden.
    Lifts,
    /// It says what to do in place of what was demanded.
    Switches,
}

/// Phrases that permit what they are about.
const PERMITS: &str = "you can|you may|you're allowed to|you are allowed to|you're free to|you are free to|\
    feel free to|it's fine to|it is fine to|it's ok to|it's okay to|it is ok to|it is okay to|changed my mind|\
    du darfst|du kannst|ihr dürft|ihr könnt|sie dürfen|sie können|darfst du|kannst du|dürft ihr|könnt ihr|\
    dürfen sie|können sie|tu peux|vous pouvez|tu as le droit de|vous avez le droit de|puedes|podéis|podés|ya se puede";
/// Phrases that permit something if [`CHANGE`] says that they are new.
const STATES: &str = "fine|ok|okay|welcome|allowed|erlaubt|in ordnung|willkommen|autorisé|autorisés|permis|permitido|\
    permitida|permitidos|permite|bienvenido|bienvenue";
const CHANGE: &str = "now|again|after all|from now on|jetzt|wieder|doch|ab sofort|maintenant|désormais|finalement|\
    ya|ahora";
/// Words by which an order takes a ban back: "Let's push after all."
const REVERSES: &str = "after all|on second thought|actually|doch|finalement|en fin de compte|al final|\
    después de todo|ahora sí|mejor";
/// Words that no such order has: "You pushed after all!" is a complaint.
const REPORTS: &str = "you|it|he|she|they|there|was|were|has|have|had|did|got|still|why|du|ihr|er|es|sie|hast|habt|\
    hat|war|waren|warum|tu|vous|il|elle|avez|pourquoi|hay|por qué";
const LIFTS: &str = "no longer off limits|no longer forbidden|no longer prohibited|no longer banned|not forbidden anymore|\
    nicht mehr verboten|nicht mehr tabu|nicht länger verboten|n'est plus interdit|n'est plus interdite|\
    ne sont plus interdits|ne sont plus interdites|ya no está prohibido|ya no está prohibida|ya no están prohibidos";
const RELEASES: &str = "no longer have to|no longer need to|don't have to|don't need to|no need to|musst nicht mehr|\
    brauchst nicht mehr|plus besoin de|n'es plus obligé de|ya no tienes que|ya no hace falta";
const WITHDRAWS: &str = "forget|ignore|scrap|drop|disregard|lift|cancel|no longer applies|no longer apply|doesn't apply|\
    does not apply|no longer holds|no longer valid|vergiss|vergesst|ignoriere|ignorier|streich|streiche|gilt nicht mehr|\
    gelten nicht mehr|aufgehoben|oublie|oubliez|ignorez|annule|annulez|s'applique plus|vaut plus|olvida|olvide|\
    ignora|ya no aplica|ya no se aplica|ya no vale";
const RULE: &str = "rule|rules|restriction|restrictions|constraint|constraints|ban|instruction|i said|regel|regeln|vorgabe|\
    verbot|einschränkung|gesagt|règle|règles|consigne|interdiction|j'ai dit|regla|reglas|norma|restricción|\
    instrucción|dije";

const CJK_PERMITS: &str =
    "可以|允许|していい|してもいい|てもよい|てもかまいません|ても構いません|て大丈夫|許可し";
const CJK_CHANGE: &str = "了|现在|以后|今后|もう|これから|今後|今は|許可し|てもかまいません|ても構いません|\
    てもいい|てもよい";
const CJK_REVERSES: &str = "やっぱり|やはり|还是";
/// What an order ends with.
const CJK_ORDERS: [&str; 8] = [
    "吧", "て", "てね", "てよ", "ください", "下さい", "ましょう", "しよう",
];
const CJK_LIFTS: &str = "不再禁止|解禁|放开|もう禁止ではな|禁止ではなくな";
const CJK_SWITCHES: &str = "改成|改为|改用|に変更して|に変えて|に切り替えて";
const CJK_RELEASES: &str =
    "不用再|不必再|不需要再|必要はありません|必要はない|なくていい|なくてもいい";
const CJK_WITHDRAWS: &str =
    "忘掉|忘记|忽略|作废|取消|撤销|不再适用|忘れて|無視して|無効|取り消|撤回|適用しない";
const CJK_RULE: &str = "规则|规定|限制|说的|ルール|規則|制限|指示|言った";

impl Ending {
    /// Returns how this sentence ends a rule, if it can.
    pub(super) fn of(sentence: &str) -> Option<Self> {
        let lower = sentence.to_lowercase().replace('’', "'");
        if lower.trim_end().ends_with(['?', '？']) {
            return None;
        }
        let is_cjk = |c: char| directive::is_han(c) || directive::is_kana(c);
        if lower.chars().any(is_cjk) {
            let has = |list: &str| list.split('|').any(|part| lower.contains(part));
            let is_negative = directive::is_negative(sentence);
            let end = lower.trim_end_matches(|c: char| !c.is_alphanumeric());
            let is_order =
                CJK_ORDERS.iter().any(|order| end.ends_with(order)) || lower.contains('请');
            return Self::first([
                (has(CJK_WITHDRAWS) && has(CJK_RULE), Self::Withdraws),
                (has(CJK_LIFTS), Self::Lifts),
                (has(CJK_RELEASES), Self::Releases),
                (
                    has(CJK_PERMITS) && has(CJK_CHANGE) && !has("不可以|不允许"),
                    Self::Permits,
                ),
                (has(CJK_REVERSES) && is_order && !is_negative, Self::Permits),
                (has(CJK_SWITCHES) && !is_negative, Self::Switches),
            ]);
        }
        let words = lower.split(|c: char| !c.is_alphanumeric() && c != '\'');
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        let flat = format!(" {} ", words.join(" "));
        let is_whole = |at: usize, part: &str| {
            flat[..at].ends_with(' ') && flat[at + part.len()..].starts_with(' ')
        };
        let has = |list: &str| {
            let mut parts = list.split('|');
            parts.any(|part| flat.match_indices(part).any(|(at, _)| is_whole(at, part)))
        };
        // "You can push without asking" forbids nothing.
        let without = [" without ", " ohne ", " sans ", " sin "];
        let ends = without.iter().filter_map(|word| flat.find(word));
        let is_negative = directive::is_negative(&flat[..ends.min().unwrap_or(flat.len())]);
        let permits = has(PERMITS) || has(STATES) && has(CHANGE) || has(REVERSES) && !has(REPORTS);
        Self::first([
            (has(WITHDRAWS) && has(RULE), Self::Withdraws),
            (has(LIFTS), Self::Lifts),
            (has(RELEASES), Self::Releases),
            (
                permits
                    && !is_negative
                    && !has("if you can|if you may|wenn du kannst|si tu peux|si puedes"),
                Self::Permits,
            ),
        ])
    }

    fn first<const N: usize>(kinds: [(bool, Self); N]) -> Option<Self> {
        let mut kinds = kinds.into_iter();
        kinds.find_map(|(is_one, kind)| is_one.then_some(kind))
    }
}
