//! Micro-ops that a program loads: rows of DRAM, of which a device gets a copy in another layout.

use std::collections::HashMap;
use std::ops::Range;

use thiserror::Error;

use crate::resolve::{meet, merge};
use crate::{Config, Insn, MemType, UOP_BYTES};

/// The most micro-ops of one program that are copied: 64 MiB.
const MOST_UOPS: u64 = 1 << 24;

/// Micro-ops that can't be copied before the program runs.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("instruction {index} ({insn}): {why}")]
#[non_exhaustive]
pub struct CopyError {
    /// The LOAD or STORE.
    pub index: usize,
    /// The same.
    pub insn: Insn,
    /// What is wrong with it.
    pub why: String,
}

/// Which micro-ops the LOADs of a program read, in the order in which a copy holds them: each row
/// once for all LOADs of the same rows. The copy is what a device loads instead.
///
/// A LOAD beyond the scratchpad is left as it is: a device refuses it. So a copy takes no more work
/// than the program itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UopCopies {
    /// By instruction, its first micro-op in the copy.
    loads: Vec<(usize, u32)>,
    rows: Vec<(usize, Range<u64>)>,
    uops: u64,
}

impl UopCopies {
    /// The micro-ops of a program.
    ///
    /// # Errors
    /// [`CopyError`] where the program stores to micro-ops that it loads, or loads more than 2^24.
    pub fn of(config: &Config, insns: &[Insn]) -> Result<Self, CopyError> {
        let mut copies = Self::default();
        let mut known = HashMap::new();
        for (index, insn) in insns.iter().enumerate() {
            let Insn::Load(load) = insn else { continue };
            let (Some(rows), MemType::Uop) = (load.dram_rows(config), load.mem) else {
                continue;
            };
            if load.sram_span().end > config.depth(MemType::Uop) as u64 {
                continue;
            }
            let first = *known.entry(rows).or_insert_with(|| {
                let first = copies.uops;
                copies.uops += load.dram_elems();
                copies.rows.extend(rows.iter().map(|row| (index, row)));
                first
            });
            if copies.uops > MOST_UOPS {
                let why = format!(
                    "the program loads more than {MOST_UOPS} micro-ops, the most that are translated"
                );
                return Err(CopyError {
                    index,
                    insn: *insn,
                    why,
                });
            }
            // At most `MOST_UOPS`.
            copies.loads.push((index, first as u32));
        }
        copies.check_stores(config, insns)?;
        Ok(copies)
    }

    /// What the program stores isn't known before it runs.
    fn check_stores(&self, config: &Config, insns: &[Insn]) -> Result<(), CopyError> {
        let mut loaded: Vec<Range<u64>> = self.rows.iter().map(|(_, row)| row.clone()).collect();
        merge(&mut loaded);
        let depth = config.depth(MemType::Out) as u64;
        for (index, insn) in insns.iter().enumerate() {
            let (Insn::Store(store), Some(rows)) = (insn, insn.dram_rows(config)) else {
                continue;
            };
            // Others are refused by every device, and may have any number of rows.
            let inside = store.sram_span().end <= depth;
            let hit = |row: &Range<u64>| meet(&loaded, std::slice::from_ref(row));
            if inside && hit(&rows.span()) && rows.apart().any(|row| hit(&row)) {
                let why = "it stores to micro-ops that the program loads, which are translated before it runs";
                return Err(CopyError {
                    index,
                    insn: *insn,
                    why: why.to_owned(),
                });
            }
        }
        Ok(())
    }

    /// The rows of DRAM bytes, in the order of the copy, with an instruction that loads each.
    pub fn rows(&self) -> impl Iterator<Item = (usize, Range<u64>)> + use<'_> {
        self.rows.iter().cloned()
    }

    /// Bytes of the copy.
    pub const fn size_bytes(&self) -> u64 {
        self.uops * UOP_BYTES as u64
    }

    /// Lets the program load the copy, which begins at a multiple of a micro-op's bytes.
    pub fn redirect(&self, insns: &mut [Insn], addr: u32) {
        for (index, first) in &self.loads {
            if let Some(Insn::Load(load)) = insns.get_mut(*index) {
                load.dram_base = addr / UOP_BYTES as u32 + first;
                load.x_stride = load.x_size;
            }
        }
    }
}
