"""Tiles chosen by counting cycles."""

from __future__ import annotations

import json
import os
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pyvta import _store, _work
from pyvta._pyvta import Tuner
from pyvta._source import Source
from pyvta.errors import FileError, RunError

if TYPE_CHECKING:
    from distributed import Client

#: Networks that a process keeps open.
_MOST_OPEN = 2


@dataclass(frozen=True)
class Tuned:
    """Tiles that were measured, as `vta tune -o FILE` keeps them."""

    #: The cache of tiles, in JSON.
    text: str
    #: Cycles of a pass with the tiles of the analytic search.
    untuned_cycles: int
    #: Cycles of a pass with those that were measured.
    cycles: int
    #: Shapes that were measured now, not found in the cache of results.
    measured: int

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the cache, for `tiles=` of a session and `vta .. --tiles`, whole or not at all.

        Raises FileError for a file that can't be written.
        """
        target = Path(path)
        part = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            part.write_text(self.text, encoding="utf-8")
            os.replace(part, target)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise FileError(f"{target}: {error.strerror}") from None


@dataclass(frozen=True)
class _Spec:
    model: Source
    config: str | None
    board: Source | None
    timing: Source | None
    candidates: int

    def open(self) -> Tuner:
        with tempfile.TemporaryDirectory(prefix="pyvta-") as folder:
            place = Path(folder)
            return Tuner(
                self.model.path(place),
                config=None if self.config is None else json.loads(self.config),
                board=None if self.board is None else self.board.path(place),
                timing=None if self.timing is None else self.timing.path(place),
                candidates=self.candidates,
            )

    def facts(self) -> dict[str, Any]:
        return {
            "model": self.model.facts(),
            "config": self.config,
            "board": self.board and self.board.facts(),
            "timing": self.timing and self.timing.facts(),
            "candidates": self.candidates,
        }


_open: OrderedDict[_Spec, Tuner] = OrderedDict()
_opening = threading.Lock()


def _opened(spec: _Spec) -> Tuner:
    with _opening:
        found = _open.pop(spec, None) or spec.open()
        _open[spec] = found
        while len(_open) > _MOST_OPEN:
            _open.popitem(last=False)
    return found


@dataclass(frozen=True)
class _Piece:
    index: int
    name: str
    folder: str | None


def _measure(spec: _Spec, piece: _Piece) -> str:
    store = None if piece.folder is None else _store.Store(piece.folder)
    found = store.get(piece.name) if store else None
    if found is None:
        found = {"tiles": _opened(spec).measure(piece.index)}
        if store:
            store.put(piece.name, found)
    text: str = found["tiles"]
    return text


def tune(
    model: str | os.PathLike[str] | bytes,
    *,
    config: Mapping[str, Any] | None = None,
    board: str | os.PathLike[str] | None = None,
    timing: str | os.PathLike[str] | None = None,
    candidates: int = 8,
    threads: int | None = None,
    client: Client | None = None,
    cache: str | os.PathLike[str] | Literal[False] | None = None,
    progress: _work.Progress = None,
) -> Tuned:
    """Measures the cheapest tiles of every distinct convolution and keeps the fastest, as `vta tune` does.

    >>> pyvta.cluster.tune("zoo:resnet18", board="pynq", client=client).save("tiles.json")

    Parameters
    ----------
    model
        `"demo"`, `"zoo:NAME"`, an int8 ONNX file or its bytes.
    config, board, timing
        The machine, as for `pyvta.InferenceSession`.
    candidates
        Tiles to measure for each convolution, at least 1.
    threads, client, cache, progress
        As for `pyvta.sweep`; pieces are convolutions.

    Raises
    ------
    What can't be read, lowered or measured; RunError for a worker that was lost too often.
    """
    told = _work.bar(progress)
    at_a_time = _work.workers(client, threads)
    store = None if cache is False else _store.Store(cache or _store.default_folder())
    folder = None if store is None else str(store.folder)
    spec = _Spec(
        Source.of(model, "model"),
        None if config is None else json.dumps(dict(config)),
        None if board is None else Source.of(board, "board"),
        None if timing is None else Source.of(timing, "timing"),
        candidates,
    )
    tuner = _opened(spec)
    facts = spec.facts()
    names = [_store.key("tune", facts | {"piece": at}) for at in range(len(tuner))]
    known = [store.get(name) if store else None for name in names]
    texts: list[str | None] = [found["tiles"] if found else None for found in known]
    missing = [at for at, text in enumerate(texts) if text is None]
    done = len(texts) - len(missing)
    told(done, len(texts))
    pieces = [_Piece(at, names[at], folder) for at in missing]
    keys = [piece.name for piece in pieces]
    for place, text, error in _work.each(_measure, spec, pieces, keys, client, at_a_time):
        if error is not None:
            if client is None:
                raise error
            raise RunError(f"{spec.model.name}: {type(error).__name__}: {error}") from error
        at = missing[place]
        texts[at] = text
        if store is not None and client is not None and not store.has(names[at]):
            store.put(names[at], {"tiles": text}, computed=False)
        done += 1
        told(done, len(texts))
    merged, untuned, cycles = tuner.end([text for text in texts if text is not None])
    return Tuned(merged, untuned, cycles, len(missing))
