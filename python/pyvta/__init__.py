"""Networks on the Versatile Tensor Accelerator (VTA), from Python.

>>> import numpy as np, pyvta
>>> session = pyvta.InferenceSession("demo")
>>> [(x.name, x.shape, x.type) for x in session.get_inputs()]
[('input', ['batch', 3, 32, 32], 'tensor(float)')]
>>> [logits] = session.run(None, {"input": np.zeros((4, 3, 32, 32), np.float32)})
>>> logits.shape
(4, 10)
"""

from pyvta import cluster, isa
from pyvta._layers import Layer, layers
from pyvta._pyvta import (
    Buffer,
    Device,
    InferenceSession,
    Pending,
    Promise,
    Timeline,
    __version__,
    check,
    compile,
    quantize,
    verify,
)
from pyvta._report import Report
from pyvta._results import (
    BoardInfo,
    Check,
    CheckedNode,
    Compiled,
    DeviceInfo,
    ModelInfo,
    NodeArg,
    QuantizedModel,
    RunReport,
    Verification,
    boards,
    devices,
    models,
)
from pyvta._sweep import sweep
from pyvta._torch import from_torch
from pyvta.errors import (
    DeviceError,
    FileError,
    FloatModelError,
    InputError,
    MemoryLimitError,
    ModelError,
    RunError,
    UsageError,
    VtaError,
    VtaWarning,
    WaitError,
    WaitTimeoutError,
)

__all__ = [
    "BoardInfo",
    "Buffer",
    "Check",
    "CheckedNode",
    "Compiled",
    "Device",
    "DeviceError",
    "DeviceInfo",
    "FileError",
    "FloatModelError",
    "InferenceSession",
    "InputError",
    "Layer",
    "MemoryLimitError",
    "ModelError",
    "ModelInfo",
    "NodeArg",
    "Pending",
    "Promise",
    "QuantizedModel",
    "Report",
    "RunError",
    "RunReport",
    "Timeline",
    "UsageError",
    "Verification",
    "VtaError",
    "VtaWarning",
    "WaitError",
    "WaitTimeoutError",
    "__version__",
    "boards",
    "check",
    "cluster",
    "compile",
    "devices",
    "from_torch",
    "isa",
    "layers",
    "models",
    "quantize",
    "sweep",
    "verify",
]
