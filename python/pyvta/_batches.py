"""Calibration batches as networks take them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

#: An input's name, how many dimensions an array of the model's has, and how many an image.
Port = tuple[str, int, int]


def batches(calibration: Any, ports: list[Port], limit: int | None) -> Iterator[dict[str, npt.NDArray[Any]]]:
    """Each batch's arrays by the inputs' names, with no more images than the limit in all.

    Raises TypeError for what has no arrays.
    """
    if isinstance(calibration, str):
        raise _no_batches()
    if hasattr(calibration, "__array__") or isinstance(calibration, Mapping):
        calibration = [calibration]
    # An iterator may write into the same array again.
    keep = isinstance(calibration, (list, tuple))
    try:
        left, given = limit, iter(calibration)
    except TypeError:
        raise _no_batches() from None
    for batch in given:
        if left == 0:
            return
        images, arrays = 0, {}
        for name, value in _by_name(batch, ports).items():
            array = array_of(value)
            array = array if keep else array.copy()
            one = [ndim for known, _, ndim in ports if known == name]
            if not one or array.ndim <= one[0]:
                images = 1
            else:
                array = array[:left]
                images = len(array)
            arrays[name] = array
        left = None if left is None else left - images
        yield arrays


def array_of(value: Any) -> npt.NDArray[Any]:
    """An array, of whatever numpy makes one of. Tensors of PyTorch's leave their graph and their device."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    return np.asarray(value)


def _no_batches() -> TypeError:
    return TypeError("calibration is arrays, or batches of them: read the images first")


def _by_name(batch: Any, ports: list[Port]) -> Mapping[str, Any]:
    """As they are in a dict, or one behind the other in a list or tuple, where what follows those of the inputs
    (labels, in data sets of PyTorch's) is nothing to a model.
    """
    if isinstance(batch, Mapping):
        return batch
    parts = list(batch) if isinstance(batch, (list, tuple)) else []
    # A list of images is an array of the only input.
    if len(parts) >= len(ports) and all(
        hasattr(part, "__array__") and np.ndim(part) == ndim for part, (_, ndim, _) in zip(parts, ports)
    ):
        return {name: part for part, (name, _, _) in zip(parts, ports)}
    if len(ports) > 1:
        raise TypeError(f"inputs are a dict: {{name: array}} of {', '.join(name for name, *_ in ports)}")
    return {name: batch for name, *_ in ports}
