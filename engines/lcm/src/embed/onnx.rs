//! Reads the weights in an ONNX file. Only what a BERT's export has is understood: tensors stored raw, as 32-bit
//! floats or as 8-bit integers with a scale for each row or column.

use std::collections::HashMap;

/// The weights of a file by their names, and what is computed of them.
pub(super) struct Graph<'f> {
    tensors: HashMap<&'f str, Tensor<'f>>,
    /// By their outputs.
    nodes: HashMap<&'f str, Node<'f>>,
}

struct Node<'f> {
    operation: &'f str,
    inputs: Vec<&'f str>,
}

#[derive(Clone, Copy)]
struct Tensor<'f> {
    /// As in ONNX: 1 is `float`, 3 is `int8`.
    kind: u64,
    rows: usize,
    columns: usize,
    raw: &'f [u8],
}

/// A matrix of weights.
pub(super) struct Matrix<'f> {
    pub(super) rows: usize,
    pub(super) columns: usize,
    values: Tensor<'f>,
    /// Of 8-bit integers: a value for each row, each column, or all.
    scale: Option<Tensor<'f>>,
}

const CUT_OFF: &str = "it is cut off, or no ONNX file";

impl<'f> Graph<'f> {
    pub(super) fn read(file: &'f [u8]) -> Result<Self, String> {
        let mut graph = Self {
            tensors: HashMap::new(),
            nodes: HashMap::new(),
        };
        let mut fields = Fields(file);
        let mut is_there = false;
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
            self.nodes.insert(output, Node { operation, inputs });
        }
        Ok(())
    }

    fn read_tensor(&mut self, bytes: &'f [u8]) -> Result<(), String> {
        let (mut name, mut kind, mut raw): (_, _, &[u8]) = ("", 0, &[]);
        let mut shape: Vec<usize> = Vec::new();
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
        let (rows, columns) = match shape[..] {
            [rows, columns] => (rows, columns),
            [columns] => (1, columns),
            [] => (1, 1),
            // None of a BERT's weights.
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

    /// The name of the weights whose name ends so.
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

    /// The matrix whose name ends so.
    pub(super) fn matrix(&self, end: &str) -> Result<Matrix<'f>, String> {
        let name = self.named(end).ok_or_else(|| missing(end))?;
        self.matrix_of(name)?.ok_or_else(|| missing(end))
    }

    /// The numbers of a vector whose name ends so.
    pub(super) fn vector(&self, end: &str) -> Result<Vec<f32>, String> {
        let matrix = self.matrix(end)?;
        let columns = 0..matrix.columns;
        Ok(columns.map(|column| matrix.get(0, column)).collect())
    }

    /// The matrix by which is multiplied before the bias whose name ends so is added. Exports keep the names of biases
    /// alone.
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

    /// The matrix of this name: as stored, or as 8-bit integers that are multiplied by a scale.
    fn matrix_of(&self, name: &str) -> Result<Option<Matrix<'f>>, String> {
        let mut values = self.tensors.get(name).copied();
        let mut scale = None;
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
    format!("it is no BERT as sentence encoders are exported: `{what}` is not in it")
}

fn text(bytes: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(bytes).map_err(|_| CUT_OFF.to_owned())
}

/// A row or a column of a matrix.
#[derive(Clone, Copy)]
pub(super) enum Line {
    Row(usize),
    Column(usize),
}

impl Matrix<'_> {
    /// Calls `put` with the numbers of a line in steps from -127 to 127, and returns the size of a step.
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

/// The fields of a message in the encoding of Protocol Buffers.
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
