//! Rules in German.

use std::sync::LazyLock;

use regex::RegexSet;

use super::patterns::set;
use super::tongue::{Ban, Tongue, before_report};
use super::words::{clauses, has, lists};

/// Common words, also of other languages.
pub(super) const COMMON: &str = "der|die|das|und|nicht|ist|ein|eine|den|dem|mit|auf|für|bitte|nie|niemals|immer|nur|\
    im|ohne|vor|du|kein|keine|zu|jede|jeder|jedes|sind|ab|in|es|bevor";

const TONGUE: Tongue = Tongue {
    adverbs: "nie|niemals|immer|nur|nicht|kein|keine|keinen|keinem|keinerlei|stets|jedes mal|vor jedem|vor jeder|\
        nach jedem|nach jeder|bei jedem|bei jeder",
    modals: "muss|müssen|darf|dürfen|soll|sollen|sollte|sollten|musst|darfst|sollst",
    all: "jede|jeder|jedes|alle|sämtliche",
    not_first: "ich|er|es|das|der|die|dieser|diese|dieses|sie|hier|da|seit|gestern|heute|bisher|leider|warum|wieso|\
        weil|ein|eine|meine|unsere|deine|habe|hätte|wäre|wurde|konnte|könnte|würde|alle|beide|welche|kein|keine|manche|\
        viele",
    reports: "fehl|funktioniert|klappt|abgestürzt|hängt|gefunden|gesehen|kaputt|fehlschlägt|hatte|hatten|war|waren|\
        wahr",
    fillers: "bitte|und|dann|aber|also|ok|oder",
};

const BAN: Ban = Ban {
    starts: &["keine ", "kein ", "keinerlei ", "bloß nicht ", "null "],
    not_in: "ahnung|ausgabe|zeit|lust|sorge|sorgen|problem|probleme|änderung|änderungen|fehler|ist|sind|war|waren|hat|\
        haben|gibt|geht|funktioniert|gefunden|mehr|wunder|antwort|ergebnis|unterschied|idee|frage",
    orders: "nimm|nutze|nutz|benutze|verwende|schreib|schreibe",
};

static PATTERNS: LazyLock<RegexSet> = LazyLock::new(|| {
    set(&[
        r" (?:auf keinen fall|unter keinen umständen|in jedem fall|grundsätzlich|ausschließlich) ",
        r" (?:ab (?:jetzt|sofort)|von (?:jetzt|nun) an|künftig|in zukunft) ",
        r" (?:darf|dürfen) (?:nicht|nie|niemals|nur|kein|keine) | soll(?:en|st)? (?:nie|immer) ",
        r" nicht ohne | ohne (?:meine?|zu fragen|rückfrage) | (?:ist|sind) (?:verboten|tabu|unantastbar) | nicht erlaubt | finger weg ",
        r" bitte (?:nie|niemals|immer|nur) | frage? mich | (?:erst|vorher|zuerst) (?:nach)?fragen? | es sei denn | merk dir | denke? daran ",
        r"START(?:(?:stelle?|stellen sie) sicher|achte(?:n sie)? darauf|achte immer|sorge dafür|vermeide(?:n sie)?) ",
        r"START(?:bevorzuge|vergiss nicht|nie wieder|regel) ",
        r"START(?:antworte|antworten sie|schreib|schreibe|sprich|kommentiere|erkläre) SOMEauf LANGUAGE",
        r"STARTbitte SOME(?:nicht|kein|keine|keinen|keinem) ",
        r"START(?:halt|halte|halten sie|lass|lasse|lassen sie|belass|belasse) SOME(?:kurz|knapp|klein|unverändert|in ruhe|so wie|wie es ist|wie sie sind|die finger|privat|stabil) ",
        r"START(?:vor|nach|bei) (?:jedem|jeder) SOME(?:muss|müssen|soll|sollen|läuft|laufen|[^ |]+st du) ",
        r"START(?:jede|jeder|jedes|alle) SOME(?:braucht|brauchen|benötigt|benötigen|bekommt|bekommen) ",
        r"STARTich (?:will|möchte) (?:keine|keinen|kein|nie|niemals) ",
        r"STARTwir (?:verwenden|nutzen|benutzen|schreiben) SOME(?:\| )?(?:hier|statt|nicht|immer|nur|keine|kein) ",
        r"START(?:hier|in diesem projekt) (?:verwenden|nutzen|benutzen|schreiben|gilt) ",
        r"(?: darf| dürfen) (?:nichts|niemand) | (?:nichts|niemand) SOME(?:darf|dürfen) ",
        r"START(?:halte dich|halten sie sich) an |STARTalle WORDauf LANGUAGE",
        r" nur auf LANGUAGE|START(?:sprich|nenn|nenne|sprechen sie|nennen sie) mich ",
        r"START(?:frag|frage|sag|warn|warne|informier|informiere) (?:mich|mir|uns) SOME(?:\| )?(?:bevor|vor) |STARTwenn du unsicher bist ",
        r"START(?:unsere|die) (?:konvention|regel|richtlinie|vorgabe) ist ",
        r" (?:für den rest (?:der|des|dieser|dieses)|bis auf weiteres|zukünftig|ab heute (?:[^ |]+en|gilt|nur|keine?|immer|bitte)) |START(?:im zweifel|sofern ich nichts anderes) ",
        r"START(?:pass auf|passen sie auf|vergewissere dich) |STARTjedes mal (?:\| )?wenn du |STARTsooft du ",
        r"START(?:bleib|bleibe|bleiben sie) bei |START(?:beschränke?|begrenze?|beschränken sie) SOME(?:auf|dich) ",
        r"START(?:antworte|antworten sie|schreib|schreibe|halte) SOMEhöchstens | haben höchstens ",
        r"START(?:nutze?|benutze|verwende|nimm|schreibe?) SOME(?:statt|anstatt|anstelle|lieber) | gehör(?:t|en) nicht ",
        r" (?:muss|müssen) SOMEbleiben |START(?:WORD)?[^ |]+(?:en|s) müssen SOMEsein (?:\| )?$| du musst (?:mich|immer) | brauchst du meine ",
        r" (?:mir|uns) SOMElieber als | hätte lieber |START(?:hör|höre|hören sie) SOMEauf (?:\| WORD|mit )| zu (?:vermeiden|unterlassen|beachten) (?:\| )?$",
        r"en (?:mache|übernehme|erledige|entscheide|werde|will) ich SOMEselb(?:st|er) | (?:haben|hat) (?:in|auf|bei) SOMEnichts (?:verloren|zu suchen) ",
        r" bleib(?:t|en) (?:\| )?(?:so |stabil |unverändert |unangetastet |wie (?:sie|er|es) )",
        r" es ist (?:wichtig|wesentlich|zwingend|unerlässlich) \| WORD|STARTduze? mich ",
    ])
});

pub(super) fn states_rule(flat: &str) -> bool {
    const REPORTED: &str = "sagt|sagte|meint|meinte|glaubt|glaubte|denkt|behauptet|empfiehlt|laut";
    const OWN: &str = "ich sagte|sagte ich|wie gesagt|ich sage";
    let flat = before_report(flat, REPORTED, OWN);
    BAN.is(flat)
        || PATTERNS.is_match(flat)
        || TONGUE.states_rule(flat, is_imperative)
        || clauses(flat).any(|clause| is_infinitive_order(clause) || is_custom(clause))
}

/// Whether a clause says what is not done here: "Kunden duzen wir nicht."
fn is_custom(clause: &str) -> bool {
    const STATES: &str = "haben|hatten|können|konnten|wissen|wussten|sehen|sahen|finden|fanden|wollen|wollten|werden|\
        wurden|brauchen|kennen|kannten|verstehen|müssen|waren|kommen|kamen|bekommen|sind|sollten|dürften|hören|glauben";
    let words: Vec<&str> = clause.split(' ').collect();
    words.windows(3).any(|three| match three {
        [
            verb,
            "wir",
            "nicht" | "nie" | "niemals" | "kein" | "keine" | "nur",
        ] => verb.ends_with("en") && !lists(STATES, verb),
        _ => false,
    })
}

/// Whether a clause begins with an imperative.
fn is_imperative(words: &[&str]) -> bool {
    const SHORT: &str = "schreib|lass|mach|führ|lösch|prüf|nutz|halt|nimm|frag|komm|geh|sag|benutz|verwend|\
        commit|push|test|gib|lies|setz|stell|füg|bau|leg|ruf|zeig|start|fass|änder|wir|pack|installier|\
        importier|merge|man|committe|pushe";
    // What follows a verb, and what else it may follow.
    const OBJECTS: &str = "mir|mich|uns|dir|dich|es|sie|ihn|ihnen|das|den|die|dem|ein|eine|einen|einem|kein|keine|\
        keinen|keinem|unsere|unseren|meine|meinen|diese|diesen|alle|jede|jeden|jedes|immer|nie|niemals|stets|bitte|nur";
    const NO_VERBS: &str = "auf|aus|bei|mit|nach|von|vor|für|zum|zur|durch|gegen|ohne|über|unter|zwischen|dass|wenn|weil|\
        aber|denn|doch|noch|auch|nur|wann|wer|wen|wem|was|wie|wo|ob|als|also|dann|damit|bis|seit|während|sonst|nun|\
        ich|dich|mich|sich|euch|kann|will|soll|darf|muss|wird|wurd|war|sind|hab|mag|weiß";
    let first = words.first().copied().unwrap_or_default();
    let second = words.get(1).copied().unwrap_or_default();
    // Imperatives end in -e, or in -en if the user is polite. In speech the -e is dropped. Then the
    // common ones are listed, and others are known by their object. A verb in -t tells of somebody.
    lists(SHORT, first)
        || first.len() > 3 && first.ends_with('e')
        || first.len() > 4 && first.ends_with("en")
        || first.len() > 3
            && !first.ends_with(['t', 's', 'r', 'y'])
            && lists(OBJECTS, second)
            && !lists(NO_VERBS, first)
}

/// Whether a clause is an order in the infinitive: "In scripts/ nur Tabs verwenden."
fn is_infinitive_order(clause: &str) -> bool {
    const WHICH: &str =
        "nie|niemals|immer|nur|nicht|kein|keine|keinen|keinerlei|stets|ausschließlich";
    const INFINITIVES: &str = "verwenden|nutzen|benutzen|schreiben|machen|setzen|lassen|prüfen|testen|fragen|ändern|\
        anfassen|löschen|committen|pushen|mergen|deployen|angeben|nehmen|antworten|halten|senden|schicken|ausführen|\
        anlegen|benennen|speichern|verschieben|entfernen|einfügen|öffnen|bearbeiten|ablegen|runden|übersetzen|duzen|siezen";
    // Words of a sentence with a finite verb.
    const FINITE: &str = "ich|wir|er|es|sie|man|wer|was|dass|wenn|weil|ob|um|zu|kann|können|konnte|konnten|\
        will|wollen|wollte|wollten|werden|wird|würde|würden|würdest|lässt|ließ|sollte|könnte|könntest|kannst|darf|dürfen|\
        muss|müssen|musst|soll|sollen|mag|möchte|möchten|haben|habe|hat|hatte|hatten|brauche|brauchst|braucht";
    let last = clause.rsplit(' ').next().unwrap_or_default();
    let is_relative = ["der ", "die ", "das "];
    !is_relative.iter().any(|word| clause.starts_with(word))
        && (lists(INFINITIVES, last) || last.ends_with("ieren"))
        && has(clause, WHICH)
        && !has(clause, FINITE)
}
