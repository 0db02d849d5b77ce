"""Models and boards as another process gets them."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from pyvta import _store
from pyvta.errors import FileError


@dataclass(frozen=True)
class Source:
    """A name, or a file with its bytes, as a process without that file needs it."""

    name: str
    #: The file, and those beside it that hold its data; empty for a name.
    files: tuple[tuple[str, bytes], ...] = ()
    #: Where the file was, which messages name as long as it is there.
    where: str | None = field(default=None, compare=False)

    @classmethod
    def of(cls, given: str | os.PathLike[str] | bytes, kind: str) -> Source:
        """Reads a file; what is none is a name.

        Raises FileError for a file that can't be read.
        """
        if isinstance(given, bytes):
            return cls(f"{kind}.onnx", ((f"{kind}.onnx", given),))
        path = Path(given)
        if not path.is_file():
            return cls(os.fspath(given))
        try:
            content = path.read_bytes()
            files = [(path.name, content)]
            # ONNX names the files of its weights, which lie beside it, by a key `location`.
            if path.suffix == ".onnx" and b"location" in content:
                beside = sorted(p for p in path.parent.iterdir() if p != path and p.is_file())
                named = (p for p in beside if p.name.encode() in content)
                files += [(p.name, p.read_bytes()) for p in named]
        except OSError as error:
            raise FileError(f"{error.filename or path}: {error.strerror}") from None
        return cls(path.name, tuple(files), os.fspath(given))

    def facts(self) -> list[str]:
        """What it is: its name, and its bytes if there are any."""
        return [self.name] + [f"{name} {_store.digest(data)}" for name, data in self.files]

    def path(self, folder: Path) -> str:
        """Where it can be opened: the name, the file, or a copy that is made in the folder."""
        if not self.files:
            return self.name
        if self.where is not None and self._is_there(Path(self.where).parent):
            return self.where
        place = Path(tempfile.mkdtemp(dir=folder))
        for name, data in self.files:
            (place / name).write_bytes(data)
        return str(place / self.name)

    def _is_there(self, folder: Path) -> bool:
        """Whether this process sees the same files."""
        try:
            return all((folder / name).read_bytes() == data for name, data in self.files)
        except OSError:
            return False
