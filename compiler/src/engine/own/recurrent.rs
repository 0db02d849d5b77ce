//! LSTM, GRU and RNN, step by step, with all that ONNX says of them.

mod function;

use super::asked::Asked;
use crate::engine::Tensor;
use crate::graph::Data;
use crate::onnx::elements;
use function::Function;

/// The outputs: every state, the last ones, and the last cells of an LSTM.
pub(super) fn compute(of: &Asked<'_>) -> Result<Vec<Tensor>, String> {
    let net = Net::read(of)?;
    let [steps, batch, units] = [net.steps, net.batch, net.units];
    let ends = net.directions * batch * units;
    let (all, last) = if net.is_batch_first {
        (
            vec![batch, steps, net.directions, units],
            vec![batch, net.directions, units],
        )
    } else {
        (
            vec![steps, net.directions, batch, units],
            vec![net.directions, batch, units],
        )
    };
    let count = elements("Y", &all).map_err(|e| e.to_string())?;
    let mut made = Made {
        all: vec![0.0; count],
        hidden: vec![0.0; ends],
        cells: vec![0.0; ends],
    };
    for direction in 0..net.directions {
        let given = net.given(direction);
        for row in 0..batch {
            net.walk(direction, row, &given, &mut made);
        }
    }
    let tensor = |shape: &Vec<usize>, data| Tensor {
        shape: shape.clone(),
        data: Data::F32(data),
    };
    let mut outputs = vec![tensor(&all, made.all), tensor(&last, made.hidden)];
    if net.kind == Kind::Lstm {
        outputs.push(tensor(&last, made.cells));
    }
    Ok(outputs)
}

struct Made {
    all: Vec<f32>,
    hidden: Vec<f32>,
    cells: Vec<f32>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Rnn,
    Gru,
    Lstm,
}

/// A node, its inputs with the sizes that they say together.
struct Net<'t> {
    kind: Kind,
    steps: usize,
    batch: usize,
    inputs: usize,
    units: usize,
    directions: usize,
    is_batch_first: bool,
    /// Which directions go from the last step to the first.
    is_reverse: [bool; 2],
    x: &'t [f32],
    weights: &'t [f32],
    recurrence: &'t [f32],
    bias: Option<&'t [f32]>,
    /// Steps of each row.
    lengths: Option<Vec<usize>>,
    hidden: Option<&'t [f32]>,
    cells: Option<&'t [f32]>,
    peepholes: Option<&'t [f32]>,
    /// Those of a direction stand together.
    functions: Vec<Function>,
    clip: Option<f32>,
    /// The forget gate is what the input gate leaves.
    is_coupled: bool,
    /// A GRU's reset gate is a factor of the product, not of its states.
    is_reset_late: bool,
}

impl Kind {
    const fn gates(self) -> usize {
        match self {
            Self::Rnn => 1,
            Self::Gru => 3,
            Self::Lstm => 4,
        }
    }
}

impl<'t> Net<'t> {
    fn read(of: &Asked<'t>) -> Result<Self, String> {
        let kind = match &of.node.op_type[..] {
            "LSTM" => Kind::Lstm,
            "GRU" => Kind::Gru,
            _ => Kind::Rnn,
        };
        let is_batch_first = match of.int("layout", 0) {
            0 => false,
            1 => true,
            other => return Err(format!("layout is {other}")),
        };
        let (directions, is_reverse) = match &of.text("direction", "forward")[..] {
            "forward" => (1, [false; 2]),
            "reverse" => (1, [true; 2]),
            "bidirectional" => (2, [false, true]),
            other => return Err(format!("direction is {other}")),
        };
        let (steps, batch, inputs) = match (of.required(0)?.shape, is_batch_first) {
            (&[steps, batch, inputs], false) | (&[batch, steps, inputs], true) => {
                (steps, batch, inputs)
            }
            (shape, _) => return Err(format!("input of shape {shape:?}")),
        };
        let units = of.required(2)?.shape.last().copied().unwrap_or(0);
        let stated = of.int("hidden_size", units as i64);
        if stated != units as i64 {
            return Err(format!("hidden_size is {stated}, its states are {units}"));
        }
        let rows = kind.gates().saturating_mul(units);
        let ends = if is_batch_first {
            [batch, directions, units]
        } else {
            [directions, batch, units]
        };
        let floats = |argument: usize, expected: &[usize]| {
            let shape = of.input(argument).map(|lent| lent.shape);
            match shape {
                Some(shape) if shape != expected => Err(format!(
                    "its input {argument} has the shape {shape:?}, not {expected:?}"
                )),
                _ => of.floats(argument),
            }
        };
        let required = |argument: usize, expected: &[usize]| {
            let missing = || format!("its input {argument} is missing");
            floats(argument, expected)?.ok_or_else(missing)
        };
        let own = if kind == Kind::Lstm {
            [floats(6, &ends)?, floats(7, &[directions, 3 * units])?]
        } else {
            [None; 2]
        };
        Ok(Self {
            kind,
            steps,
            batch,
            inputs,
            units,
            directions,
            is_batch_first,
            is_reverse,
            x: required(0, of.required(0)?.shape)?,
            weights: required(1, &[directions, rows, inputs])?,
            recurrence: required(2, &[directions, rows, units])?,
            bias: floats(3, &[directions, rows.saturating_mul(2)])?,
            lengths: lengths(of, steps, batch)?,
            hidden: floats(5, &ends)?,
            cells: own[0],
            peepholes: own[1],
            functions: function::read(of.node, directions)?,
            clip: of.node.find("clip").map(|a| a.f.abs()),
            is_coupled: of.int("input_forget", 0) != 0,
            is_reset_late: of.int("linear_before_reset", 0) != 0,
        })
    }

    /// Where a row's states before the first step, or behind the last, begin.
    const fn end(&self, direction: usize, row: usize) -> usize {
        let at = if self.is_batch_first {
            row * self.directions + direction
        } else {
            direction * self.batch + row
        };
        at * self.units
    }

    /// Where the states of a step begin.
    const fn state(&self, step: usize, direction: usize, row: usize) -> usize {
        let at = if self.is_batch_first {
            (row * self.steps + step) * self.directions + direction
        } else {
            (step * self.directions + direction) * self.batch + row
        };
        at * self.units
    }

    /// Whether a row's product with the states is used by itself before anything is added.
    fn is_apart(&self, row: usize) -> bool {
        self.kind == Kind::Gru && row >= 2 * self.units
    }

    /// What the inputs give each gate with its biases, for each step and row as they lie in the input: `[..][gates * units]`.
    fn given(&self, direction: usize) -> Vec<f32> {
        let rows = self.kind.gates() * self.units;
        let mut given = vec![0.0; self.steps * self.batch * rows];
        let weights = &self.weights[direction * rows * self.inputs..];
        for row in 0..rows {
            let weights = &weights[row * self.inputs..][..self.inputs];
            let bias = self.bias.map_or(0.0, |bias| {
                let bias = &bias[direction * 2 * rows..];
                let late = self.is_apart(row) && self.is_reset_late;
                bias[row] + if late { 0.0 } else { bias[rows + row] }
            });
            for (at, all) in given.chunks_exact_mut(rows).enumerate() {
                all[row] = dot(&self.x[at * self.inputs..][..self.inputs], weights) + bias;
            }
        }
        given
    }

    /// The states of one row.
    fn walk(&self, direction: usize, row: usize, given: &[f32], made: &mut Made) {
        let (units, end) = (self.units, self.end(direction, row));
        let rows = self.kind.gates() * units;
        let first = |states: Option<&[f32]>| {
            states.map_or(vec![0.0; units], |all| all[end..][..units].to_vec())
        };
        let (mut hidden, mut cells) = (first(self.hidden), first(self.cells));
        let length = self.lengths.as_ref().map_or(self.steps, |all| all[row]);
        for at in 0..length {
            let step = if self.is_reverse[direction] {
                length - 1 - at
            } else {
                at
            };
            let place = if self.is_batch_first {
                row * self.steps + step
            } else {
                step * self.batch + row
            };
            let gates = &given[place * rows..][..rows];
            match self.kind {
                Kind::Rnn => self.rnn(direction, gates, &mut hidden),
                Kind::Gru => self.gru(direction, gates, &mut hidden),
                Kind::Lstm => self.lstm(direction, gates, &mut hidden, &mut cells),
            }
            made.all[self.state(step, direction, row)..][..units].copy_from_slice(&hidden);
        }
        if length > 0 {
            made.hidden[end..][..units].copy_from_slice(&hidden);
            made.cells[end..][..units].copy_from_slice(&cells);
        }
    }

    /// What a row's product with states gives.
    fn product(&self, direction: usize, row: usize, states: &[f32]) -> f32 {
        let at = direction * self.kind.gates() * self.units + row;
        dot(states, &self.recurrence[at * self.units..][..self.units])
    }

    /// One of a direction's functions, of a value within the bounds.
    fn bounded(&self, direction: usize, at: usize, value: f32) -> f32 {
        let value = self.clip.map_or(value, |clip| value.max(-clip).min(clip));
        self.function(direction, at).of(value)
    }

    fn function(&self, direction: usize, at: usize) -> Function {
        self.functions[direction * (self.functions.len() / self.directions) + at]
    }

    fn rnn(&self, direction: usize, gates: &[f32], hidden: &mut Vec<f32>) {
        let one = |unit: usize| {
            let sum = gates[unit] + self.product(direction, unit, hidden);
            self.bounded(direction, 0, sum)
        };
        *hidden = (0..self.units).map(one).collect();
    }

    fn gru(&self, direction: usize, gates: &[f32], hidden: &mut Vec<f32>) {
        let units = self.units;
        let gate = |row: usize| {
            let sum = gates[row] + self.product(direction, row, hidden);
            self.bounded(direction, 0, sum)
        };
        let update: Vec<f32> = (0..units).map(gate).collect();
        let reset: Vec<f32> = (units..2 * units).map(gate).collect();
        let kept: Vec<f32> = reset.iter().zip(&*hidden).map(|(r, h)| r * h).collect();
        let rows = 3 * units;
        let one = |unit: usize| {
            let row = 2 * units + unit;
            let recurrent = if self.is_reset_late {
                let bias = self
                    .bias
                    .map_or(0.0, |all| all[direction * 2 * rows + rows + row]);
                reset[unit] * (self.product(direction, row, hidden) + bias)
            } else {
                self.product(direction, row, &kept)
            };
            let new = self.bounded(direction, 1, gates[row] + recurrent);
            (1.0 - update[unit]) * new + update[unit] * hidden[unit]
        };
        *hidden = (0..units).map(one).collect();
    }

    fn lstm(&self, direction: usize, gates: &[f32], hidden: &mut Vec<f32>, cells: &mut [f32]) {
        let units = self.units;
        let peephole = |gate: usize, unit: usize, cell: f32| {
            let weights = self.peepholes.map(|all| &all[direction * 3 * units..]);
            weights.map_or(0.0, |all| all[gate * units + unit] * cell)
        };
        // In ONNX's order: input, output, forget, cell.
        let sum = |gate: usize, unit: usize| {
            let row = gate * units + unit;
            gates[row] + self.product(direction, row, hidden)
        };
        let mut one = |unit: usize| {
            let before = cells[unit];
            let input = sum(0, unit) + peephole(0, unit, before);
            let input = self.bounded(direction, 0, input);
            let forget = if self.is_coupled {
                1.0 - input
            } else {
                let forget = sum(2, unit) + peephole(2, unit, before);
                self.bounded(direction, 0, forget)
            };
            let new = self.bounded(direction, 1, sum(3, unit));
            let cell = forget * before + input * new;
            cells[unit] = cell;
            let output = sum(1, unit) + peephole(1, unit, cell);
            let output = self.bounded(direction, 0, output);
            output * self.function(direction, 2).of(cell)
        };
        *hidden = (0..units).map(&mut one).collect();
    }
}

/// How many steps each row has.
fn lengths(of: &Asked<'_>, steps: usize, batch: usize) -> Result<Option<Vec<usize>>, String> {
    let Some(given) = of.input(4) else {
        return Ok(None);
    };
    let all = given.data.integers();
    let all = all.ok_or("its lengths are floats")?;
    let one = |length: i64| {
        let length = usize::try_from(length)
            .ok()
            .filter(|&length| length <= steps);
        length.ok_or_else(|| format!("a length isn't one of {steps} steps"))
    };
    if all.len() != batch {
        return Err(format!("{} lengths of {batch} rows", all.len()));
    }
    all.into_iter().map(one).collect::<Result<_, _>>().map(Some)
}

/// Sums in 16 lanes, whose order no machine changes.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let (many, rest) = a.as_chunks::<16>();
    let (others, last) = b.as_chunks::<16>();
    let mut lanes = [0f32; 16];
    for (a, b) in many.iter().zip(others) {
        for ((lane, a), b) in lanes.iter_mut().zip(a).zip(b) {
            *lane += a * b;
        }
    }
    let rest = rest.iter().zip(last).map(|(a, b)| a * b);
    lanes.into_iter().chain(rest).sum()
}
