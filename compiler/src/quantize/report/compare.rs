//! How near a quantised network's outputs are to those of the float one, output by output, and part by part where a
//! Concat makes an output.

use super::{Noise, decibel};
use crate::graph::{Element, Graph, Op, ValueId};

/// An output whose mean cosine with that of the float network is lower has lost its meaning.
pub const LEAST_COSINE: f64 = 0.98;
/// So has one whose signal to noise is lower, in dB.
pub const LEAST_DB: f64 = 10.0;
/// So have classes of which the largest is that of the float network in a smaller part of all images.
pub const LEAST_AGREEMENT: f64 = 0.9;

/// Inputs of a Concat beyond which they aren't looked at one by one.
const MOST_PARTS: usize = 32;
/// The next classes after the largest whose scores may overtake it.
const RIVALS: usize = 4;
/// Rows of probabilities that are read as one sequence at most: more are boxes or pixels.
const MOST_ROWS: usize = 512;
/// The most that a part adds to a loss.
const MOST_NOISE: f64 = 100.0;

/// Outputs of a network beside those of the float network, on images.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Outputs in order, behind each the parts that a last Concat makes it of.
    pub parts: Vec<Part>,
    /// How many images were compared.
    pub images: usize,
}

/// An output, or a part of one.
#[derive(Clone, Debug)]
pub struct Part {
    /// The output's name.
    pub output: String,
    /// The Concat that makes the output, and the value that it puts there; `None` for all of the output.
    pub concat: Option<(String, String)>,
    /// Which output it is.
    index: usize,
    /// Of each so many values, those from one on, and how many.
    slice: [usize; 3],
    kind: Kind,
    /// What its values choose has no order of its own: values are compared by their size.
    is_chosen: bool,
    noise: Noise,
    /// The squares of each image's noise, added up.
    spread: f64,
    cosines: f64,
    /// Values that agree, of so many.
    agreed: [usize; 2],
    leads: Leads,
}

/// By how much the largest class of each image, or of each of its rows, leads, in float, and how far quantising moves
/// such leads.
#[derive(Clone, Debug, Default)]
struct Leads {
    /// Before the next ones, of each image.
    images: Vec<Vec<f64>>,
    /// The squared change of all of them.
    moved: f64,
}

/// What is compared beside values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Values,
    /// The place of the largest.
    Classes,
    /// The place of the largest of each row of so many values, where they are probabilities.
    Sequence(usize),
    /// Each value: whole numbers.
    Whole,
}

impl Comparison {
    /// The outputs of a float network, before any image.
    pub fn new(graph: &Graph) -> Self {
        let (mut parts, open) = (Vec::new(), graph.open());
        for (index, id) in graph.outputs.iter().enumerate() {
            let value = &graph.values[id.0];
            let kind = match (value.element, &value.shape[..]) {
                (Element::F32, [_, classes]) if *classes > 1 && !open[id.0] => Kind::Classes,
                (Element::F32, [outer @ .., classes])
                    if *classes > 1 && is_sequence(outer) && !open[id.0] =>
                {
                    Kind::Sequence(*classes)
                }
                (Element::F32, _) => Kind::Values,
                (_, _) => Kind::Whole,
            };
            let all = value.shape.iter().product();
            let whole = Part {
                output: value.name.clone(),
                concat: None,
                index,
                slice: [all, 0, all],
                kind,
                is_chosen: open[id.0],
                noise: Noise::default(),
                spread: 0.0,
                cosines: 0.0,
                agreed: [0; 2],
                leads: Leads::default(),
            };
            let several = joined(graph, *id).into_iter().map(|(concat, slice)| Part {
                concat: Some(concat),
                slice,
                kind: if kind == Kind::Whole {
                    kind
                } else {
                    Kind::Values
                },
                ..whole.clone()
            });
            let several: Vec<Part> = several.collect();
            parts.push(whole);
            parts.extend(several);
        }
        Self { parts, images: 0 }
    }

    /// Adds what an image gives: values of each output in float, and as they were found.
    pub fn add(&mut self, float: &[Vec<f32>], found: &[Vec<f32>]) {
        self.images += 1;
        for part in &mut self.parts {
            let [mut float, mut found] = [float, found].map(|all| part.of(&all[part.index]));
            if part.is_chosen {
                float.sort_by(f32::total_cmp);
                found.sort_by(f32::total_cmp);
            }
            // What isn't finite any more is as good as nothing.
            for (float, found) in float.iter().zip(&mut found) {
                if float.is_finite() && !found.is_finite() {
                    *found = 0.0;
                }
            }
            part.add(&float, &found);
        }
    }

    /// Noise for each of signal, the mean of all outputs; of one that a Concat makes, of its parts.
    pub fn loss(&self) -> f64 {
        let parts = self.parts.iter().enumerate().filter(|(at, part)| {
            let next = self.parts.get(at + 1);
            part.concat.is_some() || next.is_none_or(|next| next.concat.is_none())
        });
        let loss = |part: &Part| match part.kind {
            Kind::Whole => 1.0 - part.agreement().unwrap_or(1.0),
            _ => part.noise.ratio().min(MOST_NOISE),
        };
        let losses: Vec<f64> = parts.map(|(_, part)| loss(part)).collect();
        losses.iter().sum::<f64>() / losses.len().max(1) as f64
    }

    /// Whether all outputs, and all parts of outputs, are as near to float's as a target asks.
    pub fn reaches(&self, target: f64) -> bool {
        let mut parts = self.parts.iter();
        parts.all(|part| part.nearness(self.images) >= target)
    }
}

impl Part {
    /// Signal to noise in dB; infinite where nothing differs.
    pub fn db(&self) -> f64 {
        decibel(self.noise.ratio())
    }

    /// The mean of so many images' cosines.
    pub fn cosine(&self, images: usize) -> f64 {
        self.cosines / images.max(1) as f64
    }

    /// In which part of all images the largest class is that of the float network; of whole numbers, which part of
    /// all values are equal.
    pub fn agreement(&self) -> Option<f64> {
        let [agreed, of] = self.agreed;
        (of > 0).then(|| agreed as f64 / of as f64)
    }

    /// How near it is to float's on images like these, of which there are so many; 1 where nothing differs: 1 less the
    /// relative error (its Euclidean norm through that of the values); of scores of classes, but for probabilities,
    /// the part of images whose largest is expected to stay the largest; of whole numbers the part that is equal.
    /// Of a sequence of probabilities it is the error or the part of images of which every row keeps its largest, the
    /// worse of both: a text is right if all of it is. Others may be worse: it is less by the standard error.
    pub fn nearness(&self, images: usize) -> f64 {
        match self.kind {
            Kind::Whole => self.agreement().unwrap_or(1.0),
            Kind::Classes if !self.leads.images.is_empty() => self.leads.kept(),
            _ => {
                let Noise { signal, noise } = self.noise;
                let more = standard_error(noise, self.spread, images) * images as f64;
                let noise = Noise {
                    signal,
                    noise: noise + more,
                };
                (1.0 - noise.ratio().sqrt()).min(self.leads.kept())
            }
        }
    }

    /// Whether it has lost its meaning.
    pub fn is_lost(&self, images: usize) -> bool {
        let values = self.kind != Kind::Whole
            && (self.cosine(images) < LEAST_COSINE || self.db() < LEAST_DB);
        values
            || self
                .agreement()
                .is_some_and(|agreement| agreement < LEAST_AGREEMENT)
    }

    /// Its values of an output.
    fn of(&self, output: &[f32]) -> Vec<f32> {
        let [row, first, len] = self.slice;
        let rows = output.chunks(row.max(1));
        let some = rows.filter_map(|row| row.get(first..first + len));
        some.flatten().copied().collect()
    }

    fn add(&mut self, float: &[f32], found: &[f32]) {
        let before = self.noise.noise;
        self.noise.add(float, found);
        self.spread += (self.noise.noise - before).powi(2);
        self.cosines += cosine(float, found);
        let [agreed, of] = &mut self.agreed;
        match self.kind {
            Kind::Values => {}
            Kind::Classes => {
                *agreed += usize::from(largest(float) == largest(found));
                *of += 1;
                // Probabilities say themselves how sure they are.
                if !are_probable(float) {
                    self.leads.add([float, found], float.len(), RIVALS);
                }
            }
            Kind::Sequence(classes) => {
                if float.chunks(classes).all(are_probable) {
                    self.leads.add([float, found], classes, 1);
                }
            }
            Kind::Whole => {
                *agreed += float.iter().zip(found).filter(|(a, b)| a == b).count();
                *of += float.len();
            }
        }
    }
}

impl Leads {
    /// Adds an image's rows, each by how far its largest leads the next so many. Of probabilities one is enough: those
    /// of more hardly move and would say that leads don't.
    fn add(&mut self, [float, found]: [&[f32]; 2], row: usize, rivals: usize) {
        let mut leads = Vec::new();
        for (float, found) in float.chunks(row.max(1)).zip(found.chunks(row.max(1))) {
            let mut order: Vec<usize> = (0..float.len()).collect();
            let larger = |a: &usize, b: &usize| float[*b].total_cmp(&float[*a]).then(a.cmp(b));
            if rivals + 1 < order.len() {
                order.select_nth_unstable_by(rivals, larger);
                order.truncate(rivals + 1);
            }
            order.sort_unstable_by(larger);
            for rival in &order[1..] {
                let difference = |all: &[f32]| f64::from(all[order[0]]) - f64::from(all[*rival]);
                let [own, other] = [float, found].map(difference);
                if own.is_finite() && other.is_finite() {
                    leads.push(own);
                    self.moved += (other - own).powi(2);
                }
            }
        }
        self.images.push(leads);
    }

    /// The part of images whose largest class stays so, if each lead moves by chance as far as all of them did: a
    /// count of the images at hand knows no difference between a narrow lead and a wide one. From few images the
    /// standard error is taken off.
    fn kept(&self) -> f64 {
        let known: usize = self.images.iter().map(Vec::len).sum();
        let deviation = (self.moved / known.max(1) as f64).sqrt();
        if deviation == 0.0 {
            return 1.0;
        }
        let stays = |leads: &Vec<f64>| leads.iter().map(|lead| normal(lead / deviation)).product();
        let each: Vec<f64> = self.images.iter().map(stays).collect();
        let (sum, squares) = (
            each.iter().sum::<f64>(),
            each.iter().map(|kept| kept * kept).sum(),
        );
        sum / each.len() as f64 - standard_error(sum, squares, each.len())
    }
}

/// Whether one of the dimensions before the last, and one alone, has several rows.
fn is_sequence(outer: &[usize]) -> bool {
    let several = outer.iter().filter(|size| **size > 1).count();
    several == 1 && outer.iter().product::<usize>() <= MOST_ROWS
}

/// Whether values are probabilities of one of several classes.
fn are_probable(values: &[f32]) -> bool {
    let all = values.iter().all(|v| (0.0..=1.0).contains(v));
    all && values.len() > 1 && (values.iter().sum::<f32>() - 1.0).abs() < 1e-2
}

/// The standard error of the mean of so many numbers, whose sum and the sum of whose squares these are.
fn standard_error(sum: f64, squares: f64, count: usize) -> f64 {
    let count = count as f64;
    let variance = (squares / count - (sum / count).powi(2)).max(0.0);
    (variance / (count - 1.0).max(1.0)).sqrt()
}

/// The part of a normal distribution that lies below so many standard deviations above its mean, to 1e-7
/// (Abramowitz and Stegun, 26.2.17).
fn normal(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * x.abs());
    let series = [
        1.330_274_429,
        -1.821_255_978,
        1.781_477_937,
        -0.356_563_782,
        0.319_381_530,
    ];
    let sum = series.iter().fold(0.0, |sum, c| (sum + c) * t);
    let above = sum * (-0.5 * x * x).exp() / std::f64::consts::TAU.sqrt();
    if x < 0.0 { above } else { 1.0 - above }
}

/// The cosine of the angle between two vectors: 1 where both are zero, 0 where one is.
fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let [mut aa, mut bb, mut ab] = [0f64; 3];
    for (a, b) in a.iter().zip(b) {
        let (a, b) = (f64::from(*a), f64::from(*b));
        if a.is_finite() && b.is_finite() {
            aa += a * a;
            bb += b * b;
            ab += a * b;
        }
    }
    match (aa == 0.0, bb == 0.0) {
        (true, true) => 1.0,
        (true, false) | (false, true) => 0.0,
        (false, false) => ab / (aa.sqrt() * bb.sqrt()),
    }
}

/// The place of the largest, the first of equal ones.
fn largest(values: &[f32]) -> usize {
    (0..values.len()).fold(
        0,
        |best, at| if values[at] > values[best] { at } else { best },
    )
}

/// The Concat that makes a value, or of which it is the transpose: its name and an input's, and where in the value
/// that input lies, for each.
fn joined(graph: &Graph, mut id: ValueId) -> Vec<((String, String), [usize; 3])> {
    // Of each dimension of the Concat its place in the value.
    let shape = &graph.values[id.0].shape;
    let mut places: Vec<usize> = (0..shape.len()).collect();
    while let Some(node) = graph.nodes.iter().find(|node| node.output == id) {
        let axis = match &node.op {
            Op::Identity => None,
            Op::Onnx(op) if op.kind == "Transpose" => {
                let Some(perm) = op.ints("perm").filter(|perm| perm.len() == places.len()) else {
                    break;
                };
                let mut turned = vec![0; places.len()];
                for (to, from) in perm.iter().enumerate() {
                    match usize::try_from(*from)
                        .ok()
                        .and_then(|from| turned.get_mut(from))
                    {
                        Some(place) => *place = places[to],
                        None => return Vec::new(),
                    }
                }
                places = turned;
                None
            }
            Op::Onnx(op) if op.kind == "Concat" => {
                let axis = op.int("axis", 0);
                usize::try_from(if axis < 0 {
                    axis + shape.len() as i64
                } else {
                    axis
                })
                .ok()
            }
            Op::Concat { axis } => Some(*axis),
            _ => break,
        };
        let Some(axis) = axis else {
            id = node.inputs[0];
            continue;
        };
        let inputs = &node.inputs;
        let Some(&place) = places
            .get(axis)
            .filter(|_| (2..=MOST_PARTS).contains(&inputs.len()))
        else {
            break;
        };
        let inner: usize = shape[place + 1..].iter().product();
        let mut first = 0;
        let part = |id: &ValueId| {
            let value = &graph.values[id.0];
            let len = value.shape.get(axis).map_or(0, |size| size * inner);
            let slice = [shape[place] * inner, first, len];
            first += len;
            ((node.name.clone(), value.name.clone()), slice)
        };
        return inputs.iter().map(part).collect();
    }
    Vec::new()
}

#[cfg(test)]
mod tests;
