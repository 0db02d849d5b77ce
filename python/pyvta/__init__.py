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
from pyvta._pyvta import (
    Buffer,
    Compiled,
    Device,
    InferenceSession,
    NodeArg,
    QuantizedModel,
    Report,
    RunReport,
    Verification,
    __version__,
    compile,
    quantize,
    verify,
)
from pyvta._layers import Layer, layers
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
)

__all__ = [
    "Buffer",
    "Compiled",
    "Device",
    "DeviceError",
    "FileError",
    "FloatModelError",
    "InferenceSession",
    "InputError",
    "Layer",
    "MemoryLimitError",
    "ModelError",
    "NodeArg",
    "QuantizedModel",
    "Report",
    "RunError",
    "RunReport",
    "UsageError",
    "Verification",
    "VtaError",
    "VtaWarning",
    "__version__",
    "cluster",
    "compile",
    "from_torch",
    "isa",
    "layers",
    "quantize",
    "sweep",
    "verify",
]
