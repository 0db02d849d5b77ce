"""Sweeps over configurations and boards."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from pyvta import _store, _work
from pyvta._extras import need
from pyvta._layers import Layer
from pyvta._pyvta import Sweeper
from pyvta._source import Options, Source, copies
from pyvta.errors import InputError, UsageError

if TYPE_CHECKING:
    import pandas as pd
    from distributed import Client

_Path: TypeAlias = str | os.PathLike[str]

#: Points of a piece at most, on this machine's threads and on workers: what has begun ends after Ctrl-C.
MOST_POINTS, _MOST_SENT = 16, 64
#: Pieces for each worker at least.
_PIECES_EACH = 5
#: Points of a sweep that a process measures at a time, for which it keeps programs.
_AT_A_TIME = os.cpu_count() or 1


#: The column of a table's layers.
_LAYER = "layer"


@dataclass(frozen=True)
class _Spec:
    """One board's sweep, as it is sent to workers."""

    work: Source | tuple[Layer, ...]
    vary: tuple[str, ...]
    options: Options

    def open(self) -> Sweeper:
        """Opens it. Its files are needed no longer then."""
        with copies() as place:
            return Sweeper(
                self.work.path(place) if isinstance(self.work, Source) else self.work,
                list(self.vary),
                threads=_AT_A_TIME,
                **self.options.open(place),
            )

    def facts(self) -> dict[str, Any]:
        """What its points have in common."""
        model = self.work.facts if isinstance(self.work, Source) else "layers"
        return {"model": model, "options": self.options.facts}


#: Sweeps that a process keeps open.
_opened: _work.Kept[Sweeper] = _work.Kept(8)


@dataclass(frozen=True)
class Point:
    board: int
    index: int
    values: dict[str, str]


def _measure(specs: tuple[_Spec, ...], point: tuple[int, int]) -> _work.Result:
    board, index = point
    return _opened(specs[board]).measure(index)


def _specs(
    model: Any, vary: Any, boards: Sequence[_Path] | None, config: Any, timing: _Path | None, costs: _Path | None
) -> tuple[_Spec, ...]:
    if boards is not None and timing is not None:
        raise UsageError("`boards` have their timing: `timing` contradicts them")
    axes = axes_of(vary)
    layers = isinstance(model, Iterable) and not isinstance(model, (str, bytes, os.PathLike))
    work = tuple(_layer(layer) for layer in model) if layers else Source.of_model(model)
    all: Sequence[_Path | None] = [None] if boards is None else boards
    return tuple(
        _Spec(work, axes, Options.of(config=config, board=board, timing=timing, costs=costs)) for board in all
    )


def axes_of(vary: Any) -> tuple[str, ...]:
    """Axes as the command line has them."""
    if isinstance(vary, Mapping):
        return tuple(_axis(key, values) for key, values in vary.items())
    return (vary,) if isinstance(vary, str) else tuple(vary)


def _layer(layer: Any) -> Layer:
    """A layer that may have numbers of numpy's."""
    if not isinstance(layer, Layer):
        raise TypeError(f"layers are `pyvta.Layer`, not {type(layer).__name__}")
    for name, value in vars(layer).items():
        if not isinstance(value, str) and np.min(value) < 0:
            raise InputError(f"layer '{layer.name}': {name} is {value}, but it must be at least 1")
    return layer


def _axis(key: str, values: Any) -> str:
    if isinstance(values, str):
        return f"{key}={values}"
    try:
        all = list(values)
    except TypeError:
        raise UsageError(f"`vary` {key}: {values!r} is no sequence of values") from None
    return f"{key}={','.join(_text(key, value) for value in all)}"


def _text(key: str, value: Any) -> str:
    """A value as an axis has it."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | np.bool_):
        return str(value).lower()
    try:
        return str(operator.index(value))
    except TypeError:
        pass
    try:
        return repr(float(value))
    except (TypeError, ValueError):
        raise UsageError(f"`vary` {key}: {value!r} is no number") from None


def _value(text: str) -> bool | int | float | str:
    """An axis' value as Python has it: names stay text."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def pieces(points: Sequence[Point], missing: list[int], most: int, workers: int) -> list[list[int]]:
    """Points in pieces, those of one layer and configuration side by side.

    Few, since each takes some milliseconds to be sent and asked for, but enough that no worker waits long
    for another.
    """
    groups: dict[tuple[int, tuple[tuple[str, str], ...]], list[int]] = {}
    for at in missing:
        point = points[at]
        # Keys of the configuration are in capitals.
        compiled = (item for item in point.values.items() if item[0][:1].isupper() or item[0] == _LAYER)
        groups.setdefault((point.board, tuple(compiled)), []).append(at)
    room = max(1, min(most, len(missing) // (workers * _PIECES_EACH)))
    pieces: list[list[int]] = []
    # The board of the last piece, where that goes on.
    last = None
    for (board, _), group in groups.items():
        at = 0
        while at < len(group):
            # A piece is of one board, and ends where a configuration does rather than within it.
            if last != board or len(pieces[-1]) + len(group) - at > room:
                pieces.append([])
            pieces[-1] += group[at : at + room]
            at += room
            last = board
    return pieces


def sweep(
    model: _Path | bytes | Iterable[Layer] | Any,
    vary: Mapping[str, Iterable[Any]] | Iterable[str] = (),
    *,
    boards: Sequence[_Path] | None = None,
    config: _Path | Mapping[str, Any] | None = None,
    timing: _Path | None = None,
    costs: _Path | None = None,
    threads: int | None = None,
    client: Client | None = None,
    cache: _work.Cache = None,
    progress: _work.Progress = None,
) -> pd.DataFrame:
    """Counts the cycles of a network on every combination of some parameters.

    >>> pyvta.sweep("zoo:resnet18", {"LOG_BLOCK": [4, 5], "bus_bytes": [8, 16]})

    Points are compiled with the compiler's search alone, so that machines are compared by the same means. A
    session takes measured tiles as well, where there are some: it may count fewer cycles.

    Parameters
    ----------
    model
        `"demo"`, `"zoo:NAME"`, an int8 ONNX file or its bytes, an `onnx.ModelProto`, what `pyvta.quantize`
        gives, a layer by name, or some `pyvta.Layer`, each of which is measured by itself:
        `pyvta.layers("topology.csv")`.
    vary
        Values of each parameter: keys of `vta_config.json` in capitals, of a board's timing the others.
    boards
        Boards, each of which every point is measured on: presets' names or TOML files.
    config, timing
        What isn't varied: a `vta_config.json` or a mapping of its keys, a preset's timing or a TOML file.
    costs
        Prices of operations and parts, a TOML file: `vta costs` prints one.
    threads
        Points at a time without a client; one for each core.
    client
        A `distributed.Client` on whose workers points are measured; None is this machine. Workers must have
        the same build of pyvta.
    cache
        A folder of results, which other processes and clients may share: what is there isn't computed
        again. None is `$PYVTA_CACHE` or `~/.cache/pyvta`, False is none.
    progress
        A function of (points done, points in all), or True for a bar on standard error.

    Returns
    -------
    A DataFrame with a row for each point, boards outermost, then layers, in the order of `vary`: `board`
    and `layer` where there are some, the parameters,
    `cycles` and `bound_cycles` of a pass, `images` of a pass, `pass_ms` (its milliseconds by the point's
    clock), `macs`, `utilization`, `dram_bytes`, `energy_uj` (microjoules), `area_mm2`, and `error`: why a
    point has no figures. Whole numbers are integers, of type `Int64` where some are missing.

    Raises
    ------
    UsageError for parameters that nothing has and workers of another build, InputError and ModelError for a
    model that can't be read, FileError for files and a folder that can't be written, KeyboardInterrupt after
    Ctrl-C: what is computed by then is kept.
    """
    pandas = need("pandas", "pandas")
    at_a_time = _work.workers(client, threads)
    boards = [boards] if isinstance(boards, (str, os.PathLike)) else boards
    points: list[Point] = []
    tasks: list[_work.Task] = []
    specs = _specs(model, vary, boards, config, timing, costs)
    for board, spec in enumerate(specs):
        sweeper, facts = _opened(spec), spec.facts()
        for index in range(len(sweeper)):
            values = sweeper.point(index)
            of_point: dict[str, Any] = {"point": values}
            if not isinstance(spec.work, Source):
                # Layers are outermost. One is the same whatever table it is in.
                of_point["layer"] = astuple(spec.work[index * len(spec.work) // len(sweeper)])
            points.append(Point(board, index, values))
            tasks.append(_work.Task(_store.key("sweep", facts | of_point), (board, index)))
    most = MOST_POINTS if client is None else _MOST_SENT
    work = _work.Work(_measure, specs, tasks, client, at_a_time, cache, progress)
    results, _ = work.done(lambda missing: pieces(points, missing, most, at_a_time))
    rows = []
    for point, found in zip(points, results, strict=True):
        row: dict[str, Any] = {}
        if boards is not None:
            row["board"] = os.fspath(boards[point.board])
        for key, value in point.values.items():
            row[key] = value if key == _LAYER else _value(value)
        if isinstance(found, BaseException):
            found = {"error": f"{type(found).__name__}: {found}"}
        rows.append(row | found)
    first = {} if boards is None else {"board": None}
    figures = Sweeper.figures()
    columns = [*first, *(points[0].values if points else ()), *figures, "error"]
    frame: pd.DataFrame = pandas.DataFrame(rows, columns=columns)
    missing = frame["error"].notna().any()
    whole = "Int64" if missing else "int64"
    return frame.astype({name: whole if isinstance(of, int) else "float64" for name, of in figures.items()})
