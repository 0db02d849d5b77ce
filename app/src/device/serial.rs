//! Instructions one after the other: tokens between neighbours, so that none runs before the one in front of it
//! is done.

use vta_isa::{Deps, Finish, Insn, Load, MemType, Module, Store};

/// Instructions in a row, and FINISH behind them.
pub fn chain(insns: impl Iterator<Item = Insn>) -> Vec<Insn> {
    let mut row: Vec<Insn> = Vec::new();
    for mut insn in insns.chain([Finish::default().into()]) {
        *insn.deps_mut() = Deps::NONE;
        if let Some(before) = row.last().map(Insn::module)
            && matches!(
                (before, insn.module()),
                (Module::Load, Module::Store) | (Module::Store, Module::Load)
            )
        {
            // These two share no queue.
            join(&mut row, idle(Module::Compute));
        }
        join(&mut row, insn);
    }
    row
}

/// An instruction of a module that moves and computes nothing: only its tokens act.
pub fn idle(module: Module) -> Insn {
    let load = |mem| {
        Insn::from(Load {
            mem,
            ..Load::default()
        })
    };
    match module {
        Module::Load => load(MemType::Inp),
        Module::Compute => load(MemType::Uop),
        Module::Store => Store::default().into(),
    }
}

/// What stands behind instructions that leave so many tokens, in the order of `Edge::ALL`: it takes them, and the
/// compute module waits for the others.
pub fn settle(left: [u32; 4]) -> Vec<Insn> {
    let times = |count: u32, module, deps: Deps| {
        let mut insn = idle(module);
        *insn.deps_mut() = deps;
        std::iter::repeat_n(insn, count as usize)
    };
    let [prev, next] = [(true, false), (false, true)].map(|(pop_prev, pop_next)| Deps {
        pop_prev,
        pop_next,
        ..Deps::NONE
    });
    let [to_compute, to_load, to_store, from_store] = left;
    let done = |push_prev, push_next| Deps {
        push_prev,
        push_next,
        ..Deps::NONE
    };
    let others = times(to_load, Module::Load, next)
        .chain(times(to_store, Module::Store, prev))
        .chain(times(1, Module::Load, done(false, true)))
        .chain(times(1, Module::Store, done(true, false)));
    let compute = times(to_compute + 1, Module::Compute, prev);
    let compute = compute.chain(times(from_store + 1, Module::Compute, next));
    others.chain(compute).collect()
}

/// Adds an instruction that waits for the one before, if that is another module's.
fn join(row: &mut Vec<Insn>, mut insn: Insn) {
    if let Some(before) = row.last_mut() {
        let (from, to) = (before.module(), insn.module());
        let (before, after) = (before.deps_mut(), insn.deps_mut());
        if from < to {
            before.push_next = true;
            after.pop_prev = true;
        } else if from > to {
            before.push_prev = true;
            after.pop_next = true;
        }
    }
    row.push(insn);
}

#[cfg(test)]
mod tests {
    use vta_isa::{asm, tokens};

    use super::*;

    #[test]
    fn a_chain_runs_in_its_own_order_only() {
        let text = "load.inp y_size=1 x_size=1 x_stride=1 push_next
            store sram_base=3 dram_base=0x101 y_size=1 x_size=1 x_stride=1 pop_prev push_prev
            load.wgt y_size=1 x_size=1 x_stride=1
            gemm uop_end=1 iter_out=1 iter_in=1
            load.acc y_size=1 x_size=1 x_stride=1
            store y_size=1 x_size=1 x_stride=1";
        let row = chain(asm::parse(text).unwrap().into_iter());
        tokens::check_run(&row).unwrap();
        let order = tokens::order(&row).unwrap();
        let expected: Vec<u32> = (0..row.len() as u32).collect();
        assert_eq!((order.indices, order.leftover), (expected, [0; 4]));
        // Two stand between a LOAD and a STORE.
        assert_eq!(row.len(), 6 + 2 + 1);
        assert_eq!(chain([].into_iter()).len(), 1);
    }

    #[test]
    fn what_is_left_of_a_cut_program_is_taken_before_finish() {
        let text = "load.inp y_size=1 x_size=1 x_stride=1 push_next
            load.acc y_size=1 x_size=1 x_stride=1 push_prev push_next
            load.wgt y_size=1 x_size=1 x_stride=1 push_next
            store y_size=1 x_size=1 x_stride=1 push_prev";
        let mut row = asm::parse(text).unwrap();
        row.extend(settle([2, 1, 1, 1]));
        row.extend(chain([].into_iter()));
        let order = tokens::order(&row).unwrap();
        assert_eq!(order.leftover, [0; 4]);
        assert_eq!(order.indices.last(), Some(&(row.len() as u32 - 1)));
    }
}
