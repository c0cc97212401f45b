//! Reads the weights in an ONNX file.
//!
//! An ONNX file is a message in the encoding of Protocol Buffers, which is simple enough to read
//! without a library. Only what the export of a BERT contains is understood: tensors stored raw, as
//! 32-bit floats or as 8-bit integers with a scale for each row or column.
//!
//! [`Graph::read`] indexes the tensors and the computation nodes without copying them. Weights are
//! found by the end of their names, since exports put different prefixes before them. Some weights
//! have lost their names. [`Graph::matrix_before`] finds them by the bias that is added after the
//! multiplication.

use std::collections::HashMap;

/// The weights of a file by name, and the nodes that say what is computed from them.
pub(super) struct Graph<'f> {
    tensors: HashMap<&'f str, Tensor<'f>>,
    /// The nodes by the names of their outputs.
    nodes: HashMap<&'f str, OnnxNode<'f>>,
}

struct OnnxNode<'f> {
    operation: &'f str,
    inputs: Vec<&'f str>,
}

#[derive(Clone, Copy)]
struct Tensor<'f> {
    /// The type of the values, numbered as in ONNX: 1 is `float` and 3 is `int8`.
    kind: u64,
    rows: usize,
    columns: usize,
    raw: &'f [u8],
}

/// A matrix of weights, which borrows its values from the file. A vector is a matrix with one row.
pub(super) struct Matrix<'f> {
    pub(super) rows: usize,
    pub(super) columns: usize,
    values: Tensor<'f>,
    /// The scales of 8-bit integers: one value for each row, one for each column, or one for all.
    /// None if the values are floats.
    scale: Option<Tensor<'f>>,
}

const CUT_OFF: &str = "it is cut off, or it is not an ONNX file";

impl<'f> Graph<'f> {
    /// Indexes a file. Fields that are not needed are skipped.
    ///
    /// # Errors
    /// Returns a text for the user if the file is cut off or is not an ONNX file.
    pub(super) fn read(file: &'f [u8]) -> Result<Self, String> {
        let mut graph = Self {
            tensors: HashMap::new(),
            nodes: HashMap::new(),
        };
        let mut fields = Fields(file);
        let mut is_there = false;
        // Field 7 of the model is its graph.
        while let Some((number, field)) = fields.next()? {
            if let (7, Field::Bytes(bytes)) = (number, field) {
                is_there = true;
                graph.read_graph(bytes)?;
            }
        }
        match is_there {
            true => Ok(graph),
            false => Err(CUT_OFF.to_owned()),
        }
    }

    fn read_graph(&mut self, bytes: &'f [u8]) -> Result<(), String> {
        // In a graph, field 1 is a node and field 5 is a tensor of weights.
        let mut fields = Fields(bytes);
        while let Some((number, field)) = fields.next()? {
            match (number, field) {
                (1, Field::Bytes(bytes)) => self.read_node(bytes)?,
                (5, Field::Bytes(bytes)) => self.read_tensor(bytes)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn read_node(&mut self, bytes: &'f [u8]) -> Result<(), String> {
        let (mut operation, mut inputs, mut outputs) = ("", Vec::new(), Vec::new());
        // In a node, field 1 is an input, field 2 an output, and field 4 the operation.
        let mut fields = Fields(bytes);
        while let Some((number, field)) = fields.next()? {
            match (number, field) {
                (1, Field::Bytes(name)) => inputs.push(text(name)?),
                (2, Field::Bytes(name)) => outputs.push(text(name)?),
                (4, Field::Bytes(name)) => operation = text(name)?,
                _ => {}
            }
        }
        for output in outputs {
            let inputs = inputs.clone();
            self.nodes.insert(output, OnnxNode { operation, inputs });
        }
        Ok(())
    }

    fn read_tensor(&mut self, bytes: &'f [u8]) -> Result<(), String> {
        let (mut name, mut kind, mut raw): (_, _, &[u8]) = ("", 0, &[]);
        let mut shape: Vec<usize> = Vec::new();
        // In a tensor, field 1 is its shape, field 2 the type of its values, field 8 its name, and
        // field 9 its raw data.
        let mut fields = Fields(bytes);
        while let Some((number, field)) = fields.next()? {
            match (number, field) {
                (1, Field::Number(size)) => shape.push(usize::try_from(size).unwrap_or(usize::MAX)),
                (1, Field::Bytes(sizes)) => {
                    let mut sizes = Fields(sizes);
                    while !sizes.0.is_empty() {
                        shape.push(usize::try_from(sizes.number()?).unwrap_or(usize::MAX));
                    }
                }
                (2, Field::Number(number)) => kind = number,
                (8, Field::Bytes(bytes)) => name = text(bytes)?,
                (9, Field::Bytes(bytes)) => raw = bytes,
                _ => {}
            }
        }
        // A vector counts as a matrix with one row, and a scalar as one with a single value.
        let (rows, columns) = match shape[..] {
            [rows, columns] => (rows, columns),
            [columns] => (1, columns),
            [] => (1, 1),
            // Tensors with more dimensions are constants, and none of a BERT's weights.
            _ => return Ok(()),
        };
        let tensor = Tensor {
            kind,
            rows,
            columns,
            raw,
        };
        self.tensors.insert(name, tensor);
        Ok(())
    }

    /// Returns the full name of the weights whose name ends with `end`, if it is the whole name or
    /// follows a dot.
    fn named(&self, end: &str) -> Option<&'f str> {
        let is_it = |name: &&&str| {
            name.strip_suffix(end)
                .is_some_and(|before| before.is_empty() || before.ends_with('.'))
        };
        self.tensors
            .keys()
            .chain(self.nodes.keys())
            .find(is_it)
            .copied()
    }

    pub(super) fn has(&self, end: &str) -> bool {
        self.named(end).is_some()
    }

    /// Returns the matrix whose name ends with `end`.
    ///
    /// # Errors
    /// Returns a text for the user if there is none or if its format is not supported.
    pub(super) fn matrix(&self, end: &str) -> Result<Matrix<'f>, String> {
        let name = self.named(end).ok_or_else(|| missing(end))?;
        self.matrix_of(name)?.ok_or_else(|| missing(end))
    }

    /// Returns the numbers of the vector whose name ends with `end`.
    ///
    /// # Errors
    /// Returns a text for the user if there is none or if its format is not supported.
    pub(super) fn vector(&self, end: &str) -> Result<Vec<f32>, String> {
        let matrix = self.matrix(end)?;
        let columns = 0..matrix.columns;
        Ok(columns.map(|column| matrix.get(0, column)).collect())
    }

    /// Returns the matrix of a linear layer, given the end of the name of its bias. Exports rename
    /// the matrix but keep the name of the bias. The matrix is found through the node that adds the
    /// bias to a product.
    ///
    /// # Errors
    /// Returns a text for the user if the graph has no such product or the format of the matrix is
    /// not supported.
    pub(super) fn matrix_before(&self, bias: &str) -> Result<Matrix<'f>, String> {
        let name = self.named(bias).ok_or_else(|| missing(bias))?;
        let adds = self
            .nodes
            .values()
            .filter(|node| node.operation == "Add" && node.inputs.contains(&name));
        let products = adds
            .flat_map(|add| &add.inputs)
            .filter_map(|input| self.nodes.get(input));
        let mut factors = products
            .filter(|node| node.operation == "MatMul")
            .flat_map(|node| &node.inputs);
        let found = factors.find_map(|factor| self.matrix_of(factor).transpose());
        found.unwrap_or_else(|| Err(missing(&format!("the matrix that belongs to {bias}"))))
    }

    /// Returns the matrix with this name. It is stored as such, or is the product of 8-bit integers
    /// and a scale. Returns None if there is neither.
    fn matrix_of(&self, name: &str) -> Result<Option<Matrix<'f>>, String> {
        let mut values = self.tensors.get(name).copied();
        let mut scale = None;
        // The graph of a quantised model casts its integers to floats and multiplies them by their
        // scale.
        if let Some(node) = self.nodes.get(name).filter(|node| node.operation == "Mul") {
            for input in &node.inputs {
                match self.nodes.get(input) {
                    Some(cast) if cast.operation == "Cast" => {
                        values = cast
                            .inputs
                            .first()
                            .and_then(|input| self.tensors.get(input).copied());
                    }
                    _ => scale = self.tensors.get(input).copied(),
                }
            }
        }
        let Some(values) = values else {
            return Ok(None);
        };
        let fits = |tensor: &Tensor<'_>, kind: u64, bytes: usize| {
            let size = tensor
                .rows
                .checked_mul(tensor.columns)
                .and_then(|size| size.checked_mul(bytes));
            tensor.kind == kind && size == Some(tensor.raw.len()) && !tensor.raw.is_empty()
        };
        // The sizes are checked here once, so that reading a value later cannot run past the end.
        let is_fit = match &scale {
            None => fits(&values, 1, 4),
            Some(scale) => {
                fits(&values, 3, 1)
                    && fits(scale, 1, 4)
                    && [1, values.rows].contains(&scale.rows)
                    && [1, values.columns].contains(&scale.columns)
            }
        };
        match is_fit {
            true => Ok(Some(Matrix {
                rows: values.rows,
                columns: values.columns,
                values,
                scale,
            })),
            false => Err(format!(
                "`{name}` is neither 32-bit floats nor 8-bit integers with a scale, or is not in the file itself"
            )),
        }
    }
}

fn missing(what: &str) -> String {
    format!("it is not an exported BERT sentence encoder: it lacks `{what}`")
}

fn text(bytes: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(bytes).map_err(|_| CUT_OFF.to_owned())
}

/// A row or a column of a matrix, by its number from 0.
#[derive(Clone, Copy)]
pub(super) enum Line {
    Row(usize),
    Column(usize),
}

impl Matrix<'_> {
    /// Calls `put` with the position and value of each number of a line, in steps from -127 to 127.
    /// Returns the size of a step. If the file stores such integers for the line, they are passed
    /// on unchanged.
    pub(super) fn steps(&self, line: Line, mut put: impl FnMut(usize, i8)) -> f32 {
        let Self { rows, columns, .. } = *self;
        let (first, apart, count) = match line {
            Line::Row(row) => (row * columns, 1, columns),
            Line::Column(column) => (column, columns, rows),
        };
        let places = (0..count).map(|number| first + number * apart);
        let stored = match (&self.scale, line) {
            (Some(scale), Line::Row(row)) if scale.columns == 1 => Some((scale, row)),
            (Some(scale), Line::Column(column)) if scale.rows == 1 => Some((scale, column)),
            _ => None,
        };
        if let Some((scale, number)) = stored {
            for (number, at) in places.enumerate() {
                put(number, self.values.raw[at] as i8);
            }
            let one_for_all = scale.raw.len() == 4;
            return float(scale.raw, if one_for_all { 0 } else { number });
        }
        // The stored scale does not belong to such lines. The line is converted to steps of its
        // own.
        let values = places.map(|at| self.get(at / columns, at % columns));
        let most = values
            .clone()
            .fold(0f32, |most, value| most.max(value.abs()));
        let step = (most / 127.0).max(f32::MIN_POSITIVE);
        for (number, value) in values.enumerate() {
            put(number, (value / step).round() as i8);
        }
        step
    }

    pub(super) fn get(&self, row: usize, column: usize) -> f32 {
        let at = row * self.columns + column;
        let Some(scale) = &self.scale else {
            return float(self.values.raw, at);
        };
        let row = if scale.rows == 1 { 0 } else { row };
        let column = if scale.columns == 1 { 0 } else { column };
        f32::from(self.values.raw[at] as i8) * float(scale.raw, row * scale.columns + column)
    }
}

fn float(raw: &[u8], at: usize) -> f32 {
    f32::from_le_bytes([
        raw[at * 4],
        raw[at * 4 + 1],
        raw[at * 4 + 2],
        raw[at * 4 + 3],
    ])
}

/// Iterates over the fields of a message in the encoding of Protocol Buffers. A field is its number
/// and its content, which is a number or bytes.
struct Fields<'f>(&'f [u8]);

enum Field<'f> {
    Number(u64),
    Bytes(&'f [u8]),
}

impl<'f> Fields<'f> {
    fn next(&mut self) -> Result<Option<(u64, Field<'f>)>, String> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let key = self.number()?;
        // The lowest three bits of a key say how the content is encoded.
        let field = match key & 7 {
            0 => Field::Number(self.number()?),
            1 => Field::Bytes(self.bytes(8)?),
            2 => {
                let length = self.number()?;
                Field::Bytes(self.bytes(usize::try_from(length).unwrap_or(usize::MAX))?)
            }
            5 => Field::Bytes(self.bytes(4)?),
            _ => return Err(CUT_OFF.to_owned()),
        };
        Ok(Some((key >> 3, field)))
    }

    fn number(&mut self) -> Result<u64, String> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.bytes(1)?[0];
            number |= u64::from(byte & 127) << shift;
            if byte < 128 {
                return Ok(number);
            }
        }
        Err(CUT_OFF.to_owned())
    }

    fn bytes(&mut self, length: usize) -> Result<&'f [u8], String> {
        let split = self.0.split_at_checked(length);
        let (taken, rest) = split.ok_or_else(|| CUT_OFF.to_owned())?;
        self.0 = rest;
        Ok(taken)
    }
}
