//! What calibration images show of a network's values, of which one image for each thread is held.

mod channels;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;

use self::channels::Channels;
use super::adaptive::{Layer, Moments, layers};
use super::error::QuantizeError;
use super::histogram::Histogram;
use super::rounded::{Kept, refuse_quantized, rounded};
use crate::float::FloatNetwork;
use crate::graph::{Graph, Op, ValueId};

/// Images for each thread that are read at a time.
const IMAGES_PER_THREAD: usize = 4;

/// Images to calibrate with: preprocessed, float32, NCHW, the values of all inputs one behind the other.
pub trait Calibration: Sync {
    /// How many there are.
    fn count(&self) -> usize;

    /// Some of them. Ranges go from the first image to the last, and do so again for another look at
    /// them.
    ///
    /// # Errors
    /// Why an image can't be read, in words.
    fn images(&self, range: Range<usize>) -> Result<Vec<Vec<f32>>, String>;

    /// So many of all images have been run, each as often as it is looked at.
    fn progress(&self, done: usize, all: usize) {
        let _ = (done, all);
    }
}

impl Calibration for &[Vec<f32>] {
    fn count(&self) -> usize {
        self.len()
    }

    fn images(&self, range: Range<usize>) -> Result<Vec<Vec<f32>>, String> {
        Ok(self[range].to_vec())
    }
}

/// One of several looks at all images.
#[derive(Clone, Copy)]
pub(super) struct Look {
    /// Counted from 0.
    pub index: usize,
    pub of: usize,
}

/// What images showed of the values of a network that are rounded. Its size depends on the network alone.
#[derive(Debug)]
pub struct Observed {
    histograms: Vec<Option<Histogram>>,
    channels: Vec<Option<Channels>>,
    /// By nodes.
    moments: BTreeMap<usize, Moments>,
}

impl Observed {
    /// How a value is distributed, if it is rounded.
    pub(super) fn histogram(&self, id: ValueId) -> Option<&Histogram> {
        self.histograms[id.0].as_ref()
    }

    /// The channels of a value that a convolution or a dense layer reads.
    pub(super) fn channels(&self, id: ValueId) -> Option<&Channels> {
        self.channels[id.0].as_ref()
    }

    /// What the weights of a node meet.
    pub(super) fn moments(&self, node: usize) -> Option<&Moments> {
        self.moments.get(&node)
    }
}

/// Looks at what images make of a float graph.
///
/// The same for every number of threads: counts don't depend on their order, and the sums of channels
/// are added up from the first image to the last.
///
/// # Errors
/// Without images, for a graph that is quantised already, an image that can't be read or is of another
/// size, a node that can't be computed.
pub fn observe(graph: &Graph, images: &dyn Calibration) -> Result<Observed, QuantizeError> {
    observe_as(graph, images, &Kept::new(), Look { index: 0, of: 1 })
}

pub(super) fn observe_as(
    graph: &Graph,
    images: &dyn Calibration,
    kept: &Kept,
    look: Look,
) -> Result<Observed, QuantizeError> {
    if images.count() == 0 {
        return Err(QuantizeError::NoImages);
    }
    refuse_quantized(graph)?;
    // Whatever else may be kept in float, what is rounded then is known.
    let [all, own] = [&Kept::new(), kept].map(|kept| rounded(graph, kept));
    let ids = (0..graph.values.len()).map(ValueId);
    let wanted: Vec<ValueId> = ids.filter(|id| all[id.0] || own[id.0]).collect();
    let place = |layer: &Layer| wanted.iter().position(|id| *id == layer.input);
    let taken: Vec<(usize, Layer)> = layers(graph)
        .into_iter()
        .filter_map(|layer| Some((place(&layer)?, layer)))
        .collect();
    let mut moments: Vec<Moments> = taken.iter().map(|(_, layer)| Moments::new(layer)).collect();
    let observer = Observer {
        network: FloatNetwork::new(graph, wanted.clone())?,
        shapes: channelled(graph, &wanted),
        histograms: wanted
            .iter()
            .map(|_| Mutex::new(Histogram::new()))
            .collect(),
        layers: &taken,
        count: images.count(),
    };
    let mut sums: Vec<Option<Channels>> = wanted.iter().map(|_| None).collect();
    let (count, all) = (images.count(), images.count() * look.of);
    let mut done = count * look.index;
    images.progress(done, all);
    let step = IMAGES_PER_THREAD * rayon::current_num_threads();
    for first in (0..count).step_by(step) {
        let range = first..count.min(first + step);
        done += range.len();
        let read = images.images(range.clone()).map_err(QuantizeError::Image)?;
        let seen = read.par_iter().zip(range);
        let seen = seen.map(|(image, index)| observer.look(image, index));
        let seen: Vec<Result<Seen, QuantizeError>> = seen.collect();
        // The first of several errors.
        let seen: Vec<Seen> = seen.into_iter().collect::<Result<_, _>>()?;
        moments.par_iter_mut().enumerate().for_each(|(layer, all)| {
            seen.iter().for_each(|seen| all.add(&seen.patches[layer]));
        });
        for seen in seen {
            for (all, one) in sums.iter_mut().zip(seen.channels) {
                match (all.as_mut(), one) {
                    (Some(all), Some(one)) => all.merge(&one),
                    (_, one) => *all = one,
                }
            }
        }
        images.progress(done, all);
    }
    let none = |_: &_| None;
    let mut observed = Observed {
        histograms: graph.values.iter().map(none).collect(),
        channels: vec![None; graph.values.len()],
        moments: taken
            .iter()
            .map(|(_, layer)| layer.node)
            .zip(
                moments
                    .into_par_iter()
                    .map(Moments::whole)
                    .collect::<Vec<_>>(),
            )
            .collect(),
    };
    let histograms = observer.histograms.into_iter().zip(sums);
    for (id, (histogram, channels)) in wanted.into_iter().zip(histograms) {
        let histogram = histogram
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        observed.histograms[id.0] = Some(histogram);
        observed.channels[id.0] = channels;
    }
    Ok(observed)
}

/// What threads share while images are run.
struct Observer<'g> {
    network: FloatNetwork<'g>,
    /// Channels of each value, and how many values each has.
    shapes: Vec<Option<[usize; 2]>>,
    histograms: Vec<Mutex<Histogram>>,
    /// Layers, each with the place of its input among the values.
    layers: &'g [(usize, Layer)],
    /// Images.
    count: usize,
}

/// What is seen of an image.
struct Seen {
    channels: Vec<Option<Channels>>,
    /// By layers.
    patches: Vec<Vec<f32>>,
}

impl Observer<'_> {
    /// Runs an image, counts its values, and gives its channels and patches.
    fn look(&self, image: &[f32], index: usize) -> Result<Seen, QuantizeError> {
        let values = self.network.run(image)?;
        let patches = self.layers.iter();
        let patches =
            patches.map(|(place, layer)| layer.patches(&values[*place], self.count, index));
        let patches = patches.collect();
        let values = values.into_iter();
        let mut channels = Vec::with_capacity(self.histograms.len());
        for ((values, shape), all) in values.zip(&self.shapes).zip(&self.histograms) {
            let own = Histogram::of(&values);
            all.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .merge(own);
            let [count, each] = shape.unwrap_or_default();
            let whole = shape.is_some() && count * each == values.len();
            channels.push(whole.then(|| Channels::of(&values, each)));
        }
        Ok(Seen { channels, patches })
    }
}

/// Channels and the values of each, of those values whose channels somebody asks for.
fn channelled(graph: &Graph, wanted: &[ValueId]) -> Vec<Option<[usize; 2]>> {
    let mut read = vec![false; graph.values.len()];
    for node in &graph.nodes {
        if matches!(node.op, Op::Conv { .. } | Op::Gemm { .. }) {
            read[node.inputs[0].0] = true;
        }
    }
    let shape = |id: &ValueId| match graph.values[id.0].shape[..] {
        [1, channels, ref inner @ ..] if read[id.0] => Some([channels, inner.iter().product()]),
        _ => None,
    };
    wanted.iter().map(shape).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::graph::{Node, Value};

    /// Images of two values each, larger ones later.
    struct Counted {
        count: usize,
        read: AtomicUsize,
        told: Mutex<Vec<(usize, usize)>>,
    }

    fn image(i: usize) -> Vec<f32> {
        vec![i as f32 * 0.37, -1.0]
    }

    impl Calibration for Counted {
        fn count(&self) -> usize {
            self.count
        }

        fn images(&self, range: Range<usize>) -> Result<Vec<Vec<f32>>, String> {
            self.read.fetch_add(range.len(), Ordering::Relaxed);
            Ok(range.map(image).collect())
        }

        fn progress(&self, done: usize, all: usize) {
            self.told.lock().unwrap().push((done, all));
        }
    }

    #[test]
    fn every_image_is_read_once_and_counted() {
        let images = Counted {
            count: 37,
            read: AtomicUsize::new(0),
            told: Mutex::new(Vec::new()),
        };
        let value = |name: &str| Value::new(name, vec![1, 2], None);
        let graph = Graph {
            values: vec![value("x"), value("y")],
            nodes: vec![Node {
                name: "relu".to_owned(),
                op: Op::Relu,
                inputs: vec![ValueId(0)],
                output: ValueId(1),
            }],
            inputs: vec![ValueId(0)],
            outputs: vec![ValueId(1)],
            ..Graph::default()
        };
        let observed = observe_as(&graph, &images, &Kept::new(), Look { index: 1, of: 2 }).unwrap();
        assert_eq!(images.read.load(Ordering::Relaxed), 37);
        let told = images.told.lock().unwrap();
        assert_eq!((told[0], told[told.len() - 1]), ((37, 74), (74, 74)));
        let all: Vec<f32> = (0..37).flat_map(image).collect();
        let relu: Vec<f32> = all.iter().map(|v| v.max(0.0)).collect();
        assert_eq!(observed.histogram(ValueId(0)), Some(&Histogram::of(&all)));
        assert_eq!(observed.histogram(ValueId(1)), Some(&Histogram::of(&relu)));
    }
}
