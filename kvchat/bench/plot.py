"""Plots, drawn in the terminal by plotext and into files by matplotlib; both are imported when they draw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

COLOURS = ("blue+", "orange+", "green+", "magenta+", "cyan+")
SHAPES = ("braille", "dot", "x", "*", "o", "+")
FILLS = "█░▓▒▚"
"""What tells lines and bars apart where there are no colours."""


class PlotError(Exception):
    """A file cannot be drawn; the message is one line that says what to do."""


@dataclass(frozen=True, slots=True)
class Series:
    """Points of a line, or bars over named places."""

    name: str
    x: Sequence[float] | Sequence[str]
    y: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    x: str
    """What lies along the axis, with its unit."""
    y: str
    series: Sequence[Series]
    """At least one; of bars, all over the same places."""
    kind: Literal["lines", "bars"] = "lines"
    log: bool = False
    """Whether `y` is drawn logarithmically."""


def draw(plot: Plot, width: int = 80, height: int = 18, colour: bool = False) -> str:
    """The plot as lines of text."""
    import plotext

    plotext.clear_figure()
    plotext.plot_size(width, height)
    for paint in (plotext.canvas_color, plotext.axes_color, plotext.ticks_color):
        paint("default")
    count = len(plot.series)
    colours = (COLOURS * count)[:count]
    if plot.kind == "bars":
        plotext.multiple_bar(
            list(plot.series[0].x),
            [list(series.y) for series in plot.series],
            labels=[series.name for series in plot.series],
            color=list(colours),
            marker=list((FILLS * count)[:count]),
        )
    else:
        shapes = ("braille",) * count if colour else (SHAPES * count)[:count]
        for series, shape, hue in zip(plot.series, shapes, colours, strict=True):
            plotext.plot(list(series.x), list(series.y), label=series.name, color=hue, marker=shape)
        if not plot.log:
            plotext.ylim(min(0, *(value for series in plot.series for value in series.y)), None)
    plotext.yscale("log" if plot.log else "linear")
    plotext.xlabel(plot.x)
    plotext.ylabel(plot.y)
    picture = plotext.build().rstrip()
    return picture if colour else plotext.uncolorize(picture)


def require_matplotlib() -> None:
    """Raises PlotError where `save` would."""
    if find_spec("matplotlib") is None:
        raise PlotError("plots in files need matplotlib, which is not installed: pip install 'kvchat[plots]'")


def save(plot: Plot, path: Path, kind: Literal["png", "svg"], title: str) -> None:
    """Write the plot into a file, whatever its name ends in. Raises PlotError and OSError."""
    require_matplotlib()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes: Any = figure.subplots()
    if plot.kind == "bars":
        width = 0.8 / len(plot.series)
        for number, series in enumerate(plot.series):
            places = [place + (number - (len(plot.series) - 1) / 2) * width for place in range(len(series.x))]
            axes.bar(places, series.y, width, label=series.name)
        axes.set_xticks(range(len(plot.series[0].x)), plot.series[0].x)
    else:
        for series in plot.series:
            axes.plot(series.x, series.y, marker="o" if len(series.x) < 20 else "", label=series.name)
        if not plot.log:
            axes.set_ylim(bottom=min(0, *(value for series in plot.series for value in series.y)))
    axes.set_yscale("log" if plot.log else "linear")
    axes.set(xlabel=plot.x, ylabel=plot.y)
    axes.set_title(title, loc="left", fontsize="medium", wrap=True)
    axes.grid(axis="y", alpha=0.3)
    if len(plot.series) > 1:
        axes.legend()
    figure.savefig(path, format=kind)
