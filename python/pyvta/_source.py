"""Models, boards and options as another process gets them: contents, not paths."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

import numpy as np

from pyvta import _store
from pyvta.errors import FileError, UsageError

#: How ONNX names a file of weights: an entry with the key `location`, and the bytes of its value.
_LOCATION = re.compile(rb"\x0a\x08location\x12([\x80-\xff]?[\x00-\x7f])")

#: Options that name a file, or something that is known by name.
_FILES = frozenset(("bitstream", "board", "config", "costs", "host_speed", "placement", "tiles", "timing"))
#: Devices that have a file behind their kind.
_DEVICES = ("board", "rtl")


#: Makes a folder for copies of files, and gives it again when it is asked again.
Folder: TypeAlias = Callable[[], Path]


@contextlib.contextmanager
def copies() -> Iterator[Folder]:
    """A folder that goes afterwards. It is made for the first copy: not every worker can write one."""
    with contextlib.ExitStack() as stack:
        yield functools.cache(lambda: Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pyvta-"))))


@dataclass(frozen=True)
class Source:
    """A name, or a file with its bytes, as a process without that file needs it."""

    name: str
    #: The file, and those that hold its data, by their paths beside it; empty for a name.
    files: tuple[tuple[str, bytes], ...] = ()
    #: Where the file was, which messages name as long as it is there.
    where: str | None = field(default=None, compare=False)

    @classmethod
    def of(cls, given: str | os.PathLike[str] | bytes) -> Source:
        """Reads a file; what is none is a name.

        Raises FileError for a file that can't be read.
        """
        if isinstance(given, bytes):
            return cls("model.onnx", (("model.onnx", given),))
        path = Path(given)
        if not path.is_file():
            return cls(os.fspath(given))
        try:
            content = path.read_bytes()
            named = _locations(content) if path.suffix == ".onnx" else []
            beside = [name for name in named if (path.parent / name).is_file()]
            files = [(path.name, content), *((name, (path.parent / name).read_bytes()) for name in beside)]
        except OSError as error:
            raise FileError(f"{error.filename or path}: {error.strerror}") from None
        return cls(path.name, tuple(files), os.fspath(given))

    @classmethod
    def of_model(cls, model: Any) -> Source:
        """A network's: a path, a name, ONNX as bytes, or what has them, as `pyvta.quantize` gives it.

        Raises TypeError for what is no model, FileError for a file that can't be read.
        """
        return cls.of(model_of(model))

    @functools.cached_property
    def facts(self) -> list[str]:
        """What it is: its name, and its bytes if there are any."""
        return [self.name] + [f"{name} {_store.digest(data)}" for name, data in self.files]

    def path(self, folder: Folder) -> str:
        """Where it can be opened: the name, the file, or a copy that is made in the folder."""
        if not self.files:
            return self.name
        if self.where is not None and self._is_there(Path(self.where).parent):
            return self.where
        place = Path(tempfile.mkdtemp(dir=folder()))
        for name, data in self.files:
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(data)
        return str(place / self.name)

    def _is_there(self, folder: Path) -> bool:
        """Whether this process sees the same files."""
        try:
            return all((folder / name).read_bytes() == data for name, data in self.files)
        except OSError:
            return False


def model_of(model: Any) -> str | bytes:
    """A network's path or name, or its bytes as ONNX, which models of `pyvta.quantize` and of ONNX's own class have.

    Raises TypeError for what is no model.
    """
    for method in ("to_onnx", "SerializeToString"):
        if hasattr(model, method):
            model = bytes(getattr(model, method)())
    if isinstance(model, bytes):
        return model
    if not isinstance(model, (str, os.PathLike)):
        kind = type(model).__name__
        raise TypeError(f"a model is a path, 'demo', 'zoo:NAME', ONNX as bytes or what has them, not {kind}")
    return os.fsdecode(model)


def again(model: Any, options: Mapping[str, Any]) -> tuple[tuple[Any], dict[str, Any]]:
    """Arguments as another process and folder needs them: the whole paths of files that are there."""

    def whole(value: Any) -> Any:
        is_path = isinstance(value, (str, os.PathLike)) and Path(value).is_file()
        return str(Path(value).absolute()) if is_path else value

    return (whole(model),), {name: whole(value) for name, value in options.items()}


def keys_of(config: Mapping[str, Any]) -> str:
    """The keys of a configuration as JSON, without those that are None; numbers may be numpy's.

    Raises TypeError for keys that are no text and values that JSON hasn't, UsageError for numbers that it hasn't.
    """
    given = {key: value for key, value in config.items() if value is not None}
    for key, value in given.items():
        if not isinstance(key, str):
            raise TypeError(f"`config` is a dict with names for keys, not {type(key).__name__}")
        try:
            json.dumps(value, default=_plain, allow_nan=False)
        except TypeError:
            kind = type(value).__name__
            raise TypeError(f"`config`: `{key}` is a number, text, a list or a dict, not {kind}") from None
        except (ValueError, RecursionError) as error:
            raise UsageError(f"`config`: `{key}`: {error}") from None
    return json.dumps(given, default=_plain)


def _locations(content: bytes) -> list[str]:
    """The files of weights that an ONNX file names, in its folder or below it."""
    names = set()
    for found in _LOCATION.finditer(content):
        low, high = found[1][0], found[1][1:]
        size = low & 0x7F | (high[0] << 7 if high else 0)
        name = content[found.end() : found.end() + size].decode(errors="replace")
        parts = PurePosixPath(name)
        if "\0" not in name and not parts.is_absolute() and ".." not in parts.parts:
            names.add(name)
    return sorted(names)


#: An option's value: text in JSON, or words and files that one text is made of.
_Value: TypeAlias = str | tuple[str | Source, ...]


@dataclass(frozen=True)
class Options:
    """Keyword arguments as another process needs them."""

    given: tuple[tuple[str, _Value], ...]

    @classmethod
    def of(cls, **given: Any) -> Options:
        """Reads the files; what is None is as if it weren't given.

        Raises FileError for a file that can't be read, TypeError for a value of another type.
        """
        return cls(tuple((name, _carried(name, given[name])) for name in sorted(given) if given[name] is not None))

    @functools.cached_property
    def facts(self) -> dict[str, Any]:
        """What they are, as JSON has it."""
        return {
            name: value if isinstance(value, str) else [part if isinstance(part, str) else part.facts for part in value]
            for name, value in self.given
        }

    def open(self, folder: Folder) -> dict[str, Any]:
        """The arguments; copies of files are made in the folder."""
        return {name: _opened(value, folder) for name, value in self.given}


def _carried(name: str, value: Any) -> _Value:
    if name == "device" and isinstance(value, str):
        parts: list[str | Source] = []
        for device in value.split(","):
            kind, colon, rest = device.partition(":")
            parts += ["," * bool(parts) + kind + colon, Source.of(rest) if kind in _DEVICES else rest]
        return tuple(parts)
    if name not in _FILES or isinstance(value, Mapping):
        return json.dumps(value, default=_plain, sort_keys=True)
    if not isinstance(value, (str, os.PathLike)):
        wanted = "a path or a mapping of its keys" if name == "config" else "a path or a name"
        raise TypeError(f"`{name}` is {wanted}, not {type(value).__name__}")
    try:
        # Boards have names, too.
        if name not in ("board", "timing"):
            os.stat(value)
    except OSError as error:
        raise FileError(f"{os.fspath(value)}: {error.strerror}") from None
    return (Source.of(value),)


def _opened(value: _Value, folder: Folder) -> Any:
    if isinstance(value, str):
        return json.loads(value)
    return "".join(part if isinstance(part, str) else part.path(folder) for part in value)


def _plain(value: Any) -> Any:
    """What JSON knows nothing of."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    raise TypeError(f"an option is text, a number or a path, not {type(value).__name__}")
