//! The numbers that the host and `vta_throughput.cl` agree on. Each is declared here; the kernels have
//! them from a header that is generated from this, `kernels/vta_throughput.h`.

use vta_isa::{Alu, AluOp, header};

/// Words of an operation in the kernel's table.
pub(crate) const OP_WORDS: usize = 24;
/// Words of a chain's stage: operation, kind of operand, immediate, table, what its tiles are
/// added to.
pub(crate) const STAGE_WORDS: usize = 5;
/// Words of a piece of products: pattern, what its inputs are added to, what its weights are added
/// to, table of each component's weights, weights of a component.
pub(crate) const PIECE_WORDS: usize = 5;
/// The memory scopes, in the order of their numbers.
pub(crate) const SCOPES: [&str; 4] = ["buffer", "constant", "image", "image2d"];
/// Bytes of an image's texel.
pub(crate) const TEXEL_BYTES: u32 = 16;
/// Texels of a row of a 2D image.
pub(crate) const TEXTURE_WIDTH: u32 = 1024;
/// A tile that a stage leaves as it is.
pub(crate) const UNTOUCHED: u32 = u32::MAX;
/// An output that has no such product.
pub(crate) const MISSING: u32 = u32::MAX;

/// Numbers from 0 on with the kernels' names: an enum, and the names in the order of their numbers.
macro_rules! named {
    ($(#[$doc:meta])* $Enum:ident, $NAMES:ident: $( $Name:ident $name:literal; )*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub(crate) enum $Enum {
            $( $Name, )*
        }

        /// The names, in the order of their numbers.
        pub(crate) const $NAMES: [&str; [$( $name ),*].len()] = [$( $name ),*];
    };
}

named! {
    /// What an operation is: `vta_<name>` runs a unit.
    Kind, KINDS:
    LoadInp "load_inp";
    LoadWgt "load_wgt";
    LoadAcc "load_acc";
    LoadAcc8 "load_acc8";
    Gemm "gemm";
    Chain "chain";
    GemmInOrder "gemm_in_order";
    AluInOrder "alu_in_order";
    Products "products";
    Requantize "requantize";
    Windows "windows";
}

named! {
    /// A word of `vta_pack`'s sizes.
    PackWord, PACK_NAMES:
    Images "images";
    Channels "channels";
    Height "height";
    Width "width";
    KernelHeight "kernel_height";
    KernelWidth "kernel_width";
    StrideY "stride_y";
    StrideX "stride_x";
    DilationY "dilation_y";
    DilationX "dilation_x";
    Top "top";
    Left "left";
    OutWidth "out_width";
    Positions "positions";
    Blocks "blocks";
    Zero "zero";
}
/// Words of what `vta_pack` is told of a tensor.
pub(crate) const PACK_WORDS: usize = PACK_NAMES.len();

/// The operation of a chain's stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StageOp {
    /// That of an ALU instruction.
    Alu(AluOp),
    /// GEMM's reset.
    Clear,
}

impl StageOp {
    /// The kernel's number: an ALU operation has its code, a reset one that no operation can have.
    pub const fn word(self) -> u32 {
        match self {
            Self::Alu(op) => op.code() as u32,
            Self::Clear => Alu::FIELDS.alu_opcode.max() as u32 + 1,
        }
    }
}

/// Where the second operand of a stage comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum StageOperand {
    /// The immediate, for all tiles of the chain.
    Imm,
    /// The immediate, for the tiles that a table names.
    ImmOfSome,
    /// The tiles that a table names.
    Tiles,
}

/// The text of `vta_throughput.h`.
pub(crate) fn throughput_header() -> String {
    let mut text = String::from(
        "/* What vta_throughput.cl and its host agree on. Generated from hw-opencl/src/words.rs; do not\n \
         * edit. VTA_EACH_KIND(X) is X(NAME, name) for each. */\n\
         #ifndef VTA_THROUGHPUT_H\n#define VTA_THROUGHPUT_H\n",
    );
    // Where `schedule` writes what all operations have, and the first of the kind's own words.
    let words = [("kind", 0), ("units", 1), ("chunk", 2), ("a", 3)];
    header::codes(&mut text, "Words of an operation", "OP", &words);
    let kinds: Vec<(&str, u32)> = KINDS.into_iter().zip(0..).collect();
    header::codes(&mut text, "Kinds of operations", "KIND", &kinds);
    let stages = [("clear", StageOp::Clear.word())];
    header::codes(
        &mut text,
        "Operations of a stage beside those of the ALU",
        "STAGE",
        &stages,
    );
    let operands = [
        ("imm", StageOperand::Imm as u32),
        ("imm_of_some", StageOperand::ImmOfSome as u32),
        ("tiles", StageOperand::Tiles as u32),
    ];
    header::codes(&mut text, "Operands of a stage", "OPERAND", &operands);
    let scopes: Vec<(&str, u32)> = SCOPES.into_iter().zip(0..).collect();
    header::codes(&mut text, "Memory scopes", "SCOPE", &scopes);
    let pack: Vec<(&str, u32)> = PACK_NAMES.into_iter().zip(0..).collect();
    header::codes(&mut text, "Words of what is packed", "PACK", &pack);
    text.push_str("\n/* Lengths, and entries of tables that name nothing. */\n");
    for (name, value) in [
        ("OP_WORDS", OP_WORDS as u32),
        ("STAGE_WORDS", STAGE_WORDS as u32),
        ("PIECE_WORDS", PIECE_WORDS as u32),
        ("TEXTURE_WIDTH", TEXTURE_WIDTH),
        ("UNTOUCHED", UNTOUCHED),
        ("MISSING", MISSING),
    ] {
        header::define(&mut text, &format!("VTA_{name}"), value);
    }
    text.push_str("\n#endif\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_of_the_lanes_is_fresh() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/vta_throughput.h");
        let expected = throughput_header();
        if std::env::var_os("VTA_UPDATE_GENERATED").is_some() {
            std::fs::write(path, &expected).unwrap();
        }
        let found = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            found == expected,
            "{path} is stale: run VTA_UPDATE_GENERATED=1 cargo test -p vta-hw-opencl --lib words"
        );
    }

    #[test]
    fn a_reset_has_a_number_that_no_instruction_can_have() {
        for word in 0..=Alu::FIELDS.alu_opcode.max() {
            assert_ne!(StageOp::Clear.word(), word as u32);
        }
    }
}
