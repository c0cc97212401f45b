//! Rules in French.

use std::sync::LazyLock;

use regex::RegexSet;

use super::patterns::set;
use super::tongue::{Ban, Tongue, before_report};
use super::words::{behind, clauses, lists};

/// Common words, also of other languages.
pub(super) const COMMON: &str = "le|la|les|des|et|est|pas|un|une|que|pour|dans|sur|ne|jamais|toujours|du|en|au|avant|\
    sans|il|chaque|tous|toutes|uniquement|de|à|ce";

const TONGUE: Tongue = Tongue {
    adverbs: "jamais|toujours|uniquement|seulement|exclusivement|systématiquement|avant chaque|\
        après chaque|à chaque",
    modals: "doit|doivent|dois|devez|faut|devra|devront",
    all: "chaque|tous|toutes|tout|toute",
    not_first: "si|je|ça|cela|il|elle|on|le|la|les|ce|cette|ces|un|une|mon|ma|pourquoi|hier|ils|nous|tu|depuis|à|avant|après",
    reports: "échoue|plante|marche|fonctionne|marché|fonctionné|échouent",
    fillers: "et|mais|puis|merci|de|alors|donc|ok|surtout|stp|svp",
};

const BAN: Ban = Ban {
    starts: &[
        "aucun ", "aucune ", "pas de ", "pas d'", "plus de ", "plus d'", "plus aucun", "zéro ",
        "pas question ", "hors de question ", "défense de ", "pas touche ",
    ],
    not_in: "idée|problème|problèmes|souci|soucis|changement|erreur|erreurs|doute|est|sont|a|ont|était|ne|réponse|\
        résultat|panique|quoi|chance|détails|infos|temps",
    orders: "utilise|utilisez|prends|préfère|écris",
};

static PATTERNS: LazyLock<RegexSet> = LazyLock::new(|| {
    set(&[
        r" (?:désormais|dorénavant|à partir de maintenant|dès maintenant|à l'avenir|en aucun cas|sous aucun prétexte) ",
        r" il (?:ne faut|faut toujours) | (?:doit|doivent) (?:toujours|jamais) | ne (?:doit|doivent|dois|devez) ",
        r" sans (?:mon|me demander|demander) | sauf si | demandez?-moi | je préfère | s'il te plaît ne ",
        r" interdit de | est obligatoire | (?:est|sont) (?:interdit|intouchable|tabou|sacré)e?s? | (?:j'aime|j'aimerais) mieux SOMEque ",
        r"START(?:arrête|arrêtez|cesse|cessez) (?:de |d')[^ |]*re? |START(?:tiens-t'en|tenez-vous-en) |(?:[st]ion|er|ir) (?:\| )?(?:WORD)?(?:c'est moi|c'est à moi|je m'en (?:charge|occupe)) ",
        r"START(?:assure-toi|assurez-vous|veillez? à|évitez?|préfère|préférez|souviens-toi|rappelle-toi|interdiction|règle) ",
        r"START(?:réponds|répondez|écris|écrivez|parle|parlez|commente|commentez) SOMEen LANGUAGE",
        r"START(?:je|nous) ne (?:veux|voulons) (?:pas|plus|aucun|aucune) (?:de |d'|que )",
        r"STARTseule?s? SOME(?:peut|peuvent|doit|doivent) ",
        r"START(?:garde|gardez|laisse|laissez) SOME(?:courts?|courtes?|petits?|petites?|tels? quels?|telles? quelles?|intacte?s?|inchangée?s?|stables?) ",
        r"START(?:on|nous) (?:utilise|utilisons|écrit|écrivons|préfère|préférons) SOME(?:\| )?(?:ici|pas|plutôt|uniquement) ",
        r"START(?:ici|dans ce projet)(?: \|)? (?:on|nous) (?:utilise|utilisons|écrit|écrivons) ",
        r"START(?:tous|toutes) les SOMEsont (?:toujours |obligatoirement )?en ",
        r"STARTles MANYdoivent |START(?:préviens|avertis|demande|consulte|prévenez|demandez)-(?:moi|nous) avant ",
        r" (?:notre|la) (?:convention|règle|norme) est ",
        r" (?:jusqu'à nouvel ordre|pour le reste (?:de|du)|dès aujourd'hui) |START(?:en cas de doute|sauf (?:indication|avis) contraire) ",
        r" prière de ne | merci d'éviter |STARTveuillez (?:ne|n'WORD) |START(?:fais|faites) (?:attention à|en sorte) |STARTprends soin |STARTpense (?:toujours )?à ",
        r"START(?:limite|limitez|limite-toi|contente-toi) (?:[^ |]+ ){0,4}(?:à|au|aux|sur|du|de) |START(?:reste|restez) (?:sur|dans|en) |START(?:réponds|répondez) SOME(?:maximum|au plus) ",
        r"START(?:utilise|utilisez|prends|préfère|écris) SOME(?:plutôt que|au lieu de) | (?:doit|doivent) rester | doivent être en ",
        r" (?:tu dois|vous devez) me (?:demander|consulter|prévenir|avertir) | il est (?:important|essentiel|impératif|indispensable|crucial) (?:que|de|d'[^ |]+) |START(?:chaque fois que (?:tu|vous)|à chaque WORD\|) ",
        r" (?:j'aimerais|je voudrais|je veux) que (?:tous|toutes) |START(?:garde|gardez) en tête |START(?:tutoie|vouvoie)-moi ",
    ])
});

pub(super) fn states_rule(flat: &str) -> bool {
    const REPORTED: &str =
        "dit|disait|prétend|pense que|pense qu'il|pense qu'on|croit|estime que|selon|recommande";
    const OWN: &str = "j'ai dit|je dis|j'ai déjà dit|je te dis|je pense";
    let flat = before_report(flat, REPORTED, OWN);
    // What one cannot or does not do here, other than "on ne sait pas".
    const STATES: &str = "sait|peut|voit|comprend|trouve|connaît|veut|dit|va|est|a|doit|reçoit|arrive|parvient|peux|pourra|\
        avait|pouvait|était|voyait|perd|gagne|risque";
    // An imperative has no subject, so if it is negative, its clause begins with *ne*.
    let is_ban = clauses(flat).any(|clause| match behind(clause, TONGUE.fillers)[..] {
        ["ne", "sais" | "marche" | "t'inquiète" | "t'inquiètes", ..] => false,
        ["ne", "vous" | "te", "inquiétez" | "inquiète", ..] => false,
        ["ne", ..] => true,
        ["on", "ne", verb, "pas" | "plus" | "jamais", ..] => !lists(STATES, verb),
        ["on", verb, "uniquement" | "seulement", ..] => !lists(STATES, verb),
        ["n'y", "a" | "est", ..] => false,
        ["on", verb, "pas" | "plus" | "jamais", ..] => {
            verb.starts_with("n'") && !lists("n'a|n'est|n'arrive|n'aura", verb)
        }
        [first, ..] => first.starts_with("n'") && !lists("n'importe|n'est|n'a|n'ai", first),
        [] => false,
    });
    // If the first word is joined to an article or a pronoun, it is a subject and the clause a
    // report.
    let is_verb = |words: &[&str]| {
        let joined = ["l'", "j'", "c'", "d'"];
        let first = words.first();
        first.is_some_and(|first| !joined.iter().any(|word| first.starts_with(word)))
    };
    let bare = without_pronouns(flat);
    is_ban
        || BAN.is(flat)
        || PATTERNS.is_match(flat)
        || bare.is_some_and(|bare| PATTERNS.is_match(&bare))
        || TONGUE.states_rule(flat, is_verb)
}

/// Returns the sentence without the pronouns that follow imperatives, if it has any: *réponds* of
/// *réponds-moi*.
fn without_pronouns(flat: &str) -> Option<String> {
    const PRONOUNS: [&str; 9] = [
        "-moi ", "-nous ", "-le ", "-la ", "-les ", "-lui ", "-leur ", "-en ", "-y ",
    ];
    let has_any = PRONOUNS.iter().any(|pronoun| flat.contains(pronoun));
    let without = |text: String, pronoun: &&str| text.replace(pronoun, " ");
    has_any.then(|| PRONOUNS.iter().fold(flat.to_owned(), without))
}
