//! What LOAD and STORE share: rows of elements between DRAM and a scratchpad.

/// A [`layout`](crate::field::layout) with a transfer's fields, and the kind's own behind them.
macro_rules! transfer {
    (
        $(#[$doc:meta])*
        $Kind:ident, $Fields:ident {
            members { $($members:tt)* }
            after { $($after:tt)* }
        }
    ) => {
        $crate::field::layout! {
            $(#[$doc])*
            $Kind, $Fields {
                members { $($members)* }
                codes {
                    memory_type = [7, 3], Code, "code", "Which scratchpad, and in which element";
                }
                fields {
                    sram_base: u16 = [10, 16], Shown, "tiles, for `uop` micro-ops", "First place in the scratchpad";
                    dram_base: u32 = [26, 32], Shown, "elements of the memory type", "First element in DRAM";
                    y_size: u16 = [64, 16], Number, "rows", "Rows in DRAM";
                    x_size: u16 = [80, 16], Number, "elements", "Length of a row in DRAM";
                    x_stride: u16 = [96, 16], Number, "elements", "From one row in DRAM to the next";
                    $($after)*
                }
            }
        }

        impl $Kind {
            /// Whether the instruction moves nothing and only its tokens act.
            pub const fn is_sync(&self) -> bool {
                self.x_size == 0 || self.y_size == 0
            }
        }
    };
}

pub(crate) use transfer;
