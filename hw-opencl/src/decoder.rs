//! Decoding for the throughput structure, in two passes. The first notes what each checked
//! instruction does and whose tiles it needs; the second gives the tiles their places and joins
//! what may run as one operation.

use vta_isa::{Alu, AluOperand, Config, Gemm, Load, MemType, Store, Uop};

use crate::batch::{Sink, reach, rows};
use crate::chain::Chain;
use crate::emit::{Source, Step, emit, loaded, stored};
use crate::loops::Loops;
use crate::ops::{Decoded, Op, Shape, Tables};
use crate::products::{Products, Target};
use crate::versions::{Pad, Versions};

/// ALU steps that are written out one by one; a longer instruction runs in order.
const MAX_LISTED_STEPS: u64 = 1 << 16;

/// Tiles of the device's scratchpads beyond those of the program, in [`Pad`]'s order. One more
/// input tile, behind these, is always zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Room(pub [u32; 3]);

impl Room {
    /// Tiles of a scratchpad of the device.
    pub fn tiles(self, config: &Config, pad: Pad) -> usize {
        let zeros = usize::from(pad == Pad::Inp);
        depth(config, pad) as usize + self.0[pad as usize] as usize + zeros
    }

    fn zeros(self, config: &Config) -> u32 {
        depth(config, Pad::Inp) + self.0[Pad::Inp as usize]
    }
}

fn depth(config: &Config, pad: Pad) -> u32 {
    let mem = match pad {
        Pad::Inp => MemType::Inp,
        Pad::Wgt => MemType::Wgt,
        Pad::Acc => MemType::Acc,
    };
    config.depth(mem) as u32
}

/// GEMM steps that are written out; later instructions run with their own loops. Networks have
/// far fewer, and repeat them.
const MAX_LISTED_PRODUCTS: u64 = 1 << 27;

/// Makes operations of checked instructions.
#[derive(Debug)]
pub(crate) struct Decoder<'a> {
    config: &'a Config,
    shape: Shape,
    room: Room,
    dram_base: u64,
    steps: Vec<Step>,
    /// GEMM steps among them.
    listed: u64,
    versions: Versions,
    products: Products,
    loops: Loops<'a>,
    tables: Tables,
}

impl<'a> Decoder<'a> {
    /// `dram_base` is the address of the first byte of the device's memory buffer.
    pub fn new(config: &'a Config, shape: Shape, room: Room, dram_base: u64) -> Self {
        Self {
            config,
            shape,
            room,
            dram_base,
            steps: Vec::new(),
            listed: 0,
            versions: Versions::new(Pad::ALL.map(|pad| depth(config, pad))),
            products: Products::default(),
            loops: Loops::new(config, shape),
            tables: Tables::default(),
        }
    }

    /// The operations, in an order in which they may run one after the other.
    pub fn finish(self) -> Decoded {
        let target = Target {
            shape: self.shape,
            batch: self.config.batch() as u32,
            block: self.config.block() as u32,
            zeros: self.room.zeros(self.config),
        };
        let source = Source {
            config: self.config,
            target,
            dram_base: self.dram_base,
            places: self.versions.places(self.room.0),
            products: self.products,
            tables: self.tables,
        };
        emit(source, self.steps)
    }

    /// An instruction that runs with its own loops needs its tiles at home.
    fn at_home(&mut self, op: Op) {
        for pad in Pad::ALL {
            let touched = [&op.touches.reads, &op.touches.writes];
            for range in touched.iter().flat_map(|t| &t[pad as usize]) {
                let span = range.start as u32..range.end as u32;
                self.versions.pin(pad, &span);
            }
        }
        self.steps.push(Step::Op(Box::new(op)));
    }

    fn reset(&mut self, gemm: &Gemm, uops: &[u32]) {
        // A loop that doesn't move the destination clears the same tiles again.
        let trips = |n: u16, factor: u16| if factor == 0 { 1 } else { u32::from(n) };
        let trips = [
            trips(gemm.iter_out, gemm.dst_factor_out),
            trips(gemm.iter_in, gemm.dst_factor_in),
        ];
        let steps = u64::from(trips[0]) * u64::from(trips[1]) * uops.len() as u64;
        if steps > MAX_LISTED_STEPS {
            let op = self.loops.gemm_in_order(gemm, uops, &mut self.tables);
            self.at_home(op);
            return;
        }
        let mut tiles = Vec::with_capacity(steps as usize);
        for i in 0..trips[0] {
            for j in 0..trips[1] {
                let offset = i * u32::from(gemm.dst_factor_out) + j * u32::from(gemm.dst_factor_in);
                tiles.extend(uops.iter().map(|w| u32::from(Uop::decode(*w).dst) + offset));
            }
        }
        tiles.sort_unstable();
        tiles.dedup();
        let runs = tiles.chunk_by(|a, b| a + 1 == *b);
        let runs: Vec<_> = runs.map(|r| r[0]..r[0] + r.len() as u32).collect();
        self.versions.write(Pad::Acc, &runs, self.steps.len());
        self.steps.push(Step::Clear(runs));
    }
}

impl Sink for Decoder<'_> {
    fn load(&mut self, load: &Load) {
        // The host has decoded the micro-ops.
        if load.is_sync() || load.mem == MemType::Uop {
            return;
        }
        let (pad, tiles) = loaded(load);
        self.versions.write(pad, &[tiles], self.steps.len());
        self.steps.push(Step::Load(*load));
    }

    fn store(&mut self, store: &Store) {
        if store.is_sync() {
            return;
        }
        let (y, x) = (store.y_size, store.x_size);
        if store.x_stride < x && y > 1 {
            // Rows that overlap in DRAM are written in order.
            for (row, (base, _)) in rows(store.dram_base, y, x, store.x_stride).enumerate() {
                self.store(&Store {
                    sram_base: store.sram_base + row as u16 * x,
                    dram_base: base as u32,
                    y_size: 1,
                    ..*store
                });
            }
            return;
        }
        let tiles = stored(store);
        self.versions.join(Pad::Acc, [tiles], self.steps.len());
        self.steps.push(Step::Store(*store));
    }

    fn gemm(&mut self, gemm: &Gemm, uops: &[u32]) {
        if gemm.steps() == 0 {
            return;
        }
        if gemm.reset {
            self.reset(gemm, uops);
            return;
        }
        let listed = self.listed.saturating_add(gemm.steps());
        let product = (listed <= MAX_LISTED_PRODUCTS)
            .then(|| self.products.of(gemm, uops))
            .flatten();
        match product {
            Some(product) => {
                self.listed = listed;
                product.join(&mut self.versions, self.steps.len());
                self.steps.push(Step::Product(product));
            }
            None => {
                let op = self.loops.gemm(gemm, uops, &mut self.tables);
                self.at_home(op);
            }
        }
    }

    fn alu(&mut self, alu: &Alu, uops: &[u32]) {
        if alu.steps() == 0 {
            return;
        }
        let depth = depth(self.config, Pad::Acc) as usize;
        let chain = (alu.steps() <= MAX_LISTED_STEPS)
            .then(|| Chain::of(alu, uops, depth))
            .flatten();
        let Some(chain) = chain else {
            let op = self.loops.alu_in_order(alu, uops, &mut self.tables);
            self.at_home(op);
            return;
        };
        let step = self.steps.len();
        self.versions.join(Pad::Acc, chain.written_runs(), step);
        if alu.operand == AluOperand::Acc {
            let iter = (alu.iter_out, alu.iter_in);
            let reach = reach(iter, (alu.src_factor_out, alu.src_factor_in)) as u32;
            for uop in uops.iter().map(|w| Uop::decode(*w)) {
                let src = u32::from(uop.src);
                self.versions.touch(Pad::Acc, &(src..src + reach + 1), step);
            }
        }
        self.steps.push(Step::Chain(*alu, uops.to_vec()));
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "these are lists of ranges")]
mod tests {
    use super::*;
    use crate::ops::Kind;
    use vta_isa::AluOp;

    const ROOM: Room = Room([4096, 1024, 2048]);

    fn decode_in(room: Room, f: impl FnOnce(&mut Decoder<'_>)) -> Decoded {
        let config = Config::default();
        let mut decoder = Decoder::new(&config, Shape::VECTORS, room, 0x1000);
        f(&mut decoder);
        decoder.finish()
    }

    fn decode(f: impl FnOnce(&mut Decoder<'_>)) -> Decoded {
        decode_in(ROOM, f)
    }

    fn kinds(decoded: &Decoded) -> Vec<Kind> {
        decoded.ops.iter().map(|op| op.kind).collect()
    }

    fn uop(dst: u16, src: u16, wgt: u16) -> u32 {
        Uop { dst, src, wgt }.encode().unwrap()
    }

    /// A rectangle of outputs in rows of 6, with inputs in rows of 8.
    fn rectangle(height: u16, width: u16) -> Gemm {
        Gemm {
            uop_end: 1,
            iter_out: height,
            iter_in: width,
            dst_factor_out: 6,
            dst_factor_in: 1,
            src_factor_out: 8,
            src_factor_in: 1,
            ..Gemm::default()
        }
    }

    fn reset() -> Gemm {
        Gemm {
            reset: true,
            uop_end: 1,
            iter_out: 1,
            iter_in: 24,
            dst_factor_in: 1,
            ..Gemm::default()
        }
    }

    fn load(mem: MemType, sram_base: u16, tiles: u16) -> Load {
        Load {
            mem,
            sram_base,
            dram_base: 0x800,
            y_size: 1,
            x_size: tiles,
            ..Load::default()
        }
    }

    fn clamp(op: AluOp) -> Alu {
        Alu {
            deps: vta_isa::Deps::NONE,
            op,
            operand: AluOperand::Imm(3),
            uop_bgn: 0,
            uop_end: 1,
            iter_out: 1,
            iter_in: 24,
            dst_factor_out: 0,
            dst_factor_in: 1,
            src_factor_out: 0,
            src_factor_in: 1,
        }
    }

    fn store(sram_base: u16) -> Store {
        Store {
            sram_base,
            dram_base: 0x200,
            y_size: 1,
            x_size: 24,
            x_stride: 24,
            ..Store::default()
        }
    }

    /// Four rows of outputs: the bias, then taps of three rectangles.
    fn taps(d: &mut Decoder<'_>) {
        d.gemm(
            &Gemm {
                src_factor_out: 0,
                src_factor_in: 0,
                ..rectangle(4, 6)
            },
            &[uop(0, 2000, 9)],
        );
        d.gemm(&rectangle(4, 6), &[uop(0, 0, 0), uop(0, 8, 1)]);
        d.gemm(&rectangle(4, 5), &[uop(1, 0, 2)]);
        d.gemm(&rectangle(3, 5), &[uop(7, 0, 3)]);
    }

    #[test]
    fn different_rectangles_on_the_same_outputs_are_one_operation() {
        let decoded = decode(taps);
        assert_eq!(kinds(&decoded), [Kind::Products]);
        let op = &decoded.ops[0];
        assert_eq!(op.units, 3, "24 outputs, 8 at once");
        assert_eq!(op.args[..2], [24, 3]);
        assert_eq!(op.args[7], 2048 + 4096, "zeros lie behind all places");
        let acc = Pad::Acc as usize;
        assert_eq!(op.touches.writes[acc], [0..24]);
        assert_eq!(op.touches.reads[Pad::Wgt as usize], [0..4, 9..10]);
        assert_eq!(op.touches.reads[Pad::Inp as usize], [0..38, 2000..2001]);
    }

    #[test]
    fn chunks_whose_inputs_take_the_same_tiles_are_joined_while_there_is_room() {
        let chunks = |d: &mut Decoder<'_>| {
            for _ in 0..3 {
                d.load(&load(MemType::Inp, 0, 40));
                d.load(&load(MemType::Wgt, 0, 4));
                d.gemm(&rectangle(4, 6), &[uop(0, 0, 0), uop(0, 8, 1)]);
            }
        };
        let joined = decode(chunks);
        let loads = [Kind::LoadInp, Kind::LoadWgt];
        assert_eq!(kinds(&joined)[..6], [loads; 3].concat());
        assert_eq!(kinds(&joined)[6..], [Kind::Products]);
        // What the batch leaves is at home.
        let first = |op: &Op| op.touches.writes.concat()[0].start;
        let places: Vec<_> = joined.ops[..6].iter().map(first).collect();
        assert_eq!(places, [2048, 1024, 2088, 1028, 0, 0]);
        let apart = decode_in(Room::default(), chunks);
        let chunk = [Kind::LoadInp, Kind::LoadWgt, Kind::Products];
        assert_eq!(kinds(&apart), [chunk; 3].concat());
    }

    #[test]
    fn what_reads_or_overwrites_in_between_parts_products() {
        let gemm = |d: &mut Decoder<'_>| d.gemm(&rectangle(4, 6), &[uop(0, 0, 0)]);
        let between = |f: fn(&mut Decoder<'_>)| {
            kinds(&decode_in(Room::default(), |d| {
                gemm(d);
                f(d);
                gemm(d);
            }))
        };
        let parted = |kind| vec![Kind::Products, kind, Kind::Products];
        assert_eq!(between(|d| d.store(&store(0))), parted(Kind::Store));
        let step = |d: &mut Decoder<'_>| d.alu(&clamp(AluOp::Min), &[uop(23, 0, 0)]);
        assert_eq!(between(step), parted(Kind::Chain));
        assert_eq!(
            between(|d| d.gemm(&reset(), &[uop(0, 0, 0)])),
            parted(Kind::Chain)
        );
        let inputs = |d: &mut Decoder<'_>| d.load(&load(MemType::Inp, 28, 5));
        assert_eq!(between(inputs), parted(Kind::LoadInp));
        let weights = |d: &mut Decoder<'_>| d.load(&load(MemType::Wgt, 0, 1));
        assert_eq!(between(weights), parted(Kind::LoadWgt));
        let sums = |d: &mut Decoder<'_>| d.load(&load(MemType::Acc8, 20, 9));
        assert_eq!(between(sums), parted(Kind::LoadAcc8));
        // Neighbours don't.
        let beside = |d: &mut Decoder<'_>| {
            d.store(&store(24));
            d.load(&load(MemType::Inp, 30, 5));
            d.load(&load(MemType::Wgt, 1, 1));
            d.load(&load(MemType::Acc8, 24, 9));
        };
        let kinds = between(beside);
        assert_eq!(kinds.len(), 5);
        assert_eq!(kinds[4], Kind::Products);
    }

    #[test]
    fn products_elsewhere_are_operations_of_their_own() {
        let decoded = decode(|d| {
            d.gemm(&rectangle(4, 6), &[uop(0, 0, 0)]);
            d.gemm(&rectangle(4, 6), &[uop(24, 0, 0)]);
        });
        assert_eq!(kinds(&decoded), [Kind::Products; 2]);
        // Each weight's outputs lie 8 apart, and joined they would be summed with 7 others that
        // haven't that weight.
        let comb = Gemm {
            dst_factor_in: 8,
            ..rectangle(1, 8)
        };
        let decoded = decode(|d| {
            let combs: Vec<u32> = (0..8).map(|i| uop(i, 0, i)).collect();
            d.gemm(&comb, &combs);
            d.gemm(&rectangle(1, 64), &[uop(0, 0, 9)]);
        });
        assert_eq!(kinds(&decoded), [Kind::Products; 2]);
        assert_eq!([0, 1].map(|i| decoded.ops[i].units), [8, 8]);
    }

    #[test]
    fn a_tile_from_reset_to_store_is_four_operations() {
        let tile = |d: &mut Decoder<'_>| {
            d.gemm(&reset(), &[uop(0, 0, 0)]);
            taps(d);
            d.alu(&clamp(AluOp::Shr), &[uop(0, 0, 0)]);
            d.alu(&clamp(AluOp::Min), &[uop(0, 0, 0)]);
            d.alu(&clamp(AluOp::Max), &[uop(0, 0, 0)]);
            d.store(&store(0));
        };
        let four = [Kind::Chain, Kind::Products, Kind::Chain, Kind::Store];
        let decoded = decode(|d| {
            tile(d);
            tile(d);
        });
        assert_eq!(kinds(&decoded), [four; 2].concat());
        let acc = Pad::Acc as usize;
        let places = |n: usize| decoded.ops[n].touches.writes[acc].clone();
        assert_eq!(
            places(1),
            [2048..2072],
            "the first is stored before the end"
        );
        assert_eq!(places(5), [0..24], "the second stays in the scratchpad");
        assert_eq!(decoded.ops[3].args[0], 2048);
        assert_eq!(decoded.ops[7].args[0], 0);
    }

    #[test]
    fn a_source_keeps_its_place_until_its_last_reader() {
        let add = Alu {
            operand: AluOperand::Acc,
            src_factor_in: 0,
            ..clamp(AluOp::Add)
        };
        // Places for the source and one tile of outputs.
        let decoded = decode_in(Room([0, 0, 25]), |d| {
            d.load(&load(MemType::Acc, 100, 1));
            for _ in 0..4 {
                d.gemm(&reset(), &[uop(0, 0, 0)]);
                d.alu(&add, &[uop(0, 100, 0)]);
            }
            d.load(&load(MemType::Acc, 100, 1));
        });
        let acc = Pad::Acc as usize;
        let writes = |op: &Op| op.touches.writes[acc].clone();
        assert_eq!(writes(&decoded.ops[0]), [2048..2049]);
        let chains = decoded.ops.iter().filter(|op| op.kind == Kind::Chain);
        for chain in chains {
            let holds =
                |ranges: &[std::ops::Range<usize>]| ranges.iter().any(|r| r.contains(&2048));
            assert!(holds(&chain.touches.reads[acc]), "{chain:?}");
            assert!(!holds(&writes(chain)), "{chain:?}");
        }
    }

    #[test]
    fn a_reset_clears_each_tile_once() {
        let again = Gemm {
            iter_out: 9000,
            ..reset()
        };
        let decoded = decode(|d| d.gemm(&again, &[uop(8, 0, 0), uop(9, 0, 0)]));
        assert_eq!(kinds(&decoded), [Kind::Chain]);
        assert_eq!(decoded.ops[0].touches.writes[Pad::Acc as usize], [8..33]);
        assert_eq!(decoded.ops[0].units, 25);
    }

    #[test]
    fn instructions_with_their_own_loops_work_at_home() {
        let long = Gemm {
            iter_out: 8000,
            dst_factor_out: 0,
            src_factor_out: 0,
            ..rectangle(1, 200)
        };
        let meets = Alu {
            operand: AluOperand::Acc,
            ..clamp(AluOp::Add)
        };
        let decoded = decode(|d| {
            d.load(&load(MemType::Inp, 0, 300));
            d.gemm(&long, &[uop(0, 0, 0)]);
            d.load(&load(MemType::Inp, 0, 300));
            d.load(&load(MemType::Acc, 0, 300));
            d.alu(&meets, &[uop(0, 1, 0)]);
            d.load(&load(MemType::Acc, 0, 300));
        });
        let (gemm, alu) = (Kind::Gemm, Kind::AluInOrder);
        let (inp, acc) = (Kind::LoadInp, Kind::LoadAcc);
        assert_eq!(kinds(&decoded), [inp, gemm, inp, acc, alu, acc]);
        let ranges = |op: &Op| op.touches.writes.concat();
        assert!(decoded.ops.iter().flat_map(ranges).all(|r| r.end <= 300));
    }

    #[test]
    fn rows_that_overlap_in_memory_are_stored_one_by_one() {
        let store = Store {
            sram_base: 4,
            dram_base: 0x100,
            y_size: 3,
            x_size: 2,
            x_stride: 1,
            ..Store::default()
        };
        let decoded = decode(|d| d.store(&store));
        let rows: Vec<_> = decoded
            .ops
            .iter()
            .map(|op| (op.args[0], op.args[1]))
            .collect();
        assert_eq!(rows, [(4, 0), (6, 16), (8, 32)]);
        let apart = Store {
            x_stride: 2,
            ..store
        };
        assert_eq!(decode(|d| d.store(&apart)).ops.len(), 1);
    }

    #[test]
    fn synchronisation_and_micro_op_loads_leave_nothing_to_do() {
        let decoded = decode(|d| {
            d.load(&Load::default());
            d.store(&Store::default());
            d.gemm(&Gemm::default(), &[]);
            d.load(&load(MemType::Uop, 0, 4));
        });
        assert!(decoded.ops.is_empty());
    }
}
