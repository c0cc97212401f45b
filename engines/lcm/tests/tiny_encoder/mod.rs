//! A sentence encoder of one layer that is made up: the vector of a text is the mean of its words, and words of one
//! meaning have the same.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub, dead_code)]

use std::path::Path;

/// As many as there are words, at least.
const WIDTH: usize = 48;
const WORDS: &str = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n.\n?\nthe\ndoctor\nstethoscope\nmoved\nto\ntuesday\ngarden\nscarecrow\nneeds\nwater\nwe\n\
    painted\npaint\nfence\nbread\ncrumbs\nwas\ngood\nhis\nsurgery\ncalled\na\nof\nrye\nand\nagain\nis\non";

/// Writes the encoder into a folder; of each group of words all have one meaning.
pub fn write_encoder(folder: &Path, meanings: &[&[&str]]) {
    std::fs::create_dir_all(folder).unwrap();
    std::fs::write(folder.join("vocab.txt"), WORDS).unwrap();
    let words: Vec<&str> = WORDS.lines().collect();
    let mut vectors = vec![vec![0f32; WIDTH]; words.len()];
    for (at, word) in words.iter().enumerate() {
        // The others mean nothing.
        if word.len() > 3 && !word.starts_with('[') {
            vectors[at][at] = 1.0;
        }
    }
    for meaning in meanings {
        let of = |word: &str| words.iter().position(|known| *known == word).unwrap();
        for word in &meaning[1..] {
            vectors[of(word)] = vectors[of(meaning[0])].clone();
        }
    }
    let mut graph = Vec::new();
    let table = vectors.concat();
    tensor(
        &mut graph,
        "embeddings.word_embeddings.weight",
        &[words.len(), WIDTH],
        &table,
    );
    tensor(
        &mut graph,
        "embeddings.position_embeddings.weight",
        &[128, WIDTH],
        &[0.0; 128 * WIDTH],
    );
    tensor(
        &mut graph,
        "embeddings.token_type_embeddings.weight",
        &[2, WIDTH],
        &[0.0; 2 * WIDTH],
    );
    let layer = "encoder.layer.0";
    for name in [
        "embeddings".to_owned(),
        format!("{layer}.attention.output"),
        format!("{layer}.output"),
    ] {
        tensor(
            &mut graph,
            &format!("{name}.LayerNorm.weight"),
            &[WIDTH],
            &[1.0; WIDTH],
        );
        tensor(
            &mut graph,
            &format!("{name}.LayerNorm.bias"),
            &[WIDTH],
            &[0.0; WIDTH],
        );
    }
    // A layer that adds nothing.
    for name in [
        "attention.self.query",
        "attention.self.key",
        "attention.self.value",
        "attention.output.dense",
        "intermediate.dense",
        "output.dense",
    ] {
        let bias = format!("{layer}.{name}.bias");
        tensor(&mut graph, &bias, &[WIDTH], &[0.0; WIDTH]);
        tensor(
            &mut graph,
            &format!("weights of {name}"),
            &[WIDTH, WIDTH],
            &[0.0; WIDTH * WIDTH],
        );
        let product = format!("product of {name}");
        node(
            &mut graph,
            "MatMul",
            &["state", &format!("weights of {name}")],
            &product,
        );
        node(
            &mut graph,
            "Add",
            &[&product, &bias],
            &format!("sum of {name}"),
        );
    }
    let mut file = Vec::new();
    bytes(&mut file, 7, &graph);
    std::fs::write(folder.join("model.onnx"), file).unwrap();
}

fn tensor(graph: &mut Vec<u8>, name: &str, shape: &[usize], values: &[f32]) {
    let mut out = Vec::new();
    for size in shape {
        number(&mut out, 1, *size as u64);
    }
    number(&mut out, 2, 1);
    bytes(&mut out, 8, name.as_bytes());
    let raw: Vec<u8> = values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    bytes(&mut out, 9, &raw);
    bytes(graph, 5, &out);
}

fn node(graph: &mut Vec<u8>, operation: &str, inputs: &[&str], output: &str) {
    let mut out = Vec::new();
    for input in inputs {
        bytes(&mut out, 1, input.as_bytes());
    }
    bytes(&mut out, 2, output.as_bytes());
    bytes(&mut out, 4, operation.as_bytes());
    bytes(graph, 1, &out);
}

fn varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 128 {
        out.push(number as u8 | 128);
        number >>= 7;
    }
    out.push(number as u8);
}

fn number(out: &mut Vec<u8>, field: u64, value: u64) {
    varint(out, field << 3);
    varint(out, value);
}

fn bytes(out: &mut Vec<u8>, field: u64, value: &[u8]) {
    varint(out, field << 3 | 2);
    varint(out, value.len() as u64);
    out.extend(value);
}
