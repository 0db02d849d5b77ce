//! What can go wrong, with the place and the numbers.

/// What a call came to. The numbers are those of `vta_rt_status` in the C header.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// All went well.
    Ok = 0,
    /// A pointer that must be given is null.
    Null = 1,
    /// The handle isn't open.
    Closed = 2,
    /// The accelerator, or another call on this handle, is still at work.
    Busy = 3,
    /// The image has `value` bytes and must have `limit`.
    ImageCut = 4,
    /// This is no flat image.
    ImageMagic = 5,
    /// The image has format version `value`; this runtime reads `limit`.
    ImageVersion = 6,
    /// The checksum is `value`, the image says `limit`; `at` is the first byte that it covers.
    ImageChecksum = 7,
    /// The field at byte `at` of the image is `value`, which can't be; `limit` is its bound.
    ImageFormat = 8,
    /// Instruction `at` of the image isn't one, or moves bytes that are none of its network's.
    ImageInsn = 9,
    /// The window has `value` bytes and must have `limit`.
    Window = 10,
    /// Address `value` isn't a multiple of `limit`.
    Alignment = 11,
    /// The memory up to `value` lies beyond what the accelerator addresses, `limit`.
    Address = 12,
    /// There is no tensor, row or batch `value`; there are `limit`.
    Index = 13,
    /// The tensor has `limit` values, `value` were given.
    Length = 14,
    /// Batch `at` hasn't finished after `value` ticks; `limit` was the deadline.
    Hung = 15,
    /// The counter says that batch `at` took `value` cycles; it can't take fewer than `limit`.
    Counter = 16,
    /// The register at byte `at` reads `value`, and must read `limit`.
    Bus = 17,
}

impl Status {
    /// In words, with a zero behind them for C.
    pub(crate) const fn text(code: u32) -> &'static core::ffi::CStr {
        match code {
            0 => c"ok",
            1 => c"a pointer is null",
            2 => c"the handle isn't open",
            3 => c"busy",
            4 => c"the image is cut off",
            5 => c"this is no flat image",
            6 => c"the image has another format version",
            7 => c"the image's checksum is wrong",
            8 => c"a field of the image is out of bounds",
            9 => c"an instruction of the image is out of bounds",
            10 => c"the memory window is too small",
            11 => c"an address isn't aligned",
            12 => c"memory lies beyond the accelerator's addresses",
            13 => c"there is no tensor, row or batch of that number",
            14 => c"the wrong number of values",
            15 => c"the accelerator hasn't finished in time",
            16 => c"the cycle counter is wrong",
            17 => c"a register reads what it can't hold",
            _ => c"unknown status",
        }
    }
}

/// Something that went wrong: see [`Status`] for what `at`, `value` and `limit` are.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What.
    pub status: Status,
    /// Where.
    pub at: u32,
    /// What was found.
    pub value: u64,
    /// What it must be, or its bound.
    pub limit: u64,
}

impl Fault {
    pub(crate) const NONE: Self = Self::of(Status::Ok, 0, 0, 0);
    pub(crate) const NULL: Self = Self::of(Status::Null, 0, 0, 0);

    pub(crate) const fn of(status: Status, at: u32, value: u64, limit: u64) -> Self {
        Self {
            status,
            at,
            value,
            limit,
        }
    }

    /// The fault, unless something holds.
    #[inline(always)]
    pub(crate) fn unless(self, holds: bool) -> Result<(), Self> {
        if holds { Ok(()) } else { Err(self) }
    }

    /// A field of an image.
    pub(crate) const fn field(at: u32, value: u64, limit: u64) -> Self {
        Self::of(Status::ImageFormat, at, value, limit)
    }
}
