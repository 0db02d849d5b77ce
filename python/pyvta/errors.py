"""What can go wrong, by cause.

Every exception of pyvta is a :class:`VtaError`, and one of Python's own classes where that has one
for the cause, so that ``except ValueError`` works as well. Messages say where and what, and name
options as the arguments that they are. Work that Ctrl-C stops raises :class:`KeyboardInterrupt`.
"""

__all__ = [
    "DeviceError",
    "FileError",
    "FloatModelError",
    "InputError",
    "MemoryLimitError",
    "ModelError",
    "RunError",
    "UsageError",
    "VtaError",
    "VtaWarning",
    "WaitError",
    "WaitTimeoutError",
]


class VtaError(Exception):
    """Any error of pyvta."""


class UsageError(VtaError, ValueError):
    """What was asked for makes no sense: a name that nothing has, options that contradict each other."""


class FloatModelError(VtaError, ValueError):
    """A float network where only an int8 one will do: quantise it first, see :func:`pyvta.quantize`."""


class InputError(VtaError, ValueError):
    """Data that isn't what it should be: an array, an image, a configuration, a table, a program."""


class ModelError(VtaError):
    """A network that can't be read, quantised, placed, compiled or loaded."""


class DeviceError(VtaError):
    """A device that isn't there or can't be opened."""


class RunError(VtaError, RuntimeError):
    """A run that began and failed: the device, or a layer of the host."""


class FileError(VtaError, OSError):
    """A file that can't be read or written. ``errno`` and ``filename`` are the system's, where it said why."""


class MemoryLimitError(VtaError, MemoryError):
    """Work for which the system has no memory, found before it is begun."""


class WaitError(VtaError, RuntimeError):
    """A wait that can't be satisfied: nobody promised the value, its promise failed, or work would wait for itself."""


class WaitTimeoutError(WaitError, TimeoutError):
    """A wait that wasn't satisfied in time."""


class VtaWarning(UserWarning):
    """What is worth knowing about work that went on."""
