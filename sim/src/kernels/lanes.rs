//! Lane-wise operations and copies over slices, compiled once for each instruction set.
//!
//! The code is plain Rust; the only unsafe thing is to call what was compiled for instructions
//! that the CPU must have, which [`GemmKernel`]'s choice guarantees.

mod map;
mod pass;
mod rounding;

use vta_isa::{AluOp, for_alu_op};

pub(crate) use self::map::{Map, With};
use self::map::{map_body, narrow_body, saturate_body, widen_body};
use self::pass::chain_body;
pub use self::rounding::Rounding;
use self::rounding::round_body;
#[cfg(target_arch = "x86_64")]
use super::avx512;
use super::requantize::{Requantizing, requantize_body};
use super::{GemmKernel, Step};

/// Brings the first lines of something closer, so many at most, where the CPU does that at a word: it is read soon.
pub(crate) fn bring_closer<T: ?Sized>(what: &T, most_lines: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let first = std::ptr::from_ref(what).cast::<i8>();
        for line in 0..size_of_val(what).div_ceil(64).min(most_lines) {
            // SAFETY: nothing is read or written, whatever the address is.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(first.wrapping_add(64 * line)) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (what, most_lines);
}

/// Sign-extends 4-bit numbers, of which the first is in a byte's lower half.
pub(crate) fn unpack(from: &[u8], to: &mut [u8]) {
    for (to, from) in to.chunks_mut(2).zip(from) {
        for (to, shift) in to.iter_mut().zip([4, 0]) {
            *to = ((from << shift) as i8 >> 4) as u8;
        }
    }
}

/// A run of tiles of an operation on two accumulator tiles, worked on one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TileRun {
    /// First int32 of the first tile that is changed.
    pub dst: u32,
    /// First int32 of the first operand tile.
    pub src: u32,
    /// int32 from one tile to the next.
    pub dst_step: i32,
    /// int32 from one operand tile to the next.
    pub src_step: i32,
    pub tiles: u32,
}

impl TileRun {
    /// A single tile and its operand, by their first int32.
    pub const fn single(dst: u32, src: u32) -> Self {
        Self {
            dst,
            src,
            dst_step: 0,
            src_step: 0,
            tiles: 1,
        }
    }

    /// Makes the run one tile longer, if that tile is the next.
    pub fn joins(&mut self, new: &Self) -> bool {
        let behind = |first: u32, next: u32, tiles: u32, step: i32| {
            i64::from(first) + i64::from(tiles) * i64::from(step) == i64::from(next)
        };
        if self.tiles == 1 {
            self.dst_step = new.dst.wrapping_sub(self.dst) as i32;
            self.src_step = new.src.wrapping_sub(self.src) as i32;
        } else if !behind(self.dst, new.dst, self.tiles, self.dst_step)
            || !behind(self.src, new.src, self.tiles, self.src_step)
        {
            return false;
        }
        self.tiles += 1;
        true
    }
}

/// A function in two versions of instructions beyond the baseline, and how to choose.
macro_rules! versions {
    ($(#[$doc:meta])* $name:ident, $body:ident, $wide:ident, $wider:ident,
        ($($arg:ident: $type:ty),*)) => {
        $(#[$doc])*
        pub(crate) fn $name(kernel: GemmKernel, $($arg: $type),*) {
            match kernel {
                // SAFETY: the kernel was chosen where the CPU has AVX2.
                #[cfg(target_arch = "x86_64")]
                GemmKernel::Avx2 | GemmKernel::AvxVnni => unsafe { $wide($($arg),*) },
                // SAFETY: the kernel was chosen where the CPU has these parts of AVX-512.
                #[cfg(target_arch = "x86_64")]
                GemmKernel::Avx512Bw | GemmKernel::Avx512Vnni | GemmKernel::Amx => unsafe {
                    $wider($($arg),*)
                },
                // Vectors of NEON are part of the baseline.
                _ => $body($($arg),*),
            }
        }

        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2")]
        fn $wide($($arg: $type),*) {
            $body($($arg),*);
        }

        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
        fn $wider($($arg: $type),*) {
            $body($($arg),*);
        }
    };
}

versions!(
    /// Sign-extends bytes to int32, as many as both have.
    widen, widen_body, widen_avx2, widen_avx512, (from: &[u8], to: &mut [i32])
);

versions!(
    /// Keeps the low byte of each int32.
    narrow, narrow_body, narrow_avx2, narrow_avx512, (from: &[i32], to: &mut [u8])
);

versions!(
    /// Clamps each int32 to int8.
    saturate, saturate_body, saturate_avx2, saturate_avx512, (from: &[i32], to: &mut [u8])
);

versions!(
    /// Rounds numbers, as many as there are steps, and says if one isn't finite.
    round, round_body, round_avx2, round_avx512,
    (rounding: Rounding, values: &[f32], steps: &mut [i16], are_finite: &mut bool)
);

impl Rounding {
    /// The steps of numbers, half to even: infinite ones are bounds, and what is no number is step 0. Also whether all are
    /// finite.
    pub fn steps(self, values: &[f32]) -> (Vec<i16>, bool) {
        let (mut steps, mut are_finite) = (vec![0; values.len()], true);
        round(
            GemmKernel::detect(),
            self,
            values,
            &mut steps,
            &mut are_finite,
        );
        (steps, are_finite)
    }
}

versions!(
    /// Rounds the sums from int32 `from` on, as many as there are bytes.
    requantize, requantize_body, requantize_avx2, requantize_avx512,
    (how: Requantizing, from: usize, acc: &[i32], to: &mut [u8])
);

versions!(
    /// [`Map::run`] without a table.
    map, map_body, map_avx2, map_avx512, (map: &Map, from: [&[u8]; 2], to: &mut [u8])
);

impl Map {
    /// Computes as many bytes as there are in `to`; `from` has as many, `with` has those of the second operands.
    pub fn run(&self, kernel: GemmKernel, [from, with]: [&[u8]; 2], to: &mut [u8]) {
        #[cfg(target_arch = "x86_64")]
        if let Some(table) = &self.table
            && matches!(kernel, GemmKernel::Avx512Vnni | GemmKernel::Amx)
            && avx512::look_up(table, from, to)
        {
            return;
        }
        map(kernel, self, [from, with], to);
    }
}

versions!(
    /// Applies immediate steps one after the other to all lanes. Steps on tiles do nothing here.
    chain, chain_body, chain_avx2, chain_avx512, (steps: &[Step], lanes: &mut [i32])
);

/// An operation on whole tiles.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TileOp<T> {
    pub op: AluOp,
    /// Which tiles.
    pub on: T,
    /// int32 of a tile.
    pub lanes: usize,
}

versions!(
    /// `x = op(x, y)` on runs of tiles, strictly in order: a tile may be the operand of a later
    /// one, or its own.
    zip, zip_body, zip_avx2, zip_avx512, (zip: TileOp<&[TileRun]>, acc: &mut [i32])
);

#[inline(always)]
fn zip_body(zip: TileOp<&[TileRun]>, acc: &mut [i32]) {
    let TileOp { op, on, lanes } = zip;
    for_alu_op!(op, OP => zip_runs(on, lanes, acc, |x, y| OP.apply(x, y)));
}

#[inline(always)]
fn zip_runs(runs: &[TileRun], lanes: usize, acc: &mut [i32], op: impl Fn(i32, i32) -> i32 + Copy) {
    for run in runs {
        let (mut dst, mut src) = (run.dst as usize, run.src as usize);
        for _ in 0..run.tiles {
            if lanes.is_multiple_of(16) {
                for lane in (0..lanes).step_by(16) {
                    zip_tile::<16>(acc, dst + lane, src + lane, op);
                }
            } else {
                for lane in 0..lanes {
                    zip_tile::<1>(acc, dst + lane, src + lane, op);
                }
            }
            dst = dst.wrapping_add_signed(run.dst_step as isize);
            src = src.wrapping_add_signed(run.src_step as isize);
        }
    }
}

#[inline(always)]
fn zip_tile<const N: usize>(
    acc: &mut [i32],
    dst: usize,
    src: usize,
    op: impl Fn(i32, i32) -> i32 + Copy,
) {
    let mut y = [0; N];
    y.copy_from_slice(&acc[src..src + N]);
    for (x, y) in acc[dst..dst + N].iter_mut().zip(y) {
        *x = op(*x, y);
    }
}

versions!(
    /// `x = op(x, imm)` on the tiles of runs; what they are operands of doesn't count.
    each, each_body, each_avx2, each_avx512, (each: TileOp<&[TileRun]>, imm: i32, acc: &mut [i32])
);

#[inline(always)]
fn each_body(each: TileOp<&[TileRun]>, imm: i32, acc: &mut [i32]) {
    let TileOp { op, on, lanes } = each;
    for_alu_op!(op, OP => each_run(on, lanes, acc, |x| OP.apply(x, imm)));
}

#[inline(always)]
fn each_run(runs: &[TileRun], lanes: usize, acc: &mut [i32], op: impl Fn(i32) -> i32 + Copy) {
    for run in runs {
        let mut dst = run.dst as usize;
        if run.dst_step as usize == lanes {
            let all = &mut acc[dst..dst + run.tiles as usize * lanes];
            all.iter_mut().for_each(|x| *x = op(*x));
            continue;
        }
        for _ in 0..run.tiles {
            let tile = &mut acc[dst..dst + lanes];
            tile.iter_mut().for_each(|x| *x = op(*x));
            dst = dst.wrapping_add_signed(run.dst_step as isize);
        }
    }
}

/// Tiles that each take in a list of other tiles, none of which is changed.
///
/// Tiles whose lists are equally long are together, so that no branch depends on the list.
#[derive(Debug, Default)]
pub(crate) struct Gather {
    /// How many tiles have lists of that length: `(tiles, length)`.
    pub runs: Vec<(u32, u32)>,
    /// First int32 of each tile that is changed.
    pub tiles: Vec<u32>,
    /// First int32 of the operands, list after list.
    pub operands: Vec<u32>,
}

impl Gather {
    /// Each tile that is changed, with its list.
    pub fn lists(&self) -> impl Iterator<Item = (u32, &[u32])> {
        let lengths = self.runs.iter();
        let lengths = lengths.flat_map(|&(count, length)| (0..count).map(move |_| length));
        let mut operands = &self.operands[..];
        self.tiles.iter().zip(lengths).map(move |(&tile, length)| {
            let (list, rest) = operands.split_at(length as usize);
            operands = rest;
            (tile, list)
        })
    }

    /// Memory that it takes.
    pub fn bytes(&self) -> usize {
        let tables = [&self.tiles, &self.operands].map(|table| size_of_val(&table[..]));
        tables[0] + tables[1] + size_of_val(&self.runs[..])
    }

    /// Adds a tile whose list has something, and is at least as long as those before.
    pub fn push(&mut self, tile: u32, list: &[u32]) {
        let length = list.len() as u32;
        match self.runs.last_mut() {
            Some((count, same)) if *same == length => *count += 1,
            _ => self.runs.push((1, length)),
        }
        self.tiles.push(tile);
        self.operands.extend_from_slice(list);
    }
}

versions!(
    /// `x = op(.. op(op(x, y0), y1) ..)` for each tile and its list.
    gather, gather_body, gather_avx2, gather_avx512,
    (gather: TileOp<&Gather>, acc: &mut [i32])
);

#[inline(always)]
fn gather_body(gather: TileOp<&Gather>, acc: &mut [i32]) {
    let TileOp { op, on, lanes } = gather;
    for_alu_op!(op, OP => gather_tiles(on, lanes, acc, |x, y| OP.apply(x, y)));
}

#[inline(always)]
fn gather_tiles(
    table: &Gather,
    lanes: usize,
    acc: &mut [i32],
    op: impl Fn(i32, i32) -> i32 + Copy,
) {
    let (mut rest, mut operands) = (&table.tiles[..], &table.operands[..]);
    for &(count, length) in &table.runs {
        let (now, later) = rest.split_at(count as usize);
        let (list, others) = operands.split_at(count as usize * length as usize);
        (rest, operands) = (later, others);
        let tiles = (now, lanes);
        if !lanes.is_multiple_of(16) {
            gather_lists::<1>(tiles, list.chunks(length as usize), acc, op);
            continue;
        }
        // Lengths that the compiler knows: no loop over the list.
        match length {
            1 => gather_lists::<16>(tiles, list.as_chunks::<1>().0.iter(), acc, op),
            2 => gather_lists::<16>(tiles, list.as_chunks::<2>().0.iter(), acc, op),
            3 => gather_lists::<16>(tiles, list.as_chunks::<3>().0.iter(), acc, op),
            _ => gather_lists::<16>(tiles, list.chunks(length as usize), acc, op),
        }
    }
}

/// Tiles of so many lanes, a multiple of N, with their lists.
#[inline(always)]
fn gather_lists<const N: usize>(
    (tiles, lanes): (&[u32], usize),
    lists: impl Iterator<Item: AsRef<[u32]>>,
    acc: &mut [i32],
    op: impl Fn(i32, i32) -> i32 + Copy,
) {
    for (&tile, list) in tiles.iter().zip(lists) {
        for lane in (0..lanes).step_by(N) {
            gather_tile::<N>(acc, [tile as usize, lane], list.as_ref(), op);
        }
    }
}

/// N lanes of a tile, from one on, and of the tiles of its list.
#[inline(always)]
fn gather_tile<const N: usize>(
    acc: &mut [i32],
    [tile, lane]: [usize; 2],
    operands: &[u32],
    op: impl Fn(i32, i32) -> i32 + Copy,
) {
    let mut sums = [0; N];
    sums.copy_from_slice(&acc[tile + lane..tile + lane + N]);
    for &operand in operands {
        let at = operand as usize + lane;
        for (x, &y) in sums.iter_mut().zip(&acc[at..at + N]) {
            *x = op(*x, y);
        }
    }
    acc[tile + lane..tile + lane + N].copy_from_slice(&sums);
}
