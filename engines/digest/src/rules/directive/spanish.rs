//! Rules in Spanish.

use std::sync::LazyLock;

use regex::RegexSet;

use super::patterns::set;
use super::tongue::{Ban, Tongue, before_report};
use super::words::{behind, clauses, lists};

/// Common words, also of other languages.
pub(super) const COMMON: &str = "el|la|los|las|y|es|de|que|en|una|para|por|con|sin|nunca|siempre|del|no|al|antes|cada|\
    todos|todas|solo|sólo|lo|hay|te";

const TONGUE: Tongue = Tongue {
    adverbs: "nunca|jamás|siempre|solo|sólo|solamente|únicamente|antes de cada|\
        después de cada|en cada",
    modals: "debe|deben|debes|tiene que|tienen que|tienes que|hay que",
    all: "cada|todos|todas|todo|toda",
    not_first: "si|yo|eso|esto|él|ella|el|la|los|las|un|una|mi|por|ayer|se|lo|este|esta|he|ha|casi|antes|después",
    reports: "falla|fallan|funciona|funcionó|rompe|arranca|ha|he|había|llega|llegan|pasa|ocurre|tarda|sale|era|fue",
    fillers: "y|pero|luego|entonces|ok|favor|porfa",
};

const BAN: Ban = Ban {
    starts: &[
        "nada de ", "ningún ", "ninguna ", "sin ", "cero ", "no más ",
    ],
    not_in: "idea|problema|problemas|duda|error|errores|cambio|cambios|es|son|ha|han|hay|está|están|fue|embargo|eso|\
        respuesta|resultado|prisa",
    orders: "usa|usad|utiliza|prefiere|escribe",
};

static PATTERNS: LazyLock<RegexSet> = LazyLock::new(|| {
    set(&[
        r" (?:a partir de ahora|desde ahora|en adelante|bajo ningún concepto|bajo ninguna circunstancia|en ningún caso) ",
        r" (?:prohibido|es obligatorio|sin (?:mi|preguntar|preguntarme)|(?:a menos|salvo) que|excepto si|pregúntame) ",
        r" (?:no (?:debes?|deben|puedes)|debe siempre|(?:nunca|siempre) debe|por favor no|prefiero) ",
        r"START(?:asegúrate|asegúrese|recuerda|evita|evite|prefiere|no olvides|ni se te ocurra|regla) ",
        r"START(?:responde|responda|escribe|escriba|habla|comenta|contesta) SOMEen LANGUAGE",
        r"START(?:yo )?no quiero (?:que |MANY)",
        r"START(?:aquí |en este proyecto )?(?:usamos|utilizamos|escribimos) SOME(?:\| )?(?:aquí|no|siempre|en vez de|en lugar de) ",
        r"START(?:aquí|en este proyecto) (?:usamos|utilizamos|escribimos) ",
        r" no se (?:permite|permiten|debe|deben|toca|tocan|admite|admiten|puede modificar|puede cambiar|puede tocar|puede usar|pueden modificar|pueden usar) ",
        r"START(?:deja|deje|dejad|mantén|mantenga|conserva) SOME(?:estables?|cortas?|cortos?|breves?|sencill[ao]s?|como está|como están|intacta|intacto|intactos|intactas|en paz|sin tocar) ",
        r"STARTdebes ",
        r"START(?:todos|todas) (?:los|las) SOME(?:van|deben ir) en ",
        r"START(?:los|las) MANYdeben |START(?:avísame|pregúntame|consúltame|avísanos) antes ",
        r" (?:nuestra|la) (?:convención|norma|regla) es ",
        r" (?:hasta nuevo aviso|por el resto|en lo sucesivo|de aquí en adelante) |STARTen el futuro \||STARTdesde hoy [^ |]+mos ",
        r" (?:quiero|querría|me gustaría) que (?:todos|todas) | (?:te|le) (?:pido|ruego) que no | haz el favor de no |START(?:deja|deje|dejad) de [^ |]+r (?:(?:WORD)?(?:a|en|el|la|los|las|un|una)|[^ |]+s) | (?:es|son|está|están) (?:intocables?|tabú|sagrad[oa]s?|prohibid[oa]s?) ",
        r" me gustan más SOMEque | pregunta (?:primero|antes) |r(?:l[oae]s?)? (?:l[oa]s? (?:hago|decido)|me encargo) yo |START(?:cada|todos|todas) SOME(?:lleva|llevan|requiere|requieren) ",
        r" no quiero (?:ningún|ninguna|nada de) | no quiero SOMEen (?:est[ea]|mi|nuestr[oa]) ",
        r"START(?:procura (?:no|que|siempre)|ten cuidado|ten presente|cuida|fíjate|ojo con|acuérdate) |START(?:en caso de duda|salvo indicación) ",
        r"START(?:limita|limite|limítate|quédate|restringe) SOME(?:a|en) |START(?:responde|responda) SOMEmáximo |STARTtutéame ",
        r"START(?:usa|use|utiliza|escribe|prefiere) SOME(?:en vez del?|en lugar del?) |STARTcada vez que [^ |]+[ea]s SOME\| WORD",
        r" (?:debe|deben) (?:seguir|quedar|permanecer) | tienen que (?:ir|estar) | es (?:importante|imprescindible|esencial|crucial|indispensable|obligatorio) que ",
        r" (?:tienes que|debes|hay que) (?:pedirme|preguntarme|avisarme|preguntar antes) |STARTy sobre todo no ",
    ])
});

pub(super) fn states_rule(flat: &str) -> bool {
    const REPORTED: &str =
        "dice|dijo|dicen|cree que|creen que|piensa que|piensan que|opina|según|recomienda";
    const OWN: &str = "como dije|ya dije|te digo|he dicho";
    let flat = before_report(flat, REPORTED, OWN);
    // A negative imperative is *no* and a subjunctive, which ends in -es or -as if the user says
    // *tú*. If a common verb ends so in the indicative, too, it is listed: "no sabes" is a report.
    const KNOWN: &str = "issues|changes|files|lines|types|matches|failures|preocupes|molestes|apures|asustes|eres|es|vas|sabes|quieres|tienes|puedes|las|has|más|estás|existes";
    let is_ban = clauses(flat).any(|clause| {
        let verb = match behind(clause, TONGUE.fillers)[..] {
            ["no", "me" | "lo" | "la" | "los" | "te" | "se", verb, ..] if !lists(KNOWN, verb) => {
                verb
            }
            ["no", verb, ..] if !lists(KNOWN, verb) => verb,
            _ => return false,
        };
        verb.len() > 3 && (verb.ends_with("es") || verb.ends_with("as"))
    });
    // "Siempre usamos tabuladores" is a convention, and "siempre tuvimos problemas" is a report.
    const CONVENTIONS: &str = "usamos|utilizamos|escribimos|hacemos|trabajamos";
    let is_report = || {
        let words: Vec<&str> = flat.split_whitespace().collect();
        words.windows(2).any(|two| match two {
            ["no", "siempre"] => true,
            ["siempre" | "nunca" | "jamás", verb] => {
                let is_past = [
                    "mos", "aba", "aban", "ía", "ían", "ó", "é", "í", "aron", "ieron",
                ];
                is_past.iter().any(|end| verb.ends_with(end)) && !lists(CONVENTIONS, verb)
                    || lists("pude|hice|tuve|supe|vi", verb)
            }
            _ => false,
        })
    };
    let bare = without_pronouns(flat);
    is_ban
        || BAN.is(flat)
        || PATTERNS.is_match(flat)
        || bare.is_some_and(|bare| PATTERNS.is_match(&bare))
        || TONGUE.states_rule(flat, |words| !words.is_empty()) && !is_report()
}

/// Returns the sentence without the pronouns that are joined to imperatives, if it has any: *responde*
/// of *respóndeme*. With such a pronoun, a vowel of the verb has an accent.
fn without_pronouns(flat: &str) -> Option<String> {
    const PRONOUNS: [&str; 8] = ["me", "nos", "lo", "la", "los", "las", "le", "les"];
    const PLAIN: [(char, &str); 5] = [('á', "a"), ('é', "e"), ('í', "i"), ('ó', "o"), ('ú', "u")];
    let verb_of = |word: &str| {
        let verb = PRONOUNS.iter().find_map(|end| word.strip_suffix(end))?;
        let (accent, plain) = PLAIN.iter().find(|(accent, _)| verb.contains(*accent))?;
        (verb.chars().count() > 3).then(|| verb.replace(*accent, plain))
    };
    let words = || flat.split(' ');
    let bare = || words().map(|word| verb_of(word).unwrap_or_else(|| word.to_owned()));
    let has_any = words().any(|word| verb_of(word).is_some());
    has_any.then(|| bare().collect::<Vec<_>>().join(" "))
}
