"""Instructions as dataclasses: names and bits are those of Rust, whatever the fields say."""

import copy
import dataclasses
import pickle
import random
import subprocess

import numpy as np
import pytest

import pyvta
from pyvta import isa

KINDS = [isa.Load, isa.Store, isa.Gemm, isa.Depthwise, isa.Alu, isa.Finish]
# What a dataclass calls otherwise than the hardware headers; None is no field of its own.
NAMES = {"memory_type": "mem", "alu_opcode": "op", "use_imm": None, "opcode": None}
CODES = {"mem": ["uop", "wgt", "inp", "acc", "acc8", "wgt4"], "op": ["min", "max", "add", "shr", "mul", "shl", "clip", "mov"]}


def random_insn(kind, rng):
    """Any values of all fields, the ends among them."""
    ranges = {field.name: (field.low, field.high) for field in isa.fields(kind)}
    values = {}
    for field in dataclasses.fields(kind):
        if field.name in CODES:
            values[field.name] = rng.choice(CODES[field.name])
            continue
        if field.name == "preload":
            # A code of the memory type.
            values["preload"] = values["mem"] in ("acc", "acc8") and rng.random() < 0.5
            continue
        if field.name == "pad_value":
            # Bits of the rows, of inputs.
            padded = values["mem"] == "inp" and rng.random() < 0.5
            values["pad_value"] = rng.randint(-128, 127) if padded else 0
            continue
        low, high = ranges[field.name]
        value = rng.choice([low, high, rng.randint(low, high)])
        values[field.name] = bool(value) if field.type == "bool" else value
    if values.get("pad_value"):
        values["y_size"] %= 256
    if kind is isa.Alu and rng.random() < 0.5:
        values["imm"] = None
    if kind is isa.Store and not values["requantize"]:
        values.update(table=0, by_row=False, residual=0)
    if kind is isa.Store and values["requantize"]:
        values["saturate"] = False
    return kind(**values)


@pytest.mark.parametrize("kind", KINDS)
def test_the_fields_are_those_of_rust(kind):
    known = {NAMES.get(field.name, field.name) for field in isa.fields(kind)} - {None}
    flags = {field.name for field in isa.fields(kind) if field.unit == "flag"} - {"use_imm"}
    if kind is isa.Store:
        known.discard("mem")
    if kind is isa.Load:
        known |= {"preload", "pad_value"}
        flags.add("preload")
    assert {field.name for field in dataclasses.fields(kind)} == known
    assert {field.name for field in dataclasses.fields(kind) if field.type == "bool"} == flags


def test_micro_ops_have_the_fields_of_rust():
    assert [field.name for field in isa.fields(isa.Uop)] == [field.name for field in dataclasses.fields(isa.Uop)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_value_survives_words_and_text(kind):
    rng = random.Random(7)
    program = [random_insn(kind, rng) for _ in range(300)]
    words = isa.encode(program)
    assert (words.shape, words.dtype) == ((300, 16), np.uint8)
    assert isa.decode(words) == program
    assert isa.decode(words.tobytes()) == isa.decode(words[::-1])[::-1] == program
    text = isa.disassemble(words)
    names = ["ACC8", "CLIP", "DEPTHWISE", "MOV", "MUL", "OVERWRITE", "PAD", "PRELOAD", "REQUANT", "SATURATE", "SHL", "WGT4"]
    everything = {"EXTENSIONS": names}
    assert isa.assemble(text, everything) == program and text == "\n".join(str(insn) for insn in program)
    np.testing.assert_array_equal(isa.encode(text), words)


@pytest.mark.parametrize("kind", KINDS)
def test_each_field_lies_in_its_bits(kind):
    for field in isa.fields(kind):
        name = NAMES.get(field.name, field.name)
        if name in (None, *CODES):
            continue
        zero = kind(*(["inp"] if kind is isa.Load else ["add"] if kind is isa.Alu else []))
        if name == "imm":
            zero = dataclasses.replace(zero, imm=0)
        if name in ("table", "by_row", "residual"):
            zero = dataclasses.replace(zero, requantize=True)
        for value in {field.low, field.high}:
            words = isa.encode([zero, dataclasses.replace(zero, **{name: value})])
            base, found = (int.from_bytes(word.tobytes(), "little") for word in words)
            assert found ^ base == (value & ((1 << field.bits) - 1)) << field.first_bit
        for value in (field.low - 1, field.high + 1):
            with pytest.raises(pyvta.InputError, match=f"instruction 1: {name} is {value}, .*{field.low} to {field.high}"):
                isa.encode([zero, dataclasses.replace(zero, **{name: value})])


def test_micro_ops_survive_words():
    rng = random.Random(3)
    ranges = [(field.low, field.high) for field in isa.fields("uop")]
    uops = [isa.Uop(*(rng.randint(*r) for r in ranges)) for _ in range(100)]
    words = isa.encode_uops(uops)
    assert words.dtype == np.uint32 and isa.decode_uops(words) == uops
    with pytest.raises(pyvta.InputError, match="wgt is 1024"):
        isa.encode_uops([isa.Uop(wgt=1024)])


def test_instructions_are_values():
    load = isa.Load("wgt", y_size=2, pop_next=True)
    assert repr(load) == "Load('wgt', y_size=2, pop_next=True)" and eval(repr(load), vars(isa)) == load
    assert copy.copy(load) == pickle.loads(pickle.dumps(load)) == load and hash(load) == hash(copy.copy(load))
    assert str(load) == "load.wgt sram_base=0 dram_base=0 y_size=2 pop_next"
    with pytest.raises(dataclasses.FrozenInstanceError):
        load.y_size = 3
    assert isa.encode([isa.Gemm(uop_end=np.int16(3), reset=np.bool_(True))]).any()


@pytest.mark.parametrize(
    "program, error, text",
    [
        ([isa.Load("out")], pyvta.InputError, "instruction 0: mem is 'out', but it must be one of uop, wgt"),
        ([isa.Load("inp", preload=True)], pyvta.InputError, "instruction 0: preload is for accumulators alone"),
        ([isa.Store(residual=3)], pyvta.InputError, "instruction 0: residual means nothing without requantize"),
        (
            [isa.Store(requantize=True, saturate=True)],
            pyvta.InputError,
            "instruction 0: saturate means nothing with requantize",
        ),
        ([isa.Finish(), isa.Alu("div")], pyvta.InputError, "instruction 1: op is 'div'"),
        ([isa.Gemm(uop_end=1.5)], TypeError, "instruction 0: uop_end is a whole number, not float"),
        ([isa.Gemm(iter_in=10**30)], pyvta.InputError, "iter_in is 10{30}, but it must be from 0 to 16383"),
        ([isa.Uop()], TypeError, "instruction 0: a Load, Store, Gemm, Depthwise, Alu or Finish, not Uop"),
        ([3], TypeError, "not int"),
        ("load.inp\nnop", pyvta.InputError, "line 2, column 1: unknown mnemonic 'nop'"),
        (b"123", pyvta.InputError, "3 bytes; an instruction has 16"),
        (np.array([[1, *[0] * 7, 1, 0, 1, *[0] * 5]], np.uint8), pyvta.InputError, "word 0 .*of a STORE is uop"),
        (np.zeros((1, 16), np.int32), pyvta.InputError, "words are uint8"),
        (7, TypeError, "instructions are a list or an array, not int"),
    ],
)
def test_what_is_no_program_is_told(program, error, text):
    for use in (isa.encode, isa.disassemble, isa.check):
        with pytest.raises(error, match=text):
            use(program)


def test_the_check_is_the_command_lines(vta, tmp_path):
    text = "load.inp sram_base=2040 y_size=1 x_size=9 pop_next\nfinish pop_next"
    file = tmp_path / "program.asm"
    file.write_text(text)
    found = isa.check(text)
    assert [f.kind for f in found] == ["fault", "fault"]
    assert "sram_base reaches 2048" in found[0].text and "deadlock" in str(found[1])
    with pytest.raises(subprocess.CalledProcessError) as error:
        vta("check", file)
    told = " ".join(error.value.stdout.split())
    assert all(f.text in told for f in found)


def test_words_are_checked_strictly_and_for_hazards_when_asked():
    assert isa.check("finish") == []
    dirty = np.zeros((1, 16), np.uint8)
    dirty[0, 0], dirty[0, 15] = 3, 1
    assert isa.check(dirty) == [] and "belong to no field" in isa.check(dirty, strict=True)[0].text
    race = "load.inp y_size=1 x_size=1\ngemm uop_end=1 iter_out=1 iter_in=1\nfinish"
    assert isa.check(race) == []
    assert {f.kind for f in isa.check(race, hazards=True)} <= {"hazard", "note"}
    assert isa.check(race, hazards=True)


def test_accumulators_alone_are_preloaded():
    for mem, code in [("acc", 6), ("acc8", 7)]:
        insn = isa.Load(mem, preload=True, push_next=True)
        word = int.from_bytes(isa.encode([insn])[0].tobytes(), "little")
        assert str(insn).startswith(f"load.{mem} preload") and word >> 7 & 7 == code


def test_a_machine_without_an_extension_refuses_it():
    assert isa.assemble("alu.mul imm=3")
    with pytest.raises(pyvta.InputError, match="instruction 0 .*needs"):
        isa.assemble("alu.mul imm=3", {"EXTENSIONS": []})
    assert isa.check("alu.mul imm=3\nfinish", {"EXTENSIONS": []})
    assert isa.check("alu.mul imm=3\nfinish", board="pynq")


def test_a_configuration_is_a_mapping_with_sizes():
    assert isa.Config(board="pynq").extensions == [] and len(isa.Config().extensions) > 2
    config = isa.Config({"LOG_BLOCK": 5})
    assert config["LOG_BLOCK"] == 5 and dict(config)["LOG_BATCH"] == 0 and len(config) == len(list(config))
    assert (config.batch, config.block) == (1, 32)
    assert config.elem_bytes == {"uop": 4, "wgt": 1024, "inp": 32, "acc": 128, "out": 32, "acc8": 32, "wgt4": 512}
    assert isa.Config(config) == config and pickle.loads(pickle.dumps(config)) == config
    session = pyvta.InferenceSession("demo", config=isa.Config({"LOG_BLOCK": 5}))
    assert session.get_inputs()
    with pytest.raises(pyvta.InputError, match="LOG_BLOCK is 99"):
        isa.Config({"LOG_BLOCK": 99})
    with pytest.raises(pyvta.InputError, match="LOG_BLOK"):
        isa.Config({"LOG_BLOK": 4})
    with pytest.raises(pyvta.UsageError, match="zcu"):
        isa.Config(board="zcu")


def test_fields_are_listed_with_units_and_meanings():
    [imm] = [field for field in isa.fields("alu") if field.name == "imm"]
    assert (imm.low, imm.high, imm.bits, imm.first_bit) == (-32768, 32767, 16, 112)
    assert all(field.unit and field.meaning for kind in KINDS for field in isa.fields(kind))
    with pytest.raises(pyvta.InputError, match="no kind of instruction 'nop'"):
        isa.fields("nop")
    with pytest.raises(pyvta.UsageError):
        isa.fields(int)
