//! Shapes of rules that English, German, French and Spanish share: a condition, a limit, a wish, and a
//! statement with a label.

use std::sync::LazyLock;

use regex::RegexSet;

use super::patterns::set;
use super::words::{behind, clauses, has, lists};

/// The first one is a label.
static SHAPES: LazyLock<RegexSet> = LazyLock::new(|| {
    // A wish is for a kind of thing, or about how somebody works.
    const WISH: &str = r"(?: (?:it would|it'd|that would) be (?:WORD)?(?:great|nice|good|helpful|better|lovely) if| appreciate it if| (?:i|we) (?:want|would like|need) you to| i'd like you to| (?:schön|gut|toll|nett|super|prima|hilfreich) wäre (?:es )?(?:\| )?wenn| wäre (?:es )?(?:WORD)?(?:schön|gut|toll|nett|super|prima|hilfreich) (?:\| )?wenn| (?:möchte|will|wünsche mir) (?:\| )?dass| (?:ce|ça) serait (?:WORD)?(?:bien|sympa|bon|super|gentil|mieux) (?:que|si)| (?:j'aimerais|je voudrais|je veux|je souhaite) que| (?:estaría|sería) (?:WORD)?(?:bien|bueno|genial|mejor) (?:que|si)| (?:quiero|querría|quisiera|me gustaría|agradecería) que) ";
    const MOST: &str = "(?:max|maximum|maximal|höchstens|máximo|at most|no more than|como mucho|como máximo|au plus|au maximum) ";
    const EACH: &str = "(?:per|each|every|in|for|pro|je|für|par|pour|chaque|por|para|cada) ";
    let of_all = format!(
        "{WISH}(?:each|every|keep (?:each|every|all|the)|jede[rsnm]?|chaque|cada|(?:WORD){{0,8}}(?:always|never|immer|nie|niemals|toujours|jamais|siempre|nunca)) "
    );
    let of_way = format!(
        "{WISH}(?:(?:you|du|tu|vous|me|nos) (?:WORD){{0,5}}(?:didn't|don't|not|stopped|before|nicht|keine?n?|bevor|ne|n'[^ |]+|pas|plus|avant|antes)|not|no) "
    );
    set(&[
        r"START(?:(?:very|sehr|très|muy) )?(?:important|wichtig|achtung|attention|importante|ojo|atención|keep in mind|bear in mind|note|beachte|bedenke|garde en tête|note bien|ten en cuenta|ten presente) (?:\| (?:dass |que )?|that |que |qu')WORD",
        &of_all,
        &of_way,
        // A limit, which needs no verb: "Max 160 characters per message."
        &format!(r"START{MOST}NUMBER(?:WORD|(?:WORD){{1,2}}{EACH}(?:WORD){{0,3}})(?:\| )?$"),
        &format!(r"STARTNUMBER(?:WORD){{1,2}}{MOST}(?:{EACH}(?:WORD){{0,3}})?(?:\| )?$"),
    ])
});

/// Whether a sentence has one of the shapes.
pub(super) fn states_rule(flat: &str) -> bool {
    // What is so today, or has happened, is news and no rule.
    const NEWS: &str = "i|i'm|i've|i'll|already|now|today|yesterday|tomorrow|currently|was|were|had|ich|schon|bereits|\
        gerade|jetzt|heute|gestern|morgen|war|waren|wurde|je|j'ai|déjà|maintenant|aujourd'hui|hier|demain|était|ya|\
        ahora|hoy|ayer|mañana|he|estoy|acabo|había|era|down|broken|kaputt|viens|tombé|cassé|caído|roto";
    let shapes = SHAPES.matches(flat);
    shapes.iter().any(|shape| shape > 0 || !has(flat, NEWS)) || is_condition(flat)
}

/// Whether a sentence says what to do each time that a thing of a kind is changed: "If you rename a
/// column, update the index."
fn is_condition(flat: &str) -> bool {
    const FILLERS: &str = "please|and|also|but|just|bitte|und|aber|et|mais|y|pero";
    const WHEN: &str =
        "if|when|once|before|after|si|quand|lorsque|dès|avant|après|cuando|antes|después";
    const WHEN_GERMAN: &str = "wenn|falls|sobald|bevor|ehe|nachdem";
    const BEFORE: &str = "before|after|on|at|vor|nach|bei|avant|après|à|antes|después|en";
    const EACH: &str = "each|every|jedem|jeder|chaque|cada";
    const BEFORE_VERBS: &str = "you|du|tu|vous|usted|que|de";
    // How verbs of change begin.
    const CHANGES: &str = "add|chang|renam|remov|delet|creat|drop|mov|edit|modif|install|upgrad|introduc|push|merg|\
        deploy|publi|send|replac|restart|kill|änder|umbenenn|hinzufüg|entfern|lösch|erstell|anleg|verschieb|bearbeit|\
        ersetz|beend|veröffentlich|verschick|ajout|renomm|supprim|effac|cré|déplac|remplac|envo|tuer|tues|añad|agreg|cambi|\
        renombr|borr|elimin|muev|reemplaz|instal|envi|mata";
    const A_KIND: &str = "a|an|any|another|ein|eine|einen|un|une|una|cualquier|algún|alguna";
    const ONE: &str = "the|this|that|these|those|it|them|my|your|der|die|das|den|dem|diese|dieses|diesen|sie|es|mein|\
        meine|deine|le|la|les|ce|cet|cette|ces|ton|ta|mon|ma|el|los|las|lo|este|esta|ese|esa|tu|mi";
    // What a clause begins with that tells something.
    const SUBJECTS: &str = "i|it|it's|we|they|he|she|you|the|this|that|there|a|an|my|your|all|nothing|everything|would|can|\
        could|should|will|is|are|does|do|what|why|how|then|das|der|die|es|ist|sind|ich|wir|er|sie|ein|eine|wird|kann|\
        gibt|passiert|alles|nichts|le|la|les|il|elle|on|ça|c'est|je|un|une|tout|rien|el|los|las|lo|un|una|se|hay|es|\
        todo|nada";
    let clauses: Vec<&str> = clauses(flat).collect();
    clauses.windows(2).any(|two| {
        let (when, order) = (behind(two[0], FILLERS), behind(two[1], FILLERS));
        let mut words = when.into_iter();
        let first = words.next().unwrap_or_default();
        let next = words.clone().next().unwrap_or_default();
        let verb = match (lists(WHEN, first), lists(WHEN_GERMAN, first)) {
            (true, _) => words.find(|word| !lists(BEFORE_VERBS, word)),
            // The verb is the last word.
            (_, true) if next == "du" => words.next_back(),
            _ => None,
        };
        let is_change = verb.is_some_and(|verb| {
            // "Si cambio un archivo" is about the speaker.
            let is_yours = ["ing", "s", "r"].iter().any(|end| verb.ends_with(end));
            (is_yours || lists(BEFORE_VERBS, next))
                && CHANGES.split('|').any(|stem| verb.starts_with(stem))
        });
        let is_each = lists(EACH, next) && lists(BEFORE, first);
        (is_each || is_change && (has(two[0], A_KIND) || !has(two[0], ONE)))
            && order.first().is_some_and(|first| !lists(SUBJECTS, first))
    })
}
