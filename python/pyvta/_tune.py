"""Tiles chosen by counting cycles."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyvta import _store, _work
from pyvta._pyvta import Tuner, write_file
from pyvta._source import Options, Source, copies
from pyvta.errors import RunError

if TYPE_CHECKING:
    from distributed import Client

@dataclass(frozen=True)
class Tuned:
    """Tiles that were measured."""

    #: The cache of tiles, in JSON.
    text: str
    #: Cycles of a pass with the tiles of the analytic search.
    untuned_cycles: int
    #: Cycles of a pass with those that were measured.
    cycles: int
    #: Shapes that were measured now, not found in the cache of results.
    measured: int

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the cache, for `tiles=` of a session, whole or not at all.

        Raises FileError for a file that can't be written.
        """
        write_file(path, self.text.encode())


@dataclass(frozen=True)
class _Spec:
    model: Source
    options: Options

    def open(self) -> Tuner:
        """Opens it. Its files are needed no longer then."""
        with copies() as place:
            return Tuner(self.model.path(place), **self.options.open(place))


#: Networks that a process keeps open.
_opened: _work.Kept[Tuner] = _work.Kept(2)


def _measure(spec: _Spec, piece: int) -> _work.Result:
    return {"tiles": _opened(spec).measure(piece)}


def tune(
    model: str | os.PathLike[str] | bytes | Any,
    *,
    config: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    board: str | os.PathLike[str] | None = None,
    timing: str | os.PathLike[str] | None = None,
    candidates: int = 8,
    threads: int | None = None,
    client: Client | None = None,
    cache: _work.Cache = None,
    progress: _work.Progress = None,
) -> Tuned:
    """Measures the cheapest tiles of every distinct convolution and keeps the fastest.

    >>> pyvta.cluster.tune("zoo:resnet18", board="pynq", client=client).save("tiles.json")

    Parameters
    ----------
    model
        As for `pyvta.sweep`, but no layers.
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
    at_a_time = _work.workers(client, threads)
    candidates = _work.at_least_one("candidates", candidates)
    options = Options.of(config=config, board=board, timing=timing, candidates=candidates)
    spec = _Spec(Source.of_model(model), options)
    tuner = _opened(spec)
    facts = {"model": spec.model.facts, "options": options.facts}
    tasks = [_work.Task(_store.key("tune", facts | {"piece": at}), at) for at in range(len(tuner))]
    work = _work.Work(_measure, spec, tasks, client, at_a_time, cache, progress)
    results, measured = work.done()
    tiles = []
    for found in results:
        if isinstance(found, BaseException):
            raise RunError(f"{spec.model.name}: {type(found).__name__}: {found}") from found
        tiles.append(found["tiles"])
    merged, untuned, cycles = tuner.end(tiles)
    return Tuned(merged, untuned, cycles, measured)
