//! A network loaded on its devices, for arrays and images.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use vta_compiler::graph::Data;
use vta_compiler::host::{EndOutput, Ends};
use vta_driver::{Counters, DeviceCounters, Program};

use crate::compile::Compiled;
use crate::compile::dump::{self, Plans};
use crate::device::check_names;
use crate::device::rtl::Totals;
use crate::device::setup::Setup;
use crate::error::{Context, Error, Result, ensure};
use crate::open::model::{Model, Ports, Tensor};
use crate::open::preprocess::to_int8;
use crate::options::Target;
use crate::report::Report;
use crate::report::host_share::HostShare;
use crate::report::timed::Timed;
use crate::run::outcome::Start;
use crate::run::pool::{Abreast, Checks, Pool, Share};
use crate::run::supply::Images;
use crate::watch::Watch;

/// A network loaded on its devices. Constants are written once; every run takes any number of
/// images, BATCH of them at a time, on as many devices as the target's threads allow.
pub struct Session {
    title: String,
    program: Arc<Program>,
    /// What the host takes of a pass.
    pub(crate) host: HostShare,
    pool: Pool,
}

/// Values of one input for some images, one image behind the other, each in CHW order.
#[derive(Clone, Debug)]
pub struct Feed<'a> {
    /// The input's name.
    pub name: &'a str,
    /// A whole number of images.
    pub values: Values<'a>,
}

impl<'a> Feed<'a> {
    /// An image of zeros, where no value matters.
    fn blank(input: &'a Tensor) -> Self {
        Self {
            name: &input.name,
            values: Values::Whole(vec![0; input.len()].into()),
        }
    }
}

/// Real values, or steps of the input's scale.
#[derive(Clone, Debug, PartialEq)]
pub enum Values<'a> {
    /// Rounded to the nearest step, ties to even, and clamped to int8.
    Real(Cow<'a, [f32]>),
    /// As the device reads them.
    Int8(Cow<'a, [i8]>),
    /// Whole numbers, as the host takes them; of an input of floats they are its real values.
    Whole(Cow<'a, [i64]>),
}

impl Values<'_> {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Self::Real(values) => values.len(),
            Self::Int8(values) => values.len(),
            Self::Whole(values) => values.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One image's data behind the other's.
    fn joined<'d>(images: impl Iterator<Item = &'d Data>) -> Values<'static> {
        let (mut real, mut whole) = (Vec::new(), Vec::new());
        for data in images {
            match (data, data.integers()) {
                (Data::F32(values), _) => real.extend_from_slice(values),
                (_, values) => whole.extend(values.unwrap_or_default()),
            }
        }
        match whole.is_empty() {
            true => Values::Real(real.into()),
            false => Values::Whole(whole.into()),
        }
    }
}

/// Values of one output for all images of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// Its name, shape and scale.
    pub tensor: Tensor,
    /// How many images there are.
    pub images: usize,
    /// `images` times [`Tensor::len`] values, each image in CHW order: int8, or what the host gave.
    pub values: Values<'static>,
}

impl Output {
    /// The values in the output's own unit.
    pub fn real(&self) -> Vec<f32> {
        let scale = self.tensor.scale.unwrap_or(1.0);
        let zero = f32::from(self.tensor.zero);
        let real = |&v: &i8| (f32::from(v) - zero) * scale;
        match &self.values {
            Values::Int8(values) => values.iter().map(real).collect(),
            Values::Real(values) => values.to_vec(),
            Values::Whole(values) => values.iter().map(|&v| v as f32).collect(),
        }
    }

    /// The values as the device gave them; `None` for what the host computed.
    pub fn int8(&self) -> Option<&[i8]> {
        match &self.values {
            Values::Int8(values) => Some(values),
            Values::Real(_) | Values::Whole(_) => None,
        }
    }
}

/// What a run has computed.
#[derive(Clone, Debug)]
pub struct Outputs {
    /// In the model's order.
    pub outputs: Vec<Output>,
    /// Layers whose output isn't the reference interpreter's, a line each; empty for a session that
    /// compares nothing.
    pub mismatches: Vec<String>,
    /// Totals of all devices since the session was opened.
    pub counters: Counters,
    /// Likewise by the names of the devices that launch kernels.
    pub devices: BTreeMap<String, DeviceCounters>,
}

impl Outputs {
    /// An output by name.
    pub fn get(&self, name: &str) -> Option<&Output> {
        self.outputs.iter().find(|o| o.tensor.name == name)
    }
}

impl Session {
    /// Compiles a model for a target. Devices are opened by the first run. `watch` hears why the
    /// program isn't one for the board whose timing is borrowed, and may cancel between two steps.
    ///
    /// # Errors
    /// [`Error::Usage`] for options that don't fit each other or the model, [`Error::Io`] and
    /// [`Error::Input`] for their files, [`Error::Float`] for a float model, [`Error::Model`] for
    /// what can't be compiled, [`Error::Cancelled`] when `watch` says so.
    pub fn open(model: Model, target: &Target, watch: &dyn Watch) -> Result<Self> {
        Self::checking(model, target, Checks::None, watch)
    }

    /// As [`Self::open`]; every run compares each layer with the reference interpreter.
    ///
    /// # Errors
    /// As for [`Self::open`]; [`Error::Usage`] for a bundle and for a target that only counts
    /// cycles.
    pub fn verifying(model: Model, target: &Target, watch: &dyn Watch) -> Result<Self> {
        ensure!(
            !model.is_compiled(),
            "layers can't be compared without the model of {}",
            model.name()
        );
        ensure!(
            !target.views.timing_only,
            "a device that only counts cycles computes nothing to compare"
        );
        Self::checking(model, target, Checks::Layers, watch)
    }

    fn checking(model: Model, target: &Target, checks: Checks, watch: &dyn Watch) -> Result<Self> {
        check_names(&target.device.device)?;
        ensure!(target.threads != Some(0), "there must be a thread at least");
        ensure!(
            target.batch != Some(0),
            "there must be a run in flight at least"
        );
        let title = model.name().to_owned();
        if watch.cancelled() {
            return Err(Error::Cancelled);
        }
        let setup = Setup::new(&target.device, &target.views, &title)?;
        let compiled = match checks {
            Checks::Layers => model.compile_to_compare(target, watch)?,
            Checks::None => model.compile(target, watch)?,
        };
        if let Some(text) = setup.machine().misfit(&compiled.program) {
            watch.note(&text);
        }
        Self::load(compiled, setup, target, checks, &title)
    }

    /// A session of what is compiled and set up already.
    ///
    /// # Errors
    /// [`Error::Model`] for a network that contradicts itself.
    pub(crate) fn load(
        compiled: Compiled,
        setup: Setup,
        target: &Target,
        checks: Checks,
        title: &str,
    ) -> Result<Self> {
        let abreast = Abreast {
            threads: target.threads,
            in_flight: target.batch,
        };
        Ok(Self {
            title: title.to_owned(),
            program: Arc::clone(&compiled.program),
            host: compiled.host_share()?,
            pool: Pool::new(compiled, setup, checks, abreast),
        })
    }

    /// What the network takes, in the model's order.
    ///
    /// # Errors
    /// [`Error::Model`] for a program that contradicts itself.
    pub fn inputs(&self) -> Result<Vec<Tensor>> {
        self.pool.network().inputs()
    }

    /// What the network gives, in the model's order.
    ///
    /// # Errors
    /// [`Error::Model`] for a program that contradicts itself.
    pub fn outputs(&self) -> Result<Vec<Tensor>> {
        self.pool.network().outputs()
    }

    /// What the network takes and gives as its model says it, in the order of [`Self::inputs`] and
    /// [`Self::outputs`]: a bundle of an older version has the tensors' own dimensions.
    ///
    /// # Errors
    /// [`Error::Model`] for a program that contradicts itself.
    pub fn ports(&self) -> Result<Ports> {
        let (inputs, outputs) = (self.inputs()?, self.outputs()?);
        Ok(Ports::of_metadata(
            &self.program.metadata,
            &inputs,
            &outputs,
        ))
    }

    /// The compiled network; only its tensors and layers when it runs over several places.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// What the fast executor makes of one pass over the network: see [`dump::plans`]. Nothing
    /// runs.
    ///
    /// # Errors
    /// As for [`dump::plans`].
    pub fn plans(&self) -> Result<Plans> {
        dump::plans(self.pool.network(), &self.pool.setup().names())
    }

    /// Runs the network on arrays: one [`Feed`] for each input; a target that only counts cycles needs none.
    ///
    /// # Errors
    /// [`Error::Input`] for an input that isn't given or that the network hasn't, or values that
    /// aren't a whole number of images; [`Error::Device`] for a device that can't be opened,
    /// [`Error::Run`] for one that fails, [`Error::Cancelled`] when `watch` says so. After an
    /// error the session can be used again.
    pub fn run(&mut self, feeds: &[Feed<'_>], watch: &dyn Watch) -> Result<Outputs> {
        let inputs = self.inputs()?;
        let blank: Vec<Feed<'_>>;
        let feeds = match feeds {
            [] if self.timing_only() => {
                blank = inputs.iter().map(Feed::blank).collect();
                &blank
            }
            feeds => feeds,
        };
        for feed in feeds {
            let known = inputs.iter().any(|input| input.name == feed.name);
            let names: Vec<&str> = inputs.iter().map(|i| &*i.name).collect();
            let wrong = || format!("no input '{}' (there is {})", feed.name, names.join(", "));
            known.then_some(()).with_context(wrong)?;
        }
        let ends = self.pool.network().ends.clone();
        let arrays = Arrays::new(&inputs, feeds, ends.clone())?;
        let (int8, mut all) = self.run_int8(&arrays, watch)?;
        let Some(ends) = ends else {
            let with = self.outputs()?.into_iter().zip(int8);
            let int8 = with.map(|(tensor, values)| Output {
                tensor,
                images: arrays.count,
                values: Values::Int8(values.into()),
            });
            all.outputs = int8.collect();
            return Ok(all);
        };
        all.outputs = self.left(&ends, &arrays, &int8)?;
        Ok(all)
    }

    /// The model's outputs of what the program gave, by output, for all images.
    fn left(&self, ends: &Ends, arrays: &Arrays<'_>, int8: &[Vec<i8>]) -> Result<Vec<Output>> {
        let images = arrays.count;
        let len = |values: &Vec<i8>| values.len() / images.max(1);
        let mut left: Vec<Vec<Data>> = Vec::with_capacity(images);
        for image in 0..images {
            let of_image = |values: &'_ Vec<i8>| image * len(values)..(image + 1) * len(values);
            let tensors = int8.iter().map(|values| &values[of_image(values)]);
            let inputs = match ends.reads_inputs() {
                true => arrays.data(image)?,
                false => Vec::new(),
            };
            left.push(ends.leave(&tensors.collect::<Vec<_>>(), &inputs)?);
        }
        let output = |(tensor, output): (Tensor, &EndOutput)| {
            let values = match *output {
                EndOutput::Tensor(at) => Values::Int8(int8[at].clone().into()),
                EndOutput::Value { index, .. } => {
                    Values::joined(left.iter().map(|data| &data[index]))
                }
            };
            Output {
                tensor,
                images,
                values,
            }
        };
        let outputs = self.outputs()?.into_iter().zip(ends.outputs());
        Ok(outputs.map(output).collect())
    }

    /// Runs the network's program on images, each of which is asked for when it is needed: what the
    /// host computes around it, as [`vta_compiler::host::Ends`], is the caller's. Outputs are the
    /// program's.
    ///
    /// # Errors
    /// As for [`Self::run`], and what the images say.
    pub fn run_images(&mut self, images: &dyn Images, watch: &dyn Watch) -> Result<Outputs> {
        let (int8, mut all) = self.run_int8(images, watch)?;
        let indices = self.program.outputs.iter();
        let tensors = indices.map(|index| Tensor::of_program(&self.program, *index));
        let tensors: Vec<Tensor> = tensors.collect::<Result<_>>()?;
        let output = |(tensor, values): (Tensor, Vec<i8>)| Output {
            tensor,
            images: images.count(),
            values: Values::Int8(values.into()),
        };
        all.outputs = tensors.into_iter().zip(int8).map(output).collect();
        Ok(all)
    }

    /// What the program gives, by output, for all images; and what a run tells beside it.
    fn run_int8(
        &mut self,
        images: &dyn Images,
        watch: &dyn Watch,
    ) -> Result<(Vec<Vec<i8>>, Outputs)> {
        let shares = self.shares(images, watch)?;
        let indices = self.program.outputs.iter();
        let lens = indices.map(|index| Ok(self.program.tensor(*index)?.image_len()));
        let lens: Vec<usize> = lens.collect::<Result<_>>()?;
        let room = lens.iter().map(|len| vec![0; len * images.count()]);
        let mut outputs: Vec<Vec<i8>> = room.collect();
        let mut all = Outputs {
            outputs: Vec::new(),
            mismatches: Vec::new(),
            counters: Counters::default(),
            devices: BTreeMap::new(),
        };
        for share in shares {
            for (first, found) in &share.outputs {
                for ((output, images), len) in outputs.iter_mut().zip(found).zip(&lens) {
                    for (image, values) in (*first..).zip(images) {
                        output[image * len..][..*len].copy_from_slice(values);
                    }
                }
            }
            all.mismatches.extend(share.mismatches);
            all.counters.add(&share.counters);
            for (name, counted) in share.devices {
                all.devices.entry(name).or_default().add(&counted);
            }
        }
        Ok((outputs, all))
    }

    /// Runs images; what each device found.
    pub(crate) fn shares(&mut self, images: &dyn Images, watch: &dyn Watch) -> Result<Vec<Share>> {
        self.pool.run(images, watch)
    }

    /// Where the time before the last run's first results went.
    pub(crate) fn start(&self) -> Start {
        self.pool.start()
    }

    /// Whether outputs mean nothing, because the device only counts cycles.
    pub fn timing_only(&self) -> bool {
        self.pool.setup().timing_only()
    }

    /// The cycles of one pass over the program, if the device counts them and a run was made.
    pub fn report(&self) -> Option<Report> {
        let timed = self.pool.setup().timed(&self.program, self.host.clone())?;
        (!timed.runs.is_empty()).then(|| Report {
            title: self.title.clone(),
            program: Arc::clone(&self.program),
            timed,
        })
    }

    /// What was found of a design so far, if the device is one.
    pub(crate) fn design(&self) -> Option<Totals> {
        self.pool.setup().design()
    }

    /// After the last run: ends the trace and writes the report that the target names.
    ///
    /// # Errors
    /// [`Error::Io`] when they can't be written.
    pub fn finish(&self) -> Result<Option<Timed>> {
        let setup = self.pool.setup();
        setup.finish(&self.program, self.host.clone(), &self.title)
    }
}

/// Arrays of each input, for the images that they hold.
struct Arrays<'a> {
    /// In the inputs' order.
    values: Vec<(&'a Tensor, &'a Values<'a>)>,
    count: usize,
    ends: Option<Arc<Ends>>,
}

impl<'a> Arrays<'a> {
    fn new(inputs: &'a [Tensor], feeds: &'a [Feed<'a>], ends: Option<Arc<Ends>>) -> Result<Self> {
        let mut values = Vec::with_capacity(inputs.len());
        let mut count = None;
        for input in inputs {
            let feed = feeds.iter().find(|feed| feed.name == input.name);
            let feed = feed.with_context(|| format!("input '{}' isn't given", input.name))?;
            let (found, len) = (feed.values.len(), input.len());
            if len == 0 || !found.is_multiple_of(len) {
                return Err(Error::input(format!(
                    "input '{}': {found} values; an image has {len}",
                    feed.name
                )));
            }
            if let Values::Real(values) = &feed.values
                && let Some(at) = values.iter().position(|v| !v.is_finite())
            {
                let text = format!("input '{}', value {at}: {}", feed.name, values[at]);
                return Err(Error::input(text));
            }
            let images = found / len;
            let first = *count.get_or_insert(images);
            if first != images {
                let name = &input.name;
                let text = format!("{images} images of input '{name}', but {first} of the first");
                return Err(Error::input(text));
            }
            values.push((input, &feed.values));
        }
        Ok(Self {
            values,
            count: count.unwrap_or(0),
            ends,
        })
    }

    /// The model's inputs of an image, as the host takes them.
    fn data(&self, image: usize) -> Result<Vec<Data>> {
        let data = |(input, values): &(&Tensor, &Values<'_>)| {
            let range = image * input.len()..(image + 1) * input.len();
            let data = match values {
                Values::Real(v) => Data::F32(v[range].to_vec()),
                Values::Int8(v) => Data::I8(v[range].to_vec()),
                Values::Whole(v) => {
                    return whole(&v[range], input);
                }
            };
            let (name, takes) = (&input.name, input.element);
            let wrong = || format!("input '{name}' takes {}", takes.name());
            (data.element() == takes)
                .then_some(data)
                .with_context(wrong)
        };
        self.values.iter().map(data).collect()
    }
}

/// Whole numbers of an input's type.
fn whole(values: &[i64], input: &Tensor) -> Result<Data> {
    let wrong = |value: i64| {
        let (name, element) = (&input.name, input.element.name());
        Error::input(format!("input '{name}': {value} is no {element}"))
    };
    Data::of_integers(input.element, values).map_err(wrong)
}

impl Images for Arrays<'_> {
    fn count(&self) -> usize {
        self.count
    }

    fn image(&self, index: usize) -> Result<Cow<'_, [i8]>> {
        if let Some(ends) = &self.ends
            && ends.inputs().is_some()
        {
            return Ok(ends.enter(self.data(index)?)?.into());
        }
        let one = |(input, values): &(&Tensor, &'_ Values<'_>)| -> Vec<i8> {
            let range = index * input.len()..(index + 1) * input.len();
            let to_int8 = |values: &[f32]| to_int8(values, input.scale.unwrap_or(1.0), input.zero);
            match values {
                Values::Int8(v) => v[range].to_vec(),
                Values::Real(v) => to_int8(&v[range]),
                Values::Whole(v) => {
                    let real: Vec<f32> = v[range].iter().map(|&v| v as f32).collect();
                    to_int8(&real)
                }
            }
        };
        Ok(self.values.iter().flat_map(one).collect::<Vec<_>>().into())
    }
}
