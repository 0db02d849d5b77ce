"""Sweeps over configurations and boards."""

from __future__ import annotations

import json
import os
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pyvta import _store, _work
from pyvta._extras import need
from pyvta._layers import Layer
from pyvta._pyvta import Sweeper
from pyvta._source import Source
from pyvta.errors import FileError, InputError, UsageError

if TYPE_CHECKING:
    import pandas as pd
    from distributed import Client

_Model: TypeAlias = str | os.PathLike[str] | bytes | Sequence[Layer]

#: Points of a piece at most, on this machine's threads and on workers: what has begun ends after Ctrl-C.
_MOST_POINTS, _MOST_SENT = 16, 64
#: Pieces for each worker at least.
_PIECES_EACH = 5
#: Sweeps that a process keeps open.
_MOST_OPEN = 8
#: Points of a sweep that a process measures at a time, for which it keeps programs.
_AT_A_TIME = os.cpu_count() or 1


#: The column of a table's layers.
_LAYER = "layer"


@dataclass(frozen=True)
class Spec:
    """One board's sweep, as it is sent to workers."""

    work: Source | tuple[Layer, ...]
    vary: tuple[str, ...]
    config: str | None
    board: Source | None
    timing: Source | None

    def open(self) -> Sweeper:
        """Opens it. Its files are needed no longer then."""
        with tempfile.TemporaryDirectory(prefix="pyvta-") as folder:
            place = Path(folder)
            return Sweeper(
                self.work.path(place) if isinstance(self.work, Source) else self.work,
                list(self.vary),
                config=None if self.config is None else json.loads(self.config),
                board=None if self.board is None else self.board.path(place),
                timing=None if self.timing is None else self.timing.path(place),
                threads=_AT_A_TIME,
            )

    def facts(self) -> dict[str, Any]:
        """What its points have in common."""
        return {
            "model": self.work.facts() if isinstance(self.work, Source) else "layers",
            "config": self.config,
            "board": self.board and self.board.facts(),
            "timing": self.timing and self.timing.facts(),
        }


_open: OrderedDict[Spec, Sweeper] = OrderedDict()
_opening = threading.Lock()


def _opened(spec: Spec) -> Sweeper:
    """The sweep, which this process keeps open for later pieces."""
    with _opening:
        found = _open.pop(spec, None) or spec.open()
        _open[spec] = found
        while len(_open) > _MOST_OPEN:
            _open.popitem(last=False)
    return found


@dataclass(frozen=True)
class _Piece:
    board: int
    points: tuple[tuple[int, str], ...]
    folder: str | None


def _measure(specs: tuple[Spec, ...], piece: _Piece) -> list[dict[str, Any]]:
    """Measures the points of a piece that nobody has measured; each is kept at once."""
    store = None if piece.folder is None else _store.Store(piece.folder)
    rows = []
    for index, name in piece.points:
        row = store.get(name) if store else None
        if row is None:
            row = _opened(specs[piece.board]).measure(index)
            if store:
                store.put(name, row)
        rows.append(row)
    return rows


@dataclass
class _Point:
    board: int
    index: int
    values: dict[str, str]
    name: str
    row: dict[str, Any] | None = None


def _specs(
    model: _Model,
    vary: Mapping[str, Sequence[float]] | Sequence[str],
    boards: Sequence[str | os.PathLike[str]] | None,
    config: str | os.PathLike[str] | Mapping[str, Any] | None,
    timing: str | os.PathLike[str] | None,
) -> tuple[Spec, ...]:
    if boards is not None and timing is not None:
        raise UsageError("`boards` have their timing: `timing` contradicts them")
    if isinstance(vary, Mapping):
        axes = tuple(f"{key}={','.join(_text(v) for v in values)}" for key, values in vary.items())
    else:
        axes = tuple(vary)
    text = None
    if isinstance(config, Mapping):
        text = json.dumps(dict(config))
    elif config is not None:
        try:
            text = Path(config).read_text(encoding="utf-8")
        except OSError as error:
            raise FileError(f"{config}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise InputError(f"{config}: not a text file") from None
    work = (
        Source.of(model, "model")
        if isinstance(model, (str, bytes, os.PathLike))
        else tuple(model)
    )
    places = [None] if boards is None else [Source.of(board, "board") for board in boards]
    clock = None if timing is None else Source.of(timing, "timing")
    return tuple(Spec(work, axes, text, place, clock) for place in places)


def _text(value: float) -> str:
    """A value as an axis has it."""
    return repr(value) if isinstance(value, float) else str(value)


def _number(text: str) -> int | float:
    return float(text) if any(c in text for c in ".eE") else int(text)


def _pieces(missing: list[_Point], most: int, workers: int) -> Iterator[list[_Point]]:
    """Points in pieces, those of one layer and configuration side by side.

    Few, since each takes some milliseconds to be sent and asked for, but enough that no worker waits long
    for another.
    """
    groups: dict[tuple[int, tuple[tuple[str, str], ...]], list[_Point]] = {}
    for point in missing:
        # Keys of the configuration are in capitals.
        compiled = (item for item in point.values.items() if item[0][:1].isupper() or item[0] == _LAYER)
        groups.setdefault((point.board, tuple(compiled)), []).append(point)
    room = max(1, min(most, len(missing) // (workers * _PIECES_EACH)))
    piece: list[_Point] = []
    for group in groups.values():
        at = 0
        while at < len(group):
            # A piece is of one board, and ends where a configuration does rather than within it.
            if piece and (piece[0].board != group[0].board or len(piece) + len(group) - at > room):
                yield piece
                piece = []
            else:
                piece += group[at : at + room]
                at += room
    if piece:
        yield piece


def sweep(
    model: _Model,
    vary: Mapping[str, Sequence[float]] | Sequence[str] = (),
    *,
    boards: Sequence[str | os.PathLike[str]] | None = None,
    config: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    timing: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    client: Client | None = None,
    cache: str | os.PathLike[str] | Literal[False] | None = None,
    progress: _work.Progress = None,
) -> pd.DataFrame:
    """Counts the cycles of a network on every combination of some parameters.

    >>> pyvta.sweep("zoo:resnet18", {"LOG_BLOCK": [4, 5], "bus_bytes": [8, 16]})

    Parameters
    ----------
    model
        `"demo"`, `"zoo:NAME"`, an int8 ONNX file or its bytes, a layer as `vta layer` has them, or some
        `pyvta.Layer`, each of which is measured by itself: `pyvta.layers("topology.csv")`.
    vary
        Values of each parameter: keys of `vta_config.json` in capitals, of a board's timing the others.
    boards
        Boards, each of which every point is measured on: presets' names or TOML files.
    config, timing
        What isn't varied: a `vta_config.json` or a dict of its keys, a preset's timing or a TOML file.
    threads
        Points at a time without a client; one for each core.
    client
        A `distributed.Client` on whose workers points are measured; None is this machine.
    cache
        A folder of results, which other processes and clients may share: what is there isn't computed
        again. None is `$PYVTA_CACHE` or `~/.cache/pyvta`, False is none.
    progress
        A function of (points done, points in all), or True for a bar on standard error.

    Returns
    -------
    A DataFrame with a row for each point, boards outermost, then layers, in the order of `vary`: `board`
    and `layer` where there are some, the parameters,
    `cycles` and `bound_cycles` of a pass, `images` of a pass, `macs`, `utilization`, `dram_bytes`,
    `energy_uj` (microjoules), `area_mm2`, and `error`: why a point has no figures.

    Raises
    ------
    UsageError for parameters that nothing has, InputError and ModelError for a model that can't be
    read, FileError for files and a folder that can't be written, KeyboardInterrupt after Ctrl-C: what
    is computed by then is kept.
    """
    pandas = need("pandas", "pandas")
    told = _work.bar(progress)
    at_a_time = _work.workers(client, threads)
    store = None if cache is False else _store.Store(cache or _store.default_folder())
    folder = None if store is None else str(store.folder)
    points: list[_Point] = []
    specs = _specs(model, vary, boards, config, timing)
    for board, spec in enumerate(specs):
        sweeper, facts = _opened(spec), spec.facts()
        for index in range(len(sweeper)):
            values = sweeper.point(index)
            of_point: dict[str, Any] = {"point": values}
            if not isinstance(spec.work, Source):
                # Layers are outermost. One is the same whatever table it is in.
                of_point["layer"] = astuple(spec.work[index * len(spec.work) // len(sweeper)])
            name = _store.key("sweep", facts | of_point)
            points.append(_Point(board, index, values, name))
    if store is not None:
        for point in points:
            point.row = store.get(point.name)
    missing = [point for point in points if point.row is None]
    done = len(points) - len(missing)
    told(done, len(points))
    most = _MOST_POINTS if client is None else _MOST_SENT
    groups = list(_pieces(missing, most, at_a_time))
    pieces = [_Piece(g[0].board, tuple((p.index, p.name) for p in g), folder) for g in groups]
    names = [_store.key("piece", {"points": [p.name for p in g], "in": folder}) for g in groups]
    for at, rows, error in _work.each(_measure, specs, pieces, names, client, at_a_time):
        if error is not None and client is None:
            raise error
        for place, point in enumerate(groups[at]):
            if error is None:
                point.row = rows[place]
                # A worker whose folder is another one has kept it there.
                if store is not None and client is not None and not store.has(point.name):
                    store.put(point.name, rows[place], computed=False)
            else:
                found = None if store is None else store.get(point.name)
                point.row = found or {"error": f"{type(error).__name__}: {error}"}
        done += len(groups[at])
        told(done, len(points))
    rows = []
    for point in points:
        row: dict[str, Any] = {}
        if boards is not None:
            row["board"] = os.fspath(boards[point.board])
        for key, value in point.values.items():
            row[key] = value if key == _LAYER else _number(value)
        rows.append(row | (point.row or {}))
    first = {} if boards is None else {"board": None}
    columns = [*first, *(points[0].values if points else ()), *Sweeper.figures(), "error"]
    frame: pd.DataFrame = pandas.DataFrame(rows, columns=columns)
    return frame
