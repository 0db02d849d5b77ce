"""Packages that only some functions need."""

from importlib import import_module
from typing import Any


def need(module: str, extra: str) -> Any:
    """The module, or an ``ImportError`` that says which extra of pyvta brings it."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        text = f"{package} is missing: pip install pyvta[{extra}]"
        raise ImportError(text, name=package) from error
