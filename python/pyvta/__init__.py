"""Networks on the Versatile Tensor Accelerator (VTA), from Python.

>>> import numpy as np, pyvta
>>> session = pyvta.InferenceSession("demo")
>>> [(x.name, x.shape, x.type) for x in session.get_inputs()]
[('input', ['batch', 3, 32, 32], 'tensor(float)')]
>>> [logits] = session.run(None, {"input": np.zeros((4, 3, 32, 32), np.float32)})
>>> logits.shape
(4, 10)
"""

from pyvta import _results, cluster, errors, isa
from pyvta._explore import explore
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
    cut,
    quantize,
    verify,
)
from pyvta._report import Report
from pyvta._results import *
from pyvta._stepper import Stepper
from pyvta._sweep import sweep
from pyvta._torch import from_torch
from pyvta.errors import *

__all__ = [
    "Buffer",
    "Device",
    "InferenceSession",
    "Layer",
    "Pending",
    "Promise",
    "Report",
    "Stepper",
    "Timeline",
    "__version__",
    "check",
    "cluster",
    "compile",
    "cut",
    "explore",
    "from_torch",
    "isa",
    "layers",
    "quantize",
    "sweep",
    "verify",
]
__all__ += _results.__all__
__all__ += errors.__all__
