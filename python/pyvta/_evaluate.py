"""Accuracy of a network on a data set, in shards."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from pyvta import _store, _work
from pyvta._pyvta import InferenceSession
from pyvta._source import Options, Source, copies
from pyvta.errors import FileError, InputError, UsageError

if TYPE_CHECKING:
    from distributed import Client

_Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Evaluation:
    """How often a network was right."""

    #: The label with the highest output, for each image; -1 for images whose shard failed.
    predictions: npt.NDArray[np.int64]
    #: What it should have been.
    labels: npt.NDArray[np.int64]
    #: What failed, by the first image of its shard.
    errors: dict[int, str] = field(default_factory=dict)

    @property
    def images(self) -> int:
        """Images that were run."""
        return int((self.predictions >= 0).sum())

    @property
    def correct(self) -> int:
        """Images whose label was right."""
        return int((self.predictions == self.labels).sum())

    @property
    def accuracy(self) -> float:
        """The share of the images that were run whose label was right; NaN without any."""
        return self.correct / self.images if self.images else float("nan")

    def __repr__(self) -> str:
        failed = f", {len(self.errors)} shards failed" if self.errors else ""
        return f"Evaluation({self.correct} of {self.images} right, {self.accuracy:.2%}{failed})"


@dataclass(frozen=True)
class _Network:
    """A network and its options, as workers get it."""

    source: Source
    options: Options

    def open(self) -> InferenceSession:
        """Opens it. Its files are needed no longer then."""
        with copies() as place:
            options = {"threads": _work.own_threads()} | self.options.open(place)
            return InferenceSession(self.source.path(place), **options)


_Preset: TypeAlias = Literal["imagenet", "cifar10", "raw"]


#: Sessions that a process keeps open.
_opened: _work.Kept[InferenceSession] = _work.Kept(2)


@dataclass(frozen=True)
class _Shard:
    images: _Array
    output: str | None
    preprocess: _Preset | None


def _predict(network: _Network, shard: _Shard) -> _work.Result:
    """The labels that the network gives to a shard's images."""
    session = _opened(network)
    taken, images = session.get_inputs()[0], shard.images
    if images.dtype.kind in "iu" and taken.type == "tensor(float)":
        if images.size and not 0 <= images.min() <= images.max() <= 255:
            raise InputError("the data set: pixels are from 0 to 255, where images are whole numbers")
        images = session.preprocess(images.astype(np.uint8), shard.preprocess)
    elif shard.preprocess is not None:
        raise UsageError("`preprocess` is for pixels, whole numbers from 0 to 255")
    wanted = None if shard.output is None else [shard.output]
    logits = session.run(wanted, {taken.name: images})[0]
    labels = logits.reshape(len(images), -1).argmax(axis=1)
    return {"labels": [int(label) for label in labels]}


def _dataset(dataset: Any) -> tuple[_Array, npt.NDArray[np.int64]]:
    """Images and labels of a pair of arrays or an .npz file."""
    where = "the data set"
    if isinstance(dataset, (str, os.PathLike)):
        where = os.fspath(dataset)
        try:
            with np.load(dataset, allow_pickle=False) as file:
                if not isinstance(file, np.lib.npyio.NpzFile):
                    raise InputError(f"{where}: not an .npz file of images and labels")
                named = {name: file[name] for name in file.files}
        except OSError as error:
            raise FileError(f"{where}: {error.strerror or error}") from None
        except ValueError as error:
            raise InputError(f"{where}: {error}") from None
        images = [a for n, a in named.items() if n == "images"] or [
            a for a in named.values() if a.ndim == 4
        ]
        labels = [a for n, a in named.items() if n == "labels"] or [
            a for a in named.values() if a.ndim == 1 and a.dtype.kind in "iu"
        ]
        if len(images) != 1 or len(labels) != 1:
            there = ", ".join(f"{n} {a.shape}" for n, a in named.items())
            raise InputError(f"{where}: arrays `images` and `labels` are needed (there is {there})")
        pair: tuple[Any, Any] = (images[0], labels[0])
    elif isinstance(dataset, Mapping):
        lacking = [name for name in ("images", "labels") if name not in dataset]
        if lacking:
            raise InputError(f"{where}: there is no `{lacking[0]}`")
        pair = (dataset["images"], dataset["labels"])
    else:
        pair = tuple(dataset)
        if len(pair) != 2:
            raise InputError(f"{where} is a pair of images and labels, not {len(pair)} arrays")
    images_found, labels_found = np.asarray(pair[0]), np.asarray(pair[1])
    if labels_found.ndim != 1 or labels_found.dtype.kind not in "iu":
        raise InputError(f"{where}: labels are whole numbers, one for each image")
    if len(images_found) != len(labels_found):
        text = f"{where}: {len(images_found)} images, but {len(labels_found)} labels"
        raise InputError(text)
    return images_found, labels_found.astype(np.int64)


def evaluate(
    model: str | os.PathLike[str] | bytes | Any,
    dataset: Any,
    *,
    client: Client | None = None,
    shard: int = 256,
    output: str | None = None,
    preprocess: _Preset | None = None,
    cache: _work.Cache = None,
    progress: _work.Progress = None,
    **options: Any,
) -> Evaluation:
    """Counts how many of a data set's labels a network finds.

    >>> pyvta.cluster.evaluate("model.onnx", (images, labels), client=client).accuracy

    Parameters
    ----------
    model
        As for `pyvta.InferenceSession`.
    dataset
        A pair of arrays, a mapping with `images` and `labels`, or an `.npz` file of them: images as
        the network takes them, the number of them first, or pixels, whole numbers from 0 to 255, and a
        label, counted from 0, for each.
    client
        A `distributed.Client` whose workers run the shards; None is this machine. Workers must have the same
        build of pyvta.
    shard
        Images of a piece, at least 1.
    output
        The output that has the labels' scores; None is the first.
    preprocess
        How pixels become the network's input; None is what the model says.
    cache
        A folder of results, which other processes and clients may share: shards that are there aren't
        run again. None is `$PYVTA_CACHE` or `~/.cache/pyvta`, False is none.
    progress
        A function of (shards done, shards in all), or True for a bar on standard error.
    options
        As for `pyvta.InferenceSession`: `device`, `config`, `board`, `threads` and so on.

    Raises
    ------
    What opening and running the network raises. What only some of a client's workers would raise, such as a
    device that isn't there or a worker that was lost, is told in `errors` of the result.
    """
    at_a_time = _work.workers(client, None)
    shard = _work.at_least_one("shard", shard)
    for name in ("batch", "threads"):
        if options.get(name) is not None:
            options[name] = _work.at_least_one(name, options[name])
    if options.get("timing_only"):
        raise UsageError("`timing_only` computes no outputs, so that there are no labels to count")
    images, labels = _dataset(dataset)
    network = _Network(Source.of_model(model), Options.of(**options))
    facts = {"model": network.source.facts, "options": network.options.facts}
    firsts = range(0, len(labels), shard)
    tasks = []
    for first in firsts:
        part = np.ascontiguousarray(images[first : first + shard])
        given = {
            "images": _store.digest(part.tobytes()),
            "shape": part.shape,
            "type": part.dtype.str,
            "output": output,
            "preprocess": preprocess,
        }
        tasks.append(_work.Task(_store.key("evaluate", facts | given), _Shard(part, output, preprocess)))
    # A session uses all of a machine's threads by itself.
    at_a_time = 1 if client is None else at_a_time
    results, _ = _work.Work(_predict, network, tasks, client, at_a_time, cache, progress).done()
    predictions, errors = np.full(len(labels), -1, np.int64), {}
    for first, found in zip(firsts, results, strict=True):
        if isinstance(found, BaseException):
            errors[first] = f"{type(found).__name__}: {found}"
        else:
            predictions[first : first + shard] = found["labels"]
    return Evaluation(predictions, labels, errors)
