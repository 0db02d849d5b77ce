//! What of an instruction must be known to move its transfers and to keep them inside.

/// Where instructions find the network's buffers.
pub(crate) const WORK_AT: u32 = 1 << 30;

/// The two parts of the space that an image's instructions address.
#[derive(Clone, Copy)]
pub(crate) struct Regions {
    pub(crate) log_batch: u32,
    pub(crate) log_block: u32,
    /// Bytes of constants from 0 on.
    pub(crate) constants: u32,
    /// Bytes of the network's buffers from [`WORK_AT`] on.
    pub(crate) work: u32,
}

/// Where the two parts are on the accelerator's bus.
#[derive(Clone, Copy)]
pub(crate) struct Places {
    pub(crate) constants: u64,
    pub(crate) work: u64,
}

const LOAD: u32 = 0;
const STORE: u32 = 1;
const GEMM: u32 = 2;
const FINISH: u32 = 3;
const ALU: u32 = 4;

/// An instruction's four words.
#[derive(Clone, Copy)]
pub(crate) struct Insn(pub(crate) [u32; 4]);

impl Insn {
    fn opcode(self) -> u32 {
        self.0[0] & 7
    }

    pub(crate) fn is_finish(self) -> bool {
        self.opcode() == FINISH
    }

    fn memory(self) -> u32 {
        self.0[0] >> 7 & 7
    }

    fn base(self) -> u32 {
        self.0[0] >> 26 | self.0[1] << 6
    }

    /// log2 of an element's bytes; `None` for a memory type that isn't one.
    fn log_elem(self, regions: &Regions) -> Option<u32> {
        let tile = regions.log_batch + regions.log_block;
        match self.memory() {
            0 => Some(2),
            1 => Some(2 * regions.log_block),
            2 | 4 | 5 => Some(tile),
            3 => Some(tile + 2),
            _ => None,
        }
    }

    /// Whether it moves any bytes.
    fn moves(self) -> bool {
        let [_, _, sizes, _] = self.0;
        self.opcode() <= STORE && sizes & 0xffff != 0 && sizes >> 16 != 0
    }

    /// Whether it is an instruction, and all that it moves lies in one of the two parts; what it
    /// stores, in the network's buffers.
    pub(crate) fn fits(self, regions: &Regions) -> bool {
        match self.opcode() {
            LOAD | STORE => {}
            GEMM | FINISH | ALU => return true,
            _ => return false,
        }
        let store = self.opcode() == STORE;
        let Some(log) = self.log_elem(regions) else {
            return false;
        };
        // Outputs are stored, everything else is loaded.
        if store != (self.memory() == 4) && self.moves() {
            return false;
        }
        if !self.moves() {
            return true;
        }
        let [_, _, sizes, stride] = self.0.map(u64::from);
        let (rows, columns, stride) = (sizes & 0xffff, sizes >> 16, stride & 0xffff);
        let from = u64::from(self.base());
        let to = from + (rows - 1) * stride + columns;
        let (from, to) = (from << log, to << log);
        let work = u64::from(WORK_AT);
        let inside = from >= work && to <= work + u64::from(regions.work);
        inside || !store && to <= regions.constants.into()
    }

    /// The same for where the parts lie; `None` for an address that doesn't fit.
    pub(crate) fn moved(self, regions: &Regions, places: &Places) -> Option<Self> {
        if !self.moves() {
            return Some(self);
        }
        let log = self.log_elem(regions)?;
        let from = u64::from(self.base()) << log;
        let address = match from.checked_sub(WORK_AT.into()) {
            Some(offset) => places.work.checked_add(offset)?,
            None => places.constants.checked_add(from)?,
        };
        let base = u32::try_from(address >> log).ok()?;
        let [first, second, third, fourth] = self.0;
        Some(Self([
            first & 0x03ff_ffff | base << 26,
            second & 0xfc00_0000 | base >> 6,
            third,
            fourth,
        ]))
    }
}
