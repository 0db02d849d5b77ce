"""PyTorch's modules as sessions."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

from pyvta._extras import need
from pyvta._pyvta import InferenceSession, quantize

_QUANTIZE = (
    "activations",
    "method",
    "mode",
    "weights",
    "zero_points",
    "bias_correction",
    "adaptive_rounding",
    "equalize",
    "held_out",
    "keep_float",
    "int4",
    "target",
    "limit",
    "progress",
)


def from_torch(module: Any, example: Any, calibration: Iterable[Any] | None = None, **options: Any) -> InferenceSession:
    """Quantises a float ``torch.nn.Module`` and loads it on a device.

    ``example`` is a tensor of images, the first dimension their number, or a tuple of tensors for several
    inputs; the module is exported in ``eval`` mode for one image of it, and its inputs are called ``input``, or
    ``input_0`` and on. ``calibration`` is what :func:`pyvta.quantize` takes: a tensor, or an iterable of batches like
    ``example``, such as a ``DataLoader``, whose labels are left out. Without it the example itself calibrates, which
    is enough to look at cycles, and too little for accuracy.

    Options are those of :func:`pyvta.quantize` and of :class:`pyvta.InferenceSession`, to which ``device``
    belongs. ``session.model`` is the :class:`pyvta.QuantizedModel`. The session has arrays, not tensors: ``session.run(None, {"input": x.numpy()})``.

    Needs ``pip install pyvta[torch]``. Raises what those two do, and PyTorch's own errors for a module that
    can't be exported.

    >>> session = pyvta.from_torch(torchvision.models.resnet18(), images, device="cycle")  # doctest: +SKIP
    """
    examples = example if isinstance(example, tuple) else (example,)
    names = ["input"] if len(examples) == 1 else [f"input_{i}" for i in range(len(examples))]
    onnx = _export(module, examples, names)
    batches = [dict(zip(names, examples, strict=True))] if calibration is None else calibration
    known = {name: options.pop(name) for name in _QUANTIZE if name in options}
    return InferenceSession(quantize(onnx, batches, **known), **options)


def _export(module: Any, examples: tuple[Any, ...], names: list[str]) -> bytes:
    """The module as ONNX, for one image of the examples."""
    torch = need("torch", "torch")
    need("onnx", "torch")
    need("onnxscript", "torch")
    was_training, buffer = module.training, io.BytesIO()
    module.eval()
    try:
        with torch.no_grad():
            one = tuple(x[:1] for x in examples)
            program = torch.onnx.export(module, one, input_names=names, dynamo=True, verbose=False)
            program.save(buffer)
    finally:
        module.train(was_training)
    return buffer.getvalue()
