"""What a report shows with pandas, matplotlib and notebooks."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

from pyvta._extras import need

if TYPE_CHECKING:
    from pyvta._pyvta import Report

# Of a cell's output, in pixels: the page scrolls within.
_HEIGHT = 640

# The share of the cycles from which on a layer's name is written, and how many letters of it.
_NAMED, _LETTERS = 0.012, 24

# One for each use of the compute module's cycles, as the page has them.
_COLOURS = ("#3b6fb6", "#d98c2b", "#5a9e6f", "#b65b4f", "#7d6bb0", "#4fa3a8", "#a88b4f", "#8a8f98")


def to_pandas(report: Report) -> Any:
    """A row for each layer; nested figures are columns."""
    pandas = need("pandas", "pandas")
    rows = []
    for layer in report.layers:
        row = dict(layer)
        for name in ("spend", "read_beats"):
            for key, value in row.pop(name, {}).items():
                row[f"{name}_{key.replace(' ', '_')}"] = value
        row.pop("host", None)
        row["stall_cycles"] = sum(stall["cycles"] for stall in row.pop("stalls", []))
        rows.append(row)
    frame = pandas.DataFrame(rows)
    frame.attrs.update(title=report.title, timing=report.timing, cycles=report.cycles)
    return frame


def timeline(report: Report) -> Any:
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


def frame(report: Report) -> str:
    """The page within a notebook, whose styles it shares nothing with."""
    page = html.escape(report.to_html(), quote=True)
    style = f"width:100%;height:{_HEIGHT}px;border:0"
    return f'<iframe srcdoc="{page}" style="{style}" title="{html.escape(report.title)}"></iframe>'
