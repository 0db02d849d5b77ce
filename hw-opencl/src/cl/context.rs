//! Devices, contexts, programs, buffers and kernels.

use std::ptr;
use std::sync::{Mutex, PoisonError};

use opencl3::command_queue::{CL_QUEUE_PROFILING_ENABLE, CommandQueue};
use opencl3::context::Context;
use opencl3::device::{CL_DEVICE_TYPE_ALL, Device, get_device_ids};
use opencl3::error_codes::{CL_INVALID_VALUE, ClError, error_text};
use opencl3::kernel::Kernel;
use opencl3::memory::{Buffer, CL_MEM_READ_WRITE, ClMem, Image as RawImage};
use opencl3::platform::{Platform, get_platforms};
use opencl3::program::Program;
use opencl3::types::cl_device_id;

use crate::error::{ClFault, OpenClError};

/// What `opencl3` answers when it can't load `libOpenCL.so`.
const NO_LIBRARY: [i32; 2] = [-2000, -2001];
/// What a loader answers that knows no platform.
const NO_PLATFORM: i32 = -1001;

pub(super) type Result<T> = std::result::Result<T, ClFault>;

/// Names the call that failed.
pub(super) fn named<T>(
    call: &'static str,
    result: std::result::Result<T, impl Into<ClError>>,
) -> Result<T> {
    result.map_err(|error| fault(call, error.into().0))
}

fn fault(call: &'static str, code: i32) -> ClFault {
    let name = error_text(code).to_owned();
    ClFault { call, code, name }
}

/// A device's handle.
#[derive(Clone, Copy, Debug)]
struct DeviceId(cl_device_id);

// SAFETY: the specification allows a handle on every thread; it is never dereferenced here.
unsafe impl Send for DeviceId {}
// SAFETY: as above.
unsafe impl Sync for DeviceId {}

/// A device as its platform describes it.
#[derive(Clone, Debug)]
pub struct DeviceFacts {
    id: DeviceId,
    /// The platform's name.
    pub platform: String,
    /// The platform's version.
    pub platform_version: String,
    /// The device's name.
    pub name: String,
    /// Who made it.
    pub vendor: String,
    /// The driver's version.
    pub driver: String,
    /// The OpenCL version that the device states.
    pub version: String,
    /// Names of extensions, with spaces between them.
    pub extensions: String,
    pub(crate) type_bits: u64,
    /// Parallel compute units.
    pub compute_units: u32,
    /// Bytes of device memory.
    pub global_bytes: u64,
    /// The largest buffer in bytes: how far device memory can grow.
    pub max_alloc_bytes: u64,
    /// Bytes of a work-group's local memory.
    pub local_bytes: u64,
    /// Work-items of the largest work-group.
    pub max_group: usize,
    /// Bytes of the largest constant buffer.
    pub constant_bytes: u64,
    /// The largest images, where there are any.
    pub images: Option<ImageLimits>,
    /// Whether its memory is the host's.
    pub unified: bool,
    /// Whether it builds kernels from source; if not, it needs a bitstream.
    pub takes_source: bool,
    pub(crate) available: bool,
}

/// The largest images of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageLimits {
    /// Texels of a 1D image of a buffer's memory.
    pub buffer_texels: u64,
    /// Texels of a row of a 2D image.
    pub width: u64,
    /// Its rows.
    pub height: u64,
}

impl DeviceFacts {
    /// What another device or driver says otherwise, line by line.
    pub fn identity(&self) -> String {
        [
            &self.platform[..],
            &self.platform_version,
            &self.name,
            &self.driver,
            &self.version,
        ]
        .join("\n")
    }
}

#[cfg(test)]
impl DeviceFacts {
    /// A device that no platform has, with nothing but 1 GiB of memory.
    pub fn nowhere() -> Self {
        let text = || "none".to_owned();
        Self {
            id: DeviceId(ptr::null_mut()),
            platform: text(),
            platform_version: text(),
            name: text(),
            vendor: text(),
            driver: text(),
            version: text(),
            extensions: String::new(),
            type_bits: 0,
            compute_units: 1,
            global_bytes: 1 << 30,
            max_alloc_bytes: 1 << 30,
            local_bytes: 0,
            max_group: 1,
            constant_bytes: 0,
            images: None,
            unified: true,
            takes_source: true,
            available: true,
        }
    }
}

/// Every device of every platform, in the loader's order. A platform that fails is left out with
/// a warning, so that the others can be used.
pub(crate) fn devices() -> std::result::Result<Vec<DeviceFacts>, OpenClError> {
    // Loaders and drivers start up in the first call; with NVIDIA's and PoCL's, two threads that
    // make it at once have crashed the process.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let platforms = match get_platforms() {
        Ok(platforms) => platforms,
        Err(error) if NO_LIBRARY.contains(&error.0) => return Err(OpenClError::NoLoader),
        Err(error) if error.0 == NO_PLATFORM => return Err(OpenClError::NoPlatform),
        Err(error) => {
            return Err(OpenClError::Call {
                device: "opencl".to_owned(),
                fault: fault("clGetPlatformIDs", error.0),
            });
        }
    };
    if platforms.is_empty() {
        return Err(OpenClError::NoPlatform);
    }
    let mut devices = Vec::new();
    for platform in platforms {
        let ids = match get_device_ids(platform.id(), CL_DEVICE_TYPE_ALL) {
            Ok(ids) => ids,
            Err(code) => {
                let name = platform.name().unwrap_or_default();
                tracing::warn!(platform = name, code, "listing devices");
                continue;
            }
        };
        for id in ids {
            match describe(&platform, id) {
                Ok(device) => devices.push(device),
                Err(fault) => tracing::warn!(%fault, "describing a device"),
            }
        }
    }
    Ok(devices)
}

fn describe(platform: &Platform, id: cl_device_id) -> Result<DeviceFacts> {
    let d = Device::new(id);
    let info = "clGetDeviceInfo";
    let text = |s: String| s.trim_matches(['\0', ' ']).to_owned();
    Ok(DeviceFacts {
        id: DeviceId(id),
        platform: text(named("clGetPlatformInfo", platform.name())?),
        platform_version: text(named("clGetPlatformInfo", platform.version())?),
        name: text(named(info, d.name())?),
        vendor: text(named(info, d.vendor())?),
        driver: text(named(info, d.driver_version())?),
        version: text(named(info, d.version())?),
        extensions: text(named(info, d.extensions())?),
        type_bits: named(info, d.dev_type())?,
        compute_units: named(info, d.max_compute_units())?,
        global_bytes: named(info, d.global_mem_size())?,
        max_alloc_bytes: named(info, d.max_mem_alloc_size())?,
        local_bytes: named(info, d.local_mem_size())?,
        max_group: named(info, d.max_work_group_size())?,
        constant_bytes: named(info, d.max_constant_buffer_size())?,
        images: image_limits(&d)?,
        // Later versions only deprecate the question.
        unified: d.host_unified_memory().unwrap_or(false),
        takes_source: named(info, d.compiler_available())?,
        available: named(info, d.available())?,
    })
}

/// The largest images; none where the device has no images or is older than OpenCL 1.2.
fn image_limits(d: &Device) -> Result<Option<ImageLimits>> {
    let info = "clGetDeviceInfo";
    if !named(info, d.image_support())? {
        return Ok(None);
    }
    let Ok(buffer_texels) = d.image_max_buffer_size() else {
        return Ok(None);
    };
    Ok(Some(ImageLimits {
        buffer_texels: buffer_texels as u64,
        width: named(info, d.image2d_max_width())? as u64,
        height: named(info, d.image2d_max_height())? as u64,
    }))
}

/// A context of one device.
pub(crate) struct Ctx {
    pub(super) context: Context,
    device: DeviceId,
}

/// Kernels that don't build: the runtime's answer and the log.
pub(crate) struct BuildFault {
    pub fault: ClFault,
    pub log: String,
}

impl From<ClFault> for BuildFault {
    fn from(fault: ClFault) -> Self {
        let log = String::new();
        Self { fault, log }
    }
}

impl Ctx {
    pub fn new(device: &DeviceFacts) -> Result<Self> {
        let context = named(
            "clCreateContext",
            Context::from_device(&Device::new(device.id.0)),
        )?;
        Ok(Self {
            context,
            device: device.id,
        })
    }

    /// A queue as `opencl3` has it.
    pub(super) fn raw_queue(&self, profile: bool) -> Result<CommandQueue> {
        let properties = if profile {
            CL_QUEUE_PROFILING_ENABLE
        } else {
            0
        };
        // The call that works on OpenCL 1.2 devices, too; later versions only deprecate it.
        #[allow(deprecated)]
        let queue = CommandQueue::create_default(&self.context, properties);
        named("clCreateCommandQueue", queue)
    }

    /// A buffer of at least one byte, its contents undefined.
    pub fn buffer(&self, size_bytes: u64) -> Result<Bytes> {
        let size = size_bytes.max(1) as usize;
        // SAFETY: without a host pointer the runtime allocates the memory itself.
        let buffer = unsafe {
            Buffer::<u8>::create(&self.context, CL_MEM_READ_WRITE, size, ptr::null_mut())
        };
        let buffer = named("clCreateBuffer", buffer)?;
        Ok(Bytes {
            buffer,
            size_bytes: size as u64,
        })
    }

    /// Compiles a source. It is one text: `cl3` hands over the lengths of several sources where
    /// the runtime expects pointers.
    pub fn build(&self, source: &str, options: &str) -> std::result::Result<Built, BuildFault> {
        let program = Program::create_from_source(&self.context, source);
        let program = named("clCreateProgramWithSource", program)?;
        self.finish_build(program, options)
    }

    /// Loads a binary of this device.
    pub fn load(&self, binary: &[u8], options: &str) -> std::result::Result<Built, BuildFault> {
        // SAFETY: the device is this context's only one.
        let program =
            unsafe { Program::create_from_binary(&self.context, &[self.device.0], &[binary]) };
        let program = named("clCreateProgramWithBinary", program)?;
        self.finish_build(program, options)
    }

    fn finish_build(
        &self,
        mut program: Program,
        options: &str,
    ) -> std::result::Result<Built, BuildFault> {
        let built = named("clBuildProgram", program.build(&[self.device.0], options));
        let log = program.get_build_log(self.device.0).unwrap_or_default();
        let log = log.trim_matches(['\0', '\n', ' ']).to_owned();
        match built {
            Ok(()) => Ok(Built { program, log }),
            Err(fault) => Err(BuildFault { fault, log }),
        }
    }
}

/// A program that is ready to run.
pub(crate) struct Built {
    program: Program,
    /// Warnings, if any.
    pub log: String,
}

impl Built {
    pub fn binary(&self) -> Result<Vec<u8>> {
        let binaries = named("clGetProgramInfo", self.program.get_binaries())?;
        Ok(binaries.into_iter().next().unwrap_or_default())
    }

    pub fn has_kernel(&self, name: &str) -> bool {
        self.program.kernel_names().split(';').any(|n| n == name)
    }

    pub fn kernel(&self, name: &str) -> Result<CoreKernel> {
        named("clCreateKernel", Kernel::create(&self.program, name)).map(CoreKernel)
    }
}

/// Bytes of device memory.
pub(crate) struct Bytes {
    pub(super) buffer: Buffer<u8>,
    size_bytes: u64,
}

impl Bytes {
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// A range that lies inside the buffer, as sizes of the host.
    pub(crate) fn range(
        &self,
        offset: u64,
        len: u64,
        call: &'static str,
    ) -> Result<(usize, usize)> {
        match offset.checked_add(len) {
            Some(end) if end <= self.size_bytes => Ok((offset as usize, len as usize)),
            // What the runtime would answer.
            _ => Err(fault(call, CL_INVALID_VALUE)),
        }
    }
}

/// An image that kernels read.
pub(crate) struct Image {
    pub(super) image: RawImage,
    /// Texels of a row.
    pub(super) width: usize,
    pub(super) rows: usize,
}

/// An argument of a kernel.
pub(crate) enum Arg<'a> {
    U32(u32),
    U64(u64),
    Buffer(&'a Bytes),
    Image(&'a Image),
}

/// A kernel. It isn't shared between threads: its arguments are part of it.
pub(crate) struct CoreKernel(pub(super) Kernel);

impl CoreKernel {
    /// Sets arguments from `first` on.
    pub fn set(&self, first: u32, args: &[Arg<'_>]) -> Result<()> {
        for (i, arg) in args.iter().enumerate() {
            let index = first + i as u32;
            // SAFETY: the runtime checks index and size against the kernel's signature; a
            // buffer outlives the launches that use it, because releasing it only drops a
            // reference that the runtime itself holds until they are done.
            let set = unsafe {
                match arg {
                    Arg::U32(value) => self.0.set_arg(index, value),
                    Arg::U64(value) => self.0.set_arg(index, value),
                    Arg::Buffer(bytes) => self.0.set_arg(index, &bytes.buffer.get()),
                    Arg::Image(image) => self.0.set_arg(index, &image.image.get()),
                }
            };
            named("clSetKernelArg", set)?;
        }
        Ok(())
    }
}
