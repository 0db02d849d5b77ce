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
//! Mnemonics are the names of [`Opcode`], `load` with a [`MemType`] behind it (but `out`) and
//! `alu` with an [`AluOp`]. Fields that are left out are 0; an ALU instruction with `imm=` takes the immediate
//! and without it `acc[src]`. Flags: `pop_prev`, `pop_next`, `push_prev`, `push_next`, for
//! LOAD of accumulators `preload`, of inputs `pad_value=`, for GEMM `reset` and `overwrite`, for DEPTHWISE `overwrite`, for STORE `saturate`, or `requantize`, which has fields of its own. Numbers are decimal or, after `0x`, hexadecimal. Printing leaves out zeros, so
//! `parse(print(x)) == x`.

use std::fmt;

use thiserror::Error;

use crate::{
    Alu, AluOp, AluOperand, Deps, Depthwise, Field, FieldError, Finish, Gemm, Insn, Load, MemType,
    Notation, Opcode, Requantize, Store,
};

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
    #[error("unknown mnemonic '{0}' (expected {known})", known = mnemonics())]
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
            // `from_str_radix` takes a plus sign, too; a number has one spelling in each radix.
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

    /// What stands for a field; 0 when it is left out.
    fn field(&mut self, field: &Field) -> Result<u64, Fault> {
        if field.notation == Notation::Flag {
            return Ok(self.take(field.name, Flag::Yes).is_some().into());
        }
        let (low, high) = field.range();
        Ok(self.number(field.name, low, high)?.unwrap_or(0) as u64)
    }

    fn deps(&mut self) -> Result<Deps, Fault> {
        Deps::build(|field| self.field(field))
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
    let insn = parse_insn(mnemonic, &mut words)?;
    let unknown = || (column, AsmErrorKind::Mnemonic(mnemonic.to_owned()));
    let insn = insn.ok_or_else(unknown)?;
    words.finish()?;
    insn.encode()
        .map_err(|e| (column, AsmErrorKind::Encode(e)))?;
    Ok(insn)
}

/// The memory types that LOAD takes.
fn loaded() -> impl Iterator<Item = MemType> {
    MemType::ALL.into_iter().filter(|m| *m != MemType::Out)
}

/// What mnemonics there are, in words.
fn mnemonics() -> String {
    let suffixes = |names: Vec<&str>| format!(".{}", names.join("|"));
    let forms: Vec<String> = Opcode::ALL
        .into_iter()
        .map(|opcode| {
            let suffix = match opcode {
                Opcode::Load => suffixes(loaded().map(MemType::name).collect()),
                Opcode::Alu => suffixes(AluOp::NAMES.to_vec()),
                Opcode::Store | Opcode::Gemm | Opcode::Finish | Opcode::Depthwise => String::new(),
            };
            format!("{opcode}{suffix}")
        })
        .collect();
    match forms.split_last() {
        Some((last, before)) => format!("{} or {last}", before.join(", ")),
        None => String::new(),
    }
}

/// The instruction of a mnemonic and the words after it; `None` if it is no mnemonic.
fn parse_insn(mnemonic: &str, w: &mut Words) -> Result<Option<Insn>, Fault> {
    let (kind, suffix) = mnemonic
        .split_once('.')
        .map_or((mnemonic, None), |(kind, suffix)| (kind, Some(suffix)));
    let opcode = Opcode::ALL.into_iter().find(|o| o.name() == kind);
    let Some(opcode) = opcode else {
        return Ok(None);
    };
    let takes_suffix = match opcode {
        Opcode::Load | Opcode::Alu => true,
        Opcode::Store | Opcode::Gemm | Opcode::Finish | Opcode::Depthwise => false,
    };
    if suffix.is_some() != takes_suffix {
        return Ok(None);
    }
    Ok(Some(match opcode {
        Opcode::Load => {
            let Some(mem) = loaded().find(|m| Some(m.name()) == suffix) else {
                return Ok(None);
            };
            let deps = w.deps()?;
            let preload = MemType::PRELOADED.iter().any(|(known, ..)| *known == mem)
                && w.take(Load::PRELOAD, Flag::Yes).is_some();
            let pad_value = match mem {
                MemType::Inp => w.field(&Load::PAD_VALUE)? as i8,
                MemType::Uop | MemType::Wgt | MemType::Wgt4 => 0,
                MemType::Acc | MemType::Acc8 | MemType::Out => 0,
            };
            Load::build(deps, mem, preload, pad_value, |field| w.field(field))?.into()
        }
        Opcode::Store => {
            let deps = w.deps()?;
            let requantize = match w.field(&Requantize::FIELDS.requantize)? {
                0 => None,
                _ => Some(Requantize::build(|field| w.field(field))?),
            };
            let saturate = w.field(&Store::SATURATE)? != 0;
            Store::build(deps, requantize, saturate, |field| w.field(field))?.into()
        }
        Opcode::Gemm => Gemm::build(w.deps()?, |field| w.field(field))?.into(),
        Opcode::Depthwise => Depthwise::build(w.deps()?, |field| w.field(field))?.into(),
        Opcode::Finish => Finish { deps: w.deps()? }.into(),
        Opcode::Alu => {
            let op = AluOp::ALL.into_iter().find(|op| Some(op.name()) == suffix);
            let Some(op) = op else {
                return Ok(None);
            };
            let (low, high) = Alu::FIELDS.imm.range();
            let imm = w.number(Alu::FIELDS.imm.name, low, high)?;
            let operand = imm.map_or(AluOperand::Acc, |imm| AluOperand::Imm(imm as i16));
            Alu::build(w.deps()?, op, operand, |field| w.field(field))?.into()
        }
    }))
}

/// Prints fields, each with a space before it.
fn print(f: &mut fmt::Formatter<'_>, values: impl Iterator<Item = (Field, u64)>) -> fmt::Result {
    for (field, value) in values {
        match field.notation {
            Notation::Flag if value != 0 => write!(f, " {}", field.name)?,
            Notation::Number if value != 0 => write!(f, " {}={value}", field.name)?,
            Notation::Shown => write!(f, " {}={value}", field.name)?,
            Notation::Flag | Notation::Number | Notation::Signed | Notation::Code => {}
        }
    }
    Ok(())
}

impl fmt::Display for Deps {
    /// Each flag that is set, with a space before it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print(f, self.values())
    }
}

impl fmt::Display for Insn {
    /// One line of assembly text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.opcode())?;
        match self {
            Self::Load(x) => {
                write!(f, ".{}", x.mem)?;
                if x.preload {
                    write!(f, " {}", Load::PRELOAD)?;
                }
                if x.pad_value != 0 {
                    write!(f, " {}={}", Load::PAD_VALUE.name, x.pad_value)?;
                }
                print(f, x.values())
            }
            Self::Store(x) => {
                print(f, [(Store::SATURATE, x.saturate.into())].into_iter())?;
                print(f, x.values())?;
                if let Some(how) = &x.requantize {
                    let flag = (Requantize::FIELDS.requantize, 1);
                    print(f, [flag].into_iter().chain(how.values()))?;
                }
                Ok(())
            }
            Self::Gemm(x) => print(f, x.values()),
            Self::Depthwise(x) => print(f, x.values()),
            Self::Finish(_) => Ok(()),
            Self::Alu(x) => {
                write!(f, ".{}", x.op)?;
                if let AluOperand::Imm(imm) = x.operand {
                    write!(f, " {}={imm}", Alu::FIELDS.imm.name)?;
                }
                print(f, x.values())
            }
        }?;
        write!(f, "{}", self.deps())
    }
}
