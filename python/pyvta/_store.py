"""Results as files, each named by what it is the result of."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import time
import uuid
from pathlib import Path
from typing import Any

from pyvta._pyvta import __version__
from pyvta.errors import FileError

#: Part of every key: results of another layout or meaning are others.
_LAYOUT = 1


def digest(data: bytes) -> str:
    """SHA-256 in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def key(kind: str, facts: dict[str, Any]) -> str:
    """What a result is the result of, as a name: 64 hexadecimal digits.

    ``facts`` are what it depends on, as JSON has them; pyvta's version is always among them.
    """
    facts = {"kind": kind, "layout": _LAYOUT, "pyvta": __version__, "facts": facts}
    return digest(json.dumps(facts, sort_keys=True, separators=(",", ":")).encode())


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
    its name and then renamed. ``computed.log`` has a line for each result that was computed:
    time, machine, process and key.
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
        """Whether there is a result's file."""
        return self._path(name).is_file()

    def get(self, name: str) -> dict[str, Any] | None:
        """A result, or None where there is none, or none that is whole."""
        try:
            found = json.loads(self._path(name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def put(self, name: str, result: dict[str, Any], *, computed: bool = True) -> None:
        """Keeps a result. ``computed`` is False for one that another process has computed.

        Raises FileError for a folder that can't be written.
        """
        path = self._path(name)
        part = path.with_name(f".{name}.{os.getpid()}.{uuid.uuid4().hex}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            part.write_text(json.dumps(result), encoding="utf-8")
            os.replace(part, path)
            if computed:
                line = f"{time.time():.3f} {socket.gethostname()} {os.getpid()} {name}\n"
                with open(self.folder / "computed.log", "a", encoding="utf-8") as log:
                    log.write(line)
        except OSError as error:
            with contextlib.suppress(OSError):
                part.unlink()
            raise FileError(f"{path}: {error.strerror}") from None
