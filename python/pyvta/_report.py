"""Where cycles go: a report's figures, as pandas, matplotlib and notebooks have them."""

from __future__ import annotations

import functools
import html
from copy import deepcopy
from typing import TYPE_CHECKING, Any, final

import numpy as np
import numpy.typing as npt

from pyvta._extras import need

if TYPE_CHECKING:
    from pyvta._pyvta import Views

# Of a cell's output, in pixels: the page scrolls within.
_HEIGHT = 640

# The share of the cycles from which on a layer's name is written, and how many letters of it.
_NAMED, _LETTERS = 0.012, 24

# One for each use of the compute module's cycles, as the page has them.
_COLOURS = ("#3b6fb6", "#d98c2b", "#5a9e6f", "#b65b4f", "#7d6bb0", "#4fa3a8", "#a88b4f", "#8a8f98")


@final
class Report:
    """Where the cycles of one pass over a network went: BATCH images on the cycle-level model.

    In a notebook it shows itself as a page.
    """

    def __init__(self, figures: dict[str, Any], views: Views) -> None:
        # With the keys of `vta run --json`, and `title`.
        self._figures = figures
        self._views = views
        #: The model's name.
        self.title: str = figures["title"]
        #: The board or file whose timing it is.
        self.timing: str = figures["timing"]
        #: Cycles of the pass.
        self.cycles: int = figures["cycles"]
        #: Cycles that no schedule of these layers, one after the other, can beat.
        self.bound_cycles: int = figures["bound_cycles"]
        #: What the device takes of the pass, in milliseconds at its clock.
        self.pass_ms: float = figures["pass_ms"]
        #: An estimate of the energy of the pass, in microjoules.
        self.energy_uj: float = figures["energy_uj"]

    @property
    def layers(self) -> list[dict[str, Any]]:
        """A dict for each layer in the program's order, with the keys of `vta run --json`: `name`, `kind`, `macs`,
        `cycles`, `bound_cycles`, `utilization`, `spend`, `stalls`, `energy_uj`, `limited_by`, `why` and more.
        """
        layers: list[dict[str, Any]] = deepcopy(self._figures["layers"])
        return layers

    @property
    def stalls(self) -> dict[str, dict[str, int]]:
        """Cycles that units waited, by unit and reason: `{"load": {"dram": 120}}`."""
        stalls: dict[str, dict[str, int]] = {}
        for stall in self._figures["stalls"]:
            stalls.setdefault(stall["unit"], {})[stall["reason"]] = stall["cycles"]
        return stalls

    def to_dict(self) -> dict[str, Any]:
        """Everything: totals and `layers`, with the keys of `vta run --json`."""
        return deepcopy(self._figures)

    def to_pandas(self) -> Any:
        """The layers as a pandas.DataFrame, a row each; what their cycles were spent on is in columns
        `spend_*`. Needs `pip install pyvta[pandas]`.
        """
        pandas = need("pandas", "pandas")
        rows = []
        for row in self.layers:
            for name in ("spend", "read_beats"):
                for key, value in row.pop(name, {}).items():
                    row[f"{name}_{key.replace(' ', '_')}"] = value
            row.pop("host", None)
            row["stall_cycles"] = sum(stall["cycles"] for stall in row.pop("stalls", []))
            rows.append(row)
        frame = pandas.DataFrame(rows)
        frame.attrs.update(title=self.title, timing=self.timing, cycles=self.cycles)
        return frame

    @functools.cached_property
    def _made(self) -> tuple[str, dict[str, npt.NDArray[np.float64]]]:
        return self._views.make()

    def to_html(self) -> str:
        """One HTML page that needs nothing else."""
        return self._made[0]

    def timeline(self) -> Any:
        """Busy units over time, layers above them, as a matplotlib.figure.Figure. Needs `pip install
        pyvta[plot]`.
        """
        return _timeline(self)

    def busy(self) -> dict[str, npt.NDArray[np.float64]]:
        """Busy shares over the pass, 0 to 1: a dict of float64 arrays by the units' names, each of a thousand
        columns of equal width.
        """
        return {name: shares.copy() for name, shares in self._made[1].items()}

    def _repr_html_(self) -> str:
        """The page within a notebook, whose styles it shares nothing with."""
        page = html.escape(self.to_html(), quote=True)
        style = f"width:100%;height:{_HEIGHT}px;border:0"
        return f'<iframe srcdoc="{page}" style="{style}" title="{html.escape(self.title)}"></iframe>'

    def __getstate__(self) -> dict[str, Any]:
        made = {"_made": self._made}
        return {name: value for name, value in vars(self).items() if name != "_views"} | made

    def __repr__(self) -> str:
        return f"<Report of {self.title} on {self.timing}: {self.cycles} cycles, bound {self.bound_cycles}>"


def _timeline(report: Report) -> Any:
    """Layers, and below them how busy each unit is, over the cycles of the pass."""
    need("matplotlib.figure", "plot")
    from pyvta._figure import Picture

    lanes, layers = report.busy(), report.layers
    figure = Picture(figsize=(11, 5), layout="constrained")
    sizes = [3.0] + [1.0] * len(lanes)
    axes = figure.subplots(len(lanes) + 1, 1, sharex=True, gridspec_kw={"height_ratios": sizes})
    start = 0
    resources: dict[str, str] = {}
    for layer in layers:
        cycles = layer["cycles"]
        limit = layer.get("limited_by") or ""
        colour = resources.setdefault(limit, _COLOURS[len(resources) % len(_COLOURS)])
        axes[0].broken_barh([(start, cycles)], (0, 1), facecolor=colour, edgecolor="white", linewidth=0.3)
        # Narrower ones have no room for a line of text.
        if cycles >= report.cycles * _NAMED:
            name = layer["name"] if len(layer["name"]) <= _LETTERS else layer["name"][: _LETTERS - 1] + "…"
            axes[0].text(start + cycles / 2, 0.5, name, rotation=90, fontsize=6, color="white", ha="center", va="center")
        start += cycles
    axes[0].set_ylabel("layers", rotation=0, ha="right", va="center")
    handles = [axes[0].plot([], [], color=c, linewidth=6, label=r)[0] for r, c in resources.items() if r]
    if handles:
        axes[0].legend(handles=handles, loc="lower left", bbox_to_anchor=(0, 1), ncols=len(handles), frameon=False)
    for axis, (name, busy) in zip(axes[1:], lanes.items(), strict=True):
        width = report.cycles / len(busy)
        edges = [i * width for i in range(len(busy))]
        axis.fill_between(edges, busy, step="post", color="#3b6fb6", linewidth=0)
        axis.set_ylim(0, 1)
        axis.set_ylabel(name, rotation=0, ha="right", va="center")
    for axis in axes:
        axis.set_yticks([])
        axis.spines[["top", "right", "left"]].set_visible(False)
    axes[-1].set_xlim(0, max(report.cycles, 1))
    axes[-1].set_xlabel(f"cycle of {report.title} on {report.timing}")
    return figure
