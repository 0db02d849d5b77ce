//! Products of every kernel that this CPU has against the definition of the multiplication.

use std::io::Write as _;

use proptest::prelude::*;
use vta_driver::Span;
use vta_isa::AluOp;

use self::ends::End;
use super::*;

mod ends;

/// A product as numbers, from which each kernel's tables and panels are made.
#[derive(Clone, Debug)]
struct Case {
    block: usize,
    columns: usize,
    rows: usize,
    taps: usize,
    /// Taps lie side by side in runs of so many.
    run: usize,
    /// One in so many inputs is padding.
    padding: u32,
    /// Taps of each four from this one on are padding in all rows, and whether their weights are zero.
    hole: (usize, bool),
    start: Start,
    store: bool,
    /// Whether weights beside the diagonals of tiles of 16 are zero.
    diagonal: bool,
    seed: u64,
}

impl Case {
    /// How a kernel may multiply it.
    fn ways(&self, data: &Data, kernel: GemmKernel) -> Vec<Way> {
        let product = |side_by_side| kernel.of_product(usize::MAX, usize::MAX, side_by_side);
        let mut ways = vec![product(false)];
        let step = self.block as u32;
        let mut taps = data.offsets.chunks_exact(self.rows);
        if taps
            .all(|tap| tap[0] != PADDING && tap.windows(2).all(|o| o[0].wrapping_add(step) == o[1]))
        {
            ways.push(product(true));
        }
        if self.diagonal && self.taps > 0 {
            let way = kernel.of_diagonal_product();
            let format = Format::DiagonalPairs;
            ways.extend([way, Way { format, ..way }]);
        }
        ways
    }
}

fn case() -> impl Strategy<Value = Case> {
    let sizes = (
        prop::sample::select(vec![16usize, 32, 64]),
        1usize..5,
        1usize..80,
        0usize..50,
    );
    let start = prop_oneof![Just(Start::Zero), Just(Start::Acc), Just(Start::Residual)];
    let hole = (1usize..5, any::<bool>());
    let more = (
        1usize..6,
        1u32..9,
        hole,
        start,
        any::<[bool; 2]>(),
        any::<u64>(),
    );
    (sizes, more).prop_map(
        |((block, columns, rows, taps), (run, padding, hole, start, [store, diagonal], seed))| {
            Case {
                diagonal: diagonal && block == COLUMN,
                block,
                columns,
                rows,
                taps,
                run,
                padding,
                hole,
                start,
                store,
                seed,
            }
        },
    )
}

/// Products whose rows lie side by side.
fn rows_side_by_side() -> impl Strategy<Value = Case> {
    case().prop_map(|case| Case {
        padding: 1,
        hole: (4, false),
        ..case
    })
}

/// Diagonal products whose taps lie side by side in every bundle, without padding but for the holes.
fn neighbours() -> impl Strategy<Value = Case> {
    case().prop_map(|case| Case {
        block: COLUMN,
        taps: case.taps % 13,
        run: 4,
        padding: 1,
        diagonal: true,
        ..case
    })
}

/// Diagonal products of windows over an image, of `[columns, rows]` outputs.
#[derive(Clone, Debug)]
struct Windows {
    outputs: [usize; 2],
    /// Columns and rows of taps.
    taps: [usize; 2],
    /// Inputs from an output to the next, and to the one below.
    apart: [usize; 2],
    /// Inputs of padding to the left and above.
    padding: [usize; 2],
}

impl Windows {
    fn of(&self, seed: u64, start: Start, store: bool) -> (Case, Vec<u32>, usize) {
        let [columns, rows] = self.outputs;
        let [across, down] = self.taps;
        let size = |at: usize| {
            let whole = (self.outputs[at] - 1) * self.apart[at] + self.taps[at];
            // What lies behind is padding, too.
            (whole - self.padding[at])
                .saturating_sub(self.padding[at])
                .max(1)
        };
        let (width, height) = (size(0), size(1));
        let mut offsets = Vec::new();
        for (ky, kx) in (0..down).flat_map(|ky| (0..across).map(move |kx| (ky, kx))) {
            for (y, x) in (0..rows).flat_map(|y| (0..columns).map(move |x| (y, x))) {
                let x = (x * self.apart[0] + kx).wrapping_sub(self.padding[0]);
                let y = (y * self.apart[1] + ky).wrapping_sub(self.padding[1]);
                let inside = x < width && y < height;
                let at = y.wrapping_mul(width).wrapping_add(x).wrapping_mul(COLUMN);
                offsets.push(if inside { at as u32 } else { PADDING });
            }
        }
        let case = Case {
            block: COLUMN,
            columns: 1,
            rows: columns * rows,
            taps: across * down,
            run: across,
            padding: 1,
            hole: (4, false),
            start,
            store,
            diagonal: true,
            seed,
        };
        (case, offsets, width * height * COLUMN)
    }
}

fn windows() -> impl Strategy<Value = Windows> {
    let pair = |range: std::ops::Range<usize>| [range.clone(), range];
    let down = prop::sample::select(vec![3usize, 3, 5, 5, 2]);
    (pair(1..13), (1usize..8, down), pair(1..3), pair(0..3)).prop_map(
        |(outputs, (across, down), apart, padding)| Windows {
            outputs,
            taps: [across, down],
            apart,
            padding: [padding[0].min(across - 1), padding[1].min(down - 1)],
        },
    )
}

/// Numbers that are the same for the same seed.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u32 {
        let next = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d);
        self.0 = next.wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) as u32
    }

    fn below(&mut self, most: usize) -> usize {
        self.next() as usize % most
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        // Extremes are common.
        let byte = |n: u32| {
            if n.is_multiple_of(4) {
                0x80
            } else {
                (n >> 8) as u8
            }
        };
        (0..len).map(|_| byte(self.next())).collect()
    }
}

/// What a case has in memory, and the products' factors.
struct Data {
    offsets: Vec<u32>,
    weights: Vec<Vec<Vec<u8>>>,
    inp: Vec<u8>,
    residual: Vec<u8>,
    acc: Vec<i32>,
    first: Vec<[i32; COLUMN]>,
    /// Before the end.
    scaled: End,
    end: End,
    /// Columns of taps, if the offsets are those of windows.
    across: Option<usize>,
}

impl Data {
    /// The data of windows over an image of so many bytes.
    fn of_windows(case: &Case, offsets: Vec<u32>, bytes: usize) -> Self {
        let mut data = Self::of(case);
        let mut numbers = Numbers(case.seed ^ 1);
        (data.offsets, data.inp) = (offsets, numbers.bytes(bytes));
        data.across = Some(case.run);
        data
    }

    fn of(case: &Case) -> Self {
        let mut numbers = Numbers(case.seed);
        let (block, taps, rows) = (case.block, case.taps, case.rows);
        let run_bytes = (case.run + rows) * block;
        let mut offsets = Vec::with_capacity(taps * rows);
        for tap in 0..taps {
            let (run, place) = (tap / case.run, tap % case.run);
            for row in 0..rows {
                let inside = !numbers.next().is_multiple_of(case.padding) || case.padding == 1;
                let inside = inside && tap % 4 < case.hole.0;
                let offset = run * run_bytes + (place + row) * block;
                offsets.push(if inside { offset as u32 } else { PADDING });
            }
        }
        let sums = rows * case.columns * COLUMN;
        let mut tile = |tap: usize| {
            let mut tile = numbers.bytes(block * block);
            let hollow = case.hole.1 && tap % 4 >= case.hole.0;
            let beside = |i: &usize| hollow || case.diagonal && !i.is_multiple_of(block + 1);
            (0..tile.len()).filter(beside).for_each(|i| tile[i] = 0);
            tile
        };
        Self {
            offsets,
            weights: (0..case.columns)
                .map(|_| (0..taps).map(&mut tile).collect())
                .collect(),
            inp: numbers.bytes(taps.div_ceil(case.run) * run_bytes + block),
            residual: numbers.bytes(sums),
            acc: (0..sums).map(|_| numbers.next() as i32).collect(),
            first: (0..case.columns)
                .map(|_| std::array::from_fn(|_| numbers.next() as i32))
                .collect(),
            scaled: End::residual(case),
            end: End::of(case),
            across: None,
        }
    }

    /// Brings the sums near those where their ends change.
    fn near(mut self, case: &Case) -> Self {
        let mut numbers = Numbers(case.seed ^ 3);
        for at in 0..self.acc.len() {
            let (_, column, lane) = place(at, case);
            let near = self.end.near([column, lane], &mut numbers);
            self.acc[at] = near.wrapping_sub(self.products(case, at));
        }
        self
    }

    /// Each row of taps, filled with taps of zeros, and its window.
    fn bundled(&self, case: &Case, across: usize) -> (Window, Vec<Option<usize>>) {
        // Sometimes there is no room for the taps of a neighbour.
        let window = Window {
            rows: case.taps / across,
            bundles: across.div_ceil(4),
            taps: across,
        };
        let of_row = |row: usize| {
            let taps = (0..window.bundles * 4).map(move |tap| (tap < across).then_some(tap));
            taps.map(move |tap| Some(row * across + tap?))
        };
        (window, (0..window.rows).flat_map(of_row).collect())
    }

    /// What is added to a sum, by the definition.
    fn products(&self, case: &Case, at: usize) -> i32 {
        let (row, column, lane) = place(at, case);
        let mut x = self.first[column][lane];
        for tap in 0..case.taps {
            let offset = self.offsets[tap * case.rows + row];
            if offset == PADDING {
                continue;
            }
            let input = &self.inp[offset as usize..][..case.block];
            let weights = &self.weights[column][tap][lane * case.block..][..case.block];
            for (&a, &b) in input.iter().zip(weights) {
                x = x.wrapping_add(i32::from(a as i8) * i32::from(b as i8));
            }
        }
        x
    }

    /// Accumulators and stored bytes, by the definition.
    fn expected(&self, case: &Case) -> (Vec<i32>, Vec<u8>) {
        let (mut acc, mut out) = (self.acc.clone(), vec![0; self.acc.len()]);
        for (at, sum) in acc.iter_mut().enumerate() {
            let (_, column, lane) = place(at, case);
            let x = match case.start {
                Start::Zero => 0,
                Start::Acc => *sum,
                Start::Residual => i32::from(self.residual[at] as i8),
            };
            let x = x.wrapping_add(self.products(case, at));
            let x = (self.scaled).apply_to([column, lane], x, self.residual[at]);
            *sum = self.end.apply([column, lane], x);
            out[at] = *sum as u8;
        }
        if case.store {
            (self.acc.clone(), out)
        } else {
            (acc, vec![0; out.len()])
        }
    }

    fn found(&self, case: &Case, way: Way) -> (Vec<i32>, Vec<u8>) {
        let mut acc = self.acc.clone();
        let mut out = vec![0; acc.len()];
        let zeros = vec![0; case.block];
        for columns in (0..case.columns).collect::<Vec<_>>().chunks(way.columns()) {
            let mut memory = Memory {
                inp: self.inp[..].into(),
                input_sums: &[],
                zeros: &zeros,
                acc: &mut acc,
                out: &mut out,
                residual: &self.residual,
            };
            self.run(case, way, columns, &mut memory);
        }
        (acc, out)
    }

    /// Runs the product of some columns.
    fn run(&self, case: &Case, way: Way, columns: &[usize], memory: &mut Memory<'_>) {
        let Case { block, rows, .. } = *case;
        let bundles = way.bundle_taps(block).map(|fit| Bundles {
            taps: fit.start() + case.seed as usize % fit.clone().count(),
            tap_bytes: block,
        });
        let of_bundle = bundles.map_or(1, |bundles| bundles.taps);
        let across = self.across.filter(|_| way.takes_patches());
        let (window, taps) = match across.map(|across| self.bundled(case, across)) {
            Some((window, taps)) => (Some(window), taps),
            // Taps of zeros fill the last bundle.
            None => {
                let all = case.taps.next_multiple_of(of_bundle);
                let taps = (0..all).map(|tap| (tap < case.taps).then_some(tap));
                (None, taps.collect())
            }
        };
        let of_tap = |tap: &Option<usize>| match tap {
            Some(tap) => self.offsets[tap * rows..][..rows].to_vec(),
            None => vec![PADDING; rows],
        };
        let offsets: Vec<u32> = taps.iter().flat_map(of_tap).collect();
        let zero = vec![0; block * block];
        let column = |&column: &usize| {
            let tile =
                |tap: &Option<usize>| tap.map_or(&zero[..], |tap| &self.weights[column][tap]);
            Column {
                tiles: taps.iter().map(tile).collect(),
                first: 0,
            }
        };
        let parts: Vec<Column<'_>> = columns.iter().map(column).collect();
        let mut sheets = Sheets::default();
        let panel = Panel::new(&parts, way.format, block, &mut sheets).unwrap();
        sheets.finish();
        let grid = window.and_then(|window| Grid::of(window, &offsets, rows));
        let whole = match &grid {
            Some(grid) => Inputs::in_patches(&grid.arrange(&offsets), grid, bundles),
            None => Inputs::new(&offsets, rows, way.rows(columns.len()), bundles),
        };
        let first = columns
            .iter()
            .zip(panel.corrections())
            .map(|(&c, correction)| {
                std::array::from_fn(|lane| self.first[c][lane].wrapping_add(correction[lane]))
            });
        let first: Vec<[i32; COLUMN]> = first.collect();
        let base = |&column: &usize| {
            let at = (column * COLUMN) as u32;
            Row {
                dst: at,
                out: at,
                residual: at,
                lane: 0,
            }
        };
        let row = |row: usize| base(&(row * case.columns));
        let [mut end, later] = [&self.scaled, &self.end].map(|steps| steps.of_columns(columns));
        end.extend(later);
        let rows: Vec<Row> = match &grid {
            Some(grid) => grid.order.iter().map(|&at| row(at as usize)).collect(),
            None => (0..rows).map(row).collect(),
        };
        // Now and then in two parts.
        let blocks = whole.blocks();
        let cut = match case.seed % 8 {
            7 => (case.seed >> 16) as usize % (blocks + 1),
            _ => blocks,
        };
        for part in [0..cut, cut..blocks] {
            let bytes = memory.inp.len();
            let inputs = match case.seed % 4 {
                0 => whole.part(&part, 0).in_runs(block, bytes),
                _ => (whole
                    .part(&part, 0)
                    .staged_for(way, block)
                    .in_runs(block, bytes))
                .packed_for(way, case.run),
            };
            let inputs = inputs.side_by_side_for(way, block);
            // What the inputs say that they don't read is something else.
            let mut inp: Vec<u8> = memory.inp.bytes(0..bytes).iter().map(|x| !x).collect();
            let all = Span {
                region: 0,
                start: 0,
                len: bytes,
            };
            for read in inputs.runs().of(all) {
                let read = read.start..read.start + read.len;
                inp[read.clone()].copy_from_slice(memory.inp.bytes(read));
            }
            let inp = Source::from(&inp[..]);
            let mut staging = Staging::default();
            way.stage(&inputs, block, inp, &mut staging);
            let mut memory = Memory {
                inp: inputs.memory(inp, &staging),
                input_sums: &staging.sums,
                zeros: memory.zeros,
                acc: &mut *memory.acc,
                out: &mut *memory.out,
                residual: memory.residual,
            };
            let product = Product {
                rows: &Rows::new(rows[whole.rows_of(&part)].to_vec()),
                inputs: &inputs,
                panel: &panel,
                first: &first,
                block,
                bases: &Bases::new(&columns.iter().map(base).collect::<Vec<_>>()),
                start: case.start,
                before: &Steps::new(Vec::new()),
                after: &Steps::new(end.clone()),
                write_acc: !case.store,
                store: case.store,
                ahead: &[],
            };
            way.run(&product, &mut memory);
        }
    }
}

/// Row, column and lane of a sum.
fn place(at: usize, case: &Case) -> (usize, usize, usize) {
    let column = at / COLUMN;
    (column / case.columns, column % case.columns, at % COLUMN)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_kernel_is_the_definition(case in prop_oneof![3 => case(), 1 => neighbours(), 1 => rows_side_by_side()]) {
        let data = Data::of(&case).near(&case);
        let expected = data.expected(&case);
        let kernels = GemmKernel::ALL.into_iter().filter(|kernel| kernel.supported());
        for way in kernels.flat_map(|kernel| case.ways(&data, kernel)) {
            prop_assert!(data.found(&case, way) == expected, "{:?} differs", way);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn windows_are_the_definition(
        windows in windows(),
        start in prop_oneof![Just(Start::Zero), Just(Start::Acc), Just(Start::Residual)],
        store: bool,
        seed: u64,
    ) {
        let (case, offsets, bytes) = windows.of(seed, start, store);
        let data = Data::of_windows(&case, offsets, bytes).near(&case);
        let expected = data.expected(&case);
        let kernels = GemmKernel::ALL.into_iter().filter(|kernel| kernel.supported());
        for way in kernels.flat_map(|kernel| case.ways(&data, kernel)) {
            prop_assert!(data.found(&case, way) == expected, "{:?} differs", way);
        }
    }
}

#[test]
fn kernels_that_this_cpu_lacks_are_named() {
    let (here, missing): (Vec<_>, Vec<_>) = GemmKernel::ALL
        .into_iter()
        .partition(|kernel| kernel.supported());
    for kernel in missing {
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED every test of kernel {}: this CPU lacks it",
            kernel.name()
        );
    }
    assert_eq!(here.first(), Some(&GemmKernel::Scalar));
    assert_eq!(here.last(), Some(&GemmKernel::detect()));
}
