"""Work in pieces: on this machine's threads, or on a Dask client's workers."""

from __future__ import annotations

import contextlib
import functools
import operator
import os
import pickle
import sys
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import as_completed as threads_completed
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeAlias, TypeVar

from pyvta import _store
from pyvta.errors import FileError, FloatModelError, InputError, ModelError, UsageError, VtaError, VtaWarning

if TYPE_CHECKING:
    from distributed import Client

#: What a piece gives, as JSON has it.
Result: TypeAlias = dict[str, Any]

#: What `progress` may be: a function of (done, all), or True for a bar on the terminal.
Progress: TypeAlias = Callable[[int, int], object] | bool | None

#: What `cache` may be: a folder, None for the user's, or False for no results that are kept.
Cache: TypeAlias = str | os.PathLike[str] | Literal[False] | None

#: Bytes that are sent with each piece rather than once.
_SMALL = 10_000


def at_least_one(name: str, value: Any) -> int:
    """A number of things, which may be one of numpy's.

    Raises UsageError for less than one, TypeError for what is no whole number.
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"`{name}` is a whole number, not {value!r}") from None
    if number < 1:
        raise UsageError(f"`{name}` must be at least 1, not {number}")
    return number


def bar(done: int, all: int) -> None:
    width = 40
    full = width * done // max(all, 1)
    end = "\n" if done == all else ""
    sys.stderr.write(f"\r[{'#' * full}{' ' * (width - full)}] {done} of {all}{end}")
    sys.stderr.flush()


def workers(client: Client | None, threads: int | None) -> int:
    """How many pieces are done at a time.

    Raises UsageError for less than one thread, threads beside a client, workers of another build, TypeError
    for a client that is none.
    """
    if threads is not None:
        threads = at_least_one("threads", threads)
    if client is None:
        return threads or os.cpu_count() or 1
    if getattr(client, "asynchronous", None) is not False or not hasattr(client, "nthreads"):
        raise TypeError(f"`client` is a distributed.Client that isn't asynchronous, not {client!r}")
    if threads is not None:
        raise UsageError("`threads` are those of this machine: a client's workers have their own")
    # Dask tells no types.
    untyped: Any = client
    for worker, build in sorted(untyped.run(_store.build, on_error="return").items()):
        lost = isinstance(build, OSError) and not isinstance(build, VtaError)
        if build != _store.build() and not lost:
            raise _another_build(worker, build, _store.build())
    threads_found: int = sum(untyped.nthreads().values())
    return max(1, threads_found)


def _another_build(worker: str, theirs: object, ours: str) -> UsageError:
    found = f"{type(theirs).__name__}: {theirs}" if isinstance(theirs, Exception) else theirs
    text = f"worker {worker} has another build of pyvta ({found}) than the client ({ours})"
    return UsageError(f"{text}: install the same package on both")


def _for_all(error: BaseException) -> bool:
    """Whether every worker raises it for every piece: arrays are a piece's own, what is opened is not."""
    if isinstance(error, InputError):
        return "opening" in vars(error)
    return isinstance(error, (FloatModelError, ModelError, TypeError, UsageError))


_Opened = TypeVar("_Opened", covariant=True)


class _Spec(Protocol[_Opened]):
    """What is opened for pieces, as it is sent to workers."""

    def open(self) -> _Opened: ...
    def __hash__(self) -> int: ...


class Kept(Generic[_Opened]):
    """What a process keeps open for later pieces: the last few."""

    def __init__(self, most: int):
        self._most = most
        self._open: OrderedDict[_Spec[_Opened], _Opened] = OrderedDict()
        self._opening = threading.Lock()

    def __call__(self, spec: _Spec[_Opened]) -> _Opened:
        with self._opening:
            found = self._open.pop(spec, None)
            try:
                self._open[spec] = found = spec.open() if found is None else found
            except InputError as error:
                vars(error)["opening"] = True
                raise
            while len(self._open) > self._most:
                self._open.popitem(last=False)
        return found


@dataclass(frozen=True)
class Task:
    """A result to be: its name, and what it is computed from beside what all have in common."""

    name: str
    given: Any


@dataclass(frozen=True)
class _Piece:
    tasks: tuple[Task, ...]
    folder: str | None


#: Pieces as they get ready: which one, its results, what it raised.
_Ready: TypeAlias = Generator[tuple[int, Any, BaseException | None], None, None]


@dataclass
class Work:
    """Tasks, and how they are done."""

    #: Computes the result of what all tasks have in common and what one is given.
    function: Callable[[Any, Any], Result]
    #: A worker gets it once.
    shared: Any
    tasks: Sequence[Task]
    client: Client | None
    #: Pieces at a time.
    at_a_time: int
    cache: Cache
    progress: Progress

    def done(
        self, pieces: Callable[[list[int]], list[list[int]]] | None = None
    ) -> tuple[list[Result | BaseException], int]:
        """The tasks' results, and how many of them weren't known.

        `pieces` says which are done together, by default none. What can't be done is raised, but an error of a client's
        worker that another one needn't have is its tasks' result.
        """
        store = None if self.cache is False else _store.Store(self.cache or _store.default_folder())
        folder = None if store is None else str(store.folder)
        told = bar if self.progress is True else self.progress or (lambda done, all: None)
        names = [task.name for task in self.tasks]
        results: list[Any] = [store.get(name) if store else None for name in names]
        missing = [at for at, result in enumerate(results) if result is None]
        groups = pieces(missing) if pieces else [[at] for at in missing]
        done = len(names) - len(missing)
        told(done, len(names))
        work = [_Piece(tuple(self.tasks[at] for at in group), folder) for group in groups]
        each = self._on_threads(work) if self.client is None else self._on_cluster(work, self.client)
        # However this ends, what hasn't begun doesn't begin.
        with contextlib.closing(each):
            for piece, found, error in each:
                if error is not None and (self.client is None or _for_all(error)):
                    raise error
                for place, at in enumerate(groups[piece]):
                    if error is not None:
                        # Points of a lost worker's piece may be ready.
                        results[at] = (store and store.get(names[at])) or error
                        continue
                    results[at] = found[place]
                    # Whoever computed it may have no folder, or another one.
                    if store is not None and not store.has(names[at]):
                        store.put(names[at], found[place], computed=False)
                done += len(groups[piece])
                told(done, len(names))
        return results, len(missing)

    def _on_threads(self, pieces: list[_Piece]) -> _Ready:
        """Does all pieces: which one is ready, with its results or what it raised, as they get ready."""
        with ThreadPoolExecutor(max_workers=self.at_a_time) as pool:
            started = {
                pool.submit(_results, self.function, self.shared, piece): at for at, piece in enumerate(pieces)
            }
            try:
                for future in threads_completed(started):
                    error = future.exception()
                    yield started[future], None if error else future.result(), error
            finally:
                # After Ctrl-C, too: what has begun ends, nothing new begins.
                pool.shutdown(wait=True, cancel_futures=True)

    def _on_cluster(self, pieces: list[_Piece], client: Client) -> _Ready:
        """The same on the client's workers."""
        import distributed

        as_completed: Any = distributed.as_completed
        untyped: Any = client
        held: Any = self.shared
        # What is small goes with each piece: a result that is waited for takes longer.
        if len(pickle.dumps(self.shared)) > _SMALL:
            with warnings.catch_warnings():
                # A model's weights are sent to the scheduler, once: it can send them to new workers then.
                warnings.filterwarnings("ignore", message="Sending large graph")
                held = untyped.submit(_itself, self.shared, pure=False)
        function = functools.partial(_as_worker, _store.build(), self.function)
        # Clients that ask for the same piece share it.
        keys = [
            "pyvta-" + _store.key("piece", {"of": [task.name for task in piece.tasks], "in": piece.folder})
            for piece in pieces
        ]
        futures = untyped.map(function, [held] * len(pieces), pieces, key=keys)
        # Pieces of one name are one future.
        started: dict[Any, list[int]] = {}
        for at, future in enumerate(futures):
            started.setdefault(future, []).append(at)
        try:
            # By default the loop is that of the client that was made last.
            for future in as_completed(list(started), loop=untyped.loop):
                error = future.exception()
                result = None if error else future.result()
                for at in started[future]:
                    yield at, result, error
                future.release()
        finally:
            untyped.cancel([future for future in started if not future.done()])


def own_threads() -> int | None:
    """Threads that this process may take, if it is a cluster's worker."""
    worker = _worker()
    return None if worker is None else int(worker.state.nthreads)


def _worker() -> Any:
    try:
        from distributed import get_worker

        return get_worker()
    except (ImportError, ValueError):
        return None


def _as_worker(
    build: str, function: Callable[[Any, Any], Result], shared: Any, piece: _Piece
) -> list[Result]:
    """Does a piece on a worker, which shares its machine with others."""
    # It may have come after the client asked all.
    if build != _store.build():
        raise _another_build(_worker().address, _store.build(), build)
    # Compiling would take all cores; its threads are counted when the first of them is needed.
    os.environ.setdefault("RAYON_NUM_THREADS", str(own_threads() or 1))
    return _results(function, shared, piece)


def _itself(shared: Any) -> Any:
    return shared


def _results(function: Callable[[Any, Any], Result], shared: Any, piece: _Piece) -> list[Result]:
    """Computes what nobody has computed; each result is kept at once, where this process can."""
    store = None
    try:
        store = None if piece.folder is None else _store.Store(piece.folder)
    except FileError as error:
        _cannot_write(piece.folder, error)
    results = []
    for task in piece.tasks:
        found = store.get(task.name) if store else None
        if found is None:
            found = function(shared, task.given)
            try:
                if store and piece.folder not in _unwritten:
                    store.put(task.name, found)
            except FileError as error:
                _cannot_write(piece.folder, error)
        results.append(found)
    return results


#: Folders that this process can't write.
_unwritten: set[str | None] = set()


def _cannot_write(folder: str | None, error: FileError) -> None:
    """Goes on: whoever asked keeps the results, or can't and says so. A worker says it once."""
    worker = _worker()
    if worker is not None and folder not in _unwritten:
        from distributed.worker import warn

        reason = str(error).rpartition(": ")[2]
        told: Any = warn
        told(f"{folder}: a worker can't write it ({reason}): the client keeps what it computes", VtaWarning)
    _unwritten.add(folder)
