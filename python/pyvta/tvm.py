"""TVM's own VTA package on the devices of this project: import this before it.

    import pyvta.tvm
    from vta.testing import simulator

TVM up to 0.18 has that package, `vta`, in Python; what it computes with stands in C++ beside it, which nothing needs
any more: this module stands for the original's runtime, driver and simulator. The device of TVM's name `ext_dev` is
opened by the first call that needs it, as `VTA_DEVICE`, `VTA_BOARD` and `VTA_CONFIG` say (docs/c-original.md).

A module that TVM compiled calls the device without a way to fail. What fails is raised by the next `numpy()` of any
array, by the profiler's functions and by `check`.
"""

import contextlib
import ctypes
import functools
from collections.abc import Callable
from typing import Any

import tvm

from . import _pyvta
from .errors import RunError

__all__ = ["check"]

# TVM's number for memory of the host.
_CPU = 1
# Entries of a table of virtual functions that are copied; TVM's class has fewer.
_ENTRIES = 32
# Failures that are kept until somebody asks.
_KEPT = 16
_PAGE = 4096

# TVM's DLDevice and DLDataType travel in one register each.
_DEVICE, _TYPE, _SIZE, _POINTER = ctypes.c_uint64, ctypes.c_uint32, ctypes.c_size_t, ctypes.c_void_p
class _Symbol(ctypes.Structure):
    _fields_ = [("file", ctypes.c_char_p), ("base", _POINTER), ("name", ctypes.c_char_p), ("address", _POINTER)]


# What compiled modules call is found in the process.
_library = ctypes.CDLL(_pyvta.__file__, ctypes.RTLD_GLOBAL)
_library.VTABufferAlloc.restype = _POINTER
_library.vta_stats_json.restype = ctypes.c_char_p
_alloc, _free = _library.VTABufferAlloc, _library.VTABufferFree
_alloc.argtypes, _free.argtypes = [_SIZE], [_POINTER]
_library.VTABufferCopy.argtypes = [_POINTER, _SIZE, _POINTER, _SIZE, _SIZE, ctypes.c_int]

_dladdr = ctypes.CDLL(None).dladdr
_dladdr.argtypes = [_POINTER, _POINTER]

_failures: list[str] = []
# Buffers of modules' workspaces that nobody uses, by their size; sizes of those that somebody uses.
_idle: dict[int, list[int]] = {}
_used: dict[int, int] = {}


def _failed(text: bytes, _: object) -> None:
    if len(_failures) < _KEPT:
        _failures.append(text.decode())


def check() -> None:
    """Raises `RunError` for what failed on the device since it was last asked, if anything did."""
    if _failures:
        text = "\n".join(_failures)
        _failures.clear()
        raise RunError(text)


def _buffer(_this: int, _device: int, size: int, _alignment: int, _type: int) -> int | None:
    buffer: int | None = _alloc(size)
    return buffer


def _release(_this: int, _device: int, buffer: int) -> None:
    _free(buffer)


def _copy(_this: int, source: int, at: int, target: int, to: int, size: int, of: int, into: int, *_: int) -> None:
    kind = (2 if of & 0xFFFFFFFF != _CPU else 0) | (1 if into & 0xFFFFFFFF != _CPU else 0)
    _library.VTABufferCopy(source, at, target, to, size, kind)


def _work(_this: int, _device: int, size: int, _type: int) -> int | None:
    size = -(-max(size, 1) // _PAGE) * _PAGE
    buffer: int | None = _idle[size].pop() if _idle.get(size) else _alloc(size)
    if buffer:
        _used[buffer] = size
    return buffer


def _leave(_this: int, _device: int, buffer: int) -> None:
    _idle.setdefault(_used.pop(buffer), []).append(buffer)


# By the names of CPUDeviceAPI's functions, as its symbols have them: what stands for them, gives and takes.
_FUNCTIONS: dict[str, tuple[Callable[..., Any], Any, list[Any]]] = {
    "14AllocDataSpaceE8DLDevicem": (_buffer, _POINTER, [_DEVICE, _SIZE, _SIZE, _TYPE]),
    "13FreeDataSpaceE": (_release, None, [_DEVICE, _POINTER]),
    "14CopyDataFromToEPKv": (
        _copy,
        None,
        [_POINTER, _SIZE, _POINTER, _SIZE, _SIZE, _DEVICE, _DEVICE, _TYPE, _POINTER],
    ),
    "14AllocWorkspaceE": (_work, _POINTER, [_DEVICE, _SIZE, _TYPE]),
    "13FreeWorkspaceE": (_leave, None, [_DEVICE, _POINTER]),
}


def _symbol(address: int | None) -> str:
    """The name of the function that begins at an address, as the linker has it."""
    found = _Symbol()
    known = address and _dladdr(address, ctypes.byref(found))
    return found.name.decode() if known and found.name and found.address == address else ""


def _device_api() -> list[Any]:
    """An object of TVM's C++ class DeviceAPI: the one for the CPU, with the functions that differ. Its words, its
    table's, and the functions."""
    given = tvm.get_global_func("device_api.cpu")()
    [table] = ctypes.cast(given, ctypes.POINTER(ctypes.c_size_t))[:1]
    entries = (_POINTER * _ENTRIES).from_address(table)
    names = [_symbol(entry) for entry in entries]
    words = (_POINTER * _ENTRIES)(*entries)
    kept = []
    for name, (function, result, arguments) in _FUNCTIONS.items():
        places = [at for at, found in enumerate(names) if f"CPUDeviceAPI{name}" in found]
        if len(places) != 1:
            raise ImportError(f"libtvm has no symbol for CPUDeviceAPI's {name}..: build it without HIDE_PRIVATE_SYMBOLS")
        kept.append(ctypes.CFUNCTYPE(result, _POINTER, *arguments)(function))
        words[places[0]] = ctypes.cast(kept[-1], _POINTER)
    return [(_POINTER * 1)(ctypes.addressof(words)), words, kept]


def _ext_dev() -> ctypes.c_void_p:
    return ctypes.c_void_p(ctypes.addressof(_api[0]))


def _clear() -> None:
    check()
    _library.vta_stats_json(1)


def _status() -> str:
    check()
    text: bytes = _library.vta_stats_json(0)
    return text.decode()


def _debug(flag: int) -> None:
    if flag:
        raise RunError(f"debug mode {flag}: this device computes whatever it runs")


def _checked(numpy: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(numpy)
    def read(self: Any, *given: Any, **named: Any) -> Any:
        check()
        return numpy(self, *given, **named)

    return read


# TVM never frees a device, and failures may be told until the process ends.
_api = _device_api()
_told = ctypes.CFUNCTYPE(None, ctypes.c_char_p, _POINTER)(_failed)
_library.vta_on_failure(_told, None)
tvm.register_func("device_api.ext_dev", _ext_dev, override=True)
tvm.register_func("vta.simulator.profiler_clear", _clear, override=True)
tvm.register_func("vta.simulator.profiler_status", _status, override=True)
tvm.register_func("vta.simulator.profiler_debug_mode", _debug, override=True)
tvm.nd.NDArray.numpy = _checked(tvm.nd.NDArray.numpy)

# Where VTA's package looks for the original's simulator it finds this library.
with contextlib.suppress(ModuleNotFoundError):
    import vta.libinfo

    vta.libinfo.find_libvta = lambda _name, optional=False: [_pyvta.__file__]
