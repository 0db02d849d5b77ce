//! Quantised networks beside the float one, on images: the fast simulator computes what every device does.

use rayon::prelude::*;
use vta_compiler::float::FloatNetwork;
use vta_compiler::graph::{Element, Graph};
use vta_compiler::quantize::{Calibrated, Comparison, QuantizeError};

use super::calibrate::Calibration;
use crate::error::{Error, Result};
use crate::open::Model;
use crate::options::Target;
use crate::run::{Feed, Session, Values};
use crate::watch::{Part, Watch};

/// Images of which both networks' outputs are held at a time.
const AT_ONCE: usize = 8;

/// Values of each output, by image.
type Found = Vec<Vec<Vec<f32>>>;

/// The float network.
pub struct Float<'a> {
    graph: &'a Graph,
    network: FloatNetwork<'a>,
}

/// Images, and what the float network gives for them.
pub struct Trial {
    images: Vec<Vec<f32>>,
    float: Found,
    blank: Comparison,
}

impl<'a> Float<'a> {
    pub fn new(calibrated: &'a Calibrated) -> Result<Self> {
        let graph = calibrated.float();
        let network = FloatNetwork::new(graph, graph.outputs.clone());
        let network = network.map_err(QuantizeError::from)?;
        Ok(Self { graph, network })
    }

    /// Images to compare several networks on.
    pub fn trial(&self, images: Vec<Vec<f32>>) -> Result<Trial> {
        Ok(Trial {
            float: floats(&self.network, &images)?,
            blank: Comparison::new(self.graph),
            images,
        })
    }

    /// Compares a quantised network on images that are read as they are needed; `watch` is told of each beyond those
    /// that are `done`.
    pub fn compare(
        &self,
        device: &mut Device<'_>,
        images: (&dyn Calibration, &[usize]),
        done: usize,
        watch: &dyn Watch,
    ) -> Result<Comparison> {
        let mut comparison = Comparison::new(self.graph);
        let (images, some) = images;
        let all = done + some.len();
        for some in some.chunks(AT_ONCE) {
            if watch.cancelled() {
                return Err(Error::Cancelled);
            }
            let read = images.read(some)?;
            add(
                &mut comparison,
                &floats(&self.network, &read)?,
                &device.run(&read, watch)?,
            );
            watch.progress(done + comparison.images, all);
        }
        Ok(comparison)
    }
}

impl Trial {
    /// Compares a quantised network.
    pub fn compare(&self, device: &mut Device<'_>, watch: &dyn Watch) -> Result<Comparison> {
        let mut comparison = self.blank.clone();
        let found = device.run(&self.images, watch)?;
        add(&mut comparison, &self.float, &found);
        Ok(comparison)
    }

    /// The images.
    pub fn images(&self) -> &[Vec<f32>] {
        &self.images
    }
}

fn add(comparison: &mut Comparison, float: &Found, found: &Found) {
    for (float, found) in float.iter().zip(found) {
        comparison.add(float, found);
    }
}

fn floats(network: &FloatNetwork<'_>, images: &[Vec<f32>]) -> Result<Found> {
    let found = images.par_iter().map(|image| network.run(image));
    let found: Vec<_> = found.collect();
    let found: Result<Found, _> = found.into_iter().collect();
    Ok(found.map_err(QuantizeError::from)?)
}

/// What computes a quantised network.
pub enum Device<'g> {
    Simulator(Box<Session>),
    /// For a network that can't be lowered.
    Host(Box<FloatNetwork<'g>>),
}

impl<'g> Device<'g> {
    pub fn open(graph: &'g Graph, watch: &dyn Watch) -> Result<Self> {
        let target = Target {
            allow_host: true,
            ..Target::named("sim")
        };
        match Session::open(Model::of_graph("", graph.clone()), &target, &Part(watch)) {
            Ok(session) => Ok(Self::Simulator(Box::new(session))),
            Err(Error::Cancelled) => Err(Error::Cancelled),
            Err(_) => {
                let network = FloatNetwork::new(graph, graph.outputs.clone());
                Ok(Self::Host(Box::new(network.map_err(QuantizeError::from)?)))
            }
        }
    }

    /// The simulator with the network, if that computes it.
    pub fn simulator(self) -> Option<Box<Session>> {
        match self {
            Self::Simulator(session) => Some(session),
            Self::Host(_) => None,
        }
    }

    fn run(&mut self, images: &[Vec<f32>], watch: &dyn Watch) -> Result<Found> {
        let session = match self {
            Self::Simulator(session) => session,
            Self::Host(network) => return floats(network, images),
        };
        let inputs = session.inputs().to_vec();
        let mut first = 0;
        let mut feeds = Vec::with_capacity(inputs.len());
        for input in &inputs {
            let own = images
                .iter()
                .flat_map(|image| &image[first..first + input.len()]);
            let values = match input.port.element {
                Element::F32 => Values::Real(own.copied().collect()),
                _ => Values::Whole(own.map(|v| *v as i64).collect()),
            };
            first += input.len();
            feeds.push(Feed {
                name: &input.name,
                values,
            });
        }
        let found = session.run(&feeds, &Part(watch))?;
        let outputs: Vec<Vec<f32>> = found.outputs.iter().map(|output| output.real()).collect();
        let image = |at: usize| {
            let own = |values: &Vec<f32>| {
                let len = values.len() / images.len();
                values[at * len..][..len].to_vec()
            };
            outputs.iter().map(own).collect()
        };
        Ok((0..images.len()).map(image).collect())
    }
}
