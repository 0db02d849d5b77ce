use super::super::kernel::{Kind, Recording};
use super::*;

fn text(queue: &mut Queue, serial: bool) -> String {
    let run = queue.finish(serial).unwrap().unwrap();
    let lines: Vec<String> = run.insns.iter().map(Insn::to_string).collect();
    lines.join("\n")
}

fn load(sram_base: u16) -> Insn {
    Load {
        sram_base,
        y_size: 1,
        x_size: 1,
        x_stride: 1,
        ..Load::default()
    }
    .into()
}

fn kernel(uops: usize) -> Arc<Kernel> {
    let mut recording = Recording::new(uops);
    (0..uops).for_each(|_| recording.push(Kind::Gemm { reset: true }, [0; 3]));
    Arc::new(recording.finish(true).unwrap())
}

#[test]
fn dependences_ride_on_instructions_where_they_can() {
    use Module::{Compute, Load, Store};
    let mut queue = Queue::default();
    queue.push(load(0), |_| ()).unwrap();
    queue.push_token(Load, Compute).unwrap();
    queue.push_token(Load, Compute).unwrap();
    queue.pop(Load, Compute).unwrap();
    queue.pop(Load, Compute).unwrap();
    let number = queue.hold(kernel(1));
    queue.push_kernel(&Config::default(), number).unwrap();
    queue.push_token(Compute, Store).unwrap();
    queue.pop(Compute, Store).unwrap();
    let store = vta_isa::Store {
        y_size: 1,
        x_size: 1,
        x_stride: 1,
        ..vta_isa::Store::default()
    };
    queue.push(store.into(), |_| ()).unwrap();
    let expected = "load.inp sram_base=0 dram_base=0 y_size=1 x_size=1 x_stride=1 push_next
load.inp sram_base=0 dram_base=0 push_next
load.uop sram_base=0 dram_base=0 pop_prev
load.uop sram_base=0 dram_base=0 y_size=1 x_size=1 x_stride=1 pop_prev
gemm reset uop_bgn=0 uop_end=1 iter_out=1 iter_in=1 push_next
store sram_base=0 dram_base=0 y_size=1 x_size=1 x_stride=1 pop_prev push_prev
load.inp sram_base=0 dram_base=0 push_next
load.uop sram_base=0 dram_base=0 pop_prev pop_next
finish";
    assert_eq!(text(&mut queue, false), expected);
    assert!(queue.finish(false).unwrap().is_none());
}

#[test]
fn micro_ops_stay_until_the_scratchpad_is_full() {
    let config = Config::default();
    let depth = config.depth(MemType::Uop);
    let mut queue = Queue::default();
    let (small, large) = (queue.hold(kernel(1)), queue.hold(kernel(depth)));
    for number in [small, small, large, small] {
        queue.push_kernel(&config, number).unwrap();
    }
    let run = queue.finish(false).unwrap().unwrap();
    assert_eq!(run.uops.len(), depth + 1);
    let loads = run.insns.iter().filter_map(|insn| match insn {
        Insn::Load(load) if load.mem == MemType::Uop && !load.is_sync() => {
            Some((load.dram_base, load.x_size as usize))
        }
        _ => None,
    });
    let loads: Vec<_> = loads.collect();
    assert_eq!(loads, [(0, 1), (1, depth), (0, 1)]);
    // Nothing is resident, or waits, in the next run.
    queue.reuse(run, 0);
    queue.push_kernel(&config, small).unwrap();
    let run = queue.finish(false).unwrap().unwrap();
    assert_eq!(run.uops.len(), 1);
    assert!(matches!(run.insns[..2], [Insn::Load(_), Insn::Gemm(_)]));
    let number = queue.hold(kernel(depth + 1));
    let error = queue.push_kernel(&config, number).unwrap_err();
    assert!(
        error.text.contains("micro-ops; the scratchpad has"),
        "{}",
        error.text
    );
}

#[test]
fn what_never_waits_is_told() {
    let mut queue = Queue::default();
    assert!(queue.pop(Module::Load, Module::Store).is_err());
    queue.push(load(0), |_| ()).unwrap();
    queue.pop(Module::Compute, Module::Load).unwrap();
    // What the LOAD module waits for is taken by an instruction that does nothing else.
    assert!(text(&mut queue, false).contains("load.inp sram_base=0 dram_base=0 pop_next"));
    queue.push(load(0), |_| ()).unwrap();
    queue.push(load(1), |_| ()).unwrap();
    queue.pop(Module::Compute, Module::Load).unwrap();
    let serial = "load.inp sram_base=0 dram_base=0 y_size=1 x_size=1 x_stride=1
load.inp sram_base=1 dram_base=0 y_size=1 x_size=1 x_stride=1 push_next
finish pop_prev";
    assert_eq!(text(&mut queue, true), serial);
}
