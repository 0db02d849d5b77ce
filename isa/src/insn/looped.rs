//! What GEMM and ALU share: a range of micro-ops inside two affine loops.

/// A [`layout`](crate::field::layout) with the loops. `before` and `after` are the kind's own
/// fields in front of them and behind; `src` is the unit of the source tiles.
macro_rules! looped {
    (
        $(#[$doc:meta])*
        $Kind:ident, $Fields:ident {
            members { $($members:tt)* }
            codes { $($codes:tt)* }
            before { $($before:tt)* }
            src $src:literal;
            after { $($after:tt)* }
        }
    ) => {
        $crate::field::layout! {
            $(#[$doc])*
            $Kind, $Fields {
                members { $($members)* }
                codes { $($codes)* }
                fields {
                    $($before)*
                    uop_bgn: u16 = [8, 13], Shown, "micro-ops", "First micro-op";
                    uop_end: u16 = [21, 14], Shown, "micro-ops", "One past the last micro-op";
                    iter_out: u16 = [35, 14], Number, "trips", "Trips of the outer loop";
                    iter_in: u16 = [49, 14], Number, "trips", "Trips of the inner loop";
                    dst_factor_out: u16 = [64, 11], Number, "accumulator tiles", "Added to `dst` with each outer trip";
                    dst_factor_in: u16 = [75, 11], Number, "accumulator tiles", "Added to `dst` with each inner trip";
                    src_factor_out: u16 = [86, 11], Number, $src, "Added to `src` with each outer trip";
                    src_factor_in: u16 = [97, 11], Number, $src, "Added to `src` with each inner trip";
                    $($after)*
                }
            }
        }

        impl $Kind {
            /// Micro-ops in the range; 0 when `uop_end < uop_bgn`, which the program check reports.
            pub const fn uop_count(&self) -> u64 {
                self.uop_end.saturating_sub(self.uop_bgn) as u64
            }

            /// Micro-op executions: `uops * iter_out * iter_in`.
            pub const fn steps(&self) -> u64 {
                self.uop_count() * self.iter_out as u64 * self.iter_in as u64
            }
        }
    };
}

pub(crate) use looped;
