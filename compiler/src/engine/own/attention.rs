//! Attention in the forms that the library lacks: windows, lengths of keys, and scores as an output.

use super::asked::Asked;
use crate::engine::Tensor;
use crate::graph::Data;
use crate::onnx::{elements, proto};

/// Whether a node has such a form.
pub(super) fn is_own(node: &proto::Node) -> bool {
    let window = |name: &str| node.find(name).is_some();
    let is_named = |names: &[String], at: usize| names.get(at).is_some_and(|name| !name.is_empty());
    let is_known = is_named(&node.output, 3) || is_named(&node.input, 6);
    is_known || window("left_window_size") || window("right_window_size")
}

/// What is attended to, present keys and values, and the scores.
pub(super) fn compute(of: &Asked<'_>) -> Result<Vec<Tensor>, String> {
    let [q, k, v] = [
        Heads::new(of, 0, "q_num_heads")?,
        Heads::new(of, 1, "kv_num_heads")?,
        Heads::new(of, 2, "kv_num_heads")?,
    ];
    let (k, v) = (k.behind(of, 4)?, v.behind(of, 5)?);
    let [batch, heads, rows, size] = q.dims;
    let [_, groups, keys, _] = k.dims;
    let fits = k.dims[0] == batch && k.dims[3] == size && v.dims[..3] == k.dims[..3];
    if !fits || groups == 0 || heads % groups != 0 {
        return Err(format!(
            "queries {:?}, keys {:?}, values {:?}",
            q.dims, k.dims, v.dims
        ));
    }
    let bias = Bias::new(of, [batch, heads, rows, keys])?;
    let scale = of
        .node
        .find("scale")
        .map_or(1.0 / (size as f32).sqrt(), |a| a.f)
        .sqrt();
    let cap = of.node.find("softcap").map_or(0.0, |a| a.f);
    let mode = of.int("qk_matmul_output_mode", 0);
    let shape = [batch, heads, rows, keys].to_vec();
    let count = elements("qk_matmul_output", &shape).map_err(|e| e.to_string())?;
    let mut scores = Vec::with_capacity(count);
    let out = v.dims[3];
    let made = [batch, heads, rows, out];
    let mut attended = vec![0.0; elements("Y", &made).map_err(|e| e.to_string())?];
    let each =
        (0..batch).flat_map(|b| (0..heads).flat_map(move |h| (0..rows).map(move |r| [b, h, r])));
    for (at, [b, h, row]) in each.enumerate() {
        let group = h / (heads / groups);
        let query: Vec<f32> = q.row([b, h, row]).iter().map(|x| x * scale).collect();
        let score = |key: usize| {
            let products = query
                .iter()
                .zip(k.row([b, group, key]))
                .map(|(q, k)| q * (k * scale));
            let sum: f32 = products.sum();
            if cap > 0.0 {
                cap * (sum / cap).tanh()
            } else {
                sum
            }
        };
        let raw: Vec<f32> = (0..keys).map(score).collect();
        let added: Vec<f32> = (0..keys).map(|key| bias.at([b, h, row, key])).collect();
        let biased: Vec<f32> = raw
            .iter()
            .zip(&added)
            .map(|(score, bias)| score + bias)
            .collect();
        let shares = shares(&biased, &added);
        // A sum for each value of a head.
        let to = &mut attended[at * out..][..out];
        for (key, share) in shares.iter().enumerate() {
            let values = v.row([b, group, key]);
            to.iter_mut()
                .zip(values)
                .for_each(|(sum, value)| *sum += share * value);
        }
        scores.extend(match mode {
            2 => biased,
            3 => shares,
            _ => raw,
        });
    }
    let floats = |shape: &[usize], data| Tensor {
        shape: shape.to_vec(),
        data: Data::F32(data),
    };
    let attended = if of.required(0)?.shape.len() == 3 {
        floats(&[batch, rows, heads * out], turned(&attended, made))
    } else {
        floats(&made, attended)
    };
    let present = [&k, &v].map(|heads| floats(&heads.dims, heads.data.clone()));
    let [key, value] = present;
    Ok(vec![attended, key, value, floats(&shape, scores)])
}

/// Softmax; nothing for a row that attends to no key.
fn shares(scores: &[f32], bias: &[f32]) -> Vec<f32> {
    if bias.iter().all(|&bias| bias == f32::NEG_INFINITY) {
        return vec![0.0; scores.len()];
    }
    let most = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers: Vec<f32> = scores.iter().map(|score| (score - most).exp()).collect();
    let sum: f32 = powers.iter().sum();
    powers.iter().map(|power| power / sum).collect()
}

/// `[B][H][L][D]` as `[B][L][H][D]`, or the other way where H and L change places.
fn turned(data: &[f32], [batch, heads, rows, size]: [usize; 4]) -> Vec<f32> {
    let mut made = Vec::with_capacity(data.len());
    for b in 0..batch {
        for row in 0..rows {
            for head in 0..heads {
                let at = ((b * heads + head) * rows + row) * size;
                made.extend_from_slice(&data[at..][..size]);
            }
        }
    }
    made
}

/// Queries, keys or values of all heads: `[B][H][L][D]`.
struct Heads {
    dims: [usize; 4],
    data: Vec<f32>,
}

impl Heads {
    fn new(of: &Asked<'_>, argument: usize, count: &str) -> Result<Self, String> {
        let shape = of.required(argument)?.shape;
        let data = of.floats(argument)?.unwrap_or_default();
        match *shape {
            [batch, heads, rows, size] => Ok(Self {
                dims: [batch, heads, rows, size],
                data: data.to_vec(),
            }),
            [batch, rows, all] => {
                let heads = usize::try_from(of.int(count, 0)).unwrap_or(0);
                if heads == 0 || all % heads != 0 {
                    return Err(format!("{count} is {heads}, of {all} values"));
                }
                let size = all / heads;
                let data = turned(data, [batch, rows, heads, size]);
                let dims = [batch, heads, rows, size];
                Ok(Self { dims, data })
            }
            _ => Err(format!("its input {argument} has the shape {shape:?}")),
        }
    }

    /// Those of the past in front of these.
    fn behind(self, of: &Asked<'_>, argument: usize) -> Result<Self, String> {
        if of.input(argument).is_none() {
            return Ok(self);
        }
        let past = Self::new(of, argument, "kv_num_heads")?;
        let ([batch, heads, rows, size], own) = (past.dims, self.dims);
        if [batch, heads, size] != [own[0], own[1], own[3]] {
            return Err(format!("a past of {:?} before {own:?}", past.dims));
        }
        let mut data = Vec::with_capacity(past.data.len() + self.data.len());
        for head in 0..batch * heads {
            data.extend_from_slice(&past.data[head * rows * size..][..rows * size]);
            data.extend_from_slice(&self.data[head * own[2] * size..][..own[2] * size]);
        }
        let dims = [batch, heads, rows + own[2], size];
        Ok(Self { dims, data })
    }

    fn row(&self, [batch, head, row]: [usize; 3]) -> &[f32] {
        let [_, heads, rows, size] = self.dims;
        &self.data[((batch * heads + head) * rows + row) * size..][..size]
    }
}

/// What is added to scores.
struct Bias<'t> {
    mask: Option<(&'t [usize], &'t Data)>,
    /// By batch: keys before the first query, and how many there are.
    before: Vec<i64>,
    keys: Vec<i64>,
    /// The most that a key may be behind a query, and before it.
    ahead: Option<i64>,
    back: Option<i64>,
}

impl<'t> Bias<'t> {
    fn new(of: &Asked<'t>, [batch, heads, rows, keys]: [usize; 4]) -> Result<Self, String> {
        let mask = of.input(3).map(|lent| (lent.shape, lent.data));
        if let Some((shape, data)) = mask {
            let dims = [batch, heads, rows, keys];
            let mut sides = shape.iter().rev().zip(dims.iter().rev()).enumerate();
            let fits = |(at, (&own, &side))| own == side || own == 1 || at == 0 && own < side;
            let known = matches!(data, Data::F32(_) | Data::Bool(_) | Data::I32(_));
            if shape.is_empty() || shape.len() > 4 || !known || !sides.all(fits) {
                return Err(format!("a mask of shape {shape:?}, {:?}", data.element()));
            }
        }
        let past = of
            .input(4)
            .and_then(|lent| lent.shape.iter().rev().nth(1).copied());
        let lengths = match of.input(6).map(|lent| lent.data.integers()) {
            None => None,
            Some(Some(lengths)) if lengths.len() == batch => Some(lengths),
            Some(_) => return Err("its lengths aren't one for each of the batch".to_owned()),
        };
        let before = match (&lengths, past) {
            (Some(lengths), None) => lengths.iter().map(|n| n - rows as i64).collect(),
            (_, past) => vec![past.unwrap_or(0) as i64; batch],
        };
        let window = |name: &str| Some(of.int(name, -1)).filter(|&size| size >= 0);
        let causal = (of.int("is_causal", 0) != 0).then_some(0);
        let right = window("right_window_size");
        Ok(Self {
            mask,
            before,
            keys: lengths.unwrap_or_else(|| vec![keys as i64; batch]),
            ahead: causal.into_iter().chain(right).min(),
            back: window("left_window_size"),
        })
    }

    fn at(&self, [batch, head, row, key]: [usize; 4]) -> f32 {
        let off = key as i64 - (row as i64 + self.before[batch]);
        let hidden = key as i64 >= self.keys[batch]
            || self.ahead.is_some_and(|most| off > most)
            || self.back.is_some_and(|most| -off > most);
        if hidden {
            return f32::NEG_INFINITY;
        }
        let Some((shape, data)) = self.mask else {
            return 0.0;
        };
        let mut at = 0;
        // A mask may be of fewer keys than there are.
        if key >= shape.last().copied().unwrap_or(0) {
            return f32::NEG_INFINITY;
        }
        let place = [batch, head, row, key];
        for (&size, &place) in shape.iter().zip(&place[4 - shape.len()..]) {
            at = at * size + if size == 1 { 0 } else { place };
        }
        let truth = |is_seen: bool| if is_seen { 0.0 } else { f32::NEG_INFINITY };
        match data {
            Data::F32(v) => v[at],
            Data::Bool(v) => truth(v[at]),
            // The library's truths.
            Data::I32(v) => truth(v[at] != 0),
            _ => 0.0,
        }
    }
}
