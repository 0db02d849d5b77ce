from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any, Literal, Protocol, final

import numpy.typing as npt

__version__: str

class _HasOnnx(Protocol):
    def to_onnx(self) -> bytes: ...

class _ModelProto(Protocol):
    def SerializeToString(self) -> bytes: ...

_Path = str | PathLike[str]
_Model = _Path | bytes | _HasOnnx | _ModelProto
_Shape = Sequence[int]
_Progress = Callable[[int, int], object]
_Array = npt.NDArray[Any]

@final
class NodeArg:
    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> list[int | str]: ...
    @property
    def type(self) -> str: ...
    @property
    def scale(self) -> float | None: ...
    @property
    def zero(self) -> int | None: ...

@final
class InferenceSession:
    def __new__(
        cls,
        model: _Model,
        device: str = "sim",
        *,
        config: _Path | Mapping[str, Any] | None = None,
        board: _Path | None = None,
        timing: _Path | None = None,
        threads: int | None = None,
        batch: int | None = None,
        allow_host: bool | None = False,
        input_shapes: Mapping[str, _Shape] | _Shape | None = None,
        requant: Literal["precise", "fast"] | None = None,
        timing_only: bool | None = False,
        placement: _Path | None = None,
        tiles: _Path | None = None,
        energy: _Path | None = None,
        host_speed: _Path | None = None,
        scope: str | None = None,
        bitstream: _Path | None = None,
    ) -> InferenceSession: ...
    def get_inputs(self) -> list[NodeArg]: ...
    def get_outputs(self) -> list[NodeArg]: ...
    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, npt.ArrayLike],
        *,
        progress: _Progress | None = None,
    ) -> list[_Array]: ...
    def run_quantized(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, npt.ArrayLike],
        *,
        progress: _Progress | None = None,
    ) -> list[_Array]: ...
