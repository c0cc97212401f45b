//! Rules in English.

use std::sync::LazyLock;

use regex::RegexSet;

use super::patterns::set;
use super::tongue::{Ban, before_report};
use super::words::{behind, clauses, has, lists};

/// Common words, also of other languages.
pub(super) const COMMON: &str = "the|to|and|is|of|in|it|you|for|not|do|with|on|are|please|use|never|always|that|\
    before|don't|without|make|only|no";

/// Imperatives that a clause of a rule begins with.
pub(super) const IMPERATIVES: &str = "use|run|write|tell|confirm|get|fix|implement|refactor|rewrite|update|improve|\
    add|keep|put|commit|push|format|name|test|check|call|ask|return|log|prefer|follow|deploy|work|answer|reply|speak|\
    import|install|read|edit|change|touch|delete|remove|merge|create|leave|stick|build|document|review|include|handle|\
    wrap|store|pin|limit|tag|sign|rebase|open|show|report|respond|explain|target|do|make|set|start|stop|wait|treat|\
    fetch|send|cite|quote|refer|mention|round";

/// Words after which somebody else's words follow. If a user passes them on, they are no rule of
/// the user's.
const REPORTED: &str = "says|said|told me|told us|claims|according to|wrote|complains|warns|prints|suggests|\
    recommends|reads|say|thinks|believes|feels that";

const BAN: Ban = Ban {
    starts: &["no ", "zero "],
    not_in: "idea|problem|problems|worries|need|more|luck|rush|doubt|thanks|clue|error|errors|change|changes|one|way|\
        other|matter|further|longer|result|results|output|response|difference|question|questions|comment|that|this|it|\
        i|you|we|not|is|was|are|were|has|have|had|does|did|do|works|found|yet|left|wrong|such|file|to|will|can|could|\
        but|preference|hurry|wonder|regrets|flaws|exceptions|exception|there|here|then|needed|me|se|lo|la|reason|hay|\
        knowledge|exit|status|code|failures|matches|failed|passed",
    orders: "use|prefer|write|call|stick|keep|ask|only",
};

static PATTERNS: LazyLock<RegexSet> = LazyLock::new(|| {
    set(&[
        r" from (?:now|here|this point) on | (?:going forward|henceforth) ",
        r" (?:under no circumstances|on no account|in no case|no matter what|at all times|as a rule) ",
        r" (?:must|shall|should|may) (?:never|only) | (?:must|should) always | (?:must|shall) not | mustn't ",
        r" (?:(?:don't|do not|only) ever|please (?:don't|do not)|you cannot|you are not to|you're not to) ",
        r" (?:is|are) (?:forbidden|prohibited|not allowed|mandatory) | (?:isn't|aren't) allowed ",
        r" (?:off limits|off-limits|hands off|no longer (?:need|have) to|i prefer) | (?:is|are) (?:untouchable|sacrosanct|sacred|taboo) ",
        r" (?:i'd|i would|we'd) (?:much |really )?(?:prefer|rather (?:have|see|use|read)) SOME(?:than|over|instead of) |STARTING(?:WORD){0,3}(?:is|are) (?:up to me|my (?:job|call|task|decision)) |STARTleave ING(?:WORD){0,3}to me ",
        r" without (?:asking|my|approval|permission) | ask (?:me )?(?:before|first) | wait for my ",
        r" unless (?:i (?:say|ask|tell|explicitly)|asked|told) | (?:every time|each time|whenever) you ",
        r"START(?:always |you )*(?:make sure|avoid|prefer|remember (?:to|that)|refrain from|stick (?:to|with)|be sure to) ",
        r"START(?:always |you )*(?:see to it|don't forget|no more than|may now|it is fine to|before (?:every|each)) ",
        r"START(?:always )?ensure (?:(?:that )?(?:every|all)|that (?:no|each)) |START(?:the rule is|(?:new |house )?rule) ",
        r"^ (?:please )?use .*\| not |START(?:use|connect|log in|sign in) SOME(?:\| )?(?:and |but )?not ",
        r"STARTkeep MANY(?:under|below|within|in|at|to|short|small|private|separate) ",
        r"START(?:keep|leave) SOME(?:unchanged|intact|untouched|alone|stable|compatible|short|small|brief|concise|compatibility|as is|as it is|as they are|under|below|within) ",
        r"STARTbe (?:concise|brief|terse|explicit|polite|conservative|strict|formal) ",
        r"START(?:stay|remain|work only|operate only) (?:on|inside|within) ",
        r"START(?:answer|reply|respond|write|speak|explain|talk|comment) SOME(?:in (?:LANGUAGE|the imperative )|formally |informally |politely |briefly )",
        r"START(?:write|name|format|log|document|test|prefix|sign|tag|refuse|decline|reject|escalate|redact|mask|report|validate) (?:all|any|every|each|anything|everything) ",
        r"STARTtreat SOMEas ",
        r"START(?:assume|target|support|require) [a-z+#.]+ \d",
        r"START(?:we|i) (?:all |always |only )?(?:use|prefer|write|follow|name|format|indent|support|deploy|squash|rebase) SOME(?:\| )?(?:here|not|instead of|rather than|in this (?:project|repo|repository|codebase)) ",
        r"STARTwe (?:do not|don't) (?:use|write|commit|push|merge|deploy|add|allow|mock|ship|touch|edit|change|accept|support) ",
        r" (?:our|the|my) (?:convention|policy|standard|style|rule)s? (?:is|are|says|requires) ",
        r"START(?:i|we) (?:do not|don't) want (?:any|you to|new|more) ",
        r"START(?:i|we) (?:want|expect) (?:every|each|all|no|only) ",
        r" i'd rather (?:you|we) (?:didn't|did not) ",
        r"STARTlet's (?:not (?:use|add|touch|change|mock|commit|push|rely|introduce)|always|never|only|stick to|keep to) ",
        r"(?:MANYare required| (?:is|are) (?:banned|not permitted|read-only for you|not negotiable|not to be)) ",
        r"START(?:before|after) (?:you |every |each |any |ING)SOME\| ORDER",
        r"START(?:whenever |when you WORD(?:a |an |any |new |something )|each time |every time |if you're unsure |if you are unsure |if you're not sure |if you are not sure |any time you |if in doubt |when in doubt )SOME\| ORDER",
        r"START(?:ORDER)SOMEbefore (?:you |each |every |any |ING)",
        r"START(?:ORDER)SOME(?:every|each) WORD(?:that )?you |START(?:ORDER)SOME(?:throughout|everywhere|consistently) ",
        r"START(?:tell|warn|notify|inform|alert) (?:me|us) before |START(?:call|address) me ",
        r"START(?:you (?:should not|shouldn't) |stop ING)|STARTfor (?:all|every|each|any) SOMEORDER",
        r"START(?:ORDER)SOME(?:with|on|for|after|in|before) (?:every|each) ",
        r"STARTi (?:never want|only (?:want|fly|eat|drink|travel|accept)) ",
        r"STARTMANY(?:have|need) to be |STARTall MANYare (?:stored|written|kept|named|formatted|given|returned|logged|validated) ",
        r"START(?:ORDER)SOMEwithout (?:adding|changing|touching|breaking|modifying|using|introducing|deleting|removing|altering|affecting|editing|installing|renaming) ",
        r" (?:need|needs|require|requires) (?:(?:a|an|my|the|explicit|prior|written) )*(?:WORD)?APPROVAL",
        r"START(?:get|wait for|ask for) (?:my|our|explicit|prior|written) SOMEAPPROVAL",
        r"START(?:you're|you are) (?:only |not )allowed to ",
        r"STARTyou (?:can't|can not|aren't allowed to) (?:use|touch|edit|change|delete|push|deploy|add|install|run|access) ",
        r"START(?:nobody|no one) (?:but|except|other than|may|should) |START(?:only) SOME(?:may|can|should|must|is allowed|are allowed) ",
        r"STARTwithout exception |(?:confirm|check|verify) (?:it |this |that |them )?with me ",
        r" (?:until further notice|hereafter) |STARTfor the (?:rest|remainder) of SOME\| WORD|STARTin future \| |START(?:starting|as of) (?:now|today) (?:\| )?(?:no|nothing|all|every|only|we) ",
        r"START(?:would you |could you )?(?:please )?(?:stop|quit) ING",
        r"START(?:take care|be careful|watch out) (?:not to|that|to never|you) |STARTensure no ",
        r"START(?:limit|restrict|confine) SOMEto |START(?:stay away from|steer clear of|keep your hands off) ",
        r"START(?:ORDER)SOME(?:at most|no more than) | (?:it is|it's) (?:important|essential|crucial|imperative|vital|critical) (?:that|to (?:always|never|not|keep)) ",
    ])
});

pub(super) fn states_rule(flat: &str) -> bool {
    // If users repeat what they said themselves, they still mean it.
    const OWN: &str = "i said|i say|i told|i wrote|unless i|i've said|i already said";
    // What follows a report is somebody else's rule. A rule before it stays one.
    let own = before_report(flat, REPORTED, OWN);
    if own.len() < flat.len() {
        return states_rule(&format!("{own}| "));
    }
    // "It would be great if you could keep it short" is the order at its end.
    if let Some((thanks, order)) = flat.rsplit_once(" if you could ")
        && has(thanks, "great|nice|good|helpful|kind|appreciate it")
    {
        return states_rule(&format!(" {order}"));
    }
    // What somebody should have done, or may have to do, is no order.
    const GUESSES: &str = "i wonder|maybe|perhaps|suppose|should never have|should always have|must never have|had to";
    // *No* is a word of Spanish, too, and stands before a verb there.
    let is_plural = flat
        .split_whitespace()
        .any(|word| word.ends_with('s') || word.ends_with("ing"));
    let is_rule = is_plural && BAN.is(flat)
        || PATTERNS.is_match(flat)
        || clauses(flat).any(clause_states_rule);
    is_rule && !has(flat, GUESSES) && !guesses_past(flat)
}

/// Whether a sentence guesses what happened: "They must not have seen it."
fn guesses_past(flat: &str) -> bool {
    // "Must have linked issues" is no guess.
    const AFTER: &str = "then|last|since|when|yesterday|again|recently|because|by|in|the|a|my|your|our|it|this|that|already|before";
    let words: Vec<&str> = flat
        .split_whitespace()
        .filter(|word| *word != "not")
        .collect();
    words.windows(2).enumerate().any(|(at, two)| {
        let next = |ahead: usize| words.get(at + ahead).copied().unwrap_or("|");
        two == ["must", "have"] && is_past(next(2)) && (next(3) == "|" || lists(AFTER, next(3)))
    })
}

fn clause_states_rule(clause: &str) -> bool {
    // What may stand before *never* and *always* in an order. After another word, such as a noun,
    // the clause reports: "the build never finishes".
    const BEFORE: &str = "please|pls|plz|btw|kindly|must|should|shall|may|can|will|would|you|and|but|or|so|also|to|we|then|ok|okay|just|\
        be|that|yes";
    // What follows them in a report or in an idiom: "never mind", "never worked".
    const AFTER_NOT: &str = "mind|seen|worked|happened|fails|failed|works|been|had|got|heard|crashes|returns|forget|\
        end|was|is|has|ends|comes|did|used|happens|a|the";
    // "Don't worry" and "don't know" forbid nothing that an agent would do.
    const DONT_AFTER: &str = "worry|know|think|mind|care|see|understand|remember|get|have|believe|want|hesitate|bother|you|\
        we|they|i|need|exist|work|match|seem|like|expect|quite|fully|really|yet|panic|recall";
    // "Only the tests in src fail" is a report, and "Only use pnpm" is a rule.
    const ONLY_NOT: &str = "the|a|an|one|two|three|this|that|these|those|some|in|on|at|for|after|then|if|when|because|\
        as|my|your|our|now|to|fails|works";
    // "Fix the bug that only one user sees" limits nothing.
    const RELATES: &str = "that|which|who|why|how|what|where|when|if|because|so";
    const SUBJECTS: &str =
        "i|it|that|this|there|something|he|she|they|which|somebody|someone|what|a";
    let words: Vec<&str> = clause.split_whitespace().collect();
    const FILLERS: &str = "please|pls|plz|btw|kindly|hey|and|but|so|then|also|ok|okay|just|or|yes";
    let lead = words.len() - behind(clause, FILLERS).len();
    let first = words.get(lead).copied().unwrap_or_default();
    let is_imperative = lists(IMPERATIVES, first);
    let word = |at: usize| words.get(at).copied().unwrap_or_default();
    let before = |at: usize| at.checked_sub(1).map_or("", word);
    let relates = |at: usize| words[..at].iter().any(|word| lists(RELATES, word));
    for (at, this) in words.iter().enumerate() {
        let (previous, next) = (before(at), word(at + 1));
        let states_rule = match *this {
            "never" | "always" => {
                let seems = lists(
                    "seems|seem|appears|tends",
                    at.checked_sub(2).map_or("", word),
                );
                (previous.is_empty() || lists(BEFORE, previous) || is_imperative)
                    && !(lists(AFTER_NOT, next) || is_past(next))
                    && !seems
            }
            "don't" | "dont" => at == lead && !next.is_empty() && !lists(DONT_AFTER, next),
            "do" => {
                next == "not"
                    && at == lead
                    && !word(at + 2).is_empty()
                    && !lists(DONT_AFTER, word(at + 2))
            }
            "must" => {
                // "It must be the cache" is a guess. "It must be sorted" is a rule.
                const OF_GUESSES: &str = "the|a|an|some|something|because|that|in|on|from|due";
                let is_guess = lists(SUBJECTS, previous)
                    && (next != "be" || lists(OF_GUESSES, word(at + 2)))
                    || previous == "you" && next == "be" && is_past(word(at + 2));
                !previous.is_empty() && !is_guess && !lists("a|i|the", previous)
            }
            "only" => {
                lists("must|may|should|shall", previous)
                    || at == lead && !lists(ONLY_NOT, next) && !next.is_empty()
                    || is_imperative && !relates(at)
            }
            "every" | "each" | "all" | "any" | "no" | "nothing" | "nobody" if at == lead => {
                // "All tests pass" is a report. "All tests must pass" is a rule.
                let rest = &words[at + 1..];
                rest.iter()
                    .any(|word| lists("must|should|shall|gets|needs|may", word))
                    || rest
                        .windows(2)
                        .any(|two| lists("has|have|needs|need|is|are", two[0]) && two[1] == "to")
            }
            // "Error messages should be in English." With an article it is about one thing.
            "should" | "shouldn't" => {
                (1..=4).contains(&at)
                    && previous.ends_with('s')
                    && !(lists(SUBJECTS, first) || first.ends_with("ing") || next == "have")
                    && !relates(at)
                    && !lists("the|these|those|yes|always|this", first)
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
        || lists(
            "been|gone|had|got|lost|done|left|broken|found|knew|saw|seen|made|came",
            word,
        )
}
