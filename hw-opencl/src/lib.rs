//! VTA on OpenCL devices: CPUs, GPUs and FPGAs as one [`vta_driver::Device`].
//!
//! This crate is where the backend goes: choosing a platform and device, building the kernels
//! from source or loading a bitstream, device memory as one arena, and batches as kernel
//! launches. It has no code yet; `vta-sim` has the devices that run today.
