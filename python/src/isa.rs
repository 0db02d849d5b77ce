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
    AluOp, AluOperand, Config, Deps, Field, FieldError, INSN_BYTES, Insn, Load, MemType, Notation,
    Opcode, Requantize, Store, Uop, asm, check as isa_check,
};

use crate::error::{input, raise};
use crate::given::{kind, name};
use crate::options;
use crate::results::to_python;

/// The machine of `config=` and `board=`.
///
/// # Errors
/// As for [`Machine::read`], and `TypeError` for what is no configuration or board.
fn machine(
    config: Option<&Bound<'_, PyAny>>,
    board: Option<&Bound<'_, PyAny>>,
) -> PyResult<Machine> {
    let target = Target {
        config: config.map(options::config).transpose()?,
        board: board.map(|board| name("board", board)).transpose()?,
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
    let words = if is_words {
        words(value)?
    } else {
        let mut words = Vec::new();
        for one in each(value, "instructions")? {
            let found = word(&one?);
            words.push(found.map_err(|error| at(value.py(), words.len(), &error))?);
        }
        words
    };
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
        let mut word = 0;
        for field in Uop::LIST {
            word |= number(&value, field)? << field.first_bit;
        }
        words.push(word as u32);
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

/// The word of a dataclass, whose kind it says itself.
fn word(value: &Bound<'_, PyAny>) -> PyResult<u128> {
    let name = value.getattr("opcode").and_then(|name| name.extract());
    let opcode = name.ok().and_then(|name: String| opcode(&name));
    let opcode = opcode.ok_or_else(|| {
        let kind = kind(value);
        PyTypeError::new_err(format!(
            "a Load, Store, Gemm, Depthwise, Alu or Finish, not {kind}"
        ))
    })?;
    let mut word = Opcode::FIELD.put(opcode.code().into()).map_err(beyond)?;
    let mem = match opcode {
        Opcode::Load => memory_type(value)?,
        _ => MemType::Out.code().into(),
    };
    for field in fields_of(opcode) {
        let bits = match (field.name, opcode) {
            ("memory_type", _) => mem,
            ("alu_opcode", _) => code(value, "op", AluOp::ALL.map(|op| (op.name(), op.code())))?,
            ("use_imm", _) => (!value.getattr("imm")?.is_none()).into(),
            ("imm", _) if value.getattr("imm")?.is_none() => 0,
            _ => number(value, &field)?,
        };
        // A negative number has its sign in all 64 bits; the field has the lowest.
        word |= field.put(bits & field.max()).map_err(beyond)?;
    }
    if opcode == Opcode::Load {
        let upper = mem >> Load::FIELDS.memory_type.bits;
        return padded(value, word | Load::WGT4.put(upper).map_err(beyond)?);
    }
    let [flag, others @ ..] = Requantize::LIST else {
        return Ok(word);
    };
    let saturates = opcode == Opcode::Store && Store::SATURATE.get(word) != 0;
    if saturates && flag.get(word) != 0 {
        let (name, flag) = (Store::SATURATE.name, flag.name);
        return Err(input(format!("{name} means nothing with {flag}")));
    }
    let stray = others.iter().find(|field| field.get(word) != 0);
    if let Some(stray) = stray.filter(|_| opcode == Opcode::Store && flag.get(word) == 0) {
        let (name, flag) = (stray.name, flag.name);
        return Err(input(format!("{name} means nothing without {flag}")));
    }
    Ok(word)
}

/// The word of a LOAD whose padding holds what its dataclass says.
fn padded(value: &Bound<'_, PyAny>, word: u128) -> PyResult<u128> {
    let (field, plain) = (
        Load::PAD_VALUE,
        Insn::decode(word).map_err(|e| input(e.to_string()))?,
    );
    let pad_value = number(value, &field)? as i8;
    match plain {
        Insn::Load(load) if pad_value != 0 => {
            let load = Load { pad_value, ..load };
            Insn::from(load).encode().map_err(beyond)
        }
        _ => Ok(word),
    }
}

/// The code of what a LOAD loads, and of the module that does.
fn memory_type(value: &Bound<'_, PyAny>) -> PyResult<u64> {
    let loaded = MemType::ALL.into_iter().filter(|mem| *mem != MemType::Out);
    let plain = code(value, "mem", loaded.map(|mem| (mem.name(), mem.code())))?;
    if !value.getattr(Load::PRELOAD)?.extract::<bool>()? {
        return Ok(plain);
    }
    let codes = MemType::PRELOADED.into_iter();
    let mut preloaded = codes.filter(|(mem, ..)| u64::from(mem.code()) == plain);
    let preloaded = preloaded.next().map(|(_, code, _)| code.into());
    preloaded.ok_or_else(|| input(format!("{} is for accumulators alone", Load::PRELOAD)))
}

/// The fields of a dataclass, beside what says its kind.
fn fields_of(opcode: Opcode) -> Vec<Field> {
    let more: [&[Field]; 2] = match opcode {
        Opcode::Store => [&[Store::SATURATE], Requantize::LIST],
        Opcode::Load | Opcode::Gemm | Opcode::Finish | Opcode::Alu | Opcode::Depthwise => [&[]; 2],
    };
    [Deps::LIST, opcode.fields(), more[0], more[1]].concat()
}

/// The kind of instruction of a name.
fn opcode(name: &str) -> Option<Opcode> {
    Opcode::ALL.into_iter().find(|o| o.name() == name)
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

/// The code of what an attribute names.
fn code(
    value: &Bound<'_, PyAny>,
    attribute: &str,
    all: impl IntoIterator<Item = (&'static str, u8)>,
) -> PyResult<u64> {
    let given: String = value.getattr(attribute)?.extract()?;
    let mut known = Vec::new();
    for (name, code) in all {
        if name == given {
            return Ok(code.into());
        }
        known.push(name);
    }
    let known = known.join(", ");
    Err(input(format!(
        "{attribute} is '{given}', but it must be one of {known}"
    )))
}

/// The dataclass of an instruction.
fn object<'py>(classes: &Bound<'py, PyModule>, insn: &Insn) -> PyResult<Bound<'py, PyAny>> {
    let (fields, word) = (PyDict::new(classes.py()), insn.encode().map_err(beyond)?);
    for field in fields_of(insn.opcode()) {
        match field.notation {
            Notation::Flag => fields.set_item(field.name, field.get(word) != 0)?,
            Notation::Number | Notation::Shown => fields.set_item(field.name, field.get(word))?,
            Notation::Signed | Notation::Code => {}
        }
    }
    match insn {
        Insn::Load(load) => {
            fields.set_item("mem", load.mem.name())?;
            fields.set_item(Load::PRELOAD, load.preload)?;
            fields.set_item(Load::PAD_VALUE.name, load.pad_value)?;
            fields.set_item("y_size", load.y_size)?;
        }
        Insn::Alu(alu) => {
            fields.set_item("op", alu.op.name())?;
            if let AluOperand::Imm(imm) = alu.operand {
                fields.set_item("imm", imm)?;
            }
        }
        Insn::Store(_) | Insn::Gemm(_) | Insn::Depthwise(_) | Insn::Finish(_) => {}
    }
    let class = classes
        .getattr("_CLASSES")?
        .get_item(insn.opcode().name())?;
    class.call((), Some(&fields))
}

fn objects<'py>(py: Python<'py>, insns: &[Insn]) -> PyResult<Bound<'py, PyList>> {
    let (classes, list) = (py.import("pyvta.isa")?, PyList::empty(py));
    for insn in insns {
        list.append(object(&classes, insn)?)?;
    }
    Ok(list)
}

/// The instructions of assembly text, one a line; blank lines and what follows `#` don't count.
///
/// Raises `InputError` with line and column for what is no instruction, and for one that the configuration's
/// machine lacks.
#[pyfunction]
#[pyo3(signature = (text, config = None, *, board = None))]
pub fn assemble<'py>(
    py: Python<'py>,
    text: &str,
    config: Option<&Bound<'py, PyAny>>,
    board: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyList>> {
    let machine = machine(config, board)?;
    let insns = asm::parse(text).map_err(|error| raise(error.into()))?;
    let lacks = isa_check::extensions(&machine.config, &insns);
    lacks.map_err(|finding| input(finding.to_string()))?;
    objects(py, &insns)
}

/// The instructions of words, uint8 of any shape, or bytes, 16 for each. Bits that no field covers are ignored.
///
/// Raises `InputError` for words that are no instruction.
#[pyfunction]
pub fn decode<'py>(words: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
    objects(words.py(), &program(words)?.0)
}

/// The words of a program as they lie in DRAM: uint8 of shape (n, 16), little-endian.
///
/// Raises `InputError` for values beyond their fields, `TypeError` for what is no instruction.
#[pyfunction]
pub fn encode<'py>(program: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let words = encoded(&self::program(program)?.0)?;
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let array = bytes.into_pyarray(program.py());
    Ok(array.reshape([words.len(), INSN_BYTES])?.into_any())
}

/// The micro-ops of uint32, each of which is one.
#[pyfunction]
pub fn decode_uops<'py>(words: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
    let py = words.py();
    let (class, list) = (py.import("pyvta.isa")?.getattr("Uop")?, PyList::empty(py));
    for word in uops(words)? {
        let Uop { dst, src, wgt } = Uop::decode(word);
        list.append(class.call1((dst, src, wgt))?)?;
    }
    Ok(list)
}

/// Micro-ops as they lie in DRAM: uint32 of shape (n,).
///
/// Raises `InputError` for values beyond their fields.
#[pyfunction]
pub fn encode_uops<'py>(uops: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    Ok(self::uops(uops)?.into_pyarray(uops.py()).into_any())
}

/// The assembly text of a program, a line for each instruction; `assemble` gives the same back.
///
/// Raises `InputError` for words that are no instruction and values beyond their fields.
#[pyfunction]
pub fn disassemble(program: &Bound<'_, PyAny>) -> PyResult<String> {
    let insns = self::program(program)?.0.into_iter();
    let lines: Vec<String> = insns.map(|insn| insn.to_string()).collect();
    Ok(lines.join("\n"))
}

/// What is found in a program: pairs of what kind it is and a line of text.
#[pyfunction]
#[pyo3(signature = (insns, config, board, strict, hazards))]
pub fn isa_check_program(
    insns: &Bound<'_, PyAny>,
    config: Option<&Bound<'_, PyAny>>,
    board: Option<&Bound<'_, PyAny>>,
    strict: bool,
    hazards: bool,
) -> PyResult<Vec<(&'static str, String)>> {
    let machine = machine(config, board)?;
    let (py, also) = (
        insns.py(),
        Also {
            strict,
            hazards,
            ..Also::default()
        },
    );
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
    board: Option<&Bound<'py, PyAny>>,
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
    let all = match opcode(kind) {
        Some(opcode) => [vec![Opcode::FIELD], fields_of(opcode)].concat(),
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
        let (name, first, bits) = (field.name, field.first_bit, field.bits);
        (name, first, bits, low, high, field.unit, field.meaning)
    };
    Ok(all.iter().map(row).collect())
}

type FieldRow = (&'static str, u32, u32, i64, i64, &'static str, &'static str);
