//! The structures behind one face: drafting what a batch's instructions become, making it ready
//! on the device, launching it.

mod core;
pub(crate) mod packer;
mod site;
mod stream;
mod throughput;

use vta_isa::resolve::Resolved;
use vta_isa::{Config, Insn};

use self::core::{Channels, Core, StreamOnDevice};
use self::packer::Packer;
pub(crate) use self::site::Site;
use self::stream::{Stream, StreamBuilder};
use self::throughput::{Launches, Throughput};
use crate::batch::Sink;
use crate::build::program::Builder;
use crate::cl::{Pending, Queue};
use crate::error::{BatchError, EngineError, OpenClError};
use crate::plan::decoder::Decoder;
use crate::plan::schedule::Scheduled;
use crate::select::Structure;

/// Kernels and scratchpads of a structure.
pub(crate) enum Runner {
    Throughput(Box<Throughput>),
    Core(Core),
    Channels(Channels),
}

/// What a batch became, still on the host.
pub(crate) enum Draft {
    Throughput(Scheduled),
    Stream(Stream),
}

/// What a batch became, on the device.
pub(crate) enum Part {
    Throughput(Launches),
    Stream(StreamOnDevice),
}

impl Part {
    /// Bytes of device memory.
    pub fn size_bytes(&self) -> u64 {
        match self {
            Self::Throughput(launches) => launches.size_bytes(),
            Self::Stream(stream) => stream.size_bytes(),
        }
    }
}

/// Passes checked instructions on to the structure's own sink.
pub(crate) enum AnySink<'a> {
    Throughput(Box<Decoder<'a>>),
    Stream(StreamBuilder),
}

impl Sink for AnySink<'_> {
    fn take(&mut self, resolved: &Resolved<'_>) {
        match self {
            Self::Throughput(sink) => sink.take(resolved),
            Self::Stream(sink) => sink.take(resolved),
        }
    }
}

/// What says that a batch came to a runner that didn't draft or make it.
const FOREIGN: EngineError = EngineError::Internal("a batch was made for another structure");

impl Runner {
    /// Builds the kernels, makes the scratchpads, and runs each kernel once on nothing: some
    /// runtimes compile only then.
    pub fn new(
        builder: &Builder<'_>,
        structure: Structure,
        queue: &Queue,
    ) -> Result<Self, OpenClError> {
        Ok(match structure {
            Structure::Throughput => Self::Throughput(Box::new(Throughput::new(builder, queue)?)),
            Structure::Core => Self::Core(Core::new(builder, queue)?),
            Structure::Channels => Self::Channels(Channels::new(builder, queue)?),
        })
    }

    /// Whether a batch starts from scratchpads of zeros; else it finds what the last one left.
    pub fn clears_scratchpads(&self) -> bool {
        match self {
            Self::Throughput(_) => false,
            Self::Core(core) => core.clears_scratchpads(),
            Self::Channels(_) => true,
        }
    }

    /// What packs images, where the device does.
    pub fn packer(&mut self) -> Option<&mut Packer> {
        match self {
            Self::Throughput(throughput) => throughput.packer(),
            Self::Core(_) | Self::Channels(_) => None,
        }
    }

    /// Gives a sink to a walk and makes a draft of what it collected. `arena` is base and size of
    /// device memory.
    pub fn draft<T>(
        &self,
        config: &Config,
        arena: (u64, u64),
        walk: impl FnOnce(&mut AnySink<'_>) -> Result<T, BatchError>,
    ) -> Result<(T, Draft), EngineError> {
        let mut sink = match self {
            Self::Throughput(throughput) => {
                AnySink::Throughput(Box::new(throughput.decoder(config, arena.0)))
            }
            Self::Core(_) | Self::Channels(_) => AnySink::Stream(StreamBuilder::default()),
        };
        let walked = walk(&mut sink)?;
        let draft = match (sink, self) {
            (AnySink::Throughput(decoder), Self::Throughput(throughput)) => {
                Draft::Throughput(throughput.schedule(*decoder, config, arena)?)
            }
            (AnySink::Stream(builder), Self::Core(_) | Self::Channels(_)) => {
                Draft::Stream(builder.finish())
            }
            (AnySink::Throughput(_), Self::Core(_) | Self::Channels(_))
            | (AnySink::Stream(_), Self::Throughput(_)) => return Err(FOREIGN),
        };
        Ok((walked, draft))
    }

    /// Enqueues the copies of a draft to the device, which are finished when the first run is.
    /// `insns` are its instructions in the order in which they run, with their places in the
    /// batch.
    pub fn make(
        draft: Draft,
        insns: impl Iterator<Item = (usize, Insn)>,
        site: Site<'_>,
    ) -> Result<(Part, Vec<Pending>), EngineError> {
        let mut uploads = Vec::new();
        let mut upload = |words: Vec<u32>| site.upload(words, &mut uploads);
        let part = match draft {
            Draft::Throughput(scheduled) => {
                Part::Throughput(Throughput::make(scheduled, &mut upload)?)
            }
            Draft::Stream(stream) => {
                Part::Stream(StreamOnDevice::make(stream, insns, &mut upload)?)
            }
        };
        Ok((part, uploads))
    }

    /// Enqueues a part. What it returns is finished when the part is.
    pub fn run(&mut self, part: &Part, site: Site<'_>) -> Result<Vec<Pending>, EngineError> {
        match (self, part) {
            (Self::Throughput(throughput), Part::Throughput(launches)) => {
                throughput.run(launches, site)
            }
            (Self::Core(core), Part::Stream(stream)) => core.run(stream, site),
            (Self::Channels(channels), Part::Stream(stream)) => {
                channels.run(stream, site)?;
                Ok(Vec::new())
            }
            (Self::Throughput(_), Part::Stream(_))
            | (Self::Core(_) | Self::Channels(_), Part::Throughput(_)) => Err(FOREIGN),
        }
    }
}
