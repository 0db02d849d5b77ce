"""Accuracy of a network on a data set, in shards."""

from __future__ import annotations

import os
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from pyvta import _store, _work
from pyvta._pyvta import InferenceSession
from pyvta._source import Source
from pyvta.errors import FileError, InputError, UsageError

if TYPE_CHECKING:
    from distributed import Client

#: Sessions that a process keeps open.
_MOST_OPEN = 2

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
    options: tuple[tuple[str, Any], ...]

    def open(self) -> InferenceSession:
        """Opens it. Its files are needed no longer then."""
        options = dict(self.options)
        if options.get("threads") is None:
            options["threads"] = _work.own_threads()
        with tempfile.TemporaryDirectory(prefix="pyvta-") as folder:
            return InferenceSession(self.source.path(Path(folder)), **options)

    def facts(self) -> dict[str, Any]:
        return {"model": self.source.facts(), "options": sorted(map(repr, self.options))}


_sessions: OrderedDict[str, InferenceSession] = OrderedDict()
_opening = threading.Lock()


def _opened(network: _Network) -> InferenceSession:
    name = _store.key("session", network.facts())
    with _opening:
        found = _sessions.pop(name, None) or network.open()
        _sessions[name] = found
        while len(_sessions) > _MOST_OPEN:
            _sessions.popitem(last=False)
    return found


@dataclass(frozen=True)
class _Shard:
    images: _Array
    output: str | None
    name: str
    folder: str | None


def _predict(network: _Network, shard: _Shard) -> list[int]:
    """The labels that the network gives to a shard's images."""
    store = None if shard.folder is None else _store.Store(shard.folder)
    found = store.get(shard.name) if store else None
    if found is None:
        session = _opened(network)
        name = session.get_inputs()[0].name
        wanted = None if shard.output is None else [shard.output]
        logits = session.run(wanted, {name: shard.images})[0]
        labels = logits.reshape(len(shard.images), -1).argmax(axis=1)
        found = {"labels": [int(label) for label in labels]}
        if store:
            store.put(shard.name, found)
    labels_found: list[int] = found["labels"]
    return labels_found


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
    cache: str | os.PathLike[str] | Literal[False] | None = None,
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
        the network takes them, the number of them first, and a label, counted from 0, for each.
    client
        A `distributed.Client` whose workers run the shards; None is this machine.
    shard
        Images of a piece, at least 1.
    output
        The output that has the labels' scores; None is the first.
    cache
        A folder of results, which other processes and clients may share: shards that are there aren't
        run again. None is `$PYVTA_CACHE` or `~/.cache/pyvta`, False is none.
    progress
        A function of (shards done, shards in all), or True for a bar on standard error.
    options
        As for `pyvta.InferenceSession`: `device`, `config`, `board`, `threads` and so on.

    Raises
    ------
    What opening and running the network raises; on a client's workers a shard that fails is told in
    `errors` of the result.
    """
    if shard < 1:
        raise UsageError("`shard` must be at least 1")
    told = _work.bar(progress)
    images, labels = _dataset(dataset)
    network = _Network(_source(model), tuple(sorted(options.items())))
    store = None if cache is False else _store.Store(cache or _store.default_folder())
    folder = None if store is None else str(store.folder)
    predictions = np.full(len(labels), -1, np.int64)
    starts, pieces, done = [], [], 0
    shards = range(0, len(labels), shard)
    for first in shards:
        part = np.ascontiguousarray(images[first : first + shard])
        facts = network.facts() | {
            "images": _store.digest(part.tobytes()),
            "shape": part.shape,
            "type": part.dtype.str,
            "output": output,
        }
        name = _store.key("evaluate", facts)
        found = store.get(name) if store else None
        if found is not None:
            predictions[first : first + shard] = found["labels"]
            done += 1
        else:
            starts.append(first)
            pieces.append(_Shard(part, output, name, folder))
    told(done, len(shards))
    errors: dict[int, str] = {}
    names = [piece.name for piece in pieces]
    # A session uses all of a machine's threads by itself.
    for at, found_labels, error in _work.each(_predict, network, pieces, names, client, 1):
        first = starts[at]
        if error is None:
            predictions[first : first + shard] = found_labels
            if store is not None and client is not None and not store.has(names[at]):
                store.put(names[at], {"labels": found_labels}, computed=False)
        elif client is None:
            raise error
        else:
            errors[first] = f"{type(error).__name__}: {error}"
        done += 1
        told(done, len(shards))
    return Evaluation(predictions, labels, errors)


def _source(model: Any) -> Source:
    """The model's bytes or name."""
    if isinstance(model, (str, os.PathLike, bytes)):
        return Source.of(model, "model")
    for method in ("to_onnx", "SerializeToString"):
        if hasattr(model, method):
            return Source.of(bytes(getattr(model, method)()), "model")
    raise UsageError(f"a model is a path, a name or ONNX as bytes, not {type(model).__name__}")
