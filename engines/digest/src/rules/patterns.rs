//! Sentences that state a rule by their build rather than by a word such as *never*.
//!
//! "Keep functions under 40 lines" and "Before you commit, run the linter" say how things are to be
//! done for good. Each language has a set of patterns. They are matched against a sentence in lower
//! case with one space between words and a bar after each clause, as `directive` writes it. Chinese
//! and Japanese sentences have no words to separate and are matched as they are.

use std::sync::LazyLock;

use regex::RegexSet;

/// What stands for a part of a pattern, so that the patterns can be read.
const PARTS: [(&str, &str); 8] = [
    // The beginning of a clause, with words that may precede an order.
    (
        "START",
        r"(?:^ |\| )(?:(?:please|and|but|so|also|then|ok|okay|just|remember|note|bitte|und|aber|et|mais|y|pero|por favor|s'il te plaît|merci de) )*",
    ),
    ("SOME", r"(?:[^ |]+ ){0,6}"),
    ("MANY", r"(?:[^ |]+ ){0,2}[^ |]+s "),
    ("WORD", r"[^ |]+ "),
    ("ING", r"[^ |]+ing "),
    (
        "ORDER",
        r"(?:use|run|write|add|keep|put|commit|push|format|check|call|ask|tell|show|explain|stop|wait|confirm|get|make|fix|implement|refactor|rewrite|update|improve|change|do|log|deploy|merge|document|test|review) ",
    ),
    (
        "LANGUAGE",
        r"(?:(?:plain|simple|british|american|gutem|einfachem) )?(?:english|german|french|spanish|chinese|japanese|korean|russian|italian|portuguese|dutch|polish|deutsch|englisch|französisch|spanisch|anglais|allemand|français|espagnol|inglés|alemán|francés|español) ",
    ),
    (
        "APPROVAL",
        r"(?:approval|permission|consent|sign-off|go-ahead|ok|okay) ",
    ),
];

pub(super) static ENGLISH: LazyLock<RegexSet> = LazyLock::new(|| {
    set(&[
        r"STARTkeep MANY(?:under|below|within|in|at|to|short|small|private|separate) ",
        r"START(?:keep|leave) SOME(?:unchanged|intact|untouched|alone|stable|compatible|short|small|brief|concise|compatibility|as is|as it is|as they are|under|below|within) ",
        r"STARTbe (?:concise|brief|terse|explicit|polite|conservative|strict|formal) ",
        r"START(?:(?:stay|remain|work only|operate only) (?:on|inside|within)|stick (?:to|with)) ",
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
        r"START(?:whenever |when you WORD(?:a |an |any |new |something )|each time |every time |if you're unsure |if you are unsure |if in doubt |when in doubt )SOME\| ORDER",
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
    ])
});

pub(super) static GERMAN: LazyLock<RegexSet> = LazyLock::new(|| {
    set(&[
        r"START(?:antworte|antworten sie|schreib|schreibe|sprich|kommentiere|erkläre) SOMEauf LANGUAGE",
        r"STARTbitte SOME(?:nicht|kein|keine|keinen|keinem) ",
        r"START(?:halt|halte|halten sie|lass|lasse|lassen sie|belass|belasse) SOME(?:kurz|knapp|klein|unverändert|in ruhe|so wie|wie es ist|wie sie sind|die finger|privat|stabil) ",
        r"START(?:vor|nach|bei) (?:jedem|jeder) SOME(?:muss|müssen|soll|sollen|läuft|laufen) ",
        r"START(?:jede|jeder|jedes|alle) SOME(?:braucht|brauchen|benötigt|benötigen|bekommt|bekommen) ",
        r"STARTich (?:will|möchte) (?:keine|keinen|kein|nie|niemals) ",
        r"STARTwir (?:verwenden|nutzen|benutzen|schreiben) SOME(?:\| )?(?:hier|statt|nicht|immer|nur|keine|kein) ",
        r"START(?:hier|in diesem projekt) (?:verwenden|nutzen|benutzen|schreiben|gilt) ",
        r"(?: darf| dürfen) (?:nichts|niemand) | (?:nichts|niemand) SOME(?:darf|dürfen) ",
        r"START(?:halte dich|halten sie sich) an |STARTalle WORDauf LANGUAGE",
        r" nur auf LANGUAGE|START(?:sprich|nenn|nenne|sprechen sie|nennen sie) mich ",
        r"START(?:frag|frage|sag|warn|warne|informier|informiere) (?:mich|mir|uns) SOME(?:\| )?(?:bevor|vor) |STARTwenn du unsicher bist ",
        r"START(?:unsere|die) (?:konvention|regel|richtlinie|vorgabe) ist ",
    ])
});

pub(super) static FRENCH: LazyLock<RegexSet> = LazyLock::new(|| {
    set(&[
        r"START(?:réponds|répondez|écris|écrivez|parle|parlez|commente|commentez) SOMEen LANGUAGE",
        r"START(?:je|nous) ne (?:veux|voulons) (?:pas|plus|aucun|aucune) (?:de |d'|que )",
        r"STARTseule?s? SOME(?:peut|peuvent|doit|doivent) ",
        r"START(?:garde|gardez|laisse|laissez) SOME(?:courts?|courtes?|petits?|petites?|tels? quels?|telles? quelles?|intacte?s?|inchangée?s?|stables?) ",
        r"START(?:on|nous) (?:utilise|utilisons|écrit|écrivons|préfère|préférons) SOME(?:\| )?(?:ici|pas|plutôt|uniquement) ",
        r"START(?:ici|dans ce projet)(?: \|)? (?:on|nous) (?:utilise|utilisons|écrit|écrivons) ",
        r"START(?:tous|toutes) les SOMEsont (?:toujours |obligatoirement )?en ",
        r"STARTles MANYdoivent |START(?:préviens|avertis|demande|consulte|prévenez|demandez)-(?:moi|nous) avant ",
        r" (?:notre|la) (?:convention|règle|norme) est ",
    ])
});

pub(super) static SPANISH: LazyLock<RegexSet> = LazyLock::new(|| {
    set(&[
        r"START(?:responde|responda|escribe|escriba|habla|comenta|contesta) SOMEen LANGUAGE",
        r"START(?:yo )?no quiero (?:que |MANY)",
        r"START(?:aquí |en este proyecto )?(?:usamos|utilizamos|escribimos) SOME(?:\| )?(?:aquí|no|siempre|en vez de|en lugar de) ",
        r"START(?:aquí|en este proyecto) (?:usamos|utilizamos|escribimos) ",
        r" no se (?:permite|permiten|debe|deben|toca|tocan|admite|admiten|puede modificar|puede cambiar|puede tocar|puede usar|pueden modificar|pueden usar) ",
        r"START(?:deja|deje|dejad|mantén|mantenga|conserva) SOME(?:cortas?|cortos?|breves?|sencill[ao]s?|como está|como están|intacta|intacto|intactos|intactas|en paz|sin tocar) ",
        r"STARTdebes ",
        r"START(?:todos|todas) (?:los|las) SOME(?:van|deben ir) en ",
        r"START(?:los|las) MANYdeben |START(?:avísame|pregúntame|consúltame|avísanos) antes ",
        r" (?:nuestra|la) (?:convención|norma|regla) es ",
    ])
});

pub(super) static CHINESE: LazyLock<RegexSet> = LazyLock::new(|| {
    set(&[
        r"用(?:中文|英文|英语|日语|德语|法语|西班牙语)(?:来)?(?:回答|回复|写|交流|注释)",
        r"(?:回复|回答|答案|输出).{0,4}(?:简短|简洁|简练)",
        r"用[^，,。]{1,10}[，,、](?:而)?不(?:要)?用",
    ])
});

pub(super) static JAPANESE: LazyLock<RegexSet> = LazyLock::new(|| {
    set(&[
        r"(?:日本語|英語|中国語|ドイツ語|フランス語)で(?:答|書|返|回答|説明|コメント)",
        r"(?:ないで|ないように|ないように。|ないで。)$",
        r"(?:返事|回答|返答|答え).{0,4}(?:短く|簡潔に)",
    ])
});

fn set(patterns: &[&str]) -> RegexSet {
    let whole = |pattern: &&str| {
        PARTS
            .iter()
            .fold((*pattern).to_owned(), |text, (name, part)| {
                text.replace(name, part)
            })
    };
    // A test compiles them all.
    RegexSet::new(patterns.iter().map(whole)).unwrap_or_default()
}
