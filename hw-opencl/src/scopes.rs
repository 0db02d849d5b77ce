//! Memory scopes: what a device reads a buffer of the plan as.
//!
//! | buffer | scope |
//! |---|---|
//! | inputs and weights of products (scratchpads) | one of [`Scope`], chosen or measured |
//! | accumulators, device memory | global: kernels write them |
//! | operations, blocks, levels, tables | global: a batch's may have any size |
//!
//! A LOAD always writes a scratchpad's buffer, and products read it or a view of it. Three scopes
//! share the buffer's memory, so that nothing is copied between them; the 2D image has a memory of
//! its own, to which what was written is copied before it is read.

use std::fmt;
use std::str::FromStr;

use crate::cl::{DeviceFacts, ImageLimits};
use crate::error::OpenClError;
use crate::plan::versions::Scratchpad;
use crate::words::{SCOPES, TEXEL_BYTES, TEXTURE_WIDTH};

/// What products read inputs or weights as. All give the same bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Scope {
    /// A global buffer.
    #[default]
    Buffer = 0,
    /// Constant memory, of at most `CL_DEVICE_MAX_CONSTANT_BUFFER_SIZE` bytes.
    Constant = 1,
    /// A 1D image of the buffer's own memory, four channels of 32 bits a texel, of at most
    /// `CL_DEVICE_IMAGE_MAX_BUFFER_SIZE` texels.
    Image = 2,
    /// A 2D image with a memory of its own, of as many rows as `CL_DEVICE_IMAGE2D_MAX_HEIGHT`
    /// says; copies keep it up to date, and [`scope_copies`](vta_driver::DeviceCounters::scope_copies)
    /// counts them.
    Image2d = 3,
}

impl Scope {
    /// Every scope.
    pub const ALL: [Self; 4] = [Self::Buffer, Self::Constant, Self::Image, Self::Image2d];

    /// The name in options and tables.
    pub const fn name(self) -> &'static str {
        SCOPES[self as usize]
    }

    /// The most bytes that a device can hold so beside the largest buffer, or why it can't.
    fn limit(self, device: &DeviceFacts) -> Result<(u64, &'static str), &'static str> {
        let images = || -> Result<ImageLimits, _> {
            device.images.ok_or("CL_DEVICE_IMAGE_SUPPORT is false")
        };
        let texels = |texels: u64| texels.saturating_mul(TEXEL_BYTES.into());
        Ok(match self {
            Self::Buffer => (device.max_alloc_bytes, "CL_DEVICE_MAX_MEM_ALLOC_SIZE"),
            Self::Constant => (device.constant_bytes, "CL_DEVICE_MAX_CONSTANT_BUFFER_SIZE"),
            Self::Image => (
                texels(images()?.buffer_texels),
                "CL_DEVICE_IMAGE_MAX_BUFFER_SIZE",
            ),
            Self::Image2d if images()?.width < TEXTURE_WIDTH.into() => {
                return Err("CL_DEVICE_IMAGE2D_MAX_WIDTH is below 1024");
            }
            Self::Image2d => (
                texels(images()?.height.saturating_mul(TEXTURE_WIDTH.into())),
                "CL_DEVICE_IMAGE2D_MAX_HEIGHT",
            ),
        })
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The scopes of what products read.
///
/// ```
/// use vta_hw_opencl::{Scope, Scopes};
///
/// let scopes: Scopes = "weights=image".parse()?;
/// assert_eq!((scopes.weights, scopes.activations), (Scope::Image, Scope::Buffer));
/// assert_eq!(scopes.to_string(), "weights=image,activations=buffer");
/// # Ok::<(), vta_hw_opencl::OpenClError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Scopes {
    /// Of weights.
    pub weights: Scope,
    /// Of inputs.
    pub activations: Scope,
}

impl FromStr for Scopes {
    type Err = OpenClError;

    /// Reads `weights=SCOPE,activations=SCOPE`, either of which may be missing: a buffer then.
    ///
    /// # Errors
    /// [`OpenClError::Text`]: a name that is none, or that comes twice.
    fn from_str(text: &str) -> Result<Self, OpenClError> {
        let refuse = |reason: String| {
            OpenClError::Text(format!(
                "'{text}' names no memory scopes: {reason} (weights=SCOPE,activations=SCOPE, of {})",
                SCOPES.join(", ")
            ))
        };
        let (mut weights, mut activations) = (None, None);
        for part in text.split(',') {
            let (role, name) = part
                .split_once('=')
                .ok_or_else(|| refuse(format!("'{part}' has no =")))?;
            let place = match role {
                "weights" => &mut weights,
                "activations" => &mut activations,
                _ => {
                    return Err(refuse(format!(
                        "'{role}' is neither weights nor activations"
                    )));
                }
            };
            let scope = Scope::ALL.into_iter().find(|s| s.name() == name);
            let scope = scope.ok_or_else(|| refuse(format!("there is no scope '{name}'")))?;
            if place.replace(scope).is_some() {
                return Err(refuse(format!("{role} come twice")));
            }
        }
        Ok(Self {
            weights: weights.unwrap_or_default(),
            activations: activations.unwrap_or_default(),
        })
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!(
            "weights={},activations={}",
            self.weights, self.activations
        ))
    }
}

impl Scopes {
    /// Every pair of scopes, buffers first.
    pub fn all() -> impl Iterator<Item = Self> {
        let pair = |weights| {
            Scope::ALL.into_iter().map(move |activations| Self {
                weights,
                activations,
            })
        };
        Scope::ALL.into_iter().flat_map(pair)
    }

    /// The scope of a scratchpad.
    pub(crate) const fn of(self, scratchpad: Scratchpad) -> Scope {
        match scratchpad {
            Scratchpad::Inp => self.activations,
            Scratchpad::Wgt => self.weights,
            Scratchpad::Acc => Scope::Buffer,
        }
    }

    /// Whether products read the buffers that LOADs write, so that one launch may do both.
    pub(crate) fn are_buffers(self) -> bool {
        self == Self::default()
    }

    /// The `-D` macros with which the kernels are built; none for buffers.
    pub(crate) fn macros(self) -> String {
        let macros = [("INP", self.activations), ("WGT", self.weights)];
        let given = macros.iter().filter(|(_, scope)| *scope != Scope::Buffer);
        given
            .map(|(name, scope)| format!(" -DVTA_{name}_SCOPE={}", *scope as u32))
            .collect()
    }

    /// The most bytes of each scratchpad on a device, in [`Scratchpad`]'s order. `least_bytes` is
    /// what a program's own tiles take.
    ///
    /// # Errors
    /// Why the device can't hold them so, with the limit's name.
    pub(crate) fn limits(
        self,
        device: &DeviceFacts,
        least_bytes: [u64; 3],
    ) -> Result<[u64; 3], String> {
        // Kernels write accumulators, so that these are always a buffer.
        let mut limits = [device.max_alloc_bytes; 3];
        for (scratchpad, what) in [
            (Scratchpad::Inp, "activations"),
            (Scratchpad::Wgt, "weights"),
        ] {
            let scope = self.of(scratchpad);
            let refuse = |why: String| format!("{what}={scope}: {why}");
            let (limit, name) = scope.limit(device).map_err(|why| refuse(why.to_owned()))?;
            let least = least_bytes[scratchpad as usize];
            if scope != Scope::Buffer && least > limit {
                return Err(refuse(format!(
                    "they take {least} bytes, but {name} allows {limit}"
                )));
            }
            limits[scratchpad as usize] = limit.min(device.max_alloc_bytes);
        }
        Ok(limits)
    }
}

#[cfg(test)]
mod tests;
