"""A program written by hand, cycle by cycle."""

from collections.abc import Mapping
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

from pyvta._extras import need
from pyvta._pyvta import Steps
from pyvta.errors import UsageError

__all__ = ["Stepper"]

_Path = str | PathLike[str]
_SCRIPT = Path(__file__).with_name("stepper.js")


class Stepper:
    """A program in assembly text, as ``vta exec`` runs it, cycle by cycle on the cycle model.

    ``program`` is the text, or the path of a file as a ``Path``. ``config``, ``board`` and ``timing`` are those of
    :class:`pyvta.isa.Config` and of ``vta exec``. In a notebook it shows itself: modules with their queues, tokens,
    scratchpads, a timeline, and buttons that step. That takes ``pip install pyvta[notebook]``.

    >>> stepper = Stepper("load.inp y_size=1 x_size=16 push_next\\nfinish pop_prev")
    >>> stepper.cycles, [insn["done"] for insn in stepper.overview["insns"]]
    (82, [80, None])
    >>> stepper.state(40)["tokens"]
    [0, 0, 0, 0]

    Raises ``InputError`` for text that is no program, ``UsageError`` for one without instructions or with more than 20,000.
    """

    def __init__(
        self,
        program: _Path,
        *,
        config: _Path | Mapping[str, Any] | None = None,
        board: _Path | None = None,
        timing: _Path | None = None,
    ) -> None:
        #: The program's text.
        self.text = program if isinstance(program, str) else Path(program).read_text(encoding="utf-8")
        self._steps = Steps(self.text, config=config, board=board, timing=timing)
        #: What stays the same from cycle to cycle: ``insns`` with their ``line``, ``module``, and the cycles in which
        #: they are ``dispatched``, ``start`` and are ``done``; ``bursts`` on the bus; ``faults`` and ``hazards``.
        self.overview: dict[str, Any] = self._steps.overview()

    @property
    def cycles(self) -> int | None:
        """The cycles of the run; ``None`` where it never ends."""
        cycles: int | None = self.overview["cycles"]
        return cycles

    def state(self, cycle: int | None = None) -> dict[str, Any]:
        """The machine behind a cycle, 0 to ``overview["last"]``, or before the first one: ``tokens`` by edge, ``modules``
        with their ``queue``, why units wait (``stalls``), ``bus``, and the written tiles of scratchpads (``pads``).

        Raises ``UsageError`` for a cycle that the run doesn't have.
        """
        last = self.overview["last"]
        if cycle is not None and not 0 <= cycle <= last:
            raise UsageError(f"cycle {cycle}: the run has the cycles 0 to {last}")
        state: dict[str, Any] = self._steps.state(cycle)
        return state

    @cached_property
    def widget(self) -> Any:
        """What notebooks show, an ``anywidget.AnyWidget``. ``ImportError`` where that package is missing."""
        widget = need("anywidget", "notebook").AnyWidget(_esm=_SCRIPT.read_text(encoding="utf-8"))
        traits = need("traitlets", "notebook")
        widget.add_traits(
            overview=traits.Dict(self.overview).tag(sync=True), text=traits.Unicode(self.text).tag(sync=True)
        )

        def answer(widget: Any, content: dict[str, Any], _buffers: object) -> None:
            cycle = content["cycle"]
            widget.send({"cycle": cycle, "state": self.state(None if cycle < 0 else cycle)})

        widget.on_msg(answer)
        return widget

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        return self.widget._repr_mimebundle_(**kwargs)

    def __repr__(self) -> str:
        return f"<pyvta.Stepper: {len(self.overview['insns'])} instructions, {self.cycles} cycles>"
