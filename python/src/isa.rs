//! `pyvta.isa`: between its dataclasses and instructions. Which fields there are, how wide they are and
//! where their bits lie is asked of `vta-isa`, whose names the dataclasses have.

use numpy::{IntoPyArray, PyArrayDyn, PyArrayMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyIterator, PyList, PyString, PyTuple};
use serde_json::{Map, Value, json};
use vta_app::Target;
use vta_app::check::{Also, check_insns};
use vta_app::device::Machine;
use vta_isa::{
    Alu, AluOp, AluOperand, Config, Deps, Field, FieldError, Finish, Gemm, INSN_BYTES, Insn, Load,
    MemType, Notation, Opcode, Store, Uop, asm, check as isa_check,
};

use crate::error::{input, raise};
use crate::given::kind;
use crate::options;
use crate::results::to_python;

/// The machine of `config=` and `board=`.
///
/// # Errors
/// As for [`Machine::read`], and `TypeError` for what is no configuration.
pub fn machine(config: Option<&Bound<'_, PyAny>>, board: Option<&str>) -> PyResult<Machine> {
    let target = Target {
        config: config.map(options::config).transpose()?,
        board: board.map(str::to_owned),
        ..Target::default()
    };
    Machine::read(&target).map_err(raise)
}

/// A program of Python's: text, words, or instructions one by one. Words are kept beside.
///
/// # Errors
/// `InputError` for text and words that are none, and values beyond their fields; `TypeError` for
/// anything else.
pub fn program(value: &Bound<'_, PyAny>) -> PyResult<(Vec<Insn>, Vec<u128>)> {
    if let Ok(text) = value.cast::<PyString>() {
        let insns = asm::parse(text.to_str()?).map_err(|error| raise(error.into()))?;
        return Ok((insns, Vec::new()));
    }
    let is_words = value.is_instance_of::<PyBytes>() || value.cast::<PyUntypedArray>().is_ok();
    if !is_words {
        let (py, mut insns) = (value.py(), Vec::new());
        for value in each(value, "instructions")? {
            let value = value?;
            insns.push(insn(&value).map_err(|error| at(py, insns.len(), &error))?);
        }
        return Ok((insns, Vec::new()));
    }
    let words = words(value)?;
    let decode = |(index, word): (usize, &u128)| {
        Insn::decode(*word).map_err(|error| input(format!("word {index} ({word:#034x}): {error}")))
    };
    let insns = words.iter().enumerate().map(decode);
    Ok((insns.collect::<PyResult<_>>()?, words))
}

/// Micro-ops of Python's, encoded: `Uop` one by one, or uint32.
///
/// # Errors
/// As for [`program`].
pub fn uops(value: &Bound<'_, PyAny>) -> PyResult<Vec<u32>> {
    if let Ok(array) = value.cast::<PyUntypedArray>() {
        let array = array
            .cast::<PyArrayDyn<u32>>()
            .map_err(|_| input(format!("micro-ops are uint32, not {}", array.dtype())))?;
        return Ok(array.try_readonly()?.as_array().iter().copied().collect());
    }
    let class = value.py().import("pyvta.isa")?.getattr("Uop")?;
    let mut words = Vec::new();
    for value in each(value, "micro-ops")? {
        let mut value = value?;
        let fields = value.cast::<PyTuple>().ok().cloned();
        if let Some(fields) = fields.filter(|fields| fields.len() <= Uop::LIST.len()) {
            value = class.call1(fields)?;
        }
        if !value.is_instance(&class)? {
            let (index, kind) = (words.len(), kind(&value));
            return Err(PyTypeError::new_err(format!(
                "micro-op {index}: a Uop or a tuple of dst, src and wgt, not {kind}"
            )));
        }
        let index = |field: Field| -> PyResult<u16> { Ok(number(&value, &field)? as u16) };
        let uop = Uop {
            dst: index(Uop::DST)?,
            src: index(Uop::SRC)?,
            wgt: index(Uop::WGT)?,
        };
        words.push(uop.encode().map_err(beyond)?);
    }
    Ok(words)
}

/// What lists of instructions and micro-ops have.
fn each<'py>(value: &Bound<'py, PyAny>, what: &str) -> PyResult<Bound<'py, PyIterator>> {
    let none = |_| {
        PyTypeError::new_err(format!(
            "{what} are a list or an array, not {}",
            kind(value)
        ))
    };
    value.try_iter().map_err(none)
}

/// The words of a program, each field in its place.
///
/// # Errors
/// `InputError` for a value that is wider than its field.
pub fn encoded(insns: &[Insn]) -> PyResult<Vec<u128>> {
    let encode = |insn: &Insn| insn.encode().map_err(beyond);
    insns.iter().map(encode).collect()
}

fn beyond(error: FieldError) -> PyErr {
    raise(error.into())
}

/// The bytes of words: of any shape, 16 for each instruction.
fn words(value: &Bound<'_, PyAny>) -> PyResult<Vec<u128>> {
    let bytes = match value.cast::<PyBytes>() {
        Ok(bytes) => bytes.as_bytes().to_vec(),
        Err(_) => {
            let of = |_| input("words are uint8 of shape (n, 16), or bytes");
            let array = value.cast::<PyArrayDyn<u8>>().map_err(of)?.try_readonly()?;
            array.as_array().iter().copied().collect()
        }
    };
    let (chunks, rest) = bytes.as_chunks::<INSN_BYTES>();
    if !rest.is_empty() {
        let size = bytes.len();
        return Err(input(format!(
            "{size} bytes; an instruction has {INSN_BYTES}"
        )));
    }
    Ok(chunks.iter().map(|c| u128::from_le_bytes(*c)).collect())
}

/// Says which instruction of a program it was.
fn at(py: Python<'_>, index: usize, error: &PyErr) -> PyErr {
    let text = format!("instruction {index}: {}", error.value(py));
    if error.is_instance_of::<PyTypeError>(py) {
        PyTypeError::new_err(text)
    } else {
        input(text)
    }
}

/// The instruction of a dataclass, whose kind it says itself.
fn insn(value: &Bound<'_, PyAny>) -> PyResult<Insn> {
    let kind = || -> PyResult<Option<Opcode>> {
        let name: String = value.getattr("opcode")?.extract()?;
        Ok(Opcode::ALL.into_iter().find(|o| o.name() == name))
    };
    let Ok(Some(opcode)) = kind() else {
        let name = value.get_type().name()?;
        return Err(PyTypeError::new_err(format!(
            "a Load, Store, Gemm, Alu or Finish, not {name}"
        )));
    };
    let get = |field: &Field| number(value, field);
    let deps = Deps::build(get)?;
    let insn: Insn = match opcode {
        Opcode::Load => {
            let loaded = MemType::ALL.into_iter().filter(|mem| *mem != MemType::Out);
            Load::build(deps, code(value, "mem", loaded, MemType::name)?, get)?.into()
        }
        Opcode::Store => Store::build(deps, get)?.into(),
        Opcode::Gemm => Gemm::build(deps, get)?.into(),
        Opcode::Finish => Finish { deps }.into(),
        Opcode::Alu => {
            let op = code(value, "op", AluOp::ALL.into_iter(), AluOp::name)?;
            let imm = &Alu::FIELDS.imm;
            let operand = if value.getattr(imm.name)?.is_none() {
                AluOperand::Acc
            } else {
                AluOperand::Imm(number(value, imm)? as i16)
            };
            Alu::build(deps, op, operand, get)?.into()
        }
    };
    insn.encode().map_err(beyond)?;
    Ok(insn)
}

/// The value of a field, which fits it. Negative ones are as `Field` has them, in two's complement.
fn number(value: &Bound<'_, PyAny>, field: &Field) -> PyResult<u64> {
    let (name, value) = (field.name, value.getattr(field.name)?);
    let (low, high) = field.range();
    if let (Notation::Flag, Ok(flag)) = (field.notation, value.extract::<bool>()) {
        return Ok(flag.into());
    }
    match value.extract::<i64>() {
        Ok(number) if (low..=high).contains(&number) => Ok(number as u64),
        Err(error) if error.is_instance_of::<PyTypeError>(value.py()) => {
            let kind = value.get_type().name()?;
            Err(PyTypeError::new_err(format!(
                "{name} is a whole number, not {kind}"
            )))
        }
        Ok(_) | Err(_) => Err(input(format!(
            "{name} is {value}, but it must be from {low} to {high}"
        ))),
    }
}

/// What an attribute names.
fn code<T: Copy>(
    value: &Bound<'_, PyAny>,
    attribute: &str,
    all: impl Iterator<Item = T>,
    name: impl Fn(T) -> &'static str,
) -> PyResult<T> {
    let given: String = value.getattr(attribute)?.extract()?;
    let mut known = Vec::new();
    for one in all {
        if name(one) == given {
            return Ok(one);
        }
        known.push(name(one));
    }
    let known = known.join(", ");
    Err(input(format!(
        "{attribute} is '{given}', but it must be one of {known}"
    )))
}

/// The dataclass of an instruction.
fn object<'py>(classes: &Bound<'py, PyModule>, insn: &Insn) -> PyResult<Bound<'py, PyAny>> {
    let fields = PyDict::new(classes.py());
    let values: Vec<(Field, u64)> = match insn {
        Insn::Load(load) => {
            fields.set_item("mem", load.mem.name())?;
            load.values().collect()
        }
        Insn::Store(store) => store.values().collect(),
        Insn::Gemm(gemm) => gemm.values().collect(),
        Insn::Finish(_) => Vec::new(),
        Insn::Alu(alu) => {
            fields.set_item("op", alu.op.name())?;
            if let AluOperand::Imm(imm) = alu.operand {
                fields.set_item(Alu::FIELDS.imm.name, imm)?;
            }
            alu.values().collect()
        }
    };
    for (field, value) in insn.deps().values().chain(values) {
        if field.notation == Notation::Flag {
            fields.set_item(field.name, value != 0)?;
        } else {
            fields.set_item(field.name, value)?;
        }
    }
    let class = insn.opcode().name();
    classes
        .getattr("_CLASSES")?
        .get_item(class)?
        .call((), Some(&fields))
}

fn objects<'py>(py: Python<'py>, insns: &[Insn]) -> PyResult<Bound<'py, PyList>> {
    let (classes, list) = (py.import("pyvta.isa")?, PyList::empty(py));
    for insn in insns {
        list.append(object(&classes, insn)?)?;
    }
    Ok(list)
}

/// Instructions of text. Those that the machine lacks are refused.
#[pyfunction]
#[pyo3(signature = (text, config, board))]
pub fn isa_assemble<'py>(
    py: Python<'py>,
    text: &str,
    config: Option<&Bound<'py, PyAny>>,
    board: Option<&str>,
) -> PyResult<Bound<'py, PyList>> {
    let machine = machine(config, board)?;
    let insns = asm::parse(text).map_err(|error| raise(error.into()))?;
    let lacks = isa_check::extensions(&machine.config, &insns);
    lacks.map_err(|finding| input(finding.to_string()))?;
    objects(py, &insns)
}

/// Instructions of words.
#[pyfunction]
pub fn isa_decode<'py>(words: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
    objects(words.py(), &program(words)?.0)
}

/// uint8 of shape (n, 16).
#[pyfunction]
pub fn isa_encode<'py>(insns: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let words = encoded(&program(insns)?.0)?;
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let array = bytes.into_pyarray(insns.py());
    Ok(array.reshape([words.len(), INSN_BYTES])?.into_any())
}

/// Micro-ops of uint32, or of bytes' worth of them.
#[pyfunction]
pub fn isa_decode_uops<'py>(words: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
    let py = words.py();
    let (class, list) = (py.import("pyvta.isa")?.getattr("Uop")?, PyList::empty(py));
    for word in uops(words)? {
        let Uop { dst, src, wgt } = Uop::decode(word);
        list.append(class.call1((dst, src, wgt))?)?;
    }
    Ok(list)
}

/// uint32, one for each micro-op.
#[pyfunction]
pub fn isa_encode_uops<'py>(values: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    Ok(uops(values)?.into_pyarray(values.py()).into_any())
}

/// A line of text for each instruction.
#[pyfunction]
pub fn isa_text(insns: &Bound<'_, PyAny>) -> PyResult<String> {
    let lines = program(insns)?.0.into_iter().map(|insn| insn.to_string());
    Ok(lines.collect::<Vec<_>>().join("\n"))
}

/// What is found in a program: pairs of what kind it is and a line of text.
#[pyfunction]
#[pyo3(signature = (insns, config, board, strict, hazards))]
pub fn isa_check_program(
    insns: &Bound<'_, PyAny>,
    config: Option<&Bound<'_, PyAny>>,
    board: Option<&str>,
    strict: bool,
    hazards: bool,
) -> PyResult<Vec<(&'static str, String)>> {
    let machine = machine(config, board)?;
    let (py, also) = (insns.py(), Also { strict, hazards });
    let (insns, words) = program(insns)?;
    let found = py.detach(|| check_insns(&machine, insns, words, also));
    let found = found.map_err(raise)?;
    let faults = found.faults.into_iter().map(|text| ("fault", text));
    let hazards = found.hazards.iter();
    let hazards = hazards.map(|(place, hazard)| ("hazard", format!("{place}{hazard}")));
    let notes = found.notes.into_iter().map(|text| ("note", text));
    Ok(faults.chain(hazards).chain(notes).collect())
}

/// A configuration's JSON, and what follows from it.
#[pyfunction]
#[pyo3(signature = (config, board))]
pub fn isa_config<'py>(
    py: Python<'py>,
    config: Option<&Bound<'py, PyAny>>,
    board: Option<&str>,
) -> PyResult<(String, Bound<'py, PyAny>)> {
    let config: Config = machine(config, board)?.config;
    let of_each = |of: fn(&Config, MemType) -> usize| -> Map<String, Value> {
        let all = MemType::ALL.into_iter();
        all.map(|mem| (mem.name().to_owned(), of(&config, mem).into()))
            .collect()
    };
    let extensions = config.extensions();
    let facts = json!({
        "batch": config.batch(), "block": config.block(),
        "extensions": extensions.iter().map(|one| one.name()).collect::<Vec<_>>(),
        "depth": of_each(Config::depth), "elem_bytes": of_each(Config::elem_bytes),
    });
    Ok((config.to_json(), to_python(py, &facts)?))
}

/// The fields of an instruction, or of a micro-op, by first bit: name, first bit, width, smallest and
/// largest value, unit, meaning.
#[pyfunction]
pub fn isa_fields(kind: &str) -> PyResult<Vec<FieldRow>> {
    let opcode = Opcode::ALL.into_iter().find(|o| o.name() == kind);
    let all = match opcode {
        Some(opcode) => [&[Opcode::FIELD], Deps::LIST, opcode.fields()].concat(),
        None if kind == "uop" => Uop::LIST.to_vec(),
        None => {
            let known = Opcode::NAMES.join(", ");
            return Err(input(format!(
                "no kind of instruction '{kind}' (there are {known} and uop)"
            )));
        }
    };
    let row = |field: &Field| {
        let (low, high) = field.range();
        let Field {
            name,
            first_bit,
            bits,
            unit,
            meaning,
            ..
        } = *field;
        (name, first_bit, bits, low, high, unit, meaning)
    };
    Ok(all.iter().map(row).collect())
}

type FieldRow = (&'static str, u32, u32, i64, i64, &'static str, &'static str);
