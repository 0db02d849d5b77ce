//! The structures behind one face: making what a batch's instructions become ready on the device,
//! launching it.

mod core;
pub(crate) mod packer;
mod site;
mod stream;
mod throughput;

use self::core::{Channels, Core, StreamOnDevice};
use self::packer::Packer;
pub(crate) use self::site::Site;
use self::stream::Stream;
use self::throughput::{Launches, Throughput};
use crate::batch::Sink;
use crate::build::program::Builder;
use crate::cl::{Pending, Queue};
use crate::error::{EngineError, OpenClError};
use crate::select::Structure;

/// Kernels and scratchpads of a structure.
pub(crate) enum Runner {
    Throughput(Box<Throughput>),
    Core(Core),
    Channels(Channels),
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

/// What says that a batch came to a runner that didn't make it.
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

    /// Gives a sink to a walk, and enqueues the copies of what it collected to the device, which are
    /// finished when the first run is.
    pub fn make<T>(
        &self,
        site: Site<'_>,
        walk: impl FnOnce(&mut dyn Sink) -> Result<T, EngineError>,
    ) -> Result<(T, Part, Vec<Pending>), EngineError> {
        let mut uploads = Vec::new();
        let mut upload = |words: Vec<u32>| site.upload(words, &mut uploads);
        let arena = (site.arena.base(), site.arena.size_bytes());
        let (walked, part) = match self {
            Self::Throughput(throughput) => {
                let mut decoder = throughput.decoder(arena);
                let walked = walk(&mut decoder)?;
                let launches = Throughput::make(decoder.schedule()?, &mut upload)?;
                (walked, Part::Throughput(launches))
            }
            Self::Core(_) | Self::Channels(_) => {
                let mut stream = Stream::default();
                let walked = walk(&mut stream)?;
                let stream = StreamOnDevice::make(stream, &mut upload)?;
                (walked, Part::Stream(stream))
            }
        };
        Ok((walked, part, uploads))
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
