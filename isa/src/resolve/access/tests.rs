use proptest::prelude::*;

use super::*;
use crate::{AluOp, AluOperand, Deps};

/// Any value of an index.
fn index(field: crate::Field) -> std::ops::RangeInclusive<u16> {
    0..=field.max() as u16
}

/// The first index that walking the micro-ops with their whole loops finds outside: field and
/// furthest index.
fn first_outside(
    config: &Config,
    uops: &[Uop],
    trips: [u16; 2],
    fields: &[(&'static str, [u16; 2], MemType)],
) -> Option<(&'static str, u64)> {
    for uop in uops {
        for &(field, factors, mem) in fields {
            let start = match field {
                "dst" => uop.dst,
                "src" => uop.src,
                _ => uop.wgt,
            };
            let mut last = None;
            for i in 0..u64::from(trips[0]) {
                for j in 0..u64::from(trips[1]) {
                    let [outer, inner] = factors.map(u64::from);
                    last = last.max(Some(u64::from(start) + i * outer + j * inner));
                }
            }
            if let Some(last) = last.filter(|l| *l >= config.depth(mem) as u64) {
                return Some((field, last));
            }
        }
    }
    None
}

fn fault(resolved: Result<Resolved<'_>, Fault>) -> Option<(&'static str, u64)> {
    match resolved {
        Ok(_) => None,
        Err(Fault::Scratchpad { field, value, .. }) => Some((field, value)),
        Err(Fault::UopRange { .. }) => Some(("uop_bgn", 0)),
        Err(Fault::Window { .. }) => Some(("rows", 0)),
    }
}

proptest! {
    #[test]
    fn the_fault_is_the_first_that_walking_finds(
        uops in prop::collection::vec((index(Uop::DST), index(Uop::SRC), index(Uop::WGT)), 0..6),
        trips in [0u16..12, 0u16..12],
        factors in [0u16..90, 0u16..90, 0u16..90, 0u16..90, 0u16..90, 0u16..90],
        (reset, two) in any::<(bool, bool)>(),
    ) {
        let config = Config::default();
        let uops: Vec<_> = uops.iter().map(|&(dst, src, wgt)| Uop { dst, src, wgt }).collect();
        let [a, b, c, d, e, f] = factors;
        let gemm = Gemm {
            reset,
            iter_out: trips[0],
            iter_in: trips[1],
            dst_factor_out: a,
            dst_factor_in: b,
            src_factor_out: c,
            src_factor_in: d,
            wgt_factor_out: e,
            wgt_factor_in: f,
            ..Gemm::default()
        };
        let fields = [
            ("dst", [a, b], MemType::Acc),
            ("src", [c, d], MemType::Inp),
            ("wgt", [e, f], MemType::Wgt),
        ];
        let checked = if reset { &fields[..1] } else { &fields[..] };
        let found = fault(Resolved::of(&config, &gemm.into(), Uops::of(&uops)));
        prop_assert_eq!(found, first_outside(&config, &uops, trips, checked));
        let alu = Alu {
            deps: Deps::NONE,
            op: AluOp::Add,
            operand: if two { AluOperand::Acc } else { AluOperand::Imm(1) },
            uop_bgn: 0,
            uop_end: 0,
            iter_out: trips[0],
            iter_in: trips[1],
            dst_factor_out: a,
            dst_factor_in: b,
            src_factor_out: c,
            src_factor_in: d,
        };
        let fields = [fields[0], ("src", [c, d], MemType::Acc)];
        let checked = if two { &fields[..] } else { &fields[..1] };
        let found = fault(Resolved::of(&config, &alu.into(), Uops::of(&uops)));
        prop_assert_eq!(found, first_outside(&config, &uops, trips, checked));
        let access = AluAccess::of(alu, Uops::of(&uops));
        let src = access.src.unwrap_or(access.dst).steps();
        prop_assert!(access.steps().eq(access.dst.steps().zip(src)));
    }

    #[test]
    fn transfers_are_inside_or_refused(base in 0u16..2100, y in 0u16..40, x in 0u16..60) {
        let config = Config::default();
        let load = Load { sram_base: base, y_size: y, x_size: x, x_pad_0: 1, ..Load::default() };
        let store = Store { sram_base: base, y_size: y, x_size: x, ..Store::default() };
        let none = || Uops::of(&[]);
        let tiles = |width: u16| u64::from(y) * u64::from(width);
        let inside = |tiles: u64| u64::from(base) + tiles <= 2048;
        match Resolved::of(&config, &load.into(), none()) {
            Ok(Resolved::Sync) => prop_assert!(x == 0 || y == 0),
            Ok(Resolved::Load(loaded)) => {
                prop_assert!(inside(tiles(x + 1)));
                prop_assert_eq!(loaded.entries.len() as u64, tiles(x + 1));
            }
            other => prop_assert!(other.is_err() && !inside(tiles(x + 1)), "{:?}", other),
        }
        match Resolved::of(&config, &store.into(), none()) {
            Ok(Resolved::Sync) => prop_assert!(x == 0 || y == 0),
            Ok(Resolved::Store(stored)) => {
                prop_assert!(inside(tiles(x)));
                prop_assert_eq!(stored.tiles.len() as u64, tiles(x));
            }
            other => prop_assert!(other.is_err() && !inside(tiles(x)), "{:?}", other),
        }
    }
}
