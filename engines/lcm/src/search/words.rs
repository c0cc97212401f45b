//! What is known of English words: which say nothing of what a text is about, which are forms of one
//! word, and which mean nearly the same. General language only; other languages go without.

use rust_stemmers::{Algorithm, Stemmer};

/// Words that say nothing of what a question is about.
const STOP_WORDS: &str = "a about above after again against all also am an and any are aren as at be \
    because been before being below between both but by can cannot could couldn d did didn do does \
    doesn doing don down during each either else ever every few for from further get gets got had \
    hadn has hasn have haven having he her here hers herself him himself his how i if in into is isn \
    it its itself just kind ll many may me might mine more most much must my myself no nor not \
    of off on once one only or other our ours ourselves out over own please re s same say says shall \
    she should so some such t tell than that the their theirs them themselves then there these they \
    thing things this those through to too under until up upon us ve very was wasn we were what when \
    where which while who whom whose why will with would wouldn you your yours yourself yourselves";

/// Irregular forms, each line led by the form that stands for all of them.
const IRREGULAR: &str = "\
be is are was were been being
become became
begin began begun
bite bit bitten
blow blew blown
break broke broken
bring brought
build built
buy bought
catch caught
child children
choose chose chosen
come came
deal dealt
draw drew drawn
drink drank drunk
drive drove driven
eat ate eaten
fall fell fallen
feel felt
fight fought
find found
fly flew flown
foot feet
forget forgot forgotten
freeze froze frozen
get got gotten
give gave given
go went gone
grow grew grown
hear heard
hide hid hidden
hold held
keep kept
know knew known
lead led
leave left
lend lent
life lives
lose lost
make made
man men
mean meant
meet met
mouse mice
pay paid
person people
ride rode ridden
ring rang rung
rise rose risen
run ran
say said
see saw seen
sell sold
send sent
shake shook shaken
sing sang sung
sit sat
sleep slept
speak spoke spoken
spend spent
stand stood
steal stole stolen
swim swam swum
take took taken
teach taught
tell told
think thought
throw threw thrown
tooth teeth
understand understood
wake woke woken
wear wore worn
wife wives
win won
woman women
write wrote written";

/// Words that are often said for one another.
const SYNONYMS: &str = "\
answer reply respond response
app application program
apartment flat
baby newborn
begin start
big large huge
bike bicycle
birthday born
boss manager supervisor
bug defect error failure fault issue problem
build construct create make
buy order purchase
car vehicle
child kid son daughter
city town
cost price fee pay
delete erase remove
doctor physician
email mail
end finish complete
favorite favourite love prefer like
fast quick
film movie
fix mend repair resolve solve
friend buddy
gift present
happy glad
hobby interest pastime
holiday trip travel vacation visit
home house live
hurt injury pain
idea suggestion
ill sick
job work occupation career profession
location place
meal dinner lunch
mother mom mum
father dad
partner spouse wife husband married
pet dog cat
phone call
photo picture image
plan intend
quit leave resign
research study
salary wage
school college university
shop store
speak talk
address street
age old
allergy allergic
deadline due
duration length long
money budget";

/// The forms of words.
pub(super) struct Words {
    stemmer: Stemmer,
}

impl Words {
    pub(super) fn new() -> Self {
        Self {
            stemmer: Stemmer::create(Algorithm::English),
        }
    }

    /// What all forms of a folded word share.
    pub(super) fn stem(&self, word: &str) -> String {
        let base = line_of(IRREGULAR, word)
            .and_then(|line| line.split(' ').next())
            .unwrap_or(word);
        self.stemmer.stem(base).into_owned()
    }

    /// The stems of words that mean nearly the same as the one with this stem.
    pub(super) fn synonyms(&self, stem: &str) -> Vec<String> {
        let mut found: Vec<String> = SYNONYMS
            .lines()
            .map(|line| {
                line.split(' ')
                    .map(|word| self.stem(word))
                    .collect::<Vec<_>>()
            })
            .filter(|stems| stems.iter().any(|other| other == stem))
            .flatten()
            .filter(|other| other != stem)
            .collect();
        found.sort();
        found.dedup();
        found
    }
}

/// The irregular forms that share a stem with a word whose stem this is.
pub(super) fn irregular_forms(words: &Words, stem: &str) -> Vec<&'static str> {
    IRREGULAR
        .lines()
        .filter(|line| {
            line.split(' ')
                .next()
                .is_some_and(|base| words.stemmer.stem(base) == stem)
        })
        .flat_map(|line| line.split(' ').skip(1))
        .collect()
}

/// Whether a folded word says nothing of what a question is about.
pub(super) fn is_stop_word(word: &str) -> bool {
    STOP_WORDS.split_whitespace().any(|stop| stop == word)
}

fn line_of(table: &'static str, word: &str) -> Option<&'static str> {
    table
        .lines()
        .find(|line| line.split(' ').any(|form| form == word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_share_a_stem() {
        let words = Words::new();
        for (a, b) in [
            ("went", "going"),
            ("bought", "buys"),
            ("children", "child"),
            ("ponies", "pony"),
        ] {
            assert_eq!(words.stem(a), words.stem(b), "{a} and {b}");
        }
        assert_ne!(words.stem("universe"), words.stem("unit"));
        assert!(irregular_forms(&words, &words.stem("go")).contains(&"went"));
    }

    #[test]
    fn synonyms_go_both_ways() {
        let words = Words::new();
        assert!(
            words
                .synonyms(&words.stem("purchased"))
                .contains(&words.stem("bought"))
        );
        assert!(
            words
                .synonyms(&words.stem("buy"))
                .contains(&words.stem("purchase"))
        );
    }
}
