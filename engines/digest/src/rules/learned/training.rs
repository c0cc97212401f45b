//! Makes the weights from the sentences, and tests them.
//!
//! `CONTEXTURE_UPDATE_WEIGHTS=1 cargo test -p contexture-digest learned` writes the weights anew, for
//! instance after sentences were added. A line of a file has a label (1 for a rule), a kind and the
//! sentence, with tabs between them.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

use std::fs;
use std::path::Path;

use super::super::words::lowered;
use super::*;

/// How often each sentence is learned from.
const ROUNDS: usize = 10;
/// How strongly weights are drawn to zero, so that the model learns words and not sentences.
const DECAY: f32 = 1e-3;
/// A feature that fewer sentences have gets no weight.
const RARE: u32 = 2;

struct Example {
    sentence: String,
    features: Vec<u32>,
    is_rule: bool,
}

fn examples() -> Vec<Example> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("sentences");
    let files = fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path());
    let mut files: Vec<_> = files
        .filter(|file| file.extension().is_some_and(|end| end == "tsv"))
        .collect();
    files.sort();
    let texts = files.iter().map(|file| fs::read_to_string(file).unwrap());
    let lines: Vec<String> = texts
        .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    let read = |line: &String| {
        let [label, _, sentence] = line.split('\t').collect::<Vec<_>>().try_into().unwrap();
        let sentence = lowered(sentence);
        Example {
            features: features(&sentence),
            sentence,
            is_rule: label == "1",
        }
    };
    lines.iter().map(read).collect()
}

/// Stochastic gradient descent, in an order that is the same each time. Returns the mean of the weights
/// over the second half of the rounds.
fn train(examples: &[&Example]) -> Vec<f32> {
    let mut weights = vec![0.0_f32; BUCKETS];
    let mut total = vec![0.0_f32; BUCKETS];
    let mut counts = vec![0; BUCKETS];
    for feature in examples.iter().flat_map(|example| &example.features) {
        counts[*feature as usize] += 1;
    }
    let mut order: Vec<usize> = (0..examples.len()).collect();
    let mut random = 1_u64;
    for round in 0..ROUNDS {
        for at in (1..order.len()).rev() {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            order.swap(at, (random >> 33) as usize % (at + 1));
        }
        let rate = 0.2 / (1.0 + round as f32 / 2.0);
        for at in &order {
            let example = examples[*at];
            let odds = sum(&example.features, |feature| weights[feature as usize]);
            let wrong = f32::from(u8::from(example.is_rule)) - 1.0 / (1.0 + (-odds).exp());
            let share = share(&example.features);
            for feature in example
                .features
                .iter()
                .filter(|feature| counts[**feature as usize] >= RARE)
            {
                let weight = &mut weights[*feature as usize];
                *weight += rate * (wrong * share - DECAY * *weight);
            }
        }
        if round >= ROUNDS / 2 {
            total
                .iter_mut()
                .zip(&weights)
                .for_each(|(total, weight)| *total += weight);
        }
    }
    total
        .iter()
        .map(|total| total / (ROUNDS - ROUNDS / 2) as f32)
        .collect()
}

fn quantised(weights: &[f32]) -> Vec<u8> {
    let units = weights
        .iter()
        .map(|weight| (weight / UNIT).round().clamp(-127.0, 127.0) as i8);
    units.map(i8::cast_unsigned).collect()
}

#[test]
fn the_weights_come_from_the_sentences() {
    let examples = examples();
    let all: Vec<&Example> = examples.iter().collect();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("sentences/weights.bin");
    let trained = train(&all);
    if std::env::var_os("CONTEXTURE_UPDATE_WEIGHTS").is_some() {
        fs::write(&file, quantised(&trained)).unwrap();
        return;
    }
    // Rounding differs between machines, by less than decides a sentence.
    let agree = all.iter().filter(|example| {
        let odds = sum(&example.features, |feature| trained[feature as usize]);
        (odds > 0.0) == (score(&example.sentence) > 0.0)
    });
    assert!(agree.count() * 100 > all.len() * 99);
}

/// Each fifth of the sentences is judged by what the others teach.
#[test]
fn rules_are_told_from_other_sentences_that_were_not_learned() {
    let examples = examples();
    let (mut found, mut rules, mut wrong, mut others) = (0, 0, 0, 0);
    for fold in 0..5 {
        let is_held_out = |at: usize| at / 7 % 5 == fold;
        let learned: Vec<&Example> = examples
            .iter()
            .enumerate()
            .filter(|(at, _)| !is_held_out(*at))
            .map(|(_, example)| example)
            .collect();
        let weights = train(&learned);
        for (_, example) in examples
            .iter()
            .enumerate()
            .filter(|(at, _)| is_held_out(*at))
        {
            let odds = sum(&example.features, |feature| weights[feature as usize]);
            let is_found = odds > 0.0;
            match example.is_rule {
                true => (found, rules) = (found + usize::from(is_found), rules + 1),
                false => (wrong, others) = (wrong + usize::from(is_found), others + 1),
            }
        }
    }
    println!(
        "found {found} of {rules} rules, and took {wrong} of {others} other sentences for rules"
    );
    assert!(found * 100 >= rules * 70, "{found} of {rules}");
    assert!(wrong * 100 <= others * 15, "{wrong} of {others}");
}
