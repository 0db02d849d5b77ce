"""Work in pieces: on this machine's threads, or on a Dask client's workers."""

from __future__ import annotations

import functools
import os
import pickle
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import as_completed as threads_completed
from typing import TYPE_CHECKING, Any, TypeVar

from pyvta.errors import UsageError

if TYPE_CHECKING:
    from distributed import Client

_Piece = TypeVar("_Piece")
_Shared = TypeVar("_Shared")

#: What `progress` may be: a function of (done, all), or True for a bar on the terminal.
Progress = Callable[[int, int], object] | bool | None

#: A worker that dies takes its piece along; another one does it again, as often as this.
_RETRIES = 5


#: Bytes that are sent with each piece rather than once.
_SMALL = 10_000


def bar(progress: Progress) -> Callable[[int, int], object]:
    """The function that is told how much is done."""
    if progress is None or progress is False:
        return lambda done, all: None
    if progress is True:
        return _bar
    return progress


def _bar(done: int, all: int) -> None:
    width = 40
    full = width * done // max(all, 1)
    end = "\n" if done == all else ""
    sys.stderr.write(f"\r[{'#' * full}{' ' * (width - full)}] {done} of {all}{end}")
    sys.stderr.flush()


def workers(client: Client | None, threads: int | None) -> int:
    """How many pieces are done at a time.

    Raises UsageError for less than one thread, and for threads beside a client.
    """
    if threads is not None and threads < 1:
        raise UsageError("`threads` must be at least 1")
    if client is None:
        return threads or os.cpu_count() or 1
    if threads is not None:
        raise UsageError("`threads` are those of this machine: a client's workers have their own")
    # Dask tells no types.
    untyped: Any = client
    threads_found: int = sum(untyped.nthreads().values())
    return max(1, threads_found)


def each(
    function: Callable[[_Shared, _Piece], Any],
    shared: _Shared,
    pieces: Sequence[_Piece],
    names: Sequence[str],
    client: Client | None,
    threads: int,
) -> Iterator[tuple[int, Any, BaseException | None]]:
    """Does all pieces; which one is ready, with its result or what it raised, as they get ready.

    ``shared`` is what all pieces need: a worker gets it once. ``names`` are what the pieces are on a
    cluster: clients that ask for the same one share it.
    """
    if client is None:
        yield from _on_threads(function, shared, pieces, threads)
    else:
        yield from _on_cluster(function, shared, pieces, names, client)


def _on_threads(
    function: Callable[[_Shared, _Piece], Any],
    shared: _Shared,
    pieces: Sequence[_Piece],
    threads: int,
) -> Iterator[tuple[int, Any, BaseException | None]]:
    with ThreadPoolExecutor(max_workers=threads) as pool:
        started = {pool.submit(function, shared, piece): at for at, piece in enumerate(pieces)}
        try:
            for future in threads_completed(started):
                error = future.exception()
                yield started[future], None if error else future.result(), error
        finally:
            # After Ctrl-C, too: what has begun ends, nothing new begins.
            pool.shutdown(wait=True, cancel_futures=True)


def own_threads() -> int | None:
    """Threads that this process may take, if it is a cluster's worker."""
    try:
        from distributed import get_worker

        worker: Any = get_worker()
    except (ImportError, ValueError):
        return None
    threads: int = worker.state.nthreads
    return threads


def _as_worker(
    function: Callable[[_Shared, _Piece], Any], shared: _Shared, piece: _Piece
) -> Any:
    """Does a piece on a worker, which shares its machine with others."""
    # Compiling would take all cores; its threads are counted when the first of them is needed.
    os.environ.setdefault("RAYON_NUM_THREADS", str(own_threads() or 1))
    return function(shared, piece)


def _itself(shared: _Shared) -> _Shared:
    return shared


def _on_cluster(
    function: Callable[[_Shared, _Piece], Any],
    shared: _Shared,
    pieces: Sequence[_Piece],
    names: Sequence[str],
    client: Client,
) -> Iterator[tuple[int, Any, BaseException | None]]:
    import distributed

    as_completed: Any = distributed.as_completed
    untyped: Any = client
    held: Any = shared
    # What is small goes with each piece: a result that is waited for takes longer.
    if len(pickle.dumps(shared)) > _SMALL:
        with warnings.catch_warnings():
            # A model's weights are sent to the scheduler, once: it can send them to new workers then.
            warnings.filterwarnings("ignore", message="Sending large graph")
            held = untyped.submit(_itself, shared, pure=False, retries=_RETRIES)
    keys = [f"pyvta-{name}" for name in names]
    futures = untyped.map(
        functools.partial(_as_worker, function), [held] * len(pieces), list(pieces), key=keys, retries=_RETRIES
    )
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
