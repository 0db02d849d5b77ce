"""VTA's instructions: dataclasses, assembly text, encoded words, the static check.

Fields have the names and units of the hardware headers (:func:`fields` lists them with their bits and
meanings); what is left out is 0. ``sram_base`` counts tiles of a scratchpad, ``dram_base`` elements of the
memory type in DRAM. An instruction waits for tokens (``pop_prev``, ``pop_next``) before it starts and gives
them (``push_prev``, ``push_next``) when it is done: *prev* is the module to the left of load, compute and
store, *next* the one to the right.

>>> from pyvta import isa
>>> program = isa.assemble("load.inp y_size=1 x_size=16 push_next\\nfinish pop_prev")
>>> program[0]
Load('inp', y_size=1, x_size=16, push_next=True)
>>> isa.check(program)
[]
>>> isa.encode(program).shape
(2, 16)

:class:`pyvta.Device` runs them.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from os import PathLike
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from pyvta import _pyvta
from pyvta._pyvta import assemble, decode, decode_uops, disassemble, encode, encode_uops
from pyvta.errors import UsageError

__all__ = [
    "Alu",
    "Config",
    "Field",
    "Finding",
    "Finish",
    "Gemm",
    "Insn",
    "Load",
    "Program",
    "Store",
    "Uop",
    "Uops",
    "assemble",
    "check",
    "decode",
    "decode_uops",
    "disassemble",
    "encode",
    "encode_uops",
    "fields",
]


class _Shown:
    """Shows fields that aren't what they are by default."""

    __slots__ = ()

    def __repr__(self) -> str:
        parts = []
        # What has no name comes first, tokens come last, as in assembly text.
        tokens = _Insn.__slots__
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        for field in sorted(fields, key=lambda field: (bool(field.kw_only), field.name in tokens)):
            value = getattr(self, field.name)
            if field.default is dataclasses.MISSING:
                parts.append(repr(value))
            elif value != field.default:
                parts.append(f"{field.name}={value!r}")
        return f"{type(self).__name__}({', '.join(parts)})"


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class _Insn(_Shown):
    """An instruction, which is its line of assembly text."""

    pop_prev: bool = False
    pop_next: bool = False
    push_prev: bool = False
    push_next: bool = False

    def __str__(self) -> str:
        return disassemble([self])  # type: ignore[list-item]


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class _Transfer(_Insn):
    sram_base: int = 0
    dram_base: int = 0
    y_size: int = 0
    x_size: int = 0
    x_stride: int = 0


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class _Looped(_Insn):
    uop_bgn: int = 0
    uop_end: int = 0
    iter_out: int = 0
    iter_in: int = 0
    dst_factor_out: int = 0
    dst_factor_in: int = 0
    src_factor_out: int = 0
    src_factor_in: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class Load(_Transfer):
    """LOAD: rows of elements from DRAM into a scratchpad.

    ``mem`` is ``"uop"``, ``"wgt"``, ``"wgt4"``, ``"inp"``, ``"acc"`` or ``"acc8"``. ``y_size`` rows of ``x_size`` elements,
    ``x_stride`` elements apart, from ``dram_base`` on; around them zeros, or of inputs ``pad_value``, -128 to 127, ``y_pad_0`` rows above, ``x_pad_0``
    tiles left of each row, and so on, at most 15. ``x_size`` or ``y_size`` 0 moves nothing: only tokens act.
    With ``preload``, of ``"acc"`` and ``"acc8"`` alone, the load module fills accumulators, else the compute module.
    """

    opcode: ClassVar[Literal["load"]] = "load"
    mem: Literal["uop", "wgt", "inp", "acc", "acc8", "wgt4"]
    _: KW_ONLY
    preload: bool = False
    pad_value: int = 0
    y_pad_0: int = 0
    y_pad_1: int = 0
    x_pad_0: int = 0
    x_pad_1: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class Store(_Transfer):
    """STORE: the low 8 bits of accumulator tiles from ``sram_base`` on to ``y_size`` rows of ``x_size`` output
    tiles in DRAM, ``x_stride`` apart. It wraps, or clamps each element to int8 with ``saturate``.

    With ``requantize`` each element is rounded and clamped instead, by the constants of the table that begins at
    accumulator tile ``table`` (``by_row`` has an entry for each row), together with the tile ``residual`` times 32
    behind it unless that is 0.
    """

    opcode: ClassVar[Literal["store"]] = "store"
    _: KW_ONLY
    saturate: bool = False
    requantize: bool = False
    table: int = 0
    by_row: bool = False
    residual: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class Gemm(_Looped):
    """GEMM: for ``i < iter_out``, ``j < iter_in`` and each micro-op of ``uop_bgn..uop_end``,
    ``dst = uop.dst + i * dst_factor_out + j * dst_factor_in``, likewise ``src`` and ``wgt``:
    ``acc[dst] += inp[src] @ wgt[wgt].T`` in wrapping int32, with ``overwrite`` ``=`` instead of ``+=``, or with
    ``reset`` ``acc[dst] = 0``.
    """

    opcode: ClassVar[Literal["gemm"]] = "gemm"
    _: KW_ONLY
    overwrite: bool = False
    reset: bool = False
    wgt_factor_out: int = 0
    wgt_factor_in: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class Depthwise(_Looped):
    """DEPTHWISE: over the same loops as GEMM, with ``wgt = uop.wgt``, each channel of ``acc[dst]`` takes in the sum over
    a window of ``rows`` times ``columns`` input tiles, whose rows begin at ``src``, ``src + pitch`` and so on, of the
    channel's input times its weight of the tap. Row ``c`` of a weight tile has the taps of channel ``c``, window row
    after window row. With ``overwrite`` sums are replaced.
    """

    opcode: ClassVar[Literal["depthwise"]] = "depthwise"
    _: KW_ONLY
    overwrite: bool = False
    rows: int = 0
    columns: int = 0
    pitch: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class Alu(_Looped):
    """ALU: over the same loops as GEMM, ``acc[dst] = op(acc[dst], y)`` in each lane, with ``y`` the immediate
    ``imm``, -32768 to 32767, or ``acc[src]`` where ``imm`` is None.

    ``op`` is ``"min"``, ``"max"``, ``"add"``, ``"shr"``, ``"mul"``, ``"shl"``, ``"clip"`` or ``"mov"``.
    """

    opcode: ClassVar[Literal["alu"]] = "alu"
    op: Literal["min", "max", "add", "shr", "mul", "shl", "clip", "mov"]
    _: KW_ONLY
    imm: int | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Finish(_Insn):
    """FINISH: the end of a run, its last instruction."""

    opcode: ClassVar[Literal["finish"]] = "finish"


@dataclass(frozen=True, slots=True, repr=False)
class Uop(_Shown):
    """A micro-op: the tiles of one step of GEMM or ALU. ``src`` is an input tile of GEMM, an accumulator tile
    of ALU; ``wgt`` is for GEMM.
    """

    dst: int = 0
    src: int = 0
    wgt: int = 0


#: An instruction.
Insn: TypeAlias = Load | Store | Gemm | Depthwise | Alu | Finish
_CLASSES: dict[str, type[Insn]] = {kind.opcode: kind for kind in (Load, Store, Gemm, Depthwise, Alu, Finish)}
#: A program: instructions, their assembly text, or their words, uint8 of shape (n, 16) or bytes.
Program: TypeAlias = Iterable[Insn] | str | bytes | npt.NDArray[np.uint8]

_Path: TypeAlias = str | PathLike[str]
_Config: TypeAlias = _Path | Mapping[str, Any]


class Config(Mapping[str, Any]):
    """A configuration: a mapping of the keys of its ``vta_config.json``, and what follows from them.

    ``config`` is such a file or a mapping of some of its keys; the others are the board's, or those of the
    default instance, 1x16x16.

    >>> config = Config({"LOG_BLOCK": 5})
    >>> config.batch, config.block, config.depth["wgt"], config["LOG_BLOCK"]
    (1, 32, 256, 5)

    Raises ``InputError`` for keys and values that make no machine.
    """

    def __init__(self, config: _Config | None = None, *, board: _Path | None = None) -> None:
        text, facts = _pyvta.isa_config(config, board)
        self._keys: dict[str, Any] = json.loads(text)
        #: Rows of an input and of an accumulator tile.
        self.batch: int = facts["batch"]
        #: Columns of an input tile, rows and columns of a weight tile.
        self.block: int = facts["block"]
        #: Elements in the scratchpad of each memory type.
        self.depth: dict[str, int] = facts["depth"]
        #: Bytes of an element of each memory type in DRAM.
        self.elem_bytes: dict[str, int] = facts["elem_bytes"]
        #: What it has beyond the original RTL.
        self.extensions: list[str] = facts["extensions"]

    def __getitem__(self, key: str) -> Any:
        return self._keys[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def __repr__(self) -> str:
        return f"Config({self._keys})"


class Field(NamedTuple):
    """A field of an instruction or micro-op, as the hardware has it."""

    name: str
    #: Its lowest bit in the word.
    first_bit: int
    bits: int
    #: Smallest and largest value.
    low: int
    high: int
    unit: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Finding:
    """What :func:`check` found: a ``"fault"``, a ``"hazard"``, or a ``"note"`` on what it couldn't look at."""

    kind: Literal["fault", "hazard", "note"]
    text: str

    def __str__(self) -> str:
        return self.text


#: Micro-ops: one by one, also as tuples of dst, src and wgt, or their words, uint32.
Uops: TypeAlias = Iterable[Uop | tuple[int, ...]] | npt.NDArray[np.uint32]


def check(
    program: Program,
    config: _Config | None = None,
    *,
    board: _Path | None = None,
    strict: bool = False,
    hazards: bool = False,
) -> list[Finding]:
    """What a device would refuse, found without running: scratchpads and DRAM that are left, extensions that
    the machine lacks, tokens that never come or are left over, FINISH that isn't the last. An empty list is
    a program without a fault. On a board with the original RTL, what that does otherwise, too.

    Micro-ops are unknown: loops are checked with tiles from 0 on. ``hazards`` looks for races between the
    modules, too; ``strict`` for bits in words that no field covers.

    Raises ``InputError`` for what is no program.
    """
    found = _pyvta.isa_check_program(program, config, board, strict, hazards)
    return [Finding(kind, text) for kind, text in found]


def fields(kind: type[Insn] | type[Uop] | str) -> list[Field]:
    """The fields of an instruction or micro-op, by first bit: ``fields(Gemm)``, ``fields("gemm")``.

    ``mem`` is ``memory_type`` there, ``op`` is ``alu_opcode``, and ``use_imm`` says whether ``imm`` is None.
    """
    if not isinstance(kind, str):
        kind = "uop" if kind is Uop else getattr(kind, "opcode", "")
        if not kind:
            raise UsageError("fields of Load, Store, Gemm, Depthwise, Alu, Finish or Uop")
    return [Field(*row) for row in _pyvta.isa_fields(kind)]
