"""Machines that a search chooses."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from pyvta import _store, _work
from pyvta._extras import need
from pyvta._pyvta import Explorer, Sweeper
from pyvta._source import Options, Source, copies
from pyvta._sweep import MOST_POINTS, Point, axes_of, pieces

if TYPE_CHECKING:
    import pandas as pd
    from distributed import Client

_Path: TypeAlias = str | os.PathLike[str]


@dataclass(frozen=True)
class _Spec:
    """An exploration, as it is sent to workers."""

    models: tuple[Source, ...]
    vary: tuple[str, ...]
    options: Options
    #: `area`, `objective`, `points`, `searches` and `seed`.
    walk: tuple[Any, ...]

    def open(self) -> Explorer:
        """Opens it. Its files are needed no longer then."""
        area, objective, points, searches, seed = self.walk
        with copies() as place:
            return Explorer(
                [model.path(place) for model in self.models],
                list(self.vary),
                area=area,
                objective=objective,
                points=points,
                searches=searches,
                seed=seed,
                threads=os.cpu_count() or 1,
                **self.options.open(place),
            )

    def facts(self) -> dict[str, Any]:
        """What its points have in common, which is what those of a sweep have."""
        facts = [model.facts for model in self.models]
        return {"model": facts if len(facts) > 1 else facts[0], "options": self.options.facts}


#: Explorations that a process keeps open to measure their points.
_opened: _work.Kept[Explorer] = _work.Kept(4)


def _measure(spec: _Spec, point: int) -> _work.Result:
    return _opened(spec).measure(point)


def explore(
    models: _Path | bytes | Any,
    *,
    area: float | None = None,
    objective: str | Sequence[str] = ("cycles", "energy"),
    vary: Mapping[str, Iterable[Any]] | Iterable[str] = (),
    points: int = 1000,
    searches: int = 4,
    seed: int = 1,
    config: _Path | Mapping[str, Any] | None = None,
    board: _Path | None = None,
    timing: _Path | None = None,
    costs: _Path | None = None,
    threads: int | None = None,
    client: Client | None = None,
    cache: _work.Cache = None,
    progress: _work.Progress = None,
) -> pd.DataFrame:
    """Looks for machines that no other beats, as `vta explore` does.

    >>> pyvta.explore("zoo:resnet18", area=2.5, objective=["cycles", "energy"])

    Parameters
    ----------
    models
        A network, as for `pyvta.sweep`, or a list of some, whose sums count.
    area
        The largest machine in square millimetres.
    objective
        What is to be small, of an image: some of `"cycles"`, `"energy"`, `"area"`, `"time"` and `"dram"`.
    vary
        Values of parameters, as for `pyvta.sweep`, more than those that are walked anyway or in the place of one.
    points, searches, seed
        Machines to measure at most, in so many searches, of which every fourth leaves out extensions. The same numbers
        choose the same machines, on whatever they are measured.
    config, board, timing, costs
        What isn't varied, and prices of operations and parts.
    threads, client, cache, progress
        As for `pyvta.sweep`. An exploration that was stopped finds its points in the cache.

    Returns
    -------
    A DataFrame with a row for each machine of the front, by the first objective: the parameters as text, the figures of
    `pyvta.sweep`, `gain` (times as fast as the fastest one that was found of at most its area without more extensions),
    `limited_by` and `why`: what it waits for.

    Raises
    ------
    As `pyvta.sweep`.
    """
    pandas = need("pandas", "pandas")
    at_a_time = _work.workers(client, threads)
    given = list(models) if isinstance(models, (list, tuple)) else [models]
    wanted = (objective,) if isinstance(objective, str) else tuple(objective)
    spec = _Spec(
        tuple(Source.of_model(model) for model in given),
        axes_of(vary),
        Options.of(config=config, board=board, timing=timing, costs=costs),
        (area, wanted, _work.at_least_one("points", points), _work.at_least_one("searches", searches), seed),
    )
    explorer, facts = spec.open(), spec.facts()
    while found := explorer.next_points():
        asked, all = explorer.progress()
        before = asked - len(found)

        def told(done: int, _: int, before: int = before, all: int = all) -> None:
            if progress:
                (_work.bar if progress is True else progress)(before + done, all)

        wanted_points = [Point(0, at, explorer.point(at)) for at in found]
        tasks = [
            _work.Task(_store.key("sweep", facts | {"point": point.values}), point.index) for point in wanted_points
        ]
        work = _work.Work(_measure, spec, tasks, client, at_a_time, cache, told)

        def split(missing: list[int], all: list[Point] = wanted_points) -> list[list[int]]:
            return pieces(all, missing, MOST_POINTS, at_a_time)

        for at, result in zip(found, work.done(split)[0], strict=True):
            lost = {"error": f"{type(result).__name__}: {result}"}
            explorer.tell(at, json.dumps(lost if isinstance(result, BaseException) else result))
    rows = [best.pop("point") | best for best in explorer.best()]
    keys = explorer.keys()
    frame: pd.DataFrame = pandas.DataFrame(
        rows, columns=[*keys, *Sweeper.figures(), "gain", "limited_by", "why"]
    )
    return frame
