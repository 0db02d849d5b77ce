//! How a device is opened.

use std::path::PathBuf;
use std::time::Duration;

use crate::build::cache::BinaryCache;
use crate::scopes::Scopes;
use crate::select::Structure;

/// How the throughput structure forms products. All give the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Math {
    /// int8 widened to int32.
    Int = 0,
    /// Pairs of int16, for processors that multiply and add pairs.
    Pairs = 1,
    /// float, which is exact as long as sums stay below 2^24; they are emptied before.
    Float = 2,
    /// Fours of int8 by work-items of one lane, for GPUs that have an instruction for them.
    Fours = 3,
    /// Tiles of 16 rows by 16 lanes by 32 work-items together, for GPUs that have an instruction
    /// for them. BLOCK is 16 and BATCH at most 64; else fours.
    Matrix = 4,
}

/// Where built kernels are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Cache {
    /// `$XDG_CACHE_HOME/vta/opencl`, or `~/.cache/vta/opencl`.
    #[default]
    User,
    /// A folder of choice.
    Folder(PathBuf),
    /// Nowhere: every opening builds.
    None,
}

/// How a device is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// Instead of the one that the device's kind gets. A selector's has precedence.
    pub structure: Option<Structure>,
    /// Instead of the one that suits the device.
    pub math: Option<Math>,
    /// A binary for the core, instead of its source.
    pub bitstream: Option<PathBuf>,
    /// Where built kernels are kept.
    pub cache: Cache,
    /// When nothing is finished for so long, the device is given up as hung.
    pub time_limit: Duration,
    /// GEMM and ALU steps of one batch, at most.
    pub max_steps: u64,
    /// Take the times of kernels, for [`kernel_ns`](vta_driver::DeviceCounters::kernel_ns). That
    /// costs some time itself.
    pub profile: bool,
    /// Whether copies go through pinned host memory, instead of where the device has memory of
    /// its own.
    pub pinned: Option<bool>,
    /// Whether the throughput structure runs a batch in one launch, whose work-groups wait for
    /// each other on the device, instead of where that is known to work: on NVIDIA's GPUs. On
    /// other devices it is a launch of one work-group, which is slow.
    pub one_launch: Option<bool>,
    /// What products of the throughput structure read weights and inputs as, instead of what
    /// [`remember_scopes`](crate::remember_scopes) was told, or else buffers. With other scopes than buffers a batch is a
    /// launch for each level, on every device: what a launch wrote to a buffer, only later ones see
    /// in an image or in constant memory.
    pub scopes: Option<Scopes>,
    /// Whether the throughput structure packs images on the device, instead of where the device
    /// has memory of its own.
    pub pack: Option<bool>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            structure: None,
            math: None,
            bitstream: None,
            cache: Cache::User,
            time_limit: Duration::from_secs(120),
            max_steps: vta_driver::Budget::default().steps,
            profile: false,
            pinned: None,
            one_launch: None,
            scopes: None,
            pack: None,
        }
    }
}

impl Options {
    /// The defaults, with the time limit of `VTA_OPENCL_TIMEOUT_S` (seconds), the cache of
    /// `VTA_OPENCL_CACHE` (a folder; empty for none) and `VTA_OPENCL_ONE_LAUNCH` (0 or 1) where
    /// they are set.
    pub fn from_env() -> Self {
        let mut options = Self::default();
        let seconds = std::env::var("VTA_OPENCL_TIMEOUT_S").ok();
        let seconds = seconds.and_then(|s| s.parse::<f64>().ok());
        let limit = seconds.and_then(|s| Duration::try_from_secs_f64(s).ok());
        if let Some(limit) = limit.filter(|l| !l.is_zero()) {
            options.time_limit = limit;
        }
        match std::env::var_os("VTA_OPENCL_CACHE") {
            None => {}
            Some(folder) if folder.is_empty() => options.cache = Cache::None,
            Some(folder) => options.cache = Cache::Folder(folder.into()),
        }
        options.one_launch = match std::env::var("VTA_OPENCL_ONE_LAUNCH").as_deref() {
            Ok("0") => Some(false),
            Ok("1") => Some(true),
            _ => None,
        };
        options
    }

    pub(crate) fn cache_folder(&self) -> Option<PathBuf> {
        match &self.cache {
            Cache::User => BinaryCache::default_folder(),
            Cache::Folder(path) => Some(path.clone()),
            Cache::None => None,
        }
    }
}
