//! A program on disk: versioned, checksummed.
//!
//! Layout, little-endian: 8 bytes magic, `u32` version, `u32` number of sections, `u32` CRC-32
//! of the table, `u32` zero; then for each section `u32` kind, `u32` CRC-32 of its bytes, `u64`
//! offset, `u64` length; then the sections, each on a 64-byte boundary:
//!
//! | kind | section | contents |
//! |---|---|---|
//! | 1 | meta | JSON: configuration, buffers, tensors, layers with their nodes, without commands, metadata |
//! | 2 | commands | all layers' commands: 16-byte instruction, `u32` symbol kind, `u32` symbol |
//! | 3 | micro-ops | all kernels' micro-ops, `u32` each (lengths stand in meta) |
//! | 4 | data | the constants one after another, each on a 64-byte boundary |
//! | 5 | steps | `u64` length, JSON: what the host computes between which layers; then its kernels' bytes, one after another, and what stands around the network (version 4 only) |
//!
//! A bundle of a program alone has version 1 and four sections, one with layers of the host
//! version 4 and five. Versions 2 (one operator in each layer of the host) and 3 (one input) are read no
//! more.
//!
//! The same program gives the same bytes on every machine.

mod container;
mod error;
mod hosted;

use std::borrow::Cow;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use vta_isa::{Config, INSN_BYTES, Insn, UOP_BYTES, Uop};

use self::container::{ALIGN, Pieces, all_sections, padding, read_u32};
pub use self::container::{BUNDLE_MAGIC, BundleImage};
use self::error::invalid;
pub use self::error::{BUNDLE_VERSION, BundleError, HOSTED_VERSION};
use crate::describe::escape;
use crate::{
    Buffer, BufferId, BufferKind, Bytes, Command, Kernel, KernelId, Layer, NodeInfo, Program,
    Symbol, TensorSpec,
};
use vta_files::{open_input, output};

pub use hosted::{Bundle, ReadKernel};

const COMMAND_BYTES: usize = INSN_BYTES + 8;

#[derive(Serialize, Deserialize)]
struct Meta<'p> {
    config: serde_json::Value,
    buffers: Vec<MetaBuffer>,
    kernel_uops: Vec<u32>,
    tensors: Vec<TensorSpec>,
    layers: Cow<'p, [Layer]>,
    /// How many commands each layer has. Bundles before there was this list say it in the layers alone.
    #[serde(default)]
    layer_commands: Vec<u64>,
    #[serde(default)]
    seam_tokens: u32,
    inputs: Vec<u32>,
    outputs: Vec<u32>,
    metadata: std::collections::BTreeMap<String, String>,
}

#[derive(Serialize, Deserialize)]
struct MetaBuffer {
    name: String,
    size_bytes: u64,
    kind: MetaKind,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum MetaKind {
    /// Offset in the data section.
    Constant(u64),
    Input,
    Output,
    Scratch,
}

/// The numbers of commands where layers alone say them: a [`Layer`] doesn't hold its own before its commands are read.
#[derive(Deserialize)]
struct MetaCounts {
    layers: Vec<MetaCount>,
}

#[derive(Deserialize)]
struct MetaCount {
    /// How many there are.
    commands: u64,
}

impl Meta<'_> {
    /// Foreign names are shown in tables and errors.
    fn escape_names(&mut self) {
        let buffers = self.buffers.iter_mut().map(|b| &mut b.name);
        let tensors = self.tensors.iter_mut().map(|t| &mut t.name);
        let layers = self.layers.to_mut().iter_mut().flat_map(|layer| {
            layer.nodes.iter_mut().for_each(NodeInfo::escape);
            [&mut layer.name, &mut layer.kind]
        });
        buffers.chain(tensors).chain(layers).for_each(escape);
    }
}

impl Program {
    /// The bundle's bytes.
    ///
    /// # Errors
    /// When the program doesn't pass [`Program::validate`] or a field doesn't fit its bits.
    pub fn to_bytes(&self) -> Result<Vec<u8>, BundleError> {
        Ok(self.image()?.to_vec())
    }

    /// The bundle, ready to be written.
    ///
    /// # Errors
    /// As for [`Self::to_bytes`].
    pub fn image(&self) -> Result<BundleImage<'_>, BundleError> {
        Ok(BundleImage::assemble(self.sections()?, None))
    }

    /// The sections in their order.
    fn sections(&self) -> Result<[Pieces<'_>; 4], BundleError> {
        self.validate().map_err(|e| invalid("program", e))?;
        let mut data = Pieces::new();
        let meta = self.meta(&mut data)?;
        let count: usize = self.layers.iter().map(|l| l.commands.len()).sum();
        let mut commands = Vec::with_capacity(count * COMMAND_BYTES);
        for command in self.layers.iter().flat_map(|l| &l.commands) {
            write_command(command, &mut commands)?;
        }
        let mut uops = Vec::new();
        for uop in self.kernels.iter().flat_map(|k| &k.uops) {
            let word = uop.encode().map_err(|e| invalid("micro-ops", e))?;
            uops.extend_from_slice(&word.to_le_bytes());
        }
        let meta = serde_json::to_vec(&meta).map_err(|e| invalid("meta", e))?;
        let [meta, commands, uops] = [meta, commands, uops].map(|bytes| vec![Cow::Owned(bytes)]);
        Ok([meta, commands, uops, data])
    }

    /// What describes the program; its constants go to `data`.
    fn meta<'a>(&'a self, data: &mut Pieces<'a>) -> Result<Meta<'a>, BundleError> {
        let mut end = 0;
        let mut buffer = |b: &'a Buffer| {
            let kind = match &b.kind {
                BufferKind::Constant(bytes) => {
                    data.extend([padding(end), bytes].map(Cow::Borrowed));
                    let offset = end.next_multiple_of(ALIGN);
                    end = offset + bytes.len();
                    MetaKind::Constant(offset as u64)
                }
                BufferKind::Input => MetaKind::Input,
                BufferKind::Output => MetaKind::Output,
                BufferKind::Scratch => MetaKind::Scratch,
            };
            MetaBuffer {
                name: b.name.clone(),
                size_bytes: b.size_bytes,
                kind,
            }
        };
        let config =
            serde_json::from_str(&self.config.to_json()).map_err(|e| invalid("meta", e))?;
        Ok(Meta {
            config,
            buffers: self.buffers.iter().map(&mut buffer).collect(),
            kernel_uops: self.kernels.iter().map(|k| k.uops.len() as u32).collect(),
            tensors: self.tensors.clone(),
            layers: Cow::Borrowed(&self.layers),
            layer_commands: self
                .layers
                .iter()
                .map(|l| l.commands.len() as u64)
                .collect(),
            seam_tokens: self.seam_tokens,
            inputs: self.inputs.clone(),
            outputs: self.outputs.clone(),
            metadata: self.metadata.clone(),
        })
    }

    /// Writes the bundle as an [`Output`](vta_files::output::Output), so that a file is never half
    /// written, whoever else writes it at the same time.
    ///
    /// ```
    /// use vta_program::Program;
    ///
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("net.vta");
    /// let mut program = Program::default();
    /// program.metadata.insert("model".into(), "empty".into());
    /// program.save(&path)?;
    /// assert_eq!(Program::load(&path)?, program);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Self::to_bytes`], and what the system says.
    pub fn save(&self, path: &Path) -> Result<(), BundleError> {
        let image = self.image()?;
        Ok(output::write_with(path, |out| image.write_to(out))?)
    }

    /// Reads a bundle file and checks all of it. Nothing is read later: whatever becomes of the file, the
    /// program is what was checked.
    ///
    /// # Errors
    /// [`BundleError`] naming the section and what is wrong with it.
    pub fn load(path: &Path) -> Result<Self, BundleError> {
        Self::from_whole(&read_file(path)?)
    }

    /// Reads a bundle from memory.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BundleError> {
        Self::from_whole(&Arc::new(bytes.to_vec()))
    }

    fn from_whole(bytes: &Arc<Vec<u8>>) -> Result<Self, BundleError> {
        match all_sections(bytes)? {
            (sections, None) => read_program(bytes, sections),
            (_, Some(_)) => Err(invalid(
                "steps",
                "the host computes some layers, so that no device runs it alone",
            )),
        }
    }
}

/// A whole file, which constants are parts of.
fn read_file(path: &Path) -> Result<Arc<Vec<u8>>, BundleError> {
    let read = || {
        let mut file = open_input(path)?;
        let (size, mut bytes) = (file.metadata()?.len(), Vec::new());
        // A sparse file may be of any size: that it doesn't fit is an error, where an allocation would abort.
        let reserved = bytes.try_reserve_exact(usize::try_from(size).unwrap_or(usize::MAX));
        reserved.map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        file.read_to_end(&mut bytes)?;
        Ok(Arc::new(bytes))
    };
    read().map_err(|e| io_error(path, &e))
}

/// The program of a bundle's first four sections.
fn read_program(
    bytes: &Arc<Vec<u8>>,
    [meta, commands, uops, data]: [Range<usize>; 4],
) -> Result<Program, BundleError> {
    let json = &bytes[meta];
    let mut meta: Meta<'_> = serde_json::from_slice(json).map_err(|e| invalid("meta", e))?;
    if meta.layer_commands.is_empty() {
        let counts: MetaCounts = serde_json::from_slice(json).map_err(|e| invalid("meta", e))?;
        meta.layer_commands = counts.layers.iter().map(|layer| layer.commands).collect();
    }
    meta.escape_names();
    let config = Config::from_json(&meta.config.to_string()).map_err(|e| invalid("meta", e))?;
    let buffers = read_buffers(bytes, &data, meta.buffers)?;
    let kernels = read_kernels(&bytes[uops], &meta.kernel_uops)?;
    let mut layers = meta.layers.into_owned();
    read_commands(&bytes[commands], &meta.layer_commands, &mut layers)?;
    let program = Program {
        config,
        buffers,
        kernels,
        tensors: meta.tensors,
        layers,
        seam_tokens: meta.seam_tokens,
        inputs: meta.inputs,
        outputs: meta.outputs,
        metadata: meta.metadata,
    };
    program.validate().map_err(|e| invalid("program", e))?;
    Ok(program)
}

fn io_error(path: &Path, error: &io::Error) -> BundleError {
    BundleError::Io {
        path: path.display().to_string(),
        message: error.to_string(),
    }
}

fn write_command(command: &Command, out: &mut Vec<u8>) -> Result<(), BundleError> {
    let word = command.insn.encode().map_err(|e| invalid("commands", e))?;
    let (kind, index) = match command.symbol {
        Symbol::None => (0u32, 0),
        Symbol::Buffer(id) => (1, id.0),
        Symbol::Kernel(id) => (2, id.0),
    };
    out.extend_from_slice(&word.to_le_bytes());
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&index.to_le_bytes());
    Ok(())
}

fn read_command(bytes: &[u8], index: usize) -> Result<Command, BundleError> {
    let mut word = [0; INSN_BYTES];
    word.copy_from_slice(&bytes[..INSN_BYTES]);
    let insn = Insn::decode(u128::from_le_bytes(word))
        .map_err(|e| invalid("commands", format!("command {index}: {e}")))?;
    let id = read_u32(bytes, INSN_BYTES + 4);
    let symbol = match read_u32(bytes, INSN_BYTES) {
        0 => Symbol::None,
        1 => Symbol::Buffer(BufferId(id)),
        2 => Symbol::Kernel(KernelId(id)),
        kind => {
            return Err(invalid(
                "commands",
                format!("command {index}: symbol kind {kind}"),
            ));
        }
    };
    Ok(Command { insn, symbol })
}

fn read_buffers(
    bytes: &Arc<Vec<u8>>,
    data: &Range<usize>,
    buffers: Vec<MetaBuffer>,
) -> Result<Vec<Buffer>, BundleError> {
    let constant = |name: &str, offset: u64, size: u64| {
        let end = offset
            .checked_add(size)
            .filter(|&end| end <= data.len() as u64);
        let end = end.ok_or_else(|| {
            invalid(
                "data",
                format!(
                    "constant {name}: {size} bytes at {offset} of {}",
                    data.len()
                ),
            )
        })?;
        let range = data.start + offset as usize..data.start + end as usize;
        Bytes::part(bytes, range).ok_or_else(|| invalid("data", name))
    };
    let buffer = |b: MetaBuffer| {
        let kind = match b.kind {
            MetaKind::Constant(offset) => {
                BufferKind::Constant(constant(&b.name, offset, b.size_bytes)?)
            }
            MetaKind::Input => BufferKind::Input,
            MetaKind::Output => BufferKind::Output,
            MetaKind::Scratch => BufferKind::Scratch,
        };
        Ok(Buffer {
            name: b.name,
            size_bytes: b.size_bytes,
            kind,
        })
    };
    buffers.into_iter().map(buffer).collect()
}

fn read_kernels(bytes: &[u8], lengths: &[u32]) -> Result<Vec<Kernel>, BundleError> {
    let total: u64 = lengths.iter().map(|&n| u64::from(n)).sum();
    if total.checked_mul(UOP_BYTES as u64) != Some(bytes.len() as u64) {
        let text = format!("{} bytes for {total} micro-ops", bytes.len());
        return Err(invalid("micro-ops", text));
    }
    let mut words = bytes
        .chunks_exact(UOP_BYTES)
        .map(|w| Uop::decode(read_u32(w, 0)));
    Ok(lengths
        .iter()
        .map(|&n| Kernel {
            uops: words.by_ref().take(n as usize).collect(),
        })
        .collect())
}

/// Gives each layer its commands.
fn read_commands(bytes: &[u8], counts: &[u64], layers: &mut [Layer]) -> Result<(), BundleError> {
    // In u128, since counts of a hostile file may add up to more than u64 holds.
    let total: u128 = counts.iter().map(|&count| u128::from(count)).sum();
    if total * COMMAND_BYTES as u128 != bytes.len() as u128 || counts.len() != layers.len() {
        let [listed, layers] = [counts.len(), layers.len()];
        let text = format!(
            "{} bytes for {total} commands of {listed} layers, there are {layers}",
            bytes.len()
        );
        return Err(invalid("commands", text));
    }
    let mut chunks = bytes.chunks_exact(COMMAND_BYTES).enumerate();
    for (layer, &count) in layers.iter_mut().zip(counts) {
        let own = chunks.by_ref().take(count as usize);
        let commands = own.map(|(i, c)| read_command(c, i));
        layer.commands = commands.collect::<Result<_, _>>()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
