"""Results as files, each named by what it is the result of."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import operator
import os
import socket
import time
import uuid
import warnings
from pathlib import Path
from typing import Any

from pyvta import _pyvta
from pyvta.errors import FileError, VtaWarning

#: Part of every key: results of another layout or meaning are others.
_LAYOUT = 2


def digest(data: bytes) -> str:
    """SHA-256 in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def _json(value: Any) -> bytes:
    """The same bytes for the same value; numbers may be numpy's."""
    return json.dumps(value, default=operator.index, sort_keys=True, separators=(",", ":")).encode()


def _stamp(path: Path) -> tuple[int, ...]:
    """What changes when a file is replaced."""
    found = path.stat()
    return found.st_mtime_ns, found.st_size, found.st_ino


#: The files of this package as they were when it was loaded.
_CODE = {
    path: _stamp(path) for path in (*sorted(Path(__file__).parent.glob("*.py")), Path(_pyvta.__file__))
}


@functools.cache
def build() -> str:
    """The version of this package, and a digest of its code: another build may compute other results.

    Raises FileError when a file was replaced after it was loaded.
    """
    lines = []
    for path, loaded in _CODE.items():
        try:
            lines.append(f"{path.name} {digest(path.read_bytes())}")
            same = _stamp(path) == loaded
        except OSError as error:
            raise FileError(f"{path}: {error.strerror}") from None
        if not same:
            raise FileError(f"{path}: it was replaced after this process loaded it: start again")
    return f"{_pyvta.__version__}-{digest(_json(lines))[:16]}"


def key(kind: str, facts: dict[str, Any]) -> str:
    """What a result is the result of, as a name: 64 hexadecimal digits.

    ``facts`` are what it depends on, as JSON has them; pyvta's build is always among them.
    """
    return digest(_json({"kind": kind, "layout": _LAYOUT, "build": build(), "facts": facts}))


def default_folder() -> Path:
    """``$PYVTA_CACHE``, or ``pyvta`` in the user's folder for caches."""
    given = os.environ.get("PYVTA_CACHE")
    if given:
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME")
    return Path(base or Path.home() / ".cache") / "pyvta"


class Store:
    """A folder of results that any number of processes share, on several machines as well.

    A result is a file ``ab/abcdef...json`` that appears whole or not at all: it is written beside
    its name and then renamed. A check of name and result stands in it. ``computed.log`` has a line for
    each result that was computed: time, machine, process and key.
    """

    def __init__(self, folder: str | os.PathLike[str]):
        self.folder = Path(folder).absolute()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(f"{self.folder}: {error.strerror}") from None

    def _path(self, name: str) -> Path:
        return self.folder / name[:2] / f"{name}.json"

    def has(self, name: str) -> bool:
        """Whether there is a result as it was written."""
        return self._read(name)[0] is not None

    def get(self, name: str) -> dict[str, Any] | None:
        """A result, or None where there is none. One that isn't as it was written is none, with a warning."""
        result, damaged = self._read(name)
        if damaged:
            text = f"{self._path(name)}: not as it was written: the result is computed again"
            warnings.warn(text, VtaWarning, stacklevel=2)
        return result

    def _read(self, name: str) -> tuple[dict[str, Any] | None, bool]:
        """A result, and whether there is one that isn't as it was written."""
        try:
            found = json.loads(self._path(name).read_bytes())
            result: dict[str, Any] = found["result"]
            whole = found["check"] == _check(name, result)
        except OSError:
            return None, False
        except (ValueError, TypeError, KeyError):
            whole = False
        return (result, False) if whole else (None, True)

    def put(self, name: str, result: dict[str, Any], *, computed: bool = True) -> None:
        """Keeps a result. ``computed`` is False for one that another process has computed.

        Raises FileError for a folder that can't be written.
        """
        path = self._path(name)
        part = path.with_name(f".{name}.{os.getpid()}.{uuid.uuid4().hex}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            part.write_bytes(_json({"result": result, "check": _check(name, result)}))
            os.replace(part, path)
            if computed:
                line = f"{time.time():.3f} {socket.gethostname()} {os.getpid()} {name}\n"
                with open(self.folder / "computed.log", "a", encoding="utf-8") as log:
                    log.write(line)
        except OSError as error:
            with contextlib.suppress(OSError):
                part.unlink()
            raise FileError(f"{path}: {error.strerror}") from None


def _check(name: str, result: dict[str, Any]) -> str:
    return digest(name.encode() + _json(result))
