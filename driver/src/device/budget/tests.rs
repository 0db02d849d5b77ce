use vta_isa::{Gemm, Load, MemType};

use super::*;

#[test]
fn sums_saturate_and_name_the_first_instruction_that_is_too_much() {
    let most = (1 << 14) - 1;
    let gemm = Gemm {
        uop_end: 4,
        iter_out: most,
        iter_in: most,
        ..Gemm::default()
    };
    let one = Gemm {
        reset: true,
        uop_end: 1,
        iter_out: 1,
        iter_in: 1,
        ..Gemm::default()
    };
    let steps = gemm.steps();
    let insns = [gemm.into(), gemm.into(), one.into()];
    let budget = |steps| Budget {
        steps,
        ..Budget::default()
    };
    assert!(budget(2 * steps + 1).check_steps(&insns).is_ok());
    assert_eq!(
        budget(2 * steps).check_steps(&insns).unwrap_err().at.index,
        2
    );
    assert_eq!(
        budget(2 * steps - 1)
            .check_steps(&insns)
            .unwrap_err()
            .at
            .index,
        1
    );
    let many = vec![Insn::from(gemm); 1 << 10];
    assert!(Budget::UNLIMITED.check_steps(&many).is_ok());
}

#[test]
fn bytes_count_elements_of_the_memory_type() {
    let config = Config::default();
    let load = Load {
        mem: MemType::Wgt,
        y_size: 3,
        x_size: 5,
        ..Load::default()
    };
    let bytes = 15 * config.elem_bytes(MemType::Wgt) as u64;
    let budget = |bytes| Budget {
        bytes,
        ..Budget::default()
    };
    assert!(budget(bytes).check_bytes(&config, &[load.into()]).is_ok());
    let error = budget(bytes - 1).check_bytes(&config, &[load.into()]);
    let text = error.unwrap_err().to_string();
    assert!(text.contains("instruction 0 (load.wgt"), "{text}");
    let budget = format!("more than its budget of {} bytes", bytes - 1);
    assert!(text.contains(&budget), "{text}");
}
