"""Layers by their shapes, as SCALE-Sim's tables have them."""

from __future__ import annotations

import os
from dataclasses import dataclass

from pyvta._pyvta import read_layers


@dataclass(frozen=True)
class Layer:
    """A layer by its shape, for `pyvta.sweep`: one line of a SCALE-Sim topology."""

    #: 1 to 200 characters, without commas and quotes.
    name: str
    #: Rows and columns of the input, with its padding.
    input: tuple[int, int]
    #: Rows and columns of the kernel.
    filter: tuple[int, int] = (1, 1)
    #: Of the input.
    channels: int = 1
    #: Channels of the output; of a depthwise convolution, for each channel of the input.
    filters: int = 1
    #: From output to output, in both directions.
    stride: int = 1
    #: Whether each channel has filters of its own.
    depthwise: bool = False
    #: Whether it is a product of matrices, as `Layer.gemm` makes it.
    dense: bool = False

    @classmethod
    def gemm(cls, name: str, m: int, n: int, k: int) -> Layer:
        """The product of an MxK and a KxN matrix."""
        return cls(name, (1, m), channels=k, filters=n, dense=True)

    @property
    def output(self) -> tuple[int, int]:
        """Rows and columns of the output, rounded up as SCALE-Sim does."""
        rows, columns = (
            -(-(size - kernel + self.stride) // self.stride)
            for size, kernel in zip(self.input, self.filter, strict=True)
        )
        return rows, columns

    @property
    def macs(self) -> int:
        """Multiply-adds."""
        positions = self.output[0] * self.output[1]
        return positions * self.filter[0] * self.filter[1] * self.channels * self.filters


def layers(path: str | os.PathLike[str]) -> list[Layer]:
    """Reads a topology of SCALE-Sim, of convolutions or of products (`M, N, K`).

    >>> table = pyvta.sweep(pyvta.layers("topology.csv"), {"LOG_BLOCK": [4, 5]})
    >>> table.groupby("LOG_BLOCK")["cycles"].sum()

    Layers whose names have `DP` are depthwise, as SCALE-Sim takes them. `Sparsity` must be `1:1` and
    `Batch Size` 1. A name that comes again gets a number: `Conv`, `Conv#2`.

    Raises
    ------
    FileError for a file that can't be read, InputError for one that is no such table, with the line and
    what is expected there, ModelError for tensors that can't be held.
    """
    return [Layer(*fields) for fields in read_layers(path)]
