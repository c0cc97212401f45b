//! The forward pass of a BERT, on one core.
//!
//! The weights are 8-bit integers with a scale for each output, as small models store them. The
//! arithmetic uses 32-bit floats.
//!
//! [`Bert::read`] takes the weights from an ONNX file, and [`Bert::vector`] computes the vector of
//! a text. The hot loops are plain Rust that the compiler vectorises. They are compiled twice on
//! x86-64, once with AVX2 and FMA, and the version that the processor supports is chosen at run
//! time.

use crate::onnx::{Graph, Line, Matrix};

/// The number of attention heads. All small sentence encoders have twelve, whatever their width,
/// and the weights alone do not show it.
const HEADS: usize = 12;
/// The number of rows of the left matrix that are multiplied together. Their sums just fill the
/// registers of a core.
const ROWS: usize = 6;
/// The number of columns of the right matrix that are stored next to each other and can be loaded
/// together.
const LANES: usize = 16;
const EPSILON: f32 = 1e-12;

/// A BERT encoder with its weights, and the embeddings of words and positions in front of its
/// layers.
pub(super) struct Bert {
    words: Table,
    positions: Table,
    /// The embedding of the first part of a pair of texts. Here every text is a first part, and
    /// there is no second.
    token_type: Vec<f32>,
    norm: Norm,
    layers: Vec<Layer>,
}

struct Layer {
    query: Linear,
    key: Linear,
    value: Linear,
    attended: Linear,
    attended_norm: Norm,
    wide: Linear,
    narrow: Linear,
    norm: Norm,
}

/// A table of vectors, one per row. Each row consists of 8-bit integers and one scale.
struct Table {
    columns: usize,
    values: Vec<i8>,
    scales: Vec<f32>,
}

struct Norm {
    weight: Vec<f32>,
    bias: Vec<f32>,
}

/// A matrix to multiply by, with a bias. The columns are stored in groups of `LANES`, each group
/// row by row.
struct Linear {
    inputs: usize,
    weights: Vec<i8>,
    scales: Vec<f32>,
    bias: Vec<f32>,
}

impl Bert {
    pub(super) fn read(file: &[u8]) -> Result<Self, String> {
        let graph = Graph::read(file)?;
        let words = Table::of(&graph.matrix("embeddings.word_embeddings.weight")?);
        let width = words.columns;
        if width == 0 || !width.is_multiple_of(HEADS) {
            return Err(format!(
                "its vectors have {width} numbers, which {HEADS} heads cannot share"
            ));
        }
        // The number of layers is found by counting, since the file has no field for it.
        let mut layers = Vec::new();
        while graph.has(&format!(
            "encoder.layer.{}.attention.self.query.bias",
            layers.len()
        )) {
            layers.push(Layer::read(&graph, layers.len(), width)?);
        }
        if layers.is_empty() {
            return Err("it is not a BERT model: it has no attention layers".to_owned());
        }
        let positions = Table::of(&graph.matrix("embeddings.position_embeddings.weight")?);
        let token_type = graph.vector("embeddings.token_type_embeddings.weight")?;
        if positions.columns != width || token_type.len() != width {
            return Err("its embeddings have different widths".to_owned());
        }
        Ok(Self {
            words,
            positions,
            token_type,
            norm: Norm::read(&graph, "embeddings.LayerNorm", width)?,
            layers,
        })
    }

    /// Returns the number of word pieces that the model knows. A piece with a higher id would be
    /// out of range.
    pub(super) fn vocabulary(&self) -> usize {
        self.words.scales.len()
    }

    /// Returns the vector of a text, scaled to length 1. It is the mean of the last layer over all
    /// pieces. Pieces beyond the last position that the model knows are ignored.
    pub(super) fn vector(&self, ids: &[u32]) -> Vec<f32> {
        let ids = &ids[..ids.len().min(self.positions.scales.len())];
        #[cfg(target_arch = "x86_64")]
        if std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma") {
            // SAFETY: the processor has the features that the function is compiled for.
            #[allow(unsafe_code)]
            return unsafe { self.vector_by_avx2(ids) };
        }
        self.forward::<{ cfg!(target_arch = "aarch64") }>(ids)
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    fn vector_by_avx2(&self, ids: &[u32]) -> Vec<f32> {
        self.forward::<true>(ids)
    }

    // Everything below is inlined into its two callers, so that it is compiled once for each set of
    // processor features.
    #[inline(always)]
    fn forward<const FUSED: bool>(&self, ids: &[u32]) -> Vec<f32> {
        let width = self.words.columns;
        let mut state = Vec::with_capacity(ids.len() * width);
        for (position, id) in ids.iter().enumerate() {
            let word = self.words.row(*id as usize);
            let place = self.positions.row(position);
            let sums = word.zip(place).zip(&self.token_type);
            state.extend(sums.map(|((word, place), kind)| word + place + kind));
        }
        self.norm.apply(&mut state);
        let mut room = Room::default();
        for layer in &self.layers {
            layer.apply::<FUSED>(&mut state, &mut room);
        }
        let mut mean = vec![0f32; width];
        for row in state.chunks_exact(width) {
            for (sum, value) in mean.iter_mut().zip(row) {
                *sum += value;
            }
        }
        let length = mean.iter().map(|value| value * value).sum::<f32>().sqrt();
        for value in &mut mean {
            *value /= length.max(EPSILON);
        }
        mean
    }
}

/// The buffers that a layer computes in. All layers reuse them, so that a layer seldom has to
/// allocate.
#[derive(Default)]
struct Room {
    packed: Vec<f32>,
    query: Vec<f32>,
    key: Vec<f32>,
    value: Vec<f32>,
    attended: Vec<f32>,
    out: Vec<f32>,
}

impl Layer {
    fn read(graph: &Graph<'_>, number: usize, width: usize) -> Result<Self, String> {
        let name = |part: &str| format!("encoder.layer.{number}.{part}");
        let linear = |part: &str, inputs: usize| Linear::read(graph, &name(part), inputs);
        let norm = |part: &str| Norm::read(graph, &name(part), width);
        let wide = linear("intermediate.dense", width)?;
        let layer = Self {
            query: linear("attention.self.query", width)?,
            key: linear("attention.self.key", width)?,
            value: linear("attention.self.value", width)?,
            attended: linear("attention.output.dense", width)?,
            attended_norm: norm("attention.output.LayerNorm")?,
            narrow: linear("output.dense", wide.bias.len())?,
            wide,
            norm: norm("output.LayerNorm")?,
        };
        let as_wide = [
            &layer.query, &layer.key, &layer.value, &layer.attended, &layer.narrow,
        ];
        match as_wide.iter().all(|linear| linear.bias.len() == width) {
            true => Ok(layer),
            false => Err(format!(
                "layer {number} has another width than its embeddings"
            )),
        }
    }

    #[inline(always)]
    fn apply<const FUSED: bool>(&self, state: &mut [f32], room: &mut Room) {
        self.query
            .apply::<FUSED>(state, &mut room.packed, &mut room.query);
        self.key
            .apply::<FUSED>(state, &mut room.packed, &mut room.key);
        self.value
            .apply::<FUSED>(state, &mut room.packed, &mut room.value);
        room.attend::<FUSED>(self.query.bias.len());
        self.attended
            .apply::<FUSED>(&room.attended, &mut room.packed, &mut room.out);
        add(state, &room.out);
        self.attended_norm.apply(state);
        self.wide
            .apply::<FUSED>(state, &mut room.packed, &mut room.attended);
        for value in &mut room.attended {
            *value = gelu(*value);
        }
        self.narrow
            .apply::<FUSED>(&room.attended, &mut room.packed, &mut room.out);
        add(state, &room.out);
        self.norm.apply(state);
    }
}

#[inline(always)]
fn add(state: &mut [f32], more: &[f32]) {
    for (value, more) in state.iter_mut().zip(more) {
        *value += more;
    }
}

impl Room {
    /// Computes the attention: for each piece the mean of the values of all pieces, weighted by how
    /// much it attends to them. The result is left in `attended`.
    #[inline(always)]
    fn attend<const FUSED: bool>(&mut self, width: usize) {
        let count = self.query.len() / width;
        let size = width / HEADS;
        let scale = 1.0 / (size as f32).sqrt();
        self.attended.clear();
        self.attended.resize(count * width, 0.0);
        let mut keys = vec![0f32; size * count];
        let mut shares = vec![0f32; count];
        for head in 0..HEADS {
            let part = head * size..(head + 1) * size;
            // Transposing the keys makes the inner loop run over pieces that lie next to each
            // other, so the compiler can vectorise it.
            for (at, row) in self.key.chunks_exact(width).enumerate() {
                for (number, value) in row[part.clone()].iter().enumerate() {
                    keys[number * count + at] = *value;
                }
            }
            for (query, out) in self
                .query
                .chunks_exact(width)
                .zip(self.attended.chunks_exact_mut(width))
            {
                shares.fill(0.0);
                for (query, keys) in query[part.clone()].iter().zip(keys.chunks_exact(count)) {
                    for (share, key) in shares.iter_mut().zip(keys) {
                        *share = fused::<FUSED>(*query, *key, *share);
                    }
                }
                // Subtracting the largest share keeps the exponential from overflowing and leaves
                // the result the same.
                let most = shares.iter().copied().fold(f32::MIN, f32::max);
                let mut sum = 0.0;
                for share in &mut shares {
                    *share = ((*share - most) * scale).exp();
                    sum += *share;
                }
                for (share, values) in shares.iter().zip(self.value.chunks_exact(width)) {
                    let share = share / sum;
                    for (out, value) in out[part.clone()].iter_mut().zip(&values[part.clone()]) {
                        *out = fused::<FUSED>(share, *value, *out);
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn fused<const FUSED: bool>(one: f32, other: f32, sum: f32) -> f32 {
    match FUSED {
        true => one.mul_add(other, sum),
        // If the processor has no instruction for it, `mul_add` is a slow library call.
        false => one * other + sum,
    }
}

impl Linear {
    fn read(graph: &Graph<'_>, name: &str, inputs: usize) -> Result<Self, String> {
        let bias = format!("{name}.bias");
        let matrix = graph.matrix_before(&bias)?;
        let bias = graph.vector(&bias)?;
        if (matrix.rows, matrix.columns) != (inputs, bias.len()) {
            return Err(format!(
                "`{name}` has another size than what it is joined to"
            ));
        }
        let outputs = bias.len();
        // The last group is padded with zeros, so that every group has the same size.
        let mut weights = vec![0; inputs * outputs.next_multiple_of(LANES)];
        let mut scales = Vec::with_capacity(outputs);
        for column in 0..outputs {
            let group = column / LANES * LANES * inputs + column % LANES;
            let put = |row, step| weights[group + row * LANES] = step;
            scales.push(matrix.steps(Line::Column(column), put));
        }
        Ok(Self {
            inputs,
            weights,
            scales,
            bias,
        })
    }

    /// Multiplies each row of `state` by the matrix and adds the bias. `packed` is a buffer that is
    /// overwritten, and `out` receives the result.
    #[inline(always)]
    fn apply<const FUSED: bool>(&self, state: &[f32], packed: &mut Vec<f32>, out: &mut Vec<f32>) {
        let (inputs, outputs) = (self.inputs, self.bias.len());
        out.clear();
        out.resize(state.len() / inputs * outputs, 0.0);
        packed.clear();
        packed.resize(inputs * ROWS, 0.0);
        let groups = state.chunks(inputs * ROWS);
        for (rows, out) in groups.zip(out.chunks_mut(outputs * ROWS)) {
            for (at, row) in rows.chunks_exact(inputs).enumerate() {
                for (number, value) in row.iter().enumerate() {
                    packed[number * ROWS + at] = *value;
                }
            }
            for (group, weights) in self.weights.chunks_exact(inputs * LANES).enumerate() {
                let sums = products::<FUSED>(packed, weights);
                let first = group * LANES;
                let columns = first..(first + LANES).min(outputs);
                for (out, sums) in out.chunks_exact_mut(outputs).zip(&sums) {
                    let scales = self.scales[columns.clone()].iter();
                    let numbers = sums.iter().zip(scales).zip(&self.bias[columns.clone()]);
                    for (out, ((sum, scale), bias)) in out[columns.clone()].iter_mut().zip(numbers)
                    {
                        *out = sum * scale + bias;
                    }
                }
            }
        }
    }
}

/// Returns the products of `ROWS` rows with `LANES` columns. The loops have constant bounds, so
/// that the sums stay in registers.
#[inline(always)]
fn products<const FUSED: bool>(packed: &[f32], weights: &[i8]) -> [[f32; LANES]; ROWS] {
    let mut sums = [[0f32; LANES]; ROWS];
    for (values, weights) in packed.chunks_exact(ROWS).zip(weights.chunks_exact(LANES)) {
        let mut wide = [0f32; LANES];
        for lane in 0..LANES {
            wide[lane] = f32::from(weights[lane]);
        }
        for row in 0..ROWS {
            for lane in 0..LANES {
                sums[row][lane] = fused::<FUSED>(values[row], wide[lane], sums[row][lane]);
            }
        }
    }
    sums
}

impl Table {
    fn of(matrix: &Matrix<'_>) -> Self {
        let mut values = Vec::with_capacity(matrix.rows * matrix.columns);
        let scale = |row| matrix.steps(Line::Row(row), |_, step| values.push(step));
        let scales = (0..matrix.rows).map(scale).collect();
        Self {
            columns: matrix.columns,
            values,
            scales,
        }
    }

    #[inline(always)]
    fn row(&self, row: usize) -> impl Iterator<Item = f32> {
        let scale = self.scales[row];
        let values = &self.values[row * self.columns..(row + 1) * self.columns];
        values.iter().map(move |value| f32::from(*value) * scale)
    }
}

impl Norm {
    fn read(graph: &Graph<'_>, name: &str, width: usize) -> Result<Self, String> {
        let weight = graph.vector(&format!("{name}.weight"))?;
        let bias = graph.vector(&format!("{name}.bias"))?;
        match weight.len() == width && bias.len() == width {
            true => Ok(Self { weight, bias }),
            false => Err(format!("`{name}` has another width than the embeddings")),
        }
    }

    #[inline(always)]
    fn apply(&self, state: &mut [f32]) {
        for row in state.chunks_exact_mut(self.weight.len()) {
            let count = row.len() as f32;
            let mean = row.iter().sum::<f32>() / count;
            let variance = row.iter().map(|value| (value - mean).powi(2)).sum::<f32>() / count;
            let scale = 1.0 / (variance + EPSILON).sqrt();
            for (value, (weight, bias)) in row.iter_mut().zip(self.weight.iter().zip(&self.bias)) {
                *value = (*value - mean) * scale * weight + bias;
            }
        }
    }
}

/// The activation x Φ(x), with approximation 7.1.26 of the error function by Abramowitz and Stegun.
/// Its error is far below that of the 8-bit weights.
#[inline(always)]
fn gelu(x: f32) -> f32 {
    let at = x.abs() * std::f32::consts::FRAC_1_SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * at);
    let series = ((((1.061_405_4 * t - 1.453_152) * t + 1.421_413_7) * t - 0.284_496_74) * t
        + 0.254_829_6)
        * t;
    let erf = 1.0 - series * (-at * at).exp();
    0.5 * x * (1.0 + erf.copysign(x))
}
