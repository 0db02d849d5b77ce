//! When the beats of a read and the padding around them are written to a scratchpad.

use vta_isa::Load;

use super::bursts::Burst;

/// Padding of a LOAD, in the order in which it is written: one tile per cycle in cycles without a
/// data write. Without side padding the way to the bottom rows costs a cycle per data row, with or
/// without a data write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Padding {
    /// Tiles of the top rows.
    top: u64,
    /// Cycles of the way to the bottom rows.
    skips: u64,
    /// Tiles beside the data rows and of the bottom rows.
    rest: u64,
}

impl Padding {
    pub(super) fn of(load: &Load) -> Self {
        let [top, bottom, left, right] =
            [load.y_pad_0, load.y_pad_1, load.x_pad_0, load.x_pad_1].map(u64::from);
        let (x, y) = (u64::from(load.x_size), u64::from(load.y_size));
        let sides = left + right;
        Self {
            top: (sides + x) * top,
            skips: if sides == 0 && bottom > 0 { y } else { 0 },
            rest: (sides + x) * bottom + y * sides,
        }
    }

    const fn left(&self) -> u64 {
        self.top + self.skips + self.rest
    }

    /// `cycles` pass without a data write; how many of them were used.
    fn free(&mut self, cycles: u64) -> u64 {
        let mut left = cycles;
        for part in [&mut self.top, &mut self.skips, &mut self.rest] {
            let used = left.min(*part);
            *part -= used;
            left -= used;
        }
        cycles - left
    }

    /// `cycles` pass with data writes.
    fn blocked(&mut self, cycles: u64) {
        if self.top == 0 {
            self.skips = self.skips.saturating_sub(cycles);
        }
    }
}

/// When arriving data and padding are written: at most one write a cycle, and data goes first.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Arrival {
    /// Cycles from a beat on the bus to its write.
    pub(super) write_delay: u64,
    /// Bytes of a tile, where a beat may carry several but only one is written per cycle; else 0.
    pub(super) single_tile_bytes: u64,
    /// Padding that is not written yet.
    pub(super) padding: Padding,
    /// First cycle in which more of it can be written.
    pub(super) pad_next: u64,
    /// Cycle of the last padding write.
    pub(super) pad_last: u64,
    /// Cycle of the last data write.
    pub(super) data_last: u64,
}

impl Arrival {
    /// Data without padding, written `write_delay` cycles after each beat.
    pub(super) fn plain(write_delay: u64) -> Self {
        Self {
            write_delay,
            ..Self::default()
        }
    }

    /// The beats of `burst` are on the bus in `first..=last`.
    pub(super) fn burst(&mut self, burst: &Burst, first: u64, last: u64) {
        let (mut from, mut to) = (first + self.write_delay, last + self.write_delay);
        if self.single_tile_bytes > 0 {
            from = from.max(self.data_last + 1);
            to = to.max(from + burst.tiles(self.single_tile_bytes) - 1);
        }
        if self.padding.left() > 0 {
            let used = self.padding.free(from.saturating_sub(self.pad_next));
            if self.padding.left() == 0 {
                self.pad_last = self.pad_next + used - 1;
            }
            self.padding.blocked(to + 1 - from);
            self.pad_next = to + 1;
        }
        self.data_last = to;
    }

    /// After the last burst: the first cycle without data to write, and the done cycle.
    pub(super) fn finish(&self) -> (u64, u64) {
        let pad_last = match self.padding.left() {
            0 => self.pad_last,
            left => self.pad_next + left - 1,
        };
        (self.data_last + 1, self.data_last.max(pad_last) + 1)
    }
}
