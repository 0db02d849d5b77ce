//! Assembly text: one instruction a line, fields by the names of the hardware headers.
//!
//! ```text
//! # comment
//! load.inp sram_base=0 dram_base=256 y_size=14 x_size=14 x_stride=56 y_pad_0=1 push_next
//! gemm reset uop_bgn=0 uop_end=4 iter_out=14 iter_in=14 dst_factor_out=14 dst_factor_in=1
//! alu.shr imm=4 uop_end=1 iter_out=1 iter_in=16 dst_factor_in=1 src_factor_in=1
//! store sram_base=0 dram_base=0 y_size=1 x_size=16 x_stride=16 pop_prev
//! finish pop_next
//! ```
//!
//! Mnemonics: `load.uop|wgt|inp|acc|acc8`, `store`, `gemm`, `alu.min|max|add|shr|mul|shl`,
//! `finish`. Fields that are left out are 0; an ALU instruction with `imm=` takes the immediate
//! and without it `acc[src]`. Flags: `pop_prev`, `pop_next`, `push_prev`, `push_next`, and for
//! GEMM `reset`. Numbers are decimal or, after `0x`, hexadecimal. Printing leaves out zeros, so
//! `parse(print(x)) == x`.

use std::fmt;

use thiserror::Error;

use crate::{Alu, AluOp, AluOperand, Deps, FieldError, Finish, Gemm, Insn, Load, MemType, Store};

/// A line that isn't an instruction.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}, column {column}: {kind}")]
pub struct AsmError {
    /// From 1.
    pub line: usize,
    /// In bytes, from 1.
    pub column: usize,
    /// What is wrong.
    pub kind: AsmErrorKind,
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AsmErrorKind {
    /// The first word is no mnemonic.
    #[error(
        "unknown mnemonic '{0}' (expected load.uop|wgt|inp|acc|acc8, store, gemm, alu.min|max|add|shr|mul|shl or finish)"
    )]
    Mnemonic(String),
    /// A field or flag that the instruction doesn't have.
    #[error("{mnemonic} has no field or flag '{name}' (it has {expected})")]
    Field {
        /// The instruction.
        mnemonic: String,
        /// The word.
        name: String,
        /// What it has.
        expected: String,
    },
    /// A field or flag stands twice.
    #[error("'{0}' stands twice")]
    Twice(String),
    /// Not a number, or outside the field.
    #[error("'{text}' is no number from {low} to {high} for {name}")]
    Number {
        /// The field.
        name: String,
        /// What stands there.
        text: String,
        /// Smallest legal value.
        low: i64,
        /// Largest legal value.
        high: i64,
    },
    /// A value that passes the type but not the field.
    #[error(transparent)]
    Encode(FieldError),
}

/// Parses a program, one instruction a line; blank lines and text after `#` don't count.
///
/// # Errors
/// [`AsmError`] with line and column of the first fault.
pub fn parse(text: &str) -> Result<Vec<Insn>, AsmError> {
    let mut insns = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let code = line.split('#').next().unwrap_or_default();
        if code.trim().is_empty() {
            continue;
        }
        let at = |(column, kind)| AsmError {
            line: index + 1,
            column,
            kind,
        };
        insns.push(parse_line(code).map_err(at)?);
    }
    Ok(insns)
}

type Fault = (usize, AsmErrorKind);

/// The words after the mnemonic, each taken once by the instruction's parser.
struct Words<'a> {
    mnemonic: &'a str,
    /// Column, name, value.
    words: Vec<(usize, &'a str, Option<&'a str>)>,
    known: Vec<&'static str>,
    taken: Vec<&'static str>,
}

impl<'a> Words<'a> {
    fn take(&mut self, name: &'static str, flag: Flag) -> Option<(usize, Option<&'a str>)> {
        self.known.push(name);
        let is_flag = flag == Flag::Yes;
        let at = self
            .words
            .iter()
            .position(|w| w.1 == name && w.2.is_none() == is_flag)?;
        let (column, _, value) = self.words.remove(at);
        self.taken.push(name);
        Some((column, value))
    }

    fn flag(&mut self, name: &'static str) -> bool {
        self.take(name, Flag::Yes).is_some()
    }

    fn number(&mut self, name: &'static str, low: i64, high: i64) -> Result<Option<i64>, Fault> {
        let Some((column, value)) = self.take(name, Flag::No) else {
            return Ok(None);
        };
        let text = value.unwrap_or_default();
        let (digits, radix) = match text.strip_prefix("0x") {
            Some(hex) => (hex, 16),
            None => (text, 10),
        };
        match i64::from_str_radix(digits, radix) {
            Ok(n) if (low..=high).contains(&n) && !digits.starts_with('+') => Ok(Some(n)),
            _ => {
                let (name, text) = (name.to_owned(), text.to_owned());
                Err((
                    column,
                    AsmErrorKind::Number {
                        name,
                        text,
                        low,
                        high,
                    },
                ))
            }
        }
    }

    /// An unsigned field of `bits` bits; 0 when left out.
    fn field(&mut self, name: &'static str, bits: u32) -> Result<u32, Fault> {
        let high = (1i64 << bits) - 1;
        Ok(self.number(name, 0, high)?.unwrap_or(0) as u32)
    }

    fn deps(&mut self) -> Deps {
        Deps {
            pop_prev: self.flag("pop_prev"),
            pop_next: self.flag("pop_next"),
            push_prev: self.flag("push_prev"),
            push_next: self.flag("push_next"),
        }
    }

    fn finish(self) -> Result<(), Fault> {
        let Some((column, name, _)) = self.words.first().copied() else {
            return Ok(());
        };
        let again = self.known.contains(&name) && self.taken.contains(&name);
        if again {
            return Err((column, AsmErrorKind::Twice(name.to_owned())));
        }
        let (mnemonic, expected) = (self.mnemonic.to_owned(), self.known.join(", "));
        Err((
            column,
            AsmErrorKind::Field {
                mnemonic,
                name: name.to_owned(),
                expected,
            },
        ))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Flag {
    Yes,
    No,
}

fn parse_line(code: &str) -> Result<Insn, Fault> {
    let mut words = Vec::new();
    let mut from = 0;
    while let Some(start) = code[from..].find(|c: char| !c.is_whitespace()) {
        let start = from + start;
        let end = code[start..]
            .find(char::is_whitespace)
            .map_or(code.len(), |n| start + n);
        words.push((start + 1, &code[start..end]));
        from = end;
    }
    let Some(&(column, mnemonic)) = words.first() else {
        return Err((1, AsmErrorKind::Mnemonic(String::new())));
    };
    let rest = words[1..]
        .iter()
        .map(|&(column, word)| match word.split_once('=') {
            Some((name, value)) => (column, name, Some(value)),
            None => (column, word, None),
        });
    let mut words = Words {
        mnemonic,
        words: rest.collect(),
        known: Vec::new(),
        taken: Vec::new(),
    };
    let unknown = || (column, AsmErrorKind::Mnemonic(mnemonic.to_owned()));
    let (kind, suffix) = mnemonic.split_once('.').unwrap_or((mnemonic, ""));
    let insn = match (kind, suffix) {
        ("load", suffix) => {
            let mem = MemType::ALL
                .into_iter()
                .find(|m| m.name() == suffix && *m != MemType::Out);
            parse_load(mem.ok_or_else(unknown)?, &mut words)?.into()
        }
        ("store", "") => parse_store(&mut words)?.into(),
        ("gemm", "") => parse_gemm(&mut words)?.into(),
        ("alu", suffix) => {
            let op = AluOp::ALL.into_iter().find(|op| op.name() == suffix);
            parse_alu(op.ok_or_else(unknown)?, &mut words)?.into()
        }
        ("finish", "") => Insn::from(Finish { deps: words.deps() }),
        _ => return Err(unknown()),
    };
    words.finish()?;
    insn.encode()
        .map_err(|e| (column, AsmErrorKind::Encode(e)))?;
    Ok(insn)
}

fn parse_load(mem: MemType, w: &mut Words) -> Result<Load, Fault> {
    Ok(Load {
        deps: w.deps(),
        mem,
        sram_base: w.field("sram_base", 16)? as u16,
        dram_base: w.field("dram_base", 32)?,
        y_size: w.field("y_size", 16)? as u16,
        x_size: w.field("x_size", 16)? as u16,
        x_stride: w.field("x_stride", 16)? as u16,
        y_pad_0: w.field("y_pad_0", 4)? as u8,
        y_pad_1: w.field("y_pad_1", 4)? as u8,
        x_pad_0: w.field("x_pad_0", 4)? as u8,
        x_pad_1: w.field("x_pad_1", 4)? as u8,
    })
}

fn parse_store(w: &mut Words) -> Result<Store, Fault> {
    Ok(Store {
        deps: w.deps(),
        sram_base: w.field("sram_base", 16)? as u16,
        dram_base: w.field("dram_base", 32)?,
        y_size: w.field("y_size", 16)? as u16,
        x_size: w.field("x_size", 16)? as u16,
        x_stride: w.field("x_stride", 16)? as u16,
    })
}

fn parse_gemm(w: &mut Words) -> Result<Gemm, Fault> {
    Ok(Gemm {
        deps: w.deps(),
        reset: w.flag("reset"),
        uop_bgn: w.field("uop_bgn", 13)? as u16,
        uop_end: w.field("uop_end", 14)? as u16,
        iter_out: w.field("iter_out", 14)? as u16,
        iter_in: w.field("iter_in", 14)? as u16,
        dst_factor_out: w.field("dst_factor_out", 11)? as u16,
        dst_factor_in: w.field("dst_factor_in", 11)? as u16,
        src_factor_out: w.field("src_factor_out", 11)? as u16,
        src_factor_in: w.field("src_factor_in", 11)? as u16,
        wgt_factor_out: w.field("wgt_factor_out", 10)? as u16,
        wgt_factor_in: w.field("wgt_factor_in", 10)? as u16,
    })
}

fn parse_alu(op: AluOp, w: &mut Words) -> Result<Alu, Fault> {
    let imm = w.number("imm", i16::MIN.into(), i16::MAX.into())?;
    Ok(Alu {
        deps: w.deps(),
        op,
        operand: imm.map_or(AluOperand::Acc, |imm| AluOperand::Imm(imm as i16)),
        uop_bgn: w.field("uop_bgn", 13)? as u16,
        uop_end: w.field("uop_end", 14)? as u16,
        iter_out: w.field("iter_out", 14)? as u16,
        iter_in: w.field("iter_in", 14)? as u16,
        dst_factor_out: w.field("dst_factor_out", 11)? as u16,
        dst_factor_in: w.field("dst_factor_in", 11)? as u16,
        src_factor_out: w.field("src_factor_out", 11)? as u16,
        src_factor_in: w.field("src_factor_in", 11)? as u16,
    })
}

/// Prints `name=value` for each value that isn't 0.
fn fields(f: &mut fmt::Formatter<'_>, fields: &[(&str, u32)]) -> fmt::Result {
    for (name, value) in fields.iter().filter(|(_, value)| *value != 0) {
        write!(f, " {name}={value}")?;
    }
    Ok(())
}

impl fmt::Display for Deps {
    /// Each flag that is set, with a space before it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = [
            (self.pop_prev, "pop_prev"),
            (self.pop_next, "pop_next"),
            (self.push_prev, "push_prev"),
            (self.push_next, "push_next"),
        ];
        flags
            .iter()
            .filter(|(set, _)| *set)
            .try_for_each(|(_, name)| write!(f, " {name}"))
    }
}

impl fmt::Display for Insn {
    /// One line of assembly text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load(x) => print_load(x, f),
            Self::Store(x) => print_store(x, f),
            Self::Gemm(x) => print_gemm(x, f),
            Self::Finish(_) => f.write_str("finish"),
            Self::Alu(x) => print_alu(x, f),
        }?;
        write!(f, "{}", self.deps())
    }
}

fn print_load(x: &Load, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(
        f,
        "load.{} sram_base={} dram_base={}",
        x.mem, x.sram_base, x.dram_base
    )?;
    let sizes = [
        ("y_size", x.y_size),
        ("x_size", x.x_size),
        ("x_stride", x.x_stride),
    ];
    fields(f, &sizes.map(|(n, v)| (n, v.into())))?;
    let pads = [
        ("y_pad_0", x.y_pad_0),
        ("y_pad_1", x.y_pad_1),
        ("x_pad_0", x.x_pad_0),
        ("x_pad_1", x.x_pad_1),
    ];
    fields(f, &pads.map(|(n, v)| (n, v.into())))
}

fn print_store(x: &Store, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(
        f,
        "store sram_base={} dram_base={}",
        x.sram_base, x.dram_base
    )?;
    let sizes = [
        ("y_size", x.y_size),
        ("x_size", x.x_size),
        ("x_stride", x.x_stride),
    ];
    fields(f, &sizes.map(|(n, v)| (n, v.into())))
}

fn print_gemm(x: &Gemm, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str(if x.reset { "gemm reset" } else { "gemm" })?;
    write!(f, " uop_bgn={} uop_end={}", x.uop_bgn, x.uop_end)?;
    let loops = [
        ("iter_out", x.iter_out),
        ("iter_in", x.iter_in),
        ("dst_factor_out", x.dst_factor_out),
        ("dst_factor_in", x.dst_factor_in),
        ("src_factor_out", x.src_factor_out),
        ("src_factor_in", x.src_factor_in),
        ("wgt_factor_out", x.wgt_factor_out),
        ("wgt_factor_in", x.wgt_factor_in),
    ];
    fields(f, &loops.map(|(n, v)| (n, v.into())))
}

fn print_alu(x: &Alu, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "alu.{}", x.op)?;
    if let AluOperand::Imm(imm) = x.operand {
        write!(f, " imm={imm}")?;
    }
    write!(f, " uop_bgn={} uop_end={}", x.uop_bgn, x.uop_end)?;
    let loops = [
        ("iter_out", x.iter_out),
        ("iter_in", x.iter_in),
        ("dst_factor_out", x.dst_factor_out),
        ("dst_factor_in", x.dst_factor_in),
        ("src_factor_out", x.src_factor_out),
        ("src_factor_in", x.src_factor_in),
    ];
    fields(f, &loops.map(|(n, v)| (n, v.into())))
}
