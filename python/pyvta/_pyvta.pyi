from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, Generic, Literal, Protocol, TypeVar, final

import numpy as np
import numpy.typing as npt

from pyvta import isa
from pyvta._layers import Layer
from pyvta._report import Report
from pyvta._results import Check, Compiled, NodeArg, QuantizedModel, RunReport, Verification

__all__ = [
    "Buffer",
    "Device",
    "Explorer",
    "InferenceSession",
    "InsnTimes",
    "Measured",
    "Pending",
    "Promise",
    "Steps",
    "Sweeper",
    "Timeline",
    "Tuner",
    "Views",
    "__version__",
    "assemble",
    "check",
    "compile",
    "cut",
    "decode",
    "decode_uops",
    "disassemble",
    "encode",
    "encode_uops",
    "isa_check_program",
    "isa_config",
    "isa_fields",
    "list_boards",
    "list_devices",
    "list_models",
    "quantize",
    "read_layers",
    "verify",
    "write_file",
]

__version__: str

def read_layers(
    path: _Path,
) -> list[tuple[str, tuple[int, int], tuple[int, int], int, int, int, bool, bool]]: ...

class _HasOnnx(Protocol):
    def to_onnx(self) -> bytes: ...

class _ModelProto(Protocol):
    def SerializeToString(self) -> bytes: ...

_Path = str | PathLike[str]
_Model = _Path | bytes | _HasOnnx | _ModelProto
_Shape = Sequence[int]
_Progress = Callable[[int, int], object]
_Array = npt.NDArray[Any]
_Config = _Path | Mapping[str, Any]
_Shapes = Mapping[str, _Shape] | _Shape
_Mem = Literal["uop", "wgt", "inp", "acc", "out", "acc8"]
_Requant = Literal["precise", "fast"]
_Arrays = npt.ArrayLike | Mapping[str, npt.ArrayLike]
_Batch = _Arrays | Sequence[npt.ArrayLike]

def compile(
    model: _Model,
    *,
    config: _Config | None = None,
    board: _Path | None = None,
    allow_host: bool | None = False,
    input_shapes: _Shapes | None = None,
    requant: _Requant | None = None,
    tiles: _Path | None = None,
    preprocess: Literal["imagenet", "cifar10", "raw"] | None = None,
) -> Compiled: ...
def check(
    model: _Model,
    *,
    hazards: bool = False,
    config: _Config | None = None,
    board: _Path | None = None,
    input_shapes: _Shapes | None = None,
) -> Check: ...
def cut(
    model: _Model,
    inputs: str | Iterable[str] | None = None,
    outputs: str | Iterable[str] | None = None,
    *,
    input_shapes: _Shapes | None = None,
) -> bytes: ...
def quantize(
    model: _Model,
    calibration: Iterable[_Batch] | _Arrays,
    *,
    method: str | None = None,
    mode: Literal["multiply", "shift"] = "multiply",
    activations: Literal["int8", "int16"] = "int8",
    weights: Literal["per-channel", "per-tensor"] = "per-channel",
    zero_points: Literal["auto", "symmetric", "asymmetric"] = "auto",
    bias_correction: bool = True,
    adaptive_rounding: bool = True,
    equalize: bool | None = None,
    held_out: int | Iterable[_Batch] | _Arrays | None = None,
    keep_float: str | Iterable[str] | None = None,
    int4: str | Iterable[str] | None = None,
    target: float = 0.99,
    input_shapes: _Shapes | None = None,
    limit: int | None = None,
    progress: _Progress | None = None,
) -> QuantizedModel: ...
def verify(
    model: _Model,
    inputs: _Arrays,
    device: str = "sim",
    *,
    progress: _Progress | None = None,
    config: _Config | None = None,
    board: _Path | None = None,
    timing: _Path | None = None,
    threads: int | None = None,
    batch: int | None = None,
    allow_host: bool | None = False,
    input_shapes: _Shapes | None = None,
    requant: _Requant | None = None,
    placement: _Path | None = None,
    tiles: _Path | None = None,
    scope: str | None = None,
    bitstream: _Path | None = None,
) -> Verification: ...

@final
class Measured:
    def report(self) -> dict[str, Any]: ...

def write_file(path: _Path, data: bytes) -> None: ...
def list_boards() -> list[dict[str, Any]]: ...
def list_devices() -> list[dict[str, Any]]: ...
def list_models() -> list[tuple[str, tuple[int, int, int], int, int, int, str]]: ...

@final
class Views:
    def make(self) -> tuple[str, dict[str, npt.NDArray[np.float64]]]: ...

@final
class InferenceSession:
    def __new__(
        cls,
        model: _Model,
        device: str = "sim",
        *,
        config: _Config | None = None,
        board: _Path | None = None,
        timing: _Path | None = None,
        threads: int | None = None,
        batch: int | None = None,
        allow_host: bool | None = False,
        input_shapes: _Shapes | None = None,
        requant: _Requant | None = None,
        timing_only: bool | None = False,
        placement: _Path | None = None,
        tiles: _Path | None = None,
        costs: _Path | None = None,
        host_speed: _Path | None = None,
        scope: str | None = None,
        bitstream: _Path | None = None,
    ) -> InferenceSession: ...
    @property
    def model(self) -> _Model: ...
    @property
    def report(self) -> Report | None: ...
    def __getnewargs_ex__(self) -> tuple[tuple[Any, ...], dict[str, Any]]: ...
    def get_inputs(self) -> list[NodeArg]: ...
    def get_outputs(self) -> list[NodeArg]: ...
    def preprocess(
        self, images: npt.ArrayLike, preset: Literal["imagenet", "cifar10", "raw"] | None = None
    ) -> npt.NDArray[np.float32]: ...
    def run(
        self,
        output_names: Sequence[str] | str | None,
        input_feed: Mapping[str, npt.ArrayLike],
        *,
        progress: _Progress | None = None,
    ) -> list[_Array]: ...
    def run_quantized(
        self,
        output_names: Sequence[str] | str | None,
        input_feed: Mapping[str, npt.ArrayLike],
        *,
        progress: _Progress | None = None,
    ) -> list[_Array]: ...

@final
class Tuner:
    def __new__(
        cls,
        model: str,
        *,
        config: _Path | Mapping[str, Any] | None = None,
        board: str | None = None,
        timing: str | None = None,
        candidates: int = 8,
    ) -> Tuner: ...
    def __len__(self) -> int: ...
    def measure(self, piece: int) -> str: ...
    def end(self, caches: Sequence[str]) -> tuple[str, int, int]: ...

@final
class Steps:
    def __new__(
        cls,
        text: str,
        *,
        config: _Config | None = None,
        board: _Path | None = None,
        timing: _Path | None = None,
    ) -> Steps: ...
    def overview(self) -> dict[str, Any]: ...
    def state(self, cycle: int | None) -> dict[str, Any]: ...

@final
class Sweeper:
    def __new__(
        cls,
        work: str | Sequence[Layer],
        vary: Sequence[str],
        *,
        config: _Path | Mapping[str, Any] | None = None,
        board: str | None = None,
        timing: str | None = None,
        costs: _Path | None = None,
        threads: int = 1,
    ) -> Sweeper: ...
    @staticmethod
    def figures() -> dict[str, int | float]: ...
    def __len__(self) -> int: ...
    def point(self, index: int) -> dict[str, str]: ...
    def measure(self, index: int) -> dict[str, Any]: ...

@final
class Explorer:
    def __new__(
        cls,
        models: Sequence[str],
        vary: Sequence[str],
        *,
        area: float | None = None,
        objective: Sequence[str],
        points: int,
        searches: int,
        seed: int,
        config: _Path | Mapping[str, Any] | None = None,
        board: str | None = None,
        timing: str | None = None,
        costs: _Path | None = None,
        threads: int = 1,
    ) -> Explorer: ...
    def keys(self) -> list[str]: ...
    def next_points(self) -> list[int]: ...
    def progress(self) -> tuple[int, int]: ...
    def point(self, index: int) -> dict[str, str]: ...
    def measure(self, index: int) -> dict[str, Any]: ...
    def tell(self, index: int, result: str) -> None: ...
    def best(self) -> list[dict[str, Any]]: ...

@final
class Buffer:
    @property
    def address(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def element(self, mem: _Mem, offset: int = 0) -> int: ...

@final
class Device:
    def __new__(
        cls,
        device: str = "sim",
        *,
        config: _Config | None = None,
        board: _Path | None = None,
        timing: _Path | None = None,
        threads: int | None = None,
        scope: str | None = None,
        bitstream: _Path | None = None,
    ) -> Device: ...
    @property
    def config(self) -> isa.Config: ...
    @property
    def name(self) -> str: ...
    def __enter__(self) -> Device: ...
    def __exit__(self, _kind: object, _value: object, _trace: object) -> None: ...
    def alloc(self, size_bytes: int) -> Buffer: ...
    def close(self) -> None: ...
    def free(self, buffer: Buffer) -> None: ...
    def read(
        self, buffer: Buffer, shape: _Size, dtype: npt.DTypeLike, offset: int = 0
    ) -> _Array: ...
    def read_async(
        self,
        buffer: Buffer,
        shape: _Size,
        dtype: npt.DTypeLike,
        offset: int = 0,
        *,
        waits: Iterable[_Point] = (),
        signals: Iterable[_Point] = (),
    ) -> Pending[_Array]: ...
    def run(self, insns: isa.Program, uops: isa.Uops | None = None) -> RunReport: ...
    def run_async(
        self,
        insns: isa.Program,
        uops: isa.Uops | None = None,
        *,
        waits: Iterable[_Point] = (),
        signals: Iterable[_Point] = (),
    ) -> Pending[RunReport]: ...
    def write(self, buffer: Buffer, array: _Bytes, offset: int = 0) -> None: ...
    def write_async(
        self,
        buffer: Buffer,
        array: _Bytes | Pending[_Array],
        offset: int = 0,
        *,
        waits: Iterable[_Point] = (),
        signals: Iterable[_Point] = (),
    ) -> Pending[None]: ...

_Point = Promise | tuple[Timeline, int]
_Size = int | Sequence[int] | npt.NDArray[np.integer[Any]]
_Bytes = npt.NDArray[np.integer[Any]] | np.integer[Any] | bytes | bytearray | memoryview
_Given = TypeVar("_Given", covariant=True)

@final
class Timeline:
    def __new__(cls, name: str = "timeline") -> Timeline: ...
    @property
    def name(self) -> str: ...
    @property
    def promised(self) -> int: ...
    @property
    def value(self) -> int: ...
    def promise(self, value: int | None = None) -> Promise: ...
    def signal(self, value: int | None = None) -> None: ...
    def wait(self, value: int, timeout: float | None = None) -> None: ...

@final
class Promise:
    @property
    def timeline(self) -> Timeline: ...
    @property
    def value(self) -> int: ...
    def fail(self, reason: str = "the host gave it up") -> None: ...
    def keep(self) -> None: ...

@final
class Pending(Generic[_Given]):
    @property
    def done(self) -> bool: ...
    def result(self, timeout: float | None = None) -> _Given: ...

@final
class InsnTimes:
    def count(self) -> list[tuple[int, int | None]]: ...
    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]: ...

# What `pyvta.isa` is made of.
def assemble(
    text: str, config: _Config | None = None, *, board: _Path | None = None
) -> list[isa.Insn]: ...
def decode(words: npt.NDArray[np.uint8] | bytes) -> list[isa.Insn]: ...
def decode_uops(words: npt.NDArray[np.uint32]) -> list[isa.Uop]: ...
def disassemble(program: isa.Program) -> str: ...
def encode(program: isa.Program) -> npt.NDArray[np.uint8]: ...
def encode_uops(uops: isa.Uops) -> npt.NDArray[np.uint32]: ...
def isa_check_program(
    insns: isa.Program, config: _Config | None, board: _Path | None, strict: bool, hazards: bool
) -> list[tuple[Literal["fault", "hazard", "note"], str]]: ...
def isa_config(config: _Config | None, board: _Path | None) -> tuple[str, dict[str, Any]]: ...
def isa_fields(kind: str) -> list[tuple[str, int, int, int, int, str, str]]: ...
