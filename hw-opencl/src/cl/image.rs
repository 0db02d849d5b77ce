//! Images: other ways to read the bytes of a buffer.

use std::ops::Range;
use std::ptr;

use opencl3::memory::{
    CL_MEM_OBJECT_IMAGE1D_BUFFER, CL_MEM_OBJECT_IMAGE2D, CL_MEM_READ_ONLY, CL_RGBA,
    CL_UNSIGNED_INT32, ClMem, Image as RawImage,
};
use opencl3::types::{cl_image_desc, cl_image_format, cl_mem};

use super::context::{Bytes, Ctx, Image, Result, named};
use super::queue::Queue;

/// Bytes of a texel: four channels of 32 bits, a format that every device with images has.
const TEXEL: usize = 16;
static FORMAT: cl_image_format = cl_image_format {
    image_channel_order: CL_RGBA,
    image_channel_data_type: CL_UNSIGNED_INT32,
};

fn description(kind: u32, width: usize, rows: usize, buffer: cl_mem) -> cl_image_desc {
    cl_image_desc {
        image_type: kind,
        image_width: width,
        image_height: rows,
        image_depth: 0,
        image_array_size: 0,
        image_row_pitch: 0,
        image_slice_pitch: 0,
        num_mip_levels: 0,
        num_samples: 0,
        buffer,
    }
}

impl Ctx {
    /// A 1D image of the whole texels of a buffer, in the same memory. Kernels of later launches
    /// see what was written to the buffer.
    pub fn image_of(&self, bytes: &Bytes) -> Result<Image> {
        let width = bytes.size_bytes() as usize / TEXEL;
        let of = bytes.buffer.get();
        self.image(&description(CL_MEM_OBJECT_IMAGE1D_BUFFER, width, 1, of))
    }

    /// A 2D image of `rows` rows of `width` texels, in memory of its own, its contents undefined.
    pub fn image_2d(&self, width: usize, rows: usize) -> Result<Image> {
        self.image(&description(
            CL_MEM_OBJECT_IMAGE2D,
            width,
            rows,
            ptr::null_mut(),
        ))
    }

    fn image(&self, description: &cl_image_desc) -> Result<Image> {
        // SAFETY: both structures live through the call; without a host pointer the image's memory
        // is the runtime's, or the buffer's, of which the runtime keeps a reference.
        let image = unsafe {
            RawImage::create(
                &self.context,
                CL_MEM_READ_ONLY,
                &raw const FORMAT,
                description,
                ptr::null_mut(),
            )
        };
        Ok(Image {
            image: named("clCreateImage", image)?,
            width: description.image_width,
            rows: description.image_height,
        })
    }
}

impl Queue {
    /// Copies rows of a 2D image from where they lie in a buffer.
    pub fn copy_rows(&self, from: &Bytes, to: &mut Image, rows: Range<usize>) -> Result<()> {
        let call = "clEnqueueCopyBufferToImage";
        let row = to.width * TEXEL;
        let inside = rows.start..rows.end.min(to.rows);
        let bytes = (inside.len() * row) as u64;
        let (offset, _) = from.range((inside.start * row) as u64, bytes, call)?;
        if inside.is_empty() {
            return Ok(());
        }
        let (origin, region) = ([0, inside.start, 0], [to.width, inside.len(), 1]);
        // SAFETY: the rows are inside the image and their bytes inside the buffer; both arrays
        // live through the call.
        let event = unsafe {
            self.queue.enqueue_copy_buffer_to_image(
                &from.buffer,
                &mut to.image,
                offset,
                origin.as_ptr(),
                region.as_ptr(),
                &[],
            )
        };
        named(call, event).map(drop)
    }
}
