"""What pyvta's functions give: values, which can be compared, pickled and sent to other processes."""

from __future__ import annotations

import functools
import os
from dataclasses import asdict, dataclass, field
from typing import Any

from pyvta import _pyvta
from pyvta.errors import UsageError

__all__ = [
    "BoardInfo",
    "Check",
    "CheckedNode",
    "Compiled",
    "DeviceInfo",
    "ModelInfo",
    "NodeArg",
    "QuantizedModel",
    "RunReport",
    "Verification",
    "boards",
    "devices",
    "models",
]


@dataclass(frozen=True)
class NodeArg:
    """An input or output of a network, as `onnxruntime` describes it."""

    name: str
    #: Its dimensions: "batch", which may be any number, first, where the model has a batch.
    shape: list[int | str]
    #: The type of its elements, "tensor(float)".
    type: str
    #: The real value of one int8 step of the device's tensor; None for what no device holds.
    scale: float | None
    #: The int8 step that stands for 0; None for what no device holds.
    zero: int | None


@dataclass(frozen=True)
class Verification:
    """What `pyvta.verify` found. It is true when nothing differs."""

    #: How many images were run.
    images: int
    #: How many layers of each were compared.
    layers: int
    #: A line for each layer of an image whose output isn't the reference interpreter's.
    mismatches: list[str]

    def __bool__(self) -> bool:
        return not self.mismatches


@dataclass(frozen=True)
class Compiled:
    """A network compiled for a machine: what `pyvta.compile` gives."""

    #: The bundle, as `save` writes it.
    bundle: bytes = field(repr=False)
    #: Operators that the host computes.
    host_ops: int
    #: The names of the device's layers, in the order in which they run.
    layers: list[str]
    #: The nodes of the network that each layer computes: dicts of `layer`, `name`, `kind`, `attributes` by name,
    #: and `inputs` and `output`, each with `name` and `shape`.
    nodes: list[dict[str, Any]] = field(repr=False)
    #: The machine's configuration, with the keys of a `vta_config.json`.
    config: dict[str, Any] = field(repr=False)

    def save(self, path: str | os.PathLike[str]) -> int:
        """Writes the bundle, whole or not at all; its bytes. `InferenceSession` and `vta run` open it.

        Raises `FileError` for what can't be written.
        """
        _pyvta.write_file(path, self.bundle)
        return len(self.bundle)


@dataclass(frozen=True, eq=False)
class QuantizedModel:
    """An int8 model: what `pyvta.quantize` gives. `InferenceSession`, `compile` and `verify` take it."""

    #: How many nodes the model has.
    nodes: int
    #: How many images it was calibrated with.
    images: int
    #: How many pairs of layers were equalised.
    equalized: int
    #: How near it is to the float model, as devices compute it: `images` that were compared, whether they were
    #: `held_out` of the calibration, `chosen_too`, whether it was chosen on them, `method`, `equalize`, `simulated`, false
    #: where the host computed in floats what can't be lowered, `keep_float`, the nodes that stayed in float with
    #: their `macs` and `us` of the host, and `outputs`, each with its `name`, `db`, `cosine`, `agreement` of classes
    #: and whether it `lost` its meaning. What a last `concat` puts into an output has an entry of its own, by its
    #: `part`.
    fidelity: dict[str, Any] = field(repr=False)
    _onnx: bytes = field(repr=False)
    # None of a model that came from another process.
    _measured: _pyvta.Measured | None = field(repr=False)

    def to_onnx(self) -> bytes:
        """The model as ONNX with QuantizeLinear and DequantizeLinear, which other runtimes load, too."""
        return self._onnx

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the ONNX file, whole or not at all.

        Raises `FileError` for what can't be written.
        """
        _pyvta.write_file(path, self._onnx)

    @functools.cached_property
    def report(self) -> dict[str, Any]:
        """What quantising costs, as a dict: `output_db`, signal to noise of the outputs in dB, `images`, `remarks`,
        and `layers`, those that cost most first, with `name`, `kind`, `int4`, whether its weights have 4
        bits, `own_db`, `so_far_db`, `output_db` and `advice`. It is measured when it is first asked for, on some of the images kept out of the calibration.

        A model that was pickled has the report only if it was asked for before: else `UsageError` is raised.
        """
        if self._measured is None:
            raise UsageError("`report` is measured where the model was quantised: ask for it before pickling")
        return self._measured.report()

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_measured": None}

    def __repr__(self) -> str:
        return f"<QuantizedModel: {self.nodes} nodes, calibrated with {self.images} images>"


@dataclass(frozen=True)
class _Counted:
    """Cycles of instructions, counted before."""

    device: str
    times: list[tuple[int, int | None]] | None

    def count(self) -> list[tuple[int, int | None]]:
        if self.times is None:
            raise UsageError(f'device {self.device} counts no cycles: "cycle" does')
        return self.times


@dataclass(frozen=True)
class RunReport:
    """What a device says of a run."""

    #: From the first instruction's fetch to FINISH; None on devices that don't count cycles.
    cycles: int | None
    #: What the device took, in milliseconds of this machine's time.
    wall_ms: float
    #: Instructions.
    insns: int
    #: Products of an input tile with a weight tile.
    gemm_steps: int
    #: Accumulator tiles that GEMMs cleared.
    reset_steps: int
    #: Vector operations on an accumulator tile.
    alu_steps: int
    #: DRAM bytes loaded and stored, by memory type.
    bytes: dict[str, int]
    #: Tokens that nobody took, by queue, `"load->compute"` and so on.
    leftover_tokens: dict[str, int]
    _times: _pyvta.InsnTimes | _Counted = field(repr=False, compare=False)

    def insn_cycles(self) -> list[tuple[int, int | None]]:
        """The cycles of each instruction: pairs of the first and the one behind the last, which FINISH, the
        end of the run, doesn't have. Counted anew at each call.

        Raises `UsageError` on devices that don't count cycles.
        """
        return self._times.count()

    def to_dict(self) -> dict[str, Any]:
        """All of it but the cycles of instructions."""
        return {name: value for name, value in vars(self).items() if name != "_times"}


@dataclass(frozen=True)
class ModelInfo:
    """A built-in network: what `pyvta.models` lists."""

    name: str
    #: Channels, rows and columns.
    input: tuple[int, int, int]
    layers: int
    #: Multiply-adds of an image.
    macs: int
    weights: int
    about: str


@dataclass(frozen=True)
class BoardInfo:
    """A board that `board=` knows by name: what `pyvta.boards` lists."""

    name: str
    #: Rows and columns of the matrix unit, "1x16x16".
    unit: str
    #: Whose core it is: "rtl" is the original's.
    core: str
    #: Elements of each scratchpad.
    uops: int
    inp_tiles: int
    wgt_tiles: int
    acc_tiles: int
    #: What it has beyond the original RTL.
    extensions: list[str]
    clock_mhz: float


@dataclass(frozen=True)
class DeviceInfo:
    """A device that `device=` finds on this machine: what `pyvta.devices` lists."""

    device: str
    name: str
    #: Of a device of OpenCL: `platform`, `type`, `version`, `memory_bytes` and more.
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CheckedNode:
    """A node of a network and what becomes of it."""

    name: str
    #: ONNX's operator.
    operator: str
    #: Of its output; empty where it isn't known.
    shape: list[int]
    #: Multiply-adds of an image.
    macs: int
    #: What the node is told beside its tensors, by name.
    attributes: dict[str, Any]
    #: "device", "host", "refused", or "unknown" for what depends on refused nodes.
    runs_on: str
    #: Why it doesn't run on the device; empty where it does.
    why: str


@dataclass(frozen=True)
class Check:
    """What `pyvta.check` found. It is true when there is no fault and no node is refused."""

    #: A line for each fault of the network as a whole, or of its instructions.
    faults: list[str]
    #: A line for each hazard between the modules of a device, where these were looked for.
    hazards: list[str]
    #: What is no fault.
    notes: list[str]
    #: In the order in which they run, without QuantizeLinear and DequantizeLinear that are sound. Of a model
    #: that can't be read, those that are refused; none of a bundle.
    nodes: list[CheckedNode]
    #: Nodes that weren't read, since they depend on refused ones.
    unread: int
    #: Whether it is a float model: scales stand in for those of a calibration.
    is_float: bool
    #: Where something is refused: the inputs and outputs, for `pyvta.cut`, of the part that leaves most to the device.
    cut: tuple[list[str], list[str]] | None

    def __bool__(self) -> bool:
        return not (self.faults or self.hazards or self.refused)

    @property
    def refused(self) -> list[CheckedNode]:
        """The nodes that nothing can compute."""
        return [node for node in self.nodes if node.runs_on == "refused"]

    def to_dict(self) -> dict[str, Any]:
        """All of it."""
        return asdict(self)


def models() -> list[ModelInfo]:
    """The built-in networks, as `vta models` lists them.

    >>> [model.name for model in pyvta.models()][:2]
    ['demo', 'zoo:resnet18']
    """
    return [ModelInfo(*row) for row in _pyvta.list_models()]


def boards() -> list[BoardInfo]:
    """The boards that `board=` knows by name, as `vta boards` lists them."""
    return [BoardInfo(**row) for row in _pyvta.list_boards()]


def devices() -> list[DeviceInfo]:
    """The devices of this machine, as `vta devices` lists them.

    >>> [device.device for device in pyvta.devices()][:3]
    ['sim', 'cycle', 'oracle']

    Raises `DeviceError` for drivers of OpenCL that fail; where there are none, there are no devices of theirs.
    """
    return [DeviceInfo(row.pop("device"), row.pop("name"), row) for row in _pyvta.list_devices()]
